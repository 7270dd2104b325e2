"""PCA over column partitions, exactly or as its paper has it, as a scikit-learn estimator."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Self

import numpy as np

from eigenmesh.estimators.base import Needs, Shapes
from eigenmesh.estimators.checks import one_of, whole_number
from eigenmesh.estimators.column_checks import concluded, positive, prepared_as
from eigenmesh.estimators.columns import LinearColumnEstimator
from eigenmesh.estimators.report import LESS_ON_A_GRAPH
from eigenmesh.methods.registry import Method, register
from eigenmesh.methods.vfed.graph import vfed_peers
from eigenmesh.methods.vfed.paper import PaperResult, vfed_paper
from eigenmesh.methods.vfed.paper_checks import PAPER_ROUNDS, VARIANTS, paper_caveats, power_setup
from eigenmesh.methods.vfed.protocol import VFedSetup, vfed_pca
from eigenmesh.numerics.kernels import Kernel
from eigenmesh.runtime.federation import Federation
from eigenmesh.runtime.schedule import Parties
from eigenmesh.runtime.study import Stage, stage
from eigenmesh.stages.count import survey
from eigenmesh.stages.linear_columns import VFedResult

MOST_ROUNDS = 50  # of the exact variant, which stops by its residuals
FIRST_SOUGHT = 8  # components, where a share of the variance is wanted


class VFedPCA(LinearColumnEstimator):
    """PCA of samples whose columns are held by several parties, exactly.

    A round takes one vector over the samples a component from each party, and one back. The first
    fuses the parties' own components, of which they send up to five more; every further one
    multiplies with the Gram matrix of the pooled columns, until the residuals are small. The answer
    is that of PCA on the pooled columns. Each owner keeps the loadings of its columns; scores are
    shared.

    Parameters
    ----------
    n_components : components wanted; None for all that have variance, a number between 0 and 1 for
        the fewest that explain so much of it, which are sought by 8, then 16, and so on.
    variant : "exact", or "paper" for the method as its paper has it, which stops short of the
        answer (it freezes after its second round, and warns).
    n_rounds : at most so many rounds; if None 50, and 10 for the paper's. An answer that has not
        converged by then says so.
    tolerance : residual ‖A u − λ u‖ of every component at which to stop, as a share of its own
        eigenvalue λ, however small that is beside the others.
    topology : None for a coordinator; "ring", "star", "grid", "full", ("lattice", k) or a graph for
        parties that talk to their neighbours only. Every node then ends with the same answer;
        with "paper" they do not, unless the graph is full.
    averaging : on a graph "tree" or "gossip", as in `GossipKPCA`.
    center : subtract each column's mean, at its owner.
    standardize : divide each column by its standard deviation as well, at its owner.
    fill_missing : share of a column's values that may be missing (NaN) and are then filled with the
        column's mean, at its owner; None for none.
    local_iterations, warm_start, weight_scaling, merge, align_signs : of "paper": power iterations
        a round; whether they start from the last merged vector; whether the larger half of the
        eigenvalues counts for more; "weighted" by eigenvalues, "average" (VFedAvgPCA) or
        "isolated", each party on its own; whether signs are aligned before merging, without which
        centred data go wrong.
    random_state : seed.
    keep_history : keep the vectors of every round, which take rounds × samples × components. With a
        coordinator nothing more is sent; on a graph every node tells its vectors each round.

    Attributes
    ----------
    eigenvalues_, eigenvectors_ : of the Gram matrix of the pooled, centred columns.
    explained_variance_ratio_, total_variance_, residual_ : sums of squares.
    components_ : loadings (n_components, n_features), where this process has every party's share;
        `loadings(party)` for those of one.
    convergence_ : after every round, the largest bound of a residual as a share of its eigenvalue;
        of "paper" how far the merged vector has moved.
    shortfalls_, shortfall_ : the share of each eigenvalue that may be missing, and the largest; not
        with "paper", which does not know.
    history_ : with `keep_history` the eigenvectors as they were after every round, (rounds, n, k),
        on a graph those of every node, (rounds, nodes, n, k). Of "paper" with a coordinator always,
        the merged vectors; of a single component (rounds, n). Else None.
    node_vectors_ : without a coordinator the eigenvectors at every node, (nodes, n, k).
    report_ : what it cost, and what left each party.

    Examples
    --------
    >>> import eigenmesh as em
    >>> from sklearn.datasets import load_wine
    >>> parts = em.split(load_wine().data, n_parties=3, by="columns")
    >>> pca = em.VFedPCA(2, standardize=True).fit(parts)
    >>> pca.explained_variance_ratio_.round(3)
    array([0.362, 0.192])
    >>> pca.transform(parts).shape, pca.inverse_transform(pca.transform(parts)).shape
    ((178, 2), (178, 13))
    """

    _cheaper = (
        "lower n_components, or take OneShotKPCA (method='one-shot'), which "
        "sends one message a party"
    )
    _fitted = (
        "eigenvalues_",
        "eigenvectors_",
        "explained_variance_ratio_",
        "total_variance_",
        "residual_",
        "convergence_",
        "history_",
        "node_vectors_",
        "gamma_",
        "model_",
    )

    def __init__(
        self,
        n_components: int | float | None = 2,
        *,
        variant: str = "exact",
        n_rounds: int | None = None,
        tolerance: float = 1e-10,
        topology: Any = None,
        averaging: str | tuple[str, float] = "auto",
        center: bool = True,
        standardize: bool = False,
        fill_missing: float | None = None,
        local_iterations: int = 10,
        warm_start: bool = False,
        weight_scaling: bool = False,
        merge: str = "weighted",
        align_signs: bool = True,
        random_state: Any = None,
        keep_history: bool = False,
    ) -> None:
        self.n_components = n_components
        self.variant = variant
        self.n_rounds = n_rounds
        self.tolerance = tolerance
        self.topology = topology
        self.averaging = averaging
        self.center = center
        self.standardize = standardize
        self.fill_missing = fill_missing
        self.local_iterations = local_iterations
        self.warm_start = warm_start
        self.weight_scaling = weight_scaling
        self.merge = merge
        self.align_signs = align_signs
        self.random_state = random_state
        self.keep_history = keep_history

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit to columns split over parties: a Partitioned, a Federation, or a plain array.

        Of a Dask array in chunks of columns every chunk is a party, at the worker that holds it.
        """
        paper = one_of(self.variant, "variant", VARIANTS) == "paper"
        source = self._source(X)
        with self._opened(source, self.topology) as fed, fed.recording() as recording:
            self._require_columns(fed)
            run = self._run_paper if paper else self._run_exact
            matched, result = fed.in_turn(
                partial(self._align, fed), lambda matched: (matched, run(fed))
            )
            self._keep_shares(fed, result.model)
        self._adopt(result.model, None, getattr(result, "shortfalls", None))
        self.convergence_ = np.asarray(result.convergence)
        self.node_vectors_ = result.node_vectors
        self._settled = isinstance(result, VFedResult) and result.converged
        self.history_ = np.asarray(result.history) if len(result.history) else None
        caveats = self._caveats(result)
        reason, cheaper = result.stop_reason, self._less(fed.split, fed.graph is not None)
        self.report_ = concluded(result.model, matched, caveats, reason, recording, fed, cheaper)
        return self

    def _less(self, split: str, on_graph: bool) -> str:
        return LESS_ON_A_GRAPH if on_graph else self._cheaper

    def _plan_notes(self, names: Sequence[str], shapes: Shapes) -> tuple[str, ...]:
        return ("at most: a fit that converges sends less",) if self.variant == "exact" else ()

    def _run_exact(self, fed: Federation) -> VFedResult:
        on_graph, k = fed.graph is not None, self._wanted()
        if isinstance(k, int):
            run = self._exact_run(k, on_graph)
            fed.require_stages(run)
            fit: VFedResult = run.run(fed).value
            return fit
        fed.require_stages(self._exact_run(1, on_graph), stage(survey))
        shapes = [(shape.n_rows, shape.n_columns) for shape in fed.run(survey).value]
        for number in self._numbers(shapes):
            fit = self._exact_run(number, on_graph).run(fed).value
            if self._explains(fit):
                break
        return fit

    def _exact_run(self, k: int, on_graph: bool) -> Stage:
        """The search for k components, or as many as there are where a share is asked for."""
        agreed = self._agreed(k, at_most=not isinstance(self._wanted(), int))
        how = (agreed, positive(self.tolerance, "tolerance"))
        search = vfed_peers if on_graph else vfed_pca
        return stage(search, *how, keep_history=bool(self.keep_history))

    def _numbers(self, shapes: Sequence[tuple[int, int]]) -> list[int]:
        """How many components are sought, one after the other; the last are all that there can be.

        Where a share is wanted, a few, and twice as many as long as they explain too little.
        """
        all_of_them = min(shapes[0][0] - bool(self.center), sum(m for _, m in shapes))
        numbers, k = [], FIRST_SOUGHT
        while isinstance(self._wanted(), float) and k < all_of_them:
            numbers.append(k)
            k *= 2
        return [*numbers, max(all_of_them, 1)]

    def _explains(self, fit: VFedResult) -> bool:
        fusion, share = fit.model.fusion, self._wanted()
        explained = float(fusion.components.eigenvalues.sum())
        return share is None or explained >= (share - 1e-12) * fusion.total

    def _run_paper(self, fed: Federation) -> PaperResult:
        run = self._paper_run()
        fed.require_stages(run)
        result: PaperResult = run.run(fed).value
        return result

    def _paper_run(self) -> Stage:
        k = whole_number(self.n_components, "n_components")
        how = (power_setup(self, Kernel("linear")), k, self._rounds(), bool(self.keep_history))
        return stage(vfed_paper, *how)

    def _agreed(self, k: int, at_most: bool = False) -> VFedSetup:
        count = self._wanted()
        return VFedSetup(
            n_components=k,
            n_rounds=self._rounds(),
            at_most=at_most,
            share=count if isinstance(count, float) else None,
            center=bool(self.center),
            **prepared_as(self),
        )

    def _rounds(self) -> int:
        usual = PAPER_ROUNDS if self.variant == "paper" else MOST_ROUNDS
        return usual if self.n_rounds is None else whole_number(self.n_rounds, "n_rounds")

    def _caveats(self, result: VFedResult | PaperResult) -> tuple[str, ...]:
        if isinstance(result, PaperResult):
            return paper_caveats(self, self._rounds(), result.node_vectors)
        if result.converged:
            return ()
        above = np.flatnonzero(result.residuals > self.tolerance) + 1
        which = f"component{'s' if len(above) > 1 else ''} {', '.join(map(str, above))}"
        return (
            f"not converged: residuals are at most {result.residuals.max():.1e} of their "
            f"eigenvalues, {self.tolerance:.1e} was asked for; {which} may be off, and the "
            f"eigenvalues low by {result.shortfalls.max():.1e} of their size; "
            f"{self._remedy}",
        )

    @property
    def _remedy(self) -> str:
        if self._behind is None:
            return "raise n_rounds or tolerance"
        return f"{self._behind} has no more rounds: fit em.VFedPCA, with n_rounds above 50"

    def _needs(self, fed: Federation, *, weighted: bool = False) -> Needs:
        return [self._exact_run(1, fed.graph is not None)]

    def _knows_scores(self) -> bool:
        return bool(getattr(self, "_settled", False))

    def _stages(self, parties: Parties) -> list[Stage]:
        on_graph, k = parties.graph is not None, self._wanted()
        if one_of(self.variant, "variant", VARIANTS) == "paper":
            return [self._paper_run()]
        if isinstance(k, int):
            return [self._exact_run(k, on_graph)]
        numbers = self._numbers(parties.shapes)
        return [stage(survey), *(self._exact_run(k, on_graph) for k in numbers)]


def _exact(graph: bool, why: str) -> Method:
    kernels = ("linear",)
    return Method(
        "vfed-pca",
        "columns",
        kernels,
        VFedPCA,
        why,
        graph,
        rank=50,
        discloses="columns",
        n_components="or share",
    )


register(
    _exact(False, "vectors over the samples go to and fro until the answer is the pooled columns'")
)
register(
    _exact(
        True, "neighbours average vectors over the samples until the answer is the pooled columns'"
    )
)
