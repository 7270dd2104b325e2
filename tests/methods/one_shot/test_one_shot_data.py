"""The same answer from every form of the same data, and from a saved model."""

import pickle
import sys

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.decomposition import KernelPCA
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import eigenmesh as em
from eigenmesh.errors import ModelFileError
from eigenmesh.metrics import aligned_error, sin_theta

RULES = [
    {"kernel": "linear"},
    {"kernel": "rbf", "gamma": 0.02},
    {"kernel": "rbf", "gamma": "scale"},
    {"kernel": "rbf", "gamma": "median"},
    {"kernel": "rbf", "gamma": "mean-distance"},
    {"kernel": "rbf", "gamma": 0.02, "fusion": "distance"},
]
THREE = [RULES[0], RULES[1], RULES[5]]

# The median rule sends more than 80 samples are worth, and says so.
pytestmark = pytest.mark.filterwarnings("ignore::eigenmesh.errors.EigenmeshWarning")


def model_of(rule, **settings):
    fixed = {"n_components": 2, "local_rank": 6, "random_state": 0}
    return em.OneShotKPCA(**{**fixed, **rule, **settings})


def four(X):
    return np.split(X, [8, 15, 23], axis=1)


@pytest.fixture
def X(bundled):
    return bundled("breast")[:80]


def same_model(one, other, exactly=False):
    tolerance = {"rtol": 0, "atol": 0} if exactly else {"rtol": 1e-9, "atol": 1e-9}
    np.testing.assert_allclose(one.eigenvalues_, other.eigenvalues_, **tolerance)
    np.testing.assert_allclose(one.eigenvectors_, other.eigenvectors_, **tolerance)


# Determinism.


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_the_same_seed_gives_the_same_answer_bit_for_bit(X, rule):
    parts = em.Partitioned(columns=four(X))
    first, second = model_of(rule).fit(parts), model_of(rule).fit(parts)
    same_model(first, second, exactly=True)
    np.testing.assert_array_equal(first.transform(X[:9]), second.transform(X[:9]))
    third = clone(first).fit(parts)
    same_model(first, third, exactly=True)
    with em.federation(parts) as fed:
        same_model(first, model_of(rule).fit(fed), exactly=True)


def test_the_answer_does_not_depend_on_global_randomness(X):
    parts = em.Partitioned(columns=four(X))
    fits = []
    for seed in (0, 1):
        np.random.seed(seed)  # noqa: NPY002 - the point of the test
        fits.append(model_of(RULES[1], random_state=None).fit(parts))
    same_model(*fits, exactly=True)


def test_refitting_forgets_the_last_fit(X):
    model = model_of(RULES[1]).fit(em.Partitioned(columns=four(X)))
    model.transform(X[:5])
    model.set_params(kernel="linear", gamma=None).fit(X[:50, :10])
    same_model(model, model_of(RULES[0]).fit(X[:50, :10]), exactly=True)
    assert model.transform(X[:3, :10]).shape == (3, 2)
    with pytest.raises(em.EigenmeshError):
        model.transform(X[:3])


@pytest.mark.parametrize("rule", THREE, ids=str)
def test_two_models_of_one_federation_do_not_disturb_each_other(X, rule):
    parts = em.Partitioned(columns=four(X))
    with em.federation(parts) as fed:
        first = model_of(rule).fit(fed)
        before = first.transform(X[:5])
        model_of(rule, n_components=3, local_rank=4).fit(fed)
        np.testing.assert_array_equal(first.transform(X[:5]), before)


def test_fit_changes_neither_the_data_nor_the_parameters(X):
    blocks = [block.copy() for block in four(X)]
    for block in blocks:
        block.flags.writeable = False
    for rule in RULES:
        model = model_of(rule)
        parameters = dict(model.get_params())
        model.fit(em.Partitioned(columns=blocks)).transform(em.Partitioned(columns=blocks))
        assert model.get_params() == parameters
    np.testing.assert_array_equal(np.hstack(blocks), X)


# Forms of data.


@pytest.mark.parametrize("rule", THREE, ids=str)
@pytest.mark.parametrize(
    "form",
    [
        pytest.param(np.asfortranarray, id="column-major"),
        pytest.param(lambda B: np.repeat(B, 2, axis=0)[::2], id="strided"),
        pytest.param(lambda B: B[:, ::-1][:, ::-1], id="negative strides"),
        pytest.param(lambda B: B.astype(">f8"), id="big-endian"),
        pytest.param(lambda B: B.tolist(), id="lists"),
        pytest.param(pd.DataFrame, id="frames"),
        pytest.param(sp.csr_array, id="csr"),
        pytest.param(sp.csc_matrix, id="csc"),
        pytest.param(sp.coo_array, id="coo"),
    ],
)
def test_every_form_of_the_same_numbers_gives_the_same_model(X, form, rule):
    expected = model_of(rule).fit(em.Partitioned(columns=four(X)))
    found = model_of(rule).fit(em.Partitioned(columns=[form(B.copy()) for B in four(X)]))
    same_model(found, expected)
    new = em.Partitioned(columns=[form(B[:9].copy()) for B in four(X)])
    np.testing.assert_allclose(found.transform(new), expected.transform(X[:9]), atol=1e-8)


