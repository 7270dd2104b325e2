"""What the command line's options say, and the estimators they amount to."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

import numpy as np
import typer

from eigenmesh.data import Partitioned
from eigenmesh.data.readers import peek_names, read_words
from eigenmesh.data.table import Table
from eigenmesh.data.text_format import DELIMITERS
from eigenmesh.errors import InputError
from eigenmesh.estimators.preparation import Preparation
from eigenmesh.runtime.policy import Policy

_SIZED = re.compile("(?P<name>.+)=(?P<rows>[1-9][0-9]*)x(?P<columns>[1-9][0-9]*)")

_DATA = (
    "One file a party, or a folder of files of one format: .npy, .npz, .csv, .tsv (or packed, "
    ".csv.gz), .parquet, .feather or .xlsx."
)
Files: TypeAlias = Annotated[list[Path], typer.Argument(help=_DATA, metavar="DATA")]
Data: TypeAlias = Annotated[
    list[Path] | None, typer.Argument(help=_DATA, metavar="DATA", show_default=False)
]
SplitIfTold: TypeAlias = Annotated[
    Literal["columns", "rows"] | None,
    typer.Option(
        help="What the parties hold: other rows, or other columns of the same samples. Told by the "
        "names of the files' columns if left out: the same are rows, others are columns. Of files "
        "without names: rows for clusters, else columns.",
        show_default=False,
    ),
]
Method: TypeAlias = Annotated[
    str,
    typer.Option(
        help="How the parties compute; auto chooses by split, kernel and what may leave a party, "
        "and says why."
    ),
]
Components: TypeAlias = Annotated[
    str,
    typer.Option(help="Components wanted, or a share of the variance to explain, such as 0.9."),
]
Kernel: TypeAlias = Annotated[
    Literal["linear", "rbf", "poly", "laplacian", "cosine", "arc-cosine", "sigmoid"],
    typer.Option(help="The kernel."),
]
Gamma: TypeAlias = Annotated[
    str | None,
    typer.Option(
        help="Of the kernel: a number, scale, median or mean-distance; 1/(number of columns) if "
        "left out. All but a number are found across the parties without pooling."
    ),
]
Degree: TypeAlias = Annotated[float, typer.Option(help="For poly: the degree.")]
Coef0: TypeAlias = Annotated[float, typer.Option(help="For poly: what is added before the power.")]
Landmarks: TypeAlias = Annotated[
    str,
    typer.Option(
        help="For rows: auto, centroids (no row leaves), diskpca, uniform, leverage or rpcholesky."
    ),
]
LandmarkCount: TypeAlias = Annotated[
    int | None, typer.Option(help="For rows: landmarks in all; more cost more and err less.")
]
Secure: TypeAlias = Annotated[
    bool,
    typer.Option(
        help="Mask every sum, so that nobody sees what a single party adds; rows of parties of any "
        "size then count."
    ),
]
SmallParties: TypeAlias = Annotated[
    Literal["leave-out", "reveal"],
    typer.Option(
        help="For rows without --secure: go on without parties of fewer than 5 rows, which their "
        "sums would tell, and name them; or take them, by which their rows can be told."
    ),
]
Accuracy: TypeAlias = Annotated[
    float,
    typer.Option(
        help="The largest share of an eigenvalue that landmarks may miss: unless --n-landmarks is "
        "given they double while it is more, and a warning says what is missing in the end."
    ),
]
Epsilon: TypeAlias = Annotated[
    float | None,
    typer.Option(
        help="Differential privacy of each row, for rows and --kernel rbf, laplacian or cosine "
        "with --gamma a number: noise is added where the rows are. 1, say; none if left out."
    ),
]
Delta: TypeAlias = Annotated[
    float, typer.Option(help="With --epsilon: the chance that is left, far below 1/rows.")
]
Topology: TypeAlias = Annotated[
    str | None,
    typer.Option(
        help="Parties without a coordinator: star, full, ring, grid, random-regular, or lattice:4 "
        "for four neighbours each. With a coordinator if left out."
    ),
]
LocalRank: TypeAlias = Annotated[
    int | None,
    typer.Option(
        help="For columns and one-shot: eigenpairs that each party sends. "
        "Components + max(5, components) if left out."
    ),
]
Fusion: TypeAlias = Annotated[
    Literal["product", "distance"],
    typer.Option(help="For one-shot and rbf: multiply the parties' kernels, or add distances."),
]
Seed: TypeAlias = Annotated[int, typer.Option(help="Seed of all draws.")]
Names: TypeAlias = Annotated[
    str | None,
    typer.Option(
        help="The parties' names, in the order of the files: a,b,c; by default the files'."
    ),
]
Align: TypeAlias = Annotated[
    Literal["strict", "inner", "psi"],
    typer.Option(
        help="For columns: inner matches samples by the files' id columns, whatever their order, "
        "and uses those that all parties have; psi does so by private set intersection, so that "
        "the coordinator learns none of it; strict expects the same samples in the same order."
    ),
]
IdColumn: TypeAlias = Annotated[
    str | None,
    typer.Option(
        help="The files' column that has the samples' ids: it is no feature, and stands beside "
        "scores and clusters. A column id or sample_id if left out.",
        show_default=False,
    ),
]
Delimiter: TypeAlias = Annotated[
    str | None,
    typer.Option(
        help="Of text files: comma, semicolon or tab. Told from each file if left out.",
        show_default=False,
    ),
]
Decimal: TypeAlias = Annotated[
    str | None,
    typer.Option(
        help="Of text files: the decimal sign, . or , . Told from each file if left out.",
        show_default=False,
    ),
]
Columns: TypeAlias = Annotated[
    str | None,
    typer.Option(
        help="For rows: the columns that are features, as a,b,c; what else the files hold (text, "
        "dates) is not looked at. All but the ids if left out.",
        show_default=False,
    ),
]
Standardize: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--standardize",
        help="Subtract each column's mean and divide by its deviation: of rows over all parties, "
        "of columns at their owner.",
    ),
]
FillMissing: TypeAlias = Annotated[
    float | None,
    typer.Option(
        help="Fill missing values of columns of which at most this share is missing, such as 0.2. "
        "None may be missing if left out.",
        show_default=False,
    ),
]
FillWith: TypeAlias = Annotated[
    Literal["mean", "median"],
    typer.Option(help="For rows: what fills missing values: the column's, over all parties."),
]
Categories: TypeAlias = Annotated[
    str | None,
    typer.Option(
        help="For rows: columns that hold levels, as a,b,c: each level becomes a column.",
        show_default=False,
    ),
]
MinRows: TypeAlias = Annotated[
    int,
    typer.Option(help="For rows: levels of fewer rows over all parties share one column, other."),
]
Log: TypeAlias = Annotated[
    str | None,
    typer.Option(help="For rows: columns whose logarithm is taken, as a,b,c.", show_default=False),
]
Page: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--report",
        help="Write a page about the fit, as .html: one file that needs no network. It shows the "
        "scores of the rows in DATA; of sites elsewhere it shows none.",
        show_default=False,
    ),
]
LabelColumn: TypeAlias = Annotated[
    str | None,
    typer.Option(
        help="For rows: a column of the files that is no feature, by which they may be coloured on "
        "the page of --report.",
        show_default=False,
    ),
]
Allow: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(help="A kind that may leave a party; may be repeated. Every kind if left out."),
]
AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


@dataclass(frozen=True)
class TextOptions:
    """How files are read."""

    id_column: IdColumn = None
    delimiter: Delimiter = None
    decimal: Decimal = None

    def words(self) -> dict[str, Any]:
        """What a Partitioned is told of its files.

        >>> TextOptions(delimiter="semicolon").words()["delimiter"]
        ';'
        """
        return {"id_column": self.id_column, **self.text_words()}

    def text_words(self) -> dict[str, Any]:
        """The signs alone, as readers take them."""
        signs = {name: sign for sign, name in DELIMITERS.items()}
        sign = None if self.delimiter is None else signs.get(self.delimiter, self.delimiter)
        return {"delimiter": sign, "decimal": self.decimal}


@dataclass(frozen=True)
class RowFileOptions(TextOptions):
    """How files of rows become parties."""

    names: Names = None
    columns: Columns = None


@dataclass(frozen=True)
class FileOptions(RowFileOptions):
    """How files become parties."""

    align: Align = "strict"

    def words(self) -> dict[str, Any]:
        """What a Partitioned is told of its files."""
        return {**super().words(), "align": self.align}


@dataclass(frozen=True)
class KernelOptions:
    """The kernel."""

    kernel: Kernel = "linear"
    gamma: Gamma = None
    degree: Degree = 3
    coef0: Coef0 = 1

    def kernel_words(self) -> dict[str, Any]:
        """What an estimator is told of the kernel."""
        return kernel_words(self.kernel, self.gamma, self.degree, self.coef0)


@dataclass(frozen=True)
class MethodOptions:
    """The way to go."""

    method: Method = "auto"
    landmarks: Landmarks = "auto"
    n_landmarks: LandmarkCount = None
    accuracy: Accuracy = 0.01
    epsilon: Epsilon = None
    delta: Delta = 1e-6
    topology: Topology = None

    def method_words(self) -> dict[str, Any]:
        """What a front door is told of the way to go."""
        own = {field.name: getattr(self, field.name) for field in fields(MethodOptions)}
        return {**own, "topology": graph(self.topology)}


@dataclass(frozen=True)
class PreparationOptions:
    """What is done to rows first."""

    standardize: Standardize = False
    fill_missing: FillMissing = None
    log: Log = None
    fill_with: FillWith = "mean"
    categories: Categories = None
    min_rows: MinRows = 5

    def preparation(self) -> Preparation | None:
        """The preparation; None if nothing is done.

        >>> PreparationOptions(standardize=True, log="age,dose").preparation().log
        ('age', 'dose')
        """
        whole = (self.fill_missing, self.log, self.categories) == (None, None, None)
        if whole and not self.standardize:
            return None
        return Preparation(
            self.standardize,
            self.fill_missing,
            log=listed(self.log) or (),
            fill_with=self.fill_with,
            categories=listed(self.categories) or (),
            min_rows=self.min_rows,
        )

    def column_words(self) -> dict[str, Any]:
        """What is done to columns, at their owners; `InputError` for what is for rows alone.

        >>> PreparationOptions(standardize=True).column_words()
        {'standardize': True, 'fill_missing': None}
        """
        of_rows = {"log": self.log, "categories": self.categories}
        options = [name for name, value in of_rows.items() if value is not None]
        options += ["fill-with"] if self.fill_with != "mean" else []
        if options:
            raise InputError(
                f"--{options[0]} is for rows, and the files hold columns; let each owner do that "
                f"to its own file"
            )
        return {"standardize": self.standardize, "fill_missing": self.fill_missing}

    def choice_words(self, features: list[str] | None) -> dict[str, Any]:
        """What a Partitioned is told of the columns that are features."""
        return {
            "features": features,
            "categories": listed(self.categories) or (),
            "allow_missing": self.fill_missing is not None,
        }


@dataclass(frozen=True)
class DisclosureOptions:
    """What may leave a party, and of whom."""

    allow: Allow = None
    secure: Secure = False
    small_parties: SmallParties = "leave-out"


@dataclass(frozen=True)
class FitOptions(DisclosureOptions, PreparationOptions, MethodOptions, KernelOptions):
    """What every fit takes, whichever front door it goes by."""

    def words(self, seed: int) -> dict[str, Any]:
        """What a front door is told."""
        return {
            **self.kernel_words(),
            **self.method_words(),
            "small_parties": self.small_parties,
            "preparation": self.preparation(),
            "random_state": seed,
        }


@dataclass(frozen=True)
class ClusterOptions(FitOptions):
    """The same of a clustering, whose kernel is another if none is named."""

    kernel: Kernel = "rbf"


@dataclass(frozen=True)
class OneShotOptions:
    """What components of columns take besides."""

    local_rank: LocalRank = None
    fusion: Fusion = "product"


def parties(
    data: list[Path],
    split: str,
    names: str | None,
    allow: list[str] | None,
    **how: Any,
) -> Partitioned:
    """The files as parties, under one policy; `how` is for `Partitioned`."""
    policy = _policy(allow)
    party_names = listed(names) or _stems(data)
    rows, columns = (data, None) if split == "rows" else (None, data)
    return Partitioned(rows=rows, columns=columns, names=party_names, policies=policy, **how)


def split_of(
    split: str | None, data: list[Path], usual: str, id_column: str | None, **text: Any
) -> str:
    """What the files hold, as stated or by their names of columns, or ids; a doubt is an error."""
    if split is not None or len(data) < 2:
        return split or usual
    try:
        own = [peek_names(path, id_column, **text) for path in data]
    except InputError:  # which the party that cannot open its file will say
        return usual
    names = [set(columns) for columns in own if columns is not None and not _counts(columns)]
    if len(names) < len(data):
        return usual
    common, everything = set.intersection(*names), set.union(*names)
    if common == everything:
        return "rows"
    if sum(map(len, names)) == len(everything) or _share_ids(data, id_column, **text):
        return "columns"
    few = ", ".join(map(repr, sorted(everything - common)[:5]))
    raise InputError(
        f"the files share some names of columns and not others (not in all: {few}), so that it is "
        f"not certain what they hold; add --split rows, with --columns for those that all have, or "
        f"--split columns; `eigenmesh check` lists the differences"
    )


def _share_ids(data: list[Path], id_column: str | None, **text: Any) -> bool:
    """Whether most ids of the smallest file are in all."""
    try:
        ids = [set(read_words(path, id_column, **text).tolist()) for path in data]
    except InputError:  # no ids, or a file that its party will say more of
        return False
    return all(ids) and 2 * len(set.intersection(*ids)) >= min(map(len, ids))


def _counts(columns: Sequence[str]) -> bool:
    """Whether these are no names, but pandas' 0, 1, 2, …"""
    return list(columns) == [str(i) for i in range(len(columns))]


