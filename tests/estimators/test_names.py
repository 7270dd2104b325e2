"""Columns and parties are matched by name after a fit over parties, or refused; never mistaken."""

import warnings

import numpy as np
import pandas as pd
import pytest

import eigenmesh as em
from eigenmesh.engines.faulty import Fault

ROW_ESTIMATORS = {
    "KernelPCA": lambda: em.KernelPCA(2, random_state=0),
    "KernelPCA rbf": lambda: em.KernelPCA(2, kernel="rbf", gamma=0.1, random_state=0),
    "KernelKMeans": lambda: em.KernelKMeans(2, gamma=0.1, random_state=0),
    "KernelKMeans fed": lambda: em.KernelKMeans(2, gamma=0.1, method="fed", random_state=0),
    "DisKPCA": lambda: em.DisKPCA(2, random_state=0),
    "SketchingPCA": lambda: em.SketchingPCA(2, random_state=0),
    "FedKernelKMeans": lambda: em.FedKernelKMeans(2, gamma=0.1, n_iterations=4, random_state=0),
}
GRAPH_ESTIMATORS = {
    "KernelPCA ring": lambda: em.KernelPCA(2, topology="ring", random_state=0),
    "KernelKMeans ring": lambda: em.KernelKMeans(2, gamma=0.1, topology="ring", random_state=0),
    "GossipKPCA": lambda: em.GossipKPCA(2, topology="ring", random_state=0),
    "ADMMKPCA": lambda: em.ADMMKPCA(2, topology="full", random_state=0),
}
COLUMN_ESTIMATORS = {
    "KernelPCA": lambda: em.KernelPCA(2),
    "KernelPCA rbf": lambda: em.KernelPCA(2, kernel="rbf", gamma=0.1),
    "KernelKMeans": lambda: em.KernelKMeans(2, gamma=0.1, random_state=0),
    "OneShotKPCA": lambda: em.OneShotKPCA(2),
    "VFedPCA": lambda: em.VFedPCA(2),
    "VFedPCA ring": lambda: em.VFedPCA(2, topology="ring"),
    "DPCA": lambda: em.DPCA(2),
    "VFedAKPCA": lambda: em.VFedAKPCA(2, gamma=0.1),
}
BY_ROWS = {**ROW_ESTIMATORS, **GRAPH_ESTIMATORS}

pytestmark = pytest.mark.filterwarnings("ignore::eigenmesh.errors.EigenmeshWarning")


def draw(seed, n=48, d=6):
    """Columns of different sizes, so that no two can be swapped unnoticed."""
    rng = np.random.default_rng(seed)
    names = [f"c{i}" for i in rng.permutation(d)]
    return rng, pd.DataFrame(rng.normal(size=(n, d)) * (1 + np.arange(d)), columns=names)


def shuffled(rng, frame):
    """The same columns in a really different order."""
    names = list(frame.columns)
    while (order := rng.permutation(names).tolist()) == names:
        pass
    return frame[order]


def fitted_rows(build, frame, rng, tmp_path=None):
    pieces = np.array_split(np.arange(len(frame)), 3)
    # The parties themselves need not agree on an order.
    frames = [frame.iloc[pieces[0]], *(shuffled(rng, frame.iloc[rows]) for rows in pieces[1:])]
    return build().fit(em.Partitioned(rows=frames, names=["north", "east", "south"]))


def scores_of(model, X):
    return model.predict(X) if hasattr(model, "predict") else model.transform(X)


def saved(model, tmp_path, **options):
    model.save(tmp_path / "model.em", **options)
    return em.load(tmp_path / "model.em")


@pytest.mark.parametrize("name", BY_ROWS)
def test_rows_are_scored_by_name(name, tmp_path):
    seed = sorted(BY_ROWS).index(name)
    rng, frame = draw(seed)
    model = fitted_rows(BY_ROWS[name], frame, rng)
    assert model.party_names_ == ("north", "east", "south")
    assert model.party_feature_names_ == dict.fromkeys(model.party_names_, tuple(frame.columns))
    for fitted in (model, saved(model, tmp_path)):
        wanted = scores_of(fitted, frame)
        np.testing.assert_array_equal(scores_of(fitted, shuffled(rng, frame)), wanted)
        halves = em.Partitioned(rows=[shuffled(rng, frame[:20]), shuffled(rng, frame[20:])])
        np.testing.assert_array_equal(np.concatenate(scores_of(fitted, halves)), wanted)
        with pytest.warns(UserWarning, match="does not have valid feature names"):
            np.testing.assert_array_equal(scores_of(fitted, frame.to_numpy()), wanted)
        refuses_other_names(rng, fitted, frame, lambda X: em.Partitioned(rows=[X]))


