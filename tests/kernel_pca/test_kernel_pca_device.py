"""`KernelPCA` of arrays of the Array API standard: rows stay where they are."""

import sys

import numpy as np
import pytest

import eigenmesh as em
from eigenmesh.errors import EigenmeshError, EigenmeshWarning, InputError
from eigenmesh.numerics import device_rows, device_sums
from eigenmesh.numerics.device_rows import in_main_memory

strict = pytest.importorskip("array_api_strict", reason="array-api-strict judges conformity")
pytest.importorskip("array_api_compat", reason="the extra array-api is not installed")

ELSEWHERE = strict.Device("device1")  # whose arrays numpy cannot read


def on_strict(X):
    return strict.asarray(X, device=ELSEWHERE)


def torch():
    return pytest.importorskip("torch", reason="torch, of some 200 MB, is not installed")


def on_torch(X):
    return torch().asarray(X)


LIBRARIES = {"strict": on_strict, "torch": on_torch}
KERNELS = {
    "linear": {},
    "rbf": {"gamma": 0.1},
    "poly": {"gamma": 0.1, "degree": 2},
    "cosine": {},
}


@pytest.fixture(scope="module")
def rows():
    """Of six columns, whose components have gaps."""
    rng = np.random.default_rng(0)
    return rng.normal(size=(9000, 6)) @ np.diag([3, 2, 1.2, 0.8, 0.5, 0.3]) + 0.5


@pytest.fixture(scope="module")
def exact(rows):
    return kpca(method="exact").fit(rows)


def kpca(kernel="rbf", n_components=3, **params):
    own = {**KERNELS.get(kernel, {}), **params}
    return em.KernelPCA(n_components, kernel=kernel, random_state=0, accuracy=0.2, **own)


def assert_same(device_fit, own, X, there, error):
    assert np.abs(device_fit.eigenvalues_ / own.eigenvalues_ - 1).max() < error
    scores, Z = device_fit.transform(there), own.transform(X)
    assert type(scores) is type(there)
    assert (scores.dtype, scores.device) == (there.dtype, there.device)
    assert (np.abs(in_main_memory(scores) - Z) < error * Z.std(axis=0)).all()


# The answer.


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(("dtype", "error"), [(np.float64, 1e-8), (np.float32, 1e-4)])
def test_by_given_landmarks_it_is_the_answer_of_the_array(rows, kernel, library, dtype, error):
    X = rows.astype(dtype)
    Y = np.eye(6, dtype=dtype) if kernel == "linear" else X[:60]
    there = LIBRARIES[library](X)
    own = kpca(kernel, landmarks=Y).fit(X)
    assert_same(kpca(kernel, landmarks=Y).fit(there), own, X, there, error)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("kernel", [*KERNELS, "laplacian", "sigmoid"])
def test_of_few_rows_it_is_the_fit_of_the_array(rows, kernel, library):
    X = rows[:300]
    there = LIBRARIES[library](X)
    device_fit, own = kpca(kernel).fit(there), kpca(kernel).fit(X)
    assert device_fit.method_.startswith(own.method_)
    assert device_fit.method_.endswith(f"; they came to main memory from {there.device}")
    assert np.array_equal(device_fit.eigenvalues_, own.eigenvalues_)
    if kernel == "laplacian":
        with pytest.warns(EigenmeshWarning, match="come to main memory block by block"):
            assert_same(device_fit, own, X, there, 1e-8)
    else:
        assert_same(device_fit, own, X, there, 1e-8)


def test_of_few_rows_kernels_that_only_arrays_have_go_through_main_memory(rows):
    X = rows[:200]
    for kernel, params in ((lambda x, y: float(x @ y), {}), ("precomputed", {})):
        K = X @ X.T if kernel == "precomputed" else X
        own = kpca(kernel, **params).fit(K)
        there = on_strict(K)
        assert_same(kpca(kernel, **params).fit(there), own, K, there, 1e-8)


def test_uncentred_and_weighted_models_of_arrays_score_rows_elsewhere(rows):
    X, weights = rows[:300], np.linspace(0, 3, 300)
    for own in (kpca(center=False).fit(X), kpca().fit(X, sample_weight=weights)):
        Z = own.transform(rows)
        scores = in_main_memory(own.transform(on_strict(rows)))
        assert (np.abs(scores - Z) < 1e-8 * Z.std(axis=0)).all()


