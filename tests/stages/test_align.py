"""Samples matched by keyed hashes: shuffled and missing ids give the answer of the matched rows."""

import numpy as np
import pytest
from tests.engines.dask_cluster import open_on_dask
from typer.testing import CliRunner

import eigenmesh as em
from eigenmesh.cli.commands import app
from eigenmesh.data.matching import SECRET_VARIABLE, SampleMatcher, keyed_hashes
from eigenmesh.data.readers import read_table
from eigenmesh.errors import InputError, MessageRefused, PolicyRefusal
from eigenmesh.numerics.common_samples import common_rows
from eigenmesh.runtime import wire
from eigenmesh.runtime.site import Site, SiteView
from eigenmesh.stages.align import CommonRows, MatchedSite, MatchSetup, entity_alignment

ESTIMATORS = [
    em.VFedPCA(2),
    em.VFedPCA(2, topology="ring"),
    em.VFedAKPCA(2, gamma=0.05),
    em.OneShotKPCA(2),
    em.OneShotKPCA(2, kernel="rbf", gamma="mean-distance"),
]


def shuffled(n=60, seed=0, kind=str, **options):
    """Three parties that each lack some samples and have the others in an order of their own."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3)) @ rng.normal(size=(3, 18)) + 0.3 * rng.normal(size=(n, 18))
    ids = np.array([f"patient {i}" for i in range(n)]) if kind is str else 1000 + np.arange(n)
    blocks, own = [], []
    for block in np.array_split(X, 3, axis=1):
        kept = rng.permutation(n)[: n - 7]
        blocks.append(block[kept])
        own.append(ids[kept])
    parts = em.Partitioned(columns=blocks, sample_ids=own, align="inner", **options)
    common = [i for i in own[0] if i in set(own[1]) & set(own[2])]
    places = [{i: row for row, i in enumerate(party.tolist())} for party in own]
    matched = em.Partitioned(
        columns=[
            block[[place[i] for i in common]] for block, place in zip(blocks, places, strict=True)
        ]
    )
    return parts, matched, common


@pytest.mark.filterwarnings("ignore::eigenmesh.errors.EigenmeshWarning")
@pytest.mark.parametrize("estimator", ESTIMATORS, ids=repr)
@pytest.mark.parametrize("kind", [str, int])
def test_same_answer_as_on_the_matched_rows(estimator, kind):
    parts, matched, common = shuffled(kind=kind)
    found = estimator.fit(parts)
    values, scores, report = found.eigenvalues_, found.transform(parts), found.report_
    expected = estimator.fit(matched)
    np.testing.assert_allclose(values, expected.eigenvalues_, rtol=1e-10)
    np.testing.assert_allclose(scores, expected.transform(matched), atol=1e-8)
    assert len(scores) == len(common)
    lost = f"({53 - len(common)} are left out)"
    told = f"{len(common)} samples are common to all parties, of 'party-0' 53 {lost}"
    assert told in str(report)


def test_ids_leave_as_hashes_only_and_nobody_without_the_secret_can_try_them():
    parts, _, common = shuffled()
    traffic = []
    original = wire.dumps

    def listening(tree):
        data = original(tree)
        traffic.append(data)
        return data

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wire, "dumps", listening)
        report = em.VFedPCA(2).fit(parts).report_
    assert report.reveals["party-0"]["hashes"] == 0  # no floats: they count in bytes
    sent = b"".join(traffic)
    assert b"patient" not in sent
    assert parts._secret.encode() not in sent
    own = keyed_hashes(np.array(common[:1]), parts._secret)
    guessed = keyed_hashes(np.array(common[:1]), "another secret")
    assert own.tobytes() in sent
    assert guessed.tobytes() not in sent


def test_the_account_has_what_the_matching_took():
    parts, matched, common = shuffled()
    report, plain = em.VFedPCA(2).fit(parts).report_, em.VFedPCA(2).fit(matched).report_
    assert report.floats_up == plain.floats_up
    assert report.rounds == plain.rounds + 2
    assert report.bytes - plain.bytes > 3 * 53 * 16 + 3 * 8 * len(common)


def test_a_party_that_forbids_hashes_refuses():
    parts, _, _ = shuffled(policies=[None, em.Policy(allow={"eigenvectors", "gram"}), None])
    with pytest.raises(PolicyRefusal, match="party-1.*hashes"):
        em.VFedPCA(2).fit(parts)


@pytest.mark.parametrize("options", [{}, {"topology": "full"}])
def test_one_federation_serves_several_fits(options):
    parts, matched, _ = shuffled()
    expected = em.VFedPCA(2).fit(matched)
    with em.federation(parts, **options) as fed:
        for _ in range(2):
            model = em.VFedPCA(2).fit(fed)
            np.testing.assert_allclose(model.eigenvectors_, expected.eigenvectors_, atol=1e-8)
        assert fed.run(entity_alignment).value.n_own == (53, 53, 53)


def test_parties_on_dask_match_alike():
    parts, matched, _ = shuffled()
    expected = em.VFedPCA(2).fit(matched)
    with open_on_dask(parts) as fed:
        model = em.VFedPCA(2).fit(fed)
    np.testing.assert_allclose(model.eigenvectors_, expected.eigenvectors_, atol=1e-8)


def written(parts, tmp_path):
    """The parties' columns as files with an id column."""
    paths = []
    for i in range(3):
        rows = [
            f"{own},{','.join(map(repr, row.tolist()))}"
            for own, row in zip(parts.sample_ids[i], parts.part(i), strict=True)
        ]
        header = "id," + ",".join(f"c{i}{j}" for j in range(6))
        paths.append(tmp_path / f"{i}.csv")
        paths[-1].write_text("\n".join([header, *rows]))
    return paths


