"""Three hospitals hold different measurements of the same patients and may not pool them.

Run: python examples/three_hospitals.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

import eigenmesh as em
from eigenmesh.data.synthetic import gene_like


def main() -> None:
    # Rows are patients, in the same order everywhere; each hospital has its own columns.
    X, _ = gene_like(n_samples=150, n_features=6000, random_state=0)
    patients = [f"P{i:03d}" for i in range(150)]
    north, south, west = X[:, :3000], X[:, 3000:4500], X[:, 4500:]
    # "columns", since the spectra of these tell the distances of patients within a tenth.
    kinds = {"eigenvectors", "columns", "counts", "hashes", "moments", "scores"}
    parts = em.Partitioned(
        columns=[north, south, west],
        names=["north", "south", "west"],
        sample_ids=[patients] * 3,
        policies=em.Policy(allow=kinds),
    )
    fitted, new = parts.take_samples(range(120)), parts.take_samples(range(120, 150))

    kpca = em.OneShotKPCA(n_components=4, kernel="rbf", gamma="mean-distance", local_rank=20)
    print("Before anything runs:")
    print(em.plan(kpca, fitted), "\n")

    kpca.fit(fitted)
    print("After the fit:")
    print(kpca.report_, "\n")

    scores = kpca.transform(new)  # one message from each hospital
    print("Scores of the first new patients:")
    print(np.array2string(scores[:3], precision=3), "\n")

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.em"
        kpca.save(path, parties=True)  # model.em for the coordinator, a share for each hospital
        difference = np.abs(em.load(path).transform(new) - scores).max()
        print("Files:", ", ".join(sorted(file.name for file in Path(folder).iterdir())))
        print("The loaded model gives the same scores:", difference < 1e-12, "\n")

    # North changes its mind: its eigenvectors may not leave. It refuses, and nothing has left it.
    strict = em.Partitioned(
        columns=fitted.parts,
        names=fitted.names,
        policies=[em.Policy(allow={"counts", "hashes", "moments"}), None, None],
    )
    try:
        kpca.fit(strict)
    except em.EigenmeshError as error:
        print(error)


if __name__ == "__main__":
    main()
