"""A sum whose summands nobody sees, after Bonawitz et al. (2017) and Bell et al. (2020).

Every two parties that are neighbours agree on a stream of words, which one adds to its summand and
the other subtracts, so that only in the sum of all the streams are gone. Who is whose neighbour:
everybody, or among many some, on a circle that nobody could choose.

===================  ============================================================================
party keeps          its summand, its secrets, and shares of its neighbours' secrets
party reveals        its summand under masks, and for each field of floats a power of 4 above all
                     its numbers, up to 16 times as large
coordinator learns   the sum, the powers, and who is in it
===================  ============================================================================

Rounds, by their name in a request:

sum     the step is run, its reply kept; out go powers, shapes and public keys.
share   (only if a loss is to be survived) each party draws a mask of its own and a key for this sum
        alone, and gives its neighbours shares of both under seal.
mask    the summand under all masks.
sign    (only then) the roll of those whose masked summands have arrived is signed, one for a sum.
open    (only then) who has seen enough signatures on its roll gives its shares: of those in the
        roll of their own mask, of the others of their key, never both.

Between organisations a total may have to be shown with the request that follows from it (decision
69). A party's part of the proof goes with its answer to "sum", all parts with the round after it.

Where any loss ends the run nothing is ever opened: masks that all are there for cancel by
themselves. Whatever all must agree on (study, run, step, request, members, scales) goes into the
streams, so that who was told otherwise spoils the sum and exposes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Annotated, Any, NamedTuple, TypeVar

import numpy as np

from eigenmesh.errors import MessageRefused, PartyLost, PolicyRefusal, StepRefused
from eigenmesh.runtime.known_keys import require_known
from eigenmesh.runtime.masks import (
    CHECK,
    KEY,
    SEALED,
    SHARE,
    SIGNATURE,
    Secret,
    Words,
    are_exponents,
    count_floats,
    count_words,
    derived,
    digest,
    exponents_of,
    from_words,
    has_room,
    identity,
    is_signed,
    joined,
    neighbours,
    read_shapes,
    seal,
    shapes_of,
    shares,
    sign,
    sketch,
    stream,
    threshold,
    to_words,
    units_of,
    unseal,
)
from eigenmesh.runtime.message import Integers, Message, Shape, check, decode, encode
from eigenmesh.runtime.privacy import honest_fewest
from eigenmesh.runtime.requests import MASK_ROUNDS
from eigenmesh.runtime.rolls import require_apart
from eigenmesh.runtime.site import Site
from eigenmesh.runtime.study import Study

M = TypeVar("M", bound=Message)
_FEWEST = 2  # parties of a sum: that of one is its summand

# The messages. Keys, shares and signatures are rows of bytes.


class Opening(Message, reveals="aggregate"):
    """What a party tells of its summand, and its keys: of its site, of the run, of this sum."""

    shapes: str
    exponents: Annotated[Integers, Shape("f")]
    site_key: Annotated[Integers, Shape(KEY)]
    run_key: Annotated[Integers, Shape(KEY)]
    signature: Annotated[Integers, Shape(SIGNATURE)]
    sum_key: Annotated[Integers, Shape("b")]  # empty where no loss is survived
    strict: bool  # whether two thirds have to agree, as between organisations
    check: Annotated[Integers, Shape("c")]  # of the total before; empty where none is shown
    check_signature: Annotated[Integers, Shape("s")]


class Agreement(Message, reveals="aggregate"):
    """Who is to be in the sum, on which scale, and the keys of those who come new to the run."""

    members: Annotated[Integers, Shape("n")]
    exponents: Annotated[Integers, Shape("f")]
    newcomers: Annotated[Integers, Shape("m")]
    site_keys: Annotated[Integers, Shape("m", KEY)]
    run_keys: Annotated[Integers, Shape("m", KEY)]
    signatures: Annotated[Integers, Shape("m", SIGNATURE)]
    sum_keys: Annotated[Integers, Shape("k", KEY)]  # of the receiver's neighbours
    strict: bool
    checks: Annotated[Integers, Shape("r", CHECK)]  # of all who are in the total before
    check_signatures: Annotated[Integers, Shape("r", SIGNATURE)]


class SealedShares(Message, reveals="aggregate"):
    """For each neighbour its shares of a party's two secrets, under seal."""

    texts: Annotated[Integers, Shape("k", SEALED)]


class Delivery(Message, reveals="aggregate"):
    """Who has given shares, and those that are for the receiver."""

    members: Annotated[Integers, Shape("n")]
    texts: Annotated[Integers, Shape("k", SEALED)]


class MaskedSummand(Message, reveals="aggregate"):
    """A summand under masks: words that look random to everybody."""

    words: Annotated[Integers, Shape("w")]


