"""Sums of what is far from centres, asked for with centres and scales of the asker's choice.

A sum weighed by the eighth power of a distance is nearly one row's, and such a question comes in
every third search for better clusters. Hosts are real, and a study allows all that is asked.
"""

from dataclasses import replace

import numpy as np
import pytest
from tests.attacks.test_chosen_questions import D, kept_scores, nearest_row
from tests.attacks.test_differencing_masked_sums import federation, sites_of

import eigenmesh as em
from eigenmesh.errors import MessageRefused, PolicyRefusal
from eigenmesh.numerics.kmeans import far_sums
from eigenmesh.runtime.masked_sum import Collector
from eigenmesh.runtime.masks import COARSE
from eigenmesh.runtime.policy import Policy
from eigenmesh.runtime.site import Site, SiteView
from eigenmesh.stages.distributed_kmeans import distributed_kmeans
from eigenmesh.stages.kmeans_party import (
    Centres,
    FarCentres,
    FarGroupSums,
    FarSums,
    KMeansSetup,
    PointHolder,
    Points,
)

pytestmark = [
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
    pytest.mark.filterwarnings("ignore::eigenmesh.errors.EigenmeshWarning"),
]
TRUSTS = ("domain", "organisations")
MASKED = {"aggregate", "counts"}
ALLOWED = (
    {"aggregate", "centroids", "counts", "moments"},
    {"centroids", "gram", "moments", "counts"},
)
NOBODYS = np.full(D, 1e6)  # a second centre, near to no row


def asked_for_far(questions, step=PointHolder.sum_far, width=D):
    """A study that goes the shortest way to what is far, and asks as often as it may."""
    sums = PointHolder.sum_clusters if step is PointHolder.sum_far else PointHolder.sum_groups
    replies = []

    def coordinate(fed, setup, n_clusters, *, method, n_init, max_iter, candidates, dim, searches):
        fed.enlist(PointHolder, setup)
        fed.ask(PointHolder.tell_size)
        fed.settle(coordinates=width)
        fed.settle(candidates=len(candidates))
        fed.total(PointHolder.weigh_candidates, Points(candidates))
        fed.settle(centres=n_clusters)
        centres = questions[0].centres
        for _ in range(2):  # Lloyd's first rounds, and those before a search
            fed.total(sums, Centres(centres[None]))
        for question in questions:
            look = lambda party, reply: replies.append((party, reply))  # noqa: E731
            total = fed.total(step, question, look=None if fed.secure else look).sum
            replies.append(("", total))
            for _ in range(2):
                fed.total(sums, Centres(np.vstack([centres, centres])[None]))
            fed.total(sums, Centres(centres[None]))
        return replies

    return replace(distributed_kmeans, coordinate=coordinate)


def how_to_ask(method, width=D):
    rng = np.random.default_rng(0)
    how = {"n_init": 1, "max_iter": 10, "candidates": rng.normal(size=(6, width)), "dim": width}
    return {"method": method, "searches": 12, **how}


def far_totals(fed, *questions, step=PointHolder.sum_far, groups=False, width=D):
    """All replies, by party where they are not masked; "" is the total."""
    method = "lloyd" if step is PointHolder.sum_far else "groups"
    k, setup = len(questions[0].centres), KMeansSetup("points", "labels", groups=groups)
    evil = asked_for_far(questions, step, width)
    return fed.run(evil, setup, k, **how_to_ask(method, width)).value


def question(centre, scale=1.0):
    return FarCentres(np.array([centre, NOBODYS]), scale)


# Under masks.


def with_one_far(rng):
    rows = [rng.normal(size=(60, D)) for _ in range(4)]
    way = rng.normal(size=D)
    rows[1][7] += 30 * way / np.linalg.norm(way)
    return rows


@pytest.mark.parametrize("allow", [None, MASKED])
@pytest.mark.parametrize("trust", TRUSTS)
@pytest.mark.parametrize("seed", range(4))
def test_the_far_row_of_all_parties_is_in_no_total_where_policies_keep_rows(seed, trust, allow):
    rows = with_one_far(np.random.default_rng(seed))
    policy = Policy() if allow is None else Policy(allow)
    fed = federation(sites_of(rows, trust, policy=policy), "raise")
    fed.run(*kept_scores(np.eye(D)))
    ((_, total),) = far_totals(fed, question(np.zeros(D)))
    away = nearest_row(np.vstack(rows), total.sums[0] / total.masses[0]).min()
    assert away < 1e-3 if allow is None else away > 0.1


