"""A site's centroids: nodes of its one tree, by draws that only the site can repeat."""

from __future__ import annotations

from eigenmesh.numerics.arrays import Floats, Rows
from eigenmesh.numerics.centroids import MIN_CLUSTER, centroids
from eigenmesh.numerics.own_centroids import has_clusters, own_centroids
from eigenmesh.runtime.site import SiteView

_TREE = 1  # no protocol's number: whoever asks, the tree is the same


def site_centroids(site: SiteView, rows: Rows, count: int, before: int = 0) -> Floats:
    """`numerics.centroids`, none of fewer rows than the site's policy has as its fewest.

    No seed moves them: fits that differ in their seeds or numbers get nodes of the same tree. Where
    nothing is sent there is nothing to hide, and better means are found sooner.
    """
    least = max(MIN_CLUSTER, site.min_rows)
    if site.sends_nothing:
        rng = site.private_generator(_TREE, 0)
        if has_clusters(rows.shape[0], count):
            return own_centroids(rows, count, least, rng)
    return centroids(rows, count, least, lambda part: site.private_generator(_TREE, part), before)
