"""On the command line columns and parties are matched by name, and ids stay beside their rows."""

import json
import re

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import eigenmesh as em
from eigenmesh.cli.commands import app

pytestmark = pytest.mark.filterwarnings("ignore::eigenmesh.errors.EigenmeshWarning")


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def answer(*arguments):
    result = run(*arguments, "--json")
    return result.exit_code, json.loads(result.stdout)


def write(frame, path):
    if path.suffix == ".parquet":
        frame.to_parquet(path, index=False)
    else:
        frame.to_csv(path, index=False)
    return path


def draw(seed, n=40, d=6):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(rng.normal(size=(n, d)) * (1 + np.arange(d)), columns=list("uvwxyz"[:d]))
    return rng, frame.assign(patient=[f"p{i}" for i in rng.permutation(n)])


def cut(frame, split):
    """Two parties' files: rows, or columns of equal width with the ids beside them."""
    if split == "rows":
        return [frame.iloc[:22], frame.iloc[22:]]
    return [frame[["u", "v", "w", "patient"]], frame[["patient", "x", "y", "z"]]]


def shuffled(rng, frame):
    return frame[rng.permutation(frame.columns)]


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
@pytest.mark.parametrize("split", ["rows", "columns"])
def test_new_files_are_matched_by_the_names_of_their_columns(tmp_path, split, suffix):
    rng, frame = draw(1)
    own = cut(frame, split)
    files = [write(own[i], tmp_path / f"{name}{suffix}") for i, name in enumerate("ab")]
    model, ids = tmp_path / "m.em", ["--id-column", "patient"]
    fitted = tmp_path / "fitted.csv"
    code, _ = answer("fit", *files, "--split", split, "--model", model, "--scores", fitted, *ids)
    assert code == 0

    def transform(frames, names, *more):
        new = [write(f, tmp_path / f"{n}{suffix}") for f, n in zip(frames, names, strict=True)]
        out = tmp_path / "z.csv"
        code, tree = answer("transform", model, *new, "--out", out, *ids, *more)
        if code:
            return code, tree["message"]
        return code, pd.concat([pd.read_csv(path) for path in tree["scores"]])

    _, own_scores = transform(own, ["a-1", "b-1"])
    reference = own_scores.set_index("id").sort_index()
    assert set(reference.index) == set(frame["patient"])
    for names in (["c", "d"], ["b-2", "a-2"]):
        mixed = [shuffled(rng, own[1]), shuffled(rng, own[0])]
        code, scores = transform(mixed, names)
        assert code == 0
        scores = scores.set_index("id").sort_index()
        np.testing.assert_allclose(scores, reference, atol=1e-12)
    _refuses_other_names(rng, transform, own)


def _refuses_other_names(rng, transform, own):
    column = rng.choice([name for name in own[0].columns if name != "patient"])
    for wrong, words in (
        (own[0].rename(columns={column: "other"}), "other"),
        (own[0].drop(columns=column), column),
        (own[0].assign(other=1.0), "other"),
    ):
        code, message = transform([wrong, own[1]], ["a-3", "b-3"])
        assert code == 2
        assert words in message


def test_files_without_column_names_are_matched_by_their_own(tmp_path):
    rng = np.random.default_rng(5)
    X = rng.normal(size=(30, 6)) * (1 + np.arange(6))
    own = {"north": X[:, :3], "south": X[:, 3:]}
    files = {name: tmp_path / f"{name}.npy" for name in own}
    for name, values in own.items():
        np.save(files[name], values)
        np.save(tmp_path / f"{name}-new.npy", values[:9])
        np.save(tmp_path / f"{name[0]}.npy", values[:9])
    model, out = tmp_path / "m.em", tmp_path / "z.npy"
    assert run("fit", *files.values(), "--model", model).exit_code == 0

    def scores(*names):
        result = run("transform", model, *(tmp_path / f"{n}.npy" for n in names), "--out", out)
        return np.load(out) if result.exit_code == 0 else result.stderr

    wanted = scores("north-new", "south-new")
    np.testing.assert_array_equal(scores("south-new", "north-new"), wanted)
    np.testing.assert_array_equal(scores("south", "north")[:9], wanted)
    np.testing.assert_array_equal(scores("n", "s"), wanted)  # nothing tells: in order
    assert "--names" in scores("south-new", "n")


