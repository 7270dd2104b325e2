"""What a site's owner says of its data: `site.toml`.

::

    name = "north"
    data = "ward.csv"            # or several files of rows; a relative path begins at this folder
    split = "rows"               # "rows": other samples than the others'; "columns": the same ones
    id_column = "patient"        # names samples; it is no feature and never leaves
    columns = ["age", "bmi"]     # features, in this order; all that is left if not said
    categories = ["ward"]        # features that hold levels, as words or numbers
    allow_missing = true         # gaps in features are let in, for fits that fill them
    targets = ["outcome"]        # what a regression predicts; no feature
    weights = "weight"           # of the rows; no feature

    [peers]                      # public keys of the other sites, as `eigenmesh site check` shows
    south = "5f0c…"
"""

from __future__ import annotations

import json
import tomllib
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Self

from eigenmesh.data.matching import ALIGNMENTS
from eigenmesh.data.partitioned import checked_categories
from eigenmesh.errors import InputError

Column = str | int  # by name, or by place in a file without names


@dataclass(frozen=True)
class SiteSettings:
    """The contents of a `site.toml`.

    Attributes
    ----------
    data : files, relative to the site's folder or absolute; the rows of several are one data set.
    columns : features in their order; None for all that are not ids, targets or weights.
    categories : features that hold levels, for fits whose preparation names them; of rows.
    allow_missing : whether features may lack values, for fits whose preparation fills them.
    align : for columns, "inner" matches samples with the others' by keyed hashes of `id_column`,
        "psi" by private set intersection.
    id_secret_file : for both, where the words lie that all sites key the hashes of ids with.
    peers : public keys of the other sites, 64 digits each.

    Examples
    --------
    >>> print(SiteSettings("north", ("ward.csv",), id_column="patient").to_toml())
    name = "north"
    data = "ward.csv"
    split = "rows"
    id_column = "patient"
    """

    name: str
    data: tuple[str, ...]
    split: str = "rows"
    id_column: str | None = None
    columns: tuple[Column, ...] | None = None
    targets: tuple[Column, ...] = ()
    weights: Column | None = None
    align: str = "strict"
    id_secret_file: str | None = None
    peers: dict[str, str] = field(default_factory=dict)
    categories: tuple[str, ...] = ()
    allow_missing: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.strip():
            raise InputError(f"name is {self.name!r}; the site's name, as all others call it")
        if not self.data or not all(isinstance(file, str) and file for file in self.data):
            raise InputError(f"data is {self.data!r}; the path of a file, or several, is expected")
        for name, value, choices in (
            ("split", self.split, ("rows", "columns")),
            ("align", self.align, ALIGNMENTS),
        ):
            if value not in choices:
                raise InputError(f"{name} is {value!r}; expected {' or '.join(map(repr, choices))}")
        if self.split == "columns" and len(self.data) > 1:
            raise InputError("several files are rows of one data set; split is 'columns'")
        if self.align != "strict" and (self.split == "rows" or self.id_column is None):
            raise InputError(f"align is {self.align!r}: it needs split 'columns' and an id_column")
        self._check_columns()
        checked_categories(self.categories, self.split)
        self.public_keys()

    def _check_columns(self) -> None:
        apart = [*self.targets, *([] if self.weights is None else [self.weights])]
        for column in (*(self.columns or ()), *apart):
            if type(column) not in (str, int):
                raise InputError(
                    f"{column!r} is no column; a name, or a number from 0, is expected"
                )
        twice = {*apart} & {*(self.columns or ()), self.id_column}
        if twice or len({*apart}) < len(apart):
            raise InputError(
                f"{sorted(map(str, twice or apart))} are named twice; a column is an id, a "
                f"feature, a target or a weight, and one of them only"
            )

    def public_keys(self) -> dict[str, bytes]:
        """Of the other sites, by name."""
        keys = {}
        for name, text in self.peers.items():
            try:
                keys[name] = bytes.fromhex(text)
            except (TypeError, ValueError):
                keys[name] = b""
            if len(keys[name]) != 32:
                raise InputError(
                    f"the key of peer {name!r} is {text!r}; the 64 digits that `eigenmesh site "
                    f"check` shows there are expected"
                )
        return keys

    @classmethod
    def from_toml(cls, path: Path) -> Self:
        """The settings in a file."""
        try:
            tree = tomllib.loads(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            words = error.strerror if isinstance(error, OSError) else error
            raise InputError(
                f"the site's settings {str(path)!r} cannot be read: {words}; `eigenmesh site init` "
                f"makes a site's folder"
            ) from None
        names = {own.name for own in fields(cls)}
        if unknown := sorted(tree.keys() - names):
            raise InputError(
                f"{path.name} has {', '.join(map(repr, unknown))}; expected some of "
                f"{', '.join(sorted(names))}"
            )
        if missing := [name for name in ("name", "data") if name not in tree]:
            raise InputError(f"{path.name} lacks {' and '.join(map(repr, missing))}")
        for name in ("data", "columns", "categories", "targets"):
            if name in tree:
                tree[name] = _tuple(tree[name])
        try:
            return cls(**tree)
        except InputError as error:
            raise InputError(f"{path.name}: {error.reason}") from None

    def to_toml(self) -> str:
        """The file; what is as usual is left out."""
        usual = SiteSettings("-", ("-",))
        lines, tables = [], []
        for name, value in asdict(self).items():
            if name != "split" and value == getattr(usual, name):
                continue
            if isinstance(value, dict):
                pairs = [f"{json.dumps(key)} = {json.dumps(own)}" for key, own in value.items()]
                tables += ["", f"[{name}]", *pairs]
            else:
                single = name == "data" and len(value) == 1
                lines.append(f"{name} = {_toml(value[0] if single else value)}")
        return "\n".join([*lines, *tables])


def _tuple(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, list | tuple) else (value,)


def _toml(value: Any) -> str:
    """Strings, numbers and lists of them are written as in JSON."""
    return json.dumps(list(value) if isinstance(value, tuple) else value, ensure_ascii=False)
