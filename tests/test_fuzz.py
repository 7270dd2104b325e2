"""A little of `make fuzz`, seeded."""

import logging

import pytest
from tests.fuzz import TARGETS, fuzz

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True)
def quiet():
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("target", TARGETS)
def test_nothing_but_our_own_errors_comes_of_damaged_input(target):
    assert sum(fuzz(target, seconds=0.5, seed=0).values())
