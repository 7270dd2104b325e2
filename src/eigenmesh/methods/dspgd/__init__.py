"""Federated kernel k-means by stochastic proximal gradient descent (paper 004)."""