class Roll(Message, reveals="aggregate"):
    """Whose masked summands have arrived."""

    members: Annotated[Integers, Shape("n")]


class SignedRoll(Message, reveals="aggregate"):
    """A party's signature on a roll."""

    signature: Annotated[Integers, Shape(SIGNATURE)]


class Signatures(Message, reveals="aggregate"):
    """Of those who have signed the roll."""

    signers: Annotated[Integers, Shape("n")]
    signatures: Annotated[Integers, Shape("n", SIGNATURE)]


class Opened(Message, reveals="aggregate"):
    """A party's shares: of each neighbour and itself one, in order, of one of two secrets."""

    shares: Annotated[Integers, Shape("h", SHARE)]


def too_large() -> MessageRefused:
    """Why a summand is not summed, in the same words wherever it overflowed on its way."""
    return MessageRefused(
        "its summand is too large for a masked sum, or no number: rescale the columns, lower the "
        "kernel's degree or gamma, or convert float32 to float64"
    )


# What both sides say alike.


def describe(
    study: Study, run: str, number: int, label: str, numbers: Any, request: bytes
) -> bytes:
    """What a sum is of: the same words at all parties, or their masks do not cancel."""
    return digest("sum", study.digest, run, str(number), label, json.dumps(numbers), request)


def _key_text(study: str, run: str, name: str, run_key: bytes) -> bytes:
    return digest("key", study, run, name, run_key)


class _Keys(NamedTuple):
    """Keys of several parties as they came, each a string of bytes of one length."""

    numbers: bytes
    site_keys: bytes
    run_keys: bytes
    signatures: bytes


@lru_cache(maxsize=16)  # the hosts of one process are sent the same
def _signed_keys(
    names: tuple[str, ...], study: str, run: str, keys: _Keys
) -> list[tuple[int, str, bytes, bytes]]:
    """Number, name, site's key and run's key of each party, all of them signed."""
    numbers = np.frombuffer(keys.numbers, "<i8").tolist()
    columns = (keys.site_keys, keys.run_keys, keys.signatures)
    split = [_bytes(np.frombuffer(c, np.uint8).reshape(len(numbers), -1)) for c in columns]
    parties = []
    for i, site_key, run_key, signature in zip(numbers, *split, strict=True):
        if not 0 <= i < len(names):
            raise StepRefused("the roster names no party of the study")
        if not is_signed(site_key, _key_text(study, run, names[i], run_key), signature):
            raise StepRefused(f"the key of {names[i]!r} in this run is not signed by it")
        parties.append((i, names[i], site_key, run_key))
    return parties


def _check_text(claim: bytes, name: str, part: bytes) -> bytes:
    return digest("check", claim, name, part)


@lru_cache(maxsize=16)  # the hosts of one process are sent the same
def _is_proof(
    claim: bytes,
    names: tuple[str, ...],
    keys: tuple[bytes, ...],
    whole: bytes,
    shape: tuple[int, ...],
    parts: bytes,
    signatures_shape: tuple[int, ...],
    signatures: bytes,
) -> bool:
    """Whether each of these has signed its part, and the parts add up to the whole."""
    if shape != (len(names), CHECK) or signatures_shape != (len(names), SIGNATURE):
        return False
    rows = np.frombuffer(parts, np.uint64).reshape(shape)
    signed = zip(names, keys, rows, _split(signatures), strict=True)
    if rows.sum(axis=0, dtype=np.uint64).tobytes() != whole:
        return False
    return all(is_signed(k, _check_text(claim, n, own.tobytes()), s) for n, k, own, s in signed)


def _split(rows: bytes) -> list[bytes]:
    """One after the other."""
    return [rows[i : i + SIGNATURE] for i in range(0, len(rows), SIGNATURE)]


def _roll_text(context: bytes, members: Sequence[int]) -> bytes:
    return digest("roll", context, _listed(members))


def _listed(members: Sequence[int] | Integers) -> bytes:
    return np.asarray(members, "<i8").tobytes()


def _context(
    subject: bytes, members: Sequence[int], run_keys: Mapping[int, bytes], terms: Sequence[Any]
) -> bytes:
    keys = b"".join(run_keys[i] for i in members)
    return digest(subject, _listed(members), keys, json.dumps(terms))


def _terms(exponents: Any, shapes: str, strict: bool) -> list[Any]:
    return [[int(e) for e in exponents], shapes, strict]


def _circle(members: Sequence[int], run_keys: Mapping[int, bytes]) -> dict[int, tuple[int, ...]]:
    """Nobody could choose it: it hangs on keys that each party draws anew for a run."""
    return neighbours(tuple(members), digest(b"".join(run_keys[i] for i in members)))


