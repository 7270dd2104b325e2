"""What OneShotKPCA sends: the paper's formula to the float, and the forecast to the float."""

import numpy as np
import pytest

import eigenmesh as em
from eigenmesh.runtime.ledger import COORDINATOR

pytestmark = pytest.mark.filterwarnings("ignore::eigenmesh.errors.EigenmeshWarning")


def blocks_of(n_samples, widths, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.normal(size=(n_samples, width)) for width in widths]


def vectors_sent(kernel, local_rank, n_samples, width):
    """r_j = min(local_rank, T, and m_j if linear)."""
    return min(local_rank, n_samples, width if kernel == "linear" else n_samples)


SHAPES = [  # samples, widths, local_rank
    (30, (4, 5), 3),
    (30, (1, 9, 2, 30, 40), 5),
    (12, (20, 3), 12),
    (12, (20, 3), 50),
    (200, (2, 2, 2, 2), 7),
    (57, (8,), 4),
    (40, (3,) * 16, 1),
    (3, (5, 6), 2),
]


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
@pytest.mark.parametrize(("n_samples", "widths", "local_rank"), SHAPES)
def test_floats_up_are_the_papers_formula_exactly(kernel, n_samples, widths, local_rank):
    parts = em.Partitioned(columns=blocks_of(n_samples, widths))
    model = em.OneShotKPCA(1, kernel=kernel, gamma=0.1, local_rank=local_rank)
    with em.federation(parts) as fed, fed.recording() as recording:
        model.fit(fed)
    ranks = [vectors_sent(kernel, local_rank, n_samples, width) for width in widths]
    report = model.report_
    assert report.floats_up == sum(r * (n_samples + 1) for r in ranks)
    assert report.floats_down == 0
    assert report.rounds == 1
    assert report.baseline_floats == n_samples * sum(widths)
    # The same from the ledger, where every message passes, party by party.
    sent = dict.fromkeys(parts.names, 0)
    for entry in recording.ledger:
        if entry.sender != COORDINATOR:
            sent[entry.sender] += entry.floats
    assert sent == {party: r * (n_samples + 1) for party, r in zip(parts.names, ranks, strict=True)}
    assert report.bytes == recording.ledger.bytes
    assert report.bytes > 8 * report.floats_up


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_degenerate_parties_send_as_many_floats_as_the_formula_says(kernel):
    """Constant or repeated columns have fewer eigenpairs; the count must not leak how many."""
    rng = np.random.default_rng(0)
    column = rng.normal(size=(25, 1))
    blocks = [np.ones((25, 6)), np.repeat(column, 6, axis=1), rng.normal(size=(25, 6))]
    model = em.OneShotKPCA(2, kernel=kernel, gamma=0.1, local_rank=5)
    assert model.fit(em.Partitioned(columns=blocks)).report_.floats_up == 3 * 5 * 26


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_new_samples_cost_one_message_of_r_numbers_a_sample_and_party(kernel):
    blocks, new = blocks_of(30, (4, 9, 2)), blocks_of(7, (4, 9, 2), seed=1)
    model = em.OneShotKPCA(2, kernel=kernel, gamma=0.1, local_rank=5)
    model.fit(em.Partitioned(columns=blocks)).transform(em.Partitioned(columns=new))
    ranks = [vectors_sent(kernel, 5, 30, width) for width in (4, 9, 2)]
    assert model.transform_report_.floats_up == 7 * sum(ranks)
    assert model.transform_report_.rounds == 1


def test_distance_fusion_sends_no_more_than_local_rank_numbers_a_sample_and_party():
    """local_rank − 1 scores and a residual; a party of fewer columns has no residual."""
    parts = em.Partitioned(columns=blocks_of(30, (4, 9, 20)))
    model = em.OneShotKPCA(2, kernel="rbf", gamma=0.1, local_rank=5, fusion="distance").fit(parts)
    assert model.report_.floats_up == (4 + 5 + 5) * 30
    assert model.report_.rounds == 1


