"""From data to a federation: `em.federation`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from eigenmesh.data import Partitioned, hash_sample_ids
from eigenmesh.engines.faulty import Fault, with_faults
from eigenmesh.engines.in_process import InProcess
from eigenmesh.errors import InputError
from eigenmesh.federation.federation import Federation
from eigenmesh.federation.policy import Policy
from eigenmesh.federation.site import Site
from eigenmesh.federation.topology import Topology

_ENGINES = {"in-process": InProcess}


def federation(
    source: Partitioned | Sequence[str | Path],
    *,
    engine: str = "in-process",
    split: str = "rows",
    topology: Topology | None = None,
    timeout: float | None = None,
    on_loss: str = "raise",
    max_age: int = 3,
    faults: Sequence[Fault] = (),
) -> Federation:
    """Open a federation over data that stay where they are.

    Parameters
    ----------
    source : a Partitioned, or a list of paths, each opened by its own party.
    engine : what carries the messages; "in-process" is this very process.
    split : for a list of paths, whether each holds "rows" or "columns".
    topology : None for a coordinator; "star", "full", "ring", "grid", "random-regular",
        ("lattice", k) or a networkx graph for neighbours without one.
    timeout : seconds that a party has for one step; None for the engine's own default.
    on_loss : "raise", "survivors" or "reuse"; see `Federation`.
    max_age : with "reuse", how many rounds old a reply may be.
    faults : a schedule of faults to inject, for tests and rehearsals.

    Examples
    --------
    >>> import eigenmesh as em
    >>> parts = em.Partitioned(rows=[[[1.0], [2.0]], [[3.0]]])
    >>> with em.federation(parts, topology="full") as fed:
    ...     fed.parties
    ('party-0', 'party-1')
    """
    if engine not in _ENGINES:
        raise InputError(f"engine {engine!r} is unknown; expected {', '.join(map(repr, _ENGINES))}")
    parts = source if isinstance(source, Partitioned) else _partitioned(source, split)
    _check_faults(faults, parts.names)
    wrap: Any = with_faults(faults) if faults else None
    return Federation(
        _ENGINES[engine](sites_of(parts), wrap),
        split=parts.split,
        topology=topology,
        timeout=timeout,
        on_loss=on_loss,
        max_age=max_age,
    )


def _check_faults(faults: Sequence[Fault], names: Sequence[str]) -> None:
    for fault in faults:
        if fault.party is not None and fault.party not in names:
            raise InputError(
                f"a fault is set for {fault.party!r}; the parties are {', '.join(map(repr, names))}"
            )


def _partitioned(paths: Sequence[str | Path], split: str) -> Partitioned:
    if split not in ("rows", "columns"):
        raise InputError(f"split is {split!r}; 'rows' or 'columns' is expected")
    if isinstance(paths, str | Path) or not all(isinstance(p, str | Path) for p in paths):
        raise InputError(
            "a federation is opened over a Partitioned or a list of paths, one a party; "
            "for arrays pass em.Partitioned(rows=[...]) or em.Partitioned(columns=[...])"
        )
    return Partitioned(rows=paths) if split == "rows" else Partitioned(columns=paths)


def sites_of(parts: Partitioned) -> list[Site]:
    """One site a party; its data are opened when it first needs them."""
    return [
        Site(
            name,
            opens=partial(parts.part, i),
            policy=parts.policies[i] or Policy(),
            identifies=partial(_ids_digest, parts, i),
        )
        for i, name in enumerate(parts.names)
    ]


def _ids_digest(parts: Partitioned, i: int) -> str:
    return hash_sample_ids(parts.part_ids(i))
