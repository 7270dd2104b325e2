"""Of many parties some look at what landmarks miss: who may matter, and a draw of the others."""

import warnings

import numpy as np
import pytest
from scipy.sparse.linalg import eigsh

import eigenmesh as em
from eigenmesh.methods.diskpca import looks as looks_module
from eigenmesh.methods.diskpca.protocol import RowHolder
from eigenmesh.numerics.shortfall import Shortfall
from eigenmesh.runtime.federation import Federation

N_PARTIES, ROWS, COLUMNS = 60, 40, 12
HOW = {"kernel": "rbf", "gamma": 0.02, "n_landmarks": 60, "landmarks": "centroids"}


def rows(seed, n=N_PARTIES * ROWS):
    return np.random.default_rng(seed).normal(size=(n, COLUMNS)) * np.arange(1, COLUMNS + 1) ** -0.5


def split_evenly(X):
    return em.Partitioned(rows=np.split(X, len(X) // ROWS))


def fitted(parts, accuracy=0.05, k=3, **how):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return em.DisKPCA(k, **{**HOW, **how}, random_state=0, accuracy=accuracy).fit(parts)


@pytest.fixture
def looks(monkeypatch):
    """Who was asked in each look, and whether for directions."""
    asked, ask = [], Federation.ask

    def listening(self, step, message=None, *, each=None):
        if step.name == "probe_outside":
            some = self.parties if each is None else tuple(each)
            question = message if each is None else next(iter(each.values()))
            asked.append((some, question.seeks_directions))
        return ask(self, step, message, each=each)

    monkeypatch.setattr(Federation, "ask", listening)
    return asked


def true_shares(kpca, X):
    squares = np.square(X).sum(axis=1)
    K = np.exp(-0.02 * (squares[:, None] + squares - 2 * X @ X.T))
    centred = K - K.mean(axis=0) - K.mean(axis=1)[:, None] + K.mean()
    k, start = len(kpca.eigenvalues_), np.random.default_rng(0).normal(size=len(X))
    return 1 - kpca.eigenvalues_ / np.sort(eigsh(centred, k, v0=start, tol=1e-8)[0])[::-1]


@pytest.mark.parametrize("seed", range(6))
def test_some_of_many_show_what_all_show(looks, monkeypatch, seed):
    parts = split_evenly(rows(seed))
    by_some = fitted(parts).shortfalls_
    assert 20 <= len(looks[0][0]) <= 0.8 * N_PARTIES
    monkeypatch.setattr(looks_module, "drawn_parties", lambda *_: None)
    by_all = fitted(parts).shortfalls_
    assert len(looks[-1][0]) == N_PARTIES
    near = np.abs(by_some - by_all) <= 0.002
    assert (near | ((by_some > by_all / 2) & (by_some < 2 * by_all))).all()


def test_no_more_floats_pass_than_are_planned(looks):
    parts = split_evenly(rows(0))
    kpca = fitted(parts)
    ((some, _),) = looks
    plan = em.plan(em.DisKPCA(3, **HOW, random_state=0, accuracy=0.05), parts)
    took, planned = kpca.report_.by_step, plan.by_step
    asked = planned["RowHolder.probe_outside"] * len(some) / N_PARTIES
    assert took == {**planned, "RowHolder.probe_outside": asked}
    assert any("only some look" in note for note in plan.notes)


def test_who_was_left_out_of_the_first_look_takes_part_in_a_closer_one(looks, monkeypatch):
    monkeypatch.setattr(Shortfall, "is_doubtful", lambda *_: True)
    fitted(split_evenly(rows(2)))
    (first, _), (closer, _) = looks
    assert len(first) < len(closer) == N_PARTIES


def test_the_same_seed_asks_the_same_parties_and_another_others(looks):
    parts = split_evenly(rows(0))
    first, again = fitted(parts), fitted(parts)
    assert looks[0] == looks[1]
    assert np.array_equal(first.shortfalls_, again.shortfalls_)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        em.DisKPCA(3, **HOW, random_state=1, accuracy=0.05).fit(parts)
    assert looks[2][0] != looks[0][0]


@pytest.mark.parametrize("seed", range(6))
def test_what_one_party_has_alone_is_looked_at_there(looks, seed):
    """Its rows spread in columns in which nobody else's do, and one centroid does not show it."""
    rng = np.random.default_rng(seed)
    X = rows(seed)
    odd = int(rng.integers(N_PARTIES))
    own = slice(odd * ROWS, (odd + 1) * ROWS)
    X = np.hstack([X, np.zeros((len(X), 6))])
    X[own, -6:] = 4 * rng.normal(size=(ROWS, 6))
    kpca = fitted(split_evenly(X), accuracy=0.1, n_landmarks=N_PARTIES, max_landmarks=N_PARTIES)
    assert all(f"party-{odd}" in some for some, _ in looks)
    true = true_shares(kpca, X)
    assert true.max() <= 0.1 or kpca.shortfall_ + 2 * kpca.shortfall_error_ > 0.1


def test_all_are_asked_where_much_is_outside_or_parties_are_few(looks):
    X = rows(0)
    fitted(split_evenly(X), accuracy=0.002, max_landmarks=60)
    fitted(em.Partitioned(rows=np.split(X, 12)))
    assert {len(some) for some, _ in looks} == {N_PARTIES, 12}


def test_no_direction_is_sought_where_none_can_come_near_an_eigenvalue(looks, monkeypatch):
    parts = em.Partitioned(rows=np.split(rows(1), 8))
    without = fitted(parts)
    monkeypatch.setattr(looks_module, "may_have_rivals", lambda z, outside: True)
    with_them = fitted(parts)
    assert [sought for _, sought in looks] == [False, True]
    assert without.shortfalls_ == pytest.approx(with_them.shortfalls_, rel=0.05)
    assert without.shortfall_error_ >= 0.99 * with_them.shortfall_error_
    monkeypatch.undo()
    far = fitted(parts, gamma=0.5, accuracy=0.9)  # much is outside
    assert far.landmark_residual_ > far.eigenvalues_[-1] / 3


def test_a_party_that_falls_silent_in_the_look_is_lost_and_the_others_count(looks, monkeypatch):
    parts = split_evenly(rows(2))
    probed, calls = RowHolder.probed, []

    def once_too_often(self, by, components):
        calls.append(self.site.name)
        if len(calls) == 5:
            raise RuntimeError("gone")
        return probed(self, by, components)

    monkeypatch.setattr(RowHolder, "probed", once_too_often)
    with em.federation(parts, on_loss="survivors") as fed:
        kpca = fitted(fed)
    assert set(kpca.report_.lost) == {calls[4]}
    assert 0 < kpca.shortfall_ < 0.05
