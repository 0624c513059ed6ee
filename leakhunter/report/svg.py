"""SVG as text: elements whose attributes and words are escaped, whatever they were made of."""

from __future__ import annotations

import html

from leakhunter.report.text import printable


def element(tag: str, *children: str, **attributes: object) -> str:
    """An element around ``children``, which are SVG already. ``class_`` is ``class``, ``text_anchor`` ``text-anchor``.

    There are no ``style`` attributes: the page's content security policy forbids them.
    """
    pairs = (f' {name.rstrip("_").replace("_", "-")}="{_value(value)}"' for name, value in attributes.items())
    return f"<{tag}{''.join(pairs)}>{''.join(children)}</{tag}>"


def words(text: str) -> str:
    """Text as the content of an element."""
    return html.escape(printable(text))


def picture(*children: str, label: str, width: float, height: float, **attributes: object) -> str:
    """A whole drawing, which a screen reader reads as ``label``."""
    box = f"0 0 {width:g} {height:g}"
    return element("svg", *children, role="img", aria_label=label, viewBox=box, **attributes)


def shortened(text: str, most: int) -> str:
    """At most ``most`` characters, the middle left out."""
    if len(text) <= most:
        return text
    head = (most - 1) // 2
    return f"{text[:head]}…{text[len(text) - (most - 1 - head) :]}"


def _value(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else html.escape(printable(str(value)))
