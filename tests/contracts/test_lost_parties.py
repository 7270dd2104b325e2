"""For every method: a party that is lost is named, whenever that happens, or the result says so."""

import pytest
from tests.contracts.fits import FITS, NAMES

import eigenmesh as em

pytestmark = pytest.mark.filterwarnings("ignore")
every_fit = pytest.mark.parametrize("fit", FITS, ids=lambda fit: fit.name)


def some_rounds(fit):
    last = fit.fitted().report_.rounds
    early = {1} if "topology" in fit.options else {1, min(2, last)}  # graphs go many rounds
    return sorted({*early, (last + 1) // 2})


@every_fit
def test_a_lost_party_ends_the_fit_with_its_name(fit):
    for at in some_rounds(fit):
        lost = [em.Fault("kill", party="south", round=at)]
        with em.federation(fit.parts(), **fit.options, faults=lost) as fed:
            with pytest.raises(em.EigenmeshError) as caught:
                fit.run(fed)
        assert caught.value.party == "south", at


def outcome_of(fit, **options):
    """The model, or the error that there is instead."""
    with em.federation(fit.parts(), **{**fit.options, **options}) as fed:
        try:
            return fit.run(fed)
        except em.EigenmeshError as error:
            return error


def breaks_the_schedule(error):
    return "schedule" in str(error) or "comes next" in str(error)


@every_fit
def test_survivors_go_on_and_say_so_or_say_why_not(fit):
    for at in some_rounds(fit):
        lost = [em.Fault("kill", party="south", round=at)]
        outcome = outcome_of(fit, on_loss="survivors", faults=lost)
        if isinstance(outcome, em.EigenmeshError):
            assert not breaks_the_schedule(outcome), outcome
            assert any(name in str(outcome) for name in NAMES), outcome
        else:
            assert "south" in outcome.report_.lost
            assert "south" not in outcome.report_.parties


@every_fit
@pytest.mark.parametrize("on_loss", ["reuse", "skip"])
def test_a_message_that_is_lost_once_never_breaks_the_schedule(fit, on_loss):
    if on_loss == "skip" and fit.options:  # skipping needs a coordinator
        with pytest.raises(em.EigenmeshError, match="needs a coordinator"):
            outcome_of(fit, on_loss="skip", faults=[])
        return
    for at in some_rounds(fit):
        lost = [em.Fault("lose", party="south", round=at)]
        outcome = outcome_of(fit, on_loss=on_loss, faults=lost)
        if isinstance(outcome, em.EigenmeshError):
            assert not breaks_the_schedule(outcome), outcome
