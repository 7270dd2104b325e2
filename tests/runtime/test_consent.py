"""What a site says of a study by its policy: real fits over drawn data, and hosts by themselves."""

import logging

import numpy as np
import pytest
from tests.contracts.fits import FITS
from tests.contracts.requests import recorded

import eigenmesh as em
from eigenmesh.errors import InputError, PolicyRefusal
from eigenmesh.methods.diskpca.protocol import Whitening
from eigenmesh.runtime import wire
from eigenmesh.runtime.consent import _content_of, _factors_in
from eigenmesh.runtime.host import Host
from eigenmesh.runtime.message import KINDS, encode
from eigenmesh.runtime.schedule import Scope
from eigenmesh.runtime.site import Site
from eigenmesh.runtime.study import read_study, stage
from eigenmesh.stages.count import survey
from eigenmesh.stages.kmeans_party import GroupSums

pytestmark = pytest.mark.filterwarnings("ignore")
NAMES = ["north", "south", "west"]


def parts_of(seed, policy, split="columns", sizes=(40, 40, 40), width=6):
    rng = np.random.default_rng(seed)
    blocks = [rng.normal(size=(n, width)) for n in sizes]
    policies = [None, policy, None]
    return em.Partitioned(**{split: blocks}, names=NAMES, policies=policies)


def fit(parts, estimator=None, **options):
    estimator = estimator or em.VFedPCA(2, n_rounds=3, random_state=0)
    with em.federation(parts, **options) as fed:
        return estimator.fit(fed)


def refusal(parts, estimator=None, **options):
    with pytest.raises(PolicyRefusal) as caught:
        fit(parts, estimator, **options)
    assert caught.value.party == "south"
    return str(caught.value)


# Protocols and bounds.


@pytest.mark.parametrize("seed", range(4))
def test_a_study_within_its_bounds_is_answered_and_others_are_not(seed):
    rng = np.random.default_rng(seed)
    k, rounds = int(rng.integers(1, 4)), int(rng.integers(2, 6))
    estimator = em.VFedPCA(k, n_rounds=rounds, random_state=0)

    def policy(**bounds):
        return em.Policy(protocols={"vfed-pca": bounds})

    fit(parts_of(seed, policy(n_components=(1, k), n_rounds=rounds)), estimator)
    fit(parts_of(seed, policy(on_loss=["raise"], center=True)), estimator)
    words = refusal(parts_of(seed, policy(n_rounds=rounds - 1)), estimator)
    assert f"n_rounds is {rounds}, at most {rounds - 1} is allowed" in words
    words = refusal(parts_of(seed, policy(n_components=(k + 1, 9))), estimator)
    assert f"n_components is {k}, {k + 1} to 9 is allowed" in words
    assert "center is True" in refusal(parts_of(seed, policy(center=[False])), estimator)


def test_a_protocol_that_is_not_listed_is_not_answered():
    words = refusal(parts_of(0, em.Policy(protocols={"survey": {}})))
    assert "does not answer protocol 'vfed-pca' (it answers 'survey')" in words


# Parties.


@pytest.mark.parametrize(("fewest", "trust"), [(4, "domain"), (4, "organisations")])
def test_a_study_of_too_few_parties_is_refused(fewest, trust):
    assert "min_parties" in refusal(
        parts_of(1, em.Policy(min_parties=fewest)), trust="organisations"
    )
    assert "at least 4" in refusal(parts_of(1, em.Policy(min_parties=4)))
    fit(parts_of(1, em.Policy(min_parties=3)), trust=trust)


def test_two_organisations_are_too_few_unless_they_say_so():
    rng = np.random.default_rng(0)
    blocks = [rng.normal(size=(30, 4)) for _ in range(2)]
    with pytest.raises(PolicyRefusal, match="min_parties"):
        fit(em.Partitioned(columns=blocks), trust="organisations")
    fit(em.Partitioned(columns=blocks, policies=em.Policy(min_parties=2)), trust="organisations")
    fit(em.Partitioned(columns=blocks))


# Approval.


