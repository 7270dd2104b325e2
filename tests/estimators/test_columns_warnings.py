"""What is said of columns: units of their own, short memory, what is missing, and remedies."""

import warnings

import numpy as np
import pytest

import eigenmesh as em
from eigenmesh.errors import RankError, TooManySamples
from eigenmesh.numerics import memory


def drawn(seed, n=60, m=9):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, 3)) @ rng.normal(size=(3, m)) + rng.normal(size=(n, m))


def told(estimator, parts):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", em.EigenmeshWarning)
        estimator.fit(parts)
    return " ".join(str(w.message) for w in caught)


# Units.


@pytest.mark.parametrize("seed", range(6))
def test_a_party_in_other_units_is_named_and_standardising_suggested(seed):
    X, factor = drawn(seed), 10.0 ** np.random.default_rng(seed).uniform(2, 5)
    loud = seed % 3
    X[:, 3 * loud : 3 * loud + 3] *= factor
    parts = em.split(X / factor, 3, by="columns", names=["north", "east", "south"])
    words = told(em.KernelPCA(2, kernel="rbf"), parts)
    assert f"a column of {parts.names[loud]!r} varies" in words
    assert "standardize=True" in words
    assert "standardize" not in told(em.KernelPCA(2, kernel="rbf", standardize=True), parts)
    assert "standardize" not in told(em.KernelPCA(2, kernel="rbf", gamma=0.5), parts)


def test_raw_units_that_leave_the_identity_suggest_standardising():
    # Of a matrix that is the identity to the last bit a party's pairs are any, and rounding says
    # whether their product has a rank; here the largest value beside the diagonal is still there.
    parts = em.split(3 * drawn(0), 3, by="columns")
    for model in (em.KernelPCA(2, kernel="rbf"), em.OneShotKPCA(2, kernel="rbf")):
        assert "pass standardize=True" in told(model, parts)


@pytest.mark.parametrize("seed", range(20))
def test_columns_of_one_scale_are_not_warned_of(seed):
    rng = np.random.default_rng(seed)
    X = drawn(seed) / 3 * 3.0 ** rng.uniform(-1, 1, 9)
    assert "standardize" not in told(em.KernelPCA(2, kernel="rbf"), em.split(X, 3, by="columns"))


# Memory.


def test_what_memory_holds_bounds_the_matrix_of_all_pairs(monkeypatch):
    X = drawn(0, n=700)
    parts = em.split(X, 3, by="columns")
    monkeypatch.setattr(memory, "available_bytes", lambda: 24 * 650**2)
    assert memory.most_pairs_of_rows() == 650
    for model in (em.VFedAKPCA(2, gamma=0.02), em.OneShotKPCA(2, kernel="rbf", gamma=0.02)):
        forecast = em.plan(model, parts)
        assert any("landmark samples" in note for note in forecast.notes)
        told(model, parts)
        assert "700 samples are too many" in str(model.report_)
        assert forecast.floats_up >= model.report_.floats_up
    with pytest.raises(TooManySamples, match="party-0.*choose a kernel"):
        em.VFedAKPCA(2, kernel="sigmoid", gamma=0.01).fit(parts)


# What is missing.


@pytest.mark.parametrize("seed", range(3))
def test_exact_methods_miss_nothing_and_one_message_says_what_it_misses(seed):
    X = np.random.default_rng(seed).normal(size=(80, 24))
    parts = em.split(X, 3, by="columns")
    exact = em.KernelPCA(3, kernel="rbf", gamma=0.01)
    told(exact, parts)
    assert exact.shortfall_ == 0.0
    assert exact.shortfalls_.tolist() == [0.0] * 3
    short = em.KernelPCA(3, kernel="rbf", gamma=0.01, method="one-shot", local_rank=5)
    words = told(short, parts)
    true = float((1 - short.eigenvalues_ / exact.eigenvalues_).max())
    assert true > 0.01
    assert "lacks about" in words
    assert "vfed-akpca" in words
    assert true / 5 < short.shortfall_ < 5 * true


@pytest.mark.parametrize("seed", range(4))
def test_landmark_samples_say_what_they_miss(seed):
    X = drawn(seed, n=300)
    parts = em.split(X, 3, by="columns")
    exact = em.KernelPCA(3, kernel="rbf", gamma=0.02).fit(parts)
    for q in (15, 60):
        few = em.KernelPCA(3, kernel="rbf", gamma=0.02, n_landmarks=q, random_state=seed)
        words = told(few, parts)
        true = float((1 - few.eigenvalues_ / exact.eigenvalues_).max())
        assert true / 2.5 < few.shortfall_ < 2.5 * true or abs(true - few.shortfall_) < 0.002
        if few.shortfall_ > 0.01:
            assert "raise n_landmarks" in words


# Remedies are of the one who is asked.


def test_advice_is_about_parameters_that_there_are(monkeypatch):
    monkeypatch.setattr("eigenmesh.methods.vfed.estimator.MOST_ROUNDS", 2)
    X = np.random.default_rng(0).normal(size=(150, 60))
    parts = em.split(X, 3, by="columns")
    assert "raise n_rounds or tolerance" in told(em.VFedPCA(3), parts)
    words = told(em.KernelPCA(3, kernel="linear"), parts)
    assert "fit em.VFedPCA, with n_rounds" in words
    assert "raise n_rounds" not in words
    low = em.split(drawn(0)[:, :2] @ np.ones((2, 6)), 2, by="columns")
    for model in (em.VFedPCA(4), em.KernelPCA(4, kernel="linear"), em.VFedAKPCA(59, kernel="poly")):
        with pytest.raises(RankError) as error:
            model.fit(low)
        assert "local_rank" not in str(error.value)
    with pytest.raises(RankError, match="raise local_rank"):
        em.OneShotKPCA(4, local_rank=1).fit(low)
