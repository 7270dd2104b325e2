"""Kernel PCA and kernel k-means over data that cannot be pooled."""

__version__ = "0.1.0"

from eigenmesh.connect import federation
from eigenmesh.data import Partitioned, split
from eigenmesh.engines.faulty import Fault
from eigenmesh.errors import CostWarning, EigenmeshError, EigenmeshWarning
from eigenmesh.estimators import (
    ADMMKPCA,
    DPCA,
    DisKPCA,
    FedKernelKMeans,
    GossipKPCA,
    KernelKMeans,
    KernelPCA,
    KernelPCRegressor,
    OneShotKPCA,
    SketchingPCA,
    VFedAKPCA,
    VFedPCA,
    leverage_scores,
    load,
    plan,
)
from eigenmesh.federation.policy import Policy

__all__ = [
    "ADMMKPCA",
    "DPCA",
    "CostWarning",
    "DisKPCA",
    "EigenmeshError",
    "EigenmeshWarning",
    "Fault",
    "FedKernelKMeans",
    "GossipKPCA",
    "KernelKMeans",
    "KernelPCA",
    "KernelPCRegressor",
    "OneShotKPCA",
    "Partitioned",
    "Policy",
    "SketchingPCA",
    "VFedAKPCA",
    "VFedPCA",
    "federation",
    "leverage_scores",
    "load",
    "plan",
    "split",
]