def test_the_runs_of_every_fit_are_those_of_its_study():
    for each in FITS:
        study, calls = em.study(each.build(), each.parts()), {}
        with each.open() as fed, recorded(calls, {}):
            each.run(fed)
        asked = [r.tree["study"] for r in calls["south"] if r.tree["op"] == "enlist"]
        assert {read_study(text).as_agreed.digest for text in asked} <= set(study.digests)


@pytest.mark.parametrize("approve", ["listed", "each"])
def test_a_study_waits_for_approval_and_the_refusal_has_its_digest(approve):
    parts, estimator = parts_of(2, em.Policy(approve=approve)), em.VFedPCA(2, random_state=0)
    study = em.study(estimator, parts)
    with em.federation(parts) as fed:
        with pytest.raises(PolicyRefusal, match=study.digests[0]):
            estimator.fit(fed)
        fed.local_sites()["south"].approve(study.digests[0])
        estimator.fit(fed)
        with pytest.raises(PolicyRefusal, match="nobody has approved"):
            em.VFedPCA(3, random_state=0).fit(fed)


def test_listed_studies_are_answered_unless_a_person_must_approve():
    estimator = em.VFedPCA(2, random_state=0)
    digests = em.study(estimator, parts_of(3, None)).digests
    fit(parts_of(3, em.Policy(approve="listed", approved=digests)), estimator)
    refusal(parts_of(3, em.Policy(approve="each", approved=digests)), estimator)


def test_a_fit_is_approved_as_a_whole_and_held_to_its_runs():
    estimator = em.OneShotKPCA(2, kernel="rbf", gamma="median", random_state=0)
    other = em.OneShotKPCA(2, kernel="rbf", gamma="median", random_state=1)
    parts = parts_of(4, em.Policy(approve="each"))
    study = em.study(estimator, parts)
    assert len(study.runs) == 2
    with em.federation(parts) as fed:
        fed.local_sites()["south"].approve(study)
        with pytest.raises(PolicyRefusal, match="|".join(study.digests)):
            estimator.fit(fed)
        with fed.under(study):
            estimator.fit(fed)
            estimator.fit(fed)
            with pytest.raises(PolicyRefusal, match="nobody has approved"):
                other.fit(fed)
        with pytest.raises(PolicyRefusal, match=em.study(other, parts).digest):
            with fed.under(em.study(other, parts)):
                other.fit(fed)


def test_approvals_outlive_a_site_and_are_heard_of_from_other_processes(tmp_path):
    digest = "ab" * 32
    sites = [Site("a/b", lambda: np.ones((9, 2)), state_dir=tmp_path) for _ in range(2)]
    sites[0].approve(digest)
    assert sites[1].approvals.digests == {digest}
    with pytest.raises(InputError, match="64 digits"):
        sites[0].approve("ab")


# Refusals between organisations.


def answers(site, requests):
    host = Host(site, 0, ("a", "b", "c"))
    return [wire.loads(host.handle(wire.dumps(request))) for request in requests]


@pytest.mark.parametrize("width", [3, 60])  # 50 rounds give 3 columns away
def test_a_question_needs_no_approval_and_tells_nothing_of_what_is_owned(width):
    X = np.random.default_rng(width).normal(size=(80, width))
    parts = em.Partitioned(columns=[X, X, X], names=["a", "b", "c"])
    run = em.study(em.VFedPCA(1, n_rounds=50, random_state=0), parts).runs[-1]
    site = Site("a", lambda: X, em.Policy(allow=KINDS - {"columns"}, approve="each"))
    site.trust = "organisations"
    request = {"op": "require", "run": "r", "turn": 1, "steps": []}
    request |= {"role": run.protocol.roles[0].__name__, "study": run.document.decode()}
    assert "error" not in answers(site, [request])[0]
    setup = np.frombuffer(encode(run.terms["setup"]), np.uint8)
    (refused,) = answers(site, [{**request, "op": "enlist", "message": setup}])
    assert "'approve'" in refused["reason"]
    site.approve(run.digest)
    told = answers(site, [request])[0].get("reason", "")
    assert ("'allow'" in told) == (width == 3)


