"""Pictures of clusters show what was found."""

import numpy as np
import pytest
from sklearn.datasets import make_blobs

import eigenmesh as em
from eigenmesh.reports.plots import clusters, eigengap, suggested_clusters


@pytest.mark.parametrize("k", [2, 4, 7])
@pytest.mark.parametrize("gamma", [0.02, "mean-distance"])
def test_the_eigengap_finds_the_number_of_separate_groups(k, gamma):
    """With a wide kernel too, under which the constant direction is by far the largest."""
    centres = 10 * np.eye(10)[np.random.default_rng(k).permutation(10)[:k]]
    X, _ = make_blobs(300, centers=centres, cluster_std=0.7, random_state=k)
    model = em.KernelKMeans(2, gamma=gamma, random_state=0).fit(X)
    assert suggested_clusters(model.spectrum_) == k


def test_the_picture_marks_the_largest_fall(tmp_path):
    path = tmp_path / "gap.png"
    figure = eigengap([8.0, 7.0, 6.5, 0.5, 0.4, 0.0], path=path)
    left, right = figure.axes
    assert left.lines[0].get_ydata().tolist() == [8.0, 7.0, 6.5, 0.5, 0.4]
    colours = [bar.get_facecolor() for bar in right.patches]
    assert [c == colours[1] for c in colours] == [False, True, False]  # of 2, 3 and 4
    assert path.stat().st_size > 5000


def test_every_cluster_is_drawn_where_its_rows_are(tmp_path):
    rng = np.random.default_rng(0)
    Z, labels = rng.normal(size=(50, 4)), rng.integers(3, size=50)
    figure = clusters(Z, labels, path=tmp_path / "clusters.png")
    for c, drawn in enumerate(figure.axes[0].collections):
        points = np.asarray(drawn.get_offsets())
        np.testing.assert_allclose(np.sort(points[:, 0]), np.sort(Z[labels == c, 0]))


@pytest.mark.parametrize("wrong", [[1.0, 2.0], [1.0, 0.5], [[1.0, 0.5]], [1.0, 0.5, 1e-15]])
def test_spectra_without_a_gap_are_refused(wrong):
    with pytest.raises(em.EigenmeshError, match="eigenvalues"):
        eigengap(wrong)


def test_labels_that_do_not_fit_are_refused():
    with pytest.raises(em.EigenmeshError, match="expected"):
        clusters(np.ones((5, 2)), np.ones(4))
