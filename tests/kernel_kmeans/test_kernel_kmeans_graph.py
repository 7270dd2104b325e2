"""KernelKMeans on graphs: Lloyd's iteration on the pooled scores, though nobody has them."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits
from sklearn.metrics import adjusted_rand_score
from sklearn.metrics.pairwise import pairwise_kernels

import eigenmesh as em
from eigenmesh.errors import (
    EigenmeshWarning,
    MessageRefused,
    MissingPartyShare,
    PartyLost,
    PolicyRefusal,
)
from eigenmesh.kernel_kmeans import fit_components as kernel_kmeans_split
from eigenmesh.kernel_kmeans import graph as graph_kmeans
from eigenmesh.kernel_kmeans.graph_node import LOOKS
from eigenmesh.metrics import feature_space_inertia
from eigenmesh.numerics.kmeans import (
    WeightedPoints,
    cluster_sums,
    lloyd,
    nearest,
    weighted_kmeans,
)
from eigenmesh.numerics.mixing import MixingSpectrum

# What the features miss is the business of test_graph_accuracy.
pytestmark = pytest.mark.filterwarnings(
    "ignore:.*((features|centroids) (miss|are off)|rows that a centroid)"
)

ALL, DIGIT = load_digits(return_X_y=True)
DIGITS, GAMMA, K = ALL[:300] / 16, 0.05, 5
N_NODES = 4
PARTS = em.split(DIGITS, N_NODES, law="power", exponent=0.5, random_state=0)
POOLED = np.vstack(PARTS.parts)
WEIGHTS = [np.linspace(0, 2, n) for n, _ in PARTS.shapes]
MOMENTS_ONLY = em.Policy(allow={"moments", "counts"})
NO_CENTROIDS = em.Policy(allow={"moments", "counts", "rows"})  # so that features are random
SPLIT = {"n_parties": N_NODES, "law": "power", "exponent": 0.5, "random_state": 0}
QUIET = em.split(DIGITS, **SPLIT, policies=NO_CENTROIDS)
KEPT = em.split(DIGITS, **SPLIT, policies=MOMENTS_ONLY)


SIX = em.split(DIGITS, 6, random_state=0)
THREE = em.split(DIGITS, 3, random_state=0)  # where averages are many, for messages are lost


def kmeans(k=K, **options):
    """Of few restarts: how good clusters are is the claim of few tests, which take more.

    With as many eigenvectors as clusters nothing better is searched for, either.
    """
    common = {"gamma": GAMMA, "topology": "full", "n_landmarks": 40, "random_state": 0}
    return em.KernelKMeans(k, **common | {"n_init": 2} | options)


PATH = nx.path_graph(N_NODES)


@pytest.fixture(scope="module")
def plain():
    """For tests that only look at it, as those below."""
    return kmeans().fit(PARTS)


@pytest.fixture(scope="module")
def on_a_ring():
    return kmeans(topology="ring", n_eigenvectors=K).fit(PARTS)


@pytest.fixture(scope="module")
def on_a_path():
    return kmeans(topology=PATH, n_eigenvectors=K).fit(PARTS)


def own_scores(found, parts=PARTS):
    """Every node's rows by its own model."""
    models = found.node_models_
    return np.vstack(
        [models[n].transform(X) for n, X in zip(parts.names, parts.parts, strict=True)]
    )


def whole_kernel(X=POOLED):
    return pairwise_kernels(X, metric="rbf", gamma=GAMMA)


# The central oracle.


def pooled_lloyd(Z, w, candidates, k, n_init):
    """Centres from candidates, weighed by their rows, iterated to the end; the best of all.

    `LOOKS` times each cluster's mean by eighth powers of distances joins the landmarks.
    """
    data = WeightedPoints(Z, w)
    for _ in range(1 + LOOKS):
        cells = WeightedPoints(candidates, cluster_sums(data, candidates).weights)
        starts = weighted_kmeans(cells, k, np.random.default_rng(np.random.SeedSequence(0)), n_init)
        labels, squared = nearest(Z, starts[0])
        masses = w * squared**4
        far = [np.average(Z[labels == c], 0, masses[labels == c]) for c in range(k)]
        candidates = np.vstack([candidates, far])
    ends = [lloyd(data, start, 300) for start in starts]
    return min(ends, key=lambda centres: cluster_sums(data, centres).cost)


