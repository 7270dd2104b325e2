"""A coordinator says which share of its rows a party looks at from outside the landmarks' span.

A share of nothing was two rows, whose random features gave both of them away. Where rows are kept
it is so many that the numbers do not determine them.
"""

import itertools
from collections import Counter

import numpy as np
import pytest
from scipy.optimize import least_squares

import eigenmesh as em
from eigenmesh.engines.in_process import InProcess
from eigenmesh.numerics.kernels import Kernel
from eigenmesh.numerics.landmark_sums import Span
from eigenmesh.numerics.mean_outside import OutsideView, RowSampler
from eigenmesh.runtime import masks, wire
from eigenmesh.runtime.federation import Federation
from eigenmesh.runtime.message import decode, encode
from eigenmesh.runtime.party import steps_of
from eigenmesh.runtime.policy import Policy
from eigenmesh.runtime.protocol import known_roles
from eigenmesh.runtime.site import Site, SiteView
from eigenmesh.stages.site_samples import sample_bounds

pytestmark = pytest.mark.filterwarnings("ignore::eigenmesh.errors.EigenmeshWarning")
NAMES = ("north", "east", "south")
N_LAST = 1600
ALLOW = {"centroids", "gram", "moments", "counts"}  # no rows


class Sharing(InProcess):
    """Asks for a share of nothing, and keeps what the last party then says."""

    reply = None

    def call(self, requests, timeout):
        changed = dict(requests)
        for i, request in requests.items():
            tree = wire.loads(request)
            if tree.get("step") != "centred_gram":
                continue
            step = steps_of(known_roles()[tree["role"]])["centred_gram"]
            message = decode(step.signature.takes, tree["message"].data)
            other = type(message)(**{**vars(message), "share": 1e-12})
            tree["message"] = np.frombuffer(encode(other), np.uint8)
            changed[i] = wire.dumps(tree)
        for i, reply in super().call(changed, timeout):
            if changed is not requests and i == 2 and changed[i] is not requests[i]:
                self.reply = decode(step.signature.gives, wire.loads(reply)["ok"].data)
            yield i, reply


def rows_of(features, view, n, starts):
    """The rows whose features, counted for n, are most like these; how much is left, as a share."""

    def off(flat):
        own = flat.reshape(starts[0].shape)
        return n / len(own) * view.sums(own, np.random.default_rng(0)).features - features

    fits = [least_squares(off, start.ravel(), max_nfev=40) for start in starts]
    best = min(fits, key=lambda fit: fit.cost)
    return best.x.reshape(starts[0].shape), 2 * best.cost / np.sum(np.square(features))


@pytest.mark.parametrize(("seed", "size"), [(0, 2), (1, 5)])
def test_a_share_of_nothing_is_of_more_rows_than_its_numbers_determine(seed, size):
    rng = np.random.default_rng(seed)
    rows = [rng.normal(size=(n, 2)) for n in (1500, 1400, N_LAST)]
    sites = [
        Site(name, opens=lambda own=own: own, policy=Policy(ALLOW), trust="organisations")
        for name, own in zip(NAMES, rows, strict=True)
    ]
    keys = {site.name: masks.identity(site.identity) for site in sites}
    for site in sites:
        site.peers = dict(keys)
    engine = Sharing(sites)
    options = {"gamma": 0.7, "n_landmarks": 6, "random_state": seed}
    kpca = em.DisKPCA(2, kernel="rbf", landmarks="centroids", **options)
    kpca.fit(Federation(engine, split="rows"))
    view = OutsideView.of(Span.of(Kernel("rbf", 0.7), kpca.landmarks_), seed)
    starts = [rng.normal(size=(size, 2)) for _ in range(3)]
    _, rest = rows_of(engine.reply.features, view, N_LAST, starts)
    assert rest > 0.05  # what came is of no so few rows
    few = rows[2][:size]  # of which it would have been told
    told = N_LAST / size * view.sums(few, rng).features
    guess, rest = rows_of(told, view, N_LAST, [few + 0.1, *starts])
    assert rest < 1e-6
    by_first = (own[own[:, 0].argsort()] for own in (guess, few))  # sums do not tell their order
    assert np.abs(np.subtract(*by_first)).max() < 1e-2


@pytest.mark.parametrize(("allow", "expected"), [(None, 5), (ALLOW, 1 + 1536 // 2)])
def test_rows_that_are_looked_at_are_so_many(allow, expected):
    policy = Policy() if allow is None else Policy(allow)
    site = Site("north", opens=lambda: np.zeros((9, 2)), policy=policy)
    assert SiteView(site, 0, ("north",)).fewest_seen(1536) == expected


@pytest.mark.parametrize("keeps_rows", [False, True])
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("kernel", [Kernel("rbf", 1.0), Kernel("linear")])
def test_samples_of_two_shares_differ_in_enough_rows_or_in_none(kernel, seed, keeps_rows):
    """Also if the questions are different ones, whose numbers few rows would not bear."""
    rng = np.random.default_rng(seed)
    n, d, least = int(rng.integers(3, 600)), 2, int(rng.integers(2, 8))
    A = np.arange(1.0, n + 1)[:, None] * np.ones(d)
    policy = Policy(ALLOW, min_rows=least) if keeps_rows else Policy(min_rows=least)
    site = SiteView(Site("north", opens=lambda: A, policy=policy), 0, ("north", "south"))
    shares = [*rng.uniform(0, 1, 12), 1e-12, 1.0]
    samples = []
    for share, numbers in itertools.product(shares, (0, 20, 64, 65, 130)):
        draw, sizes = np.random.default_rng(seed), sample_bounds(site, numbers)
        rows = RowSampler(kernel, A).draw_share(share, sizes, draw).rows[:, 0]
        assert len(np.unique(rows)) >= min(sizes.fewest, n)
        assert not keeps_rows or sizes.fewest * d > numbers
        samples.append((rows, sizes.fewest))
    for (one, fewest), (other, enough) in itertools.combinations(samples, 2):
        apart = abs(len(one) - len(other))
        assert not apart or apart >= min(fewest, enough)
        smaller, larger = sorted((one, other), key=len)
        if kernel.is_level:
            assert set(smaller) <= set(larger)
        elif keeps_rows and apart and len(larger) < n:  # drawn with replacement
            rest = Counter(larger) - Counter(smaller)
            assert len(rest) >= min(fewest, enough)