@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("rule", THREE, ids=str)
def test_truly_sparse_columns_give_the_dense_answer(rule, center):
    S = sp.random_array((90, 60), density=0.08, random_state=np.random.default_rng(0), format="csr")
    dense = [S[:, :25].toarray(), S[:, 25:].toarray()]
    expected = model_of(rule, center=center).fit(em.Partitioned(columns=dense))
    found = model_of(rule, center=center).fit(em.Partitioned(columns=[S[:, :25], S[:, 25:]]))
    same_model(found, expected)
    np.testing.assert_allclose(
        found.transform(S[:7]), expected.transform(S[:7].toarray()), atol=1e-9
    )


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".csv", ".parquet"])
@pytest.mark.parametrize("rule", THREE, ids=str)
def test_files_give_the_same_model_and_are_opened_by_their_parties(X, tmp_path, suffix, rule):
    paths = [write(tmp_path / f"{i}{suffix}", B) for i, B in enumerate(four(X))]
    expected = model_of(rule).fit(em.Partitioned(columns=four(X)))
    same_model(model_of(rule).fit(em.Partitioned(columns=paths)), expected)
    with em.federation(paths, split="columns") as fed:
        found = model_of(rule).fit(fed)
    same_model(found, expected)
    np.testing.assert_allclose(
        found.transform(em.Partitioned(columns=paths)), expected.transform(X), atol=1e-8
    )


def write(path, B):
    frame = pd.DataFrame(B).add_prefix("x")
    {
        ".npy": lambda: np.save(path, B),
        ".npz": lambda: np.savez(path, X=B),
        ".csv": lambda: frame.to_csv(path, index=False, float_format="%.17g"),
        ".parquet": lambda: frame.to_parquet(path, index=False),
    }[path.suffix]()
    return path


def test_files_opened_by_many_threads_at_once_are_not_taken_for_damaged(X, tmp_path):
    """Threads switch as often as they can, which shows what is rare otherwise."""
    paths = [write(tmp_path / f"{i}.npy", B) for i, B in enumerate(four(X))]
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(150):
            em.OneShotKPCA(1, local_rank=1).fit(em.Partitioned(columns=paths))
    finally:
        sys.setswitchinterval(usual)


@pytest.mark.parametrize("rule", THREE, ids=str)
def test_memory_maps_give_the_same_model(X, tmp_path, rule):
    paths = [write(tmp_path / f"{i}.npy", B) for i, B in enumerate(four(X))]
    maps = [np.load(path, mmap_mode="r") for path in paths]
    expected = model_of(rule).fit(em.Partitioned(columns=four(X)))
    same_model(model_of(rule).fit(em.Partitioned(columns=maps)), expected)


def test_frames_with_one_index_are_matched_by_it(X):
    ids = [f"p{i}" for i in range(len(X))]
    frames = [pd.DataFrame(B, index=ids) for B in four(X)]
    expected = model_of(RULES[0]).fit(em.Partitioned(columns=four(X)))
    same_model(model_of(RULES[0]).fit(em.Partitioned(columns=frames)), expected)


@pytest.mark.parametrize("rule", THREE, ids=str)
def test_single_precision_is_as_good_as_single_precision_can_be(X, rule):
    expected = model_of(rule).fit(em.Partitioned(columns=four(X)))
    single = [B.astype(np.float32) for B in four(X)]
    found = model_of(rule).fit(em.Partitioned(columns=single))
    np.testing.assert_allclose(found.eigenvalues_, expected.eigenvalues_, rtol=1e-5)
    assert sin_theta(found.eigenvectors_, expected.eigenvectors_) < 1e-4
    scores = found.transform(em.Partitioned(columns=[B[:9] for B in single]))
    assert aligned_error(scores.astype(float), expected.transform(X[:9])) < 1e-4
    assert found.report_.floats_up == expected.report_.floats_up


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int64, np.bool_])
def test_whole_numbers_are_numbers_and_do_not_wrap_around(dtype):
    numbers = np.random.default_rng(0).integers(0, 2 if dtype is np.bool_ else 120, size=(40, 12))
    expected = model_of(RULES[0]).fit(numbers.astype(float))
    same_model(model_of(RULES[0]).fit(numbers.astype(dtype)), expected)


# scikit-learn's manners.


