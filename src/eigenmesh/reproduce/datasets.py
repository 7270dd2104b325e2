"""The papers' data: from a folder, by scikit-learn's fetchers, else a stated stand-in.

The folder is that of the environment variable EIGENMESH_DATA. What a set came from is part of it,
and every figure says so. Nothing is fetched unless a server can be reached within seconds.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn import datasets as bundled

from eigenmesh.data.missing import drop_missing
from eigenmesh.data.synthetic import density_columns, paper_linear
from eigenmesh.errors import InputError
from eigenmesh.reproduce import files, stand_ins
from eigenmesh.reproduce.files import Pair

_PATIENCE = 3.0  # seconds for a server to answer


@dataclass(frozen=True)
class Rows:
    """Some rows of a set, and where they are from."""

    name: str
    X: Any
    y: Any
    origin: str

    @property
    def stands_in(self) -> bool:
        """Whether they only have the shape of the set."""
        return "stand-in" in self.origin


@dataclass(frozen=True)
class DataSet:
    """A set of a paper: its shape there, the files that may hold it, and what stands in for it.

    `files` maps a file's or folder's name to its reader; `extract` says what is missing of a set if
    a file holds a part. `prepared` is "raw", "unit" (divided by 255) or "standardised".
    """

    shape: str
    stand_in: Callable[..., Pair]  # (n, rng, **options)
    kind: str  # of the stand-in, in words
    files: Mapping[str, Callable[..., Pair]] = field(default_factory=dict)
    extract: Mapping[str, str] = field(default_factory=dict)
    fetch: Callable[[], Pair] | None = None
    prepared: str = "raw"
    usual: int = 1000  # rows of a stand-in where all are wanted


def load(
    name: str, n_rows: int | None = None, seed: int = 0, *, offline: bool = False, **options: Any
) -> Rows:
    """Rows of a set, drawn by the seed where fewer than all are wanted.

    >>> rows = load("sonar", offline=True)
    >>> rows.X.shape[1]
    60
    """
    if name not in SETS:
        raise InputError(f"data {name!r} is unknown; expected one of {', '.join(sorted(SETS))}")
    spec = SETS[name]
    X, y, origin = _whole(name, offline, tuple(sorted(options.items())), n_rows or spec.usual, seed)
    rng = np.random.default_rng(seed)
    if n_rows is not None and n_rows < X.shape[0]:
        draw = rng.permutation(X.shape[0])[:n_rows]
        X, y = X[draw], y[draw]
    return Rows(name, _prepared(X, spec.prepared, origin), y, origin)


def source(name: str, *, offline: bool = False) -> str:
    """Where the rows of a set would be taken from, without reading any.

    >>> source("pubmed")
    'stand-in'
    """
    spec, folder = SETS[name], os.environ.get("EIGENMESH_DATA")
    present = [file for file in spec.files if folder and (Path(folder) / file).exists()]
    if present:
        return f"file {present[0]}"
    fetched = spec.fetch is not None and not offline and _network()
    return "scikit-learn's fetcher" if fetched else "stand-in"


def _whole(name: str, offline: bool, options: Any, n: int, seed: int) -> tuple[Any, Any, str]:
    spec = SETS[name]
    rows = _from_folder(name, os.environ.get("EIGENMESH_DATA"), options)
    if rows is None and spec.fetch is not None and not offline and _network():
        rows = _fetched(name)
    if rows is not None:
        return rows
    X, y = spec.stand_in(n, np.random.default_rng([seed, len(name)]), **dict(options))
    origin = (
        spec.kind if spec.kind.startswith("as the paper") else f"synthetic stand-in ({spec.kind})"
    )
    return X, y, f"{origin}, {X.shape[0]:,} × {X.shape[1]:,}; the paper's is {spec.shape}"


@lru_cache(maxsize=8)  # figures of one paper share their sets
def _from_folder(name: str, folder: str | None, options: Any) -> tuple[Any, Any, str] | None:
    spec = SETS[name]
    for file, read in spec.files.items():
        path = Path(folder or "") / file
        if folder and path.exists():
            of_images = dict(options) if read is files.read_images else {}
            X, y = read(path, **of_images)
            part = spec.extract.get(file)
            note = f", {part} of the paper's {spec.shape}" if part else ""
            return X, y, f"file {file}, {X.shape[0]:,} × {X.shape[1]:,}{note}"
    return None


@lru_cache(maxsize=2)
def _fetched(name: str) -> tuple[Any, Any, str] | None:
    fetch = SETS[name].fetch
    assert fetch is not None
    try:
        X, y = fetch()
    except Exception:  # whatever goes wrong on the way, a stand-in can be had and is named
        return None
    return X, y, f"scikit-learn's fetcher, {X.shape[0]:,} × {X.shape[1]:,}"


@cache
def _network() -> bool:
    try:
        with socket.create_connection(("www.openml.org", 443), timeout=_PATIENCE):
            return True
    except OSError:
        return False


def _prepared(X: Any, how: str, origin: str) -> Any:
    if hasattr(X, "indptr"):
        return sp.csr_array(X, dtype=np.float64)
    X = _filled(np.asarray(X, dtype=np.float64))
    if how == "unit":
        return X / 255 if X.max(initial=0.0) > 1.5 else X
    if how == "raw":
        return X
    spread = X.std(axis=0)
    return (X[:, spread > 0] - X[:, spread > 0].mean(axis=0)) / spread[spread > 0]


def _filled(X: Any, most: float = 0.1) -> Any:
    """As paper 000: columns with more than a tenth missing go, other gaps get the column's mean."""
    if not np.isnan(X).any():
        return X
    X = drop_missing(X, most)
    return np.where(np.isnan(X), np.nanmean(X, axis=0), X)


