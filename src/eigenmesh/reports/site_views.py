"""What a site's owner is shown: the site itself, a study before it is approved, and the log."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
from rich.table import Table
from rich.text import Text

from eigenmesh.errors import InputError, PartitionError, PolicyRefusal
from eigenmesh.estimators.base import from_description
from eigenmesh.estimators.disclosure import rows_behind
from eigenmesh.estimators.plan import Plan, plan_of_study
from eigenmesh.extras import extra
from eigenmesh.reports.audit import Line, Severity, audit
from eigenmesh.reports.tables import LOOK, facts_table
from eigenmesh.runtime.budget import Budget, Spent, row_digests
from eigenmesh.runtime.consent import Consent
from eigenmesh.runtime.disk_store import Origin, StoredShare, stored_shares
from eigenmesh.runtime.ledger import step_label
from eigenmesh.runtime.message import KINDS
from eigenmesh.runtime.policy import Policy
from eigenmesh.runtime.privacy import epsilon_of
from eigenmesh.runtime.schedule import Own, table
from eigenmesh.runtime.site import Site, SiteView
from eigenmesh.runtime.site_log import verify_log
from eigenmesh.runtime.study import FitStudy, Study
from eigenmesh.site_folder import SiteFolder, open_site
from eigenmesh.site_folder.new_folder import public_key
from eigenmesh.site_folder.row_results import FIELDS
from eigenmesh.site_folder.withdrawals import read_withdrawals, withdrawn_ids

_COVERED = {"fewest": "min_rows at least", "all": "all here", "joint": "all parties'"}

# The site itself.


def site_facts(folder: SiteFolder) -> dict[str, Any]:
    """What the site is, and what its policy comes to, in words."""
    site, settings = open_site(folder.path), folder.settings
    findings = _findings(folder, site)
    try:
        rows, columns = map(int, site.data.shape)
    except PartitionError as error:
        raise InputError("; ".join([error.reason, *findings])) from None
    names = site.names_columns()
    gone = withdrawn_ids(read_withdrawals(folder.withdrawals_file))
    head = verify_log(folder.log_file)
    return {
        "site": site.name,
        "data": ", ".join(settings.data),
        "holds": f"{rows:,} {settings.split if settings.split == 'rows' else 'samples'}, "
        f"{columns:,} columns",
        "columns": ", ".join(names) if names else "without names, by their places",
        "mind": findings,
        "ids": settings.id_column or ("in the file" if folder.rows().ids is not None else "none"),
        "targets": ", ".join(map(str, settings.targets)) or "none",
        "weights": "none" if settings.weights is None else str(settings.weights),
        "withdrawn": f"{len(gone):,} rows",
        "may leave": ", ".join(sorted(site.policy.allow)) or "nothing",
        "never leaves": ", ".join(sorted(KINDS - site.policy.allow)) or "no kind is forbidden",
        "rules": policy_words(site.policy, (rows, columns)),
        "spent": spent_words(site),
        "approved": [
            f"{own.digest} by {own.by or 'somebody'}, {when(own.at)}, for "
            f"{', '.join(own.submitters) or 'any submitter'}"
            for own in site.approvals.standing.values()
        ],
        "results": f"{len(stored_shares(folder.store)):,} in the store",
        "peers": ", ".join(sorted(site.peers)) or "none: masked sums need their keys in site.toml",
        "public key": public_key(folder),
        "log": f"{head.number:,} lines, in order",
        "log head": str(head),
    }


def _findings(folder: SiteFolder, site: Site) -> list[str]:
    """What is wrong with the files, in the columns that are used, beyond what the settings say."""
    with extra("files", "a look into a site's files"):
        from eigenmesh.data.check_files import check_files

    settings = folder.settings
    names = set(site.names_columns() or ()) | {*settings.targets, settings.weights, None}
    words = []
    for file in settings.data:
        for own in check_files([folder.path / file], settings.id_column):
            is_expected = own.kind == "category" and own.column in settings.categories
            is_expected |= own.kind == "missing" and settings.allow_missing
            if own.column in names and not own.is_note and not is_expected:
                where = f", line {own.lines[0]}" if own.lines else ""
                words.append(f"{own.file} {own.column or ''}{where}: {own.words}; {own.remedy}")
    return words


def policy_words(policy: Policy, shape: tuple[int, int]) -> list[str]:
    """What the host decides, in words."""
    least = policy.fewest_parties("organisations")
    words = [
        f"no number over fewer than {policy.min_rows} rows leaves, whatever it is called"
        + ("" if policy.minds_content else ", unless as rows, which are allowed"),
        f"a study, and a masked sum, is of at least {least} parties",
        {
            "each": "a study waits until a person here approves it",
            "listed": "a study is answered if its digest is listed in policy.toml or approved here",
            "any": "EVERY study that keeps to the rest is answered; approve = 'each' asks a person",
        }[policy.approve],
    ]
    if shape[0] < policy.min_rows:
        words.append(f"the data have {shape[0]} rows: nothing computed from them may leave")
    if policy.protocols is not None:
        words.append(f"only these protocols are answered: {', '.join(policy.protocols) or 'none'}")
    if {"rows", "columns"} & policy.allow:
        words.append("ROWS or COLUMNS may leave as they are")
    return words


def spent_words(site: Site) -> list[str]:
    """What was spent of the budget, of each data set that studies were answered from."""
    budget = site.policy.budget
    lines = []
    for spent in site.account.sets:
        pairs = [
            f"{getattr(spent, name):g} of {limit:g} {name}"
            if (limit := getattr(budget, name, None)) is not None
            else f"{getattr(spent, name):g} {name}"
            for name in ("studies", "draws", "numbers")
        ]
        pairs += [] if budget is None or budget.epsilon is None else [_epsilon_words(spent, budget)]
        n = len(spent.versions)
        lines.append(", ".join(pairs) + f", in {n} version{'s' * (n > 1)} of the data")
    try:
        site.account.require_apart(row_digests(site.data), site.policy.min_rows)
    except PolicyRefusal:
        lines.append(
            f"PAUSED: the data differ in fewer than {site.policy.min_rows} rows from what studies "
            f"were answered from; every study is refused until more have changed"
        )
    return lines or ["nothing"]


def _epsilon_words(spent: Spent, budget: Budget) -> str:
    epsilon = epsilon_of(spent.loss, budget.delta)
    return f"epsilon {epsilon:.3g} of {budget.epsilon:g} at delta {budget.delta:g}"


# A study.


@dataclass(frozen=True)
class StudyView:
    """A study as it concerns one site."""

    party: str
    study: FitStudy
    plan: Plan
    audit: tuple[Line, ...]
    refusals: tuple[Mapping[str, str], ...]  # protocol, rule and words
    is_approved: bool
    minds_content: bool  # whether its policy forbids what numbers may come to

    def to_tree(self) -> dict[str, Any]:
        """For machines."""
        scope = self.study.runs[0].scope
        return {
            "digest": self.study.digest,
            "estimator": self.study.estimator,
            "parties": scope.parties,
            "masked_sums": scope.secure,
            "runs": [
                {"protocol": run.protocol.name, "terms": _terms(run), "steps": _steps(run)}
                for run in self.study.runs
            ],
            "leaves": self.leaves,
            "worth": [line.words for line in self.audit],
            "refusals": list(self.refusals),
            "may_be_refused": self.doubts,
            "is_approved": self.is_approved,
        }

    @property
    def doubts(self) -> list[str]:
        """What the policy may refuse on the way, by what numbers come to together."""
        if not self.minds_content:
            return []
        grave = [own for own in self.audit if own.severity >= Severity.DETERMINED]
        after = (
            "which is not let out: rule 'allow' may refuse it on the way, and a dry run shows it"
        )
        return [f"{own.words}, {after}" for own in grave[:1]]

    @property
    def leaves(self) -> dict[str, int]:
        """Floats by kind that would leave the site."""
        return dict(self.plan.reveals.get(self.party, {}))

    def renderables(self) -> list[Table]:
        """For people: what it is, what is asked, what leaves and what it is worth."""
        tree = self.to_tree()
        facts = {
            "parties": ", ".join(tree["parties"]),
            "says it is": _estimator_words(self.study.estimator),
            "sums": "masked: nobody sees what a single site adds"
            if tree["masked_sums"]
            else "NOT masked: the coordinator sees what each site adds",
            "leaves here": [f"{k}: {n:,} floats" for k, n in self.leaves.items()] or "nothing",
            "worth": [line.words for line in self.audit],
            "refused": [_refusal_words(own) for own in self.refusals] or "nothing",
            "may be refused": self.doubts or "nothing",
            "approved": "yes" if self.is_approved else "no: `eigenmesh site approve`",
            "note": self.plan.notes,
        }
        return [
            facts_table("The study, as it concerns this site", facts),
            *map(_run_table, tree["runs"]),
        ]


def _estimator_words(description: Mapping[str, Any] | None) -> str:
    """As somebody would write it: what is as usual is left out."""
    return "not told" if description is None else str(from_description(description))


def _terms(run: Study) -> dict[str, str]:
    return {name: str(value) for name, value in run.terms.items()}


def _steps(run: Study) -> list[dict[str, str]]:
    """What a site may be asked for, in order, with how many rows stand behind a number."""
    rows = table(run.tree) if run.tree is not None else []
    kinds_of = {step_label(step): step.reveals for step in run.leaving}
    steps = []
    for row in rows:
        label = row.step.removesuffix(" → neighbours")
        kinds = sorted(kinds_of.get(label, ()))
        rows_of = {kind: rows_behind(label, kind) for kind in kinds}
        behind = [f"{kind}: {_COVERED.get(str(own), own)}" for kind, own in rows_of.items()]
        masked = run.scope.secure and row.summed
        sends = f"{row.sends}, masked" if masked and row.sends else row.sends or "nothing"
        steps.append(
            {"step": row.step, "times": row.times, "sends": sends, "rows": ", ".join(behind)}
        )
    return steps


def _run_table(run: Mapping[str, Any]) -> Table:
    shown = Table(title=f"{run['protocol']} {run['terms'] or ''}", **LOOK)
    for name in ("step", "times", "sends", "rows behind a number"):
        shown.add_column(name, overflow="fold")
    for step in run["steps"]:
        shown.add_row(*map(Text, step.values()))
    return shown


def _refusal_words(refusal: Mapping[str, str]) -> str:
    where = f"{refusal['protocol']}, " if refusal["protocol"] else ""
    return f"{where}rule {refusal['rule']!r}: {refusal['words']}"


def study_view(folder: SiteFolder, study: FitStudy) -> StudyView:
    """What a study would ask of the site, what would leave it, and what it would refuse."""
    site = open_site(folder.path)
    rows, columns = map(int, site.data.shape)
    plan = plan_of_study(study, site.name, (rows, columns), site.policy)
    reasons = [
        *_refusals(site, study, Own(rows, columns)),
        *_unprepared(site, study, folder.settings.allow_missing),
    ]
    refusals = [
        {"protocol": protocol, "rule": rule, "words": words}
        for protocol, rule, words in dict.fromkeys(reasons)
    ]
    worth = audit(plan).of(site.name)
    is_approved = study.digest in site.approvals.standing
    minds = site.policy.minds_content
    return StudyView(site.name, study, plan, worth, tuple(refusals), is_approved, minds)


def _refusals(site: Site, study: FitStudy, own: Own) -> Iterator[tuple[str, str, str]]:
    """Protocol, rule and words; that nobody has approved it yet is no reason not to."""
    scope = study.runs[0].scope
    if site.name not in scope.parties or scope.split != site.split:
        words = f"the study is of {scope.split} of {', '.join(scope.parties)}; this site is "
        yield "", "study", f"{words}{site.name!r} and has {site.split}"
        return
    consent = Consent(site, SiteView(site, scope.parties.index(site.name), scope.parties))
    for run in study.runs:
        for refusal in consent.refusals(run, study.digests, lambda: own):
            if refusal.rule != "approve":
                yield run.protocol.name, refusal.rule, refusal.reason
    try:
        site.account.require_apart(row_digests(site.data), site.policy.min_rows)
    except PolicyRefusal as refusal:
        yield "", refusal.rule, refusal.reason


def _unprepared(site: Site, study: FitStudy, allow_missing: bool) -> Iterator[tuple[str, str, str]]:
    """What data have that no fit can compute with, unless the study prepares them."""
    if any(run.scope.prepared for run in study.runs):
        return
    if site.level_columns():
        yield "", "preparation", "the site has columns of levels, and the study encodes none"
    if allow_missing and np.isnan(site.data).any():
        yield "", "preparation", "values are missing here, and the study fills no gaps"


# The log.


def log_table(lines: Iterable[Mapping[str, Any]]) -> Table:
    """Lines of the log, for people."""
    shown = Table(title="What was asked, and what left", **LOOK)
    for name in ("line", "when", "what", "to", "left (floats)", "rows", "bytes"):
        shown.add_column(name, overflow="fold")
    for line in lines:
        what = line.get("step") or line.get("send") or line.get("op") or line.get("act", "")
        what = f"{what} REFUSED: {line.get('rule', line['error'])}" if "error" in line else what
        by = f" by {line['by']}" if line.get("by") else ""
        sent = line["sent"] or [{}]
        for message in sent:
            kinds = message.get("kinds", {})
            left = ", ".join(f"{kind}: {floats:,}" for kind, floats in kinds.items()) or "nothing"
            left += f": {line['words']}" if "words" in line else ""
            cells = (
                str(line["n"]),
                when(line["at"]),
                f"{what}{by}",
                message.get("to", ""),
                left,
                str(message.get("rows", "")),
                str(message.get("bytes", "")),
            )
            shown.add_row(*map(Text, cells))
    return shown


def when(at: float) -> str:
    """A time, to the second, in UTC.

    >>> when(0)
    '1970-01-01 00:00:00Z'
    """
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def results_table(shares: Iterable[StoredShare]) -> Table:
    """What fits left at the site about its rows."""
    shown = Table(title="What fits left about the rows of this site", **LOOK)
    for name in ("when", "of study", "what", "columns"):
        shown.add_column(name, overflow="fold")
    for share in shares:
        values, origin = share.values(), share.origin or Origin()
        for field in sorted(FIELDS.keys() & values.keys()):
            width = str(np.shape(values[field])[1]) if np.ndim(values[field]) > 1 else "1"
            cells = (when(share.at), (origin.fit or origin.study)[:16], share.key, width)
            shown.add_row(*map(Text, cells))
    return shown
