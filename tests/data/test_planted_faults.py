"""`check` names every fault that was planted, on its lines, and none that is not there."""

from __future__ import annotations

import pytest
from tests.data.planted_faults import compare


@pytest.mark.parametrize("seed", range(6))
def test_every_planted_fault_is_named_and_nothing_else(seed, tmp_path):
    missed, alarms = compare(seed, tmp_path)
    assert not missed
    assert not alarms
