"""Fits to sites in their folders: what their owners hold serves, and what callers pass does not."""

import numpy as np
import pandas as pd
import pytest
from tests.site_folder.folders import introduce, make_folder, three_folders

import eigenmesh as em
from eigenmesh.errors import InputError, PartitionError
from eigenmesh.estimators.party_values import SITES
from eigenmesh.runtime.schedule import Parties
from eigenmesh.runtime.study import forecast_stages
from eigenmesh.site_folder import open_site
from eigenmesh.site_folder.owner_acts import withdraw

RNG = np.random.default_rng(11)


def columns_folders(path, X, orders=None, align="strict"):
    """Three folders of columns of the same samples, each in an order of its own if told."""
    folders = []
    for k, (name, block) in enumerate(
        zip(("north", "south", "west"), np.array_split(X, 3, axis=1), strict=True)
    ):
        order = np.arange(len(X)) if orders is None else orders[k]
        ids = np.array([f"p{i:03d}" for i in range(len(X))])[order]
        lines = f'split = "columns"\nalign = "{align}"\n'
        lines += 'id_secret_file = "secret"\n' if align == "inner" else ""
        folder = make_folder(path / name, name, block[order], ids=ids, settings=lines)
        (folder.path / "secret").write_text("the words of all sites")
        folders.append(folder)
    return folders


@pytest.mark.parametrize("align", ["strict", "inner"])
def test_columns_at_sites_give_the_components_of_all(tmp_path, align):
    X = RNG.normal(size=(50, 6)) @ RNG.normal(size=(6, 6))
    orders = None if align == "strict" else [RNG.permutation(50) for _ in range(3)]
    folders = columns_folders(tmp_path, X, orders, align)
    with em.federation(sites=[f.path for f in folders]) as fed:
        kpca = em.OneShotKPCA(2, local_rank=2).fit(fed)
    alone = em.OneShotKPCA(2, local_rank=2).fit(
        em.Partitioned(columns=np.array_split(X, 3, axis=1))
    )
    np.testing.assert_allclose(kpca.eigenvalues_, alone.eigenvalues_, rtol=1e-9)


def test_samples_that_one_site_has_withdrawn_are_left_out_where_they_are_matched(tmp_path):
    X = RNG.normal(size=(50, 6)) @ RNG.normal(size=(6, 6))
    folders = columns_folders(tmp_path, X, [np.arange(50)] * 3, "inner")
    withdraw(folders[1], [f"p{i:03d}" for i in range(7)], by="x")
    with em.federation(sites=[f.path for f in folders]) as fed:
        kpca = em.OneShotKPCA(2).fit(fed)
    rest = em.Partitioned(columns=np.array_split(X[7:], 3, axis=1))
    np.testing.assert_allclose(kpca.eigenvalues_, em.OneShotKPCA(2).fit(rest).eigenvalues_)


def test_targets_and_weights_are_the_sites_own(tmp_path):
    parts, folders = [], []
    for name, n in (("north", 40), ("south", 50), ("west", 45)):
        X, w = RNG.normal(size=(n, 4)), RNG.integers(1, 4, size=n).astype(float)
        parts.append((X, X[:, 0] - 2 * X[:, 2], w))
        lines = 'targets = ["y"]\nweights = "w"'
        folders.append(make_folder(tmp_path / name, name, X, settings=lines, y=parts[-1][1], w=w))
    paths, (X, y, w) = [f.path for f in folders], zip(*parts, strict=True)
    pooled = em.Partitioned(rows=list(X), names=["north", "south", "west"])
    regressor = em.KernelPCRegressor(4, kernel="linear", alpha=1e-9)
    with em.federation(sites=paths) as fed:
        at_sites = np.ravel(regressor.fit(fed, SITES).predict(np.vstack(X)))
        with pytest.raises(InputError, match="site"):
            regressor.fit(fed, list(y))
        weighted = em.KernelPCA(2).fit(fed, sample_weight=SITES).eigenvalues_
    expected = em.KernelPCA(2).fit(pooled, sample_weight=list(w)).eigenvalues_
    np.testing.assert_allclose(weighted, expected)
    np.testing.assert_allclose(
        at_sites, regressor.fit(pooled, list(y)).predict(np.vstack(X)), atol=1e-6
    )


@pytest.mark.filterwarnings("ignore:the .* landmarks miss")
@pytest.mark.parametrize("most", [6, 24])  # landmarks: with more they double twice
def test_what_landmarks_miss_of_weighted_rows_is_asked_as_a_study_says(tmp_path, most):
    folders, rows, weights, rng = [], [], [], np.random.default_rng(0)
    for name, n in (("north", 140), ("south", 200), ("west", 145)):
        X, w = rng.normal(size=(n, 4)), rng.integers(1, 40, size=n).astype(float)
        rows, weights = [*rows, X], [*weights, w]
        folders.append(make_folder(tmp_path / name, name, X, settings='weights = "w"', w=w))
    introduce(folders)
    options = {"n_landmarks": 6, "max_landmarks": most, "accuracy": 0.0002, "random_state": 0}
    model = em.DisKPCA(3, kernel="rbf", gamma=0.05, landmarks="diskpca", **options)
    with em.federation(sites=[f.path for f in folders]) as fed:
        eigenvalues = model.fit(fed, sample_weight=SITES).eigenvalues_
    sent = model.report_
    parties = Parties(("north", "south", "west"), tuple(X.shape for X in rows))
    stage = model._stage(0.05, "sample_weight")
    plan, limit = (forecast_stages([stage], parties, "rows", own) for own in (False, True))
    if most == 6:  # too few for sure, by all rows: nobody looks closer
        assert (plan.floats_up, plan.floats_down) == (sent.floats_up, sent.floats_down)
    assert sent.floats_up + sent.floats_down <= limit.floats_up + limit.floats_down
    assert model.landmarks_.shape[0] == most
    pooled = em.Partitioned(rows=rows, names=["north", "south", "west"])
    np.testing.assert_allclose(model.fit(pooled, sample_weight=weights).eigenvalues_, eigenvalues)


