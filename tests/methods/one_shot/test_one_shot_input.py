"""Input that does not fit gets an error that names the party; never a number."""

import re

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

import eigenmesh as em
from eigenmesh.errors import MissingPartyShare, RankError

BAD_VALUES = [np.nan, np.inf, -np.inf]
KERNELS = ["linear", "rbf"]


def three_blocks(n_samples=20):
    rng = np.random.default_rng(0)
    return [rng.normal(size=(n_samples, width)) for width in (6, 5, 7)]


def estimator(kernel="linear", **settings):
    return em.OneShotKPCA(2, kernel=kernel, gamma=0.02 if kernel == "rbf" else None, **settings)


def fit_columns(blocks, kernel="linear", **partition):
    return estimator(kernel, local_rank=3).fit(em.Partitioned(columns=blocks, **partition))


def refused_naming(party, call):
    """The error of `call`, which must be ours and name the party."""
    with pytest.raises(em.EigenmeshError) as caught:
        call()
    assert caught.value.party == party, caught.value
    assert party in str(caught.value)
    return caught.value


# Values.


@pytest.mark.parametrize("bad", BAD_VALUES)
def test_values_that_are_not_finite_are_refused_in_a_plain_array(bad):
    X = np.hstack(three_blocks())
    X[3, 4] = bad
    with pytest.raises(em.EigenmeshError, match="NaN|nan|inf"):
        estimator().fit(X)


@pytest.mark.parametrize("bad", BAD_VALUES)
def test_values_that_are_not_finite_name_their_party(bad):
    blocks = three_blocks()
    blocks[1][2, 3] = bad
    refused_naming("party-1", lambda: fit_columns(blocks))


@pytest.mark.parametrize("suffix", [".npy", ".csv"])
@pytest.mark.parametrize("kernel", KERNELS)
def test_values_that_are_not_finite_in_a_file_name_the_party_that_opens_it(
    tmp_path, suffix, kernel
):
    blocks = three_blocks()
    blocks[2][0, 0] = np.inf
    paths = [write(tmp_path / f"{i}{suffix}", block) for i, block in enumerate(blocks)]
    refused_naming("party-2", lambda: fit_columns(paths, kernel))
    with em.federation(paths, split="columns") as fed:
        refused_naming("party-2", lambda: estimator(kernel, local_rank=3).fit(fed))


def write(path, block):
    if path.suffix == ".npy":
        np.save(path, block)
    else:
        pd.DataFrame(block).add_prefix("x").to_csv(path, index=False)
    return path


def test_sparse_values_that_are_not_finite_name_their_party():
    blocks = [sp.csr_array(block) for block in three_blocks()]
    blocks[0].data[5] = np.nan
    refused_naming("party-0", lambda: fit_columns(blocks))


@pytest.mark.parametrize("kernel", KERNELS)
def test_new_samples_that_are_not_finite_are_refused(kernel):
    model = fit_columns(three_blocks(), kernel)
    new = three_blocks(4)
    new[1][0, 0] = np.nan
    refused_naming("party-1", lambda: model.transform(em.Partitioned(columns=new)))
    with pytest.raises(em.EigenmeshError):
        model.transform(np.hstack(new))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # numpy's, of the overflow
def test_finite_values_whose_squares_overflow_never_give_a_number():
    blocks = three_blocks()
    blocks[1] = blocks[1] * 1e200
    refused_naming("party-1", lambda: fit_columns(blocks))


# Shapes.


@pytest.mark.parametrize("shape", [(0, 5), (20, 0)])
def test_an_empty_party_is_refused_by_name(shape):
    blocks = three_blocks()
    blocks[1] = np.empty(shape)
    refused_naming("party-1", lambda: fit_columns(blocks))