def _pair_mask(own: int, other: int, secret: bytes, key: bytes, length: int) -> Words:
    """What `own` adds; `other` adds the negative of it."""
    words = stream(derived(secret, b"pair" + key), length)
    return words if own < other else np.negative(words)


def _bytes(rows: Any) -> list[bytes]:
    return [np.asarray(row, np.uint8).tobytes() for row in rows]


def _rows(texts: Sequence[bytes], width: int) -> Any:
    return np.frombuffer(b"".join(texts), np.uint8).reshape(len(texts), width)


def _row(text: bytes) -> Any:
    return np.frombuffer(text, np.uint8)


# A party's side.


@dataclass
class _Sum:
    """A sum under way at a party."""

    number: int
    label: str  # of the step
    subject: bytes  # see `describe`
    asked_before: bytes  # what the run asked so far, whichever run it is
    summand: Message
    awaits: str
    key: Secret = field(default_factory=Secret)  # of this sum alone: it may have to be given away
    mask: Secret = field(default_factory=Secret)
    members: tuple[int, ...] = ()
    near: tuple[int, ...] = ()
    sum_keys: dict[int, bytes] = field(default_factory=dict)
    context: bytes = b""
    exponents: tuple[int, ...] = ()
    strict: bool = False
    shares_of_masks: dict[int, bytes] = field(default_factory=dict)
    shares_of_keys: dict[int, bytes] = field(default_factory=dict)
    roll: tuple[int, ...] = ()
    words: Words = field(default_factory=lambda: np.zeros(0, np.uint64))  # without masks


class _Added(NamedTuple):
    """What this party has added to the last sum, until the next."""

    name: str  # of the message's type
    context: bytes
    roll: tuple[int, ...]
    words: Words
    shapes: str
    exponents: tuple[int, ...]


class _Claim(NamedTuple):
    """A total as the coordinator shows it; true if what `roll` has added has this sketch."""

    digest: bytes
    roll: tuple[int, ...]
    sketch: Words


