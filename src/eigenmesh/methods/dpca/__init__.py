"""Decentralised linear PCA over columns: a baseline of paper 002."""
