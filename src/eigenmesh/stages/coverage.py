"""How well landmarks serve, and whom not."""

from __future__ import annotations

from dataclasses import dataclass

from eigenmesh.numerics.shortfall import (
    Shortfall,
)
from eigenmesh.runtime.records import record


@record
@dataclass(frozen=True)
class Coverage:
    """How well landmarks serve, and whom not."""

    shortfall: Shortfall  # of the wanted eigenvalues
    outside: dict[str, float]  # by party, Σ k⊥ of its rows
    unheard: tuple[str, ...]  # parties that can give no landmark
    exhausted: bool = False  # whether the parties can give no more

    @property
    def unheard_share(self) -> float:
        """Of the variance outside the span, that of parties without a landmark."""
        total = sum(self.outside.values())
        return sum(self.outside.get(name, 0.0) for name in self.unheard) / total if total else 0.0
