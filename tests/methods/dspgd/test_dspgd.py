"""DSPGD: the iteration of the paper, whoever computes it, and what it sends."""

import numpy as np
import pytest
from sklearn.datasets import load_digits

import eigenmesh as em
from eigenmesh.errors import InputError, MessageRefused, RankError
from eigenmesh.methods.dspgd.direct import dspgd_direct
from eigenmesh.methods.dspgd.features import fresh_features
from eigenmesh.methods.dspgd.maths import (
    ProximalSpectrum,
    compression,
    lanczos_spectrum,
    spectrum_of_gram,
    spectrum_of_sketch,
    weigh,
)
from eigenmesh.methods.dspgd.outcome import Goal
from eigenmesh.methods.dspgd.party_side import DSPGDSetup, Ending, FeatureHolder, Updates, pack
from eigenmesh.methods.dspgd.protocol import SOLVERS, dspgd
from eigenmesh.numerics.kernels import Kernel
from eigenmesh.runtime.site import Site, SiteView

X = load_digits().data[:400] / 16
GAMMA = 0.1
SCORES = "scores"


def setup(**changes):
    agreed = {
        "kernel": "rbf",
        "gamma": GAMMA,
        "degree": 3.0,
        "coef0": 1.0,
        "n_features": 40,
        "sketch_width": 22,
        "step_rule": "1/t",
        "seed": 3,
        "scores": SCORES,
    }
    return DSPGDSetup(**{**agreed, **changes})


def run(parts, goal, n_iterations, solver, agreed=None, **options):
    """The result, H by party, and the ledger."""
    with em.federation(parts, **options) as fed:
        direct = solver == "direct"
        arguments = (agreed or setup(), goal, n_iterations)
        done = fed.run(dspgd_direct, *arguments) if direct else fed.run(dspgd, *arguments, solver)
        stores = [site.store for site in fed.local_sites().values()]
    return done.value, [store[SCORES]["points"] for store in stores], done.recording.ledger


def central(rows, goal, n_iterations, agreed):
    """The paper's recursion on n × n matrices: K_t of equation, with numpy alone."""
    Z, lam = np.zeros((len(rows), len(rows))), 0.0
    for t in range(1, n_iterations + 1):
        eta = min(1.0, float(agreed.step_rule[0]) / t)
        kernel = Kernel(agreed.kernel, agreed.gamma)
        A = fresh_features(kernel, rows.shape[1], agreed.n_features, agreed.seed, t)(rows)
        values, vectors = np.linalg.eigh((1 - eta) * Z + eta * A @ A.T)
        values, vectors = values[::-1], vectors[:, ::-1]
        if t == 1 and goal.rank is None:
            lam = values[goal.n_clusters + 1]
        kept = values > eta * lam if goal.rank is None else np.arange(len(values)) < goal.rank
        values, vectors = values[kept] - eta * lam, vectors[:, kept]
        Z = (vectors * values) @ vectors.T
    s = goal.n_eigenvectors
    return (vectors[:, :s] * (values[:s] + lam)) @ vectors[:, :s].T


# 1. The central oracle.


@pytest.mark.parametrize(("rank", "rule"), [(15, "1/t"), (None, "2/t")])
@pytest.mark.parametrize("solver", ["gram", "lanczos", "direct"])
def test_equals_the_recursion_on_the_whole_matrix(solver, rank, rule):
    parts = em.split(X, 4, law="power", random_state=0)
    rows = np.vstack(parts.parts)
    goal, agreed = Goal(6, 8, rank), setup(step_rule=rule)
    _, H, _ = run(parts, goal, 4, solver, agreed)
    H = np.vstack(H)
    expected = central(rows, goal, 4, agreed)
    scale = np.abs(expected).max()
    # The floor of Lanczos is its own stop tolerance; the exact solver has none.
    limit = 1e-10 if solver == "gram" else 2e-5
    np.testing.assert_allclose(H @ H.T, expected, atol=limit * scale)


def test_a_sketch_as_wide_as_the_features_is_exact():
    parts = em.split(X, 4, random_state=0)
    goal = Goal(6, 8, 15)
    _, whole, _ = run(parts, goal, 5, "gram")
    _, sketched, _ = run(parts, goal, 5, "nystrom", setup(sketch_width=200))
    np.testing.assert_allclose(np.vstack(sketched), np.vstack(whole), atol=1e-7)


@pytest.mark.parametrize("parties", [1, 2, 9])
@pytest.mark.parametrize("solver", [*SOLVERS, "direct"])
def test_exact_features_give_the_exact_eigenvectors(solver, parties):
    """The features of a linear kernel are the rows themselves: nothing is left to chance."""
    agreed = setup(kernel="linear", gamma=None, n_features=64, sketch_width=70)
    parts = em.split(X, parties, random_state=0)
    found, H, _ = run(parts, Goal(5, 5, 10), 3, solver, agreed)
    rows = np.vstack(parts.parts)
    values, vectors = np.linalg.eigh(rows @ rows.T)
    best = (vectors[:, -5:] * values[-5:]) @ vectors[:, -5:].T
    np.testing.assert_allclose(found.eigenvalues, values[:-6:-1], rtol=1e-5)
    np.testing.assert_allclose(np.vstack(H) @ np.vstack(H).T, best, atol=1e-4 * values[-1])


