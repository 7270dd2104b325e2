"""The command line on small real data: answers, costs and errors."""

from __future__ import annotations

import csv
import json
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_wine
from sklearn.decomposition import KernelPCA
from sklearn.metrics import adjusted_rand_score
from typer.testing import CliRunner

import eigenmesh as em
from eigenmesh.cli.commands import app

ONE_SHOT = ["--method", "one-shot"]
RBF = [*ONE_SHOT, "--kernel", "rbf", "--gamma", "0.05", "--components", "3", "--local-rank", "12"]
SETTINGS = {
    "linear": (ONE_SHOT, {"n_components": 2}),
    "product": (
        RBF,
        {"n_components": 3, "kernel": "rbf", "gamma": 0.05, "local_rank": 12},
    ),
    "distance": (
        [*RBF, "--fusion", "distance"],
        {
            "n_components": 3,
            "kernel": "rbf",
            "gamma": 0.05,
            "local_rank": 12,
            "fusion": "distance",
        },
    ),
}
pytestmark = pytest.mark.filterwarnings("ignore::eigenmesh.errors.EigenmeshWarning")


def run(*args, columns="80"):
    return CliRunner().invoke(app, [str(arg) for arg in args], env={"COLUMNS": columns})


def answer(*args):
    """The JSON document on stdout, which must hold nothing else."""
    result = run(*args, "--json")
    return result.exit_code, json.loads(result.stdout)


def write(path, X):
    if path.suffix == ".npy":
        np.save(path, X)
    elif path.suffix == ".npz":
        np.savez(path, X=X)
    else:
        header = ",".join(f"c{i}" for i in range(X.shape[1]))
        np.savetxt(path, X, fmt="%.18g", delimiter=",", header=header, comments="")
    return path


@pytest.fixture(scope="module")
def wine():
    X = load_wine().data
    return (X - X.mean(axis=0)) / X.std(axis=0)


@pytest.fixture
def blocks(wine):
    return [wine[:, :5], wine[:, 5:9], wine[:, 9:]]


@pytest.fixture
def files(tmp_path, blocks):
    """Training samples, one file a party, in three formats."""
    names = ("a.npy", "b.csv", "c.npz")
    return [write(tmp_path / n, B[:120]) for n, B in zip(names, blocks, strict=True)]


@pytest.fixture
def new_files(tmp_path, blocks):
    names = ("new-a.npy", "new-b.csv", "new-c.npz")
    return [write(tmp_path / n, B[120:]) for n, B in zip(names, blocks, strict=True)]


# Answers.


@pytest.mark.parametrize("setting", SETTINGS)
def test_transform_after_fit_equals_the_estimator(setting, tmp_path, files, new_files, blocks):
    options, params = SETTINGS[setting]
    assert run("fit", *files, "--model", tmp_path / "m.em", *options).exit_code == 0
    assert (
        run("transform", tmp_path / "m.em", *new_files, "--out", tmp_path / "z.npy").exit_code == 0
    )
    kpca = em.OneShotKPCA(**params).fit(em.Partitioned(columns=[B[:120] for B in blocks]))
    expected = kpca.transform(em.Partitioned(columns=[B[120:] for B in blocks]))
    np.testing.assert_allclose(np.load(tmp_path / "z.npy"), expected, atol=1e-12)


def test_each_file_of_scores_is_said_with_its_own_number(tmp_path):
    X, names = np.random.default_rng(0).normal(size=(90, 3)), ["a.csv", "b.csv", "c.csv"]
    rows = zip(names, np.split(X, [7, 30]), strict=True)
    paths = [write(tmp_path / name, own) for name, own in rows]
    options = ("--split", "rows", "--kernel", "linear")
    assert run("fit", *paths, "--model", tmp_path / "m.em", *options).exit_code == 0
    result = run("transform", tmp_path / "m.em", *paths, "--out", tmp_path / "z.csv")
    words = " ".join(result.output.split())
    assert [f"Scores of {n} samples" in words for n in (7, 23, 60, 90)] == [True] * 3 + [False]


@pytest.mark.parametrize("setting", SETTINGS)
def test_scores_of_a_fit_equal_fit_transform(setting, tmp_path, files, blocks):
    options, params = SETTINGS[setting]
    scores = tmp_path / "z.csv"
    assert (
        run("fit", *files, "--model", tmp_path / "m.em", "--scores", scores, *options).exit_code
        == 0
    )
    expected = em.OneShotKPCA(**params).fit_transform(
        em.Partitioned(columns=[B[:120] for B in blocks])
    )
    np.testing.assert_allclose(np.loadtxt(scores, delimiter=",", skiprows=1), expected, atol=1e-12)


