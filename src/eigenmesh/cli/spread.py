"""Commands take records of options; the command line has each field as an option of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from inspect import Parameter, Signature, signature
from typing import Any, get_type_hints


def spread(command: Callable[..., None]) -> Callable[..., None]:
    """The command as typer reads it, with a record's fields where the record stands.

    >>> from eigenmesh.cli.options import TextOptions
    >>> @spread
    ... def look(*, how: TextOptions, loud: bool = False) -> None:
    ...     print(how.delimiter, loud)
    >>> list(signature(look).parameters)
    ['id_column', 'delimiter', 'decimal', 'loud']
    >>> look(id_column=None, delimiter="tab", decimal=None, loud=True)
    tab True
    """
    hints = get_type_hints(command, include_extras=True)
    records: dict[str, Any] = {name: kind for name, kind in hints.items() if is_dataclass(kind)}

    def run(**values: Any) -> None:
        for name, kind in records.items():
            values[name] = kind(**{field.name: values.pop(field.name) for field in fields(kind)})
        command(**values)

    parameters = [
        option
        for parameter in signature(command).parameters.values()
        for option in _options(parameter, hints[parameter.name])
    ]
    run.__name__, run.__doc__ = command.__name__, command.__doc__
    run.__annotations__ = {option.name: option.annotation for option in parameters}
    run.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    return run


def _options(parameter: Parameter, kind: Any) -> Iterator[Parameter]:
    """The parameter; of a record its fields."""
    if not is_dataclass(kind):
        yield parameter.replace(annotation=kind, kind=Parameter.KEYWORD_ONLY)
        return
    hints = get_type_hints(kind, include_extras=True)
    for field in fields(kind):
        yield Parameter(
            field.name, Parameter.KEYWORD_ONLY, default=field.default, annotation=hints[field.name]
        )
