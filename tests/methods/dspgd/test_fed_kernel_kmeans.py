"""FedKernelKMeans: converges as 1/t, says what it costs, and clusters what pooled rows would."""

from functools import cache

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits, make_circles
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score
from sklearn.metrics.pairwise import rbf_kernel

import eigenmesh as em
from eigenmesh.errors import MissingPartyShare, PolicyRefusal
from eigenmesh.metrics import recovery_error

DIGITS, DIGIT = (own[:900] for own in load_digits(return_X_y=True))
DIGITS = DIGITS / 16
K = 10
S = 12


def gamma_of(X):
    return len(X) ** 2 / np.sum(-2 * X @ X.T + 2 * np.square(X).sum(axis=1))


@pytest.fixture(scope="module")
def exact():
    """The best rank-12 part of the digits' kernel matrix, by numpy and scikit-learn alone."""
    values, vectors = np.linalg.eigh(rbf_kernel(DIGITS, gamma=gamma_of(DIGITS)))
    return values[: -S - 1 : -1], vectors[:, : -S - 1 : -1]


def fitted(n_iterations=10, seed=0, source=None, **options):
    options = {"solver": "nystrom", "features": "complementary", "n_init": 1, **options}
    if source is None:
        return on_all_digits(n_iterations, seed, **options)
    model = em.FedKernelKMeans(
        K, n_eigenvectors=S, n_iterations=n_iterations, random_state=seed, **options
    )
    return model.fit(source)


@cache  # these are only looked at
def on_all_digits(*args, **options):
    return fitted(*args, source=em.split(DIGITS, 5, random_state=0), **options)


def error_of(model, exact):
    return recovery_error(model.transform(DIGITS), *exact)


# 1. The claims of the paper, and where they end.


@pytest.mark.parametrize(("seed", "solver"), [(0, "nystrom"), (1, "nystrom"), (0, "gram")])
def test_the_error_falls_as_one_over_t(seed, solver, exact):
    early, late = (T * error_of(fitted(T, seed, solver=solver), exact) for T in (5, 50))
    assert late <= 1.5 * early
    assert late < 5e-3


def test_the_papers_threshold_stalls(exact):
    options = {"solver": "gram", "threshold": "paper"}
    early, late = (fitted(T, **options) for T in (5, 50))
    assert 50 * error_of(late, exact) > 1.5 * 5 * error_of(early, exact)
    assert late.recovery_error_ is None  # a bias cannot be estimated


def test_half_the_step_beats_the_step_of_the_theorem(exact):
    assert error_of(fitted(20), exact) < error_of(fitted(20, step_size="2/t"), exact)


def test_one_round_an_iteration_does_what_thirty_do(exact):
    models = {solver: fitted(20, solver=solver) for solver in ("lanczos", "gram", "nystrom")}
    errors = {solver: error_of(model, exact) for solver, model in models.items()}
    reports = {solver: model.report_ for solver, model in models.items()}
    assert reports["gram"].rounds * 10 <= reports["lanczos"].rounds
    assert errors["gram"] <= errors["lanczos"] * (1 + 1e-6)
    assert reports["nystrom"].rounds * 10 <= reports["lanczos"].rounds
    assert reports["nystrom"].floats_up <= 1.1 * reports["lanczos"].floats_up
    assert errors["nystrom"] <= errors["lanczos"]


@pytest.mark.parametrize(
    ("rule", "solver"),
    [("1/t", "nystrom"), ("2/t", "nystrom"), ("2/t", "gram"), ("1/t", "lanczos")],
)
def test_the_estimated_error_is_near_the_true_one(rule, solver, exact):
    model = fitted(12, solver=solver, step_size=rule, features="independent")
    assert 0.6 < model.recovery_error_ / error_of(model, exact) < 1.4


@pytest.mark.parametrize("solver", ["nystrom", "gram"])
def test_the_estimated_error_is_too_high_where_features_complement_each_other(solver, exact):
    model = fitted(20, solver=solver)
    assert 1.0 < model.recovery_error_ / error_of(model, exact) < 3.0


