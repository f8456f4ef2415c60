"""Parts of all demos: they announce stages, show commands, run a server and clear a place."""

from __future__ import annotations

import os
import shlex
import shutil
import socket
import subprocess
import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from training.command.errors import UserError

LIST = "made-by-the-demo.txt"  # names what a later demo may replace


def make_room(output: Path, made: Sequence[str], known: Collection[str]) -> None:
    """Remove what earlier demos made in the output, and list what this one makes.

    Raises:
        UserError: if what this one makes is there already, and no demo made it.
    """
    listed = output / LIST
    own: set[str] = set()
    found = set(os.listdir(output)) if output.exists() else set()
    if listed.is_file():
        own = set(known).intersection(listed.read_text(encoding="utf-8").splitlines())
        models = {Path(path).parent for path in made if path.startswith("models/")}
        versions = [version for model in models for version in (output / model).glob("*")]
        found = {str(path.relative_to(output)) for path in versions}
        found |= {path for path in made if os.path.lexists(output / path)}
    if strange := sorted(found - own):
        raise UserError(
            f"{output} holds {strange[0]}, which the demo did not make: expected a new or empty "
            "directory, or one that an earlier demo wrote to"
        )
    for path in (output / name for name in sorted(own)):
        if path.is_symlink() or path.is_file():
            path.unlink()
        elif path.is_dir():
            shutil.rmtree(path)
        else:
            continue
        print(f"Removed {path} of an earlier demo.")
    output.mkdir(parents=True, exist_ok=True)
    listed.write_text("\n".join(sorted(own.union(made))) + "\n", encoding="utf-8")


def stage(number: int, what: str, of: int = 5) -> None:
    """Announce a stage."""
    print(f"\n\033[1m[{number}/{of}] {what}\033[0m", flush=True)


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
