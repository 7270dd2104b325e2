"""disKPCA's protocols give the same answer and the same ledger in process and on Dask."""

import numpy as np
import pytest
from sklearn.datasets import load_digits
from tests.engines.dask_cluster import open_on_dask

import eigenmesh as em
from eigenmesh.estimators.party_values import AtSite

DIGITS = load_digits().data / 16
PARTS = em.split(DIGITS[:120], 3, random_state=0)
ESTIMATORS = {
    "exact": em.DisKPCA(3, kernel="laplacian", gamma="mean-distance", n_landmarks=20),
    "centroids": em.DisKPCA(3, kernel="cosine", n_landmarks=10, landmarks="centroids"),
    "sketched": em.DisKPCA(3, kernel="arc-cosine", degree=1, n_landmarks=20, exact=False),
    "sketching-pca": em.SketchingPCA(3, kernel="rbf", gamma=0.05),
}


@pytest.mark.parametrize("name", ESTIMATORS)
def test_dask_gives_what_one_process_gives(name):
    estimator = ESTIMATORS[name].set_params(random_state=0)
    expected = estimator.fit(PARTS).transform(DIGITS)
    report, eigenvalues = estimator.report_, estimator.eigenvalues_
    with open_on_dask(PARTS) as fed:
        estimator.fit(fed)
    np.testing.assert_allclose(estimator.eigenvalues_, eigenvalues, rtol=1e-8)
    np.testing.assert_allclose(estimator.transform(DIGITS), expected, atol=1e-8)
    for field in ("floats_up", "floats_down", "bytes", "rounds", "by_step", "reveals"):
        assert getattr(estimator.report_, field) == getattr(report, field)


def test_dask_gives_the_leverage_of_one_process():
    options = {"kernel": "rbf", "gamma": 0.05, "random_state": 0}
    here = em.leverage_scores(PARTS, 3, **options)
    with open_on_dask(PARTS) as fed:
        there = em.leverage_scores(fed, 3, **options)
    assert all(isinstance(own, AtSite) for own in there.scores)  # they stay with their rows
    assert there.skew == pytest.approx(here.skew, rel=1e-8)
    assert there.report.by_step == here.report.by_step
