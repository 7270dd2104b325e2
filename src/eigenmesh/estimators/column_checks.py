"""What the estimators of vertical federated PCA share: checks of arguments, account of a fit."""

from __future__ import annotations

import secrets
import warnings
from typing import Any

import numpy as np

from eigenmesh.errors import EigenmeshWarning, InputError
from eigenmesh.estimators.accuracy import missing_gap
from eigenmesh.estimators.base import seed_of
from eigenmesh.estimators.checks import is_number, preparation_fields
from eigenmesh.estimators.columns import shipping
from eigenmesh.estimators.report import RunReport
from eigenmesh.runtime.federation import Federation
from eigenmesh.runtime.ledger import Recording
from eigenmesh.stages.column_scores import ColumnModel
from eigenmesh.stages.summed_kernel import OTHER_UNITS, other_units


def positive(value: Any, name: str) -> float:
    """A positive number, or `InputError`."""
    if is_number(value) and 0 < float(value) < np.inf:
        return float(value)
    raise InputError(f"{name} is {value!r}; a positive number is expected")


def new_name() -> str:
    """A name under which the parties of one model keep their shares."""
    return f"vfed-{secrets.token_hex(8)}"


def prepared_as(estimator: Any) -> dict[str, Any]:
    """The fields that every setup has: what owners do to their columns, a name, a seed."""
    return {
        **preparation_fields(estimator),
        "model": new_name(),
        "seed": seed_of(estimator.random_state),
    }


def concluded(
    model: ColumnModel,
    notes: tuple[str, ...],
    caveats: tuple[str, ...],
    reason: str,
    recording: Recording,
    fed: Federation,
    cheaper: str,
) -> RunReport:
    """The account of a fit; every caveat, unlike a note, is also a warning."""
    components = model.fusion.components
    gap = missing_gap(np.abs(components.eigenvalues), abs(components.next_eigenvalue))
    remarks, warned_of = sampling_caveats(model)
    warned = (*model.notes, *warned_of, *caveats, *gap)
    for caveat in warned:
        warnings.warn(caveat, EigenmeshWarning, stacklevel=3)
    return RunReport.of(
        recording,
        fed,
        stop_reason=reason,
        baseline_floats=shipping(model, model.n_samples),
        notes=(*notes, *remarks, *warned),
        cheaper=cheaper,
    )


# Below this median kernel value of two samples the kernel matrix is nearly the identity. A gamma
# that somebody chose may be meant so; the default of 1 / n_features is nobody's choice.
NEARLY_IDENTITY, IDENTITY = 0.05, 1e-3
# Share of an eigenvalue that samples which stand for all may miss before there is a warning.
_ENOUGH = 0.01


def unit_caveats(estimator: Any, model: ColumnModel) -> tuple[str, ...]:
    """What suggests that the columns are in units of their own, or gamma in none of theirs."""
    raw = estimator.gamma is None and not estimator.standardize
    typical, loudest = model.fusion.typical_value, _loudest(model) if raw else None
    if loudest is not None:
        return (other_units(*loudest),)
    if typical is None or typical >= (NEARLY_IDENTITY if raw else IDENTITY):
        return ()
    remedy = "pass standardize=True if columns have units of their own, or lower gamma"
    return (
        f"the median kernel value of two samples is {typical:.2g}: the kernel matrix is close to "
        f"the identity, and its components explain little; {remedy if raw else 'lower gamma'}",
    )


def sampling_caveats(model: ColumnModel) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What is said of samples that stand for all, and what is warned of: where they miss much."""
    missing = model.fusion.shortfalls
    enough = missing is not None and float(missing.max()) <= _ENOUGH
    return (model.sampled, ()) if enough else ((), model.sampled)


def sampling_note(n_samples: int, agreed: Any) -> tuple[str, ...]:
    """That some samples will stand for all, and why, where they will."""
    if n_samples <= agreed.most_samples or n_samples <= agreed.n_landmarks:
        return ()
    room = f"all pairs of {agreed.most_samples:,} samples, or of what memory holds, are the most"
    if not agreed.most_samples:
        room = "n_landmarks was asked for"
    return (f"{agreed.n_landmarks} landmark samples will stand for {n_samples:,}: {room}",)


def _loudest(model: ColumnModel) -> tuple[str, float] | None:
    """The party whose columns vary most, and how many times as much as the others', if many."""
    if len(model.spreads) < 2:
        return None
    each = np.asarray(model.spreads) / model.widths
    i = int(np.argmax(each))
    others = np.delete(np.asarray(model.spreads), i).sum() / np.delete(model.widths, i).sum()
    times = float(each[i] / max(others, np.finfo(float).tiny))
    return (model.parties[i], times) if times >= OTHER_UNITS else None
