"""Rows that no landmark's span has anything of: the eigenvalues that are theirs are missing."""

import warnings

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


@pytest.mark.parametrize("kernel", ["rbf", "laplacian", "linear"])
@pytest.mark.parametrize("where", ["rows", "ring"])  # points drawn under masks span rounding, too
def test_what_rounding_leaves_outside_is_no_eigenvalue(where, kernel):
    rng = np.random.default_rng(1)
    groups = (3 * rng.normal(size=(3, 5)))[rng.integers(3, size=300)]  # of three rows that differ
    how, gamma = WHERE[where], None if kernel == "linear" else 0.05
    for X in (groups, (groups + 30).astype(np.float32)):
        model = em.KernelKMeans(
            5, kernel=kernel, gamma=gamma, topology=how.get("topology"), random_state=0
        )
        with em.federation(em.split(X, 3, random_state=0), **how) as fed:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                model.fit(fed)
        words = [str(w.message) for w in caught]
        assert any("3 came out" in own for own in words)
        assert not any("miss" in own for own in words), words
