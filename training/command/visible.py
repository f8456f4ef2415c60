"""Texts of users in messages: invisible characters are shown by their number.

Training, the client and the page show texts so. The client has a copy of this file.
"""

from __future__ import annotations

import re

# Characters that Unicode calls printable, but that show nothing: joiners, vowels, fillers of
# Hangul, the empty Braille pattern, and the selectors of variants.
_SHOW_NOTHING = "\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0"
_SHOW_NOTHING += "\u180b-\u180d\ufe00-\ufe0f\U000e0100-\U000e01ef"
# What messages show by number, except a space. JavaScript reads this pattern.
INVISIBLE = rf"[\p{{C}}\p{{Z}}{_SHOW_NOTHING}]"
_BLANK = re.compile(f"[{_SHOW_NOTHING}]")


def visible(text: str, most: int = 0) -> str:
    """Return a text for a message: invisible characters by number, and at most `most` letters.

    `a<U+200B>b` has a space of no width. 0 allows any length.
    """
    cut = text[:most] + "…" if 0 < most < len(text) else text
    return "".join(
        c if c.isprintable() and not _BLANK.match(c) else f"<U+{ord(c):04X}>" for c in cut
    )
