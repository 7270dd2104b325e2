"""Ids are known by their numbers or their names, gaps by their nines; others are let be."""

import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

import eigenmesh as em
from eigenmesh.data.odd_columns import gap_columns, id_columns, sounds_like_id

IDS = "id,ID,patient_id,patientId,PatientID,mrn,MRN,key,uuid,Case No.,record number,index,subject"


@pytest.mark.parametrize("name", [*IDS.split(","), "patient", "lab-nr", "userid", "row index"])
def test_names_of_ids(name):
    assert sounds_like_id(name)


@pytest.mark.parametrize(
    "name", ["acid", "solid", "age", "width", "fluid_intake", "video", "bmi", "notes", "keyboard"]
)
def test_names_of_measurements(name):
    assert not sounds_like_id(name)


@pytest.mark.parametrize("seed", range(6))
def test_numbers_in_a_row_are_found_in_any_order_and_split(seed):
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(60, 200)), int(rng.integers(2, 6))
    X = rng.normal(size=(n, d))
    column = int(rng.integers(d))
    X[:, column] = rng.permutation(n) + rng.integers(10_000)
    whole = id_columns({"x": X}, "rows", {})
    assert [(f.column, f.parties) for f in whole] == [(column, ("x",))]
    parts = {str(i): X[rows] for i, rows in enumerate(np.array_split(rng.permutation(n), 3))}
    (dealt,) = id_columns(parts, "rows", {})
    assert (dealt.column, dealt.parties) == (column, ("0", "1", "2"))


def test_a_name_is_enough_for_numbers_that_all_differ():
    rng = np.random.default_rng(0)
    numbers = rng.choice(10**6, size=40, replace=False)
    X = np.column_stack([rng.normal(size=40), numbers])
    assert id_columns({"x": X}, "rows", {"x": ("dose", "count")}) == []
    (suspect,) = id_columns({"x": X}, "rows", {"x": ("dose", "patient")})
    assert suspect.column == 1
    X[3, 1] = X[4, 1]  # a patient twice: then it is no id of the row
    assert id_columns({"x": X}, "rows", {"x": ("dose", "patient")}) == []


def test_measurements_are_no_ids():
    """Counts, ages, grids, ratings, prices, floats; tiny data; sparse rows; at most 1 in 100."""
    rng = np.random.default_rng(0)
    alarms = 0
    for _ in range(100):
        n = int(rng.integers(20, 300))
        X = np.column_stack(
            [
                rng.poisson(4, n),
                rng.integers(18, 90, n),
                rng.integers(0, 10**5, n),
                np.round(rng.normal(100, 50, n)),
                rng.normal(size=n),
                np.repeat(np.arange(n // 2 + 1), 2)[:n],
            ]
        )
        alarms += bool(id_columns({"x": X}, "rows", {"x": tuple("abcdef")}))
    assert alarms <= 1
    assert id_columns({"x": np.arange(19.0)[:, None]}, "rows", {}) == []
    assert id_columns({"x": sp.csr_array(np.arange(40.0)[:, None])}, "rows", {}) == []


FRONT_DOORS = {
    "KernelPCA": lambda X, y: em.KernelPCA(2, random_state=0).fit(X),
    "KernelKMeans": lambda X, y: em.KernelKMeans(2, random_state=0).fit(X),
    "KernelPCRegressor": lambda X, y: em.KernelPCRegressor(2, random_state=0).fit(X, y),
    "VFedPCA": lambda X, y: em.VFedPCA(2).fit(X),
}


def words_on_ids(fit, X, y):
    """What the fit says of ids; so few rows are warned of for other reasons too."""
    with warnings.catch_warnings(record=True) as messages:
        warnings.simplefilter("always")
        fit(X, y)
    return [str(w.message) for w in messages if "looks like an id" in str(w.message)]


@pytest.mark.parametrize("door", FRONT_DOORS)
@pytest.mark.parametrize("by", ["rows", "columns", None])
def test_a_fit_warns_of_an_id_among_its_features_and_says_what_to_do(door, by):
    rng = np.random.default_rng(3)
    frame = pd.DataFrame(rng.normal(size=(60, 5)), columns=list("abcde"))
    y = rng.normal(size=60)
    with_id = frame.assign(patient_id=rng.permutation(9000)[:60])
    if door == "VFedPCA" and by == "rows":
        return
    fit = FRONT_DOORS[door]
    if by is None:
        (words,) = words_on_ids(fit, with_id, y)
        assert "X.set_index('patient_id')" in words
        assert words_on_ids(fit, with_id.set_index("patient_id"), y) == []
        return
    parts = em.split(with_id, 2, by=by, random_state=0)
    own = [y[rows] for rows in parts.order] if by == "rows" else y
    (words,) = words_on_ids(fit, parts, own)
    assert "'patient_id' of part" in words
    assert "id_column='patient_id'" in words
    with em.federation(parts) as fed:
        assert words_on_ids(fit, fed, own) == [words]
    clean = em.split(with_id, 2, by=by, random_state=0, id_column="patient_id")
    assert words_on_ids(fit, clean, own) == []


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("by", ["rows", "columns"])
def test_gaps_written_as_nines_are_warned_of_where_they_are_fitted(seed, by):
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(60, 5000)), int(rng.integers(3, 6))
    X = rng.gamma(5, 10, size=(n, d))
    column, nines = int(rng.integers(d)), float(rng.choice([-9, -99, -999, 99999]))
    X[rng.random(n) < 0.05, column] = nines
    frame = pd.DataFrame(X, columns=[f"lab {j}" for j in range(d)])
    words = f"column 'lab {column}'.* has {nines:g} where no other value is near.*fill_missing"
    for source in (frame, em.split(frame, 2, by=by, random_state=seed)):
        with pytest.warns(em.EigenmeshWarning, match=words):
            em.KernelPCA(2, kernel="linear").fit(source)


def test_measurements_have_no_gaps():
    """Counts up to nine, prices of 99, ages, heavy tails, signed floats, gaps that are gaps."""
    rng = np.random.default_rng(0)
    alarms = 0
    for _ in range(100):
        n = int(rng.integers(20, 300))
        tails = rng.standard_cauchy(n)
        X = np.column_stack(
            [
                np.minimum(rng.poisson(1, n), 9),
                np.where(rng.random(n) < 0.02, 9, rng.integers(0, 3, n)),
                rng.choice([19, 49, 99, 199], n),
                rng.integers(18, 100, n),
                tails,
                np.round(tails),
                np.where(rng.random(n) < 0.1, np.nan, rng.normal(size=n)),
            ]
        )
        alarms += len(gap_columns({"x": X}))
    assert alarms <= 3
    assert gap_columns({"x": sp.csr_array(np.eye(40) * -999)}) == []
