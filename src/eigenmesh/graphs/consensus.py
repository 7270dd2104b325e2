"""Averages and largest values over a graph: what protocols without a centre build on.

Along a spanning tree, unless gossip is asked for: sums go up to the root, the total comes down. All
have it after 2(n − 1) messages, exactly, and to the last bit the same. A message that is lost is
sent again; without a node that leaves, a sum is begun anew on the tree of those who are left.

By gossip, for those who trust no tree: Xiao and Boyd, "Fast linear iterations for distributed
averaging", Systems & Control Letters 53, 2004, accelerated by Chebyshev's polynomials; and, where
messages may be lost, the running sums of Hadjicostis, Vaidya and Domínguez-García, "Robust
distributed average consensus via exchange of running sums", IEEE Transactions on Automatic Control
61, 2016.

=============  =============================================================================
node keeps     on a tree what it began with, unless it is a leaf; by gossip its neighbours see
               that in the first mix
node reveals   on a tree, to its parent: the sum over the nodes below and itself, with their
               number, so of a leaf what it began with; to its children: the total of all.
               By gossip, to its neighbours: the running value. Either way moments, unless its
               protocol says otherwise, and its degree
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

**Lost messages, by gossip.** With on_loss="raise" none is ever lost: a round is complete or undone.
With "survivors" or "reuse" a message may be missing, and a plain mix would move the average, for
good: one end of an edge has given, the other has not received. So there nodes send the running sum
of all that they have given, to each neighbour as much as they keep. Whoever missed a message gets
its content with the next one, an old message gives nothing twice, and every node counts its share
by a weight that travels alike: nodes of many neighbours end with more of both. The limit is the
plain average, whatever is lost; the price is acceleration (`mixes_for` allows for that: several
times more mixes). A node that leaves takes its share with it, value and weight alike: if it goes at
the start the others' average is left, if later something between.

**Links that go one way**, `averaging="push-sum"`: Kempe, Dobra and Gehrke, "Gossip-based
computation of aggregate information", FOCS 2003, in the same form. No node needs to know who hears
whom elsewhere, or whether anything arrives: it gives equal shares of value and weight to all that
hear it, as running sums, so that links may come and go. Weights stay positive, since a node keeps a
share of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from functools import lru_cache
from typing import Annotated, Any, ClassVar

import networkx as nx
import numpy as np

from eigenmesh.errors import FederationError, MessageRefused, TopologyError
from eigenmesh.graphs.tree_rounds import along_tree, tree_rounds
from eigenmesh.numerics.arrays import Doubles
from eigenmesh.numerics.mixing import (
    MixingSpectrum,
    lossy_mixes,
    lossy_mixes_of_parts,
    metropolis_weight,
    most_push_sum_mixes,
    next_omega,
    push_sum_mixes,
)
from eigenmesh.runtime.federation import Federation
from eigenmesh.runtime.message import Floats, Message, NonNegative, Positive, Reveals, Shape
from eigenmesh.runtime.party import Party, step
from eigenmesh.runtime.schedule import Amount, Enlist, Node, Scope, Size, at_most, enlist, exchange
from eigenmesh.runtime.site import SiteView
from eigenmesh.runtime.spanning_tree import UP, SpanningTree
from eigenmesh.runtime.statements import in_short
from eigenmesh.runtime.topology import (
    GOSSIP,
    PUSH_SUM,
    TREE,
    averaging_on,
    is_lossy,
    tolerance_on,
)

_TIMES_OVER = 3  # news are told where messages may be lost


class MixingSetup(Message, reveals=None):
    """What the graph says of mixing; `mixing` fills it in."""

    mix_centre: float
    mix_radius: float
    lossy: bool  # whether running sums are sent
    push_sum: bool


class Mixture(Message, reveals="moments"):
    """On a tree the sum over some nodes, or all; by gossip a running value.

    Where messages of gossip may be lost it is the sum of all that were sent.
    """

    value: Annotated[Floats, Shape("n")]
    weight: float  # on a tree, how many nodes it is the sum of
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
        flat = value.ravel()
        self.mixing = {"series": series, "shape": list(value.shape), "own": flat, "value": flat}
        self.mixing |= {"before": flat, "weight": 1.0, "omega": 0.0, "part": 0.0}
        self.mixing["moved"] = 0.0
        self.sums_sent = {"value": np.zeros(value.size), "weight": 0.0}
        self.heard = {}

    def add_to_mixture(self, change: Any) -> None:
        """Change this node's part of the average under way; further mixes spread it."""
        change = np.asarray(change, dtype=np.float64).ravel()
        now, value = self.mixing, self.mixing["value"] + change
        self.mixing = {**now, "value": value, "before": value, "omega": 0.0}
        self.mixing |= {"own": now["own"] + change}

    @property
    def mixture(self) -> Doubles:
        """The node's estimate of the average."""
        estimate = self.mixing["value"] / self.mixing["weight"]
        return np.asarray(estimate.reshape(self.mixing["shape"]))

    @property
    def tree_total(self) -> Doubles:
        """The sum over all nodes, once it has come down a tree; of whole numbers exact."""
        return np.asarray(self.mixing["value"].reshape(self.mixing["shape"]))

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
        if self.site.way == UP or (self.site.way and self.is_root):
            values = self._sum_below()
        elif self.setup.lossy and not self.site.way:
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
        if self.site.way == UP:
            self._hear(received)
        elif self.site.way:
            self._take_total(received)
        elif self.setup.lossy:
            self._take_running_sums(received)
        else:
            self._take_values(received)

    # Along a tree.

    def _hear(self, received: Mapping[int, Any]) -> None:
        """Keep the children's sums; those of a tree that is no more say nothing now."""
        tree = str(self.site.missing)
        sums = {str(n): {"value": m.value, "weight": m.weight} for n, m in received.items()}
        self.heard = {tree: {**self.heard.get(tree, {}), **sums}}

    def _from_children(self) -> list[Any]:
        """What the children said, in their order; all of them have to."""
        heard = self.heard.get(str(self.site.missing), {})
        missing = [n for n in self.site.children if str(n) not in heard]
        if missing:
            names = ", ".join(repr(self.site.names[n]) for n in missing[:5])
            raise MessageRefused(f"a sum is asked for before that of {names} has come")
        return [heard[str(n)] for n in self.site.children]

    def _sum_below(self) -> dict[str, Any]:
        """Of the own value and those of all nodes below; at the root the total."""
        value, weight = self.mixing["own"], 1.0
        for other in self._from_children():
            value, weight = value + other["value"], weight + other["weight"]
        if self.is_root:
            self.mixing = {**self.mixing, "value": value, "weight": weight}
        return {"value": value, "weight": weight}

    @property
    def is_root(self) -> bool:
        """Whether sums along the tree end here."""
        return self.site.parent is None

    def total_at_root(self) -> Doubles:
        """The sum over all nodes, where it went up and has not come down."""
        return np.asarray(self._sum_below()["value"])

    def _take_total(self, received: Mapping[int, Any]) -> None:
        for message in received.values():
            self.mixing = {**self.mixing, "value": message.value, "weight": message.weight}

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
        moved = abs(mixed["weight"] - now["weight"]) / now["weight"]
        self.mixing = {**now, **mixed, "part": 0.0, "moved": moved}

    # Largest values.

    @step(cumulative=True)
    def offer_peak(self) -> Largest:
        """The largest values so far, to every neighbour."""
        return Largest(value=self.peak)

    @step
    def take_peaks(self, received: dict[int, Largest]) -> None:
        """Keep the largest of each; the root's are those of all."""
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
    """The same of a graph; along a tree nothing of its spectrum matters."""
    averaging = averaging_on(graph)
    spectrum = MixingSpectrum.of(graph) if averaging == GOSSIP else MixingSpectrum(0.0, 0.0)
    return {
        "mix_centre": spectrum.centre,
        "mix_radius": spectrum.radius,
        "lossy": is_lossy(graph) or averaging == PUSH_SUM,
        "push_sum": averaging == PUSH_SUM,
    }