def survey_requests(**scope):
    study = stage(survey).study(Scope(("a", "b", "c"), scope.pop("split", "rows"), **scope))
    role = study.protocol.roles[0]
    enlist = {"op": "enlist", "role": role.__name__, "steps": [], "run": "r", "turn": 1}
    enlist |= {"study": study.document.decode()}
    enlist["message"] = np.frombuffer(encode(role.Setup()), np.uint8)
    step = {"op": "step", "role": role.__name__, "step": "count_rows", "run": "r", "turn": 2}
    wrong = [
        {**enlist, "role": "None"},
        {**enlist, "study": enlist["study"].replace('"b"', '"x"')},
        enlist,
        step,
        {**step, "turn": 3},
        {**step, "run": "s"},
        {**step, "turn": 4, "message": enlist["message"]},
        {**step, "turn": 5, "step": "count_columns", "message": None},
        {"op": "none"},
        {**enlist, "turn": 6, "run": "q"},
        {**step, "turn": 7, "run": "q"},
    ]
    return [{**request, "message": request.get("message")} for request in wrong[:-3]] + wrong[-3:]


def test_a_policy_that_came_later_is_asked_about_a_study_that_was_allowed():
    bounded = em.Policy(protocols={"survey": {}})
    policies = {
        "": em.Policy(),
        "'counts' leave": em.Policy(allow=KINDS - {"counts"}),
        "at least 4": em.Policy(min_parties=4),
        "nobody has approved": em.Policy(approve="each"),
        "protocol 'survey'": bounded,
    }
    site = Site("a", lambda: np.ones((9, 2)))
    question = survey_requests()[2]
    for _ in range(2):
        for words, policy in policies.items():
            for site.policy in (em.Policy(), policy):
                (answer,) = answers(site, [question])
            assert (
                words in answer.get("reason", "")
                if words and policy is not bounded
                else ("error" not in answer)
            )
    bounded.protocols.clear()
    site.policy = bounded
    (answer,) = answers(site, [question])
    assert "protocol 'survey'" in answer["reason"]
    site.policy, site.trust = em.Policy(), "organisations"
    two = survey_requests(left_out=("c",))[2]
    site.trust = "domain"
    assert "error" not in answers(site, [two])[0]
    site.trust = "organisations"
    assert "'min_parties'" in answers(site, [two])[0]["reason"]


@pytest.mark.parametrize("seed", range(5))
def test_refusals_between_organisations_are_the_same_whatever_the_data(seed):
    rng = np.random.default_rng(seed)
    policy = em.Policy(protocols={}) if seed % 2 else em.Policy(allow={"gram"})
    drawn = [rng.normal(size=rng.integers(1, 50, 2)) * 10.0 ** rng.integers(-9, 9) for _ in "ab"]
    sites = [
        Site("a", lambda X=X: X, policy, names_columns=lambda: ("secret",), trust="organisations")
        for X in drawn
    ]
    first, second = (answers(site, survey_requests()) for site in sites)
    assert first == second
    assert all("error" in answer for answer in first)


def test_a_step_that_fails_says_nothing_of_why_between_organisations(caplog):
    X = np.random.default_rng(0).normal(size=(40, 3))
    parts = em.Partitioned(rows=[X, X * 1e70, X], names=NAMES)
    poly = em.DisKPCA(2, kernel="poly", degree=6, gamma=1.0, landmarks="uniform", random_state=0)
    with caplog.at_level(logging.INFO, "eigenmesh.site"):
        with pytest.raises(em.EigenmeshError) as told:
            fit(parts, poly)
        with pytest.raises(em.EigenmeshError) as silent:
            fit(parts, poly, trust="organisations")
    assert "rescale" in str(told.value)
    assert "rescale" not in str(silent.value)
    own_words = told.value.reason.partition("; it had been sent")[0]  # the rest is not the site's
    assert own_words in caplog.text


# Kinds by content.


