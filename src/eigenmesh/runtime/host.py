"""The host of a site: the only code that faces the network. Bytes in, bytes out, never raises.

It checks, in this order: the form of a request; the order of turns (a turn is used once, so late
and duplicated requests are refused); the run; whether the study that the party was enlisted by has
this step next, with a message of this size; the message against the step's annotation. Only then
it runs the step, and holds the reply against the schedule, its annotation and the site's policy.
An error leaves as the name of one of our classes and our own words; what another library said
stays in the site's log.
"""

from __future__ import annotations

import hashlib
import json
import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from eigenmesh.errors import (
    EigenmeshError,
    MessageRefused,
    PartyFailed,
    PartyLost,
    StaleRound,
    StepRefused,
)
from eigenmesh.runtime import wire
from eigenmesh.runtime.consent import Consent
from eigenmesh.runtime.content import Relays, numbers_over_rows
from eigenmesh.runtime.courier import naming
from eigenmesh.runtime.ledger import COORDINATOR, step_label
from eigenmesh.runtime.logbook import Logbook
from eigenmesh.runtime.mailbox import Mailbox
from eigenmesh.runtime.message import (
    NO_LIMITS,
    Limits,
    Message,
    decode,
    encode,
    floats_by_kind,
)
from eigenmesh.runtime.party import Party, Signature, Step, steps_of
from eigenmesh.runtime.protocol import is_scheduled, known_roles
from eigenmesh.runtime.requests import (
    MASK_ROUNDS,
    Tree,
    as_bytes,
    error_tree,
    message_in,
    read_request,
    rule_alone,
)
from eigenmesh.runtime.schedule import (
    MASKED,
    NOWHERE,
    START,
    Ask,
    Enlist,
    Match,
    Own,
    Places,
    Positions,
    fitting,
    going,
    of_rows,
    own_of,
)
from eigenmesh.runtime.site import Site, SiteView
from eigenmesh.runtime.spanning_tree import NOBODY, Losses
from eigenmesh.runtime.study import Guard, Study, read_study, without_names
from eigenmesh.runtime.topology import senders_to
from eigenmesh.safe_files import write_whole

if TYPE_CHECKING:  # what it needs is installed where sums are masked
    from eigenmesh.runtime.masked_sum import Masker

_MOST_RUNS = 10_000  # whose names are kept
_log = logging.getLogger("eigenmesh.site")


class Enlisted(NamedTuple):
    """A party in the current run, what it was built from, and what may be asked of it."""

    party: Party
    setup: bytes
    steps: Mapping[str, Step]
    calls: dict[str, int]


