"""Charts in inline SVG, 400 units wide: legible on a phone, and not too large elsewhere."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from eigenmesh.estimators.traffic import Link
from eigenmesh.reports.markup import Html, element
from eigenmesh.runtime.ledger import COORDINATOR

WIDTH = 400
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 8, 10, 34
_MOST_BARS = 80
_NAMED_NODES = 20  # beyond, names would cover each other
_LONGEST_NAME = 11


def brief(value: float) -> str:
    """A number in a few characters.

    >>> [brief(v) for v in (0, 950, 12345, 3.2e6, 0.00012)]
    ['0', '950', '12k', '3.2M', '1.2e-04']
    """
    if value == 0:
        return "0"
    for unit, sign in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= unit:
            scaled = value / unit
            return f"{scaled:.1f}{sign}" if scaled < 10 else f"{scaled:.0f}{sign}"
    return f"{value:.3g}" if abs(value) >= 0.01 else f"{value:.1e}"


def _picture(height: int, label: str, *children: Html) -> Html:
    return element("svg", *children, viewBox=f"0 0 {WIDTH} {height}", role="img", aria_label=label)


def _text(x: float, y: float, words: str, anchor: str = "middle", class_: str = "") -> Html:
    place = {"x": f"{x:.1f}", "y": f"{y:.1f}", "text_anchor": anchor}
    return element("text", words, **place, class_=class_ or None)


def _line(x1: float, y1: float, x2: float, y2: float, class_: str, width: Any = None) -> Html:
    ends = {"x1": f"{x1:.1f}", "y1": f"{y1:.1f}", "x2": f"{x2:.1f}", "y2": f"{y2:.1f}"}
    return element("line", **ends, class_=class_, stroke_width=width)


# Traffic by round.


def binned(values: Sequence[int], most: int = _MOST_BARS) -> list[tuple[str, int]]:
    """Rounds with their sums, of many rounds several together.

    >>> binned([5, 1, 2, 3, 4], most=3)
    [('0–1', 6), ('2–3', 5), ('4', 4)]
    """
    width = math.ceil(len(values) / most)
    bins = []
    for start in range(0, len(values), width):
        some = values[start : start + width]
        last = start + len(some) - 1
        bins.append((str(start) if last == start else f"{start}–{last}", sum(some)))
    return bins


def columns_chart(bars: Sequence[tuple[str, int]], label: str, across: str) -> Html:
    """Upright bars over numbers; the largest reaches the top."""
    height = 190
    most = max([value for _, value in bars] + [1])
    room, floor = WIDTH - _LEFT - _RIGHT, height - _BOTTOM
    step = room / max(len(bars), 1)
    parts = [*_levels(most, floor)]
    for i, (_, value) in enumerate(bars):
        tall = (floor - _TOP) * value / most
        box = {"x": f"{_LEFT + i * step + step * 0.1:.2f}", "y": f"{floor - tall:.2f}"}
        size = {"width": f"{step * 0.8:.2f}", "height": f"{tall:.2f}"}
        parts.append(element("rect", **box, **size, class_="mark"))
    marked = sorted({0, len(bars) // 2, len(bars) - 1}) if bars else ()
    parts += [_text(_LEFT + (i + 0.5) * step, floor + 14, bars[i][0]) for i in marked]
    parts.append(_text(_LEFT + room / 2, height - 4, across, class_="dim"))
    return _picture(height, label, *parts)


def _levels(most: float, floor: float) -> Iterable[Html]:
    for share in (0.0, 0.5, 1.0):
        y = floor - share * (floor - _TOP)
        yield _line(_LEFT, y, WIDTH - _RIGHT, y, "grid")
        yield _text(_LEFT - 5, y + 4, brief(share * most), "end")


# Iterations.


def line_chart(values: Sequence[float], label: str, across: str) -> Html:
    """A line; on a scale of powers of ten where all numbers are positive and far apart."""
    height, floor = 190, 190 - _BOTTOM
    logs = min(values) > 0 and max(values) / min(values) > 30
    heights = [math.log10(v) if logs else v for v in values]
    low, high = min(heights), max(heights)
    room, span = WIDTH - _LEFT - _RIGHT, (high - low) or 1.0
    xs = [_LEFT + room * i / max(len(values) - 1, 1) for i in range(len(values))]
    ys = [floor - (h - low) / span * (floor - _TOP) for h in heights]
    parts = []
    for share in (0.0, 0.5, 1.0):
        y, level = floor - share * (floor - _TOP), low + share * span
        parts.append(_line(_LEFT, y, WIDTH - _RIGHT, y, "grid"))
        parts.append(_text(_LEFT - 5, y + 4, brief(10**level if logs else level), "end"))
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in zip(xs, ys, strict=True))
    parts.append(element("polyline", points=points, class_="line"))
    parts += [
        element("circle", cx=f"{x:.1f}", cy=f"{y:.1f}", r="2.5", class_="mark")
        for x, y in zip(xs, ys, strict=True)
        if len(values) <= _MOST_BARS
    ]
    for i in sorted({0, len(values) - 1}):
        parts.append(_text(xs[i], floor + 14, str(i + 1), "start" if i == 0 else "end"))
    parts.append(_text(_LEFT + room / 2, height - 4, across, class_="dim"))
    return _picture(height, label, *parts)


# Who sent to whom.


def topology_chart(
    parties: Sequence[str], absent: Mapping[str, str], links: Sequence[Link], label: str
) -> Html:
    """Parties on a ring, the coordinator in the middle, a line a link, wider for more numbers.

    `absent` are parties that are lost or left out, and which of both.
    """
    height, radius = 340, 118
    names = [*parties, *(name for name in absent if name not in parties)]
    turn = 2 * math.pi / max(len(names), 1)
    where = {
        name: (200 + radius * math.sin(i * turn), 170 - radius * math.cos(i * turn))
        for i, name in enumerate(names)
    }
    centre = any(COORDINATOR in (link.sender, link.receiver) and link.floats for link in links)
    if centre:
        where[COORDINATOR] = (200.0, 170.0)
    parts = list(_link_lines(links, where))
    small = len(names) > _NAMED_NODES
    for i, name in enumerate(names):
        kind = "node gone" if name in absent else "node"
        x, y = where[name]
        parts.append(
            element(
                "circle",
                element("title", f"{name}: {absent.get(name, 'takes part')}"),
                cx=f"{x:.1f}",
                cy=f"{y:.1f}",
                r="2.5" if small else "7",
                class_=kind,
            )
        )
        if not small:
            parts.append(_node_name(name, i * turn, absent))
    if centre:
        parts.append(element("rect", x="190", y="160", width="20", height="20", class_="hub"))
        parts.append(_text(200, 195, COORDINATOR, class_="halo"))
    return _picture(height, label, *parts)


def _node_name(name: str, angle: float, absent: Mapping[str, str]) -> Html:
    x, y = 200 + 134 * math.sin(angle), 174 - 140 * math.cos(angle)
    side = "middle" if abs(math.sin(angle)) < 0.3 else "start" if math.sin(angle) > 0 else "end"
    short = name if len(name) <= _LONGEST_NAME else name[: _LONGEST_NAME - 1] + "…"
    return _text(x, y, f"{short} ✕" if name in absent else short, side)


def _link_lines(links: Sequence[Link], where: Mapping[str, tuple[float, float]]) -> Iterable[Html]:
    both: dict[frozenset[str], int] = {}
    for link in links:
        if link.sender in where and link.receiver in where:
            ends = frozenset((link.sender, link.receiver))
            both[ends] = both.get(ends, 0) + link.floats
    most = max(both.values(), default=0)
    for ends, floats in both.items():
        if len(ends) == 2:
            one, other = sorted(ends)
            width = 0.5 + 3.5 * math.sqrt(floats / most) if most else 0.5
            yield _line(*where[one], *where[other], "link", f"{width:.2f}")
