"""What all experiments measure alike."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from scipy.sparse.linalg import LinearOperator, eigsh


class Stopwatch:
    """Seconds of processor time."""

    seconds = 0.0


@contextmanager
def stopwatch() -> Iterator[Stopwatch]:
    """Times a fit apart from what is measured of it.

    >>> with stopwatch() as watch:
    ...     pass
    >>> watch.seconds < 1
    True
    """
    watch, started = Stopwatch(), time.process_time()
    yield watch
    watch.seconds = time.process_time() - started


def traffic(report: Any) -> dict[str, float]:
    """Floats to and fro, and those that parties send."""
    return {
        "floats": float(report.floats_up + report.floats_down),
        "floats_up": float(report.floats_up),
    }


def shipped(n_values: int) -> dict[str, float]:
    """The same of sending all data to one place."""
    return {"floats": float(n_values), "floats_up": float(n_values)}


def leading(K: Any, k: int, seed: int = 0) -> tuple[Any, Any]:
    """The k largest eigenvalues and their eigenvectors, by Lanczos; dense where k is near n.

    >>> leading(np.diag([1.0, 3.0, 2.0, 0.5, 0.1]), 2)[0].round(6)
    array([3., 2.])
    """
    n = K.shape[0]
    if 4 * k > n and not isinstance(K, LinearOperator):
        values, vectors = np.linalg.eigh(K)
    else:
        start = np.random.default_rng(seed).normal(size=n)
        values, vectors = eigsh(K, k, which="LA", v0=start)
    order = np.argsort(-values)[:k]
    return values[order], vectors[:, order]


def apart(u: Any, v: Any) -> float:
    """Distance of unit vectors up to sign.

    >>> apart(np.array([1.0, 0.0]), np.array([-1.0, 0.0]))
    0.0
    """
    u, v = u / np.linalg.norm(u), v / np.linalg.norm(v)
    return float(min(np.linalg.norm(u - v), np.linalg.norm(u + v)))
