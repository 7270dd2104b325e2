"""Averages and largest values over a graph: what protocols without a centre build on.

Xiao and Boyd, "Fast linear iterations for distributed averaging", Systems & Control Letters 53,
2004, accelerated by Chebyshev's polynomials; and, where messages may be lost, the running sums of
Hadjicostis, Vaidya and Domínguez-García, "Robust distributed average consensus via exchange of
running sums", IEEE Transactions on Automatic Control 61, 2016.

=============  =============================================================================
node keeps     what it began with, though its neighbours see that in the first mix
node reveals   to its neighbours: the running value (moments, unless its protocol says
               otherwise) and its degree
=============  =============================================================================

A party that takes part derives from `MixingParty`, its setup from `MixingSetup`::

    nodes.enlist(MyNode, MySetup(**mixing(nodes), seed=1))   # fields of MixingSetup, from the graph
    nodes.ask(MyNode.begin)                      # calls self.start_mixing(any array)
    average(nodes, MyNode)                       # self.mixture is now the average, at every node

Several quantities are averaged at once by putting them into one array. A sum is the average times
the number of nodes; a mean over rows is the ratio of two averages, of sums and of counts, and so
need not know how many nodes there are. `self.add_to_mixture(change)` lets the average follow a
value that changes, as gradient tracking does. A protocol whose values are no moments overrides the
two steps with a message of its own kind. A schedule has `mixing_rounds` where its coordinator calls
`average`, and `largest_rounds` for `largest`.

**Lost messages.** With on_loss="raise" none is ever lost: a round is complete or undone. With
"survivors" or "reuse" a message may be missing, and a plain mix would move the average, for good:
one end of an edge has given, the other has not received. So there nodes send the running sum of
all that they have given, to each neighbour as much as they keep. Whoever missed a message gets its
content with the next one, an old message gives nothing twice, and every node counts its share by a
weight that travels alike: nodes of many neighbours end with more of both. The limit is the plain
average, whatever is lost; the price is acceleration (`mixes_for` allows for that: several times
more mixes). A node that leaves takes its share with it, value and weight alike:
if it goes at the start the others' average is left, if later something between.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from functools import lru_cache
from typing import Annotated, Any, ClassVar

import networkx as nx
import numpy as np

from eigenmesh.errors import FederationError, MessageRefused, TopologyError
from eigenmesh.numerics.arrays import Doubles
from eigenmesh.numerics.mixing import (
    ACCURACY,
    MixingSpectrum,
    lossy_mixes,
    lossy_mixes_of_parts,
    metropolis_weight,
    next_omega,
)
from eigenmesh.runtime.federation import Federation
from eigenmesh.runtime.message import Floats, Message, NonNegative, Positive, Reveals, Shape
from eigenmesh.runtime.party import Party, step
from eigenmesh.runtime.schedule import Amount, Enlist, Node, Scope, Size, at_most, enlist, exchange
from eigenmesh.runtime.site import SiteView
from eigenmesh.runtime.statements import in_short
from eigenmesh.runtime.topology import is_lossy

_TIMES_OVER = 3  # news are told where messages may be lost


class MixingSetup(Message, reveals=None):
    """What the graph says of mixing; `mixing` fills it in."""

    mix_centre: float
    mix_radius: float
    lossy: bool


class Mixture(Message, reveals="moments"):
    """A running value or, where messages may be lost, the sum of all that were sent."""

    value: Annotated[Floats, Shape("n")]
    weight: float
    degree: Annotated[int, Reveals("counts"), NonNegative]
    series: int  # counts the averages of a run: an old message must not count in a new one


class Largest(Message, reveals="moments"):
    """The largest values that a node has heard of."""

    value: Annotated[Floats, Shape("n")]


class MixingParty(Party):
    """Base of parties that average an array over the graph. State: (*MixingParty.state, ...)."""

    Setup: ClassVar[type[Message]] = MixingSetup
    state: ClassVar[tuple[str, ...]] = ("mixing", "sums_sent", "heard", "peak")

    def __init__(self, site: SiteView, setup: Any) -> None:
        super().__init__(site, setup)
        self.mixing: dict[str, Any] = {"series": 0}
        self.sums_sent: dict[str, Any] = {}
        self.heard: dict[str, dict[str, Any]] = {}
        self.peak = np.zeros(0)
        self.start_mixing(np.zeros(0))

    # What a protocol's own steps call.

    def start_mixing(self, value: Any) -> None:
        """Begin a new average, of arrays of one shape at all nodes. All nodes must begin it."""
        value = np.array(value, dtype=np.float64)
        series = self.mixing["series"] + 1
        self.mixing = {"series": series, "shape": list(value.shape), "value": value.ravel()}
        self.mixing |= {"before": value.ravel(), "weight": 1.0, "omega": 0.0, "part": 0.0}
        self.sums_sent = {"value": np.zeros(value.size), "weight": 0.0}
        self.heard = {}

    def add_to_mixture(self, change: Any) -> None:
        """Change this node's part of the average under way; further mixes spread it."""
        value = self.mixing["value"] + np.asarray(change, dtype=np.float64).ravel()
        self.mixing = {**self.mixing, "value": value, "before": value, "omega": 0.0}

    @property
    def mixture(self) -> Doubles:
        """The node's estimate of the average."""
        estimate = self.mixing["value"] / self.mixing["weight"]
        return np.asarray(estimate.reshape(self.mixing["shape"]))

    # Averaging.

    @step(cumulative=True)
    def offer_mixture(self) -> Mixture:
        """The running value, to every neighbour."""
        return Mixture(**self.mixture_fields())

    @step
    def take_mixture(self, received: dict[int, Mixture]) -> None:
        """One mix."""
        self.mix(received)

    def mixture_fields(self) -> dict[str, Any]:
        """The fields of what is offered, for messages of another kind."""
        now, degree = self.mixing, len(self.site.neighbours)
        if self.setup.lossy:
            part = 1.0 / (1 + degree)
            values = {key: self.sums_sent[key] + part * now[key] for key in ("value", "weight")}
            self.sums_sent, self.mixing = values, {**now, "part": part}
        else:
            values = {key: now[key] for key in ("value", "weight")}
        return {**values, "degree": degree, "series": now["series"]}

    def mix(self, received: Mapping[int, Any]) -> None:
        """Take what the neighbours offered; messages of an earlier average say nothing now."""
        series = self.mixing["series"]
        received = {n: message for n, message in received.items() if message.series == series}
        for sender, message in received.items():
            if message.value.shape != self.mixing["value"].shape:
                raise MessageRefused(
                    f"{message.value.size} values came where {self.mixing['value'].size} are "
                    f"averaged; all nodes must average arrays of one shape",
                    party=self.site.names[sender],
                )
        if self.setup.lossy:
            self._take_running_sums(received)
        else:
            self._take_values(received)

    def _take_values(self, received: Mapping[int, Any]) -> None:
        """One step of Chebyshev's recurrence."""
        now, degree = self.mixing, len(self.site.neighbours)
        pull = np.zeros_like(now["value"])
        for other in received.values():
            pull += metropolis_weight(degree, other.degree) * (other.value - now["value"])
        mixed = now["value"] + pull / (1 - self.setup.mix_centre)
        omega = next_omega(now["omega"], self.setup.mix_radius)
        value = now["before"] + omega * (mixed - now["before"])
        self.mixing = {**now, "value": value, "before": now["value"], "omega": omega}

    def _take_running_sums(self, received: Mapping[int, Any]) -> None:
        """Keep the share that was not given away; add what is new in the neighbours' sums."""
        now = self.mixing
        own_part = 1.0 - now["part"] * len(self.site.neighbours)
        mixed = {key: own_part * now[key] for key in ("value", "weight")}
        heard = dict(self.heard)
        for sender, message in sorted(received.items()):
            for key in mixed:
                before = heard.get(str(sender), {"value": 0.0, "weight": 0.0})[key]
                mixed[key] = mixed[key] + (getattr(message, key) - before)
            heard[str(sender)] = {"value": message.value, "weight": message.weight}
        self.heard = heard
        self.mixing = {**now, **mixed, "part": 0.0}

    # Largest values.

    @step(cumulative=True)
    def offer_peak(self) -> Largest:
        """The largest values so far, to every neighbour."""
        return Largest(value=self.peak)

    @step
    def take_peaks(self, received: dict[int, Largest]) -> None:
        """Keep the largest of each."""
        for sender, other in received.items():
            if other.value.shape != self.peak.shape:
                raise MessageRefused(
                    f"{other.value.size} values came where {self.peak.size} are compared",
                    party=self.site.names[sender],
                )
            self.peak = np.maximum(self.peak, other.value)


