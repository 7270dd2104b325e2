"""What estimators share: checks of arguments, gamma by rule."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

import numpy as np

from eigenmesh.errors import InputError
from eigenmesh.runtime.compact import BITS, EXACT
from eigenmesh.runtime.federation import Federation
from eigenmesh.runtime.privacy import require_promise
from eigenmesh.runtime.study import Stage, stage
from eigenmesh.stages.gamma import RULES, Bandwidth, bandwidth
from eigenmesh.stages.graph_gamma import graph_bandwidth

# Of all distances, by which a median may miss the middle without a word: then gamma is right within
# some 20 % unless distances are spread widely, and then it matters less.
MOST_RANK_ERROR = 0.08
AUTO = "auto"  # of precision and of directions
PRIVATE = "private-features"  # the one method with differential privacy


def whole_number(value: Any, name: str) -> int:
    """A whole number from 1, or `InputError`."""
    if isinstance(value, Integral) and value is not True and int(value) >= 1:
        return int(value)
    raise InputError(f"{name} is {value!r}; a whole number from 1 is expected")


def optional_count(value: Any, name: str) -> int | None:
    """The same, or None where the method is to choose.

    >>> optional_count(None, "coreset_size"), optional_count(300, "coreset_size")
    (None, 300)
    """
    return None if value is None else whole_number(value, name)


def restarts(n_init: Any, usual: int) -> int:
    """How often k-means starts; "auto", as scikit-learn has it, is `usual`."""
    if isinstance(n_init, str) and n_init == "auto":
        return usual
    if isinstance(n_init, str):
        raise InputError(f"n_init is {n_init!r}; a whole number from 1 or 'auto' is expected")
    return whole_number(n_init, "n_init")


def components_asked(n_components: Any) -> tuple[float | None, int | None]:
    """A share of the variance, or a number of components, or neither.

    >>> components_asked(0.9), components_asked(3), components_asked(None)
    ((0.9, None), (None, 3), (None, None))
    """
    if n_components is None:
        return None, None
    if not isinstance(n_components, float | np.floating):
        return None, whole_number(n_components, "n_components")
    if 0 < n_components < 1:
        return float(n_components), None
    raise InputError(
        f"n_components is {n_components!r}; a whole number from 1 is expected, or a share of the "
        f"variance between 0 and 1"
    )


def finite_number(value: Any, name: str) -> float:
    """A finite number, or `InputError`."""
    number = isinstance(value, Real) and not isinstance(value, bool | np.bool_)
    if number and np.isfinite(float(value)):
        return float(value)
    raise InputError(f"{name} is {value!r}; a finite number is expected")


def checked_gamma(gamma: Any) -> float | str | None:
    """A positive number, or one of the rules that find it from the data."""
    if isinstance(gamma, Real) and gamma is not True and gamma is not False:
        if not 0 < float(gamma) < np.inf:
            raise InputError(f"gamma is {gamma}; a positive finite number is expected")
        return float(gamma)
    if gamma is None or (isinstance(gamma, str) and gamma in RULES):
        return gamma
    raise InputError(
        f"gamma is {gamma!r}; a positive number or one of {', '.join(map(repr, RULES))} is expected"
    )


def find_gamma(fed: Federation, gamma: Any, seed: int, **preparation: Any) -> float:
    """Gamma as a number; a rule is run over the parties, if they let out what it needs.

    `preparation` is what owners do to their data first: standardize, fill_missing; row_noise. On a
    graph neighbours average, and nobody coordinates.
    """
    rule = checked_gamma(gamma)
    if isinstance(rule, float):
        return rule
    search = gamma_stage(rule, fed.graph is not None and len(fed.parties) > 1, seed, **preparation)
    fed.require_stages(search)
    width: Bandwidth = search.run(fed).value
    if width.rank_error > MOST_RANK_ERROR:
        fed.doubt(
            f"gamma={rule!r} of rows that no two parties may compare is approximate: "
            f"{0.5 - width.rank_error:.0%} to {0.5 + width.rank_error:.0%} of all distances may be "
            f"shorter than the one it was taken for, where half should be; pass "
            f"gamma='mean-distance', which is exact, or a number"
        )
    return float(width)


def gamma_stage(rule: str | None, among_neighbours: bool, seed: int, **preparation: Any) -> Stage:
    """The run that finds gamma by a rule; None takes no more than counts."""
    if among_neighbours and rule is not None:
        return stage(graph_bandwidth, rule, seed, **preparation)
    preparation.pop("row_noise", None)
    return stage(bandwidth, rule, seed, **preparation)


def require_switches(estimator: Any) -> None:
    """The word "False" is true: whoever read it from a file or a grid would never know."""
    for name in estimator._switches:
        value = getattr(estimator, name)
        if not isinstance(value, Integral | np.bool_):
            raise InputError(f"{name} is {value!r}; True or False is expected")


def one_of(value: Any, name: str, choices: tuple[str, ...]) -> str:
    """One of a few words, or `InputError`."""
    if isinstance(value, str) and value in choices:
        return value
    raise InputError(f"{name} is {value!r}; {', '.join(map(repr, choices))} are expected")


def checked_accuracy(value: Any) -> float:
    """A share above 0, at most 1.

    >>> checked_accuracy(0.01)
    0.01
    """
    if is_number(value) and 0 < float(value) <= 1:
        return float(value)
    raise InputError(
        f"accuracy is {value!r}; the largest share of a wanted eigenvalue that may be missing is "
        f"expected, a number above 0 and at most 1 such as 0.01"
    )


def checked_precision(precision: Any) -> int | str:
    """Bits, or "auto".

    >>> checked_precision("exact"), checked_precision(8), checked_precision("auto")
    (64, 8, 'auto')
    """
    if isinstance(precision, str) and precision in ("exact", AUTO):
        return EXACT if precision == "exact" else AUTO
    if isinstance(precision, bool) or precision not in BITS:
        fewer = ", ".join(str(bits) for bits in BITS if bits != EXACT)
        raise InputError(f"precision is {precision!r}; 'exact', 'auto' or {fewer} is expected")
    return int(precision)


def checked_gram_rank(gram_rank: Any) -> int | str | None:
    """A whole number, "auto" or None."""
    if isinstance(gram_rank, str):
        one_of(gram_rank, "gram_rank", (AUTO,))
        return AUTO
    return None if gram_rank is None else whole_number(gram_rank, "gram_rank")


def is_number(value: Any) -> bool:
    """Whether it is a real number; True and False are none."""
    return isinstance(value, Real) and value is not True and value is not False


def share_of_missing(value: Any) -> float | None:
    """None, or a share from 0 to 1."""
    if value is None:
        return None
    if is_number(value) and 0 <= float(value) <= 1:
        return float(value)
    raise InputError(f"fill_missing is {value!r}; None or a share from 0 to 1 is expected")


def preparation_fields(estimator: Any) -> dict[str, Any]:
    """What owners do to their columns, as setups and gamma rules take it."""
    return {
        "standardize": bool(estimator.standardize),
        "fill_missing": share_of_missing(estimator.fill_missing),
    }


def require_private(door: Any, name: str) -> None:
    """Raise `InputError` unless epsilon and method go together, and all that leaves is noised."""
    if door.epsilon is None:
        if door.method == PRIVATE:
            raise InputError(f"method is {PRIVATE!r} and epsilon None; epsilon=1, say, is expected")
        return
    require_promise(door.epsilon, door.delta)
    if door.method not in ("auto", PRIVATE):
        raise InputError(
            f"epsilon is {door.epsilon:g}, and method {door.method!r} adds no noise; 'auto' or "
            f"{PRIVATE!r} is expected"
        )
    if door.preparation is not None:
        raise InputError(
            f"preparation is given, which learns from the rows without noise; with epsilon= None "
            f"is expected: prepare the rows by numbers that hang on none of them, before {name}"
        )
    if door.topology is not None:
        raise InputError(
            f"topology is {door.topology!r}, where neighbours see each other's sums; with epsilon= "
            f"None is expected, a coordinator"
        )


def checked_scores(X: Any, n_components: int) -> Any:
    """Scores of samples as an array of a column a component, or `InputError`.

    >>> checked_scores([[1.0, 2.0]], 2).shape
    (1, 2)
    """
    try:
        Z = np.asarray(X)
    except ValueError:
        Z = np.empty(0, dtype=object)
    if Z.dtype.kind not in "biuf":
        raise InputError("the scores are no rectangle of numbers, as transform gives them")
    if Z.ndim != 2 or Z.shape[1] != n_components:
        raise InputError(
            f"the scores have shape {Z.shape}; (n, {n_components}) is expected, a column for each "
            f"of the model's {n_components} components"
        )
    return Z
