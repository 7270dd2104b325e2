"""Distributed k-means: Lloyd as on pooled points, coresets near it, accounted for to the float."""

import numpy as np
import pytest
from scipy.spatial.distance import cdist
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits

import eigenmesh as em
from eigenmesh.engines.faulty import Fault
from eigenmesh.errors import PartyLost, PolicyRefusal
from eigenmesh.numerics.coresets import point_groups
from eigenmesh.numerics.kmeans import WeightedPoints
from eigenmesh.runtime.schedule import Parties
from eigenmesh.runtime.study import forecast_stages, stage
from eigenmesh.stages.distributed_kmeans import (
    BATCH,
    CORESET_DRAWS,
    PASSES,
    distributed_kmeans,
)
from eigenmesh.stages.kmeans_party import KMeansSetup

SETUP = KMeansSetup(points="points", labels="labels", seed=0)
RNG = np.random.default_rng(3)
# Digits are whole numbers, so many points are as near to one centre as to another.
DIGITS = load_digits().data[:900, 18:30] / 16 + RNG.normal(scale=1e-3, size=(900, 12))


def cluster(parts, k, weights=None, setup=SETUP, options=None, **how):
    """Run on points that the sites keep; gives the run, and the labels at the sites."""
    with em.federation(parts, **(options or {})) as fed:
        sites = fed.local_sites()
        for i, name in enumerate(parts.names):
            own = {} if weights is None else {"weights": weights[i]}
            sites[name].store["points"] = {"points": parts.part(i), **own}
        run = fed.run(distributed_kmeans, setup, k, **how)
        kept = [sites[name].store.get("labels") for name in parts.names]
    return run, [None if own is None else own["labels"] for own in kept]


def parties(X, n=6, seed=0):
    return em.split(X, n, law="power", exponent=1.0, random_state=seed)


def best_inertia(X, k, **fit):
    return KMeans(k, n_init=20, random_state=0).fit(X, **fit).inertia_


# 1. The central oracle.


@pytest.mark.parametrize("seed", range(4))
def test_lloyd_is_scikit_learns_from_the_same_start(seed):
    parts = parties(DIGITS)
    pooled = np.vstack(parts.parts)
    start = pooled[np.random.default_rng(seed).choice(len(pooled), 8, replace=False)]
    run, labels = cluster(parts, 8, start=start, tol=0.0, max_iter=300)
    theirs = KMeans(8, init=start, n_init=1, tol=0.0, max_iter=300).fit(pooled)
    np.testing.assert_allclose(run.value.centres, theirs.cluster_centers_, atol=1e-10)
    np.testing.assert_array_equal(np.concatenate(labels), theirs.labels_)
    assert run.value.inertia == pytest.approx(theirs.inertia_, rel=1e-10)
    np.testing.assert_allclose(run.value.history, list(costs_by_round(pooled, start)), rtol=1e-9)


def costs_by_round(X, centres):
    """Before every move, by the definition of Lloyd's iteration."""
    before = None
    while not np.array_equal(before, centres):
        squared = np.square(X[:, None] - centres).sum(axis=2)
        yield squared.min(axis=1).mean()
        own, before = squared.argmin(axis=1), centres
        centres = np.array([X[own == c].mean(axis=0) for c in range(len(centres))])


def test_weighted_lloyd_is_scikit_learns_from_the_same_start():
    parts = parties(DIGITS)
    pooled = np.vstack(parts.parts)
    weights = [np.random.default_rng(i).uniform(0, 2, n) for i, (n, _) in enumerate(parts.shapes)]
    start = pooled[:7]
    run, _ = cluster(parts, 7, weights, start=start, tol=0.0, max_iter=300)
    theirs = KMeans(7, init=start, n_init=1, tol=0.0, max_iter=300)
    theirs.fit(pooled, sample_weight=np.concatenate(weights))
    np.testing.assert_allclose(run.value.centres, theirs.cluster_centers_, atol=1e-10)
    assert run.value.weights.sum() == pytest.approx(sum(w.sum() for w in weights))