class Masker:
    """A party's side of the masked sums of one run."""

    def __init__(self, site: Site, index: int, study: Study, run: str) -> None:
        self._site, self._index, self._study, self._run = site, index, study, run
        self._names = study.scope.parties
        self._forgiving = study.scope.on_loss == "survivors"
        self._secret = Secret()
        self._run_keys: dict[int, bytes] = {}
        self._site_keys: dict[int, bytes] = {}
        self._agreed: dict[int, bytes] = {}
        self._left = frozenset(range(len(self._names)))  # nobody comes back who was left out
        self._rolls: dict[str, tuple[int, ...]] = {}  # the last that each step was opened for
        self._sum: _Sum | None = None
        self._added: _Added | None = None
        self._claim: _Claim | None = None

    @cached_property
    def _site_key(self) -> bytes:
        return identity(self._site.identity)

    @property
    def _strict(self) -> bool:
        return self._site.trust == "organisations"

    def _fewest_in(self, summand: Message) -> int:
        """Parties of a sum; where each adds a share of noise, so many as have enough of it."""
        noisy = honest_fewest(self._study.scope.n_taking_part) if summand.noised else 0
        return max(_FEWEST, noisy, self._fewest_by_policy)

    @property
    def _fewest_by_policy(self) -> int:
        return self._site.policy.fewest_parties(self._site.trust)

    def drop(self) -> None:
        """Forget the sum under way: what was not opened never will be."""
        self._sum = None

    def shown(self, message_type: type[M], words: Words) -> M:
        """The total of the last sum as the coordinator shows it; `begin` has it checked."""
        added = self._added
        if added is None or added.name != message_type.__name__:
            raise StepRefused("the sum before is not what this step follows from")
        is_one = words.dtype == np.uint64 and words.shape == added.words.shape
        if not is_one or words[-1] != len(added.roll) or not has_room(words[:-1]):
            raise StepRefused("what is shown is no total of the sum before")
        shapes = read_shapes(added.shapes, message_type)
        return from_words(message_type, words, shapes, added.exponents, len(self._names))

    def begin(
        self,
        number: int,
        label: str,
        subject: bytes,
        asked_before: bytes,
        summand: Message,
        total_before: Words | None = None,
    ) -> Opening:
        """Keep a summand, and tell what has to be agreed on.

        With the total before, that it is the sum of what all have added has to be agreed on, too.
        """
        exponents = self._exponents_of(summand)
        if self._keeps_circle and not self._forgiving:  # before anybody remembers it
            self._site.rosters.require_circle(self._site.marks, self._names, self._run_digest)
        own_check, check_signature = self._check_of(total_before)
        awaits = "share" if self._forgiving else "mask"
        current = self._sum = _Sum(number, label, subject, asked_before, summand, awaits)
        run_key, name = self._secret.public, self._site.name
        text = _key_text(self._study.digest, self._run, name, run_key)
        return Opening(
            shapes=shapes_of(summand),
            exponents=exponents,
            site_key=_row(self._site_key),
            run_key=_row(run_key),
            signature=_row(sign(self._site.identity, text)),
            sum_key=_row(current.key.public if self._forgiving else b""),
            strict=self._strict,
            check=own_check,
            check_signature=_row(check_signature),
        )

    def _exponents_of(self, summand: Message) -> Integers:
        """What may be told of a summand's size; too large a one is refused by that alone.

        Refused by its numbers, it would tell whoever scales a question one of them to the last bit.
        """
        try:
            check(summand)
            exponents = exponents_of(summand, self._site.key)
        except MessageRefused as error:
            raise too_large() from error
        if not are_exponents(exponents):
            raise too_large()
        return exponents

    def _check_of(self, total: Words | None) -> tuple[Words, bytes]:
        """The own part of a proof of what was shown, under masks that cancel in all parts."""
        self._claim = None
        if total is None:
            return np.zeros(0, np.uint64), b""
        added = self._added
        assert added is not None, "what was shown was read"
        claim = digest("total", added.context, _listed(added.roll), total.tobytes())
        own, whole = sketch(claim, added.words, total)
        for j in _circle(added.roll, self._run_keys)[self._index]:
            key = b"check" + claim
            own = own + _pair_mask(self._index, j, self._agreed_with(j), key, len(own))
        self._claim = _Claim(claim, added.roll, whole)
        text = _check_text(claim, self._site.name, own.tobytes())
        return own, sign(self._site.identity, text)

    def _require_proven(self, agreement: Agreement) -> None:
        """All who were in the sum have signed parts that add up to the sketch of what was shown."""
        claim = self._claim
        if claim is None:
            return
        keys = tuple(self._site_keys[i] for i in claim.roll)
        names = tuple(self._names[i] for i in claim.roll)
        parts = np.asarray(agreement.checks).view(np.uint64)
        signatures = np.asarray(agreement.check_signatures, np.uint8)
        proof = (parts.shape, parts.tobytes(), signatures.shape, signatures.tobytes())
        if not _is_proof(claim.digest, names, keys, claim.sketch.tobytes(), *proof):
            raise StepRefused("what was shown is not the total of what the parties have added")

    def answer(self, round_: str, data: bytes | memoryview) -> Message:
        """The next round of the sum under way; one that is refused is not gone on with."""
        current, self._sum = self._sum, None
        if current is None or current.awaits != round_:
            raise StepRefused(f"{round_!r} is not what comes next in a masked sum")
        reply = self._rounds[round_](self, current, data)
        later = MASK_ROUNDS[MASK_ROUNDS.index(round_) + 1 :] if self._forgiving else ()
        if later:
            current.awaits, self._sum = later[0], current
        return reply

    def _share(self, current: _Sum, data: bytes) -> SealedShares:
        agreement = decode(Agreement, data)
        self._agree(current, agreement)
        if len(agreement.sum_keys) != len(current.near):
            raise MessageRefused("the keys of this sum are not those of a party's neighbours")
        current.sum_keys = dict(zip(current.near, _bytes(agreement.sum_keys), strict=True))
        own, fewest = self._index, threshold(len(current.near) + 1, current.strict)
        of_mask = shares(current.mask, fewest, [*current.near, own])
        of_key = shares(current.key, fewest, current.near)
        current.shares_of_masks[own] = of_mask[own]
        texts = []
        for j in current.near:
            about = self._about_shares(current, own, j)
            text = of_mask[j] + of_key[j]
            texts.append(seal(self._channel(j), current.number, own, text, about))
        return SealedShares(texts=_rows(texts, SEALED))

    def _about_shares(self, current: _Sum, sender: int, receiver: int) -> bytes:
        """The keys that both hold for each other's, so that nobody in between has put in others."""
        keys = {**current.sum_keys, self._index: current.key.public}
        return digest(current.context, keys[sender], keys[receiver])

    def _mask(self, current: _Sum, data: bytes) -> MaskedSummand:
        if self._forgiving:
            secrets = self._delivered(current, decode(Delivery, data))
        else:
            self._agree(current, decode(Agreement, data))
            self._remember(current, current.members)  # what leaves now needs no opening
            secrets = {j: self._agreed_with(j) for j in current.near}
        words = current.words = to_words(current.summand, current.exponents, len(self._names))
        if self._forgiving:
            words = words + stream(derived(current.mask.data, b"own" + current.context), len(words))
        for j, secret in secrets.items():
            words = words + _pair_mask(self._index, j, secret, current.context, len(words))
        if not self._forgiving:
            self._note_added(current, current.members)
        return MaskedSummand(words=words)

    def _note_added(self, current: _Sum, roll: tuple[int, ...]) -> None:
        of = type(current.summand).__name__
        own = (current.words, shapes_of(current.summand), current.exponents)
        self._added = _Added(of, current.context, roll, *own) if self._strict else None

    def _delivered(self, current: _Sum, delivery: Delivery) -> dict[int, bytes]:
        """Take up the shares of all neighbours who are still there; gives what agrees with them."""
        members = self._narrowed(current, delivery.members)
        near = [j for j in current.near if j in set(members)]
        if len(delivery.texts) != len(near):
            raise MessageRefused("the shares are not those of a party's neighbours")
        for j, text in zip(near, _bytes(delivery.texts), strict=True):
            about = self._about_shares(current, j, self._index)
            both = unseal(self._channel(j), current.number, j, text, about)
            current.shares_of_masks[j], current.shares_of_keys[j] = both[:SHARE], both[SHARE:]
        current.context = digest(current.context, _listed(members))
        return {j: current.key.agreed(current.sum_keys[j]) for j in near}

    def _sign(self, current: _Sum, data: bytes) -> SignedRoll:
        current.roll = self._narrowed(current, decode(Roll, data).members, keep=True)
        self._remember(current, current.roll)
        text = _roll_text(current.context, current.roll)
        return SignedRoll(signature=_row(sign(self._site.identity, text)))

    def _remember(self, current: _Sum, roll: tuple[int, ...]) -> None:
        """Help with no sum that together with an earlier one tells what few parties sent.

        In a run that goes by steps: a loop asks nearly the same again; between organisations by
        all, since one step's sum may follow from another's. There it goes beyond the run, by what
        was asked and by what the own summand is, whoever asks; and, unless the site's policy says
        otherwise, by the data, whatever is summed of them.
        """
        fewest, label = self._fewest_by_policy, "" if self._strict else current.label
        names = [self._names[i] for i in roll]
        before = self._rolls.get(label, roll)
        require_apart([self._names[i] for i in before], names, fewest)
        if self._keeps_circle:
            self._site.rosters.note_circle(self._site.marks, names, self._run_digest)
        if self._strict:
            question = digest("question", self._study.question, current.asked_before)
            own = digest("summand", current.label, encode(current.summand))
            self._site.rolls.note([question, own], names, fewest)
        self._rolls[label] = roll

    @property
    def _keeps_circle(self) -> bool:
        """Whether all sums of the site's data are to be over the same parties."""
        by_data = self._site.policy.same_sum == "data"
        return self._strict and by_data and self._fewest_by_policy > 1

    @property
    def _run_digest(self) -> str:
        """Of a run by its study, too: names of runs are the coordinator's."""
        return digest("run", self._study.digest, self._run).hex()

    def _open(self, current: _Sum, data: bytes) -> Opened:
        signed = decode(Signatures, data)
        text, signers = _roll_text(current.context, current.roll), signed.signers.tolist()
        enough = threshold(len(current.members), current.strict)
        if len(set(signers)) < max(enough, len(signers)) or not set(signers) <= set(current.roll):
            raise StepRefused(f"a roll is opened with the signatures of {enough} of its parties")
        for i, signature in zip(signers, _bytes(signed.signatures), strict=True):
            if not is_signed(self._site_keys[i], text, signature):
                raise StepRefused(f"the signature of {self._names[i]!r} is on no such roll")
        self._left = frozenset(current.roll)
        self._note_added(current, current.roll)
        roll = set(current.roll)
        both = current.shares_of_masks, current.shares_of_keys
        shares = [both[j not in roll][j] for j in sorted(current.shares_of_masks)]
        return Opened(shares=_rows(shares, SHARE))

    _rounds: Mapping[str, Callable[[Masker, _Sum, Any], Message]] = {
        "share": _share,
        "mask": _mask,
        "sign": _sign,
        "open": _open,
    }

    # What a party holds against what it knows.

    def _agree(self, current: _Sum, agreement: Agreement) -> None:
        self._welcome(agreement)
        self._require_proven(agreement)
        members = agreement.members.tolist()
        if not self._forgiving and members != list(range(len(self._names))):
            raise StepRefused("where a loss ends the run, a sum is over all parties of the study")
        if not set(members) <= self._run_keys.keys() & self._left:
            raise StepRefused("the roster names who is not in the run, or was left out before")
        self._require_most(len(members))
        current.members = tuple(range(len(self._names)))
        self._narrowed(current, agreement.members)
        if self._strict and not agreement.strict:
            raise StepRefused("two thirds have to agree between organisations, not half")
        exponents = agreement.exponents
        own = exponents_of(current.summand, self._site.key)
        if len(exponents) != len(own) or np.any(exponents < own) or not are_exponents(exponents):
            raise StepRefused("a summand does not fit the scale of the sum: it would wrap")
        current.exponents = tuple(exponents.tolist())
        current.strict = agreement.strict
        current.near = _circle(members, self._run_keys)[self._index]
        terms = _terms(exponents, shapes_of(current.summand), agreement.strict)
        current.context = _context(current.subject, members, self._run_keys, terms)

    def _require_most(self, n_members: int) -> None:
        """Between organisations most of a study are in its sums, however many are said to be lost.

        Else a few parties that collude were left alone with one that does not.
        """
        fewest = threshold(self._study.scope.n_taking_part, strict=True)
        if self._strict and n_members < fewest:
            raise PolicyRefusal(
                f"this sum is of {n_members} parties of a study of which {fewest} must be in it; "
                f"fit again with those who are there",
                rule="min_parties",
            )

    def _narrowed(self, current: _Sum, numbers: Any, keep: bool = False) -> tuple[int, ...]:
        """Who is still there: some of those who were, in order, not too few, this party too."""
        members = tuple(int(i) for i in numbers)
        ordered = list(members) == sorted(set(members))
        if not ordered or not set(members) <= set(current.members) or self._index not in members:
            raise StepRefused("the parties of the sum are not some of those before, with this one")
        fewest = self._fewest_in(current.summand)
        if len(members) < fewest:
            raise StepRefused(f"a sum covers at least {fewest} parties")
        if not keep:
            current.members = members
        return members

    def _welcome(self, agreement: Agreement) -> None:
        """Take up the keys of those who come new: each signed by a site that is who it says."""
        if not len(agreement.newcomers):
            return
        rows = (agreement.site_keys, agreement.run_keys, agreement.signatures)
        texts = [np.asarray(row, np.uint8).tobytes() for row in rows]
        keys = _Keys(_listed(agreement.newcomers), *texts)
        for i, name, site_key, run_key in _signed_keys(
            self._names, self._study.digest, self._run, keys
        ):
            require_known(self._site, name, site_key)
            if self._run_keys.get(i, run_key) != run_key:
                raise StepRefused(f"the roster has two keys of {name!r}")
            if i == self._index and run_key != self._secret.public:
                raise StepRefused("the roster has another key of this party")
            self._site_keys[i], self._run_keys[i] = site_key, run_key

    def _agreed_with(self, other: int) -> bytes:
        if other not in self._agreed:
            self._agreed[other] = self._secret.agreed(self._run_keys[other])
        return self._agreed[other]

    def _channel(self, other: int) -> bytes:
        return derived(self._agreed_with(other), b"channel")

    # Across a restart of the site: a sum under way is lost, the keys of the run are not.

    def export(self) -> dict[str, Any]:
        """What a restarted host goes on from."""
        order = sorted(self._run_keys)
        return {
            "run": self._run,
            "secret": _row(self._secret.data),
            "order": order,
            "run_keys": _rows([self._run_keys[i] for i in order], KEY),
            "site_keys": _rows([self._site_keys[i] for i in order], KEY),
            "left": sorted(self._left),
            "rolls": {label: list(roll) for label, roll in self._rolls.items()},
            "added": None
            if self._added is None
            else self._added._asdict() | {"context": self._added.context.hex()},
        }

    @classmethod
    def restored(cls, site: Site, index: int, study: Study, tree: Mapping[str, Any]) -> Masker:
        """Where `export` was called."""
        masker = cls(site, index, study, tree["run"])
        masker._secret = Secret(tree["secret"].tobytes())
        masker._run_keys = dict(zip(tree["order"], _bytes(tree["run_keys"]), strict=True))
        masker._site_keys = dict(zip(tree["order"], _bytes(tree["site_keys"]), strict=True))
        masker._left = frozenset(tree["left"])
        masker._rolls = {label: tuple(roll) for label, roll in tree["rolls"].items()}
        added = tree["added"]
        if added is not None:
            numbers = {name: tuple(added[name]) for name in ("roll", "exponents")}
            context = bytes.fromhex(added["context"])
            masker._added = _Added(**{**added, **numbers, "context": context})
        return masker


