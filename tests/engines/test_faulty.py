from __future__ import annotations

import time

import pytest

import eigenmesh as em
from eigenmesh.engines.faulty import FAULTS, LINK_FAULTS, Fault, FaultyHost, with_faults
from eigenmesh.errors import InputError
from eigenmesh.runtime import wire


class Echo:
    """A host that numbers its replies and remembers what it was asked."""

    party = "north"

    def __init__(self):
        self.asked = []

    def _reply(self, request):
        self.asked.append(wire.loads(request)["turn"])
        return wire.dumps({"reply": len(self.asked)})

    def handle(self, request):
        return self._reply(request)

    def offer(self, request):
        reply = self._reply(request)
        return reply, {1: reply + b"1", 2: reply + b"2"}

    def accept(self, request, inbox):
        return self._reply(request)


def request(turn, op="step"):
    return wire.dumps({"op": op, "turn": turn})


def a_host(*faults):
    echo = Echo()
    return with_faults(faults)(echo), echo


def replies(host, n):
    """What a coordinator hears: the number of the reply, None for none, "?" for a damaged one."""
    return [heard(host.handle(request(turn + 1))) for turn in range(n)]


def heard(reply):
    if reply is None:
        return None
    try:
        return wire.loads(reply)["reply"]
    except ValueError:
        return "?"


def test_without_a_fault_everything_passes():
    host, _ = a_host()
    assert replies(host, 3) == [1, 2, 3]
    assert host.party == "north"


def test_lost_reply_is_lost_after_the_step_was_run():
    host, echo = a_host(Fault("lose", round=2))
    assert replies(host, 3) == [1, None, 3]
    assert echo.asked == [1, 2, 3]


def test_corrupted_reply_differs_in_one_byte():
    host, echo = a_host(Fault("corrupt", round=1))
    damaged, intact = host.handle(request(1)), Echo().handle(request(1))
    assert len(damaged) == len(intact)
    assert sum(a != b for a, b in zip(damaged, intact, strict=True)) == 1
    assert heard(damaged) == "?"
    assert echo.asked == [1]


def test_stale_reply_is_the_one_before():
    host, _ = a_host(Fault("stale", round=3))
    assert replies(host, 4) == [1, 2, 2, 4]


def test_duplicated_request_reaches_the_host_twice_and_is_answered_once():
    host, echo = a_host(Fault("duplicate", round=2))
    assert replies(host, 3) == [1, 2, 4]
    assert echo.asked == [1, 2, 2, 3]


def test_delayed_reply_comes_late():
    host, _ = a_host(Fault("delay", round=1, seconds=0.05))
    started = time.monotonic()
    assert replies(host, 1) == [1]
    assert time.monotonic() - started >= 0.05


def test_killed_party_never_answers_again_by_any_way():
    host, echo = a_host(Fault("kill", round=2))
    assert replies(host, 3) == [1, None, None]
    assert host.handle(request(9, "dismiss")) is None
    assert host.offer(request(9, "exchange")) == (None, None)
    assert host.accept(request(9, "exchange"), {}) is None
    assert echo.asked == [1]


def test_fault_befalls_only_its_party():
    host, _ = a_host(Fault("kill", party="south"), Fault("lose", party="north", round=1))
    assert replies(host, 2) == [None, 2]


def test_rounds_are_steps_and_exchanges_and_nothing_else():
    host, _ = a_host(Fault("lose", round=2))
    for op in ("require", "enlist", "rollback", "dismiss"):
        assert host.handle(request(1, op)) is not None
    assert host.handle(request(2)) is not None
    assert host.accept(request(2, "exchange"), {}) is not None
    assert host.offer(request(3, "exchange"))[1] == {}


def outboxes(*faults, n=3):
    host, _ = a_host(*faults)
    return [host.offer(request(turn + 1, "exchange")) for turn in range(n)]


def test_faults_of_an_exchange_befall_the_messages_to_the_neighbours():
    plain = [outbox for _, outbox in outboxes()]
    for kind, expected in {"lose": {}, "stale": plain[0]}.items():
        found = outboxes(Fault(kind, round=2))
        assert [outbox for _, outbox in found] == [plain[0], expected, plain[2]]
        assert all(reply is not None for reply, _ in found)
    damaged = outboxes(Fault("corrupt", round=2))[1][1]
    assert damaged.keys() == plain[1].keys()
    assert all(damaged[to] != plain[1][to] for to in damaged)
    assert outboxes(Fault("kill", round=2))[1:] == [(None, None)] * 2


