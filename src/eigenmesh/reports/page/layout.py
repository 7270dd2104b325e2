"""The page itself: facts in, one HTML document out, which loads nothing from anywhere."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np

from eigenmesh.estimators.report import BOUNDS_IN_WORDS, left_out_in_words
from eigenmesh.reports.audit import Audit, Line
from eigenmesh.reports.markup import Html, element, joined, json_block, visible
from eigenmesh.reports.meanings import KINDS_IN_WORDS, SEVERITY_IN_WORDS
from eigenmesh.reports.page.charts import (
    binned,
    columns_chart,
    line_chart,
    topology_chart,
)
from eigenmesh.reports.page.drawn_rows import MOST_COMPONENTS, Embedding
from eigenmesh.reports.page.facts import PageFacts, Spectrum, listed
from eigenmesh.reports.page.moving_columns import MovingColumn
from eigenmesh.reports.tables import figure, share_in_words

_FINE = 10_000  # steps of a coordinate across the picture
_ROWS_SHOWN = 1500  # of a table; what is left out is said
_SHORT = 14  # characters of a cell that is never folded
_OPEN_COMPONENTS = 4  # whose columns are seen without a click


def document(facts: PageFacts) -> str:
    """The page as text."""
    return styled_page(
        _title(facts),
        element("a", "Skip to the report", href="#main", class_="skip"),
        _header(facts),
        element("main", *_sections(facts), id="main"),
        _footer(facts),
        _data(facts),
        element("script", Html(_resource("page.js"))),
    )


def styled_page(title: str, *body: Html) -> str:
    """A document with the look of all pages, which may load nothing and run but one script."""
    head = element(
        "head",
        Html('<meta charset="utf-8">'),
        Html('<meta name="viewport" content="width=device-width, initial-scale=1">'),
        Html('<meta name="color-scheme" content="light dark">'),
        Html(f'<meta http-equiv="Content-Security-Policy" content="{_only_this_script()}">'),
        Html('<link rel="icon" href="data:,">'),  # else a browser asks a server for one
        element("title", title),
        element("style", Html(_resource("page.css"))),
    )
    return f"<!doctype html>\n{element('html', head, element('body', *body), lang='en')}\n"


@cache
def _resource(name: str) -> str:
    return files("eigenmesh.reports.page").joinpath(name).read_text(encoding="utf-8")


def _only_this_script() -> str:
    """The browser refuses all that the page might be made to load or run, but its own script."""
    digest = base64.b64encode(hashlib.sha256(_resource("page.js").encode()).digest()).decode()
    return (
        f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; "
        f"script-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    )


def _sections(facts: PageFacts) -> Iterator[Html]:
    yield _summary(facts)
    yield from _caveats(facts)
    yield _embedding_section(facts)
    yield _spectrum_section(facts)
    yield from _clusters_section(facts)
    yield _columns_section(facts)
    yield _disclosure_section(facts)
    yield _traffic_section(facts)
    yield _convergence_section(facts)
    yield _settings_section(facts)


# The first screen.


def _title(facts: PageFacts) -> str:
    parties = [name for name in facts.report.parties if name not in facts.report.left_out]
    whose = "one party" if len(parties) == 1 else f"{len(parties):,} parties"
    return f"{facts.task} of {whose}"


def _header(facts: PageFacts) -> Html:
    rows = facts.n_rows
    unit = "samples" if facts.report.split == "columns" else "rows"
    size = "" if rows is None else f"{rows:,} {unit}; "
    words = f"{size}{facts.kernel}; {facts.method}"
    return element("header", element("h1", _title(facts)), element("p", words, class_="lead"))


def _summary(facts: PageFacts) -> Html:
    tiles = element("ul", *(element("li", *tile) for tile in _tiles(facts)), class_="tiles")
    return element("section", tiles, aria_label="In short")


def _tiles(facts: PageFacts) -> Iterator[tuple[Html, ...]]:
    report, spectrum = facts.report, facts.spectrum
    k = len(spectrum.values)
    if facts.cluster_sizes:
        yield _tile(f"{len(facts.cluster_sizes)}", "clusters")
    elif facts.r_squared is not None:
        words = "of the targets' variance in the fitted rows is predicted (R²)"
        yield _tile(f"{facts.r_squared:.1%}", words)
    elif spectrum.explained is not None:
        yield _tile(f"{spectrum.explained:.1%}", f"of the variance in {_count(k, 'component')}")
    floats = report.floats_up + report.floats_down
    if report.baseline_floats:
        share = share_in_words(report.share_of_baseline)
        yield _tile(share, f"of shipping everything: {floats:,} numbers sent")
    worst = facts.audit.worst if facts.audit else None
    severity = SEVERITY_IN_WORDS[worst.severity] if worst else "nothing"
    yield _tile(severity, "is the most that left a party", wide=True)
    if spectrum.missing is not None and len(spectrum.missing):
        yield _tile(_missing_in_words(float(spectrum.missing.max())), "of an eigenvalue is missing")
    absent = len(report.lost) + len(report.left_out)
    who = len(set(report.parties) - set(report.left_out))
    left = f", {absent:,} lost or left out" if absent else ""
    yield _tile(f"{who:,}", ("party takes part" if who == 1 else "parties take part") + left)


def _tile(number: str, words: str, wide: bool = False) -> tuple[Html, ...]:
    return (
        element("strong", number, class_="phrase" if wide else None),
        element("span", words),
    )


def _missing_in_words(share: float) -> str:
    return "nothing" if share < 1e-6 else f"{share:.2%}"


def _count(n: int, noun: str) -> str:
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


def _caveats(facts: PageFacts) -> Iterator[Html]:
    report = facts.report
    lines = [f"{party} was lost: {reason}" for party, reason in report.lost.items()]
    lines += left_out_in_words(report.left_out)
    lines += [f"{party}: {n} older messages reused" for party, n in report.reused.items()]
    lines += [f"{party}: {n} messages did not arrive" for party, n in report.dropped.items()]
    lines += report.notes
    if lines:
        items = element("ul", *(element("li", line) for line in lines))
        yield _section("caveats", "Mind", items, class_="mind" if report.lost else None)


def _section(identifier: str, heading: str, *children: Html, class_: str | None = None) -> Html:
    label = f"{identifier}-heading"
    return element(
        "section",
        element("h2", heading, id=label),
        *children,
        id=identifier,
        aria_labelledby=label,
        class_=class_,
    )


def _note(*words: Any) -> Html:
    return element("p", *words, class_="note")


# Tables.


def _table(
    caption: str, headings: Sequence[str], rows: Iterable[Sequence[Any]], numbers: Sequence[int]
) -> Html:
    """A table; `numbers` are the columns that are set to the right."""
    listed_rows = list(rows)
    head = element("tr", *(_heading(h, i in numbers) for i, h in enumerate(headings)))
    body = [_row(row, numbers) for row in listed_rows[:_ROWS_SHOWN]]
    more = len(listed_rows) - len(body)
    words = f"{caption} (the first {len(body):,} of {len(listed_rows):,})" if more else caption
    table = element(
        "table",
        element("caption", words),
        element("thead", head),
        element("tbody", *body),
    )
    # Wide tables scroll by themselves; who has no pointer must be able to get there.
    return element("div", table, class_="scroll", tabindex="0", role="region", aria_label=words)


def _heading(words: str, is_number: bool) -> Html:
    return element("th", words, scope="col", class_="number" if is_number else None)


def _row(cells: Sequence[Any], numbers: Sequence[int]) -> Html:
    first = element("th", cells[0], scope="row", class_="number" if 0 in numbers else None)
    others = (
        element("td", cell, class_=_set(i in numbers, cell)) for i, cell in enumerate(cells[1:], 1)
    )
    return element("tr", first, *others)


def _set(is_number: bool, cell: Any) -> str | None:
    """Numbers to the right; a few words stay on one line."""
    return "number" if is_number else "whole" if len(str(cell)) <= _SHORT else None


def _behind(summary: str, table: Html) -> Html:
    return element("details", element("summary", summary), table)


def _bar(share: float, class_: str = "", more: float = 0.0) -> Html:
    """A bar in a cell, which readers of the table's numbers need not hear of."""
    widths = f"--share:{100 * share:.2f}%;--more:{100 * more:.2f}%"
    return element("span", class_=f"bar {class_}".strip(), style=widths, aria_hidden="true")


