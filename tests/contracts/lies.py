"""A party that lies once in a fit, and what becomes of it.

The lie is told in place of an honest reply, behind the party's own host: nothing checks it before
it arrives. A fit with a liar ends with an error that blames nobody honest, or with numbers that can
be.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from tests.contracts.fits import FITS, NAMES, Fit

import eigenmesh as em
from eigenmesh.runtime import wire
from eigenmesh.runtime.host import Host
from eigenmesh.runtime.mailbox import address

LIAR = "south"
HONEST = [name for name in NAMES if name != LIAR]
Field = Any  # an array, or a number


def _one_off(value: Field, rng: np.random.Generator) -> Field:
    if not isinstance(value, np.ndarray) or not value.size:
        return value if isinstance(value, np.ndarray) else type(value)(value + 1)
    changed = np.array(value)
    flat = changed.reshape(-1)
    flat[rng.integers(flat.size)] += 1 + np.abs(flat).max()
    return changed


def _permuted(value: Field, rng: np.random.Generator) -> Field:
    if not isinstance(value, np.ndarray):
        return value
    return rng.permutation(value.reshape(-1)).reshape(value.shape)


LIES: dict[str, Callable[[Field, np.random.Generator], Field]] = {
    "scale": lambda value, rng: value * 1000,
    "shrink": lambda value, rng: value * 0.001 if _is_float(value) else value // 2,
    "negate": lambda value, rng: -value,
    "zero": lambda value, rng: value * 0,
    "permute": _permuted,
    "nan": lambda value, rng: value * np.nan if _is_float(value) else value,
    "huge": lambda value, rng: value * 0 + 1e300 if _is_float(value) else value * 0 + 2**40,
    "one-off": _one_off,
    "noise": lambda value, rng: (
        value + rng.normal(size=np.shape(value)) * (1 + np.abs(value).max())
        if isinstance(value, np.ndarray) and value.size and _is_float(value)
        else value
    ),
}


def _is_float(value: Field) -> bool:
    return isinstance(value, float) or (isinstance(value, np.ndarray) and value.dtype.kind == "f")


def _is_number(value: Any) -> bool:
    if isinstance(value, np.ndarray):
        return value.dtype.kind in "iuf"
    return type(value) in (int, float)


class Lie(NamedTuple):
    """At which reply of the liar, of what kind, about one field or (None) all arrays."""

    fit: int
    reply: int
    kind: str
    field: int | None
    seed: int = 0

    def tell(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """The message with the lie in it."""
        rng = np.random.default_rng((self.fit, self.reply, self.seed))
        numbers = [name for name, value in message.items() if _is_number(value)]
        if self.field is not None and numbers:
            names = [numbers[self.field % len(numbers)]]
        else:
            names = [name for name in numbers if _is_float(message[name])]
        told = {name: LIES[self.kind](message[name], rng) for name in names}
        return {**message, **{name: _plain(value) for name, value in told.items()}}


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


SHORTENED: list[OneShort] = []  # replies that had an array, and so were


class OneShort(Lie):
    """One number, or row of numbers, is missing at the end of an array, if the reply has any."""

    def tell(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """The message without it."""
        arrays = [n for n, value in message.items() if isinstance(value, np.ndarray) and value.size]
        if not arrays:
            return dict(message)
        SHORTENED.append(self)
        assert self.field is not None
        name = arrays[self.field % len(arrays)]
        return {**message, name: message[name][:-1].copy()}


@contextmanager
def lying(lie: Lie | None, replies: list[int]) -> Iterator[None]:
    """Hosts of the liar send the lie; `replies` counts what the liar sends."""
    handle, offer = Host.handle, Host.offer

    def due() -> bool:
        replies.append(len(replies))
        return lie is not None and replies[-1] == lie.reply

    def lying_handle(self: Host, request: bytes) -> bytes:
        reply = handle(self, request)
        tree = wire.loads(reply)
        if self.party != LIAR or not isinstance(tree.get("ok"), np.ndarray) or not due():
            return reply
        assert lie is not None
        message = lie.tell(wire.loads(tree["ok"].data))
        return wire.dumps({**tree, "ok": np.frombuffer(wire.dumps(message), np.uint8)})

    def lying_offer(self: Host, request: bytes) -> Any:
        reply, outbox = offer(self, request)
        if self.party != LIAR or not outbox or not due():
            return reply, outbox
        assert lie is not None
        tree, told = wire.loads(request), {}
        for to, data in outbox.items():
            head = address(tree, self._view.index, to)
            told[to] = head + wire.dumps(lie.tell(wire.loads(data[len(head) :])))
        return reply, told

    Host.handle, Host.offer = lying_handle, lying_offer  # type: ignore[method-assign]
    try:
        yield
    finally:
        Host.handle, Host.offer = handle, offer  # type: ignore[method-assign]


class Outcome(NamedTuple):
    """What a fit with a liar came to."""

    error: Exception | None
    model: Any

    @property
    def blames_the_honest(self) -> bool:
        """Whether an error names honest parties, and not the liar."""
        return self.error is not None and _names_only_honest(str(self.error))

    @property
    def is_foreign(self) -> bool:
        """Whether the error is not one of ours."""
        return self.error is not None and not isinstance(self.error, em.EigenmeshError)

    @property
    def impossible(self) -> list[str]:
        """Attributes of the model that no data can have."""
        return [] if self.model is None else list(_impossible(self.model))


def _names_only_honest(text: str) -> bool:
    return LIAR not in text and any(name in text for name in HONEST)


def _impossible(model: Any) -> Iterator[str]:
    for name in ("eigenvalues_", "residual_", "total_variance_", "inertia_", "shortfalls_"):
        value = getattr(model, name, None)
        if value is not None and not np.all(np.asarray(value, float) >= 0):
            yield f"{name}={value}"
    shares = getattr(model, "explained_variance_ratio_", None)
    if shares is not None and not (np.all(shares >= 0) and np.sum(shares) <= 1.02):
        yield f"explained_variance_ratio_={shares}"


def outcome_of(fit: Fit, lie: Lie | None, replies: list[int] | None = None, **options: Any) -> Any:
    """A fit in which the liar tells one lie."""
    counter: list[int] = [] if replies is None else replies
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with lying(lie, counter), fit.open(**options) as fed:
            try:
                model, error = fit.run(fed), None
            except Exception as raised:  # whatever it is: that is the question
                model, error = None, raised
    return Outcome(error, model)


@cache
def n_replies(number: int) -> int:
    """How often the liar replies in a fit, if it stays honest."""
    replies: list[int] = []
    honest = outcome_of(FITS[number], None, replies)
    assert honest.error is None, honest.error
    return len(replies)


def drawn_lies(count: int, seed: int, fits: list[int] | None = None) -> Iterator[Lie]:
    """Lies over all estimators, replies, kinds and fields, evenly over the estimators."""
    rng = np.random.default_rng(seed)
    numbers = list(range(len(FITS))) if fits is None else fits
    for i in range(count):
        fit = numbers[i % len(numbers)]
        kind = list(LIES)[rng.integers(len(LIES))]
        field = None if rng.random() < 0.3 else int(rng.integers(12))
        yield Lie(fit, int(rng.integers(n_replies(fit))), kind, field, int(rng.integers(1000)))
