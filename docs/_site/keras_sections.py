"""Sections that Keras's docstrings have and Google's do not, for Griffe."""

import re
from textwrap import dedent
from typing import Any

import griffe


class KerasSections(griffe.Extension):
    """Makes a list of `Call arguments:` and a titled paragraph of `Output:`."""

    def on_class(self, *, cls: griffe.Class, **_: Any) -> None:
        """Rewrite the docstring of a class."""
        if cls.docstring:
            text = cls.docstring.value
            text = re.sub(r"(?m)^Call arguments:$", "Other Parameters: Call arguments:", text)
            cls.docstring.value = re.sub(
                r"(?m)^Output:\n((?:    .*\n?|\n)+)",
                lambda found: f"**Output:**\n\n{dedent(found[1]).strip()}\n\n",
                text,
            )
