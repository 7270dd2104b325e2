"""What is said of features on a graph that miss more than they may."""

from types import SimpleNamespace

import numpy as np
import pytest

from eigenmesh.methods.gossip.estimator import graph_caveats
from eigenmesh.methods.gossip.protocol import Missing


def result(shares, errors):
    return SimpleNamespace(
        features="centroids",
        missing=Missing(values=np.array(shares), errors=np.array(errors)),
        growing=np.zeros(len(shares)),
        without=(),
        exhausted=True,
        outcome=SimpleNamespace(n_dimensions=40),
        n_features=40,
    )


@pytest.mark.parametrize("seed", range(20))
def test_what_may_be_missing_within_two_standard_errors_is_said(seed):
    rng = np.random.default_rng(seed)
    shares, errors = rng.uniform(0, 0.015, size=3), rng.uniform(0, 0.004, size=3)
    caveats = graph_caveats(result(shares, errors), "centroids", 0.01)
    assert bool(caveats) == bool((shares + 2 * errors > 0.01).any())
    assert all(("perhaps" in caveat) == (shares.max() <= 0.01) for caveat in caveats)
