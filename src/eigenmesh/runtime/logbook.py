"""What a host writes into its site's log: a line a request, and in it the messages that leave."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Any, NamedTuple

from eigenmesh.errors import EigenmeshError, PolicyRefusal
from eigenmesh.runtime.message import Message, covered_by, floats_by_kind
from eigenmesh.runtime.requests import MASK_ROUNDS, Tree
from eigenmesh.runtime.site import Site, SiteView
from eigenmesh.runtime.site_log import Head
from eigenmesh.runtime.statements import as_text

_ASKED = ("op", "run", "turn", "role", "step", "send", "receive")


class Departure(NamedTuple):
    """A message that leaves, as the ledger counts it.

    `rows` are the fewest behind any number of it.
    """

    to: str
    step: str
    kinds: Mapping[str, int]
    floats: int
    rows: int
    bytes: int
    digest: str


class Logbook:
    """The lines of one host; without a log it takes no notes."""

    def __init__(self, site: Site, view: SiteView) -> None:
        self._site, self._view = site, view
        self._departures: list[Departure] = []
        self._sum = ("", 0)  # of the masked sum under way: its step, and its floats
        self.covers: int | None = None  # rows behind the reply under way, where its worth was asked

    def begin_request(self) -> None:
        """Nothing has left for it."""
        self._departures, self.covers = [], None

    def note(self, to: str, step: str, message: Message, encoded: bytes | memoryview) -> None:
        """A message is about to leave."""
        if self._site.log is not None:
            kinds = floats_by_kind(message)
            self._depart(to, step, kinds, self._rows_behind(message, kinds), encoded)

    def begin_sum(self, step: str, floats: int) -> None:
        """A masked sum of so many floats has begun, whose rounds follow."""
        self._sum = (step, floats)

    def note_round(self, op: str, to: str, encoded: bytes) -> None:
        """A message of a masked sum is about to leave: its floats go with the masked summand."""
        if self._site.log is not None:
            step, floats = self._sum
            kinds = {"aggregate": floats if op == "mask" else 0}
            self._depart(to, step, kinds, self._n_rows, encoded)

    def _depart(
        self, to: str, step: str, kinds: Mapping[str, int], rows: int, encoded: bytes | memoryview
    ) -> None:
        digest = sha256(encoded).hexdigest()
        floats = sum(kinds.values())
        self._departures.append(Departure(to, step, kinds, floats, rows, len(encoded), digest))

    @property
    def _n_rows(self) -> int:
        return int(self._site.data.shape[0])

    def _rows_behind(self, message: Message, kinds: Mapping[str, int]) -> int:
        number_of = {
            "fewest": self._site.policy.min_rows,
            "all": self._n_rows,
            "joint": self._n_rows,
        }
        declared = [covered_by(type(message), kind) for kind in kinds]
        rows = [own if isinstance(own, int) else number_of[own] for own in declared]
        return min([self._n_rows, *rows, *([] if self.covers is None else [self.covers])])

    def write(self, tree: Tree, request: bytes, error: EigenmeshError | None) -> Head | None:
        """The line of a request; raises `FileNotWritten` if it cannot be written."""
        log = self._site.log
        if log is None:
            return None
        line: dict[str, Any] = {key: tree[key] for key in _ASKED if key in tree}
        if tree.get("op") in MASK_ROUNDS:
            line["step"] = self._sum[0]
        line |= {"study": self._view.study, "fit": self._view.fit}
        line |= {"submitter": self._site.submitter} if self._site.submitter else {}
        line |= {"got": len(request), "got_digest": sha256(request).hexdigest()}
        line["sent"] = [] if error else [departure._asdict() for departure in self._departures]
        if error is not None:
            line |= {"error": type(error).__name__, "words": as_text(error)}
            line |= {"rule": error.rule} if isinstance(error, PolicyRefusal) else {}
        return log.add(line, sync=tree.get("op") == "dismiss")
