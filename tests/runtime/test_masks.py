"""Masked sums: the plain sum, whoever is lost, and nothing else to whoever asks for more."""

import dataclasses
import math
from contextlib import suppress
from typing import Annotated

import numpy as np
import pytest
from scipy.stats import chi2

import eigenmesh as em
from eigenmesh.engines.in_process import InProcess
from eigenmesh.errors import FederationError, PartyLost, PolicyRefusal, StepRefused
from eigenmesh.runtime import masks, wire
from eigenmesh.runtime.federation import Federation
from eigenmesh.runtime.host import Host
from eigenmesh.runtime.masked_sum import (
    Agreement,
    Delivery,
    MaskedSummand,
    Opened,
    Roll,
    Signatures,
)
from eigenmesh.runtime.message import (
    Floats,
    Integers,
    Message,
    Reveals,
    Shape,
    Wide,
    decode,
    encode,
)
from eigenmesh.runtime.party import Party, step
from eigenmesh.runtime.policy import Policy
from eigenmesh.runtime.protocol import protocol
from eigenmesh.runtime.schedule import ask, enlist, sequence, times, total
from eigenmesh.runtime.site import Site
from eigenmesh.runtime.study import stage

KEY = b"of a site"
ROUNDS = ("sum", "share", "mask", "sign", "open")


class SumSetup(Message, reveals=None):
    pass


class Factor(Message, reveals=None):
    factor: float


class Portion(Message, reveals="moments"):
    n_rows: Annotated[int, Reveals("counts")]
    weight: float
    small: Annotated[Floats, Shape("a")]
    large: Annotated[Floats, Shape("b", "c")]
    whole: Annotated[Integers, Shape("e")]


class PortionOwner(Party):
    """One row of 16 numbers: what it adds to the sum."""

    Setup = SumSetup

    @step
    def portion(self, factor: Factor) -> Portion:
        row = factor.factor * np.asarray(self.site.data[0], float)
        return Portion(
            n_rows=7,
            weight=float(row[0]),
            small=row[1:4] * 1e-12,
            large=row[4:10].reshape(2, 3) * 1e12,
            whole=np.round(row[10:]).astype(np.int64),
        )


def _schedule(scope, n_sums):
    sizes = {"a": 3, "b": 2, "c": 3, "e": 6}
    return sequence(
        enlist(PortionOwner, SumSetup()), times(n_sums, total(PortionOwner.portion, up=sizes))
    )


@protocol("test-portions", roles=(PortionOwner,), schedule=_schedule)
def portions(fed, n_sums):
    fed.enlist(PortionOwner, SumSetup())
    return [fed.total(PortionOwner.portion, Factor(1.0 + i)) for i in range(n_sums)]


def _rows(n, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.normal(size=(1, 16)) * 10.0 ** rng.integers(-3, 4) for _ in range(n)]


def _plain(rows, factor=1.0):
    owners = [PortionOwner.portion.function(_Owner(row), Factor(factor)) for row in rows]
    names = [field.name for field in dataclasses.fields(Portion)]
    return {name: sum(getattr(own, name) for own in owners) for name in names}, owners


class _Owner:
    def __init__(self, row):
        self.site = self
        self.data = row


def _assert_close(total, rows, factor=1.0):
    """Within 2^-40 of the largest summand of a field; integers are exact."""
    plain, owners = _plain(rows, factor)
    for name, expected in plain.items():
        scale = max(np.max(np.abs(getattr(own, name))) for own in owners)
        off = np.max(np.abs(getattr(total, name) - expected))
        assert off <= (0 if name in ("n_rows", "whole") else 2.0**-40 * scale), name


def _opened(rows, **options):
    return em.federation(em.Partitioned(rows=rows), secure=True, **options)


# The sum.


