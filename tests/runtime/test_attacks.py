"""What a deviating coordinator tried against hosts, and no longer gets."""

import numpy as np
import pytest

from eigenmesh.graphs.gossip_average import AverageSetup, gossip_average
from eigenmesh.runtime import wire
from eigenmesh.runtime.host import Host
from eigenmesh.runtime.message import encode
from eigenmesh.runtime.schedule import Scope
from eigenmesh.runtime.site import Site, SiteView
from eigenmesh.runtime.study import Study, stage

NAMES = ("a", "b", "c")
TRIANGLE = ((0, 1), (0, 2), (1, 2))
ROWS = np.random.default_rng(0).normal(size=(20, 4))


def study(n_rounds=2, **scope):
    return stage(gossip_average, n_rounds).study(
        Scope(NAMES, "rows", **{"edges": TRIANGLE, **scope})
    )


class Attacker:
    def __init__(self, document=None, run="r", number=0):
        self.host = Host(Site(NAMES[number], opens=lambda: ROWS), number, NAMES)
        self.document = (study() if document is None else document).document.decode()
        self.run, self.turn = run, 0

    def request(self, op, **fields):
        self.turn += 1
        return wire.dumps({"op": op, "run": self.run, "turn": self.turn, **fields})

    def send(self, op, **fields):
        return wire.loads(self.host.handle(self.request(op, **fields)))

    def enlist(self, **fields):
        setup = np.frombuffer(encode(AverageSetup()), np.uint8)
        fields = {"role": "AveragingNode", "steps": [], "message": setup, **fields}
        return self.send("enlist", **{"study": self.document, **fields})

    def ask(self):
        return self.send("step", role="AveragingNode", step="tell_mean", message=None)

    def exchange(self, **changes):
        fields = {"role": "AveragingNode", "send": "offer_mean", "receive": "mix"}
        fields |= {"neighbours": [1, 2], "on_loss": "raise", "max_age": 3, **changes}
        reply, outbox = self.host.offer(self.request("exchange", **fields))
        return outbox is not None, reply

    def undo(self, turn):
        return self.send("rollback", undo=turn)


def test_a_run_without_a_name_is_no_way_around_the_study():
    attacker = Attacker(run="")
    assert "error" in attacker.enlist()
    assert "error" in attacker.ask()


def test_an_exchange_is_not_undone_to_ask_for_it_again_without_end():
    attacker = Attacker(study(n_rounds=1))
    attacker.enlist()
    answers = 0
    for _ in range(20):
        offered, _ = attacker.exchange()
        answers += offered
        attacker.undo(attacker.turn)
    assert answers <= 1 + len(NAMES)


def exchanged(attackers, **changes):
    """A whole exchange between the hosts of all attackers."""
    fields = {"role": "AveragingNode", "send": "offer_mean", "receive": "mix"}
    fields |= {"on_loss": "raise", "max_age": 3, **changes}
    near = [[j for j in range(len(NAMES)) if j != i] for i in range(len(NAMES))]
    requests = [
        a.request("exchange", **fields, neighbours=n) for a, n in zip(attackers, near, strict=True)
    ]
    boxes = [a.host.offer(request)[1] for a, request in zip(attackers, requests, strict=True)]
    inboxes = [{j: boxes[j][i] for j in n} for i, n in enumerate(near)]
    return [
        wire.loads(a.host.accept(request, inbox))
        for a, request, inbox in zip(attackers, requests, inboxes, strict=True)
    ]


def three_attackers(**options):
    attackers = [Attacker(study(**options), number=i) for i in range(len(NAMES))]
    for attacker in attackers:
        assert "ok" in attacker.enlist()
    return attackers


def test_what_was_answered_since_keeps_an_exchange_from_being_undone():
    attackers = three_attackers(n_rounds=1, on_loss="reuse")
    assert all("ok" in receipt for receipt in exchanged(attackers, on_loss="reuse"))
    done = attackers[0].turn
    assert "ok" in attackers[0].ask()
    assert "error" in attackers[0].undo(done)


def test_an_exchange_that_was_begun_is_ended_or_undone_before_anything_else():
    """Else a party that hears of nobody goes on as if its own numbers were the average."""
    attacker = Attacker(study(n_rounds=2))
    attacker.enlist()
    assert attacker.exchange()[0]
    begun = attacker.turn
    assert not attacker.exchange()[0]
    assert "error" in attacker.ask()
    assert "ok" in attacker.undo(begun)
    assert attacker.exchange()[0]


def test_nothing_of_one_run_is_undone_in_another():
    attacker = Attacker()
    attacker.enlist()
    attacker.exchange()
    of_first = attacker.turn
    attacker.run = "another"
    assert "ok" in attacker.enlist()
    attacker.undo(of_first)
    assert "error" in attacker.ask()  # two exchanges come first


@pytest.mark.parametrize(
    "changes",
    [{"on_loss": "survivors"}, {"max_age": 4}, {"neighbours": [1, 1]}, {"neighbours": [5]}],
)
def test_losses_and_neighbours_are_the_studys(changes):
    attacker = Attacker()
    attacker.enlist()
    assert not attacker.exchange(**changes)[0]
    assert attacker.exchange()[0]


@pytest.mark.parametrize(
    "scope",
    [
        {"edges": ((0, 9),)},
        {"edges": ((1, 0),)},
        {"edges": ((1, 1),)},
        {"on_loss": "banana"},
        {"split": "banana"},
        {"max_age": 10**9},
        {"max_age": True},
        {"on_loss": "skip"},
    ],
    ids=str,
)
def test_studies_that_no_run_can_have_are_refused(scope):
    unsound = Scope(NAMES, **{"split": "rows", "edges": TRIANGLE, **scope})
    attacker = Attacker(Study(gossip_average, {"n_rounds": 1}, unsound))
    assert "error" in attacker.enlist()


@pytest.mark.parametrize("n_rounds", [float("inf"), float("nan"), 2.5, True, -1, "2"])
def test_loops_are_of_whole_numbers(n_rounds):
    scope = Scope(NAMES, "rows", edges=TRIANGLE)
    attacker = Attacker()
    attacker.document = Study(gossip_average, {"n_rounds": n_rounds}, scope).document.decode()
    assert "error" in attacker.enlist()


def test_without_a_graph_nobody_is_a_neighbour():
    attacker = Attacker(study(edges=None))
    attacker.enlist()
    assert not attacker.exchange()[0]


def test_long_names_are_not_remembered():
    assert "error" in Attacker(run="x" * 1000).enlist()


def test_a_study_writes_over_nothing_that_the_owner_keeps():
    site = Site("a", opens=lambda: ROWS, store={"targets": {"targets": np.ones(3)}})
    view = SiteView(site, 0, NAMES)
    view.keep("labels", {"labels": 1})
    view.keep("labels", {"labels": 2})
    with pytest.raises(ValueError, match="owner"):
        view.keep("targets", {"labels": 3})


def test_what_studies_leave_in_a_store_is_bounded():
    site = Site("a", opens=lambda: ROWS, store={"mine": {}})
    view = SiteView(site, 0, NAMES)
    for i in range(1500):
        view.keep(str(i), {"x": i})
    assert len(site.store) == 1001
    assert "mine" in site.store
    assert "1499" in site.store