@pytest.mark.parametrize("trust", TRUSTS)
def test_where_numbers_overflow_tells_no_distance(trust):
    """A search for the scale at which a party refuses was as exact as it had questions."""
    errors = []
    for seed in range(5):
        rows = with_one_far(np.random.default_rng(seed))
        fed = federation(sites_of(rows, trust), "raise")
        fed.run(*kept_scores(np.eye(D)))
        low, high = -300.0, -200.0  # of the scale's logarithm
        for _ in range(12):
            middle = (low + high) / 2
            low, high = (low, middle) if _is_answered(fed, 2.0**middle) else (middle, high)
        sums, masses = far_sums(_weighed(rows[1]), question(np.zeros(D)).centres, 1.0)
        largest = np.log2(max(np.abs(sums).max(), masses.max()))
        errors.append(min(abs(limit + 4 * middle - largest) for limit in (1024, 1000)))
    assert np.median(errors) > 1  # of the logarithm; it was as near as the questions bring it


def _is_answered(fed, scale):
    try:
        far_totals(fed, question(np.zeros(D), scale))
    except MessageRefused:
        return False
    return True


def _weighed(points):
    return em.numerics.kmeans.WeightedPoints(points, np.ones(len(points)))


@pytest.mark.parametrize("allow", [None, MASKED])
def test_an_average_of_powers_tells_a_distance_no_better_than_other_sums(monkeypatch, allow):
    """Of 32 questions, a few studies' worth: of twice as many half the guesses were within .7 %."""
    powers, total = [], Collector.total

    def noting(self, subject, gives, openings, ask):
        if gives is FarSums:
            powers.append(int(openings[1].exponents[1]))
        return total(self, subject, gives, openings, ask)

    monkeypatch.setattr(Collector, "total", noting)
    errors, drawn_upwards = [], COARSE * getattr(FarSums, "steepness", 1)
    for seed in range(3):
        rng = np.random.default_rng(seed)
        rows = with_one_far(rng)
        policy = Policy() if allow is None else Policy(allow)
        fed = federation(sites_of(rows, "domain", policy=policy), "raise")
        fed.run(*kept_scores(np.eye(D)))
        powers.clear()
        scales = 2.0 ** rng.uniform(0, 8, size=(8, 4))
        for some in scales:
            far_totals(fed, *(question(np.zeros(D), scale) for scale in some))
        distance = np.linalg.norm(rows[1], axis=1).max()
        logarithm = np.mean(np.array(powers) + 4 * np.log2(scales.ravel())) - drawn_upwards
        errors.append(abs(2 ** (logarithm / 8) / distance - 1))
    assert np.median(errors) > 0.02


# Without masks.


def guesses(replies, party, W):
    """Where rows may be: what is far from each centre, and what two questions differ by."""
    own = [reply for name, reply in replies if name == party]
    sums, masses = np.array([r.sums[0] for r in own]), np.array([r.masses[0] for r in own])
    places = [sums / masses[:, None]]
    for i in range(1, len(own)):
        places += [(sums[i:] - sums[i - 1]) / (masses[i:] - masses[i - 1])[:, None]]
    return np.vstack(places) @ np.linalg.inv(W)


def cut_off(scores, rng):
    """Centres beside the origin to which one row alone is nearest, whichever is outermost."""
    way = rng.normal(size=D)
    way /= np.linalg.norm(way)
    return np.sort(scores @ way)[-2:].sum() * way


