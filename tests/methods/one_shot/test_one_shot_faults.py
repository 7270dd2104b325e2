"""A dead, slow or lying party: an error with its name, or a result that says it goes without it."""

import time
import warnings

import numpy as np
import pytest

import eigenmesh as em
from eigenmesh.connect import sites_of
from eigenmesh.engines.faulty import Fault
from eigenmesh.engines.in_process import InProcess
from eigenmesh.errors import MessageRefused, PartyLost, StaleRound
from eigenmesh.runtime import wire
from eigenmesh.runtime.federation import Federation

RULES = [
    {"kernel": "linear"},
    {"kernel": "rbf", "gamma": 0.0005},
    {"kernel": "rbf", "gamma": 0.0005, "fusion": "distance"},
]
RULE_IDS = ["linear", "rbf", "distance"]


def blocks(n_samples=40, seed=0):
    rng = np.random.default_rng(seed)
    latent = rng.normal(size=(n_samples, 3)) * [3.0, 2.0, 1.0]
    return [
        latent @ rng.normal(size=(3, width)) + 0.1 * rng.normal(size=(n_samples, width))
        for width in (10, 8, 9, 12)
    ]


def parts_without(party=None, n_samples=40):
    kept = [i for i in range(4) if i != party]
    data = blocks(n_samples)
    return em.Partitioned(columns=[data[i] for i in kept], names=[f"party-{i}" for i in kept])


def model_of(rule, **settings):
    fixed = {"n_components": 2, "local_rank": 6, "random_state": 0}
    return em.OneShotKPCA(**{**fixed, **rule, **settings})


def failing(*faults, **options):
    return em.federation(parts_without(), faults=list(faults), **options)


# Errors.


@pytest.mark.parametrize("rule", RULES, ids=RULE_IDS)
@pytest.mark.parametrize("kind", ["lose", "kill", "corrupt"])
def test_a_lost_or_damaged_reply_is_an_error_with_the_partys_name(rule, kind):
    model = model_of(rule)
    with failing(Fault(kind, party="party-1", round=1), timeout=20.0) as fed:
        started = time.monotonic()
        with pytest.raises(MessageRefused if kind == "corrupt" else PartyLost) as caught:
            model.fit(fed)
    assert time.monotonic() - started < 5.0
    assert caught.value.party == "party-1"
    assert "party-1" in str(caught.value)
    assert not hasattr(model, "eigenvalues_")


def test_a_slow_party_is_given_up_in_time():
    with failing(Fault("delay", party="party-2", round=1, seconds=8.0), timeout=0.3) as fed:
        started = time.monotonic()
        with pytest.raises(PartyLost, match="party-2") as caught:
            model_of(RULES[0]).fit(fed)
        assert time.monotonic() - started < 4.0
    assert caught.value.party == "party-2"


@pytest.mark.parametrize("round_", [1, 2])
def test_a_party_may_also_die_while_gamma_is_found(round_):
    with failing(Fault("kill", party="party-3", round=round_)) as fed:
        with pytest.raises(PartyLost, match="party-3"):
            model_of({"kernel": "rbf", "gamma": "scale"}).fit(fed)


def test_a_reply_of_an_earlier_round_is_not_taken_for_this_ones():
    with failing(Fault("stale", party="party-1", round=2)) as fed:
        with pytest.raises(StaleRound, match="party-1"):
            model_of({"kernel": "rbf", "gamma": "scale"}).fit(fed)


def test_reuse_never_takes_a_reply_of_an_earlier_fit():
    """One message a party: there is no earlier round of this run to fall back on."""
    with failing(Fault("lose", party="party-1", round=2), on_loss="reuse") as fed:
        model_of(RULES[0]).fit(fed)
        with pytest.raises(em.EigenmeshError, match="party-1"):
            model_of(RULES[0], n_components=3).fit(fed)


def test_when_every_party_is_lost_there_is_no_model():
    with failing(Fault("kill"), on_loss="survivors") as fed, pytest.raises(em.EigenmeshError):
        model_of(RULES[0]).fit(fed)


def test_after_an_error_the_federation_can_fit_again():
    with failing(Fault("lose", party="party-1", round=1)) as fed:
        with pytest.raises(PartyLost):
            model_of(RULES[1]).fit(fed)
        again = model_of(RULES[1]).fit(fed)
    expected = model_of(RULES[1]).fit(parts_without())
    np.testing.assert_array_equal(again.eigenvectors_, expected.eigenvectors_)


# Survivors.


