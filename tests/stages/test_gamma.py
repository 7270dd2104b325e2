"""Gamma rules without pooling: equal to the pooled value, at the forecast cost."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.spatial.distance import pdist
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.preprocessing import scale
from sklearn.svm import SVC

import eigenmesh as em
from eigenmesh.engines.faulty import Fault
from eigenmesh.engines.in_process import InProcess
from eigenmesh.errors import InputError, MessageRefused, PartyLost, PolicyRefusal
from eigenmesh.estimators.checks import MOST_RANK_ERROR
from eigenmesh.numerics.sketched_median import sketch_basis, sketch_width
from eigenmesh.runtime.federation import Federation
from eigenmesh.runtime.message import Message
from eigenmesh.runtime.schedule import Parties, kinds_in
from eigenmesh.runtime.site import Site, SiteView
from eigenmesh.runtime.study import forecast_stages, stage
from eigenmesh.stages.gamma import (
    MAX_PAIRS,
    MAX_SKETCHED_ROWS,
    RULES,
    BandwidthHolder,
    DrawRows,
    MeasureSetup,
    bandwidth,
    rows_drawn,
)
from eigenmesh.stages.graph_gamma import graph_bandwidth

SPLITS = ("rows", "columns")


def forecast_floats(rule, split, shapes):
    """Floats of each party, from the forecast of the ledger."""
    names = [f"party-{i}" for i in range(len(shapes))]
    entries = forecast(rule, split, shapes).entries
    return [sum(entry.floats for entry in entries if entry.sender == name) for name in names]


def forecast(rule, split, shapes):
    parties = Parties(tuple(f"party-{i}" for i in range(len(shapes))), tuple(shapes))
    return forecast_stages([stage(bandwidth, rule)], parties, split)


def forecast_rounds(rule, split, n_parties):
    return forecast(rule, split, [(4, 4)] * n_parties).rounds


def needed_steps(rule, split, n_parties=2):
    parties = Parties(tuple(map(str, range(n_parties))), ((4, 4),) * n_parties)
    return kinds_in(stage(bandwidth, rule).study(parties.scope(split)).tree)


MOMENT_RULES = (None, "scale", "mean-distance")


def run(parts, rule, seed=0, **options):
    with em.federation(parts, **options) as fed:
        return fed.run(bandwidth, rule, seed=seed)


def gamma(parts, rule, seed=0):
    return run(parts, rule, seed).value.gamma


def pooled(X, rule):
    """Each rule by its definition, in extended precision."""
    X = np.asarray(X, dtype=np.longdouble)
    d = X.shape[1]
    if rule is None:
        return 1.0 / d
    if rule == "scale":
        return float(1 / (d * X.var()))
    if rule == "mean-distance":
        return float(1 / (2 * np.square(X - X.mean(axis=0)).sum(axis=1).mean()))
    return float(1 / (2 * np.median(pdist(np.asarray(X, dtype=float), "sqeuclidean"))))


def blobs(n=90, d=12, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)) * rng.uniform(0.5, 2, d) + 3 * rng.integers(0, 2, (n, 1))


# 1. The pooled value.


@pytest.mark.parametrize("by", SPLITS)
@pytest.mark.parametrize("law", ["equal", "power"])
@pytest.mark.parametrize("rule", MOMENT_RULES)
def test_equals_the_pooled_value(by, law, rule):
    X = blobs()
    parts = em.split(X, 5, by=by, law=law, random_state=0)
    assert gamma(parts, rule) == pytest.approx(pooled(X, rule), rel=1e-12)


@pytest.mark.parametrize("by", SPLITS)
@pytest.mark.parametrize("rule", MOMENT_RULES)
def test_equals_the_pooled_value_for_sparse_rows(by, rule):
    X = sp.random_array((120, 15), density=0.2, random_state=0, format="csr")
    parts = em.split(X, 4, by=by, random_state=0)
    assert gamma(parts, rule) == pytest.approx(pooled(X.toarray(), rule), rel=1e-12)


@pytest.mark.parametrize("by", SPLITS)
@pytest.mark.parametrize("rule", ["scale", "mean-distance"])
def test_keeps_its_digits_far_from_the_origin(by, rule):
    # A mean near 1e6 is itself only known to 1e-10; sums of squares would keep four digits.
    X = blobs() + 1e6
    parts = em.split(X, 5, by=by, random_state=0)
    assert gamma(parts, rule) == pytest.approx(pooled(X, rule), rel=1e-9)


@pytest.mark.parametrize("by", SPLITS)
def test_scale_is_that_of_scikit_learn(by):
    X, y = load_breast_cancer(return_X_y=True)
    expected = SVC(gamma="scale").fit(X[:200], y[:200])._gamma
    parts = em.split(X[:200], 3, by=by, random_state=0)
    assert gamma(parts, "scale") == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("parties", [1, 2, 12])
@pytest.mark.parametrize("shift", [0.0, 1e6])
def test_median_over_columns_is_the_pooled_one(parties, shift):
    X = blobs(n=45) + shift  # 990 pairs: all of them
    result = run(em.split(X, parties, by="columns"), "median").value
    assert result.exact
    assert result.gamma == pytest.approx(pooled(X, "median"), rel=1e-12)


def test_median_over_sparse_columns_is_the_pooled_one():
    X = sp.random_array((45, 20), density=0.5, random_state=0, format="csr")
    parts = em.split(X, 3, by="columns")
    assert gamma(parts, "median") == pytest.approx(pooled(X.toarray(), "median"), rel=1e-12)


def test_one_party_and_columns_draw_the_same_pairs():
    X = load_digits().data
    alone = run(em.Partitioned(rows=[X]), "median", seed=3).value
    columns = run(em.split(X, 4, by="columns"), "median", seed=3).value
    assert alone.exact
    assert alone.how == columns.how
    assert f"{MAX_PAIRS} of 1613706 pairs" in alone.how
    assert alone.gamma == pytest.approx(columns.gamma, rel=1e-12)
    # The median of 1000 of these distances has a standard error of 1 %.
    assert alone.gamma == pytest.approx(pooled(X, "median"), rel=0.03)
    assert gamma(em.Partitioned(rows=[X]), "median", seed=4) != alone.gamma


# 2. The approximate median of several parties with rows.


@cache
def data_set(name):
    rng = np.random.default_rng(0)
    if name == "digits":
        return load_digits(return_X_y=True)
    if name == "breast cancer":
        X, y = load_breast_cancer(return_X_y=True)
        return scale(X), y
    if name == "iris":
        return load_iris(return_X_y=True)
    if name == "wine":
        X, y = load_wine(return_X_y=True)
        return scale(X), y
    if name == "clusters":
        y = rng.integers(0, 4, 1000)
        return 4 * rng.normal(size=(4, 3))[y] + rng.normal(size=(1000, 3)), y
    d = int(name.removeprefix("gaussian "))
    X = rng.normal(size=(1000, d))
    return X, (X[:, 0] > 0).astype(int)


MEASURED = {  # the largest error over four seeds and both splits, and a margin
    "digits": 0.031 + 0.01,
    "breast cancer": 0.118 + 0.02,
    "iris": 0.09 + 0.02,
    "wine": 0.012 + 0.01,
    "gaussian 2": 0.06 + 0.02,
    "gaussian 3": 0.07 + 0.02,
    "gaussian 10": 0.014 + 0.01,
    "gaussian 150": 0.003 + 0.002,
    "clusters": 0.041 + 0.02,
}


@pytest.mark.parametrize("by_label", [False, True])
@pytest.mark.parametrize("name", MEASURED)
def test_median_over_rows_is_near_the_pooled_one(name, by_label):
    X, y = data_set(name)
    expected = pooled(X, "median")
    for seed in range(3):
        if by_label:
            parts = em.Partitioned(rows=[X[y == label] for label in np.unique(y)])
        else:
            parts = em.split(X, 6, law="power", exponent=1.0, random_state=seed)
        assert expected / gamma(parts, "median", seed) == pytest.approx(1, abs=MEASURED[name])


@pytest.mark.parametrize("seed", range(10))
def test_median_of_parties_that_differ_is_near_its_rank(seed):
    """Clusters by party: a sketch sees them in half the dimensions, means in all.

    Beside parties a thousand times as far from each other as their rows, these are one place.
    """
    rng = np.random.default_rng(seed)
    sizes = rng.integers(8, 60, size=int(rng.integers(2, 12)))
    d, apart = int(rng.integers(8, 30)), 10 ** rng.uniform(0, 3)
    rows = [rng.normal(size=(n, d)) + apart * rng.normal(size=d) for n in sizes]
    result = run(em.Partitioned(rows=rows), "median", seed).value
    distances = pdist(np.vstack(rows), "sqeuclidean")
    off = abs((distances < 0.5 / result.gamma).mean() - 0.5)
    assert off <= 0.06 or result.rank_error > MOST_RANK_ERROR


def heavy(rng, d):
    return rng.standard_cauchy(size=(int(rng.integers(60, 400)), d)) ** 3


def clustered(rng, d):
    n = int(rng.integers(60, 400))
    return 5 * rng.normal(size=(4, d))[rng.integers(4, size=n)] + rng.normal(size=(n, d))


def few_columns(rng, d):
    return rng.normal(size=(int(rng.integers(60, 400)), 2)) * [1.0, 10 ** rng.uniform(0, 3)]


def hardly_sketched(rng, d):
    """Rows of few columns that spread little along what is sketched of them."""
    basis = sketch_basis(2 + d % 3)
    X = rng.normal(size=(int(rng.integers(60, 400)), len(basis)))
    return X - (1 - 10 ** rng.uniform(-3, -1)) * (X @ basis) @ basis.T


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("rows", [heavy, clustered, few_columns, hardly_sketched])
@pytest.mark.parametrize("place", ["random", "sorted", "shifted"])
def test_a_median_is_near_its_rank_or_says_how_far_it_may_be(rows, place, seed):
    rng = np.random.default_rng([seed, len(place), len(rows.__name__)])
    X = rows(rng, int(rng.integers(2, 24)))
    if place == "sorted":
        X = X[np.argsort(X[:, 0])]
    cuts = np.sort(rng.choice(np.arange(1, len(X)), int(rng.integers(1, 9)), replace=False))
    parts = np.split(X, cuts)
    if place == "shifted":
        parts[::2] = [part + 10 * np.median(X.std(axis=0)) for part in parts[::2]]
    parts = em.Partitioned(rows=parts)
    with em.federation(parts) as fed:
        results = [fed.run(bandwidth, "median").value]
    with em.federation(parts, topology="full") as fed:
        results.append(fed.run(graph_bandwidth, "median", 0).value)
    distances = pdist(np.vstack(parts.parts), "sqeuclidean")
    for result in results:
        off = abs((distances < 0.5 / result.gamma).mean() - 0.5)
        assert off <= 0.1 or result.rank_error > MOST_RANK_ERROR


def test_a_median_that_may_be_far_off_is_warned_of():
    rows = [np.random.default_rng(i).normal(size=(4, 6)) for i in range(6)]
    with pytest.warns(em.EigenmeshWarning, match="gamma='median' .*'mean-distance'"):
        em.DisKPCA(1, kernel="rbf", gamma="median", random_state=0).fit(em.Partitioned(rows=rows))


def test_median_over_rows_says_that_it_is_approximate():
    result = run(em.split(load_digits().data, 3, random_state=0), "median").value
    assert not result.exact
    assert "approximate" in result.how
    assert "500 of 1797 rows seen in 32 of 64 dimensions" in result.how
    assert float(result) == result.gamma


@pytest.mark.parametrize("change", [lambda X: X + 1e6, sp.csr_array])
def test_median_over_rows_depends_on_distances_alone(change):
    X = blobs(n=300)
    parts = [em.Partitioned(rows=[Y[:200], Y[200:]]) for Y in (X, change(X))]
    # Other numbers are another data set, which draws other pairs.
    assert gamma(parts[0], "median") == pytest.approx(gamma(parts[1], "median"), rel=0.03)


def party_with(X, seed=0):
    site = Site("party-0", opens=lambda: X)
    setup = MeasureSetup(seed=seed, standardize=False, fill_missing=None)
    return BandwidthHolder(SiteView(site, 0, ("party-0",)), setup)


def test_runs_with_other_seeds_give_no_further_coordinates_of_a_row():
    X = blobs(n=40, d=8)
    replies = [party_with(X, seed).sketch_rows(DrawRows(len(X))) for seed in range(3)]
    sketches = [reply.coordinates for reply in replies]
    assert sketches[0].shape == (40, 4)
    assert np.linalg.matrix_rank(np.hstack(sketches)) == 4


def test_one_column_cannot_be_sketched():
    parts = em.Partitioned(rows=[[[1.0], [2.0]], [[3.0], [5.0]]])
    with pytest.raises(InputError, match="mean-distance"):
        run(parts, "median")
    with pytest.raises(InputError, match="mean-distance"):
        forecast_floats("median", "rows", parts.shapes)


def test_a_party_sketches_no_more_rows_than_it_may():
    with pytest.raises(MessageRefused, match="500 at most"):
        party_with(blobs(n=600)).sketch_rows(DrawRows(MAX_SKETCHED_ROWS + 1))


@pytest.mark.parametrize("sizes", [[30, 20], [3000, 1500, 1], [1] * 700, [10**6, 7, 7], [501]])
def test_rows_are_drawn_in_proportion(sizes):
    drawn = rows_drawn(sizes)
    share = min(sum(sizes), MAX_SKETCHED_ROWS) / sum(sizes)
    assert sum(drawn) == min(sum(sizes), MAX_SKETCHED_ROWS)
    assert all(
        k <= size and abs(k - share * size) < 1 for k, size in zip(drawn, sizes, strict=True)
    )


# 3. The ledger.


def floats_by_party(result):
    entries = list(result.recording.ledger)
    return [sum(e.floats for e in entries if e.sender == party) for party in result.parties]


@pytest.mark.parametrize("by", SPLITS)
@pytest.mark.parametrize("n_parties", [1, 4])
@pytest.mark.parametrize("rule", RULES)
def test_ledger_equals_the_forecast(by, n_parties, rule):
    X = np.random.default_rng(0).normal(size=(700, 9))
    parts = em.split(X, n_parties, by=by, law="power", exponent=1.0, random_state=0)
    result = run(parts, rule)
    assert floats_by_party(result) == forecast_floats(rule, by, parts.shapes)
    assert result.recording.ledger.rounds == forecast_rounds(rule, by, n_parties)
    assert result.recording.ledger.floats_down == 0


def test_forecast_is_the_formula():
    rows, columns = [(700, 9), (300, 9)], [(700, 4), (700, 5)]
    for rule in (None, "scale"):
        assert forecast_floats(rule, "rows", rows) == [0, 0]
        assert forecast_floats(rule, "columns", columns) == [0, 0]
    assert forecast_floats("mean-distance", "rows", rows) == [9, 9]
    assert forecast_floats("mean-distance", "columns", columns) == [0, 0]
    assert forecast_floats("median", "rows", rows) == [9 + 350 * 4 + 900, 9 + 150 * 4 + 900]
    assert forecast_floats("median", "rows", rows[:1]) == [0]
    assert forecast_floats("median", "columns", columns) == [1000, 1000]
    assert [forecast_rounds("median", "rows", n) for n in (1, 2)] == [1, 3]
    assert [sketch_width(d) for d in (2, 3, 4, 127, 128, 10**6)] == [1, 1, 2, 63, 64, 64]


# 4. The same answer every time.


@pytest.mark.parametrize("by", SPLITS)
@pytest.mark.parametrize("rule", RULES)
def test_same_seed_same_gamma(by, rule):
    parts = em.split(blobs(n=600), 3, by=by, random_state=0)
    assert gamma(parts, rule, seed=5) == gamma(parts, rule, seed=5)


# 5. What leaves a party.

REVEALED = {
    (None, "rows"): {"counts"},
    (None, "columns"): {"counts"},
    ("scale", "rows"): {"counts", "moments"},
    ("scale", "columns"): {"counts", "moments"},
    ("mean-distance", "rows"): {"counts", "moments"},
    ("mean-distance", "columns"): {"counts", "moments"},
    ("median", "rows"): {"counts", "moments", "sketch"},
    ("median", "columns"): {"counts", "distances"},
}


@pytest.mark.parametrize(("rule", "by"), REVEALED)
def test_reveals_what_the_rule_needs_and_no_more(rule, by):
    kinds = REVEALED[rule, by]
    # By content so many pairs of so few samples are their columns.
    content = {"columns"} if (rule, by) == ("median", "columns") else set()
    policy = em.Policy(allow=kinds | content)
    parts = em.split(blobs(), 3, by=by, random_state=0, policies=policy)
    revealed = run(parts, rule).recording.ledger.revealed()
    assert all(set(own) == kinds for own in revealed.values())
    assert {kind for step in needed_steps(rule, by) for kind in step.reveals} == kinds


@pytest.mark.parametrize(
    ("by", "kind"), [("columns", "distances"), ("rows", "sketch"), ("rows", "moments")]
)
def test_a_policy_that_forbids_a_needed_kind_refuses_before_anything_leaves(by, kind):
    policies = [None, em.Policy(allow=em.Policy().allow - {kind}), None]
    parts = em.split(blobs(), 3, by=by, names=["a", "b", "c"], policies=policies, random_state=0)
    with em.federation(parts) as fed, fed.recording() as recording:
        with pytest.raises(PolicyRefusal, match=f"'{kind}'") as caught:
            fed.run(bandwidth, "median")
        with pytest.raises(PolicyRefusal, match=f"'{kind}'"):
            fed.require_stages(stage(bandwidth, "median"))
        fed.require_stages(stage(bandwidth, None))
    assert caught.value.party == "b"
    assert recording.ledger.floats_up == 0


def test_one_party_with_rows_needs_no_sketch():
    X = blobs(n=45)
    parts = em.Partitioned(rows=[X], policies=em.Policy(allow={"counts", "distances"}))
    assert gamma(parts, "median") == pytest.approx(pooled(X, "median"), rel=1e-12)


# 6. Bad input and lost parties.


@pytest.mark.parametrize("by", SPLITS)
@pytest.mark.parametrize("rule", ["scale", "mean-distance", "median"])
@pytest.mark.parametrize("n_parties", [1, 2])
def test_constant_data_get_a_helpful_error(by, rule, n_parties):
    parts = em.split(np.full((20, 4), 7.0), n_parties, by=by, random_state=0)
    with pytest.raises(InputError, match="pass gamma as a number"):
        run(parts, rule)


def test_mostly_equal_rows_have_no_median():
    X = np.zeros((100, 2))
    X[:5] = np.arange(10.0).reshape(5, 2)
    for parts in (em.split(X, 2, random_state=0), em.split(X, 2, by="columns")):
        with pytest.raises(InputError, match="median squared distance is 0"):
            run(parts, "median")


@pytest.mark.parametrize("by", SPLITS)
def test_one_sample_has_no_median(by):
    with pytest.raises(InputError, match="at least two rows"):
        run(em.split(np.ones((1, 4)), 1, by=by, random_state=0), "median")


def unchecked(*data, split):
    sites = [Site(f"site-{i}", opens=lambda X=X: X) for i, X in enumerate(data)]
    return Federation(InProcess(sites), split=split)


@pytest.mark.parametrize("rule", RULES)
def test_a_column_holder_with_other_samples_is_named(rule):
    # Both have more than 1000 pairs, so that the distances alone would add up.
    odd = pytest.raises(MessageRefused, match="'site-2' has n_rows 150, the others 200")
    with unchecked(blobs(200), blobs(200), blobs(150), split="columns") as fed, odd:
        fed.run(bandwidth, rule)


@pytest.mark.parametrize("rule", RULES)
def test_a_row_holder_with_other_columns_is_named(rule):
    odd = pytest.raises(MessageRefused, match="'site-2' has n_columns 5, the others 4")
    with unchecked(blobs(d=4), blobs(d=4), blobs(d=5), split="rows") as fed, odd:
        fed.run(bandwidth, rule)


def lying(step, field):
    """The step, with an array one element short at site-1."""

    def shortened(party, *messages):
        reply = step(party, *messages)
        cut = 1 if party.site.name == "site-1" else 0
        return replace(reply, **{field: getattr(reply, field)[cut:]})

    return shortened


@pytest.mark.parametrize(
    ("split", "step", "field"),
    [("columns", "pair_distances", "squared"), ("rows", "sketch_rows", "coordinates")],
)
def test_a_party_that_sends_too_little_is_named(monkeypatch, split, step, field):
    declared = vars(BandwidthHolder)[step]
    monkeypatch.setattr(declared, "function", lying(declared.function, field))
    short = pytest.raises(MessageRefused, match=f"{field} has (shape|n_pairs)")
    with unchecked(blobs(), blobs(), split=split) as fed, short as caught:
        fed.run(bandwidth, "median")
    assert caught.value.party == "site-1"


def test_a_party_too_small_to_be_drawn_sends_no_rows():
    X = blobs(n=1201)
    result = run(em.Partitioned(rows=[X[:600], X[600:1200], X[1200:]]), "median")
    assert floats_by_party(result) == [912 + 250 * 6, 912 + 250 * 6, 912]
    assert result.value.gamma == pytest.approx(pooled(X, "median"), rel=0.1)


def test_unknown_rules_and_splits_are_refused():
    with pytest.raises(InputError, match="'mean-distance'"):
        needed_steps("auto", "rows")
    with pytest.raises(InputError, match="'rows' or 'columns'"):
        needed_steps("scale", "cells")


def test_setup_refuses_a_negative_seed():
    assert issubclass(MeasureSetup, Message)
    with pytest.raises(MessageRefused, match="negative"):
        run(em.split(blobs(), 2, random_state=0), "scale", seed=-1)


def test_a_lost_party_is_named_or_left_out():
    X = blobs()
    parts = em.Partitioned(rows=[X[:30], X[30:60], X[60:]], names=["a", "b", "c"])
    lost = [Fault("lose", "b", round=1)]
    with pytest.raises(PartyLost, match="'b'"):
        run(parts, "mean-distance", faults=lost)
    result = run(parts, "mean-distance", faults=lost, on_loss="survivors")
    assert list(result.lost) == ["b"]
    rest = np.vstack([X[:30], X[60:]])
    assert result.value.gamma == pytest.approx(pooled(rest, "mean-distance"), rel=1e-12)
