"""Kernel PCA on a graph without a centre, as a scikit-learn estimator."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, Self

import networkx as nx
import numpy as np

from eigenmesh.errors import EigenmeshWarning, InputError
from eigenmesh.estimators.accuracy import missing_gap
from eigenmesh.estimators.base import seed_of
from eigenmesh.estimators.checks import one_of, require_switches, whole_number
from eigenmesh.estimators.graphs import (
    GraphEstimator,
    count_from_zero,
    graph_among,
    number_from_zero,
    unplaced_model,
)
from eigenmesh.estimators.kernel_gamma import PSD_KERNELS, gamma_stages, kernel_gamma, psd_kernel
from eigenmesh.estimators.report import RunReport
from eigenmesh.graphs.consensus import mixing_on, require_graph, root_on
from eigenmesh.methods.admm.maths import PAPER_PENALTIES, Penalties, in_words
from eigenmesh.methods.admm.messages import (
    AUTO,
    STARTS,
    AdmmResult,
    AdmmSetup,
    Reference,
    Similarity,
)
from eigenmesh.methods.admm.neighbourhood import (
    NeighbourhoodSetup,
    admm_neighbourhood,
    origin_for,
)
from eigenmesh.methods.admm.protocol import CORRECTIONS, admm_kpca
from eigenmesh.methods.registry import Method, register
from eigenmesh.numerics.arrays import as_rows
from eigenmesh.numerics.centring import centre_in_place
from eigenmesh.numerics.eigen import clip_spectrum, require_rank, top_eigenpairs
from eigenmesh.numerics.kernels import Kernel
from eigenmesh.runtime.schedule import Parties
from eigenmesh.runtime.study import Stage, stage
from eigenmesh.stages.row_messages import pack

VARIANTS = ("corrected", "paper")
_AT_REST = 5e-3  # sine of the angle by which z may move in the last iteration
_UNKNOWN = (
    "what is missing of the eigenvalues is not known with ADMMKPCA (method='admm'): z rests, near "
    "the components of all rows as far as a node's neighbours show them. topology='full' gives "
    "every node all rows, a reference compares, and GossipKPCA measures what is missing"
)
_OFF_CENTRE = 0.01  # share of a component's variance that may come from where it was measured
_CHANCE = 2.0  # standard errors of an eigenvalue within which two count as one


class ADMMKPCA(GraphEstimator):
    """Kernel PCA of rows held by the nodes of a graph: no centre, rows go to neighbours only.

    Every node ends with two models: w, the projection of the common components on its own rows, and
    z, the common components as its own and its neighbours' rows express them. `transform` uses z of
    the first node that is at hand: in one process that of node 0, at an MPI rank its own.

    Parameters
    ----------
    n_components : components wanted; several are found together, as a block.
    topology : who is whose neighbour: "ring", "star", "full", "grid", "random-regular",
        ("lattice", k) or a networkx graph; "auto" for that of a federation that is open, else
        "ring". A plain array is a single node.
    averaging : on a graph "tree" or "gossip", as in `GossipKPCA`.
    kernel : "linear", "poly", "rbf", "laplacian", "cosine" or "arc-cosine", as in `DisKPCA`.
    gamma : a number, None for 1/n_features, "scale", "median" or "mean-distance".
    degree, coef0 : of polynomial kernels; `degree` also of "arc-cosine".
    penalty : "auto", the largest that any node needs for convergence; a number; or a schedule, a
        sequence of (iteration, own, neighbours): from that iteration on, counted from 0, the
        penalties of the constraints that tie a node's w to its own z and to its neighbours'.
        "paper" is the schedule of the paper's experiments, (0, 100, 10), (4, 100, 50),
        (8, 100, 100).
    n_iterations : of the ADMM; 0 leaves the start. Ten are enough where nodes hold alike data,
        thirty where each holds a class of its own.
    tolerance : stop once no node's components move by more than this (sine of the angle).
    variant : "corrected" starts from the neighbours' pooled components and undoes the relaxation of
        the z-step; "paper" starts from a node's own components and leaves the relaxation.
    start : "neighbours", the components of all rows that a node knows; "own", of its own rows;
        "random" directions, as Algorithm 1 is printed, whose signs are not made equal; "auto" for
        that of the variant.
    unit_ball : of "paper", let z be shorter than 1, as the relaxation (11) has it; otherwise it
        keeps unit length. Components may then fade.
    row_noise : standard deviation of the Gaussian noise on rows before they go to a neighbour. All
        that leaves a node is then of noisy rows, and so is the answer: it is theirs.
    center : centre in feature space, with respect to all rows.
    n_centroids : means of at least 5 rows that each node gives to all, to find the centre.
    reference : pooled rows, for research: their components are computed at one place and every
        iteration is compared with them. They are sent to all nodes, and counted as sent; a saved
        model is without them.
    random_state : seed of all draws.

    Attributes
    ----------
    node_models_ : by node, a `NodeModel` with `local` (w), `consensus` (z) and `transform`.
    eigenvalues_ : of the (centred) kernel matrix of all rows, along z: each node's own z, of unit
        norm in the span of the rows that it knows, so that they exceed the pooled ones by the
        inverse squared cosine between the two, 2 % at .99.
    total_variance_, residual_, explained_variance_ratio_ : the variance in feature space, about
        the nearest point to the mean that the centroids span: upper bounds, exact for "linear".
    penalty_ : the number that was used; None for a schedule.
    similarity_, consensus_similarity_, ceiling_ : of every node with the reference, |cos| for one
        component and the mean cos² of several: of w, of z, and the most that w can reach. None
        without a reference, or where the reference's own components are not determined.
    trace_ : means of the first two over the nodes, at the start and after every iteration.
    history_ : with a reference, at the start and after every iteration, of every node, of w and of
        z, the cosines of the principal angles with the reference: (iterations + 1, nodes, 2, k);
        NaN where a node has left.
    report_ : what it cost, and what left each node.

    Examples
    --------
    >>> import eigenmesh as em
    >>> from sklearn.datasets import load_digits
    >>> X = load_digits(n_class=2).data / 16
    >>> parts = em.split(X, n_parties=6, random_state=0)
    >>> kpca = em.ADMMKPCA(1, topology="ring", kernel="rbf", gamma=0.05, reference=X).fit(parts)
    >>> bool(kpca.consensus_similarity_.min() > 0.99)
    True
    >>> kpca.node_models_["party-3"].transform(X).shape
    (360, 1)
    """

    _judges_shortfall = True  # or says that what is missing is not known
    _cheaper = "lower n_iterations, or take GossipKPCA (method='gossip') with fewer features"
    _fitted = (
        "eigenvalues_",
        "explained_variance_ratio_",
        "total_variance_",
        "residual_",
        "gamma_",
        "penalty_",
        "similarity_",
        "consensus_similarity_",
        "ceiling_",
        "trace_",
        "nodes_",
        "model_",
    )
    _optional = ("history_",)

    def __init__(
        self,
        n_components: int = 2,
        *,
        topology: Any = "auto",
        averaging: str | tuple[str, float] = "auto",
        kernel: str = "linear",
        gamma: float | str | None = None,
        degree: int = 3,
        coef0: float = 1.0,
        penalty: float | str | Sequence[tuple[int, float, float]] = "auto",
        n_iterations: int = 20,
        tolerance: float | None = None,
        variant: str = "corrected",
        start: str = "auto",
        unit_ball: bool = False,
        row_noise: float = 0.0,
        center: bool = True,
        n_centroids: int = 2,
        reference: Any = None,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.topology = topology
        self.averaging = averaging
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.penalty = penalty
        self.n_iterations = n_iterations
        self.tolerance = tolerance
        self.variant = variant
        self.start = start
        self.unit_ball = unit_ball
        self.row_noise = row_noise
        self.center = center
        self.n_centroids = n_centroids
        self.reference = reference
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit to rows at the nodes: a Partitioned, a Federation on a graph, or a plain array."""
        self._check()
        with self._on_graph(X) as fed, fed.recording() as recording:
            fed.require_stages(*self._runs(require_graph(fed), self._kernel(1.0)))
            if not fed.local_sites():
                self._require_model(fed, "rows")
            seed, noise = seed_of(self.random_state), float(self.row_noise)
            gamma = kernel_gamma(fed, self.kernel, self.gamma, seed, row_noise=noise)
            kernel = self._kernel(gamma)
            central = self._central(kernel)
            message = None if central is None else central.message
            prepare, iterate = self._runs(require_graph(fed), kernel, message is not None)
            baseline = prepare.run(fed).value
            outcome = fed.run(iterate.protocol, *iterate.args, reference=message).value
            facts = unplaced_model(kernel, outcome.outcome)
            self._take_models(fed, outcome.parties, "rows", facts)
        self._adopt(outcome, gamma)
        caveats = self._caveats(outcome, central, _is_complete(require_graph(fed)))
        self.report_ = RunReport.of(
            recording,
            fed,
            stop_reason=outcome.stop_reason,
            baseline_floats=baseline,
            notes=(*caveats, *self._facts(outcome)),
            cheaper=self._less(fed.split, fed.graph is not None),
        )
        for caveat in caveats:
            warnings.warn(caveat, EigenmeshWarning, stacklevel=2)
        return self

    # What the nodes are told.

    def _check(self) -> None:
        require_switches(self)
        whole_number(self.n_components, "n_components")
        whole_number(self.n_centroids, "n_centroids")
        one_of(self.variant, "variant", VARIANTS)
        one_of(self.start, "start", ("auto", *STARTS))
        if self.unit_ball and self.variant != "paper":
            raise InputError(
                f"unit_ball is True and variant is {self.variant!r}, whose z has unit length; "
                f"variant='paper' is expected, or unit_ball=False"
            )
        count_from_zero(self.n_iterations, "n_iterations")
        number_from_zero(self.row_noise, "row_noise")
        if self.tolerance is not None:
            number_from_zero(self.tolerance, "tolerance")
        self._penalties()

    def _penalties(self) -> tuple[float, tuple[Penalties, ...]]:
        """A number or the rule that stands for one, and the schedule that takes its place."""
        penalty: Any = self.penalty
        if isinstance(penalty, str) and penalty in ("auto", "paper"):
            return AUTO, PAPER_PENALTIES if penalty == "paper" else ()
        if isinstance(penalty, Real) and 0 < float(penalty) < np.inf:
            return float(penalty), ()
        if isinstance(penalty, Sequence) and not isinstance(penalty, str):
            return AUTO, _checked_schedule(penalty)
        raise InputError(
            f"penalty is {penalty!r}; 'auto', 'paper', a positive number or a schedule is expected"
        )

    def _kernel(self, gamma: float | None) -> Kernel:
        return psd_kernel(self.kernel, gamma, self.degree, self.coef0)

    def _runs(self, graph: nx.Graph, kernel: Kernel, compared: bool = True) -> tuple[Stage, Stage]:
        """Rows to the neighbours, then the iteration, with the reference if there is one."""
        compares = compared and self.reference is not None
        n_reference = int(np.shape(self.reference)[0]) if compares else 0
        how = (int(self.n_iterations), self.tolerance, n_reference)
        prepare = stage(admm_neighbourhood, self._prepare(graph, kernel))
        return prepare, stage(admm_kpca, self._iterate(graph), *how)

    def _prepare(self, graph: nx.Graph, kernel: Kernel) -> NeighbourhoodSetup:
        return NeighbourhoodSetup(
            **mixing_on(graph),
            kernel=kernel.name,
            gamma=kernel.gamma,
            degree=float(kernel.degree),
            coef0=float(kernel.coef0),
            row_noise=float(self.row_noise),
            origin=origin_for(graph, bool(self.center)),
            n_centroids=int(self.n_centroids),
            seed=seed_of(self.random_state),
        )

    def _iterate(self, graph: nx.Graph) -> AdmmSetup:
        corrected = self.variant == "corrected"
        usual = "neighbours" if corrected else "own"
        penalty, schedule = self._penalties()
        return AdmmSetup(
            **mixing_on(graph),
            n_components=int(self.n_components),
            penalty=penalty,
            penalties=in_words(schedule),
            corrections=CORRECTIONS if corrected else 0,
            start=usual if self.start == "auto" else self.start,
            unit_ball=bool(self.unit_ball),
            center=bool(self.center),
            root=root_on(graph),
            seed=seed_of(self.random_state),
        )

    def _central(self, kernel: Kernel) -> CentralReference | None:
        if self.reference is None:
            return None
        return central_reference(kernel, self.reference, int(self.n_components), bool(self.center))

    def _stages(self, parties: Parties) -> list[Stage]:
        """What a fit runs, one after the other."""
        self._check()
        seed, noise = seed_of(self.random_state), float(self.row_noise)
        search = gamma_stages(self.kernel, self.gamma, parties, seed, row_noise=noise)
        return [*search, *self._runs(graph_among(parties), self._kernel(1.0))]

    # What they found.

    def _adopt(self, result: AdmmResult, gamma: float | None) -> None:
        whole = result.outcome
        self.gamma_ = gamma
        self.eigenvalues_ = whole.eigenvalues
        self.total_variance_ = whole.total
        self.residual_ = max(whole.total - float(whole.eigenvalues.sum()), 0.0)
        self.explained_variance_ratio_ = whole.eigenvalues / whole.total
        self.penalty_ = None if self._penalties()[1] else whole.penalty
        self.n_features_in_ = int(self.model_.landmarks.shape[1])
        self._last_transform: list[RunReport] = []
        self._compare(result.similarities)

    def _compare(self, similarities: Sequence[Mapping[str, Similarity]]) -> None:
        """With the reference, if there is one."""
        self.similarity_: Any = None
        self.consensus_similarity_: Any = None
        self.ceiling_: Any = None
        self.trace_: Any = None
        self.history_: Any = None
        if similarities:
            first, last = similarities[0], similarities[-1]
            shape = (len(similarities), len(first), 2, len(self.eigenvalues_))
            self.history_ = np.full(shape, np.nan)  # where a node has left
            for cosines, now in zip(self.history_, similarities, strict=True):
                for place, node in enumerate(first):
                    if node in now:
                        cosines[place] = now[node].local, now[node].consensus
            here = [node in last for node in first]
            self.similarity_, self.consensus_similarity_ = _in_all(self.history_[-1, here]).T
            self.ceiling_ = _in_all(np.array([own.ceiling for own in last.values()]))
            self.trace_ = np.nanmean(_in_all(self.history_), axis=1)

    def _saved_names(self) -> list[str]:
        return [*super()._saved_names(), *(name for name in self._optional if hasattr(self, name))]

    def _caveats(
        self, result: AdmmResult, central: CentralReference | None, knows_all: bool
    ) -> tuple[str, ...]:
        whole = result.outcome
        gap = missing_gap(whole.eigenvalues, whole.next_eigenvalue)
        gap = gap if central is None else central.caveats
        moving = self._still_moving(result)
        # Where every node has all rows, and at rest, nothing is missing; a reference shows it.
        is_known = knows_all or central is not None
        return (
            *gap,
            *(moving or (() if is_known else (_UNKNOWN,))),
            *_missed_centre(whole.off_centre),
        )

    def _still_moving(self, result: AdmmResult) -> tuple[str, ...]:
        """Nodes whose z has not come to rest: it is then not the one of all rows."""
        most = max(_AT_REST, 0.0 if self.tolerance is None else float(self.tolerance))
        moves = {n: c for n, c in zip(result.parties, result.changes, strict=True) if c[0] > most}
        if not moves:
            return ()
        last, least = max(moves.values())
        worse = f"; it had moved by {least:.2g} only, and has got worse" if least < last / 2 else ""
        return (
            f"z of {len(moves)} of {len(result.parties)} nodes still moves, by up to {last:.2g} in "
            f"the last iteration where {most:g} is rest{worse}: {_listed(moves)}. Their components "
            f"may not be those of all rows; raise n_iterations (of ADMMKPCA), choose a graph with "
            f"more edges, or use GossipKPCA",
        )

    def _facts(self, result: AdmmResult) -> tuple[str, ...]:
        """What the answer is worth, in words."""
        notes = []
        if self.similarity_ is not None:
            w, z, most = (
                float(np.mean(values))
                for values in (self.similarity_, self.consensus_similarity_, self.ceiling_)
            )
            measure = "|cos|" if self.n_components == 1 else "mean cos²"
            notes.append(
                f"similarity with the reference, {measure}: w {w:.4f} of at most {most:.4f}, "
                f"z {z:.4f}, on average over {len(self.similarity_)} nodes"
            )
        whole, k = result.outcome, int(self.n_components)
        chance = _CHANCE * np.sqrt(2 / whole.pooled_rows)
        if self.reference is None and len(self.nodes_) > 1 and whole.gap < chance:
            notes.append(
                f"among the {whole.pooled_rows:.0f} rows that a node knows, eigenvalues {k} and "
                f"{k + 1} differ by {whole.gap:.1%} on average, no more than by chance: the last "
                f"component may not be determined"
            )
        return tuple(notes)


