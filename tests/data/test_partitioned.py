from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from eigenmesh.data import Partitioned, hash_sample_ids, split
from eigenmesh.errors import InputError, PartitionError
from eigenmesh.runtime.policy import Policy

SNIFFED_BY_SKLEARN = ("index", "shape", "columns", "dtype", "iloc", "__array__")


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def refused(*, party=None, match, **arguments):
    with pytest.raises(InputError, match=match) as caught:
        Partitioned(**arguments)
    if party is not None:
        assert isinstance(caught.value, PartitionError)
        assert caught.value.party == party
        assert repr(party) in str(caught.value)
    return str(caught.value)


def test_row_split_knows_its_sizes(rng):
    parts = Partitioned(rows=[rng.normal(size=(n, 4)) for n in (3, 5)])
    assert parts.split == "rows"
    assert parts.names == ("party-0", "party-1")
    assert (parts.n_parties, len(parts)) == (2, 2)
    assert (parts.n_samples, parts.n_features, parts.widths) == (8, 4, 4)
    assert parts.shapes == ((3, 4), (5, 4))
    assert parts.sample_ids is None
    assert parts.order is None
    assert parts.policies == (None, None)
    assert parts.feature_names == (None, None)


def test_column_split_knows_its_sizes(rng):
    parts = Partitioned(columns=[rng.normal(size=(6, d)) for d in (1, 3, 2)], names=list("abc"))
    assert parts.split == "columns"
    assert (parts.n_samples, parts.n_features, parts.widths) == (6, 6, (1, 3, 2))


def test_has_nothing_that_scikit_learn_takes_for_an_array(rng):
    parts = Partitioned(rows=[rng.normal(size=(3, 2))])
    assert not [name for name in SNIFFED_BY_SKLEARN if hasattr(parts, name)]


def test_repr_names_split_sizes_and_parties():
    parts = Partitioned(columns=[np.ones((4, 2))] * 7)
    assert repr(parts).startswith("Partitioned(columns, 7 parties, 4 samples × 14 features: ")
    assert repr(parts).endswith("'party-4' 4×2, …)")


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("order", ["C", "F"])
def test_valid_float_arrays_are_not_copied(rng, dtype, order):
    X = np.asarray(rng.normal(size=(5, 3)), dtype=dtype, order=order)
    assert np.shares_memory(Partitioned(rows=[X]).parts[0], X)


def test_memmap_stays_a_memmap(tmp_path, rng):
    np.save(tmp_path / "a.npy", rng.normal(size=(5, 3)))
    X = np.load(tmp_path / "a.npy", mmap_mode="r")
    assert Partitioned(rows=[X]).parts[0] is X


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (np.int8, np.float64),
        (np.uint64, np.float64),
        (bool, np.float64),
        (np.float16, np.float32),
        (np.longdouble, np.float64),
        (">f8", np.float64),
        (">f4", np.float32),
    ],
)
def test_other_numbers_become_floats_of_the_machine(given, kept):
    X = Partitioned(rows=[np.ones((2, 2), dtype=given)]).parts[0]
    assert X.dtype == kept
    assert X.dtype.isnative
    assert (X == 1).all()


def test_nested_lists_and_three_dimensional_stacks_are_parties():
    assert Partitioned(rows=[[[1, 2]], [[3, 4]]]).n_samples == 2
    assert Partitioned(rows=np.ones((3, 2, 5))).shapes == ((2, 5),) * 3


@pytest.mark.parametrize("make", [sp.csr_matrix, sp.csc_array, sp.coo_matrix, sp.lil_array])
def test_sparse_parties_become_csr_arrays(make):
    dense = np.array([[0.0, 2.0], [3.0, 0.0]])
    X = Partitioned(rows=[make(dense)]).parts[0]
    assert isinstance(X, sp.csr_array)
    np.testing.assert_array_equal(X.toarray(), dense)


