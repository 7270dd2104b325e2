"""What a party says is held against what it said; text from others is tamed; blame is shared."""

import numpy as np
import pytest

import eigenmesh as em
from eigenmesh.errors import MessageRefused, PartyFailed
from eigenmesh.numerics.landmark_sums import upper
from eigenmesh.numerics.plausible import is_gram
from eigenmesh.runtime.message import Context
from eigenmesh.runtime.requests import error_from
from eigenmesh.runtime.statements import Statements, as_text
from eigenmesh.stages.row_messages import (
    GramSums,
    KernelSetup,
    RowBlock,
    RowCount,
    pack,
)


def setup(kernel="rbf"):
    return KernelSetup(kernel, 0.1, 3, 1.0, leverage_rank=1, embedding_dim=10, seed=0)


def sums_of(features, trace=None, n_rows=None):
    n = len(features)
    return GramSums(
        upper=upper(features.T @ features),
        sums=features.sum(axis=0),
        n_rows=n if n_rows is None else n_rows,
        trace=float(n if trace is None else trace),
    )


def test_a_party_says_the_same_of_itself_in_every_reply():
    statements = Statements()
    statements.hear("a", RowCount(n_rows=20, n_columns=3, n_values=60), setup(), None)
    honest = sums_of(np.random.default_rng(0).normal(size=(20, 4)))
    statements.hear("a", honest, setup(), None)
    statements.hear("b", sums_of(np.ones((30, 4))), setup(), None)  # another party has its own
    with pytest.raises(MessageRefused, match="30 rows, an earlier one about 20"):
        statements.hear("a", sums_of(np.ones((30, 4))), setup(), None)


@pytest.mark.parametrize("seed", range(20))
def test_honest_sums_contradict_nothing_and_tampered_ones_do(seed):
    rng = np.random.default_rng(seed)
    n, q = int(rng.integers(1, 60)), int(rng.integers(2, 220))
    features = rng.normal(size=(n, q)) * rng.lognormal(size=q) + rng.normal(size=q)
    features = features.astype(np.float32 if seed % 2 else np.float64)
    context = Context(setup(), None, {})
    assert sums_of(features).contradiction(context) is None
    assert sums_of(features, trace=n * 1.01).contradiction(context)
    assert sums_of(features, trace=n * 1.01).contradiction(Context(setup("poly"))) is None
    assert sums_of(features, trace=-1.0).contradiction(Context(setup("poly")))
    negated = sums_of(features)
    assert GramSums(-negated.upper, negated.sums, n, float(n)).contradiction(context)
    too_long = negated.sums + 2 * np.sqrt(n * np.diag(features.T @ features))
    assert GramSums(negated.upper, too_long, n, float(n)).contradiction(context)


def test_zeros_are_a_gram_matrix_of_zeros_only():
    assert is_gram(np.zeros((3, 3)), np.zeros(3), 4)
    assert not is_gram(np.zeros((3, 3)), np.ones(3), 4)
    assert not is_gram(np.full((2, 2), np.inf))


def test_rows_are_as_many_as_were_asked_for_and_finite_in_their_squares():
    block = RowBlock(**pack(np.ones((3, 2))))
    assert block.contradiction(Context(request=RowCount(3, 2, 6))) is None
    assert "2 were asked for" in block.contradiction(Context(request=RowCount(2, 2, 4)))
    assert RowBlock(**pack(np.full((1, 2), 1e200))).contradiction(Context())


def test_text_from_a_party_moves_no_cursor_and_fills_no_screen():
    error = error_from(
        {"error": "PartyFailed", "reason": "\x1b[31mred\r\n\u202e" + "x" * 10**6}, "a"
    )
    assert isinstance(error, PartyFailed)
    assert len(str(error)) < 3000
    assert not any(ord(c) < 32 or c in "\x1b\u202e" for c in str(error))
    assert as_text("naïve – σ² ≤ n") == "naïve – σ² ≤ n"


def test_what_one_party_says_of_another_names_both():
    tree = {"error": "MessageRefused", "reason": "its message is damaged", "party": "b"}
    error = error_from(tree, "a", neighbours={"b"})
    assert "'a'" in str(error)
    assert "'b'" in str(error)
    assert error_from(tree, "a").party == "a"  # of one who is no neighbour it can say nothing


def test_of_a_failure_after_messages_of_others_all_are_named():
    statements, own = Statements(), error_from({"error": "PartyFailed", "reason": "it failed"}, "a")
    assert statements.fair(own, "a", ("a", "b")) is own
    statements.reached.add("a")
    assert "'b'" in str(statements.fair(own, "a", ("a", "b")))
    noticed_here = PartyFailed("it failed", party="a")
    assert statements.fair(noticed_here, "a", ("a", "b")) is noticed_here


def test_where_nobody_has_a_majority_both_are_named():
    columns = em.Partitioned(columns=[np.eye(4), np.eye(4)], names=["a", "b"])
    with em.federation(columns) as fed:
        fed.local_sites()["b"].identifies = lambda: "another digest"
        with pytest.raises(MessageRefused) as caught:
            em.OneShotKPCA(1).fit(fed)
    assert "'a'" in str(caught.value)
    assert "'b'" in str(caught.value)
