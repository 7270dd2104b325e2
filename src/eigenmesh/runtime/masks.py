"""What masked sums are made of: keys, shares, signatures, streams, and numbers in a ring.

Everything here is a function of bytes and arrays; who sends what to whom is in `masked_sum`. The
package `cryptography` is imported by this file alone.

Numbers are summed in the ring of 64-bit words. A field of floats has one exponent E for all
parties, a multiple of `COARSE`, with every |x| ≤ 2^E; it is summed in units of 2^(E + log2 n - 62),
so that n of them do not wrap, and its sum is off by at most n units of half that size. A field that
is `Wide` goes on in the next words with what is left below that unit. Integers are summed as they
are.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Any, TypeVar

import numpy as np
from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.ed25519 import (
    Ed25519PrivateKey,
    Ed25519PublicKey,
)
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import NDArray

from eigenmesh.errors import MessageRefused, StepRefused
from eigenmesh.runtime.message import Field, Message, Whole, check, fields_of

Words = NDArray[np.uint64]
M = TypeVar("M", bound=Message)

MOST_NEIGHBOURS = 40  # with whom a party shares masks; even, as many on each side of a circle
COARSE = 2  # bits to which exponents are rounded up that parties tell, after as many at most
_ROUNDED_UP = b"exponent"
WIDE = 3  # words of a number of a wide field: 10^-31 of the largest keeps all of its digits
_BITS = 62  # of the ring that the largest possible sum takes; one is the sign, one to spare
_SMALLEST = -1000  # exponent of what is taken for nothing
_LARGEST = 1000  # exponent beyond which no summand is summed, well below where numbers overflow
_SKETCHED = 4096  # words whose factors are drawn at a time
_PRIME = 2**255 - 19  # shares are numbers below it
_SECRET = 31  # bytes of a secret that is shared: less than the prime
SHARE = 32  # bytes of a share
KEY = 32  # bytes of a public key
SIGNATURE = 64
CHECK = 64  # words of a sketch by which a total is checked
SEALED = 2 * SHARE + 16  # bytes of a pair of shares under seal


# Keys.


def digest(*parts: bytes | str) -> bytes:
    """Of several strings, each of which ends where it ends."""
    whole = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        whole.update(len(data).to_bytes(8, "little") + data)
    return whole.digest()


class Secret:
    """Random bytes that can be shared, and the pair of keys that follows from them."""

    def __init__(self, data: bytes | None = None) -> None:
        self.data = os.urandom(_SECRET) if data is None else data

    @cached_property
    def _private(self) -> X25519PrivateKey:
        return X25519PrivateKey.from_private_bytes(derived(self.data, b"key pair"))

    @cached_property
    def public(self) -> bytes:
        """The key that others may know."""
        return self._private.public_key().public_bytes_raw()

    def agreed(self, public: bytes) -> bytes:
        """What two who know each other's public key have in common, and nobody else."""
        try:
            return self._private.exchange(X25519PublicKey.from_public_bytes(public))
        except ValueError:
            raise MessageRefused("a public key is none") from None


def derived(secret: bytes, purpose: bytes) -> bytes:
    """A key for one purpose."""
    return HKDF(hashes.SHA256(), 32, None, b"eigenmesh " + purpose).derive(secret)


def stream(key: bytes, length: int) -> Words:
    """So many words that nobody without the key can tell from random ones."""
    cipher = Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None)
    return np.frombuffer(cipher.encryptor().update(bytes(8 * length)), "<u8")


def seal(key: bytes, number: int, sender: int, text: bytes, about: bytes) -> bytes:
    """A text that only the holder of the key reads, and only as being `about` the same."""
    return ChaCha20Poly1305(key).encrypt(_nonce(number, sender), text, about)


def unseal(key: bytes, number: int, sender: int, sealed: bytes, about: bytes) -> bytes:
    """The text, if it was sealed by who it must be from, about the same."""
    try:
        return ChaCha20Poly1305(key).decrypt(_nonce(number, sender), sealed, about)
    except InvalidTag:
        raise StepRefused("a share under seal is not of its sender, or about another sum") from None


def _nonce(number: int, sender: int) -> bytes:
    return number.to_bytes(8, "little") + sender.to_bytes(4, "little")


@lru_cache(maxsize=1024)  # a site signs by one key
def _signing_key(secret: bytes) -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(secret)


def identity(secret: bytes) -> bytes:
    """The public half of the key by which a site signs."""
    return _signing_key(secret).public_key().public_bytes_raw()


def sign(secret: bytes, text: bytes) -> bytes:
    """A site's signature."""
    return _signing_key(secret).sign(text)


@lru_cache(maxsize=1 << 14)  # the hosts of one process verify the same signatures
def is_signed(public: bytes, text: bytes, signature: bytes) -> bool:
    """Whether it is the signature of who has this key."""
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, text)
    except (InvalidSignature, ValueError):
        return False
    return True


# Shares, as Shamir (1979): a polynomial whose value at 0 is the secret.


