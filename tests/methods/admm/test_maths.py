"""The steps of consensus kernel PCA, held against explicit features of the linear kernel."""

from __future__ import annotations

import numpy as np
import pytest

from eigenmesh.errors import InputError, RankError
from eigenmesh.methods.admm.maths import (
    PAPER_PENALTIES,
    CentringOrigin,
    Neighbourhood,
    NeighbourhoodSpectrum,
    alignment,
    cosines,
    orthonormal,
    penalties_at,
)
from eigenmesh.numerics.kernels import Kernel


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture
def near(rng):
    """Three nodes of rows in 12 dimensions; node 4 is at home."""
    rows = {node: rng.normal(size=(5 + node, 12)) for node in (1, 4, 2)}
    origin = CentringOrigin(Kernel("linear"), np.ones((1, 12)) * 0.3, np.ones(1))
    return Neighbourhood(origin, rows, own=4), {n: X - 0.3 for n, X in rows.items()}


def projector(X):
    return np.linalg.pinv(X) @ X


def test_origin_is_the_nearest_point_to_the_mean_in_the_span(rng):
    X, Y, kernel = rng.normal(size=(50, 3)), rng.normal(size=(2, 3)), Kernel("linear")
    origin = CentringOrigin.nearest_to_mean(kernel, Y, (X @ Y.T).mean(axis=0))
    np.testing.assert_allclose(origin.weights @ Y, X.mean(axis=0) @ projector(Y), atol=1e-12)
    seen = X - origin.weights @ Y
    np.testing.assert_allclose(origin.gram(X), seen @ seen.T, atol=1e-12)


def test_a_singular_gram_matrix_is_inverted_on_its_range_only(rng):
    X = rng.normal(size=(8, 3))
    spectrum = NeighbourhoodSpectrum.of(X @ X.T)
    assert len(spectrum.values) == 3
    np.testing.assert_allclose(spectrum.solve(X), np.linalg.pinv(X @ X.T) @ X, atol=1e-10)
    with pytest.raises(RankError, match="4 components.*determine 3"):
        spectrum.start(4)


def test_update_solves_equation_12_and_refuses_a_penalty_that_blows_up(rng):
    X = rng.normal(size=(6, 9))
    K, right = X @ X.T, rng.normal(size=(6, 2))
    rho = 3 * np.linalg.eigvalsh(K)[-1]
    alpha = NeighbourhoodSpectrum.of(K).update(rho, right)
    np.testing.assert_allclose((rho * K - 2 * K @ K) @ alpha, right, atol=1e-9)
    with pytest.raises(InputError, match="penalty='auto'"):
        NeighbourhoodSpectrum.of(K).update(rho / 2, right)


def test_corrected_consensus_solves_the_problem_that_the_paper_relaxes(near, rng):
    """min Σρ‖w − P z‖²/2 − ⟨η, P z⟩ with ‖z‖ = 1, by many corrections and by brute force."""
    here, seen = near
    penalties = {1: 2.0, 2: 3.0, 4: 5.0}
    w = {n: projector(X) @ rng.normal(size=12) for n, X in seen.items()}
    eta = {n: projector(X) @ rng.normal(size=12) for n, X in seen.items()}
    parts = {
        n: np.linalg.pinv(X.T) @ (eta[n] + penalties[n] * w[n])[:, None] for n, X in seen.items()
    }
    found = here.consensus(parts, penalties, here.local_start(1), corrections=3000)
    z = np.vstack([seen[n] for n in here.members]).T @ found[:, 0]

    def value(z):
        z = z / np.linalg.norm(z)
        terms = [
            penalties[n] * np.sum((w[n] - projector(X) @ z) ** 2) / 2 - eta[n] @ projector(X) @ z
            for n, X in seen.items()
        ]
        return sum(terms)

    assert np.linalg.norm(z) == pytest.approx(1.0)
    assert value(z) <= min(value(z + 0.05 * rng.normal(size=12)) for _ in range(300)) + 1e-9
    relaxed = here.consensus(parts, penalties, here.local_start(1), corrections=0)
    assert value(z) < value(np.vstack([seen[n] for n in here.members]).T @ relaxed[:, 0])


def test_pooled_components_are_a_fixed_point_of_the_corrected_step(near):
    """With the multipliers in balance, 2K²α shared out evenly, nothing moves."""
    here, _ = near
    z, _ = here.pooled_start(2)
    rho, parts = 50.0, {}
    for node, place in here.places.items():
        alpha = here.spectra[node].solve(here.gram[place] @ z)
        K = here.gram[place, place]
        parts[node] = here.spectra[node].solve(2 * K @ K @ alpha / 3) + rho * alpha
    after = here.consensus(parts, dict.fromkeys(parts, rho), z, corrections=3)
    np.testing.assert_allclose(after, z, atol=1e-9)


def test_expansion_scores_rows_as_seen_from_the_origin(near, rng):
    here, seen = near
    c = rng.normal(size=(len(here.gram), 2))
    points, coefficients, offset = here.expansion(c)
    new = rng.normal(size=(4, 12))
    expected = (new - 0.3) @ np.vstack([seen[n] for n in here.members]).T @ c
    np.testing.assert_allclose(new @ points.T @ coefficients - offset, expected, atol=1e-10)


def test_orthonormal_is_the_nearest_orthonormal_set(rng):
    Q = np.linalg.qr(rng.normal(size=(6, 2)))[0]
    nearby = Q + 0.01 * rng.normal(size=Q.shape)
    found = orthonormal(nearby, np.eye(6))
    np.testing.assert_allclose(found.T @ found, np.eye(2), atol=1e-12)
    assert np.linalg.norm(found - nearby) <= np.linalg.norm(Q - nearby)
    with pytest.raises(RankError, match="lost a component"):
        orthonormal(np.ones((6, 2)), np.eye(6))


def test_alignment_turns_one_basis_to_the_other(rng):
    Q = np.linalg.qr(rng.normal(size=(6, 3)))[0]
    turn = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    np.testing.assert_allclose(Q @ turn @ alignment((Q @ turn).T @ Q), Q, atol=1e-12)


def test_cosines_are_of_principal_angles():
    np.testing.assert_allclose(cosines(np.array([[-0.8]])), [0.8])
    np.testing.assert_allclose(cosines(np.diag([0.5, 1.0])), [1.0, 0.5])
    assert cosines(np.array([[1.0 + 1e-12]])) == [1.0]


def test_the_papers_penalties_rise_and_stay():
    assert [penalties_at(PAPER_PENALTIES, t)[1] for t in (0, 3, 4, 8, 100)] == [
        *(10, 10, 50, 100, 100)
    ]
