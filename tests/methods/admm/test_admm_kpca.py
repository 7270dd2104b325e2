"""Decentralised kernel PCA: as good as the nodes' data can express it, from neighbours alone."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.decomposition import KernelPCA
from tests.graph_data import central, central_scores, cosine, digits, kernel, nodes

import eigenmesh as em
from eigenmesh.errors import InputError, PolicyRefusal, RankError, TopologyError
from eigenmesh.methods.admm.neighbourhood import STORE
from eigenmesh.runtime.message import KINDS
from eigenmesh.runtime.topology import build_graph

# Which tests/kernel_pca/test_kernel_pca_methods.py holds it to.
pytestmark = pytest.mark.filterwarnings("ignore:what is missing of the eigenvalues is not known")

LATTICE = ("lattice", 4)
N_NODES = 12


def admm(k=1, **options):
    _, gamma = digits()
    return em.ADMMKPCA(
        k, **{"topology": LATTICE, "kernel": "rbf", "gamma": gamma, "random_state": 0} | options
    )


@pytest.fixture(scope="module")
def X():
    return digits()[0][:480]


@pytest.fixture(scope="module")
def parts(X):
    return nodes(X, N_NODES)


@pytest.fixture(scope="module")
def fitted(X, parts):
    return admm(reference=X, n_iterations=30).fit(parts)


@pytest.fixture(scope="module")
def pooled_neighbours(X, parts):
    return admm(reference=X, n_iterations=0).fit(parts)


# The oracle.


@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("name", ["linear", "rbf", "poly"])
def test_a_plain_array_gives_pooled_kernel_pca(name, center):
    X, gamma = digits()[0][:120], 0.05
    ours = em.ADMMKPCA(3, kernel=name, gamma=gamma, degree=2, center=center).fit(X)
    if center:
        theirs = KernelPCA(3, kernel=name, gamma=gamma, degree=2, eigen_solver="dense").fit(X)
        np.testing.assert_allclose(ours.transform(X), theirs.transform(X), atol=1e-10)
        np.testing.assert_allclose(ours.eigenvalues_, theirs.eigenvalues_, rtol=1e-10)
    else:
        K = {"linear": X @ X.T, "poly": (gamma * X @ X.T + 1) ** 2, "rbf": kernel(X, X, gamma)}
        values = np.linalg.eigvalsh(K[name])[::-1][:3]
        np.testing.assert_allclose(ours.eigenvalues_, values, rtol=1e-10)


@pytest.mark.parametrize("k", [1, 3])
def test_where_everybody_is_a_neighbour_every_node_has_the_pooled_components(X, k):
    gamma = digits()[1]
    kpca = admm(k, topology="full", n_iterations=3, reference=X[:150]).fit(nodes(X[:150], 5))
    expected = central_scores(X[:150], gamma, k)
    for model in kpca.node_models_.values():
        scores = model.transform(X[:150])
        signs = np.sign(np.sum(scores * expected, axis=0))
        np.testing.assert_allclose(scores * signs, expected, atol=1e-8)
    np.testing.assert_allclose(kpca.eigenvalues_, central(X[:150], gamma, k)[0], rtol=1e-10)
    np.testing.assert_allclose(kpca.consensus_similarity_, 1.0, atol=1e-10)


def test_linear_kernel_is_centred_exactly_on_any_graph(X):
    kpca = em.ADMMKPCA(1, topology="ring", n_iterations=25).fit(nodes(X, 6))
    X_centred = X - X.mean(axis=0)
    np.testing.assert_allclose(kpca.total_variance_, np.sum(X_centred**2), rtol=1e-10)
    first = np.linalg.svd(X_centred, full_matrices=False)[2][0]
    z = kpca.transform(np.vstack([np.eye(X.shape[1]), np.zeros(X.shape[1])]))
    assert abs((z[:-1] - z[-1])[:, 0] @ first) > 0.999


# The claims.


def test_local_direction_reaches_its_ceiling_and_never_exceeds_it(fitted):
    w, ceiling = fitted.trace_[:, 0], fitted.ceiling_.mean()
    assert w[4] >= 0.975
    assert w[10] >= 0.99 * ceiling
    assert np.all(fitted.similarity_ <= fitted.ceiling_ + 1e-6)
    assert w[30] >= w[10] - 1e-4


def test_consensus_direction_beats_pooling_the_neighbours(fitted, pooled_neighbours):
    z = fitted.trace_[:, 1]
    assert z[10] >= 0.99
    assert z[4] > pooled_neighbours.consensus_similarity_.mean()
    assert z[30] >= z[10] - 1e-4


def test_claimed_similarities_are_those_computed_from_the_models(X, fitted):
    gamma = digits()[1]
    found = [cosine(fitted.node_models_[name].local, X, gamma) for name in fitted.nodes_]
    np.testing.assert_allclose(found, fitted.similarity_, atol=1e-7)
    found = [cosine(fitted.node_models_[name].consensus, X, gamma) for name in fitted.nodes_]
    np.testing.assert_allclose(found, fitted.consensus_similarity_, atol=1e-7)


def test_ceiling_is_the_length_of_the_projection_on_the_own_rows(X, parts, fitted):
    """Recomputed with the node's rows seen from the true mean: close, since the origin is."""
    gamma = digits()[1]
    _, a = central(X, gamma, 1)
    own = parts.part(3)
    K, cross = kernel(own, own, gamma), kernel(own, X, gamma)
    means = cross.mean(axis=1)
    overall = kernel(X, X, gamma).mean()
    K = K - means - means[:, None] + overall
    heights = (cross - kernel(X, X, gamma).mean(axis=0)) @ a
    reach = np.sqrt(heights.T @ np.linalg.pinv(K, rcond=1e-10, hermitian=True) @ heights)
    assert abs(float(reach[0, 0]) - fitted.ceiling_[3]) < 2e-3


