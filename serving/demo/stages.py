"""The stages of all demos: each is a command that can be run alone, is printed, and is run."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from serving.client.errors import ServingError
from training.command.errors import UserError

LIST = "made-by-the-demo.txt"  # names what a later demo may replace
_MADE = ("run", "evaluation.json", "server.log")


@dataclass(frozen=True)
class Demo:
    """A demo: a training, and the questions to its model.

    Attributes:
        preset: what is trained, with `settings` as `KEY=VALUE` in which the demo differs from it.
        training, evaluation: titles of the first two stages.
        files: paths, relative to the output, that it makes beside a run, a model and scores.
        ask: asks the served model; given its address, the output and a seed.
        settings: see `preset`.
        arguments: further ones of `training.evaluate`.
        show: prints the scores.
        end: a further stage, with its title; given the output.
    """

    preset: str
    training: str
    evaluation: str
    files: tuple[str, ...]
    ask: Callable[[str, Path, int], None]
    show: Callable[[dict[str, Any]], None]
    settings: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    end: tuple[str, Callable[[Path], None]] | None = None

    def made(self, name: str) -> list[str]:
        """Return the paths, relative to the output, that the demo of a name makes."""
        return [*_MADE, f"models/{name}/1", *self.files]


def run(name: str, demos: Mapping[str, Demo], output: Path, seed: int) -> None:
    """Run the demo of a name: train, evaluate, export, check, serve and ask.

    Args:
        name: of the demo and its model.
        demos: all, by name; what any of them made in the output is removed.
        output: a directory.
        seed: of what the served model is asked.

    Raises:
        UserError: if a stage fails, or the output holds other files.
    """
    demo, started = demos[name], time.perf_counter()
    paths = demo.made(name)
    make_room(output, paths, {path for each in demos for path in demos[each].made(each)})
    run, model, scores = output / "run", output / "models" / name, output / "evaluation.json"
    stages = 6 if demo.end else 5
    stage(1, stages, demo.training)
    settings = [word for setting in demo.settings for word in ("--set", setting)]
    command("training.train", "--preset", demo.preset, *settings, "--output", run)
    stage(2, stages, demo.evaluation)
    command("training.evaluate", "--run", run, *demo.arguments, "--output", scores)
    demo.show(json.loads(scores.read_text(encoding="utf-8")))
    stage(3, stages, "Export as a SavedModel for TensorFlow Serving")
    command("serving.export", "--run", run, "--output", model)
    stage(4, stages, "Check the export as TensorFlow Serving would load it")
    command("serving.check", model / "1")
    stage(5, stages, "Serve it, and ask over gRPC")
    try:
        with server(name, model, output / "server.log") as target:
            demo.ask(target, output, seed)
    except ServingError as error:
        raise UserError(str(error)) from error
    if demo.end:
        stage(6, stages, demo.end[0])
        demo.end[1](output)
    print(f"\nDone in {time.perf_counter() - started:.0f} s. All of it is in {output}/.")


def make_room(output: Path, made: Sequence[str], replaceable: set[str]) -> None:
    """Remove what earlier demos made in the output, and list what this one makes.

    Raises:
        UserError: if what this one makes is there already, and no demo made it.
    """
    listed = output / LIST
    own: set[str] = set()
    present = set(os.listdir(output)) if output.exists() else set()
    if listed.is_file():
        own = replaceable.intersection(listed.read_text(encoding="utf-8").splitlines())
        models = {Path(path).parent for path in made if path.startswith("models/")}
        versions = [version for model in models for version in (output / model).glob("*")]
        present = {str(path.relative_to(output)) for path in versions}
        present |= {path for path in made if os.path.lexists(output / path)}
    if strange := sorted(present - own):
        raise UserError(
            f"{output} holds {strange[0]}, which the demo did not make: expected a new or empty "
            "directory, or one that an earlier demo wrote to"
        )
    for path in (output / name for name in sorted(own) if os.path.lexists(output / name)):
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        print(f"Removed {path} of an earlier demo.")
    output.mkdir(parents=True, exist_ok=True)
    listed.write_text("\n".join(sorted(own.union(made))) + "\n", encoding="utf-8")


def stage(number: int, of: int, title: str) -> None:
    """Announce a stage."""
    print(f"\n\033[1m[{number}/{of}] {title}\033[0m", flush=True)


def command(module: str, *arguments: object) -> None:
    """Print and run a command of this project."""
    words = [str(argument) for argument in arguments]
    print(f"      $ python -m {module} {shlex.join(words)}", flush=True)
    result = subprocess.run([sys.executable, "-m", module, *words], check=False)
    if result.returncode:
        raise UserError(f"{module} failed with exit status {result.returncode}")


@contextmanager
def server(name: str, model: Path, log: Path) -> Iterator[str]:
    """Run the local server; give its address; stop it."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    words = [f"--port={port}", f"--model_name={name}", f"--model_base_path={model.resolve()}"]
    print(f"      $ python -m serving.server {shlex.join(words)} &", flush=True)
    with log.open("w", encoding="utf-8") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "serving.server", *words], stdout=file, stderr=file
        )
    try:
        yield f"localhost:{port}"
    finally:
        process.terminate()
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
        print(f"      The server is stopped; its log is {log}.")
