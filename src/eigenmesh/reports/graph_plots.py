"""Pictures of runs on graphs. Matplotlib is imported here: import this module when you draw."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
from matplotlib.figure import Figure
from numpy.typing import ArrayLike, NDArray

from eigenmesh.errors import InputError
from eigenmesh.reports.plots import PALETTE
from eigenmesh.runtime.topology import Topology, build_graph

_ROUND = ("ring", "full", "lattice")  # graphs that are drawn on a circle
_NAMED = 30  # more nodes than this are numbered


def graph_figure(
    topology: Topology,
    names: Sequence[str],
    similarity: ArrayLike,
    *,
    trace: ArrayLike | None = None,
    ceiling: float | None = None,
    heading: str | None = None,
    path: str | Path | None = None,
) -> Figure:
    """The graph with each node's similarity to the pooled answer, saved if a path is given.

    With `trace`, an estimator's `trace_`, a second panel has the means over the nodes by iteration:
    of w, with its `ceiling`, and of z.

    >>> figure = graph_figure("ring", ["north", "east", "south"], [0.97, 0.99, 0.98])
    >>> [text.get_text().split() for text in figure.axes[0].texts][:2]
    [['north', '0.970'], ['east', '0.990']]
    """
    values = np.asarray(similarity, dtype=np.float64)
    if values.shape != (len(names),):
        raise InputError(f"similarities of shape {values.shape} for {len(names)} nodes")
    graph = build_graph(topology, names)
    panels = 1 if trace is None else 2
    figure = Figure(figsize=(6.2 * panels, 6), layout="constrained", facecolor="white")
    axes = np.atleast_1d(figure.subplots(1, panels))
    _draw_graph(figure, axes[0], graph, _layout(topology, graph), names, values)
    if trace is not None:
        _draw_trace(axes[1], np.asarray(trace, dtype=np.float64), ceiling)
    if heading:
        figure.suptitle(heading, x=0.01, ha="left", fontsize=13, fontweight="bold")
    if path is not None:
        figure.savefig(path, dpi=150)
    return figure


def _layout(topology: Topology, graph: nx.Graph) -> dict[int, NDArray[Any]]:
    kind = topology[0] if isinstance(topology, tuple) else topology
    if isinstance(kind, str) and kind in _ROUND:
        return dict(nx.circular_layout(graph))
    return dict(nx.kamada_kawai_layout(graph))


def _draw_graph(
    figure: Figure,
    axes: Any,
    graph: nx.Graph,
    places: dict[int, NDArray[Any]],
    names: Sequence[str],
    values: NDArray[Any],
) -> None:
    for i, j in graph.edges:
        axes.plot(*np.transpose([places[i], places[j]]), color="0.8", linewidth=1, zorder=1)
    points = np.array([places[i] for i in range(len(names))])
    few = len(names) <= _NAMED
    low = min(float(values.min()), 0.9)
    drawn = axes.scatter(
        *points.T,
        c=values,
        cmap="cividis",
        vmin=low,
        vmax=1.0,
        s=260 if few else 90,
        edgecolors="white",
        linewidths=1.2,
        zorder=2,
    )
    centre = points.mean(axis=0)
    for i, name in enumerate(names):
        outwards = points[i] - centre
        length = max(float(np.linalg.norm(outwards)), 1e-9)
        text = f"{name}\n{values[i]:.3f}" if few else str(i)
        at = points[i] + 0.2 * outwards / length if few else points[i]
        colour = "0.2" if few else "white"
        size = 8 if few else 5.5
        behind = {"facecolor": "white", "edgecolor": "none", "pad": 0.8, "alpha": 0.75}
        axes.text(
            *at,
            text,
            ha="center",
            va="center",
            fontsize=size,
            color=colour,
            zorder=3,
            bbox=behind if few else None,
        )
    axes.set_title("similarity of each node to the pooled answer", loc="left", fontsize=10.5)
    axes.margins(0.16)
    axes.set_aspect("equal")
    axes.set_axis_off()
    figure.colorbar(drawn, ax=axes, shrink=0.6, label="|cos| or mean cos²")


def _draw_trace(axes: Any, trace: NDArray[Any], ceiling: float | None) -> None:
    iterations = np.arange(len(trace))
    axes.plot(iterations, trace[:, 1], color=PALETTE[0], marker="o", markersize=3.5, label="z")
    axes.plot(iterations, trace[:, 0], color=PALETTE[6], marker="s", markersize=3.5, label="w")
    if ceiling is not None:
        axes.axhline(ceiling, color=PALETTE[6], linestyle="--", linewidth=1, label="most w can be")
    axes.set_title("means over the nodes, by iteration", loc="left", fontsize=10.5)
    axes.set_xlabel("iteration")
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set_ylabel("similarity")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(color="0.92", linewidth=0.8)
    axes.legend(frameon=False, loc="lower right")
