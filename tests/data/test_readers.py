from __future__ import annotations

import io
import pickle
from contextlib import suppress

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp

from eigenmesh.data import open_data, read_table
from eigenmesh.data.readers import peek_shape
from eigenmesh.errors import EigenmeshError, InputError


@pytest.fixture(name="X")
def matrix():
    return np.random.default_rng(0).normal(size=(20, 3))


@pytest.fixture
def csv(tmp_path):
    def write(text: str, encoding: str = "utf-8"):
        path = tmp_path / "north.csv"
        path.write_bytes(text.encode(encoding))
        return path

    return write


def refused(path, match, **arguments):
    with pytest.raises(InputError, match=match) as caught:
        read_table(path, **arguments)
    assert repr(path.name) in str(caught.value)
    assert ";" in str(caught.value), "an error ends with a remedy"
    return str(caught.value)


# Round trips.


@pytest.mark.parametrize("order", ["C", "F"])
def test_npy_is_mapped_and_not_loaded(tmp_path, X, order):
    np.save(tmp_path / "a.npy", np.asarray(X, order=order))
    opened = open_data(tmp_path / "a.npy")
    assert isinstance(opened, np.memmap)
    assert not opened.flags.writeable
    np.testing.assert_array_equal(opened, X)
    assert peek_shape(tmp_path / "a.npy") == X.shape


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("key", ["X", "expression"])
def test_npz_gives_x_or_its_only_matrix(tmp_path, X, save, key):
    save(tmp_path / "a.npz", **{key: X, "labels": np.arange(20)})
    np.testing.assert_array_equal(open_data(tmp_path / "a.npz"), X)
    assert peek_shape(tmp_path / "a.npz") == X.shape


def test_npz_prefers_x_among_matrices(tmp_path, X):
    np.savez(tmp_path / "a.npz", X=X, Y=X[:3])
    assert open_data(tmp_path / "a.npz").shape == X.shape


@pytest.mark.parametrize("kind", ["csr", "csc", "coo", "bsr", "dia"])
def test_sparse_npz_becomes_csr(tmp_path, kind):
    S = sp.random_array((6, 5), density=0.4, random_state=np.random.default_rng(0))
    sp.save_npz(tmp_path / "a.npz", S.asformat(kind))
    opened = open_data(tmp_path / "a.npz")
    assert isinstance(opened, sp.csr_array)
    np.testing.assert_array_equal(opened.toarray(), S.toarray())
    assert peek_shape(tmp_path / "a.npz") == (6, 5)


def test_bare_csr_arrays_in_npz_become_csr(tmp_path):
    S = sp.csr_array(np.array([[0.0, 2.0], [3.0, 0.0], [0.0, 0.0]]))
    arrays = {"data": S.data, "indices": S.indices, "indptr": S.indptr, "shape": S.shape}
    np.savez(tmp_path / "a.npz", **arrays)
    np.testing.assert_array_equal(open_data(tmp_path / "a.npz").toarray(), S.toarray())
    assert peek_shape(tmp_path / "a.npz") == (3, 2)


def test_csv_round_trip_to_the_last_digit(tmp_path, X):
    pd.DataFrame(X, columns=["a", "b", "c"]).to_csv(tmp_path / "a.csv", index=False)
    table = read_table(tmp_path / "a.csv")
    np.testing.assert_array_equal(table.X, X)
    assert table.feature_names == ("a", "b", "c")
    assert table.sample_ids is None
    assert peek_shape(tmp_path / "a.csv") is None


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_parquet_round_trip_keeps_precision(tmp_path, X, dtype):
    frame = pd.DataFrame(X.astype(dtype), columns=["a", "b", "c"], index=range(100, 120))
    frame.rename_axis("id").reset_index().to_parquet(tmp_path / "a.parquet", index=False)
    table = read_table(tmp_path / "a.parquet")
    assert table.X.dtype == dtype
    np.testing.assert_array_equal(table.X, frame.to_numpy())
    assert table.sample_ids.tolist() == list(range(100, 120))
    assert peek_shape(tmp_path / "a.parquet") == (20, 3)


def test_index_that_pandas_writes_becomes_ids(tmp_path, X):
    frame = pd.DataFrame(X, index=[f"p{i}" for i in range(20)])
    frame.to_csv(tmp_path / "a.csv")
    frame.rename(columns=str).to_parquet(tmp_path / "a.parquet")
    for name in ("a.csv", "a.parquet"):
        table = read_table(tmp_path / name)
        assert table.sample_ids.tolist() == frame.index.tolist()
        np.testing.assert_array_equal(table.X, X)


# Details of .csv.