class Host:
    """Guards one site. `index` is its place among `names`, the parties of the federation.

    `relays` is what the engine does with messages between neighbours.
    """

    def __init__(
        self,
        site: Site,
        index: int,
        names: tuple[str, ...],
        roles: Mapping[str, type[Party]] | None = None,
        relays: Relays = "no",
    ) -> None:
        self.site = site
        self._relays = relays
        self._roles = roles
        self._view = SiteView(site, index, names)
        self._lock = threading.Lock()
        self._run = ""
        self._seen_runs: dict[str, None] = {}  # in the order in which they began
        self._turn, self._turn_before = 0, 0
        self._undone = 0  # exchanges of the run that were taken back
        self._unfinished = 0  # the turn of an exchange that was begun and not ended
        self._enlisted: dict[str, Enlisted] = {}
        self._guard: Guard | None = None
        self._consents = Consent(site, self._view)
        self._logbook = Logbook(site, self._view)
        self._masker: Masker | None = None
        self._asked_so_far = b""  # a digest of what a secure study has asked, whichever run it is
        self._snapshot: tuple[int, dict[str, Tree]] = (0, {})
        self._positions_before: Positions = START  # of the exchange that the snapshot is of
        # The request of an exchange whose second half is still to come, as it came and as read.
        self._half_done: tuple[bytes, Tree] | None = None
        self._mailbox = Mailbox(self._view)
        self._operations: dict[str, Callable[[Tree], Tree]] = {
            "require": self._require,
            "enlist": self._enlist,
            "step": self._step,
            "sum": self._begin_sum,
            **dict.fromkeys(MASK_ROUNDS, self._go_on_with_sum),
            "rollback": self._rollback,
            "dismiss": self._dismiss,
        }
        self._resume()

    # What an engine calls.

    @property
    def party(self) -> str:
        """Name of the site."""
        return self.site.name

    def handle(self, request: bytes) -> bytes:
        """Answer a request of the coordinator."""
        return self._guarded(request, lambda tree: {"turn": tree["turn"], "ok": self._answer(tree)})

    def offer(self, request: bytes) -> tuple[bytes, dict[int, bytes] | None]:
        """First half of an exchange: this party's messages by neighbour.

        Nobody hears of it until the second half is over, unless it failed: then there is a reply,
        and None in place of messages.
        """
        outboxes: list[dict[int, bytes]] = []

        def offer(tree: Tree) -> None:
            outboxes.append(self._offer(tree, request))

        reply = self._guarded(request, offer)
        return reply, None if reply else outboxes[0]

    def accept(self, request: bytes, inbox: Mapping[int, bytes]) -> bytes:
        """Second half: take the neighbours' messages; the reply is the receipt of both halves."""

        def accept(tree: Tree) -> Tree:
            return {"turn": tree["turn"], "ok": self._accept(tree, request, inbox)}

        return self._guarded(request, accept)

    # How every request is treated.

    def _guarded(self, request: bytes, answer: Callable[[Tree], Tree | None]) -> bytes:
        """The reply to a request, and its line in the site's log; no reply to half an exchange."""
        if not self._lock.acquire(blocking=False):
            busy = PartyLost("is still at work on an earlier request", party=self.site.name)
            return self._logged({}, request, None, busy)
        tree: Tree = {}
        reply: Tree | None = None
        error: EigenmeshError | None = None
        self._logbook.begin_request()
        try:
            try:
                tree = self._read(request)
                reply = answer(tree)
            except EigenmeshError as raised:
                error = raised
            except (Exception, SystemExit) as raised:
                error = self._own_words(raised)
            return self._logged(tree, request, reply, error)
        finally:
            self._lock.release()

    def _logged(
        self, tree: Tree, request: bytes, reply: Tree | None, error: EigenmeshError | None
    ) -> bytes:
        """The reply, with the head of the log that it is in; what is not logged does not leave."""
        head = None
        try:
            head = self._logbook.write(tree, request, error)
        except Exception as raised:
            error = self._own_words(raised)
        if error is not None:
            reply = error_tree(self._told(error), tree.get("turn", -1))
        if reply is None:
            return b""
        return wire.dumps(reply if head is None else {**reply, "log": str(head)})

    def _read(self, request: bytes) -> Tree:
        """A request is read where it arrives; its second half comes with the same bytes."""
        if self._half_done is not None and self._half_done[0] == request:
            return self._half_done[1]
        return read_request(request)

    def _told(self, error: EigenmeshError) -> EigenmeshError:
        """What leaves of an error: between organisations the name of a rule, the rest is logged."""
        if self.site.trust == "domain":
            return error
        _log.info("site %s: %s", self.site.name, error)
        return rule_alone(error, self.site.name)

    def _own_words(self, error: BaseException) -> EigenmeshError:
        _log.exception("site %s: a step failed", self.site.name)
        too_large = "; rescale its columns" if isinstance(error, OverflowError) else ""
        return PartyFailed(
            f"party {self.site.name!r} failed with {type(error).__name__}{too_large}; "
            f"its own log has the details",
            party=self.site.name,
        )

    def _answer(self, tree: Tree) -> Tree:
        operation = self._operations.get(tree["op"])
        if operation is None:
            raise StepRefused(f"operation {tree['op']!r} is not known", party=self.site.name)
        if tree["op"] == "require":  # only a question: it changes nothing, so it takes no turn
            return operation(tree)
        self._take_turn(tree)
        if self._masker is not None and tree["op"] not in MASK_ROUNDS:
            self._masker.drop()
        answer = operation(tree)
        self._write_state()
        return answer

    def _take_turn(self, tree: Tree) -> None:
        """Turns of a run only go up. A run that this host has not seen begins by enlisting."""
        op, run, turn = tree["op"], tree["run"], tree["turn"]
        begins = op == "enlist" and run not in self._seen_runs
        if not begins and run != self._run:
            raise StaleRound(f"run {run!r} is not the current one", party=self.site.name)
        if not begins and turn <= self._turn:
            raise StaleRound(
                f"turn {turn} is over, this party is past turn {self._turn}", party=self.site.name
            )
        goes_on = not begins and op not in ("rollback", "dismiss")
        if goes_on and self._unfinished and self._guard is not None:
            raise StepRefused(
                "an exchange that was begun is ended or undone first", party=self.site.name
            )
        self._turn_before, self._turn = self._turn, turn
        self._half_done = None
        if not begins and op != "dismiss":
            self._consents.require_standing()

    # The coordinator's operations.

    def _require(self, tree: Tree) -> Tree:
        """Would the policy let these steps' replies out? Nothing is built, nothing leaves."""
        if not self._run:
            self.site.renew(self.site)
        self._consent(tree)
        return None

    def _consent(self, tree: Tree) -> Study | None:
        """The study that a request is about, if it concerns this site and its policy allows it."""
        for step in self._listed(tree["role"], tree["steps"]).values():
            self.site.policy.check_kinds(step.reveals, step.name, self.site.name)
        if "study" not in tree:
            return None
        with naming(self.site.name):
            study = read_study(tree["study"])
            index, names = self._view.index, self._view.names
            if not study.is_of(names) or names[index] != self.site.name:
                raise StepRefused("the study is of other parties")
            if self.site.split not in (None, study.scope.split):
                raise StepRefused("the study says that the site's data are split otherwise")
            if self.site.name in study.scope.not_in:
                raise StepRefused("the study says that this site takes no part in it")
            study.require_built()
        is_question = tree["op"] == "require"
        self._consents.require(study, tree.get("fit", []), self._owns, is_asked_only=is_question)
        return study

    def _enlist(self, tree: Tree) -> Tree:
        """Build a party. A new run sends the parties of the old one home."""
        if tree["run"] != self._run:
            self.site.renew(self.site)
        study = self._consent(tree)
        if tree["run"] != self._run:
            self._note_run(tree["run"])
            self._run = tree["run"]
            self._enlisted, self._snapshot, self._undone, self._unfinished = {}, (0, {}), 0, 0
            self._mailbox = Mailbox(self._view)
            self._guard = None if study is None else Guard(study)
            self._consents.begin(study, tree.get("fit", []))
            self._masker, self._asked_so_far = None, b""
        if self._guard is None and is_scheduled(self._role(tree["role"])):
            raise StepRefused(
                f"role {tree['role']!r} is enlisted by a study only", party=self.site.name
            )
        setup = bytes(as_bytes(tree, "message"))
        if self._guard is not None:
            if study is None or study.digest != self._guard.study.digest:
                raise StepRefused("a run has one study", party=self.site.name)
            agreed = self._admitted(tree, ("enlist", tree["role"]))
            if not any(isinstance(p.node, Enlist) and p.node.agrees(setup) for p in agreed):
                raise StepRefused("the setup is not the study's", party=self.site.name)
            self._guard.move(agreed)
        role = self._role(tree["role"])
        free = self._guard is None  # else the study says what may be asked, and when
        steps = self._listed(tree["role"], tree["steps"]) if free else steps_of(role)
        with self._consents.question(tree, lambda: [self._nameless(tree["role"], setup)]):
            self._build(tree["role"], setup, message_in(tree, role.Setup), steps)
        return None

    def _nameless(self, role: str, setup: bytes) -> bytes:
        return encode(without_names(decode(self._role(role).Setup, setup)))

    def _note_run(self, run: str) -> None:
        """A request of an old run must not begin it again; of very old ones nothing is kept."""
        self._seen_runs[run] = None
        while len(self._seen_runs) > _MOST_RUNS:
            del self._seen_runs[next(iter(self._seen_runs))]
        if self.site.state_dir is not None:  # beside the state, which goes when a run is over
            write_whole(self.site.file(".runs"), wire.dumps(list(self._seen_runs)), private=True)

    # What a study lets pass.

    def _admitted(self, tree: Tree, key: tuple[str, ...]) -> Places:
        """The places of the study that a request fits; no study, no places."""
        if self._guard is None:
            return NOWHERE
        with naming(self.site.name):
            return self._guard.admit(key, tree.get("told", _NOTHING), self._owns)

    def _owns(self) -> Own:
        return own_of(*self._view.shape, len(self._view.neighbours), self._view.index)

    def _build(self, role: str, setup: bytes, message: Message, steps: Mapping[str, Step]) -> Party:
        party = self._role(role)(self._view, message)
        party.seal()
        before = self._enlisted.get(role)
        calls = before.calls if before else {}  # enlisting anew does not reset the policy's count
        self._enlisted[role] = Enlisted(party, setup, steps, calls)
        return party

    def _step(self, tree: Tree) -> Tree:
        with self._consents.question(tree, lambda: [_message_bytes(tree)]):
            step, result, _ = self._reply_to(tree)
        if result is None:
            return None
        encoded = encode(result)
        self._logbook.note(COORDINATOR, step_label(step), result, encoded)
        data, voucher = np.frombuffer(encoded, np.uint8), self._voucher(result)
        return data if voucher is None else {"message": data, "voucher": voucher}

    def _reply_to(self, tree: Tree) -> tuple[Step, Message | None, Places]:
        """A step, what it gives, and where in the study it may have been asked for."""
        enlisted, step = self._asked(tree, "step")
        takes = step.signature.takes
        if (takes is None) != (tree.get("message") is None):
            expected = takes.__name__ if takes else "no message"
            raise MessageRefused(f"step {step.name!r} takes {expected}", party=self.site.name)
        admitted = self._admitted(tree, ("step", tree["role"], step.name))
        admitted = self._plain_or_masked(admitted, tree["op"] == "sum")
        arguments = [] if takes is None else [message_in(tree, takes)]
        fits = self._fitting(admitted, arguments, "down")
        places = self._possible(fits)
        self._view.shown = self._shown_total(tree, places)
        self._require_vouched(tree, arguments, places)
        if self._guard is not None and self._guard.study.scope.secure:
            self._note_question(tree)
        self._permit(enlisted, step, MASKED if tree["op"] == "sum" else step.reveals)
        if self._guard is not None:
            self._guard.move(places)
        result = step.function(enlisted.party, *arguments)
        self._check_type(step, result)
        if result is None:
            return step, None, places
        replies = (result,)
        if self._guard is not None:
            places = self._possible(self._fitting(fits, replies, "up"))
            self._guard.move(places)
        self._release(enlisted, step, replies, places)
        return step, result, places

    # What others gave, and what goes on to others.

    def _require_vouched(self, tree: Tree, arguments: list[Message], places: Places) -> None:
        """Between organisations rows of others come with their signatures.

        Points that no party gave, because they follow from sums, are the same for all: masks see to
        it. That they do follow a party says that has seen these sums.
        """
        handed_on = [message for message in arguments if message.is_handed_on]
        if self.site.trust == "domain" or self._guard is None or not handed_on:
            return
        if all(_is_sum(place) and not _is_apart(place) for place in places):
            with naming(self.site.name):
                if not any(e.party.vouches_for(handed_on[0]) for e in self._enlisted.values()):
                    raise StepRefused(
                        "points that no party gave follow from totals that were shown"
                    )
            return
        from eigenmesh.runtime.vouchers import require_vouched

        of = (self.site, self._view.names, self._guard.study.digest, self._run)
        with naming(self.site.name):
            require_vouched(*of, handed_on[0], tree.get("vouchers", []))

    def _voucher(self, result: Message) -> Tree:
        """Between organisations rows that may go to others leave with a signature."""
        if self.site.trust == "domain" or self._guard is None:
            return None
        from eigenmesh.runtime.vouchers import voucher_for

        return voucher_for(self.site, self._guard.study.digest, self._run, result)

    # Masked sums.

    def _shown_total(self, tree: Tree, places: Places) -> Callable[[type[Message]], Any] | None:
        """Between organisations what follows from a masked total is asked for with that total."""
        if self.site.trust == "domain" or not places.shows:
            return None
        masked = tree["op"] == "sum"
        if not masked and all(_tells_single_rows(place) for place in places):
            return None  # it leaves where rows do, and there is no total to follow from
        if not masked or "total" not in tree or self._masker is None:
            raise StepRefused(
                "what follows from a total comes with it, under masks", party=self.site.name
            )
        return partial(self._masker.shown, words=tree["total"])

    def _plain_or_masked(self, places: Places, masked: bool) -> Places:
        """In a secure study what is summed is answered under masks, and nothing else is."""
        secure = self._guard is not None and self._guard.study.scope.secure
        if not secure and not masked:
            return places
        fits = places.sums if masked else places.others
        if not secure or not fits:
            words = "is not" if masked else "is"
            raise StepRefused(f"this step {words} a masked sum in the study", party=self.site.name)
        return fits

    def _note_question(self, tree: Tree) -> None:
        """What a sum is of, whichever run it is in: the digest of all that was asked up to it."""
        question = [tree["role"], tree["step"], tree.get("told"), len(self._asked_so_far)]
        words = json.dumps(question, sort_keys=True).encode()
        whole = self._asked_so_far + words + _message_bytes(tree)
        self._asked_so_far = hashlib.sha256(whole).digest()

    def _begin_sum(self, tree: Tree) -> Tree:
        """Run a step whose reply leaves under masks only."""
        from eigenmesh.runtime.masked_sum import Masker, describe, too_large
        from eigenmesh.runtime.masks import summed_floats

        try:
            with self._consents.question(tree, lambda: [_message_bytes(tree)]):
                step, result, places = self._reply_to(tree)
        except (ArithmeticError, np.linalg.LinAlgError) as error:
            _log.exception("site %s: a step failed", self.site.name)
            with naming(self.site.name):
                raise too_large() from error
        assert self._guard is not None, "a sum without a study was refused"
        if result is None:
            raise StepRefused("a step that gives nothing has no sum", party=self.site.name)
        study, numbers = self._guard.study, self._guard.numbers
        if self._masker is None:
            self._masker = Masker(self.site, self._view.index, study, self._run)
        request = b"" if _is_apart(places[0]) else _message_bytes(tree)
        label = f"{tree['role']}.{tree['step']}"
        subject = describe(study, self._run, tree["turn"], label, numbers, request)
        with naming(self.site.name):
            shown = None if self._view.shown is None else tree["total"]
            opening = self._masker.begin(
                tree["turn"], label, subject, self._asked_so_far, result, shown
            )
        self._logbook.begin_sum(step_label(step), summed_floats(result))
        return self._round_of_sum(tree["op"], opening)

    def _go_on_with_sum(self, tree: Tree) -> Tree:
        if self._masker is None:
            raise StepRefused("no masked sum is under way", party=self.site.name)
        with naming(self.site.name):
            reply = self._masker.answer(tree["op"], as_bytes(tree, "message"))
        return self._round_of_sum(tree["op"], reply)

    def _round_of_sum(self, op: str, reply: Message) -> Tree:
        encoded = encode(reply)
        self._logbook.note_round(op, COORDINATOR, encoded)
        return np.frombuffer(encoded, np.uint8)

    def _release(
        self,
        enlisted: Enlisted,
        step: Step,
        messages: Iterable[Message],
        places: Places,
    ) -> None:
        """Let the site's policy look at what is about to leave, if it is one that looks."""
        if self.site.policy.minds_content:
            scope = None if self._guard is None else self._guard.study.scope
            at = (
                (self._owns(), scope.split, scope.secure)
                if scope
                else (self._owns(), "rows", False)
            )
            self._logbook.covers = self._consents.release(
                enlisted.party, step, messages, places, at
            )
        if self.site.policy.budget is not None:
            masked = self._guard is not None and self._guard.study.scope.secure
            plain = () if masked and all(map(_is_sum, places)) else messages
            floats = [numbers_over_rows(floats_by_kind(message)) for message in plain]
            self._consents.charge(sum(floats))
        elif self._consents.minds_versions and any(map(_tells_numbers, messages)):
            self._consents.require_version()

    def _fitting(self, places: Places, messages: Sequence[Message], way: str) -> Places:
        """The places of the study at which messages "up" or "down" may be so large."""
        return fitting(places, messages, way, self._owns)

    def _possible(self, places: Places) -> Places:
        """All, or the earliest where that is enough: a party may be 50 iterations behind."""
        is_behind = self._guard is not None and self._guard.may_be_behind
        return places.first if is_behind else places

    def _rollback(self, tree: Tree) -> Tree:
        """Undo the exchange of a given turn, if this party took part in it.

        Only what came last, once, and no more often than there are parties that may leave: else
        one round could be asked for again and again, each time with other messages.
        """
        turn, states = self._snapshot
        if turn != tree["undo"] or not turn:
            return None
        if turn != self._turn_before or self._undone >= len(self._view.names):
            raise StepRefused("only the last exchange is undone, when a party has left")
        self._snapshot, self._undone, self._unfinished = (0, {}), self._undone + 1, 0
        for role, state in states.items():
            self._enlisted[role].party.restore(state)
        if self._guard is not None:
            self._guard.positions = self._positions_before
        return None

    def _dismiss(self, tree: Tree) -> Tree:
        self._run, self._enlisted, self._snapshot, self._guard = "", {}, (0, {}), None
        self._masker, self._unfinished = None, 0
        return None

    # Exchange between neighbours.

    def _offer(self, tree: Tree, request: bytes) -> dict[int, bytes]:
        if tree["op"] != "exchange":
            raise MessageRefused("the request is no exchange", party=self.site.name)
        if self._relays == "open" and self.site.trust == "organisations":
            raise StepRefused(
                "neighbours' messages would pass a third party that can read them",
                party=self.site.name,
            )
        self._take_turn(tree)
        enlisted, step = self._asked(tree, "send")
        self._asked(tree, "receive")
        key = ("exchange", tree["role"], tree["send"], tree["receive"])
        near = self._checked_neighbours(tree)
        places = self._along_as_declared(tree, self._admitted(tree, key))
        self._view.neighbours = near
        self._take_place_on_tree(tree, near)
        if self._guard is not None:
            self._positions_before = self._guard.positions
        self._snapshot = (
            tree["turn"],
            {role: e.party.export() for role, e in self._enlisted.items()},
        )
        if _receivers(tree, near):
            self._permit(enlisted, step, step.reveals)
        with self._consents.question(tree, list):
            offered, places = self._offered(enlisted, step, places, _receivers(tree, near))
        self._mailbox.sizes = _agreed_limits([self._known_sizes(ask) for ask in places.asks])
        outbox = self._mailbox.pack(tree, offered)
        for to, _, size in self._mailbox.sent:
            name, encoded = self._view.names[to], memoryview(outbox[to])[-size:]
            self._logbook.note(name, step_label(step), offered[to], encoded)
        self._half_done, self._unfinished = (request, tree), tree["turn"]
        self._write_state()  # what was offered has left, whether or not the second half comes
        return outbox

    def _known_sizes(self, node: Ask) -> Limits:
        """How large neighbours' messages are: over columns all have the same samples."""
        if self._guard is None or not node.up_by_rows:
            return node.common_up
        if self._guard.study.scope.split != "columns":
            return node.common_up
        return {**node.common_up, **of_rows(node.up_by_rows, self._owns().rows)}

    def _offered(
        self, enlisted: Enlisted, step: Step, places: Places, receivers: Sequence[int]
    ) -> tuple[dict[int, Message], Places]:
        """What a step has for each receiver, and the places of the study at which it may be.

        Without receivers it is not even asked: a node may have nothing to send yet.
        """
        offered = step.function(enlisted.party) if receivers or not self._view.way else {}
        if not step.signature.to_each_neighbour:
            offered = dict.fromkeys(receivers, offered)
        elif self._view.way:  # of what it has for all that are near on the tree
            offered = {to: message for to, message in offered.items() if to in receivers}
        if set(offered) != set(receivers):
            raise PartyFailed(
                f"step {step.name!r} offers messages to {sorted(offered)}, they are to go to "
                f"{sorted(receivers)}",
                party=self.site.name,
            )
        for message in offered.values():
            self._check_type(step, message)
        distinct = list({id(message): message for message in offered.values()}.values())
        places = self._fitting(places, distinct, "up")
        if self._guard is not None:
            self._guard.move(places)
        self._release(enlisted, step, distinct, places)
        return offered, places

    def _along_as_declared(self, tree: Tree, places: Places) -> Places:
        """The places of the study at which a round is along a tree, if this one is, or not."""
        fits = going(places, _way(tree))
        if places and not fits:
            raise StepRefused("the study has this exchange on other links", party=self.site.name)
        return fits

    def _take_place_on_tree(self, tree: Tree, near: Sequence[int]) -> None:
        """Parent and children, by the graph and who has left: this host's own tree, not another's.

        Of who has left it takes the coordinator's word, as for any neighbour that is missing.
        """
        along = tree.get("along", _ALL_LINKS)
        view, parent = self._view, along["parent"] if along["parent"] >= 0 else None
        links = tuple((i, j) for i, j in along["cut"])
        view.way, view.missing = along["way"], Losses(tuple(along["gone"]), links)
        view.parent, view.children = parent, tuple(along["children"])
        if not view.way or self._guard is None:
            return
        scope, own = self._guard.study.scope, view.index
        if (view.missing != NOBODY and scope.on_loss == "raise") or own in view.missing.nodes:
            raise StepRefused("nobody has left by this study, or this party has")
        spanning = scope.tree_without(view.missing)
        mine = (spanning.parents.get(own), spanning.children.get(own))
        senders = {"up": view.children, "down": () if parent is None else (parent,)}[view.way]
        receivers = spanning.receivers(own, view.way)
        expected = set(along["to"]) <= set(receivers) and set(along["hears"]) <= set(senders)
        if (parent, view.children) != mine or not expected or not {*receivers, *senders} <= {*near}:
            raise StepRefused("the request has another tree than the study's graph")

    def _checked_neighbours(self, tree: Tree) -> tuple[int, ...]:
        """The neighbours of an exchange, and what becomes of losses: with a study, as it says."""
        own, n_parties, numbers = self._view.index, len(self._view.names), tree["neighbours"]
        heard = tree.get("hears", numbers)
        for parties in (numbers, heard):
            are_parties = all(type(n) is int and 0 <= n < n_parties and n != own for n in parties)
            if not are_parties or len(set(parties)) < len(parties):
                raise MessageRefused(
                    "the request lists neighbours that are no other parties, or twice"
                )
        if self._guard is not None:
            scope = self._guard.study.scope
            graph = scope.graph
            if graph is None or not set(numbers) <= set(graph.adj[own]):
                raise StepRefused("the request lists neighbours that are not the study's")
            if "hears" in tree and not set(heard) <= set(senders_to(graph, own)):
                raise StepRefused("the request lists neighbours that are not the study's")
            if (tree["on_loss"], tree["max_age"]) != (scope.on_loss, scope.max_age):
                raise StepRefused("what becomes of losses is not what the study says")
        return tuple(numbers)

    def _accept(self, tree: Tree, request: bytes, inbox: Mapping[int, bytes]) -> Tree:
        if self._half_done is None or self._half_done[0] != request:
            raise StaleRound(f"turn {tree['turn']} is not under way", party=self.site.name)
        self._half_done = None  # a second delivery would be taken twice
        _, send = self._asked(tree, "send")
        enlisted, receive = self._asked(tree, "receive")
        messages, missed = self._mailbox.unpack(tree, send, receive, inbox)
        if messages or not self._view.way:
            with self._consents.question(tree, lambda: map(encode, messages.values())):
                receive.function(enlisted.party, messages)
        self._unfinished = 0
        self._write_state()
        if self.site.trust != "domain":
            missed = [[sender, "", replaced] for sender, _, replaced in missed]
        return {"sent": self._mailbox.sent, "missed": missed}

    # Roles and steps.

    def _role(self, name: Any) -> type[Party]:
        roles = known_roles() if self._roles is None else self._roles
        if not isinstance(name, str) or name not in roles:
            raise StepRefused(f"role {name!r} is not known at this site", party=self.site.name)
        return roles[name]

    def _listed(self, role: Any, names: Any) -> dict[str, Step]:
        offered = steps_of(self._role(role))
        if names == []:
            return {}
        if not isinstance(names, list) or not all(type(n) is str and n in offered for n in names):
            raise StepRefused(
                f"role {role!r} offers only {', '.join(offered)}", party=self.site.name
            )
        return {name: offered[name] for name in names}

    def _asked(self, tree: Tree, key: str) -> tuple[Enlisted, Step]:
        """The step that a field of the request names, if it may be used in that place."""
        enlisted = self._enlisted.get(tree["role"])
        if enlisted is None or tree[key] not in enlisted.steps:
            raise StepRefused(
                f"step {tree[key]!r} of {tree['role']!r} was not enlisted in this run",
                party=self.site.name,
            )
        step = enlisted.steps[tree[key]]
        if not _SUITS[key](step.signature):
            raise StepRefused(
                f"step {step.name!r} of {tree['role']!r} cannot {_DOES[key]}",
                party=self.site.name,
            )
        return enlisted, step

    def _permit(self, enlisted: Enlisted, step: Step, kinds: frozenset[str]) -> None:
        """Let the site's policy refuse before the step is run."""
        name = self.site.name
        self.site.policy.check_kinds(kinds, step.name, name)
        calls = enlisted.calls[step.name] = enlisted.calls.get(step.name, 0) + 1
        self.site.policy.check_calls(calls, step.name, name)

    def _check_type(self, step: Step, result: Any) -> None:
        if type(result) is not (step.signature.gives or type(None)):
            raise PartyFailed(
                f"step {step.name!r} gave {type(result).__name__}, not what it declares",
                party=self.site.name,
            )

    # State on the site's own disk.

    def export(self) -> bytes:
        """Everything a restarted host needs to go on with the run; raw data are no part of it."""
        parties = {
            role: {
                "setup": np.frombuffer(e.setup, np.uint8),
                "steps": list(e.steps),
                "calls": e.calls,
                "state": e.party.export(),
            }
            for role, e in self._enlisted.items()
        }
        snapshot_turn, states = self._snapshot
        return wire.dumps(
            {
                "run": self._run,
                "turn": self._turn,
                "seen_runs": list(self._seen_runs),
                "neighbours": self._view.neighbours,
                "guard": None if self._guard is None else self._guard.export(),
                "consent": self._consents.export(),
                "masks": None if self._masker is None else self._masker.export(),
                "asked_so_far": self._asked_so_far.hex(),
                "undone": self._undone,
                "unfinished": self._unfinished,
                "turn_before": self._turn_before,
                "before": [[pc, list(turns)] for pc, turns in self._positions_before],
                "parties": parties,
                "snapshot_turn": snapshot_turn,
                "snapshot": states,
            }
        )

    def restore(self, exported: bytes) -> None:
        """Go on where `export` was called."""
        tree = wire.loads(exported)
        self._run, self._turn, self._enlisted = tree["run"], tree["turn"], {}
        self._seen_runs = dict.fromkeys(tree["seen_runs"])
        self._view.neighbours = tuple(tree["neighbours"])
        self._snapshot = (tree["snapshot_turn"], tree["snapshot"])
        self._undone, self._turn_before = tree["undone"], tree["turn_before"]
        self._unfinished = tree["unfinished"]
        self._consents.restore(tree["consent"])
        self._guard = None if tree["guard"] is None else Guard.restored(tree["guard"])
        self._positions_before = frozenset((pc, tuple(turns)) for pc, turns in tree["before"])
        self._asked_so_far = bytes.fromhex(tree["asked_so_far"])
        self._masker = self._restored_masker(tree["masks"])
        for role, saved in tree["parties"].items():
            setup = bytes(as_bytes(saved, "setup"))
            message = decode(self._role(role).Setup, setup)
            party = self._build(role, setup, message, self._listed(role, saved["steps"]))
            party.restore(saved["state"])
            self._enlisted[role].calls.update(saved["calls"])
        # Parties that are built anew have read again what the run goes on from: it counts once.
        self._consents.restore(tree["consent"])

    def _restored_masker(self, tree: Tree) -> Masker | None:
        if tree is None or self._guard is None:
            return None
        from eigenmesh.runtime.masked_sum import Masker

        return Masker.restored(self.site, self._view.index, self._guard.study, tree)

    @property
    def _state_path(self) -> Path | None:
        return None if self.site.state_dir is None else self.site.file(".state")

    def _write_state(self) -> None:
        if self._state_path is None:
            return
        if not self._enlisted:  # the run is over: a host started later begins afresh
            self._state_path.unlink(missing_ok=True)
            return
        # A run does not outlive the machine's: what a restarted process finds need not be synced.
        write_whole(self._state_path, self.export(), private=True, durable=False)

    def _resume(self) -> None:
        if self.site.state_dir is not None and self.site.file(".runs").exists():
            runs = wire.loads(self.site.file(".runs").read_bytes())
            self._seen_runs = dict.fromkeys(map(str, runs))
        if self._state_path is None or not self._state_path.exists():
            return
        try:
            self.restore(self._state_path.read_bytes())
        except (EigenmeshError, KeyError, TypeError) as error:
            raise PartyFailed(
                f"the state of party {self.site.name!r} in {self._state_path.name} is damaged "
                f"({error}); remove the file to start it afresh",
                party=self.site.name,
            ) from None


