"""Columns with too many gaps go, the others stay as they are."""

import numpy as np
import pandas as pd
import pytest

import eigenmesh as em
from eigenmesh.data import drop_missing
from eigenmesh.errors import InputError


@pytest.fixture(scope="module")
def X():
    X = np.random.default_rng(0).normal(size=(40, 6))
    for column, gaps in ((1, 3), (3, 9), (4, 40)):
        X[:gaps, column] = np.nan
    return X


@pytest.mark.parametrize(
    ("most", "columns"), [(0.0, [0, 2, 5]), (0.1, [0, 1, 2, 5]), (9 / 40, [0, 1, 2, 3, 5])]
)
def test_columns_that_lack_more_than_the_share_are_left_out(X, most, columns):
    np.testing.assert_array_equal(drop_missing(X, most), X[:, columns])
    frame = drop_missing(pd.DataFrame(X, columns=list("abcdef")), most)
    assert list(frame.columns) == [list("abcdef")[i] for i in columns]


def test_a_fit_over_columns_fills_what_is_left(X):
    blocks = [drop_missing(A, 0.1) for A in np.split(X, 2, axis=1)]
    kpca = em.OneShotKPCA(2, fill_missing=0.1).fit(
        em.Partitioned(columns=blocks, allow_missing=True)
    )
    whole = np.hstack(blocks)
    filled = np.where(np.isnan(whole), np.nanmean(whole, axis=0), whole)
    values = np.linalg.svd(filled - filled.mean(axis=0), compute_uv=False)[:2] ** 2
    np.testing.assert_allclose(kpca.eigenvalues_, values, rtol=1e-9)


@pytest.mark.parametrize("most", [-0.1, 1.5, True])
def test_a_share_is_a_share(X, most):
    with pytest.raises(InputError, match="a share from 0 to 1 is expected"):
        drop_missing(X, most)
