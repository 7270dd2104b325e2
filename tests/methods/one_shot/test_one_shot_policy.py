"""A party refuses at its own side what its policy does not allow, before anything is touched."""

import numpy as np
import pytest

import eigenmesh as em
from eigenmesh.connect import sites_of
from eigenmesh.engines.in_process import InProcess
from eigenmesh.errors import PolicyRefusal
from eigenmesh.runtime import wire
from eigenmesh.runtime.federation import Federation

RULES = [
    {"kernel": "linear"},
    {"kernel": "rbf", "gamma": 0.02},
    {"kernel": "rbf", "gamma": "scale"},
    {"kernel": "rbf", "gamma": "median"},
    {"kernel": "rbf", "gamma": "mean-distance"},
    {"kernel": "rbf", "gamma": 0.02, "fusion": "distance"},
]
EVERYTHING = em.Policy().allow

# The median rule sends more than 20 samples are worth, and says so.
pytestmark = pytest.mark.filterwarnings("ignore::eigenmesh.errors.EigenmeshWarning")


def blocks(n_samples=20):
    rng = np.random.default_rng(0)
    return [rng.normal(size=(n_samples, width)) for width in (6, 8, 7)]


class Watched(em.Partitioned):
    """Notes whose data are opened."""

    def part(self, party):
        self.__dict__.setdefault("opened", set()).add(self.names[party])
        return super().part(party)


def parts_with(policy, kind=em.Partitioned, data=None):
    return kind(columns=data or blocks(), policies=[None, policy, None])


def model_of(rule):
    return em.OneShotKPCA(2, local_rank=4, random_state=0, **rule)


def needed_kinds(rule):
    """What leaves a party in a run that nobody refuses."""
    return set(model_of(rule).fit(em.Partitioned(columns=blocks())).report_.reveals["party-1"])


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_a_party_that_forbids_eigenvectors_refuses_and_nothing_has_left(kernel):
    parts = parts_with(em.Policy(allow=EVERYTHING - {"eigenvectors"}), Watched)
    model = em.OneShotKPCA(2, kernel=kernel, gamma=0.02, local_rank=4)
    with em.federation(parts) as fed, fed.recording() as recording:
        with pytest.raises(PolicyRefusal, match="eigenvectors") as caught:
            model.fit(fed)
    assert caught.value.party == "party-1"
    assert "party-1" in str(caught.value)
    assert recording.ledger.revealed() == {}
    assert recording.ledger.floats_up == 0
    assert "party-1" not in getattr(parts, "opened", set())
    assert not hasattr(model, "eigenvalues_")


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_every_kind_that_a_run_needs_can_be_refused_before_the_first_message(rule):
    for kind in needed_kinds(rule):
        parts = parts_with(em.Policy(allow=EVERYTHING - {kind}), Watched)
        with em.federation(parts) as fed, fed.recording() as recording:
            with pytest.raises(PolicyRefusal, match=kind) as caught:
                model_of(rule).fit(fed)
        assert caught.value.party == "party-1", kind
        assert recording.ledger.revealed() == {}, kind
        assert not getattr(parts, "opened", set()), kind


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_the_kinds_of_the_plan_are_all_that_a_party_has_to_allow(rule):
    plan = em.plan(model_of(rule), em.Partitioned(columns=blocks()))
    policy = em.Policy(allow={*plan.reveals["party-1"], "columns"})  # which a spectrum may be
    allowed = model_of(rule).fit(parts_with(policy))
    free = model_of(rule).fit(em.Partitioned(columns=blocks()))
    np.testing.assert_array_equal(allowed.eigenvectors_, free.eigenvectors_)


