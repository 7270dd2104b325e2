"""Kernel PCA on a graph without rows: shared features, averaged by gossip."""
