"""The main job from end to end: python -m serving.demo [TASK], or `make demo`.

`en-fr` and `en-zh` translate the built-in corpus, `digits` and `captcha` are images, `pbcseq` is
histories of patients, `pronounce` is spelling to phones. Where a preset's whole training takes
longer than a demo should, less of it is done. Each stage is a command that can be run alone, is
printed, and is run.
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
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from training.command.errors import UserError
from training.command.native import need
from training.command.options import Parser, folder_to_write, main_guard

LIST = "made-by-the-demo.txt"  # names what a later demo may replace
_MADE = ("run", "evaluation.json", "server.log", "picture.png", "onnx", "images", "visits.csv")
STAGES = {
    "Train the preset {preset}": "training.train --preset {preset} {settings}--output {output}/run",
    "Evaluate on what training never saw": (
        "training.evaluate --run {output}/run {scored}--output {output}/evaluation.json"
    ),
    "Export as a SavedModel for TensorFlow Serving": (
        "serving.export --run {output}/run --output {output}/models/{name}"
    ),
    "Check the export as TensorFlow Serving would load it": (
        "serving.check {output}/models/{name}/1"
    ),
}
SERVE = "serving.server --port={port} --model_name={name} --model_base_path={output}/models/{name}"
_AT = "--target localhost:{port} --model {name} --wait-ready 120 --png {output}/picture.png"
_ONNX = "serving.export --run {output}/run --output {output}/onnx --format onnx --weights int8 "
_SENTENCE = '"She is eating a green apple."'
_TRANSLATE = (
    f'serving.client {_AT} --align {_SENTENCE} "He doesn\'t like apples."',
    f"{_ONNX}--no-tables",
    "serving.page --static {output}/onnx --output {output}/{name}.html --single-file "
    f"--example {_SENTENCE}",
)
_READ = (
    "training.pictures {name} --count 6 --output {output}/images",
    f"serving.read {_AT} --regions {' '.join(f'{{output}}/images/{n:04d}.png' for n in range(6))}",
)


@dataclass(frozen=True)
class Demo:
    """A demo: a training by a preset, and the commands that ask its model.

    `settings` differ from the preset's, `scored` are further arguments of the evaluation. The
    output of the questions must have the `answers`.
    """

    preset: str
    questions: Sequence[str]
    settings: str = ""
    scored: str = ""
    answers: Sequence[str] = ()


DEMOS = {
    # Neither a sentence nor its pairing of words is in the training split.
    "en-fr": Demo(
        "phrasebook-en-fr",
        _TRANSLATE,
        answers=("Elle mange une pomme verte.", "Il n'aime pas les pommes."),
    ),
    "en-zh": Demo(
        "phrasebook-en-zh", _TRANSLATE, answers=("她正在吃一个绿色的苹果。", "他不喜欢苹果。")
    ),
    "digits": Demo("digits", _READ, "--set epochs=5 "),
    "captcha": Demo("captcha", _READ, "--set train_limit=12000 --set epochs=7 ", "--limit 500 "),
    "pbcseq": Demo("pbcseq", (f"serving.predict {_AT} {{output}}/visits.csv",), "", "--bootstrap "),
    "pronounce": Demo(
        "cmudict",
        (
            f"serving.client {_AT} --align attention colonel wednesday quinoa choir worcester",
            _ONNX,
            "serving.client --local {output}/onnx --format sherpa --text --map arpabet-ipa "
            "'The colonel sang in a choir: \"Quinoa!\"'",
        ),
        "--set train_limit=30000 --set epochs=4 --set encoder_layers=1 --set encoder_units=96 "
        "--set decoder_units=128 --set readout_units=128 --set attention_units=96 "
        "--set attention=additive --set dropout=0.1 --set label_smoothing=0.1 --set consistency=0 "
        "--set average_epochs=0 --set warmup_steps=50 --set validation_limit=500 ",
        "--split dev --limit 500 ",
    ),
}


def run(name: str, output: Path) -> None:
    """Train, evaluate, export, check, serve and ask.

    Raises UserError if a stage fails, an answer is not expected, or the output holds other files.
    """
    started, demo = time.perf_counter(), DEMOS[name]
    make_room(name, output)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    values = {**vars(demo), "name": name, "output": shlex.quote(str(output)), "port": port}
    for number, (title, line) in enumerate(STAGES.items(), 1):
        print(f"\n\033[1m[{number}/5] {title.format(**values)}\033[0m")
        command(line.format(**values))
    print("\n\033[1m[5/5] Serve it, and ask over gRPC\033[0m")
    if name == "pbcseq":
        manifest = output / "models" / name / "1" / "assets.extra" / "manifest.json"
        (table,) = json.loads(manifest.read_text(encoding="utf-8"))["examples"]
        (output / "visits.csv").write_text(table, encoding="utf-8")
    serve = SERVE.format(**values)
    print(f"      $ python -m {serve} &")
    with (output / "server.log").open("w", encoding="utf-8") as log:
        words = [sys.executable, "-m", *shlex.split(serve)]
        server = subprocess.Popen(words, stdout=log, stderr=log)
        try:
            said = "".join(command(line.format(**values), asks=True) for line in demo.questions)
        finally:
            server.terminate()
            server.wait()
    for labels in output.glob("images/labels.tsv"):
        print(labels.read_text(encoding="utf-8"))
    if missing := [answer for answer in demo.answers if answer not in said]:
        raise UserError(f"expected the answer {missing[0]}")
    print(f"\nDone in {time.perf_counter() - started:.0f} s. All of it is in {output}/.")


def command(line: str, asks: bool = False) -> str:
    """Print and run a command of this project; return what it says if it asks.

    Raises UserError if it fails.
    """
    print(f"      $ python -m {line}", flush=True)
    result = subprocess.run(
        [sys.executable, "-m", *shlex.split(line)],
        stdout=subprocess.PIPE if asks else None,
        env={**os.environ, "PYTHONIOENCODING": "utf-8"} if asks else None,
        encoding="utf-8",
        check=False,
    )
    if result.returncode:
        raise UserError(f"{line.split()[0]} failed with exit status {result.returncode}")
    print(result.stdout or "", flush=True)
    return result.stdout or ""


def make_room(name: str, output: Path) -> None:
    """Remove what earlier demos made in the output, and list what this one makes.

    Raises UserError if what this one makes is there already, and no demo made it.
    """
    listed = output / LIST
    of_names = {each: {f"models/{each}/1", f"{each}.html"} for each in DEMOS}
    made = {*_MADE, *of_names[name]}
    if listed.is_file():
        known = made.union(*of_names.values())
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
