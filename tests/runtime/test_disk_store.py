"""What fits leave at a site serves the next ones as well from disk as from memory."""

from __future__ import annotations

import numpy as np
import pytest

import eigenmesh as em
from eigenmesh.connect import sites_of
from eigenmesh.engines.in_process import InProcess
from eigenmesh.errors import InputError, StepRefused
from eigenmesh.runtime.disk_store import DiskStore
from eigenmesh.runtime.federation import Federation
from eigenmesh.runtime.site import Site, SiteView

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 6))
ROWS = em.Partitioned(rows=[X[:20], X[20:45], X[45:]])
COLUMNS = em.Partitioned(columns=[X[:, :3], X[:, 3:]])
FITS = {
    "landmarks": (em.DisKPCA(2, n_landmarks=20, random_state=0), ROWS, None),
    "clusters": (em.KernelKMeans(3, landmarks="diskpca", random_state=0), ROWS, None),
    "columns": (em.OneShotKPCA(2), COLUMNS, None),
    "graph": (em.ADMMKPCA(1, n_iterations=3, random_state=0), ROWS, "full"),
    "gossip": (em.GossipKPCA(1, n_features=20, random_state=0), ROWS, "full"),
}


def on_disk(parts, folder, topology=None) -> Federation:
    """Sites as they are after a restart: nothing in memory, their stores on disk."""
    sites = sites_of(parts)
    for site in sites:
        site.store = store = DiskStore(folder / site.name)
        site.left_by_studies = store.left_by_studies
    return Federation(InProcess(sites), split=parts.split, topology=topology)


def numbers(estimator) -> np.ndarray:
    clusters = getattr(estimator, "cluster_centers_", None)
    return estimator.eigenvalues_ if clusters is None else clusters


@pytest.mark.parametrize("name", FITS)
def test_a_fit_is_the_same_with_stores_on_disk(name, tmp_path):
    estimator, parts, topology = FITS[name]
    with em.federation(parts, topology=topology) as fed:
        in_memory = numbers(estimator.fit(fed))
    with on_disk(parts, tmp_path, topology) as fed:
        np.testing.assert_array_equal(numbers(estimator.fit(fed)), in_memory)
    assert name == "landmarks" or any(tmp_path.rglob("*.share"))


def test_new_samples_are_scored_from_shares_that_outlived_the_process(tmp_path):
    model = em.OneShotKPCA(2)
    with on_disk(COLUMNS, tmp_path) as fed:
        expected = model.fit(fed).transform(COLUMNS)
    model._shares = {}
    with on_disk(COLUMNS, tmp_path) as fed:
        np.testing.assert_allclose(model.transform(fed), expected, atol=1e-12)


def test_what_the_owner_keeps_no_study_writes_over_after_a_restart_either(tmp_path):
    site = Site("north", lambda: X, store=DiskStore(tmp_path))
    site.store["targets"] = {"targets": np.ones(60)}
    again = DiskStore(tmp_path)
    view = SiteView(Site("north", lambda: X, store=again), 0, ("north",))
    with pytest.raises(StepRefused, match="owner"):
        view.keep("targets", {"targets": np.zeros(60)})
    np.testing.assert_array_equal(view.kept("targets")["targets"], np.ones(60))


def test_the_oldest_results_of_studies_go_first_across_restarts(tmp_path, monkeypatch):
    monkeypatch.setattr("eigenmesh.runtime.site._MOST_KEPT", 2)
    for key in ("a", "b", "c"):
        store = DiskStore(tmp_path)
        site = Site("north", lambda: X, store=store, left_by_studies=store.left_by_studies)
        SiteView(site, 0, ("north",)).keep(key, {"n": 1})
    assert sorted(DiskStore(tmp_path)) == ["b", "c"] == sorted(DiskStore(tmp_path).left_by_studies)


def test_a_damaged_share_says_which_file_it_is(tmp_path):
    DiskStore(tmp_path)["a"] = {"n": 1}
    (file,) = tmp_path.glob("*.share")
    file.write_bytes(file.read_bytes()[:-1] + b"?")
    with pytest.raises(InputError, match=file.name):
        DiskStore(tmp_path)["a"]
    with pytest.raises(KeyError):
        DiskStore(tmp_path)["b"]
