"""Every estimator follows scikit-learn's conventions."""

import re
from functools import partial

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_wine
from sklearn.decomposition import KernelPCA
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import estimator_checks_generator

import eigenmesh as em

# Expected failures of scikit-learn's checks, each with its reason.
_SEEDED = (
    "k-means is seeded by draws of rows, so a row twice is not a row of weight 2, as in KMeans"
)
_DRAWN = "landmarks are drawn, and a row twice is not drawn as a row of weight 2"
_SKETCHED = "sketches have no weights, and an error says so; with exact=True there are"
_DENSE = "check_sample_weight_equivalence_on_dense_data"
_SPARSE = "check_sample_weight_equivalence_on_sparse_data"
_OF_WEIGHTS = (
    "check_sample_weights_pandas_series",
    "check_sample_weights_not_an_array",
    "check_sample_weights_list",
    "check_all_zero_sample_weights_error",
    "check_sample_weights_shape",
    "check_sample_weights_not_overwritten",
    _DENSE,
    _SPARSE,
)


def expected_failures(estimator):
    """With the reason of each."""
    if isinstance(estimator, em.DisKPCA) and not estimator.exact:
        return dict.fromkeys(_OF_WEIGHTS, _SKETCHED)
    if isinstance(estimator, em.KernelKMeans):
        return dict.fromkeys((_DENSE, _SPARSE), _SEEDED)
    if isinstance(estimator, em.DisKPCA | em.KernelPCA) and estimator.n_landmarks == 8:
        return dict.fromkeys((_DENSE, _SPARSE), _DRAWN)
    return {}


# The checks fit tiny or random data, about which the estimators rightly warn.
pytestmark = pytest.mark.filterwarnings("ignore::eigenmesh.errors.EigenmeshWarning")

# Instances that differ in path on one array; what differs in numbers only is in other tests. The
# quickest of a class is first, which has the most checks.
ESTIMATORS = [
    em.OneShotKPCA(),
    em.OneShotKPCA(kernel="rbf", gamma="median"),
    em.OneShotKPCA(kernel="rbf", fusion="distance"),
    em.DisKPCA(),
    em.DisKPCA(kernel="rbf", n_landmarks=8),
    em.DisKPCA(kernel="laplacian", n_landmarks=8, landmarks="rpcholesky", exact=False),
    em.SketchingPCA(kernel="rbf"),
    em.MomentPCA(),
    em.FedKernelKMeans(3, n_iterations=4, n_features=20, n_init=1),
    em.FedKernelKMeans(2, solver="lanczos", n_iterations=1, clustering="lloyd", n_init=1),
    em.DistributedKMeans(3, n_init=1),
    em.KernelKMeans(2, method="exact", n_init=1),
    em.KernelKMeans(n_init=1),
    em.KernelKMeans(2, kernel="linear", n_landmarks=8, kmeans="coreset", n_init=1),
    em.KernelKMeans(2, method="random-features", n_init=1),
    em.KernelPCA(),
    em.KernelPCA(2, kernel="rbf", n_landmarks=8, random_state=0),
    em.KernelPCA(0.5, kernel="rbf", fit_inverse_transform=True),
    em.KernelPCA(2, kernel="precomputed"),
    em.KernelPCRegressor(method="sketching-pca"),
    em.KernelPCRegressor(),
    em.ADMMKPCA(1, kernel="rbf", variant="paper", row_noise=0.0),
    em.GossipKPCA(1, kernel="rbf"),
    em.DPCA(n_iterations=3, n_inner=4),
    em.VFedPCA(),
    em.VFedPCA(1, variant="paper"),
    em.VFedAKPCA(kernel="poly", degree=2, n_landmarks=8),
    em.VFedAKPCA(1, variant="paper"),
]

# What becomes of the input and of parameters before a method begins is the same code for all
# variants of a class: these checks run for the first of each. Every variant still fits sparse rows
# (check_estimator_sparse_tag), single precision (check_transformer_preserve_dtypes) and rows that
# may not be written to (check_readonly_memmap_input).
OF_THE_CLASS = {
    f"check_{name}"
    for name in """complex_data dict_unchanged dont_overwrite_attributes
    dont_overwrite_parameters dtype_object estimator_sparse_array estimator_sparse_matrix
    estimators_dtypes estimators_empty_data_messages estimators_fit_returns_self
    estimators_nan_inf estimators_overwrite_params estimators_pickle f_contiguous_array_estimator
    fit1d fit2d_predict1d fit_check_is_fitted fit_score_takes_y
    n_features_in n_features_in_after_fitting pipeline_consistency positive_only_tag_during_fit
    sample_weights_list sample_weights_not_an_array sample_weights_pandas_series
    transformer_data_not_an_array""".split()
}


def checks():
    """Of scikit-learn, for every instance; those that cannot hold are named and not run."""
    classes = set()
    for estimator in ESTIMATORS:
        is_first = type(estimator) not in classes
        classes.add(type(estimator))
        failures = expected_failures(estimator)
        for case in estimator_checks_generator(
            estimator, expected_failed_checks=failures, mark="xfail"
        ):
            is_param = hasattr(case, "marks")
            _, check = case.values if is_param else case
            if is_first or not is_of_the_class(check):
                yield not_run(case) if is_param else case


def not_run(case):
    """That a check still fails tells nothing."""
    (mark,) = case.marks
    return pytest.param(
        *case.values, marks=pytest.mark.xfail(reason=mark.kwargs["reason"], run=False)
    )


