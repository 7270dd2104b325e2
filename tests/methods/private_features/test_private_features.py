"""Kernel PCA and k-means with differential privacy."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import chi2
from sklearn.metrics import adjusted_rand_score
from tests.engines.dask_cluster import open_on_dask
from tests.engines.nvflare_sides import open_here

import eigenmesh as em
from eigenmesh.connect import sites_of
from eigenmesh.engines.in_process import InProcess
from eigenmesh.errors import InputError, MessageRefused, PolicyRefusal, StepRefused
from eigenmesh.methods.private_features import protocol
from eigenmesh.methods.private_features.clusters import scores_of
from eigenmesh.methods.private_features.maths import (
    CELLS_SENSITIVITY,
    MOMENTS_SENSITIVITY,
    UnitFeatures,
    moment_vector,
)
from eigenmesh.methods.private_features.protocol import (
    NoisedMoments,
    PrivateSetup,
    moments_mechanism,
)
from eigenmesh.numerics.kernels import Kernel
from eigenmesh.numerics.kmeans import WeightedPoints, cluster_sums
from eigenmesh.runtime.federation import Federation
from eigenmesh.runtime.message import Context

RNG = np.random.default_rng(5)
X = RNG.normal(size=(600, 5)) * [2.0, 1.5, 1.0, 0.5, 0.2]
X[:200] += 2.0
NAMES = ["north", "south", "west", "east"]
PARTS = em.Partitioned(rows=np.split(X, (150, 300, 450)), names=NAMES)
NO_NOISE = 1e9  # an epsilon under which noise is nothing
QUIET = pytest.mark.filterwarnings("ignore::eigenmesh.EigenmeshWarning")


def pca(**changes):
    return em.PrivatePCA(**{"gamma": 0.1, "n_features": 30, "random_state": 0, **changes})


# The promise.


@pytest.mark.parametrize("kernel", ["rbf", "laplacian", "cosine"])
@pytest.mark.parametrize("centre", [True, False])
def test_no_row_moves_the_moments_by_more_than_the_sensitivity(kernel, centre):
    features = UnitFeatures(Kernel(kernel, 0.3, 3.0, 1.0), 5, 40, 1)
    largest = 0.0
    for _ in range(300):
        rows = RNG.normal(size=(4, 5)) * 10.0 ** RNG.uniform(-3, 3)
        other = rows.copy()
        other[0] = RNG.choice(
            [-rows[0], rows[0] * 0, RNG.normal(size=5) * 10.0 ** RNG.uniform(-3, 6)]
        )
        moved = moment_vector(features, rows, centre) - moment_vector(features, other, centre)
        largest = max(largest, float(np.linalg.norm(moved)))
    assert 0.9 * MOMENTS_SENSITIVITY < largest <= MOMENTS_SENSITIVITY * (1 + 1e-9)


def test_no_row_moves_the_cells_by_more_than_the_sensitivity():
    largest = 0.0
    for _ in range(500):
        points = RNG.normal(size=(6, 2))
        points /= np.maximum(np.linalg.norm(points, axis=1, keepdims=True), 1.0)
        other = points.copy()
        other[0] = -points[0] / max(np.linalg.norm(points[0]), 1e-9)
        centres = RNG.normal(size=(int(RNG.integers(1, 4)), 2))
        both = [
            np.column_stack([own.sums, own.weights])
            for own in (
                cluster_sums(WeightedPoints(p, np.ones(6)), centres) for p in (points, other)
            )
        ]
        largest = max(largest, float(np.linalg.norm(both[0] - both[1])))
    assert 0.9 * CELLS_SENSITIVITY < largest <= CELLS_SENSITIVITY * (1 + 1e-9)


def noise_in(fed, estimator):
    """The noise in a fit's sum beside what the accountant says, and who is in the sum."""
    stage = estimator._stage(5)
    setup = stage.args[0]
    features = UnitFeatures(Kernel("rbf", 0.1, 3.0, 1.0), 5, 30, 0)
    mechanism = moments_mechanism(setup, 31 * 32 // 2)  # a constant beside the features
    seen = []
    total = type(fed).total

    def overheard(self, step, *args, **kwargs):
        seen.append(total(self, step, *args, **kwargs))
        return seen[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(fed), "total", overheard)
        stage.run(fed)
    covered = [NAMES.index(name) for name in seen[-1].parties]
    truth = sum(moment_vector(features, PARTS.parts[i], True) for i in covered)
    return (mechanism.read(seen[-1].sum.upper) - truth) / mechanism.sigma, seen[-1].parties


@pytest.mark.parametrize(
    ("secure", "shares"), [(False, 4), (True, 2)], ids=["each adds all", "each adds half, masked"]
)
def test_the_sum_has_the_noise_that_the_rule_says(secure, shares):
    with em.federation(PARTS, secure=secure) as fed:
        noise = [noise_in(fed, pca(epsilon=0.5))[0] for _ in range(20)]
    squares = np.concatenate(noise) ** 2
    low, high = chi2.ppf([1e-6, 1 - 1e-6], squares.size) / squares.size
    assert low < squares.mean() / shares < high


@pytest.mark.parametrize("round_", range(1, 7))
def test_a_party_lost_under_masks_leaves_noise_enough(round_):
    faults = [em.Fault("kill", "east", round=round_)]
    with em.federation(PARTS, secure=True, on_loss="survivors", faults=faults) as fed:
        noise, parties = noise_in(fed, pca(epsilon=0.5))
        assert set(fed.lost) <= {"east"}
    low, high = np.sqrt(chi2.ppf([1e-6, 1 - 1e-6], noise.size) / noise.size)
    assert low < noise.std() / np.sqrt(len(parties) / 2) < high


def test_fewer_parties_than_have_noise_enough_open_no_sum():
    """Of seven, four have noise enough, and any two could open a sum otherwise."""
    parts = em.split(X, n_parties=7, random_state=0)
    faults = [em.Fault("kill", f"party-{i}", round=1) for i in range(4)]
    with em.federation(parts, secure=True, on_loss="survivors", faults=faults) as fed:
        with pytest.raises(StepRefused, match="a sum covers at least 4 parties"):
            pca().fit(fed)
        em.SketchingPCA(2, kernel="rbf", gamma=0.1).fit(fed)


# The answer.


@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("kernel", ["rbf", "laplacian", "cosine"])
@pytest.mark.parametrize("secure", [False, True])
def test_without_noise_it_is_pca_of_the_features(center, kernel, secure):
    with em.federation(PARTS, secure=secure) as fed:
        model = pca(n_components=3, kernel=kernel, center=center, epsilon=NO_NOISE).fit(fed)
    E = UnitFeatures(Kernel(kernel, 0.1, 3.0, 1.0), 5, 30, 0)(X)
    E = E - E.mean(axis=0) if center else E
    expected = np.linalg.svd(E, compute_uv=False)[:3] ** 2
    np.testing.assert_allclose(model.eigenvalues_, expected, rtol=1e-3)
    scores = np.vstack(model.transform(PARTS))
    np.testing.assert_allclose((scores**2).sum(axis=0), expected, rtol=1e-3)
    assert model.total_variance_ == pytest.approx((E**2).sum(), rel=1e-3)


@QUIET
def test_shortfalls_tell_what_noise_has_lost():
    """Estimated from the noised sum alone, beside what the components really have."""
    rows = np.random.default_rng(1).normal(size=(20_000, 4)) * [3, 2, 1, 0.5]
    parts = em.split(rows, n_parties=3, random_state=0)
    E = UnitFeatures(Kernel("rbf", 0.1, 3.0, 1.0), 4, 60, 0)(rows)
    E -= E.mean(axis=0)
    best = np.linalg.svd(E, compute_uv=False)[:4] ** 2
    for epsilon in (0.3, 1.0, 4.0):
        with em.federation(parts, secure=True) as fed:
            model = pca(n_components=4, n_features=60, epsilon=epsilon).fit(fed)
        have = float((np.linalg.norm(E @ model.model_.components, axis=0) ** 2).sum())
        claimed = float(
            ((1 - model.shortfalls_) * model.eigenvalues_).sum() / model.eigenvalues_.sum()
        )
        # What a component loses, other directions of the data give back in part.
        assert claimed - 0.05 < have / best.sum() < claimed + 0.35


@QUIET
def test_clusters_are_found_and_labels_stay_with_their_rows():
    y = np.arange(9000) % 3
    rows = np.array([[0, 0], [4, 0], [0, 4]])[y] + np.random.default_rng(2).normal(size=(9000, 2))
    parts = em.split(rows, n_parties=3, random_state=0)
    with em.federation(parts, secure=True) as fed:
        model = em.KernelKMeans(3, gamma=0.1, epsilon=3.0, n_features=40, random_state=0).fit(fed)
    labels = np.concatenate(list(model.labels_))
    truth = np.concatenate([y[order] for order in parts.order])
    assert adjusted_rand_score(truth, labels) > 0.9
    np.testing.assert_array_equal(labels, np.concatenate(model.predict(parts)))
    assert model.report_.privacy == {"epsilon": 3.0, "delta": 1e-6}
    assert set(model.report_.reveals["party-0"]) == {"aggregate", "counts"}


# Front doors, plans, reports, files.


@QUIET
def test_the_front_door_takes_it_by_epsilon_alone_or_by_name():
    how = {"kernel": "rbf", "gamma": 0.1, "epsilon": NO_NOISE}
    for method in ("auto", "private-features"):
        model = em.KernelPCA(2, method=method, **how).fit(PARTS)
        assert model.method_.startswith("private-features: 4 parties hold rows; noise hides")
        assert model.report_.privacy == {"epsilon": NO_NOISE, "delta": 1e-6}
    alone = em.KernelPCA(2, **how).fit(X)
    np.testing.assert_allclose(alone.eigenvalues_, model.eigenvalues_, rtol=1e-3)
    assert alone.transform(X).shape == (600, 2)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"gamma": "median"}, "computed from the rows without noise"),
        ({"kernel": "linear"}, "can be computed|are expected"),
        ({"method": "diskpca"}, "adds no noise"),
        ({"preparation": em.Preparation(standardize=True)}, "preparation is given"),
        ({"topology": "ring"}, "a coordinator"),
        ({"epsilon": -1.0}, "epsilon is -1.0"),
        ({"delta": 2.0}, "delta is 2.0"),
        ({"epsilon": None, "method": "private-features"}, "epsilon=1, say"),
    ],
)
@pytest.mark.parametrize("door", [em.KernelPCA, em.KernelKMeans])
def test_what_would_break_the_promise_is_refused_with_a_remedy(door, changes, words):
    own = {"kernel": "rbf", "gamma": 0.1, "epsilon": 1.0, **changes}
    with pytest.raises(InputError, match=words):
        door(2, **own).fit(PARTS)