def test_eigenvalue_is_the_variance_of_all_rows_along_the_components(X, fitted):
    scores = fitted.transform(X)
    assert fitted.eigenvalues_[0] == pytest.approx(np.sum(scores**2), rel=5e-3)
    assert fitted.eigenvalues_[0] == pytest.approx(central(X, digits()[1], 1)[0][0], rel=2e-2)
    assert fitted.residual_ == pytest.approx(fitted.total_variance_ - fitted.eigenvalues_.sum())


def test_all_nodes_agree_on_the_sign(X, fitted):
    scores = np.hstack([model.transform(X) for model in fitted.node_models_.values()])
    assert np.corrcoef(scores.T).min() > 0.98


def test_several_components_together(X, parts):
    kpca = admm(3, reference=X, n_iterations=20).fit(parts)
    assert kpca.similarity_.mean() >= 0.90
    assert kpca.consensus_similarity_.mean() >= 0.98
    assert np.all(np.diff(kpca.eigenvalues_) < 0)
    expected = central_scores(X, digits()[1], 3)
    found = kpca.transform(X)
    for i in range(3):  # in order, one by one, not only as a subspace
        assert abs(np.corrcoef(found[:, i], expected[:, i])[0, 1]) > 0.98


@pytest.mark.filterwarnings("ignore:z of .* nodes still moves")
def test_nodes_that_hold_one_class_each():
    X, gamma = digits(sorted_by_label=True)
    kpca = admm(reference=X, n_iterations=30).fit(nodes(X, N_NODES))
    assert kpca.similarity_.mean() >= 0.95 * kpca.ceiling_.mean()
    assert kpca.consensus_similarity_.mean() > 0.95
    assert np.all(kpca.similarity_ <= kpca.ceiling_ + 1e-6)


