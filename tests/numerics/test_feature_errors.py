"""By how much random features are off, as other features say and as the kernel matrix does."""

import numpy as np
import pytest

import eigenmesh as em
from eigenmesh.numerics.feature_errors import check_features, check_width
from eigenmesh.numerics.kernels import Kernel

pytestmark = pytest.mark.filterwarnings("ignore::eigenmesh.EigenmeshWarning")
KERNELS = ("rbf", "laplacian", "poly", "cosine", "linear", "arc-cosine")
KINDS = ("normal", "uniform", "heavy", "clusters", "shifted")


def drawn(name, seed):
    """Rows at nodes, their kernel and the parameters of a fit."""
    rng = np.random.default_rng((seed, KERNELS.index(name)))
    n, d, kind = int(rng.choice([80, 200, 300])), int(rng.choice([1, 2, 6, 20])), KINDS[seed % 5]
    X = rng.random((n, d)) if kind == "uniform" else rng.normal(size=(n, d))
    if kind == "heavy":
        X = rng.standard_t(2, size=(n, d))
    if kind == "clusters":
        X += 4 * rng.normal(size=(5, d))[rng.integers(5, size=n)]
    if kind == "shifted":
        X += 100.0 if name in ("rbf", "laplacian") else 1.0
    if seed % 3 == 0:
        X = X[np.argsort(X[:, 0])]
    gamma = (
        None if name in ("cosine", "linear", "arc-cosine") else float(rng.choice([0.1, 1.0])) / d
    )
    degree = 1 if name == "arc-cosine" else 2
    averaging = "gossip" if seed % 4 == 1 else "tree"
    n_nodes = int(rng.choice([4, 6, 9] if averaging == "gossip" else [4, 9, 20]))
    nodes = em.Partitioned(rows=np.array_split(X, n_nodes))
    how = {"kernel": name, "gamma": gamma, "degree": degree, "topology": "ring"}
    how |= {"averaging": averaging, "random_state": seed}
    return X, nodes, Kernel(name, gamma, degree, 1.0), how


def eigenvalues(kernel, X, k):
    K = np.asarray(kernel.matrix(X))
    return np.linalg.eigvalsh(K - K.mean(axis=0) - K.mean(axis=1)[:, None] + K.mean())[::-1][:k]


@pytest.mark.parametrize("name", KERNELS)
def test_what_is_said_of_random_features_holds_in_nine_of_ten_drawn_graphs(name):
    near, silent = [], 0
    for seed in range(15):
        X, nodes, kernel, how = drawn(name, seed)
        k = min(2, X.shape[1]) if name in ("linear", "cosine", "arc-cosine") else 2
        if name == "cosine" and X.shape[1] == 1:
            continue  # two points, whatever the rows are
        model = em.GossipKPCA(k, **how, features="random", n_features=60, accuracy=0.01).fit(nodes)
        true = eigenvalues(kernel, X, k)
        off = np.abs(model.eigenvalues_ - true) / np.maximum(model.eigenvalues_, true)
        claim, most = model.shortfall_, float(off.max())
        near.append(abs(claim - most) <= 0.002 or most / 2 <= claim <= 2 * most)
        claims = model.shortfalls_ + 2 * model.shortfall_error_
        silent += most > 0.01 and claims.max() <= 0.01
    assert not silent
    assert np.mean(near) >= 0.8  # of all kernels together nine of ten, as measured elsewhere


@pytest.mark.parametrize("name", ["rbf", "laplacian"])
@pytest.mark.parametrize("d", [1, 3, 8])
def test_products_of_the_other_features_are_the_kernels_values_in_the_mean(name, d):
    kernel, X = Kernel(name, 0.5 / d), np.random.default_rng(d).normal(size=(30, d))
    E = [embed(X) for seed in range(200) for embed in check_features(kernel, d, seed)]
    mean = sum(features @ features.T for features in E) / len(E)
    np.testing.assert_allclose(mean, kernel.matrix(X), atol=0.03)


@pytest.mark.parametrize("name", ["poly", "linear"])
def test_kernels_of_few_dimensions_are_written_out(name):
    kernel, X = Kernel(name, 0.3, 2, 1.0), np.random.default_rng(0).normal(size=(20, 5))
    (embed,) = check_features(kernel, 5, 0)
    E = embed(X)
    assert E.shape[1] == check_width(name, 5, 2, 1.0)
    np.testing.assert_allclose(E @ E.T, kernel.matrix(X), rtol=1e-10)


@pytest.mark.parametrize("averaging", ["tree", "gossip"])
def test_the_plan_counts_the_look_of_random_features(averaging):
    _, nodes, _, how = drawn("rbf", 1)
    model = em.GossipKPCA(
        2, **{**how, "averaging": averaging}, features="random", n_features=40, accuracy=0.9
    )
    plan, fitted = em.plan(model, nodes), model.fit(nodes).report_
    assert plan.floats_up + plan.floats_down == fitted.floats_up + fitted.floats_down
