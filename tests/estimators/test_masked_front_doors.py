"""Front doors over masked sums: what all rows are, and of no party anything but its size."""

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

import eigenmesh as em

ONLY_SUMS = em.Policy(allow={"aggregate", "counts"})
KERNELS = [
    {"kernel": "rbf", "gamma": "mean-distance"},
    {"kernel": "rbf", "gamma": "scale"},
    {"kernel": "linear"},
    {"kernel": "poly", "degree": 2, "gamma": 0.1},
    {"kernel": "cosine"},
    {"kernel": "arc-cosine", "degree": 1},
]


def groups(seed, n=90, d=3):
    rng = np.random.default_rng(seed)
    labels = rng.integers(3, size=n)
    X = 6 * rng.normal(size=(3, d))[labels] + rng.normal(size=(n, d))
    return X, labels, np.sin(X[:, 0]) + X[:, 1]


def small_parties(X, rng, policy=ONLY_SUMS):
    """Of one to four rows, and one larger."""
    sizes = rng.integers(1, 5, size=7)
    cuts = np.cumsum(sizes)
    return em.Partitioned(rows=np.split(X, cuts), policies=[policy] * 8), cuts


@pytest.mark.parametrize(
    "options", KERNELS, ids=lambda options: "-".join(map(str, options.values()))
)
def test_components_of_parties_that_let_out_sums_alone_are_the_pooled_ones(options):
    X, _, _ = groups(len(options["kernel"]))
    parts, _ = small_parties(X, np.random.default_rng(0))
    with em.federation(parts, secure=True) as fed:
        fitted = em.KernelPCA(2, **options, random_state=0).fit(fed)
    gamma = {} if fitted.gamma_ is None else {"gamma": fitted.gamma_}
    pooled = em.KernelPCA(2, method="exact", **{**options, **gamma}).fit(X)
    assert np.all(fitted.eigenvalues_ >= 0.98 * pooled.eigenvalues_)
    assert np.all(fitted.eigenvalues_ <= (1 + 1e-6) * pooled.eigenvalues_)
    assert np.abs(fitted.shortfalls_ - (1 - fitted.eigenvalues_ / pooled.eigenvalues_)).max() < 0.01
    assert {kind for own in fitted.report_.reveals.values() for kind in own} == {
        "counts",
        "aggregate",
    }


@pytest.mark.parametrize("rule", ["mean-distance", "scale"])
def test_gamma_by_masked_sums_is_that_of_the_pooled_rows(rule):
    X, _, _ = groups(4)
    parts, _ = small_parties(X + 100, np.random.default_rng(4))
    with em.federation(parts, secure=True) as fed:
        fitted = em.KernelPCA(2, kernel="rbf", gamma=rule, random_state=0).fit(fed)
    pooled = em.KernelPCA(2, kernel="rbf", gamma=rule).fit(X + 100)
    assert fitted.gamma_ == pytest.approx(pooled.gamma_, rel=1e-8)


def test_the_median_takes_more_than_sums_and_says_what_does_not():
    X, _, _ = groups(1)
    parts, _ = small_parties(X, np.random.default_rng(1))
    with em.federation(parts, secure=True) as fed:
        with pytest.raises(em.EigenmeshError, match="'mean-distance' or 'scale' do with sums"):
            em.KernelPCA(2, kernel="rbf", gamma="median", random_state=0).fit(fed)


@pytest.mark.parametrize("options", KERNELS[:3], ids=lambda options: options["kernel"])
def test_clusters_of_parties_that_let_out_sums_alone(options):
    X, labels, _ = groups(11)
    parts, _ = small_parties(X, np.random.default_rng(2))
    with em.federation(parts, secure=True) as fed:
        fitted = em.KernelKMeans(3, **options, random_state=0).fit(fed)
        shares = fitted.labels_
    fitted_labels = np.concatenate([np.asarray(own) for own in shares])
    assert adjusted_rand_score(labels, fitted_labels) > 0.9
    assert {kind for own in fitted.report_.reveals.values() for kind in own} == {
        "counts",
        "aggregate",
    }


@pytest.mark.parametrize("options", KERNELS[:3], ids=lambda options: options["kernel"])
def test_regression_of_parties_that_let_out_sums_alone(options):
    X, _, y = groups(3)
    parts, cuts = small_parties(X, np.random.default_rng(3))
    with em.federation(parts, secure=True) as fed:
        fitted = em.KernelPCRegressor(3, **options, random_state=0).fit(fed, np.split(y, cuts))
    pooled = em.KernelPCRegressor(3, **options, random_state=0).fit(X, y)
    assert fitted.score(X, y) == pytest.approx(pooled.score(X, y), abs=0.02)
    assert {kind for own in fitted.report_.reveals.values() for kind in own} == {
        "counts",
        "aggregate",
    }


@pytest.mark.parametrize("seed", range(4))
def test_masked_components_equal_plain_ones(seed):
    X, _, _ = groups(20 + seed)
    rng = np.random.default_rng(seed)
    parts, _ = small_parties(X * 10.0 ** rng.integers(-6, 7), rng, em.Policy())
    fits = []
    for secure in (False, True):
        with em.federation(parts, secure=secure) as fed:
            kpca = em.DisKPCA(2, kernel="rbf", gamma="scale", landmarks="drawn", random_state=0)
            fits.append(kpca.set_params(n_landmarks=25).fit(fed))
    plain, masked = fits
    scale = plain.eigenvalues_[0]
    np.testing.assert_allclose(masked.eigenvalues_, plain.eigenvalues_, atol=1e-6 * scale, rtol=0)
    np.testing.assert_allclose(masked.transform(X), plain.transform(X), atol=1e-5)


@pytest.mark.parametrize("seed", range(3))
def test_the_audit_states_the_largest_weight_of_a_row(seed):
    rng = np.random.default_rng(seed)
    X, _, _ = groups(seed, n=int(rng.integers(30, 200)), d=int(rng.integers(2, 30)))
    parts, _ = small_parties(X, rng)
    door = em.KernelPCA(2, kernel="rbf", gamma=0.05, accuracy=1.0, random_state=0)
    n, d = X.shape
    for account in (em.plan(door, parts, secure=True), _fitted_report(door, parts)):
        (words,) = [text for text in em.audit(account).beyond if "largest weight" in text]
        assert f"over the {n:,} rows" in words
        assert "in a mean is 1/5" in words
        assert f"it is {min(16, d) / n:.2f} on average" in words
    plain = em.audit(em.plan(door.set_params(small_parties="reveal"), parts))
    assert not any("largest weight" in text for text in plain.beyond)


def _fitted_report(door, parts):
    with em.federation(parts, secure=True) as fed:
        return door.fit(fed).report_