@pytest.mark.parametrize("seed", range(2))
def test_features_that_complement_each_other_beat_independent_ones(seed, exact):
    laws = ("complementary", "independent", "paper")
    ours, within, papers = (fitted(20, seed, features=law) for law in laws)
    assert error_of(ours, exact) < 0.8 * error_of(within, exact)
    assert error_of(within, exact) < error_of(papers, exact)
    assert ours.report_.floats_up == within.report_.floats_up == papers.report_.floats_up


def test_the_papers_features_are_as_many_as_asked_for_and_replayed(tmp_path):
    X = DIGITS[:120, 20:44]
    model = em.FedKernelKMeans(3, n_features=15, n_iterations=4, features="paper", random_state=0)
    parts = em.split(X, 3, random_state=0)
    planned = em.plan(model, parts).floats_up
    for own, rows in zip(model.fit(parts).labels_, parts.order, strict=True):
        np.testing.assert_array_equal(model.predict(X[rows]), own)
    assert model.report_.floats_up == planned
    model.save(tmp_path / "model.em")
    np.testing.assert_array_equal(em.load(tmp_path / "model.em").transform(X), model.transform(X))
    with pytest.raises(em.EigenmeshError, match="shift-invariant.*'independent'"):
        model.set_params(kernel="poly").fit(parts)


def test_the_measure_of_recovery_equals_its_definition(exact):
    values, vectors = exact
    H = fitted(3).transform(DIGITS)
    expected = np.sum((H @ H.T - (vectors * values) @ vectors.T) ** 2) / len(H) ** 2
    assert recovery_error(H, *exact) == pytest.approx(expected, rel=1e-9)


def test_one_draw_of_features_cannot_be_estimated():
    assert fitted(1).recovery_error_ is None


# 2. Clusters.


def test_clusters_are_those_of_the_exact_eigenvectors(exact):
    values, vectors = exact
    pooled = KMeans(K, n_init=20, random_state=0).fit_predict(vectors * np.sqrt(values))
    model = fitted(50, clustering="lloyd", n_init=4)
    assert adjusted_rand_score(pooled, model.predict(DIGITS)) > 0.85
    assert normalized_mutual_info_score(DIGIT, model.predict(DIGITS)) > 0.68
    assert np.all(np.diff(model.history_) <= 1e-12)
    assert model.inertia_ <= len(DIGITS) * model.history_[-1] * (1 + 1e-12)


def test_rings_that_no_line_can_part():
    X, y = make_circles(600, factor=0.3, noise=0.04, random_state=0)
    parts = em.split(X, 6, law="power", random_state=0)
    model = em.FedKernelKMeans(2, n_eigenvectors=4, gamma=5.0, n_iterations=60, random_state=0)
    assert adjusted_rand_score(y, model.fit(parts).predict(X)) >= 0.99


@pytest.mark.parametrize("clustering", ["coreset", "lloyd"])
def test_labels_at_the_parties_are_what_predict_gives(clustering):
    parts = em.split(DIGITS[:500], 4, law="power", random_state=0)
    model = fitted(5, source=parts, clustering=clustering)
    for own, again in zip(model.labels_, model.predict(parts), strict=True):
        np.testing.assert_array_equal(own, again)
    scores = np.vstack(model.transform(parts))
    labels = np.concatenate(model.labels_)
    inertia = np.square(scores - model.cluster_centers_[labels]).sum()
    assert model.inertia_ == pytest.approx(inertia, rel=1e-9)


def test_a_plain_array_is_one_party_with_an_array_of_labels():
    model = fitted(5, source=DIGITS[:300])
    assert model.labels_.shape == (300,)
    np.testing.assert_array_equal(model.labels_, model.predict(DIGITS[:300]))


def test_sparse_rows_give_the_clusters_of_dense_ones():
    X = DIGITS[:300]
    dense, sparse = (
        fitted(5, source=em.split(data, 3, random_state=0)) for data in (X, sp.csr_array(X))
    )
    np.testing.assert_allclose(sparse.eigenvalues_, dense.eigenvalues_, rtol=1e-9)
    assert sparse.report_.baseline_floats < dense.report_.baseline_floats


