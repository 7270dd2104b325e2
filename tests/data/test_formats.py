"""One reader for data as they come: what is written in whatever form is read as the same table."""

from __future__ import annotations

import gzip
import sys

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import eigenmesh as em
from eigenmesh.data import Partitioned, read_table
from eigenmesh.data import tabular as tables
from eigenmesh.errors import InputError
from eigenmesh.runtime.levels import codes_of

SIGNS = [(",", "."), (";", "."), ("\t", "."), (";", ","), ("\t", ",")]


def drawn_frame(seed):
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(2, 300)), int(rng.integers(1, 6))
    X = rng.normal(scale=10.0 ** rng.integers(-3, 6, size=d), size=(n, d))
    X[:, 0] = np.round(X[:, 0])  # a column of whole numbers
    names = [f"x{i}" for i in range(d)]
    ids = [f"p{i}" for i in rng.permutation(n)]
    return pd.DataFrame(X, columns=names).assign(id=ids)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize(("delimiter", "decimal"), SIGNS)
def test_text_of_any_form_gives_the_table_that_was_written(tmp_path, seed, delimiter, decimal):
    frame = drawn_frame(seed)
    quoting = 1 if seed % 3 == 0 else 0  # all cells in quotes
    encoding = "utf-8-sig" if seed % 2 else "utf-8"
    path = tmp_path / ("a.csv.gz" if seed % 4 == 1 else "a.csv")
    frame.to_csv(
        path, sep=delimiter, decimal=decimal, index=False, quoting=quoting, encoding=encoding
    )
    table = read_table(path)
    np.testing.assert_array_equal(table.X, frame.drop(columns="id").to_numpy())
    assert table.sample_ids.tolist() == frame["id"].tolist()
    assert table.feature_names == tuple(frame.columns.drop("id"))


def test_numbers_with_a_decimal_comma_need_no_header(tmp_path):
    (tmp_path / "a.csv").write_text("1,5;2,25\n3,5;4\n")
    assert read_table(tmp_path / "a.csv").X.tolist() == [[1.5, 2.25], [3.5, 4.0]]


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("a;b\n1,234;5\n2,345;6\n", "two ways.*1.234 by a decimal comma, or 1234.*--decimal"),
        ('a;"b\nc"\n1,5;5\n2.5;6\n', r"comma \(line 3\) and with a point \(line 4\).*--decimal"),
        ("x,y;z\np,q;r\n", "2 columns by comma or 2 columns by semicolon.*--delimiter"),
        ('a,b\n"1,234",2\n', "two ways.*thousands"),
    ],
)
def test_what_can_be_read_in_two_ways_is_refused_with_both(tmp_path, text, match):
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(InputError, match=match):
        read_table(tmp_path / "a.csv")


def test_what_is_stated_settles_a_doubt(tmp_path):
    (tmp_path / "a.csv").write_text("a;b\n1,234;5\n2,345;6\n")
    assert read_table(tmp_path / "a.csv", decimal=",").X[0].tolist() == [1.234, 5]
    parts = Partitioned(rows=[tmp_path / "a.csv"], decimal=",")
    assert parts.part(0)[1].tolist() == [2.345, 6]
    with pytest.raises(InputError, match="decimal is 'x'"):
        Partitioned(rows=[tmp_path / "a.csv"], decimal="x")
    with pytest.raises(InputError, match="delimiter is"):
        read_table(tmp_path / "a.csv", delimiter="|")


def test_a_number_in_another_form_far_below_is_refused_with_its_line(tmp_path):
    lines = ["a;b", *["1;2"] * 150_000, "1,5;2", *["1;2"] * 5]
    (tmp_path / "a.csv").write_text("\n".join(lines))
    with pytest.raises(InputError, match=r"number with a comma at line 150002, column 'a'"):
        read_table(tmp_path / "a.csv")


def test_lines_are_the_files_own_where_quotes_hold_line_ends(tmp_path):
    (tmp_path / "a.csv").write_text('id,"two\nlines",b\n"p\n1",1,2\n\np2,3,x\n')
    with pytest.raises(InputError, match="text at line 6, column 'b'"):
        read_table(tmp_path / "a.csv")


def test_missing_values_are_nan_if_they_may_be(tmp_path):
    (tmp_path / "a.csv").write_text("a;b\n1,5;\nNA;2\n")
    X = read_table(tmp_path / "a.csv", allow_missing=True).X
    np.testing.assert_array_equal(X, [[1.5, np.nan], [np.nan, 2]])
    pd.DataFrame({"a": [1.5, None]}).to_feather(tmp_path / "a.feather")
    with pytest.raises(InputError, match="no value at row 1"):
        read_table(tmp_path / "a.feather")


def test_only_the_columns_that_are_named_must_be_numbers(tmp_path):
    (tmp_path / "a.csv").write_text("town,b,a\nx,1,2\ny,3,4\n")
    assert read_table(tmp_path / "a.csv", columns=["a", "b"]).X.tolist() == [[2, 1], [4, 3]]


