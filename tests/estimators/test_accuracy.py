"""What landmarks miss: estimated within a factor of two, mended while it can be, and else told."""

import re
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.decomposition import KernelPCA
from sklearn.metrics.pairwise import pairwise_kernels

import eigenmesh as em
from eigenmesh.errors import EigenmeshWarning

KERNELS = ("rbf", "laplacian", "poly", "cosine", "linear")


def drawn_rows(rng, n):
    """Rows of one of a few kinds, in any unit."""
    d = int(rng.integers(2, 12))
    kinds = (
        lambda: rng.normal(size=(n, d)),
        lambda: rng.normal(size=(n, d)) * 0.6 ** np.arange(d),
        lambda: rng.normal(size=(8, d))[rng.integers(8, size=n)] * 3 + rng.normal(size=(n, d)),
        lambda: rng.normal(size=(n, d)) * rng.pareto(2.0, size=(n, 1)),
    )
    return kinds[rng.integers(len(kinds))]() * 10.0 ** rng.integers(-3, 4)


def drawn_case(seed):
    """Rows, options of a fit to them, and how they are split."""
    rng = np.random.default_rng(seed)
    X = drawn_rows(rng, int(rng.integers(250, 500)))
    squared = np.square(X[: len(X) // 2] - X[-(len(X) // 2) :])
    kernel = KERNELS[seed % len(KERNELS)]
    gamma = {
        "rbf": 1 / np.median(squared.sum(axis=1)),
        "laplacian": 1 / np.median(np.sqrt(squared).sum(axis=1)),
        "poly": 1 / np.mean(np.square(X).sum(axis=1)),
    }.get(kernel)
    options = {"kernel": kernel, "gamma": gamma, "degree": 2, "coef0": 1}
    order = np.argsort(X[:, 0]) if rng.random() < 0.4 else rng.permutation(len(X))
    cuts = np.sort(rng.choice(np.arange(10, len(X) - 10), int(rng.integers(1, 6)), replace=False))
    parts = [X[own] for own in np.split(order, cuts) if len(own)]
    return X, options, em.Partitioned(rows=parts), min(int(rng.integers(1, 7)), X.shape[1])


def true_shortfalls(X, options, eigenvalues, center=True):
    values = {name: options[name] for name in ("gamma", "degree", "coef0")}
    K = pairwise_kernels(X, metric=options["kernel"], filter_params=True, **values)
    if center:
        H = np.eye(len(X)) - 1 / len(X)
        K = H @ K @ H
    return 1 - eigenvalues / np.linalg.eigvalsh(K)[::-1][: len(eigenvalues)]


def quietly(estimator, parts):
    with warnings.catch_warnings(record=True) as caveats:
        warnings.simplefilter("always", EigenmeshWarning)
        estimator.fit(parts)
    return estimator, [str(w.message) for w in caveats if "landmarks miss" in str(w.message)]


@pytest.mark.parametrize("center", [True, False])
def test_the_shortfall_is_within_a_factor_of_two_or_two_thousandths(center):
    good = []
    for seed in range(25):
        X, options, parts, k = drawn_case(seed)
        how = {"landmarks": ("centroids", "uniform")[seed % 2], "n_landmarks": 20 + 5 * (seed % 9)}
        kpca = em.KernelPCA(k, **options, **how, center=center, accuracy=1.0, random_state=0)
        try:
            quietly(kpca, parts)
        except em.EigenmeshError:  # more components than so few landmarks determine
            continue
        true = true_shortfalls(X, options, kpca.eigenvalues_, center).max()
        near = abs(kpca.shortfall_ - true) <= 0.002
        good.append(near or true / 2 <= kpca.shortfall_ <= 2 * true)
    assert len(good) > 18
    assert np.mean(good) >= 0.9


def test_within_accuracy_or_said_so():
    alarms, within = 0, 0
    for seed in range(100, 120):
        X, options, parts, k = drawn_case(seed)
        door = em.KernelPCA(k, **options, small_parties="reveal", random_state=0)
        kpca, caveats = quietly(door, parts)
        missing = true_shortfalls(X, options, kpca.eigenvalues_).max()
        assert missing <= kpca.accuracy or caveats, (seed, missing, kpca.shortfall_)
        alarms += missing <= kpca.accuracy and bool(caveats)
        within += missing <= kpca.accuracy
    assert within >= 10
    assert alarms <= 0.05 * within + 1


@pytest.mark.parametrize("landmarks", ["centroids", "uniform", "diskpca", "leverage", "rpcholesky"])
def test_landmarks_double_until_they_are_enough_or_as_many_as_they_may_be(landmarks):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(900, 5))
    parts = em.split(X, 3, random_state=0)
    options = {"kernel": "rbf", "gamma": 0.1, "landmarks": landmarks, "random_state": 0}
    start = {"n_landmarks": 15, "accuracy": 0.01}
    grown = em.DisKPCA(3, **options, **start, max_landmarks=900).fit(parts)
    assert grown.landmarks_.shape[0] in (30, 60, 120, 180)
    assert len(np.unique(grown.landmarks_, axis=0)) == len(grown.landmarks_)
    assert grown.shortfall_ <= 0.01
    pooled = KernelPCA(3, kernel="rbf", gamma=0.1).fit(X)
    np.testing.assert_allclose(grown.eigenvalues_, pooled.eigenvalues_, rtol=0.011)
    with pytest.warns(EigenmeshWarning, match=r"15 landmarks miss about .*: raise n_landmarks"):
        em.DisKPCA(3, **options, **start).fit(parts)


def test_the_look_outside_costs_a_tenth_at_most_and_is_foreseen():
    rng = np.random.default_rng(1)
    for k in (1, 3, 10):
        d = int(rng.integers(4, 40))
        X = rng.normal(size=(700, d)) * 0.5 ** np.arange(d)
        parts = em.split(X, 4, law="power", exponent=1.0, random_state=0)
        for landmarks in ("centroids", "diskpca"):
            options = {"kernel": "rbf", "gamma": 0.3, "landmarks": landmarks, "random_state": 0}
            kpca = em.KernelPCA(k, **options, accuracy=1.0, small_parties="reveal")
            plan, report = em.plan(kpca, parts), kpca.fit(parts).report_
            bare = em.DisKPCA(k, **options, n_landmarks=100).fit(parts).report_
            floats = report.floats_up + report.floats_down
            assert (plan.floats_up, plan.floats_down) == (report.floats_up, report.floats_down)
            assert floats <= 1.1 * (bare.floats_up + bare.floats_down)
            assert report.rounds == plan.rounds == bare.rounds + 1
            assert set(report.reveals["party-1"]) == set(bare.reveals["party-1"])


@pytest.mark.parametrize("secure", [False, True])
@pytest.mark.parametrize(
    "kernel", [{"kernel": "rbf", "gamma": 0.05}, {"kernel": "poly", "gamma": 0.3, "degree": 2}]
)
def test_nobody_looks_where_what_is_missing_is_proven_to_be_little(kernel, secure):
    X = np.random.default_rng(0).normal(size=(400, 4)) * 0.5 ** np.arange(4)
    kind = "uniform" if kernel["kernel"] == "poly" else "centroids"
    options = {**kernel, "n_landmarks": 40, "landmarks": kind, "random_state": 0}
    with em.federation(em.split(X, 4, random_state=0), secure=secure) as fed:
        bare = em.DisKPCA(3, **options).fit(fed)
        model = em.DisKPCA(3, **options, accuracy=0.01, max_landmarks=40)
        plan = em.plan(model, fed)
        model.fit(fed)
        stricter = em.DisKPCA(3, **options, accuracy=1e-6, max_landmarks=40)
        fitted, _ = quietly(stricter, fed)
    assert model.landmark_residual_ <= 1e-3 * model.eigenvalues_[-1]
    assert model.report_.rounds == bare.report_.rounds < plan.rounds
    assert model.report_.floats_up == bare.report_.floats_up < plan.floats_up
    true = true_shortfalls(X, {"degree": 2, "coef0": 1, **kernel}, model.eigenvalues_)
    assert (true <= 1e-3).all()
    assert np.abs(model.shortfalls_ - true).max() <= 5e-4
    assert model.shortfall_ + model.shortfall_error_ >= true.max() - 1e-12
    # What is proven is less than a stricter accuracy, unless nothing but rounding is outside.
    is_asked = fitted.report_.rounds > bare.report_.rounds
    assert is_asked == (model.landmark_residual_ > 1e-6 * model.eigenvalues_[-1])


def test_parties_too_small_for_a_centroid_are_named_with_what_they_hold():
    for seed in range(2):
        rng = np.random.default_rng(seed)
        size, many = int(rng.integers(1, 5)), int(rng.integers(20, 50))
        large = rng.normal(size=(60, 5))
        small = [rng.normal(size=(size, 5)) + 10 for _ in range(many)]
        parts = em.Partitioned(rows=[large, *small])
        with pytest.warns(EigenmeshWarning, match=r"'party-1'.*fewer than 5 rows") as caveats:
            kpca = em.KernelPCA(3, kernel="rbf", small_parties="reveal", random_state=0).fit(parts)
        (text,) = (str(w.message) for w in caveats if "fewer than 5 rows" in str(w.message))
        assert f"and {many - 3} more" in text
        (share,) = re.findall(r"(\d+)% of the variance outside", text)
        assert int(share) > 50
        assert all("rows" not in kinds for kinds in kpca.report_.reveals.values())
        heard = em.KernelPCA(3, kernel="rbf", landmarks="diskpca", random_state=0).fit(parts)
        X = np.vstack(parts.parts)
        pooled = KernelPCA(3, kernel="rbf", gamma=1 / 5).fit(X)
        np.testing.assert_allclose(heard.eigenvalues_, pooled.eigenvalues_, rtol=0.011)


def test_small_parties_that_the_others_stand_for_are_no_reason_to_warn():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 4)) * [3.0, 1.0, 0.3, 0.1]
    parts = em.Partitioned(rows=[X[:380], *np.split(X[380:], 10)])
    options = {"kernel": "rbf", "gamma": 0.02, "small_parties": "reveal"}
    kpca = em.KernelPCA(2, **options, random_state=0).fit(parts)
    pooled = KernelPCA(2, kernel="rbf", gamma=0.02).fit(X)
    np.testing.assert_allclose(kpca.eigenvalues_, pooled.eigenvalues_, rtol=0.011)


