"""Rows that have left a site's data set: a list beside the data, whose file is not changed."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from eigenmesh.errors import InputError
from eigenmesh.safe_files import write_whole


@dataclass(frozen=True)
class Withdrawal:
    """Ids that were withdrawn together."""

    at: float
    ids: tuple[str, ...]


def read_withdrawals(path: Path) -> tuple[Withdrawal, ...]:
    """In the order in which they were made."""
    if not path.exists():
        return ()
    try:
        tree = json.loads(path.read_bytes())
        return tuple(Withdrawal(float(own["at"]), tuple(map(str, own["ids"]))) for own in tree)
    except (OSError, KeyError, TypeError, ValueError):
        raise InputError(
            f"{path.name!r} is damaged, and without it withdrawn rows would be used again; restore "
            f"the file"
        ) from None


def withdrawn_ids(withdrawals: Sequence[Withdrawal]) -> frozenset[str]:
    """All ids that were withdrawn."""
    return frozenset(own for withdrawal in withdrawals for own in withdrawal.ids)


def add_withdrawal(path: Path, ids: Iterable[str]) -> Withdrawal:
    """Take note of ids; they are out from the next start, or the next run, on."""
    withdrawal = Withdrawal(time.time(), tuple(ids))
    whole = [*read_withdrawals(path), withdrawal]
    tree = [{"at": own.at, "ids": own.ids} for own in whole]
    write_whole(path, json.dumps(tree, ensure_ascii=False, indent=1).encode(), private=True)
    return withdrawal
