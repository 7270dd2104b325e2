"""A host answers what a study has next, and nothing else; a plan is what a run sends."""

from typing import Annotated

import networkx as nx
import numpy as np
import pytest

import eigenmesh as em
from eigenmesh.errors import FederationError, MessageRefused, StepRefused
from eigenmesh.runtime.host import Host
from eigenmesh.runtime.message import Floats, Message, Shape, encode
from eigenmesh.runtime.party import Party, step
from eigenmesh.runtime.policy import Policy
from eigenmesh.runtime.protocol import protocol
from eigenmesh.runtime.schedule import (
    Own,
    Parties,
    Program,
    Scope,
    ask,
    at_most,
    by_rows,
    columns,
    enlist,
    exchange,
    fitting,
    forecast,
    loop,
    maybe,
    restarted,
    rows,
    sequence,
    settle,
    times,
    total,
)
from eigenmesh.runtime.site import Site
from eigenmesh.runtime.study import Study, read_study, stage


class ToySetup(Message, reveals=None):
    k: int


class Size(Message, reveals="counts"):
    n_rows: int


class Block(Message, reveals="eigenvectors"):
    vectors: Annotated[Floats, Shape("k", "d")]


class Sums(Message, reveals="gram"):
    upper: Annotated[Floats, Shape("k*(k+1)//2")]


class ToyHolder(Party):
    Setup = ToySetup

    @step
    def count(self) -> Size:
        return Size(n_rows=self.site.data.shape[0])

    @step
    def multiply(self, block: Block) -> Sums:
        gram = block.vectors @ block.vectors.T
        return Sums(upper=gram[np.triu_indices(len(gram))])

    @step
    def keep(self, block: Block) -> None:
        self.site.keep("toy", {"block": block.vectors})

    @step
    def offer(self) -> Block:
        return Block(vectors=np.zeros((self.setup.k, self.site.data.shape[1])))

    @step
    def take(self, received: dict[int, Block]) -> None: ...


def toy_schedule(scope, setup, n_rounds):
    return sequence(
        enlist(ToyHolder, setup),
        ask(ToyHolder.count),
        settle(
            lambda parties: {"n": parties.n_rows},
            lambda n: sequence(
                loop(n_rounds, total(ToyHolder.multiply, k=setup.k, d=columns), fewest=1),
                maybe(ask(ToyHolder.keep, k=at_most(setup.k), d=columns)) if n > 2 else None,
            ),
            lambda own, n: n >= own.rows,
            n=10,
        ),
    )


@protocol("toy-scheduled", roles=(ToyHolder,), schedule=toy_schedule, version=2)
def toy(fed, setup, n_rounds, really=None):
    fed.enlist(ToyHolder, setup)
    counts = fed.ask(ToyHolder.count)
    fed.settle(n=sum(reply.n_rows for reply in counts))
    block = Block(vectors=np.ones((setup.k, 3)))
    for _ in range(n_rounds if really is None else really):
        fed.total(ToyHolder.multiply, block)
    fed.ask(ToyHolder.keep, block)


PARTS = em.Partitioned(rows=[np.ones((4, 3)), np.ones((2, 3))])


def test_a_plan_is_what_a_run_sends():
    parties = Parties(PARTS.names, tuple(PARTS.shapes))
    plan = stage(toy, ToySetup(k=2), 3).forecast(parties.scope("rows"), parties)
    with em.federation(PARTS) as fed:
        ledger = fed.run(toy, ToySetup(k=2), 3).recording.ledger
    assert plan.rounds == ledger.rounds
    assert (plan.floats_up, plan.floats_down) == (ledger.floats_up, ledger.floats_down)
    assert plan.by_step() == ledger.by_step()
    assert plan.by_party(PARTS.names) == ledger.by_party(PARTS.names)
    assert plan.revealed() == ledger.revealed()


@pytest.mark.parametrize("really", [0, 4])
def test_a_coordinator_that_breaks_its_own_schedule_is_told_before_anything_is_sent(really):
    with em.federation(PARTS) as fed:
        with pytest.raises(FederationError, match="breaks its own schedule"):
            fed.run(toy, ToySetup(k=2), 3, really=really)


def host(policy=None):
    site = Site("party-0", lambda: np.ones((4, 3)), policy or Policy())
    return Host(site, 0, ("party-0", "party-1"))


def study_of(setup=None, n_rounds=3, **scope):
    scope = Scope(("party-0", "party-1"), "rows", **scope)
    return Study.of(toy, scope, (setup or ToySetup(k=2), n_rounds), {})


