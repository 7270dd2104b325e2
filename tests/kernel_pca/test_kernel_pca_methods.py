"""KernelPCA over split data: which method it takes, why, and what that costs."""

import warnings

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.decomposition import KernelPCA
from sklearn.metrics.pairwise import pairwise_kernels

import eigenmesh as em
from eigenmesh.engines.faulty import Fault
from eigenmesh.errors import EigenmeshWarning, PolicyRefusal
from eigenmesh.kernel_pca import one_array as kernel_pca_methods
from eigenmesh.metrics import aligned_error

DIGITS = load_digits().data / 16
ROWS = em.split(DIGITS[:600], 5, law="power", exponent=1.0, random_state=0)
COLUMNS = em.split(DIGITS[:150], 4, by="columns")
POLY = {"kernel": "poly", "gamma": 0.1, "degree": 2, "random_state": 0}
RBF = {"kernel": "rbf", "gamma": 0.05, "random_state": 0}


def with_policy(allow, party=1):
    policies = [None] * 5
    policies[party] = em.Policy(allow=allow)
    return em.Partitioned(rows=ROWS.parts, policies=policies)


# Rows.


def test_centroids_where_every_row_weighs_the_same():
    kpca = em.KernelPCA(4, **RBF).fit(ROWS)
    assert kpca.method_.startswith("diskpca: 5 parties hold rows; centroids")
    assert all("rows" not in kinds for kinds in kpca.report_.reveals.values())
    options = {"landmarks": "centroids", "n_landmarks": 100, "accuracy": 0.01}
    same = em.DisKPCA(4, **RBF, **options).fit(ROWS)
    np.testing.assert_array_equal(kpca.eigenvalues_, same.eigenvalues_)
    assert kpca.report_.floats_up == same.report_.floats_up


def test_rows_by_leverage_leave_only_if_they_are_asked_for():
    for options in (POLY, {"kernel": "arc-cosine", "degree": 1}, RBF, {"kernel": "linear"}):
        kpca = em.KernelPCA(2, **options, accuracy=1.0).fit(ROWS)
        assert "rows" not in set().union(*kpca.report_.reveals.values())
        assert "what left the parties: " in kpca.method_
    kpca = em.KernelPCA(4, **POLY, landmarks="diskpca").fit(ROWS)
    assert kpca.method_.startswith("diskpca: 5 parties hold rows; landmarks are rows drawn")
    same = em.DisKPCA(4, **POLY, landmarks="diskpca", n_landmarks=100).fit(ROWS)
    np.testing.assert_array_equal(kpca.eigenvalues_, same.eigenvalues_)
    assert kpca.leverage_skew_ == same.leverage_skew_ > 0


@pytest.mark.parametrize("choice", ["uniform", "leverage", "rpcholesky", "centroids", "diskpca"])
def test_landmarks_that_are_asked_for_are_taken(choice):
    for options in (RBF, POLY):
        few = {"n_landmarks": 40, "landmarks": choice}
        kpca = em.KernelPCA(3, **options, **few, accuracy=1.0).fit(ROWS)
        same = em.DisKPCA(3, **options, **few).fit(ROWS)
        np.testing.assert_array_equal(kpca.eigenvalues_, same.eigenvalues_)


def test_all_rows_as_landmarks_give_scikit_learns_answer():
    for options in (RBF, POLY, {"kernel": "linear"}):
        kpca = em.KernelPCA(4, **options, n_landmarks=600, landmarks="diskpca").fit(ROWS)
        pooled = KernelPCA(4, **options, eigen_solver="dense").fit(np.vstack(ROWS.parts))
        np.testing.assert_allclose(kpca.eigenvalues_, pooled.eigenvalues_, rtol=1e-10)
        new = DIGITS[600:700]
        assert aligned_error(kpca.transform(new), pooled.transform(new)) < 1e-8


# Policies.


