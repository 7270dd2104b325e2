"""VFedAKPCA without a coordinator: every node ends with central kernel PCA, and the same one."""

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_wine
from sklearn.decomposition import KernelPCA
from sklearn.preprocessing import StandardScaler

import eigenmesh as em
from eigenmesh.engines.faulty import Fault
from eigenmesh.errors import PolicyRefusal, RankError, TopologyError
from eigenmesh.metrics import aligned_error, sin_theta
from eigenmesh.numerics.mixing import MixingSpectrum

pytestmark = pytest.mark.filterwarnings("ignore::eigenmesh.errors.EigenmeshWarning")

WINE = StandardScaler().fit_transform(load_wine().data)[::3]
TRAIN, NEW = WINE[:50], WINE[50:]
KERNELS = {
    "rbf": {"gamma": 0.05},
    "poly": {"gamma": 0.1, "degree": 3, "coef0": 1.0},
    "sigmoid": {"gamma": 0.02, "coef0": 0.1},
    "laplacian": {"gamma": 0.02},
}
ACCOUNT = ("floats_up", "floats_down", "rounds", "by_party", "by_step", "reveals")


@pytest.mark.parametrize("topology", ["ring", "star", "grid", "full", nx.path_graph(6)], ids=str)
@pytest.mark.parametrize("kernel", ["rbf", "poly"])
def test_all_nodes_have_central_kernel_pca(topology, kernel):
    parts = em.split(TRAIN, 6, by="columns")
    model = em.VFedAKPCA(3, kernel=kernel, topology=topology, **KERNELS[kernel]).fit(parts)
    pooled = KernelPCA(3, kernel=kernel, eigen_solver="dense", **KERNELS[kernel]).fit(TRAIN)
    assert model.node_vectors_.shape == (6, 50, 3)
    for vectors in model.node_vectors_:
        assert sin_theta(vectors, pooled.eigenvectors_) < 1e-8
        assert np.abs(vectors - model.node_vectors_[0]).max() < 1e-8
    np.testing.assert_allclose(model.eigenvalues_, pooled.eigenvalues_, rtol=1e-8)
    assert aligned_error(model.transform(NEW), pooled.transform(NEW)) < 1e-8


# An indefinite kernel has no landmarks.
@pytest.mark.parametrize(
    ("kernel", "landmarks"),
    [(k, q) for k in KERNELS for q in (None, 20) if (k, q) != ("sigmoid", 20)],
)
@pytest.mark.parametrize("center", [True, False])
def test_equals_the_form_with_a_coordinator_to_the_float(kernel, center, landmarks):
    options = {"kernel": kernel, "center": center, "n_landmarks": landmarks, **KERNELS[kernel]}
    parts = em.split(TRAIN, 4, by="columns")
    centre = em.VFedAKPCA(2, **options).fit(parts)
    peers = em.VFedAKPCA(2, topology="ring", **options)
    forecast = em.plan(peers, parts)
    peers.fit(parts)
    np.testing.assert_allclose(peers.eigenvalues_, centre.eigenvalues_, rtol=1e-9)
    np.testing.assert_allclose(peers.eigenvectors_, centre.eigenvectors_, atol=1e-8)
    np.testing.assert_allclose(peers.transform(NEW), centre.transform(NEW), atol=1e-8)
    np.testing.assert_allclose(peers.residual_, centre.residual_, rtol=1e-7)
    for field in ACCOUNT:
        assert getattr(forecast, field) == getattr(peers.report_, field), field


