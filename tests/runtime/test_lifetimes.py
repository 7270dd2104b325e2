"""How long things last: turns, runs, lost parties, state files, and what a subclass offers."""

import numpy as np
import pytest

import eigenmesh as em
from eigenmesh.engines.faulty import Fault
from eigenmesh.errors import InputError, MessageRefused, PartyFailed, PartyLost, StaleRound
from eigenmesh.graphs.gossip_average import AverageSetup, gossip_average
from eigenmesh.runtime import wire
from eigenmesh.runtime.host import Host
from eigenmesh.runtime.message import Message, encode
from eigenmesh.runtime.party import Party, step, steps_of
from eigenmesh.runtime.protocol import protocol
from eigenmesh.runtime.requests import error_from
from eigenmesh.runtime.schedule import Scope
from eigenmesh.runtime.site import Site
from eigenmesh.runtime.study import stage
from eigenmesh.stages.count import survey

ROWS = [np.arange(6.0).reshape(3, 2) + i for i in range(4)]


def request(op, run, turn, **fields):
    return wire.dumps({"op": op, "run": run, "turn": turn, **fields})


def enlisting(run, turn, name="a"):
    setup = np.frombuffer(encode(AverageSetup()), np.uint8)
    scope = Scope((name, "b"), "rows", edges=((0, 1),))
    study = stage(gossip_average, 0).study(scope).document.decode()
    fields = {"role": "AveragingNode", "steps": [], "message": setup, "study": study}
    return request("enlist", run, turn, **fields)


def error_of(reply):
    tree = wire.loads(reply)
    return error_from(tree, "a") if "error" in tree else None


def host(**options):
    return Host(Site("a", opens=lambda: ROWS[0], **options), 0, ("a", "b"))


def test_a_coordinator_that_starts_again_at_turn_one_is_heard():
    guarded = host()
    for run in ("first", "second"):
        assert error_of(guarded.handle(enlisting(run, 1))) is None
        asked = request("step", run, 2, role="AveragingNode", step="tell_mean")
        assert error_of(guarded.handle(asked)) is None


def test_a_late_request_of_an_old_run_does_not_begin_it_again():
    guarded = host()
    guarded.handle(enlisting("first", 1))
    guarded.handle(enlisting("second", 5))
    for turn in (1, 6, 99):
        assert type(error_of(guarded.handle(enlisting("first", turn)))) is StaleRound


def test_asking_whether_a_policy_allows_disturbs_no_run():
    guarded = host()
    guarded.handle(enlisting("run", 3))
    question = request("require", "", 1, role="AveragingNode", steps=["tell_mean"])
    assert error_of(guarded.handle(question)) is None
    asked = request("step", "run", 4, role="AveragingNode", step="tell_mean")
    assert error_of(guarded.handle(asked)) is None


def test_a_damaged_state_file_names_party_file_and_remedy(tmp_path):
    guarded = host(state_dir=tmp_path)
    guarded.handle(enlisting("run", 1))
    (path,) = tmp_path.glob("*.state")
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(PartyFailed, match=r"'a'.*a\.state.*remove"):
        host(state_dir=tmp_path)


def test_a_site_may_have_any_name(tmp_path):
    site = Site("ward 3/../b", opens=lambda: ROWS[0], state_dir=tmp_path)
    Host(site, 0, (site.name, "b")).handle(enlisting("run", 1, site.name))
    assert {path.parent for path in tmp_path.rglob("*")} == {tmp_path}
    assert len(list(tmp_path.glob("*.state"))) == 1
    Host(site, 0, (site.name, "b"))


def test_a_lost_party_is_back_in_the_next_run_but_not_in_runs_recorded_together():
    faults = [Fault("lose", party="party-1", round=1)]
    with em.federation(em.Partitioned(rows=ROWS), on_loss="survivors", faults=faults) as fed:
        with fed.recording():
            assert "party-1" in fed.run(survey).lost
            assert "party-1" in fed.run(survey).lost
        assert fed.run(survey).parties == fed.parties
        assert fed.lost == {}


def test_a_run_tells_whose_messages_were_reused_or_dropped():
    faults = [Fault("lose", party="party-1", round=r) for r in (1, 3)]
    with em.federation(
        em.Partitioned(rows=ROWS), topology="ring", on_loss="reuse", faults=faults
    ) as fed:
        run = fed.run(gossip_average, 5)
    assert run.dropped == {"party-1": 2}  # nothing to reuse in the first round
    assert run.reused == {"party-1": 2}


def test_a_fault_for_a_party_that_is_not_there_is_refused():
    with pytest.raises(InputError, match="'party-9'"):
        em.federation(em.Partitioned(rows=ROWS), faults=[Fault("kill", party="party-9")])


class Load(Message, reveals="moments"):
    weight: float


class LoadSetup(Message, reveals=None):
    pass


class Loaded(Party):
    Setup = LoadSetup

    @step
    def weigh(self) -> Load:
        return Load(1.5e308)

    @step
    def private(self) -> Load:
        return Load(1.0)


class Discreet(Loaded):
    def private(self):
        """No longer a step."""


@protocol("test-weigh", roles=(Loaded,))
def weigh(fed):
    fed.enlist(Loaded, LoadSetup())
    return fed.total(Loaded.weigh)


def test_a_sum_that_overflows_is_refused():
    with em.federation(em.Partitioned(rows=ROWS)) as fed:
        with pytest.raises(MessageRefused, match="finite|rescale the columns"):
            fed.run(weigh)


def test_a_step_overridden_without_the_mark_is_no_longer_offered():
    assert set(steps_of(Loaded)) == {"weigh", "private"}
    assert set(steps_of(Discreet)) == {"weigh"}
    assert steps_of(Discreet)["weigh"].role is Discreet


def test_every_party_lost_says_who_and_why():
    with em.federation(
        em.Partitioned(rows=ROWS), on_loss="survivors", faults=[Fault("kill")]
    ) as fed:
        with pytest.raises(PartyLost, match="party-0.*party-3"):
            fed.run(survey)