NO_ROWS = em.Policy(allow=KINDS - {"rows"})
NO_COLUMNS = em.Policy(allow=KINDS - {"columns"})


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("name", "split"), [("sketching", "rows"), ("vfed-pca", "columns"), ("fed-kmeans", "rows")]
)
def test_sums_over_few_rows_are_rows(seed, name, split):
    estimator = {
        "sketching": em.SketchingPCA(1, random_state=0),
        "vfed-pca": em.VFedPCA(1, random_state=0),
        "fed-kmeans": em.FedKernelKMeans(2, n_features=16, gamma=0.1, random_state=0),
    }[name]
    few = int(np.random.default_rng(seed).integers(2, 5))
    n = few if split == "columns" else 30
    sizes = (n, few, n)
    parts = parts_of(seed, NO_ROWS, split, sizes)
    words = refusal(parts, estimator)
    assert f"over {few} rows" in words
    assert em.plan(estimator, parts).refusals == {"south": ("rows",)}
    fit(parts_of(seed, em.Policy(NO_ROWS.allow, min_rows=few), split, sizes), estimator)
    fit(parts_of(seed, None, split, sizes), estimator)


@pytest.mark.parametrize("seed", range(4))
def test_products_are_columns_once_they_are_as_many(seed):
    rng = np.random.default_rng(seed)
    width, k = int(rng.integers(4, 12)), int(rng.integers(1, 4))
    rounds = -(-width // k)
    parts = parts_of(seed, NO_COLUMNS, width=width)
    enough, fewer = (em.VFedPCA(k, n_rounds=n, random_state=0) for n in (rounds, rounds - 1))
    assert "'columns'" in refusal(parts, enough)
    assert em.plan(enough, parts).refusals == {"south": ("columns",)}
    assert not em.plan(fewer, parts).refusals
    fit(parts, fewer)


@pytest.mark.parametrize("seed", range(3))
def test_coordinates_at_full_rank_are_columns_and_fewer_are_not(seed):
    width = 3 + seed
    parts = parts_of(seed, NO_COLUMNS, width=width)
    for kernel in ("linear", "poly"):
        whole, part = (
            em.OneShotKPCA(2, kernel=kernel, gamma=0.1, local_rank=r, random_state=0)
            for r in (width, width - 1)
        )
        assert "'columns'" in refusal(parts, whole)
        fit(parts, part)
    assert "'columns'" in refusal(parts, em.VFedAKPCA(2, gamma=0.1, random_state=0))


@pytest.mark.parametrize("seed", range(4))
def test_a_spectrum_that_gives_distances_away_does_not_leave(seed):
    parts = parts_of(seed, NO_COLUMNS, width=3)
    much, little = (
        em.OneShotKPCA(1, kernel="rbf", gamma=0.1, local_rank=r, random_state=0) for r in (39, 1)
    )
    assert "'columns'" in refusal(parts, much)
    fit(parts, little)
    fit(parts_of(seed, None, width=3), much)


@pytest.mark.parametrize("seed", range(3))
def test_as_many_numbers_as_a_party_has_are_its_rows_between_organisations(seed):
    sketching = em.SketchingPCA(2, kernel="rbf", gamma=0.1, random_state=seed)
    small = parts_of(seed, NO_ROWS, "rows", sizes=(30, 30, 30))
    large = parts_of(seed, NO_ROWS, "rows", sizes=(30, 9000, 30))
    fit(small, sketching)
    assert "'allow'" in refusal(small, sketching, trust="organisations")
    fit(large, sketching, trust="organisations")


def test_weights_of_clusters_that_happen_to_be_triangular_are_no_factor_of_the_columns():
    """Of four restarts and clusters of a party that is one group: drawn sizes found it."""
    weights = np.triu(np.full((4, 4), 8.0), 1)
    sums = GroupSums(np.ones((4, 4, 2)), weights, np.ones(4))
    factor = Whitening(np.triu(np.ones((4, 4))))
    for message, kinds in ((sums, frozenset()), (factor, {"columns"})):
        assert _factors_in(message, _content_of(message).squares) == kinds
