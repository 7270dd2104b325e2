"""VFedAKPCA, exact: kernel PCA of the pooled columns, from one message a party."""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.decomposition import KernelPCA
from sklearn.metrics.pairwise import pairwise_kernels
from sklearn.preprocessing import StandardScaler

import eigenmesh as em
from eigenmesh.engines.faulty import Fault
from eigenmesh.errors import MissingPartyShare, PolicyRefusal
from eigenmesh.metrics import aligned_error, sin_theta
from eigenmesh.stages import column_scores as column_model
from eigenmesh.stages import summed_kernel as protocol_file

BREAST = StandardScaler().fit_transform(load_breast_cancer().data)
DIGITS = load_digits().data[:170] / 16.0
KERNELS = {
    "rbf": {"gamma": 0.02},
    "poly": {"gamma": 0.05, "degree": 3, "coef0": 1.0},
    "even poly": {"gamma": 0.05, "degree": 2, "coef0": 0.0},
    "laplacian": {"gamma": 0.01},
    "sigmoid": {"gamma": 0.01, "coef0": 0.5},
    "minus sigmoid": {"gamma": -0.02, "coef0": 1.0},
}


def name_of(kernel):
    return kernel.split()[-1]


def central(X, X_new, kernel, k, center=True):
    """Eigenvalues by magnitude, and scores, straight from the kernel matrix."""
    arguments = {"metric": name_of(kernel), **KERNELS[kernel]}
    K, K_new = pairwise_kernels(X, **arguments), pairwise_kernels(X_new, X, **arguments)
    if center:
        K_new = K_new - K.mean(0) - K_new.mean(1)[:, None] + K.mean()
        K = K - K.mean(0) - K.mean(1)[:, None] + K.mean()
    values, V = np.linalg.eigh(K)
    order = np.argsort(-np.abs(values))[:k]
    return values[order], K_new @ V[:, order] / np.sqrt(np.abs(values[order])), K


def quiet(model, data):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", em.EigenmeshWarning)
        return model.fit(data)


# The oracle.


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("parties", [2, 5, 16])
@pytest.mark.parametrize("center", [True, False])
def test_equals_central_kernel_pca(kernel, parties, center):
    X, new = BREAST[:120], BREAST[120:150]
    model = em.VFedAKPCA(4, kernel=name_of(kernel), **KERNELS[kernel], center=center)
    quiet(model, em.split(X, parties, by="columns"))
    values, scores, _ = central(X, new, kernel, 4, center)
    np.testing.assert_allclose(model.eigenvalues_, values, rtol=1e-10)
    assert aligned_error(model.transform(new), scores) < 1e-10


@pytest.mark.parametrize("kernel", ["rbf", "poly"])
def test_equals_scikit_learn_signs_included(kernel):
    X = BREAST[:150]
    ours = em.VFedAKPCA(3, kernel=kernel, **KERNELS[kernel]).fit_transform(
        em.split(X, 4, by="columns")
    )
    theirs = KernelPCA(3, kernel=kernel, eigen_solver="dense", **KERNELS[kernel]).fit_transform(X)
    np.testing.assert_allclose(ours, theirs, atol=1e-9 * np.abs(theirs).max())


@pytest.mark.parametrize("kernel", ["rbf", "poly", "laplacian", "minus sigmoid"])
@pytest.mark.parametrize("X", [BREAST[:60], DIGITS[:40]], ids=["narrow", "wide"])
def test_fit_transform_is_transform(kernel, X):
    parts = em.split(X, 2, by="columns")
    model = em.VFedAKPCA(3, kernel=name_of(kernel), **KERNELS[kernel])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", em.EigenmeshWarning)
        fitted = model.fit_transform(parts)
    np.testing.assert_allclose(fitted, model.transform(parts), atol=1e-9 * np.abs(fitted).max())


def test_wide_columns_tell_pairs_and_new_samples_outside_their_span_are_exact():
    """Fewer samples than columns: distances to all samples, or residuals, carry what is outside."""
    X, new = DIGITS[:30], DIGITS[30:60]
    for parties in (1, 2, 3):
        model = em.VFedAKPCA(3, gamma=0.05).fit(em.split(X, parties, by="columns"))
        pooled = KernelPCA(3, kernel="rbf", gamma=0.05, eigen_solver="dense").fit(X)
        assert aligned_error(model.transform(new), pooled.transform(new)) < 1e-10


