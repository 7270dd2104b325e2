"""Pictures of graphs show every node, every edge, and what they claim."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest

from eigenmesh.errors import InputError, TopologyError
from eigenmesh.reports.graph_plots import graph_figure

NAMES = [f"party-{i}" for i in range(8)]
VALUES = np.linspace(0.91, 0.99, 8)


GRAPHS = [("ring", 8), ("star", 7), ("grid", 10), (("lattice", 4), 16), (nx.path_graph(8), 7)]


@pytest.mark.parametrize(("topology", "edges"), GRAPHS)
def test_every_node_and_edge_is_drawn_with_its_similarity(topology, edges):
    axes = graph_figure(topology, NAMES, VALUES).axes[0]
    (nodes,) = axes.collections
    np.testing.assert_array_equal(nodes.get_array(), VALUES)
    assert len(axes.lines) == edges
    texts = [text.get_text() for text in axes.texts]
    assert texts == [f"{n}\n{v:.3f}" for n, v in zip(NAMES, VALUES, strict=True)]


def test_the_trace_has_both_directions_and_the_ceiling(tmp_path):
    trace = np.array([[0.90, 0.95], [0.96, 0.98], [0.97, 0.99]])
    path = tmp_path / "graph.png"
    options = {"trace": trace, "ceiling": 0.975, "heading": "Digits", "path": path}
    figure = graph_figure("ring", NAMES, VALUES, **options)
    lines = figure.axes[1].lines
    np.testing.assert_array_equal(lines[0].get_ydata(), trace[:, 1])
    np.testing.assert_array_equal(lines[1].get_ydata(), trace[:, 0])
    assert list(lines[2].get_ydata()) == [0.975, 0.975]
    assert path.stat().st_size > 10_000


def test_many_nodes_are_numbered():
    names = [f"node {i}" for i in range(40)]
    axes = graph_figure(("lattice", 4), names, np.full(40, 0.95)).axes[0]
    assert [text.get_text() for text in axes.texts] == [str(i) for i in range(40)]


def test_wrong_input():
    with pytest.raises(InputError, match="for 8 nodes"):
        graph_figure("ring", NAMES, VALUES[:3])
    with pytest.raises(TopologyError):
        graph_figure(nx.empty_graph(8), NAMES, VALUES)
