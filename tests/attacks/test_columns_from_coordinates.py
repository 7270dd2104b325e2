"""Who knows a few samples rebuilds a party's columns from what left it, where the audit says so."""

import numpy as np
import pytest
from tests.attacks.overhearing import messages_of, moved_onto, overheard, relative_error

import eigenmesh as em
from eigenmesh.reports.audit import Severity

pytestmark = pytest.mark.filterwarnings("ignore")


def columns(seed, widths, n=80):
    rng = np.random.default_rng(seed)
    return [rng.normal(size=(n, d)) @ rng.normal(size=(d, d)) for d in widths]


def attacked(estimator, blocks):
    """The audit beforehand, and all replies of the fit."""
    parts = em.Partitioned(columns=blocks, names=["a", "b"])
    beforehand = em.audit(em.plan(estimator, parts))
    replies = []
    with overheard(replies):
        estimator.fit(parts)
    return beforehand, replies


def coordinates(spectrum):
    return spectrum.vectors * np.sqrt(spectrum.values)


def error_of_the_others(points, block, n_known):
    known = np.arange(n_known)
    guess = moved_onto(points, known, block[known])
    return relative_error(guess[n_known:], block[n_known:])


@pytest.mark.parametrize("seed", range(5))
def test_eigenvectors_at_full_rank_and_known_samples_give_all_others(seed):
    d = 2 + seed
    blocks = columns(seed, (d, 9))
    audit, replies = attacked(em.OneShotKPCA(2, local_rank=d), blocks)
    (spectrum,) = messages_of(replies, "a", "local_spectrum")
    assert error_of_the_others(coordinates(spectrum), blocks[0], d + 2) < 1e-6
    worst = audit.of("a")[0]
    assert worst.severity == Severity.ROTATED
    assert f"{d + 2} known samples give all others" in worst.words


@pytest.mark.parametrize("seed", range(5))
def test_below_full_rank_the_other_directions_stay_unknown_and_the_audit_claims_no_more(seed):
    rng = np.random.default_rng(seed)
    blocks = [rng.normal(size=(80, 20)), rng.normal(size=(80, 20))]
    audit, replies = attacked(em.OneShotKPCA(2, local_rank=4), blocks)
    (spectrum,) = messages_of(replies, "a", "local_spectrum")
    assert error_of_the_others(coordinates(spectrum), blocks[0], 22) > 0.5
    assert audit.of("a")[0].severity == Severity.PARTS


@pytest.mark.parametrize("seed", range(5))
def test_an_rbf_spectrum_gives_distances_and_so_the_columns(seed):
    blocks, gamma = columns(seed, (2, 3), n=60), 0.02
    audit, replies = attacked(em.OneShotKPCA(2, kernel="rbf", gamma=gamma, local_rank=40), blocks)
    (spectrum,) = messages_of(replies, "a", "local_spectrum")
    K = (spectrum.vectors * spectrum.values) @ spectrum.vectors.T
    squared = -np.log(np.clip(K, 1e-12, 1.0)) / gamma
    centring = np.eye(60) - 1 / 60
    values, vectors = np.linalg.eigh(-centring @ squared @ centring / 2)
    points = vectors[:, -2:] * np.sqrt(np.maximum(values[-2:], 0))
    assert error_of_the_others(points, blocks[0], 4) < 0.1
    assert audit.of("a")[0].kind == "columns"


@pytest.mark.parametrize("seed", range(5))
def test_a_single_column_is_sent_as_it_is(seed):
    blocks = columns(seed, (1, 6))
    audit, replies = attacked(em.OneShotKPCA(2), blocks)
    (spectrum,) = messages_of(replies, "a", "local_spectrum")
    correlation = np.corrcoef(spectrum.vectors[:, 0], blocks[0][:, 0])[0, 1]
    assert abs(correlation) > 1 - 1e-9
    assert "one column: sent as it is" in audit.of("a")[0].words


@pytest.mark.parametrize("seed", range(3))
def test_two_valued_columns_need_no_known_sample(seed):
    rng = np.random.default_rng(seed)
    blocks = [rng.integers(0, 2, size=(80, 2)).astype(float), rng.normal(size=(80, 4))]
    audit, replies = attacked(em.OneShotKPCA(2, local_rank=2), blocks)
    (spectrum,) = messages_of(replies, "a", "local_spectrum")
    points = np.round(coordinates(spectrum), 6)
    corners, which = np.unique(points, axis=0, return_inverse=True)
    assert len(corners) == 4
    truth = blocks[0] @ [1, 2]  # which of four samples are alike is the whole table, but for names
    assert len({(int(w), float(t)) for w, t in zip(which.ravel(), truth, strict=True)}) == 4
    assert "two-valued columns are recoverable" in audit.of("a")[0].words


@pytest.mark.parametrize("seed", range(3))
def test_one_direction_of_two_valued_columns_tells_them_all(seed):
    """Its values are sums of some columns' weights: the next that is no such sum has a new one."""
    rng = np.random.default_rng(seed)
    blocks = [rng.integers(0, 2, size=(200, 4)).astype(float), rng.normal(size=(200, 4))]
    audit, replies = attacked(em.OneShotKPCA(1, local_rank=1), blocks)
    (spectrum,) = messages_of(replies, "a", "local_spectrum")
    values = np.unique(np.round(spectrum.vectors[:, 0], 9))
    weights, sums = [], values[:1]
    for value in values:
        if np.abs(sums - value).min() > 1e-7:
            weights.append(value - values[0])
            sums = np.concatenate([sums, sums + weights[-1]])
    which = np.abs(spectrum.vectors[:, [0]] - sums).argmin(axis=1)
    guesses = (which[:, None] >> np.arange(len(weights))) & 1
    likeness = np.abs(np.corrcoef(guesses.T, blocks[0].T)[: len(weights), len(weights) :])
    assert (likeness.max(axis=0) > 1 - 1e-9).all()
    assert "of a few two-valued columns one direction gives all" in audit.of("a")[0].words


@pytest.mark.parametrize("seed", range(3))
def test_distances_determine_columns_and_are_told_so(seed):
    blocks = columns(seed, (3, 4))
    audit, replies = attacked(em.VFedAKPCA(2, kernel="rbf", gamma=0.1), blocks)
    (reply,) = messages_of(replies, "a", "all_distances")
    assert error_of_the_others(reply.coordinates, blocks[0], 5) < 1e-6
    assert audit.of("a")[0].severity == Severity.ROTATED


@pytest.mark.parametrize("seed", range(3))
def test_products_with_as_many_directions_as_columns_determine_them(seed):
    blocks = columns(seed, (2, 3))
    audit, replies = attacked(em.VFedPCA(2), blocks)
    (start,) = messages_of(replies, "a", "local_start")
    assert error_of_the_others(start.vectors, blocks[0], 4) < 1e-6
    assert audit.of("a")[0].severity == Severity.ROTATED
