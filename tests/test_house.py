"""The arrows of docs/architecture.md: serving → training → keras_attention → Keras."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ABOVE = {
    "keras_attention": {"training", "serving", "benchmarks", "tests"},
    "training": {"serving", "benchmarks", "tests"},
    "serving": {"benchmarks", "tests"},
}


def imports(path):
    """The modules that a file imports, with each name taken from one as a module of its own."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} has a relative import"
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def is_script(path):
    return 'if __name__ == "__main__"' in path.read_text(encoding="utf-8")


def module(path):
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


FILES = [path for package in ABOVE for path in sorted((ROOT / package).rglob("*.py"))]
SCRIPTS = {module(path) for path in FILES if is_script(path)}


@pytest.mark.parametrize("package", ABOVE)
def test_no_package_knows_those_above_it(package):
    for path in (ROOT / package).rglob("*.py"):
        above = {name for name in imports(path) if name.split(".")[0] in ABOVE[package]}
        assert not above, f"{path} imports {above}"


def test_nothing_imports_a_script():
    for path in FILES:
        found = imports(path) & SCRIPTS
        assert not found, f"{path} imports {found}"


def test_every_script_is_a_command():
    from serving.commands import COMMANDS

    scripts = {name for name in SCRIPTS if not name.startswith("keras_attention")}
    scripts = {name.removesuffix(".__main__") for name in scripts}
    assert {name for name, _ in COMMANDS.values()} == scripts - {"serving.commands"}


def test_backends_are_known_in_backend_alone():
    backends = {"tensorflow", "jax", "torch"}
    for path in (ROOT / "keras_attention").rglob("*.py"):
        if "backend" not in path.relative_to(ROOT).parts:
            found = {name for name in imports(path) if name.split(".")[0] in backends}
            assert not found, f"{path} imports {found}"
