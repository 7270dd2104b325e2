"""Coordinators that keep to a study's schedule, and choose what they ask by.

Directions, centres, coefficients and units come from the coordinator; the attacks are those that
gave single rows, to the last digit, under policies that keep rows.
"""

import warnings
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
from tests.attacks.overhearing import messages_of, overheard

import eigenmesh as em
from eigenmesh.errors import PolicyRefusal
from eigenmesh.methods.diskpca.leverage import ScoreKeeper, leverage_scores
from eigenmesh.methods.diskpca.looks import ProbeAsk
from eigenmesh.methods.diskpca.protocol import Whitening
from eigenmesh.methods.dspgd.direct import RowsOfVector, SampleHolder, dspgd_direct
from eigenmesh.methods.dspgd.outcome import Goal
from eigenmesh.methods.dspgd.protocol import DSPGDSetup
from eigenmesh.methods.moments.protocol import (
    FeatureComponents,
    FeatureMean,
    MomentRows,
    MomentSetup,
    moment_pca,
)
from eigenmesh.numerics.kernels import Kernel
from eigenmesh.numerics.landmark_sums import residuals
from eigenmesh.stages import prepare_rows
from eigenmesh.stages.distributed_kmeans import distributed_kmeans
from eigenmesh.stages.kmeans_party import (
    Centres,
    CoresetAsk,
    FinalCentres,
    KMeansSetup,
    LocalAsk,
    PointHolder,
    Points,
)
from eigenmesh.stages.row_messages import KernelSetup, unpack

D = 4
KEPT = {"counts", "gram", "moments", "centroids", "sketch", "scores"}
TRUSTS = ("domain", "organisations")


def parties(rng, n=61, allow=KEPT, count=3):
    rows = [rng.normal(size=(n, D)) + rng.normal(size=D) for _ in range(count)]
    return rows, em.Partitioned(rows=rows, policies=[em.Policy(allow=allow)] * count)


def nearest_row(rows, guesses):
    """Of each guess."""
    guesses = np.atleast_2d(guesses)
    return np.linalg.norm(rows[:, None] - guesses[None], axis=2).min(axis=0)


@pytest.mark.parametrize("trust", TRUSTS)
@pytest.mark.parametrize("seed", range(3))
def test_the_largest_score_along_chosen_directions_tells_no_row(seed, trust):
    rng = np.random.default_rng(seed)
    rows, parts = parties(rng)
    setup = KernelSetup("linear", None, 1.0, 0.0, leverage_rank=1, embedding_dim=20, seed=3)
    directions = np.ones(D) + 0.02 * rng.normal(size=(7, D))

    def along(w):
        def coordinate(fed, setup):
            fed.enlist(ScoreKeeper, setup)
            sizes = fed.ask(ScoreKeeper.count_rows)
            fed.settle(n=sum(size.n_rows for size in sizes), d=D, n_parties=len(sizes))
            fed.total(ScoreKeeper.embedded_gram)
            return fed.ask(ScoreKeeper.leverage_mass, Whitening(matrix=w[:, None]))[0].largest

        return replace(leverage_scores, coordinate=coordinate)

    with em.federation(parts, trust=trust) as fed:
        largest = [fed.run(along(w), setup).value for w in directions]
    guess = np.linalg.lstsq(directions, np.sqrt(largest), rcond=None)[0]
    outermost = np.sort((rows[0] @ directions.T) ** 2, axis=0)[-5:].mean(axis=0)
    assert (np.abs(np.log2(largest / outermost)) <= 1).all()
    assert (np.log2(largest) % 1 == 0).all()  # of a mean of five, without digits
    assert nearest_row(rows[0], [guess, -guess]).min() > 1e-2


SLAB = 1e6  # probes so steep that they explain all rows but those in a thin shell


