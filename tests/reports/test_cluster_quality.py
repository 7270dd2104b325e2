"""What the report of a clustering says is what independent computation gives."""

import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.metrics import normalized_mutual_info_score
from sklearn.metrics.pairwise import rbf_kernel

import eigenmesh as em

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

import _cluster_quality
from _cluster_quality import cluster_figure, cluster_quality, quality_table

X, y = load_digits(return_X_y=True)
X, y = X[:300] / 16, y[:300]


@pytest.fixture(scope="module")
def fitted():
    parts = em.split(X, 4, law="power", random_state=0)
    model = em.FedKernelKMeans(10, gamma=0.1, n_iterations=5, random_state=0)
    return model.fit(parts), parts


def test_scores_are_of_the_rows_in_their_own_order(fitted):
    model, parts = fitted
    quality = cluster_quality(model, parts, y)
    assert quality.nmi == pytest.approx(normalized_mutual_info_score(y, model.predict(X)))
    values, vectors = np.linalg.eigh(rbf_kernel(X, gamma=0.1))
    H, best = model.transform(X), (vectors[:, -10:] * values[-10:]) @ vectors[:, -10:].T
    assert quality.recovery_error == pytest.approx(np.mean((H @ H.T - best) ** 2), rel=1e-8)
    assert quality.floats_up == model.report_.floats_up


def test_what_is_not_known_is_not_said(fitted, monkeypatch):
    monkeypatch.setattr(_cluster_quality, "EXACT_ROWS", 10)
    quality = cluster_quality(*fitted)
    assert (quality.nmi, quality.ari, quality.recovery_error) == (None, None, None)
    assert quality_table({"fed": quality}).row_count == 2


def test_the_picture_is_written(fitted, tmp_path):
    cluster_figure(*fitted, path=tmp_path / "clusters.png")
    assert (tmp_path / "clusters.png").stat().st_size > 10_000
