"""KernelPCA in place of scikit-learn's: the same arguments, attributes and answers."""

import inspect
import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn import datasets, decomposition
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression, Perceptron
from sklearn.metrics.pairwise import laplacian_kernel, rbf_kernel
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

import eigenmesh as em
from eigenmesh.errors import InputError

# Circles and random data have ties in their spectrum, about which a warning is right.
pytestmark = pytest.mark.filterwarnings("ignore::eigenmesh.errors.EigenmeshWarning")

DATA = {
    "digits": datasets.load_digits().data[:250] / 16,
    "wine": StandardScaler().fit_transform(datasets.load_wine().data),
    "circles": datasets.make_circles(150, factor=0.3, noise=0.05, random_state=0)[0],
    "wide": np.random.default_rng(0).normal(size=(30, 90)),
}
KERNELS = {
    "linear": {"kernel": "linear"},
    "rbf": {"kernel": "rbf", "gamma": 0.05},
    "rbf, default gamma": {"kernel": "rbf"},
    "poly": {"kernel": "poly", "degree": 2, "coef0": 0.5, "gamma": 0.1},
    "sigmoid": {"kernel": "sigmoid", "gamma": 0.001, "coef0": 0.1},
    "cosine": {"kernel": "cosine"},
}


def both(X, *args, **options):
    ours, theirs = em.KernelPCA(*args, **options), decomposition.KernelPCA(*args, **options)
    return ours.fit(X), theirs.fit(X)


def assert_same(ours, theirs, X_new, atol=1e-8):
    scale = float(np.abs(theirs.eigenvalues_).max())
    np.testing.assert_allclose(ours.eigenvalues_, theirs.eigenvalues_, rtol=0, atol=1e-10 * scale)
    np.testing.assert_allclose(
        ours.transform(X_new), theirs.transform(X_new), atol=atol * np.sqrt(scale)
    )


def half(x, y):
    return 0.5 * float(x @ y)


# The interface.


def test_every_argument_of_scikit_learn_is_here_with_its_default():
    theirs = inspect.signature(decomposition.KernelPCA).parameters
    ours = inspect.signature(em.KernelPCA).parameters
    for name, parameter in theirs.items():
        assert ours[name].default == parameter.default, name
        assert ours[name].kind == parameter.kind, name


def test_every_fitted_attribute_of_scikit_learn_is_here():
    X = DATA["wine"]
    ours, theirs = both(X, 3, kernel="rbf", gamma=0.05, fit_inverse_transform=True)
    public = [name for name in vars(theirs) if name.endswith("_") and not name.startswith("_")]
    assert {"eigenvalues_", "eigenvectors_", "X_fit_", "dual_coef_", "gamma_"} < set(public)
    for name in public:
        np.testing.assert_allclose(getattr(ours, name), getattr(theirs, name), atol=1e-9)


# The answers.


@pytest.mark.parametrize("solver", ["auto", "dense", "arpack", "randomized"])
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("data", DATA)
def test_components_are_those_of_scikit_learn(data, kernel, solver):
    X = DATA[data]
    options = {**KERNELS[kernel], "eigen_solver": solver, "random_state": 0}
    k = 2 if data == "circles" else 4
    if kernel == "cosine" and data == "circles":
        k = 1
    ours, theirs = both(X[:-10], k, **options)
    assert_same(ours, theirs, X[-10:])
    assert ours.gamma_ == theirs.gamma_
    assert ours.method_.startswith("exact: ")


@pytest.mark.parametrize("remove", [True, False])
@pytest.mark.parametrize("k", [None, 5, 200])
def test_zero_eigenvalues_are_kept_or_removed_as_there(k, remove):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(60, 3)) @ rng.normal(size=(3, 7))  # of rank 3
    ours, theirs = both(X, k, remove_zero_eig=remove, eigen_solver="dense")
    assert ours.eigenvalues_.shape == theirs.eigenvalues_.shape
    assert_same(ours, theirs, X[:5])
    assert ours.transform(X).shape == (60, 3 if remove or k is None else min(k, 60))


