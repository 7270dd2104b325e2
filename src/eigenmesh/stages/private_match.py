"""Matching samples over column partitions by private set intersection: no list of hashes leaves.

Diffie and Hellman's function with keys of each party's own (Meadows, 1986; package openmined-psi):
an id under two keys is the same whoever came first, and under one key tells nobody anything. What
is compared are the keyed hashes of `align`, so that who has no `id_secret`, the coordinator, cannot
pose as a party and try ids out.

===================  =========================================================================
party keeps          its columns, its sample ids and its key
party reveals        how many samples it has; each id as a point that only its own key opens
first party learns   which of its own samples each single other party has
others learn         which of their own samples all parties have
coordinator learns   how many samples each party has, and how many are common; of none which
===================  =========================================================================

With keyed hashes (`align`) the coordinator learns which samples any two parties have in common,
and the parties only which all have. For two parties both learn the same here, for more the first
learns more than the others: put first whom the others trust with that.

Above the usual length: each of five messages is a form of its own, and what the package takes and
gives is checked here, since nothing else uses it.

Rounds: all parties blind their ids; the others blind the first one's ids again, and send their own;
the first finds what is common to all, and does the same for the others with these samples alone.
Samples are in the first party's order. An id takes three exponentiations at its party and as many
at the first: a millisecond in all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from eigenmesh.errors import MessageRefused, PartitionError
from eigenmesh.extras import extra
from eigenmesh.runtime.federation import Federation
from eigenmesh.runtime.message import Integers, Message, NonNegative, Positive, Reveals, Shape
from eigenmesh.runtime.party import Party, step
from eigenmesh.runtime.protocol import protocol
from eigenmesh.runtime.schedule import Node, Scope, ask, at_most, enlist, sequence
from eigenmesh.runtime.site import SiteView
from eigenmesh.runtime.study import Stage, stage
from eigenmesh.stages.align import (
    Matched,
    MatchSetup,
    entity_alignment,
    matcher_of,
    require_common,
    take_common_rows,
)
from eigenmesh.stages.column_scores import ask_everyone

MOST_SAMPLES = 10**6  # of a site: a million take some minutes
_BYTES = 40  # of a blinded id, at the most
T = TypeVar("T")


def _package() -> Any:
    with extra("psi", "align='psi'", otherwise="align='inner' for keyed hashes"):
        import private_set_intersection.python as package
    return package


class BlindedIds(Message, reveals="hashes"):
    """A party's ids under its own key."""

    points: Annotated[Integers, Shape("b")]
    n_samples: Annotated[int, Reveals("counts"), Positive]


class FirstIds(Message, reveals="hashes"):
    """Those of the first party; none for itself."""

    points: Annotated[Integers, Shape("b")]


class BlindAnswer(Message, reveals="hashes"):
    """The first party's ids under its key and another's, and the other's ids under its own."""

    twice: Annotated[Integers, Shape("b")]
    own: Annotated[Integers, Shape("c")]


class OthersIds(Message, reveals="hashes"):
    """For the first party, of each other in turn: its ids, its answer, and its own ids again."""

    points: Annotated[Integers, Shape("b")]
    lengths: Annotated[Integers, Shape("k"), NonNegative]


class CommonIds(Message, reveals="hashes"):
    """The common ids under a key of the first party, and each other's ids under both keys."""

    points: Annotated[Integers, Shape("b")]
    lengths: Annotated[Integers, Shape("k"), NonNegative]
    order: Annotated[Integers, Shape("n"), NonNegative]
    n_common: Annotated[int, Reveals("counts"), NonNegative]


class CommonForParty(Message, reveals="hashes"):
    """What a party finds the common samples by, and their order."""

    twice: Annotated[Integers, Shape("b")]
    common: Annotated[Integers, Shape("c")]
    order: Annotated[Integers, Shape("n"), NonNegative]


