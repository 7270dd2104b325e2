"""A site's private store on its own disk: what fits leave there outlives the process.

Of each share there are two files: its values in the form of `records`, of which nothing is code and
nothing is unpickled, and a few words beside them, by which a restarted site finds it without
reading the values. Their name is a digest of the key, which a study chose, and of the study: one
that takes a name which another had does not destroy the other's share.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from eigenmesh.errors import EigenmeshError, InputError
from eigenmesh.runtime import records
from eigenmesh.safe_files import private_folder, write_whole

_IN_MEMORY = 8  # shares that are not read again
_MOST_FILES = 1000
ANY = "any"  # the lineage of what every run may read


class Origin(NamedTuple):
    """What a share in a site's store is of: the question that was asked, its study and its fit.

    `lineage` says who may read it: runs of the same, or of any if it is ANY. `numbers` had left by
    then, and `directions` been multiplied with: whoever goes on from it has them, too (`tally`).
    """

    question: str = ""
    study: str = ""
    fit: str = ""
    lineage: str = ""
    numbers: int = 0
    directions: int = 0

    @classmethod
    def read(cls, words: list[Any]) -> Origin:
        """As a file has it; older ones have no counts."""
        question, study, fit, lineage = map(str, words[:4])
        return cls(question, study, fit, lineage, *map(int, words[4:]))


@dataclass(frozen=True)
class StoredShare:
    """A share on the disk, without its values.

    `origin` is None for what the site's owner put there; `version` names the data of the site that
    it was made of; `fields` are the names of its values.
    """

    key: str
    origin: Origin | None
    at: float
    version: str
    fields: tuple[str, ...]
    file: Path

    def values(self) -> Mapping[str, Any]:
        """What was kept."""
        try:
            share: Mapping[str, Any] = records.loads(self.file.read_bytes())
        except (OSError, EigenmeshError) as error:
            raise InputError(
                f"{self.file} of the site's store cannot be read ({error}); restore the file, or "
                f"remove it: fits that need it must then be run again"
            ) from None
        return share

    def remove(self) -> None:
        """From the disk, its words first: without them there is no share."""
        for file in (_words_of(self.file), self.file):
            file.unlink(missing_ok=True)


class DiskStore(MutableMapping[str, Mapping[str, Any]]):
    """Shares by key, in a folder; under a key is what was put there last.

    `left_by_studies` says what keys are of; keys that it has not are the owner's. `owner` gives
    values that a site has by its settings, such as targets, when they are used; a store that has
    them takes nothing else but what studies leave. `version` names the data of the site.

    >>> import tempfile, numpy as np
    >>> folder = Path(tempfile.mkdtemp())
    >>> DiskStore(folder)["scores"] = {"points": np.ones((2, 1)), "rows": {3: None}}
    >>> share = DiskStore(folder)["scores"]
    >>> share["points"].shape, share["rows"], list(DiskStore(folder))
    ((2, 1), {3: None}, ['scores'])
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        owner: Mapping[str, Callable[[], Mapping[str, Any]]] | None = None,
        version: Callable[[], str] = str,
    ) -> None:
        self._folder = Path(folder)
        self._owner, self._version = owner, version
        self._shares = stored_shares(self._folder)
        self._latest = {share.key: share for share in self._shares}
        self._recent: dict[str, Mapping[str, Any]] = {}
        self.left_by_studies: dict[str, Origin] = {
            share.key: share.origin for share in self._shares if share.origin is not None
        }

    def __getitem__(self, key: str) -> Mapping[str, Any]:
        if self._owner and key in self._owner:
            return self._owner[key]()
        if key not in self._recent:
            self._remember(key, self._latest[key].values())
        return self._recent[key]

    def __contains__(self, key: object) -> bool:
        return key in self._latest or key in (self._owner or ())  # without reading the share

    def __setitem__(self, key: str, share: Mapping[str, Any]) -> None:
        origin = self.left_by_studies.get(key)
        if origin is None and self._owner is not None:
            raise InputError(
                f"{key!r} is put into the store of a site that has its own folder; its targets, "
                f"weights and shares are its own: name the columns in its site.toml"
            )
        whose = "" if origin is None else origin.fit or origin.study
        name = sha256(f"{whose}\n{key}".encode()).hexdigest()[:40]
        file = private_folder(self._folder) / f"{name}.share"
        stored = StoredShare(key, origin, time.time(), self._version(), tuple(share), file)
        write_whole(file, records.dumps(dict(share)), private=True)
        words: dict[str, Any] = {"key": key, "origin": origin, "at": stored.at}
        words |= {"version": stored.version, "fields": stored.fields}
        write_whole(_words_of(file), json.dumps(words).encode(), private=True)
        self._shares = [own for own in self._shares if own.file != file] + [stored]
        while len(self._shares) > _MOST_FILES:
            self._shares.pop(0).remove()
        self._latest[key] = stored
        self._remember(key, share)

    def __delitem__(self, key: str) -> None:
        del self._latest[key]
        self._recent.pop(key, None)
        for share in [own for own in self._shares if own.key == key]:
            self._shares.remove(share)
            share.remove()

    def __iter__(self) -> Iterator[str]:
        yield from self._owner or ()
        yield from self._latest

    def __len__(self) -> int:
        return len(self._owner or ()) + len(self._latest)

    def _remember(self, key: str, share: Mapping[str, Any]) -> None:
        self._recent.pop(key, None)
        self._recent[key] = share
        while len(self._recent) > _IN_MEMORY:
            del self._recent[next(iter(self._recent))]


def stored_shares(folder: Path) -> list[StoredShare]:
    """All shares in a store's folder, the oldest first."""
    shares = [_read(file) for file in folder.glob("*.json")] if folder.is_dir() else []
    return sorted(shares, key=lambda share: share.at)


def _words_of(file: Path) -> Path:
    return file.with_suffix(".json")


def _read(file: Path) -> StoredShare:
    try:
        words = json.loads(file.read_bytes())
        origin = None if words["origin"] is None else Origin.read(words["origin"])
        key, version = str(words["key"]), str(words["version"])
        fields, values = tuple(map(str, words["fields"])), file.with_suffix(".share")
        return StoredShare(key, origin, float(words["at"]), version, fields, values)
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"{file} of the site's store is damaged ({type(error).__name__}); restore it, or "
            f"remove it with the .share file of the same name: fits that need it must then be run "
            f"again"
        ) from None