def test_columns_of_low_rank_send_as_many_coordinates_as_their_rank():
    rng = np.random.default_rng(0)
    low = rng.normal(size=(50, 2)) @ rng.normal(size=(2, 12))
    parts = em.Partitioned(columns=[low, rng.normal(size=(50, 3))])
    model = em.VFedAKPCA(2, gamma=0.05).fit(parts)
    assert model.report_.by_party == {"party-0": 100, "party-1": 150}
    new = rng.normal(size=(9, 15))  # outside the span of the first party's samples
    pooled = KernelPCA(2, kernel="rbf", gamma=0.05, eigen_solver="dense")
    pooled.fit(np.hstack(parts.parts))
    assert aligned_error(model.transform(new), pooled.transform(new)) < 1e-10


def test_sparse_columns_give_the_model_of_dense_ones():
    X = np.where(DIGITS > 0.5, DIGITS, 0.0)
    for kernel in ("rbf", "poly"):
        options = {"kernel": kernel, **KERNELS[kernel]}
        dense = em.VFedAKPCA(3, **options).fit(em.split(X, 3, by="columns"))
        sparse = em.VFedAKPCA(3, **options).fit(em.split(sp.csr_array(X), 3, by="columns"))
        np.testing.assert_allclose(sparse.eigenvalues_, dense.eigenvalues_, rtol=1e-9)


def test_standardising_and_filling_are_done_by_the_owners():
    X = load_wine().data.copy()
    X[np.random.default_rng(0).random(X.shape) < 0.03] = np.nan
    filled = np.where(np.isnan(X), np.nanmean(X, axis=0), X)
    scaled = StandardScaler().fit_transform(filled)
    parts = em.split(X, 3, by="columns", allow_missing=True)
    for kernel in ("rbf", "poly", "laplacian"):
        options = {"kernel": kernel, **KERNELS[kernel]}
        model = quiet(em.VFedAKPCA(2, standardize=True, fill_missing=0.2, **options), parts)
        expected = quiet(em.VFedAKPCA(2, **options), em.split(scaled, 3, by="columns"))
        np.testing.assert_allclose(model.eigenvalues_, expected.eigenvalues_, rtol=1e-9)
        assert aligned_error(model.transform(X), expected.transform(scaled)) < 1e-9


@pytest.mark.parametrize("gamma", [None, "scale", "median", "mean-distance"])
def test_gamma_by_rule_is_that_of_the_one_shot_estimator(gamma):
    parts = em.split(BREAST[:100], 3, by="columns")
    ours = quiet(em.VFedAKPCA(2, gamma=gamma), parts)
    other = quiet(em.OneShotKPCA(2, kernel="rbf", gamma=gamma), parts)
    assert ours.gamma_ == other.gamma_


def test_an_indefinite_kernel_is_said_to_be_one():
    model = em.VFedAKPCA(3, kernel="sigmoid", gamma=-0.02, coef0=1.0)
    with pytest.warns(em.EigenmeshWarning, match=r"indefinite.*order of \|λ\|"):
        model.fit(em.split(BREAST[:60], 3, by="columns"))
    assert (model.eigenvalues_ < 0).any()
    assert (np.diff(np.abs(model.eigenvalues_)) <= 0).all()
    _, _, K = central(BREAST[:60], BREAST[:2], "minus sigmoid", 3)
    total = np.abs(np.linalg.eigvalsh(K)).sum()
    assert model.total_variance_ == pytest.approx(total)
    assert model.residual_ == pytest.approx(total - np.abs(model.eigenvalues_).sum())


# What is sent.


