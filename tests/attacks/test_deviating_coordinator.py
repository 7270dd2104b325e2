"""Ways in which a coordinator once got rows that nobody had allowed, tried against real hosts.

Each is tried on the hosts of a legal fit, which has been lived through up to where the attack
comes; what is left open is what the audit of the fit says.
"""

from dataclasses import replace

import numpy as np
import pytest
from tests.contracts.fits import FITS, NAMES, X
from tests.contracts.intrusions import fresh_host, runs_at

from eigenmesh.runtime import wire
from eigenmesh.runtime.message import decode, encode, fields_of
from eigenmesh.runtime.party import steps_of
from eigenmesh.runtime.protocol import known_roles
from eigenmesh.stages.align import CommonRows
from eigenmesh.stages.kmeans_party import KMeansSetup

pytestmark = pytest.mark.filterwarnings("ignore")
NUMBERS = {fit.name: i for i, fit in enumerate(FITS)}


def lived_through(name, until):
    """A host in the first run of a fit that asks for `until`, just before it does."""
    number = NUMBERS[name]
    for run in runs_at(number, "south"):
        steps = [received.tree.get("step") or received.tree.get("send") for received in run]
        if until in steps:
            host = fresh_host(number, "south")
            for received in run[: steps.index(until)]:
                assert "ok" in host.send(received)
            return host, run[steps.index(until)], run
    raise AssertionError(f"{name} never asks for {until}")


def changed(received, **fields):
    """The message of a request with other numbers in it."""
    tree = received.tree
    takes = steps_of(known_roles()[tree["role"]])[tree["step"]].signature.takes
    message = decode(takes, tree["message"].data)
    return np.frombuffer(encode(replace(message, **fields)), np.uint8)


def as_message(message):
    return np.frombuffer(encode(message), np.uint8)


SCHEDULED = sorted(name for name in known_roles() if name != "RowHolder")


@pytest.mark.parametrize("role", SCHEDULED)
def test_no_other_role_joins_a_run(role):
    host, _, run = lived_through("diskpca-uniform", "draw_rows")
    enlisting = run[0].tree
    fields = {"role": role, "steps": [], "message": enlisting["message"]}
    assert "error" in host.send(run[0], **fields)  # with the run's own study
    without = {key: value for key, value in enlisting.items() if key not in ("study", "fit")}
    request = wire.dumps({**without, **fields, "run": "another", "turn": 999})
    assert "error" in wire.loads(host.host.handle(request))  # or in a run of its own without one


@pytest.mark.parametrize("name", ["vfed-pca-paper", "vfed-pca"])
def test_one_call_carries_no_block_of_unit_vectors(name):
    until = "next_pair" if name == "vfed-pca-paper" else "keep_loadings"
    host, received, _ = lived_through(name, until)
    n = len(X)
    for block in (np.eye(n), np.ones((n, 5))):
        field = "scores" if until == "keep_loadings" else "vector"
        try:
            message = changed(received, **{field: block})
        except ValueError:  # no coordinator can even write it
            continue
        assert "error" in host.send(received, message=message)


@pytest.mark.parametrize("name", ["diskpca-uniform", "diskpca-centroids", "kernel-pca-rows"])
def test_landmarks_are_as_many_as_the_study_says(name):
    step = "draw_rows" if name == "diskpca-uniform" else "local_centroids"
    host, received, _ = lived_through(name, step)
    for count in (len(X), 10**6):
        assert "error" in host.send(received, message=changed(received, n_rows=count))
    assert "ok" in host.send(received)
    assert "error" in host.send(received)  # once


def test_sums_with_other_landmarks_are_not_asked_for_again():
    host, received, run = lived_through("diskpca-uniform", "centred_gram")
    assert "ok" in host.send(received)
    for seed in range(5):
        rng = np.random.default_rng(seed)
        message = decode(
            steps_of(known_roles()["RowHolder"])["centred_gram"].signature.takes,
            received.tree["message"].data,
        )
        others = as_message(replace(message, dense=rng.normal(size=message.dense.shape)))
        assert "error" in host.send(received, message=others)
    assert all("error" in host.send(earlier) for earlier in run[1:])


@pytest.mark.parametrize("setup", [{"points": "targets"}, {"labels": "targets"}])
def test_keys_of_the_owners_store_are_the_studys(setup):
    number = NUMBERS["kmeans-rows"]
    for run in runs_at(number, "south"):
        first = run[0]
        if first.tree["role"] != "PointHolder":
            continue
        own = decode(KMeansSetup, first.tree["message"].data)
        host = fresh_host(number, "south")
        host.host.site.store["targets"] = {"points": X, "targets": X}
        assert "error" in host.send(first, message=as_message(replace(own, **setup)))
        return
    raise AssertionError("no run of points")


@pytest.mark.parametrize("rows", [[0, 0, 0, 0], [0, 1, 1, 2], [-1, 0]])
def test_samples_are_not_taken_twice(rows):
    role = next(r for r in known_roles().values() if "take_rows" in steps_of(r))
    takes = steps_of(role)["take_rows"].signature.takes
    assert takes is CommonRows
    names = [field.name for field in fields_of(CommonRows)]
    with pytest.raises(ValueError, match=r"."):
        encode(CommonRows(**dict.fromkeys(names, np.array(rows))))


@pytest.mark.parametrize("name", ["diskpca-uniform", "vfed-pca", "one-shot-linear"])
def test_a_run_that_is_over_is_not_asked_again(name):
    number = NUMBERS[name]
    (run, *_) = runs_at(number, "south")
    host = fresh_host(number, "south")
    for received in run:
        assert "ok" in host.send(received)
    for received in run:
        assert "error" in host.send(received)


def test_refusals_tell_nothing_of_other_parties_rows():
    host, received, _ = lived_through("diskpca-uniform", "draw_rows")
    refusal = host.send(received, message=changed(received, n_rows=10**6))
    values = {f"{value:.6g}" for value in X.ravel()}
    assert not any(value in refusal["reason"] for value in values)
    assert all(name not in refusal["reason"] for name in NAMES if name != "south")
