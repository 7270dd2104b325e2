"""Messages lost, spoilt or late, nodes that leave: the network's answer survives, and says so."""

from __future__ import annotations

import numpy as np
import pytest
from tests.graph_data import central_scores, digits, nodes
from tests.graph_faults import federation_over

import eigenmesh as em
from eigenmesh.errors import MessageRefused, PartyLost

LATTICE = ("lattice", 4)
N_NODES = 10


@pytest.fixture(scope="module")
def X():
    return digits()[0][:400]


@pytest.fixture(scope="module")
def parts(X):
    return nodes(X, N_NODES)


def admm(X, **options):
    return em.ADMMKPCA(1, topology=LATTICE, kernel="rbf", gamma=digits()[1], reference=X, **options)


def gossip(**options):
    common = {"topology": LATTICE, "kernel": "rbf", "gamma": digits()[1], "n_features": 40}
    return em.GossipKPCA(1, **common | {"n_rounds": 8} | options)


@pytest.fixture(scope="module")
def undisturbed(X, parts):
    return admm(X).fit(parts)


@pytest.mark.parametrize("on_loss", ["reuse", "survivors"])
def test_a_fifth_of_the_messages_lost(X, parts, undisturbed, on_loss):
    with federation_over(parts, LATTICE, on_loss=on_loss, loses=0.2) as fed:
        kpca = admm(X).fit(fed)
    assert kpca.nodes_ == parts.names
    assert abs(kpca.similarity_.mean() - undisturbed.similarity_.mean()) < 0.005
    assert abs(kpca.consensus_similarity_.mean() - undisturbed.consensus_similarity_.mean()) < 0.005
    assert np.all(kpca.similarity_ <= kpca.ceiling_ + 1e-6)
    report = kpca.report_
    missed = sum(report.reused.values()) + sum(report.dropped.values())
    assert missed > 400  # what goes along a tree is sent again
    assert "messages" in str(report)


def test_lost_messages_stop_the_run_if_nothing_else_was_asked_for(X, parts):
    with federation_over(parts, LATTICE, on_loss="raise", loses=0.2) as fed:
        with pytest.raises(PartyLost, match="no message came to"):
            admm(X).fit(fed)


def test_one_node_leaves_at_iteration_2(X, parts):
    """The others end as near to the components of all rows as their ceilings allow."""
    leaves = ("party-4", "offer_coefficients", 2)
    with federation_over(parts, LATTICE, on_loss="survivors", dies=leaves) as fed:
        kpca = admm(X, n_iterations=15).fit(fed)
    assert kpca.nodes_ == tuple(name for name in parts.names if name != "party-4")
    assert set(kpca.report_.lost) == {"party-4"}
    assert kpca.similarity_.mean() > 0.99 * kpca.ceiling_.mean()
    assert "party-4" not in kpca.node_models_
    assert kpca.eigenvalues_[0] < 32.6  # of the rows that are left


def test_one_node_leaves_and_nobody_said_what_then(X, parts):
    leaves = ("party-4", "offer_coefficients", 2)
    with federation_over(parts, LATTICE, on_loss="raise", dies=leaves) as fed:
        with pytest.raises(PartyLost) as caught:
            admm(X).fit(fed)
    assert caught.value.party == "party-4"


@pytest.mark.parametrize("step", ["offer_coefficients", "offer_projections", "offer_mixture"])
def test_a_nan_from_a_neighbour_is_named(X, parts, step):
    with federation_over(parts, LATTICE, on_loss="raise", spoils=("party-6", step, 3)) as fed:
        with pytest.raises(MessageRefused, match="not finite") as caught:
            admm(X, n_iterations=4).fit(fed)
    assert caught.value.party == "party-6"


@pytest.mark.parametrize("on_loss", ["reuse", "survivors"])
def test_a_nan_from_a_neighbour_is_contained(X, parts, undisturbed, on_loss):
    spoils = ("party-6", "offer_coefficients", 3)
    with federation_over(parts, LATTICE, on_loss=on_loss, spoils=spoils) as fed:
        kpca = admm(X).fit(fed)
    assert np.isfinite(kpca.transform(X)).all()
    assert abs(kpca.similarity_.mean() - undisturbed.similarity_.mean()) < 0.005
    told = kpca.report_.reused if on_loss == "reuse" else kpca.report_.dropped
    assert told == {"party-6": 4}


# No rows leave.


@pytest.mark.parametrize("on_loss", ["reuse", "survivors"])
def test_gossip_with_a_tenth_of_the_messages_lost(X, parts, on_loss):
    with federation_over(parts, LATTICE, on_loss=on_loss, loses=0.1) as fed:
        kpca = gossip(n_rounds=4).fit(fed)
    assert kpca.nodes_ == parts.names
    expected = central_scores(X, digits()[1], 1)[:, 0]
    for model in kpca.node_models_.values():
        assert abs(np.corrcoef(model.transform(X)[:, 0], expected)[0, 1]) > 0.99
    scores = np.hstack([model.transform(X) for model in kpca.node_models_.values()])
    assert np.ptp(scores, axis=1).max() < 1e-7


def test_gossip_when_a_node_leaves(X):
    leaves = ("party-4", "offer_mixture", 60)
    with federation_over(nodes(X, 6), LATTICE, on_loss="survivors", dies=leaves) as fed:
        kpca = gossip(n_rounds=4, averaging="gossip").fit(fed)
    assert set(kpca.report_.lost) == {"party-4"}
    assert len(kpca.node_models_) == 5
    expected = central_scores(X, digits()[1], 1)[:, 0]
    assert abs(np.corrcoef(kpca.transform(X)[:, 0], expected)[0, 1]) > 0.99


def test_gossip_names_the_sender_of_a_nan(parts):
    spoils = ("party-6", "offer_mixture", 30)
    with federation_over(parts, LATTICE, on_loss="raise", spoils=spoils) as fed:
        with pytest.raises(MessageRefused, match="not finite") as caught:
            gossip(averaging="gossip").fit(fed)
    assert caught.value.party == "party-6"