def is_of_the_class(check):
    """Whether it may be left to the first variant; so are those done again in mapped memory."""
    return label(check) in OF_THE_CLASS or check.keywords.get("readonly_memmap", False)


def label(value):
    """Of an instance, or of a check."""
    return value.func.__name__ if isinstance(value, partial) else re.sub(r"\s+", "", repr(value))


@pytest.mark.parametrize(("estimator", "check"), list(checks()), ids=label)
def test_scikit_learn_check(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def wine():
    return load_wine(as_frame=True).data


def test_every_public_estimator_is_checked():
    from eigenmesh.estimators import base

    # Noise makes two fits differ, which scikit-learn's checks do not forgive.
    noised = {"PrivatePCA", "PrivateKMeans"}
    others = {*noised, "CrossValidation"}  # which compares some, and fits none
    assert {type(e).__name__ for e in ESTIMATORS} | others == set(base._ESTIMATORS)


def test_fit_transform_is_transform_for_every_kernel_and_fusion():
    X = StandardScaler().fit_transform(load_breast_cancer().data)[:150]
    parts = em.split(X, 4, by="columns")
    for options in (
        {"kernel": "linear"},
        {"kernel": "rbf", "gamma": 0.02},
        {"kernel": "rbf", "gamma": 0.02, "fusion": "distance", "local_rank": 4},
    ):
        kpca = em.OneShotKPCA(3, **options)
        fitted = kpca.fit_transform(parts)
        np.testing.assert_allclose(fitted, kpca.transform(parts), atol=1e-10)
        np.testing.assert_allclose(fitted, kpca.transform(X), atol=1e-10)


def test_set_output_gives_named_columns_and_keeps_the_index(wine):
    frame = wine.set_index(wine.index + 1000)
    kpca = em.OneShotKPCA(3).set_output(transform="pandas")
    scores = kpca.fit_transform(frame)
    assert list(scores.columns) == ["oneshotkpca0", "oneshotkpca1", "oneshotkpca2"]
    assert list(scores.columns) == list(kpca.get_feature_names_out())
    assert scores.index.equals(frame.index)


def test_data_frames_of_parties_go_in(wine):
    halves = em.Partitioned(columns=[wine.iloc[:, :6], wine.iloc[:, 6:]])
    from_frames = em.OneShotKPCA(2, local_rank=13).fit(halves)
    from_array = em.OneShotKPCA(2, local_rank=13).fit(wine.to_numpy())
    np.testing.assert_allclose(from_frames.eigenvalues_, from_array.eigenvalues_, rtol=1e-12)


def test_permuted_index_of_a_data_frame_is_noticed(wine):
    shuffled = wine.iloc[::-1, 6:]
    parts = em.Partitioned(columns=[wine.iloc[:, :6], shuffled], names=["north", "south"])
    with pytest.raises(em.EigenmeshError, match="'south'.*sample_ids"):
        em.OneShotKPCA(2).fit(parts)


def test_works_inside_a_pipeline_and_a_grid_search(wine):
    y = load_wine().target
    pipeline = make_pipeline(
        StandardScaler(), em.OneShotKPCA(3, kernel="rbf", gamma=0.05), LogisticRegression()
    )
    search = GridSearchCV(pipeline, {"oneshotkpca__gamma": [0.02, 0.1]}, cv=3).fit(wine, y)
    assert search.best_score_ > 0.9


def test_clone_drops_what_was_fitted(wine):
    fitted = em.OneShotKPCA(3, kernel="rbf", gamma=0.1, local_rank=9).fit(wine.to_numpy() / 100)
    fresh = clone(fitted)
    assert fresh.get_params() == fitted.get_params()
    assert not hasattr(fresh, "eigenvalues_")


def test_signs_are_those_of_scikit_learn(wine):
    X = StandardScaler().fit_transform(wine)
    ours = em.OneShotKPCA(3, kernel="rbf", gamma=0.05, local_rank=178).fit_transform(
        em.split(X, 3, by="columns")
    )
    theirs = KernelPCA(3, kernel="rbf", gamma=0.05, eigen_solver="dense").fit_transform(X)
    np.testing.assert_allclose(ours, theirs, atol=1e-9)


def test_refitting_on_other_columns_forgets_the_old_names(wine):
    kpca = em.OneShotKPCA(2).fit(wine)
    assert list(kpca.feature_names_in_) == list(wine.columns)
    for width in (13, 9):
        kpca.fit(em.split(wine.to_numpy()[:, :width], 3, by="columns"))
        assert kpca.n_features_in_ == width
        assert not hasattr(kpca, "feature_names_in_")


def test_float32_in_float32_out(wine):
    X = StandardScaler().fit_transform(wine).astype(np.float32)
    kpca = em.OneShotKPCA(2, kernel="rbf", gamma=0.05).fit(em.split(X, 2, by="columns"))
    assert kpca.transform(X).dtype == np.float32
    assert kpca.eigenvalues_.dtype == np.float64


def test_transform_report_is_kept_apart_from_the_fit(wine):
    X = StandardScaler().fit_transform(wine)
    parts = em.split(X, 3, by="columns")
    kpca = em.OneShotKPCA(2, kernel="rbf", gamma=0.05, local_rank=8).fit(parts)
    before = kpca.report_
    with pytest.raises(AttributeError):
        kpca.transform_report_  # noqa: B018
    kpca.transform(parts.take_samples(range(20)))
    assert kpca.report_ is before
    assert kpca.transform_report_.floats_up == 3 * 20 * 8
    assert kpca.transform_report_.rounds == 1