def test_files_with_an_id_column_are_matched(tmp_path):
    parts, matched, common = shuffled()
    paths = written(parts, tmp_path)
    expected = em.VFedPCA(2).fit(matched)
    model = em.VFedPCA(2).fit(em.Partitioned(columns=paths, align="inner"))
    np.testing.assert_allclose(model.eigenvectors_, expected.eigenvectors_, atol=1e-8)
    with em.federation(paths, split="columns", align="inner") as fed:
        model = em.KernelPCA(2).fit(fed)
        np.testing.assert_allclose(model.eigenvectors_, expected.eigenvectors_, atol=1e-8)
        assert model.transform(fed).shape == (len(common), 2)
    assert f"{len(common)} samples are common" in str(model.report_)


def test_files_that_workers_open_are_matched_by_the_secret_of_their_parties(tmp_path, monkeypatch):
    parts, matched, _ = shuffled()
    paths = written(parts, tmp_path)
    expected = em.VFedPCA(2).fit(matched)
    options = {"split": "columns", "align": "inner"}
    with open_on_dask(paths, id_secret="eight or more", **options) as fed:
        model = em.VFedPCA(2).fit(fed)
    np.testing.assert_allclose(model.eigenvectors_, expected.eigenvectors_, atol=1e-8)
    monkeypatch.delenv(SECRET_VARIABLE, raising=False)
    with pytest.raises(em.EigenmeshError, match=f"party-0.*no secret.*{SECRET_VARIABLE}"):
        with open_on_dask(paths, **options) as fed:
            em.VFedPCA(2).fit(fed)


def test_what_cannot_be_matched_says_why(tmp_path):
    parts, _, _ = shuffled()
    paths = written(parts, tmp_path)
    with pytest.raises(InputError, match="align='inner' matches samples over columns"):
        em.federation(paths, align="inner")
    with pytest.raises(InputError, match="align is 'outer'"):
        em.federation(paths, split="columns", align="outer")
    with pytest.raises(InputError, match="align= beside a Partitioned"):
        em.federation(parts, align="inner")
    np.save(tmp_path / "0.npy", parts.part(0))
    with em.federation([tmp_path / "0.npy", *paths[1:]], split="columns", align="inner") as fed:
        with pytest.raises(em.EigenmeshError, match="party-0.*no sample ids.*column 'id'"):
            em.VFedPCA(2).fit(fed)


def test_a_plan_counts_the_matched_samples_and_the_matching():
    parts, _, _ = shuffled()
    model = em.VFedPCA(2, n_rounds=2, tolerance=1e-300)
    forecast = em.plan(model, parts)
    with pytest.warns(em.EigenmeshWarning, match="not converged"):
        report = model.fit(parts).report_
    for field in ("floats_up", "floats_down", "rounds", "by_party", "by_step", "reveals"):
        assert getattr(forecast, field) == getattr(report, field), field


def test_a_plan_of_parties_that_have_not_matched_yet_is_a_bound_and_says_so(tmp_path):
    parts, matched, common = shuffled()
    model = em.VFedPCA(2, n_rounds=2, tolerance=1e-300)
    with em.federation(
        written(parts, tmp_path), split="columns", align="inner", id_secret="of the parties"
    ) as fed:
        forecast = em.plan(model, fed)
        with pytest.warns(em.EigenmeshWarning, match="not converged"):
            report = model.fit(fed).report_
    assert len(common) < 53
    assert report.floats_up < forecast.floats_up
    assert report.floats_up / len(common) == pytest.approx(forecast.floats_up / 53, rel=0.02)
    assert "at most: as if all 53 samples" in str(forecast)
    assert not any("samples" in note for note in em.plan(model, matched).notes)


def test_the_secret_comes_from_the_caller_or_the_parties_environment(monkeypatch):
    assert shuffled()[0]._secret != shuffled()[0]._secret
    assert shuffled(id_secret="eight or more")[0]._secret == "eight or more"
    monkeypatch.setenv(SECRET_VARIABLE, "of the parties")
    assert shuffled()[0]._secret == "of the parties"
    with pytest.raises(InputError, match="id_secret is too short"):
        shuffled(id_secret="short")


