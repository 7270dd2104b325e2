"""Devices come and go: the run goes on, who returns catches up, and the report says so."""

import numpy as np
import pytest
from scipy.linalg import eigh
from sklearn.datasets import load_digits
from sklearn.metrics.pairwise import rbf_kernel

import eigenmesh as em
from eigenmesh.engines.faulty import Fault
from eigenmesh.errors import PartyLost
from eigenmesh.metrics import recovery_error

X = load_digits().data[:600] / 16
GAMMA = 0.1
S = 8
T = 20
OPTIONS = {
    "n_clusters": 8,
    "gamma": GAMMA,
    "n_features": 60,
    "n_iterations": T,
    "n_init": 1,
    "random_state": 0,
}

pytestmark = pytest.mark.filterwarnings("ignore:.*replies of .* parties were missing")


def best(rows, gamma=GAMMA):
    top = (len(rows) - S, len(rows) - 1)
    values, vectors = eigh(rbf_kernel(rows, gamma=gamma), subset_by_index=top)
    return values[::-1], vectors[:, ::-1]


def error(model, rows):
    return recovery_error(model.transform(rows), *best(rows, model.gamma_))


def fit(parts, faults=(), on_loss="skip", max_age=12, **options):
    """The model, and what each site keeps."""
    with em.federation(parts, faults=faults, on_loss=on_loss, max_age=max_age) as fed:
        model = em.FedKernelKMeans(**{**OPTIONS, **options}).fit(fed)
        stores = {name: dict(site.store) for name, site in fed.local_sites().items()}
    return model, stores


def own_scores(store):
    return store["fed-kernel-kmeans-scores"]["points"]


def by_digit(n_parties):
    """Nobody else has seen what a party holds."""
    order = np.argsort(load_digits().target[: len(X)], kind="stable")
    return em.Partitioned(rows=np.array_split(X[order], n_parties))


@pytest.mark.parametrize(
    ("parts", "solver", "clustering"),
    [
        (em.split(X, 6, random_state=0), "nystrom", "lloyd"),
        (by_digit(5), "nystrom", "coreset"),
        (by_digit(5), "gram", "coreset"),
    ],
)
def test_a_fifth_of_all_replies_lost_costs_no_accuracy(parts, solver, clustering):
    options = {"solver": solver, "clustering": clustering, "gamma": "mean-distance"}
    whole, _ = fit(parts, **options)
    model, stores = fit(parts, [Fault("lose", share=0.2)], **options)
    assert model.gamma_ == pytest.approx(whole.gamma_, rel=1e-12)  # everybody had a say in it
    rows = np.vstack(parts.parts)
    assert error(model, rows) <= 1.5 * error(whole, rows)
    assert set(model.report_.parties) == set(parts.names)
    assert sum(model.report_.dropped.values()) > T / 2
    assert any("asked again" in note for note in model.report_.notes)
    for part, name in zip(parts.parts, parts.names, strict=True):  # everybody has caught up
        np.testing.assert_allclose(own_scores(stores[name]), model.transform(part), atol=1e-10)
        labels = stores[name]["fed-kernel-kmeans-labels"]["labels"]
        np.testing.assert_array_equal(labels, model.predict(part))


def test_without_faults_skip_is_the_plain_run():
    parts = em.split(X, 5, random_state=0)
    plain, _ = fit(parts, on_loss="raise")
    patient, _ = fit(parts)
    np.testing.assert_array_equal(patient.transform(X), plain.transform(X))
    assert not patient.report_.dropped


def test_a_party_that_was_away_for_long_catches_up():
    parts = em.split(X, 5, random_state=0)
    away = [Fault("lose", party="party-3", round=r) for r in range(4, 16)]
    model, stores = fit(parts, away)
    assert model.report_.dropped == {"party-3": 12}
    own = own_scores(stores["party-3"])
    np.testing.assert_allclose(own, model.transform(parts.parts[3]), atol=1e-10)
    covered = [entry.covered for entry in model.trace_]
    assert covered[:2] == [1.0, 1.0]
    # Round 1 counts rows, so round 4 is t = 3; three chances each, it misses four iterations.
    assert covered[2:6] == pytest.approx([0.8] * 4)
    assert covered[6:] == [1.0] * (T - 6)


