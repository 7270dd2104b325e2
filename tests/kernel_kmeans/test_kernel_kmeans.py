"""KernelKMeans: near exact kernel k-means, from one array to many parties, and accounted for."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits, load_iris, make_circles, make_moons
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score
from sklearn.metrics.pairwise import pairwise_kernels
from tests.engines.contract import ENGINES

import eigenmesh as em
from eigenmesh.engines.faulty import Fault
from eigenmesh.errors import MissingPartyShare, PartyLost, PolicyRefusal
from eigenmesh.kernel_kmeans.choose_clustering import row_methods
from eigenmesh.metrics import recovery_error

# Few rows have few centroids; what these miss has tests of its own.
pytestmark = pytest.mark.filterwarnings("ignore:the .* landmarks miss")

DIGITS, DIGIT = load_digits(return_X_y=True)
DIGITS = DIGITS / 16
NO_ROWS = em.Policy(allow={"centroids", "gram", "moments", "counts", "scores"})
NO_ROWS = em.Policy(allow={"centroids", "gram", "moments", "counts"})
NO_SCORES = em.Policy(allow={"centroids", "gram", "moments", "counts", "rows"})


def inertia(X, labels, gamma, weights=None, kernel="rbf"):
    """From the definition, by scikit-learn's kernel matrix."""
    K = pairwise_kernels(X, metric=kernel, gamma=gamma)
    w = np.ones(len(X)) if weights is None else weights
    inside = 0.0
    for c in np.unique(labels):
        own = labels == c
        inside += w[own] @ K[np.ix_(own, own)] @ w[own] / w[own].sum()
    return w @ np.diag(K) - inside


def few_digits(n=600):
    return DIGITS[:n]


# 1. The central oracle.


def test_spectral_clusters_when_every_row_is_a_landmark():
    """k-means of the top eigenvectors of the uncentred kernel matrix, scaled."""
    X, gamma = few_digits(300), 0.1
    values, vectors = np.linalg.eigh(pairwise_kernels(X, metric="rbf", gamma=gamma))
    Z = vectors[:, ::-1][:, :6] * np.sqrt(values[::-1][:6])
    model = em.KernelKMeans(6, gamma=gamma, n_landmarks=300, landmarks="uniform", random_state=0)
    model.set_params(n_init=10, tol=0.0, n_eigenvectors=6).fit(X)
    np.testing.assert_allclose(model.eigenvalues_, values[::-1][:6], rtol=1e-9)
    np.testing.assert_allclose(np.abs(model.transform(X)), np.abs(Z), atol=1e-7)
    ours = np.square(model.transform(X) - model.cluster_centers_[model.labels_]).sum()
    further = KMeans(6, init=model.cluster_centers_, n_init=1).fit(model.transform(X))
    assert ours == pytest.approx(further.inertia_, rel=1e-9)
    assert ours <= 1.01 * KMeans(6, n_init=30, random_state=0).fit(Z).inertia_
    assert model.inertia_ == pytest.approx(inertia(X, model.labels_, gamma), rel=1e-9)
    assert model.inertia_slack_ == pytest.approx(0.0, abs=1e-6)


def test_the_linear_kernel_gives_kmeans():
    X = load_iris().data
    model = em.KernelKMeans(3, kernel="linear", n_eigenvectors=4, random_state=0).fit(X)
    assert model.inertia_ == pytest.approx(KMeans(3, n_init=10).fit(X).inertia_, rel=1e-3)


def test_exact_is_no_worse_than_the_spectral_way_and_says_its_inertia():
    X = few_digits()
    exact = em.KernelKMeans(8, method="exact", n_init=8, random_state=0).fit(X)
    landmarks = em.KernelKMeans(8, random_state=0).fit(X)
    assert exact.inertia_ == pytest.approx(inertia(X, exact.labels_, exact.gamma_))
    assert exact.inertia_ <= inertia(X, landmarks.labels_, exact.gamma_)
    np.testing.assert_array_equal(exact.predict(X), exact.labels_)


