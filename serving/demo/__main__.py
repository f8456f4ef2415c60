"""The main job from end to end, on the built-in corpus: python -m serving.demo, or `make demo`."""

from __future__ import annotations

import json
import textwrap
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import training.command.extras  # noqa: F401
from serving.demo import stages
from serving.demo.stages import LIST, Demo
from training.command.errors import UserError
from training.command.options import main_guard
from training.command.parser import Parser, count

# Neither sentence nor its pairing of words is in the training split.
EXPECTED = {
    "en-fr": {
        "She is eating a green apple.": "Elle mange une pomme verte.",
        "He doesn't like apples.": "Il n'aime pas les pommes.",
    },
    "en-zh": {
        "She is eating a green apple.": "她正在吃一个绿色的苹果。",
        "He doesn't like apples.": "他不喜欢苹果。",
    },
}
__all__ = ["LIST", "main"]
RECORDED = Path(__file__).parents[2] / "docs" / "results"


def main(arguments: list[str] | None = None) -> None:
    """Run the command."""
    parser = Parser(
        prog="python -m serving.demo",
        description="Train, evaluate, export, check, serve and query a small translator.",
        examples=("", "--pair en-zh --output /tmp/demo"),
    )
    parser.add_argument("--pair", default="en-fr", choices=sorted(EXPECTED), help="of languages")
    parser.add_argument("--output", type=Path, metavar="DIR", help="default: demo/PAIR")
    parser.add_argument(
        "--seed", type=count, default=7, metavar="N", help="of the test sentences drawn"
    )
    options = parser.parse_args(arguments)
    demos = {pair: _demo(pair) for pair in EXPECTED}
    stages.run(options.pair, demos, options.output or Path("demo") / options.pair, options.seed)


def _demo(pair: str) -> Demo:
    name = f"phrasebook-{pair}"
    return Demo(
        preset=name,
        training=f"Train on {name}, the built-in corpus",
        evaluation="Evaluate on the test split: word pairings that training never saw",
        files=("alignment.png", f"onnx/{pair}/1", f"{pair}.html"),
        ask=partial(query, pair),
        show=partial(compare, name),
        arguments=("--baseline",),
        end=(
            "Write a page without a server: one file, to send to a friend",
            partial(write_page, pair),
        ),
    )


def compare(name: str, scores: dict[str, Any]) -> None:
    """Print the scores beside what they have to beat."""
    print(f"\n      {'BLEU':>6}  {'AER':>5}")
    print(f"      {scores['bleu']:6.1f}  {scores['aer']:5.3f}  this run")
    print(f"      {scores['baseline_bleu']:6.1f}  {'':5}  the most similar training sentence's")
    recorded = RECORDED / f"{name}-none.json"
    if recorded.is_file():
        none = json.loads(recorded.read_text(encoding="utf-8"))
        print(f"      {none['bleu']:6.1f}  {'':5}  without attention, same size ({recorded.name})")


def query(pair: str, target: str, output: Path, seed: int) -> None:
    """Translate over gRPC; a UserError where a sentence does not come back as expected."""
    from serving.client import Translator, draw_alignment
    from serving.client.heat_map import plot_attention
    from training.data import corpus

    print(f"      $ python -m serving.client --target {target} --model {pair} --align TEXT")
    drawn = corpus.load(f"phrasebook-{pair}", "test", limit=8, seed=seed).pairs()
    expected = {**EXPECTED[pair], **dict(drawn)}
    with Translator(target, pair, timeout=30) as translator:
        translator.wait_ready(timeout=120)
        translations = translator.translate(list(expected))
        alignments = translator.align(list(EXPECTED[pair]))
    print()
    for (source, text), translation in zip(expected.items(), translations, strict=True):
        print(f"      {source}\n        {translation.text}   ({translation.score:.2f})")
        if translation.text != text:
            print(f"        expected: {text}")
    for alignment in alignments:
        print("\n" + textwrap.indent(draw_alignment(alignment), " " * 6))
    first, heat_map = alignments[0], output / "alignment.png"
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)  # of fonts that lack a character
        plot_attention(
            first.source_tokens, first.target_tokens, first.attention_weights, path=heat_map
        )
    for warning in caught:
        print(f"\n      Warning: {warning.message}")
    print(f"\n      The first of them as a heat-map: {heat_map}")
    texts = dict(zip(expected, (translation.text for translation in translations), strict=True))
    if any(texts[source] != text for source, text in EXPECTED[pair].items()):
        raise UserError("a sentence did not come back as expected, see above")


def write_page(pair: str, output: Path) -> None:
    """Write the translator as one HTML file that works by a double click."""
    model, page = output / "onnx" / pair, output / f"{pair}.html"
    form = ("--format", "onnx", "--weights", "int8", "--no-tables")
    stages.command("serving.export", "--run", output / "run", "--output", model, *form)
    first, *_ = EXPECTED[pair]
    words = ("--output", page, "--single-file", "--example", first)
    stages.command("serving.page", "--static", model, *words)
    print(f"      {page} has {page.stat().st_size / 1000:.0f} KB. Open it, or send it to a friend.")


if __name__ == "__main__":
    main_guard(main)