@pytest.mark.parametrize("slab", [False, True])
@pytest.mark.parametrize("allow", [None, KEPT])
def test_distances_to_landmarks_by_any_probes_tell_no_row(monkeypatch, allow, slab):
    """The 16th root of a power sum: of one row, by an honest coordinator or by one with a slab."""
    rng = np.random.default_rng(2)
    rows, _ = parties(rng)
    policies = None if allow is None else [em.Policy(allow=allow)] * 3
    kernel, scale, made = Kernel("rbf", 0.05), 0.01, ProbeAsk.__init__

    def chosen(self, *args, **fields):
        made(self, *args, **fields)
        C, offset = np.zeros_like(self.coefficients), np.zeros(len(self.offset))
        if slab:
            C[0, 0], offset[0] = SLAB, SLAB * target
        for name, value in (("coefficients", C), ("offset", offset), ("scale", scale)):
            object.__setattr__(self, name, value)

    monkeypatch.setattr(ProbeAsk, "__init__", chosen)
    how = {"gamma": 0.05, "n_landmarks": 24, "landmarks": "centroids", "random_state": 0}
    target, replies = 0.0, []
    for _ in range(2):  # the first fit has the landmarks, from which anybody has a shell
        replies.clear()
        parts = em.Partitioned(rows=rows, policies=policies)
        with em.federation(parts) as fed, overheard(replies):
            model = em.KernelPCA(2, kernel="rbf", accuracy=0.5, **how).fit(fed)
        distances = residuals(kernel, rows[0], model.landmarks_)
        one = int(np.argsort(distances)[-3])
        target = float(kernel.matrix(rows[0][[one]], model.landmarks_)[0, 0])
    (reply,) = messages_of(replies, "party-0", "probe_outside")
    told, five = scale * reply.peak ** (1 / 16), np.sort(distances)[-5:].mean()
    if allow is None:
        assert told == pytest.approx(distances[one] if slab else distances.max(), rel=0.05)
    else:
        assert told == 0 if slab else five / 2 <= told <= 2 * five
        assert slab or np.log2(told / scale) == pytest.approx(round(np.log2(told / scale)))
    assert "its farthest row" in str(em.audit(model.report_))


def kept_scores(W):
    """A study that leaves the rows times W at their sites."""

    def coordinate(fed, setup, n_components):
        fed.enlist(MomentRows, setup)
        fed.ask(MomentRows.count_rows)
        fed.total(MomentRows.feature_sums)
        fed.total(MomentRows.centred_products, FeatureMean(mean=np.zeros(D)))
        fed.ask(MomentRows.keep_scores, FeatureComponents(mean=np.zeros(D), components=W))

    setup = MomentSetup("linear", None, 1.0, 0.0, center=True, scores="points")
    return replace(moment_pca, coordinate=coordinate), setup, W.shape[1]


def counted_cells(cells, step):
    """A study that asks how many rows are nearest to each of `cells`."""

    def coordinate(
        fed, setup, n_clusters, *, method, max_iter=1, dim=1, start=None, candidates=None
    ):
        fed.enlist(PointHolder, setup)
        fed.ask(PointHolder.tell_size)
        fed.settle(coordinates=1)
        if step == "assign":
            fed.total(PointHolder.sum_groups, Centres(cells[None]))
            asked = (PointHolder.assign, FinalCentres(cells))
        else:
            fed.settle(candidates=len(cells))
            asked = (PointHolder.weigh_candidates, Points(cells))
        fed.total(*asked, look=lambda party, reply: counts.setdefault(party, reply.weights))
        return counts

    counts = {}
    return replace(distributed_kmeans, coordinate=coordinate)


@pytest.mark.parametrize("step", ["assign", "weigh"])
@pytest.mark.parametrize("groups", [True, False])
@pytest.mark.parametrize("trust", TRUSTS)
def test_cells_as_small_as_a_coordinator_likes_have_whole_groups(trust, groups, step):
    rows, parts = parties(np.random.default_rng(5))
    cells = np.linspace(-6, 6, 200)[:, None]
    known = {"start": cells} if step == "assign" else {"candidates": cells}
    how = {"method": "groups", "dim": 1, **known}
    setup = KMeansSetup("points", "labels", groups=groups)
    with em.federation(parts, trust=trust) as fed:
        fed.run(*kept_scores(np.eye(D)[:, :1]))
        counts = fed.run(counted_cells(cells, step), setup, len(cells), **how).value
    filled = counts["party-0"][counts["party-0"] > 0]
    assert filled.min() >= 5
    assert filled.sum() == len(rows[0])


def told_cost(step, centres):
    """A study that tells what a party's points cost, with these centres or so many of its own."""

    def coordinate(fed, setup, n_clusters, *, method, dim, start=None, coreset_size=None):
        fed.enlist(PointHolder, setup)
        if step == "own":
            return fed.ask(PointHolder.solve_locally, LocalAsk(n_clusters))[0].cost
        costs = []
        fed.ask(PointHolder.tell_size)
        fed.settle(coordinates=dim)
        fed.total(PointHolder.sum_groups, Centres(centres[None]))
        asked = (PointHolder.assign, FinalCentres(centres))
        fed.total(*asked, look=lambda party, reply: costs.append(reply.cost))
        return costs[0]

    return replace(distributed_kmeans, coordinate=coordinate)


