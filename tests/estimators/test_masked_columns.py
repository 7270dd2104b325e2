"""Over columns the front doors mask what adds up: the answer is the plain one."""

import warnings

import numpy as np
import pytest
from scipy.spatial.distance import cdist
from sklearn.decomposition import KernelPCA

import eigenmesh as em
from eigenmesh.engines.faulty import Fault

SUMS = {"aggregate", "counts", "hashes"}
KERNELS = ("rbf", "poly", "laplacian", "cosine", "arc-cosine", "sigmoid")
pytestmark = pytest.mark.filterwarnings("ignore::eigenmesh.errors.EigenmeshWarning")


def drawn(seed):
    """Samples of some rank, and how many parties hold their columns."""
    rng = np.random.default_rng(seed)
    n, d, n_parties = int(rng.integers(20, 60)), int(rng.integers(6, 14)), int(rng.integers(2, 6))
    X = rng.normal(size=(n, 4)) @ rng.normal(size=(4, d)) + 0.3 * rng.normal(size=(n, d))
    return X, em.split(X, n_parties, by="columns", random_state=seed)


def revealed(report):
    return set().union(*(set(kinds) for kinds in report.reveals.values()))


@pytest.mark.parametrize("seed", range(12))
def test_masked_is_plain_for_drawn_columns(seed):
    X, parts = drawn(seed)
    kernel = KERNELS[seed % len(KERNELS)]
    gamma = (None, "scale", "median", "mean-distance", 0.07)[seed % 5]
    landmarks = 15 if seed % 3 == 0 and kernel != "sigmoid" else None
    how = {"kernel": kernel, "gamma": gamma, "n_landmarks": landmarks, "random_state": seed}
    if kernel == "arc-cosine":
        how["degree"] = 1
    masked = em.KernelPCA(2, **how)
    planned = em.plan(masked, parts)
    masked.fit(parts)
    plain = em.KernelPCA(2, method="vfed-akpca", **how).fit(parts)
    np.testing.assert_allclose(masked.eigenvalues_, plain.eigenvalues_, rtol=1e-9)
    np.testing.assert_allclose(masked.gamma_ or 0, plain.gamma_ or 0, rtol=1e-12)
    new = X[:7] + 0.1
    np.testing.assert_allclose(masked.transform(new), plain.transform(new), atol=1e-7)
    assert revealed(masked.report_) == revealed(masked.transform_report_) == SUMS
    assert (planned.reveals, planned.rounds) == (masked.report_.reveals, masked.report_.rounds)
    assert planned.floats_up == masked.report_.floats_up
    assert masked.method_.startswith(planned.method)


