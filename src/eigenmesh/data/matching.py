"""Matching a party's samples with the others', by ids that leave only as keyed hashes."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eigenmesh.data.sample_ids import hash_sample_ids
from eigenmesh.data.table import Ids, Matrix
from eigenmesh.errors import InputError, PartitionError

ALIGNMENTS = ("strict", "inner", "psi")
SECRET_VARIABLE = "EIGENMESH_ID_SECRET"


def id_secret(secret: str | None) -> str:
    """The parties' secret: as given, from the environment, or new, for parties in one process."""
    if secret is not None and (not isinstance(secret, str) or len(secret) < 8):
        raise InputError(
            "id_secret is too short or no string, expected at least 8 characters that the parties "
            "share and the coordinator does not know"
        )
    return secret or os.environ.get(SECRET_VARIABLE) or secrets.token_hex(16)


def shared_secret(secret: str | None, party: str) -> str:
    """The secret of a party in a process of its own, where a new one would match nobody's."""
    if secret is None and not os.environ.get(SECRET_VARIABLE):
        raise PartitionError(
            f"party {party!r} has no secret to key its sample ids with; set the environment "
            f"variable {SECRET_VARIABLE} to the same words at every party, or pass id_secret=",
            party=party,
        )
    return id_secret(secret)


def keyed_hashes(ids: Ids, secret: str) -> NDArray[np.uint64]:
    """128 bits a sample, (n, 2); without the secret nobody can try out ids.

    >>> one, other = keyed_hashes(np.array([7]), "their secret"), keyed_hashes(np.array([7]), "x")
    >>> bool((one == other).any())
    False
    """
    key = blake2b(secret.encode(), digest_size=32).digest()
    tag = b"int" if ids.dtype.kind == "i" else b"str"
    digests = b"".join(
        blake2b(tag + str(own).encode("utf-8", "surrogatepass"), key=key, digest_size=16).digest()
        for own in ids.tolist()
    )
    return np.frombuffer(digests, dtype="<u8").reshape(len(ids), 2)


class SampleMatcher:
    """One party's samples, all of them or those that have been matched; `align` says how."""

    def __init__(
        self, opens: Callable[[], Matrix], ids: Callable[[], Ids | None], secret: str, align: str
    ) -> None:
        self._opens, self._ids, self._secret, self.align = opens, ids, secret, align
        self._rows: NDArray[np.int64] | None = None

    def hashes(self) -> NDArray[np.uint64]:
        """Keyed hashes of all its sample ids."""
        ids = self._ids()
        if ids is None:
            raise InputError(
                "there are no sample ids to match; give a file a column 'id', a DataFrame an "
                "index, or pass sample_ids="
            )
        return keyed_hashes(ids, self._secret)

    @property
    def n_samples(self) -> int:
        """Of the site, matched or not."""
        ids = self._ids()
        return 0 if ids is None else len(ids)

    def choose(self, rows: NDArray[Any]) -> None:
        """Only these samples, in this order."""
        self._rows = np.asarray(rows, dtype=np.int64)

    def data(self) -> Matrix:
        """The chosen samples."""
        X = self._opens()
        return X if self._rows is None else X[self._rows]

    def digest(self) -> str:
        """A digest of the chosen ids, in order."""
        ids = self._ids()
        own = ids if ids is None or self._rows is None else ids[self._rows]
        # Keyed as well: whoever knows the ids must not find out who they are by trying.
        return "" if own is None else hash_sample_ids([self._secret, *map(str, own.tolist())])