def refuses_other_names(rng, model, frame, split):
    column = rng.choice(frame.columns)
    for wrong, words in (
        (frame.rename(columns={column: "other"}), f"{column}.*other"),
        (frame.drop(columns=column), f"lacks.*{column}"),
        (frame.assign(other=1.0), "has column 'other'"),
    ):
        for given in (wrong, split(wrong)):
            with pytest.raises(em.EigenmeshError, match=words):
                scores_of(model, given)


@pytest.mark.parametrize("name", COLUMN_ESTIMATORS)
def test_columns_are_scored_by_name(name, tmp_path):
    number = sorted(COLUMN_ESTIMATORS).index(name)
    names = (None, ["north", "east", "south"])[number % 2]
    rng, frame = draw(3 + number)
    parts = em.split(frame, 3, by="columns", names=names)
    model = COLUMN_ESTIMATORS[name]().fit(parts)
    own = [frame[list(columns)] for columns in parts.feature_names]  # of equal width
    assert model.party_feature_names_ == dict(zip(parts.names, parts.feature_names, strict=True))
    for fitted in (model, saved(model, tmp_path, parties=True)):
        wanted = scores_of(fitted, frame)
        for order in (rng.permutation(3), [2, 0, 1]):
            mixed = [shuffled(rng, own[i]) for i in order]
            given = names and [names[i] for i in order]
            found = scores_of(fitted, em.Partitioned(columns=mixed, names=given))
            np.testing.assert_allclose(found, wanted, atol=1e-12)
        np.testing.assert_allclose(scores_of(fitted, shuffled(rng, frame)), wanted, atol=1e-12)
        with pytest.warns(UserWarning, match="does not have valid feature names"):
            found = scores_of(fitted, em.split(frame.to_numpy(), 3, by="columns", names=names))
        np.testing.assert_allclose(found, wanted, atol=1e-12)
        _refuses_wrong_parties(rng, fitted, frame, own, names)


def _refuses_wrong_parties(rng, model, frame, own, names):
    which = int(rng.integers(3))
    column = own[which].columns[0]
    for wrong in (own[which].rename(columns={column: "other"}), own[which].assign(other=1.0)):
        given = [*own[:which], wrong, *own[which + 1 :]]
        with pytest.raises(em.EigenmeshError, match="other"):
            scores_of(model, em.Partitioned(columns=given, names=names))
    with pytest.raises(em.EigenmeshError, match=column):
        scores_of(model, frame.drop(columns=column))
    if names:  # these are not the columns of whom they are said to be
        with pytest.raises(em.EigenmeshError, match="lacks"):
            scores_of(model, em.Partitioned(columns=own[::-1], names=names))


@pytest.mark.parametrize("split", ["rows", "columns", "ring"])
def test_a_regression_predicts_by_name(split, tmp_path):
    rng, frame = draw(11)
    y = frame.to_numpy() @ rng.normal(size=6)
    build = em.KernelPCRegressor(3, kernel="linear", topology="ring" if split == "ring" else None)
    if split == "columns":
        parts = em.split(frame, 3, by="columns")
        model = build.fit(parts, y)
    else:
        parts = em.split(frame, 3, random_state=0, names=["a", "b", "c"])
        targets = {name: y[rows] for name, rows in zip("abc", parts.order, strict=True)}
        model = build.fit(parts, dict(reversed(targets.items())))
        listed = em.KernelPCRegressor(**build.get_params()).fit(parts, list(targets.values()))
        np.testing.assert_array_equal(model.coef_, listed.coef_)
        assert model.score(parts, targets) == model.score(parts, list(targets.values()))
        with pytest.raises(em.EigenmeshError, match="'c'"):
            build.fit(parts, {"a": y, "b": y, "d": y})
    for fitted in (model, saved(model, tmp_path, parties=split == "columns")):
        wanted = fitted.predict(frame)
        np.testing.assert_allclose(fitted.predict(shuffled(rng, frame)), wanted, rtol=1e-12)
        assert fitted.score(shuffled(rng, frame), y) == pytest.approx(fitted.score(frame, y))
        with pytest.raises(em.EigenmeshError, match="other"):
            fitted.predict(frame.rename(columns={"c0": "other"}))


def test_weights_go_by_the_parties_names():
    _, frame = draw(5)
    parts = em.split(frame, 3, random_state=0, names=["a", "b", "c"])
    weights = {n: 1.0 + np.arange(len(rows)) for n, rows in zip("abc", parts.order, strict=True)}
    listed = em.KernelKMeans(2, random_state=0).fit(parts, sample_weight=list(weights.values()))
    named = em.KernelKMeans(2, random_state=0).fit(
        parts, sample_weight=dict(reversed(weights.items()))
    )
    np.testing.assert_array_equal(named.cluster_centers_, listed.cluster_centers_)


