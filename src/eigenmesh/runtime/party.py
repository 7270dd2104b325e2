"""Parties: what runs at a site. Its `@step` methods are all that anyone can ask of it."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple, get_args, get_origin, get_type_hints, overload

from eigenmesh.runtime import wire
from eigenmesh.runtime.message import Message, kinds_of
from eigenmesh.runtime.site import SiteView


class Signature(NamedTuple):
    """What a step takes and gives, from its annotations."""

    takes: type[Message] | None
    gives: type[Message] | None
    from_neighbours: bool  # takes a dict: neighbour number -> message
    to_each_neighbour: bool  # gives such a dict, instead of one message for all


class Worth(NamedTuple):
    """What only its party can tell of a reply.

    `covers` are the fewest rows behind any number of it, all of the party's if None; `kinds` what
    it is beside what it is called.
    """

    covers: int | None = None
    kinds: frozenset[str] = frozenset()


class Step:
    """A method that may be asked for by name; made by `@step`.

    ``Role.name`` is the step itself, to hand to a federation; ``party.name`` is the bound method.
    `reusable` says whether its last reply may stand in for one that is missing; `cumulative`,
    whether the next one makes up for it; `worth` tells what a reply is worth.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        reusable: bool = True,
        cumulative: bool = False,
        worth: Callable[[Any, Any], Worth] | None = None,
    ) -> None:
        self.function = function
        self.reusable = reusable
        self.cumulative = cumulative
        self.worth = worth
        self.name = function.__name__
        self.__doc__ = function.__doc__
        self._inherited: dict[type[Party], Step] = {}

    def __set_name__(self, owner: type[Party], name: str) -> None:
        self.role = owner

    def __get__(self, party: Party | None, owner: type[Party]) -> Any:
        if party is not None:
            return self.function.__get__(party, owner)
        if owner is self.role:
            return self
        if owner not in self._inherited:
            options = (self.reusable, self.cumulative, self.worth)
            self._inherited[owner] = Step(self.function, *options)
            self._inherited[owner].role = owner
        return self._inherited[owner]

    def __repr__(self) -> str:
        return f"<step {self.role.__name__}.{self.name}>"

    @functools.cached_property
    def signature(self) -> Signature:
        """The message types, read from the annotations once."""
        hints = get_type_hints(self.function)
        gives, to_each = _message_type(hints.get("return", type(None)), self)
        names = list(inspect.signature(self.function).parameters)[1:]
        if len(names) > 1:
            raise TypeError(f"{self!r} takes {names}; a step takes at most one message")
        takes, from_each = _message_type(hints[names[0]], self) if names else (None, False)
        return Signature(takes, gives, from_each, to_each)

    @functools.cached_property
    def reveals(self) -> frozenset[str]:
        """The kinds that leave a party when this step is answered."""
        gives = self.signature.gives
        return kinds_of(gives) if gives else frozenset()


def _message_type(hint: Any, step: Step) -> tuple[type[Message] | None, bool]:
    if hint is type(None):
        return None, False
    if get_origin(hint) is dict:
        key, value = get_args(hint)
        if key is int and issubclass(value, Message):
            return value, True
    elif isinstance(hint, type) and issubclass(hint, Message):
        return hint, False
    raise TypeError(f"{step!r} is annotated {hint}; a Message or dict[int, Message] is expected")


@overload
def step(function: Callable[..., Any]) -> Any: ...
@overload
def step(
    *,
    reusable: bool = True,
    cumulative: bool = False,
    worth: Callable[[Any, Any], Worth] | None = None,
) -> Callable[[Callable[..., Any]], Any]: ...
def step(
    function: Callable[..., Any] | None = None,
    *,
    reusable: bool = True,
    cumulative: bool = False,
    worth: Callable[[Any, Any], Worth] | None = None,
) -> Any:
    """Offer a method of a party to the federation. Its annotations fix what it takes and gives.

    ``@step(reusable=False)`` marks a step whose reply belongs to its round alone: with
    ``on_loss="reuse"`` an older reply never stands in for it, and the loss of the party is raised.
    ``@step(cumulative=True)`` marks what neighbours send anew with all that they sent before: one
    that is missing, however often, costs time and nobody's place in the run.
    ``@step(worth=function)`` has ``function(party, reply)`` tell what a reply is worth, where its
    sizes do not: how few rows it covers, or that it gives columns away. A host asks before a reply
    leaves, if its policy forbids what it might be.
    """
    if function is None:
        return functools.partial(Step, reusable=reusable, cumulative=cumulative, worth=worth)
    return Step(function, reusable, cumulative, worth)


class Party:
    """Base of all parties: built at its site for one run from the site's view and a setup.

    `state` names the attributes that change between steps. Only they may be set after
    construction, and only they are exported; everything else is rebuilt from data and setup.
    """

    Setup: ClassVar[type[Message]]
    state: ClassVar[tuple[str, ...]] = ()

    def __init__(self, site: SiteView, setup: Any) -> None:
        self.site = site
        self.setup = setup

    def __setattr__(self, name: str, value: Any) -> None:
        if getattr(self, "_sealed", False) and name not in self.state:
            raise AttributeError(
                f"{type(self).__name__}.{name} is not declared in `state`, so it would be lost "
                f"when the party is restored"
            )
        super().__setattr__(name, value)

    def vouches_for(self, message: Message) -> bool:
        """Whether rows that no party gave follow from what this one knows."""
        return False

    def seal(self) -> None:
        """From here on only declared state may change."""
        super().__setattr__("_sealed", True)

    def export(self) -> dict[str, Any]:
        """A copy of the declared state; raises TypeError if something in it could not travel."""
        return {name: wire.copied(getattr(self, name)) for name in self.state}

    def restore(self, exported: Mapping[str, Any]) -> None:
        """Set the declared state from a copy of what `export` gave. Its arrays can be written."""
        for name, value in exported.items():
            setattr(self, name, wire.copied(value))


_steps: dict[type[Party], dict[str, Step]] = {}


def steps_of(role: type[Party]) -> Mapping[str, Step]:
    """The steps that a role offers, by name."""
    if role not in _steps:  # looked for once: every party of a large federation asks
        static = {name: inspect.getattr_static(role, name) for name in dir(role)}
        names = [name for name, value in static.items() if isinstance(value, Step)]
        _steps[role] = {name: getattr(role, name) for name in names}
    return _steps[role]
