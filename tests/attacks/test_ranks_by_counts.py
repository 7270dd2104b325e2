"""Medians are found by counts below thresholds: a coordinator that asks by others of its own.

By counts of all rows under masks it had the largest value of every column to the last bit, though
no party lets out but masked sums.
"""

from dataclasses import replace

import numpy as np
import pytest
from tests.attacks.test_differencing_masked_sums import blocks, federation, sites_of

import eigenmesh as em
from eigenmesh.errors import StepRefused
from eigenmesh.numerics.medians import TURNS, RankSearch
from eigenmesh.stages import prepare_rows

SETUP = prepare_rows.PrepareSetup("", "", False, None, "median", 5)
KEEPS_ROWS = em.Policy(allow={"aggregate", "counts", "hashes"})


def value_of_rank(rank, d, honest_turns):
    """What a coordinator finds that looks for another rank, from some turn on."""

    def coordinate(fed, setup):
        fed.enlist(prepare_rows.RowPreparer, setup)
        sums = fed.total(prepare_rows.RowPreparer.column_sums).sum
        middle = prepare_rows.MedianSearch(np.round(sums.n_present))
        search = RankSearch([rank] * d)
        for turn in range(TURNS):
            own = np.hstack([search.thresholds()] * 2)
            cuts = middle.thresholds() if turn < honest_turns else own
            question = prepare_rows.Thresholds(values=cuts)
            n_below = fed.total(prepare_rows.RowPreparer.count_below, question).sum.n_below
            middle.narrow(n_below) if turn < honest_turns else search.narrow(n_below[:, :15])
        return search.values()

    return replace(prepare_rows.prepare_rows, coordinate=coordinate)


@pytest.mark.parametrize("honest_turns", [0, 1])
def test_between_organisations_thresholds_follow_from_the_totals(honest_turns):
    rows = blocks(4)
    sites = sites_of(rows, "organisations", policy=KEEPS_ROWS)
    with pytest.raises(StepRefused):
        federation(sites, "raise").run(value_of_rank(120, 3, honest_turns), SETUP)


def test_in_one_trust_domain_any_rank_is_had_and_the_audit_says_so():
    rows = blocks(4)
    sites = sites_of(rows, "domain", policy=KEEPS_ROWS)
    largest = federation(sites, "raise").run(value_of_rank(120, 3, 0), SETUP).value
    np.testing.assert_array_equal(largest, np.vstack(rows).max(axis=0))
    parts = em.Partitioned(rows=rows, policies=KEEPS_ROWS)
    filled = em.KernelPCA(2, kernel="linear", preparation=em.Preparation(fill_with="median"))
    assert "has any other rank's" in str(em.audit(em.plan(filled, parts, secure=True)))


@pytest.mark.parametrize("on_loss", ["raise", "survivors"])
def test_an_honest_median_is_that_of_all_rows(on_loss):
    rows = blocks(4)
    rows[1][3, 2] = np.nan
    parts = em.Partitioned(rows=rows, policies=KEEPS_ROWS, allow_missing=True)
    how = em.Preparation(fill_missing=0.5, fill_with="median", standardize=False)
    with em.federation(parts, trust="organisations", secure=True, on_loss=on_loss) as fed:
        fitted = em.KernelPCA(2, kernel="linear", preparation=how).fit(fed)
    np.testing.assert_array_equal(
        fitted.preparation_.rule.fill, np.nanmedian(np.vstack(rows), axis=0)
    )
