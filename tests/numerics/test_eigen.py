"""Eigen-solvers: LAPACK's answer on every route, and honest about rank."""

import tracemalloc

import numpy as np
import pytest
import scipy.linalg
import scipy.sparse as sp
from sklearn.utils.extmath import svd_flip

from eigenmesh.errors import InputError, RankError
from eigenmesh.numerics import eigen
from eigenmesh.numerics.eigen import (
    clip_spectrum,
    fix_signs,
    lanczos,
    left_singular,
    numerical_rank,
    pseudo_inverse_root,
    relative_gap,
    require_rank,
    top_eigenpairs,
)


def with_spectrum(values, n, seed=0):
    Q = np.linalg.qr(np.random.default_rng(seed).standard_normal((n, len(values))))[0]
    K = (Q * values) @ Q.T
    return (K + K.T) / 2


def decaying_factor(n, m, seed=0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, m)) * np.linspace(1.0, 0.05, m) ** 2


def sparse_factor(n, m, density=0.1, seed=0):
    return sp.random_array(
        (n, m), density=density, format="csr", random_state=np.random.default_rng(seed)
    )


def assert_pairs_of(K, values, vectors, tolerance=1e-12):
    """The pairs are the top ones of K: values, residuals, orthonormality."""
    k, scale = len(values), max(np.abs(K).max(), 1e-300)
    expected = scipy.linalg.eigvalsh(K)[::-1]
    largest = max(expected[0], scale)
    assert vectors.shape == (len(K), k)
    assert np.abs(values - expected[:k]).max() < tolerance * largest
    assert np.abs(K @ vectors - vectors * values).max() < tolerance * largest
    assert np.abs(vectors.T @ vectors - np.eye(k)).max() < 1e-12


# --- matrices ---


@pytest.mark.parametrize(("n", "k"), [(1, 1), (60, 5), (60, 60), (700, 4), (700, 200)])
def test_top_eigenpairs_equal_lapack(n, k):
    K = with_spectrum(np.linspace(5.0, 0.1, n) ** 3, n)
    assert_pairs_of(K, *top_eigenpairs(K, k))


HARD_SPECTRA = {
    "identity": np.ones(600),
    "repeated": np.r_[[10.0] * 3, [5.0] * 2, np.linspace(1, 0, 595)],
    "rank two": np.r_[1e6, 1.0, np.zeros(598)],
    "zero": np.zeros(600),
    "flat": np.linspace(1.0, 0.99, 600),
    "indefinite": np.linspace(3.0, -5.0, 600),
}


@pytest.mark.parametrize("name", HARD_SPECTRA)
def test_lanczos_sized_matrices_with_hard_spectra_equal_lapack(name):
    K = with_spectrum(HARD_SPECTRA[name], 600)
    assert_pairs_of(K, *top_eigenpairs(K, 4))


def test_the_same_seed_gives_the_same_vectors_even_inside_repeated_eigenvalues():
    K = np.kron(np.eye(8), np.ones((80, 80)))
    first, second = top_eigenpairs(K, 4)[1], top_eigenpairs(K, 4)[1]
    np.testing.assert_array_equal(first, second)


def test_falls_back_to_lapack_when_lanczos_does_not_converge(monkeypatch):
    monkeypatch.setattr(eigen, "_MAX_RESTARTS", 1)
    K = with_spectrum(np.linspace(1.0, 0.999, 600), 600)
    with pytest.raises(eigen.ArpackError):
        lanczos(lambda v: K @ v, 600, 10)
    assert_pairs_of(K, *top_eigenpairs(K, 10))


@pytest.mark.parametrize("n", [50, 600])
def test_matrix_is_left_alone_and_float32_is_factorised_in_float64(n):
    K = with_spectrum(np.linspace(5.0, 0.1, n), n).astype(np.float32)
    before = K.copy()
    values, vectors = top_eigenpairs(K, 3)
    np.testing.assert_array_equal(K, before)
    assert values.dtype == vectors.dtype == np.float64
    assert_pairs_of(K.astype(np.float64), values, vectors)


@pytest.mark.parametrize(
    ("K", "k", "message"),
    [
        (np.eye(3), 4, "k is 4, expected at most 3"),
        (np.eye(3), 0, "k is 0, expected an integer of at least 1"),
        (np.ones((2, 3)), 1, "not square"),
        (np.full((2, 2), np.nan), 1, "NaN or infinity"),
    ],
)
def test_top_eigenpairs_refuse_bad_input(K, k, message):
    with pytest.raises(InputError, match=message):
        top_eigenpairs(K, k)


# --- factors ---


