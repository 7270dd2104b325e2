"""DisKPCA with exact=False, the paper's form: near the exact form, nearer with larger sketches."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_digits
from sklearn.metrics.pairwise import rbf_kernel

import eigenmesh as em
from eigenmesh.engines.faulty import Fault
from eigenmesh.errors import PartyLost, PolicyRefusal, RankError
from eigenmesh.metrics import aligned_error

DIGITS = load_digits().data / 16
RBF = {"kernel": "rbf", "gamma": 0.05}
CHOICES = ["diskpca", "leverage", "uniform", "rpcholesky", "centroids"]


def power_law(X, parties=6, seed=0):
    return em.split(X, parties, law="power", exponent=2.0, random_state=seed)


def sketched(k=4, **options):
    return em.DisKPCA(k, **{**RBF, "random_state": 0, **options}, exact=False)


@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("choice", ["uniform", "centroids", "rpcholesky"])
def test_sketches_with_room_for_every_row_give_the_exact_form(choice, center):
    """No more rows a party than a sketch has columns: the sketch is a rotation."""
    X = DIGITS[:150]
    options = {"n_landmarks": 40, "landmarks": choice, "center": center}
    parts = em.split(X, 3, random_state=0)
    wide = sketched(**options, sketch_size=4).fit(parts)
    exact = em.DisKPCA(4, **RBF, **options, random_state=0).fit(parts)
    np.testing.assert_allclose(wide.eigenvalues_, exact.eigenvalues_, rtol=1e-9)
    assert aligned_error(wide.transform(X), exact.transform(X)) < 1e-7
    assert wide.residual_ == pytest.approx(exact.residual_, rel=1e-9)
    assert wide.total_variance_ == pytest.approx(exact.total_variance_, rel=1e-9)
    assert wide.landmark_residual_ == pytest.approx(exact.landmark_residual_, rel=1e-6)


def test_the_error_approaches_that_of_the_exact_form_as_the_sketch_grows():
    X = DIGITS[:1200]
    parts = em.split(X, 2, random_state=0)
    options = {"n_landmarks": 30, "landmarks": "uniform"}
    exact = em.DisKPCA(4, **RBF, **options, random_state=0).fit(parts).residual_
    excess = []
    for size in (1, 4, 16):
        fits = [sketched(**options, sketch_size=size).fit(parts).residual_]
        excess.append(np.mean(fits) / exact - 1)
    assert excess[0] > 2 * excess[1] > 4 * excess[2] > 0
    assert excess[2] < 0.005


@pytest.mark.parametrize("choice", CHOICES)
def test_what_is_claimed_is_what_the_components_capture(choice):
    """Only the subspace is sketched: a last round measures it."""
    X = DIGITS[:500]
    model = sketched(landmarks=choice, n_landmarks=40, center=False, sketch_size=1)
    model.fit(power_law(X))
    Z = model.transform(X)
    np.testing.assert_allclose(np.square(Z).sum(axis=0), model.eigenvalues_, rtol=1e-9)
    assert np.abs(Z.T @ Z - np.diag(model.eigenvalues_)).max() < 1e-8 * model.eigenvalues_[0]
    top = np.linalg.eigvalsh(rbf_kernel(X, gamma=0.05))[::-1][:4]
    assert (model.eigenvalues_ <= top * (1 + 1e-12)).all()
    assert model.residual_ == pytest.approx(len(X) - np.square(Z).sum(), rel=1e-9)


def test_centred_scores_have_mean_zero_over_all_parties():
    model = sketched(n_landmarks=40, sketch_size=2).fit(power_law(DIGITS[:500]))
    Z = model.transform(DIGITS[:500])
    assert np.abs(Z.mean(axis=0)).max() < 1e-12
    assert np.square(Z).sum() == pytest.approx(model.eigenvalues_.sum(), rel=1e-9)


def test_leverage_by_sketch_is_near_that_by_gram():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1500, 30)) * rng.pareto(1.5, size=(1500, 1))
    kernel = {"kernel": "poly", "gamma": 1.0, "degree": 2, "coef0": 0.0}
    fits = [
        em.DisKPCA(5, **kernel, center=False, exact=exact, random_state=0).fit(power_law(X))
        for exact in (True, False)
    ]
    assert fits[1].leverage_skew_ == pytest.approx(fits[0].leverage_skew_, rel=0.5)
    assert fits[1].residual_ < 1.05 * fits[0].residual_


def test_sparse_rows_and_all_components():
    X = sp.random_array((200, 50), density=0.1, random_state=np.random.default_rng(0), format="csr")
    options = {"kernel": "cosine", "n_landmarks": 20, "exact": False, "random_state": 0}
    sparse = em.DisKPCA(None, **options).fit(em.split(X, 3, random_state=0))
    dense = em.DisKPCA(None, **options).fit(em.split(X.toarray(), 3, random_state=0))
    assert len(sparse.eigenvalues_) == 20
    np.testing.assert_allclose(sparse.eigenvalues_, dense.eigenvalues_, rtol=1e-8)


def test_a_party_that_lets_no_sketch_out_refuses():
    no_sketch = em.Policy(allow={"rows", "gram", "moments", "counts"})
    parts = em.split(DIGITS[:200], 3, random_state=0, policies=[no_sketch] * 3)
    em.DisKPCA(2, **RBF, n_landmarks=20).fit(parts)
    with pytest.raises(PolicyRefusal, match="'sketch'") as caught:
        sketched(2, n_landmarks=20).fit(parts)
    assert caught.value.party == "party-0"


@pytest.mark.parametrize("round_", [1, 3, 6, 7, 8])
def test_a_party_lost_at_any_round_is_named_and_the_rest_go_on(round_):
    parts = em.split(DIGITS[:300], 4, random_state=0)
    faults = [Fault("kill", party="party-1", round=round_)]
    with em.federation(parts, faults=faults) as fed:
        with pytest.raises(PartyLost, match="party-1"):
            sketched(2, n_landmarks=30).fit(fed)
    with em.federation(parts, faults=faults, on_loss="survivors") as fed:
        model = sketched(2, n_landmarks=30).fit(fed)
    assert set(model.report_.lost) == {"party-1"}
    rest = np.vstack([part for i, part in enumerate(parts.parts) if i != 1])
    captured = float(np.square(model.transform(rest)).sum())
    assert captured == pytest.approx(model.eigenvalues_.sum(), rel=1e-9)
    K = rbf_kernel(rest, gamma=0.05)
    true = len(rest) - K.sum() / len(rest) - captured
    assert abs(model.residual_ - true) <= 4 * model.residual_error_
    assert model.residual_error_ <= 1e-3 * len(rest)


def test_more_components_than_landmarks_is_an_error():
    with pytest.raises(RankError, match="20 components"):
        sketched(20, n_landmarks=10).fit(em.split(DIGITS[:100], 3, random_state=0))


def test_a_saved_model_gives_the_same_scores(tmp_path):
    model = sketched(3, n_landmarks=30).fit(power_law(DIGITS[:300]))
    model.save(tmp_path / "model.em")
    loaded = em.load(tmp_path / "model.em")
    np.testing.assert_allclose(loaded.transform(DIGITS), model.transform(DIGITS), atol=1e-13)
    assert loaded.exact is False
