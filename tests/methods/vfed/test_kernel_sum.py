"""The sum of the parties' kernel matrices: exact, masked or not, and what merged vectors aim at."""

import numpy as np
import pytest
from sklearn.datasets import load_wine
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.preprocessing import scale

import eigenmesh as em
from eigenmesh.errors import InputError

GAMMA = 0.2
KERNELS = {
    "rbf": lambda A, B: rbf_kernel(A, B, gamma=GAMMA),
    "poly": lambda A, B: (GAMMA * A @ B.T + 1.0) ** 3,
    "sigmoid": lambda A, B: np.tanh(GAMMA * A @ B.T + 1.0),
}


@pytest.fixture(scope="module")
def X():
    return scale(load_wine().data)


@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("name", KERNELS)
def test_components_and_scores_are_those_of_the_sum_of_kernels(X, name, center):
    train, new, k = X[:90], X[90:120], 3
    kernel, cuts = KERNELS[name], (4, 9)
    blocks, new_blocks = (np.split(A, cuts, axis=1) for A in (train, new))
    K = sum(kernel(A, A) for A in blocks)
    across = sum(kernel(B, A) for A, B in zip(blocks, new_blocks, strict=True))
    if center:
        across = across - across.mean(axis=1)[:, None] - K.mean(axis=0) + K.mean()
        H = np.eye(len(K)) - 1 / len(K)
        K = H @ K @ H
    values, U = np.linalg.eigh(K)
    order = np.argsort(-np.abs(values))[:k]
    values, U = values[order], U[:, order]

    parts = em.Partitioned(columns=blocks)
    model = em.VFedAKPCA(k, kernel=name, gamma=GAMMA, variant="sum", center=center)
    report = model.fit(parts).report_
    np.testing.assert_allclose(model.eigenvalues_, values, rtol=1e-9)
    expected = across @ U / np.sqrt(np.abs(values))
    scores = model.transform(new)
    signs = np.sign(np.sum(scores * expected, axis=0))
    np.testing.assert_allclose(scores * signs, expected, atol=1e-8)
    np.testing.assert_allclose(np.abs(np.sum(model.eigenvectors_ * U, axis=0)), 1.0)
    assert report.by_step["PowerHolder.kernel_summand"] == 3 * 90 * 91 // 2
    assert em.plan(model, parts).floats_up == report.floats_up


def test_masked_nobody_sees_but_the_sum(X):
    parts = em.split(X[:60], 3, by="columns")
    model = em.VFedAKPCA(2, gamma=GAMMA, variant="sum").fit(parts)
    with em.federation(parts, secure=True) as fed:
        masked = em.VFedAKPCA(2, gamma=GAMMA, variant="sum").fit(fed)
    np.testing.assert_allclose(masked.eigenvalues_, model.eigenvalues_, rtol=1e-6)
    assert "distances" in model.report_.reveals["party-0"]
    assert "distances" not in masked.report_.reveals["party-0"]
    assert "aggregate" in masked.report_.reveals["party-0"]


def test_the_papers_merge_is_an_estimate_of_it(X):
    """Of one component, uncentred: nearer to the sum's than to that of the pooled kernel."""
    parts = em.split(X[:90], 3, by="columns")
    how = {"gamma": GAMMA, "center": False, "random_state": 0}
    with pytest.warns(em.EigenmeshWarning, match="variant='paper'"):
        paper = em.VFedAKPCA(1, variant="paper", n_rounds=1, local_iterations=50, **how).fit(parts)
    cosines = [
        abs(paper.eigenvectors_[:, 0] @ em.VFedAKPCA(1, **how, **variant).fit(parts).eigenvectors_)
        for variant in ({"variant": "sum"}, {"variant": "exact"})
    ]
    assert cosines[0] > cosines[1]


def test_on_a_graph_there_is_nobody_to_add_up(X):
    parts = em.split(X[:30], 3, by="columns")
    with pytest.raises(InputError, match="variant is 'sum' and parties are on a graph"):
        em.VFedAKPCA(2, gamma=GAMMA, variant="sum", topology="ring").fit(parts)


def test_a_model_is_saved_with_its_shares(X, tmp_path):
    model = em.VFedAKPCA(2, gamma=GAMMA, variant="sum").fit(em.split(X, 3, by="columns"))
    model.save(tmp_path / "m.em", parties=True)
    loaded = em.load(tmp_path / "m.em")
    np.testing.assert_allclose(loaded.transform(X[:5]), model.transform(X[:5]))
