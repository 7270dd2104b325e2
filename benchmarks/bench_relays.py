"""A million devices by simulation: what each link carries and how long rounds take through relays.

    python benchmarks/bench_relays.py                  # trees of depth 1, 2 and 3
    python benchmarks/bench_relays.py --devices 100000

Nothing is fitted. Rounds, and numbers up and down in each, are those of the schedule of
`DisKPCA(landmarks="drawn")`, in which all that parties send is sums, but for their sizes. A relay
copies what comes down to everybody below and adds up what comes up; sizes it hands on one by one.
What adding up a message takes is measured here, in the wire form. Links and devices are assumed:
their numbers stand below. Under masks the devices below a relay are a circle of their own, whose
sum the relay opens.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from _common import show

import eigenmesh as em
from eigenmesh.runtime import wire
from eigenmesh.runtime.schedule import Parties, forecast

DEPTHS = (1, 2, 3)  # with as many below each node
CORE_BYTES, CORE_SECONDS = 125e6, 0.02  # a second, of coordinator and relays; one way
DEVICE_DOWN, DEVICE_UP, DEVICE_SECONDS = 2.5e6, 0.625e6, 0.05
WORK_SECONDS, SPREAD = 0.1, 0.5  # of a device's step: median, and deviation of its logarithm
COUNT_BYTES = 200  # of what a party says of its size, with its header
MASK_EACH, MASK_ONCE = 2400, 128  # bytes: a sum and device; a run and device of the circle
COLUMNS, LANDMARKS, COMPONENTS = 28, 100, 10


class Round(NamedTuple):
    """What one device gets and sends."""

    step: str
    down: int  # floats
    up: int
    is_gathered: bool  # handed on one by one, not added up


def rounds() -> list[Round]:
    """Those of the schedule, for a party among others."""
    shape = (200, COLUMNS)
    parts = em.Partitioned(rows=[np.ones(shape)] * 4)
    kpca = em.DisKPCA(COMPONENTS, kernel="rbf", gamma=0.1, landmarks="drawn", n_landmarks=LANDMARKS)
    study = em.study(kpca, parts)
    (run,) = study.runs
    ledger = forecast(run.tree, Parties(study.parties, (shape,) * 4))
    name, down = study.parties[0], 0
    order: list[Round] = []
    for entry in ledger.entries:
        if entry.receiver == name:
            down = entry.floats
        elif entry.sender == name:
            label = entry.step.split(".")[1]
            order.append(Round(label, down, entry.floats, label == "count_rows"))
            down = 0
    return order


def size(floats: int) -> int:
    """Bytes of a message with so many."""
    return len(wire.dumps({"numbers": np.zeros(floats), "n_rows": 1}))


def seconds_to_add(floats: int) -> float:
    """What a relay's processor takes to read a message and to add it up."""
    data, total = wire.dumps({"numbers": np.ones(floats), "n_rows": 1}), np.zeros(floats)
    times = []
    for _ in range(50):
        begin = time.process_time()
        total += wire.loads(data)["numbers"]
        times.append(time.process_time() - begin)
    return float(np.median(times))


class Times(NamedTuple):
    """When a round's last message is in: of all devices, and of all but the slowest twentieth."""

    of_all: float
    of_most: float


def play(round_: Round, fans: Sequence[int], rng: np.random.Generator) -> Times:
    """One round from the coordinator's request to its sum."""
    down = size(round_.down)
    starts = np.zeros(1)
    for fan in fans:  # a node sends to those below one after the other
        turns = (np.arange(fan) + 1) * down / CORE_BYTES
        starts = (starts[:, None] + turns).ravel() + CORE_SECONDS
    up = COUNT_BYTES if round_.is_gathered else size(round_.up)
    work = WORK_SECONDS * np.exp(SPREAD * rng.standard_normal(len(starts)))
    travel = DEVICE_SECONDS * np.exp(SPREAD * rng.standard_normal(len(starts)))
    ends = starts + down / DEVICE_DOWN + work + travel + up / DEVICE_UP
    patience = np.quantile(ends, 0.95)
    adding = 0.0 if round_.is_gathered else seconds_to_add(round_.up)
    both = []
    for arrivals in (ends, np.minimum(ends, patience)):
        below = 1
        for fan in reversed(fans):
            each = (up * below if round_.is_gathered else up) / CORE_BYTES + adding
            queue = np.sort(arrivals.reshape(-1, fan), axis=1)
            # Messages are read one at a time, as they come.
            left = np.arange(fan, 0, -1)
            arrivals = (queue + left * each).max(axis=1) + CORE_SECONDS
            below *= fan
        both.append(float(arrivals[0]))
    return Times(*both)


def traffic(fans: Sequence[int], plan: Sequence[Round], masked: bool) -> list[tuple[float, float]]:
    """Bytes that a node of each level gets from below and sends there in a fit; devices last."""
    up_sum = sum(size(one.up) for one in plan if not one.is_gathered)
    down = sum(size(one.down) for one in plan)
    n_sums = sum(not one.is_gathered for one in plan)
    levels, n_devices = [], int(np.prod(fans))
    for depth, fan in enumerate(fans):
        n_devices //= fan  # below each of those below
        of_devices = masked and depth == len(fans) - 1
        more = MASK_EACH * n_sums if of_devices else 0
        members = MASK_ONCE * fan if of_devices else 0
        levels.append((fan * (up_sum + COUNT_BYTES * n_devices + more), fan * (down + members)))
    fan = fans[-1]
    extra = (MASK_EACH * n_sums, MASK_ONCE * fan) if masked else (0, 0)
    return [*levels, (up_sum + COUNT_BYTES + extra[0], down + extra[1])]


def in_words(number: float) -> str:
    """Bytes, short."""
    for unit in ("B", "kB", "MB", "GB"):
        if number < 1000:
            return f"{number:.3g} {unit}"
        number /= 1000
    return f"{number:.3g} TB"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--devices", type=int, default=1_000_000)
    n_devices = parser.parse_args().devices
    plan, rng = rounds(), np.random.default_rng(0)
    trees = {depth: (round(n_devices ** (1 / depth)),) * depth for depth in DEPTHS}
    links, spans = [], {}
    for depth, fans in trees.items():
        spans[depth] = [play(one, fans, rng) for one in plan]
        all_, most = (sum(times[i] for times in spans[depth]) for i in (0, 1))
        for masked in (False, True):
            top, *relays, device = traffic(fans, plan, masked)
            lines = [f"{in_words(a)}, {in_words(b)}" for a, b in (top, device)]
            between = "; ".join(f"{in_words(a)}, {in_words(b)}" for a, b in relays) or "–"
            times = ["", ""] if masked else [f"{all_:.0f} s", f"{most:.0f} s"]
            fan = f"{depth} of {fans[0]:,}"
            mask = "yes" if masked else "no"
            links.append([fan, mask, lines[0], between, lines[1], *times])
    columns = ["tree", "masked", "coordinator", "a relay", "a device", "fit", "of 95 %"]
    show(f"{n_devices:,} devices: bytes up, down in a fit, and its time", columns, links)
    lines = [
        [
            one.step,
            "–" if not one.down else in_words(size(one.down)),
            "one by one" if one.is_gathered else in_words(size(one.up)),
            *(f"{spans[depth][i].of_all:.1f} s" for depth in trees),
        ]
        for i, one in enumerate(plan)
    ]
    heads = ["round", "down a link", "up a link", *(f"depth {depth}" for depth in trees)]
    show("Rounds, until the last device's message is in", heads, lines)


if __name__ == "__main__":
    main()
