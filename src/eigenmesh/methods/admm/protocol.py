"""Kernel PCA on a graph without a centre, by consensus of projections.

He, Yang, Shi and Huang, "A Decentralized Framework for Kernel PCA with Projection Consensus
Constraints", 2022: Algorithm 1, after `admm_neighbourhood` has exchanged the rows.

=============  ===========================================================================
node keeps     its rows, multipliers, the common direction as seen from here
node reveals   to each neighbour: coefficients and multipliers (eigenvectors), the scores of
               the neighbour's own rows (scores); to all, on their way to an average: its
               variance along the components (moments)
=============  ===========================================================================

Letters as in `maths`: α, w = φ(X)α, B multipliers, z; Ω_j are a node and its neighbours.

Readings: a node is in its own Ω_j. z is kept orthonormal, which for several components is the polar
factor. Signs, or rotations, are made equal once, along the tree on which news spreads from the
root. The start is the components of all rows that a node knows, and each z-step is corrected for
the projections that (9) leaves out (`Neighbourhood.consensus`), from multipliers that are already
in balance; variant "paper" does none of these. A random start is that of Algorithm 1 as printed:
there are no signs to make equal then, and none are. At the end all nodes rotate their components
alike, so that they are in the order of their variance.
Above the usual length, because a node's part of Algorithm 1 is: its equations stand in one place.
A neighbour's missing message is replaced by its last one; a neighbour that has left, or never sent
its rows, is out of Ω_j.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

import networkx as nx
import numpy as np

from eigenmesh.errors import FederationError, MessageRefused, StepRefused
from eigenmesh.graphs.consensus import (
    MixingParty,
    average,
    graph_in,
    largest,
    largest_rounds,
    mixes_for,
    mixing_rounds,
    node_total,
    require_agreement,
    rounds_across,
    rounds_in,
    rounds_over,
)
from eigenmesh.graphs.node_models import KEPT, MOST_ROWS, require_few
from eigenmesh.methods.admm.maths import (
    Neighbourhood,
    alignment,
    cosines,
    from_words,
    orthonormal,
    penalties_at,
)
from eigenmesh.methods.admm.messages import (
    AUTO,
    AdmmResult,
    AdmmSetup,
    Change,
    Coefficients,
    NodeCount,
    Outcome,
    Projections,
    Reference,
    Similarity,
)
from eigenmesh.methods.admm.neighbourhood import STORE
from eigenmesh.numerics.arrays import Doubles
from eigenmesh.numerics.eigen import fix_signs
from eigenmesh.numerics.kernels import Kernel
from eigenmesh.numerics.landmarks import LandmarkModel
from eigenmesh.runtime.federation import Federation
from eigenmesh.runtime.party import step
from eigenmesh.runtime.protocol import protocol
from eigenmesh.runtime.records import record
from eigenmesh.runtime.schedule import (
    Amount,
    Node,
    Own,
    Scope,
    ask,
    at_most,
    columns,
    enlist,
    exchange,
    loop,
    rows,
    sequence,
)
from eigenmesh.runtime.site import SiteView
from eigenmesh.stages.row_messages import unpack

for kind in (LandmarkModel, Kernel):
    record(kind)

CORRECTIONS = 3  # of a z-step; more change little
_MOST = 1.01  # of all variance, along components; lost messages leave some difference
_APART = 1e-3  # of a total, between nodes that have agreed; lost messages leave some difference
_TINY = 1e-300
VARIANCE_ACCURACY = 1e-8  # the nodes' components differ by more than that


class AdmmPeer(MixingParty):
    """Holds rows and, in its store, its neighbours' rows and the origin."""

    Setup = AdmmSetup
    state = (
        *MixingParty.state,
        *("alpha", "z", "before", "multipliers", "coefficients", "projections"),
        *("aligned", "to_align", "iteration", "penalty", "truth", "basis", "changes"),
    )

    def __init__(self, site: SiteView, setup: AdmmSetup) -> None:
        super().__init__(site, setup)
        share = site.kept(STORE, "rows", "origin")
        if share is None or share["origin"] is None:
            raise StepRefused("the neighbours' rows have not been exchanged", party=site.name)
        require_few(sum(rows.shape[0] for rows in share["rows"].values()), site.name)
        self.near = Neighbourhood(share["origin"], share["rows"], site.index)
        k = setup.n_components
        local, (pooled, self.gap) = self.near.local_start(k), self.near.pooled_start(k)
        self.z = pooled if setup.start == "neighbours" else local
        if setup.start == "random":
            self.z = self._random_start()
        self.before = self.z
        self.alpha = self.near.coefficients(self._own(self.z))
        self.multipliers = self._first_multipliers() if setup.start == "neighbours" else {}
        self.coefficients: dict[str, dict[str, Any]] = {}  # the last that each neighbour sent
        self.projections: dict[str, Doubles] = {}
        self.aligned = site.index == setup.root or setup.start == "random"
        self.to_align = repeats(setup.lossy) if self.aligned else 0
        self.iteration = 0
        self.penalty = setup.penalty
        self.penalties = from_words(setup.penalties)
        self.truth = np.zeros((0, k))
        self.basis = np.eye(k)
        self.changes: list[float] = []  # of z, the sine of the angle, by iteration
        self.peak = np.array([self.near.spectrum.sufficient_penalty(len(self.near.members))])

    def _random_start(self) -> Doubles:
        """Directions of unit norm in the span of the own rows."""
        c = np.zeros_like(self.z)
        own = self.near.places[self.site.index]
        rng = self.site.generator(self.setup.seed, admm_kpca.number)
        c[own] = rng.normal(size=c[own].shape)
        return orthonormal(c, self.near.gram)

    def _first_multipliers(self) -> dict[str, Doubles]:
        """Those with which (12) leaves α where it is, 2K²α in all: a start that fits is kept."""
        own, members = self.near.places[self.site.index], self.near.members
        K = self.near.gram[own, own]
        share = 2 * K @ (K @ self.alpha) / len(members)
        return {str(n): share for n in members}

    def _own(self, z: Doubles) -> Doubles:
        return self.near.projected(z, self.site.index)

    def _tied(self) -> list[int]:
        """Neighbours that are still there and whose rows are known here."""
        return [n for n in self.site.neighbours if n in self.near.places]

    # 1. Before the iteration: one penalty, one sign.

    @step(reusable=False)
    def adopt_penalty(self) -> None:
        """The largest that any node needs."""
        self.penalty = float(self.peak[0])

    @step
    def offer_alignment(self) -> dict[int, Projections]:
        """The common direction z on the neighbour's rows, once the own sign is that of the root."""
        speaks = self.to_align > 0
        self.to_align = max(self.to_align - 1, 0)
        return self._to_each(lambda n: self.near.projected(self.z, n) if speaks else None)

    @step
    def take_alignment(self, received: dict[int, Projections]) -> None:
        """Turn to the first neighbour that has the root's sign."""
        values_of = {n: m.values for n, m in received.items() if len(m.values)}
        if self.aligned or not values_of:
            return
        theirs = self._checked(min(values_of), values_of[min(values_of)])
        turn = alignment(self._own(self.z).T @ self.near.coefficients(theirs))
        self.z, self.before, self.alpha = self.z @ turn, self.z @ turn, self.alpha @ turn
        self.multipliers = {n: B @ turn for n, B in self.multipliers.items()}
        self.aligned, self.to_align = True, repeats(self.setup.lossy)

    def _to_each(self, values: Any) -> dict[int, Projections]:
        """Something for each neighbour whose rows are known, nothing for the others."""
        nothing = np.zeros((0, self.setup.n_components))
        replies = {n: values(n) if n in self.near.places else None for n in self.site.neighbours}
        return {n: Projections(values=nothing if v is None else v) for n, v in replies.items()}

    def _checked(self, sender: int, values: Any) -> Doubles:
        """Projections of the own rows have one line a row."""
        if values.shape != self.alpha.shape:
            raise MessageRefused(
                f"projections of shape {values.shape} came, {self.alpha.shape} are expected",
                party=self.site.names[sender],
            )
        return np.asarray(values)

    # 2. One iteration: z, then α and the multipliers.

    def _penalties(self) -> tuple[float, float]:
        """Of the own constraint, and of the neighbours'."""
        if self.penalties:
            return penalties_at(self.penalties, self.iteration)
        return self.penalty, self.penalty

    def _penalty(self, node: int) -> float:
        return self._penalties()[node != self.site.index]

    def _multiplier(self, node: int) -> Doubles:
        return self.multipliers.get(str(node), np.zeros_like(self.alpha))

    @step
    def offer_coefficients(self) -> dict[int, Coefficients]:
        """α, and the multiplier of the receiver's constraint."""
        solve = self.near.spectrum.solve
        return {
            n: Coefficients(alpha=self.alpha, multiplier=solve(self._multiplier(n)))
            for n in self.site.neighbours
        }

    @step
    def form_consensus(self, received: dict[int, Coefficients]) -> None:
        """z-step."""
        for n in set(received) & set(self._tied()):
            if received[n].alpha.shape != (len(self.near.spectra[n].vectors), self.alpha.shape[1]):
                raise MessageRefused(
                    f"coefficients of shape {received[n].alpha.shape} came, one line is expected "
                    f"for each of the {len(self.near.spectra[n].vectors)} rows it sent",
                    party=self.site.names[n],
                )
        new = {str(n): {"a": m.alpha, "m": m.multiplier} for n, m in received.items()}
        self.coefficients = {**self.coefficients, **new}
        own = {"a": self.alpha, "m": self.near.spectrum.solve(self._multiplier(self.site.index))}
        heard = {n: self.coefficients[str(n)] for n in self._tied() if str(n) in self.coefficients}
        heard[self.site.index] = own
        penalties = {n: self._penalty(n) for n in sorted(heard)}
        parts = {n: heard[n]["m"] + rho * heard[n]["a"] for n, rho in penalties.items()}
        self.before = self.direction
        how = (self.setup.corrections, self.setup.unit_ball)
        self.z = self.near.consensus(parts, penalties, self.z, *how)
        least = cosines(self.before.T @ self.near.gram @ self.direction)[-1]
        self.changes = [*self.changes, float(np.sqrt(max(1 - least**2, 0.0)))]

    @property
    def direction(self) -> Doubles:
        """The consensus direction with unit norm, which it may have lost in the unit ball."""
        return orthonormal(self.z, self.near.gram) if self.setup.unit_ball else self.z

    @step
    def offer_projections(self) -> dict[int, Projections]:
        """The common direction z on the neighbour's rows."""
        return self._to_each(lambda n: self.near.projected(self.z, n))

    @step
    def update_coefficients(self, received: dict[int, Projections]) -> None:
        """α-step (12), then multipliers (13)."""
        new = {n: m.values for n, m in received.items() if len(m.values)}
        checked = {str(n): self._checked(n, values) for n, values in new.items()}
        self.projections = {**self.projections, **checked}
        projections = {
            n: self.projections[str(n)] for n in self._tied() if str(n) in self.projections
        }
        projections[self.site.index] = self._own(self.z)
        right = np.zeros_like(self.alpha)
        for n in sorted(projections):
            right += self._penalty(n) * projections[n] - self._multiplier(n)
        self.alpha = self.near.spectrum.update(sum(map(self._penalty, projections)), right)
        own = self.near.places[self.site.index]
        reached = self.near.gram[own, own] @ self.alpha
        steps = {n: self._penalty(n) * (reached - P) for n, P in projections.items()}
        self.multipliers = {str(n): self._multiplier(n) + steps[n] for n in projections}
        self.iteration += 1

    @step(reusable=False)
    def measure_change(self) -> None:
        """How far z has moved."""
        self.peak = np.array(self.changes[-1:])

    @step(reusable=False)
    def tell_change(self) -> Change:
        """The largest of all nodes."""
        return Change(change=float(self.peak[0]))

    # 3. Afterwards: variances of all rows along z, the common rotation, the models.

    @step(reusable=False)
    def begin_variances(self) -> None:
        """Average what makes up the eigenvalues."""
        scores = self._own(self.direction)
        own = self.near.places[self.site.index]
        trace = float(np.trace(self.near.gram[own, own]))
        facts = [len(scores), trace, self.gap, len(self.near.gram)]
        sums = scores.sum(axis=0)
        self.start_mixing(np.concatenate([(scores.T @ scores).ravel(), sums, facts]))

    @step(reusable=False)
    def finish(self, whole: NodeCount) -> Outcome:
        """Rotate to the principal directions; keep the models of w and of z in the store."""
        k = self.setup.n_components
        inner = self.mixture[: k * k].reshape(k, k) * whole.n_nodes
        sums = self.mixture[k * k : k * k + k] * whole.n_nodes
        n_rows, trace, gap, pooled = self.mixture[k * k + k :] * whole.n_nodes
        # The origin is only near the mean; what all rows' scores have in common is the difference.
        means = sums / n_rows if self.setup.center else np.zeros(k)
        centred = inner - n_rows * np.outer(means, means)
        values, turn = np.linalg.eigh((centred + centred.T) / 2)
        self.basis = np.asarray(fix_signs(turn[:, ::-1]))
        means = means @ self.basis
        eigenvalues, last = np.maximum(values[::-1], 0.0), float(values[0])
        gap, pooled = float(gap / whole.n_nodes), float(pooled / whole.n_nodes)
        facts = {"eigenvalues": eigenvalues, "next_eigenvalue": last * (1 - gap)}
        facts |= {"total": float(trace), "n_rows": round(n_rows)}
        self._keep_models(facts, means)
        return Outcome(
            **facts,
            penalty=self.penalty,
            gap=gap,
            pooled_rows=pooled,
            aligned=self.aligned,
            off_centre=n_rows * means**2 / np.maximum(n_rows * means**2 + eigenvalues, _TINY),
            change=self.changes[-1] if self.changes else 0.0,
            least_change=min(self.changes, default=0.0),
        )

    def _keep_models(self, facts: Mapping[str, Any], means: Doubles) -> None:
        """Into the store: w, and z with scores whose mean over all rows is 0."""
        local = self._model(self._w() @ self.basis, facts)
        z = self._model(self.direction @ self.basis, facts)
        consensus = replace(z, offset=z.offset + means)
        self.site.keep(KEPT, {"local": local, "consensus": consensus})

    def _w(self) -> Doubles:
        """The own direction w with unit norm, on all rows known here."""
        c = np.zeros_like(self.z)
        c[self.near.places[self.site.index]] = self.alpha
        return orthonormal(c, self.near.gram)

    def _model(self, c: Doubles, facts: Mapping[str, Any]) -> LandmarkModel:
        points, coefficients, offset = self.near.expansion(c)
        return LandmarkModel(self.near.origin.kernel, points, coefficients, offset, **facts)

    # Comparison with a reference.

    @step(reusable=False)
    def take_reference(self, reference: Reference) -> None:
        """Where the reference lies, as seen from the rows known here."""
        self.truth = self.near.heights_of(unpack(reference), reference.coefficients)

    @step
    def tell_similarity(self) -> Similarity:
        """With the reference: cosines of the principal angles."""
        own = self.truth[self.near.places[self.site.index]]
        reach = own.T @ self.near.coefficients(own)  # P w* with itself
        most = np.linalg.eigvalsh((reach + reach.T) / 2)[::-1]
        return Similarity(
            local=cosines(self._w().T @ self.truth),
            consensus=cosines(self.direction.T @ self.truth),
            ceiling=np.sqrt(np.clip(most, 0.0, 1.0)),
        )


