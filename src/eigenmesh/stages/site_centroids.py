"""A site's centroids: nodes of its one tree, by draws that only the site can repeat."""

from __future__ import annotations

import numpy as np

from eigenmesh.numerics.arrays import Floats, Rows, is_sparse
from eigenmesh.numerics.centroids import (
    MIN_CLUSTER,
    Draws,
    SplitBy,
    centroids,
    groups_of_rows,
)
from eigenmesh.numerics.coresets import Groups, groups_by_label, point_groups
from eigenmesh.numerics.draws import Indices
from eigenmesh.numerics.kmeans import WeightedPoints
from eigenmesh.numerics.own_centroids import has_clusters, own_centroids
from eigenmesh.runtime.site import SiteView

# No protocols' numbers: whoever asks, the tree is the same.
_TREE, _GROUPS = 1, 0x6B6D


def site_centroids(site: SiteView, rows: Rows, count: int, before: int = 0) -> Floats:
    """`numerics.centroids`, none of fewer rows than the site's policy has as its fewest.

    No seed moves them: fits that differ in their seeds or numbers get nodes of the same tree. Where
    nothing is sent there is nothing to hide, and better means are found sooner. Where a policy
    keeps rows, the tree is the same however a study prepares them.
    """
    least = _least(site)
    if site.sends_nothing:
        rng = site.private_generator(_TREE, 0)
        if has_clusters(rows.shape[0], count):
            return own_centroids(rows, count, least, rng)
    return centroids(rows, count, least, _draws(site), before, _split_by(site))


def site_groups(site: SiteView, points: WeightedPoints, most: int) -> Groups:
    """At most `most` groups of the site's rows as points, each of as many as a sum must be over.

    Of points that have a weight: their rows have a tree of their own, if these are not all rows.
    Where a policy keeps rows they are nodes of the trees of `site_centroids`. Groups that follow
    from where points are would be others for each study: of 160 studies with components of the
    asker's choice the differences of their sums told single rows. And they have so many rows that
    these do not follow from their mean, which has as many coordinates as points have: five rows of
    two columns were had from twelve.
    """
    counting, least = np.flatnonzero(points.weights > 0), _least(site)
    (n_points, dim), n_rows = points.points.shape, int(site.data.shape[0])
    fewest = max(least, min(site.fewest_seen(dim), len(counting)))  # or one group of all rows
    is_whole = len(counting) == n_points
    some = points if is_whole else WeightedPoints(points.points[counting], points.weights[counting])
    if site.may_tell_rows or len(counting) < least or n_points != n_rows:
        return point_groups(some, most, fewest, site.private_generator(_GROUPS))
    by, rows = _split_by(site), site.data if is_whole else site.data[counting]
    of_counting = by if is_whole or by is None else lambda places: by(counting[places])
    groups = groups_of_rows(rows, most, least, _draws(site), of_counting, fewest)
    return groups_by_label(some, groups)


def _least(site: SiteView) -> int:
    return max(MIN_CLUSTER, site.min_rows)


def _draws(site: SiteView) -> Draws:
    return lambda part: site.private_generator(_TREE, part)


def _split_by(site: SiteView) -> SplitBy | None:
    """Rows in units of the site's own, where a study has prepared them and rows are kept.

    Who chooses what rows are divided by would choose the tree: with many, single rows follow.
    """
    if site.may_tell_rows or not site.prepared:
        return None
    return lambda places: _in_own_units(site.unprepared, places)


def _in_own_units(X: Rows, places: Indices) -> Rows:
    """Columns by their own deviation, with gaps at their own mean; sparse ones by the largest."""
    if is_sparse(X):
        rows = X[places].astype(np.float64)
        rows.data = np.nan_to_num(rows.data)
        largest = abs(rows).max(axis=0).toarray().ravel()
        rows.data /= np.maximum(largest, np.finfo(float).tiny)[rows.indices]
        return rows
    rows = np.asarray(X[places], dtype=np.float64)
    is_gap = np.isnan(rows)
    rows, there = np.where(is_gap, 0.0, rows), np.maximum((~is_gap).sum(axis=0), 1)
    offsets = np.where(is_gap, 0.0, rows - rows.sum(axis=0) / there)
    spread = np.sqrt(np.square(offsets).sum(axis=0) / there)
    return offsets / np.where(spread > 0, spread, 1.0)
