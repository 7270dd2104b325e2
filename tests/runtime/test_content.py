"""Kinds by content, against what they claim of drawn data."""

import numpy as np
import pytest

from eigenmesh.runtime.content import (
    OVER_ROWS,
    Release,
    determine_columns,
    is_triangular_factor,
    kind_of,
    kinds_of_release,
    looked_at,
    numbers_over_rows,
    tells_distances,
)
from eigenmesh.runtime.message import KINDS

MANY = Release(covers=50, numbers=10, n_rows=50, n_columns=4, min_rows=5)


def rbf(X, gamma):
    return np.exp(-gamma * ((X[:, None] - X[None]) ** 2).sum(-1))


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_only_what_is_computed_from_rows_becomes_rows(kind):
    few = MANY._replace(covers=4)
    assert kind_of(kind, MANY) == kind
    assert kind_of(kind, few) == ("rows" if kind in OVER_ROWS else kind)


@pytest.mark.parametrize("split", ["rows", "columns"])
def test_as_many_numbers_as_a_party_has_are_its_data_between_organisations_only(split):
    full = MANY._replace(numbers=200, split=split)
    assert kind_of("moments", full) == "moments"
    assert kind_of("moments", full._replace(trust="organisations")) == split
    assert kind_of("moments", full._replace(trust="organisations", numbers=199)) == "moments"
    assert kinds_of_release({"counts", "moments"}, full) == {"counts", "moments"}


@pytest.mark.parametrize("kind", ["gram", "distances"])
def test_products_and_distances_that_determine_samples_are_columns_everywhere(kind):
    n, d = MANY.n_rows, MANY.n_columns
    enough = MANY._replace(numbers=min(n * d, n * (n - 1) // 2))
    assert kind_of(kind, enough._replace(split="columns")) == "columns"
    assert kind_of(kind, enough._replace(split="columns", numbers=enough.numbers - 1)) == kind
    assert kind_of(kind, enough) == kind


def test_counts_and_masked_sums_are_not_numbers_of_a_party():
    assert numbers_over_rows({"counts": 7, "aggregate": 9, "gram": 3, "rows": 4, "seed": 1}) == 7


@pytest.mark.parametrize("seed", range(5))
def test_products_that_determine_columns_do(seed):
    rng = np.random.default_rng(seed)
    n, m = int(rng.integers(3, 30)), int(rng.integers(1, 12))
    X = rng.normal(size=(n, m))
    X -= X.mean(axis=0)
    for b in range(1, n):
        product = X @ (X.T @ rng.normal(size=(n, b)))
        whole = np.linalg.matrix_rank(product) == np.linalg.matrix_rank(X)
        assert determine_columns(b, n, m) == whole


@pytest.mark.parametrize("seed", range(6))
def test_a_spectrum_tells_distances_when_they_can_be_rebuilt(seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(40, 3))
    K = rbf(X, gamma=rng.uniform(0.02, 0.3))
    values, vectors = np.linalg.eigh(K)
    whole = (vectors * values) @ vectors.T
    one = values[-1] * np.outer(vectors[:, -1], vectors[:, -1])
    assert tells_distances(whole, K)
    assert not tells_distances(one, K)


def test_equal_samples_have_no_distances_to_tell():
    assert not tells_distances(np.ones((4, 4)), np.ones((4, 4)))


@pytest.mark.parametrize("seed", range(4))
def test_distances_that_are_nearly_one_number_are_told_by_what_beats_that_number(seed):
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(40, 120)), int(rng.integers(300, 3000))
    X = rng.normal(size=(n, d))
    K = rbf(X, gamma=1 / d)
    values, vectors = np.linalg.eigh(K)

    def rebuilt(k):
        return (vectors[:, -k:] * values[-k:]) @ vectors[:, -k:].T

    distances = -np.log(K[~np.eye(n, dtype=bool)])
    assert np.abs(distances / np.median(distances) - 1).max() < 0.5  # nearly one number
    assert tells_distances(rebuilt(n), K)
    assert not any(tells_distances(rebuilt(k), K) for k in (1, 3, n // 4))


def test_triangular_factors_are_known_by_their_form():
    R = np.linalg.qr(np.random.default_rng(0).normal(size=(9, 4)))[1]
    assert is_triangular_factor(R)
    assert is_triangular_factor(R.T)
    for other in (R.T @ R, np.eye(3), np.zeros((3, 3)), R[0], R[:3], 1.0):
        assert not is_triangular_factor(other)


def test_samples_looked_at_are_few_and_over_all():
    places = looked_at(100_000)
    assert len(places) == 256
    assert (places[0], places[-1]) == (0, 99_999)
    assert looked_at(3).tolist() == [0, 1, 2]
