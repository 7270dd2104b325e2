"""Rows that are in one place, and their owner's: protocols run on them, and nothing is sent.

No host stands between an owner and its own data, and no message is written down as bytes: a step
is a call. What a message may hold is checked as everywhere.
"""

from __future__ import annotations

import dataclasses
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TypeVar

import numpy as np

from eigenmesh.errors import EigenmeshError, PartyFailed
from eigenmesh.runtime.federation import Federation
from eigenmesh.runtime.ledger import Recording
from eigenmesh.runtime.message import Message, check
from eigenmesh.runtime.party import Party, Step
from eigenmesh.runtime.protocol import Protocol
from eigenmesh.runtime.results import Replies, Run, Total
from eigenmesh.runtime.site import OWN_WEIGHTS, Site, SiteView
from eigenmesh.runtime.statements import Statements
from eigenmesh.runtime.study import Stage
from eigenmesh.threads import at_work, one_blas_thread

R = TypeVar("R")
NAME = "party-0"
_log = logging.getLogger("eigenmesh.site")


class Alone(Federation):
    """A federation of one owner with itself: what it runs has no ledger, since nothing is sent.

    `kernel_values` is room that a pass over the rows may fill for the owner.

    >>> from eigenmesh.stages.count import survey
    >>> Alone(np.ones((3, 2))).run(survey).value[0].n_rows
    3
    """

    parties = members = _names = (NAME,)  # the owner
    is_recording, _nothing = True, Recording()  # no message passes
    values_stay = False  # weights come with the array
    is_alone = True
    _statements = Statements()  # of nobody: none is held against an owner

    def __init__(self, rows: Any, kernel_values: Any = None, weights: Any = None) -> None:
        self.split = "rows"
        self.own_rows, self.own_values, self.own_weights = rows, kernel_values, weights
        self.known_columns = dict
        self.remarks = {"ids": ""}  # an array's columns are looked at where it comes in
        self._of_fit = []
        self.align = "strict"
        self.on_loss, self.max_age = "raise", 0
        self.lost, self.reused, self.dropped = {}, Counter(), Counter()
        self.left_out = {}
        self._graph = None
        self._site = Site(NAME, lambda: rows, _data=rows)
        if weights is not None:
            self._site.store[OWN_WEIGHTS] = {"weights": weights}
        self._view = SiteView(self._site, 0, self.parties)
        self._view.sends_nothing = True
        self._view.kernel_values = kernel_values
        self._at_work: dict[type[Party], Party] = {}

    def column_names(self) -> dict[str, tuple[str, ...] | None]:
        """An array has none."""
        return {NAME: None}

    def log_heads(self) -> dict[str, str]:
        """None: nothing leaves."""
        return {}

    def local_sites(self) -> Mapping[str, Site]:
        """The only one."""
        return {NAME: self._site}

    def require(self, role: type[Party], steps: Iterable[Step] | None = None) -> None:
        """Nobody has a policy against itself."""

    def require_stages(self, *stages: Stage) -> None:
        """Nor against any of its fits."""

    def settle(self, **numbers: int) -> None:
        """Nobody else has to hear of it."""

    def run(self, protocol: Protocol[R], *args: Any, **kwargs: Any) -> Run[R]:
        """Run a protocol."""
        with one_blas_thread(), at_work():
            value = protocol.coordinate(self, *args, **kwargs)
        self._at_work = {}
        for about, words in self._site.remarks.items():
            self.remark(about, words)
        reason = getattr(value, "stop_reason", "finished")
        return Run(value, self._nothing, self.parties, {}, {}, {}, reason)

    @contextmanager
    def recording(self) -> Iterator[Recording]:
        """Of nothing: no message passes."""
        yield self._nothing

    def enlist(
        self, role: type[Party], setup: Message, steps: Iterable[Step] | None = None
    ) -> None:
        """Build the party."""
        with _named():
            check(setup)
            self._at_work[role] = role(self._view, setup)
            self._at_work[role].seal()

    def ask(
        self,
        step: Step,
        message: Message | None = None,
        *,
        each: Sequence[Message] | Mapping[str, Message | None] | None = None,
    ) -> Replies:
        """Call a step."""
        if isinstance(each, Mapping) and NAME not in each:
            return Replies((), ())
        if each is not None:
            message = each[NAME] if isinstance(each, Mapping) else each[0]
        arguments = () if message is None else (_as_sent(message),)
        with _named():
            reply = step.function(self._at_work[step.role], *arguments)
            return Replies((None if reply is None else _as_sent(reply),), self.parties)

    def total(
        self,
        step: Step,
        message: Message | None = None,
        *,
        each: Sequence[Message] | Mapping[str, Message] | None = None,
        look: Callable[[str, Any], None] | None = None,
    ) -> Total:
        """A sum of one, of which there is nothing to compare."""
        return Total(self.ask(step, message, each=each).messages[0], self.parties)

    def naming_errors(self) -> AbstractContextManager[None]:
        """As of a step."""
        return _named()

    def close(self) -> None:
        """Nothing is open."""


def _as_sent(message: Message) -> Message:
    """As its receiver would have it: checked, with arrays in one piece that nobody may write to."""
    arrays = {k: v for k, v in vars(message).items() if isinstance(v, np.ndarray)}
    check(message)
    for name, values in arrays.items():
        arrays[name] = np.ascontiguousarray(values).view()
        arrays[name].flags.writeable = False
    return dataclasses.replace(message, **arrays)  # type: ignore[type-var]


@contextmanager
def _named() -> Iterator[None]:
    """Errors as they come from a host: ours with the party's name, others' as one of ours."""
    try:
        yield
    except EigenmeshError as error:
        raise type(error)(error.reason, party=NAME) from None
    except Exception as error:
        _log.exception("site %s: a step failed", NAME)
        too_large = "; rescale its columns" if isinstance(error, OverflowError) else ""
        raise PartyFailed(
            f"party {NAME!r} failed with {type(error).__name__}{too_large}; "
            f"its own log has the details",
            party=NAME,
        ) from error