def sized_parties(
    data: list[Path],
    sizes: list[str],
    split: str,
    names: str | None,
    allow: list[str] | None = None,
) -> Partitioned:
    """The files as parties; or parties of whom only the sizes are known.

    >>> sized_parties([], ["north=120x5", "south=90x5"], "rows", None).shapes
    ((120, 5), (90, 5))
    """
    if bool(data) == bool(sizes):
        raise InputError("DATA or --party NAME=ROWSxCOLUMNS is expected, one of them for all")
    if data:
        return parties(data, split, names, allow)
    matched = [_SIZED.fullmatch(text) for text in sizes]
    if names is not None or None in matched:
        wrong = next((t for t, match in zip(sizes, matched, strict=True) if match is None), "")
        raise InputError(f"--party {wrong}: NAME=ROWSxCOLUMNS is expected, and no --names")
    matches = [match for match in matched if match is not None]
    shapes = [(int(match["rows"]), int(match["columns"])) for match in matches]
    tables = [Table(np.broadcast_to(np.float64(0), shape)) for shape in shapes]
    which: Literal["rows", "columns"] = "rows" if split == "rows" else "columns"
    own_names = [match["name"] for match in matches]
    return Partitioned.from_tables(which, tables, names=own_names, policies=_policy(allow))


def _policy(allow: list[str] | None) -> Policy | None:
    kinds = [kind.strip() for entry in allow or () for kind in entry.split(",")]
    return Policy(allow=kinds) if allow else None


