"""Kernels: scikit-learn's values, in the caller's buffer, exact where exactness is free."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.spatial.distance import cdist
from sklearn.metrics.pairwise import pairwise_kernels

from eigenmesh.errors import InputError
from eigenmesh.numerics.kernels import Kernel

KERNELS = [
    Kernel("linear"),
    Kernel("poly", gamma=0.2, degree=2, coef0=0.5),
    Kernel("poly", gamma=0.2, degree=3, coef0=1.0),
    Kernel("poly", gamma=-0.2, degree=7, coef0=0.0),
    Kernel("poly", gamma=0.01, degree=20, coef0=1.0),
    Kernel("rbf", gamma=0.3),
    Kernel("sigmoid", gamma=0.1, coef0=-0.4),
    Kernel("laplacian", gamma=0.3),
    Kernel("cosine"),
    Kernel("arc-cosine", degree=0),
    Kernel("arc-cosine", degree=1),
    Kernel("arc-cosine", degree=2),
]
every_kernel = pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: f"{k.name}-{k.degree}")
additive_kernel = pytest.mark.parametrize(
    "kernel", [k for k in KERNELS if k.of != "cosine"], ids=lambda k: f"{k.name}-{k.degree}"
)


def sample(n, d, dtype=np.float64, seed=0):
    return np.random.default_rng(seed).standard_normal((n, d)).astype(dtype)


def sparse_sample(n, d, seed=0, dtype=np.float64):
    rng = np.random.default_rng(seed)
    return sp.random_array((n, d), density=0.2, format="csr", random_state=rng, dtype=dtype)


def reference(kernel, X, Y):
    """By scikit-learn; by Cho and Saul's formulas, which it has not."""
    if kernel.name == "arc-cosine":
        return arc_cosine(X, Y, kernel.degree)
    parameters = {"gamma": kernel.gamma} if kernel.uses_gamma else {}
    if kernel.name in ("poly", "sigmoid"):
        parameters["coef0"] = kernel.coef0
    if kernel.name == "poly":
        parameters["degree"] = kernel.degree
    return pairwise_kernels(X, Y, metric=kernel.name, **parameters)


def arc_cosine(X, Y, order):
    """The angle by Kahan's formula, which keeps its digits where arccos loses half of them."""
    X_norms, Y_norms = np.linalg.norm(X, axis=1), np.linalg.norm(Y, axis=1)
    U, V = (X / X_norms[:, None])[:, None], Y / Y_norms[:, None]
    angle = 2 * np.arctan2(np.linalg.norm(U - V, axis=2), np.linalg.norm(U + V, axis=2))
    lengths, cosine = np.outer(X_norms, Y_norms), np.cos(angle)
    J = {
        0: np.pi - angle,
        1: np.sin(angle) + (np.pi - angle) * cosine,
        2: 3 * np.sin(angle) * cosine + (np.pi - angle) * (1 + 2 * cosine**2),
    }[order]
    return lengths**order * J / np.pi


def relative_error(K, K_ref):
    return np.abs(K - K_ref).max() / np.abs(K_ref).max()


def exact_distances(X, Y):
    X, Y = X.astype(np.longdouble), Y.astype(np.longdouble)
    return np.square(X[:, None] - Y[None]).sum(axis=2).astype(np.float64)


@every_kernel
def test_equals_scikit_learn_in_float64(kernel):
    X, Y = sample(50, 7), sample(30, 7, seed=1)
    assert relative_error(kernel.matrix(X, Y, block_rows=16), reference(kernel, X, Y)) < 1e-12
    assert relative_error(kernel.matrix(X, block_rows=16), reference(kernel, X, X)) < 1e-12


@every_kernel
def test_equals_scikit_learn_in_float32(kernel):
    X, Y = sample(50, 7, np.float32), sample(30, 7, np.float32, seed=1)
    K = kernel.matrix(X, Y)
    assert K.dtype == np.float32
    assert relative_error(K, reference(kernel, X.astype(float), Y.astype(float))) < 1e-5


@every_kernel
@pytest.mark.parametrize("sparse_side", ["both", "left", "right"])
def test_sparse_rows_give_the_values_of_dense_rows(kernel, sparse_side):
    X, Y = sparse_sample(40, 30), sparse_sample(25, 30, seed=1)
    left = X.toarray() if sparse_side == "right" else X
    right = Y.toarray() if sparse_side == "left" else Y
    K_ref = kernel.matrix(X.toarray(), Y.toarray())
    assert relative_error(kernel.matrix(left, right, block_rows=16), K_ref) < 1e-12


