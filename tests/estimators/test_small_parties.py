"""Parties whose rows their sums would tell are left out and named, or taken by consent."""

import re
import warnings

import numpy as np
import pytest
from sklearn.metrics.pairwise import pairwise_kernels

import eigenmesh as em
from eigenmesh.errors import InputError, StepRefused, TopologyError
from eigenmesh.runtime.study import read_study

DOORS = {
    "components": lambda **how: em.KernelPCA(2, random_state=0, **how),
    "clusters": lambda **how: em.KernelKMeans(3, n_eigenvectors=3, random_state=0, **how),
    "regression": lambda **how: em.KernelPCRegressor(2, random_state=0, **how),
}
FEWEST = em.Policy().min_rows


def drawn(seed):
    """Rows of large and small parties in any order, and which of them are small."""
    rng = np.random.default_rng(seed)
    sizes = [int(rng.integers(40, 90)) for _ in range(int(rng.integers(2, 5)))]
    sizes += [int(rng.integers(1, FEWEST)) for _ in range(int(rng.integers(1, 5)))]
    rng.shuffle(sizes)
    d = int(rng.integers(2, 6))
    rows = [rng.normal(size=(n, d)) + rng.normal(size=d) for n in sizes]
    kernel = {"kernel": str(rng.choice(["linear", "rbf", "poly", "laplacian"])), "gamma": 0.1}
    small = [f"party-{i}" for i, n in enumerate(sizes) if n < FEWEST]
    return rows, kernel, small


def fit(door, rows, source=None):
    """A fitted door, and what it warned of."""
    source = em.Partitioned(rows=rows) if source is None else source
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if isinstance(door, em.KernelPCRegressor):
            door.fit(source, [A[:, 0] for A in rows])
        else:
            door.fit(source)
    return door, [str(w.message) for w in caught]


def those_in(rows, small):
    return [A for i, A in enumerate(rows) if f"party-{i}" not in small]


@pytest.mark.parametrize(("seed", "topology"), [(0, None), (1, None), (2, None), (1, "full")])
@pytest.mark.parametrize("what", DOORS)
def test_a_fit_is_that_of_the_parties_that_are_in_and_names_the_others(what, seed, topology):
    rows, kernel, small = drawn(seed)
    model, said = fit(DOORS[what](topology=topology, **kernel), rows)
    (words,) = [text for text in said if "left out" in text]
    assert f"with {sum(len(A) for A in rows if len(A) < FEWEST)} of all" in words
    assert repr(small[0]) in words
    assert "secure=True" in words
    assert "small_parties='reveal'" in words

    without, said = fit(DOORS[what](topology=topology, **kernel), those_in(rows, small))
    assert not any("left out" in text for text in said)
    np.testing.assert_allclose(model.eigenvalues_, without.eigenvalues_, rtol=1e-10)

    report = model.report_
    assert set(report.left_out) == set(small)
    assert set(report.parties) == {f"party-{i}" for i in range(len(rows))} - set(small)
    assert all(report.reveals[name] == {"counts": 0} for name in small)
    assert all(name in str(report) for name in small[:3])


