"""Columns that are called by numbers, as years and wavelengths are, are matched by these."""

import numpy as np
import pandas as pd
import pytest

import eigenmesh as em


def frames(rng, labels, n_parties=2):
    X = rng.normal(size=(60 * n_parties, len(labels))) * np.arange(1, len(labels) + 1)
    return [pd.DataFrame(own, columns=labels) for own in np.array_split(X, n_parties)]


def shuffled(frame, rng):
    return frame[list(rng.permutation(np.array(frame.columns, dtype=object)))]


LABELS = {
    "years": [2019, 2020, 2021, 2022],
    "places": [0, 1, 2, 3],
    "from one": [1, 2, 3, 4],
    "mixed": ["age", 2020, 2021, ("a", 1)],
    "fractions": [0.5, 1.0, 1.5, 2.0],
}


@pytest.mark.parametrize("labels", LABELS.values(), ids=list(LABELS))
@pytest.mark.parametrize("seed", range(3))
def test_the_order_of_numbered_columns_does_not_matter(labels, seed):
    rng = np.random.default_rng(seed)
    parts = frames(rng, labels)
    other = [parts[0], shuffled(parts[1], rng)]
    here, there = (em.KernelPCA(2).fit(em.Partitioned(rows=p)) for p in (parts, other))
    np.testing.assert_array_equal(here.eigenvalues_, there.eigenvalues_)
    scores = here.transform(parts[0])
    np.testing.assert_array_equal(scores, here.transform(shuffled(parts[0], rng)))
    np.testing.assert_array_equal(
        scores, here.transform(em.Partitioned(rows=[shuffled(parts[0], rng)]))[0]
    )


@pytest.mark.parametrize("seed", range(3))
def test_columns_of_parties_by_numbers(seed):
    rng = np.random.default_rng(seed)
    whole = frames(rng, [400, 410, 420, 430], 1)[0]
    fitted = em.VFedPCA(2).fit(em.split(whole, 2, by="columns"))
    parts = em.Partitioned(columns=[whole[[410, 400]], whole[[420, 430]]])
    np.testing.assert_allclose(fitted.transform(whole), fitted.transform(shuffled(whole, rng)))
    np.testing.assert_allclose(
        np.sum(fitted.transform(whole), axis=0), np.sum(fitted.transform(parts), axis=0)
    )


def test_other_numbers_are_refused_by_name():
    rng = np.random.default_rng(0)
    parts = frames(rng, [400, 410, 420])
    parts[1].columns = [400, 410, 425]
    with pytest.raises(em.EigenmeshError, match="lacks column '420'.*has column '425'"):
        em.KernelPCA(2).fit(em.Partitioned(rows=parts))