@pytest.mark.parametrize("on_loss", ["raise", "survivors"])
@pytest.mark.parametrize("n_parties", [2, 3, 7, 41, 47])
def test_is_the_plain_sum(n_parties, on_loss):
    rows = _rows(n_parties, seed=n_parties)
    with _opened(rows, on_loss=on_loss) as fed:
        run = fed.run(portions, 3)
    for i, one in enumerate(run.value):
        _assert_close(one.sum, rows, 1.0 + i)
        assert one.parties == fed.parties


@pytest.mark.parametrize("seed", range(20))
def test_numbers_of_any_size_are_summed_to_their_scale(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 700))
    sizes = 10.0 ** rng.uniform(-12, 12, size=3)
    summands = [
        Portion(
            n_rows=int(rng.integers(-(2**40), 2**40)),
            weight=float(rng.normal() * sizes[0]),
            small=rng.normal(size=3) * sizes[1] * (rng.random(3) < 0.8),
            large=rng.normal(size=(2, 3)) * sizes[2],
            whole=rng.integers(-(2**45), 2**45, size=6),
        )
        for _ in range(n)
    ]
    scale = np.max([masks.exponents_of(one, KEY) for one in summands], axis=0).tolist()
    words = sum(masks.to_words(one, scale, n) for one in summands)
    shapes = masks.read_shapes(masks.shapes_of(summands[0]), Portion)
    summed = masks.from_words(Portion, words, shapes, scale, n)
    for name in ("weight", "small", "large"):
        plain = sum(getattr(one, name) for one in summands)
        largest = max(np.max(np.abs(getattr(one, name))) for one in summands)
        assert np.max(np.abs(getattr(summed, name) - plain)) <= 2.0**-40 * largest
    assert summed.n_rows == sum(one.n_rows for one in summands)
    assert np.array_equal(summed.whole, sum(one.whole for one in summands))
    assert words[-1] == n


class Sizes(Message, reveals="moments"):
    columns: Annotated[Floats, Shape("a"), Wide]
    rest: Annotated[Floats, Shape("b")]


@pytest.mark.parametrize("seed", range(10))
def test_columns_of_any_units_are_summed_to_their_own_scale(seed):
    rng = np.random.default_rng(seed)
    n, size = int(rng.integers(2, 700)), 10.0 ** rng.uniform(-100, 100)
    units = size * 10.0 ** np.r_[0, rng.uniform(-28, 0, size=7)]
    summands = [Sizes(rng.normal(size=8) * units, rng.normal(size=3)) for _ in range(n)]
    scale = np.max([masks.exponents_of(one, KEY) for one in summands], axis=0).tolist()
    words = sum(masks.to_words(one, scale, n) for one in summands)
    shapes = masks.read_shapes(masks.shapes_of(summands[0]), Sizes)
    assert len(words) == masks.count_words(Sizes, shapes) == 3 * 8 + 3 + 1
    assert masks.has_room(words[:-1])
    summed = masks.from_words(Sizes, words, shapes, scale, n)
    columns = np.array([one.columns for one in summands])
    exact = [math.fsum(column) for column in columns.T]
    assert np.all(np.abs(summed.columns - exact) <= 1e-12 * np.abs(columns).max(axis=0))


@pytest.mark.parametrize("value", [0.0, 5e-324, 1e-300, 1.7e308, -1.7e308])
def test_extreme_numbers_are_summed_or_refused_never_wrapped(value):
    one = Portion(1, value, np.zeros(3), np.zeros((2, 3)), np.zeros(6, np.int64))
    scale = masks.exponents_of(one, KEY).tolist()
    shapes = masks.read_shapes(masks.shapes_of(one), Portion)
    words = masks.to_words(one, scale, 1)
    assert masks.from_words(Portion, words, shapes, scale, 1).weight == pytest.approx(
        value, rel=2**-40, abs=1e-305
    )


