"""For every method: the plan is what a fit sends, policies hold, files and seeds repeat it."""

import warnings

import numpy as np
import pytest
from tests.contracts.fits import FITS, NAMES, X

import eigenmesh as em
from eigenmesh.errors import PolicyRefusal
from eigenmesh.runtime.message import KINDS

pytestmark = pytest.mark.filterwarnings("ignore")
every_fit = pytest.mark.parametrize("fit", FITS, ids=lambda fit: fit.name)


def fitted(fit, parts, **options):
    with em.federation(parts, **{**fit.options, **options}) as fed:
        return fit.run(fed)


def error_of(fit, fed):
    try:
        fit.run(fed)
    except em.EigenmeshError as error:
        return error


@every_fit
def test_the_plan_is_what_a_fit_sends_or_a_bound_that_says_so(fit):
    parts = fit.parts()
    plan = em.plan(fit.build(), parts)
    report = fit.fitted().report_
    sent = (report.floats_up, report.floats_down, report.rounds)
    forecast = (plan.floats_up, plan.floats_down, plan.rounds)
    about = any(note.startswith("about") for note in plan.notes)
    if plan.is_bound:
        assert all(s <= f for s, f in zip(sent, forecast, strict=True)), (sent, forecast)
    elif not about:
        assert sent == forecast
        assert dict(plan.by_step) == dict(report.by_step)
    assert plan.baseline_floats == report.baseline_floats
    for name in NAMES:  # what leaves is of a kind that was foreseen
        assert set(report.reveals[name]) <= set(plan.reveals[name])


@every_fit
def test_a_policy_refuses_the_method_before_anything_left_and_names_party_and_kind(fit):
    needed = em.plan(fit.build(), fit.parts()).reveals["south"]
    assert needed
    for kind in needed:
        policies = [None, em.Policy(allow=KINDS - {kind}), None]
        parts = fit.parts(policies=policies)
        assert em.plan(fit.build(), parts).refusals.get("south", ()) in ((kind,), ())
        with em.federation(parts, **fit.options) as fed, fed.recording() as recording:
            refusal = error_of(fit, fed)
        if refusal is None:  # another method was taken, which does without
            assert kind not in recording.ledger.revealed()["south"]
            continue
        assert isinstance(refusal, PolicyRefusal)
        assert refusal.party == "south"
        assert repr(kind) in str(refusal)
        assert not any(recording.ledger.by_party(NAMES).values())


@every_fit
def test_a_policy_that_allows_what_the_plan_says_lets_the_fit_through(fit):
    """By kinds, and by what sizes tell that these are worth, which a policy's own plan says."""
    reveals = em.plan(fit.build(), fit.parts()).reveals
    policies = [em.Policy(allow=reveals[name]) for name in NAMES]
    refusals = em.plan(fit.build(), fit.parts(policies=policies)).refusals
    # What an RBF spectrum is worth only its party can tell, when it has it.
    more = {"columns"} if fit.name in ("one-shot-rbf", "one-shot-16-bits") else set()
    kinds = [{*reveals[name], *refusals.get(name, ()), *more} for name in NAMES]
    policies = [em.Policy(allow=own) for own in kinds]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        free, held = fit.fitted(), fitted(fit, fit.parts(policies=policies))
    # A front door may take another way, whose sums are over more rows.
    another = getattr(held, "method_", "") != getattr(free, "method_", "")
    assert held.report_.floats_up == free.report_.floats_up or another


@every_fit
def test_a_saved_model_answers_as_the_fitted_one(fit, tmp_path):
    model = fit.fitted()
    path = tmp_path / "model.em"
    try:
        model.save(path, parties=True)
    except em.EigenmeshError:  # no party has a share of its own
        model.save(path)
    again = em.load(path)
    ask = "predict" if hasattr(model, "predict") else "transform"
    answers = (getattr(some, ask)(X[::4]) for some in (model, again))
    np.testing.assert_allclose(*answers, rtol=0, atol=1e-12)


@every_fit
def test_the_same_seed_gives_the_same_answer_and_the_same_account(fit):
    one, other = fit.fitted(), fitted(fit, fit.parts())
    assert one.report_.bytes == other.report_.bytes
    assert dict(one.report_.by_step) == dict(other.report_.by_step)
    if hasattr(one, "eigenvalues_"):
        rounding = 1e-4 if one.report_.privacy else 0.0  # no seed gives noise again
        np.testing.assert_allclose(one.eigenvalues_, other.eigenvalues_, rtol=rounding)


def test_a_plan_foresees_where_numbers_determine_rows_between_organisations():
    (fit,) = (fit for fit in FITS if fit.name == "diskpca-centroids")
    outcomes = []
    for size in (20, 60, 400):
        blocks = np.split(np.random.default_rng(size).normal(size=(3 * size, 6)), 3)
        keeps_rows = em.Policy(allow=KINDS - {"rows"})
        parts = em.Partitioned(rows=blocks, names=NAMES, policies=keeps_rows)
        with em.federation(parts, trust="organisations") as fed:
            refusals, error = em.plan(fit.build(), fed).refusals, error_of(fit, fed)
        assert (error is None) == (not refusals)
        if error is not None:
            assert refusals[error.party] == ("rows",)
        outcomes.append(error is None)
    assert outcomes[0] < outcomes[-1]  # few rows are determined by as many numbers
