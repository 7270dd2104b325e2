"""The decentralised PCA of Schizas and Aduroja: right in the end, at a price."""

from __future__ import annotations

import warnings

import networkx as nx
import numpy as np
import pytest
from sklearn.datasets import load_wine

import eigenmesh as em
from eigenmesh.engines.faulty import Fault
from eigenmesh.errors import InputError, PartyLost, PolicyRefusal, TopologyError


@pytest.fixture(scope="module")
def X():
    """60 samples of 40 columns with a clear spectrum."""
    rng = np.random.default_rng(0)
    U, V = (np.linalg.qr(rng.normal(size=(n, 10)))[0] for n in (60, 40))
    return (U * [50, 25, 12, 1, 1, 1, 1, 1, 1, 1]) @ V.T


@pytest.fixture(scope="module")
def parts(X):
    return em.split(X, 4, by="columns")


def pooled(X, k):
    U, s, _ = np.linalg.svd(X - X.mean(axis=0), full_matrices=False)
    return U[:, :k], s[:k] ** 2


@pytest.mark.parametrize("topology", ["ring", "full", nx.path_graph(4)])
def test_every_node_ends_with_the_pooled_components(X, parts, topology):
    pca = em.DPCA(2, topology=topology, n_iterations=20).fit(parts)
    U, values = pooled(X, 2)
    np.testing.assert_allclose(pca.eigenvalues_, values, rtol=1e-4)
    for vectors in pca.node_vectors_:
        assert np.all(np.abs(np.sum(vectors * U, axis=0)) > 1 - 1e-4)


def test_error_falls_with_the_iterations_and_the_claimed_residual_is_true(X, parts):
    U, _ = pooled(X, 2)
    centred = X - X.mean(axis=0)
    A, errors = centred @ centred.T, []
    for n_iterations in (1, 4, 12):
        pca = em.DPCA(2, topology="full", n_iterations=n_iterations, tolerance=10).fit(parts)
        found = pca.eigenvectors_
        errors.append(np.linalg.norm(found @ found.T - U @ U.T))
        off = np.linalg.norm(A @ found - found * pca.eigenvalues_, axis=0)
        true = (off / pca.eigenvalues_).max()
        # A node knows its own part of A times its own vectors; they differ a little.
        assert true == pytest.approx(pca.relative_residual_, rel=0.5, abs=1e-8)
    assert errors[0] > errors[1] > errors[2]


def test_does_not_depend_on_the_units_of_the_data(X, parts):
    small = em.split(X * 1e-6, 4, by="columns")
    ours = em.DPCA(1, n_iterations=4, tolerance=10).fit(parts)
    theirs = em.DPCA(1, n_iterations=4, tolerance=10).fit(small)
    np.testing.assert_allclose(theirs.eigenvectors_, ours.eigenvectors_, atol=1e-9)


def test_two_exchanges_of_all_scores_for_each_inner_step(parts):
    options = {"n_inner": 3, "tolerance": 10, "averaging": "gossip"}
    one, two = (em.DPCA(2, n_iterations=n, **options).fit(parts).report_ for n in (1, 2))
    for name in parts.names:
        assert two.by_party[name] - one.by_party[name] == 2 * (3 * 2 * 60 * 2) + 2 * 2
    assert two.rounds - one.rounds == 2 * 3 + 2 + 2


@pytest.mark.parametrize("topology", ["ring", "star", "full"])
def test_plan_is_the_ledger_to_the_float(parts, topology):
    pca = em.DPCA(2, topology=topology, n_iterations=2, n_inner=2, tolerance=10)
    forecast = em.plan(pca, parts)
    report = pca.fit(parts).report_
    assert forecast.by_step == dict(report.by_step)
    assert forecast.reveals == dict(report.reveals)
    assert forecast.rounds == report.rounds


def test_new_samples_and_back(X, parts):
    pca = em.DPCA(3, topology="full", n_iterations=20).fit(parts)
    scores = pca.transform(X)
    U, values = pooled(X, 3)
    np.testing.assert_allclose(np.abs(scores), np.abs(U * np.sqrt(values)), atol=0.05)
    rest = pca.inverse_transform(scores) - X
    assert np.linalg.norm(rest) < 1.1 * np.linalg.norm(X - X.mean(axis=0)) * 0.06


