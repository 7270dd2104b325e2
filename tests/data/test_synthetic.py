from __future__ import annotations

import numpy as np
import pytest

from eigenmesh.data.synthetic import density_columns, gene_like, paper_linear
from eigenmesh.errors import InputError


def squares(X):
    return np.linalg.svd(X, compute_uv=False) ** 2


def test_squared_singular_values_are_the_spectrum_of_the_paper():
    X = paper_linear(random_state=0)
    assert X.shape == (200, 1000)
    spectrum = np.array([5000.0, 2500.0, 1125.0] + [50.0] * 47 + [0.0] * 150)
    np.testing.assert_allclose(squares(X), spectrum, rtol=1e-12, atol=1e-9)


def test_spectrum_of_figure_four():
    X = paper_linear(n_samples=100, spectrum=(5000.0, 2500.0), random_state=0)
    np.testing.assert_allclose(squares(X)[:3], [5000.0, 2500.0, 50.0], rtol=1e-12)


def test_the_one_shot_anchors_of_paper_000_are_met_on_these_data():
    # Two parties' best rank-2 Gram matrices, summed, give the leading two eigenvectors to about
    # 1e-3: the data carry the error that the paper's figure 2 reports.
    errors = []
    for seed in range(5):
        X = paper_linear(random_state=seed)
        truth = np.linalg.eigh(X @ X.T)[1][:, -2:]
        total = np.zeros((200, 200))
        for block in np.hsplit(X, 2):
            values, vectors = np.linalg.eigh(block @ block.T)
            total += (vectors[:, -2:] * values[-2:]) @ vectors[:, -2:].T
        V = np.linalg.eigh(total)[1][:, -2:]
        errors.append(np.linalg.norm(V - truth @ (truth.T @ V)))
    assert 1e-4 < np.mean(errors) < 1e-2


def test_many_features_need_no_square_matrix():
    assert (
        paper_linear(n_features=100_000, n_samples=20, rank=5, random_state=0).shape[1] == 100_000
    )


def test_the_same_seed_gives_the_same_data():
    np.testing.assert_array_equal(paper_linear(random_state=1), paper_linear(random_state=1))
    np.testing.assert_array_equal(gene_like(random_state=1)[0], gene_like(random_state=1)[0])


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"rank": 201}, "expected from 3 .* to 200"),
        ({"rank": 2}, "rank is 2"),
        ({"floor": -1.0}, "negative"),
    ],
)
def test_impossible_spectra_are_refused(arguments, match):
    with pytest.raises(InputError, match=match):
        paper_linear(**arguments)


def test_gene_like_data_have_few_strong_directions_and_classes():
    X, labels = gene_like(random_state=0)
    assert X.shape == (120, 5000)
    assert np.bincount(labels).tolist() == [40, 40, 40]
    values = squares(X - X.mean(axis=0))
    assert values[5] > 3 * values[6]


def test_gene_like_refuses_sizes_below_one():
    with pytest.raises(InputError, match="n_factors is 0"):
        gene_like(n_factors=0)


def test_columns_are_densities_between_their_height_and_that_at_three_deviations():
    for mixture in (False, True):
        X = density_columns(400, 30, mixture=mixture, random_state=3)
        heights = X.max(axis=0)
        assert (X.min(axis=0) >= heights * np.exp(-4.5) * (1 - 1e-9)).all()
        assert (heights <= 1 / np.sqrt(2 * np.pi)).all()
        # Of uniform points a third lie within a deviation of the mean, where Gaussians have 68 %.
        near = (X / heights >= np.exp(-0.5)).mean(axis=0)
        assert abs(near.mean() - 1 / 3) < 0.02
        assert (np.ptp(heights) > 0.01) == mixture