def _stems(data: list[Path]) -> list[str] | None:
    """Files name their parties, unless two of them have the same name."""
    stems = [path.name.split(".")[0] if path.suffix == ".gz" else path.stem for path in data]
    return stems if len(set(stems)) == len(stems) else None


def owners(data: list[Path], parties: Sequence[str]) -> list[str]:
    """Whose a file is, by its name: a.npy and a-new.npy are party a's; if none tells, in order.

    >>> owners([Path("b-new.npy"), Path("a.npy")], ["a", "b"])
    ['b', 'a']
    """
    own = [_owner(path.stem, parties) for path in data]
    if set(own) == set(parties):
        return [name for name in own if name is not None]
    if any(name is not None for name in own):
        files = ", ".join(path.name for path in data)
        raise InputError(
            f"the files {files} are not all named after a party of the model, one each: "
            f"{', '.join(parties)}; say with --names whose they are"
        )
    return list(parties)


def _owner(stem: str, parties: Sequence[str]) -> str | None:
    """The party that a file is named after, with or without more words behind."""
    fits = [p for p in parties if stem.startswith(p) and not stem[len(p) :][:1].isalnum()]
    return max(fits, key=len, default=None)


def listed(names: str | None) -> list[str] | None:
    """The names in a,b,c."""
    return None if names is None else [name.strip() for name in names.split(",")]


