"""What importing the package brings along, and what it does without. One interpreter for all."""

import subprocess
import sys

CODE = """
import sys
for name in ("pandas", "pyarrow", "matplotlib"):
    sys.modules[name] = None  # as where it is not installed
import eigenmesh as em
from eigenmesh import *
import eigenmesh.cli.commands
import numpy as np

X = np.random.default_rng(0).normal(size=(60, 3))
em.KernelPCA(2, kernel="rbf", gamma="median").fit(em.split(X, 3, random_state=0))


def complaint(act):
    try:
        act()
    except em.EigenmeshError as error:
        return str(error)


assert "needs pip install 'eigenmesh[plot]'" in complaint(lambda: em.plot)
words = complaint(lambda: em.Partitioned(rows=["north.csv", "south.csv"]).shapes)
assert "needs pip install 'eigenmesh[files]', or save the numbers as .npy" in words, words
"""
LAZY = """
import sys
sys.modules["pandas"] = None  # scikit-learn imports it, and it Arrow
import eigenmesh.cli.commands
late = {"matplotlib", "pyarrow"} & set(sys.modules)
assert not late, f"{late} take long to import, and wait until they are needed"
"""


def in_an_interpreter(code, folder):
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, cwd=folder
    )
    assert done.returncode == 0, done.stderr


def test_arrays_are_fitted_without_pandas_arrow_and_matplotlib_and_errors_name_the_extra(tmp_path):
    (tmp_path / "north.csv").write_text("a,b\n1,2\n3,4\n")
    (tmp_path / "south.csv").write_text("a,b\n1,2\n3,4\n")
    in_an_interpreter(CODE, tmp_path)


def test_arrow_and_matplotlib_wait_until_they_are_needed(tmp_path):
    in_an_interpreter(LAZY, tmp_path)
