"""All coordinates in the bytes of a few numbers: closer than eigenpairs, and said to be columns."""

import numpy as np
import pytest
from sklearn.decomposition import KernelPCA

import eigenmesh as em
from eigenmesh.data.synthetic import gene_like
from eigenmesh.errors import InputError, PolicyRefusal, TooManySamples
from eigenmesh.metrics import sin_theta
from eigenmesh.runtime.ledger import COORDINATOR

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
EVERYTHING = em.Policy().allow


def spread(n_components=2, **settings):
    usual = {"kernel": "rbf", "gamma": 0.05, "local_rank": 3, "random_state": 0}
    return em.OneShotKPCA(
        n_components, fusion="distance", precision="spread", **{**usual, **settings}
    )


def drawn_columns(seed=0, n=80, widths=(20, 12)):
    """Of a spectrum that falls slowly, so that no few coordinates have all."""
    rng = np.random.default_rng(seed)
    m = sum(widths)
    X = rng.normal(size=(n, m)) * np.geomspace(1, 0.1, m) @ np.linalg.qr(rng.normal(size=(m, m)))[0]
    return np.split(3 * X / X.std() / np.sqrt(m), np.cumsum(widths)[:-1], axis=1)


def drawn_case(seed):
    """Any number of samples, columns, parties, components and bits."""
    rng = np.random.default_rng(seed)
    parties = int(rng.integers(2, 5))
    widths = tuple(int(w) for w in rng.integers(2, 30, size=parties))
    how = {"gamma": float(rng.uniform(0.02, 0.5)), "center": bool(rng.integers(2))}
    k, rank = int(rng.integers(1, 4)), int(rng.integers(2, 8))
    blocks = drawn_columns(seed, int(rng.integers(30, 110)), widths)
    return em.Partitioned(columns=blocks), k, rank, how


def aligned(A, B):
    return A * np.sign((A * B).sum(axis=0))


@pytest.mark.parametrize("n_samples", [60, 9])
def test_equals_scikit_learn_where_the_bytes_are_enough_for_all_bits(n_samples):
    blocks, new = drawn_columns(1, n_samples), drawn_columns(2, 30)
    model = spread(3, local_rank=20).fit(em.Partitioned(columns=blocks))
    reference = KernelPCA(3, kernel="rbf", gamma=0.05, eigen_solver="dense").fit(np.hstack(blocks))
    np.testing.assert_allclose(model.eigenvalues_, reference.eigenvalues_, rtol=1e-10)
    expected = reference.transform(np.hstack(new))
    scores = model.transform(em.Partitioned(columns=new))
    np.testing.assert_allclose(aligned(scores, expected), expected, atol=1e-9)
    assert model.report_.precision_error == 0.0
    assert "what the parties sent are their columns, centred, rotated" in model.report_.notes


def test_the_error_falls_as_bytes_grow_and_new_samples_follow():
    blocks, new = drawn_columns(3), np.hstack(drawn_columns(4, 40))
    parts, X = em.Partitioned(columns=blocks), np.hstack(blocks)
    reference = KernelPCA(2, kernel="rbf", gamma=0.05, eigen_solver="dense").fit(X)
    expected, errors, of_new = reference.transform(new), [], []
    for rank in (2, 3, 5, 8):
        model = spread(local_rank=rank).fit(parts)
        errors.append(sin_theta(model.eigenvectors_, reference.eigenvectors_))
        scores = aligned(model.transform(new), expected)
        of_new.append(np.abs(scores - expected).max() / np.abs(expected).max())
    assert all(b < a / 3 for a, b in zip(errors, errors[1:], strict=False))
    assert of_new[0] < 0.1
    assert of_new[-1] < 1e-4


def test_twenty_times_closer_than_eigenpairs_of_no_fewer_bytes():
    """As `bench_bytes.py` measures it; of drawn genes, whose spectra are flat, it is less."""
    blocks = drawn_columns(5, 150, (25, 25))
    parts = em.Partitioned(columns=blocks)
    exact = em.OneShotKPCA(3, kernel="rbf", gamma=0.05, local_rank=150).fit(np.hstack(blocks))
    for rank in (4, 8):
        few = spread(3, local_rank=rank).fit(parts)
        paper = em.OneShotKPCA(3, kernel="rbf", gamma=0.05, local_rank=rank).fit(parts)
        assert few.report_.bytes <= paper.report_.bytes
        ours, theirs = (sin_theta(m.eigenvectors_, exact.eigenvectors_) for m in (few, paper))
        assert ours < theirs / 20


