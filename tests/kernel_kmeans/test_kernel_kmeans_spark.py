"""`KernelKMeans` of a Spark frame: Lloyd's iteration over all rows, where they are."""

import numpy as np
import pytest
from sklearn.datasets import make_circles
from sklearn.metrics import adjusted_rand_score
from tests.engines.spark_session import frame_of

import eigenmesh as em
from eigenmesh.kernel_pca import sampled_fit

pytestmark = pytest.mark.timeout(300)  # Java and three interpreters may have to start


def test_clusters_and_inertia_are_those_of_all_rows_where_the_driver_has_seen_some(monkeypatch):
    monkeypatch.setattr(sampled_fit, "SAMPLE_ROWS", 200)
    monkeypatch.setattr(sampled_fit, "ROWS_A_LANDMARK", 1)
    X, y = make_circles(600, factor=0.3, noise=0.05, random_state=0)
    frame = frame_of({"x": X[:, 0], "id": np.arange(600), "y": X[:, 1]}, (100, 350))
    rings = em.KernelKMeans(2, gamma=5.0, random_state=0, tol=0.0)
    rows = em.SparkRows(frame, "id")
    rings.fit(rows)
    labels = rings.predict(rows).toArrow().to_pandas().set_index("id")["cluster"]
    assert list(rings.feature_names_in_) == ["x", "y"]
    assert adjusted_rand_score(y[labels.index], labels) == 1.0
    # From the definition: feature vectors less the mean of their cluster.
    K = np.exp(-5.0 * np.square(X[:, None] - X).sum(axis=2))
    true = len(K) - sum(
        K[np.ix_(own, own)].sum() / len(own) for own in map(np.flatnonzero, (y == 0, y == 1))
    )
    assert true - 1e-9 <= rings.inertia_ <= true + rings.inertia_slack_
    assert rings.inertia_slack_ < 0.01 * true
    assert len(rings.history_) == rings.n_iter_
    assert np.all(np.diff(rings.history_) <= 1e-12)
    np.testing.assert_allclose(rings.score(X), -rings.inertia_, rtol=1e-2)
    with pytest.raises(em.EigenmeshError, match="predict gives them"):
        _ = rings.labels_
    with pytest.raises(em.EigenmeshError, match="method is 'exact'; for a Spark frame"):
        em.KernelKMeans(2, method="exact").fit(rows)