def test_leave_some_eigenvalues_out_of_three_points():
    """From scikit-learn's own tests: points on a line have one direction."""
    X = np.array([[1.0, 1.0], [1.0, 1.0], [3.0, 3.0]])
    ours, theirs = both(X, remove_zero_eig=False, n_components=2)
    np.testing.assert_allclose(ours.fit_transform(X), theirs.fit_transform(X), atol=1e-12)
    assert em.KernelPCA(n_components=2, remove_zero_eig=True).fit_transform(X).shape == (3, 1)


def test_all_components_of_every_kernel():
    for options in KERNELS.values():
        if options["kernel"] != "sigmoid":
            ours, theirs = both(DATA["wine"][:60], None, **options)
            assert ours.eigenvalues_.shape == theirs.eigenvalues_.shape
            assert_same(ours, theirs, DATA["wine"][60:70])


def test_a_kernel_that_is_a_function():
    X = DATA["digits"]

    def histogram(x, y, weight):
        return weight * np.minimum(x, y).sum()

    options = {"kernel": histogram, "kernel_params": {"weight": 2.0}}
    ours, theirs = both(X[:60], 3, **options)
    assert_same(ours, theirs, X[60:70])
    assert "a function" in ours.method_


def test_precomputed_kernels_with_a_matrix_of_their_own_for_new_rows():
    X = DATA["wine"]
    K, K_new = rbf_kernel(X[:120], gamma=0.05), rbf_kernel(X[120:], X[:120], gamma=0.05)
    before = K.copy()
    ours, theirs = both(K, 4, kernel="precomputed")
    assert_same(ours, theirs, K_new)
    np.testing.assert_array_equal(K, before)
    named = em.KernelPCA(4, kernel="rbf", gamma=0.05).fit(X[:120])
    np.testing.assert_allclose(ours.transform(K_new), named.transform(X[120:]), atol=1e-9)


def test_gamma_by_rule_finds_what_its_definition_says():
    X = DATA["digits"]
    scale = em.KernelPCA(3, kernel="rbf", gamma="scale").fit(X)
    assert scale.gamma_ == pytest.approx(1 / (X.shape[1] * X.var()), rel=1e-10)
    theirs = decomposition.KernelPCA(3, kernel="rbf", gamma=scale.gamma_).fit(X)
    assert_same(scale, theirs, X[:20])


def test_sparse_and_integer_and_frame_input():
    counts = np.random.default_rng(0).poisson(0.5, size=(80, 12))
    theirs = decomposition.KernelPCA(3, kernel="poly", degree=2).fit(counts.astype(float))
    for X in (counts, sp.csr_array(counts), sp.coo_matrix(counts), pd.DataFrame(counts)):
        if isinstance(X, pd.DataFrame):
            X.columns = [f"w{i}" for i in range(12)]
        ours = em.KernelPCA(3, kernel="poly", degree=2).fit(X)
        assert_same(ours, theirs, X)
    assert list(ours.feature_names_in_) == list(X.columns)


def test_single_precision_stays_single_and_is_solved_in_double():
    X = DATA["digits"].astype(np.float32)
    ours = em.KernelPCA(3, kernel="rbf", gamma=0.05)
    assert ours.fit_transform(X).dtype == np.float32
    assert ours.transform(X).dtype == np.float32
    exact = decomposition.KernelPCA(3, kernel="rbf", gamma=0.05).fit(X.astype(np.float64))
    np.testing.assert_allclose(ours.eigenvalues_, exact.eigenvalues_, rtol=1e-5)


def test_fit_transform_is_transform():
    for options in KERNELS.values():
        ours = em.KernelPCA(3, **options)
        fitted = ours.fit_transform(DATA["digits"])
        np.testing.assert_allclose(fitted, ours.transform(DATA["digits"]), atol=1e-9)


def test_the_fitted_rows_are_a_copy_unless_asked_otherwise():
    X = DATA["wine"].copy()
    kept = em.KernelPCA(2, kernel="rbf", gamma=0.05).fit(X)
    expected = kept.transform(DATA["wine"][:5])
    X[:] = 0.0
    np.testing.assert_array_equal(kept.transform(DATA["wine"][:5]), expected)
    assert em.KernelPCA(2, copy_X=False).fit(X[:, :2] + np.arange(178)[:, None]).X_fit_ is not None