def test_empty_clusters_start_again_where_scikit_learns_do():
    """Two starting centres so far away that they are nobody's nearest."""
    parts = parties(DIGITS[:300], 4)
    pooled = np.vstack(parts.parts)
    start = np.vstack([pooled[:5], pooled[5:7] + 100.0])
    run, _ = cluster(parts, 7, start=start, tol=0.0, max_iter=300)
    theirs = KMeans(7, init=start, n_init=1, tol=0.0, max_iter=300).fit(pooled)
    np.testing.assert_allclose(run.value.centres, theirs.cluster_centers_, atol=1e-10)
    assert run.value.sizes.min() > 0


@pytest.mark.parametrize("n_parties", [1, 5, 60])
def test_seeded_lloyd_is_near_the_best_of_many_starts(n_parties):
    run, labels = cluster(em.split(DIGITS, n_parties, random_state=0), 8)
    assert run.value.inertia <= 1.03 * best_inertia(DIGITS, 8)
    assert sum(map(len, labels)) == len(DIGITS)
    assert run.value.sizes.tolist() == np.bincount(np.concatenate(labels), minlength=8).tolist()


def test_labels_are_the_nearest_centres_and_the_inertia_is_theirs():
    parts = parties(DIGITS)
    run, labels = cluster(parts, 6, method="coreset")
    distances = cdist(np.vstack(parts.parts), run.value.centres, "sqeuclidean")
    np.testing.assert_array_equal(np.concatenate(labels), distances.argmin(axis=1))
    assert run.value.inertia == pytest.approx(distances.min(axis=1).sum())


# 2. Error against budget.


def test_a_coreset_gets_better_as_it_grows():
    best = best_inertia(DIGITS, 8)
    ratios = []
    for size in (20, 100, 800):
        found = [
            cluster(
                parties(DIGITS),
                8,
                method="coreset",
                coreset_size=size,
                setup=KMeansSetup(points="points", labels="labels", seed=seed),
            )[0].value.inertia
            for seed in range(3)
        ]
        ratios.append(np.mean(found) / best)
    assert ratios[0] > ratios[1] > ratios[2] > 1 - 1e-4
    assert ratios[2] < 1.02


def test_the_default_coreset_is_a_few_per_cent_off():
    run, _ = cluster(parties(DIGITS), 8, method="coreset")
    assert run.value.inertia <= 1.05 * best_inertia(DIGITS, 8)
    assert run.recording.ledger.rounds == 3


def test_known_candidates_seed_as_well_and_no_single_point_leaves():
    """Means of some rows, such as landmarks, that the coordinator knows already."""
    candidates = np.stack([DIGITS[i::40].mean(axis=0) for i in range(40)])
    # By content such sums may be over one row: a policy must allow `rows`, though none is sent.
    policy = em.Policy(allow={"counts", "moments", "rows"})
    parts = em.split(DIGITS, 5, policies=[policy] * 5, random_state=0)
    run, _ = cluster(parts, 8, candidates=candidates, n_init=8)
    assert run.value.inertia <= 1.05 * best_inertia(DIGITS, 8)
    revealed = set().union(*run.recording.ledger.revealed().values())
    assert revealed == {"counts", "moments"}


def test_candidates_that_are_nobodys_nearest_are_left_out_and_clusters_are_split_instead():
    rows = [np.array([[0.0], [0.1]]), np.array([[10.0], [10.1], [4.9]])]
    parts = em.Partitioned(rows=rows)
    run, _ = cluster(parts, 3, candidates=np.array([[0.0], [10.0], [50.0]]))
    assert run.value.notes == ()
    assert sorted(run.value.sizes.tolist()) == [1, 2, 2]
    run, _ = cluster(parts, 3, candidates=np.array([[0.0], [10.0], [4.0], [50.0]]))
    assert run.value.notes == ()
    assert run.value.sizes.tolist() == [2, 1, 2]


# 3. The ledger.


def test_floats_of_lloyd_equal_the_formula():
    k, dim, s, r = 5, DIGITS.shape[1], 6, 3
    run, _ = cluster(em.split(DIGITS, s, random_state=0), k, n_init=r, tol=0.0, max_iter=1)
    m = PASSES * BATCH * k
    ledger = run.recording.ledger
    assert ledger.floats_up == m * dim + s * m + s * r * (k * dim + k + 1) + s * k
    down = (PASSES - 1) * BATCH * k * dim + m * dim + r * k * dim + k * dim
    assert ledger.floats_down == s * down
    assert ledger.rounds == 2 * PASSES + 1 + 1 + 1


