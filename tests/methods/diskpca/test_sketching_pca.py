"""SketchingPCA: linear PCA of embedded rows; the kernel's own where the embedding is."""

import os

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.decomposition import KernelPCA

import eigenmesh as em
from eigenmesh.engines.faulty import Fault
from eigenmesh.errors import PartyLost, PolicyRefusal, RankError
from eigenmesh.metrics import aligned_error
from eigenmesh.numerics import embeddings
from eigenmesh.numerics.embeddings import embedding
from eigenmesh.numerics.kernels import Kernel

DIGITS = load_digits().data / 16
X, X_NEW = DIGITS[:300], DIGITS[300:360]
PARTS = em.split(X, 5, law="power", random_state=0)


@pytest.mark.parametrize("kernel", ["linear", "cosine"])
def test_narrow_data_give_central_kpca(kernel):
    model = em.SketchingPCA(4, kernel=kernel, embedding_dim=64).fit(PARTS)
    central = KernelPCA(4, kernel=kernel, eigen_solver="dense").fit(X)
    np.testing.assert_allclose(model.eigenvalues_, central.eigenvalues_, rtol=1e-10)
    assert aligned_error(model.transform(X_NEW), central.transform(X_NEW)) < 1e-9
    assert model.exact_
    total = np.square(X - X.mean(axis=0)).sum()
    if kernel == "linear":
        assert model.residual_ == pytest.approx(total - model.eigenvalues_.sum(), rel=1e-9)


@pytest.mark.parametrize("center", [True, False])
def test_is_pca_of_the_embedded_rows(center):
    options = {"kernel": "rbf", "gamma": 0.05, "embedding_dim": 50, "random_state": 3}
    model = em.SketchingPCA(4, **options, center=center).fit(PARTS)
    embed = embedding(Kernel("rbf", 0.05), 64, 50, seed=3)
    E = embed(X)
    mean = E.mean(axis=0) if center else 0.0
    _, s, Vt = np.linalg.svd(E - mean, full_matrices=False)
    np.testing.assert_allclose(model.eigenvalues_, s[:4] ** 2, rtol=1e-9)
    assert aligned_error(model.transform(X_NEW), (embed(X_NEW) - mean) @ Vt[:4].T) < 1e-9
    assert model.residual_ == pytest.approx(np.square(s[4:]).sum(), rel=1e-9)
    assert not model.exact_
    assert "not of the kernel" in model.report_.notes[-1]


def test_approaches_kernel_pca_as_the_embedding_widens():
    central = KernelPCA(3, kernel="rbf", gamma=0.05, eigen_solver="dense").fit(X).eigenvalues_
    errors = []
    for t in (20, 100, 1000):
        model = em.SketchingPCA(3, kernel="rbf", gamma=0.05, embedding_dim=t, random_state=0)
        errors.append(np.abs(model.fit(PARTS).eigenvalues_ / central - 1).max())
    assert errors[0] > errors[1] > errors[2]
    assert errors[2] < 0.05


@pytest.mark.parametrize("gamma", [0.05, "mean-distance"])
@pytest.mark.parametrize("kernel", ["linear", "rbf", "laplacian", "poly"])
def test_floats_equal_the_formula_and_the_plan(kernel, gamma):
    model = em.SketchingPCA(3, kernel=kernel, gamma=gamma, embedding_dim=20, random_state=0)
    plan, report = em.plan(model, PARTS), model.fit(PARTS).report_
    rule = 64 if gamma == "mean-distance" and kernel != "linear" else 0
    assert report.floats_up == plan.floats_up == 5 * (20 * 21 // 2 + 20 + rule)
    assert report.floats_down == plan.floats_down == 0
    assert report.rounds == plan.rounds
    kinds = {"counts", "gram", "moments"}
    assert all(set(own) == kinds for own in report.reveals.values())
    assert all(set(own) == kinds for own in plan.reveals.values())
    assert set(plan.reveals) == set(plan.parties)


def test_a_party_may_refuse_and_may_be_lost():
    parts = em.split(X, 3, random_state=0, policies=em.Policy(allow={"counts", "moments"}))
    with pytest.raises(PolicyRefusal, match="'gram'"):
        em.SketchingPCA(2).fit(parts)
    faults = [Fault("kill", party="party-1", round=2)]
    parts = em.split(X, 3, random_state=0)
    with em.federation(parts, faults=faults) as fed, pytest.raises(PartyLost, match="party-1"):
        em.SketchingPCA(2).fit(fed)
    with em.federation(parts, faults=faults, on_loss="survivors") as fed:
        model = em.SketchingPCA(2, embedding_dim=64).fit(fed)
    rest = np.vstack([parts.parts[0], parts.parts[2]])
    expected = KernelPCA(2, eigen_solver="dense").fit(rest).eigenvalues_
    np.testing.assert_allclose(model.eigenvalues_, expected, rtol=1e-9)


def test_more_components_than_dimensions_is_an_error():
    with pytest.raises(RankError, match="12 components"):
        em.SketchingPCA(12, kernel="rbf", gamma=0.05, embedding_dim=8).fit(PARTS)


def test_a_saved_model_gives_the_same_scores(tmp_path):
    model = em.SketchingPCA(3, kernel="arc-cosine", degree=1, random_state=0).fit(PARTS)
    model.save(tmp_path / "model.em")
    loaded = em.load(tmp_path / "model.em")
    np.testing.assert_array_equal(loaded.transform(X_NEW), model.transform(X_NEW))


@pytest.mark.parametrize("kernel", ["poly", "rbf"])
def test_an_embedding_is_drawn_once_and_not_by_every_party(kernel, monkeypatch):
    drawn, draw = [], embeddings._EMBEDDINGS[kernel]
    counted = {kernel: lambda *args: drawn.append(args) or draw(*args)}
    monkeypatch.setattr(embeddings, "_EMBEDDINGS", embeddings._EMBEDDINGS | counted)
    X = np.random.default_rng(len(kernel)).normal(size=(90, 5))
    seed = 1_000 + len(kernel)  # that no other test has left behind
    em.SketchingPCA(2, kernel=kernel, gamma=0.2, random_state=seed).fit(
        em.split(X, 30, random_state=0)
    )
    assert len(drawn) <= (os.cpu_count() or 1)  # threads that start together may both draw