@pytest.mark.parametrize("what", DOORS)
@pytest.mark.parametrize("seed", range(3))
def test_what_those_left_out_may_add_is_told_and_true(what, seed):
    rng = np.random.default_rng([seed, 11])
    rows, _, small = drawn(seed)
    near, far = float(10.0 ** rng.uniform(0, 2)), rng.random() < 0.7
    rows = [A + near * (far and len(A) < FEWEST) for A in rows]
    kernel = ("rbf", "laplacian", "cosine")[seed % 3]
    gamma = float(rng.uniform(0.02, 0.2))
    model, said = fit(DOORS[what](kernel=kernel, gamma=gamma, n_landmarks=40), rows)
    (words,) = [text for text in said if "left out" in text]
    if kernel == "cosine":  # components are exact, and nothing lies outside
        assert "outside" not in words
    else:
        most = float(re.search(r"at most ([\d.]+)% of the variance outside", words)[1]) / 100
        Y, joint = model.model_.landmarks, np.vstack(rows)
        K, own = (pairwise_kernels(A, Y, kernel, gamma=gamma) for A in (joint, Y))
        outside = 1 - np.einsum("ij,jk,ik->i", K, np.linalg.pinv(own, hermitian=True), K)
        theirs = np.repeat([f"party-{i}" in small for i in range(len(rows))], list(map(len, rows)))
        assert outside[theirs].sum() / outside.sum() <= most + 1e-3
    more, k = re.search(r"can add ([\d.]+)% to eigenvalue (\d+)", words).groups()
    center = what != "clusters"
    before = pooled_eigenvalues(those_in(rows, small), kernel, gamma, center)[int(k) - 1]
    after = pooled_eigenvalues(rows, kernel, gamma, center)[int(k) - 1]
    assert 0.999 <= after / before <= 1 + float(more) / 100 + 0.02  # landmarks miss a little


def pooled_eigenvalues(rows, kernel, gamma, center):
    K = pairwise_kernels(
        np.vstack(rows), metric=kernel, **({} if kernel == "cosine" else {"gamma": gamma})
    )
    C = np.eye(len(K)) - center / len(K)
    return np.linalg.eigvalsh(C @ K @ C)[::-1]


@pytest.mark.parametrize("topology", [None, "full"])
def test_nobody_is_warned_of_who_can_move_no_eigenvalue_by_more_than_may_be_missing(topology):
    rng = np.random.default_rng(0)
    sides = [4.0 * rng.integers(2, size=(n, 1)) for n in (400, 1, 500, 1)]
    rows = [side + 0.2 * rng.normal(size=(len(side), 2)) for side in sides]
    how = {"kernel": "rbf", "gamma": 0.5, "topology": topology, "random_state": 0}
    far = [A + 50.0 * (len(A) < FEWEST) for A in rows]
    model, said = fit(em.KernelPCA(1, **how), far)
    assert not any("left out" in text for text in said)
    assert set(model.report_.left_out) == {"party-1", "party-3"}
    after = pooled_eigenvalues(far, "rbf", 0.5, True)[:1]
    np.testing.assert_allclose(model.eigenvalues_, after, rtol=model.accuracy)
    # Less may be missing; a rule for gamma hangs on their rows, too; and clusters may be theirs.
    for other in (
        em.KernelPCA(1, accuracy=0.001, **how),
        em.KernelPCA(1, **{**how, "gamma": "scale"}),
        em.KernelKMeans(2, gamma=0.5, random_state=0),
    ):
        _, said = fit(other, rows)
        assert any("left out" in text for text in said)


@pytest.mark.parametrize("what", DOORS)
@pytest.mark.parametrize("seed", range(3))
def test_plan_study_and_audit_are_of_the_same_parties(what, seed):
    rows, kernel, small = drawn(seed)
    parts = em.Partitioned(rows=rows)
    door, _ = fit(DOORS[what](accuracy=1.0, **kernel), rows)
    plan = em.plan(door, parts)
    assert plan.parties == door.report_.parties
    assert plan.rounds == door.report_.rounds
    assert any("left out" in note for note in plan.notes)
    assert {name: set(kinds) for name, kinds in plan.reveals.items()} == {
        name: set(kinds) for name, kinds in door.report_.reveals.items()
    }
    for account in (plan, door.report_):
        told = [line for name in small for line in em.audit(account).of(name)]
        assert {line.sent_as for line in told} == {"counts"}
    with em.federation(parts) as fed:
        assert em.study(door, fed).digest == em.study(door, parts).digest


@pytest.mark.parametrize("seed", range(3))
def test_sites_that_approve_a_fit_are_asked_for_just_that(seed):
    rows, kernel, small = drawn(seed)
    door = DOORS["components"](accuracy=1.0, **kernel)
    policies = [em.Policy(approve="each")] * len(rows)
    with em.federation(em.Partitioned(rows=rows, policies=policies)) as fed:
        study = em.study(door, em.Partitioned(rows=rows))
        for site in fed.local_sites().values():
            site.approve(study)
        with fed.under(study):
            model, _ = fit(door, rows, fed)
    assert set(model.report_.left_out) == set(small)


