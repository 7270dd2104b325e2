"""Rows prepared over parties equal scikit-learn's pipeline on the pooled rows."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.decomposition import KernelPCA
from sklearn.feature_selection import VarianceThreshold
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

import eigenmesh as em
from eigenmesh.errors import EigenmeshWarning, InputError, PartitionError, PolicyRefusal
from eigenmesh.runtime import prepared
from eigenmesh.stages.prepare_rows import prepare_rows
from eigenmesh.stages.prepare_rows_on_graph import prepare_rows_on_graph


def drawn_rows(seed, missing=0.1):
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(60, 160)), int(rng.integers(3, 8))
    X = np.exp(rng.normal(size=(n, d))) * 10.0 ** rng.integers(-3, 5, size=d)
    X[:, 1] = 7.5  # constant
    X[rng.random((n, d)) < missing] = np.nan
    log = sorted(rng.choice(d, 2, replace=False).tolist())
    return X, log


def pooled(log):
    def take_logs(X):
        X = X.copy()
        X[:, log] = np.log(X[:, log])
        return X

    logs, varying = FunctionTransformer(take_logs), VarianceThreshold(1e-20)
    return make_pipeline(logs, SimpleImputer(), varying, StandardScaler())


def split(X, seed, **how):
    rng = np.random.default_rng(seed + 1)
    cuts = [int(rng.integers(10, len(X) // 2 - 10)), int(rng.integers(len(X) // 2, len(X) - 10))]
    return em.Partitioned(rows=np.split(X, cuts), allow_missing=True, **how)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_fit_and_transform_equal_the_pooled_pipeline(seed, kernel):
    X, log = drawn_rows(seed)
    new = np.where(np.random.default_rng(seed).random(X.shape) < 0.2, np.nan, 1.1 * X)
    reference = pooled(log).fit(X)
    central = KernelPCA(2, kernel=kernel, gamma=0.1).fit(reference.transform(X))
    how = em.Preparation(standardize=True, fill_missing=0.5, log=log)
    # Every row is a landmark, so that nothing is approximate.
    exact = {"landmarks": "uniform", "n_landmarks": 1000} if kernel == "rbf" else {}
    own = em.KernelPCA(2, kernel=kernel, gamma=0.1, preparation=how, random_state=0, **exact)
    own.set_params(gamma=None if kernel == "linear" else 0.1).fit(split(X, seed))
    rows = own.preparation_.apply(new)
    np.testing.assert_allclose(rows, reference.transform(new), rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(own.eigenvalues_, central.eigenvalues_, rtol=1e-10)
    scores, expected = own.transform(new), central.transform(reference.transform(new))
    # Signs are anybody's.
    np.testing.assert_allclose(np.abs(scores), np.abs(expected), rtol=1e-7, atol=1e-8)


def test_one_array_is_prepared_alike():
    X, log = drawn_rows(4)
    how = em.Preparation(standardize=True, fill_missing=0.5, log=log)
    own = em.KernelPCA(3, kernel="rbf", gamma=0.1, preparation=how).fit(X)
    central = em.KernelPCA(3, kernel="rbf", gamma=0.1).fit(pooled(log).fit_transform(X))
    np.testing.assert_allclose(own.eigenvalues_, central.eigenvalues_, rtol=1e-10)
    np.testing.assert_allclose(own.transform(X), own.fit_transform(X), atol=1e-10)


def test_masked_sums_prepare_alike_and_tell_totals_alone():
    pytest.importorskip("cryptography", reason="the extra 'secure' is not installed")
    X, log = drawn_rows(5)
    how = em.Preparation(standardize=True, fill_missing=0.5, log=log)
    kpca = em.KernelPCA(2, preparation=how)
    with em.federation(split(X, 5), secure=True) as fed:
        kpca.fit(fed)
    expected = pooled(log).fit_transform(X)
    np.testing.assert_allclose(kpca.preparation_.apply(X), expected, rtol=1e-6, atol=1e-6)
    assert all(set(kinds) <= {"counts", "aggregate"} for kinds in kpca.report_.reveals.values())


def test_clusters_and_regressions_are_of_prepared_rows():
    X, log = drawn_rows(6)
    parts, how = split(X, 6), em.Preparation(standardize=True, fill_missing=0.5, log=log)
    kmeans = em.KernelKMeans(2, kernel="linear", gamma=None, preparation=how, random_state=0)
    kmeans.set_params(landmarks="uniform", n_landmarks=1000).fit(parts)
    assert [len(own) for own in kmeans.predict(parts)] == [len(own) for own in parts.parts]
    for own, labels in zip(kmeans.predict(parts), kmeans.labels_, strict=True):
        np.testing.assert_array_equal(own, labels)
    rows = pooled(log).fit_transform(X)
    targets = np.split(rows[:, 0], np.cumsum([len(own) for own in parts.parts])[:-1])
    model = em.KernelPCRegressor(2, kernel="linear", alpha=1e-9, preparation=how)
    assert model.fit(parts, targets).score(parts, targets) > 0.1


def test_a_fit_without_preparation_after_one_with_it_sees_the_rows_as_they_are():
    X, _ = drawn_rows(7, missing=0.0)
    with em.federation(split(X, 7)) as fed:
        raw = em.KernelPCA(2).fit(fed).eigenvalues_
        em.KernelPCA(2, preparation=em.Preparation(standardize=True)).fit(fed)
        again = em.KernelPCA(2).fit(fed).eigenvalues_
    np.testing.assert_array_equal(raw, again)


def test_preparation_is_saved_loaded_and_reported(tmp_path):
    X, log = drawn_rows(8)
    how = em.Preparation(standardize=True, fill_missing=0.5, log=log)
    kpca = em.KernelPCA(2, preparation=how).fit(split(X, 8))
    kpca.save(tmp_path / "model.em")
    loaded = em.load(tmp_path / "model.em")
    assert loaded.preparation == how
    np.testing.assert_array_equal(loaded.transform(X), kpca.transform(X))
    notes = " ".join(kpca.report_.notes)
    assert "gaps filled" in notes
    assert "standardised" in notes


@pytest.mark.parametrize("door", [em.KernelPCA, em.KernelKMeans, em.KernelPCRegressor])
def test_plans_count_what_preparing_sends(door):
    X, log = drawn_rows(9)
    X[:, 1] = 0.1 + np.arange(len(X))  # a plan knows of no constant column
    parts, how = split(X, 9), em.Preparation(fill_missing=1.0, fill_with="median", log=log)
    estimator = door(2, kernel="linear", preparation=how)
    estimator.set_params(gamma=None, random_state=0)
    targets = [own[:, 0] * 0 + 1.0 for own in map(np.nan_to_num, parts.parts)]
    own = (targets,) if door is em.KernelPCRegressor else ()
    fitted = estimator.fit(parts, *own)
    planned = em.plan(door(2, kernel="linear", preparation=how, random_state=0, gamma=None), parts)
    if door is em.KernelPCA:
        assert planned.floats_up == fitted.report_.floats_up
    assert planned.by_step["RowPreparer.count_below"] > 0
    with em.federation(parts) as fed:
        asked = em.study(estimator, fed)
        raw = [run.protocol.name for run in asked.runs if not run.scope.prepared]
        assert raw == ["prepare-rows"]


def test_policies_refuse_what_preparing_lets_out():
    X, _ = drawn_rows(10, missing=0.0)
    parts = split(X, 10, policies=em.Policy(allow={"counts"}))
    with pytest.raises(PolicyRefusal, match="moments"):
        em.KernelPCA(2, preparation=em.Preparation(standardize=True)).fit(parts)


@pytest.mark.parametrize("topology", [None, "full"])
def test_columns_with_few_values_at_a_party_count_as_few_rows(topology):
    X, _ = drawn_rows(11, missing=0.0)
    X[10:30, 0] = np.nan  # ten values at the first party
    few, where = X.copy(), {} if topology is None else {"topology": topology}
    few[3:30, 0] = np.nan  # three
    prepares = prepare_rows if topology is None else prepare_rows_on_graph
    for rows, refused in ((X, False), (few, True)):
        own = {"allow_missing": True, "policies": em.Policy(allow={"counts", "moments"})}
        parts = em.Partitioned(rows=[rows[:30], rows[30:]], **own)
        setup = em.Preparation(True, fill_missing=0.9).setup(None)
        with em.federation(parts, **where) as fed:
            if refused:
                with pytest.raises(PolicyRefusal, match="'rows' leave"):
                    fed.run(prepares, setup)
            else:
                fed.run(prepares, setup)


def test_names_say_whose_logarithm_is_taken():
    X, _ = drawn_rows(12, missing=0.0)
    names = [f"x{i}" for i in range(X.shape[1])]
    frames = [pd.DataFrame(own, columns=names) for own in (X[:30], X[30:])]
    frames[1] = frames[1][names[::-1]]
    how = em.Preparation(log=["x2"])
    kpca = em.KernelPCA(2, preparation=how).fit(em.Partitioned(rows=frames))
    assert kpca.preparation_.rule.log.tolist() == [2]
    with pytest.raises(InputError, match="column 'x99'"):
        em.KernelPCA(2, preparation=em.Preparation(log=["x99"])).fit(em.Partitioned(rows=frames))


@pytest.mark.parametrize(
    ("how", "error", "match"),
    [
        ({"fill_missing": 0.01}, InputError, "lacks .* over all parties"),
        ({"standardize": True}, PartitionError, "lacks .* values in column .*fill_missing"),
        ({"fill_missing": 1.0, "log": [2]}, PartitionError, "no logarithm"),
        ({"fill_missing": 1.0, "log": [99]}, PartitionError, "names one beyond"),
    ],
)
def test_rows_that_cannot_be_prepared_are_refused(how, error, match):
    X, _ = drawn_rows(13)
    X[0, 2] = -1.0
    with pytest.raises(error, match=match):
        em.KernelPCA(2, preparation=em.Preparation(**how)).fit(split(X, 13))


def test_what_has_no_pooled_rows_is_refused():
    X, _ = drawn_rows(14, missing=0.0)
    how = em.Preparation(standardize=True)
    with pytest.raises(InputError, match="not for columns"):
        em.KernelPCA(2, preparation=how).fit(em.split(X, 2, by="columns"))
    with pytest.raises(InputError, match="preparation is 'yes'"):
        em.KernelPCA(2, preparation="yes").fit(em.split(X, 3, random_state=0))
    with pytest.raises(InputError, match="one after the other"):
        em.KernelPCA(2, preparation=how).fit(iter([X]))


def test_rows_come_back_in_their_own_units():
    X, log = drawn_rows(15, missing=0.0)
    how = em.Preparation(standardize=True, log=log)
    kpca = em.KernelPCA(X.shape[1] - 1, preparation=how).fit(split(X, 15))
    np.testing.assert_allclose(kpca.inverse_transform(kpca.transform(X)), X, rtol=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_other_units_at_one_party_are_named_though_rows_are_standardised(seed):
    rng = np.random.default_rng(seed)
    rows = [
        rng.normal([5.4, 26.0], [1.2, 4.0], size=(int(rng.integers(60, 120)), 2)) for _ in "abc"
    ]
    culprit = int(rng.integers(3))
    door = em.KernelPCA(2, kernel="rbf", preparation=em.Preparation(standardize=True))
    clone(door).fit(em.Partitioned(rows=rows, names=list("abc")))  # a warning would be an error
    rows[culprit] = rows[culprit] * [18.0, 1.0]  # mg/dL beside mmol/L
    with pytest.warns(EigenmeshWarning, match=f"column 0 .*of party '{'abc'[culprit]}' is"):
        door.fit(em.Partitioned(rows=rows, names=list("abc")))


@pytest.mark.parametrize(("method", "topology"), [("gossip", "ring"), ("admm", "full")])
@pytest.mark.filterwarnings("ignore:what is missing of the eigenvalues is not known")
def test_nodes_of_a_graph_prepare_alike_by_averages(method, topology):
    X, log = drawn_rows(16)
    how = em.Preparation(standardize=True, fill_missing=0.5, log=log)
    kpca = em.KernelPCA(2, preparation=how, method=method, topology=topology, random_state=0)
    parts, expected = split(X, 16), pooled(log).fit_transform(X)
    kpca.fit(parts)
    np.testing.assert_allclose(kpca.preparation_.apply(X), expected, rtol=1e-9, atol=1e-9)
    central = KernelPCA(2).fit(expected)
    np.testing.assert_allclose(kpca.eigenvalues_, central.eigenvalues_, rtol=0.02)
    for own, scores in zip(parts.parts, kpca.transform(parts), strict=True):
        np.testing.assert_allclose(kpca.transform(own), scores, atol=1e-10)
    planned = em.plan(clone(kpca), parts)
    assert planned.by_step["PreparingNode.offer_mixture"] > 0


def test_clusters_and_regressions_on_a_graph_are_of_prepared_rows():
    X, log = drawn_rows(17)
    parts, how = split(X, 17), em.Preparation(standardize=True, fill_missing=0.5, log=log)
    loose = {"preparation": how, "topology": "full", "accuracy": 0.1, "random_state": 0}
    kmeans = em.KernelKMeans(2, **loose).fit(parts)
    for own, labels in zip(kmeans.predict(parts), kmeans.labels_, strict=True):
        np.testing.assert_array_equal(own, labels)
    targets = [np.nan_to_num(own[:, 0]) for own in parts.parts]
    model = em.KernelPCRegressor(2, kernel="linear", **loose).fit(parts, targets)
    np.testing.assert_allclose(model.predict(parts.parts[0]), model.predict(parts)[0])


def test_many_prepared_rows_lie_in_a_file_and_not_in_memory(monkeypatch):
    X, log = drawn_rows(18)
    how = em.Preparation(standardize=True, fill_missing=0.5, log=log)
    usual = em.KernelPCA(2, preparation=how).fit(split(X, 18))
    monkeypatch.setattr(prepared, "_MOST_IN_MEMORY", 100)
    monkeypatch.setattr(prepared, "_BLOCK", 40)
    mapped = em.KernelPCA(2, preparation=how).fit(split(X, 18))
    assert isinstance(mapped.preparation_.apply(X), np.memmap)
    np.testing.assert_allclose(mapped.eigenvalues_, usual.eigenvalues_, rtol=1e-12)
