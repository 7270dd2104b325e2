"""VFedPCA, exact: PCA of the pooled columns, at one vector a component up and down a round."""

import itertools
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.decomposition import PCA, KernelPCA
from sklearn.preprocessing import StandardScaler

import eigenmesh as em
from eigenmesh.engines.faulty import Fault
from eigenmesh.errors import MissingPartyShare, PartyLost, PolicyRefusal, RankError
from eigenmesh.methods.vfed.protocol import MORE
from eigenmesh.metrics import aligned_error, sin_theta


def returns_like(seed=0, n=200, m=120):
    """Slowly decaying columns: several rounds are needed."""
    rng = np.random.default_rng(seed)
    latent = rng.normal(size=(n, 8)) * np.geomspace(3, 1, 8)
    return latent @ rng.normal(size=(8, m)) + 2.0 * rng.normal(size=(n, m)) + 5.0


DATA = {
    "wine": load_wine().data,
    "breast": load_breast_cancer().data[:250],
    "digits": load_digits().data[:300],
    "slow": returns_like(),
    "wide": returns_like(1, n=40, m=300),
}


def fit_quietly(model, data):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", em.EigenmeshWarning)
        return model.fit(data)


# The oracle.


@pytest.mark.parametrize("name", DATA)
@pytest.mark.parametrize("parties", [1, 3, 8])
def test_equals_scikit_learns_pca_of_the_pooled_columns(name, parties):
    X = DATA[name]
    train, new = X[:-10], X[-10:]
    pooled = PCA(4, svd_solver="full").fit(train)
    model = em.VFedPCA(4).fit(em.split(train, parties, by="columns"))
    assert aligned_error(model.components_.T, pooled.components_.T) < 1e-8
    assert aligned_error(model.transform(new), pooled.transform(new)) < 1e-8
    np.testing.assert_allclose(
        model.explained_variance_ratio_, pooled.explained_variance_ratio_, rtol=1e-10
    )
    np.testing.assert_allclose(model.eigenvalues_, pooled.singular_values_**2, rtol=1e-10)
    assert model.total_variance_ == pytest.approx(((train - train.mean(0)) ** 2).sum())
    restored = model.inverse_transform(model.transform(new))
    np.testing.assert_allclose(
        restored, pooled.inverse_transform(pooled.transform(new)), atol=1e-7 * np.abs(X).max()
    )


@pytest.mark.parametrize("name", ["wine", "slow"])
def test_without_centring_it_is_kernel_pca_of_inner_products(name):
    X = DATA[name]
    model = em.VFedPCA(3, center=False).fit(em.split(X, 3, by="columns"))
    U, s, _ = np.linalg.svd(X, full_matrices=False)
    np.testing.assert_allclose(model.eigenvalues_, s[:3] ** 2, rtol=1e-10)
    assert sin_theta(model.eigenvectors_, U[:, :3]) < 1e-9


def test_scores_and_signs_are_those_of_scikit_learns_kernel_pca():
    X = DATA["wine"]
    ours = em.VFedPCA(3, standardize=True).fit_transform(em.split(X, 4, by="columns"))
    scaled = StandardScaler().fit_transform(X)
    theirs = KernelPCA(3, eigen_solver="dense").fit_transform(scaled)
    np.testing.assert_allclose(ours, theirs, atol=1e-8)


@pytest.mark.parametrize("options", [{}, {"standardize": True}, {"center": False}])
def test_fit_transform_is_transform(options):
    parts = em.split(DATA["breast"], 4, by="columns")
    model = em.VFedPCA(3, **options)
    fitted = model.fit_transform(parts)
    np.testing.assert_allclose(fitted, model.transform(parts), atol=1e-7 * np.abs(fitted).max())


def test_sparse_columns_give_the_model_of_dense_ones():
    X = np.where(DATA["digits"] > 8, DATA["digits"], 0.0)
    dense = em.VFedPCA(3).fit(em.split(X, 3, by="columns"))
    sparse = em.VFedPCA(3).fit(em.split(sp.csr_array(X), 3, by="columns"))
    np.testing.assert_allclose(sparse.eigenvalues_, dense.eigenvalues_, rtol=1e-10)
    assert aligned_error(sparse.transform(sp.csr_array(X)), dense.transform(X)) < 1e-8


