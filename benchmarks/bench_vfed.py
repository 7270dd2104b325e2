"""Column-split PCA and kernel PCA: error by round against the paper's method, graphs, traffic.

Run with `make bench`, or `python bench_vfed.py --data DIR` for the paper's own data sets (files
such as sonar.npz with an array X); without, scikit-learn's and the paper's synthetic set serve.
`--only rounds` holds every number of rounds against all that the paper's variant can be told.
"""

from __future__ import annotations

import argparse
import itertools
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from _common import medians, show
from sklearn import datasets
from sklearn.decomposition import PCA, KernelPCA

import eigenmesh as em
from eigenmesh.data.synthetic import gene_like, paper_linear
from eigenmesh.metrics import aligned_error, sin_theta

PAPER_SETS = ("sonar", "musk1", "college", "vehicle", "ionosphere", "glaucoma_m")
DRAWS = 20  # of the synthetic set, and of the printed method's start vectors
# Figures of an independent prototype: the printed method's round 2 and round 10, 10 parties. Which
# synthetic set it drew is not known.
PROTOTYPE = {
    ("sonar", False): (6.7e-3, 6.7e-3),
    ("sonar", True): (0.132, 0.132),
    ("mixture", False): (7.7e-3, 7.7e-3),
}


def densities(n: int = 200, m: int = 1000, seed: int = 0) -> np.ndarray:
    """The paper's "mixture of Gaussians": densities of uniform draws, column by column."""
    rng = np.random.default_rng(seed)
    mean, scale = rng.integers(0, m + 1, m), rng.integers(1, m + 1, m)
    x = rng.uniform(mean - 3 * scale, mean + 3 * scale, size=(n, m))
    return np.exp(-((x - mean) ** 2) / (2.0 * scale**2)) / (np.sqrt(2 * np.pi) * scale)


def sets(folder: Path | None) -> dict[str, np.ndarray]:
    if folder is None:
        bundled = {
            "wine": datasets.load_wine().data,
            "breast": datasets.load_breast_cancer().data,
            "digits": datasets.load_digits().data[:400],
        }
        return bundled | {"mixture": densities()}
    found = {}
    for name in PAPER_SETS:
        with np.load(folder / f"{name}.npz", allow_pickle=False) as archive:
            found[name] = archive["X"].astype(np.float64)
    return found | {"mixture": densities()}


