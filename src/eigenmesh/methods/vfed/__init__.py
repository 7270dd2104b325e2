"""Vertical federated PCA over columns (paper 002)."""
