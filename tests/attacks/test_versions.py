"""Two fits of versions of a data set: their difference is of the rows that came or went."""

from dataclasses import replace

import numpy as np
import pytest

import eigenmesh as em
from eigenmesh.connect import _introduce, sites_of
from eigenmesh.engines.in_process import InProcess
from eigenmesh.methods.moments.protocol import MomentRows, MomentSetup, moment_pca
from eigenmesh.runtime.federation import Federation

pytestmark = pytest.mark.filterwarnings("ignore")
KEEPS_ROWS = frozenset({"moments", "counts", "gram", "centroids", "aggregate"})


def versions(n_withdrawn, seed=77):
    """Rows of three parties, and the same after the first has withdrawn some."""
    rng = np.random.default_rng(seed)
    whole = [5 + rng.normal(size=(60, 5)) * [1, 3, 1, 2, 1] for _ in range(3)]
    return whole, [whole[0][n_withdrawn:], *whole[1:]]


def opened(data, folder, trust, secure=False):
    sites = sites_of(em.Partitioned(rows=data, policies=em.Policy(allow=KEEPS_ROWS)))
    for site in sites:
        site.state_dir, site.trust = folder, trust
    fed = Federation(InProcess(sites), split="rows", secure=secure)
    _introduce(fed.local_sites())
    return fed


def difference(data, folder, trust, secure=False):
    """What an analyst makes of the means in two released models, and what the audit said."""
    sums, audits = [], []
    for version in data:
        with opened(version, folder, trust, secure) as fed:
            kpca = em.KernelPCA(5, kernel="linear").fit(fed)
        sums.append(kpca.n_samples_seen_ * kpca.model_.mean)
        audits.append(" ".join(em.audit(kpca.report_).beyond))
    return sums[0] - sums[1], audits[0]


@pytest.mark.parametrize("secure", [False, True])
@pytest.mark.parametrize("n_withdrawn", [1, 2, 4])
def test_between_organisations_versions_differ_in_as_many_rows_as_a_sum(
    tmp_path, n_withdrawn, secure
):
    data = versions(n_withdrawn)
    with pytest.raises(em.EigenmeshError, match="rule 'min_rows'"):
        difference(data, tmp_path, "organisations", secure)


def test_a_version_that_comes_back_by_a_detour_is_held_against_all_before(tmp_path):
    whole, less_one = versions(1)
    less_ten = [whole[0][10:], *whole[1:]]
    with pytest.raises(em.EigenmeshError, match="rule 'min_rows'"):
        difference([whole, less_ten, less_one], tmp_path, "organisations")


def test_five_rows_are_told_as_their_sum_and_no_more(tmp_path):
    data = versions(5)
    told, said = difference(data, tmp_path, "organisations")
    np.testing.assert_allclose(told, data[0][0][:5].sum(axis=0), rtol=1e-6)
    assert "fewer than 5 rows added or withdrawn between two fits are as if sent" in said


def test_in_one_trust_domain_the_audit_says_beforehand_that_one_row_is_told(tmp_path):
    data = versions(1)
    told, said = difference(data, tmp_path, "domain")
    np.testing.assert_allclose(told, data[0][0][0], rtol=1e-6)
    assert "fewer than 5 rows added or withdrawn between two fits are as if sent" in said


@pytest.mark.parametrize("stated", [None, "rows"])
def test_a_study_that_calls_rows_columns_is_held_to_versions_too(tmp_path, stated):
    """By that word alone the withdrawn row was had, to the last digit."""

    def sums_of(data):
        with opened(data, tmp_path, "organisations") as fed:
            for site in fed.local_sites().values():
                site.split = stated
            fed.split = "columns"
            return fed.run(only_sums, MomentSetup("linear", None, 1.0, 0.0, center=True), 2).value

    with pytest.raises(em.EigenmeshError, match="min_rows" if stated is None else "steps"):
        for data in versions(1):
            sums_of(data)


def coordinate(fed, setup, n_components):
    """Sums alone."""
    fed.enlist(MomentRows, setup)
    fed.ask(MomentRows.count_rows)
    return fed.total(MomentRows.feature_sums).sum


only_sums = replace(moment_pca, coordinate=coordinate)