def test_csr_buffers_are_shared_but_duplicates_are_summed_in_a_copy():
    clean = sp.csr_array(np.eye(3))
    assert np.shares_memory(Partitioned(rows=[clean]).parts[0].data, clean.data)
    twice = sp.csr_array((np.ones(2), [1, 1], [0, 2]), shape=(1, 2))
    X = Partitioned(rows=[twice]).parts[0]
    assert X.nnz == 1
    assert X.toarray().tolist() == [[0.0, 2.0]]
    assert twice.nnz == 2


def test_data_frames_keep_feature_names_and_sparse_frames_stay_sparse(rng):
    frame = pd.DataFrame(rng.normal(size=(3, 2)), columns=["age", "height"])
    parts = Partitioned(rows=[frame, frame])
    assert parts.feature_names == (("age", "height"),) * 2
    np.testing.assert_array_equal(parts.parts[0], frame.to_numpy())
    thin = pd.DataFrame.sparse.from_spmatrix(sp.csr_matrix(np.eye(3)))
    assert isinstance(Partitioned(rows=[thin]).parts[0], sp.csr_array)


def test_nullable_columns_without_gaps_are_numbers():
    frame = pd.DataFrame({"a": pd.array([1, 2], dtype="Int64"), "b": [0.5, 1.5]})
    assert Partitioned(rows=[frame]).parts[0].tolist() == [[1.0, 0.5], [2.0, 1.5]]


# What does not fit.


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("order", ["C", "F"])
def test_non_finite_value_is_named_with_party_and_place(rng, bad, order):
    X = np.asarray(rng.normal(size=(5, 3)), order=order)
    X[3, 1] = bad
    text = refused(
        rows=[np.ones((2, 3)), X], names=["a", "north"], party="north", match="row 3, column 1"
    )
    assert "impute" in text


@pytest.mark.parametrize("order", ["C", "F"])
def test_non_finite_value_is_found_beyond_the_first_block(order):
    X = np.zeros((1500, 2000), dtype=np.float32, order=order)
    X[1400, 1900] = np.nan
    refused(rows=[X], party="party-0", match="row 1400, column 1900")


def test_non_finite_value_of_a_sparse_party_is_named():
    X = sp.csr_array(np.array([[0.0, 1.0], [np.nan, 0.0]]))
    refused(rows=[X], party="party-0", match="nan at row 1, column 0")


def test_wrong_width_names_the_party_and_the_other_split():
    text = refused(
        rows=[np.ones((5, 30)), np.ones((5, 31)), np.ones((4, 30))],
        names=["south", "north", "west"],
        party="north",
        match="31 columns, the others 30",
    )
    assert text.endswith("pass Partitioned(columns=...) for column-split data")


def test_wrong_width_of_two_parties_names_both():
    text = refused(rows=[np.ones((5, 3)), np.ones((5, 4))], party="party-1", match="4 columns")
    assert "party 'party-0' has 3" in text


def test_wrong_number_of_samples_names_the_party_that_differs():
    refused(
        columns=[np.ones((4, 2)), np.ones((5, 2)), np.ones((5, 9))],
        party="party-0",
        match="4 samples, the others 5",
    )


@pytest.mark.parametrize("seed", range(4))
def test_parties_of_mixed_precision_are_worked_in_the_wider_one(seed, tmp_path):
    rng = np.random.default_rng(seed)
    kinds = rng.permutation([np.float32, np.float64, np.float32])
    arrays = [rng.normal(size=(4, 2)).astype(kind) for kind in kinds]
    sources = list(arrays)
    for party in np.flatnonzero(rng.random(3) < 0.6):
        own = arrays[party]
        if rng.random() < 0.5:
            sources[party] = tmp_path / f"{party}.npy"
            np.save(sources[party], own)
        else:
            sources[party] = tmp_path / f"{party}.parquet"
            pd.DataFrame(own, columns=["a", "b"]).to_parquet(sources[party])
    split = rng.choice(["rows", "columns"])
    parts = Partitioned(**{split: sources})
    # The first to be read does not decide, and neither do some of the parties.
    names = [parts.names[party] for party in rng.permutation(3)[:2]]
    for own in (parts.select(names), parts):
        for i, name in enumerate(own.names):
            expected = arrays[parts.names.index(name)].astype(np.float64)
            assert own.part(i).dtype == np.float64
            assert (own.part(i) == expected).all()
    single = [own.astype(np.float32) for own in arrays]
    assert {own.dtype for own in Partitioned(**{split: single}).parts} == {np.dtype(np.float32)}


