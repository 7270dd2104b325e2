"""What an executor reads of a batch of Arrow's; no Spark is needed for it."""

import numpy as np
import pytest

from eigenmesh.data.spark_rows import FeatureColumn, FeatureLayout
from eigenmesh.errors import EigenmeshError

pa = pytest.importorskip("pyarrow", reason="pip install 'eigenmesh[files]'")
LAYOUT = FeatureLayout(
    (FeatureColumn("age", "double"), FeatureColumn("gene", "vector", 2)), "float64"
)


def batch(ages, genes):
    arrays = [pa.array(ages, pa.float64()), pa.array(genes, pa.list_(pa.float64()))]
    return pa.RecordBatch.from_arrays([pa.array(["id"] * len(ages)), *arrays], ["id", "0", "1"])


def blocks(*batches, layout=LAYOUT):
    return list(layout.blocks(7, iter(batches)))


def test_features_come_last_in_a_batch_and_in_the_order_that_is_wanted():
    some = batch([1.0, 2.0, 3.0], [[10, 11], [20, 21], [30, 31]])
    (X,) = blocks(some.slice(1), batch([], []))
    np.testing.assert_array_equal(X, [[2, 20, 21], [3, 30, 31]])
    turned = LAYOUT.in_order(["gene[1]", "age", "gene[0]"], "the fit")
    (X,) = blocks(some.slice(2), layout=turned)
    np.testing.assert_array_equal(X, [[31, 3, 30]])
    with pytest.raises(EigenmeshError, match=r"lacks column 'bmi'.*and has column 'age'"):
        LAYOUT.in_order(["gene[0]", "gene[1]", "bmi"], "the fit")


@pytest.mark.parametrize(
    ("age", "gene", "words"),
    [
        (None, [1, 2], r"nan in column 'age', row 3 of partition 7 .*dropna"),
        (1.0, [1, np.inf], r"inf in column 'gene\[1\]', row 3 of partition 7"),
        (1e80, [1, 2], r"1e\+80 in column 'age', row 3.*up to 1e\+75.*rescale"),
        (1.0, [1], r"'gene' holds at row 3 of partition 7 .*no array of 2"),
        (1.0, None, r"'gene' holds at row 3 of partition 7 .*no array of 2"),
        (1.0, [1, None], r"nan in column 'gene\[1\]', row 3"),
    ],
)
def test_an_unusable_value_is_named_by_its_place_in_the_partition(age, gene, words):
    good = batch([1.0, 2.0], [[1, 2], [3, 4]])
    with pytest.raises(EigenmeshError, match=words):
        blocks(good, batch([0.0, age], [[1, 2], gene]))
