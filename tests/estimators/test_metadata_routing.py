"""scikit-learn hands weights on to whoever asked for them, in pipelines and in grid search."""

import numpy as np
import pytest
import sklearn
from sklearn.exceptions import UnsetMetadataPassedError
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.pipeline import Pipeline
from sklearn.utils.fixes import parse_version

import eigenmesh as em

RNG = np.random.default_rng(5)
X = RNG.normal(size=(90, 4))
Y = X[:, 0] ** 2 + RNG.normal(size=90) * 0.1
WEIGHTS = RNG.integers(0, 4, 90).astype(float)
RBF = {"kernel": "rbf", "gamma": 0.3}
WEIGHTED = [
    em.KernelPCA(2, **RBF),
    em.KernelPCA(2, **RBF, n_landmarks=20, accuracy=1.0, random_state=0),
    em.DisKPCA(2, **RBF, n_landmarks=20, random_state=0),
    em.MomentPCA(2),
]


@pytest.fixture(autouse=True)
def routing():
    with sklearn.config_context(enable_metadata_routing=True):
        yield


def pipeline(components, weighted=True):
    ridge = Ridge().set_fit_request(sample_weight=weighted)
    ridge.set_score_request(sample_weight=weighted)
    return Pipeline([("components", components), ("ridge", ridge)])


@pytest.mark.parametrize("components", WEIGHTED, ids=str)
@pytest.mark.parametrize("weighted", [True, False])
def test_a_pipeline_hands_weights_to_components_that_asked_for_them(components, weighted):
    asking = sklearn.clone(components).set_fit_request(sample_weight=weighted)
    fitted = pipeline(asking).fit(X, Y, sample_weight=WEIGHTS)
    own = {"sample_weight": WEIGHTS} if weighted else {}
    alone = sklearn.clone(components).fit(X, **own)
    np.testing.assert_allclose(fitted["components"].eigenvalues_, alone.eigenvalues_, rtol=1e-9)
    Z = alone.transform(X)
    expected = Ridge().fit(Z, Y, sample_weight=WEIGHTS).predict(Z)
    np.testing.assert_allclose(fitted.predict(X), expected, atol=1e-8)


def test_weights_that_nobody_asked_for_are_refused_and_not_dropped():
    with pytest.raises(UnsetMetadataPassedError, match="KernelPCA"):
        pipeline(em.KernelPCA(2, **RBF)).fit(X, Y, sample_weight=WEIGHTS)


@pytest.mark.skipif(
    parse_version(sklearn.__version__) < parse_version("1.8"),
    reason="before scikit-learn 1.8 a Pipeline cannot be asked to score by weights",
)
def test_grid_search_splits_weights_with_their_rows():
    grid = {"components__n_components": [1, 4]}
    asking = em.KernelPCA(**RBF).set_fit_request(sample_weight=True)
    search = GridSearchCV(pipeline(asking), grid, cv=KFold(3)).fit(X, Y, sample_weight=WEIGHTS)
    for i, (train, test) in enumerate(KFold(3).split(X)):
        for j, k in enumerate(grid["components__n_components"]):
            kpca = em.KernelPCA(k, **RBF).fit(X[train], sample_weight=WEIGHTS[train])
            ridge = Ridge().fit(kpca.transform(X[train]), Y[train], WEIGHTS[train])
            expected = ridge.score(kpca.transform(X[test]), Y[test], WEIGHTS[test])
            assert search.cv_results_[f"split{i}_test_score"][j] == pytest.approx(expected)


def test_grid_search_scores_clusters_by_weights():
    asking = em.KernelKMeans(**RBF, random_state=0, n_init=1)
    asking.set_fit_request(sample_weight=True).set_score_request(sample_weight=True)
    search = GridSearchCV(asking, {"n_clusters": [2, 3]}, cv=KFold(2))
    search.fit(X, sample_weight=WEIGHTS)
    (train, test), _ = KFold(2).split(X)
    model = em.KernelKMeans(2, **RBF, random_state=0, n_init=1)
    model.fit(X[train], sample_weight=WEIGHTS[train])
    expected = model.score(X[test], sample_weight=WEIGHTS[test])
    assert search.cv_results_["split0_test_score"][0] == pytest.approx(expected)


def test_a_regressor_is_scored_by_weights():
    asking = em.KernelPCRegressor(4, **RBF, random_state=0).set_score_request(sample_weight=True)
    search = GridSearchCV(asking, {"alpha": [0.1, 1.0]}, cv=KFold(2))
    search.fit(X, Y, sample_weight=WEIGHTS)
    (train, test), _ = KFold(2).split(X)
    model = em.KernelPCRegressor(4, **RBF, alpha=0.1, random_state=0).fit(X[train], Y[train])
    expected = model.score(X[test], Y[test], sample_weight=WEIGHTS[test])
    assert search.cv_results_["split0_test_score"][0] == pytest.approx(expected)