@pytest.mark.parametrize("kind", ["frame", "csv", "parquet"])
def test_an_id_column_among_the_features_is_named(kind, tmp_path):
    frame = pd.DataFrame({"patient": ["a", "b", "c"], "age": [1.0, 2.0, 3.0], "id": [1, 2, 3]})
    source = frame if kind == "frame" else tmp_path / f"x.{kind}"
    if kind == "csv":
        frame.to_csv(source, index=False)
    elif kind == "parquet":
        frame.to_parquet(source, index=False)
    for words in ({"features": ["age", "patient"]}, {"categories": ["patient"]}):
        with pytest.raises(InputError, match="'patient' is the id column and among the features"):
            Partitioned(rows=[source], id_column="patient", **words)
    with pytest.raises(InputError, match="'age' is given twice"):
        Partitioned(rows=[source], features=["age", "id", "age"])
    if kind != "frame":  # a column called so has a file's ids
        with pytest.raises(PartitionError, match="its ids in 'id', which is no feature"):
            Partitioned(rows=[source], features=["age", "id"]).part(0)


@pytest.mark.parametrize("shape", [(0, 3), (3, 0)])
@pytest.mark.parametrize("make", [np.ones, sp.csr_array])
def test_empty_party_is_refused(make, shape):
    refused(rows=[np.ones((2, 3)), make(shape)], party="party-1", match="is empty")


@pytest.mark.parametrize(
    ("data", "match"),
    [
        (np.ones(3), "1 dimension.*reshape"),
        (np.ones((1, 2, 3)), "3 dimension"),
        (3.0, "0 dimension"),
        (np.array([["a", "b"]]), "str.* values"),
        (np.array([[1.0, "b"]], dtype=object), "a str at row 0, column 1"),
        (np.array([[1.0, None]], dtype=object), "a NoneType at row 0, column 1"),
        (np.array([[1.0, 2.0]], dtype=object), "numbers kept as Python objects"),
        (np.ones((2, 2), dtype=complex), "complex128"),
        (sp.csr_array(np.ones((2, 2), dtype=complex)), "complex128"),
        (np.array([["2020-01-01"]], dtype="M8[D]"), "datetime64"),
        (np.zeros((1, 1), dtype=[("a", float)]), "expected real numbers"),
        ([[1, 2], [3]], "differ in length"),
        (np.ma.masked_equal([[1.0, 2.0]], 2.0), "masked"),
        (pd.Series([1.0, 2.0]), "1 dimension"),
        (pd.DataFrame({"a": [1.0], "town": ["x"]}), "column 'town'.*encode"),
        (pd.DataFrame({"a": pd.Categorical([1, 2])}), "column 'a' of type category"),
        (pd.DataFrame({"a": pd.array([1, None], dtype="Int64")}), "nan at row 1, column 0"),
        (pd.DataFrame({"day": pd.to_datetime(["2020-01-01"])}), "column 'day'"),
        (None, "objects|dimension"),
    ],
)
def test_data_that_are_no_matrix_of_numbers_are_refused(data, match):
    refused(rows=[data], names=["north"], party="north", match=match)


def _written(frame, path, suffix):
    file = path.with_suffix(suffix)
    frame.to_csv(file, index=False) if suffix == ".csv" else frame.to_parquet(file, index=False)
    return file


