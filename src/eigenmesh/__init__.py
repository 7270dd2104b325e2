"""Kernel PCA and kernel k-means over data that cannot be pooled."""

__version__ = "0.1.0"

from eigenmesh.connect import federation
from eigenmesh.data import Partitioned, split
from eigenmesh.errors import EigenmeshError, EigenmeshWarning
from eigenmesh.estimators import DisKPCA, OneShotKPCA, load, plan
from eigenmesh.federation.policy import Policy

__all__ = [
    "DisKPCA",
    "EigenmeshError",
    "EigenmeshWarning",
    "OneShotKPCA",
    "Partitioned",
    "Policy",
    "federation",
    "load",
    "plan",
    "split",
]