@pytest.mark.parametrize("method", ["auto", "vfed-akpca"])
@pytest.mark.parametrize("seed", range(6))
def test_samples_of_any_length_keep_their_angles(method, seed):
    """Samples a trillion times as small as the largest count as much."""
    rng = np.random.default_rng(seed)
    X = drawn(seed)[0] * 10 ** (14 * rng.random((len(drawn(seed)[0]), 1)))
    kernel, landmarks = ("cosine", "arc-cosine")[seed % 2], (None, 15)[seed // 2 % 2]
    how = {"kernel": kernel, "degree": 1, "center": rng.random() < 0.5}
    own = em.KernelPCA(2, method=method, n_landmarks=landmarks, **how).fit(
        em.split(X, 3, by="columns")
    )
    pooled = em.KernelPCA(2, eigen_solver="dense", **how).fit(X)
    if landmarks is None:
        np.testing.assert_allclose(own.eigenvalues_, pooled.eigenvalues_, rtol=1e-9)
        np.testing.assert_allclose(own.transform(X), pooled.transform(X), rtol=1e-6, atol=1e-7)
    else:
        assert (own.eigenvalues_ >= 0.9 * pooled.eigenvalues_).all()


@pytest.mark.parametrize("seed", range(8))
def test_distances_that_masks_round_away_are_as_if_pooled_or_said_to_be(seed):
    """Groups so far apart that within them distances are below the digits of a sum."""
    X, apart = drawn(seed)[0], 10 ** (4 + seed)
    far = np.column_stack([apart * (np.arange(len(X)) % 3), X])
    how = {"kernel": ("rbf", "laplacian")[seed % 2], "gamma": 0.05}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        own = em.KernelPCA(2, **how).fit(em.split(far, 3, by="columns"))
    K = np.exp(-0.05 * cdist(X, X, ("sqeuclidean", "cityblock")[seed % 2]))
    K[np.subtract.outer(np.arange(len(X)), np.arange(len(X))) % 3 != 0] = 0.0
    expected = KernelPCA(2, kernel="precomputed").fit(K).eigenvalues_
    off = np.abs(own.eigenvalues_ / expected - 1).max()
    lost = any("masked sums have" in str(one.message) for one in caught)
    assert off <= 0.01 or (lost and own.shortfall_ > 0.01)
    assert off > 1e-4 or not lost
    assert {one.category for one in caught} <= {em.EigenmeshWarning, em.CostWarning}


def test_policies_of_sums_let_all_front_doors_run():
    _, parts = drawn(3)
    rng = np.random.default_rng(0)
    y = rng.normal(size=parts.n_samples)
    parts = em.Partitioned(columns=list(parts.parts), policies=em.Policy(allow=SUMS))
    for kernel in ("rbf", "poly"):
        fits = (
            em.KernelPCA(2, kernel=kernel, gamma="median").fit(parts),
            em.KernelKMeans(2, kernel=kernel, gamma="scale", random_state=0).fit(parts),
            em.KernelPCRegressor(2, kernel=kernel, gamma="mean-distance").fit(parts, y),
        )
        assert all(revealed(fit.report_) <= SUMS for fit in fits)


def test_a_federation_that_was_opened_plain_masks_this_fit_alone():
    _, parts = drawn(4)
    with em.federation(parts) as fed:
        study = em.study(em.KernelPCA(2, kernel="rbf", gamma=0.1), fed)
        assert all(run.scope.secure for run in study.runs)
        kpca = em.KernelPCA(2, kernel="rbf", gamma=0.1).fit(fed)
        assert not fed.secure
        kpca.transform(fed)
        assert revealed(kpca.report_) == revealed(kpca.transform_report_) == SUMS
        by_name = em.KernelPCA(2, kernel="rbf", gamma=0.1, method="vfed-akpca").fit(fed)
        assert "distances" in revealed(by_name.report_)
    with em.federation(parts, secure=True) as fed:
        by_name = em.KernelPCA(2, kernel="rbf", gamma=0.1, method="vfed-akpca").fit(fed)
        assert revealed(by_name.report_) == SUMS


@pytest.mark.parametrize("calls", [1, 2, 3, 4])
def test_a_lost_party_leaves_the_sum_of_the_others(calls):
    X = drawn(5)[0]
    parts = em.split(X, 4, by="columns")
    faults = [Fault("kill", "party-1", calls)]
    with em.federation(parts, on_loss="survivors", faults=faults) as fed:
        kpca = em.KernelPCA(2, kernel="rbf", gamma=0.1).fit(fed)
    others = em.Partitioned(columns=[parts.part(i) for i in (0, 2, 3)])
    expected = em.KernelPCA(2, kernel="rbf", gamma=0.1).fit(others)
    np.testing.assert_allclose(kpca.eigenvalues_, expected.eigenvalues_, rtol=1e-9)
    assert revealed(kpca.report_) == SUMS


def test_saved_models_score_new_samples_under_masks(tmp_path):
    X, parts = drawn(6)
    kpca = em.KernelPCA(2, kernel="rbf").fit(parts)
    kpca.save(tmp_path / "model.em", parties=True)
    loaded = em.load(tmp_path / "model.em")
    np.testing.assert_array_equal(loaded.transform(X), kpca.transform(X))
    assert revealed(loaded.transform_report_) == SUMS


def test_losses_that_cannot_be_masked_are_refused_with_what_would_do():
    with em.federation(drawn(0)[1], on_loss="reuse") as fed:
        with pytest.raises(em.EigenmeshError, match=r"'reuse'.*'survivors'.*vfed-akpca"):
            em.KernelPCA(2, kernel="rbf").fit(fed)