@pytest.mark.filterwarnings("ignore:z of .* nodes still moves")
def test_the_papers_own_variant_and_schedule(X, parts, fitted):
    """Its penalties suit 100 rows a node, not 40; and it starts from a node's own components."""
    paper = admm(reference=X, variant="paper", penalty="paper", n_iterations=2).fit(parts)
    assert paper.penalty_ is None
    assert np.all(paper.similarity_ <= paper.ceiling_ + 1e-6)
    auto = admm(reference=X, variant="paper", n_iterations=12).fit(parts)
    assert auto.trace_[-1, 0] > auto.trace_[0, 0]
    assert auto.trace_[-1, 0] < fitted.trace_[12, 0]


def test_before_any_iteration_are_the_baselines(X, parts, pooled_neighbours):
    """The paper's variant starts from the node's rows alone, ours from those of its neighbours."""
    gamma, overall = digits()[1], kernel(X, X, digits()[1]).mean()
    local = admm(reference=X, variant="paper", n_iterations=0).fit(parts)
    for kpca, rows, model in (
        (local, parts.part(0), local.node_models_["party-0"].local),
        (
            pooled_neighbours,
            np.vstack([parts.part(i) for i in (0, 1, 2, 10, 11)]),
            pooled_neighbours.node_models_["party-0"].consensus,
        ),
    ):
        means = kernel(rows, X, gamma).mean(axis=1)
        top = np.linalg.eigh(kernel(rows, rows, gamma) - means - means[:, None] + overall)
        expected = top[1][:, -1] * np.sqrt(top[0][-1])
        assert abs(np.corrcoef(model.transform(rows)[:, 0], expected)[0, 1]) > 0.999
        assert kpca.trace_.shape == (1, 2)
    assert local.similarity_.mean() < pooled_neighbours.similarity_.mean()


@pytest.mark.filterwarnings("ignore:z of .* nodes still moves")
@pytest.mark.parametrize("topology", ["ring", "star", "grid", "random-regular", nx.path_graph(6)])
def test_any_connected_graph(X, topology):
    kpca = admm(topology=topology, reference=X, n_iterations=10).fit(nodes(X, 6))
    assert kpca.similarity_.mean() > 0.99 * kpca.ceiling_.mean()


def test_auto_penalty_is_the_largest_of_assumption_2(X, parts, fitted):
    gamma = digits()[1]
    overall, largest = kernel(X, X, gamma).mean(), 0.0
    for own in parts.parts:
        K, means = kernel(own, own, gamma), kernel(own, X, gamma).mean(axis=1)
        lam = np.linalg.eigvalsh(K - means - means[:, None] + overall)
        first, size = lam[-1], 5
        root = np.sqrt(first**4 + 8 * size * first * np.sum(lam**3))
        largest = max(largest, (root + first**2) / (size * first))
    assert fitted.penalty_ == pytest.approx(largest, rel=0.02)


# Cost.


@pytest.mark.filterwarnings("ignore:z of .* nodes still moves")
@pytest.mark.parametrize("k", [1, 2])
def test_floats_per_node_and_iteration_are_three_times_degree_times_rows(parts, k):
    one, three = (admm(k, n_iterations=n).fit(parts).report_ for n in (1, 3))
    for name in parts.names:
        assert three.by_party[name] - one.by_party[name] == 2 * 3 * 4 * 40 * k
    assert three.rounds - one.rounds == 4


@pytest.mark.filterwarnings("ignore:z of .* nodes still moves")
@pytest.mark.parametrize(
    ("topology", "options"),
    [
        (LATTICE, {"kernel": "rbf", "gamma": 0.05}),
        ("star", {"kernel": "rbf", "gamma": "mean-distance", "penalty": "paper"}),
        ("grid", {"kernel": "linear"}),
        ("full", {"kernel": "poly", "gamma": 0.1, "degree": 2}),
        ("ring", {"kernel": "rbf", "gamma": 0.05, "center": False, "variant": "paper"}),
        ("random-regular", {"kernel": "rbf", "gamma": 0.05, "tolerance": 0.0}),
        ("full", {"kernel": "rbf", "gamma": 0.05, "row_noise": 0.1}),
    ],
)
def test_plan_is_the_ledger_to_the_float(X, topology, options):
    uneven = em.split(X[:200], 8, law="power", exponent=0.7, random_state=0)
    kpca = em.ADMMKPCA(2, topology=topology, n_iterations=2, reference=X[:60], **options)
    forecast = em.plan(kpca, uneven)
    report = kpca.fit(uneven).report_
    assert forecast.by_step == dict(report.by_step)
    assert forecast.by_party == dict(report.by_party)
    assert forecast.reveals == dict(report.reveals)
    assert (forecast.floats_up, forecast.floats_down) == (report.floats_up, report.floats_down)
    assert forecast.rounds == report.rounds
    assert report.baseline_floats == 200 * 64


