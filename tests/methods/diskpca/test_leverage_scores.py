"""em.leverage_scores: the rank-k leverage of the kernel matrix, known to the rows' owners alone."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_digits
from sklearn.metrics.pairwise import pairwise_kernels
from tests.engines.dask_cluster import open_on_dask

import eigenmesh as em
from eigenmesh.engines.faulty import Fault
from eigenmesh.errors import PartyLost, PolicyRefusal, RankError
from eigenmesh.estimators.party_values import AtSite
from eigenmesh.methods.diskpca.leverage import STORE
from eigenmesh.numerics.kernels import Kernel

DIGITS = load_digits().data / 16


def exact_leverage(K, k):
    return np.square(np.linalg.eigh(K)[1][:, -k:]).sum(axis=1)


def pooled(parts):
    return np.vstack(parts.parts)


def test_scores_of_one_small_array_are_exact():
    X = DIGITS[:300]
    for kernel, options in (("rbf", {"gamma": 0.05}), ("laplacian", {"gamma": 0.05})):
        found = em.leverage_scores(X, 5, kernel=kernel, **options)
        expected = exact_leverage(pairwise_kernels(X, metric=kernel, **options), 5)
        np.testing.assert_allclose(found.scores, expected, atol=1e-9)
        assert found.exact
        assert found.skew == pytest.approx(expected.max() / expected.mean(), rel=1e-9)
        assert found.report.floats_up == 0


@pytest.mark.parametrize("kernel", ["linear", "cosine"])
def test_scores_of_kernels_on_few_columns_are_exact_over_parties(kernel):
    parts = em.split(DIGITS[:400], 5, law="power", random_state=0)
    found = em.leverage_scores(parts, 6, kernel=kernel)
    expected = exact_leverage(pairwise_kernels(pooled(parts), metric=kernel), 6)
    assert found.exact
    assert [len(own) for own in found.scores] == [n for n, _ in parts.shapes]
    np.testing.assert_allclose(np.concatenate(found.scores), expected, atol=1e-9)
    assert sum(own.sum() for own in found.scores) == pytest.approx(6)


KERNELS = {
    "rbf": {"kernel": "rbf", "gamma": 0.05},
    "laplacian": {"kernel": "laplacian", "gamma": 0.02},
    "poly": {"kernel": "poly", "gamma": 0.1, "degree": 2, "coef0": 1.0},
    "arc-cosine": {"kernel": "arc-cosine", "degree": 1},
}


@pytest.mark.parametrize("name", KERNELS)
def test_scores_approach_those_of_the_kernel_matrix_as_the_embedding_widens(name):
    kernel = KERNELS[name]
    parts = em.split(DIGITS[:300], 4, random_state=0)
    options = {key: value for key, value in kernel.items() if key != "kernel"}
    if name == "arc-cosine":
        K = Kernel("arc-cosine", degree=1).matrix(pooled(parts))
    else:
        K = pairwise_kernels(pooled(parts), metric=kernel["kernel"], **options)
    expected = exact_leverage(K, 3)

    def error(width):
        found = em.leverage_scores(parts, 3, **kernel, embedding_dim=width, random_state=1)
        assert not found.exact
        assert str(width) in found.report.notes[0]
        return np.abs(np.concatenate(found.scores) - expected).mean() / expected.mean()

    narrow, wide = error(20), error(1500 if name == "laplacian" else 600)
    assert wide < 0.3
    assert wide < 0.5 * narrow


def test_the_default_width_tells_flat_from_skewed():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1000, 20)) * rng.pareto(1.5, size=(1000, 1))
    skewed = em.leverage_scores(
        em.split(X, 5, random_state=0), 5, kernel="poly", gamma=1.0, degree=2, coef0=0.0
    )
    flat = em.leverage_scores(
        em.split(DIGITS, 5, random_state=0), 5, kernel="rbf", gamma="mean-distance"
    )
    assert skewed.skew > 100
    assert flat.skew < 5


def test_scores_stay_with_their_owners():
    parts = em.split(DIGITS[:200], 3, random_state=0)
    t, k = 30, 2
    with em.federation(parts) as fed:
        found = em.leverage_scores(fed, k, kernel="rbf", gamma=0.05, embedding_dim=t)
        kept = [site.store[STORE]["scores"] for site in fed.local_sites().values()]
    for own, scores in zip(kept, found.scores, strict=True):
        np.testing.assert_array_equal(own, scores)
    report = found.report
    assert all(set(kinds) == {"counts", "gram", "moments"} for kinds in report.reveals.values())
    assert report.floats_up == 3 * t * (t + 1) // 2
    assert report.floats_down == 3 * t * k
    assert report.rounds == 3


def test_sparse_rows_give_the_scores_of_dense_ones():
    X = sp.random_array((300, 40), density=0.1, random_state=np.random.default_rng(0), format="csr")
    options = {"kernel": "arc-cosine", "degree": 1, "random_state": 0}
    sparse = em.leverage_scores(em.split(X, 3, random_state=0), 3, **options)
    dense = em.leverage_scores(em.split(X.toarray(), 3, random_state=0), 3, **options)
    for one, other in zip(sparse.scores, dense.scores, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-10)


def test_a_party_may_refuse_and_may_be_lost():
    parts = em.split(DIGITS[:200], 3, random_state=0, policies=em.Policy(allow={"counts"}))
    with pytest.raises(PolicyRefusal, match="'gram'"):
        em.leverage_scores(parts, 2)
    parts = em.split(DIGITS[:200], 3, random_state=0)
    faults = [Fault("kill", party="party-1", round=2)]
    with em.federation(parts, faults=faults) as fed, pytest.raises(PartyLost, match="party-1"):
        em.leverage_scores(fed, 2)
    with em.federation(parts, faults=faults, on_loss="survivors") as fed:
        found = em.leverage_scores(fed, 2)
    assert set(found.report.lost) == {"party-1"}
    rest = np.vstack([parts.parts[0], parts.parts[2]])
    expected = exact_leverage(rest @ rest.T, 2)
    np.testing.assert_allclose(np.concatenate(found.scores), expected, atol=1e-9)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"n_components": 0}, "n_components is 0"),
        ({"kernel": "sigmoid"}, "not positive semi-definite"),
        ({"kernel": "arc-cosine", "degree": 7}, "orders 0, 1 and 2"),
        ({"kernel": "rbf", "gamma": -1.0}, "gamma is -1"),
        ({"embedding_dim": 0}, "embedding_dim is 0"),
    ],
)
def test_wrong_parameters_say_what_is_expected(options, match):
    with pytest.raises(em.EigenmeshError, match=match):
        em.leverage_scores(DIGITS[:50], **options)


def test_more_directions_than_there_are_is_an_error():
    parts = em.split(DIGITS[:100], 3, random_state=0)
    with pytest.raises(RankError, match="12 components.*embedded rows determine 10"):
        em.leverage_scores(parts, 12, kernel="rbf", gamma=0.05, embedding_dim=10)
    with pytest.raises(RankError, match="60 components"):
        em.leverage_scores(DIGITS[:50], 60, kernel="rbf", gamma=0.05)


def test_columns_are_refused():
    with pytest.raises(em.EigenmeshError, match="rows"):
        em.leverage_scores(em.split(DIGITS[:50], 3, by="columns"), 2)


def test_dask_gives_the_leverage_of_one_process():
    parts = em.split(DIGITS[:120], 3, random_state=0)
    options = {"kernel": "rbf", "gamma": 0.05, "random_state": 0}
    here = em.leverage_scores(parts, 3, **options)
    with open_on_dask(parts) as fed:
        there = em.leverage_scores(fed, 3, **options)
    assert all(isinstance(own, AtSite) for own in there.scores)  # they stay with their rows
    assert there.skew == pytest.approx(here.skew, rel=1e-8)
    assert there.report.by_step == here.report.by_step