@pytest.mark.parametrize("seed", range(4))
def test_rows_get_the_order_of_the_first_party_whatever_form_they_come_in(tmp_path, seed):
    rng = np.random.default_rng(seed)
    names = [f"c{i}" for i in range(5)]
    frames = [pd.DataFrame(rng.normal(size=(6, 5)), columns=names) for _ in range(3)]
    mixed = [frame[rng.permutation(names)] for frame in frames]
    forms = [f if rng.random() < 0.3 else None for f in mixed]
    sources = [
        frame if kept is not None else _written(frame, tmp_path / f"p{i}", suffix)
        for i, (frame, kept, suffix) in enumerate(
            zip(mixed, forms, rng.permutation([".csv", ".parquet", ".csv"]), strict=True)
        )
    ]
    parts = Partitioned(rows=sources)
    order = list(mixed[0].columns)
    for party in rng.permutation(3):  # files may be opened in any order
        np.testing.assert_allclose(parts.part(party), frames[party][order])
    assert parts.feature_names == (tuple(order),) * 3
    assert Partitioned(rows=sources).select(["party-2"]).feature_names == (tuple(order),)
    np.testing.assert_allclose(
        Partitioned(rows=sources).select(["party-2"]).part(0), frames[2][order]
    )
    assert Partitioned(columns=mixed).feature_names == tuple(tuple(f.columns) for f in mixed)


@pytest.mark.parametrize("form", ["frame", ".csv", ".parquet"])
def test_rows_whose_columns_have_other_names_are_refused(tmp_path, form):
    first = pd.DataFrame({"age": [1.0, 2.0], "height": [3.0, 4.0]})
    for other, words in (
        (first.rename(columns={"age": "years"}), "lacks column 'age'.*has column 'years'"),
        (first[["age"]], "lacks column 'height'"),
        (first.assign(size=1.0), "has column 'size'"),
    ):
        source = other if form == "frame" else _written(other, tmp_path / "other", form)
        with pytest.raises(InputError, match=words) as caught:
            Partitioned(rows=[first, source]).part(1)
        assert caught.value.party == "party-1"


def test_two_columns_of_one_name_are_matched_only_in_their_order():
    first = pd.DataFrame([[1.0, 2.0, 3.0]], columns=["a", "a", "b"])
    Partitioned(rows=[first, first])
    refused(rows=[first, first[["b", "a"]]], party="party-1", match="several are called 'a'")


@pytest.mark.parametrize("form", ["frame", ".csv", ".parquet"])
@pytest.mark.parametrize("split", ["rows", "columns"])
def test_an_id_column_gives_ids_and_is_no_feature(tmp_path, form, split):
    frame = pd.DataFrame({"age": [1.0, 2.0], "patient": ["p1", "p2"], "height": [3.0, 4.0]})
    source = frame if form == "frame" else _written(frame, tmp_path / "one", form)
    parts = Partitioned(**{split: [source, source]}, id_column="patient")
    assert parts.feature_names == (("age", "height"),) * 2
    assert parts.shapes == ((2, 2), (2, 2))
    assert [ids.tolist() for ids in parts.sample_ids] == [["p1", "p2"]] * 2
    assert [ids.tolist() for ids in parts.select(["party-1"]).sample_ids] == [["p1", "p2"]]
    refused(**{split: [frame]}, id_column="person", party="party-0", match="no column 'person'")
    refused(**{split: [np.ones((2, 2))]}, id_column="patient", match="no named columns")
    refused(**{split: [frame]}, id_column=3, match="name of a column")
    refused(**{split: [frame]}, id_column="patient", sample_ids=[[1, 2]], match="one of them")


def test_ids_of_rows_are_dealt_out_with_them():
    frame = pd.DataFrame({"a": np.arange(9.0), "b": 1.0}, index=[f"s{i}" for i in range(9)])
    for parts in (
        split(frame, 2, random_state=0),
        split(frame.reset_index(names="who"), 2, random_state=0, id_column="who"),
    ):
        for i, own in enumerate(parts.sample_ids):
            assert [f"s{int(value)}" for value in parts.part(i)[:, 0]] == own.tolist()