# The coordinator's side.

Ask = Callable[..., None]  # (round, message by party, type of reply, what takes each)


@dataclass
class _Tally:
    """Masked summands, added up as they come."""

    n_words: int
    covered: list[int] = field(default_factory=list)
    words: Words = field(init=False)

    def __post_init__(self) -> None:
        self.words = np.zeros(self.n_words, np.uint64)

    def add(self, i: int, summand: MaskedSummand) -> None:
        """One more."""
        if summand.words.dtype != np.uint64 or len(summand.words) != self.n_words:
            raise MessageRefused(
                f"its masked summand has {len(summand.words)} words; {self.n_words} are expected"
            )
        self.words = self.words + summand.words.view(np.uint64)
        self.covered.append(i)


class Collector:
    """The coordinator's side of the masked sums of one run."""

    def __init__(self, names: tuple[str, ...], forgiving: bool) -> None:
        self._names, self._forgiving = names, forgiving
        self._run_keys: dict[int, bytes] = {}
        self.words: Words | None = None  # of the last total
        self.units: dict[str, float] = {}  # of the last total, by field
        self._covered: list[int] = []

    def total(
        self, subject: bytes, gives: type[Message], openings: Mapping[int, Opening], ask: Ask
    ) -> tuple[Any, list[int]]:
        """The sum, and whom it covers; `ask` carries a round to some parties."""
        _require_enough(len(openings))
        layout, strict = self._common_shapes(openings), any(o.strict for o in openings.values())
        scale = np.max([np.asarray(o.exponents) for o in openings.values()], axis=0)
        shapes, members = read_shapes(layout, gives), sorted(openings)
        agreements = self._agreements(openings, scale, strict)
        context = _context(subject, members, self._run_keys, _terms(scale, layout, strict))
        tally, floats = _Tally(count_words(gives, shapes)), count_floats(gives, shapes)
        if self._forgiving:
            circle = _circle(members, self._run_keys)
            _Opener(openings, circle, context, strict, ask).collect(agreements, tally, floats)
        else:
            ask("mask", agreements, MaskedSummand, tally.add, floats=floats)
        if tally.words[-1] != len(tally.covered):
            raise MessageRefused(
                "the masks of a sum do not cancel: a party was told otherwise than the others, or "
                "did not keep to the protocol; nobody can say which"
            )
        total = from_words(gives, tally.words, shapes, scale.tolist(), len(self._names))
        self.words, self._covered = tally.words, sorted(tally.covered)
        self.units = units_of(gives, scale.tolist(), len(self._names))
        return total, tally.covered

    def _common_shapes(self, openings: Mapping[int, Opening]) -> str:
        first = next(iter(openings.values()))
        for i, opening in openings.items():
            if not are_exponents(opening.exponents):
                raise MessageRefused(
                    "it tells a size of its summand that no number has", party=self._names[i]
                )
            same = len(opening.exponents) == len(first.exponents)
            if opening.shapes != first.shapes or not same:
                raise MessageRefused(
                    f"its summand has shapes {opening.shapes} where the parties before it have "
                    f"{first.shapes}; a sum needs one shape",
                    party=self._names[i],
                )
        return first.shapes

    def _agreements(
        self, openings: Mapping[int, Opening], scale: Any, strict: bool
    ) -> dict[int, Agreement]:
        members = sorted(openings)
        new = [i for i in members if i not in self._run_keys]
        self._run_keys |= {i: _bytes([openings[i].run_key])[0] for i in new}
        circle = _circle(members, self._run_keys)

        def stacked(name: str, whom: Sequence[int], width: int) -> Any:
            return _rows(_bytes([getattr(openings[i], name) for i in whom]), width)

        common = {
            "members": np.array(members),
            "exponents": scale,
            "newcomers": np.array(new, np.int64),
            "site_keys": stacked("site_key", new, KEY),
            "run_keys": stacked("run_key", new, KEY),
            "signatures": stacked("signature", new, SIGNATURE),
            "strict": strict,
            **self._proof(openings),
        }
        if not self._forgiving:
            return dict.fromkeys(members, Agreement(**common, sum_keys=_rows([], KEY)))
        own = {i: stacked("sum_key", circle[i], KEY) for i in members}
        return {i: Agreement(**common, sum_keys=own[i]) for i in members}

    def _proof(self, openings: Mapping[int, Opening]) -> dict[str, Any]:
        """What all who were in the last total say of it, where it was shown."""
        lengths = {len(opening.check) for opening in openings.values()}
        if lengths == {0}:
            return {"checks": _rows([], CHECK), "check_signatures": _rows([], SIGNATURE)}
        for i in self._covered:
            if i not in openings:
                raise PartyLost(
                    "it is lost between a sum and the proof of it, which takes all who were in it; "
                    "fit again",
                    party=self._names[i],
                )
            if len(openings[i].check) != CHECK or len(openings[i].check_signature) != SIGNATURE:
                raise MessageRefused("it proves no total", party=self._names[i])
        own = [openings[i] for i in self._covered]
        signatures = _rows(_bytes([opening.check_signature for opening in own]), SIGNATURE)
        return {
            "checks": np.array([opening.check for opening in own]),
            "check_signatures": signatures,
        }