@pytest.fixture(scope="module")
def exact_clusters():
    """Of the rows that the test below has at parties."""
    return em.KernelKMeans(10, method="exact", n_init=5, random_state=0).fit(few_digits(1000))


@pytest.mark.parametrize(("parties", "seed"), [(1, 0), (1, 1), (5, 1), (5, 2)])
def test_labels_cost_no_more_than_three_per_cent_above_exact(parties, seed, exact_clusters):
    X, exact = few_digits(1000), exact_clusters
    model = em.KernelKMeans(10, random_state=seed).fit(em.split(X, parties, random_state=seed))
    assert inertia(X, model.predict(X), exact.gamma_) <= 1.03 * exact.inertia_


@pytest.mark.parametrize(
    ("papers", "seed"),
    [({"threshold": "paper", "features": "paper"}, 0), ({"threshold": None}, 1)],
)
def test_the_front_door_beats_the_papers_method_at_a_tenth_of_its_floats(papers, seed):
    """Rounds are a fiftieth; the paper's solver is Lanczos, its iterations 50."""
    X, s = DIGITS[:900], 12
    parts = em.split(X, 4, random_state=seed)
    door = em.KernelKMeans(10, n_eigenvectors=s, accuracy=0.1, random_state=seed).fit(parts)
    paper = em.FedKernelKMeans(
        10, n_eigenvectors=s, solver="lanczos", random_state=seed, **papers
    ).fit(parts)
    values, vectors = np.linalg.eigh(pairwise_kernels(X, metric="rbf", gamma=door.gamma_))
    top = values[: -s - 1 : -1], vectors[:, : -s - 1 : -1]
    assert recovery_error(door.transform(X), *top) <= recovery_error(paper.transform(X), *top)
    assert 10 * door.report_.floats_up <= paper.report_.floats_up
    assert 50 * door.report_.rounds <= paper.report_.rounds


# Shapes that k-means cannot find.


@pytest.mark.parametrize(("seed", "parties"), [(0, None), (1, 4), (2, 4)])
def test_rings(seed, parties):
    X, y = make_circles(800, factor=0.3, noise=0.05, random_state=seed)
    source = X if parties is None else em.split(X, parties, random_state=seed)
    model = em.KernelKMeans(2, gamma=5.0, random_state=seed).fit(source)
    assert adjusted_rand_score(y, model.predict(X)) >= 0.99
    assert adjusted_rand_score(y, KMeans(2, n_init=10).fit_predict(X)) < 0.1
    Z = model.transform(X)
    costs = np.square(Z[:, None] - model.cluster_centers_).sum(axis=2).min(axis=1)
    # The last round moved the centres by little, or by nothing but rounding.
    assert (1 - 1e-12) * costs.mean() <= model.history_[-1] <= 1.001 * costs.mean()


@pytest.mark.parametrize(("seed", "parties"), [(0, None), (1, 4), (2, 4)])
def test_moons(seed, parties):
    X, y = make_moons(800, noise=0.05, random_state=seed)
    source = X if parties is None else em.split(X, parties, random_state=seed)
    model = em.KernelKMeans(2, gamma=15.0, n_eigenvectors=2, random_state=seed).fit(source)
    assert adjusted_rand_score(y, model.predict(X)) >= 0.98


@pytest.mark.parametrize("seed", [1, 5, 8])
def test_moons_at_parties_come_out_as_exact_eigenvectors_part_them(seed):
    """Where these do no better than 0.93, neither can anything that stands for them."""
    X, y = make_moons(400, noise=0.05, random_state=seed)
    values, vectors = np.linalg.eigh(pairwise_kernels(X, metric="rbf", gamma=15.0))
    Z = vectors[:, -2:] * np.sqrt(values[-2:])
    best = adjusted_rand_score(y, KMeans(2, n_init=10, random_state=0).fit_predict(Z))
    parts = em.split(X, 4, random_state=seed)
    model = em.KernelKMeans(2, gamma=15.0, n_eigenvectors=2, random_state=seed).fit(parts)
    assert adjusted_rand_score(y, model.predict(X)) >= best - 0.05