def test_plan_of_a_plain_array(X):
    forecast = em.plan(em.ADMMKPCA(2, kernel="rbf", gamma=0.1), X[:50])
    report = em.ADMMKPCA(2, kernel="rbf", gamma=0.1).fit(X[:50]).report_
    assert (forecast.floats_up, forecast.rounds) == (report.floats_up, report.rounds)


def test_stops_when_nothing_moves(X, parts):
    kpca = admm(tolerance=0.01, n_iterations=50, reference=X).fit(parts)
    assert len(kpca.trace_) < 30
    assert "no component moved by more than 0.01" in kpca.report_.stop_reason
    assert kpca.consensus_similarity_.mean() > 0.99


# Rows, noise, policy.


# The noise is drawn anew each time; whether the fit has come to rest is another test's business.
@pytest.mark.filterwarnings("ignore::eigenmesh.errors.EigenmeshWarning")
def test_rows_reach_neighbours_only_and_carry_the_noise_that_was_asked_for(X):
    parts = nodes(X[:200], 5)
    with em.federation(parts, topology="ring") as fed:
        admm(topology="ring", row_noise=0.2).fit(fed)
        kept = fed.local_sites()["party-1"].store[STORE]["rows"]
    assert sorted(kept) == [0, 1, 2]
    noise = kept[2] - parts.part(2)
    assert np.std(noise) == pytest.approx(0.2, rel=0.05)
    assert abs(np.mean(noise)) < 0.02


def test_a_little_noise_costs_little(X, parts):
    # The noise is of the site's own entropy, and of some draws few iterations end before all is at
    # rest: so the middle one of three counts.
    fits = [admm(row_noise=0.1, reference=X, n_iterations=30).fit(parts) for _ in range(3)]
    assert np.median([kpca.similarity_.mean() for kpca in fits]) > 0.96
    assert np.median([kpca.consensus_similarity_.mean() for kpca in fits]) > 0.99
    for kpca in fits:
        assert np.all(kpca.similarity_ <= kpca.ceiling_ + 1e-6)


@pytest.mark.parametrize("kind", ["rows", "centroids", "eigenvectors", "scores", "moments"])
def test_a_node_that_forbids_a_kind_refuses_before_anything_leaves(X, kind):
    allowed = {"rows", "centroids", "eigenvectors", "scores", "moments", "counts"} - {kind}
    policies = [None, em.Policy(allow=allowed), None, None]
    parts = em.Partitioned(rows=np.array_split(X[:80], 4), policies=policies)
    with em.federation(parts, topology="ring") as fed, fed.recording() as recording:
        with pytest.raises(PolicyRefusal, match=f"'party-1'.*'{kind}'"):
            admm(topology="ring").fit(fed)
        assert recording.ledger.floats_up == 0
    assert em.plan(admm(topology="ring"), parts).refusals == {"party-1": (kind,)}