def test_rows_beyond_the_exact_limit_are_as_if_exact():
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(2001, 6))
    cauchy = rng.standard_cauchy((2001, 3)) ** 3
    for X, gamma in ((noise, 0.1), (cauchy, 1.0)):
        kpca = em.KernelPCA(4, kernel="rbf", gamma=gamma, random_state=0).fit(X)
        pooled = KernelPCA(4, kernel="rbf", gamma=gamma).fit(X)
        np.testing.assert_allclose(kpca.eigenvalues_, pooled.eigenvalues_, rtol=0.011)
        assert kpca.shortfall_ <= 0.01


def test_all_components_are_told_apart_from_those_that_are_good():
    X = np.random.default_rng(0).normal(size=(2500, 5))
    with pytest.warns(EigenmeshWarning, match=r"n_components is None.*ask for \d+"):
        kpca = em.KernelPCA(kernel="rbf", gamma=0.05, random_state=0).fit(X)
    assert kpca.shortfalls_.shape == kpca.eigenvalues_.shape
    em.KernelPCA(random_state=0).fit(X)  # linear: landmarks span all columns


def test_a_share_of_the_variance_takes_as_many_landmarks_as_its_components_need():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(800, 6)) * 0.7 ** np.arange(6)
    parts = em.split(X, 3, random_state=0)
    kpca = em.KernelPCA(0.8, kernel="rbf", gamma=0.2, landmarks="uniform", random_state=0).fit(
        parts
    )
    pooled = np.linalg.eigvalsh(_centred(pairwise_kernels(X, metric="rbf", gamma=0.2)))[::-1]
    k = 1 + int(np.argmax(np.cumsum(pooled) / pooled.sum() >= 0.8))
    assert abs(len(kpca.eigenvalues_) - k) <= 1
    assert len(kpca.shortfalls_) == len(kpca.eigenvalues_)


