"""Top eigenpairs from products and models: exact in the end, and honest before."""

import itertools

import numpy as np
import pytest

from eigenmesh.methods.vfed.maths import JointOperator, new_directions
from eigenmesh.metrics import sin_theta


def blocks_of(n=60, widths=(9, 7, 11), noise=0.3, seed=0):
    rng = np.random.default_rng(seed)
    latent = rng.normal(size=(n, 4)) * [5.0, 3.0, 2.0, 1.5]
    return [
        latent @ rng.normal(size=(4, width)) + noise * rng.normal(size=(n, width))
        for width in widths
    ]


def run(blocks, k, n_rounds, models=True, seed=0):
    """Every round's pairs; without models the first block is random."""
    n = len(blocks[0])
    grams = [B @ B.T for B in blocks]
    trace = float(sum(np.trace(G) for G in grams))
    if models:
        svds = [np.linalg.svd(B, full_matrices=False) for B in blocks]
        operator = JointOperator.start([(U * s)[:, :k] for U, s, _ in svds], trace, n)
    else:
        first = np.linalg.qr(np.random.default_rng(1).normal(size=(n, k)))[0]
        operator = JointOperator.start([], trace, n).grown(first, [sum(grams) @ first])
    found = [operator.top(k)]
    for _ in range(n_rounds - 1):
        block = operator.next_block(found[-1], seed)
        if not block.shape[1]:
            break
        products = [G @ block for G in grams]
        operator = operator.grown(block, products if models else [sum(products)])
        found.append(operator.top(k))
    return found, sum(grams)


@pytest.mark.parametrize("models", [True, False])
@pytest.mark.parametrize("k", [1, 3])
def test_ends_at_the_top_eigenpairs(models, k):
    found, A = run(blocks_of(), k, 25, models)
    values, vectors = np.linalg.eigh(A)
    assert sin_theta(found[-1].vectors, vectors[:, ::-1][:, :k]) < 1e-10
    np.testing.assert_allclose(found[-1].values, values[::-1][:k], rtol=1e-12)
    assert found[-1].next_value == pytest.approx(values[-k - 1], rel=1e-2)


@pytest.mark.parametrize("models", [True, False])
@pytest.mark.parametrize("seed", range(5))
def test_no_value_overstates_and_no_residual_exceeds_its_bound(models, seed):
    """Recomputed from A itself, every round."""
    blocks = blocks_of(noise=1.0, seed=seed)
    found, A = run(blocks, 2, 12, models)
    true = np.linalg.eigvalsh(A)[::-1][:2]
    for pairs in found:
        assert (pairs.values <= true * (1 + 1e-12)).all()
        residuals = np.linalg.norm(A @ pairs.vectors - pairs.vectors * pairs.values, axis=0)
        assert (residuals <= pairs.residuals * pairs.values * (1 + 1e-9)).all()
        captured = np.einsum("ij,ij->", pairs.vectors, A @ pairs.vectors)
        assert captured >= pairs.values.sum() * (1 - 1e-12)


def test_models_save_rounds():
    errors = {}
    for models in (True, False):
        found, A = run(blocks_of(noise=1.0), 2, 5, models)
        exact = np.linalg.eigh(A)[1][:, ::-1][:, :2]
        errors[models] = sin_theta(found[-1].vectors, exact)
    assert errors[True] < 1e-2 * errors[False]


@pytest.mark.parametrize("models", [True, False])
def test_more_vectors_than_the_rank_do_not_break_it_down(models):
    """12 rounds of 5 vectors, 57 columns: a naive block Lanczos falls apart here."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(208, 57)) * np.geomspace(1, 0.05, 57)
    blocks = np.array_split(X, 5, axis=1)
    found, A = run(blocks, 5, 14, models)
    exact = np.linalg.eigh(A)[1][:, ::-1][:, :5]
    errors = [sin_theta(pairs.vectors, exact) for pairs in found]
    assert errors[-1] < 1e-10
    assert all(after <= max(before, 1e-10) * 3 for before, after in itertools.pairwise(errors))


def test_a_component_that_no_party_leads_with_is_found():
    """c is the joint top though neither party sends it, and the start is an eigenvector of A."""
    E = np.linalg.qr(np.random.default_rng(0).normal(size=(30, 3)))[0]
    a, b, c = E.T[:, :, None]
    found, A = run([np.hstack([a, 0.9 * c]), np.hstack([b, 0.9 * c])], 1, 10)
    assert A[0] @ c == pytest.approx(1.62 * c[0])
    assert sin_theta(found[-1].vectors, c) < 1e-8
    assert found[-1].values[0] == pytest.approx(1.62)


def test_zeros_have_no_direction_but_raise_nothing():
    pairs = JointOperator.start([np.zeros((6, 2))], 0.0, 6).top(2)
    assert pairs.values.tolist() == [0.0, 0.0]
    assert pairs.vectors.shape == (6, 2)


def test_new_directions_are_orthonormal_and_outside():
    rng = np.random.default_rng(0)
    Q = np.linalg.qr(rng.normal(size=(20, 6)))[0]
    W = np.column_stack([Q @ rng.normal(size=6) + 1e-9 * rng.normal(size=20), Q[:, 0]])
    new = new_directions(W, Q, floor=1e-12)
    assert new.shape == (20, 1)
    assert np.abs(Q.T @ new).max() < 1e-14
    assert new_directions(W, Q, floor=1e-6).shape == (20, 0)
