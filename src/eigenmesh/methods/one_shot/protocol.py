"""One-shot kernel PCA over column partitions.

He, Huang, Lv and Yang, "A Communication-efficient Distributed Algorithm for Kernel Principal
Component Analysis": each party sends the top eigenpairs of its own kernel matrix, once.

===================  ==============================================================================
party keeps          its columns X_j (T, m_j); its share: loadings if linear, else X_j and V_j
party reveals        r_j = min(local_rank, T, and m_j if linear) eigenpairs of K_j, or so few that
                     they give no distances away, the eigenvalue after them, the trace, how many
                     samples and columns, a digest of the sample ids
coordinator learns   K̂_j = V_j Λ_j V_jᵀ, the samples' similarities in these columns to rank r_j
===================  ==============================================================================

Readings: `local_rank`, what is sent, and `n_components`, what is wanted, are two numbers. The RBF
kernel is exp(−gamma ‖x−y‖²): gamma = 1/(2σ²) for the paper's text. Centring comes after the
Hadamard product; a linear party centres its own columns, which is the same and loses nothing.
New samples are projected on the same V_j (`column_model`), so that training samples get the very
scores of the fit, for r_j numbers each where the paper's (10) sends T. Beyond the paper: vectors
may travel in fewer bits (`runtime.compact`); the party keeps its own as they were.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Annotated, Any

import numpy as np

from eigenmesh.numerics.column_fusion import (
    Fusion,
    ProductFusion,
    Rounding,
    SampledProductFusion,
    SumFusion,
    Wanted,
)
from eigenmesh.numerics.column_pieces import (
    KernelShare,
    PartySpectrum,
    Share,
    linear_spectrum,
    rbf_spectrum,
    sampled_rbf_spectrum,
    share_to_tree,
)
from eigenmesh.numerics.kernels import Kernel
from eigenmesh.numerics.plausible import differs, exceeds
from eigenmesh.runtime.compact import EXACT, half_steps, rounded
from eigenmesh.runtime.content import looked_at, tells_distances
from eigenmesh.runtime.federation import Federation
from eigenmesh.runtime.message import (
    Compact,
    Context,
    Descending,
    Floats,
    InBits,
    Message,
    NonEmpty,
    NonNegative,
    Orthonormal,
    OwnColumns,
    OwnRows,
    Positive,
    Reveals,
    SameEverywhere,
    Shape,
)
from eigenmesh.runtime.party import Party, Worth, step
from eigenmesh.runtime.protocol import protocol
from eigenmesh.runtime.results import Replies
from eigenmesh.runtime.schedule import Node, Own, Scope, ask, at_most, enlist, rows, sequence
from eigenmesh.runtime.site import SiteView
from eigenmesh.stages.column_scores import (
    ColumnModel,
    ask_everyone,
    landmarks_of,
    require_memory,
    require_samples,
)
from eigenmesh.stages.prepare import preparation_of

# Eigenpairs among which a party looks for those that tell no distances: there were 2 to 7 of them
# at 34 partitions of six sets.
MOST_OF_OWN_CHOICE = 32


class OneShotSetup(Message, reveals=None):
    """What the parties agree on. A gamma makes it the RBF kernel, none the linear one.

    `model` is the name under which they keep their shares.
    """

    gamma: Annotated[float | None, Positive]
    local_rank: Annotated[int | None, Positive]  # None: as many as tell no distances, of RBF
    n_landmarks: Annotated[int, Positive]  # serve if there are more samples than the next number
    most_samples: Annotated[int, Positive]
    center: bool
    standardize: bool
    fill_missing: float | None
    bits: Annotated[int, InBits]  # in which vectors travel
    spare_exact: bool  # whether a party that leaves nothing out sends all bits
    model: str
    seed: int


def bits_of(setup: OneShotSetup, own_columns: int) -> int:
    """In how many bits a party's vectors travel, by what its partners know of it too."""
    whole = setup.gamma is None and (setup.local_rank or 0) >= own_columns
    return EXACT if setup.spare_exact and whole else setup.bits


