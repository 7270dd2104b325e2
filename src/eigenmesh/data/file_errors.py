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


def complaint_about_encoding(path: Path, line: int) -> InputError:
    """The error for text that is in another encoding, as old exports of Windows are."""
    complaint = f"cannot be read: its text is not in UTF-8, first at line {line}"
    return complaint_about(path, complaint, "save it as UTF-8 (as CSV UTF-8, in Excel)")
