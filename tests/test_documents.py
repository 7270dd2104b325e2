"""What documents promise about the code: parameters, examples, versions."""

import inspect
import re
from pathlib import Path

import pytest

import eigenmesh as em

ROOT = Path(__file__).parents[1]
PUBLIC = [
    name
    for name in em.__all__
    if not (isinstance(getattr(em, name), type) and issubclass(getattr(em, name), Exception))
]


@pytest.mark.parametrize("name", PUBLIC)
def test_every_parameter_is_documented(name):
    value = getattr(em, name)
    words = inspect.getdoc(value)
    missing = [
        own for own in inspect.signature(value).parameters if not re.search(rf"\b{own}\b", words)
    ]
    assert not missing


def test_every_example_is_in_the_gallery():
    gallery = (ROOT / "docs" / "examples.md").read_text()
    missing = [path.name for path in (ROOT / "examples").glob("*.py") if path.name not in gallery]
    assert not missing


def test_every_picture_is_in_the_gallery():
    gallery = (ROOT / "docs" / "examples.md").read_text()
    drawn = [name for name in em.plot.__all__ if name.islower()]
    helpers = {"align_signs", "suggested_clusters"}  # which draw nothing
    missing = [name for name in drawn if f" _pictures/{name}.png\n" not in gallery]
    assert set(missing) == helpers


def test_the_citation_is_of_this_version():
    assert f"\nversion: {em.version.__version__}\n" in (ROOT / "CITATION.cff").read_text()
