import json
import sys
from pathlib import Path

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
sys.path.append(str(BENCHMARKS))

from _common import show  # noqa: E402
from write_results import page  # noqa: E402


def test_what_a_benchmark_shows_is_kept_with_the_machine_and_stands_on_the_page(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.setenv("EIGENMESH_RESULTS", str(tmp_path))
    monkeypatch.setattr(sys, "argv", ["/somewhere/bench_trial.py", "--data", "/private/data"])
    show("first", ["rows", "a | b"], [["1", "2×"]])
    show("second", ["rows"], [["3"]])
    show("first", ["rows", "a | b"], [["1", "4×"]])  # measured again
    assert "4×" in capsys.readouterr().out

    record = json.loads((tmp_path / "bench_trial.json").read_text())
    assert [table["title"] for table in record["tables"]] == ["second", "first"]
    assert {"processor", "cores", "load", "versions", "blas"} <= set(record["machine"])

    text = page(tmp_path)
    assert "## trial" in text
    assert "| 1 | 4× |" in text
    assert "2×" not in text
    assert "a \\| b" in text
    assert "/private" not in text  # where somebody keeps data is nobody's business


def test_nothing_is_kept_unless_asked(tmp_path, monkeypatch, capsys):
    monkeypatch.delenv("EIGENMESH_RESULTS", raising=False)
    monkeypatch.chdir(tmp_path)
    show("only", ["rows"], [["1"]])
    assert "only" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []
