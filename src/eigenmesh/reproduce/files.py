"""Readers of the files in which the papers' sets are published, the first rows of them only."""

from __future__ import annotations

import gzip
import io
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import IO, Any

import numpy as np
import scipy.sparse as sp
from sklearn.datasets import load_svmlight_file

from eigenmesh.errors import InputError

Pair = tuple[Any, Any]
MOST_ROWS = 200_000  # of files with millions


def read_archive(path: Path) -> Pair:
    """An .npz with X and y, or with the parts of a CSR matrix and y."""
    with np.load(path, allow_pickle=False) as archive:
        if "X" in archive:
            return archive["X"], archive["y"]
        parts = archive["data"].astype(np.float64), archive["indices"], archive["indptr"]
        return sp.csr_array(parts, shape=tuple(archive["shape"])), archive["y"]


def read_csv(path: Path, target: int = 0, skip: int = 0, most: int = MOST_ROWS) -> Pair:
    r"""Numbers separated by commas, the target in one column: HIGGS, SUSY, YearPredictionMSD.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "SUSY.csv"
    >>> _ = file.write_text("1.0,2.5,3.5\n0.0,4.5,5.5\n")
    >>> X, y = read_csv(file)
    >>> X.tolist(), y.tolist()
    ([[2.5, 3.5], [4.5, 5.5]], [1.0, 0.0])
    """
    with _opened(path) as lines:
        table = np.loadtxt(islice(lines, skip, skip + most), delimiter=",", ndmin=2)
    return np.delete(table, target, axis=1), table[:, target]


def read_svmlight(path: Path, n_features: int, most: int = 20_000) -> Pair:
    """`label index:value …`, as LIBSVM has MNIST8M."""
    with _opened(path) as lines:
        head = io.BytesIO("".join(islice(lines, most)).encode())
    X, y = load_svmlight_file(head, n_features=n_features)
    return sp.csr_array(X).toarray(), y


def read_geo(path: Path, keywords: tuple[str, ...]) -> Pair:
    """A series matrix of NIH GEO: samples by probes, labelled by a word in the samples' titles.

    Samples without any of the words are left out; "null" is a missing value.
    """
    labels: list[int] = []
    with _opened(path) as lines:
        for line in lines:
            if line.startswith(("!Sample_title", "!Sample_characteristics")) and not any(
                label >= 0 for label in labels
            ):
                labels = [_first_of(keywords, title) for title in line.split("\t")[1:]]
            if line.startswith("!series_matrix_table_begin"):
                break
        next(lines)  # names of the samples
        values = np.array([_probe(line) for line in lines if not line.startswith("!")])
    if values.ndim != 2 or values.shape[1] != len(labels):
        raise InputError(f"{path.name} has no table of probes for its {len(labels)} samples")
    has_label = np.array(labels) >= 0
    return values.T[has_label], np.array(labels)[has_label]


def _first_of(keywords: tuple[str, ...], title: str) -> int:
    return next((i for i, word in enumerate(keywords) if word in title.lower()), -1)


def _probe(line: str) -> list[float]:
    cells = line.rstrip("\n").split("\t")[1:]
    return [float(cell) if cell not in ("", "null", "NA") else np.nan for cell in cells]


def read_wide_table(path: Path, most: int = 4000) -> Pair:
    """Genes by samples, separated by tabs, with a header and names, as TCGA is shared."""
    with _opened(path) as lines:
        n = len(next(lines).rstrip("\n").split("\t")) - 1
        values = np.array([_probe(line)[:most] for line in lines])
    return values.T, np.zeros(min(n, most), dtype=int)


def read_images(folder: Path, side: int, most: int = 2000) -> Pair:
    """Grey images of any size in folders, one a class, scaled to side × side in [0, 1]."""
    from PIL import Image  # comes with matplotlib

    files = sorted(f for f in folder.rglob("*") if f.suffix.lower() in (".png", ".jpg", ".jpeg"))
    if not files:
        raise InputError(f"{folder} holds no .png or .jpg; expected a folder of images a class")
    step = max(len(files) // most, 1)
    files = files[::step][:most]
    rows = []
    for file in files:
        with Image.open(file) as image:
            rows.append(np.asarray(image.convert("L").resize((side, side)), dtype=float).ravel())
    classes = {name: i for i, name in enumerate(sorted({f.parent.name for f in files}))}
    return np.array(rows) / 255, np.array([classes[f.parent.name] for f in files])


class _Lines:
    """Lines of a text file, packed or not; a context manager over what it opens."""

    def __init__(self, path: Path) -> None:
        opener: Any = gzip.open if path.suffix == ".gz" else open
        self._file: IO[str] = opener(path, "rt", encoding="utf-8", errors="replace")

    def __enter__(self) -> Iterator[str]:
        return iter(self._file)

    def __exit__(self, *error: Any) -> None:
        self._file.close()


def _opened(path: Path) -> _Lines:
    return _Lines(path)
