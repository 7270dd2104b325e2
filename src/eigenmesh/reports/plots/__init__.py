"""Pictures of fits, as `em.plot`: every function gives a figure, and saves it if a path is given.

Matplotlib is imported here, which takes a second; `import eigenmesh` does without.

>>> import eigenmesh as em, numpy as np
>>> X = np.random.default_rng(0).normal(size=(60, 4))
>>> parts = em.split(X, 3, random_state=0)
>>> kpca = em.KernelPCA(2, random_state=0).fit(parts)
>>> em.plot.embedding(kpca.transform(parts)).axes[0].get_xlabel()
'component 1'
"""

from eigenmesh.reports.plots.cluster_maps import clusters, eigengap, suggested_clusters
from eigenmesh.reports.plots.components import convergence, loadings, scree
from eigenmesh.reports.plots.costs import error_against_bytes
from eigenmesh.reports.plots.held_out_scores import cross_validation
from eigenmesh.reports.plots.networks import graph
from eigenmesh.reports.plots.picture_style import PALETTE, Picture
from eigenmesh.reports.plots.score_maps import align_signs, compare, embedding

__all__ = [
    "PALETTE",
    "Picture",
    "align_signs",
    "clusters",
    "compare",
    "convergence",
    "cross_validation",
    "eigengap",
    "embedding",
    "error_against_bytes",
    "graph",
    "loadings",
    "scree",
    "suggested_clusters",
]
