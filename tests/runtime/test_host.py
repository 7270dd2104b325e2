from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
from typing import Annotated

import numpy as np
import pytest

from eigenmesh import errors
from eigenmesh.errors import EigenmeshError
from eigenmesh.graphs.gossip_average import AverageSetup, AveragingNode, gossip_average
from eigenmesh.runtime import wire
from eigenmesh.runtime.host import Host
from eigenmesh.runtime.mailbox import address
from eigenmesh.runtime.message import Descending, Floats, Message, Shape, encode
from eigenmesh.runtime.party import Party, step
from eigenmesh.runtime.policy import Policy
from eigenmesh.runtime.requests import error_from
from eigenmesh.runtime.schedule import Scope
from eigenmesh.runtime.site import Site
from eigenmesh.runtime.study import stage

NAMES = ("north", "east", "south")
SECRET = "patient 4711"


class SpySetup(Message, reveals=None):
    """Nothing to agree on."""


class Order(Message, reveals="sketch"):
    """Numbers, largest first."""

    size: int
    values: Annotated[Floats, Shape("size"), Descending]


class Spy(Party):
    """Notes, outside itself, every step that is reached."""

    Setup = SpySetup
    state = ("seen",)
    reached: list[str]

    def __init__(self, site, setup):
        super().__init__(site, setup)
        self.seen = 0
        self.cache = {"rows": site.data}

    def _note(self, name):
        self.seen += 1
        type(self).reached.append(name)

    @step
    def tell(self) -> Order:
        self._note("tell")
        return Order(1, np.array([float(self.seen)]))

    @step
    def weigh(self, order: Order) -> Order:
        self._note("weigh")
        return order

    @step
    def offer(self) -> Order:
        self._note("offer")
        return Order(2, np.array([2.0, 1.0]))

    @step
    def take(self, received: dict[int, Order]) -> None:
        self._note("take")
        assert all(type(message) is Order for message in received.values())

    @step
    def hidden(self) -> Order:
        self._note("hidden")
        return Order(0, np.zeros(0))

    @step
    def burst(self, order: Order) -> Order:
        self._note("burst")
        raise KeyError(SECRET)

    @step
    def smuggle(self) -> Order:
        self._note("smuggle")
        self.rows_sent_home = self.site.data
        return Order(0, np.zeros(0))


LISTED = ["tell", "weigh", "offer", "take", "burst", "smuggle"]


@pytest.fixture(autouse=True)
def reached():
    Spy.reached = []
    return Spy.reached


def a_host(index=0, roles=(Spy,), **site):
    rows = np.arange(6.0).reshape(2, 3) + 100 * index
    own = Site(NAMES[index], opens=lambda: rows, **site)
    return Host(own, index, NAMES, {role.__name__: role for role in roles})


class Caller:
    """Stamps requests to one host, as the federation would."""

    def __init__(self, host, run="r"):
        self.host, self.run, self.turn = host, run, 0

    def request(self, op, **fields):
        self.turn += 1
        return {"op": op, "run": self.run, "turn": self.turn, **fields}

    def __call__(self, op, **fields):
        return wire.loads(self.host.handle(wire.dumps(self.request(op, **fields))))

    def enlist(self, role=Spy, setup=None, steps=None):
        message = packed(setup or SpySetup())
        steps = LISTED if steps is None else steps
        return self("enlist", role=role.__name__, steps=steps, message=message)


def packed(message):
    return np.frombuffer(encode(message), np.uint8)


def an_order(*values):
    return packed(Order(len(values), np.array(values, dtype=float)))


def enlisted(**site):
    call = Caller(a_host(**site))
    assert "error" not in call.enlist()
    return call


# Every request that is not in order is refused with one of our errors.


def error_of(reply):
    tree = wire.loads(reply) if isinstance(reply, bytes) else reply
    assert "error" in tree, tree
    assert isinstance(getattr(errors, tree["error"]), type)
    assert tree["party"] in (None, *NAMES)
    return tree["error"], tree["reason"]


def step_request(call, name="tell", **fields):
    return call("step", role="Spy", step=name, **fields)


