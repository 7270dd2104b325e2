"""Data split over parties: partitions, splits, readers and the papers' synthetic sets."""

from eigenmesh.data.missing import drop_missing
from eigenmesh.data.partitioned import Partitioned
from eigenmesh.data.readers import open_data, read_table
from eigenmesh.data.sample_ids import hash_sample_ids
from eigenmesh.data.splits import feasible_parties, split, split_columns

__all__ = [
    "Partitioned",
    "drop_missing",
    "feasible_parties",
    "hash_sample_ids",
    "open_data",
    "read_table",
    "split",
    "split_columns",
]
