import numpy as np
import pytest
from tests.site_folder.folders import drawn_rows, make_folder

from eigenmesh.errors import InputError, PartitionError
from eigenmesh.runtime.site import OWN_TARGETS, OWN_WEIGHTS, SiteView
from eigenmesh.site_folder import open_site
from eigenmesh.site_folder.settings import SiteSettings
from eigenmesh.site_folder.withdrawals import add_withdrawal


@pytest.fixture
def X(request):
    return drawn_rows(np.random.default_rng(len(request.node.name)), 30)


def test_a_site_is_built_from_its_folder_alone(tmp_path, X):
    y, w = X[:, 0] * 2, np.arange(30.0)
    lines = 'columns = ["x2", "x0"]\ntargets = ["y"]\nweights = "w"\n[peers]\nsouth = "' + "ab" * 32
    make_folder(tmp_path / "n", "north", X, settings=lines + '"', y=y, w=w, policy="min_rows = 7")
    site = open_site(tmp_path / "n")
    assert (site.name, site.split, site.trust) == ("north", "rows", "organisations")
    np.testing.assert_array_equal(site.data, X[:, [2, 0]])
    assert site.names_columns() == ("x2", "x0")
    assert site.policy.min_rows == 7
    assert site.peers == {"south": b"\xab" * 32}
    np.testing.assert_array_equal(site.store[OWN_TARGETS]["targets"], y)
    np.testing.assert_array_equal(site.store[OWN_WEIGHTS]["weights"], w)
    assert (tmp_path / "n" / "private").stat().st_mode & 0o777 == 0o700
    assert len(site.key) == 32
    assert (tmp_path / "n" / "private" / "site.key").stat().st_mode & 0o777 == 0o600
    assert open_site(tmp_path / "n").key == site.key


def test_words_in_columns_that_are_not_used_do_not_matter(tmp_path, X):
    make_folder(tmp_path / "n", "north", X, settings='columns = ["x0"]')
    file = tmp_path / "n" / "ward.csv"
    lines = file.read_text().splitlines()
    file.write_text("\n".join([lines[0] + ",note", *(line + ",well" for line in lines[1:])]))
    np.testing.assert_array_equal(open_site(tmp_path / "n").data, X[:, :1])


def test_rows_of_several_files_are_one_data_set(tmp_path, X):
    make_folder(tmp_path / "n", "north", X[:10])
    make_folder(tmp_path / "m", "north", X[10:], ids=[f"m{i}" for i in range(20)])
    (tmp_path / "n" / "site.toml").write_text(
        'name = "north"\ndata = ["ward.csv", "../m/ward.csv"]\nid_column = "patient"'
    )
    np.testing.assert_array_equal(open_site(tmp_path / "n").data, X)


@pytest.mark.parametrize("columns", [None, [1, 0]])
def test_files_without_names_go_by_place(tmp_path, X, columns):
    make_folder(tmp_path / "n", "north", X)
    np.save(tmp_path / "n" / "ward.npy", X)
    chosen = "" if columns is None else f"columns = {columns}"
    (tmp_path / "n" / "site.toml").write_text(f'name = "north"\ndata = "ward.npy"\n{chosen}')
    data = open_site(tmp_path / "n").data
    np.testing.assert_array_equal(data, X if columns is None else X[:, columns])
    assert isinstance(data, np.memmap) == (columns is None)


def test_withdrawn_rows_are_out_with_their_ids_and_values(tmp_path, X):
    folder = make_folder(tmp_path / "n", "north", X, settings='targets = ["y"]', y=X[:, 1])
    before = open_site(folder.path).identifies()
    add_withdrawal(folder.withdrawals_file, ["n003", "n020"])
    site, rest = open_site(folder.path), np.delete(X, [3, 20], axis=0)
    np.testing.assert_array_equal(site.data, rest)
    np.testing.assert_array_equal(site.store[OWN_TARGETS]["targets"], rest[:, 1])
    assert site.identifies() != before