# Scores of rows.


def _embedding_section(facts: PageFacts) -> Html:
    own = facts.embedding
    if own is None:
        return _section("embedding", "Where the rows lie", _note(facts.no_rows))
    what = "samples" if own.rows is None else "rows"
    words = f"Each point is one of the {what}. "
    if len(own.scores) < own.n_rows:
        words += f"{len(own.scores):,} of {own.n_rows:,} are drawn, of every party some. "
    words += (
        "A page with single rows on it is a disclosure: these scores were computed where the rows "
        "are, were sent nowhere, and belong to whoever may see the rows."
    )
    return _section(
        "embedding",
        "Where the rows lie",
        _note(words),
        element("div", *_controls(own), class_="controls"),
        element("p", id="plot-status", aria_live="polite", class_="note"),
        element("div", id="plot", class_="plot"),
        element("ul", id="legend", class_="legend", aria_label="What the colours mean"),
        element(
            "noscript",
            _note("The picture is drawn by the script in this page, which is switched off."),
        ),
        _behind("The picture as a table", element("div", id="plot-table")),
    )


def _controls(own: Embedding) -> Iterator[Html]:
    most = min(own.scores.shape[1], MOST_COMPONENTS)
    for axis, start, words in (("x", 1, "across"), ("y", 2, "up")):
        if most > 1:
            slider = Html(
                f'<input type="range" id="{axis}-component" min="1" max="{most}" step="1" '
                f'value="{start}">'
            )
            output = element("output", str(start), id=f"{axis}-output", for_=f"{axis}-component")
            # A label names the first control in it, and an output is one.
            yield element("label", f"Component {words} ", slider, output)
    options = [element("option", name, value=name) for name in _colourings(own)]
    if options:
        yield element("label", "Coloured by ", element("select", *options, id="colour-by"))
        yield element("label", "Show strongly ", element("select", id="strong"))


