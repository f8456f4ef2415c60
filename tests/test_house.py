"""The arrows of docs/architecture.md: serving → training → keras_attention → Keras, no circles.

Sizes and names of files are held here too.
"""

import ast
import graphlib
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ABOVE = {
    "keras_attention": {"training", "serving", "lab", "benchmarks", "tests"},
    "training": {"serving", "lab", "benchmarks", "tests"},
    "serving": {"lab", "benchmarks", "tests"},
    "lab": {"serving", "benchmarks", "tests"},
    "benchmarks": {"tests"},
}
PACKAGES, STAGES = ("keras_attention", "training", "serving"), ("read", "tokens", "batches")


def read(path):
    return path.read_text(encoding="utf-8")


@cache
def imports(path):
    """The modules that a file imports, with each name taken from one as a module of its own.

    Imports inside functions and under TYPE_CHECKING count.
    """
    found = set()
    for node in ast.walk(ast.parse(read(path))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def module(path):
    """A file's name in imports; Python finds the modules of benchmarks/ beside its scripts."""
    home = ROOT / "benchmarks" if path.is_relative_to(ROOT / "benchmarks") else ROOT
    parts = path.relative_to(home).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = {package: sorted((ROOT / package).rglob("*.py")) for package in ABOVE}
SCRIPTS = {x: module(x) for xs in FILES.values() for x in xs if '__name__ == "__main__"' in read(x)}
# Old names of commands hand on to the command that has replaced them.
OLD_NAMES = {ROOT / "serving" / "read.py", ROOT / "serving" / "predict.py"}


@pytest.mark.parametrize("package", ABOVE)
def test_no_package_knows_those_above_it_and_nothing_imports_a_script(package):
    for path in FILES[package]:
        above = {name for name in imports(path) if name.split(".")[0] in ABOVE[package]}
        scripts = set() if path in OLD_NAMES else imports(path) & {*SCRIPTS.values()}
        assert not above | scripts, path


@pytest.mark.parametrize("package", ABOVE)
def test_there_are_no_circles_of_files_or_of_what_is_at_the_top_of_a_package(package):
    """But for `__init__.py`, which hands on names."""
    names, tops = {module(path): path for path in FILES[package]}, {}
    files = {
        path: {names[name] for name in imports(path) & names.keys()} - {path}
        for path in FILES[package]
        if path.name != "__init__.py"
    }
    for path, others in files.items():
        top, *of_others = (x.relative_to(ROOT / package).parts[0] for x in (path, *others))
        tops.setdefault(top, set()).update({*of_others} - {top})
    for graph in (tops, files):
        graphlib.TopologicalSorter(graph).prepare()  # raises CycleError, with the circle


def test_a_stage_of_the_data_imports_only_earlier_stages():
    for number, stage in enumerate(STAGES):
        for path in (ROOT / "training" / "data" / stage).rglob("*.py"):
            parts = {tuple(name.split(".")[:3]) for name in imports(path)}
            assert not parts & {("training", "data", later) for later in STAGES[number + 1 :]}, path


def test_a_file_is_a_subject_that_is_read_at_once():
    paths = [x for package in PACKAGES for x in FILES[package] if x.name != "__init__.py"]
    lengths = {str(path): read(path).count("\n") for path in paths}
    assert not {path: lines for path, lines in lengths.items() if lines > 460}
    small = sorted(path for path, lines in lengths.items() if lines < 50)
    assert len(small) <= 20, small


def test_a_module_that_only_its_package_uses_has_an_underscore():
    """So a reader sees what other packages and users import; a command has none."""
    named = {x: module(x) for package in PACKAGES for x in FILES[package]}
    private = {name for name in named.values() if any(x[0] == "_" for x in name.split("."))}
    exempt = {*(name for path, name in named.items() if path.name == "__init__.py")}
    public = {*named.values()} - private - exempt - {*SCRIPTS.values()}
    users = [*(ROOT / "examples").glob("*.py"), *(ROOT / "docs").rglob("*.py")]
    used = set().union(*map(imports, users), imports(ROOT / "keras_attention" / "__init__.py"))
    for package in PACKAGES:
        every = set().union(*map(imports, FILES[package]))
        others = {name for name in every if name.split(".")[0] != package}
        assert not others & private
        used |= others
    text = "\n".join(map(read, [*(ROOT / "docs").rglob("*.md"), ROOT / "CHANGELOG.md"]))
    used |= {name for name in public if name in text or name.endswith("_pb2")}
    assert public <= used


def test_every_script_is_a_command_or_a_benchmark_of_the_readme():
    from serving import commands

    ours = {x for x in SCRIPTS.values() if x.startswith(("training.", "serving."))}
    named = {*(name for name, _ in commands.COMMANDS.values()), *commands.OLD_NAMES.values()}
    assert named == {x.removesuffix(".__main__") for x in ours} - {"serving.commands"}
    readme = read(ROOT / "benchmarks" / "README.md")
    for path in (ROOT / "benchmarks").glob("*.py"):
        assert f"`{path.name}`" in readme, path
        assert path in SCRIPTS, f"{path} is no script: parts/ is for modules"


def test_a_backend_is_imported_named_and_asked_for_in_backend_alone():
    """By any spelling: `keras.backend.backend`, `from keras import backend`, KERAS_BACKEND."""
    backends = {"tensorflow", "jax", "torch"}
    for path in FILES["keras_attention"]:
        if path.relative_to(ROOT).parts[1] == "backend":
            continue
        nodes = list(ast.walk(ast.parse(read(path))))
        found = {name for name in imports(path) if name.split(".")[0] in backends}
        constants = {node.value for node in nodes if isinstance(node, ast.Constant)}
        found |= constants & {*backends, "KERAS_BACKEND"}
        calls = {ast.unparse(node.func) for node in nodes if isinstance(node, ast.Call)}
        found |= {name for name in calls if name.split(".")[-1] == "backend"}
        assert not found, f"{path} knows a backend: {found}"