@pytest.mark.parametrize("seed", range(4))
def test_single_rows_far_from_all_others_are_clusters_of_their_own(seed):
    """No centroid is near them, but pooled rows have them as clusters."""
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(150, 300)), int(rng.integers(2, 5))
    far, blobs = int(rng.integers(2, 4)), int(rng.integers(2, 5))
    middles = 6 * rng.normal(size=(blobs, d))
    X = rng.normal(size=(n, d)) * np.exp(rng.normal(size=d)) + middles[rng.integers(blobs, size=n)]
    away = rng.uniform(40, 80, size=(far, 1)) * rng.choice([-1, 1], size=(far, d))
    X[rng.choice(n, far, replace=False)] += away
    parts = em.split(X, int(rng.integers(3, 6)), law="power", exponent=0.7, random_state=seed)
    k = far + blobs
    found = em.KernelKMeans(k, kernel="linear", topology="full", random_state=seed).fit(parts)
    labels, rows = np.concatenate(found.labels_), np.vstack(parts.parts)
    best = KMeans(k, n_init=20, random_state=0).fit(rows).inertia_
    own = sum(np.square(rows[labels == c] - rows[labels == c].mean(0)).sum() for c in range(k))
    assert own <= 1.02 * best


@pytest.mark.parametrize(
    ("topology", "weighted"),
    [("ring", False), ("full", False), ("star", True)],
)
def test_labels_are_those_of_lloyd_on_the_pooled_scores(topology, weighted):
    weights = [np.linspace(0, 2, 50)] * 6 if weighted else None
    options = {"tol": 0, "n_eigenvectors": K, "keep_history": True}
    found = kmeans(topology=topology, **options).fit(SIX, sample_weight=weights)
    Z, model = own_scores(found, SIX), found.node_models_["party-0"]
    w = np.concatenate(weights) if weighted else np.ones(len(Z))
    centres = pooled_lloyd(Z, w, model.transform(model.landmarks), K, 2)
    # Of two restarts with the same clusters rounding decides whose order counts.
    order = nearest(found.cluster_centers_, centres)[0]
    np.testing.assert_array_equal(order[np.concatenate(found.labels_)], nearest(Z, centres)[0])
    np.testing.assert_allclose(found.cluster_centers_, centres[order], atol=1e-10)
    assert found.report_.stop_reason == "the centres stayed"
    # Every node's, from where it began to the cost of the clusters in the end.
    history = found.history_
    assert history.shape[1] == 6
    assert np.ptp(history, axis=1).max() <= 1e-12 * history[0, 0]
    assert np.all(np.diff(history[:, 0]) <= 1e-12)
    assert history[-1, 0] == pytest.approx(w @ nearest(Z, centres)[1] / w.sum(), rel=1e-9)


@pytest.mark.parametrize(
    ("method", "parts"), [("gossip", PARTS), ("gossip", QUIET), ("admm", PARTS)]
)
@pytest.mark.filterwarnings("ignore:what is missing of the eigenvalues is not known")
def test_centres_are_the_means_of_the_pooled_scores(method, parts):
    """With landmarks, with random features, and with a model of its own at every node."""
    found = kmeans(method=method, tol=0, n_eigenvectors=None if parts is QUIET else K).fit(parts)
    Z, labels = own_scores(found, parts), np.concatenate(found.labels_)
    means = np.array([Z[labels == c].mean(axis=0) for c in range(K)])
    np.testing.assert_allclose(found.cluster_centers_, means, atol=1e-10)
    np.testing.assert_array_equal(labels, nearest(Z, means)[0])


def test_where_rows_are_kept_clusters_are_of_groups_and_nearly_as_good():
    """Nodes of 54 to 108 rows, in groups of five: sums of any two rounds differ by whole ones."""
    found, exact = (kmeans(tol=0, n_init="auto").fit(parts) for parts in (KEPT, QUIET))
    assert "over whole groups of rows" in found.method_
    assert "groups" not in exact.method_
    Z, labels = own_scores(found, KEPT), np.concatenate(found.labels_)
    np.testing.assert_array_equal(labels, nearest(Z, found.cluster_centers_)[0])
    best = KMeans(K, n_init=30, random_state=0).fit(Z).inertia_
    assert nearest(Z, found.cluster_centers_)[1].sum() < 1.1 * best