@pytest.mark.parametrize("seed", range(4))
def test_binary_tables_give_what_was_written(tmp_path, seed):
    frame = drawn_frame(seed)
    frame.to_feather(tmp_path / "a.feather")
    frame.to_parquet(tmp_path / "a.parquet", index=False)
    for name in ("a.feather", "a.parquet"):
        table = read_table(tmp_path / name)
        np.testing.assert_array_equal(table.X, frame.drop(columns="id").to_numpy())
        assert table.sample_ids.tolist() == frame["id"].tolist()


def test_columns_of_parquet_come_in_the_order_asked_for(tmp_path):
    pd.DataFrame({"a": [1.0], "b": [2.0], "id": [7]}).to_parquet(tmp_path / "a.parquet")
    table = read_table(tmp_path / "a.parquet", columns=["b", "a"])
    assert (table.X.tolist(), table.sample_ids.tolist()) == ([[2.0, 1.0]], [7])


def test_excel_sheets_are_read(tmp_path):
    pytest.importorskip("openpyxl", reason="the extra 'excel' is not installed")
    frame = drawn_frame(3)
    frame.to_excel(tmp_path / "a.xlsx", index=False)
    table = read_table(tmp_path / "a.xlsx")
    np.testing.assert_allclose(table.X, frame.drop(columns="id").to_numpy(), rtol=1e-15)
    assert table.sample_ids.tolist() == frame["id"].tolist()


def test_excel_says_the_row_of_the_sheet_and_refuses_two_sheets(tmp_path):
    pytest.importorskip("openpyxl", reason="the extra 'excel' is not installed")
    pd.DataFrame({"a": [1.0, None]}).to_excel(tmp_path / "a.xlsx", index=False)
    pd.DataFrame({"a": [1.0, None], "b": [1.0, 2.0]}).to_excel(tmp_path / "b.xlsx", index=False)
    with pytest.raises(InputError, match="no value at row 3 of the sheet, column 'a'"):
        read_table(tmp_path / "b.xlsx")
    with pd.ExcelWriter(tmp_path / "c.xlsx") as book:
        for sheet in ("one", "two"):
            pd.DataFrame({"a": [1.0]}).to_excel(book, sheet_name=sheet)
    with pytest.raises(InputError, match="2 sheets.*'one', 'two'"):
        read_table(tmp_path / "c.xlsx")


def test_excel_without_openpyxl_says_what_to_install(tmp_path, monkeypatch):
    (tmp_path / "a.xlsx").write_bytes(b"PK")
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    with pytest.raises(InputError, match=r"eigenmesh\[excel\]"):
        read_table(tmp_path / "a.xlsx")


# Frames without an index.


class FrameOfArrow:
    """What polars' DataFrame and others offer."""

    def __init__(self, table):
        self._table = table

    def __arrow_c_stream__(self, requested_schema=None):
        return self._table.__arrow_c_stream__(requested_schema)


def test_frames_that_speak_arrow_are_parties():
    frame = drawn_frame(5)
    other = FrameOfArrow(pa.Table.from_pandas(frame, preserve_index=False))
    parts = Partitioned(rows=[other, frame.drop(columns="id").set_index(frame["id"])])
    np.testing.assert_array_equal(parts.part(0), parts.part(1))
    assert parts.part_names(0) == parts.part_names(1)
    assert parts.part_ids(0).tolist() == parts.part_ids(1).tolist()


def test_frames_that_speak_arrow_are_refused_by_their_party():
    frame = FrameOfArrow(pa.table({"a": [1.0], "town": ["x"]}))
    with pytest.raises(InputError, match="party 'north' has a column 'town' of type string"):
        Partitioned(rows=[frame], names=["north"])


def test_polars_frames_are_parties():
    polars = pytest.importorskip("polars", reason="polars is optional")
    parts = Partitioned(columns=[polars.DataFrame({"id": ["p", "q"], "a": [1, 2]})])
    assert parts.part(0).tolist() == [[1.0], [2.0]]
    assert parts.sample_ids[0].tolist() == ["p", "q"]


@pytest.mark.parametrize("kind", ["plain", "Categorical", "Enum"])
def test_words_in_polars_frames_are_levels_as_those_of_pandas(kind):
    polars = pytest.importorskip("polars", reason="polars is optional")
    words = ["a", "b", "a", None, "c "] * 4
    column = polars.Series("ward", words)
    if kind == "Categorical":
        column = column.cast(polars.Categorical)
    elif kind == "Enum":
        column = column.cast(polars.Enum(["a", "b", "c "]))
    ids = [f"s{i}" for i in range(20)]
    frame = polars.DataFrame({"id": ids, "ward": column, "x": np.arange(20.0)})
    other = pd.DataFrame({"id": ids, "ward": words, "x": np.arange(20.0)})
    kwargs = {"id_column": "id", "categories": ["ward"], "features": ["ward", "x"]}
    ours, known = Partitioned(rows=[frame], **kwargs), Partitioned(rows=[other], **kwargs)
    np.testing.assert_array_equal(ours.part(0), known.part(0))
    assert ours.part_ids(0).tolist() == ids


