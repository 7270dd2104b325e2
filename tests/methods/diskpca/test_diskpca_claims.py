"""The centred residual that is claimed, against the n×n kernel matrix: to 1e-3 of its trace."""

from itertools import cycle

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.metrics.pairwise import pairwise_kernels

import eigenmesh as em
from eigenmesh.numerics.kernels import Kernel
from eigenmesh.numerics.landmark_sums import ShiftedKernel, Span
from eigenmesh.numerics.mean_outside import MARGIN, OutsideView, RowSampler

DIGITS = load_digits()
X = DIGITS.data / 16
KERNELS = {
    "rbf": {"kernel": "rbf", "gamma": 0.05},
    "flat rbf": {"kernel": "rbf", "gamma": 5e-5},
    "peaked rbf": {"kernel": "rbf", "gamma": 0.5},
    "laplacian": {"kernel": "laplacian", "gamma": 0.05},
    "poly": {"kernel": "poly", "gamma": 1.0, "degree": 2, "coef0": 0.0},
    "poly with offset": {"kernel": "poly", "gamma": 0.1, "degree": 3, "coef0": 1.0},
    "linear": {"kernel": "linear"},
    "cosine": {"kernel": "cosine"},
    "arc-cosine": {"kernel": "arc-cosine", "degree": 1},
}
RBF = KERNELS["rbf"]
CHOICES = ["uniform", "centroids", "diskpca"]


def cross(kernel, A, B):
    if kernel["kernel"] == "arc-cosine":  # checked against Cho and Saul's formula in test_kernels
        return np.asarray(Kernel(**{"name": "arc-cosine", "degree": 1}).matrix(A, B))
    options = {key: value for key, value in kernel.items() if key != "kernel"}
    return pairwise_kernels(A, B, metric=kernel["kernel"], **options)


class Truth:
    """The centred trace, and what a model's components leave of it."""

    def __init__(self, kernel, rows):
        self.kernel, self.rows = kernel, np.asarray(rows, dtype=np.float64)
        K = cross(kernel, self.rows, self.rows)
        self.trace = float(np.trace(K))
        self.total = self.trace - K.sum() / len(K)

    def residual(self, model):
        Z = np.asarray(model.transform(self.rows))
        return self.total - np.square(Z - Z.mean(axis=0)).sum()

    def require(self, model, within=1e-3):
        """The claim is near, and above its estimate as it says; gives the estimate's error."""
        off = model.residual_ - self.residual(model)
        rounding = 1e-7 * self.trace
        assert abs(off) <= within * self.trace
        error = off - MARGIN * model.residual_error_
        assert abs(error) <= 4 * model.residual_error_ + rounding
        assert model.total_variance_ - model.eigenvalues_.sum() == pytest.approx(model.residual_)
        return error


def power_law(rows, seed, parties=20):
    return em.split(rows, parties, law="power", exponent=2.0, random_state=seed)


@pytest.mark.parametrize(
    ("name", "choice"),
    [*zip(KERNELS, cycle(CHOICES)), ("rbf", "centroids"), ("rbf", "diskpca")],
)
def test_the_claim_is_right_over_parties_for_every_kernel(name, choice):
    model = em.DisKPCA(5, **KERNELS[name], n_landmarks=50, landmarks=choice, random_state=0)
    Truth(KERNELS[name], X[:600]).require(model.fit(power_law(X[:600], 0)))


def test_the_estimate_is_right_on_average_and_what_the_span_tells_is_not():
    truth = Truth(RBF, X[:600])
    errors, gaps = [], []
    for seed in range(20):
        model = em.DisKPCA(5, **RBF, n_landmarks=20, landmarks="uniform", random_state=seed)
        errors.append(truth.require(model.fit(em.split(X[:600], 8, random_state=seed))))
        mean = cross(RBF, X[:600], np.asarray(model.landmarks_)).mean(axis=0)
        K = cross(RBF, *[np.asarray(model.landmarks_)] * 2)
        known = 600 * mean @ np.linalg.pinv(K, rcond=1e-10, hermitian=True) @ mean
        gaps.append(truth.trace - known - truth.total)
    assert min(gaps) > 2e-3 * truth.trace
    assert abs(np.mean(errors)) <= 4 * np.std(errors) / np.sqrt(20)
    assert np.std(errors) < 0.1 * np.mean(gaps)


