"""The front door over columns: each owner prepares its own columns, keeps its loadings."""

import numpy as np
import pytest
from sklearn.decomposition import KernelPCA
from sklearn.preprocessing import scale

import eigenmesh as em
from eigenmesh.errors import InputError, MissingPartyShare
from eigenmesh.metrics import aligned_error

pytestmark = pytest.mark.filterwarnings("ignore::eigenmesh.errors.EigenmeshWarning")

RNG = np.random.default_rng(0)
RAW = 3 + 7 * RNG.normal(size=(40, 4)) @ RNG.normal(size=(4, 12)) + RNG.normal(size=(40, 12))
RAW[[1, 4, 9], [0, 5, 11]] = np.nan
FILLED = np.where(np.isnan(RAW), np.nanmean(RAW, axis=0), RAW)
PARTS = em.split(RAW, 3, by="columns", names=["north", "east", "south"], allow_missing=True)
PREPARED = {"standardize": True, "fill_missing": 0.1}


@pytest.mark.parametrize(
    ("kernel", "method", "topology"),
    [
        ("linear", "vfed-pca", None),
        ("linear", "vfed-pca", "ring"),
        ("rbf", "vfed-akpca", None),
        ("rbf", "vfed-akpca", "ring"),
        ("poly", "vfed-akpca", None),
        ("linear", "one-shot", None),
    ],
)
def test_each_owner_standardises_and_fills_its_own_columns(kernel, method, topology, tmp_path):
    options = {"kernel": kernel, "gamma": None if kernel == "linear" else 0.05}
    door = em.KernelPCA(
        2, method=method, topology=topology, local_rank=12, **options, **PREPARED
    ).fit(PARTS)
    expected = KernelPCA(2, eigen_solver="dense", **options).fit(scale(FILLED))
    assert door.method_.startswith(method)
    assert aligned_error(door.transform(PARTS), expected.transform(scale(FILLED))) < 1e-8
    new = RAW[:5].copy()
    new[0, 3] = np.nan
    seen = np.where(np.isnan(new), np.nanmean(RAW, axis=0), new)
    seen = (seen - FILLED.mean(0)) / FILLED.std(0)
    assert aligned_error(door.transform(new), expected.transform(seen)) < 1e-8
    door.save(tmp_path / "m.em", parties=True)
    loaded = em.load(tmp_path / "m.em")
    assert loaded.fill_missing == 0.1
    np.testing.assert_allclose(loaded.transform(new), door.transform(new), atol=1e-12)


def test_loadings_stay_with_their_owner_and_each_restores_its_own(tmp_path):
    door = em.KernelPCA(2, **PREPARED).fit(PARTS)
    Z = door.transform(PARTS)
    whole = door.inverse_transform(Z)
    assert whole.shape == RAW.shape
    door.save(tmp_path / "m.em", parties=True)
    (tmp_path / "m.share-0.em").unlink()
    (tmp_path / "m.share-2.em").unlink()
    at_east = em.load(tmp_path / "m.em")
    own = at_east.inverse_transform(Z, party="east")
    np.testing.assert_allclose(own, whole[:, 4:8], atol=1e-12)
    with pytest.raises(MissingPartyShare, match="north"):
        at_east.inverse_transform(Z)


def test_rows_are_not_prepared():
    for data in (FILLED, em.split(FILLED, 2, random_state=0), iter([FILLED])):
        with pytest.raises(InputError, match="columns that parties hold.*Preparation"):
            em.KernelPCA(2, standardize=True).fit(data)
    with pytest.raises(InputError, match="fill_missing is 3"):
        em.KernelPCA(2, fill_missing=3).fit(FILLED)
