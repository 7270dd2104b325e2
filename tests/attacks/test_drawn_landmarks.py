"""A coordinator that says of masked totals what it likes would place landmarks where it likes.

Between organisations each party is shown the totals, proof that they are the sums of what all have
added, and takes up only what follows from these and the study's seed.
"""

import numpy as np
import pytest

import eigenmesh as em
from eigenmesh.engines.in_process import InProcess
from eigenmesh.methods.diskpca import drawn
from eigenmesh.runtime import masked_sum, masks, wire
from eigenmesh.runtime.federation import Federation
from eigenmesh.runtime.message import decode, encode
from eigenmesh.runtime.party import steps_of
from eigenmesh.runtime.policy import Policy
from eigenmesh.runtime.protocol import known_roles
from eigenmesh.runtime.site import Site
from eigenmesh.stages.row_messages import pack, unpack

pytestmark = pytest.mark.filterwarnings("ignore::eigenmesh.errors.EigenmeshWarning")
NAMES = ("north", "east", "south", "west")
STEPS = ("scatter_products", "count_nearest", "sum_nearest", "centred_gram")


class Deviating(InProcess):
    """Puts what `change` makes of it in place of a request."""

    change = None

    def call(self, requests, timeout):
        changed = dict(requests)
        for i, request in requests.items():
            tree = wire.loads(request)
            if self.change is not None and self.change(tree, i):
                changed[i] = wire.dumps(tree)
        yield from super().call(changed, timeout)


def rows_of(seed, n_parties=4, d=3):
    rng = np.random.default_rng(seed)
    return [5 + rng.normal(size=(int(n), d)) for n in rng.integers(12, 30, n_parties)]


def federation(rows, change=None, trust="organisations", **options):
    names = NAMES[: len(rows)]
    sites = [
        Site(name, opens=lambda own=own: own, policy=Policy(), trust=trust)
        for name, own in zip(names, rows, strict=True)
    ]
    keys = {site.name: masks.identity(site.identity) for site in sites}
    for site in sites:
        site.peers = dict(keys)
    engine = Deviating(sites)
    engine.change = change
    return Federation(engine, split="rows", **{"secure": True, **options})


def estimator(**options):
    options = {"kernel": "rbf", "gamma": 0.5, "n_landmarks": 10, "random_state": 1, **options}
    return em.DisKPCA(2, landmarks="drawn", **options)


def replaced(message, name, move):
    values = vars(message)
    return type(message)(**{**values, name: move(np.array(values[name]))})


def moved(step, target):
    """At one step points, directions or landmarks of the coordinator's own."""

    def change(tree, i):
        if tree["op"] != "sum" or tree["step"] != step:
            return False
        takes = steps_of(known_roles()[tree["role"]])[step].signature.takes
        message = decode(takes, tree["message"].data)
        if step == "scatter_products":
            other = replaced(message, "mean", lambda m: m + 1e-3 * (target - m))
        elif step == "count_nearest":
            other = replaced(message, "points", lambda p: np.vstack([target[None], p[1:]]))
        elif step == "sum_nearest":
            other = replaced(message, "points", lambda p: p[:-1])
        else:
            points = np.array(unpack(message))
            points[-1] = target
            other = takes(**{**vars(message), **pack(points)})
        tree["message"] = np.frombuffer(encode(other), np.uint8)
        return True

    return change


@pytest.mark.parametrize("on_loss", ["raise", "survivors"])
@pytest.mark.parametrize("step", STEPS)
def test_points_that_the_draw_does_not_give_are_refused(step, on_loss):
    rows = rows_of(STEPS.index(step))
    with pytest.raises(em.EigenmeshError, match="refused by the rule"):
        estimator().fit(federation(rows, moved(step, rows[2][3]), on_loss=on_loss))


class Biased(masked_sum.Collector):
    """Gives other totals than the sums, and draws honestly from these."""

    move = None

    def total(self, subject, gives, openings, ask):
        total, covered = super().total(subject, gives, openings, ask)
        words = self.words.view(np.int64).copy()
        if self.move(gives.__name__, words):
            self.words = words.view(np.uint64)
            shapes = masks.read_shapes(next(iter(openings.values())).shapes, gives)
            scale = np.max([np.asarray(o.exponents) for o in openings.values()], axis=0).tolist()
            total = masks.from_words(gives, self.words, shapes, scale, len(self._names))
        return total, covered


@pytest.mark.parametrize("factor", [1 + 1e-9, 0.5, 0.0])
@pytest.mark.parametrize("name", ["RowSums", "ScatterProducts", "NearestSums"])
def test_totals_that_are_not_the_sums_are_refused(monkeypatch, name, factor):
    def move(gives, words):
        if gives == name:
            whole = gives == "RowSums"  # how many rows there are
            words[whole:-1] = (words[whole:-1] * factor).astype(np.int64)
        return gives == name

    monkeypatch.setattr(Biased, "move", staticmethod(move))
    monkeypatch.setattr(masked_sum, "Collector", Biased)
    with pytest.raises(em.EigenmeshError, match="refused by the rule|cannot be"):
        estimator().fit(federation(rows_of(7)))