def exchange_request(call, **changes):
    fields = {
        "role": "Spy",
        "send": "offer",
        "receive": "take",
        "neighbours": [1, 2],
        "on_loss": "raise",
        "max_age": 3,
    }
    return call.request("exchange", **fields | changes)


def envelope(tree, neighbour, **changes):
    own = {"run": tree["run"], "turn": tree["turn"], "sender": neighbour, "receiver": 0}
    own |= {"message": an_order(2.0, 1.0).tobytes()} | changes
    return address(own, own["sender"], own["receiver"]) + own["message"]


def test_answers_a_step_that_was_enlisted(reached):
    reply = step_request(enlisted())
    assert reply.keys() == {"turn", "ok"}
    assert reached == ["tell"]


def test_turn_is_used_once(reached):
    call = enlisted()
    request = wire.dumps(call.request("step", role="Spy", step="tell"))
    call.host.handle(request)
    assert error_of(call.host.handle(request))[0] == "StaleRound"
    call.turn -= 2
    assert error_of(step_request(call))[0] == "StaleRound"
    assert reached == ["tell"]


def test_request_of_another_run_is_refused(reached):
    call = enlisted()
    call.run = "another"
    assert error_of(step_request(call))[0] == "StaleRound"
    assert reached == []


def test_a_new_run_sends_the_parties_of_the_old_one_home():
    call = enlisted()
    call.run = "next"
    assert "error" not in call.enlist(steps=["weigh"])
    assert error_of(step_request(call))[0] == "StepRefused"


@pytest.mark.parametrize("name", ["hidden", "__init__", "_note", "export", "restore", "seal", ""])
def test_only_enlisted_steps_are_reached(reached, name):
    assert error_of(step_request(enlisted(), name))[0] == "StepRefused"
    assert reached == []


@pytest.mark.parametrize("role", ["Party", "Host", "os.system", "", "AveragingNode"])
def test_only_known_roles_are_built(role):
    call = Caller(a_host())
    reply = call("enlist", role=role, steps=[], message=packed(SpySetup()))
    assert error_of(reply)[0] == "StepRefused"


def test_step_of_an_exchange_does_not_answer_a_coordinator(reached):
    assert error_of(step_request(enlisted(), "take", message=an_order(1.0)))[0] == "StepRefused"
    assert reached == []


@pytest.mark.parametrize(
    "message",
    [
        None,
        np.zeros(0, np.uint8),
        np.zeros(5, np.uint8),
        an_order(2.0, 1.0).reshape(1, -1),
        an_order(2.0, 1.0).astype(np.int64),
        np.frombuffer(wire.dumps({"size": 2, "values": np.array([1.0, 2.0])}), np.uint8),
        np.frombuffer(wire.dumps({"size": 2, "values": np.array([[2.0, 1.0]])}), np.uint8),
        np.frombuffer(wire.dumps({"size": 2, "values": np.array([np.nan, 1.0])}), np.uint8),
        np.frombuffer(wire.dumps({"size": 3, "values": np.array([2.0, 1.0])}), np.uint8),
        np.frombuffer(wire.dumps({"size": 2.0, "values": np.array([2.0, 1.0])}), np.uint8),
        np.frombuffer(wire.dumps({"size": 2, "values": np.array([2, 1])}), np.uint8),
        np.frombuffer(wire.dumps({"size": np.array([2, 3]), "values": np.ones(2)}), np.uint8),
        np.frombuffer(wire.dumps({"size": 2}), np.uint8),
        np.frombuffer(wire.dumps([2, np.array([2.0, 1.0])]), np.uint8),
        packed(SpySetup()),
    ],
)
def test_message_that_the_step_does_not_take_is_refused(reached, message):
    assert error_of(step_request(enlisted(), "weigh", message=message))[0] == "MessageRefused"
    assert reached == []


def test_message_for_a_step_that_takes_none_is_refused(reached):
    assert error_of(step_request(enlisted(), "tell", message=an_order(1.0)))[0] == "MessageRefused"
    assert reached == []


def test_words_of_other_libraries_stay_at_the_site(caplog):
    reply = step_request(enlisted(), "burst", message=an_order(1.0))
    assert error_of(reply)[0] == "PartyFailed"
    assert "KeyError" in reply["reason"]
    assert SECRET not in json.dumps(reply)
    assert SECRET in caplog.text  # and are found there


