"""Kernels over columns by the front door: the pooled answer, with gamma rules and preparation."""

import warnings

import numpy as np
import pytest
from sklearn.decomposition import KernelPCA
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import StandardScaler

import eigenmesh as em
from eigenmesh.metrics import aligned_error
from eigenmesh.numerics.centring import centre_in_place
from eigenmesh.numerics.kernels import Kernel

RULES = ("scale", "median", "mean-distance", None)


def drawn(seed, offset=0.5):
    """Correlated columns, some rows alike or zero; and a split."""
    rng = np.random.default_rng(seed)
    n, m = int(rng.integers(25, 70)), int(rng.integers(4, 14))
    X = rng.normal(size=(n, 3)) @ rng.normal(size=(3, m)) + rng.normal(size=(n, m)) + offset
    X[3] = X[8]
    X[5] = 2 * X[9]
    return X, int(rng.integers(2, 5))


def pooled_scores(kernel, X, new, k):
    K, K_new = np.array(kernel.matrix(X)), np.array(kernel.matrix(new, X))
    means = K.mean(axis=0)
    K_new = K_new - K_new.mean(axis=1, keepdims=True) - means + K.mean()
    centre_in_place(K)
    values, vectors = np.linalg.eigh(K)
    values, vectors = values[::-1][:k], vectors[:, ::-1][:, :k]
    return values, K_new @ vectors / np.sqrt(values)


@pytest.mark.parametrize("topology", [None, "ring"])
@pytest.mark.parametrize(
    ("name", "degree"), [("cosine", 1), ("arc-cosine", 0), ("arc-cosine", 1), ("arc-cosine", 2)]
)
@pytest.mark.parametrize("seed", range(3))
def test_angles_come_from_summed_inner_products(name, degree, topology, seed):
    X, parties = drawn(seed)
    X[7] = 0.0
    new = np.vstack([X[:5], drawn(seed + 100)[0][:4, :1] + X[:4]])
    values, scores = pooled_scores(Kernel(name, degree=degree), X, new, 3)
    parts = em.split(X, parties, by="columns")
    kpca = em.KernelPCA(3, kernel=name, degree=degree, topology=topology)
    plan = em.plan(kpca, parts)
    with np.errstate(all="raise"):
        kpca = fit(kpca, parts)
    np.testing.assert_allclose(kpca.eigenvalues_, values, rtol=1e-6)
    assert aligned_error(kpca.transform(new), scores) < 1e-6 * np.abs(scores).max()
    fitted = kpca.estimator_.model_.fusion.components.scores
    assert aligned_error(kpca.transform(X), fitted) < 1e-6 * np.abs(fitted).max()
    assert plan.floats_up >= kpca.report_.floats_up
    if topology is not None:
        assert plan.floats_up == kpca.report_.floats_up


def fit(kpca, parts):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*where shipping", em.EigenmeshWarning)
        return kpca.fit(parts)


@pytest.mark.parametrize("seed", range(3))
def test_nodes_agree_on_angles_that_are_all_small(seed):
    X, _ = drawn(seed, offset=100.0)
    values, _ = pooled_scores(Kernel("arc-cosine", degree=0), X, X, 2)
    kpca = em.KernelPCA(2, kernel="arc-cosine", degree=0, topology="ring")
    found = fit(kpca, em.split(X, 4, by="columns"))
    np.testing.assert_allclose(found.eigenvalues_, values, rtol=1e-3)


@pytest.mark.parametrize("name", ["cosine", "arc-cosine"])
def test_angles_with_landmark_samples_stay_below_the_pooled_ones(name):
    X, parties = drawn(11)
    exact = pooled_scores(Kernel(name, degree=1), X, X, 3)[0]
    model = em.VFedAKPCA(3, kernel=name, degree=1, n_landmarks=20, random_state=0)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*in the span of", em.EigenmeshWarning)
        found = fit(model, em.split(X, parties, by="columns"))
    assert "in the span of 20" in str(found.report_)
    assert (found.eigenvalues_ <= exact * (1 + 1e-9)).all()
    missing = 1 - found.eigenvalues_ / exact
    assert (missing <= np.maximum(3 * found.shortfalls_, 0.005)).all()
    fitted = found.model_.fusion.components.scores
    assert aligned_error(found.transform(X), fitted) < 1e-8 * np.abs(fitted).max()


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("kernel", ["rbf", "laplacian", "poly"])
@pytest.mark.parametrize("seed", [0, 1])
def test_gamma_rules_see_columns_as_their_owners_prepare_them(rule, kernel, seed):
    X, parties = drawn(seed)
    X = X * np.geomspace(1, 1000, X.shape[1])
    holes = X.copy()
    holes[np.random.default_rng(seed).random(X.shape) < 0.05] = np.nan
    ready = StandardScaler().fit_transform(SimpleImputer().fit_transform(holes))
    parts = em.split(holes, parties, by="columns", allow_missing=True)
    options = {"kernel": kernel, "gamma": rule, "degree": 2, "random_state": 0}
    kpca = em.KernelPCA(2, standardize=True, fill_missing=0.5, **options)
    plan, kpca = em.plan(kpca, parts), fit(kpca, parts)
    alone = em.KernelPCA(2, method="exact", **options).fit(ready)
    assert kpca.gamma_ == pytest.approx(alone.gamma_, rel=1e-9)
    np.testing.assert_allclose(kpca.eigenvalues_, alone.eigenvalues_, rtol=1e-8)
    assert plan.rounds == kpca.report_.rounds
    if kernel == "rbf":
        other = em.OneShotKPCA(2, kernel="rbf", gamma=rule, standardize=True, fill_missing=0.5)
        assert fit(other, parts).gamma_ == pytest.approx(alone.gamma_, rel=0.1)


@pytest.mark.parametrize("seed", range(3))
def test_cosine_is_scikit_learns(seed):
    X, parties = drawn(seed)
    theirs = KernelPCA(3, kernel="cosine", eigen_solver="dense").fit(X)
    ours = fit(em.KernelPCA(3, kernel="cosine"), em.split(X, parties, by="columns"))
    assert aligned_error(ours.transform(X), theirs.transform(X)) < 1e-8


@pytest.mark.parametrize("seed", range(4))
def test_a_gamma_that_was_chosen_is_not_questioned_while_samples_are_alike_at_all(seed):
    """exp(−γ d²) of .001 to .04 is meant so if γ is somebody's choice; a default is nobody's."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(120, 6))
    gamma = rng.uniform(3.2, 6.9) / 12  # d² is about 12
    parts = em.split(X, 2, by="columns")
    with warnings.catch_warnings():
        warnings.simplefilter("error", em.EigenmeshWarning)
        em.KernelPCA(2, kernel="rbf", gamma=gamma).fit(parts)
    raw = em.split(X * np.sqrt(6 * gamma), 2, by="columns")
    with pytest.warns(em.EigenmeshWarning, match="close to the identity.*standardize=True"):
        em.KernelPCA(2, kernel="rbf").fit(raw)