# 2. Claims.


@pytest.mark.parametrize("q", [15, 60])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_inertia_is_an_upper_bound_as_tight_as_it_says(q, weighted):
    X = few_digits()
    parts = em.split(X, 4, random_state=0)
    w = np.random.default_rng(0).uniform(0, 2, len(X)) if weighted else None
    split = None if w is None else [w[own] for own in parts.order]
    model = em.KernelKMeans(6, n_landmarks=q, random_state=0).fit(parts, sample_weight=split)
    true = inertia(X, model.predict(X), model.gamma_, w)
    assert true - 1e-9 <= model.inertia_ <= 1.1 * true
    if weighted:
        assert model.inertia_slack_ is None
    else:
        assert model.inertia_ - true <= model.inertia_slack_


def test_recovery_improves_with_landmarks():
    X = few_digits()
    values, vectors = np.linalg.eigh(pairwise_kernels(X, metric="rbf", gamma=0.1))
    top = values[::-1][:8], vectors[:, ::-1][:, :8]
    errors = []
    for q in (15, 50, 200):
        model = em.KernelKMeans(8, gamma=0.1, n_eigenvectors=8, n_landmarks=q, random_state=0)
        errors.append(recovery_error(model.fit(em.split(X, 3, random_state=0)).transform(X), *top))
    assert errors[0] > errors[1] > errors[2]
    assert errors[2] < 1e-5


# 3. The ledger.


@pytest.mark.parametrize("gamma", [0.1, "mean-distance"])
@pytest.mark.parametrize(
    "options",
    [
        {"landmarks": "uniform"},
        {"landmarks": "diskpca"},
        {"method": "nystrom"},
        {"method": "diskpca"},
        {"method": "random-features", "n_features": 30},
        {"n_eigenvectors": 3, "landmarks": "uniform"},
    ],
)
def test_a_plan_foretells_the_report(options, gamma):
    parts = em.split(few_digits(), 4, random_state=0)
    model = em.KernelKMeans(4, gamma=gamma, n_landmarks=80, random_state=0, **options)
    plan, report = em.plan(model, parts), model.fit(parts).report_
    assert (plan.rounds, plan.floats_up) == (report.rounds, report.floats_up)
    assert plan.floats_down == report.floats_down
    kinds = {name: set(own) for name, own in report.reveals.items()}
    assert {name: set(own) for name, own in plan.reveals.items()} == kinds


def test_floats_equal_the_formula():
    k, s, q, d, parties, restarts = 4, 4, 80, 64, 5, 3
    model = em.KernelKMeans(
        k,
        gamma=0.1,
        n_landmarks=q,
        landmarks="uniform",
        kmeans="coreset",
        n_init=restarts,
        random_state=0,
    )
    report = model.fit(em.split(few_digits(), parties, random_state=0)).report_
    gram, moments = q * (q + 1) // 2 + q, k * q + k
    coreset = (50 * k + parties * k) * (s + 1)
    refined = restarts * (k * s + k + 1)
    probes, features = 4, 64  # of what the landmarks miss, for a tenth of Gram and landmarks
    missing = (probes + 2) * features + probes
    assert report.floats_up == q * d + parties * (gram + missing + moments + refined + k) + coreset
    down = probes * (q + 1) + q * s + 2 * s + restarts * k * s + k * s
    assert report.floats_down == (parties - 1) * q * d + parties * down
    assert report.rounds == 10