@pytest.mark.parametrize("library", LIBRARIES)
def test_by_landmarks_of_a_sample_it_captures_what_the_array_does(rows, exact, library):
    there = LIBRARIES[library](rows)
    device_fit = kpca(n_landmarks=60).fit(there)
    own = kpca(n_landmarks=60).fit(rows)
    assert device_fit.method_.startswith(f"diskpca: 9,000 rows on {there.device} add up")
    assert device_fit.method_.endswith("by 4,096 of 9,000 rows")
    lost, own_loss = (exact.eigenvalues_.sum() - m.eigenvalues_.sum() for m in (device_fit, own))
    assert 0 < lost < 1.2 * own_loss
    assert device_fit.n_samples_seen_ == 9000
    missing = 1 - device_fit.eigenvalues_ / exact.eigenvalues_
    assert np.abs(device_fit.shortfalls_ - missing).max() < 0.5 * missing.max()
    true_total = exact.total_variance_
    assert true_total <= device_fit.total_variance_ < true_total + 4 * device_fit.residual_error_


def test_what_is_said_to_be_outside_the_span_is_within_its_error(rows, exact):
    # By the rows that centroids were made of it was 2 standard errors too small in the mean.
    true = exact.total_variance_
    there, off = on_strict(rows), []
    for seed in range(6):
        fit = kpca(n_landmarks=60).set_params(random_state=seed).fit(there)
        off.append((fit.total_variance_ - true) / fit.residual_error_ - 1.5)
    assert abs(np.mean(off)) < 1.2


@pytest.mark.parametrize("n_landmarks", [None, 60])
def test_few_rows_that_carry_the_variance_are_not_missed(n_landmarks):
    # A uniform draw of 20,000 of these had three of the four, and nothing showed the other.
    rng = np.random.default_rng(1)
    X = rng.normal(size=(60_000, 30))
    X[rng.choice(60_000, 4, replace=False)] *= 12 * np.array([1, 1.2, 1.5, 2])[:, None]
    params = {"kernel": "poly", "n_components": 4, "gamma": 0.03, "n_landmarks": n_landmarks}
    there, own = (kpca(**params).fit(data) for data in (on_strict(X), X))
    assert np.abs(there.eigenvalues_ / own.eigenvalues_ - 1).max() < 0.01
    assert there.shortfall_ < 0.01


def test_fit_transform_is_fit_and_then_transform(rows):
    there = on_strict(rows)
    scores = kpca(n_landmarks=60).fit_transform(there)
    again = kpca(n_landmarks=60).fit(there).transform(there)
    assert np.array_equal(in_main_memory(scores), in_main_memory(again))


@pytest.mark.parametrize("gamma", ["scale", "mean-distance"])
def test_gamma_by_a_rule_is_that_of_all_rows(rows, gamma):
    there = kpca(n_landmarks=60, gamma=gamma).fit(on_strict(rows))
    own = kpca(n_landmarks=60, gamma=gamma).fit(rows)
    assert there.gamma_ == pytest.approx(own.gamma_, rel=1e-10)


def test_float16_rows_are_worked_as_float32(rows):
    short = torch().asarray(rows).to(torch().bfloat16)
    device_fit = kpca(landmarks=rows[:60].astype(np.float32)).fit(short)
    own = kpca(landmarks=rows[:60].astype(np.float32)).fit(short.float().numpy())
    assert np.abs(device_fit.eigenvalues_ / own.eigenvalues_ - 1).max() < 1e-4
    assert device_fit.transform(short).dtype == torch().float32


# What leaves the device.


def numbers_that_came(monkeypatch):
    """Sizes of all that has come to main memory since."""
    sizes = []

    def watched(values):
        sizes.append(int(np.prod(values.shape)))
        return in_main_memory(values)

    for module in (device_rows, device_sums):
        monkeypatch.setattr(module, "in_main_memory", watched)
    return sizes


def test_draws_of_rows_and_sums_come_to_main_memory_and_of_scores_nothing(rows, monkeypatch):
    sizes = numbers_that_came(monkeypatch)
    there = on_strict(np.tile(rows, (3, 1)))
    model = kpca(n_landmarks=60).fit(there)
    assert max(sizes) == 4096 * 6  # for landmarks; then looks of 256 rows, doubled, and of 1,024
    assert sum(sizes) <= (4096 + 2 * 4096 + 1024) * 6 + 60 * 60 + 2 * 60
    del sizes[:]
    model.transform(there)
    assert sum(sizes) == 0


