"""What a site's owner does, each act with a line in the site's log."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from eigenmesh.errors import InputError
from eigenmesh.runtime.approvals import digest_of
from eigenmesh.runtime.budget import row_digests, rows_changed
from eigenmesh.runtime.site_log import SiteLog
from eigenmesh.site_folder.folder import SiteFolder, open_site
from eigenmesh.site_folder.withdrawals import add_withdrawal, read_withdrawals, withdrawn_ids


def _log(folder: SiteFolder, act: str, **facts: Any) -> None:
    SiteLog(folder.log_file).add({"act": act, **facts, "sent": []}, sync=True)


def approve(folder: SiteFolder, study: Any, by: str, submitters: Sequence[str] = ()) -> None:
    """Let a study happen at this site; `submitters` are who may ask for it, or anybody."""
    site, digest = open_site(folder.path), digest_of(study)
    _log(folder, "approve", study=digest, by=by, submitters=list(submitters))
    site.approve(digest, by=by, submitters=submitters)


def revoke(folder: SiteFolder, study: Any, by: str) -> None:
    """Let it happen no more; a run under way gets no further reply."""
    site, digest = open_site(folder.path), digest_of(study)
    site.approvals.revoke(digest, by=by)
    _log(folder, "revoke", study=digest, by=by)


def withdraw(folder: SiteFolder, ids: Iterable[str], by: str, *, pause: bool = False) -> int:
    """Take rows out of the data set; gives how many are left.

    Two versions of the data from which studies were answered must differ in at least `min_rows`
    rows, for the difference of the answers would tell of these. With `pause` fewer are taken out
    all the same: the site then refuses studies until enough others have followed.
    """
    names = list(dict.fromkeys(map(str, ids)))
    rows = folder.rows()
    if rows.ids is None:
        raise InputError(
            "the site's data have no ids, by which rows are withdrawn; name the id_column in "
            "site.toml"
        )
    own_ids = set(map(str, rows.ids.tolist()))
    unknown = [name for name in names if name not in own_ids]
    if unknown or not names:
        before = withdrawn_ids(read_withdrawals(folder.withdrawals_file))
        why = "was withdrawn before" if unknown and unknown[0] in before else "is in no row"
        shown = f"id {unknown[0]!r} {why}" if unknown else "no ids are given"
        raise InputError(f"{shown}; nothing is withdrawn: pass ids of the {len(own_ids):,} rows")
    rest = rows.without(names)
    site = open_site(folder.path)
    versions = [version for own in site.account.sets for version in own.versions]
    after, fewest = row_digests(rest.X), site.policy.min_rows
    changed = min((rows_changed(version, after) for version in versions), default=fewest)
    if 0 < changed < fewest and not pause:
        raise InputError(
            f"{len(names)} rows are to be withdrawn, and the data would differ in {changed} from a "
            f"version that studies were answered from, where {fewest} must: withdraw "
            f"{fewest - changed} more with them, or pass --pause, and the site refuses all studies "
            f"until so many others have followed"
        )
    _log(folder, "withdraw", rows=len(names), by=by, left=len(own_ids) - len(names))
    add_withdrawal(folder.withdrawals_file, names)
    return len(own_ids) - len(names)