def test_a_summand_that_would_wrap_is_refused_at_its_party():
    one = Portion(2**62, 1.0, np.zeros(3), np.zeros((2, 3)), np.zeros(6, np.int64))
    with pytest.raises(StepRefused, match="wrap"):
        masks.to_words(one, masks.exponents_of(one, KEY).tolist(), 3)
    small = dataclasses.replace(one, n_rows=1, weight=1e6)
    with pytest.raises(StepRefused, match="wrap"):
        masks.to_words(small, [0, 0, 0, 0, 0], 3)


def test_the_ledger_says_aggregate_and_counts_what_a_plain_sum_would():
    rows = _rows(4)
    with em.federation(em.Partitioned(rows=rows)) as fed:
        plain = fed.run(portions, 2).recording.ledger
    with _opened(rows) as fed:
        masked = fed.run(portions, 2).recording.ledger
    assert (masked.floats_up, masked.floats_down) == (plain.floats_up, plain.floats_down)
    assert masked.by_step() == plain.by_step()
    assert masked.revealed()["party-0"] == {"aggregate": 2 * 9}
    assert masked.rounds == 2 * 2
    assert masked.bytes > plain.bytes


def test_more_parties_than_one_has_neighbours_are_summed():
    """benchmarks/bench_masked.py takes more, and their time."""
    rows = _rows(120)
    for on_loss in ("raise", "survivors"):
        with _opened(rows, on_loss=on_loss) as fed:
            (one,) = fed.run(portions, 1).value
        _assert_close(one.sum, rows)


# Losses.


@pytest.mark.parametrize("kind", ["lose", "kill", "corrupt"])
@pytest.mark.parametrize("round_", range(1, 11))
@pytest.mark.parametrize("n_parties", [3, 6])
def test_a_party_lost_in_any_round_leaves_the_right_sum_of_the_rest(n_parties, round_, kind):
    rows = _rows(n_parties, seed=round_)
    fault = em.Fault(kind, "party-1", round=round_)
    with _opened(rows, on_loss="survivors", faults=[fault]) as fed:
        run = fed.run(portions, 3)
    for i, one in enumerate(run.value):
        numbers = [int(name.split("-")[1]) for name in one.parties]
        _assert_close(one.sum, [rows[j] for j in numbers], 1.0 + i)
        assert set(range(n_parties)) - set(numbers) <= {1}
    first = (round_ - 1) // len(ROUNDS)
    assert all("party-1" in one.parties for one in run.value[:first])
    arrived = ROUNDS[(round_ - 1) % len(ROUNDS)] in ("sign", "open")  # in the sum by then
    assert ("party-1" in run.value[first].parties) == arrived
    if kind == "kill":
        assert "party-1" in run.lost
        assert "party-1" not in run.value[first + 1].parties


@pytest.mark.parametrize("round_", [1, 2, 3, 4])
def test_a_lost_party_is_named_where_a_loss_ends_the_run(round_):
    with _opened(_rows(4), faults=[em.Fault("kill", "party-2", round=round_)]) as fed:
        with pytest.raises(PartyLost, match="party-2"):
            fed.run(portions, 2)


@pytest.mark.parametrize("round_", range(1, 6))
def test_when_too_many_are_lost_there_is_an_error_and_no_sum(round_):
    faults = [em.Fault("kill", f"party-{i}", round=round_) for i in range(4)]
    with _opened(_rows(5), on_loss="survivors", faults=faults) as fed:
        with pytest.raises(PartyLost, match="left"):
            fed.run(portions, 1)


def test_what_masks_are_not_sound_with_is_refused_in_words():
    parts = em.Partitioned(rows=_rows(3))
    for on_loss in ("reuse", "skip"):
        with pytest.raises(em.EigenmeshError, match="expose"):
            em.federation(parts, secure=True, on_loss=on_loss)
    with pytest.raises(em.EigenmeshError, match="coordinator"):
        em.federation(parts, secure=True, topology="ring")
    with _opened(_rows(1)) as fed, pytest.raises(em.EigenmeshError, match="2 are needed"):
        fed.run(portions, 1)


# A coordinator that deviates.


