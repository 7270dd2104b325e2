"""Inverting and subtracting what rows add up to, against what the audit had said."""

import numpy as np
import pytest
from scipy.optimize import least_squares
from tests.attacks.overhearing import messages_of, overheard

import eigenmesh as em
from eigenmesh.errors import PolicyRefusal
from eigenmesh.numerics.kernels import Kernel
from eigenmesh.numerics.landmark_sums import Span, residuals
from eigenmesh.numerics.mean_outside import SampleBounds
from eigenmesh.numerics.shortfall import Probes, probe
from eigenmesh.reports.audit import Severity

pytestmark = pytest.mark.filterwarnings("ignore")
GAMMA = 0.1
RBF = Kernel("rbf", GAMMA)


def fit(blocks, replies, n_landmarks=15, landmarks="uniform"):
    parts = em.Partitioned(rows=blocks, names=["small", "large"][: len(blocks)])
    settings = {"landmarks": landmarks, "n_landmarks": n_landmarks, "random_state": 0}
    kpca = em.DisKPCA(1, kernel="rbf", gamma=GAMMA, center=False, **settings)
    beforehand = em.audit(em.plan(kpca, parts))
    with overheard(replies):
        kpca.fit(parts)
    return kpca, beforehand


def sums_of(replies, party):
    return messages_of(replies, party, "projected_gram")[-1]


def inverted(reply, Y, n, d, starts, seed=0):
    """The rows whose sums come nearest to those of a reply."""
    shift, triangle = Span.of(RBF, Y).shift, np.triu_indices(len(Y))
    target = np.concatenate([reply.upper, reply.sums])

    def off(x):
        K = RBF.block(x.reshape(n, d), Y) - shift
        return np.concatenate([(K.T @ K)[triangle], K.sum(axis=0)]) - target

    rng, best = np.random.default_rng(seed), None
    for _ in range(starts):
        found = least_squares(off, rng.normal(size=n * d), max_nfev=120)
        best = found if best is None or found.cost < best.cost else best
    return best.x.reshape(n, d)


def recovered_share(guess, truth, within=0.01):
    nearest = np.min(np.linalg.norm(truth[:, None] - guess[None], axis=2), axis=1)
    return float(np.mean(nearest <= within * np.linalg.norm(truth, axis=1)))


def line_of(audit, kind):
    return next(line for line in audit.of("small") if line.sent_as == kind)


@pytest.mark.parametrize(("n", "seed"), [(1, 0), (1, 1), (2, 2)])
def test_sums_of_one_or_two_rows_are_these_rows(n, seed):
    rng = np.random.default_rng(seed)
    blocks, replies = [rng.normal(size=(n, 3)), rng.normal(size=(60, 3))], []
    kpca, audit = fit(blocks, replies)
    guess = inverted(sums_of(replies, "small"), kpca.model_.landmarks, n, 3, starts=6)
    assert recovered_share(guess, blocks[0]) == 1.0
    assert (line_of(audit, "gram").kind, line_of(audit, "gram").severity) == ("rows", Severity.ROWS)


def test_sums_of_five_rows_with_more_numbers_than_unknowns_are_determined_and_told_so():
    rng = np.random.default_rng(4)
    blocks, replies = [rng.normal(size=(5, 2)), rng.normal(size=(60, 2))], []
    kpca, audit = fit(blocks, replies)
    guess = inverted(sums_of(replies, "small"), kpca.model_.landmarks, 5, 2, starts=8)
    assert recovered_share(guess, blocks[0]) >= 0.5
    assert line_of(audit, "gram").severity == Severity.DETERMINED
    assert "determined in principle" in line_of(audit, "gram").words


def test_sums_of_many_rows_in_few_numbers_give_none_of_them():
    rng = np.random.default_rng(5)
    blocks, replies = [rng.normal(size=(40, 8)), rng.normal(size=(60, 8))], []
    kpca, audit = fit(blocks, replies, n_landmarks=6, landmarks="centroids")
    guess = inverted(sums_of(replies, "small"), kpca.model_.landmarks, 40, 8, starts=1)
    assert recovered_share(guess, blocks[0]) == 0.0
    assert line_of(audit, "gram").severity == Severity.SUMS


@pytest.mark.parametrize("seed", range(3))
def test_two_versions_of_a_data_set_tell_the_row_between_them_and_the_audit_says_so(seed):
    rng = np.random.default_rng(seed)
    rows, other, Y = rng.normal(size=(40, 3)), rng.normal(size=(60, 3)), None
    sums = []
    for version in (rows, rows[:-1]):
        replies = []
        kpca, audit = fit([version, other], replies, n_landmarks=100)  # every row is a landmark
        reply, Y = sums_of(replies, "small"), kpca.model_.landmarks
        c = Span.of(RBF, Y).shift
        sums.append((np.asarray(reply.sums) + len(version) * c, Y))
    after = {tuple(np.round(y, 9)) for y in sums[1][1]}
    between = [y for y in sums[0][1] if tuple(np.round(y, 9)) not in after]
    np.testing.assert_allclose(between, [rows[-1]], rtol=1e-9)
    assert any("by subtraction" in words for words in audit.beyond)


