"""VFedPCA and VFedAKPCA as their paper has them: Algorithms 1 to 5, against a direct transcript."""

import networkx as nx
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_wine
from sklearn.metrics.pairwise import pairwise_kernels

import eigenmesh as em
from eigenmesh.methods.vfed.paper_maths import merge_weights, merged, power_iterations
from eigenmesh.metrics import sin_theta

pytestmark = pytest.mark.filterwarnings("ignore::eigenmesh.errors.EigenmeshWarning")

WINE = load_wine().data / load_wine().data.std(axis=0)
BREAST = load_breast_cancer().data[:200]
BREAST = BREAST / BREAST.std(axis=0)


def apart(u, v):
    return min(np.linalg.norm(u - v), np.linalg.norm(u + v))


def transcript(blocks, rounds, kernel=None, equal=False, scaling=False):
    """Algorithms 2 and 4 with eq. (14) applied to the columns as printed; local vectors exact."""
    vectors = []
    for _ in range(rounds):
        local, alphas = [], []
        for B in blocks:
            A = B @ B.T / B.shape[1] if kernel is None else kernel(B)
            values, V = np.linalg.eigh(A)
            top = np.argmax(np.abs(values))
            local.append(V[:, top])
            alphas.append(values[top])
        alphas = np.abs(alphas)
        weights = np.full(len(blocks), 1 / len(blocks)) if equal else alphas / alphas.sum()
        if scaling:
            eta = weights.mean()
            first = np.argsort(-alphas, kind="stable")[: len(blocks) // 2]
            factor = np.full(len(blocks), 1 - eta)
            factor[first] = 1 + eta
            weights = weights * factor
        signs = best_signs(local, weights)
        u = sum(w * s * a for w, s, a in zip(weights, signs, local, strict=True))
        u = u / np.linalg.norm(u)
        vectors.append(u)
        updated = []
        for B in blocks:
            M = (B.T @ u)[:, None]
            updated.append(B @ (M @ M.T) / np.linalg.norm(M @ M.T))
        blocks = updated
    return vectors


def best_signs(local, weights):
    """The signs of the leading direction of the weighted vectors, by a singular value problem."""
    W = np.array(local).T * np.sqrt(weights)
    right = np.linalg.svd(W, full_matrices=False)[2][0]
    return np.where(right < 0, -1.0, 1.0)


@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("parties", [3, 5])
@pytest.mark.parametrize("options", [{}, {"merge": "average"}, {"weight_scaling": True}])
def test_is_the_papers_algorithm(center, parties, options):
    blocks = np.array_split(BREAST, parties, axis=1)
    model = em.VFedPCA(
        1, variant="paper", center=center, n_rounds=4, local_iterations=300, **options
    ).fit(em.Partitioned(columns=blocks))
    centred = [B - B.mean(0) * center for B in blocks]
    expected = transcript(centred, 4, equal="merge" in options, scaling="weight_scaling" in options)
    for ours, theirs in zip(model.history_, expected, strict=True):
        assert apart(ours, theirs) < 1e-8


@pytest.mark.parametrize("X", [WINE, BREAST], ids=["wine", "breast"])
@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("warm_start", [True, False])
def test_freezes_after_the_second_round(X, center, warm_start):
    model = em.VFedPCA(1, variant="paper", center=center, warm_start=warm_start)
    model.fit(em.split(X, 5, by="columns"))
    assert np.linalg.norm(model.history_[1] - model.history_[9]) < 1e-12
    assert (model.convergence_[2:] < 1e-12).all()
    exact = np.linalg.svd(X - X.mean(0) * center)[0][:, :1]
    assert sin_theta(model.eigenvectors_, exact) > 1e-4  # for ever


def test_warns_that_it_freezes_and_says_so_in_the_report():
    parts = em.split(WINE, 3, by="columns")
    with pytest.warns(em.EigenmeshWarning, match="does not move after the second round"):
        model = em.VFedPCA(1, variant="paper").fit(parts)
    assert "variant='exact' is" in str(model.report_)


def test_signs_must_be_aligned_on_centred_data():
    parts = em.split(BREAST, 10, by="columns")
    exact = np.linalg.svd(BREAST - BREAST.mean(0))[0][:, 0]
    errors = {
        align: [
            apart(
                em.VFedPCA(1, variant="paper", align_signs=align, random_state=seed)
                .fit(parts)
                .eigenvectors_[:, 0],
                exact,
            )
            for seed in range(4)
        ]
        for align in (True, False)
    }
    assert max(errors[True]) < 0.5 * max(errors[False])


def test_several_components_by_deflation_are_orthonormal_and_poor():
    model = em.VFedPCA(4, variant="paper").fit(em.split(BREAST, 5, by="columns"))
    U = model.eigenvectors_
    np.testing.assert_allclose(U.T @ U, np.eye(4), atol=1e-8)
    exact = np.linalg.svd(BREAST - BREAST.mean(0))[0][:, :4]
    ours = em.VFedPCA(4).fit(em.split(BREAST, 5, by="columns"))
    assert sin_theta(U, exact) > 0.05
    assert sin_theta(ours.eigenvectors_, exact) < 1e-8
    X = BREAST - BREAST.mean(0)
    captured = np.einsum("ij,ij->j", U, X @ (X.T @ U))
    np.testing.assert_allclose(model.eigenvalues_, captured, rtol=1e-10)


def test_scores_of_new_samples_are_those_of_its_vectors():
    model = em.VFedPCA(2, variant="paper").fit(em.split(BREAST[:150], 3, by="columns"))
    mean = BREAST[:150].mean(0)
    L = (BREAST[:150] - mean).T @ model.eigenvectors_ / np.sqrt(model.eigenvalues_)
    np.testing.assert_allclose(model.transform(BREAST[150:]), (BREAST[150:] - mean) @ L, atol=1e-8)


@pytest.mark.parametrize(("k", "rounds"), [(1, 2), (1, 10), (3, 4)])
def test_floats_are_one_vector_up_and_down_a_round_and_the_variance_at_the_end(k, rounds):
    parts = em.split(WINE, 4, by="columns")
    model = em.VFedPCA(k, variant="paper", n_rounds=rounds)
    forecast = em.plan(model, parts)
    report = model.fit(parts).report_
    n, p = len(WINE), 4
    assert report.floats_down == p * k * rounds * n
    assert report.floats_up == p * (k * rounds * n + k)
    for field in ("floats_up", "floats_down", "rounds", "by_party", "by_step", "reveals"):
        assert getattr(forecast, field) == getattr(report, field), field


# Graphs.


def test_on_a_full_graph_it_is_the_form_with_a_coordinator():
    parts = em.split(BREAST, 4, by="columns")
    centre = em.VFedPCA(1, variant="paper").fit(parts)
    peers = em.VFedPCA(1, variant="paper", topology="full").fit(parts)
    for vectors in peers.node_vectors_:
        assert apart(vectors[:, 0], centre.eigenvectors_[:, 0]) < 1e-10


@pytest.mark.parametrize("topology", ["ring", "star", nx.path_graph(6)], ids=str)
def test_neighbours_that_merge_once_a_round_do_not_agree(topology):
    parts = em.split(BREAST, 6, by="columns")
    with pytest.warns(em.EigenmeshWarning, match="the nodes do not agree"):
        model = em.VFedPCA(1, variant="paper", topology=topology).fit(parts)
    spread = max(apart(v[:, 0], model.node_vectors_[0][:, 0]) for v in model.node_vectors_)
    assert spread > 1e-3
    assert model.node_vectors_.shape == (6, 200, 1)


def test_traffic_on_a_ring_is_a_vector_an_edge_and_direction():
    report = em.VFedPCA(1, variant="paper", n_rounds=5, topology="ring").fit(
        em.split(WINE, 4, by="columns")
    )
    told = 4 * (178 + 1 + 5)  # every node's vector, variance and trace, to whoever asks
    assert report.report_.floats_up == 5 * 8 * 178 + told


@pytest.mark.parametrize("topology", [None, "full", "ring", "star"])
@pytest.mark.parametrize("merge", ["weighted", "isolated"])
@pytest.mark.parametrize("estimator", [em.VFedPCA(2), em.VFedAKPCA(2, gamma="median")], ids=repr)
def test_traffic_is_planned_to_the_float(topology, merge, estimator):
    parts = em.split(WINE[:40], 4, by="columns")
    model = clone(estimator)
    model.set_params(variant="paper", topology=topology, merge=merge, n_rounds=3)
    forecast, report = em.plan(model, parts), model.fit(parts).report_
    for field in ("floats_up", "floats_down", "rounds", "by_party", "by_step", "reveals"):
        assert getattr(forecast, field) == getattr(report, field), field


def test_isolated_parties_have_vectors_of_their_own():
    blocks = np.array_split(BREAST, 3, axis=1)
    with pytest.warns(em.EigenmeshWarning, match="isolated"):
        model = em.VFedPCA(1, variant="paper", merge="isolated", local_iterations=300).fit(
            em.Partitioned(columns=blocks)
        )
    for B, vectors in zip(blocks, model.node_vectors_, strict=True):
        own = np.linalg.svd(B - B.mean(0))[0][:, 0]
        assert apart(own, vectors[:, 0]) < 1e-8


# Kernels.

KERNELS = {
    "rbf": {"gamma": 0.05},
    "poly": {"gamma": 0.1, "degree": 2, "coef0": 1.0},
    "sigmoid": {"gamma": -0.02, "coef0": 0.5},
    "laplacian": {"gamma": 0.02},
}


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("center", [True, False])
def test_kernel_form_merges_the_local_kernel_matrices(name, center):
    blocks = np.array_split(BREAST[:80], 3, axis=1)

    def local(B):
        K = pairwise_kernels(B, metric=name, **KERNELS[name])
        return K - K.mean(0) - K.mean(1)[:, None] + K.mean() if center else K

    model = em.VFedAKPCA(
        1, variant="paper", kernel=name, **KERNELS[name], center=center, n_rounds=3,
        local_iterations=500,
    ).fit(em.Partitioned(columns=blocks))  # fmt: skip
    for ours, theirs in zip(model.history_, transcript(blocks, 3, local), strict=True):
        assert apart(ours, theirs) < 1e-6


def test_the_papers_input_space_projection_stays_with_the_owners():
    parts = em.split(BREAST, 3, by="columns", names=["a", "b", "c"])
    model = em.VFedAKPCA(2, variant="paper", gamma=0.05, center=False).fit(parts)
    found = list(model.input_projection())
    order = [int(np.argmax(np.abs(v @ model.eigenvectors_))) for v in _as_vectors(model)]
    expected = np.array([model.eigenvectors_[:, j] @ BREAST for j in order])
    for Z, V in zip(found, expected, strict=True):
        assert min(np.abs(Z - V).max(), np.abs(Z + V).max()) < 1e-8
    np.testing.assert_array_equal(model.input_projection("b"), np.array(found)[:, 10:20])
    with pytest.raises(em.EigenmeshError, match="variant='paper'"):
        em.VFedAKPCA(2, gamma=0.05).fit(parts).input_projection()


def _as_vectors(model):
    return model._share("a").vectors.T


@pytest.mark.parametrize("center", [True, False])
def test_kernel_scores_are_of_the_sum_of_the_local_kernels(center):
    blocks = np.array_split(BREAST[:80], 3, axis=1)
    model = em.VFedAKPCA(1, variant="paper", gamma=0.05, center=center)
    model.fit(em.Partitioned(columns=blocks))
    K = sum(pairwise_kernels(B, metric="rbf", gamma=0.05) for B in blocks)
    if center:
        K = K - K.mean(0) - K.mean(1)[:, None] + K.mean()
    u = model.eigenvectors_[:, 0]
    assert model.eigenvalues_[0] == pytest.approx(u @ K @ u)
    scores = model.transform(BREAST[:80])[:, 0]
    np.testing.assert_allclose(scores, K @ u / np.sqrt(u @ K @ u), atol=1e-8)


def test_a_saved_model_of_the_papers_gives_the_same_scores(tmp_path):
    parts = em.split(BREAST, 3, by="columns")
    for model in (em.VFedPCA(2, variant="paper"), em.VFedAKPCA(2, variant="paper", gamma=0.05)):
        model.fit(parts).save(tmp_path / "m.em", parties=True)
        loaded = em.load(tmp_path / "m.em")
        np.testing.assert_array_equal(loaded.transform(parts), model.transform(parts))
        np.testing.assert_array_equal(loaded.history_, model.history_)


def test_a_party_that_leaves_is_named_and_the_others_go_on():
    from eigenmesh.engines.faulty import Fault

    faults = [Fault("kill", "party-1", round=4)]
    parts = em.split(BREAST, 3, by="columns")
    with em.federation(parts, faults=faults, on_loss="survivors") as fed:
        with pytest.warns(em.EigenmeshWarning, match="'party-1' has left"):
            model = em.VFedPCA(1, variant="paper").fit(fed)
    assert model.model_.parties == ("party-0", "party-2")
    with em.federation(parts, faults=faults) as fed:
        with pytest.raises(em.EigenmeshError, match="party-1"):
            em.VFedPCA(1, variant="paper").fit(fed)


# The pieces.


def test_power_iterations_of_zeros_keep_the_start():
    a, alpha = power_iterations(lambda v: 0 * v, np.array([3.0, 4.0]), 5)
    assert a.tolist() == [0.6, 0.8]
    assert alpha == 0.0


def test_weights_sum_to_one_and_fall_back_to_equal_ones():
    assert merge_weights(np.array([3.0, -1.0]), False, False).tolist() == [0.75, 0.25]
    assert merge_weights(np.zeros(4), False, False).tolist() == [0.25] * 4
    assert merge_weights(np.array([3.0, 1.0]), True, False).tolist() == [0.5, 0.5]


def test_vectors_that_cancel_give_the_heaviest():
    vectors = np.array([[1.0, 0.0], [-1.0, 0.0]])
    assert abs(merged(vectors, np.array([0.5, 0.5]), align=False)).tolist() == [1.0, 0.0]


def densities(seed, n=200, m=1000):
    """The paper's "mixture of Gaussians": densities of uniform draws, column by column."""
    rng = np.random.default_rng(seed)
    mean, width = rng.integers(0, m + 1, m), rng.integers(1, m + 1, m)
    x = rng.uniform(mean - 3 * width, mean + 3 * width, size=(n, m))
    return np.exp(-((x - mean) ** 2) / (2.0 * width**2)) / (np.sqrt(2 * np.pi) * width)


@pytest.mark.parametrize("seed", range(3))
def test_curves_are_those_of_the_printed_algorithm_at_the_default_settings(seed):
    """Distance to the pooled vector by round, against exact local vectors: within 10 %."""
    X = densities(seed)
    exact = np.linalg.svd(X, full_matrices=False)[0][:, 0]
    model = em.VFedPCA(1, variant="paper", center=False).fit(em.split(X, 10, by="columns"))
    expected = [apart(u, exact) for u in transcript(np.array_split(X, 10, axis=1), 3)]
    found = [apart(u, exact) for u in model.history_]
    np.testing.assert_allclose(found[:3], expected, rtol=0.1)
    np.testing.assert_allclose(found[2:], expected[2], rtol=0.1)
