"""Two masked sums that differ by one party tell what it sent: a coordinator that tries to get them.

It claims losses, begins runs anew, leaves parties out of studies and waits for a restart; hosts are
real. What it may still do is what the rule of fewest parties lets pass.
"""

from dataclasses import replace

import numpy as np
import pytest
from tests.runtime.test_masks import Deviating, Factor, PortionOwner, SumSetup

import eigenmesh as em
from eigenmesh.errors import PolicyRefusal
from eigenmesh.methods.moments.protocol import MomentRows, MomentSetup, moment_pca
from eigenmesh.numerics.explicit_features import ExplicitFeatures
from eigenmesh.numerics.kernels import Kernel
from eigenmesh.runtime import masks
from eigenmesh.runtime.federation import Federation
from eigenmesh.runtime.policy import Policy
from eigenmesh.runtime.protocol import protocol
from eigenmesh.runtime.schedule import enlist, sequence, times, total
from eigenmesh.runtime.site import Site

ALL = 8


def _rows(n, seed=0):
    return list(np.random.default_rng(seed).normal(size=(n, 1, 16)))


def _schedule(scope, n_sums, claims):
    sizes = {"a": 3, "b": 2, "c": 3, "e": 6}
    return sequence(
        enlist(PortionOwner, SumSetup()), times(n_sums, total(PortionOwner.portion, up=sizes))
    )


@protocol("test-claimed-losses", roles=(PortionOwner,), schedule=_schedule)
def claimed_losses(fed, n_sums, claims):
    """The same sum, or nearly, again and again; before some of them parties are said to be lost."""
    fed.enlist(PortionOwner, SumSetup())
    sums = []
    for turn in range(n_sums):
        fed.lost |= {f"party-{i}": "claimed" for at, i in claims if at == turn}
        # A little else each time: who compares questions only sees another one.
        sums.append(fed.total(PortionOwner.portion, Factor(1.0 + 1e-9 * turn)).sum)
    return sums


def sites_of(rows, trust, folder=None, policy=None):
    sites = [
        Site(f"party-{i}", opens=lambda own=own: own, policy=policy or Policy(), trust=trust)
        for i, own in enumerate(rows)
    ]
    for site in sites:
        site.state_dir = None if folder is None else folder / site.name
    keys = {site.name: masks.identity(site.identity) for site in sites}
    for site in sites:
        site.peers = dict(keys)
    return sites


def federation(sites, on_loss="survivors"):
    engine = Deviating(sites)
    engine.deviate, engine.transcript = None, []
    return Federation(engine, split="rows", on_loss=on_loss, secure=True)


def difference(rows, sums):
    """How near the difference of two sums is to what the last party sent."""
    guess = sums[0].large - sums[1].large
    own = np.asarray(rows[-1][0][4:10]).reshape(2, 3) * 1e12
    return np.linalg.norm(guess - own) / np.linalg.norm(own)


def test_the_attack_works_where_one_party_may_be_a_sum():
    """One trust domain: nobody is to be kept from anything, and survivors go on."""
    rows = _rows(ALL)
    sums = federation(sites_of(rows, "domain")).run(claimed_losses, 2, ((1, ALL - 1),)).value
    assert difference(rows, sums) < 1e-6


@pytest.mark.parametrize("n_lost", [1, 2])
def test_a_claimed_loss_in_a_loop_gives_no_second_sum(n_lost):
    claims = tuple((1, ALL - 1 - i) for i in range(n_lost))
    fed = federation(sites_of(_rows(ALL), "organisations"))
    with pytest.raises(PolicyRefusal, match="min_parties"):
        fed.run(claimed_losses, 2, claims)
    assert not any(op == "open" for op, *_ in fed._engine.transcript[6 * ALL :])


def test_a_loss_before_a_step_was_opened_costs_nothing():
    fed = federation(sites_of(_rows(ALL), "organisations"))
    assert len(fed.run(claimed_losses, 3, ((0, 3),)).value) == 3


def test_losses_one_by_one_do_not_add_up_to_enough():
    """Each is compared with the last that was opened, and the first is refused already."""
    fed = federation(sites_of(_rows(12), "organisations"))
    with pytest.raises(PolicyRefusal):
        fed.run(claimed_losses, 4, ((1, 11), (2, 10), (3, 9)))


