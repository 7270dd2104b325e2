"""What OneShotKPCA claims of its own error, recomputed from the data on every kind of run."""

import warnings

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import eigenmesh as em
from eigenmesh.errors import RankError
from eigenmesh.metrics import sin_theta

ROUNDING = 1e-9  # relative to the norm of the kernel matrix

checked = settings(
    max_examples=60,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


def draw_data(kind, n_samples, widths, seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_samples, sum(widths)))
    if kind == "low rank":
        X = rng.normal(size=(n_samples, 2)) @ rng.normal(size=(2, sum(widths)))
    elif kind == "heavy tails":
        X = rng.standard_t(1.5, size=X.shape)
    elif kind == "whole numbers":  # many equal samples
        X = rng.integers(0, 2, size=X.shape).astype(float)
    elif kind == "one category a sample":  # eigenvalues of high multiplicity
        X = np.eye(sum(widths))[np.arange(n_samples) % sum(widths)]
    elif kind == "constant columns":
        X[:, ::2] = 3.0
    elif kind == "far from the origin":
        X = X + 1e3
    elif kind == "tiny":
        X = X * 1e-5
    elif kind == "huge":
        X = X * 1e5
    elif kind == "falling spectrum":
        X = X * np.logspace(0, -3, sum(widths))
    return np.split(X, np.cumsum(widths)[:-1], axis=1)


KINDS = (
    "normal", "low rank", "heavy tails", "whole numbers", "one category a sample",
    "constant columns", "far from the origin", "tiny", "huge", "falling spectrum",
)  # fmt: skip


@st.composite
def runs(draw, kernels=("linear", "rbf"), least_rank=1):
    """Blocks of columns, a kernel's gamma (None: linear), local_rank, n_components, center."""
    kind = draw(st.sampled_from(KINDS))
    # Small runs for every corner; larger ones, since solvers differ with the size.
    n_samples = draw(st.one_of(st.integers(4, 28), st.sampled_from([60, 120])))
    widths = draw(st.lists(st.integers(1, 6), min_size=1, max_size=5))
    blocks = draw_data(kind, n_samples, widths, draw(st.integers(0, 2**31)))
    gamma = None
    if draw(st.sampled_from(kernels)) == "rbf":
        spread = np.mean(np.var(np.hstack(blocks), axis=0)) * sum(widths) or 1.0
        gamma = 10.0 ** draw(st.floats(-2.5, 1.5)) / spread
    rank = draw(st.integers(least_rank, n_samples if n_samples < 30 else 15))
    return blocks, gamma, rank, draw(st.integers(1, 4)), draw(st.booleans())


def runs_of(fusion):
    """Distance fusion is of RBF, and sends a score and a residual at least."""
    return runs() if fusion == "product" else runs(kernels=("rbf",), least_rank=2)


