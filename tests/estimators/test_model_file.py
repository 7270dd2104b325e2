"""Saved models come back the same, and nothing but a saved model is opened."""

import pickle
import stat
from contextlib import contextmanager

import joblib
import numpy as np
import pytest
import scipy.sparse
from sklearn.datasets import load_wine
from sklearn.preprocessing import StandardScaler

import eigenmesh as em
from eigenmesh.errors import FileNotWritten, MissingPartyShare, ModelFileError
from eigenmesh.runtime import wire

X = StandardScaler().fit_transform(load_wine().data)
PARTS = em.split(X, 3, by="columns", names=["north", "south", "west"])
MODELS = {
    "linear": em.OneShotKPCA(2, local_rank=3),
    "product": em.OneShotKPCA(2, kernel="rbf", gamma="median"),
    "distance": em.OneShotKPCA(2, kernel="rbf", gamma=0.05, fusion="distance", local_rank=3),
}
pytestmark = pytest.mark.filterwarnings("ignore::eigenmesh.errors.EigenmeshWarning")


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "model.em"
    em.OneShotKPCA(2).fit(PARTS).save(path, parties=True)
    return path


@pytest.mark.parametrize("name", MODELS)
def test_loaded_model_gives_the_same_scores(name, tmp_path):
    model = MODELS[name].fit(PARTS)
    model.save(tmp_path / "model.em", parties=True)
    loaded = em.load(tmp_path / "model.em")
    # Arrays from a file lie elsewhere in memory, where older BLAS adds in another order.
    np.testing.assert_allclose(loaded.transform(X), model.transform(X), rtol=0, atol=1e-14)
    np.testing.assert_array_equal(loaded.eigenvalues_, model.eigenvalues_)
    assert loaded.report_ == model.report_
    assert loaded.get_params() == model.get_params()


def test_sparse_columns_come_back_sparse(tmp_path):
    S = scipy.sparse.random(40, 12, 0.4, format="csr", random_state=0)
    model = em.OneShotKPCA(2, kernel="rbf", gamma=0.5).fit(em.split(S, 2, by="columns"))
    model.save(tmp_path / "model.em", parties=True)
    np.testing.assert_allclose(em.load(tmp_path / "model.em").transform(S), model.transform(S))


def test_feature_names_survive(tmp_path):
    frame = load_wine(as_frame=True).data
    em.OneShotKPCA(2).fit(frame).save(tmp_path / "model.em", parties=True)
    loaded = em.load(tmp_path / "model.em")
    assert list(loaded.feature_names_in_) == list(frame.columns)
    assert loaded.transform(frame).shape == (178, 2)


def test_the_coordinators_file_holds_no_partys_share(tmp_path):
    model = MODELS["product"].fit(PARTS)
    model.save(tmp_path / "model.em")
    data = (tmp_path / "model.em").read_bytes()
    for own in PARTS.parts:
        assert np.ascontiguousarray(own[:3]).tobytes() not in data


def test_transform_without_a_share_names_the_party(saved):
    saved.with_name("model.share-1.em").unlink()
    with pytest.raises(MissingPartyShare, match="'south'") as caught:
        em.load(saved).transform(X)
    assert caught.value.party == "south"


def test_shares_of_two_models_are_not_mixed_up(saved, tmp_path):
    other = tmp_path / "other.em"
    em.OneShotKPCA(2).fit(PARTS).save(other, parties=True)
    other.with_name("other.share-0.em").replace(saved.with_name("model.share-0.em"))
    with pytest.raises(MissingPartyShare, match="'north'"):
        em.load(saved).transform(X)


def test_a_flipped_bit_anywhere_is_noticed(saved):
    data = bytearray(saved.read_bytes())
    rng = np.random.default_rng(0)
    for position in [0, 5, 9, *rng.integers(12, len(data), 60)]:
        damaged = bytearray(data)
        damaged[position] ^= 1 << int(rng.integers(8))
        saved.write_bytes(damaged)
        with pytest.raises(ModelFileError):
            em.load(saved)


@pytest.mark.parametrize("length", [0, 1, 11, 12, 100, -1])
def test_a_truncated_file_is_noticed(saved, length):
    saved.write_bytes(saved.read_bytes()[:length])
    with pytest.raises(ModelFileError):
        em.load(saved)


class Exploding:
    def __reduce__(self):
        return (pytest.fail, ("a pickle was opened",))


@pytest.mark.parametrize("dump", [pickle.dump, lambda obj, file: joblib.dump(obj, file)])
def test_a_pickle_is_refused_and_never_opened(dump, tmp_path):
    path = tmp_path / "model.em"
    with path.open("wb") as file:
        dump(Exploding(), file)
    with pytest.raises(ModelFileError, match="pickle"):
        em.load(path)


def test_foreign_files_are_named_for_what_they_are(tmp_path):
    np.savez(tmp_path / "a.npz", X=X)
    (tmp_path / "a.csv").write_text("a,b\n1,2\n")
    (tmp_path / "share.em").write_bytes(wire.dumps({"form": "something"}))
    for name, words in [
        ("a.npz", "zip archive"),
        ("a.csv", "first bytes"),
        ("share.em", "something"),
    ]:
        with pytest.raises(ModelFileError, match=words):
            em.load(tmp_path / name)
    with pytest.raises(ModelFileError, match="cannot be read"):
        em.load(tmp_path / "missing.em")