def shares(secret: Secret, threshold: int, holders: Iterable[int]) -> dict[int, bytes]:
    """A share for each holder; any `threshold` of them give the secret, fewer nothing at all.

    >>> secret = Secret()
    >>> parts = shares(secret, 2, [0, 1, 5])
    >>> joined({0: parts[0], 5: parts[5]}).data == secret.data
    True
    """
    drawn = [int.from_bytes(os.urandom(48)) % _PRIME for _ in range(threshold - 1)]
    coefficients = [*drawn, int.from_bytes(secret.data)]
    return {holder: _value(coefficients, holder + 1) for holder in holders}


def _value(coefficients: Sequence[int], x: int) -> bytes:
    y = 0
    for coefficient in coefficients:
        y = (y * x + coefficient) % _PRIME
    return y.to_bytes(SHARE)


def joined(parts: Mapping[int, bytes]) -> Secret:
    """The secret of which these are shares."""
    weights = _weights_at_0(tuple(parts))
    value = sum(w * int.from_bytes(y) for w, y in zip(weights, parts.values(), strict=True))
    try:
        return Secret((value % _PRIME).to_bytes(_SECRET))
    except OverflowError:
        raise MessageRefused("the shares of a secret do not fit together") from None


@lru_cache(maxsize=1024)
def _weights_at_0(holders: tuple[int, ...]) -> list[int]:
    weights = []
    for own in holders:
        above, below = 1, 1
        for other in holders:
            if other != own:
                above, below = above * (other + 1) % _PRIME, below * (other - own) % _PRIME
        weights.append(above * pow(below, -1, _PRIME) % _PRIME)
    return weights