def test_a_file_of_a_refusing_party_is_never_read(tmp_path):
    """Its content would be an error of its own, were it opened."""
    trap = tmp_path / "trap.csv"
    trap.write_text("a,b\n1,2\nnot,numbers\n")
    data = [blocks()[0], trap, blocks()[2]]
    parts = parts_with(em.Policy(allow={"counts"}), data=data)
    before = sorted(tmp_path.iterdir())
    with em.federation(parts) as fed, pytest.raises(PolicyRefusal, match="eigenvectors"):
        em.OneShotKPCA(2).fit(fed)
    with pytest.raises(PolicyRefusal, match="eigenvectors"):
        em.OneShotKPCA(2).fit(parts)
    assert sorted(tmp_path.iterdir()) == before


def test_a_plain_fit_of_the_parties_keeps_to_their_policies_too():
    with pytest.raises(PolicyRefusal, match="eigenvectors") as caught:
        em.OneShotKPCA(2).fit(parts_with(em.Policy(allow=EVERYTHING - {"eigenvectors"})))
    assert caught.value.party == "party-1"


def test_a_refusal_is_no_loss_that_survivors_may_go_on_from_in_silence():
    parts = parts_with(em.Policy(allow={"counts"}))
    with em.federation(parts, on_loss="survivors") as fed:
        with pytest.raises(PolicyRefusal, match="party-1"):
            em.OneShotKPCA(2).fit(fed)


def test_a_party_that_forbids_what_transform_sends_refuses_it():
    """What leaves at transform is a kind as well: a policy of fit kinds must cover it or refuse."""
    model = em.OneShotKPCA(2, kernel="rbf", gamma=0.02, local_rank=4)
    model.fit(em.Partitioned(columns=blocks()))
    model.transform(em.Partitioned(columns=blocks(5)))
    kinds = set(model.transform_report_.reveals["party-1"])
    assert kinds
    for kind in kinds:
        new = parts_with(em.Policy(allow=EVERYTHING - {kind}), data=blocks(5))
        with pytest.raises(PolicyRefusal, match=kind) as caught:
            model.transform(new)
        assert caught.value.party == "party-1"


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_a_policy_given_at_fit_still_binds_at_transform(kernel):
    free = em.OneShotKPCA(2, kernel=kernel, gamma=0.02, local_rank=4)
    free.fit(em.Partitioned(columns=blocks())).transform(np.hstack(blocks(5)))
    at_fit = set(free.report_.reveals["party-1"])
    at_transform = set(free.transform_report_.reveals["party-1"])
    assert not at_transform <= at_fit
    bound = em.OneShotKPCA(2, kernel=kernel, gamma=0.02, local_rank=4)
    bound.fit(parts_with(em.Policy(allow=at_fit)))
    with pytest.raises(PolicyRefusal, match="party-1"):
        bound.transform(np.hstack(blocks(5)))


def test_no_kind_beyond_the_declared_ones_leaves_a_party():
    for rule in RULES:
        kinds = needed_kinds(rule)
        assert "rows" not in kinds
        assert "gram" not in kinds
        assert kinds <= EVERYTHING


class OverheardHost:
    """Keeps the bytes of every reply to a step."""

    def __init__(self, host):
        self._host, self.replies = host, []

    def handle(self, request):
        reply = self._host.handle(request)
        if wire.loads(request)["op"] == "step":
            self.replies.append(reply)
        return reply

    def __getattr__(self, name):
        return getattr(self._host, name)


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_the_bytes_that_leave_hold_the_counted_floats_and_no_value_of_the_data(rule):
    hosts = []

    def wrap(host):
        hosts.append(OverheardHost(host))
        return hosts[-1]

    parts = em.Partitioned(columns=blocks())
    with Federation(InProcess(sites_of(parts), wrap), split="columns") as fed:
        report = model_of(rule).fit(fed).report_
    for host, name, X in zip(hosts, parts.names, parts.parts, strict=True):
        messages = [wire.loads(wire.loads(reply)["ok"].tobytes()) for reply in host.replies]
        arrays = [v for m in messages for v in m.values() if isinstance(v, np.ndarray)]
        assert sum(array.size for array in arrays) == sum(report.reveals[name].values())
        heard = b"".join(host.replies)
        assert not any(value.tobytes() in heard for value in X.ravel())
