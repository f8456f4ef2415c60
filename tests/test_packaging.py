"""The distributions for an index: complete, installable, and out of the way of others' folders."""

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = {"training", "serving"}
NOT_SOURCE = (".git", ".venv*", "*.egg-info", "*cache*", "build", "dist", "site", "demo", "runs")
HEAVY = {"keras", "numpy", "tensorflow", "jax", "torch", "matplotlib"}


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    copy, ignored = tmp_path_factory.mktemp("tree") / "ours", shutil.ignore_patterns(*NOT_SOURCE)

    def ignore(folder, names):
        # training/runs and serving/demo are source, runs/, demo/ and models/ of a user are not.
        found = ignored(folder, names)
        return found | {"models"} if Path(folder) == ROOT else found - {"runs", "demo"}

    return shutil.copytree(ROOT, copy, ignore=ignore)


def build(folder, output, *forms):
    """Build an sdist and a wheel from it, or other forms; return them by their endings."""
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", output, *forms, folder]
    done = subprocess.run(command, cwd=output, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return {path.suffix: path for path in output.iterdir()}


@pytest.fixture(scope="module")
def package(tree, tmp_path_factory):
    return build(tree, tmp_path_factory.mktemp("package"))


@pytest.fixture(scope="module")
def client(tree, tmp_path_factory):
    return build(tree / "packaging/client", tmp_path_factory.mktemp("client"), "--wheel")[".whl"]


def installed(wheel, target):
    """Install into an empty folder, without dependencies; return a way to run Python there."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*pip, "--target", target, wheel], check=True, capture_output=True)

    def run(*words, **environment):
        variables = {**os.environ, "PYTHONPATH": str(target), **environment}
        options = {"env": variables, "capture_output": True, "text": True}
        return subprocess.run([sys.executable, *words], cwd=target.parent, **options)

    return run


@pytest.fixture(scope="module")
def python(package, tmp_path_factory):
    """The package beside a user's own folders called training and serving."""
    home = tmp_path_factory.mktemp("home")
    for name in FOLDERS:
        (home / name).mkdir()
        (home / name / "__init__.py").write_text("raise ImportError('a folder of the user')")
    return installed(package[".whl"], home / "site")


def metadata(wheel):
    (found,) = importlib.metadata.distributions(path=[str(wheel)])
    return found


def test_layers_bring_no_tensorflow_and_the_client_no_keras(package, client):
    for wheel, packages in (package[".whl"], {"keras", "numpy"}), (client, {"grpcio", "protobuf"}):
        plain = [line for line in metadata(wheel).requires if "extra ==" not in line]
        assert {re.match(r"[\w-]+", line)[0] for line in plain} == packages


def files(folder):
    return [path for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc"]


def test_the_sdist_is_the_repository_and_the_wheel_has_the_packages_under_their_names(
    tree, package
):
    with tarfile.open(package[".gz"]) as file:
        held = {name.partition("/")[2] for name in file.getnames()}
    for folder in ("keras_attention", "training", "serving", "tests", "docs", "benchmarks"):
        assert {str(path.relative_to(tree)) for path in files(tree / folder)} <= held
    assert {"CHANGELOG.md", "README.md", "LICENSE", "Makefile"} <= held
    with zipfile.ZipFile(package[".whl"]) as file:
        held = set(file.namelist())
    for folder in ("keras_attention", *FOLDERS):
        prefix = "keras_attention_" if folder in FOLDERS else ""
        assert {f"{prefix}{path.relative_to(tree)}" for path in files(tree / folder)} <= held
    assert not {name for name in held if name.split("/")[0] in FOLDERS}


def test_the_page_of_an_index_has_no_relative_links(package):
    text = metadata(package[".whl"]).metadata.get_payload()
    assert "Attention, seen, the idea in pictures" in text
    assert not re.findall(r"\]\((?!https://)[^)]*\)", text)


def test_modules_of_the_wheel_name_one_another_as_they_are_installed(package):
    with zipfile.ZipFile(package[".whl"]) as file:
        texts = {n: file.read(n).decode() for n in file.namelist() if n.endswith(".py")}
    modules = {re.sub(r"(/__init__)?\.py$", "", name).replace("/", ".") for name in texts}
    whole = "\n".join(texts.values())
    named = set(re.findall(r"^ *(?:from|import) ([\w.]+)", whole, re.MULTILINE))
    named |= set(re.findall(r"python -m ([\w.]*\w)", whole))
    assert not {name for name in named if name.split(".")[0] in FOLDERS}
    ours = {name for name in named if name.startswith("keras_attention_")}
    assert len(ours) > 50
    assert ours <= modules


def test_the_command_lists_the_scripts_and_a_users_folders_do_not_shadow_them(package, python):
    done = python("-m", "keras_attention_training.train", "--help")
    assert done.stdout.startswith("usage: keras-attention train"), done.stderr
    version = metadata(package[".whl"]).version
    for words, status, said in (
        (["--help"], 0, "\n  train "),
        (["phrasebook", "--count", "1", "--seed", "7"], 0, "\t"),
        (["--version"], 0, f"keras-attention {version}\n"),
        (["tain"], 2, "error: tain is no command; did you mean train?\n"),
        (["nothing"], 2, "error: nothing is no command; there are train, "),
    ):
        done = python("site/bin/keras-attention", *words)
        assert (done.returncode, said in done.stdout + done.stderr) == (status, True), done


def test_the_client_alone_works_without_the_package(client, tmp_path):
    python = installed(client, tmp_path / "site")
    code = "import sys, keras_attention_client as c; c.Translator; print(*sys.modules)"
    done = python("-S", "-c", code, PYTHONPATH=os.pathsep.join([str(tmp_path / "site"), *sys.path]))
    loaded = {name.split(".")[0] for name in done.stdout.split()}
    assert "grpc" in loaded, done.stderr
    assert not loaded & (HEAVY | FOLDERS | {"keras_attention"})
    done = python("site/bin/keras-attention-client", "--help")
    assert done.stdout.startswith("usage: keras-attention-client")
    assert "serving." not in done.stdout


def named_distributions(text):
    """Distributions of a name like ours that a text has an installer or an index look for."""
    name = r"(keras[-_.]?(?:recurrent[-_.]?)?attention(?:[-_.][a-z]+)*)"
    found = re.findall(rf"(?:pip|pipx|uv|poetry) [^\n`]*?[ '\"]{name}(?![\w/])", text)
    found += re.findall(rf"(?:pypi\.org|pypi\.python\.org|libraries\.io)/[\w/]*?{name}", text)
    return set(found + re.findall(rf"(?<![\w/]){name}(?:\[|[=~<>!]=)", text))


def test_no_text_names_a_distribution_other_than_ours(tree):
    setups = [(path / "setup.py").read_text() for path in (ROOT, ROOT / "packaging" / "client")]
    ours = {re.search(r"^    name=\"(.+)\",$", text, re.MULTILINE)[1] for text in setups}
    assert len(ours) == 2
    assert "keras-attention" not in ours
    endings = (".py", ".md", ".toml", ".ipynb", ".html", ".js", ".yaml", ".yml", ".in", "file")
    for path in files(tree):
        if path.name.endswith(endings) and path.name != Path(__file__).name:
            other = named_distributions(path.read_text(encoding="utf-8")) - ours
            assert not other, path


def test_versions_are_the_same_in_every_file_that_names_them():
    names = "CITATION.cff", "Makefile", "setup.py", "packaging/client/setup.py", "pyproject.toml"
    cited, makefile, setup, client, project = ((ROOT / name).read_text() for name in names)
    version = re.search(r"^version: (\S+)", cited, re.MULTILINE)[1]
    assert f'version="{version}"' in setup
    pythons = re.findall(r"Language :: Python :: ([\d.]+)", setup)
    workflows = "".join(path.read_text() for path in (ROOT / ".github/workflows").glob("*.yml"))
    assert set(re.findall(r'python(?:-version)?: "([\d.]+)"', workflows)) == set(pythons)
    assert re.findall(r"python(3\.\d+)", makefile.partition(";")[0]) == pythons
    for text in (setup, client):
        assert f'python_requires=">={pythons[0]}"' in text
    tools = tomllib.loads(project)["tool"]
    assert tools["mypy"]["python_version"] == pythons[0]
    assert tools["ruff"]["target-version"] == f"py{pythons[0].replace('.', '')}"
