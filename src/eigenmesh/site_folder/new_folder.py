"""A new site's folder: its settings, a policy that reveals little, and its key."""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from eigenmesh.errors import InputError
from eigenmesh.runtime.masks import identity
from eigenmesh.runtime.message import KINDS
from eigenmesh.runtime.policy import APPROVALS
from eigenmesh.safe_files import NewFile, private_folder, write_together
from eigenmesh.site_folder.folder import SiteFolder, open_site
from eigenmesh.site_folder.settings import SiteSettings

# Masked sums, how many there are, and whether all mean the same samples and columns.
LEAST = ("aggregate", "counts", "hashes")


def policy_text(
    allow: Iterable[str] = LEAST, *, approve: str = "each", min_rows: int = 5, studies: int = 20
) -> str:
    """A policy.toml, with words for its owner."""
    kinds = sorted(set(allow))
    unknown = sorted(set(kinds) - KINDS)
    if unknown:
        raise InputError(
            f"the kind {unknown[0]!r} is not known; expected some of {', '.join(sorted(KINDS))}"
        )
    if approve not in APPROVALS:
        raise InputError(f"approve is {approve!r}; expected one of {', '.join(APPROVALS)}")
    others = ", ".join(sorted(KINDS - set(kinds)))
    return f"""\
# What may leave this site. Nobody but its owner changes this file; it holds from the next run on.
# docs/policies.md says what each line means, and `eigenmesh site check` what it comes to.

# Kinds of numbers that may leave; what is not listed stays: {others or "nothing"}.
allow = {json.dumps(kinds)}

# "each": a person approves every study here, by `eigenmesh site approve`.
approve = "{approve}"

# The fewest rows behind any number that is not a row.
min_rows = {min_rows}

# Over the life of the data: studies, and numbers beside those that the data have.
[budget]
studies = {studies}
numbers = 0.5
"""


def new_folder(path: str | Path, settings: SiteSettings, policy: str) -> SiteFolder:
    """Make a site's folder; one that has settings is left as it is.

    The site is opened before anything else, so that settings which do not fit the data are told;
    then nothing is left that another attempt would take over, such as a policy that lets more out.
    """
    folder = SiteFolder(path)
    if folder.settings_file.exists():
        raise InputError(
            f"{str(folder.settings_file)!r} is there; edit it, or pass another folder as --site"
        )
    new = [path for path in (folder.path, folder.private) if not path.exists()]
    folder.path.mkdir(parents=True, exist_ok=True)
    files = {folder.settings_file: settings.to_toml().encode() + b"\n"}
    if not folder.policy_file.exists():
        files[folder.policy_file] = policy.encode()
    try:
        write_together(NewFile(file, content) for file, content in files.items())
        private_folder(folder.private)
        site = open_site(path)
        _ = site.data, site.key
    except BaseException:
        for file in files:
            file.unlink(missing_ok=True)
        for own in reversed(new):
            with suppress(OSError):  # a key that was made is as good for the next attempt
                own.rmdir()
        raise
    return folder


def public_key(folder: SiteFolder) -> str:
    """By which the others know this site: for the `peers` of their settings."""
    return identity(open_site(folder.path).identity).hex()