class Deviating(InProcess):
    """Sends some parties other requests than the protocol has for them."""

    deviate = None
    transcript: list

    def call(self, requests, timeout):
        changed = dict(requests)
        for i, request in requests.items():
            tree = wire.loads(request)
            if self.deviate is not None and tree["op"] in ROUNDS:
                changed[i] = wire.dumps(self.deviate(i, dict(tree)))
        for i, reply in super().call(changed, timeout):
            self.transcript.append((wire.loads(changed[i])["op"], i, changed[i], reply))
            yield i, reply


def _deviating(rows, deviate=None, on_loss="survivors", policy=None, trust="domain"):
    names = [f"party-{i}" for i in range(len(rows))]
    sites = [
        Site(name, opens=lambda row=row: row, policy=policy or Policy(), trust=trust)
        for name, row in zip(names, rows, strict=True)
    ]
    keys = {site.name: masks.identity(site.identity) for site in sites}
    for site in sites:
        site.peers = dict(keys)
    engine = Deviating(sites)
    engine.deviate, engine.transcript = deviate, []
    return Federation(engine, split="rows", on_loss=on_loss, secure=True), engine


def _changing(op, message_type, change, whom=(0,)):
    """Requests of one round with their message changed, to some parties."""

    def deviate(i, tree):
        if tree["op"] == op and i in whom:
            message = decode(message_type, tree["message"].tobytes())
            fields = {f.name: getattr(message, f.name) for f in dataclasses.fields(message)}
            changed = dataclasses.replace(message, **change(fields, i))
            tree["message"] = np.frombuffer(encode(changed), np.uint8)
        return tree

    return deviate


def _refused(deviate, match, n=4, on_loss="survivors", **options):
    fed, engine = _deviating(_rows(n), deviate, on_loss, **options)
    with pytest.raises(em.EigenmeshError, match=match):
        fed.run(portions, 1)
    return engine


def _as_plain(i, tree):
    if tree["op"] == "sum":
        tree["op"] = "step"
    return tree


@pytest.mark.parametrize("on_loss", ["raise", "survivors"])
def test_a_summed_step_is_never_answered_in_plain(on_loss):
    engine = _refused(_as_plain, "masked sum", on_loss=on_loss)
    assert all(
        "error" in wire.loads(reply) for op, _, _, reply in engine.transcript if op == "step"
    )


@pytest.mark.parametrize("on_loss", ["raise", "survivors"])
def test_keys_that_their_owner_did_not_sign_are_refused(on_loss):
    forged = masks.Secret().public
    op = "mask" if on_loss == "raise" else "share"

    def change(fields, i):
        keys = fields["run_keys"].copy()
        keys[1] = np.frombuffer(forged, np.uint8)
        return {"run_keys": keys}

    _refused(_changing(op, Agreement, change), "not signed", on_loss=on_loss)


@pytest.mark.parametrize("on_loss", ["raise", "survivors"])
def test_a_roster_with_another_site_under_a_name_is_refused(on_loss):
    forger, secret = b"f" * 32, masks.Secret()
    op = "mask" if on_loss == "raise" else "share"

    def deviate(i, tree):
        if tree["op"] != op or i != 0:
            return tree

        def change(fields, i):
            from eigenmesh.runtime.masked_sum import _key_text

            study = stage(portions, 1).study(fed.scope)
            text = _key_text(study.digest, tree["run"], "party-1", secret.public)
            own = {
                "site_keys": masks.identity(forger),
                "run_keys": secret.public,
                "signatures": masks.sign(forger, text),
            }
            rows = {name: fields[name].copy() for name in own}
            for name, value in own.items():
                rows[name][1] = np.frombuffer(value, np.uint8)
            return rows

        return _changing(op, Agreement, change)(i, tree)

    fed, _ = _deviating(_rows(4), deviate, on_loss)
    with pytest.raises(em.EigenmeshError, match="another key of 'party-1'"):
        fed.run(portions, 1)


