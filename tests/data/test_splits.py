from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from eigenmesh.data import Partitioned, feasible_parties, split, split_columns
from eigenmesh.data.splits import sizes_by_law
from eigenmesh.errors import InputError, PartitionError
from eigenmesh.runtime.policy import Policy


@pytest.fixture(name="X")
def matrix():
    return np.random.default_rng(0).normal(size=(40, 7))


# Sizes.


@given(st.integers(1, 60), st.integers(0, 10_000), st.floats(0, 40))
def test_power_sizes_sum_up_fall_and_are_at_least_one(n_parties, extra, exponent):
    sizes = sizes_by_law(n_parties + extra, n_parties, "power", exponent)
    assert sum(sizes) == n_parties + extra
    assert min(sizes) >= 1
    assert list(sizes) == sorted(sizes, reverse=True)


@given(st.integers(1, 300), st.integers(0, 10_000))
def test_equal_sizes_differ_by_at_most_one(n_parties, extra):
    sizes = sizes_by_law(n_parties + extra, n_parties)
    assert sum(sizes) == n_parties + extra
    assert max(sizes) - min(sizes) <= 1


def test_power_sizes_follow_the_law_where_it_gives_a_party_more_than_one():
    sizes = np.array(sizes_by_law(1_000_000, 20, "power", 2.0))
    shares = np.arange(1, 21) ** -2.0
    np.testing.assert_allclose(sizes, 1_000_000 * shares / shares.sum(), atol=1)
    # Most of 100 parties are lifted to one row; the head keeps its proportions.
    sizes = sizes_by_law(200, 100, "power", 2.0)
    assert sizes[0] / sizes[1] == pytest.approx(4, rel=0.1)


@pytest.mark.parametrize("law", ["equal", "power"])
def test_as_many_parties_as_rows_hold_one_row_each(law):
    for n in (1, 3, 49, 1000):
        assert sizes_by_law(n, n, law) == (1,) * n


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ((3, 4), "n_parties is 4, expected at most 3, the number of rows"),
        ((3, 0), "at least 1"),
        ((3, -1), "at least 1"),
        ((3, 2.0), "whole number"),
        ((3, True), "whole number"),
        ((3, 2, "zipf"), "'equal' or 'power'"),
        ((3, 2, "power", -1.0), "≥ 0"),
        ((3, 2, "power", float("nan")), "≥ 0"),
    ],
)
def test_impossible_sizes_are_refused(arguments, match):
    with pytest.raises(InputError, match=match):
        sizes_by_law(*arguments)


# Splits.


@given(
    st.integers(1, 12), st.integers(0, 20), st.sampled_from(["equal", "power"]), st.integers(0, 99)
)
def test_rows_come_back_in_order(n_parties, extra, law, seed):
    n = n_parties + extra
    X = np.arange(3.0 * n).reshape(n, 3)
    parts = split(X, n_parties, law=law, random_state=seed)
    back = np.empty_like(X)
    back[np.concatenate(parts.order)] = np.concatenate(parts.parts)
    np.testing.assert_array_equal(back, X)
    assert [len(rows) for rows in parts.order] == [len(part) for part in parts.parts]


@given(st.integers(1, 12), st.integers(0, 20), st.sampled_from(["equal", "power"]))
def test_columns_come_back_by_concatenation_and_by_widths(n_parties, extra, law):
    X = np.random.default_rng(0).normal(size=(2, n_parties + extra))
    parts = split(X, n_parties, by="columns", law=law)
    np.testing.assert_array_equal(np.concatenate(parts.parts, axis=1), X)
    assert all(np.shares_memory(part, X) for part in parts.parts)
    for part, block in zip(parts.parts, split_columns(X, parts.widths), strict=True):
        np.testing.assert_array_equal(part, block)


def test_rows_are_dealt_at_random_and_repeatably(X):
    first, again = split(X, 2, random_state=0), split(X, 2, random_state=0)
    other = split(X, 2, random_state=1)
    np.testing.assert_array_equal(first.order[0], again.order[0])
    assert first.order[0].tolist() != other.order[0].tolist()
    assert first.order[0].tolist() != list(range(20))


@pytest.mark.parametrize(
    "state", [None, 3, np.random.default_rng(0), np.random.RandomState(0), np.int64(3)]
)
def test_every_usual_random_state_is_taken(X, state):
    assert split(X, 3, random_state=state).n_samples == 40


