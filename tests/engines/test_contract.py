"""The contract of an engine. Every test here runs on every engine that `contract.ENGINES` lists."""

from __future__ import annotations

import os
import signal
import threading
import time

import networkx as nx
import numpy as np
import pytest
from tests.engines.contract import (
    ENGINES,
    NAMES,
    PREPARED,
    SECRET,
    SURVEY_ROUNDS,
    WIDTH,
    Bystander,
    Direction,
    Query,
    Surveyor,
    SurveySetup,
    by_step,
    messy_rows,
    mix,
    run,
    some_rows,
    survey,
)
from threadpoolctl import threadpool_info

import eigenmesh as em
from eigenmesh.engines.faulty import Fault
from eigenmesh.errors import (
    EigenmeshError,
    FederationError,
    InputError,
    MessageRefused,
    PartyFailed,
    PartyLost,
    PolicyRefusal,
    StaleRound,
    StepRefused,
    TopologyError,
)
from eigenmesh.graphs.gossip_average import gossip_average
from eigenmesh.runtime.message import KINDS
from eigenmesh.runtime.policy import Policy

HONEST = SurveySetup()
MASKED = em.KernelPCA(1, kernel="linear", method="moments", random_state=0)
CULPRIT = "south"  # neither first nor last
OTHERS = tuple(name for name in NAMES if name != CULPRIT)


@pytest.fixture(params=ENGINES, ids=lambda engine: engine.name)
def engine(request):
    return request.param


@pytest.fixture(scope="module")
def pooled():
    return some_rows().parts


def ring_without(culprit: int) -> nx.Graph:
    """A node that is out has no edges; `mix` then leaves it alone."""
    graph = nx.cycle_graph(len(NAMES))
    graph.remove_edges_from(list(graph.edges(culprit)))
    return graph


# The same answer, and the same ledger.


def test_star_gives_the_pooled_answer(engine, pooled):
    with engine.open(some_rows()) as fed:
        found = fed.run(survey, HONEST).value
    mean = np.vstack(pooled).mean(axis=0)
    assert found.n_rows == sum(map(len, pooled))
    np.testing.assert_allclose(found.mean, mean, rtol=1e-13)
    for i, rows in enumerate(pooled):
        np.testing.assert_allclose(found.projections[i], rows @ mean, rtol=1e-12)
        np.testing.assert_allclose(found.halves[i], rows @ mean * (i + 1), rtol=1e-12)


def test_star_has_the_ledger_that_its_messages_add_up_to(engine, pooled):
    n_rows, J = sum(map(len, pooled)), len(NAMES)
    with engine.open(some_rows()) as fed:
        ledger = fed.run(survey, HONEST).recording.ledger
    messages = {step: (n, floats) for step, (n, floats, _) in by_step(ledger).items()}
    assert ledger.rounds == SURVEY_ROUNDS
    assert messages == {
        "Surveyor.enlist": (J, 0),
        "Surveyor.sum_rows": (J, J * WIDTH),
        "Surveyor.project": (2 * 2 * J, 2 * (J * WIDTH + n_rows)),
    }
    assert ledger.floats_down == 2 * J * WIDTH
    assert ledger.floats_up == J * WIDTH + 2 * n_rows


@pytest.mark.parametrize("on_loss", ["raise", "survivors"])
def test_masked_sums_are_the_plain_ones(engine, pooled, on_loss):
    X = np.vstack(pooled) - np.vstack(pooled).mean(axis=0)
    largest = np.linalg.eigvalsh(X.T @ X)[-1]
    with engine.open(some_rows(), secure=True, on_loss=on_loss) as fed:
        report = MASKED.fit(fed).report_
    np.testing.assert_allclose(MASKED.eigenvalues_, [largest], rtol=1e-9)
    assert all(kinds.keys() == {"aggregate", "counts"} for kinds in report.reveals.values())