def test_a_site_that_a_study_leaves_out_takes_no_part_in_it():
    rows, kernel, small = drawn(2)
    with em.federation(em.Partitioned(rows=rows)) as fed:
        _, run = em.study(em.KernelPCA(2, **kernel), fed).runs
        assert set(run.scope.left_out) == set(small)
        assert read_study(run.document.decode()).scope == run.scope
        with pytest.raises(StepRefused, match="takes no part"):  # a coordinator asks all the same
            fed._broadcast("require", role="RowHolder", steps=[], study=run.document.decode())


@pytest.mark.parametrize("topology", [None, "full"])
def test_labels_of_rows_that_are_left_out_come_from_the_model(topology):
    rows, kernel, _ = drawn(0)
    door, _ = fit(DOORS["clusters"](topology=topology, **kernel), rows)
    assert [len(own) for own in door.labels_] == [len(A) for A in rows]
    for A, own in zip(rows, door.labels_, strict=True):
        if len(A) < FEWEST:
            np.testing.assert_array_equal(own, door.predict(A))


@pytest.mark.parametrize("what", DOORS)
@pytest.mark.parametrize("seed", range(2))
def test_reveal_counts_everybody_in(what, seed):
    rows, _, small = drawn(seed)
    kernel = {"kernel": "linear"}  # whose moments are exact
    model, said = fit(DOORS[what](small_parties="reveal", **kernel), rows)
    assert not any("left out" in text for text in said)
    assert set(small) < set(model.report_.parties)
    X = np.vstack(rows)
    X = X if what == "clusters" else X - X.mean(axis=0)
    pooled = np.linalg.svd(X, compute_uv=False)[: len(model.eigenvalues_)] ** 2
    np.testing.assert_allclose(model.eigenvalues_, pooled, rtol=1e-8)


@pytest.mark.parametrize("what", DOORS)
def test_where_nobody_is_left_the_error_has_both_remedies(what):
    rng = np.random.default_rng(0)
    rows = [rng.normal(size=(int(rng.integers(1, FEWEST)), 3)) for _ in range(30)]
    for act in (
        lambda door: fit(door, rows),
        lambda door: em.plan(door, em.Partitioned(rows=rows)),
    ):
        with pytest.raises(InputError, match="secure=True.*small_parties='reveal'"):
            act(DOORS[what](kernel="rbf"))
    with pytest.raises(InputError, match="small_parties is 'keep'"):
        fit(DOORS[what](small_parties="keep"), rows)


def test_who_asks_for_rows_by_name_has_decided():
    rows, _, _ = drawn(0)
    model, said = fit(em.KernelPCA(2, kernel="rbf", landmarks="uniform", random_state=0), rows)
    assert not model.report_.left_out
    assert len(model.report_.parties) == len(rows)


def test_a_site_says_itself_how_few_are_too_few():
    rng = np.random.default_rng(0)
    rows = [rng.normal(size=(n, 3)) for n in (50, 12, 3)]
    policies = [None, em.Policy(min_rows=20), em.Policy(min_rows=1)]
    parts = em.Partitioned(rows=rows, policies=policies)
    model, _ = fit(em.KernelPCA(2), rows, parts)
    assert set(model.report_.left_out) == {"party-1"}
    assert em.plan(em.KernelPCA(2), parts).parties == ("party-0", "party-2")


def test_a_graph_that_would_fall_apart_says_so():
    rng = np.random.default_rng(0)
    rows = [rng.normal(size=(n, 3)) for n in (40, 2, 40, 3)]
    with pytest.raises(TopologyError, match="'party-1', 'party-3'.*reveal.*without them"):
        fit(em.KernelPCA(2, topology="ring"), rows)


