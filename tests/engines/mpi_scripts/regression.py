"""Every rank fits the same regression, with its own targets only, and compares with one process."""

import numpy as np
from mpi4py import MPI
from sklearn.datasets import load_diabetes
from sklearn.preprocessing import scale

import eigenmesh as em

RANK, SIZE = MPI.COMM_WORLD.Get_rank(), MPI.COMM_WORLD.Get_size()
X, Y = load_diabetes(return_X_y=True)
X, Y = scale(X)[:120], Y[:120]
ROWS = em.split(X, SIZE, random_state=0)
COLUMNS = em.split(X, SIZE, by="columns")


def compare(parts, own, known, topology=None, **options):
    """Coefficients and floats of the job, with those of a single process that knows all targets."""
    model = em.KernelPCRegressor(3, random_state=0, **options)
    with em.federation(parts, engine="mpi", topology=topology) as fed:
        model.fit(fed, own)
    alone = em.KernelPCRegressor(3, random_state=0, topology=topology, **options).fit(parts, known)
    alike = np.allclose(model.coef_, alone.coef_, rtol=1e-8)
    same = alike and model.report_.floats_up == alone.report_.floats_up
    print(f"rank {RANK}: {model.method_.partition(':')[0]} same as alone: {same}", flush=True)


targets = [Y[own] for own in ROWS.order]
mine = [y if i == RANK else None for i, y in enumerate(targets)]
compare(ROWS, mine, targets, gamma=0.05)
compare(ROWS, mine, targets, gamma=0.05, method="sketching-pca")
compare(ROWS, mine, targets, gamma=0.05, topology="full")
compare(COLUMNS, Y if RANK == 0 else None, Y, gamma=0.05)
try:
    compare(COLUMNS, Y[:-1] if RANK == 0 else None, Y, gamma=0.05)
except em.EigenmeshError as error:
    print(f"rank {RANK}: refused: {error}", flush=True)
