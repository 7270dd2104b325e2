"""Fits under masks: the same answer, forecast to the float, with nothing of a party but sums."""

import numpy as np
import pytest

import eigenmesh as em

pytestmark = pytest.mark.filterwarnings("ignore::eigenmesh.errors.EigenmeshWarning")

ROWS = {
    "moments": lambda seed: em.KernelPCA(2, kernel="linear", random_state=seed),
    "drawn": lambda seed: em.DisKPCA(2, n_landmarks=25, landmarks="drawn", random_state=seed),
    "centroids": lambda seed: em.KernelPCA(
        2, kernel="rbf", n_landmarks=25, landmarks="centroids", random_state=seed
    ),
    "leverage": lambda seed: em.DisKPCA(2, kernel="rbf", n_landmarks=25, random_state=seed),
    "uniform": lambda seed: em.DisKPCA(
        2, kernel="laplacian", n_landmarks=25, landmarks="uniform", random_state=seed
    ),
    "sketched": lambda seed: em.DisKPCA(2, n_landmarks=25, exact=False, random_state=seed),
    "sketching": lambda seed: em.SketchingPCA(2, kernel="poly", degree=2, random_state=seed),
    "nystrom": lambda seed: em.FedKernelKMeans(2, n_features=20, n_iterations=3, random_state=seed),
    "gram": lambda seed: em.FedKernelKMeans(
        2, n_features=20, n_iterations=2, solver="gram", random_state=seed
    ),
    "lanczos": lambda seed: em.FedKernelKMeans(
        2, n_features=20, n_iterations=2, solver="lanczos", random_state=seed
    ),
}


def _parts(seed):
    rng = np.random.default_rng(seed)
    n_parties, width = int(rng.integers(2, 7)), int(rng.integers(3, 6))
    scales = 10.0 ** rng.uniform(-1, 1, width)
    X = rng.normal(size=(int(rng.integers(60, 150)), width)) + 3 * rng.integers(0, 2, (1, width))
    return em.split(X * scales, n_parties=n_parties, random_state=seed)


def _numbers(fitted):
    names = ("eigenvalues_", "inertia_", "cluster_centers_", "residual_")
    values = [np.ravel(getattr(fitted, name)) for name in names if hasattr(fitted, name)]
    return np.concatenate(values)


@pytest.mark.parametrize(
    ("name", "on_loss"),
    [*((name, "raise") for name in ROWS), *((name, "survivors") for name in list(ROWS)[::3])],
)
def test_masked_fits_are_the_plain_ones(name, on_loss):
    seed = sum(map(ord, name))
    parts = _parts(seed)
    with em.federation(parts) as fed:
        plain = ROWS[name](seed).fit(fed)
    with em.federation(parts, secure=True, on_loss=on_loss) as fed:
        masked = ROWS[name](seed).fit(fed)
    expected, off = _numbers(plain), np.abs(_numbers(masked) - _numbers(plain))
    assert np.max(off) <= 1e-6 * np.max(np.abs(expected))
    for kinds in masked.report_.reveals.values():
        assert "gram" not in kinds
        assert "aggregate" in kinds


@pytest.mark.parametrize("on_loss", ["raise", "survivors"])
@pytest.mark.parametrize("name", ["moments", "drawn", "uniform", "nystrom"])
def test_a_plan_of_masked_sums_is_the_ledger(name, on_loss):
    parts = _parts(len(name))
    with em.federation(parts, secure=True, on_loss=on_loss) as fed:
        plan = em.plan(ROWS[name](1), fed)
        report = ROWS[name](1).fit(fed).report_
    assert (plan.floats_up, plan.floats_down) == (report.floats_up, report.floats_down)
    assert plan.rounds == report.rounds
    for party, kinds in report.reveals.items():  # rows by drawn shares are expectations in plans
        assert plan.reveals[party].keys() == kinds.keys()
        assert plan.reveals[party]["aggregate"] == kinds["aggregate"]
    if on_loss == "raise":
        beforehand = em.plan(ROWS[name](1), parts, secure=True)
        assert (beforehand.rounds, beforehand.reveals) == (plan.rounds, plan.reveals)
    assert em.plan(ROWS[name](1), parts).rounds < plan.rounds


