"""What a run of DSPGD will send, before it runs.

"nystrom" and "gram" with a capped rank: to the float. How many products Lanczos takes, and how many
eigenvalues stay above the paper's threshold, only the data decide: there it is an estimate.
"""

from __future__ import annotations

from collections.abc import Sequence

from eigenmesh.methods.dspgd.direct import SampleHolder
from eigenmesh.methods.dspgd.outcome import Goal
from eigenmesh.methods.dspgd.party_side import DSPGDSetup, FeatureHolder, Features
from eigenmesh.runtime.ledger import Entry, Ledger, forecast_entry, forecast_message


def forecast(
    names: Sequence[str],
    shapes: Sequence[tuple[int, int]],
    setup: DSPGDSetup,
    goal: Goal,
    n_iterations: int,
    solver: str,
) -> Ledger:
    """The ledger of a run over dense rows with nobody missing; `solver` may be "direct"."""
    features = Features.of(setup, shapes[0][1])
    rank = goal.n_clusters + 3 if goal.rank is None else goal.rank
    ranks = [0] + [rank] * (n_iterations - 1)  # of B at the beginning of each iteration
    products = sum(min(features.width + r, _products(rank)) for r in ranks)
    rounds = {"nystrom": n_iterations, "gram": n_iterations, "direct": 2 * products}
    ledger = Ledger(
        rounds=rounds.get(solver, n_iterations + products) + (2 if solver == "direct" else 3)
    )
    for name, (n, _) in zip(names, shapes, strict=True):
        if solver == "direct":
            ledger.entries += _direct_entries(name, n, features.width, products, goal)
        else:
            ledger.entries += _entries(name, features, ranks, rank, goal, solver)
    return ledger


def _products(rank: int) -> int:
    """Products that Lanczos takes for so many eigenvectors, by experience on digits and MNIST."""
    return round(17 + 0.6 * rank)


def _entries(
    name: str, features: Features, ranks: Sequence[int], rank: int, goal: Goal, solver: str
) -> list[Entry]:
    D, s = features.width, goal.n_eigenvectors
    news = sum((D + r) * rank for r in ranks)  # every X, once
    widths = [D + r for r in ranks]
    replies = {
        "nystrom": sum(
            D * (features.n_drawn(t, r) + r) + r * (r + 1) // 2
            for t, r in enumerate(ranks, start=1)
        ),
        "gram": sum(w * (w + 1) // 2 for w in widths),
        "lanczos": sum(min(w, _products(rank)) * w for w in widths),
    }[solver]
    asked = {"nystrom": FeatureHolder.sketch, "gram": FeatureHolder.gram}
    last = (D + ranks[-1]) * rank
    entries = [
        forecast_entry(FeatureHolder.count_rows, name, 0),
        forecast_message(asked.get(solver, FeatureHolder.advance), name, news - last),
        forecast_message(FeatureHolder.basis_gram, name, last),
        forecast_entry(FeatureHolder.basis_gram, name, rank * (rank + 1) // 2),
        forecast_message(FeatureHolder.keep_scores, name, rank * min(s, rank)),
        forecast_entry(FeatureHolder.keep_scores, name, 0),
    ]
    if solver == "lanczos":
        vectors = forecast_message(FeatureHolder.multiply, name, replies)
        present = forecast_entry(FeatureHolder.advance, name, 0)
        return [*entries, present, vectors, forecast_entry(FeatureHolder.multiply, name, replies)]
    return [*entries, forecast_entry(asked[solver], name, replies)]


def _direct_entries(name: str, n: int, D: int, products: int, goal: Goal) -> list[Entry]:
    return [
        forecast_entry(SampleHolder.count_samples, name, 0),
        forecast_message(SampleHolder.project, name, products * n),
        forecast_entry(SampleHolder.project, name, products * D),
        forecast_message(SampleHolder.expand, name, products * D),
        forecast_entry(SampleHolder.expand, name, products * n),
        forecast_message(SampleHolder.keep_rows, name, n * goal.n_eigenvectors),
    ]