@pytest.mark.parametrize("rule", RULES, ids=RULE_IDS)
@pytest.mark.parametrize("kind", ["lose", "kill", "corrupt"])
@pytest.mark.parametrize("lost", [0, 1, 3])
def test_survivors_give_exactly_the_model_of_the_remaining_columns(rule, kind, lost):
    expected = model_of(rule).fit(parts_without(lost))
    with failing(Fault(kind, party=f"party-{lost}", round=1), on_loss="survivors") as fed:
        model = fit_warned(model_of(rule), fed)
    np.testing.assert_allclose(model.eigenvalues_, expected.eigenvalues_, rtol=1e-12)
    np.testing.assert_allclose(model.eigenvectors_, expected.eigenvectors_, atol=1e-12)
    assert model.residual_ == pytest.approx(expected.residual_, rel=1e-9)
    assert model.total_variance_ == pytest.approx(expected.total_variance_, rel=1e-12)
    assert model.report_.bounds == pytest.approx(expected.report_.bounds, rel=1e-9)
    says_so(model, f"party-{lost}")


def fit_warned(model, fed):
    """A result that lacks a party may warn of it, or leave it to the report."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", em.EigenmeshWarning)
        return model.fit(fed)


def says_so(model, lost):
    report = model.report_
    assert lost not in report.parties
    assert len(report.parties) == 3
    told = " ".join([str(report.stop_reason), *report.notes, str(report)])
    assert lost in told


def test_a_slow_party_is_left_out_and_named():
    fault = Fault("delay", party="party-2", round=1, seconds=6.0)
    with failing(fault, on_loss="survivors", timeout=0.4) as fed:
        started = time.monotonic()
        model = fit_warned(model_of(RULES[0]), fed)
        assert time.monotonic() - started < 4.0
    expected = model_of(RULES[0]).fit(parts_without(2))
    np.testing.assert_allclose(model.eigenvectors_, expected.eigenvectors_, atol=1e-12)
    says_so(model, "party-2")


def test_survivors_count_only_what_arrived():
    with failing(Fault("kill", party="party-0", round=1), on_loss="survivors") as fed:
        model = fit_warned(model_of(RULES[0]), fed)
    assert model.report_.floats_up == 3 * 6 * 41
    assert model.report_.baseline_floats == 40 * (8 + 9 + 12)


@pytest.mark.parametrize("gamma", ["scale", "mean-distance", "median"])
def test_survivors_of_the_first_round_find_the_gamma_of_their_own_columns(gamma):
    rule = {"kernel": "rbf", "gamma": gamma}
    with failing(Fault("kill", party="party-1", round=1), on_loss="survivors") as fed:
        model = fit_warned(model_of(rule), fed)
    expected = fit_warned(model_of(rule), parts_without(1))
    np.testing.assert_allclose(model.eigenvalues_, expected.eigenvalues_, rtol=1e-9)
    np.testing.assert_allclose(model.eigenvectors_, expected.eigenvectors_, atol=1e-9)
    says_so(model, "party-1")


@pytest.mark.parametrize("rule", RULES, ids=RULE_IDS)
def test_a_model_of_survivors_transforms_the_remaining_columns(rule):
    with failing(Fault("kill", party="party-1", round=1), on_loss="survivors") as fed:
        model = fit_warned(model_of(rule), fed)
    new = parts_without(1, n_samples=7)
    expected = model_of(rule).fit(parts_without(1)).transform(new)
    np.testing.assert_allclose(model.transform(new), expected, atol=1e-10)
    np.testing.assert_allclose(model.transform(np.hstack(new.parts)), expected, atol=1e-10)


def test_a_model_of_survivors_never_takes_a_lost_partys_columns_for_anothers():
    with failing(Fault("kill", party="party-1", round=1), on_loss="survivors") as fed:
        model = fit_warned(model_of(RULES[0]), fed)
    expected = model_of(RULES[0]).fit(parts_without(1)).transform(parts_without(1, 7))
    try:
        found = model.transform(parts_without(None, 7))
    except em.EigenmeshError:
        return
    np.testing.assert_allclose(found, expected, atol=1e-10)


# Timing.


@pytest.mark.parametrize("rule", RULES, ids=RULE_IDS)
def test_the_order_in_which_replies_come_does_not_change_a_bit(rule):
    expected = model_of(rule).fit(parts_without())
    for slow in ("party-0", "party-3"):
        with failing(Fault("delay", party=slow, round=1, seconds=0.05)) as fed:
            model = model_of(rule).fit(fed)
        np.testing.assert_array_equal(model.eigenvalues_, expected.eigenvalues_)
        np.testing.assert_array_equal(model.eigenvectors_, expected.eigenvectors_)


def test_a_request_that_arrives_twice_counts_once():
    expected = model_of(RULES[1]).fit(parts_without())
    with failing(Fault("duplicate", party="party-1", round=1)) as fed:
        model = model_of(RULES[1]).fit(fed)
    np.testing.assert_array_equal(model.eigenvectors_, expected.eigenvectors_)
    assert model.report_.floats_up == expected.report_.floats_up


# Lies: replies of valid wire form whose content cannot be.


class LyingHost:
    """Changes every array of one party's replies."""

    def __init__(self, host, lie, only):
        self._host, self._lie, self._only = host, lie, only
        self.party = host.party
        self.lied = 0

    def handle(self, request):
        reply = self._host.handle(request)
        tree = wire.loads(reply)
        asked = wire.loads(request)["op"] == "step" and isinstance(tree.get("ok"), np.ndarray)
        if self.party != "party-1" or not asked:
            return reply
        message = wire.loads(tree["ok"].tobytes())
        for name, value in message.items():
            if isinstance(value, np.ndarray) and value.ndim == self._only:
                message[name] = self._lie(value.copy())
                self.lied += 1
        return wire.dumps({**tree, "ok": np.frombuffer(wire.dumps(message), np.uint8)})

    def __getattr__(self, name):
        return getattr(self._host, name)