def test_rows_need_no_ids_and_an_index_of_dates_is_none():
    for unit in ("s", "ns"):
        dates = pd.date_range("2020-01-01", periods=2, unit=unit)
        dated = pd.DataFrame({"a": [1.0, 2.0]}, index=dates)
        assert Partitioned(rows=[dated, dated]).sample_ids is None
    named = pd.DataFrame({"a": [1.0, 2.0]}, index=["p", "q"])
    parts = Partitioned(rows=[named, named.to_numpy()])
    assert parts.sample_ids is None
    assert parts.part_ids(0).tolist() == ["p", "q"]
    assert parts.part_ids(1) is None


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({}, "neither"),
        ({"rows": [[[1]]], "columns": [[[1]]]}, "both"),
        ({"rows": []}, "at least one party"),
        ({"rows": np.ones((3, 2))}, "em.split"),
        ({"columns": pd.DataFrame({"a": [1]})}, "em.split"),
        ({"rows": "a.npy"}, "list with one entry a party"),
        ({"rows": {"north": [[1]]}}, "is a dict"),
        ({"rows": [[[1]]], "align": "inner"}, "rows are different samples"),
        ({"rows": [[[1]]], "names": "a"}, "list of 1 names"),
        ({"rows": [[[1]]], "names": ["a", "b"]}, "list of 1 names"),
        ({"rows": [[[1]]], "names": [""]}, "non-empty"),
        ({"rows": [[[1]]], "names": [3]}, "non-empty string"),
        ({"rows": [[[1]], [[1]]], "names": ["a", "a"]}, "two parties are named 'a'"),
        ({"rows": [[[1]]], "policies": [None, None]}, "2 entries, expected 1"),
        ({"rows": [[[1]]], "policies": "counts"}, "em.Policy"),
        ({"rows": [[[1]]], "sample_ids": [1, 2]}, "2 entries, expected 1"),
    ],
)
def test_arguments_that_fit_no_partition_are_refused(arguments, match):
    refused(match=match, **arguments)


# Policies and sample ids.


def test_one_policy_serves_all_parties_or_each_has_its_own():
    policy = Policy(allow={"counts"})
    assert Partitioned(rows=[[[1]], [[2]]], policies=policy).policies == (policy, policy)
    assert Partitioned(rows=[[[1]], [[2]]], policies=[None, policy]).policies == (None, policy)


@pytest.mark.parametrize("ids", [[7, 8, 9], ["x", "y", "z"], np.array([7, 8, 9], np.int16)])
def test_sample_ids_are_kept_per_party(ids):
    parts = Partitioned(columns=[np.ones((3, 1))] * 2, sample_ids=[ids, ids])
    assert [own.tolist() for own in parts.sample_ids] == [list(ids)] * 2


@pytest.mark.parametrize(
    ("ids", "match"),
    [
        ([1, 2], "2 sample ids for 3 samples"),
        ([1, 2, 2], "id 2 2 times"),
        (["a", "b", "a"], "id 'a' 2 times"),
        ([1, 2, "c"], "str at position 2"),
        ([1.0, 2.0, 3.0], "float at position 0"),
        ([True, False, True], "bool at position 0"),
        ([1, 2, 2**70], "64 bits"),
        ("abc", "one str"),
        (5, "one int"),
    ],
)
def test_bad_sample_ids_are_refused(ids, match):
    refused(
        columns=[np.ones((3, 1))] * 2, sample_ids=[[1, 2, 3], ids], party="party-1", match=match
    )


def test_sample_ids_of_a_row_split_need_one_id_a_row():
    Partitioned(rows=[np.ones((2, 1))], sample_ids=[[1, 1]])
    refused(rows=[np.ones((2, 1))], sample_ids=[[1]], party="party-0", match="1 sample ids for 2")


def test_differing_ids_are_left_to_the_hash_and_not_compared_here():
    parts = Partitioned(columns=[np.ones((2, 1))] * 2, sample_ids=[[1, 2], [2, 1]])
    first, second = map(hash_sample_ids, parts.sample_ids)
    assert first != second


def test_index_of_data_frames_serves_as_sample_ids_in_a_column_split():
    a = pd.DataFrame({"a": [1.0, 2.0]}, index=["p", "q"])
    b = pd.DataFrame({"b": [1.0, 2.0]})
    assert [i.tolist() for i in Partitioned(columns=[a, b]).sample_ids] == [["p", "q"], [0, 1]]
    assert Partitioned(columns=[b, b]).sample_ids is None
    assert [i.tolist() for i in Partitioned(rows=[a, a]).sample_ids] == [["p", "q"]] * 2
    assert Partitioned(columns=[b, b.to_numpy()]).sample_ids is None
    with pytest.raises(PartitionError, match="'party-1' has no sample ids"):
        Partitioned(columns=[a, b.to_numpy()]).sample_ids  # noqa: B018
    ids = Partitioned(columns=[a, b], sample_ids=[[5, 6], [5, 6]]).sample_ids
    assert ids[0].tolist() == [5, 6]