def test_fit_reports_what_the_estimator_reports(tmp_path, files, blocks):
    code, tree = answer("fit", *files, "--model", tmp_path / "m.em", *RBF)
    report = (
        em.OneShotKPCA(**SETTINGS["product"][1])
        .fit(em.Partitioned(columns=[B[:120] for B in blocks], names=["a", "b", "c"]))
        .report_
    )
    assert code == 0
    assert tree["report"]["floats_up"] == report.floats_up == 3 * 12 * 121
    assert tree["report"]["reveals"] == {p: dict(k) for p, k in report.reveals.items()}
    assert tree["report"]["share_of_baseline"] == report.share_of_baseline
    assert [Path(share).name for share in tree["shares"]] == [f"m.share-{i}.em" for i in range(3)]


def test_scores_that_cost_another_message_are_accounted_for(tmp_path, files):
    command = ["fit", *files, "--model", tmp_path / "m.em", "--scores", tmp_path / "z.npy", *RBF]
    _, free = answer(*command)
    _, distances = answer(*command, "--fusion", "distance")
    assert free["scores_report"] is None
    assert distances["scores_report"]["floats_up"] == 120 * 13
    assert "What the scores cost besides" in run(*command, "--fusion", "distance").stdout


def test_fit_prints_cost_and_disclosure_within_80_columns(tmp_path, files):
    result = run("fit", *files, "--model", tmp_path / "m.em", *RBF)
    assert "4,356 floats up, 0 down, in 1 round" in result.stdout
    assert "more than shipping everything" in result.stdout
    assert result.stdout.count("eigenvectors: 1,452") == 3
    tables = [line for line in result.stdout.splitlines() if str(tmp_path) not in line]
    assert max(map(len, tables)) <= 80


@pytest.mark.parametrize("gamma", ["0.05", "scale", "median", "mean-distance", None])
def test_a_plan_foretells_the_report(gamma, tmp_path, files):
    options = [
        *ONE_SHOT,
        "--kernel",
        "rbf",
        "--local-rank",
        "4",
        *(["--gamma", gamma] if gamma else []),
    ]
    _, planned = answer("plan", *files, *options)
    _, fitted = answer("fit", *files, "--model", tmp_path / "m.em", *options)
    for name in ("floats_up", "floats_down", "rounds", "by_step", "by_party", "reveals"):
        assert planned[name] == fitted["report"][name], name


def test_a_plan_says_who_would_refuse(files):
    _, planned = answer("plan", *files, *ONE_SHOT, "--allow", "counts", "--allow", "hashes")
    assert planned["refusals"] == {name: ["columns", "eigenvectors"] for name in "abc"}
    page = run("plan", *files, *ONE_SHOT, "--allow", "counts,hashes").stdout
    assert "b: columns, eigenvectors may not leave it" in page
    assert page.count("REFUSED: columns, eigenvectors") == 3
    assert "nobody" in run("plan", *files).stdout


def test_parties_are_matched_by_name_in_any_order(tmp_path, files, new_files):
    model, out = tmp_path / "m.em", tmp_path / "z.npy"
    run("fit", *files, "--model", model, "--names", "north,east,south")
    run("transform", model, *new_files, "--out", out)
    in_order = np.load(out)
    result = run("transform", model, *new_files[::-1], "--out", out, "--names", "south,east,north")
    assert result.exit_code == 0
    np.testing.assert_array_equal(np.load(out), in_order)


def test_sample_ids_stay_with_their_scores(tmp_path, wine):
    ids = [f"s{i}" for i in range(len(wine))]
    for name, B in (("a.csv", wine[:, :6]), ("b.csv", wine[:, 6:])):
        with (tmp_path / name).open("w", newline="") as file:
            out = csv.writer(file)
            out.writerow(["id", *range(B.shape[1])])
            out.writerows([i, *row] for i, row in zip(ids, B.tolist(), strict=True))
    paths = (tmp_path / "a.csv", tmp_path / "b.csv")
    scores = tmp_path / "z.csv"
    result = run("fit", *paths, "--model", tmp_path / "m.em", "--scores", scores)
    assert result.exit_code == 0, result.stderr
    rows = list(csv.reader(scores.open()))
    assert rows[0] == ["id", "kernelpca0", "kernelpca1"]
    assert [row[0] for row in rows[1:]] == ids


# Parties that hold rows.