@pytest.mark.parametrize("seed", range(3))
def test_the_difference_of_two_sums_with_the_same_landmarks_is_one_row(seed):
    rng = np.random.default_rng(seed)
    rows, Y = rng.normal(size=(40, 3)), rng.normal(size=(8, 3))
    before, after = (RBF.block(version, Y).sum(axis=0) for version in (rows, rows[:-1]))

    def off(x):
        return RBF.block(x.reshape(1, 3), Y)[0] - (before - after)

    guesses = [least_squares(off, y).x for y in Y]
    nearest = min(np.linalg.norm(guess - rows[-1]) for guess in guesses)
    assert nearest < 1e-4
    audit = fit([rows, rng.normal(size=(60, 3))], [])[1]
    assert audit.beyond


@pytest.mark.parametrize("seed", range(4))
def test_components_over_centroids_do_not_tell_members_from_others(seed):
    rng = np.random.default_rng(seed)
    members, others = rng.normal(size=(400, 5)), rng.normal(size=(400, 5))
    kpca, _ = fit([members[:200], members[200:]], [], n_landmarks=20, landmarks="centroids")
    Y = kpca.model_.landmarks
    inside, outside = (residuals(RBF, X, Y) for X in (members, others))
    share_nearer = np.mean(inside[:, None] < outside[None])  # area under the curve
    assert abs(share_nearer - 0.5) < 0.08


@pytest.mark.parametrize("seed", range(3))
def test_landmarks_that_are_rows_tell_members_and_the_audit_counts_them(seed):
    rng = np.random.default_rng(seed)
    blocks = [rng.normal(size=(50, 4)), rng.normal(size=(60, 4))]
    kpca, audit = fit(blocks, [], n_landmarks=12)
    distances = residuals(RBF, np.vstack(blocks), kpca.model_.landmarks)
    assert np.sum(distances < 1e-9) == 12
    assert audit.model == ("holds 12 rows of the data: whoever has it has them",)


@pytest.mark.parametrize("seed", range(2))
def test_scores_of_single_rows_invert_where_they_are_more_than_columns_and_the_audit_says_so(seed):
    rng = np.random.default_rng(seed)
    blocks = [rng.normal(size=(40, 3)), rng.normal(size=(40, 3))]
    parts = em.Partitioned(rows=blocks, names=["small", "large"])
    settings = {"n_eigenvectors": 6, "n_landmarks": 16, "random_state": 0, "n_init": 1}
    kmeans = em.KernelKMeans(3, kernel="rbf", gamma=GAMMA, **settings)
    audit, replies = em.audit(em.plan(kmeans, parts)), []
    with overheard(replies):
        kmeans.fit(parts)
    model = kmeans.model_
    points = [m.points for m in messages_of(replies, "small", "draw_coreset")]
    for z in np.vstack(points)[:8] if points else ():
        start = model.landmarks[
            np.argmin(np.linalg.norm(_scores(model, model.landmarks) - z, axis=1))
        ]
        guess = least_squares(lambda x, z=z: _scores(model, x[None])[0] - z, start).x
        if recovered_share(guess[None], blocks[0], within=0.05) > 0:
            break
    else:
        return  # nothing was recovered
    line = line_of(audit, "scores")
    assert line.severity >= Severity.PARTS
    assert "single row" in line.words


def _scores(model, X):
    return np.asarray(model.transform(X))[:, :6]


KEPT = em.Policy().allow - {"rows", "columns"}


def three_parties(seed=8):
    rng = np.random.default_rng(seed)
    blocks = [rng.normal(size=(40, 4)) * 2 + rng.normal(size=4) for _ in range(3)]
    return blocks, em.Partitioned(rows=blocks, policies=[em.Policy(allow=KEPT)] * 3)


def test_sums_around_drawn_points_are_rows_without_masks():
    """In all parties five rows are nearest to each point; a party's own may be one."""
    blocks, kept = three_parties()
    kpca = em.KernelPCA(2, kernel="rbf", gamma=0.05, landmarks="drawn", random_state=0)
    kpca.set_params(n_landmarks=40)
    replies = []
    with overheard(replies), pytest.raises(PolicyRefusal, match="'rows'"):
        kpca.fit(kept)
    assert not messages_of(replies, "party-0", "row_sums")  # before anything has left
    with em.federation(kept, secure=True) as fed:
        kpca.fit(fed)  # masked it leaves nobody
    with overheard(replies):
        kpca.fit(em.Partitioned(rows=blocks))
    (told,) = messages_of(replies, "party-0", "sum_nearest")
    singles = told.sums[told.counts == 1]
    assert np.linalg.norm(blocks[0] - singles[0], axis=1).min() < 1e-9
    assert "may tell of a single row" in str(em.audit(kpca.report_))