def test_the_first_key_of_a_site_is_remembered_where_nobody_introduced_it():
    fed, engine = _deviating(_rows(3), on_loss="raise")
    for site in engine.local_sites().values():
        site.peers = {}
    fed.run(portions, 1)
    engine.local_sites()[2]._identity = b"another site under the same name"
    with pytest.raises(em.EigenmeshError, match="another key of 'party-2'"):
        fed.run(portions, 1)


def test_between_organisations_a_key_must_be_known_beforehand():
    fed, engine = _deviating(_rows(4), on_loss="raise", trust="organisations")
    for site in engine.local_sites().values():
        site.peers = {}
    with pytest.raises(em.EigenmeshError):
        fed.run(portions, 1)


def test_a_scale_that_differs_between_parties_spoils_the_sum_and_tells_nothing():
    """Else all summands but one could be scaled to nothing."""

    def change(fields, i):
        return {"exponents": fields["exponents"] + 400 * (np.asarray(fields["exponents"]) != 0)}

    fed, _ = _deviating(
        _rows(4), _changing("mask", Agreement, change, whom=(1, 2, 3)), on_loss="raise"
    )
    with pytest.raises(em.EigenmeshError, match="cancel"):
        fed.run(portions, 1)


def test_questions_that_differ_between_parties_spoil_the_sum():
    """Else all but one could be asked for what is nothing."""
    for on_loss in ("raise", "survivors"):
        ask_for_nothing = _changing("sum", Factor, lambda fields, i: {"factor": 0.0}, (1, 2, 3))
        fed, _ = _deviating(_rows(4), ask_for_nothing, on_loss)
        with pytest.raises(em.EigenmeshError, match="cancel|seal"):
            fed.run(portions, 1)


def test_a_scale_on_which_a_summand_would_wrap_is_refused():
    change = _changing("mask", Agreement, lambda fields, i: {"exponents": fields["exponents"] - 8})
    _refused(change, "wrap", on_loss="raise")


@pytest.mark.parametrize("on_loss", ["raise", "survivors"])
def test_too_few_parties_are_refused_by_each(on_loss):
    policy = Policy(min_parties=4)
    fed, _ = _deviating(_rows(3), on_loss=on_loss, policy=policy)
    with pytest.raises(em.EigenmeshError, match="at least 4"):
        fed.run(portions, 1)


def test_a_sum_over_some_is_refused_where_a_loss_ends_the_run():
    def change(fields, i):
        return {"members": fields["members"][:3]}

    _refused(_changing("mask", Agreement, change), "all parties", on_loss="raise")


@pytest.mark.parametrize("fewer", [1, 2])
def test_a_roll_below_the_fewest_parties_is_not_signed(fewer):
    policy = Policy(min_parties=4)
    change = _changing("sign", Roll, lambda fields, i: {"members": fields["members"][:-fewer]})
    fed, _ = _deviating(_rows(4), change, policy=policy)
    with pytest.raises(em.EigenmeshError, match="at least 4"):
        fed.run(portions, 1)


def test_parties_that_signed_different_rolls_give_no_shares():
    """Half are told that a party was lost, half that it was not: either secret would be opened."""
    change = _changing("sign", Roll, lambda fields, i: {"members": fields["members"][:-1]}, (0, 1))
    engine = _refused(change, "on no such roll", n=6)
    assert not _given_shares(engine)


def _given_shares(engine):
    replies = [wire.loads(reply) for op, _, _, reply in engine.transcript if op == "open"]
    return [reply for reply in replies if "ok" in reply]


@pytest.mark.parametrize("trust", ["domain", "organisations"])
def test_shares_are_given_only_with_enough_signatures(trust):
    def change(fields, i):
        kept = len(fields["signers"]) - 1
        return {"signers": fields["signers"][:kept], "signatures": fields["signatures"][:kept]}

    engine = _refused(_changing("open", Signatures, change, range(6)), ".", n=6, trust=trust)
    assert not _given_shares(engine)