def test_as_many_at_once_as_a_sum_must_have_are_a_sum_and_the_run_goes_on():
    rows = _rows(12)
    fed = federation(sites_of(rows, "organisations"))
    sums = fed.run(claimed_losses, 2, ((1, 11), (1, 10), (1, 9))).value
    assert difference(rows, sums) > 0.5


@pytest.mark.parametrize("on_loss", ["raise", "survivors"])
def test_a_study_without_one_party_does_not_sum_the_same_again(on_loss):
    sites = sites_of(_rows(ALL), "organisations")
    federation(sites, on_loss).run(claimed_losses, 1, ())
    fewer = sites[:-1]
    with pytest.raises(em.EigenmeshError, match="min_parties"):
        federation(fewer, on_loss).run(claimed_losses, 1, ())
    federation(sites, on_loss).run(claimed_losses, 1, ())  # the same parties may


def test_nor_after_a_restart(tmp_path):
    rows = _rows(ALL)
    federation(sites_of(rows, "organisations", tmp_path), "raise").run(claimed_losses, 1, ())
    restarted = sites_of(rows, "organisations", tmp_path)[:-1]
    with pytest.raises(em.EigenmeshError, match="min_parties"):
        federation(restarted, "raise").run(claimed_losses, 1, ())


def test_other_data_are_another_sum(tmp_path):
    federation(sites_of(_rows(ALL), "organisations", tmp_path), "raise").run(claimed_losses, 1, ())
    others = sites_of(_rows(ALL, seed=1), "organisations", tmp_path / "others")[:-1]
    federation(others, "raise").run(claimed_losses, 1, ())


# Nearly the same question in another run: other parameters, and a party less.


def feature_sums_of(sites, coef0, on_loss="raise", lost=()):
    """What the rows of all parties add up to in the features of (x·y + coef0)²."""

    def coordinate(fed, setup, n_components):
        fed.lost |= {f"party-{i}": "claimed" for i in lost}
        fed.enlist(MomentRows, setup)
        fed.ask(MomentRows.count_rows)
        return fed.total(MomentRows.feature_sums).sum

    evil = replace(moment_pca, coordinate=coordinate)
    setup = MomentSetup("poly", 1.0, 2.0, coef0, center=False)
    return federation(sites, on_loss).run(evil, setup, 2).value.sums


def blocks(n, n_rows=30, seed=0):
    return list(np.random.default_rng(seed).normal(size=(n, n_rows, 3)))


def left_out_summand(rows, totals):
    """How near the difference of two totals is to what the last party's rows add up to."""
    features = ExplicitFeatures(Kernel("poly", 1.0, 2.0, 1.0), 3)
    own = features(rows[-1]).sum(axis=0)
    return np.linalg.norm(totals[0] - totals[1] - own) / np.linalg.norm(own)


@pytest.mark.parametrize("trust", ["domain", "organisations"])
def test_the_attack_works_where_only_the_same_parameters_are_the_same_sum(trust):
    rows = blocks(ALL)
    sites = sites_of(rows, trust, policy=Policy(same_sum="question"))
    totals = [feature_sums_of(sites, 1.0), feature_sums_of(sites[:-1], 1.0 + 1e-9)]
    assert left_out_summand(rows, totals) < 1e-6


@pytest.mark.parametrize("on_loss", ["raise", "survivors"])
def test_a_parameter_moved_by_little_is_the_same_sum(on_loss):
    sites = sites_of(blocks(ALL), "organisations")
    feature_sums_of(sites, 1.0, on_loss)
    for n_fewer in (1, 2):
        with pytest.raises(em.EigenmeshError, match="min_parties"):
            feature_sums_of(sites[:-n_fewer], 1.0 + 1e-9, on_loss)
    feature_sums_of(sites, 1.5, on_loss)  # the same parties ask what they like
    with pytest.raises(em.EigenmeshError, match="min_parties"):
        feature_sums_of(sites[:-3], 1.5, on_loss)  # three are a sum, but see below