def test_high_degrees_tell_the_row_farthest_along_a_landmark_and_the_audit_says_so():
    blocks, kept = three_parties()
    kpca = em.DisKPCA(2, kernel="poly", degree=60, gamma=1.0, coef0=0.0, center=False)
    kpca.set_params(landmarks="centroids", n_landmarks=12, random_state=0)
    replies = []
    with overheard(replies):
        kpca.fit(kept)
    upper = messages_of(replies, "party-0", "projected_gram")[-1].upper
    Y = kpca.model_.landmarks
    diagonal = upper[np.cumsum([0, *range(len(Y), 1, -1)])]
    farthest = np.abs(blocks[0] @ Y.T).max(axis=0)
    off = np.abs(diagonal ** (1 / 120) / farthest - 1)
    assert np.median(off) < 1e-3
    assert "the row farthest along the landmark" in str(em.audit(kpca.report_))


def test_products_with_a_rare_level_are_the_one_row_that_has_it_and_the_audit_says_so():
    blocks, _ = three_parties()
    for block in blocks:
        block[:, 3] = 0.0
    blocks[0][17, 3] = 1.0
    kept = em.Partitioned(rows=blocks, policies=[em.Policy(allow=KEPT)] * 3)
    kpca, replies = em.KernelPCA(2), []
    beforehand = em.audit(em.plan(kpca, kept))
    with overheard(replies):
        kpca.fit(kept)
    (told,) = messages_of(replies, "party-0", "centred_products")
    (sums,) = messages_of(replies, "party-0", "feature_sums")
    totals = [messages_of(replies, f"party-{i}", "feature_sums")[0].sums for i in range(3)]
    mean = np.sum(totals, axis=0) / sum(map(len, blocks))
    last = np.array([told.upper[i] for i in (3, 6, 8, 9)])  # of a triangle of four columns
    row = last + mean[3] * sums.sums + mean * sums.sums[3] - len(blocks[0]) * mean * mean[3]
    np.testing.assert_allclose(row, blocks[0][17], atol=1e-9)
    assert "of a single one they tell all columns" in str(beforehand)


OWN_ROWS_STAY = {"centroids", "gram", "moments", "counts"}  # no rows


@pytest.mark.parametrize(
    ("trust", "sizes", "n_coordinates"),
    [
        ("domain", (1500, 400, 7), 6),
        ("domain", (1500, 400, 7), 12),
        ("domain", (1500, 400, 7), 30),
        ("organisations", (3000, 3000, 3000), 12),
    ],
)
def test_groups_have_more_rows_than_follow_from_a_mean_of_their_scores(trust, sizes, n_coordinates):
    """Five rows of two columns followed from the mean of their scores in twelve components."""
    rng, d, replies = np.random.default_rng(n_coordinates), 2, []
    rows = [rng.normal(size=(n, d)) for n in sizes]
    parts = em.Partitioned(rows=rows, policies=[em.Policy(allow=OWN_ROWS_STAY)] * 3)
    how = {"n_eigenvectors": n_coordinates, "n_landmarks": 60, "landmarks": "centroids"}
    how |= {"n_init": 1, "max_iter": 3, "accuracy": 0.9, "random_state": 0}
    model = em.KernelKMeans(40, kernel="rbf", gamma=0.3, kmeans="groups", **how)
    with em.federation(parts, trust=trust, secure=False) as fed, overheard(replies):
        model.fit(fed)
    for party, n in zip(model.report_.parties, sizes, strict=True):
        sums = messages_of(replies, party, "sum_groups")
        in_group = np.concatenate([own.weights.ravel() for own in sums])
        in_group = in_group[in_group > 0]
        assert in_group.size
        assert (in_group * d > n_coordinates).all() or set(in_group) == {n}
    words = str(em.audit(model.report_))
    assert "sums over whole groups are over the same rows in each fit" in words


@pytest.mark.parametrize("seed", range(3))
def test_the_mean_of_the_farthest_rows_has_no_digits(seed):
    """By its digits two dozen fits with probes of the asker's choice told each of these rows."""
    rng = np.random.default_rng(seed)
    X, Y = rng.normal(size=(2000, 2)), rng.normal(size=(16, 2))
    span, peaks, true = Span.of(RBF, Y), [], []
    rests = np.sort(residuals(RBF, X, Y))[-5:].mean()
    for scale in rests * 2.0 ** rng.uniform(-3, 1, 200):
        probes = Probes(np.zeros((16, 1)), np.zeros(1), scale, 1.0, 64, False)
        draw = np.random.default_rng(seed)
        sums = probe(span, X, probes, seed, draw, SampleBounds(40, smallest=5), n_far=5)
        peaks.append(sums.peak ** (1 / 16))
        true.append(rests / scale)
    powers = np.log2(peaks)
    np.testing.assert_allclose(powers, powers.round(), atol=1e-9)
    off = powers - np.log2(true)
    assert np.abs(off).max() <= 1
    assert abs(off.mean()) < 0.15  # in the mean it is right
    # Where powers move tells no digits: below and above it are drawn alike.
    moves = np.sort(np.array(true)[np.argsort(true)][powers[np.argsort(true)] == 0])
    assert moves[-1] / moves[0] > 2
