"""Three messy CSV files to scores that join to ids, by the command line alone."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.decomposition import PCA, KernelPCA
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from typer.testing import CliRunner

from eigenmesh.cli.commands import app

FEATURES = ["age", "weight", "dose"]


@pytest.fixture
def wards(tmp_path):
    """Semicolons and decimal commas, tabs, another order; dates, words, gaps and ids in each."""
    rng = np.random.default_rng(0)
    frames = []
    for party, n in (("north", 60), ("south", 80), ("west", 50)):
        X = [50, 70, 3] + [12, 9, 1] * rng.normal(size=(n, 3))
        X[rng.random((n, 3)) < 0.05] = np.nan
        frame = pd.DataFrame(X.round(3), columns=FEATURES)
        frame.insert(0, "patient", [f"{party[0]}{i}" for i in range(n)])
        frame["seen"] = "2024-05-17"
        frame["ward"] = rng.choice(["a", "b"], n)
        frames.append(frame)
    frames[0].to_csv(
        tmp_path / "north.csv", sep=";", decimal=",", index=False, encoding="utf-8-sig"
    )
    frames[1][frames[1].columns[::-1]].to_csv(tmp_path / "south.tsv", sep="\t", index=False)
    frames[2].to_csv(tmp_path / "west.csv.gz", index=False)
    return [tmp_path / name for name in ("north.csv", "south.tsv", "west.csv.gz")], frames


def refusal(*arguments):
    """The error's words, on one line."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == 2
    return " ".join(result.output.split())


def run(*arguments):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.output
    return result


def test_messy_files_are_fitted_as_the_pooled_pipeline_would(wards, tmp_path):
    paths, frames = wards
    choice = ["--id-column", "patient", "--columns", ",".join(FEATURES)]
    prepared = ["--standardize", "--fill-missing", "0.2", "--fill-with", "median"]
    prepared += ["--categories", "ward"]
    model, scores = tmp_path / "model.em", tmp_path / "scores.csv"
    run("fit", *paths, *choice, *prepared, "--model", model, "--scores", scores)
    numbers = make_pipeline(SimpleImputer(strategy="median"), StandardScaler())
    levels = OneHotEncoder(min_frequency=5, sparse_output=False)
    columns = make_column_transformer((numbers, FEATURES), (levels, ["ward"]))
    pipeline = make_pipeline(columns, PCA(2)).fit(pd.concat(frames))
    for frame, party in zip(frames, ("north", "south", "west"), strict=True):
        own = pd.read_csv(tmp_path / f"scores.{party}.csv")
        assert own.iloc[:, 0].tolist() == frame["patient"].tolist()
        expected = pipeline.transform(frame)
        np.testing.assert_allclose(np.abs(own.iloc[:, 1:]), np.abs(expected), atol=1e-8)
    again = ["transform", model, *paths, "--id-column", "patient", "--out", tmp_path / "again.csv"]
    refused = CliRunner().invoke(app, list(map(str, again)))
    assert "add --columns age,weight,dose,ward to leave" in " ".join(refused.output.split())
    run(*again, "--columns", "age,weight,dose,ward")
    np.testing.assert_array_equal(
        pd.read_csv(tmp_path / "again.south.csv").iloc[:, 1:],
        pd.read_csv(tmp_path / "scores.south.csv").iloc[:, 1:],
    )


def test_plans_and_clusters_take_the_same_options(wards, tmp_path):
    paths, frames = wards
    common = [*paths, "--id-column", "patient", "--columns", ",".join(FEATURES)]
    common += ["--standardize", "--fill-missing", "0.2", "--log", "dose", "--json"]
    plan = json.loads(run("plan", *common).stdout)
    assert "column_sums" in json.dumps(plan["by_step"])
    labels = tmp_path / "labels.csv"
    tree = json.loads(run("cluster", *common, "--clusters", "2", "--labels", labels).stdout)
    preparation = tree["params"]["preparation"]
    assert preparation["standardize"] is True
    assert (preparation["fill_missing"], preparation["log"]) == (0.2, ["dose"])
    own = pd.read_csv(tmp_path / "labels.west.csv")
    assert own.iloc[:, 0].tolist() == frames[2]["patient"].tolist()


