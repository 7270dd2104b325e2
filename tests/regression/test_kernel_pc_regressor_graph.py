"""KernelPCRegressor on a graph: the pooled answer without a centre, or it says by how much not."""

from collections import Counter

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_diabetes
from sklearn.decomposition import KernelPCA
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from tests.engines.contract import ENGINES
from tests.graph_faults import federation_over

import eigenmesh as em
from eigenmesh.engines.faulty import Fault
from eigenmesh.errors import FederationError, InputError, PartyLost, PolicyRefusal
from eigenmesh.regression.graph_ridge import PROBES, GraphRidgeSetup, GraphTargets
from eigenmesh.runtime.site import Site, SiteView

# What the features miss is the business of test_graph_accuracy.
pytestmark = pytest.mark.filterwarnings(
    "ignore:.*((features|centroids) (miss|are off)|rows that a centroid|still moves)"
)

X, Y = load_diabetes(return_X_y=True)
X = StandardScaler().fit_transform(X)
ORDER = np.argsort(Y)  # every node then has a range of targets of its own
X, Y = X[ORDER], Y[ORDER]
TWO = np.column_stack([Y, 1e5 + np.sin(X[:, 0])])


def nodes(n_nodes=4, y=Y, rows=X, **options):
    places = np.array_split(np.arange(rows.shape[0]), n_nodes)
    return em.Partitioned(rows=[rows[p] for p in places], **options), [y[p] for p in places]


def pooled(k, alpha, y=Y, **kernel):
    pca = KernelPCA(k, eigen_solver="dense", **kernel)
    return make_pipeline(pca, Ridge(alpha, solver="svd")).fit(X, y)


@pytest.fixture(scope="module")
def on_a_ring():
    """Four nodes and a model of two targets, for tests that only look at it."""
    parts, targets = nodes(y=TWO)
    model = em.KernelPCRegressor(4, gamma=0.05, topology="ring", random_state=0)
    return parts, targets, model.fit(parts, targets)


def assert_ridge_of_scores(model, rows, y, alpha=1.0):
    """The penalised fit of all targets to the model's own scores."""
    Z = model.transform(rows)
    expected = Ridge(alpha, solver="svd").fit(Z, y).predict(Z)
    np.testing.assert_allclose(model.predict(rows), expected, rtol=1e-8)


@pytest.mark.parametrize(("topology", "y"), [("ring", Y), ("star", TWO), ("full", TWO)])
def test_equals_scikit_learn_on_all_linear_components(topology, y):
    parts, targets = nodes(5, y)
    model = em.KernelPCRegressor(10, alpha=3.0, kernel="linear", topology=topology)
    model.fit(parts, targets)
    theirs = pooled(10, 3.0, y)
    np.testing.assert_allclose(model.predict(X), theirs.predict(X), rtol=1e-8)
    assert model.r_squared_ == pytest.approx(theirs.score(X, y), rel=1e-8)
    assert model.method_.startswith("gossip: 5 parties hold rows")


def test_a_single_node_is_exact():
    model = em.KernelPCRegressor(5, gamma=0.05, topology="full").fit(*nodes(1))
    np.testing.assert_allclose(
        model.predict(X), pooled(5, 1.0, kernel="rbf", gamma=0.05).predict(X), rtol=1e-8
    )


@pytest.mark.parametrize("alpha", [0.0, 100.0])
def test_equals_the_coordinators_ridge_on_the_same_components(alpha):
    parts, targets = nodes(4, TWO)
    model = em.KernelPCRegressor(8, alpha=alpha, gamma=0.05, topology="ring", random_state=0)
    assert_ridge_of_scores(model.fit(parts, targets), X, TWO, alpha)
    assert model.r_squared_ == pytest.approx(model.score(X, TWO), rel=1e-9)


def test_components_are_those_of_the_front_door(on_a_ring):
    parts, _, model = on_a_ring
    door = em.KernelPCA(4, kernel="rbf", gamma=0.05, topology="ring", random_state=0).fit(parts)
    np.testing.assert_array_equal(model.transform(X), door.transform(X))
    np.testing.assert_array_equal(model.eigenvalues_, door.eigenvalues_)
    assert model.method_ == door.method_


