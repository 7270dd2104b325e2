"""Sums in the leading directions of the landmarks' span, and landmarks in few bits."""

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.metrics.pairwise import pairwise_kernels

import eigenmesh as em
from eigenmesh.errors import InputError
from eigenmesh.numerics.kernels import Kernel
from eigenmesh.numerics.landmark_sums import LandmarkSums, Span, landmark_sums, span_residual
from eigenmesh.numerics.landmarks import LandmarkModel
from eigenmesh.numerics.leading_directions import leading_basis
from eigenmesh.numerics.mean_outside import MARGIN

pytestmark = pytest.mark.filterwarnings("ignore::eigenmesh.errors.EigenmeshWarning")
DIGITS = np.pi / 50 * load_digits().data  # on no grid
RBF = {"kernel": "rbf", "gamma": "mean-distance"}
SMALL = {"gram_rank": "auto", "precision": "auto"}


def power_law(X, parties=7, seed=0):
    return em.split(X, parties, law="power", random_state=seed)


def centred(K):
    return K - K.mean(axis=0) - K.mean(axis=1)[:, None] + K.mean()


def drawn_fit(seed, **more):
    """Any rows, kernel, landmarks, rank and bits."""
    rng = np.random.default_rng(seed)
    n, d, k = int(rng.integers(120, 300)), int(rng.integers(3, 20)), int(rng.integers(1, 5))
    X = rng.normal(size=(n, d)) * np.geomspace(1, rng.uniform(0.05, 1), d)
    X += 100 * rng.normal() * (seed % 3 == 0)
    if seed % 2:
        X[: n // 2] += 3 * rng.normal(size=d)
    how = {
        **([RBF] * 3 + [{"kernel": "laplacian", "gamma": "median"}, {"kernel": "linear"}])[
            seed % 5
        ],
        "n_landmarks": int(rng.integers(40, 80)),
        "landmarks": ("uniform", "centroids", "diskpca", "drawn")[seed % 4],
        "gram_rank": "auto" if seed % 3 else int(rng.integers(k + 2, 30)),
        "precision": (8, "exact", 16, 32, "auto")[seed % 5],
        "center": bool(rng.integers(2)),
        "random_state": seed,
    }
    parts = power_law(X, int(rng.integers(2, 7)), seed)
    return em.DisKPCA(k, **how, **more).fit(parts), np.vstack(parts.parts), parts


def kernel_of(model, X, Y):
    gamma = {} if model.kernel == "linear" else {"gamma": model.gamma_}
    return pairwise_kernels(X, Y, metric=model.kernel, **gamma)


def test_claims_hold_in_a_hundred_cases():
    """Against the kernel matrix, and against float64 sums of all rows in the same directions."""
    for seed in range(100):
        model, X, _ = drawn_fit(seed)
        K = kernel_of(model, X, X)
        total = np.trace(centred(K) if model.center else K)
        captured = np.square(model.transform(X)).sum()
        true, rounding = total - captured, 1e-6 * np.trace(K)
        estimate = model.residual_ - MARGIN * model.residual_error_
        assert abs(estimate - true) <= 4.5 * model.residual_error_ + rounding, seed
        kernel = model.model_.kernel
        span = Span.of(kernel, model.landmarks_, model.gram_rank_)
        sums = landmark_sums(kernel, X, np.asarray(model.landmarks_, float), span)
        pooled = LandmarkModel.fit(
            kernel, model.landmarks_, sums, model.n_components, model.center, span
        )
        off = np.abs(model.eigenvalues_ / pooled.eigenvalues - 1).max()
        assert off <= model.report_.precision_error + 1e-7, seed
        assert model.landmark_residual_ == pytest.approx(span_residual(span, sums), abs=rounding)


def test_what_is_missing_is_measured_outside_the_directions_that_are_added_up():
    rng = np.random.default_rng(0)
    for seed in range(6):
        X = rng.normal(size=(500, 12)) * np.geomspace(1, 0.2, 12)
        parts = em.split(X, 4, random_state=seed)
        how = {**RBF, "landmarks": "centroids", "n_landmarks": 80, "random_state": seed}
        model = em.DisKPCA(4, **how, gram_rank=6 + 4 * seed, precision=8, accuracy=0.5).fit(parts)
        exact = np.linalg.eigvalsh(centred(kernel_of(model, X, X)))[::-1][:4]
        true = 1 - model.eigenvalues_ / exact
        assert model.shortfalls_.max() == pytest.approx(true.max(), rel=1.0, abs=2e-3)
        assert (model.shortfalls_ + 4 * model._shortfall_errors + 2e-3 >= true).all()


def test_all_directions_and_exact_landmarks_are_the_answer_without_either():
    X = DIGITS[:300]
    for choice in ("centroids", "diskpca"):
        how = {**RBF, "landmarks": choice, "n_landmarks": 50, "random_state": 0}
        plain = em.DisKPCA(4, **how).fit(power_law(X))
        whole = em.DisKPCA(4, **how, gram_rank=50, precision="exact").fit(power_law(X))
        np.testing.assert_allclose(whole.eigenvalues_, plain.eigenvalues_, rtol=1e-12)
        np.testing.assert_allclose(whole.transform(X), plain.transform(X), atol=1e-12)
        assert whole.report_.floats_up == plain.report_.floats_up


def test_every_row_as_a_landmark_is_not_rounded():
    X = DIGITS[:120]
    how = {**RBF, "n_landmarks": 120, "random_state": 0}
    plain = em.DisKPCA(3, **how).fit(power_law(X))
    few = em.DisKPCA(3, **how, precision=8).fit(power_law(X))
    np.testing.assert_allclose(few.eigenvalues_, plain.eigenvalues_, rtol=1e-12)
    reduced = em.DisKPCA(3, **how, gram_rank=20, precision=8).fit(power_law(X))
    true = np.trace(centred(kernel_of(reduced, X, X))) - np.square(reduced.transform(X)).sum()
    assert reduced.residual_ - MARGIN * reduced.residual_error_ == pytest.approx(
        true, abs=4 * reduced.residual_error_
    )


def test_more_directions_hold_more_and_landmarks_in_eight_bits_lose_nothing():
    parts = power_law(DIGITS[:600])
    how = {**RBF, "landmarks": "centroids", "n_landmarks": 100, "random_state": 0}
    plain = em.DisKPCA(5, **how).fit(parts)
    by_rank = [em.DisKPCA(5, **how, gram_rank=r, precision=8).fit(parts) for r in (8, 20, 50, 100)]
    values = [plain.eigenvalues_.sum(), *(m.eigenvalues_.sum() for m in reversed(by_rank))]
    total = plain.total_variance_
    assert abs(values[0] - values[1]) < 1e-3 * total
    assert values[1] > values[2] > values[3] > values[4] > 0.9 * values[0]


def test_the_ledger_has_the_numbers_of_so_many_directions_and_a_plan_foretells_them():
    parts, d = em.split(DIGITS[:400], 5, random_state=0), DIGITS.shape[1]
    how = {**RBF, "gamma": 0.05, "landmarks": "centroids", "random_state": 0, "precision": 8}
    for q, r in ((40, 12), (60, 30)):
        model = em.DisKPCA(3, **how, n_landmarks=q, gram_rank=r)
        plan, report = em.plan(model, parts), model.fit(parts).report_
        assert report.floats_up == 5 * (r * (r + 1) // 2 + r + 1536) + q * d
        assert report.floats_down == 4 * q * d
        assert (plan.floats_up, plan.floats_down) == (report.floats_up, report.floats_down)
        looking = em.DisKPCA(3, **how, n_landmarks=q, gram_rank=r, accuracy=0.9)
        plan, report = em.plan(looking, parts), looking.fit(parts).report_
        assert (plan.floats_up, plan.floats_down) == (report.floats_up, report.floats_down)
        assert plan.rounds == report.rounds
    by_rule = em.DisKPCA(3, **how, n_landmarks=60, gram_rank="auto")
    assert any(note.startswith("about") for note in em.plan(by_rule, parts).notes)
    assert by_rule.fit(parts).gram_rank_ < 60
    plain = em.DisKPCA(3, **{**how, "precision": "exact"}, n_landmarks=60).fit(parts)
    assert by_rule.report_.bytes < plain.report_.bytes / 4
    assert "8 bits of landmarks" in str(by_rule.report_)


@pytest.mark.parametrize("choice", ["centroids", "drawn"])
def test_masked_sums_and_parties_that_trust_nobody_give_the_same(choice):
    parts = em.split(DIGITS[:300], 4, random_state=0)
    how = {**RBF, "gamma": 0.05, "landmarks": choice, "n_landmarks": 40, "random_state": 0, **SMALL}
    plain = em.DisKPCA(3, **how).fit(parts)
    with em.federation(parts, secure=True) as fed:
        masked = em.DisKPCA(3, **how).fit(fed)
    np.testing.assert_array_equal(masked.landmarks_, plain.landmarks_)
    np.testing.assert_allclose(masked.eigenvalues_, plain.eigenvalues_, rtol=1e-6)


def test_the_front_door_passes_both_on():
    parts = power_law(DIGITS[:500])
    door = em.KernelPCA(4, **RBF, n_landmarks=80, random_state=0, **SMALL).fit(parts)
    inner = em.DisKPCA(4, **RBF, landmarks="centroids", n_landmarks=80, random_state=0, **SMALL)
    inner.set_params(accuracy=0.01).fit(parts)
    np.testing.assert_allclose(door.eigenvalues_, inner.eigenvalues_, rtol=1e-10)
    assert door.report_.precision == inner.report_.precision != ""


def test_the_basis_hangs_on_no_processor():
    """Equal eigenvalues, or ones that hardly differ, are turned by rounding; the basis is not."""
    rng = np.random.default_rng(0)
    Y = rng.normal(size=(60, 5))
    smooth = np.asarray(Kernel("rbf", 0.1).matrix(Y))
    alike = np.eye(60) + 1e-13 * smooth
    for K in (smooth, alike):
        E = rng.normal(size=K.shape)
        moved = K + 1e-15 * (E + E.T)
        difference = leading_basis(moved, 20) - leading_basis(K, 20)
        assert np.abs(difference).max() < 1e-9 * np.abs(leading_basis(K, 20)).max()
    B = leading_basis(smooth, 20)
    np.testing.assert_allclose(B.T @ smooth @ B, np.eye(20), atol=1e-10)
    best = np.linalg.eigvalsh(smooth)[::-1][:20].sum()
    assert np.trace(B.T @ smooth @ smooth @ B) > 0.999 * best


def test_sums_in_few_directions_come_back_as_they_were():
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(200, 4)), rng.normal(size=(30, 4))
    kernel = Kernel("rbf", 0.2)
    span = Span.of(kernel, Y, 10)
    sums = landmark_sums(kernel, X, Y, span)
    message = type("Sums", (), sums.packed(span))
    again = LandmarkSums.unpacked(message, span)
    one, other = (LandmarkModel.fit(kernel, Y, own, 3, True, span) for own in (sums, again))
    np.testing.assert_allclose(one.eigenvalues, other.eigenvalues, rtol=1e-12)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"gram_rank": 2}, "a direction for each component"),
        ({"gram_rank": "many"}, "gram_rank is 'many'"),
        ({"gram_rank": 0}, "gram_rank"),
        ({"gram_rank": 20, "exact": False}, "gram_rank is 20 and exact is False"),
        ({"precision": 8, "exact": False}, "precision is 8 and exact is False"),
        ({"precision": 5}, "precision is 5"),
    ],
)
def test_what_cannot_be_is_said(wrong, words):
    with pytest.raises(InputError, match=words):
        em.DisKPCA(3, **RBF, n_landmarks=30, **wrong).fit(power_law(DIGITS[:100]))
    weights = [np.ones(len(part)) for part in power_law(DIGITS[:100]).parts]
    with pytest.raises(InputError, match="gram_rank is 20 and sample_weight is given"):
        em.DisKPCA(3, **RBF, n_landmarks=30, gram_rank=20).fit(
            power_law(DIGITS[:100]), sample_weight=weights
        )


