"""Saved models: one safe, versioned file, and one a party for what only the party keeps.

The form is that of the wire (`runtime.wire`): JSON and raw buffers under a checksum. Nothing
is unpickled; a class is looked up in the table of this library's own records, never imported.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from eigenmesh.errors import EigenmeshError, ModelFileError
from eigenmesh.runtime import wire
from eigenmesh.runtime.records import from_tree, to_tree
from eigenmesh.safe_files import NewFile, write_together
from eigenmesh.version import __version__

MODEL = "eigenmesh model"
SHARE = "eigenmesh share of a party"
FORMAT = 1


class ModelFile(NamedTuple):
    """A file to be written: a model, or a party's share, which is for its owner's eyes alone."""

    path: str | Path
    form: str
    tree: dict[str, Any]


def write(files: Iterable[ModelFile]) -> None:
    """Write these files; where one cannot be written, none is. One is in memory at a time."""
    write_together(
        NewFile(Path(file.path), _content(file), private=file.form == SHARE) for file in files
    )


def _content(file: ModelFile) -> bytes:
    header = {"form": file.form, "version": FORMAT, "library": __version__}
    body = {key: to_tree(value) for key, value in file.tree.items()}
    if wrong := _not_finite(body):
        raise ModelFileError(f"the model has {wrong}, and is not saved; fit it again")
    return wire.dumps({**header, **body})


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
        unpacked: dict[str, Any] = from_tree(tree)
    except EigenmeshError as error:
        raise ModelFileError(f"{name} is damaged: {error}") from None
    if wrong := _not_finite(tree):
        raise ModelFileError(f"{name} is damaged: it has {wrong}; save the model anew")
    _check_header(unpacked, form, name)
    return unpacked


def _not_finite(tree: Any, where: str = "") -> str:
    """The first number that is none, and where in the tree; empty if all are finite."""
    if isinstance(tree, np.ndarray):
        wrong = tree[~np.isfinite(tree)]
        return f"{wrong[0]} in {where}" if wrong.size else ""
    keyed = tree.items() if isinstance(tree, dict) else ()
    entries = enumerate(tree) if isinstance(tree, list | tuple) else keyed
    within = (_not_finite(value, f"{where}.{key}".lstrip(".")) for key, value in entries)
    return next(filter(None, within), "")


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
        other = tree.get("form", "something else") if isinstance(tree, dict) else "something else"
        raise ModelFileError(f"{name} holds {other!r}; {form!r} is expected")
    if tree.get("version") != FORMAT:
        raise ModelFileError(
            f"{name} has format version {tree.get('version')}, this library reads {FORMAT}; "
            f"it was written by eigenmesh {tree.get('library')}"
        )


def share_path(path: str | Path, party: int) -> Path:
    """Where the share of a party lies, beside the model."""
    path = Path(path)
    return path.with_name(f"{path.stem}.share-{party}{path.suffix}")
