"""Noise on a site's rows before they leave: the same noise in everything that leaves.

A mean or a sum without the noise, beside rows that have it, would tell some of it; and fresh noise
for every message would average out. So the noise is drawn once for a site's data, from the site's
own entropy, and all that is sent is computed from the noisy rows.
"""

from __future__ import annotations

import numpy as np

from eigenmesh.numerics.arrays import Rows, dense
from eigenmesh.runtime.site import SiteView

_KEY = "the seed of the noise on the rows of this site"


def noisy_rows(site: SiteView, deviation: float) -> Rows:
    """The site's rows, with Gaussian noise of this standard deviation unless it is 0."""
    X = site.data
    if not deviation:
        return X
    share = site.kept(_KEY, "seed")
    if share is None:
        share = {"seed": int(np.random.SeedSequence().entropy) % 2**63}  # type: ignore[arg-type]
        site.keep(_KEY, share, for_any=True)
    # The deviation is part of the seed: one draw at two scales would give the rows away.
    scale = int(np.float64(deviation).view(np.uint64))
    noise = np.random.default_rng([share["seed"], scale]).normal(size=X.shape)
    return dense(X) + (deviation * noise).astype(X.dtype)
