"""What is wanted of DSPGD, what is noted on the way, and what it gives."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np

from eigenmesh.errors import InputError
from eigenmesh.methods.dspgd.maths import (
    ProximalSpectrum,
    SpectralFeatures,
    common_energy,
    next_energy,
    variance_of_mean,
)
from eigenmesh.numerics.arrays import Doubles
from eigenmesh.runtime.records import record

record(SpectralFeatures)

MOST_ITERATIONS = 10_000


@record
@dataclass(frozen=True)
class Iteration:
    """What the coordinator saw of one iteration.

    `covered` is the share of all rows whose parties answered; `change` ‖Z_{t+1} − Z_t‖²_F / n²,
    None where a sketch and missing parties leave it unknown.
    """

    t: int
    step_size: float
    rank: int
    n_products: int
    covered: float
    change: float | None


@record
@dataclass(frozen=True)
class DSPGDResult:
    """Coordinates of rows, eigenvalues, and how they came about; H is at the parties."""

    model: SpectralFeatures
    eigenvalues: Doubles
    next_eigenvalue: float
    threshold: float
    trace: tuple[Iteration, ...]
    n_rows: int
    baseline_floats: int
    stop_reason: str

    @property
    def recovery_error(self) -> float | None:
        """Estimate of ‖K̂ − K_s‖²_F / n², K_s being the best approximation of K by rank s.

        An iterate is a weighted mean of independent draws, so its change tells their variance. A
        threshold adds a bias that no change tells of: then there is no estimate.
        """
        if self.threshold > 0:
            return None
        shares = variance_of_mean(self.model.step_rule, len(self.trace))
        draws = [
            entry.change / (entry.step_size**2 * (1 + shares[entry.t - 1]))
            for entry in self.trace[-max(1, len(self.trace) // 5) :]
            if entry.change is not None and entry.step_size < 1
        ]
        return float(np.mean(draws) * shares[-1]) if draws else None


@record
@dataclass(frozen=True)
class Goal:
    """How much of the spectrum is wanted.

    `rank` caps the iterate's; None stands for the paper's threshold, eigenvalue n_clusters + 2 of
    the first iteration. `n_eigenvectors` columns are to be left in the end.
    """

    n_eigenvectors: int
    n_clusters: int
    rank: int | None

    @property
    def first_rank(self) -> int:
        """Eigenvalues that the first iteration must find."""
        return self.n_clusters + 2 if self.rank is None else self.rank


class Log:
    """What is noted of every iteration; what a sketch does not tell comes with the next one."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._noted: list[tuple[Iteration, ProximalSpectrum, float, float]] = []

    def note(self, eta: float, spectrum: ProximalSpectrum, X: Doubles, covered: float) -> None:
        """Enter an iteration."""
        entry = Iteration(len(self._noted) + 1, eta, X.shape[1], spectrum.n_products, covered, None)
        common = common_energy(spectrum, X, self._width, eta)
        self._noted.append((entry, spectrum, common, next_energy(spectrum, X)))

    def trace(self, n_rows: int, last_energy: float | None) -> tuple[Iteration, ...]:
        """Every iteration, with its change; `last_energy` is ‖BᵀB‖²_F in the end, if known."""
        trace: list[Iteration] = []
        before = 0.0
        for i, (entry, spectrum, common, predicted) in enumerate(self._noted):
            before = before if spectrum.energy is None else spectrum.energy
            after: float | None = predicted
            if not spectrum.exact:
                following = self._noted[i + 1] if i + 1 < len(self._noted) else None
                complete = entry.covered == 1 and (not following or following[0].covered == 1)
                measured = following[1].energy if following else last_energy
                after = measured if complete else None
            if after is not None:
                change = max(after - 2 * common + before, 0.0) / float(n_rows) ** 2
                entry = dataclasses.replace(entry, change=change)
            trace.append(entry)
            before = predicted
        return tuple(trace)


def require_few(n_iterations: int) -> None:
    """Each iteration stands in the schedule by itself, since its sizes are its own."""
    if type(n_iterations) is not int or not 1 <= n_iterations <= MOST_ITERATIONS:
        raise InputError(
            f"n_iterations is {n_iterations!r}; from 1 to {MOST_ITERATIONS:,} are expected"
        )
