"""Whether the parties' files fit together, and what each has in it; every finding at once.

Each file is looked at by itself. Of each other the parties learn the names and kinds of their
columns, how many ids are in two files (by keyed hashes), and which columns differ by a factor,
from means of at least `GROUP` rows each. Where all files lie on one machine, nothing leaves it.
"""

from __future__ import annotations

import re
import secrets
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eigenmesh.data.check_file import FileFacts, Finding, check_file, rows_have, take_for_ids
from eigenmesh.data.matching import keyed_hashes
from eigenmesh.data.text_format import TextFormat
from eigenmesh.errors import EigenmeshError
from eigenmesh.numerics.arrays import Doubles
from eigenmesh.numerics.unit_factors import unit_factors

LEARNT = (
    "of each other, parties learn the names and kinds of columns, how many ids two files share "
    "(keyed hashes), and which columns differ by a factor (means of 5 rows or more)"
)
GROUP = 5  # rows behind any mean
_MOST_GROUPS = 200
_NO_ID = b""


def check_files(
    paths: Sequence[Path], id_column: str | None = None, stated: TextFormat | None = None
) -> list[Finding]:
    """All findings in all files, file by file."""
    looked_at = [
        _looked_at(file, name, party, id_column, stated)
        for party, (path, party_name) in enumerate(zip(paths, _names(paths), strict=True))
        for file, name in _files_of(path, party_name)
    ]
    files = [facts for facts in looked_at if facts.columns and facts.n_rows]
    hold_rows = len(files) > 1 and over_rows([facts.columns for facts in files])
    if hold_rows:
        _share_id_columns(files)
    _take_suspects_for_ids(files)
    if len(files) > 1:
        _look_for_headers(files)
        if hold_rows:
            _compare_columns(files)
            _compare_units(files)
            _look_for_ids_in_two(files)
        else:
            for party in {facts.party for facts in files}:
                _compare_columns([facts for facts in files if facts.party == party])
            _look_for_ids_that_lack(files)
    return [finding for facts in looked_at for finding in facts.findings]


def over_rows(columns: Sequence[Sequence[str]]) -> bool:
    """Whether files hold rows, by the names of their columns: most of them are in all files."""
    common = set.intersection(*(set(own) for own in columns))
    return 2 * len(common) >= min(len(set(own)) for own in columns)


def _names(paths: Sequence[Path]) -> list[str]:
    names = [path.name for path in paths]
    return names if len(set(names)) == len(names) else [str(path) for path in paths]


def _files_of(path: Path, name: str) -> list[tuple[Path, str]]:
    """A party's file, or those of its folder, with what they are called."""
    from eigenmesh.data.readers import files_of

    try:
        files = files_of(path)
    except EigenmeshError:  # which is said again where it is opened
        return [(path, name)]
    return [(file, f"{name}/{file.name}" if path.is_dir() else name) for file in files]


def _looked_at(
    path: Path, name: str, party: int, id_column: str | None, stated: TextFormat | None
) -> FileFacts:
    from eigenmesh.data.readers import checked_table_file

    try:
        with checked_table_file(path) as file:
            facts = check_file(file, name, id_column, stated or TextFormat())
    except EigenmeshError as error:
        words, _, remedy = str(error).partition("; ")
        words = words.removeprefix(f"file {path.name!r} ")
        lines = tuple(map(int, re.findall(r"\bline (\d+)", words)))
        return FileFacts(name, findings=[Finding(name, "unreadable", None, lines, words, remedy)])
    facts.party = party
    return facts


def _look_for_headers(files: Sequence[FileFacts]) -> None:
    """Files without names among others of as many columns, which are rows of the same."""
    named = {len(facts.columns): facts for facts in files if facts.has_names}
    for facts in files:
        other = named.get(len(facts.columns))
        if not facts.has_names and other is not None:
            words = f"has no names of columns, which {other.name} has: they go by their places"
            _of_header(facts, "name", None, words, "write the columns' names into its first line")


def _compare_columns(files: Sequence[FileFacts]) -> None:
    named = [facts for facts in files if facts.has_names]
    if len(named) < 2:
        return
    usual = _usual_names(named)
    for facts in named:
        missing = [name for name in usual if name not in facts.columns]
        new = [name for name in facts.columns if name not in usual]
        for name in list(missing):
            twin = next((own for own in new if _plain(own) == _plain(name)), None)
            if twin is not None:
                missing.remove(name)
                new.remove(twin)
                words = f"seems to be what other files call {name!r}"
                _of_header(facts, "name", twin, words, f"call it {name!r}")
        for name in missing:
            words, remedy = "is missing; other files have it", "add it, or leave it out elsewhere"
            _of_header(facts, "name", name, words, remedy)
        for name in new:
            words, remedy = "is not in the other files", "leave it out, or add it elsewhere"
            _of_header(facts, "name", name, words, remedy)
    _compare_order(named)


def _usual_names(named: Sequence[FileFacts]) -> list[str]:
    """The columns that most files have; of two, those of the first."""
    counts = Counter(name for facts in named for name in facts.columns)
    half, first = len(named) / 2, set(named[0].columns)
    return [name for name, n in counts.items() if n > half or (n == half and name in first)]


