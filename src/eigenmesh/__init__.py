"""Kernel PCA and kernel k-means over data that cannot be pooled."""

from eigenmesh.connect import federation
from eigenmesh.data import Partitioned, split
from eigenmesh.errors import EigenmeshError, EigenmeshWarning
from eigenmesh.federation.policy import Policy

__version__ = "0.1.0"

__all__ = [
    "EigenmeshError",
    "EigenmeshWarning",
    "Partitioned",
    "Policy",
    "federation",
    "split",
]