@pytest.fixture
def row_files(tmp_path, wine):
    names = ("north.npy", "south.csv", "west.npz")
    pieces = (wine[:70], wine[70:120], wine[120:])
    return [write(tmp_path / n, B) for n, B in zip(names, pieces, strict=True)]


ROWS = ["--split", "rows", "--kernel", "rbf", "--gamma", "0.05", "--components", "3"]


def test_rows_are_scored_where_they_are(tmp_path, row_files, wine):
    model, scores, again = (tmp_path / name for name in ("m.em", "z.npy", "y.csv"))
    every = ["--n-landmarks", "178", "--landmarks", "uniform"]
    result = run("fit", *row_files, "--model", model, "--scores", scores, *ROWS, *every)
    assert result.exit_code == 0, result.stderr
    assert "method diskpca: 3 parties hold rows" in result.stdout
    Z = np.vstack([np.load(tmp_path / f"z.{name}.npy") for name in ("north", "south", "west")])
    reference = KernelPCA(3, kernel="rbf", gamma=0.05).fit_transform(wine)
    np.testing.assert_allclose(np.abs(Z), np.abs(reference), atol=1e-8)
    assert run("transform", model, row_files[1], "--out", again).exit_code == 0
    np.testing.assert_allclose(np.loadtxt(again, delimiter=",", skiprows=1), Z[70:120], atol=1e-12)


def test_a_share_of_variance_chooses_the_components(tmp_path, row_files):
    command = ["fit", *row_files, "--split", "rows", "--model", tmp_path / "m.em"]
    code, tree = answer(*command, "--components", "0.6", "--n-landmarks", "178")
    assert code == 0
    shares = np.cumsum(tree["explained_variance_ratio"])
    assert shares[-1] >= 0.6 > shares[-2]


def test_a_plan_of_rows_foretells_the_report(tmp_path, row_files):
    options = [*ROWS, "--landmarks", "diskpca", "--n-landmarks", "40"]
    _, planned = answer("plan", *row_files, *options)
    _, fitted = answer("fit", *row_files, "--model", tmp_path / "m.em", *options)
    for name in ("floats_up", "floats_down", "rounds", "by_step"):
        assert planned[name] == fitted["report"][name], name


@pytest.mark.parametrize(("told", "topology"), [("ring", "ring"), ("lattice:2", ("lattice", 2))])
def test_parties_on_a_graph_from_the_command_line(tmp_path, row_files, wine, told, topology):
    options = [*row_files, "--split", "rows", "--kernel", "rbf", "--gamma", "0.05"]
    options += ["--accuracy", "0.5"]  # so that one look is enough, which a plan takes for granted
    _, expected = answer("plan", *options, "--topology", told)
    code, tree = answer("fit", *options, "--topology", told, "--model", tmp_path / "m.em")
    assert code == 0
    assert tree["method"].startswith("gossip")
    assert tree["report"]["floats_up"] == expected["floats_up"]
    assert tree["report"]["floats_down"] == expected["floats_down"]
    model = em.load(tmp_path / "m.em")
    parts = em.Partitioned(rows=row_files)
    graph = {"topology": topology, "accuracy": 0.5, "random_state": 0}
    same = em.KernelPCA(2, kernel="rbf", gamma=0.05, **graph).fit(parts)
    np.testing.assert_allclose(model.transform(wine), same.transform(wine), atol=1e-8)
    clusters = [*row_files, "--clusters", "3", "--topology", told]
    code, tree = answer("cluster", *clusters)
    assert code == 0
    assert tree["method"].startswith("gossip")


@pytest.mark.parametrize("told", ["moebius", "lattice:3", "lattice:x", "ring:2"])
def test_a_topology_that_is_none_is_explained(row_files, told):
    code, tree = answer("plan", *row_files, "--split", "rows", "--topology", told)
    assert code == 2
    assert told.partition(":")[0] in tree["message"]


def test_labels_stay_with_their_rows(tmp_path, row_files, wine):
    file = tmp_path / "l.npy"
    command = ["cluster", *row_files, "--clusters", "3", "--labels", file, "--gamma", "0.05"]
    code, tree = answer(*command)
    assert code == 0
    labels = [np.load(tmp_path / f"l.{name}.npy").ravel() for name in ("north", "south", "west")]
    assert [len(own) for own in labels] == [70, 50, 58]
    assert adjusted_rand_score(load_wine().target, np.concatenate(labels)) > 0.8
    assert tree["sizes"] == np.bincount(np.concatenate(labels)).tolist()
    assert "3 clusters, rbf kernel" in run(*command).stdout


