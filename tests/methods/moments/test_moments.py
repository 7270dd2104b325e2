"""Kernel PCA from summed moments: exact whatever the rows are, and sums are all that leaves."""

import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits
from sklearn.decomposition import KernelPCA
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline

import eigenmesh as em
from eigenmesh.errors import InputError, RankError
from eigenmesh.numerics.explicit_features import ExplicitFeatures, explicit_width
from eigenmesh.numerics.kernels import Kernel

pytestmark = pytest.mark.filterwarnings("ignore::eigenmesh.CostWarning")
SEEDS = range(6)
KERNELS = [
    {"kernel": "linear"},
    {"kernel": "cosine"},
    {"kernel": "poly", "degree": 2, "gamma": 0.3},
    {"kernel": "poly", "degree": 3, "gamma": 0.2, "coef0": 0.5},
    {"kernel": "poly", "degree": 2, "gamma": 0.1, "coef0": 0.0},
]
every_kernel = pytest.mark.parametrize(
    "kernel", KERNELS, ids=lambda k: "-".join(map(str, k.values()))
)


def drawn(seed):
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(60, 400)), int(rng.integers(2, 8))
    X = rng.normal(size=(n, d)) @ rng.normal(size=(d, d)) + rng.normal(size=d)
    return X, em.split(X, n_parties=int(rng.integers(1, 7)), law="power", random_state=seed)


@every_kernel
@pytest.mark.parametrize("seed", range(3))
def test_features_have_the_kernels_values(kernel, seed):
    X, _ = drawn(seed)
    own = Kernel(**{"name": kernel["kernel"], **{k: v for k, v in kernel.items() if k != "kernel"}})
    E = ExplicitFeatures(own, X.shape[1])(X)
    K = own.matrix(X)
    np.testing.assert_allclose(E @ E.T, K, rtol=0, atol=1e-12 * np.abs(K).max())
    assert E.shape[1] == explicit_width(own.name, X.shape[1], own.degree, own.coef0)


@every_kernel
@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("seed", SEEDS)
def test_equals_central_kpca(kernel, center, seed):
    X, parts = drawn(seed)
    model = em.MomentPCA(2, center=center, **kernel).fit(parts)
    if center:
        oracle = KernelPCA(2, **kernel).fit(X)
        values, scores = oracle.eigenvalues_, oracle.transform(X)
    else:
        own = {k: v for k, v in kernel.items() if k != "kernel"}
        values, vectors = np.linalg.eigh(Kernel(kernel["kernel"], **own).matrix(X))
        values, scores = values[:-3:-1], (vectors * np.sqrt(np.maximum(values, 0)))[:, :-3:-1]
    np.testing.assert_allclose(model.eigenvalues_, values, rtol=1e-9)
    apart = np.abs(np.abs(model.transform(X)) - np.abs(scores)).max()
    assert apart < 1e-7 * np.abs(scores).max()
    assert not model.shortfalls_.any()


@pytest.mark.parametrize("seed", SEEDS)
def test_columns_of_any_scale_and_any_mean_keep_their_digits(seed):
    rng = np.random.default_rng(seed)
    scales = 10.0 ** rng.integers(-6, 7, size=5)
    X = (rng.normal(size=(200, 5)) + 10.0 ** rng.integers(0, 5, size=5)) * scales
    parts = em.split(X, n_parties=3, random_state=seed)
    values = em.MomentPCA(None).fit(parts).eigenvalues_
    # The oracle's own rounding is a share of its largest singular value.
    singular = np.linalg.svd(X - X.mean(axis=0), compute_uv=False)
    assert len(values) == 5
    error = np.abs(np.sqrt(values) - singular)
    assert (error < 1e-12 * singular + 1e-14 * singular[0]).all()


@pytest.mark.parametrize("seed", SEEDS)
def test_the_rank_is_that_of_the_rows(seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(80, 3)) @ rng.normal(size=(3, 7)) + 100.0
    X = np.hstack([X, np.full((80, 1), 7e5)])  # a column that does not vary has no component
    parts = em.split(X, n_parties=3, random_state=seed)
    assert len(em.KernelPCA(None).fit(parts).eigenvalues_) == 3
    with pytest.raises(RankError, match="determine 3"):
        em.KernelPCA(4).fit(parts)


