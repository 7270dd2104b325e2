"""What importing the package brings along, and what it does without. One interpreter for all."""

import subprocess
import sys

CODE = """
import sys
sys.modules["pandas"] = None  # as where it is not installed
import eigenmesh.data
assert "eigenmesh.data.tabular" not in sys.modules, "Arrow is imported only for tables"
import eigenmesh
assert "plot" in eigenmesh.__all__
import eigenmesh.cli.commands
assert "matplotlib" not in sys.modules, "the command line draws nothing that it need not"
"""


def test_pandas_is_not_needed_and_arrow_and_matplotlib_wait_until_they_are():
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