def test_missing_values_are_filled_by_their_owners():
    X = DATA["wine"].copy()
    X[np.random.default_rng(0).random(X.shape) < 0.05] = np.nan
    filled = np.where(np.isnan(X), np.nanmean(X, axis=0), X)
    parts = em.split(X, 3, by="columns", allow_missing=True)
    model = em.VFedPCA(2, fill_missing=0.2, standardize=True).fit(parts)
    expected = em.VFedPCA(2, standardize=True).fit(em.split(filled, 3, by="columns"))
    np.testing.assert_allclose(model.eigenvalues_, expected.eigenvalues_, rtol=1e-10)
    np.testing.assert_allclose(model.transform(X), expected.transform(filled), atol=1e-8)
    with pytest.raises(em.EigenmeshError, match="party-0.*column 1 .*lacks"):
        em.VFedPCA(2, fill_missing=0.001).fit(parts)
    with pytest.raises(em.EigenmeshError, match="NaN"):
        em.VFedPCA(2).fit(parts)


# Error against rounds.


def drawn_columns(seed):
    """Any spectrum with a gap after the last component wanted, over any parties."""
    rng = np.random.default_rng(seed)
    n, k, parties = int(rng.integers(60, 200)), int(rng.integers(1, 6)), int(rng.integers(2, 9))
    latent = rng.normal(size=(n, 8)) * np.geomspace(3, rng.uniform(0.3, 2), 8)
    X = latent @ rng.normal(size=(8, 80)) + rng.uniform(0.2, 2) * rng.normal(size=(n, 80))
    X = X * rng.uniform(0.5, 2, size=80) + rng.uniform(0, 3)
    return X, k, parties, bool(rng.integers(2))


def errors_of(U, X, pooled):
    """The angle, and the share of the variance that is not captured."""
    Q = np.linalg.qr(U.reshape(len(X), -1))[0]
    captured, most = (np.sum((X.T @ V) ** 2) for V in (Q, pooled))
    return np.array([sin_theta(Q, pooled), 1 - captured / most])


def test_never_worse_than_the_papers_variant_at_any_number_of_rounds():
    n_cases = 0
    for seed in range(10):
        X, k, parties, center = drawn_columns(seed)
        Xc = X - X.mean(0) * center
        U, s, _ = np.linalg.svd(Xc, full_matrices=False)
        if s[k] > 0.99 * s[k - 1]:  # else the data do not determine the components
            continue
        n_cases += 1
        parts = em.split(X, parties, by="columns")
        how = {"center": center, "random_state": seed}
        ours = {
            rounds: fit_quietly(em.VFedPCA(k, n_rounds=rounds, **how), parts).eigenvectors_
            for rounds in (1, 2, 3, 5)
        }
        for local, scaled in ((3, False), (10, False), (10, True), (50, False)):
            paper = {"variant": "paper", "local_iterations": local, "weight_scaling": scaled, **how}
            for rounds, vectors in ours.items():
                if rounds < 3:  # then it is frozen
                    model = fit_quietly(em.VFedPCA(k, n_rounds=rounds, **paper), parts)
                    theirs = errors_of(model.eigenvectors_, Xc, U[:, :k])
                own = errors_of(vectors, Xc, U[:, :k])
                assert (own <= theirs + 1e-6).all(), (seed, local, scaled, rounds)
    assert n_cases > 8


def test_error_falls_with_the_rounds_and_is_told():
    X = returns_like(2, m=300)
    parts = em.split(X, 5, by="columns")
    A = (X - X.mean(0)) @ (X - X.mean(0)).T
    exact = np.linalg.eigh(A)[1][:, ::-1][:, :5]
    errors = []
    for rounds in (1, 2, 3, 4, 6):
        with pytest.warns(em.EigenmeshWarning, match="not converged: residuals are at most"):
            model = em.VFedPCA(5, n_rounds=rounds, tolerance=1e-14).fit(parts)
        U = model.eigenvectors_
        errors.append(sin_theta(U, exact))
        residuals = np.linalg.norm(A @ U - U * model.eigenvalues_, axis=0)
        assert (residuals / model.eigenvalues_).max() <= model.convergence_[-1]
        left_out = np.trace(A) - np.trace(U.T @ A @ U)
        assert model.residual_ >= left_out * (1 - 1e-10)
        assert len(model.convergence_) == rounds
    assert all(after < before for before, after in itertools.pairwise(errors))
    assert errors[3] < 1e-4
    assert errors[4] < 1e-6