def test_columns_have_no_private_method():
    columns = em.Partitioned(columns=np.hsplit(X, [2]))
    with pytest.raises(InputError, match="columns split over parties"):
        em.KernelPCA(2, kernel="rbf", gamma=0.1, epsilon=1.0).fit(columns)


def test_the_plan_says_where_it_is_useless_and_the_promise():
    small = em.Partitioned(rows=[np.zeros((100, 5))] * 4)
    plan = em.plan(em.KernelPCA(10, kernel="rbf", gamma=0.1, epsilon=1.0), small)
    assert plan.privacy == {"epsilon": 1.0, "delta": 1e-6}
    assert any(note.startswith("USELESS: noise has eigenvalues up to") for note in plan.notes)
    many = em.Partitioned(rows=[np.broadcast_to(0.0, (100_000, 5))] * 3)
    notes = em.plan(em.PrivatePCA(3, epsilon=1.0, gamma=0.1), many, secure=True).notes
    assert not any("USELESS" in note or "doubtful" in note for note in notes)
    assert any("each of 3 parties adds 1/2 of the noise" in note for note in notes)


@QUIET
def test_fits_cost_what_the_plan_says_and_are_another_study_with_another_epsilon():
    estimators = [pca(), em.PrivateKMeans(3, gamma=0.1, n_features=20, epsilon=NO_NOISE)]
    for estimator in estimators:
        plan = em.plan(estimator, PARTS)
        report = estimator.fit(PARTS).report_
        assert (plan.floats_up, plan.rounds) == (report.floats_up, report.rounds)
    one, other = (em.study(pca(epsilon=eps), PARTS).digest for eps in (1.0, 2.0))
    assert one != other