@pytest.mark.parametrize("parts", [PARTS, QUIET])
def test_the_seeds_are_good(parts):
    """Also those that are drawn, since random features have no landmarks."""
    found = kmeans(8, n_landmarks=100, tol=0, n_init="auto").fit(parts)
    Z = own_scores(found, parts)
    best = KMeans(8, n_init=30, random_state=0).fit(Z)
    assert cluster_sums(WeightedPoints(Z, np.ones(len(Z))), found.cluster_centers_).cost < (
        1.03 * best.inertia_
    )


@pytest.mark.parametrize("weighted", [False, True])
def test_the_inertia_is_an_upper_bound_that_more_landmarks_bring_near(weighted):
    weights = WEIGHTS if weighted else None
    slacks = []
    for q in (12, 24, 48):
        found = kmeans(n_landmarks=q, n_init=1, n_eigenvectors=K).fit(PARTS, sample_weight=weights)
        w = np.concatenate(WEIGHTS) if weighted else None
        true = feature_space_inertia(whole_kernel(), np.concatenate(found.labels_), w)
        assert true < found.inertia_ <= true + found.inertia_slack_
        slacks.append(found.inertia_slack_)
    assert slacks[0] > slacks[1] > slacks[2]


def test_one_node_with_all_rows_knows_the_inertia():
    found = kmeans().fit(em.Partitioned(rows=[POOLED]))
    true = feature_space_inertia(whole_kernel(), found.labels_[0])
    assert found.inertia_ == pytest.approx(true, rel=1e-9)
    assert found.inertia_slack_ < 1e-6
    # Eigenvalues, what each lacks, centres and weights are told.
    assert found.report_.floats_up == 2 * K + K + K * 2 * K + K


@pytest.mark.parametrize("method", ["random", "admm"])
@pytest.mark.filterwarnings("ignore:what is missing of the eigenvalues is not known")
def test_what_else_the_inertia_is(method):
    parts = QUIET if method == "random" else PARTS
    options = {"method": "auto" if method == "random" else method, "n_eigenvectors": K}
    found = kmeans(**options).fit(parts)
    assert found.inertia_slack_ is None
    whose = "random features" if method == "random" else "scores"
    assert any(f"is that of the {whose}" in note for note in found.report_.notes)
    if method == "admm":
        Z, labels = own_scores(found), np.concatenate(found.labels_)
        spread = sum(np.square(Z[labels == c] - Z[labels == c].mean(0)).sum() for c in range(K))
        assert found.inertia_ == pytest.approx(spread, rel=1e-9)


def test_a_graph_of_ones_own_and_a_federation_with_a_graph(on_a_path):
    with em.federation(PARTS, topology=PATH) as fed:
        again = kmeans(topology=None, n_eigenvectors=K).fit(fed)
    np.testing.assert_array_equal(on_a_path.cluster_centers_, again.cluster_centers_)
    assert again.method_.startswith("gossip: 4 parties hold rows")


# The nodes agree, and it is said by how much.


def test_how_far_the_nodes_differ_is_said(on_a_ring):
    note = next(n for n in on_a_ring.report_.notes if n.startswith("the nodes' centres"))
    assert float(note.split()[-1]) < 1e-12


def test_nodes_that_do_not_agree_are_a_warning(monkeypatch):
    monkeypatch.setattr(kernel_kmeans_split, "AGREES", 0.0)
    with pytest.warns(EigenmeshWarning, match="the nodes do not agree: their centres are up to"):
        few_rounds = {"n_init": 1, "max_iter": 2, "n_eigenvectors": K}
        kmeans(topology="ring", averaging="gossip", **few_rounds).fit(PARTS)


