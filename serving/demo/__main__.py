"""The main job from end to end, on the built-in corpus: python -m serving.demo, or `make demo`.

Every stage is a command that can be run alone; this script prints it, runs it, and goes on.
"""

from __future__ import annotations

import json
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import training.command.extras  # noqa: F401
from serving.client.errors import ServingError
from serving.demo import stages
from serving.demo.stages import LIST, command, make_room, server
from training.command.errors import UserError
from training.command.options import main_guard
from training.command.parser import Parser, count

if TYPE_CHECKING:
    from serving.client import Alignment, Translation

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
STAGES = 6
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
    output = options.output or Path("demo") / options.pair
    started = time.perf_counter()
    known = {path for pair in EXPECTED for path in made(pair)}
    make_room(output, made(options.pair), known)
    run, model = output / "run", output / "models" / options.pair

    name = f"phrasebook-{options.pair}"
    stage(1, f"Train on {name}, the built-in corpus")
    command("training.train", "--preset", name, "--output", run)
    stage(2, "Evaluate on the test split: word pairings that training never saw")
    scores = output / "evaluation.json"
    command("training.evaluate", "--run", run, "--baseline", "--output", scores)
    compare(json.loads(scores.read_text(encoding="utf-8")), name)
    stage(3, "Export as a SavedModel for TensorFlow Serving")
    command("serving.export", "--run", run, "--output", model)
    stage(4, "Check the export as TensorFlow Serving would load it")
    command("serving.check", model / "1")
    stage(5, "Serve it, and translate over gRPC")
    with server(options.pair, model, output / "server.log") as target:
        words = f"--target {target} --model {options.pair} --align TEXT"
        print(f"      $ python -m serving.client {words}")
        right = query(target, options.pair, options.seed, output / "alignment.png")
    stage(6, "Write a page without a server: one file, to send to a friend")
    write_page(run, output, options.pair)
    print(f"\nDone in {time.perf_counter() - started:.0f} s. All of it is in {output}/.")
    if not right:
        raise UserError("a sentence did not come back as expected, see above")


def made(pair: str) -> list[str]:
    """Return the paths, relative to the output, that a demo of this pair makes."""
    return [
        *("run", f"models/{pair}/1", "evaluation.json", "server.log", "alignment.png"),
        *(f"onnx/{pair}/1", f"{pair}.html"),
    ]


def stage(number: int, what: str) -> None:
    """Announce a stage."""
    stages.stage(number, what, STAGES)


def compare(scores: dict, name: str) -> None:
    """Print the scores beside what they have to beat."""
    print(f"\n      {'BLEU':>6}  {'AER':>5}")
    print(f"      {scores['bleu']:6.1f}  {scores['aer']:5.3f}  this run")
    print(f"      {scores['baseline_bleu']:6.1f}  {'':5}  the most similar training sentence's")
    recorded = RECORDED / f"{name}-none.json"
    if recorded.is_file():
        none = json.loads(recorded.read_text(encoding="utf-8"))
        print(f"      {none['bleu']:6.1f}  {'':5}  without attention, same size ({recorded.name})")


def query(target: str, pair: str, seed: int, heat_map: Path) -> bool:
    """Translate over gRPC; return whether what is expected came back."""
    from serving.client import Translator, draw_alignment
    from training.data import corpus

    drawn = corpus.load(f"phrasebook-{pair}", "test", limit=8, seed=seed).pairs()
    wanted = {**EXPECTED[pair], **dict(drawn)}
    try:
        with Translator(target, pair, timeout=30) as translator:
            translator.wait_ready(timeout=120)
            translations = translator.translate(list(wanted))
            alignments = translator.align(list(EXPECTED[pair]))
    except ServingError as error:
        raise UserError(str(error)) from error
    print_table(list(wanted.items()), translations)
    for alignment in alignments:
        print(f"\n{indent(draw_alignment(alignment))}")
    write_heat_map(alignments[0], heat_map)
    print(f"\n      The first of them as a heat-map: {heat_map}")
    found = dict(zip(wanted, (translation.text for translation in translations), strict=True))
    return all(found[source] == target for source, target in EXPECTED[pair].items())


def write_page(run: Path, output: Path, pair: str) -> None:
    """Write the translator as one HTML file that works by a double click."""
    model, page = output / "onnx" / pair, output / f"{pair}.html"
    form = ("--format", "onnx", "--weights", "int8", "--no-tables")
    command("serving.export", "--run", run, "--output", model, *form)
    first, *_ = EXPECTED[pair]
    written = ("--output", page, "--single-file", "--example", first)
    command("serving.page", "--static", model, *written)
    print(f"      {page} has {page.stat().st_size / 1000:.0f} KB. Open it, or send it to a friend.")


def print_table(wanted: list[tuple[str, str]], translations: list[Translation]) -> None:
    """Print sources, translations and scores, and what was expected where it differs."""
    print()
    for (source, target), translation in zip(wanted, translations, strict=True):
        print(f"      {source}\n        {translation.text}   ({translation.score:.2f})")
        if translation.text != target:
            print(f"        expected: {target}")


def write_heat_map(alignment: Alignment, path: Path) -> None:
    """Draw the attention weights to a PNG."""
    import training.command.startup  # noqa: F401

    from keras_attention.plot import plot_attention

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        plot_attention(
            alignment.source_tokens, alignment.target_tokens, alignment.attention_weights, path=path
        )
    for warning in caught:
        print(f"\n      Warning: {warning.message}")


def indent(text: str) -> str:
    """Move lines to the right."""
    return "\n".join(f"      {line}" for line in text.splitlines())


if __name__ == "__main__":
    main_guard(main)