@QUIET
def test_reports_audits_and_files_have_the_promise(tmp_path):
    model = pca(epsilon=2.0).fit(PARTS)
    words = str(em.audit(model.report_))
    assert "496 numbers as moments under noise" in words
    assert "(epsilon 2, delta 1e-06)" in words
    assert "tell these rows by subtraction" not in words
    model.save(tmp_path / "model.em")
    loaded = em.load(tmp_path / "model.em")
    assert loaded.report_.privacy == {"epsilon": 2.0, "delta": 1e-6}
    np.testing.assert_allclose(loaded.transform(X), model.transform(X), rtol=1e-12, atol=1e-14)


def test_a_large_delta_is_warned_of():
    with pytest.warns(em.EigenmeshWarning, match="publishing one row"):
        pca(delta=0.01, epsilon=NO_NOISE).fit(PARTS)


# Policies.


def with_policy(policy):
    return em.Partitioned(rows=PARTS.parts, names=NAMES, policies=[policy] * 4)


def test_a_policy_bounds_epsilon_of_a_study():
    bounded = with_policy(em.Policy(protocols={"private-features": {"epsilon": 1.0}}))
    with pytest.raises(PolicyRefusal, match="epsilon"):
        pca(epsilon=2.0).fit(bounded)


@QUIET
def test_a_budget_bounds_epsilon_over_the_life_of_the_data():
    parts = with_policy(em.Policy(budget=em.Budget(epsilon=1.5)))
    with em.federation(parts) as fed:
        for _ in range(2):  # noise is drawn anew, so that the same question costs anew
            pca(epsilon=1.0).fit(fed)
        with pytest.raises(PolicyRefusal, match="its epsilon is spent: 1.5 over the life"):
            pca(epsilon=1.0).fit(fed)
        pca(epsilon=0.2).fit(fed)  # there is that much left
        with pytest.raises(PolicyRefusal, match="adds no noise"):
            em.SketchingPCA(2, kernel="rbf", gamma=0.1).fit(fed)


