"""A site's log: every request that came, and every message that left, in a chain of digests.

A line is a JSON object that ends with the digest of itself and of all lines before it, so that no
byte of it can be changed, and no line be taken out, without breaking the chain. A tail that was cut
off breaks nothing; it shows against a *head* (number and digest of a line) that somebody else has:
it travels in each reply.

A line is with the operating system before its reply leaves the host, and what cannot be logged does
not leave; it is on the disk at the end of a run, and otherwise within about a second of traffic.
"""

from __future__ import annotations

import json
import os
import re
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import IO, Any, NamedTuple

from eigenmesh.errors import LogDamage
from eigenmesh.safe_files import append_all, open_to_append

_SYNCED_EVERY = 1.0  # seconds
_LONGEST_LINE = 1 << 22
_HEAD = re.compile("([0-9]{1,15}):([0-9a-f]{64})")
_LINE = re.compile(rb'(\{.*),"chain":"([0-9a-f]{64})"\}', re.DOTALL)
_ENCODER = json.JSONEncoder(separators=(",", ":"))
_NO_LINE = "0" * 64  # the digest before the first


class Head(NamedTuple):
    """The last line of a log: its number, from 1, and the digest of all up to it.

    >>> str(Head(3, "ab" * 32))[:8]
    '3:ababab'
    """

    number: int = 0
    digest: str = _NO_LINE

    def __str__(self) -> str:
        return f"{self.number}:{self.digest}"

    @classmethod
    def read(cls, text: Any) -> Head | None:
        """The head that a text is; None if it is none."""
        match = _HEAD.fullmatch(text) if isinstance(text, str) else None
        return None if match is None else cls(int(match[1]), match[2])


class SiteLog:
    """Appends lines to a file. Several processes may do so, one at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._one_at_a_time = threading.Lock()
        self._file: IO[bytes] | None = None
        self._head, self._size, self._synced = Head(), -1, 0.0

    def add(self, facts: Mapping[str, Any], *, sync: bool = False) -> Head:
        """Append a line, and give the new head; raises `FileNotWritten` if it cannot be."""
        with self._alone() as file:
            self._catch_up(file)
            number, now = self._head.number + 1, time.time()
            stamped = {"n": number, "at": round(now, 3), **facts}
            body = _ENCODER.encode(stamped).encode()[:-1]
            digest = _chained(self._head.digest, body)
            line = body + f',"chain":"{digest}"}}\n'.encode()
            durable = sync or now - self._synced >= _SYNCED_EVERY
            append_all(file, self.path, line, durable=durable)
            self._synced = now if durable else self._synced
            self._head, self._size = Head(number, digest), self._size + len(line)
            return self._head

    @property
    def head(self) -> Head:
        """The last line."""
        with self._alone() as file:
            self._catch_up(file)
            return self._head

    @contextmanager
    def _alone(self) -> Iterator[int]:
        """The file, while no other thread or process writes to it; it stays open in between."""
        import fcntl  # not everywhere; where it is not, only sites in folders cannot be

        with self._one_at_a_time:
            if self._file is None:
                self._file = open_to_append(self.path)
            file = self._file.fileno()
            fcntl.flock(file, fcntl.LOCK_EX)
            try:
                yield file
            finally:
                fcntl.flock(file, fcntl.LOCK_UN)

    def _catch_up(self, file: int) -> None:
        """To the end of the file, where another process may have written since."""
        size = os.fstat(file).st_size
        if size == self._size:
            return
        tail = os.pread(file, min(size, _LONGEST_LINE), max(size - _LONGEST_LINE, 0))
        whole = tail[: tail.rfind(b"\n") + 1]
        torn = len(tail) - len(whole)
        if torn:  # by a power cut: its reply has not left
            os.ftruncate(file, size - torn)
        lines = whole.splitlines()
        self._head = _parsed(lines[-1])[1] if lines else Head()
        self._size = size - torn


def _chained(before: str, body: bytes) -> str:
    return sha256(before.encode() + body).hexdigest()


def _parsed(line: bytes) -> tuple[bytes, Head, dict[str, Any]]:
    """What is chained of a line, the head that it says it is, and its facts."""
    match = _LINE.fullmatch(line)
    try:
        if match is None:
            raise ValueError
        facts = json.loads(line)
        return match[1], Head(int(facts["n"]), match[2].decode()), facts
    except (ValueError, KeyError, TypeError):
        raise LogDamage("a line of the site's log is none of ours; restore the file") from None


def read_log(path: Path) -> Iterator[dict[str, Any]]:
    """The facts of each line; raises `LogDamage` at the first that is not as it was written."""
    before = Head()
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if not line.endswith(b"\n"):
                raise LogDamage(f"line {number} of the log is not whole", line=number)
            try:
                body, head, facts = _parsed(line[:-1])
            except LogDamage:
                words = f"line {number} of the log is damaged"
                raise LogDamage(words, line=number) from None
            if head != Head(number, _chained(before.digest, body)):
                raise LogDamage(
                    f"line {number} of the log is not what was written: it, or one before it, was "
                    f"changed, taken out or put in",
                    line=number,
                )
            before = head
            yield facts


def verify_log(path: Path, *heads: Head) -> Head:
    """The head of a log all of whose lines are as they were written, and which has `heads`.

    Raises `LogDamage` otherwise: without heads that somebody else has, a cut tail does not show.
    """
    head_of = {head.number: head for head in heads}
    last = Head()
    if path.exists():
        for facts in read_log(path):
            last = Head(facts["n"], facts["chain"])
            if head_of.get(last.number, last) != last:
                raise LogDamage(
                    f"line {last.number} of the log is another than was told", line=last.number
                )
    for head in heads:
        if head.number > last.number:
            raise LogDamage(
                f"the log ends with line {last.number}, and line {head.number} was told: its tail "
                f"was cut off",
                line=last.number + 1,
            )
    return last