def test_one_signature_many_times_is_one():
    def change(fields, i):
        n = len(fields["signers"])
        return {
            "signers": np.repeat(fields["signers"][:1], n),
            "signatures": np.repeat(fields["signatures"][:1], n, axis=0),
        }

    assert not _given_shares(
        _refused(_changing("open", Signatures, change, range(4)), "signatures")
    )


def test_a_forged_signature_is_none():
    def change(fields, i):
        return {"signatures": fields["signatures"][::-1].copy()}

    assert not _given_shares(_refused(_changing("open", Signatures, change, range(4)), "no such"))


@pytest.mark.parametrize("op", ["share", "mask", "sign", "open"])
def test_no_round_is_answered_twice_nor_for_a_second_roll(op):
    """A party is asked again, in every later round and at the end: it has nothing more to say."""
    fed, engine = _deviating(_rows(4))
    asked, refusals = [], []

    def again(i, tree):
        turns = [t for t in asked if t["op"] == op]
        if i == 0:
            asked.append(tree)
        if i == 0 and turns and tree["op"] != op:
            second = {**turns[0], "turn": tree["turn"]}
            if op == "sign":
                roll = decode(Roll, second["message"].tobytes())
                other = encode(Roll(roll.members[:-1]))
                second["message"] = np.frombuffer(other, np.uint8)
            reply = wire.loads(engine._hosts[0].handle(wire.dumps(second)))
            refusals.append(reply.get("error"))
            tree["turn"] += 1
        return tree

    engine.deviate = again
    with suppress(em.EigenmeshError):  # a party that was asked out of order is lost, or refuses
        fed.run(portions, 2)
    assert refusals
    assert set(refusals) == {"StepRefused"}


def test_a_finished_sum_is_over():
    fed, engine = _deviating(_rows(4))
    kept = {}

    def keep(i, tree):
        kept[tree["op"]] = tree
        if tree["op"] == "sum" and "open" in kept and i == 0:
            for op in ("open", "sign", "mask", "share"):
                late = {**kept[op], "turn": tree["turn"]}
                assert "error" in wire.loads(engine._hosts[0].handle(wire.dumps(late)))
                tree["turn"] += 1
        return tree

    engine.deviate = keep
    with suppress(em.EigenmeshError):
        fed.run(portions, 2)
    assert "open" in kept


def test_who_was_left_out_does_not_come_back():
    """Sums with and without a party would differ by its summand."""
    fed, engine = _deviating(_rows(5))

    def without_last(fields, i):
        return {"members": fields["members"][:-1]}

    fed.run(portions, 1)
    engine.deviate = None
    masker_left = []

    def deviate(i, tree):
        if i == 0 and tree["op"] == "sum" and engine._hosts[0]._masker is not None:
            masker_left.append(engine._hosts[0]._masker._left)
            engine._hosts[0]._masker._left = frozenset(range(4))
        return tree

    engine.deviate = deviate
    with pytest.raises(em.EigenmeshError, match="left out"):
        fed.run(portions, 2)
    assert masker_left


@pytest.mark.parametrize("trust", ["domain", "organisations"])
def test_between_organisations_a_later_run_does_not_open_the_same_sum_for_others(trust):
    fed, engine = _deviating(_rows(8), trust=trust)
    fed.run(portions, 1)
    engine._hosts[7].handle = lambda request: None  # lost, or so the coordinator says
    if trust == "domain":
        assert len(fed.run(portions, 1).value[0].parties) == 7
        return
    with pytest.raises(em.EigenmeshError):
        fed.run(portions, 1)


# What the coordinator saw.


