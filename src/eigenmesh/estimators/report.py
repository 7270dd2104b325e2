"""What a run cost, what left each party, and what the answer is worth."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from eigenmesh.errors import CostWarning, LossWarning
from eigenmesh.estimators.accuracy import in_short
from eigenmesh.estimators.disclosure import Disclosure, disclosures_in
from eigenmesh.estimators.notebook_display import Shown
from eigenmesh.estimators.traffic import Traffic
from eigenmesh.numerics.centroids import MIN_CLUSTER
from eigenmesh.runtime.consent import SUMS_OVER_ROWS
from eigenmesh.runtime.federation import Federation
from eigenmesh.runtime.ledger import Recording

_FEW = MIN_CLUSTER  # rows; sums over fewer tell too much of each
BOUNDS_IN_WORDS = {
    "kernel_error": "error of the kernel matrix at most",
    "eigengap": "gap behind the last component's eigenvalue at least",
    "sin_theta": "norm of the sines of the angles to the pooled components at most",
}


LESS_ON_A_GRAPH = "take a coordinator (topology=None) if there can be one"


def less_of_columns(door: Any, count: str, on_graph: bool) -> str:
    """How a front door's fit to columns can send less; `count` is its number of components."""
    if on_graph:
        return LESS_ON_A_GRAPH
    if door.method == "one-shot":
        return f"lower {count}"
    # Of other kernels the landmarks' values are sent, however many components are wanted.
    own = {"linear": f"lower {count}", "sigmoid": "fit fewer samples"}
    less = own.get(door.kernel, "lower n_landmarks")
    is_short = door.kernel in ("linear", "poly", "rbf")
    return f"take method='one-shot', or {less}" if is_short else less


_IS_DEAR = "floats were sent where shipping every"


def _dear(floats: int, whole: int, split: str, cheaper: str) -> str:
    unit = "column" if split == "columns" else "row"
    return f"{floats:,} {_IS_DEAR} {unit} takes {whole:,}; {cheaper}, or pool the data if you may"


def _account(recording: Recording, fed: Federation) -> dict[str, Any]:
    """What a ledger tells, by the names of a report."""
    ledger = recording.ledger
    return {
        "floats_up": ledger.floats_up,
        "floats_down": ledger.floats_down,
        "bytes": ledger.bytes,
        "rounds": ledger.rounds,
        "seconds": recording.seconds,
        "by_step": ledger.by_step(),
        "by_party": ledger.by_party(fed.parties),
        "reveals": ledger.revealed(),
        "log_heads": fed.log_heads(),
        "traffic": Traffic.of(ledger),
    }


def _losses(fed: Federation) -> tuple[str, ...]:
    """Who left on the way, and what of theirs the answer has; an outer fit tells it of all runs."""
    if fed.is_recording:
        return ()
    alike: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for name, steps in fed.sent_before_lost().items():
        reason = fed.lost[name].removeprefix(f"party {name!r} is lost: ")
        alike.setdefault((reason, steps), []).append(name)
    return tuple(_loss(names, *why, fed.split) for why, names in alike.items())


def _loss(names: list[str], reason: str, steps: tuple[str, ...], split: str) -> str:
    has, it = ("has", "it") if len(names) == 1 else ("have", "they")
    words = f"{in_short(names)} {has} left ({reason}): this is the answer of the others' {split}"
    if not steps:
        return words
    names_of_steps = dict.fromkeys(step.rpartition(".")[2].replace("_", " ") for step in steps)
    return f"{words}, and of what {it} had sent before: {', '.join(names_of_steps)}"


def _with_caveats(notes: tuple[str, ...], fed: Federation) -> tuple[str, ...]:
    """What users were warned of in the parties' data comes first, unless it is among the notes."""
    return (*(words for words in fed.caveats() if words not in notes), *notes)


def left_out_in_words(reasons: Mapping[str, str]) -> Iterator[str]:
    """Parties that are left out for the same reason are named together."""
    for reason in dict.fromkeys(reasons.values()):
        names = [name for name, own in reasons.items() if own == reason]
        yield f"without {in_short(names)}, left out: {reason}"