# Sets that take more than a line.


def _commonest_words(pair: Pair, n_words: int = 3000) -> Pair:
    X = sp.csr_array(pair[0], dtype=np.float64)
    order = np.argsort(-np.asarray(X.sum(axis=0)).ravel(), kind="stable")[:n_words]
    filled = np.flatnonzero(np.diff(sp.csr_array(X[:, np.sort(order)]).indptr))
    return sp.csr_array(X[:, np.sort(order)])[filled], np.asarray(pair[1])[filled]


def _news() -> Pair:
    return _commonest_words(
        bundled.fetch_20newsgroups_vectorized(subset="all", normalize=False, return_X_y=True)
    )


def _openml(name: str, version: int) -> Callable[[], Pair]:
    def fetch() -> Pair:
        X, y = bundled.fetch_openml(
            name, version=version, return_X_y=True, as_frame=False, parser="liac-arff"
        )
        return X, np.unique(y, return_inverse=True)[1]

    return fetch


def _archive(name: str) -> dict[str, Callable[..., Pair]]:
    return {f"{name}.npz": files.read_archive}


def _table(d: int, n_classes: int, tail: float = 0.0) -> Callable[..., Pair]:
    return lambda n, rng: stand_ins.table_like(n, d, n_classes, rng, tail)


def _images(n_classes: int) -> Callable[..., Pair]:
    return lambda n, rng, side: stand_ins.images_like(n, side, n_classes, rng)


def _small(name: str, shape: str, d: int, n_classes: int, n: int) -> DataSet:
    """A structured set of paper 002."""
    return DataSet(shape, _table(d, n_classes), "a table", _archive(name), usual=n)


def _csv(name: str, **options: Any) -> dict[str, Callable[..., Pair]]:
    def read(path: Path) -> Pair:
        return files.read_csv(path, **options)

    return {name: read, f"{name}.gz": read}


_MUSHROOM = (6, 4, 10, 2, 9, 2, 2, 2, 12, 2, 4, 4, 9, 9, 1, 4, 3, 5, 9, 6, 7)
_TOXIC = ("fibrate", "statin", "azole", "toxicant")

