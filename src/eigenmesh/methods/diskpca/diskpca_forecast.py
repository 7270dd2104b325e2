"""What disKPCA will cost, to the float, before anything runs.

s parties, q landmarks, d columns, t embedded dimensions, k components; dense rows. Whose rows
become landmarks is drawn; here they fall to the parties by their sizes, so that the totals are
exact and a party's own share is an expectation.
"""

from __future__ import annotations

from collections.abc import Sequence

from eigenmesh.methods.diskpca.landmark_growth import probe_cost
from eigenmesh.methods.diskpca.paper import (
    SketchingRowHolder,
    SketchSetup,
    sketched_steps_for,
)
from eigenmesh.methods.diskpca.protocol import (
    RowHolder,
    drawing_steps,
    most_landmarks,
    shares_of,
    steps_for,
)
from eigenmesh.numerics.embeddings import embedded_width
from eigenmesh.numerics.outside_features import outside_floats
from eigenmesh.runtime.ledger import Entry, Ledger, forecast_entry, forecast_message
from eigenmesh.runtime.party import Step
from eigenmesh.stages.row_messages import KernelSetup

Shapes = Sequence[tuple[int, int]]


def forecast(
    names: Sequence[str],
    shapes: Shapes,
    setup: KernelSetup,
    n_components: int | None,
    n_landmarks: int,
    landmarks: str,
    *,
    center: bool = False,
    measured: bool = False,
    centred: bool | None = None,
) -> Ledger:
    """The ledger of a run, sketched if the setup is a `SketchSetup`.

    `center` adds what the centred variance takes, `measured` one look at what landmarks miss of
    `centred` components; None if they are so where `center` is.
    """
    n, d = sum(rows for rows, _ in shapes), shapes[0][1]
    q = min(n_landmarks, sum(most_landmarks(landmarks, rows) for rows, _ in shapes))
    *looked, last = shares_of(landmarks, q, n)
    early, late = _by_size(sum(looked), names, shapes), _by_size(last, names, shapes)
    shares = len(looked) + 1
    scores = _measured(landmarks, setup) if q < n else set()
    t = None  # floats for the mean outside the span, or no such question
    if center and q < n:
        t = outside_floats(setup.kernel, d) if len(names) > 1 else 0
    sketched = isinstance(setup, SketchSetup)
    ledger = Ledger(rounds=1 + 2 * shares + sketched)  # count; draw and look, or draw and sum
    ledger.rounds += 2 * ("leverage_mass" in scores) + ("norm_mass" in scores)
    for name in names:
        ledger.entries += _measuring(name, scores, setup, d)
        ledger.entries += _drawing(name, early[name] + late[name], d, landmarks, setup)
        if looked:
            ledger.entries += _looking(name, sum(looked) - early[name], d, setup)
        ledger.entries += _summing(name, (last - late[name]) * d, q, n_components or q, t, setup)
    if measured and q < n and len(names) > 1:
        of_centred = center if centred is None else centred
        cost = probe_cost(setup.kernel, n_components or q, q, d, of_centred)
        ledger.rounds += 1
        for name in names:
            ledger.entries.append(forecast_message(RowHolder.probe_outside, name, cost.down))
            ledger.entries.append(forecast_entry(RowHolder.probe_outside, name, cost.up))
    return ledger


def _role(setup: KernelSetup) -> type[RowHolder]:
    return SketchingRowHolder if isinstance(setup, SketchSetup) else RowHolder


def _measured(landmarks: str, setup: KernelSetup) -> set[str]:
    steps = sketched_steps_for if isinstance(setup, SketchSetup) else steps_for
    return {step.name for step in steps(landmarks, False)}


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


def _summing(
    name: str, others: int, q: int, k: int, t: int | None, setup: KernelSetup
) -> list[Entry]:
    """The last landmarks come with the question for sums; `others` are their floats."""
    if not isinstance(setup, SketchSetup):
        last = RowHolder.projected_gram if t is None else RowHolder.centred_gram
        sums = q * (q + 1) // 2 + q
        return [forecast_message(last, name, others), _with_features(last, name, sums, t or 0)]
    role, w = SketchingRowHolder, setup.sketch_size * q
    held = role.captured if t is None else role.captured_centred
    return [
        forecast_message(role.sketched_coordinates, name, others),
        forecast_entry(role.sketched_coordinates, name, w * q + w + q),
        forecast_message(held, name, q * k),
        _with_features(held, name, k * (k + 1) // 2 + k, t or 0),
    ]


def _with_features(step: Step, name: str, floats: int, t: int) -> Entry:
    """A reply with `t` floats besides that are moments."""
    entry = forecast_entry(step, name, floats)
    return entry._replace(kinds={**entry.kinds, "moments": t}, floats=floats + t)
