"""Vouchers: rows that reach a party through the coordinator are those that their owner gave.

Between organisations a coordinator that may send any points as landmarks learns what it likes of a
party's rows: sums of kernel values with points of its choice. So a site signs (Ed25519) digests of
the rows that it gives, for this run of this study, and takes up none that another party of the
study has not signed. A voucher is the site's public key, its signature and a digest a row.
"""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from eigenmesh.errors import MessageRefused, StepRefused
from eigenmesh.runtime.known_keys import require_known
from eigenmesh.runtime.masks import KEY, SIGNATURE, digest, identity, is_signed, sign
from eigenmesh.runtime.message import Message
from eigenmesh.runtime.site import Site

_DIGEST = 16  # bytes of a row's
_HEAD = KEY + SIGNATURE


def row_digests(rows: Any) -> list[bytes]:
    """One a row, by its values: however they are packed, dense or sparse, in few bits or many."""
    digests = []
    for start in range(0, rows.shape[0], 1024):
        block = rows[start : start + 1024]
        dense = np.asarray(block.todense() if hasattr(block, "todense") else block, np.float64)
        digests += [
            hashlib.blake2b(np.ascontiguousarray(row + 0.0).data, digest_size=_DIGEST).digest()
            for row in dense
        ]
    return digests


def _text(study: str, run: str, name: str, rows: bytes) -> bytes:
    return digest("rows", study, run, name, rows)


def voucher_for(site: Site, study: str, run: str, reply: Message) -> Any:
    """What goes out beside a reply that gives rows; None beside any other."""
    rows = reply.rows_for_others()
    if rows is None:
        return None
    digests = b"".join(row_digests(rows))
    signature = sign(site.identity, _text(study, run, site.name, digests))
    return np.frombuffer(identity(site.identity) + signature + digests, np.uint8)


def require_vouched(
    site: Site, names: Sequence[str], study: str, run: str, message: Message, vouchers: Any
) -> None:
    """Refuse rows of a message unless parties of the study have signed them, for this run."""
    rows = message.rows_for_others()
    if rows is None or not rows.shape[0]:
        return
    signed = _signed_rows(site, names, study, run, vouchers)
    if not signed.issuperset(_digests_in(message, rows)):
        raise StepRefused("rows of others come with their owners' signatures for this run")


_latest: list[tuple[weakref.ref[Message], list[bytes]]] = []


def _digests_in(message: Message, rows: Any) -> list[bytes]:
    """Of a message's rows; the hosts of one process that read the same one look once."""
    for of, digests in _latest[-1:]:
        if of() is message:
            return digests
    digests = row_digests(rows)
    _latest[:] = [(weakref.ref(message), digests)]
    return digests


def _signed_rows(
    site: Site, names: Sequence[str], study: str, run: str, vouchers: Iterable[Any]
) -> set[bytes]:
    signed: set[bytes] = set()
    for number, data in map(_read, vouchers):
        if not 0 <= number < len(names):
            raise StepRefused("rows are signed by no party of the study")
        name, key, signature = names[number], data[:KEY], data[KEY:_HEAD]
        require_known(site, name, key)
        if not is_signed(key, _text(study, run, name, data[_HEAD:]), signature):
            raise StepRefused(f"rows of {name!r} are not signed by it for this run")
        signed.update(data[i : i + _DIGEST] for i in range(_HEAD, len(data), _DIGEST))
    return signed


def _read(voucher: Any) -> tuple[int, bytes]:
    try:
        number, data = voucher
        sound = type(number) is int and data.dtype == np.uint8 and data.ndim == 1
    except (TypeError, ValueError, AttributeError):
        sound = False
    if not sound or len(data) < _HEAD or (len(data) - _HEAD) % _DIGEST:
        raise MessageRefused("a voucher is malformed")
    return number, data.tobytes()
