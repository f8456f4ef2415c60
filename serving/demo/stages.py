"""The stages of all demos: each is a command that can be run alone, is printed, and is run."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from serving.client.errors import ServingError
from training.command.errors import UserError

LIST = "made-by-the-demo.txt"  # names what a later demo may replace
_MADE = ("run", "evaluation.json", "server.log", "picture.png", "onnx", "images", "visits.csv")
_OF_A_NAME = r"models/[\w-]+/1|[\w-]+\.html"  # made by the demo of a name
_START_SECONDS = 120


@dataclass(frozen=True)
class Demo:
    """A demo: a training, and the questions to its model.

    Attributes:
        preset: the preset of the training, with `settings` in which the demo differs from it.
        about: the training's data, in words.
        scores: the scores that are shown.
        ask: asks the served model; given its name and address, the output and a seed.
        settings: `KEY=VALUE` each.
        arguments: further ones of `training.evaluate`.
    """

    preset: str
    about: str
    scores: tuple[str, ...]
    ask: Callable[[str, str, Path, int], None]
    settings: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()


def run(name: str, demo: Demo, output: Path, seed: int) -> None:
    """Train, evaluate, export, check, serve and ask.

    Raises:
        UserError: if a stage fails, or the output holds other files.
    """
    started = time.perf_counter()
    make_room(output, [*_MADE, f"{name}.html"], f"models/{name}")
    run, model, scores = output / "run", output / "models" / name, output / "evaluation.json"
    stage(1, f"Train on {demo.about}")
    settings = [word for setting in demo.settings for word in ("--set", setting)]
    command("training.train", "--preset", demo.preset, *settings, "--output", run)
    stage(2, "Evaluate on what training never saw")
    command("training.evaluate", "--run", run, *demo.arguments, "--output", scores)
    values = json.loads(scores.read_text(encoding="utf-8"))
    print(
        "\n" + "\n".join(f"      {key:>24}  {values[key]}" for key in demo.scores if key in values)
    )
    stage(3, "Export as a SavedModel for TensorFlow Serving")
    command("serving.export", "--run", run, "--output", model)
    stage(4, "Check the export as TensorFlow Serving would load it")
    command("serving.check", model / "1")
    stage(5, "Serve it, and ask over gRPC")
    try:
        with server(name, model, output / "server.log") as target:
            demo.ask(name, target, output, seed)
    except ServingError as error:
        raise UserError(str(error)) from error
    print(f"\nDone in {time.perf_counter() - started:.0f} s. All of it is in {output}/.")


def make_room(output: Path, names: Sequence[str], model: str) -> None:
    """Remove what earlier demos made in the output, and list what this one makes.

    Raises:
        UserError: if what this one makes is there already, and no demo made it.
    """
    listed = output / LIST
    made = [*names, f"{model}/1"]
    present = set(os.listdir(output)) if output.exists() else set()
    own: set[str] = set()
    if listed.is_file():
        lines = listed.read_text(encoding="utf-8").splitlines()
        own = {path for path in lines if path in made or re.fullmatch(_OF_A_NAME, path)}
        versions = (str(path.relative_to(output)) for path in (output / model).glob("*"))
        present = {path for path in names if os.path.lexists(output / path)} | {*versions}
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


def stage(number: int, title: str) -> None:
    """Announce a stage."""
    print(f"\n\033[1m[{number}/5] {title}\033[0m", flush=True)


def command(module: str, *arguments: object) -> None:
    """Print and run a command of this project."""
    words = [str(argument) for argument in arguments]
    print(f"      $ python -m {module} {shlex.join(words)}", flush=True)
    result = subprocess.run([sys.executable, "-m", module, *words], check=False)
    if result.returncode:
        raise UserError(f"{module} failed with exit status {result.returncode}")


@contextmanager
def server(name: str, model: Path, log: Path) -> Iterator[str]:
    """Run the local server; give its address when it answers; stop it."""
    import grpc

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    words = [f"--port={port}", f"--model_name={name}", f"--model_base_path={model.resolve()}"]
    print(f"      $ python -m serving.server {shlex.join(words)} &", flush=True)
    target = f"localhost:{port}"
    with log.open("w", encoding="utf-8") as file, grpc.insecure_channel(target) as channel:
        command = [sys.executable, "-m", "serving.server", *words]
        process = subprocess.Popen(command, stdout=file, stderr=file)
        try:
            grpc.channel_ready_future(channel).result(_START_SECONDS)
            yield target
        except grpc.FutureTimeoutError:
            raise UserError(f"the server did not start: {log} says why") from None
        finally:
            process.terminate()
            process.wait()
            print(f"      The server is stopped; its log is {log}.")
