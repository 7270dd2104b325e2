"""What every estimator does with odd but legal arguments and containers."""

import inspect
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import sklearn
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

import eigenmesh as em
from eigenmesh.errors import InputError

pytestmark = pytest.mark.filterwarnings("ignore::eigenmesh.errors.EigenmeshWarning")

RNG = np.random.default_rng(5)
X = RNG.normal(size=(48, 6)) @ RNG.normal(size=(6, 6))
Y = X[:, 0] + RNG.normal(size=48)
ROWS = em.split(X, 3, random_state=0)
COLUMNS = em.split(X, 3, by="columns")
ROW_YS = [Y[rows] for rows in ROWS.order]

BY_ROWS = [em.DisKPCA, em.SketchingPCA, em.ADMMKPCA, em.GossipKPCA, em.FedKernelKMeans]
BY_COLUMNS = [em.OneShotKPCA, em.VFedPCA, em.VFedAKPCA, em.DPCA]
DOORS = [em.KernelPCA, em.KernelKMeans, em.KernelPCRegressor]
SIZES = {
    "n_components": 2,
    "n_clusters": 3,
    "n_features": 12,
    "n_iterations": 5,
    "n_inner": 2,
    "n_init": 2,
    "degree": 2,
}
CASES = [
    *((kind, ROWS) for kind in (*BY_ROWS, *DOORS)),
    *((kind, COLUMNS) for kind in (*BY_COLUMNS, *DOORS)),
    *((kind, X) for kind in DOORS),
]
each_case = pytest.mark.parametrize(
    ("kind", "source"),
    CASES,
    ids=[f"{kind.__name__}-{getattr(source, 'split', 'array')}" for kind, source in CASES],
)


def small(kind, **params):
    """An estimator whose fit takes milliseconds; of `params` those that it has."""
    known = inspect.signature(kind).parameters
    chosen = {**SIZES, "random_state": 3, **params}
    return kind(**{name: value for name, value in chosen.items() if name in known})


def fitted(model, source):
    if isinstance(model, em.KernelPCRegressor):
        return model.fit(source, ROW_YS if source is ROWS else Y)
    return model.fit(source)


def stacked(scores):
    return np.vstack(scores) if isinstance(scores, list) else np.asarray(scores)


def as_numpy(value, rng):
    """The value as an element of a numpy array, as grids of parameters hold them."""
    if isinstance(value, bool):
        return np.bool_(value)
    if isinstance(value, int):
        return rng.choice([np.int64, np.int32, np.uint8])(value)
    if isinstance(value, float):
        single = np.float32(value)
        return single if float(single) == value and rng.integers(2) else np.float64(value)
    return np.str_(value) if isinstance(value, str) else value


@each_case
def test_parameters_may_be_numpys(kind, source, tmp_path):
    rng = np.random.default_rng([len(kind.__name__), source is ROWS])
    kernel, gamma = rng.choice([["rbf", "0.25"], ["poly", "0.5"], ["rbf", "median"]])
    gamma = gamma if gamma == "median" else float(gamma)
    plain = small(kind, kernel=str(kernel), gamma=str(gamma) if gamma == "median" else gamma)
    drawn = {name: as_numpy(value, rng) for name, value in plain.get_params().items()}
    model = fitted(clone(kind(**drawn)), source)
    assert clone(model).get_params() == model.get_params() == plain.get_params()
    expected = stacked(fitted(plain, source).transform(source))
    np.testing.assert_allclose(stacked(model.transform(source)), expected, atol=1e-12)
    model.save(tmp_path / "model.em")
    assert em.load(tmp_path / "model.em").get_params() == plain.get_params()


def test_a_grid_of_numpy_arrays_is_searched():
    grid = {
        "kernel": np.array(["rbf", "poly"]),
        "n_components": np.arange(2, 4),
        "gamma": np.array([0.1, 0.5], dtype=np.float32),
    }
    search = GridSearchCV(em.KernelPCRegressor(random_state=0), grid, cv=2).fit(X, Y)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