@pytest.mark.parametrize(
    ("headers", "split"),
    [
        (("id,a,b", "id,b,a"), "rows"),
        (("id,a,b", "id,c,d"), "columns"),
        (("id,a,b", "id,b,c"), None),
    ],
)
def test_the_split_is_told_by_the_names_of_columns_or_asked_for(tmp_path, headers, split):
    rng = np.random.default_rng(0)
    for name, header in zip(("x.csv", "y.csv"), headers, strict=True):
        own = name if split is None else "p"  # whose samples they are
        body = [f"{own}{i},{a},{b}" for i, (a, b) in enumerate(rng.normal(size=(30, 2)))]
        (tmp_path / name).write_text("\n".join([header, *body]))
    command = ["plan", str(tmp_path / "x.csv"), str(tmp_path / "y.csv"), "--json"]
    result = CliRunner().invoke(app, command)
    tree = json.loads(result.stdout)
    if split is None:
        assert result.exit_code == 2
        assert "--split rows" in tree["message"]
        assert "--split columns" in tree["message"]
        return
    assert tree["split"] == split


def test_files_of_the_same_ids_hold_columns_though_they_share_one(tmp_path):
    rng = np.random.default_rng(1)
    for name, columns in (("lab", ["sex", "hb", "crp"]), ("image", ["sex", "size", "depth"])):
        frame = pd.DataFrame(rng.normal(size=(40, 3)), columns=columns)
        frame.insert(0, "patient", [f"p{i}" for i in rng.permutation(45)[:40]])
        frame.to_csv(tmp_path / f"{name}.csv", index=False)
    files = [tmp_path / "lab.csv", tmp_path / "image.csv"]
    how = ["--id-column", "patient", "--align", "inner", "--model", tmp_path / "model.em"]
    said = " ".join(run("fit", *files, *how).output.split())
    assert "samples are common to all parties, of 'lab' 40 (" in said
    assert "are left out)" in said


@pytest.mark.parametrize("seed", range(3))
def test_columns_are_standardised_and_filled_by_their_owners(seed, tmp_path):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(60, 5)) * 10.0 ** rng.integers(-2, 3, 5) + rng.normal(size=5)
    X[rng.random(X.shape) < 0.05] = np.nan
    ids = [f"p{i}" for i in range(60)]
    files = []
    for name, columns in (("lab", slice(0, 2)), ("ward", slice(2, 5))):
        frame = pd.DataFrame(X[:, columns], columns=list("abcde")[columns])
        files.append(tmp_path / f"{name}.csv")
        frame.assign(patient=ids).to_csv(files[-1], index=False)
    scores, model = tmp_path / "scores.npy", tmp_path / "m.em"
    kernel, words = (
        ({}, [])
        if seed == 0
        else ({"kernel": "rbf", "gamma": 0.1}, ["--kernel", "rbf", "--gamma", "0.1"])
    )
    filling = ["--id-column", "patient", "--standardize", "--fill-missing", "0.5"]
    run("fit", *files, *filling, *words, "--model", model, "--scores", scores)
    filled = SimpleImputer().fit_transform(X)
    pooled = KernelPCA(2, **kernel).fit_transform(StandardScaler().fit_transform(filled))
    np.testing.assert_allclose(np.abs(np.load(scores)), np.abs(pooled), atol=1e-6)
    run("transform", model, *files, *filling[:2], "--out", tmp_path / "again.npy")
    np.testing.assert_allclose(np.load(tmp_path / "again.npy"), np.load(scores), atol=1e-6)
    for more in (["--log", "a"], ["--fill-with", "median"]):
        words = refusal("fit", *files, *filling, *more, "--model", model)
        assert f"{more[0]} is for rows" in words
    words = refusal("cluster", *files, *filling, "--clusters", 2)
    assert "let each owner prepare its own" in words


def test_what_is_for_rows_and_what_needs_two_parties_is_said_so(tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(30, 4)), columns=list("abcd"))
    frame.insert(0, "patient", [f"p{i}" for i in range(30)])
    files = []
    for name, columns in (("lab", ["patient", "a", "b"]), ("ward", ["patient", "c", "d"])):
        files.append(tmp_path / f"{name}.csv")
        frame[columns].to_csv(files[-1], index=False)
    words = refusal("cross-validate", *files, "--id-column", "patient", "--components", "1,2")
    assert "cross-validate is for rows, and these files hold columns" in words
    words = refusal("cluster", files[0], "--id-column", "patient", "--clusters", 2, "--secure")
    assert "1 party is left for a masked sum" in words
    assert "nobody to mask with" in words