@pytest.mark.parametrize("form", ["csv", "npy"])
@pytest.mark.parametrize("split", ["rows", "columns"])
def test_ids_stand_beside_scores_and_labels(tmp_path, split, form):
    _, frame = draw(2)
    own = cut(frame, split)
    files = [write(part, tmp_path / f"{name}.csv") for part, name in zip(own, "ab", strict=True)]
    where = ["--split", split, "--id-column", "patient"]
    model = ["--model", tmp_path / "m.em"]
    _, fitted = answer("fit", *files, *where, *model, "--scores", tmp_path / f"f.{form}")
    _, clustered = answer(
        "cluster", *files, *where, "--clusters", 2, "--labels", tmp_path / f"l.{form}"
    )
    _, new = answer(
        "transform",
        tmp_path / "m.em",
        *files,
        "--id-column",
        "patient",
        "--out",
        tmp_path / f"z.{form}",
    )
    expected = [part["patient"].tolist() for part in (own if split == "rows" else own[:1])]
    for found, what in ((fitted, "scores"), (clustered, "labels"), (new, "scores")):
        assert len(found[what]) == len(expected)
        if form == "csv":
            held = [pd.read_csv(path)["id"].tolist() for path in found[what]]
        else:
            assert len(found["ids"]) == len(expected)
            held = [np.load(path).tolist() for path in found["ids"]]
        assert held == expected
    code, planned = answer("plan", *files, *where)
    assert code == 0
    assert planned["baseline_floats"] == 40 * 6  # the ids are no column
    code, refused = answer("plan", *files, "--split", split, "--id-column", "person")
    assert code == 2
    assert "person" in refused["message"]


def test_an_id_among_the_features_is_warned_of(tmp_path):
    rng, frame = draw(3)
    numbered = frame.drop(columns="patient").assign(record=rng.permutation(40))
    halves = numbered[:21], numbered[21:]
    files = [write(part, tmp_path / f"{i}.csv") for i, part in enumerate(halves)]
    command = ["fit", *files, "--split", "rows", "--model", tmp_path / "m.em"]
    assert "'record' of parties '0', '1' looks like an id" in run(*command).stderr
    assert "looks like an id" not in run(*command, "--id-column", "record").stderr


def test_models_keep_their_names_in_the_file(tmp_path):
    _, frame = draw(4)
    own = cut(frame, "columns")
    files = [write(part, tmp_path / f"{name}.csv") for part, name in zip(own, "ab", strict=True)]
    run("fit", *files, "--model", tmp_path / "m.em", "--id-column", "patient")
    loaded = em.load(tmp_path / "m.em")
    assert loaded.party_names_ == ("a", "b")
    assert loaded.party_feature_names_ == {"a": ("u", "v", "w"), "b": ("x", "y", "z")}


def test_the_table_of_what_leaves_whom_has_each_partys_own_file(tmp_path):
    _, frame = draw(3)
    halves = cut(frame, "columns")
    own = [write(own, tmp_path / f"{name}.csv") for name, own in zip("ab", halves, strict=True)]
    model, ids = tmp_path / "m.em", ["--id-column", "patient"]
    assert run("fit", *own, "--split", "columns", "--model", model, *ids).exit_code == 0
    for files in (own, own[::-1]):
        lines = run("transform", model, *files, "--out", tmp_path / "z.csv", *ids).stdout
        for party in "ab":
            assert re.search(rf"^ *{party} +{party}\.csv, 40 × 3", lines, re.MULTILINE)


@pytest.mark.parametrize("split", ["rows", "columns"])
def test_a_forgotten_id_column_is_the_remedy_whatever_is_split(tmp_path, split):
    _, frame = draw(4)
    own = [write(own, tmp_path / f"{i}.csv") for i, own in enumerate(cut(frame, split))]
    model = tmp_path / "m.em"
    ids = ["--id-column", "patient"]
    assert run("fit", *own, "--split", split, "--model", model, *ids).exit_code == 0
    code, tree = answer("transform", model, *own, "--out", tmp_path / "z.csv")
    assert code == 2
    assert "--id-column patient" in tree["message"]


def test_no_warning_has_a_file_and_a_source_line(tmp_path):
    _, frame = draw(5)
    own = [write(own, tmp_path / f"{i}.csv") for i, own in enumerate(cut(frame, "rows"))]
    model, new = tmp_path / "m.em", tmp_path / "new.csv"
    assert run("fit", *own, "--id-column", "patient", "--model", model).exit_code == 0
    np.savetxt(new, frame.drop(columns="patient"), delimiter=",")  # without names
    result = run("transform", model, new, "--out", tmp_path / "z.csv")
    assert result.exit_code == 0, result.output
    assert result.stderr.startswith("warning: X does not have valid feature names")
    assert ".py" not in result.stderr