def test_transform_leaves_the_report_of_the_fit_alone():
    parts = em.Partitioned(columns=blocks_of(30, (4, 9)))
    model = em.OneShotKPCA(2).fit(parts)
    before = (model.report_.floats_up, model.report_.rounds, model.report_.bytes)
    model.transform(parts)
    assert (model.report_.floats_up, model.report_.rounds, model.report_.bytes) == before


def test_the_report_says_who_sent_what_in_what_step_and_why_it_stopped():
    parts = em.Partitioned(columns=blocks_of(30, (4, 9)), names=["north", "south"])
    report = em.OneShotKPCA(2, local_rank=4).fit(parts).report_
    assert tuple(report.parties) == ("north", "south")
    assert set(report.reveals) == {"north", "south"}
    assert all("eigenvectors" in report.reveals[party] for party in parts.names)
    assert set(report.by_party) >= {"north", "south"}
    assert report.by_step
    assert report.seconds > 0
    assert report.stop_reason
    assert isinstance(report.notes, tuple)
    text = str(report)
    assert str(report.floats_up) in text.replace(",", "")
    assert str(report.baseline_floats) in text.replace(",", "")  # beside what was sent


def test_a_party_that_holds_everything_reports_like_the_others():
    X = blocks_of(30, (9,))[0]
    report = em.OneShotKPCA(2, local_rank=4).fit(X).report_
    assert report.floats_up == 4 * 31
    assert report.baseline_floats == 270


# The forecast.

RULES = [
    {"kernel": "linear"},
    {"kernel": "linear", "center": False},
    *(
        {"kernel": "rbf", "gamma": gamma, "fusion": fusion}
        for fusion in ("product", "distance")
        for gamma in (0.1, None, "scale", "median", "mean-distance")
    ),
]


def forecast_of(plan):
    return plan.floats_up, plan.floats_down, plan.rounds


@pytest.mark.parametrize("rule", RULES, ids=str)
@pytest.mark.parametrize(
    ("n_samples", "widths", "local_rank"), [(30, (4, 9, 2), 5), (11, (20, 1), None)]
)
def test_plan_is_what_the_run_costs_to_the_float(rule, n_samples, widths, local_rank):
    parts = em.Partitioned(columns=blocks_of(n_samples, widths))
    model = em.OneShotKPCA(1, local_rank=local_rank, random_state=0, **rule)
    plan = em.plan(model, parts)
    report = model.fit(parts).report_
    assert forecast_of(plan) == (report.floats_up, report.floats_down, report.rounds)
    assert {party: dict(kinds) for party, kinds in plan.reveals.items()} == {
        party: dict(kinds) for party, kinds in report.reveals.items()
    }
    assert plan.baseline_floats == report.baseline_floats
    if rule["kernel"] == "linear" or rule["gamma"] == 0.1:
        assert plan.rounds == 1


def test_plan_runs_nothing_and_leaves_the_estimator_unfitted():
    class Watched(em.Partitioned):
        def part(self, party):
            raise AssertionError(f"the data of party {party} were opened")

    parts = Watched(columns=blocks_of(30, (4, 9)))
    model = em.OneShotKPCA(2, kernel="rbf", gamma="scale")
    em.plan(model, parts)
    assert not hasattr(model, "eigenvalues_")


def test_plan_of_a_plain_array_is_that_of_one_party():
    X = blocks_of(30, (9,))[0]
    model = em.OneShotKPCA(2, local_rank=4)
    assert forecast_of(em.plan(model, X)) == (4 * 31, 0, 1)


def test_plan_refuses_what_fit_refuses():
    parts = em.Partitioned(columns=blocks_of(30, (4, 9)))
    for wrong in ({"kernel": "cosine"}, {"local_rank": 0}, {"n_components": 0}):
        with pytest.raises(em.EigenmeshError):
            em.plan(em.OneShotKPCA(**wrong), parts)


def test_only_the_coordinator_and_parties_stand_in_the_ledger():
    parts = em.Partitioned(columns=blocks_of(30, (4, 9)))
    with em.federation(parts) as fed, fed.recording() as recording:
        em.OneShotKPCA(2, kernel="rbf", gamma="scale").fit(fed)
    ends = {name for entry in recording.ledger for name in (entry.sender, entry.receiver)}
    assert ends == {COORDINATOR, *parts.names}