@pytest.mark.parametrize("groups", [True, False])
@pytest.mark.parametrize("trust", TRUSTS)
def test_costs_with_chosen_centres_tell_no_row(trust, groups):
    """Of two sets of centres they differed by the one row that is nearest to the second centre."""
    rng = np.random.default_rng(77)
    rows, parts = parties(rng, allow={"counts", "moments", "centroids"})
    setup, X = KMeansSetup("points", "labels", groups=groups), rows[0]
    directions = np.array([1.0, 0.5, 0.3, -0.2]) + 0.02 * rng.normal(size=(6, D))
    # Nearer to one row than the origin is, if rows were counted one by one.
    places = np.array([2 * np.sort(X @ u / (u @ u))[-2:].mean() * u for u in directions])
    nobodys, farthest = -1e3 * directions[0], []
    with em.federation(parts, trust=trust) as fed:
        fed.run(*kept_scores(np.eye(D)))
        for c in places:
            before, after = (
                fed.run(
                    told_cost("assign", centres),
                    *(setup, 2),
                    **{"method": "groups", "dim": D, "start": centres},
                ).value
                for centres in np.array([[0 * c, nobodys], [0 * c, c]])
            )
            farthest.append((before - after + c @ c) / 2)
        guess = np.linalg.lstsq(places, np.array(farthest), rcond=None)[0]
        assert nearest_row(X, guess).min() > 1e-2
        how = {"method": "means", "coreset_size": 10, "dim": D}
        own = fed.run(told_cost("own", None), setup, len(X) - 1, **how).value
    pairs = np.linalg.norm(X[:, None] - X[None], axis=2)[np.triu_indices(len(X), 1)]
    assert own > 5 * (pairs.min() ** 2 / 2)