@pytest.mark.parametrize(
    ("options", "allow", "starts", "says"),
    [
        (POLY, {"centroids", "gram", "moments", "counts"}, "diskpca", "centroids, and no row"),
        (RBF, {"rows", "gram", "moments", "counts"}, "sketching-pca", "embedded rows"),
        (RBF, {"gram", "moments", "counts"}, "sketching-pca", "embedded rows"),
    ],
)
def test_what_the_parties_let_out_decides(options, allow, starts, says):
    parts = with_policy(allow)
    plan = em.plan(em.KernelPCA(3, **options), parts)
    with warnings.catch_warnings(record=True) as caveats:
        warnings.simplefilter("always", EigenmeshWarning)
        kpca = em.KernelPCA(3, **options).fit(parts)
    unknown = [str(w.message) for w in caveats if "is not known" in str(w.message)]
    assert len(unknown) == (starts == "sketching-pca")  # what an embedding misses
    assert kpca.method_.startswith(f"{starts}: ")
    assert says in kpca.method_
    assert ("'party-1'" in kpca.method_) == (starts == "sketching-pca")  # the first was refused
    assert set(kpca.report_.reveals["party-1"]) <= allow
    assert not plan.refusals
    assert kpca.transform(DIGITS[:5]).shape == (5, 3)


def test_a_party_that_lets_out_too_little_is_named_with_what_would_do():
    with pytest.raises(
        PolicyRefusal, match="'party-1'.*what would do: centroids, counts, gram"
    ) as no:
        em.KernelPCA(3, **RBF).fit(with_policy({"counts"}))
    assert no.value.party == "party-1"
    with pytest.raises(PolicyRefusal, match="'rows'"):
        em.KernelPCA(3, **RBF, landmarks="uniform").fit(with_policy({"gram", "counts", "moments"}))


# Columns.


@pytest.mark.filterwarnings("ignore:.*floats were sent where shipping")
@pytest.mark.parametrize("options", [{"kernel": "linear"}, RBF])
def test_columns_give_the_pooled_answer_at_full_rank(options):
    kpca = em.KernelPCA(3, **options, method="one-shot", local_rank=150).fit(COLUMNS)
    assert kpca.method_.startswith("one-shot: 4 parties hold columns")
    pooled = KernelPCA(3, **options, eigen_solver="dense").fit(DIGITS[:150])
    np.testing.assert_allclose(kpca.eigenvalues_, pooled.eigenvalues_, rtol=1e-8)
    assert aligned_error(kpca.transform(COLUMNS), pooled.transform(DIGITS[:150])) < 1e-7
    assert aligned_error(kpca.eigenvectors_, pooled.eigenvectors_) < 1e-7
    assert kpca.transform_report_.floats_up > 0
    assert kpca.n_features_in_ == 64


@pytest.mark.parametrize(
    ("kernel", "name"),
    [("linear", "vfed-pca"), ("rbf", "vfed-akpca"), ("poly", "vfed-akpca")],
)
def test_columns_are_fitted_exactly_where_the_policies_let_it(kernel, name):
    options = {"kernel": kernel, "gamma": 0.05, "random_state": 0}
    kpca = em.KernelPCA(3, **options).fit(COLUMNS)
    assert kpca.method_.startswith(f"{name}: 4 parties hold columns")
    pooled = KernelPCA(3, **options, eigen_solver="dense").fit(DIGITS[:150])
    np.testing.assert_allclose(kpca.eigenvalues_, pooled.eigenvalues_, rtol=1e-9)
    new = DIGITS[150:200]
    assert aligned_error(kpca.transform(new), pooled.transform(new)) < 1e-7
    plan = em.plan(em.KernelPCA(3, **options), COLUMNS)
    assert plan.floats_up >= kpca.report_.floats_up > 0

    # Of an RBF kernel one-shot sends so few that these give no distances away; of others by name.
    few = em.Policy(allow={"eigenvectors", "moments", "counts", "hashes", "scores", "columns"})
    parts = em.Partitioned(columns=COLUMNS.parts, policies=few)
    cautious = em.KernelPCA(3, **options)
    if kernel == "poly":  # which one-shot fuses from coordinates
        few = em.Policy(allow={"scores", "counts", "hashes", "moments"})
        parts = em.Partitioned(columns=COLUMNS.parts, policies=few)
        with pytest.raises(em.EigenmeshError, match="aggregate"):
            cautious.fit(parts)
        cautious.set_params(method="one-shot")
    if kernel == "rbf":
        with pytest.warns(em.EigenmeshWarning, match="lacks about"):
            assert cautious.fit(parts).method_.startswith("one-shot: ")
        assert set(cautious.report_.reveals["party-0"]) == {"eigenvectors", "counts", "hashes"}
    else:
        assert cautious.fit(parts).method_.startswith("one-shot: ")


