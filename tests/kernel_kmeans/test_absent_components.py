"""Rows that no landmark's span has anything of: the eigenvalues that are theirs are missing."""

import numpy as np
import pytest

import eigenmesh as em
from eigenmesh.errors import EigenmeshWarning

WHERE = {"rows": {}, "masked": {"secure": True}, "ring": {"topology": "ring"}}


def drawn(seed):
    """Tight groups, and single rows far from all; parties; the kernel's width."""
    rng = np.random.default_rng(seed)
    d, groups, alone = (int(rng.integers(*ends)) for ends in ((4, 9), (2, 4), (6, 12)))
    centres = 20 * rng.normal(size=(groups, d))
    near = centres[rng.integers(groups, size=60)] + 1e-3 * rng.normal(size=(60, d))
    X = np.vstack([near, 40 * rng.normal(size=(alone, d))])
    return em.split(X, int(rng.integers(3, 6)), random_state=seed), groups, 0.05


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("seed", range(4))
def test_wanted_eigenvalues_that_are_not_there_are_said_to_be_missing(where, seed):
    parts, groups, gamma = drawn(seed)
    how = WHERE[where]
    model = em.KernelKMeans(groups + 3, gamma=gamma, topology=how.get("topology"), random_state=0)
    with em.federation(parts, **how) as fed, pytest.warns(EigenmeshWarning) as caught:
        model.fit(fed)
    rest = [w for w in caught if not isinstance(w.message, em.CostWarning)]
    assert any("miss" in str(w.message) for w in rest)
    assert model.shortfall_ > (0.99 if len(model.eigenvalues_) < model.n_clusters else 0.01)


@pytest.mark.parametrize("where", WHERE)
def test_where_no_row_is_outside_nothing_is_missing(where):
    rng = np.random.default_rng(1)
    X = (20 * rng.normal(size=(3, 5)))[rng.integers(3, size=300)]  # of three rows that differ
    how = WHERE[where]
    model = em.KernelKMeans(5, gamma=0.05, topology=how.get("topology"), random_state=0)
    with em.federation(em.split(X, 3, random_state=0), **how) as fed:
        with pytest.warns(EigenmeshWarning, match="3 came out") as caught:
            model.fit(fed)
    assert not any("miss" in str(w.message) for w in caught)
    assert model.shortfall_ < 1e-6
