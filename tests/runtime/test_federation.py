from __future__ import annotations

import threading
import time
from typing import Annotated

import numpy as np
import pytest

import eigenmesh as em
from eigenmesh.engines.faulty import Fault
from eigenmesh.engines.in_process import InProcess
from eigenmesh.errors import (
    InputError,
    MessageRefused,
    PartyLost,
    StaleRound,
    TopologyError,
)
from eigenmesh.runtime import wire
from eigenmesh.runtime.federation import Federation
from eigenmesh.runtime.message import Floats, Integers, Message, SameEverywhere, Shape, encode
from eigenmesh.runtime.party import Party, step
from eigenmesh.runtime.protocol import Protocol, protocol
from eigenmesh.runtime.site import Site

NAMES = ("a", "b", "c")


class NoSetup(Message, reveals=None):
    """Nothing to agree on."""


class Factor(Message, reveals=None):
    """A number for a party."""

    factor: int


class Portion(Message, reveals="moments"):
    """A summand that tells which call it answers."""

    calls: int
    weight: float
    total: Annotated[Floats, Shape("d")]
    counts: Integers


class Digest(Message, reveals="hashes"):
    """Something that all must share."""

    digest: Annotated[str, SameEverywhere]


class PortionHolder(Party):
    """Holds one row."""

    Setup = NoSetup
    state = ("calls",)

    def __init__(self, site, setup):
        super().__init__(site, setup)
        self.calls = 0

    def _portion(self, factor):
        self.calls += 1
        return Portion(self.calls, 0.5, factor * self.site.data[0], np.array([1, self.site.index]))

    @step
    def portion(self) -> Portion:
        return self._portion(1)

    @step
    def scaled(self, factor: Factor) -> Portion:
        return self._portion(factor.factor)

    @step
    def widening(self) -> Portion:
        """Party b's array grows from its second call on."""
        portion = self._portion(1)
        if self.site.name == "b" and self.calls > 1:
            return Portion(portion.calls, 0.5, np.ones(9), portion.counts)
        return portion

    @step
    def digest(self) -> Digest:
        return Digest("odd" if self.site.name == "b" else "same")

    @step(reusable=False)
    def draw(self) -> Portion:
        return self._portion(1)

    @step
    def offer(self) -> Portion:
        return self._portion(1)

    @step(reusable=False)
    def offer_draw(self) -> Portion:
        return self._portion(1)

    @step
    def take(self, received: dict[int, Portion]) -> None:
        return None


PORTIONS = protocol("portions-test", roles=(PortionHolder,))(lambda parties: None)


def rows():
    return em.Partitioned(rows=[np.full((1, 2), float(i)) for i in range(3)], names=list(NAMES))


def opened(**options):
    fed = em.federation(rows(), **options)
    fed.enlist(PortionHolder, NoSetup())
    return fed


# Asking.


def test_replies_come_in_party_order_with_their_names():
    with opened() as fed:
        replies = fed.ask(PortionHolder.portion)
    assert replies.parties == NAMES
    assert [r.total[0] for r in replies] == [0.0, 1.0, 2.0]
    assert len(replies) == 3
    assert replies[1].total[0] == 1.0
    assert [r.total[0] for r in replies[1:]] == [1.0, 2.0]


def test_each_party_gets_the_message_at_its_place():
    with opened() as fed:
        replies = fed.ask(PortionHolder.scaled, each=[Factor(k) for k in (5, 6, 7)])
    assert [r.total[0] for r in replies] == [0.0, 6.0, 14.0]


def test_messages_by_name_go_to_those_named_and_nobody_else():
    with opened() as fed:
        replies = fed.ask(PortionHolder.scaled, each={"c": Factor(10), "b": Factor(3)})
        assert replies.parties == ("b", "c")
        assert [r.total[0] for r in replies] == [3.0, 20.0]
        assert [r.calls for r in fed.ask(PortionHolder.portion)] == [1, 2, 2]


def test_messages_for_nobody_give_no_replies():
    with opened() as fed:
        assert len(fed.ask(PortionHolder.scaled, each={})) == 0
        assert len(fed.ask(PortionHolder.digest, each={})) == 0


def test_messages_for_a_party_that_does_not_exist_are_refused():
    with opened() as fed, pytest.raises(InputError, match="'d'; the parties are 'a', 'b', 'c'"):
        fed.ask(PortionHolder.scaled, each={"a": Factor(1), "d": Factor(1)})


@pytest.mark.parametrize("n", [0, 2, 4])
def test_messages_must_be_as_many_as_the_parties(n):
    with opened() as fed, pytest.raises(InputError, match=f"{n} messages for 3 parties"):
        fed.ask(PortionHolder.scaled, each=[Factor(1)] * n)


