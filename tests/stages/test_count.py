"""Survey: sizes and nothing else, and a party that does not fit is named."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

import eigenmesh as em
from eigenmesh.engines.faulty import Fault, with_faults
from eigenmesh.engines.in_process import InProcess
from eigenmesh.errors import MessageRefused, PolicyRefusal
from eigenmesh.runtime.federation import Federation
from eigenmesh.runtime.site import Site
from eigenmesh.stages.count import survey


def run(parts):
    with em.federation(parts) as fed:
        return fed.run(survey)


def sites_with(shapes, split):
    """Sites that were never compared with each other, as in a real federation."""
    sites = [
        Site(f"site-{i}", opens=lambda shape=shape: np.ones(shape))
        for i, shape in enumerate(shapes)
    ]
    return Federation(InProcess(sites), split=split)


@pytest.mark.parametrize("by", ["rows", "columns"])
@pytest.mark.parametrize("sparse", [False, True])
def test_tells_every_shape_in_party_order(by, sparse):
    X = np.random.default_rng(0).normal(size=(60, 13))
    parts = em.split(sp.csr_array(X) if sparse else X, 4, by=by, law="power", random_state=0)
    replies = run(parts).value
    assert replies.parties == parts.names
    assert [(reply.n_rows, reply.n_columns) for reply in replies] == list(parts.shapes)


@pytest.mark.parametrize("by", ["rows", "columns"])
def test_costs_one_round_and_no_float(by):
    ledger = run(em.split(np.ones((9, 6)), 3, by=by, random_state=0)).recording.ledger
    assert (ledger.rounds, ledger.floats_up, ledger.floats_down) == (1, 0, 0)


def test_reveals_counts_only():
    parts = em.split(np.ones((9, 6)), 3, policies=em.Policy(allow={"counts"}), random_state=0)
    revealed = run(parts).recording.ledger.revealed()
    assert revealed == {name: {"counts": 0} for name in parts.names}


def test_a_policy_without_counts_refuses():
    parts = em.split(np.ones((9, 6)), 3, policies=em.Policy(allow={"moments"}), random_state=0)
    with pytest.raises(PolicyRefusal, match="'counts'"):
        run(parts)


@pytest.mark.parametrize(
    ("split", "shapes", "field"),
    [
        ("columns", [(8, 2), (8, 3), (7, 2)], "n_rows 7, the others 8"),
        ("rows", [(8, 2), (5, 2), (8, 3)], "n_columns 3, the others 2"),
    ],
)
def test_names_the_party_that_does_not_fit(split, shapes, field):
    odd = pytest.raises(MessageRefused, match=f"'site-2' has {field}")
    with sites_with(shapes, split) as fed, odd as caught:
        fed.run(survey)
    assert caught.value.party == "site-2"


def test_parties_may_differ_in_what_they_split():
    with sites_with([(8, 2), (8, 3)], "columns") as fed:
        assert [reply.n_columns for reply in fed.run(survey).value] == [2, 3]
    with sites_with([(8, 2), (5, 2)], "rows") as fed:
        assert [reply.n_rows for reply in fed.run(survey).value] == [8, 5]


@pytest.mark.parametrize("lost", [1, 2])
def test_who_misses_the_round_is_asked_again(lost):
    faults = [Fault("lose", party="party-1", round=r + 1) for r in range(lost)]
    parts = em.split(np.ones((9, 6)), 3, random_state=0)
    with em.federation(parts, on_loss="skip", faults=faults) as fed:
        found = fed.run(survey)
    assert found.value.parties == parts.names
    assert found.recording.ledger.rounds == 1 + lost
    assert found.dropped == {"party-1": lost}


def test_a_late_party_is_compared_with_those_before_it():
    sites = [
        Site(f"site-{i}", opens=lambda d=d: np.ones((4, d))) for i, d in enumerate((2, 2, 2, 3))
    ]
    faults = with_faults([Fault("lose", party="site-3", round=1)])
    with Federation(InProcess(sites, faults), split="rows", on_loss="skip") as fed:
        with pytest.raises(MessageRefused, match="'site-3' has n_columns 3, the others 2"):
            fed.run(survey)
