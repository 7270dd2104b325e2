"""KernelPCRegressor: scikit-learn's pipeline in the exact limit, and no target leaves."""

import itertools

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
from eigenmesh.errors import InputError, PartyLost, PolicyRefusal
from eigenmesh.estimators import party_values

# Few rows have few centroids; what these miss has tests of its own.
pytestmark = pytest.mark.filterwarnings("ignore:the .* landmarks miss")

X, Y = load_diabetes(return_X_y=True)
X = StandardScaler().fit_transform(X)
TWO = np.column_stack([Y, 1e5 + np.sin(X[:, 0])])


def split(n_parties=4, y=Y, rows=X, **options):
    parts = em.split(rows, n_parties, random_state=0, **options)
    return parts, [y[own] for own in parts.order]


def pooled(k, alpha, rows=X, y=Y, **kernel):
    pca = KernelPCA(k, eigen_solver="dense", **kernel)
    return make_pipeline(pca, Ridge(alpha, solver="svd")).fit(rows, y)


@pytest.mark.parametrize("y", [Y, TWO], ids=["one target", "two targets"])
@pytest.mark.parametrize(
    "kernel",
    [
        {"kernel": "linear"},
        {"kernel": "rbf", "gamma": 0.05},
        {"kernel": "poly", "gamma": 0.1, "degree": 2, "coef0": 1.0},
    ],
    ids=lambda kernel: kernel["kernel"],
)
def test_equals_scikit_learn_when_every_row_is_a_landmark(kernel, y):
    k = 8
    parts, targets = split(y=y)
    model = em.KernelPCRegressor(k, alpha=0.3, n_landmarks=len(X), landmarks="uniform", **kernel)
    theirs = pooled(k, 0.3, y=y, **kernel)
    predicted = model.fit(parts, targets).predict(X)
    np.testing.assert_allclose(predicted, theirs.predict(X), rtol=1e-8)
    assert model.score(X, y) == pytest.approx(theirs.score(X, y), rel=1e-8)
    assert model.r_squared_ == pytest.approx(theirs.score(X, y), rel=1e-8)
    assert predicted.shape == y.shape


def test_one_array_is_one_party():
    model = em.KernelPCRegressor(5, alpha=2.0, kernel="rbf", gamma=0.05, n_landmarks=len(X))
    theirs = pooled(5, 2.0, kernel="rbf", gamma=0.05)
    np.testing.assert_allclose(model.fit(X, Y).predict(X[:50]), theirs.predict(X[:50]), rtol=1e-8)
    assert model.coef_.shape == (5,)
    assert isinstance(model.intercept_, float)


def test_no_penalty_is_least_squares():
    model = em.KernelPCRegressor(10, alpha=0.0, kernel="linear", n_landmarks=len(X)).fit(X, Y)
    slope = np.linalg.lstsq(np.column_stack([X, np.ones(len(X))]), Y, rcond=None)[0]
    np.testing.assert_allclose(model.predict(X), X @ slope[:-1] + slope[-1], rtol=1e-8)


def test_the_error_approaches_that_of_exact_components_as_landmarks_grow():
    parts, targets = split()
    exact = pooled(10, 1.0, kernel="rbf", gamma=0.05).predict(X)
    errors = []
    for q in (15, 60, 300):
        model = em.KernelPCRegressor(10, gamma=0.05, n_landmarks=q, landmarks="uniform")
        errors.append(np.abs(model.fit(parts, targets).predict(X) - exact).mean())
    assert errors[0] > errors[1] > errors[2]


