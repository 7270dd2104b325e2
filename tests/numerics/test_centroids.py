"""Centroids: nodes of one tree, of enough rows each, as good as those of k-means."""

import warnings
from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import pairwise_distances_argmin_min

from eigenmesh.numerics import centroids as module
from eigenmesh.numerics.centroids import CentroidTree, centroids, most_centroids, part_sizes

DIGITS = load_digits().data / 16
WIDE = np.hstack([DIGITS, DIGITS[:, ::-1], DIGITS**2])  # so wide that a sketch comes first


def drawn_by(seed):
    return lambda part: np.random.default_rng([seed, part])


def tree_of(rows, least, seed=0):
    return CentroidTree(rows, least, np.random.default_rng(seed))


def members(tree, node):
    return frozenset(tree._order[node.start : node.stop].tolist())


@pytest.fixture
def nodes_given(monkeypatch):
    """The rows of each node whose mean is given, as sets of their numbers in all the data."""
    given, parts = [], []
    chosen, means = module._rows_of, CentroidTree.means

    def spy_rows(*args):
        parts.append(chosen(*args))
        return parts[-1]

    def spy_means(tree, nodes):
        given.extend(frozenset(parts[-1][list(members(tree, node))].tolist()) for node in nodes)
        return means(tree, nodes)

    monkeypatch.setattr(module, "_rows_of", spy_rows)
    monkeypatch.setattr(CentroidTree, "means", spy_means)
    return given