def test_floats_of_a_coreset_equal_the_formula():
    k, dim, s = 5, DIGITS.shape[1], 6
    run, _ = cluster(em.split(DIGITS, s, random_state=0), k, method="coreset", coreset_size=90)
    ledger = run.recording.ledger
    assert ledger.floats_up == (90 + s * k) * (dim + 1) + s * k
    assert ledger.floats_down == s * k * dim


@pytest.mark.parametrize("n", [1, 2])
@pytest.mark.parametrize("how", [{"method": "coreset"}, {"method": "lloyd", "n_init": 2}])
def test_a_forecast_is_the_ledger(how, n):
    parts = em.split(DIGITS[: 450 * n], 4, random_state=0)
    how = {**how, **({"max_iter": 3, "tol": 0.0} if "n_init" in how else {})}
    run, _ = cluster(parts, 6, **how)
    own = Parties(parts.names, tuple(parts.shapes))
    planned = stage(distributed_kmeans, SETUP, 6, dim=DIGITS.shape[1], **how)
    foretold = forecast_stages([planned], own, "rows")
    ledger = run.recording.ledger
    assert foretold.rounds == ledger.rounds
    assert foretold.floats_up == ledger.floats_up
    assert foretold.floats_down == ledger.floats_down
    assert foretold.by_step().keys() <= ledger.by_step().keys()
    assert CORESET_DRAWS * 6 < 450


def test_what_a_party_sends_does_not_grow_with_the_number_of_parties():
    sent = []
    for s in (5, 50):
        run, _ = cluster(em.split(DIGITS, s, random_state=0), 4, max_iter=3, tol=0.0, n_init=1)
        by_step = run.recording.ledger.by_step()
        sums = by_step["PointHolder.sum_clusters"] / s
        sent.append((sums, by_step["PointHolder.draw_candidates"]))
    assert sent[0] == sent[1]


# 5., 6. Odd data, disclosure, lost parties.


@pytest.mark.parametrize("method", ["lloyd", "coreset"])
def test_fewer_different_points_than_clusters_shrink_and_say_so(method):
    rows = [
        np.array([[0.0, 1.0]] * 500),
        np.array([[0.0, 1.0], [5.0, 5.0]]),
        np.array([[9.0, 0.0]]),
    ]
    run, labels = cluster(em.Partitioned(rows=rows), 5, method=method)
    assert len(run.value.centres) == 3
    assert "5 clusters were asked for, 3 came out: no more" in run.value.notes[0]
    assert "pass n_clusters=3" in run.value.notes[0]
    assert run.value.inertia == pytest.approx(0.0, abs=1e-12)
    assert sorted(run.value.sizes) == [1, 1, 501]
    assert len(set(labels[1].tolist())) == 2


@pytest.mark.parametrize("method", ["lloyd", "coreset"])
def test_parties_of_a_single_row_and_of_fewer_rows_than_clusters(method):
    X = DIGITS[:40]
    parts = em.Partitioned(rows=[X[:1], X[1:4], X[4:5], X[5:]])
    run, labels = cluster(parts, 6, method=method, n_init=8)
    assert [len(own) for own in labels] == [1, 3, 1, 35]
    assert run.value.inertia <= 1.1 * best_inertia(X, 6)


@pytest.mark.parametrize("method", ["lloyd", "coreset"])
def test_points_of_no_weight_do_not_pull(method):
    X = np.vstack([DIGITS[:200], 50 + DIGITS[200:260]])
    parts = em.Partitioned(rows=[X[:120], X[120:200], X[200:]])
    weights = [np.ones(120), np.ones(80), np.zeros(60)]
    run, labels = cluster(parts, 4, weights, method=method, n_init=8)
    assert run.value.centres.max() < 2
    assert run.value.inertia <= 1.05 * best_inertia(X[:200], 4)
    assert len(labels[2]) == 60


def test_weights_of_nothing_are_an_error():
    with pytest.raises(em.EigenmeshError, match="weigh 0"):
        cluster(em.split(DIGITS[:30], 2, random_state=0), 2, [np.zeros(15)] * 2)


def test_a_site_without_points_says_what_to_do():
    with em.federation(em.split(DIGITS[:30], 2, random_state=0)) as fed:
        with pytest.raises(em.EigenmeshError, match="party-0.*nothing under 'points'"):
            fed.run(distributed_kmeans, SETUP, 2)


