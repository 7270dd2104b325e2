"""Columns of one table lie in chunks on the workers of a Dask cluster, and stay there.

Run: python examples/dask_columns.py

On a network that is not your own use TLS. The certificates are made once, e.g. with openssl:

    security = distributed.Security(
        tls_ca_file="ca.pem", require_encryption=True,
        tls_scheduler_cert="cert.pem", tls_scheduler_key="key.pem",
        tls_worker_cert="cert.pem", tls_worker_key="key.pem",
        tls_client_cert="cert.pem", tls_client_key="key.pem",
    )
    client = distributed.Client("tls://scheduler:8786", security=security)
"""

from __future__ import annotations

import dask.array as da
import numpy as np
from distributed import Client, LocalCluster

import eigenmesh as em
from eigenmesh.data.synthetic import gene_like
from eigenmesh.graphs.gossip_average import gossip_average


def main() -> None:
    # A cluster on this machine; on a real one: Client("tcp://scheduler:8786").
    cluster = LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None)
    with cluster, Client(cluster) as client:
        X, _ = gene_like(n_samples=150, n_features=3000, random_state=0)
        table = da.from_array(X, chunks=(-1, 1000))  # e.g. da.from_zarr(...): a party a chunk
        fitted, new = client.persist(table[:120]), table[120:]

        # An estimator takes the array as it is. Each chunk is a party at the worker that holds it.
        kpca = em.OneShotKPCA(n_components=4, kernel="rbf", gamma="mean-distance", local_rank=120)
        kpca.fit(fitted)
        print(kpca.report_)
        scores = kpca.transform(new)
        pooled = em.OneShotKPCA(4, kernel="rbf", gamma=kpca.gamma_, local_rank=120).fit(X[:120])
        difference = np.abs(scores - pooled.transform(X[120:])).max()
        print("equal to the pooled answer:", difference < 1e-8, "\n")

        # With a federation: a topology, a timeout, and what becomes of a worker that dies.
        by_rows = da.from_array(X[:, :3], chunks=(50, -1))
        options = {"topology": "ring", "timeout": 30, "on_loss": "survivors"}
        with em.federation(by_rows, engine="dask", client=client, **options) as fed:
            found = fed.run(gossip_average, 20)  # from worker to worker, no coordinator
            print("mean at every party:", [np.round(r.value, 3).tolist() for r in found.value])


if __name__ == "__main__":
    main()
