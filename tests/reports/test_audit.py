"""What a receiver could rebuild is said before it gets anything, and again after."""

import json
import zipfile
from pathlib import Path

import numpy as np
import pytest
from tests.contracts.fits import FITS, NAMES
from typer.testing import CliRunner

import eigenmesh as em
from eigenmesh.cli.commands import app
from eigenmesh.reports.audit import Severity

pytestmark = pytest.mark.filterwarnings("ignore")
every_fit = pytest.mark.parametrize("fit", FITS, ids=lambda fit: fit.name)
OLD_MODELS = Path(__file__).parent.parent / "estimators" / "models_0_1" / "models.zip"


def fitted(name):
    return next(fit for fit in FITS if fit.name == name).fitted()


def gravest_by_kind(audit):
    """Which party gives how much is drawn; how grave a kind is, is not."""
    gravest = {}
    for line in audit.lines:
        key = (line.receiver.split()[-1].rstrip("s"), line.sent_as)
        gravest[key] = max(gravest.get(key, Severity.LITTLE), line.severity)
    return gravest


@every_fit
def test_the_plan_says_beforehand_all_that_the_report_says_afterwards(fit):
    plan = em.audit(em.plan(fit.build(), fit.parts()))
    report = em.audit(fitted(fit.name).report_)
    beforehand = gravest_by_kind(plan)
    for key, severity in gravest_by_kind(report).items():
        assert beforehand[key] >= severity, key
    assert plan.worst.severity >= report.worst.severity


@every_fit
def test_facts_add_up_to_what_the_report_counts(fit):
    report = fitted(fit.name).report_
    assert set(report.shapes) == set(NAMES)
    for name in NAMES:
        own = [d for d in report.disclosures if name in d.parties]
        sent = sum(d.floats * d.n_receivers for d in own)
        assert sent >= report.by_party[name]  # what went to the neighbour that got most, to all
        assert {d.kind for d in own} == set(report.reveals[name])


@every_fit
def test_a_saved_model_is_audited_as_the_fitted_one(fit, tmp_path):
    model = fitted(fit.name)
    model.save(tmp_path / "model.em")
    assert em.audit(em.load(tmp_path / "model.em").report_) == em.audit(model.report_)


def test_models_of_earlier_versions_load_and_their_reports_say_that_they_have_no_facts(tmp_path):
    with zipfile.ZipFile(OLD_MODELS) as files:
        files.extractall(tmp_path)
    report = em.load(tmp_path / "diskpca-linear.em").report_
    with pytest.raises(em.EigenmeshError, match="earlier version"):
        em.audit(report)


def column_worst(widths, n=60, **options):
    rng = np.random.default_rng(sum(widths))
    parts = em.Partitioned(columns=[rng.normal(size=(n, d)) for d in widths])
    audit = em.audit(em.plan(em.OneShotKPCA(2, **options), parts))
    return {name: audit.of(name)[0] for name in parts.names}


def test_coordinates_at_full_rank_are_the_columns_up_to_rotation():
    lines = column_worst((2, 30, 1), local_rank=5)
    full, low, single = lines.values()
    assert (full.kind, full.severity) == ("columns", Severity.ROTATED)
    assert "its 2 columns up to rotation: 4 known samples" in full.words
    assert (low.kind, low.severity) == ("eigenvectors", Severity.PARTS)
    assert "6 a sample beside 30 columns" in low.words
    assert (single.kind, single.severity) == ("columns", Severity.ROWS)
    assert "one column: sent as it is" in single.words


@pytest.mark.parametrize("seed", range(4))
def test_a_sum_over_few_rows_is_rows_and_one_of_many_numbers_is_determined(seed):
    rng = np.random.default_rng(seed)
    d = int(rng.integers(2, 9))
    sizes = (int(rng.integers(1, 5)), int(rng.integers(5, 9)), 2000)
    parts = em.Partitioned(rows=[rng.normal(size=(n, d)) for n in sizes], names=list("abc"))
    plan = em.plan(em.SketchingPCA(1, kernel="rbf", gamma=0.1, embedding_dim=40), parts)
    few, some, many = (
        next(line for line in em.audit(plan).of(name) if line.sent_as == "gram") for name in "abc"
    )
    assert (few.kind, few.severity, few.rows) == ("rows", Severity.ROWS, sizes[0])
    assert (some.kind, some.severity) == ("gram", Severity.DETERMINED)
    assert some.is_determined
    assert "determined in principle" in some.words
    assert (many.kind, many.severity) == ("gram", Severity.SUMS)
    assert not many.is_determined


def test_rows_that_leave_are_counted_and_so_are_those_inside_the_model():
    rng = np.random.default_rng(1)
    parts = em.Partitioned(rows=[rng.normal(size=(n, 4)) for n in (30, 40)], names=["a", "b"])
    kpca = em.DisKPCA(2, kernel="rbf", gamma=0.1, n_landmarks=12, landmarks="uniform").fit(parts)
    audit = em.audit(kpca.report_)
    rows = [line for line in audit.lines if line.kind == "rows"]
    sent = {line.party: line.numbers // 4 for line in rows if line.receiver == "coordinator"}
    assert sum(sent.values()) == 12
    assert {line.receiver for line in rows} == {"coordinator", "parties"}
    assert f"{sent['a']} of its 30 rows, as they are" in next(
        r.words for r in rows if r.party == "a"
    )
    assert audit.model == ("holds 12 rows of the data: whoever has it has them",)


def test_nothing_is_told_of_one_array():
    audit = em.audit(em.KernelPCA(2).fit(np.random.default_rng(0).normal(size=(30, 4))).report_)
    assert audit.worst is None
    assert str(audit) == "nothing left any party"


def test_what_is_no_account_is_refused():
    with pytest.raises(em.EigenmeshError, match="report_"):
        em.audit(em.KernelPCA(2))


def test_the_command_line_says_what_tells_most(tmp_path):
    rng = np.random.default_rng(2)
    files = []
    for name, d in (("a", 3), ("b", 1)):
        np.save(tmp_path / f"{name}.npy", rng.normal(size=(40, d)))
        files.append(str(tmp_path / f"{name}.npy"))
    model = ["--model", str(tmp_path / "model.em")]
    for command in (["plan"], ["fit", *model]):
        words = CliRunner().invoke(app, [command[0], *files, *command[1:]]).output
        assert "one column: sent as it is" in " ".join(words.split())
        tree = json.loads(
            CliRunner().invoke(app, [command[0], *files, *command[1:], "--json"]).stdout
        )
        account = tree["report"] if command[0] == "fit" else tree
        assert account["audit"]["worst"]["party"] == "b"
        assert account["audit"]["lines"][0] == account["audit"]["worst"]


def test_ten_thousand_parties_are_audited_in_passing():
    parts = em.split(
        np.random.default_rng(3).normal(size=(40_000, 3)),
        n_parties=2_000,
        by="rows",
        random_state=0,
    )
    plan = em.plan(em.FedKernelKMeans(2, n_features=4, n_iterations=2), parts)
    assert len(plan.disclosures) < 200
    assert len(str(em.audit(plan)).splitlines()) < 60