def test_total_adds_scalars_and_arrays_in_party_order():
    with opened() as fed:
        total = fed.total(PortionHolder.portion)
    assert (total.sum.calls, total.sum.weight) == (3, 1.5)
    np.testing.assert_array_equal(total.sum.total, [3.0, 3.0])
    np.testing.assert_array_equal(total.sum.counts, [3, 3])
    assert total.sum.counts.dtype.kind == "i"
    assert total.parties == NAMES


def test_total_of_words_is_a_programming_error():
    with opened() as fed, pytest.raises(TypeError, match="digest cannot be summed"):
        fed.total(PortionHolder.digest)


def test_field_that_must_agree_names_the_one_that_differs():
    with opened() as fed, pytest.raises(MessageRefused, match="'odd', the others 'same'") as e:
        fed.ask(PortionHolder.digest)
    assert e.value.party == "b"


def test_exchange_needs_a_graph():
    with opened() as fed, pytest.raises(TopologyError, match="topology="):
        fed.exchange(PortionHolder.offer, PortionHolder.take)


def test_graph_shows_who_is_still_in():
    with opened(topology="full", on_loss="survivors", faults=[Fault("kill", "b", 1)]) as fed:
        assert sorted(fed.graph) == [0, 1, 2]
        fed.exchange(PortionHolder.offer, PortionHolder.take)
        assert sorted(fed.graph) == [0, 2]
    with opened() as fed:
        assert fed.graph is None


@pytest.mark.parametrize(
    "options",
    [{"on_loss": "ignore"}, {"timeout": 0}, {"timeout": -1.0}, {"timeout": float("nan")}],
)
def test_options_that_make_no_sense_are_refused(options):
    with pytest.raises(InputError, match=next(iter(options))):
        em.federation(rows(), **options)


# on_loss.


def test_raise_stops_and_leaves_everybody_in():
    with opened(faults=[Fault("lose", "b", 1)]) as fed:
        with pytest.raises(PartyLost, match="'b'"):
            fed.ask(PortionHolder.portion)
        assert fed.parties == NAMES
        assert fed.ask(PortionHolder.portion).parties == NAMES


def test_survivors_go_on_and_the_lost_party_stays_out():
    with opened(on_loss="survivors", faults=[Fault("lose", "b", 1)]) as fed:
        total = fed.total(PortionHolder.portion)
        assert total.parties == fed.parties == ("a", "c")
        np.testing.assert_array_equal(total.sum.total, [2.0, 2.0])
        assert list(fed.lost) == ["b"]
        assert fed.ask(PortionHolder.scaled, each=[Factor(1)] * 2).parties == ("a", "c")


def test_messages_by_name_pass_over_a_lost_party():
    with opened(on_loss="survivors", faults=[Fault("kill", "b", 1)]) as fed:
        fed.ask(PortionHolder.portion)
        replies = fed.ask(PortionHolder.scaled, each={n: Factor(1) for n in NAMES})
        assert replies.parties == ("a", "c")


def test_reuse_takes_the_last_reply_and_asks_again():
    with opened(on_loss="reuse", faults=[Fault("lose", "b", 2)]) as fed:
        calls = [[r.calls for r in fed.ask(PortionHolder.portion)] for _ in range(3)]
    assert calls == [[1, 1, 1], [2, 1, 2], [3, 3, 3]]
    assert fed.reused == {"b": 1}


@pytest.mark.parametrize("max_age", [0, 1, 3])
def test_reply_is_reused_up_to_its_age_and_no_longer(max_age):
    with opened(on_loss="reuse", max_age=max_age, faults=[Fault("kill", "b", 2)]) as fed:
        fed.ask(PortionHolder.portion)
        for _ in range(max_age):
            assert fed.ask(PortionHolder.portion)[1].calls == 1
        with pytest.raises(PartyLost, match="'b'"):
            fed.ask(PortionHolder.portion)
    assert fed.reused["b"] == max_age


def test_age_counts_rounds_across_recordings():
    """A stage that keeps its own ledger must not make old replies young."""
    lossy = opened(on_loss="reuse", max_age=1, faults=[Fault("kill", "b", 2)])
    with lossy as fed, fed.recording():
        fed.ask(PortionHolder.portion)
        fed.ask(PortionHolder.portion)
        with fed.recording(), pytest.raises(PartyLost):
            fed.ask(PortionHolder.portion)


