"""Requests and replies between coordinator and host: their form, and how errors travel."""

from __future__ import annotations

from collections import deque
from collections.abc import Container
from functools import lru_cache
from typing import Any, TypeVar, cast

import numpy as np

from eigenmesh import errors
from eigenmesh.errors import (
    EigenmeshError,
    MessageRefused,
    PartyFailed,
    PartyLost,
    PolicyRefusal,
    StaleRound,
    StepRefused,
)
from eigenmesh.runtime import wire
from eigenmesh.runtime.message import Message, decode
from eigenmesh.runtime.statements import as_text

Tree = wire.Tree
M = TypeVar("M", bound=Message)
_LONGEST_NAME = 200
# Requests that hosts of one process share, and their longest: a broadcast comes to all in a row.
_SHARED, _SHARED_BYTES = 8, 1 << 24
_MOST_RUNS = 1000  # of a fit
ON_LOSS = ("raise", "survivors", "reuse", "skip")
MASK_ROUNDS = ("share", "mask", "sign", "open")  # of a masked sum, after "sum" runs the step

_REQUEST_FIELDS = {
    "op": str,
    "run": str,
    "turn": int,
    "role": str,
    "step": str,
    "send": str,
    "receive": str,
    "steps": list,
    "neighbours": list,
    "hears": list,
    "along": dict,
    "on_loss": str,
    "max_age": int,
    "undo": int,
    "study": str,
    "fit": list,
    "told": dict,
    "vouchers": list,
    "total": np.ndarray,
    "message": np.ndarray,
}
_FIELDS = {
    "require": {"role", "steps"},
    "enlist": {"role", "steps", "message"},
    "step": {"role", "step"},
    "sum": {"role", "step"},
    **{name: {"message"} for name in MASK_ROUNDS},
    "exchange": {"role", "send", "receive", "neighbours", "on_loss", "max_age"},
    "rollback": {"undo"},
    "dismiss": set(),
}
_OPTIONAL = {
    "require": {"study", "fit"},
    "enlist": {"study", "fit", "told"},
    "step": {"message", "told", "vouchers"},
    "sum": {"message", "told", "vouchers", "total"},
    "exchange": {"told", "along", "hears"},
}
_NEEDED = {op: frozenset({"op", "run", "turn", *fields}) for op, fields in _FIELDS.items()}
_ALLOWED = {op: needed | _OPTIONAL.get(op, set()) for op, needed in _NEEDED.items()}


def read_request(request: bytes) -> Tree:
    """The request as a tree whose fields have the types that a host relies on.

    The hosts of one process share what they read of the same bytes: nobody may change it.
    """
    return _read_once(request) if len(request) <= _SHARED_BYTES else _read(request)


def _read(request: bytes) -> Tree:
    tree = wire.loads(request)
    if not isinstance(tree, dict) or str(tree.get("op")) not in _NEEDED:
        raise MessageRefused("the request names no known operation")
    allowed = _ALLOWED[tree["op"]]
    if not _NEEDED[tree["op"]] <= tree.keys() <= allowed:
        raise MessageRefused(
            f"a request to {tree['op']} has the fields {', '.join(sorted(allowed))}"
        )
    for key, value in tree.items():
        if type(value) is not _REQUEST_FIELDS[key] and not (key == "message" and value is None):
            raise MessageRefused(f"field {key!r} of the request has the wrong type")
    if len(tree["run"]) > _LONGEST_NAME or (not tree["run"] and tree["op"] != "require"):
        raise MessageRefused("the name of the run is empty, or too long")
    runs = tree.get("fit", [])
    if len(runs) > _MOST_RUNS or not all(type(run) is str and len(run) == 64 for run in runs):
        raise MessageRefused("the fit is not a list of its runs' digests")
    if tree.get("on_loss", "raise") not in ON_LOSS:
        raise MessageRefused(f"on_loss of the request is none of {', '.join(ON_LOSS)}")
    if "along" in tree and not _is_along(tree["along"]):
        raise MessageRefused("the request does not say along which links it is")
    return tree


_read_once = lru_cache(maxsize=_SHARED)(_read)
_messages: deque[tuple[Any, type[Message], Message]] = deque(maxlen=_SHARED)


def message_in(tree: Tree, message_type: type[M]) -> M:
    """The message of a request, decoded once for all hosts of this process that share its tree."""
    data = tree.get("message")
    for other, decoded_as, message in tuple(_messages):
        if other is data and decoded_as is message_type:
            return cast(M, message)
    message = decode(message_type, as_bytes(tree, "message"))
    for value in vars(message).values():
        if isinstance(value, np.ndarray):  # what was unpacked is as little to be changed
            value.flags.writeable = False
    if data is not None and data.nbytes <= _SHARED_BYTES:
        _messages.append((data, message_type, message))
    return message


def _is_along(along: Tree) -> bool:
    """Whether it says the way, the parent, or −1, lists of parties, and of links."""
    lists = ("to", "hears", "children", "gone")
    if along.keys() != {"way", "parent", "cut", *lists} or type(along["parent"]) is not int:
        return False
    links = along["cut"] if type(along["cut"]) is list else [[]]
    numbers = all(_are_numbers(along[name]) for name in lists)
    pairs = all(_are_numbers(link) and len(link) == 2 for link in links)
    return numbers and pairs and along["way"] in ("up", "down")


def _are_numbers(values: Tree) -> bool:
    return type(values) is list and all(type(value) is int for value in values)


def as_bytes(tree: Tree, key: str) -> memoryview:
    """Bytes that travelled as an array of uint8, where they lie."""
    value = tree.get(key)
    if not isinstance(value, np.ndarray) or value.dtype != np.uint8 or value.ndim != 1:
        raise MessageRefused(f"field {key!r} does not hold a message")
    return value.data


# What hangs on the request alone; whether anything else fails hangs on the data too.
_RULES: dict[type[EigenmeshError], str] = {
    StaleRound: "turns go up",
    StepRefused: "the study's steps, in its order",
    MessageRefused: "messages as declared",
    PartyLost: "one request at a time",
}


def rule_alone(error: EigenmeshError, party: str) -> EigenmeshError:
    """An error as organisations hear of it: the name of the rule, and nothing of the data."""
    if isinstance(error, PolicyRefusal):
        study = f", of study {error.digest}" if error.digest else ""
        words = f"party {party!r} refuses by the rule {error.rule!r} of its policy{study}"
        return PolicyRefusal(words, party=party, rule=error.rule)
    if type(error) in _RULES:
        return type(error)(f"refused by the rule {_RULES[type(error)]!r}", party=error.party)
    return PartyFailed(f"party {party!r} failed; its own log has the details", party=party)


def error_tree(error: EigenmeshError, turn: int) -> Tree:
    """An error as a reply."""
    return {
        "turn": turn,
        "error": type(error).__name__,
        "reason": error.reason,
        "party": error.party,
    }


def error_from(tree: Tree, party: str | None, neighbours: Container[str] = ()) -> EigenmeshError:
    """The error that the host of `party` reported, as one of our classes.

    In an exchange it may concern one of its neighbours, and nobody else; what it says of that one
    is a claim, so both are named.
    """
    error_class = getattr(errors, str(tree.get("error")), None)
    if not (isinstance(error_class, type) and issubclass(error_class, EigenmeshError)):
        error_class = PartyFailed
    blamed, reason = tree.get("party"), as_text(tree.get("reason"))
    if isinstance(blamed, str) and blamed in neighbours and blamed != party:
        reason, party = f"party {party!r} says of {blamed!r}: {reason}", blamed
    error = error_class(reason, party=party)
    error.may_be_caused = True
    return error