def components(text: str) -> int | float:
    """A number of components, or a share of the variance.

    >>> components("3"), components("0.9")
    (3, 0.9)
    """
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        raise InputError(
            f"--components {text}: a whole number, or a share such as 0.9, is expected"
        ) from None


def graph(topology: str | None) -> Any:
    """The topology that an option names.

    >>> graph("ring"), graph("lattice:4")
    ('ring', ('lattice', 4))
    """
    name, colon, neighbours = (topology or "").partition(":")
    if not colon:
        return topology
    if name == "lattice" and neighbours.isdecimal():
        return (name, int(neighbours))
    raise InputError(
        f"--topology {topology}: star, full, ring, grid, random-regular or lattice:4 is expected"
    )


def bandwidth(kernel: str, gamma: str | None) -> float | str | None:
    """Gamma as a number, or the rule that finds it."""
    if gamma is not None and kernel in ("linear", "cosine", "arc-cosine"):
        raise InputError(
            f"--gamma {gamma} is for --kernel rbf, poly, laplacian and sigmoid; the {kernel} "
            f"kernel has no gamma"
        )
    try:
        return None if gamma is None else float(gamma)
    except ValueError:
        return gamma  # the estimator knows the rules


def kernel_words(kernel: str, gamma: str | None, degree: float, coef0: float) -> dict[str, Any]:
    """What an estimator is told of the kernel."""
    bend = int(degree) if degree == int(degree) else degree
    return {"kernel": kernel, "gamma": bandwidth(kernel, gamma), "degree": bend, "coef0": coef0}
