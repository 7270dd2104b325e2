"""Numbers of a fit count through all its runs; hosts are real, between organisations."""

from contextlib import nullcontext

import numpy as np
import pytest
from tests.attacks.test_chosen_questions import D, counted_cells, kept_scores

import eigenmesh as em
from eigenmesh.errors import PolicyRefusal
from eigenmesh.runtime.consent import Consent
from eigenmesh.runtime.disk_store import Origin
from eigenmesh.runtime.study import FitStudy, Study
from eigenmesh.runtime.tally import Tally
from eigenmesh.stages.kmeans_party import KMeansSetup

ROWS = 60
FIRST = D + D * (D + 1) // 2  # what the run that leaves scores tells: sums, and products
pytestmark = pytest.mark.filterwarnings("ignore::eigenmesh.errors.EigenmeshWarning")
ALLOW = {"counts", "moments", "centroids"}


def parts_of(n=ROWS, allow=ALLOW):
    rng = np.random.default_rng(0)
    return em.Partitioned(
        rows=[rng.normal(size=(n, D)) for _ in range(3)], policies=em.Policy(allow)
    )


def clustering(n_cells):
    """A run that tells a number of each cell, and two more."""
    cells = np.linspace(-3, 3, n_cells)[:, None]
    how = {"method": "groups", "dim": 1, "start": cells}
    return (counted_cells(cells, "assign"), KMeansSetup("points", "labels"), n_cells), how


def scoring():
    return kept_scores(np.eye(D)[:, :1])


def of_both(fed, n_cells):
    """The two runs as one fit, for `fed.under`."""
    arguments, how = clustering(n_cells)
    return one_fit(fed, (scoring(), {}), (arguments, how))


def one_fit(fed, *runs):
    studies = [Study.of(run[0], fed.scope, tuple(run[1:]), how) for run, how in runs]
    return FitStudy(tuple(study.as_agreed for study in studies))


def told(fed):
    return fed._engine._hosts[0]._view.tally.numbers


def ask(fed, n_cells):
    arguments, how = clustering(n_cells)
    fed.run(*arguments, **how)
    return told(fed)


@pytest.mark.parametrize("trust", ["domain", "organisations"])
@pytest.mark.parametrize("under", [True, False])
def test_two_runs_that_are_within_it_alone_are_not_together(under, trust):
    few, many = ROWS * D - FIRST - 20, ROWS * D - 10
    with em.federation(parts_of(), trust=trust) as fed:
        for n_cells in (few, many):
            is_refused = n_cells == many and trust == "organisations"
            with fed.under(of_both(fed, n_cells)) if under else nullcontext():
                fed.run(*scoring())
                first = told(fed)
                assert first == FIRST
                with pytest.raises(PolicyRefusal) if is_refused else nullcontext():
                    assert ask(fed, n_cells) > first + n_cells - 5


@pytest.mark.parametrize("is_said", [True, False])
def test_a_fit_that_says_what_it_is_is_refused_before_a_later_run_begins(is_said):
    """Runs that read nothing of each other are one fit only if somebody says so."""
    runs = [kept_scores(np.eye(D)[:, :k]) for k in (1, 2)]
    with em.federation(parts_of(n=6), trust="organisations") as fed:
        whole = one_fit(fed, *((run, {}) for run in runs))
        with fed.under(whole) if is_said else nullcontext():
            fed.run(*runs[0])
            assert told(fed) == FIRST
            with fed.recording() as recording:
                with pytest.raises(PolicyRefusal) if is_said else nullcontext():
                    fed.run(*runs[1])
    asked = {entry.step for entry in recording.ledger.entries if entry.floats}
    assert bool(asked) == (not is_said)


@pytest.mark.parametrize("under", [True, False])
def test_what_is_begun_anew_is_counted_anew(under):
    n_cells = ROWS * D - FIRST - 20
    with em.federation(parts_of(), trust="organisations") as fed:
        counts = []
        for _ in range(3):
            with fed.under(of_both(fed, n_cells)) if under else nullcontext():
                fed.run(*scoring())
                counts += [ask(fed, n_cells), ask(fed, n_cells)]  # a run, and the same once more
    assert len(set(counts)) == 1


@pytest.mark.parametrize("seed", range(3))
def test_runs_of_a_whole_fit_add_up(seed):
    begun, begin = [], Consent.begin

    def noting(consent, study, fit):
        begin(consent, study, fit)
        begun.append((consent.site.name, consent.view.tally))

    policies = em.Policy(ALLOW | {"gram"})
    rows = [np.random.default_rng(seed).normal(size=(n, D)) for n in (900, 1100, 1300)]
    clusters = em.KernelKMeans(2, gamma=0.1, n_landmarks=9, n_init=1, max_iter=3, random_state=0)
    source = em.Partitioned(rows=rows, policies=policies)
    with pytest.MonkeyPatch.context() as patch, em.federation(source, trust="organisations") as fed:
        patch.setattr(Consent, "begin", noting)
        clusters.fit(fed)
    tallies = [tally for name, tally in begun if name == "party-1"]
    own = [tally._own[0] for tally in tallies]
    assert np.count_nonzero(own) == 2
    assert tallies[-1].numbers == sum(own)


def test_what_was_left_before_a_restart_counts(tmp_path):
    with em.federation(parts_of(), trust="organisations") as fed:
        fed.run(*scoring())
        site, first = fed.local_sites()["party-0"], told(fed)
        assert site.left_by_studies["points"].numbers == first
        site.tallies.clear()  # as in another process, which has the store alone
        assert ask(fed, 50) > first + 50
    assert Origin.read(["q", "s", "f", "l"]).numbers == 0  # of a store before there were counts


def test_a_long_chain_of_runs_is_not_forgotten():
    last = Tally(1, 0)
    for _ in range(250):
        later = Tally()
        later.go_on_from(last)
        later.add(1, 1)
        last = later
    assert (last.numbers, last.directions) == (251, 250)
