"""Differential privacy: what noise a promise takes, and what several promises come to.

Two data sets are neighbours if they differ in what one row holds; how many rows a party has is no
secret. A sum over rows moves by no more than its sensitivity Δ from one neighbour to the other, in
the Euclidean norm, and noise of standard deviation z·Δ, the same in every number, makes it
(ε, δ)-private, whatever else anybody knows (Dwork et al., 2006; z by Balle and Wang, 2018, from the
accountant of dp-accounting, which this file alone imports).

The *loss* of a release is 1/z². Losses of several add up, as those of Gaussian noise do exactly
(Dong, Roth and Su, 2022), so that a budget for life keeps one number.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from eigenmesh.errors import InputError
from eigenmesh.extras import extra

_FINE = 2.0**-26  # of a sensitivity, that numbers are rounded to before noise is added


def _accountant() -> Any:
    with extra("privacy", "differential privacy"):
        from dp_accounting import gaussian_mechanism
    return gaussian_mechanism


@lru_cache(maxsize=256)  # every party of a process asks for the same
def loss_of(epsilon: float, delta: float) -> float:
    """The loss that a promise allows, 1/z².

    >>> round(loss_of(1.0, 1e-6) ** -0.5, 3)
    4.225
    """
    require_promise(epsilon, delta)
    with np.errstate(divide="ignore"):  # it looks at noise that would be far too little
        return float(_accountant().get_sigma_gaussian(epsilon, delta)) ** -2


def epsilon_of(loss: float, delta: float) -> float:
    """The epsilon that releases of this loss come to, at a delta.

    >>> round(epsilon_of(2 * loss_of(1.0, 1e-6), 1e-6), 3)  # two studies of epsilon 1
    1.455
    """
    if loss == 0:
        return 0.0
    with np.errstate(divide="ignore"):
        return float(_accountant().get_epsilon_gaussian(loss**-0.5, delta))


def require_promise(epsilon: Any, delta: Any) -> None:
    """Raise `InputError` unless these are an epsilon and a delta."""
    numbers = all(
        type(value) in (int, float) and math.isfinite(value) for value in (epsilon, delta)
    )
    if not numbers or epsilon <= 0:
        raise InputError(f"epsilon is {epsilon!r}; a positive finite number is expected, such as 1")
    if not 0 < delta < 1:
        raise InputError(
            f"delta is {delta!r}; a number above 0 and far below 1/rows is expected, such as 1e-6"
        )


def honest_fewest(n_summed: int) -> int:
    """Of parties whose sums are masked, how many must add their share of the noise.

    Half of them, rounded up: so many shares are all the noise that is promised. The others may be
    lost, may add nothing, or may tell what they added; and nobody is protected from others by noise
    of its own alone unless it must be (of two parties, each is).

    >>> [honest_fewest(n) for n in (1, 2, 3, 4, 10)]
    [1, 1, 2, 2, 5]
    """
    return -(-n_summed // 2)


@dataclass(frozen=True)
class GaussianMechanism:
    """Noise for a sum of `size` numbers, of which one row moves the whole by `sensitivity`.

    Numbers are rounded to a grid, and so is the noise: what is released are whole numbers of it, in
    which no trace is left of how floating-point numbers were added (Mironov, 2012), and of which
    masked sums are exact without anybody telling how large its own are.

    >>> sums = GaussianMechanism(loss=0.25, sensitivity=3.0, size=2)
    >>> round(sums.sigma, 6)
    6.0
    """

    loss: float
    sensitivity: float
    size: int

    @property
    def grid(self) -> float:
        """What numbers are whole multiples of: a power of 2."""
        return float(2.0 ** math.floor(math.log2(self.sensitivity)) * _FINE)

    @property
    def sigma(self) -> float:
        """The noise that the promise takes; rounding moves neighbours apart by a little more."""
        return float((self.sensitivity + self.grid * math.sqrt(self.size)) * self.loss**-0.5)

    def sum_sigma(self, n_summed: int, *, masked: bool) -> float:
        """The noise in a sum of so many parties, each of which adds its share."""
        return self.sigma * math.sqrt(n_summed / (honest_fewest(n_summed) if masked else 1))

    def release(self, values: NDArray[np.float64], n_summed: int) -> NDArray[np.int64]:
        """Values under a party's share of the noise; `n_summed` is 1 where nothing is masked."""
        share = self.sigma / math.sqrt(honest_fewest(n_summed))
        noise = np.rint(share / self.grid * standard_normals(values.size)).reshape(values.shape)
        return np.asarray(np.rint(values / self.grid) + noise, dtype=np.int64)

    def read(self, total: NDArray[Any]) -> NDArray[np.float64]:
        """The numbers that a released sum stands for."""
        return np.asarray(total, dtype=np.float64) * self.grid


def standard_normals(size: int) -> NDArray[np.float64]:
    """From the system's own entropy, which no seed moves and nobody can repeat.

    >>> bool(abs(standard_normals(10_000).std() - 1) < 0.05)
    True
    """
    words = np.frombuffer(os.urandom(8 * size), np.uint64)
    # A tail by 53 bits and its side by another one: both tails are as fine as the lower one.
    tails = ((words >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-54
    return np.asarray(np.where(words & np.uint64(1), ndtri(tails), -ndtri(tails)))


def promised_by(values: Iterable[Any]) -> Mapping[str, float]:
    """Epsilon and delta that a study promises, from the setup among its terms; {} if it has none.

    Several promises, of runs one after the other, come to one.
    """
    setups = [own for own in values if hasattr(own, "epsilon") and hasattr(own, "delta")]
    if not setups:
        return {}
    delta = max(float(own.delta) for own in setups)
    if len(setups) == 1:
        return {"epsilon": float(setups[0].epsilon), "delta": delta}
    loss = sum(loss_of(float(own.epsilon), float(own.delta)) for own in setups)
    return {"epsilon": epsilon_of(loss, delta), "delta": delta}


def in_words(privacy: Mapping[str, float]) -> str:
    """A promise as people read it.

    >>> in_words({"epsilon": 1.0, "delta": 1e-6})
    'epsilon 1, delta 1e-06'
    """
    return f"epsilon {privacy['epsilon']:.4g}, delta {privacy['delta']:.4g}"
