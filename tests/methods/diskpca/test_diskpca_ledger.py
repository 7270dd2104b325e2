"""DisKPCA's traffic: the docs' formula to the float, foretold, and free of the rows' number."""

from itertools import product

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_digits

import eigenmesh as em
from eigenmesh.numerics.embeddings import embedded_width

DIGITS = load_digits().data / 16
KERNELS = {
    "linear": {"kernel": "linear"},
    "rbf": {"kernel": "rbf", "gamma": 0.05},
    "poly": {"kernel": "poly", "gamma": 1.0, "degree": 2, "coef0": 0.0},
    "laplacian": {"kernel": "laplacian", "gamma": 0.05},
    "cosine": {"kernel": "cosine"},
    "arc-cosine": {"kernel": "arc-cosine", "degree": 1},
}
CHOICES = ["diskpca", "leverage", "uniform", "rpcholesky", "centroids"]
D = 64


def formula(kernel, choice, s, q, k, exact=True, center=True, c=4):
    """Floats up and down, as docs/methods/diskpca.md has them; c is `sketch_size`."""
    r = D if kernel in ("linear", "cosine") else 1536
    t = embedded_width(kernel, D, 2 * k)
    leverage = choice in ("diskpca", "leverage")
    if exact:
        up = s * (leverage * t * (t + 1) // 2 + q * (q + 1) // 2 + q)
        down = 0
    else:
        up = s * (leverage * c * t * t + c * q * q + c * q + q + k * (k + 1) // 2 + k)
        down = s * q * k
    return up + q * D + s * center * r, down + s * leverage * t * t + (s - 1) * q * D


# The formula is a sum of terms: each kernel and each choice meets every pair of the two flags.
FLAGS = list(product([True, False], repeat=2))
CASES = [
    (name, choice, *FLAGS[(i + j) % 4])
    for i, name in enumerate(KERNELS)
    for j, choice in enumerate(CHOICES)
]


@pytest.mark.parametrize(("name", "choice", "exact", "center"), CASES)
@pytest.mark.filterwarnings("ignore:eigenvalues 5 and 6 differ")  # by draw, in a sketch this small
def test_floats_equal_the_formula_and_do_not_grow_with_the_rows(name, choice, exact, center):
    k, s, kernel = 5, 6, KERNELS[name]
    for n in (300, 600) if center and name == "rbf" else (300,):
        parts = em.split(DIGITS[:n], s, law="power", exponent=0.5, random_state=0)
        model = em.DisKPCA(
            k,
            **kernel,
            n_landmarks=30,
            landmarks=choice,
            exact=exact,
            center=center,
            random_state=0,
        ).fit(parts)
        q = model.landmarks_.shape[0]
        report = model.report_
        assert q == 30
        sent = (report.floats_up, report.floats_down)
        assert sent == formula(kernel["kernel"], choice, s, q, k, exact, center)  # n is not in it


@pytest.mark.parametrize(
    ("q", "exact", "center"),
    [(30, True, True), (30, False, False), (10_000, True, False), (10_000, False, True)],
)
@pytest.mark.parametrize("choice", CHOICES)
def test_a_plan_foretells_the_report(choice, q, exact, center):
    parts = em.split(DIGITS[:100], 5, random_state=0)
    model = em.DisKPCA(
        3,
        **KERNELS["rbf"],
        n_landmarks=q,
        landmarks=choice,
        exact=exact,
        center=center,
        random_state=0,
    )
    require_foretold(model, parts)


@pytest.mark.parametrize("gamma", [0.05, None, "scale", "mean-distance", "median"])
@pytest.mark.parametrize("kernel", ["rbf", "laplacian", "poly", "cosine"])
def test_a_plan_foretells_what_gamma_takes(kernel, gamma):
    parts = em.split(DIGITS[:300], 5, random_state=0)
    model = em.DisKPCA(
        3, kernel=kernel, gamma=gamma, n_landmarks=20, landmarks="uniform", random_state=0
    )
    require_foretold(model, parts)


def require_foretold(model, parts):
    plan, report = em.plan(model, parts), model.fit(parts).report_
    assert plan.rounds == report.rounds
    assert plan.floats_up == report.floats_up
    assert plan.floats_down == report.floats_down
    kinds = {name: set(own) for name, own in report.reveals.items()}
    assert {name: set(own) for name, own in plan.reveals.items()} == kinds


@pytest.mark.parametrize("exact", [True, False])
def test_the_mean_outside_the_span_is_told_as_moments_and_only_where_it_is_needed(exact):
    parts = em.split(DIGITS[:100], 5, random_state=0)
    options = {**KERNELS["rbf"], "landmarks": "uniform", "exact": exact, "random_state": 0}
    for q, center, floats in [(30, True, 1536), (30, False, 0), (100, True, 0)]:
        model = em.DisKPCA(3, **options, n_landmarks=q, center=center)
        assert {own["moments"] for own in em.plan(model, parts).reveals.values()} == {floats}
        model.fit(parts)
        assert {own["moments"] for own in model.report_.reveals.values()} == {floats}


@pytest.mark.parametrize("q", [40, 70, 500])
def test_centroids_are_as_many_as_the_parties_have_clusters_of_five_rows(q):
    parts = em.split(DIGITS[:400], 20, law="power", random_state=0)
    model = em.DisKPCA(3, **KERNELS["rbf"], n_landmarks=q, landmarks="centroids", random_state=0)
    require_foretold(model, parts)
    most = sum(rows // 5 for rows, _ in parts.shapes)
    assert model.landmarks_.shape[0] == min(q, most)


def test_parties_of_a_few_rows_each_have_no_centroids():
    parts = em.split(DIGITS[:20], 6, random_state=0)
    with pytest.raises(em.EigenmeshError, match="every party has fewer than 5 rows.*uniform"):
        em.DisKPCA(2, n_landmarks=10, landmarks="centroids").fit(parts)


def test_as_many_landmarks_as_asked_for_though_parties_are_tiny():
    """Twenty parties by a power law have parties of one row, which may be drawn once only."""
    for seed in range(3):
        parts = em.split(DIGITS[:100], 12, law="power", random_state=seed)
        for choice in ("diskpca", "rpcholesky"):
            model = em.DisKPCA(
                3, **KERNELS["rbf"], n_landmarks=70, landmarks=choice, random_state=seed
            ).fit(parts)
            assert model.landmarks_.shape[0] == 70


def test_the_rule_of_a_laplacian_kernel_does_not_depend_on_the_unit_of_measure():
    parts = [em.split(factor * DIGITS[:200], 3, random_state=0) for factor in (1.0, 50.0)]
    fits = [
        em.DisKPCA(3, kernel="laplacian", gamma="mean-distance", n_landmarks=30, random_state=0)
        .fit(p)
        .eigenvalues_
        for p in parts
    ]
    np.testing.assert_allclose(fits[0], fits[1], rtol=1e-9)


def wide_sparse_rows(n=400, d=20_000, words=15, seed=0):
    """Counts of words: columns by a power law, a few per row."""
    rng = np.random.default_rng(seed)
    columns = np.minimum((d * rng.random((n, words)) ** 4).astype(int), d - 1)
    rows = np.repeat(np.arange(n), words)
    return sp.csr_array((np.ones(n * words), (rows, columns.ravel())), shape=(n, d))


@pytest.mark.parametrize("choice", CHOICES)
def test_sparse_rows_and_their_centroids_travel_sparse(choice):
    X = wide_sparse_rows()
    X.sum_duplicates()
    parts = em.split(X, 4, random_state=0)
    model = em.DisKPCA(3, **KERNELS["cosine"], n_landmarks=20, landmarks=choice, random_state=0)
    model.fit(parts)
    q, Y = model.landmarks_.shape[0], model.landmarks_
    assert sp.issparse(Y)
    floats = model.report_.by_step
    drawn = floats.get("RowHolder.draw_rows", 0) + floats.get("RowHolder.local_centroids", 0)
    assert drawn == Y.nnz
    assert drawn < 0.05 * q * X.shape[1]
