"""What a receiver could rebuild of a party's data from what it got, or will get.

Three things are held against each other: how many numbers left, how many rows stand behind each,
and how many numbers a party keeps to itself (n rows times d columns). No data are looked at: the
facts are those of the plan or the report, and a statement holds for any data of these shapes.

What was found by attacking it (tests/attacks) is what it says:

- numbers about single samples of a party's columns are coordinates. As many a sample as there are
  columns determine the columns up to a rotation, and d + 2 samples that somebody knows fix that;
- a sum over all rows hides them while it has fewer numbers than they have. Landmark sums of five
  rows were inverted whole, of eight half, of twelve hardly;
- a mean of five rows is near to each of them where these are alike.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import groupby
from math import ceil
from typing import Any, NamedTuple

from eigenmesh.errors import InputError
from eigenmesh.estimators.disclosure import NEIGHBOURS, Disclosure, of_party
from eigenmesh.estimators.notebook_display import Shown
from eigenmesh.estimators.plan import Plan
from eigenmesh.estimators.report import RunReport
from eigenmesh.runtime.content import enough_of_pairs, is_determined
from eigenmesh.runtime.ledger import COORDINATOR
from eigenmesh.runtime.privacy import in_words
from eigenmesh.runtime.topology import GOSSIP, PUSH_SUM, TREE

DIRECTIONS = 16  # along which landmarks are drawn, of narrow rows all columns
_DRAWN = ".scatter_products"  # the step that tells of them
FEWEST_ROWS = 5  # behind a number: a sum over fewer says too much of each
_ABOUT_SAMPLES = frozenset(("columns", "scores", "eigenvectors", "distances", "gram"))
_LITTLE = {
    "counts": "how many rows or columns, or how many of them fell to what",
    "hashes": "digests of ids or names, which tell who has the same",
    "seed": "where draws begin",
}
_SAY_LITTLE = frozenset(_LITTLE)
_INSIDE_MODELS = frozenset(("rows", "centroids"))
_SUMMED = frozenset(("gram", "moments", "sketch", "aggregate"))
_TOGETHER = "together"
_FARTHEST_TO_NEIGHBOURS = "to neighbours how far its farthest row is from the landmarks"
# Steps with a largest value, which is about one row where rows may leave.
_LARGEST = {
    ".leverage_mass": "its largest leverage",
    ".probe_outside": "how far its farthest row is from the landmarks",
    ".tell_missing": _FARTHEST_TO_NEIGHBOURS,
    ".tell_missing_at_root": _FARTHEST_TO_NEIGHBOURS,
}
_COUNTED = (".count_below", ".offer_counts")  # steps that tell how many values are below what
_OF_GROUPS = (".sum_groups", ".sum_far_groups", ".give_means")  # of the same groups in each fit
_OF_CLUSTERS = (".sum_clusters", ".cluster_moments", ".cluster_features")  # of all rows of each
# Steps of joint distances.
_JOINT = (".argument_summand", ".angle_summand", ".pair_summand", ".project_summand")
_OTHERS = "parties"
_SHOWN = 3  # parties by name, of many that are alike


class Severity(IntEnum):
    """How much of a party's data a receiver has, least first."""

    LITTLE = 0  # sizes, digests
    SUMS = 1  # of all rows, fewer numbers than the rows have
    MEANS = 2  # of a few rows each
    PARTS = 3  # some coordinates of single rows or samples
    DETERMINED = 4  # as many numbers as there are unknowns, or more
    ROTATED = 5  # the columns up to a rotation
    ROWS = 6  # rows or columns as they are


@dataclass(frozen=True)
class Line:
    """What one receiver has of one party in one kind.

    Attributes
    ----------
    kind : by content, which `sent_as` need not be: a sum over two rows is `rows`.
    numbers : how many it got; `unknowns` are the party's rows times columns, None if not known.
    rows : the fewest behind one number; None if not known.
    words : what could be rebuilt.
    noised : whether noise hides what any one row holds, so that nothing is.
    """

    party: str
    receiver: str
    kind: str
    sent_as: str
    numbers: int
    unknowns: int | None
    rows: int | None
    severity: Severity
    words: str
    noised: bool = False

    @property
    def is_determined(self) -> bool:
        """Whether there are as many numbers as unknowns."""
        return self.unknowns is not None and 0 < self.unknowns <= self.numbers and not self.noised

    def __str__(self) -> str:
        return f"{self.party} → {self.receiver}: {self.words}"