def test_nor_do_parties_take_the_coordinators_word_for_the_proof():
    """With other totals, its own parts would have to be signed by those who were in the sum."""

    def change(tree, i):
        if tree["op"] == "sum" and "total" in tree:
            tree["total"] = tree["total"].copy()
            tree["total"][1] += np.uint64(1 << 40)
            return True
        if tree["op"] != "mask" or not len(
            decode(masked_sum.Agreement, tree["message"].data).checks
        ):
            return False
        agreement = decode(masked_sum.Agreement, tree["message"].data)
        other = replaced(agreement, "checks", lambda c: c + np.uint64(1))
        tree["message"] = np.frombuffer(encode(other), np.uint8)
        return True

    with pytest.raises(em.EigenmeshError, match="refused by the rule"):
        estimator().fit(federation(rows_of(8), change))


@pytest.mark.parametrize("hidden", ["total", "checks"])
def test_what_follows_from_totals_is_not_answered_without_them(hidden):
    def change(tree, i):
        if hidden == "total":
            return tree.pop("total", None) is not None
        if tree["op"] != "mask":
            return False
        agreement = decode(masked_sum.Agreement, tree["message"].data)
        empty = {"checks": agreement.checks[:0], "check_signatures": agreement.check_signatures[:0]}
        other = type(agreement)(**{**vars(agreement), **empty})
        tree["message"] = np.frombuffer(encode(other), np.uint8)
        return True

    with pytest.raises(em.EigenmeshError, match="refused by the rule"):
        estimator().fit(federation(rows_of(9), change))


def test_between_organisations_no_landmarks_are_drawn_without_masks(monkeypatch):
    with pytest.raises(em.EigenmeshError, match="secure=True"):
        estimator().fit(federation(rows_of(10), secure=False))
    monkeypatch.setattr(Federation, "between_organisations", False)  # a coordinator that goes on
    with pytest.raises(em.EigenmeshError, match="refused by the rule"):
        estimator().fit(federation(rows_of(10), secure=False))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("on_loss", ["raise", "survivors"])
def test_honest_fits_go_through_with_the_answer_of_one_trust_domain(seed, on_loss):
    rows = rows_of(seed, n_parties=3 + seed % 2, d=2 + seed)
    for own in rows:
        own[:, -1] *= (0.0, 1e-3)[seed % 2]  # a direction that there is not, or hardly
    options = {"accuracy": 0.02, "random_state": seed} if seed % 2 else {"random_state": seed}
    fits, shown = [], {"organisations": [], "domain": []}
    for trust, totals in shown.items():
        fed = federation(
            rows,
            lambda tree, i, totals=totals: totals.append("total" in tree),
            on_loss=on_loss,
            trust=trust,
        )
        fits.append(estimator(gamma=0.1, **options).fit(fed))
    np.testing.assert_allclose(fits[0].eigenvalues_, fits[1].eigenvalues_, rtol=1e-9)
    assert [sum(totals) for totals in shown.values()] == [5 * len(rows), 0]


def test_a_draw_is_the_same_whatever_signs_a_processor_gives_its_bases(monkeypatch):
    X = np.random.default_rng(3).normal(size=(60, 5)) * [3, 2, 1, 1e-3, 0]
    sums = drawn.RowSums(n_rows=60, sums=X.sum(axis=0))

    def landmarks():
        draw = drawn.Draw(drawn.SumSetup(seed=4, n_components=2, n_landmarks=8), 5)
        directions = draw.follow(lambda _: sums)
        for _ in range(2):
            C = (X - directions["mean"]).T @ (X - directions["mean"])
            products = drawn.ScatterProducts(products=C @ draw.kept["basis"])
            draw.follow(lambda _, products=products: products)
        return draw.kept["points"]

    plain, svd, eigh = landmarks(), np.linalg.svd, np.linalg.eigh

    def flipped_svd(A, **options):
        U, s, Vt = svd(A, **options)
        return -U, s, -Vt

    def flipped_eigh(A):
        values, vectors = eigh(A)
        return values, vectors * np.resize([1, -1], len(values))

    monkeypatch.setattr(np.linalg, "svd", flipped_svd)
    monkeypatch.setattr(np.linalg, "eigh", flipped_eigh)
    np.testing.assert_allclose(landmarks(), plain, rtol=0, atol=1e-8)


def test_a_restarted_site_still_knows_what_it_has_added():
    def restart(tree, i):
        if "total" in tree and i == 1:
            host = fed._courier._engine._hosts[i]
            host.restore(host.export())
        return False

    fed = federation(rows_of(11), restart)
    restarted = estimator().fit(fed)
    kept = estimator().fit(federation(rows_of(11)))
    np.testing.assert_allclose(restarted.eigenvalues_, kept.eigenvalues_, rtol=1e-12)
