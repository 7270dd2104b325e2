"""The runner: trials are made once, kept, shared, and made anew when what they hang on changes."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from eigenmesh.cli.commands import app
from eigenmesh.errors import InputError
from eigenmesh.reproduce.catalogue import entry, selected
from eigenmesh.reproduce.claim_checks import above, below, of, somewhere, steady
from eigenmesh.reproduce.claims import claim
from eigenmesh.reproduce.datasets import SETS, load
from eigenmesh.reproduce.declare import BySize, Experiment, Figure, Panel, rows_of
from eigenmesh.reproduce.page import write_page
from eigenmesh.reproduce.runner import result_path, run
from eigenmesh.reproduce.summary import write_summary


def counting():
    """An experiment whose answers are known, and the list of what was run."""
    calls = []

    def method(offset):
        def measure(problem):
            calls.append(problem)
            return {"error": problem[0] + offset, "floats": 10.0, "course": [3.0, 2.0, 1.0]}

        return measure

    def prepare(rows, settings, seed):
        return settings["scale"] * (seed + 1), rows.X.shape

    methods = {"default": method(0.0), "shipping": method(1.0)}
    return Experiment("counting", prepare, methods), calls


def figure_of(experiment, values=(1, 2), **options):
    panel = Panel("wine", rows_of("sonar", 20), experiment, "scale", values, "default shipping")
    claims = [
        claim("less", "strict", below(of("default", "error"), of("shipping", "error"))),
        claim(
            "large",
            "above 2.5",
            above(of("default", "error"), 2.5),
            "above 0",
            above(of("default", "error"), 0),
        ),
        claim("large at some", "above 2.5", somewhere(above(of("default", "error"), 2.5))),
        claim("never at any", "above 100", somewhere(above(of("default", "error"), 100.0))),
        claim("never", "above 100", above(of("default", "error"), 100.0)),
        claim("level", "over the sweep", steady(of("default", "error"), 1.5)),
    ]
    return Figure("900/fig1", "t", "error", [panel], claims, seeds=BySize(1, 2, 2), **options)


def test_verdicts_follow_the_cases_and_name_the_reading(tmp_path):
    experiment, _ = counting()
    outcome = run(figure_of(experiment), "quick", tmp_path, offline=True)
    verdicts = {verdict.claim: verdict for verdict in outcome.verdicts}
    assert verdicts["less"].verdict == "held"
    assert verdicts["large"].verdict == "held in part"  # the first reading's, though another held
    assert verdicts["large"].reading == "above 2.5"
    assert verdicts["large"].other_readings == {"above 0": "held"}
    assert verdicts["never"].verdict == "not held"
    assert verdicts["level"].verdict == "not held"
    # seeds 0 and 1 of scale 2 give 2 and 4
    assert "3 ± 1" in verdicts["large"].cases[1].words
    assert verdicts["large at some"].verdict == "held"
    assert "at 1 of 2 places; default 3 ± 1" in verdicts["large at some"].measured
    assert verdicts["never at any"].verdict == "not held"


def test_what_was_measured_is_not_measured_again(tmp_path):
    experiment, calls = counting()
    figure = figure_of(experiment)
    first = run(figure, "quick", tmp_path, offline=True)
    assert len(calls) == 2 * 2 * 2
    again = run(figure, "quick", tmp_path, offline=True)
    assert len(calls) == 8
    assert again.results.trials == first.results.trials
    run(figure_of(experiment, values=(1, 2, 3)), "quick", tmp_path, offline=True)
    assert len(calls) == 12  # the new value alone
    run(figure, "quick", tmp_path, fresh=True, offline=True)
    assert len(calls) == 20


def test_a_run_that_was_cut_short_goes_on(tmp_path):
    experiment, calls = counting()
    figure, advanced = figure_of(experiment), []

    def stop():
        advanced.append(1)
        if len(advanced) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(figure, "quick", tmp_path, offline=True, advance=stop)
    run(figure, "quick", tmp_path, offline=True)
    assert len(calls) == 8


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"key": 1}'])
def test_a_damaged_trial_is_made_anew(tmp_path, damage):
    experiment, calls = counting()
    figure = figure_of(experiment, values=(1,))
    run(figure, "smoke", tmp_path, offline=True)
    (trial,) = (tmp_path / "trials").iterdir()
    trial.write_text(damage)
    outcome = run(figure, "smoke", tmp_path, offline=True)
    assert len(calls) == 4
    assert outcome.results.measured(0, 1, "default", "error").mean == 1.0


def test_rows_from_elsewhere_are_other_rows(tmp_path, monkeypatch):
    """A trial on a stand-in does not count once the real file is there."""
    monkeypatch.delenv("EIGENMESH_DATA", raising=False)
    experiment, calls = counting()
    figure = figure_of(experiment, values=(1,))
    before = run(figure, "smoke", tmp_path / "out", offline=True)
    assert "stand-in" in before.data[0]
    np.savez(tmp_path / "sonar.npz", X=np.random.default_rng(0).random((30, 60)), y=np.zeros(30))
    monkeypatch.setenv("EIGENMESH_DATA", str(tmp_path))
    after = run(figure, "smoke", tmp_path / "out", offline=True)
    assert after.data[0].startswith("file sonar.npz, 30 × 60")
    assert len(calls) == 4


def test_page_and_summary_are_of_what_lies_in_the_folder(tmp_path):
    figure = selected(["002/fig9"])[0]
    run(figure, "smoke", tmp_path, offline=True)
    page = write_page(tmp_path).read_text()
    assert "002/fig9" in page
    assert "002-fig9.smoke.png" in page
    write_summary(tmp_path, tmp_path / "papers.md")
    tree = json.loads(result_path(tmp_path, "002/fig9", "smoke").read_text())
    text = (tmp_path / "papers.md").read_text()
    for own in tree["claims"]:
        assert own["claim"] in text
    with pytest.raises(InputError, match="holds no results"):
        write_summary(tmp_path / "trials", tmp_path / "papers.md")


def test_figures_are_named_as_in_the_list():
    assert [figure.id for figure in selected(["003", "003/fig4"])] == [
        "003/fig3",
        "003/fig4",
        "003/fig5",
    ]
    with pytest.raises(InputError, match="'003/fig9' is no table or figure"):
        selected(["003/fig9"])
    own = entry(selected(["004/fig1"])[0])
    assert own["data"] == {"mushrooms": "8,124 × 112", "mnist": "70,000 × 784"}


PAGE = Path(__file__).parents[2] / "CONTRIBUTING.md"
STUDY = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.S | re.M)[1]  # as it is told


def test_a_further_papers_study_is_one_file(tmp_path, monkeypatch):
    monkeypatch.delenv("EIGENMESH_DATA", raising=False)
    study, out = tmp_path / "rpcholesky.py", tmp_path / "out"
    study.write_text(STUDY)
    asked = ["reproduce", str(study), "--smoke", "--offline", "--json", "--out", str(out)]
    reply = CliRunner().invoke(app, asked, catch_exceptions=False)
    (tree,) = json.loads(reply.stdout)
    ratios = [t["measures"]["rpcholesky"]["ratio"] for t in tree["trials"]]
    assert len(ratios) == 2
    assert tree["claims"][1]["verdict"] == (
        "held" if max(ratios) <= 1.1 else "held in part" if min(ratios) <= 1.1 else "not held"
    )
    assert (out / "900-fig1.smoke.png").read_bytes().startswith(b"\x89PNG")
    assert "900/fig1" in (out / "index.html").read_text()
    write_summary(out, out / "papers.md")
    assert "it errs less than uniform sampling" in (out / "papers.md").read_text()
    study.write_text(STUDY.replace("900/fig1", "003/fig3"))
    with pytest.raises(InputError, match="'003/fig3', which is one of ours"):
        selected([str(study)])
    study.write_text("FIGURES = ()")
    with pytest.raises(InputError, match="has no figures; expected FIGURES"):
        selected([str(study)])
    with pytest.raises(InputError, match="is no file; expected a study"):
        selected([str(tmp_path / "none.py")])


def test_sets_say_where_they_are_from(monkeypatch):
    monkeypatch.delenv("EIGENMESH_DATA", raising=False)
    with pytest.raises(InputError, match="data 'wine' is unknown"):
        load("wine")
    rows = load("mnist", 30, 1, offline=True)
    assert rows.stands_in
    assert "the paper's is 70,000 × 784" in rows.origin
    assert np.array_equal(rows.X, load("mnist", 30, 1, offline=True).X)
    assert rows.X.shape == (30, 784)
    assert (rows.X.min(), rows.X.max() <= 1) == (0, True)
    assert not np.array_equal(rows.X, load("mnist", 30, 2, offline=True).X)
    assert not np.isnan(load("gse2187", 40, n_genes=50, offline=True).X).any()
    assert all(spec.shape for spec in SETS.values())