@pytest.mark.parametrize("centre", [False, True])
@pytest.mark.parametrize(("n", "m"), [(300, 20), (20, 300), (60, 60), (7, 1), (1, 7)])
@pytest.mark.parametrize("k", [1, 5, 1000])
def test_left_singular_equals_lapack_on_the_product(n, m, k, centre):
    F = decaying_factor(n, m) + 3.0
    values, vectors = left_singular(F, k, centre=centre)
    assert len(values) == min(k, n, m)
    centred = F - F.mean(axis=0) if centre else F
    assert_pairs_of(centred @ centred.T, values, vectors)


@pytest.mark.parametrize("centre", [False, True])
@pytest.mark.parametrize(("n", "m"), [(300, 20), (20, 300), (60, 60)])
@pytest.mark.parametrize("k", [1, 5, 1000])
def test_sparse_factor_gives_the_dense_answer(n, m, k, centre):
    F = sparse_factor(n, m)
    dense = F.toarray() - (F.toarray().mean(axis=0) if centre else 0)
    values, vectors = left_singular(F, k, centre=centre)
    assert len(values) == min(k, n, m)
    assert_pairs_of(dense @ dense.T, values, vectors)


@pytest.mark.parametrize("centre", [False, True])
@pytest.mark.parametrize("convert", [np.asarray, sp.csr_array])
@pytest.mark.parametrize(("n", "m"), [(150, 100), (100, 150)])
def test_lanczos_on_a_factor_equals_lapack(monkeypatch, n, m, convert, centre):
    monkeypatch.setattr(eigen, "_GRAM_SIZE", 50)
    monkeypatch.setattr(eigen, "_by_gram", None)
    F = decaying_factor(n, m) + 0.1
    dense = F - (F.mean(axis=0) if centre else 0)
    assert_pairs_of(dense @ dense.T, *left_singular(convert(F), 4, centre=centre))


def test_falls_back_to_the_gram_matrix_when_lanczos_does_not_converge(monkeypatch):
    monkeypatch.setattr(eigen, "_GRAM_SIZE", 50)
    monkeypatch.setattr(eigen, "_MAX_RESTARTS", 1)
    F = np.linalg.qr(decaying_factor(300, 200))[0]
    assert_pairs_of(F @ F.T, *left_singular(F, 3))


@pytest.mark.parametrize("convert", [np.asarray, sp.csr_array])
@pytest.mark.parametrize(("n", "m"), [(80, 10), (10, 80)])
def test_a_rank_deficient_factor_still_gives_k_orthonormal_vectors(n, m, convert):
    F = np.outer(np.arange(1.0, n + 1), np.ones(m))
    values, vectors = left_singular(convert(F), 6)
    assert len(values) == 6
    assert (values >= 0).all()
    assert numerical_rank(values, n) == 1
    assert_pairs_of(F @ F.T, values, vectors)


def test_a_zero_factor_gives_zeros_and_orthonormal_vectors():
    values, vectors = left_singular(np.zeros((9, 4)), 3)
    np.testing.assert_array_equal(values, 0.0)
    assert np.abs(vectors.T @ vectors - np.eye(3)).max() < 1e-14


@pytest.mark.parametrize(("n", "m"), [(200, 30), (30, 200)])
def test_small_singular_directions_keep_their_digits(n, m):
    rng = np.random.default_rng(0)
    r = 6
    U, V = (np.linalg.qr(rng.standard_normal((size, r)))[0] for size in (n, m))
    s = 10.0 ** -np.arange(r)  # squared: 1 … 1e-10
    values, vectors = left_singular((U * s) @ V.T, r)
    assert np.abs(values / s**2 - 1).max() < 1e-9
    assert np.abs(np.abs(np.einsum("ij,ij->j", vectors, U)) - 1).max() < 1e-12


def test_centring_keeps_its_digits_far_from_the_origin():
    F = decaying_factor(200, 10)
    near, _ = left_singular(F, 4, centre=True)
    far, _ = left_singular(F + 1e6, 4, centre=True)
    assert np.abs(far / near - 1).max() < 1e-8  # the shift itself rounds the data to 1e-10


@pytest.mark.parametrize(("n", "m"), [(20_000, 50), (50, 20_000)])
def test_forms_nothing_larger_than_the_factor(n, m):
    F = decaying_factor(n, m)
    tracemalloc.start()
    left_singular(F, 3, centre=True)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 3 * F.nbytes


def test_a_sparse_factor_is_never_densified():
    F = sparse_factor(20_000, 20_000, density=2e-5)
    tracemalloc.start()
    values, _ = left_singular(F, 3, centre=True)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert values[0] > 0
    assert peak < 0.02 * 20_000**2 * 8


def test_float32_factor_is_factorised_in_float64():
    F = decaying_factor(50, 5).astype(np.float32)
    before = F.copy()
    values, vectors = left_singular(F, 2)
    assert values.dtype == vectors.dtype == np.float64
    np.testing.assert_array_equal(F, before)
    assert_pairs_of(F.astype(np.float64) @ F.T.astype(np.float64), values, vectors)


