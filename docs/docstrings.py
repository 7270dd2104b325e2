"""Docstrings as reStructuredText: ours are plain text with `names` and sections of entries."""

import re

_CODE = re.compile(r"`+([^`]+)`+")
_SPECIAL = re.compile(r"([\\*|_])")


def as_rest(lines: list[str]) -> list[str]:
    r"""Lines of a docstring as Sphinx reads them; examples stay as they are.

    >>> as_rest(["Rows of `X`, of name_.", "", "Parameters", "----------", "n : how", "    many"])
    ['Rows of ``X``, of name\\_.', '', '.. rubric:: Parameters', '', '- **n**: how many']
    """
    done: list[str] = []
    in_section = False
    for block in _blocks(lines):
        if block[0].lstrip().startswith(">>>"):
            done += block
        elif len(block) > 1 and set(block[1]) == {"-"}:
            in_section = True
            is_example = len(block) > 2 and block[2].startswith(">>>")
            body = block[2:] if is_example else _entries(block[2:])
            done += [f".. rubric:: {block[0]}", "", *body]
        elif in_section and any(" : " in line for line in block):
            done += _entries(block)
        else:
            done += [_text(line) for line in block]
        done.append("")
    return done[:-1]


def _blocks(lines: list[str]) -> list[list[str]]:
    """Runs of lines between empty ones."""
    blocks: list[list[str]] = [[]]
    for line in lines:
        if line.strip():
            blocks[-1].append(line)
        elif blocks[-1]:
            blocks.append([])
    return [block for block in blocks if block]


def _entries(lines: list[str]) -> list[str]:
    """`names : what they are`, where names and words may take several lines."""
    entries: list[str] = []
    for line in lines:
        begins = not line.startswith(" ") and not (entries and " : " not in entries[-1])
        if begins:
            entries.append(line)
        else:
            entries[-1] += " " + line.strip()
    return [_entry(*entry.partition(" : ")) for entry in entries]


def _entry(names: str, colon: str, words: str) -> str:
    return f"- **{_text(names)}**: {_text(words)}" if colon else f"- {_text(names)}"


def _text(line: str) -> str:
    """Names in backticks are code; signs that would be markup are themselves."""
    parts = _CODE.split(line)
    plain = [_SPECIAL.sub(r"\\\1", part) for part in parts[::2]]
    code = [f"``{part}``" for part in parts[1::2]] + [""]
    return "".join(text + name for text, name in zip(plain, code, strict=True))
