"""`KernelPCRegressor` of a Spark frame, whose targets are columns of it."""

import numpy as np
import pytest
from sklearn.datasets import load_diabetes
from sklearn.decomposition import KernelPCA
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from tests.engines.spark_session import frame_of

import eigenmesh as em

pytestmark = pytest.mark.timeout(300)  # Java and three interpreters may have to start


def test_equals_the_pipeline_of_scikit_learn_when_every_row_is_a_landmark():
    X, y = load_diabetes(return_X_y=True)
    X, y = X[:200, :6] * 20, np.column_stack([y, 1e6 - y / 3])[:200]
    columns = {f"x{i}": own for i, own in enumerate(X.T)}
    frame = frame_of({**columns, "y": y[:, 0], "z": y[:, 1], "id": np.arange(200)}, (70, 70))
    rows = em.SparkRows(frame, "id")
    model = em.KernelPCRegressor(8, alpha=0.1, gamma=0.02, n_landmarks=200, landmarks="uniform")
    model.fit(rows, ["y", "z"])
    pooled = make_pipeline(KernelPCA(8, kernel="rbf", gamma=0.02), Ridge(0.1)).fit(X, y)
    own = model.predict(em.SparkRows(frame.drop("y", "z"), "id")).toArrow().to_pandas()
    own = own.set_index("id").sort_index()
    assert list(own.columns) == ["prediction0", "prediction1"]
    np.testing.assert_allclose(own, pooled.predict(X), rtol=1e-7)
    assert model.r_squared_ == pytest.approx(pooled.score(X, y), rel=1e-7)
    np.testing.assert_allclose(model.predict(X), own, rtol=1e-9)
    for targets, words in (
        (None, "y is None"),
        ("w", "no column 'w'"),
        (y, "the name of its column"),
    ):
        with pytest.raises(em.EigenmeshError, match=words):
            model.fit(rows, targets)
