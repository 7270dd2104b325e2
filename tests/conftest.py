"""Shared by all tests: pooled answers computed from the definitions, and data.

`tests` is importable, so that suites can share helpers.

Nothing here uses eigenmesh's numerics: an oracle that shares code with the judged proves nothing.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import warnings
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from _pytest.doctest import DoctestModule
from hypothesis import settings
from scipy.spatial.distance import cdist
from sklearn import datasets

import eigenmesh as em

# What a shell starts in the background ignores interrupts, and the tests of these would wait for
# nothing.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Thousands of fits leave few cycles behind; to look for them every 700 objects takes a twentieth
# of the time.
gc.set_threshold(20_000)

# Examples that hypothesis draws are the same in every run, on however busy a machine.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")

_ROOT = Path(__file__).parents[1]
if str(_ROOT) not in sys.path:
    sys.path.insert(0, str(_ROOT))


@pytest.hookimpl(wrapper=True)
def pytest_collect_file():
    """Examples stand in `src`: looking for them here too would walk every test file twice."""
    return [file for file in (yield) if not isinstance(file, DoctestModule)]


def pytest_collection_modifyitems(items):
    """One worker runs what opens a Dask cluster, another what opens a Spark session.

    pytest-xdist's `worksteal` deals out the tests in equal shares, in this order, and steals from a
    share's end: what stands first in it stays together. Else each worker starts both.
    """
    groups = {"dask": [], "spark": [], "": []}
    for item in items:
        groups[_needs(item.path)].append(item)
    share = len(items) // int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "2"))
    others, first = groups[""], max(0, share - len(groups["dask"]))
    items[:] = [*groups["dask"], *others[:first], *groups["spark"], *others[first:]]


@cache
def _needs(path):
    """What tests of this file open, if it takes seconds a process."""
    text = path.read_text(encoding="utf-8")
    if "tests.engines.spark_session" in text:
        return "spark"
    return "dask" if "dask_cluster" in text or "tests.engines.contract" in text else ""


@pytest.fixture(scope="session")
def real_data():
    """Load one of the shared data sets by file name; skips where the folder is absent."""
    given = os.environ.get("EIGENMESH_DATA")
    folder = Path(given) if given else _ROOT.parent / "shared" / "data"

    def load(name):
        if not (folder / name).is_file():
            pytest.skip(f"{name} is not there; point EIGENMESH_DATA at the folder of data sets")
        with np.load(folder / name, allow_pickle=False) as archive:
            return archive["X"].astype(np.float64)

    return load


@pytest.fixture(scope="session")
def bundled():
    """Data sets that need no folder, by name: centred and scaled unless 'raw'."""
    return lambda name: _bundled(name).copy()


@pytest.fixture(scope="session")
def oracle():
    """Kernel PCA of pooled data, and paper 000's estimator, straight from their definitions."""
    return SimpleNamespace(
        kernel=kernel,
        centred=centred,
        top=top,
        pooled=pooled,
        sketched=sketched,
        local_spectra=local_spectra,
        scores=scores,
        span_residual=span_residual,
        cut=cut,
        quiet_fit=quiet_fit,
    )


@cache  # scikit-learn reads its files anew each time
def _bundled(name):
    if name == "digits":
        return datasets.load_digits().data / 16.0
    if name == "synthetic":
        rng = np.random.default_rng(7)
        return rng.normal(size=(90, 6)) @ rng.normal(size=(6, 40)) + rng.normal(size=(90, 40))
    if name == "wide":
        rng = np.random.default_rng(8)
        return rng.normal(size=(40, 5)) @ rng.normal(size=(5, 300)) + rng.normal(size=(40, 300))
    X = {
        "breast": datasets.load_breast_cancer,
        "raw breast": datasets.load_breast_cancer,
        "wine": datasets.load_wine,
    }[name]().data
    return X if name.startswith("raw") else (X - X.mean(axis=0)) / X.std(axis=0)


def kernel(A, B, gamma):
    """Kernel values of the rows of A against those of B; linear if gamma is None."""
    return A @ B.T if gamma is None else np.exp(-gamma * cdist(A, B, "sqeuclidean"))


def centred(K):
    """H K H."""
    return K - K.mean(axis=0) - K.mean(axis=1)[:, None] + K.mean()


def top(K, k=None):
    """The k largest eigenvalues and their eigenvectors, largest first."""
    values, vectors = np.linalg.eigh((K + K.T) / 2)
    return values[::-1][:k], vectors[:, ::-1][:, :k]


def pooled(blocks, gamma, center=True):
    """The kernel matrix of the pooled columns."""
    X = np.hstack(blocks)
    K = kernel(X, X, gamma)
    return centred(K) if center else K


def sketched(blocks, gamma, local_rank, center=True):
    """K̂ of paper 000, eqs. (5) and (8); columns of a linear kernel are centred by their party."""
    parts = []
    for B in _blocks_as_sent(blocks, gamma, center):
        values, vectors = top(kernel(B, B, gamma), local_rank)
        parts.append((vectors * np.maximum(values, 0.0)) @ vectors.T)
    K = sum(parts) if gamma is None else np.prod(parts, axis=0)
    return centred(K) if center else K


def local_spectra(blocks, gamma, center=True):
    """Eigenvalues of every party's kernel matrix, largest first."""
    return [top(kernel(B, B, gamma))[0] for B in _blocks_as_sent(blocks, gamma, center)]


def _blocks_as_sent(blocks, gamma, center):
    return [B - B.mean(axis=0) if center and gamma is None else B for B in blocks]


def scores(X, X_new, gamma, k, center=True):
    """Eigenvalues, and scores of new samples, of pooled kernel PCA."""
    K, K_new = kernel(X, X, gamma), kernel(X_new, X, gamma)
    if center:
        K_new = K_new - K.mean(axis=0) - K_new.mean(axis=1)[:, None] + K.mean()
        K = centred(K)
    values, vectors = top(K, k)
    return values, K_new @ vectors / np.sqrt(values)


def span_residual(K, V):
    """Squared distance in feature space of the samples to the span of Φᵀ V, from the exact K."""
    small, moved = V.T @ K @ V, K @ V
    return float(np.trace(K) - np.trace(np.linalg.pinv(small, rcond=1e-13) @ (moved.T @ moved)))


def cut(X, n_parties, seed=0):
    """Blocks of neighbouring columns, of uneven widths."""
    inner = np.random.default_rng([seed, n_parties]).choice(
        np.arange(1, X.shape[1]), n_parties - 1, replace=False
    )
    return np.split(X, np.sort(inner), axis=1)


def quiet_fit(estimator, data):
    """Fit without the warnings, which have tests of their own."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", em.EigenmeshWarning)
        return estimator.fit(data)