def test_a_polynomial_kernel_has_features_too():
    X = DIGITS[:300]
    options = {"kernel": "poly", "degree": 2, "gamma": 0.1, "coef0": 1.0, "n_features": 150}
    model = fitted(30, source=em.split(X, 3, random_state=0), **options)
    expected = np.linalg.eigvalsh((0.1 * X @ X.T + 1.0) ** 2)[::-1][:3]
    np.testing.assert_allclose(model.eigenvalues_[:3], expected, rtol=0.15)


def test_fewer_eigenvectors_than_asked_for_are_said_and_used():
    X = np.repeat(np.eye(3), 20, axis=0)  # three different rows: rank three
    model = em.FedKernelKMeans(3, n_eigenvectors=8, gamma=1.0, n_iterations=5)
    with pytest.warns(em.EigenmeshWarning, match="only 3 of 8 eigenvectors"):
        model.fit(em.split(X, 4, random_state=0))
    assert model.transform(X).shape == (60, 3)
    assert adjusted_rand_score(np.repeat([0, 1, 2], 20), model.predict(X)) == 1.0


def test_the_paper_threshold_may_leave_fewer_columns_than_eigenvectors():
    model = em.FedKernelKMeans(3, n_eigenvectors=9, threshold="paper", solver="gram")
    with pytest.warns(em.EigenmeshWarning, match="of 9 eigenvectors"):
        model.fit(em.split(DIGITS[:300], 3, random_state=0))
    assert 3 <= model.transform(DIGITS[:5]).shape[1] < 9


# 3. What it costs.


@pytest.mark.parametrize(
    ("solver", "gamma", "step_size"),
    [
        ("nystrom", 0.1, "1/t"),
        ("gram", None, "2/t"),
        ("nystrom", "mean-distance", "2/t"),
        ("gram", "median", "1/t"),
    ],
)
def test_a_plan_foretells_the_report(solver, gamma, step_size):
    parts = em.split(DIGITS[:300], 5, random_state=0)
    sizes = {"n_eigenvectors": 6, "n_iterations": 6, "n_features": 31}
    model = em.FedKernelKMeans(4, **sizes, solver=solver, gamma=gamma, step_size=step_size)
    plan, report = em.plan(model, parts), model.fit(parts).report_
    assert plan.rounds == report.rounds
    assert (plan.floats_up, plan.floats_down) == (report.floats_up, report.floats_down)
    assert plan.by_step == report.by_step
    kinds = {name: set(own) for name, own in report.reveals.items()}
    assert {name: set(own) for name, own in plan.reveals.items()} == kinds


@pytest.mark.parametrize(
    "options",
    [
        {"solver": "lanczos"},
        {"solver": "lanczos", "threshold": "paper"},
        {"solver": "gram", "threshold": "paper"},
        {"solver": "lanczos", "mechanism": "direct"},
    ],
)
def test_what_only_the_data_decide_is_foretold_within_a_third(options):
    parts = em.split(DIGITS[:600], 5, random_state=0)
    model = em.FedKernelKMeans(K, n_iterations=4, random_state=0, **options)
    plan, report = em.plan(model, parts), model.fit(parts).report_
    assert plan.floats_up == pytest.approx(report.floats_up, rel=0.33)
    assert plan.rounds == pytest.approx(report.rounds, rel=0.33)
    kinds = {name: set(own) for name, own in report.reveals.items()}
    assert {name: set(own) for name, own in plan.reveals.items()} == kinds


def test_a_party_pays_the_same_in_any_company():
    """The traffic of a party depends neither on the rows nor on the number of parties."""
    costs = set()
    for parties, n in ((3, 300), (12, 300), (12, 1200)):
        report = fitted(4, source=em.split(DIGITS[:n], parties, random_state=0)).report_
        steps = [step for step in report.by_step if step.startswith("FeatureHolder")]
        costs.add(sum(report.by_step[step] for step in steps) / parties)
    assert len(costs) == 1