@dataclass(frozen=True)
class Audit(Shown):
    """What could be rebuilt, a line a party, receiver and kind, the worst first.

    `model` says what the released model itself tells of the data, `beyond` what this account
    together with others would, `averages` what nodes of a graph learn of each other's summands.
    """

    lines: tuple[Line, ...]
    model: tuple[str, ...] = ()
    beyond: tuple[str, ...] = ()
    averages: tuple[str, ...] = ()

    @property
    def worst(self) -> Line | None:
        """The line that tells most; None where nothing left."""
        return self.lines[0] if self.lines else None

    def of(self, party: str) -> tuple[Line, ...]:
        """The lines about one party."""
        return tuple(line for line in self.lines if line.party == party)

    def to_tree(self) -> dict[str, Any]:
        """Plain numbers and words, for machines."""
        lines = [{**_plain(line), "determined": line.is_determined} for line in self.lines]
        words = {name: list(getattr(self, name)) for name in ("model", "beyond", "averages")}
        return {"worst": lines[0] if lines else None, "lines": lines, **words}

    def __str__(self) -> str:
        shown = [
            f"{_spoken(alike)} → {alike[0].receiver}: {alike[0].words}" for alike in self.alike
        ]
        shown += [f"the model: {words}" for words in self.model]
        shown += [f"averages: {words}" for words in self.averages]
        shown += [f"with others: {words}" for words in self.beyond]
        return "\n".join(shown) or "nothing left any party"

    @property
    def alike(self) -> list[list[Line]]:
        """Lines that say the same of several parties, together."""
        groups: dict[tuple[str, str], list[Line]] = defaultdict(list)
        for line in self.lines:
            groups[line.receiver, line.words].append(line)
        return list(groups.values())


def audit(account: Plan | RunReport) -> Audit:
    """What a receiver could rebuild from what it gets by a plan, or got by a report: `account`.

    >>> import eigenmesh as em, numpy as np
    >>> parts = em.Partitioned(columns=[np.ones((100, 30)), np.ones((100, 2))], names=["a", "b"])
    >>> print(em.audit(em.plan(em.OneShotKPCA(n_components=2, local_rank=5), parts)).worst)
    b → coordinator: 202 numbers as eigenvectors ... determine its 2 columns up to rotation: 4 known
    samples give all others, and two-valued columns are recoverable without any
    """
    if not isinstance(account, Plan | RunReport):
        raise InputError(
            f"{type(account).__name__} cannot be audited; pass em.plan(...) or an estimator's "
            f"report_"
        )
    if not account.disclosures and any(account.by_party.values()):
        raise InputError("this report was saved by an earlier version, which kept no facts for it")
    own = of_party(account.disclosures)
    passed_on = own.pop(COORDINATOR, [])
    lines: list[Line] = []
    for name, disclosures in own.items():
        shape = account.shapes.get(name)
        party = _Party(name, account.split, shape, disclosures, account.privacy)
        lines += party.lines(passed_on)
    lines.sort(key=lambda line: (-line.severity, -_share(line), -line.numbers))
    beyond = (*_beyond(lines, account.split), *_weights(account), *_joint_distances(account))
    beyond += (*_largest(account), *_medians(account), *_by_cluster(account), *_by_group(account))
    return Audit(tuple(lines), tuple(_inside_model(account)), beyond, tuple(_averages(account)))


def _share(line: Line) -> float:
    return line.numbers / line.unknowns if line.unknowns else 0.0


class KindVerdict(NamedTuple):
    """The kind by content, how much it tells, and what could be rebuilt."""

    kind: str
    severity: Severity
    words: str