def test_columns_of_polars_frames_are_matched_by_name():
    polars = pytest.importorskip("polars", reason="polars is optional")
    frame = polars.DataFrame(np.random.default_rng(5).normal(size=(40, 3)), schema=["a", "b", "c"])
    parts = Partitioned(rows=[frame[:20], frame[20:]])
    kpca = em.KernelPCA(2, kernel="linear").fit(parts)
    expected = kpca.transform(frame)
    np.testing.assert_array_equal(kpca.transform(frame[["c", "a", "b"]]), expected)
    np.testing.assert_array_equal(kpca.transform(frame.to_arrow().select([1, 2, 0])), expected)
    with pytest.raises(InputError, match="'b'"):
        kpca.transform(frame.rename({"b": "other"}))


@pytest.mark.parametrize("folder", [False, True])
def test_the_index_that_pandas_writes_beside_ids_is_no_feature(tmp_path, folder):
    frame = drawn_frame(6)
    some = frame[np.arange(len(frame)) % 3 > 0]  # what is left of an index cannot be a range
    path = tmp_path / "some.parquet"
    some.to_parquet(path)
    assert "__index_level_0__" in pq.read_schema(path).names
    parts = Partitioned(rows=[tmp_path if folder else path])
    assert "__index_level_0__" not in parts.feature_names[0]
    np.testing.assert_array_equal(parts.part(0), some.drop(columns="id").to_numpy())
    assert parts.part_ids(0).tolist() == some["id"].tolist()


# Folders.


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".npy"])
def test_the_files_of_a_folder_are_one_party(tmp_path, suffix):
    frame = drawn_frame(4)
    names = [name for name in frame.columns if name != "id"]
    folder = tmp_path / "north"
    folder.mkdir()
    for i, rows in enumerate(np.array_split(np.arange(len(frame)), 3)):
        part = frame.iloc[rows][["id", *(names if i == 0 else names[::-1])]]
        path = folder / f"part-{i}{suffix}"
        if suffix == ".npy":
            np.save(path, part[names].to_numpy())
        else:
            part.to_csv(path, index=False) if suffix == ".csv" else part.to_parquet(path)
    parts = Partitioned(rows=[folder])
    np.testing.assert_array_equal(parts.part(0), frame[names].to_numpy())
    if suffix != ".npy":
        assert parts.part_ids(0).tolist() == frame["id"].tolist()


@pytest.mark.parametrize(
    ("files", "match"),
    [
        ({"a.csv": "x,y\n1,2\n", "b.csv": "x,z\n1,2\n"}, "'b.csv' lacks column 'y'.*first file"),
        ({"a.csv": "x,y\n1,2\n", "b.csv": "x\n1\n"}, "'b.csv' has 1 columns"),
        ({"a.csv": "x\n1\n", "notes.txt": "?"}, "folder of .csv, .txt.*one format"),
    ],
)
def test_files_of_a_folder_that_do_not_fit_are_refused(tmp_path, files, match):
    folder = tmp_path / "north"
    folder.mkdir()
    for name, text in files.items():
        (folder / name).write_text(text)
    with pytest.raises(InputError, match=match):
        read_table(folder)


# Large files.


def test_many_rows_lie_in_a_file_without_a_name(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "_MOST_IN_MEMORY", 10_000)
    X = np.random.default_rng(0).normal(size=(150_000, 2))
    with gzip.open(tmp_path / "a.csv.gz", "wt") as file:
        pd.DataFrame(X, columns=["a", "b"]).to_csv(file, index=False)
    opened = read_table(tmp_path / "a.csv.gz").X
    assert isinstance(opened, np.memmap)
    np.testing.assert_array_equal(opened, X)


@pytest.mark.parametrize("suffix", [".csv", ".xlsx"])
def test_a_dash_is_a_gap_among_numbers_and_a_level_among_words(tmp_path, suffix):
    frame = pd.DataFrame({"crp": [1.5, "-", 2.5, "k.A."], "rhesus": ["-", "+", "-", "+"]})
    path = tmp_path / f"ward{suffix}"
    frame.to_csv(path, index=False) if suffix == ".csv" else frame.to_excel(path, index=False)
    table = read_table(path, allow_missing=True, categories=["rhesus"])
    np.testing.assert_array_equal(table.X[:, 0], [1.5, np.nan, 2.5, np.nan])
    np.testing.assert_array_equal(table.X[:, 1], codes_of(["-", "+", "-", "+"]))
    with pytest.raises(InputError, match="no value"):
        read_table(path, categories=["rhesus"])