@pytest.mark.parametrize("trust", TRUSTS)
def test_means_of_scores_by_any_components_are_of_the_same_groups(trust):
    """Differences of the sums of 160 studies, mapped back, repeated: the commonest were rows."""
    rng = np.random.default_rng(11)
    rows, parts = parties(rng, allow={"counts", "moments", "centroids"})
    setup = KMeansSetup("points", "labels")

    def give(fed, setup, n_clusters, *, method, coreset_size, dim):
        fed.enlist(PointHolder, setup)
        fed.ask(PointHolder.solve_locally, LocalAsk(n_clusters))
        fed.settle(coordinates=D)
        return fed.ask(PointHolder.give_means, CoresetAsk(coreset_size, 1.0))[0]

    means = []
    with em.federation(parts, trust=trust) as fed:
        for size in [200, 7, 6] * 5:
            W = np.linalg.qr(rng.normal(size=(D, D)))[0] * np.exp(rng.normal(size=D))
            fed.run(*kept_scores(W))
            how = {"method": "means", "coreset_size": size, "dim": D}
            part = fed.run(replace(distributed_kmeans, coordinate=give), setup, 2, **how).value
            assert part.weights.min() >= 5
            assert part.weights.sum() == len(rows[0])
            means.append(part.points @ np.linalg.inv(W))
    distinct = np.unique(np.vstack(means).round(8), axis=0)
    assert len(distinct) < 2 * (len(rows[0]) // 5)  # the nodes of one tree


def test_centroids_of_rows_in_any_units_are_nodes_of_one_tree(monkeypatch):
    rng = np.random.default_rng(2)
    _, parts = parties(rng, n=120, allow={"counts", "moments", "centroids", "gram"})
    units, means = np.ones(D), []
    made = prepare_rows.RuleForRows.__init__

    def in_chosen_units(self, *args, **fields):
        made(self, *args, **fields)
        object.__setattr__(self, "mean", np.zeros(D))
        object.__setattr__(self, "scale", units)

    monkeypatch.setattr(prepare_rows.RuleForRows, "__init__", in_chosen_units)
    with em.federation(parts, trust="organisations") as fed:
        for q in [12, 30, 30] * 4:
            units, replies = np.exp(1.2 * rng.normal(size=D)), []
            how = {"gamma": 0.1, "n_landmarks": q, "landmarks": "centroids", "center": False}
            prepared = em.Preparation(standardize=True)
            with overheard(replies), suppress(PolicyRefusal):  # what has left counts
                em.KernelPCA(1, kernel="rbf", preparation=prepared, **how).fit(fed)
            own = [
                r.message for r in replies if (r.party, r.step) == ("party-0", "local_centroids")
            ]
            means += [np.asarray(unpack(message)) * units for message in own]
    assert len(means) >= 12
    distinct = np.unique(np.vstack(means).round(8), axis=0)
    assert len(distinct) < 2 * (120 // 5)


@pytest.mark.parametrize("trust", TRUSTS)
def test_a_vector_with_one_entry_does_not_give_a_rows_features(trust):
    rng = np.random.default_rng(3)
    _, parts = parties(rng, allow={"counts", "sketch", "scores", "moments"})
    setup = DSPGDSetup("rbf", 0.05, 1.0, 0.0, 20, 5, "constant", seed=0, scores="scores")

    def coordinate(fed, setup, goal, n_iterations):
        fed.enlist(SampleHolder, setup)
        fed.ask(SampleHolder.count_samples)
        fed.settle(n_rows=183, n_columns=D)
        return fed.total(SampleHolder.project, RowsOfVector(t=1, entries=np.eye(61)[17]))

    with em.federation(parts, trust=trust) as fed, pytest.raises(PolicyRefusal, match="allow"):
        fed.run(replace(dspgd_direct, coordinate=coordinate), setup, Goal(2, 2, 2), 1)


@pytest.mark.parametrize(("width", "leaves"), [(2, True), (4, False)])
def test_scores_of_as_many_numbers_as_a_row_has_are_rows(width, leaves):
    """A few of the rows have fewer numbers than all of them, and each was there whole."""
    rng = np.random.default_rng(4)
    rows, parts = parties(rng, allow={"counts", "moments", "scores"})

    def draw(fed, setup, n_clusters, *, method, coreset_size, dim):
        fed.enlist(PointHolder, setup)
        fed.ask(PointHolder.solve_locally, LocalAsk(n_clusters))
        fed.settle(coordinates=width)
        asked = [CoresetAsk(coreset_size, 10.0)] * 3
        return fed.ask(PointHolder.draw_coreset, each=asked)[0].points

    evil, setup = replace(distributed_kmeans, coordinate=draw), KMeansSetup("points", "labels")
    how = {"method": "coreset", "coreset_size": 10, "dim": width}
    with em.federation(parts, trust="organisations") as fed:
        fed.run(*kept_scores(np.eye(D)[:, :width]))
        if leaves:
            assert len(fed.run(evil, setup, 2, **how).value)
        else:
            with pytest.raises(PolicyRefusal, match="allow"):
                fed.run(evil, setup, 2, **how)


# Neighbours.


def test_clusters_on_a_graph_show_neighbours_no_single_row_where_rows_are_kept():
    rng = np.random.default_rng(7)
    rows, _ = parties(rng, n=60)
    rows[0][0] += 30.0  # a cluster of its own
    parts = em.Partitioned(rows=rows, policies=[em.Policy(allow=KEPT | {"eigenvectors"})] * 3)
    model = em.KernelKMeans(4, kernel="rbf", gamma=0.05, random_state=0)
    with warnings.catch_warnings(), em.federation(parts, topology="ring") as fed:
        warnings.simplefilter("ignore")
        model.fit(fed)
    assert "whole groups of rows" in model.method_
    assert "its farthest row" in str(em.audit(model.report_))
    exact = em.KernelKMeans(4, kernel="rbf", gamma=0.05, kmeans="lloyd", random_state=0)
    with em.federation(parts, topology="ring") as fed, pytest.raises(PolicyRefusal, match="'rows'"):
        exact.fit(fed)


@pytest.mark.parametrize("kernel", ["linear", "rbf", "poly"])
def test_products_and_distances_between_neighbours_are_columns_once_they_determine_them(kernel):
    rng = np.random.default_rng(1)
    allow = KEPT | {"eigenvectors", "distances", "hashes", "seed"}
    columns = [rng.normal(size=(40, D)) for _ in range(3)]
    parts = em.Partitioned(columns=columns, policies=[em.Policy(allow=allow)] * 3)
    with em.federation(parts, topology="ring") as fed:
        with pytest.raises(PolicyRefusal, match="'columns'"):
            em.KernelPCA(2, kernel=kernel, gamma=0.1).fit(fed)
