"""OneShotKPCA against pooled kernel PCA: equal in the exact limit, close as the notes promise."""

import numpy as np
import pytest
from scipy.spatial.distance import pdist
from sklearn.decomposition import KernelPCA

import eigenmesh as em
from eigenmesh.data.synthetic import gene_like, paper_linear
from eigenmesh.metrics import aligned_error, sin_theta

# Sending as many vectors as samples costs more than the rows: the warning has its own test.
pytestmark = pytest.mark.filterwarnings("ignore::eigenmesh.errors.EigenmeshWarning")

CASES = [
    (name, n_parties)
    for name in ("digits", "breast", "raw breast", "wine", "synthetic", "wide")
    for n_parties in (1, 2, 5, 16)
    if not (name == "wine" and n_parties == 16)  # 13 columns
]


def halves(X, n_train):
    """Training samples, and new ones that the fit has not seen."""
    order = np.random.default_rng(0).permutation(len(X))
    return X[order[:n_train]], X[order[n_train : n_train + 25]]


def gamma_for(kernel, name, X):
    if kernel == "linear":
        return None
    return 1e-6 if name.startswith("raw") else 0.5 / X.shape[1]


# 1. The exact limit.


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
@pytest.mark.parametrize(("name", "n_parties"), CASES)
def test_equals_scikit_learn_when_every_local_eigenvector_is_sent(
    bundled, oracle, name, n_parties, kernel
):
    X, X_new = halves(bundled(name), n_train=min(80, len(bundled(name)) - 10))
    gamma = gamma_for(kernel, name, X)
    parts = em.Partitioned(columns=oracle.cut(X, n_parties))
    model = em.OneShotKPCA(3, kernel=kernel, gamma=gamma, local_rank=len(X)).fit(parts)
    reference = KernelPCA(3, kernel=kernel, gamma=gamma, eigen_solver="dense").fit(X)

    np.testing.assert_allclose(model.eigenvalues_, reference.eigenvalues_, rtol=1e-8)
    assert sin_theta(model.eigenvectors_, reference.eigenvectors_) < 1e-8
    assert aligned_error(model.transform(X_new), reference.transform(X_new)) < 1e-8
    new_parts = em.Partitioned(columns=np.split(X_new, np.cumsum(parts.widths)[:-1], axis=1))
    assert aligned_error(model.transform(new_parts), reference.transform(X_new)) < 1e-8


@pytest.mark.parametrize("n_parties", [2, 5, 16])
@pytest.mark.parametrize("name", ["digits", "breast", "synthetic"])
def test_distance_fusion_equals_scikit_learn_when_every_score_is_sent(
    bundled, oracle, name, n_parties
):
    X, X_new = halves(bundled(name), n_train=70)
    gamma = 0.5 / X.shape[1]
    parts = em.Partitioned(columns=oracle.cut(X, n_parties))
    model = em.OneShotKPCA(3, kernel="rbf", gamma=gamma, local_rank=len(X), fusion="distance").fit(
        parts
    )
    reference = KernelPCA(3, kernel="rbf", gamma=gamma, eigen_solver="dense").fit(X)
    np.testing.assert_allclose(model.eigenvalues_, reference.eigenvalues_, rtol=1e-8)
    assert aligned_error(model.transform(X_new), reference.transform(X_new)) < 1e-8


@pytest.mark.parametrize("local_rank", [12, 40])
def test_new_samples_outside_the_span_of_few_wide_ones_equal_scikit_learn(local_rank):
    rng = np.random.default_rng(0)
    X, X_new = rng.normal(size=(12, 40)), rng.normal(size=(20, 40))
    parts = em.Partitioned(columns=[X[:, :25], X[:, 25:30], X[:, 30:]])
    how = {"kernel": "rbf", "gamma": 0.02}
    model = em.OneShotKPCA(2, **how, local_rank=local_rank, fusion="distance").fit(parts)
    reference = KernelPCA(2, **how, eigen_solver="dense").fit(X)
    assert aligned_error(model.transform(X_new), reference.transform(X_new)) < 1e-8
    assert model.transform_report_.floats_up == 20 * (13 + 5 + 10)