def _colourings(own: Embedding) -> list[str]:
    """What tells most stands first; clusters are there where they were asked for."""
    order = ("cluster", "label", "party")
    return [name for name in order if name in own.colourings]


def _data(facts: PageFacts) -> Html:
    own = facts.embedding
    if own is None:
        return json_block(None, "points")
    Z = own.scores[:, :MOST_COMPONENTS]
    low, high = Z.min(axis=0), Z.max(axis=0)
    span = np.where(high > low, high - low, 1.0)
    steps = np.rint((Z - low) / span * _FINE).astype(int)
    groups = {
        name: {"names": [visible(n) for n in colouring.names], "codes": colouring.codes.tolist()}
        for name, colouring in own.colourings.items()
    }
    tree = {
        "fine": _FINE,
        "low": _rounded(low),
        "high": _rounded(high),
        "points": steps.T.tolist(),
        "groups": groups,
    }
    return json_block(tree, "points")


def _rounded(values: Any) -> list[float]:
    return [float(f"{value:.4g}") for value in values]


# Components.


def _spectrum_section(facts: PageFacts) -> Html:
    spectrum = facts.spectrum
    if not len(spectrum.values):
        return _section("components", "Components", _note("This method has no components."))
    headings = ["no.", "", "eigenvalue", "share", "so far", "missing"]
    has_shares = spectrum.shares is not None
    columns = [0, 1, 2, 3, 4, 5] if has_shares else [0, 1, 2, 5]
    table = _table(
        f"Components by size{', and their share of the variance' if has_shares else ''}",
        [headings[c] for c in columns],
        [[row[c] for c in columns] for row in _spectrum_rows(spectrum)],
        [i for i, c in enumerate(columns) if c != 1],
    )
    bounds = [
        _note(f"Proven: {BOUNDS_IN_WORDS[name]} {figure(bound)}.")
        for name, bound in facts.report.bounds.items()
    ]
    return _section("components", "Components", _note(_spectrum_in_words(spectrum)), table, *bounds)


def _spectrum_in_words(spectrum: Spectrum) -> str:
    words = "How much of the variance each component explains, and what the method may have missed."
    if spectrum.shares is None:
        words = "How large the leading eigenvalues of the kernel matrix are."
    if spectrum.missing is None:
        return f"{words} What is missing of the eigenvalues is not known with this method."
    return f"{words} The hatched end of a bar is what is estimated to be missing of it."


def _spectrum_rows(spectrum: Spectrum) -> Iterator[tuple[Any, ...]]:
    """Number, bar, eigenvalue, share, shares so far, and what is missing."""
    values, shares, missing = spectrum.values, spectrum.shares, spectrum.missing
    sizes = values / values[0] if shares is None else shares
    # Of the wanted ones: clusters are found in more.
    lacks = np.zeros(0) if missing is None else missing
    whole = sizes.copy()
    whole[: len(lacks)] /= 1 - np.minimum(lacks, 0.95)
    longest = float(max(whole.max(), 1e-300))
    for i, size in enumerate(sizes.tolist()):
        yield (
            i + 1,
            _bar(size / longest, more=(float(whole[i]) - size) / longest),
            f"{values[i]:.5g}",
            f"{size:.1%}",
            f"{float(sizes[: i + 1].sum()):.1%}",
            "not known" if i >= len(lacks) else _missing_in_words(float(lacks[i])),
        )


