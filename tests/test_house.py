"""How the house is kept: what a reader may rely on wherever they open it."""

import ast
import io
import tokenize
from collections import Counter
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "eigenmesh"
USUAL_LENGTH = 150  # lines of code of a protocol's file
OF_A_FOLDER = "__init__ __main__ protocol paper graph maths estimator".split()
LAYOUT = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)


def lines_of_code(text: str) -> int:
    """Without blank lines, comments, docstrings and imports."""
    tree, others = ast.parse(text), set()
    for node in ast.walk(tree):
        is_doc = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if is_doc or isinstance(node, ast.Import | ast.ImportFrom):
            others |= set(range(node.lineno, node.end_lineno + 1))
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    lines = {
        line for t in tokens if t.type not in LAYOUT for line in range(t.start[0], t.end[0] + 1)
    }
    return len(lines - others)


def test_a_protocol_fits_in_a_few_screens_or_says_why_not():
    unexplained = {}
    for path in SOURCE.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        head = ast.get_docstring(ast.parse(text)) or ""
        is_long = "\n@protocol(" in text and lines_of_code(text) > USUAL_LENGTH
        if is_long and "bove the usual length" not in head:
            unexplained[path.name] = lines_of_code(text)
    assert unexplained == {}


def test_no_two_modules_have_one_name_but_those_that_every_method_has():
    names = Counter(path.stem for path in SOURCE.rglob("*.py") if path.stem not in OF_A_FOLDER)
    assert [name for name, count in names.items() if count > 1] == []


def test_no_two_classes_have_one_name():
    classes = Counter(
        node.name
        for path in SOURCE.rglob("*.py")
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    assert [name for name, count in classes.items() if count > 1] == []


def test_no_variable_is_a_bare_participle():
    participles = set("found told asked chosen made given said wanted seen held known".split())
    named = [
        f"{path.name}:{node.lineno} {node.id}"
        for path in SOURCE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in participles
    ]
    assert named == []