def threshold(n: int, strict: bool) -> int:
    """How many of n must agree: more than half, or if `strict` more than two thirds."""
    return (2 * n // 3 if strict else n // 2) + 1


# Who shares masks with whom.


@lru_cache(maxsize=64)
def neighbours(members: tuple[int, ...], seed: bytes) -> dict[int, tuple[int, ...]]:
    """All others, or of many those who are near on a circle in an order drawn from `seed`."""
    if len(members) <= MOST_NEIGHBOURS + 1:
        return {i: tuple(j for j in members if j != i) for i in members}
    circle = sorted(members, key=lambda i: digest(seed, str(i)))
    n, near = len(circle), range(1, MOST_NEIGHBOURS // 2 + 1)
    around = {
        i: sorted(circle[(place + side * step) % n] for side in (-1, 1) for step in near)
        for place, i in enumerate(circle)
    }
    return {i: tuple(others) for i, others in around.items()}


# Numbers in the ring.


def sketch(seed: bytes, *vectors: Words) -> tuple[Words, ...]:
    """CHECK sums of each vector's words, with factors that nobody knew before the seed.

    The sketch of a sum is the sum of sketches. Where the seed is a digest of one vector, another
    of the same sketch is as hard to find as 128 bits are to guess, if both have room: differences
    of words are then no multiples of 2^63, and one of 2^62 is missed by a factor in four.
    """
    key = derived(seed, b"sketch")
    length, columns = len(vectors[0]), np.stack(vectors, axis=1)
    sums = np.zeros((CHECK, len(vectors)), np.uint64)
    for number, start in enumerate(range(0, length, _SKETCHED)):
        block = columns[start : start + _SKETCHED]
        factors = stream(derived(key, number.to_bytes(8, "little")), CHECK * len(block))
        sums = sums + factors.reshape(CHECK, len(block)) @ block
    return tuple(sums[:, i].copy() for i in range(len(vectors)))


def has_room(words: Words) -> bool:
    """Whether no word has wrapped: the sum of summands that fit is no larger."""
    return bool(np.all(np.abs(words.view(np.int64).astype(float)) <= 2.0**_BITS))


def _is_exact(field: Field) -> bool:
    return field.type is int or field.dtype_kinds == "iu" or Whole in field.checks


def shapes_of(message: Message) -> str:
    """The shapes of a message's fields, in order; [] for a scalar."""
    fields = fields_of(type(message))
    return json.dumps([list(np.shape(getattr(message, field.name))) for field in fields])


def read_shapes(text: str, message_type: type[Message]) -> list[tuple[int, ...]]:
    """The shapes that a party tells of its summand."""
    try:
        shapes = [tuple(shape) for shape in json.loads(text)]
        whole = all(type(size) is int and size >= 0 for shape in shapes for size in shape)
    except (ValueError, TypeError):
        whole = False
    if not whole or len(shapes) != len(fields_of(message_type)):
        raise MessageRefused("the shapes of its summand are none")
    return shapes


def exponents_of(message: Message, key: bytes) -> NDArray[np.int64]:
    """For each field of floats a power of two above all its numbers, rounded up; 0 for others.

    By how much hangs on the numbers and on the site's `key`. Rounded alone, whoever may scale a
    question (by gamma, say) would find where the power moves, and have the largest number of one
    party's summand to as many digits as it asks questions. Of what goes with a high power of a
    distance the same digits would be more digits of the distance.
    """
    fields, coarse = fields_of(type(message)), COARSE * type(message).steepness
    values = ((field, getattr(message, field.name)) for field in fields)
    return np.array([_exponent(field, value, key, coarse) for field, value in values])


def _exponent(field: Field, value: Any, key: bytes, coarse: int) -> int:
    if _is_exact(field):
        return 0
    values = np.ascontiguousarray(value, dtype=float)
    largest = float(np.abs(values).max(initial=0.0))
    if not largest:
        return _SMALLEST
    drawn = hashlib.blake2b(values.data, digest_size=8, key=key, person=_ROUNDED_UP)
    drawn.update(field.name.encode())
    share = int.from_bytes(drawn.digest()) / 2**64
    exponent = coarse * math.ceil(math.log2(largest) / coarse + share)
    exponent += coarse * (math.ldexp(largest, -exponent) > 1)  # by the rounding of a logarithm
    return max(exponent, _SMALLEST)


def are_exponents(exponents: Any) -> bool:
    """Whether numbers of a summand can be as large as these exponents say."""
    return bool(np.all(exponents >= _SMALLEST) and np.all(exponents <= _LARGEST))


def to_words(message: Message, exponents: Sequence[int], n_parties: int) -> Words:
    """A summand of one of `n_parties` as words; the last one counts the summands.

    Refused rather than wrapped, if it does not fit.
    """
    words, room = [], _BITS - _log2(n_parties)
    for field, exponent in zip(fields_of(type(message)), exponents, strict=True):
        values = np.asarray(getattr(message, field.name)).ravel()
        if _is_exact(field):
            limit, digits = 1 << room, [values.astype(np.int64)]
            fits = not values.size or (int(values.max()) <= limit and int(values.min()) >= -limit)
        else:
            with np.errstate(over="ignore"):
                scaled = np.ldexp(values.astype(float), room - int(exponent))
            fits = bool(np.all(np.abs(scaled) <= 2.0**room))
            digits = _digits(scaled if fits else np.zeros(0), room, _words_each(field))
        if not fits:
            raise StepRefused(
                f"{type(message).__name__}.{field.name} is larger than the scale of the sum: it "
                f"would wrap"
            )
        words += digits
    return np.concatenate([*words, [1]]).astype(np.int64).view(np.uint64)


def _words_each(field: Field) -> int:
    return WIDE if field.is_wide and not _is_exact(field) else 1


def _digits(scaled: NDArray[np.float64], room: int, n: int) -> list[NDArray[np.int64]]:
    """Whole numbers, and `n` - 1 times what is left of them in units 2^-room as large."""
    digits = []
    for _ in range(n):
        whole = np.rint(scaled)
        digits.append(whole.astype(np.int64))
        scaled = np.ldexp(scaled - whole, room)
    return digits


def from_words(
    message_type: type[M],
    words: Words,
    shapes: Sequence[tuple[int, ...]],
    exponents: Sequence[int],
    n_parties: int,
) -> M:
    """The sum that words stand for; of what is wrong with it nobody can be blamed."""
    numbers, values, start = words.view(np.int64), dict[str, Any](), 0
    room = _BITS - _log2(n_parties)
    for field, shape, exponent in zip(fields_of(message_type), shapes, exponents, strict=True):
        n_words = _words_each(field)
        digits = numbers[start : start + n_words * math.prod(shape)].reshape(n_words, *shape)
        start += digits.size
        own = digits[0]
        if not _is_exact(field):
            units = [int(exponent) - room * (i + 1) for i in range(n_words)]
            # The smallest first, or they are lost one by one.
            parts = [np.ldexp(d.astype(float), u) for d, u in zip(digits, units, strict=True)]
            own = np.asarray(sum(reversed(parts)))
        values[field.name] = own if field.is_array else own.item()
    total = message_type(**values)
    check(total)
    return total


def units_of(
    message_type: type[Message], exponents: Sequence[int], n_parties: int
) -> dict[str, float]:
    """What each field of floats is counted in: every summand is rounded to a multiple of it."""
    room = _BITS - _log2(n_parties)
    fields = zip(fields_of(message_type), exponents, strict=True)
    floats = [(field, int(own)) for field, own in fields if not _is_exact(field)]
    return {f.name: math.ldexp(1.0, own - room * _words_each(f)) for f, own in floats}


def count_words(message_type: type[Message], shapes: Sequence[tuple[int, ...]]) -> int:
    """How many words a summand of these shapes takes."""
    fields = zip(fields_of(message_type), shapes, strict=True)
    return sum(_words_each(field) * math.prod(shape) for field, shape in fields) + 1


def count_floats(message_type: type[Message], shapes: Sequence[tuple[int, ...]]) -> int:
    """Elements of arrays of floats, as they are counted in plain messages."""
    fields = zip(fields_of(message_type), shapes, strict=True)
    return sum(math.prod(shape) for field, shape in fields if "f" in field.dtype_kinds)


def summed_floats(summand: Message) -> int:
    """Floats of a summand, as both sides of a masked sum count them."""
    return count_floats(type(summand), read_shapes(shapes_of(summand), type(summand)))


def _log2(n: int) -> int:
    return (n - 1).bit_length()
