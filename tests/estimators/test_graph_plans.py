"""Plans on graphs are the ledgers of the fits, also where messages may be lost."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest

import eigenmesh as em

ROWS = em.split(np.random.default_rng(0).normal(size=(44, 5)), 4, random_state=0)
COLUMNS = em.split(np.random.default_rng(1).normal(size=(20, 8)), 4, by="columns")
KERNEL = {"kernel": "rbf", "gamma": 0.1}
FITS = {
    "gossip": (ROWS, lambda: em.GossipKPCA(2, n_rounds=2, **KERNEL)),
    "gossip-random": (ROWS, lambda: em.GossipKPCA(2, n_rounds=2, features="random", **KERNEL)),
    "admm": (ROWS, lambda: em.ADMMKPCA(1, n_iterations=3, **KERNEL)),
    "admm-watched": (ROWS, lambda: em.ADMMKPCA(1, n_iterations=2, tolerance=0.0)),
    "kernel-pca": (ROWS, lambda: em.KernelPCA(2, n_landmarks=20, **KERNEL)),
    "regressor": (ROWS, lambda: em.KernelPCRegressor(2, n_landmarks=20, **KERNEL)),
    "dpca": (COLUMNS, lambda: em.DPCA(1, n_iterations=1, n_inner=1)),
    "vfed-akpca": (COLUMNS, lambda: em.VFedAKPCA(1, **KERNEL)),
}


def drawn_graph(rng, n=4):
    while True:
        graph = nx.gnp_random_graph(n, 0.7, seed=int(rng.integers(1000)))
        if nx.is_connected(graph):
            return graph


@pytest.mark.filterwarnings("ignore::eigenmesh.errors.EigenmeshWarning")
@pytest.mark.parametrize(
    ("name", "on_loss"),
    [
        *((name, "raise") for name in FITS),
        *((name, ("survivors", "reuse")[i % 2]) for i, name in enumerate(FITS)),
        ("kernel-pca", "reuse"),
        ("admm", "reuse"),
    ],
)
def test_a_plan_knows_what_on_loss_adds(name, on_loss):
    parts, build = FITS[name]
    rng = np.random.default_rng([len(name), len(on_loss)])
    with em.federation(parts, topology=drawn_graph(rng), on_loss=on_loss) as fed:
        expected = em.plan(build(), fed)
        y = [part[:, 0] for part in parts.parts] if name == "regressor" else None
        fitted = build().fit(fed) if y is None else build().fit(fed, y)
    report = fitted.report_
    assert expected.by_step == report.by_step
    assert expected.rounds == report.rounds
    assert expected.by_party == report.by_party
    assert ("as if nothing were lost" in str(expected)) == (on_loss != "raise")