def test_columns_are_clustered_too(tmp_path, files, wine):
    labels, model = tmp_path / "l.csv", tmp_path / "m.em"
    options = ["--clusters", "3", "--split", "columns", "--kernel", "rbf", "--gamma", "0.05"]
    code, planned = answer("plan", *files, *options)
    assert code == 0
    code, tree = answer("cluster", *files, *options, "--labels", labels, "--model", model)
    assert code == 0
    assert tree["labels"] == [str(labels)]
    held = np.loadtxt(labels, delimiter=",", skiprows=1, dtype=int)
    assert tree["sizes"] == np.bincount(held).tolist()
    for name in ("floats_up", "floats_down", "rounds"):
        assert planned[name] == tree["report"][name], name
    np.testing.assert_array_equal(em.load(model).predict(wine[:120]), held)


def test_rows_do_not_leave_a_party_that_forbids_it(tmp_path, row_files):
    allowed = ["--allow", "centroids,gram,moments,counts"]
    command = ["fit", *row_files, "--model", tmp_path / "m.em", *ROWS, *allowed]
    code, tree = answer(*command)
    assert code == 0
    assert all("rows" not in kinds for kinds in tree["report"]["reveals"].values())
    code, refused = answer(*command, "--landmarks", "uniform")
    assert (code, refused["error"], refused["party"]) == (2, "PolicyRefusal", "north")


# Errors and warnings.


def _damaged(tmp_path, files):
    run("fit", *files, "--model", tmp_path / "m.em")
    data = bytearray((tmp_path / "m.em").read_bytes())
    data[len(data) // 2] ^= 0xFF
    (tmp_path / "m.em").write_bytes(data)
    return ["transform", tmp_path / "m.em", *files, "--out", tmp_path / "z.npy"]


def _pickled(tmp_path, files):
    (tmp_path / "m.em").write_bytes(pickle.dumps({"a": 1}))
    return ["transform", tmp_path / "m.em", *files, "--out", tmp_path / "z.npy"]


def _without_shares(tmp_path, files):
    run("fit", *files, "--model", tmp_path / "m.em", "--no-shares")
    return ["transform", tmp_path / "m.em", *files, "--out", tmp_path / "z.npy"]


def _with_too_few_files(tmp_path, files):
    run("fit", *files, "--model", tmp_path / "m.em")
    return ["transform", tmp_path / "m.em", files[0], "--out", tmp_path / "z.npy"]


def _with_nan(tmp_path, files):
    X = np.load(files[0]).copy()
    X[3, 2] = np.nan
    bad = write(tmp_path / "bad.npy", X)
    return ["fit", files[0], bad, "--model", tmp_path / "m.em"]


def _with(*options, n=3):
    def arguments(tmp_path, files):
        return ["fit", *files[:n], "--model", tmp_path / "m.em", *options]

    return arguments


def _with_a_missing_file(tmp_path, files):
    return ["fit", files[0], tmp_path / "nowhere.npy", "--model", tmp_path / "m.em"]


def _over_its_input(tmp_path, files):
    return ["fit", *files, "--model", files[0]]


def _into_no_folder(tmp_path, files):
    return ["fit", *files, "--model", tmp_path / "none" / "m.em"]


def _demo_into_a_file(tmp_path, files):
    return ["demo", "--out", files[0]]


FAILURES = {
    "missing file": (_with_a_missing_file, "PartitionError", "nowhere", "is missing"),
    "NaN": (_with_nan, "PartitionError", "bad", "nan at row 3, column 2"),
    "policy": (
        _with(*ONE_SHOT, "--allow", "counts,hashes"),
        "PolicyRefusal",
        "a",
        "'eigenvectors'",
    ),
    "unknown kind": (_with("--allow", "pixels"), "InputError", None, "'pixels'"),
    "widths differ": (_with("--split", "rows"), "PartitionError", "c", "columns"),
    "gamma of linear": (_with("--gamma", "1"), "InputError", None, "--kernel rbf"),
    "unknown gamma": (_with("--kernel", "rbf", "--gamma", "x"), "InputError", None, "'median'"),
    "too many components": (_with("--components", "500"), "RankError", None, "500"),
    "two names for three": (_with("--names", "a,b"), "InputError", None, "3 names"),
    "scores as text": (_with("--scores", "z.txt"), "InputError", None, ".npy or .csv"),
    "overwriting": (_over_its_input, "InputError", None, "another file"),
    "no folder": (_into_no_folder, "InputError", None, "does not exist"),
    "damaged model": (_damaged, "ModelFileError", None, "damaged"),
    "pickled model": (_pickled, "ModelFileError", None, "pickle"),
    "no shares": (_without_shares, "MissingPartyShare", "a", "no share"),
    "too few files": (_with_too_few_files, "InputError", None, "one file a party"),
    "demo into a file": (_demo_into_a_file, "FileExistsError", None, "exists"),
}


@pytest.mark.parametrize("failure", FAILURES)
def test_an_error_is_one_line_or_one_document(failure, tmp_path, files):
    arguments, kind, party, words = FAILURES[failure]
    command = arguments(tmp_path, files)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}

    result = run(*command)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(f"{kind}: ")
    assert result.stderr.count("\n") == 1
    assert words in result.stderr

    code, document = answer(*command)
    assert code == 2
    assert (document["error"], document["party"]) == (kind, party)
    assert words in document["message"]
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before, "nothing is written"