class Asker:
    """Speaks to one host as any coordinator could."""

    def __init__(self, study, policy=None):
        self.host, self.study, self.turn = host(policy), study, 0

    def send(self, **request):
        from eigenmesh.runtime import wire

        self.turn += 1
        request = {"run": "r", "turn": self.turn, "role": "ToyHolder", **request}
        return wire.loads(self.host.handle(wire.dumps(request)))

    def enlist(self, setup=None):
        message = np.frombuffer(encode(setup or ToySetup(k=2)), np.uint8)
        study = self.study.document.decode()
        return self.send(op="enlist", steps=[], message=message, study=study)

    def ask(self, name, message=None, **fields):
        data = None if message is None else np.frombuffer(encode(message), np.uint8)
        return self.send(op="step", step=name, message=data, **fields)


def block(k=2, d=3):
    return Block(vectors=np.ones((k, d)))


def refused(reply, error="StepRefused"):
    return reply.get("error") == error


def test_a_legal_sequence_is_answered():
    asker = Asker(study_of())
    assert "ok" in asker.enlist()
    assert "ok" in asker.ask("count")
    assert "ok" in asker.ask("multiply", block(), told={"n": 6})
    assert "ok" in asker.ask("keep", block())


@pytest.mark.parametrize(
    "steps",
    [
        ["multiply"],
        ["count", "count"],
        ["count", "keep"],
        ["count", "multiply", "multiply", "multiply", "multiply"],
        ["count", "multiply", "keep", "multiply"],
        ["count", "multiply", "keep", "keep"],
        ["offer"],
    ],
)
def test_what_is_out_of_order_or_too_often_is_refused(steps):
    asker = Asker(study_of())
    asker.enlist()
    for name in steps:
        told = {"told": {"n": 6}} if name != "count" else {}
        reply = asker.ask(name, block() if name in ("multiply", "keep") else None, **told)
    assert refused(reply)


@pytest.mark.parametrize("wrong", [block(3), block(1), block(2, 4)])
def test_messages_of_other_sizes_are_refused_before_anything_is_computed(wrong):
    asker = Asker(study_of())
    asker.enlist()
    asker.ask("count")
    assert refused(asker.ask("multiply", wrong, told={"n": 6}), "MessageRefused")
    assert "ok" in asker.ask("multiply", block(), told={"n": 6})


@pytest.mark.parametrize("told", [{"n": 3}, {"n": 6.0}, {"m": 6}, {}, {"n": 6, "m": 1}, {"n": "6"}])
def test_numbers_that_cannot_be_are_not_settled(told):
    asker = Asker(study_of())
    asker.enlist()
    asker.ask("count")
    assert refused(asker.ask("multiply", block(), told=told))


def test_a_settled_number_is_not_told_anew():
    asker = Asker(study_of())
    asker.enlist()
    asker.ask("count")
    asker.ask("multiply", block(), told={"n": 6})
    assert refused(asker.ask("multiply", block(), told={"n": 7}))


def test_a_setup_that_is_not_the_studys_builds_nothing():
    asker = Asker(study_of())
    assert refused(asker.enlist(ToySetup(k=3)))
    assert refused(asker.ask("count"))


def test_a_study_of_other_parties_is_refused():
    asker = Asker(Study.of(toy, Scope(("party-0",), "rows"), (ToySetup(k=2), 1), {}))
    assert refused(asker.enlist())


def test_a_policy_refuses_the_study_whole_before_a_party_is_built():
    asker = Asker(study_of(), Policy(allow={"counts"}))
    assert refused(asker.enlist(), "PolicyRefusal")


@pytest.mark.parametrize("on_loss", ["reuse", "skip"])
def test_who_missed_a_round_takes_part_in_the_next(on_loss):
    asker = Asker(study_of(on_loss=on_loss))
    asker.enlist()
    asker.ask("count")
    assert "ok" in asker.ask("keep", block(), told={"n": 6})


def test_a_reply_that_is_one_number_short_is_refused_with_its_sender():
    with em.federation(PARTS) as fed:
        fed.local_sites()["party-1"].store["short"] = {}
        original = ToyHolder.multiply.function

        def short(self, message):
            reply = original(self, message)
            upper = reply.upper[:-1] if "short" in self.site._site.store else reply.upper
            return Sums(upper=upper)

        ToyHolder.multiply.function = short
        try:
            with pytest.raises(MessageRefused, match="party-1|shape") as caught:
                fed.run(toy, ToySetup(k=2), 1)
        finally:
            ToyHolder.multiply.function = original
        assert caught.value.party == "party-1"


def test_a_study_has_one_form_and_one_name():
    study = study_of()
    again = read_study(study.document.decode())
    assert again.digest == study.digest
    assert again.terms["setup"].k == 2
    assert study_of(n_rounds=4).digest != study.digest
    assert study_of(on_loss="skip").digest != study.digest