def test_index_that_names_samples_twice_is_refused():
    a = pd.DataFrame({"a": [1.0, 2.0]}, index=["p", "p"])
    refused(columns=[a, a], party="party-0", match="id 'p' 2 times")


def test_hash_depends_on_values_order_and_kind_only():
    assert hash_sample_ids(None) == ""
    assert hash_sample_ids([1, 2]) == hash_sample_ids(np.array([1, 2], np.uint8))
    assert hash_sample_ids([1, 2]) == hash_sample_ids(pd.Index([1, 2]))
    assert hash_sample_ids(["a", "é"]) == hash_sample_ids(np.array(["a", "é"]))
    assert hash_sample_ids(["a", "é"]) == hash_sample_ids(pd.Index(["a", "é"]))
    different = [[1, 2], [2, 1], ["1", "2"], ["12"], ["", "12"], ["12", ""], [12], [1, 2, 0]]
    assert len({hash_sample_ids(ids) for ids in different}) == len(different)


def test_hash_is_fixed_between_versions():
    # Parties on different releases compare these; a change would look like misaligned data.
    assert hash_sample_ids([1, 2]).startswith("093d09f8f5537d8e")
    assert hash_sample_ids(["a", "bc"]).startswith("7f69ab212a695762")


# Samples of a column split.


def test_take_samples_keeps_names_policies_ids_and_features(rng):
    policy = Policy(allow={"counts"})
    frame = pd.DataFrame(rng.normal(size=(4, 2)), columns=["u", "v"], index=[10, 11, 12, 13])
    parts = Partitioned(columns=[frame, frame * 2], names=["a", "b"], policies=[policy, None])
    sample = parts.take_samples([3, 1])
    np.testing.assert_array_equal(sample.parts[1], 2 * frame.to_numpy()[[3, 1]])
    assert [ids.tolist() for ids in sample.sample_ids] == [[13, 11]] * 2
    assert (sample.names, sample.policies) == (("a", "b"), (policy, None))
    assert sample.feature_names == (("u", "v"),) * 2


def test_take_samples_takes_masks_slices_and_sparse_parties():
    X = np.arange(8.0).reshape(4, 2)
    parts = Partitioned(columns=[X, sp.csr_array(X)])
    mask = np.array([True, False, True, False])
    assert parts.take_samples(mask).parts[0].tolist() == X[mask].tolist()
    assert parts.take_samples(np.array([-1])).parts[1].toarray().tolist() == [[6.0, 7.0]]
    assert np.shares_memory(parts.take_samples(slice(1, 3)).parts[0], X)


@pytest.mark.parametrize("indices", [[4], [-5], [0.5], [True, False], "ab", [[0]], 1])
def test_take_samples_refuses_what_selects_nothing_there(indices):
    with pytest.raises(InputError, match="4 samples"):
        Partitioned(columns=[np.ones((4, 1))]).take_samples(indices)


def test_take_samples_refuses_none_left_and_row_splits():
    with pytest.raises(InputError, match="none"):
        Partitioned(columns=[np.ones((4, 1))]).take_samples(slice(0, 0))
    with pytest.raises(InputError, match="expected a column split"):
        Partitioned(rows=[np.ones((4, 1))]).take_samples([0])


# Paths.


@pytest.fixture
def no_reading(monkeypatch):
    def fail(path):
        raise AssertionError("a file was read")

    monkeypatch.setattr("eigenmesh.data.partitioned.read_table", fail)
    return monkeypatch