@pytest.mark.parametrize("gamma", [None, 0.02])
@pytest.mark.parametrize("n_parties", [1, 2, 5, 16])
def test_without_centring_equals_the_eigenpairs_of_the_raw_kernel_matrix(
    bundled, oracle, n_parties, gamma
):
    X, X_new = halves(bundled("synthetic") + 1.5, n_train=60)
    model = em.OneShotKPCA(
        3, kernel="linear" if gamma is None else "rbf", gamma=gamma, local_rank=60, center=False
    ).fit(em.Partitioned(columns=oracle.cut(X, n_parties)))
    values, scores = oracle.scores(X, X_new, gamma, 3, center=False)
    np.testing.assert_allclose(model.eigenvalues_, values, rtol=1e-8)
    assert aligned_error(model.transform(X_new), scores) < 1e-8


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_a_local_rank_beyond_the_samples_is_the_exact_limit_too(bundled, oracle, kernel):
    X, X_new = halves(bundled("synthetic"), n_train=30)
    parts = em.Partitioned(columns=oracle.cut(X, 4))
    at_limit, beyond = (
        em.OneShotKPCA(3, kernel=kernel, gamma=0.02, local_rank=rank).fit(parts).transform(X_new)
        for rank in (30, 1000)
    )
    np.testing.assert_array_equal(beyond, at_limit)


def test_linear_is_exact_once_every_party_sends_as_many_vectors_as_it_has_columns(bundled, oracle):
    X, X_new = halves(bundled("digits"), n_train=300)
    blocks = np.split(X, 16, axis=1)
    model = em.OneShotKPCA(5, local_rank=4).fit(em.Partitioned(columns=blocks))
    reference = KernelPCA(5, eigen_solver="dense").fit(X)
    assert aligned_error(model.transform(X_new), reference.transform(X_new)) < 1e-8


def test_defaults_are_linear_centred_and_send_twice_the_components_or_five_more(bundled):
    X = bundled("digits")[:200]
    model = em.OneShotKPCA().fit(X)
    assert (model.n_components, model.kernel, model.fusion, model.center) == (
        2, "linear", "product", True,
    )  # fmt: skip
    assert model.report_.floats_up == (2 + 5) * 201
    wide = em.OneShotKPCA(9, kernel="rbf", gamma=0.05).fit(X)
    assert wide.report_.floats_up == (9 + 9) * 201


def test_gamma_none_is_one_over_all_features_and_scale_divides_by_the_pooled_variance(
    bundled, oracle
):
    X, X_new = halves(bundled("breast") * 1.7 + 3.0, n_train=60)
    parts = em.Partitioned(columns=oracle.cut(X, 5))
    for rule, gamma in ((None, 1 / X.shape[1]), ("scale", 1 / (X.shape[1] * X.var()))):
        model = em.OneShotKPCA(3, kernel="rbf", gamma=rule, local_rank=60).fit(parts)
        reference = KernelPCA(3, kernel="rbf", gamma=gamma, eigen_solver="dense").fit(X)
        assert aligned_error(model.transform(X_new), reference.transform(X_new)) < 1e-8, rule


@pytest.mark.parametrize("fusion", ["product", "distance"])
@pytest.mark.parametrize("n_samples", [30, 100, 300])
@pytest.mark.parametrize("gamma", [1.0, 5.0, 10.0, 100.0])
def test_a_kernel_matrix_near_the_identity_still_has_its_components(
    oracle, gamma, n_samples, fusion
):
    """It gets a warning, not the claim that all samples are equal: they could not differ more."""
    X = np.random.default_rng(0).normal(size=(n_samples, 18))
    model = em.OneShotKPCA(2, kernel="rbf", gamma=gamma, local_rank=n_samples, fusion=fusion)
    model.fit(em.Partitioned(columns=oracle.cut(X, 3)))
    values, _ = oracle.top(oracle.pooled([X], gamma), 2)
    np.testing.assert_allclose(model.eigenvalues_, values, rtol=1e-8)