@pytest.mark.parametrize("shape", [(0, 5), (5, 0), (0, 0)])
def test_an_empty_array_is_refused(shape):
    with pytest.raises(em.EigenmeshError, match=re.escape(str(shape))):
        estimator().fit(np.empty(shape))


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("center", [True, False])
def test_one_sample_is_refused(kernel, center):
    for data in (
        np.ones((1, 8)),
        em.Partitioned(columns=[np.ones((1, 4)), np.ones((1, 8))]),
    ):
        with pytest.raises(em.EigenmeshError):
            em.OneShotKPCA(1, kernel=kernel, gamma=0.1, center=center).fit(data)


def test_a_party_of_another_length_is_refused_by_name():
    blocks = three_blocks()
    blocks[2] = blocks[2][:-1]
    refused_naming("party-2", lambda: fit_columns(blocks))


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_file_of_another_length_is_refused_by_name(tmp_path, kernel):
    """A .csv is not counted before its party opens it."""
    blocks = three_blocks()
    blocks[2] = blocks[2][:-1]
    paths = [write(tmp_path / f"{i}.csv", block) for i, block in enumerate(blocks)]
    refused_naming("party-2", lambda: fit_columns(paths, kernel))
    with em.federation(paths, split="columns") as fed:
        refused_naming("party-2", lambda: estimator(kernel, local_rank=3).fit(fed))


def test_a_transposed_party_is_refused_by_name():
    blocks = three_blocks()
    blocks[0] = blocks[0].T
    refused_naming("party-0", lambda: fit_columns(blocks))


@pytest.mark.parametrize("data", [np.arange(5.0), np.ones((4, 3, 2)), np.float64(3.0), [1.0, 2.0]])
def test_anything_but_two_dimensions_is_refused(data):
    with pytest.raises(em.EigenmeshError):
        estimator().fit(data)
    refused_naming("party-1", lambda: fit_columns([three_blocks()[0], data]))


def test_ragged_lists_are_refused_by_name():
    ragged = [[1.0, 2.0]] * 19 + [[1.0]]
    refused_naming("party-1", lambda: fit_columns([three_blocks()[0], ragged]))


@pytest.mark.parametrize("nothing", [None, "X", 3, {}, object()])
def test_what_is_no_data_is_refused(nothing):
    with pytest.raises(em.EigenmeshError):
        estimator().fit(nothing)


def test_rows_where_columns_are_needed_are_refused():
    """A row split would otherwise pass for parties of equal width."""
    X = np.hstack(three_blocks())
    with pytest.raises(em.EigenmeshError, match="columns"):
        estimator().fit(em.Partitioned(rows=[X[:10], X[10:]]))
    with em.federation(em.Partitioned(rows=[X[:10], X[10:]])) as fed:
        with pytest.raises(em.EigenmeshError, match="columns"):
            estimator().fit(fed)


# Types.


@pytest.mark.filterwarnings("ignore:X has feature names:UserWarning")
@pytest.mark.parametrize(
    "convert",
    [
        lambda X: X.astype(str),
        lambda X: X.astype(complex),
        lambda X: np.where(X > 0, "yes", None).astype(object),
        lambda X: X.astype("datetime64[s]"),
        lambda X: pd.DataFrame(X).add_prefix("x").assign(word="north"),
    ],
    ids=["strings", "complex", "objects", "dates", "frame with words"],
)
def test_anything_but_real_numbers_is_refused(convert):
    blocks = three_blocks()
    with pytest.raises(em.EigenmeshError):
        estimator().fit(convert(np.hstack(blocks)))
    blocks[1] = convert(blocks[1])
    refused_naming("party-1", lambda: fit_columns(blocks))
    model = fit_columns(three_blocks())
    with pytest.raises(em.EigenmeshError):
        model.transform(convert(np.hstack(three_blocks(4))))


def test_parties_of_different_precision_are_worked_in_the_wider():
    blocks = three_blocks()
    blocks[1] = blocks[1].astype(np.float32)
    wide = [block.astype(np.float64) for block in blocks]
    own, expected = fit_columns(blocks).eigenvalues_, fit_columns(wide).eigenvalues_
    np.testing.assert_array_equal(own, expected)