@dataclass(frozen=True)
class _Party:
    """One party's side of an account."""

    name: str
    split: str
    shape: tuple[int, int] | None
    disclosures: Sequence[Disclosure]
    privacy: Mapping[str, float]

    def lines(self, passed_on: Sequence[Disclosure]) -> Iterator[Line]:
        """A line a receiver and kind; then what a receiver has in all."""
        own = [d for d in self.disclosures if d.rows != "joint"]
        by_receiver = sorted(own, key=_receiver)
        for receiver, some in groupby(by_receiver, key=_receiver):
            got = list(some)
            yield from self._under_noise(receiver, [d for d in got if d.noised and d.floats])
            got = [d for d in got if not (d.noised and d.floats)]
            numbers = sum(d.floats for d in got)
            for kind, of_kind in groupby(sorted(got, key=lambda d: d.kind), lambda d: d.kind):
                yield self._line(receiver, kind, list(of_kind), numbers)
            if len({d.kind for d in got if d.floats}) > 1:
                yield self._in_all(receiver, numbers)
        # Centroids go on as rows: whoever gets landmarks need not know how they came about.
        if any(d.floats and d.kind in _INSIDE_MODELS for d in passed_on):
            for kind in sorted(_INSIDE_MODELS & {d.kind for d in own if d.floats}):
                yield self._line(_OTHERS, kind, [d for d in own if d.kind == kind], 0)

    def _under_noise(self, receiver: str, disclosures: Sequence[Disclosure]) -> Iterator[Line]:
        """What differentially private numbers tell: of any one row no more than the promise."""
        if not disclosures:
            return
        numbers, kind = sum(d.floats for d in disclosures), disclosures[0].kind
        promise = f" ({in_words(self.privacy)})" if self.privacy else ""
        words = (
            f"{numbers:,} numbers as {kind} under noise: whatever its receiver knows besides, they "
            f"tell it of any one row no more than the promise{promise}"
        )
        verdict = KindVerdict(kind, Severity.LITTLE, words)
        line = self._as_line(receiver, kind, numbers, self._rows_behind(disclosures), verdict)
        yield dataclasses.replace(line, noised=True)

    @property
    def unknowns(self) -> int | None:
        """Numbers that the party holds."""
        return None if self.shape is None else self.shape[0] * self.shape[1]

    def _line(
        self, receiver: str, kind: str, disclosures: Sequence[Disclosure], in_all: int
    ) -> Line:
        numbers = sum(d.floats for d in disclosures)
        rows = self._rows_behind(disclosures)
        verdict = self._verdict(kind, numbers, rows, in_all)
        return self._as_line(receiver, kind, numbers, rows, verdict)

    def _as_line(
        self, receiver: str, kind: str, numbers: int, rows: int | None, verdict: KindVerdict
    ) -> Line:
        return Line(
            party=self.name,
            receiver=receiver,
            kind=verdict.kind,
            sent_as=kind,
            numbers=numbers,
            unknowns=self.unknowns,
            rows=rows,
            severity=verdict.severity,
            words=verdict.words,
        )

    def _rows_behind(self, disclosures: Sequence[Disclosure]) -> int | None:
        """The fewest rows behind a number; all of the party's are as many as it has."""
        n = None if self.shape is None else self.shape[0]
        meant: dict[Any, int | None] = {"all": n, "fewest": FEWEST_ROWS}
        fewest = [meant.get(d.rows, d.rows) for d in disclosures if d.floats or n]
        whole = [rows for rows in fewest if isinstance(rows, int)]
        return min(whole) if whole and len(whole) == len(fewest) else None

    def _verdict(self, kind: str, numbers: int, rows: int | None, in_all: int) -> KindVerdict:
        if kind in _SAY_LITTLE or not numbers:
            words = f"{kind}: {_LITTLE.get(kind, 'a few single numbers')}"
            return KindVerdict(kind, Severity.LITTLE, words)
        if kind == "aggregate":
            words = f"{numbers:,} numbers, seen only in the sum of all parties"
            return KindVerdict(kind, Severity.SUMS, words)
        if kind == "rows":
            return KindVerdict(kind, Severity.ROWS, self._as_they_are(numbers))
        if kind == "centroids":
            return self._means(numbers, rows)
        if self.split == "columns" and rows == 1 and kind in _ABOUT_SAMPLES:
            return self._about_columns(kind, numbers, in_all)
        few = self.shape is not None and self.shape[0] < FEWEST_ROWS
        about_one = rows == 1 and not few
        return self._about_rows(kind, numbers) if about_one else self._sums(kind, numbers, rows)

    def _as_they_are(self, numbers: int) -> str:
        if self.shape is None:
            return f"{numbers:,} numbers of rows, as they are"
        n, d = self.shape
        return f"{min(ceil(numbers / d), n):,} of its {n:,} rows, as they are"

    def _means(self, numbers: int, rows: int | None) -> KindVerdict:
        if rows == 1:
            words = f"{self._as_they_are(numbers)}: means of one row"
            return KindVerdict("rows", Severity.ROWS, words)
        few = rows is not None and rows < FEWEST_ROWS
        count = f"{numbers:,} numbers" if self.shape is None else f"{numbers // self.shape[1]:,}"
        words = f"{count} means of rows; the smallest may be a mean of {rows} rows"
        return KindVerdict("rows" if few else "centroids", Severity.MEANS, words)

    def _about_columns(self, kind: str, numbers: int, in_all: int) -> KindVerdict:
        """Numbers about each sample, in a party's own columns."""
        sent = f"{numbers:,} numbers as {kind}"
        if self.shape is None:
            words = f"{sent}, coordinates of samples in its columns"
            return KindVerdict(kind, Severity.PARTS, words)
        n, d = self.shape
        # What a message itself calls columns is that, however many numbers it took.
        enough = 0 if kind == "columns" else enough_of_pairs(n, d)
        if max(numbers, in_all) < enough:
            return self._some_directions(kind, numbers, n, d)
        if numbers < enough:
            sent += f" (of {in_all:,} in all)"
        if d == 1:
            words = f"{sent}: one column: sent as it is, but for sign, scale and mean"
            return KindVerdict("columns", Severity.ROWS, words)
        words = (
            f"{sent} beside {n * d:,} unknowns determine its {d} columns up to rotation: {d + 2} "
            f"known samples give all others, and two-valued columns are recoverable without any"
        )
        return KindVerdict("columns", Severity.ROTATED, words)

    def _some_directions(self, kind: str, numbers: int, n: int, d: int) -> KindVerdict:
        width = ceil(numbers / n)
        words = (
            f"{numbers:,} numbers as {kind}: {width} a sample beside {d} columns: these directions "
            f"up to rotation, which {width + 2} known samples give for all others; of a few "
            f"two-valued columns one direction gives all"
        )
        if kind == "eigenvectors":
            words += "; of an RBF kernel all distances, as far as they hold its trace"
        return KindVerdict(kind, Severity.PARTS, words)

    def _about_rows(self, kind: str, numbers: int) -> KindVerdict:
        """Numbers some of which may be about one row."""
        sent = f"{numbers:,} numbers as {kind}, some of which may tell of a single row"
        if self._has_enough(numbers):
            return KindVerdict("rows", Severity.DETERMINED, f"{sent}: {self._in_principle}")
        beside = "" if self.shape is None else f"; its rows have {self.shape[1]} columns"
        words = f"{sent}{beside}: a row with nearly as many can be inverted"
        return KindVerdict(kind, Severity.PARTS, words)

    def _sums(self, kind: str, numbers: int, rows: int | None) -> KindVerdict:
        sent = f"{numbers:,} numbers as {kind}"
        if rows is None:
            return KindVerdict(kind, Severity.SUMS, f"{sent}, sums over its rows")
        over = f"{sent}, each over {rows:,} rows"
        if rows < FEWEST_ROWS:
            words = f"{over}: so few can be told from their sums"
            return KindVerdict("rows", Severity.ROWS, words)
        if self._has_enough(numbers):
            return KindVerdict(kind, Severity.DETERMINED, f"{over}: {self._in_principle}")
        return KindVerdict(kind, Severity.SUMS, f"{over}, beside {self.unknowns:,} unknowns")

    def _has_enough(self, numbers: int) -> bool:
        return self.shape is not None and is_determined(numbers, *self.shape)

    @property
    def _in_principle(self) -> str:
        return f"as many as its {self.unknowns:,} unknowns, which are determined in principle"

    def _in_all(self, receiver: str, numbers: int) -> Line:
        enough = self._has_enough(numbers)
        beside = "" if self.unknowns is None else f" beside {self.unknowns:,} unknowns"
        words = f"{numbers:,} numbers in all{beside}"
        words += ": determined in principle" if enough else ""
        severity = Severity.DETERMINED if enough else Severity.LITTLE
        rows = None if self.shape is None else self.shape[0]
        verdict = KindVerdict(_TOGETHER, severity, words)
        return self._as_line(receiver, _TOGETHER, numbers, rows, verdict)


