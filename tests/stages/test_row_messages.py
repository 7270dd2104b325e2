"""Rows come out of a message as they went in, in as few bytes as hold them."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

import eigenmesh as em
from eigenmesh.runtime.message import decode, encode, floats_by_kind
from eigenmesh.stages.row_messages import RowBlock, pack, unpack


@given(
    shape=st.tuples(st.integers(1, 40), st.integers(1, 9)),
    seed=st.integers(0, 2**31),
    is_sparse=st.booleans(),
    dtype=st.sampled_from([np.float64, np.float32]),
)
def test_rows_arrive_unchanged_and_pixels_in_a_byte_each(shape, seed, is_sparse, dtype):
    rng = np.random.default_rng(seed)
    rows = rng.integers(0, 255, size=shape, endpoint=True).astype(dtype)
    if seed % 2:
        rows = rows * rng.normal()  # on no grid
    sent = RowBlock(**pack(sp.csr_array(rows) if is_sparse else rows))
    data = encode(sent)
    arrived = unpack(decode(RowBlock, data))
    assert arrived.dtype == rows.dtype
    np.testing.assert_array_equal(arrived.toarray() if is_sparse else arrived, rows)
    values = sent.data if is_sparse else sent.dense
    assert floats_by_kind(sent)["rows"] == values.size
    if not seed % 2 and not is_sparse:
        assert len(data) <= rows.size + 700


@pytest.mark.filterwarnings("ignore::eigenmesh.errors.EigenmeshWarning")
@pytest.mark.parametrize("estimator", [em.DisKPCA, em.ADMMKPCA])
@pytest.mark.parametrize("seed", range(2))
def test_pixels_cost_bytes_and_give_the_answer_of_floats(estimator, seed):
    rng = np.random.default_rng(seed)
    pixels = rng.integers(0, 256, size=(60, 40)).astype(np.uint8)
    model = estimator(1, kernel="rbf", gamma=1e-5, random_state=0)
    bytes_of, scores_of = {}, {}
    for dtype in (np.uint8, np.float32, np.float64):
        parts = em.Partitioned(rows=np.array_split(pixels.astype(dtype), 3))
        bytes_of[dtype] = model.fit(parts).report_.bytes
        scores_of[dtype] = model.transform(pixels)
        floats = model.report_.floats_up + model.report_.floats_down
        planned = em.plan(model, parts)
        assert floats == planned.floats_up + planned.floats_down
    assert bytes_of[np.uint8] == bytes_of[np.float64]
    on_no_grid = em.Partitioned(rows=np.array_split(np.pi / 3 * pixels, 3))
    assert bytes_of[np.float64] < 0.8 * model.fit(on_no_grid).report_.bytes
    np.testing.assert_array_equal(scores_of[np.uint8], scores_of[np.float64])
    np.testing.assert_allclose(scores_of[np.float32], scores_of[np.float64], atol=1e-4)