def test_columns_on_a_graph_and_back():
    kpca = em.KernelPCA(3, topology="ring").fit(COLUMNS)
    assert kpca.method_.startswith("vfed-pca: 4 parties hold columns; neighbours")
    pooled = KernelPCA(3, eigen_solver="dense").fit(DIGITS[:150])
    np.testing.assert_allclose(kpca.eigenvalues_, pooled.eigenvalues_, rtol=1e-8)
    assert kpca.inverse_transform(kpca.transform(COLUMNS)).shape == (150, 64)


@pytest.mark.parametrize(
    ("method", "allow", "starts"),
    [
        ("auto", None, "gossip: 5 parties hold rows; neighbours average what rows are"),
        (
            "auto",
            {"moments", "counts", "eigenvectors", "sketch"},
            "gossip: 5 parties hold rows; neighbours average moments",
        ),
        ("admm", None, "admm: 5 parties hold rows"),
    ],
)
@pytest.mark.filterwarnings("ignore:what is missing of the eigenvalues is not known")
def test_rows_on_a_graph(method, allow, starts, tmp_path):
    policies = None if allow is None else em.Policy(allow=allow)
    rows = em.split(DIGITS[:400], 5, random_state=0).parts
    parts = em.Partitioned(rows=rows, policies=policies)
    kpca = em.KernelPCA(2, **RBF, topology="ring", method=method, accuracy=1.0).fit(parts)
    assert kpca.method_.startswith(starts)
    assert set(kpca.node_models_) == set(parts.names)
    scores = kpca.transform(DIGITS[:9])
    assert scores.shape == (9, 2)
    kpca.save(tmp_path / "model.em")
    np.testing.assert_allclose(em.load(tmp_path / "model.em").transform(DIGITS[:9]), scores)


# What cannot be.


@pytest.mark.parametrize(
    ("options", "parts", "words"),
    [
        ({"kernel": "precomputed"}, ROWS, "kernel is 'precomputed'.*without pooling"),
        ({"kernel": "sigmoid"}, ROWS, "kernel is 'sigmoid'.*without pooling"),
        ({"kernel": lambda x, y: 0.0}, ROWS, "a function.*without pooling"),
        ({"kernel": "cosine", "method": "one-shot"}, COLUMNS, "kernel is 'cosine'.*columns"),
        ({"method": "exact"}, ROWS, "method is 'exact'; for rows split.*diskpca"),
        ({"method": "one-shot"}, ROWS, "method is 'one-shot'; for rows split"),
        ({"method": "diskpca"}, COLUMNS, "method is 'diskpca'; for columns split"),
        ({"landmarks": DIGITS[:9]}, ROWS, "given as rows.*one array"),
        ({"topology": "no such graph"}, ROWS, "no such graph"),
    ],
)
def test_what_does_not_go_with_split_data_says_what_does(options, parts, words):
    with pytest.raises(em.EigenmeshError, match=words):
        em.KernelPCA(**{"n_components": 2, **options}).fit(parts)


def test_the_way_back_needs_rows():
    with pytest.raises(em.EigenmeshError, match="fit_inverse_transform"):
        em.KernelPCA(2, **RBF, fit_inverse_transform=True, method="one-shot").fit(COLUMNS)
    kpca = em.KernelPCA(8, **RBF, fit_inverse_transform=True, alpha=1e-3, accuracy=0.05).fit(ROWS)
    back = kpca.inverse_transform(kpca.transform(DIGITS[600:700]))
    spread = np.square(DIGITS[600:700] - DIGITS[:600].mean(axis=0)).sum()
    assert np.square(back - DIGITS[600:700]).sum() < 0.7 * spread