@pytest.mark.parametrize("n_samples", [50, 100, 300])
@pytest.mark.parametrize("gamma", [10.0, 100.0, 1000.0])
def test_a_local_kernel_matrix_near_the_identity_still_has_its_eigenpairs(oracle, gamma, n_samples):
    X = np.random.default_rng(0).normal(size=(n_samples, 6))
    model = em.OneShotKPCA(2, kernel="rbf", gamma=gamma, local_rank=7, center=False).fit(X)
    values, _ = oracle.top(oracle.pooled([X], gamma, center=False), 2)
    np.testing.assert_allclose(model.eigenvalues_, values, rtol=1e-8)


# 2. Scores, signs and invariances.


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
@pytest.mark.parametrize("local_rank", [2, 4, 9])
@pytest.mark.parametrize("center", [True, False])
def test_training_samples_get_the_same_scores_by_fit_transform_and_transform(
    bundled, oracle, kernel, local_rank, center
):
    X = bundled("breast")[:100]
    parts = em.Partitioned(columns=oracle.cut(X, 4))
    model = em.OneShotKPCA(2, kernel=kernel, gamma=0.02, local_rank=local_rank, center=center)
    fitted = model.fit_transform(parts)
    scale = np.abs(fitted).max()
    np.testing.assert_allclose(
        fitted, model.eigenvectors_ * np.sqrt(model.eigenvalues_), atol=1e-10 * scale
    )
    np.testing.assert_allclose(model.transform(parts), fitted, atol=1e-10 * scale)
    np.testing.assert_allclose(model.transform(X), fitted, atol=1e-10 * scale)


def test_distance_fusion_gives_training_samples_one_answer_by_fit_transform_and_transform(
    bundled, oracle
):
    X = bundled("breast")[:100]
    parts = em.Partitioned(columns=oracle.cut(X, 4))
    model = em.OneShotKPCA(2, kernel="rbf", gamma=0.02, local_rank=4, fusion="distance")
    fitted = model.fit_transform(parts)
    np.testing.assert_allclose(model.transform(parts), fitted, atol=1e-10 * np.abs(fitted).max())


@pytest.mark.parametrize("fusion", ["product", "distance"])
def test_scores_of_a_sample_do_not_depend_on_which_others_are_transformed_with_it(
    bundled, oracle, fusion
):
    X, X_new = halves(bundled("breast"), n_train=80)
    model = em.OneShotKPCA(3, kernel="rbf", gamma=0.02, fusion=fusion, local_rank=8).fit(
        em.Partitioned(columns=oracle.cut(X, 4))
    )
    together = model.transform(X_new)
    alone = np.vstack([model.transform(row[None]) for row in X_new])
    np.testing.assert_allclose(alone, together, atol=1e-12 * np.abs(together).max())