def test_sparse_and_single_precision_rows(X):
    dense = np.array_split(X[:160], 4)
    expected = admm(topology="ring").fit(em.Partitioned(rows=dense))
    sparse = admm(topology="ring").fit(em.Partitioned(rows=[sp.csr_array(A) for A in dense]))
    np.testing.assert_allclose(sparse.eigenvalues_, expected.eigenvalues_, rtol=1e-9)
    np.testing.assert_allclose(sparse.transform(X[:9]), expected.transform(X[:9]), atol=1e-9)
    single = admm(topology="ring").fit(em.Partitioned(rows=[A.astype(np.float32) for A in dense]))
    np.testing.assert_allclose(single.eigenvalues_, expected.eigenvalues_, rtol=1e-5)


# Wrong input.


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"penalty": -1.0}, "penalty is -1.0; 'auto', 'paper', a positive number or a schedule"),
        ({"penalty": [(1, 9.0, 9.0)]}, "the first from iteration 0"),
        ({"penalty": [(0, 9.0, 9.0), (0, 9.0, 9.0)]}, "each later than the one before"),
        ({"penalty": [(0, 9.0, -9.0)]}, "with positive penalties"),
        ({"penalty": []}, "stages .iteration, own, neighbours. are expected"),
        ({"start": "cold"}, "start is 'cold'"),
        ({"unit_ball": True}, "unit_ball is True and variant is 'corrected'"),
        ({"penalty": "huge"}, "penalty is 'huge'"),
        ({"n_iterations": -1}, "n_iterations is -1; a whole number from 0"),
        ({"variant": "other"}, "variant is 'other'"),
        ({"row_noise": -0.1}, "row_noise is -0.1; a number from 0"),
        ({"tolerance": "small"}, "tolerance is 'small'"),
        ({"n_components": 0}, "n_components is 0"),
        ({"kernel": "sigmoid"}, "sigmoid"),
        ({"topology": "moebius"}, "topology 'moebius' is unknown"),
        ({"topology": None}, "topology is None; a graph is expected"),
        ({"penalty": 0.01}, "penalties of this node's constraints add up to .*use penalty='auto'"),
    ],
)
def test_wrong_parameters_are_explained(X, options, words):
    with pytest.raises(InputError, match=words):
        admm(options.pop("n_components", 1), **options).fit(nodes(X[:120], 6))


def test_a_disconnected_graph_is_refused(X):
    graph = nx.Graph([(0, 1), (2, 3)])
    with pytest.raises(TopologyError, match="2 parts.*add an edge"):
        admm(topology=graph).fit(nodes(X[:80], 4))


def test_a_federation_with_a_coordinator_is_refused(X):
    with em.federation(nodes(X[:80], 4)) as fed, pytest.raises(InputError, match="coordinator"):
        admm(topology="ring").fit(fed)


def test_columns_are_refused(X):
    with pytest.raises(InputError, match="ADMMKPCA needs rows"):
        admm(topology="ring").fit(em.split(X, 4, by="columns"))


def test_more_components_than_a_node_can_carry(X):
    with pytest.raises(RankError, match="5 components.*determine") as caught:
        em.ADMMKPCA(5, topology="ring").fit(em.Partitioned(rows=[X[:30], X[30:33], X[33:60]]))
    assert caught.value.party == "party-1"


def test_components_that_the_data_do_not_determine_get_no_similarity():
    rng = np.random.default_rng(0)
    quarter, turn = rng.normal(size=(20, 2)), np.array([[0, 1], [-1, 0]])
    turned = np.vstack(
        [quarter, quarter @ turn, -quarter, quarter @ -turn]
    )  # no direction is first
    kpca = em.ADMMKPCA(1, topology="ring", reference=turned)
    with pytest.warns(em.EigenmeshWarning, match="no similarity is given: eigenvalues 1 and 2"):
        kpca.fit(nodes(turned[rng.permutation(80)], 4))
    assert kpca.similarity_ is None
    assert kpca.trace_ is None


def test_eigenvalues_that_chance_could_have_swapped_are_noted():
    rng = np.random.default_rng(0)
    kpca = em.ADMMKPCA(1, topology="ring").fit(nodes(rng.normal(size=(120, 3)), 6))
    assert any("may not be determined" in note for note in kpca.report_.notes)


