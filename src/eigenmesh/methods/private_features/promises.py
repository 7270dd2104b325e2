"""What the private estimators share: parameters that may be public, and what can be expected."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from eigenmesh.errors import InputError
from eigenmesh.estimators.base import seed_of
from eigenmesh.estimators.checks import checked_gamma, one_of, whole_number
from eigenmesh.methods.private_features.maths import Outlook, unit_width
from eigenmesh.methods.private_features.protocol import PrivateSetup, moments_mechanism
from eigenmesh.numerics.kernels import KERNELS, UNIT_NORM
from eigenmesh.runtime.privacy import honest_fewest, require_promise
from eigenmesh.runtime.schedule import masks_are_planned

ONE_ROW = (
    "of one row: whoever has several rows is told of by as much again with each, and a row that "
    "stands in several parties' data by each of them"
)


def public_gamma(kernel: str, gamma: Any, n_columns: int | None) -> float | None:
    """A gamma that hangs on nobody's data: a number, or 1/columns; None where there is none."""
    if not KERNELS[kernel].uses_gamma:
        return None
    checked = checked_gamma(gamma)
    if isinstance(checked, str):
        raise InputError(
            f"gamma is {gamma!r}, which is computed from the rows without noise; with epsilon= a "
            f"number is expected that hangs on no row, from other data or from what is known of "
            f"the columns: 1/(2·d·s²) for d columns of standard deviation s"
        )
    return 1.0 / (n_columns or 1) if checked is None else checked


def checked_fields(estimator: Any, n_columns: int | None, *, center: bool) -> dict[str, Any]:
    """The fields of a `PrivateSetup`, from an estimator's parameters."""
    kernel = one_of(estimator.kernel, "kernel", UNIT_NORM)
    if estimator.epsilon is None:
        raise InputError("epsilon is None; a positive number is expected, such as 1")
    epsilon, delta = float(estimator.epsilon), float(estimator.delta)
    require_promise(epsilon, delta)
    return {
        "kernel": kernel,
        "gamma": public_gamma(kernel, estimator.gamma, n_columns),
        "n_features": whole_number(estimator.n_features, "n_features"),
        "seed": seed_of(estimator.random_state),
        "center": center,
        "epsilon": epsilon,
        "delta": delta,
    }


def outlook(setup: PrivateSetup, shapes: Sequence[tuple[int, int]], k: int) -> tuple[str, ...]:
    """What a plan says of the promise, and of how useless the answer would be."""
    n_rows, n_parties = sum(n for n, _ in shapes), len(shapes)
    width = unit_width(setup.kernel, shapes[0][1], setup.n_features)
    t = width + int(setup.center)
    mechanism = moments_mechanism(setup, t * (t + 1) // 2)
    masked = masks_are_planned()
    sigma = mechanism.sum_sigma(n_parties, masked=masked)
    view = Outlook.of(sigma, width, n_rows, k, setup.center)
    return (
        f"differential privacy: epsilon {setup.epsilon:g}, delta {setup.delta:g}, {ONE_ROW}",
        _who_adds(n_parties, masked),
        *_usefulness(view, n_rows, k),
        *large_delta(setup, n_rows),
    )


def _who_adds(n_parties: int, masked: bool) -> str:
    if masked and n_parties > 1:
        h = honest_fewest(n_parties)
        return (
            f"each of {n_parties} parties adds 1/{h} of the noise's variance under masks: any {h} "
            f"of them have enough, whoever else is lost, adds none or tells its own"
        )
    if n_parties > 1:
        return (
            f"each of {n_parties} parties adds all of the noise itself, since its sum is seen: "
            f"secure=True takes {(n_parties / honest_fewest(n_parties)) ** 0.5:.2g} instead of "
            f"{n_parties**0.5:.2g} times what one party takes"
        )
    return "one party adds all of the noise"


def _usefulness(view: Outlook, n_rows: int, k: int) -> tuple[str, ...]:
    figures = (
        f"noise has eigenvalues up to {view.edge:,.0f} by itself, and eigenvalue {k} of {n_rows:,} "
        f"rows is {view.largest_gap:,.0f} at most"
    )
    needed = f"about {view.rows_needed:,} rows, a larger epsilon or fewer components would do"
    if view.is_useless:
        return (f"USELESS: {figures}; {needed}",)
    if view.is_doubtful:
        return (f"doubtful: {figures}, usually a tenth of it; {needed}",)
    return (figures,)


def large_delta(setup: PrivateSetup, n_rows: int) -> tuple[str, ...]:
    """A delta of 1/n would let one row be published."""
    if setup.delta * n_rows < 1:
        return ()
    return (
        f"delta is {setup.delta:g}, and 1/rows {1 / n_rows:.1g}: publishing one row at random "
        f"would keep such a promise; lower delta",
    )