@each_case
def test_scores_of_parties_come_in_frames(kind, source):
    how = ("set_output", "set_config")[(len(kind.__name__) + (source is ROWS)) % 2]
    plain = stacked(fitted(small(kind), source).transform(source))
    with sklearn.config_context(transform_output="pandas" if how == "set_config" else "default"):
        model = small(kind)
        model = model.set_output(transform="pandas") if how == "set_output" else model
        frames = fitted(model, source).transform(source)
        targets = {"y": ROW_YS if source is ROWS else Y} if kind is em.KernelPCRegressor else {}
        again = model.fit_transform(source, **targets)
    for scores in (frames, again):
        assert isinstance(scores, list) == (source is ROWS)
        for frame in scores if isinstance(scores, list) else [scores]:
            assert isinstance(frame, pd.DataFrame)
            assert list(frame.columns) == list(model.get_feature_names_out())
        np.testing.assert_allclose(stacked(scores), plain, atol=1e-8)


@pytest.mark.parametrize("split", ["rows", "columns"])
def test_frames_are_indexed_by_sample_ids(split):
    parts = em.split(X, 2, by=split, random_state=0)
    ids = [
        [f"{name}{i}" for i in range(len(own))] for name, own in zip("ab", parts.parts, strict=True)
    ]
    ids = ids if split == "rows" else [ids[0], ids[0]]
    named = em.Partitioned(**{split: parts.parts}, sample_ids=ids)
    scores = em.KernelPCA(2).set_output(transform="pandas").fit(named).transform(named)
    frames = scores if split == "rows" else [scores]
    for frame, own in zip(frames, ids, strict=False):
        assert list(frame.index) == own


def test_blocks_of_scores_are_frames_too():
    model = em.KernelPCA(2, kernel="rbf").set_output(transform="pandas").fit(X)
    frames = list(model.transform(iter([X[:20], X[20:]])))
    assert all(isinstance(frame, pd.DataFrame) for frame in frames)
    np.testing.assert_allclose(np.vstack(frames), model.transform(X))


@each_case
def test_an_iterator_is_refused_in_words_where_arrays_are_taken(kind, source):
    model = fitted(small(kind), source)
    asked = [name for name in ("fit", "transform", "predict") if hasattr(model, name)]
    streams = ("fit", "transform") if kind is em.KernelPCA else ()
    for name in asked:
        blocks = (X[rows] for rows in (slice(0, 20), slice(20, 48)))
        if name in streams:
            getattr(model, name)(blocks)
            continue
        targets = [Y] if (kind, name) == (em.KernelPCRegressor, "fit") else []
        with pytest.raises(InputError, match="is a generator; an array is expected"):
            getattr(model, name)(blocks, *targets)


def test_an_iterator_as_a_partys_data_is_refused_in_words():
    with pytest.raises(InputError, match="'party-0' is a generator, expected an array"):
        em.Partitioned(rows=[(row for row in X), X])
    with pytest.raises(InputError, match="a list of paths"):
        em.federation(row for row in X)


@each_case
def test_a_word_is_not_taken_for_true(kind, source):
    known = inspect.signature(kind).parameters.items()
    for name in (name for name, own in known if isinstance(own.default, bool)):
        for value in ("False", None, 0.5):
            with pytest.raises(InputError, match=f"{name} is {value!r}; True or False"):
                fitted(small(kind, **{name: value}), source)


@pytest.mark.parametrize("kind", [*DOORS, *BY_ROWS, *BY_COLUMNS])
def test_what_is_no_array_is_told_so(kind):
    model = small(kind)
    for thing, words in [
        ("rows.csv", "Partitioned"),
        (Path("rows.csv"), "Partitioned"),
        (None, "an array .* is expected"),
        ({"a": [1.0]}, "an array .* is expected"),
        (X.astype(complex), "Complex data not supported"),
        (np.where(np.eye(48, 6), np.nan, X), "nan at row 0, column 0 .* impute"),
        (np.where(np.eye(48, 6), -np.inf, X), "-inf at row 0, column 0"),
        (np.array([["a", "b"]]), "real numbers are expected"),
    ]:
        with pytest.raises(InputError, match=words):
            fitted(model, thing)


