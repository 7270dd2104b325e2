"""For every method: a party that lies is named or harms nobody else; no number comes out that
cannot be. A seeded sample; benchmarks/bench_lies.py draws 1,500."""

import pytest
from tests.contracts.fits import FITS
from tests.contracts.lies import (
    LIAR,
    LIES,
    SHORTENED,
    Lie,
    OneShort,
    drawn_lies,
    n_replies,
    outcome_of,
)

pytestmark = pytest.mark.filterwarnings("ignore")


def require_fair(lie):
    outcome = outcome_of(FITS[lie.fit], lie)
    assert not outcome.blames_the_honest, (lie, outcome.error)
    assert not outcome.is_foreign, (lie, repr(outcome.error))
    assert not outcome.impossible, (lie, outcome.impossible)
    return outcome


@pytest.mark.parametrize("number", range(len(FITS)), ids=lambda i: FITS[i].name)
def test_lies_blame_nobody_honest_and_give_no_impossible_numbers(number):
    for lie in drawn_lies(1 if FITS[number].name == "dpca" else 2, seed=number, fits=[number]):
        require_fair(lie)


@pytest.mark.parametrize("name", ["diskpca-uniform", "diskpca-centroids", "sketching"])
@pytest.mark.parametrize("kind", sorted(LIES.keys() - {"noise", "one-off", "permute"}))
def test_a_gross_lie_about_sums_is_told_of_the_liar(name, kind):
    number = next(i for i, fit in enumerate(FITS) if fit.name == name)
    outcome = require_fair(Lie(number, n_replies(number) - 1, kind, None))
    assert outcome.error is not None
    assert outcome.error.party == "south"


@pytest.mark.parametrize(
    ("name", "reply", "field"),
    [
        ("vfed-pca-ring", 8, None),
        ("kmeans-ring", 55, None),
        ("diskpca-paper", 7, 0),
        ("admm", 10, 4),
    ],
)
def test_large_numbers_that_pass_from_neighbour_to_neighbour_blame_nobody_alone(name, reply, field):
    number = next(i for i, fit in enumerate(FITS) if fit.name == name)
    require_fair(Lie(number, reply, "huge", field, seed=332))


@pytest.mark.parametrize(
    ("name", "reply", "kind", "field", "seed"),
    [
        ("vfed-akpca-ring", 1, "noise", None, 802),
        ("private-pca", 1, "huge", 0, 0),
        ("gossip", 3, "noise", 4, 850),
        ("vfed-pca-paper", 0, "zero", None, 450),
        ("admm", 10, "one-off", None, 280),
    ],
)
def test_lies_that_gave_impossible_variances_are_refused(name, reply, kind, field, seed):
    number = next(i for i, fit in enumerate(FITS) if fit.name == name)
    assert require_fair(Lie(number, reply, kind, field, seed)).error is not None


UNNEEDED = {"kmeans-ring"}  # the last that passes there is of no use to anybody


@pytest.mark.parametrize(
    "number",
    [i for i, fit in enumerate(FITS) if fit.name not in UNNEEDED],
    ids=lambda i: FITS[i].name,
)
def test_a_reply_one_number_short_is_an_error_that_names_its_sender(number):
    """Of the last reply that has an array: what comes of it is nobody else's to notice."""
    SHORTENED.clear()
    for reply in reversed(range(n_replies(number))):
        outcome = outcome_of(FITS[number], OneShort(number, reply, "short", 0))
        if SHORTENED:
            break
    assert not outcome.is_foreign, repr(outcome.error)
    assert LIAR in str(outcome.error)


def test_fewer_landmarks_than_were_sent_are_noticed_where_sums_do_not_show_their_number():
    number = next(i for i, fit in enumerate(FITS) if fit.name == "diskpca-small")
    drawn = range(n_replies(number))[3]
    outcome = outcome_of(FITS[number], OneShort(number, drawn, "short", 0))
    assert outcome.error.party == LIAR
    assert "1 of its landmarks have come to the coordinator, it sent 2" in str(outcome.error)
