"""Pictures: both panels show the same samples the same way round."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import eigenmesh as em
from eigenmesh.reports.plots import PALETTE, align_signs, compare

pytestmark = pytest.mark.filterwarnings("ignore::eigenmesh.errors.EigenmeshWarning")


@pytest.fixture
def scores():
    return np.random.default_rng(0).normal(size=(60, 3))


def points(axes):
    return np.vstack([np.asarray(drawn.get_offsets()) for drawn in axes.collections])


def test_signs_are_aligned_before_drawing(scores):
    labels = np.arange(60) % 3
    figure = compare(scores, scores * [-1.0, 1.0, 1.0], labels)
    left, right = figure.axes
    np.testing.assert_allclose(points(left), points(right))
    assert len(points(left)) == 60


def test_align_signs_leaves_agreeing_columns_alone(scores):
    np.testing.assert_array_equal(align_signs(scores, scores), scores)
    np.testing.assert_array_equal(align_signs(-scores, scores), scores)


def test_a_picture_is_saved_with_titles_inside_it(scores, tmp_path):
    titles = ("Pooled\n1 float", "Federated\n2 floats, 63% of shipping")
    path = tmp_path / "picture.png"
    figure = compare(scores, scores, np.arange(60) % 10, titles=titles, heading="Digits", path=path)
    assert path.stat().st_size > 10_000
    assert tuple(axes.get_title(loc="left") for axes in figure.axes) == titles
    for axes in figure.axes:
        box = axes._left_title.get_window_extent()
        assert box.x0 >= 0
        assert box.x1 <= figure.bbox.x1


def test_words_as_labels_get_dots_and_a_legend(scores):
    words = np.array(["setosa", "virginica"])[np.arange(60) % 2]
    (legend,) = compare(scores, scores, words).legends
    assert [text.get_text() for text in legend.get_texts()] == ["setosa", "virginica"]
    assert not compare(scores, scores, np.arange(60) % 2).legends
    assert not compare(scores, scores).legends


def test_more_labels_than_hues_differ_in_shape(scores):
    figure = compare(scores, scores, [f"class {i % 12:02d}" for i in range(60)])
    drawn = figure.axes[0].collections
    looks = {(tuple(d.get_facecolor()[0]), d.get_paths()[0].vertices.tobytes()) for d in drawn}
    assert len(looks) == 12 > len(PALETTE)


@pytest.mark.parametrize(
    ("estimate", "labels"),
    [(np.ones((59, 2)), None), (np.ones((60, 1)), None), (np.ones((60, 2)), np.ones(3))],
)
def test_what_does_not_fit_is_refused(scores, estimate, labels):
    with pytest.raises(em.EigenmeshError, match=r"shape|samples"):
        compare(scores, estimate, labels)


# Of one model.


def test_scores_of_parties_are_drawn_in_the_components_asked_for(scores, tmp_path):
    path = tmp_path / "picture.png"
    parties = [scores[:20], scores[20:]]
    picture = em.plot.embedding(parties, names=["north", "south"], components=(3, 1), path=path)
    (axes,) = picture.axes
    np.testing.assert_array_equal(points(axes), scores[:, [2, 0]])
    assert [text.get_text() for text in picture.legends[0].get_texts()] == ["north", "south"]
    assert path.stat().st_size > 5000
    assert len(em.plot.embedding(scores[:, :1]).axes[0].collections) == 1


@pytest.mark.parametrize(
    ("values", "more"),
    [
        (np.ones(5), {}),
        (np.ones((5, 2)), {"components": (1, 3)}),
        (np.ones((5, 2)), {"labels": [1, 2]}),
        ([np.ones((5, 2)), np.ones((4, 3))], {}),
        ([np.ones((5, 2)), np.ones((4, 2))], {"names": ["north"]}),
    ],
)
def test_an_embedding_of_something_else_is_refused(values, more):
    with pytest.raises(em.EigenmeshError, match=r"expected|are"):
        em.plot.embedding(values, **more)


@pytest.fixture(scope="module")
def spread():
    """Rows one of whose columns makes the first component, over three parties."""
    X = np.random.default_rng(0).normal(size=(90, 4)) * [1.0, 9.0, 1.0, 1.0]
    return em.split(X, 3, random_state=0)


def test_a_scree_shows_shares_and_what_is_missing(spread):
    model = em.KernelPCA(3, kernel="rbf", gamma=0.05, n_landmarks=6, random_state=0).fit(spread)
    (axes,) = em.plot.scree(model).axes
    heights = np.array([bar.get_height() for bar in axes.patches])
    shares = model.explained_variance_ratio_
    np.testing.assert_allclose(heights[:3], shares)
    np.testing.assert_allclose(heights[3:] / (shares + heights[3:]), model.shortfalls_, rtol=1e-6)


def test_loadings_name_the_column_that_counts(spread):
    model = em.KernelPCA(2, random_state=0).fit(spread)
    first = em.plot.loadings(model).axes[0]
    assert first.get_yticklabels()[0].get_text() == "column 2"
    columns = em.split(np.random.default_rng(0).normal(size=(30, 4)), 2, by="columns")
    one_shot = em.OneShotKPCA(1, kernel="rbf", gamma=0.1).fit(columns)
    assert em.plot.loadings(one_shot, columns).axes
    with pytest.raises(em.EigenmeshError, match="pass data="):
        em.plot.loadings(one_shot)


def test_the_course_of_iterations_is_drawn_where_there_is_one(spread):
    columns = em.split(np.random.default_rng(0).normal(size=(30, 6)), 2, by="columns")
    vfed = em.VFedPCA(2).fit(columns)
    (axes,) = em.plot.convergence(vfed).axes
    np.testing.assert_array_equal(axes.lines[0].get_ydata(), vfed.convergence_)
    with pytest.raises(em.EigenmeshError, match="stopped because"):
        em.plot.convergence(em.MomentPCA(1).fit(spread))


@pytest.mark.parametrize("n_components", [1, 2, 30])
def test_what_is_counted_has_whole_numbers_along_its_axis(n_components):
    X = np.random.default_rng(0).normal(size=(60, 30))
    axes = em.plot.scree(em.KernelPCA(n_components).fit(X)).axes[0]
    shown = [t for t in axes.get_xticks() if axes.get_xlim()[0] <= t <= axes.get_xlim()[1]]
    assert shown
    assert all(float(tick).is_integer() for tick in shown)


def test_words_and_numbers_below_a_bar_chart_are_whole_and_do_not_run_into_each_other():
    names = [f"column_{i}_of_a_very_long_name" for i in range(6)]
    X = pd.DataFrame(np.random.default_rng(0).normal(size=(60, 6)), columns=names)
    picture = em.plot.loadings(em.KernelPCA(6, kernel="rbf", gamma=0.1).fit(X), X)
    picture.draw_without_rendering()
    words = [axes.xaxis.label.get_window_extent() for axes in picture.axes]
    assert all(picture.bbox.x0 <= own.x0 and own.x1 <= picture.bbox.x1 for own in words)
    for axes in picture.axes:
        boxes = [label.get_window_extent() for label in axes.get_xticklabels()]
        assert all(a.x1 < b.x0 for a, b in zip(boxes, boxes[1:], strict=False))


def test_a_graph_has_the_links_that_carried_numbers_and_nodes_by_similarity(spread):
    model = em.KernelPCA(1, topology="full", random_state=0).fit(spread)
    near = {"party-0": 0.9, "party-1": 0.8, "party-2": 1.0}
    axes = em.plot.graph(model, near).axes[0]
    carried = {frozenset((k.sender, k.receiver)) for k in model.report_.traffic.links if k.floats}
    assert len(axes.lines) == len(carried)
    assert axes.collections[0].get_array().tolist() == list(near.values())
    with pytest.raises(em.EigenmeshError, match="no link"):
        em.plot.graph(em.KernelPCA(1).fit(np.eye(5)))


def test_error_against_bytes_refuses_what_has_no_logarithm():
    lines = em.plot.error_against_bytes({"a": [(20, 0.1), (10, 0.5)]}, shipping=99).axes[0].lines
    assert lines[0].get_xdata().tolist() == [10, 20]
    with pytest.raises(em.EigenmeshError, match="above 0"):
        em.plot.error_against_bytes({"a": [(10, 0.0)]})