def _checked_schedule(stages: Sequence[Any]) -> tuple[Penalties, ...]:
    """As it was given, if each stage is (iteration, own, neighbours) and the first begins at 0."""
    try:
        schedule = tuple(Penalties(int(t), float(own), float(near)) for t, own, near in stages)
    except (TypeError, ValueError):
        schedule = ()
    starts = [stage.from_iteration for stage in schedule]
    positive = all(0 < rho < np.inf for stage in schedule for rho in stage[1:])
    if not schedule or starts[0] != 0 or sorted(set(starts)) != starts or not positive:
        raise InputError(
            f"penalty is {stages!r}; stages (iteration, own, neighbours) are expected, the first "
            f"from iteration 0, each later than the one before, with positive penalties"
        )
    return schedule


def _is_complete(graph: nx.Graph) -> bool:
    """Whether every node has the rows of all: at rest its components are then theirs."""
    return len(graph) < 2 or bool(nx.density(graph) >= 1)


def _in_all(cosines: Any) -> Any:
    """One number of each k cosines: of one itself, of several the mean square."""
    return cosines[..., 0] if cosines.shape[-1] == 1 else np.mean(np.square(cosines), axis=-1)


def _missed_centre(shares: Any) -> tuple[str, ...]:
    if float(np.max(shares)) <= _OFF_CENTRE:
        return ()
    i = int(np.argmax(shares))
    return (
        f"the centroids that nodes share do not reach the mean of all rows: {shares[i]:.0%} of the "
        f"variance along component {i + 1} was its distance from there, {_OFF_CENTRE:.0%} is "
        f"expected. It is taken off eigenvalues and scores, but the component is turned towards "
        f"it; raise n_centroids (of ADMMKPCA), or use GossipKPCA",
    )


