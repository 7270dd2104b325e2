"""KernelPCRegressor over columns: scikit-learn's pipeline, and no target leaves the caller."""

import numpy as np
import pytest
from sklearn.datasets import load_diabetes
from sklearn.decomposition import KernelPCA
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from tests.engines.contract import ENGINES

import eigenmesh as em
from eigenmesh.engines.faulty import Fault
from eigenmesh.errors import InputError, MissingPartyShare, PartyLost, PolicyRefusal

X, Y = load_diabetes(return_X_y=True)
X, Y = StandardScaler().fit_transform(X)[:200], Y[:200]
NEW = X[::7] + 0.01
TWO = np.column_stack([Y, 1e5 + np.sin(X[:, 0])])
RBF = {"kernel": "rbf", "gamma": 0.05}
POLY = {"kernel": "poly", "gamma": 0.1, "degree": 2, "coef0": 1.0}


def columns(n_parties=3, rows=X, **options):
    return em.split(rows, n_parties, by="columns", **options)


def pooled(k, alpha, y=Y, **kernel):
    pca = KernelPCA(k, eigen_solver="dense", **kernel)
    return make_pipeline(pca, Ridge(alpha, solver="svd")).fit(X, y)


@pytest.mark.parametrize(
    ("kernel", "topology", "y"),
    [
        ({"kernel": "linear"}, None, Y),
        ({"kernel": "linear"}, "ring", TWO),
        (RBF, None, TWO),
        (RBF, "ring", Y),
        (POLY, None, Y),
        (POLY, "ring", TWO),
    ],
)
@pytest.mark.filterwarnings("ignore:.*floats were sent:eigenmesh.EigenmeshWarning")
def test_exact_methods_equal_scikit_learn(kernel, topology, y):
    model = em.KernelPCRegressor(6, alpha=0.3, topology=topology, **kernel).fit(columns(), y)
    theirs = pooled(6, 0.3, y, **kernel)
    for new in (X, NEW):
        np.testing.assert_allclose(model.predict(new), theirs.predict(new), rtol=1e-8)
        np.testing.assert_allclose(model.predict(columns(rows=new)), model.predict(new), rtol=1e-12)
    assert model.score(columns(), y) == pytest.approx(theirs.score(X, y), rel=1e-8)
    assert model.r_squared_ == pytest.approx(theirs.score(X, y), rel=1e-8)
    assert model.predict(X).shape == y.shape
    exact = "vfed-pca" if kernel["kernel"] == "linear" else "vfed-akpca"
    assert model.method_.startswith(f"{exact}: 3 parties hold columns")


@pytest.mark.filterwarnings("ignore:eigenvalue .* lacks")
@pytest.mark.parametrize("kernel", ["linear", "poly", "rbf"])
@pytest.mark.filterwarnings("ignore:.*floats were sent:eigenmesh.EigenmeshWarning")
def test_one_shot_is_ridge_on_its_own_scores(kernel):
    model = em.KernelPCRegressor(2, kernel=kernel, gamma=0.05, degree=2, method="one-shot")
    Z = model.fit(columns(2), Y).transform(X)
    expected = Ridge(1.0, solver="svd").fit(Z, Y).predict(Z)
    np.testing.assert_allclose(model.predict(X), expected, rtol=1e-8)
    assert model.method_.startswith("one-shot")


# What leaves whom.


@pytest.mark.parametrize(
    "options",
    [
        RBF,
        {**RBF, "topology": "ring"},
        {**RBF, "gamma": "mean-distance"},
        {**RBF, "method": "one-shot"},
        {"kernel": "linear", "method": "one-shot"},
        {"kernel": "poly", "gamma": 0.05, "degree": 2, "method": "one-shot"},
    ],
    ids=["exact", "graph", "gamma by rule", "one-shot", "one-shot linear", "one-shot poly"],
)
@pytest.mark.filterwarnings("ignore::eigenmesh.EigenmeshWarning")
@pytest.mark.parametrize("wide", [False, True], ids=["all of the columns", "columns cut short"])
def test_floats_equal_the_plan(options, wide):
    parts = columns(2, rows=np.hstack([X, X**2]) if wide else X)
    model = em.KernelPCRegressor(2, random_state=0, **options)
    plan, report = em.plan(model, parts), model.fit(parts, Y).report_
    assert (plan.floats_up, plan.floats_down, plan.rounds) == (
        report.floats_up,
        report.floats_down,
        report.rounds,
    )
    assert plan.by_step == report.by_step
    assert plan.reveals == report.reveals