@pytest.mark.parametrize("on_loss", ["raise", "survivors"])
def test_masked_summands_look_uniform(on_loss):
    fed, engine = _deviating(_rows(6), on_loss=on_loss)
    fed.run(portions, 40)
    words = np.concatenate(
        [
            decode(MaskedSummand, wire.loads(reply)["ok"].tobytes()).words
            for op, _, _, reply in engine.transcript
            if op == "mask"
        ]
    )
    bits = np.unpackbits(words.astype("<u8").view(np.uint8).reshape(-1, 8), axis=1)
    assert np.abs(bits.mean(axis=0) - 0.5).max() < 5 * 0.5 / np.sqrt(len(bits))
    assert len(np.unique(words)) == len(words)
    top = np.bincount((words >> np.uint64(60)).astype(int), minlength=16)
    assert np.sum((top - len(words) / 16) ** 2 / (len(words) / 16)) < 45  # χ² of 15 degrees


class LongPortion(Message, reveals="moments"):
    numbers: Annotated[Floats, Shape("d")]


class LongOwner(Party):
    """Adds a million equal numbers: nothing of its own is random."""

    Setup = SumSetup

    @step
    def long_portion(self) -> LongPortion:
        return LongPortion(numbers=np.full(10**6, 3.0))


def _long_schedule(scope):
    return sequence(enlist(LongOwner, SumSetup()), total(LongOwner.long_portion, d=10**6))


@protocol("test-long-portions", roles=(LongOwner,), schedule=_long_schedule)
def long_portions(fed):
    fed.enlist(LongOwner, SumSetup())
    return fed.total(LongOwner.long_portion)


@pytest.mark.parametrize("on_loss", ["raise", "survivors"])
def test_a_million_words_of_one_party_are_uniform_by_a_chi_square_test(on_loss):
    fed, engine = _deviating(_rows(3), on_loss=on_loss)
    np.testing.assert_allclose(fed.run(long_portions).value.sum.numbers, 9.0)
    (reply,) = [own[3] for own in engine.transcript if own[0] == "mask" and own[1] == 0]
    words = decode(MaskedSummand, wire.loads(reply)["ok"].tobytes()).words
    assert len(words) >= 10**6
    octets = words.astype("<u8").view(np.uint8).reshape(-1, 8)
    for place in range(8):  # low ones, where rounding would show, and high ones, where signs would
        expected = len(octets) / 256
        counts = np.bincount(octets[:, place], minlength=256)
        assert chi2.sf(np.sum((counts - expected) ** 2) / expected, 255) > 1e-6
    # Nor do neighbouring words hang together.
    pairs = np.bincount((octets[:-1, 0] >> 4) * 16 + (octets[1:, 0] >> 4), minlength=256)
    expected = (len(octets) - 1) / 256
    assert chi2.sf(np.sum((pairs - expected) ** 2) / expected, 240) > 1e-6


def test_the_transcript_holds_no_summand_and_one_kind_of_share_a_party():
    rows = _rows(5)
    fed, engine = _deviating(rows)
    fed.run(portions, 1)
    _, owners = _plain(rows)
    scale = np.max([masks.exponents_of(one, KEY) for one in owners], axis=0).tolist()
    sent = b"".join(request + reply for _, _, request, reply in engine.transcript)
    for one in owners:
        assert masks.to_words(one, scale, 5)[4:10].tobytes() not in sent
        assert np.ascontiguousarray(one.large).tobytes() not in sent
    opened = [
        decode(Opened, wire.loads(reply)["ok"].tobytes())
        for op, _, _, reply in engine.transcript
        if op == "open"
    ]
    assert all(len(reply.shares) == 5 for reply in opened)  # one of each party, itself included


@pytest.mark.parametrize("threshold", [2, 5, 27])
def test_one_share_fewer_than_the_threshold_determines_nothing(threshold):
    """Any secret is as good as the true one: with one more share each can be completed."""
    secret, other = masks.Secret(), masks.Secret()
    parts = masks.shares(secret, threshold, range(threshold))
    few = dict(list(parts.items())[:-1])
    # The share that would make `other` the secret exists, whatever the few are.
    weights = masks._weights_at_0(tuple(range(threshold)))
    rest = sum(w * int.from_bytes(y) for w, y in zip(weights, few.values(), strict=False))
    wanted = (int.from_bytes(other.data) - rest) * pow(weights[-1], -1, masks._PRIME)
    forged = (wanted % masks._PRIME).to_bytes(masks.SHARE)
    assert masks.joined({**few, threshold - 1: forged}).data == other.data
    assert masks.joined(parts).data == secret.data