def test_an_open_federation_brings_its_graph(on_a_ring):
    parts, targets, alike = on_a_ring
    with em.federation(parts, topology="ring") as fed:
        model = em.KernelPCRegressor(4, gamma=0.05, random_state=0).fit(fed, targets)
    np.testing.assert_array_equal(model.predict(X), alike.predict(X))
    with em.federation(parts) as fed, pytest.raises(InputError, match="topology is 'ring'"):
        em.KernelPCRegressor(4, topology="ring").fit(fed, targets)


def test_predictions_of_nodes_come_as_a_list(on_a_ring):
    parts, _, model = on_a_ring
    np.testing.assert_allclose(np.concatenate(model.predict(parts)), model.predict(X), rtol=1e-10)


def test_sparse_rows_go_in():
    rows = np.where(np.abs(X) > 0.5, X, 0.0)
    dense, targets = nodes(rows=rows)
    sparse, _ = nodes(rows=sp.csr_array(rows))
    model = em.KernelPCRegressor(4, gamma=0.05, topology="full", random_state=0)
    expected = model.fit(dense, targets).predict(rows)
    np.testing.assert_allclose(model.fit(sparse, targets).predict(rows), expected, rtol=1e-6)


# What it costs.


@pytest.mark.parametrize("topology", ["ring", "star"])
@pytest.mark.parametrize("method", ["gossip", "admm"])
@pytest.mark.filterwarnings("ignore:what is missing of the eigenvalues is not known")
def test_floats_equal_the_plan(method, topology):
    parts, targets = nodes(5)
    model = em.KernelPCRegressor(
        4, kernel="linear", method=method, topology=topology, random_state=0
    )
    plan, report = em.plan(model, parts), model.fit(parts, targets).report_
    assert (plan.floats_up, plan.floats_down, plan.rounds) == (
        report.floats_up,
        report.floats_down,
        report.rounds,
    )
    assert plan.by_step == report.by_step
    assert plan.by_party == report.by_party
    assert plan.reveals == report.reveals


def test_the_plan_of_an_open_federation_knows_its_graph():
    parts, targets = nodes(5)
    model = em.KernelPCRegressor(4, gamma=0.05, random_state=0, accuracy=0.15)  # one look is enough
    with em.federation(parts, topology="star") as fed:
        plan, report = em.plan(model, fed), model.fit(fed, targets).report_
    assert (plan.floats_up, plan.rounds) == (report.floats_up, report.rounds)


def test_regression_adds_what_the_formula_says(on_a_ring):
    n_nodes, k, d, m = 4, 4, X.shape[1], TWO.shape[1]
    parts, _, model = on_a_ring
    sent = model.report_.by_step
    equations = k * (k + 1) // 2 + k * m + k + 2 * m + 1
    up_and_down = 2 * (n_nodes - 1)  # over the links of a tree
    assert sent["GraphTargets.offer_mixture"] == up_and_down * (m + 1 + equations)
    assert sent["GraphTargets.offer_peak"] == up_and_down * 3 * d
    assert sent["GraphTargets.solve"] == n_nodes * m * (k + 2 + PROBES)
    door = em.KernelPCA(k, kernel="rbf", gamma=0.05, topology="ring", random_state=0).fit(parts)
    others = sum(floats for step, floats in sent.items() if not step.startswith("GraphTargets"))
    assert others == door.report_.floats_up


def test_the_same_answer_on_every_engine():
    parts, targets = nodes(3, rows=X[:150], y=Y[:150])
    found, ledgers = [], []
    for engine in ENGINES:
        with engine.open(parts, topology="full") as fed:  # mixed at once, so few rounds
            model = em.KernelPCRegressor(4, gamma=0.05, random_state=0).fit(fed, targets)
        found.append(model.predict(X))
        sent = Counter(model.report_.by_step)
        ledgers.append({step: n for step, n in sent.items() if step.startswith("GraphTargets")})
    for other, ledger in zip(found[1:], ledgers[1:], strict=True):
        np.testing.assert_allclose(other, found[0], rtol=1e-8)
        assert ledger == ledgers[0]


