"""What parties let out decides how a fit is made: every front door has a way that does with it."""

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

import eigenmesh as em

pytestmark = pytest.mark.filterwarnings("ignore::eigenmesh.errors.EigenmeshWarning")

KERNELS = {
    "rbf": {"kernel": "rbf", "gamma": "mean-distance"},
    "laplacian": {"kernel": "laplacian", "gamma": "mean-distance"},
    "linear": {"kernel": "linear"},
    "poly": {"kernel": "poly", "degree": 2, "gamma": 0.02},
    "cosine": {"kernel": "cosine"},
    "arc-cosine": {"kernel": "arc-cosine", "degree": 1},
}
MEANS = {"centroids", "gram", "moments", "counts"}
MOMENTS = {"moments", "counts"}
ONE_SUM = {"aggregate", "centroids", "counts"}
SUMS = {"aggregate", "counts"}
WAYS = [
    *[(MEANS, name, False) for name in KERNELS],
    *[(MOMENTS, name, False) for name in ("linear", "poly", "cosine")],
    *[(ONE_SUM, name, True) for name in ("rbf", "linear")],
    *[(SUMS, name, True) for name in ("laplacian", "poly")],
]


def drawn(seed):
    """Rows in three groups, their groups, a target, and parties of uneven sizes."""
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(150, 220)), int(rng.integers(3, 5))
    labels = rng.integers(3, size=n)
    X = 7 * np.eye(3, d)[labels] + rng.normal(size=(n, d)) + 2
    cuts = np.sort(rng.choice(np.arange(20, n - 20, 15), 3, replace=False))
    return X, labels, X[:, 0] - X[:, 1], cuts


def fitted(door, X, cuts, allow, secure, y=None):
    policies = [em.Policy(allow=allow)] * (len(cuts) + 1)
    parts = em.Partitioned(rows=np.split(X, cuts), policies=policies)
    if secure:
        pytest.importorskip("cryptography")
    with em.federation(parts, secure=secure) as fed:
        door.fit(fed) if y is None else door.fit(fed, np.split(y, cuts))
        labels = getattr(door, "labels_", None)
    kinds = {kind for own in door.report_.reveals.values() for kind in own}
    assert kinds <= allow
    assert {line.kind for line in em.audit(door.report_).lines} <= allow | {"together"}
    return door, labels


@pytest.mark.parametrize(("allow", "kernel", "secure"), WAYS)
def test_every_front_door_runs_under_policies_of_rows(allow, kernel, secure):
    options = KERNELS[kernel]
    X, labels, y, cuts = drawn(len(kernel) + len(allow))
    kpca, _ = fitted(em.KernelPCA(2, random_state=0, **options), X, cuts, allow, secure)
    at = {"gamma": kpca.gamma_} if "gamma" in options else {}
    pooled = em.KernelPCA(2, method="exact", **(options | at)).fit(X)
    assert np.all(kpca.eigenvalues_ >= 0.9 * pooled.eigenvalues_)
    assert np.all(kpca.eigenvalues_ <= (1 + 1e-6) * pooled.eigenvalues_)

    door = em.KernelKMeans(3, random_state=0, **options)
    kmeans, own = fitted(door, X, cuts, allow, secure)
    assert adjusted_rand_score(labels, np.concatenate(own)) > 0.85
    if secure:
        assert kmeans.score(X) == pytest.approx(-kmeans.inertia_, rel=1e-6)
    else:  # groups of rows are counted where their means are nearest
        assert 0 < -kmeans.score(X) < (1 + 1e-6) * kmeans.inertia_ < 3 * -kmeans.score(X)

    ridge, _ = fitted(em.KernelPCRegressor(3, random_state=0, **options), X, cuts, allow, secure, y)
    alone = em.KernelPCRegressor(3, **(options | at)).fit(X, y).score(X, y)
    assert ridge.score(X, y) > alone - 0.05


def test_what_is_refused_is_said_with_what_would_do():
    X, _, _, cuts = drawn(0)
    for door in (em.KernelPCA(2, kernel="rbf"), em.KernelKMeans(2, kernel="rbf")):
        with pytest.raises(em.EigenmeshError, match=r"party-0.*what would do: .*centroids"):
            fitted(door, X, cuts, {"counts"}, False)