def on_links(names, *faults, n=40):
    """The outboxes of "north", whose neighbours are numbers 1 and 2."""
    host = with_faults(faults, names)(Echo())
    return [dict(host.offer(request(turn + 1, "exchange"))[1]) for turn in range(n)]


@pytest.mark.parametrize("seed", range(4))
def test_a_fault_on_a_link_befalls_messages_to_that_neighbour_alone(seed):
    names = ["north", "south", "east"]
    plain = on_links(names)
    drawn = {"share": 0.3, "seed": seed}
    for kind in LINK_FAULTS:
        found = on_links(names, Fault(kind, "north", to="east", **drawn))
        assert [outbox[1] for outbox in found] == [outbox[1] for outbox in plain]
        changed = [i for i in range(40) if found[i].get(2) != plain[i][2]]
        assert 3 < len(changed) < 25
        if kind == "lose":
            assert all(2 not in found[i] for i in changed)
        if kind == "stale":
            assert all(found[i].get(2) == (plain[i - 1][2] if i else None) for i in changed)
    both = on_links(names, *(Fault("lose", to=to, **drawn) for to in names[1:]))
    missing = [{to for to in (1, 2) if to not in outbox} for outbox in both]
    assert {1} in missing
    assert {2} in missing


def test_faults_on_links_leave_replies_alone():
    host = with_faults([Fault("lose", to="south")], ["north", "south"])(Echo())
    assert replies(host, 3) == [1, 2, 3]


@pytest.mark.parametrize("kind", sorted(set(FAULTS) - set(LINK_FAULTS)))
def test_a_link_cannot_be_late_or_dead(kind):
    with pytest.raises(InputError, match="a link can lose, stale, corrupt"):
        Fault(kind, "a", to="b")


def test_a_fault_on_a_link_that_is_not_there_is_refused():
    parts = em.Partitioned(rows=[[[1.0]], [[2.0]], [[3.0]], [[4.0]]])
    far = [em.Fault("lose", "party-0", to="party-2")]
    for topology in ("ring", None):
        with pytest.raises(InputError, match="on the link from 'party-0' to 'party-2'"):
            em.federation(parts, topology=topology, faults=far)
    with pytest.raises(InputError, match="'party-9'"):
        em.federation(parts, topology="ring", faults=[em.Fault("lose", to="party-9")])


def test_duplicated_exchange_keeps_the_first_messages():
    host, echo = a_host(Fault("duplicate", round=1))
    assert heard(host.offer(request(1, "exchange"))[0]) == 1
    assert echo.asked == [1, 1]


def test_several_faults_can_share_a_schedule():
    host, _ = a_host(Fault("lose", round=1), Fault("corrupt", round=2), Fault("stale", round=4))
    assert replies(host, 5) == [None, "?", 3, 3, 5]


def lost_rounds(n=200, **options):
    host, _ = a_host(Fault("lose", **options))
    return [i for i, reply in enumerate(replies(host, n)) if reply is None]


def test_share_is_drawn_from_the_seed_and_the_party_alone():
    assert lost_rounds(share=0.2, seed=1) == lost_rounds(share=0.2, seed=1)
    assert lost_rounds(share=0.2, seed=1) != lost_rounds(share=0.2, seed=2)
    assert lost_rounds(share=0.2, seed=1)[:5] == lost_rounds(100, share=0.2, seed=1)[:5]
    assert 20 < len(lost_rounds(share=0.2, seed=1)) < 60
    assert lost_rounds(share=0.0) == []
    assert len(lost_rounds(share=1.0)) == 200


def test_parties_draw_their_own_shares():
    def rounds_of(name):
        echo = Echo()
        echo.party = name
        host = FaultyHost(echo, [Fault("lose", share=0.5)])
        return [reply is None for reply in replies(host, 50)]

    assert rounds_of("north") != rounds_of("south")


def test_schedule_does_not_depend_on_other_faults():
    host, _ = a_host(Fault("corrupt", share=0.5, seed=9), Fault("lose", share=0.2, seed=1))
    found = [i for i, reply in enumerate(replies(host, 200)) if reply is None]
    assert found == lost_rounds(share=0.2, seed=1)


@pytest.mark.parametrize("kind", ["explode", "", None])
def test_unknown_fault_is_refused_with_the_list(kind):
    with pytest.raises(InputError, match=", ".join(FAULTS)):
        Fault(kind)
