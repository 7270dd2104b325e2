"""The demonstration as people see it: a dozen lines, one picture and one page."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import eigenmesh
from eigenmesh.reports.audit import audit
from eigenmesh.reports.demo.clinics import N_COLUMNS, N_GROUPS, NAMES, SIZES
from eigenmesh.reports.demo.story import SUBSET, Story
from eigenmesh.reports.documents import as_json
from eigenmesh.reports.markup import Html, element
from eigenmesh.reports.meanings import KINDS_IN_WORDS, SEVERITY_IN_WORDS
from eigenmesh.reports.page import report
from eigenmesh.reports.page.layout import styled_page
from eigenmesh.reports.tables import share_in_words

_EVERY = 10  # patients of whom one is drawn: more would cover each other


class StoryLine(NamedTuple):
    """One step of the story: what is done, and what came of it."""

    title: str
    words: str


def lines(story: Story) -> Iterator[StoryLine]:
    """The story in plain words."""
    yield from _a_fit(story)
    yield from _what_may_come_between(story)
    speed = story.speed
    yield StoryLine(
        "a million rows",
        f"{speed.seconds:.1f} s in one place; scikit-learn takes {speed.whole_matrix_seconds:.1f} "
        f"s for {SUBSET:,} of them, and {speed.whole_matrix_terabytes:.0f} TB of memory for all",
    )


def _a_fit(story: Story) -> Iterator[StoryLine]:
    """From three files to a map, and what left on the way."""
    rows, share = sum(SIZES), share_in_words(story.report.share_of_baseline)
    sent = story.report.floats_up + story.report.floats_down
    yield StoryLine(
        "three clinics",
        f"{rows:,} patients with {N_COLUMNS} blood values each, in three files that may not be "
        f"pooled; each clinic is a process of its own",
    )
    yield StoryLine("check", f"{story.problems} problems in the three files; nothing was sent")
    planned = story.plan.floats_up + story.plan.floats_down
    yield StoryLine(
        "plan",
        f"beforehand: about {planned:,} numbers will be sent, no patient's row among them",
    )
    yield StoryLine(
        "fit",
        f"kernel PCA (a map that puts alike patients near each other): {sent:,} numbers sent, "
        f"{share} of the {story.report.baseline_floats:,} that sending every row takes",
    )
    yield StoryLine(
        "as if pooled",
        f"the map is that of all rows in one place, but for {story.comparison.error:.1%} of its "
        f"width",
    )
    worst = audit(story.report).worst
    severity = SEVERITY_IN_WORDS[worst.severity] if worst else "nothing"
    yield StoryLine(
        "what it is worth", f"the most that anybody could make of what left: {severity}"
    )


def _what_may_come_between(story: Story) -> Iterator[StoryLine]:
    """A clinic that refuses, one that is lost, and what is done all the same."""
    yield StoryLine(
        "refused",
        f"a sharper method asks for some patients' rows; {story.refusal.party} refuses, as its "
        f"own policy says, before anything is computed",
    )
    yield StoryLine(
        "instead", f"so the less revealing method stays: {story.instead} leave a clinic"
    )
    ((name, reason),) = story.loss.items()
    yield StoryLine(
        "a clinic dies",
        f"in the middle of a fit {name} is gone: {reason}; it is named, and the others go on",
    )
    yield StoryLine(
        "groups",
        f"{story.clusters} groups of patients found by {' and '.join(story.survivors)}, "
        f"{story.agreement:.0%} in agreement with the truth (0 % would be chance)",
    )


def save(story: Story, folder: Path) -> dict[str, Any]:
    """Write picture, page and figures; gives the figures."""
    picture, page, figures = (folder / f"demo.{kind}" for kind in ("png", "html", "json"))
    draw(story, picture)
    report(story.model, folder / "report.html")
    page.write_text(_page(story, picture), encoding="utf-8")
    tree = {
        "version": eigenmesh.__version__,
        "seconds": story.seconds,
        "share_of_shipping": story.report.share_of_baseline,
        "error": story.comparison.error,
        "refusal": str(story.refusal),
        "lost": story.loss,
        "agreement": story.agreement,
        "million_rows_seconds": story.speed.seconds,
        "whole_matrix_seconds": story.speed.whole_matrix_seconds,
        "lines": [line._asdict() for line in lines(story)],
        "files": {"page": page, "report": folder / "report.html", "picture": picture},
    }
    figures.write_text(as_json(tree) + "\n", encoding="utf-8")
    return tree


def draw(story: Story, path: Path) -> None:
    """Both maps on top of each other, beside what left each clinic."""
    # Matplotlib takes a second to import; help and the other commands do without it.
    from eigenmesh.reports.plots.picture_style import PALETTE, headed, new_picture, saved, titled

    picture, (plane, bars) = new_picture(11, 5.2, 2)
    own = story.comparison
    some = slice(None, None, _EVERY)
    rings = {"facecolors": "none", "edgecolors": "0.3", "linewidths": 0.7, "label": "all pooled"}
    plane.scatter(*own.pooled[some].T, s=42, **rings)
    for place, name in enumerate(NAMES):
        members = own.parties[some] == place
        colour = PALETTE[2 * place + 1]
        plane.scatter(*own.federated[some][members].T, s=12, color=colour, label=name)
    plane.set_xlabel("first component")
    plane.set_ylabel("second component")
    plane.legend(frameon=False, fontsize=9, loc="center")
    titled(
        plane, f"Every tenth patient: dots federated, rings pooled, {own.error:.1%} apart at most"
    )
    kept = [size * N_COLUMNS for size in SIZES]
    left = [story.report.by_party[name] for name in NAMES]
    places = range(len(NAMES))
    bars.barh([p - 0.2 for p in places], kept, 0.36, color="0.75", label="numbers it keeps")
    bars.barh([p + 0.2 for p in places], left, 0.36, color=PALETTE[6], label="numbers that left")
    bars.set_yticks(list(places), NAMES)
    bars.invert_yaxis()
    bars.grid(visible=False, axis="y")
    for p, count in zip(places, left, strict=True):
        bars.text(count, p + 0.2, f"  {count:,}", va="center", fontsize=9)
    bars.legend(frameon=False, fontsize=9, loc="lower right")
    bars.xaxis.set_major_formatter("{x:,.0f}")
    titled(bars, "What left each clinic")
    headed(picture, "Three clinics that may not pool their patients")
    saved(picture, path)


def _page(story: Story, picture: Path) -> str:
    content = base64.b64encode(picture.read_bytes()).decode()
    alt = (
        f"Left: {sum(SIZES):,} patients of {N_GROUPS} groups as points; the federated map lies on "
        f"the pooled one. Right: few numbers left each clinic beside those that it keeps."
    )
    picture_tag = f'<img alt="{element("i", alt)[3:-4]}" src="data:image/png;base64,{content}">'
    image = element("div", Html(picture_tag), class_="scroll", tabindex="0")  # wide for a phone
    chapters = element(
        "ol",
        *(element("li", element("strong", line.title), ": ", line.words) for line in lines(story)),
    )
    kinds = sorted({kind for own in story.report.reveals.values() for kind in own})
    meanings = [
        part
        for kind in kinds
        for part in (element("dt", kind), element("dd", KINDS_IN_WORDS[kind]))
    ]
    more = element("a", "everything about this fit", href="report.html")
    return styled_page(
        "eigenmesh in a minute",
        element("header", element("h1", "eigenmesh in a minute")),
        element(
            "main",
            element("section", element("h2", "The picture"), image),
            element("section", element("h2", "What happened"), chapters),
            element(
                "section",
                element("h2", "What left the clinics, in words"),
                element("dl", *meanings, class_="kinds"),
                element("p", "On a page of its own: ", more, class_="note"),
            ),
        ),
    )