@pytest.mark.parametrize("kernel", ["rbf", "poly", "laplacian"])
@pytest.mark.parametrize(
    ("n", "widths"), [(40, (3, 5)), (40, (3, 19, 20, 60)), (12, (30, 2)), (9, (8,))]
)
def test_floats_are_the_shorter_of_pairs_and_coordinates(kernel, n, widths):
    rng = np.random.default_rng(0)
    parts = em.Partitioned(columns=[rng.normal(size=(n, w)) for w in widths])
    model = em.VFedAKPCA(1, kernel=kernel, **KERNELS[kernel])
    forecast = em.plan(model, parts)
    report = quiet(model, parts).report_

    def floats(width):
        pairs = n * (n + 1) // 2 if kernel == "poly" else n * (n - 1) // 2
        rank = min(width, n if kernel == "poly" else n - 1)
        return pairs if kernel == "laplacian" else min(pairs, n * rank)

    assert report.by_party == {f"party-{i}": floats(w) for i, w in enumerate(widths)}
    assert (report.floats_down, report.rounds) == (0, 1)
    for field in ("floats_up", "floats_down", "rounds", "by_party", "by_step", "reveals"):
        assert getattr(forecast, field) == getattr(report, field), field


def test_more_than_shipping_every_column_is_warned_about():
    parts = em.split(BREAST[:100], 4, by="columns")
    with pytest.warns(em.CostWarning, match="19,800 floats were sent where .* 3,000"):
        em.VFedAKPCA(2, kernel="laplacian", gamma=0.01).fit(parts)
    with pytest.warns(em.CostWarning, match="floats were sent where"):
        em.VFedAKPCA(2, gamma="median").fit(parts)


@pytest.mark.parametrize(("kernel", "kind"), [("rbf", "distances"), ("poly", "gram")])
def test_what_leaves_is_declared_and_can_be_forbidden(kernel, kind):
    X = BREAST[:60]
    report = em.VFedAKPCA(2, kernel=kernel, gamma=0.02).fit(em.split(X, 3, by="columns")).report_
    assert set(report.reveals["party-0"]) == {kind, "counts", "hashes"}
    policies = [None, em.Policy(allow={"scores", "eigenvectors", "counts", "hashes"})]
    parts = em.split(X, 2, by="columns", policies=policies)
    with pytest.raises(PolicyRefusal, match=f"party-1.*{kind}"):
        em.VFedAKPCA(2, kernel=kernel, gamma=0.02).fit(parts)


# Landmarks.


@pytest.mark.parametrize("kernel", ["rbf", "poly", "laplacian"])
@pytest.mark.parametrize("center", [True, False])
def test_landmarks_approach_the_exact_answer_and_bound_what_they_leave_out(kernel, center):
    X, new = BREAST[:200], BREAST[200:230]
    parts = em.split(X, 3, by="columns")
    values, scores, K = central(X, new, kernel, 2, center)
    errors = []
    for q in (10, 40, 160):
        model = em.VFedAKPCA(2, kernel=kernel, **KERNELS[kernel], n_landmarks=q, center=center)
        assert f"in the span of {q} of them" in str(quiet(model, parts).report_)
        errors.append(aligned_error(model.transform(new), scores))
        assert (model.eigenvalues_ <= values * (1 + 1e-9)).all()
        assert model.total_variance_ >= np.trace(K) * (1 - 1e-9)
        assert model.residual_ >= np.trace(K) - values.sum() - 1e-8
        np.testing.assert_allclose(
            model.transform(X), model.model_.fusion.components.scores, atol=1e-7
        )
    assert errors[2] < errors[0]
    assert errors[2] < (0.5 if kernel == "poly" else 0.05)  # outliers make "poly" hard


def test_every_sample_a_landmark_is_exact():
    X = BREAST[:80]
    model = em.VFedAKPCA(2, gamma=0.02, n_landmarks=80).fit(em.split(X, 3, by="columns"))
    exact = em.VFedAKPCA(2, gamma=0.02).fit(em.split(X, 3, by="columns"))
    np.testing.assert_array_equal(model.eigenvalues_, exact.eigenvalues_)


@pytest.mark.parametrize("kernel", ["rbf", "poly"])
def test_landmark_traffic_is_planned_to_the_float(kernel):
    X = np.random.default_rng(0).normal(size=(60, 40))
    parts = em.split(X, 3, by="columns")
    for q in (5, 13, 30):
        model = em.VFedAKPCA(2, kernel=kernel, gamma=0.01, n_landmarks=q)
        forecast = em.plan(model, parts)
        report = quiet(model, parts).report_
        assert forecast.by_party == report.by_party
        each = 60 * (q + (kernel == "poly"))
        assert report.by_party["party-2"] == (each if q <= 13 else 60 * 13)