@pytest.mark.parametrize("round_", range(3, 8))  # of its first sum, after it has been counted
def test_a_party_lost_in_a_masked_sum_leaves_that_of_the_rest(engine, pooled, round_):
    lost = Fault("kill", CULPRIT, round=round_)
    with engine.open(some_rows(), secure=True, on_loss="survivors", faults=[lost]) as fed:
        MASKED.fit(fed)
        assert CULPRIT in fed.lost
    rest = np.vstack([rows for name, rows in zip(NAMES, pooled, strict=True) if name != CULPRIT])
    X = rest - rest.mean(axis=0)
    np.testing.assert_allclose(MASKED.eigenvalues_, [np.linalg.eigvalsh(X.T @ X)[-1]], rtol=1e-9)


@pytest.mark.parametrize("topology", [None, "ring"])
def test_answer_and_ledger_equal_those_in_process(engine, topology):
    protocol, argument = (survey, HONEST) if topology is None else (gossip_average, 7)
    runs = []
    for opened in (engine, ENGINES[0]):
        with opened.open(some_rows(), topology=topology) as fed:
            runs.append(fed.run(protocol, argument))
    here, there = (r.recording.ledger for r in runs)
    assert (here.rounds, here.bytes) == (there.rounds, there.bytes)
    assert by_step(here) == by_step(there)
    assert here.revealed() == there.revealed()
    if topology is None:
        np.testing.assert_allclose(runs[0].value.mean, runs[1].value.mean, rtol=1e-8)
    else:
        for one, other in zip(runs[0].value, runs[1].value, strict=True):
            np.testing.assert_allclose(one.value, other.value, rtol=1e-8)


def test_gossip_equals_mixing_done_centrally(engine, pooled):
    start = np.array([rows.mean(axis=0) for rows in pooled])
    with engine.open(some_rows(), topology="ring") as fed:
        found = fed.run(gossip_average, 6)
    expected = mix(start, nx.cycle_graph(len(NAMES)), 6)
    np.testing.assert_allclose([r.value for r in found.value], expected, rtol=1e-12)
    assert found.value.parties == found.parties == NAMES
    assert found.recording.ledger.rounds == 6 + 1


def test_two_protocols_run_one_after_the_other_on_one_federation(engine):
    with engine.open(some_rows(), topology="ring") as fed:
        first = fed.run(survey, HONEST)
        between = fed.run(gossip_average, 3)
        second = fed.run(survey, HONEST)
    np.testing.assert_array_equal(first.value.mean, second.value.mean)
    assert by_step(first.recording.ledger) == by_step(second.recording.ledger)
    assert set(by_step(between.recording.ledger)) == {
        "AveragingNode.enlist",
        "AveragingNode.offer_mean",
        "AveragingNode.tell_mean",
    }


# A list of paths, each opened by its own party.


@pytest.fixture
def paths(tmp_path, pooled):
    own = [tmp_path / f"{name}.npy" for name in NAMES]
    for path, rows in zip(own, pooled, strict=True):
        np.save(path, rows)
    return own


def test_paths_give_the_answer_of_the_arrays_under_the_names_given(engine, paths):
    runs = []
    for source, names in ((some_rows(), None), (paths, list(NAMES))):
        with engine.open(source, names=names) as fed:
            runs.append(fed.run(survey, HONEST))
    np.testing.assert_array_equal(runs[0].value.mean, runs[1].value.mean)
    assert runs[0].recording.ledger.entries == runs[1].recording.ledger.entries
    assert runs[1].parties == NAMES


def test_policy_of_a_party_with_a_path_is_obeyed_at_its_site(engine, paths):
    own = Policy(allow=KINDS - {"scores"})
    policies = [own if name == CULPRIT else None for name in NAMES]
    with engine.open(paths, names=list(NAMES), policies=policies) as fed:
        with pytest.raises(PolicyRefusal, match="'scores'") as caught:
            fed.run(survey, HONEST)
    assert caught.value.party == CULPRIT


@pytest.mark.parametrize(
    ("whose", "words"),
    [
        ({"names": ["a", "b"]}, "5 names"),
        ({"names": ["a", "a", "b", "c", "d"]}, "'a'"),
        ({"policies": [None]}, "1 entries, expected 5"),
        ({"policies": ["all"] * 5}, "em.Policy"),
    ],
)
def test_names_and_policies_that_do_not_fit_the_paths_are_refused(engine, paths, whose, words):
    with pytest.raises(InputError, match=words):
        engine.open(paths, **whose)