def test_data_that_cannot_be_opened_do_not_show_why():
    def opens():
        raise PermissionError(f"/home/{SECRET}.csv")

    site = Site("north", opens=opens)
    reply = Caller(Host(site, 0, NAMES, {"Spy": Spy})).enlist()
    assert error_of(reply)[0] == "PartyFailed"
    assert SECRET not in json.dumps(reply)


def test_host_at_work_says_so_instead_of_waiting():
    host = a_host()
    inside, leave = threading.Event(), threading.Event()

    class Slow(Spy):
        @step
        def tell(self) -> Order:
            inside.set()
            leave.wait(5)
            return Order(0, np.zeros(0))

    host._roles = {"Slow": Slow}
    call = Caller(host)
    call.enlist(Slow, steps=["tell"])
    request = wire.dumps(call.request("step", role="Slow", step="tell"))
    worker = threading.Thread(target=host.handle, args=(request,))
    worker.start()
    assert inside.wait(5)
    try:
        assert error_of(call("dismiss"))[0] == "PartyLost"
    finally:
        leave.set()
        worker.join()


# Exchanges.


def test_exchange_needs_both_halves_in_order(reached):
    call = enlisted()
    tree = exchange_request(call)
    request = wire.dumps(tree)
    inbox = {j: envelope(tree, j) for j in (1, 2)}
    assert error_of(call.host.accept(request, inbox))[0] == "StaleRound"
    _, outbox = call.host.offer(request)
    assert set(outbox) == {1, 2}
    receipt = wire.loads(call.host.accept(request, inbox))["ok"]
    assert [to for to, _, _ in receipt["sent"]] == [1, 2]
    assert receipt["missed"] == []
    assert reached == ["offer", "take"]


def test_second_delivery_is_not_taken_twice(reached):
    call = enlisted()
    tree = exchange_request(call)
    request = wire.dumps(tree)
    inbox = {j: envelope(tree, j) for j in (1, 2)}
    call.host.offer(request)
    call.host.accept(request, inbox)
    assert error_of(call.host.accept(request, inbox))[0] == "StaleRound"
    assert error_of(call.host.offer(request)[0])[0] == "StaleRound"
    assert reached == ["offer", "take"]


def test_step_between_the_halves_ends_the_exchange(reached):
    call = enlisted()
    tree = exchange_request(call)
    call.host.offer(wire.dumps(tree))
    step_request(call)
    inbox = {j: envelope(tree, j) for j in (1, 2)}
    assert error_of(call.host.accept(wire.dumps(tree), inbox))[0] == "StaleRound"
    assert reached == ["offer", "tell"]


@pytest.mark.parametrize(
    "changes",
    [
        {"run": "another"},
        {"run": ""},
        {"run": "r 1"},
        {"turn": 1},
        {"turn": 21},
        {"turn": "2 "},
        {"sender": 2},
        {"receiver": 2},
        {"receiver": "0 0"},
        {"message": b""},
        {"message": wire.dumps(None)},
        {"message": an_order(2.0, 1.0).tobytes()[:-1]},
        {"message": b"\n" + an_order(2.0, 1.0).tobytes()},
        {"message": wire.dumps({"size": 1, "values": np.ones(2)})},
    ],
)
def test_message_of_a_neighbour_is_checked_and_the_neighbour_named(reached, changes):
    call = enlisted()
    tree = exchange_request(call)
    call.host.offer(wire.dumps(tree))
    inbox = {1: envelope(tree, 1, **changes), 2: envelope(tree, 2)}
    reply = wire.loads(call.host.accept(wire.dumps(tree), inbox))
    assert error_of(reply)[0] in ("MessageRefused", "StaleRound")
    assert reply["party"] == NAMES[1]
    assert reached == ["offer"]


@pytest.mark.parametrize("bad", [b"", b"EMW1", wire.dumps([1, 2]), wire.dumps(np.ones(3))])
def test_message_of_a_neighbour_that_is_no_envelope_is_refused(reached, bad):
    call = enlisted()
    tree = exchange_request(call)
    call.host.offer(wire.dumps(tree))
    reply = wire.loads(call.host.accept(wire.dumps(tree), {1: envelope(tree, 1), 2: bad}))
    assert (reply["error"], reply["party"]) == ("StaleRound", NAMES[2])
    assert reached == ["offer"]