@pytest.mark.parametrize(
    ("trust", "sizes"),
    [
        ("domain", (60, 7, 23)),
        ("domain", (400, 61, 61)),
        ("organisations", (90, 65, 80)),
        ("organisations", (400, 80, 80)),
    ],
)
@pytest.mark.parametrize("allow", [None, *ALLOWED])
@pytest.mark.parametrize("seed", range(2))
def test_what_is_far_from_chosen_centres_is_no_row_in_any_of_many_studies(
    seed, trust, allow, sizes
):
    """Of the same groups, whatever components scores have been left by."""
    rng = np.random.default_rng(seed)
    rows = [rng.standard_t(3, size=(n, D)) + rng.normal(size=D) for n in sizes]
    policy = Policy() if allow is None else Policy(allow)
    step = PointHolder.sum_far if allow is None else PointHolder.sum_far_groups
    near = []
    with em.federation(em.Partitioned(rows=rows, policies=policy), trust=trust) as fed:
        for study in range(6):
            W = np.linalg.qr(rng.normal(size=(D, D)))[0] * np.exp(rng.normal(size=D))
            fed.run(*kept_scores(W))
            centres = [cut_off(rows[0] @ W, rng) for _ in range(2)]
            centres += [10.0 ** rng.uniform(-2, 2) * rng.normal(size=D) @ W for _ in range(2)]
            scales = 10.0 ** rng.uniform(-3, 3, size=4)
            pairs = zip(centres, scales, strict=True)
            questions = [FarCentres(np.array([c, 0 * c]), scale) for c, scale in pairs]
            replies = far_totals(fed, *questions, step=step, groups=bool(study % 2))
            for party, own in zip(fed.parties, rows, strict=True):
                near += list(nearest_row(own, guesses(replies, party, W)))
    near = np.array(near)[np.isfinite(near)]  # some have nothing near a centre
    assert len(near) > 20
    if allow is None:
        assert np.sum(near < 1e-6) >= 6
    else:
        assert near.min() > 1e-2


def holder(points):
    site = Site("a", lambda: points, Policy(MASKED))
    site.store["points"] = {"points": points}
    view = SiteView(site, 0, ("a",))
    view.n_summed = 3  # under masks
    return PointHolder(view, KMeansSetup("points", "labels", groups=True))


def test_parties_of_fewer_rows_than_a_sum_is_over_tell_nothing_of_what_is_far():
    rng = np.random.default_rng(0)
    rows = [rng.normal(size=(n, D)) for n in (4, 1, 60)]
    holders = [holder(own) for own in rows]
    replies = [own.sum_far_groups(question(np.zeros(D))) for own in holders]
    replies += [own.sum_far(question(np.zeros(D))) for own in holders]
    assert [reply.masses.any() for reply in replies] == [False, False, True] * 2


@pytest.mark.parametrize("trust", TRUSTS)
def test_sums_of_single_far_rows_are_refused_where_rows_are_kept(trust):
    rows = with_one_far(np.random.default_rng(0))
    source = em.Partitioned(rows=rows, policies=Policy(ALLOWED[0]))
    with em.federation(source, trust=trust) as fed:
        fed.run(*kept_scores(np.eye(D)))
        with pytest.raises(PolicyRefusal, match="allow"):
            far_totals(fed, question(np.zeros(D)))
    assert (FarSums.covers, FarGroupSums.covers) == (1, "fewest")


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_a_cluster_of_one_row_is_what_the_audit_says_beforehand(kernel):
    rows = with_one_far(np.random.default_rng(0))
    rows[1][7] *= 5
    source = em.Partitioned(rows=rows, policies=Policy(MASKED))
    clusters = em.KernelKMeans(2, kernel=kernel, gamma=1e-4, random_state=0)
    words = "masked sums are of each cluster"
    with em.federation(source, secure=True) as fed:
        assert words in str(em.audit(em.plan(clusters, fed)))
        clusters.fit(fed)
    assert 1 in np.bincount(np.concatenate(clusters.labels_))
    assert words in str(em.audit(clusters.report_))
    components = em.KernelPCA(2, kernel=kernel, gamma=1e-4)
    with em.federation(source, secure=True) as fed:
        assert words not in str(em.audit(em.plan(components, fed)))


def test_nor_does_where_other_sums_overflow():
    """Scores that are scaled until a party's sum of squares is too large for a number."""
    errors = []
    for seed in range(6):
        rows = with_one_far(np.random.default_rng(seed))
        fed = federation(sites_of(rows, "organisations"), "raise")
        low, high = 450.0, 550.0  # of the logarithm of what scores are multiplied by
        for _ in range(12):
            middle = (low + high) / 2
            fed.run(*kept_scores(2.0**middle * np.eye(D)))
            low, high = (middle, high) if _is_clustered(fed) else (low, middle)
        largest = np.log2(np.square(rows[1]).sum())
        errors.append(min(abs(limit - 2 * middle - largest) for limit in (1024, 1000)))
    assert np.median(errors) > 0.1  # it was as near as the questions bring it


def _is_clustered(fed):
    try:
        far_totals(fed, FarCentres(np.zeros((2, D)), 2.0**950))
    except MessageRefused as refusal:
        return refusal.party is None  # a coordinator need not mind large totals
    return True
