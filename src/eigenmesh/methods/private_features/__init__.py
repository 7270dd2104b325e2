"""Kernel PCA and k-means over rows with differential privacy, from noised sums of features."""
