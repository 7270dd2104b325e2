"""`fit_transform` of one array has its kernel values from the fit: the scores are `transform`'s."""

import numpy as np
import pytest
import scipy.sparse as sp

import eigenmesh as em
from eigenmesh.numerics import landmark_sums
from eigenmesh.numerics.landmarks import LandmarkModel

# What so few landmarks miss has tests of its own.
pytestmark = pytest.mark.filterwarnings("ignore::eigenmesh.errors.EigenmeshWarning")

KERNELS = {
    "rbf": {"kernel": "rbf", "gamma": 0.02},
    "flat rbf": {"kernel": "rbf", "gamma": 1e-5},
    "poly": {"kernel": "poly", "degree": 2, "gamma": 0.1},
    "linear": {"kernel": "linear"},
}


def rows_of(dtype, far=0.0):
    rng = np.random.default_rng(0)
    return (rng.normal(size=(2500, 6)) @ rng.normal(size=(6, 6)) + far).astype(dtype)


def with_landmarks(n_landmarks=40, **options):
    return em.KernelPCA(3, n_landmarks=n_landmarks, random_state=0, **options)


def largest_difference(some, others):
    """In standard deviations of a component."""
    return float((np.abs(some - others) / others.std(axis=0)).max())


@pytest.fixture
def only_one_pass(monkeypatch):
    """Whoever goes over the rows again fails."""

    def refuse(self, X):
        raise AssertionError("kernel values were computed a second time")

    monkeypatch.setattr(LandmarkModel, "transform", refuse)
    return monkeypatch.undo


@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("options", KERNELS.values(), ids=KERNELS)
def test_scores_are_those_of_transform(options, center, only_one_pass):
    X = rows_of(np.float64)
    n_landmarks = 6 if options["kernel"] == "linear" else 40
    kpca = with_landmarks(n_landmarks, center=center, **options)
    scores = kpca.fit_transform(X)
    only_one_pass()
    # Rows that differ by 1e-5 to the kernel have as many digits less, either way.
    assert largest_difference(scores, kpca.transform(X)) < (
        1e-8 if options.get("gamma", 1) < 1e-3 else 1e-12
    )
    again = with_landmarks(n_landmarks, center=center, **options).fit(X)
    np.testing.assert_array_equal(again.model_.coefficients, kpca.model_.coefficients)


@pytest.mark.parametrize("far", [0.0, 1000.0])
def test_single_precision_is_off_by_its_rounding_alone(far, only_one_pass):
    X = rows_of(np.float32, far)
    kpca = with_landmarks(**KERNELS["rbf"])
    scores = kpca.fit_transform(X)
    only_one_pass()
    assert scores.dtype == np.float32
    exact = kpca.model_.transform(X.astype(np.float64))
    assert largest_difference(scores, exact) < 1e-4
    assert largest_difference(kpca.transform(X), exact) < 1e-4


def test_values_with_too_few_digits_are_computed_anew():
    X = rows_of(np.float32)
    kpca = with_landmarks(**KERNELS["flat rbf"])
    exact = kpca.fit(X).model_.transform(X.astype(np.float64))
    assert largest_difference(kpca.fit_transform(X), exact) < 1e-4


def test_landmarks_that_grow_leave_the_values_of_the_last_ones(only_one_pass):
    X = rows_of(np.float64)
    kpca = em.KernelPCA(
        3, kernel="rbf", gamma=0.2, method="diskpca", random_state=0, accuracy=0.001
    )
    scores = kpca.fit_transform(X)
    only_one_pass()
    assert largest_difference(scores, kpca.transform(X)) < 1e-10


def test_kernel_values_beyond_the_bound_are_not_kept(monkeypatch):
    X = rows_of(np.float64)
    kpca = with_landmarks(**KERNELS["rbf"])
    expected = kpca.fit_transform(X)
    monkeypatch.setattr(landmark_sums, "_KEPT_BYTES", 2500 * 40 * 8 - 1)
    shapes = []
    gather = landmark_sums.gather
    monkeypatch.setattr(
        landmark_sums,
        "gather",
        lambda A, kernel, B, raw, room: shapes.append(room) or gather(A, kernel, B, raw, room),
    )
    assert largest_difference(kpca.fit_transform(X), expected) < 1e-10
    assert shapes == [None]


def test_weights_sparse_and_prepared_rows_are_scored_as_ever():
    X = rows_of(np.float64)
    kpca, weights = with_landmarks(**KERNELS["rbf"]), np.arange(2500) % 3 + 1.0
    scores = kpca.fit_transform(X, sample_weight=weights)
    np.testing.assert_array_equal(scores, kpca.transform(X))
    sparse = sp.csr_array(X)
    np.testing.assert_array_equal(kpca.fit_transform(sparse), kpca.transform(sparse))
    kpca.set_params(preparation=em.Preparation(standardize=True))
    assert largest_difference(kpca.fit_transform(X), kpca.transform(X)) < 1e-10
    assert kpca.fit_transform(X.astype(np.float32)).dtype == np.float32
