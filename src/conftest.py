"""Doctests: a module whose optional package is not installed has none."""

from importlib.util import find_spec

collect_ignore = [] if find_spec("nvflare") else ["eigenmesh/nvflare_jobs/sides.py"]