def test_of_rows_that_weigh_differently_one_number_each_comes_too(rows, monkeypatch):
    sizes = numbers_that_came(monkeypatch)
    X = np.tile(rows, (4, 1))
    kpca("poly", n_landmarks=60).fit(on_strict(X))
    few = (4096 + 20_000 + 2 * 4096 + 1024) * 6 + 60 * 60 + 2 * 60
    assert sum(sizes) <= few + 3 * len(X)  # ‖x‖², for each of those who draw


def test_torch_hands_numpy_no_more_than_these(rows):
    library = torch()

    class Watched(library.overrides.TorchFunctionMode):
        count = 0

        def __torch_function__(self, func, types, args=(), kwargs=None):
            if func.__name__ in ("__array__", "numpy", "tolist", "item", "__dlpack__", "__float__"):
                Watched.count += args[0].numel()
            return func(*args, **(kwargs or {}))

    there = library.asarray(np.tile(rows, (6, 1)))
    with Watched():
        model = kpca(n_landmarks=60).fit(there)
    came = 3 * 4096 * 6 + 60 * 60 + 2 * 60
    assert 4096 * 6 < Watched.count <= 2 * came < there.numel()  # by __array__, and then by numpy
    Watched.count = 0
    with Watched():
        model.transform(there)
    assert Watched.count <= 10  # whether all are finite


def test_rows_in_main_memory_need_no_other_library(rows, monkeypatch):
    def refuse():
        raise AssertionError("array-api-compat was asked for")

    monkeypatch.setattr(device_rows, "_compat", refuse)
    assert kpca(n_landmarks=60).fit(rows).transform(rows[:5]).shape == (5, 3)


# What follows a fit.


def test_models_of_arrays_and_of_files_score_rows_elsewhere(rows, tmp_path):
    own = kpca(n_landmarks=60).fit(on_strict(rows))
    own.save(tmp_path / "model.em")
    scores = em.load(tmp_path / "model.em").transform(on_strict(rows))
    assert np.array_equal(in_main_memory(scores), in_main_memory(own.transform(on_strict(rows))))
    assert np.allclose(own.transform(rows), in_main_memory(scores), rtol=0, atol=1e-10)


def test_a_prepared_model_scores_rows_elsewhere_by_blocks(rows):
    own = kpca(preparation=em.Preparation(standardize=True)).fit(rows[:500])
    Z = own.transform(rows)
    scores = in_main_memory(own.transform(on_strict(rows)))
    assert (np.abs(scores - Z) < 1e-10 * Z.std(axis=0)).all()


@pytest.mark.filterwarnings("ignore::eigenmesh.errors.CostWarning")
def test_models_of_parties_score_rows_elsewhere(rows):
    parts = em.split(rows, n_parties=3, random_state=0)
    for params in ({"n_landmarks": 60}, {"topology": "ring", "kernel": "linear"}):
        own = kpca(**params).fit(parts)
        Z = own.transform(rows)
        scores = in_main_memory(own.transform(on_strict(rows)))
        assert (np.abs(scores - Z) < 1e-8 * Z.std(axis=0)).all()


def test_scores_go_back_to_rows_elsewhere(rows):
    for X in (rows, rows[:300]):
        model = kpca(n_landmarks=60, fit_inverse_transform=True).fit(on_strict(X))
        Z = model.transform(X)
        there = model.inverse_transform(on_strict(Z))
        assert there.device == ELSEWHERE
        assert np.allclose(in_main_memory(there), model.inverse_transform(Z))


def test_more_rows_may_be_added_after_a_fit(rows):
    first, more = rows[:6000], rows[6000:]
    stream = kpca(landmarks=rows[:60]).fit(on_strict(first))
    with pytest.warns(EigenmeshWarning, match="6,000 of 9,000 rows were added .* elsewhere"):
        stream.partial_fit(more)
    own = kpca(landmarks=rows[:60]).fit(rows)
    assert np.abs(stream.eigenvalues_ / own.eigenvalues_ - 1).max() < 1e-8
    assert stream.n_samples_seen_ == 9000


# What is refused, in words.


