"""Histories of iterative methods: every round from one fit, equal to fits that stop there."""

import numpy as np
import pytest
from sklearn.datasets import load_digits, load_wine

import eigenmesh as em
from eigenmesh.errors import InputError
from eigenmesh.metrics import projector_distance, recovery_error


@pytest.fixture(scope="module")
def columns():
    return em.split(load_wine().data[:60], 4, by="columns")


def test_rounds_of_the_exact_form_are_those_of_shorter_fits(columns, oracle):
    whole = em.VFedPCA(2, standardize=True, keep_history=True).fit(columns)
    assert whole.history_.shape[1:] == (60, 2)
    for rounds in (1, 2):
        short = oracle.quiet_fit(em.VFedPCA(2, standardize=True, n_rounds=rounds), columns)
        assert projector_distance(whole.history_[rounds - 1], short.eigenvectors_) < 1e-16
    plain = em.VFedPCA(2, standardize=True).fit(columns)
    assert plain.history_ is None
    assert plain.report_.floats_up == whole.report_.floats_up  # nothing more is sent


def test_every_node_tells_its_scores_after_every_fit_of_loadings(columns, oracle):
    model = em.DPCA(1, topology="ring", standardize=True, n_iterations=4, keep_history=True)
    pca = oracle.quiet_fit(model, columns)
    assert [nodes.shape for nodes in pca.history_] == [(4, 60, 1)] * 4
    short = oracle.quiet_fit(em.DPCA(1, topology="ring", standardize=True, n_iterations=2), columns)
    for told, own in zip(pca.history_[1], short.node_vectors_, strict=True):
        assert projector_distance(told, own) < 1e-16
    assert "scores" in pca.report_.reveals["party-0"]
    sent = pca.report_.by_step["DpcaNode.tell_basis"]
    assert sent == 4 * 4 * 60  # iterations × nodes × samples, counted like all that is sent
    assert em.plan(model, columns).floats_up == pca.report_.floats_up


def test_scores_of_every_iteration_without_refits():
    X = load_digits().data[:200] / 16
    parts = em.split(X, 3, random_state=0)
    options = {"n_eigenvectors": 4, "n_features": 40, "gamma": 0.05, "random_state": 0}
    model = em.FedKernelKMeans(3, n_iterations=6, **options).fit(parts)
    history = list(model.transform_history(X))
    assert len(history) == 6
    K = np.exp(-0.05 * np.square(X[:, None] - X).sum(axis=2))
    values, vectors = np.linalg.eigh(K)
    truth = values[::-1][:4], vectors[:, ::-1][:, :4]
    errors = [recovery_error(H, *truth) for H in history]
    assert errors[-1] < errors[0]
    short = em.FedKernelKMeans(3, n_iterations=3, **options).fit(parts)
    assert recovery_error(short.transform(X), *truth) == pytest.approx(errors[2], rel=1e-6)


@pytest.mark.parametrize("make", [em.FedKernelKMeans, em.KernelKMeans])
def test_a_larger_coreset_sends_more(make):
    parts = em.split(load_digits().data[:300] / 16, 3, random_state=0)
    options = {"n_eigenvectors": 3, "gamma": 0.05, "random_state": 0}
    if make is em.KernelKMeans:
        options |= {"method": "diskpca", "n_landmarks": 30, "embedding_dim": 12, "accuracy": 0.9}
    else:
        options |= {"n_iterations": 2, "n_features": 20}
    sent = [make(3, coreset_size=n, **options).fit(parts).report_.floats_up for n in (30, 120)]
    assert sent[1] - sent[0] > 90 * 3 / 2  # draws of 3 coordinates and a weight, some twice
    with pytest.raises(InputError, match="coreset_size is 0; a whole number from 1"):
        make(3, coreset_size=0, **options).fit(parts)
