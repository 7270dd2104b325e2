"""What protocols over row partitions send each other: kernels, rows, sizes, Gram matrices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np
import scipy.sparse as sp

from eigenmesh.errors import MessageRefused
from eigenmesh.numerics.arrays import Doubles, Rows, is_sparse
from eigenmesh.numerics.kernels import Kernel
from eigenmesh.runtime.message import (
    Floats,
    Integers,
    Message,
    NonNegative,
    Numbers,
    OwnColumns,
    OwnRows,
    Positive,
    Reveals,
    SameEverywhere,
    Shape,
    no_more_than,
)
from eigenmesh.runtime.results import Replies

_SHORT = (np.uint8, np.int8, np.uint16, np.int16)


class KernelSetup(Message, reveals=None):
    """Kernel, rank of the leverage, width of the embedding and seed, the same for all."""

    kernel: str
    gamma: float | None
    degree: Annotated[float, no_more_than(100)]
    coef0: float
    leverage_rank: Annotated[int, Positive]
    embedding_dim: Annotated[int, Positive, no_more_than(20_000)]
    seed: int


def kernel_of(setup: KernelSetup) -> Kernel:
    """The kernel that the parties agreed on."""
    return Kernel(setup.kernel, setup.gamma, setup.degree, setup.coef0)


class RowCount(Message, reveals="counts"):
    """How much a party holds; `n_values` are the numbers that shipping its rows would take."""

    n_rows: Annotated[int, Positive, OwnRows]
    n_columns: Annotated[int, SameEverywhere, OwnColumns]
    n_values: Annotated[int, NonNegative]


def count(rows: Rows) -> RowCount:
    """The size of some rows."""
    n_values = rows.nnz if is_sparse(rows) else rows.size
    n_rows, n_columns = map(int, rows.shape)
    return RowCount(n_rows=n_rows, n_columns=n_columns, n_values=int(n_values))


class RowBlock(Message, reveals="rows"):
    """Some rows: `dense` (n, d), or the arrays of a CSR matrix; whole numbers as short integers."""

    n_columns: Annotated[int, Reveals("counts"), NonNegative]
    dense: Annotated[Numbers | None, Shape("n", "n_columns")]
    data: Annotated[Numbers | None, Shape("nnz")]
    indices: Annotated[Integers | None, Shape("nnz"), NonNegative]
    indptr: Annotated[Integers | None, Shape("n_plus_1"), NonNegative]


def pack(rows: Rows) -> dict[str, Any]:
    """The fields of a RowBlock."""
    fields: dict[str, Any] = dict.fromkeys(("dense", "data", "indices", "indptr"))
    if is_sparse(rows):
        csr: Any = sp.csr_array(rows)
        fields.update(data=_short(csr.data), indices=csr.indices, indptr=csr.indptr)
    else:
        fields["dense"] = _short(np.ascontiguousarray(rows))
    return {"n_columns": int(rows.shape[1]), **fields}


def _short(values: Any) -> Any:
    """Whole numbers in the fewest bytes that hold them; all others, and float32, as they are."""
    if values.dtype != np.float64 or not values.size:
        return values
    low, high = float(values.min()), float(values.max())
    for dtype in _SHORT:
        if np.iinfo(dtype).min <= low and high <= np.iinfo(dtype).max:
            shortened = values.astype(dtype)
            return shortened if np.array_equal(shortened, values) else values
    return values


def _long(values: Any) -> Any:
    """What `_short` was given."""
    return values if values.dtype.kind == "f" else values.astype(np.float64)


def unpack(block: Any) -> Rows:
    """The rows of a RowBlock, or of any message with its fields."""
    if block.dense is not None:
        rows: Rows = _long(block.dense)
        return rows
    if block.data is None or block.indices is None or block.indptr is None:
        raise MessageRefused("a block of rows is neither dense nor sparse")
    shape = (len(block.indptr) - 1, block.n_columns)
    matrix = sp.csr_array((_long(block.data), block.indices, block.indptr), shape=shape)
    try:
        matrix.check_format(full_check=True)
    except ValueError:
        raise MessageRefused("a block of sparse rows is malformed") from None
    return matrix


def stack(parts: Sequence[Rows]) -> Rows:
    """Rows below each other; sparse if any part is."""
    if any(is_sparse(part) for part in parts):
        return sp.csr_array(sp.vstack([sp.csr_array(part) for part in parts]))
    return np.vstack([np.asarray(part) for part in parts])


class UpperGram(Message, reveals="gram"):
    """A symmetric matrix, by its upper triangle."""

    upper: Annotated[Floats, Shape("t*(t+1)//2")]


class GramSums(Message, reveals="gram"):
    """Gram matrix and sum of some rows' features, how many they are, and Σ k(x, x)."""

    upper: Annotated[Floats, Shape("q*(q+1)//2")]
    sums: Annotated[Floats, Shape("q")]
    n_rows: Annotated[int, Reveals("counts"), OwnRows]
    trace: Annotated[float, Reveals("moments")]


class CentredSums(GramSums, reveals="gram"):
    """And what the rows add up to outside the landmarks' span, `numerics.mean_outside`."""

    features: Annotated[Floats, Reveals("moments"), Shape("t")]
    energies: Annotated[Floats, Reveals("moments"), Shape("f"), NonNegative]
    own: Annotated[float, Reveals("moments"), NonNegative]
    noise: Annotated[float, Reveals("moments")]
    along: Annotated[float, Reveals("moments"), NonNegative]
    spread: Annotated[float, Reveals("moments"), NonNegative]


def upper(matrix: Doubles) -> Doubles:
    """The upper triangle of a symmetric matrix, row by row."""
    return np.asarray(matrix[np.triu_indices(len(matrix))])


def full(triangle: Floats) -> Doubles:
    """The symmetric matrix of an upper triangle.

    >>> full(np.array([1.0, 2.0, 3.0]))
    array([[1., 2.],
           [2., 3.]])
    """
    size = int((np.sqrt(8 * len(triangle) + 1) - 1) / 2)
    matrix = np.zeros((size, size))
    matrix[np.triu_indices(size)] = triangle
    return matrix + np.triu(matrix, 1).T


def by_party(replies: Replies) -> dict[str, Any]:
    """Replies by name: parties may be lost on the way."""
    return dict(zip(replies.parties, replies.messages, strict=True))