@pytest.mark.filterwarnings("ignore:z of .* nodes still moves")
def test_one_row_a_node():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(8, 3)) * [5, 1, 1]
    kpca = em.ADMMKPCA(1, topology=LATTICE, kernel="rbf", gamma=0.01, reference=X).fit(nodes(X, 8))
    assert np.isfinite(kpca.transform(X)).all()
    assert kpca.consensus_similarity_.mean() > 0.9


# Files and engines.


def test_saved_with_every_nodes_model(X, fitted, tmp_path):
    path = tmp_path / "model.em"
    fitted.save(path, parties=True)
    loaded = em.load(path)
    np.testing.assert_array_equal(loaded.transform(X), fitted.transform(X))
    assert list(loaded.node_models_) == list(fitted.nodes_)
    for name in ("party-0", "party-7"):
        ours, theirs = loaded.node_models_[name], fitted.node_models_[name]
        np.testing.assert_array_equal(ours.local.transform(X), theirs.local.transform(X))
    np.testing.assert_array_equal(loaded.trace_, fitted.trace_)
    assert loaded.topology == LATTICE
    assert loaded.reference is None
    fitted.save(tmp_path / "alone.em")
    assert em.load(tmp_path / "alone.em").node_models_ == {}


@pytest.mark.filterwarnings("ignore:z of .* nodes still moves")
def test_where_no_site_is_at_hand_the_first_node_is_asked(X):
    parts = nodes(X[:120], 4)
    here = admm(topology="ring", n_iterations=2).fit(parts)
    with em.federation(parts, topology="ring") as fed:
        fed.local_sites = dict
        there = admm(topology="ring", n_iterations=2).fit(fed)
    np.testing.assert_array_equal(there.transform(X), here.transform(X))
    assert there.node_models_ == {}
    assert "ModelHolder.tell_row_model" in there.report_.by_step
    policies = [em.Policy(allow=KINDS - {"eigenvectors"}), None, None, None]
    strict = em.Partitioned(rows=parts.parts, policies=policies)
    assert em.plan(admm(topology="ring"), strict).refusals == {"party-0": ("eigenvectors",)}


@pytest.mark.filterwarnings("ignore:z of .* nodes still moves")
def test_same_answer_every_time(X, parts):
    runs = [admm(n_iterations=3).fit(parts).transform(X) for _ in range(2)]
    np.testing.assert_array_equal(*runs)


def test_too_many_rows_for_a_node_are_refused(X, monkeypatch):
    monkeypatch.setattr("eigenmesh.graphs.node_models.MOST_ROWS", 100)
    with pytest.raises(InputError, match="knows 120 rows; at most 100"):
        admm(topology="ring").fit(nodes(X[:160], 4))
    with pytest.raises(InputError, match="knows 160 rows; at most 100"):
        em.GossipKPCA(1).fit(X[:160])


@pytest.mark.filterwarnings("ignore:z of .* nodes still moves")
def test_graph_of_names(X, tmp_path):
    parts = em.Partitioned(rows=np.array_split(X[:80], 4), names=["n", "e", "s", "w"])
    graph = nx.cycle_graph(["n", "e", "s", "w"])
    kpca = admm(topology=graph, n_iterations=2).fit(parts)
    assert kpca.nodes_ == ("n", "e", "s", "w")
    assert build_graph(graph, parts.names).degree(0) == 2
    kpca.save(tmp_path / "model.em")
    loaded = em.load(tmp_path / "model.em")
    assert nx.utils.graphs_equal(loaded.topology, graph)


class PrintedPeer:
    """A node of Algorithm 1, line by line, on rows whose features are their columns."""

    def __init__(self, X, w, members):
        self.X, self.w = X, w
        self.P = X.T @ np.linalg.pinv(X @ X.T, rcond=1e-10, hermitian=True) @ X
        self.eta = {n: np.zeros_like(w) for n in members}