def _centred(K):
    return K - K.mean(axis=0) - K.mean(axis=1)[:, None] + K.mean()


def test_an_accuracy_that_is_no_share_is_refused():
    X = np.eye(5)
    for value in (0, -0.1, 1.5, "high", None, True):
        with pytest.raises(em.EigenmeshError, match="accuracy is"):
            em.KernelPCA(2, accuracy=value).fit(X)
    with pytest.raises(em.EigenmeshError, match="exact is False"):
        em.DisKPCA(2, accuracy=0.1, exact=False).fit(X)


def test_a_saved_model_keeps_what_it_misses(tmp_path):
    parts = em.split(np.random.default_rng(0).normal(size=(300, 4)), 3, random_state=0)
    for method in ("auto", "diskpca"):
        kpca = em.KernelPCA(2, kernel="rbf", method=method, random_state=0).fit(parts)
        kpca.save(tmp_path / "model.em")
        loaded = em.load(tmp_path / "model.em")
        np.testing.assert_array_equal(loaded.shortfalls_, kpca.shortfalls_)
        assert (loaded.shortfall_, loaded.accuracy) == (kpca.shortfall_, 0.01)


def test_eigenvalues_below_rounding_are_said_to_be():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3)) * [1e5, 1.0, 1e-6]
    with pytest.warns(EigenmeshWarning, match=r"eigenvalue 2 is .* may be rounding; ask for 1 "):
        parts = em.split(X, 3, random_state=0)
        em.KernelPCA(2, kernel="linear", landmarks="diskpca", random_state=0).fit(parts)