def quiet(model: Any, data: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", em.EigenmeshWarning)
        warnings.simplefilter("ignore", em.CostWarning)
        return model.fit(data)


def apart(u: np.ndarray, v: np.ndarray) -> float:
    return float(min(np.linalg.norm(u - v), np.linalg.norm(u + v)))


def by_round(data: dict[str, np.ndarray]) -> None:
    """Sign-invariant distance to the pooled top vector, 3, 5 and 10 parties."""
    rows, worse = [], 0
    for name, X in data.items():
        for center in (False, True):
            exact = np.linalg.svd(X - X.mean(0) * center, full_matrices=False)[0][:, 0]
            for p in (3, 5, 10):
                parts = em.split(X, p, by="columns")
                paper = quiet(em.VFedPCA(1, variant="paper", center=center), parts)
                theirs = [apart(u, exact) for u in paper.history_]
                ours = [
                    apart(
                        quiet(em.VFedPCA(1, center=center, n_rounds=r), parts).eigenvectors_[:, 0],
                        exact,
                    )
                    for r in range(1, 11)
                ]
                worse += sum(o > t + 1e-12 for o, t in zip(ours[1:], theirs[1:], strict=True))
                frozen = np.linalg.norm(paper.history_[1] - paper.history_[9])
                rows.append(
                    [name, "centred" if center else "raw", str(p)]
                    + [f"{theirs[1]:.1e}", f"{theirs[9]:.1e}", f"{frozen:.0e}"]
                    + [f"{ours[r]:.1e}" for r in (1, 4, 9)]
                )
    columns = ["data", "", "parties", "paper r2", "paper r10", "|r2−r10|", "r2", "r5", "r10"]
    show(
        f"Distance to the pooled top vector; rounds worse than the paper's: {worse}", columns, rows
    )


def beside_the_prototype(data: dict[str, np.ndarray]) -> None:
    """The printed method against figures of another implementation, over draws."""
    rows = []
    for (name, center), expected in PROTOTYPE.items():
        if name not in data:
            continue
        sets_ = [densities(seed=s) for s in range(DRAWS)] if name == "mixture" else [data[name]]
        found = [paper_errors(X, center) for X in sets_]
        spread = np.quantile(found, (0.0, 0.5, 1.0), axis=0)  # (3, rounds)
        label = f"{name} {'centred' if center else 'raw'}"
        figures = [" / ".join(f"{value:.3g}" for value in spread[:, r]) for r in (0, 1)]
        rows.append([label, str(len(sets_)), *figures, f"{expected[0]:.3g}"])
    columns = ["data", "draws", "r2: least / median / most", "r10", "prototype"]
    show("The printed method, 10 parties, distance to the pooled top vector", columns, rows)


def paper_errors(X: np.ndarray, center: bool) -> list[float]:
    exact = np.linalg.svd(X - X.mean(0) * center, full_matrices=False)[0][:, 0]
    model = quiet(em.VFedPCA(1, variant="paper", center=center), em.split(X, 10, by="columns"))
    return [apart(model.history_[r], exact) for r in (1, 9)]


def no_breakdown(data: dict[str, np.ndarray]) -> None:
    """12 rounds of 5 components: more directions than 57 columns have."""
    rows = []
    for name, X in data.items():
        if X.shape[1] < 57:
            continue
        X = X[:, :57]
        exact = np.linalg.svd(X - X.mean(0), full_matrices=False)[0][:, :5]
        model = quiet(em.VFedPCA(5, n_rounds=12, tolerance=1e-300), em.split(X, 5, by="columns"))
        report = model.report_
        rows.append([name, f"{sin_theta(model.eigenvectors_, exact):.0e}", report.stop_reason])
    show("12 rounds × 5 components on 57 columns", ["data", "‖sin Θ‖", "stopped because"], rows)


def several_components(data: dict[str, np.ndarray]) -> None:
    """k=5, 5 parties, centred: ‖sin Θ‖ by round, and when it stops by itself."""
    rows = []
    for name, X in data.items():
        exact = np.linalg.svd(X - X.mean(0), full_matrices=False)[0][:, :5]
        parts = em.split(X, 5, by="columns")
        errors = [
            sin_theta(quiet(em.VFedPCA(5, n_rounds=r), parts).eigenvectors_, exact)
            for r in (1, 2, 3, 5, 12)
        ]
        printed = [
            sin_theta(
                quiet(em.VFedPCA(5, variant="paper", random_state=seed), parts).eigenvectors_, exact
            )
            for seed in range(DRAWS)
        ]
        model = quiet(em.VFedPCA(5), parts)
        figures = [f"{error:.0e}" for error in errors]
        share = f"{model.report_.share_of_baseline:.1%}"
        rounds = str(model.report_.rounds - 1)
        rows.append([name, f"{min(printed):.2f}–{max(printed):.2f}", *figures, rounds, share])
    columns = ["data", f"printed, {DRAWS} starts", "r1", "r2", "r3", "r5", "r12", "stops at"]
    columns.append("floats / shipping")
    show("k=5, 5 parties, centred: ‖sin Θ‖_F", columns, rows)


def graphs(X: np.ndarray, name: str) -> None:
    """Without a coordinator: error and spread of the nodes, and what it costs."""
    exact = np.linalg.svd(X - X.mean(0), full_matrices=False)[0][:, :3]
    rows = []
    for topology in ("ring", "star", "grid", "full"):
        model = quiet(em.VFedPCA(3, topology=topology), em.split(X, 10, by="columns"))
        nodes = model.node_vectors_
        error = max(sin_theta(vectors, exact) for vectors in nodes)
        spread = max(np.abs(vectors - nodes[0]).max() for vectors in nodes)
        report = model.report_
        rows.append(
            [topology, f"{error:.0e}", f"{spread:.0e}", str(report.rounds), f"{report.floats_up:,}"]
        )
    columns = ["graph", "largest error", "spread of nodes", "exchanges", "floats"]
    show(f"{name}, 10 nodes, k=3", columns, rows)


def kernel_graphs(X: np.ndarray, name: str) -> None:
    """The kernel form without a coordinator, of as many samples as a test of it can bear."""
    X = (X - X.mean(0)) / np.where(X.std(0) > 0, X.std(0), 1.0)
    rows = []
    for kernel in ("rbf", "poly"):
        gamma = 0.5 / X.shape[1]
        pooled = KernelPCA(3, kernel=kernel, gamma=gamma, eigen_solver="dense").fit(X)
        for topology in ("ring", "star", "grid", "full"):
            model = em.VFedAKPCA(3, kernel=kernel, gamma=gamma, topology=topology)
            nodes = quiet(model, em.split(X, 10, by="columns")).node_vectors_
            error = max(sin_theta(vectors, pooled.eigenvectors_) for vectors in nodes)
            spread = max(np.abs(vectors - nodes[0]).max() for vectors in nodes)
            floats = f"{model.report_.floats_up // 10:,}"
            rows.append([kernel, topology, f"{error:.0e}", f"{spread:.0e}", floats, f"{X.size:,}"])
    columns = ["kernel", "graph", "largest error", "spread of nodes", "floats a node"]
    show(f"{name}, kernel form, 10 nodes, k=3", [*columns, "shipping, in all"], rows)


def kernels(X: np.ndarray, name: str) -> None:
    """The exact kernel form against the pooled answer: scores of new samples."""
    X = (X - X.mean(0)) / np.where(X.std(0) > 0, X.std(0), 1.0)
    train, new = X[: len(X) * 3 // 4], X[len(X) * 3 // 4 :]
    rows = []
    for kernel, gamma in (("rbf", 0.5 / X.shape[1]), ("poly", 1.0 / X.shape[1])):
        pooled = KernelPCA(4, kernel=kernel, gamma=gamma, eigen_solver="dense").fit(train)
        for p in (2, 5, 16):
            model = quiet(
                em.VFedAKPCA(4, kernel=kernel, gamma=gamma),
                em.split(train, min(p, X.shape[1]), by="columns"),
            )
            error = aligned_error(model.transform(new), pooled.transform(new))
            share = f"{model.report_.share_of_baseline:.1%}"
            rows.append([kernel, str(p), f"{error:.0e}", f"{model.report_.floats_up:,}", share])
    show(
        f"{name}: kernel form against pooled KernelPCA",
        ["kernel", "parties", "error", "floats", "of shipping"],
        rows,
    )


ROUNDS = (1, 2, 3, 5, 10, 20, 50)
# Local iterations, warm start, weight scaling; a warm start is from what has frozen by then.
VARIANTS = [(n, False, scaled) for n in (1, 3, 10, 50) for scaled in (False, True)]
VARIANTS += [(10, True, False), (10, True, True)]
BEYOND = 1e-6  # a difference that counts
NO_GAP = 0.02  # 1 − λ_{k+1}/λ_k below which the data hardly determine the components


class Errors(NamedTuple):
    """Of components: the angle to the pooled ones, and the share of their variance that lacks."""

    angle: float
    variance: float

    @classmethod
    def of(cls, U: np.ndarray, X: np.ndarray, pooled: np.ndarray) -> Errors:
        """Of vectors of whatever length, of samples X as they are centred."""
        Q = np.linalg.qr(U.reshape(len(X), -1))[0]
        captured, most = (np.sum((X.T @ V) ** 2) for V in (Q, pooled))
        return cls(sin_theta(Q, pooled), float(1 - captured / most))


def more_sets(data: dict[str, np.ndarray], folder: Path | None) -> dict[str, np.ndarray]:
    """Further ones: as they are, standardised, and drawn with and without gaps."""
    rng, further = np.random.default_rng(1), dict[str, np.ndarray]()
    for name in ("pima", "yale_faces_32") if folder else ():
        with np.load(folder / f"{name}.npz", allow_pickle=False) as archive:
            further[name] = archive["X"].astype(np.float64)
    for name in ("sonar", "college") if folder else ("wine",):
        further[f"{name}, standardised"] = (data[name] - data[name].mean(0)) / data[name].std(0)
    further["drawn genes"] = gene_like(n_samples=200, n_features=600, random_state=0)[0]
    further["drawn linear"] = paper_linear(n_features=200, n_samples=300, random_state=0)
    further["noise"] = rng.normal(size=(200, 40))
    return {name: X[:400] for name, X in (data | further).items()}


def settings(X: np.ndarray) -> Iterator[tuple[int, int, bool]]:
    """Parties, components, and whether columns are centred."""
    for p, k, center in itertools.product((2, 3, 5, 8), (1, 2, 3, 5), (True, False)):
        if max(p, k) <= X.shape[1]:
            yield p, k, center


def all_rounds(data: dict[str, np.ndarray]) -> None:
    """Ours after r rounds, and the paper's of r, at its best of all options: who errs more."""
    rows, costs = [], []
    for name, X in data.items():
        counts = {determined: np.zeros((3, len(ROUNDS)), int) for determined in (True, False)}
        worst = 1.0
        for p, k, center in settings(X):
            Xc = X - X.mean(0) * center
            U, s, _ = np.linalg.svd(Xc, full_matrices=False)
            parts, determined = em.split(X, p, by="columns"), 1 - (s[k] / s[k - 1]) ** 2 > NO_GAP
            ours, cost = of_ours(parts, k, center, Xc, U[:, :k])
            costs.append(cost)
            for theirs in of_papers(parts, k, center, Xc, U[:, :k]):
                pairs = list(zip(ours, theirs, strict=True))
                by_angle, by_variance = (
                    np.array([own[i] > other[i] + BEYOND for own, other in pairs]) for i in (0, 1)
                )
                counts[determined] += np.array([by_angle | True, by_angle, by_variance])
                if determined and by_angle.any():
                    worst = max(worst, *(own[0] / other[0] for own, other in pairs if other[0] > 0))
        for determined, (total, angle, variance) in counts.items():
            if total[0]:
                figures = [f"{a} / {v}" for a, v in zip(angle, variance, strict=True)]
                label = name if determined else f"{name}, no gap"
                rows.append([label, str(total[0]), *figures, f"{worst:.2f}" if determined else ""])
    columns = ["set", "compared", *(f"r{r}" for r in ROUNDS), "most, times"]
    title = (
        "Worse than the paper's by more than 1e-6, at a number of rounds: by angle / by variance"
    )
    show(title, columns, rows)
    show_costs(costs)


def of_ours(
    parts: Any, k: int, center: bool, X: np.ndarray, pooled: np.ndarray
) -> tuple[list[Errors], list[float]]:
    """Fits of each number of rounds; and of one that ends by itself what it took, by the door."""
    reached = list[Errors]()
    for rounds in ROUNDS:
        model = quiet(em.VFedPCA(k, center=center, n_rounds=rounds), parts)
        reached.append(Errors.of(model.eigenvectors_, X, pooled))
    door = quiet(em.KernelPCA(k, kernel="linear", center=center), parts)
    vectors = (door.report_.floats_up + door.report_.floats_down) / len(X) / len(parts.names) / k
    same = np.array_equal(door.eigenvalues_, model.eigenvalues_)
    return reached, [door.report_.rounds - 1, vectors, float(not same)]


def of_papers(
    parts: Any, k: int, center: bool, X: np.ndarray, pooled: np.ndarray
) -> Iterator[list[Errors]]:
    """By every option, at each number of rounds; from the second on it is frozen (a test)."""
    for i, (local, warm, scaled) in enumerate(VARIANTS):
        how = {"local_iterations": local, "warm_start": warm, "weight_scaling": scaled}
        how |= {"variant": "paper", "center": center, "random_state": 7 * i + k}
        first, second = (
            Errors.of(quiet(em.VFedPCA(k, n_rounds=r, **how), parts).eigenvectors_, X, pooled)
            for r in (1, 2)
        )
        yield [first, *[second] * (len(ROUNDS) - 1)]


def show_costs(costs: list[list[float]]) -> None:
    """Of fits that ended by themselves."""
    rounds, vectors, unlike = np.array(costs).T
    figures = [f"{rounds.mean():.2f}", f"{np.median(rounds):.0f}"]
    figures += [f"{vectors.mean():.2f}", f"{np.median(vectors):.1f}", f"{unlike.sum():.0f}"]
    rows = [[str(len(costs)), *figures]]
    columns = ["fits", "rounds, mean", "median", "vectors a component and party, mean", "median"]
    show("KernelPCA(kernel='linear'), which ends by itself", [*columns, "not VFedPCA's"], rows)


def seconds() -> None:
    """A fit against scikit-learn on the pooled columns."""
    rows = []
    rng = np.random.default_rng(0)
    for n, m, p in ((2000, 2000, 10), (20_000, 400, 10)):
        X = rng.normal(size=(n, 8)) @ rng.normal(size=(8, m)) + rng.normal(size=(n, m))
        parts = em.split(X, p, by="columns")
        model, pooled = em.VFedPCA(5), PCA(5, svd_solver="arpack")
        taken = medians(
            {"ours": lambda m=model, d=parts: m.fit(d), "theirs": lambda m=pooled, X=X: m.fit(X)},
            repeats=2,
        )
        error = aligned_error(model.components_.T, pooled.components_.T)
        figures = [f"{taken['theirs']:.2f} s", f"{taken['ours']:.2f} s"]
        rounds = str(model.report_.rounds - 1)
        share = f"{model.report_.share_of_baseline:.1%}"
        rows.append([f"{n}×{m}", str(p), *figures, rounds, f"{error:.0e}", share])
    columns = ["data", "parties", "pooled", "ours", "rounds", "error", "floats / shipping"]
    show("VFedPCA(5) in process, against PCA(svd_solver='arpack')", columns, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="folder with the paper's data sets")
    parser.add_argument("--only", nargs="*", help="rounds, top, several or graphs; else all")
    options = parser.parse_args()
    data, only = sets(options.data), options.only or ["rounds", "top", "several", "graphs"]
    first = next(iter(data))
    if "rounds" in only:
        all_rounds(more_sets(data, options.data))
    if "top" in only:
        by_round(data)
        beside_the_prototype(data)
    if "several" in only:
        several_components(data)
        no_breakdown(data)
    if "graphs" in only:
        graphs(data[first], first)
        kernel_graphs(data[first], first)
    if not options.only:
        kernels(data[first], first)
        seconds()


if __name__ == "__main__":
    main()