def _compare_order(named: Sequence[FileFacts]) -> None:
    """Of the columns that all have; most files' order is the usual one."""
    common = set.intersection(*(set(facts.columns) for facts in named))
    orders = [tuple(name for name in facts.columns if name in common) for facts in named]
    usual = Counter(orders).most_common(1)[0][0]
    first = named[orders.index(usual)]
    for facts, order in zip(named, orders, strict=True):
        if order != usual:
            words = f"has its columns in another order than {first.name}"
            _of_header(facts, "order", None, words, "nothing to do: they are matched by name", True)


def _share_id_columns(files: Sequence[FileFacts]) -> None:
    """What is an id in one file is one in all, though a row twice may hide it."""
    suspects = {column for facts in files for column, kind in facts.kinds.items() if kind == "id"}
    for facts in files:
        for column in suspects & set(facts.numbers):
            values = facts.numbers.pop(column)
            facts.kinds[column] = "id"
            if any(column in other.suspects for other in files):
                texts = [f"{value:.0f}" if value == value else "" for value in values]
                facts.suspects[column] = np.array(texts)
            words = "looks like ids in another file, which are no feature"
            facts.add("id", column, [0], words, f"name it: --id-column {column!r}, or leave it out")


def _take_suspects_for_ids(files: Sequence[FileFacts]) -> None:
    """Where no column of ids is named and one looks like it, its ids are compared."""
    columns = {column for facts in files for column in facts.suspects}
    if len(columns) != 1 or any(facts.ids is not None for facts in files):
        return
    (column,) = columns
    for facts in files:
        if column in facts.suspects:
            take_for_ids(facts, column, facts.suspects[column])


def _of_header(
    facts: FileFacts, kind: str, column: str | None, words: str, remedy: str, note: bool = False
) -> None:
    facts.findings.append(Finding(facts.name, kind, column, (1,), words, remedy, note))


def _plain(name: str) -> str:
    return "".join(letter for letter in name.casefold() if letter.isalnum())


def _compare_units(files: Sequence[FileFacts]) -> None:
    common = set.intersection(*(set(facts.numbers) for facts in files))
    columns = [name for name in files[0].numbers if name in common]
    means = {facts.name: _group_means(facts, columns) for facts in files}
    sound = np.all([np.isfinite(own).all(axis=0) for own in means.values()], axis=0)
    columns = [name for name, good in zip(columns, sound, strict=True) if good]
    if not columns:
        return
    by_name: Mapping[str, FileFacts] = {facts.name: facts for facts in files}
    for factor in unit_factors({name: own[:, sound] for name, own in means.items()}):
        words = f"is about {_rounded(factor.factor)} times that of {factor.other}: other units?"
        remedy = "convert it at its party; if parties really differ so much, ignore this"
        column = columns[factor.column]
        _of_header(by_name[factor.party], "units", column, words, remedy)


def _rounded(factor: float) -> str:
    """Two digits, without an exponent where that is shorter: 970, 0.01, 1.2e+06."""
    return f"{float(f'{factor:.2g}'):g}"


def _group_means(facts: FileFacts, columns: Sequence[str]) -> Doubles:
    """Means of rows dealt into groups at random."""
    if not columns:
        return np.empty((0, 0))
    X = np.column_stack([facts.numbers[name] for name in columns])
    n_groups = min(_MOST_GROUPS, len(X) // GROUP)
    if n_groups < 1:
        return np.empty((0, len(columns)))
    dealt = np.array_split(np.random.default_rng(0).permutation(len(X)), n_groups)
    sums = np.array([np.nansum(X[own], axis=0) for own in dealt])
    present = np.array([(~np.isnan(X[own])).sum(axis=0) for own in dealt])
    with np.errstate(invalid="ignore", divide="ignore"):
        means: Doubles = sums / present
    return means


def _look_for_ids_in_two(files: Sequence[FileFacts]) -> None:
    hashes = _hashes(files)
    for one, other in permutations(range(len(files)), 2):
        common = (set(hashes[one] or ()) & set(hashes[other] or ())) - {_NO_ID}
        rows = [row for row, key in enumerate(hashes[one] or ()) if key in common]
        if rows:
            words = f"{rows_have(len(rows))} an id that is in {files[other].name}, too"
            remedy = "make sure that it is another person, or keep one of them"
            files[one].add("id in two files", None, rows, words, remedy)


def _look_for_ids_that_lack(files: Sequence[FileFacts]) -> None:
    hashes = _hashes(files)
    of_parties: dict[int, set[bytes]] = {}
    for facts, own in zip(files, hashes, strict=True):
        if own is not None:
            of_parties.setdefault(facts.party, set()).update(own)
    if len(of_parties) < 2:
        return
    common = set.intersection(*of_parties.values())
    no_matter = common | {_NO_ID}  # a row without an id is another finding
    for facts, own in zip(files, hashes, strict=True):
        rows = [row for row, key in enumerate(own or ()) if key not in no_matter]
        if rows:
            words = f"{rows_have(len(rows))} an id that not all files have"
            facts.add("ids", None, rows, words, "--align inner uses the samples that all have")


def _hashes(files: Sequence[FileFacts]) -> list[list[bytes] | None]:
    """Keyed hashes of the ids, which alone are compared; a row without an id has none."""
    secret = secrets.token_hex(16)

    def hashed(ids: NDArray[Any]) -> list[bytes]:
        keys = keyed_hashes(ids, secret)
        return [_NO_ID if own == "" else key.tobytes() for own, key in zip(ids, keys, strict=True)]

    return [None if facts.ids is None else hashed(facts.ids) for facts in files]
