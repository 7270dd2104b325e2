"""Huge values, rows of zeros, a single landmark: the pooled answer, or an error that says why."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.decomposition import KernelPCA

import eigenmesh as em
from eigenmesh.errors import EigenmeshError, EigenmeshWarning, InputError, PartitionError
from eigenmesh.numerics.kernels import Kernel

KERNELS = [
    ("linear", 1),
    ("rbf", 1),
    ("poly", 2),
    ("laplacian", 1),
    ("cosine", 1),
    ("arc-cosine", 0),
    ("arc-cosine", 1),
]
OF_SCALED_ROWS = ("linear", "cosine", "arc-cosine")  # k(sx, sy) is a power of s times k(x, y)
COLUMN_KERNELS = ("linear", "rbf", "poly", "laplacian")
each_kernel = pytest.mark.parametrize(("kernel", "degree"), KERNELS)


def normal(seed, n=40, d=6):
    return np.random.default_rng(seed).normal(size=(n, d))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("split", ["array", "rows", "columns"])
def test_values_whose_squares_overflow_are_refused_with_place_and_remedy(split, seed):
    rng = np.random.default_rng(seed)
    X = normal(seed)
    dtype, largest = (np.float32, 15) if seed % 2 else (np.float64, 75)
    X = X.astype(dtype)
    row, column = int(rng.integers(40)), int(rng.integers(6))
    most = np.log10(np.finfo(dtype).max) - 1
    X[row, column] = rng.choice([-1, 1]) * 10.0 ** rng.uniform(largest + 0.1, most)
    X = sp.csr_array(X) if rng.integers(2) and split != "columns" else X
    if split == "array":
        for model in (em.KernelPCA(2), em.KernelKMeans(2), em.DisKPCA(2)):
            with pytest.raises(InputError, match=rf"row {row}, column {column} .*rescale"):
                model.fit(X)
        return
    cut = slice(10, 40), slice(0, 6)
    whole, first = (X[cut], X[:10]) if split == "rows" else (X[:, 3:], X[:, :3])
    with pytest.raises(PartitionError, match=r"a number beyond 1e\+[17]5.*rescale"):
        em.Partitioned(**{split: [first, whole]}, names=["north", "south"])


@pytest.mark.filterwarnings("ignore::eigenmesh.errors.EigenmeshWarning")
@pytest.mark.parametrize("split", ["array", "rows", "columns"])
def test_huge_new_rows_targets_and_weights_are_refused(split):
    X = normal(1)
    source = X if split == "array" else em.split(X, 3, by=split, random_state=0)
    targets = [X[rows, 0] for rows in source.order] if split == "rows" else X[:, 0]
    huge = [own * 1e90 for own in targets] if split == "rows" else targets * 1e90
    with pytest.raises(InputError, match="rescale"):
        em.KernelPCA(2, kernel="rbf").fit(source).transform(X * 1e160)
    with pytest.raises(InputError, match="rescale"):
        em.KernelPCRegressor(2).fit(source, huge)
    positive = [abs(own) for own in huge] if split == "rows" else abs(huge)
    with pytest.raises(InputError, match="rescale"):
        em.KernelKMeans(2).fit(source, sample_weight=positive)
    with pytest.raises(InputError, match="rescale"):
        em.KernelPCA(2, kernel="rbf", landmarks=X[:9] * 1e100).fit(X)


@pytest.mark.filterwarnings("ignore::eigenmesh.errors.EigenmeshWarning")
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("split", ["array", "rows", "columns"])
@pytest.mark.parametrize("degree", [5, 9])
def test_powers_that_overflow_are_refused_in_words(split, degree):
    X = normal(degree) * 1e70
    source = X if split == "array" else em.split(X, 3, by=split, random_state=0)
    params = {"kernel": "poly", "degree": degree, "gamma": 1.0}
    for kind in (em.KernelPCA, em.KernelKMeans):
        with pytest.raises(EigenmeshError, match="rescale"):
            kind(2, **params).fit(source)
    small = em.KernelPCA(2, **params).fit(normal(2).astype(np.float32))
    with pytest.raises(InputError, match="rescale"):
        small.transform((normal(3) * 1e14).astype(np.float32))


@pytest.mark.filterwarnings("ignore::eigenmesh.errors.EigenmeshWarning")
@pytest.mark.parametrize(("kernel", "degree"), [k for k in KERNELS if k[0] in OF_SCALED_ROWS])
def test_large_values_that_do_fit_give_the_answer_of_scaled_ones(kernel, degree):
    X, scale = normal(7), 2.0**200
    params = {"kernel": kernel, "degree": degree, "n_landmarks": 40, "landmarks": "uniform"}
    power = {"linear": 2, "cosine": 0, "arc-cosine": 2 * degree}[kernel]
    for source in (X, em.split(X, 3, random_state=0)):
        large = source * scale if source is X else em.split(X * scale, 3, random_state=0)
        values = em.KernelPCA(2, **params).fit(source).eigenvalues_
        found = em.KernelPCA(2, **params).fit(large).eigenvalues_
        np.testing.assert_allclose(found, values * scale**power, rtol=1e-8)


@pytest.mark.filterwarnings("ignore::eigenmesh.errors.EigenmeshWarning")
@each_kernel
@pytest.mark.parametrize("seed", range(3))
def test_rows_of_zeros_count_as_scikit_learn_counts_them(kernel, degree, seed):
    rng = np.random.default_rng(seed)
    X = normal(seed) * (rng.random((40, 6)) < 0.6)
    X[rng.permutation(40)[: (6, 20, 33)[seed]]] = 0
    K = Kernel(kernel, 0.3, degree).matrix(X)
    expected = KernelPCA(2, kernel="precomputed").fit(K).eigenvalues_
    rows = em.Partitioned(rows=[X[:3], X[3:20], X[20:]])
    sparse = em.Partitioned(rows=[sp.csr_array(own) for own in rows.parts])
    columns = em.split(X, 2, by="columns")
    every = {"n_landmarks": 40, "landmarks": "uniform"}
    cases = [(X, {}), (sp.csr_array(X), {}), (rows, every), (sparse, every)]
    cases += [(columns, {})] if kernel in COLUMN_KERNELS else []
    for source, how in cases:
        model = em.KernelPCA(2, kernel=kernel, gamma=0.3, degree=degree, **how).fit(source)
        np.testing.assert_allclose(model.eigenvalues_, expected, rtol=1e-6)
        np.testing.assert_array_equal(np.ptp(model.transform(np.zeros((3, 6))), axis=0), 0)


@pytest.mark.parametrize("value", [0.0, 0.1, 3.0])
@each_kernel
def test_rows_that_do_not_differ_are_said_to(kernel, degree, value):
    X = np.full((30, 4), value)
    with pytest.warns(EigenmeshWarning, match="do not differ in feature space"):
        model = em.KernelPCA(2, kernel=kernel, degree=degree).fit(X)
    assert not model.eigenvalues_.round(12).any()
    assert not model.explained_variance_ratio_.round(12).any()
    with pytest.raises(InputError, match="do not differ in feature space"):
        em.KernelPCA(0.5, kernel=kernel, degree=degree).fit(X)
    for split in ("rows", "columns") if kernel in COLUMN_KERNELS else ("rows",):
        with pytest.raises(InputError, match=r"determine|has no inverse root"):
            em.KernelPCA(2, kernel=kernel, degree=degree).fit(
                em.split(X, 2, by=split, random_state=0)
            )


@pytest.mark.filterwarnings("ignore::eigenmesh.errors.EigenmeshWarning")
@each_kernel
@pytest.mark.parametrize("center", [True, False])
def test_one_landmark_is_enough_for_one_component(kernel, degree, center):
    X = normal(degree + center)
    parts = em.split(X, 3, random_state=0)
    params = {"kernel": kernel, "degree": degree, "n_landmarks": 1, "random_state": 0}
    # Each kernel with all, and each of them centred or not, exactly or as printed, of some kernel.
    turn = KERNELS.index((kernel, degree))
    for i, landmarks in enumerate(("diskpca", "uniform", "leverage", "rpcholesky", "centroids")):
        if (i + turn + center) % 2:
            continue
        exact = (i + turn // 2) % 2 == 0
        model = em.DisKPCA(1, landmarks=landmarks, exact=exact, center=center, **params)
        assert model.fit(parts).eigenvalues_[0] > 0
        assert model.report_.floats_up == em.plan(model, parts).floats_up
    for source in (X, parts):
        targets = [X[rows, 0] for rows in parts.order] if source is parts else X[:, 0]
        assert em.KernelPCA(1, center=center, **params).fit(source).eigenvalues_[0] > 0
        if center:  # which these two do not ask for
            assert em.KernelKMeans(2, **params).fit(source).inertia_ >= 0
            assert em.KernelPCRegressor(1, **params).fit(source, targets).r_squared_ >= 0
    with pytest.raises(InputError, match="1 landmarks determine"):
        em.KernelPCA(2, landmarks="uniform", **params).fit(parts)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kernel", ["rbf", "arc-cosine", "cosine"])
@pytest.mark.filterwarnings("error::RuntimeWarning", "ignore::eigenmesh.errors.EigenmeshWarning")
def test_large_float32_rows_of_parties_overflow_nowhere(kernel, seed):
    """Up to 10^15 their squares can be added up; squares of these are beyond float32."""
    rng = np.random.default_rng(seed)
    scale = 10.0 ** rng.integers(8, 14)
    X = (rng.random((120, 5)) * scale).astype(np.float32)
    how = {"gamma": 0.3 / scale**2, "degree": 1}
    fitted = em.KernelPCA(2, kernel=kernel, **how).fit(em.Partitioned(rows=np.array_split(X, 4)))
    small = em.KernelPCA(2, kernel=kernel, gamma=0.3, degree=1).fit(X.astype(np.float64) / scale)
    factor = scale**2 if kernel == "arc-cosine" else 1.0
    np.testing.assert_allclose(fitted.eigenvalues_ / factor, small.eigenvalues_, rtol=0.3)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.filterwarnings("ignore::eigenmesh.errors.EigenmeshWarning")
def test_parties_of_few_different_rows_are_clustered(seed):
    rng = np.random.default_rng(seed)
    different = rng.integers(0, 255, size=(4, 14)).astype(np.uint8)
    X = different[rng.integers(4, size=420)]
    for gamma in (None, 1e-5):
        fitted = em.KernelKMeans(4, gamma=gamma, random_state=0)
        labels = np.concatenate(fitted.fit(em.Partitioned(rows=[X[:210], X[210:]])).labels_)
        assert len({(tuple(row), label) for row, label in zip(X, labels, strict=True)}) == 4
