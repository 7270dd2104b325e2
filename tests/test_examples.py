"""The examples run as they stand, in this process: an interpreter of its own costs seconds."""

import runpy
import warnings
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
    "pictures.py": ["embedding.png\n", "error_against_bytes.png\n"],
    "three_hospitals.py": ["7,260 floats up", "same scores: True", "'north' refuses"],
}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_example_runs_and_says_what_it_promises(path, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", [str(path)])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        runpy.run_path(str(path), run_name="__main__")
    printed = capsys.readouterr().out
    for words in SAYS[path.name]:
        assert words in printed