def test_traffic_is_every_pair_in_every_mix_or_over_every_link_of_a_tree_and_back():
    n, p = len(TRAIN), 5
    parts = em.split(TRAIN, p, by="columns")
    with pytest.warns(em.CostWarning, match=r"take a coordinator \(topology=None\)"):
        peers = em.VFedAKPCA(2, gamma=0.05, topology="ring", averaging="gossip")
        report = peers.fit(parts).report_
    ring = nx.cycle_graph(p)
    answer = 4 + 2 * 2 + n * 2 + n + 1
    mixes = MixingSpectrum.of(ring).mixes()
    expected = 2 * p * (mixes * n * (n - 1) // 2 + nx.diameter(ring) * answer) + p * answer
    assert (report.floats_up, report.floats_down) == (expected, 0)
    report = peers.set_params(averaging="tree").fit(parts).report_
    expected = (p - 1) * (n * (n - 1) + answer) + p * answer
    assert (report.floats_up, report.floats_down) == (expected, 0)


def test_no_columns_leave_a_node_and_what_leaves_is_told():
    parts = em.split(TRAIN, 4, by="columns")
    report = em.VFedAKPCA(2, gamma=0.05, topology="ring").fit(parts).report_
    assert set(report.reveals["party-0"]) == {"counts", "distances", "eigenvectors", "hashes"}
    report = em.VFedAKPCA(2, kernel="poly", topology="ring").fit(parts).report_
    assert set(report.reveals["party-0"]) == {"counts", "gram", "eigenvectors", "hashes"}


def test_a_node_that_forbids_distances_refuses():
    policies = [None, em.Policy(allow={"counts", "eigenvectors", "hashes"}), None]
    parts = em.split(TRAIN, 3, by="columns", policies=policies)
    with pytest.raises(PolicyRefusal, match="party-1.*distances"):
        em.VFedAKPCA(2, gamma=0.05, topology="ring").fit(parts)


def test_standardising_filling_sparse_columns_and_saving(tmp_path):
    X = TRAIN * 7 + 3
    X[3, 2] = X[11, 9] = np.nan
    options = {"standardize": True, "fill_missing": 0.1, "gamma": 0.05}
    parts = em.split(X, 3, by="columns", allow_missing=True)
    centre = em.VFedAKPCA(2, **options).fit(parts)
    peers = em.VFedAKPCA(2, topology="full", **options).fit(parts)
    np.testing.assert_allclose(peers.transform(X[:9]), centre.transform(X[:9]), atol=1e-8)
    peers.save(tmp_path / "m.em", parties=True)
    np.testing.assert_array_equal(em.load(tmp_path / "m.em").transform(X), peers.transform(X))
    sparse = em.split(sp.csr_array(np.where(TRAIN > 0, TRAIN, 0.0)), 3, by="columns")
    found = em.VFedAKPCA(2, gamma=0.05, topology="full").fit(sparse)
    expected = em.VFedAKPCA(2, gamma=0.05).fit(sparse)
    np.testing.assert_allclose(found.eigenvectors_, expected.eigenvectors_, atol=1e-8)


def test_the_front_door_takes_it_on_a_graph():
    parts = em.split(TRAIN, 4, by="columns")
    door = em.KernelPCA(2, kernel="rbf", gamma=0.05, topology="ring")
    forecast = em.plan(door, parts)
    door.fit(parts)
    assert door.method_.startswith("vfed-akpca: 4 parties hold columns; neighbours average")
    assert forecast.floats_up == door.report_.floats_up
    pooled = KernelPCA(2, kernel="rbf", gamma=0.05).fit(TRAIN)
    assert aligned_error(door.transform(NEW), pooled.transform(NEW)) < 1e-8


# Faults.


@pytest.mark.parametrize("round_", [1, 2, 3, 4, 5, 6])
def test_a_node_that_leaves_gives_the_kernel_of_the_remaining_columns(round_):
    lost = ("party-0", "party-3")[round_ % 2]
    blocks = dict(zip([f"party-{i}" for i in range(4)], np.array_split(TRAIN, 4, 1), strict=True))
    parts = em.Partitioned(columns=list(blocks.values()))
    faults = [Fault("kill", lost, round_)]
    options = {"topology": "full", "on_loss": "survivors"}
    with em.federation(parts, faults=faults, **options) as fed:
        with pytest.warns(em.EigenmeshWarning, match=f"'{lost}' has left"):
            model = em.VFedAKPCA(2, gamma=0.05, topology="full").fit(fed)
    rest = np.hstack([block for name, block in blocks.items() if name != lost])
    pooled = KernelPCA(2, kernel="rbf", gamma=0.05, eigen_solver="dense").fit(rest)
    assert model.model_.parties == tuple(name for name in blocks if name != lost)
    np.testing.assert_allclose(model.eigenvalues_, pooled.eigenvalues_, rtol=1e-8)
    for vectors in model.node_vectors_:
        assert sin_theta(vectors, pooled.eigenvectors_) < 1e-8
    assert lost in str(model.report_)


def test_messages_that_get_lost_do_not_move_the_answer():
    parts = em.split(TRAIN, 4, by="columns")
    faults = [Fault("lose", "party-2", round=r) for r in (4, 6, 9)]
    options = {"topology": "ring", "averaging": "gossip", "on_loss": "reuse"}
    with em.federation(parts, **options, faults=faults) as fed:
        model = em.VFedAKPCA(2, gamma=0.05, topology="ring").fit(fed)
    pooled = KernelPCA(2, kernel="rbf", gamma=0.05, eigen_solver="dense").fit(TRAIN)
    assert sin_theta(model.eigenvectors_, pooled.eigenvectors_) < 1e-8
    assert sum(model.report_.reused.values()) + sum(model.report_.dropped.values()) == 3 * 2


def test_disconnected_graphs_and_too_many_components_are_refused():
    parts = em.split(TRAIN, 4, by="columns")
    with pytest.raises(TopologyError, match=r"'party-0', 'party-1' cannot reach the rest"):
        em.VFedAKPCA(2, gamma=0.05, topology=nx.Graph([(0, 1), (2, 3)])).fit(parts)
    with pytest.raises(RankError, match="50 components"):
        em.VFedAKPCA(50, gamma=0.05, topology="ring").fit(parts)
