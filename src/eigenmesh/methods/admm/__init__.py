"""Kernel PCA on a graph by consensus of projections (paper 003)."""