@pytest.mark.parametrize("by", ["rows", "columns"])
def test_every_kind_of_array_is_split_alike(X, by, tmp_path):
    np.save(tmp_path / "a.npy", X)
    expected = split(X, 3, by=by, random_state=0).parts
    kinds = [
        X.tolist(),
        np.asfortranarray(X),
        sp.csc_array(X),
        pd.DataFrame(X),
        np.load(tmp_path / "a.npy", mmap_mode="r"),
        tmp_path / "a.npy",
    ]
    for kind in kinds:
        for part, own in zip(split(kind, 3, by=by, random_state=0).parts, expected, strict=True):
            dense = part.toarray() if sp.issparse(part) else part
            np.testing.assert_array_equal(dense, own)


def test_columns_of_a_memmap_stay_mapped_and_sparse_stays_sparse(X, tmp_path):
    np.save(tmp_path / "a.npy", X)
    mapped = split(np.load(tmp_path / "a.npy", mmap_mode="r"), 2, by="columns")
    assert all(isinstance(part, np.memmap) for part in mapped.parts)
    for by in ("rows", "columns"):
        parts = split(sp.csr_matrix(X), 2, by=by, random_state=0).parts
        assert all(isinstance(part, sp.csr_array) for part in parts)


def test_data_frame_keeps_names_and_index(X):
    frame = pd.DataFrame(X, columns=list("abcdefg"), index=range(100, 140))
    by_columns = split(frame, 2, by="columns")
    assert by_columns.feature_names == (tuple("abcd"), tuple("efg"))
    assert [ids[0] for ids in by_columns.sample_ids] == [100, 100]
    by_rows = split(frame, 2, random_state=0)
    assert by_rows.feature_names == (tuple("abcdefg"),) * 2


def test_names_and_policies_are_passed_on(X):
    policy = Policy(allow={"counts"})
    parts = split(X, 2, names=["a", "b"], policies=policy, random_state=0)
    assert (parts.names, parts.policies) == (("a", "b"), (policy, policy))


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"n_parties": 41}, "at most 40, the number of rows"),
        ({"n_parties": 8, "by": "columns"}, "at most 7, the number of columns"),
        ({"n_parties": 2, "by": "cols"}, "'rows' or 'columns'"),
        ({"n_parties": 2, "random_state": "x"}, "random_state is 'x'"),
        ({"n_parties": 2, "random_state": -1}, "random_state is -1"),
        ({"n_parties": 2, "names": ["a"]}, "list of 2 names"),
    ],
)
def test_impossible_splits_are_refused(X, arguments, match):
    with pytest.raises(InputError, match=match):
        split(X, **arguments)


def test_bad_values_are_named_by_their_place_in_x(X):
    X[17, 5] = np.nan
    with pytest.raises(InputError, match="X holds nan at row 17, column 5") as caught:
        split(X, 3)
    assert not isinstance(caught.value, PartitionError)


def test_a_split_is_not_split_again(X):
    with pytest.raises(InputError, match="split already"):
        split(Partitioned(rows=[X]), 2)


# Plain arrays by remembered widths.


@pytest.mark.parametrize("make", [np.asarray, sp.coo_array, pd.DataFrame, np.ndarray.tolist])
def test_split_columns_cuts_every_kind(X, make):
    blocks = split_columns(make(X), (3, 4))
    assert [block.shape for block in blocks] == [(40, 3), (40, 4)]


@pytest.mark.parametrize(
    ("widths", "match"),
    [((3, 3), "expected 6 columns"), ((7, 0), "at least one"), ((9, -2), "at least one")],
)
def test_split_columns_refuses_widths_that_do_not_fit(X, widths, match):
    with pytest.raises(InputError, match=match):
        split_columns(X, widths)


def test_split_columns_refuses_one_dimension():
    with pytest.raises(InputError, match="shape"):
        split_columns(np.ones(7), (3, 4))


def test_a_feasible_number_of_parties_costs_no_more_than_one():
    """Of He et al., section III.C: the work is then at most twice T³ up to rounding of J."""
    rng = np.random.default_rng(0)
    for _ in range(200):
        T, M, D = (int(rng.integers(1, most)) for most in (5000, 5000, 60))
        feasible = feasible_parties(T, M, D)

        def within(J, T=T, M=M, D=D):
            return M / J + (D + 1) * J <= T  # (M/J + DJ + J) T² ≤ T³

        numbers = [J for J in range(1, M + 1) if within(J)]
        assert feasible == ((numbers[0], numbers[-1]) if numbers else None)
    with pytest.raises(InputError, match="n_samples is 0"):
        feasible_parties(0, 10, 1)
