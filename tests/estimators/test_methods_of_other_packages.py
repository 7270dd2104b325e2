"""A method of another package joins by its entry point, and is used as if it were here."""

import os
import subprocess
import sys

import pytest

import eigenmesh as em
from eigenmesh.methods.registry import Method, methods, register

METHOD = '''
"""Linear PCA from the parties' moments: one message each."""

from typing import Annotated, Any

import numpy as np

from eigenmesh.estimators.report import RunReport
from eigenmesh.estimators.rows import RowEstimator
from eigenmesh.methods.registry import Method, register
from eigenmesh.numerics.kernels import Kernel
from eigenmesh.numerics.landmarks import LandmarkModel
from eigenmesh.runtime.ledger import Ledger, forecast_entry
from eigenmesh.runtime.message import Floats, Message, Positive, Reveals, Shape
from eigenmesh.runtime.party import Party, step
from eigenmesh.runtime.protocol import protocol


class NoSetup(Message, reveals=None):
    """Nothing has to be agreed on."""


class ColumnMoments(Message, reveals="moments"):
    """Sums of the rows and of their products."""

    n_rows: Annotated[int, Reveals("counts"), Positive]
    sums: Annotated[Floats, Shape("d")]
    products: Annotated[Floats, Shape("d", "d")]


class MomentHolder(Party):
    """Holds some rows."""

    Setup = NoSetup

    @step
    def column_moments(self) -> ColumnMoments:
        """What the rows add up to."""
        A = np.asarray(self.site.data)
        return ColumnMoments(n_rows=len(A), sums=A.sum(axis=0), products=A.T @ A)


@protocol("tiny-moments", roles=(MomentHolder,))
def tiny_moments(rows):
    """One sum."""
    rows.enlist(MomentHolder, NoSetup())
    return rows.total(MomentHolder.column_moments).sum


class MomentPCA(RowEstimator):
    """Linear PCA from moments.

    >>> MomentPCA(2).n_components
    2
    """

    _fitted = ("eigenvalues_", "explained_variance_ratio_", "total_variance_", "residual_",
               "gamma_", "model_")

    def __init__(self, n_components: int = 2, *, random_state: Any = None) -> None:
        self.n_components = n_components
        self.random_state = random_state

    def fit(self, X, y=None):
        with self._opened(self._source(X)) as fed, fed.recording() as recording:
            self._require_rows(fed)
            fed.require(MomentHolder)
            total = fed.run(tiny_moments).value
        n, mean = total.n_rows, total.sums / total.n_rows
        values, vectors = np.linalg.eigh(total.products - n * np.outer(mean, mean))
        k = self.n_components
        V = vectors[:, ::-1][:, :k]
        self.model_ = LandmarkModel(
            Kernel("linear"), np.eye(len(mean)), V, mean @ V, values[::-1][:k],
            float(values[::-1][k]), float(values.sum()), n,
        )
        self.gamma_ = None
        self.eigenvalues_ = self.model_.eigenvalues
        self.total_variance_ = self.model_.total
        self.residual_ = self.model_.residual
        self.explained_variance_ratio_ = self.eigenvalues_ / self.total_variance_
        self.n_features_in_ = len(mean)
        self._last_transform = []
        self.report_ = RunReport.of(
            recording, fed, stop_reason="the sums are complete", baseline_floats=n * len(mean)
        )
        return self

    def _needs(self, fed, *, weighted=False):
        return MomentHolder, None

    def _forecast(self, names, shapes):
        d = shapes[0][1]
        return Ledger.of(
            [forecast_entry(MomentHolder.column_moments, name, d + d * d) for name in names], 1
        )

    @property
    def _n_features_out(self):
        return len(self.eigenvalues_)


register(Method("tiny-moments", "rows", ("linear",), MomentPCA, "moments add up"))
'''

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
assert em.KernelPCA(2).fit(parts).method_.startswith("diskpca")  # those of the house come first
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


def run(script, environment, *arguments):
    command = [sys.executable, *arguments[:1], script, *arguments[1:]]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_it_is_fitted_planned_saved_and_loaded(installed, tmp_path):
    model = str(tmp_path / "model.em")
    fitted, planned = run(USE, installed, "-c", model)
    assert fitted == planned == "tiny-moments: 3 parties hold rows; moments add up"
    assert run(LOAD, installed, "-c", model) == ["(1, 2)"]


def test_the_command_line_has_it(installed, tmp_path):
    run(
        "import sys, numpy as np; rng = np.random.default_rng(0)\n"
        "for path in sys.argv[1:]: np.save(path, rng.normal(size=(30, 4)))",
        installed,
        "-c",
        *(str(tmp_path / f"{name}.npy") for name in "ab"),
    )
    data = [str(tmp_path / f"{name}.npy") for name in "ab"]
    shown = run(
        "eigenmesh",
        installed,
        "-m",
        "plan",
        *data,
        "--split",
        "rows",
        *("--method", "tiny-moments"),
    )
    assert any("tiny-moments: 2 parties hold rows; moments add up" in line for line in shown)


def test_a_name_stands_for_one_estimator():
    with pytest.raises(TypeError, match="DisKPCA is registered as 'diskpca' already"):
        register(Method("diskpca", "rows", ("linear",), em.OneShotKPCA, "another"))


def test_every_method_of_the_house_is_registered_with_a_reason():
    known = methods(task=None)
    assert {method.estimator for method in known} == {
        em.ADMMKPCA,
        em.DPCA,
        em.DisKPCA,
        em.FedKernelKMeans,
        em.GossipKPCA,
        em.OneShotKPCA,
        em.SketchingPCA,
        em.VFedAKPCA,
        em.VFedPCA,
    }
    assert all(method.why and method.kernels for method in known)
