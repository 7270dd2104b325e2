"""`eigenmesh cross-validate` on files of parties."""

import json

import numpy as np
import pytest
from sklearn.datasets import load_wine
from typer.testing import CliRunner

import eigenmesh as em
from eigenmesh.cli.commands import app

WINE = load_wine(as_frame=True).frame.sample(frac=1, random_state=0)
FILES = ["north.csv", "south.csv", "west.csv"]
PARTS = [WINE[:60], WINE[60:120], WINE[120:]]
FEATURES = list(WINE.columns[:-1])


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for file, own in zip(FILES, PARTS, strict=True):
        own.to_csv(file, index=False)
    return FILES


def run(*args):
    return CliRunner().invoke(app, ["cross-validate", *args], env={"COLUMNS": "120"})


@pytest.mark.filterwarnings("ignore")
def test_the_cultivars_of_wine_are_counted_and_drawn(files):
    features = ["--columns", ",".join(FEATURES), "--standardize"]
    done = run(*files, *features, "--clusters", "2,3,4,5,6", "--picture", "scores.png")
    assert done.exit_code == 0, done.output
    taken = next(line for line in done.output.splitlines() if line.rstrip().endswith("taken"))
    assert taken.split()[1] == "3"
    assert "What left each party" in done.output
    assert "Saved: scores.png" in done.output


@pytest.mark.filterwarnings("ignore")
def test_a_column_is_a_target_and_the_answer_that_of_python(files):
    grid = ["--components", "2,5", "--gamma", "0.01,0.1", "--alpha", "0.5,2", "--folds", "3"]
    features = ["--columns", ",".join(FEATURES), "--target", "alcohol"]
    answer = json.loads(run(*files, *features, *grid, "--rule", "best", "--json").stdout)
    parts = em.Partitioned(rows=[own[FEATURES[1:]].to_numpy() for own in PARTS])
    door = em.KernelPCRegressor(random_state=0)
    values = {"gamma": [0.01, 0.1], "n_components": [2, 5], "alpha": [0.5, 2.0]}
    y = [own["alcohol"].to_numpy() for own in PARTS]
    result = em.cross_validate(door, parts, y, **values, n_folds=3, rule="best")
    assert answer["taken"] == result.best_params
    scores = [one["score"] for one in answer["candidates"]]
    np.testing.assert_allclose(scores, [one.score for one in result.candidates], atol=1e-9)


def test_a_plan_runs_nothing(files):
    grid = ["--columns", ",".join(FEATURES), "--components", "2,5", "--kernel", "linear"]
    plan = json.loads(run(*files, *grid, "--plan", "--json").stdout)
    assert plan["method"].startswith("cross-validation: 5 folds; 2 values of n_components")
    assert plan["floats_up"] > 0


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ((), "--components or --clusters is expected"),
        (("--components", "2", "--clusters", "2"), "one of them"),
        (("--components", "few"), "--components few: numbers as 2,5,10"),
        (("--components", "2", "--gamma", "wide"), "--gamma wide: numbers as 0.1,1,10"),
        (("--clusters", "2", "--target", "alcohol"), "pass --components"),
    ],
)
def test_options_that_say_too_little_or_too_much_are_told(files, args, words):
    done = run(*files, *args)
    assert done.exit_code
    assert words in " ".join(done.output.split())
