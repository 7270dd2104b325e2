"""Kernel PCA over column partitions by the sum of the parties' own kernel matrices, exactly.

Cheung, Jiang, Yu and Lou merge the top vectors of the parties' kernel matrices (`vfed_paper`). What
such a merge is an estimate of is the sum Σ_i K_i: the kernel of all columns under which parties add
up, where that of `stages/summed_kernel.py` is the kernel of the pooled columns.

===================  ==========================================================================
party keeps          its columns; its share: columns and vectors
party reveals        its kernel matrix (distances), masked only the sum of all parties'; how many
                     samples and columns, a digest of the sample ids, its trace; the variance that
                     the vectors capture
coordinator learns   these; a party learns the vectors
===================  ==========================================================================

Centring is linear, so each party centres its own matrix and the sum is centred.
"""

from __future__ import annotations

import numpy as np

from eigenmesh.methods.vfed.paper import PaperResult, paper_model, require_samples_for
from eigenmesh.methods.vfed.paper_party import KernelVectors, PowerHolder, PowerSetup
from eigenmesh.numerics.eigen import top_eigenpairs
from eigenmesh.numerics.landmark_sums import full
from eigenmesh.runtime.federation import Federation
from eigenmesh.runtime.protocol import protocol
from eigenmesh.runtime.schedule import Node, Own, Scope, ask, enlist, loop, rows, sequence, total
from eigenmesh.stages.column_scores import ask_everyone


def schedule(scope: Scope, setup: PowerSetup, k: int) -> Node:
    """Two questions; when a party leaves, the others begin anew."""

    def pairs(own: Own) -> int:
        return own.rows * (own.rows + 1) // 2

    attempt = sequence(
        enlist(PowerHolder, setup),
        ask(PowerHolder.introduce),
        total(PowerHolder.kernel_summand, pairs=pairs),
        ask(PowerHolder.take_vectors, n=rows, k=k),
    )
    return loop(1 + scope.restarts, attempt, fewest=1, usual=1)


@protocol("vfed-kernel-sum", roles=(PowerHolder,), schedule=schedule)
def vfed_kernel_sum(columns: Federation, setup: PowerSetup, k: int) -> PaperResult:
    """The coordinator's side."""
    while True:
        columns.enlist(PowerHolder, setup)
        introductions = ask_everyone(columns, PowerHolder.introduce)
        require_samples_for(introductions, setup, k)
        K = full(columns.total(PowerHolder.kernel_summand).sum.upper)
        if setup.kernel == "sigmoid":  # indefinite: its components are in order of |λ|
            values, vectors = np.linalg.eigh(K)
            vectors = vectors[:, np.argsort(-np.abs(values))[:k]]
        else:
            vectors = top_eigenpairs(K, k)[1]
        ends = ask_everyone(columns, PowerHolder.take_vectors, KernelVectors(vectors=vectors))
        if columns.parties == introductions.parties:
            model = paper_model(introductions, ends, vectors, setup)
            reason = "the sum of the parties' kernel matrices is decomposed"
            return PaperResult(model, np.zeros((0, 0)), (), None, reason, converged=True)
