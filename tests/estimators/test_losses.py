"""Fits that lose a party and go on: never without a word, and claims are of those who stay."""

import warnings

import numpy as np
import pytest
from scipy.spatial.distance import cdist

import eigenmesh as em

GAMMA = 1 / 24
SURVIVORS = {"on_loss": "survivors", "timeout": 30}

ROWS = {
    "standardized": lambda: em.KernelPCA(2, preparation=em.Preparation(standardize=True)),
    "gamma by rule": lambda: em.KernelPCA(3, kernel="rbf", gamma="scale"),
    "median": lambda: em.KernelPCA(3, kernel="rbf", gamma="median"),
    "moments": lambda: em.MomentPCA(2),
    "rows drawn": lambda: em.DisKPCA(3, kernel="rbf", gamma=GAMMA, accuracy=0.01),
    "clusters": lambda: em.KernelKMeans(3, gamma=GAMMA),
    "directions": lambda: em.FedKernelKMeans(3, gamma=GAMMA, n_iterations=3),
}
COLUMNS = {
    "fused": lambda: em.KernelPCA(2, kernel="rbf", gamma="scale"),
    "one-shot": lambda: em.OneShotKPCA(2, kernel="rbf", gamma="mean-distance"),
    "power": lambda: em.VFedPCA(2),
}


def rows_of(rng):
    X = rng.normal(size=(240, 6))
    X[160:] = 4 * X[160:] + 2
    return X


def fitted(estimator, parts, lost, round_, **how):
    """What it came to, and its warnings of losses; None where it ended with an error about it."""
    error = None
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            fault = em.Fault("kill", lost, round=round_)
            with em.federation(parts, faults=[fault], **SURVIVORS, **how) as fed:
                model = estimator.fit(fed)
        except em.EigenmeshError as raised:
            error = str(raised)
    if error is not None:
        assert lost in error
        assert "Error;" not in error  # of a step that failed at somebody else's loss
        return None, []
    words = [str(w.message) for w in told if issubclass(w.category, em.LossWarning)]
    return model, words


@pytest.mark.parametrize("name", [*ROWS, *COLUMNS])
def test_whoever_is_lost_is_warned_of_once_and_the_report_says_the_same(name):
    rng = np.random.default_rng(len(name))
    X, lost = rows_of(rng), "party-2"
    thirds = np.array_split(X if name in ROWS else X[:60], 3, axis=0 if name in ROWS else 1)
    parts = em.Partitioned(**{"rows" if name in ROWS else "columns": thirds})
    n_lost = 0
    for round_ in range(1, 9):
        build = ROWS.get(name) or COLUMNS[name]
        model, words = fitted(build(), parts, lost, round_)
        if model is None:
            continue
        assert [lost in line for line in words] == [True] * len(model.report_.lost)
        assert all(line in str(model.report_) for line in words)
        n_lost += len(words)
    assert n_lost


@pytest.mark.parametrize("stays", [0, 1])
def test_a_rule_is_of_all_or_of_those_who_stay_and_of_no_mixture(stays):
    """A party with columns far from 0: of a mean with it and squares without nothing is right."""
    rng = np.random.default_rng(stays)
    X = rng.normal(size=(90, 6))
    X[60:, :] += 100 * stays
    X[:, 4:] += 2000 * (1 - stays)
    by = {"rows": np.array_split(X, 3)} if stays else {"columns": np.array_split(X, 3, axis=1)}
    of_all, those = X.var(), (X[:60] if stays else X[:, :4]).var()
    for secure in (False, True):
        for round_ in range(1, 9):
            model, words = fitted(
                em.KernelPCA(2, kernel="rbf", gamma="scale"),
                em.Partitioned(**by),
                "party-2",
                round_,
                secure=secure,
            )
            if model is None:
                continue
            allowed = [1 / (6 * of_all), 1 / ((6 if stays else 4) * those)]
            assert min(abs(model.gamma_ / gamma - 1) for gamma in allowed) < 1e-6
            if not words:
                assert model.gamma_ == pytest.approx(allowed[0])


def kernel_eigenvalues(X, k):
    K = np.exp(-GAMMA * cdist(X, X, "sqeuclidean"))
    C = np.eye(len(X)) - 1 / len(X)
    return np.linalg.eigvalsh(C @ K @ C)[::-1][:k]


@pytest.mark.parametrize("secure", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_what_landmarks_miss_is_of_those_who_stay(seed, secure):
    """Landmarks of a large party that is lost may outnumber the rows that stay."""
    rng = np.random.default_rng(seed)
    k, sizes = int(rng.integers(2, 5)), [int(rng.integers(100, 400)), 30, 30, 40]
    parts = [rng.normal(size=(n, 12)) + 2 * (i == 0) for i, n in enumerate(sizes)]
    true = kernel_eigenvalues(np.vstack(parts[1:]), k)
    n_checked = 0
    for round_ in rng.choice(np.arange(1, 12 if not secure else 36), size=4, replace=False):
        model, words = fitted(
            em.KernelPCA(k, kernel="rbf", gamma=GAMMA),
            em.Partitioned(rows=parts),
            "party-0",
            int(round_),
            secure=secure,
        )
        if model is None or not words or "gram" in words[0]:
            continue
        missing = 1 - model.eigenvalues_ / true
        claimed, errors = model.shortfalls_, model.shortfall_error_
        assert (missing <= 2 * claimed + np.maximum(2 * errors, 0.002)).all()
        n_checked += 1
    assert n_checked


@pytest.mark.parametrize("seed", range(4))
def test_who_would_have_given_all_landmarks_is_replaced_or_named(seed):
    """Few landmarks are shared out by size: a party that has most may have been to give all."""
    rng = np.random.default_rng(seed)
    parts = [rng.normal(size=(n, 5)) for n in (int(rng.integers(400, 900)), 30, 30)]
    for estimator in (em.KernelKMeans(3, gamma=0.1), em.KernelPCA(2, kernel="rbf", gamma=0.1)):
        model, words = fitted(estimator, em.Partitioned(rows=parts), "party-0", 2)
        assert model is None or (list(model.report_.lost) == ["party-0"] and len(words) == 1)
