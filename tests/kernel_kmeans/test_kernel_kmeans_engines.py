"""Kernel k-means gives the same labels, floats and bytes on Dask and on MPI as in one process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_digits

import eigenmesh as em

ROOT = Path(__file__).parents[2]
MPIRUN = Path(sys.executable).parent / "mpirun"
OPTIONS = "--allow-run-as-root --oversubscribe --mca mpi_yield_when_idle 1".split()
N_PARTIES = 3
NUMBERS = ("floats_up", "floats_down", "bytes", "rounds", "by_step", "reveals")

DIGITS = load_digits().data[:300] / 16
PARTS = em.split(DIGITS, N_PARTIES, law="power", exponent=0.5, random_state=0)
WEIGHTS = [np.linspace(0.5, 2, n) for n, _ in PARTS.shapes]
ESTIMATORS = {
    "front door": em.KernelKMeans(4, accuracy=0.05, random_state=0),
    "fed": em.FedKernelKMeans(4, n_features=30, n_iterations=4, random_state=0),
    "fed gram": em.FedKernelKMeans(
        4, n_features=30, n_iterations=2, solver="gram", clustering="lloyd", random_state=0
    ),
    "fed lanczos": em.FedKernelKMeans(
        4, n_features=12, n_iterations=1, solver="lanczos", random_state=0
    ),
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


@pytest.fixture(scope="module")
def here() -> dict[str, Any]:
    models = fits(PARTS)
    for model in models.values():
        for own, again in zip(model.labels_, model.predict(PARTS), strict=True):
            np.testing.assert_array_equal(own, again)
    return facts(models)


def test_on_dask(here):
    from tests.engines.dask_cluster import open_on_dask

    with open_on_dask(PARTS) as fed:
        models = fits(fed)
    assert facts(models) == here
    assert all(model.labels_ == [None] * N_PARTIES for model in models.values())


@pytest.mark.skipif(
    find_spec("mpi4py") is None or not MPIRUN.exists(), reason="pip install 'eigenmesh[mpi]'"
)
def test_on_mpi(here, tmp_path):
    """Every rank ends with the model; of the labels it has its own party's, and no others'."""
    run = [sys.executable, "-m", "mpi4py", __file__, str(tmp_path)]
    done = subprocess.run(
        [str(MPIRUN), *OPTIONS, "-n", str(N_PARTIES), *run],
        capture_output=True,
        text=True,
        timeout=100,
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for rank in range(N_PARTIES):
        told = json.loads((tmp_path / f"rank-{rank}.json").read_text())
        assert told["facts"] == here
        for name, labels in told["own labels"].items():
            expected = [None] * N_PARTIES
            expected[rank] = here[name]["labels"][rank]
            assert labels == expected


def on_every_rank(folder: Path) -> None:
    """The job of `test_on_mpi`."""
    from mpi4py import MPI

    with em.federation(PARTS, engine="mpi") as fed:
        models = fits(fed)
    own = {
        name: [labels if labels is None else labels.tolist() for labels in model.labels_]
        for name, model in models.items()
    }
    told = {"facts": facts(models), "own labels": own}
    (folder / f"rank-{MPI.COMM_WORLD.rank}.json").write_text(json.dumps(told))


if __name__ == "__main__":
    on_every_rank(Path(sys.argv[1]))
