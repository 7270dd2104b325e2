"""on_loss="skip": a round goes on without a party, the next one asks it again."""

import numpy as np
import pytest
from tests.engines.contract import Surveyor, SurveySetup, some_rows

import eigenmesh as em
from eigenmesh.engines.faulty import Fault
from eigenmesh.errors import InputError, PartyLost, PolicyRefusal
from eigenmesh.runtime.protocol import Protocol
from eigenmesh.stages.ask_again import Patient


def run(fed, coordinate):
    return fed.run(Protocol("in a test", (Surveyor,), coordinate, skips=True))


def totals(faults, n_rounds, max_age=2, policies=None):
    """Who was covered in each round, and the run."""
    rows = some_rows() if policies is None else some_rows(policies=policies)

    def coordinate(fed):
        fed.enlist(Surveyor, SurveySetup())
        return [fed.total(Surveyor.sum_rows).parties for _ in range(n_rounds)]

    with em.federation(rows, faults=faults, on_loss="skip", max_age=max_age) as fed:
        return run(fed, coordinate)


def test_a_party_is_asked_again_in_the_next_round():
    done = totals([Fault("lose", party="east", round=2)], 3)
    assert [("east" in covered) for covered in done.value] == [True, False, True]
    assert done.dropped == {"east": 1}
    assert not done.lost


def test_who_is_silent_too_often_in_a_row_is_out():
    done = totals([Fault("kill", party="east", round=2)], 5, max_age=2)
    assert done.dropped == {"east": 2}
    assert "3 rounds in a row" in done.lost["east"]
    assert "east" not in done.parties
    asked = [e for e in done.recording.ledger if e.sender == "east"]
    assert len(asked) == 1


def test_silence_that_is_broken_does_not_add_up():
    faults = [Fault("lose", party="east", round=r) for r in (1, 2, 4, 5)]
    done = totals(faults, 6, max_age=2)
    assert done.dropped == {"east": 4}
    assert not done.lost


def test_a_sum_covers_those_who_answered():
    def coordinate(fed):
        fed.enlist(Surveyor, SurveySetup())
        return fed.total(Surveyor.sum_rows).sum

    rows = some_rows()
    with em.federation(rows, faults=[Fault("lose", party="south")], on_loss="skip") as fed:
        found = run(fed, coordinate).value
    expected = sum(part.sum(axis=0) for i, part in enumerate(rows.parts) if i != 2)
    np.testing.assert_allclose(found.sums, expected)


def test_a_round_that_nobody_answers_is_an_error_but_not_the_end():
    faults = [Fault("lose", round=1)]

    def coordinate(fed):
        fed.enlist(Surveyor, SurveySetup())
        for ask in (fed.total, fed.ask):
            with pytest.raises(PartyLost, match="no party answered"):
                ask(Surveyor.sum_rows)
            break
        return len(fed.ask(Surveyor.sum_rows))

    with em.federation(some_rows(), faults=faults, on_loss="skip") as fed:
        assert run(fed, coordinate).value == 5


def test_an_ask_that_nobody_answers_is_an_error_too():
    def coordinate(fed):
        fed.enlist(Surveyor, SurveySetup())
        fed.ask(Surveyor.sum_rows)

    with em.federation(some_rows(), faults=[Fault("lose")], on_loss="skip") as fed:
        with pytest.raises(PartyLost, match="no party answered"):
            run(fed, coordinate)


def test_each_run_begins_with_full_patience():
    def coordinate(fed):
        fed.enlist(Surveyor, SurveySetup())
        for _ in range(2):
            fed.total(Surveyor.sum_rows)

    faults = [Fault("lose", party="east", round=r) for r in (1, 2, 3, 4)]
    with em.federation(some_rows(), faults=faults, on_loss="skip", max_age=2) as fed:
        with fed.recording():
            run(fed, coordinate)
            second = run(fed, coordinate)
    assert not second.lost


def test_a_refusal_by_policy_is_no_silence():
    policies = [None, em.Policy(allow={"counts"}), None, None, None]
    with pytest.raises(PolicyRefusal) as caught:
        totals([], 1, policies=policies)
    assert caught.value.party == "east"


def test_a_graph_cannot_skip():
    with pytest.raises(InputError, match="skip.*coordinator"):
        em.federation(some_rows(), topology="ring", on_loss="skip")


def test_a_protocol_must_say_that_its_parties_may_miss_rounds():
    """Rounds whose sums cover different rows would not belong together."""
    with em.federation(some_rows(), on_loss="skip") as fed:
        with pytest.raises(InputError, match="'sketching-pca' must not miss a round"):
            em.SketchingPCA(2).fit(fed)


# Waiting for everybody.


@pytest.mark.parametrize("way", ["ask", "total"])
def test_a_patient_federation_hears_everybody(way):
    def coordinate(fed):
        fed.enlist(Surveyor, SurveySetup())
        return getattr(Patient(fed), way)(Surveyor.sum_rows)

    rows = some_rows()
    faults = [Fault("lose", party=name, round=r) for name, r in [("north", 1), ("east", 1)]]
    faults.append(Fault("lose", party="east", round=2))
    with em.federation(rows, faults=faults, on_loss="skip") as fed:
        done = run(fed, coordinate)
    found = done.value
    assert found.parties == rows.names  # in party order, whoever came late
    assert done.dropped == {"north": 1, "east": 2}
    n_rows = found.sum.n_rows if way == "total" else sum(reply.n_rows for reply in found)
    assert n_rows == sum(map(len, rows.parts))


def test_patience_ends_with_the_party_or_with_its_chances():
    def coordinate(fed):
        fed.enlist(Surveyor, SurveySetup())
        once = Patient(fed, chances=1).total(Surveyor.sum_rows)
        return once.parties, Patient(fed).total(Surveyor.sum_rows).parties

    faults = [Fault("kill", party="west", round=1)]
    with em.federation(some_rows(), faults=faults, on_loss="skip", max_age=3) as fed:
        done = run(fed, coordinate)
    assert done.value == (("north", "east", "south", "centre"),) * 2
    assert set(done.lost) == {"west"}


def test_nobody_left_to_wait_for_is_an_error():
    def coordinate(fed):
        fed.enlist(Surveyor, SurveySetup())
        Patient(fed).ask(Surveyor.sum_rows)

    with em.federation(some_rows(), faults=[Fault("kill")], on_loss="skip") as fed:
        with pytest.raises(PartyLost):
            run(fed, coordinate)
