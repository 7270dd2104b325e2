"""Sums, distances and scores of rows against float64 arithmetic that shares no code with ours."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.metrics.pairwise import pairwise_kernels

from eigenmesh import threads
from eigenmesh.numerics.kernels import Kernel
from eigenmesh.numerics.landmark_sums import (
    LandmarkSums,
    Span,
    first_route,
    landmark_sums,
    residuals,
    shifted_sums,
)
from eigenmesh.numerics.landmarks import LandmarkModel
from eigenmesh.numerics.mean_outside import Inside, OutsideView

Q = 60


def factor_data(n=4000, d=12, seed=0):
    """A few strong directions and noise: the spectrum falls fast, as real data's does."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4)) @ rng.normal(size=(4, d)) + 0.3 * rng.normal(size=(n, d))
    return X.astype(np.float32)


X = factor_data()
GAMMA = float(1 / np.mean(((X[:2000] - X[2000:]) ** 2).sum(axis=1)))


def reference(kernel, A, B):
    A, B = (np.asarray(M.toarray() if sp.issparse(M) else M, dtype=np.float64) for M in (A, B))
    options = {"linear": [], "rbf": ["gamma"], "poly": ["gamma", "coef0", "degree"]}
    options |= {"laplacian": ["gamma"], "sigmoid": ["gamma", "coef0"]}
    own = {name: getattr(kernel, name) for name in options[kernel.name]}
    if kernel.name == "rbf":  # scikit-learn's distances lose digits far from the origin
        A, B = A - B.mean(axis=0), B - B.mean(axis=0)
    return pairwise_kernels(A, B, metric=kernel.name, **own)


class Truth:
    """What float64 makes of rows and landmarks, projected first."""

    def __init__(self, kernel, A, Y):
        K_Y = reference(kernel, Y, Y)
        self.shift = K_Y.mean(axis=0)
        self.K = reference(kernel, A, Y)
        w, V = np.linalg.eigh(K_Y)
        large = w > 1e-10 * w[-1]
        self.P = self.K @ (V[:, large] / np.sqrt(w[large]))
        steps = [A[i : i + 200] for i in range(0, A.shape[0], 200)]
        self.diagonal = np.concatenate([np.diag(reference(kernel, rows, rows)) for rows in steps])

    def eigenvalues(self, k, centre):
        P = self.P - self.P.mean(axis=0) if centre else self.P
        return np.linalg.svd(P, compute_uv=False)[:k] ** 2

    @property
    def variance(self):
        mean = self.P.mean(axis=0)
        return self.diagonal.sum() - len(self.P) * mean @ mean


def route_of(kernel, A, Y):
    return shifted_sums(Span.of(kernel, Y), A, Y)[3].name


def check(kernel, A, Y, k=4, tolerance=2e-5):
    """Eigenvalues, claims, distances and scores, to a share of the variance."""
    truth, sums = Truth(kernel, A, Y), landmark_sums(kernel, A, Y)
    assert sums.gram.dtype == sums.sums.dtype == np.float64
    assert sums.n_rows == A.shape[0]
    assert sums.trace == pytest.approx(truth.diagonal.sum(), rel=1e-6)
    for centre in (True, False):
        model = LandmarkModel.fit(kernel, Y, sums, k, centre)
        error = np.abs(model.eigenvalues - truth.eigenvalues(k, centre)).max()
        scale = truth.variance if centre else truth.diagonal.sum()
        assert error <= tolerance * scale
        # The claim, against what this very model leaves of every row.
        Z = truth.K @ model.coefficients - model.offset
        claim, true = model.residual, model.total - (Z**2).sum()
        assert abs(claim - true) <= 1e-3 * truth.diagonal.sum()
        spread = np.sqrt(model.eigenvalues / A.shape[0])
        coarse = np.finfo(model.transform(A).dtype).eps * np.abs(Z).max()
        assert np.all(np.abs(model.transform(A) - Z) <= 1e-3 * spread + 4 * coarse)
    distances = truth.diagonal - (truth.P**2).sum(axis=1)
    off = np.abs(residuals(kernel, A, Y) - np.maximum(distances, 0))
    assert off.mean() <= 1e-3 * truth.diagonal.mean()
    return truth, sums


# 1. Every kernel, in both precisions.

