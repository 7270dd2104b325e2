"""Eigenvectors in fewer bits: what the report says of the error holds, and exact is exact."""

import numpy as np
import pytest

import eigenmesh as em
from eigenmesh.data.synthetic import gene_like
from eigenmesh.errors import InputError
from eigenmesh.metrics import sin_theta

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def drawn_case(seed):
    """Any number of samples, columns, parties and components, of spectra that fall as they like."""
    rng = np.random.default_rng(seed)
    n, m, parties = int(rng.integers(30, 120)), int(rng.integers(6, 60)), int(rng.integers(2, 5))
    spectrum = np.geomspace(1, rng.uniform(0.02, 0.5), m)
    X = rng.normal(size=(n, m)) * spectrum @ np.linalg.qr(rng.normal(size=(m, m)))[0]
    X /= X.std()
    k = int(rng.integers(1, 4))
    how = {"n_components": k, "center": bool(rng.integers(2)), "random_state": 0}
    if seed % 2:
        how |= {"kernel": "rbf", "gamma": float(rng.uniform(0.3, 3) / m)}
    return em.split(X, n_parties=parties, by="columns"), how


@pytest.mark.parametrize("bits", [4, 8, 16, 32])
def test_what_is_said_of_the_error_holds_in_a_hundred_cases(bits):
    for seed in range(bits, 2500, 100):  # 25 of each precision
        parts, how = drawn_case(seed)
        exact = em.OneShotKPCA(**how).fit(parts)
        few = em.OneShotKPCA(**how, precision=bits).fit(parts)
        off = np.abs(exact.eigenvalues_ - few.eigenvalues_) / few.eigenvalues_
        assert off.max() <= few.report_.precision_error, seed
        assert few.shortfall_ >= min(few.report_.precision_error, 1.0)
        assert few.residual_ >= exact.total_variance_ - exact.eigenvalues_.sum() - 1e-9
        moved = few.report_.bounds["kernel_error"] - exact.report_.bounds["kernel_error"]
        assert np.abs(exact.eigenvalues_ - few.eigenvalues_).max() <= moved + 1e-9
        assert few.report_.floats_up == exact.report_.floats_up
        assert few.report_.bytes < exact.report_.bytes


def test_sixteen_bits_are_a_quarter_of_the_bytes_at_the_same_error():
    X, _ = gene_like(n_samples=300, n_features=600, random_state=0)
    parts = em.split(X, n_parties=3, by="columns")
    how = {"n_components": 3, "kernel": "rbf", "gamma": "mean-distance", "random_state": 0}
    exact = em.OneShotKPCA(**how).fit(parts)
    few = em.OneShotKPCA(**how, precision=16).fit(parts)
    pooled = em.OneShotKPCA(**how, local_rank=300).fit(parts)

    def missing(kpca):
        return sin_theta(kpca.eigenvectors_, pooled.eigenvectors_)

    assert few.report_.bytes < 0.29 * exact.report_.bytes
    assert missing(few) <= 1.001 * missing(exact)


def test_exact_is_the_default_and_says_nothing_of_precision():
    parts, how = drawn_case(1)
    report = em.OneShotKPCA(**how).fit(parts).report_
    assert report.precision == ""
    assert report.precision_error == 0.0
    named = em.OneShotKPCA(**how, precision="exact").fit(parts)
    assert np.array_equal(named.eigenvalues_, em.OneShotKPCA(**how).fit(parts).eigenvalues_)


def test_auto_keeps_all_bits_of_parties_that_leave_nothing_out():
    X = np.random.default_rng(0).normal(size=(50, 12))
    narrow = em.Partitioned(columns=[X[:, :4], X[:, 4:]])
    auto = em.OneShotKPCA(2, local_rank=8, precision="auto").fit(narrow)
    exact = em.OneShotKPCA(2, local_rank=8).fit(narrow)
    np.testing.assert_array_equal(auto.eigenvalues_, exact.eigenvalues_)
    assert auto.report_.precision_error == 0.0
    cut = em.OneShotKPCA(2, local_rank=5, precision="auto").fit(narrow)
    assert 0 < cut.report_.precision_error < 0.001
    assert "16 bits" in str(cut.report_)


@pytest.mark.parametrize("precision", [16, 4])
def test_fitted_samples_are_scored_as_new_ones_are(precision):
    parts, how = drawn_case(5)
    kpca = em.OneShotKPCA(**how, precision=precision)
    np.testing.assert_allclose(kpca.fit_transform(parts), kpca.transform(parts), atol=1e-12)


def test_a_model_in_few_bits_is_saved_and_loaded(tmp_path):
    parts, how = drawn_case(3)
    kpca = em.OneShotKPCA(**how, precision=8).fit(parts)
    kpca.save(tmp_path / "model.em")
    loaded = em.load(tmp_path / "model.em")
    assert loaded.model_.fusion.rounding == kpca.model_.fusion.rounding
    assert loaded.report_.precision_error == kpca.report_.precision_error


def test_a_plan_says_how_many_bits():
    parts, how = drawn_case(3)
    notes = em.plan(em.OneShotKPCA(**how, precision=8), parts).notes
    assert any("8 bits" in note for note in notes)


@pytest.mark.parametrize("precision", ["half", 7, True, 0, None])
def test_other_precisions_are_refused(precision):
    parts, how = drawn_case(1)
    with pytest.raises(InputError, match="precision is"):
        em.OneShotKPCA(**how, precision=precision).fit(parts)


def test_coordinates_have_no_precision():
    parts, _ = drawn_case(1)
    with pytest.raises(InputError, match="travel as they are"):
        em.OneShotKPCA(2, kernel="poly", precision=8).fit(parts)
    em.OneShotKPCA(2, kernel="poly", precision="auto").fit(parts)