def test_nor_does_a_parameter_help_after_a_restart_or_when_few_rows_changed(tmp_path):
    rows = blocks(ALL)
    feature_sums_of(sites_of(rows, "organisations", tmp_path), 1.0)
    newer = [np.delete(own, np.arange(5), axis=0) for own in rows]
    for later in (rows, newer):
        with pytest.raises(em.EigenmeshError, match="min_parties"):
            feature_sums_of(sites_of(later, "organisations", tmp_path)[:-1], 1.1)
    others = blocks(ALL, seed=1)  # another data set, in the same place
    feature_sums_of(sites_of(others, "organisations", tmp_path)[:-1], 1.1)


# Sums whose parties differ by many, which cancel together.

SEVEN_LINES = ((0, 1, 2), (0, 3, 4), (0, 5, 6), (1, 3, 5), (1, 4, 6), (2, 3, 6), (2, 4, 5))
THREE_CIRCLES = (slice(0, 7), slice(0, 3), slice(3, 6))
POLICIES = {"data": Policy(), "question": Policy(same_sum="question")}


def total_unless_refused(*question):
    """None where sites refuse it by the rule of fewest parties."""
    try:
        return feature_sums_of(*question)
    except em.EigenmeshError as refusal:
        if "min_parties" not in str(refusal):
            raise
    return None


def own_sums(rows):
    features = ExplicitFeatures(Kernel("poly", 1.0, 2.0, 1.0), 3)
    return np.array([features(own).sum(axis=0) for own in rows])


@pytest.mark.parametrize("same_sum", POLICIES)
def test_losses_claimed_by_threes_that_meet_in_one_tell_no_party(same_sum):
    """Any two rolls differ by four parties, and all seven lines of a plane give seven unknowns."""
    rows = blocks(10)
    sites = sites_of(rows, "organisations", policy=POLICIES[same_sum])
    whole, on_line, sums = feature_sums_of(sites, 1.0, "survivors"), np.zeros((7, 7)), []
    for line, lost in enumerate(SEVEN_LINES):
        on_line[line, list(lost)] = 1
        less = total_unless_refused(sites, 1.0 + 1e-12 * line, "survivors", lost)
        sums += [] if less is None else [whole - less]
    if same_sum == "data":
        assert not sums
    else:  # the attack works where the data set's sums may be of several circles
        own = np.linalg.solve(on_line, np.array(sums))
        np.testing.assert_allclose(own, own_sums(rows)[:7], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("order", [(0, 1, 2), (1, 2, 0), (2, 0, 1)])
@pytest.mark.parametrize("same_sum", POLICIES)
def test_three_collaborations_in_any_order_leave_nobody_alone(same_sum, order):
    """Seven hospitals, three of them and three others: nobody but the analyst is in all of it."""
    rows, totals = blocks(7), {}
    sites = sites_of(rows, "organisations", policy=POLICIES[same_sum])
    for circle in order:
        total = total_unless_refused(sites[THREE_CIRCLES[circle]], 1.0)
        totals |= {} if total is None else {circle: total}
    if same_sum == "data":
        assert set(totals) in ({0}, {1, 2})
    else:
        alone = totals[0] - totals[1] - totals[2]
        np.testing.assert_allclose(alone, own_sums(rows)[6], rtol=1e-9, atol=1e-9)


def test_what_is_summed_by_another_method_is_the_same_data():
    """Moments of seven parties, Gram sums of six: the difference was the seventh's, to 1e-13."""
    sites = sites_of(blocks(7), "organisations", policy=Policy({"aggregate", "counts"}))
    em.KernelPCA(3, kernel="linear", center=False).fit(federation(sites, "raise"))
    fewer = em.KernelPCA(3, kernel="linear", center=False, landmarks="drawn", n_landmarks=6)
    with pytest.raises(em.EigenmeshError, match="min_parties"):
        fewer.fit(federation(sites[:-1], "raise"))
    fewer.fit(federation(sites, "raise"))


def test_a_party_is_not_left_alone_with_a_few_of_twelve():
    """All but three are said to be lost, of whom two collude: their sum was the third's."""
    sites = sites_of(blocks(12), "organisations")
    with pytest.raises(em.EigenmeshError, match="min_parties"):
        feature_sums_of(sites, 1.0, "survivors", lost=range(3, 12))
    feature_sums_of(sites, 1.0, "survivors", lost=range(9, 12))