def test_reply_to_another_step_is_not_reused():
    with opened(on_loss="reuse", faults=[Fault("kill", "b", 2)]) as fed:
        fed.ask(PortionHolder.portion)
        with pytest.raises(PartyLost, match="'b'"):
            fed.ask(PortionHolder.scaled, Factor(1))


def test_step_declares_whether_its_reply_may_be_reused():
    class Heir(PortionHolder):
        """Offers the same steps."""

    assert PortionHolder.portion.reusable
    assert not PortionHolder.draw.reusable
    assert not Heir.draw.reusable
    assert Heir.draw is Heir.draw
    assert Heir.draw.role is Heir
    assert PortionHolder.draw.role is PortionHolder


@pytest.mark.parametrize("kind", ["kill", "lose", "corrupt"])
def test_reply_that_is_not_reusable_is_never_reused(kind):
    with opened(on_loss="reuse", faults=[Fault(kind, "b", 3)]) as fed:
        fed.ask(PortionHolder.draw)
        fed.ask(PortionHolder.portion)
        with pytest.raises((PartyLost, MessageRefused), match=r"'reuse'.*'draw'") as caught:
            fed.ask(PortionHolder.draw)
    assert caught.value.party == "b"
    assert fed.reused == {}


def test_steps_that_are_reusable_are_so_beside_one_that_is_not():
    with opened(on_loss="reuse", faults=[Fault("lose", "b", 3)]) as fed:
        fed.ask(PortionHolder.draw)
        fed.ask(PortionHolder.portion)
        assert [reply.calls for reply in fed.ask(PortionHolder.portion)] == [3, 2, 3]
        assert [reply.calls for reply in fed.ask(PortionHolder.draw)] == [4, 4, 4]


@pytest.mark.parametrize("on_loss", ["raise", "survivors"])
def test_other_treatments_of_a_loss_do_not_ask_whether_a_reply_is_reusable(on_loss):
    with opened(on_loss=on_loss, faults=[Fault("lose", "b", 1)]) as fed:
        if on_loss == "raise":
            with pytest.raises(PartyLost, match="no reply$"):
                fed.ask(PortionHolder.draw)
        else:
            assert fed.ask(PortionHolder.draw).parties == ("a", "c")


@pytest.mark.parametrize("kind", ["kill", "lose"])
def test_message_to_a_neighbour_that_is_not_reusable_is_never_reused(kind):
    with opened(topology="full", on_loss="reuse", faults=[Fault(kind, "b", 3)]) as fed:
        fed.exchange(PortionHolder.offer_draw, PortionHolder.take, times=2)
        with pytest.raises(PartyLost, match=r"'reuse'.*'offer_draw'") as caught:
            fed.exchange(PortionHolder.offer_draw, PortionHolder.take)
        assert caught.value.party == "b"
    assert fed.reused == fed.dropped == {}


def test_replies_of_an_earlier_run_are_not_reused():
    def coordinate(parties):
        parties.enlist(PortionHolder, NoSetup())
        return parties.ask(PortionHolder.portion)

    once = Protocol("once", (PortionHolder,), coordinate)
    with em.federation(rows(), on_loss="reuse", faults=[Fault("lose", "b", 2)]) as fed:
        fed.run(once)
        with pytest.raises(PartyLost, match="'b'"):
            fed.run(once)


@pytest.mark.parametrize("on_loss", ["raise", "survivors", "reuse"])
def test_summand_of_another_shape_is_treated_as_a_lost_reply(on_loss):
    with opened(on_loss=on_loss) as fed:
        fed.total(PortionHolder.widening)
        if on_loss == "raise":
            with pytest.raises(MessageRefused, match="one shape") as caught:
                fed.total(PortionHolder.widening)
            assert caught.value.party == "b"
            return
        total = fed.total(PortionHolder.widening)
    np.testing.assert_array_equal(total.sum.total, [3.0, 3.0] if on_loss == "reuse" else [2.0, 2.0])
    assert total.parties == (NAMES if on_loss == "reuse" else ("a", "c"))


def test_neighbours_go_on_without_a_lost_message_and_count_it():
    faults = [Fault("lose", "b", 2)]
    with opened(topology="full", on_loss="survivors", faults=faults) as fed:
        fed.exchange(PortionHolder.offer, PortionHolder.take, times=3)
        assert fed.parties == NAMES
    assert fed.dropped == {"b": 2}
    with opened(topology="full", on_loss="reuse", faults=faults) as fed:
        fed.exchange(PortionHolder.offer, PortionHolder.take, times=3)
    assert fed.reused == {"b": 2}


