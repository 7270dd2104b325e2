"""Pages about runs: what they say, what they never say, and how they behave in a browser."""

from __future__ import annotations

import dataclasses
import html
import re
import time

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_wine
from tests.chromium import browser

import eigenmesh as em
from eigenmesh.estimators.traffic import Link
from eigenmesh.reports.audit import Severity
from eigenmesh.reports.meanings import KINDS_IN_WORDS, SEVERITY_IN_WORDS
from eigenmesh.reports.page.drawn_rows import MOST_DRAWN
from eigenmesh.reports.page.facts import facts_of
from eigenmesh.reports.page.layout import document
from eigenmesh.runtime.message import KINDS

pytestmark = pytest.mark.filterwarnings("ignore::eigenmesh.errors.EigenmeshWarning")

HOSTILE = "</script><script>alert(1)</script>\x00\u202e\ud800&amp;"
WINE = load_wine()
SITES = np.array_split(np.random.default_rng(0).permutation(len(WINE.data)), 3)


@pytest.fixture(scope="module")
def parts():
    frame = pd.DataFrame(WINE.data, columns=WINE.feature_names)
    frame = frame.rename(columns={"hue": "<img src=x onerror=alert(2)>"})
    names = ["north", "south", HOSTILE]
    return em.Partitioned(rows=[frame.iloc[rows] for rows in SITES], names=names)


@pytest.fixture(scope="module")
def labels():
    return [np.array(["<b>Barolo", "Grignolino", "Barbera"])[WINE.target[rows]] for rows in SITES]


@pytest.fixture(scope="module")
def kpca(parts):
    preparation = em.Preparation(standardize=True)
    how = {"kernel": "rbf", "gamma": "median", "preparation": preparation}
    return em.KernelPCA(3, **how, random_state=7).fit(parts)


@pytest.fixture(scope="module")
def pages(kpca, parts, labels, tmp_path_factory):
    """Pages of fits of every shape, by name."""
    folder = tmp_path_factory.mktemp("pages")
    X = np.random.default_rng(1).normal(size=(120, 4))
    clusters = em.KernelKMeans(3, preparation=kpca.preparation, random_state=0).fit(parts)
    columns = em.split(X, 3, by="columns")
    rows = em.split(X, 5, random_state=0)
    ring = em.KernelPCA(2, kernel="rbf", gamma=0.1, topology="full", random_state=0).fit(rows)
    targets = [X[own, 0] for own in rows.order]
    regression = em.KernelPCRegressor(3, random_state=0).fit(rows, targets)
    fits = {
        "rows": (kpca, {"data": parts, "labels": labels}),
        "bare": (kpca, {}),
        "clusters": (clusters, {"data": parts}),
        "columns": (em.VFedPCA(2).fit(columns), {"data": columns, "labels": X[:, 0] > 0}),
        "one component": (em.KernelPCA(1, kernel="rbf").fit(X), {"data": X}),
        "graph": (ring, {"data": rows}),
        "regression": (regression, {"data": rows}),
    }
    return {
        name: em.report(model, folder / f"{name}.html", **how)
        for name, (model, how) in fits.items()
    }


def words_of(page):
    return re.sub(r"<[^>]+>", " ", page.read_text(encoding="utf-8"))


def test_a_page_tells_components_cost_disclosure_and_settings(kpca, pages):
    words, report = words_of(pages["rows"]), kpca.report_
    floats = report.floats_up + report.floats_down
    assert f"{floats:,} numbers" in words
    assert f"{report.baseline_floats:,} numbers" in words
    assert f"{kpca.explained_variance_ratio_.sum():.1%}" in words
    assert em.audit(report).worst.words in words
    assert f"{kpca.eigenvalues_[2]:.5g}" in words
    assert re.search(r"random_state\s+7", words)
    assert em.__version__ in words
    assert report.stop_reason.replace("'", "&#x27;") in words


def test_a_regression_says_how_much_it_predicts(pages):
    words = html.unescape(" ".join(words_of(pages["regression"]).split()))
    assert re.search(r"\d\d\.\d% of the targets' variance in the fitted rows is predicted", words)


