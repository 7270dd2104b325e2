"""Right-hand sketches: fewer rows, the Gram matrix nearly the same, exactly where there is room."""

import numpy as np
import pytest

from eigenmesh.methods.diskpca.paper import right_sketch


def rows(n, m=5, seed=0):
    return np.random.default_rng(seed).standard_normal((n, m))


def in_blocks(F, size=64):
    return (F[start : start + size] for start in range(0, len(F), size))


@pytest.mark.parametrize("n", [1, 7, 40])
def test_no_more_rows_than_columns_of_the_sketch_keep_their_gram_matrix(n):
    F = rows(n)
    S = right_sketch(in_blocks(F, 16), n, 40, np.random.default_rng(1))
    assert S.shape == (40, 5)
    np.testing.assert_allclose(S.T @ S, F.T @ F, atol=1e-12)


@pytest.mark.parametrize("n", [300, 1500])
def test_the_gram_matrix_is_right_in_the_mean_and_better_in_wide_sketches(n):
    F = rows(n)
    G = F.T @ F

    def grams(width, seeds):
        for seed in range(seeds):
            S = right_sketch(in_blocks(F), n, width, np.random.default_rng(seed))
            yield S.T @ S / n

    assert np.abs(np.mean(list(grams(40, 100)), axis=0) - G / n).max() < 0.08
    errors = [
        np.mean([np.linalg.norm(found - G / n) for found in grams(width, 10)])
        for width in (20, 180)
    ]
    assert errors[1] < 0.5 * errors[0]


def test_blocks_do_not_matter_where_every_row_has_its_own_bucket():
    F = rows(100)
    grams = []
    for size in (10, 100):
        S = right_sketch(in_blocks(F, size), 100, 30, np.random.default_rng(0))
        grams.append(np.trace(S.T @ S))
    assert grams[0] == pytest.approx(grams[1], rel=0.5)