_NOTHING: Tree = {}  # is told
# Of a round between all neighbours.
_ALL_LINKS: Tree = {"way": "", "parent": -1, "children": [], "gone": [], "cut": []}


def _way(tree: Tree) -> str:
    """The way of a round along a tree; empty for one between all neighbours."""
    return str(tree.get("along", _ALL_LINKS)["way"])


def _receivers(tree: Tree, near: Sequence[int]) -> Sequence[int]:
    """To whom a party sends in an exchange."""
    return tree["along"]["to"] if "along" in tree else near


def _tells_numbers(message: Message) -> bool:
    return any(floats_by_kind(message).values())


def _is_sum(place: Match) -> bool:
    return isinstance(place.node, Ask) and place.node.summed


def _is_apart(place: Match) -> bool:
    return isinstance(place.node, Ask) and place.node.apart


def _tells_single_rows(place: Match) -> bool:
    gives = place.node.step.signature.gives if isinstance(place.node, Ask) else None
    return gives is not None and gives.covers == 1


def _message_bytes(tree: Tree) -> bytes:
    return b"" if tree.get("message") is None else bytes(as_bytes(tree, "message"))


def _agreed_limits(limits: list[Limits]) -> Limits:
    """What all places of a study say of a message's sizes, if they say the same."""
    return limits[0] if limits and all(one == limits[0] for one in limits) else NO_LIMITS


# What a step must take and give in each place of a request that names one, and the words for it.
_SUITS: dict[str, Callable[[Signature], bool]] = {
    "step": lambda s: not s.from_neighbours and not s.to_each_neighbour,
    "send": lambda s: s.takes is None and s.gives is not None,
    "receive": lambda s: s.from_neighbours and s.gives is None,
}
_DOES = {
    "step": "answer a coordinator",
    "send": "send to neighbours",
    "receive": "take the messages of neighbours",
}