def test_neighbour_silent_for_longer_than_the_age_is_out():
    faults = [Fault("lose", "b", k) for k in (2, 3, 4)]
    with opened(topology="full", on_loss="reuse", max_age=2, faults=faults) as fed:
        fed.exchange(PortionHolder.offer, PortionHolder.take, times=3)
        assert fed.parties == NAMES
        fed.exchange(PortionHolder.offer, PortionHolder.take)
        assert fed.parties == ("a", "c")
        assert "2 turns old" in fed.lost["b"]


def test_messages_of_a_round_that_is_undone_are_in_the_ledger():
    faults = [Fault("kill", "b", 1)]
    opened_ = opened(topology="full", on_loss="survivors", faults=faults)
    with opened_ as fed, fed.recording() as recording:
        fed.exchange(PortionHolder.offer, PortionHolder.take)
    sent = [(e.sender, e.receiver) for e in recording.ledger]
    assert sent == [("a", "b"), ("a", "c"), ("c", "a"), ("c", "b"), ("a", "c"), ("c", "a")]
    assert recording.ledger.rounds == 1


def test_run_says_whom_it_covers_what_it_cost_and_why_it_stopped():
    def coordinate(parties, factor):
        parties.enlist(PortionHolder, NoSetup())
        return parties.total(PortionHolder.scaled, factor).sum.calls

    with em.federation(rows(), on_loss="survivors", faults=[Fault("kill", "c", 1)]) as fed:
        found = fed.run(Protocol("p", (PortionHolder,), coordinate), Factor(2))
    assert (found.value, found.parties, found.stop_reason) == (2, ("a", "b"), "finished")
    assert list(found.lost) == ["c"]
    assert found.recording.ledger.rounds == 1
    assert found.recording.seconds > 0


# Hosts that lie. The federation believes nothing that it has not checked.


def lying(change, **options):
    """A federation in which party b's replies pass through `change`."""

    class Liar:
        def __init__(self, host):
            self._host = host
            self.handle = lambda request: self._bent(host.handle(request), request)
            self.accept = lambda request, inbox: self._bent(host.accept(request, inbox), request)
            self.offer = host.offer

        def _bent(self, reply, request):
            op = wire.loads(request)["op"]
            bend = self._host.party == "b" and op in ("step", "exchange")
            return change(reply) if bend else reply

    sites = [
        Site(name, opens=lambda i=i: np.full((1, 2), float(i))) for i, name in enumerate(NAMES)
    ]
    fed = Federation(InProcess(sites, Liar), split="rows", **options)
    fed.enlist(PortionHolder, NoSetup())
    return fed


def instead(**fields):
    return lambda reply: wire.dumps(wire.loads(reply) | fields)


def message(**fields):
    good = {"calls": 1, "weight": 0.5, "total": np.ones(2), "counts": np.arange(2)}
    return instead(ok=np.frombuffer(wire.dumps(good | fields), np.uint8))


LIES = {
    "no bytes": lambda reply: b"",
    "no tree": lambda reply: b"EMW1" + bytes(20),
    "a list": lambda reply: wire.dumps([1, 2]),
    "an array": lambda reply: wire.dumps(np.ones(3)),
    "cut off": lambda reply: wire.dumps({"turn": 1, "ok": None})[:20],
    "no message": instead(ok=None),
    "a word": instead(ok="yes"),
    "floats": instead(ok=np.ones(3)),
    "another message": instead(ok=np.frombuffer(encode(Factor(1)), np.uint8)),
    "earlier turn": instead(turn=1),
    "later turn": instead(turn=10**6),
    "turns": instead(turn=np.arange(5)),
    "no turn": instead(turn=None),
    "nan": message(total=np.array([np.nan, 1.0])),
    "overwritten": lambda reply: reply[:40] + b"1e999" + reply[45:],
    "a row": message(total=np.ones((1, 2))),
    "integers": message(total=np.arange(2)),
    "array as number": message(calls=np.arange(4)),
    "float as number": message(calls=1.0),
    "other shape": message(total=np.ones(7)),
    "foreign error": instead(error="SystemExit", reason="bye", party=3),
    "error of arrays": instead(error=np.ones(2), reason=np.ones(2), party=np.ones(2)),
    "blames another": instead(error="PartyFailed", reason="it was him", party="c"),
    "blames nobody known": instead(error="PartyLost", reason="it was him", party="mallory"),
}


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize("on_loss", ["raise", "survivors"])
def test_lie_in_a_total_is_found_and_the_liar_named(lie, on_loss):
    with lying(LIES[lie], on_loss=on_loss) as fed:
        if on_loss == "raise":
            with pytest.raises(em.EigenmeshError, match="'b'") as caught:
                fed.total(PortionHolder.portion)
            assert caught.value.party == "b"
        else:
            total = fed.total(PortionHolder.portion)
            np.testing.assert_array_equal(total.sum.total, [2.0, 2.0])
            assert total.parties == ("a", "c")


