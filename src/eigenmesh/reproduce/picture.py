"""Draws a figure's results: one look for all, with what was sent under every plot."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import EngFormatter, FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from eigenmesh.reproduce.runner import FigureOutcome
from eigenmesh.reproduce.style import MEASURES, METHODS, Look

_MOST_ACROSS = 4
_ON_TOP = 3.0  # of the order in which lines are drawn
_EXACT = ("default", "pooled", "shipping")  # but for rounding, where errors are drawn
_MOST_DECADES = 7  # between ticks
_TOO_FAR = 100.0  # times the smallest mean: a plain axis would show nothing of it
_WIDE = 7.0  # a sweep, last over first: its first values would lie on each other on a plain axis
_LABEL_WIDTH, _LABEL_HEIGHT, _DIGIT = 20.0, 10.0, 7.0  # pixels
# Inches: a plot with what is above and below it; the bars under it; margins of the page.
_WIDTH, _LEFT, _PLOT, _ABOVE, _BELOW = 3.5, 0.95, 2.2, 0.72, 0.5
_BAR, _BAR_BELOW = 0.17, 0.5
_TOP, _LEGEND_LINE, _BOTTOM = 0.45, 0.24, 0.15


class _Sheet:
    """Axes at places in inches from the top left: a fixed layout takes no time to find."""

    def __init__(self, width: float, height: float) -> None:
        self.width, self.height = width, height
        self.canvas = Canvas(figsize=(width, height))

    def axes(self, left: float, top: float, width: float, height: float) -> Any:
        bottom = self.height - top - height
        place = (left / self.width, bottom / self.height, width / self.width, height / self.height)
        return self.canvas.add_axes(place)


def draw(outcome: FigureOutcome, path: Path) -> None:
    """A block of plots a measure, one for each panel; bars tell the floats of every method."""
    n, shows = len(outcome.figure.panels), outcome.figure.shows.split()
    across = min(n, _MOST_ACROSS)
    rows = -(-n // across)
    bars = max(len(_senders(outcome, panel)) for panel in range(n)) * _BAR
    plot = _ABOVE + _PLOT + _BELOW
    # The first measure has bars under it, the others need none: floats are the same.
    tall = plot + bars + _BAR_BELOW
    names = _drawn(outcome)
    columns = max(2, across)
    legend = -(-len(names) // columns) * _LEGEND_LINE
    height = _TOP + rows * (tall + (len(shows) - 1) * plot) + legend + _BOTTOM
    sheet = _Sheet(max(across, 2) * (_LEFT + _WIDTH) + 0.25, height)
    for panel in range(n):
        row, column = divmod(panel, across)
        left, top = column * (_LEFT + _WIDTH) + _LEFT, _TOP + row * tall + _ABOVE
        _plot(sheet.axes(left, top, _WIDTH, _PLOT), outcome, panel, shows[0])
        _bars(sheet.axes(left, top + _PLOT + _BELOW, _WIDTH, bars), outcome, panel)
        for block, measure in enumerate(shows[1:]):
            top = _TOP + rows * tall + (block * rows + row) * plot + _ABOVE
            _plot(sheet.axes(left, top, _WIDTH, _PLOT), outcome, panel, measure)
    _frame(sheet, outcome, names, columns)
    sheet.canvas.savefig(path, dpi=100, facecolor="white")


def _ships_as_line(outcome: FigureOutcome) -> bool:
    """Over floats; else it is as good as the pooled answer, and what it sends is in the bars."""
    return outcome.figure.over not in ("sweep", "round")


def _drawn(outcome: FigureOutcome) -> list[str]:
    """All methods of the figure, in the order of the legend."""
    panels = range(len(outcome.figure.panels))
    used = {name for panel in panels for name in outcome.results.methods(panel)}
    return [name for name in METHODS if name in used]


def _frame(sheet: _Sheet, outcome: FigureOutcome, names: list[str], columns: int) -> None:
    title = f"{outcome.figure.id}   {outcome.figure.title}"
    x, y = 0.15 / sheet.width, 1 - 0.12 / sheet.height
    sheet.canvas.text(x, y, title, fontsize=12.5, fontweight="bold", va="top")
    handles: list[Any] = [
        Line2D([], [], color=look.colour, marker=look.marker, ls=look.line, lw=1.8, ms=5)
        for look in (METHODS[name] for name in names)
    ]
    if "shipping" in names and not _ships_as_line(outcome):
        handles[names.index("shipping")] = Patch(color=METHODS["shipping"].colour)
    labels = [METHODS[name].label for name in names]
    at = (0.5, _BOTTOM / sheet.height / 2)
    options = {"ncols": columns, "frameon": False, "fontsize": 9, "borderaxespad": 0.0}
    sheet.canvas.legend(handles, labels, loc="lower center", bbox_to_anchor=at, **options)


def _plot(axes: Any, outcome: FigureOutcome, panel: int, measure: str) -> None:
    results, over = outcome.results, outcome.figure.over
    ends: list[LineEnd] = []
    for method in results.methods(panel):
        values = [v for v in results.values(panel) if results.has(panel, v, method, measure)]
        if not values:
            continue
        look = METHODS[method]
        if method == "shipping" and not _ships_as_line(outcome):
            continue
        if over == "round":
            ends += _courses(axes, outcome, panel, method, measure, values)
        else:
            _line(axes, outcome, panel, method, measure, values, look)
    _dress(axes, outcome, panel, measure)
    _label(axes, ends)


def _line(
    axes: Any,
    outcome: FigureOutcome,
    panel: int,
    method: str,
    measure: str,
    values: Any,
    look: Look,
) -> Any:
    """Means over the sweep, or over another measure; a level where the sweep means nothing."""
    results, over = outcome.results, outcome.figure.over
    own = [results.measured(panel, value, method, measure) for value in values]
    y, spread = np.array([m.mean for m in own]), np.array([m.spread for m in own])
    y = MEASURES[measure].drawn(y)
    if MEASURES[measure].log:
        y = np.maximum(y, _floor(outcome, panel, measure))
    if method == "pooled" and (over != "sweep" or len(values) == 1):
        return axes.axhline(y.mean(), color=look.colour, ls=look.line, lw=1.4, zorder=_ON_TOP)
    if over != "sweep" and method == "shipping":
        x = results.measured(panel, values[-1], method, over).mean
        return axes.axvline(x, color=look.colour, ls=look.line, lw=1.6)
    x = _positions(values) if over == "sweep" else _means(outcome, panel, method, over, values)
    low = np.maximum(y - spread, y / 3 if MEASURES[measure].log else 0.0)
    axes.fill_between(x, low, y + spread, color=look.colour, alpha=0.15, lw=0)
    style = {"lw": 2.2 if method == "default" else 1.5, "ms": 5}
    if method == "pooled":  # dashes, which show what they cover
        style["zorder"] = _ON_TOP
    return axes.plot(x, y, color=look.colour, marker=look.marker, ls=look.line, **style)[0]


def _floor(outcome: FigureOutcome, panel: int, measure: str) -> float:
    """What all that is smaller is drawn at; of errors a decade under the least of the paper's.

    Exact answers would else have the plot to themselves, and the methods compared a line's width.
    """
    look, results = MEASURES[measure], outcome.results
    if not look.of_error:
        return look.floor
    courses = [
        look.drawn(results.course(panel, value, method, measure)[0])
        for value in results.values(panel)
        for method in results.methods(panel)
        if method not in _EXACT and results.has(panel, value, method, measure)
    ]
    sizes = np.concatenate([np.zeros(1), *courses])
    least = sizes[sizes > look.floor].min(initial=1.0)
    return max(look.floor, float(10 ** (np.floor(np.log10(least)) - 1)))


def _mark_bottom(axes: Any, floor: float) -> None:
    """A tick where what is smaller was drawn, which says so; the others at whole decades."""
    first, last = round(np.log10(floor)), np.log10(axes.get_ylim()[1])
    step = max(int(np.ceil((last - first) / _MOST_DECADES)), 1)
    powers = range(first, int(np.floor(last)) + 1, step)
    words = [f"$10^{{{power}}}$" for power in powers]
    axes.set_yticks([10.0**power for power in powers], ["≤ " + words[0], *words[1:]])


def _means(outcome: FigureOutcome, panel: int, method: str, measure: str, values: Any) -> Any:
    return np.array([outcome.results.measured(panel, v, method, measure).mean for v in values])


def _positions(values: Any) -> Any:
    """Numbers as they are; names in their order."""
    plain = all(isinstance(value, int | float) for value in values)
    return np.array(values, dtype=float) if plain else np.arange(len(values))


class LineEnd(NamedTuple):
    """Where a line of a swept value ends, and what is to be said there."""

    x: float
    y: float
    text: str
    colour: str


def _courses(
    axes: Any, outcome: FigureOutcome, panel: int, method: str, measure: str, values: Any
) -> list[LineEnd]:
    """A line a swept value, paler for the first ones; lists that have one entry are levels."""
    look, ends, floor = METHODS[method], [], 0.0
    if MEASURES[measure].log:
        floor = _floor(outcome, panel, measure)
    for i, value in enumerate(values):
        mean, _ = outcome.results.course(panel, value, method, measure)
        mean = np.maximum(MEASURES[measure].drawn(mean), floor)
        shade = 0.35 + 0.65 * (i + 1) / len(values)
        if len(mean) == 1:
            above = {"zorder": _ON_TOP} if method == "pooled" else {}
            width = 3.0 if method == "default" else 1.3  # seen on both sides of what is as good
            axes.axhline(mean[0], color=look.colour, ls=look.line, lw=width, alpha=shade, **above)
            continue
        x = np.arange(1, len(mean) + 1)
        marker = look.marker if len(mean) <= 30 else ""
        style = {"color": look.colour, "ls": look.line, "marker": marker, "ms": 4}
        axes.plot(x, mean, alpha=shade, lw=1.6, **style)
        if len(values) > 1 and mean[-1] > floor:
            ends.append(LineEnd(float(x[-1]), float(mean[-1]), str(value), look.colour))
    return ends


def _label(axes: Any, ends: list[LineEnd]) -> None:
    """Swept values at the ends of their lines, moved apart where they would cover each other."""
    columns: dict[int, list[tuple[float, LineEnd]]] = {}
    for end in ends:
        x, y = axes.transData.transform((end.x, end.y))
        columns.setdefault(round(x / _LABEL_WIDTH), []).append((float(y), end))
    for column in columns.values():
        column.sort(key=lambda entry: entry[0])
        heights = _spread([y for y, _ in column], axes.bbox.y1)
        for height, (y, end) in zip(heights, column, strict=True):
            axes.annotate(
                end.text,
                (end.x, end.y),
                xytext=(4, (height - y) * 72 / axes.figure.dpi),
                textcoords="offset points",
                fontsize=7,
                color=end.colour,
                va="center",
            )


def _spread(heights: list[float], most: float) -> list[float]:
    """Rising heights of labels, none nearer to the next than a label is high, nor above `most`.

    >>> _spread([0.0, 4.0, 50.0], 52.0)
    [0.0, 10.0, 50.0]
    >>> _spread([50.0, 51.0], 52.0)
    [42.0, 52.0]
    """
    own = list(heights)
    for i in range(1, len(own)):
        own[i] = max(own[i], own[i - 1] + _LABEL_HEIGHT)
    for i in reversed(range(len(own))):
        own[i], most = min(own[i], most), min(own[i], most) - _LABEL_HEIGHT
    return own


def _dress(axes: Any, outcome: FigureOutcome, panel: int, measure: str) -> None:
    results = outcome.results
    origins = [textwrap.wrap(own, 68) for own in outcome.data]
    pad = 8 + 8 * max(map(len, origins))
    axes.set_title(results.titles[panel], loc="left", fontsize=10, pad=pad)
    axes.annotate(
        "\n".join(origins[panel]),
        (0, 1),
        xytext=(0, 3),
        xycoords="axes fraction",
        textcoords="offset points",
        fontsize=6.5,
        color="0.35",
        va="bottom",
    )
    axes.set_ylabel(MEASURES[measure].label, fontsize=9)
    if MEASURES[measure].log or _spans_decades(outcome, panel, measure):
        axes.set_yscale("log")
        low, high = axes.get_ylim()
        floor = _floor(outcome, panel, measure)
        if low < floor:  # lines at the floor have a margin below
            _mark_bottom(axes, floor)
        elif high < 300 * low:  # decades' ends alone would leave the axis bare
            axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
            axes.yaxis.set_major_formatter(FuncFormatter(_in_short))
    else:
        axes.ticklabel_format(axis="y", useOffset=False)
    _dress_across(axes, outcome, panel)
    axes.spines[["top", "right"]].set_visible(False)
    axes.minorticks_off()  # a logarithmic axis makes dozens, and each is text to be laid out
    axes.grid(color="0.92", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=8)


def _dress_across(axes: Any, outcome: FigureOutcome, panel: int) -> None:
    """The horizontal axis: rounds, what the sweep varies, or a measure."""
    results, over = outcome.results, outcome.figure.over
    sweep = results.sweeps[panel].replace("_", " ").removeprefix("n ")
    if over == "round":
        values = results.values(panel)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        names = outcome.figure.round_names
        if names:
            axes.set_xticks(range(1, len(names) + 1), names)
        axes.set_xlabel(
            outcome.figure.rounds + (f" ({sweep} at the lines)" if len(values) > 1 else ""),
            fontsize=9,
        )
    elif over == "sweep":
        _sweep_axis(axes, results.values(panel), sweep)
    else:
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0), numticks=8))
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
        axes.set_xlabel(MEASURES[over].label, fontsize=9)


def _in_short(number: float, place: int | None = None) -> str:
    """With a letter for thousands and millions.

    >>> _in_short(0.05), _in_short(20_000)
    ('0.05', '20k')
    """
    return f"{number:g}" if number < 1000 else EngFormatter(sep="")(number, place)


def _spans_decades(outcome: FigureOutcome, panel: int, measure: str) -> bool:
    """Whether the means of a measure that is drawn plainly are too far apart for it."""
    results = outcome.results
    means = [
        results.measured(panel, value, method, measure).mean
        for value in results.values(panel)
        for method in results.methods(panel)
        if results.has(panel, value, method, measure)
    ]
    return bool(means) and min(means) > 0 and max(means) > _TOO_FAR * min(means)


def _sweep_axis(axes: Any, values: Any, words: str) -> None:
    numbers = _positions(values)
    plain = all(isinstance(value, int | float) for value in values)
    if plain and numbers.min() > 0 and numbers.max() / numbers.min() > _WIDE:
        axes.set_xscale("log")
        axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xticks(numbers, [str(value) for value in values])
    places = axes.transData.transform([(x, 0.5) for x in numbers])[:, 0]
    last = np.inf
    for label, place in reversed(list(zip(axes.get_xticklabels(), places, strict=True))):
        width = _DIGIT * (len(label.get_text()) + 1)
        if place + width > last:  # the values at both ends matter most
            label.set_visible(False)
        else:
            last = place
    axes.set_xlabel(words, fontsize=9)


def _senders(outcome: FigureOutcome, panel: int) -> list[str]:
    """Methods whose floats are known; what is pooled has been shipped."""
    value = outcome.results.values(panel)[-1]
    names = outcome.results.methods(panel)
    counted = [name for name in names if outcome.results.has(panel, value, name, "floats")]
    return [name for name in counted if name != "pooled"]


def _bars(axes: Any, outcome: FigureOutcome, panel: int) -> None:
    """Floats of each method at the last swept value, on one scale with shipping every row."""
    results, names = outcome.results, _senders(outcome, panel)
    value = results.values(panel)[-1]
    floats = [results.measured(panel, value, name, "floats").mean for name in names]
    drawn = np.maximum(floats, 1.0)
    places = np.arange(len(names))[::-1]
    axes.barh(places, drawn, color=[METHODS[name].colour for name in names], height=0.75)
    axes.set_xscale("log")
    axes.set_xlim(drawn.min() / 4, 40 * drawn.max())
    axes.set_yticks([])
    for place, number, at in zip(places, floats, drawn, strict=True):
        axes.annotate(
            f"{number:,.0f}",
            (at, place),
            xytext=(3, 0),
            textcoords="offset points",
            va="center",
            fontsize=6.5,
        )
    words = results.sweeps[panel].replace("_", " ").removeprefix("n ")
    axes.set_xlabel(f"floats sent ({words}: {value})", fontsize=8)
    axes.xaxis.set_major_locator(LogLocator(numticks=5))
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.minorticks_off()
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(axis="x", labelsize=7)