def test_sparse_rows_beyond_the_exact_limit():
    X = sp.random(2100, 40, density=0.1, format="csr", random_state=0)
    kpca = em.KernelPCA(3, kernel="rbf", gamma=2.0, random_state=0).fit(X)
    pooled = KernelPCA(3, kernel="rbf", gamma=2.0).fit(X.toarray())
    np.testing.assert_allclose(kpca.eigenvalues_, pooled.eigenvalues_, rtol=0.011)


def test_huge_rows_beside_small_ones_leave_kernel_values_finite():
    rng = np.random.default_rng(2)
    X = rng.standard_cauchy((900, 5)) ** 3 + 1e9 * rng.normal(size=5)
    kpca, _ = quietly(
        em.KernelPCA(2, kernel="rbf", gamma=0.2, random_state=0), em.split(X, 9, random_state=0)
    )
    assert np.isfinite(kpca.eigenvalues_).all()


@pytest.mark.parametrize("parties", [1, 2, 7])
def test_more_components_than_there_are_end_in_words(parties):
    for seed in range(4):
        X = np.random.default_rng(seed).normal(size=(110, 2))
        with pytest.raises(em.EigenmeshError, match="determine 2; set n_components to at most 2"):
            em.KernelPCA(5, kernel="linear", method="diskpca").fit(
                em.split(X, parties, random_state=0)
            )


def test_a_closer_look_is_said_beforehand_to_the_float():
    for seed in range(4):
        X = np.random.default_rng(seed).normal(size=(900, 4))
        parts = em.split(X, 3, random_state=0)
        options = {"kernel": "rbf", "gamma": 0.1, "n_landmarks": 60 + 10 * seed, "random_state": 0}
        surely = em.KernelPCA(3, **options, accuracy=1.0).fit(parts)
        doubtful = em.KernelPCA(3, **options, accuracy=surely.shortfall_)
        plan = em.plan(doubtful, parts)
        fitted, _ = quietly(doubtful, parts)
        first, both = surely.report_, fitted.report_
        (floats,) = re.findall(r"if the first leaves doubt, takes ([\d,]+) floats", str(plan))
        assert (plan.floats_up, plan.floats_down) == (first.floats_up, first.floats_down)
        more = both.floats_up + both.floats_down - first.floats_up - first.floats_down
        assert more == int(floats.replace(",", ""))
        assert both.rounds == first.rounds + 1


@pytest.mark.parametrize(
    ("kind", "landmarks"),
    [
        ("components", "centroids"),
        ("components", "diskpca"),
        ("clusters", "centroids"),
        ("clusters", "rpcholesky"),
        ("regression", "centroids"),
        ("regression", "uniform"),
    ],
)
def test_doubling_takes_no_more_than_is_said_beforehand(kind, landmarks):
    X = np.random.default_rng(0).normal(size=(900, 5))
    parts = em.split(X, 3, random_state=0)
    options = {"kernel": "rbf", "gamma": 0.3, "landmarks": landmarks, "random_state": 0}
    if kind == "clusters":
        model, y = em.KernelKMeans(3, accuracy=1e-3, **options), ()
    else:
        door = em.KernelPCA if kind == "components" else em.KernelPCRegressor
        model = door(3, accuracy=1e-3, **options)
        y = () if kind == "components" else ([own[:, 0] for own in parts.parts],)
    plan = em.plan(model, parts)
    (most,) = re.findall(r"at most ([\d,]+) floats more", str(plan))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EigenmeshWarning)
        report = model.fit(parts, *y).report_
    more = report.floats_up + report.floats_down - plan.floats_up - plan.floats_down
    assert 0 < more <= int(most.replace(",", ""))


@pytest.mark.parametrize("door", [em.KernelPCA, em.KernelKMeans])
@pytest.mark.parametrize("secure", [False, True])
@pytest.mark.parametrize("keeps", [False, True])
def test_rows_are_a_remedy_only_where_no_known_policy_keeps_them(keeps, secure, door):
    X = np.random.default_rng(0).normal(size=(60, 6))
    kept = em.Policy(allow={"centroids", "moments", "gram", "counts", "aggregate"})
    parts = em.split(X, 4, random_state=0, policies=[kept] * 4 if keeps else None)
    with (
        em.federation(parts, secure=secure) as fed,
        warnings.catch_warnings(record=True) as caught,
    ):
        warnings.simplefilter("always")
        door(12, kernel="rbf", gamma=1.0, random_state=0).fit(fed)
    words = " ".join(str(one.message) for one in caught)
    assert "landmarks miss" in words
    assert ("diskpca" in words) != keeps
    assert ("policies keep rows" in words) == keeps
