"""Four clinics cluster their patients, and predict a score, without pooling a row or a target.

Run: python examples/clusters_and_targets.py
"""

from __future__ import annotations

import warnings

import numpy as np
from sklearn.datasets import load_diabetes, make_circles
from sklearn.metrics import adjusted_rand_score
from sklearn.preprocessing import StandardScaler

import eigenmesh as em
from eigenmesh.errors import CostWarning

warnings.simplefilter("ignore", CostWarning)  # rows as few as these would be cheaper to ship


def clusters() -> None:
    # Rings, which plain k-means cannot tell apart, scattered over the clinics.
    X, ring = make_circles(1200, factor=0.3, noise=0.05, random_state=0)
    parts = em.split(X, n_parties=4, law="power", exponent=0.5, random_state=0)
    model = em.KernelKMeans(2, gamma=5.0, random_state=0).fit(parts)
    print(model.method_)
    print(model.report_)
    found = adjusted_rand_score(ring, model.predict(X))
    print(f"the rings are found: adjusted Rand index {found:.2f}")
    print("labels at the clinics:", [len(labels) for labels in model.labels_], "\n")

    # Clinics that let no score of a patient out: only sums over patients leave.
    sums_only = em.Policy(allow={"centroids", "gram", "moments", "counts"})
    strict = em.split(X, n_parties=4, random_state=0, policies=[sums_only] * 4)
    model.fit(strict)
    left = sorted({kind for own in model.report_.reveals.values() for kind in own})
    print(f"adjusted Rand index {adjusted_rand_score(ring, model.predict(X)):.2f} from", left, "\n")


def targets() -> None:
    X, y = load_diabetes(return_X_y=True)
    X = StandardScaler().fit_transform(X)
    parts = em.split(X, n_parties=4, random_state=0)
    own_targets = [y[rows] for rows in parts.order]  # each list entry goes to its own clinic
    # So few patients have few means of five: some per cent of the tenth eigenvalue may be missing.
    model = em.KernelPCRegressor(10, alpha=1.0, gamma=0.02, accuracy=0.05, random_state=0)
    model.fit(parts, own_targets)
    n = len(np.concatenate(model.predict(parts)))
    score = model.score(parts, own_targets)
    print(f"R² {score:.3f} over {n} patients, of whom no target has left")


if __name__ == "__main__":
    clusters()
    targets()