def test_neighbours_are_bounded_mutual_and_not_to_be_foreseen():
    members = tuple(range(200))
    circle = masks.neighbours(members, b"one run")
    assert {len(near) for near in circle.values()} == {masks.MOST_NEIGHBOURS}
    assert all(i in circle[j] for i, near in circle.items() for j in near)
    other = masks.neighbours(members, b"another")
    shared = [len(set(circle[i]) & set(other[i])) for i in members]
    assert np.mean(shared) < 2 * masks.MOST_NEIGHBOURS**2 / 200


def test_a_late_delivery_from_another_sum_is_refused():
    kept = []

    def change(fields, i):
        kept.append(fields["texts"])
        return {"texts": kept[0]}

    fed, _ = _deviating(_rows(4), _changing("mask", Delivery, change))
    with pytest.raises(em.EigenmeshError, match="seal"):
        fed.run(portions, 2)


# Studies, schedules, policies.


def test_digests_without_masks_are_what_they_were():
    with em.federation(em.Partitioned(rows=_rows(2))) as fed:
        plain = stage(portions, 2).study(fed.scope)
    with _opened(_rows(2)) as fed:
        masked = stage(portions, 2).study(fed.scope)
    assert b"secure" not in plain.document
    assert plain.digest != masked.digest


def test_a_policy_of_aggregates_lets_masked_sums_out_and_no_plain_ones():
    rows, policy = _rows(4), Policy(allow={"aggregate"})
    parts = em.Partitioned(rows=rows, policies=policy)
    with em.federation(parts, secure=True) as fed:
        fed.require_stages(stage(portions, 1))
        _assert_close(fed.run(portions, 1).value[0].sum, rows)
    with em.federation(parts) as fed, pytest.raises(PolicyRefusal, match="moments"):
        fed.run(portions, 1)
    refusing = em.Partitioned(rows=rows, policies=Policy(allow={"moments", "counts"}))
    with em.federation(refusing, secure=True) as fed, pytest.raises(PolicyRefusal, match="agg"):
        fed.run(portions, 1)


def _undeclared(scope):
    sizes = {"a": 3, "b": 2, "c": 3, "e": 6}
    return sequence(enlist(PortionOwner, SumSetup()), ask(PortionOwner.portion, up=sizes))


@protocol("test-undeclared", roles=(PortionOwner,), schedule=_undeclared)
def undeclared(fed):
    fed.enlist(PortionOwner, SumSetup())
    return fed.total(PortionOwner.portion, Factor(1.0))


@protocol("test-unscheduled", roles=())
def unscheduled(fed):
    return None


def test_a_sum_that_is_not_declared_is_not_masked_and_not_run():
    with _opened(_rows(3)) as fed:
        with pytest.raises(FederationError, match="declares ask"):
            fed.run(undeclared)
        with pytest.raises(em.EigenmeshError, match="no schedule"):
            fed.run(unscheduled)
    with em.federation(em.Partitioned(rows=_rows(3))) as fed:
        assert fed.run(undeclared).value.sum.n_rows == 21


def test_a_restarted_site_goes_on_with_the_keys_of_its_run(tmp_path):
    fed, engine = _deviating(_rows(3), on_loss="raise")
    sums = []

    def restart(i, tree):
        sums.append(tree["op"])
        if i == 1 and tree["op"] == "sum" and len(sums) > 6:
            site = engine.local_sites()[1]
            engine._hosts[1] = Host(site, 1, engine.parties)
        return tree

    for site in engine.local_sites().values():
        site.state_dir = tmp_path
    engine.deviate = restart
    for one in fed.run(portions, 3).value:
        assert one.sum.n_rows == 21
