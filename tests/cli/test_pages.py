"""Pages from the command line: beside a fit, of a saved model, and what their rows may be."""

from __future__ import annotations

import html
import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_wine
from tests.chromium import browser
from typer.testing import CliRunner

import eigenmesh as em
from eigenmesh.cli.commands import app

pytestmark = pytest.mark.filterwarnings("ignore::eigenmesh.errors.EigenmeshWarning")

SETTINGS = ["--id-column", "sample", "--label-column", "grape"]
FIT = [*SETTINGS, "--standardize", "--kernel", "rbf"]


def run(*args):
    return CliRunner().invoke(app, [str(arg) for arg in args], catch_exceptions=False)


def points(page):
    """The scores on a page, and what they are coloured by."""
    text = page.read_text(encoding="utf-8")
    start = text.index('id="points">') + len('id="points">')
    return json.loads(text[start : text.index("</script>", start)])


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder, wine = tmp_path_factory.mktemp("sites"), load_wine()
    frame = pd.DataFrame(wine.data, columns=wine.feature_names)
    frame.insert(0, "sample", [f"s{i}" for i in range(len(frame))])
    frame["grape"] = np.array(["Barolo", "Grignolino", "Barbera"])[wine.target]
    places = np.array_split(np.random.default_rng(0).permutation(len(frame)), 3)
    paths = [folder / f"{name}.csv" for name in ("north", "south", "west")]
    for path, rows in zip(paths, places, strict=True):
        frame.iloc[rows].to_csv(path, index=False)
    return paths


@pytest.fixture(scope="module")
def model(files):
    path = files[0].with_name("model.em")
    result = run("fit", *files, *FIT, "--model", path, "--report", path.with_name("page.html"))
    assert result.exit_code == 0, result.output
    assert "with scores of single rows" in result.output
    return path


def test_a_fit_writes_its_page_and_the_label_is_no_feature(files, model):
    own = points(model.with_name("page.html"))
    assert len(own["points"][0]) == 178
    assert own["groups"]["party"]["names"] == ["north", "south", "west"]
    assert own["groups"]["label"]["names"] == ["Barbera", "Barolo", "Grignolino"]
    kpca = em.load(model)
    assert "grape" not in kpca.feature_names_in_
    north = pd.read_csv(files[0])
    Z = kpca.transform(north[list(kpca.feature_names_in_)])
    share = (Z[0, 1] - own["low"][1]) / (own["high"][1] - own["low"][1])
    assert own["points"][1][0] / own["fine"] == pytest.approx(share, abs=2e-3)
    codes = own["groups"]["label"]["codes"][: len(north)]
    assert [own["groups"]["label"]["names"][code] for code in codes] == list(north["grape"])


def test_a_plan_of_files_with_labels_is_that_of_the_fit(files, model):
    plan = json.loads(run("plan", *files, *FIT, "--json").stdout)
    assert plan["shapes"]["north"] == [60, 13]
    assert plan["baseline_floats"] == em.load(model).report_.baseline_floats


def test_the_page_of_a_model_has_rows_only_if_they_are_named(files, model, tmp_path):
    page = tmp_path / "page.html"
    result = run("report", model, "--out", page)
    assert result.exit_code == 0
    assert "without scores of single rows" in result.output
    assert points(page) is None
    result = run("report", model, files[1], *SETTINGS, "--out", page, "--json")
    assert json.loads(result.output)["shows"] == "with scores of single rows"
    assert points(page)["groups"]["party"]["names"] == ["south"]


