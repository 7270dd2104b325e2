"""Sphinx: `make docs` writes the site to build/docs, without a network and without warnings."""

import re
import runpy
import sys
from contextlib import redirect_stdout
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from docstrings import as_rest

import eigenmesh
from eigenmesh.version import __version__ as version

HERE = Path(__file__).parent
project = "eigenmesh"
copyright = "the eigenmesh developers"
release = version
extensions = ["myst_parser", "sphinx.ext.autodoc"]
html_theme = "alabaster"
html_theme_options = {
    "description": "Kernel PCA and kernel k-means over data that cannot be pooled",
    "page_width": "1100px",
    "body_max_width": "none",
    "font_family": "system-ui, sans-serif",
    "head_font_family": "system-ui, sans-serif",
}
html_static_path = ["_static"]
html_show_sourcelink = False
html_copy_source = False
myst_heading_anchors = 3
autodoc_typehints = "none"
autodoc_preserve_defaults = True

_PUBLIC = re.compile(r"^<!-- public names -->$", re.MULTILINE)


def _directive(name: str) -> str:
    value = getattr(eigenmesh, name)
    kind = "autofunction"
    if isinstance(value, type):
        kind = "autoexception" if issubclass(value, BaseException) else "autoclass"
    options = "" if kind == "autofunction" else "   :members:\n"
    return f"## {name}\n\n```{{eval-rst}}\n.. {kind}:: eigenmesh.{name}\n{options}```\n"


def _with_public_names(app, page, source):
    """The reference has every name of `eigenmesh.__all__`, and no list of its own."""
    everything = "\n".join(_directive(name) for name in sorted(eigenmesh.__all__, key=str.lower))
    source[0] = _PUBLIC.sub(lambda mark: everything, source[0])


def _draw_pictures(app):
    """The gallery's pictures are drawn by its own example; a later build has them."""
    folder = HERE / "_pictures"
    if not folder.exists():
        with redirect_stdout(None):
            runpy.run_path(str(HERE.parent / "examples" / "pictures.py"))["main"](folder)


def _docstring(app, what, name, value, options, lines):
    lines[:] = as_rest(lines)


def setup(app):
    app.connect("builder-inited", _draw_pictures)
    app.connect("source-read", _with_public_names)
    app.connect("autodoc-process-docstring", _docstring)
