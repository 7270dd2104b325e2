"""What a coordinator makes of the masked sum of distances, against what the audit said before."""

import numpy as np
import pytest

import eigenmesh as em
from eigenmesh.runtime.federation import Federation

N, WIDTHS = 60, (3, 4, 2)


@pytest.fixture(scope="module")
def overheard():
    """The columns, the plan's audit, and the joint distances that the coordinator has."""
    rng = np.random.default_rng(20)
    X = rng.normal(size=(N, sum(WIDTHS))) @ rng.normal(size=(sum(WIDTHS), sum(WIDTHS)))
    columns = np.split(X, np.cumsum(WIDTHS)[:-1], axis=1)
    parts = em.Partitioned(columns=columns)
    kpca, sums, total = em.KernelPCA(2, kernel="rbf"), [], Federation.total

    def listening(self, step, *args, **kwargs):
        result = total(self, step, *args, **kwargs)
        sums.append((step.name, result.sum))
        return result

    said = " ".join(em.audit(em.plan(kpca, parts)).beyond)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Federation, "total", listening)
        with pytest.warns(em.EigenmeshWarning):
            kpca.fit(parts)
    [pairs] = [s.arguments for name, s in sums if name == "argument_summand"]
    D = np.zeros((N, N))
    D[np.triu_indices(N, 1)] = pairs
    return columns, said, D + D.T


def joint_coordinates(D):
    """Classical scaling: all columns together, up to rotation and shift."""
    J = np.eye(N) - 1 / N
    values, vectors = np.linalg.eigh(-J @ D @ J / 2)
    rank = sum(WIDTHS)
    return vectors[:, -rank:] * np.sqrt(np.maximum(values[-rank:], 0))


def error_of_known(columns, D, n_known):
    """Of a party's columns of the other samples, from those of some; 1 is what their mean has."""
    S = np.column_stack([joint_coordinates(D), np.ones(N)])
    truth, known = columns[1], np.arange(n_known)
    W = np.linalg.lstsq(S[known], truth[known], rcond=None)[0]
    rest = np.arange(n_known, N)
    return np.linalg.norm(S[rest] @ W - truth[rest]) / np.linalg.norm(truth[rest])


def test_as_many_known_samples_as_the_audit_says_give_all_others(overheard):
    columns, said, D = overheard
    assert "10 samples whose columns at a party are known give these of all others" in said
    assert error_of_known(columns, D, 10) < 1e-6
    assert error_of_known(columns, D, 7) > 0.2


def test_nobodys_own_distances_are_in_the_sum(overheard):
    columns, said, D = overheard
    assert "who has all other parties' columns has these up to rotation" in said
    for own in columns:
        squared = np.square(own[:, None] - own).sum(axis=2)
        off = ~np.eye(N, dtype=bool)
        scale = (D[off] @ squared[off]) / (D[off] @ D[off])  # the best that one factor can do
        assert np.median(np.abs(scale * D[off] - squared[off]) / squared[off]) > 0.2
    others = sum(np.square(own[:, None] - own).sum(axis=2) for own in columns[1:])
    first = np.square(columns[0][:, None] - columns[0]).sum(axis=2)
    np.testing.assert_allclose(D - others, first, atol=1e-8 * D.max())