def _clusters_section(facts: PageFacts) -> Iterator[Html]:
    sizes = facts.cluster_sizes
    if sizes:
        most, total = max(sizes), sum(sizes)
        rows = [(i, _bar(n / most), f"{n:,}", f"{n / total:.1%}") for i, n in enumerate(sizes)]
        table = _table("Clusters by number", ["cluster", "", "rows", "of all"], rows, [0, 2, 3])
        yield _section("clusters", "Clusters", table)


_WAYS = {"raises": "▲ raises", "lowers": "▼ lowers", "both": "◆ both ways"}


def _columns_section(facts: PageFacts) -> Html:
    heading = "Which columns move each component"
    if facts.columns is None:
        words = (
            "Not known on this page: the columns stay with their parties, and this model keeps no "
            "rows or landmarks to try them on. A page that is made beside the data has it."
        )
        return _section("columns", heading, _note(words))
    tables = [_component_table(j, own) for j, own in enumerate(facts.columns.by_component)]
    shown = element("div", *tables[:_OPEN_COMPONENTS], class_="grid")
    more = tables[_OPEN_COMPONENTS:]
    behind = [_behind("More components", element("div", *more, class_="grid"))] if more else []
    return _section("columns", heading, _note(facts.columns.rule), shown, *behind)


def _component_table(j: int, columns: Sequence[MovingColumn]) -> Html:
    most = max([own.size for own in columns] + [1e-300])
    rows = [
        (own.name, _bar(own.size / most, own.way), f"{figure(own.size)}", _WAYS[own.way])
        for own in columns
    ]
    return _table(f"Component {j + 1}", ["column", "", "moves", "which way"], rows, [2])


# What left.


def _disclosure_section(facts: PageFacts) -> Html:
    heading = "What left each party, and what it is worth"
    parts: list[Html] = []
    if facts.audit is None:
        parts.append(_note("This model was saved by an earlier version, which kept no such facts."))
    elif facts.audit.lines:
        parts.append(_audit_table(facts.audit))
        notes = [f"The model {words}." for words in facts.audit.model]
        notes += [f"Together with other fits: {words}." for words in facts.audit.beyond]
        parts += [_note(words) for words in notes]
    else:
        parts.append(_note("Nothing left any party."))
    kinds = sorted({kind for own in facts.report.reveals.values() for kind in own})
    meanings = [
        joined(element("dt", kind), element("dd", KINDS_IN_WORDS.get(kind, ""))) for kind in kinds
    ]
    if meanings:
        parts.append(element("dl", *meanings, class_="kinds"))
    if facts.report.reveals:
        parts.append(_behind("Every party by name", _party_table(facts)))
    return _section("disclosure", heading, *parts)


def _audit_table(audit: Audit) -> Html:
    rows = [
        (_parties_in(alike), alike[0].receiver, _badge(alike[0]), alike[0].words)
        for alike in audit.alike
    ]
    headings = ["party", "to", "how much it tells", "what could be rebuilt from it"]
    return _table("The most telling first", headings, rows, [])


def _parties_in(lines: Sequence[Line]) -> str:
    return listed([line.party for line in lines], 3)


def _badge(line: Line) -> Html:
    level = int(line.severity)
    return element("span", SEVERITY_IN_WORDS[line.severity], class_=f"badge level-{level}")


def _party_table(facts: PageFacts) -> Html:
    report = facts.report
    rows = []
    for name in [*report.parties, *report.lost]:
        shape = report.shapes.get(name)
        keeps = "" if shape is None else f"{shape[0]:,} × {shape[1]:,}"
        kinds = report.reveals.get(name, {})
        left = "; ".join(f"{kind} {floats:,}" for kind, floats in sorted(kinds.items()) if floats)
        state = "lost" if name in report.lost else ""
        state = "left out" if name in report.left_out else state
        rows.append((name, keeps, left or "sizes only", f"{sum(kinds.values()):,}", state))
    headings = ["party", "rows × columns it keeps", "numbers that left it", "in all", ""]
    return _table("What left each party", headings, rows, [1, 3])


# What it cost.


