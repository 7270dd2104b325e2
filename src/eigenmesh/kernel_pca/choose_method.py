"""How split data are fitted: by the first method that suits split, kernel and every policy.

Methods come from the registry, and are tried in its order. The choice hangs on nothing that must be
computed from the parties' data: what will leave a party is settled, and `em.plan` can tell it,
before anything does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from eigenmesh.errors import InputError, PolicyRefusal
from eigenmesh.estimators.base import DoorArguments, Needs, Shapes
from eigenmesh.estimators.checks import components_asked
from eigenmesh.estimators.small_parties import (
    LEAVE_OUT,
    NO_ROWS,
    SURVEY,
    USUALLY_FEWEST,
    LeftOut,
    Sizes,
    adopt_left_out,
    leave_out,
    left_out_of,
    numbered,
    sizes_in,
    some_or_none,
)
from eigenmesh.kernel_pca.one_array import MethodChoice, default_landmarks, landmarks_at_most
from eigenmesh.methods.registry import Method, for_kernel, methods, names_of
from eigenmesh.runtime.consent import expected_releases
from eigenmesh.runtime.content import Release
from eigenmesh.runtime.federation import Federation
from eigenmesh.runtime.schedule import masks_are_planned
from eigenmesh.runtime.topology import Topology, build_graph

# Of a party so large that kinds are what they are called, but for sums over some of its rows.
_LARGE = Release(10**9, 0, 10**9, 10**3, USUALLY_FEWEST)


def suitable_methods(
    name: str,
    split: str,
    kernel: Any,
    landmarks: str,
    on_graph: bool,
    secure: bool = False,
    alone: bool = False,
    private: bool = False,
) -> list[Method]:
    """The methods that suit, best first; an error says what would suit if none does.

    `private` says that epsilon is given: then only methods that add noise are.

    `secure` says whether sums are masked. What lets out rows has to be asked for by name, and so
    has what lets out columns where anything less is at hand; `alone` says that rows are in one
    place, whom nothing leaves.
    """
    by_name = landmarks != "auto"
    of_split = [own for own in methods(split=split, graph=on_graph) if own.private == private]
    at_hand = [m for m in of_split if secure or not m.masked or (by_name and m.takes_landmarks)]
    candidates = [method for method in at_hand if name in ("auto", method.name)]
    suitable = for_kernel(candidates, kernel)
    if name == "auto" and not by_name and not alone:
        suitable = [method for method in suitable if method.discloses != "rows"]
        suitable = [method for method in suitable if method.discloses != "columns"] or suitable
    if by_name:  # then a method that draws others is none
        drawing = [method for method in suitable if "landmarks" in method.options]
        same = [method for method in drawing if method.options["landmarks"] == landmarks]
        suitable = (same or drawing)[:1] or suitable
    if not suitable:
        raise InputError(_what_would_suit(name, split, kernel, on_graph, candidates or at_hand))
    return suitable


def masks_unasked(
    kpca: Any, split: str, on_graph: bool, n_parties: int, secure: bool = False
) -> bool:
    """Whether a fit masks its sums though nobody asked for it.

    So it does where all that is accurate would tell a party's columns up to rotation, and a masked
    sum does as well. By name, and on a graph, where neighbours see messages, it does not.
    """
    if secure or on_graph or n_parties < 2 or kpca.method != "auto":
        return False
    how = ("auto", split, kpca.kernel, "auto", on_graph)
    plain, masked = suitable_methods(*how), suitable_methods(*how, secure=True)
    tells_columns = not any(m.accurate and m.discloses != "columns" for m in plain)
    return tells_columns and masked[0].masked


def _what_would_suit(
    name: str, split: str, kernel: Any, on_graph: bool, at_hand: Sequence[Method]
) -> str:
    where = f"{split} split over parties{' on a graph' if on_graph else ''}"
    if name not in ("auto", *names_of(at_hand)):
        names = ", ".join(names_of(at_hand)) or "none so far"
        return f"method is {name!r}; for {where} it is 'auto' or one of: {names}"
    kernels = dict.fromkeys(one for method in at_hand for one in method.kernels)
    able = ", ".join(map(repr, kernels))
    shown = "a function" if callable(kernel) else repr(kernel)
    return (
        f"kernel is {shown}; for {where}, {able or 'no kernel'} can be computed without pooling: "
        f"choose one of these, or pool the rows if you may"
    )


def hangs_on_sizes(kpca: Any, candidates: Sequence[Method]) -> bool:
    """Whether the parties are asked for their sizes before a method is chosen."""
    return kpca.method == "auto" and any(method.sizes_allow for method in candidates)


def small_parties_matter(
    kpca: Any, candidates: Sequence[Method], split: str, n_parties: int, secure: bool = False
) -> bool:
    """Whether a fit goes on without parties of few rows, whom sums would tell.

    Masks hide what a party adds; and whoever asks for rows by name has decided.
    """
    in_plain_sums = split == "rows" and n_parties > 1 and not secure
    by_name = kpca.landmarks not in NO_ROWS or candidates[0].discloses == "rows"
    return in_plain_sums and kpca.small_parties == LEAVE_OUT and not by_name


def parties_taking_part(
    kpca: Any, candidates: Sequence[Method], fed: Federation
) -> tuple[Shapes | None, LeftOut | None]:
    """The shapes of those who take part, None if nobody has to be asked; and who does not."""
    who = (fed.split, len(fed.members), fed.secure or masks_are_planned())
    leaves_out = small_parties_matter(kpca, candidates, *who)
    if not (leaves_out or hangs_on_sizes(kpca, candidates)):
        return None, None
    if leaves_out:  # what no method can do is said before anybody is told to take small parties
        _require_components(kpca, next(filter(partial(_takes, kpca), candidates), candidates[0]))
    sizes = sizes_in(SURVEY.run(fed).value)
    left_out = leave_out(fed, sizes) if leaves_out else None
    return _shapes_in(sizes, left_out), left_out


def those_in(
    kpca: Any,
    candidates: Sequence[Method],
    shapes: Shapes,
    split: str,
    topology: Topology | None,
) -> tuple[Shapes, LeftOut | None]:
    """The same of data that nobody opens: of parties without names, under the usual policy."""
    if not small_parties_matter(kpca, candidates, split, len(shapes), masks_are_planned()):
        return shapes, None
    sizes = numbered(shapes)
    graph = None if topology is None else build_graph(topology, list(sizes))
    left_out = left_out_of(sizes, graph)
    return _shapes_in(sizes, left_out), left_out


def preceded(estimator: Any, surveys: bool, left_out: LeftOut | None) -> Any:
    """The estimator of a plan, with what a fit asks before it is taken, and who is left out."""
    if surveys:
        estimator._preceding = (SURVEY,)
    return adopt_left_out(estimator, some_or_none(left_out))


def _shapes_in(sizes: Sizes, left_out: LeftOut | None) -> Shapes:
    gone = () if left_out is None else left_out.names
    return [own.shape for name, own in sizes.items() if name not in gone]


def of_these_sizes(kpca: Any, candidates: Sequence[Method], shapes: Shapes | None) -> list[Method]:
    """Those candidates that suit the sizes; all, where sizes are None or the method is named."""
    if shapes is None or kpca.method != "auto":
        return list(candidates)
    arguments = door_arguments(kpca)
    return [
        method
        for method in candidates
        if method.sizes_allow is None or method.sizes_allow(arguments, shapes)
    ]


def build_estimator(kpca: Any, method: Method) -> Any:
    """The estimator of a method, with all arguments of a `KernelPCA` that it has."""
    _require_components(kpca, method)
    estimator = method.estimator._for_door(door_arguments(kpca), method.options)
    if method.cheaper:
        estimator._cheaper = method.cheaper
    return estimator


def door_arguments(kpca: Any) -> DoorArguments:
    """What a `KernelPCA` tells the estimators that it builds for split data."""
    share, k = components_asked(kpca.n_components)
    q = kpca.n_landmarks
    q = default_landmarks(k, kpca.kernel, None) if q is None else q
    most, params = landmarks_at_most(kpca, q), kpca.get_params(deep=False)
    how = (type(kpca).__name__, params, k, share, q, most, kpca.accuracy)
    return DoorArguments(*how, kpca._n_wanted)


def _takes(kpca: Any, method: Method) -> bool:
    """Whether a method can do with a share of components, or none, if that was asked for."""
    share, k = components_asked(kpca.n_components)
    too_open = share is not None or (k is None and method.n_components == "number")
    return method.n_components == "or share" or not too_open


def _require_components(kpca: Any, method: Method) -> None:
    if not _takes(kpca, method):
        raise InputError(
            f"n_components is {kpca.n_components}; {method.name} needs a whole number from 1"
        )
    if kpca.fit_inverse_transform and not goes_back(method, kpca.kernel):
        raise InputError(
            f"fit_inverse_transform is True; {method.name} keeps no rows to go back to: set it to "
            f"False, or choose method='diskpca' for rows"
        )


def goes_back(method: Method, kernel: Any) -> bool:
    """Whether rows can be had from scores."""
    if method.span == "features":
        return bool(kernel == "linear")
    return method.takes_landmarks or hasattr(method.estimator, "inverse_transform")


def choose_method(
    fed: Federation,
    candidates: Sequence[Method],
    build: Callable[[Method], Any],
    needs_of: Callable[[Method, Any], Needs | None] | None = None,
) -> tuple[MethodChoice, Method, Any]:
    """The first method that every party's policy lets happen, why, and its estimator.

    `needs_of` says what is asked of the parties where that is not the estimator's own fit.
    """
    refusals: list[PolicyRefusal] = []
    needs_refused: list[tuple[str, Needs]] = []
    for method in candidates:
        estimator = build(method)
        needs = estimator._needs(fed) if needs_of is None else needs_of(method, estimator)
        try:
            if needs is not None:
                fed.require_stages(*needs)
        except PolicyRefusal as refusal:
            refusals.append(refusal)
            needs_refused += [] if needs is None else [(method.name, needs)]
            continue
        why = _words(fed, method, estimator, refusals)
        return MethodChoice(method.name, why), method, estimator
    raise nothing_allowed(fed, needs_refused, refusals[0])


def _words(
    fed: Federation, method: Method, estimator: Any, refusals: Sequence[PolicyRefusal]
) -> str:
    n = len(fed.parties)
    parties = "1 party holds" if n == 1 else f"{n} parties hold"
    own = getattr(estimator, "landmarks", None)
    by_name = method.options.get("landmarks", own) != own
    why = f"landmarks are {own!r}, as asked for" if by_name else method.why
    less = f"; {refusals[-1].party!r} lets out no more than this needs" if refusals else ""
    return f"{parties} {fed.split}; {why}{less}"


def nothing_allowed(
    fed: Federation, needs_refused: Sequence[tuple[str, Needs]], first: PolicyRefusal
) -> PolicyRefusal:
    """The first refusal, with the kinds that would have to be allowed for each way."""
    needed = []
    for name, needs in needs_refused:
        kinds: set[str] = set()
        for study in (run.study(fed.scope) for run in needs):
            kinds |= set().union(*study.leaving.values())
            kinds |= set().union(*(e.kinds for e in expected_releases(study, _LARGE)))
        needed.append(f"{', '.join(sorted(kinds))} (for {name})")
    options = "; or ".join(dict.fromkeys(needed))
    return PolicyRefusal(f"{first.reason}; what would do: {options}", party=first.party)