@every_kernel
def test_sparse_symmetric_matrix_equals_the_dense_one(kernel):
    X = sparse_sample(40, 30)
    K = kernel.matrix(X, block_rows=16)
    np.testing.assert_array_equal(K, K.T)
    assert relative_error(K, kernel.matrix(X.toarray())) < 1e-12


@pytest.mark.parametrize("convert", [sp.csr_matrix, sp.csc_array, sp.coo_array])
def test_takes_every_sparse_format(convert):
    X = sparse_sample(20, 10)
    kernel = Kernel("rbf", gamma=0.5)
    np.testing.assert_allclose(kernel.matrix(convert(X)), kernel.matrix(X), rtol=1e-14)


def test_sparse_float32_stays_float32():
    X = sparse_sample(20, 10, dtype=np.float32)
    assert Kernel("rbf", gamma=0.5).matrix(X).dtype == np.float32


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        (np.float64, np.float64, np.float64),
        (np.float32, np.float64, np.float64),
        (np.float32, np.float32, np.float32),
        (np.float16, np.float32, np.float32),
        (np.float16, np.float16, np.float32),
        (np.int8, np.float32, np.float64),
        (np.int64, np.int64, np.float64),
        (bool, bool, np.float64),
    ],
)
def test_works_in_float32_only_when_both_inputs_are_small_floats(left, right, expected):
    X, Y = np.ones((3, 2), left), np.zeros((4, 2), right)
    for kernel in (Kernel("linear"), Kernel("rbf", gamma=1.0)):
        assert kernel.matrix(X, Y).dtype == expected
        assert kernel.block(X, Y).dtype == expected
    assert Kernel("poly", gamma=1.0).diagonal(X).dtype == Kernel("linear").matrix(X).dtype


def test_rbf_keeps_its_digits_far_from_the_origin():
    X = sample(60, 5) + 1e4
    K_ref = np.exp(-0.3 * exact_distances(X, X))
    assert np.abs(Kernel("rbf", gamma=0.3).matrix(X) - K_ref).max() < 1e-14
    assert np.abs(Kernel("rbf", gamma=0.3).block(X[:20], X) - K_ref[:20]).max() < 1e-14


@pytest.mark.parametrize("seed", range(6))
def test_near_pairs_of_far_rows_keep_their_digits(seed):
    """Rows of which some are 1e5 to 1e12 times as long as others, and near each other in pairs."""
    rng = np.random.default_rng(seed)
    d, gamma = int(rng.integers(1, 20)), 10 ** rng.uniform(-2, 1)
    X = rng.normal(size=(60, d)) * 10 ** rng.choice([0.0, 5.0, 8.0, 12.0], size=(60, 1))
    X = np.vstack([X, X[:20] + rng.normal(size=(20, d))])
    kernel = Kernel("rbf", gamma)
    expected = np.exp(-gamma * cdist(X, X, "sqeuclidean"))
    np.testing.assert_allclose(kernel.matrix(X), expected, atol=1e-4)
    np.testing.assert_allclose(kernel.matrix(X[:40], X[20:]), expected[:40, 20:], atol=1e-4)
    sparse = kernel.matrix(sp.csr_array(X), sp.csr_array(X[20:]))
    np.testing.assert_allclose(sparse, expected[:, 20:], atol=1e-4)


def test_float32_rbf_keeps_its_digits_far_from_the_origin():
    X = sample(60, 5, np.float32) + np.float32(100)
    K_ref = np.exp(-0.3 * exact_distances(X, X))
    assert np.abs(Kernel("rbf", gamma=0.3).matrix(X) - K_ref).max() < 2e-6


def test_distances_of_near_duplicates_are_never_negative():
    X = np.repeat(sample(20, 50), 2, axis=0)
    D = Kernel("rbf", gamma=1.0).arguments(X, X.copy())
    assert D.min() >= 0
    assert D[0, 1] < 1e-12


@pytest.mark.parametrize("n", [1, 5, 128, 300])
@pytest.mark.parametrize("make", [sample, sparse_sample])
def test_distances_of_rows_to_themselves_are_exactly_zero_and_symmetric(n, make):
    X = make(n, 6)
    D = Kernel("rbf", gamma=1.0).arguments(X, X)
    assert not np.diagonal(D).any()
    np.testing.assert_array_equal(D, D.T)