def mixes_for(nodes: Federation, accuracy: float | None = None) -> int:
    """Mixes after which a share of at most `accuracy` is left of the nodes' differences.

    None stands for the tolerance with which nodes of this graph average.
    """
    return mixes_on(require_graph(nodes), accuracy)


def mixes_on(graph: nx.Graph, accuracy: float | None = None) -> int:
    """The same of a graph; along a tree there are none, and an average counts as one."""
    accuracy = tolerance_on(graph) if accuracy is None else accuracy
    if averaging_on(graph) == TREE:
        return 1
    if averaging_on(graph) == PUSH_SUM:
        return push_sum_mixes(graph, accuracy, 2 if is_lossy(graph) else 1)
    if is_lossy(graph):
        return lossy_mixes(graph, accuracy)
    return MixingSpectrum.of(graph).mixes(accuracy)


def average(nodes: Federation, role: type[MixingParty], n_mixes: int | None = None) -> None:
    """Average what every node has begun to mix.

    Along a tree it is exact. By gossip there are `n_mixes`, or if None as many as make it equal
    everywhere; a graph that a node leaves on the way mixes more slowly: they are counted anew.
    """
    if not nodes.scope.gossips:
        along_tree(nodes, role.offer_mixture, role.take_mixture)
        return
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
    those of some connected part of the graph. Along a tree none of that matters.
    """
    steps = (role.offer_mixture, role.take_mixture)
    if not scope.gossips:
        return tree_rounds(scope, *steps, n=size)
    if n_mixes is not None:
        return exchange(*steps, n_mixes, n=size)
    usual, fewest, most = _mixes_in(scope, scope.tolerance if accuracy is None else accuracy)
    if finer is not None:
        more, _, most = _mixes_in(scope, finer)
        usual = more if is_fullest else usual
    if accuracy is None and scope.lossy:
        most = _mixes_of_attempts(scope, scope.tolerance if finer is None else finer)
    return exchange(*steps, most, fewest, usual, n=size)


@lru_cache(maxsize=64)  # eigenvalues of a large graph take their time
def _mixes_in(scope: Scope, accuracy: float) -> tuple[int, int, int]:
    """As many as there are if no node leaves, the fewest and the most."""
    graph = graph_in(scope)
    usual = mixes_on(graph, accuracy)
    if not scope.lossy:
        return usual, usual, usual
    if scope.averaging == PUSH_SUM:
        return usual, 1, most_push_sum_mixes(graph)
    return usual, *lossy_mixes_of_parts(graph, accuracy)


@lru_cache(maxsize=64)
def _mixes_of_attempts(scope: Scope, accuracy: float) -> int:
    """At most so many if the mixes are counted anew whenever a node has left."""
    graph, left = graph_in(scope), range(1 + scope.restarts)
    if scope.averaging == PUSH_SUM:
        return len(left) * most_push_sum_mixes(graph)
    return sum(lossy_mixes_of_parts(graph, accuracy, n_left)[1] for n_left in left)


def largest(nodes: Federation, role: type[MixingParty]) -> None:
    """Every node's `peak` becomes the largest of all, entry by entry."""
    steps = (role.offer_peak, role.take_peaks)
    if nodes.scope.gossips:
        nodes.exchange(*steps, times=rounds_across(nodes))
    else:
        along_tree(nodes, *steps)