@pytest.mark.parametrize(
    ("F", "k", "message"),
    [
        (np.ones((3, 2)), 0, "k is 0"),
        (np.ones((3, 0)), 1, "is empty"),
        (np.ones((0, 3)), 1, "is empty"),
        (np.full((3, 2), np.inf), 1, "NaN or infinity"),
        (sp.csr_array(np.full((3, 2), np.nan)), 1, "NaN or infinity"),
    ],
)
def test_left_singular_refuses_bad_input(F, k, message):
    with pytest.raises(InputError, match=message):
        left_singular(F, k, centre=True)


# --- spectra ---


def test_clip_spectrum_zeroes_rounding_relative_to_size_and_largest():
    values = np.array([1e8, 1.0, 1e-8, -1e-7])
    np.testing.assert_array_equal(clip_spectrum(values), [1e8, 1.0, 0.0, 0.0])
    np.testing.assert_array_equal(clip_spectrum(values, n=10**8), [1e8, 0.0, 0.0, 0.0])
    np.testing.assert_array_equal(clip_spectrum(np.array([-1.0, 0.0])), [0.0, 0.0])
    assert clip_spectrum(np.array([])).shape == (0,)


def test_numerical_rank_finds_the_rank_that_was_built_in():
    K = with_spectrum(np.linspace(3.0, 1.0, 17), 200)
    values, _ = top_eigenpairs(K, 60)
    assert numerical_rank(values, 200) == 17


def test_require_rank_states_value_rank_and_remedy():
    values = np.array([2.0, 1.0, 1e-18])
    require_rank(values, 2)
    with pytest.raises(RankError, match=r"3 components.*the 5 rows determine 2; .*at most 2"):
        require_rank(values, 3, n=5, what="the 5 rows")
    with pytest.raises(RankError, match="determine 0; check that the samples differ"):
        require_rank(np.zeros(3), 1)


def test_fix_signs_agrees_with_scikit_learn():
    U = np.random.default_rng(0).standard_normal((40, 6))
    expected, _ = svd_flip(U.copy(), np.ones((6, 3)), u_based_decision=True)
    np.testing.assert_array_equal(fix_signs(U), expected)
    np.testing.assert_array_equal(fix_signs(-U), expected)


def test_fix_signs_takes_the_first_of_tied_entries_whatever_the_last_bit():
    U = np.array([[-1.0, -1.0], [1.0, 1.0 + 4e-16]])
    np.testing.assert_allclose(fix_signs(U), [[1.0, 1.0], [-1.0, -1.0]], rtol=1e-15)


def test_fix_signs_leaves_zero_columns_and_empty_sets():
    np.testing.assert_array_equal(fix_signs(np.zeros((3, 2))), np.zeros((3, 2)))
    assert fix_signs(np.zeros((3, 0))).shape == (3, 0)


def test_pseudo_inverse_root_whitens_the_kept_directions_and_drops_the_rest():
    K = with_spectrum(10.0 ** -np.arange(15.0), 40)
    B = pseudo_inverse_root(K, cutoff=3e-8)
    assert B.shape == (40, 8)
    assert np.abs(B.T @ K @ B - np.eye(8)).max() < 1e-8
    assert pseudo_inverse_root(K.astype(np.float32), cutoff=1e-4).dtype == np.float64


def test_pseudo_inverse_root_projects_as_the_pseudo_inverse_does():
    K = with_spectrum(np.linspace(2.0, 1.0, 5), 12)
    B = pseudo_inverse_root(K)
    assert np.abs(B @ B.T - np.linalg.pinv(K, rcond=1e-10, hermitian=True)).max() < 1e-13


def test_pseudo_inverse_root_refuses_a_zero_matrix():
    with pytest.raises(RankError, match="no inverse root"):
        pseudo_inverse_root(np.zeros((3, 3)))


def test_relative_gap_is_small_where_the_subspace_is_undetermined():
    values = np.array([4.0, 2.0, 2.0 - 1e-9, 0.0, -1e-18])
    assert relative_gap(values, 1) == 0.5
    assert relative_gap(values, 2) == pytest.approx(5e-10)
    assert relative_gap(values, 3) == 1.0
    assert relative_gap(values, 4) == 0.0
    assert relative_gap(values[:2], 2) == 1.0
    with pytest.raises(InputError, match="k is 6"):
        relative_gap(values, 6)


@pytest.mark.parametrize("n", [20, 100, 300])
def test_finds_eigenvalues_of_high_multiplicity(n):
    """LAPACK's subset solvers return nothing at all for these."""
    K = np.eye(n) - 1 / n
    values, vectors = top_eigenpairs(K, 3)
    np.testing.assert_allclose(values, 1.0)
    np.testing.assert_allclose(K @ vectors, vectors, atol=1e-12)
