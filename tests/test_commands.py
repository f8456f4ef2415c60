"""Rules for every command: help, one line for a mistake, nothing written, the backend."""

import argparse
import importlib
import os
import re
import shlex
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from serving.commands import COMMANDS
from training.command.interrupt import print_interrupt
from training.command.options import main_guard

ROOT = Path(__file__).parents[1]
NOTES = ("note: old names", "note: the new command")
RUN = ROOT / "tests" / "fixtures" / "old_run" / "run"
TRAIN, PREPARE, EVALUATE = "training.train", "training.prepare", "training.evaluate"
EXPORT, CHECK, SERVER = "serving.export", "serving.check", "serving.server"
BATCH, PAGE, TRANSLATE = "serving.batch", "serving.page", "serving.client._translate"
CLIENT = {TRANSLATE, "serving.client._read", "serving.client._predict"}
MODULES = sorted({module for module, _ in COMMANDS.values()} - {"serving.client"} | CLIENT)
SCORED = ["--run", "RUN", "--data", "phrasebook-en-fr", "--limit", "3"]
RUN_TO, BFLOAT16 = ["--run", "RUN", "--output", "NEW"], ["--precision", "bfloat16"]
CMUDICT, COVERING = ["--preset", "cmudict"], ["--coverage-penalty", "5", "--beam-width", "1"]
CORPUS = ["--corpus", "NEW"]
OWN = ["--data", "tsv:TABLE", "--output", "NEW"]
ASKED = ["--model", "m", "--target", "127.0.0.1:1", "--retries", "0"]  # where nobody listens
# Mistakes of a user, by command: a wrong value, a file that is missing, a place that cannot
# be written. RUN is a trained run, NEW a place for results, FILE a file, TABLE one of pairs, FULL a
# user's directory.
MISTAKES = [
    (TRAIN, ["--preset", "nothing", "--output", "NEW"], "There is no preset 'nothing'"),
    (TRAIN, ["--data", "tsv:/no.tsv", "--output", "NEW"], "Cannot read /no.tsv"),
    (TRAIN, [*CMUDICT, "--set", "attention=what"], "needs one of none, additive,"),
    (TRAIN, [*CMUDICT, "--dev", "tsv:/no.tsv"], "Cannot read /no.tsv"),
    (TRAIN, [*CMUDICT, "--dev", "nothing"], "Unknown corpus 'nothing'"),
    (PREPARE, [*CMUDICT, *CORPUS, "--tokenizers", "FULL"], "is missing"),
    (EVALUATE, ["--run", "RUN", "--data", "nothing"], "Unknown corpus 'nothing'"),
    (TRAIN, ["--preset", "digits", "--data", "tsv:FILE"], "Unknown images 'tsv:"),
    (TRAIN, ["--preset", "/no.toml"], "/no.toml: No such file or directory"),
    (TRAIN, [*OWN, "--set", "attentoin=dot"], "Did you mean attention"),
    (TRAIN, ["--data", "tsv:TABLE", "--output", "FULL"], "README.md was not written by"),
    (PREPARE, ["--data", "tsv:TABLE", "--output", "FULL"], "README.md was not written by"),
    (CHECK, ["MODEL"], "python -m serving.check MODEL/1"),
    (TRAIN, ["--preset", "cmudict", "--output", "FILE/r"], "cannot write to FILE/r"),
    (TRAIN, ["--resume", "--output", "NEW"], "There is no run to continue"),
    (TRAIN, ["--init", "NEW", "--output", "NEW"], "NEW is not a trained run. Give --init"),
    (PREPARE, ["--output", "NEW"], "Give --preset NAME or --data DATA"),
    (PREPARE, ["--preset", "digits", "--output", "NEW"], "needs texts, but source is image"),
    (PREPARE, [*CMUDICT, "--corpus", "FILE/c"], "cannot write to FILE/c"),
    (PREPARE, [*CMUDICT, *CORPUS, "--output", "NEW"], "--corpus makes no run. Remove --o"),
    (PREPARE, [*CMUDICT, "--tokenizers", "RUN"], "--tokenizers works only with --corpus"),
    (TRAIN, [*CMUDICT, "--data", "prepared:NEW"], "NEW is not a prepared corpus"),
    ("training.train_arrays", ["NEW"], "There is no run to continue"),
    (EVALUATE, ["--run", "NEW"], "no config.toml. Make a run: python -m training.train"),
    (EVALUATE, ["--run", "RUNS"], "has no config.toml. Did you mean RUN?"),
    (EVALUATE, ["--run", "RUN", "--length-penalty", "-1"], "at least 0, but it is -1"),
    (EVALUATE, ["--run", "RUN", "--output", "NEW/a.json"], "there is no directory"),
    (EVALUATE, ["--run", "RUN", "--hypotheses", "/dev/null"], "null: it is no file"),
    (EVALUATE, ["--run", "RUN", "--limit", "0"], "of at least 1, but it is 0"),
    (EVALUATE, [*SCORED, *COVERING], "needs a --beam-width of at least 2"),
    (EVALUATE, [*SCORED, "--split", "what"], "no split 'what'"),
    ("training.translate", ["--run", "RUN", "RUN/best.weights.h5"], "line 3 is not UTF-8 text"),
    ("training.translate", ["--run", "RUN", "/no.txt"], "No such file or directory: /no.txt"),
    ("training.phrasebook", ["--pair", "en-xx"], "en-xx"),
    ("training.pictures", ["digits", "--output", "FULL"], "a new or empty directory"),
    (EXPORT, ["--run", "NEW", "--output", "NEW"], "is not a run"),
    (EXPORT, [*RUN_TO, "--nbest", "9"], "--nbest needs at most"),
    (EXPORT, ["--run", "RUN", "--output", "FILE/m"], "FILE is no directory"),
    (EXPORT, [*RUN_TO, *COVERING, "--nbest", "1"], "--beam-width of at least 2"),
    (EXPORT, [*RUN_TO, "--format", "onnx", *BFLOAT16], "--precision float32, but it is bf"),
    (EXPORT, [*RUN_TO, "--format", "onnx", *COVERING], "penalty 0.0, but it is"),
    (EXPORT, [*RUN_TO, "--run", "RUN", *BFLOAT16], "bfloat16 needs one --run"),
    (CHECK, ["NEW"], "NEW is not a version"),
    (CHECK, ["ONNX", "--run", "NEW"], "NEW is not a run"),
    (CHECK, ["RUN", "--run", "RUN"], "--run works only for an "),
    (CHECK, ["ONNX", "--against", "a:1"], "--against works only for a SavedModel"),
    (SERVER, ["--model_base_path=/no", "--port=99999"], "needs a port"),
    (SERVER, ["--port=0"], "--model_base_path and --model_config_file"),
    (SERVER, ["--max_request_bytes=0"], "needs a whole number of 1 to"),
    (SERVER, ["--enable_batching=yes"], "needs true or false, but it is"),
    (SERVER, ["--rest_api_cors_origins=pages.example"], "needs https://HOST or *, but"),
    (TRANSLATE, [*ASKED, "--timeout", "x", "text"], "but it is x"),
    (TRANSLATE, [*ASKED, "--tls-roots", "/no.pem", "text"], "/no.pem"),
    (TRANSLATE, [*ASKED, "--align", "--png", "NEW/a.png", "a"], "there is no directory"),
    (TRANSLATE, [*ASKED, "--align", "--png", "FULL", "a"], "it is a directory"),
    (TRANSLATE, [*ASKED, "text"], "127.0.0.1:1"),
    (TRANSLATE, [*ASKED, "--png", "a.png", "a"], "--png needs --align"),
    (TRANSLATE, [*ASKED, "--format", "tsv", "a"], "--format needs --local"),
    (TRANSLATE, [*ASKED, "--local", "MODEL", "a"], "not allowed with argument --model"),
    (TRANSLATE, ["--local", "MODEL", "text"], "is a SavedModel"),
    (TRANSLATE, ["--local", "MODEL", "--version", "7", "a"], "choose a version on a server"),
    (TRANSLATE, ["--local", "MODEL", "--label", "b", "a"], "choose a version on a server"),
    ("serving.client._read", [*ASKED, "/no.png"], "/no.png"),
    ("serving.client._read", [*ASKED, "FILE", "--png", "a.png"], "--png needs --regions"),
    ("serving.client._predict", [*ASKED, "/no.csv"], "/no.csv"),
    (BATCH, ["--model", "/no", "--input", "FILE", "--output", "NEW"], "no exported mo"),
    (BATCH, ["--model", "MODEL", "--input", "/no/*", "--output", "NEW"], "no file match"),
    (BATCH, ["--model", "MODEL", "--input", "FILE", "--output", "FILE/o"], "FILE/o"),
    (PAGE, [], "--model --static is required"),
    (PAGE, ["--model", "m", "--static", "MODEL"], "not allowed with argument --model"),
    (PAGE, ["--model", "m", "--single-file"], "expected --static DIR with --output"),
    (PAGE, ["--model", "m", "--manifest", "/no.json"], "/no.json"),
    (PAGE, ["--model", "m", "--manifest", "FILE"], "is not JSON"),
    (PAGE, ["--model", "m", "--timeout", "0"], "needs seconds"),
    ("serving.demo", ["--output", "FULL"], "which the demo did not make"),
    *((name, ["--what"], "error: ") for name in MODULES),
]


