"""What default fits let out, held against what the audit of their plan had said."""

import numpy as np
import pytest
from scipy.optimize import least_squares
from tests.attacks.overhearing import moved_onto, overheard, relative_error
from tests.attacks.test_centroid_fits import FITS as MANY
from tests.attacks.test_centroid_fits import SIZES, require_far
from tests.contracts.fits import FITS

import eigenmesh as em
from eigenmesh.reports.audit import Severity
from eigenmesh.stages.kmeans_party import Sums

pytestmark = pytest.mark.filterwarnings("ignore")
NAMES = ["a", "b", "c"]


def blocks_of(split, seed, n=60):
    rng = np.random.default_rng(seed)
    if split == "rows":
        return [rng.normal(size=(n + 10 * i, 4)) for i in range(3)]
    return [rng.normal(size=(n, d)) @ rng.normal(size=(d, d)) for d in (2, 3, 4)]


DEFAULTS = [
    ("rows", em.KernelPCA(2, kernel="rbf", gamma=0.1)),
    ("rows", em.KernelPCA(2)),
    ("rows", em.KernelKMeans(3, kernel="rbf", gamma=0.1, random_state=0)),
    ("columns", em.KernelPCA(2)),
    ("columns", em.KernelPCA(2, kernel="rbf", gamma=0.05)),
    ("columns", em.OneShotKPCA(2)),
]


@pytest.mark.parametrize(("split", "estimator"), DEFAULTS, ids=str)
@pytest.mark.parametrize("seed", range(2))
def test_known_samples_give_the_others_only_where_the_audit_says_so(split, estimator, seed):
    """Whatever left that has one row a sample is moved onto the samples that are known."""
    blocks, replies = blocks_of(split, seed), []
    parts = em.Partitioned(**{split: blocks}, names=NAMES)
    audit = em.audit(em.plan(estimator, parts))
    with overheard(replies):
        estimator.fit(parts)
    for party, block in zip(NAMES, blocks, strict=True):
        n, d = block.shape
        known, best = np.arange(d + 2), 1.0
        for reply in replies:
            arrays = vars(reply.message).values() if reply.party == party else ()
            for values in arrays:
                if isinstance(values, np.ndarray) and values.ndim == 2 and len(values) == n:
                    guess = moved_onto(values, known, block[known])
                    best = min(best, relative_error(guess[d + 2 :], block[d + 2 :]))
        if best < 0.1:
            assert audit.of(party)[0].severity >= Severity.ROTATED
        elif split == "rows":
            assert audit.of(party)[0].severity < Severity.ROTATED


@pytest.mark.parametrize("estimator", [em.KernelPCA(3), em.KernelPCA(3, kernel="rbf", gamma=0.1)])
@pytest.mark.parametrize("seed", range(2))
def test_components_of_default_fits_do_not_tell_members_from_others(estimator, seed):
    rng = np.random.default_rng(seed)
    members, others = rng.normal(size=(600, 5)), rng.normal(size=(600, 5))
    parts = em.Partitioned(rows=np.array_split(members, 3), names=NAMES)
    estimator.fit(parts)
    inside, outside = (
        np.square(np.asarray(estimator.transform(X))).sum(axis=1) for X in (members, others)
    )
    advantage = abs(np.mean(inside[:, None] < outside[None]) - 0.5)
    assert advantage < 0.08


@pytest.mark.parametrize("seed", range(2))
def test_scores_that_leave_a_default_clustering_invert_to_no_row(seed):
    """They are means of five rows' scores; with more scores than columns single ones would do."""
    rng = np.random.default_rng(seed)
    blocks, replies = [rng.normal(size=(60, 3)) for _ in NAMES], []
    settings = {"n_eigenvectors": 6, "random_state": 0, "n_init": 1}
    kmeans = em.KernelKMeans(3, kernel="rbf", gamma=0.1, **settings)
    parts = em.Partitioned(rows=blocks, names=NAMES)
    with overheard(replies):
        kmeans.fit(parts)
    points = [np.asarray(reply.message.points) for reply in messages_with_points(replies)]
    landmarks = np.asarray(kmeans.model_.landmarks)
    scores_of = np.asarray(kmeans.model_.transform(landmarks))[:, :6]
    near = 0
    for z in np.vstack(points)[:12]:
        start = landmarks[np.argmin(np.linalg.norm(scores_of - z, axis=1))]
        guess = least_squares(
            lambda x, z=z: np.asarray(kmeans.model_.transform(x[None]))[0, :6] - z, start
        ).x
        away = np.linalg.norm(np.vstack(blocks) - guess, axis=1)
        near += away.min() < 0.05
    assert near <= 1  # as often as a point of the middle is near to some row by chance
    truth = np.asarray(kmeans.model_.transform(blocks[0][:12]))[:, :6]
    single = [
        least_squares(
            lambda x, z=z: np.asarray(kmeans.model_.transform(x[None]))[0, :6] - z, row + 0.3
        ).x
        for z, row in zip(truth, blocks[0], strict=False)
    ]
    recovered = np.linalg.norm(np.array(single) - blocks[0][:12], axis=1) < 0.05
    assert recovered.mean() > 0.5  # the attack works on single rows' scores