@pytest.mark.parametrize(
    ("text", "names", "rows"),
    [
        ("1,2\n3,4\n", None, [[1, 2], [3, 4]]),
        ("a,b\n3,4", ("a", "b"), [[3, 4]]),
        ("a;b\n3;4\n", ("a", "b"), [[3, 4]]),
        ("a\tb\r\n3\t4\r\n", ("a", "b"), [[3, 4]]),
        ('"a,1",b\n3,4\n', ("a,1", "b"), [[3, 4]]),
        ("\ufeffa,b\n3,4\n", ("a", "b"), [[3, 4]]),
        ("a,a\n3,4\n", ("a", "a"), [[3, 4]]),
        ("a,b\n3,true\n4,false\n", ("a", "b"), [[3, 1], [4, 0]]),
        ("0,1,2\n3,4,5\n", ("0", "1", "2"), [[3, 4, 5]]),
        ("0,1\n3,4\n", None, [[0, 1], [3, 4]]),
        ("a,b\n1,2\n\n3,4\n\n", ("a", "b"), [[1, 2], [3, 4]]),
        ("a\n1\n2.5\n", ("a",), [[1], [2.5]]),
    ],
)
def test_csv_header_and_delimiter_are_found(csv, text, names, rows):
    table = read_table(csv(text))
    assert table.X.tolist() == rows
    assert table.feature_names == names


def test_header_can_be_stated_where_it_cannot_be_found(csv):
    path = csv("0,1\n3,4\n")
    assert read_table(path, header=True).X.tolist() == [[3, 4]]
    assert read_table(csv("0,1,2\n3,4,5\n"), header=False).X.shape == (2, 3)


@pytest.mark.parametrize(
    ("text", "id_column", "ids"),
    [
        ("id,a\n7,1\n9,2\n", None, [7, 9]),
        ("a,Sample_ID\n1,x\n2,y\n", None, ["x", "y"]),
        ("id,a\n007,1\n010,2\n", None, ["007", "010"]),
        ("patient,a\nx,1\ny,2\n", "patient", ["x", "y"]),
        ("id,patient\n1,x\n2,y\n", "patient", ["x", "y"]),
    ],
)
def test_id_column_gives_sample_ids(csv, text, id_column, ids):
    table = read_table(csv(text), id_column=id_column)
    assert table.sample_ids.tolist() == ids
    assert table.X.tolist() == [[1], [2]]


def test_numbers_that_turn_to_fractions_late_in_a_long_file_are_read(csv):
    body = "\n".join(["1,2"] * 400_000)
    X = open_data(csv(f"a,b\n{body}\n1.5,2\n"))
    assert X.shape == (400_001, 2)
    assert X[-1].tolist() == [1.5, 2.0]


def test_lines_longer_than_a_block_of_arrow_are_read(csv):
    row = ",".join(["0.123456789012345678"] * 60_000)
    assert open_data(csv(f"{row}\n{row}\n")).shape == (2, 60_000)


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("a,town\n1,x\n", "text at line 2, column 'town'.*encode"),
        ("1,x\n", "holds 0 rows"),
        ("1,2\n3,x\n", "text at line 2, column 1"),
        ("a,day\n1,2020-01-01\n", "column 'day'"),
        ("a,b\n1,2\n3,\n", "no value at line 3, column 'b'.*impute"),
        ("a,b\n1,2\n3,NA\n", "no value at line 3, column 'b'"),
        ("a,b\n1,2\n3,nan\n", "no value at line 3, column 'b'"),
        ("a\n1\n\n3\n", "no value at line 3, column 'a'"),
        ("a,b,\n1,2,\n", "no value at line 2, column ''"),
        ("a,b\n1,2\n3\n", "line of 1 cells, expected 2 .line 3."),
        ("a,b\n1,2\n3,4,5\n", "line of 3 cells, expected 2"),
        ("a,b\n", "0 rows"),
        ("id\n1\n", "0 columns"),
        ("\n1,2\n", "blank line"),
    ],
)
def test_bad_csv_is_refused_with_the_place(csv, text, match):
    refused(csv(text), match)


def test_values_of_a_bad_line_stay_out_of_the_message(csv):
    assert "secret" not in refused(csv("a,b\n1,2\n3,4,secret\n"), "line of 3 cells")


def test_other_encodings_are_refused(csv):
    refused(csv("größe,b\n1,2\n", "latin-1"), "not in UTF-8, first at line 1")
    refused(csv("a,b\n1,2\n", "utf-16"), "not in UTF-8|blank line")
    late = "a,b\n" + "1,x\n" * 500 + "1,ö\n"
    refused(csv(late, "latin-1"), "not in UTF-8, first at line 502", categories=["b"])


@pytest.mark.parametrize(("text", "match"), [("a,b\n1,2\n", "only a, b"), ("1,2\n", "no header")])
def test_id_column_that_is_not_there_is_refused(csv, text, match):
    refused(csv(text), match, id_column="patient")


def test_id_column_of_a_file_without_columns_is_refused(tmp_path, X):
    np.save(tmp_path / "a.npy", X)
    refused(tmp_path / "a.npy", "no named columns", id_column="id")


