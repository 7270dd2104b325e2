"""One-shot kernel PCA: the centre's step, the parties' step, and the whole against scikit-learn.

Ratios are measured in one run, BLAS at one thread. Run with `make bench`.
"""

from __future__ import annotations

import numpy as np
from _common import medians, show
from scipy.sparse.linalg import eigsh
from sklearn.decomposition import KernelPCA

import eigenmesh as em
from eigenmesh.data.synthetic import gene_like, paper_linear
from eigenmesh.metrics import sin_theta
from eigenmesh.numerics.column_fusion import SumFusion
from eigenmesh.numerics.column_pieces import linear_spectrum, rbf_spectrum
from eigenmesh.numerics.kernels import Kernel


def centre_step() -> None:
    """Linear, T=2000, J=10: the factor route against eigsh on the ready-made T×T estimate."""
    rows = []
    for k, rank in ((2, 7), (5, 10), (10, 20)):
        X = paper_linear(n_features=1000, n_samples=2000, random_state=0)
        spectra = [linear_spectrum(B, rank, False, 0)[0] for B in np.array_split(X, 10, axis=1)]
        V, w = [s.vectors for s in spectra], [s.values for s in spectra]
        nexts, traces = [s.next_value for s in spectra], [s.trace for s in spectra]
        K = sum((v * x) @ v.T for v, x in zip(V, w, strict=True))
        start = np.random.default_rng(0).normal(size=len(K))
        seconds = medians(
            {
                "ours": lambda a=(V, w, nexts, traces, k): SumFusion.fit(*a),
                "eigsh": lambda K=K, k=k, start=start: eigsh(K, k + 1, v0=start),
            }
        )
        ours = SumFusion.fit(V, w, nexts, traces, k).components.eigenvectors
        error = sin_theta(ours, eigsh(K, k, v0=start)[1])
        ratio = seconds["eigsh"] / seconds["ours"]
        figures = [f"{1e3 * seconds['eigsh']:.1f} ms", f"{1e3 * seconds['ours']:.1f} ms"]
        rows.append([str(k), str(rank), *figures, f"{ratio:.0f}×", f"{error:.0e}"])
    title = "Centre step, linear, T=2000, J=10 (asked for: at least 10×)"
    show(title, ["n_components", "local_rank", "eigsh on T×T", "ours", "ratio", "sinΘ"], rows)


def party_step() -> None:
    """What one party computes, against the eigendecomposition of its whole kernel matrix."""
    X = gene_like(n_samples=1500, n_features=400, random_state=0)[0]
    gamma = 0.5 / X.shape[1]
    seconds = medians(
        {
            "linear": lambda: linear_spectrum(X, 10, True, 0),
            "linear, eigh": lambda: np.linalg.eigh(X @ X.T),
            "rbf": lambda: rbf_spectrum(X, gamma, 10, 0),
            "rbf, eigh": lambda: np.linalg.eigh(Kernel("rbf", gamma).matrix(X)),
        },
        repeats=2,
    )
    rows = [
        [kernel, f"{own:.3f} s", f"{full:.3f} s", f"{full / own:.0f}×"]
        for kernel, own, full in (
            (kernel, seconds[kernel], seconds[f"{kernel}, eigh"]) for kernel in ("linear", "rbf")
        )
    ]
    show(
        "Party's step, T=1500, 400 columns, local_rank 10",
        ["kernel", "ours", "eigh", "ratio"],
        rows,
    )


def whole_fit() -> None:
    """Fit and floats sent against scikit-learn on the pooled data."""
    rows = []
    for n, d, parties, kernel in (
        (1000, 4000, 5, "rbf"),
        (2000, 4000, 10, "rbf"),
        (2000, 4000, 10, "linear"),
        (20000, 600, 10, "linear"),
    ):
        X = gene_like(n_samples=n, n_features=d, random_state=0)[0]
        parts = em.split(X, parties, by="columns")
        ours = em.OneShotKPCA(5, kernel=kernel, gamma=0.1 / d, local_rank=20)
        pooled = KernelPCA(5, kernel=kernel, gamma=0.1 / d, eigen_solver="arpack")
        contestants = {"ours": lambda m=ours, p=parts: m.fit(p)}
        if n <= 2000:
            contestants["scikit-learn"] = lambda m=pooled, X=X: m.fit(X)
        seconds = medians(contestants, repeats=2)
        theirs = seconds.get("scikit-learn")
        error = f"{sin_theta(ours.eigenvectors_, pooled.eigenvectors_):.0e}" if theirs else "–"
        figures = [f"{theirs:.2f} s" if theirs else "–", f"{seconds['ours']:.2f} s"]
        ratio = f"{theirs / seconds['ours']:.1f}×" if theirs else "–"
        share = f"{ours.report_.share_of_baseline:.1%}"
        rows.append([kernel, f"{n}×{d}", str(parties), *figures, ratio, error, share])
    columns = [
        "kernel",
        "data",
        "parties",
        "pooled",
        "ours",
        "ratio",
        "sinΘ",
        "floats sent / shipping",
    ]
    show("Whole fit, local_rank 20, n_components 5, in process", columns, rows)


if __name__ == "__main__":
    centre_step()
    party_step()
    whole_fit()