def test_equal_restarts_do_not_part_the_nodes():
    """Two clusters far apart: every restart ends alike, and rounding alone tells them apart."""
    rng = np.random.default_rng(0)
    X = np.vstack([rng.normal(size=(60, 3)), 6 + rng.normal(size=(60, 3))])
    parts = em.split(X, 6, random_state=0)
    found = kmeans(2, n_init=6, topology="ring").fit(parts)
    truth = [np.asarray(rows) >= 60 for rows in parts.order]
    assert adjusted_rand_score(np.concatenate(truth), np.concatenate(found.labels_)) == 1.0


# New rows, files.


def test_predict_on_the_fitted_rows_is_fit_predict(plain):
    for own, again in zip(kmeans().fit_predict(PARTS), plain.predict(PARTS), strict=True):
        np.testing.assert_array_equal(own, again)
    np.testing.assert_array_equal(plain.predict(POOLED), np.concatenate(plain.labels_))
    assert plain.transform(POOLED).shape == (300, 2 * K)


@pytest.mark.parametrize("fitted", ["on_a_ring", "on_a_path"])
def test_a_model_goes_to_a_file_and_back(tmp_path, request, fitted):
    found = request.getfixturevalue(fitted)
    found.save(tmp_path / "m.em", parties=True)
    again = em.load(tmp_path / "m.em")
    np.testing.assert_array_equal(again.predict(POOLED), found.predict(POOLED))
    assert str(again.report_) == str(found.report_)
    assert again.node_models_.keys() == found.node_models_.keys()
    with pytest.raises(MissingPartyShare, match="predict gives them"):
        _ = again.labels_
    if fitted == "on_a_path":
        assert nx.utils.graphs_equal(again.topology, PATH)


# The account.

PLANNED = [
    (PARTS, {"topology": "ring", "n_eigenvectors": K}),
    (PARTS, {"gamma": "mean-distance", "n_eigenvectors": K}),
    (PARTS, {"method": "admm", "n_eigenvectors": 3, "keep_history": True}),
    (PARTS, {"kernel": "linear", "n_landmarks": 30, "n_eigenvectors": 7}),
    (QUIET, {"n_eigenvectors": K}),
    (KEPT, {"n_eigenvectors": K}),
    (em.Partitioned(rows=[POOLED]), {"n_eigenvectors": K}),
]


@pytest.mark.parametrize(("parts", "options"), PLANNED)
@pytest.mark.filterwarnings("ignore:what is missing of the eigenvalues is not known")
def test_the_forecast_is_the_ledger(parts, options):
    """Of restarts that do not end before max_iter, and of features that leave no doubt."""
    model = kmeans(**{"max_iter": 1, "tol": 0, "accuracy": 1.0} | options)
    planned, report = em.plan(model, parts), model.fit(parts).report_
    assert planned.by_step == report.by_step
    assert planned.floats_up == report.floats_up
    assert planned.rounds == report.rounds
    assert planned.by_party == report.by_party
    with em.federation(parts, topology=model.topology) as fed:
        assert em.plan(model.set_params(topology=None), fed).floats_up == report.floats_up


def test_a_forecast_counts_searches_that_find_nothing(monkeypatch):
    """As many as are made before they are given up; what is better goes on to its end."""
    monkeypatch.setattr(graph_kmeans, "_finds_better", lambda trial, best: False)
    monkeypatch.setattr(graph_kmeans, "TRIAL_ROUNDS", 1)
    monkeypatch.setattr(graph_kmeans, "USUAL_TRIAL", 1)
    model = kmeans(3, max_iter=1, tol=0, accuracy=1.0, topology="ring")
    planned, report = em.plan(model, PARTS), model.fit(PARTS).report_
    assert planned.by_step == report.by_step
    assert any("about: how soon" in note for note in planned.notes)


def test_the_ledger_of_lloyd_by_its_formula():
    """Two iterations more: so many mixes of sums, weights and costs, and of what decides."""

    def ring(max_iter):
        options = {"topology": "ring", "averaging": "gossip", "tol": 0}
        return kmeans(max_iter=max_iter, n_eigenvectors=K, **options)

    one, three = (ring(max_iter=t).fit(PARTS).report_.by_step for t in (1, 3))
    links, restarts, diameter = 2 * N_NODES, 2, N_NODES // 2
    mixes = MixingSpectrum.of(nx.cycle_graph(N_NODES)).mixes()
    more = {step: three[step] - one[step] for step in three if three[step] != one[step]}
    assert more == {
        "ClusterNode.offer_mixture": 2 * mixes * links * restarts * (K * K + K + 1),
        "ClusterNode.offer_peak": 2 * diameter * links * restarts * 2,
    }