def test_paths_are_opened_at_first_use_only(tmp_path, no_reading):
    np.save(tmp_path / "a.npy", np.ones((3, 2)))
    (tmp_path / "b.csv").write_text("x,y\n1,2\n3,4\n")
    parts = Partitioned(rows=[tmp_path / "a.npy", str(tmp_path / "b.csv")])
    assert "'party-0' 3×2, 'party-1' unread" in repr(parts)
    assert [path.name for path in parts.paths] == ["a.npy", "b.csv"]
    no_reading.undo()
    assert isinstance(parts.part(0), np.memmap)
    assert "unread" in repr(parts)
    assert parts.n_samples == 5
    assert parts.parts[1].tolist() == [[1.0, 2.0], [3.0, 4.0]]
    assert parts.feature_names == (None, ("x", "y"))


def test_sizes_of_binary_files_need_no_reading(tmp_path, no_reading):
    np.save(tmp_path / "a.npy", np.ones((3, 2)))
    np.savez(tmp_path / "b.npz", X=np.ones((3, 5)))
    parts = Partitioned(columns=[tmp_path / "a.npy", tmp_path / "b.npz"])
    assert (parts.n_samples, parts.widths) == (3, (2, 5))
    with pytest.raises(PartitionError, match="'party-1' has 5 columns"):
        Partitioned(rows=[tmp_path / "a.npy", tmp_path / "b.npz"])


def test_a_file_that_does_not_fit_is_refused_when_it_is_opened(tmp_path):
    (tmp_path / "b.csv").write_text("1,2\n3,4\n")
    parts = Partitioned(rows=[np.ones((3, 3)), tmp_path / "b.csv"], names=["a", "b"])
    for _ in range(2):
        with pytest.raises(PartitionError, match="party 'b' has 2 columns, party 'a' has 3"):
            parts.part(1)


@pytest.mark.parametrize("name", ["gone.npy", "empty.npy", "data.xlsx", "bad.npy"])
def test_a_bad_file_is_blamed_on_its_party(tmp_path, name):
    (tmp_path / "empty.npy").touch()
    (tmp_path / "data.xlsx").touch()
    (tmp_path / "bad.npy").write_bytes(b"no numbers")
    refused(rows=[tmp_path / name], names=["north"], party="north", match=name)


def test_nan_in_a_file_is_blamed_on_its_party(tmp_path):
    np.save(tmp_path / "a.npy", np.full((2, 2), np.nan))
    with pytest.raises(PartitionError, match="'party-0' holds nan at row 0, column 0"):
        Partitioned(rows=[tmp_path / "a.npy"]).part(0)


def test_id_columns_of_files_serve_as_sample_ids_in_a_column_split(tmp_path):
    (tmp_path / "a.csv").write_text("id,x\np1,1\np2,2\n")
    (tmp_path / "b.csv").write_text("y,sample_id\n3,p1\n4,p2\n")
    (tmp_path / "c.csv").write_text("z\n3\n4\n")
    parts = Partitioned(columns=[tmp_path / "a.csv", tmp_path / "b.csv"])
    assert [ids.tolist() for ids in parts.sample_ids] == [["p1", "p2"]] * 2
    assert parts.widths == (1, 1)
    with pytest.raises(PartitionError, match="'party-1' has no sample ids"):
        _ = Partitioned(columns=[tmp_path / "a.csv", tmp_path / "c.csv"]).sample_ids
    assert Partitioned(columns=[tmp_path / "c.csv"]).sample_ids is None


def test_ids_of_one_party_are_had_without_the_others_files(tmp_path):
    (tmp_path / "a.csv").write_text("id,x\np1,1\np2,2\n")
    (tmp_path / "b.csv").write_text("id,x\np1,1\np1,2\n")
    parts = Partitioned(columns=[tmp_path / "a.csv", tmp_path / "b.csv"])
    assert parts.part_ids(0).tolist() == ["p1", "p2"]
    assert "'party-1' unread" in repr(parts)
    for look in (lambda: parts.part_ids(1), lambda: parts.sample_ids):
        with pytest.raises(PartitionError, match="'party-1' has sample id 'p1' 2 times"):
            look()
    parts = Partitioned(columns=[[[1]], [[2]]], sample_ids=[[5], [5]])
    assert parts.part_ids(1).tolist() == [5]
    assert Partitioned(columns=[[[1]], [[2]]]).part_ids(0) is None
