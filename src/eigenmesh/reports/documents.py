"""What runs leave for machines: JSON documents and files of scores."""

from __future__ import annotations

import csv
import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from eigenmesh.errors import InputError
from eigenmesh.estimators.plan import Plan
from eigenmesh.estimators.report import RunReport
from eigenmesh.reports.audit import audit

SCORE_SUFFIXES = (".npy", ".csv")


def account_tree(account: RunReport | Plan) -> dict[str, Any]:
    """A report or a forecast in plain numbers and words."""
    worth = {"share_of_baseline": account.share_of_baseline, "audit": audit(account).to_tree()}
    return {**dataclasses.asdict(account), **worth}


def model_tree(kpca: Any) -> dict[str, Any]:
    """What a fit gave and what it cost; so too the scores of its samples, if they were sent for."""
    has_scores = hasattr(kpca, "transform_report_")
    return {
        "estimator": type(kpca).__name__,
        "params": kpca.get_params(deep=False),
        "method": kpca.method_,
        "parties": kpca.report_.parties,
        "gamma": kpca.gamma_,
        "eigenvalues": kpca.eigenvalues_,
        "explained_variance_ratio": kpca.explained_variance_ratio_,
        "shortfalls": kpca.shortfalls_,
        "report": account_tree(kpca.report_),
        "scores_report": account_tree(kpca.transform_report_) if has_scores else None,
    }


def cluster_tree(kmeans: Any) -> dict[str, Any]:
    """What a clustering gave and what it cost."""
    return {
        "estimator": type(kmeans).__name__,
        "params": kmeans.get_params(deep=False),
        "method": kmeans.method_,
        "parties": kmeans.report_.parties,
        "gamma": kmeans.gamma_,
        "sizes": cluster_sizes(kmeans),
        "inertia": kmeans.inertia_,
        "inertia_slack": kmeans.inertia_slack_,
        "eigenvalues": kmeans.eigenvalues_,
        "report": account_tree(kmeans.report_),
    }


def cluster_sizes(kmeans: Any) -> list[int]:
    """Rows in each cluster, over all parties."""
    labels = kmeans.labels_ if isinstance(kmeans.labels_, list) else [kmeans.labels_]
    counts = np.bincount(np.concatenate(labels), minlength=len(kmeans.cluster_centers_))
    return [int(count) for count in counts]


def as_json(tree: Any) -> str:
    """One JSON document; infinities and NaN, which JSON lacks, as null.

    >>> print(as_json({"bound": float("inf"), "floats": np.int64(3), "parties": ("a", "b")}))
    {
      "bound": null,
      "floats": 3,
      "parties": [
        "a",
        "b"
      ]
    }
    """
    return json.dumps(_plain(tree), indent=2, ensure_ascii=False, allow_nan=False)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return _plain(value.tolist())
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _plain(dataclasses.asdict(value))
    return str(value) if isinstance(value, Path) else value


def check_output(path: Path, inputs: Sequence[Path], suffixes: tuple[str, ...] = ()) -> None:
    """Refuse, before any work is done, a file that could not or should not be written."""
    if suffixes and path.suffix.lower() not in suffixes:
        raise InputError(f"{path.name!r} ends in {path.suffix!r}; expected {' or '.join(suffixes)}")
    if path.is_dir() or not path.parent.is_dir():
        problem = "is a folder" if path.is_dir() else "lies in a folder that does not exist"
        raise InputError(f"{str(path)!r} cannot be written: it {problem}")
    if path.resolve() in [file.resolve() for file in inputs]:
        raise InputError(f"{str(path)!r} is read in this very command; write to another file")


def ids_path(path: Path) -> Path:
    """Where the samples' ids lie beside scores in a .npy file, which has no room for them.

    >>> ids_path(Path("scores.north.npy")).name
    'scores.north.ids.npy'
    """
    return path.with_name(f"{path.stem}.ids.npy")


def write_scores(path: Path, scores: Any, names: Any, ids: Any = None) -> None:
    """Scores as .csv with a header and the samples' ids, if they have any; or both as .npy."""
    if path.suffix.lower() == ".npy":
        files = [(path, scores), *([] if ids is None else [(ids_path(path), ids)])]
        for file, values in files:
            with file.open("wb") as binary:
                np.save(binary, values, allow_pickle=False)
        return
    rows = np.asarray(scores).tolist()  # Python floats are written in full precision
    with path.open("w", newline="", encoding="utf-8") as text:
        out = csv.writer(text)
        out.writerow([*([] if ids is None else ["id"]), *names])
        out.writerows(
            rows if ids is None else ([i, *row] for i, row in zip(ids, rows, strict=True))
        )