# Forecast, losses.


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        ({**POLY, "n_components": 3}, ROWS),
        ({**POLY, "gamma": "mean-distance", "n_components": 5, "n_landmarks": 50}, ROWS),
        ({**RBF, "n_components": 3, "landmarks": "uniform"}, ROWS),
        ({**RBF, "n_components": 3, "method": "one-shot"}, COLUMNS),
        ({**RBF, "n_components": 3, "method": "sketching-pca"}, ROWS),
    ],
)
def test_a_plan_foretells_the_report(options, parts):
    kpca = em.KernelPCA(**options, accuracy=1.0)  # with which the first landmarks are enough
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EigenmeshWarning)  # of the embedding
        plan, report = em.plan(kpca, parts), kpca.fit(parts).report_
    assert plan.rounds == report.rounds
    assert (plan.floats_up, plan.floats_down) == (report.floats_up, report.floats_down)
    kinds = {name: set(own) for name, own in report.reveals.items()}
    assert {name: set(own) for name, own in plan.reveals.items()} == kinds


@pytest.mark.parametrize("door", [em.KernelPCA, em.GossipKPCA])
def test_a_plan_is_that_of_the_open_federations_own_graph(door):
    kpca = door(3, **RBF, accuracy=0.05)  # with less samples decide whether nodes look twice
    with em.federation(ROWS, topology="star") as fed:
        plan, report = em.plan(kpca, fed), kpca.fit(fed).report_
    assert (plan.floats_up, plan.rounds) == (report.floats_up, report.rounds)


def test_a_plan_of_centroids_is_an_upper_bound():
    kpca = em.KernelPCA(3, **RBF)
    plan, report = em.plan(kpca, ROWS), kpca.fit(ROWS).report_
    assert plan.rounds == report.rounds
    assert 0.5 * plan.floats_up < report.floats_up <= plan.floats_up


def test_one_array_sends_nothing():
    for options in ({}, {"n_landmarks": 50, "accuracy": 1.0}):
        kpca = em.KernelPCA(3, **RBF, **options)
        plan, report = em.plan(kpca, DIGITS[:300]), kpca.fit(DIGITS[:300]).report_
        assert (plan.floats_up, plan.floats_down, plan.rounds) == (0, 0, 0)
        assert (report.floats_up, report.floats_down, report.rounds) == (0, 0, 0)
        assert report.baseline_floats == 300 * 64
        assert report.reveals == {}
        assert report.seconds > 0


def test_a_lost_party_is_left_out_and_said_so():
    faults = [Fault("kill", party="party-2", round=1)]
    with em.federation(ROWS, faults=faults, on_loss="survivors") as fed:
        kpca = em.KernelPCA(2, **RBF).fit(fed)
    assert set(kpca.report_.lost) == {"party-2"}
    assert kpca.n_samples_seen_ == 600 - len(ROWS.parts[2])


# One array: exact or landmarks, and which.


@pytest.fixture
def small_is_large(monkeypatch):
    """Some hundred rows count as many."""
    monkeypatch.setattr(kernel_pca_methods, "EXACT_ROWS", 200)


def residual_ratio(kpca, X, options):
    names = {name: options[name] for name in ("gamma", "degree", "coef0") if name in options}
    K = pairwise_kernels(X, metric=options["kernel"], **names)
    optimal = np.trace(K) - np.linalg.eigvalsh(K)[::-1][: len(kpca.eigenvalues_)].sum()
    return kpca.residual_ / optimal


