"""Requests outside a study's schedule are not answered, whatever the method; legal ones all are."""

import numpy as np
import pytest
from tests.contracts.fits import FITS
from tests.contracts.intrusions import runs_at, sequence_with_intrusions

pytestmark = pytest.mark.filterwarnings("ignore")
ATTEMPTS = 100  # a fit; benchmarks/bench_out_of_schedule.py makes 10,000


@pytest.mark.parametrize("number", range(len(FITS)), ids=lambda i: FITS[i].name)
def test_every_run_follows_a_study(number):
    for run in runs_at(number, "south"):
        first = run[0].tree
        assert first["op"] == "enlist"
        assert "study" in first, f"{first['role']} is enlisted without a study"


@pytest.mark.parametrize("number", range(len(FITS)), ids=lambda i: FITS[i].name)
def test_a_legal_run_is_answered_again_and_nothing_else_is(number):
    attempts = 0
    runs = runs_at(number, "south")
    for seed in range(200):
        if attempts >= ATTEMPTS:
            break
        rng = np.random.default_rng((number, seed))
        attempts += sequence_with_intrusions(number, runs, rng)
    assert attempts >= ATTEMPTS
