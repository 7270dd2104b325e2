"""One-shot kernel PCA over columns (paper 000)."""
