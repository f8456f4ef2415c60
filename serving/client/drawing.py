"""Attention weights as text for a terminal."""

import unicodedata

from serving.client.translation import Alignment

_SHADES = " ░▒▓█"


def _width(text: str) -> int:
    """Columns of a terminal that `text` takes."""
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1
        for c in text
    )


def _pad(text: str, width: int) -> str:
    return text + " " * (width - _width(text))


def draw_alignment(alignment: Alignment) -> str:
    """A line for each target token, a column for each source token; darker is more weight."""
    widths = [max(2, _width(token)) for token in alignment.source_tokens]
    margin = max((_width(token) for token in alignment.target_tokens), default=0)
    header = (_pad(t, w) for t, w in zip(alignment.source_tokens, widths, strict=True))
    lines = [" " * (margin + 1) + " ".join(header)]
    for token, weights in zip(alignment.target_tokens, alignment.attention_weights, strict=True):
        shades = (_SHADES[min(4, max(0, round(weight * 4)))] for weight in weights)
        cells = (shade * width for shade, width in zip(shades, widths, strict=True))
        lines.append(_pad(token, margin) + " " + " ".join(cells))
    return "\n".join(line.rstrip() for line in lines)
