"""Writes the models of version 0.1.0 and what they answer; kept to show how they came about.

Run once, with the code of that version: ``python write.py models.zip``. Never run it over the file
beside it, which shows that what an earlier version wrote still loads and scores the same.
"""

import io
import sys
import tempfile
import warnings
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import scipy.sparse as sp

import eigenmesh as em

RNG = np.random.default_rng(20)
N, D, K = 36, 6, 2
X = RNG.normal(size=(N, D)) @ RNG.normal(size=(D, D)) + RNG.normal(size=(1, D))
X[: N // 3] += 3.0
NEW = np.vstack([X[:3], RNG.normal(size=(4, D))])
Y = np.column_stack([X[:, 0] + np.sin(X[:, 1]), X[:, 2]])
S = sp.random(N, D, 0.5, format="csr", random_state=4)

ROWS = em.split(X, 3, by="rows", random_state=0)
ROW_YS = [Y[:12, 0], Y[12:24, 0], Y[24:, 0]]
IN_ORDER = em.Partitioned(rows=[X[:12], X[12:24], X[24:]])
COLUMNS = em.split(X, 3, by="columns", names=["north", "south", "west"])
SPARSE = em.split(S, 2, by="columns")
FRAME = pd.DataFrame(X, columns=list("abcdef"))
RBF = {"kernel": "rbf", "gamma": 0.05}
POLY = {"kernel": "poly", "gamma": 0.1, "degree": 2}


def blocks():
    return iter([X[:16], X[16:]])


def kernel_pca():
    pca = em.KernelPCA
    few = {"n_landmarks": 12, "random_state": 0}
    yield "kpca-exact", pca(K, **RBF).fit(X)
    yield "kpca-exact-frame", pca(K, kernel="poly", degree=2, gamma="scale").fit(FRAME)
    yield "kpca-exact-inverse", pca(K, **RBF, fit_inverse_transform=True).fit(X)
    yield "kpca-exact-sparse", pca(K, **RBF).fit(S)
    yield "kpca-exact-float32", pca(K, **RBF).fit(X.astype(np.float32))
    for landmarks in ("diskpca", "uniform", "leverage", "rpcholesky", "centroids"):
        model = pca(K, **RBF, method="diskpca", landmarks=landmarks, **few)
        yield f"kpca-landmarks-{landmarks}", model.fit(X)
    yield "kpca-stream", pca(K, **RBF, landmarks=X[::4]).fit(blocks())
    yield "kpca-stream-linear", pca(K).fit(blocks())
    yield "kpca-rows", pca(K, kernel="rbf", gamma="median", **few).fit(ROWS)
    yield "kpca-rows-share", pca(0.8, **POLY, **few).fit(ROWS)
    yield "kpca-rows-uncentred", pca(K, kernel="laplacian", center=False, **few).fit(ROWS)
    yield "kpca-rows-sketching", pca(K, **RBF, method="sketching-pca").fit(ROWS)
    yield "kpca-columns-linear", pca(K).fit(COLUMNS)
    yield "kpca-columns-rbf", pca(K, **RBF).fit(COLUMNS)
    yield "kpca-columns-one-shot", pca(K, **RBF, method="one-shot", local_rank=4).fit(COLUMNS)
    yield "kpca-graph", pca(K, **RBF, topology="ring", n_landmarks=12).fit(ROWS)
    yield "kpca-graph-columns", pca(K, **RBF, topology="ring").fit(COLUMNS)


def methods_on_rows():
    few = {"n_landmarks": 12, "random_state": 0}
    for name, own in {
        "linear": {},
        "poly": POLY,
        "rbf": RBF,
        "laplacian": {"kernel": "laplacian", "gamma": 0.1},
        "cosine": {"kernel": "cosine"},
        "arc-cosine": {"kernel": "arc-cosine", "degree": 1},
    }.items():
        yield f"diskpca-{name}", em.DisKPCA(K, **own, **few).fit(ROWS)
    yield "diskpca-centroids", em.DisKPCA(K, **RBF, landmarks="centroids", **few).fit(ROWS)
    yield "diskpca-paper", em.DisKPCA(K, **RBF, exact=False, **few).fit(ROWS)
    yield "sketching", em.SketchingPCA(K, **RBF, embedding_dim=20, random_state=0).fit(ROWS)
    yield "admm", em.ADMMKPCA(1, **RBF, n_iterations=5, random_state=0).fit(ROWS)
    yield "gossip", em.GossipKPCA(K, **RBF, n_features=12, random_state=0).fit(ROWS)
    random = em.GossipKPCA(K, **RBF, features="random", n_features=12, random_state=0)
    yield "gossip-random", random.fit(ROWS)


def methods_on_columns():
    one = em.OneShotKPCA
    yield "one-shot-linear", one(K, local_rank=2).fit(COLUMNS)
    yield "one-shot-rbf", one(K, kernel="rbf", gamma="median").fit(COLUMNS)
    yield "one-shot-poly", one(K, **POLY, local_rank=5).fit(COLUMNS)
    yield "one-shot-distance", one(K, **RBF, fusion="distance", local_rank=5).fit(COLUMNS)
    yield "one-shot-standardized", one(K, **RBF, standardize=True).fit(COLUMNS)
    yield "one-shot-sparse", one(K, **RBF).fit(SPARSE)
    yield "one-shot-array", one(K).fit(FRAME)
    yield "vfed-pca", em.VFedPCA(K).fit(COLUMNS)
    yield "vfed-pca-standardized", em.VFedPCA(K, standardize=True).fit(COLUMNS)
    yield "vfed-pca-paper", em.VFedPCA(K, variant="paper", n_rounds=5).fit(COLUMNS)
    yield "vfed-pca-graph", em.VFedPCA(K, topology="ring").fit(COLUMNS)
    yield "vfed-akpca", em.VFedAKPCA(K, **RBF).fit(COLUMNS)
    yield "vfed-akpca-poly", em.VFedAKPCA(K, **POLY).fit(COLUMNS)
    yield "vfed-akpca-paper", em.VFedAKPCA(K, **RBF, variant="paper", n_rounds=5).fit(COLUMNS)
    yield "vfed-akpca-landmarks", em.VFedAKPCA(K, **RBF, n_landmarks=12).fit(COLUMNS)
    yield "vfed-akpca-graph", em.VFedAKPCA(K, **RBF, topology="ring").fit(COLUMNS)
    yield "dpca", em.DPCA(1, random_state=0).fit(COLUMNS)


def clusterings():
    kmeans, few = em.KernelKMeans, {"random_state": 0, "n_init": 2}
    yield "kmeans-array", kmeans(3, **RBF, **few).fit(X)
    yield "kmeans-array-exact", kmeans(3, **RBF, method="exact", **few).fit(X)
    yield "kmeans-rows", kmeans(3, **few).fit(ROWS)
    for method in ("nystrom", "diskpca", "random-features", "fed"):
        model = kmeans(3, **RBF, method=method, n_features=6, **few)
        yield f"kmeans-rows-{method}", model.fit(ROWS)
    yield "kmeans-columns", kmeans(3, **RBF, **few).fit(COLUMNS)
    yield "kmeans-columns-linear", kmeans(3, kernel="linear", gamma=None, **few).fit(COLUMNS)
    yield "kmeans-graph", kmeans(3, **RBF, topology="ring", **few).fit(ROWS)
    for solver in ("nystrom", "gram", "lanczos"):
        model = em.FedKernelKMeans(3, **RBF, n_features=6, n_iterations=6, solver=solver, **few)
        yield f"fed-kmeans-{solver}", model.fit(ROWS)


def regressions():
    pcr, few = em.KernelPCRegressor, {"random_state": 0}
    yield "regressor-array", pcr(4, **RBF, **few).fit(X, Y)
    yield "regressor-rows", pcr(4, **RBF, n_landmarks=12, **few).fit(IN_ORDER, ROW_YS)
    yield "regressor-columns", pcr(4, **RBF, **few).fit(COLUMNS, Y[:, 0])
    yield "regressor-graph", pcr(4, **RBF, topology="ring", **few).fit(IN_ORDER, ROW_YS)


def answers(model):
    """What a model says of new rows, by the name of the method that is asked."""
    names = getattr(model, "feature_names_in_", None)
    new = NEW if names is None else pd.DataFrame(NEW, columns=names)
    asked = [name for name in ("transform", "predict") if hasattr(model, name)]
    given = {name: np.asarray(getattr(model, name)(new)) for name in asked}
    if hasattr(model, "eigenvalues_"):
        given["eigenvalues_"] = model.eigenvalues_
    if getattr(model, "fit_inverse_transform", False):
        given["inverse_transform"] = model.inverse_transform(given["transform"])
    if getattr(model, "sums_", None) is not None:
        given["partial_fit"] = model.partial_fit(NEW).transform(NEW)
    return given


def write(archive, name, model):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{name}.em"
        try:
            model.save(path, parties=True)
        except em.EigenmeshError:  # no party has a share
            model.save(path)
        for file in sorted(Path(folder).iterdir()):
            archive.write(file, file.name)
        write_arrays(archive, name, **answers(em.load(path)))


def write_arrays(archive, name, **arrays):
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    archive.writestr(f"{name}.npz", buffer.getvalue())


def main(path):
    warnings.simplefilter("ignore", em.EigenmeshWarning)
    stories = (kernel_pca, methods_on_rows, methods_on_columns, clusterings, regressions)
    with zipfile.ZipFile(path, "x", zipfile.ZIP_DEFLATED) as archive:
        for name, model in (pair for story in stories for pair in story()):
            write(archive, name, model)
        write_arrays(archive, "new-rows", X=NEW)


if __name__ == "__main__":
    main(sys.argv[1])
