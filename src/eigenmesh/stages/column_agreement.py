"""Whether parties that open their own files of rows have the same columns in the same order.

===================  ====================================================================
party keeps          its rows, and the names of its columns
party reveals        two digests of these names, as they are and sorted (hashes)
coordinator learns   whose columns differ from the others', or come in another order
===================  ====================================================================

It is asked once, when a federation is opened over files that only their parties can read. A party
whose policy lets no hashes out is not asked, nor are the others: its columns go by their places.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from hashlib import blake2b
from typing import Annotated, ClassVar

from eigenmesh.errors import EigenmeshError, PartitionError, PolicyRefusal
from eigenmesh.runtime.federation import Federation
from eigenmesh.runtime.message import Message, Reveals
from eigenmesh.runtime.party import Party, step
from eigenmesh.runtime.protocol import protocol
from eigenmesh.runtime.schedule import Node, Scope, ask, enlist, sequence
from eigenmesh.runtime.study import stage
from eigenmesh.stages.ask_again import Patient


class AgreementSetup(Message, reveals=None):
    """Nothing to agree on beforehand."""


class ColumnDigests(Message, reveals="hashes"):
    """Of the columns' names, as they are and sorted; empty where there are none."""

    in_order: Annotated[str, Reveals("hashes")]
    sorted_: Annotated[str, Reveals("hashes")]


class NamedRows(Party):
    """Holds rows whose columns may have names."""

    Setup: ClassVar[type[Message]] = AgreementSetup

    @step
    def digest_columns(self) -> ColumnDigests:
        """Digests of the names; a file that cannot be read has none until it is needed."""
        try:
            names = self.site.column_names
        except EigenmeshError:
            names = None
        if names is None:
            return ColumnDigests(in_order="", sorted_="")
        return ColumnDigests(in_order=_digest(names), sorted_=_digest(sorted(names)))


def _digest(names: Sequence[str]) -> str:
    return blake2b(json.dumps(list(names)).encode(), digest_size=16).hexdigest()


def schedule(scope: Scope) -> Node:
    """One question."""
    return sequence(enlist(NamedRows, AgreementSetup()), ask(NamedRows.digest_columns))


@protocol("column-agreement", roles=(NamedRows,), skips=True, schedule=schedule)
def column_agreement(rows: Federation) -> None:
    """Raise `PartitionError` for the first party whose columns are not those of the first."""
    rows.enlist(NamedRows, AgreementSetup())
    replies = Patient(rows).ask(NamedRows.digest_columns)
    named = [(p, own) for p, own in zip(replies.parties, replies, strict=True) if own.in_order]
    for party, own in named[1:]:
        first, expected = named[0]
        if own.in_order != expected.in_order:
            same = own.sorted_ == expected.sorted_
            differ = "its columns in another order" if same else "columns of other names"
            raise PartitionError(
                f"party {party!r} has {differ} than party {first!r}; give every party's file the "
                f"same columns in the same order",
                party=party,
            )


def agree_on_columns(rows: Federation) -> PolicyRefusal | None:
    """Run it, if every party may answer; else gives the refusal."""
    try:
        rows.require_stages(stage(column_agreement))
        rows.run(column_agreement)
    except PolicyRefusal as refusal:
        return refusal
    return None
