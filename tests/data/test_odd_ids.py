"""Ids of rows that are missing or there twice are named, by number and never by value."""

from __future__ import annotations

import re
import warnings

import numpy as np
import pandas as pd
import pytest

import eigenmesh as em
from eigenmesh.data.sample_ids import as_sample_ids
from eigenmesh.errors import EigenmeshWarning, InputError


def warned_of_ids(parts):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        em.KernelPCA(1).fit(parts)
    own = [str(one.message) for one in caught if "by their ids alone" in str(one.message)]
    assert len(own) < 2
    return own[0] if own else ""


def files(frames, folder, kind):
    if kind == "frame":
        return frames
    paths = [folder / f"{name}.csv" for name in "ab"]
    for frame, path in zip(frames, paths, strict=True):
        frame.to_csv(path, index=False)
    return paths


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", ["frame", "csv"])
def test_ids_that_do_not_name_one_row_are_warned_of_at_fit(kind, seed, tmp_path):
    rng = np.random.default_rng(seed)
    sizes = rng.integers(12, 30, 2)
    frames = [
        pd.DataFrame(rng.normal(size=(n, 3)), columns=list("xyz")).assign(
            patient=[f"{own}{i}" for i in rng.permutation(100)[:n]]
        )
        for own, n in zip("ab", sizes, strict=True)
    ]
    clean = em.Partitioned(
        rows=files(frames, tmp_path, kind), names=list("ab"), id_column="patient"
    )
    assert not warned_of_ids(clean)
    twice, common, empty = (int(n) for n in rng.integers(1, 4, 3))
    frames[0].loc[twice + 1 :, "patient"] = frames[0].patient[twice + 1 :].to_numpy()
    frames[0].loc[1:twice, "patient"] = frames[0].patient[0]
    frames[1].loc[:common, "patient"] = frames[0].patient[12 - common - 1 : 12].to_numpy()
    frames[1].loc[8 : 7 + empty, "patient"] = ""
    parts = em.Partitioned(
        rows=files(frames, tmp_path, kind), names=list("ab"), id_column="patient"
    )
    words = warned_of_ids(parts)
    assert f"party 'a' has {twice + 1} rows whose id another of its rows has, too" in words
    assert f"party 'b' has {empty} rows without an id, first at position 8" in words
    assert f"parties 'a' and 'b' have {common + 1} ids in common" in words
    assert not re.search(r"[ab]\d", words)
    # An index that nobody named may count rows at every party.
    assert not warned_of_ids(em.Partitioned(rows=[own[list("xyz")][1:] for own in frames]))


@pytest.mark.parametrize("seed", range(4))
def test_a_gap_among_ids_is_named_with_its_place(seed):
    rng = np.random.default_rng(seed)
    ids = np.array([f"p{i}" for i in range(20)], dtype=object)
    at = int(rng.integers(20))
    for gap in (None, np.nan, pd.NA):
        ids[at] = gap
        with pytest.raises(InputError, match=f"have a gap at position {at}.*give the sample"):
            as_sample_ids(ids, "north")
    numbers = rng.permutation(20).astype(float)
    with pytest.raises(InputError, match=r"have a float at position 0.*convert with int\(id\)"):
        as_sample_ids(numbers)
    numbers[at] = np.nan
    with pytest.raises(InputError, match=f"have a gap at position {at}"):
        as_sample_ids(numbers)
    frame = pd.DataFrame(rng.normal(size=(20, 2)), columns=["x", "y"]).assign(patient=ids)
    with pytest.warns(EigenmeshWarning, match=f"'a' have a gap at position {at}"):
        em.KernelPCA(1).fit(em.Partitioned(rows=[frame], names=["a"], id_column="patient"))
