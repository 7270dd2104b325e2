"""What a fit sends against shipping everything: told beforehand, and warned of where it is more."""

import inspect
import re
import warnings

import numpy as np
import pytest
from sklearn.base import clone

import eigenmesh as em

RNG = np.random.default_rng(9)
X = RNG.normal(size=(90, 6)) @ RNG.normal(size=(6, 6))
Y = X[:, 0] + RNG.normal(size=90)
ROWS = em.split(X, 3, random_state=0)
COLUMNS = em.split(X, 3, by="columns")
ROW_YS = [Y[rows] for rows in ROWS.order]

DOORS = (em.KernelPCA, em.KernelKMeans, em.KernelPCRegressor)
BY_ROWS = (em.DisKPCA, em.SketchingPCA, em.ADMMKPCA, em.GossipKPCA, em.FedKernelKMeans)
BY_COLUMNS = (em.OneShotKPCA, em.VFedPCA, em.VFedAKPCA, em.DPCA)
SIZES = {"n_components": 2, "n_clusters": 3, "n_iterations": 5, "n_inner": 2, "n_init": 2}
CASES = [
    *((kind, ROWS, {}) for kind in (*BY_ROWS, *DOORS)),
    *((kind, COLUMNS, {}) for kind in (*BY_COLUMNS, *DOORS)),
    *((kind, source, {"topology": "ring"}) for kind in DOORS for source in (ROWS, COLUMNS)),
]


def small(kind, **params):
    known = inspect.signature(kind).parameters
    chosen = {**SIZES, "random_state": 0, **params}
    return kind(**{name: value for name, value in chosen.items() if name in known})


def fit(model, source):
    """The fitted model, and the warnings about cost that it gave."""
    targets = [ROW_YS if source is ROWS else Y] if isinstance(model, em.KernelPCRegressor) else []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(source, *targets)
    return model, [w for w in caught if issubclass(w.category, em.CostWarning)]


_FITTED = {}  # for tests that only look


def fitted(kind, source, params, seed):
    """Of a case with a kernel that suits it: the model, and the warnings about cost."""
    case = (kind, source.split, *params, seed)
    if case not in _FITTED:
        drawn = suited(kind, source, np.random.default_rng(seed))
        _FITTED[case] = fit(small(kind, **params, **drawn), source)
    return _FITTED[case]


def sent(account):
    return account.floats_up + account.floats_down


def suited(kind, source, rng):
    """A kernel that the method has."""
    named = ["rbf", "poly"] if source is COLUMNS else ["linear", "rbf", "poly", "cosine"]
    kernel = str(rng.choice(named))
    rules = [0.1, "median"] if source is ROWS else [0.1]
    return {"kernel": kernel, "degree": 2, "gamma": rules[rng.integers(len(rules))]}


@pytest.mark.parametrize(("kind", "source", "params"), CASES)
@pytest.mark.parametrize("seed", range(2))
def test_more_than_shipping_is_warned_of_once_with_figures_and_a_way_out(
    kind, source, params, seed
):
    model, told = fitted(kind, source, params, seed)
    floats, whole = sent(model.report_), model.report_.baseline_floats
    assert len(told) == (floats > whole)
    for warning in told:
        words = str(warning.message)
        unit = "column" if source is COLUMNS else "row"
        assert words.startswith(
            f"{floats:,} floats were sent where shipping every {unit} takes {whole:,}; "
        )
        assert words.endswith(", or pool the data if you may")
        assert words in model.report_.notes
        assert_the_way_out_exists(words, model, source)


def assert_the_way_out_exists(words, model, source):
    """What is to be lowered is a parameter of whoever was called, and a method suits the data."""
    for named in re.findall(r"lower ([\w, ]+?)(?:,? or take|, or|$)", words):
        for name in re.split(r", | or ", named):
            assert name in model.get_params(), (name, words)
    for method in re.findall(r"method='([\w-]+)'", words):
        if isinstance(model, DOORS):
            em.plan(clone(model).set_params(method=method), source)  # others look at `model`