def filled(text, folder):
    places = {"RUNS": RUN.parent, "RUN": RUN, "NEW": folder / "new"}
    for name in ("FILE", "FULL", "MODEL", "ONNX", "TABLE"):
        places[name] = folder / "kept" / name.lower()
    for name, place in places.items():
        text = text.replace(name, str(place))
    return text


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A user's directory with files in it."""
    for name in ("file", "full/README.md", "model/1/saved_model.pb", "onnx/manifest.json"):
        path = tmp_path / "kept" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("hers")
    (tmp_path / "kept" / "table").write_text("a\tb\n" * 9)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def everything(folder):
    """All directories, and all files with their content and time."""
    return {
        path: (path.stat().st_mtime_ns, path.read_bytes()) if path.is_file() else None
        for path in folder.rglob("*")
    }


def module_of(name):
    path = ROOT.joinpath(*name.split("."))
    return importlib.import_module(f"{name}.__main__" if path.is_dir() else name)


def fails(name, words, capsys):
    """Run a command that fails; return what it says, which is one line."""
    with pytest.raises(SystemExit) as ended:
        main_guard(lambda: sys.exit(module_of(name).main(words)))
    assert ended.value.code not in (None, 0)
    err = capsys.readouterr().err
    # The kept run has an old name of a key, and one command is an old name.
    line = "".join(x for x in err.splitlines(keepends=True) if not x.startswith(NOTES))
    if isinstance(ended.value.code, str):  # which Python prints, and exits with status 1
        line += ended.value.code
    assert line.strip().count("\n") == 0
    return line


