import numpy as np
import pytest

from eigenmesh.numerics.kernels import Kernel
from eigenmesh.numerics.landmark_sums import (
    Span,
    first_route,
    inside_sums,
    landmark_sums,
    span_residual,
    spanning,
)
from eigenmesh.numerics.landmarks import LandmarkModel
from eigenmesh.numerics.own_centroids import own_centroids

RBF, ROWS = Kernel("rbf", 0.3), np.random.default_rng(0).normal(size=(400, 3))


def test_a_cholesky_factor_gives_the_components_that_eigenvectors_give():
    Y = ROWS[:30]
    sums, spans = landmark_sums(RBF, ROWS, Y), [Span.of(RBF, Y), Span.of(RBF, Y).by_factor()]
    models = [LandmarkModel.fit(RBF, Y, sums, 4, True, span).signed_by(span) for span in spans]
    assert [span.is_triangular for span in spans] == [False, True]
    for span in spans:
        np.testing.assert_allclose(span.basis.T @ span.K @ span.basis, np.eye(30), atol=1e-9)
    one, other = models
    np.testing.assert_allclose(one.eigenvalues, other.eigenvalues, rtol=1e-10)
    np.testing.assert_allclose(one.transform(ROWS), other.transform(ROWS), atol=1e-7)
    np.testing.assert_allclose(*(span_residual(span, sums) for span in spans), rtol=1e-9)


def test_landmarks_that_are_nearly_alike_keep_the_eigenvectors_that_drop_directions():
    Y = np.vstack([ROWS[:10], ROWS[:10] + 1e-9])
    span = Span.of(RBF, Y).by_factor()
    assert not span.is_triangular
    assert span.basis.shape[1] < len(Y)


def sums_of_doubles(span, rows):
    return inside_sums(span, rows.astype(np.float64))


def test_sums_in_coordinates_are_those_of_all_directions():
    Y = ROWS[:30]
    for span in (Span.of(RBF, Y), Span.of(RBF, Y).by_factor()):
        sums, inside = landmark_sums(RBF, ROWS, Y), inside_sums(span, ROWS)
        assert inside.outside == pytest.approx(span_residual(span, sums), rel=1e-9)
        for centre in (False, True):
            model = LandmarkModel.fit(RBF, Y, sums, 4, centre, span).signed_by(span)
            own = LandmarkModel.of_inside(inside, 4, centre, span, Y).signed_by(span)
            np.testing.assert_allclose(own.eigenvalues, model.eigenvalues, rtol=1e-10)
            np.testing.assert_allclose(own.transform(ROWS), model.transform(ROWS), atol=1e-9)
            assert own.total == pytest.approx(model.total, rel=1e-12)


@pytest.mark.parametrize("gamma", [0.01, 0.05, 0.2])
def test_landmarks_that_others_span_are_left_out_and_little_is_missed(gamma):
    kernel = Kernel("rbf", gamma)
    rows = np.random.default_rng(1).normal(size=(4000, 3)).astype(np.float32)
    Y = own_centroids(rows, 120, 5, np.random.default_rng(0)).astype(np.float64)
    whole, few = Span.of(kernel, Y), spanning(Span.of(kernel, Y).by_factor(), rows, 5)
    assert len(few.K) < 120
    assert {tuple(y) for y in few.landmarks} <= {tuple(y) for y in Y}
    exact = LandmarkModel.of_inside(sums_of_doubles(whole, rows), 5, True, whole, Y)
    sums = inside_sums(few, rows)
    model = LandmarkModel.of_inside(sums, 5, True, few, few.landmarks)
    # A tenth of what an accuracy of 0.01 lets be missing.
    np.testing.assert_allclose(model.eigenvalues, exact.eigenvalues, rtol=1e-3)
    rounding = 2e-6 * np.trace(sums.scatter)
    outside = pytest.approx(sums_of_doubles(few, rows).outside, rel=0.03, abs=rounding)
    assert sums.outside == outside


def test_landmarks_far_from_each_other_and_rows_of_doubles_keep_all():
    rows = np.random.default_rng(1).normal(size=(4000, 20)).astype(np.float32)
    span = Span.of(RBF, rows[:100]).by_factor()
    assert spanning(span, rows, 5) is span
    alike = Span.of(Kernel("rbf", 0.003), ROWS[:20]).by_factor()
    assert spanning(alike, ROWS, 5) is alike


def test_sums_that_float32_carries_roughly_are_near_those_in_float64():
    kernel, rng = Kernel("rbf", 0.1), np.random.default_rng(2)
    rows = (rng.normal(size=(6000, 8)) * np.arange(1, 9) ** -0.5).astype(np.float32)
    span = Span.of(kernel, rows[:200].astype(np.float64)).by_factor()
    assert first_route(span, rows, rows).name in ("raw", "project")
    single, double = inside_sums(span, rows), sums_of_doubles(span, rows)
    eigenvalues = [np.linalg.eigvalsh(sums.scatter)[:-11:-1] for sums in (single, double)]
    np.testing.assert_allclose(*eigenvalues, rtol=1e-5)
    assert single.outside == pytest.approx(double.outside, rel=0.03)