@pytest.mark.parametrize("solver", [*SOLVERS, "direct"])
def test_the_model_maps_the_rows_to_what_their_party_keeps(solver):
    parts = em.split(X, 3, random_state=0)
    found, H, _ = run(parts, Goal(6, 8, 15), 5, solver)
    limit = 2e-5 if solver == "direct" else 1e-10  # there they come from Lanczos' own vectors
    for own, rows in zip(H, parts.parts, strict=True):
        np.testing.assert_allclose(found.model.transform(rows), own, atol=limit)


# 2. The small eigenproblem.


def test_lanczos_finds_the_top_of_a_clustered_spectrum():
    rng = np.random.default_rng(0)
    Q, _ = np.linalg.qr(rng.normal(size=(80, 80)))
    values = np.r_[5.0, 3.0, 3.0 - 1e-4, 1.0, np.linspace(0.2, 0, 76)]
    M = (Q * values) @ Q.T
    found = lanczos_spectrum(lambda v: M @ v, rng.normal(size=80), rank=4, tol=1e-10)
    np.testing.assert_allclose(found.values, values[:4], atol=1e-9)
    np.testing.assert_allclose(found.vectors.T @ found.vectors, np.eye(4), atol=1e-12)
    floor = lanczos_spectrum(lambda v: M @ v, rng.normal(size=80), floor=0.5, tol=1e-10)
    np.testing.assert_allclose(floor.values, values[:4], atol=1e-9)


def test_lanczos_stops_where_the_matrix_ends():
    M = np.diag([2.0, 2.0, 0.0, 0.0])
    found = lanczos_spectrum(lambda v: M @ v, np.ones(4), rank=3)
    assert found.n_products <= 3
    np.testing.assert_allclose(found.values[0], 2.0)


def test_a_sketch_never_claims_more_than_is_there():
    rng = np.random.default_rng(1)
    A, B, omega = rng.normal(size=(90, 20)), rng.normal(size=(90, 4)), rng.normal(size=(20, 5))
    AB = np.hstack([A, B])
    found = spectrum_of_sketch(A.T @ A @ omega, A.T @ B, B.T @ B, omega, 0.3, 6)
    whole = spectrum_of_gram(AB.T @ AB, 20, 0.3, 6)
    assert np.all(found.values <= whole.values + 1e-9)
    assert found.values[0] > 0.5 * whole.values[0]
    np.testing.assert_allclose(found.vectors.T @ found.vectors, np.eye(6), atol=1e-10)
    assert found.energy == pytest.approx(np.sum((B.T @ B) ** 2))


def test_weighing_is_the_gram_matrix_of_w():
    rng = np.random.default_rng(2)
    A, B = rng.normal(size=(30, 3)), rng.normal(size=(30, 2))
    AB, W = np.hstack([A, B]), np.hstack([np.sqrt(0.2) * A, np.sqrt(0.8) * B])
    np.testing.assert_allclose(weigh(AB.T @ AB, 3, 0.2), W.T @ W)


def test_missing_columns_are_made_up_with_zeros():
    X_ = compression(ProximalSpectrum(np.array([4.0, 1.0]), np.eye(3, 2)), 0.0, 4)
    assert X_.shape == (3, 4)
    assert not X_[:, 2:].any()


# 3. What is sent.