KERNELS = {
    "linear": Kernel("linear"),
    "rbf": Kernel("rbf", GAMMA),
    "sharp rbf": Kernel("rbf", 10 * GAMMA),
    "sigmoid": Kernel("sigmoid", GAMMA / 50, coef0=0.1),
    **{
        f"poly {degree} {coef0:g}": Kernel("poly", GAMMA, degree, coef0)
        for degree in (1, 2, 3, 4, 5)
        for coef0 in (0.0, 1.0)
    },
    "poly 2.5": Kernel("poly", GAMMA / 50, 2.5, 2.0),
}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", KERNELS)
def test_sums_are_those_of_float64(name, dtype):
    if name == "sigmoid":  # not positive: distances mean nothing, only the sums do
        truth, sums = Truth(KERNELS[name], X, X[:Q]), landmark_sums(KERNELS[name], X, X[:Q])
        shifted = truth.K - truth.shift
        np.testing.assert_allclose(sums.gram, shifted.T @ shifted, rtol=1e-8, atol=1e-9)
        return
    check(KERNELS[name], X.astype(dtype), X[:Q].astype(dtype))


@pytest.mark.parametrize("name", ["linear", "rbf", "poly 3 1"])
def test_float64_rows_stay_float64_throughout(name):
    A, kernel = X.astype(np.float64), KERNELS[name]
    truth, sums = Truth(kernel, A, A[:Q]), landmark_sums(kernel, A, A[:Q])
    shifted = truth.K - truth.shift
    np.testing.assert_allclose(sums.gram, shifted.T @ shifted, rtol=1e-11, atol=1e-9)
    np.testing.assert_allclose(sums.sums, shifted.sum(axis=0), rtol=1e-11, atol=1e-9)
    assert sums.trace == pytest.approx(truth.diagonal.sum(), rel=1e-13)
    assert route_of(kernel, A, A[:Q]) == "double"


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, bool])
def test_whole_numbers_are_not_added_up_as_such(dtype):
    A = np.random.default_rng(0).integers(0, 250, size=(2000, 12)).astype(dtype)
    kernels = [Kernel("rbf", 0.1 if dtype is bool else 1e-5), Kernel("linear")]
    for kernel in kernels:
        floats = landmark_sums(kernel, A.astype(np.float64), A[:20].astype(np.float64))
        ours = landmark_sums(kernel, A, A[:20])
        np.testing.assert_allclose(ours.gram, floats.gram, rtol=1e-13)
        assert ours.trace == pytest.approx(floats.trace, rel=1e-13)


def test_kernels_without_a_fused_form_take_the_general_way():
    kernel = Kernel("laplacian", 0.05)
    assert route_of(kernel, X, X[:Q]) == "double"
    check(kernel, X[:1500], X[:30])


@pytest.mark.parametrize("sparse_landmarks", [True, False])
@pytest.mark.parametrize("name", ["linear", "rbf", "poly 2 0"])
def test_sparse_rows_stay_sparse(name, sparse_landmarks, monkeypatch):
    rng = np.random.default_rng(0)
    A = sp.random_array((3000, 80), density=0.1, random_state=rng, format="csr", dtype=np.float32)
    Y = A[:20] if sparse_landmarks else A[:20].toarray()
    expected = landmark_sums(KERNELS[name], A.toarray().astype(float), A[:20].toarray())
    monkeypatch.setattr(sp.csr_array, "toarray", refuse_many_rows(sp.csr_array.toarray))
    ours = landmark_sums(KERNELS[name], A, Y)
    np.testing.assert_allclose(ours.gram, expected.gram, rtol=1e-5, atol=1e-6)


def refuse_many_rows(toarray):
    def guarded(self, *args, **options):
        assert self.shape[0] <= 1024, "rows were made dense"
        return toarray(self, *args, **options)

    return guarded


# 2. Shapes.