@every_kernel
@settings(max_examples=25)
@given(
    X=arrays(np.float64, st.tuples(st.integers(1, 40), st.integers(1, 6)),
             elements=st.floats(-50, 50)),
    block_rows=st.integers(1, 50),
)  # fmt: skip
def test_matrix_of_one_set_is_exactly_symmetric(kernel, X, block_rows):
    K = kernel.matrix(X, block_rows=block_rows)
    np.testing.assert_array_equal(K, K.T)


@settings(max_examples=50)
@given(
    X=arrays(np.float64, st.tuples(st.integers(1, 25), st.integers(1, 5)),
             elements=st.floats(-1e3, 1e3)),
    gamma=st.floats(1e-4, 1e2),
)  # fmt: skip
def test_rbf_matrix_is_positive_semidefinite_with_unit_diagonal(X, gamma):
    K = Kernel("rbf", gamma=gamma).matrix(X)
    np.testing.assert_array_equal(np.diagonal(K), 1.0)
    # Rounding of ‖x‖² up to 5e6·ε, times gamma, is what the entries may be off by.
    slack = 1e-12 + len(X) * gamma * np.square(X).sum(axis=1).max() * 1e-14
    assert np.linalg.eigvalsh(K).min() >= -slack


@every_kernel
def test_block_and_arguments_write_into_the_given_buffer(kernel):
    X, Y = sample(20, 4), sample(10, 4, seed=1)
    wide = np.full((20, 30), np.nan)
    out = wide[:, 5:15]
    assert kernel.arguments(X, Y, out=out) is out
    assert kernel.block(X, Y, out=out) is out
    np.testing.assert_array_equal(out, kernel.block(X, Y))
    assert np.isnan(wide[:, :5]).all()
    assert np.isnan(wide[:, 15:]).all()


@additive_kernel
def test_values_from_summed_arguments_equal_the_pooled_kernel(kernel):
    X, Y = sample(30, 9), sample(20, 9, seed=1)
    parts = [slice(0, 2), slice(2, 3), slice(3, 9)]
    arguments = sum(kernel.arguments(X[:, part], Y[:, part]) for part in parts)
    assert relative_error(kernel.from_arguments(arguments), kernel.matrix(X, Y)) < 1e-13


@every_kernel
def test_from_arguments_is_in_place_only_when_told(kernel):
    arguments = np.minimum(np.abs(sample(5, 4)), 1.0)  # a cosine is none beyond 1
    before = arguments.copy()
    values = kernel.from_arguments(arguments)
    np.testing.assert_array_equal(arguments, before)
    assert kernel.from_arguments(arguments, out=arguments) is arguments
    np.testing.assert_array_equal(arguments, values)


@every_kernel
def test_diagonal_equals_that_of_the_matrix(kernel):
    X = sample(30, 6)
    np.testing.assert_allclose(kernel.diagonal(X), np.diagonal(kernel.matrix(X)), rtol=1e-12)
    S = sparse_sample(30, 12)
    np.testing.assert_allclose(kernel.diagonal(S), np.diagonal(kernel.matrix(S)), rtol=1e-12)


def test_fractional_degree_equals_scikit_learn_and_refuses_negative_bases():
    kernel = Kernel("poly", gamma=1.0, degree=2.5)
    X = np.abs(sample(10, 3))
    assert relative_error(kernel.matrix(X), reference(kernel, X, X)) < 1e-13
    with pytest.raises(InputError, match=r"degree 2\.5 of a negative number.*integer degree"):
        kernel.matrix(X, -10 * X)


def test_inputs_are_left_alone():
    X, Y = sample(10, 3), sample(8, 3, seed=1)
    copies = X.copy(), Y.copy()
    for kernel in KERNELS:
        kernel.matrix(X, Y)
    np.testing.assert_array_equal(X, copies[0])
    np.testing.assert_array_equal(Y, copies[1])


def test_no_rows_give_an_empty_block():
    for kernel in KERNELS:
        assert kernel.matrix(np.zeros((0, 3)), sample(4, 3)).shape == (0, 4)
        assert kernel.block(sample(4, 3), np.zeros((0, 3))).shape == (4, 0)


def test_a_kernel_says_what_it_is_a_function_of():
    assert {kernel.name: kernel.of for kernel in KERNELS} == {
        "linear": "inner", "poly": "inner", "sigmoid": "inner", "rbf": "distance",
        "laplacian": "manhattan", "cosine": "cosine", "arc-cosine": "cosine",
    }  # fmt: skip
    assert [kernel.uses_gamma for kernel in (Kernel("linear"), Kernel("rbf", 1.0))] == [False, True]