@pytest.mark.parametrize("topology", [None, "full"])
def test_regression_costs_one_round_more_than_components(topology):
    parts = columns()
    model = em.KernelPCRegressor(4, kernel="linear", topology=topology).fit(parts, Y)
    door = em.KernelPCA(4, kernel="linear", topology=topology)
    plan, theirs = em.plan(model, parts), em.plan(door, parts)
    door.fit(parts)
    assert model.report_.floats_up == door.report_.floats_up
    assert model.report_.floats_down == door.report_.floats_down
    assert model.report_.rounds == door.report_.rounds + 1
    assert (plan.floats_up, plan.rounds) == (theirs.floats_up, theirs.rounds + 1)


def test_nothing_is_sent_that_depends_on_the_targets():
    traffic = []
    for y in (Y, TWO):
        with em.federation(columns()) as fed, fed.recording() as recording:
            em.KernelPCRegressor(4, **RBF).fit(fed, y)
        traffic.append([tuple(entry) for entry in recording.ledger])
        for site in fed.local_sites().values():
            assert not any("targets" in kept for kept in site.store.values())
    assert traffic[0] == traffic[1]


def test_a_party_that_forbids_what_the_method_needs_is_named():
    strict = em.Policy(allow={"counts", "hashes"})
    parts = columns(3, policies=[None, strict, None])
    with pytest.raises(PolicyRefusal) as caught:
        em.KernelPCRegressor(4, **RBF).fit(parts, Y)
    assert caught.value.party == "party-1"
    assert em.plan(em.KernelPCRegressor(4, **RBF), parts).refusals["party-1"]


def test_the_same_answer_on_every_engine():
    found = []
    for engine in ENGINES:
        with engine.open(columns()) as fed:
            model = em.KernelPCRegressor(4, **RBF).fit(fed, Y)
            found.append((model.coef_, model.intercept_, model.report_.floats_up))
    for coef, intercept, floats in found[1:]:
        np.testing.assert_allclose(coef, found[0][0], rtol=1e-8)
        assert intercept == pytest.approx(found[0][1], rel=1e-8)
        assert floats == found[0][2]


@pytest.mark.parametrize("round_", [1, 2])
def test_a_lost_party_is_named_or_left_out(round_):
    faults = [Fault("kill", party="party-1", round=round_)]
    with em.federation(columns(), faults=faults) as fed:
        with pytest.raises(PartyLost, match="party-1"):
            em.KernelPCRegressor(4, **RBF).fit(fed, Y)
    with em.federation(columns(), faults=faults, on_loss="survivors") as fed:
        with pytest.warns(em.EigenmeshWarning, match="party-1.*has left"):
            model = em.KernelPCRegressor(4, **RBF).fit(fed, Y)
    assert set(model.report_.lost) == {"party-1"}
    parts = columns()
    rest = np.hstack([parts.parts[0], parts.parts[2]])
    theirs = make_pipeline(KernelPCA(4, eigen_solver="dense", **RBF), Ridge(1.0, solver="svd"))
    np.testing.assert_allclose(model.predict(rest), theirs.fit(rest, Y).predict(rest), rtol=1e-8)


# Matched samples.


def matched_parts(**options):
    places = [np.arange(200), np.random.default_rng(0).permutation(200)[:150]]
    blocks = [X[places[0], :5], X[places[1], 5:]]
    ids = [[f"s{i}" for i in own] for own in places]
    common = np.sort(places[1])
    return em.Partitioned(columns=blocks, sample_ids=ids, align="inner", **options), common


def test_matched_samples_take_targets_in_the_first_partys_order():
    parts, common = matched_parts()
    model = em.KernelPCRegressor(4, **RBF)
    plan = em.plan(model, parts)
    model.fit(parts, Y[common])
    theirs = make_pipeline(KernelPCA(4, eigen_solver="dense", **RBF), Ridge(1.0, solver="svd"))
    theirs.fit(X[common], Y[common])
    np.testing.assert_allclose(model.predict(X), theirs.predict(X), rtol=1e-8)
    assert (plan.floats_up, plan.rounds) == (model.report_.floats_up, model.report_.rounds)
    with pytest.raises(InputError, match="150 samples in common and y has 200"):
        model.fit(parts, Y)


