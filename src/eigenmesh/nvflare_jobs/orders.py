"""Orders to the server's job: it is the coordinator, and the sites' replies stay with it.

An order names an estimator of this library and its parameters; the outcome is the model's file, or
scores. Both travel as JSON.
"""

from __future__ import annotations

import base64
import io
import tempfile
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from eigenmesh.connect import federation_on
from eigenmesh.engines.nvflare import Flare, Relayed
from eigenmesh.errors import EigenmeshWarning, FederationError, InputError
from eigenmesh.estimators.base import described, from_description, load
from eigenmesh.numerics.arrays import Floats
from eigenmesh.runtime.study import FitStudy, load_study

_ESTIMATORS = ("KernelPCA", "KernelKMeans")
_OPTIONS = ("timeout", "on_loss", "max_age")


# In the analyst's process.


def fit_at_server(
    engine: Relayed,
    estimator: Any,
    options: Mapping[str, Any],
    on_progress: Callable[[str], None] = lambda words: None,
) -> Any:
    """The fitted model; `options` are those of a federation that a fit minds.

    Of them `approved` is the file of a study that the sites' owners have approved.
    """
    work = {"do": "fit", "estimator": _one_of_ours(described(estimator)), **_sent(options)}
    outcome = engine.order(work, on_progress)
    _warn(outcome)
    return _model_in(_bytes(outcome, "model"))


def _one_of_ours(description: dict[str, Any]) -> dict[str, Any]:
    name = description.get("name")
    if name not in _ESTIMATORS:
        raise InputError(f"{name} is fitted in this process; expected {' or '.join(_ESTIMATORS)}")
    return description


def scores_at_server(engine: Relayed, model: Any, options: Mapping[str, Any]) -> Floats:
    """Scores of the samples whose columns the sites have."""
    work = {"do": "transform", "model": _text(_file_of(model)), **_sent(options)}
    outcome = engine.order(work, lambda words: None)
    _warn(outcome)
    scores: Floats = np.load(io.BytesIO(_bytes(outcome, "scores")), allow_pickle=False)
    return scores


def _sent(options: Mapping[str, Any]) -> dict[str, Any]:
    study = options.get("approved")
    return {**options, "approved": None if study is None else _text(Path(study).read_bytes())}


def _bytes(outcome: Mapping[str, Any], key: str) -> bytes:
    try:
        return base64.b64decode(outcome[key], validate=True)
    except (KeyError, TypeError, ValueError):
        raise FederationError(f"the server's job gave no {key}") from None


def _warn(outcome: Mapping[str, Any]) -> None:
    for words in outcome.get("warnings", ()):
        warnings.warn(str(words), EigenmeshWarning, stacklevel=3)


# In the server's job.


def carry_out(flare: Flare, work: Mapping[str, Any]) -> dict[str, Any]:
    """Do what an order says; the outcome."""
    flare.split, flare.align = str(work["split"]), str(work["align"])
    losses = {name: work[name] for name in _OPTIONS if name in work}
    topology = work.get("topology")
    topology = tuple(topology) if isinstance(topology, list) else topology
    approved = None if work.get("approved") is None else _study_in(_bytes(work, "approved"))
    with warnings.catch_warnings(record=True) as notices:
        warnings.simplefilter("always", EigenmeshWarning)
        with federation_on(flare, topology, losses, work.get("secure"), approved) as fed:
            if work["do"] == "transform":
                outcome = {"scores": _text(_npy(_model_in(_bytes(work, "model")).transform(fed)))}
            else:
                estimator = from_description(_one_of_ours(work["estimator"]))
                outcome = {"model": _text(_file_of(estimator.fit(fed)))}
    ours = [str(own.message) for own in notices if issubclass(own.category, EigenmeshWarning)]
    return {**outcome, "warnings": ours}


def _npy(array: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, np.asarray(array), allow_pickle=False)
    return file.getvalue()


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _file_of(model: Any) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder) / "model.em")
        return (Path(folder) / "model.em").read_bytes()


def _model_in(data: bytes) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "model.em").write_bytes(data)
        return load(Path(folder) / "model.em")


def _study_in(data: bytes) -> FitStudy:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "study.json").write_bytes(data)
        return load_study(Path(folder) / "study.json")
