"""The paper's Hadamard embedding, and fits that are repeated for a better draw."""

import numpy as np
import pytest
from scipy.linalg import hadamard
from sklearn.datasets import load_digits

import eigenmesh as em
from eigenmesh.errors import InputError
from eigenmesh.numerics.embeddings import embedding, hadamard_map
from eigenmesh.numerics.kernels import Kernel

POLY = {"kernel": "poly", "degree": 2, "gamma": 1.0, "coef0": 0.0, "center": False}


@pytest.fixture(scope="module")
def X():
    return load_digits().data[:300] / 16


@pytest.fixture(scope="module")
def parts(X):
    return em.split(X, 4, law="power", exponent=1.0, random_state=0)


def test_columns_are_those_of_a_hadamard_matrix_with_signs():
    G = hadamard_map(12, 5, np.random.default_rng(3)) * np.sqrt(5)
    assert set(np.unique(G)) == {-1.0, 1.0}
    signs = G[:, [0]]
    products = (signs * G)[:, 1:]  # of two columns: the signs cancel, a column of H is left
    H = hadamard(16)[:12]
    for product in products.T:
        assert any(np.array_equal(product * product[0], column) for column in H.T)


def test_inner_products_are_the_kernels_on_average(X):
    kernel, rows = Kernel("poly", 1.0, 2, 0.0), X[:20] / np.linalg.norm(X[:20], axis=1)[:, None]
    draws = []
    for seed in range(60):
        E = embedding(kernel, rows.shape[1], 60, seed, "hadamard")(rows)
        draws.append(E @ E.T)
    standard_errors = np.std(draws, axis=0) / np.sqrt(60)
    off = (np.mean(draws, axis=0) - (rows @ rows.T) ** 2) / standard_errors
    assert np.abs(off).max() < 5  # of 210 pairs
    assert np.abs(off).mean() < 1.2


def test_a_hadamard_embedding_serves_as_well_as_a_gaussian_one(X, parts):
    K = (X @ X.T) ** 2
    best = np.linalg.eigvalsh(K)[::-1][:5].sum()
    captured = {
        reduction: np.mean(
            [
                em.DisKPCA(
                    5, **POLY, n_landmarks=40, exact=False, reduction=reduction, random_state=seed
                )
                .fit(parts)
                .eigenvalues_.sum()
                for seed in range(3)
            ]
        )
        for reduction in ("gaussian", "hadamard")
    }
    left = {name: (np.trace(K) - own) / (np.trace(K) - best) for name, own in captured.items()}
    assert left["hadamard"] < 1.25
    assert abs(left["hadamard"] - left["gaussian"]) < 0.1


def test_the_best_of_several_draws_is_kept_and_all_are_counted(parts):
    few = {**POLY, "n_landmarks": 8, "landmarks": "uniform", "random_state": 5}
    once = em.DisKPCA(3, **few).fit(parts)
    kpca = em.DisKPCA(3, n_repeats=4, **few)
    best = kpca.fit(parts)
    assert best.eigenvalues_.sum() > once.eigenvalues_.sum()
    scores = np.vstack(best.transform(parts))
    np.testing.assert_allclose(np.sum(scores**2), best.eigenvalues_.sum())  # it is that model
    assert best.report_.rounds == 4 * once.report_.rounds
    assert em.plan(kpca, parts).floats_up == best.report_.floats_up
    again = em.DisKPCA(3, n_repeats=4, **few).fit(parts)
    np.testing.assert_array_equal(again.eigenvalues_, best.eigenvalues_)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"kernel": "rbf", "exact": False, "reduction": "hadamard"}, "kernel is 'rbf'"),
        ({"reduction": "fast"}, "reduction is 'fast'"),
        ({"n_repeats": 0}, "n_repeats is 0"),
    ],
)
def test_wrong_parameters_are_explained(parts, options, words):
    with pytest.raises(InputError, match=words):
        em.DisKPCA(2, **options).fit(parts)
