"""The example of a federation between organisations, from nothing to its end.

Apart from the other tests of running processes: `make test-nvflare` runs both at once.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("nvflare", reason="pip install 'eigenmesh[nvflare]'")

EXAMPLE = Path(__file__).parents[2] / "examples" / "three_sites_nvflare.py"


@pytest.mark.nvflare
@pytest.mark.timeout(300)
def test_the_example_runs_and_says_what_it_promises():
    done = subprocess.run(
        [sys.executable, "-W", "error::eigenmesh.errors.EigenmeshWarning", str(EXAMPLE)],
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr
    for words in (
        "none has opened a port",
        "network namespace",
        "rows: the pooled answer: True; left the sites: what left the parties: aggregate, counts",
        "landmarks are rows: party 'east' refuses by the rule 'allow' of its policy",
        "party 'south' is lost: its process does not answer any more",
        "said so within 15 s: True",
        "south is back, and the answer as before: True",
        "columns: scores as in one process: True",
        "everything has stopped",
    ):
        assert words in done.stdout
