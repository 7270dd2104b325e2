"""Cross-validation over parties: that of pooled rows with the same folds, at a known cost."""

import numpy as np
import pytest
from sklearn.decomposition import KernelPCA
from sklearn.linear_model import Ridge
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import PredefinedSplit, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import KernelCenterer
from tests.contracts import test_plans_and_policies as contracts
from tests.contracts.fits import NAMES, RBF, TARGETS, Fit, rows
from tests.engines.dask_cluster import open_on_dask

import eigenmesh as em
from eigenmesh.cross_validation.folds import draw_folds, folds_of
from eigenmesh.estimators.base import from_description
from eigenmesh.runtime.message import KINDS
from eigenmesh.runtime.site import SiteView

N, FOLDS = 150, 4
EVERY_ROW = {"n_landmarks": N, "landmarks": "uniform", "random_state": 0}
GAMMAS = (0.05, 0.2)


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(7)
    X = rng.normal(size=(N, 3)) @ rng.normal(size=(3, 3)) + 1.0
    X[: N // 3] += 4.0
    return X, np.sin(X[:, 0]) + 0.3 * X[:, 1] + 2.0


@pytest.fixture(scope="module")
def split(data):
    """The parts, and which row is in which fold, as the sites draw them."""
    X, _ = data
    parts = em.Partitioned(rows=np.split(X, (30, 80)), names=NAMES)
    with em.federation(parts) as fed:
        sites = fed.local_sites().values()
        views = [SiteView(site, i, tuple(NAMES)) for i, site in enumerate(sites)]
        return parts, np.concatenate([folds_of(view, FOLDS) for view in views])


def pooled(X, folds, score):
    """By gamma and fold."""
    for gamma in GAMMAS:
        K = rbf_kernel(X, gamma=gamma)
        for f in range(FOLDS):
            train, test = folds != f, folds == f
            yield gamma, score(K[np.ix_(train, train)], K[np.ix_(test, train)], train, test)


def scores_in(result, **params):
    """Of the candidates with such parameters, in order."""
    chosen = [one for one in result.candidates if params.items() <= one.params.items()]
    assert chosen
    return np.array([one.fold_scores for one in chosen])


def test_shares_of_unseen_variance_are_those_of_scikit_learn_with_the_same_folds(data, split):
    parts, folds = split
    counts = (1, 4, 9)
    door = em.KernelPCA(kernel="rbf", **EVERY_ROW)
    result = em.cross_validate(door, parts, gamma=GAMMAS, n_components=counts, n_folds=FOLDS)

    def shares(train, test, *_):
        kpca = KernelPCA(max(counts), kernel="precomputed").fit(train)
        squares = np.square(kpca.transform(test)).sum(axis=0).cumsum()
        whole = np.sum(1 - 2 * test.mean(axis=1) + train.mean())
        return [squares[k - 1] / whole for k in counts]

    expected = dict.fromkeys(GAMMAS, ())
    for gamma, own in pooled(data[0], folds, shares):
        expected[gamma] = (*expected[gamma], own)
    for gamma in GAMMAS:
        own = scores_in(result, gamma=gamma)
        np.testing.assert_allclose(own, np.transpose(expected[gamma]), atol=1e-7)
    assert sum(result.fold_rows) == N
    assert result.fold_rows == tuple(np.bincount(folds))
    assert result.candidates[0].outside < 1e-6


@pytest.mark.parametrize("secure", [False, True])
def test_r_squared_is_that_of_scikit_learn_with_the_same_folds(data, split, secure):
    (X, y), (parts, folds) = data, split
    counts, alphas = (2, 8), (0.01, 3.0)
    door = em.KernelPCRegressor(**EVERY_ROW)
    grid = {"gamma": GAMMAS, "n_components": counts, "alpha": alphas, "n_folds": FOLDS}
    with em.federation(parts, secure=secure) as fed:
        result = em.cross_validate(door, fed, np.split(y, (30, 80)), **grid)
    for gamma in GAMMAS:
        for k in counts:
            for alpha in alphas:
                pipe = make_pipeline(KernelPCA(k, kernel="rbf", gamma=gamma), Ridge(alpha))
                expected = cross_val_score(pipe, X, y, cv=PredefinedSplit(folds))
                own = scores_in(result, gamma=gamma, n_components=k, alpha=alpha)
                np.testing.assert_allclose(own, [expected], atol=1e-7)


def test_several_targets_count_alike(data, split):
    (X, y), (parts, folds) = data, split
    Y = np.column_stack([y, X[:, 2] ** 2])
    door = em.KernelPCRegressor(3, gamma=0.1, **EVERY_ROW)
    result = em.cross_validate(door, parts, np.split(Y, (30, 80)), n_folds=FOLDS)
    pipe = make_pipeline(KernelPCA(3, kernel="rbf", gamma=0.1), Ridge(1.0))
    expected = cross_val_score(pipe, X, Y, cv=PredefinedSplit(folds))
    np.testing.assert_allclose(result.best.fold_scores, expected, atol=1e-7)


def test_gaps_of_clusters_are_those_of_the_pooled_kernel_with_the_same_folds(data, split):
    parts, folds = split
    counts = (2, 3, 6)
    door = em.KernelKMeans(**EVERY_ROW)
    result = em.cross_validate(door, parts, gamma=GAMMAS, n_clusters=counts, n_folds=FOLDS)

    def gaps(train, test, *_):
        values, vectors = np.linalg.eigh(train)
        along = np.square(test @ vectors / np.sqrt(values)).mean(axis=0)[::-1]
        around = np.mean(1 - 2 * test.mean(axis=1) + train.mean())
        return [(1 - along[c] / along[c - 1]) * around for c in counts]

    expected = dict.fromkeys(GAMMAS, ())
    for gamma, own in pooled(data[0], folds, gaps):
        expected[gamma] = (*expected[gamma], own)
    for gamma in GAMMAS:
        own = scores_in(result, gamma=gamma)
        np.testing.assert_allclose(own, np.transpose(expected[gamma]), atol=1e-7)


def test_kernels_without_gamma_and_uncentred_components_are_compared_too(data, split):
    X, folds = data[0], split[1]
    door = em.KernelPCA(kernel="linear", center=False, **EVERY_ROW)
    result = em.cross_validate(door, split[0], n_components=(1, 2), n_folds=FOLDS)
    expected = []
    for f in range(FOLDS):
        train, test = X[folds != f], X[folds == f]
        along = test @ np.linalg.svd(train)[2].T
        expected.append(np.square(along).sum(axis=0).cumsum()[:2] / np.square(test).sum())
    np.testing.assert_allclose(scores_in(result), np.transpose(expected), atol=1e-9)
    assert result.best_params.keys() == {"n_components"}
    centred = em.cross_validate(em.KernelPCA(2, **EVERY_ROW), split[0], n_folds=FOLDS)
    middle = KernelCenterer().fit(X[folds != 0] @ X[folds != 0].T)
    K = middle.transform(X[folds == 0] @ X[folds != 0].T)
    kpca = KernelPCA(2).fit(X[folds != 0])
    whole = np.square(X[folds == 0] - X[folds != 0].mean(axis=0)).sum()
    share = np.square(K @ kpca.eigenvectors_ / np.sqrt(kpca.eigenvalues_)).sum() / whole
    assert centred.best.fold_scores[0] == pytest.approx(share, abs=1e-9)


# Folds.


def test_folds_of_any_number_are_made_of_the_same_parcels_of_enough_rows():
    for n, fewest in ((23, 5), (60, 7), (4, 5), (101, 1)):
        several = [draw_folds(n, f, fewest, np.random.default_rng(3)) for f in (2, 3, 5, 7)]
        together = np.unique(np.array(several), axis=1, return_counts=True)[1]
        assert together.min() >= min(fewest, n)  # no combination of them is of fewer rows
        for folds in several:
            sizes = np.bincount(folds)
            assert sizes[sizes > 0].min() >= min(fewest, n)


def test_no_seed_and_no_coordinator_moves_the_folds_of_a_site():
    parts = em.Partitioned(rows=[np.random.default_rng(0).normal(size=(40, 2))], names=["a"])
    draws = []
    for _ in range(2):
        with em.federation(parts) as fed:
            draws.append(folds_of(SiteView(fed.local_sites()["a"], 0, ("a",)), 5))
    np.testing.assert_array_equal(*draws)


def test_every_fold_of_a_party_has_the_rows_that_its_policy_asks_for():
    rng = np.random.default_rng(0)
    blocks = [rng.normal(size=(n, 2)) for n in (61, 40, 33)]
    door = em.KernelPCA(1, kernel="rbf", gamma=0.3, n_landmarks=10)
    kinds = KINDS - {"rows"}
    for fewest in (5, 10):
        policies = em.Policy(allow=kinds, min_rows=fewest)
        parts = em.Partitioned(rows=blocks, policies=policies)
        result = em.cross_validate(door, parts, n_folds=3)
        assert min(result.fold_rows) >= 3 * fewest


def test_a_fold_of_fewer_rows_than_the_policy_asks_for_does_not_leave(monkeypatch):
    """Whatever a party has drawn: its host counts the rows of the smallest fold."""
    parcels = em.cross_validation.folds.draw_folds
    draw = lambda n, folds, fewest, *how: parcels(n, folds, 1, *how)  # noqa: E731
    monkeypatch.setattr(em.cross_validation.folds, "draw_folds", draw)
    parts = em.Partitioned(
        rows=np.split(np.random.default_rng(0).normal(size=(60, 2)), 3),
        policies=em.Policy(allow=KINDS - {"rows"}),
    )
    with pytest.raises(em.errors.PolicyRefusal, match="which numbers over 4 rows are where 5 must"):
        em.cross_validate(em.KernelPCA(1, kernel="rbf", gamma=0.3), parts, n_folds=5)


def test_small_parties_are_left_out_or_hidden_by_masks():
    rng = np.random.default_rng(0)
    blocks = [rng.normal(size=(n, 2)) for n in (60, 40, 3)]
    parts = em.Partitioned(rows=blocks, names=NAMES)
    door = em.KernelPCA(1, kernel="rbf", gamma=0.3)
    with pytest.warns(em.EigenmeshWarning, match="'west' is left out"):
        result = em.cross_validate(door, parts, n_folds=2)
    assert result.report.left_out.keys() == {"west"}
    assert sum(result.fold_rows) == 100
    with em.federation(parts, secure=True) as fed:
        hidden = em.cross_validate(door, fed, n_folds=2)
    assert sum(hidden.fold_rows) == 103
    assert hidden.report.reveals["west"].keys() == {"aggregate", "counts"}


def test_too_few_rows_for_the_folds_are_told():
    blocks = [np.random.default_rng(i).normal(size=(8, 2)) for i in range(3)]
    door = em.KernelPCA(1, kernel="rbf", gamma=0.3)
    with pytest.warns(
        em.EigenmeshWarning, match="5 folds were asked for, the parties' rows fill 3"
    ):
        assert em.cross_validate(door, em.Partitioned(rows=blocks)).fold_rows == (8, 8, 8)
    with pytest.raises(em.EigenmeshError, match="all rows are in 1 of 5 folds"):
        em.cross_validate(door, blocks[0])


# What is taken.


def test_of_candidates_within_one_error_of_the_best_the_fewest_are_taken(data, split):
    door = em.KernelPCRegressor(gamma=0.1, **EVERY_ROW)
    y = np.split(data[1], (30, 80))
    one, best = (
        em.cross_validate(door, split[0], y, n_components=range(1, 13), n_folds=FOLDS, rule=rule)
        for rule in ("one-standard-error", "best")
    )
    scores = np.array([c.score for c in one.candidates])
    top = one.candidates[int(scores.argmax())]
    assert best.best.params == top.params
    least = 1 + int(np.argmax(scores >= top.score - top.error))
    assert one.best_params == {"gamma": 0.1, "n_components": least, "alpha": 1.0}
    assert least < top.params["n_components"]


@pytest.mark.parametrize("n_clusters", [3, 5])
def test_the_number_of_blobs_is_found_around_a_rule_for_gamma(n_clusters):
    rng = np.random.default_rng(n_clusters)
    X = np.vstack([rng.normal(10 * np.eye(5)[c], 1.0, (30 + 20 * c, 5)) for c in range(n_clusters)])
    parts = em.split(X, 3, random_state=0)
    result = em.cross_validate(em.KernelKMeans(), parts, n_clusters=range(2, 9), gamma="around")
    assert result.best_params["n_clusters"] == n_clusters
    assert "taken" in str(result)
    assert len({one.params["gamma"] for one in result.candidates}) == 5


# What it costs, and whom it is for.

GRID = {"gamma": GAMMAS, "n_components": (1, 2), "n_folds": 2}
SEARCHES = [
    Fit("components", rows, lambda: em.CrossValidation(em.KernelPCA(**RBF), **GRID)),
    Fit(
        "regression", rows, lambda: em.CrossValidation(em.KernelPCRegressor(**RBF), **GRID), TARGETS
    ),
    Fit(
        "clusters-by-a-rule",
        rows,
        lambda: em.CrossValidation(em.KernelKMeans(), n_clusters=(2, 3), n_folds=2, gamma="around"),
    ),
    Fit(
        "prepared",
        rows,
        lambda: em.CrossValidation(
            em.KernelPCA(2, **RBF, preparation=em.Preparation(standardize=True)), n_folds=2
        ),
    ),
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("search", SEARCHES, ids=lambda search: search.name)
@pytest.mark.parametrize(
    "contract",
    [
        contracts.test_the_plan_is_what_a_fit_sends_or_a_bound_that_says_so,
        contracts.test_a_policy_refuses_the_method_before_anything_left_and_names_party_and_kind,
        contracts.test_a_policy_that_allows_what_the_plan_says_lets_the_fit_through,
        contracts.test_the_same_seed_gives_the_same_answer_and_the_same_account,
    ],
)
def test_what_holds_for_fits_holds_for_cross_validation(search, contract):
    contract(search)


@pytest.mark.filterwarnings("ignore")
def test_other_engines_give_the_same_scores():
    fit = SEARCHES[1]
    with open_on_dask(fit.parts()) as fed:
        there = fit.run(fed).result_
    here = fit.fitted().result_
    assert there.report.by_step == here.report.by_step
    for one, other in zip(here.candidates, there.candidates, strict=True):
        np.testing.assert_allclose(one.fold_scores, other.fold_scores, atol=1e-8)


def test_a_study_has_all_runs_and_its_sites_hold_it_to_them(tmp_path):
    search = SEARCHES[0].build()
    asked = em.study(search, rows())
    assert [run.protocol.name for run in asked.runs][-2:] == ["cross-validation"] * 2
    asked.save(tmp_path / "study.json")
    again = em.load_study(tmp_path / "study.json")
    assert again.digest == asked.digest
    assert em.study(from_description(again.estimator), rows()).digest == asked.digest
    listed = em.Policy(approve="listed", approved=[asked.digest])
    with em.federation(rows(policies=[listed] * 3), under=asked) as fed:
        assert search.fit(fed).report_.rounds


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (
            em.Partitioned(columns=[np.eye(12)[:, :2], np.eye(12)[:, 2:5]]),
            "the parties hold columns",
        ),
        (np.eye(12), "determine"),
    ],
)
def test_what_folds_cannot_stand_for_is_refused_with_a_remedy(source, words):
    with pytest.raises(em.EigenmeshError, match=words):
        em.cross_validate(em.KernelPCA(30, kernel="rbf", gamma=1.0), source, n_folds=2)