def spoilt(value, spoil):
    value.flat[-1] = spoil
    return value


LIES = {  # name: number of axes, what becomes of such arrays
    "NaN among the vectors": (2, lambda a: spoilt(a, np.nan)),
    "infinity among the vectors": (2, lambda a: spoilt(a, np.inf)),
    "one row that would broadcast": (2, lambda a: a[:1]),
    "transposed": (2, lambda a: a.T),
    "a sample less": (2, lambda a: a[:-1]),
    "a sample more": (2, lambda a: np.vstack([a, a[:1]])),
    "one axis": (2, lambda a: a.ravel()),
    "three axes": (2, lambda a: a[None]),
    "no vectors": (2, lambda a: a[:, :0]),
    "complex numbers": (2, lambda a: a.astype(complex)),
    "whole numbers": (2, lambda a: np.ones(a.shape, dtype=np.int64)),
    "NaN among the values": (1, lambda a: spoilt(a, np.nan)),
    "a value less": (1, lambda a: a[:-1]),
    "values negative": (1, lambda a: -a - 1.0),
    "one value that would broadcast": (1, lambda a: a[:1]),
    "values as a column": (1, lambda a: a[:, None]),
}
PAIR_LIES = {  # of eigenpairs alone
    "a vector less": (2, lambda a: a[:, :-1]),
    "vectors not orthonormal": (2, lambda a: 2.0 * a + 1.0),
    "one vector twice": (2, lambda a: np.hstack([a[:, :1], a[:, :-1]])),
    "values rising": (1, lambda a: a[::-1]),
}


def lied_to(lie, rule, on_loss="raise"):
    axes, change = (LIES | PAIR_LIES)[lie]
    liars = []

    def wrap(host):
        liars.append(LyingHost(host, change, axes))
        return liars[-1]

    engine = InProcess(sites_of(parts_without()), wrap)
    with Federation(engine, split="columns", on_loss=on_loss) as fed:
        try:
            return fit_warned(model_of(rule), fed)
        finally:
            assert any(liar.lied for liar in liars), "no such array is sent"


@pytest.mark.parametrize(
    ("rule", "lie"),
    [
        pytest.param(rule, lie, id=f"{name}-{lie}")
        for rule, name in zip(RULES, RULE_IDS, strict=True)
        for lie, (axes, _) in LIES.items()
        if axes == 2 or name != "distance"  # which sends no eigenvalues
    ],
)
def test_a_reply_that_cannot_be_is_an_error_with_the_partys_name(rule, lie):
    with pytest.raises(em.EigenmeshError) as caught:
        lied_to(lie, rule)
    assert caught.value.party == "party-1"


@pytest.mark.parametrize("lie", PAIR_LIES)
@pytest.mark.parametrize("rule", RULES[:2], ids=RULE_IDS[:2])
def test_eigenpairs_that_cannot_be_are_an_error_with_the_partys_name(rule, lie):
    with pytest.raises(em.EigenmeshError) as caught:
        lied_to(lie, rule)
    assert caught.value.party == "party-1"


@pytest.mark.parametrize("lie", ["NaN among the vectors", "a sample less"])
def test_survivors_go_on_without_a_liar(lie):
    model = lied_to(lie, RULES[1], on_loss="survivors")
    expected = model_of(RULES[1]).fit(parts_without(1))
    np.testing.assert_allclose(model.eigenvectors_, expected.eigenvectors_, atol=1e-12)
    says_so(model, "party-1")


# Transform.


@pytest.mark.parametrize("rule", RULES, ids=RULE_IDS)
@pytest.mark.parametrize("on_loss", ["raise", "survivors", "reuse"])
@pytest.mark.parametrize("kind", ["lose", "kill", "corrupt"])
def test_new_samples_are_never_scored_without_a_party(rule, on_loss, kind):
    """Scores that lack a party's columns are no scores, whatever the federation makes of a loss."""
    model = model_of(rule).fit(parts_without())
    new = parts_without(n_samples=7)
    with em.federation(new) as fed:
        np.testing.assert_allclose(model.transform(fed), model.transform(new), atol=1e-12)
    fault = Fault(kind, party="party-1", round=1)
    with em.federation(new, faults=[fault], on_loss=on_loss) as fed:
        with pytest.raises(em.EigenmeshError, match="party-1"):
            model.transform(fed)