# What is refused.


@pytest.mark.parametrize(
    ("y", "words"),
    [
        (None, "requires y"),
        ([Y, Y, Y], "list of 3 arrays, which is for rows.*one array"),
        (Y[:-1], "200 samples .*199 targets"),
        (np.where(np.arange(200) == 3, np.nan, Y), "y contains NaN"),
        (np.array(["a"] * 200), "convert string to float.*numbers are expected"),
        (np.ones((200, 2, 2)), "dim 3.*n_targets"),
        (5.0, "scalar.*n_targets"),
    ],
    ids=["none", "one a party", "short", "NaN", "words", "cube", "number"],
)
def test_targets_that_do_not_fit_are_told_before_anything_leaves(y, words):
    with em.federation(columns()) as fed, fed.recording() as recording:
        with pytest.raises(em.EigenmeshError, match=words):
            em.KernelPCRegressor(3, **RBF).fit(fed, y)
    assert recording.ledger.floats_up == 0


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"method": "diskpca"}, "method is 'diskpca'; for columns .*vfed-akpca"),
        ({"method": "exact"}, "method is 'exact'.*expected"),
        ({"kernel": "cosine", "method": "one-shot"}, "kernel is 'cosine'; for columns"),
        ({"method": "one-shot", "topology": "ring"}, "method is 'one-shot'; .*on a graph"),
    ],
)
def test_what_does_not_suit_columns_says_what_does(wrong, words):
    with pytest.raises(InputError, match=words):
        em.KernelPCRegressor(3, **{**RBF, **wrong}).fit(columns(), Y)


def test_more_components_than_there_are_is_an_error():
    with pytest.raises(em.EigenmeshError, match="n_components|components"):
        em.KernelPCRegressor(20, kernel="linear").fit(columns(), Y)


# Using it.


def test_lists_and_columns_of_targets_are_arrays_too():
    model = em.KernelPCRegressor(3, **RBF)
    flat = model.fit(columns(), list(Y)).predict(X)
    column = model.fit(columns(), Y[:, None]).predict(X)
    assert (flat.shape, column.shape) == ((200,), (200, 1))
    np.testing.assert_array_equal(column[:, 0], flat)


def test_predictions_of_parties_are_accounted_for():
    model = em.KernelPCRegressor(3, **RBF).fit(columns(), Y)
    model.predict(columns(rows=NEW))
    assert model.transform_report_.rounds == 3  # sizes, keys, and what is summed
    n_parties = len(model.estimator_.report_.parties)
    assert model.transform_report_.floats_up == n_parties * len(NEW) * len(Y)
    assert set(model.transform_report_.reveals["party-0"]) <= {"aggregate", "counts", "hashes"}
    with pytest.raises(em.EigenmeshError, match="9 features"):
        model.predict(NEW[:, :9])


def test_a_saved_model_predicts_the_same_with_its_shares(tmp_path):
    for y in (Y, TWO):
        model = em.KernelPCRegressor(3, **RBF).fit(columns(), y)
        model.save(tmp_path / "with.em", parties=True)
        loaded = em.load(tmp_path / "with.em")
        np.testing.assert_array_equal(loaded.predict(NEW), model.predict(NEW))
        assert loaded.method_ == model.method_
        assert loaded.report_ == model.report_
    model.save(tmp_path / "without.em")
    with pytest.raises(MissingPartyShare):
        em.load(tmp_path / "without.em").predict(NEW)


def test_refitting_to_rows_forgets_the_columns(tmp_path):
    model = em.KernelPCRegressor(3, **RBF).fit(columns(), Y)
    again = model.fit(X, Y).predict(X)
    np.testing.assert_array_equal(again, em.KernelPCRegressor(3, **RBF).fit(X, Y).predict(X))
    assert model.estimator_ is None
    with pytest.raises(em.EigenmeshError, match="no parties' shares"):
        model.save(tmp_path / "model.em", parties=True)
