"""Write docs/results.md from what the benchmarks have left as JSON.

`make bench` runs them all and then this; `python benchmarks/write_results.py FOLDER PAGE` writes
the page again. Tables stand as they were printed, with the machine and its load at that moment.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

HEAD = """# Results of the benchmarks

Written by `make bench` (or `python benchmarks/write_results.py`) from the JSON that each benchmark
leaves; not edited by hand. Timings are ratios within one run: what the absolute figures are worth
depends on the machine and on its load at that moment, which stand above the tables.
"""


def page(folder: Path) -> str:
    """All results of a folder, one section a benchmark."""
    files = sorted(folder.glob("bench_*.json"))
    return "\n\n".join(
        [HEAD.rstrip(), *(section(path.stem, json.loads(path.read_text())) for path in files)]
    )


def section(name: str, record: dict[str, Any]) -> str:
    machine = record["machine"]
    versions = ", ".join(f"{package} {number}" for package, number in machine["versions"].items())
    where = (
        f"{machine['cores']} cores ({machine['processor']}), {machine['memory_gb']} GB, "
        f"load {machine['load'][0]}, Python {machine['python']}, {versions}; {machine['day']}."
    )
    command = " ".join(["python", f"benchmarks/{name}.py", *named(record["options"])])
    purpose = " ".join(record["purpose"].split())
    return "\n\n".join(
        [f"## {name.removeprefix('bench_').replace('_', ' ')}", purpose, f"`{command}`. {where}"]
        + [table(one) for one in record["tables"]]
    )


def named(options: list[str]) -> list[str]:
    """Folders by their last part: where somebody keeps data is not a result."""
    return [Path(one).name if "/" in one else one for one in options]


def table(one: dict[str, Any]) -> str:
    def line(cells: list[str]) -> str:
        return "| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |"

    rule = "|" + "---|" * len(one["columns"])
    return "\n".join(
        [f"**{one['title']}**", "", line(one["columns"]), rule, *(line(row) for row in one["rows"])]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("page", type=Path)
    options = parser.parse_args()
    if not any(options.folder.glob("bench_*.json")):
        parser.error(f"{options.folder} holds no results; run `make bench` first")
    options.page.write_text(page(options.folder).rstrip() + "\n")


if __name__ == "__main__":
    main()