# The coordinator's side, and what of it stands in schedules.


def mixing(nodes: Federation) -> dict[str, Any]:
    """The fields of a `MixingSetup`; the graph is public, so whoever runs the schedule knows it."""
    return mixing_on(require_graph(nodes))


def mixing_on(graph: nx.Graph) -> dict[str, Any]:
    """The first node that is there, where one must begin."""
    spectrum = MixingSpectrum.of(graph)
    return {
        "mix_centre": spectrum.centre,
        "mix_radius": spectrum.radius,
        "lossy": is_lossy(graph),
    }


def mixes_for(nodes: Federation, accuracy: float = ACCURACY) -> int:
    """Mixes after which a share of at most `accuracy` is left of the nodes' differences."""
    return mixes_on(require_graph(nodes), accuracy)


def mixes_on(graph: nx.Graph, accuracy: float = ACCURACY) -> int:
    """The first node that is there, where one must begin."""
    if is_lossy(graph):
        return lossy_mixes(graph, accuracy)
    return MixingSpectrum.of(graph).mixes(accuracy)


def average(nodes: Federation, role: type[MixingParty], n_mixes: int | None = None) -> None:
    """Average what every node has begun to mix; until it is equal everywhere if `n_mixes` is None.

    A graph that a node leaves on the way mixes more slowly: its mixes are counted anew.
    """
    covered = None
    while covered != nodes.parties:
        covered = nodes.parties
        times = mixes_for(nodes) if n_mixes is None else n_mixes
        nodes.exchange(role.offer_mixture, role.take_mixture, times=times)
        if n_mixes is not None:
            return


