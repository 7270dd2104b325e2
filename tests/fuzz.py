"""Random and damaged input for all that reads bytes from elsewhere: `make fuzz`, seeded, timed.

Hosts never raise; wire, messages, records, model files and readers raise our own errors only.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))
from tests.contracts.fits import FITS, X
from tests.contracts.intrusions import fresh_host, runs_at

import eigenmesh as em
from eigenmesh.estimators import model_file
from eigenmesh.runtime import records, wire
from eigenmesh.runtime.message import decode
from eigenmesh.runtime.party import steps_of
from eigenmesh.runtime.protocol import known_roles
from eigenmesh.runtime.study import read_study

Generator = np.random.Generator
HOSTED = ("diskpca-uniform", "one-shot-linear", "vfed-pca", "gossip")


def damaged(data: bytes, rng: Generator) -> bytes:
    """Bytes with some of them changed, left out, doubled or cut off; or any bytes at all."""
    changed, size = bytearray(data), len(data)
    match rng.integers(6):
        case 0:
            return rng.bytes(int(rng.integers(0, 200)))
        case 1:
            return bytes(changed[: rng.integers(size)])
        case 2:
            at, length = rng.integers(size), rng.integers(1, 40)
            del changed[at : at + length]
        case 3:
            at, length = rng.integers(size), rng.integers(1, 40)
            changed[at:at] = changed[at : at + length]
        case _:
            for at in rng.integers(size, size=rng.integers(1, 8)):
                changed[at] = rng.integers(256)
    return bytes(changed)


_ODD = [None, True, -1, 0, 2**63 - 1, 1.5, float("inf"), "", "x" * 300, "\x00", [], {}, [[]]]


def twisted(tree: Any, rng: Generator, depth: int = 0) -> Any:
    """A tree in which something is something else."""
    if isinstance(tree, dict) and tree and (depth == 0 or rng.random() < 0.8):
        key = list(tree)[rng.integers(len(tree))]
        if rng.random() < 0.15:
            return {k: v for k, v in tree.items() if k != key}
        return {**tree, key: twisted(tree[key], rng, depth + 1)}
    if isinstance(tree, list) and tree and rng.random() < 0.7:
        at = int(rng.integers(len(tree)))
        return [*tree[:at], twisted(tree[at], rng, depth + 1), *tree[at + 1 :]]
    if isinstance(tree, np.ndarray) and rng.random() < 0.7:
        return _other_array(tree, rng)
    return _ODD[rng.integers(len(_ODD))]


def _other_array(values: Any, rng: Generator) -> Any:
    if values.dtype == np.uint8 and values.size and rng.random() < 0.7:
        return np.frombuffer(damaged(values.tobytes(), rng), np.uint8)
    forms = [values[:0], values.reshape(-1), values.real.astype(np.int16), values[None]]
    return forms[rng.integers(len(forms))]


def ours(action: Callable[[], Any]) -> str:
    """Whether it went well or was refused; any other error is a finding."""
    try:
        action()
    except em.EigenmeshError:
        return "refused"
    return "accepted"


# What is tried.


def fuzz_host(rng: Generator) -> str:
    """A host lives through a part of a run, and is sent damaged requests meanwhile."""
    name = HOSTED[rng.integers(len(HOSTED))]
    number = next(i for i, fit in enumerate(FITS) if fit.name == name)
    host, (run, *_) = fresh_host(number, "south"), runs_at(number, "south")
    for received in run[: rng.integers(len(run) + 1)]:
        host.send(received)
    tree = {**run[rng.integers(len(run))].tree, "turn": host.turn + 1}
    request = wire.dumps(tree)
    if rng.random() < 0.5:
        request = damaged(request, rng)
    else:
        try:
            request = wire.dumps(twisted(tree, rng))
        except (TypeError, ValueError):  # what cannot be written cannot be sent
            return "not written"
    for reply in (host.host.handle(request), host.host.offer(request)[0]):
        answer = wire.loads(reply) if reply else {"ok": None}
        assert "ok" in answer or "error" in answer
    return "answered"


def fuzz_wire(rng: Generator) -> str:
    """A tree in wire form."""
    tree = {"a": rng.normal(size=(3, 2)), "b": [1, "two", {"c": 3.5}], "d": np.arange(4)}
    return ours(lambda: wire.loads(damaged(wire.dumps(tree), rng)))


@cache
def _messages() -> list[tuple[Any, bytes]]:
    """Messages of real runs, with the types that their receivers expect."""
    pairs = []
    for number, fit in enumerate(FITS):
        if fit.name not in HOSTED:
            continue
        for run in runs_at(number, "south"):
            for received in run:
                tree = received.tree
                if tree["op"] == "step" and tree.get("message") is not None:
                    step = steps_of(known_roles()[tree["role"]])[tree["step"]]
                    pairs.append((step.signature.takes, tree["message"].tobytes()))
    return pairs


def fuzz_message(rng: Generator) -> str:
    """A message of a step."""
    takes, data = _messages()[rng.integers(len(_messages()))]
    if rng.random() < 0.5:
        return ours(lambda: decode(takes, damaged(data, rng)))
    try:
        twisted_data = wire.dumps(twisted(wire.loads(data), rng))
    except (TypeError, ValueError):
        return "not written"
    return ours(lambda: decode(takes, twisted_data))


@cache
def _model_bytes(rows: bool) -> bytes:
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        path = Path(folder) / "model.em"
        parts = em.split(X, 3, by="rows" if rows else "columns")
        em.KernelPCA(2, kernel="rbf", gamma=0.05, random_state=0).fit(parts).save(path)
        return path.read_bytes()


@cache
def _record_bytes() -> bytes:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = em.OneShotKPCA(2, kernel="rbf", gamma=0.05).fit(em.split(X, 3, by="columns"))
    return records.dumps({"model": model.model_, "X": X})


def fuzz_record(rng: Generator) -> str:
    """Records, as results travel: damaged, or whole with other things in them."""
    if rng.random() < 0.2:
        return ours(lambda: records.loads(damaged(_record_bytes(), rng)))
    try:
        data = wire.dumps(_twisted_deeply(wire.loads(_record_bytes()), rng))
    except (TypeError, ValueError):
        return "not written"
    return ours(lambda: records.loads(data))


def fuzz_model_file(rng: Generator) -> str:
    """A model file: damaged, or whole with other things in it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.em"
        path.write_bytes(_model_bytes(bool(rng.integers(2))))
        if rng.random() < 0.2:
            path.write_bytes(damaged(path.read_bytes(), rng))
            return ours(lambda: em.load(path))
        tree = model_file.read(path, model_file.MODEL)
        try:
            twisted = _twisted_deeply(tree, rng)
            model_file.write([model_file.ModelFile(path, model_file.MODEL, twisted)])
        except (TypeError, ValueError):
            return "not written"
        return ours(lambda: em.load(path))