class LocalSpectrum(Message, reveals="eigenvectors"):
    """Top eigenpairs of a party's own kernel matrix, and what the error bound needs."""

    n_samples: Annotated[int, Reveals("counts"), SameEverywhere, OwnRows]
    n_columns: Annotated[int, Reveals("counts"), OwnColumns]
    sample_ids: Annotated[str, Reveals("hashes"), SameEverywhere]
    bits: Annotated[int, Reveals("counts"), InBits]
    vectors: Annotated[Floats, Shape("n_samples", "r"), NonEmpty, Orthonormal, Compact("bits")]
    values: Annotated[Floats, Shape("r"), Descending, NonNegative]
    next_value: Annotated[float, NonNegative]
    trace: Annotated[float, NonNegative]

    def contradiction(self, context: Context) -> str | None:
        """Eigenvalues are no more than the trace, which is n for an RBF kernel of all pairs."""
        if exceeds(float(np.sum(self.values)), self.trace):
            return "the eigenvalues add up to more than the trace"
        setup = context.setup
        is_rbf = isinstance(setup, OneShotSetup) and setup.gamma is not None
        is_whole = is_rbf and landmarks_of(setup, self.n_samples) is None
        if is_whole and differs(self.trace, self.n_samples):
            return f"k(x, x) = 1, but over {self.n_samples} samples it adds up to {self.trace:.6g}"
        return None


class ColumnHolder(Party):
    """Holds some columns of all samples."""

    Setup = OneShotSetup

    def __init__(self, site: SiteView, setup: OneShotSetup) -> None:
        super().__init__(site, setup)
        require_samples(site, kernel_matrix=False)
        if setup.gamma is not None and landmarks_of(setup, site.data.shape[0]) is None:
            require_memory(site)
        self.preparation = preparation_of(site, setup)

    @step(worth=lambda holder, spectrum: holder.worth(spectrum))
    def local_spectrum(self) -> LocalSpectrum:
        """Alg. 1, line 1: the leading eigenpairs of K_j; the party's share stays in its store."""
        X, agreed = self._prepared(self.site.data), self.setup
        rank = MOST_OF_OWN_CHOICE if agreed.local_rank is None else agreed.local_rank
        spectrum: PartySpectrum
        share: Share
        if agreed.gamma is None:
            spectrum, share = linear_spectrum(X, rank, agreed.center, agreed.seed)
        elif (places := landmarks_of(agreed, X.shape[0])) is not None:
            spectrum, share = sampled_rbf_spectrum(X, agreed.gamma, rank, places)
        else:
            spectrum, share = rbf_spectrum(X, agreed.gamma, rank, agreed.seed)
        if agreed.local_rank is None:
            assert isinstance(share, KernelShare), "a rank of its own choice is of an RBF kernel"
            spectrum, share = self._discreet(spectrum, share)
        own = type(share)(**{**vars(share), "preparation": self.preparation})
        self.site.keep(agreed.model, share_to_tree(own), for_any=True)
        bits = bits_of(agreed, X.shape[1])
        return LocalSpectrum(
            n_samples=X.shape[0],
            n_columns=X.shape[1],
            sample_ids=self.site.sample_ids_hash,
            bits=bits,
            **spectrum._replace(vectors=rounded(spectrum.vectors, bits))._asdict(),
        )

    def worth(self, spectrum: LocalSpectrum) -> Worth:
        """An RBF spectrum is the party's columns if it gives the samples' distances away."""
        if self.setup.gamma is None:
            return Worth()  # products, which the schedule counts
        tells = self._tells(spectrum.vectors, spectrum.values, spectrum.n_samples)
        return Worth(kinds=frozenset({"columns"} if tells else ()))

    def _tells(self, vectors: Any, values: Any, n: int) -> bool:
        places = looked_at(n)
        V = vectors[places]
        return tells_distances((V * values) @ V.T, self._looked_at_kernel)

    @cached_property
    def _looked_at_kernel(self) -> Any:
        places = looked_at(self.site.data.shape[0])
        return Kernel("rbf", self.setup.gamma).matrix(self._prepared(self.site.data[places]))

    def _discreet(
        self, spectrum: PartySpectrum, share: KernelShare
    ) -> tuple[PartySpectrum, KernelShare]:
        """The first eigenpairs, before those with which distances would be told; at least one."""
        values, V, n = spectrum.values, spectrum.vectors, len(spectrum.vectors)
        telling = (r for r in range(2, len(values) + 1) if self._tells(V[:, :r], values[:r], n))
        r = next(telling, len(values) + 1) - 1
        if r == len(values):
            return spectrum, share
        # What landmarks leave out, where they serve, is in the value after the last.
        after = float(values[r]) + (
            spectrum.next_value if landmarks_of(self.setup, n) is not None else 0.0
        )
        kept = replace(share, vectors=share.vectors[:, :r])
        return PartySpectrum(values[:r], V[:, :r], after, spectrum.trace), kept

    def _prepared(self, X: Any) -> Any:
        return X if self.preparation is None else self.preparation.apply(X)