@pytest.mark.parametrize("seed", range(6))
def test_what_is_sent_is_no_more_than_so_many_numbers_and_what_the_plan_says(seed):
    parts, k, rank, how = drawn_case(seed)
    model = spread(k, local_rank=rank, **how)
    plan = em.plan(model, parts)
    with em.federation(parts) as fed, fed.recording() as recording:
        model.fit(fed)
    n, widths = len(parts.parts[0]), [block.shape[1] for block in parts.parts]
    sent = {e.sender: e for e in recording.ledger if e.sender != COORDINATOR and e.floats}
    for name, width in zip(parts.names, widths, strict=True):
        assert sent[name].kinds["columns"] == sent[name].floats <= n * (width + 1)
        assert sent[name].bytes <= 8 * n * min(rank, width) + 600  # the header
    assert model.report_.floats_up <= plan.floats_up
    assert plan.is_bound
    assert "more than shipping" not in str(plan)
    assert set(plan.reveals[parts.names[0]]) == {"columns", "counts", "hashes"}


def test_what_is_said_of_the_error_holds_in_sixty_cases():
    for seed in range(100, 160):
        parts, k, rank, how = drawn_case(seed)
        few = spread(k, local_rank=rank, **how).fit(parts)
        exact = em.OneShotKPCA(k, kernel="rbf", fusion="distance", local_rank=110, **how).fit(parts)
        off = np.abs(exact.eigenvalues_ - few.eigenvalues_)
        slack = 1e-10 * exact.eigenvalues_[0]
        assert (off <= few.eigenvalues_ * few.report_.precision_error + slack).all(), seed
        assert (off <= few.eigenvalues_ * few.shortfalls_ + slack).all(), seed
        assert off.max() <= few.report_.bounds["kernel_error"] + slack
        assert few.total_variance_ >= exact.total_variance_ - slack
        assert few.residual_ >= exact.total_variance_ - exact.eigenvalues_.sum() - slack
        error = sin_theta(few.eigenvectors_, exact.eigenvectors_)
        assert error <= few.report_.bounds["sin_theta"] + 1e-8


def test_a_party_that_lets_no_columns_out_refuses_before_its_data_are_read():
    class Watched(em.Partitioned):
        def part(self, party):
            self.__dict__.setdefault("opened", set()).add(self.names[party])
            return super().part(party)

    policy = em.Policy(allow=EVERYTHING - {"columns"})
    parts = Watched(columns=drawn_columns(), policies=[None, policy])
    with em.federation(parts) as fed, fed.recording() as recording:
        with pytest.raises(PolicyRefusal, match="columns") as caught:
            spread().fit(fed)
    assert caught.value.party == "party-1"
    assert recording.ledger.revealed() == {}
    assert "party-1" not in getattr(parts, "opened", set())
    # Eigenpairs of the same party may leave: it is asked for columns by name alone.
    em.OneShotKPCA(2, kernel="rbf", gamma=0.05, local_rank="discreet").fit(parts)


def test_the_audit_says_that_columns_are_determined_up_to_rotation():
    parts = em.Partitioned(columns=drawn_columns(0, 40, (60, 60)))
    model = spread(local_rank=2)
    before = em.audit(em.plan(model, parts))
    after = em.audit(model.fit(parts).report_)
    for account in (before, after):
        line = account.worst
        assert line.kind == line.sent_as == "columns"
        assert "determine its 60 columns up to rotation" in line.words
    assert max(line.numbers for line in after.lines) < 40 * 60  # though they are fewer
    assert any("rotated and rounded" in note for note in model.report_.notes)


def test_distances_of_the_columns_are_told_as_the_audit_says():
    blocks = drawn_columns(6, 60, (30, 30))
    fusion = spread(local_rank=4).fit(em.Partitioned(columns=blocks)).model_.fusion
    S = fusion.coordinates[:, : fusion.kept[0]]
    X = blocks[0] - blocks[0].mean(axis=0)
    # Known samples fix the rotation: all others follow, as from the columns themselves.
    left, _, right = np.linalg.svd(S[:32].T @ X[:32], full_matrices=False)
    rebuilt = S[32:] @ left @ right
    assert np.linalg.norm(rebuilt - X[32:]) < 0.15 * np.linalg.norm(X[32:])


