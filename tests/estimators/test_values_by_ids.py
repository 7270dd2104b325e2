"""Weights and targets of parties' rows, given as Series and frames: by ids and names, or places."""

import warnings

import numpy as np
import pandas as pd
import pytest

import eigenmesh as em
from eigenmesh.errors import EigenmeshError, EigenmeshWarning


def drawn(seed, names=True):
    """Parties' frames with ids in a column or the index, and values under these ids."""
    rng = np.random.default_rng(seed)
    frames = []
    for party in range(int(rng.integers(1, 4))):
        n = int(rng.integers(30, 60))
        X = pd.DataFrame(rng.normal(size=(n, 3)), columns=list("xyz"))
        ids = rng.permutation(10 * n)[:n] + 1000 * party
        X["patient"] = ids.astype(str) if seed % 2 else ids
        frames.append(X)
    values = [pd.Series(rng.random(len(X)) + X.x.to_numpy() ** 2, index=X.patient) for X in frames]
    if seed % 3:
        return em.Partitioned(rows=frames, id_column="patient"), values, rng
    return em.Partitioned(rows=[X.set_index("patient") for X in frames]), values, rng


def shuffled(values, rng):
    return [own.sample(frac=1, random_state=int(rng.integers(1000))) for own in values]


FITS = {
    "pca": lambda parts, w: em.KernelPCA(2, kernel="linear").fit(parts, sample_weight=w),
    "diskpca": lambda parts, w: em.DisKPCA(2, n_landmarks=9, random_state=0).fit(
        parts, sample_weight=w
    ),
    "clusters": lambda parts, w: em.KernelKMeans(2, gamma=0.3, random_state=0).fit(
        parts, sample_weight=w
    ),
    "regression": lambda parts, y: em.KernelPCRegressor(3, kernel="linear").fit(parts, y),
}
SHOWN = {"clusters": "inertia_", "regression": "coef_"}


@pytest.mark.filterwarnings("ignore::eigenmesh.errors.EigenmeshWarning")
@pytest.mark.parametrize("fit", FITS)
@pytest.mark.parametrize("seed", range(4))
def test_what_has_the_rows_ids_for_an_index_goes_by_them(fit, seed):
    parts, values, rng = drawn(seed)
    attribute = SHOWN.get(fit, "eigenvalues_")
    in_order = getattr(FITS[fit](parts, values), attribute)
    by_ids = shuffled(values, rng)
    np.testing.assert_array_equal(getattr(FITS[fit](parts, by_ids), attribute), in_order)
    by_name = dict(zip(parts.names, by_ids, strict=True))
    np.testing.assert_array_equal(getattr(FITS[fit](parts, by_name), attribute), in_order)


@pytest.mark.parametrize("seed", range(4))
def test_scores_go_by_ids_and_what_is_numbered_or_unknown_by_places(seed):
    parts, values, rng = drawn(seed)
    model = em.KernelPCRegressor(3, kernel="linear").fit(parts, values)
    assert model.score(parts, shuffled(values, rng)) == model.score(parts, values)
    places = [own.to_numpy() for own in values]
    for unknown in (
        [own.reset_index(drop=True) for own in values],
        [own.set_axis([f"row {i}" for i in range(len(own))]) for own in values],
    ):
        assert model.score(parts, unknown) == model.score(parts, places)


def test_columns_of_targets_go_by_name_or_are_refused():
    parts, values, _ = drawn(1)
    parts = em.Partitioned(rows=[parts.part(0)[:20], parts.part(0)[20:]])
    own = values[0].to_numpy()
    frames = [pd.DataFrame({"u": y, "v": -y}) for y in (own[:20], own[20:])]
    model = em.KernelPCRegressor(3, kernel="linear")
    coefficients = model.fit(parts, frames).coef_
    turned = [frames[0], frames[1][["v", "u"]]]
    np.testing.assert_array_equal(model.fit(parts, turned).coef_, coefficients)
    with pytest.raises(EigenmeshError, match="lacks column 'v'"):
        model.fit(parts, [frames[0], frames[1].rename(columns={"v": "w"})])


def test_ids_that_stand_twice_are_matched_in_no_other_order():
    X = pd.DataFrame(np.arange(12.0).reshape(6, 2), index=["a", "b", "b", "c", "d", "e"])
    weights = pd.Series(np.arange(1.0, 7.0), index=X.index)
    kpca = em.KernelPCA(1, kernel="linear")
    kpca.fit(em.Partitioned(rows=[X]), sample_weight=[weights])
    with pytest.raises(EigenmeshError, match="some ids stand twice"):
        kpca.fit(em.Partitioned(rows=[X]), sample_weight=[weights[::-1]])


@pytest.mark.parametrize("seed", range(6))
def test_parties_without_names_of_columns_among_others_are_warned_of(seed):
    rng = np.random.default_rng(seed)
    frames = [pd.DataFrame(rng.normal(size=(20, 3)), columns=list("xyz")) for _ in range(3)]
    has_names = rng.permutation([True, False, bool(seed % 2)])
    rows = [X if named else X.to_numpy() for X, named in zip(frames, has_names, strict=True)]
    nameless = [f"party-{i}" for i in np.flatnonzero(~has_names)]
    with pytest.warns(EigenmeshWarning, match="no names of columns") as caught:
        kpca = em.KernelPCA(2, kernel="linear").fit(em.Partitioned(rows=rows))
    (words,) = [str(w.message) for w in caught if "no names of columns" in str(w.message)]
    assert all(name in words.partition("no names")[0] for name in nameless)
    assert tuple(kpca.feature_names_in_) == ("x", "y", "z")
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        kpca.transform(em.Partitioned(rows=[frames[0].to_numpy()]))


@pytest.mark.parametrize("named", [True, False])
def test_where_all_have_names_or_none_has_nobody_is_warned(named):
    rng = np.random.default_rng(0)
    frames = [pd.DataFrame(rng.normal(size=(20, 3)), columns=list("xyz")) for _ in range(2)]
    rows = frames if named else [X.to_numpy() for X in frames]
    with warnings.catch_warnings():
        warnings.simplefilter("error", EigenmeshWarning)
        warnings.simplefilter("ignore", em.CostWarning)
        em.KernelPCA(2, kernel="linear").fit(em.Partitioned(rows=rows))


@pytest.mark.parametrize("rows", [300, 3000])
def test_landmarks_that_are_given_as_a_frame_go_by_the_names_of_their_columns(rows):
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(rows, 3)) * [1, 5, 20], columns=list("xyz"))
    how = {"kernel": "rbf", "gamma": 1e-3, "method": "diskpca", "accuracy": 1.0}
    fits = [em.KernelPCA(2, landmarks=L, **how) for L in (X[:60], X[list("zxy")][:60])]
    own, turned = (kpca.fit(X).eigenvalues_ for kpca in fits)
    np.testing.assert_array_equal(turned, own)
    with pytest.raises(EigenmeshError, match="lacks column 'x'"):
        em.KernelPCA(2, landmarks=X[:60].rename(columns={"x": "w"}), **how).fit(X)