def printed(blocks, starts, n_iterations, penalties, is_ball):
    """w of every node of a ring after every iteration; `penalties(t)` are ρ of itself and others.

    With the ball (11) as printed; without it z gets unit length always.
    """
    J = len(blocks)
    near = [sorted({(j - 1) % J, j, (j + 1) % J}) for j in range(J)]
    peers = [
        PrintedPeer(X, w, near[j]) for j, (X, w) in enumerate(zip(blocks, starts, strict=True))
    ]
    for t in range(n_iterations):
        own, others = penalties(t)
        rho = [{n: own if n == j else others for n in near[j]} for j in range(J)]
        z = []
        for j in range(J):  # (10), (11)
            parts = [peers[n].P @ peers[n].eta[j] + rho[j][n] * peers[n].w for n in near[j]]
            mean = sum(parts) / sum(rho[j].values())
            length = np.linalg.norm(mean)
            z.append(mean / max(length, 1.0) if is_ball else mean / length)
        for j, peer in enumerate(peers):
            K = peer.X @ peer.X.T
            right = sum(peer.X @ (rho[j][n] * z[n] - peer.eta[n]) for n in near[j])
            inverse = np.linalg.pinv(sum(rho[j].values()) * K - 2 * K @ K, rcond=1e-10)
            peer.w = peer.X.T @ (inverse @ right)  # (12)
            for n in near[j]:
                peer.eta[n] = peer.eta[n] + rho[j][n] * (peer.w - peer.P @ z[n])  # (13)
    return [peer.w for peer in peers]


@pytest.mark.filterwarnings("ignore::eigenmesh.errors.EigenmeshWarning")
@pytest.mark.parametrize("is_ball", [True, False])
def test_algorithm_1_as_printed(is_ball):
    """Random starts, ‖z‖ ≤ 1, penalties that change on the way: w of the text's own formulas."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(20, 6)) * [1.5, 1, 1, 0.5, 0.5, 0.5] / 4
    parts = nodes(X, 5)
    schedule = [(0, 30.0, 4.0), (2, 25.0, 9.0)]
    options = {"variant": "paper", "start": "random", "unit_ball": is_ball, "penalty": schedule}
    options |= {"topology": "ring", "center": False, "random_state": 7}

    def directions(n_iterations):
        kpca = em.ADMMKPCA(1, n_iterations=n_iterations, **options).fit(parts)
        assert kpca.penalty_ is None
        w = [model.local.transform(np.eye(6))[:, 0] for model in kpca.node_models_.values()]
        return np.array(w)

    starts = directions(0)
    np.testing.assert_allclose(np.linalg.norm(starts, axis=1), 1.0)
    assert abs(starts[0] @ starts[1]) < 0.99
    for T in (1, 4):
        expected = printed(
            parts.parts, starts, T, lambda t: (30.0, 4.0) if t < 2 else (25.0, 9.0), is_ball
        )
        for w, truth in zip(directions(T), expected, strict=True):
            cosine = w @ truth / np.linalg.norm(truth)
            assert abs(cosine) == pytest.approx(1.0, abs=1e-9)


@pytest.mark.filterwarnings("ignore:z of .* nodes still moves")
def test_every_iteration_of_every_node_and_component(X):
    few = {"topology": "ring", "reference": X[:120], "n_iterations": 3}
    kpca = admm(2, **few).fit(nodes(X[:120], 4))
    assert kpca.history_.shape == (4, 4, 2, 2)
    assert np.all(np.diff(kpca.history_, axis=-1) <= 0)  # cosines, the largest first
    np.testing.assert_allclose(np.mean(kpca.history_[-1, :, 0] ** 2, axis=-1), kpca.similarity_)
    np.testing.assert_allclose(
        np.mean(kpca.history_**2, axis=(1, 3)), kpca.trace_, err_msg="means over the nodes"
    )
    short = admm(2, **(few | {"n_iterations": 1})).fit(nodes(X[:120], 4))
    np.testing.assert_allclose(short.history_, kpca.history_[:2], atol=1e-12)