def test_an_answer_that_has_not_converged_says_so(parts):
    with pytest.warns(em.EigenmeshWarning, match="not converged.*raise n_iterations"):
        em.DPCA(2, n_iterations=1, n_inner=1, tolerance=1e-6).fit(parts)


def test_a_node_that_forbids_scores_refuses(X):
    policies = [None, em.Policy(allow={"counts", "hashes", "moments", "gram"}), None]
    parts = em.Partitioned(columns=np.array_split(X, 3, axis=1), policies=policies)
    with pytest.raises(PolicyRefusal, match="'party-1'.*'scores'"):
        em.DPCA(1).fit(parts)


def test_a_lost_message_stops_it_or_is_replaced(X, parts):
    lost = [Fault("lose", "party-2", round=15)]
    with em.federation(parts, split="columns", topology="ring", faults=lost) as fed:
        with pytest.raises(PartyLost):
            em.DPCA(1).fit(fed)
    options = {"topology": "ring", "on_loss": "reuse", "faults": lost}
    with em.federation(parts, split="columns", **options) as fed:
        pca = em.DPCA(1).fit(fed)
    assert abs(pca.eigenvectors_[:, 0] @ pooled(X, 1)[0][:, 0]) > 1 - 1e-6
    assert pca.report_.reused == {"party-2": 2}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"penalty": 0}, "penalty is 0; a positive number"),
        ({"n_inner": 0}, "n_inner is 0"),
        ({"n_iterations": "many"}, "n_iterations is 'many'"),
        ({"topology": "tree"}, "topology 'tree' is unknown"),
    ],
)
def test_wrong_parameters_are_explained(parts, options, words):
    with pytest.raises(InputError, match=words):
        em.DPCA(1, **options).fit(parts)


def test_rows_and_broken_graphs_are_refused(X, parts):
    with pytest.raises(InputError, match="DPCA"):
        em.DPCA(1).fit(em.split(X, 3, by="rows", random_state=0))
    with pytest.raises(TopologyError, match="add an edge"):
        em.DPCA(1, topology=nx.Graph([(0, 1), (2, 3)])).fit(parts)


def test_saved_and_loaded(tmp_path):
    wine = load_wine().data
    pca = em.DPCA(1, standardize=True, n_iterations=2, tolerance=10)
    pca.fit(em.split(wine, 3, by="columns"))
    pca.save(tmp_path / "model.em", parties=True)
    loaded = em.load(tmp_path / "model.em")
    np.testing.assert_array_equal(loaded.transform(wine), pca.transform(wine))


def test_a_node_that_leaves_takes_its_variance_with_it():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 8)) @ np.diag(np.linspace(4, 1, 8)) + rng.normal(size=(60, 1)) * 3
    parts = em.split(X, 4, by="columns")
    rounds = em.plan(em.DPCA(1, topology="full", random_state=0), parts).rounds
    leaving = [em.Fault("kill", party="party-3", round=rounds // 4)]
    options = {"topology": "full", "on_loss": "survivors", "faults": leaving}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with em.federation(parts, **options) as fed:
            left = em.DPCA(1, topology="full", random_state=0).fit(fed)
    others = X[:, :6] - X[:, :6].mean(axis=0)
    top = np.linalg.svd(others, compute_uv=False)[0] ** 2
    assert left.eigenvalues_[0] == pytest.approx(top, rel=0.05)


@pytest.mark.parametrize("seed", range(6))
def test_too_few_iterations_are_warned_of_and_give_numbers(seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(40, 9)) * 3.0 ** -np.arange(9)
    parts = em.split(X, 4, by="columns", random_state=seed)
    steps = {"n_iterations": int(rng.integers(1, 3)), "n_inner": int(rng.integers(1, 3))}
    for penalty in (1e-3, 0.1, 10.0):
        with pytest.warns(em.EigenmeshWarning, match="not converged"):
            pca = em.DPCA(3, **steps, penalty=penalty, random_state=seed).fit(parts)
        for values in (pca.eigenvalues_, pca.eigenvectors_, pca.node_vectors_, pca.shortfalls_):
            assert np.isfinite(values).all()
        assert np.isfinite(pca.transform(parts)).all()
