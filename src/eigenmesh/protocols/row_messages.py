"""Rows on their way: dense rows as they are, sparse rows sparse."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np
import scipy.sparse as sp

from eigenmesh.errors import MessageRefused
from eigenmesh.federation.message import Floats, Integers, Message, NonNegative, Reveals, Shape
from eigenmesh.numerics.arrays import Rows, is_sparse


class RowBlock(Message, reveals="rows"):
    """Some rows: `dense` (n, d), or the arrays of a CSR matrix."""

    n_columns: Annotated[int, Reveals("counts"), NonNegative]
    dense: Annotated[Floats | None, Shape("n", "n_columns")]
    data: Annotated[Floats | None, Shape("nnz")]
    indices: Annotated[Integers | None, Shape("nnz"), NonNegative]
    indptr: Annotated[Integers | None, Shape("n_plus_1"), NonNegative]


def pack(rows: Rows) -> dict[str, Any]:
    """The fields of a RowBlock."""
    fields: dict[str, Any] = dict.fromkeys(("dense", "data", "indices", "indptr"))
    if is_sparse(rows):
        csr: Any = sp.csr_array(rows)
        fields.update(data=csr.data, indices=csr.indices, indptr=csr.indptr)
    else:
        fields["dense"] = np.ascontiguousarray(rows)
    return {"n_columns": int(rows.shape[1]), **fields}


def unpack(block: Any) -> Rows:
    """The rows of a RowBlock, or of any message with its fields."""
    if block.dense is not None:
        rows: Rows = block.dense
        return rows
    if block.data is None or block.indices is None or block.indptr is None:
        raise MessageRefused("a block of rows is neither dense nor sparse")
    shape = (len(block.indptr) - 1, block.n_columns)
    matrix = sp.csr_array((block.data, block.indices, block.indptr), shape=shape)
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