def largest_rounds(scope: Scope, role: type[MixingParty], size: Size | Amount) -> Node:
    """`largest` of arrays of `size` numbers."""
    steps = (role.offer_peak, role.take_peaks)
    if scope.gossips:
        return crossing(scope, *steps, n=size)
    return tree_rounds(scope, *steps, n=size)


def rounds_across(nodes: Federation) -> int:
    """Exchanges in which news from any node reaches all; three times over where some get lost."""
    return rounds_over(require_graph(nodes))


def rounds_over(graph: nx.Graph) -> int:
    """The first node that is there, where one must begin."""
    rounds = int(nx.diameter(graph))
    return _TIMES_OVER * rounds if is_lossy(graph) else rounds


def crossing(scope: Scope, send: Any, take: Any, **sizes: Any) -> Node:
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
    """The node that begins, where one must: the root of the tree, which is near to all."""
    return SpanningTree.of(graph).root


def node_total(scope: Scope) -> dict[str, Size | Amount]:
    """How many nodes a `NodeTotal` can say that there are; fewer than at first if some left."""
    n = scope.n_taking_part
    return {"n_nodes": at_most(n) if scope.lossy else n}


class NodeTotal(Message, reveals=None):
    """How many nodes there are."""

    n_nodes: Annotated[int, Positive]