def test_stops_by_its_residuals():
    parts = em.split(DATA["slow"], 4, by="columns")
    loose = em.VFedPCA(2, tolerance=1e-3).fit(parts)
    tight = em.VFedPCA(2).fit(parts)
    assert loose.report_.rounds < tight.report_.rounds < 20
    assert loose.convergence_[-1] <= 1e-3 < loose.convergence_[-2]
    assert "residuals are at most" in tight.report_.stop_reason


# What is sent.


@pytest.mark.parametrize(("k", "rounds", "parties"), [(1, 1, 3), (1, 4, 2), (3, 5, 4), (2, 2, 1)])
def test_floats_are_a_vector_a_component_up_and_down_a_round_and_five_at_the_start(
    k, rounds, parties
):
    X = DATA["slow"]
    parts = em.split(X, parties, by="columns")
    model = em.VFedPCA(k, n_rounds=rounds, tolerance=1e-300)
    forecast = em.plan(model, parts)
    with em.federation(parts) as fed, fed.recording() as recording:
        fit_quietly(model, fed)
    report, n = model.report_, len(X)
    assert report.floats_down == rounds * k * n * parties
    assert report.floats_up == report.floats_down + MORE * n * parties
    assert report.rounds == rounds + 1
    assert report.baseline_floats == X.size
    own = [e.floats for e in recording.ledger if e.step == "VectorHolder.local_start"]
    assert own == [n * (k + MORE)] * parties
    others = {e.floats for e in recording.ledger if e.step != "VectorHolder.local_start"}
    assert others == {0, n * k}
    for field in ("floats_up", "floats_down", "rounds", "by_party", "by_step", "reveals"):
        assert getattr(forecast, field) == getattr(report, field), field


def test_more_vectors_come_as_long_as_they_do_not_make_up_the_columns():
    X = np.random.default_rng(0).normal(size=(60, 21))
    widths = np.cumsum([1, 2, 3, 4, 6])
    parts = em.Partitioned(columns=np.split(X, widths, axis=1))
    with em.federation(parts) as fed, fed.recording() as recording:
        em.VFedPCA(2).fit(fed)
    own = [
        e.floats // 60 for e in recording.ledger if e.step == "VectorHolder.local_start" if e.floats
    ]
    assert own == [2, 2, 2, 3, 5, 4]


def test_directions_that_run_out_do_not_change_the_traffic_of_a_round():
    """Two columns a party: the blocks shrink, the messages do not, nor are there more vectors."""
    X = np.random.default_rng(0).normal(size=(50, 6))
    model = em.VFedPCA(4).fit(em.split(X, 3, by="columns"))
    per_round = 4 * 50 * 3
    assert model.report_.floats_up % per_round == 0
    assert model.report_.floats_up == model.report_.floats_down


def test_new_samples_take_one_message_of_k_numbers_a_party():
    parts = em.split(DATA["wine"], 3, by="columns")
    model = em.VFedPCA(2, standardize=True).fit(parts)
    model.transform(parts.take_samples(range(7)))
    report = model.transform_report_
    assert (report.floats_up, report.floats_down, report.rounds) == (3 * 7 * 2, 0, 1)


def test_what_leaves_is_what_was_declared():
    report = em.VFedPCA(2).fit(em.split(DATA["digits"], 3, by="columns")).report_
    assert set(report.reveals["party-0"]) == {"eigenvectors", "gram", "counts", "hashes"}


@pytest.mark.parametrize("kind", ["eigenvectors", "gram", "counts", "hashes"])
def test_a_party_that_forbids_a_kind_refuses_before_anything_is_sent(kind):
    allowed = {"eigenvectors", "gram", "counts", "hashes"} - {kind}
    policies = [None, em.Policy(allow=allowed), None]
    parts = em.split(DATA["wine"], 3, by="columns", policies=policies)
    with em.federation(parts) as fed, fed.recording() as recording:
        with pytest.raises(PolicyRefusal, match=f"party-1.*{kind}"):
            em.VFedPCA(2).fit(fed)
    assert recording.ledger.floats_up == 0


def test_a_party_can_limit_how_many_products_it_gives():
    policies = em.Policy(calls_per_run=2)
    parts = em.split(DATA["slow"], 3, by="columns", policies=policies)
    with pytest.raises(PolicyRefusal, match="2 calls"):
        em.VFedPCA(2).fit(parts)
    fit_quietly(em.VFedPCA(2, n_rounds=3), parts)


# Shares.


