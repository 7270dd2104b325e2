"""A site's kit as its owner uses it: every command, in the order of a study's life."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest
from tests.site_folder.folders import drawn_rows, write_csv
from typer.testing import CliRunner

import eigenmesh as em
from eigenmesh.cli.commands import app
from eigenmesh.errors import PolicyRefusal
from eigenmesh.site_folder import SiteFolder

NAMES = ("north", "south", "west")
SIZES = (60, 80, 70)
COLUMNS = ["age", "bmi", "pulse", "dose"]


def run(*args):
    return CliRunner().invoke(app, [str(arg) for arg in args], env={"COLUMNS": "120"})


def answer(*args):
    """The JSON document of a command that must end well."""
    result = run(*args, "--json")
    assert result.exit_code == 0, result.stdout + result.stderr
    return json.loads(result.stdout)


def refusal(*args):
    """The words of a command that must not."""
    result = run(*args, "--json")
    assert result.exit_code == 2, result.stdout
    return json.loads(result.stdout)["message"]


@pytest.fixture
def sites(tmp_path):
    """Three folders, made by `site init`, whose owners have told each other their keys."""
    rng, keys = np.random.default_rng(3), {}
    for name, n in zip(NAMES, SIZES, strict=True):
        ids = [f"{name[0]}{i:03d}" for i in range(n)]
        file = write_csv(tmp_path / f"{name}.csv", ids, drawn_rows(rng, n), COLUMNS)
        options = ("--name", name, "--id-column", "patient", "--site", tmp_path / name)
        keys[name] = answer("site", "init", file, *options)["public_key"]
    for name in NAMES:
        with (tmp_path / name / "site.toml").open("a") as file:
            file.write("[peers]\n")
            file.writelines(f'{other} = "{keys[other]}"\n' for other in NAMES if other != name)
    return [tmp_path / name for name in NAMES]


def study_file(tmp_path, *options, sizes=SIZES, name="study.json"):
    parties = [f"--party={n}={rows}x4" for n, rows in zip(NAMES, sizes, strict=True)]
    return tmp_path / name, answer("study", "--out", tmp_path / name, *parties, *options)


def approve_everywhere(sites, file):
    for site in sites:
        answer("site", "approve", file, "--site", site, "--by", "Dr. Grey")


def fitted(sites, file, estimator):
    study = em.load_study(file)
    with em.federation(sites=sites, under=study, secure=study.runs[0].scope.secure) as fed:
        estimator.fit(fed)
        return estimator, fed.log_heads()


def test_a_study_from_beginning_to_end(tmp_path, sites):
    north = sites[0]
    facts = answer("site", "check", "--site", north)
    assert facts["holds"] == "60 rows, 4 columns"
    assert facts["may leave"] == "aggregate, counts, hashes"
    assert facts["mind"] == []
    assert "waits until a person here approves" in " ".join(facts["rules"])

    file, asked = study_file(tmp_path, "--clusters", 2, "--kernel", "linear", "--secure")
    view = answer("site", "plan", file, "--site", north)
    assert view["digest"] == asked["digest"]
    assert set(view["leaves"]) == {"aggregate", "counts", "hashes"}
    assert view["refusals"] == []
    assert not view["is_approved"]
    trial = answer("site", "dry-run", file, "--site", north)
    assert set(trial["report"]["reveals"]["north"]) <= set(view["leaves"])
    assert trial["shape"] == [60, 4]

    # Nobody has approved it: it is refused, at the first site that has not.
    kmeans = em.KernelKMeans(2, kernel="linear", random_state=0)
    approve_everywhere(sites[1:], file)
    with pytest.warns(em.EigenmeshWarning, match="columns in the same order is not known"):
        with pytest.raises(PolicyRefusal, match=r"'north'.*'approve'"):
            fitted(sites, file, kmeans)
    answer("site", "approve", file, "--site", north, "--by", "Dr. Grey")
    kmeans, heads = fitted(sites, file, kmeans)
    assert kmeans.report_.reveals["north"].keys() <= view["leaves"].keys()

    # What happened is in the log, and what left is what the plan said.
    lines = answer("site", "log", "--site", north, "--last", 1000)
    assert [line["by"] for line in lines if line.get("act") == "approve"] == ["Dr. Grey"]
    assert {line["rule"] for line in lines if "rule" in line} == {"approve"}
    kinds = {kind for line in lines for sent in line["sent"] for kind in sent["kinds"]}
    assert kinds == set(view["leaves"])
    assert answer("site", "verify", "--site", north, "--head", heads["north"])["lines"] >= 10

    # Scores and clusters are at the site, beside the ids of its rows.
    answer("site", "scores", "--site", north, "--out", tmp_path / "scores.csv")
    assert (tmp_path / "scores.csv").stat().st_mode & 0o777 == 0o600
    with (tmp_path / "scores.csv").open() as table:
        rows = list(csv.DictReader(table))
    assert [row["id"] for row in rows] == [f"n{i:03d}" for i in range(60)]
    assert {row["cluster"] for row in rows} == {"0", "1"}

    # Rows leave the data set; what was spent stays spent, and the next study goes without them.
    spent = answer("site", "check", "--site", north)["spent"][0]
    assert "few" not in refusal("site", "withdraw", "n003", "--site", north)
    gone = [f"n{i:03d}" for i in range(8)]
    assert answer("site", "withdraw", *gone, "--site", north) == {"withdrawn": 8, "left": 52}
    file, _ = study_file(tmp_path, "--secure", sizes=(52, 80, 70), name="later.json")
    approve_everywhere(sites, file)
    kpca, _ = fitted(sites, file, em.KernelPCA(2, random_state=0))
    assert kpca.report_.baseline_floats == (52 + 80 + 70) * 4
    later = answer("site", "check", "--site", north)["spent"][0]
    assert float(later.split()[0]) > float(spent.split()[0])
    assert "2 versions" in later

    # The released model scores the site's own rows at the site; older results lose the same rows.
    kpca.save(tmp_path / "model.em")
    options = ("--site", north, "--out")
    by_model = answer(
        "site", "scores", "--model", tmp_path / "model.em", *options, tmp_path / "m.csv"
    )
    assert by_model["n_samples"] == 52
    assert answer("site", "scores", *options, tmp_path / "old.csv")["n_samples"] == 52


def test_commands_speak_to_people_too(tmp_path, sites):
    file, _ = study_file(tmp_path, "--kernel", "rbf", "--gamma", "0.1")
    site = ("--site", sites[0])
    new = ("--name", "x", "--id-column", "patient", "--site", tmp_path / "x")
    assert "Public key" in run("site", "init", tmp_path / "north.csv", *new).stdout
    for command, words in (
        (("check",), "never leaves"),
        (("plan", file), "rule 'allow'"),
        (("approve", file), "refuses it all the same"),
        (("log",), "approve"),
        (("verify",), "as it was written"),
        (("scores",), "What fits left"),
        (("revoke", file), "Revoked"),
    ):
        result = run("site", *command, *site)
        assert result.exit_code == 0, result.stderr
        assert words in result.stdout


def test_a_revoked_study_gets_no_further_reply(tmp_path, sites):
    file, _ = study_file(tmp_path, "--secure")
    approve_everywhere(sites, file)
    kpca, study = em.KernelPCA(2, random_state=0), em.load_study(file)
    with em.federation(sites=sites, under=study, secure=True) as fed:
        kpca.fit(fed)
        total = fed.total

        def revoke_first(*args, **kwargs):
            answer("site", "revoke", file, "--site", sites[1])
            return total(*args, **kwargs)

        fed.total = revoke_first
        with pytest.raises(PolicyRefusal, match=r"'south'.*'approve'"):
            kpca.fit(fed)
    last = answer("site", "log", "--site", sites[1], "--last", 3)
    assert "revoked" in next(line["words"] for line in last if "error" in line)
    assert "not approved" in refusal("site", "revoke", file, "--site", sites[1])


def test_a_restarted_site_knows_approvals_and_budget(tmp_path, sites):
    file, _ = study_file(tmp_path, "--secure")
    approve_everywhere(sites, file)
    fitted(sites, file, em.KernelPCA(2, random_state=0))
    spent = answer("site", "check", "--site", sites[0])["spent"]
    fitted(sites, file, em.KernelPCA(2, random_state=0))  # opens the folders anew
    assert (
        answer("site", "check", "--site", sites[0])["spent"] == spent
    )  # asked again, costs nothing
    policy, studies = sites[0] / "policy.toml", spent[0].split()[0]
    policy.write_text(policy.read_text().replace("studies = 20", f"studies = {studies}"))
    fitted(sites, file, em.KernelPCA(2, random_state=0))
    other, _ = study_file(tmp_path, "--components", 3, "--secure", name="other.json")
    approve_everywhere(sites, other)
    with pytest.raises(PolicyRefusal, match=r"'north'.*'approve'"):
        fitted(sites, file, em.KernelPCA(3, random_state=0))
    with pytest.raises(PolicyRefusal, match=r"'north'.*'budget'"):
        fitted(sites, other, em.KernelPCA(3, random_state=0))


@pytest.mark.parametrize("head", [True, False])
def test_a_cut_tail_is_found_by_verify_given_the_head(tmp_path, sites, head):
    file, _ = study_file(tmp_path, "--secure")
    approve_everywhere(sites, file)
    _, heads = fitted(sites, file, em.KernelPCA(2, random_state=0))
    log = SiteFolder(sites[0]).log_file
    log.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[:-3]))
    command = ("site", "verify", "--site", sites[0])
    if head:
        assert "cut off" in refusal(*command, "--head", heads["north"])
    else:
        assert answer(*command)["lines"] > 0
    changed = bytearray(log.read_bytes())
    changed[len(changed) // 2] ^= 4
    log.write_bytes(changed)
    assert "of the log" in refusal(*command)
    assert "of the log" in refusal("site", "log", "--site", sites[0])


def test_withdrawals_that_would_tell_single_rows_wait_for_others(tmp_path, sites):
    north = ("--site", sites[0])
    assert "in no row" in refusal("site", "withdraw", "n999", *north)
    file, _ = study_file(tmp_path, "--secure")
    approve_everywhere(sites, file)
    fitted(sites, file, em.KernelPCA(2, random_state=0))
    assert "withdraw 3 more" in refusal("site", "withdraw", "n001", "n002", *north)
    (tmp_path / "ids.txt").write_text("n001\nn002\n")
    assert answer("site", "withdraw", f"@{tmp_path / 'ids.txt'}", "--pause", *north)["left"] == 58
    assert "PAUSED" in " ".join(answer("site", "check", *north)["spent"])
    rules = {own["rule"] for own in answer("site", "plan", file, *north)["refusals"]}
    assert rules == {"min_rows"}
    with pytest.warns(em.EigenmeshWarning, match="is not known"):
        with pytest.raises(PolicyRefusal, match=r"'north'.*'min_rows'"):
            fitted(sites, file, em.KernelPCA(2, random_state=0))
    assert "withdrawn before" in refusal("site", "withdraw", "n001", *north)
    answer("site", "withdraw", "n003", "n004", "n005", *north)
    fitted(sites, file, em.KernelPCA(2, random_state=0))


def test_a_policy_that_its_owner_edits_holds_from_the_next_run_on(tmp_path, sites):
    file, _ = study_file(tmp_path, "--secure")
    approve_everywhere(sites, file)
    kpca = em.KernelPCA(2, random_state=0)
    with em.federation(sites=sites, under=em.load_study(file), secure=True) as fed:
        kpca.fit(fed)
        policy = sites[2] / "policy.toml"
        policy.write_text(policy.read_text().replace('"aggregate", ', ""))
        with pytest.raises(PolicyRefusal, match=r"'west'.*'allow'"):
            kpca.fit(fed)


def test_plans_name_what_is_refused_and_by_which_rule(tmp_path, sites):
    plain, _ = study_file(tmp_path, "--kernel", "rbf", "--gamma", "0.1", name="plain.json")
    view = answer("site", "plan", plain, "--site", sites[0])
    assert {own["rule"] for own in view["refusals"]} == {"allow"}
    assert any(
        "'centroids'" in own["words"] or "'gram'" in own["words"] for own in view["refusals"]
    )
    policy = sites[0] / "policy.toml"
    kinds = '"aggregate", "centroids", "gram", "moments", '
    policy.write_text(policy.read_text().replace('"aggregate", ', kinds))
    view = answer("site", "plan", plain, "--site", sites[0])
    assert view["refusals"] == []
    assert "determined in principle" in view["may_be_refused"][0]
    assert "'rows' leave" in refusal("site", "dry-run", plain, "--site", sites[0])
    other = tmp_path / "other.json"
    parties = ["--party=a=60x4", "--party=b=60x4"]
    answer("study", "--out", other, *parties, "--secure")
    assert {
        own["rule"] for own in answer("site", "plan", other, "--site", sites[0])["refusals"]
    } == {"study"}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda text: text.replace('"n_components": 2', '"n_components": 3'), "was changed"),
        (lambda text: text[: len(text) // 2], "is no study"),
        (lambda text: text.replace('"version": 1,', '"version": 9,', 1), "version 9"),
        (lambda text: "[]", "is no study"),
    ],
)
def test_a_study_that_was_changed_or_damaged_is_not_approved(tmp_path, sites, change, words):
    file, _ = study_file(tmp_path, "--secure")
    text = file.read_text()
    runs = text.index('"runs"')
    changed = (
        change(text)
        if "version" in words or "no study" in words
        else text[:runs] + change(text[runs:])
    )
    assert changed != text
    file.write_text(changed)
    assert words in refusal("site", "approve", file, "--site", sites[0])
    assert answer("site", "check", "--site", sites[0])["approved"] == []


def test_init_says_what_is_wrong_and_leaves_nothing_half_made(tmp_path):
    X = drawn_rows(np.random.default_rng(0), 10)
    file = write_csv(tmp_path / "a.csv", range(10), X, COLUMNS)
    site = ("--name", "a", "--site", tmp_path / "a")
    assert "'height'" in refusal("site", "init", file, *site, "--columns", "age,height")
    assert not (tmp_path / "a").exists()
    # What is left would be the next attempt's policy, with more than that one asked for.
    assert "min_rows is 0" in refusal("site", "init", file, *site, "--min-rows", 0)
    assert "'height'" in refusal(
        "site", "init", file, *site, "--allow", "rows", "--columns", "height"
    )
    assert "'row'" in refusal("site", "init", file, *site, "--allow", "row")
    assert "NAME=KEY" in refusal("site", "init", file, *site, "--peer", "south")
    assert "--submitter" in refusal("site", "init", file, *site, "--startup-kit", tmp_path)
    answer("site", "init", file, *site, "--targets", "dose", "--id-column", "patient")
    facts = answer("site", "check", "--site", tmp_path / "a")
    assert facts["columns"] == "age, bmi, pulse"
    assert "rows" not in facts["may leave"]
    assert "is there" in refusal("site", "init", file, *site)


def test_init_takes_words_and_gaps_for_fits_that_prepare_them(tmp_path):
    file = tmp_path / "a.csv"
    file.write_text("patient;age;ward\n" + "".join(f"p{i};{i},5;{'AB'[i % 2]}\n" for i in range(9)))
    file.write_text(file.read_text().replace("p3;3,5;", "p3;;"))
    site = ("--name", "a", "--site", tmp_path / "a", "--id-column", "patient")
    assert "'ward'" in refusal("site", "init", file, *site)
    words = refusal("site", "init", file, *site, "--categories", "ward")
    assert "'age'" in words
    assert "--allow-missing" in words
    answer("site", "init", file, *site, "--categories", "ward", "--allow-missing")
    facts = answer("site", "check", "--site", tmp_path / "a")
    assert "9 rows, 2 columns" in facts["holds"]
    assert facts["mind"] == [], "the settings say so already"
    sizes = dict.fromkeys("abc", (9, 2))
    prepared = em.Preparation(fill_missing=0.2, categories=["1"])
    for own, expected in ((None, {"levels", "missing"}), (prepared, set())):
        study = em.study(em.KernelPCA(1, preparation=own), sizes, secure=True)
        study.save(tmp_path / "study.json")
        shown = answer("site", "plan", tmp_path / "study.json", "--site", tmp_path / "a")
        said = " ".join(own["words"] for own in shown["refusals"] if own["rule"] == "preparation")
        assert {word for word in ("levels", "missing") if word in said} == expected


def test_check_says_what_is_wrong_with_the_columns_that_are_used(tmp_path):
    X = np.column_stack([np.arange(30.0), np.ones(30), np.linspace(0, 1, 30) ** 2, np.ones(30)])
    file = write_csv(tmp_path / "a.csv", [f"n{i}" for i in range(30)], X, COLUMNS)
    site, columns = ("--site", tmp_path / "a"), ("--columns", "age,bmi,pulse")
    answer("site", "init", file, "--name", "a", *site, "--id-column", "patient", *columns)
    words = " | ".join(answer("site", "check", *site)["mind"])
    assert "age" in words
    assert "bmi" in words
    assert "dose" not in words
    file.write_text(file.read_text().replace("0.0,1.0,0.0,1.0", ",1.0,0.0,1.0", 1))
    assert "missing" in refusal("site", "check", *site)


def test_init_hardens_a_startup_kit(tmp_path):
    kit = tmp_path / "kit"
    (kit / "local").mkdir(parents=True)
    streamer = {"id": "log_streamer", "path": "x", "args": {}}
    (kit / "local" / "resources.json.default").write_text(json.dumps({"components": [streamer]}))
    file = write_csv(
        tmp_path / "a.csv", range(10), drawn_rows(np.random.default_rng(0), 10), COLUMNS
    )
    kit_options = ("--startup-kit", kit, "--study", "heart", "--submitter", "ada@lab.org")
    answer("site", "init", file, "--name", "a", "--site", tmp_path / "a", *kit_options)
    resources = json.loads((kit / "local" / "resources.json").read_text())
    assert resources["class_list_enforcement_mode"] == "enforce"
    assert resources["allow_log_streaming"] is False
    assert [own["id"] for own in resources["components"]] == ["eigenmesh_gate"]
    rights = json.loads((kit / "local" / "authorization.json").read_text())["permissions"]
    assert {role.get("byoc", "none") for role in rights.values()} == {"none"}
    assert {role.get("shell_commands", "none") for role in rights.values()} == {"none"}
    studies = json.loads((kit / "local" / "eigenmesh.json").read_text())["studies"]
    assert studies["heart"]["submitters"] == ["ada@lab.org"]