class BlindMatcher(Party):
    """Holds some columns of samples that not all others may have."""

    Setup = MatchSetup
    state = ("key", "common")

    def __init__(self, site: SiteView, setup: MatchSetup) -> None:
        super().__init__(site, setup)
        self.key = _row(_client().GetPrivateKeyBytes())
        self.common = np.zeros(0, np.int64)  # the first party's rows that all have

    @step(reusable=False)
    def blind_ids(self) -> BlindedIds:
        """Ids under the party's key."""
        ids = self._ids()
        request = _client(self.key).CreateRequest(ids)
        return BlindedIds(points=_row(request.SerializeToString()), n_samples=len(ids))

    @step(reusable=False)
    def blind_again(self, first: FirstIds) -> BlindAnswer:
        """The first party's ids under this key, too; and the party's own, in no order."""
        if not first.points.size:
            return BlindAnswer(twice=first.points, own=first.points)
        request = _parsed(_package().Request(), first.points)
        server = _server()
        own = server.CreateSetupMessage(0.0, 1, self._ids(), _package().DataStructure.RAW)
        twice = _done(partial(server.ProcessRequest, request))
        return BlindAnswer(twice=_row(twice.SerializeToString()), own=_row(own.SerializeToString()))

    @step(reusable=False)
    def find_common(self, others: OthersIds) -> CommonIds:
        """At the first party: what all have, for the others to find by their own ids."""
        pieces = _split(others.points, others.lengths)
        if not pieces:
            nothing = np.zeros(0, np.uint8)
            return CommonIds(points=nothing, lengths=_lengths([]), order=_lengths([]), n_common=0)
        ids = self._ids()
        common = set(range(len(ids)))
        for twice, own in zip(pieces[1::3], pieces[2::3], strict=True):
            common &= set(_common(self.key, twice, own))
        self.common = np.array(sorted(common), np.int64)
        shared = [ids[i] for i in self.common]
        server = _server()
        answers = [server.CreateSetupMessage(0.0, 1, shared, _package().DataStructure.RAW)]
        for blinded in pieces[0::3]:
            request = _parsed(_package().Request(), blinded)
            answers.append(_done(partial(server.ProcessRequest, request)))
        texts = [answer.SerializeToString() for answer in answers] if shared else []
        # Ranks by keyed hash, which all can tell of their own: so the others have this order, too.
        order = np.argsort(np.argsort(np.array(shared, np.str_))) if shared else _lengths([])
        return CommonIds(
            points=_row(b"".join(texts)),
            lengths=_lengths([len(text) for text in texts]),
            order=order.astype(np.int64),
            n_common=len(shared),
        )

    @step(reusable=False)
    def take_common(self, answer: CommonForParty) -> None:
        """From here on the site has these samples, in this order."""
        if answer.twice.size:
            places = np.array(_common(self.key, answer.twice, answer.common), np.int64)
            hashes = np.array(self._ids(), np.str_)[places]
            ranked = places[np.argsort(hashes)]
            sound = sorted(answer.order.tolist()) == list(range(len(ranked)))
            if not sound:
                raise MessageRefused("the order of the common samples is none")
            rows = ranked[answer.order]
        else:
            rows = self.common
        take_common_rows(self.site, rows)

    def _ids(self) -> list[str]:
        """Keyed hashes of the ids, as text: whatever an id is, it is one of these."""
        hashes = matcher_of(self.site).hashes()
        texts = [own.tobytes().hex() for own in np.ascontiguousarray(hashes)]
        if len(set(texts)) < len(texts):
            raise PartitionError(
                f"party {self.site.name!r} has a sample id twice; every id once is expected",
                party=self.site.name,
            )
        if len(texts) > MOST_SAMPLES:
            raise PartitionError(
                f"party {self.site.name!r} has {len(texts):,} samples; at most {MOST_SAMPLES:,} "
                f"are matched under keys: take align='inner'",
                party=self.site.name,
            )
        return texts


def _client(key: NDArray[Any] | None = None) -> Any:
    package = _package().client
    if key is None:
        return package.CreateWithNewKey(True)
    return package.CreateFromKey(np.asarray(key, np.uint8).tobytes(), True)


def _server() -> Any:
    """With a key for this one answer: under a party's other key its points could be compared."""
    return _package().server.CreateWithNewKey(True)


def _common(key: NDArray[Any], twice: Any, own: Any) -> list[int]:
    """Places of the key holder's ids that are among another's."""
    package = _package()
    setup, response = _parsed(package.ServerSetup(), own), _parsed(package.Response(), twice)
    return list(_done(lambda: _client(key).GetIntersection(setup, response)))