SETS: dict[str, DataSet] = {
    # Paper 000
    "simulation": DataSet(
        "M = 1000 features, rank 50",
        lambda n, rng, spectrum: (
            paper_linear(1000, n, spectrum=spectrum, random_state=rng),
            np.zeros(n),
        ),
        "as the paper's section V",
    ),
    "gse2187": DataSet(
        "537 × 8,565",
        lambda n, rng, n_genes: stand_ins.toxicants_like(n, n_genes, rng),
        "gene expression of four classes, 1 % missing",
        {
            f"GSE2187_series_matrix.txt{gz}": lambda path: files.read_geo(path, _TOXIC)
            for gz in ("", ".gz")
        },
        usual=537,
    ),
    # Paper 001
    "news20": DataSet(
        "61,118 × 11,269",
        lambda n, rng: stand_ins.counts_like(n, 3000, 20, rng),
        "word counts",
        {"news20_bow.npz": lambda path: _commonest_words(files.read_archive(path))},
        {"news20_bow.npz": "the 3,000 commonest words of another version"},
        _news,
    ),
    "ct_slice": DataSet(
        "53,500 × 384",
        lambda n, rng: stand_ins.regression_like(n, 384, rng),
        "a regression",
        {**_csv("slice_localization_data.csv", target=-1, skip=1), **_archive("ct_slice_682")},
        {"ct_slice_682.npz": "an extract (2 of 97 patients)"},
        prepared="standardised",
    ),
    "year_msd": DataSet(
        "463,715 × 90",
        lambda n, rng: stand_ins.regression_like(n, 90, rng),
        "a regression",
        _csv("YearPredictionMSD.txt"),
        prepared="standardised",
    ),
    "mnist8m": DataSet(
        "8,000,000 × 784",
        lambda n, rng: stand_ins.digits_like(n, rng),
        "enlarged digits",
        {
            "mnist8m": lambda path: files.read_svmlight(path, 784),
            "mnist8m.scale": lambda path: files.read_svmlight(path, 784),
            "mnist.npz": files.read_archive,
        },
        {"mnist.npz": "a stand-in: MNIST, of which the set has deformed copies, in place"},
        prepared="unit",
    ),
    "higgs": DataSet(
        "11,000,000 × 28",
        _table(28, 2, tail=0.4),
        "a table of heavy tails",
        {**_csv("HIGGS.csv"), **_archive("higgs_26k")},
        {"higgs_26k.npz": "an extract"},
        _openml("higgs", 2),
        "standardised",
    ),
    "susy": DataSet(
        "3,000,000 × 18",
        _table(18, 2, tail=0.4),
        "a table of heavy tails",
        _csv("SUSY.csv"),
        prepared="standardised",
    ),
    "pubmed": DataSet(
        "8,200,000 × 141,043", lambda n, rng: stand_ins.counts_like(n, 4000, 30, rng), "word counts"
    ),
    "protein": DataSet(
        "45,730 × 9",
        lambda n, rng: stand_ins.regression_like(n, 9, rng),
        "a regression",
        {**_archive("protein_casp"), **_csv("CASP.csv", skip=1)},
        prepared="standardised",
    ),
    # Paper 002
    "college": _small("college", "777 × 15", 15, 2, 777),
    "vehicle": _small("vehicle", "846 × 18", 18, 4, 846),
    "ionosphere": _small("ionosphere", "351 × 33", 33, 2, 351),
    "glaucoma": _small("glaucoma_m", "196 × 54", 54, 2, 196),
    "sonar": _small("sonar", "208 × 60", 60, 2, 208),
    "musk": _small("musk1", "476 × 166", 166, 2, 476),
    "swarm": DataSet(
        "2,000 × 2,400", _table(2400, 2), "a table", _csv("Swarm_Behaviour.csv", target=-1, skip=1)
    ),
    "tcga": DataSet(
        "4,000 × 20,500",
        lambda n, rng: stand_ins.toxicants_like(n, 20_500, rng),
        "gene expression, filled",
        {f"TCGA_HiSeqV2.tsv{gz}": files.read_wide_table for gz in ("", ".gz")},
    ),
    "single-gaussian": DataSet(
        "n × m",
        lambda n, rng: (density_columns(n, 5 * n, random_state=rng), np.zeros(n)),
        "as the paper's section IV.B",
    ),
    "mixture-gaussian": DataSet(
        "n × m",
        lambda n, rng: (density_columns(n, 5 * n, mixture=True, random_state=rng), np.zeros(n)),
        "as the paper's section IV.B",
    ),
    "yale": DataSet(
        "165 × 10,000",
        lambda n, rng: stand_ins.images_like(n, 100, 15, rng),
        "smooth images",
        _archive("yale_faces_32"),
        {"yale_faces_32.npz": "at 32 × 32 pixels, instead"},
        prepared="unit",
        usual=165,
    ),
    "cuhk03": DataSet(
        "14,097 × 16,384", _images(20), "smooth images", {"cuhk03": files.read_images}
    ),
    "casia": DataSet("240 × 65,536", _images(10), "smooth images", {"casia": files.read_images}),
    "deeplesion": DataSet(
        "100 × 262,144", _images(8), "smooth images", {"deeplesion": files.read_images}
    ),
    # Papers 003 and 004
    "mnist": DataSet(
        "70,000 × 784",
        lambda n, rng: stand_ins.digits_like(n, rng),
        "enlarged digits",
        _archive("mnist"),
        fetch=_openml("mnist_784", 1),
        prepared="unit",
    ),
    "mushrooms": DataSet(
        "8,124 × 112",
        lambda n, rng: stand_ins.one_hot_like(n, _MUSHROOM, rng),
        "one-hot attributes of two classes",
        _archive("mushrooms"),
    ),
    "covtype": DataSet(
        "581,012 × 54",
        _table(54, 7, tail=0.2),
        "a table",
        _archive("covtype_15k"),
        {"covtype_15k.npz": "an extract"},
        lambda: bundled.fetch_covtype(return_X_y=True),
        "standardised",
    ),
    "smartphone": DataSet(
        "177,029 × 12, never published",
        _table(12, 4),
        "a table of four classes",
        prepared="standardised",
    ),
}