@cache
def parser_of(name):
    """The parser of a command, which is asked for help."""
    parsers, parse = [], argparse.ArgumentParser.parse_args

    def kept(self, *arguments):
        parsers.append(self)
        return parse(self, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(argparse.ArgumentParser, "parse_args", kept)
        with pytest.raises(SystemExit, match=r"^0$"):
            module_of(name).main(["--help"])
    return parsers[0]


@pytest.mark.parametrize("name", MODULES)
def test_help_names_each_default_and_ends_in_two_examples_that_the_command_takes(
    name, monkeypatch, tmp_path
):
    parser = parser_of(name)
    monkeypatch.chdir(tmp_path)
    shown = "".join(parser.format_help().split())  # lines break at hyphens, too
    for action in parser._actions:
        assert action.help, action.dest
        if default := said_of(action.default):
            assert f"default:{default}" in shown, action.dest
    lines = parser.format_help().partition("\nexamples:\n")[2].splitlines()
    assert len(lines) == 2
    for line in lines:
        assert line.startswith(f"  {parser.prog}")
        words = shlex.split(re.split(" [<>#|]", line.removeprefix(f"  {parser.prog}"))[0])
        if "--help" not in words:
            parser.parse_args(words)


def said_of(default):
    """How help names a default; nothing of what is off, and of several values."""
    if isinstance(default, list | bool | None) or default in (argparse.SUPPRESS, ""):
        return "True" if default is True else ""
    return f"{default:g}" if isinstance(default, float) else str(default)


HEAVY = {"tensorflow", "keras", "jax", "torch", "numpy", "matplotlib", "sentencepiece"}
HEAVY |= {"sacrebleu", "rich", "grpc", "google.protobuf"}


def test_help_and_mistakes_import_nothing_that_takes_long(folder):
    """One process asks all for help, and makes all mistakes; imports are looked at after each."""
    code = (
        "import contextlib, importlib, io, sys\n"
        "from pathlib import Path\n"
        "from training.command.options import main_guard\n"
        "def check(heavy, module, words):\n"
        "    with contextlib.ExitStack() as quiet:\n"
        "        quiet.enter_context(contextlib.suppress(SystemExit))\n"
        "        for redirect in (contextlib.redirect_stdout, contextlib.redirect_stderr):\n"
        "            quiet.enter_context(redirect(io.StringIO()))\n"
        "        main_guard(lambda: sys.exit(importlib.import_module(module).main(words)))\n"
        "    found = heavy & set(sys.modules)\n"
        "    assert not found, (module, words, found)\n"
        "for module in sys.argv[2:]:\n"
        f"    check({HEAVY}, module, ['--help'])\n"
        "check({'keras'}, 'training.presets.__main__', [])\n"
        "from tests.test_commands import MISTAKES, filled, module_of\n"
        "for name, words, _ in MISTAKES:\n"
        "    words = [filled(word, Path(sys.argv[1])) for word in words]\n"
        "    check({'keras', 'tensorflow'}, module_of(name).__name__, words)\n"
    )
    words = [sys.executable, "-c", code, folder, *(module_of(name).__name__ for name in MODULES)]
    environment = {**os.environ, "PYTHONPATH": ROOT}
    done = subprocess.run(words, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.parametrize(("name", "words", "said"), MISTAKES)
def test_a_mistake_is_one_line_and_leaves_everything_as_it_was(name, words, said, folder, capsys):
    before = everything(folder), everything(RUN)
    found = fails(name, [filled(word, folder) for word in words], capsys)
    assert filled(said, folder) in found
    assert (everything(folder), everything(RUN)) == before


def test_an_import_that_ctrl_c_ends_is_one_line(capsys):
    """A native module raises an ImportError where it is interrupted."""
    error = ImportError("initialization failed")
    error.__cause__ = KeyboardInterrupt()
    with pytest.raises(SystemExit) as ended:
        print_interrupt(ImportError, error, None)
    assert (ended.value.code, capsys.readouterr().err) == (130, "\nInterrupted.\n")
