"""Cutting one data set into parties, for experiments and for transform."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from eigenmesh.data.partitioned import Partitioned, checked_id_column
from eigenmesh.data.readers import read_table
from eigenmesh.data.table import Table, as_matrix, as_table, is_frame, is_sparse
from eigenmesh.errors import InputError

if TYPE_CHECKING:
    from eigenmesh.runtime.policy import Policy

_SLACK = 1e-9  # shares are computed in floats: 2.9999999999 means 3


def split(
    X: Any,
    n_parties: int,
    by: str = "rows",
    law: str = "equal",
    exponent: float = 2.0,
    random_state: Any = None,
    names: Sequence[str] | None = None,
    policies: Policy | Sequence[Policy | None] | None = None,
    allow_missing: bool = False,
    id_column: str | None = None,
) -> Partitioned:
    """Cut X into `n_parties` parties; `allow_missing` takes NaN in X for missing values.

    `id_column` of a DataFrame or file, or else its index, has the sample ids. `names` are the
    parties', and `policies` one for all or one each.

    Rows are dealt out at random, and `order` of the result tells which party got which;
    columns are cut into neighbouring blocks, in order. Sizes are equal, or by law "power"
    proportional to j^-exponent for party j = 1, 2, …, each at least 1.

    >>> X = np.arange(20.0).reshape(10, 2)
    >>> parts = split(X, 3, law="power", exponent=1.0, random_state=0)
    >>> parts.shapes
    ((5, 2), (3, 2), (2, 2))
    >>> bool((X[parts.order[0]] == parts.parts[0]).all())
    True
    """
    if by not in ("rows", "columns"):
        raise InputError(f"by is {by!r}, expected 'rows' or 'columns'")
    table = _whole(X, allow_missing, checked_id_column(id_column))
    n = table.X.shape[0 if by == "rows" else 1]
    sizes = sizes_by_law(n, n_parties, law, exponent, what=by)
    ids = table.sample_ids
    if by == "columns":
        tables = _column_tables(table, sizes)
        own = None if ids is None else [ids] * n_parties
        return Partitioned.from_tables(
            "columns", tables, names=names, policies=policies, sample_ids=own
        )
    order = _deal(sizes, random_state)
    tables = [
        Table(table.X[rows], None if ids is None else np.asarray(ids)[rows], table.feature_names)
        for rows in order
    ]
    return Partitioned.from_tables("rows", tables, names=names, policies=policies, order=order)


def sizes_by_law(
    n: int, n_parties: int, law: str = "equal", exponent: float = 2.0, *, what: str = "rows"
) -> tuple[int, ...]:
    """Sizes of the parties: they sum to n, and each is at least 1.

    >>> sizes_by_law(10, 4)
    (3, 3, 2, 2)
    >>> sizes_by_law(100, 4, "power", 2.0)
    (70, 18, 8, 4)
    """
    _check_parties(n, n_parties, what)
    shares = _shares(n, _weights(n_parties, law, exponent))
    sizes = np.floor(shares + _SLACK).astype(int)
    # Largest remainders get the rest; the stable sort favours the first parties.
    by_remainder = np.argsort(sizes - shares, kind="stable")
    sizes[by_remainder[: n - sizes.sum()]] += 1
    return tuple(int(size) for size in sizes)


def feasible_parties(n_samples: int, n_features: int, n_components: int) -> tuple[int, int] | None:
    """Fewest and most parties for which one-shot kernel PCA of columns costs what pooling does.

    The rule of its paper (He, Huang, Lv and Yang, section III): T samples of M features, D
    components each. With T ≥ 2√(M(D + 1)) the work is O(T³) for J parties within
    (T ± √(T² − 4M(D + 1))) / 2(D + 1), as it is with all columns in one place. None where there is
    no such number.

    >>> feasible_parties(n_samples=5000, n_features=10_000, n_components=100)
    (3, 47)
    >>> feasible_parties(n_samples=100, n_features=10_000, n_components=100) is None
    True
    """
    sizes = {"n_samples": n_samples, "n_features": n_features, "n_components": n_components}
    for name, value in sizes.items():
        if value < 1:
            raise InputError(f"{name} is {value}, expected at least 1")
    rest = n_samples**2 - 4 * n_features * (n_components + 1)
    if rest < 0:
        return None
    low, high = (
        (n_samples + sign * np.sqrt(rest)) / (2 * (n_components + 1)) for sign in (-1.0, 1.0)
    )
    fewest = max(int(np.ceil(low - _SLACK)), 1)
    most = min(int(np.floor(high + _SLACK)), n_features)
    return (fewest, most) if fewest <= most else None


def split_columns(X: Any, widths: Sequence[int]) -> list[Any]:
    """Cut the columns of a plain array, sparse matrix or DataFrame into blocks of `widths`.

    >>> [block.shape for block in split_columns(np.ones((2, 5)), [3, 2])]
    [(2, 3), (2, 2)]
    """
    if any(width < 1 for width in widths):
        raise InputError(f"widths are {tuple(widths)}, expected at least one column a party")
    if not (is_frame(X) or is_sparse(X) or isinstance(X, np.ndarray)):
        X = as_matrix(X)
    if X.ndim != 2 or X.shape[1] != sum(widths):
        raise InputError(
            f"X has shape {X.shape}, expected {sum(widths)} columns, {tuple(widths)} by party; "
            "pass all the parties' columns in party order, or Partitioned(columns=...)"
        )
    ends = np.cumsum([0, *widths]).tolist()
    source = X.iloc if is_frame(X) else sp.csr_array(X) if is_sparse(X) else X
    return [source[:, start:stop] for start, stop in pairwise(ends)]


def _whole(X: Any, allow_missing: bool, id_column: str | None) -> Table:
    if isinstance(X, Partitioned):
        raise InputError("X is split already, expected one array; use it as it is")
    if isinstance(X, str | Path):
        table = read_table(X, id_column)
        return Table(as_matrix(table.X, None, allow_missing), table.sample_ids, table.feature_names)
    return as_table(X, None, allow_missing, id_column)


def _column_tables(table: Table, widths: Sequence[int]) -> list[Table]:
    blocks = split_columns(table.X, widths)
    if table.feature_names is None:
        return [Table(block) for block in blocks]
    ends = np.cumsum([0, *widths]).tolist()
    names = [table.feature_names[start:stop] for start, stop in pairwise(ends)]
    return [Table(block, feature_names=own) for block, own in zip(blocks, names, strict=True)]


def _deal(sizes: Sequence[int], random_state: Any) -> list[NDArray[np.intp]]:
    """Random rows for each party, ascending: a memmap is then read front to back."""
    order = _generator(random_state).permutation(sum(sizes))
    return [np.sort(rows) for rows in np.split(order, np.cumsum(sizes)[:-1])]


def _generator(random_state: Any) -> np.random.Generator:
    if isinstance(random_state, np.random.RandomState):  # what scikit-learn users pass
        random_state = int(random_state.randint(2**31))
    try:
        return np.random.default_rng(random_state)
    except (TypeError, ValueError):
        raise InputError(
            f"random_state is {random_state!r}, expected None, a whole number ≥ 0 or a Generator"
        ) from None


def _check_parties(n: int, n_parties: int, what: str) -> None:
    whole = isinstance(n_parties, int | np.integer) and not isinstance(n_parties, bool)
    if not whole or n_parties < 1:
        raise InputError(f"n_parties is {n_parties!r}, expected a whole number of at least 1")
    if n_parties > n:
        raise InputError(
            f"n_parties is {n_parties}, expected at most {n}, the number of {what}, "
            "since every party holds at least one"
        )


def _weights(n_parties: int, law: str, exponent: float) -> NDArray[np.float64]:
    if law == "equal":
        return np.ones(n_parties)
    if law != "power":
        raise InputError(f"law is {law!r}, expected 'equal' or 'power'")
    if not (np.isfinite(exponent) and exponent >= 0):
        raise InputError(f"exponent is {exponent!r}, expected a finite number ≥ 0")
    weights: NDArray[np.float64] = np.arange(1.0, n_parties + 1) ** -float(exponent)
    return weights


def _shares(n: int, weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Shares of n in proportion to the weights, those below 1 lifted to 1."""
    small = np.zeros(len(weights), dtype=bool)
    shares: NDArray[np.float64] = n * weights / weights.sum()
    while (below := ~small & (shares < 1 - _SLACK)).any():
        small |= below
        shares[small] = 1.0
        shares[~small] = (n - small.sum()) * weights[~small] / weights[~small].sum()
    return shares