def test_landmarks_are_doubled_until_they_are_enough_and_a_plan_is_of_the_first():
    X, y = make_moons(800, noise=0.05, random_state=0)
    parts = em.split(X, 4, random_state=0)
    model = em.KernelKMeans(2, gamma=15.0, random_state=0)
    plan = em.plan(model, parts)
    assert plan.floats_up < model.fit(parts).report_.floats_up
    assert len(model.model_.landmarks) in (40, 80, 160)
    assert adjusted_rand_score(y, model.predict(X)) >= 0.98
    with pytest.warns(em.EigenmeshWarning, match="raise n_landmarks.*landmarks='diskpca'"):
        em.KernelKMeans(2, gamma=15.0, n_landmarks=20, random_state=0).fit(parts)


def test_the_traffic_does_not_grow_with_the_rows():
    sent = {
        em.KernelKMeans(4, gamma=0.1, random_state=0, n_landmarks=80, landmarks="uniform")
        .fit(em.split(DIGITS[:n], 4, random_state=0))
        .report_.floats_up
        for n in (400, 1600)
    }
    assert len(sent) == 1


# 4. Engines.


@pytest.mark.parametrize("kmeans", ["lloyd", "coreset"])
def test_the_same_answer_on_every_engine(kmeans):
    parts = em.split(few_digits(240), 3, random_state=0)
    fitted = []
    for engine in ENGINES:
        with engine.open(parts) as fed:
            model = em.KernelKMeans(4, kmeans=kmeans, random_state=0).fit(fed)
        fitted.append(model)
    first, *others = fitted
    for other in others:
        np.testing.assert_allclose(other.cluster_centers_, first.cluster_centers_, atol=1e-8)
        assert other.report_.by_step == first.report_.by_step


def test_weights_reach_every_engine_and_new_ones_take_the_place_of_old_ones():
    parts = em.split(few_digits(240), 3, random_state=0)
    first, second = (
        [np.random.default_rng([seed, n]).uniform(0, 2, n) for n, _ in parts.shapes]
        for seed in range(2)
    )
    found = []
    for engine in ENGINES:
        with engine.open(parts) as fed:
            em.KernelKMeans(4, random_state=0).fit(fed, sample_weight=first)
            model = em.KernelKMeans(4, random_state=0).fit(fed, sample_weight=second)
        found.append(model.inertia_)
    pooled = inertia(
        np.vstack(parts.parts),
        np.concatenate(model.predict(parts)),
        model.gamma_,
        np.concatenate(second),
    )
    np.testing.assert_allclose(found, found[0], rtol=1e-9)
    assert found[0] == pytest.approx(pooled, rel=0.05)
    others = em.KernelKMeans(4, random_state=0).fit(parts, sample_weight=first)
    assert found[0] != pytest.approx(others.inertia_, rel=1e-3)


# 5. Disclosure.


def test_no_row_and_no_score_of_one_leaves_by_default():
    for kernel in ("rbf", "poly", "linear", "arc-cosine"):
        model = em.KernelKMeans(4, kernel=kernel, degree=2, random_state=0)
        model.fit(em.split(few_digits(), 4, random_state=0))
        kinds = set().union(*model.report_.reveals.values())
        assert kinds <= {"centroids", "gram", "moments", "counts"}
        assert f"what left the parties: {', '.join(sorted(kinds))}" in model.method_


def test_parties_that_keep_their_rows_get_centroids_whatever_the_kernel():
    parts = em.split(few_digits(), 4, policies=[None, NO_ROWS, None, None], random_state=0)
    model = em.KernelKMeans(4, kernel="poly", degree=2, random_state=0).fit(parts)
    assert "rows" not in set().union(*model.report_.reveals.values())
    with pytest.raises(PolicyRefusal, match="'rows'"):
        em.KernelKMeans(4, landmarks="uniform").fit(parts)


def test_parties_that_keep_their_scores_start_from_the_landmarks():
    X = few_digits()
    parts = em.split(X, 4, policies=[NO_SCORES] * 4, random_state=0)
    with pytest.raises(PolicyRefusal, match="'scores'"):
        em.KernelKMeans(8, random_state=0, kmeans="coreset").fit(parts)
    exact = em.KernelKMeans(8, method="exact", n_init=5, random_state=0).fit(X)
    for kmeans, words in (("auto", "means of rows' scores"), ("lloyd", "landmarks' own scores")):
        model = em.KernelKMeans(8, random_state=0, kmeans=kmeans).fit(parts)
        assert words in model.method_
        assert "scores" not in set().union(*model.report_.reveals.values())
        assert inertia(X, model.predict(X), exact.gamma_) <= 1.03 * exact.inertia_