def _twisted_deeply(tree: Any, rng: Generator) -> Any:
    for _ in range(rng.integers(1, 4)):
        tree = twisted(tree, rng)
    return tree


@cache
def _study_text() -> str:
    (run, *_) = runs_at(0, "south")
    return str(run[0].tree["study"])


def fuzz_study(rng: Generator) -> str:
    """The document of a study."""
    text = damaged(_study_text().encode(), rng).decode("utf-8", "replace")
    return ours(lambda: read_study(text).require_built())


def fuzz_reader(rng: Generator) -> str:
    """Files of data: a damaged one is refused with its name, or read as what it says."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"party.{('npy', 'npz', 'csv')[rng.integers(3)]}"
        _write_table(path)
        path.write_bytes(damaged(path.read_bytes(), rng))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ours(lambda: em.Partitioned(rows=[path]).matched().shapes)


def _write_table(path: Path) -> None:
    if path.suffix == ".npy":
        np.save(path, X)
    elif path.suffix == ".npz":
        np.savez(path, X=X)
    else:
        np.savetxt(path, X, delimiter=",", header="a,b,c,d,e,f", comments="")


TARGETS: dict[str, Callable[[Generator], str]] = {
    "host": fuzz_host,
    "wire": fuzz_wire,
    "message": fuzz_message,
    "record": fuzz_record,
    "model file": fuzz_model_file,
    "study": fuzz_study,
    "reader": fuzz_reader,
}


def fuzz(target: str, seconds: float, seed: int) -> Counter[str]:
    """What became of as many inputs as there is time for; raises at the first finding."""
    outcomes: Counter[str] = Counter()
    started, case = time.monotonic(), 0
    while time.monotonic() - started < seconds or not case:
        try:
            outcomes[TARGETS[target](np.random.default_rng((seed, case)))] += 1
        except Exception as error:
            raise AssertionError(f"fuzz {target}, seed {seed}, case {case}: {error!r}") from error
        case += 1
    return outcomes


def main() -> None:
    """All targets, in equal shares of the time."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    for target in TARGETS:
        share = options.seconds / len(TARGETS)
        print(f"{target}: {dict(fuzz(target, share, options.seed))}")


if __name__ == "__main__":
    import logging

    logging.disable(logging.CRITICAL)  # hosts log what fails in them, at length
    main()
