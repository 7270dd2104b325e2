"""Draws that must not be known come from a key of the site: secret, or of its data."""

import hashlib
import stat
import time

import numpy as np
import pytest
import scipy.sparse as sp

from eigenmesh.errors import InputError
from eigenmesh.runtime.site import Site, SiteView, fingerprint

SHAPES = [(1, 1), (7, 3), (500, 40), (4000, 50), (30_000, 28)]


def view(site, index=0, names=("a", "b")):
    return SiteView(site, index, names)


def drawn(site, protocol=1, round_=0, **where):
    return view(site, **where).private_generator(protocol, round_).integers(2**63, size=8).tolist()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.uint8, np.int64])
def test_a_fingerprint_follows_values_and_not_how_they_are_stored(shape, dtype, tmp_path):
    X = (np.random.default_rng(0).normal(size=shape) * 20).astype(dtype)
    mapped = np.memmap(tmp_path / "X", dtype=dtype, mode="w+", shape=shape)
    mapped[:] = X
    wide = np.zeros((shape[0] * 2, shape[1] + 1), dtype=dtype)
    wide[::2, 1:] = X
    stored = [X, mapped, X.copy("F"), wide[::2, 1:], X.astype(np.float32), X.astype(float)]
    for whole in (False, True):
        alike = {fingerprint(Y, whole=whole) for Y in stored}
        assert len(alike) == 1
        others = [X[::-1].copy(), X[:, ::-1].copy(), X + dtype(1), X.reshape(1, -1)]
        others = [Y for Y in others if Y.shape != X.shape or Y.tobytes() != X.tobytes()]
        assert not alike & {fingerprint(Y, whole=whole) for Y in others}


@pytest.mark.parametrize("rows", [10, 2000, 30_000])
def test_a_sparse_fingerprint_is_that_of_the_same_rows_dense(rows):
    X = sp.random_array(
        (rows, 40), density=0.1, format="csr", random_state=np.random.default_rng(1)
    )
    turned = sp.csr_array(X[:, ::-1])[:, ::-1].tocsr()  # its columns stored in another order
    places = X.indices.astype(np.int64), X.indptr.astype(np.int64)
    stored = [X, turned, sp.csr_array((X.data, *places), X.shape), X.astype(np.float32)]
    alike = {fingerprint(Y) for Y in [*stored, X.toarray()]}
    assert len(alike) == 1
    elsewhere = X.copy()
    elsewhere.indices[:] = (elsewhere.indices + 1) % 40
    assert not alike & {fingerprint(elsewhere), fingerprint(X * 3), fingerprint(X[::-1])}


def test_every_value_counts_where_all_are_read():
    rng = np.random.default_rng(2)
    X = rng.normal(size=(60_000, 20))
    for _ in range(5):
        Y = X.copy()
        Y[rng.integers(60_000), rng.integers(20)] *= 1 + 1e-6
        assert fingerprint(Y, whole=True) != fingerprint(X, whole=True)


def test_a_large_array_is_sampled_in_milliseconds():
    X = np.ones((1_000_000, 28))
    start = time.perf_counter()
    fingerprint(X)
    assert time.perf_counter() - start < 0.2


def test_in_one_trust_domain_equal_data_draw_alike_wherever_they_are():
    X = np.random.default_rng(3).normal(size=(50, 3))
    one, other = Site("a", lambda: X), Site("b", lambda: X.copy("F"))
    assert one.key == other.key
    assert drawn(one) == drawn(other, index=1, names=("x", "y", "z"))
    assert drawn(one) != drawn(one, round_=1) != drawn(one, protocol=2)
    assert drawn(Site("a", lambda: X[1:])) != drawn(one)


@pytest.mark.parametrize("name", ["a", "b", "c"])
def test_private_draws_are_those_that_the_digest_as_a_number_seeds(name):
    site = Site(name, lambda: np.arange(6.0).reshape(3, 2))
    for round_ in range(20):
        digest = hashlib.blake2b(f"draw 7 {round_}".encode(), key=site.key).digest()
        expected = np.random.default_rng(int.from_bytes(digest, "little"))
        assert view(site).private_generator(7, round_).random() == expected.random()


def test_between_organisations_the_key_is_secret_and_stays(tmp_path):
    X = np.ones((5, 2))
    sites = [Site("a", lambda: X, trust="organisations", state_dir=tmp_path) for _ in range(2)]
    assert len({site.key for site in sites}) == 1
    assert drawn(sites[0]) == drawn(sites[1])
    assert stat.S_IMODE((tmp_path / "site.key").stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["site.key"]
    elsewhere = Site("a", lambda: X, trust="organisations", state_dir=tmp_path / "b")
    in_memory = [Site(name, lambda: X, trust="organisations") for name in "abb"]
    keys = [site.key for site in (sites[0], elsewhere, *in_memory, Site("a", lambda: X))]
    assert len(set(keys)) == 5
    assert keys[3] == keys[4]  # a second federation in this process asks for the same tree


def test_a_damaged_key_is_not_replaced_without_a_word(tmp_path):
    (tmp_path / "site.key").write_bytes(b"short")
    with pytest.raises(InputError, match="has 5 bytes; the site's key of 32 is expected"):
        _ = Site("a", lambda: np.ones((5, 2)), trust="organisations", state_dir=tmp_path).key


def test_what_is_made_of_the_data_is_made_anew_when_they_are_opened_again():
    data = iter([np.zeros((5, 2)), np.ones((5, 2))])
    site = Site("a", lambda: next(data))
    before = site.fingerprint
    assert site.fingerprint == before
    view(site).reopen()
    assert site.fingerprint == fingerprint(np.ones((5, 2))) != before