@pytest.mark.parametrize("rank", [2, 5])
def test_fitted_samples_are_scored_as_new_ones_are(rank):
    parts = em.Partitioned(columns=drawn_columns(7))
    model = spread(local_rank=rank)
    np.testing.assert_allclose(model.fit_transform(parts), model.transform(parts), atol=1e-12)


def test_a_model_is_saved_and_loaded_with_its_shares(tmp_path):
    parts = em.Partitioned(columns=drawn_columns(8))
    model = spread().fit(parts)
    model.save(tmp_path / "model.em", parties=True)
    loaded = em.load(tmp_path / "model.em")
    assert loaded.model_.fusion.rounding == model.model_.fusion.rounding
    assert loaded.report_.precision == model.report_.precision
    np.testing.assert_allclose(loaded.transform(parts), model.transform(parts), atol=1e-12)


@pytest.mark.parametrize(
    "block",
    [np.ones((80, 3)), np.zeros((80, 9)), np.repeat(np.eye(80)[:, :2], 4, axis=1)],
    ids=["constant", "zero", "repeated"],
)
def test_columns_that_hold_little_are_no_trouble(block):
    blocks = [*drawn_columns(9), block]
    model = spread(local_rank=4).fit(em.Partitioned(columns=blocks))
    pooled = KernelPCA(2, kernel="rbf", gamma=0.05, eigen_solver="dense").fit(np.hstack(blocks))
    np.testing.assert_allclose(model.eigenvalues_, pooled.eigenvalues_, rtol=1e-2)
    expected = pooled.transform(np.hstack(blocks))
    scores = aligned(model.transform(np.hstack(blocks)), expected)
    assert np.abs(scores - expected).max() < 0.05 * np.abs(expected).max()


def test_columns_that_are_constant_everywhere_have_no_component():
    parts = em.Partitioned(columns=[np.ones((30, 4)), np.zeros((30, 5))])
    with pytest.raises(InputError, match="30 samples determine 0"):
        spread(1).fit(parts)


def test_two_samples_and_as_few_bytes_as_there_may_be():
    model = spread(1, local_rank=2).fit(em.Partitioned(columns=drawn_columns(0, 2, (20, 12))))
    assert model.eigenvalues_.shape == (1,)
    genes = gene_like(n_samples=40, n_features=400, random_state=0)[0]
    wide = spread(1, local_rank=2, gamma=0.002).fit(em.split(genes, 2, by="columns"))
    assert np.isfinite(wide.eigenvalues_).all()


@pytest.mark.parametrize(
    "settings",
    [{"kernel": "linear", "fusion": "product"}, {"kernel": "poly"}, {"fusion": "product"}],
    ids=str,
)
def test_what_has_no_coordinates_of_distances_is_refused(settings):
    usual = {"kernel": "rbf", "fusion": "distance", "precision": "spread", "gamma": 0.05}
    with pytest.raises(InputError, match="precision is 'spread'"):
        em.OneShotKPCA(2, **{**usual, **settings}).fit(em.Partitioned(columns=drawn_columns()))


def test_a_single_number_a_sample_is_refused():
    with pytest.raises(InputError, match="local_rank is 1"):
        spread(local_rank=1).fit(em.Partitioned(columns=drawn_columns()))


def test_front_doors_do_not_choose_it():
    parts = em.Partitioned(columns=drawn_columns())
    with pytest.raises(InputError, match="precision is 'spread'"):
        em.KernelPCA(2, kernel="rbf", gamma=0.05, precision="spread").fit(parts)
    for precision in ("exact", "auto"):
        model = em.OneShotKPCA(2, kernel="rbf", gamma=0.05, precision=precision).fit(parts)
        assert "columns" not in model.report_.reveals["party-0"]


def test_more_samples_than_a_matrix_of_pairs_can_hold_are_refused(monkeypatch):
    for name, number in (("MOST_KERNEL_SAMPLES", 50), ("N_LANDMARKS", 10)):
        monkeypatch.setattr(f"eigenmesh.methods.one_shot.estimator.{name}", number)
    with pytest.raises(TooManySamples, match="80 samples"):
        spread().fit(em.Partitioned(columns=drawn_columns()))