def test_too_many_samples_for_all_pairs_turn_to_landmarks_and_say_so(monkeypatch):
    """The limit is lowered; the estimator, the party and the forecast must agree on it."""
    for module in (column_model, protocol_file):
        monkeypatch.setattr(module, "MOST_KERNEL_SAMPLES", 100, raising=False)
    monkeypatch.setattr("eigenmesh.methods.one_shot.estimator.MOST_KERNEL_SAMPLES", 100)
    monkeypatch.setattr("eigenmesh.methods.one_shot.estimator.N_LANDMARKS", 90)
    monkeypatch.setattr("eigenmesh.methods.vfed.kernel_estimator.MOST_KERNEL_SAMPLES", 100)
    monkeypatch.setattr("eigenmesh.methods.vfed.kernel_estimator.N_LANDMARKS", 90)
    X = BREAST[:150]
    parts = em.split(X, 3, by="columns")
    pooled = KernelPCA(2, kernel="rbf", gamma=0.02, eigen_solver="dense").fit(X)
    for model in (
        em.VFedAKPCA(2, gamma=0.02),
        em.OneShotKPCA(2, kernel="rbf", gamma=0.02),
        em.OneShotKPCA(2, kernel="rbf", gamma=0.02, fusion="distance"),
        em.OneShotKPCA(2, kernel="poly", gamma=0.02),
    ):
        forecast = em.plan(model, parts)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", em.EigenmeshWarning)
            model.fit(parts)
        told = any("150 samples are too many" in str(w.message) for w in caught)
        assert told == (model.shortfall_ > 0.01)
        assert forecast.floats_up == model.report_.floats_up
        assert "in the span of 90" in str(model.report_)
        if isinstance(model, em.VFedAKPCA):
            assert sin_theta(model.eigenvectors_, pooled.eigenvectors_) < 0.1


@pytest.mark.parametrize(
    "options",
    [
        {"kernel": "rbf", "gamma": 0.01},
        {"kernel": "rbf", "gamma": 0.01, "fusion": "distance"},
        {"kernel": "poly", "gamma": 0.02, "degree": 2},
    ],
    ids=["product", "distance", "poly"],
)
@pytest.mark.parametrize("local_rank", [6, 12])
def test_one_shot_sends_the_same_however_many_samples_there_are(options, local_rank, monkeypatch):
    """The limit is lowered: kinds, floats and nearly the answer stay; so do new samples' scores."""
    X, new = BREAST[:150], BREAST[150:170]
    parts = em.split(X, 3, by="columns")
    whole = quiet(em.OneShotKPCA(3, local_rank=local_rank, **options), parts)
    monkeypatch.setattr("eigenmesh.methods.one_shot.estimator.MOST_KERNEL_SAMPLES", 100)
    monkeypatch.setattr("eigenmesh.methods.one_shot.estimator.N_LANDMARKS", 90)
    model = em.OneShotKPCA(3, local_rank=local_rank, random_state=1, **options)
    plan = em.plan(model, parts)
    model = quiet(model, parts)
    assert model.report_.reveals == whole.report_.reveals
    assert model.report_.floats_up == whole.report_.floats_up == plan.floats_up
    np.testing.assert_allclose(model.eigenvalues_, whole.eigenvalues_, rtol=0.05)
    assert sin_theta(model.eigenvectors_, whole.eigenvectors_) < 0.25
    ours, theirs = model.transform(new), whole.transform(new)
    assert aligned_error(ours, theirs) < 0.25 * np.abs(theirs).max()
    if options["kernel"] == "rbf" and "fusion" not in options:
        fitted = model._fitted_scores(parts)
        assert aligned_error(model.transform(parts), fitted) < 1e-8


# Models.


