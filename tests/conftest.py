"""Shared by all tests: `tests` is importable, so that suites can share helpers."""

from __future__ import annotations

import sys
from pathlib import Path

_ROOT = str(Path(__file__).parents[1])
if _ROOT not in sys.path:
    sys.path.insert(0, _ROOT)