def test_clusters_have_a_page(files, tmp_path):
    page = tmp_path / "page.html"
    settings = [*FIT, "--clusters", 3, "--report", page, "--json"]
    answer = json.loads(run("cluster", *files, *settings).stdout)
    assert answer["page"] == str(page)
    names = points(page)["groups"]["cluster"]["names"]
    assert names == ["cluster 0", "cluster 1", "cluster 2"]


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--report", "page.pdf"], "expected .html"),
        (["--report", "page.html", "--label-column", "colour"], "has no column 'colour'"),
    ],
)
def test_what_cannot_be_is_said_before_any_work(files, tmp_path, more, words, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = run("fit", *files, "--id-column", "sample", "--model", "model.em", *more)
    assert result.exit_code == 2
    assert words in result.stderr
    assert not list(tmp_path.iterdir())


def test_four_commands_of_the_readme_lead_from_three_files_to_a_page(files, tmp_path, monkeypatch):
    for file in files:
        table = pd.read_csv(file).drop(columns="grape").rename(columns={"sample": "patient"})
        table.to_csv(tmp_path / file.name, index=False)
    shutil.copy(tmp_path / "north.csv", tmp_path / "new-north.csv")
    monkeypatch.chdir(tmp_path)
    readme = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    start = readme.index("four commands lead from three files")
    commands = [line.split() for line in readme[start:].splitlines() if "    eigenmesh" in line][:4]
    for command in commands:
        result = run(*command[1:])
        assert result.exit_code == 0, result.output
    scores = pd.read_csv("scores.csv").merge(
        pd.read_csv("north.csv"), left_on="id", right_on="patient"
    )
    assert len(scores) == len(pd.read_csv("north.csv"))
    with browser() as tab:
        tab.open(tmp_path / "page.html")
        assert tab.value("document.querySelectorAll('#plot path').length") == 3
        assert tab.complaints == []


@pytest.mark.filterwarnings("default::eigenmesh.errors.EigenmeshWarning")
@pytest.mark.parametrize("command", ["fit", "cluster"])
def test_what_is_warned_of_is_in_json_and_on_both_pages(files, tmp_path, command):
    frames = [pd.read_csv(path).drop(columns="grape") for path in files]
    frames[1]["proline"] *= 1000
    frames[2].loc[4, "ash"] = -999.0
    parts = [tmp_path / path.name for path in files]
    for number, (path, frame) in enumerate(zip(parts, frames, strict=True)):
        own = 1000 * number + np.arange(len(frame))
        frame.assign(sample=own).to_csv(path, index=False)
    how = ["--kernel", "rbf", "--gamma", "1e-4", "--json", "--split", "rows"]
    how += ["--clusters", "2"] if command == "cluster" else []
    model, pages = tmp_path / "m.em", [tmp_path / "fit.html", tmp_path / "saved.html"]
    result = run(command, *parts, *how, "--model", model, "--report", pages[0])
    assert result.exit_code == 0, result.output
    run("report", model, "--out", pages[1])
    lines = result.stderr.splitlines()
    warned = [line.removeprefix("warning: ") for line in lines if line.startswith("warning: ")]
    for words in ("different units", "looks like an id", "no other value is near"):
        assert sum(words in own for own in warned) == 1
    notes = json.loads(result.stdout)["report"]["notes"]
    assert set(warned) <= set(notes)
    for page in pages:
        text = html.unescape(page.read_text(encoding="utf-8"))
        assert [text.count(own) for own in warned] == [1] * len(warned)


def test_a_forgotten_id_column_is_the_remedy(files, model, tmp_path):
    out = tmp_path / "page.html"
    rows = pd.read_csv(files[0]).drop(columns="grape")
    rows.to_csv(tmp_path / "new.csv", index=False)
    for command, path in (("report", out), ("transform", tmp_path / "z.csv")):
        result = run(command, model, tmp_path / "new.csv", "--out", path)
        assert result.exit_code == 2
        assert "add --id-column sample if it has the samples' ids" in result.stderr
    result = run("report", model, files[0], "--out", out)  # two columns more
    assert "add --id-column sample if that has the samples' ids, and --columns" in result.stderr
    assert run("report", model, tmp_path / "new.csv", *SETTINGS[:2], "--out", out).exit_code == 0