@pytest.mark.parametrize("n", [1, 7, 1023, 1025, 2048, 4097, 6145])
@pytest.mark.parametrize("d", [3, 200])
def test_any_number_of_rows(n, d):
    A = np.random.default_rng(0).normal(size=(n, d)).astype(np.float32)
    Y = np.random.default_rng(1).normal(size=(5, d)).astype(np.float32)
    kernel = Kernel("rbf", 0.3 / d)
    truth, sums = Truth(kernel, A, Y), landmark_sums(kernel, A, Y)
    shifted = truth.K - truth.shift
    np.testing.assert_allclose(sums.gram, shifted.T @ shifted, atol=1e-5 * n)
    np.testing.assert_allclose(sums.sums, shifted.sum(axis=0), atol=1e-5 * n)
    assert sums.trace == n
    assert residuals(kernel, A, Y).shape == (n,)


@pytest.mark.parametrize("kernel", [Kernel("rbf", GAMMA), Kernel("poly", GAMMA, 2, 1.0)])
def test_one_landmark(kernel):
    check(kernel, X, X[:1], k=1)


@pytest.mark.parametrize("layout", ["fortran", "strided", "foreign", "half"])
def test_any_layout_of_the_rows(layout):
    A = X[:2000]
    forms = {
        "fortran": np.asfortranarray(A),
        "strided": np.repeat(A, 2, axis=1)[:, ::2],
        "foreign": A.astype(">f4"),
        "half": A.astype(np.float16),
    }
    rows = forms[layout]
    expected = landmark_sums(KERNELS["rbf"], rows.astype(np.float64), A[:30].astype(np.float64))
    ours = landmark_sums(KERNELS["rbf"], rows, A[:30])
    np.testing.assert_allclose(ours.gram, expected.gram, atol=1e-3)


@pytest.mark.parametrize("shift", [0.0, 20.0])
def test_wide_rows_are_used_where_they_lie_and_far_ones_are_moved(shift):
    rng = np.random.default_rng(0)
    A = (rng.normal(size=(1500, 4)) @ rng.normal(size=(4, 150)) / 4 + shift).astype(np.float32)
    A += 0.2 * rng.normal(size=A.shape).astype(np.float32)
    before = A.copy()
    for kernel in (Kernel("rbf", 0.01), Kernel("linear"), Kernel("poly", 0.001, 3, 1.0)):
        check(kernel, A, A[:40])
    np.testing.assert_array_equal(A, before)


# 3. Float32 only where it is safe: each route, by data that ask for it.


def twins(count, apart):
    """Landmarks of which `count` have a near duplicate."""
    Y = X[:Q].copy()
    Y[:count] = Y[count : 2 * count] + np.float32(apart)
    return Y


ROUTES = {
    "spread landmarks": (Kernel("rbf", 10 * GAMMA), X, X[:Q], "raw"),
    "a few near duplicates": (Kernel("rbf", 10 * GAMMA), X, twins(8, 1e-3), "hybrid"),
    "many near duplicates": (Kernel("rbf", 10 * GAMMA), X, twins(25, 3e-3), "project"),
    "exact duplicates": (Kernel("rbf", 10 * GAMMA), X, twins(8, 0.0), "raw"),
    "gamma too small by 10": (Kernel("rbf", GAMMA / 10), X, X[:Q], "project"),
    "gamma too small by 1000": (Kernel("rbf", GAMMA / 1000), X, X[:Q], "double"),
    "low rank": (Kernel("linear"), X, X[:Q], "project"),
    "few rows": (Kernel("rbf", 10 * GAMMA), X[:900], X[:Q], "double"),
    "values beyond float32": (Kernel("poly", 100.0, 9, 1.0), X, X[:Q], "double"),
}


@pytest.mark.parametrize("case", ROUTES)
def test_each_route_is_taken_where_it_belongs_and_is_right(case):
    kernel, A, Y, route = ROUTES[case]
    assert route_of(kernel, A, Y) == route
    check(kernel, A, Y)


@pytest.mark.parametrize("factor", [1e-2, 1e-3, 1e-4])
@pytest.mark.parametrize("q", [20, 60])
def test_flat_kernels_keep_their_digits(factor, q):
    check(Kernel("rbf", GAMMA * factor), X, X[:q])


@pytest.mark.parametrize("shift", [20.0, 1000.0])
@pytest.mark.parametrize("name", ["linear", "rbf", "poly 2 1", "poly 3 0"])
def test_data_far_from_the_origin(name, shift):
    A = X + np.float32(shift)
    check(KERNELS[name], A, A[:Q], k=3, tolerance=1e-4)


