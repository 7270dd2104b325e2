"""Prints the lowest version of every package that pyproject.toml allows, as pip's constraints."""

import re
import sys
import tomllib
from pathlib import Path

BOUND = re.compile(r"^([A-Za-z0-9_.-]+)(?:\[[^]]*\])?>=([0-9.]+)")


def lowest_versions(pyproject: str) -> list[str]:
    project = tomllib.loads(pyproject)["project"]
    own = [*project["dependencies"]]
    for extra, needs in project["optional-dependencies"].items():
        own += needs if extra != "dev" else []  # what tests run with may be new
    bounds = [bound for need in own if (bound := BOUND.match(need))]
    return sorted({f"{name}=={version}" for name, version in (bound.groups() for bound in bounds)})


if __name__ == "__main__":
    print("\n".join(lowest_versions(Path(sys.argv[1]).read_text())))