def test_each_owner_can_restore_its_own_columns_and_nobody_elses(tmp_path):
    X = DATA["wine"]
    parts = em.split(X, 3, by="columns", names=["north", "east", "south"])
    model = em.VFedPCA(2, standardize=True).fit(parts)
    scores = model.transform(parts)
    whole = model.inverse_transform(scores)
    model.save(tmp_path / "m.em", parties=True)
    (tmp_path / "m.share-0.em").unlink()
    (tmp_path / "m.share-2.em").unlink()
    at_east = em.load(tmp_path / "m.em")
    np.testing.assert_array_equal(at_east.inverse_transform(scores, party="east"), whole[:, 5:9])
    np.testing.assert_array_equal(at_east.loadings("east"), model.loadings("east"))
    with pytest.raises(MissingPartyShare, match="north"):
        at_east.inverse_transform(scores)
    with pytest.raises(MissingPartyShare, match="north"):
        at_east.components_  # noqa: B018
    with pytest.raises(MissingPartyShare):
        at_east.transform(parts)
    with pytest.raises(em.EigenmeshError, match="'west' is no party"):
        at_east.loadings("west")
    with pytest.raises(em.EigenmeshError, match=r"scores have shape \(178, 1\)"):
        model.inverse_transform(scores[:, :1])


def test_a_saved_model_gives_the_same_scores(tmp_path):
    X = DATA["wine"].copy()
    X[3, 2] = np.nan
    parts = em.split(X, 3, by="columns", allow_missing=True)
    model = em.VFedPCA(2, standardize=True, fill_missing=0.1).fit(parts)
    model.save(tmp_path / "m.em", parties=True)
    loaded = em.load(tmp_path / "m.em")
    np.testing.assert_array_equal(loaded.transform(parts), model.transform(parts))
    np.testing.assert_array_equal(loaded.convergence_, model.convergence_)
    assert loaded.report_ == model.report_


# Faults.


def parts_without(lost=None):
    blocks = np.array_split(DATA["slow"], 4, axis=1)
    kept = [i for i in range(4) if i != lost]
    return em.Partitioned(columns=[blocks[i] for i in kept], names=[f"party-{i}" for i in kept])


@pytest.mark.parametrize("round_", [1, 2, 4])
@pytest.mark.parametrize("kind", ["lose", "kill", "corrupt"])
def test_a_lost_party_is_an_error_with_its_name(round_, kind):
    with em.federation(parts_without(), faults=[Fault(kind, "party-2", round_)]) as fed:
        with pytest.raises(em.EigenmeshError, match="party-2"):
            em.VFedPCA(2).fit(fed)


@pytest.mark.parametrize("round_", range(1, 12))
def test_a_party_that_leaves_gives_the_components_of_the_remaining_columns(round_):
    faults = [Fault("kill", "party-2", round_)]
    with em.federation(parts_without(), faults=faults, on_loss="survivors") as fed:
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            model = em.VFedPCA(2).fit(fed)
    left = "party-2" not in model.report_.parties
    assert left == ("'party-2' has left" in " ".join(map(str, (w.message for w in told))))
    expected = em.VFedPCA(2).fit(parts_without(2 if left else None))
    np.testing.assert_allclose(model.eigenvalues_, expected.eigenvalues_, rtol=1e-10)
    np.testing.assert_allclose(model.eigenvectors_, expected.eigenvectors_, atol=1e-8)
    new = parts_without(2 if left else None)
    np.testing.assert_allclose(model.transform(new), expected.transform(new), atol=1e-6)
    if left:
        assert "party-2" in str(model.report_)


def test_some_round_of_the_faults_above_was_in_time():
    assert em.VFedPCA(2).fit(parts_without()).report_.rounds in range(5, 12)


@pytest.mark.parametrize("rounds", [(4, 5, 7), (3, 6), (4, 5, 6)])
def test_products_that_get_lost_are_asked_for_again_and_the_answer_is_exact(rounds):
    """About a fifth of the replies; an older one never stands in for the answer."""
    expected = em.VFedPCA(2).fit(parts_without())
    faults = [Fault("lose", f"party-{1 + 2 * (r % 2)}", round=r) for r in rounds]
    with em.federation(parts_without(), faults=faults, on_loss="reuse") as fed:
        model = em.VFedPCA(2).fit(fed)
    assert sin_theta(model.eigenvectors_, expected.eigenvectors_) < 1e-9
    assert sum(model.report_.reused.values()) == len(rounds)
    assert model.report_.rounds == expected.report_.rounds + len(rounds)