def test_landmarks_in_few_bits_serve_weights_clusters_and_regression():
    X = DIGITS[:400]
    parts = power_law(X)
    y = [X[rows] @ np.linspace(-1, 1, X.shape[1]) for rows in parts.order]
    weights = [np.linspace(1, 3, len(rows)) for rows in parts.order]
    how = {**RBF, "n_landmarks": 50, "random_state": 0}
    fits = {
        "weights": lambda bits: em.DisKPCA(4, **how, landmarks="centroids", precision=bits).fit(
            parts, sample_weight=weights
        ),
        "clusters": lambda bits: em.KernelKMeans(5, **how, precision=bits).fit(parts),
        "ridge": lambda bits: em.KernelPCRegressor(5, **how, precision=bits).fit(parts, y),
    }
    for name, fit in fits.items():
        plain, few = fit("exact"), fit(8)
        landmarks = few.model_.landmarks.size * len(y)  # up from their owners, down to the others
        saved = plain.report_.bytes - few.report_.bytes
        assert 6 * landmarks < saved, name  # 7 bytes of 8, less a header a message
        assert "8 bits of landmarks" in str(few.report_), name
        np.testing.assert_allclose(few.eigenvalues_, plain.eigenvalues_, rtol=0.01, err_msg=name)
        assert np.abs(few.eigenvalues_ / plain.eigenvalues_ - 1).max() > 0, name
    plain = em.KernelKMeans(5, **how).fit(X)
    of_one_array = em.KernelKMeans(5, **how, precision=4).fit(X)
    np.testing.assert_array_equal(of_one_array.labels_, plain.labels_)