def test_floats_equal_the_formula_and_the_plan():
    s, k, q, d = 4, 6, 30, X.shape[1]
    parts, targets = split(s)
    model = em.KernelPCRegressor(k, gamma=0.05, n_landmarks=q, landmarks="uniform", random_state=0)
    plan, report = em.plan(model, parts), model.fit(parts, targets).report_
    equations = k * (k + 1) // 2 + k + k + 2
    probes, features = 2, 64  # one component by itself, the others summed with signs
    missing = (probes + 2) * features + probes
    assert report.floats_up == q * d + s * (q * (q + 1) // 2 + q + missing + 1 + equations)
    assert report.floats_down == (s - 1) * q * d + s * (probes * (q + 1) + q * k + 2 * k + 1)
    assert (plan.floats_up, plan.floats_down) == (report.floats_up, report.floats_down)
    assert plan.rounds == report.rounds


def test_only_moments_tell_of_targets():
    allowed = em.Policy(allow={"centroids", "gram", "moments", "counts"})
    parts, targets = split(policies=[allowed] * 4)
    model = em.KernelPCRegressor(6, gamma=0.05, random_state=0).fit(parts, targets)
    assert set().union(*model.report_.reveals.values()) == allowed.allow
    no_sums = em.Policy(allow={"centroids", "gram", "counts"})
    parts, targets = split(policies=[None, no_sums, None, None])
    with pytest.raises(PolicyRefusal, match="'moments'") as caught:
        em.KernelPCRegressor(6, gamma=0.05).fit(parts, targets)
    assert caught.value.party == "party-1"


def test_targets_do_not_stay_in_the_store():
    parts, targets = split()
    with em.federation(parts) as fed:
        em.KernelPCRegressor(3, gamma=0.05).fit(fed, targets)
        for site in fed.local_sites().values():
            assert not any("targets" in kept for kept in site.store.values())


@pytest.mark.parametrize("round_", [1, 3, 6])
def test_a_lost_party_is_named_or_left_out(round_):
    parts, targets = split()
    faults = [Fault("kill", party="party-1", round=round_)]
    options = {"gamma": 0.05, "n_landmarks": len(X), "landmarks": "uniform", "random_state": 0}
    with em.federation(parts, faults=faults) as fed:
        with pytest.raises(PartyLost, match="party-1"):
            em.KernelPCRegressor(5, **options).fit(fed, targets)
    with em.federation(parts, faults=faults, on_loss="survivors") as fed:
        model = em.KernelPCRegressor(5, **options).fit(fed, targets)
    assert set(model.report_.lost) == {"party-1"}
    rows = np.vstack([part for i, part in enumerate(parts.parts) if i != 1])
    y = np.concatenate([own for i, own in enumerate(targets) if i != 1])
    # The penalised fit of the survivors' targets to their scores, whatever the components.
    Z = model.transform(rows)
    expected = Ridge(1.0, solver="svd").fit(Z, y).predict(Z)
    np.testing.assert_allclose(model.predict(rows), expected, rtol=1e-8)


def test_the_same_answer_on_every_engine():
    parts, targets = split(3, rows=X[:150])
    found = []
    for engine in ENGINES:
        with engine.open(parts) as fed:
            found.append(em.KernelPCRegressor(4, gamma=0.05).fit(fed, targets).predict(X))
    for other in found[1:]:
        np.testing.assert_allclose(other, found[0], rtol=1e-8)


@pytest.mark.parametrize(
    ("y", "words"),
    [
        (None, "requires y"),
        ([np.ones(221)], "list of 2 arrays"),
        ([np.ones(221), np.ones(220)], "party-1.*221 rows and 220 targets"),
        ([np.ones(221), np.full(221, np.nan)], "party-1.*finite"),
        ([np.ones(221), np.ones((221, 2))], "party-1.*shape"),
    ],
)
def test_targets_that_do_not_fit_are_named(y, words):
    parts, _ = split(2)
    with pytest.raises(em.EigenmeshError, match=words):
        em.KernelPCRegressor(3, gamma=0.05).fit(parts, y)


@pytest.mark.parametrize("method", ["diskpca", "sketching-pca"])
def test_nothing_leaves_before_targets_are_known_to_fit(method):
    parts, _ = split(2)
    model = em.KernelPCRegressor(3, gamma="median", method=method)
    with em.federation(parts) as fed, fed.recording() as recording:
        with pytest.raises(em.EigenmeshError, match=r"party-1.*221 rows and 220 targets"):
            model.fit(fed, [np.ones(221), np.ones(220)])
    assert set(recording.ledger.by_step()) == {"SurveyedSite.count_rows"}


@pytest.mark.parametrize("seed", range(3))
def test_targets_of_a_wrong_length_are_the_callers_mistake_and_no_partys(seed):
    rng = np.random.default_rng(seed)
    sizes = rng.integers(20, 40, 3)
    rows = [rng.normal(size=(n, 4)) for n in sizes]
    wrong = int(rng.integers(3))
    lengths = sizes + (np.arange(3) == wrong) * int(rng.choice([-3, 5]))
    words = f"'party-{wrong}' has {sizes[wrong]} rows and {lengths[wrong]}"
    values = [rng.random(n) for n in lengths]
    for fit, field in (
        (lambda parts: em.KernelPCRegressor(2).fit(parts, values), "targets"),
        (lambda parts: em.KernelPCA(2).fit(parts, sample_weight=values), "weights"),
        (lambda parts: em.KernelKMeans(2).fit(parts, sample_weight=values), "weights"),
    ):
        with pytest.raises(em.EigenmeshError, match=f"{words} {field}") as caught:
            fit(em.Partitioned(rows=rows))
        assert "caused" not in str(caught.value)


@pytest.mark.parametrize("wrong", [{"alpha": -1.0}, {"n_components": 0}, {"landmarks": "best"}])
def test_wrong_parameters_say_what_is_expected(wrong):
    with pytest.raises(em.EigenmeshError, match="expected"):
        em.KernelPCRegressor(**wrong).fit(X[:50], Y[:50])


def test_fewer_components_than_asked_for_are_a_warning():
    with pytest.warns(em.EigenmeshWarning, match="20 components were asked for"):
        em.KernelPCRegressor(20, kernel="linear").fit(X, Y)


def test_a_saved_model_predicts_the_same(tmp_path):
    for y in (Y, TWO):
        model = em.KernelPCRegressor(4, gamma=0.05, random_state=0).fit(X, y)
        model.save(tmp_path / "model.em")
        np.testing.assert_array_equal(em.load(tmp_path / "model.em").predict(X), model.predict(X))


def test_predictions_of_parties_come_as_a_list():
    parts, targets = split()
    model = em.KernelPCRegressor(4, gamma=0.05, random_state=0).fit(parts, targets)
    for own, order in zip(model.predict(parts), parts.order, strict=True):
        np.testing.assert_allclose(own, model.predict(X[order]), rtol=1e-10)


def test_a_federation_of_rows_is_scored_by_its_parties():
    parts, targets = split()
    with em.federation(parts) as fed:
        model = em.KernelPCRegressor(4, gamma=0.05).fit(fed, targets)
        with pytest.raises(InputError, match="who has the model scores its own rows"):
            model.predict(fed)


# Which method, and why.


def test_the_method_is_told_with_its_reason():
    parts, targets = split(rows=X[:150])
    model = em.KernelPCRegressor(4, gamma=0.05).fit(parts, targets)
    assert model.method_.startswith("diskpca: 4 parties hold rows; centroids are the best")
    model = em.KernelPCRegressor(4, gamma=0.05, n_landmarks=30).fit(parts, targets)
    assert "no row leaves" in model.method_  # a number does not ask for rows
    assert "rows" not in set().union(*model.report_.reveals.values())
    model = em.KernelPCRegressor(4, gamma=0.05, n_landmarks=30).fit(X[:150], Y[:150])
    assert model.method_.startswith("diskpca: 1 party holds rows; landmarks are rows drawn")
    model = em.KernelPCRegressor(4, gamma=0.05, landmarks="uniform").fit(parts, targets)
    assert "'uniform', as asked for" in model.method_


@pytest.mark.parametrize(
    ("allow", "options", "method", "words"),
    [
        (
            {"centroids", "gram", "moments", "counts"},
            {"kernel": "poly", "method": "diskpca"},
            "diskpca",
            "no row leaves",
        ),
        ({"gram", "moments", "counts"}, {}, "sketching-pca", "sums of embedded rows"),
    ],
    ids=["no rows, poly", "no centroids"],
)
def test_a_policy_that_refuses_leads_to_the_next_method(allow, options, method, words):
    policy = em.Policy(allow=allow)
    parts, targets = split(policies=[None, None, policy, None])
    model = em.KernelPCRegressor(4, gamma=0.05, degree=2, random_state=0, **options)
    plan = em.plan(model, parts)
    model.fit(parts, targets)
    assert model.method_.startswith(f"{method}: ")
    assert words in model.method_
    refused = method == "sketching-pca"  # centroids come first whatever may leave
    assert ("'party-2' lets out no more" in model.method_) == refused
    assert set(model.report_.reveals["party-2"]) <= allow
    report, is_spared = model.report_, plan.rounds > model.report_.rounds
    assert is_spared == ("poly" in options.values())  # of which nothing is outside the landmarks
    assert plan.rounds - report.rounds == is_spared
    sent = (report.floats_up, report.floats_down)
    assert ((plan.floats_up, plan.floats_down) == sent) == (not is_spared)
    assert plan.floats_up >= report.floats_up
    assert plan.floats_down >= report.floats_down
    assert not plan.refusals


def test_where_nothing_is_allowed_the_error_says_what_would_do():
    parts, targets = split(policies=[None, em.Policy(allow={"counts"}), None, None])
    model = em.KernelPCRegressor(4, gamma=0.05)
    with pytest.raises(PolicyRefusal, match=r"what would do: .*for diskpca.*for sketching-pca"):
        model.fit(parts, targets)
    assert "moments" in em.plan(model, parts).refusals["party-1"]


@pytest.mark.parametrize("method", ["gossip", "vfed-pca", "best", "exact"])
def test_methods_for_other_data_say_what_suits(method):
    parts, targets = split()
    with pytest.raises(InputError, match=f"method is '{method}'.*diskpca"):
        em.KernelPCRegressor(4, gamma=0.05, method=method).fit(parts, targets)


# The baseline of the paper.


@pytest.mark.parametrize(("y", "alpha"), [(Y, 0.0), (TWO, 0.3)], ids=["one target", "two targets"])
def test_sketching_equals_scikit_learn_where_the_embedding_is_exact(y, alpha):
    parts, targets = split(y=y)
    model = em.KernelPCRegressor(8, alpha=alpha, kernel="linear", method="sketching-pca")
    theirs = pooled(8, alpha, y=y, kernel="linear")
    np.testing.assert_allclose(model.fit(parts, targets).predict(X), theirs.predict(X), rtol=1e-8)
    assert model.r_squared_ == pytest.approx(theirs.score(X, y), rel=1e-8)
    assert "exact" in " ".join(model.report_.notes)


def test_sketching_is_ridge_on_the_components_of_the_embedding():
    parts, targets = split(y=TWO)
    options = {"kernel": "rbf", "gamma": 0.05, "random_state": 0}
    model = em.KernelPCRegressor(6, method="sketching-pca", **options).fit(parts, targets)
    kpca = em.SketchingPCA(6, **options).fit(parts)
    np.testing.assert_allclose(model.transform(X), kpca.transform(X), rtol=1e-9, atol=1e-12)
    Z = kpca.transform(X)
    expected = Ridge(1.0, solver="svd").fit(Z, TWO).predict(Z)
    np.testing.assert_allclose(model.predict(X), expected, rtol=1e-8)
    assert "120 dimensions, not of the kernel" in " ".join(model.report_.notes)


def test_sketching_approaches_exact_components_as_dimensions_grow():
    parts, targets = split()
    errors = []
    for k in (2, 8, 40):  # twenty dimensions a component
        model = em.KernelPCRegressor(k, gamma=0.05, method="sketching-pca", random_state=0)
        exact = pooled(k, 1.0, kernel="rbf", gamma=0.05).predict(X)
        errors.append(np.abs(model.fit(parts, targets).predict(X) - exact).mean())
    assert errors[0] > errors[1] > errors[2]


def test_floats_of_sketching_equal_the_formula_and_the_plan():
    s, k = 4, 3
    t = 20 * k
    parts, targets = split(s)
    model = em.KernelPCRegressor(k, gamma=0.05, method="sketching-pca", random_state=0)
    plan, report = em.plan(model, parts), model.fit(parts, targets).report_
    assert report.floats_up == s * (1 + t * (t + 1) // 2 + t + t + 2)
    assert report.floats_down == s
    assert (plan.floats_up, plan.floats_down, plan.rounds) == (
        report.floats_up,
        report.floats_down,
        report.rounds,
    )
    assert plan.reveals == report.reveals
    assert report.rounds == 4  # the first tells whether a party is too small for sums


@pytest.mark.parametrize("round_", [1, 2, 3])
def test_sketching_goes_on_with_survivors(round_):
    parts, targets = split()
    faults = [Fault("kill", party="party-1", round=round_)]
    options = {"kernel": "linear", "method": "sketching-pca"}
    with em.federation(parts, faults=faults) as fed:
        with pytest.raises(PartyLost, match="party-1"):
            em.KernelPCRegressor(5, **options).fit(fed, targets)
    with em.federation(parts, faults=faults, on_loss="survivors") as fed:
        model = em.KernelPCRegressor(5, **options).fit(fed, targets)
    rows = np.vstack([part for i, part in enumerate(parts.parts) if i != 1])
    y = np.concatenate([own for i, own in enumerate(targets) if i != 1])
    theirs = pooled(5, 1.0, rows, y, kernel="linear")
    np.testing.assert_allclose(model.predict(rows), theirs.predict(rows), rtol=1e-8)


def test_fewer_components_than_asked_for_are_a_warning_of_sketching_too(tmp_path):
    model = em.KernelPCRegressor(20, kernel="linear", method="sketching-pca")
    with pytest.warns(em.EigenmeshWarning, match="the embedded dimensions determine 10"):
        model.fit(X, Y)
    model.save(tmp_path / "model.em")
    loaded = em.load(tmp_path / "model.em")
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))
    assert loaded.method_ == model.method_


def test_the_plan_counts_no_more_centroids_than_there_are():
    parts, targets = split(rows=X[:100], y=Y[:100])  # twenty at most, five rows each
    model = em.KernelPCRegressor(4, gamma=0.05, random_state=0)
    plan, report = em.plan(model, parts), model.fit(parts, targets).report_
    assert plan.floats_down == report.floats_down
    assert plan.floats_up == report.floats_up


def test_the_bytes_of_a_fit_do_not_hang_on_how_many_came_before(monkeypatch):
    """Targets lie in the sites' stores under a number that counts fits, and travels."""
    monkeypatch.setattr(party_values, "_FITS", itertools.count(9))
    parts = em.Partitioned(rows=np.array_split(X[:60], 3))
    model = em.KernelPCRegressor(2, gamma=0.05, n_landmarks=6, random_state=0)
    ninth, tenth = (model.fit(parts, np.array_split(Y[:60], 3)).report_.bytes for _ in range(2))
    assert ninth == tenth