# Sample ids.

IDS = [f"s{i}" for i in range(20)]


def test_equal_ids_are_accepted_and_do_not_change_the_answer():
    blocks = three_blocks()
    with_ids = fit_columns(blocks, sample_ids=[IDS] * 3)
    np.testing.assert_array_equal(with_ids.eigenvectors_, fit_columns(blocks).eigenvectors_)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(
    "ids",
    [IDS[::-1], IDS[1:] + IDS[:1], [f"t{i}" for i in range(20)], [*IDS[:-1], "s99"], range(20)],
    ids=["reversed", "rotated", "disjoint", "one off", "numbers"],
)
def test_ids_that_differ_are_refused_by_name(kernel, ids):
    refused_naming(
        "party-1", lambda: fit_columns(three_blocks(), kernel, sample_ids=[IDS, ids, IDS])
    )


@pytest.mark.parametrize("ids", [IDS[:-1], [*IDS, "s20"], ["s0", *IDS[:-1]]])
def test_ids_of_another_number_or_twice_are_refused_by_name(ids):
    refused_naming("party-1", lambda: fit_columns(three_blocks(), sample_ids=[IDS, ids, IDS]))


@pytest.mark.parametrize("gamma", [0.1, "scale", "median", "mean-distance"])
def test_ids_that_differ_are_refused_before_any_gamma_rule_can_mix_them(gamma):
    parts = em.Partitioned(columns=three_blocks(), sample_ids=[IDS, IDS, IDS[::-1]])
    model = em.OneShotKPCA(2, kernel="rbf", gamma=gamma, local_rank=3)
    refused_naming("party-2", lambda: model.fit(parts))


def test_frames_whose_index_differs_are_refused_by_name():
    frames = [pd.DataFrame(block, index=IDS) for block in three_blocks()]
    frames[2] = frames[2].set_axis(IDS[::-1])
    refused_naming("party-2", lambda: fit_columns(frames))


def test_a_frame_with_ids_among_frames_without_is_refused_by_name():
    frames = [pd.DataFrame(block) for block in three_blocks()]
    frames[1] = frames[1].set_axis(IDS)
    refused_naming("party-1", lambda: fit_columns(frames))


def write_with_ids(path, block, ids):
    pd.DataFrame(block).add_prefix("x").assign(id=ids).to_csv(path, index=False)
    return path


@pytest.mark.parametrize("through_federation", [False, True])
def test_files_whose_ids_differ_are_refused_by_name(tmp_path, through_federation):
    blocks, ids = three_blocks(), [IDS, IDS[::-1], IDS]
    paths = [
        write_with_ids(tmp_path / f"{i}.csv", block, own)
        for i, (block, own) in enumerate(zip(blocks, ids, strict=True))
    ]
    if not through_federation:
        refused_naming("party-1", lambda: fit_columns(paths))
        return
    with em.federation(paths, split="columns") as fed:
        refused_naming("party-1", lambda: estimator(local_rank=3).fit(fed))


@pytest.mark.parametrize("through_federation", [False, True])
@pytest.mark.parametrize("with_ids", [0, 1, 2])
def test_a_file_without_ids_among_files_with_ids_is_refused(tmp_path, with_ids, through_federation):
    paths = [
        write_with_ids(tmp_path / f"{i}.csv", block, IDS)
        if i <= with_ids
        else write(tmp_path / f"{i}.csv", block)
        for i, block in enumerate([*three_blocks(), three_blocks()[0]])
    ]
    with pytest.raises(em.EigenmeshError, match="party-") as caught:
        if through_federation:
            with em.federation(paths, split="columns") as fed:
                estimator(local_rank=3).fit(fed)
        else:
            fit_columns(paths)
    assert caught.value.party is not None


