"""Three sites of the example on the loopback, for what is measured between running processes."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

EXAMPLE = Path(__file__).parents[1] / "examples" / "three_sites_nvflare.py"
SITES = ("east", "north", "south")


def three_sites(folder: Path) -> Any:
    """The example's federation of these sites, not provisioned yet."""
    spec = importlib.util.spec_from_file_location("three_sites_nvflare", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Federation(folder, SITES)
