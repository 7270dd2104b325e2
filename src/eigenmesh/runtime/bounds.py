"""Bounds of a policy: which protocols a site answers, and within which parameters."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, get_args, get_type_hints

from eigenmesh.errors import InputError

_OF_SCOPE = ("split", "on_loss", "max_age")


@dataclass(frozen=True)
class Bound:
    """What one parameter may be: within two ends, or one of some values."""

    low: float | None = None
    high: float | None = None
    values: tuple[Any, ...] | None = None

    def allows(self, value: Any) -> bool:
        """Whether a parameter may be this; a range is of numbers alone, so None is outside."""
        if self.values is not None:
            return any(type(value) is type(one) and value == one for one in self.values)
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        above = self.low is None or value >= self.low
        return above and (self.high is None or value <= self.high)

    @property
    def plain(self) -> Any:
        """As `bound_of` takes it, in words and numbers that a file can have."""
        if self.values is not None:
            return list(self.values)
        return {name: end for name in ("low", "high") if (end := getattr(self, name)) is not None}

    def __repr__(self) -> str:
        if self.values is not None:
            return f"one of {', '.join(map(repr, self.values))}"
        if self.low is None:
            return f"at most {self.high}"
        return f"at least {self.low}" if self.high is None else f"{self.low} to {self.high}"


def bound_of(bound: Any, name: str) -> Bound:
    """The most, ``(low, high)``, a mapping of one or both, one value, or a list of values.

    >>> bound_of(20, "n_rounds"), bound_of((1, 5), "n_components"), bound_of(["rbf"], "kernel")
    (at most 20, 1 to 5, one of 'rbf')
    """
    if isinstance(bound, Bound):
        return bound
    if isinstance(bound, str | bool):
        return Bound(values=(bound,))
    if isinstance(bound, int | float):
        return Bound(high=bound)
    if isinstance(bound, Mapping) and bound and bound.keys() <= {"low", "high"}:
        return _range(bound.get("low"), bound.get("high"), name)
    if isinstance(bound, tuple) and len(bound) == 2:
        return _range(*bound, name)
    if isinstance(bound, list | set | frozenset) and bound:
        return Bound(values=tuple(sorted(bound, key=repr)))
    raise InputError(
        f"the bound of {name} is {bound!r}; expected the most, (low, high) or a list of values"
    )


def _range(low: Any, high: Any, name: str) -> Bound:
    ends = [end for end in (low, high) if end is not None]
    numbers = all(isinstance(end, int | float) and not isinstance(end, bool) for end in ends)
    if not ends or not numbers or (len(ends) == 2 and low > high):
        raise InputError(
            f"the bound of {name} is ({low!r}, {high!r}); two numbers in their order are expected"
        )
    return Bound(low, high)


def bounds_of(protocols: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Bound]]:
    """Bounds as a policy keeps them; protocols and parameters that there are not are refused."""
    if not isinstance(protocols, Mapping):
        raise InputError(f"protocols is {protocols!r}; expected {{name: {{parameter: bound}}}}")
    checked = {}
    for name, bounds in protocols.items():
        if not isinstance(bounds, Mapping):
            raise InputError(f"protocol {name!r} has {bounds!r}; expected {{parameter: bound}}")
        _require_known(name, bounds)
        checked[name] = {own: bound_of(bound, f"{name}.{own}") for own, bound in bounds.items()}
    return checked


def _require_known(name: str, bounds: Collection[str]) -> None:
    # Sites have policies and protocols have parties at sites: known when first asked for.
    from eigenmesh.runtime.protocol import registered

    roll = registered()
    if name not in roll:
        raise InputError(
            f"a policy cannot bound protocol {name!r}; the protocols are {', '.join(sorted(roll))}"
        )
    parameters = sorted(parameters_of(roll[name]))
    unknown = [own for own in bounds if own not in parameters]
    if unknown:
        raise InputError(
            f"protocol {name!r} has no {', '.join(map(repr, unknown))} to bound; "
            f"it has {', '.join(parameters) or 'no parameters'}"
        )


def parameters_of(protocol: Any) -> set[str]:
    """What can be bounded: parameters of the schedule, and the fields of records among them."""
    if protocol.schedule is None:
        return set(_OF_SCOPE)
    hints = get_type_hints(protocol.schedule)
    names = list(inspect.signature(protocol.schedule).parameters)[1:]
    nested = [field for name in names for field in _fields(hints.get(name))]
    setups = [field for role in protocol.roles for field in _fields(role.Setup)]
    return {*names, *nested, *(setups if "setup" in names else ()), *_OF_SCOPE}


def _fields(hint: Any) -> Iterator[str]:
    for own in (hint, *get_args(hint)):
        if isinstance(own, type) and dataclasses.is_dataclass(own):
            inner = get_type_hints(own)
            for declared in dataclasses.fields(own):
                yield declared.name
                yield from _fields(inner.get(declared.name))


def outside(bounds: Mapping[str, Bound], terms: Mapping[str, Any], scope: Any) -> str | None:
    """The first bounded parameter that is not within its bound, with its value and the bound."""
    own = {name: getattr(scope, name) for name in _OF_SCOPE}
    for name, value in _flat({**terms, **own}):
        if name in bounds and not bounds[name].allows(value):
            return f"{name} is {value!r}, {bounds[name]!r} is allowed"
    return None


def _flat(terms: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Terms by name, and the fields of records by theirs."""
    for name, value in terms.items():
        yield name, value
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            yield from _flat({f.name: getattr(value, f.name) for f in dataclasses.fields(value)})
        elif hasattr(value, "_asdict"):
            yield from _flat(value._asdict())
