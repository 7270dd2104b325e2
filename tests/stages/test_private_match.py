"""Samples matched by private set intersection: as by keyed hashes; the coordinator learns less."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from tests.engines.nvflare_sides import open_here

import eigenmesh as em
from eigenmesh.errors import FederationError, InputError, PartitionError
from eigenmesh.runtime import wire
from eigenmesh.runtime.message import MessageRefused
from eigenmesh.stages.private_match import (
    BlindMatcher,
    CommonForParty,
    FirstIds,
    MatchSetup,
    blind_alignment,
)

pytest.importorskip("private_set_intersection.python", reason="pip install 'eigenmesh[psi]'")


def some_parts(n_parties=3, n=40, seed=0, kind=str, align="psi", **options):
    """Parties that each lack some samples and have the others in an order of their own."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3)) @ rng.normal(size=(3, 4 * n_parties))
    X += 0.3 * rng.normal(size=X.shape)
    ids = np.array([f"patient {i} é" for i in range(n)]) if kind is str else 10**12 + np.arange(n)
    blocks, own = [], []
    for block in np.array_split(X, n_parties, axis=1):
        present = rng.permutation(n)[: n - 6]
        blocks.append(block[present])
        own.append(ids[present])
    return em.Partitioned(columns=blocks, sample_ids=own, align=align, **options)


@pytest.mark.parametrize("n_parties", [2, 3, 5])
@pytest.mark.parametrize("kind", [str, int])
def test_it_is_the_answer_of_keyed_hashes_in_the_same_order(n_parties, kind):
    how = {"n_parties": n_parties, "kind": kind, "seed": n_parties}
    expected = em.VFedPCA(2).fit(some_parts(align="inner", **how))
    model = em.VFedPCA(2).fit(some_parts(**how))
    np.testing.assert_allclose(model.eigenvectors_, expected.eigenvectors_, atol=1e-10)
    parts = some_parts(**how)
    np.testing.assert_allclose(
        model.transform(parts), expected.transform(parts.matched()), atol=1e-10
    )
    assert "samples are common to all parties, of 'party-0' 34" in str(model.report_)


def test_other_engines_match_alike():
    expected = em.VFedPCA(2).fit(some_parts(align="inner"))
    with open_here(some_parts()) as fed:
        model = em.VFedPCA(2).fit(fed)
        again = em.VFedPCA(2).fit(fed)
    for one in (model, again):
        np.testing.assert_allclose(one.eigenvectors_, expected.eigenvectors_, atol=1e-10)


def overheard_points(parts):
    """Every blinded point that passed the coordinator, in its order, by fit."""
    traffic, original = [], wire.dumps

    def listening(tree):
        data = original(tree)
        traffic.append(data)
        return data

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wire, "dumps", listening)
        with em.federation(parts) as fed:
            fed.run(blind_alignment)
    return b"".join(traffic)


def test_neither_ids_nor_hashes_of_them_pass_the_coordinator():
    parts = some_parts(2)
    sent = overheard_points(parts)
    assert b"patient" not in sent
    hashes = [own.tobytes() for i in range(2) for own in parts.matcher(i).hashes()]
    assert not any(own in sent or own.hex().encode() in sent for own in hashes)


def test_what_passes_the_coordinator_compares_with_nothing_else_that_does():
    """Points under one key are seen once, or again in a set that was known to be the same."""
    parts, points = some_parts(2), []
    asked = BlindMatcher.blind_ids.function, BlindMatcher.blind_again.function
    answered = BlindMatcher.find_common.function

    def noting(function):
        @functools.wraps(function)  # whose annotations say what the step takes and gives
        def step(self, *messages):
            reply = function(self, *messages)
            points.append(reply)
            return reply

        return step

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BlindMatcher.blind_ids, "function", noting(asked[0]))
        patch.setattr(BlindMatcher.blind_again, "function", noting(asked[1]))
        patch.setattr(BlindMatcher.find_common, "function", noting(answered))
        with em.federation(parts) as fed:
            n_common = fed.run(blind_alignment).value.n_common
    assert n_common > 20
    arrays = [value for reply in points for value in vars(reply).values() if np.size(value) > 300]
    texts = [np.asarray(value).astype(np.uint8).tobytes() for value in arrays]
    chunks = [{text[i : i + 32] for i in range(len(text) - 31)} for text in texts]
    shared = [a & b for i, a in enumerate(chunks) for b in chunks[:i]]
    assert len(texts) == 5
    assert not any(shared)


def test_plans_say_who_learns_what_of_the_overlap():
    for align, words in (
        ("inner", "the coordinator learns which samples any two parties have in common"),
        ("psi", "the coordinator none of it"),
    ):
        plan = em.plan(em.VFedPCA(2), some_parts(align=align))
        assert any(words in note for note in plan.notes)


def test_no_common_sample_is_an_error_and_nothing_is_taken():
    columns = [np.ones((4, 2)), np.ones((4, 2))]
    ids = [["a", "b", "c", "d"], ["e", "f", "g", "a"]]
    parts = em.Partitioned(columns=columns, sample_ids=ids, align="psi")
    with pytest.raises(InputError, match="1 sample ids are common to all parties, at least 2"):
        em.VFedPCA(1).fit(parts)


def test_an_id_twice_is_refused():
    with pytest.raises(PartitionError, match="'a' 2 times"):
        parts = em.Partitioned(
            columns=[np.ones((3, 2)), np.ones((3, 2))],
            sample_ids=[["a", "b", "c"], ["a", "a", "b"]],
            align="psi",
        )
        em.VFedPCA(1).fit(parts)


def test_rows_are_not_matched():
    with pytest.raises(InputError, match="align='psi' matches samples over columns"):
        em.Partitioned(rows=[np.ones((3, 2))], align="psi")


@pytest.mark.parametrize("points", [b"", b"nonsense", bytes(200), b"\x0a\xff\xff\xff\xff\x0f"])
def test_points_that_are_none_are_refused(points):
    parts = some_parts(2)
    from eigenmesh.connect import sites_of
    from eigenmesh.runtime.site import SiteView

    party = BlindMatcher(SiteView(sites_of(parts)[1], 1, parts.names), MatchSetup())
    row = np.frombuffer(points, np.uint8)
    if points:
        with pytest.raises(MessageRefused, match="blinded ids are none"):
            party.blind_again(FirstIds(points=np.append(row, np.uint8(255))))
    with pytest.raises((MessageRefused, FederationError)):
        party.take_common(
            CommonForParty(twice=np.append(row, np.uint8(255)), common=row, order=np.arange(3))
        )
