"""Formulas of the pages, typeset while the site is built: LaTeX in, MathML out, no script or font.

A block is fenced as `math`; within a line a formula stands between $` and `$. GitHub reads both.
"""

from __future__ import annotations

import re
from typing import Any
from xml.etree import ElementTree

from latex2mathml.converter import convert
from markdown import Extension, Markdown
from markdown.inlinepatterns import InlineProcessor

INLINE = r"\$`([^`]+)`\$"


def mathml(latex: str, display: str = "inline") -> str:
    """Return a formula as MathML, which says its LaTeX to those who copy or hear it."""
    math = convert(latex.strip(), display=display)
    spoken = latex.strip().replace("&", "&amp;").replace("<", "&lt;").replace('"', "&quot;")
    return math.replace("<math ", f'<math aria-label="{spoken}" ', 1)


def block(source: str, *_: Any, **__: Any) -> str:
    """Return a fenced block, for superfences."""
    return f'<div class="formula" tabindex="0">{mathml(source, "block")}</div>'


class Inline(InlineProcessor):
    """Makes MathML of what stands between $` and `$."""

    def handleMatch(self, m: re.Match[str], data: str) -> Any:  # type: ignore[override]
        """Return the element and where it stands."""
        place = self.md.htmlStash.store(mathml(m[1]))
        element = ElementTree.Element("span")
        element.text = place
        return element, m.start(0), m.end(0)


class Formulas(Extension):
    """Registers `Inline`, before code and emphasis are looked for."""

    def extendMarkdown(self, md: Markdown) -> None:
        """Register it."""
        md.inlinePatterns.register(Inline(INLINE, md), "formula", 200)