@pytest.mark.parametrize("other", ["array", ".npy"])
@pytest.mark.parametrize("bearer", ["frame", ".csv"])
def test_a_party_with_ids_among_bare_arrays_is_refused_by_name(tmp_path, bearer, other):
    """Ids at one party only cannot be compared: going on would trust the order in silence."""
    blocks = three_blocks()
    data = [
        b if other == "array" else write(tmp_path / f"{i}.npy", b) for i, b in enumerate(blocks)
    ]
    data[1] = (
        pd.DataFrame(blocks[1], index=IDS)
        if bearer == "frame"
        else write_with_ids(tmp_path / "ids.csv", blocks[1], IDS)
    )
    refused_naming("party-1", lambda: fit_columns(data))


def test_new_samples_whose_ids_differ_are_refused_by_name():
    model = fit_columns(three_blocks())
    new = em.Partitioned(columns=three_blocks(), sample_ids=[IDS, IDS, IDS[::-1]])
    refused_naming("party-2", lambda: model.transform(new))


# Transform.


@pytest.mark.parametrize("extra", [-1, 1])
def test_a_plain_array_of_another_width_is_refused_at_transform(extra):
    model = fit_columns(three_blocks())
    with pytest.raises(em.EigenmeshError, match="18"):
        model.transform(np.ones((4, 18 + extra)))


@pytest.mark.parametrize("extra", [-1, 1])
def test_a_party_of_another_width_is_refused_by_name_at_transform(extra):
    model = fit_columns(three_blocks())
    new = three_blocks(4)
    new[1] = np.ones((4, 5 + extra))
    refused_naming("party-1", lambda: model.transform(em.Partitioned(columns=new)))


def test_widths_that_only_sum_up_right_are_refused_at_transform():
    model = fit_columns(three_blocks())
    new = three_blocks(4)
    swapped = em.Partitioned(columns=[new[2], new[1], new[0]])  # 7 + 5 + 6
    with pytest.raises(em.EigenmeshError, match="party-"):
        model.transform(swapped)


@pytest.mark.parametrize("missing", [0, 1, 2])
def test_a_missing_party_is_named_at_transform(missing):
    model = fit_columns(three_blocks())
    new = three_blocks(4)
    kept = [i for i in range(3) if i != missing]
    parts = em.Partitioned(columns=[new[i] for i in kept], names=[f"party-{i}" for i in kept])
    with pytest.raises(em.EigenmeshError, match=f"party-{missing}"):
        model.transform(parts)


def test_a_party_too_many_is_named_at_transform():
    model = fit_columns(three_blocks())
    with pytest.raises(em.EigenmeshError, match="party-3"):
        model.transform(em.Partitioned(columns=[*three_blocks(4), np.ones((4, 2))]))


def test_parties_in_another_order_get_the_right_answer_or_an_error_at_transform():
    """Equal widths: only the names tell whose columns are whose."""
    blocks = [block[:, :5] for block in three_blocks()]
    new = [block[:, :5] + 1.0 for block in three_blocks(4)]
    model = fit_columns(blocks, names=["a", "b", "c"])
    expected = model.transform(em.Partitioned(columns=new, names=["a", "b", "c"]))
    turned = em.Partitioned(columns=new[::-1], names=["c", "b", "a"])
    try:
        found = model.transform(turned)
    except em.EigenmeshError:
        return
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_parties_of_other_names_get_an_error_at_transform():
    blocks = three_blocks()
    model = fit_columns(blocks, names=["a", "b", "c"])
    with pytest.raises(em.EigenmeshError, match="'d'"):
        model.transform(em.Partitioned(columns=blocks, names=["a", "b", "d"]))


def test_rows_are_refused_at_transform():
    model = fit_columns(three_blocks())
    X = np.hstack(three_blocks(4))
    with pytest.raises(em.EigenmeshError, match="columns"):
        model.transform(em.Partitioned(rows=[X[:2], X[2:]]))