def _receiver(disclosure: Disclosure) -> str:
    if disclosure.receiver != NEIGHBOURS:
        return disclosure.receiver
    n = disclosure.n_receivers
    return f"{n} neighbours" if n > 1 else "1 neighbour"


# What the model tells.


def _inside_model(account: Plan | RunReport) -> Iterator[str]:
    """Landmarks are part of a model, and so are the joint scores of samples."""
    columns = next((d for _, d in account.shapes.values()), 0)
    if account.privacy:
        yield f"is made of noised sums: of any one row it tells {in_words(account.privacy)} at most"
    for kind in sorted(_INSIDE_MODELS):
        numbers = sum(d.floats * len(d.parties) for d in account.disclosures if _stays(d, kind))
        if numbers and columns and account.split == "rows":
            what = "rows of the data" if kind == "rows" else "means of rows"
            yield f"holds {ceil(numbers / columns):,} {what}: whoever has it has them"
    if account.split == "columns" and account.disclosures:
        yield "holds the scores of all samples in the joint components"


def _beyond(lines: Sequence[Line], split: str) -> Iterator[str]:
    """What sums do not hide once there are others, of nearly the same rows or parties."""
    plain = [line for line in lines if not line.noised and line.numbers]
    sums = [line for line in plain if line.sent_as in _SUMMED]
    if sums:
        yield (
            "sums over data that differ in a few rows tell these rows by subtraction: fewer than "
            f"{FEWEST_ROWS} rows added or withdrawn between two fits are as if sent"
        )
    if any(line.sent_as == "aggregate" for line in sums):
        yield (
            "masked sums over other parties tell of a few by subtraction, of one where all but one "
            "are in others: between organisations sites help with sums over one circle only, "
            'unless their policy has same_sum="question"; who colludes with the coordinator can '
            "subtract itself, and stand between two others' sums"
        )
    if split == "rows" and any(line.sent_as in ("moments", "aggregate") for line in sums):
        yield (
            "products with a column that is the same in all rows but a few, such as one of a rare "
            "level, are about these rows: of a single one they tell all columns"
        )
    if split == "rows" and any(line.sent_as == "gram" for line in sums):
        yield (
            "sums of kernel values are over the rows near a landmark: where the kernel is narrow, "
            "or a party far from it, such a number is about the distance of the nearest row, and "
            "of a polynomial of high degree about the row farthest along the landmark; a policy "
            "may bound gamma and degree"
        )
    yield from _add_up(plain)


