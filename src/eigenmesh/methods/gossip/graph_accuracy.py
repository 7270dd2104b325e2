"""What features on a graph miss, in words: how much, whose rows, and what would help."""

from __future__ import annotations

from eigenmesh.estimators.accuracy import in_short
from eigenmesh.methods.gossip.protocol import GossipResult, Missing
from eigenmesh.numerics.centroids import MIN_CLUSTER

_BY_ROWS = "method='admm', by which rows go to neighbours"


def graph_caveats(result: GossipResult, asked: str, accuracy: float | None) -> tuple[str, ...]:
    """Caveats of nodes with too few rows, and of features that miss more than they may.

    `asked` are the features that were asked for.
    """
    caveats = []
    if asked != result.features:
        caveats.append(
            f"no node has the {MIN_CLUSTER} rows that a centroid needs, so {result.n_features} "
            f"random features are taken, which show only sums; the answer is theirs. Other "
            f"choices: nodes that join their rows, or {_BY_ROWS}"
        )
    missing = result.missing
    if missing is not None and accuracy is not None:
        if float(missing.values.max()) > accuracy:
            caveats.append(f"{_how_much(result, missing, accuracy)}{_what_helps(result)}")
        if float(result.growing.max(initial=0.0)) > accuracy:
            caveats.append(_still_growing(result))
    elif result.without:
        caveats.append(f"{_without(result)} and give none: the components are inside the others'")
    return tuple(caveats)


def _how_much(result: GossipResult, missing: Missing, accuracy: float) -> str:
    worst = int(missing.values.argmax())
    verb = "are off by" if result.features == "random" else "miss"
    return (
        f"the {result.outcome.n_dimensions} {result.features} features {verb} about "
        f"{missing.values[worst]:.1%} (± {missing.errors[worst]:.1%}) of eigenvalue {worst + 1}, "
        f"more than accuracy={accuracy:g} lets them"
    )


def _still_growing(result: GossipResult) -> str:
    worst = int(result.growing.argmax())
    return (
        f"the iteration has not come to rest: {result.stop_reason}, and eigenvalue {worst + 1} may "
        f"lack {result.growing[worst]:.1%}; ask for another number of components, raise n_mixes or "
        f"n_rounds (of GossipKPCA), or choose a graph with more edges"
    )


def _what_helps(result: GossipResult) -> str:
    if result.without:
        return (
            f". {_without(result)}. What would count them in: their rows joined with another "
            f"node's, or {_BY_ROWS}"
        )
    if result.exhausted:
        return (
            f": there are no more means of {MIN_CLUSTER} rows. Ask for fewer components, or pass "
            f"{_BY_ROWS}"
        )
    return ": raise n_landmarks (of GossipKPCA n_features), or ask for fewer components"


def _without(result: GossipResult) -> str:
    verb = "has" if len(result.without) == 1 else "have"
    return (
        f"node {in_short(result.without)} {verb} fewer than the {MIN_CLUSTER} rows that a centroid "
        f"needs"
    )