@pytest.mark.parametrize("whose", [{"names": list(NAMES)}, {"policies": Policy()}])
def test_names_and_policies_beside_those_of_a_partitioned_are_refused(engine, whose):
    with pytest.raises(InputError, match="pass them to Partitioned"):
        engine.open(some_rows(), **whose)


# A party that raises, hangs or talks nonsense.


@pytest.mark.parametrize(("manner", "shown"), [("raise", "RuntimeError"), ("exit", "SystemExit")])
@pytest.mark.parametrize("at", range(1, SURVEY_ROUNDS + 1))
def test_party_that_raises_is_named_and_only_the_class_of_its_error_leaves(
    engine, manner, shown, at
):
    with engine.open(some_rows()) as fed, pytest.raises(PartyFailed, match=shown) as caught:
        fed.run(survey, SurveySetup(CULPRIT, manner, at))
    assert caught.value.party == CULPRIT
    assert repr(CULPRIT) in str(caught.value)
    assert SECRET not in str(caught.value)
    assert "4711" not in repr(caught.value)


def test_federation_is_usable_after_a_party_raised(engine):
    with engine.open(some_rows()) as fed:
        with pytest.raises(PartyFailed):
            fed.run(survey, SurveySetup(CULPRIT, "raise"))
        assert fed.run(survey, HONEST).parties == NAMES


@pytest.mark.parametrize("topology", [None, "ring"])
def test_party_that_hangs_is_named_within_about_the_timeout(engine, topology):
    setup = SurveySetup(CULPRIT, "sleep", 1, seconds=10 * engine.short_timeout)

    def coordinate(parties):
        parties.enlist(Surveyor, setup)
        if topology is None:
            parties.ask(Surveyor.sum_rows)
        else:
            parties.exchange(Surveyor.offer_count, Surveyor.take_counts)

    with engine.open(some_rows(), topology=topology, timeout=engine.short_timeout) as fed:
        started = time.monotonic()
        with pytest.raises(PartyLost, match=f"'{CULPRIT}'") as caught:
            run(fed, coordinate)
        assert time.monotonic() - started < 5 * engine.short_timeout
    assert caught.value.party == CULPRIT


@pytest.mark.parametrize(
    ("manner", "error"),
    [
        ("nan", MessageRefused),
        ("infinite", MessageRefused),
        ("row", MessageRefused),
        ("integers", MessageRefused),
        ("objects", MessageRefused),
        ("complex", MessageRefused),
        ("list", MessageRefused),
        ("short", MessageRefused),
        ("wrong type", PartyFailed),
        ("nothing", PartyFailed),
        ("undeclared", PartyFailed),
    ],
)
@pytest.mark.parametrize("on_loss", ["raise", "survivors"])
def test_nonsense_in_a_total_is_never_added_up(engine, pooled, manner, error, on_loss):
    setup = SurveySetup(CULPRIT, manner)
    with engine.open(some_rows(), on_loss=on_loss) as fed:
        if on_loss == "raise":
            with pytest.raises(error, match=f"'{CULPRIT}'") as caught:
                fed.run(survey, setup)
            assert caught.value.party == CULPRIT
        else:
            found = fed.run(survey, setup)
            kept = np.vstack(
                [rows for rows, name in zip(pooled, NAMES, strict=True) if name != CULPRIT]
            )
            np.testing.assert_allclose(found.value.mean, kept.mean(axis=0), rtol=1e-13)
            assert found.parties == OTHERS
            assert set(found.lost) == {CULPRIT}