def test_a_study_of_another_version_is_refused_by_both_numbers():
    older = study_of().document.decode().replace('"version":2', '"version":1')
    with pytest.raises(
        StepRefused, match="of version 1 of 'toy-scheduled', this site has version 2"
    ):
        read_study(older)


@pytest.mark.parametrize("spoilt", ["", "{}", "[1]", '{"protocol": "nobody"}', "\udcff"])
def test_documents_that_are_no_study_are_refused(spoilt):
    with pytest.raises(StepRefused):
        read_study(spoilt)


def walk(program, keys):
    positions = frozenset({(0, ())})
    for key in keys:
        matches = program.matches(positions, key)
        if not matches:
            return None
        positions = frozenset(match.after for match in matches)
    return positions


STEPS = {"a": ToyHolder.count, "b": ToyHolder.multiply, "c": ToyHolder.keep}


def node_of(text, rng):
    """A random schedule over three steps, and every word of it up to a length, by brute force."""
    kind = rng.integers(4) if text > 0 else 0
    if kind == 0:
        letter = "abc"[rng.integers(3)]
        return ask(STEPS[letter]), {letter}
    if kind == 1:
        left, words_left = node_of(text - 1, rng)
        right, words_right = node_of(text - 1, rng)
        return sequence(left, right), {a + b for a in words_left for b in words_right}
    body, words = node_of(text - 1, rng)
    fewest = int(rng.integers(3))
    most = fewest + int(rng.integers(3))
    language, power = set(), {""}
    for turn in range(most + 1):
        if turn >= fewest:
            language |= power
        power = {a + b for a in power for b in words if len(a + b) <= 9}
    return loop(most, body, fewest=fewest), language


@pytest.mark.parametrize("seed", range(60))
def test_a_program_accepts_the_words_of_its_schedule_and_no_others(seed):
    rng = np.random.default_rng(seed)
    node, words = node_of(3, rng)
    words = {word for word in words if len(word) <= 6}
    program = Program(node, Scope(("x",), "rows"))
    keys = {letter: ("step", "ToyHolder", step.name) for letter, step in STEPS.items()}
    every = [""]
    for word in every:
        positions = walk(program, [keys[letter] for letter in word])
        accepted = positions is not None and program.is_over(positions)
        assert accepted == (word in words), (word, sorted(words)[:20])
        if len(word) < 5 and positions is not None:
            every += [word + letter for letter in "abc"]


@pytest.mark.parametrize("seed", range(20))
def test_places_are_those_at_which_sizes_fit_whoever_asked_before(seed):
    rng = np.random.default_rng(seed)
    each = rng.integers(1, 6, size=3)
    amounts = [3, at_most(3), columns, at_most(columns), 4, rows, lambda own: int(each[own.index])]
    sizes = [amounts[i] for i in rng.integers(len(amounts), size=4)]
    node = sequence(*(maybe(ask(ToyHolder.multiply, k=2, d=size)) for size in sizes))
    program = Program(node, Scope(("x",), "columns"))
    places = program.matches(frozenset({(0, ())}), ("step", "ToyHolder", "multiply"))
    assert len(places) == len(sizes)
    for _ in range(60):
        numbers, index = map(int, rng.integers(2, 6, size=2)), int(rng.integers(3))
        own, d = Own(*numbers, index=index), int(rng.integers(1, 6))
        block = Block(vectors=np.zeros((2, d)))
        limits = [place.node.limits("up", own)["d"] for place in places]
        fits = [d == most if exact else d <= most for most, exact in limits]
        expected = [place for place, fit in zip(places, fits, strict=True) if fit]
        try:
            assert list(fitting(places, [block], "up", lambda own=own: own)) == expected
        except MessageRefused:
            assert not expected


@pytest.mark.parametrize("seed", range(40))
def test_where_rounds_may_be_missed_the_earliest_place_is_enough(seed):
    rng = np.random.default_rng(seed)
    program = Program(node_of(3, rng)[0], Scope(("x", "y"), "rows", "reuse"))
    keys = {letter: ("step", "ToyHolder", step.name) for letter, step in STEPS.items()}
    every = [("", frozenset({(0, ())}))]
    for word, few in every:
        many = walk(program, [keys[letter] for letter in word])
        for letter, key in keys.items():
            matches = program.matches(few, key)
            assert bool(matches) == bool(program.matches(many, key)), (word, letter)
            if matches and len(word) < 5:
                every.append((word + letter, frozenset({matches[0].after})))


