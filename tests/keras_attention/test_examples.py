"""The examples in the docstrings of public names run as they stand."""

import inspect
import re
import textwrap

import keras
import pytest

import keras_attention

PUBLIC = {name: getattr(keras_attention, name) for name in keras_attention.__all__}
LAYERS = [n for n, t in PUBLIC.items() if inspect.isclass(t) and issubclass(t, keras.Layer)]
FUNCTIONS = ["beam_search", "plot_attention"]
# They are called as `Attention`, whose example is theirs.
PLAIN = {"AdditiveAttention", "MultiplicativeAttention", "LocationAttention"}
PLAIN |= {"LocationSensitiveAttention"}


@pytest.mark.parametrize("name", [name for name in LAYERS + FUNCTIONS if name not in PLAIN])
def test_a_docstrings_example_runs(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = re.search(r"Example:\n\s*```python\n(.*?)```", inspect.getdoc(PUBLIC[name]), re.DOTALL)
    assert found, f"{name} has no example"
    code = textwrap.dedent(found[1])
    names = {"keras": keras, **PUBLIC}
    exec(compile(code, f"the example of {name}", "exec"), names)
    for line in code.splitlines():
        _shapes_are_as_said(line, names)


def _shapes_are_as_said(line, names):
    """Check the shapes in comments such as `a, b = …  # (2, 3), (4,)`."""
    made, _, said = line.partition("  # (")
    if not said:
        return
    targets = [target.strip() for target in made.partition(" = ")[0].split(", ")]
    shapes = re.findall(r"\(([\d, ]+)\)", "(" + said)
    for target, shape in zip(targets, shapes, strict=False):
        expected = tuple(int(size) for size in shape.split(",") if size.strip())
        assert tuple(eval(target, names).shape) == expected, line