def test_parties_that_keep_their_rows_add_up_whole_groups():
    """A sum over a cluster in which a party has one row is that row's scores."""
    X = few_digits()
    parts = em.split(X, 4, policies=[NO_ROWS] * 4, random_state=0)
    for kmeans in ("means", "lloyd"):
        with pytest.raises(PolicyRefusal, match="what would do: .*rows.* \\(for"):
            em.KernelKMeans(8, random_state=0, kmeans=kmeans).fit(parts)
    exact = em.KernelKMeans(8, method="exact", n_init=5, random_state=0).fit(X)
    model = em.KernelKMeans(8, random_state=0).fit(parts)
    assert "groups of rows' scores" in model.method_
    assert inertia(X, model.predict(X), exact.gamma_) <= 1.06 * exact.inertia_


def test_rows_of_tiny_parties_leave_only_if_asked_for():
    parts = em.split(few_digits(120), 60, random_state=0)
    with pytest.raises(em.EigenmeshError, match="no party has.*secure=True.*'reveal'"):
        em.KernelKMeans(3, random_state=0).fit(parts)
    model = em.KernelKMeans(3, landmarks="uniform", random_state=0).fit(parts)
    assert model.shortfall_ <= model.accuracy


# 6. Odd data, bad input, lost parties.


def test_fewer_different_rows_than_clusters_shrink_and_say_so():
    X = np.repeat(few_digits(3), 20, axis=0)
    for method in ("auto", "exact"):
        with pytest.warns(em.EigenmeshWarning, match="5 clusters were asked for"):
            model = em.KernelKMeans(5, gamma=0.1, method=method, random_state=0).fit(X)
        assert len(model.cluster_centers_) == 3
        assert model.inertia_ == pytest.approx(0.0, abs=1e-9)


def test_weights_count_as_copies_do():
    """The best clusters are the same; draws are not, so both are searched well."""
    X = few_digits(120)
    w = np.random.default_rng(0).integers(0, 4, len(X)).astype(float)
    options = {"gamma": 0.1, "method": "exact", "n_init": 30, "random_state": 0}
    weighted = em.KernelKMeans(3, **options).fit(X, sample_weight=w)
    copied = em.KernelKMeans(3, **options).fit(np.repeat(X, w.astype(int), axis=0))
    assert weighted.inertia_ == pytest.approx(copied.inertia_, rel=1e-3)


@pytest.mark.parametrize("round_", [1, 3, 5, 7, 9])
def test_a_lost_party_is_named_or_left_out(round_):
    parts = em.split(few_digits(), 4, random_state=0)
    faults = [Fault("kill", party="party-2", round=round_)]
    with em.federation(parts, faults=faults) as fed:
        with pytest.raises(PartyLost, match="party-2"):
            em.KernelKMeans(4, random_state=0).fit(fed)
    with em.federation(parts, faults=faults, on_loss="survivors") as fed:
        model = em.KernelKMeans(4, random_state=0).fit(fed)
    assert set(model.report_.lost) == {"party-2"}
    assert [len(own) for own in model.labels_] == [150, 150, 150]
    rest = np.vstack([part for i, part in enumerate(parts.parts) if i != 2])
    true = inertia(rest, model.predict(rest), model.gamma_)
    assert true - 1e-9 <= model.inertia_ <= 1.1 * true