@pytest.mark.parametrize("parties", [3, 8])
def test_floats_and_rounds_equal_the_formula_and_do_not_grow_with_the_rows(parties):
    D, r, s, T = 40, 12, 6, 5
    for n in (200, 400):
        parts = em.split(X[:n], parties, random_state=0)
        agreed = setup(sketch_width=r + 2)
        _, _, gram = run(parts, Goal(s, 8, r), T, "gram", agreed)
        _, _, sketch = run(parts, Goal(s, 8, r), T, "nystrom", agreed)
        last = r * (r + 1) // 2
        widths = [D] + [D + r] * (T - 1)
        assert gram.floats_up == parties * (sum(w * (w + 1) // 2 for w in widths) + last)
        sketches = D * (min(D, 3 * (r + 2)) + (T - 1) * (r + 2)) + (T - 1) * r * (r + 1) // 2
        assert sketch.floats_up == parties * (sketches + last)
        down = parties * (sum(w * r for w in widths) + r * s)
        assert gram.floats_down == sketch.floats_down == down
        assert gram.rounds == sketch.rounds == T + 3


def test_the_mechanism_saves_what_the_papers_theorem_says():
    """(N + M D) Q0 over M (r + D) Q1, product by product."""
    n, M, D, T = 300, 5, 40, 4
    parts, goal = em.split(X[:n], M, random_state=0), Goal(6, 8, 12)
    with_it, _, efficient = run(parts, goal, T, "lanczos")
    without, _, direct = run(parts, goal, T, "direct")

    def products(ledger, *steps):
        return sum(e.floats for e in ledger if e.step in steps and e.sender != "coordinator")

    ranks = [0] + [entry.rank for entry in with_it.trace[:-1]]
    Q1 = [entry.n_products for entry in with_it.trace]
    assert products(efficient, "FeatureHolder.multiply") == M * sum(
        (r + D) * q for r, q in zip(ranks, Q1, strict=True)
    )
    Q0 = [entry.n_products for entry in without.trace]
    sent = products(direct, "SampleHolder.project", "SampleHolder.expand")
    assert sent == (n + M * D) * sum(Q0)
    assert direct.rounds == 2 * sum(Q0) + 2
    assert efficient.rounds == sum(Q1) + T + 3
    assert sum(Q0) == pytest.approx(sum(Q1), rel=0.1)  # "at the same order"


# 4. Parties that were sent nonsense.


def holder(**changes):
    site = Site("north", opens=lambda: X[:50])
    return FeatureHolder(SiteView(site, 0, ("north",)), setup(**changes))


def some_updates(first, ranks, seed=0):
    rng = np.random.default_rng(seed)
    steps = [rng.normal(size=(40 + a, b)) for a, b in zip(ranks, ranks[1:], strict=False)]
    return pack(first, ranks, steps)


def test_a_party_applies_every_update_once():
    party = holder()
    both = some_updates(1, [0, 5, 4])
    party.gram(Updates(**both))
    before = party.B.copy()
    party.gram(Updates(**both))  # its reply was lost, say, and it is sent them again
    np.testing.assert_array_equal(party.B, before)
    in_two = holder()
    first = {**both, "ranks": both["ranks"][:2], "coefficients": both["coefficients"][:200]}
    in_two.sketch(Updates(**first))
    in_two.sketch(Updates(**both))
    np.testing.assert_array_equal(in_two.B, before)


@pytest.mark.parametrize(
    ("updates", "words"),
    [
        (some_updates(2, [5, 4]), "has seen 0"),
        (some_updates(1, [5, 4]), "does not fit"),
        ({**some_updates(1, [0, 5]), "coefficients": np.zeros(7)}, "ranks say"),
        ({**some_updates(1, [0]), "ranks": np.array([-1])}, "ranks say"),
        ({**some_updates(1, [0]), "ranks": np.zeros(0, dtype=int)}, "ranks say"),
    ],
)
def test_updates_that_do_not_fit_are_refused(updates, words):
    with pytest.raises(MessageRefused, match=words):
        holder().gram(Updates(**updates))


def test_a_rotation_that_does_not_fit_is_refused():
    with pytest.raises(MessageRefused, match="rotation"):
        holder().keep_scores(Ending(**some_updates(1, [0, 5]), rotation=np.eye(3)))


def test_state_survives_a_restart_between_two_steps():
    party, updates = holder(), some_updates(1, [0, 5, 4])
    party.gram(Updates(**updates))
    restarted = holder()
    restarted.restore(party.export())
    later = Updates(**some_updates(3, [4, 3], seed=1))
    np.testing.assert_array_equal(restarted.gram(later).upper, party.gram(later).upper)


def test_a_reply_is_a_sum_over_rows():
    """Turning a party's features and iterate changes nothing that it sends."""
    party = holder()
    reply = party.gram(Updates(**some_updates(1, [0])))
    shuffled = Site("north", opens=lambda: X[:50][::-1])
    other = FeatureHolder(SiteView(shuffled, 0, ("north",)), setup())
    again = other.gram(Updates(**some_updates(1, [0])))
    np.testing.assert_allclose(reply.upper, again.upper, atol=1e-12)


# 5. Bad combinations.


def test_reused_replies_and_skipped_products_are_refused():
    parts = em.split(X, 3, random_state=0)
    with pytest.raises(InputError, match="reuse.*features"):
        run(parts, Goal(3, 3, 8), 2, "gram", on_loss="reuse")
    with pytest.raises(InputError, match="same.*nystrom"):
        run(parts, Goal(3, 3, 8), 2, "lanczos", on_loss="skip")
    with pytest.raises(InputError, match="'raise' is expected"):
        run(parts, Goal(3, 3, 8), 2, "direct", on_loss="survivors")


def test_the_papers_threshold_needs_enough_features():
    with pytest.raises(InputError, match="n_clusters \\+ 2"):
        run(em.split(X, 3, random_state=0), Goal(9, 9, None), 2, "gram", setup(n_features=10))


def test_rows_of_zeros_have_no_eigenvectors():
    agreed = setup(kernel="linear", gamma=None, n_features=64)
    with pytest.raises(RankError, match="eigenvalue"):
        run(em.Partitioned(rows=[np.zeros((9, 4))]), Goal(2, 2, 4), 2, "gram", agreed)
