"""A fifth of all messages lost and a node gone: the survivors' own answer, or a clear error."""

import networkx as nx
import numpy as np
import pytest

import eigenmesh as em
from eigenmesh.errors import PartyLost, TopologyError

pytestmark = pytest.mark.filterwarnings("ignore::eigenmesh.errors.EigenmeshWarning")
GRAPHS = {
    "ring": nx.cycle_graph,
    "lattice": lambda n: nx.circulant_graph(n, [1, 2]),
    "path": nx.path_graph,
    "star": lambda n: nx.star_graph(n - 1),
    "regular": lambda n: nx.random_regular_graph(4, n, seed=n),
}
RBF = {"kernel": "rbf", "gamma": 0.2}
STANDARD = em.Preparation(standardize=True)
OF_ROWS = {
    "centroids": lambda k, seed: em.GossipKPCA(k, **RBF, n_features=24, random_state=seed),
    "random": lambda k, seed: em.GossipKPCA(
        k, **RBF, features="random", n_features=20, random_state=seed
    ),
    "by rounds": lambda k, seed: em.GossipKPCA(1, **RBF, n_rounds=3, random_state=seed),
    "a rule": lambda k, seed: em.GossipKPCA(
        k, kernel="rbf", gamma="median", n_features=24, random_state=seed
    ),
    "prepared": lambda k, seed: em.KernelPCA(k, **RBF, preparation=STANDARD, random_state=seed),
    "clusters": lambda k, seed: em.KernelKMeans(3, gamma=0.2, n_init=1, random_state=seed),
    "ridge": lambda k, seed: em.KernelPCRegressor(k, **RBF, random_state=seed),
}
OF_COLUMNS = {
    "linear": lambda k, seed: em.VFedPCA(k, random_state=seed),
    "a share": lambda k, seed: em.VFedPCA(0.8, random_state=seed),
    "kernel": lambda k, seed: em.VFedAKPCA(k, gamma="mean-distance", random_state=seed),
}


class DrawnFit:
    """An estimator, its parties and their graph; parties are unlike each other."""

    def __init__(self, name, seed):
        rng = np.random.default_rng([seed, len(name)])
        self.n = int(rng.integers(5, 9))
        self.graph = GRAPHS[str(rng.choice(list(GRAPHS)))](self.n)
        self.names = [f"party-{i}" for i in range(self.n)]
        self.k, self.seed = int(rng.integers(1, 4)), int(rng.integers(1000))
        build = (OF_ROWS | OF_COLUMNS)[name]
        self.build = lambda: build(self.k, self.seed)
        self.split = "rows" if name in OF_ROWS else "columns"
        spread = np.arange(1, 5) ** -0.8
        if self.split == "rows":
            X = rng.normal(size=(20 * self.n, 4)) * spread
            self.blocks = np.array_split(X[np.argsort(X[:, 0])], self.n)
        else:
            X = rng.normal(size=(30, 3 * self.n))
            self.blocks = np.array_split(X, self.n, axis=1)
        self.targets = [block @ np.ones(block.shape[1]) for block in self.blocks]
        self.rng = rng

    def fit(self, here=None, **options):
        """To those who are `here`, on what is left of the graph."""
        here = range(self.n) if here is None else here
        parts = em.Partitioned(
            **{self.split: [self.blocks[i] for i in here]}, names=[self.names[i] for i in here]
        )
        graph = nx.convert_node_labels_to_integers(self.graph.subgraph(here), ordering="sorted")
        y = [self.targets[i] for i in here]
        with em.federation(parts, topology=graph, **options) as fed:
            model = self.build()
            return model.fit(fed, *([y] if isinstance(model, em.KernelPCRegressor) else []))

    def faults(self, rounds):
        """A fifth of what passes each link, and a node that is gone at some time."""
        links = [pair for u, v in self.graph.edges for pair in ((u, v), (v, u))]
        lose = {"kind": "lose", "share": 0.2, "seed": self.seed}
        lost = [em.Fault(party=self.names[a], to=self.names[b], **lose) for a, b in links]
        gone = self.names[int(self.rng.integers(self.n))]
        return [*lost, em.Fault("kill", gone, round=int(self.rng.integers(1, rounds)))]


def numbers_of(model):
    """All that the parties' data have gone into."""
    more = [getattr(model, name, None) for name in ("gamma_", "inertia_", "coef_")]
    known = [model.eigenvalues_, *(np.ravel(one) for one in more if one is not None)]
    return np.concatenate(known)


def agree_to_the_last_bit(model):
    if getattr(model, "node_vectors_", None) is not None:
        nodes = list(model.node_vectors_)
    else:
        of_features = hasattr(model, "features") and model.features == "random"
        field = "components" if of_features else "coefficients"
        door = model.estimator_ if isinstance(model, em.KernelPCRegressor) else model
        nodes = [getattr(own, field) for own in door.node_models_.values()]
    assert len(nodes) == len(model.report_.parties)
    return all(np.array_equal(own, nodes[0]) for own in nodes)


@pytest.mark.parametrize("name", [*OF_ROWS, *OF_COLUMNS])
def test_the_answer_is_the_survivors_own_or_there_is_a_clear_error(name):
    errors = list[str]()
    for seed in range(2 if name == "clusters" else 3):
        drawn = DrawnFit(name, seed)
        whole = drawn.fit()
        faults = drawn.faults(whole.report_.rounds)
        try:
            model = drawn.fit(on_loss="survivors", faults=faults)
        except (TopologyError, PartyLost) as error:
            errors.append(str(error))
            continue
        here = [i for i, own in enumerate(drawn.names) if own in model.report_.parties]
        alone = drawn.fit(here)
        np.testing.assert_allclose(
            numbers_of(model), numbers_of(alone), rtol=1e-8, err_msg=f"{seed}"
        )
        assert agree_to_the_last_bit(model)
    assert len(errors) <= seed, "there was no answer at all"
    assert all("party-" in error for error in errors)


def test_a_graph_that_fell_apart_while_nobody_sent_is_an_error_and_blames_nobody():
    """The hub answers no more when sizes are asked for, before there is anything to send."""
    columns = np.array_split(np.random.default_rng(0).normal(size=(20, 12)), 6, axis=1)
    parts = em.Partitioned(columns=columns)
    gone = [em.Fault("kill", "party-0", round=1)]
    with em.federation(parts, topology="star", on_loss="survivors", faults=gone) as fed:
        with pytest.raises(TopologyError, match="falls into 5 parts.*lost: 'party-0'") as caught:
            em.VFedPCA(0.9).fit(fed)
    assert "may have caused it" not in str(caught.value)
