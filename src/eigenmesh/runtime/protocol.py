"""Protocols and their register: the only way from a role's name to a class."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.metadata import entry_points
from typing import Any, Generic, TypeVar

from eigenmesh.errors import StepRefused
from eigenmesh.runtime.party import Party

R = TypeVar("R")

ENTRY_POINTS = "eigenmesh.methods"  # by which other packages' methods join, and their protocols
_protocols: dict[str, Protocol[Any]] = {}
_roles: dict[str, type[Party]] = {}  # of all of them, by name
_scheduled: set[type[Party]] = set()  # of those that have a schedule


@dataclass(frozen=True)
class Protocol(Generic[R]):
    """A paper's method: its roles and the coordinator's side as a function of a federation.

    `skips` says whether its answer stays right when a party misses a round and takes part in the
    next; without it, `on_loss="skip"` is refused. `schedule` gives, from a `Scope` and those of the
    coordinator's arguments that it names, what will be asked of the parties. `only_counts` says
    that it asks for sizes alone, for which rows need not be prepared. `begins_anew` says that it is
    run again when parties have left on the way: its answer is that of those who stay. `version`
    rises where a site that has the last one could not follow: it then refuses the study by it.
    """

    name: str
    roles: tuple[type[Party], ...]
    coordinate: Callable[..., R]
    skips: bool = False
    schedule: Callable[..., Any] | None = None
    version: int = 1
    only_counts: bool = False
    begins_anew: bool = False

    @cached_property
    def number(self) -> int:
        """A number that is the same everywhere, for the keys of shared random draws."""
        return zlib.crc32(self.name.encode())


def protocol(
    name: str,
    *,
    roles: tuple[type[Party], ...],
    skips: bool = False,
    schedule: Callable[..., Any] | None = None,
    version: int = 1,
    only_counts: bool = False,
    begins_anew: bool = False,
) -> Callable[[Callable[..., R]], Protocol[R]]:
    """Register a protocol. Hosts know the roles of registered protocols, and no others."""

    def register(coordinate: Callable[..., R]) -> Protocol[R]:
        if name in _protocols:
            raise TypeError(f"a protocol {name!r} is registered already")
        _require_own_names(roles)
        how = {"only_counts": only_counts, "begins_anew": begins_anew}
        registered = Protocol(name, roles, coordinate, skips, schedule, version, **how)
        _protocols[name] = registered
        _roles.update({role_name(role): role for role in roles})
        _scheduled.update(roles if schedule is not None else ())
        return registered

    return register


def _require_own_names(roles: tuple[type[Party], ...]) -> None:
    """A role travels by name: a second class of that name would be built in the first's place."""
    for role in roles:
        if _roles.get(role_name(role), role) is not role:
            raise TypeError(f"another protocol has a role {role_name(role)!r}; rename one of them")


def role_name(role: type[Party]) -> str:
    """The name under which a role travels."""
    return role.__name__


def known_roles() -> Mapping[str, type[Party]]:
    """Every registered role by name, those of installed extensions included."""
    load_extensions()
    return _roles


def is_scheduled(role: type[Party]) -> bool:
    """Whether a protocol with a schedule has this role, so that only a study may enlist it."""
    load_extensions()
    return role in _scheduled


def registered() -> dict[str, Protocol[Any]]:
    """Every protocol by name, those of installed extensions included."""
    load_extensions()
    return dict(_protocols)


def protocol_named(name: str) -> Protocol[Any]:
    """A registered protocol."""
    load_extensions()
    if name not in _protocols:
        raise StepRefused(f"protocol {name!r} is not known at this site")
    return _protocols[name]


@cache
def load_extensions() -> None:
    """Import what other packages' entry points name: that registers what they have."""
    for entry in entry_points(group=ENTRY_POINTS):
        entry.load()
