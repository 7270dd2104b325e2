"""For every method: another engine gives the answer and the account of one process.

What engines owe to any protocol is in `tests/engines/contract.py`; MPI runs fits in
`tests/engines/mpi_scripts/every_rank.py`.
"""

import numpy as np
import pytest
from tests.contracts.fits import FITS, X, columns
from tests.engines.dask_cluster import open_on_dask

from eigenmesh.estimators.party_values import AtSite

pytestmark = pytest.mark.filterwarnings("ignore")
# Hundreds of rounds of the mixes that the others on graphs have too.
LONG = {"dpca", "kmeans-ring", "ridge-ring", "gossip-random"}
fits = pytest.mark.parametrize(
    "fit", [fit for fit in FITS if fit.name not in LONG], ids=lambda fit: fit.name
)


@fits
def test_dask_gives_the_answer_and_the_account_of_one_process(fit):
    here, question = fit.fitted(), "predict" if hasattr(fit.build(), "predict") else "transform"
    near = 1e-4 if here.report_.privacy else 1e-8  # no seed gives noise again
    with open_on_dask(fit.parts(), **fit.options) as fed:
        there = fit.run(fed)
        if fit.parts is columns and not fit.options:  # of new samples each party has its columns
            answers = (getattr(here, question)(fit.parts()), getattr(there, question)(fed))
            np.testing.assert_allclose(*answers, atol=near)
    if fit.parts is not columns or fit.options:
        answers = (getattr(some, question)(X) for some in (here, there))
        np.testing.assert_allclose(*answers, atol=near)
    if fit.parts is not columns and hasattr(here, "labels_"):  # they stay with their rows
        assert all(isinstance(own, AtSite) for own in there.labels_)
    assert by_step(there) == by_step(here)
    assert there.report_.reveals == here.report_.reveals


def by_step(model):
    """Without who tells its model where no party is in this process."""
    steps = model.report_.by_step
    return {name: own for name, own in steps.items() if not name.startswith("ModelHolder")}
