"""Centring: scikit-learn's KernelCenterer, in place."""

import tracemalloc

import numpy as np
import pytest
from sklearn.preprocessing import KernelCenterer

from eigenmesh.errors import InputError
from eigenmesh.numerics.centring import KernelMeans, centre_in_place, centre_rows, kernel_means
from eigenmesh.numerics.kernels import Kernel


def kernel_matrices(n=1500, m=40, dtype=np.float64):
    rng = np.random.default_rng(0)
    X, X_new = rng.standard_normal((n, 4)).astype(dtype), rng.standard_normal((m, 4)).astype(dtype)
    kernel = Kernel("rbf", gamma=0.1)
    return kernel.matrix(X), kernel.matrix(X_new, X)


def test_equals_kernel_centerer_on_training_and_new_rows():
    K, K_new = kernel_matrices()
    centerer = KernelCenterer().fit(K)
    K_ref, new_ref = centerer.transform(K), centerer.transform(K_new)
    means = centre_in_place(K)
    assert np.abs(K - K_ref).max() < 1e-12
    assert np.abs(centre_rows(K_new, means) - new_ref).max() < 1e-12
    assert np.abs(means.columns - centerer.K_fit_rows_).max() < 1e-12
    assert abs(means.overall - centerer.K_fit_all_) < 1e-12


def test_training_rows_centred_as_new_rows_give_the_training_matrix():
    K, _ = kernel_matrices(n=300)
    raw = K.copy()
    means = centre_in_place(K)
    assert np.abs(centre_rows(raw, means) - K).max() < 1e-14


def test_a_symmetric_matrix_stays_exactly_symmetric_with_zero_row_sums():
    K, _ = kernel_matrices(n=300)
    centre_in_place(K)
    np.testing.assert_array_equal(K, K.T)
    assert np.abs(K.sum(axis=0)).max() < 1e-12


def test_needs_no_second_matrix():
    K, _ = kernel_matrices(n=3000)
    tracemalloc.start()
    centre_in_place(K)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 0.5 * K.nbytes


def test_float32_is_centred_in_place_with_float64_means():
    K, K_new = kernel_matrices(n=300, dtype=np.float32)
    K_ref = KernelCenterer().fit_transform(K.astype(np.float64))
    means = centre_in_place(K)
    assert K.dtype == np.float32
    assert means.columns.dtype == np.float64
    assert np.abs(K - K_ref).max() < 1e-6
    assert centre_rows(K_new, means).dtype == np.float32


def test_centre_rows_writes_where_it_is_told():
    K, K_new = kernel_matrices(n=50)
    means = kernel_means(K)
    expected = centre_rows(K_new, means)
    assert centre_rows(K_new, means, out=K_new) is K_new
    np.testing.assert_array_equal(K_new, expected)


@pytest.mark.parametrize("shape", [(2, 3), (3,), (0, 0)])
def test_refuses_a_matrix_that_is_not_square(shape):
    with pytest.raises(InputError, match="not square"):
        centre_in_place(np.ones(shape))


def test_refuses_integers_and_wrong_widths():
    with pytest.raises(InputError, match="int64 cannot be centred in place; convert"):
        centre_in_place(np.ones((2, 2), np.int64))
    with pytest.raises(InputError, match=r"shape \(2, 3\), expected \(m, 2\)"):
        centre_rows(np.ones((2, 3)), KernelMeans(np.ones(2), 1.0))
