"""DisKPCA: exact in the limit, near optimal at its budget, and accounted for to the float."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.decomposition import KernelPCA
from sklearn.metrics.pairwise import pairwise_kernels
from sklearn.preprocessing import StandardScaler

import eigenmesh as em
from eigenmesh.engines.faulty import Fault
from eigenmesh.errors import PartyLost, PolicyRefusal, RankError
from eigenmesh.metrics import aligned_error
from eigenmesh.numerics.mean_outside import MARGIN

DIGITS = load_digits().data / 16
KERNELS = {
    "linear": {"kernel": "linear"},
    "rbf": {"kernel": "rbf", "gamma": 0.05},
    "flat rbf": {"kernel": "rbf", "gamma": 5e-5},
    "poly": {"kernel": "poly", "gamma": 1.0, "degree": 2, "coef0": 0.0},
    "poly with offset": {"kernel": "poly", "gamma": 0.1, "degree": 3, "coef0": 1.0},
    "laplacian": {"kernel": "laplacian", "gamma": 0.05},
    "cosine": {"kernel": "cosine"},
    "arc-cosine 0": {"kernel": "arc-cosine", "degree": 0},
    "arc-cosine 1": {"kernel": "arc-cosine", "degree": 1},
    "arc-cosine 2": {"kernel": "arc-cosine", "degree": 2},
}
CHOICES = ["diskpca", "uniform", "leverage", "rpcholesky", "centroids"]


def power_law(X, parties=20, seed=0):
    return em.split(X, parties, law="power", exponent=2.0, random_state=seed)


def cross_kernel(kernel, X, Y):
    """By scikit-learn, or by Cho and Saul's formula; neither shares code with ours."""
    if kernel["kernel"] == "arc-cosine":
        return arc_cosine(X, Y, kernel["degree"])
    names = {key: value for key, value in kernel.items() if key != "kernel"}
    return pairwise_kernels(X, Y, metric=kernel["kernel"], **names)


def arc_cosine(X, Y, order):
    lengths = np.outer(np.linalg.norm(X, axis=1), np.linalg.norm(Y, axis=1))
    cosine = np.clip(X @ Y.T / lengths, -1, 1)
    cosine[cosine > 1 - 1e-14] = 1.0  # a row with itself
    angle = np.arccos(cosine)
    J = {
        0: np.pi - angle,
        1: np.sin(angle) + (np.pi - angle) * cosine,
        2: 3 * np.sin(angle) * cosine + (np.pi - angle) * (1 + 2 * cosine**2),
    }[order]
    return lengths**order * J / np.pi


def kernel_matrix(kernel, X, center=False):
    K = cross_kernel(kernel, X, X)
    return K - K.mean(axis=0) - K.mean(axis=1)[:, None] + K.mean() if center else K


def true_residual(model, kernel, X, center):
    """What orthonormal components leave of the (centred) kernel matrix's trace."""
    C, Y = model.model_.coefficients, np.asarray(model.landmarks_, dtype=np.float64)
    np.testing.assert_allclose(C.T @ kernel_matrix(kernel, Y) @ C, np.eye(C.shape[1]), atol=1e-5)
    Z = cross_kernel(kernel, X, Y) @ C
    captured = np.square(Z - Z.mean(axis=0) if center else Z).sum()
    return np.trace(kernel_matrix(kernel, X, center)) - captured


def optimal_residual(kernel, X, k):
    K = kernel_matrix(kernel, X)
    return np.trace(K) - np.linalg.eigvalsh(K)[::-1][:k].sum()


# 1. The central oracle.


@pytest.mark.parametrize("parties", [1, 2, 7])
@pytest.mark.parametrize("name", KERNELS)
def test_equals_central_kpca_when_every_row_is_a_landmark(name, parties):
    X, X_new = DIGITS[:250], DIGITS[250:320]
    model = em.DisKPCA(4, **KERNELS[name], n_landmarks=250).fit(
        em.split(X, parties, random_state=0)
    )
    kernel = KERNELS[name]
    central = KernelPCA(4, kernel="precomputed", eigen_solver="dense")
    central.fit(kernel_matrix(kernel, X))
    expected = central.transform(cross_kernel(kernel, X_new, X))
    np.testing.assert_allclose(model.eigenvalues_, central.eigenvalues_, rtol=1e-10)
    assert aligned_error(model.transform(X_new), expected) < 1e-10
    trace = np.trace(kernel_matrix(kernel, X, center=True))
    assert model.total_variance_ == pytest.approx(trace, rel=1e-10)
    assert model.residual_error_ == 0.0


