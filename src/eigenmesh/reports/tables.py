"""Tables of reports and forecasts, for terminals and notebooks (rich renderables)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby, islice
from typing import Any, TypeAlias

from rich import box
from rich.table import Table
from rich.text import Text

from eigenmesh.cross_validation.result import CrossValidationResult
from eigenmesh.estimators.plan import AT_MOST, Plan
from eigenmesh.estimators.report import BOUNDS_IN_WORDS, RunReport, left_out_in_words
from eigenmesh.reports.audit import Audit, Severity, audit
from eigenmesh.reports.documents import cluster_sizes
from eigenmesh.reports.meanings import SEVERITY_IN_WORDS

Account: TypeAlias = RunReport | Plan
_Row: TypeAlias = tuple[str, ...]

# Beyond this many parties, neighbours that send the same share a row.
_PARTIES_SHOWN = 8
_ROUNDING = 1e-6  # a share that is none
_COMPONENTS_SHOWN = 10
_CLUSTERS_SHOWN = 20
_LINES_SHOWN = 5
_WIDE = 64  # so that a title is not folded

LOOK: dict[str, Any] = {"title_justify": "left", "title_style": "bold", "box": box.SIMPLE_HEAD}


def report_table(report: RunReport, *, title: str = "What it cost", notes: bool = True) -> Table:
    """The account of a fit or transform, a line a fact.

    >>> import eigenmesh as em, numpy as np, rich
    >>> X = np.random.default_rng(0).normal(size=(50, 6))
    >>> kpca = em.OneShotKPCA(local_rank=2).fit(em.split(X, 2, by="columns"))
    >>> report_table(kpca.report_).row_count > 5
    True
    """
    table = _facts(title)
    _add_cost(table, report, "sent")
    _add(table, "bytes", f"{report.bytes:,}")
    _add(table, "seconds", f"{report.seconds:.2f}")
    _add(table, "covers", _parties_in_words(report))
    for party, reason in report.lost.items():
        _add(table, "without", f"{party}: {reason}", style="yellow")
    for words in left_out_in_words(report.left_out):
        _add(table, "", words, style="yellow")
    _add(table, "stopped because", report.stop_reason)
    for name, bound in report.bounds.items():
        _add(table, "proven", f"{BOUNDS_IN_WORDS[name]} {figure(bound)}")
    _add_worst(table, report)
    for note in report.notes if notes else ():
        _add(table, "note", note, style="yellow")
    return table


def plan_table(plan: Plan, *, title: str = "What it would cost") -> Table:
    """The forecast of a fit, a line a fact; says who would refuse.

    >>> import eigenmesh as em, numpy as np
    >>> parts = em.Partitioned(columns=[np.ones((9, 2)), np.ones((9, 3))])
    >>> plan_table(em.plan(em.OneShotKPCA(), parts)).row_count > 3
    True
    """
    table = _facts(title)
    _add(table, "method", plan.method)
    _add_cost(table, plan, f"{AT_MOST} to be sent" if plan.is_bound else "to be sent")
    for party, kinds in plan.refusals.items():
        _add(table, "would refuse", f"{party}: {', '.join(kinds)} may not leave it", style="red")
    if not plan.refusals:
        _add(table, "would refuse", "nobody")
    _add_worst(table, plan)
    for note in plan.notes:
        _add(table, "note", note, style="yellow")
    return table


def reveals_table(
    accounts: Account | Mapping[str, Account],
    *,
    keeps: Mapping[str, str] | None = None,
    title: str = "What leaves each party",
) -> Table:
    """For each party the kinds that leave it and their floats; with `keeps`, also what stays.

    Kinds of 0 floats are scalars, such as sizes or a digest of the sample ids.

    Several accounts by name, of fits to compare, get a column each.

    >>> import eigenmesh as em, numpy as np
    >>> parts = em.Partitioned(columns=[np.ones((9, 2)), np.ones((9, 3))])
    >>> reveals_table(em.plan(em.OneShotKPCA(), parts)).row_count
    2
    """
    runs = accounts if isinstance(accounts, Mapping) else {"leaves it": accounts}
    table = Table(title=title, **LOOK)
    table.add_column("party", overflow="fold")
    if keeps is not None:
        table.add_column("stays there", overflow="fold")
    for label in runs:
        table.add_column(f"{label} (floats)", overflow="fold")
    for row in _group(list(_reveal_rows(runs, keeps))):
        table.add_row(*map(Text, row))
    return table


def audit_table(audit: Audit, *, title: str = "What could be rebuilt") -> Table:
    """What receivers could rebuild, the worst first, parties of whom the same is said together.

    >>> import eigenmesh as em, numpy as np
    >>> parts = em.Partitioned(columns=[np.ones((9, 2)), np.ones((9, 3))])
    >>> audit_table(em.audit(em.plan(em.OneShotKPCA(), parts))).row_count > 1
    True
    """
    table = Table(title=title, **LOOK)
    for name in ("party", "to", "how much it tells", "what could be rebuilt"):
        table.add_column(name, overflow="fold")
    for alike in audit.alike:
        who = _span([line.party for line in alike])
        line = alike[0]
        cells = (who, line.receiver, SEVERITY_IN_WORDS[line.severity], line.words)
        table.add_row(*map(Text, cells))
    for who, words in (("the model", audit.model), ("with others", audit.beyond)):
        for own in words:
            table.add_row(who, "", "", Text(own))
    return table


def components_table(kpca: Any) -> Table:
    """The leading eigenvalues of a fitted estimator: shares of the variance, and what lacks."""
    title = _count(len(kpca.eigenvalues_), "component")
    gamma = "" if kpca.gamma_ is None else f", gamma {kpca.gamma_:.4g}"
    table = Table(title=f"{title}, {kpca.kernel} kernel{gamma}", **LOOK)
    for name in ("component", "eigenvalue", "share of variance", "of it missing, about"):
        table.add_column(name, justify="right")
    pairs = zip(kpca.eigenvalues_, kpca.explained_variance_ratio_, _lacking(kpca), strict=True)
    for i, (value, share, lacking) in enumerate(islice(pairs, _COMPONENTS_SHOWN)):
        table.add_row(str(i + 1), f"{value:.6g}", f"{share:.1%}", lacking)
    if len(kpca.eigenvalues_) > _COMPONENTS_SHOWN:
        table.add_row("…", "…", "…", "…")
    return table


def _lacking(kpca: Any) -> list[str]:
    """The share of each eigenvalue that is missing, in words."""
    missing = getattr(kpca, "shortfalls_", None)
    if missing is None:
        return ["unknown"] * len(kpca.eigenvalues_)
    return ["nothing" if share < _ROUNDING else f"{share:.2%}" for share in missing]


def clusters_table(kmeans: Any) -> Table:
    """The clusters of a fitted estimator by size."""
    sizes = cluster_sizes(kmeans)
    title = _count(len(sizes), "cluster")
    gamma = "" if kmeans.gamma_ is None else f", gamma {kmeans.gamma_:.4g}"
    table = Table(title=f"{title}, {kmeans.kernel} kernel{gamma}", min_width=_WIDE, **LOOK)
    for name in ("cluster", "rows", "share of rows"):
        table.add_column(name, justify="right")
    for i, size in enumerate(sizes[:_CLUSTERS_SHOWN]):
        table.add_row(str(i), f"{size:,}", f"{size / sum(sizes):.1%}")
    if len(sizes) > _CLUSTERS_SHOWN:
        table.add_row("…", "…", "…")
    table.caption = _inertia_in_words(kmeans)
    return table


def cross_validation_table(result: CrossValidationResult) -> Table:
    """Candidates and how they do on rows that were held out; which is taken stands out."""
    table = Table(title="How candidates do on rows held out", caption=result.in_words, **LOOK)
    table.caption_justify = "left"
    for name in result.heading:
        table.add_column(name, justify="right")
    for row in result.rows():
        table.add_row(*map(Text, row), style="bold" if row[-1] else None)
    return table


def findings_table(findings: Sequence[Any]) -> Table:
    """What is wrong with files, a line a finding."""
    table = Table(title="What the files have in them", **LOOK)
    for name in ("file", "line", "column", "what", "remedy"):
        table.add_column(name, overflow="fold")
    for own in findings:
        cells = (own.file, _lines_in_words(own.lines), own.column or "", own.words, own.remedy)
        table.add_row(*map(Text, cells), style="dim" if own.is_note else "")
    return table


def _lines_in_words(lines: Sequence[int]) -> str:
    few = ", ".join(map(str, lines[:_LINES_SHOWN]))
    return few if len(lines) <= _LINES_SHOWN else f"{few}, … ({len(lines)})"


def _inertia_in_words(kmeans: Any) -> str:
    slack = kmeans.inertia_slack_
    if slack is None:
        return f"inertia {figure(kmeans.inertia_)}"
    exact = "exact" if not slack else f"at most {figure(slack)} too large"
    return f"inertia in feature space {figure(kmeans.inertia_)}, {exact}"


def figure(value: float) -> str:
    """A number in three digits; exact zeros and infinities as such.

    >>> figure(0.00123456), figure(38.7), figure(0.0), figure(float("inf"))
    ('1.2e-03', '38.7', '0', 'inf')
    """
    if value == 0 or math.isinf(value):
        return f"{value:g}"
    return f"{value:.1e}" if abs(value) < 1e-2 or abs(value) >= 1e6 else f"{value:.3g}"


def share_in_words(share: float) -> str:
    """A share of shipping everything, in per cent."""
    return f"{share:.1%}" if share < 0.1 else f"{share:,.0%}"


def facts_table(title: str, facts: Mapping[str, str | Sequence[str]]) -> Table:
    """A line a fact; of several under one name, the name stands once.

    >>> facts_table("Site", {"name": "north", "rules": ["one", "two"]}).row_count
    3
    """
    table = _facts(title)
    for name, value in facts.items():
        lines = [value] if isinstance(value, str) else list(value) or ["none"]
        for i, line in enumerate(lines):
            _add(table, name if i == 0 else "", line)
    return table


def _facts(title: str) -> Table:
    table = Table(title=title, **{**LOOK, "box": box.SIMPLE}, show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    return table


def _add(table: Table, name: str, value: str, style: str = "") -> None:
    # Text, not markup: a party may be called "[north]".
    table.add_row(name, Text(value, style=style))


def _add_cost(table: Table, account: Account, verb: str) -> None:
    up, down, shipping = account.floats_up, account.floats_down, account.baseline_floats
    _add(table, verb, f"{up:,} floats up, {down:,} down, in {_count(account.rounds, 'round')}")
    for step, floats in account.by_step.items():
        _add(table, "  of these", f"{floats:,} by {step}")
    share, dear = share_in_words(account.share_of_baseline), account.share_of_baseline > 1
    more = ": more than shipping everything" if dear else ""
    _add(
        table,
        "against",
        f"{shipping:,} floats if everything were shipped, so {share} of that{more}",
        style="red" if dear else "green",
    )


def _add_worst(table: Table, account: Account) -> None:
    """What tells most of anybody's data; `em.audit` has the rest."""
    worst = audit(account).worst if account.disclosures else None
    if worst is not None:
        grave = worst.severity >= Severity.DETERMINED
        _add(table, "tells most", str(worst), style="yellow" if grave else "")


