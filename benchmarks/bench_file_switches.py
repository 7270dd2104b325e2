"""How many files a reader follows through one fit, as a profiler sees first visits.

The rule: functions, comprehensions and lambdas of the package are listed in the order of their
first calls, in all threads together, and a switch is counted wherever one is of another file than
the one listed before it. Beside it stand the functions whose first call came out of another file,
and the numbers of functions and of files. Every fit runs once before it is counted: what is found
out once a process (annotations, cores, entry points) is not part of the path. How threads take
turns may move a figure by one or two.

scikit-learn's own KernelPCA, of the rows that it can hold, is counted in scikit-learn's files.
"""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

import numpy as np
import sklearn
from sklearn.decomposition import KernelPCA

import eigenmesh as em


class Visits(NamedTuple):
    """What was counted of one fit."""

    switches: int
    called_from_other_files: int
    functions: int
    files: int


def visits(fit: Callable[[], Any], package: Path) -> Visits:
    """What a second fit looks like in the files of a package."""
    fit()
    first_calls: dict[CodeType, str | None] = {}  # function -> file of its first caller
    own = f"{package}/"

    def look(frame: FrameType, event: str, _: Any) -> None:
        if event != "call" or not frame.f_code.co_filename.startswith(own):
            return
        caller = frame.f_back
        while caller is not None and not caller.f_code.co_filename.startswith(own):
            caller = caller.f_back  # through other packages
        first_calls.setdefault(frame.f_code, caller and caller.f_code.co_filename)

    threading.setprofile(look)
    sys.setprofile(look)
    try:
        fit()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    files = [code.co_filename for code in first_calls]
    switches = sum(now != before for before, now in zip(["", *files[:-1]], files, strict=True))
    foreign = sum(code.co_filename != caller for code, caller in first_calls.items())
    return Visits(switches, foreign, len(files), len(set(files)))


def main() -> None:
    warnings.simplefilter("ignore")
    X = np.random.default_rng(0).normal(size=(20_000, 20))
    columns = em.split(X[:2000], n_parties=4, by="columns", random_state=0)
    here, there = Path(em.__file__).parent, Path(sklearn.__file__).parent
    fits: dict[str, tuple[Callable[[], Any], Path]] = {
        "em.KernelPCA().fit(X), 20,000 rows": (lambda: em.KernelPCA().fit(X), here),
        "em.KernelPCA(5, kernel='rbf').fit(X)": (
            lambda: em.KernelPCA(5, kernel="rbf").fit(X),
            here,
        ),
        "em.OneShotKPCA().fit(columns)": (lambda: em.OneShotKPCA().fit(columns), here),
        "sklearn KernelPCA().fit(X[:2000])": (lambda: KernelPCA().fit(X[:2000]), there),
    }
    print(f"{'':40}{'switches':>10}{'from other files':>18}{'functions':>11}{'files':>7}")
    for name, (fit, package) in fits.items():
        seen = visits(fit, package)
        print(
            f"{name:40}{seen.switches:10}{seen.called_from_other_files:18}{seen.functions:11}"
            f"{seen.files:7}"
        )


if __name__ == "__main__":
    main()