def schedule(scope: Scope, setup: OneShotSetup) -> Node:
    """r_j (T + 1) floats from each party; fewer if landmarks serve and determine fewer."""

    def rank(own: Own) -> int:
        most = MOST_OF_OWN_CHOICE if setup.local_rank is None else setup.local_rank
        return min(most, own.rows, own.columns if setup.gamma is None else own.rows)

    def bits(own: Own) -> int:
        return bits_of(setup, own.columns)

    sizes: dict[str, Any] = {"n_samples": rows, "bits": bits}
    if setup.gamma is None:
        spectrum = ask(ColumnHolder.local_spectrum, **sizes, r=rank, directions="r")
    else:  # how many eigenpairs give an RBF kernel's distances away only the party can tell
        spectrum = ask(ColumnHolder.local_spectrum, **sizes, r=at_most(rank))
    return sequence(enlist(ColumnHolder, setup), spectrum)


@protocol("one-shot-kpca", roles=(ColumnHolder,), schedule=schedule)
def one_shot_kpca(columns: Federation, setup: OneShotSetup, n_components: Wanted) -> ColumnModel:
    """Alg. 1, lines 2 and 3: fuse the local spectra, take the leading eigenvectors."""
    columns.enlist(ColumnHolder, setup)
    spectra = ask_everyone(columns, ColumnHolder.local_spectrum)
    V = [s.vectors for s in spectra]
    w = [s.values for s in spectra]
    w_next = [s.next_value for s in spectra]
    roundings = [_rounding(s) for s in spectra if s.bits != EXACT]
    fusion: SumFusion | ProductFusion | SampledProductFusion
    places = landmarks_of(setup, len(V[0]))
    if setup.gamma is None:
        fusion = SumFusion.fit(V, w, w_next, [s.trace for s in spectra], n_components, roundings)
    elif places is not None:
        how = (n_components, setup.center, places, roundings)
        fusion = SampledProductFusion.fit(V, w, w_next, *how)
    else:
        fusion = ProductFusion.fit(V, w, w_next, n_components, setup.center, roundings)
    return _model(fusion, spectra, setup)


def _rounding(spectrum: LocalSpectrum) -> Rounding:
    V, w = np.asarray(spectrum.vectors, np.float64), np.asarray(spectrum.values, np.float64)
    return Rounding.of(V, w, half_steps(V, spectrum.bits))


def _model(fusion: Fusion, spectra: Replies, setup: OneShotSetup) -> ColumnModel:
    sampled: tuple[str, ...] = ()
    if isinstance(fusion, SampledProductFusion):
        sampled = (
            f"{len(fusion.components.eigenvectors):,} samples are too many for a matrix of all "
            f"pairs: eigenpairs and components are the best in the span of "
            f"{len(fusion.coefficients)} of them",
        )
    return ColumnModel(
        fusion,
        name=setup.model,
        parties=spectra.parties,
        widths=tuple(s.n_columns for s in spectra),
        sent=tuple(len(s.values) for s in spectra),
        n_samples=spectra[0].n_samples,
        sampled=sampled,
    )