def test_works_in_a_pipeline_and_names_its_outputs(X):
    scores = make_pipeline(StandardScaler(), model_of(RULES[0])).fit_transform(X)
    assert scores.shape == (80, 2)
    model = model_of(RULES[0]).set_output(transform="pandas").fit(pd.DataFrame(X).add_prefix("x"))
    frame = model.transform(pd.DataFrame(X[:5]).add_prefix("x"))
    assert list(frame.columns) == list(model.get_feature_names_out())
    assert frame.shape == (5, 2)


def test_transform_before_fit_says_so(X):
    with pytest.raises(NotFittedError):
        em.OneShotKPCA(2).transform(X)


# Saved models.


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_a_saved_model_with_its_parties_shares_transforms_as_before(X, tmp_path, rule):
    model = model_of(rule).fit(em.Partitioned(columns=four(X)))
    model.save(tmp_path / "model.em", parties=True)
    loaded = em.load(tmp_path / "model.em")
    same_model(loaded, model, exactly=True)
    assert loaded.get_params() == model.get_params()
    before = model.transform(X[:9])
    np.testing.assert_allclose(loaded.transform(X[:9]), before, rtol=0, atol=1e-13)
    new = em.Partitioned(columns=four(X[:9]))
    np.testing.assert_allclose(loaded.transform(new), before, rtol=0, atol=1e-13)
    assert loaded.report_.floats_up == model.report_.floats_up


@pytest.mark.parametrize("rule", THREE, ids=str)
def test_the_coordinators_file_holds_no_training_columns(X, tmp_path, rule):
    """Every value of one party's column is looked for in the bytes of the file."""
    model = model_of(rule).fit(em.Partitioned(columns=four(X)))
    model.save(tmp_path / "model.em")
    assert [path.name for path in tmp_path.iterdir()] == ["model.em"]
    stored = (tmp_path / "model.em").read_bytes()
    assert not any(value.tobytes() in stored for value in X[:, 3])


def test_a_damaged_foreign_or_pickled_file_is_refused(X, tmp_path):
    model = model_of(RULES[0]).fit(X)
    good = tmp_path / "good.em"
    model.save(good)
    content = good.read_bytes()
    middle = len(content) // 2
    bad_files = {
        "truncated": content[: len(content) // 2],
        "flipped": content[:middle] + bytes([content[middle] ^ 0xFF]) + content[middle + 1 :],
        "longer": content + b"\0" * 8,
        "empty": b"",
        "text": b"not a model at all",
        "pickled": pickle.dumps({"eigenvalues_": np.ones(2)}),
        "pickled model": pickle.dumps(model),
    }
    for name, data in bad_files.items():
        path = tmp_path / f"{name}.em"
        path.write_bytes(data)
        with pytest.raises(ModelFileError, match=name):
            em.load(path)
    with pytest.raises(em.EigenmeshError):
        em.load(tmp_path / "absent.em")


def test_an_unfitted_model_is_not_saved(tmp_path):
    with pytest.raises((NotFittedError, em.EigenmeshError)):
        em.OneShotKPCA(2).save(tmp_path / "model.em")
    assert not (tmp_path / "model.em").exists()


# Real data, where they are at hand.


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
@pytest.mark.parametrize("name", ["sonar", "ionosphere", "vehicle", "glaucoma_m", "musk1"])
def test_real_data_equal_scikit_learn_in_the_exact_limit(real_data, oracle, name, kernel):
    X = real_data(f"{name}.npz")
    X = (X - X.mean(axis=0)) / np.where(X.std(axis=0) > 0, X.std(axis=0), 1.0)
    X = X[np.random.default_rng(0).permutation(len(X))]
    train, new = X[:90], X[90:110]
    gamma = 0.3 / X.shape[1]
    reference = KernelPCA(4, kernel=kernel, gamma=gamma, eigen_solver="dense").fit(train)
    for n_parties in (2, 5, 16):
        parts = em.Partitioned(columns=oracle.cut(train, n_parties))
        model = em.OneShotKPCA(4, kernel=kernel, gamma=gamma, local_rank=90).fit(parts)
        assert aligned_error(model.transform(new), reference.transform(new)) < 1e-8


def test_faces_over_parties_are_close_to_pooled_at_the_default_local_rank(real_data, oracle):
    X = real_data("orl_faces_32.npz")[:200] / 255.0
    exact = oracle.top(oracle.pooled([X], None), 5)[1]
    model = em.OneShotKPCA(5).fit(em.split(X, 8, by="columns"))
    error = sin_theta(model.eigenvectors_, exact)
    assert error <= model.report_.bounds["sin_theta"]
    blocks = em.split(X, 8, by="columns").parts
    papers = oracle.top(oracle.sketched(blocks, None, 10), 5)[1]
    assert error <= sin_theta(papers, exact) * (1 + 1e-6)
    assert model.report_.floats_up < model.report_.baseline_floats