def test_duplicated_rows_and_data_far_from_the_origin_are_no_trouble():
    X = np.vstack([DIGITS[:100], DIGITS[:100]]) + 1000.0
    model = em.DisKPCA(3, kernel="rbf", gamma=0.05, n_landmarks=200).fit(power_law(X, 5))
    central = KernelPCA(3, kernel="rbf", gamma=0.05, eigen_solver="dense").fit(X)
    np.testing.assert_allclose(model.eigenvalues_, central.eigenvalues_, rtol=1e-8)


def test_sparse_rows_give_the_model_of_dense_ones():
    X = sp.random_array((300, 40), density=0.1, random_state=np.random.default_rng(0), format="csr")
    options = {"kernel": "poly", "gamma": 1.0, "degree": 2, "n_landmarks": 60, "random_state": 0}
    sparse = em.DisKPCA(3, **options).fit(power_law(X, 6))
    dense = em.DisKPCA(3, **options).fit(power_law(X.toarray(), 6))
    np.testing.assert_allclose(sparse.eigenvalues_, dense.eigenvalues_, rtol=1e-9)
    assert sp.issparse(sparse.landmarks_)
    assert sparse.report_.floats_up < dense.report_.floats_up


# 2. Error against budget, and claims recomputed.


def test_error_falls_as_the_number_of_landmarks_grows():
    X = DIGITS[:600]
    optimal = optimal_residual(KERNELS["rbf"], X, 5)
    ratios = [
        em.DisKPCA(5, **KERNELS["rbf"], n_landmarks=q, center=False, random_state=0)
        .fit(power_law(X))
        .residual_
        / optimal
        for q in (20, 60, 200)
    ]
    assert ratios[0] > ratios[1] > ratios[2] > 1 - 1e-9
    assert ratios[2] < 1.05