@pytest.mark.parametrize("size", [1e-2, 1e-3])
def test_rows_that_the_landmarks_do_not_stand_for_have_the_last_word(size):
    """Rows that vary little among landmarks far apart: only the sums tell how few digits count."""
    kernel, A, Y = Kernel("rbf", GAMMA), np.float32(size) * X, 2 * X[:Q]
    assert first_route(Span.of(kernel, Y), A, Y).name == "raw"
    assert route_of(kernel, A, Y) in ("hybrid", "project", "double")
    check(kernel, A, Y)


# 4. The same answer on every machine.


def test_the_answer_does_not_depend_on_the_number_of_workers(monkeypatch):
    A, Y, kernel = factor_data(30_000), X[:Q], Kernel("rbf", GAMMA)
    answers = []
    for cores in (1, 2, 5):
        monkeypatch.setattr(threads, "cores", lambda cores=cores: cores)
        answers.append(landmark_sums(kernel, A, Y))
    for other in answers[1:]:
        np.testing.assert_array_equal(other.gram, answers[0].gram)
        np.testing.assert_array_equal(other.sums, answers[0].sums)
        assert other.trace == answers[0].trace


def test_sums_of_parts_are_the_sums_of_all_whatever_their_routes():
    kernel, Y = Kernel("rbf", GAMMA / 10), X[:Q]
    parts = [landmark_sums(kernel, A, Y) for A in (X[:500], X[500:])]
    routes = {route_of(kernel, A, Y) for A in (X[:500], X[500:])}
    assert routes == {"double", "project"}
    added = LandmarkSums(*(a + b for a, b in zip(*parts, strict=True)))
    model = LandmarkModel.fit(kernel, Y, added, 4, True)
    truth = Truth(kernel, X, Y)
    error = np.abs(model.eigenvalues - truth.eigenvalues(4, True)).max()
    assert error <= 1e-6 * truth.variance


def test_a_memory_map_is_read_and_not_copied(tmp_path):
    rows = np.lib.format.open_memmap(tmp_path / "rows.npy", "w+", np.float32, X.shape)
    rows[:] = X
    rows.flush()
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="r")
    ours, direct = (landmark_sums(KERNELS["rbf"], A, X[:Q]) for A in (mapped, X))
    np.testing.assert_array_equal(ours.gram, direct.gram)


# 5. Models.


def test_all_components_above_rounding():
    Y = X[:Q]
    sums = landmark_sums(Kernel("linear"), X, Y)
    model = LandmarkModel.fit(Kernel("linear"), Y, sums, None, True)
    assert len(model.eigenvalues) == X.shape[1]
    assert model.residual <= 1e-6 * model.total


def test_scores_have_the_precision_of_the_rows():
    Y = X[:Q]
    model = LandmarkModel.fit(KERNELS["rbf"], Y, landmark_sums(KERNELS["rbf"], X, Y), 3, True)
    single, double = model.transform(X), model.transform(X.astype(np.float64))
    assert (single.dtype, double.dtype) == (np.float32, np.float64)
    np.testing.assert_allclose(single, double, atol=1e-5)
    assert model.transform(X[:0]).shape == (0, 3)


def test_a_span_is_made_once_for_all_who_have_the_same_landmarks():
    Y, kernel = np.random.default_rng(0).normal(size=(12, 3)), Kernel("rbf", 0.5)
    span = Span.of(kernel, Y)
    assert Span.of(Kernel("rbf", 0.5), Y.copy()) is span
    assert Inside.of(span) is Inside.of(span)
    assert OutsideView.of(span, 1) is OutsideView.of(span, 1)
    other = Span.of(Kernel("rbf", 0.25), Y)
    np.testing.assert_allclose(other.K**2, span.K)
    Y[0] += 1.0  # whoever has the array may write to it: the span has its own
    np.testing.assert_array_equal(Span.of(kernel, Y).K, kernel.matrix(Y))
    np.testing.assert_array_equal(span.K, kernel.matrix(span.landmarks))
    with pytest.raises(ValueError, match="read-only"):
        span.K[0, 0] = 2.0


def test_very_many_landmarks_are_not_kept_for_others():
    Y = np.random.default_rng(0).normal(size=(1001, 1))
    assert Span.of(Kernel("linear"), Y) is not Span.of(Kernel("linear"), Y)
