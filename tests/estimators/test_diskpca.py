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

DIGITS = load_digits().data / 16
KERNELS = {
    "linear": {"kernel": "linear"},
    "rbf": {"kernel": "rbf", "gamma": 0.05},
    "flat rbf": {"kernel": "rbf", "gamma": 5e-5},
    "poly": {"kernel": "poly", "gamma": 1.0, "degree": 2, "coef0": 0.0},
    "poly with offset": {"kernel": "poly", "gamma": 0.1, "degree": 3, "coef0": 1.0},
}


def power_law(X, parties=20, seed=0):
    return em.split(X, parties, law="power", exponent=2.0, random_state=seed)


def kernel_matrix(kernel, X, center=False):
    """By scikit-learn, which shares no code with ours."""
    names = {key: value for key, value in kernel.items() if key != "kernel"}
    K = pairwise_kernels(X, metric=kernel["kernel"], **names)
    return K - K.mean(axis=0) - K.mean(axis=1)[:, None] + K.mean() if center else K


def optimal_residual(kernel, X, k):
    K = kernel_matrix(kernel, X)
    return np.trace(K) - np.linalg.eigvalsh(K)[::-1][:k].sum()


# 1. The central oracle.


@pytest.mark.parametrize("parties", [1, 2, 7])
@pytest.mark.parametrize("name", KERNELS)
def test_equals_central_kpca_when_every_row_is_a_landmark(name, parties):
    X, X_new = DIGITS[:250], DIGITS[250:320]
    model = em.DisKPCA(4, **KERNELS[name], n_landmarks=250).fit(em.split(X, parties))
    central = KernelPCA(4, **KERNELS[name], eigen_solver="dense").fit(X)
    np.testing.assert_allclose(model.eigenvalues_, central.eigenvalues_, rtol=1e-10)
    assert aligned_error(model.transform(X_new), central.transform(X_new)) < 1e-8


def test_duplicated_rows_and_data_far_from_the_origin_are_no_trouble():
    X = np.vstack([DIGITS[:100], DIGITS[:100]]) + 1000.0
    model = em.DisKPCA(3, kernel="rbf", gamma=0.05, n_landmarks=200).fit(power_law(X, 5))
    central = KernelPCA(3, kernel="rbf", gamma=0.05, eigen_solver="dense").fit(X)
    np.testing.assert_allclose(model.eigenvalues_, central.eigenvalues_, rtol=1e-8)


def test_sparse_rows_give_the_model_of_dense_ones():
    X = sp.random_array((300, 40), density=0.1, rng=np.random.default_rng(0), format="csr")
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


@pytest.mark.parametrize("choice", ["diskpca", "rpcholesky"])
@pytest.mark.parametrize("seed", range(3))
def test_leverage_and_distance_find_the_rows_that_matter(seed, choice):
    X, kernel = heavy_tailed(seed), KERNELS["poly"]
    optimal = optimal_residual(kernel, X, 10)

    def excess(landmarks):
        model = em.DisKPCA(
            10, **kernel, n_landmarks=100, landmarks=landmarks, center=False, random_state=seed
        ).fit(power_law(X, seed=seed))
        return model.residual_ / optimal - 1, model.leverage_skew_

    (ours, skew), (uniform, _) = excess(choice), excess("uniform")
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
@pytest.mark.parametrize("name", KERNELS)
def test_claimed_residual_is_an_upper_bound_of_the_true_one(name, center):
    X = DIGITS[:300]
    model = em.DisKPCA(4, **KERNELS[name], n_landmarks=40, center=center, random_state=0)
    model.fit(power_law(X, 6))
    captured = float(np.square(model.transform(X)).sum())
    true = np.trace(kernel_matrix(KERNELS[name], X, center)) - captured
    scale = np.trace(kernel_matrix(KERNELS[name], X))
    assert true <= model.residual_ + 1e-9 * scale
    if not center:
        assert model.residual_ == pytest.approx(true, abs=1e-9 * scale)


# 3. The ledger.


@pytest.mark.parametrize("choice", ["diskpca", "leverage", "uniform", "rpcholesky"])
def test_floats_equal_the_formula_and_do_not_grow_with_the_rows(choice):
    d, q, k, s = 64, 40, 5, 6
    t = 2 * k
    for n in (300, 900):
        model = em.DisKPCA(
            k, kernel="rbf", gamma=0.05, n_landmarks=q, landmarks=choice, random_state=0
        ).fit(power_law(DIGITS[:n], s))
        leverage = choice in ("diskpca", "leverage")
        up = s * leverage * t * (t + 1) // 2 + q * d + s * (q * (q + 1) // 2 + q)
        down = s * leverage * t * t + (s - 1) * q * d
        assert (model.report_.floats_up, model.report_.floats_down) == (up, down)


@pytest.mark.parametrize("gamma", [0.05, None, "mean-distance", "median"])
@pytest.mark.parametrize("q", [30, 10_000])
@pytest.mark.parametrize("choice", ["diskpca", "leverage", "uniform", "rpcholesky"])
def test_a_plan_foretells_the_report(choice, q, gamma):
    parts = em.split(DIGITS[:400], 5, random_state=0)
    model = em.DisKPCA(
        3, kernel="rbf", gamma=gamma, n_landmarks=q, landmarks=choice, random_state=0
    )
    plan, report = em.plan(model, parts), model.fit(parts).report_
    assert plan.rounds == report.rounds
    assert plan.floats_up == report.floats_up
    assert plan.floats_down == report.floats_down
    kinds = {name: set(own) for name, own in report.reveals.items()}
    assert {name: set(own) for name, own in plan.reveals.items()} == kinds


def test_a_plan_of_centroids_is_an_upper_bound():
    """Clusters that turn out too small give no centroid."""
    parts = em.split(DIGITS[:400], 5, random_state=0)
    model = em.DisKPCA(3, kernel="rbf", gamma=0.05, n_landmarks=30, landmarks="centroids")
    plan, report = em.plan(model, parts), model.fit(parts).report_
    assert plan.rounds == report.rounds
    assert 0.5 * plan.floats_up < report.floats_up <= plan.floats_up
    assert report.floats_down <= plan.floats_down


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
    with em.federation(em.split(DIGITS[:300], 4), on_loss="reuse") as fed:
        with pytest.raises(em.EigenmeshError, match="reuse.*survivors"):
            em.DisKPCA(2, n_landmarks=30).fit(fed)


def test_more_components_than_landmarks_is_an_error():
    with pytest.raises(RankError, match="20 components"):
        em.DisKPCA(20, kernel="rbf", gamma=0.05, n_landmarks=10).fit(em.split(DIGITS[:100], 3))


@pytest.mark.parametrize(
    "wrong",
    [
        {"landmarks": "best"},
        {"kernel": "sigmoid"},
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
