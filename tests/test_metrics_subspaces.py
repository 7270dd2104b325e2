"""Distances of subspaces: accurate for tiny angles, blind to the choice of basis."""

import numpy as np
import pytest
import scipy.linalg

from eigenmesh.errors import InputError, RankError
from eigenmesh.metrics import aligned_error, principal_angles, projector_distance, sin_theta


def basis(n=50, k=4, seed=0):
    return np.linalg.qr(np.random.default_rng(seed).standard_normal((n, k)))[0]


def rotated(U, angles, seed=1):
    """A basis at the given principal angles from U."""
    k = U.shape[1]
    W = np.random.default_rng(seed).standard_normal(U.shape)
    W = np.linalg.qr(W - U @ (U.T @ W))[0]
    return U * np.cos(angles) + W[:, :k] * np.sin(angles)


def test_finds_the_angles_that_were_built_in():
    angles = np.array([1e-13, 1e-9, 0.3, np.pi / 2])
    found = principal_angles(basis(), rotated(basis(), angles))
    np.testing.assert_allclose(found, angles, rtol=1e-6, atol=2e-15)


def test_agrees_with_scipy():
    U, V = basis(), basis(seed=3)
    expected = scipy.linalg.subspace_angles(U, V)[::-1]
    np.testing.assert_allclose(principal_angles(U, V), expected, atol=1e-13)


def test_the_same_subspace_in_another_scaled_basis_is_at_no_distance():
    U = basis()
    V = U @ np.random.default_rng(1).standard_normal((4, 4)) * [1e-6, 1.0, 1e4, -1.0]
    assert principal_angles(U, V).max() < 1e-14
    assert sin_theta(U, V) < 1e-14
    assert projector_distance(U, V) < 1e-28


def test_orthogonal_subspaces_are_at_the_largest_distance():
    E = np.eye(8)
    np.testing.assert_allclose(principal_angles(E[:, :4], E[:, 4:]), np.pi / 2, rtol=1e-15)
    assert sin_theta(E[:, :4], E[:, 4:]) == pytest.approx(2.0, rel=1e-15)


@pytest.mark.parametrize("widths", [(4, 4), (4, 2), (2, 4)])
def test_projector_distance_equals_that_of_explicit_projectors(widths):
    U, V = basis(k=widths[0]), basis(k=widths[1], seed=3)
    expected = np.square(U @ U.T - V @ V.T).sum()
    assert projector_distance(U, V) == pytest.approx(expected, rel=1e-13)
    assert len(principal_angles(U, V)) == min(widths)


def test_angles_do_not_depend_on_the_order_of_the_two():
    U, V = basis(k=4), basis(k=2, seed=3)
    np.testing.assert_allclose(principal_angles(U, V), principal_angles(V, U), atol=1e-15)


def test_aligned_error_forgives_signs_only():
    Z = np.random.default_rng(0).standard_normal((30, 3))
    assert aligned_error(Z * [1, -1, -1], Z) == 0.0
    off = Z.copy()
    off[4, 2] += 0.5
    assert aligned_error(-off, Z) == pytest.approx(0.5 / np.abs(Z).max(), rel=1e-14)
    assert aligned_error(np.ones((2, 1)), np.zeros((2, 1))) == 1.0


def test_refuses_what_cannot_be_compared():
    with pytest.raises(InputError, match="bases of 5 and 6 rows"):
        principal_angles(np.eye(5)[:, :2], np.eye(6)[:, :2])
    with pytest.raises(InputError, match=r"shape \(2, 3\); expected"):
        principal_angles(np.ones((2, 3)), np.eye(2))
    with pytest.raises(RankError, match="2 columns span only 1"):
        principal_angles(np.ones((5, 2)), np.eye(5)[:, :2])
    with pytest.raises(RankError, match="2 columns span only 1"):
        principal_angles(np.eye(5)[:, :2] * [1, 0], np.eye(5)[:, :2])
    with pytest.raises(InputError, match="equal shapes"):
        aligned_error(np.ones((2, 1)), np.ones((2, 2)))