FORMS = {
    "list": np.ndarray.tolist,
    "float16": lambda A: A.astype(np.float16),
    "float32": lambda A: A.astype(np.float32),
    "whole": lambda A: np.rint(3 * A).astype(np.int8),
    "bool": lambda A: A > 0,
    "columns first": np.asfortranarray,
    "strided": lambda A: np.repeat(np.repeat(A, 2, axis=0), 3, axis=1)[::2, ::3],
    "backwards": lambda A: np.ascontiguousarray(A[::-1])[::-1],
    "big-endian": lambda A: A.astype(">f8"),
    "frame": pd.DataFrame,
    "nullable frame": lambda A: pd.DataFrame(A).convert_dtypes(),
    "csr": sp.csr_matrix,
    "csc": sp.csc_array,
    "coo": sp.coo_matrix,
    "lil": sp.lil_array,
    "dok": sp.dok_array,
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("split", ["array", "rows", "columns"])
def test_rows_in_any_form_give_the_scores_of_plain_ones(form, split):
    shaped = FORMS[form](X)
    shaped = shaped.toarray() if sp.issparse(shaped) else np.asarray(shaped)
    plain = shaped.astype(np.float64)
    make = np.asarray if form in ("bool", "whole") else FORMS[form]  # these are made once
    scores = []
    for made, given in ((make, shaped), (np.asarray, plain)):
        cut = [made(own) for own in np.array_split(given, 3, axis=split == "columns")]
        source = made(given) if split == "array" else em.Partitioned(**{split: cut})
        how = {"n_landmarks": 48, "landmarks": "uniform"} if split == "rows" else {}
        model = em.KernelPCA(2, kernel="rbf", gamma=0.02, random_state=0, **how).fit(source)
        scores.append(stacked(model.transform(source)))
    coarse = form in ("float16", "float32")
    np.testing.assert_allclose(*np.abs(scores), atol=1e-4 if coarse else 1e-9)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("split", ["array", "rows", "columns"])
def test_read_only_memory_maps_are_left_alone(order, split, tmp_path):
    file = tmp_path / "rows.bin"
    np.memmap(file, np.float64, "w+", shape=X.shape, order=order)[:] = X
    mapped = np.memmap(file, np.float64, "r", shape=X.shape, order=order)
    cut = np.array_split(mapped, 3, axis=split == "columns")
    source = mapped if split == "array" else em.Partitioned(**{split: cut})
    for model in (em.KernelPCA(2, kernel="rbf"), em.KernelKMeans(3, random_state=0)):
        assert np.isfinite(stacked(model.fit(source).transform(source))).all()
    np.testing.assert_array_equal(np.memmap(file, np.float64, "r", shape=X.shape, order=order), X)


NO_NUMBERS = {
    "words": ["a", "b"] * 20,
    "digits as words": pd.array(["1", "2"] * 20, dtype="string"),
    "dates": pd.date_range("2020-01-01", periods=40),
    "categories": pd.Categorical(["a", "b"] * 20),
}


@pytest.mark.parametrize("kind", NO_NUMBERS)
@pytest.mark.parametrize("door", [em.KernelPCA, em.KernelKMeans, em.KernelPCRegressor])
def test_a_column_without_numbers_is_named(door, kind):
    rng = np.random.default_rng([len(kind), len(door.__name__)])
    frame = pd.DataFrame(rng.normal(size=(40, 3)), columns=["a", "b", "c"])
    targets = (frame["a"],) if door is em.KernelPCRegressor else ()
    fitted = door(2).fit(frame, *targets)
    frame.insert(int(rng.integers(4)), "odd", NO_NUMBERS[kind])
    with pytest.raises(em.EigenmeshError, match="a column 'odd' of type .* expected numbers"):
        door(2).fit(frame, *targets)
    with pytest.raises(em.EigenmeshError, match="a column 'odd' of type .* expected numbers"):
        fitted.transform(frame) if door is em.KernelPCA else fitted.predict(frame)


@pytest.mark.parametrize("sizes", [(20, 20), (20, 15)])
def test_a_list_of_arrays_is_told_to_be_parties(sizes):
    rows = [np.random.default_rng(n).normal(size=(n, 3)) for n in sizes]
    with pytest.raises(em.EigenmeshError, match=r"em\.Partitioned\(rows=X\)"):
        em.KernelPCA(2).fit(rows)
