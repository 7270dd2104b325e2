"""Errors about files: they name the file, never its folder nor a value in it."""

from __future__ import annotations

from pathlib import Path

from eigenmesh.errors import InputError


def complaint_about(path: Path, complaint: str, remedy: str) -> InputError:
    """The error for a file; its folder is nobody's business but the party's.

    >>> str(complaint_about(Path("home/ward.csv"), "is empty", "write it again"))
    "file 'ward.csv' is empty; write it again"
    """
    return InputError(f"file {path.name!r} {complaint}; {remedy}")
