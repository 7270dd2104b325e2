"""What a site's owner has approved: studies by their digest, by whom, and who may submit them.

In a file of the site that only grows, a line an act, so that two commands at once lose nothing and
it shows later who approved what. What was revoked is not approved.
"""

from __future__ import annotations

import json
import re
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from eigenmesh.errors import InputError
from eigenmesh.safe_files import append_all, open_to_append

_DIGEST = re.compile("[0-9a-f]{64}")


@dataclass(frozen=True)
class Approval:
    """That a study, or a whole fit, may happen; `submitters` are who may ask, or anybody."""

    digest: str
    by: str = ""
    submitters: tuple[str, ...] = ()
    at: float = 0.0
    revoked: bool = False


class Approvals:
    """The approvals of a site, kept in `path` if it has one.

    >>> approvals = Approvals(None)
    >>> approvals.approve("ab" * 32, by="Dr. Grey", submitters=["ada@lab.org"])
    >>> approvals.may_submit("ab" * 32, "ada@lab.org"), approvals.may_submit("ab" * 32, "eve")
    (True, False)
    >>> approvals.revoke("ab" * 32)
    >>> approvals.digests
    frozenset()
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._looked_at: tuple[int, int] | None = None  # the file when it was last read
        self._standing: dict[str, Approval] = {}

    def approve(
        self, study: Any, *, by: str = "", submitters: list[str] | tuple[str, ...] = ()
    ) -> None:
        """Let a study, or a whole fit, happen: `em.study` has it, or its digest."""
        self._add(Approval(digest_of(study), by, tuple(submitters), time.time()))

    def revoke(self, study: Any, *, by: str = "") -> None:
        """Let it happen no more; a run under way is refused its next request."""
        digest = digest_of(study)
        if digest not in self.standing:
            raise InputError(f"study {digest[:16]}… is not approved here, so nothing is revoked")
        self._add(Approval(digest, by, (), time.time(), revoked=True))

    @property
    def standing(self) -> dict[str, Approval]:
        """What is approved now, by digest."""
        if self._path is not None:
            self._look()
        return self._standing

    @property
    def digests(self) -> frozenset[str]:
        """Of what is approved now."""
        return frozenset(self.standing)

    def may_submit(self, digest: str, submitter: str) -> bool:
        """Whether this study is approved, for this submitter."""
        approval = self.standing.get(digest)
        return approval is not None and submitter in (approval.submitters or (submitter,))

    def _add(self, act: Approval) -> None:
        if self._path is not None:
            line = json.dumps(asdict(act)).encode() + b"\n"
            with open_to_append(self._path) as file:
                append_all(file.fileno(), self._path, line, durable=True)
        else:
            self._take(act)

    def _look(self) -> None:
        """Read the file, if it is not as it was: a command in another process may have written."""
        assert self._path is not None
        try:
            facts = self._path.stat()
        except FileNotFoundError:
            self._standing, self._looked_at = {}, None
            return
        if (facts.st_mtime_ns, facts.st_size) != self._looked_at:
            self._standing = {}
            for line in self._path.read_bytes().splitlines():
                self._take(self._read(line))
            self._looked_at = (facts.st_mtime_ns, facts.st_size)

    def _read(self, line: bytes) -> Approval:
        try:
            act = Approval(**json.loads(line))
            return Approval(digest_of(act), act.by, tuple(act.submitters), act.at, act.revoked)
        except (InputError, TypeError, ValueError):
            assert self._path is not None
            raise InputError(
                f"the site's approvals in {self._path.name!r} are damaged; restore the file"
            ) from None

    def _take(self, act: Approval) -> None:
        self._standing.pop(act.digest, None)
        if not act.revoked:
            self._standing[act.digest] = act


def digest_of(study: Any) -> str:
    """The digest of a study, or of what has one."""
    digest = getattr(study, "digest", study)
    if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
        raise InputError(
            f"the study is {study!r}; its file, or the 64 digits of its digest, is expected"
        )
    return digest
