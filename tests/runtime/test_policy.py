from __future__ import annotations

import dataclasses

import pytest

from eigenmesh.errors import InputError, PolicyRefusal
from eigenmesh.runtime.message import KINDS
from eigenmesh.runtime.policy import Policy


def test_everything_may_leave_by_default():
    assert Policy().forbids(KINDS) == ()
    Policy().check_calls(10**9, "step", "north")


def test_only_what_is_allowed_may_leave():
    policy = Policy(allow={"counts", "moments"})
    assert policy.forbids({"rows", "counts", "gram"}) == ("gram", "rows")
    assert Policy(allow="counts").forbids({"counts"}) == ()
    assert Policy(allow=()).forbids({"counts"}) == ("counts",)


def test_refusal_names_party_step_and_kind_and_what_is_allowed():
    with pytest.raises(PolicyRefusal) as caught:
        Policy(allow={"counts"}).check_kinds({"rows", "counts"}, "draw_rows", "north")
    assert caught.value.party == "north"
    for word in ("'north'", "'draw_rows'", "'rows'", "it allows counts"):
        assert word in str(caught.value)
    with pytest.raises(PolicyRefusal, match="it allows nothing"):
        Policy(allow=()).check_kinds({"rows"}, "draw_rows", "north")


def test_message_that_reveals_nothing_passes_the_strictest_policy():
    Policy(allow=()).check_kinds((), "wait", "north")


def test_limit_is_the_number_of_calls_that_are_answered():
    policy = Policy(calls_per_run=2)
    policy.check_calls(2, "gram_product", "north")
    with pytest.raises(PolicyRefusal, match="allows 2 calls") as caught:
        policy.check_calls(3, "gram_product", "north")
    assert caught.value.party == "north"


def test_unknown_kind_is_refused_with_the_list():
    with pytest.raises(InputError, match=r"'eigenvector'.*eigenvectors"):
        Policy(allow={"eigenvector", "rows"})


@pytest.mark.parametrize("limit", [0, -1, 2.5, "3", True])
def test_limit_must_be_a_whole_number_from_one(limit):
    with pytest.raises(InputError, match="calls_per_run"):
        Policy(calls_per_run=limit)


def test_policy_cannot_be_widened_afterwards():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Policy(allow={"counts"}).allow = KINDS
