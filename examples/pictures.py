"""Every picture that `em.plot` draws, of the measurements of 178 wines at three cellars.

Run: python examples/pictures.py [FOLDER]
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from sklearn.datasets import load_wine
from sklearn.preprocessing import StandardScaler

import eigenmesh as em
from eigenmesh.errors import CostWarning

warnings.simplefilter("ignore", CostWarning)  # rows as few as these would be cheaper to ship
CELLARS = ["north", "south", "west"]


def pictures() -> Iterator[tuple[str, object]]:
    wine = load_wine(as_frame=True)
    table = wine.data.copy()
    table[:] = StandardScaler().fit_transform(table)
    order = np.random.default_rng(0).permutation(len(table))
    frames = [table.iloc[rows] for rows in np.array_split(order, 3)]
    parts = em.Partitioned(rows=frames, names=CELLARS)
    grape = wine.target_names[wine.target[order]]

    # What one model found: where the rows lie, what components explain, which columns move them.
    kpca = em.KernelPCA(4, kernel="rbf", gamma=0.02, accuracy=0.1, random_state=0).fit(parts)
    scores = kpca.transform(parts)
    yield "embedding", em.plot.embedding(scores, labels=grape)
    yield "scree", em.plot.scree(kpca)
    yield "loadings", em.plot.loadings(kpca, parts)

    # The same from pooled rows and from parties, with signs aligned.
    pooled = em.KernelPCA(2, kernel="rbf", gamma=0.02).fit_transform(table.iloc[order])
    both = np.vstack(scores)[:, :2]
    yield "compare", em.plot.compare(pooled, both, grape)

    # Clusters, and how many there are.
    kmeans = em.KernelKMeans(3, gamma=0.05, accuracy=0.2, random_state=0).fit(parts)
    yield "clusters", em.plot.clusters(kmeans.transform(parts), kmeans.labels_)
    yield "eigengap", em.plot.eigengap(kmeans.spectrum_)
    numbers = range(2, 8)
    chosen = em.cross_validate(em.KernelKMeans(), parts, n_clusters=numbers, gamma="around")
    yield "cross_validation", em.plot.cross_validation(chosen)

    # Without a coordinator: who sent how much to whom, and how alike their models are.
    ring = em.split(table.to_numpy(), n_parties=8, random_state=0)
    nodes = em.ADMMKPCA(2, kernel="rbf", gamma=0.02, topology="ring", n_iterations=20)
    with warnings.catch_warnings():  # what its eigenvalues miss is not known: the fit says so
        warnings.simplefilter("ignore", em.EigenmeshWarning)
        nodes.fit(ring)
    yield "graph", em.plot.graph(nodes)

    # How iterations came to their answer, of columns at three cellars.
    columns = em.split(table.to_numpy(), n_parties=3, by="columns")
    yield "convergence", em.plot.convergence(em.VFedPCA(2, keep_history=True).fit(columns))

    # What accuracy costs.
    costs = {"centroids": list(errors(parts, pooled))}
    yield "error_against_bytes", em.plot.error_against_bytes(costs, error="error of the scores")


def errors(parts: em.Partitioned, pooled: np.ndarray) -> Iterator[tuple[float, float]]:
    for count in (6, 12, 24, 33):
        kpca = em.DisKPCA(2, kernel="rbf", gamma=0.02, n_landmarks=count, landmarks="centroids")
        own = np.vstack(kpca.fit(parts).transform(parts))
        own *= np.sign(np.sum(own * pooled, axis=0))
        yield kpca.report_.bytes, float(np.linalg.norm(own - pooled) / np.linalg.norm(pooled))


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, picture in pictures():
        picture.savefig(folder / f"{name}.png", dpi=100)
        print(f"{folder / name}.png")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "pictures"))
