"""Kernel PCA and kernel k-means over data that cannot be pooled."""

from typing import Any

# The smallest protocol there is, of no estimator: hosts must know its role all the same.
import eigenmesh.graphs.gossip_average
import eigenmesh.reports.notebook_tables  # noqa: F401  # says how reports show themselves
from eigenmesh.connect import federation
from eigenmesh.cross_validation.search import CrossValidation, cross_validate
from eigenmesh.data import Partitioned, split
from eigenmesh.data.spark_rows import SparkRows
from eigenmesh.engines.faulty import Fault
from eigenmesh.errors import CostWarning, EigenmeshError, EigenmeshWarning, LossWarning
from eigenmesh.estimators.base import load
from eigenmesh.estimators.plan import plan, study
from eigenmesh.estimators.preparation import Preparation
from eigenmesh.extras import extra
from eigenmesh.kernel_kmeans.estimator import KernelKMeans
from eigenmesh.kernel_pca.estimator import KernelPCA
from eigenmesh.methods.admm.estimator import ADMMKPCA
from eigenmesh.methods.diskpca.estimator import DisKPCA
from eigenmesh.methods.diskpca.leverage_estimator import leverage_scores
from eigenmesh.methods.diskpca.sketching_estimator import SketchingPCA
from eigenmesh.methods.dpca.estimator import DPCA
from eigenmesh.methods.dspgd.estimator import FedKernelKMeans
from eigenmesh.methods.gossip.estimator import GossipKPCA
from eigenmesh.methods.moments.estimator import MomentPCA
from eigenmesh.methods.one_shot.estimator import OneShotKPCA
from eigenmesh.methods.private_features.estimator import PrivatePCA
from eigenmesh.methods.private_features.kmeans_estimator import PrivateKMeans
from eigenmesh.methods.row_clusters.estimator import DistributedKMeans
from eigenmesh.methods.vfed.estimator import VFedPCA
from eigenmesh.methods.vfed.kernel_estimator import VFedAKPCA
from eigenmesh.regression.estimator import KernelPCRegressor
from eigenmesh.reports.audit import audit
from eigenmesh.reports.page import report
from eigenmesh.runtime.budget import Budget
from eigenmesh.runtime.policy import Policy
from eigenmesh.runtime.study import load_study
from eigenmesh.version import __version__ as __version__

__all__ = [
    "ADMMKPCA",
    "DPCA",
    "Budget",
    "CostWarning",
    "CrossValidation",
    "DisKPCA",
    "DistributedKMeans",
    "EigenmeshError",
    "EigenmeshWarning",
    "Fault",
    "FedKernelKMeans",
    "GossipKPCA",
    "KernelKMeans",
    "KernelPCA",
    "KernelPCRegressor",
    "LossWarning",
    "MomentPCA",
    "OneShotKPCA",
    "Partitioned",
    "Policy",
    "Preparation",
    "PrivateKMeans",
    "PrivatePCA",
    "SketchingPCA",
    "SparkRows",
    "VFedAKPCA",
    "VFedPCA",
    "audit",
    "cross_validate",
    "federation",
    "leverage_scores",
    "load",
    "load_study",
    "plan",
    "report",
    "split",
    "study",
]


def __getattr__(name: str) -> Any:
    """`em.plot`, which takes a second to import: that waits until somebody draws."""
    if name != "plot":
        raise AttributeError(f"module 'eigenmesh' has no attribute {name!r}")
    with extra("plot", "em.plot"):
        from eigenmesh.reports import plots
    return plots
