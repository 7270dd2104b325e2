"""The examples run as they stand."""

import subprocess
import sys
from pathlib import Path

import pytest

# These need their engine: its own tests start them.
ENGINE_EXAMPLES = ("dask_", "mpi_", "three_sites_nvflare")
EXAMPLES = [
    path
    for path in sorted((Path(__file__).parents[1] / "examples").glob("*.py"))
    if not path.name.startswith(ENGINE_EXAMPLES)
]
SAYS = {
    "clusters_and_targets.py": ["index 1.00\n", "'gram', 'moments']", "no target has left"],
    "kernel_pca_million_rows.py": ["diskpca: 1,000,000 rows", "same components: True"],
    "three_hospitals.py": ["7,260 floats up", "same scores: True", "'north' refuses"],
}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_example_runs_and_says_what_it_promises(path):
    done = subprocess.run(
        [sys.executable, "-W", "error", str(path)], capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stderr
    for words in SAYS[path.name]:
        assert words in done.stdout
