"""Matching samples over column partitions: rows of common ids, in one order.

===================  =========================================================================
party keeps          its columns and sample ids
party reveals        a hash of every sample id, keyed with a secret that the parties share
coordinator learns   how many samples are common, and which rows of each party they are; not
                     having the secret, it cannot try out whose id a hash belongs to
===================  =========================================================================

A party learns which of its own samples all others have too. Whatever runs at its site from then on
sees these samples only, in the first party's order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from eigenmesh.errors import InputError, MessageRefused, PartitionError
from eigenmesh.numerics.common_samples import common_rows
from eigenmesh.runtime.federation import Federation
from eigenmesh.runtime.message import Distinct, Integers, Message, NonEmpty, NonNegative, Shape
from eigenmesh.runtime.party import Party, step
from eigenmesh.runtime.protocol import protocol
from eigenmesh.runtime.records import record
from eigenmesh.runtime.schedule import Node, Scope, ask, at_most, enlist, sequence
from eigenmesh.runtime.site import SiteView
from eigenmesh.stages.column_scores import ask_everyone

_MOST_SAMPLES = 10**8  # of a site: how many it has is for its own ids to say


class MatchSetup(Message, reveals=None):
    """Nothing to agree on."""


class SampleHashes(Message, reveals="hashes"):
    """A keyed hash of every sample id, as two numbers."""

    hashes: Annotated[Integers, Shape("n", 2), NonEmpty]


class CommonRows(Message, reveals="hashes"):
    """The rows that all parties have, in a common order."""

    # A sample that is taken more than once could make up whole clusters.
    rows: Annotated[Integers, Shape("n"), NonNegative, Distinct]


class MatchedSite(Party):
    """Holds some columns of samples that not all others may have."""

    Setup = MatchSetup

    @step
    def offer_hashes(self) -> SampleHashes:
        """Keyed hashes of the site's sample ids."""
        return SampleHashes(hashes=matcher_of(self.site).hashes())

    @step(reusable=False)
    def take_rows(self, common: CommonRows) -> None:
        """From here on the site has these samples, in this order."""
        if matcher_of(self.site).n_samples <= int(common.rows.max(initial=-1)):
            raise MessageRefused("a common sample is none of the site's")
        take_common_rows(self.site, common.rows)


def matcher_of(site: SiteView) -> Any:
    """What matches the site's samples, or an error."""
    if site.matcher is None:
        raise PartitionError(
            f"party {site.name!r} cannot match its samples; open the federation over "
            f"Partitioned(columns=..., sample_ids=..., align='inner')",
            party=site.name,
        )
    return site.matcher


def take_common_rows(site: SiteView, rows: Any) -> None:
    """From here on the site has these samples, in this order."""
    site.require_other_samples(rows)
    matcher_of(site).choose(rows)
    site.reopen()


def require_common(n_common: int) -> None:
    """Raise `InputError` unless there are samples to work on."""
    if n_common < 2:
        raise InputError(
            f"{n_common} sample ids are common to all parties, at least 2 are expected; check "
            f"that ids are written alike (numbers or strings) and that all parties have one "
            f"id_secret"
        )


@record
@dataclass(frozen=True)
class Matched:
    """How many samples are common, and how many each party has."""

    n_common: int
    n_own: tuple[int, ...]
    parties: tuple[str, ...]

    def __str__(self) -> str:
        own = ", ".join(
            self._in_words(*pair) for pair in zip(self.parties, self.n_own, strict=True)
        )
        return f"{self.n_common} samples are common to all parties, of {own}"

    def _in_words(self, party: str, n_own: int) -> str:
        lost = n_own - self.n_common
        return f"{party!r} {n_own} ({f'{lost} are left out' if lost else 'all are in'})"


def schedule(scope: Scope) -> Node:
    """Hashes up, rows down; how many there are is for the sites' own ids to say."""
    return sequence(
        enlist(MatchedSite, MatchSetup()),
        ask(MatchedSite.offer_hashes, n=at_most(_MOST_SAMPLES)),
        ask(MatchedSite.take_rows, n=at_most(_MOST_SAMPLES)),
    )


@protocol("entity-alignment", roles=(MatchedSite,), schedule=schedule)
def entity_alignment(columns: Federation) -> Matched:
    """Match the parties' samples by the keyed hashes of their ids."""
    columns.enlist(MatchedSite, MatchSetup())
    offers = ask_everyone(columns, MatchedSite.offer_hashes)
    for party, offer in zip(offers.parties, offers, strict=True):
        if len(np.unique(offer.hashes, axis=0)) < len(offer.hashes):
            raise MessageRefused("it has a sample id twice; every id once is expected", party=party)
    rows = common_rows([offer.hashes for offer in offers])
    require_common(len(rows[0]))
    each = {p: CommonRows(rows=own) for p, own in zip(offers.parties, rows, strict=True)}
    columns.ask(MatchedSite.take_rows, each=each)
    n_own = tuple(len(offer.hashes) for offer in offers)
    return Matched(len(rows[0]), n_own, offers.parties)