def heavy_tailed(seed):
    """A few rows carry most of a polynomial kernel's variance, as in counts of words."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(1500, 30)) * rng.pareto(1.5, size=(1500, 1))


@pytest.mark.parametrize("seed", range(3))
def test_leverage_and_distance_find_the_rows_that_matter(seed):
    X, kernel = heavy_tailed(seed)[:1000], KERNELS["poly"]
    optimal = optimal_residual(kernel, X, 10)

    def excess(landmarks):
        model = em.DisKPCA(
            10, **kernel, n_landmarks=100, landmarks=landmarks, center=False, random_state=seed
        ).fit(power_law(X, seed=seed))
        return model.residual_ / optimal - 1, model.leverage_skew_

    uniform, _ = excess("uniform")
    for choice in ("diskpca", "rpcholesky"):
        ours, skew = excess(choice)
        assert ours <= 0.02
        assert ours <= 0.05 * uniform
        assert skew is None or skew > 20


def test_centroids_are_better_landmarks_than_rows_on_flat_data_and_no_row_leaves():
    X = DIGITS
    kernel = {"kernel": "rbf", "gamma": "mean-distance"}
    models = {
        choice: em.DisKPCA(
            10, **kernel, n_landmarks=60, landmarks=choice, center=False, random_state=0
        ).fit(power_law(X, 5))
        for choice in ("uniform", "centroids")
    }
    assert models["centroids"].residual_ < 0.97 * models["uniform"].residual_
    for revealed in models["centroids"].report_.reveals.values():
        assert "rows" not in revealed
    rows = {row.tobytes() for row in X}
    assert not any(c.tobytes() in rows for c in np.asarray(models["centroids"].landmarks_))


@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize(
    ("name", "choice"),
    [*((name, "diskpca") for name in KERNELS), *(("laplacian", other) for other in CHOICES[1:])],
)
def test_claims_are_exact_or_estimates_as_stated(name, choice, center):
    X, kernel = DIGITS[:300], KERNELS[name]
    model = em.DisKPCA(
        4, **kernel, n_landmarks=40, landmarks=choice, center=center, random_state=0
    ).fit(power_law(X, 6))
    true = true_residual(model, kernel, X, center)
    rounding = 1e-9 * np.trace(kernel_matrix(kernel, X))
    estimate = model.residual_ - MARGIN * model.residual_error_
    assert abs(estimate - true) <= 4 * model.residual_error_ + rounding
    assert model.total_variance_ - model.eigenvalues_.sum() == pytest.approx(model.residual_)
    notes = " ".join(model.report_.notes)
    if model.residual_error_:
        assert f"standard errors of {model.residual_error_:.2g} above its estimate" in notes
    else:
        assert "exact for these components" in notes
    # A linear kernel of few columns sends the mean itself.
    assert bool(model.residual_error_) == (center and name not in ("linear", "cosine"))


def hard(X, what):
    return {
        "duplicated rows": np.vstack([X, X]),
        "far from the origin": X + 100.0,
        "float32": X.astype(np.float32),
        "float32, far": (X + 100.0).astype(np.float32),
        "constant columns": np.hstack([X, np.ones((len(X), 3))]),
    }[what]


HARD = ("duplicated rows", "far from the origin", "float32", "float32, far", "constant columns")


@pytest.mark.parametrize(  # every kernel and every kind of rows is centred and not
    ("name", "what", "center"),
    [
        (name, what, (i + j) % 2 == 0)
        for i, name in enumerate(("rbf", "flat rbf", "poly", "laplacian", "arc-cosine 1", "linear"))
        for j, what in enumerate(HARD)
    ],
)
@pytest.mark.filterwarnings("ignore::eigenmesh.errors.EigenmeshWarning")
def test_hard_data_raise_nothing_and_the_claim_stays_true(name, what, center):
    X, kernel = hard(DIGITS[:200], what), KERNELS[name]
    options = {"n_landmarks": 140, "center": center, "random_state": 0}
    model = em.DisKPCA(3, **kernel, **options).fit(power_law(X, 6))
    X = X.astype(np.float64)
    true = true_residual(model, kernel, X, center)
    assert abs(model.residual_ - true) <= 1e-3 * np.trace(kernel_matrix(kernel, X))


@pytest.mark.parametrize("choice", CHOICES)
def test_the_trace_that_the_landmarks_leave_is_that_of_their_nystrom_approximation(choice):
    X, kernel = DIGITS[:300], KERNELS["rbf"]
    model = em.DisKPCA(3, **kernel, n_landmarks=40, landmarks=choice, random_state=0)
    model.fit(power_law(X, 6))
    Y = np.asarray(model.landmarks_)
    K_XY = cross_kernel(kernel, X, Y)
    left = np.trace(kernel_matrix(kernel, X)) - np.trace(
        K_XY @ np.linalg.pinv(kernel_matrix(kernel, Y), rcond=1e-10) @ K_XY.T
    )
    assert model.landmark_residual_ == pytest.approx(left, rel=1e-6)
    assert f"{left:.3g}" in " ".join(model.report_.notes)


def test_more_rpcholesky_landmarks_leave_less_trace():
    X = DIGITS[:400]
    left = [
        em.DisKPCA(3, **KERNELS["rbf"], n_landmarks=q, landmarks="rpcholesky", random_state=0)
        .fit(power_law(X, 6))
        .landmark_residual_
        for q in (20, 60, 180, 400)
    ]
    assert left[0] > left[1] > left[2] > left[3]
    assert left[3] < 1e-6 * len(X)


@pytest.mark.parametrize("seed", range(3))
def test_leverage_skew_is_of_the_rank_asked_for(seed):
    X, kernel = heavy_tailed(seed)[:500], KERNELS["poly"]
    model = em.DisKPCA(5, **kernel, center=False, random_state=seed).fit(power_law(X))
    vectors = np.linalg.eigh(kernel_matrix(kernel, X))[1][:, -5:]
    leverage = np.square(vectors).sum(axis=1)
    assert model.leverage_skew_ == pytest.approx(leverage.max() / leverage.mean(), rel=0.1)
    assert "rank 5" in " ".join(model.report_.notes)


def test_the_skew_of_a_narrow_linear_kernel_is_exact():
    X = heavy_tailed(0)[:300]
    model = em.DisKPCA(4, n_landmarks=20, embedding_dim=30, center=False, random_state=0)
    model.fit(power_law(X, 6))
    leverage = np.square(np.linalg.svd(X)[0][:, :4]).sum(axis=1)
    assert model.leverage_skew_ == pytest.approx(leverage.max() / leverage.mean(), rel=1e-9)
    assert "times the mean, exact" in " ".join(model.report_.notes)


def test_a_missing_gap_is_warned_about_and_told():
    X = np.vstack([np.eye(6), -np.eye(6)])
    with pytest.warns(em.EigenmeshWarning, match="not determined"):
        model = em.DisKPCA(2, n_landmarks=12).fit(em.split(X, 2, random_state=0))
    assert "not determined" in model.report_.notes[0]


# 3. Landmarks; the ledger is in test_diskpca_ledger.py.


def test_landmarks_are_distinct_and_every_one_is_a_row():
    model = em.DisKPCA(3, kernel="rbf", gamma=0.05, n_landmarks=90, random_state=0)
    model.fit(power_law(DIGITS[:400], 7))
    landmarks = {row.tobytes() for row in np.asarray(model.landmarks_)}
    assert len(landmarks) == 90
    assert landmarks <= {row.tobytes() for row in DIGITS[:400]}


# 5., 6. Disclosure, bad input, lost parties.


def test_a_party_that_keeps_its_rows_can_still_give_centroids():
    X = DIGITS[:400]
    no_rows = em.Policy(allow={"centroids", "gram", "moments", "counts"})
    parts = em.split(X, 4, random_state=0, policies=[no_rows] * 4)
    em.DisKPCA(3, kernel="rbf", gamma=0.05, landmarks="centroids", n_landmarks=20).fit(parts)
    with pytest.raises(PolicyRefusal, match="'rows'") as caught:
        em.DisKPCA(3, kernel="rbf", gamma=0.05, n_landmarks=20).fit(parts)
    assert caught.value.party == "party-0"


def test_a_lost_party_is_named_or_left_out():
    parts = em.split(DIGITS[:300], 4, random_state=0)
    faults = [Fault("kill", party="party-2", round=1)]
    with em.federation(parts, faults=faults) as fed:
        with pytest.raises(PartyLost, match="party-2"):
            em.DisKPCA(2, n_landmarks=30).fit(fed)
    with em.federation(parts, faults=faults, on_loss="survivors") as fed:
        model = em.DisKPCA(2, n_landmarks=300).fit(fed)
    assert "party-2" in model.report_.lost
    rest = np.vstack([part for i, part in enumerate(parts.parts) if i != 2])
    expected = KernelPCA(2, eigen_solver="dense").fit(rest).eigenvalues_
    np.testing.assert_allclose(model.eigenvalues_, expected, rtol=1e-8)


@pytest.mark.parametrize("round_", range(1, 8))
def test_a_party_lost_at_any_round_is_named_and_the_rest_go_on(round_):
    parts = em.split(DIGITS[:300], 4, random_state=0)
    faults = [Fault("kill", party="party-1", round=round_)]
    options = {"kernel": "rbf", "gamma": 0.05, "n_landmarks": 40, "random_state": 0}
    with em.federation(parts, faults=faults) as fed:
        with pytest.raises(PartyLost, match="party-1"):
            em.DisKPCA(2, **options).fit(fed)
    with em.federation(parts, faults=faults, on_loss="survivors") as fed:
        model = em.DisKPCA(2, **options).fit(fed)
    assert set(model.report_.lost) == {"party-1"}
    assert model.model_.n_rows == 225
    rest = np.vstack([part for i, part in enumerate(parts.parts) if i != 1])
    captured = float(np.square(model.transform(rest)).sum())
    assert captured == pytest.approx(model.eigenvalues_.sum(), rel=1e-9)


def test_an_old_draw_never_stands_in_for_a_lost_one():
    """Parties with different landmarks would send sums of one shape that mean nothing together."""
    parts = em.split(DIGITS[:300], 4, random_state=0)
    options = {"kernel": "rbf", "gamma": 0.05, "n_landmarks": 30, "random_state": 0}
    expected = em.DisKPCA(2, **options).fit(parts).eigenvalues_
    with em.federation(parts, on_loss="reuse") as fed:
        np.testing.assert_array_equal(em.DisKPCA(2, **options).fit(fed).eigenvalues_, expected)
    for round_ in (4, 5, 6, 7):
        faults = [Fault("kill", party="party-1", round=round_)]
        with em.federation(parts, faults=faults, on_loss="reuse") as fed:
            with pytest.raises(PartyLost, match="party-1"):
                em.DisKPCA(2, **options).fit(fed)


@pytest.mark.parametrize("round_", range(1, 8))
@pytest.mark.parametrize("exact", [True, False])
def test_a_party_that_misses_a_round_stays_out_of_what_follows(round_, exact):
    parts = em.split(DIGITS[:300], 4, random_state=0)
    faults = [Fault("lose", party="party-1", round=round_)]
    options = {"kernel": "rbf", "gamma": 0.05, "n_landmarks": 40, "random_state": 0}
    with em.federation(parts, faults=faults, on_loss="skip") as fed:
        model = em.DisKPCA(2, **options, exact=exact).fit(fed)
    assert model.report_.dropped == {"party-1": 1}
    covered = parts.parts if model.model_.n_rows == 300 else np.delete(parts.parts, 1, axis=0)
    captured = float(np.square(model.transform(np.vstack(covered))).sum())
    assert captured == pytest.approx(model.eigenvalues_.sum(), rel=1e-9)


def test_more_components_than_landmarks_is_an_error():
    with pytest.raises(RankError, match="20 components"):
        em.DisKPCA(20, kernel="rbf", gamma=0.05, n_landmarks=10).fit(
            em.split(DIGITS[:100], 3, random_state=0)
        )


@pytest.mark.parametrize(
    "wrong",
    [
        {"landmarks": "best"},
        {"kernel": "sigmoid"},
        {"kernel": "sigmoid", "landmarks": "uniform"},
        {"kernel": "poly", "coef0": -1.0, "landmarks": "uniform"},
        {"kernel": "poly", "degree": 2.5, "landmarks": "centroids"},
        {"kernel": "arc-cosine"},
        {"kernel": "arc-cosine", "degree": 0.5},
        {"exact": False, "sketch_size": 0},
        {"n_landmarks": 0},
        {"gamma": -1.0, "kernel": "rbf"},
        {"n_components": 1.5},
        {"embedding_dim": 0},
    ],
)
def test_wrong_parameters_say_what_is_expected(wrong):
    with pytest.raises(em.EigenmeshError, match="expected"):
        em.DisKPCA(**wrong).fit(DIGITS[:50])


def test_columns_are_refused():
    with pytest.raises(em.EigenmeshError, match="rows"):
        em.DisKPCA().fit(em.split(DIGITS[:50], 3, by="columns"))


# Conveniences.


def test_rows_of_parties_come_back_as_a_list_in_their_order():
    X = StandardScaler().fit_transform(load_breast_cancer().data)
    parts = em.split(X, 3, random_state=0)
    model = em.DisKPCA(2, kernel="rbf", gamma="scale", n_landmarks=50, random_state=0).fit(parts)
    scores = model.transform(parts)
    for own, order in zip(scores, parts.order, strict=True):
        np.testing.assert_allclose(own, model.transform(X[order]), atol=1e-12)


def test_a_saved_model_gives_the_same_scores(tmp_path):
    S = sp.csr_array(DIGITS[:200])
    for X in (DIGITS[:200], S):
        model = em.DisKPCA(3, kernel="rbf", gamma=0.05, n_landmarks=30, random_state=0).fit(X)
        model.save(tmp_path / "model.em")
        loaded = em.load(tmp_path / "model.em")
        np.testing.assert_allclose(loaded.transform(X), model.transform(X), atol=1e-13)
        assert loaded.leverage_skew_ == model.leverage_skew_


def test_the_same_seed_gives_the_same_answer_bit_for_bit():
    fits = [
        em.DisKPCA(3, kernel="rbf", gamma=0.05, n_landmarks=30, random_state=4).fit(
            power_law(DIGITS[:300])
        )
        for _ in range(2)
    ]
    np.testing.assert_array_equal(fits[0].eigenvalues_, fits[1].eigenvalues_)


@pytest.mark.filterwarnings("ignore:eigenvalues")
def test_rpcholesky_measures_distances_anew_within_a_draw_and_takes_ten_rounds():
    """Of one party that has all clusters, each in many copies, hardly any is drawn twice."""
    rng = np.random.default_rng(0)
    X = np.repeat(10 * rng.normal(size=(24, 5)), 20, axis=0) + 0.01 * rng.normal(size=(480, 5))
    parts = em.Partitioned(rows=[X[:470], X[470:]])
    model = em.DisKPCA(
        5, kernel="rbf", gamma=0.05, n_landmarks=24, landmarks="rpcholesky", random_state=0
    ).fit(parts)
    distances = cross_kernel({"kernel": "rbf", "gamma": 0.05}, X[::20], model.landmarks_)
    assert np.count_nonzero(distances.max(axis=1) > 0.9) >= 19
    uniform = model.set_params(landmarks="uniform").fit(parts)
    met = cross_kernel({"kernel": "rbf", "gamma": 0.05}, X[::20], uniform.landmarks_)
    assert np.count_nonzero(met.max(axis=1) > 0.9) <= 17
    assert em.plan(model.set_params(landmarks="rpcholesky"), parts).rounds == 10
