"""Ridge regression on components of columns: where the samples' scores are, and the targets.

===================  ============================================================================
party keeps          its columns
party reveals        how many samples it has (counts); all else is kernel PCA's
coordinator learns   the samples' scores, in kernel PCA; it has the targets, and tells nobody
===================  ============================================================================

What is computed here is computed by the coordinator alone: in a job of several processes the others
need no targets, and get the coefficients.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils import check_array

from eigenmesh.errors import InputError
from eigenmesh.numerics.arrays import Doubles, require_moderate
from eigenmesh.numerics.ridge import RidgeFit, ridge, ridge_sums
from eigenmesh.runtime.federation import Federation
from eigenmesh.runtime.protocol import protocol
from eigenmesh.runtime.records import record
from eigenmesh.runtime.schedule import Node, Scope, sequence
from eigenmesh.stages.count import SurveyedSite, survey
from eigenmesh.stages.count import schedule as counting

record(RidgeFit)


@record
@dataclass(frozen=True)
class ColumnRidgeResult:
    """The coefficients, and whether there is one target a sample and not a matrix of them."""

    fit: RidgeFit
    flat: bool


def targets_schedule(scope: Scope, strict: bool) -> Node:
    """One question, or none."""
    return counting(scope) if strict else sequence()


@protocol("column-targets", roles=(SurveyedSite,), schedule=targets_schedule)
def column_targets(columns: Federation, y: Any, strict: bool) -> None:
    """Refuse targets that do not fit, before anything but the number of samples leaves a party.

    Samples that are not `strict`, but to be matched, are counted by what matches them.
    """
    checked_targets(y)
    if strict:
        checked_targets(y, survey.coordinate(columns)[0].n_rows)


def ridge_schedule(scope: Scope) -> Node:
    """Nobody is asked for anything."""
    return sequence()


@protocol("column-ridge", roles=(), schedule=ridge_schedule)
def column_ridge(columns: Federation, Z: Any, y: Any, alpha: float) -> ColumnRidgeResult:
    """Ridge with a free intercept on the scores Z (n, k) of all samples."""
    targets = checked_targets(y, len(Z))
    y = targets.reshape(len(targets), -1)
    centre = y.mean(axis=0)
    sums = ridge_sums(np.asarray(Z, dtype=np.float64), y - centre)
    return ColumnRidgeResult(ridge(sums, centre, alpha), targets.ndim == 1)


def checked_targets(y: Any, n_samples: int | None = None) -> Doubles:
    """One array of targets, (n,) or (n, m), for so many samples."""
    if isinstance(y, list | tuple) and any(getattr(own, "ndim", 0) for own in y):
        raise InputError(
            f"y is a {type(y).__name__} of {len(y)} arrays, which is for rows; where parties hold "
            f"columns the samples' targets are expected in one array, (n,) or (n, n_targets)"
        )
    targets = target_array(y)
    if n_samples is not None and len(targets) != n_samples:
        raise InputError(
            f"the parties have {n_samples} samples in common and y has {len(targets)} targets; one "
            f"a sample is expected, in their order (matched samples are in the first party's)"
        )
    return targets


def target_array(y: Any) -> Doubles:
    """Finite numbers in an array, or an error that says what they are instead."""
    require_targets(y)
    try:
        targets = np.asarray(check_array(y, ensure_2d=False, dtype=np.float64, input_name="y"))
    except (TypeError, ValueError) as error:
        words = str(error).partition("\n")[0].rstrip(".")
        raise InputError(
            f"{words}; finite numbers are expected for y, (n,) or (n, n_targets)"
        ) from None
    require_moderate(targets, "y")
    return targets


def require_targets(y: Any) -> None:
    """Refuse to go on without any."""
    if y is None:
        raise InputError("KernelPCRegressor requires y to be passed, but the target y is None")
