"""What components are worth, in words: their gap, what landmarks miss and what would help."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from eigenmesh.numerics.centroids import MIN_CLUSTER
from eigenmesh.numerics.landmarks import LandmarkModel
from eigenmesh.numerics.mean_outside import MARGIN
from eigenmesh.numerics.shortfall import Shortfall
from eigenmesh.runtime.federation import Federation
from eigenmesh.stages.coverage import Coverage

SHORTFALL = ("shortfalls_", "shortfall_", "shortfall_error_")  # files of earlier versions lack them
# Of the variance. A Gram matrix errs by 1e-16 of its size, which in a direction of share s counts
# 1/s-fold, and s itself is as small: 1e-16/s², a hundredth or so from some 1e-7 on. And landmarks'
# own directions below 1e-10 of their largest are dropped: at 8e-7 .15 of an eigenvalue was missing.
_RESOLVED = 1e-6
_NO_GAP = 1e-3  # λ_k − λ_{k+1} as a share of λ_k


class MissingShares(NamedTuple):
    """What is missing of the wanted eigenvalues, as fitted attributes have it."""

    shortfalls: Any  # (k,)
    shortfall: float | None  # the largest
    shortfall_error: float | None  # its standard error, None if not known

    @classmethod
    def of(cls, measured: Shortfall) -> MissingShares:
        """As it was measured."""
        return cls(measured.values, measured.largest, measured.error)

    @classmethod
    def of_estimator(cls, fitted: Any) -> MissingShares:
        """That of an estimator behind a front door, as far as it has it."""
        return cls(*(getattr(fitted, name, None) for name in SHORTFALL))


def adopt_missing(estimator: Any, missing: MissingShares | None) -> None:
    """Set the fitted attributes, None where nothing is known."""
    values = (None, None, None) if missing is None else missing
    for name, value in zip(SHORTFALL, values, strict=True):
        setattr(estimator, name, value)


def missing_gap(eigenvalues: Any, next_eigenvalue: float) -> tuple[str, ...]:
    """The caveat that the last component is not determined by the data, if it is not."""
    k, last = len(eigenvalues), float(eigenvalues[-1])
    gap = (last - next_eigenvalue) / last if last else 0.0
    if gap >= _NO_GAP:
        return ()
    return (
        f"eigenvalues {k} and {k + 1} differ by {gap:.1e} of their size: the last component is not "
        f"determined by the data",
    )


def lost_in_rounding(model: LandmarkModel, n_wanted: int | None = None) -> tuple[str, ...]:
    """The caveat that the last wanted eigenvalues are below what sums over rows resolve."""
    values = model.eigenvalues[:n_wanted]
    sound = n_resolved(model)
    if sound >= len(values):
        return ()
    return (
        f"eigenvalue {sound + 1} is {values[sound] / model.total:.0e} of the "
        f"variance, and sums over rows resolve no less than {_RESOLVED:.0e}: it and those after it "
        f"may be rounding; ask for {sound or 'fewer'} components, or rescale the rows",
    )


def n_resolved(model: LandmarkModel) -> int:
    """How many first eigenvalues sums over rows resolve."""
    is_lost = np.append(model.eigenvalues < _RESOLVED * model.total, True)
    return int(np.argmax(is_lost))


def rows_are_kept(fed: Federation) -> bool:
    """Whether a party of this process lets no rows out; of others nobody knows beforehand."""
    return any(site.policy.forbids({"rows"}) for site in fed.local_sites().values())


def caveats_of(
    coverage: Coverage,
    accuracy: float,
    n_landmarks: int,
    landmarks: str,
    chosen_number: bool,
    rows_kept: bool = False,
    resolved: int | None = None,
) -> tuple[str, ...]:
    """Caveats of landmarks that miss more than they may, or none.

    `chosen_number` says whether the number of components was: else they are all there are. Where
    `rows_kept` says that a policy keeps rows, nobody is told to ask for them; and nobody to ask for
    more components than are `resolved`.
    """
    missing = coverage.shortfall
    if missing.is_within(accuracy):
        return ()
    shown = _how_much(missing, accuracy, n_landmarks)
    if coverage.unheard and landmarks == "centroids":
        return (f"{shown}. {_unheard(coverage, rows_kept)}",)
    fewer = _fewer(missing, accuracy, resolved)
    if not chosen_number:
        return (f"{shown}: n_components is None, so all count; {fewer}",)
    of_rows = "landmarks='diskpca' if rows may leave"
    none_left = {
        "drawn": "no more points are drawn than there are rows, less one",
        "centroids": f"there are no more means of {MIN_CLUSTER} rows",
    }.get(landmarks)
    if coverage.exhausted and none_left:
        others = "policies keep rows, which would be more" if rows_kept else f"so pass {of_rows}"
        return (f"{shown}: {none_left}, {others}{':' if rows_kept else ', or'} {fewer}",)
    if coverage.exhausted and landmarks not in ("centroids", "drawn"):
        far = "rows are so far from 0 that floats show no more: subtract the columns' means before"
        return (f"{shown}: every row is a landmark, and {far} (preparation), or {fewer}",)
    by_name = landmarks == "centroids" and not rows_kept
    more = f"raise n_landmarks, or {of_rows}" if by_name else "raise n_landmarks"
    return (f"{shown}: {more}, or {fewer}",)


def _how_much(missing: Shortfall, accuracy: float, n_landmarks: int) -> str:
    worst = int(missing.values.argmax())
    verdict = "more" if missing.largest > accuracy else "perhaps more"
    landmarks = f"{n_landmarks} landmarks miss" if n_landmarks > 1 else "one landmark misses"
    return (
        f"the {landmarks} about {missing.largest:.1%} (± {missing.error:.1%}) of "
        f"eigenvalue {worst + 1}, {verdict} than accuracy={accuracy:g} lets them"
    )


def _fewer(missing: Shortfall, accuracy: float, resolved: int | None) -> str:
    within = missing.n_within(accuracy)
    within = within if resolved is None else min(within, resolved)
    return f"ask for {within}, which are within it" if within else "ask for fewer components"


def _unheard(coverage: Coverage, rows_kept: bool) -> str:
    names = in_short(coverage.unheard)
    verb = "has" if len(coverage.unheard) == 1 else "have"
    of_rows = "landmarks='uniform' or 'diskpca', by which some rows leave, or "
    by_rows = "" if rows_kept else of_rows
    return (
        f"Party {names} {verb} fewer than {MIN_CLUSTER} rows and so no centroid among them; "
        f"{coverage.unheard_share:.0%} of the variance outside the landmarks' span is theirs. What "
        f"would count them in: {by_rows}their rows joined with another party's"
    )


def in_short(names: Sequence[str]) -> str:
    """A few names, and how many more.

    >>> in_short(["a", "b"]), in_short(["a", "b", "c", "d", "e"])
    ("'a', 'b'", "'a', 'b', 'c' and 2 more")
    """
    shown = ", ".join(map(repr, names[:3] if len(names) > 4 else names))
    return f"{shown} and {len(names) - 3} more" if len(names) > 4 else shown


def residual_claim(residual: float, error: float, weighted: bool = False) -> str:
    """What a residual is worth, in words; that of weighted rows is a bound.

    >>> residual_claim(12.5, 0.0)
    'residual 12.5, exact for these components'
    """
    if not error:
        return f"residual {residual:.4g}, exact for these components"
    if weighted:
        return f"residual {residual:.4g}, at most {error:.2g} too large"
    return (
        f"residual {residual:.4g} (squares that the components leave, over all rows), {MARGIN:g} "
        f"standard errors of {error:.2g} above its estimate: the landmarks' span does not hold "
        f"the mean of the rows"
    )


def growth_notes(q: int, most: int, accuracy: float, more: int, n_parties: int) -> tuple[str, ...]:
    """What `more` floats may go to: a second look at what q landmarks miss, or up to `most`."""
    if most > q:
        return (
            f"as if {q} landmarks were enough: they double while they miss more "
            f"than accuracy={accuracy:g}, which takes at most {more:,} floats more; of many "
            f"parties only some look at what they miss where little is outside their span",
        )
    if n_parties == 1 or not more:
        return ()
    return (
        f"as if one look were enough: a second, if the first leaves doubt, takes {more:,} floats "
        f"more; of many parties only some look where little is outside the landmarks' span, and "
        f"there is none where next to nothing is outside",
    )
