"""Runs pytest in every rank of an MPI job, on the engine contract and on `every_rank.py`.

All ranks run the same tests in the same order, so that each federation is opened by all of them.
Usage: suite.py FOLDER [PYTEST OPTIONS]; FOLDER/rank-R.json then tells what became of each test.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import sys
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import pytest
from mpi4py import MPI

HERE = Path(__file__).parent
ROOT = HERE.parents[2]


class Told(NamedTuple):
    """A caught error on its way to the other ranks: tests ask it for no more than this."""

    party: str | None
    words: str

    @property
    def value(self) -> Told:
        return self

    def __str__(self) -> str:
        return self.words


def tellable(value: Any) -> Any:
    """Some tests return the errors that they caught, which no protocol does."""
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        return tuple(tellable(item) for item in value)
    error = getattr(value, "value", value) if isinstance(value, pytest.ExceptionInfo) else value
    return Told(error.party, str(error)) if isinstance(error, Exception) else value


def open_on_mpi(*args: Any, **options: Any) -> Any:
    """A federation whose runs bring every rank the value that the coordinator's side returns."""
    import eigenmesh as em

    fed = em.federation(*args, engine="mpi", **options)
    run = fed.run

    def run_and_tell(protocol: Any, *args: Any, **kwargs: Any) -> Any:
        @functools.wraps(protocol.coordinate)
        def coordinate(*args: Any, **kwargs: Any) -> Any:
            return tellable(protocol.coordinate(*args, **kwargs))

        found = run(dataclasses.replace(protocol, coordinate=coordinate), *args, **kwargs)
        # On its way to another rank a list becomes a tuple, and the tests compare with lists.
        plain = type(found.value) is tuple
        return dataclasses.replace(found, value=list(found.value)) if plain else found

    fed.run = run_and_tell  # type: ignore[method-assign]
    return fed


def list_mpi_among_the_engines() -> None:
    from tests.engines import contract

    from eigenmesh.runtime import records

    for result in (Told, contract.SurveyResult):
        records.record(result)
    contract.ENGINES[1:] = [contract.EngineUnderTest("mpi", open_on_mpi, 1.0)]


def explode(*args: Any) -> NoReturn:
    raise AssertionError("something was to be pickled")


class Diary:
    """What became of each test."""

    def __init__(self) -> None:
        self.outcomes: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: Any) -> None:
        name = report.nodeid.rpartition("/")[2]
        if report.failed:
            self.outcomes[name] = report.longreprtext[-3000:]
        elif report.when == "call" or report.skipped:
            self.outcomes.setdefault(name, report.outcome)


def main() -> int:
    folder, *options = sys.argv[1:]
    sys.path[:0] = [str(ROOT), str(HERE)]
    MPI.pickle.__init__(explode, explode)  # all that follows goes without it
    list_mpi_among_the_engines()
    diary = Diary()
    files = [str(ROOT / "tests/engines/test_contract.py"), str(HERE / "every_rank.py")]
    quiet = "-q --no-header -p no:cacheprovider -p no:xdist -k not(in-process)".split()
    rootdir = ["--rootdir", str(ROOT), "-c", str(ROOT / "pyproject.toml")]
    code = pytest.main([*files, *quiet, *rootdir, *options], plugins=[diary])
    rank = MPI.COMM_WORLD.rank
    (Path(folder) / f"rank-{rank}.json").write_text(json.dumps(diary.outcomes))
    return int(code)


if __name__ == "__main__":
    sys.stdout = sys.stdout if MPI.COMM_WORLD.rank == 0 else open("/dev/null", "w")  # noqa: SIM115
    main()