@pytest.mark.parametrize(
    ("columns", "match"),
    [
        ({"a": [1.0], "town": ["x"]}, "column 'town' of type (large_)?string"),
        ({"a": [1.0, None]}, "no value at row 1 .*column 'a'"),
        ({"id": [1.5], "a": [1.0]}, "ids of type double"),
        ({"a": [[1.0, 2.0]]}, "column 'a' of type list"),
    ],
)
def test_bad_parquet_is_refused_with_the_place(tmp_path, columns, match):
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    refused(tmp_path / "a.parquet", match)


# Files that hold no data, or damaged ones.


@pytest.mark.parametrize("read", [read_table, peek_shape])
@pytest.mark.parametrize(
    ("name", "match"),
    [
        ("gone.npy", "missing.*check the path"),
        ("data.sav", "expected .npy, .npz, .csv, .*.parquet"),
        ("data", "ends in ''"),
        ("empty.csv", "0 bytes"),
        ("folder.npy", "empty folder"),
    ],
)
def test_files_that_cannot_be_data_are_refused(tmp_path, read, name, match):
    (tmp_path / "empty.csv").touch()
    (tmp_path / "folder.npy").mkdir()
    with pytest.raises(InputError, match=match):
        read(tmp_path / name)


class Bomb:
    def __reduce__(self):
        return pytest.fail, ("a pickle was loaded",)


def pickled_objects():
    file = io.BytesIO()
    np.save(file, np.array([[Bomb()]], dtype=object), allow_pickle=True)
    return file.getvalue()


@pytest.mark.parametrize("read", [read_table, peek_shape])
@pytest.mark.parametrize("make", [pickled_objects, lambda: pickle.dumps(Bomb())])
@pytest.mark.parametrize("suffix", [".npy", ".npz"])
def test_pickles_are_never_loaded(tmp_path, read, make, suffix):
    path = tmp_path / f"a{suffix}"
    path.write_bytes(make())
    with pytest.raises(InputError, match=r"pickle|cannot be read as \.npz"):
        read(path)


def test_object_matrix_in_npz_is_refused_and_objects_beside_x_are_left_alone(tmp_path, X):
    np.savez(tmp_path / "a.npz", X=np.array([[Bomb()]], dtype=object))
    refused(tmp_path / "a.npz", "pickled Python objects, which are never loaded")
    np.savez(tmp_path / "b.npz", X=X, notes=np.array([Bomb()], dtype=object))
    assert open_data(tmp_path / "b.npz").shape == X.shape


@pytest.mark.parametrize("array", [np.ones(3), np.ones((1, 2, 3)), np.float64(1)])
def test_arrays_of_other_dimensions_are_refused(tmp_path, array):
    np.save(tmp_path / "a.npy", array)
    refused(tmp_path / "a.npy", f"{np.ndim(array)}-D array, expected 2-D")
    np.savez(tmp_path / "a.npz", X=array)
    refused(tmp_path / "a.npz", "-D array, expected 2-D")


@pytest.mark.parametrize("arrays", [{"y": np.ones(3)}, {"a": np.eye(2), "b": np.eye(2)}])
def test_npz_without_one_clear_matrix_is_refused(tmp_path, arrays):
    np.savez(tmp_path / "a.npz", **arrays)
    refused(tmp_path / "a.npz", "none called 'X'")


def test_sparse_indices_out_of_range_are_refused(tmp_path):
    arrays = {"data": np.ones(2), "indices": [0, 9], "indptr": [0, 1, 2], "shape": (2, 3)}
    np.savez(tmp_path / "a.npz", **arrays)
    refused(tmp_path / "a.npz", "damaged")
    np.savez(tmp_path / "b.npz", format=np.array(b"csc"), **arrays)
    refused(tmp_path / "b.npz", "damaged")


def write_all_formats(folder, X):
    np.save(folder / "a.npy", X)
    np.savez(folder / "b.npz", X=X)
    np.savez_compressed(folder / "c.npz", X=X)
    sp.save_npz(folder / "d.npz", sp.csr_array(X))
    pd.DataFrame(X, columns=list("uvw")).to_csv(folder / "e.csv")
    pd.DataFrame(X, columns=list("uvw")).to_parquet(folder / "f.parquet")
    return sorted(folder.iterdir())


def test_truncated_binary_files_are_refused(tmp_path, X):
    for path in write_all_formats(tmp_path, X):
        if path.suffix == ".csv":
            continue  # a shorter text is a valid text
        whole = path.read_bytes()
        for keep in (3, len(whole) // 3, len(whole) - 9):
            path.write_bytes(whole[:keep])
            refused(path, "cannot be read|no .npy header")


def test_damage_never_ends_in_an_error_of_another_library(tmp_path, X):
    rng = np.random.default_rng(1)
    for path in write_all_formats(tmp_path, X):
        whole = np.frombuffer(path.read_bytes(), dtype=np.uint8)
        for _ in range(60):
            copy = whole.copy()
            copy[rng.integers(len(whole), size=4)] = rng.integers(256, size=4)
            path.write_bytes(copy.tobytes())
            for read in (read_table, peek_shape):
                with suppress(EigenmeshError):
                    read(path)
