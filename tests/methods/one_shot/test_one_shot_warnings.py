"""The caveats that a user hears of, and the silence where there are none."""

import warnings

import numpy as np
import pytest

import eigenmesh as em


def spread_blocks(n_samples=60, width=60):
    """Two clear directions, then noise; three parties."""
    rng = np.random.default_rng(0)
    latent = rng.normal(size=(n_samples, 2)) * [4.0, 2.0]
    return [
        latent @ rng.normal(size=(2, width)) + 0.2 * rng.normal(size=(n_samples, width))
        for _ in range(3)
    ]


HEALTHY = [
    {},
    {"center": False},
    {"kernel": "rbf", "gamma": "scale"},
    {"kernel": "rbf", "gamma": "median"},
    {"kernel": "rbf", "gamma": "mean-distance"},
    {"kernel": "rbf", "gamma": "scale", "fusion": "distance"},
]


@pytest.mark.parametrize("settings", HEALTHY, ids=str)
def test_a_sound_run_warns_of_nothing(settings):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = em.OneShotKPCA(2, random_state=0, **settings)
        model.fit(em.Partitioned(columns=spread_blocks()))
        model.transform(em.Partitioned(columns=spread_blocks()))


def caveats(model, data):
    """What a fit warns of, in one text."""
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        model.fit(data)
    ours = [w for w in heard if issubclass(w.category, em.EigenmeshWarning | em.CostWarning)]
    assert len(ours) == len(heard)
    return "\n".join(str(w.message) for w in ours)


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_warns_when_more_is_sent_than_every_row_would_cost(kernel):
    parts = em.Partitioned(columns=[block[:, :3] for block in spread_blocks()])
    model = em.OneShotKPCA(2, kernel=kernel, gamma=0.01, local_rank=3 if kernel == "linear" else 9)
    text = caveats(model, parts)
    assert str(model.report_.floats_up) in text.replace(",", "")
    assert model.report_.floats_up > model.report_.baseline_floats


def test_warns_when_the_last_component_is_not_determined():
    """Two directions of equal variance, one component wanted."""
    rng = np.random.default_rng(0)
    Q = np.linalg.qr(rng.normal(size=(60, 3)) - 0.0)[0]
    Q = np.linalg.qr(Q - Q.mean(axis=0))[0]
    X = Q * [5.0, 5.0, 1.0] @ np.linalg.qr(rng.normal(size=(30, 3)))[0].T
    X = X + 1e-9 * rng.normal(size=X.shape)
    with pytest.warns(em.EigenmeshWarning, match="determined"):
        em.OneShotKPCA(1, local_rank=4).fit(em.Partitioned(columns=np.split(X, 3, axis=1)))


def test_warns_when_the_kernel_matrix_is_close_to_the_identity():
    """σ = √M/3 on standardised data, as the paper has it."""
    X = np.random.default_rng(0).normal(size=(60, 45))
    text = caveats(
        em.OneShotKPCA(2, kernel="rbf", gamma=9 / (2 * 45), local_rank=5),
        em.Partitioned(columns=np.split(X, 3, axis=1)),
    )
    assert "identity" in text


@pytest.mark.parametrize("n_components", [2, 3])
def test_warns_when_rbf_sends_no_vector_beyond_the_components(n_components):
    """The first vector of an uncentred RBF kernel is nearly the mean."""
    text = caveats(
        em.OneShotKPCA(n_components, kernel="rbf", gamma=0.0002, local_rank=2),
        em.Partitioned(columns=spread_blocks()),
    )
    assert "local_rank" in text


def test_caveats_stand_in_the_report_too():
    model = em.OneShotKPCA(2, kernel="rbf", gamma=0.0002, local_rank=2)
    with pytest.warns(em.EigenmeshWarning):
        model.fit(em.Partitioned(columns=spread_blocks()))
    assert any("local_rank" in note for note in model.report_.notes)


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
@pytest.mark.parametrize("seed", range(3))
def test_what_one_pair_a_party_misses_is_a_number_and_no_less_than_is_missing(kernel, seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(40, 9)) @ np.diag(np.linspace(3, 1, 9))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        kpca = em.OneShotKPCA(
            1, kernel=kernel, gamma=0.05 if kernel == "rbf" else None, local_rank=1
        )
        kpca.fit(em.split(X, 3, by="columns"))
        pooled = em.KernelPCA(1, kernel=kernel, gamma=0.05).fit(X)
    true = 1 - kpca.eigenvalues_[0] / pooled.eigenvalues_[0]
    assert np.isfinite(kpca.shortfalls_).all()
    assert kpca.shortfall_ >= true