def test_many_parties_some_of_a_single_row():
    parts = em.split(DIGITS, 60, law="power", exponent=1.5, random_state=0)
    assert min(len(part) for part in parts.parts) == 1
    model = fitted(3, source=parts, n_features=30, clustering="lloyd", n_init=1)
    assert len(model.labels_) == 60
    assert sum(map(len, model.labels_)) == len(DIGITS)
    together = fitted(3, n_features=30, clustering="lloyd", n_init=1)
    np.testing.assert_allclose(model.eigenvalues_, together.eigenvalues_, rtol=1e-8)


# 4. Disclosure.


def test_no_row_and_no_landmark_leaves():
    for own in fitted(3).report_.reveals.values():
        assert set(own) == {"gram", "counts", "moments", "scores"}


@pytest.mark.parametrize(
    ("forbidden", "options"),
    [
        ("gram", {"solver": "nystrom"}),
        ("gram", {"solver": "lanczos"}),
        ("moments", {"solver": "lanczos", "mechanism": "direct"}),
        ("scores", {"solver": "gram"}),
    ],
)
def test_a_party_refuses_what_its_policy_forbids(forbidden, options):
    kinds = {"gram", "counts", "moments", "scores", "sketch"} - {forbidden}
    policies = [None, em.Policy(allow=kinds), None]
    parts = em.split(DIGITS[:200], 3, policies=policies, random_state=0)
    with pytest.raises(PolicyRefusal, match=forbidden) as caught:
        fitted(2, source=parts, **options)
    assert caught.value.party == "party-1"


# 5. Bad input.


@pytest.mark.parametrize(
    "wrong",
    [
        {"n_clusters": 0},
        {"n_eigenvectors": 1.5},
        {"kernel": "sigmoid"},
        {"gamma": -1.0},
        {"n_features": 0},
        {"n_iterations": 0},
        {"solver": "svd"},
        {"step_size": "3/t"},
        {"threshold": 0.1},
        {"threshold": "paper", "rank": 5},
        {"threshold": "paper", "n_features": 4},
        {"rank": 2},
        {"features": "fresh"},
        {"mechanism": "direct"},
        {"mechanism": "best"},
        {"clustering": "ward"},
        {"n_init": 0},
        {"random_state": "x"},
    ],
)
def test_wrong_parameters_say_what_is_expected(wrong):
    with pytest.raises(em.EigenmeshError, match="expected"):
        em.FedKernelKMeans(**wrong).fit(DIGITS[:50])
    if not {"random_state"} & set(wrong) and wrong.get("n_features") != 4:
        with pytest.raises(em.EigenmeshError, match="expected"):
            em.plan(em.FedKernelKMeans(**wrong), DIGITS[:50])


def test_columns_are_refused():
    with pytest.raises(em.EigenmeshError, match="rows"):
        em.FedKernelKMeans().fit(em.split(DIGITS[:50], 3, by="columns"))


# 6. Files, and the same answer everywhere.


def test_a_saved_model_predicts_the_same_and_keeps_no_labels(tmp_path):
    model = fitted(4)
    model.save(tmp_path / "model.em")
    loaded = em.load(tmp_path / "model.em")
    np.testing.assert_array_equal(loaded.predict(DIGITS), model.predict(DIGITS))
    np.testing.assert_allclose(loaded.transform(DIGITS), model.transform(DIGITS), atol=1e-13)
    assert loaded.trace_ == model.trace_
    assert loaded.recovery_error_ == model.recovery_error_
    with pytest.raises(MissingPartyShare, match="predict"):
        _ = loaded.labels_


def test_the_same_seed_gives_the_same_answer_bit_for_bit():
    parts = em.split(DIGITS, 5, random_state=0)
    first, second = (fitted(4, seed=7, source=parts) for _ in range(2))
    np.testing.assert_array_equal(first.transform(DIGITS), second.transform(DIGITS))
    for own, again in zip(first.labels_, second.labels_, strict=True):
        np.testing.assert_array_equal(own, again)
