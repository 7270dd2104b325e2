"""Kernel PCA over rows from summed moments, for kernels whose features are few: exact."""
