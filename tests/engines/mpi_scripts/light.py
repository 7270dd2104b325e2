"""Runs `main` of a module beside this file, on eigenmesh without its estimators.

Importing scikit-learn in each of eighty ranks would take two cores more than a minute.
Usage: light.py MODULE [ARGUMENTS].
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType


def leave_out_the_estimators() -> None:
    found = find_spec("eigenmesh")
    assert found is not None
    package = ModuleType("eigenmesh")
    package.__path__ = list(found.submodule_search_locations or [])
    sys.modules["eigenmesh"] = package


if __name__ == "__main__":
    leave_out_the_estimators()
    import_module(sys.argv[1]).main(*sys.argv[2:])
