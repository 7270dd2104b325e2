"""Saved models: one safe, versioned file, and one a party for what only the party keeps.

The form is that of the wire (`federation.wire`): JSON and raw buffers under a checksum. Nothing
is unpickled; a class is looked up in the table of this library's own estimators, never imported.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

import eigenmesh
from eigenmesh.errors import EigenmeshError, ModelFileError
from eigenmesh.federation import wire
from eigenmesh.numerics.centring import KernelMeans
from eigenmesh.numerics.fusion import Components, DistanceFusion, ProductFusion, SumFusion
from eigenmesh.protocols.column_model import ColumnModel

MODEL = "eigenmesh model"
SHARE = "eigenmesh share of a party"
VERSION = 1

_CLASSES: dict[str, Any] = {
    kind.__name__: kind
    for kind in (ColumnModel, SumFusion, ProductFusion, DistanceFusion, Components, KernelMeans)
}


def write(path: str | Path, form: str, tree: dict[str, Any]) -> None:
    """Write a file whole or not at all."""
    header = {"form": form, "version": VERSION, "library": eigenmesh.__version__}
    data = wire.dumps({**header, **{key: _packed(value) for key, value in tree.items()}})
    unfinished = Path(path).with_name(Path(path).name + ".part")
    unfinished.write_bytes(data)
    unfinished.replace(path)


def read(path: str | Path, form: str) -> dict[str, Any]:
    """The tree that was written; refuses damaged, foreign and pickled files in plain words."""
    name = Path(path).name
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise ModelFileError(f"{name} cannot be read: {error.strerror}") from None
    if not data.startswith(wire.MAGIC):
        raise ModelFileError(f"{name} is no eigenmesh model: {_looks_like(data)}")
    try:
        tree = wire.loads(data)
        unpacked: dict[str, Any] = _unpacked(tree)
    except (EigenmeshError, KeyError, TypeError) as error:
        raise ModelFileError(f"{name} is damaged: {error}") from None
    _check_header(unpacked, form, name)
    return unpacked


def _looks_like(data: bytes) -> str:
    if data[:1] == b"\x80" or data[:2] in (b"(d", b"(l", b"cc"):
        return "it is a pickle, and pickles are never opened; save it with save() instead"
    if data[:2] == b"PK":
        return "it is a zip archive (an .npz perhaps); models are written by save()"
    return (
        "it is empty" if not data else "its first bytes are not ours; models are written by save()"
    )


def _check_header(tree: Any, form: str, name: str) -> None:
    if not isinstance(tree, dict) or tree.get("form") != form:
        found = tree.get("form", "something else") if isinstance(tree, dict) else "something else"
        raise ModelFileError(f"{name} holds {found!r}; {form!r} is expected")
    if tree.get("version") != VERSION:
        raise ModelFileError(
            f"{name} has format version {tree.get('version')}, this library reads {VERSION}; "
            f"it was written by eigenmesh {tree.get('library')}"
        )


def share_path(path: str | Path, party: int) -> Path:
    """Where the share of a party lies, beside the model."""
    path = Path(path)
    return path.with_name(f"{path.stem}.share-{party}{path.suffix}")


def _packed(value: Any) -> Any:
    """Dataclasses of the table and sparse matrices as trees."""
    if type(value).__name__ in _CLASSES and dataclasses.is_dataclass(value):
        fields = {f.name: _packed(getattr(value, f.name)) for f in dataclasses.fields(value)}
        return {"class": type(value).__name__, **fields}
    if scipy.sparse.issparse(value):
        csr: Any = value  # csr: readers and validation make every sparse matrix so
        parts = {"data": csr.data, "indices": csr.indices, "indptr": csr.indptr}
        return {"class": "csr", **parts, "shape": list(csr.shape)}
    if isinstance(value, dict):
        return {key: _packed(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [_packed(item) for item in value]
    return value


def _unpacked(tree: Any) -> Any:
    if isinstance(tree, list):
        return tuple(_unpacked(item) for item in tree)
    if isinstance(tree, np.ndarray):
        return tree.copy()  # the wire gives read-only views of the whole file
    if not isinstance(tree, dict):
        return tree
    fields = {key: _unpacked(value) for key, value in tree.items()}
    kind = fields.pop("class", None)
    if kind is None:
        return fields
    if kind == "csr":
        arrays = (fields["data"], fields["indices"], fields["indptr"])
        return scipy.sparse.csr_array(arrays, shape=fields["shape"])
    return _CLASSES[kind](**fields)