def _parsed(message: Any, points: Any) -> Any:
    _done(lambda: message.ParseFromString(np.asarray(points, np.uint8).tobytes()))
    return message


def _done(work: Callable[[], T]) -> T:
    """What the package does with what others sent, or a refusal."""
    try:
        return work()
    except Exception as error:  # of protocol buffers, or of points that are none
        raise MessageRefused(f"blinded ids are none ({type(error).__name__})") from None


def _row(text: bytes) -> Integers:
    return np.frombuffer(text, np.uint8)


def _lengths(values: Sequence[int]) -> Integers:
    return np.array(values, np.int64)


def _split(points: Any, lengths: Any) -> list[Any]:
    ends = np.cumsum(lengths)
    if len(ends) and ends[-1] != len(points):
        raise MessageRefused("blinded ids are cut off")
    return np.split(np.asarray(points), ends[:-1]) if len(ends) else []


def schedule(scope: Scope) -> Node:
    """Four rounds; how many samples there are is for the sites' own ids to say."""
    some, n = at_most(_BYTES * MOST_SAMPLES), at_most(MOST_SAMPLES)
    k = at_most(3 * len(scope.parties))
    all_of_them = at_most(3 * len(scope.parties) * _BYTES * MOST_SAMPLES)
    return sequence(
        enlist(BlindMatcher, MatchSetup()),
        ask(BlindMatcher.blind_ids, b=some),
        ask(BlindMatcher.blind_again, b=some, up={"c": some}),
        ask(BlindMatcher.find_common, b=all_of_them, k=k, up={"n": n}),
        ask(BlindMatcher.take_common, b=some, c=some, n=n),
    )


@protocol("blind-alignment", roles=(BlindMatcher,), schedule=schedule)
def blind_alignment(columns: Federation) -> Matched:
    """Match the parties' samples under keys of their own; what passes here opens nothing."""
    columns.enlist(BlindMatcher, MatchSetup())
    blinded = ask_everyone(columns, BlindMatcher.blind_ids)
    parties, nothing = blinded.parties, np.zeros(0, np.uint8)
    first, others = parties[0], parties[1:]

    # 1. The first party's ids under every other key.
    ids = dict(zip(parties, blinded, strict=True))
    each: dict[str, Any] = {name: FirstIds(points=ids[first].points) for name in others}
    answers = columns.ask(BlindMatcher.blind_again, each={**each, first: FirstIds(points=nothing)})
    by_party = dict(zip(answers.parties, answers, strict=True))

    # 2. What is common to all, at the first party; then the others find the same by their own ids.
    pieces = [
        own
        for name in others
        for own in (ids[name].points, by_party[name].twice, by_party[name].own)
    ]
    whole = OthersIds(points=_joined(pieces), lengths=_lengths([len(own) for own in pieces]))
    each = {name: OthersIds(points=nothing, lengths=_lengths([])) for name in others}
    replies = columns.ask(BlindMatcher.find_common, each={**each, first: whole})
    common = dict(zip(replies.parties, replies, strict=True))[first]
    require_common(common.n_common)
    setup, *twice = _split(common.points, common.lengths)
    each = {
        name: CommonForParty(twice=own, common=setup, order=common.order)
        for name, own in zip(others, twice, strict=True)
    }
    own_order = CommonForParty(twice=nothing, common=nothing, order=common.order)
    columns.ask(BlindMatcher.take_common, each={**each, first: own_order})
    n_own = tuple(own.n_samples for own in blinded)
    return Matched(common.n_common, n_own, parties)


def alignment(align: str) -> Stage:
    """The run that matches samples as `align` says."""
    return stage(blind_alignment if align == "psi" else entity_alignment)


# Of the overlap, beside how many samples each party has and how many are common.
WHO_LEARNS = {
    "inner": "of the overlap: the coordinator learns which samples any two parties have in common, "
    "by keyed hashes; each party which of its own all others have",
    "psi": "of the overlap: the first party learns which of its own samples each single other "
    "party has; each other party which of its own all have; the coordinator none of it",
}


def _joined(pieces: Sequence[Any]) -> Any:
    return np.concatenate(pieces) if pieces else np.zeros(0, np.uint8)
