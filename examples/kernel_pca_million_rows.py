"""A million rows on a laptop, with scikit-learn's interface: only the import changes.

Run: python examples/kernel_pca_million_rows.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

import eigenmesh as em

N_ROWS, N_COLUMNS, BLOCK = 1_000_000, 28, 100_000


def write_rows(path: Path) -> None:
    """A curved surface in 28 columns, with noise, written a block at a time."""
    rng = np.random.default_rng(0)
    shape = rng.normal(size=(5, N_COLUMNS)).astype(np.float32)
    rows = np.lib.format.open_memmap(path, "w+", np.float32, (N_ROWS, N_COLUMNS))
    for start in range(0, N_ROWS, BLOCK):
        hidden = rng.normal(size=(BLOCK, 5)).astype(np.float32)
        noise = rng.normal(scale=0.2, size=(BLOCK, N_COLUMNS)).astype(np.float32)
        rows[start : start + BLOCK] = np.tanh(hidden @ shape) + noise


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.npy"
        write_rows(path)
        X = np.load(path, mmap_mode="r")

        kpca = em.KernelPCA(8, kernel="rbf", gamma="median", random_state=0)  # verbose=True: a bar
        Z = kpca.fit(X).transform(X)
        print(kpca.method_)
        print(f"{Z.shape[0]:,} rows, {Z.shape[1]} components,", end=" ")
        print(f"{kpca.explained_variance_ratio_.sum():.0%} of the variance or more")

        # The same from a stream, each block seen once, with the same landmarks. What these miss is
        # not measured again, only guessed, so that it is no matter of hundredths.
        blocks = (X[start : start + BLOCK] for start in range(0, N_ROWS, BLOCK))
        fixed = em.KernelPCA(8, kernel="rbf", gamma=kpca.gamma_, landmarks=kpca.landmarks_)
        fixed.set_params(accuracy=0.1)
        streamed = fixed.fit(blocks)
        difference = np.abs(streamed.eigenvalues_ / kpca.eigenvalues_ - 1).max()
        print("The stream gives the same components:", difference < 1e-5)

        # Twenty parties that may not pool: the same call, and an account of what left them.
        parts = em.split(X[:200_000], n_parties=20, random_state=0)
        print(em.plan(kpca, parts))
        print(kpca.fit(parts).method_)


if __name__ == "__main__":
    main()