def mixing_rounds(
    scope: Scope,
    role: type[MixingParty],
    size: Size | Amount,
    accuracy: float | None = None,
    n_mixes: int | None = None,
    finer: float | None = None,
    is_fullest: bool = False,
) -> Node:
    """`average` of arrays of `size` numbers; with `n_mixes`, or `mixes_for` some `accuracy`.

    Or for a `finer` one, which a plan counts if `is_fullest`. Where nodes may leave, the mixes are
    those of some connected part of the graph.
    """
    steps = (role.offer_mixture, role.take_mixture)
    if n_mixes is not None:
        return exchange(*steps, n_mixes, n=size)
    usual, fewest, most = _mixes_in(scope, ACCURACY if accuracy is None else accuracy)
    if finer is not None:
        more, _, most = _mixes_in(scope, finer)
        usual = more if is_fullest else usual
    if accuracy is None and scope.lossy:
        most = _mixes_of_attempts(scope, ACCURACY if finer is None else finer)
    return exchange(*steps, most, fewest, usual, n=size)


@lru_cache(maxsize=64)  # eigenvalues of a large graph take their time
def _mixes_in(scope: Scope, accuracy: float) -> tuple[int, int, int]:
    """As many as there are if no node leaves, the fewest and the most."""
    graph = graph_in(scope)
    usual = mixes_on(graph, accuracy)
    if not scope.lossy:
        return usual, usual, usual
    return usual, *lossy_mixes_of_parts(graph, accuracy)


@lru_cache(maxsize=64)
def _mixes_of_attempts(scope: Scope, accuracy: float) -> int:
    """At most so many if the mixes are counted anew whenever a node has left."""
    graph, left = graph_in(scope), range(1 + scope.restarts)
    return sum(lossy_mixes_of_parts(graph, accuracy, n_left)[1] for n_left in left)