class _Opener:
    """A sum of those who are left, however many are lost on the way."""

    def __init__(
        self,
        openings: Mapping[int, Opening],
        near: Mapping[int, tuple[int, ...]],
        context: bytes,
        strict: bool,
        ask: Ask,
    ) -> None:
        self._openings, self._near, self._context = openings, near, context
        self._strict, self._ask = strict, ask

    def collect(self, agreements: Mapping[int, Agreement], tally: _Tally, floats: int) -> None:
        """Masked summands, and then the masks of which they are freed."""
        sealed: dict[int, SealedShares] = {}
        self._ask("share", agreements, SealedShares, sealed.__setitem__)
        _require_enough(len(sealed))
        members = sorted(sealed)
        context = digest(self._context, _listed(members))
        self._ask("mask", self._deliveries(sealed), MaskedSummand, tally.add, floats=floats)
        roll = tally.covered
        _require_enough(len(roll))
        shares_of = self._shares(members, roll)
        for i in members:
            secret = joined(self._enough(i, shares_of[i]))
            mask = self._own_mask if i in set(roll) else self._masks_with
            tally.words = tally.words - mask(i, secret, roll, context, tally.n_words)

    def _deliveries(self, sealed: Mapping[int, SealedShares]) -> dict[int, Delivery]:
        """To each party what its neighbours have for it."""
        texts = {}
        for i, own in sealed.items():
            if len(own.texts) != len(self._near[i]):
                raise MessageRefused("its shares are not for its neighbours")
            texts[i] = dict(zip(self._near[i], _bytes(own.texts), strict=True))
        members = np.array(sorted(sealed))
        for_each = {i: [texts[j][i] for j in self._near[i] if j in sealed] for i in sealed}
        return {i: Delivery(members, _rows(own, SEALED)) for i, own in for_each.items()}

    def _shares(self, members: Sequence[int], roll: Sequence[int]) -> dict[int, dict[int, bytes]]:
        """Of each member's secret, by who gave it. Who is silent from here on is in the sum, and
        found missing in the next round.
        """
        signed, opened = dict[int, SignedRoll](), dict[int, Opened]()
        message = Roll(np.array(roll))
        late = {"late": True}
        self._ask("sign", dict.fromkeys(roll, message), SignedRoll, signed.__setitem__, **late)
        needed = threshold(len(members), self._strict)
        if len(signed) < needed:
            raise _too_few("sign its roll", len(signed), needed)
        signers = list(signed)[:needed]
        rows = _rows(_bytes([signed[i].signature for i in signers]), SIGNATURE)
        proof = Signatures(np.array(signers), rows)
        self._ask("open", dict.fromkeys(signed, proof), Opened, opened.__setitem__, **late)
        shares_of: dict[int, dict[int, bytes]] = {i: {} for i in members}
        for holder, reply in opened.items():
            owners = sorted({*self._near[holder], holder} & shares_of.keys())
            for i, share in zip(owners, _bytes(reply.shares), strict=False):
                shares_of[i][holder] = share
        return shares_of

    def _enough(self, i: int, own: Mapping[int, bytes]) -> dict[int, bytes]:
        needed = threshold(len(self._near[i]) + 1, self._strict)
        if len(own) < needed:
            raise _too_few("open it", len(own), needed)
        return dict(list(own.items())[:needed])

    def _own_mask(
        self, i: int, secret: Secret, roll: Sequence[int], context: bytes, length: int
    ) -> Words:
        return stream(derived(secret.data, b"own" + context), length)

    def _masks_with(
        self, i: int, secret: Secret, roll: Sequence[int], context: bytes, length: int
    ) -> Words:
        """What the neighbours of a lost party have added for it."""
        masks = np.zeros(length, np.uint64)
        for j in set(self._near[i]).intersection(roll):
            common = secret.agreed(_bytes([self._openings[j].sum_key])[0])
            masks = masks + _pair_mask(j, i, common, context, length)
        return masks


def _require_enough(there: int) -> None:
    if there < _FEWEST:
        left = "1 party is left" if there == 1 else f"{there} parties are left"
        raise PartyLost(
            f"{left} for a masked sum; {_FEWEST} are needed, since one has nobody to mask with: of "
            f"one party's data leave secure=True (--secure) out"
        )


def _too_few(what: str, there: int, needed: int) -> PartyLost:
    return PartyLost(
        f"too many parties were lost in a masked sum to {what}: {there} are left, {needed} are "
        f"needed"
    )