def test_a_model_of_a_later_version_says_so(saved):
    tree = wire.loads(saved.read_bytes())
    saved.write_bytes(wire.dumps({**tree, "version": 99, "library": "9.9"}))
    with pytest.raises(ModelFileError, match=r"version 99.*9\.9"):
        em.load(saved)


@pytest.mark.parametrize("change", ["estimator", "params", "fitted", "report"])
def test_a_well_formed_file_with_nonsense_inside_is_refused(saved, change):
    tree = wire.loads(saved.read_bytes())
    for nonsense in ("os.system", 3, None, {"class": "Popen"}, {"a": 1}, []):
        saved.write_bytes(wire.dumps({**tree, change: nonsense}))
        with pytest.raises(ModelFileError):
            em.load(saved)


@contextmanager
def files_of_at_most(n_bytes):
    """As on a disk that is almost full."""
    resource = pytest.importorskip("resource", reason="this system has no such limits")
    usual = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, usual[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, usual)


@pytest.mark.parametrize("room", ["nowhere", "for all but the last share"])
def test_disk_that_is_full_leaves_every_file_as_it_was(saved, room):
    def contents():
        return {file.name: file.read_bytes() for file in saved.parent.iterdir()}

    before = contents()
    longest = [PARTS.part(0)[:, :1], PARTS.part(1)[:, :1], np.tile(PARTS.part(2), 2000)]
    other = em.OneShotKPCA(1).fit(em.Partitioned(columns=longest, names=PARTS.names))
    most = 100 if room == "nowhere" else 40_000
    with files_of_at_most(most), pytest.raises(FileNotWritten, match="cannot be written") as caught:
        other.save(saved, parties=True)
    assert ("share-2" in str(caught.value)) == (room != "nowhere")
    assert contents() == before


def test_shares_are_their_owners_alone_and_no_link_is_followed(saved, tmp_path):
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()}
    shares = {name for name, mode in modes.items() if mode == 0o600}
    assert shares == modes.keys() - {"model.em"}
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_bytes(b"theirs")
    share = tmp_path / sorted(shares)[1]
    share.unlink()
    share.symlink_to(elsewhere)
    with pytest.raises(FileNotWritten, match="symbolic link"):
        em.OneShotKPCA(2).fit(PARTS).save(saved, parties=True)
    assert elsewhere.read_bytes() == b"theirs"


def test_saving_replaces_a_file_whole(saved):
    em.OneShotKPCA(1).fit(PARTS).save(saved)
    assert em.load(saved).n_components == 1
    assert not list(saved.parent.glob("*.part"))


FITTED = {
    **{name: (model, PARTS) for name, model in MODELS.items()},
    "rows": (em.KernelPCA(2, kernel="rbf", random_state=0), em.split(X, 3, random_state=0)),
    "array": (em.KernelPCA(2, kernel="rbf"), X[:40]),
    "clusters": (em.KernelKMeans(3, random_state=0), em.split(X, 3, random_state=0)),
}


@pytest.mark.parametrize("name", FITTED)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_none_are_refused_wherever_they_are(name, value, tmp_path):
    model, source = FITTED[name]
    model.fit(source).save(tmp_path / "model.em")
    tree = wire.loads((tmp_path / "model.em").read_bytes())
    places = list(arrays_in(tree))
    assert len(places) >= 3
    for where, array in places:
        spoilt = np.array(array)
        spoilt.flat[np.random.default_rng(array.size).integers(array.size)] = value
        (tmp_path / "spoilt.em").write_bytes(wire.dumps(replaced(tree, where, spoilt)))
        with pytest.raises(ModelFileError, match=rf"{value} in {'.'.join(map(str, where))}"):
            em.load(tmp_path / "spoilt.em")


def arrays_in(tree, where=()):
    """Arrays of numbers with a point, and the keys that lead to each."""
    if isinstance(tree, np.ndarray):
        if tree.dtype.kind == "f" and tree.size:
            yield where, tree
        return
    entries = tree.items() if isinstance(tree, dict) else ()
    for key, value in enumerate(tree) if isinstance(tree, list) else entries:
        yield from arrays_in(value, (*where, key))


def replaced(tree, where, array):
    """The tree with another array at a place."""
    if not where:
        return array
    key, *rest = where
    if isinstance(tree, list):
        return [replaced(v, rest, array) if i == key else v for i, v in enumerate(tree)]
    return {**tree, key: replaced(tree[key], rest, array)}


def test_a_model_with_nan_is_not_saved(tmp_path):
    model = em.OneShotKPCA(2).fit(PARTS)
    model.eigenvalues_ = model.eigenvalues_ * np.nan
    with pytest.raises(ModelFileError, match="nan in fitted.eigenvalues_"):
        model.save(tmp_path / "model.em")
    assert not list(tmp_path.iterdir())
