"""VFedPCA and VFedAKPCA on odd data and without some parties: the right answer or a clear error."""

import warnings
from functools import cache

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.decomposition import KernelPCA
from sklearn.preprocessing import scale

import eigenmesh as em
from eigenmesh.engines.faulty import Fault
from eigenmesh.errors import InputError, PartitionError, PartyLost, RankError
from eigenmesh.metrics import aligned_error, sin_theta

pytestmark = pytest.mark.filterwarnings("ignore::eigenmesh.errors.EigenmeshWarning")

RNG = np.random.default_rng(0)
X = RNG.normal(size=(30, 6))
EXACT = [
    em.VFedPCA(2),
    em.VFedPCA(2, topology="ring"),
    *(
        em.VFedAKPCA(2, kernel=kernel, gamma=0.1, topology=topology)
        for kernel in ("rbf", "poly")
        for topology in (None, "ring")
    ),
]
PAPER = [
    em.VFedPCA(2, variant="paper"),
    em.VFedPCA(2, variant="paper", topology="ring"),
    *(
        em.VFedAKPCA(2, variant="paper", kernel=kernel, gamma=0.1)
        for kernel in ("rbf", "poly", "sigmoid", "laplacian")
    ),
]
ONE_SHOT = [
    em.OneShotKPCA(2),
    em.OneShotKPCA(2, kernel="rbf", gamma=0.1, local_rank=30),
    em.OneShotKPCA(2, kernel="rbf", gamma=0.1, fusion="distance"),
    em.OneShotKPCA(2, kernel="poly", gamma=0.1),
]


def with_constant():
    columns = X.copy()
    columns[:, 2] = 5.0
    return columns


ODD = {
    "a constant column": em.split(with_constant(), 3, by="columns"),
    "a party of constants": em.Partitioned(columns=[np.full((30, 2), 0.1), X[:, :3], X[:, 3:]]),
    "one column a party": em.split(X, 6, by="columns"),
    "more parties than samples": em.split(X[:4], 6, by="columns"),
    "two identical parties": em.Partitioned(columns=[X, X]),
    "every column twice": em.split(np.repeat(X, 2, axis=1), 3, by="columns"),
    "one party": em.split(X, 1, by="columns"),
}


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("estimator", [*EXACT, *ONE_SHOT], ids=repr)
def test_odd_columns_give_the_pooled_answer(estimator, odd):
    pooled = np.hstack(ODD[odd].parts)
    model = clone(estimator).fit(ODD[odd])
    options = {"kernel": getattr(estimator, "kernel", "linear"), "gamma": 0.1}
    expected = KernelPCA(2, eigen_solver="dense", **options).fit(pooled)
    assert aligned_error(model.transform(ODD[odd]), expected.transform(pooled)) < 1e-8


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("estimator", PAPER, ids=repr)
def test_the_papers_variant_takes_odd_columns_too(estimator, odd):
    model = clone(estimator).fit(ODD[odd])
    U = model.eigenvectors_
    if estimator.topology is None:  # else neighbours' vectors are merged, deflated by their own
        np.testing.assert_allclose(U.T @ U, np.eye(2), atol=1e-8)
    assert np.isfinite(model.transform(ODD[odd])).all()


@pytest.mark.parametrize("estimator", [*EXACT, *PAPER, *ONE_SHOT], ids=repr)
def test_components_that_do_not_exist_are_an_error(estimator):
    few, alike = X[:3], np.ones((9, 6))
    with pytest.raises(RankError, match="5 components were asked for"):
        clone(estimator).set_params(n_components=5).fit(em.split(few, 3, by="columns"))
    for nothing in (alike, 0 * alike):
        with pytest.raises(RankError, match="2 components were asked for"):
            clone(estimator).fit(em.split(nothing, 3, by="columns"))


@pytest.mark.parametrize("kernel", ["poly", "rbf", "laplacian"])
def test_rounding_of_equal_samples_is_nobodys_lie(kernel):
    rng = np.random.default_rng(5)
    for _ in range(8):  # whose trace may cancel to 0 where other entries do not
        row = rng.normal(size=rng.integers(3, 9)) * 10.0 ** rng.uniform(-3, 3)
        alike = np.tile(row, (rng.integers(4, 40), 1))
        with pytest.raises(RankError, match="2 components were asked for"):
            em.VFedAKPCA(2, kernel=kernel, gamma=0.1, variant="paper").fit(
                em.split(alike, 3, by="columns")
            )


@pytest.mark.parametrize("estimator", [em.VFedPCA(3, variant="paper")], ids=repr)
def test_deflation_says_when_nothing_is_left(estimator):
    flat = np.outer(RNG.normal(size=20), np.ones(6)) + np.outer(RNG.normal(size=20), np.arange(6.0))
    with pytest.raises(RankError, match="determine 2"):
        estimator.fit(em.split(flat, 3, by="columns"))


# Columns that need care.