@pytest.mark.parametrize(
    ("manner", "words"),
    [
        ("ascending", "must not increase"),
        ("not orthonormal", "orthonormal"),
        ("negative", "must not"),
    ],
)
def test_spectrum_in_the_wrong_form_is_refused(engine, manner, words):
    def coordinate(parties, setup):
        parties.enlist(Surveyor, setup)
        return parties.ask(Surveyor.spectrum)

    with engine.open(some_rows()) as fed:
        assert len(run(fed, coordinate, HONEST).value) == len(NAMES)
        with pytest.raises(MessageRefused, match=words) as caught:
            run(fed, coordinate, SurveySetup(CULPRIT, manner))
    assert caught.value.party == CULPRIT


def test_field_that_must_be_the_same_everywhere_names_the_odd_party(engine):
    def coordinate(parties):
        parties.enlist(Surveyor, SurveySetup(CULPRIT, "width"))
        parties.ask(Surveyor.tell_width)

    with engine.open(some_rows()) as fed, pytest.raises(MessageRefused, match=r"width 4.* 3") as e:
        run(fed, coordinate)
    assert e.value.party == CULPRIT


# A party that drops out, at each round in turn.


@pytest.mark.parametrize("at", range(1, SURVEY_ROUNDS + 1))
@pytest.mark.parametrize("on_loss", ["raise", "survivors", "reuse"])
def test_star_without_a_killed_party_says_so_or_stops(engine, pooled, on_loss, at):
    faults = [Fault("kill", party=CULPRIT, round=at)]
    with engine.open(some_rows(), on_loss=on_loss, faults=faults) as fed:
        # The last reply to the same step can be reused, and only round 3 has one.
        if on_loss == "raise" or (on_loss == "reuse" and at < SURVEY_ROUNDS):
            with pytest.raises(PartyLost, match=f"'{CULPRIT}'") as caught:
                fed.run(survey, HONEST)
            assert caught.value.party == CULPRIT
            return
        found = fed.run(survey, HONEST)
    if on_loss == "reuse":
        assert fed.reused == {CULPRIT: 1}
        assert found.parties == NAMES
        i = NAMES.index(CULPRIT)
        np.testing.assert_array_equal(found.value.halves[i], found.value.projections[i])
        return
    counted = NAMES if at > 1 else OTHERS
    assert found.value.n_rows == sum(
        len(r) for r, n in zip(pooled, NAMES, strict=True) if n in counted
    )
    assert len(found.value.projections) == (len(NAMES) if at > 2 else len(OTHERS))
    assert len(found.value.halves) == len(OTHERS)
    assert found.parties == OTHERS
    assert set(found.lost) == {CULPRIT}


@pytest.mark.parametrize("at", range(1, 5))
@pytest.mark.parametrize("on_loss", ["raise", "survivors", "reuse"])
def test_graph_without_a_killed_party_goes_on_from_the_last_complete_round(
    engine, pooled, on_loss, at
):
    """Round `at` is undone and repeated on the survivors' graph: the centre can replay it."""
    faults = [Fault("kill", party=CULPRIT, round=at)]
    with engine.open(some_rows(), topology="ring", on_loss=on_loss, faults=faults) as fed:
        if on_loss == "raise":
            with pytest.raises(PartyLost, match=f"'{CULPRIT}'") as caught:
                fed.run(gossip_average, 4)
            assert caught.value.party == CULPRIT
            return
        found = fed.run(gossip_average, 4)
    start = np.array([rows.mean(axis=0) for rows in pooled])
    culprit = NAMES.index(CULPRIT)
    before = mix(start, nx.cycle_graph(len(NAMES)), at - 1)
    expected = np.delete(mix(before, ring_without(culprit), 4 - at + 1), culprit, axis=0)
    np.testing.assert_allclose([r.value for r in found.value], expected, rtol=1e-12)
    assert found.parties == found.value.parties == OTHERS
    assert CULPRIT in found.lost


def test_loss_that_cuts_the_graph_names_the_lost_party(engine):
    faults = [Fault("kill", party=NAMES[0], round=2)]
    opened = engine.open(some_rows(), topology="star", on_loss="survivors", faults=faults)
    with opened as fed, pytest.raises(TopologyError, match=f"'{NAMES[0]}'"):
        fed.run(gossip_average, 3)