def test_what_was_sent_by_round_and_link_is_all_that_was_sent(kpca):
    report, traffic = kpca.report_, kpca.report_.traffic
    assert sum(traffic.floats_by_round) == report.floats_up + report.floats_down
    assert sum(traffic.bytes_by_round) == report.bytes == sum(link.bytes for link in traffic.links)
    assert len(traffic.floats_by_round) == report.rounds + 1
    sent = dict.fromkeys(report.parties, 0)
    for link in traffic.links:
        if link.sender != "coordinator":
            sent[link.sender] += link.floats
    assert sent == report.by_party


def test_traffic_stays_with_a_saved_model_and_links_of_very_many_are_summed(kpca, tmp_path):
    from eigenmesh.estimators import traffic

    kpca.save(tmp_path / "model.em")
    assert em.load(tmp_path / "model.em").report_ == kpca.report_
    links = [(f"p{i}", "coordinator", 2, 10) for i in range(traffic.MOST_LINKS)]
    folded = traffic._links([*links, ("coordinator", "p0", 3, 30)])
    assert [(link.sender, link.receiver, link.floats) for link in folded] == [
        ("parties", "coordinator", 2 * traffic.MOST_LINKS),
        ("coordinator", "parties", 3),
    ]


def test_no_row_is_on_a_page_unless_the_data_are_passed(kpca, pages):
    bare = pages["bare"].read_text(encoding="utf-8")
    assert "No scores of single rows are on this page" in bare
    assert '<script type="application/json" id="points">null</script>' in bare
    for landmark in kpca.landmarks_[:5]:
        assert not any(f"{value:.4g}" in bare for value in landmark if abs(value) > 1e-3)


def test_hostile_names_are_text(pages):
    for name in ("rows", "bare", "clusters"):
        page = pages[name].read_text(encoding="utf-8")
        assert len(re.findall(r"<script", page)) == 2  # the facts and the one of the page
        assert "<img" not in page
        assert "\x00" not in page
        assert "\u202e" not in page
        assert "\\u0000" in page


def test_a_lost_party_is_named_with_its_reason(parts):
    with em.federation(parts, on_loss="survivors", faults=[em.Fault("kill", "south")]) as fed:
        model = em.MomentPCA(2).fit(fed)
    page = document(facts_of(model))
    assert "south was lost" in page
    assert "node gone" in page


def test_columns_that_make_a_component_move_it_most():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 6)) * 0.1
    X[:, 4] += rng.choice([-2.0, 2.0], size=400)
    parts = em.split(X, 4, random_state=0)
    for how in ({}, {"kernel": "rbf", "gamma": 0.1}, {"kernel": "cosine"}):
        model = em.KernelPCA(1, **how, random_state=0).fit(parts)
        columns = facts_of(model, parts).columns
        assert columns.by_component[0][0].name == "column 5"
        assert columns.by_component[0][0].size > 3 * columns.by_component[0][1].size
    by_columns = em.split(X, 3, by="columns")
    one_shot = em.OneShotKPCA(1, kernel="rbf", gamma=0.1).fit(by_columns)
    assert facts_of(one_shot, by_columns).columns.by_component[0][0].name == "party-2: column 1"


def test_columns_go_by_their_prepared_names_and_samples_are_no_columns():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"dose": rng.normal(size=60), "same": 1.0, "ward": ["A", "B"] * 30})
    parts = em.Partitioned(rows=[frame[:30], frame[30:]], categories=["ward"])
    preparation = em.Preparation(standardize=True, categories=("ward",))
    model = em.KernelPCA(1, kernel="rbf", preparation=preparation, random_state=0).fit(parts)
    names = {column.name for column in facts_of(model, parts).columns.by_component[0]}
    assert names == {"dose", "ward = A", "ward = B"}
    whole = em.KernelPCA(1, kernel="precomputed").fit(np.eye(9))
    assert facts_of(whole, np.eye(9)).columns is None


def test_of_many_rows_some_of_every_party_are_drawn():
    X = np.random.default_rng(0).normal(size=(3 * MOST_DRAWN, 2))
    parts = em.Partitioned(rows=[X[:-2], X[-2:]], names=["large", "small"])
    model = em.MomentPCA(1).fit(em.split(X, 2, random_state=0))
    drawn = facts_of(model, parts).embedding
    assert drawn.n_rows == len(X)
    assert np.bincount(drawn.colourings["party"].codes).tolist() == [MOST_DRAWN - 1, 1]