def test_without_centring_the_spectrum_is_that_of_the_kernel_matrix():
    X = DATA["wine"]
    K = rbf_kernel(X, gamma=0.05)
    expected = np.linalg.eigvalsh(K)[::-1][:4]
    for ours in (
        em.KernelPCA(4, kernel="rbf", gamma=0.05, center=False).fit(X),
        em.KernelPCA(4, kernel="precomputed", center=False).fit(K),
    ):
        np.testing.assert_allclose(ours.eigenvalues_, expected, rtol=1e-10)
        assert ours.total_variance_ == pytest.approx(np.trace(K))
    scores = em.KernelPCA(4, kernel="rbf", gamma=0.05, center=False).fit_transform(X)
    np.testing.assert_allclose(np.square(scores).sum(axis=0), expected, rtol=1e-10)


def test_kernels_of_our_own_are_solved_exactly_too():
    X = DATA["wine"]
    ours = em.KernelPCA(3, kernel="laplacian", gamma=0.1).fit(X[:150])
    theirs = decomposition.KernelPCA(3, kernel=half).set_params(kernel="precomputed")
    theirs.fit(laplacian_kernel(X[:150], gamma=0.1))
    np.testing.assert_allclose(
        ours.transform(X[150:]),
        theirs.transform(laplacian_kernel(X[150:], X[:150], gamma=0.1)),
        atol=1e-9,
    )
    assert em.KernelPCA(3, kernel="arc-cosine", degree=1).fit(X).eigenvalues_.min() > 0


# Variance, and components by their share of it.


@pytest.mark.parametrize("kernel", ["linear", "rbf", "poly"])
def test_variance_adds_up(kernel):
    X, options = DATA["wine"], KERNELS[kernel]
    every = decomposition.KernelPCA(None, **options, eigen_solver="dense").fit(X).eigenvalues_
    ours = em.KernelPCA(3, **options).fit(X)
    assert ours.total_variance_ == pytest.approx(every.sum(), rel=1e-9)
    assert ours.residual_ == pytest.approx(every[3:].sum(), rel=1e-9)
    np.testing.assert_allclose(ours.explained_variance_ratio_, every[:3] / every.sum(), rtol=1e-8)


@pytest.mark.parametrize("share", [0.3, 0.8, 0.99])
def test_a_share_of_the_variance_takes_the_fewest_components(share):
    X = DATA["wine"]
    every = decomposition.KernelPCA(None, kernel="rbf", gamma=0.05).fit(X).eigenvalues_
    expected = int(np.argmax(np.cumsum(every) / every.sum() >= share)) + 1
    ours = em.KernelPCA(share, kernel="rbf", gamma=0.05).fit(X)
    assert len(ours.eigenvalues_) == expected
    theirs = decomposition.KernelPCA(expected, kernel="rbf", gamma=0.05).fit(X)
    assert_same(ours, theirs, X[:10])


# The way back.


@pytest.mark.parametrize("kernel", ["linear", "rbf", "poly", "sigmoid"])
def test_inverse_transform_is_that_of_scikit_learn(kernel):
    X = DATA["wine"]
    options = {**KERNELS[kernel], "fit_inverse_transform": True, "alpha": 0.1}
    ours, theirs = both(X[:150], 4, **options)
    new = X[150:]
    np.testing.assert_allclose(
        ours.inverse_transform(ours.transform(new)),
        theirs.inverse_transform(theirs.transform(new)),
        atol=1e-7,
    )


def test_inverse_transform_needs_to_be_asked_for():
    X = DATA["wine"]
    with pytest.raises(NotFittedError, match="fit_inverse_transform"):
        em.KernelPCA(2).fit(X).inverse_transform(np.zeros((1, 2)))
    with pytest.raises(em.EigenmeshError, match="precomputed"):
        em.KernelPCA(2, kernel="precomputed", fit_inverse_transform=True).fit(X @ X.T)
    with pytest.raises(em.EigenmeshError, match="sparse"):
        em.KernelPCA(2, fit_inverse_transform=True).fit(sp.csr_array(X))


