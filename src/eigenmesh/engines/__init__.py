"""Engines carry bytes; each is one file."""