@pytest.mark.parametrize("round_", range(1, 12))
def test_a_fit_survives_a_party_lost_in_any_round_of_its_sums(round_):
    rng = np.random.default_rng(round_)
    blocks = [rng.normal(size=(20, 3)) for _ in range(4)]
    lost = em.Fault("kill", "party-3", round=round_)
    estimator = em.KernelPCA(2, kernel="linear", random_state=0)
    with em.federation(
        em.Partitioned(rows=blocks), secure=True, on_loss="survivors", faults=[lost]
    ) as fed:
        fitted = estimator.fit(fed).eigenvalues_
        n_parties = len(fed.parties)
    answers = [_pooled(blocks[:n]) for n in (3, 4)]
    assert min(np.max(np.abs(fitted - one)) / one[0] for one in answers) < 1e-9
    assert n_parties == 3 or round_ > 6


def _pooled(blocks):
    X = np.vstack(blocks)
    values = np.linalg.eigvalsh((X - X.mean(axis=0)).T @ (X - X.mean(axis=0)))
    return values[::-1][:2]


@pytest.mark.parametrize("seed", range(3))
def test_clusters_under_masks_are_as_good(seed):
    """The front door takes other ways under masks, by which no score leaves."""
    parts = _parts(seed)
    with em.federation(parts) as fed:
        plain = em.KernelKMeans(2, random_state=seed).fit(fed)
    with em.federation(parts, secure=True) as fed:
        masked = em.KernelKMeans(2, random_state=seed).fit(fed)
    assert masked.inertia_ <= 1.05 * plain.inertia_
    assert all("scores" not in kinds for kinds in masked.report_.reveals.values())


def test_regression_under_masks_is_the_plain_one():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(120, 4))
    y = X[:, 0] - X[:, 1] ** 2
    parts = em.Partitioned(rows=np.array_split(X, 4))
    targets = np.array_split(y, 4)
    estimator = em.KernelPCRegressor(6, n_landmarks=40, landmarks="uniform", random_state=0)
    with em.federation(parts) as fed:
        plain = estimator.fit(fed, targets).predict(X)
    with em.federation(parts, secure=True) as fed:
        masked = estimator.fit(fed, targets).predict(X)
    assert np.max(np.abs(masked - plain)) <= 1e-6 * np.max(np.abs(plain))


def test_a_printed_study_says_what_is_masked():
    study = em.study(em.KernelPCA(2, kernel="linear"), _parts(1), secure=True)
    assert "masked: all see the sum alone" in str(study)
    assert "masked" not in str(em.study(em.KernelPCA(2, kernel="linear"), _parts(1)))


def test_where_no_more_points_can_be_drawn_nobody_is_told_to_raise_their_number():
    rng = np.random.default_rng(0)
    parts = em.Partitioned(rows=np.array_split(rng.normal(size=(100, 8)), 4))
    with (
        em.federation(parts, secure=True) as fed,
        pytest.warns(em.EigenmeshWarning, match="99 landmarks miss.*no more points.*'diskpca'"),
    ):
        em.KernelPCA(3, kernel="rbf", gamma=0.3, n_landmarks=200).fit(fed)


@pytest.mark.parametrize("door", [em.KernelPCA, em.KernelKMeans, em.KernelPCRegressor])
@pytest.mark.parametrize("bits", [16, 8, "auto"])
def test_masked_fits_go_on_until_landmarks_are_used_up_in_few_bits(door, bits):
    """Drawn points are fewer than rows anyhow: one less for being rounded was out of schedule."""
    rng = np.random.default_rng(3)
    parts = em.split(rng.normal(size=(120, 40)), 4, random_state=0)
    ys = [rng.normal(size=len(own)) for own in parts.parts]
    model = door(2, kernel="rbf", gamma="scale", precision=bits, random_state=0)
    with em.federation(parts, secure=True) as fed:
        model.fit(fed, ys) if door is em.KernelPCRegressor else model.fit(fed)
    assert set().union(*model.report_.reveals.values()) <= {"aggregate", "counts"}
    assert model.shortfall_ > 0.01  # all landmarks there are
