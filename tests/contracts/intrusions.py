"""Requests that cannot come now, sent to a host that lives through a legal run."""

from __future__ import annotations

import warnings
from functools import cache

import numpy as np
from tests.contracts.fits import FITS, NAMES
from tests.contracts.requests import Replayed, different, follows, key_of, recorded

from eigenmesh.runtime.message import decode, encode, fields_of
from eigenmesh.runtime.party import steps_of
from eigenmesh.runtime.protocol import known_roles
from eigenmesh.runtime.requests import MASK_ROUNDS
from eigenmesh.runtime.site import Site
from eigenmesh.runtime.study import read_study


@cache
def legal_run(number):
    """What the hosts of a fit were sent, what their sites are, and all that these ever kept."""
    fit, calls, stores, sites = FITS[number], {}, {}, {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with fit.open() as fed, recorded(calls, stores):
            fit.run(fed)
            sites = dict(fed.local_sites())
    return calls, sites, stores


def runs_at(number, party):
    """The requests of each run at one host, first to last."""
    calls, _, _ = legal_run(number)
    runs = {}
    for received in calls[party]:
        tree = received.tree
        if tree["op"] not in ("require", "dismiss"):
            runs.setdefault(tree["run"], []).append(received)
    return list(runs.values())


def fresh_host(number, party):
    _, sites, stores = legal_run(number)
    site = sites[party]
    again = Site(
        site.name,
        site.opens,
        identifies=site.identifies,
        names_columns=site.names_columns,
        store={key: dict(value) for key, value in stores[party].items()},
        matcher=site.matcher,
        left_by_studies=dict.fromkeys(site.store),
    )
    return Replayed(again, NAMES.index(party), tuple(NAMES))


def sequence_with_intrusions(number, runs, rng):
    """Live through one run; before some requests send others that cannot come then.

    Of a masked sum the first round is lived through. The others are of keys that were made for it:
    they can never come again.
    """
    host, run = fresh_host(number, "south"), runs[rng.integers(len(runs))]
    study = read_study(run[0].tree["study"])
    masked, left, told, attempts = study.scope.secure, [study.tree], {}, 0
    stops = set(rng.integers(len(run), size=4).tolist())
    for i, received in enumerate(run):
        request = received.tree
        told = {**told, **request.get("told", {})}
        if i in stops and i:
            for intruder, changes in intruders(run, told, rng):
                key = key_of({**intruder.tree, **changes})
                legal = any(follows(node, key, told, masked) for node in left)
                if legal and not spoilt(changes, told):
                    continue
                reply = host.send(intruder, **changes)
                assert "error" in reply, (key, changes.keys())
                attempts += 1
        if request["op"] in MASK_ROUNDS:
            continue
        assert "ok" in (reply := host.send(received)), reply
        key = key_of(request)
        left = different([rest for node in left for rest in follows(node, key, told, masked)])
        assert left, f"the oracle does not know {key}"
    return attempts


def spoilt(changes, told):
    return "message" in changes or "neighbours" in changes or changes.get("told", told) != told


def intruders(run, told, rng):
    """Requests of the run at another time, of other roles, other steps, sizes and numbers."""
    for _ in range(6):
        received = run[rng.integers(len(run))]
        yield received, ({"told": told} if told and received.tree["op"] != "enlist" else {})
    names = sorted(known_roles())
    for _ in range(4):
        role = names[rng.integers(len(names))]
        steps = sorted(steps_of(known_roles()[role]))
        received = run[rng.integers(1, len(run))] if len(run) > 1 else run[0]
        if steps and received.tree["op"] in ("step", "sum"):
            yield received, {"role": role, "step": steps[rng.integers(len(steps))]}
    for received in [run[i] for i in rng.integers(len(run), size=4)]:
        tree = received.tree
        if tree["op"] in ("step", "sum"):
            yield received, {"op": "step" if tree["op"] == "sum" else "sum"}
            if (larger := swollen(tree)) is not None:
                yield received, {"message": larger}
        if tree["op"] == "exchange":
            yield received, {"neighbours": [0, 2, 1]}
        if tree.get("told"):
            yield received, {"told": {name: n + 1 for name, n in tree["told"].items()}}


def swollen(tree):
    """A message with ten times as many numbers along every axis that a name stands for."""
    step = steps_of(known_roles()[tree["role"]])[tree["step"]]
    takes = step.signature.takes
    if takes is None or tree.get("message") is None:
        return None
    message = decode(takes, tree["message"].data)
    fields, grew = {}, False
    for field in fields_of(takes):
        value = getattr(message, field.name)
        if isinstance(value, np.ndarray) and field.kind and value.size:
            value = np.concatenate([value] * 10, axis=value.ndim - 1)
            grew = True
        fields[field.name] = value
    if not grew:
        return None
    try:
        return np.frombuffer(encode(takes(**fields)), np.uint8)
    except ValueError:  # it could not have been sent by an honest coordinator either
        return None
