"""Reports, forecasts and audits as notebooks show them: the tables of the terminal, as HTML."""

from __future__ import annotations

from typing import Any

from rich.table import Table
from rich.text import Text

from eigenmesh.cross_validation.result import CrossValidationResult
from eigenmesh.estimators.notebook_display import show_as
from eigenmesh.estimators.plan import Plan
from eigenmesh.estimators.report import RunReport
from eigenmesh.reports.audit import Audit
from eigenmesh.reports.markup import Html, element, joined
from eigenmesh.reports.tables import (
    audit_table,
    cross_validation_table,
    plan_table,
    report_table,
    reveals_table,
)

_CELL = "text-align:left;vertical-align:top;padding:0 1em 0 0;white-space:pre-line"


def html_of(table: Table) -> Html:
    """A table of the terminal as one of a page; what it says is escaped.

    >>> table = Table("party", title="Who")
    >>> table.add_row("<north>")
    >>> "&lt;north&gt;" in html_of(table)
    True
    """
    columns = [[_plain(cell) for cell in column.cells] for column in table.columns]
    headings = [_plain(column.header) for column in table.columns]
    head = element("tr", *(element("th", words, style=_CELL) for words in headings))
    rows = [
        element("tr", *(element("td", cell, style=_CELL) for cell in row))
        for row in zip(*columns, strict=True)
    ]
    caption = element("caption", _plain(table.title or ""), style="text-align:left")
    parts = [caption, *([element("thead", head)] if table.show_header else [])]
    return element("table", *parts, element("tbody", *rows))


def _plain(cell: Any) -> str:
    return cell.plain if isinstance(cell, Text) else str(cell)


def _report(report: RunReport) -> Html:
    return joined(html_of(report_table(report)), html_of(reveals_table(report)))


def _plan(plan: Plan) -> str:
    return joined(html_of(plan_table(plan)), html_of(reveals_table(plan)))


def _audit(audit: Audit) -> str:
    return html_of(audit_table(audit))


def _cross_validation(result: CrossValidationResult) -> str:
    words = element("p", result.in_words)
    report = _report(result.report)
    return joined(html_of(cross_validation_table(result)), words, report)


show_as(RunReport, _report)
show_as(Plan, _plan)
show_as(Audit, _audit)
show_as(CrossValidationResult, _cross_validation)
