"""What a step leaves at a site belongs to its study: who else may read it, and as what."""

import numpy as np
import pytest

import eigenmesh as em
from eigenmesh.errors import StepRefused
from eigenmesh.runtime import wire
from eigenmesh.runtime.consent import Consent
from eigenmesh.runtime.host import Host
from eigenmesh.runtime.message import encode
from eigenmesh.runtime.schedule import Scope
from eigenmesh.runtime.site import Site, SiteView
from eigenmesh.runtime.study import stage
from eigenmesh.stages.distributed_kmeans import distributed_kmeans
from eigenmesh.stages.kmeans_party import KMeansSetup

pytestmark = pytest.mark.filterwarnings("ignore::eigenmesh.errors.EigenmeshWarning")
NAMES = ("a", "b", "c")
ROWS = np.random.default_rng(0).normal(size=(30, 4))


def run_of(points="scores", names=NAMES, **scope):
    """A study that reads points which another has left."""
    setup = KMeansSetup(points=points, labels="labels", seed=0)
    return stage(distributed_kmeans, setup, 3).study(Scope(names, "rows", **scope))


def fits_of(study, *others):
    """A fit of several runs, as a coordinator declares it."""
    return [run.as_agreed.digest for run in (study, *others)]


class Coordinator:
    """Says what it likes to one real host."""

    def __init__(self, site, names=NAMES):
        self.host, self.turn = Host(site, names.index(site.name), names), 0

    def enlist(self, study, fit=()):
        self.turn += 1
        setup = np.frombuffer(encode(study.terms["setup"]), np.uint8)
        request = {"op": "enlist", "run": f"run {self.turn}", "turn": self.turn, "steps": []}
        request |= {"role": "PointHolder", "message": setup, "study": study.document.decode()}
        return wire.loads(self.host.handle(wire.dumps(request | ({"fit": fit} if fit else {}))))


def left_by(study, site, fit=(), **fields):
    """As if a run of `study` had left this under the name "scores"."""
    view = SiteView(site, 0, NAMES)
    Consent(site, view).begin(study, list(fit))
    view.keep("scores", fields)


@pytest.fixture
def site():
    return Site("a", opens=lambda: ROWS)


def test_a_run_reads_what_another_of_the_same_fit_left(site):
    study, earlier = run_of(), run_of("others")
    fit = fits_of(study, earlier)
    left_by(earlier, site, fit, points=ROWS)
    assert "ok" in Coordinator(site).enlist(study, fit)


@pytest.mark.parametrize("fields", [{"labels": ROWS}, {"targets": ROWS}, {"consensus": ROWS}])
def test_what_was_left_as_something_else_is_never_read_as_points(site, fields):
    left_by(run_of("others"), site, **fields)
    assert "something else" in Coordinator(site).enlist(run_of())["reason"]


@pytest.mark.parametrize("fields", [{"targets": ROWS}, {"weights": ROWS[:, 0]}])
def test_nor_is_what_the_owner_gave(site, fields):
    site.store["of the owner"] = fields
    assert "something else" in Coordinator(site).enlist(run_of("of the owner"))["reason"]


def test_a_fit_does_not_read_what_another_fit_left_under_the_same_name(site):
    study, other = run_of(), run_of("others")
    left_by(other, site, fits_of(other), points=ROWS)
    assert "error" in Coordinator(site).enlist(study, fits_of(study))
    assert "error" in Coordinator(site).enlist(study)  # nor does a run of no fit


def test_a_run_that_is_not_of_the_fit_it_names_does_not_read_what_the_fit_left(site):
    study, other = run_of(), run_of("others")
    site.policy = em.Policy(approve="listed", approved=fits_of(study, other))
    left_by(other, site, fits_of(other), points=ROWS)
    assert "points are expected" in Coordinator(site).enlist(study, fits_of(other))["reason"]


@pytest.mark.parametrize("scope", [{"secure": True}, {"names": ("a", "b", "c", "d")}])
def test_what_was_left_under_masks_or_with_others_around_is_not_read_without(site, scope):
    left_by(run_of("others", **scope), site, points=ROWS)
    assert "error" in Coordinator(site).enlist(run_of())
    left_by(run_of("others"), site, points=ROWS)
    assert "ok" in Coordinator(site).enlist(run_of())


def test_other_samples_take_away_what_was_left_of_the_old_ones_but_no_share(site):
    view = SiteView(site, 0, NAMES)
    view.keep("scores", {"points": ROWS})
    view.keep("share", {"form": "loadings"}, for_any=True)
    site.reopen()
    assert view.kept("scores", "points") is None
    assert view.kept("share", "form") == {"form": "loadings"}


def test_a_share_of_a_model_is_read_by_whichever_run_scores_new_samples(site):
    view = SiteView(site, 0, NAMES)
    Consent(site, view).begin(run_of(), [])
    view.keep("share", {"form": "loadings"}, for_any=True)
    Consent(site, view).begin(run_of("others", secure=True), [])
    assert view.kept("share", "form") is not None
    with pytest.raises(StepRefused, match="something else"):
        view.kept("share", "points")


@pytest.mark.parametrize(
    "estimator",
    [
        em.KernelKMeans(3, kernel="rbf", gamma="median", random_state=0),
        em.KernelKMeans(3, kernel="linear", random_state=0),
        em.FedKernelKMeans(3, random_state=0),
    ],
    ids=["rbf", "linear", "fed"],
)
def test_runs_of_an_approved_fit_find_what_those_before_them_left(estimator):
    parts = em.split(np.random.default_rng(1).normal(size=(90, 4)), 3, random_state=0)
    plain = estimator.fit(parts).inertia_
    with em.federation(parts) as fed, fed.under(em.study(estimator, parts)):
        assert estimator.fit(fed).inertia_ == pytest.approx(plain, rel=1e-12)
