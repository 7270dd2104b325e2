"""Many fits with centroids, by other seeds and numbers: nobody gets nearer to a row than its mean.

The analyst has the public interface, the code, every landmark of every fit and the parties' sizes;
in one attack it even knows which rows each mean covers, and has only not seen them.
"""

import warnings
from contextlib import contextmanager

import numpy as np
import pytest

import eigenmesh as em
from eigenmesh.errors import EigenmeshWarning
from eigenmesh.methods.diskpca.protocol import diskpca
from eigenmesh.numerics.centroids import CentroidTree

FITS, D, SIZES = 160, 4, (40, 55, 23)
TRUST = ["domain", "organisations"]
NAMES = ["north", "east", "south"]


@contextmanager
def _no_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EigenmeshWarning)
        yield


@pytest.fixture(autouse=True)
def _quiet():
    with _no_warnings():
        yield


@pytest.fixture(scope="module", params=TRUST)
def trust(request):
    return request.param


@pytest.fixture(scope="module")
def parties():
    rng = np.random.default_rng(5)
    return [
        rng.normal(size=(n, D)) * rng.pareto(2.0, size=(n, 1)) + 3 * i for i, n in enumerate(SIZES)
    ]


@pytest.fixture(scope="module")
def many_fits(parties, trust):
    """The landmarks of each fit; and, by the bytes of each mean, which rows it covers, which no
    analyst can know.
    """
    cover, means = {}, CentroidTree.means

    def spy(tree, nodes):
        for node in nodes:
            mean = means(tree, [node])[0]
            cover[mean.tobytes()] = tree._order[node.start : node.stop].copy()
        return means(tree, nodes)

    with pytest.MonkeyPatch.context() as patch, _no_warnings():
        patch.setattr(CentroidTree, "means", spy)
        return all_fits(parties, trust), cover


def landmarks_of(parties, trust, seed, count, names=NAMES):
    policy = em.Policy(min_parties=1)
    parts = em.Partitioned(rows=parties, names=names, policies=policy)
    with em.federation(parts, trust=trust) as fed:
        model = em.DisKPCA(
            1,
            kernel="rbf",
            gamma=0.1,
            center=False,
            landmarks="centroids",
            n_landmarks=count,
            random_state=seed,
        )
        return model.fit(fed).landmarks_