def test_blocks_of_rows_keep_their_columns(tmp_path):
    rng, frame = draw(9)
    model = em.KernelPCA(2, n_landmarks=8, random_state=0).partial_fit(frame[:24])
    for going_on in (model, saved(model, tmp_path)):
        with pytest.raises(em.EigenmeshError, match="[Ff]eature names"):
            going_on.partial_fit(shuffled(rng, frame[24:]))
        with pytest.raises(em.EigenmeshError, match="[Ff]eature names"):
            going_on.partial_fit(frame[24:].rename(columns={"c0": "other"}))


def test_one_array_is_treated_as_scikit_learn_does():
    rng, frame = draw(13)
    model = em.KernelPCA(2).fit(frame)
    with pytest.raises(ValueError, match="same order as they were in fit"):
        model.transform(shuffled(rng, frame))
    assert not hasattr(model, "party_names_")
    parts = em.Partitioned(rows=[shuffled(rng, frame)])
    np.testing.assert_array_equal(model.transform(parts)[0], model.transform(frame))


def test_an_open_federation_must_have_the_columns_of_the_fit():
    rng, frame = draw(17)
    own = [frame.iloc[:, :3], frame.iloc[:, 3:]]
    model = em.VFedPCA(2).fit(em.Partitioned(columns=own))
    with em.federation(em.Partitioned(columns=own)) as fed:
        np.testing.assert_array_equal(model.transform(fed), model.transform(frame))
    for wrong in ([own[0], shuffled(rng, own[1])], own[::-1]):
        with (
            em.federation(em.Partitioned(columns=wrong)) as fed,
            pytest.raises(em.EigenmeshError, match="order|lacks"),
        ):
            model.transform(fed)


def test_a_second_fit_forgets_the_names_of_the_first():
    _, frame = draw(19)
    model = em.KernelPCA(2).fit(em.split(frame, 3, random_state=0))
    model.fit(em.split(frame.to_numpy(), 2, names=["x", "y"], random_state=0))
    assert model.party_feature_names_ == {"x": None, "y": None}
    assert not hasattr(model, "feature_names_in_")
    model.fit(frame)
    assert not hasattr(model, "party_names_")


def test_a_lost_party_takes_its_columns_along():
    rng, frame = draw(23)
    parts = em.split(frame, 3, by="columns", names=["a", "b", "c"])
    faults = [Fault("kill", party="b", round=1)]
    with em.federation(parts, on_loss="survivors", faults=faults) as fed:
        model = em.OneShotKPCA(2).fit(fed)
    assert tuple(model.party_feature_names_) == ("a", "c")
    rest = frame.drop(columns=list(parts.feature_names[1]))
    np.testing.assert_array_equal(model.transform(shuffled(rng, rest)), model.transform(rest))


def measured(rng, n, factor=1.0):
    """A hospital's rows; its glucose may be in other units."""
    columns = {
        "age": rng.normal(50, 12, n),
        "glucose": rng.gamma(12, 0.45, n) * factor,
        "bmi": rng.normal(26, 4, n),
    }
    return pd.DataFrame(columns)


@pytest.mark.filterwarnings("default::eigenmesh.errors.EigenmeshWarning")
@pytest.mark.parametrize(
    ("door", "topology"),
    [
        ("KernelPCA", None),
        ("KernelKMeans", None),
        ("KernelPCRegressor", None),
        ("KernelPCA", "ring"),
    ],
)
def test_other_units_at_one_party_are_warned_of_by_name(door, topology):
    rng = np.random.default_rng(7)
    frames = [measured(rng, 240), measured(rng, 200), measured(rng, 220, 18.0)]
    same = [measured(rng, 240), measured(rng, 200), measured(rng, 220)]
    fit = {
        "KernelPCA": lambda: em.KernelPCA(2, kernel="rbf", gamma="median", topology=topology),
        "KernelKMeans": lambda: em.KernelKMeans(3, topology=topology, random_state=0),
        "KernelPCRegressor": lambda: em.KernelPCRegressor(3, topology=topology),
    }[door]

    def warnings_of(frames):
        parts = em.Partitioned(rows=frames, names=["north", "east", "south"])
        y = [[own["age"].to_numpy() for own in frames]] if door == "KernelPCRegressor" else []
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            fit().fit(parts, *y)
        return [str(w.message) for w in seen if "units" in str(w.message)]

    (words,) = warnings_of(frames)
    assert "column 'glucose' of party 'south'" in words
    assert warnings_of(same) == []