def _count(n: int, noun: str) -> str:
    return f"{n} {noun}{'' if n == 1 else 's'}"


def _parties_in_words(report: RunReport) -> str:
    n = len(report.parties)
    few = ", ".join(report.parties[:_PARTIES_SHOWN])
    more = ", …" if n > _PARTIES_SHOWN else ""
    return f"{n} {'party' if n == 1 else 'parties'}: {few}{more}"


def _reveal_rows(runs: Mapping[str, Account], keeps: Mapping[str, str] | None) -> Iterator[_Row]:
    first = next(iter(runs.values()))
    for party in first.parties:
        files = () if keeps is None else (keeps.get(party, ""),)
        yield (party, *files, *(_leaves(account, party) for account in runs.values()))


def _leaves(account: Account, party: str) -> str:
    kinds = account.reveals.get(party, {})
    lines = [f"{kind}: {floats:,}" for kind, floats in sorted(kinds.items()) if floats]
    scalars = sorted(kind for kind, floats in kinds.items() if not floats)
    lines += [f"{', '.join(scalars)}: 0"] if scalars else []
    refusals = account.refusals.get(party, ()) if isinstance(account, Plan) else ()
    lines += [f"REFUSED: {', '.join(refusals)}"] if refusals else []
    return "\n".join(lines) or "nothing"


def _group(rows: Sequence[_Row]) -> Sequence[_Row]:
    if len(rows) <= _PARTIES_SHOWN:
        return rows
    runs = [list(run) for _, run in groupby(rows, key=lambda row: row[1:])]
    return [(_span([row[0] for row in run]), *run[0][1:]) for run in runs]


def _span(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} … {names[-1]}, each of {len(names)}"