@pytest.mark.parametrize("count", [1, 10, 60])
@pytest.mark.parametrize("least", [1, 5, 25])
@pytest.mark.parametrize(
    "rows", [DIGITS, WIDE, sp.csr_array(WIDE)], ids=["narrow", "wide", "sparse"]
)
def test_centroids_are_means_of_disjoint_rows_and_enough_of_them(count, least, rows, nodes_given):
    centres = centroids(rows, count, least, drawn_by(0))
    assert len(centres) == len(nodes_given) == min(count, rows.shape[0] // least)
    assert min(map(len, nodes_given)) >= least
    assert len(frozenset().union(*nodes_given)) == sum(map(len, nodes_given))
    dense = rows.toarray() if sp.issparse(rows) else rows
    means = np.array([dense[sorted(node)].mean(axis=0) for node in nodes_given])
    np.testing.assert_allclose(centres, means[np.lexsort(means.T[::-1])], atol=1e-12)


def random_rows(rng):
    n, d = int(rng.integers(1, 400)), int(rng.integers(1, 8))
    X = rng.normal(size=(n, d)) * rng.pareto(1.5, size=(n, 1))
    return X if rng.random() < 0.7 else np.round(X)  # with rows that are equal


@pytest.mark.parametrize("seed", range(20))
def test_there_are_as_many_leaves_as_there_can_be_and_cuts_are_nested(seed):
    rng = np.random.default_rng(seed)
    X, least = random_rows(rng), int(rng.integers(1, 9))
    most = len(X) // least
    cuts = []
    for count in sorted({*rng.integers(1, most + 2, size=6).tolist(), most}) if most else []:
        tree = tree_of(X, least, seed)
        nodes = [members(tree, node) for node in tree.cut(count)]
        assert len(nodes) == min(count, most)
        assert min(map(len, nodes)) >= least
        assert sorted(row for node in nodes for row in node) == list(range(len(X)))
        cuts.append(nodes)
    for coarse, fine in pairwise(cuts):
        assert all(sum(node <= above for above in coarse) == 1 for node in fine)


@pytest.mark.parametrize("seed", range(10))
def test_cuts_with_larger_nodes_are_of_the_same_tree(seed):
    rng = np.random.default_rng(seed)
    X, least = random_rows(rng), int(rng.integers(1, 6))
    tree = tree_of(X, least, seed)
    leaves = [members(tree, node) for node in tree.cut(len(X))]
    for fewest in rng.integers(least, 30, size=4):
        nodes = [members(tree, node) for node in tree.cut(len(X), fewest)]
        assert sorted(row for node in nodes for row in node) == list(range(len(X)))
        assert min(map(len, nodes)) >= min(fewest, len(X))
        assert all(sum(leaf <= node for node in nodes) == 1 for leaf in leaves)


@pytest.mark.parametrize("seed", range(10))
def test_a_refinement_has_one_side_of_every_further_split(seed):
    rng = np.random.default_rng(seed)
    X, least = random_rows(rng), int(rng.integers(1, 6))
    most = len(X) // least
    before = int(rng.integers(1, max(most, 2)))
    count = max(most - before, 0)
    tree = tree_of(X, least, seed)
    first, more = tree.cut(before), tree.refinement(before, count)
    assert len(more) == count
    coarse = [members(tree, node) for node in first]
    finer = [members(tree, node) for node in more]
    assert len({*coarse, *finer}) == before * bool(most) + count
    leaves = [members(tree, node) for node in tree.cut(before + count)]
    for node in finer:
        assert any(node < above for above in coarse)
        assert frozenset().union(*(leaf for leaf in leaves if leaf <= node)) == node


@pytest.mark.parametrize("n", [30, 2047, 2048, 7000, 40_000])
def test_all_that_is_ever_given_are_sums_of_leaves(n, nodes_given):
    """Any two nodes are apart, or one is in the other: nothing smaller than a leaf can be told."""
    rng = np.random.default_rng(n)
    X = rng.normal(size=(n, 3)) * rng.pareto(1.5, size=(n, 1))
    for count in rng.integers(1, min(most_centroids(n), 300) + 1, size=12).tolist():
        centroids(X, count, 5, drawn_by(1))
        centroids(X, count, 5, drawn_by(1), before=count)
    nodes = sorted(set(nodes_given), key=len)
    assert len(nodes) > 5
    for place, node in enumerate(nodes):
        assert len(node) >= 5
        row = next(iter(node))  # of larger ones with one of its rows, each must have all of them
        assert all(node <= above for above in nodes[place + 1 :] if row in above)
        others = frozenset().union(*(inner for inner in nodes[:place] if inner < node))
        assert len(node - others) == 0 or len(node - others) >= 5


def test_parts_of_a_large_set_have_no_row_in_common():
    for n in (10, 2048, 10_000, 123_456):
        parts = [module._rows_of(i, n, drawn_by(3)) for i in range(len(part_sizes(n)))]
        assert [len(part) for part in parts] == part_sizes(n)
        assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(n))
        assert most_centroids(n) >= (n // 2) // 5


def test_rows_that_cluster_badly_still_give_enough_of_each(nodes_given):
    rng = np.random.default_rng(0)
    A = np.vstack([rng.normal(size=(390, 3)), 50 + 10 * rng.normal(size=(10, 3))])
    assert len(centroids(A, 20, 5, drawn_by(0))) == 20
    assert min(map(len, nodes_given)) >= 5


def test_equal_rows_are_no_trouble():
    rows = np.ones((100, 2))
    np.testing.assert_array_equal(centroids(rows, 4, 5, drawn_by(0)), np.ones((4, 2)))
    wide = np.ones((100, 300), np.float32)
    np.testing.assert_array_equal(centroids(wide, 20, 5, drawn_by(0)), np.ones((20, 300)))


@pytest.mark.parametrize("count", [10, 40, 100])
@pytest.mark.parametrize("rows", [DIGITS, WIDE], ids=["narrow", "wide"])
def test_they_are_as_near_to_the_rows_as_those_of_a_few_steps_of_k_means(count, rows):
    def cost(centres):
        return np.square(pairwise_distances_argmin_min(rows, centres)[1]).mean()

    full = KMeans(count, init="random", n_init=1, max_iter=4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        plain = [cost(full.set_params(random_state=s).fit(rows).cluster_centers_) for s in range(5)]
    ours = [cost(centroids(rows, count, 5, drawn_by(seed))) for seed in range(5)]
    assert np.mean(ours) <= 1.05 * np.mean(plain)


def test_float32_rows_far_from_the_origin_keep_their_digits():
    far = (WIDE + 1000).astype(np.float32)
    np.testing.assert_allclose(
        centroids(far, 20, 5, drawn_by(0)) - 1000, centroids(WIDE, 20, 5, drawn_by(0)), atol=2e-3
    )


def test_the_rows_are_left_as_they_were():
    for rows in (WIDE[:30].copy(), DIGITS[:30].copy()):
        before = rows.copy()
        centroids(rows, 30, 1, drawn_by(0))
        np.testing.assert_array_equal(rows, before)


def test_too_few_rows_give_none():
    assert centroids(DIGITS[:4], 3, 5, drawn_by(0)).shape == (0, 64)
    assert centroids(DIGITS[:40], 3, 5, drawn_by(0), before=8).shape == (0, 64)


def test_means_keep_the_precision_of_the_rows():
    double = centroids(DIGITS, 12, 5, drawn_by(3))
    single = centroids(DIGITS.astype(np.float32), 12, 5, drawn_by(3))
    assert (single.dtype, double.dtype) == (np.float32, np.float64)
    assert centroids((DIGITS * 16).astype(np.uint8), 12, 5, drawn_by(3)).dtype == np.float64


def test_the_same_draws_give_the_same_centroids():
    first, again, other = (centroids(DIGITS, 9, 5, drawn_by(seed)) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize("index", [np.int32, np.int64])
@pytest.mark.parametrize("rows", [DIGITS, WIDE], ids=["narrow", "wide"])
def test_sparse_rows_give_the_centroids_of_dense_ones(index, rows):
    A = sp.csr_array(rows)
    A = sp.csr_array((A.data, A.indices.astype(index), A.indptr.astype(index)), shape=A.shape)
    np.testing.assert_allclose(
        centroids(A, 8, 5, drawn_by(0)), centroids(rows, 8, 5, drawn_by(0)), atol=1e-12
    )


def test_only_a_part_is_looked_at(monkeypatch):
    class Counted(np.ndarray):
        rows = 0

        def __getitem__(self, key):
            taken = super().__getitem__(key)
            Counted.rows += len(taken) if np.ndim(taken) == 2 else 0
            return taken.view(np.ndarray)

    A = np.tile(DIGITS, (20, 1)).view(Counted)
    monkeypatch.setattr(module, "raw_rows", lambda rows: rows)
    assert len(centroids(A, 10, 5, drawn_by(0))) == 10
    assert 0 < Counted.rows <= 1024