@pytest.mark.parametrize(
    ("kernel", "fusion"), [("linear", "product"), ("rbf", "product"), ("rbf", "distance")]
)
def test_centred_answers_do_not_change_when_a_party_shifts_its_columns(
    bundled, oracle, kernel, fusion
):
    """Exact centring: a mean must not use up one of the vectors that a party sends."""
    X, X_new = halves(bundled("breast"), n_train=80)
    shift = np.random.default_rng(1).normal(scale=50.0, size=X.shape[1])
    model = em.OneShotKPCA(3, kernel=kernel, gamma=0.02, local_rank=5, fusion=fusion)
    plain = model.fit(em.Partitioned(columns=oracle.cut(X, 4))).transform(X_new)
    shifted = model.fit(em.Partitioned(columns=oracle.cut(X + shift, 4))).transform(X_new + shift)
    assert aligned_error(shifted, plain) < 1e-8


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_the_order_of_the_parties_does_not_matter(bundled, oracle, kernel):
    X = bundled("breast")[:100]
    blocks = oracle.cut(X, 5)
    model = em.OneShotKPCA(3, kernel=kernel, gamma=0.02, local_rank=6)
    first = model.fit(em.Partitioned(columns=blocks))
    values, vectors = first.eigenvalues_, first.eigenvectors_
    second = model.fit(em.Partitioned(columns=blocks[::-1]))
    np.testing.assert_allclose(second.eigenvalues_, values, rtol=1e-10)
    np.testing.assert_allclose(second.eigenvectors_, vectors, atol=1e-9)  # signs included


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_linear_scales_with_the_data_and_rbf_with_gamma(bundled, oracle, kernel):
    X = bundled("breast")[:100]
    for scale in (1e-6, 1e6):
        fits = [
            em.OneShotKPCA(3, kernel=kernel, gamma=0.02 / s**2, local_rank=6).fit(
                em.Partitioned(columns=oracle.cut(X * s, 4))
            )
            for s in (1.0, scale)
        ]
        growth = scale**2 if kernel == "linear" else 1.0
        np.testing.assert_allclose(fits[1].eigenvalues_, fits[0].eigenvalues_ * growth, rtol=1e-8)
        np.testing.assert_allclose(fits[1].eigenvectors_, fits[0].eigenvectors_, atol=1e-8)


def test_variances_are_those_of_the_pooled_kernel_in_the_exact_limit(bundled, oracle):
    X = bundled("breast")[:60]
    for gamma in (None, 0.02):
        model = em.OneShotKPCA(
            3, kernel="linear" if gamma is None else "rbf", gamma=gamma, local_rank=60
        ).fit(em.Partitioned(columns=oracle.cut(X, 4)))
        K = oracle.pooled([X], gamma)
        values, _ = oracle.top(K, 3)
        assert model.total_variance_ == pytest.approx(np.trace(K), rel=1e-10)
        assert model.residual_ == pytest.approx(np.trace(K) - values.sum(), rel=1e-8)
        np.testing.assert_allclose(model.explained_variance_ratio_, values / np.trace(K), rtol=1e-8)


@pytest.mark.parametrize("gamma", [None, 0.02])
@pytest.mark.parametrize("local_rank", [3, 5, 8])
def test_equals_the_papers_estimator_at_every_local_rank(bundled, oracle, gamma, local_rank):
    """Not only the limit: what is sent is K̂ of eqs. (5) and (8), no more and no less."""
    blocks = oracle.cut(bundled("breast")[:100], 4)
    model = em.OneShotKPCA(
        2, kernel="linear" if gamma is None else "rbf", gamma=gamma, local_rank=local_rank
    ).fit(em.Partitioned(columns=blocks))
    values, vectors = oracle.top(oracle.sketched(blocks, gamma, local_rank), 2)
    np.testing.assert_allclose(model.eigenvalues_, values, rtol=1e-9)
    assert sin_theta(model.eigenvectors_, vectors) < 1e-8


# 3. The notes' figures.


def paper_errors(n_parties, local_rank, center, seeds=5):
    errors = []
    for seed in range(seeds):
        X = paper_linear(random_state=seed)
        K = X @ X.T
        if center:
            K = K - K.mean(axis=0) - K.mean(axis=1)[:, None] + K.mean()
        exact = np.linalg.eigh(K)[1][:, -2:]
        model = em.OneShotKPCA(2, local_rank=local_rank, center=center)
        model.fit(em.split(X, n_parties, by="columns"))
        errors.append(sin_theta(model.eigenvectors_, exact))
    return np.array(errors)


@pytest.mark.parametrize("center", [True, False])
def test_papers_simulation_one_vector_past_the_gap_buys_five_times_the_accuracy(center):
    two, three = paper_errors(10, 2, center), paper_errors(10, 3, center)
    assert three.max() <= 1e-3
    assert (three * 5 <= two).all()


