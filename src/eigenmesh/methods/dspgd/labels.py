"""Labels for who missed them: the last step of k-means, until every party has answered.

===================  ====================================================================
party keeps          its points and their labels
party reveals        the size of each cluster at this party, as in `distributed_kmeans`
coordinator learns   these
===================  ====================================================================
"""

from __future__ import annotations

from eigenmesh.numerics.arrays import Doubles
from eigenmesh.runtime.federation import Federation
from eigenmesh.runtime.protocol import protocol
from eigenmesh.runtime.schedule import Node, Scope, enlist, sequence, total
from eigenmesh.stages.ask_again import Patient
from eigenmesh.stages.kmeans_party import FinalCentres, KMeansSetup, PointHolder


def schedule(scope: Scope, setup: KMeansSetup, centres: tuple[int, int]) -> Node:
    """One question."""
    k, dim = centres
    return sequence(enlist(PointHolder, setup), total(PointHolder.assign, k=k, dim=dim))


@protocol("label-everybody", roles=(PointHolder,), skips=True, schedule=schedule)
def label_everybody(fed: Federation, setup: KMeansSetup, centres: Doubles) -> int:
    """How many parties now have labels of the points that they keep under `setup.points`."""
    fed.enlist(PointHolder, setup)
    return len(Patient(fed).total(PointHolder.assign, FinalCentres(centres)).parties)
