"""Markup from text that cannot be trusted: everything is escaped unless it was made here."""

from __future__ import annotations

import html
import json
import unicodedata
from typing import Any

# Controls, direction marks, halves of pairs and code points without a character.
_UNSEEN = frozenset(("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"))


class Html(str):
    """Text that is markup already, made by `element`."""

    __slots__ = ()


def visible(text: Any) -> str:
    r"""Text whose unseen characters are written out: they could turn or cut what stands after.

    >>> visible("north\x00\u202e")
    'north\\u0000\\u202e'
    """
    return "".join(
        f"\\u{ord(sign):04x}" if unicodedata.category(sign) in _UNSEEN and sign != "\n" else sign
        for sign in str(text)
    )


def escaped(child: Any) -> str:
    """A child as markup."""
    return child if isinstance(child, Html) else html.escape(visible(child), quote=True)


def element(name: str, *children: Any, **attributes: Any) -> Html:
    """An element; `class_` and `aria_label` are spelt as Python lets them, None is left out.

    >>> element("p", "1 < 2", class_="small", hidden=None)
    '<p class="small">1 &lt; 2</p>'
    """
    spelt = {key.rstrip("_").replace("_", "-"): value for key, value in attributes.items()}
    shown = "".join(
        f" {key}" if value is True else f' {key}="{escaped(value)}"'
        for key, value in spelt.items()
        if value is not None and value is not False
    )
    return Html(f"<{name}{shown}>{''.join(map(escaped, children))}</{name}>")


def joined(*parts: Html) -> Html:
    """Several pieces of markup, one after the other."""
    return Html("".join(parts))


def json_block(value: Any, identifier: str) -> Html:
    """Data for a script of the page; no text in it can end the element that holds it.

    >>> json_block({"party": "</script>"}, "facts").count("</script>")
    1
    """
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    for sign in "<>&":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return Html(f'<script type="application/json" id="{identifier}">{text}</script>')