# Among other estimators.


def test_nested_circles_become_separable():
    X, y = datasets.make_circles(400, factor=0.3, noise=0.05, random_state=0)
    scores = em.KernelPCA(2, kernel="rbf", gamma=2.0).fit_transform(X)
    assert Perceptron(max_iter=5).fit(scores, y).score(scores, y) == 1.0


def test_grid_search_over_kernel_parameters_and_precomputed_kernels():
    X, y = datasets.make_circles(120, factor=0.3, noise=0.05, random_state=0)
    named = Pipeline([("kpca", em.KernelPCA(2, kernel="rbf")), ("clf", Perceptron(max_iter=5))])
    search = GridSearchCV(named, {"kpca__gamma": 2.0 ** np.arange(-2, 2)}, cv=3).fit(X, y)
    assert search.best_score_ == 1.0
    matrix = Pipeline(
        [("kpca", em.KernelPCA(2, kernel="precomputed")), ("clf", Perceptron(max_iter=5))]
    )
    search = GridSearchCV(matrix, {"clf__max_iter": [5]}, cv=3).fit(rbf_kernel(X, gamma=2.0), y)
    assert search.best_score_ == 1.0


def test_names_of_the_output_and_a_pipeline():
    X, y = datasets.load_wine(return_X_y=True, as_frame=True)
    kpca = em.KernelPCA(2, kernel="rbf", gamma=0.05).set_output(transform="pandas")
    scores = kpca.fit_transform(X)
    assert (
        list(scores.columns) == ["kernelpca0", "kernelpca1"] == list(kpca.get_feature_names_out())
    )
    pipeline = make_pipeline(StandardScaler(), em.KernelPCA(5, kernel="rbf"), LogisticRegression())
    assert pipeline.fit(X, y).score(X, y) > 0.95


def test_clone_and_pickle():
    kpca = em.KernelPCA(3, kernel="rbf", gamma=0.05, eigen_solver="dense").fit(DATA["wine"])
    fresh = clone(kpca)
    assert fresh.get_params() == kpca.get_params()
    assert not hasattr(fresh, "eigenvalues_")
    assert not hasattr(fresh, "eigenvectors_")
    again = pickle.loads(pickle.dumps(kpca))
    np.testing.assert_array_equal(again.transform(DATA["wine"]), kpca.transform(DATA["wine"]))


# Errors that help.


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"kernel": "tanh"}, "kernel is 'tanh'.*expected"),
        ({"n_components": 0}, "n_components is 0.*whole number"),
        ({"n_components": 1.0}, "share of the variance between 0 and 1"),
        ({"method": "best"}, "method is 'best'.*'exact'"),
        ({"method": "one-shot"}, "one array"),
        ({"landmarks": "best"}, "landmarks is 'best'"),
        ({"gamma": -1.0}, "gamma is -1.0"),
        ({"eigen_solver": "qr"}, "eigen_solver"),
        ({"kernel": "sigmoid", "method": "diskpca"}, "no landmarks.*'rbf'|no landmarks.*rbf"),
    ],
)
def test_wrong_arguments_say_what_is_expected(wrong, words):
    with pytest.raises(em.EigenmeshError, match=words):
        em.KernelPCA(**{"n_components": 2, **wrong}).fit(DATA["wine"])


def test_what_is_no_kernel_matrix_is_refused():
    with pytest.raises(em.EigenmeshError, match="square"):
        em.KernelPCA(2, kernel="precomputed").fit(DATA["wine"])
    with pytest.raises(em.EigenmeshError, match="negative eigenvalues"):
        em.KernelPCA(None, kernel="precomputed").fit(-rbf_kernel(DATA["wine"], gamma=0.05))
    X = DATA["wine"].copy()
    X[3, 4] = np.nan
    with pytest.raises(em.EigenmeshError, match="NaN"):
        em.KernelPCA(2).fit(X)


