"""Rows come out of a message as they went in, in as few bytes as hold them."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

import eigenmesh as em
from eigenmesh.runtime.message import decode, encode, floats_by_kind
from eigenmesh.stages.row_messages import RowBlock, pack, unpack

RANGES = [(0, 1, 1), (0, 255, 1), (-128, 127, 1), (0, 65_535, 2), (-32_768, 32_767, 2)]


@given(
    low_high_bytes=st.sampled_from([*RANGES, (-32_769, 32_767, 8), (0, 2**20, 8)]),
    shape=st.tuples(st.integers(1, 20), st.integers(1, 9)),
    seed=st.integers(0, 2**31),
    shift=st.sampled_from([0.0, 0.5]),
    is_sparse=st.booleans(),
    dtype=st.sampled_from([np.float64, np.float32]),
)
def test_rows_travel_in_the_fewest_bytes_and_arrive_unchanged(
    low_high_bytes, shape, seed, shift, is_sparse, dtype
):
    low, high, size = low_high_bytes
    rng = np.random.default_rng(seed)
    rows = rng.integers(low, high, size=shape, endpoint=True)
    rows.flat[0], rows.flat[-1] = low, high
    rows = (rows + shift).astype(dtype)
    sent = RowBlock(**pack(sp.csr_array(rows) if is_sparse else rows))
    received = decode(RowBlock, encode(sent))
    found = unpack(received)
    assert found.dtype == dtype
    np.testing.assert_array_equal(found.toarray() if is_sparse else found, rows)
    values = sent.data if is_sparse else sent.dense
    assert floats_by_kind(sent)["rows"] == values.size
    if values.size > 1 and not is_sparse:
        expected = size if dtype == np.float64 and not shift else np.dtype(dtype).itemsize
        assert values.itemsize == expected


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
    assert bytes_of[np.uint8] == bytes_of[np.float64] < bytes_of[np.float32]
    np.testing.assert_array_equal(scores_of[np.uint8], scores_of[np.float64])
    np.testing.assert_allclose(scores_of[np.float32], scores_of[np.float64], atol=1e-4)
