"""The methods that there are: what the front doors, plans and files know of any of them.

A method joins with one line at the end of its estimator's file:

    register(Method("one-shot", "columns", ("linear", "poly", "rbf"), OneShotKPCA, why="…"))

or from another package by the entry-point group "eigenmesh.methods", whose entries name a module
that has such a line. A method that comes in several variants (landmarks that are rows, or
centroids) has one line for each, under one name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from eigenmesh.estimators.base import DoorArguments, FederatedEstimator, Shapes
from eigenmesh.runtime.protocol import load_extensions

LAST = 1000  # the rank of methods that say nothing of theirs

# Classes of disclosure, from least to most: sums over a party's rows; means of a few rows, or the
# top of a spectrum; numbers that determine a party's columns up to rotation; rows.
Disclosure = Literal["sums", "means", "columns", "rows"]
CLASSES: tuple[Disclosure, ...] = get_args(Disclosure)


@dataclass(frozen=True)
class Method:
    """A method by name: whom it suits, which estimator runs it, and why one would take it.

    `why` is said to users, after the name and a colon. With `graph` it is for parties without a
    coordinator, else for those with one. `discloses` is the most that leaves a party;
    `method="auto"` takes the first that split, kernel, sizes and all policies allow, by class of
    disclosure, then by `rank`: what costs less for the same has the lower one. What lets out rows
    is taken only if it is asked for by name, and what is not `accurate`, whose shortfall nobody
    measures, where nothing else is allowed.

    An estimator takes what it must know of the front door before it in `_for_door`, and says in
    `_needs` what it asks of parties.
    """

    name: str
    split: Literal["rows", "columns"]
    kernels: tuple[str, ...]
    estimator: type[FederatedEstimator]
    why: str
    graph: bool = False
    task: Literal["components", "clusters", "comparison"] = "components"  # no door has the last
    rank: int = LAST
    discloses: Disclosure = "rows"
    accurate: bool = True
    private: bool = False  # adds noise: taken where epsilon is given, and nowhere else
    options: Mapping[str, Any] = field(default_factory=dict)  # parameters that make the variant
    n_components: Literal["number", "or all", "or share"] = "number"  # what it takes for it
    # Of rows at a coordinator: where scores live.
    span: Literal["", "landmarks", "features", "embedding"] = ""
    landmarks: tuple[str, ...] = ()  # how they may be drawn, by name
    takes_weights: bool = False
    masked: bool = False  # taken by itself only where sums are masked, since it tells many of them
    cheaper: str = ""  # how a fit can send less, where the estimator's own way is no parameter here
    # Whether it suits parties of these sizes, where that hangs on them; by name it is taken anyhow.
    sizes_allow: Callable[[DoorArguments, Shapes], bool] | None = None

    @property
    def takes_landmarks(self) -> bool:
        """Whether a front door's landmarks are its own, and its model is all that scores rows."""
        return self.span == "landmarks"


_METHODS: list[Method] = []


def _place(method: Method) -> tuple[bool, int, int]:
    return not method.accurate, CLASSES.index(method.discloses), method.rank


def register(method: Method) -> Method:
    """Make a method known; a name stands for one estimator of its task."""
    for other in _METHODS:
        same = (other.name, other.task) == (method.name, method.task)
        if same and other.estimator is not method.estimator:
            raise TypeError(
                f"{other.estimator.__name__} is registered as {method.name!r} already; choose "
                f"another name for {method.estimator.__name__}"
            )
    _METHODS.append(method)
    _METHODS.sort(key=_place)  # a stable sort: as registered, if equal
    return method


def methods(
    *, split: str | None = None, graph: bool | None = None, task: str | None = "components"
) -> list[Method]:
    """Those that suit, in their order; None for any. Those of other packages are among them."""
    load_extensions()
    return [
        method
        for method in _METHODS
        if split in (None, method.split)
        and graph in (None, method.graph)
        and task in (None, method.task)
    ]


def for_kernel(candidates: Iterable[Method], kernel: Any) -> list[Method]:
    """Those that have this kernel; a function is none's."""
    return [method for method in candidates if kernel in method.kernels]


def method_called(name: str, *, task: str = "components") -> Method:
    """The first of a name."""
    return next(method for method in methods(task=task) if method.name == name)


def names_of(candidates: Iterable[Method]) -> tuple[str, ...]:
    """Each name once, in order."""
    return tuple(dict.fromkeys(method.name for method in candidates))
