"""Whatever a fit warns of is in its report: so on the page, in JSON and in the model, and once."""

import html
import json
import re
import warnings

import numpy as np
import pandas as pd
import pytest

import eigenmesh as em
from eigenmesh.estimators import checks
from eigenmesh.reports.documents import account_tree, as_json

DOORS = {
    "KernelPCA": lambda kernel, **how: em.KernelPCA(2, random_state=0, **kernel, **how),
    "KernelKMeans": lambda kernel, **how: em.KernelKMeans(2, random_state=0, **kernel, **how),
    "KernelPCRegressor": lambda kernel, **how: em.KernelPCRegressor(
        3, random_state=0, **kernel, **how
    ),
}
OF_ROWS = {**DOORS, "DisKPCA": lambda kernel: em.DisKPCA(2, random_state=0, **kernel)}
OF_COLUMNS = {
    **DOORS,
    "VFedAKPCA": lambda kernel: em.VFedAKPCA(2, random_state=0, **kernel),
    "OneShotKPCA": lambda kernel: em.OneShotKPCA(2, random_state=0, **kernel),
}
RBF = {"kernel": "rbf", "gamma": 1e-3}
ODDITIES = {"units": "different units", "ids": "looks like an id", "nines": "where no other value"}
N_PARTIES = 3


def drawn(rng, oddity):
    """Rows and their party, with one oddity in any column but the first."""
    n, d = int(rng.integers(150, 240)), int(rng.integers(3, 6))
    frame = pd.DataFrame(
        rng.normal(size=(n, d)) * rng.uniform(2, 10, d) + rng.uniform(60, 90, d),
        columns=[f"lab {j}" for j in range(d)],
    )
    owner, column = rng.permutation(np.arange(n) % N_PARTIES), f"lab {rng.integers(1, d)}"
    if oddity == "units":
        frame.loc[owner == rng.integers(N_PARTIES), column] *= 10.0 ** rng.integers(2, 5)
    elif oddity == "ids":
        frame["patient"] = 1.0 + rng.permutation(n)
    else:
        frame.loc[rng.choice(n, size=5, replace=False), column] = rng.choice([-999.0, -99.0])
    return frame, owner


def fitted(estimator, *data):
    """The estimator, and what it warned of."""
    with warnings.catch_warnings(record=True) as messages:
        warnings.simplefilter("always")
        estimator.fit(*data)
    return estimator, [str(message.message) for message in messages]


def has_all(estimator, words, oddity, page):
    """Whether report, JSON, model file and page have these words, each once."""
    assert any(ODDITIES[oddity] in own for own in words)
    assert len(set(words)) == len(words)
    report = estimator.report_
    assert set(words) <= set(report.notes)
    assert len(set(report.notes)) == len(report.notes)
    assert json.loads(as_json(account_tree(report)))["notes"] == list(report.notes)
    estimator.save(page.with_suffix(".em"))
    assert em.load(page.with_suffix(".em")).report_.notes == report.notes
    em.report(estimator, page)
    text = " ".join(html.unescape(re.sub("<[^>]+>", " ", page.read_text())).split())
    assert [text.count(" ".join(own.split())) for own in words] == [1] * len(words)


def targets(rng, owner, door):
    if door != "KernelPCRegressor":
        return ()
    return ([rng.normal(size=np.sum(owner == i)) for i in range(N_PARTIES)],)


@pytest.mark.parametrize("oddity", ODDITIES)
@pytest.mark.parametrize("door", OF_ROWS)
@pytest.mark.parametrize("seed", range(2))
def test_rows_of_parties(seed, door, oddity, tmp_path):
    rng = np.random.default_rng([seed, *map(ord, door + oddity)])
    frame, owner = drawn(rng, oddity)
    parts = em.Partitioned(rows=[frame[owner == i] for i in range(N_PARTIES)])
    kernel = RBF if rng.random() < 0.7 else {"kernel": "linear", "gamma": None}
    y = targets(rng, owner, door)
    estimator, words = fitted(OF_ROWS[door](kernel), parts, *y)
    has_all(estimator, words, oddity, tmp_path / "page.html")
    with em.federation(parts, secure=bool(rng.integers(2))) as fed:
        estimator, words = fitted(OF_ROWS[door](RBF), fed, *y)
        if words:  # under masks nobody sees a party's own numbers
            assert set(words) <= set(estimator.report_.notes)
        first = [note for note in estimator.report_.notes if ODDITIES[oddity] in note]
        again, _ = fitted(OF_ROWS[door](RBF), fed, *y)  # not warned of anew, and said all the same
    assert [note for note in again.report_.notes if ODDITIES[oddity] in note] == first


