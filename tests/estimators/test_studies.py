"""What a fit asks parties to agree to is known before it runs, and is all that it asks."""

import pytest
from tests.contracts.fits import FITS
from tests.contracts.intrusions import legal_run
from tests.contracts.requests import key_of

import eigenmesh as em
from eigenmesh.runtime.schedule import kinds_in

pytestmark = pytest.mark.filterwarnings("ignore")
every_fit = pytest.mark.parametrize("fit", FITS, ids=lambda fit: fit.name)


@every_fit
def test_whoever_builds_a_study_builds_the_same(fit):
    with fit.open() as fed:
        opened = em.study(fit.build(), fed)
    assert opened.digest == em.study(fit.build(), fit.parts()).digest


@pytest.mark.parametrize("number", range(len(FITS)), ids=lambda i: FITS[i].name)
def test_a_fit_asks_for_nothing_that_is_not_in_its_study(number):
    fit, (calls, _, _) = FITS[number], legal_run(number)
    study = em.study(fit.build(), fit.parts())
    steps = {(step.role.__name__, step.name) for run in study.runs for step in kinds_in(run.tree)}
    roles = {role.__name__ for run in study.runs for role in run.protocol.roles}
    keys = {key_of(received.tree) for received in calls["south"]} - {None}
    assert {key[1] for key in keys} <= roles
    assert {key[1:3] for key in keys if key[0] != "enlist"} <= steps


def test_another_parameter_makes_another_study():
    fit = next(fit for fit in FITS if fit.name == "diskpca-uniform")
    more = fit.build().set_params(n_landmarks=13)
    assert em.study(more, fit.parts()).digest != em.study(fit.build(), fit.parts()).digest


def test_a_study_is_read_by_people():
    fit = next(fit for fit in FITS if fit.name == "vfed-pca")
    shown = str(em.study(fit.build(), fit.parts()))
    assert "VectorHolder.multiply: up to 49; gets eigenvectors: n × b; sends gram: n × b" in shown
    assert "'north', 'south', 'west'" in shown


def test_what_is_no_estimator_is_refused():
    with pytest.raises(em.EigenmeshError, match="pass an em estimator"):
        em.study(object(), FITS[0].parts())
