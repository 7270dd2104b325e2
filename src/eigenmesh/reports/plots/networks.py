"""Who sent to whom, and how near each node came."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np

from eigenmesh.errors import InputError
from eigenmesh.reports.page.moving_columns import innermost
from eigenmesh.reports.plots.picture_style import MARK, WARN, new_picture, saved, titled
from eigenmesh.runtime.ledger import COORDINATOR

_NAMED = 40  # nodes; more names would cover each other
_FAINTEST = 0.5  # width of a line


def graph(
    model: Any, similarities: Mapping[str, float] | None = None, *, path: str | Path | None = None
) -> Any:
    """The links that carried a fit's messages, wider for more numbers; nodes by their similarity.

    `similarities` are numbers by party, such as likeness to the pooled components; those of a
    graph that was fitted with a reference are taken if there are none.

    >>> import eigenmesh as em
    >>> X = np.random.default_rng(0).normal(size=(60, 4))
    >>> parts = em.split(X, 4, random_state=0)
    >>> kpca = em.KernelPCA(1, topology="ring", random_state=0).fit(parts)
    >>> "party-3" in {text.get_text() for text in graph(kpca).axes[0].texts}
    True
    """
    report = model.report_
    links = [link for link in report.traffic.links if link.floats]
    if not links:
        raise InputError("no link carried a number in this fit, or an earlier version saved it")
    network = nx.Graph()
    carried: dict[Any, int] = {}
    network.add_nodes_from([*report.parties, *report.lost])
    for link in links:
        ends = tuple(sorted((link.sender, link.receiver)))
        carried[ends] = carried.get(ends, 0) + link.floats
    network.add_edges_from(carried)
    own = _similarities(model) if similarities is None else similarities
    picture, (axes,) = new_picture(6.4, 5.6)
    _draw(axes, network, carried, report, own)
    if own:
        bar = picture.colorbar(axes.collections[0], ax=axes, shrink=0.7)
        bar.set_label("similarity of the node's components")
    titled(axes, "links that carried numbers; wider carried more")
    axes.set_axis_off()
    return saved(picture, path)


def _similarities(model: Any) -> dict[str, float]:
    worker = innermost(model)
    values = getattr(worker, "consensus_similarity_", None)
    return {} if values is None else dict(zip(worker.nodes_, map(float, values), strict=True))


def _draw(
    axes: Any, network: Any, carried: Mapping[Any, int], report: Any, own: Mapping[str, float]
) -> None:
    around = [name for name in network if name != COORDINATOR]
    where = nx.circular_layout(network.subgraph(around))
    where = {name: where[name] for name in around}
    where[COORDINATOR] = np.zeros(2)
    most = max(carried.values())
    widths = [_FAINTEST + 4 * (carried[tuple(sorted(e))] / most) ** 0.5 for e in network.edges]
    small = len(around) > _NAMED
    points = np.array([where[name] for name in around])
    look = {"s": 30 if small else 220, "zorder": 2, "edgecolors": "white"}
    if own:
        colours = [own.get(name, np.nan) for name in around]
        axes.scatter(*points.T, c=colours, cmap="cividis", plotnonfinite=True, **look)
    else:
        axes.scatter(*points.T, color=[WARN if n in report.lost else MARK for n in around], **look)
    if COORDINATOR in network:
        axes.scatter(0, 0, marker="s", s=220, color="0.2", zorder=2)
        axes.annotate(COORDINATOR, (0, 0), (0, -18), textcoords="offset points", ha="center")
    for (one, other), width in zip(network.edges, widths, strict=True):
        axes.plot(*np.array([where[one], where[other]]).T, color="0.7", linewidth=width, zorder=1)
    for name, (x, y) in zip(around, points.tolist(), strict=True) if not small else ():
        words = f"{name} (lost)" if name in report.lost else name
        side = "center" if abs(x) < 0.3 else "left" if x > 0 else "right"
        axes.text(1.1 * x, 1.13 * y, words, ha=side, va="center", fontsize=9)
    axes.margins(0.2)
    axes.set_aspect("equal")