def test_what_studies_leave_outlives_the_site_and_never_each_other(tmp_path, X):
    folder = make_folder(tmp_path / "n", "north", X, settings='targets = ["y"]', y=X[:, 1])
    for study, value in (("a" * 64, 1.0), ("b" * 64, 2.0)):
        view = SiteView(open_site(folder.path), 0, ("north",))
        view.study = study
        view.keep("scores", {"points": np.full((3, 1), value), "by": {2: np.arange(2), 5: None}})
    site = open_site(folder.path)
    share = site.store["scores"]
    assert share["points"][0, 0] == 2.0
    assert share["by"][5] is None
    assert share["by"][2].tolist() == [0, 1]
    assert site.left_by_studies["scores"].study == "b" * 64
    assert len(list(folder.store.glob("*.share"))) == 2
    assert {file.stat().st_mode & 0o777 for file in folder.store.iterdir()} == {0o600}
    with pytest.raises(InputError, match="site.toml"):
        site.store["targets of fit 3"] = {"targets": np.ones(3)}
    with pytest.raises(ValueError, match="writes over nothing"):
        SiteView(site, 0, ("north",)).keep(OWN_TARGETS, {"targets": np.ones(3)})


SETTINGS = {
    "name": {"name": ""},
    "data": {"data": ()},
    "split": {"split": "both"},
    "named twice": {"columns": ("x",), "targets": ("x",)},
    "id_column": {"align": "inner", "split": "columns"},
    "64 digits": {"peers": {"south": "ab"}},
    "several files": {"split": "columns", "data": ("a.csv", "b.csv")},
}


@pytest.mark.parametrize("words", SETTINGS)
def test_wrong_settings_are_named(words):
    with pytest.raises(InputError, match=words):
        SiteSettings(**{"name": "north", "data": ("a.csv",), **SETTINGS[words]})


@pytest.mark.parametrize(
    ("line", "words"),
    [("colums = []", "colums"), ("name = 3", "name"), ("data = [3]", "data"), ("x =", "read")],
)
def test_a_wrong_file_of_settings_says_what_is_wrong(tmp_path, line, words):
    file = tmp_path / "site.toml"
    kept = [own for own in ('name = "n"', 'data = "a"') if own.split()[0] != line.split()[0]]
    file.write_text("\n".join([*kept, line]))
    with pytest.raises(InputError, match=words):
        SiteSettings.from_toml(file)


def test_settings_are_written_as_they_are_read(tmp_path):
    rng = np.random.default_rng(3)
    for _ in range(20):
        settings = SiteSettings(
            'no"rth\n',
            ("a b.csv", "ü.csv")[: rng.integers(1, 3)],
            id_column=[None, "patient id"][rng.integers(2)],
            columns=[None, ("x", "y"), (1, 2)][rng.integers(3)],
            targets=[(), ("t",), (7,)][rng.integers(3)],
            weights=[None, "w"][rng.integers(2)],
            peers=[{}, {"so.uth": "0f" * 32}][rng.integers(2)],
        )
        (tmp_path / "site.toml").write_text(settings.to_toml(), encoding="utf-8")
        assert SiteSettings.from_toml(tmp_path / "site.toml") == settings


def test_unusable_data_name_the_site_and_what_is_missing(tmp_path, X):
    folder = make_folder(tmp_path / "n", "north", X, settings='columns = ["x9"]')
    with pytest.raises(PartitionError, match="'north'.*'x9'"):
        _ = open_site(folder.path).data
    make_folder(tmp_path / "m", "north", X, ids=["a"] * 30)
    with pytest.raises(PartitionError, match="30 times"):
        _ = open_site(tmp_path / "m").data


def test_a_key_that_others_can_read_is_refused(tmp_path, X):
    folder = make_folder(tmp_path / "n", "north", X)
    _ = open_site(folder.path).key
    (folder.private / "site.key").chmod(0o644)
    with pytest.raises(InputError, match="chmod"):
        open_site(folder.path)
