"""What the command line's options say, and the estimators they amount to."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

import typer

from eigenmesh.data import Partitioned
from eigenmesh.errors import InputError
from eigenmesh.federation.policy import Policy

Data: TypeAlias = Annotated[
    list[Path],
    typer.Argument(help="One file a party: .npy, .npz, .csv or .parquet.", metavar="DATA"),
]
Split: TypeAlias = Annotated[
    Literal["columns", "rows"],
    typer.Option(help="What the parties hold: other columns of the same samples, or other rows."),
]
SplitIfTold: TypeAlias = Annotated[
    Literal["columns", "rows"] | None,
    typer.Option(help="As for fit and cluster: columns if left out, rows with --clusters."),
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
    Literal["strict", "inner"],
    typer.Option(
        help="For columns: inner matches samples by the files' id columns, whatever their order, "
        "and uses those that all parties have; strict expects the same samples in the same order."
    ),
]
Allow: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(help="A kind that may leave a party; may be repeated. Every kind if left out."),
]
AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


def parties(
    data: list[Path],
    split: str,
    names: str | None,
    allow: list[str] | None,
    align: str = "strict",
) -> Partitioned:
    """The files as parties, under one policy."""
    kinds = [kind.strip() for entry in allow or () for kind in entry.split(",")]
    policy = Policy(allow=kinds) if allow else None
    named = listed(names) or _stems(data)
    if split == "rows":
        return Partitioned(rows=data, names=named, policies=policy, align=align)
    return Partitioned(columns=data, names=named, policies=policy, align=align)


def _stems(data: list[Path]) -> list[str] | None:
    """Files name their parties, unless two of them have the same name."""
    stems = [path.stem for path in data]
    return stems if len(set(stems)) == len(stems) else None


def listed(names: str | None) -> list[str] | None:
    """The names in a,b,c."""
    return None if names is None else [name.strip() for name in names.split(",")]


def components(wanted: str) -> int | float:
    """A number of components, or a share of the variance.

    >>> components("3"), components("0.9")
    (3, 0.9)
    """
    try:
        return int(wanted)
    except ValueError:
        pass
    try:
        return float(wanted)
    except ValueError:
        raise InputError(
            f"--components {wanted}: a whole number, or a share such as 0.9, is expected"
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


def landmark_words(
    method: str, landmarks: str, n_landmarks: int | None, seed: int
) -> dict[str, Any]:
    """What a front door is told of the way to go."""
    return {
        "method": method,
        "landmarks": landmarks,
        "n_landmarks": n_landmarks,
        "random_state": seed,
    }