@dataclass(frozen=True)
class RunReport(Shown):
    """The account of a fit or a transform.

    Attributes
    ----------
    floats_up, floats_down : elements of the arrays that parties and coordinator sent.
    bytes : of all messages, scalars and headers included.
    rounds : times that parties were asked, or exchanged with their neighbours.
    by_step, by_party : floats sent, by step and by sender.
    reveals : for each party, the kinds that left it and the floats of each.
    parties : whom the answer covers; `lost` says who was lost on the way and `left_out` who was
        not asked for anything but its size, and why.
    reused, dropped : how often an older message of a party stood in for a missing one, and how
        often its neighbours went on without.
    baseline_floats : what shipping every row or column to one place would have cost.
    bounds : proven limits by name: "kernel_error" ‖K − K̂‖_F at most, "eigengap" at least,
        "sin_theta" ‖sin Θ‖_F of the components at most (√n_components is the largest there is).
    notes : caveats, in words.
    split, shapes, disclosures : what `em.audit` is made of: rows or columns, how many of both each
        party has, and what left whom for whom. Empty in models of earlier versions.
    traffic : floats and bytes by round and by link.
    log_heads : number and digest of the last line of a party's own log, of those that keep one;
        `eigenmesh site verify --head` finds at the party whether lines up to it are missing.
    privacy : epsilon and delta of each row, where noise was added; {} where none was.
    averaging : how nodes of a graph averaged, along a "tree" or by "gossip"; empty if there was a
        coordinator.
    precision : in how many bits numbers travelled that need not be exact; empty for all.
    precision_error : by which share of a wanted eigenvalue, at most, that is likely to be off.
    """

    floats_up: int
    floats_down: int
    bytes: int
    rounds: int
    seconds: float
    by_step: Mapping[str, int]
    by_party: Mapping[str, int]
    reveals: Mapping[str, Mapping[str, int]]
    parties: tuple[str, ...]
    lost: Mapping[str, str]
    reused: Mapping[str, int]
    dropped: Mapping[str, int]
    stop_reason: str
    baseline_floats: int
    bounds: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    split: str = ""
    shapes: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    disclosures: tuple[Disclosure, ...] = ()
    log_heads: Mapping[str, str] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)
    traffic: Traffic = field(default_factory=Traffic)
    privacy: Mapping[str, float] = field(default_factory=dict)
    averaging: str = ""
    precision: str = ""
    precision_error: float = 0.0

    @classmethod
    def of(
        cls,
        recording: Recording,
        fed: Federation,
        *,
        stop_reason: str,
        baseline_floats: int,
        bounds: Mapping[str, float] | None = None,
        notes: tuple[str, ...] = (),
        cheaper: str = "",
        privacy: Mapping[str, float] | None = None,
        precision: str = "",
        precision_error: float = 0.0,
    ) -> Self:
        """The report of what a federation recorded.

        `cheaper` says how a fit can send less, and is told to one that sends more than shipping
        all data would.
        """
        ledger, account = recording.ledger, _account(recording, fed)
        if cheaper:  # what an inner fit cost is part of the whole account, which follows
            notes = tuple(note for note in notes if _IS_DEAR not in note)
        notes = (*_with_caveats(notes, fed), *(losses := _losses(fed)))
        for words in losses:
            warnings.warn(words, LossWarning, stacklevel=3)
        floats = ledger.floats_up + ledger.floats_down
        if cheaper and len(fed.parties) > 1 and floats > baseline_floats:
            dear = _dear(floats, baseline_floats, fed.split, cheaper)
            notes = (*notes, dear)
            if not fed.is_recording:  # then an outer fit has the whole account to tell
                warnings.warn(dear, CostWarning, stacklevel=3)
        return cls(
            **account,
            parties=fed.parties,
            lost=dict(fed.lost),
            reused=dict(fed.reused),
            dropped=dict(fed.dropped),
            stop_reason=stop_reason,
            baseline_floats=baseline_floats,
            bounds=dict(bounds or {}),
            notes=notes,
            split=fed.split,
            shapes=fed.shapes(),
            disclosures=disclosures_in(ledger),
            left_out=dict(fed.left_out),
            privacy=dict(privacy or {}),
            averaging=fed.averaged_by,
            precision=precision,
            precision_error=precision_error,
        )

    def over(self, recording: Recording, fed: Federation) -> Self:
        """The same of all that a front door recorded, who asked before this fit began."""
        dear = [note for note in self.notes if _IS_DEAR in note]
        if dear and not fed.is_recording:
            warnings.warn(dear[0], CostWarning, stacklevel=4)
        notes = (*_with_caveats(self.notes, fed), *(losses := _losses(fed)))
        for words in losses:
            warnings.warn(words, LossWarning, stacklevel=4)
        disclosures = disclosures_in(recording.ledger)
        own = {**_account(recording, fed), "disclosures": disclosures, "notes": notes}
        return dataclasses.replace(self, **own)

    @classmethod
    def of_rows_in_one_place(
        cls, seconds: float, baseline_floats: int, notes: tuple[str, ...]
    ) -> Self:
        """The report of a fit for which nothing was sent."""
        return cls(
            floats_up=0,
            floats_down=0,
            bytes=0,
            rounds=0,
            seconds=seconds,
            by_step={},
            by_party={"party-0": 0},
            reveals={},
            parties=("party-0",),
            lost={},
            reused={},
            dropped={},
            stop_reason="all rows are accounted for",
            baseline_floats=baseline_floats,
            notes=notes,
        )

    @property
    def what_left(self) -> str:
        """The kinds that left the parties, in one line, and which of them may tell single rows."""
        kinds = sorted({kind for own in self.reveals.values() for kind in own})
        words = f"what left the parties: {', '.join(kinds) or 'nothing'}"
        return "; ".join([words, *self._few_behind])

    @property
    def _few_behind(self) -> Iterator[str]:
        """Sums over rows that are over fewer than say little of each."""
        if self.split != "rows":
            return
        sums = [
            d for d in self.disclosures if d.kind in SUMS_OVER_ROWS and d.floats and not d.noised
        ]
        single = sorted({d.kind for d in sums if d.rows == 1})
        if single:
            yield f"some {' and '.join(single)} may be over a single row"
        senders = {name for d in sums for name in d.parties}
        tiny = [name for name in self.parties if name in senders and self._n_rows(name) < _FEW]
        if tiny:
            yield f"those of {in_short(tiny)} are over fewer than {_FEW} rows: as good as these"

    def _n_rows(self, party: str) -> int:
        return self.shapes.get(party, (_FEW, 0))[0]

    @property
    def share_of_baseline(self) -> float:
        """Floats sent, up and down, as a share of shipping everything."""
        return (self.floats_up + self.floats_down) / self.baseline_floats

    def to_tree(self) -> dict[str, Any]:
        """Plain numbers and words, for files and for machines."""
        return dataclasses.asdict(self)

    @classmethod
    def from_tree(cls, tree: Mapping[str, Any]) -> Self:
        """The report that `to_tree` gave."""
        parts: dict[str, Any] = {name: tuple(tree[name]) for name in ("parties", "notes")}
        shapes, disclosures = tree.get("shapes", {}), tree.get("disclosures", ())
        parts["shapes"] = {name: (rows, columns) for name, (rows, columns) in shapes.items()}
        parts["disclosures"] = tuple(Disclosure.from_tree(one) for one in disclosures)
        if "traffic" in tree:  # files of earlier versions have none
            parts["traffic"] = Traffic.from_tree(tree["traffic"])
        return cls(**{**tree, **parts})

    def __str__(self) -> str:
        kinds = sorted({kind for own in self.reveals.values() for kind in own})
        lines = [
            f"{self.floats_up:,} floats up, {self.floats_down:,} down, {self.bytes:,} bytes, "
            f"{self.rounds} rounds, {self.seconds:.2f} s",
            f"{self.share_of_baseline:.1%} of the {self.baseline_floats:,} floats that shipping "
            f"everything would cost",
            f"left the parties: {', '.join(kinds) or 'nothing'}",
            f"covers {len(self.parties)} parties; stopped because {self.stop_reason}",
        ]
        lines += [f"without {party}: {reason}" for party, reason in self.lost.items()]
        lines += left_out_in_words(self.left_out)
        lines += [f"{party}: {n} older messages reused" for party, n in self.reused.items()]
        lines += [f"{party}: {n} messages did not arrive" for party, n in self.dropped.items()]
        if self.precision:
            error = f"an eigenvalue is off by at most {self.precision_error:.1e} of it for that"
            lines.append(f"sent in {self.precision}; {error}")
        lines += [
            f"proven: {BOUNDS_IN_WORDS[name]} {bound:.3g}" for name, bound in self.bounds.items()
        ]
        return "\n".join([*lines, *self.notes])
