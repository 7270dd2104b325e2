"""A site's private store on its own disk: what fits leave there outlives the process.

A share is a file of its own, in the form of `records`: nothing in it is code, and nothing is
unpickled. Its name is a digest of its key, which a study chose.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, MutableMapping
from pathlib import Path
from typing import Any

from eigenmesh.errors import EigenmeshError, InputError
from eigenmesh.runtime import records, wire
from eigenmesh.runtime.budget import write_whole

_INDEX = "left_by_studies"


class DiskStore(MutableMapping[str, Mapping[str, Any]]):
    """Shares by key, in a folder; `left_by_studies` says of which study a key is.

    >>> import tempfile, numpy as np
    >>> folder = Path(tempfile.mkdtemp())
    >>> DiskStore(folder)["scores"] = {"points": np.ones((2, 1)), "rows": {3: None}}
    >>> share = DiskStore(folder)["scores"]
    >>> share["points"].shape, share["rows"], list(DiskStore(folder))
    ((2, 1), {3: None}, ['scores'])
    """

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder)
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.left_by_studies: MutableMapping[str, str] = _Index(self._folder / _INDEX)

    def __getitem__(self, key: str) -> Mapping[str, Any]:
        path = self._path(key)
        if not path.exists():
            raise KeyError(key)
        own: Mapping[str, Any] = _read(path)["share"]
        return own

    def __setitem__(self, key: str, share: Mapping[str, Any]) -> None:
        write_whole(self._path(key), records.dumps({"key": key, "share": dict(share)}))

    def __delitem__(self, key: str) -> None:
        try:
            self._path(key).unlink()
        except FileNotFoundError:
            raise KeyError(key) from None

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and self._path(key).exists()  # without reading the share

    def __iter__(self) -> Iterator[str]:
        return (str(_read(path)["key"]) for path in sorted(self._folder.glob("*.share")))

    def __len__(self) -> int:
        return len(list(self._folder.glob("*.share")))

    def _path(self, key: str) -> Path:
        return self._folder / f"{hashlib.sha256(key.encode()).hexdigest()[:40]}.share"


class _Index(MutableMapping[str, str]):
    """A small mapping in one file, in the order in which its keys came."""

    def __init__(self, path: Path) -> None:
        self._path = path
        pairs = _read(path) if path.exists() else ()
        self._entries: dict[str, str] = {str(key): str(value) for key, value in pairs}

    def __getitem__(self, key: str) -> str:
        return self._entries[key]

    def __setitem__(self, key: str, value: str) -> None:
        if self._entries.get(key) != value:
            self._entries[key] = value
            self._write()

    def __delitem__(self, key: str) -> None:
        del self._entries[key]
        self._write()

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def _write(self) -> None:
        pairs = [[key, value] for key, value in self._entries.items()]
        write_whole(self._path, wire.dumps({"value": pairs}))


def _read(path: Path) -> Any:
    try:
        return records.loads(path.read_bytes())
    except (OSError, EigenmeshError) as error:
        raise InputError(
            f"{path} of the site's store cannot be read ({error}); restore the file, or remove it: "
            f"fits that need it must then be run again"
        ) from None
