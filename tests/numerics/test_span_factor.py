import numpy as np

from eigenmesh.numerics.kernels import Kernel
from eigenmesh.numerics.landmark_sums import Span, landmark_sums, span_residual
from eigenmesh.numerics.landmarks import LandmarkModel

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
