"""What floats lose is said, or is not lost: rows far from 0, masks, eigenvalues of rounding."""

import re
import warnings
from fractions import Fraction
from math import comb

import numpy as np
import pytest

import eigenmesh as em
from eigenmesh.errors import EigenmeshWarning


def words_of(fit):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fitted = fit()
    own = [w for w in caught if issubclass(w.category, EigenmeshWarning)]
    return fitted, [str(w.message) for w in own if not issubclass(w.category, em.CostWarning)]


def largest_eigenvalue(X, shift, gamma, degree):
    """Of the centred kernel matrix of (γ x·y + 1)^degree, by expansion about the rows' offset."""
    # γ(b + s)·(c + s) + 1 = a + e, where a has no row in it: powers of a are constants, which
    # centring takes off with whatever else is a sum over one of the two rows.
    own = gamma * (X @ X.T) + gamma * shift * (X.sum(axis=1)[:, None] + X.sum(axis=1))
    constant = gamma * shift**2 * X.shape[1] + 1
    K = sum(comb(degree, i) * constant ** (degree - i) * own**i for i in range(1, degree + 1))
    H = np.eye(len(X)) - 1 / len(X)
    return float(np.linalg.eigvalsh(H @ K @ H)[-1])


@pytest.mark.parametrize("landmarks", ["uniform", "diskpca", "array"])
@pytest.mark.parametrize("seed", range(3))
def test_what_is_lost_of_rows_far_from_0_is_said_though_each_is_a_landmark(landmarks, seed):
    rng = np.random.default_rng(seed)
    n, d, shift = int(rng.integers(60, 120)), int(rng.integers(20, 60)), 10.0 ** rng.uniform(4.5, 6)
    X = rng.normal(size=(n, d)) * np.linspace(3, 1, d)
    how = {"kernel": "poly", "gamma": 1 / (d * shift**2), "degree": 3, "coef0": 1}
    kpca = em.KernelPCA(1, n_landmarks=n, random_state=seed, **how)
    if landmarks != "array":
        kpca.set_params(landmarks=landmarks)
    rows = X + shift if landmarks == "array" else em.split(X + shift, 3, random_state=seed)
    kpca, words = words_of(lambda: kpca.fit(rows))
    missing = 1 - kpca.eigenvalues_[0] / largest_eigenvalue(X, shift, how["gamma"], 3)
    assert missing < 0.01 or any("every row is a landmark" in own for own in words), missing
    assert missing / 2 - 0.01 <= kpca.shortfall_ <= 2 * missing + 0.01


def exact_trace(X, gamma, degree):
    """Of the centred kernel matrix, in fractions."""
    rows, g = [[Fraction(float(x)) for x in row] for row in X], Fraction(float(gamma))
    K = [
        [(g * sum(a * b for a, b in zip(x, y, strict=True)) + 1) ** degree for y in rows]
        for x in rows
    ]
    n = len(rows)
    return float(sum(K[i][i] for i in range(n)) - sum(sum(row) for row in K) / n)


@pytest.mark.parametrize("seed", range(6))
def test_masked_moments_are_the_plain_ones_to_the_last_digits(seed):
    rng = np.random.default_rng(seed)
    X, large = rng.normal(size=(40, 3)), 10.0 ** rng.uniform(3, 6)
    X[5, 1], X[30, 2] = large, large / 2
    degree = int(rng.integers(2, 4))
    kpca = em.KernelPCA(4, kernel="poly", gamma=1 / large**2, degree=degree, coef0=1.0)
    parts = em.split(X, 3, random_state=0)
    plain = kpca.fit(parts).eigenvalues_
    with em.federation(parts, secure=True) as fed:
        masked = kpca.fit(fed).eigenvalues_
    np.testing.assert_allclose(masked, plain, rtol=1e-6)
    assert kpca.total_variance_ == pytest.approx(exact_trace(X, 1 / large**2, degree), rel=1e-6)


@pytest.mark.parametrize("seed", range(6))
def test_no_remedy_names_components_that_are_rounding(seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(int(rng.integers(100, 250)), 1)) * 3
    parts = em.split(X, 3, random_state=0)
    for k in (None, 12):
        kpca = em.KernelPCA(k, kernel="rbf", gamma=1e-3, random_state=0)
        try:
            kpca, words = words_of(lambda kpca=kpca: kpca.fit(parts))
        except em.errors.EigenmeshError:  # so many are not there
            continue
        resolved = int(np.count_nonzero(kpca.eigenvalues_ >= 1e-6 * kpca.total_variance_))
        assert any("rounding" in own or "miss" in own for own in words)
        for number in re.findall(r"ask for (\d+)", " ".join(words)):
            assert int(number) <= resolved


@pytest.mark.parametrize("seed", range(3))
def test_rows_far_from_0_of_one_array_are_solved_exactly_where_landmarks_show_too_little(seed):
    rng = np.random.default_rng(seed)
    spread = rng.normal(size=(2100, 12)) * np.linspace(3, 1, 12)
    kpca = em.KernelPCA(2, kernel="linear", random_state=0).fit(spread + 1e5)
    centred = spread - spread.mean(axis=0)
    true = np.linalg.eigvalsh(centred.T @ centred)[::-1][:2]
    np.testing.assert_allclose(kpca.eigenvalues_, true, rtol=0.01)