def largest(nodes: Federation, role: type[MixingParty]) -> None:
    """Every node's `peak` becomes the largest of all, entry by entry."""
    nodes.exchange(role.offer_peak, role.take_peaks, times=rounds_across(nodes))


def largest_rounds(scope: Scope, role: type[MixingParty], size: Size | Amount) -> Node:
    """`largest` of arrays of `size` numbers."""
    return crossing(scope, role.offer_peak, role.take_peaks, n=size)


def rounds_across(nodes: Federation) -> int:
    """Exchanges in which news from any node reaches all; three times over where some get lost."""
    return rounds_over(require_graph(nodes))


def rounds_over(graph: nx.Graph) -> int:
    """The first node that is there, where one must begin."""
    rounds = int(nx.diameter(graph))
    return _TIMES_OVER * rounds if is_lossy(graph) else rounds


def crossing(scope: Scope, send: Any, take: Any, **sizes: Size | Amount) -> Node:
    """`rounds_across` exchanges."""
    usual, most = rounds_in(scope)
    return exchange(send, take, most, 0 if scope.lossy else None, usual, 0, **sizes)


@lru_cache(maxsize=64)
def rounds_in(scope: Scope) -> tuple[int, int]:
    """`rounds_over` the graph, and the most of any part that is left of it.

    The fewest are then none: who is alone has nobody to tell.
    """
    graph = graph_in(scope)
    usual = rounds_over(graph)
    return usual, _TIMES_OVER * (len(graph) - 1) if scope.lossy else usual


def enlist_left(scope: Scope, role: type[MixingParty], setup: Message) -> Enlist:
    """Nodes built from a setup that says what the graph is like, which nodes may have left."""
    if not scope.lossy:
        return enlist(role, setup)
    n = scope.n_taking_part
    bounds = {"mix_centre": (-1.0, 1.0), "mix_radius": (0.0, 1.0)}
    bounds |= {"first": (0, n - 1), "n_nodes": (1, n)}
    present = {field.name for field in fields(setup)}  # type: ignore[arg-type]
    return enlist(role, setup, {name: bounds[name] for name in bounds.keys() & present})


def require_agreement(averages: Mapping[str, float], tolerance: float) -> None:
    """Name the nodes whose average is another than most nodes', and these: they are not mixed.

    >>> require_agreement({"a": 1.0, "b": 1.0, "c": 2.0}, 1e-6)
    Traceback (most recent call last):
    eigenmesh.errors.FederationError: 'c' (1 of 3 nodes) ended with another average than ...
    """
    common = float(np.median(list(averages.values())))
    apart = [n for n, own in averages.items() if not abs(own - common) <= tolerance * abs(common)]
    if apart:
        rest = [name for name in averages if name not in apart]
        raise FederationError(
            f"{in_short(apart)} ({len(apart)} of {len(averages)} nodes) ended with another average "
            f"than {in_short(rest) or 'most'}: too many messages between them were lost, or what "
            f"one of them sent is wrong; fit again, or choose a graph with more edges"
        )


def require_graph(nodes: Federation) -> nx.Graph:
    """The graph of a federation without a centre."""
    return _present(nodes.graph)


def graph_in(scope: Scope) -> nx.Graph:
    """The graph of a schedule without a centre."""
    return _present(scope.graph)


def _present(graph: nx.Graph | None) -> nx.Graph:
    if graph is None:
        raise TopologyError("nodes without a centre need a graph; pass topology= such as 'ring'")
    return graph


def root_on(graph: nx.Graph) -> int:
    """The first node that is there, where one must begin."""
    return int(min(graph.nodes))


def node_total(scope: Scope) -> dict[str, Size | Amount]:
    """How many nodes a `NodeTotal` can say that there are; fewer than at first if some left."""
    n = scope.n_taking_part
    return {"n_nodes": at_most(n) if scope.lossy else n}


class NodeTotal(Message, reveals=None):
    """How many nodes there are."""

    n_nodes: Annotated[int, Positive]
