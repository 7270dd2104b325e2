"""Kernel PCA over column partitions, exactly or as the paper of vertical federated PCA has it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from eigenmesh.errors import InputError
from eigenmesh.estimators.base import Needs, Shapes, seed_of
from eigenmesh.estimators.checks import (
    checked_gamma,
    is_number,
    one_of,
    preparation_fields,
    whole_number,
)
from eigenmesh.estimators.column_checks import (
    concluded,
    prepared_as,
    sampling_note,
    unit_caveats,
)
from eigenmesh.estimators.columns import ColumnEstimator
from eigenmesh.estimators.kernel_gamma import gamma_stages, kernel_gamma
from eigenmesh.estimators.report import LESS_ON_A_GRAPH
from eigenmesh.methods.registry import Method, register
from eigenmesh.methods.vfed.kernel_graph import argument_peers
from eigenmesh.methods.vfed.kernel_sum import vfed_kernel_sum
from eigenmesh.methods.vfed.paper import PaperResult, vfed_paper
from eigenmesh.methods.vfed.paper_checks import (
    KERNEL_VARIANTS,
    PAPER_ROUNDS,
    paper_caveats,
    power_setup,
)
from eigenmesh.numerics.column_pieces import KernelShare
from eigenmesh.numerics.kernel_of_sums import ArgumentFusion
from eigenmesh.numerics.kernels import Kernel
from eigenmesh.runtime.federation import Federation
from eigenmesh.runtime.schedule import Parties, masks_are_planned
from eigenmesh.runtime.study import Stage, stage
from eigenmesh.stages.column_scores import (
    MOST_KERNEL_SAMPLES,
    MOST_MASKED_SAMPLES,
    N_LANDMARKS,
    ColumnModel,
    most_samples,
)
from eigenmesh.stages.summed_kernel import (
    KERNELS,
    ArgumentSetup,
    argument_fusion,
)


class VFedAKPCA(ColumnEstimator):
    """Kernel PCA of samples whose columns are held by several parties, exactly.

    Every party says once how far apart, or how alike, the samples are in its columns; these add up
    to what the kernel is a function of. The answer is that of kernel PCA on the pooled columns.
    Where sums are masked, nobody sees but the sum: how far apart samples are in all columns
    together. Else what a party says determines its columns up to rotation.

    Parameters
    ----------
    n_components : components wanted; None for all that have variance, a number between 0 and 1 for
        the fewest that explain so much of it.
    kernel : "rbf", exp(−gamma ‖x−y‖²), "poly", (gamma x·y + coef0)^degree, "sigmoid",
        tanh(gamma x·y + coef0), whose components are in order of |λ| since it is indefinite (the
        paper prints −gamma: pass a negative one), "laplacian", exp(−gamma ‖x−y‖₁), "cosine", or
        "arc-cosine" of order `degree`.
    gamma : a number, None for 1/n_features, "scale", "median" or "mean-distance", of the columns as
        their owners prepare them.
    degree, coef0 : of "poly" and "sigmoid"; the order 0, 1 or 2 of "arc-cosine".
    variant : "exact"; "paper" for the method as its paper has it: the merged top vectors of the
        parties' own kernel matrices, which approximate no pooled kernel; or "sum" for the exact
        components of the sum of these matrices, each of which goes to the coordinator once.
    n_landmarks : samples that stand for all where there are more than 20,000 (masked, more than
        3,000), by default 500; a number makes them serve whenever there are more samples.
    topology : None for a coordinator, or a graph as in `VFedPCA`: the distances or products of all
        pairs of samples are then averaged over it, at a traffic far above shipping the columns,
        and every node ends with the same components, which are exact.
    averaging : on a graph "tree" or "gossip", as in `GossipKPCA`.
    center : centre in feature space, exactly.
    standardize, fill_missing : what each owner does to its columns first, as in `VFedPCA`.
    n_rounds, local_iterations, warm_start, weight_scaling, merge, align_signs : of "paper", as in
        `VFedPCA`.
    keep_history : of "paper", as in `VFedPCA`.
    random_state : seed of landmarks, of the pairs drawn for gamma="median", and of "paper".

    Attributes
    ----------
    eigenvalues_, eigenvectors_ : of the (centred) joint kernel matrix.
    explained_variance_ratio_, total_variance_, residual_ : the variance in feature space; Σ|λ| is
        the total of "sigmoid".
    shortfalls_, shortfall_ : the share of each eigenvalue that is missing, estimated where landmark
        samples serve and 0 else, and the largest; not with "paper", which does not know.
    gamma_ : the gamma used.
    convergence_, history_ : of "paper", as in `VFedPCA`.
    node_vectors_ : without a coordinator the eigenvectors at every node, (nodes, n, k).
    report_ : what it cost, and what left each party.

    Examples
    --------
    >>> import eigenmesh as em
    >>> from sklearn.datasets import load_wine
    >>> from sklearn.decomposition import KernelPCA
    >>> from sklearn.preprocessing import scale
    >>> X = scale(load_wine().data)
    >>> kpca = em.VFedAKPCA(2, gamma=0.05).fit(em.split(X, n_parties=3, by="columns"))
    >>> pooled = KernelPCA(2, kernel="rbf", gamma=0.05).fit(X)
    >>> bool(abs(kpca.transform(X) - pooled.transform(X)).max() < 1e-10)
    True
    """

    _cheaper = "lower n_landmarks where the kernel has any"
    _closer = "; raise n_landmarks"
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
        kernel: str = "rbf",
        gamma: float | str | None = None,
        degree: int = 3,
        coef0: float = 1.0,
        variant: str = "exact",
        n_landmarks: int | None = None,
        topology: Any = None,
        averaging: str | tuple[str, float] = "auto",
        center: bool = True,
        standardize: bool = False,
        fill_missing: float | None = None,
        n_rounds: int | None = None,
        local_iterations: int = 10,
        warm_start: bool = False,
        weight_scaling: bool = False,
        merge: str = "weighted",
        align_signs: bool = True,
        random_state: Any = None,
        keep_history: bool = False,
    ) -> None:
        self.n_components = n_components
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.variant = variant
        self.n_landmarks = n_landmarks
        self.topology = topology
        self.averaging = averaging
        self.center = center
        self.standardize = standardize
        self.fill_missing = fill_missing
        self.n_rounds = n_rounds
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
        one_of(self.variant, "variant", KERNEL_VARIANTS)
        name, source = self._kernel_name(), self._source(X)
        with self._opened(source, self.topology) as fed, fed.recording() as recording:
            self._require_columns(fed)
            matched, kernel, result = fed.in_turn(
                partial(self._settle, fed, name), partial(self._search, fed)
            )
            model = result if isinstance(result, ColumnModel) else result.model
            self._keep_shares(fed, model)
        printed = result if isinstance(result, PaperResult) else None
        missing = None if printed is not None else getattr(model.fusion, "shortfalls", None)
        self._adopt(model, kernel.gamma, missing)
        # What masks have rounded away the model's own notes say.
        self._judges_shortfall = isinstance(model.fusion, ArgumentFusion)
        self.convergence_ = None if printed is None else np.asarray(printed.convergence)
        history = () if printed is None else printed.history
        self.history_ = history if len(history) else None
        self.node_vectors_ = getattr(result, "node_vectors", None)
        caveats = self._caveats(printed)
        reason = model.stop_reason if printed is None else printed.stop_reason
        cheaper = self._less(fed.split, fed.graph is not None)
        self.report_ = concluded(model, matched, caveats, reason, recording, fed, cheaper)
        return self

    def _settle(self, fed: Federation, name: str) -> tuple[tuple[str, ...], Kernel]:
        """How samples were matched, and the kernel."""
        matched = self._align(fed)
        fed.require_stages(*self._needs(fed))
        return matched, self._kernel(name, self._find_gamma(fed))

    def _search(
        self, fed: Federation, settled: tuple[tuple[str, ...], Kernel]
    ) -> tuple[tuple[str, ...], Kernel, Any]:
        matched, kernel = settled
        method = self._method(kernel, fed.graph is not None, fed.secure)
        return matched, kernel, method.run(fed).value

    def _less(self, split: str, on_graph: bool) -> str:
        less = "give gamma as a number" if isinstance(self.gamma, str) else self._cheaper
        return LESS_ON_A_GRAPH if on_graph else less

    def _plan_notes(self, names: Sequence[str], shapes: Shapes) -> tuple[str, ...]:
        masked = masks_are_planned()
        agreed = self._agreed(masked)
        notes = sampling_note(shapes[0][0], agreed) if self.variant == "exact" else ()
        if self.variant != "exact" or self.kernel == "laplacian" or masked:
            return notes
        return (*notes, "at most: columns of a rank below their number send less")

    def _kernel_name(self) -> str:
        if self.kernel == "sigmoid" and self.n_landmarks is not None:
            raise InputError(
                f"n_landmarks is {self.n_landmarks!r}; the sigmoid kernel is indefinite and has no "
                f"landmarks: pass None, which takes every pair of at most 20,000 samples"
            )
        return one_of(self.kernel, "kernel", KERNELS)

    def _kernel(self, name: str, gamma: float | None) -> Kernel:
        # An arc-cosine kernel checks its own order, which may be 0.
        degree = self.degree if name == "arc-cosine" else whole_number(self.degree, "degree")
        return Kernel(name, gamma, degree, float(self.coef0))

    def _checked_gamma(self) -> float | str | None:
        gamma: Any = self.gamma
        if self.kernel == "sigmoid" and is_number(gamma) and -np.inf < float(gamma) < 0:
            return float(gamma)
        return checked_gamma(gamma)

    def _find_gamma(self, fed: Federation) -> float | None:
        gamma, seed = self._checked_gamma(), seed_of(self.random_state)
        if isinstance(gamma, float):
            return gamma
        return kernel_gamma(fed, self.kernel, gamma, seed, **preparation_fields(self))

    def _needs(self, fed: Federation, *, weighted: bool = False) -> Needs:
        return [self._method(self._any_kernel(), fed.graph is not None, fed.secure)]

    def _agreed(self, masked: bool = False) -> ArgumentSetup:
        q = N_LANDMARKS if self.n_landmarks is None else self.n_landmarks
        # An indefinite kernel has no landmarks.
        most = MOST_MASKED_SAMPLES if masked and self.kernel != "sigmoid" else MOST_KERNEL_SAMPLES
        return ArgumentSetup(
            kernel=self._kernel_name(),
            local_rank=None,
            n_landmarks=whole_number(q, "n_landmarks"),
            most_samples=most_samples(most) if self.n_landmarks is None else 0,
            **prepared_as(self),
            compares_units=masked and self._in_raw_units,
        )

    @property
    def _in_raw_units(self) -> bool:
        """Whether nobody has chosen a scale for the columns of an RBF kernel."""
        return self.kernel == "rbf" and self.gamma is None and not self.standardize

    def _rounds(self) -> int:
        return PAPER_ROUNDS if self.n_rounds is None else whole_number(self.n_rounds, "n_rounds")

    def _caveats(self, printed: PaperResult | None) -> tuple[str, ...]:
        if printed is not None and self.variant == "sum":
            return ()
        if printed is not None:
            return paper_caveats(self, self._rounds(), printed.node_vectors)
        return unit_caveats(self, self.model_)

    def _knows_scores(self) -> bool:
        return self.variant == "exact"

    def input_projection(self, party: str | None = None) -> Any:
        """The paper's Z = VᵀX, (n_components, columns), of one party's columns or of all.

        An average of the samples' rows for every component, in the columns' own units, and no
        score of a sample. Of variant "paper" or "sum", whose parties keep columns and vectors.
        """
        check_is_fitted(self)
        names = self.model_.parties if party is None else (party,)
        shares = [self._share(name) for name in names]
        if not all(isinstance(share, KernelShare) for share in shares):
            raise InputError("Z = VᵀX is there with variant='paper' or 'sum'; this model is exact")
        return np.hstack([np.asarray(share.vectors.T @ share.columns) for share in shares])

    def _stages(self, parties: Parties) -> list[Stage]:
        rule, search = self._checked_gamma(), list[Stage]()
        if not isinstance(rule, float):
            seed, own = seed_of(self.random_state), preparation_fields(self)
            search = gamma_stages(self._kernel_name(), rule, parties, seed, **own)
        on_graph = parties.graph is not None
        return [*search, self._method(self._any_kernel(), on_graph, masks_are_planned())]

    def _any_kernel(self) -> Kernel:
        """The kernel, with a gamma that stands in for one that is found on the way."""
        return self._kernel(self._kernel_name(), 1.0)

    def _method(self, kernel: Kernel, on_graph: bool, masked: bool) -> Stage:
        """The run that finds the components."""
        if one_of(self.variant, "variant", KERNEL_VARIANTS) != "exact":
            return self._paper_run(kernel, on_graph)
        method = argument_peers if on_graph else argument_fusion
        return stage(method, self._agreed(masked), kernel, self._wanted(), bool(self.center))

    def _paper_run(self, kernel: Kernel, on_graph: bool) -> Stage:
        k, setup = whole_number(self.n_components, "n_components"), power_setup(self, kernel)
        if self.variant == "paper":
            return stage(vfed_paper, setup, k, self._rounds(), bool(self.keep_history))
        if on_graph:
            raise InputError(
                "variant is 'sum' and parties are on a graph; whole kernel matrices go to a "
                "coordinator: a federation without topology is expected, or variant='exact'"
            )
        return stage(vfed_kernel_sum, setup, k)


def _exact(graph: bool, why: str, masked: bool = False) -> Method:
    return Method(
        "vfed-akpca",
        "columns",
        KERNELS,
        VFedAKPCA,
        why,
        graph,
        rank=60,
        discloses="sums" if masked else "columns",
        n_components="or share",
        masked=masked,
        cheaper=_LESS_UNDER_MASKS if masked else "",
    )


_LESS_UNDER_MASKS = (
    "give n_landmarks where the kernel has any, or method='vfed-akpca', whose messages are as "
    "short as columns, and tell them up to rotation"
)

register(
    _exact(
        False,
        "the sum of how far apart the samples are in each one's columns gives the exact answer, "
        "and under masks nobody sees but the sum",
        masked=True,
    )
)
register(
    _exact(
        False,
        "each says how far apart the samples are in its columns, which adds up to the exact answer "
        "and determines these columns up to rotation",
    )
)
register(
    _exact(
        True, "neighbours average how far apart the samples are in their columns, which is exact"
    )
)