@pytest.mark.parametrize("data", [np.empty((0, 18)), np.ones(18), None, "X"])
def test_what_is_no_data_is_refused_at_transform(data):
    model = fit_columns(three_blocks())
    with pytest.raises(em.EigenmeshError):
        model.transform(data)


def test_a_model_loaded_without_the_parties_shares_says_so_at_transform(tmp_path):
    model = fit_columns(three_blocks())
    model.save(tmp_path / "model.em")
    with pytest.raises(MissingPartyShare, match="party-"):
        em.load(tmp_path / "model.em").transform(np.hstack(three_blocks(4)))


# Ranks.


@pytest.mark.parametrize("k", [0, -1, 1.5, "two", True, np.nan])
def test_components_that_are_no_number_of_them_nor_a_share_are_refused(k):
    with pytest.raises(em.EigenmeshError, match="n_components"):
        em.OneShotKPCA(k).fit(np.hstack(three_blocks()))


@pytest.mark.parametrize("rank", [0, -1, 1.5, "two", True, np.inf])
@pytest.mark.parametrize("kernel", KERNELS)
def test_a_local_rank_that_is_no_positive_whole_number_is_refused(rank, kernel):
    with pytest.raises(em.EigenmeshError, match="local_rank"):
        em.OneShotKPCA(1, kernel=kernel, gamma=0.1, local_rank=rank).fit(three_blocks()[0])


def test_numpy_whole_numbers_are_whole_numbers():
    X = three_blocks()[0]
    model = em.OneShotKPCA(np.int64(2), local_rank=np.int32(3)).fit(X)
    assert model.eigenvectors_.shape == (20, 2)


@pytest.mark.filterwarnings("ignore::eigenmesh.errors.EigenmeshWarning")
@pytest.mark.parametrize("n_parties", [1, 2])
def test_more_components_than_the_rank_are_refused(n_parties, oracle):
    rng = np.random.default_rng(0)
    cases = [
        ("samples, centred", rng.normal(size=(6, 40)), {}, 5),
        ("samples, not centred", rng.normal(size=(6, 40)), {"center": False}, 6),
        ("columns", rng.normal(size=(40, 4)), {}, 4),
        ("rank", rng.normal(size=(40, 3)) @ rng.normal(size=(3, 20)), {}, 3),
        ("equal samples", rng.normal(size=(4, 9))[np.arange(40) % 4], {}, 3),
        ("equal samples, rbf", rng.normal(size=(4, 9))[np.arange(40) % 4], {"kernel": "rbf"}, 3),
        ("samples, rbf", rng.normal(size=(6, 4)), {"kernel": "rbf"}, 5),
        ("columns, not centred", rng.normal(size=(40, 4)), {"center": False}, 4),
    ]
    for what, X, settings, rank in cases:
        parts = em.Partitioned(columns=oracle.cut(X, n_parties))
        settings = {"gamma": 0.1, "local_rank": len(X), **settings}
        model = em.OneShotKPCA(rank, **settings).fit(parts)
        assert model.eigenvectors_.shape == (len(X), rank), what
        with pytest.raises(RankError, match=str(rank + 1)):
            em.OneShotKPCA(rank + 1, **settings).fit(parts)


@pytest.mark.filterwarnings("ignore::eigenmesh.errors.EigenmeshWarning")
def test_more_components_than_all_local_vectors_together_are_refused():
    with pytest.raises(em.EigenmeshError):
        em.OneShotKPCA(4, local_rank=1).fit(em.Partitioned(columns=three_blocks()))


