"""The folder of a site: which file is what, and the site that they make up.

::

    site.toml       what the owner says of the data            policy.toml   what may leave
    withdrawn.json  ids of rows that have left the data set
    private/        of mode 0700: the site's key, approvals, what was spent of the budget, runs that
                    were seen, the log, and in store/ what studies left for later
"""

from __future__ import annotations

import dataclasses
from functools import cached_property
from pathlib import Path
from typing import Any

from eigenmesh.data.matching import SampleMatcher, id_secret, shared_secret
from eigenmesh.data.sample_ids import hash_sample_ids
from eigenmesh.errors import InputError
from eigenmesh.runtime.budget import Budget
from eigenmesh.runtime.disk_store import DiskStore
from eigenmesh.runtime.policy import Policy
from eigenmesh.runtime.site import OWN_TARGETS, OWN_WEIGHTS, Site
from eigenmesh.runtime.site_log import SiteLog
from eigenmesh.safe_files import is_private, private_folder
from eigenmesh.site_folder.settings import SiteSettings
from eigenmesh.site_folder.site_rows import SiteRows, feature_names, read_rows
from eigenmesh.site_folder.withdrawals import read_withdrawals, withdrawn_ids


class SiteFolder:
    """Where the parts of a site lie."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.settings_file = self.path / "site.toml"
        self.policy_file = self.path / "policy.toml"
        self.withdrawals_file = self.path / "withdrawn.json"
        self.private = self.path / "private"
        self.store = self.private / "store"
        self.log_file = self.private / "log.jsonl"

    @cached_property
    def settings(self) -> SiteSettings:
        """What the owner says of the data."""
        return SiteSettings.from_toml(self.settings_file)

    def policy(self) -> Policy:
        """What may leave. Without a budget what is spent is counted all the same.

        Only who counts knows which versions of the data were answered from: two that differ in a
        few rows would tell these.
        """
        policy = Policy.from_toml(self.policy_file)
        if policy.budget is not None:
            return policy
        return Policy(**{**_arguments(policy), "budget": Budget()})

    def rows(self) -> SiteRows:
        """The data, without the rows that were withdrawn."""
        gone = withdrawn_ids(read_withdrawals(self.withdrawals_file))
        rows = read_rows(self.settings, self.path)
        if gone and rows.ids is None:
            raise InputError("rows were withdrawn by id, and the file has no ids now; restore it")
        return rows.without(gone)

    def secret(self) -> str:
        """The words by which all sites key the hashes of their ids."""
        if self.settings.id_secret_file is None:
            return shared_secret(None, self.settings.name)
        file = self.path / self.settings.id_secret_file
        try:
            return id_secret(file.read_text(encoding="utf-8").strip())
        except OSError as error:
            raise InputError(f"{file.name!r} cannot be read: {error.strerror}") from None


def _arguments(policy: Policy) -> dict[str, Any]:
    return {name: getattr(policy, name) for name in policy.__dataclass_fields__}


def _looked_at(file: Path) -> tuple[int, int] | None:
    """What changes when a file does; None if there is none."""
    facts = file.stat() if file.exists() else None
    return None if facts is None else (facts.st_mtime_ns, facts.st_size)


class _Opened:
    """The data of a folder, read when they are first used; all parts of one reading."""

    def __init__(self, folder: SiteFolder) -> None:
        self._folder = folder
        self._rows: SiteRows | None = None
        self._policy_seen = _looked_at(folder.policy_file)
        self._withdrawals_seen = _looked_at(folder.withdrawals_file)

    @property
    def rows(self) -> SiteRows:
        if self._rows is None:
            self._rows = self._folder.rows()
        return self._rows

    def renew(self, site: Site) -> None:
        """Before a run: rows that were withdrawn are out, and the policy is as its file says."""
        policy, withdrawals = map(
            _looked_at, (self._folder.policy_file, self._folder.withdrawals_file)
        )
        if policy != self._policy_seen:
            site.policy, self._policy_seen = self._folder.policy(), policy
        if withdrawals != self._withdrawals_seen:
            self._rows, self._withdrawals_seen = None, withdrawals
            site.reopen()

    def data(self) -> Any:
        return self.rows.X

    def ids(self) -> Any:
        return self.rows.ids

    def ids_digest(self) -> str:
        return hash_sample_ids(self.rows.ids)

    def names(self) -> tuple[str, ...] | None:
        if self._rows is not None:
            return self._rows.names
        return feature_names(self._folder.settings, self._folder.path)

    def level_columns(self) -> tuple[int, ...]:
        names, categories = self.names() or (), self._folder.settings.categories
        return tuple(names.index(name) for name in categories if name in names)

    def version(self) -> str:
        """A name of the rows that results belong to."""
        return f"{len(read_withdrawals(self._folder.withdrawals_file))}:{self.ids_digest()}"

    def owner_values(self) -> dict[str, Any]:
        settings = self._folder.settings
        values: dict[str, Any] = {}
        if settings.targets:
            values[OWN_TARGETS] = lambda: {"targets": self.rows.targets}
        if settings.weights is not None:
            values[OWN_WEIGHTS] = lambda: {"weights": self.rows.weights}
        return values


def open_site(folder: str | Path) -> Site:
    r"""The site in a folder, for a host: from its own files alone, nothing from whoever asks.

    Its data are read when they are first used. What its owner changes while it is open, the policy
    or rows that are withdrawn, holds from the next run on.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp())
    >>> _ = (path / "ward.csv").write_text("patient,age,bmi\na,31,22\nb,25,19\n")
    >>> _ = (path / "site.toml").write_text(
    ...     'name = "north"\ndata = "ward.csv"\nid_column = "patient"'
    ... )
    >>> _ = (path / "policy.toml").write_text('approve = "each"')
    >>> site = open_site(path)
    >>> site.name, site.split, site.names_columns(), site.data.shape
    ('north', 'rows', ('age', 'bmi'), (2, 2))
    """
    place = SiteFolder(folder)
    settings, opened = place.settings, _Opened(place)
    store = DiskStore(place.store, owner=opened.owner_values(), version=opened.version)
    site = Site(
        settings.name,
        opened.data,
        place.policy(),
        opened.ids_digest,
        opened.names,
        opened.level_columns,
        store=store,
        state_dir=private_folder(place.private),
        trust="organisations",
        peers=settings.public_keys(),
        left_by_studies=store.left_by_studies,
        split=settings.split,
        log=SiteLog(place.log_file),
        renew=opened.renew,
        _openings=len(read_withdrawals(place.withdrawals_file)),
    )
    if settings.align != "strict":
        secret = place.secret()
        site.matcher = SampleMatcher(opened.data, opened.ids, secret, settings.align)
        site = dataclasses.replace(site, opens=site.matcher.data, identifies=site.matcher.digest)
    _require_private(place.private)
    return site


def _require_private(folder: Path) -> None:
    """A key that others can read is no secret."""
    for file in (folder, folder / "site.key"):
        if file.exists() and not is_private(file):
            raise InputError(
                f"{file.name!r} of the site can be read by others; chmod go= {file.name} (and if "
                f"others had the time to read the key, remove it for a new one)"
            )