def hard(what):
    small = X[:400]
    return {
        "duplicated rows": np.vstack([small[:200], small[:200]]),
        "far from the origin": small + 1000.0,
        "float32": small.astype(np.float32),
        "float32, far": (small + 1000.0).astype(np.float32),
        "one row again and again": np.vstack([small[:100], np.repeat(small[:1], 300, axis=0)]),
    }[what]


HARD = (
    "duplicated rows",
    "far from the origin",
    "float32",
    "float32, far",
    "one row again and again",
)


@pytest.mark.parametrize(  # every kind of rows meets both kernels and all choices
    ("what", "name", "choice"),
    [
        (what, ("rbf", "flat rbf")[(i + j) % 2], choice)
        for i, what in enumerate(HARD)
        for j, choice in enumerate(CHOICES)
    ],
)
@pytest.mark.filterwarnings("ignore::eigenmesh.errors.EigenmeshWarning")
def test_the_claim_is_right_on_hard_rows(what, name, choice):
    rows = hard(what)
    shifted = rows.astype(np.float64) - (1000.0 if "far" in what else 0.0)
    truth = Truth(KERNELS[name], shifted)
    model = em.DisKPCA(3, **KERNELS[name], n_landmarks=50, landmarks=choice, random_state=0)
    model.fit(power_law(rows, 0, 6))
    truth.rows = rows
    truth.require(model)


@pytest.mark.filterwarnings("ignore:columns of one name seem")  # digits of one kind differ so
def test_the_claim_is_right_for_parties_of_one_class_each_and_for_one_of_a_single_row():
    order = np.argsort(DIGITS.target[:800], kind="stable")
    rows = X[:800][order]
    parts = em.Partitioned(rows=[rows[:1], *np.array_split(rows[1:], 10)])
    truth = Truth(RBF, rows)
    for seed in range(3):
        for choice in ("uniform", "centroids"):
            model = em.DisKPCA(5, **RBF, n_landmarks=50, landmarks=choice, random_state=seed)
            truth.require(model.fit(parts))


LONG = np.random.default_rng(0).normal(size=(6000, 4)) @ np.random.default_rng(1).normal(
    size=(4, 9)
)


@pytest.mark.parametrize("name", ["rbf", "linear", "poly"])
def test_a_sample_of_the_rows_is_enough(name):
    """Sorted rows, of which a party looks at a sixth."""
    rows = LONG[np.argsort(LONG[:, 0])]
    kernel = {**KERNELS[name], "gamma": 0.05} if name != "linear" else KERNELS[name]
    truth = Truth(kernel, rows)
    errors = []
    for seed in range(6):
        model = em.DisKPCA(
            3,
            **kernel,
            n_landmarks=3 if name == "linear" else 20,
            landmarks="uniform",
            random_state=seed,
        ).fit(rows)
        errors.append(truth.require(model))
    assert np.std(errors) > 0


def test_blocks_of_unequal_size_count_by_their_rows():
    rows = LONG[np.argsort(LONG[:, 0])]
    kernel = {"kernel": "rbf", "gamma": 0.05}
    truth = Truth(kernel, rows)
    edges = [0, 2500, 2501, 4000, 4003, 5900, 6000]
    blocks = [rows[a:b] for a, b in zip(edges, edges[1:], strict=False)]
    Y = LONG[::300]
    kpca = em.KernelPCA(3, **kernel, landmarks=Y, accuracy=1.0).fit(iter(blocks))
    truth.require(kpca)
    again = em.KernelPCA(3, **kernel, landmarks=Y, accuracy=1.0)
    for block in blocks:
        again.partial_fit(block)
    assert again.residual_ == pytest.approx(kpca.residual_, rel=1e-12)
    assert "above its estimate" in again.report_.notes[-1]