def repeats(lossy: bool) -> int:
    """How often a node gives the root's sign on."""
    return 4 if lossy else 1


def schedule(
    scope: Scope, setup: AdmmSetup, n_iterations: int, tolerance: float | None, n_reference: int
) -> Node:
    """One penalty, one sign, then two exchanges an iteration; in the end one average."""
    peer, k = AdmmPeer, setup.n_components
    compares = ask(peer.tell_similarity, k=k) if n_reference else None
    finds_penalty = setup.penalty == AUTO and not setup.penalties
    return sequence(
        enlist(peer, setup),
        _reference(n_reference, k) if n_reference else None,
        largest_rounds(scope, peer, 1) if finds_penalty else None,
        ask(peer.adopt_penalty) if finds_penalty else None,
        None if setup.start == "random" else _alignment(scope, setup),
        compares,
        loop(
            n_iterations,
            exchange(peer.offer_coefficients, peer.form_consensus, n=rows, k=k),
            exchange(
                peer.offer_projections,
                peer.update_coefficients,
                n=at_most(MOST_ROWS, planned=_rows_of_receiver),
                k=k,
            ),
            compares,
            _watching(scope) if tolerance is not None else None,
            fewest=1 if tolerance is not None else n_iterations,
        ),
        ask(peer.begin_variances),
        mixing_rounds(scope, peer, k * k + k + 4, VARIANCE_ACCURACY),
        ask(peer.finish, down=node_total(scope), up={"k": k}),
    )


