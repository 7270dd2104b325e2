"""Three clinics of the demonstration: their files, and an engine whose parties are processes."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eigenmesh.errors import EigenmeshError
from eigenmesh.reports.demo.clinic import read_frame, write_frame
from eigenmesh.runtime.engine import Engine, Lost, Reply

NAMES = ("north", "south", "west")
SIZES = (3000, 2000, 1000)
N_COLUMNS = 60
N_GROUPS = 4
ID_COLUMN = "patient"
REFUSES = {"south": ("rows",)}  # what a clinic never lets out

_START = 300.0  # seconds for a process to open its file, on a machine with other work, too


@dataclass(frozen=True)
class Clinics:
    """The clinics' files; `X` and `groups` are what only the demonstration may see together."""

    files: tuple[Path, ...]
    X: NDArray[np.float64]
    groups: NDArray[np.int64]

    @property
    def parties(self) -> NDArray[np.int64]:
        """Of each row of X, the place of its clinic."""
        return np.repeat(np.arange(len(SIZES)), SIZES)


def write_files(folder: Path) -> Clinics:
    """Blood values of patients of four groups, a file a clinic."""
    rng = np.random.default_rng(20)
    n = sum(SIZES)
    groups = rng.integers(N_GROUPS, size=n)
    angle = 2 * np.pi * groups / N_GROUPS + rng.normal(0, 0.25, n)
    radius = 3 + rng.normal(0, 0.3, n)
    inner = np.column_stack([radius * np.cos(angle), radius * np.sin(angle), rng.normal(0, 0.6, n)])
    X = np.round(inner @ rng.normal(size=(3, N_COLUMNS)) + rng.normal(0, 0.5, (n, N_COLUMNS)), 4)
    files = tuple(folder / f"{name}.csv" for name in NAMES)
    ends = np.cumsum(SIZES)
    for file, start, end in zip(files, ends - SIZES, ends, strict=True):
        _write(file, X[start:end], int(start))
    return Clinics(files, X, groups)


def _write(file: Path, rows: NDArray[np.float64], start: int) -> None:
    names = ",".join(f"marker {i + 1}" for i in range(rows.shape[1]))
    lines = [",".join(map(str, row)) for row in rows.tolist()]
    text = "\n".join(f"P{start + i:05d},{line}" for i, line in enumerate(lines))
    file.write_text(f"{ID_COLUMN},{names}\n{text}\n", encoding="utf-8")


class ClinicProcesses(Engine):
    """A process a clinic, on pipes; one that ends is lost, and the reason says how it ended."""

    name = "clinics"
    split, align = "rows", "strict"  # what `connect.federation_on` asks a carrier for

    def __init__(self, files: Sequence[Path]) -> None:
        self.parties = NAMES
        self._links = [_Link(self._start(place, file)) for place, file in enumerate(files)]
        self._kill_at: dict[int, int] = {}
        for name, link in zip(NAMES, self._links, strict=True):
            if link.reply(_START) != b"ready":
                reason = link.end
                self.end()
                words = f"clinic {name!r} did not open its file within {_START:g} s: {reason}"
                remedy = "see that the machine has memory and time for three processes"
                raise EigenmeshError(f"{words}; {remedy}, and try again", party=name)

    def _start(self, place: int, file: Path) -> subprocess.Popen[bytes]:
        order = {"names": NAMES, "place": place, "file": str(file), "id_column": ID_COLUMN}
        order["forbids"] = REFUSES.get(NAMES[place], ())
        threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
        return subprocess.Popen(
            [sys.executable, "-m", "eigenmesh.reports.demo.clinic", json.dumps(order)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **threads},
        )

    def kill_at_request(self, party: str, number: int) -> None:
        """End a clinic's process by force just before it would get so many more requests."""
        self._kill_at[NAMES.index(party)] = number

    def call(self, requests: Mapping[int, bytes], timeout: float) -> Iterator[tuple[int, Reply]]:
        """All clinics work at once."""
        for place, request in requests.items():
            self._kill_if_due(place)
            self._links[place].send(request)
        for place in requests:
            reply = self._links[place].reply(timeout)
            yield place, Lost(self._links[place].end) if reply is None else reply

    def _kill_if_due(self, place: int) -> None:
        if place in self._kill_at:
            self._kill_at[place] -= 1
            if self._kill_at[place] == 0:
                self._links[place].kill()

    def swap(
        self, requests: Mapping[int, bytes], neighbours: Mapping[int, Sequence[int]], timeout: float
    ) -> Iterator[tuple[int, Reply]]:
        """The demonstration has a coordinator, and clinics do not talk to each other."""
        raise NotImplementedError("clinics have no neighbours")

    def close(self) -> None:
        """Nothing: the next federation has the same clinics."""

    def end(self) -> None:
        """End all processes."""
        for link in self._links:
            link.kill()


class _Link:
    """The pipes to one process; a thread takes its replies, so that none is waited for in vain."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._replies: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        out: Any = self._process.stdout
        while (frame := read_frame(out)) is not None:
            self._replies.put(frame)
        self._replies.put(None)

    def send(self, request: bytes) -> None:
        """Send; that a process has ended shows in its reply."""
        pipe: Any = self._process.stdin
        with suppress(OSError):
            write_frame(pipe, request)

    def reply(self, timeout: float) -> bytes | None:
        """The next reply; None if the process has ended or is silent."""
        try:
            frame = self._replies.get(timeout=timeout)
        except queue.Empty:
            return None
        if frame is None:
            self._replies.put(None)  # the end stays: whoever asks again does not wait for it
        return frame

    @property
    def end(self) -> str:
        """Why there is no reply."""
        code = self._process.poll()
        if code is None:
            return "it gave no reply in time"
        return "its process was killed" if code < 0 else "its process ended"

    def kill(self) -> None:
        """End the process and take leave of it."""
        self._process.kill()
        self._process.wait()
