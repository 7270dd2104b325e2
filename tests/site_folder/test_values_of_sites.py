"""Weights and targets of sites that own their data are columns that their owners name."""

import numpy as np
import pytest
from tests.site_folder.folders import make_folder

import eigenmesh as em
from eigenmesh.errors import InputError

RNG = np.random.default_rng(3)
X = RNG.normal(size=(90, 3))
Y = {"dose": X @ [1.0, 2.0, 3.0], "age": X @ [1.0, 0.0, -1.0]}
WEIGHTS = RNG.random(90) + 0.1
PARTS = em.Partitioned(rows=np.split(X, 3), names=["east", "north", "south"])


def opened(tmp_path, targets):
    folders = []
    for i, name in enumerate(PARTS.names):
        own = slice(30 * i, 30 * (i + 1))
        values = {key: Y[key][own] for key in targets} | {"weight": WEIGHTS[own]}
        settings = f'targets = {list(targets)}\nweights = "weight"'
        folder = make_folder(tmp_path / name, name, X[own], settings=settings, **values)
        folders.append(folder.path)
    return em.federation(sites=folders)


@pytest.mark.parametrize("targets", [("dose",), ("dose", "age")])
def test_a_regression_on_the_sites_own_targets_is_that_on_the_values(tmp_path, targets):
    y = np.column_stack([Y[key] for key in targets])
    y = y[:, 0] if len(targets) == 1 else y
    own, here = (em.KernelPCRegressor(3, kernel="linear") for _ in range(2))
    with opened(tmp_path, targets) as fed:
        own.fit(fed, "sites")
    here.fit(PARTS, np.split(y, 3))
    assert own.predict(X).shape == y.shape
    np.testing.assert_allclose(own.predict(X), here.predict(X), atol=1e-9)


def test_weights_are_the_sites_own_and_values_from_the_caller_are_refused(tmp_path):
    own, here = (em.KernelPCA(2, kernel="linear") for _ in range(2))
    with opened(tmp_path, ("dose",)) as fed:
        own.fit(fed, sample_weight="sites")
        with pytest.raises(InputError, match=r"y='sites' for what each site\.toml names"):
            em.KernelPCRegressor(2, kernel="linear").fit(fed, np.split(Y["dose"], 3))
    here.fit(PARTS, sample_weight=np.split(WEIGHTS, 3))
    np.testing.assert_allclose(own.eigenvalues_, here.eigenvalues_)