@pytest.mark.parametrize("topology", [None, "full"])
def test_losing_everybody_is_an_error_that_names_them(engine, topology):
    protocol, argument = (survey, HONEST) if topology is None else (gossip_average, 3)
    opened = engine.open(
        some_rows(), topology=topology, on_loss="survivors", faults=[Fault("kill", round=2)]
    )
    with opened as fed, pytest.raises(PartyLost, match="no party is left") as caught:
        fed.run(protocol, argument)
    assert all(repr(name) in str(caught.value) for name in NAMES)


# After a failed exchange nobody is a round ahead.


def counts_after(engine, setup, n_rounds, *, faults=(), others_only=False, on_loss="raise"):
    """Completed rounds at every answering party after an exchange that fails."""
    asked = OTHERS if others_only else NAMES

    def coordinate(parties):
        parties.enlist(Surveyor, setup)
        with pytest.raises(EigenmeshError, match=f"'{CULPRIT}'") as caught:
            parties.exchange(Surveyor.offer_count, Surveyor.take_counts, times=n_rounds)
        replies = parties.ask(Surveyor.tell_count, each=dict.fromkeys(asked, Query()))
        return [reply.rounds for reply in replies], caught.value

    opened = engine.open(some_rows(), topology="full", faults=faults, on_loss=on_loss)
    with opened as fed:
        return run(fed, coordinate).value


@pytest.mark.parametrize("kind", ["lose", "corrupt", "stale", "kill"])
@pytest.mark.parametrize("at", [1, 2, 4])
def test_fault_in_an_exchange_leaves_no_party_a_round_ahead(engine, kind, at):
    faults = [Fault(kind, party=CULPRIT, round=at)]
    counts, error = counts_after(engine, HONEST, 4, faults=faults, others_only=kind == "kill")
    assert set(counts) == {at - 1}
    assert error.party == CULPRIT


@pytest.mark.parametrize("manner", ["raise", "raise late", "nan"])
@pytest.mark.parametrize("at", [1, 3])
def test_party_that_fails_in_an_exchange_leaves_no_party_a_round_ahead(engine, manner, at):
    counts, error = counts_after(engine, SurveySetup(CULPRIT, manner, at), 4)
    assert set(counts) == {at - 1}
    assert error.party == CULPRIT
    assert SECRET not in str(error)


def test_exchange_can_be_repeated_after_it_failed(engine):
    def coordinate(parties):
        parties.enlist(Surveyor, HONEST)
        with pytest.raises(PartyLost):
            parties.exchange(Surveyor.offer_count, Surveyor.take_counts, times=2)
        parties.exchange(Surveyor.offer_count, Surveyor.take_counts, times=3)
        return [reply.rounds for reply in parties.ask(Surveyor.tell_count, Query())]

    faults = [Fault("lose", party=CULPRIT, round=2)]
    with engine.open(some_rows(), topology="ring", faults=faults) as fed:
        assert run(fed, coordinate).value == [1 + 3] * len(NAMES)


@pytest.mark.parametrize("manner", ["raise late", "nan"])
def test_survivors_of_a_party_that_fails_in_an_exchange_go_on_in_step(engine, manner):
    def coordinate(parties):
        parties.enlist(Surveyor, SurveySetup(CULPRIT, manner, 2))
        parties.exchange(Surveyor.offer_count, Surveyor.take_counts, times=4)
        return [reply.rounds for reply in parties.ask(Surveyor.tell_count, Query())]

    with engine.open(some_rows(), topology="ring", on_loss="survivors") as fed:
        found = run(fed, coordinate)
    assert found.value == [4] * len(OTHERS)
    assert found.parties == OTHERS


# Stale, duplicated, damaged and unlisted.


@pytest.mark.parametrize("topology", [None, "ring"])
def test_reply_of_an_earlier_round_is_refused(engine, topology):
    protocol, argument = (survey, HONEST) if topology is None else (gossip_average, 3)
    faults = [Fault("stale", party=CULPRIT, round=3)]
    opened = engine.open(some_rows(), topology=topology, faults=faults)
    with opened as fed, pytest.raises(StaleRound, match=f"'{CULPRIT}'") as caught:
        fed.run(protocol, argument)
    assert caught.value.party == CULPRIT


