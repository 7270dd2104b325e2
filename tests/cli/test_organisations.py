"""The command line where parties are sites elsewhere; the server's side is in this process."""

import json

import numpy as np
import pytest
from tests.engines.nvflare_sides import Session
from typer.testing import CliRunner

import eigenmesh as em
from eigenmesh.cli.commands import app

X = np.random.default_rng(0).normal(size=(60, 4)) * [3, 2, 1, 1]
ROWS = em.Partitioned(rows=np.split(X, [20, 40]), names=["east", "north", "south"])
COLUMNS = em.Partitioned(columns=np.split(X, 2, axis=1), names=["east", "north"])
AT_SITES = ["--engine", "nvflare", "--startup-kit", "kit", "--study", "heart"]


@pytest.fixture(autouse=True)
def _needs_nvflare():
    pytest.importorskip("nvflare", reason="pip install 'eigenmesh[nvflare]'")


def run(*words):
    return CliRunner().invoke(app, list(map(str, words)))


def said(*words):
    done = run(*words, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_the_servers_job_fits_and_the_model_is_fetched(monkeypatch, tmp_path):
    session = Session(monkeypatch, ROWS)
    told = said("fit", "--model", tmp_path / "m.em", "--components", 2, *AT_SITES)
    expected = em.KernelPCA(2).fit(X)
    np.testing.assert_allclose(told["eigenvalues"], expected.eigenvalues_, rtol=1e-6)
    np.testing.assert_allclose(
        abs(em.load(tmp_path / "m.em").transform(X)), abs(expected.transform(X)), atol=1e-6
    )
    assert {kind for kinds in told["report"]["reveals"].values() for kind in kinds} <= {
        "aggregate",
        "counts",
    }
    assert session.jobs[0]._over.is_set()


def test_rows_are_prepared_where_they_are_by_the_numbers_of_columns(monkeypatch, tmp_path):
    rng = np.random.default_rng(3)
    rows = X * [1, 1e-4, 1e4, 0] + np.c_[np.zeros((60, 3)), rng.integers(3, size=60)]
    rows[:, 1] = np.exp(1e4 * rows[:, 1])
    rows[::9, 0] = np.nan
    parts = [np.split(rows, [20, 40]), ROWS.names]
    Session(monkeypatch, em.Partitioned(rows=parts[0], names=parts[1], allow_missing=True))
    how = ("--standardize", "--fill-missing", 0.3, "--log", 1, "--categories", 3)
    told = said("fit", "--model", tmp_path / "m.em", *how, *AT_SITES)
    preparation = em.Preparation(True, 0.3, log=[1], categories=[3])
    expected = em.KernelPCA(2, preparation=preparation).fit(rows)
    np.testing.assert_allclose(told["eigenvalues"], expected.eigenvalues_, rtol=1e-6)
    done = run("fit", "--model", tmp_path / "m.em", "--log", "age", *AT_SITES)
    assert "pass its number, from 0" in " ".join(done.output.split())


def test_clusters_stay_at_the_sites(monkeypatch, tmp_path):
    Session(monkeypatch, ROWS)
    words = ("--clusters", 2, "--landmarks", "diskpca", "--gamma", 0.05, "--accuracy", 0.9)
    done = run("cluster", *words, "--model", tmp_path / "m.em", *AT_SITES)
    assert done.exit_code == 0, done.output
    assert "eigenmesh site scores" in done.stdout
    assert len(em.load(tmp_path / "m.em").cluster_centers_) == 2


def test_scores_of_columns_come_from_the_server_and_of_rows_from_nowhere(monkeypatch, tmp_path):
    Session(monkeypatch, COLUMNS)
    model, scores = tmp_path / "m.em", tmp_path / "s.npy"
    said("fit", "--model", model, "--method", "one-shot", *AT_SITES)
    expected = em.load(model).eigenvalues_
    Session(monkeypatch, ROWS)
    said("fit", "--model", tmp_path / "rows.em", *AT_SITES)
    done = run("transform", tmp_path / "rows.em", "--out", scores, *AT_SITES)
    assert done.exit_code
    assert "site scores" in " ".join(done.output.split())
    np.testing.assert_allclose(
        expected, em.KernelPCA(2, method="one-shot").fit(COLUMNS).eigenvalues_
    )


def test_a_plan_is_made_of_what_the_sites_say(monkeypatch):
    Session(monkeypatch, ROWS)
    assert said("plan", *AT_SITES)["floats_up"] > 0


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["a.npy", *AT_SITES], "the sites name their own data"),
        ([*AT_SITES, "--allow", "counts"], "that is the sites' to say"),
        ([*AT_SITES, "--columns", "age"], "--columns with --engine nvflare"),
        (["--engine", "nvflare"], "needs --startup-kit and --study"),
        (["a.npy", "--study", "heart"], "are for --engine nvflare"),
        ([], "Missing argument"),
    ],
)
def test_what_is_for_files_or_for_sites_only_is_refused(words, reason, tmp_path):
    done = run("fit", "--model", tmp_path / "m.em", *words)
    assert done.exit_code
    assert reason in " ".join(done.output.split())


def test_a_refusal_at_a_site_keeps_its_class(monkeypatch, tmp_path):
    strict = em.Partitioned(
        rows=np.split(X, [20, 40]), names=ROWS.names, policies=em.Policy(allow={"counts"})
    )
    Session(monkeypatch, strict)
    done = run("fit", "--model", tmp_path / "m.em", "--method", "moments", *AT_SITES)
    assert done.exit_code
    assert "refuses" in done.output