@pytest.mark.parametrize("neighbours", [[0], [3], [-1], [1, 1], ["1"], [True], [[1]], [None]])
def test_neighbours_must_be_other_parties(reached, neighbours):
    call = enlisted()
    reply, outbox = call.host.offer(wire.dumps(exchange_request(call, neighbours=neighbours)))
    assert error_of(reply)[0] == "MessageRefused"
    assert outbox is None
    assert reached == []


def test_exchange_is_undone_only_for_the_turn_that_is_named():
    call = enlisted()
    tree = exchange_request(call)
    call.host.offer(wire.dumps(tree))
    call.host.accept(wire.dumps(tree), {j: envelope(tree, j) for j in (1, 2)})
    call("rollback", undo=tree["turn"] - 1)
    assert seen(call) == 3
    tree = exchange_request(call)
    call.host.offer(wire.dumps(tree))
    call.host.accept(wire.dumps(tree), {j: envelope(tree, j) for j in (1, 2)})
    call("rollback", undo=tree["turn"])
    assert seen(call) == 3 + 1


def seen(call):
    """How many steps the party's state remembers, this question included."""
    data = step_request(call)["ok"].tobytes()
    return int(wire.loads(data)["values"][0])


# Fuzzing. A refusal is one that the host has thought of: nothing fails inside it.

REFUSALS = ("MessageRefused", "StaleRound", "StepRefused")


def answers(host, data, inbox=None):
    """The host's replies to the same bytes by every way in."""
    offered, outbox = host.offer(data)
    assert outbox is None
    return [host.handle(data), offered, host.accept(data, inbox or {})]


def a_valid_request(rng, call):
    order = an_order(*sorted(rng.random() for _ in range(rng.randrange(4)))[::-1])
    return rng.choice(
        [
            lambda: call.request("step", role="Spy", step="tell"),
            lambda: call.request("step", role="Spy", step="weigh", message=order),
            lambda: exchange_request(call),
        ]
    )()


def damaged(rng, data):
    data = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(data))
        act = rng.randrange(3)
        if act == 0:
            data[at] ^= 1 << rng.randrange(8)
        elif act == 1:
            del data[at : at + rng.randint(1, 30)]
        else:
            data[at:at] = rng.randbytes(rng.randint(1, 30))
        if not data:
            break
    return bytes(data)


JUNK = [
    None, True, 0, -1, 2**62, 1.5, "", "step", "\ud800", [], [1], {}, {"a": 1}, [[[]]],
    np.zeros(0, np.uint8), np.zeros(3), np.array(5), np.arange(4).reshape(2, 2),
]  # fmt: skip


def junk_tree(rng):
    """A tree of any form, often with the names of a request's fields."""
    keys = ["op", "run", "turn", "role", "step", "send", "receive", "steps", "message", "undo", "x"]
    if rng.random() < 0.1:
        return rng.choice(JUNK)
    tree = {key: rng.choice(JUNK) for key in rng.sample(keys, rng.randrange(len(keys)))}
    if rng.random() < 0.7:
        tree["op"] = rng.choice(["require", "step", "exchange", "rollback", "dismiss", "export"])
    return tree


def test_ten_thousand_malformed_requests_reach_no_step_and_break_nothing(reached):
    rng = random.Random(0)
    call = enlisted()
    for n in range(10_000):
        way = n % 3
        if way == 0:
            data = rng.choice([b"", wire.MAGIC]) + rng.randbytes(rng.randrange(100))
        elif way == 1:
            intact = wire.dumps(a_valid_request(rng, call))
            data = damaged(rng, intact)
            if data == intact:
                continue
        else:
            data = wire.dumps(junk_tree(rng))
        for reply in answers(call.host, data):
            assert error_of(reply)[0] in REFUSALS
    assert reached == []
    assert "ok" in step_request(call)


