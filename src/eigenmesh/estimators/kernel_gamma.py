"""Kernels that estimators over rows take, and their gamma: none, given, or by a rule."""

from __future__ import annotations

from typing import Any

from eigenmesh.errors import InputError
from eigenmesh.estimators.base import seed_of
from eigenmesh.estimators.checks import checked_gamma, find_gamma, gamma_stage, one_of, whole_number
from eigenmesh.numerics.gamma_rules import gamma_for_manhattan
from eigenmesh.numerics.kernels import KERNELS, Kernel
from eigenmesh.runtime.federation import Federation
from eigenmesh.runtime.schedule import Parties
from eigenmesh.runtime.study import Stage, stage
from eigenmesh.stages.count import survey

PSD_KERNELS = tuple(name for name in KERNELS if name != "sigmoid")


def kernel_gamma(
    fed: Federation, kernel: str, gamma: Any, seed: int, **preparation: Any
) -> float | None:
    """The gamma of a kernel, None where it takes none; of columns as their owners prepare them.

    The rules measure Euclidean distances; for the laplacian kernel, whose distances are L1, what
    they find is converted by `gamma_for_manhattan`, which takes one more round, for the width.
    """
    if not KERNELS[kernel].uses_gamma:
        return None
    euclidean = find_gamma(fed, gamma, seed, **preparation)
    if not _converted(kernel, gamma):
        return euclidean
    widths = [shape.n_columns for shape in fed.run(survey).value]
    return gamma_for_manhattan(euclidean, sum(widths) if fed.split == "columns" else widths[0])


def gamma_stages(
    kernel: str, gamma: Any, parties: Parties, seed: int = 0, **preparation: Any
) -> list[Stage]:
    """The runs that `kernel_gamma` makes for these parties."""
    rule = checked_gamma(gamma)
    if not KERNELS[kernel].uses_gamma or isinstance(rule, float):
        return []
    among_neighbours = parties.graph is not None and len(parties.names) > 1
    search = gamma_stage(rule, among_neighbours, seed, **preparation)
    return [search, stage(survey)] if _converted(kernel, gamma) else [search]


def _converted(kernel: str, gamma: Any) -> bool:
    return kernel == "laplacian" and isinstance(gamma, str)


def psd_kernel(name: Any, gamma: float | None, degree: Any, coef0: Any) -> Kernel:
    """A kernel with a feature space, or an error that says what is wrong with it."""
    if name == "sigmoid":
        raise InputError(
            f"kernel is 'sigmoid', which is not positive semi-definite: its values are no inner "
            f"products, so that distances and residuals would mean nothing; one of "
            f"{', '.join(map(repr, PSD_KERNELS))} is expected"
        )
    kernel = Kernel(one_of(name, "kernel", PSD_KERNELS), gamma, degree, coef0)
    if name == "poly" and (kernel.degree != int(kernel.degree) or kernel.coef0 < 0):
        raise InputError(
            f"degree is {degree} and coef0 {coef0}; a whole degree and no negative coef0 are "
            f"expected: other polynomial kernels are not positive semi-definite"
        )
    return kernel


def agreed_fields(kernel: Kernel, rank: int, width: Any, random_state: Any) -> dict[str, Any]:
    """The fields of a KernelSetup."""
    return {
        "kernel": kernel.name,
        "gamma": kernel.gamma,
        "degree": float(kernel.degree),
        "coef0": float(kernel.coef0),
        "leverage_rank": rank,
        "embedding_dim": whole_number(width, "embedding_dim"),
        "seed": seed_of(random_state),
    }