def _add_up(lines: Sequence[Line]) -> Iterator[str]:
    """After how many fits that differ as many numbers are out as the first party has."""
    receivers: dict[tuple[str, str], list[Line]] = defaultdict(list)
    for line in lines:
        if line.kind != _TOGETHER and line.sent_as not in _SAY_LITTLE | {"aggregate"}:
            receivers[line.party, line.receiver].append(line)
    fits = [
        -(-of[0].unknowns // numbers)
        for of in receivers.values()
        if of[0].unknowns and 0 < (numbers := sum(line.numbers for line in of)) < of[0].unknowns
    ]
    if fits:
        yield (
            f"fits with other parameters add up: {min(fits):,} like this one release as many "
            f"numbers as a party has; budgets of sites end that"
        )


_SUMMANDS = {
    TREE: "along a tree a parent learns the sum over the nodes below it, so of a leaf its own "
    "summand, over its rows alone, and of others a sum over more; all learn the total",
    GOSSIP: "by gossip each neighbour learns a node's own summand, over its rows alone, from the "
    "first mix",
    PUSH_SUM: "by push-sum everybody to whom a node sends learns its own summand, over its rows "
    "alone, from the first mix",
}
_AVERAGED = ".offer_mixture"  # the step by which nodes average


def _averages(account: Plan | RunReport) -> Iterator[str]:
    """Who learns a summand, where nodes of a graph average."""
    averaged = any(d.floats and d.step.endswith(_AVERAGED) for d in account.disclosures)
    if averaged and account.averaging:
        yield _SUMMANDS[account.averaging]


def _weights(account: Plan | RunReport) -> Iterator[str]:
    """How much of a number is one row's, where landmarks are drawn from masked sums.

    A direction of the rows' scatter is made of them in proportion to their squared scores, which
    add up to 1: of n rows a row has c/n of c directions on average. What it has in truth hangs on
    the data, which no audit looks at.
    """
    drawn = any(d.kind == "aggregate" and d.step.endswith(_DRAWN) for d in account.disclosures)
    n = sum(rows for rows, _ in account.shapes.values())
    if not drawn or not n or account.split != "rows":
        return
    directions = min(DIRECTIONS, *(columns for _, columns in account.shapes.values()), n)
    yield (
        f"what is seen of masked sums is over the {n:,} rows of all parties: the largest weight of "
        f"a row in a mean is 1/{FEWEST_ROWS}; in the {directions} directions that landmarks are "
        f"drawn along it is {directions / n:.2f} on average, and a row far from all others may be "
        f"nearly all of one; between organisations all parties see these sums, to check them"
    )


def _largest(account: Plan | RunReport) -> Iterator[str]:
    """What one number tells of one row, where a party's policy lets rows out."""
    steps = [d.step for d in account.disclosures if d.floats]
    sentences = [
        words for step, words in _LARGEST.items() if any(name.endswith(step) for name in steps)
    ]
    if sentences:
        yield (
            f"a party whose policy lets rows out tells {' and '.join(sentences)}; "
            f"others tell a mean of {FEWEST_ROWS} rows in its place, to a power of 2"
        )


def _medians(account: Plan | RunReport) -> Iterator[str]:
    """What the middle of sorted values tells: a value."""
    if any(d.step.endswith(_COUNTED) for d in account.disclosures):
        yield (
            "the median of a column is a value that one row has, or the mean of two rows'; who may "
            "ask by thresholds of its own choice has any other rank's: between organisations "
            "parties hold them against the totals, where sums are masked, and else they are rows"
        )


def _by_cluster(account: Plan | RunReport) -> Iterator[str]:
    """What a masked sum tells where it is of each cluster: masks leave the total."""
    summed = (d for d in account.disclosures if d.kind == "aggregate" and d.floats)
    if any(d.step.endswith(_OF_CLUSTERS) for d in summed):
        yield (
            "masked sums are of each cluster: where one has a single row of all parties' the sum "
            "is that row, and sums of two rounds that differ by one row tell it, though not whose "
            "it is; whoever chooses the centres chooses the clusters"
        )


def _by_group(account: Plan | RunReport) -> Iterator[str]:
    """What sums over one group tell once it is asked for in other components."""
    steps = [d.step for d in account.disclosures if d.floats and d.kind != "aggregate"]
    if any(step.endswith(_OF_GROUPS) for step in steps):
        yield (
            "sums over whole groups are over the same rows in each fit: a policy that keeps rows "
            "makes them of more rows than follow from one fit's coordinates, and fits with other "
            "gammas add up to what their rows have; budgets of sites end that"
        )


def _joint_distances(account: Plan | RunReport) -> Iterator[str]:
    """What a masked sum of distances tells of a party, with what is known of samples or of others.

    The samples' joint coordinates follow from it, up to rotation; a party's columns are linear in
    them, so that as many samples as there are columns, and one, give the map.
    """
    summed = (d for d in account.disclosures if d.kind == "aggregate")
    if account.split != "columns" or not any(d.step.endswith(_JOINT) for d in summed):
        return
    d = sum(columns for _, columns in account.shapes.values())
    yield (
        f"the sum tells how far apart the samples are in all {d:,} columns together, and nothing "
        f"of whose they are; {d + 1:,} samples whose columns at a party are known give these of "
        f"all others, fewer where columns go with each other; who has all other parties' columns "
        f"has these up to rotation"
    )


def _stays(disclosure: Disclosure, kind: str) -> bool:
    is_own = COORDINATOR not in disclosure.parties and disclosure.rows != "joint"
    return is_own and disclosure.kind == kind


def _plain(line: Line) -> dict[str, Any]:
    return {**dataclasses.asdict(line), "severity": line.severity.name.lower()}


def _spoken(lines: Sequence[Line]) -> str:
    few = ", ".join(line.party for line in lines[:_SHOWN])
    return few if len(lines) <= _SHOWN else f"{few} and {len(lines) - _SHOWN} more"