def fitted(blocks, gamma, local_rank, k, center, fusion="product"):
    kernel = "linear" if gamma is None else "rbf"
    model = em.OneShotKPCA(
        k, kernel=kernel, gamma=gamma, local_rank=local_rank, center=center, fusion=fusion
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", em.EigenmeshWarning)
        return model.fit(em.Partitioned(columns=blocks))


def fitted_or_reject(oracle, blocks, gamma, local_rank, k, center, fusion="product"):
    """The model; a refusal must be right: k components are not there."""
    try:
        return fitted(blocks, gamma, local_rank, k, center, fusion)
    except RankError:
        if fusion == "product":
            values, _ = oracle.top(oracle.sketched(blocks, gamma, local_rank, center))
            norm = np.linalg.norm(oracle.pooled(blocks, gamma, center=False))
            assert k > len(values) or values[k - 1] <= max(1e-8 * values[0], 1e-12 * norm)
        assume(False)


def paper_bound(oracle, blocks, gamma, local_rank):
    """Lemma 2, eqs. (14) and (15), from the parties' own spectra without centring."""
    n, n_parties = len(blocks[0]), len(blocks)
    spectra = oracle.local_spectra(blocks, gamma, center=False)
    ranks = [_sent(B, gamma, local_rank) for B in blocks]
    following = max(
        max(values[r], 0.0) if r < n else 0.0 for values, r in zip(spectra, ranks, strict=True)
    )
    rows = n if gamma is not None else n - min(ranks)
    return n_parties * np.sqrt(rows) * following


def _sent(B, gamma, local_rank):
    return min(local_rank, len(B), B.shape[1] if gamma is None else len(B))


def cut_is_determined(oracle, blocks, gamma, local_rank, center):
    """Whether K̂ is unique: no party's last value sent equals the first one that stays."""
    spectra = oracle.local_spectra(blocks, gamma, center)
    return all(
        local_rank >= len(values)
        or values[local_rank - 1] - values[local_rank] > 1e-6 * values[0]
        or values[local_rank - 1] < 1e-12 * values[0]
        for values in spectra
    )


@checked
@given(run=runs())
def test_lemma_2_holds_of_the_papers_estimator_itself(oracle, run):
    """A check of the oracle: were it broken, the tests below would prove nothing."""
    blocks, gamma, rank, _, center = run
    K = oracle.pooled(blocks, gamma, center)
    error = np.linalg.norm(K - oracle.sketched(blocks, gamma, rank, center))
    norm = np.linalg.norm(oracle.pooled(blocks, gamma, center=False))
    assert error <= paper_bound(oracle, blocks, gamma, rank) + 1e-12 * norm


@checked
@given(run=runs())
def test_lemma_2_the_reported_kernel_error_is_between_the_true_one_and_the_papers(oracle, run):
    blocks, gamma, rank, k, center = run
    model = fitted_or_reject(oracle, *run)
    K = oracle.pooled(blocks, gamma, center)
    error = np.linalg.norm(K - oracle.sketched(blocks, gamma, rank, center))
    slack = ROUNDING * np.linalg.norm(oracle.pooled(blocks, gamma, center=False))
    claimed = model.report_.bounds["kernel_error"]
    assert error <= claimed + slack
    assert claimed <= paper_bound(oracle, blocks, gamma, rank) * (1 + 1e-9) + slack


@checked
@given(run=runs())
def test_lemma_2_eigenvalues_are_off_by_no_more_than_the_reported_kernel_error(oracle, run):
    """Weyl's inequality, with nothing but public attributes and the pooled data."""
    blocks, gamma, _, k, center = run
    model = fitted_or_reject(oracle, *run)
    K = oracle.pooled(blocks, gamma, center)
    values, _ = oracle.top(K, k)
    slack = ROUNDING * np.linalg.norm(oracle.pooled(blocks, gamma, center=False))
    off = values - model.eigenvalues_
    assert np.abs(off).max() <= model.report_.bounds["kernel_error"] + slack
    assert off.min() >= -slack  # K̂ ≤ K: truncation never adds


@checked
@given(run=runs())
def test_theorem_3_with_the_corrected_gap_holds(oracle, run):
    blocks, gamma, _, k, center = run
    model = fitted_or_reject(oracle, *run)
    K = oracle.pooled(blocks, gamma, center)
    values, vectors = oracle.top(K)
    norm = np.linalg.norm(oracle.pooled(blocks, gamma, center=False))
    gap = values[k - 1] - (values[k] if k < len(values) else 0.0)
    assume(gap > 1e-7 * norm)  # else the data do not determine the subspace
    bound = model.report_.bounds["sin_theta"]
    error = sin_theta(model.eigenvectors_, vectors[:, :k])
    assert not np.isnan(bound)
    assert error <= bound + ROUNDING * norm / gap


@checked
@given(run=runs())
def test_theorem_3_the_reported_gap_never_exceeds_the_corrected_one(oracle, run):
    """δ = λ_k(K) − λ_{k+1}(K̂): a larger one would make the bound too small."""
    blocks, gamma, rank, k, center = run
    assume(cut_is_determined(oracle, blocks, gamma, rank, center))
    model = fitted_or_reject(oracle, *run)
    values, _ = oracle.top(oracle.pooled(blocks, gamma, center))
    values_hat, _ = oracle.top(oracle.sketched(blocks, gamma, rank, center))
    following = max(values_hat[k], 0.0) if k < len(values_hat) else 0.0
    slack = ROUNDING * np.linalg.norm(oracle.pooled(blocks, gamma, center=False))
    bounds = model.report_.bounds
    assert bounds["eigengap"] <= values[k - 1] - following + slack
    largest = np.sqrt(k)  # what no angles exceed
    if bounds["eigengap"] > 0:
        theorem = min(bounds["kernel_error"] / bounds["eigengap"], largest)
        assert bounds["sin_theta"] == pytest.approx(theorem, rel=1e-9)
    else:
        assert bounds["sin_theta"] == pytest.approx(largest)


@checked
@given(run=runs_of("distance"))
def test_distance_fusion_claims_no_bound_that_does_not_hold(oracle, run):
    blocks, gamma, _, k, center = run
    model = fitted_or_reject(oracle, *run, fusion="distance")
    K = oracle.pooled(blocks, gamma, center)
    values, vectors = oracle.top(K)
    norm = np.linalg.norm(oracle.pooled(blocks, gamma, center=False))
    bounds = model.report_.bounds
    error = bounds.get("kernel_error", np.inf)
    assert np.abs(values[:k] - model.eigenvalues_).max() <= error + ROUNDING * norm
    gap = values[k - 1] - (values[k] if k < len(values) else 0.0)
    assume(gap > 1e-7 * norm)
    angle = sin_theta(model.eigenvectors_, vectors[:, :k])
    assert angle <= bounds.get("sin_theta", np.inf) + ROUNDING * norm / gap


@pytest.mark.parametrize("fusion", ["product", "distance"])
@checked
@given(data=st.data())
def test_residual_is_never_below_the_true_one_of_the_span(oracle, fusion, data):
    run = blocks, gamma, _, k, center = data.draw(runs_of(fusion))
    model = fitted_or_reject(oracle, *run, fusion=fusion)
    K = oracle.pooled(blocks, gamma, center)
    slack = ROUNDING * np.trace(oracle.pooled(blocks, gamma, center=False))
    assert model.residual_ >= oracle.span_residual(K, model.eigenvectors_) - slack
    assert model.residual_ >= -slack


@pytest.mark.parametrize("fusion", ["product", "distance"])
@checked
@given(data=st.data())
def test_every_model_is_a_proper_eigendecomposition(oracle, fusion, data):
    run = blocks, gamma, _, k, center = data.draw(runs_of(fusion))
    model = fitted_or_reject(oracle, *run, fusion=fusion)
    V, values = model.eigenvectors_, model.eigenvalues_
    assert V.shape == (len(blocks[0]), k)
    np.testing.assert_allclose(V.T @ V, np.eye(k), atol=1e-9)
    assert (values > 0).all()
    assert (np.diff(values) <= 0).all()
    if center:
        norm = np.linalg.norm(oracle.pooled(blocks, gamma, center=False))
        assert (np.abs(V.sum(axis=0)) * values <= 1e-12 * norm).all()  # H V = V, to rounding
    ratio = model.explained_variance_ratio_
    np.testing.assert_allclose(ratio * model.total_variance_, values, rtol=1e-9)
    assert ratio.sum() <= 1 + 1e-9
    if fusion == "product":  # distance fusion adds what its residuals may have hidden
        rest = model.total_variance_ - values.sum()
        assert model.residual_ == pytest.approx(rest, abs=1e-9 * model.total_variance_)


@pytest.mark.filterwarnings("ignore::eigenmesh.errors.EigenmeshWarning")
def test_bounds_vanish_in_the_exact_limit(bundled, oracle):
    X = bundled("breast")[:60]
    for kernel in ("linear", "rbf"):
        model = em.OneShotKPCA(3, kernel=kernel, gamma=0.02, local_rank=60)
        bounds = model.fit(em.Partitioned(columns=oracle.cut(X, 4))).report_.bounds
        assert bounds["kernel_error"] <= 1e-8 * model.total_variance_
        assert bounds["sin_theta"] <= 1e-6
        assert bounds["eigengap"] > 0


@pytest.mark.filterwarnings("ignore::eigenmesh.errors.EigenmeshWarning")
@pytest.mark.parametrize("fusion", ["product", "distance"])
@pytest.mark.parametrize("outlier", [10.0, 100.0, 1e4])
def test_outliers_leave_every_claim_a_number(fusion, outlier):
    X = np.random.default_rng(0).normal(size=(30, 6))
    X[0, 0], X[1, 1] = 1.2 * outlier, outlier
    model = em.OneShotKPCA(1, kernel="rbf", gamma=1.0, local_rank=2, fusion=fusion)
    model.fit(em.split(X, 2, by="columns"))
    assert np.isfinite(model.residual_)
    assert np.isfinite(model.total_variance_)
    assert np.isfinite(model.explained_variance_ratio_).all()
    assert not np.isnan(list(model.report_.bounds.values())).any()