def test_what_a_returning_party_is_sent_are_the_updates_that_it_missed():
    parts = em.split(X, 5, random_state=0)
    with_gap, _ = fit(parts, [Fault("lose", party="party-3", round=r) for r in (4, 5, 6)])
    without, _ = fit(parts)
    D, r = 60, 2 * 8 + 6
    # At t = 3 it is asked twice more with the update that it lacks; at t = 4 it lacks two.
    repeated = 3 * (D + r) * r
    assert with_gap.report_.floats_down - without.report_.floats_down == repeated


def test_a_third_of_the_parties_leaves_half_way():
    parts = em.split(X, 10, random_state=0)
    gone = ["party-1", "party-4", "party-8"]
    faults = [Fault("kill", party=name, round=2 + T // 2) for name in gone]
    model, stores = fit(parts, faults, max_age=3)
    assert sorted(model.report_.lost) == gone
    assert "in 4 rounds in a row" in model.report_.lost["party-1"]
    assert set(model.report_.parties) == set(parts.names) - set(gone)
    assert "party-4" in str(model.report_)
    assert len(model.labels_) == 7
    rest = np.vstack([p for p, n in zip(parts.parts, parts.names, strict=True) if n not in gone])
    whole = em.FedKernelKMeans(**OPTIONS).fit(em.Partitioned(rows=[rest]))
    assert error(model, rest) <= 2 * error(whole, rest)
    # Eigenvalues are those of the rows that are left.
    np.testing.assert_allclose(model.eigenvalues_[:4], best(rest)[0][:4], rtol=0.1)


@pytest.mark.parametrize("round_", [1, 2, 5, 7, 8, 9, 10])
def test_a_party_lost_at_any_round_is_named_and_the_rest_go_on(round_):
    """One round counts, five iterate, two conclude, and the rest are k-means."""
    parts = em.split(X[:400], 4, random_state=0)
    faults = [Fault("kill", party="party-1", round=round_)]
    with pytest.raises(PartyLost, match="party-1"):
        fit(parts, faults, on_loss="raise", n_iterations=5)
    for way in ("survivors", "skip"):
        model, _ = fit(parts, faults, on_loss=way, max_age=2, n_iterations=5)
        assert set(model.report_.lost) == {"party-1"}
        assert len(model.labels_) == 3


@pytest.mark.parametrize("round_", [2, 9, 30])
def test_lanczos_begins_an_iteration_again_without_a_lost_party(round_):
    parts = em.split(X[:400], 4, random_state=0)
    faults = [Fault("kill", party="party-2", round=round_)]
    options = {"solver": "lanczos", "n_iterations": 4}
    model, _ = fit(parts, faults, on_loss="survivors", **options)
    gram, _ = fit(parts, faults, on_loss="survivors", solver="gram", n_iterations=4)
    assert set(model.report_.lost) == {"party-2"}
    rest = np.vstack([parts.parts[i] for i in (0, 1, 3)])
    assert error(model, rest) <= 1.5 * error(gram, rest)


def test_a_lying_party_is_skipped_like_a_silent_one():
    parts = em.split(X[:400], 4, random_state=0)
    model, _ = fit(parts, [Fault("corrupt", party="party-0", round=5)])
    assert model.report_.dropped == {"party-0": 1}


def test_a_plan_of_devices_that_come_and_go_is_that_of_a_run_that_misses_nothing():
    parts = em.split(X, 5, random_state=0)
    with em.federation(parts, on_loss="skip", faults=[Fault("lose", "party-2", round=1)]) as fed:
        plan = em.plan(em.FedKernelKMeans(**OPTIONS), fed)
    model, _ = fit(parts)
    assert (plan.rounds, plan.floats_up) == (model.report_.rounds, model.report_.floats_up)
    assert plan.parties == parts.names