def test_an_unknown_method_is_named():
    with pytest.raises(em.EigenmeshError, match="'best'"):
        cluster(em.split(DIGITS[:30], 2, random_state=0), 2, method="best")


@pytest.mark.parametrize("method", ["lloyd", "coreset"])
def test_a_party_that_keeps_its_scores_refuses(method):
    parts = em.split(
        DIGITS[:90],
        3,
        policies=[None, em.Policy(allow={"counts", "moments"}), None],
        random_state=0,
    )
    with pytest.raises(PolicyRefusal, match="'scores'") as caught:
        cluster(parts, 3, method=method)
    assert caught.value.party == "party-1"


@pytest.mark.parametrize(
    ("method", "round_"),
    [(m, r) for m, rounds in (("coreset", (1, 2, 3)), ("lloyd", (1, 2, 3, 8, 13))) for r in rounds],
)
def test_a_party_lost_at_any_round_is_named_or_left_out(method, round_):
    parts = em.split(DIGITS, 4, random_state=0)
    faults = [Fault("kill", party="party-1", round=round_)]
    how = {"method": method, "max_iter": 5, "tol": 0.0}
    with pytest.raises(PartyLost, match="party-1"):
        cluster(parts, 6, options={"faults": faults}, **how)
    options = {"faults": faults, "on_loss": "survivors"}
    run, _ = cluster(parts, 6, options=options, **how)
    assert set(run.lost) == {"party-1"}
    rest = np.vstack([part for i, part in enumerate(parts.parts) if i != 1])
    distances = cdist(rest, run.value.centres, "sqeuclidean").min(axis=1)
    assert run.value.sizes.sum() == len(rest)
    assert run.value.inertia == pytest.approx(distances.sum())
    assert run.value.inertia <= 1.1 * best_inertia(rest, 6)


def test_old_sums_may_stand_in_for_lost_ones():
    parts = em.split(DIGITS, 4, random_state=0)
    faults = [Fault("lose", party="party-2", round=r) for r in (14, 16)]
    options = {"faults": faults, "on_loss": "reuse"}
    run, _ = cluster(parts, 6, options=options, n_init=1, max_iter=12, tol=0.0)
    assert run.reused["party-2"] >= 1
    assert run.value.inertia <= 1.1 * best_inertia(DIGITS, 6)


def test_parties_that_miss_rounds_are_asked_again_and_end_with_labels():
    parts = em.split(DIGITS, 8, random_state=0)
    options = {"faults": [Fault("lose", share=0.1)], "on_loss": "skip", "max_age": 5}
    run, labels = cluster(parts, 6, options=options)
    assert sum(run.dropped.values()) > 0
    assert [len(own) for own in labels] == [n for n, _ in parts.shapes]
    assert run.value.sizes.sum() == len(DIGITS)
    assert run.value.inertia <= 1.1 * best_inertia(DIGITS, 6)


# Means in place of single points.


@pytest.mark.parametrize("seed", range(5))
def test_means_cover_five_points_each_and_all_of_them(seed):
    rng = np.random.default_rng(seed)
    n, most = int(rng.integers(5, 3000)), int(rng.integers(1, 80))
    data = WeightedPoints(rng.normal(size=(n, 3)) ** 3, rng.integers(1, 4, size=n).astype(float))
    part = point_groups(data, most, 5, rng).means
    assert len(part.points) == min(most, n // 5)
    assert part.weights.sum() == pytest.approx(data.weights.sum())
    np.testing.assert_allclose(
        part.weights @ part.points, data.weights @ data.points, atol=1e-9 * n
    )
    assert (part.weights >= 5).all()


def test_a_party_of_fewer_than_five_points_gives_none_and_is_counted_in_the_end():
    parts = em.Partitioned(rows=[DIGITS[:400], DIGITS[400:403]])
    run, labels = cluster(parts, 4, method="means", refine=2)
    assert "scores" not in run.recording.ledger.revealed()["party-1"]
    assert sum(map(len, labels)) == run.value.sizes.sum() == 403


def test_means_are_near_lloyd_on_pooled_points():
    for k in (4, 8):
        lloyd, _ = cluster(parties(DIGITS), k, method="lloyd")
        means, _ = cluster(parties(DIGITS), k, method="means", refine=2)
        assert means.value.inertia <= 1.03 * lloyd.value.inertia
        kinds = set().union(*means.recording.ledger.revealed().values())
        assert "scores" not in kinds
