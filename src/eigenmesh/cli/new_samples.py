"""Files of samples that a model has not seen, matched to the model's parties and columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from eigenmesh.cli import options
from eigenmesh.data import Partitioned
from eigenmesh.data.column_names import parties_by_columns
from eigenmesh.data.odd_columns import sounds_like_id
from eigenmesh.data.readers import peek_names
from eigenmesh.errors import InputError

_SHOWN = 5  # columns that an error names


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
    used = tuple(map(str, getattr(model, "feature_names_in_", ())))
    if features is None and used:
        _require_no_more_columns([used], files, reading, f"--columns {','.join(used)}")
    return options.parties(files, "rows", reading.names, None, **rows)


def _require_no_more_columns(
    owners: Iterable[Sequence[str]], files: list[Path], reading: options.FileOptions, option: str
) -> None:
    """Raise, with what to pass, where a file has columns beside all of an owner's.

    A model does not say which column had the ids in its fit, and that is forgotten most often.
    """
    for file in files:
        try:
            names = peek_names(file, reading.id_column, **reading.text_words()) or ()
        except InputError:  # which whoever opens the file will say
            continue
        for used in owners:
            more = [name for name in names if name not in used]
            if more and set(used) <= set(names):
                raise InputError(
                    f"file {file.name!r} has column{'s' if len(more) > 1 else ''} "
                    f"{', '.join(map(repr, more[:_SHOWN]))} beside the model's; add "
                    f"{_remedy(more, reading.id_column, option)}"
                )


def _remedy(more: Sequence[str], id_column: str | None, option: str) -> str:
    """What to pass where these columns are no features; `option` leaves out what are no ids."""
    them = "it" if len(more) == 1 else "them"
    if id_column is not None:
        return f"{option} to leave {them} aside"
    if len(more) == 1:
        others = f", or {option} to leave it aside" if option else ""
        return f"--id-column {more[0]} if it has the samples' ids{others}"
    likely = next(filter(sounds_like_id, more), "NAME")
    others = f", and {option} to leave the others aside" if option else ""
    return f"--id-column {likely} if that has the samples' ids{others}"


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
    if reading.id_column is None:
        columns = (own for own in model.party_feature_names_.values() if own is not None)
        _require_no_more_columns(list(columns), data, reading, "")
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
