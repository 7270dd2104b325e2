"""How records show themselves in notebooks: those that draw tables say it, above this floor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_RENDERERS: dict[type, Callable[[Any], str]] = {}


class Shown:
    """Base of what a notebook shows as HTML, if somebody has said how."""

    def _repr_html_(self) -> str | None:
        render = _RENDERERS.get(type(self))
        return None if render is None else render(self)


def show_as(kind: type[Shown], render: Callable[[Any], str]) -> None:
    """Say how records of a kind are shown."""
    _RENDERERS[kind] = render
