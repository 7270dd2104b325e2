"""How split data are fitted: by the first method that suits split, kernel and every policy.

A method joins with one entry in WAYS; they are tried from first to last. The choice hangs on
nothing that must be computed from the parties' data: what will leave a party is settled, and
`em.plan` can tell it, before anything does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from eigenmesh.errors import InputError, PolicyRefusal
from eigenmesh.estimators.base import FederatedEstimator
from eigenmesh.graphs.consensus import require_graph
from eigenmesh.kernel_pca.choose_landmarks import LANDMARK_KERNELS, Choice
from eigenmesh.methods.admm.estimator import ADMMKPCA
from eigenmesh.methods.diskpca.estimator import DisKPCA
from eigenmesh.methods.diskpca.protocol import RowHolder, steps_for
from eigenmesh.methods.diskpca.sketching import EmbeddedRows, sketching_steps
from eigenmesh.methods.diskpca.sketching_estimator import SketchingPCA
from eigenmesh.methods.gossip.estimator import GossipKPCA
from eigenmesh.methods.gossip.protocol import GossipNode
from eigenmesh.methods.one_shot.estimator import OneShotKPCA
from eigenmesh.methods.vfed.estimator import VFedPCA
from eigenmesh.methods.vfed.graph import PeerHolder
from eigenmesh.methods.vfed.kernel_estimator import VFedAKPCA
from eigenmesh.methods.vfed.protocol import VectorHolder
from eigenmesh.runtime.federation import Federation
from eigenmesh.runtime.party import Party, Step, steps_of
from eigenmesh.runtime.schedule import steps_in
from eigenmesh.stages.summed_kernel import KERNELS as ARGUMENT_KERNELS

_UNIT_NORM = ("rbf", "laplacian", "cosine")  # every row has the same norm in feature space

Needs = tuple[type[Party], Iterable[Step] | None]


@dataclass(frozen=True)
class Way:
    """A method for split data: whom it suits, and the steps that it asks of the parties."""

    name: str
    split: str
    kernels: Sequence[str]
    estimator: type[FederatedEstimator]
    needs: Callable[[Any, Federation], Needs | None]  # of an estimator; None: its fit will ask
    why: str
    options: Mapping[str, Any] = field(default_factory=dict)
    on_graph: bool = False
    cheaper: str = ""  # how a fit can send less, where the estimator's own way is no parameter here
    all_components: bool = False  # takes n_components=None

    @property
    def any_number(self) -> bool:
        """Whether its estimator takes None and shares of the variance for n_components itself."""
        return self.split == "columns"


def _landmark_steps(estimator: Any, fed: Federation) -> Needs:
    return RowHolder, steps_for(estimator.landmarks, bool(estimator.center))


def _gossip_steps(estimator: Any, fed: Federation) -> Needs:
    tree = estimator._run(require_graph(fed), estimator._kernel(1.0)).study(fed.scope).tree
    return GossipNode, list(steps_in(tree))


def _gossip(features: str, why: str) -> Way:
    return Way(
        "gossip",
        "rows",
        LANDMARK_KERNELS,
        GossipKPCA,
        _gossip_steps,
        why,
        {"features": features},
        on_graph=True,
        cheaper="lower n_landmarks, or take a coordinator if there can be one",
    )


def _landmarks(choice: str, kernels: Sequence[str], why: str) -> Way:
    options = {"landmarks": choice}
    return Way(
        "diskpca", "rows", kernels, DisKPCA, _landmark_steps, why, options, all_components=True
    )


WAYS = (
    _landmarks(
        "centroids",
        _UNIT_NORM,
        "centroids are the best landmarks where every row weighs the same, and no row leaves",
    ),
    _landmarks(
        "diskpca",
        LANDMARK_KERNELS,
        "landmarks are rows drawn by leverage and distance, since a few may carry the variance",
    ),
    _landmarks("centroids", LANDMARK_KERNELS, "landmarks are centroids, and no row leaves"),
    Way(
        "sketching-pca",
        "rows",
        LANDMARK_KERNELS,
        SketchingPCA,
        lambda estimator, fed: (EmbeddedRows, sketching_steps()),
        "sums of embedded rows are all that may leave; the components are those of the embedding",
        all_components=True,
        cheaper="lower n_components",
    ),
    _gossip("centroids", "neighbours average what rows are against centroids, and no row leaves"),
    _gossip("random", "neighbours average moments of random features, and nothing else leaves"),
    Way(
        "admm",
        "rows",
        LANDMARK_KERNELS,
        ADMMKPCA,
        lambda estimator, fed: None,
        "neighbours give each other their rows and agree on the components",
        on_graph=True,
        cheaper="take method='gossip' with few landmarks, or a coordinator if there can be one",
    ),
    Way(
        "vfed-pca",
        "columns",
        ("linear",),
        VFedPCA,
        lambda estimator, fed: (VectorHolder, None),
        "vectors over the samples go to and fro until the answer is the pooled columns'",
    ),
    Way(
        "vfed-pca",
        "columns",
        ("linear",),
        VFedPCA,
        lambda estimator, fed: (PeerHolder, None),
        "neighbours average vectors over the samples until the answer is the pooled columns'",
        on_graph=True,
    ),
    Way(
        "vfed-akpca",
        "columns",
        ARGUMENT_KERNELS,
        VFedAKPCA,
        lambda estimator, fed: estimator._asked(),
        "each says how far apart the samples are in its columns, which adds up to the exact answer",
    ),
    Way(
        "vfed-akpca",
        "columns",
        ARGUMENT_KERNELS,
        VFedAKPCA,
        lambda estimator, fed: estimator._asked(on_graph=True),
        "neighbours average how far apart the samples are in their columns, which is exact",
        on_graph=True,
    ),
    Way(
        "one-shot",
        "columns",
        ("linear", "poly", "rbf"),
        OneShotKPCA,
        lambda estimator, fed: estimator._settings().asked,
        "every party sends one message, the top of its own spectrum",
    ),
)
METHODS = ("exact", *dict.fromkeys(way.name for way in WAYS))


def ways_for(method: str, split: str, kernel: Any, landmarks: str, on_graph: bool) -> list[Way]:
    """The entries that suit, best first; an error says what would suit if none does."""
    held = [way for way in WAYS if way.split == split and way.on_graph == on_graph]
    named = [way for way in held if method in ("auto", way.name)]
    suited = [way for way in named if kernel in way.kernels]
    if landmarks != "auto":  # then a way that draws others is none
        drawing = [way for way in suited if "landmarks" in way.options]
        same = [way for way in drawing if way.options["landmarks"] == landmarks]
        suited = (same or drawing)[:1] or suited
    if not suited:
        raise InputError(_what_would_suit(method, split, kernel, on_graph, named or held))
    return suited


def _what_would_suit(
    method: str, split: str, kernel: Any, on_graph: bool, held: Sequence[Way]
) -> str:
    where = f"{split} split over parties{' on a graph' if on_graph else ''}"
    names = ", ".join(dict.fromkeys(way.name for way in held)) or "none so far"
    if method not in ("auto", *(way.name for way in held)):
        return f"method is {method!r}; for {where} it is 'auto' or one of: {names}"
    able = ", ".join(map(repr, dict.fromkeys(name for way in held for name in way.kernels)))
    shown = "a function" if callable(kernel) else repr(kernel)
    return (
        f"kernel is {shown}; for {where}, {able or 'no kernel'} can be computed without pooling: "
        f"choose one of these, or pool the rows if you may"
    )


def choose_way(
    fed: Federation, ways: Sequence[Way], build: Callable[[Way], FederatedEstimator]
) -> tuple[Choice, FederatedEstimator]:
    """The first way that every party's policy lets happen, with its estimator."""
    refusals: list[PolicyRefusal] = []
    tried: list[tuple[str, Needs]] = []
    for way in ways:
        estimator = build(way)
        needs = way.needs(estimator, fed)
        try:
            if needs is not None:
                fed.require(*needs)
        except PolicyRefusal as refusal:
            refusals.append(refusal)
            tried += [] if needs is None else [(way.name, needs)]
            continue
        return Choice(way.name, _words(fed, way, estimator, refusals)), estimator
    raise _nothing_allowed(tried, refusals[0])


def _words(fed: Federation, way: Way, estimator: Any, refusals: Sequence[PolicyRefusal]) -> str:
    n = len(fed.parties)
    parties = "1 party holds" if n == 1 else f"{n} parties hold"
    asked = getattr(estimator, "landmarks", None)
    as_asked = way.options.get("landmarks", asked) != asked
    why = f"landmarks are {asked!r}, as asked for" if as_asked else way.why
    refused = f"; {refusals[-1].party!r} lets out no more than this needs" if refusals else ""
    return f"{parties} {fed.split}; {why}{refused}"


def _nothing_allowed(tried: Sequence[tuple[str, Needs]], first: PolicyRefusal) -> PolicyRefusal:
    needed = []
    for name, (role, steps) in tried:
        known: Any = role  # mypy takes a class for unhashable
        listed = steps_of(known).values() if steps is None else steps
        kinds = sorted(set().union(*(step.reveals for step in listed)))
        needed.append(f"{', '.join(kinds)} (for {name})")
    options = "; or ".join(dict.fromkeys(needed))
    return PolicyRefusal(f"{first.reason}; what would do: {options}", party=first.party)
