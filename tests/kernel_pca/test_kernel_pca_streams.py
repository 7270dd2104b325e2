"""KernelPCA of more rows than fit: blocks, memory maps, Dask; shares, the way back, files."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_digits
from sklearn.decomposition import KernelPCA
from sklearn.metrics.pairwise import rbf_kernel

import eigenmesh as em
from eigenmesh.estimators import progress_bar
from eigenmesh.kernel_pca import one_array as kernel_pca_methods
from eigenmesh.metrics import aligned_error

DIGITS = load_digits().data / 16
RBF = {"kernel": "rbf", "gamma": 0.05, "random_state": 0}
LANDMARKS = DIGITS[::30]  # 60 of them
KERNELS = {
    "linear": {"kernel": "linear"},
    "rbf": {"kernel": "rbf", "gamma": 0.05},
    "poly": {"kernel": "poly", "gamma": 0.1, "degree": 2},
    "laplacian": {"kernel": "laplacian", "gamma": 0.05},
    "cosine": {"kernel": "cosine"},
    "arc-cosine": {"kernel": "arc-cosine", "degree": 1},
}


def in_blocks(X, size):
    return (X[start : start + size] for start in range(0, X.shape[0], size))


def assert_same(one, other, X=DIGITS[:50]):
    np.testing.assert_allclose(one.eigenvalues_, other.eigenvalues_, rtol=1e-10)
    errors = one.residual_error_ + other.residual_error_  # how blocks are seen is drawn
    apart = abs(one.total_variance_ - other.total_variance_)
    assert apart <= 4 * errors + 1e-10 * other.total_variance_
    assert errors <= 1e-3 * other.total_variance_
    assert aligned_error(one.transform(X), other.transform(X)) < 1e-8
    assert one.n_samples_seen_ == other.n_samples_seen_


# Blocks.


@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("kernel", KERNELS)
def test_blocks_add_up_to_the_fit_on_all_rows(kernel, center):
    options = {**KERNELS[kernel], "landmarks": LANDMARKS, "center": center, "accuracy": 1.0}
    whole = em.KernelPCA(4, **options).fit(DIGITS)
    assert whole.method_.startswith("diskpca: ")
    streamed = em.KernelPCA(4, **options).fit(in_blocks(DIGITS, 250))
    stepwise = em.KernelPCA(4, **options)
    for block in in_blocks(DIGITS, 600):
        stepwise.partial_fit(block)
    assert_same(streamed, whole)
    assert_same(stepwise, whole)
    assert whole.n_samples_seen_ == len(DIGITS)


@pytest.mark.parametrize("size", [7, 100, 1797])
def test_landmarks_come_from_the_first_rows_and_then_stay(size):
    kpca = em.KernelPCA(3, **RBF, n_landmarks=20, accuracy=1.0)
    for block in in_blocks(DIGITS, size):
        kpca.partial_fit(block)
    drawn = kpca.landmarks_
    assert len(drawn) <= 20
    assert_same(kpca, em.KernelPCA(3, **RBF, landmarks=drawn, accuracy=1.0).fit(DIGITS))
    kpca.partial_fit(DIGITS[:10] + 1)
    np.testing.assert_array_equal(kpca.landmarks_, drawn)
    assert kpca.n_samples_seen_ == len(DIGITS) + 10


def test_a_short_stream_keeps_every_row_as_a_landmark_and_is_exact():
    kpca = em.KernelPCA(3, kernel="rbf", gamma=0.05)
    for block in in_blocks(DIGITS[:80], 16):
        kpca.partial_fit(block)
    pooled = KernelPCA(3, kernel="rbf", gamma=0.05).fit(DIGITS[:80])
    np.testing.assert_allclose(kpca.eigenvalues_, pooled.eigenvalues_, rtol=1e-10)


def test_no_block_is_kept_once_the_landmarks_stay():
    kpca = em.KernelPCA(3, **RBF, n_landmarks=20, accuracy=1.0)
    kpca.partial_fit(DIGITS[:300])
    assert kpca._stream.pending is not None
    kpca.partial_fit(DIGITS[300:600])
    assert kpca._stream.pending is None


def test_blocks_are_asked_for_one_at_a_time():
    asked = []

    def source():
        for start in range(0, 1797, 600):
            asked.append(start)
            yield DIGITS[start : start + 600]

    kpca = em.KernelPCA(3, **RBF, landmarks=LANDMARKS, accuracy=1.0)
    scores = kpca.fit(source()).transform(source())
    assert asked == [0, 600, 1200]
    assert next(scores).shape == (600, 3)
    assert asked == [0, 600, 1200, 0]


def test_a_fit_starts_anew_and_partial_fit_goes_on():
    kpca = em.KernelPCA(3, **RBF, landmarks=LANDMARKS, accuracy=1.0).partial_fit(DIGITS[:500])
    kpca.fit(iter([DIGITS[500:]]))
    assert kpca.n_samples_seen_ == 1297
    assert kpca.partial_fit(DIGITS[:500]).n_samples_seen_ == 1797


def test_what_blocks_cannot_do_is_said():
    with pytest.raises(AttributeError) as caught:
        em.KernelPCA(2, kernel="sigmoid").partial_fit(DIGITS)
    assert "blocks of rows add up over landmarks" in str(caught.value.__cause__)
    with pytest.raises(em.EigenmeshError, match="landmarks"):
        em.KernelPCA(2, kernel="sigmoid").fit(iter([DIGITS]))
    parts = em.split(DIGITS[:200], n_parties=2, random_state=0)
    with pytest.raises(em.EigenmeshError, match="block after block.*or fit for split data"):
        em.KernelPCA(2, **RBF).partial_fit(parts)
    for source in (parts, DIGITS[:200]):
        with pytest.warns(em.EigenmeshWarning, match="partial_fit forgets: it begins anew"):
            em.KernelPCA(2, **RBF, accuracy=1.0).fit(source).partial_fit(DIGITS[200:300])
    with pytest.raises(em.EigenmeshError, match="no block"):
        em.KernelPCA(2).fit(iter([]))
    with pytest.raises(em.EigenmeshError, match="gone after fit"):
        em.KernelPCA(2).fit_transform(iter([DIGITS]))
    with pytest.raises(em.EigenmeshError, match=r"\(q, 64\)"):
        em.KernelPCA(2, landmarks=DIGITS[:9, :5]).fit(DIGITS)
    with pytest.raises(em.EigenmeshError, match="64 features"):
        em.KernelPCA(2, **RBF).partial_fit(DIGITS).partial_fit(DIGITS[:, :5])


# Data of every form.


@pytest.fixture
def small_is_large(monkeypatch):
    monkeypatch.setattr(kernel_pca_methods, "EXACT_ROWS", 200)


@pytest.mark.usefixtures("small_is_large")
def test_memory_maps_sparse_rows_and_single_precision(tmp_path):
    path = tmp_path / "rows.npy"
    np.save(path, DIGITS.astype(np.float32))
    options = {**RBF, "n_landmarks": 40, "accuracy": 1.0}
    mapped = em.KernelPCA(3, **options).fit(np.load(path, mmap_mode="r"))
    loaded = em.KernelPCA(3, **options).fit(DIGITS.astype(np.float32))
    double = em.KernelPCA(3, **options).fit(DIGITS)
    np.testing.assert_array_equal(mapped.eigenvalues_, loaded.eigenvalues_)
    np.testing.assert_allclose(mapped.eigenvalues_, double.eigenvalues_, rtol=1e-3)
    assert mapped.transform(np.load(path, mmap_mode="r")).dtype == np.float32
    sparse = em.KernelPCA(3, **options, landmarks="uniform").fit(sp.csr_array(DIGITS))
    dense = em.KernelPCA(3, **options, landmarks="uniform").fit(DIGITS)
    assert sp.issparse(sparse.landmarks_)
    assert_same(sparse, dense)


@pytest.mark.usefixtures("small_is_large")
def test_dask_arrays_are_transformed_lazily():
    da = pytest.importorskip("dask.array", reason="pip install 'eigenmesh[dask]'")
    kpca = em.KernelPCA(3, **RBF).fit(DIGITS)
    exact = em.KernelPCA(3, **RBF, method="exact").fit(DIGITS)
    for model in (kpca, exact):
        scores = model.transform(da.from_array(DIGITS, chunks=(500, 20)))
        assert isinstance(scores, da.Array)
        assert scores.shape == (1797, 3)
        np.testing.assert_allclose(scores.compute(), model.transform(DIGITS), atol=1e-12)
    with pytest.raises(em.EigenmeshError, match="64 features"):
        kpca.transform(da.from_array(DIGITS[:, :63], chunks=(500, 20)))


def test_dask_arrays_are_fitted_where_their_chunks_lie():
    da = pytest.importorskip("dask.array", reason="pip install 'eigenmesh[dask]'")
    from tests.engines import dask_cluster

    dask_cluster.client()
    X = da.from_array(DIGITS.astype(np.float32), chunks=(600, -1))
    kpca = em.KernelPCA(3, **RBF)
    plan, scores = em.plan(kpca, X), kpca.fit_transform(X)
    assert plan.rounds == kpca.report_.rounds
    assert kpca.report_.parties == ("party-0", "party-1", "party-2")
    chunks = [DIGITS[start : start + 600].astype(np.float32) for start in (0, 600, 1200)]
    parts = em.Partitioned(rows=chunks)
    here = em.KernelPCA(3, **RBF).fit(parts)
    np.testing.assert_allclose(kpca.eigenvalues_, here.eigenvalues_, rtol=1e-8)
    assert scores.dtype == np.float32
    np.testing.assert_allclose(scores.compute(), np.vstack(here.transform(parts)), atol=1e-5)


def test_rows_of_parties_come_back_as_a_list():
    parts = em.split(DIGITS, 4, random_state=0)
    kpca = em.KernelPCA(3, **RBF).fit(parts)
    for own, order in zip(kpca.transform(parts), parts.order, strict=True):
        np.testing.assert_allclose(own, kpca.transform(DIGITS[order]), atol=1e-12)
    with pytest.raises(em.EigenmeshError, match="64 features"):
        kpca.transform(em.split(DIGITS[:, :5], 2, random_state=0))


# Shares of the variance.


@pytest.mark.parametrize("source", ["array", "parties", "blocks"])
def test_a_share_of_the_variance_with_landmarks(source):
    X = {
        "array": DIGITS,
        "parties": em.split(DIGITS, 3, random_state=0),
        "blocks": in_blocks(DIGITS, 600),
    }[source]
    kpca = em.KernelPCA(0.5, **RBF, n_landmarks=150, accuracy=1.0).fit(X)
    ratios = kpca.explained_variance_ratio_
    assert ratios.sum() >= 0.5 > ratios[:-1].sum()
    true = rbf_kernel(DIGITS, gamma=0.05)
    total = np.trace(true) - true.mean() * len(true)
    captured = np.square(kpca.transform(DIGITS)).sum()
    assert captured / total >= 0.5 - 1e-3
    assert abs(kpca.total_variance_ - total) <= 4 * kpca.residual_error_ + 1e-9 * total
    assert kpca.residual_error_ <= 2.5e-4 * len(true)
    assert bool(kpca.residual_error_) == (source == "parties")


def test_a_share_that_the_landmarks_cannot_reach_is_an_error():
    with pytest.raises(em.EigenmeshError, match=r"0\.99.*take more landmarks"):
        em.KernelPCA(0.99, kernel="rbf", gamma=1.0, n_landmarks=20).fit(DIGITS)


def test_none_means_all_that_the_landmarks_determine():
    kpca = em.KernelPCA(None, **RBF, landmarks=LANDMARKS, accuracy=1.0).fit(DIGITS)
    assert 50 < len(kpca.eigenvalues_) <= 60
    few = em.KernelPCA(4, **RBF, landmarks=LANDMARKS, accuracy=1.0).fit(DIGITS)
    np.testing.assert_allclose(kpca.eigenvalues_[:4], few.eigenvalues_, rtol=1e-9)


# The way back.


def test_the_way_back_from_landmarks_is_scikit_learns_when_all_rows_are():
    options = {**RBF, "fit_inverse_transform": True, "alpha": 0.01}
    X, new = DIGITS[:200], DIGITS[200:220]
    ours = em.KernelPCA(6, **options, n_landmarks=200, accuracy=1.0).fit(X)
    theirs = KernelPCA(6, **options).fit(X)
    np.testing.assert_allclose(
        ours.inverse_transform(ours.transform(new)),
        theirs.inverse_transform(theirs.transform(new)),
        atol=1e-6,
    )


@pytest.mark.parametrize("alpha", [1.0, 1e-3])
def test_the_way_back_from_few_landmarks_is_near_scikit_learns(alpha):
    options = {**RBF, "fit_inverse_transform": True, "alpha": alpha}
    X, new = DIGITS[:1200], DIGITS[1200:]

    def error(kpca):
        return np.square(kpca.inverse_transform(kpca.transform(new)) - new).sum()

    theirs = error(KernelPCA(16, **options).fit(X))
    assert error(em.KernelPCA(16, **options, n_landmarks=200, accuracy=1.0).fit(X)) < 1.03 * theirs
    # Parties and streams leave only landmarks to learn from.
    assert (
        error(em.KernelPCA(16, **options, n_landmarks=200, accuracy=1.0).fit(iter([X])))
        < 1.3 * theirs
    )


# Files.


@pytest.mark.parametrize("route", ["exact", "precomputed", "landmarks", "stream", "sparse"])
def test_a_saved_model_gives_the_same_scores(route, tmp_path):
    X = sp.csr_array(DIGITS[:300]) if route == "sparse" else DIGITS[:300]
    options = {
        "exact": {**RBF, "fit_inverse_transform": True},
        "precomputed": {"kernel": "precomputed"},
        "landmarks": {**RBF, "n_landmarks": 30, "accuracy": 1.0, "fit_inverse_transform": True},
        "stream": {**RBF, "landmarks": LANDMARKS, "accuracy": 1.0},
        "sparse": {**RBF, "n_landmarks": 30, "accuracy": 1.0, "landmarks": "uniform"},
    }[route]
    X = rbf_kernel(X) if route == "precomputed" else X
    kpca = em.KernelPCA(3, **options).fit(X)
    kpca.save(tmp_path / "model.em")
    loaded = em.load(tmp_path / "model.em")
    np.testing.assert_allclose(loaded.transform(X), kpca.transform(X), atol=1e-13)
    assert loaded.method_ == kpca.method_
    assert loaded.report_ == kpca.report_
    if kpca.fit_inverse_transform:
        Z = kpca.transform(X)
        np.testing.assert_allclose(loaded.inverse_transform(Z), kpca.inverse_transform(Z))
    if route == "exact":
        np.testing.assert_array_equal(loaded.eigenvectors_, kpca.eigenvectors_)
    if route == "stream":
        assert_same(loaded.partial_fit(DIGITS[300:]), kpca.partial_fit(DIGITS[300:]))


@pytest.mark.parametrize("by", ["rows", "columns"])
def test_a_saved_model_of_parties(by, tmp_path):
    parts = em.split(DIGITS[:150], 3, by=by, random_state=0)
    method = "auto" if by == "rows" else "one-shot"
    kpca = em.KernelPCA(3, **RBF, method=method, accuracy=1.0).fit(parts)
    kpca.save(tmp_path / "model.em", parties=by == "columns")
    loaded = em.load(tmp_path / "model.em")
    np.testing.assert_allclose(loaded.transform(DIGITS[:9]), kpca.transform(DIGITS[:9]), atol=1e-12)
    assert loaded.report_.floats_up == kpca.report_.floats_up > 0
    if by == "columns":
        assert loaded.transform_report_.floats_up > 0


def test_a_function_cannot_be_saved(tmp_path):
    kpca = em.KernelPCA(2, kernel=lambda x, y: float(x @ y)).fit(DIGITS[:30])
    with pytest.raises(em.EigenmeshError, match="function.*by name"):
        kpca.save(tmp_path / "model.em")


# Progress.


def test_progress_is_shown_when_asked_for(monkeypatch, capsys):
    monkeypatch.setattr(progress_bar, "PATIENCE", 0.0)
    monkeypatch.setenv("FORCE_COLOR", "1")
    kpca = em.KernelPCA(3, **RBF, n_landmarks=40, accuracy=1.0, verbose=True).fit(
        np.tile(DIGITS, (10, 1))
    )
    assert "kernel PCA" in capsys.readouterr().err
    kpca.set_params(verbose=False).fit(DIGITS)
    assert capsys.readouterr().err == ""
