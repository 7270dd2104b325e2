"""Budgets over the life of a data set: studies, draws, numbers, versions, restarts."""

import numpy as np
import pytest
import scipy.sparse as sp

import eigenmesh as em
from eigenmesh.connect import sites_of
from eigenmesh.engines.in_process import InProcess
from eigenmesh.errors import InputError, PolicyRefusal
from eigenmesh.runtime.budget import Account, row_digests, rows_changed
from eigenmesh.runtime.federation import Federation
from eigenmesh.runtime.message import KINDS

pytestmark = pytest.mark.filterwarnings("ignore")


def blocks(seed, n=40, width=4, parties=3):
    rng = np.random.default_rng(seed)
    return [rng.normal(size=(n, width)) for _ in range(parties)]


def opened(data, split="columns", state_dir=None, **policy):
    parts = em.Partitioned(**{split: data}, policies=[None, em.Policy(**policy), None])
    sites = sites_of(parts)
    for site in sites:
        site.state_dir = state_dir
    return Federation(InProcess(sites), split=split)


def spent_at(fed):
    return fed.local_sites()["party-1"].account.sets


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "estimator",
    [
        em.VFedPCA(2, n_rounds=3, random_state=0),
        em.OneShotKPCA(2, random_state=0),
        em.DisKPCA(2, gamma=0.1, n_landmarks=9, landmarks="uniform", random_state=0),
        em.SketchingPCA(2, gamma=0.1, random_state=0),
    ],
    ids=lambda estimator: type(estimator).__name__,
)
def test_a_study_asked_again_costs_nothing_and_answers_the_same(seed, estimator):
    split = "columns" if isinstance(estimator, em.VFedPCA | em.OneShotKPCA) else "rows"
    with opened(blocks(seed), split, budget={"studies": 1}) as fed:
        first = estimator.fit(fed).eigenvalues_
        before = vars(spent_at(fed)[0]).copy()
        np.testing.assert_array_equal(estimator.fit(fed).eigenvalues_, first)
        assert vars(spent_at(fed)[0]) == before
        other = type(estimator)(**{**estimator.get_params(), "n_components": 3})
        with pytest.raises(PolicyRefusal, match="studies are spent: 1") as caught:
            other.fit(fed)
        assert caught.value.party == "party-1"


def test_the_first_request_that_differs_makes_it_a_new_study():
    data, other = blocks(0), blocks(1)
    with opened(data, budget={"studies": 1}) as fed:
        em.VFedPCA(2, n_rounds=3, random_state=0).fit(fed)
    sites = {"party-1": fed.local_sites()["party-1"]}
    changed = opened([other[0], data[1], other[2]], budget={"studies": 1})
    changed.local_sites()["party-1"]._account = sites["party-1"].account
    with pytest.raises(PolicyRefusal, match="studies are spent"):  # the others sent other vectors
        em.VFedPCA(2, n_rounds=3, random_state=0).fit(changed)


@pytest.mark.parametrize("seed", range(3))
def test_numbers_are_counted_beside_those_of_the_site(seed):
    width, k = 5, 2
    data = blocks(seed, n=50, width=width)
    share = k * (50 + 1) / (50 * width)  # eigenvectors and eigenvalues
    with opened(data, budget={"numbers": share}) as fed:
        em.OneShotKPCA(2, local_rank=k, random_state=0).fit(fed)
        assert spent_at(fed)[0].numbers == pytest.approx(share)
        with pytest.raises(PolicyRefusal, match="numbers are spent"):
            em.OneShotKPCA(1, local_rank=1, random_state=0).fit(fed)
    with opened(data, budget={"numbers": share * 0.99}) as fed:
        with pytest.raises(PolicyRefusal, match="numbers are spent"):
            em.OneShotKPCA(2, local_rank=k, random_state=0).fit(fed)


@pytest.mark.parametrize("seed", range(3))
def test_what_is_spent_survives_a_restart(seed, tmp_path):
    data, estimator = blocks(seed), em.OneShotKPCA(2, random_state=0)
    with opened(data, state_dir=tmp_path, budget={"studies": 2}) as fed:
        estimator.fit(fed)
    with opened(data, state_dir=tmp_path, budget={"studies": 2}) as fed:
        estimator.fit(fed)
        assert spent_at(fed)[0].studies == 1
        em.OneShotKPCA(3, random_state=0, local_rank=3).fit(fed)
    with opened(data, state_dir=tmp_path, budget={"studies": 2}) as fed:
        with pytest.raises(PolicyRefusal, match="studies are spent: 2"):
            em.OneShotKPCA(1, random_state=0, local_rank=1).fit(fed)
        estimator.fit(fed)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("trust", ["domain", "organisations"])
