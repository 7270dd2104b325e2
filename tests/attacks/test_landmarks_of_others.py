"""A coordinator that sends points of its own as landmarks learns what it likes of a party's rows.

Between organisations hosts take up only what another party of the study has signed for this run.
"""

import numpy as np
import pytest
import scipy.sparse as sp

import eigenmesh as em
from eigenmesh.engines.in_process import InProcess
from eigenmesh.runtime import masks, wire
from eigenmesh.runtime.federation import Federation
from eigenmesh.runtime.message import decode, encode
from eigenmesh.runtime.party import steps_of
from eigenmesh.runtime.policy import Policy
from eigenmesh.runtime.protocol import known_roles
from eigenmesh.runtime.site import Site
from eigenmesh.runtime.vouchers import row_digests
from eigenmesh.stages.row_messages import pack, unpack

pytestmark = pytest.mark.filterwarnings("ignore::eigenmesh.errors.EigenmeshWarning")
NAMES = ("north", "east", "south")
RNG = np.random.default_rng(0)
ROWS = [RNG.normal(size=(n, 3)) for n in (40, 50, 30)]
TARGET = ROWS[2][7]  # a row of the last party that the coordinator would like to know is there


class Deviating(InProcess):
    """Puts what `change` makes of it in place of a request that brings rows of others."""

    change = None

    def call(self, requests, timeout):
        changed = dict(requests)
        for i, request in requests.items():
            tree = wire.loads(request)
            if self.change is not None and "vouchers" in tree:
                takes = steps_of(known_roles()[tree["role"]])[tree["step"]].signature.takes
                self.change(tree, takes)
                changed[i] = wire.dumps(tree)
        yield from super().call(changed, timeout)


def federation(change=None, rows=ROWS, introduced=True, **options):
    options = {"trust": "organisations", **options}
    secure = options.pop("secure", False)
    sites = [
        Site(name, opens=lambda own=own: own, policy=Policy(), **options)
        for name, own in zip(NAMES, rows, strict=True)
    ]
    keys = {site.name: masks.identity(site.identity) for site in sites}
    for site in sites:
        site.peers = dict(keys) if introduced else {}
    engine = Deviating(sites)
    engine.change = change
    return Federation(engine, split="rows", secure=secure)


def estimator(landmarks="centroids", **options):
    options = {"kernel": "rbf", "gamma": 20.0, "n_landmarks": 9, "random_state": 0, **options}
    return em.DisKPCA(1, landmarks=landmarks, **options)


def points_in_place_of_landmarks(tree, takes):
    """All points at a row of interest: with a narrow kernel the sums count what is there."""
    message = decode(takes, tree["message"].data)
    rows = np.tile(TARGET, (unpack(message).shape[0], 1))
    fields = {**vars(message), **pack(rows + 1e-9 * np.arange(len(rows))[:, None])}
    tree["message"] = np.frombuffer(encode(takes(**fields)), np.uint8)


def without_vouchers(tree, takes):
    tree["vouchers"] = []


def signed_for_another_run():
    """What parties signed in an earlier run of the same study, with the rows of then."""
    earlier = []

    def change(tree, takes):
        if earlier and tree["run"] != earlier[0]["run"]:
            tree["vouchers"] = earlier[0]["vouchers"]
        earlier.append(dict(tree))

    return change


def signed_by_the_coordinator(tree, takes):
    secret = b"c" * 32
    message = decode(takes, tree["message"].data)
    digests = b"".join(row_digests(unpack(message)))
    text = masks.digest("rows", "study", tree["run"], "north", digests)
    forged = masks.identity(secret) + masks.sign(secret, text) + digests
    tree["vouchers"] = [[0, np.frombuffer(forged, np.uint8)]]


@pytest.mark.parametrize("secure", [False, True])
@pytest.mark.parametrize(
    "change", [points_in_place_of_landmarks, without_vouchers, signed_by_the_coordinator]
)
def test_points_that_nobody_gave_are_no_landmarks(change, secure):
    with pytest.raises(em.EigenmeshError, match="refused by the rule"):
        estimator().fit(federation(change, secure=secure))


def test_nor_are_those_of_an_earlier_run():
    fed = federation(signed_for_another_run())
    estimator().fit(fed)
    with pytest.raises(em.EigenmeshError, match="refused by the rule"):
        estimator().fit(fed)


@pytest.mark.parametrize(
    "voucher", [[], [0], ["a", None], [0, np.zeros(3)], [9, np.zeros(112, np.uint8)], 7]
)
def test_malformed_vouchers_are_refused(voucher):
    def change(tree, takes):
        tree["vouchers"] = [voucher]

    with pytest.raises(em.EigenmeshError, match="refused by the rule"):
        estimator().fit(federation(change))


def test_keys_that_the_owner_has_not_pinned_are_refused_unless_it_takes_the_first():
    with pytest.raises(em.EigenmeshError, match="'peers'"):
        estimator().fit(federation(introduced=False))
    estimator().fit(federation(introduced=False, first_keys=True))


def test_in_one_trust_domain_nothing_is_signed():
    def change(tree, takes):
        raise AssertionError("nobody signs")

    estimator().fit(federation(change, trust="domain"))


@pytest.mark.parametrize("landmarks", ["diskpca", "uniform", "leverage", "rpcholesky", "centroids"])
@pytest.mark.parametrize("form", [np.float64, np.float32, np.int64, sp.csr_array])
def test_honest_fits_go_through_and_give_the_same(landmarks, form):
    rows = [form(np.round(4 * own)) for own in ROWS]
    options = {"gamma": 0.1, "accuracy": 0.05} if landmarks == "centroids" else {"gamma": 0.1}
    between = estimator(landmarks, **options).fit(federation(rows=rows))
    within = estimator(landmarks, **options).fit(federation(rows=rows, trust="domain"))
    if landmarks != "centroids":  # whose draws are the site's own secret
        np.testing.assert_allclose(between.eigenvalues_, within.eigenvalues_, rtol=1e-10)


def test_rows_have_one_digest_however_they_are_packed():
    rows = np.round(4 * ROWS[0])
    digests = row_digests(rows)
    assert len(set(digests)) == len(np.unique(rows, axis=0))
    for other in (sp.csr_array(rows), rows.astype(np.float32), np.asfortranarray(rows), rows - 0.0):
        assert row_digests(other) == digests