@pytest.mark.parametrize("estimator", [*EXACT, *ONE_SHOT], ids=repr)
def test_each_owner_standardises_and_fills_its_own_columns(estimator, tmp_path):
    raw = 3 + 7 * with_constant()
    raw[[1, 4, 9], [0, 3, 5]] = np.nan
    filled = np.where(np.isnan(raw), np.nanmean(raw, axis=0), raw)
    parts = em.split(raw, 3, by="columns", allow_missing=True)
    model = clone(estimator).set_params(standardize=True, fill_missing=0.1).fit(parts)
    options = {"kernel": getattr(estimator, "kernel", "linear"), "gamma": 0.1}
    expected = KernelPCA(2, eigen_solver="dense", **options).fit(scale(filled))
    assert aligned_error(model.transform(raw), expected.transform(scale(filled))) < 1e-8
    new = raw[:5].copy()
    new[0, 1] = np.nan
    as_seen = np.where(np.isnan(new), np.nanmean(raw, axis=0), new)
    as_seen = (as_seen - filled.mean(0)) / np.where(filled.std(0) > 1e-9, filled.std(0), 1.0)
    assert aligned_error(model.transform(new), expected.transform(as_seen)) < 1e-8
    model.save(tmp_path / "m.em", parties=True)
    again = em.load(tmp_path / "m.em").transform(new)
    np.testing.assert_allclose(again, model.transform(new), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("estimator", [*EXACT, *PAPER, *ONE_SHOT], ids=repr)
def test_missing_values_are_refused_with_the_partys_name(estimator):
    raw = X.copy()
    raw[0, 3] = np.nan
    parts = em.split(raw, 3, by="columns", allow_missing=True)
    with pytest.raises(PartitionError, match=r"'party-1' has missing values \(NaN\).*fill_missing"):
        clone(estimator).fit(parts)
    with pytest.raises(PartitionError, match=r"'party-1': column 1 .* lacks 3\.3%"):
        clone(estimator).set_params(fill_missing=0.01).fit(parts)
    model = clone(estimator).set_params(standardize=True).fit(em.split(X, 3, by="columns"))
    with pytest.raises(InputError, match=r"'party-1': values are missing \(NaN\)"):
        model.transform(parts)
    raw[:, 3] = np.nan
    parts = em.split(raw, 3, by="columns", allow_missing=True)
    with pytest.raises(PartitionError, match=r"'party-1': column 1 .* lacks 100\.0%.*drop"):
        clone(estimator).set_params(fill_missing=1.0).fit(parts)


# Faults of the paper's variant; those of the exact one are in test_vfed_pca and test_vfed_peers.

BLOCKS = np.array_split(RNG.normal(size=(30, 4)) @ RNG.normal(size=(4, 20)) + 0.2, 5, axis=1)


def papers(topology=None):
    how = {"variant": "paper", "n_rounds": 3, "local_iterations": 300}
    return em.VFedPCA(2, topology=topology, **how)


@cache
def papers_without(lost, topology):
    kept = [i for i in range(5) if i != lost]
    rest = em.Partitioned(columns=[BLOCKS[i] for i in kept], names=[f"party-{i}" for i in kept])
    return papers(topology).fit(rest)


@pytest.mark.parametrize(
    ("topology", "round_", "lost"),
    [(None, 1, 0), (None, 3, 0), (None, 5, 3), ("full", 1, 0), ("full", 2, 3), ("full", 8, 0)],
)
def test_without_a_party_that_left_the_others_begin_anew(topology, round_, lost):
    expected = papers_without(lost, topology)
    faults = [Fault("kill", f"party-{lost}", round_)]
    parts = em.Partitioned(columns=BLOCKS)
    with em.federation(parts, topology=topology, on_loss="survivors", faults=faults) as fed:
        model = papers(topology).fit(fed)
    assert model.model_.parties == tuple(f"party-{i}" for i in range(5) if i != lost)
    assert f"'party-{lost}' has left" in str(model.report_)
    assert sin_theta(model.eigenvectors_, expected.eigenvectors_) < 1e-8
    np.testing.assert_allclose(model.eigenvalues_, expected.eigenvalues_, rtol=1e-8)


def test_a_stale_pair_of_an_earlier_component_is_asked_for_again():
    """Round 5 is the second component's first: a reply from before is not its vector."""
    parts = em.Partitioned(columns=BLOCKS)
    expected = papers().fit(parts)
    for round_ in (4, 5, 6, 7):
        faults = [Fault("lose", "party-2", round_)]
        with em.federation(parts, on_loss="reuse", faults=faults) as fed:
            model = papers().fit(fed)
        assert model.report_.reused == {"party-2": 1}
        assert sin_theta(model.eigenvectors_, expected.eigenvectors_) < 1e-8


@pytest.mark.parametrize(
    ("estimator", "topology", "averaging"),
    [
        (em.VFedPCA(2), "full", "gossip"),
        (em.VFedPCA(2), "ring", "tree"),
        (em.VFedAKPCA(2, gamma=0.01), "full", "tree"),
        (em.VFedAKPCA(2, gamma=0.01), "ring", "gossip"),
    ],
    ids=repr,
)
def test_a_message_lost_anywhere_is_made_up_for_or_an_error(estimator, topology, averaging):
    """On a full graph one mix is enough, if nothing is lost: weights tell that more are needed."""
    parts = em.Partitioned(columns=BLOCKS[:4])
    expected = clone(estimator).fit(parts)
    model = clone(estimator).set_params(topology=topology)
    ended = []
    for round_ in (2, 3, 4, 7):
        faults = [Fault("lose", "party-2", round_)]
        how = {"topology": topology, "averaging": averaging, "on_loss": "reuse"}
        with em.federation(parts, **how, faults=faults) as fed:
            try:
                model.fit(fed)
            except PartyLost:
                ended.append(round_)
            else:
                assert sin_theta(model.eigenvectors_, expected.eigenvectors_) < 1e-8
    # Steps of the coordinator's must not be repeated; along a tree these come in other rounds too.
    assert ended == [2] if averaging == "gossip" else ended[:1] == [2] and len(ended) < 4


def test_warnings_are_said_once_each():
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        em.VFedAKPCA(2, gamma=0.1, topology="ring").fit(em.split(X, 3, by="columns"))
    texts = [str(w.message) for w in told]
    assert len(texts) == len(set(texts)) == 1