def test_a_party_that_stays_silent_ends_the_run():
    faults = [Fault("lose", "party-1", round=r) for r in range(4, 40)]
    with em.federation(parts_without(), faults=faults, on_loss="reuse", max_age=2) as fed:
        with pytest.raises(PartyLost, match="party-1"):
            em.VFedPCA(2).fit(fed)


# Engines.


# Input.


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        ({"n_components": 0}, "n_components is 0"),
        ({"variant": "fast"}, "variant is 'fast'.*'exact', 'paper'"),
        ({"n_rounds": 0}, "n_rounds is 0"),
        ({"tolerance": 0.0}, "tolerance is 0.0; a positive"),
        ({"tolerance": "small"}, "tolerance is 'small'"),
        ({"fill_missing": 1.5}, "fill_missing is 1.5.*share from 0 to 1"),
        ({"topology": "circle"}, "topology 'circle'"),
        ({"random_state": -1}, "random_state"),
        ({"variant": "paper", "merge": "sum"}, "merge is 'sum'"),
        ({"variant": "paper", "local_iterations": 0}, "local_iterations is 0"),
    ],
)
def test_wrong_parameters_say_what_is_expected(wrong, match):
    with pytest.raises(em.EigenmeshError, match=match):
        em.VFedPCA(**wrong).fit(em.split(DATA["wine"], 3, by="columns"))


def test_rows_are_refused():
    with pytest.raises(em.EigenmeshError, match=r"hold rows; VFedPCA is for columns"):
        em.VFedPCA().fit(em.split(DATA["wine"], 3, by="rows", random_state=0))


@pytest.mark.parametrize(
    "X", [np.ones((20, 4)), np.full((20, 4), 0.1), np.outer(np.arange(20.0), np.ones(4))]
)
def test_more_components_than_the_rank_is_an_error(X):
    with pytest.raises(RankError, match="determine"):
        em.VFedPCA(2).fit(em.split(X, 2, by="columns"))


def test_more_components_than_samples_is_an_error():
    X = np.random.default_rng(0).normal(size=(4, 30))
    with pytest.raises(RankError, match="5 components were asked for"):
        em.VFedPCA(5).fit(em.split(X, 2, by="columns"))


def test_a_missing_gap_is_warned_about():
    X = np.vstack([np.eye(6), -np.eye(6)])
    with pytest.warns(em.EigenmeshWarning, match="not determined"):
        em.VFedPCA(2).fit(em.split(X, 3, by="columns"))


def test_the_same_seed_gives_the_same_answer_bit_for_bit():
    parts = em.split(DATA["slow"], 4, by="columns")
    one, two = (em.VFedPCA(3, random_state=5).fit(parts) for _ in range(2))
    np.testing.assert_array_equal(one.eigenvectors_, two.eigenvectors_)


def test_a_refit_in_one_federation_is_a_fresh_one():
    with em.federation(em.split(DATA["wine"], 3, by="columns")) as fed:
        first = em.VFedPCA(2).fit(fed)
        again = em.VFedPCA(2).fit(fed)
    assert first.report_.floats_up == again.report_.floats_up
    np.testing.assert_array_equal(first.eigenvectors_, again.eigenvectors_)


@pytest.mark.filterwarnings(
    "ignore::eigenmesh.errors.EigenmeshWarning"
)  # few rounds miss something
@pytest.mark.parametrize("n_rounds", [1, 2, 3, 5])
def test_a_party_that_dies_at_any_of_few_rounds_is_survived(n_rounds):
    rng = np.random.default_rng(n_rounds)
    X = rng.normal(size=(50, 9)) * rng.uniform(0.2, 3, 9)
    parts = em.split(X, 3, by="columns")
    for round_of_death in range(1, n_rounds + 4):
        faults = [Fault("kill", "party-1", round=round_of_death)]
        with em.federation(parts, faults=faults, on_loss="survivors", timeout=10) as fed:
            model = em.VFedPCA(2, n_rounds=n_rounds, random_state=0).fit(fed)
        kept = [i for i in range(3) if f"party-{i}" not in model.report_.lost]
        rest = np.hstack([parts.parts[i] for i in kept])
        most = np.linalg.svd(rest - rest.mean(axis=0), compute_uv=False)[:2] ** 2
        assert (model.eigenvalues_ <= most * (1 + 1e-9)).all()
