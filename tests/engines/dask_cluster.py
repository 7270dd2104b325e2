"""One Dask cluster on the loopback for all tests of a process, started when first needed."""

from __future__ import annotations

import atexit
from functools import cache
from typing import Any

import pytest

import eigenmesh as em
from eigenmesh.runtime.federation import Federation

QUIET = {"threads_per_worker": 1, "processes": True, "dashboard_address": ":0"}
# A cluster that watches itself keeps an eighth of a core busy, from its first test to the last.
UNWATCHED = {
    "distributed.worker.profile.enabled": False,
    "distributed.admin.tick.interval": "1s",
    "distributed.admin.system-monitor.interval": "10s",
    "distributed.worker.memory.monitor-interval": "2s",
}


@cache
def client() -> Any:
    """A client of three workers; they end with the tests. Those that are killed come back."""
    distributed = pytest.importorskip("distributed", reason="pip install 'eigenmesh[dask]'")
    _configure()
    cluster = distributed.LocalCluster(n_workers=3, host="127.0.0.1", **QUIET)
    atexit.register(cluster.close)
    opened = distributed.Client(cluster)
    atexit.register(opened.close)
    return opened


def _configure() -> None:
    """Workers fork from a server that has imported everything: a killed one is back in no time."""
    import dask
    from distributed.utils import get_mp_context

    dask.config.set({"distributed.worker.multiprocessing-method": "forkserver", **UNWATCHED})
    get_mp_context()  # sets a list of its own, once
    get_mp_context().set_forkserver_preload(["distributed", "dask.dataframe", "eigenmesh"])


def open_on_dask(source: Any, **options: Any) -> Federation:
    """A federation on that cluster."""
    return em.federation(source, engine="dask", client=client(), **options)