def test_a_graph_is_refused_with_a_remedy():
    with (
        em.federation(rows(), topology="ring") as fed,
        pytest.raises(em.EigenmeshError, match="open it without topology"),
    ):
        em.cross_validate(em.KernelPCA(1), fed)


@pytest.mark.parametrize(
    ("door", "grid", "words"),
    [
        (em.DisKPCA(2), {}, "a KernelPCA, KernelKMeans or KernelPCRegressor is expected"),
        (em.KernelPCA(), {}, "whole numbers are compared"),
        (em.KernelPCA(2), {"n_clusters": [2]}, "which a KernelPCA has not"),
        (em.KernelPCA(2), {"gamma": [1.0]}, "which the 'linear' kernel has not"),
        (em.KernelKMeans(2), {"gamma": ["median"]}, "numbers to compare are expected, or 'around'"),
        (em.KernelKMeans(2), {"n_clusters": 3}, "a list of values to compare"),
        (em.KernelKMeans(2), {"n_clusters": []}, "n_clusters is empty"),
        (em.KernelKMeans(2), {"n_folds": 1}, "from 2 to 50"),
        (em.KernelKMeans(2), {"rule": "first"}, "rule is 'first'"),
        (em.KernelPCRegressor(2), {"alpha": [-1.0]}, "numbers from 0"),
        (em.KernelPCRegressor(2), {}, "requires y to be passed"),
        (em.KernelKMeans(2, method="exact"), {}, "'auto' is expected"),
        (
            em.KernelPCA(2, kernel="rbf", gamma=1.0, epsilon=1.0),
            {},
            "sums over folds have no noise",
        ),
        (em.KernelPCA(2, landmarks=np.eye(2)), {}, "landmarks are rows"),
        (em.KernelPCA(2, topology="ring"), {}, "has a coordinator"),
    ],
)
def test_wrong_parameters_are_told_before_anybody_is_asked(door, grid, words):
    with em.federation(rows()) as fed, fed.recording() as recording:
        with pytest.raises(em.EigenmeshError, match=words):
            em.cross_validate(door, fed, **grid)
        assert not recording.ledger.entries


def test_a_result_shows_itself_as_table_and_picture():
    result = SEARCHES[0].fitted().result_
    assert result._repr_html_().count("<table>") == 3
    assert "taken" in result._repr_html_()
    axes = em.plot.cross_validation(result).axes[0]
    assert len(axes.containers) == len(GAMMAS)
    drawn = [list(bars.lines[0].get_ydata()) for bars in axes.containers]
    assert drawn == [[c.score for c in result.candidates[i : i + 2]] for i in (0, 2)]


def test_candidates_in_place_of_targets_are_refused_with_the_remedy(data):
    """As the grid of scikit-learn's search stands: it was taken for targets, and passed over."""
    with pytest.raises(em.EigenmeshError, match=r"mapping with gamma.*by name, as gamma="):
        em.cross_validate(em.KernelPCA(kernel="rbf"), data[0], {"gamma": GAMMAS})
