"""What front doors say of parameters that differential privacy rules out."""

from __future__ import annotations

from typing import Any

from eigenmesh.errors import InputError
from eigenmesh.runtime.privacy import require_promise

METHOD = "private-features"


def require_private(door: Any, name: str) -> None:
    """Raise `InputError` unless epsilon and method go together, and all that leaves is noised."""
    if door.epsilon is None:
        if door.method == METHOD:
            raise InputError(f"method is {METHOD!r} and epsilon None; epsilon=1, say, is expected")
        return
    require_promise(door.epsilon, door.delta)
    if door.method not in ("auto", METHOD):
        raise InputError(
            f"epsilon is {door.epsilon:g}, and method {door.method!r} adds no noise; 'auto' or "
            f"{METHOD!r} is expected"
        )
    if door.preparation is not None:
        raise InputError(
            f"preparation is given, which learns from the rows without noise; with epsilon= None "
            f"is expected: prepare the rows by numbers that hang on none of them, before {name}"
        )
    if door.topology is not None:
        raise InputError(
            f"topology is {door.topology!r}, where neighbours see each other's sums; with epsilon= "
            f"None is expected, a coordinator"
        )
