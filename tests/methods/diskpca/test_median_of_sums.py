"""`gram="median"`: what a party says moves the answer no further than honest parties differ."""

import numpy as np
import pytest

import eigenmesh as em
from eigenmesh.errors import InputError
from eigenmesh.numerics.robust_sums import median_weights

pytestmark = pytest.mark.filterwarnings("ignore::eigenmesh.errors.EigenmeshWarning")


def honest_parts(seed):
    rng = np.random.default_rng(seed)
    d, n_parties = int(rng.integers(3, 7)), int(rng.integers(5, 9))
    scales = np.linspace(3, 0.3, d)
    return [rng.normal(size=(int(n), d)) * scales for n in rng.integers(60, 140, n_parties)]


def liar(kind, parts, seed, factor):
    rng = np.random.default_rng((seed, 1))
    own = rng.normal(size=parts[0].shape)
    if kind == "large":
        return factor * own
    return np.tile(own[:1] + 6, (factor, 1))  # one row, many times


def estimator(kernel, gram, seed, **options):
    gamma = {"rbf": 0.02, "linear": None, "poly": 0.1}[kernel]
    return em.DisKPCA(
        2,
        kernel=kernel,
        gamma=gamma,
        degree=2,
        landmarks="uniform",
        n_landmarks=40,
        gram=gram,
        random_state=seed,
        **options,
    )


def off(model, truth, n):
    """How far eigenvalues a row are from the honest ones, as a factor."""
    shares = model.eigenvalues_ / n / (truth.eigenvalues_ / truth.model_.n_rows)
    return float(np.max(np.abs(np.log(shares))))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("kernel", "kind", "factor"),
    [("linear", "large", 10**3), ("poly", "large", 30), ("rbf", "many", 2000)],
)
def test_a_plausible_lie_moves_a_median_by_a_bounded_factor(kernel, kind, factor, seed):
    parts = honest_parts(seed)
    truth = estimator(kernel, "sum", seed).fit(em.Partitioned(rows=parts))
    models = {
        gram: estimator(kernel, gram, seed).fit(
            em.Partitioned(rows=[*parts, liar(kind, parts, seed, factor)])
        )
        for gram in ("sum", "median")
    }
    errors = {gram: off(own, truth, own.model_.n_rows) for gram, own in models.items()}
    assert errors["median"] < np.log(2)
    assert errors["sum"] > 2 * errors["median"]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("landmarks", ["uniform", "centroids"])
def test_of_alike_parties_the_median_is_about_the_sum(landmarks, seed):
    parts = honest_parts(seed)
    fits = [
        estimator("rbf", gram, seed).set_params(landmarks=landmarks).fit(em.Partitioned(rows=parts))
        for gram in ("sum", "median")
    ]
    np.testing.assert_allclose(fits[1].eigenvalues_, fits[0].eigenvalues_, rtol=0.2)
    assert fits[0].report_.reveals == fits[1].report_.reveals


def test_a_larger_lie_does_not_move_it_further():
    parts = honest_parts(5)
    fits = [
        estimator("linear", "median", 0).fit(
            em.Partitioned(rows=[*parts, liar("large", parts, 5, factor)])
        )
        for factor in (10**2, 10**4)
    ]
    np.testing.assert_allclose(fits[0].eigenvalues_, fits[1].eigenvalues_, rtol=0.2)


@pytest.mark.parametrize("seed", range(5))
def test_weights_are_those_of_a_sum_where_all_have_the_same_a_row(seed):
    rng = np.random.default_rng(seed)
    sizes = rng.integers(20, 30, 6)
    a_row = rng.normal(size=4)
    np.testing.assert_allclose(
        median_weights([sizes[:, None] * a_row], sizes) @ (sizes[:, None] * a_row),
        sizes.sum() * a_row,
    )


@pytest.mark.parametrize(
    "options",
    [
        {"landmarks": "diskpca"},
        {"landmarks": "drawn"},
        {"accuracy": 0.1},
        {"exact": False},
        {"gram": "mean"},
    ],
)
def test_what_else_could_be_lied_about_is_refused_in_words(options):
    with pytest.raises(InputError, match="gram"):
        estimator("rbf", "median", 0).set_params(**options).fit(
            em.Partitioned(rows=honest_parts(0))
        )


def test_masks_and_two_parties_are_refused_in_words():
    with (
        em.federation(em.Partitioned(rows=honest_parts(0)), secure=True) as fed,
        pytest.raises(InputError, match="masked"),
    ):
        estimator("rbf", "median", 0).fit(fed)
    with pytest.raises(InputError, match="at least 3"):
        estimator("rbf", "median", 0).fit(em.Partitioned(rows=honest_parts(0)[:2]))
