"""The score of new samples is minus their inertia in feature space."""

import numpy as np
import pytest
from sklearn.metrics.pairwise import pairwise_kernels

import eigenmesh as em


def drawn(seed, n=90, d=3):
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(4, d)) * 2
    return (centres[rng.integers(4, size=n)] + rng.normal(size=(n, d))) * 10.0 ** rng.integers(
        -2, 3
    )


def feature_space(fit, labels, new, nearest, gamma, kernel="rbf"):
    """Σ ‖φ(x) − μ‖² of new rows with the means of fitted ones."""
    options = {"gamma": gamma} if kernel == "rbf" else {}
    K = pairwise_kernels(fit, metric=kernel, **options)
    across = pairwise_kernels(new, fit, metric=kernel, **options)
    own = pairwise_kernels(new, metric=kernel, **options).diagonal()
    members = (labels == np.arange(labels.max() + 1)[:, None]).astype(float)
    members /= members.sum(axis=1, keepdims=True)
    lengths = np.einsum("cn,cn->c", members @ K, members)
    return own - 2 * (across @ members.T)[np.arange(len(new)), nearest] + lengths[nearest]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("method", ["auto", "exact"])
def test_the_score_is_minus_the_inertia_in_feature_space(seed, method):
    X, new = drawn(seed), drawn(seed, 40)
    model = em.KernelKMeans(3, method=method, n_init="auto", random_state=seed).fit(X)
    w = np.random.default_rng(seed).integers(0, 4, 40).astype(float)
    true = feature_space(X, model.labels_, new, model.predict(new), model.gamma_)
    assert model.score(X) == pytest.approx(-model.inertia_, rel=1e-8)
    assert model.score(new) == pytest.approx(-true.sum(), rel=1e-6)
    assert model.score(new, sample_weight=w) == pytest.approx(-w @ true, rel=1e-6)


@pytest.mark.parametrize("seed", range(4))
def test_parties_have_the_score_of_pooled_rows(seed, tmp_path):
    rng = np.random.default_rng(seed)
    X = drawn(seed, 200)
    parts = em.split(X, int(rng.integers(2, 5)), random_state=seed)
    model = em.KernelKMeans(3, kernel=["rbf", "linear"][seed % 2], random_state=seed)
    model.set_params(n_landmarks=200, landmarks="uniform").fit(parts)
    w = rng.integers(1, 4, 200).astype(float)
    assert model.score(parts) == pytest.approx(-model.inertia_, rel=1e-8)
    assert model.score(X) == pytest.approx(-model.inertia_, rel=1e-8)
    assert model.score(parts, sample_weight=[w[rows] for rows in parts.order]) == pytest.approx(
        model.score(X, sample_weight=w)
    )
    model.save(tmp_path / "model.em")
    assert em.load(tmp_path / "model.em").score(parts) == model.score(parts)
    with pytest.raises(em.EigenmeshError, match="'party-1'.* sample_weight"):
        model.score(
            parts, sample_weight=[np.ones(len(r) - (i == 1)) for i, r in enumerate(parts.order)]
        )


@pytest.mark.filterwarnings("ignore:the .* miss about")
@pytest.mark.parametrize("kernel", ["rbf", "linear"])
def test_columns_and_graphs_have_one_too(kernel):
    X = drawn(5, 80)
    columns = em.Partitioned(columns=[X[:, :1], X[:, 1:]])
    across = em.KernelKMeans(3, kernel=kernel, n_eigenvectors=3, random_state=0).fit(columns)
    # The means are known inside the components: the score may only be lower.
    assert across.score(columns) <= -across.inertia_ * (1 - 1e-9)
    assert across.score(X) == pytest.approx(across.score(columns))
    parts = em.split(X, 3, random_state=0)
    nodes = em.KernelKMeans(3, kernel=kernel, n_eigenvectors=3, topology="ring", random_state=0)
    nodes.fit(parts)
    assert nodes.score(parts) == pytest.approx(nodes.score(X))
    assert nodes.score(parts) <= -(nodes.inertia_ - nodes.inertia_slack_) * (1 - 1e-9)


@pytest.mark.parametrize("method", ["random-features", "fed"])
def test_of_features_it_is_that_of_the_features(method):
    X = drawn(6, 100)
    model = em.KernelKMeans(3, method=method, n_features=20, random_state=0).fit(X)
    assert model.score(X) == pytest.approx(-model.inertia_, rel=1e-8)


def test_n_init_is_a_number_or_auto():
    X = drawn(7, 60)
    by_number = em.KernelKMeans(3, n_init=4, random_state=0).fit(X)
    assert em.KernelKMeans(3, n_init="auto", random_state=0).fit(X).inertia_ == by_number.inertia_
    for estimator in (em.KernelKMeans(3), em.FedKernelKMeans(3)):
        with pytest.raises(em.EigenmeshError, match="'often'.*'auto'"):
            estimator.set_params(n_init="often").fit(X)
