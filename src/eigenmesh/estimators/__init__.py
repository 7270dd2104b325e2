"""What users import: scikit-learn estimators over the protocols."""

from eigenmesh.estimators.admm_kpca import ADMMKPCA
from eigenmesh.estimators.base import load
from eigenmesh.estimators.diskpca import DisKPCA
from eigenmesh.estimators.dpca import DPCA
from eigenmesh.estimators.fed_kernel_kmeans import FedKernelKMeans
from eigenmesh.estimators.gossip_kpca import GossipKPCA
from eigenmesh.estimators.kernel_kmeans import KernelKMeans
from eigenmesh.estimators.kernel_pc_regressor import KernelPCRegressor
from eigenmesh.estimators.kernel_pca import KernelPCA
from eigenmesh.estimators.leverage_scores import leverage_scores
from eigenmesh.estimators.one_shot import OneShotKPCA
from eigenmesh.estimators.plan import plan
from eigenmesh.estimators.sketching_pca import SketchingPCA
from eigenmesh.estimators.vfed_akpca import VFedAKPCA
from eigenmesh.estimators.vfed_pca import VFedPCA

__all__ = [
    "ADMMKPCA",
    "DPCA",
    "DisKPCA",
    "FedKernelKMeans",
    "GossipKPCA",
    "KernelKMeans",
    "KernelPCA",
    "KernelPCRegressor",
    "OneShotKPCA",
    "SketchingPCA",
    "VFedAKPCA",
    "VFedPCA",
    "leverage_scores",
    "load",
    "plan",
]