TABLE = {
    2: dict(zip((2, 5, 10, 20, 100), (1e-3, 3e-3, 4e-3, 1e-2, 1.5e-2), strict=True)),
    3: dict(zip((2, 5, 10, 20, 100), (1.5e-4, 3e-4, 4e-4, 7e-4, 2e-3), strict=True)),
}


@pytest.mark.parametrize("n_parties", [2, 5, 10, 20, 100])
@pytest.mark.parametrize("local_rank", [2, 3])
def test_papers_simulation_is_within_a_factor_two_of_the_notes_table(local_rank, n_parties):
    error = paper_errors(n_parties, local_rank, center=True).mean()
    assert error <= 2 * TABLE[local_rank][n_parties]


@pytest.fixture(scope="module")
def notes_digits(bundled, oracle):
    """The set-up of the notes: 600 images, σ² = 64/3, 16 parties, and the exact subspace."""
    X = bundled("digits")[:600]
    X = X - X.mean(axis=0)
    X = X / X.std()
    return em.split(X, 16, by="columns"), oracle.top(oracle.pooled([X], 3 / 128), 5)[1]


@pytest.mark.parametrize(("local_rank", "error"), [(10, 2e-3), (20, 1e-4), (50, 1e-6)], ids=str)
def test_digits_rbf_meets_the_notes_figures(notes_digits, local_rank, error):
    parts, exact = notes_digits
    model = em.OneShotKPCA(5, kernel="rbf", gamma=3 / 128, local_rank=local_rank).fit(parts)
    assert sin_theta(model.eigenvectors_, exact) <= error


@pytest.mark.parametrize(
    ("kernel", "fusion"), [("linear", "product"), ("rbf", "product"), ("rbf", "distance")]
)
def test_error_falls_as_local_rank_grows(bundled, oracle, kernel, fusion):
    X = bundled("breast")[:200]
    gamma = None if kernel == "linear" else 0.02
    exact = oracle.top(oracle.pooled([X], gamma), 3)[1]
    parts = em.split(X, 3, by="columns")
    errors = [
        sin_theta(
            em.OneShotKPCA(3, kernel=kernel, gamma=gamma, local_rank=rank, fusion=fusion)
            .fit(parts)
            .eigenvectors_,
            exact,
        )
        for rank in (3, 5, 8, 11)
    ]
    assert all(later < earlier for earlier, later in zip(errors, errors[1:], strict=False)), errors
    assert errors[-1] < errors[0] / 10


def fusion_errors(X, oracle, n_parties, local_rank, n_components, gamma):
    """Error and floats sent of product and of distance fusion."""
    exact = oracle.top(oracle.pooled([X], gamma), n_components)[1]
    parts = em.split(X, n_parties, by="columns")
    fits = [
        em.OneShotKPCA(
            n_components, kernel="rbf", gamma=gamma, local_rank=local_rank, fusion=fusion
        ).fit(parts)
        for fusion in ("product", "distance")
    ]
    return [(sin_theta(fit.eigenvectors_, exact), fit.report_.floats_up) for fit in fits]


def test_distance_fusion_beats_product_on_breast_cancer_at_no_more_numbers_sent(bundled, oracle):
    (product, sent), (distance, sent_distance) = fusion_errors(
        bundled("breast"), oracle, n_parties=3, local_rank=10, n_components=3, gamma=1 / 30
    )
    assert sent_distance <= sent
    assert distance <= 2e-3
    assert distance * 10 <= product


def test_distance_fusion_beats_product_on_gene_like_data(oracle):
    X, _ = gene_like(random_state=0)
    gamma = 2.0 / np.median(pdist(X, "sqeuclidean"))
    (product, sent), (distance, sent_distance) = fusion_errors(
        X, oracle, n_parties=5, local_rank=10, n_components=10, gamma=gamma
    )
    assert sent_distance <= sent
    assert distance <= 0.051
    assert distance * 5 <= product