@pytest.mark.parametrize("name", ["rbf", "laplacian"])
@pytest.mark.parametrize("gamma", [None, 0, -1.0, np.inf, np.nan, "scale", True])
def test_a_kernel_of_distances_refuses_a_gamma_that_is_no_positive_number(gamma, name):
    with pytest.raises(InputError, match=r"gamma is .*positive finite number.*1 / n_features"):
        Kernel(name, gamma=gamma)


@pytest.mark.parametrize("degree", [3, -1, 0.5, None])
def test_arc_cosine_has_three_orders(degree):
    with pytest.raises(InputError, match=r"degree is .*orders 0, 1 and 2.*degree=1"):
        Kernel("arc-cosine", degree=degree)


@pytest.mark.parametrize("order", [0, 1, 2])
def test_arc_cosine_is_the_mean_of_products_of_half_rectified_projections(order):
    """Its definition, by sampling: 2 E[(w·x)₊ⁿ (w·y)₊ⁿ] over Gaussian w."""
    X = sample(4, 3)
    projected = X @ np.random.default_rng(1).standard_normal((3, 400_000))
    rectified = np.where(projected > 0, projected**order, 0.0)
    sampled = 2 * rectified @ rectified.T / projected.shape[1]
    assert relative_error(Kernel("arc-cosine", degree=order).matrix(X), sampled) < 0.02


def test_rows_of_zeros_have_no_direction():
    X = np.vstack([np.zeros(3), sample(3, 3)])
    for make in (np.asarray, sp.csr_array):
        K = Kernel("cosine").matrix(make(X))
        assert relative_error(K, pairwise_kernels(X, metric="cosine")) < 1e-14
        assert K[0, 0] == 0
        assert not Kernel("arc-cosine", degree=1).matrix(make(X))[0].any()
        half = Kernel("arc-cosine", degree=0).matrix(make(X))[0]  # a step function is 1/2 at 0
        np.testing.assert_allclose(half, 0.5, rtol=1e-15)


def test_duplicates_in_direction_have_no_angle():
    X = np.repeat(sample(30, 50), 2, axis=0) * np.tile([1.0, 3.0], 30)[:, None]
    K = Kernel("arc-cosine", degree=0).matrix(X, X.copy())
    assert np.abs(np.diagonal(K, 1)[::2] - 1).max() < 1e-15


def test_sparse_rows_are_not_rearranged_by_the_laplacian():
    X = sp.csr_array((np.ones(3), [2, 0, 2], [0, 3]), shape=(1, 3))  # unsorted, one entry twice
    K = Kernel("laplacian", gamma=1.0).matrix(X, sp.csr_array(np.zeros((1, 3))))
    assert K[0, 0] == pytest.approx(np.exp(-3))
    assert X.indices.tolist() == [2, 0, 2]


def test_poly_and_sigmoid_take_a_negative_gamma_but_no_zero():
    for name in ("poly", "sigmoid"):
        assert Kernel(name, gamma=np.float32(-1)).gamma == -1.0
        with pytest.raises(InputError, match="other than 0"):
            Kernel(name, gamma=0.0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "gauss"}, "kernel 'gauss' is unknown; choose from .*rbf"),
        ({"name": "poly", "gamma": 1.0, "degree": 0}, "degree is 0"),
        ({"name": "poly", "gamma": 1.0, "coef0": np.nan}, "coef0 is nan"),
    ],
)
def test_refuses_unusable_parameters(arguments, message):
    with pytest.raises(InputError, match=message):
        Kernel(**arguments)


@pytest.mark.parametrize(
    ("X", "Y", "message"),
    [
        (np.ones((2, 3)), np.ones((2, 4)), "3 columns, Y has 4"),
        (np.ones(3), np.ones((2, 3)), r"shape \(3,\).*reshape"),
        (np.ones((2, 3), complex), np.ones((2, 3)), "complex128 is not real"),
    ],
)
def test_refuses_rows_that_do_not_fit(X, Y, message):
    with pytest.raises(InputError, match=message):
        Kernel("linear").matrix(X, Y)


def test_refuses_a_buffer_that_does_not_fit():
    with pytest.raises(InputError, match=r"out has shape \(2, 2\).*needs \(2, 3\)"):
        Kernel("linear").block(np.ones((2, 1)), np.ones((3, 1)), out=np.empty((2, 2)))