RECEIPTS = {
    "nothing": None,
    "a word": "done",
    "no lists": {"sent": 3, "missed": None},
    "half": {"sent": []},
    "short": {"sent": [[0]], "missed": []},
    "to nobody": {"sent": [[77, {"moments": 2}, 9]], "missed": []},
    "to itself": {"sent": [[1, {"moments": 2}, 9]], "missed": []},
    "unknown kind": {"sent": [[0, {"nothing": 2}, 9]], "missed": []},
    "words for floats": {"sent": [[0, {"moments": "2"}, 9]], "missed": []},
    "fewer than none": {"sent": [[0, {"moments": -2}, 9]], "missed": []},
    "array": {"sent": [[np.arange(3), {"moments": 2}, 9]], "missed": []},
    "missed nobody": {"sent": [], "missed": [[9, "gone", True]]},
    "missed without reason": {"sent": [], "missed": [[0, None, True]]},
}


@pytest.mark.parametrize("receipt", RECEIPTS)
def test_malformed_receipt_of_an_exchange_is_refused_and_its_sender_named(receipt):
    with lying(instead(ok=RECEIPTS[receipt]), topology="full") as fed:
        with pytest.raises(MessageRefused, match="'b'") as caught:
            fed.exchange(PortionHolder.offer, PortionHolder.take)
        assert caught.value.party == "b"


@pytest.mark.parametrize("blamed", ["mallory", "b", None, 7])
def test_party_that_blames_a_stranger_in_an_exchange_is_named_itself(blamed):
    lie = instead(error="PartyLost", reason="no message came", party=blamed)
    with lying(lie, topology="full", on_loss="survivors") as fed:
        fed.exchange(PortionHolder.offer, PortionHolder.take)
        assert fed.parties == ("a", "c")


def test_stale_receipt_of_an_exchange_is_refused():
    with lying(instead(turn=1), topology="full") as fed, pytest.raises(StaleRound, match="'b'"):
        fed.exchange(PortionHolder.offer, PortionHolder.take)


# The in-process engine's threads.


def hanging(party, leave):
    """Hosts of which one hangs in every step until `leave` is set."""

    class Hanging:
        def __init__(self, host):
            self._host = host
            self.offer, self.accept = host.offer, host.accept

        def handle(self, request):
            if party in (None, self._host.party) and wire.loads(request)["op"] == "step":
                leave.wait(10)
            return self._host.handle(request)

    return Hanging


def party_threads():
    return [t for t in threading.enumerate() if t.name == "eigenmesh-party"]


@pytest.mark.parametrize("party", ["b", None])
def test_hung_parties_are_given_up_and_their_threads_replaced(party):
    leave = threading.Event()
    sites = [Site(name, opens=lambda: np.ones((1, 2))) for name in NAMES]
    fed = Federation(InProcess(sites, hanging(party, leave)), split="rows", timeout=0.1)
    before = set(party_threads())
    with fed:
        fed.enlist(PortionHolder, NoSetup())
        for _ in range(2):
            started = time.monotonic()
            with pytest.raises(PartyLost, match=r"within 0\.1 s|still at work"):
                fed.ask(PortionHolder.portion)
            assert time.monotonic() - started < 2.0
    leave.set()
    deadline = time.monotonic() + 5
    while set(party_threads()) - before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert set(party_threads()) <= before


def test_caller_that_stops_early_does_not_make_the_next_one_wait():
    leave = threading.Event()
    sites = [Site(name, opens=lambda: np.ones((1, 2))) for name in NAMES]
    engine = InProcess(sites, hanging(None, leave))
    request = wire.dumps({"op": "step", "run": "", "turn": 1})
    other = wire.dumps({"op": "dismiss", "run": "", "turn": 1})
    first = engine.call(dict.fromkeys(range(3), request), 0.05)
    next(first)
    first.close()
    started = time.monotonic()
    assert len(list(engine.call(dict.fromkeys(range(3), other), 5.0))) == 3
    assert time.monotonic() - started < 2.0
    leave.set()
    engine.close()


# Registering.


def test_two_roles_of_one_name_are_a_programming_error():
    other = type("PortionHolder", (Party,), {})
    with pytest.raises(TypeError, match="'PortionHolder'"):
        protocol("another-portions-test", roles=(other,))(lambda parties: None)
    with pytest.raises(TypeError, match="registered already"):
        protocol("portions-test", roles=(PortionHolder,))(lambda parties: None)