WRONG_MESSAGES = [
    b"",
    b"EMW1",
    wire.dumps({"size": 1, "values": np.array([np.inf])}),
    wire.dumps({"size": 2, "values": np.array([[2.0, 1.0]])}),
    wire.dumps({"size": 2, "values": np.array([1.0, 2.0])}),
    wire.dumps({"size": 2, "values": np.array([2, 1])}),
    wire.dumps({"size": -1, "values": np.array([2.0, 1.0])}),
    wire.dumps({"size": np.array([1, 2]), "values": np.array([2.0, 1.0])}),
    wire.dumps({"size": 2, "values": 1.0}),
    wire.dumps({"size": 2, "values": np.ones(2), "more": 1}),
]


NO_ADDRESS = [None, True, -1, 2**62, 1.5, "", " ", "0 0", "\n", "\0", "\ud800", "step", [], {}]


def wrong_value(rng, key, tree):
    """A value that the field may not have; values that would be another valid request are not
    among them (a later turn, another listed step, another age).
    """
    return rng.choice(
        {
            "op": ["rollback", "dismiss", "enlist", "require", "export", "", *JUNK],
            "run": ["", "r2", "R", *JUNK],
            "turn": [1, 0, -5, -(2**63), "1", 1.5, None, True, [], {}],
            "role": ["Party", "spy", "Host", *JUNK],
            "step": ["hidden", "take", "Tell", "__class__", *JUNK],
            "send": ["weigh", "hidden", "take", *JUNK],
            "receive": ["tell", "weigh", "offer", "hidden", *JUNK],
            "neighbours": [[0], [1, 1], [3], ["1"], [None], 1, "12", None, {}, np.array([1, 2])],
            "on_loss": ["ignore", "Raise", *JUNK],
            "max_age": ["3", None, True, 1.5, [3], np.array([3])],
            "message": [
                *[np.frombuffer(data, np.uint8) for data in WRONG_MESSAGES],
                *[junk for junk in JUNK if isinstance(junk, np.ndarray)],
                None,
                "text",
                [1, 2],
                7,
            ],
        }[key]
    )


def with_one_field_changed(rng, tree):
    act = rng.random()
    key = rng.choice(sorted(tree))
    if act < 0.05:
        return {k: v for k, v in tree.items() if k != key}
    if act < 0.1:
        return tree | {rng.choice(["undo", "steps", "class", "$ "]): 1}
    while True:
        value = wrong_value(rng, key, tree)
        if not (type(value) is type(tree[key]) and np.array_equal(value, tree[key])):
            return tree | {key: value}


def test_ten_thousand_valid_requests_with_one_field_changed_reach_no_step(reached):
    rng = random.Random(1)
    call = enlisted()
    for _ in range(10_000):
        tree = with_one_field_changed(rng, a_valid_request(rng, call))
        for reply in answers(call.host, wire.dumps(tree)):
            assert error_of(reply)[0] in REFUSALS
    assert reached == []
    assert "ok" in step_request(call)


def test_thousand_second_halves_with_one_field_changed_are_never_taken(reached):
    rng = random.Random(2)
    call = enlisted()
    for n in range(1000):
        tree = exchange_request(call)
        _, outbox = call.host.offer(wire.dumps(tree))
        assert outbox is not None
        inbox = {j: envelope(tree, j) for j in (1, 2)}
        if n % 2:
            changed = wire.dumps(with_one_field_changed(rng, tree))
            assert error_of(call.host.accept(changed, inbox))[0] in REFUSALS
        else:
            sender = rng.choice([1, 2])
            key = rng.choice(["run", "turn", "sender", "receiver", "message"])
            wrong = rng.choice(WRONG_MESSAGES) if key == "message" else rng.choice(NO_ADDRESS)
            inbox[sender] = envelope(tree, sender, **{key: wrong})
            assert error_of(call.host.accept(wire.dumps(tree), inbox))[0] in REFUSALS
    assert set(reached) == {"offer"}


def test_two_thousand_damaged_envelopes_are_never_taken(reached):
    rng = random.Random(3)
    call = enlisted()
    for _ in range(2000):
        tree = exchange_request(call)
        call.host.offer(wire.dumps(tree))
        intact = envelope(tree, 1)
        bad = damaged(rng, intact)
        if bad == intact:
            continue
        reply = wire.loads(call.host.accept(wire.dumps(tree), {1: bad, 2: envelope(tree, 2)}))
        assert error_of(reply)[0] in REFUSALS
        assert reply["party"] == NAMES[1]
    assert "take" not in reached