@pytest.mark.parametrize("on_loss", ["reuse", "skip"])
def test_a_coordinator_misses_no_round_of_its_own_study(on_loss):
    scope = Scope(("x", "y"), "rows", on_loss)
    node = sequence(ask(STEPS["a"]), times(2, ask(STEPS["b"])), ask(STEPS["c"]))
    keys = {letter: ("step", "ToyHolder", step.name) for letter, step in STEPS.items()}
    for word, whole in {"abbc": True, "bbc": False, "abc": False, "ac": False}.items():
        own = walk(Program(node, scope, is_coordinators=True), [keys[letter] for letter in word])
        assert (own is not None) == whole, word
        assert walk(Program(node, scope), [keys[letter] for letter in word]) is not None


def test_long_loops_cost_no_more_than_short_ones():
    node = times(10**6, exchange(ToyHolder.offer, ToyHolder.take, 10**6, k=2, d=3))
    program = Program(node, Scope(("x", "y"), "rows", edges=((0, 1),)))
    key = ("exchange", "ToyHolder", "offer", "take")
    assert walk(program, [key] * 1000) is not None


def test_exchanges_are_planned_by_degree_and_draws_by_rows():
    graph = nx.path_graph(3)
    parties = Parties(("a", "b", "c"), ((10, 3), (20, 3), (30, 3)), graph)
    plan = forecast(exchange(ToyHolder.offer, ToyHolder.take, 5, k=2, d=columns), parties)
    assert plan.by_party(parties.names) == {"a": 30, "b": 60, "c": 30}
    assert plan.rounds == 5
    draws = [by_rows(7)(own) for own in parties.owns]
    assert draws == [2, 2, 3]
    assert rows(Own(4, 3)) == 4


def test_a_role_of_a_scheduled_protocol_is_enlisted_by_a_study_only():
    asker = Asker(study_of())
    message = np.frombuffer(encode(ToySetup(k=2)), np.uint8)
    assert refused(asker.send(op="enlist", steps=["count"], message=message))
    assert "error" in asker.ask("count")


def test_what_a_host_remembers_of_runs_is_bounded():
    asker = Asker(study_of())
    for run in range(10_050):
        asker.host._note_run(str(run))
    assert len(asker.host._seen_runs) == 10_000


@pytest.mark.parametrize(
    ("word", "legal"),
    [("abc", True), ("aabc", True), ("ababcabc", True), ("ab", False), ("bc", False)],
)
def test_an_attempt_ends_anywhere_but_the_last_is_whole(word, legal):
    scope = Scope(("x", "y"), "rows", "survivors")
    steps = {letter: ask(step) for letter, step in STEPS.items()}
    node = restarted(scope, steps["a"], times(1, steps["b"]), steps["c"])
    program = Program(node, scope)
    positions = walk(program, [("step", "ToyHolder", STEPS[letter].name) for letter in word])
    assert (positions is not None and program.is_over(positions)) == legal
    assert walk(Program(restarted(Scope(("x",), "rows"), steps["a"]), scope), [("step",)]) is None


@pytest.mark.parametrize(("k", "agrees"), [(1, True), (4, True), (0, False), (5, False)])
def test_what_may_vary_in_a_setup_stays_within_its_bounds(k, agrees):
    assert enlist(ToyHolder, ToySetup(k=2), varies={"k": (1, 4)}).agrees(encode(ToySetup(k=k))) == (
        agrees
    )
    assert enlist(ToyHolder, ToySetup(k=2)).agrees(encode(ToySetup(k=k))) == (k == 2)


def neighbours_schedule(scope, setup, k):
    return sequence(
        enlist(ToyHolder, setup), exchange(ToyHolder.offer, ToyHolder.take, 1, k=k, d=columns)
    )


@protocol("toy-neighbours", roles=(ToyHolder,), schedule=neighbours_schedule)
def toy_neighbours(fed, setup, k):
    fed.enlist(ToyHolder, setup)
    fed.exchange(ToyHolder.offer, ToyHolder.take)


def test_what_neighbours_send_is_as_large_as_the_schedule_says():
    with em.federation(PARTS, topology="full") as fed:
        fed.run(toy_neighbours, ToySetup(k=2), 2)
        with pytest.raises(MessageRefused, match="exactly 3 is in the schedule"):
            fed.run(toy_neighbours, ToySetup(k=2), 3)


def test_a_request_that_is_refused_settles_nothing():
    asker = Asker(study_of())
    asker.enlist()
    asker.ask("count")
    assert refused(asker.ask("multiply", block(3), told={"n": 7}), "MessageRefused")
    assert "ok" in asker.ask("multiply", block(), told={"n": 6})