def test_a_warning_is_said_once_on_stderr(tmp_path, files):
    dear = ["fit", *files, "--model", tmp_path / "m.em", *RBF, "--scores", tmp_path / "z.npy"]
    human, machine = run(*dear), run(*dear, "--json")
    assert human.stderr.count("warning: 4,356 floats were sent") == 1
    assert "lower local_rank" not in human.stdout
    assert machine.stderr.count("warning: ") == 1
    assert json.loads(machine.stdout)["report"]["notes"]


@pytest.mark.parametrize("command", ["demo", "fit", "transform", "cluster", "plan"])
def test_help_has_an_example(command):
    assert f"Example: eigenmesh {command}" in run(command, "--help").stdout


def test_version():
    assert run("--version").stdout == f"eigenmesh {em.__version__}\n"


# As installed.


def test_the_installed_command_works(tmp_path, files):
    command = Path(sys.executable).with_name("eigenmesh")
    if not command.exists():
        pytest.skip("the package is not installed beside this Python")
    plan = [command, "plan", *files, *ONE_SHOT, "--local-rank", "2", "--json"]
    # An ASCII terminal must not end a run for want of a letter.
    ascii_only = {"PYTHONIOENCODING": "ascii", "PATH": "", "HOME": str(tmp_path)}
    process = subprocess.run(plan, capture_output=True, text=True, timeout=60, env=ascii_only)
    assert json.loads(process.stdout)["floats_up"] == 3 * 2 * 121


def test_an_accuracy_from_the_command_line(tmp_path):
    rng = np.random.default_rng(0)
    files = [tmp_path / f"{name}.npy" for name in ("north", "south")]
    for file in files:
        np.save(file, rng.normal(size=(60, 4)))
    paths, model = list(map(str, files)), str(tmp_path / "model.em")
    options = ["--split", "rows", "--kernel", "rbf", "--gamma", "0.5", "--model", model]
    result = run("fit", *paths, *options, "--accuracy", "0.001")
    assert "landmarks miss about" in " ".join(result.output.split())
    _, tree = answer("fit", *paths, *options, "--accuracy", "1")
    assert len(tree["shortfalls"]) == 2
    assert 0 < max(tree["shortfalls"]) < 1
    assert run("cluster", *paths, "--clusters", "2", "--accuracy", "1").exit_code == 0


def test_masked_sums_from_the_command_line(tmp_path):
    """Sizes and sums are all that leaves, of a party of three rows too; scores stay with rows."""
    rng = np.random.default_rng(0)
    files = [tmp_path / f"{name}.npy" for name in ("north", "south", "tiny")]
    for path, n in zip(files, (60, 50, 3), strict=True):
        np.save(path, rng.normal(size=(n, 3)))
    common = ["--split", "rows", "--kernel", "rbf", "--gamma", "scale", "--secure"]
    kinds = ["--allow", "counts,aggregate"]
    _, planned = answer("plan", *files, *common, *kinds)
    assert planned["refusals"] == {}
    scores = ["--scores", tmp_path / "scores.npy"]
    _, fitted = answer("fit", *files, *common, *kinds, *scores, "--model", tmp_path / "m.em")
    for account in (planned["reveals"], fitted["report"]["reveals"]):
        assert all(set(own) == {"counts", "aggregate"} for own in account.values())
    assert [len(np.load(path)) for path in fitted["scores"]] == [60, 50, 3]
    command = ["--clusters", "2", *common, *kinds]
    _, clustered = answer("cluster", *files, *command)
    assert set(clustered["report"]["reveals"]["tiny"]) == {"counts", "aggregate"}