# The policy is asked before a step is run.


def test_forbidden_kind_is_refused_before_data_are_opened(reached):
    def opens():
        pytest.fail("the data were opened")

    site = Site("north", opens=opens, policy=Policy(allow={"counts"}))
    call = Caller(Host(site, 0, NAMES, {"Spy": Spy}))
    for reply in (call("require", role="Spy", steps=["tell"]), call.enlist()):
        assert error_of(reply)[0] == "PolicyRefusal"
        assert "'sketch'" in reply["reason"]
        assert "'north'" in reply["reason"]
    assert reached == []


def test_calls_are_counted_over_restarts_and_enlistments(tmp_path, reached):
    site = {"policy": Policy(calls_per_run=2), "state_dir": tmp_path}
    call = enlisted(**site)
    step_request(call)
    call.host = a_host(**site)
    step_request(call)
    call.enlist()
    assert error_of(step_request(call))[0] == "PolicyRefusal"
    assert reached == ["tell", "tell"]


# State: declared, exported to the site's own disk, and without raw data.


def test_state_that_was_not_declared_is_refused(reached):
    reply = step_request(enlisted(), "smuggle")
    assert error_of(reply)[0] == "PartyFailed"
    assert "AttributeError" in reply["reason"]


def test_exported_state_holds_no_raw_data():
    secret = np.array([[1234.5678, 8765.4321, 3.14159]])
    host = Host(Site("north", opens=lambda: secret), 0, NAMES, {"Spy": Spy})
    call = Caller(host)
    call.enlist()
    step_request(call)
    tree = exchange_request(call)
    host.offer(wire.dumps(tree))
    exported = host.export()
    for value in secret.ravel():
        assert value.tobytes() not in exported
        assert np.float32(value).tobytes() not in exported
        assert repr(float(value)).encode() not in exported


def test_export_and_restore_give_back_the_party():
    call = enlisted()
    for _ in range(3):
        step_request(call)
    twin = Caller(a_host())
    twin.host.restore(call.host.export())
    twin.turn = call.turn
    assert twin.host.export() == call.host.export()
    assert seen(twin) == seen(call) == 4


def test_a_run_that_is_over_leaves_nothing_behind_but_its_name(tmp_path):
    call = enlisted(state_dir=tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"north.state", "north.runs"}
    call("dismiss")
    assert [path.name for path in tmp_path.iterdir()] == ["north.runs"]
    again = Caller(a_host(state_dir=tmp_path), run="later")
    assert "error" not in again.enlist()  # from its first turn


def averaging_hosts(folder):
    return [a_host(i, roles=(AveragingNode,), state_dir=folder) for i in range(3)]


def averaged(tmp_path, restart_before):
    """Three hosts on a triangle; all are thrown away and started anew before the given rounds."""
    hosts = averaging_hosts(tmp_path)
    call = Caller(None)

    def everywhere(op, **fields):
        request = wire.dumps(call.request(op, role="AveragingNode", **fields))
        return [wire.loads(host.handle(request)) for host in hosts]

    study = stage(gossip_average, 5).study(Scope(NAMES, "rows", edges=((0, 1), (0, 2), (1, 2))))
    everywhere("enlist", steps=[], message=packed(AverageSetup()), study=study.document.decode())
    for round_ in range(5):
        if round_ in restart_before:
            hosts = averaging_hosts(tmp_path)
        turn = call.request(
            "exchange",
            role="AveragingNode",
            send="offer_mean",
            receive="mix",
            on_loss="raise",
            max_age=3,
        )
        requests = [
            wire.dumps(turn | {"neighbours": [j for j in range(3) if j != i]}) for i in range(3)
        ]
        outboxes = [host.offer(request)[1] for host, request in zip(hosts, requests, strict=True)]
        for i, host in enumerate(hosts):
            inbox = {j: outboxes[j][i] for j in range(3) if j != i}
            assert "ok" in wire.loads(host.accept(requests[i], inbox))
    if 5 in restart_before:
        hosts = averaging_hosts(tmp_path)
    return [wire.loads(r["ok"].tobytes()) for r in everywhere("step", step="tell_mean")]