def _listed(nodes: Iterable[str]) -> str:
    names = list(nodes)
    return ", ".join(map(repr, names[:5])) + (f" and {len(names) - 5} more" * (len(names) > 5))


register(
    Method(
        "admm",
        "rows",
        PSD_KERNELS,
        ADMMKPCA,
        "neighbours give each other their rows and agree on the components",
        graph=True,
        rank=40,
        cheaper="take method='gossip' with few landmarks, or a coordinator if there can be one",
    )
)


@dataclass(frozen=True)
class CentralReference:
    """The message for the nodes; None, with a caveat, where the data do not determine it."""

    message: Reference | None
    caveats: tuple[str, ...]


def central_reference(kernel: Kernel, rows: Any, k: int, center: bool) -> CentralReference:
    """Kernel PCA of the pooled rows; a similarity with an arbitrary direction would say nothing.

    >>> square = np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    >>> central_reference(Kernel("linear"), square, 1, True).message is None
    True
    """
    X = as_rows(rows, np.float64)
    K = np.asarray(kernel.matrix(X), dtype=np.float64)
    if center:
        centre_in_place(K)
    values, vectors = top_eigenpairs(K, min(k + 1, len(K)))
    values = clip_spectrum(values, len(K))
    require_rank(values, k, len(K), "the reference rows")
    caveats = missing_gap(values[:k], float(values[k]) if len(values) > k else 0.0)
    if caveats:
        return CentralReference(None, (f"no similarity is given: {caveats[0]}",))
    coefficients = vectors[:, :k] / np.sqrt(values[:k])
    return CentralReference(Reference(**pack(X), coefficients=coefficients), ())
