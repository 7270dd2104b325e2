"""What importing the package brings along, and what it does without. One interpreter for all."""

import subprocess
import sys

CODE = """
import sys
sys.modules["pandas"] = None  # as where it is not installed; scikit-learn imports it, and it Arrow
import eigenmesh.cli.commands
late = {"matplotlib", "pyarrow"} & set(sys.modules)
assert not late, f"{late} take long to import, and wait until they are needed"

for name in ("pyarrow", "matplotlib"):
    sys.modules[name] = None
import eigenmesh as em
from eigenmesh import *
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


def test_arrow_and_matplotlib_wait_until_needed_and_arrays_are_fitted_without_them_and_pandas(
    tmp_path,
):
    """What does need them names the extra."""
    (tmp_path / "north.csv").write_text("a,b\n1,2\n3,4\n")
    (tmp_path / "south.csv").write_text("a,b\n1,2\n3,4\n")
    done = subprocess.run(
        [sys.executable, "-c", CODE], capture_output=True, text=True, timeout=60, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