@pytest.mark.parametrize("restart_before", [{1}, {3}, {5}, {1, 2, 3, 4, 5}])
def test_restarted_host_goes_on_and_gives_the_same_answer(tmp_path, restart_before):
    folders = [tmp_path / "plain", tmp_path / "restarted"]
    for folder in folders:
        folder.mkdir()
    plain, restarted = averaged(folders[0], set()), averaged(folders[1], restart_before)
    for one, other in zip(plain, restarted, strict=True):
        np.testing.assert_array_equal(one["value"], other["value"])
        assert one["degree"] == other["degree"] == 2


def test_restarted_host_can_still_undo_the_exchange_before(tmp_path):
    call = enlisted(state_dir=tmp_path)
    tree = exchange_request(call)
    call.host.offer(wire.dumps(tree))
    call.host.accept(wire.dumps(tree), {j: envelope(tree, j) for j in (1, 2)})
    call.host = a_host(state_dir=tmp_path)
    call("rollback", undo=tree["turn"])
    assert seen(call) == 1


def test_restarted_host_refuses_the_turns_that_it_has_answered(tmp_path):
    call = enlisted(state_dir=tmp_path)
    request = wire.dumps(call.request("step", role="Spy", step="tell"))
    call.host.handle(request)
    assert error_of(a_host(state_dir=tmp_path).handle(request))[0] == "StaleRound"


def test_arrays_of_a_restored_party_can_be_written():
    party = AveragingNode.__new__(AveragingNode)
    party.restore(wire.loads(wire.dumps({"value": np.arange(3.0)})))
    party.value += 1
    np.testing.assert_array_equal(party.value, [1, 2, 3])


# Errors as the federation reads them.


def test_reported_error_becomes_one_of_our_classes():
    error = error_from({"error": "PolicyRefusal", "reason": "no", "party": "north"}, "north")
    assert type(error) is errors.PolicyRefusal
    assert (error.party, error.reason) == ("north", "no")


@pytest.mark.parametrize("name", ["SystemExit", "annotations", "EigenmeshWarning", "", None, 3])
def test_reported_error_of_a_foreign_class_is_a_failed_party(name):
    error = error_from({"error": name, "reason": np.ones(3), "party": 7}, "north")
    assert type(error) is errors.PartyFailed
    assert isinstance(error, EigenmeshError)
    assert error.party == "north"


def test_a_host_can_blame_nobody_but_itself_and_its_neighbours():
    tree = {"error": "PartyLost", "reason": "gone", "party": "south"}
    assert error_from(tree, "north").party == "north"
    assert error_from(tree, "north", ("east",)).party == "north"
    assert error_from(tree, "north", ("east", "south")).party == "south"


def test_between_organisations_nothing_passes_a_relay_that_can_read_it():
    replies = {}
    for trust in ("domain", "organisations"):
        for relays in ("no", "sealed", "open"):
            site = Site("a", lambda: np.ones((6, 2)), trust=trust)
            request = {"op": "exchange", "run": "r", "turn": 1, "role": "R", "send": "s"}
            request |= {"receive": "t", "neighbours": [], "on_loss": "raise", "max_age": 3}
            reply, outbox = Host(site, 0, ("a", "b"), relays=relays).offer(wire.dumps(request))
            assert outbox is None
            replies[trust, relays] = wire.loads(reply)["error"]
    assert replies.pop(("organisations", "open")) == "StepRefused"
    assert set(replies.values()) == {"StaleRound"}, "refused later, since no run has begun"


def test_every_role_is_known_wherever_a_host_is():
    script = (
        "import pkgutil, importlib, eigenmesh.runtime.host as host\n"
        "before = set(host.known_roles())\n"
        "import eigenmesh\n"
        "for m in pkgutil.walk_packages(eigenmesh.__path__, 'eigenmesh.'):\n"
        "    if not m.name.endswith(('__main__', 'nvflare_jobs.sides')):\n"
        "        try:\n"
        "            importlib.import_module(m.name)\n"
        "        except ModuleNotFoundError as error:  # of an engine that is not installed\n"
        "            assert error.name in ('dask', 'distributed', 'mpi4py', 'nvflare'), error\n"
        "assert set(host.known_roles()) == before and len(before) > 20, before\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
