"""Sums of products over few rows travel as a factor, and arrive as they were."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import eigenmesh as em
from eigenmesh.errors import MessageRefused
from eigenmesh.runtime.gram_form import from_wire, to_wire
from eigenmesh.runtime.message import Limit, decode, encode
from eigenmesh.stages.row_messages import GramSums


def sums_of(rows):
    gram = rows.T @ rows
    upper = gram[np.triu_indices(len(gram))]
    trace = float(np.trace(gram))
    return GramSums(upper=upper, sums=rows.sum(axis=0), n_rows=len(rows), trace=trace)


@given(
    n_rows=st.integers(1, 40),
    q=st.integers(1, 60),
    spread=st.floats(0, 8),
    seed=st.integers(0, 2**31),
)
def test_they_arrive_as_they_were_and_shorter_where_rows_are_few(n_rows, q, spread, seed):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(n_rows, q)) * 10.0 ** rng.uniform(-spread, spread, size=q)
    if seed % 3 == 0:
        rows[n_rows // 2 :] = rows[0]  # fewer than rows determine
    sent = sums_of(rows)
    data = encode(sent)
    arrived = decode(GramSums, data, {"q": Limit(q, True)})
    size = max(float(np.abs(sent.upper).max()), 1e-300)
    np.testing.assert_allclose(arrived.upper, sent.upper, rtol=0, atol=1e-13 * q * size)
    if n_rows * q <= 0.7 * len(sent.upper) and q > 20:
        assert len(data) <= 8 * (n_rows * q + q) + 500


def test_what_is_no_gram_matrix_of_so_few_rows_travels_as_it_is():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(30, 20))
    upper = sums_of(rows).upper
    for triangle, n_rows in ((upper, 3), (-upper, 3), (upper[:-1], 2), (upper * np.nan, 2)):
        assert to_wire(triangle, n_rows) is triangle
    single = sums_of(rows[:2]).upper.astype(np.float32)
    assert to_wire(single, 2) is single


def test_a_factor_that_is_none_or_too_large_is_refused():
    factor = np.ones((2, 30))
    assert from_wire({"factor": factor}, 30).shape == (465,)
    for wrong, most in (
        ({"factor": factor}, 29),
        ({"factor": np.ones((1, 10_000))}, None),
        ({"factor": factor.astype(np.float32)}, 30),
        ({"factor": factor[0]}, 30),
        ({"factor": factor, "more": 1}, 30),
        ({}, 30),
    ):
        with pytest.raises(MessageRefused):
            from_wire(wrong, most)


def test_parties_of_two_rows_send_a_tenth_and_the_answer_is_the_same():
    X = np.random.default_rng(0).normal(size=(80, 6))
    how = {"kernel": "rbf", "gamma": 0.1, "landmarks": "uniform", "random_state": 0}
    model = em.DisKPCA(3, **how, n_landmarks=60, center=False)
    many = model.fit(em.Partitioned(rows=np.array_split(X, 40))).report_
    values = model.eigenvalues_
    sums = 40 * (60 * 61 // 2 + 60)
    assert many.floats_up == sums + 60 * 6  # floats are those of the message
    assert many.bytes < 0.35 * 8 * sums
    with em.federation(em.Partitioned(rows=np.array_split(X, 40)), secure=True) as fed:
        masked = model.fit(fed)
    np.testing.assert_allclose(masked.eigenvalues_, values, rtol=1e-9)
