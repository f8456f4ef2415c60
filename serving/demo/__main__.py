"""Run a task from training to serving: python -m serving.demo [TASK], or `make demo`.

`en-fr` and `en-zh` translate the built-in corpus, `digits` and `captcha` read images, `pbcseq`
predicts from histories of patients, and `pronounce` converts spelling to phones. If a preset's
training takes too long for a demo, the demo trains less. Each stage is a command in `demos.toml`.
The demo prints the command, which you can also run yourself, and runs it.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import socket
import subprocess
import sys
import time
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from training.command.errors import UserError
from training.command.native import need
from training.command.options import Parser, folder_to_write, main_guard

_INSTALLED = str(__package__).rpartition("serving")[0]  # prefix of package names in a wheel
LIST = "made-by-the-demo.txt"  # lists the files that a later demo may replace
_MADE = (
    *("run", "evaluation.json", "server.log", "picture.png", "onnx", "images", "visits.csv"),
    *("models/{name}/1", "{name}.html"),
)

_TABLE = tomllib.loads(Path(__file__).with_name("demos.toml").read_text(encoding="utf-8"))
_USUAL: dict[str, Any] = {"settings": "", "scored": "", "answers": []}
DEMOS = {name: {**_USUAL, **demo} for name, demo in _TABLE["demos"].items()}
STAGES, QUESTIONS, SERVE = _TABLE["stages"], _TABLE["questions"], _TABLE["serve"]


def run(name: str, output: Path) -> None:
    """Train, evaluate, export and check a model, serve it and send requests.

    Raises UserError if a stage fails, an expected answer is missing, or the output has other files.
    """
    started, demo = time.perf_counter(), DEMOS[name]
    make_room(name, output)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    values = {**demo, "name": name, "output": shlex.quote(str(output)), "port": port}
    for number, (title, line) in enumerate(STAGES.items(), 1):
        print(f"\n\033[1m[{number}/5] {title.format(**values)}\033[0m")
        command(line.format(**values))
    print("\n\033[1m[5/5] Serve it, and ask over gRPC\033[0m")
    if name == "pbcseq":
        manifest = output / "models" / name / "1" / "assets.extra" / "manifest.json"
        (table,) = json.loads(manifest.read_text(encoding="utf-8"))["examples"]
        (output / "visits.csv").write_text(table, encoding="utf-8")
    with (output / "server.log").open("w", encoding="utf-8") as log:
        words = words_of(SERVE.format(**values))
        print(f"      $ python {shlex.join(words)} &")
        server = subprocess.Popen([sys.executable, *words], stdout=log, stderr=log)
        try:
            questions = [line.format(**values) for line in QUESTIONS[demo["questions"]]]
            said = "".join(command(line, asks=True) for line in questions)
        finally:
            server.terminate()
            server.wait()
    for labels in output.glob("images/labels.tsv"):
        print(labels.read_text(encoding="utf-8"))
    if missing := [answer for answer in demo["answers"] if answer not in said]:
        raise UserError(f"expected the answer {missing[0]}")
    print(f"\nDone in {time.perf_counter() - started:.0f} s. All of it is in {output}/.")


def words_of(line: str) -> list[str]:
    """Return Python's arguments for a command: -m, the module's installed name, its arguments."""
    return ["-m", *shlex.split(f"{_INSTALLED}{line}")]


def command(line: str, asks: bool = False) -> str:
    """Print and run a command; with `asks`, return its output. Raises UserError if it fails."""
    words = words_of(line)
    print(f"      $ python {shlex.join(words)}", flush=True)
    result = subprocess.run(
        [sys.executable, *words],
        stdout=subprocess.PIPE if asks else None,
        env={**os.environ, "PYTHONIOENCODING": "utf-8"} if asks else None,
        encoding="utf-8",
        check=False,
    )
    if result.returncode:
        raise UserError(f"{words[1]} failed with exit status {result.returncode}")
    print(result.stdout or "", flush=True)
    return result.stdout or ""


def make_room(name: str, output: Path) -> None:
    """Remove the files of earlier demos from the output, and list the files of this demo.

    Raises UserError if a file of this demo exists already, but no demo made it.
    """
    listed = output / LIST
    made = {path.format(name=name) for path in _MADE}
    if listed.is_file():
        known = {path.format(name=each) for each in DEMOS for path in _MADE}
        own = known.intersection(listed.read_text(encoding="utf-8").splitlines())
        versions = (output / "models" / name).glob("*")
        present = {path for path in made if os.path.lexists(output / path)}
        present |= {f"models/{name}/{path.name}" for path in versions}
    else:
        own, present = set(), set(os.listdir(output)) if output.exists() else set()
    if strange := sorted(present - own):
        raise UserError(
            f"{output} holds {strange[0]}, which the demo did not make: expected a new or empty "
            "directory, or one that an earlier demo wrote to"
        )
    for path in (output / name for name in sorted(own) if os.path.lexists(output / name)):
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        print(f"Removed {path} of an earlier demo.")
    output.mkdir(parents=True, exist_ok=True)
    listed.write_text("\n".join(sorted(own | made)) + "\n", encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser = Parser(
        prog="python -m serving.demo",
        description="Train, evaluate, export, check, serve and query a small model.",
        examples=("", "digits --output /tmp/demo"),
    )
    parser.add_argument("task", nargs="?", default="en-fr", choices=DEMOS, help="default: en-fr")
    parser.add_argument("--output", type=folder_to_write, metavar="DIR", help="default: demo/TASK")
    options = parser.parse_args(arguments)
    need("serving")
    run(options.task, options.output or Path("demo") / options.task)


if __name__ == "__main__":
    main_guard(main)
