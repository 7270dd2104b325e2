"""One array's `KernelPCA` against Nystroem with PCA, and against the two products that it cannot do
without: ratios of whole `fit_transform` calls, several sets in one run.

    bench_one_array.py --data DIR [--sets mnist higgs] [--sizes 5000,100 20000,400] [--cores 1 2]

Sets are those of DIR that are there (`mnist.npz`, `higgs_26k.npz`, `covtype_15k.npz` with its head,
`protein_casp.npz`, `ct_slice_682.npz`, whose few rows are drawn again with noise) and two that are
drawn. Every case runs in a process of its own: with one core BLAS is pinned to one thread and
processor time counts, with all cores everybody has the threads that a user has, and time counts.
With one core rounds are interleaved; with all each has its rounds after a pause, since threads of
BLAS that the one before has left spin on a core for up to a tenth of a second, which between rounds
took a third of what ours takes. The fastest of each is taken. "equal" is Nystroem with as many
landmarks as capture what ours do, in the mean of three draws; "products" are X Yᵀ and KᵀK in plain
float32 numpy at the best of three block sizes.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
from _common import show

K = 10
PINNED = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
FILES = {
    "mnist": ("mnist",),
    "higgs": ("higgs_26k",),
    "covtype": ("covtype_15k", "covtype_20k_head"),
    "casp": ("protein_casp",),
    "ct_slice": ("ct_slice_682",),
}
SETS = (*FILES, "narrow", "clusters")
SIZES = ("5000,100", "5000,200", "20000,100", "20000,200", "20000,400")
BLOCKS = (512, 1024, 4096)
MORE = (1.0, 1.25, 1.5, 2, 2.5, 3, 3.5, 4, 5, 6, 7, 8)  # times our landmarks
DRAWS = 3
PAUSE = 0.5  # seconds, in which threads of BLAS fall asleep


# The sets.


def load(name: str, folder: Path, n: int) -> Any:
    """Some n rows of a set, float32."""
    rng = np.random.default_rng(0)
    X = read(name, folder, n, rng) if name in FILES else drawn(name, n, rng)
    return np.ascontiguousarray(X[rng.permutation(len(X))[:n]], dtype=np.float32)


def drawn(name: str, n: int, rng: np.random.Generator) -> Any:
    if name == "narrow":
        return rng.standard_normal((n, 10)) * np.arange(1, 11) ** -0.5
    centres = 1.5 * rng.standard_normal((40, 50))
    return centres[rng.integers(40, size=n)] + 0.5 * rng.standard_normal((n, 50))


def is_there(name: str, folder: Path) -> bool:
    return all((folder / f"{file}.npz").exists() for file in FILES.get(name, ()))


def read(name: str, folder: Path, n: int, rng: np.random.Generator) -> Any:
    X = np.vstack([np.load(folder / f"{file}.npz")["X"] for file in FILES[name]])
    if name == "mnist":
        return X[:60000] / np.float32(255)
    X = X.astype(float)
    spread = X.std(axis=0)
    X = (X - X.mean(axis=0)) / np.where(spread > 0, spread, 1)
    if len(X) < n:
        X = X[rng.integers(len(X), size=n)] + 0.1 * rng.standard_normal((n, X.shape[1]))
    return X


def gamma_of(X: Any) -> float:
    return float(1 / (2 * np.square(X - X.mean(axis=0)).sum(axis=1, dtype=np.float64).mean()))


# One case, in a process of its own.


def ours(X: Any, q: int, gamma: float, seed: int = 0) -> Any:
    import eigenmesh as em

    return em.KernelPCA(K, kernel="rbf", gamma=gamma, n_landmarks=q, random_state=seed)


def nystroem(X: Any, q: int, gamma: float, seed: int = 0) -> Any:
    from sklearn.decomposition import PCA
    from sklearn.kernel_approximation import Nystroem
    from sklearn.pipeline import make_pipeline

    features = Nystroem(kernel="rbf", gamma=gamma, n_components=q, random_state=seed)
    return make_pipeline(features, PCA(K, svd_solver="covariance_eigh"))


def captured(maker: Callable[..., Any], X: Any, q: int, gamma: float) -> float:
    """Centred variance in feature space along the components, in the mean of some draws."""
    return float(np.mean([_variance(maker(X, q, gamma, s).fit_transform(X)) for s in range(DRAWS)]))


def _variance(Z: Any) -> float:
    Z = np.asarray(Z, dtype=np.float64)
    return float(np.square(Z - Z.mean(axis=0)).sum())


def as_many_as_capture(X: Any, q: int, gamma: float, wanted: float) -> int | None:
    """Landmarks with which Nystroem captures as much; None if more than all that are tried."""
    counts = [int(q * times) for times in MORE if q * times <= len(X)]
    low, high = 0, len(counts)
    while low < high:
        middle = (low + high) // 2
        if captured(nystroem, X, counts[middle], gamma) >= wanted:
            high = middle
        else:
            low = middle + 1
    return counts[low] if low < len(counts) else None


def products(X: Any, q: int, rows: int) -> Callable[[], None]:
    columns = np.ascontiguousarray(X[:q].T)
    values, H = np.empty((rows, q), np.float32), np.empty((q, q), np.float32)

    def run() -> None:
        for start in range(0, len(X), rows):
            K = values[: len(X) - start]
            np.matmul(X[start : start + rows], columns, out=K)
            np.matmul(K.T, K, out=H)

    return run


def least_seconds(
    contestants: dict[str, Callable[[], Any]],
    clock: Callable[[], float],
    repeats: int,
    in_turns: bool,
) -> dict[str, float]:
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for names in (repeats + 1) * [list(contestants)] if in_turns else [[n] for n in contestants]:
        if not in_turns:
            time.sleep(PAUSE)
        for name in names * (1 if in_turns else repeats + 1):
            started = clock()
            contestants[name]()
            seconds[name].append(clock() - started)
    return {name: min(own[1:]) for name, own in seconds.items()}


def run_case(options: argparse.Namespace) -> None:
    import warnings

    warnings.simplefilter("ignore")
    n, q = map(int, options.case.split(","))
    X = load(options.sets[0], Path(options.data), n)
    gamma, more = gamma_of(X), options.equal
    own, theirs = captured(ours, X, q, gamma), captured(nystroem, X, q, gamma)
    if more < 0:
        more = as_many_as_capture(X, q, gamma, own) or 0
    # What hangs on landmarks alone is kept for a next fit with the same, which none shall have.
    orders = cycle([X, X[np.random.default_rng(1).permutation(n)]])
    contestants: dict[str, Callable[[], Any]] = {
        "ours": lambda: ours(X, q, gamma).fit_transform(next(orders)),
        "nystroem": lambda: nystroem(X, q, gamma).fit_transform(X),
        **{f"products {rows}": products(X, q, rows) for rows in BLOCKS},
    }
    if more:
        contestants["equal"] = lambda: nystroem(X, more, gamma).fit_transform(X)
    one_core = options.cores == [1]
    clock = time.process_time if one_core else time.perf_counter
    seconds = least_seconds(contestants, clock, options.repeats, in_turns=one_core)
    seconds["products"] = min(seconds[f"products {rows}"] for rows in BLOCKS)
    print(json.dumps({**seconds, "more": more, "gain": own / theirs - 1, "columns": X.shape[1]}))


# The table.


def measured(name: str, size: str, cores: int, more: int, options: Any) -> dict[str, Any]:
    command = [sys.executable, __file__, "--case", size, "--sets", name, "--cores", str(cores)]
    command += ["--data", options.data, "--repeats", str(options.repeats), "--equal", str(more)]
    pins = {name: value for name, value in os.environ.items() if name not in PINNED}
    environment = {**pins, **PINNED} if cores == 1 else pins
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def row_of(name: str, size: str, cores: int, case: dict[str, Any]) -> list[str]:
    mine, more = case["ours"], case["more"]
    equal = f"{case['equal'] / mine:.1f} ({more})" if more else "–"
    figures = [f"{1e3 * mine:.0f} ms", f"{case['nystroem'] / mine:.2f}", equal]
    figures += [f"{mine / case['products']:.1f}", f"{case['gain']:+.1%}"]
    return [f"{name} × {case['columns']}", size.replace(",", ", "), str(cores), *figures]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default=os.environ.get("EIGENMESH_DATA", "."))
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=SETS)
    parser.add_argument("--sizes", nargs="+", default=list(SIZES), help="rows,landmarks")
    parser.add_argument("--cores", nargs="+", type=int, default=[1, os.cpu_count() or 1])
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument(
        "--equal", type=int, default=-1, help="landmarks of Nystroem; -1 to look, 0 for none"
    )
    parser.add_argument("--case", default=None, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.case:
        run_case(options)
        return
    rows = []
    for name in (name for name in options.sets if is_there(name, Path(options.data))):
        for size in options.sizes:
            more = options.equal
            for cores in options.cores:
                case = measured(name, size, cores, more, options)
                more = case["more"]  # looked for once
                rows.append(row_of(name, size, cores, case))
    columns = ["set", "rows, landmarks", "cores", "ours", "Nystroem", "equal (landmarks)"]
    columns += ["ours / products", "captured"]
    show("fit_transform of one float32 array, RBF, 10 components: times ours", columns, rows)


if __name__ == "__main__":
    main()