def test_no_row_and_no_score_leaves(plain):
    reveals = plain.report_.reveals
    assert set().union(*reveals.values()) == {"centroids", "moments", "counts"}


# What the nodes let out.


def test_a_node_that_keeps_its_centroids_is_served_by_random_features():
    policies = [None, MOMENTS_ONLY, *[None] * (N_NODES - 2)]
    parts = em.split(DIGITS, N_NODES, random_state=0, policies=policies)
    found = kmeans(n_eigenvectors=K).fit(parts)
    assert "random features" in found.method_
    assert set(found.report_.reveals["party-1"]) == {"moments", "counts"}


@pytest.mark.parametrize("method", ["auto", "gossip", "admm"])
def test_a_node_that_lets_no_moments_out_is_named(method):
    quiet = em.Policy(allow={"centroids", "rows", "counts", "eigenvectors", "scores", "gram"})
    policies = [None, None, quiet, *[None] * (N_NODES - 3)]
    parts = em.split(DIGITS, N_NODES, random_state=0, policies=policies)
    with pytest.raises(PolicyRefusal, match="moments") as caught:
        kmeans(method=method).fit(parts)
    assert caught.value.party == "party-2"
    assert "moments" in em.plan(kmeans(method=method), parts).refusals["party-2"]


# Faults.


@pytest.fixture(scope="module")
def undisturbed():
    return few(topology="full", max_iter=2, n_eigenvectors=3).fit(THREE)


def few(**options):
    return kmeans(3, tol=0, n_init=1, **options)


def faulty(parts=PARTS, **options):
    from tests.graph_faults import federation_over

    return federation_over(parts, "full", max_age=1000, **options)


@pytest.mark.parametrize("on_loss", ["reuse", "survivors"])
def test_lost_messages_do_not_move_the_clusters(undisturbed, on_loss):
    with faulty(THREE, on_loss=on_loss, loses=0.05) as fed:
        gossiping = {"topology": None, "averaging": "gossip"}
        found = few(max_iter=2, n_eigenvectors=3, **gossiping).fit(fed)
    labels = np.concatenate(found.labels_)
    assert adjusted_rand_score(labels, np.concatenate(undisturbed.labels_)) == 1.0
    assert found.inertia_ == pytest.approx(undisturbed.inertia_, rel=1e-6)
    report = found.report_
    assert sum(report.reused.values()) + sum(report.dropped.values()) > 100


def test_lost_messages_stop_the_run_if_nothing_else_was_asked_for():
    with faulty(on_loss="raise", loses=0.05) as fed:
        with pytest.raises(PartyLost, match="no message came"):
            kmeans(topology=None).fit(fed)


# A node's exchanges are counted over all protocols: offer_peak is that of k-means alone.
@pytest.mark.parametrize(("leaves", "at"), [("party-0", 2), ("party-3", 8)])
def test_a_node_that_leaves_is_out_of_the_clusters(leaves, at):
    """Also the first one, with the starting points that it was passing on."""
    dies = (leaves, "offer_peak", at)
    with faulty(on_loss="survivors", dies=dies) as fed:
        found = few(topology=None).fit(fed)
    assert set(found.report_.lost) == {leaves}
    kept = {name: model for name, model in found.node_models_.items() if name != leaves}
    rows = dict(zip(PARTS.names, PARTS.parts, strict=True))
    Z = np.vstack([model.transform(rows[name]) for name, model in kept.items()])
    labels = np.concatenate(found.labels_)
    assert len(found.labels_) == 3
    means = np.array([Z[labels == c].mean(axis=0) for c in range(3)])
    np.testing.assert_allclose(found.cluster_centers_, means, atol=1e-9)
    spread = np.square(Z - means[labels]).sum()
    assert spread < found.inertia_  # which has what lies outside the components, too


