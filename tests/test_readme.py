"""The README's Python examples run as they stand."""

import re
from pathlib import Path

import pytest

README = Path(__file__).parents[1] / "README.md"
SNIPPETS = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
LIBRARY = [snippet for snippet in SNIPPETS if "serving" not in snippet]


def test_the_readme_has_examples():
    assert len(LIBRARY) >= 3


@pytest.mark.parametrize("number", range(len(LIBRARY)))
def test_an_example_runs_as_it_stands(number):
    names = {}
    exec(compile(LIBRARY[number], f"README example {number}", "exec"), names)
    if "found" in names:
        assert names["found"].ids.shape[:2] == (2, 3)
    else:
        assert names["model"].count_params() > 0
