"""The arrows of docs/architecture.md: serving → training → keras_attention → Keras, no circles.

Sizes of files are held here too.
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


@cache
def imports(path):
    """The modules that a file imports, with each name taken from one as a module of its own.

    Imports inside functions and under TYPE_CHECKING count.
    """
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
    """A file's name in imports; Python finds the modules of benchmarks/ beside its scripts."""
    home = ROOT / "benchmarks" if path.is_relative_to(ROOT / "benchmarks") else ROOT
    parts = path.relative_to(home).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = {package: sorted((ROOT / package).rglob("*.py")) for package in ABOVE}
SCRIPTS = {module(path) for files in FILES.values() for path in files if is_script(path)}


# Old names of commands hand on to the command that has replaced them.
OLD_NAMES = {ROOT / "serving" / "read.py", ROOT / "serving" / "predict.py"}


@pytest.mark.parametrize("package", ABOVE)
def test_no_package_knows_those_above_it_and_nothing_imports_a_script(package):
    for path in FILES[package]:
        above = {name for name in imports(path) if name.split(".")[0] in ABOVE[package]}
        scripts = set() if path in OLD_NAMES else imports(path) & SCRIPTS
        assert not above | scripts, path


# Circles


def files_and_arrows(package):
    """Each file of a package, with those of it that it imports; `__init__.py` hands on names."""
    names = {module(path): path for path in FILES[package]}
    return {
        path: {names[name] for name in imports(path) & names.keys()} - {path}
        for path in FILES[package]
        if path.name != "__init__.py"
    }


def rooms_and_arrows(package):
    """A room is a file or folder at the top of its package."""

    def room(path):
        return path.relative_to(ROOT / package).parts[0]

    rooms = {}
    for path, others in files_and_arrows(package).items():
        rooms.setdefault(room(path), set()).update(room(other) for other in others)
    return {name: others - {name} for name, others in rooms.items()}


@pytest.mark.parametrize("package", ABOVE)
def test_there_are_no_circles(package):
    for graph in (rooms_and_arrows(package), files_and_arrows(package)):
        graphlib.TopologicalSorter(graph).prepare()  # raises CycleError, with the circle


STAGES = ("read", "tokens", "batches")


def test_a_stage_of_the_data_imports_only_earlier_stages():
    for number, stage in enumerate(STAGES):
        for path in (ROOT / "training" / "data" / stage).rglob("*.py"):
            parts = {tuple(name.split(".")[:3]) for name in imports(path)}
            assert not parts & {("training", "data", later) for later in STAGES[number + 1 :]}, path


# Sizes

PACKAGES = ("keras_attention", "training", "serving")


def test_a_file_is_a_subject_that_is_read_at_once():
    paths = [x for package in PACKAGES for x in FILES[package] if x.name != "__init__.py"]
    lengths = {str(path): path.read_text(encoding="utf-8").count("\n") for path in paths}
    assert not {path: lines for path, lines in lengths.items() if lines > 460}
    small = sorted(path for path, lines in lengths.items() if lines < 50)
    assert len(small) <= 20, small


# Names


def test_a_module_that_only_its_package_uses_has_an_underscore():
    """So a reader sees what other packages and users import; a command has none."""
    private, public = set(), set()
    for package in PACKAGES:
        for name, path in ((module(path), path) for path in FILES[package]):
            if any(part.startswith("_") for part in name.split(".")):
                private.add(name)
            elif path.name != "__init__.py" and name not in SCRIPTS:
                public.add(name)
    users = [*(ROOT / "examples").glob("*.py"), *(ROOT / "docs").rglob("*.py")]
    used = set().union(*map(imports, users), imports(ROOT / "keras_attention" / "__init__.py"))
    for package in PACKAGES:
        others = {
            x for x in set().union(*map(imports, FILES[package])) if x.split(".")[0] != package
        }
        assert not others & private
        used |= others
    pages = [*(ROOT / "docs").rglob("*.md"), ROOT / "CHANGELOG.md"]
    text = "\n".join(path.read_text(encoding="utf-8") for path in pages)
    used |= {name for name in public if name in text or name.endswith("_pb2")}
    assert public <= used


def test_every_script_is_a_command():
    from serving import commands

    scripts = {name for name in SCRIPTS if name.startswith(("training.", "serving."))}
    scripts = {name.removesuffix(".__main__") for name in scripts}
    named = {*(name for name, _ in commands.COMMANDS.values()), *commands.OLD_NAMES.values()}
    assert named == scripts - {"serving.commands"}


def test_every_benchmark_is_in_their_readme():
    readme = (ROOT / "benchmarks" / "README.md").read_text(encoding="utf-8")
    for path in (ROOT / "benchmarks").glob("*.py"):
        assert f"`{path.name}`" in readme, path
        assert is_script(path), f"{path} is no script: parts/ is for modules"


def test_a_backend_is_imported_named_and_asked_for_in_backend_alone():
    """By any spelling: `keras.backend.backend`, `from keras import backend`, KERAS_BACKEND."""
    backends = {"tensorflow", "jax", "torch"}
    for path in FILES["keras_attention"]:
        if path.relative_to(ROOT).parts[1] == "backend":
            continue
        nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
        found = {name for name in imports(path) if name.split(".")[0] in backends}
        found |= {node.value for node in nodes if isinstance(node, ast.Constant)} & {
            *backends,
            "KERAS_BACKEND",
        }
        calls = {ast.unparse(node.func) for node in nodes if isinstance(node, ast.Call)}
        found |= {name for name in calls if name.split(".")[-1] == "backend"}
        assert not found, f"{path} knows a backend: {found}"