@pytest.mark.parametrize("seed", range(3))
def test_float32_and_sparse_rows_give_the_same(seed):
    rng = np.random.default_rng(seed)
    X = (rng.normal(size=(150, 6)) * (rng.random((150, 6)) < 0.4)).astype(np.float32)
    cuts = (40, 90)
    want = em.MomentPCA(3).fit(np.asarray(X, dtype=float))
    for rows in (np.split(X, cuts), [sp.csr_array(part) for part in np.split(X, cuts)]):
        model = em.MomentPCA(3).fit(em.Partitioned(rows=rows))
        np.testing.assert_allclose(model.eigenvalues_, want.eigenvalues_, rtol=1e-10)
        np.testing.assert_allclose(model.transform(X), want.transform(X), atol=1e-5)


@pytest.mark.parametrize("seed", SEEDS)
def test_weights_count_as_copies(seed):
    X, _ = drawn(seed)
    rng = np.random.default_rng(seed)
    cuts = (len(X) // 3, len(X) // 2)
    weights = np.split(rng.integers(0, 4, size=len(X)), cuts)
    parts = em.Partitioned(rows=np.split(X, cuts))
    weighted = em.KernelPCA(2).fit(parts, sample_weight=weights)
    copies = np.repeat(X, np.concatenate(weights), axis=0)
    assert weighted.method_.startswith("moments: ")
    np.testing.assert_allclose(
        weighted.eigenvalues_, KernelPCA(2).fit(copies).eigenvalues_, rtol=1e-9
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_the_ledger_is_the_formula(seed):
    X, parts = drawn(seed)
    s, d = len(parts.names), X.shape[1]
    report = em.MomentPCA(2).fit(parts).report_
    assert report.floats_up == s * (d * (d + 1) // 2 + d)
    assert report.floats_down == s * d
    assert report.rounds == 3
    assert set().union(*report.reveals.values()) == {"counts", "moments"}


@pytest.mark.parametrize("seed", range(3))
def test_a_party_lost_between_mean_and_products_is_in_neither(seed):
    X, _ = drawn(seed)
    parts = em.Partitioned(rows=np.array_split(X, 4), names=list("abcd"))
    rest = np.vstack(
        [part for name, part in zip(parts.names, parts.parts, strict=True) if name != "c"]
    )
    for round_ in (2, 3):  # after the count
        faults = [em.Fault("kill", "c", round=round_)]
        with em.federation(parts, on_loss="survivors", faults=faults) as fed:
            model = em.MomentPCA(2).fit(fed)
        assert model.report_.lost.keys() == {"c"}
        np.testing.assert_allclose(
            model.eigenvalues_, KernelPCA(2).fit(rest).eigenvalues_, rtol=1e-9
        )


def test_too_many_features_are_refused_at_the_party():
    X = np.random.default_rng(0).normal(size=(30, 20))
    with pytest.raises(InputError, match="10,626 features.*2,000"):
        em.MomentPCA(2, kernel="poly", degree=4, gamma=0.1).fit(
            em.split(X, n_parties=2, random_state=0)
        )


# Front doors.


@pytest.mark.parametrize("seed", SEEDS)
def test_linear_rows_are_fitted_by_moments_for_all_doors(seed):
    X, parts = drawn(seed)
    y = [part[:, 0] ** 2 + part.sum(axis=1) for part in parts.parts]
    k = min(2, X.shape[1])
    kpca = em.KernelPCA(k).fit(parts)
    ridge = em.KernelPCRegressor(k, alpha=0.5, kernel="linear").fit(parts, y)
    for door in (kpca, ridge):
        assert door.method_.startswith("moments: ")
        assert set().union(*door.report_.reveals.values()) <= {"counts", "moments"}
        assert door.shortfall_ == 0
    pooled, targets = np.vstack(parts.parts), np.concatenate(y)
    oracle = make_pipeline(KernelPCA(k), Ridge(0.5)).fit(pooled, targets)
    np.testing.assert_allclose(
        np.concatenate(ridge.predict(parts)), oracle.predict(pooled), atol=1e-7 * np.ptp(targets)
    )
    back = kpca.inverse_transform(kpca.transform(X))
    assert back.shape == X.shape
    full = em.KernelPCA(None).fit(parts)
    np.testing.assert_allclose(full.inverse_transform(full.transform(X)), X, atol=1e-8)


@pytest.mark.parametrize("seed", range(3))
def test_clusters_of_linear_rows_come_from_moments_and_their_inertia_is_exact(seed):
    X, _ = drawn(seed)
    parts = em.split(X, n_parties=3, random_state=seed)
    clusters = em.KernelKMeans(3, kernel="linear", random_state=seed).fit(parts)
    assert clusters.method_.startswith("moments: ")
    labels = clusters.predict(X)
    inertia = sum(((X[labels == c] - X[labels == c].mean(axis=0)) ** 2).sum() for c in range(3))
    np.testing.assert_allclose(clusters.inertia_, inertia, rtol=1e-8)
    np.testing.assert_allclose(-clusters.score(X), inertia, rtol=1e-8)
    every = em.KernelKMeans(3, kernel="linear", n_eigenvectors=9, random_state=seed).fit(parts)
    best = KMeans(3, n_init=10, random_state=0).fit(X).inertia_
    assert every.inertia_ < 1.1 * best


@pytest.mark.parametrize("share", [0.5, 0.9, 0.999])
def test_a_share_of_the_variance(share):
    X, parts = drawn(4)
    kpca = em.KernelPCA(share).fit(parts)
    ratios = np.cumsum(em.KernelPCA(None).fit(parts).explained_variance_ratio_)
    assert len(kpca.eigenvalues_) == 1 + int(np.argmax(ratios >= share))


@pytest.mark.filterwarnings("ignore::eigenmesh.EigenmeshWarning")
def test_wide_rows_have_too_many_products():
    rng = np.random.default_rng(0)
    wide = em.split(rng.normal(size=(60, 900)), n_parties=3, random_state=0)
    assert em.KernelPCA(2).fit(wide).method_.startswith("diskpca: ")
    plan = em.plan(em.KernelPCA(2), wide)
    assert plan.method.startswith("diskpca: ")
    tall = em.split(rng.normal(size=(4000, 300)), n_parties=3, random_state=0)
    assert em.plan(em.KernelPCA(2), tall).method.startswith("moments: ")


@pytest.mark.parametrize("standardize", [False, True])
@pytest.mark.parametrize("kernel", ["linear", "poly"])
def test_random_splits_of_pixels_that_some_party_never_inks_are_of_one_unit(kernel, standardize):
    X = load_digits().data
    preparation = em.Preparation(standardize=True) if standardize else None
    how = {"kernel": kernel, "degree": 2, "coef0": 0.0, "preparation": preparation}
    model = em.KernelPCA(2, method="moments", **how)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="columns of one name")
        for seed in range(6):
            rows = np.random.default_rng(seed).choice(len(X), 400, replace=False)
            model.fit(em.split(X[rows][:, :32], 2 + seed, random_state=seed))


_LINEAR, _QUADRATIC = {"kernel": "linear"}, {"kernel": "poly", "degree": 2}


@pytest.mark.parametrize(
    ("options", "standardize"),
    [
        (_LINEAR, False),
        (_LINEAR, True),
        (_LINEAR | {"center": False}, False),
        (_LINEAR | {"center": False}, True),
        (_QUADRATIC, False),
        (_QUADRATIC, True),
        (_QUADRATIC | {"coef0": 0.0}, False),  # squares of standardised columns have no unit
    ],
)
def test_a_column_in_other_units_is_named_with_its_party(options, standardize):
    rng = np.random.default_rng(5)
    parts = [
        np.c_[rng.gamma(8, 0.6, 150), rng.normal(37, 0.5, 150), rng.normal(size=(150, 2))]
        for _ in "abc"
    ]
    frames = [pd.DataFrame(X, columns=["glucose", "temperature", "u", "v"]) for X in parts]
    names = ["east", "north", "south"]
    preparation = em.Preparation(standardize=True) if standardize else None
    model = em.KernelPCA(2, method="moments", gamma=0.1, preparation=preparation, **options)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="columns of one name")
        model.fit(em.Partitioned(rows=frames, names=names))
    frames[1]["glucose"] *= 18.0
    with pytest.warns(em.EigenmeshWarning, match="column 'glucose' of party 'north' is 1.* times"):
        model.fit(em.Partitioned(rows=frames, names=names))
