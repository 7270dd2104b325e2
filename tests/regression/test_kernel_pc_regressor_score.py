"""R² of rows that parties hold is that of all rows together."""

import numpy as np
import pytest
from sklearn.metrics import r2_score

import eigenmesh as em


def drawn(seed):
    """Rows, targets of one or two columns, weights, and a split into parties of uneven sizes."""
    rng = np.random.default_rng(seed)
    n, n_targets = int(rng.integers(60, 120)), int(rng.integers(1, 3))
    X = rng.normal(size=(n, 3)) * 10.0 ** rng.integers(-2, 3)
    y = np.sin(X / X.std()) @ rng.normal(size=(3, n_targets)) + 5 * rng.normal(size=n_targets)
    y += 0.3 * rng.normal(size=y.shape)
    order = rng.permutation(n) if rng.random() < 0.5 else np.argsort(y[:, 0])  # sorted: far apart
    cuts = np.sort(rng.choice(np.arange(10, n - 10), 2, replace=False))
    pieces = [piece for piece in np.split(order, cuts) if len(piece)]
    return X, y[:, 0] if n_targets == 1 else y, rng.integers(1, 4, n).astype(float), pieces


def fitted(X, y, pieces, **options):
    parts = em.Partitioned(rows=[X[rows] for rows in pieces])
    options = {"landmarks": "uniform", "n_landmarks": len(X), "n_components": 4} | options
    return parts, em.KernelPCRegressor(**options).fit(parts, [y[rows] for rows in pieces])


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("weighted", [False, True])
def test_the_score_of_parties_is_that_of_pooled_rows(seed, weighted):
    X, y, w, pieces = drawn(seed)
    parts, model = fitted(X, y, pieces)
    ys, weights = [y[rows] for rows in pieces], [w[rows] for rows in pieces]
    order = np.concatenate(pieces)
    pooled = r2_score(
        y[order], model.predict(X[order]), sample_weight=w[order] if weighted else None
    )
    assert model.score(parts, ys, weights if weighted else None) == pytest.approx(pooled, abs=1e-10)
    assert model.score(X, y, w if weighted else None) == pytest.approx(pooled, abs=1e-10)
    if not weighted:
        assert pooled == pytest.approx(model.r_squared_, abs=1e-8)
    for own, rows in zip(model.predict(parts), pieces, strict=True):
        np.testing.assert_allclose(own, model.predict(X[rows]), atol=1e-9)


@pytest.mark.parametrize("seed", range(2))
def test_on_a_graph_and_over_columns_too(seed):
    X, y, w, pieces = drawn(10 + seed)
    options = {"landmarks": "auto", "n_landmarks": None, "kernel": "linear", "topology": "full"}
    options["small_parties"] = "reveal"
    parts, model = fitted(X, y, pieces, **(options | {"n_components": 3}))
    ys = [y[rows] for rows in pieces]
    assert model.score(parts, ys) == pytest.approx(model.score(X, y), abs=1e-9)
    assert model.score(parts, ys) == pytest.approx(model.r_squared_, abs=1e-6)
    columns = em.Partitioned(columns=[X[:, :1], X[:, 1:]])
    across = em.KernelPCRegressor(2, kernel="linear").fit(columns, y)
    assert across.score(columns, y, w) == pytest.approx(
        r2_score(y, across.predict(X), sample_weight=w)
    )
    with pytest.raises(em.EigenmeshError, match="one target a row"):
        across.score(columns, y[:-1])


@pytest.mark.parametrize("seed", range(3))
def test_what_does_not_fit_a_party_names_it(seed):
    X, y, w, pieces = drawn(20 + seed)
    parts, model = fitted(X, y, pieces)
    wrong = int(np.random.default_rng(seed).integers(len(pieces)))
    ys = [y[rows] for rows in pieces]
    short = [own[:-1] if i == wrong else own for i, own in enumerate(ys)]
    with pytest.raises(em.EigenmeshError, match=f"party 'party-{wrong}' has .* one a row"):
        model.score(parts, short)
    with pytest.raises(em.EigenmeshError, match=f"'party-{wrong}'.* sample_weight"):
        model.score(parts, ys, [np.ones(len(own)) for own in short])
    wide = [np.column_stack([own, own, own]) if i == wrong else own for i, own in enumerate(ys)]
    with pytest.raises(em.EigenmeshError, match=f"party 'party-{wrong}' has [36] targets"):
        model.score(parts, wide)
    for instead in (y, ys[:-1]):
        with pytest.raises(em.EigenmeshError, match=f"a list of {len(pieces)} arrays"):
            model.score(parts, instead)
    with pytest.raises(em.EigenmeshError, match="y is None"):
        model.score(parts, None)