def all_fits(parties, trust):
    rng = np.random.default_rng(11)
    most = sum(n // 5 for n in SIZES)
    numbers = [3] * (FITS // 2) + rng.integers(1, most + 1, size=FITS // 2).tolist()
    return [landmarks_of(parties, trust, seed, q) for seed, q in enumerate(numbers)]


def require_far(guesses, parties, released):
    """Every guess is at least half as far from every row as the nearest released mean."""
    rows = np.vstack(parties)
    nearest = np.linalg.norm(rows[:, None] - released[None], axis=2).min(axis=1)
    for guess in np.atleast_2d(guesses):
        away = np.linalg.norm(rows - guess, axis=1)
        assert (away >= 0.5 * nearest - 1e-12).all()


def distinct_means(fits):
    return np.unique(np.vstack(fits), axis=0)


def test_fits_that_differ_in_seeds_and_numbers_release_nodes_of_one_tree_a_party(
    parties, many_fits
):
    fits, covered = many_fits
    means = distinct_means(fits)
    assert len(means) <= sum(2 * (n // 5) - 1 for n in SIZES)
    owners = {node.tobytes(): _owner(node, covered[node.tobytes()], parties) for node in means}
    sets = [(owner, frozenset(covered[mean].tolist())) for mean, owner in owners.items()]
    for owner, node in sets:
        assert len(node) >= 5
        for other, another in sets:
            shared = node & another if owner == other else frozenset()
            assert shared in (frozenset(), node, another)


def _owner(mean, rows, parties):
    fitting = [
        i
        for i, X in enumerate(parties)
        if rows.max() < len(X) and np.allclose(X[rows].mean(axis=0), mean, atol=1e-9)
    ]
    assert len(fitting) == 1
    return fitting[0]


def rows_by_seed(seed, n):
    """Which rows one centroid covered, when a seed drew them."""
    key = (0, diskpca.number, 0)
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=key))
    drawn = np.random.default_rng(int(rng.integers(2**31))).choice(n, min(n, 20), replace=False)
    weights = np.zeros(n)
    weights[drawn] = 1 / len(drawn)
    return weights


def test_a_seed_does_not_tell_which_rows_a_mean_covers(parties, trust):
    """The attack that recovered every row: repeat the draw of each seed, solve for the rows."""
    X = parties[0]
    draws = np.array([rows_by_seed(seed, len(X)) for seed in range(FITS)])
    as_before = np.linalg.lstsq(draws, draws @ X, rcond=None)[0]
    np.testing.assert_allclose(as_before, X, atol=1e-9)

    means = np.vstack([landmarks_of([X], trust, seed, 1, ["north"]) for seed in range(FITS)])
    released = np.unique(means, axis=0)
    guesses = np.linalg.lstsq(draws, means, rcond=None)[0]
    require_far(guesses, [X], released)


def test_fits_by_other_seeds_names_and_orders_repeat_the_same_means(parties, trust):
    """Nothing is averaged out, and nothing differs: there is no second equation."""
    counts = [3, 3, 12]
    first = [landmarks_of(parties, trust, 0, q) for q in counts]
    for seed in range(1, 6):
        again = [landmarks_of(parties, trust, seed, q) for q in counts]
        both = np.unique(np.vstack([*first, *again]), axis=0)
        assert len(both) <= sum(2 * (n // 5) - 1 for n in SIZES)
    if trust == "domain":  # between organisations a site has its own name
        renamed = landmarks_of(parties, trust, 0, 12, names=["a", "b", "c"])
        np.testing.assert_array_equal(renamed, first[2])


def test_all_that_linear_algebra_gives_are_means_of_enough_rows(parties, many_fits):
    """With the rows behind every mean known, what follows is a mean of five rows at least.

    All rows of a leaf have the same weight in every node, so that no sum of nodes tells them apart.
    """
    fits, covered = many_fits
    released = distinct_means(fits)
    for party, X in enumerate(parties):
        own = [
            covered[mean.tobytes()]
            for mean in released
            if _owner(mean, covered[mean.tobytes()], parties) == party
        ]
        weights = np.zeros((len(own), len(X)), dtype=int)
        for place, rows in enumerate(own):
            weights[place, rows] = 1
        alike = np.unique(weights, axis=1, return_inverse=True)[1].ravel()
        atoms = np.bincount(alike)
        assert atoms.min() >= 5
        guesses = np.array([X[alike == atom].mean(axis=0) for atom in range(len(atoms))])
        solved = np.linalg.lstsq(
            weights.astype(float), np.array([X[rows].sum(axis=0) for rows in own]), rcond=None
        )[0]
        require_far(np.vstack([guesses, solved]), [X], released)


def test_differences_of_means_of_guessed_sizes_are_no_rows(parties, many_fits):
    """A node less a node below it is the rest; a guess of sizes is right if the rest is known."""
    released = distinct_means(many_fits[0])
    known = {mean.tobytes() for mean in np.round(released, 9)}
    sizes = [
        (whole, part) for whole in range(10, max(SIZES) + 1) for part in range(5, whole - 4, 5)
    ]
    wholes, parts = np.array(sizes).T[:, :, None, None]
    guesses = []
    for above in released:
        rests = (wholes * above - parts * released) / (wholes - parts)
        rests = rests.reshape(-1, D)
        rounded = np.round(rests, 9)
        near = np.isin(rounded[:, 0], np.round(released[:, 0], 9))  # few need a closer look
        guesses += [rests[i] for i in np.flatnonzero(near) if rounded[i].tobytes() in known]
    assert guesses  # the attack does find families of nodes
    require_far(np.array(guesses), parties, released)