def test_the_next_fit_begins_with_everybody():
    rows, kernel, small = drawn(0)
    with em.federation(em.Partitioned(rows=rows)) as fed:
        fit(em.KernelPCA(2, **kernel), rows, fed)
        model, _ = fit(em.KernelPCA(2, small_parties="reveal", **kernel), rows, fed)
    assert set(small) < set(model.report_.parties)


def test_masked_sums_leave_nobody_out():
    rows, kernel, small = drawn(1)
    pytest.importorskip("cryptography")
    with em.federation(em.Partitioned(rows=rows), secure=True) as fed:
        model, said = fit(em.KernelPCA(2, **kernel), rows, fed)
        plan = em.plan(em.KernelPCA(2, **kernel), fed)
    assert set(small) < set(model.report_.parties) == set(plan.parties)
    assert em.plan(em.KernelPCA(2, **kernel), em.Partitioned(rows=rows), secure=True) == plan


@pytest.mark.filterwarnings("ignore")
def test_what_is_said_to_have_left_tells_where_it_is_as_good_as_rows():
    rng = np.random.default_rng(0)
    rows = [rng.normal(size=(n, 4)) for n in (60, 50, 3)]
    parts = em.Partitioned(rows=rows, names=["a", "b", "tiny"])
    assert "rows: as good" not in em.KernelPCA(2).fit(parts).method_
    revealed = em.KernelPCA(2, small_parties="reveal").fit(parts)
    assert "those of 'tiny' are over fewer than 5 rows: as good as these" in revealed.method_
    exact = em.KernelKMeans(3, gamma=0.1, random_state=0).fit(parts)
    assert "some moments may be over a single row" in exact.method_
    groups = em.KernelKMeans(3, gamma=0.1, kmeans="groups", random_state=0).fit(parts)
    assert "single row" not in groups.method_


KEPT = em.Policy(allow={"centroids", "moments", "gram", "counts", "aggregate"})


@pytest.mark.parametrize("sizes", [(4, 4, 4), (30, 30, 4, 30)])
@pytest.mark.parametrize("topology", [None, "full"])
@pytest.mark.parametrize("policy", [None, KEPT])
def test_nobody_is_told_to_reveal_what_a_policy_keeps(policy, topology, sizes):
    rng = np.random.default_rng(0)
    parts = em.Partitioned(
        rows=[rng.normal(size=(n, 3)) for n in sizes],
        policies=None if policy is None else [policy] * len(sizes),
    )
    model = em.KernelPCA(2, kernel="rbf", gamma=0.5, topology=topology, random_state=0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        words = ""
        try:
            model.fit(parts)
        except em.EigenmeshError as error:
            words = str(error)
    words += " ".join(str(one.message) for one in caught)
    assert "secure=True" in words
    assert ("small_parties='reveal'" in words) == (policy is None)


def test_a_share_on_a_graph_is_refused_before_small_parties_are_spoken_of():
    parts = em.split(np.random.default_rng(0).normal(size=(40, 3)), 12, random_state=0)
    with pytest.raises(em.EigenmeshError, match="needs a whole number"):
        em.KernelPCA(0.5, kernel="rbf", topology="ring", random_state=0).fit(parts)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("what", DOORS)
def test_where_nobody_is_left_the_remedy_that_is_named_works(what, seed):
    rng = np.random.default_rng(seed)
    sizes = rng.integers(2, FEWEST, 4)
    rows = [rng.normal(size=(n, 3)) for n in sizes]
    kernel = rng.choice(["linear", "rbf", "poly"]) if what == "components" else "rbf"
    with pytest.raises(InputError) as caught:
        fit(DOORS[what](kernel=kernel), rows)
    own = dict(re.findall(r"(small_parties|landmarks)='([a-z]+)'", str(caught.value)))
    assert own == {"small_parties": "reveal", "landmarks": "uniform"}
    door = DOORS[what](kernel=kernel)
    fit(door.set_params(**{name: own[name] for name in own if name in door.get_params()}), rows)