@pytest.mark.filterwarnings("ignore::eigenmesh.errors.EigenmeshWarning")
def test_vectors_too_few_to_build_a_product_are_not_blamed_on_equal_samples():
    """Local matrices near the identity: seven vectors of each have nothing in common."""
    X = np.random.default_rng(0).normal(size=(300, 18))
    parts = em.Partitioned(columns=np.split(X, 3, axis=1))
    with pytest.raises(RankError) as caught:
        em.OneShotKPCA(2, kernel="rbf", gamma=30.0, local_rank=7).fit(parts)
    assert "equal" not in str(caught.value)
    assert re.search("local_rank|gamma", str(caught.value))


@pytest.mark.parametrize("kernel", KERNELS)
def test_constant_data_are_refused(kernel):
    for data in (np.full((20, 8), 3.0), em.Partitioned(columns=[np.full((20, 4), 3.0)] * 2)):
        with pytest.raises(em.EigenmeshError):
            em.OneShotKPCA(1, kernel=kernel, gamma=0.1).fit(data)


def test_equal_samples_are_refused_although_rounding_leaves_them_a_spread():
    """Column means of 0.1 are not 0.1: what remains of it after centring is no component."""
    with pytest.raises(em.EigenmeshError):
        em.OneShotKPCA(1).fit(np.full((20, 8), 0.1))
    with pytest.raises(em.EigenmeshError):
        em.OneShotKPCA(1).fit(np.tile(np.random.default_rng(0).normal(size=8) * 1e6, (21, 1)))


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_party_of_constant_columns_changes_nothing(kernel):
    blocks = three_blocks()
    constant = np.full((20, 4), 7.3)
    plain = fit_columns(blocks, kernel)
    padded = fit_columns([blocks[0], constant, *blocks[1:]], kernel)
    np.testing.assert_allclose(padded.eigenvalues_, plain.eigenvalues_, rtol=1e-10)
    np.testing.assert_allclose(padded.eigenvectors_, plain.eigenvectors_, atol=1e-9)


# Parameters.


@pytest.mark.parametrize("kernel", ["cosine", "sigmoid", "", None, 3, np.dot, ["rbf"], "RBF"])
def test_an_unknown_kernel_is_refused(kernel):
    with pytest.raises(em.EigenmeshError, match="kernel"):
        em.OneShotKPCA(2, kernel=kernel).fit(three_blocks()[0])


@pytest.mark.parametrize("fusion", ["sum", "", None, 3, ["product"]])
@pytest.mark.parametrize("kernel", KERNELS)
def test_an_unknown_fusion_is_refused(kernel, fusion):
    with pytest.raises(em.EigenmeshError, match="fusion"):
        em.OneShotKPCA(2, kernel=kernel, gamma=0.1, fusion=fusion).fit(three_blocks()[0])


@pytest.mark.parametrize(
    "gamma", ["auto", "", 0, 0.0, -0.1, np.nan, np.inf, [0.1], True, 1j, np.ones(2)], ids=str
)
def test_a_gamma_that_is_no_rule_and_no_positive_number_is_refused(gamma):
    with pytest.raises(em.EigenmeshError, match="gamma"):
        em.OneShotKPCA(2, kernel="rbf", gamma=gamma).fit(three_blocks()[0])


@pytest.mark.parametrize("rule", ["scale", "median", "mean-distance"])
def test_a_gamma_rule_on_data_without_spread_is_refused(rule):
    with pytest.raises(em.EigenmeshError):
        em.OneShotKPCA(1, kernel="rbf", gamma=rule).fit(np.full((20, 8), 3.0))


def test_a_refused_fit_leaves_no_half_fitted_model():
    model = em.OneShotKPCA(50).set_params(local_rank=60)
    with pytest.raises(em.EigenmeshError):
        model.fit(np.hstack(three_blocks()))
    assert not hasattr(model, "eigenvalues_")


def test_errors_state_value_expectation_and_remedy():
    with pytest.raises(em.EigenmeshError) as caught:
        em.OneShotKPCA(2, kernel="cosine").fit(three_blocks()[0])
    assert "cosine" in str(caught.value)
    assert "linear" in str(caught.value)
    assert "rbf" in str(caught.value)