def _reference(n_rows: int, k: int) -> Node:
    return ask(AdmmPeer.take_reference, n=n_rows, m=n_rows, n_columns=columns, k=k)


def _alignment(scope: Scope, setup: AdmmSetup) -> Node:
    """`rounds_across` exchanges; a plan has in the first what a node says in several."""

    def spoken(own: Own) -> int:
        assert own.parties is not None, "who speaks how often is for plans"
        left = rounds_over(graph_in(scope)) - _distances(scope, setup.root)[own.index]
        return _rows_of_receiver(own) * min(left, repeats(scope.lossy))

    def rounds(usual: int, most: int, planned: Amount) -> Node:
        return exchange(
            AdmmPeer.offer_alignment,
            AdmmPeer.take_alignment,
            most,
            0 if scope.lossy else None,
            usual,
            n=at_most(MOST_ROWS, planned),
            k=setup.n_components,
        )

    usual, most = rounds_in(scope)
    first = min(usual, 1)
    return sequence(rounds(first, first, spoken), rounds(usual - first, most - first, 0))


@lru_cache(maxsize=8)
def _distances(scope: Scope, root: int) -> Mapping[int, int]:
    distances: Mapping[int, int] = nx.single_source_shortest_path_length(graph_in(scope), root)
    return distances


