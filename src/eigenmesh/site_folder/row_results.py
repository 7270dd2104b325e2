"""What fits left at a site about its own rows: scores and clusters, beside the rows' ids."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from eigenmesh.data.sample_ids import hash_sample_ids
from eigenmesh.errors import InputError
from eigenmesh.runtime.disk_store import StoredShare, stored_shares
from eigenmesh.site_folder.folder import SiteFolder
from eigenmesh.site_folder.site_rows import read_rows
from eigenmesh.site_folder.withdrawals import read_withdrawals, withdrawn_ids

# What a share has of each row, and how its columns are called.
FIELDS: Mapping[str, str] = {"labels": "cluster", "points": "component", "scores": "score"}


@dataclass(frozen=True)
class RowResults:
    """Values of the rows still in the data set; `ids` are their numbers where they have none."""

    ids: list[Any]
    names: list[str]
    values: list[list[Any]]  # a list a row


def results_about_rows(folder: SiteFolder, study: str = "") -> list[StoredShare]:
    """Shares that have something of each row, the oldest first; of one study or fit, if told.

    `study` is a digest, or how it begins.
    """
    shares = [
        share
        for share in stored_shares(folder.store)
        if share.origin is not None and FIELDS.keys() & set(share.fields)
    ]
    if not study:
        return shares
    own = [s for s in shares if s.origin and study in _beginnings(s.origin[1:3], len(study))]
    if not own:
        there = sorted({s.origin.fit or s.origin.study for s in shares if s.origin})
        raise InputError(
            f"no fit of study {study!r} left anything about rows here; there is something of "
            f"{', '.join(digest[:16] for digest in there) or 'none'}"
        )
    return own


def _beginnings(digests: tuple[str, ...], length: int) -> list[str]:
    return [digest[:length] for digest in digests if digest]


def rows_of_results(folder: SiteFolder, shares: list[StoredShare]) -> RowResults:
    """The last of each field among `shares`, side by side, of the rows that are still in."""
    latest = {field: share for share in shares for field in FIELDS.keys() & set(share.fields)}
    newest = max(latest.values(), key=lambda share: share.at)
    same = {field: share for field, share in latest.items() if share.version == newest.version}
    ids, is_in = _rows_then(folder, newest)
    names: list[str] = []
    columns: list[list[Any]] = []
    for field in sorted(same):
        block = np.asarray(same[field].values()[field])
        if len(block) != len(ids):
            raise InputError(
                f"the {field} have {len(block)} rows, and the data had {len(ids)}; fit again"
            )
        word, own = FIELDS[field], block[is_in]
        single = own.ndim == 1
        names += [word] if single else [f"{word}{j}" for j in range(own.shape[1])]
        columns += [own.tolist()] if single else own.T.tolist()
    rows = [list(row) for row in zip(*columns, strict=True)]
    return RowResults([own for own, is_own in zip(ids, is_in, strict=True) if is_own], names, rows)


def _rows_then(folder: SiteFolder, share: StoredShare) -> tuple[list[Any], np.ndarray[Any, Any]]:
    """Ids of the rows that a share is of, and which of these are still in the data set."""
    number, _, digest = share.version.partition(":")
    withdrawals = read_withdrawals(folder.withdrawals_file)
    before = withdrawn_ids(withdrawals[: int(number)])
    rows = read_rows(folder.settings, folder.path).without(before)
    if hash_sample_ids(rows.ids) != digest:
        raise InputError(
            "the site's file has other ids than when this was fitted, so that scores could stand "
            "beside the wrong ones; restore the file, or fit again"
        )
    if rows.ids is None:
        return list(range(rows.X.shape[0])), np.ones(rows.X.shape[0], bool)
    gone = withdrawn_ids(withdrawals)
    ids = rows.ids.tolist()
    return ids, np.array([str(own) not in gone for own in ids])
