"""Protocols: one paper, one file."""