def test_duplicated_requests_change_neither_answer_nor_ledger(engine):
    runs = []
    for faults in ([], [Fault("duplicate")]):
        with engine.open(some_rows(), topology="ring", faults=faults) as fed:
            runs.append((fed.run(survey, HONEST), fed.run(gossip_average, 4)))
    (plain, plain_gossip), (repeated, repeated_gossip) = runs
    np.testing.assert_array_equal(plain.value.mean, repeated.value.mean)
    for one, other in zip(plain_gossip.value, repeated_gossip.value, strict=True):
        np.testing.assert_array_equal(one.value, other.value)
    assert by_step(plain.recording.ledger) == by_step(repeated.recording.ledger)
    assert by_step(plain_gossip.recording.ledger) == by_step(repeated_gossip.recording.ledger)


def test_duplicated_request_runs_its_step_once(engine):
    def coordinate(parties):
        parties.enlist(Surveyor, HONEST)
        parties.ask(Surveyor.sum_rows)
        return [reply.calls for reply in parties.ask(Surveyor.tell_width)]

    with engine.open(some_rows(), faults=[Fault("duplicate")]) as fed:
        assert run(fed, coordinate).value == [2] * len(NAMES)


@pytest.mark.parametrize("topology", [None, "ring"])
def test_damaged_message_is_detected_and_its_sender_named(engine, topology):
    protocol, argument = (survey, HONEST) if topology is None else (gossip_average, 3)
    faults = [Fault("corrupt", party=CULPRIT, round=2)]
    opened = engine.open(some_rows(), topology=topology, faults=faults)
    with opened as fed, pytest.raises(MessageRefused, match=f"'{CULPRIT}'.*") as caught:
        fed.run(protocol, argument)
    assert caught.value.party == CULPRIT


def test_step_that_was_not_enlisted_is_refused(engine):
    def coordinate(parties):
        parties.enlist(Surveyor, HONEST, steps=[Surveyor.sum_rows])
        parties.ask(Surveyor.sum_rows)
        parties.ask(Surveyor.project, Direction(np.ones(WIDTH)))

    with engine.open(some_rows()) as fed, pytest.raises(StepRefused, match="project") as caught:
        run(fed, coordinate)
    assert caught.value.party == NAMES[0]


def test_step_of_a_role_that_was_not_enlisted_is_refused(engine):
    def coordinate(parties):
        parties.enlist(Bystander, HONEST)
        parties.ask(Surveyor.sum_rows)

    with engine.open(some_rows()) as fed, pytest.raises(StepRefused, match="Surveyor"):
        run(fed, coordinate)


def test_step_for_a_coordinator_cannot_take_the_messages_of_neighbours(engine):
    def coordinate(parties, send, receive):
        parties.enlist(Surveyor, HONEST)
        parties.exchange(send, receive)

    with engine.open(some_rows(), topology="ring") as fed:
        with pytest.raises(StepRefused, match="'tell_count'"):
            run(fed, coordinate, Surveyor.offer_count, Surveyor.tell_count)
        with pytest.raises(StepRefused, match="'project'"):
            run(fed, coordinate, Surveyor.project, Surveyor.take_counts)
        with pytest.raises(StepRefused, match="'take_counts'"):
            run(fed, lambda p: (p.enlist(Surveyor, HONEST), p.ask(Surveyor.take_counts, Query())))


# What a party's policy forbids does not leave it.


def guarded_by(policy: Policy):
    return some_rows(policies=[policy if name == CULPRIT else None for name in NAMES])


NO_SCORES = Policy(allow=KINDS - {"scores"})


def assert_refused_by_name(caught, *kinds):
    assert caught.value.party == CULPRIT
    assert all(repr(word) in str(caught.value) for word in (CULPRIT, *kinds))


