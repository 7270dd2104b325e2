"""The MPI engine: jobs of several ranks, started as a user would start them.

What can be told only inside a job stands in mpi_scripts/every_rank.py and in the engine contract;
both run here in every rank of one job, and so do the examples. The contract runs whole, with one
substitution: where a test returns an error that it caught in the coordinator's function, the other
ranks get its party and its words, since no protocol returns errors and results have no form for
them.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import pytest

import eigenmesh as em
from eigenmesh.errors import InputError

SCRIPTS = Path(__file__).parent / "mpi_scripts"
ROOT = Path(__file__).parents[2]
MPIRUN = Path(sys.executable).parent / "mpirun"
LIGHT = (
    f"import sys; sys.path.insert(0, {str(SCRIPTS)!r})\n"
    "from light import leave_out_the_estimators; leave_out_the_estimators()\n"
)
NO_PSI = find_spec("private_set_intersection") is None  # no wheel beside newer protobufs
OPTIONS = "--allow-run-as-root --oversubscribe --mca mpi_yield_when_idle 1".split()

pytest.importorskip("mpi4py.run", reason="pip install 'eigenmesh[mpi]'")
pytestmark = pytest.mark.skipif(not MPIRUN.exists(), reason="pip install 'eigenmesh[mpi]'")


class Ended(NamedTuple):
    """A job that is over."""

    code: int
    output: str
    at: float
    left_behind: list[str]

    @property
    def seconds_since_doom(self) -> float:
        return self.at - float(re.findall(r"DOOM (\S+)", self.output)[0])


class Job:
    """A job under way, in a process group of its own."""

    def __init__(
        self,
        n: int,
        *script: object,
        module: str | None = "mpi4py",
        options: Sequence[str] = (),
        **environment: str,
    ):
        self.mark = uuid.uuid4().hex
        run = [sys.executable, *(["-m", module] if module else []), *map(str, script)]
        self.process = subprocess.Popen(
            [str(MPIRUN), *OPTIONS, *options, "-n", str(n), *run],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=ROOT,
            env={**os.environ, "OMP_NUM_THREADS": "2", "EIGENMESH_JOB": self.mark, **environment},
            start_new_session=True,
        )

    def wait(self, timeout: float = 220.0) -> Ended:
        try:
            output, _ = self.process.communicate(timeout=timeout)
            return Ended(self.process.returncode, output, time.time(), self._processes())
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)  # mpirun; its ranks end with it
            output, _ = self.process.communicate()
            pytest.fail(f"the job did not end within {timeout:g} s:\n{output[-3000:]}")

    def _processes(self) -> list[str]:
        """Processes that bear the mark of the job; one that is being taken down has a second."""
        for _ in range(10):
            found = [p.name for p in Path("/proc").glob("[0-9]*") if self.mark in _environment(p)]
            if not found:
                break
            time.sleep(0.1)
        return found


def _environment(process: Path) -> str:
    try:
        return (process / "environ").read_bytes().decode(errors="replace")
    except OSError:
        return ""


# In every rank of one job.


@pytest.mark.timeout(240)  # some of these start many interpreters, on a machine that may be busy
def test_contract_and_more_hold_at_every_rank(tmp_path):
    (tmp_path / "data").mkdir()
    ended = Job(5, SCRIPTS / "suite.py", tmp_path, EIGENMESH_TEST_FOLDER=str(tmp_path)).wait()
    assert ended.code == 0, ended.output[-5000:]
    assert ended.left_behind == []
    outcomes = [json.loads((tmp_path / f"rank-{rank}.json").read_text()) for rank in range(5)]
    assert failures(outcomes) == {}
    assert all(own.keys() == outcomes[0].keys() for own in outcomes)
    contract = [test for test in outcomes[0] if test.startswith("test_contract.py")]
    assert len(contract) > 100
    assert all("[mpi" in test for test in contract)
    assert len(outcomes[0]) - len(contract) > 35


def failures(outcomes):
    return {
        f"rank {rank}, {test}": outcome
        for rank, own in enumerate(outcomes)
        for test, outcome in own.items()
        if outcome != "passed" and not (outcome == "skipped" and NO_PSI and "under_keys" in test)
    }


# A process that dies, freezes, raises or leaves.


KILLED = "party 'east' (rank 1) is lost: its process has died"
STUNNED = "party 'north', who coordinates, is lost: its process has given no sign of life"
# Steps 1 to 3 are asked for by the coordinator, 4 to 6 are offered to neighbours.
DOOMS = {
    ("kill", 1): KILLED,
    ("kill", 5): KILLED,
    ("behead", 2): "party 'north' (rank 0) is lost: its process has died",
    ("freeze", 2, "caught"): "CAUGHT party 'east' is lost",
    ("freeze", 5, "run", "survivors"): "FINISHED 2 without east",
    ("freeze", 0, "start"): "party 'east' (rank 1) is stopped and has not started MPI",
    ("freeze", 0, "opening"): "party 'east' (rank 1) has not opened the federation within 4 s",
    ("stun", 2): STUNNED,
    ("stun", 5, "caught"): "CAUGHT " + STUNNED,
    ("stun", 0, "opening"): "party 'north' (rank 0) has not opened the federation within 4 s",
    ("raise", 0, "script"): "no such column",
    ("leave", 0, "script"): "party 'east' is lost: its rank has left",
    ("part", 0, "script"): "rank 0 has closed the federation",
}


@pytest.mark.timeout(240)
def test_job_ends_soon_says_who_and_leaves_no_process():
    """All at once: they mostly wait."""
    ended = run_all(DOOMS)
    wrong = {doom: job for doom, job in ended.items() if not ended_well(job, DOOMS[doom])}
    assert wrong == {}


NOT_STARTED = 213  # mpirun's own code: of many that are started at once, one seldom has no room


def run_all(dooms, *options):
    jobs = {doom: doomed(doom, options) for doom in dooms}
    ended = {doom: job.wait(80.0) for doom, job in jobs.items()}
    for doom in [doom for doom, job in ended.items() if job.code == NOT_STARTED]:
        ended[doom] = doomed(doom, options).wait(80.0)
    return ended


def doomed(doom, options):
    module = None if "raise" in doom else "mpi4py"  # `-m mpi4py` would end it without our help
    return Job(3, SCRIPTS / "light.py", "doomed", *doom, module=module, options=options)


def ended_well(ended, words):
    soon = ended.seconds_since_doom < 20.0
    named = words in ended.output and ended.output.count("its process has died") <= 1
    return ended.code != 0 and named and soon and ended.left_behind == []


ULFM = ("--with-ft", "ulfm")
SURVIVED = {
    ("kill", 2, "run", "survivors"): {"FINISHED 2 without east": 2},
    ("kill", 5, "twice", "survivors"): {"FINISHED 2 without east": 2, "AGAIN 2 without east": 2},
    ("kill", 5, "caught"): {"CAUGHT party 'east' is lost: its process has died": 2},
    ("behead", 2, "caught"): {"CAUGHT party 'north', who coordinates, is lost": 2},
    ("freeze", 2, "caught"): {"CAUGHT party 'east' is lost": 2},
    ("freeze", 0, "opening"): {"PartyLost: party 'east' (rank 1) has not opened": 2},
}


@pytest.mark.timeout(240)
def test_killed_rank_is_a_lost_party_where_mpirun_tolerates_it():
    ended = run_all(SURVIVED, *ULFM)
    for doom, words in SURVIVED.items():
        job = ended[doom]
        assert {text: job.output.count(text) for text in words} == words, (doom, job)
        assert (job.code == 0) == ("freeze" not in doom), (doom, job)
        assert job.left_behind == [], (doom, job)
        assert job.seconds_since_doom < 20.0, (doom, job)


def test_process_that_computes_is_told_from_one_that_sleeps_or_is_stopped():
    """A rank that holds Python's lock for long cannot give signs of life."""
    code = (
        LIGHT + "import os, signal, subprocess, time\n"
        "from eigenmesh.engines._mpi_pulse import is_computing\n"
        "def is_seen(process, state):\n"
        "    return any(is_computing(process) == state or time.sleep(0.05) for _ in range(200))\n"
        "run = [sys.executable, '-c', 'input(); sum(range(10**11))']\n"
        "child = subprocess.Popen(run, stdin=subprocess.PIPE)\n"
        "assert is_seen(child.pid, False), 'it waits for input'\n"
        "child.stdin.write(b'\\n'), child.stdin.flush()\n"
        "assert is_seen(child.pid, True)\n"
        "child.send_signal(signal.SIGSTOP)\n"
        "assert is_seen(child.pid, False)\n"
        "child.kill(), child.wait()\n"
        "assert not is_computing(child.pid)\n"
        "assert not is_computing(0)\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stderr


# Size, and the rest.


@pytest.mark.timeout(240)
def test_many_ranks_on_few_cores():
    """benchmarks/bench_mpi_ranks.py starts eighty."""
    ended = Job(6, SCRIPTS / "light.py", "many", OMP_NUM_THREADS="1").wait()
    assert ended.code == 0, ended.output[-3000:]
    assert len(re.findall(r"OK \d+ of 6", ended.output)) == 6
    assert ended.left_behind == []


def test_engine_calls_none_of_the_methods_that_pickle():
    """mpi4py's methods in small letters pickle, those with a capital take buffers."""
    files = (ROOT / "src/eigenmesh/engines").glob("*mpi*.py")
    source = "\n".join(file.read_text() for file in files)
    words = "send recv isend irecv sendrecv ssend bsend bcast scatter gather allgather alltoall"
    words += " reduce allreduce scan exscan mprobe improbe pickle"
    called = re.findall(
        rf"(?:_comm|COMM_WORLD|world|message|MPI)\.({'|'.join(words.split())})\b", source
    )
    assert called == []


def test_one_process_without_mpirun_says_how_to_start():
    code = (
        LIGHT + "import numpy as np\n"
        "from eigenmesh.connect import federation\n"
        "from eigenmesh.data import Partitioned\n"
        "federation(Partitioned(rows=[np.ones((2, 2))] * 3), engine='mpi')"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert "3 parties and 1 MPI ranks" in ended.stderr
    assert "mpirun -n 3 python -m mpi4py" in ended.stderr


def test_without_mpi4py_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    monkeypatch.delitem(sys.modules, "eigenmesh.engines.mpi", raising=False)
    with pytest.raises(InputError, match=r"pip install 'eigenmesh\[mpi\]'"):
        em.federation(em.Partitioned(rows=[[[1.0]]]), engine="mpi")
