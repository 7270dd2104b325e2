"""The paper's variants of vertical federated PCA: their arguments, and their caveats."""

from __future__ import annotations

from typing import Any

import numpy as np

from eigenmesh.estimators.checks import one_of, whole_number
from eigenmesh.estimators.column_checks import prepared_as
from eigenmesh.methods.vfed.paper import MERGES
from eigenmesh.methods.vfed.paper_party import PowerSetup
from eigenmesh.numerics.kernels import Kernel

VARIANTS = ("exact", "paper")
KERNEL_VARIANTS = (*VARIANTS, "sum")
PAPER_ROUNDS = 10


def power_setup(estimator: Any, kernel: Kernel) -> PowerSetup:
    """What the parties of the paper's variant agree on."""
    return PowerSetup(
        kernel=kernel.name,
        gamma=kernel.gamma,
        degree=float(kernel.degree),
        coef0=float(kernel.coef0),
        center=bool(estimator.center),
        local_iterations=whole_number(estimator.local_iterations, "local_iterations"),
        warm_start=bool(estimator.warm_start),
        weight_scaling=bool(estimator.weight_scaling),
        merge=one_of(estimator.merge, "merge", MERGES),
        align_signs=bool(estimator.align_signs),
        **prepared_as(estimator),
    )


def paper_caveats(estimator: Any, n_rounds: int, nodes: Any) -> tuple[str, ...]:
    """What the paper's variant must say of itself."""
    caveats = []
    if estimator.merge == "isolated":
        caveats.append(
            "merge='isolated': every party has vectors of its own, the first one's count"
        )
    else:
        caveats.append(
            "variant='paper': its update of the columns makes them rank one, so the merged vector "
            "does not move after the second round and is not the pooled one; variant='exact' is"
        )
        if n_rounds > 2:
            caveats[-1] += f" (rounds 3 to {n_rounds} cost traffic only)"
    if nodes is not None and len(nodes) > 1:
        spread = max(_apart(nodes[0], other) for other in nodes[1:])
        if spread > 1e-6:
            caveats.append(f"the nodes do not agree: their vectors are up to {spread:.2g} apart")
    return tuple(caveats)


def _apart(U: Any, V: Any) -> float:
    signs = np.where(np.einsum("ij,ij->j", U, V) < 0, -1.0, 1.0)
    return float(np.linalg.norm(U - V * signs, axis=0).max())