def test_a_node_that_leaves_and_nobody_said_what_then():
    with faulty(on_loss="raise", dies=("party-3", "offer_peak", 2)) as fed:
        with pytest.raises(PartyLost) as caught:
            kmeans(topology=None).fit(fed)
    assert caught.value.party == "party-3"


def test_a_nan_from_a_neighbour_is_named():
    with faulty(on_loss="raise", spoils=("party-2", "offer_peak", 1)) as fed:
        with pytest.raises(MessageRefused, match="not finite") as caught:
            kmeans(topology=None, averaging="gossip").fit(fed)
    assert caught.value.party == "party-2"


# Too few of everything.


def test_equal_rows_are_one_cluster():
    parts = em.Partitioned(rows=[np.ones((10, 3)), np.ones((8, 3)), np.ones((6, 3))])
    with pytest.warns(
        EigenmeshWarning, match="3 clusters were asked for, 1 came out: no more rows differ"
    ):
        found = kmeans(3).fit(parts)
    assert [labels.tolist() for labels in found.labels_] == [[0] * 10, [0] * 8, [0] * 6]
    assert found.inertia_ == pytest.approx(0, abs=1e-9)
    assert "3 eigenvectors were asked for, the data determine 1" in found.report_.notes


def test_fewer_columns_than_clusters():
    parts = em.split(load_digits().data[:200, 10:13], 4, random_state=0)
    found = kmeans(6, kernel="linear").fit(parts)
    assert found.cluster_centers_.shape == (6, 3)
    assert "6 eigenvectors were asked for, the data determine 3" in found.report_.notes


def test_fewer_different_rows_than_clusters():
    X = np.repeat(np.array([[0.0, 0.0], [4.0, 0.0], [0.0, 4.0]]), 20, axis=0)
    parts = em.split(X, 3, random_state=0)
    with pytest.warns(
        EigenmeshWarning, match="6 clusters were asked for, 3 came out.*pass n_clusters=3"
    ):
        found = kmeans(6).fit(parts)
    truth = np.concatenate([np.asarray(rows) // 20 for rows in parts.order])
    assert adjusted_rand_score(truth, np.concatenate(found.labels_)) == 1.0


# What cannot work.


@pytest.mark.parametrize("method", ["landmarks", "exact", "fed", "nystrom", "diskpca", "vfed-pca"])
def test_methods_for_a_coordinator_are_refused(method):
    words = f"method is '{method}'; for rows split over parties on a graph it is.*gossip, admm"
    with pytest.raises(em.EigenmeshError, match=words):
        kmeans(method=method).fit(PARTS)
    with pytest.raises(em.EigenmeshError, match=words):
        em.plan(kmeans(method=method), PARTS)
    with em.federation(PARTS, topology="ring") as fed:
        with pytest.raises(em.EigenmeshError, match=words):
            kmeans(method=method, topology=None).fit(fed)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"kmeans": "coreset"}, "'coreset'; for rows on a graph 'auto' or 'lloyd'"),
        ({"landmarks": "uniform"}, "'uniform'; for rows on a graph 'auto' is expected"),
        ({"topology": "circle"}, "'circle' is unknown"),
        ({"topology": ("lattice", 3)}, "an even number of neighbours"),
        ({"tol": -1}, "a number from 0"),
    ],
)
def test_what_a_graph_cannot_have(wrong, words):
    with pytest.raises(em.EigenmeshError, match=words):
        kmeans(**wrong).fit(PARTS)


@pytest.mark.parametrize(
    ("weights", "words"),
    [
        ([np.ones(n) for n, _ in PARTS.shapes][:-1], "a list of 3; a list of 4 arrays"),
        ([np.ones(3), *WEIGHTS[1:]], "party-0.*rows and 3 weights"),
        ([np.zeros(n) for n, _ in PARTS.shapes], "non-zero"),
    ],
)
def test_weights_that_do_not_fit(weights, words):
    with pytest.raises(em.EigenmeshError, match=words):
        kmeans().fit(PARTS, sample_weight=weights)


def test_an_array_has_no_graph():
    with_topology = kmeans(gamma=GAMMA).fit(DIGITS)
    without = kmeans(gamma=GAMMA, topology=None).fit(DIGITS)
    np.testing.assert_array_equal(with_topology.labels_, without.labels_)