@pytest.mark.usefixtures("small_is_large")
def test_flat_leverage_takes_centroids_and_skewed_leverage_takes_rows():
    flat = em.KernelPCA(5, **RBF, center=False).fit(DIGITS)
    assert flat.method_.startswith("diskpca: 1,797 rows are too many")
    assert "no row stands out" in flat.method_
    assert len(flat.landmarks_) == 100
    assert 1.0 <= residual_ratio(flat, DIGITS, RBF) < 1.02

    rng = np.random.default_rng(0)
    heavy = rng.normal(size=(1500, 30)) * rng.pareto(1.5, size=(1500, 1))
    options = {"kernel": "poly", "gamma": 1.0, "degree": 2, "coef0": 0.0}
    skewed = em.KernelPCA(10, **options, center=False, random_state=0).fit(heavy)
    assert "few rows matter most" in skewed.method_
    assert 1.0 - 1e-9 <= residual_ratio(skewed, heavy, options) < 1.02
    rows = {row.tobytes() for row in heavy}
    assert all(row.tobytes() in rows for row in np.asarray(skewed.landmarks_))


@pytest.mark.usefixtures("small_is_large")
def test_the_linear_kernel_is_exact_at_any_length():
    kpca = em.KernelPCA(5).fit(DIGITS)
    assert kpca.method_.startswith("diskpca")
    pooled = KernelPCA(5, eigen_solver="dense").fit(DIGITS)
    np.testing.assert_allclose(kpca.eigenvalues_, pooled.eigenvalues_, rtol=1e-9)
    assert aligned_error(kpca.transform(DIGITS), pooled.transform(DIGITS)) < 1e-6


@pytest.mark.usefixtures("small_is_large")
def test_an_eigen_solver_by_name_asks_for_the_whole_matrix():
    kpca = em.KernelPCA(3, **RBF, eigen_solver="arpack").fit(DIGITS[:300])
    assert kpca.method_.startswith("exact: eigen_solver='arpack'")


def test_every_row_as_a_landmark_of_one_array_is_scikit_learns_answer():
    for options in (RBF, POLY, {"kernel": "linear"}, {"kernel": "cosine"}):
        kpca = em.KernelPCA(4, **options, n_landmarks=10_000).fit(DIGITS[:300])
        pooled = KernelPCA(4, **options, eigen_solver="dense").fit(DIGITS[:300])
        np.testing.assert_allclose(kpca.eigenvalues_, pooled.eigenvalues_, rtol=1e-10)
        new = DIGITS[300:350]
        assert aligned_error(kpca.transform(new), pooled.transform(new)) < 1e-8


@pytest.mark.parametrize("seed", range(3))
def test_parties_of_thousands_of_rows_and_of_few_agree_on_landmarks(seed):
    """Of large parties fewer means are at hand than a fifth of the rows."""
    rng = np.random.default_rng(seed)
    sizes = [*rng.integers(2100, 6000, size=3), *rng.integers(5, 60, size=3)]
    parts = em.Partitioned(rows=[rng.normal(size=(n, 2)) for n in sizes])
    pooled = np.vstack(parts.parts)
    kpca = em.KernelPCA(2, kernel="rbf", gamma=0.3, random_state=0)
    fitted, whole = kpca.fit(parts).eigenvalues_, kpca.fit(pooled).eigenvalues_
    np.testing.assert_allclose(fitted, whole, rtol=0.02)
    assert em.KernelKMeans(3, kernel="rbf", gamma=0.3, random_state=0).fit(parts).inertia_ > 0
    targets = [own[:, 0] for own in parts.parts]
    regressor = em.KernelPCRegressor(3, kernel="rbf", gamma=0.3, random_state=0)
    assert regressor.fit(parts, targets).score(pooled, pooled[:, 0]) > 0.8


def test_of_admm_nobody_knows_what_is_missing_and_the_front_door_says_so():
    rng = np.random.default_rng(1)
    parts = em.split(rng.normal(size=(60, 4)), 4, random_state=1)
    kpca = em.KernelPCA(2, kernel="linear", method="admm", topology="ring", random_state=1)
    by_name = em.ADMMKPCA(2, topology="ring", n_iterations=100)
    for fit in (kpca.fit, by_name.fit):
        with pytest.warns(em.EigenmeshWarning) as caught:
            fit(parts)
        said = [str(w.message) for w in caught if "eigenvalues is not known with" in str(w.message)]
        assert len(said) == 1
        assert "admm" in said[0]
    assert kpca.shortfall_ is None
    em.ADMMKPCA(2, topology="full").fit(parts)  # every node has all rows