def _rows_of_receiver(own: Own) -> int:
    assert own.receiver is not None, "projections go to neighbours"
    return own.receiver.rows


def _watching(scope: Scope) -> Node:
    return sequence(
        ask(AdmmPeer.measure_change),
        largest_rounds(scope, AdmmPeer, 1),
        ask(AdmmPeer.tell_change),
    )


@protocol("admm-kpca", roles=(AdmmPeer,), schedule=schedule)
def admm_kpca(
    peers: Federation,
    setup: AdmmSetup,
    n_iterations: int,
    tolerance: float | None,
    n_reference: int = 0,
    reference: Reference | None = None,
) -> AdmmResult:
    """Algorithm 1: `n_iterations`, or until no z moves by more than `tolerance`.

    `reference` has the components of `n_reference` pooled rows, to compare with.
    """
    compared = reference is not None
    peers.enlist(AdmmPeer, setup)
    if reference is not None:
        peers.ask(AdmmPeer.take_reference, reference)
    if setup.penalty == AUTO and not setup.penalties:
        largest(peers, AdmmPeer)
        peers.ask(AdmmPeer.adopt_penalty)
    if setup.start != "random":
        n_rounds = rounds_across(peers)
        peers.exchange(AdmmPeer.offer_alignment, AdmmPeer.take_alignment, times=n_rounds)
    similarities = [_similarities(peers)] if compared else []
    reason = f"{n_iterations} iterations are done"
    for done in range(n_iterations):
        peers.exchange(AdmmPeer.offer_coefficients, AdmmPeer.form_consensus)
        peers.exchange(AdmmPeer.offer_projections, AdmmPeer.update_coefficients)
        if compared:
            similarities.append(_similarities(peers))
        if tolerance is not None and _largest_change(peers) <= tolerance:
            reason = f"no component moved by more than {tolerance:g} in iteration {done + 1}"
            break
    peers.ask(AdmmPeer.begin_variances)
    average(peers, AdmmPeer, mixes_for(peers, VARIANCE_ACCURACY))
    outcomes = peers.ask(AdmmPeer.finish, NodeCount(n_nodes=len(peers.parties)))
    _require_aligned(outcomes)
    totals = {n: own.total for n, own in zip(outcomes.parties, outcomes, strict=True)}
    require_agreement(totals, _APART)
    _require_possible(outcomes[0])
    changes = tuple((outcome.change, outcome.least_change) for outcome in outcomes)
    return AdmmResult(outcomes[0], changes, tuple(similarities), outcomes.parties, reason)


def _require_possible(outcome: Outcome) -> None:
    """Components have unit norm and right angles: along them is no more than all variance."""
    along, total = float(np.sum(outcome.eigenvalues)), outcome.total
    if along > _MOST * total:
        raise FederationError(
            f"the components have {along / total:.2f} of all variance: too many messages between "
            f"the nodes were lost, or what one of them sent is wrong; nobody can say which"
        )


def _similarities(peers: Federation) -> dict[str, Similarity]:
    replies = peers.ask(AdmmPeer.tell_similarity)
    return dict(zip(replies.parties, replies, strict=True))


def _largest_change(peers: Federation) -> float:
    peers.ask(AdmmPeer.measure_change)
    largest(peers, AdmmPeer)
    return float(peers.ask(AdmmPeer.tell_change)[0].change)


def _require_aligned(outcomes: Any) -> None:
    for outcome, name in zip(outcomes, outcomes.parties, strict=True):
        if not outcome.aligned:
            raise MessageRefused(
                "it never heard the sign of the root: too many messages were lost; fit again, or "
                "choose a graph with more edges",
                party=name,
            )
