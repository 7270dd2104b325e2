"""CONTRIBUTING's method, as another package's, is used as if it were of this one."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import eigenmesh as em
from eigenmesh.methods.registry import Method, methods, register

PAGE = Path(__file__).parents[2] / "CONTRIBUTING.md"
METHOD = re.search(r"^```python\n(.*?)^```$", PAGE.read_text(), re.S | re.M)[1]  # as it is told

USE = """
import sys
import numpy as np
import eigenmesh as em

X = np.random.default_rng(0).normal(size=(60, 5)) * [5, 4, 3, 2, 1]
parts = em.split(X, n_parties=3, random_state=0)
kpca = em.KernelPCA(2, method="tiny-moments").fit(parts)
print(kpca.method_)
plan = em.plan(em.KernelPCA(2, method="tiny-moments"), parts)
print(plan.method)
assert plan.floats_up == kpca.report_.floats_up == 3 * (5 + 25), plan.floats_up
exact = em.KernelPCA(2, method="exact").fit(X)
np.testing.assert_allclose(kpca.eigenvalues_, exact.eigenvalues_)
np.testing.assert_allclose(np.abs(kpca.transform(X)), np.abs(exact.transform(X)), atol=1e-9)
kpca.save(sys.argv[1])
assert em.KernelPCA(2).fit(parts).method_.startswith("moments: ")  # those of the house come first
"""

ON_DASK = """
from dask.distributed import Client, LocalCluster

with LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None) as cluster:
    with Client(cluster) as client, em.federation(parts, engine="dask", client=client) as fed:
        there = em.KernelPCA(2, method="tiny-moments").fit(fed)
np.testing.assert_allclose(kpca.eigenvalues_, there.eigenvalues_, rtol=1e-12)
assert kpca.report_.bytes == there.report_.bytes
print("same")
"""

ON_MPI = """
import sys
import numpy as np
from mpi4py import MPI
import eigenmesh as em
from eigenmesh.runtime.protocol import protocol_named

assert "tiny_method" not in sys.modules  # hosts know of it before any estimator does
assert protocol_named("tiny-moments").roles
X = np.random.default_rng(0).normal(size=(60, 5)) * [5, 4, 3, 2, 1]
parts = em.split(X, n_parties=2, random_state=0)
here = em.KernelPCA(2, method="tiny-moments").fit(parts)
with em.federation(parts, engine="mpi") as fed:
    there = em.KernelPCA(2, method="tiny-moments").fit(fed)
np.testing.assert_allclose(here.eigenvalues_, there.eigenvalues_, rtol=1e-12)
if MPI.COMM_WORLD.Get_rank() == 0:
    print("same")
"""

IN_CONTRACTS = """
import warnings
import pytest
sys.path.insert(0, sys.argv[2])
from tests.contracts import fits, intrusions
from eigenmesh.methods.registry import method_called

method = method_called("tiny-moments")
fits.FITS.append(fits.Fit("tiny-moments", fits.rows, lambda: method.estimator(2)))
number, warnings_off = len(fits.FITS) - 1, warnings.simplefilter("ignore")
runs, made, seed = intrusions.runs_at(number, "south"), 0, 0
while made < 200:
    made += intrusions.sequence_with_intrusions(number, runs, np.random.default_rng(seed))
    seed += 1
from tests.contracts import test_lost_parties, test_plans_and_policies as plans
for check in (
    plans.test_the_plan_is_what_a_fit_sends_or_a_bound_that_says_so,
    plans.test_a_policy_refuses_the_method_before_anything_left_and_names_party_and_kind,
    plans.test_a_policy_that_allows_what_the_plan_says_lets_the_fit_through,
    test_lost_parties.test_a_lost_party_ends_the_fit_with_its_name,
    test_lost_parties.test_survivors_go_on_and_say_so_or_say_why_not,
):
    check(fits.FITS[number])
print("held")
"""

LOAD = """
import sys
import numpy as np
import eigenmesh as em

assert "tiny_method" not in sys.modules
kpca = em.load(sys.argv[1])
assert type(kpca.estimator_).__module__ == "tiny_method"
print(kpca.transform(np.ones((1, 5))).shape)
"""

# In the same process: an interpreter takes longer to start than to do all this.
ON_THE_COMMAND_LINE = """
from eigenmesh.cli.commands import main

sys.argv[1:] = ["plan", *sys.argv[2:], "--split", "rows", "--method", "tiny-moments"]
main()
"""


@pytest.fixture
def installed(tmp_path):
    """The environment of a process in which the package is installed."""
    (tmp_path / "tiny_method.py").write_text(METHOD)
    info = tmp_path / "tiny_method-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tiny-method\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[eigenmesh.methods]\ntiny = tiny_method\n")
    paths = [str(tmp_path), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def run(environment, *arguments):
    command = [sys.executable, *map(str, arguments)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_it_is_fitted_also_on_dask_planned_saved_loaded_keeps_contracts_and_is_on_the_command_line(
    installed, tmp_path
):
    model, data = tmp_path / "model.em", [tmp_path / "a.npy", tmp_path / "b.npy"]
    script = USE + ON_DASK + IN_CONTRACTS
    fitted, planned, on_dask, contracts = run(installed, "-c", script, model, PAGE.parent)
    assert planned == "tiny-moments: 3 parties hold rows; moments add up"
    assert fitted == f"{planned}; what left the parties: counts, moments"
    assert (on_dask, contracts) == ("same", "held")
    for i, path in enumerate(data):
        np.save(path, np.random.default_rng(i).normal(size=(30, 4)))
    loaded, *shown = run(installed, "-c", LOAD + ON_THE_COMMAND_LINE, model, *data)
    assert loaded == "(1, 2)"
    assert any("tiny-moments: 2 parties hold rows; moments add up" in line for line in shown)


def test_it_runs_on_mpi(installed, tmp_path):
    script = tmp_path / "on_mpi.py"
    script.write_text(ON_MPI)
    mpirun = Path(sys.executable).with_name("mpirun")
    if not mpirun.exists():
        pytest.skip("no mpirun beside this Python; pip install 'eigenmesh[mpi]'")
    options = "--allow-run-as-root --oversubscribe --mca mpi_yield_when_idle 1 -n 2".split()
    command = [str(mpirun), *options, sys.executable, "-m", "mpi4py", str(script)]
    done = subprocess.run(command, env=installed, capture_output=True, text=True, timeout=110)
    assert done.stdout.split() == ["same"], done.stderr


def test_a_name_stands_for_one_estimator():
    with pytest.raises(TypeError, match="DisKPCA is registered as 'diskpca' already"):
        register(Method("diskpca", "rows", ("linear",), em.OneShotKPCA, "another"))


def test_every_method_of_the_house_is_registered_with_a_reason():
    known = methods(task=None)
    assert {method.estimator for method in known} == {
        em.ADMMKPCA,
        em.DPCA,
        em.DisKPCA,
        em.DistributedKMeans,
        em.FedKernelKMeans,
        em.GossipKPCA,
        em.MomentPCA,
        em.OneShotKPCA,
        em.PrivateKMeans,
        em.PrivatePCA,
        em.SketchingPCA,
        em.VFedAKPCA,
        em.VFedPCA,
    }
    assert all(method.why and method.kernels for method in known)
