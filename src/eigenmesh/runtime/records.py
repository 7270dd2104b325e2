"""Results in wire form: dataclasses of a closed table, by name, with arrays and sparse matrices.

What a run gives must reach the other processes of a job, and files; neither may name a class that
is not in the table, and nothing is ever unpickled. A record's name is that of its class, wherever
in this library the class may move; one that is renamed keeps its former names as aliases. Records
of other packages go by their module as well.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import scipy.sparse

from eigenmesh.errors import MessageRefused
from eigenmesh.runtime import wire
from eigenmesh.runtime.wire import Tree

C = TypeVar("C", bound=type)

_TABLE: dict[str, Any] = {}


_ALIASES: dict[str, str] = {}


def record(kind: C) -> C:
    """Enter a dataclass or named tuple into the table; usable as a decorator."""
    name = _name_of(kind)
    other = _TABLE.get(name, kind)
    if name in _ALIASES or other.__module__ != kind.__module__:
        raise TypeError(f"another record is or was called {name!r}; rename one of them")
    _TABLE[name] = kind
    return kind


def _name_of(kind: type) -> str:
    is_ours = kind.__module__.partition(".")[0] == "eigenmesh"
    return kind.__name__ if is_ours else f"{kind.__module__}.{kind.__qualname__}"


def formerly(*names: str) -> Callable[[C], C]:
    """Former names of a record, under which files may still have it; goes above `record`."""

    def alias(kind: C) -> C:
        for name in names:
            if name in _TABLE or _ALIASES.setdefault(name, _name_of(kind)) != _name_of(kind):
                raise TypeError(f"another record is or was called {name!r}")
        return kind

    return alias


def is_record(value: Any) -> bool:
    """Whether a value's class is in the table."""
    return _name_of(type(value)) in _TABLE


def dumps(value: Any) -> bytes:
    """A result in wire form."""
    return wire.dumps({"value": to_tree(value)})


def loads(data: bytes) -> Any:
    """The result that `dumps` gave; raises `MessageRefused` for anything else."""
    tree = wire.loads(data)
    if not isinstance(tree, dict) or tree.keys() != {"value"}:
        raise MessageRefused("the result is malformed")
    return from_tree(tree["value"])


def to_tree(value: Any) -> Tree:
    """Records and sparse matrices as trees; arrays and scalars stay as they are."""
    name = _name_of(type(value))
    if name in _TABLE:
        return {"record": name, **{key: to_tree(item) for key, item in _fields(value).items()}}
    if scipy.sparse.issparse(value):
        csr: Any = value  # csr: readers and validation make every sparse matrix so
        parts = {"data": csr.data, "indices": csr.indices, "indptr": csr.indptr}
        return {"record": "csr", **parts, "shape": list(csr.shape)}
    if isinstance(value, dict) and any(type(key) is int for key in value):
        items = [to_tree(item) for item in value.values()]
        return {"record": "by number", "keys": list(value), "items": items}
    if isinstance(value, dict):
        return {key: to_tree(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        if hasattr(value, "_fields"):
            raise TypeError(f"{name} is no record; a plain tuple would arrive in its place")
        return [to_tree(item) for item in value]
    return value


def _fields(value: Any) -> dict[str, Any]:
    if hasattr(value, "_asdict"):
        named: dict[str, Any] = value._asdict()
        return named
    return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}


def from_tree(tree: Tree) -> Any:
    """What `to_tree` was given; lists come back as tuples, arrays as copies of their own."""
    if isinstance(tree, list):
        return tuple(from_tree(item) for item in tree)
    if isinstance(tree, np.ndarray):
        return tree.copy()  # the wire gives read-only views of all that was sent
    if not isinstance(tree, dict):
        return tree
    fields = {key: from_tree(value) for key, value in tree.items()}
    name = fields.pop("record", None)
    return fields if name is None else _rebuilt(name, fields)


def _rebuilt(name: Any, fields: dict[str, Any]) -> Any:
    try:
        if name == "by number":
            return dict(zip(fields["keys"], fields["items"], strict=True))
        if name == "csr":
            arrays = (fields["data"], fields["indices"], fields["indptr"])
            matrix = scipy.sparse.csr_array(arrays, shape=fields["shape"])
            # Indices out of range would make the compiled routines read foreign memory.
            matrix.check_format(full_check=True)
            return matrix
        return _class_called(name)(**fields)
    except (KeyError, TypeError, ValueError) as error:
        raise MessageRefused(f"a record {name!r} is malformed: {error}") from None


def _class_called(name: Any) -> Any:
    # Version 0.1 wrote module paths: of "eigenmesh.numerics.kernels.Kernel" the last part is fixed.
    name = str(name)  # a foreign file may have anything there
    own = name.rpartition(".")[2] if name.startswith("eigenmesh.") else name
    return _TABLE[_ALIASES.get(own, own)]