def test_what_no_fit_takes_is_refused(rows):
    X, library = rows[:300], torch()
    there = library.asarray(X)
    wrong = {
        "pass X.detach()": there.clone().requires_grad_(),
        "holds torch.complex64; real": there.to(library.complex64),
        "1 dimension": there[0],
        "pass X.to_dense()": there.to_sparse(),
        "0 rows": there[:0],
        "1 rows and 6 columns; at least 2": there[:1],
    }
    for words, data in wrong.items():
        with pytest.raises(InputError, match=words):
            kpca().fit(data)
    missing = there.clone()
    missing[7, 2] = float("nan")
    for use in (kpca().fit, kpca().fit(there).transform):
        with pytest.raises(InputError, match=r"holds nan at row 7, column 2"):
            use(missing)
    with pytest.raises(InputError, match="X has 4 features, but KernelPCA is expecting 6"):
        kpca().fit(there).transform(there[:, :4])


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"method": "exact"}, "whole kernel matrix, which is solved in main memory"),
        ({"kernel": "sigmoid"}, "whole kernel matrix, which is solved in main memory"),
        ({"preparation": em.Preparation(standardize=True)}, "prepare them there"),
        ({"method": "gossip"}, "'gossip'"),
    ],
)
def test_what_takes_all_rows_in_main_memory_is_refused(rows, params, words):
    there = on_strict(np.tile(rows, (3, 1)))
    with pytest.raises(InputError, match=words):
        kpca(**params).fit(there)


def test_weights_are_refused(rows):
    with pytest.raises(InputError, match="sample_weight is given for rows on a device"):
        kpca().fit(on_strict(rows), sample_weight=np.ones(len(rows)))


@pytest.mark.parametrize(
    "use",
    [
        lambda X: em.KernelKMeans(2).fit(X),
        lambda X: em.KernelPCRegressor(2).fit(X, np.ones(300)),
        lambda X: em.DisKPCA(2).fit(X),
        lambda X: em.KernelPCA(2).partial_fit(X),
        lambda X: em.KernelPCA(2, epsilon=1.0, gamma=0.1, kernel="rbf").fit(X),
        lambda X: em.KernelPCA(2).fit(iter([X])),
        lambda X: em.Partitioned(rows=[np.ones((3, 6)), X]),
    ],
)
def test_who_takes_arrays_of_main_memory_alone_says_so(rows, use):
    with pytest.raises(InputError, match="an array in main memory is expected") as caught:
        use(on_strict(rows[:300]))
    assert isinstance(caught.value, EigenmeshError)


@pytest.mark.filterwarnings("ignore::eigenmesh.errors.CostWarning")
def test_parties_and_blocks_may_be_tensors_in_main_memory(rows):
    halves = [on_torch(rows[:4500]), on_torch(rows[4500:])]
    parts, own = em.Partitioned(rows=halves), em.Partitioned(rows=[rows[:4500], rows[4500:]])
    together, alone = (kpca(n_landmarks=60).fit(data) for data in (parts, own))
    assert np.array_equal(together.eigenvalues_, alone.eigenvalues_)
    blocks, own_blocks = (
        kpca(n_landmarks=60).fit(iter(X)) for X in (halves, [h.numpy() for h in halves])
    )
    assert np.array_equal(blocks.eigenvalues_, own_blocks.eigenvalues_)
    with pytest.raises(InputError, match="party 'party-1' is of type Tensor.*requires grad"):
        em.Partitioned(rows=[halves[0], halves[1].clone().requires_grad_()])


def test_a_loader_of_batches_is_refused_and_its_iterator_taken(rows):
    loader = torch().utils.data.DataLoader(on_torch(rows), batch_size=3000)
    with pytest.raises(InputError, match="X is a DataLoader; .*given an iterator of arrays"):
        kpca(n_landmarks=60).fit(loader)
    with pytest.raises(InputError, match="X is a DataLoader"):
        em.KernelKMeans(2).fit(loader)
    model = kpca(n_landmarks=60).fit(block for block in loader)
    assert model.n_samples_seen_ == 9000


def test_without_the_extra_the_error_says_what_to_install(rows, monkeypatch):
    monkeypatch.setitem(sys.modules, "array_api_compat", None)
    with pytest.raises(InputError, match=r"pip install 'eigenmesh\[array-api\]', or pass X.cpu"):
        kpca().fit(on_strict(rows))


def test_scores_that_overflow_are_refused(rows):
    model = kpca("poly", degree=5, landmarks=rows[:60]).fit(on_strict(rows))
    with pytest.raises(InputError, match="the scores of some rows are not finite"):
        model.transform(on_strict(1e70 * rows))