@pytest.mark.parametrize("split", ["rows", "columns"])
def test_less_than_shipping_is_no_cause_for_a_warning(split):
    wide = np.random.default_rng(1).normal(size=(60, 400))
    parts = em.split(wide, 2, by=split, random_state=0)
    model = small(em.SketchingPCA if split == "rows" else em.OneShotKPCA, embedding_dim=20)
    model, told = fit(model, parts)
    assert sent(model.report_) < model.report_.baseline_floats
    assert not told
    assert "shipping" not in " ".join(em.plan(model, parts).notes)


def test_one_array_costs_nothing():
    for kind in DOORS:
        assert fit(small(kind), X)[1] == []


def test_costs_can_be_ignored_apart_from_caveats_on_the_answer():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", em.CostWarning)
        warnings.simplefilter("error", em.EigenmeshWarning)
        em.KernelPCA(2, n_landmarks=90, landmarks="uniform").fit(ROWS)
    assert any(issubclass(w.category, em.CostWarning) for w in caught)


@pytest.mark.parametrize(("kind", "source", "params"), CASES)
@pytest.mark.parametrize("seed", range(2))
def test_a_plan_names_its_method_and_is_exact_or_says_at_most(kind, source, params, seed):
    model, _ = fitted(kind, source, params, seed)
    plan = em.plan(clone(model), source)
    assert plan.method
    assert str(plan).startswith(plan.method)
    if isinstance(model, em.KernelPCA):
        assert model.method_.partition("; what left")[0] == plan.method
    elif kind not in DOORS:
        assert plan.method.startswith(kind.__name__)
    notes = " ".join(plan.notes)
    assert plan.is_bound == ("at most " in str(plan).splitlines()[1])
    if plan.is_bound:
        assert sent(model.report_) <= sent(plan)
    elif not notes.startswith(("about", "as if")):
        assert sent(model.report_) == sent(plan)
    assert ("more than shipping everything" in notes) == (sent(plan) > plan.baseline_floats)


@pytest.mark.parametrize("n", [50, 5000])
def test_the_plan_of_one_array_names_what_a_fit_would_do(n):
    plan = em.plan(em.KernelPCA(2, kernel="rbf"), np.zeros((n, 3)))
    assert plan.method.startswith("exact:" if n == 50 else "diskpca:")
    assert sent(plan) == 0


# What warnings of cost advise, and an argument that follows it.
ADVICE = {
    "take method='one-shot'": {"method": "one-shot"},
    "lower n_landmarks": {"n_landmarks": 10},
    "lower n_eigenvectors": {"n_eigenvectors": 2},
    "lower local_rank": {"local_rank": "half"},
    "give gamma as a number": {"gamma": 0.02},
}


@pytest.mark.parametrize(
    ("kind", "source", "params"),
    [
        (em.KernelKMeans, ROWS, {"topology": "full"}),
        (em.KernelKMeans, ROWS, {}),
        (em.KernelKMeans, COLUMNS, {}),
        (em.KernelPCRegressor, COLUMNS, {}),
        (em.OneShotKPCA, COLUMNS, {"local_rank": 6}),
        (em.OneShotKPCA, COLUMNS, {"kernel": "rbf", "local_rank": 20, "gamma": "median"}),
        (em.VFedAKPCA, COLUMNS, {"gamma": "median"}),
        (em.KernelPCA, ROWS, {"kernel": "poly", "gamma": 0.1}),
    ],
)
def test_what_a_warning_of_cost_advises_lowers_the_cost(kind, source, params):
    own = {"kernel": "rbf", "gamma": 0.02, "random_state": 0, **params}
    if kind is em.OneShotKPCA and "kernel" not in params:
        own.update(kernel="linear", gamma=None, local_rank=2)
    model, warned = fit(small(kind, **own), source)
    (words,) = {str(w.message) for w in warned}
    advice = [own_words for own_words in ADVICE if own_words in words]
    assert ("give gamma" in words) == isinstance(own["gamma"], str)
    assert advice or "leave out columns that tell nothing" in words
    for of_words in advice:
        ((name, value),) = ADVICE[of_words].items()
        lower = own[name] // 2 if value == "half" else value
        cheaper, _ = fit(clone(model).set_params(**{name: lower}), source)
        assert sent(cheaper.report_) < sent(model.report_), of_words
    if not advice:
        fewer = em.Partitioned(rows=[own[:, :4] for own in source.parts])
        cheaper, _ = fit(clone(model), fewer)
        assert sent(cheaper.report_) < sent(model.report_)