@pytest.mark.parametrize("options", [{}, {"n_landmarks": 20}, {"kernel": "laplacian"}])
def test_a_saved_model_gives_the_same_scores_and_needs_every_share(options, tmp_path):
    parts = em.split(BREAST[:80], 3, by="columns")
    model = quiet(em.VFedAKPCA(2, gamma=0.02, standardize=True, **options), parts)
    model.save(tmp_path / "m.em", parties=True)
    loaded = em.load(tmp_path / "m.em")
    np.testing.assert_array_equal(loaded.transform(parts), model.transform(parts))
    (tmp_path / "m.share-1.em").unlink()
    with pytest.raises(MissingPartyShare, match="party-1"):
        em.load(tmp_path / "m.em").transform(parts)


def test_a_party_that_leaves_gives_the_kernel_of_the_remaining_columns():
    blocks = np.array_split(BREAST[:80], 3, axis=1)
    faults = [Fault("kill", "party-1", 1)]
    with (
        em.federation(em.Partitioned(columns=blocks), faults=faults, on_loss="survivors") as fed,
        pytest.warns(em.EigenmeshWarning, match="'party-1' has left"),
    ):
        model = em.VFedAKPCA(2, gamma=0.02).fit(fed)
    rest = em.Partitioned(columns=[blocks[0], blocks[2]])
    expected = em.VFedAKPCA(2, gamma=0.02).fit(rest)
    np.testing.assert_allclose(model.eigenvalues_, expected.eigenvalues_, rtol=1e-12)


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        ({"kernel": "linear"}, "kernel is 'linear'.*'poly', 'rbf'"),
        ({"gamma": -1.0}, "gamma is -1.0"),
        ({"degree": 0, "kernel": "poly"}, "degree is 0"),
        ({"n_landmarks": 0}, "n_landmarks is 0"),
        ({"kernel": "sigmoid", "n_landmarks": 10}, "sigmoid.*no landmarks"),
        ({"variant": "other"}, "variant is 'other'"),
    ],
)
def test_wrong_parameters_say_what_is_expected(wrong, match):
    with pytest.raises(em.EigenmeshError, match=match):
        em.VFedAKPCA(**wrong).fit(em.split(BREAST[:60], 3, by="columns"))


# OneShotKPCA shares the code: polynomial kernels by inner products, cut short.


def test_one_shot_poly_is_exact_with_all_coordinates_and_bounded_without():
    X, new = BREAST[:100], BREAST[100:120]
    parts = em.split(X, 3, by="columns")
    options = {"kernel": "poly", "gamma": 0.05, "degree": 3, "coef0": 1.0}
    values, scores, K = central(X, new, "poly", 3)
    exact = quiet(em.OneShotKPCA(3, local_rank=10, **options), parts)
    np.testing.assert_allclose(exact.eigenvalues_, values, rtol=1e-10)
    assert aligned_error(exact.transform(new), scores) < 1e-10
    angles = []
    pooled = np.linalg.eigh(K)[1][:, ::-1][:, :3]
    for rank in (3, 6, 9):
        model = quiet(em.OneShotKPCA(3, local_rank=rank, **options), parts)
        angles.append(sin_theta(model.eigenvectors_, pooled))
        fitted = model.model_.fusion
        gram = model.eigenvectors_.T @ K @ model.eigenvectors_
        off = np.abs(np.diag(gram) - model.eigenvalues_).max()
        assert off <= fitted.error_bound
        assert model.total_variance_ >= np.trace(K) * (1 - 1e-12)
        assert model.residual_ >= np.trace(K) - np.trace(gram) - 1e-8
    assert angles[0] > angles[1] > angles[2]


@pytest.mark.parametrize("degree", [2, 3])
def test_one_shot_poly_error_bound_holds_where_signs_change(degree):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 18))
    options = {"kernel": "poly", "gamma": 0.3, "degree": degree, "coef0": 0.1}
    model = quiet(
        em.OneShotKPCA(2, local_rank=4, center=False, **options), em.split(X, 3, by="columns")
    )
    exact = pairwise_kernels(X, metric="poly", gamma=0.3, degree=degree, coef0=0.1)
    fusion = model.model_.fusion
    estimate = pairwise_kernels(
        fusion.coordinates, metric="poly", gamma=0.3, degree=degree, coef0=0.1
    )
    np.fill_diagonal(estimate, np.diag(exact))
    assert np.linalg.norm(exact - estimate) <= fusion.error_bound