# Nodes that do not agree.


@pytest.mark.filterwarnings("ignore:z of")
@pytest.mark.filterwarnings("ignore:what is missing of the eigenvalues is not known")
def test_by_how_much_nodes_differ_is_told_and_true():
    parts, targets = nodes(6)
    model = em.KernelPCRegressor(5, kernel="rbf", gamma=0.02, topology="ring", method="admm")
    with pytest.warns(em.EigenmeshWarning, match="probe points are at most") as caught:
        model.fit(parts, targets)
    told = float(str(caught[-1].message).split("at most ")[1].split()[0])
    each = [node.transform(X) @ model.coef_ for node in model.estimator_.node_models_.values()]
    apart = max(np.sqrt(np.mean((own - each[0]) ** 2)) for own in each) / each[0].std()
    assert apart / 3 < told < 3 * apart
    assert str(caught[-1].message) in model.report_.notes


def test_one_answer_of_all_nodes_is_told_too(on_a_ring):
    *_, model = on_a_ring
    (words,) = [note for note in model.report_.notes if "probe points" in note]
    assert float(words.split("at most ")[1].split()[0]) < 1e-9


@pytest.mark.parametrize("n_rows", [4, 5])
def test_a_node_of_few_rows_tells_nothing_of_its_columns(n_rows):
    site = Site("north", lambda: X[:n_rows], store={"y": {"targets": Y[:n_rows]}})
    mixing = {"mix_centre": 0.0, "mix_radius": 0.0, "lossy": False, "push_sum": False}
    setup = GraphRidgeSetup(**mixing, alpha=1.0, seed=0, targets="y")
    party = GraphTargets(SiteView(site, 0, ("north",)), setup)
    party.begin_centre()
    assert party.offer_peak().value.any() == (n_rows == 5)


@pytest.mark.filterwarnings("ignore:the iteration has not come to rest")  # true, and not enough
def test_nodes_that_do_not_agree_are_refused():
    parts, targets = nodes(4)
    with federation_over(parts, "ring", on_loss="reuse", loses=0.75, seed=1) as fed:
        with pytest.raises(FederationError, match=r"of their spread apart, at most 10%.*choose"):
            model = em.KernelPCRegressor(2, kernel="linear", averaging="gossip", random_state=0)
            model.fit(fed, targets)


@pytest.mark.parametrize("on_loss", ["reuse", "survivors"])
def test_lost_messages_do_not_change_the_answer(on_loss):
    parts, targets = nodes(3, TWO)
    with federation_over(parts, "full", on_loss=on_loss, loses=0.2, seed=2) as fed:
        by_gossip = {"averaging": "gossip", "random_state": 0}
        model = em.KernelPCRegressor(10, kernel="linear", **by_gossip).fit(fed, targets)
    assert sum(model.report_.dropped.values()) + sum(model.report_.reused.values()) > 0
    np.testing.assert_allclose(model.predict(X), pooled(10, 1.0, TWO).predict(X), rtol=1e-8)


# Nodes that are lost.


def test_a_lost_node_is_named():
    parts, targets = nodes()
    with em.federation(parts, topology="full", faults=[Fault("kill", "party-1", 3)]) as fed:
        with pytest.raises(PartyLost, match="party-1"):
            em.KernelPCRegressor(4, gamma=0.05).fit(fed, targets)


def linear_fit(fed, targets):
    with fed.recording() as recording:
        by_gossip = {"averaging": "gossip", "random_state": 0}
        model = em.KernelPCRegressor(4, kernel="linear", **by_gossip).fit(fed, targets)
    return model, recording.ledger


def assert_goes_without_party_1(model, parts, targets):
    assert set(model.report_.lost) == {"party-1"}
    kept = [i for i in range(len(targets)) if i != 1]
    rows = np.vstack([parts.parts[i] for i in kept])
    assert_ridge_of_scores(model, rows, np.concatenate([targets[i] for i in kept]))


@pytest.fixture(scope="module")
def undisturbed():
    """The ledger of a fit in which nobody is lost."""
    parts, targets = nodes(3)
    with federation_over(parts, "full", on_loss="survivors") as fed:
        return linear_fit(fed, targets)[1]


