"""Rules for gamma on graphs: what a coordinator would find, by averages of neighbours alone."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest

import eigenmesh as em
from eigenmesh.methods.admm.neighbourhood import STORE
from eigenmesh.stages.gamma import bandwidth
from eigenmesh.stages.graph_gamma import graph_bandwidth

RULES = ("scale", "mean-distance", "median")


def drawn(rng, split, most_columns=11):
    n_nodes, n_columns = int(rng.integers(2, 6)), int(rng.integers(6, most_columns + 1))
    X = rng.normal(size=(int(rng.integers(40, 80)), n_columns)) * rng.uniform(0.1, 9)
    X += rng.uniform(-1e3, 1e3)
    while True:
        graph = nx.gnp_random_graph(n_nodes, 0.6, seed=int(rng.integers(1000)))
        if nx.is_connected(graph):
            return em.split(X, n_nodes, by=split, random_state=0), graph


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("split", ["rows", "columns"])
@pytest.mark.parametrize("seed", range(2))
def test_the_same_gamma_as_with_a_coordinator(rule, split, seed):
    rng = np.random.default_rng([seed, len(rule), len(split)])
    parts, graph = drawn(rng, split, 11)
    with em.federation(parts) as fed:
        expected = fed.run(bandwidth, rule, 0).value.gamma
    with em.federation(parts, topology=graph) as fed:
        run = fed.run(graph_bandwidth, rule, 0)
    assert run.value.gamma == pytest.approx(expected, rel=1e-6)
    up = {e.step.partition(".")[2] for e in run.recording.ledger if e.receiver == "coordinator"}
    assert up == {f"count_{split}", "tell_gamma"}


@pytest.mark.filterwarnings("ignore::eigenmesh.errors.EigenmeshWarning")
@pytest.mark.parametrize(
    ("gamma", "on_loss"), [*((rule, "raise") for rule in (None, *RULES)), ("median", "survivors")]
)
def test_a_plan_knows_the_rule(gamma, on_loss):
    rows = em.split(np.random.default_rng(0).normal(size=(36, 6)), 3, random_state=0)
    columns = em.split(np.random.default_rng(1).normal(size=(12, 6)), 3, by="columns")
    fits = [
        (rows, em.GossipKPCA(1, kernel="rbf", gamma=gamma, n_rounds=1)),
        (rows, em.ADMMKPCA(1, kernel="laplacian", gamma=gamma, n_iterations=1)),
        (columns, em.VFedAKPCA(1, kernel="rbf", gamma=gamma)),
    ]
    for parts, estimator in fits:
        with em.federation(parts, topology="ring", on_loss=on_loss) as fed:
            plan, report = em.plan(estimator, fed), estimator.fit(fed).report_
        assert plan.by_step == report.by_step
        assert plan.rounds == report.rounds


def test_a_node_that_lets_no_sketch_out_refuses_beforehand():
    policies = em.Policy(allow={"moments", "counts", "centroids"})
    parts = em.Partitioned(
        rows=[np.random.default_rng(0).normal(size=(20, 4))] * 3, policies=policies
    )
    assert em.GossipKPCA(1, kernel="rbf", gamma="mean-distance").fit(parts).gamma_ > 0
    with pytest.raises(em.EigenmeshError, match="sketch"):
        em.GossipKPCA(1, kernel="rbf", gamma="median").fit(parts)


@pytest.mark.filterwarnings("ignore::eigenmesh.errors.EigenmeshWarning")
def test_gamma_is_that_of_noisy_rows():
    parts = em.split(np.random.default_rng(0).normal(size=(60, 4)), 3, random_state=0)
    with em.federation(parts, topology="ring") as fed:
        how = {"kernel": "rbf", "gamma": "mean-distance", "row_noise": 3.0, "n_iterations": 1}
        kpca = em.ADMMKPCA(1, **how).fit(fed)
        kept = [
            fed.local_sites()[name].store[STORE]["rows"][i] for i, name in enumerate(parts.names)
        ]
    X = np.vstack(kept)
    expected = len(X) / (2 * np.sum((X - X.mean(axis=0)) ** 2))
    assert kpca.gamma_ == pytest.approx(expected, rel=1e-6)