@pytest.mark.parametrize(
    ("data", "labels", "words"),
    [
        ("parts", [["a"]], "1 entries for 3 parties"),
        ("parts", [["a"], ["b"], ["c"]], "one a row"),
        ("federation", None, "whose rows are not in this process"),
    ],
)
def test_wrong_data_and_labels_are_refused(kpca, parts, data, labels, words, tmp_path):
    with em.federation(parts) as fed, pytest.raises(em.EigenmeshError, match=words):
        source = fed if data == "federation" else parts
        em.report(kpca, tmp_path / "page.html", data=source, labels=labels)


def test_a_thousand_parties_fit_on_a_page():
    X = np.random.default_rng(0).normal(size=(20_000, 5))
    model = em.MomentPCA(5).fit(em.split(X, 2, random_state=0))
    parts = em.split(X, 1000, random_state=0)
    model.report_ = as_if_of(parts, model.report_)
    start = time.process_time()
    page = document(facts_of(model, parts))
    assert time.process_time() - start < 2
    assert len(page.encode()) < 2e6
    assert page.count("<circle") == 1000


def as_if_of(parts, report):
    """The report of more parties, each of which sent what the first did; their fit takes long."""
    names = parts.names
    up, down = report.by_party["party-0"], report.floats_down // 2
    links = [Link(name, "coordinator", up, 8 * up) for name in names]
    links += [Link("coordinator", name, down, 8 * down) for name in names]
    return dataclasses.replace(
        report,
        parties=names,
        by_party=dict.fromkeys(names, up),
        reveals=dict.fromkeys(names, report.reveals["party-0"]),
        shapes=dict(zip(names, parts.shapes, strict=True)),
        disclosures=tuple(
            dataclasses.replace(one, parties=names)
            for one in report.disclosures
            if "party-0" in one.parties
        ),
        traffic=dataclasses.replace(report.traffic, links=tuple(links)),
    )


def test_every_kind_and_severity_has_its_words():
    assert set(KINDS_IN_WORDS) == KINDS
    assert set(SEVERITY_IN_WORDS) == set(Severity)


# In a browser.


@pytest.fixture(scope="module")
def tab():
    with browser() as tab:
        yield tab


@pytest.mark.parametrize(("width", "dark"), [(1200, False), (390, True)])
def test_pages_open_without_complaint_and_fit_the_screen(tab, pages, width, dark):
    for name, page in pages.items():
        tab.open(page, width=width, dark=dark)
        assert tab.value("document.documentElement.scrollWidth") <= width, name
        # What left each party is read without scrolling aside.
        worth = "document.querySelector('#disclosure > .scroll') ?? document.body"
        assert tab.value(f"({worth}).scrollWidth <= ({worth}).clientWidth"), name
        red = int(tab.value("getComputedStyle(document.body).backgroundColor.match(/\\d+/)[0]"))
        assert (red < 80) == dark
        drawn = tab.value("document.querySelectorAll('#plot path').length")
        assert bool(drawn) == (name != "bare"), name
    assert tab.complaints == []


def test_the_picture_follows_the_keyboard_and_its_table_too(tab, pages):
    tab.open(pages["rows"])
    before = tab.value("document.querySelector('#plot path').getAttribute('d')")
    tab.value("document.getElementById('y-component').focus()")
    tab.press("ArrowRight")
    status = tab.value("document.getElementById('plot-status').textContent")
    assert status.startswith("Component 1 across, component 3 up; 178 points coloured by label")
    assert tab.value("document.querySelector('#plot path').getAttribute('d')") != before
    assert "component 3: mean" in tab.value("document.getElementById('plot-table').textContent")
    change = "s = document.getElementById('colour-by'); s.value = 'party'; "
    tab.value(change + "s.dispatchEvent(new Event('input'))")
    legend = tab.value("document.getElementById('legend').textContent")
    assert "north (60)" in legend
    assert "alert(1)" in legend
    assert tab.complaints == []


def test_every_picture_has_words_and_every_control_a_name(tab, pages):
    for page in pages.values():
        tab.open(page)
        nameless = "[...document.querySelectorAll('main svg[role=img]')].filter(s => !s.ariaLabel)"
        assert tab.value(f"{nameless}.length") == 0
        loose = "[...document.querySelectorAll('input, select')].filter(c => !c.labels.length)"
        assert tab.value(f"{loose}.length") == 0
        assert tab.value("document.querySelectorAll('table:not(:has(caption))').length") == 0
        assert tab.value("document.documentElement.lang") == "en"
