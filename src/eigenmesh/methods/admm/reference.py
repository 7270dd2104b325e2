"""What decentralised kernel PCA is compared with: the components of the pooled rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from eigenmesh.estimators.accuracy import missing_gap
from eigenmesh.methods.admm.messages import Reference
from eigenmesh.numerics.arrays import as_rows
from eigenmesh.numerics.centring import centre_in_place
from eigenmesh.numerics.eigen import clip_spectrum, require_rank, top_eigenpairs
from eigenmesh.numerics.kernels import Kernel
from eigenmesh.stages.row_messages import pack


@dataclass(frozen=True)
class CentralReference:
    """The message for the nodes; None, with a caveat, where the data do not determine it."""

    message: Reference | None
    caveats: tuple[str, ...]


def central_reference(kernel: Kernel, rows: Any, k: int, center: bool) -> CentralReference:
    """Kernel PCA of the pooled rows; a similarity with an arbitrary direction would say nothing.

    >>> square = np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    >>> central_reference(Kernel("linear"), square, 1, True).message is None
    True
    """
    X = as_rows(rows, np.float64)
    K = np.asarray(kernel.matrix(X), dtype=np.float64)
    if center:
        centre_in_place(K)
    values, vectors = top_eigenpairs(K, min(k + 1, len(K)))
    values = clip_spectrum(values, len(K))
    require_rank(values, k, len(K), "the reference rows")
    caveats = missing_gap(values[:k], float(values[k]) if len(values) > k else 0.0)
    if caveats:
        return CentralReference(None, (f"no similarity is given: {caveats[0]}",))
    coefficients = vectors[:, :k] / np.sqrt(values[:k])
    return CentralReference(Reference(**pack(X), coefficients=coefficients), ())