def test_a_study_of_many_releases_is_refused_before_the_first():
    parts = with_policy(em.Policy(budget=em.Budget(epsilon=1.0)))
    with em.federation(parts) as fed:
        with pytest.raises(PolicyRefusal, match="its epsilon is spent"):
            em.PrivateKMeans(3, epsilon=1.01, gamma=0.1).fit(fed)
        spent = [own.loss for site in fed.local_sites().values() for own in site.account.sets]
    assert not any(spent)


@QUIET
def test_what_was_spent_outlives_the_process(tmp_path):
    def fit():
        sites = sites_of(with_policy(em.Policy(budget=em.Budget(epsilon=1.2))))
        for site in sites:
            site.state_dir = tmp_path
        with Federation(InProcess(sites), split="rows") as fed:
            pca(epsilon=1.0).fit(fed)

    fit()
    with pytest.raises(PolicyRefusal, match="its epsilon is spent"):
        fit()


def test_scores_of_rows_stay_in_the_unit_ball_whatever_components_come():
    features = UnitFeatures(Kernel("rbf", 0.1, 3.0, 1.0), 5, 30, 0)
    scores = scores_of(features, X, 1e3 * RNG.normal(size=(30, 4)))
    assert np.linalg.norm(scores, axis=1).max() <= 1 + 1e-12


# Engines.


@pytest.mark.parametrize("opened", [open_on_dask, open_here], ids=["dask", "nvflare sides"])
@pytest.mark.parametrize("secure", [False, True])
def test_engines_give_what_one_process_gives_but_for_noise(opened, secure):
    for estimator in (pca(epsilon=NO_NOISE), em.PrivateKMeans(3, epsilon=NO_NOISE, gamma=0.1)):
        with em.federation(PARTS, secure=secure) as fed:
            expected, report = estimator.fit(fed).eigenvalues_, estimator.report_
        with opened(PARTS, secure=secure) as fed:
            estimator.fit(fed)
        np.testing.assert_allclose(estimator.eigenvalues_, expected, rtol=1e-3)
        for field in ("floats_up", "floats_down", "rounds", "by_step", "reveals", "privacy"):
            assert getattr(estimator.report_, field) == getattr(report, field)


# Lies.


def moments_of_a_party(epsilon, kernel="rbf"):
    setup = PrivateSetup(kernel, 0.1, 30, 0, True, epsilon, 1e-6)
    vector = moment_vector(UnitFeatures(Kernel(kernel, 0.1, 3.0, 1.0), 5, 30, 0), X, True)
    return Context(setup), moments_mechanism(setup, len(vector)), vector


@pytest.mark.parametrize("epsilon", [0.01, 1.0, NO_NOISE])
@pytest.mark.parametrize("kernel", ["rbf", "cosine"])
def test_no_noise_is_taken_for_a_lie_and_lies_beyond_noise_are_refused(epsilon, kernel):
    context, mechanism, vector = moments_of_a_party(epsilon, kernel)

    def refused(told):
        return NoisedMoments(upper=mechanism.release(told, 1), n_rows=len(X)).contradiction(context)

    assert not any(refused(vector) for _ in range(50))
    far = 200 * mechanism.sigma + len(X)
    scaled, one_off = vector * (1 + far / len(X)), vector.copy()
    one_off[0] -= far
    assert refused(scaled)
    assert refused(one_off)
    assert refused(vector * 0 + far)


@QUIET
@pytest.mark.parametrize("secure", [False, True])
def test_a_total_that_unit_features_cannot_have_is_refused(secure, monkeypatch):
    monkeypatch.setattr(NoisedMoments, "contradiction", lambda self, context: None)
    monkeypatch.setattr(protocol, "moment_vector", lambda *of: 10 * moment_vector(*of))
    with em.federation(PARTS, secure=secure) as fed, pytest.raises(MessageRefused, match="wrong"):
        pca(epsilon=NO_NOISE).fit(fed)


@QUIET
def test_shares_of_the_variance_are_at_most_one_where_noise_is_all_there_is():
    few = em.Partitioned(rows=[X[:30], X[30:60]])
    for _ in range(5):
        model = pca(n_components=10, epsilon=0.5).fit(few)
        assert 0 <= model.explained_variance_ratio_.sum() <= 1 + 1e-9