def test_a_stream_taken_up_from_a_file_goes_on_as_before(tmp_path):
    kernel, Y = {"kernel": "rbf", "gamma": 0.05}, LONG[::300]
    straight = em.KernelPCA(3, **kernel, landmarks=Y, accuracy=1.0).partial_fit(LONG[:2000])
    straight.save(tmp_path / "stream.em")
    resumed = em.load(tmp_path / "stream.em").partial_fit(LONG[2000:])
    straight.partial_fit(LONG[2000:])
    assert resumed.residual_ == pytest.approx(straight.residual_, rel=1e-12)
    assert resumed.residual_error_ == pytest.approx(straight.residual_error_, rel=1e-9)


@pytest.mark.parametrize("source", ["array", "parties", "blocks"])
def test_the_front_door_claims_the_same(source):
    given = {
        "array": X,
        "parties": power_law(X, 0, 5),
        "blocks": iter([X[:700], X[700:720], X[720:]]),
    }[source]
    truth = Truth(RBF, X)
    kpca = em.KernelPCA(5, **RBF, n_landmarks=60, accuracy=1.0, random_state=0).fit(given)
    truth.require(kpca)
    notes = " ".join(kpca.report_.notes)
    if source == "parties":
        assert f"1.5 standard errors of {kpca.residual_error_:.2g} above its estimate" in notes
    else:  # few enough rows in one place to look at all of them
        assert kpca.residual_error_ == 0.0
        assert "exact for these components" in notes


@pytest.mark.parametrize("exact", [True, False])
def test_what_is_uncentred_or_has_every_row_as_a_landmark_is_exact(exact):
    parts = em.split(X[:120], 3, random_state=0)
    for options in ({"center": False, "n_landmarks": 40}, {"n_landmarks": 120}):
        model = em.DisKPCA(3, **RBF, **options, exact=exact).fit(parts)
        assert model.residual_error_ == 0.0
        assert "exact for these components" in " ".join(model.report_.notes)
    truth = Truth(RBF, X[:120])
    assert model.residual_ == pytest.approx(truth.residual(model), rel=1e-9)


def test_the_papers_form_claims_as_well():
    truth = Truth(RBF, X[:600])
    for seed in range(3):
        model = em.DisKPCA(4, **RBF, n_landmarks=50, exact=False, random_state=seed)
        truth.require(model.fit(power_law(X[:600], seed, 6)))


def test_the_claim_is_an_upper_bound_nearly_always():
    truth, above = Truth(RBF, X[:600]), []
    for seed in range(40):
        model = em.DisKPCA(5, **RBF, n_landmarks=30, landmarks="uniform", random_state=seed)
        model.fit(em.split(X[:600], 6, random_state=seed))
        above.append(model.residual_ >= truth.residual(model))
    assert np.mean(above) >= 0.9


def test_few_rows_are_looked_at_where_they_are_enough_and_more_where_not(monkeypatch):
    seen, draw = [], RowSampler.draw

    def watched(self, most, rng):
        seen.append(most)
        return draw(self, most, rng)

    monkeypatch.setattr(RowSampler, "draw", watched)
    for Y in (LONG[::15], LONG[:4]):
        view = OutsideView.of(Span.of(Kernel("rbf", gamma=0.05), Y), None)
        view.sums_alone(LONG, np.random.default_rng(0), 4096)
    assert seen == [256, 256, 512, 1024, 2048, 4096]


def test_float32_rows_are_worked_in_float32(monkeypatch):
    dtypes, filler = set(), ShiftedKernel.filler

    def watched(self, A):
        dtypes.add(self.dtype)
        return filler(self, A)

    monkeypatch.setattr(ShiftedKernel, "filler", watched)
    em.DisKPCA(3, **RBF, n_landmarks=20).fit(X.astype(np.float32))
    assert dtypes == {np.dtype(np.float32)}
