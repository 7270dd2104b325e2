"""Kernel k-means gives the same labels, floats and bytes on MPI as in one process.

Its other solvers meet another engine in `tests/contracts/test_engines.py`.

On a graph too: there labels, centres, and floats but for those of who tells its model.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_digits

import eigenmesh as em
from eigenmesh.estimators.party_values import AtSite

N_PARTIES = 3
NUMBERS = ("floats_up", "floats_down", "bytes", "rounds", "by_step", "reveals")

DIGITS = load_digits().data[:300] / 16
PARTS = em.split(DIGITS, N_PARTIES, law="power", exponent=0.5, random_state=0)
WEIGHTS = [np.linspace(0.5, 2, n) for n, _ in PARTS.shapes]
ESTIMATORS = {
    "front door": em.KernelKMeans(4, accuracy=0.05, random_state=0),
    "fed": em.FedKernelKMeans(4, n_features=30, n_iterations=4, random_state=0),
}


def fits(source: Any) -> dict[str, Any]:
    """Every estimator, and the front door once more with weights."""
    found = {name: clone(model).fit(source) for name, model in ESTIMATORS.items()}
    weighted = clone(ESTIMATORS["front door"]).fit(source, sample_weight=WEIGHTS)
    return {**found, "weighted": weighted}


def facts(models: dict[str, Any]) -> dict[str, Any]:
    """What must be the same everywhere, in the form that JSON has."""
    told = {
        name: {
            "labels": [labels.tolist() for labels in model.predict(PARTS)],
            **{number: getattr(model.report_, number) for number in NUMBERS},
        }
        for name, model in models.items()
    }
    return json.loads(json.dumps(told))


# In a row: the first and the last are apart.
FEW = em.split(DIGITS[:90], N_PARTIES, random_state=0)
FEW_WEIGHTS = [np.linspace(0.5, 2, n) for n, _ in FEW.shapes]
ON_A_GRAPH = em.KernelKMeans(
    3, gamma=0.05, n_landmarks=40, random_state=0, n_init=2, max_iter=2
)  # what its features miss is the business of test_graph_accuracy
few_features = pytest.mark.filterwarnings("ignore:.*(features|centroids) (miss|are off)")


def in_this_process(labels: Any) -> list[int] | None:
    return None if isinstance(labels, AtSite) else labels.tolist()


def graph_facts(source: Any) -> tuple[dict[str, Any], list[Any]]:
    """The same of a fit on the federation's graph; and every party's labels."""
    model = clone(ON_A_GRAPH).fit(source, sample_weight=FEW_WEIGHTS)
    told = {number: getattr(model.report_, number) for number in NUMBERS}
    told["centres"] = model.cluster_centers_.round(9).tolist()
    labels = [in_this_process(own) for own in model.labels_]
    return json.loads(json.dumps(told)), labels


def assert_same_on_a_graph(there: dict[str, Any], here: dict[str, Any]) -> None:
    """Models of other nodes may do the telling where this process has none: as many as needed."""
    steps = dict(there["by_step"])
    told = [steps.pop(step) for step in list(steps) if step.startswith("ModelHolder")]
    assert steps == here["by_step"]
    assert there["floats_up"] - sum(told) == here["floats_up"]
    np.testing.assert_allclose(there["centres"], here["centres"], atol=1e-8)


@pytest.fixture(scope="module")
def here() -> dict[str, Any]:
    models = fits(PARTS)
    for model in models.values():
        for own, again in zip(model.labels_, model.predict(PARTS), strict=True):
            np.testing.assert_array_equal(own, again)
    return facts(models)


@pytest.fixture(scope="module")
def here_on_a_graph() -> tuple[dict[str, Any], list[Any]]:
    with em.federation(FEW, topology="star") as fed:
        return graph_facts(fed)


@few_features
def test_on_mpi_with_a_coordinator_and_on_a_graph(here, here_on_a_graph, tmp_path):
    """Every rank ends with the model; of the labels it has its own party's, and no others'."""
    from tests.engines.mpi_ranks import require_mpi, run_ranks

    require_mpi()
    run_ranks(N_PARTIES, __file__, tmp_path)
    for rank in range(N_PARTIES):
        told = json.loads((tmp_path / f"rank-{rank}.json").read_text())
        assert told["facts"] == here
        for name, labels in told["own labels"].items():
            assert labels == only(rank, here[name]["labels"])
        there, labels = told["on a graph"]
        assert_same_on_a_graph(there, here_on_a_graph[0])
        assert labels == only(rank, here_on_a_graph[1])


def only(rank: int, labels: list[Any]) -> list[Any]:
    return [own if i == rank else None for i, own in enumerate(labels)]


def on_every_rank(folder: Path) -> None:
    """The job of the test on MPI."""
    from mpi4py import MPI

    with em.federation(PARTS, engine="mpi") as fed:
        models = fits(fed)
    with em.federation(FEW, engine="mpi", topology="star") as fed:
        on_a_graph = graph_facts(fed)
    own = {
        name: [in_this_process(labels) for labels in model.labels_]
        for name, model in models.items()
    }
    told = {"facts": facts(models), "own labels": own, "on a graph": on_a_graph}
    (folder / f"rank-{MPI.COMM_WORLD.rank}.json").write_text(json.dumps(told))


if __name__ == "__main__":
    on_every_rank(Path(sys.argv[1]))