@pytest.mark.parametrize("left", [2, 100, 200], ids=["equations", "centre", "components"])
def test_survivors_fit_their_own_targets(undisturbed, left):
    parts, targets = nodes(3)
    sent = [entry for entry in undisturbed if entry.step.endswith("offer_mixture")]
    offers = sum(entry.sender == "party-1" for entry in sent) // 2  # to two neighbours
    dies = ("party-1", "offer_mixture", offers - left)
    with federation_over(parts, "full", on_loss="survivors", dies=dies) as fed:
        model, _ = linear_fit(fed, targets)
    assert_goes_without_party_1(model, parts, targets)


def test_who_is_lost_at_the_last_question_is_not_in_the_answer(undisturbed):
    parts, targets = nodes(3)
    faults = [Fault("kill", "party-1", undisturbed.rounds)]
    with em.federation(parts, topology="full", on_loss="survivors", faults=faults) as fed:
        model, again = linear_fit(fed, targets)
    assert again.rounds > undisturbed.rounds  # the equations were averaged anew
    assert_goes_without_party_1(model, parts, targets)


# What is refused.


def test_a_node_that_forbids_sums_is_named_before_anything_leaves():
    no_sums = em.Policy(allow={"centroids", "rows", "counts"})
    parts, targets = nodes(policies=[None, no_sums, None, None])
    with em.federation(parts, topology="ring") as fed, fed.recording() as recording:
        with pytest.raises(PolicyRefusal, match="'moments'") as caught:
            em.KernelPCRegressor(4, gamma=0.05).fit(fed, targets)
    assert caught.value.party == "party-1"
    assert not list(recording.ledger)


def test_components_go_by_what_nodes_let_out():
    only_moments = em.Policy(allow={"moments", "counts"})
    parts, targets = nodes(policies=[only_moments] * 4)
    model = em.KernelPCRegressor(4, gamma=0.05, topology="ring", random_state=0)
    plan = em.plan(model, parts)
    model.fit(parts, targets)
    assert model.method_.startswith(
        "gossip: 4 parties hold rows; neighbours average moments of random"
    )
    assert set().union(*model.report_.reveals.values()) == only_moments.allow
    assert plan.floats_up == model.report_.floats_up
    assert_ridge_of_scores(model, X, Y)


@pytest.mark.parametrize(
    ("y", "words"),
    [
        (None, "requires y"),
        (Y, "list of 2 arrays"),
        ([np.ones(221), np.ones(220)], "party-1.*221 rows and 220 targets"),
        ([np.ones(221), np.full(221, np.nan)], "party-1.*finite"),
        ([np.ones(221), np.ones((221, 2))], "n_targets"),
    ],
)
def test_targets_that_do_not_fit_are_named_before_anything_leaves(y, words):
    parts, _ = nodes(2)
    with em.federation(parts, topology="full") as fed, fed.recording() as recording:
        with pytest.raises(em.EigenmeshError, match=words):
            em.KernelPCRegressor(3, gamma=0.05).fit(fed, y)
    assert recording.ledger.floats_up == 0


def test_methods_with_a_coordinator_are_refused_on_a_graph():
    with pytest.raises(
        InputError, match="method is 'diskpca'; for rows .*on a graph.*gossip, admm"
    ):
        em.KernelPCRegressor(3, method="diskpca", topology="ring").fit(*nodes())


def test_targets_do_not_stay_in_the_store():
    parts, targets = nodes()
    with em.federation(parts, topology="full") as fed:
        em.KernelPCRegressor(3, gamma=0.05).fit(fed, targets)
        for site in fed.local_sites().values():
            assert not any("targets" in kept for kept in site.store.values())


def test_a_saved_model_predicts_the_same(on_a_ring, tmp_path):
    parts, _, model = on_a_ring
    model.save(tmp_path / "model.em", parties=True)
    loaded = em.load(tmp_path / "model.em")
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))
    assert loaded.method_ == model.method_
    assert set(loaded.estimator_.node_models_) == set(parts.names)
