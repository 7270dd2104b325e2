"""Levels of categories as numbers: one rule for words in files, at every party and at transform.

A matrix of floats holds a level as its code: a number is its own, a word is 2^52 and a hash of it,
which no number in use comes near. The 48 bits of a level's `key` are the same wherever it is met,
so that parties agree on levels without a table of names. A gap is a level like any other.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eigenmesh.errors import InputError

KEY_BITS = 48
_WORD = 1 << 52  # codes from here on are of words; floats hold whole numbers up to 2^53
_LARGEST_NUMBER = float(1 << 51)

Keys = NDArray[np.int64]


def code_of(cell: Any) -> float:
    """The code of one cell: of a number itself, if it is written as numbers are.

    >>> code_of("7"), code_of("7.0"), code_of(True)
    (7.0, 7.0, 1.0)
    >>> code_of("007") == code_of("7"), code_of("ward A") == code_of(" ward A ")
    (False, True)
    """
    if isinstance(cell, bool | np.bool_ | int | float | np.integer | np.floating):
        return _code_of_number(float(cell))
    text = "" if cell is None else str(cell).strip()
    number = _as_number(text)
    if number is not None:
        return _code_of_number(number)
    return float(_WORD + _key(text, text or "missing"))


def _as_number(text: str) -> float | None:
    """What a text says if it is a number and no code that looks like one (007, 1e5, +3)."""
    digits = text.removeprefix("-")
    whole, point, fraction = digits.partition(".")
    plain = whole.isdecimal() and whole.isascii() and (whole == "0" or whole[0] != "0")
    if point:
        plain = plain and fraction.isdecimal() and fraction.isascii()
    return float(text) if plain and abs(float(text)) < _LARGEST_NUMBER else None


def _code_of_number(number: float) -> float:
    if np.isnan(number):
        return code_of("")
    if abs(number) >= _LARGEST_NUMBER:
        raise InputError(f"a category has the number {number:g}; numbers below 2^51 are expected")
    return number + 0.0  # -0 is 0


def codes_of(cells: Iterable[Any]) -> NDArray[np.float64]:
    """The codes of a column; two different words of one code are refused, which never happens."""
    own = list(cells)
    code = {cell: code_of(cell) for cell in dict.fromkeys(own)}
    words = {
        str(cell).strip(): at for cell, at in code.items() if at >= _WORD and not _is_gap(cell)
    }
    if len(set(words.values())) < len(words):
        raise InputError("two levels of a category have one hash; rename one of them")
    return np.array([code[cell] for cell in own], dtype=np.float64)


def _is_gap(cell: Any) -> bool:
    return cell is None or cell != cell


def keys_of(codes: NDArray[Any]) -> Keys:
    """The keys of a column of codes; of NaN that of a gap.

    >>> keys_of(np.array([7.0, np.nan, code_of("a")])).tolist() == [
    ...     keys_of(np.array([code_of(cell)]))[0] for cell in ("7", "", "a")
    ... ]
    True
    """
    unlike, places = np.unique(np.asarray(codes, dtype=np.float64), return_inverse=True)
    return np.array([_key_of(code) for code in unlike.tolist()], dtype=np.int64)[places]


def _key_of(code: float) -> int:
    code = code_of("") if np.isnan(code) else code
    return int(code) - _WORD if code >= _WORD else _key(repr(code + 0.0), f"{code:.15g}")


def _key(text: str, word: str) -> int:
    data = text.encode("utf-8", "surrogatepass")
    key = int.from_bytes(blake2b(data, digest_size=KEY_BITS // 8).digest(), "little")
    if len(_met) < _MOST_MET:
        _met.setdefault(key, word)
    return key


# Words that this process has met, for whoever reads what came of them; they travel nowhere.
_met: dict[int, str] = {}
_MOST_MET = 10_000


def word_of(key: int) -> str:
    """The level of a key, if this process has met it, else the key.

    >>> word_of(int(keys_of(np.array([code_of("ward A")]))[0])), word_of(5)
    ('ward A', 'level 000000000005')
    """
    return _met.get(key, f"level {key:012x}")