@pytest.mark.parametrize(
    "wrong",
    [
        {"n_clusters": 0},
        {"n_eigenvectors": -1},
        {"kernel": "sigmoid"},
        {"method": "best"},
        {"landmarks": "best"},
        {"kmeans": "best"},
        {"gamma": -1.0},
        {"n_landmarks": 0},
        {"n_init": 0},
        {"tol": -1.0},
        {"max_iter": 0},
    ],
)
def test_wrong_parameters_say_what_is_expected(wrong):
    with pytest.raises(em.EigenmeshError, match="expected"):
        em.KernelKMeans(**wrong).fit(few_digits(60))


def test_exact_does_not_pool():
    with pytest.raises(em.EigenmeshError, match="one place.*one array"):
        em.KernelKMeans(3, method="exact").fit(em.split(few_digits(60), 2, random_state=0))


@pytest.mark.parametrize(
    ("weights", "words"),
    [
        ([np.ones(30), np.ones(29)], "party-1.*30 rows and 29 weights"),
        ([np.ones(30)], "a list of 1; a list of 2 arrays"),
        (np.ones(60), "shape \\(60,\\); a list of 2 arrays.*parts.order"),
        (2.0, "float; a list of 2 arrays"),
        ([1.0, 2.0], "party-0.*is 1.0; numbers.*one a row"),
        ([None, np.ones(30)], "party-0.*is None; numbers"),
        ([np.ones((30, 1)), np.ones(30)], "party-0.*shape \\(30, 1\\)"),
        ([np.ones(30), ["a"] * 30], "party-1.*numbers are expected"),
        ([np.ones(30), np.r_[np.ones(29), np.nan]], "party-1.*nan at row 29; finite"),
        ([np.ones(30), -np.ones(30)], "party-1.*-1 at row 0; no negative.*0 ignores"),
        ([np.zeros(30), np.zeros(30)], "non-zero"),
    ],
)
def test_weights_that_do_not_fit_are_named(weights, words):
    parts = em.split(few_digits(60), 2, random_state=0)
    with pytest.raises(em.EigenmeshError, match=words):
        em.KernelKMeans(3, gamma=0.1).fit(parts, sample_weight=weights)


@pytest.mark.parametrize("weights", [[], 3.0, np.ones(59), np.ones((60, 1)), "heavy", [1j] * 60])
@pytest.mark.parametrize("method", ["auto", "exact", "random-features"])
def test_weights_of_one_array_that_do_not_fit_are_refused(weights, method):
    with pytest.raises(em.EigenmeshError, match="one a row is expected|expected, one a row"):
        em.KernelKMeans(3, method=method).fit(few_digits(60), sample_weight=weights)


def test_rows_of_no_weight_leave_the_clusters_alone():
    X = few_digits(120)
    w = np.r_[np.ones(60), np.zeros(60)]
    heavy = em.KernelKMeans(3, gamma=0.1, n_init=10, random_state=0).fit(X, sample_weight=w)
    assert heavy.inertia_ == pytest.approx(inertia(X, heavy.labels_, 0.1, w), rel=1e-9)
    parts = em.Partitioned(rows=[X[:60], X[60:]])
    split = em.KernelKMeans(3, gamma=0.1, random_state=0).fit(parts, sample_weight=[w[:60], w[60:]])
    assert inertia(X, split.predict(X), 0.1, w) <= 1.03 * heavy.inertia_


@pytest.mark.parametrize("estimator", [em.KernelKMeans, em.FedKernelKMeans])
def test_new_rows_in_any_form_get_the_same_clusters(estimator):
    pd = pytest.importorskip("pandas", reason="pip install pandas")
    X = few_digits(120)
    names = [f"pixel {i}" for i in range(64)]
    options = {} if estimator is em.KernelKMeans else {"n_features": 30, "n_iterations": 3}
    model = estimator(4, random_state=0, **options).fit(pd.DataFrame(X, columns=names))
    expected = model.predict(pd.DataFrame(X, columns=names))
    np.testing.assert_array_equal(expected, model.labels_)
    assert expected.dtype == model.labels_.dtype == np.int32
    with pytest.raises(em.EigenmeshError, match="names should match"):
        model.predict(pd.DataFrame(X, columns=names[::-1]))
    model = estimator(4, random_state=0, **options).fit(X)
    for rows in (sp.csr_array(X), sp.csc_matrix(X), X.tolist()):
        np.testing.assert_array_equal(model.predict(rows), model.labels_)
    np.testing.assert_array_equal(model.predict(X[7:8]), model.labels_[7:8])
    with pytest.raises(em.EigenmeshError, match="2D"):
        model.predict(X[7])
    with (
        em.federation(em.split(X, 2, random_state=0)) as fed,
        pytest.raises(em.EigenmeshError, match="labels_"),
    ):
        model.predict(fed)