def test_versions_that_differ_in_few_rows_are_refused_and_others_carry_on(seed, trust, tmp_path):
    rng = np.random.default_rng(seed)
    X, few = rng.normal(size=(60, 3)), int(rng.integers(1, 5))
    others = [rng.normal(size=(30, 3)) for _ in range(2)]
    sketch = em.SketchingPCA(2, gamma=0.1, random_state=0)

    def answer(own, **budget):
        with opened([others[0], own, others[1]], "rows", tmp_path, budget=budget) as fed:
            for site in fed.local_sites().values():
                site.trust = trust
            sketch.fit(fed)
            return spent_at(fed)

    answer(X, studies=9)
    answer(X[rng.permutation(60)], studies=9)  # the same rows
    for own in (X[few:], np.vstack([X, rng.normal(size=(few, 3))])):
        with pytest.raises(PolicyRefusal, match="in fewer than 5 rows|min_rows"):
            answer(own, studies=9)
    spent = answer(X[5:], studies=9)
    assert len(spent) == 1
    assert len(spent[0].versions) == 2
    with pytest.raises(
        PolicyRefusal, match="in fewer than 5 rows|min_rows"
    ):  # of the version before the last
        answer(np.vstack([X[few:]]), studies=9)
    fresh = answer(rng.normal(size=(60, 3)), studies=9)
    assert len(fresh) == 2


def test_a_refused_version_says_nothing_of_how_many_rows():
    sites = [Account(None) for _ in range(3)]
    X = np.random.default_rng(0).normal(size=(30, 2))
    words = set()
    for few, account in enumerate(sites, start=1):
        account.of(row_digests(X), 5)
        with pytest.raises(PolicyRefusal) as caught:
            account.of(row_digests(X[few:]), 5)
        words.add(str(caught.value))
    assert len(words) == 1


@pytest.mark.parametrize("seed", range(10))
def test_rows_changed_is_the_difference_of_two_bags_of_rows(seed):
    rng = np.random.default_rng(seed)
    bags = [rng.integers(0, 4, size=(rng.integers(1, 30), 2)).astype(float) for _ in "ab"]
    rows = [sorted(map(tuple, bag)) for bag in bags]
    common = sum(min(rows[0].count(r), rows[1].count(r)) for r in set(rows[0]))
    expected = len(rows[0]) + len(rows[1]) - 2 * common
    digests = [row_digests(bag) for bag in bags]
    assert rows_changed(*digests) == expected
    assert rows_changed(row_digests(sp.csr_matrix(bags[0])), digests[0]) == 0
    assert rows_changed(row_digests(bags[0].astype(np.float32)), digests[0]) == 0


def test_damaged_accounts_are_no_way_to_begin_anew(tmp_path):
    with opened(blocks(0), state_dir=tmp_path, budget={"studies": 1}) as fed:
        em.OneShotKPCA(2, random_state=0).fit(fed)
    (tmp_path / "party-1.budget").write_bytes(b"nonsense")
    with opened(blocks(0), state_dir=tmp_path, budget={"studies": 1}) as fed:
        with pytest.raises(InputError, match=r"party-1.budget"):
            em.OneShotKPCA(2, random_state=0).fit(fed)


def test_without_a_budget_nothing_is_looked_at(monkeypatch):
    monkeypatch.setattr("eigenmesh.runtime.consent.row_digests", None)
    with opened(blocks(0), allow=KINDS) as fed:
        em.OneShotKPCA(2, random_state=0).fit(fed)
        assert fed.local_sites()["party-1"]._account is None


# Runs.


def test_a_finished_run_is_not_begun_again_after_a_restart(tmp_path):
    from tests.runtime.test_consent import answers, survey_requests

    site = sites_of(em.Partitioned(rows=[np.ones((9, 2))], names=["a"]))[0]
    site.state_dir = tmp_path
    enlist = survey_requests()[2]
    dismiss = {"op": "dismiss", "run": "r", "turn": 2}
    assert ["ok" in answer for answer in answers(site, [enlist, dismiss])] == [True, True]
    assert "error" in answers(site, [{**enlist, "turn": 3}])[0]
    assert "ok" in answers(site, [{**enlist, "run": "another"}])[0]
