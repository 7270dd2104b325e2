"""Samples of a site's rows, whose share of all rows somebody else asks for."""

from __future__ import annotations

from eigenmesh.numerics.mean_outside import SampleBounds
from eigenmesh.runtime.site import SiteView


def sample_bounds(site: SiteView, numbers: int) -> SampleBounds:
    """Of samples of which so many numbers are told."""
    fewest = site.fewest_seen(numbers)
    return SampleBounds(fewest, smallest=site.fewest_seen(0) if site.counts_numbers else None)
