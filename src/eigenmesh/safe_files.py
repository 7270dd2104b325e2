"""Files that are there whole or not at all, whenever the power goes or the disk is full.

Every file that this library writes and later relies on is written here: models, a site's settings,
its key, its budget, its approvals, its log.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, NamedTuple

from eigenmesh.errors import FileNotWritten

PRIVATE, USUAL = 0o600, 0o666  # the modes of files; what others may do is less by the umask
_PRIVATE_FOLDER = 0o700
_CAREFULLY = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)  # not on every system


def write_whole(
    path: str | Path, content: bytes, *, private: bool = False, durable: bool = True
) -> None:
    """Put a file in place of what was there, in one move.

    `private` files are their owner's alone. `durable` ones are on the disk when this returns; what
    another start of the same machine need not find is spared the wait. A symbolic link is refused:
    whoever could place it would choose the file that is written.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "note"
    >>> write_whole(file, b"whole", private=True)
    >>> file.read_bytes(), oct(file.stat().st_mode & 0o777)
    (b'whole', '0o600')
    """
    write_together([NewFile(Path(path), content, private)], durable=durable)


class NewFile(NamedTuple):
    """What a file is to hold, and whether it is its owner's alone."""

    path: Path
    content: bytes
    private: bool = False


def write_together(files: Iterable[NewFile], *, durable: bool = True) -> None:
    """Files that belong together: where there is no room for one, none is touched."""
    with ExitStack() as drafts:
        moves: list[tuple[Path, Path]] = []
        for path, content, private in files:
            with _our_words(path):
                _refuse_links(path)
                mode = PRIVATE if private else USUAL
                draft = drafts.enter_context(_draft(path, content, mode, durable))
            moves.append((draft, path))
        for draft, path in moves:
            with _our_words(path):
                os.replace(draft, path)
    for folder in {path.parent for _, path in moves} if durable else ():
        _sync_folder(folder)


def create_once(path: str | Path, content: bytes) -> None:
    """Write a private file unless it is there: of two that start at once, the first has it."""
    path = Path(path)
    with _our_words(path):
        with _draft(path, content, PRIVATE) as draft, contextlib.suppress(FileExistsError):
            os.link(draft, path)
        _sync_folder(path.parent)


@contextmanager
def _draft(path: Path, content: bytes, mode: int, durable: bool = True) -> Iterator[Path]:
    """A new file beside `path` that is gone at the end, unless it was moved."""
    draft = path.with_name(f".{path.name[:100]}.{secrets.token_hex(8)}")
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _CAREFULLY
        with os.fdopen(os.open(draft, flags, mode), "wb") as file:
            file.write(content)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        yield draft
    finally:
        with contextlib.suppress(OSError):
            os.unlink(draft)


def open_to_append(path: str | Path) -> IO[bytes]:
    """A private file to append to; no link is followed."""
    path = Path(path)
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | _CAREFULLY
    with _our_words(path):
        return os.fdopen(os.open(path, flags, PRIVATE), "ab", buffering=0)


def append_all(descriptor: int, path: Path, line: bytes, *, durable: bool = False) -> None:
    """Append all of `line` or nothing of it."""
    before = os.fstat(descriptor).st_size
    with _our_words(path):
        try:
            written = os.write(descriptor, line)
            if written < len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            if durable:
                os.fsync(descriptor)
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(descriptor, before)
            raise


def private_folder(path: str | Path) -> Path:
    """A folder that is its owner's alone, made if it is not there."""
    path = Path(path)
    with _our_words(path):
        path.mkdir(mode=_PRIVATE_FOLDER, parents=True, exist_ok=True)
        if not path.is_dir() or path.is_symlink():
            raise FileNotWritten(f"{path.name!r} is no folder of its own; a folder is expected")
    return path


def is_private(path: str | Path) -> bool:
    """Whether nobody but its owner may read or write a file."""
    return not stat.S_IMODE(os.stat(path).st_mode) & 0o077


def _refuse_links(path: Path) -> None:
    if path.is_symlink():
        raise FileNotWritten(
            f"{path.name!r} is a symbolic link, and none is followed; pass the file that is meant"
        )
    if path.exists() and not path.is_file():
        raise FileNotWritten(f"{path.name!r} is no regular file; pass another name")


def _sync_folder(folder: Path) -> None:
    """The name of a new file is part of its folder, which is written on its own."""
    with contextlib.suppress(OSError):  # some file systems have no such thing
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextmanager
def _our_words(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise FileNotWritten(
            f"{path.name!r} cannot be written: {error.strerror or error}; nothing of it was left "
            f"behind: make room, or pass a folder that may be written to"
        ) from None
