from __future__ import annotations

import dataclasses

import pytest

import eigenmesh  # noqa: F401  registers the protocols
from eigenmesh.errors import InputError, PolicyRefusal
from eigenmesh.runtime.bounds import bound_of, parameters_of
from eigenmesh.runtime.budget import Budget
from eigenmesh.runtime.message import KINDS
from eigenmesh.runtime.policy import Policy
from eigenmesh.runtime.protocol import registered


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


# What a policy is made of.


@pytest.mark.parametrize(
    ("bound", "inside", "outside"),
    [
        (20, [20, 1, -3, 2.5], [21, None, "a", True]),
        ((1, 5), [1, 5, 2.5], [0, 6]),
        ({"low": 0.1}, [0.1, 1e9], [0.09]),
        (["rbf", "linear"], ["rbf"], ["poly", None]),
        ({1, 2}, [1], [True, 1.0, 3]),
        ("rbf", ["rbf"], ["linear"]),
        (True, [True], [1, False]),
    ],
    ids=str,
)
def test_bounds_are_the_most_a_range_or_values(bound, inside, outside):
    own = bound_of(bound, "x")
    assert all(own.allows(value) for value in inside)
    assert not any(own.allows(value) for value in outside)
    assert bound_of(own.plain, "x") == own


@pytest.mark.parametrize("bound", [None, (), (1, 2, 3), (5, 1), ("a", "b"), [], {"most": 3}, {}])
def test_other_bounds_are_refused(bound):
    with pytest.raises(InputError, match="bound of vfed-pca.n_rounds"):
        Policy(protocols={"vfed-pca": {"n_rounds": bound}})


def test_unknown_protocols_and_parameters_are_refused_with_those_there_are():
    with pytest.raises(InputError, match=r"'vfedpca'.*vfed-pca"):
        Policy(protocols={"vfedpca": {}})
    with pytest.raises(InputError, match=r"'rounds'.*n_components.*n_rounds.*on_loss"):
        Policy(protocols={"vfed-pca": {"rounds": 3}})
    with pytest.raises(InputError, match="expected"):
        Policy(protocols={"vfed-pca": 3})


def test_fields_of_setups_can_be_bounded_in_every_protocol():
    for name, protocol in registered().items():
        Policy(protocols={name: dict.fromkeys(parameters_of(protocol), 3)})
    assert {"n_landmarks", "gamma", "kernel"} <= parameters_of(registered()["diskpca"])


@pytest.mark.parametrize("name", ["min_rows", "min_parties", "calls_per_run"])
@pytest.mark.parametrize("number", [0, 1.5, "2", True])
def test_fewest_and_most_are_whole_numbers(name, number):
    with pytest.raises(InputError, match=name):
        Policy(**{name: number})


def test_parties_of_a_study_are_three_between_organisations_unless_said():
    assert Policy().fewest_parties("organisations") == 3
    assert Policy().fewest_parties("domain") == 1
    assert Policy(min_parties=2).fewest_parties("organisations") == 2


WHOLE = Policy(
    allow={"gram", "counts"},
    protocols={"vfed-pca": {"n_rounds": 9, "n_components": (1, 3)}, "survey": {"split": "rows"}},
    min_rows=7,
    budget={"studies": 3, "numbers": 0.5},
    approve="listed",
    approved=["ab"],
)


def test_policies_are_what_files_say(tmp_path):
    path = tmp_path / "policy.toml"
    path.write_text(
        """
        allow = ["gram", "counts"]
        min_rows = 7
        approve = "listed"
        approved = ["ab"]
        [budget]
        studies = 3
        numbers = 0.5
        [protocols.vfed-pca]
        n_rounds = 9
        n_components = {low = 1, high = 3}
        [protocols.survey]
        split = ["rows"]
        """
    )
    assert Policy.from_toml(path) == WHOLE
    assert Policy.from_tree(WHOLE.to_tree()) == WHOLE


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("allow = [", "cannot be read"),
        ("alow = []", "'alow'.*allow"),
        ("allow = ['row']", "'row'.*rows"),
        ("min_rows = 0", "min_rows is 0"),
        ("[budget]\nyears = 3", "years"),
        ("approve = 'never'", "'each'"),
    ],
)
def test_files_that_are_no_policies_say_why(tmp_path, text, words):
    path = tmp_path / "policy.toml"
    path.write_text(text)
    with pytest.raises(InputError, match=words) as caught:
        Policy.from_toml(path)
    assert "policy.toml" in str(caught.value)
    with pytest.raises(InputError, match="cannot be read"):
        Policy.from_toml(tmp_path / "none.toml")


def test_a_policy_of_an_older_file_that_allowed_everything_still_does():
    older = sorted(KINDS - {"columns"})
    assert Policy.from_tree({"allow": older, "calls_per_run": None}) == Policy()
    assert Policy.from_tree({"allow": ["gram"], "calls_per_run": 2}).allow == {"gram"}


@pytest.mark.parametrize("limit", [-1, 1.5, True])
def test_budgets_are_whole_numbers(limit):
    with pytest.raises(InputError, match="studies"):
        Budget(studies=limit)
    with pytest.raises(InputError, match="numbers"):
        Budget(numbers="all")


def test_a_policy_says_by_name_which_sums_are_the_same():
    assert Policy().same_sum == "data"
    loose = Policy(same_sum="question")
    assert Policy.from_tree(loose.to_tree()) == loose
    with pytest.raises(InputError, match="'data' or 'question'"):
        Policy(same_sum="run")