def messages_with_points(replies):
    return [reply for reply in replies if hasattr(reply.message, "points")]


@pytest.fixture(scope="module")
def graph_fits():
    """Many fits on a graph by other seeds and numbers: all centroids that nodes got to know."""
    rng = np.random.default_rng(5)
    rows = [rng.normal(size=(n, 4)) + 3 * i for i, n in enumerate(SIZES)]
    released = []
    with em.federation(em.Partitioned(rows=rows, names=NAMES), topology="full") as fed:
        for seed in range(MANY):
            count = 3 if seed % 2 else int(rng.integers(3, 24))
            how = {"n_features": count, "n_rounds": 1, "n_mixes": 1, "accuracy": None}
            kpca = em.GossipKPCA(1, kernel="rbf", gamma=0.1, random_state=seed, **how)
            released.append(kpca.fit(fed).model_.landmarks)
    return rows, np.unique(np.vstack(released), axis=0)


def test_many_fits_on_a_graph_release_nodes_of_one_tree_a_party(graph_fits):
    rows, released = graph_fits
    assert len(released) <= sum(2 * (len(own) // 5) - 1 for own in rows)


def test_differences_of_what_many_fits_on_a_graph_released_are_no_rows(graph_fits):
    rows, released = graph_fits
    known, guesses = {mean.tobytes() for mean in np.round(released, 9)}, []
    for whole in range(10, max(SIZES) + 1, 3):
        for part in range(5, whole - 4, 5):
            rests = (whole * released[:, None] - part * released[None]) / (whole - part)
            guesses += [g for g in rests.reshape(-1, 4) if np.round(g, 9).tobytes() in known]
    require_far(np.vstack([released, *guesses[:200]]), rows, released)


ON_GRAPHS = [
    fit for fit in FITS if "ring" in fit.name or "gossip" in fit.name or "admm" in fit.name
]


@pytest.mark.parametrize("fit", ON_GRAPHS, ids=lambda fit: fit.name)
def test_averages_on_graphs_are_what_was_averaged_in_ledger_and_audit(fit):
    """Neighbours see running values, the first of which is a node's own: that is no aggregate."""
    with fit.open() as fed:
        report = fit.run(fed).report_
    kinds = {kind for own in report.reveals.values() for kind in own}
    assert "aggregate" not in kinds
    assert kinds & {"moments", "gram", "distances", "scores", "rows", "eigenvectors"}
    told = {line.kind for party in report.parties for line in em.audit(report).of(party)}
    assert "aggregate" not in told


def fewest_in_a_sum(trust, kernel, **asked):
    """The fewest rows of a party in any sum of a cluster that left, where each has one far row."""
    blocks = blocks_of("rows", 3)
    for block in blocks:
        block[0] += 30
    replies, parts = [], em.Partitioned(rows=blocks, names=NAMES)
    estimator = em.KernelKMeans(4, kernel=kernel, gamma=0.01, random_state=0, **asked)
    with overheard(replies), em.federation(parts, trust=trust) as fed:
        estimator.fit(fed)
    sums = [reply.message for reply in replies if isinstance(reply.message, Sums)]
    return min(float(own.weights[own.weights > 0].min()) for own in sums)


@pytest.mark.parametrize("kernel", ["rbf", "linear"])
def test_no_sum_of_a_cluster_tells_of_a_single_row_between_organisations(kernel):
    assert fewest_in_a_sum("organisations", kernel) >= 5
    assert fewest_in_a_sum("organisations", kernel, kmeans="means") == 1  # by name, as before
    assert fewest_in_a_sum("domain", kernel) == 1  # and the audit says so
