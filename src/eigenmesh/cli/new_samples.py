"""Files of samples that a model has not seen, matched to the model's parties and columns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from eigenmesh.cli import options
from eigenmesh.data import Partitioned
from eigenmesh.data.column_names import parties_by_columns
from eigenmesh.data.readers import peek_names
from eigenmesh.errors import InputError


def samples_for(
    model: Any,
    files: list[Path],
    reading: options.FileOptions,
    features: list[str] | None,
) -> Partitioned:
    """The files as the parties of a model: rows of any, or columns of those that it knows."""
    if column_holders(model) is not None:
        return _columns_for(model, files, reading)
    rows = {**reading.words(), "features": features, **model._reads_rows()}
    if features is None:
        _require_no_more_columns(model, files, reading)
    return options.parties(files, "rows", reading.names, None, **rows)


def _require_no_more_columns(model: Any, files: list[Path], reading: options.FileOptions) -> None:
    """Raise, with the option to pass, where files have columns beside the model's."""
    used = [str(name) for name in getattr(model, "feature_names_in_", ())]
    for file in files if used else ():
        try:
            names = peek_names(file, reading.id_column, **reading.text_words()) or ()
        except InputError:  # which whoever opens the file will say
            continue
        more = [name for name in names if name not in used]
        if more and set(used) <= set(names):
            raise InputError(
                f"file {file.name!r} has columns {', '.join(map(repr, more[:5]))} beside the "
                f"model's; add --columns {','.join(used)} to leave them aside"
            )


def column_holders(model: Any) -> tuple[str, ...] | None:
    """The parties whose columns a model needs; None if it scores rows on its own."""
    return getattr(getattr(_holder(model), "model_", None), "parties", None)


def _holder(model: Any) -> Any:
    """The estimator behind a front door, or the model itself."""
    inner = getattr(model, "estimator_", None)
    return model if inner is None else inner


def _columns_for(model: Any, data: list[Path], reading: options.FileOptions) -> Partitioned:
    """Files of columns, each under the name of the party of the model that it belongs to."""
    settings = {**reading.words(), "allow_missing": _holder(model)._takes_missing()}
    if reading.names is not None:
        return Partitioned(columns=data, names=options.listed(reading.names), **settings)
    parties = column_holders(model) or ()
    if len(data) != len(parties):
        raise InputError(
            f"got {len(data)} DATA, expected {len(parties)}: one file a party, in the order "
            f"{', '.join(parties)}; or say with --names whose they are"
        )
    parts = Partitioned(columns=data, **settings)
    own = dict(zip(parts.names, parts.feature_names, strict=True))
    owners = parties_by_columns(own, model.party_feature_names_)
    if owners is not None:
        return parts.rename(owners)
    return Partitioned(columns=data, names=options.owners(data, parties), **settings)
