"""What disKPCA will cost, to the float, before anything runs.

s parties, q landmarks, d columns, t embedded dimensions, k components; dense rows. Whose rows
become landmarks is drawn; here they fall to the parties by their sizes, so that the totals are
exact and a party's own share is an expectation.
"""

from __future__ import annotations

from collections.abc import Sequence

from eigenmesh.federation.ledger import Entry, Ledger, forecast_entry, forecast_message
from eigenmesh.numerics.embeddings import embedded_width
from eigenmesh.protocols.diskpca import (
    RowHolder,
    drawing_steps,
    most_landmarks,
    shares_of,
    steps_for,
)
from eigenmesh.protocols.diskpca_sketched import (
    SketchingRowHolder,
    SketchSetup,
    sketched_steps_for,
)
from eigenmesh.protocols.row_messages import KernelSetup

Shapes = Sequence[tuple[int, int]]


def forecast(
    names: Sequence[str],
    shapes: Shapes,
    setup: KernelSetup,
    n_components: int | None,
    n_landmarks: int,
    landmarks: str,
) -> Ledger:
    """The ledger of a run, sketched if the setup is a `SketchSetup`."""
    n, d = sum(rows for rows, _ in shapes), shapes[0][1]
    q = min(n_landmarks, sum(most_landmarks(landmarks, rows) for rows, _ in shapes))
    *looked, last = shares_of(landmarks, q, n)
    early, late = _by_size(sum(looked), names, shapes), _by_size(last, names, shapes)
    shares = len(looked) + 1
    measured = _measured(landmarks, setup) if q < n else set()
    sketched = isinstance(setup, SketchSetup)
    ledger = Ledger(rounds=1 + 2 * shares + sketched)  # count; draw and look, or draw and sum
    ledger.rounds += 2 * ("leverage_mass" in measured) + ("norm_mass" in measured)
    for name in names:
        ledger.entries += _measuring(name, measured, setup, d)
        ledger.entries += _drawing(name, early[name] + late[name], d, landmarks, setup)
        if looked:
            ledger.entries += _looking(name, sum(looked) - early[name], d, setup)
        ledger.entries.append(_asking(name, last - late[name], d, setup))
        ledger.entries += _summing(name, q, n_components or q, setup)
    return ledger


def _role(setup: KernelSetup) -> type[RowHolder]:
    return SketchingRowHolder if isinstance(setup, SketchSetup) else RowHolder


def _measured(landmarks: str, setup: KernelSetup) -> set[str]:
    steps = sketched_steps_for if isinstance(setup, SketchSetup) else steps_for
    return {step.name for step in steps(landmarks)}


def _measuring(name: str, measured: set[str], setup: KernelSetup, d: int) -> list[Entry]:
    """Sizes, and the leverage scores or norms that the first landmarks are drawn by."""
    role, t = _role(setup), embedded_width(setup.kernel, d, setup.embedding_dim)
    entries = [forecast_entry(role.count_rows, name, 0)]
    if "norm_mass" in measured:
        entries.append(forecast_entry(role.norm_mass, name, 0))
    if "leverage_mass" not in measured:
        return entries
    if isinstance(setup, SketchSetup):
        floats = setup.sketch_size * t * t
        entries.append(forecast_entry(SketchingRowHolder.sketched_embedding, name, floats))
    else:
        entries.append(forecast_entry(RowHolder.embedded_gram, name, t * (t + 1) // 2))
    return [
        *entries,
        forecast_message(role.leverage_mass, name, t * t),
        forecast_entry(role.leverage_mass, name, 0),
    ]


def _by_size(count: int, names: Sequence[str], shapes: Shapes) -> dict[str, int]:
    """How `count` landmarks fall to the parties."""
    n = sum(rows for rows, _ in shapes)
    own = {name: count * rows // n for name, (rows, _) in zip(names, shapes, strict=True)}
    own[names[0]] += count - sum(own.values())
    return own


def _drawing(name: str, own: int, d: int, landmarks: str, setup: KernelSetup) -> list[Entry]:
    """Landmarks up."""
    return [forecast_entry(drawing_steps(landmarks, _role(setup))[1], name, own * d)]


def _looking(name: str, others: int, d: int, setup: KernelSetup) -> list[Entry]:
    """Those of the others down, with the question how far the rows are from their span."""
    look = _role(setup).residual_mass
    return [forecast_message(look, name, others * d), forecast_entry(look, name, 0)]


def _asking(name: str, others: int, d: int, setup: KernelSetup) -> Entry:
    """The last of them come with the question for sums."""
    sketched = isinstance(setup, SketchSetup)
    last = SketchingRowHolder.sketched_coordinates if sketched else RowHolder.projected_gram
    return forecast_message(last, name, others * d)


def _summing(name: str, q: int, k: int, setup: KernelSetup) -> list[Entry]:
    if not isinstance(setup, SketchSetup):
        return [forecast_entry(RowHolder.projected_gram, name, q * (q + 1) // 2 + q)]
    w = setup.sketch_size * q
    return [
        forecast_entry(SketchingRowHolder.sketched_coordinates, name, w * q + w + q),
        forecast_message(SketchingRowHolder.captured, name, q * k),
        forecast_entry(SketchingRowHolder.captured, name, k * (k + 1) // 2 + k),
    ]
