"""What kinds of numbers, and how much they tell, are in plain words."""

from __future__ import annotations

from eigenmesh.reports.audit import Severity

KINDS_IN_WORDS = {
    "rows": "rows of the data as they are, or numbers that come to that",
    "columns": "numbers that determine columns of the data up to a rotation",
    "centroids": "means of at least five rows each",
    "scores": "coordinates of single samples along the components",
    "eigenvectors": "the main directions of a party's own data, an entry a sample",
    "distances": "how far samples are from each other in a party's columns",
    "gram": "sums, over rows, of products of similarities",
    "moments": "sums or means over all rows",
    "sketch": "a few mixed coordinates of rows, too few to recover them",
    "seed": "a number that starts a random draw",
    "counts": "how many rows and columns there are",
    "hashes": "digests of ids or names, which tell who has the same",
    "aggregate": "masked numbers: only the sum over all parties is seen",
}

SEVERITY_IN_WORDS = {
    Severity.LITTLE: "sizes and digests",
    Severity.SUMS: "sums over many rows",
    Severity.MEANS: "means of a few rows",
    Severity.PARTS: "something of single rows",
    Severity.DETERMINED: "enough to work data out",
    Severity.ROTATED: "columns, but for a rotation",
    Severity.ROWS: "rows as they are",
}
