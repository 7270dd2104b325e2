"""Vertical federated PCA and kernel PCA as their paper has them. Not recommended: see `vfed_pca`.

Cheung, Jiang, Yu and Lou, "Vertical Federated Principal Component Analysis and Its Kernel Extension
on Feature-wise Distributed Data": the server's half of Algorithms 2 to 4, and Algorithm 5. What a
party does is in `vfed_power`.

===================  ========================================================================
party keeps          its columns X_i (n, f_i); its share: columns or loadings, and the vectors
party reveals        the top eigenpair (α_i, a_i) of its own matrix, every round, to the
                     coordinator or to its neighbours; how many samples and columns, a digest of
                     the sample ids; in the end the variance that the joint vectors capture
coordinator learns   these; a party learns the merged vectors
===================  ========================================================================

The merge is Σ ω_i a_i, ω_i = α_i/Σα (Alg. 4 scales the weights); then each party replaces its
columns by eq. (14). Alg. 5 merges with the neighbours only.

Readings: signs are aligned before merging and the merged vector has unit length; |α| counts where
a kernel is indefinite; more components by deflation. What follows from the text: eq. (14) makes
the columns rank one, so nothing moves after the second round; and neighbours that merge once a
round do not come to agree.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from eigenmesh.errors import RankError
from eigenmesh.methods.vfed.paper_maths import apart
from eigenmesh.methods.vfed.paper_party import JointVector, PowerHolder, PowerSetup, merge
from eigenmesh.numerics.arrays import Doubles
from eigenmesh.numerics.column_fusion import Components, SumFusion
from eigenmesh.runtime.federation import Federation
from eigenmesh.runtime.protocol import protocol
from eigenmesh.runtime.records import record
from eigenmesh.runtime.results import Replies
from eigenmesh.runtime.schedule import (
    Node,
    Scope,
    ask,
    enlist,
    exchange,
    loop,
    rows,
    sequence,
    times,
)
from eigenmesh.stages.column_scores import ColumnModel, ask_everyone

MERGES = ("weighted", "average", "isolated")


@record
@dataclass(frozen=True)
class PaperResult:
    """The model, the merged vectors of every round, how far the first moved, and every node's.

    The history is (rounds, n) of one component, (rounds, n, k) of several; on a graph, where it is
    told if it is asked for, (rounds, nodes, n, k); empty if there is none.
    """

    model: ColumnModel
    history: Doubles
    convergence: tuple[float, ...]
    node_vectors: Doubles | None  # (nodes, n, k), where there is none
    stop_reason: str
    converged: bool = False


def schedule(
    scope: Scope, setup: PowerSetup, k: int, n_rounds: int, keep_history: bool = False
) -> Node:
    """A vector up and down a round; when a party leaves, the others begin anew."""
    if setup.merge == "isolated":
        alone = times(k, ask(PowerHolder.work_alone), ask(PowerHolder.next_component))
        rounds = sequence(alone, ask(PowerHolder.tell_vectors, n=rows, k=k, rounds=0))
    elif scope.edges is not None:
        swap = (PowerHolder.offer_pair, PowerHolder.merge_pairs)
        swaps = exchange(*swap, n_rounds, n=rows, directions=1)
        if keep_history:
            joint = ask(PowerHolder.tell_joint, n=rows)
            swaps = times(n_rounds, exchange(*swap, n=rows, directions=1), joint)
        rounds = sequence(
            times(k, swaps, ask(PowerHolder.next_component)),
            ask(PowerHolder.tell_vectors, n=rows, k=k, rounds=k * n_rounds),
        )
    else:
        # A pair of the component before may stand in, until it is too old.
        stale = scope.max_age + 1 if scope.on_loss == "reuse" else 0
        first = ask(PowerHolder.local_pair, n=rows, directions=1)
        rounds = sequence(
            first,
            times(
                k * n_rounds - 1,
                ask(PowerHolder.next_pair, n=rows, directions=1),
                loop(stale, first, usual=0),
            ),
            ask(PowerHolder.finish, n=rows, k=k),
        )
    attempt = sequence(enlist(PowerHolder, setup), ask(PowerHolder.introduce), rounds)
    return loop(1 + scope.restarts, attempt, fewest=1, usual=1)


@protocol("vfed-paper", roles=(PowerHolder,), schedule=schedule)
def vfed_paper(
    columns: Federation, setup: PowerSetup, k: int, n_rounds: int, keep_history: bool = False
) -> PaperResult:
    """Algorithms 2 to 4 with a coordinator, Algorithm 5 on a graph; k times, by deflation.

    With `keep_history` nodes of a graph tell their vectors after every round.

    Eq. (14) leaves a party's vector in the others' columns: when it leaves, they begin anew.
    """
    while True:
        columns.enlist(PowerHolder, setup)
        introductions = ask_everyone(columns, PowerHolder.introduce)
        require_samples_for(introductions, setup, k)
        if setup.merge == "isolated":
            result = _alone(columns, introductions, setup, k)
        elif columns.graph is not None:
            sizes = (k, n_rounds)
            result = _among_neighbours(columns, introductions, setup, sizes, keep_history)
        else:
            result = _with_server(columns, introductions, setup, k, n_rounds)
        if columns.parties == introductions.parties:
            return result


def require_samples_for(introductions: Replies, setup: PowerSetup, k: int) -> None:
    """Deflation cannot tell by itself that nothing is left."""
    most = introductions[0].n_samples - setup.center
    if setup.kernel == "linear":
        most = min(most, sum(about.n_columns for about in introductions))
    if k > most:
        raise RankError(
            f"{k} components were asked for, {introductions[0].n_samples} samples of these columns "
            f"determine at most {most}; lower n_components"
        )


def _with_server(
    columns: Federation, introductions: Replies, setup: PowerSetup, k: int, n_rounds: int
) -> PaperResult:
    history: list[Doubles] = []
    pairs = columns.ask(PowerHolder.local_pair)
    for t in range(1, k * n_rounds):
        history.append(merge(list(pairs), setup, (t - 1) // n_rounds))
        message = JointVector(vector=history[-1], is_final=t % n_rounds == 0)
        pairs = columns.ask(PowerHolder.next_pair, message)
        while any(pair.component < t // n_rounds for pair in pairs):
            # An older pair stood in, of the component before: one of this is asked for.
            pairs = columns.ask(PowerHolder.local_pair)
    history.append(merge(list(pairs), setup, k - 1))
    last = JointVector(vector=history[-1], is_final=True)
    ends = ask_everyone(columns, PowerHolder.finish, last)
    vectors = np.column_stack(history[n_rounds - 1 :: n_rounds])
    first = history[:n_rounds]
    moved = [apart(u, v) for u, v in zip(first[1:], first, strict=False)]
    model = paper_model(introductions, ends, vectors, setup)
    reason = f"{n_rounds} rounds were asked for"
    whole = np.array(history).reshape(k, n_rounds, -1).transpose(1, 2, 0)
    return PaperResult(model, whole[:, :, 0] if k == 1 else whole, (1.0, *moved), None, reason)


def _among_neighbours(
    columns: Federation,
    introductions: Replies,
    setup: PowerSetup,
    sizes: tuple[int, int],
    keep_history: bool,
) -> PaperResult:
    (k, n_rounds), history = sizes, list[Doubles]()
    swap = (PowerHolder.offer_pair, PowerHolder.merge_pairs)
    for _ in range(k):
        if not keep_history:
            columns.exchange(*swap, times=n_rounds)
        for _ in range(n_rounds if keep_history else 0):
            columns.exchange(*swap)
            history.append(np.array([own.vector for own in columns.ask(PowerHolder.tell_joint)]))
        columns.ask(PowerHolder.next_component)
    ends = columns.ask(PowerHolder.tell_vectors)
    moved = tuple(float(step) for step in ends[0].moved[:n_rounds])
    reason = f"{n_rounds} rounds were asked for"
    result = _of_nodes(introductions, ends, setup, moved, reason)
    if not keep_history or columns.parties != introductions.parties:
        return result
    by_component = np.array(history).reshape(k, n_rounds, len(ends), -1)
    return replace(result, history=by_component.transpose(1, 2, 3, 0))


def _alone(columns: Federation, introductions: Replies, setup: PowerSetup, k: int) -> PaperResult:
    for _ in range(k):
        columns.ask(PowerHolder.work_alone)
        columns.ask(PowerHolder.next_component)
    ends = columns.ask(PowerHolder.tell_vectors)
    return _of_nodes(introductions, ends, setup, (), "every party has worked on its own")


def _of_nodes(
    introductions: Replies, ends: Replies, setup: PowerSetup, moved: tuple[float, ...], reason: str
) -> PaperResult:
    """The first node's vectors stand for the model; all of them are told."""
    model = paper_model(introductions, ends, ends[0].vectors, setup)
    vectors = np.array([end.vectors for end in ends])
    return PaperResult(model, np.zeros((0, 0)), moved, vectors, reason)


def paper_model(
    introductions: Replies, ends: Replies, merged: Doubles, setup: PowerSetup
) -> ColumnModel:
    """The vectors in order of the variance that they capture at all parties."""
    about: Mapping[str, Any] = dict(zip(introductions.parties, introductions, strict=True))
    captured = np.sum([end.captured for end in ends], axis=0)
    order = np.argsort(-np.abs(captured), kind="stable")
    k, p = len(order), len(ends)
    by_size = setup.kernel == "sigmoid"
    vectors = merged[:, order]
    components = Components.first(captured[order], vectors, k, "the columns", by_size)
    # The parties project on their vectors as they found them: order and sign are the centre's.
    signs = np.sign(np.einsum("ij,ij->j", components.eigenvectors, vectors))
    mixing = np.zeros((k, k))
    mixing[order, np.arange(k)] = signs / np.sqrt(np.abs(components.eigenvalues))
    total = float(sum(about[name].total for name in ends.parties))
    return ColumnModel(
        SumFusion(components, (mixing,) * p, total, total),
        name=setup.model,
        parties=ends.parties,
        widths=tuple(about[name].n_columns for name in ends.parties),
        sent=(k,) * p,
        n_samples=introductions[0].n_samples,
    )
