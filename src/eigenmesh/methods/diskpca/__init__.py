"""disKPCA: kernel PCA over rows from a few landmarks (paper 001), and its baselines."""
