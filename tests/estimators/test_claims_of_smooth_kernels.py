"""What landmarks of few columns miss of many components: few random features show any of it."""

import re
import warnings

import numpy as np
import pytest
from sklearn.metrics.pairwise import pairwise_kernels

import eigenmesh as em
from eigenmesh.errors import EigenmeshWarning, InputError

KERNELS = ("rbf", "rbf", "laplacian", "poly")
FEDERATIONS = {"plain": {}, "masked": {"secure": True}, "ring": {"topology": "ring"}}


def warnings_of(kpca, rows):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", EigenmeshWarning)
        kpca.fit(rows)
    return [str(w.message) for w in caught if issubclass(w.category, EigenmeshWarning)]


def fitted(seed, how, accuracy=0.01):
    """A fit, its warnings, and the true shares that are missing; None of too many components."""
    rng = np.random.default_rng(seed)
    n, d, k = (int(rng.integers(*ends)) for ends in ((60, 400), (1, 4), (4, 25)))
    X, kernel = rng.normal(size=(n, d)), KERNELS[seed % len(KERNELS)]
    gamma = {
        "rbf": "mean-distance",
        "laplacian": 1 / np.median(np.abs(X[: n // 2] - X[-(n // 2) :]).sum(axis=1)),
        "poly": 1 / np.mean(np.square(X).sum(axis=1)),
    }[kernel]
    own = {"kernel": kernel, "gamma": gamma, "degree": 2 + seed % 3, "coef0": 1}
    kpca = em.KernelPCA(k, **own, accuracy=accuracy, random_state=seed)
    try:
        if how == "array":
            words = warnings_of(kpca.set_params(method="diskpca"), X)
        else:
            with em.federation(em.split(X, 3, random_state=0), **FEDERATIONS[how]) as fed:
                words = warnings_of(kpca, fed)
    except InputError:  # more components than landmarks determine
        return None
    values = {**own, "gamma": kpca.gamma_}
    del values["kernel"]
    K = pairwise_kernels(X, metric=kernel, filter_params=True, **values)
    H = np.eye(n) - 1 / n
    true = 1 - kpca.eigenvalues_ / np.linalg.eigvalsh(H @ K @ H)[::-1][:k]
    return kpca, words, true


@pytest.mark.parametrize(
    ("how", "seeds"), [("plain", 12), ("masked", 10), ("array", 6), ("ring", 10)]
)
def test_claims_are_near_and_no_fit_that_misses_more_is_silent(how, seeds):
    near, false, within = [], 0, 0
    for seed in range(seeds):
        if (fit := fitted(seed, how)) is None:
            continue
        kpca, words, shares = fit
        true, said = max(float(shares.max()), 0.0), kpca.shortfall_
        if max(true, said) > 0.002:
            near.append(abs(said - true) <= 0.002 or true / 2 <= said <= 2 * true)
        assert true <= 1.25 * kpca.accuracy or words, (seed, true, said)
        is_false = true <= kpca.accuracy and any("landmarks miss" in word for word in words)
        within, false = within + (true <= kpca.accuracy), false + is_false
    assert np.mean(near) >= 0.9 or sum(near) >= len(near) - 1
    assert false <= 0.05 * within + 1


def test_how_many_components_are_within_is_told_only_where_each_was_looked_at():
    told = 0
    for seed in range(8):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(int(rng.integers(60, 300)), int(rng.integers(1, 5))))
        for k in (None, 14):
            kpca = em.KernelPCA(k, kernel="rbf", gamma="mean-distance", random_state=0)
            words = " ".join(warnings_of(kpca, em.split(X, 3, random_state=0)))
            K = pairwise_kernels(X, metric="rbf", gamma=kpca.gamma_)
            H = np.eye(len(X)) - 1 / len(X)
            true = np.linalg.eigvalsh(H @ K @ H)[::-1][: len(kpca.eigenvalues_)]
            for number in re.findall(r"ask for (\d+), which are within", words):
                shares = (1 - kpca.eigenvalues_ / true)[: int(number)]
                assert shares.max() <= 1.25 * kpca.accuracy
                told += 1
    assert told


@pytest.mark.parametrize("gamma", [0.3, 1.0])
def test_of_a_kernel_matrix_that_is_the_identity_next_to_everything_is_missing(gamma):
    X = 10 * np.random.default_rng(0).normal(size=(86, 10))
    kpca = em.KernelPCA(1, kernel="rbf", gamma=gamma, random_state=0)
    with em.federation(em.split(X, 4, random_state=0), secure=True) as fed:
        words = warnings_of(kpca, fed)
    assert any("landmarks miss about 100.0%" in word for word in words)
    assert kpca.shortfall_ > 0.999