@pytest.mark.parametrize("oddity", ODDITIES)
@pytest.mark.parametrize("door", DOORS)
def test_rows_on_a_graph(door, oddity, tmp_path):
    rng = np.random.default_rng([7, *map(ord, door + oddity)])
    frame, owner = drawn(rng, oddity)
    parts = em.Partitioned(rows=[frame[owner == i] for i in range(N_PARTIES)])
    graph = DOORS[door](RBF, topology=str(rng.choice(["ring", "star"])))
    estimator, words = fitted(graph, parts, *targets(rng, owner, door))
    has_all(estimator, words, oddity, tmp_path / "page.html")


@pytest.mark.parametrize("oddity", ["ids", "nines"])
@pytest.mark.parametrize("door", OF_COLUMNS)
def test_columns_of_parties(door, oddity, tmp_path):
    rng = np.random.default_rng([8, *map(ord, door + oddity)])
    frame, _ = drawn(rng, oddity)
    parts = em.split(frame, N_PARTIES, by="columns", random_state=0)
    y = () if door != "KernelPCRegressor" else (rng.normal(size=len(frame)),)
    estimator, words = fitted(OF_COLUMNS[door](RBF), parts, *y)
    has_all(estimator, words, oddity, tmp_path / "page.html")


@pytest.mark.parametrize("oddity", ["ids", "nines"])
@pytest.mark.parametrize("door", [*DOORS, "private"])
def test_one_array(door, oddity, tmp_path):
    rng = np.random.default_rng([9, *map(ord, door + oddity)])
    frame, _ = drawn(rng, oddity)
    y = () if door != "KernelPCRegressor" else (rng.normal(size=len(frame)),)
    is_private = door == "private"  # a promise to one's own rows: they are fitted as a party's
    estimator = em.KernelPCA(2, epsilon=5, **RBF) if is_private else DOORS[door](RBF)
    estimator, words = fitted(estimator, frame, *y)
    has_all(estimator, words, oddity, tmp_path / "page.html")
    clean, _ = fitted(estimator, rng.normal(size=(len(frame), 3)), *y)
    assert not any(ODDITIES[oddity] in note for note in clean.report_.notes)


@pytest.mark.parametrize("is_saved", [False, True])
def test_a_stream_that_goes_on_says_it_again(is_saved, tmp_path):
    frame, _ = drawn(np.random.default_rng(0), "ids")
    X = frame.to_numpy()
    stream = em.KernelPCA(2, kernel="linear", random_state=0)
    with pytest.warns(em.EigenmeshWarning, match="looks like an id") as messages:
        stream.partial_fit(X[np.argsort(X[:, -1])][:70])
    if is_saved:
        stream.save(tmp_path / "m.em")
        stream = em.load(tmp_path / "m.em")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        stream.partial_fit(X[:50])
    assert str(messages[0].message) in stream.report_.notes


def test_columns_of_parties_that_are_louder_than_the_others(tmp_path):
    rng = np.random.default_rng(4)
    X = rng.normal(size=(80, 6)) * [1, 1, 1, 1, 1e4, 1e4]
    parts = em.split(X, 3, by="columns")
    for estimator in (em.KernelPCA(2, kernel="rbf"), em.VFedAKPCA(2), em.OneShotKPCA(2)):
        estimator, words = fitted(estimator, parts)
        assert set(words) <= set(estimator.report_.notes)
        assert len(set(estimator.report_.notes)) == len(estimator.report_.notes)


def test_a_gamma_that_is_approximate_is_noted_of_its_own_fit_alone(monkeypatch):
    monkeypatch.setattr(checks, "MOST_RANK_ERROR", -1.0)
    X = np.random.default_rng(0).normal(size=(90, 3))
    with em.federation(em.split(X, 3)) as fed:
        first, words = fitted(em.KernelPCA(2, kernel="rbf", gamma="median", random_state=0), fed)
        second, _ = fitted(em.KernelPCA(2, kernel="rbf", gamma=0.1, random_state=0), fed)
    assert any("gamma='median'" in own for own in words)
    assert set(words) <= set(first.report_.notes)
    assert not any("gamma='median'" in note for note in second.report_.notes)


def test_clusters_over_columns_state_their_cost_once():
    X = np.random.default_rng(0).normal(size=(90, 4))
    kmeans = em.KernelKMeans(3, gamma=0.1, random_state=0)
    kmeans, words = fitted(kmeans, em.split(X, 2, by="columns"))
    (cost,) = (note for note in kmeans.report_.notes if "floats were sent" in note)
    assert cost in words
