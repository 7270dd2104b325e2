"""What protocols over row partitions send each other: kernels, rows, sizes, Gram matrices."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Annotated, Any

import numpy as np
import scipy.sparse as sp

from eigenmesh.errors import MessageRefused
from eigenmesh.numerics.arrays import Rows, is_sparse
from eigenmesh.numerics.kernels import Kernel
from eigenmesh.numerics.landmark_sums import full
from eigenmesh.numerics.plausible import differs, exceeds, is_gram
from eigenmesh.runtime.message import (
    Context,
    Factored,
    Floats,
    Integers,
    Message,
    NonNegative,
    OnGrid,
    OwnColumns,
    OwnRows,
    Positive,
    Reveals,
    SameEverywhere,
    Shape,
    no_more_than,
)
from eigenmesh.runtime.results import Replies
from eigenmesh.runtime.site import SiteView

LARGEST = 1e75  # of a value: kernels take squares of products
NOT_A_GRAM = "no rows have such sums and such sums of products"


class KernelSetup(Message, reveals=None):
    """Kernel, rank of the leverage, width of the embedding and seed, the same for all."""

    kernel: str
    gamma: float | None
    degree: Annotated[float, no_more_than(100)]
    coef0: float
    leverage_rank: Annotated[int, Positive]
    embedding_dim: Annotated[int, Positive, no_more_than(20_000)]
    seed: int


def kernel_of(setup: Any) -> Kernel:
    """The kernel that the parties agreed on."""
    return _kernel(setup.kernel, setup.gamma, setup.degree, setup.coef0)


@lru_cache(maxsize=8, typed=True)  # of many parties each has it, and what each says is held to it
def _kernel(name: str, gamma: float | None, degree: float, coef0: float) -> Kernel:
    return Kernel(name, gamma, degree, coef0)


class RowCount(Message, reveals="counts"):
    """How much a party holds; `n_values` are the numbers that shipping its rows would take."""

    n_rows: Annotated[int, Positive, OwnRows]
    n_columns: Annotated[int, SameEverywhere, OwnColumns]
    n_values: Annotated[int, NonNegative]


def count(site: SiteView) -> RowCount:
    """The size of a site's rows."""
    n_rows, n_columns = site.shape
    return RowCount(n_rows=n_rows, n_columns=n_columns, n_values=site.n_values)


class RowBlock(Message, reveals="rows"):
    """Some rows: `dense` (n, d), or the arrays of a CSR matrix; in few bits where that is exact."""

    n_columns: Annotated[int, Reveals("counts"), NonNegative]
    dense: Annotated[Floats | None, Shape("n", "n_columns"), OnGrid]
    data: Annotated[Floats | None, Shape("nnz"), OnGrid]
    indices: Annotated[Integers | None, Shape("nnz"), NonNegative]
    indptr: Annotated[Integers | None, Shape("n_plus_1"), NonNegative]

    def rows_for_others(self) -> Any:
        """All of them."""
        return unpack(self)

    def contradiction(self, context: Context) -> str | None:
        """Rows are no more than were asked for, and such that their squares are finite."""
        most = getattr(context.request, "n_rows", None)
        n_rows = 0 if self.indptr is None else len(self.indptr) - 1
        values = self.data if self.dense is None else self.dense
        if self.dense is not None:
            n_rows = len(self.dense)
        if most is not None and n_rows > most:
            return f"{n_rows} rows, {most} were asked for"
        if values is not None and values.size and float(np.abs(values).max()) > LARGEST:
            return f"values beyond {LARGEST:.0e}, whose squares are not finite"
        return None


def pack(rows: Rows) -> dict[str, Any]:
    """The fields of a RowBlock."""
    fields: dict[str, Any] = dict.fromkeys(("dense", "data", "indices", "indptr"))
    if is_sparse(rows):
        csr: Any = sp.csr_array(rows)
        fields.update(data=_floats(csr.data), indices=csr.indices, indptr=csr.indptr)
    else:
        fields["dense"] = _floats(np.ascontiguousarray(rows))
    return {"n_columns": int(rows.shape[1]), **fields}


def _floats(values: Any) -> Any:
    return values if values.dtype.kind == "f" else values.astype(np.float64)


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
    own = [np.asarray(part) for part in parts]
    filled = [part for part in own if len(part)]
    # Of parties that gave no landmark each has all from others, who are many: no copy for each.
    if len(filled) == 1 and filled[0].dtype == np.result_type(*own):
        return filled[0]
    return np.vstack(own)


class UpperGram(Message, reveals="gram"):
    """A symmetric matrix, by its upper triangle."""

    upper: Annotated[Floats, Shape("t*(t+1)//2")]

    def contradiction(self, context: Context) -> str | None:
        """A sum of squares is positive."""
        return None if is_gram(full(self.upper)) else NOT_A_GRAM


class GramSums(Message, reveals="gram"):
    """Gram matrix and sum of some rows' features, how many they are, and Σ k(x, x)."""

    upper: Annotated[Floats, Shape("q*(q+1)//2"), Factored("n_rows")]
    sums: Annotated[Floats, Shape("q")]
    n_rows: Annotated[int, Reveals("counts"), OwnRows]
    trace: Annotated[float, Reveals("moments")]

    def contradiction(self, context: Context) -> str | None:
        """Sums over n rows, whose squares add up to n where the kernel says so."""
        if not is_gram(full(self.upper), self.sums, self.n_rows):
            return NOT_A_GRAM
        return wrong_trace(context, self.trace, self.n_rows)


class CentredSums(GramSums, reveals="gram"):
    """And what the rows add up to outside the landmarks' span, `numerics.mean_outside`."""

    features: Annotated[Floats, Reveals("moments"), Shape("t")]
    energies: Annotated[Floats, Reveals("moments"), Shape("f"), NonNegative]
    own: Annotated[float, Reveals("moments"), NonNegative]
    noise: Annotated[float, Reveals("moments")]
    along: Annotated[float, Reveals("moments"), NonNegative]
    spread: Annotated[float, Reveals("moments"), NonNegative]


def wrong_trace(context: Context, trace: float, weight: float) -> str | None:
    """Why Σ w k(x, x) cannot be over rows of this weight."""
    level = isinstance(context.setup, KernelSetup) and kernel_of(context.setup).is_level
    nothing = level and context.setup.kernel in ("cosine", "arc-cosine")  # k(0, 0) is 0 there
    wrong = exceeds(trace, weight) if nothing else differs(trace, weight)
    if level and wrong:
        return f"k(x, x) = 1, but over {weight:g} rows it adds up to {trace:.6g}"
    return None if trace >= 0 else "a sum of squares is negative"


def by_party(replies: Replies) -> dict[str, Any]:
    """Replies by name: parties may be lost on the way."""
    return dict(zip(replies.parties, replies.messages, strict=True))