def test_policy_refuses_beforehand_when_asked_what_a_role_needs(engine):
    with engine.open(guarded_by(NO_SCORES)) as fed, fed.recording() as recording:
        fed.require(Surveyor, steps=[Surveyor.sum_rows, Surveyor.spectrum])
        with pytest.raises(PolicyRefusal) as caught:
            fed.require(Surveyor)
    assert_refused_by_name(caught, "scores", "project")
    assert recording.ledger.entries == []


def test_policy_refuses_at_enlisting_and_nothing_has_left(engine):
    opened = engine.open(guarded_by(NO_SCORES))
    with opened as fed, fed.recording() as recording, pytest.raises(PolicyRefusal) as caught:
        fed.run(survey, HONEST)
    assert_refused_by_name(caught, "scores")
    assert recording.ledger.floats_up == 0
    assert recording.ledger.revealed() == {}


def test_policy_on_a_graph_refuses_and_nothing_has_left(engine):
    no_moments = guarded_by(Policy(allow={"counts"}))
    opened = engine.open(no_moments, topology="ring")
    with opened as fed, fed.recording() as recording, pytest.raises(PolicyRefusal) as caught:
        fed.run(gossip_average, 3)
    assert_refused_by_name(caught, "moments")
    assert recording.ledger.revealed() == {}


@pytest.mark.parametrize("on_loss", ["survivors", "reuse"])
def test_a_refusal_is_not_a_loss_that_is_passed_over(engine, on_loss):
    with engine.open(guarded_by(NO_SCORES), on_loss=on_loss) as fed:
        with pytest.raises(PolicyRefusal):
            fed.run(survey, HONEST)
        assert fed.parties == NAMES


@pytest.mark.parametrize("allowed", [1, 2])
def test_policy_limits_how_often_a_step_is_answered(engine, allowed):
    def coordinate(parties):
        parties.enlist(Surveyor, HONEST)
        for _ in range(allowed):
            parties.ask(Surveyor.project, Direction(np.ones(WIDTH)))
        with pytest.raises(PolicyRefusal, match=f"{allowed} calls") as caught:
            parties.ask(Surveyor.project, Direction(np.ones(WIDTH)))
        return parties.ask(Surveyor.tell_width), caught

    with engine.open(guarded_by(Policy(calls_per_run=allowed))) as fed:
        found = run(fed, coordinate)
    replies, caught = found.value
    assert caught.value.party == CULPRIT
    calls = dict(zip(replies.parties, (r.calls for r in replies), strict=True))
    assert calls[CULPRIT] == allowed + 1  # the refused step was never run, `tell_width` was
    sent = [e for e in found.recording.ledger if e.sender == CULPRIT and "project" in e.step]
    assert len(sent) == allowed


def test_enlisting_anew_does_not_reset_the_limit(engine):
    def coordinate(parties):
        for _ in range(3):
            parties.enlist(Surveyor, HONEST)
            parties.ask(Surveyor.sum_rows)

    limited = guarded_by(Policy(calls_per_run=2))
    with engine.open(limited) as fed, pytest.raises(PolicyRefusal) as caught:
        run(fed, coordinate)
    assert caught.value.party == CULPRIT


def test_a_new_run_counts_calls_anew(engine):
    with engine.open(guarded_by(Policy(calls_per_run=2))) as fed:
        for _ in range(3):
            assert fed.run(survey, HONEST).parties == NAMES


def test_limit_holds_on_a_graph(engine):
    limited = guarded_by(Policy(calls_per_run=3))
    with engine.open(limited, topology="ring") as fed:
        assert fed.run(gossip_average, 3).parties == NAMES
        with pytest.raises(PolicyRefusal, match="offer_mean") as caught:
            fed.run(gossip_average, 4)
    assert caught.value.party == CULPRIT


# The end.


def test_closing_leaves_no_thread_that_keeps_the_interpreter_alive(engine):
    before = {t for t in threading.enumerate() if not t.daemon}
    with engine.open(some_rows()) as fed:
        fed.run(survey, HONEST)
    assert {t for t in threading.enumerate() if not t.daemon} <= before


# One thread at a time, of one process; Ctrl-C.