def _traffic_section(facts: PageFacts) -> Html:
    report = facts.report
    floats = report.floats_up + report.floats_down
    rounds = _count(report.rounds, "round")
    words = (
        f"{floats:,} numbers ({report.floats_up:,} from parties, {report.floats_down:,} back), "
        f"{report.bytes:,} bytes, in {rounds}, {report.seconds:.2f} s. Shipping everything to one "
        f"place would take {report.baseline_floats:,} numbers."
    )
    parts = [_note(words), _against_shipping(floats, report.baseline_floats)]
    if any(report.traffic.bytes_by_round):
        parts.append(element("div", _rounds_figure(facts), _links_figure(facts), class_="grid"))
    elif floats:
        parts.append(_note("By round and link: an earlier version kept no such figures."))
    steps = sorted(report.by_step.items(), key=lambda item: -item[1])
    if steps:
        rows = [(step, f"{n:,}") for step, n in steps]
        parts.append(_behind("By step", _table("Numbers sent", ["step", "numbers"], rows, [1])))
    return _section("traffic", "What it cost", *parts)


def _against_shipping(floats: int, baseline: int) -> Html:
    most = max(floats, baseline, 1)
    rows = [
        ("sent by this fit", _bar(floats / most), f"{floats:,}"),
        ("shipping everything", _bar(baseline / most, "ship"), f"{baseline:,}"),
    ]
    return _table("Numbers", ["", "", "numbers"], rows, [2])


def _figure(heading: str, chart: Html, table: Html) -> Html:
    behind = _behind("The picture as a table", table)
    return element("figure", element("figcaption", heading), chart, behind)


def _rounds_figure(facts: PageFacts) -> Html:
    traffic = facts.report.traffic
    bars, sizes = binned(traffic.floats_by_round), binned(traffic.bytes_by_round)
    table = _table(
        "By round; 0 is before the first question",
        ["round", "numbers", "bytes"],
        [(name, f"{n:,}", f"{b:,}") for (name, n), (_, b) in zip(bars, sizes, strict=True)],
        [0, 1, 2],
    )
    label = f"Numbers sent in each of {len(traffic.floats_by_round):,} rounds"
    return _figure("Numbers by round", columns_chart(bars, label, "round"), table)


def _links_figure(facts: PageFacts) -> Html:
    report = facts.report
    links = sorted(report.traffic.links, key=lambda link: -link.bytes)
    table = _table(
        "By link, the busiest first",
        ["from", "to", "numbers", "bytes"],
        [(link.sender, link.receiver, f"{link.floats:,}", f"{link.bytes:,}") for link in links],
        [2, 3],
    )
    absent = {**dict.fromkeys(report.left_out, "left out"), **dict.fromkeys(report.lost, "lost")}
    label = f"{_count(len(report.parties), 'node')} and the links that carried messages"
    chart = topology_chart(report.parties, absent, report.traffic.links, label)
    return _figure("Who sent to whom; wider lines carried more", chart, table)


def _convergence_section(facts: PageFacts) -> Html:
    own, stopped = facts.convergence, f"It stopped because {facts.report.stop_reason}."
    if own is None or len(own.values) < 2:
        words = f"{stopped} This method keeps no course of iterations to show."
        return _section("convergence", "How it came to an end", _note(words))
    rows = [(i + 1, f"{value:.4g}") for i, value in enumerate(own.values)]
    table = _table(own.what, ["iteration", "value"], rows, [0, 1])
    chart = line_chart(own.values, own.what, "iteration")
    return _section(
        "convergence", "How it came to an end", _note(stopped), _figure(own.what, chart, table)
    )


# How to repeat it.


def _settings_section(facts: PageFacts) -> Html:
    own = [p for p in facts.parameters if not p.is_default or p.name == "random_state"]
    usual = [p for p in facts.parameters if p not in own]
    tables = [_parameter_table("Set for this fit; random_state is the seed", own)]
    if usual:
        tables.append(_behind("Left as they are", _parameter_table("Defaults", usual)))
    versions = ", ".join(f"{name} {version}" for name, version in facts.versions.items())
    return _section(
        "settings",
        "Parameters and versions",
        _note(f"em.{facts.estimator}; this page was made with {versions}."),
        *tables,
    )


def _parameter_table(caption: str, parameters: Sequence[Any]) -> Html:
    rows = [(p.name, p.value) for p in parameters]
    return _table(caption, ["parameter", "value"], rows, [])


def _footer(facts: PageFacts) -> Html:
    words = (
        f"Made by eigenmesh {facts.versions['eigenmesh']}. This page loads nothing from a network."
    )
    return element("footer", _note(words))