@pytest.mark.parametrize("estimator", [em.KernelKMeans, em.FedKernelKMeans])
def test_a_party_may_have_fewer_rows_than_clusters(estimator):
    X = few_digits(150)
    options = {"n_features": 30, "n_iterations": 3}
    options = {"small_parties": "reveal"} if estimator is em.KernelKMeans else options
    parts = em.Partitioned(rows=[X[:2], X[2:3], X[3:]])
    model = estimator(6, random_state=0, **options).fit(parts)
    assert [len(own) for own in model.labels_] == [2, 1, 147]
    assert len(np.unique(np.concatenate(model.labels_))) == 6


# Methods and conveniences.


@pytest.mark.parametrize("method", sorted(set(row_methods()) - {"exact", "private-features"}))
def test_every_method_finds_digits_at_parties(method):
    X, y = DIGITS[:900], DIGIT[:900]
    parts = em.split(X, 4, random_state=0)
    model = em.KernelKMeans(10, method=method, random_state=0).fit(parts)
    assert model.method_.startswith(method)
    assert normalized_mutual_info_score(y, model.predict(X)) > 0.6
    for own, labels, part in zip(model.predict(parts), model.labels_, parts.parts, strict=True):
        np.testing.assert_array_equal(own, labels)
        assert len(own) == len(part)


@pytest.mark.parametrize("method", ["auto", "exact", "random-features"])
def test_a_saved_model_predicts_the_same_and_keeps_no_labels(tmp_path, method):
    X = few_digits(150)
    model = em.KernelKMeans(4, method=method, random_state=0).fit(X)
    model.save(tmp_path / "clusters.em")
    loaded = em.load(tmp_path / "clusters.em")
    np.testing.assert_array_equal(loaded.predict(DIGITS), model.predict(DIGITS))
    assert loaded.inertia_ == model.inertia_
    with pytest.raises(MissingPartyShare, match="predict"):
        loaded.labels_  # noqa: B018


def test_sparse_rows_give_the_clusters_of_dense_ones():
    X = few_digits(200)
    dense = em.KernelKMeans(4, gamma=0.1, random_state=0).fit(X)
    sparse = em.KernelKMeans(4, gamma=0.1, random_state=0).fit(sp.csr_array(X))
    assert adjusted_rand_score(dense.labels_, sparse.labels_) == 1.0


def test_the_same_seed_gives_the_same_labels():
    fits = [em.KernelKMeans(5, random_state=3).fit(few_digits()).labels_ for _ in range(2)]
    np.testing.assert_array_equal(*fits)


def test_a_federation_is_left_as_it_was_found():
    """Weights of one fit must not count in the next."""
    parts = em.split(few_digits(), 3, random_state=0)
    weights = [np.random.default_rng(i).uniform(0, 2, n) for i, (n, _) in enumerate(parts.shapes)]
    fresh = em.KernelKMeans(4, random_state=0).fit(parts)
    with em.federation(parts) as fed:
        em.KernelKMeans(4, random_state=0).fit(fed, sample_weight=weights)
        again = em.KernelKMeans(4, random_state=0).fit(fed)
        kept = [key for site in fed.local_sites().values() for key in site.store]
    assert not any("weight" in key for key in kept)
    assert again.inertia_ == fresh.inertia_