def test_second_thread_is_turned_away_and_the_first_is_not_disturbed(engine):
    slow = SurveySetup(CULPRIT, "sleep", 1, seconds=1.0)
    values = []
    with engine.open(some_rows()) as fed:
        first = threading.Thread(target=lambda: values.append(fed.run(survey, slow)), name="first")
        first.start()
        deadline = time.monotonic() + 20
        while not fed._occupancy._holder and time.monotonic() < deadline:
            time.sleep(0.01)
        for action in (lambda: fed.run(survey, HONEST), lambda: fed.recording().__enter__()):
            with pytest.raises(FederationError, match="at work for thread 'first'.*one thread"):
                action()
        first.join(20)
        again = fed.run(survey, HONEST)
    assert values[0].parties == again.parties == NAMES
    np.testing.assert_array_equal(values[0].value.mean, again.value.mean)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks here")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_fork_cannot_use_the_federation_and_does_not_close_it(engine):
    with engine.open(some_rows()) as fed:
        before = fed.run(survey, HONEST)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                with fed:
                    fed.run(survey, HONEST)
            except FederationError as error:
                code = 0 if "a fork of it" in str(error) else 2
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        after = fed.run(survey, HONEST)
    np.testing.assert_array_equal(before.value.mean, after.value.mean)


def test_interrupt_ends_the_run_and_the_federation_goes_on(engine):
    """While a step is under way, which ends a little later."""
    limits = [pool["num_threads"] for pool in threadpool_info()]

    def coordinate(parties):
        parties.enlist(Surveyor, SurveySetup(CULPRIT, "sleep", 1, seconds=1.0))
        threading.Timer(0.3, os.kill, [os.getpid(), signal.SIGINT]).start()
        parties.ask(Surveyor.tell_width)

    with engine.open(some_rows()) as fed:
        with pytest.raises((KeyboardInterrupt, FederationError)) as caught:
            run(fed, coordinate)
        assert "KeyboardInterrupt" in repr(caught.value)  # or so the other ranks of a job are told
        if engine.name == "nvflare":  # its sites limit processes of their own, here this one
            time.sleep(1.5)
        assert [pool["num_threads"] for pool in threadpool_info()] == limits
        time.sleep(1.5)
        assert fed.run(survey, HONEST).parties == NAMES


def test_rows_are_prepared_fitted_and_clustered_alike(engine):
    parts = messy_rows()
    kpca, kmeans = em.KernelPCA(2, preparation=PREPARED), em.KernelKMeans(2, preparation=PREPARED)
    kmeans.set_params(kernel="linear", gamma=None, n_init=1, random_state=0)
    here, clusters = kpca.fit(parts).eigenvalues_, kmeans.fit(parts).inertia_
    with engine.open(parts) as fed:
        np.testing.assert_allclose(kpca.fit(fed).eigenvalues_, here, rtol=1e-8)
        np.testing.assert_allclose(kmeans.fit(fed).inertia_, clusters, rtol=1e-8)
    assert kpca.preparation_.width == 5
    assert kpca.transform(parts)[0].shape == (12, 2)


def test_samples_are_matched_under_keys_alike(engine):
    pytest.importorskip("private_set_intersection.python", reason="pip install 'eigenmesh[psi]'")
    X = np.random.default_rng(4).normal(size=(30, 2 * len(NAMES)))
    orders = [np.random.default_rng(i).permutation(30)[:27] for i in range(len(NAMES))]
    parts = em.Partitioned(
        columns=[X[own][:, 2 * i : 2 * i + 2] for i, own in enumerate(orders)],
        names=NAMES,
        sample_ids=[[f"p{j}" for j in own] for own in orders],
        align="psi",
        id_secret="words that all have",
    )
    common = sorted(set.intersection(*map(set, orders)))
    assert 2 < len(common) < 27
    model = em.OneShotKPCA(2, local_rank=2, kernel="linear")
    with engine.open(parts) as fed:
        values = model.fit(fed).eigenvalues_
    pooled = em.KernelPCA(2, kernel="linear").fit(X[common]).eigenvalues_
    np.testing.assert_allclose(values, pooled, rtol=1e-8)