def test_kernels_without_landmarks_are_refused_at_a_size_that_needs_them(monkeypatch):
    from eigenmesh.kernel_pca import one_array as kernel_pca_methods

    monkeypatch.setattr(kernel_pca_methods, "EXACT_MOST", 100)
    X = DATA["wine"]
    for options in ({"kernel": half}, {"kernel": "sigmoid"}, {"method": "exact", "kernel": "rbf"}):
        with pytest.raises(em.EigenmeshError, match="178 rows.*GB.*100 rows at most"):
            em.KernelPCA(2, **options).fit(X)
    em.KernelPCA(2, kernel="precomputed").fit(X @ X.T)  # its matrix is there already


@pytest.mark.parametrize("seed", range(6))
def test_components_that_rows_do_not_determine_are_said(seed):
    """scikit-learn gives zeros, or rounding, in silence."""
    rng = np.random.default_rng(seed)
    rank, more = int(rng.integers(1, 5)), int(rng.integers(0, 4))
    X = rng.normal(size=(80, rank)) @ rng.normal(size=(rank, 7))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        em.KernelPCA(rank + more, kernel="linear", center=bool(seed % 2)).fit(X)
    words = [str(one.message) for one in caught]
    said = f"{rank + more} components were asked for, the rows determine {rank}"
    assert [text.startswith(said) for text in words] == ([True] if more else [])


@pytest.mark.parametrize("rows", ["plain", "twelve equal groups", "of rank 5", "all but one alike"])
def test_few_components_of_many_rows_are_those_of_the_dense_solver(rows):
    """Also where an eigenvalue comes many times, and where there are fewer than asked for."""
    rng = np.random.default_rng(7)
    X = {
        "plain": rng.normal(size=(400, 8)),
        "twelve equal groups": np.repeat(np.eye(12), 35, axis=0),
        "of rank 5": rng.normal(size=(400, 5)) @ rng.normal(size=(5, 30)),
        "all but one alike": np.eye(400)[:, :1],
    }[rows]
    kernel = "linear" if rows == "of rank 5" else "rbf"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", em.EigenmeshWarning)
        ours = em.KernelPCA(16, kernel=kernel, gamma=0.3, random_state=0).fit(X)
    whole = decomposition.KernelPCA(16, kernel=kernel, gamma=0.3, eigen_solver="dense")
    dense = whole.fit(X)
    k = len(ours.eigenvalues_)
    scale = dense.eigenvalues_[0]
    np.testing.assert_allclose(ours.eigenvalues_, dense.eigenvalues_[:k], atol=1e-12 * scale)
    np.testing.assert_allclose(dense.eigenvalues_[k:], 0, atol=1e-12 * scale)


@pytest.mark.parametrize("seed", range(4))
def test_inverse_transform_of_scores_by_party_is_rows_by_party(seed):
    rng = np.random.default_rng(seed)
    k, d = int(rng.integers(2, 4)), 4
    # Parties of one size made an array of three dimensions, others none at all.
    sizes = rng.choice([20, 30, 40], 3) if seed % 2 else [25, 25]
    rows = [rng.normal(size=(n, d)) for n in sizes]
    options = {} if seed < 2 else {"kernel": "rbf", "gamma": 0.1, "fit_inverse_transform": True}
    model = em.KernelPCA(k, **options).fit(em.Partitioned(rows=rows))
    scores = model.transform(em.Partitioned(rows=rows))
    restored = model.inverse_transform(scores)
    assert [own.shape for own in restored] == [own.shape for own in rows]
    for own, Z in zip(restored, scores, strict=True):
        np.testing.assert_allclose(own, model.inverse_transform(Z), atol=1e-12)
    width = k + int(rng.choice([-1, 1]))
    for Z in (np.ones((5, width)), [np.ones((5, width))]):
        with pytest.raises(InputError, match=rf"\(5, {width}\); \(n, {k}\) is expected"):
            model.inverse_transform(Z)
    with pytest.raises(InputError, match="no rectangle of numbers"):
        model.inverse_transform([[1.0], [1.0, 2.0]])
