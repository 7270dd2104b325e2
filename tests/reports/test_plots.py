"""Pictures: both panels show the same samples the same way round."""

from __future__ import annotations

import numpy as np
import pytest

import eigenmesh as em
from eigenmesh.reports.plots import PALETTE, align_signs, embedding_figure


@pytest.fixture
def scores():
    return np.random.default_rng(0).normal(size=(60, 3))


def points(axes):
    return np.vstack([np.asarray(drawn.get_offsets()) for drawn in axes.collections])


def test_signs_are_aligned_before_drawing(scores):
    labels = np.arange(60) % 3
    figure = embedding_figure(scores, scores * [-1.0, 1.0, 1.0], labels)
    left, right = figure.axes
    np.testing.assert_allclose(points(left), points(right))
    assert len(points(left)) == 60


def test_align_signs_leaves_agreeing_columns_alone(scores):
    np.testing.assert_array_equal(align_signs(scores, scores), scores)
    np.testing.assert_array_equal(align_signs(-scores, scores), scores)


def test_a_picture_is_saved_with_titles_inside_it(scores, tmp_path):
    titles = ("Pooled\n1 float", "Federated\n2 floats, 63% of shipping")
    path = tmp_path / "picture.png"
    figure = embedding_figure(
        scores, scores, np.arange(60) % 10, titles=titles, heading="Digits", path=path
    )
    assert path.stat().st_size > 10_000
    assert tuple(axes.get_title(loc="left") for axes in figure.axes) == titles
    for axes in figure.axes:
        box = axes._left_title.get_window_extent()
        assert box.x0 >= 0
        assert box.x1 <= figure.bbox.x1


def test_words_as_labels_get_dots_and_a_legend(scores):
    words = np.array(["setosa", "virginica"])[np.arange(60) % 2]
    (legend,) = embedding_figure(scores, scores, words).legends
    assert [text.get_text() for text in legend.get_texts()] == ["setosa", "virginica"]
    assert not embedding_figure(scores, scores, np.arange(60) % 2).legends
    assert not embedding_figure(scores, scores).legends


def test_more_labels_than_hues_differ_in_shape(scores):
    figure = embedding_figure(scores, scores, [f"class {i % 12:02d}" for i in range(60)])
    drawn = figure.axes[0].collections
    looks = {(tuple(d.get_facecolor()[0]), d.get_paths()[0].vertices.tobytes()) for d in drawn}
    assert len(looks) == 12 > len(PALETTE)


@pytest.mark.parametrize(
    ("estimate", "labels"),
    [(np.ones((59, 2)), None), (np.ones((60, 1)), None), (np.ones((60, 2)), np.ones(3))],
)
def test_what_does_not_fit_is_refused(scores, estimate, labels):
    with pytest.raises(em.EigenmeshError, match=r"shape|samples"):
        embedding_figure(scores, estimate, labels)