def test_no_common_samples_is_an_error_with_a_remedy():
    blocks = [np.random.default_rng(0).normal(size=(5, 2)) for _ in range(2)]
    ids = [["1", "2", "3", "4", "5"], [1, 2, 3, 4, 5]]
    parts = em.Partitioned(columns=blocks, sample_ids=ids, align="inner")
    with pytest.raises(InputError, match="0 sample ids are common.*written alike"):
        em.VFedPCA(1).fit(parts)


def test_without_ids_there_is_nothing_to_match():
    parts = em.Partitioned(columns=[np.ones((4, 2)), np.ones((4, 2))], align="inner")
    with pytest.raises(em.EigenmeshError, match="no sample ids to match"):
        em.VFedPCA(1).fit(parts)


def test_new_samples_may_be_shuffled_too():
    parts, matched, _ = shuffled()
    model = em.VFedPCA(2).fit(matched)
    new, new_matched, common = shuffled(seed=1)
    scores = model.transform(new)
    assert f"{len(common)} samples are common" in str(model.transform_report_)
    np.testing.assert_allclose(scores, model.transform(new_matched), atol=1e-9)


def test_a_partitioned_can_be_matched_where_all_parties_are_at_hand():
    parts, matched, common = shuffled()
    found = parts.matched()
    assert found.align == "strict"
    assert parts.n_samples == found.n_samples == len(common)
    assert found.sample_ids[0].tolist() == found.sample_ids[2].tolist() == common
    for own, expected in zip(found.parts, matched.parts, strict=True):
        np.testing.assert_array_equal(own, expected)
    assert parts.take_samples([1]).sample_ids[1].tolist() == common[1:2]
    assert "53×6" in repr(parts)
    assert parts.select(["party-2"]).align == "inner"


def test_common_rows_follow_the_first_party():
    keys = [np.array([[5], [1], [3]]), np.array([[3], [5], [4]]), np.array([[9], [3], [5]])]
    assert [rows.tolist() for rows in common_rows(keys)] == [[0, 2], [1, 0], [2, 1]]


def test_the_command_line_matches_files_by_their_ids(tmp_path):
    parts, matched, common = shuffled()
    files = [str(path) for path in written(parts, tmp_path)]
    model, scores, again = (str(tmp_path / name) for name in ("m.em", "z.csv", "new.csv"))
    inner = ["--align", "inner", "--json"]
    fitted = CliRunner().invoke(app, ["fit", *files, "--model", model, "--scores", scores, *inner])
    assert fitted.exit_code == 0, fitted.output
    assert f"{len(common)} samples are common" in fitted.stdout
    expected = em.VFedPCA(2).fit(matched)
    table = read_table(scores)
    assert table.sample_ids.tolist() == common
    np.testing.assert_allclose(table.X, expected.transform(matched), atol=1e-7)
    done = CliRunner().invoke(app, ["transform", model, *files, "--out", again, *inner])
    assert done.exit_code == 0, done.output
    np.testing.assert_allclose(read_table(again).X, table.X, atol=1e-7)
    planned = CliRunner().invoke(app, ["plan", *files, *inner])
    assert planned.exit_code == 0, planned.output
    refused = CliRunner().invoke(app, ["fit", *files, "--model", model, "--json"])
    assert refused.exit_code != 0


def matched_site(trust, min_rows=5):
    rng = np.random.default_rng(0)
    ids = np.array([f"patient {i}" for i in range(40)])
    matcher = SampleMatcher(lambda: rng.normal(size=(40, 3)), lambda: ids, "secret", "inner")
    policy = em.Policy(min_rows=min_rows)
    site = Site("a", opens=matcher.data, policy=policy, matcher=matcher, trust=trust)
    return MatchedSite(SiteView(site, 0, ("a", "b", "c")), MatchSetup()), site


def test_between_organisations_samples_are_not_chosen_such_that_two_answers_tell_one():
    """The coordinator says which samples are common: all of them, and then all but one."""
    party, site = matched_site("organisations")
    party.take_rows(CommonRows(rows=np.arange(30)))
    party.take_rows(CommonRows(rows=np.arange(30)[::-1]))  # the same, in another order
    for fewer in (np.arange(29), np.arange(31), np.arange(1, 31), np.arange(4)):
        with pytest.raises(PolicyRefusal, match="min_rows|fewer"):
            party.take_rows(CommonRows(rows=fewer))
    assert site.data.shape[0] == 30
    party.take_rows(CommonRows(rows=np.arange(35)))
    assert site.data.shape[0] == 35


def test_in_one_trust_domain_any_samples_may_be_common():
    party, site = matched_site("domain")
    for n in (30, 29, 2):
        party.take_rows(CommonRows(rows=np.arange(n)))
        assert site.data.shape[0] == n


@pytest.mark.parametrize("rows", [[40], [0, 99]])
def test_samples_that_a_site_does_not_have_are_not_common(rows):
    party, _ = matched_site("domain")
    with pytest.raises(MessageRefused, match="none of the site's"):
        party.take_rows(CommonRows(rows=np.array(rows)))
