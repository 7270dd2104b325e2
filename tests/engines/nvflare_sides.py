"""The sides of an NVFlare job in this process: the engine's own code, without NVFlare's processes.

What NVFlare does between them, calls in the caller's name, is done here by a function call in a
thread; everything above it is what runs in a job.
"""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

import eigenmesh as em
from eigenmesh import connect
from eigenmesh.connect import sites_of
from eigenmesh.engines import nvflare
from eigenmesh.engines.nvflare import Flare
from eigenmesh.runtime.federation import Federation
from eigenmesh.runtime.host import Host

NAME = "sides of an NVFlare job"


class Proxy:
    """Calls a side in the name of somebody; `silent` stands for a process that is gone."""

    def __init__(self, side: Any, name: str, caller: str) -> None:
        self.name, self.side, self.caller = name, side, caller
        self.silent = False

    def __call__(self, **options: Any) -> Any:
        return self

    def __getattr__(self, method: str) -> Any:
        from nvflare.collab.api.context import get_call_context, set_call_context

        def call(**arguments: Any) -> Any:
            if self.silent:
                raise TimeoutError(method)
            before = get_call_context()
            set_call_context(SimpleNamespace(caller=self.caller))
            try:
                return getattr(self.side, method)(**arguments)
            finally:
                set_call_context(before)

        return call


class FlareHere(Flare):
    """A job whose sides live in this process."""

    values_stay = False

    def __init__(self, sites: Any, wrap: Any, timeout: Any = None) -> None:
        from eigenmesh.nvflare_jobs.sides import SiteSide

        names = tuple(site.name for site in sites)
        self.sites, self.sides = sites, [SiteSide() for _ in sites]
        for i, (site, side) in enumerate(zip(sites, self.sides, strict=True)):
            host = Host(site, i, names, relays=self.relays)
            side._host = wrap(host) if wrap else host
            side._name, side._names, side._index = site.name, names, i
            side._peers = {
                other.name: Proxy(self.sides[j], other.name, site.name)
                for j, other in enumerate(sites)
            }
        self.proxies = {
            name: Proxy(side, name, "server") for name, side in zip(names, self.sides, strict=True)
        }
        super().__init__(self.proxies, names)

    def local_sites(self) -> Any:
        return dict(enumerate(self.sites))


def open_here(source: Any, **options: Any) -> Federation:
    """A federation over these sides."""
    pytest.importorskip("nvflare", reason="pip install 'eigenmesh[nvflare]'")
    connect._ENGINES[NAME] = FlareHere
    return em.federation(source, engine=NAME, **options)


class Session:
    """A session with a server whose side is in this process: what the engine uses of NVFlare's."""

    def __init__(self, monkeypatch, sites):
        self.sites, self.jobs, self.absent, self.ended = sites, [], set(), set()
        self.client_names = list(sites.names)
        self.api = SimpleNamespace(host="127.0.0.1", port=1)  # at which nobody listens
        monkeypatch.setattr(nvflare, "_session", lambda kit: self)

    def submit_job(self, folder):
        job = open_here(self.sites)._engine
        for side, site in zip(job.sides, sites_of(self.sites), strict=True):
            site.split = self.sites.split
            side._site = site
        from eigenmesh.nvflare_jobs.sides import ServerSide

        server = ServerSide()
        server._context = SimpleNamespace(is_aborted=lambda: False)
        server._proxies = {n: p for n, p in job.proxies.items() if n not in self.absent}
        self.jobs.append(server)
        return f"job-{len(self.jobs)}"

    def do_app_command(self, job_id, topic, data):
        from nvflare.fuel.flare_api.api_spec import JobNotRunning

        if job_id in self.ended:
            raise JobNotRunning(job_id)
        return self.jobs[-1].command(topic, json.loads(json.dumps(data)), None)

    def get_job_meta(self, job_id):
        return {}

    def get_job_status(self, job_id):
        return "FINISHED:ABORTED" if job_id in self.ended else "RUNNING"

    def get_connected_client_list(self):
        return [SimpleNamespace(name=name) for name in self.client_names]

    def abort_job(self, job_id):
        self.ended.add(job_id)

    def close(self):
        pass