def test_sites_whose_columns_differ_in_order_are_named(tmp_path):
    folders = three_folders(tmp_path)
    settings = folders[1].settings_file.read_text()
    swapped = 'columns = ["x1", "x0", "x2", "x3"]\n[peers]'
    folders[1].settings_file.write_text(settings.replace("[peers]", swapped))
    with pytest.raises(PartitionError, match="'south'.*another order"):
        em.federation(sites=[f.path for f in folders])


def test_masked_sums_need_the_keys_that_owners_told_each_other(tmp_path):
    folders = three_folders(tmp_path, are_strangers=True)
    paths = [f.path for f in folders]
    with em.federation(sites=paths, secure=True) as fed, pytest.raises(em.EigenmeshError):
        em.MomentPCA(1).fit(fed)
    introduce(folders)
    with em.federation(sites=paths, secure=True) as fed:
        masked = em.MomentPCA(1).fit(fed)
    with em.federation(sites=paths) as fed:
        assert masked.eigenvalues_[0] == pytest.approx(em.MomentPCA(1).fit(fed).eigenvalues_[0])
    assert set(masked.report_.reveals["north"]) == {"counts", "aggregate"}


def test_nothing_of_a_site_is_reached_but_by_asking_its_host(tmp_path):
    folders = three_folders(tmp_path)
    with em.federation(sites=[f.path for f in folders]) as fed:
        assert fed.local_sites() == {}
        kmeans = em.KernelKMeans(2, kernel="linear", random_state=0).fit(fed)
    assert not any(isinstance(own, np.ndarray) for own in kmeans.labels_)
    assert len(open_site(folders[0].path).store["kernel-kmeans labels"]["labels"]) == 40


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"names": ["a", "b", "c"]}, "names="),
        ({"policies": em.Policy()}, "policies="),
        ({"trust": "domain"}, "trust="),
        ({"engine": "dask"}, "engine="),
        ({"source": em.Partitioned(rows=[[[1.0]]])}, "both"),
    ],
)
def test_what_is_the_sites_own_is_not_passed_beside_them(tmp_path, options, words):
    folders = three_folders(tmp_path)
    with pytest.raises(InputError, match=words):
        em.federation(sites=[f.path for f in folders], **options)


def test_sites_must_agree_on_what_they_hold(tmp_path):
    folders = three_folders(tmp_path, are_strangers=True)
    with folders[0].settings_file.open("a") as file:
        file.write('split = "columns"\n')
    with pytest.raises(InputError, match="differ in split"):
        em.federation(sites=[f.path for f in folders])


def test_words_and_gaps_of_sites_are_prepared(tmp_path):
    rng, folders, frames = np.random.default_rng(0), [], []
    for name in ("north", "south", "west"):
        frame = pd.DataFrame(rng.normal(size=(40, 2)), columns=["age", "dose"])
        frame.loc[rng.random(40) < 0.1, "dose"] = np.nan
        frame["ward"] = rng.choice(["a", "b"], 40)
        folder = make_folder(
            tmp_path / name,
            name,
            np.zeros((1, 1)),
            settings='categories = ["ward"]\nallow_missing = true',
        )
        ids = [f"{name}{i}" for i in range(40)]
        frame.assign(patient=ids).to_csv(folder.path / "ward.csv", index=False)
        folders.append(folder)
        frames.append(frame)
    introduce(folders)
    # Of sites elsewhere nobody knows the columns' names: they go by number.
    kpca = em.KernelPCA(2, preparation=em.Preparation(True, 0.5, categories=[2]))
    with em.federation(sites=[folder.path for folder in folders]) as fed:
        kpca.fit(fed)
    here = em.Partitioned(rows=frames, categories=["ward"], allow_missing=True)
    expected = em.KernelPCA(2, preparation=em.Preparation(True, 0.5, categories=["ward"])).fit(here)
    np.testing.assert_allclose(kpca.eigenvalues_, expected.eigenvalues_, rtol=1e-6)


def test_an_approved_study_of_prepared_rows_has_the_question_for_their_columns(tmp_path):
    folders = three_folders(tmp_path, policy='approve = "each"')
    sizes = {folder.settings.name: open_site(folder.path).data.shape for folder in folders}
    kpca = em.KernelPCA(2, kernel="linear", preparation=em.Preparation(standardize=True))
    asked = em.study(kpca, sizes, secure=True, at_sites=True)
    for folder in folders:
        open_site(folder.path).approve(asked)
    where = [folder.path for folder in folders]
    with em.federation(sites=where, under=asked, secure=True) as fed:
        kpca.fit(fed)  # a warning would be an error
    rows = np.vstack([np.asarray(open_site(path).data) for path in where])
    rows = (rows - rows.mean(axis=0)) / rows.std(axis=0)
    np.testing.assert_allclose(kpca.eigenvalues_, em.KernelPCA(2).fit(rows).eigenvalues_)
