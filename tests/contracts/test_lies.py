"""For every method: a party that lies is named or harms nobody else; no number comes out that
cannot be. A seeded sample; benchmarks/bench_lies.py draws 1,500."""

import pytest
from tests.contracts.fits import FITS
from tests.contracts.lies import LIES, Lie, drawn_lies, n_replies, outcome_of

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
    ],
)
def test_lies_that_gave_impossible_variances_are_refused(name, reply, kind, field, seed):
    number = next(i for i, fit in enumerate(FITS) if fit.name == name)
    assert require_fair(Lie(number, reply, kind, field, seed)).error is not None
