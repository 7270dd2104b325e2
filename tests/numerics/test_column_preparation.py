"""What owners do to their columns: scikit-learn's scaling and imputing, column by column."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import StandardScaler

from eigenmesh.errors import InputError
from eigenmesh.numerics.column_preparation import ColumnPreparation


@pytest.fixture
def gaps():
    rng = np.random.default_rng(0)
    X = rng.normal(loc=3.0, scale=[1.0, 5.0, 0.1], size=(40, 3))
    X[rng.random(X.shape) < 0.2] = np.nan
    return X


def test_is_imputing_and_scaling(gaps):
    prepared = ColumnPreparation.of(gaps, standardize=True, fill_missing=0.5).apply(gaps)
    expected = StandardScaler().fit_transform(SimpleImputer().fit_transform(gaps))
    np.testing.assert_allclose(prepared, expected, atol=1e-12)


def test_new_samples_are_filled_with_the_training_means(gaps):
    preparation = ColumnPreparation.of(gaps, standardize=False, fill_missing=0.5)
    new = np.full((2, 3), np.nan)
    np.testing.assert_allclose(preparation.apply(new)[0], np.nanmean(gaps, axis=0))


def test_undo_gives_the_columns_back():
    X = np.random.default_rng(1).normal(loc=5.0, size=(30, 4))
    preparation = ColumnPreparation.of(X, standardize=True, fill_missing=None)
    np.testing.assert_allclose(preparation.undo(preparation.apply(X)), X, atol=1e-12)


def test_a_constant_column_becomes_zero():
    X = np.column_stack([np.full(20, 0.1), np.arange(20.0)])
    assert np.abs(ColumnPreparation.of(X, True, None).apply(X)[:, 0]).max() < 1e-15


def test_sparse_gaps_are_filled_and_zeros_count(gaps):
    gaps[gaps > 3.5] = 0.0
    preparation = ColumnPreparation.of(sp.csr_array(gaps), False, 0.5)
    filled = preparation.apply(sp.csr_array(gaps))
    np.testing.assert_allclose(filled.toarray(), SimpleImputer().fit_transform(gaps))


@pytest.mark.parametrize("share", [None, 0.0, 0.05])
def test_more_gaps_than_stated_are_refused(gaps, share):
    with pytest.raises(InputError, match=r"column \d .*lacks .*at most .*raise fill_missing"):
        ColumnPreparation.of(gaps, False, share)


def test_a_column_of_nothing_is_refused(gaps):
    gaps[:, 1] = np.nan
    with pytest.raises(InputError, match="column 1 .*lacks 100.0%.*drop the column"):
        ColumnPreparation.of(gaps, False, 1.0)


def test_sparse_columns_are_not_standardised():
    with pytest.raises(InputError, match="sparse"):
        ColumnPreparation.of(sp.csr_array(np.eye(3)), True, None)
