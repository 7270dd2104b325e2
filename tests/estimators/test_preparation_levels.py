"""Categories over parties equal scikit-learn's OneHotEncoder on the pooled rows, medians too."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import KernelPCA
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from tests.graph_faults import federation_over

import eigenmesh as em
from eigenmesh.errors import InputError, PartitionError, PolicyRefusal
from eigenmesh.stages.prepare_rows import prepare_rows
from eigenmesh.stages.prepare_rows_on_graph import prepare_rows_on_graph

WORDS, NUMBERS = ["ward", "sex"], ["age", "dose"]


def drawn_frames(seed, n=150):
    """Three parties; levels that are frequent, rare, missing, and scattered over the parties."""
    rng = np.random.default_rng(seed)
    levels = [f"w{i}" for i in range(int(rng.integers(4, 12)))]
    odds = rng.dirichlet(0.5 * np.ones(len(levels)))
    ward = rng.choice(levels, n, p=odds).astype(object)
    ward[rng.random(n) < 0.05] = None
    frame = pd.DataFrame({"age": rng.normal(50, 9, n), "ward": ward})
    frame["sex"] = rng.choice([1.0, 2.0, 9.0], n, p=[0.5, 0.47, 0.03])
    frame["dose"] = rng.lognormal(size=n)
    frame.loc[rng.random(n) < 0.1, "dose"] = np.nan
    frame.loc[::17, "ward"] = "scattered"
    cuts = [int(rng.integers(30, 60)), int(rng.integers(90, 120))]
    return frame, [frame[: cuts[0]], frame[cuts[0] : cuts[1]], frame[cuts[1] :]]


def pooled_pipeline(fill_with, min_rows):
    levels = OneHotEncoder(
        min_frequency=min_rows, handle_unknown="infrequent_if_exist", sparse_output=False
    )
    numbers = make_pipeline(SimpleImputer(strategy=fill_with), StandardScaler())
    return ColumnTransformer([("numbers", numbers, NUMBERS), ("levels", levels, WORDS)])


def new_rows(frame, seed):
    rng = np.random.default_rng(seed)
    new = frame.sample(40, random_state=seed).reset_index(drop=True)
    new.loc[rng.random(40) < 0.2, "ward"] = "never seen"
    new.loc[rng.random(40) < 0.2, "age"] = np.nan
    return new


def split(frames, **how):
    return em.Partitioned(rows=frames, categories=WORDS, allow_missing=True, **how)


def distances(rows):
    return np.square(rows[:, None] - rows[None]).sum(axis=2)


@pytest.mark.parametrize("seed", range(6))
def test_fit_and_transform_equal_the_pooled_pipeline(seed):
    frame, frames = drawn_frames(seed)
    fill_with, min_rows = ["mean", "median"][seed % 2], [5, 8, 1][seed % 3]
    reference = pooled_pipeline(fill_with, min_rows).fit(frame)
    how = em.Preparation(True, 0.5, fill_with=fill_with, categories=WORDS, min_rows=min_rows)
    kpca = em.KernelPCA(2, kernel="rbf", gamma=None, preparation=how, random_state=0)
    kpca.set_params(landmarks="uniform", n_landmarks=1000).fit(split(frames))
    new = new_rows(frame, seed)
    expected = reference.transform(new)
    rows = kpca.preparation_.apply(split([new]).part(0))
    assert rows.shape == expected.shape
    # Levels come in another order, which no kernel minds.
    np.testing.assert_allclose(distances(rows), distances(expected), rtol=1e-10, atol=1e-10)
    central = KernelPCA(2, kernel="rbf").fit(reference.transform(frame))
    np.testing.assert_allclose(kpca.eigenvalues_, central.eigenvalues_, rtol=1e-10)
    scores = np.abs(kpca.transform(new))
    np.testing.assert_allclose(scores, np.abs(central.transform(expected)), atol=1e-8)
    alone = em.KernelPCA(2, kernel="rbf", preparation=how).fit(frame)
    np.testing.assert_allclose(alone.eigenvalues_, central.eigenvalues_, rtol=1e-10)


def on_graph(how, topology, **more):
    return em.KernelPCA(2, kernel="linear", preparation=how, topology=topology, **more)


@pytest.mark.parametrize("seed", range(8))
def test_nodes_of_a_drawn_graph_prepare_as_the_pooled_pipeline_does(seed):
    rng = np.random.default_rng([seed, 41])
    frame, _ = drawn_frames(seed)
    frame["age"] += [0.0, 1e9][seed % 2]  # deviations of 1e-8 of the mean are no rounding
    names = rng.permutation(list(frame.columns)).tolist()
    n_nodes = int(rng.integers(2, 8))
    cuts = np.sort(rng.choice(np.arange(6, len(frame) - 6, 6), n_nodes - 1, replace=False))
    owned = [np.arange(len(frame))[a:b] for a, b in zip([0, *cuts], [*cuts, None], strict=True)]
    parts = split([frame[names].iloc[own] for own in owned])
    topology = nx.random_labeled_tree(n_nodes, seed=seed)
    topology.add_edge(*rng.choice(n_nodes, 2, replace=False).tolist())
    fill_with, min_rows = ["median", "mean"][seed % 4 == 3], int(rng.integers(1, 12))
    how = em.Preparation(True, 0.5, fill_with=fill_with, categories=WORDS, min_rows=min_rows)
    kpca = on_graph(how, topology, random_state=0).fit(parts)
    reference = pooled_pipeline(fill_with, min_rows).fit(frame)
    new = new_rows(frame, seed)
    expected = reference.transform(new)
    rows = kpca.preparation_.apply(split([new[names]]).part(0))
    assert rows.shape == expected.shape
    # A mean of 1e9 is rounded by 1e-7, over the deviation of 9 by 1e-8: in both pipelines.
    exact = {"rtol": 1e-10, "atol": 1e-10} if seed % 2 == 0 else {"rtol": 1e-7, "atol": 1e-7}
    np.testing.assert_allclose(distances(rows), distances(expected), **exact)
    central = KernelPCA(2).fit(reference.transform(frame))
    np.testing.assert_allclose(kpca.eigenvalues_, central.eigenvalues_, rtol=1e-7)
    plan = em.plan(clone(kpca), parts)
    assert plan.baseline_floats == kpca.report_.baseline_floats  # of rows as their owners have them
    planned, sent = plan.by_step, kpca.report_.by_step
    for step in ("begin_counts", "offer_counts", "offer_mixture", "begin_levels"):
        name = f"PreparingNode.{step}"
        assert planned.get(name) == sent.get(name), name


@pytest.mark.parametrize("averaging", ["gossip", "push-sum"])
@pytest.mark.parametrize("how", [{"fill_with": "median"}, {"categories": WORDS}])
def test_where_averages_are_not_exact_levels_and_medians_are_refused(averaging, how):
    _, frames = drawn_frames(30)
    setup = em.Preparation(fill_missing=0.5, **how).setup(frames[0].columns)
    with em.federation(split(frames), topology="full", averaging=averaging) as fed:
        with fed.recording() as recording, pytest.raises(InputError, match="averaging='tree'"):
            fed.run(prepare_rows_on_graph, setup)
    assert not len(list(recording.ledger))
    if averaging == "gossip":
        door = em.KernelPCA(2, preparation=em.Preparation(fill_missing=0.5, **how))
        with em.federation(split(frames), topology="ring", averaging=averaging) as fed:
            with pytest.raises(InputError, match="averaging is 'gossip'.*averaging='tree'"):
                em.plan(door, fed)
            with pytest.raises(InputError, match="averaging is 'gossip'.*averaging='tree'"):
                door.fit(fed)


@pytest.mark.parametrize("step", ["offer_counts", "offer_levels"])
def test_without_a_node_that_leaves_rows_are_prepared_as_those_of_the_others(step):
    frame, frames = drawn_frames(31, n=200)
    owned = np.array_split(np.arange(200), 5)
    parts = split([frame.iloc[own] for own in owned])
    dies = (parts.names[3], step, 2)
    how = em.Preparation(True, 0.5, fill_with="median", categories=WORDS).setup(frame.columns)
    with federation_over(parts, "full", on_loss="survivors", dies=dies) as fed:
        outcome = fed.run(prepare_rows_on_graph, how).value
        assert parts.names[3] not in fed.parties
    left = frame.iloc[np.concatenate([own for i, own in enumerate(owned) if i != 3])]
    expected = pooled_pipeline("median", 5).fit(left).transform(left)
    rows = outcome.apply(split([left]).part(0))
    np.testing.assert_allclose(distances(rows), distances(expected), rtol=1e-10, atol=1e-10)


def test_nodes_without_rows_to_tell_tell_no_level_of_few_and_refuse_medians():
    _, frames = drawn_frames(21)
    policy = em.Policy(allow={"moments", "counts", "hashes"}, min_rows=5)
    setups = [
        em.Preparation(True, 0.5, categories=WORDS, fill_with=how).setup(frames[0].columns)
        for how in ("mean", "median")
    ]
    with em.federation(split(frames, policies=policy)) as fed:
        central = fed.run(prepare_rows, setups[0]).value
    with em.federation(split(frames, policies=policy), topology="ring") as fed:
        own = fed.run(prepare_rows_on_graph, setups[0]).value
        with pytest.raises(PolicyRefusal, match="offer_counts"):
            fed.run(prepare_rows_on_graph, setups[1])
    assert own.withheld
    assert own.in_words() == central.in_words()
    assert own.rule.level_keys.tolist() == central.rule.level_keys.tolist()


def test_whoever_asks_nodes_learns_no_level_that_has_no_column():
    _, frames = drawn_frames(32)
    setup = em.Preparation(fill_missing=0.5, categories=WORDS, min_rows=20).setup(frames[0].columns)
    with em.federation(split(frames), topology="ring") as fed, fed.recording() as recording:
        outcome = fed.run(prepare_rows_on_graph, setup).value
    listed = outcome.rule.level_keys
    (reply,) = [
        entry
        for entry in recording.ledger
        if entry.step == "PreparingNode.tell_levels" and entry.receiver == "coordinator"
    ]
    assert len(listed)
    assert reply.floats <= 3 * len(listed)


def test_levels_that_do_not_come_apart_are_an_error_on_graphs_too():
    many = [pd.DataFrame({"x": [f"{i} {j}" for j in range(500)]}) for i in range(2)]
    with em.federation(em.Partitioned(rows=many, categories=["x"]), topology="full") as fed:
        with pytest.raises(InputError, match="so many levels"):
            fed.run(prepare_rows_on_graph, em.Preparation(categories=["x"]).setup(["x"]))


def test_masked_tables_and_counts_tell_totals_alone():
    pytest.importorskip("cryptography", reason="the extra 'secure' is not installed")
    frame, frames = drawn_frames(20)
    how = em.Preparation(True, 0.5, fill_with="median", categories=WORDS)
    kpca = em.KernelPCA(2, preparation=how)
    with em.federation(split(frames), secure=True) as fed:
        kpca.fit(fed)
    expected = pooled_pipeline("median", 5).fit(frame).transform(frames[0])
    rows = kpca.preparation_.apply(split(frames).part(0))
    np.testing.assert_allclose(distances(rows), distances(expected), rtol=1e-6, atol=1e-6)
    assert all(set(kinds) <= {"counts", "aggregate"} for kinds in kpca.report_.reveals.values())


def test_masked_sums_of_columns_in_unlike_units_are_as_exact_as_of_one():
    pytest.importorskip("cryptography", reason="the extra 'secure' is not installed")
    rng = np.random.default_rng(5)
    X = rng.normal([100, 0, 3, 1], size=(90, 4)) * [1e9, 1e-6, 1.0, 1e3]
    expected = StandardScaler().fit_transform(X)
    kpca = em.KernelPCA(2, kernel="linear", preparation=em.Preparation(standardize=True))
    with em.federation(em.Partitioned(rows=[X[:40], X[40:]]), secure=True) as fed:
        kpca.fit(fed)
    np.testing.assert_allclose(kpca.preparation_.apply(X), expected, rtol=1e-10, atol=1e-10)


def test_a_policy_without_rows_tells_no_level_of_few_rows_and_the_report_says_so():
    _, frames = drawn_frames(21)
    policy = em.Policy(allow={"moments", "counts", "hashes"}, min_rows=5)
    how = em.Preparation(True, 0.5, categories=WORDS)
    with em.federation(split(frames, policies=policy)) as fed:
        kpca = em.KernelPCA(2, preparation=how).fit(fed)
    own = [frame["ward"].value_counts() for frame in frames]
    told = {level for counts in own for level, n in counts.items() if n >= 5}
    columns = kpca.preparation_.names_out(kpca.feature_names_in_)
    levels = {name.partition(" = ")[2] for name in columns if name.startswith("ward = ")}
    assert levels - {"other", "missing"} == told
    scattered = sum((frame["ward"] == "scattered").sum() for frame in frames)
    assert scattered >= 5 > max(counts.get("scattered", 0) for counts in own)
    assert kpca.preparation_.n_withheld >= scattered
    assert "do not tell" in " ".join(kpca.report_.notes)


def test_medians_are_refused_where_no_rows_may_leave_before_anything_has():
    _, frames = drawn_frames(22)
    policy = em.Policy(allow={"moments", "counts", "hashes"})
    how = em.Preparation(fill_missing=0.5, fill_with="median", categories=WORDS)
    with em.federation(split(frames, policies=policy)) as fed:
        with pytest.raises(PolicyRefusal, match="count_below"):
            em.KernelPCA(2, preparation=how).fit(fed)


def test_columns_of_levels_are_no_numbers():
    _, frames = drawn_frames(23)
    with pytest.raises(PartitionError, match=r"categories=\.\.\."):
        em.KernelPCA(2).fit(split(frames))
    with pytest.raises(PartitionError, match="column 2"):
        em.KernelPCA(2, preparation=em.Preparation(True, 0.5, categories=["ward"])).fit(
            split(frames)
        )
    with pytest.raises(InputError, match="so many levels"):
        many = [pd.DataFrame({"x": [f"{i} {j}" for j in range(500)]}) for i in range(2)]
        parts = em.Partitioned(rows=many, categories=["x"])
        em.KernelPCA(1, preparation=em.Preparation(categories=["x"])).fit(parts)


def test_clusters_models_and_rows_in_their_own_words(tmp_path):
    frame, frames = drawn_frames(24)
    how = em.Preparation(True, 0.5, categories=WORDS)
    kmeans = em.KernelKMeans(2, preparation=how, landmarks="uniform", n_landmarks=999)
    kmeans.set_params(random_state=0).fit(split(frames))
    for own, labels in zip(kmeans.predict(split(frames)), kmeans.labels_, strict=True):
        np.testing.assert_array_equal(own, labels)
    exact = em.KernelKMeans(2, preparation=how, method="exact", random_state=0).fit(frame)
    np.testing.assert_array_equal(exact.predict(frame), exact.labels_)
    kpca = em.KernelPCA(2, preparation=how).fit(split(frames))
    kpca.save(tmp_path / "model.em")
    loaded = em.load(tmp_path / "model.em")
    np.testing.assert_array_equal(loaded.transform(frame), kpca.transform(frame))
    whole = em.KernelPCA(0.9999, preparation=how).fit(split(frames))
    back = whole.inverse_transform(whole.transform(frame))
    assert back.shape == frame.shape
    frequent = frame["ward"].value_counts().index[0]
    assert (back[(frame["ward"] == frequent).to_numpy(), 1] == frequent).mean() > 0.9


def test_sparse_rows_are_scaled_as_scikit_learn_scales_them():
    rng = np.random.default_rng(0)
    X = sp.random_array((90, 6), density=0.3, random_state=rng, format="csr")
    parts = em.Partitioned(rows=[X[:40], X[40:]])
    kpca = em.KernelPCA(2, preparation=em.Preparation(standardize=True)).fit(parts)
    expected = StandardScaler(with_mean=False).fit_transform(X)
    rows = kpca.preparation_.apply(X)
    assert sp.issparse(rows)
    np.testing.assert_allclose(rows.toarray(), expected.toarray(), rtol=1e-10)
    central = KernelPCA(2).fit(expected.toarray())
    np.testing.assert_allclose(kpca.eigenvalues_, central.eigenvalues_, rtol=1e-10)
    assert "not subtracted" in " ".join(kpca.report_.notes)
    with pytest.raises(PartitionError, match="sparse"):
        em.KernelPCA(2, preparation=em.Preparation(log=[0])).fit(parts)
