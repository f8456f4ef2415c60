"""Translates texts with a served model: python -m serving.client --model NAME [TEXT ...]"""

import argparse
import dataclasses
import importlib.util
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from serving.client.install import install

try:
    from serving.client.drawing import draw_alignment
    from serving.client.errors import ServingError
    from serving.client.options import add_connection, connection_options
    from serving.client.translation import Alignment
    from serving.client.translator import Translator
    from training.command.parser import Parser, file_to_write
except ModuleNotFoundError as error:
    if __name__ != "__main__":
        raise
    raise SystemExit(f"error: {error.name} is not installed: {install('client')}") from None


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="python -m serving.client",
        description="Translates texts with a served model.",
    )
    add = parser.add_argument
    add("texts", nargs="*", metavar="TEXT", help="texts; none reads lines of the standard input")
    add_connection(parser, "texts")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--nbest", action="store_true", help="several translations, with scores")
    what.add_argument("--align", action="store_true", help="draw the attention weights")
    what.add_argument(
        "--score",
        action="store_true",
        help="texts are TEXT<TAB>TRANSLATION: how probable the model finds each token",
    )
    what.add_argument("--split", action="store_true", help="translate sentence by sentence")
    what.add_argument("--metadata", action="store_true", help="show the signatures and stop")
    add(
        "--png",
        type=file_to_write,
        metavar="FILE",
        help="with --align: write a heat map (matplotlib)",
    )
    add("--scores", action="store_true", help="print the score before each translation")
    add("--json", action="store_true", help="print one JSON object a text")
    return parser


def _print_json(**fields: object) -> None:
    print(json.dumps(fields, ensure_ascii=False))


def _warn_truncated(number: int) -> None:
    print(
        f"warning: text {number} is longer than the model reads; its end is not translated",
        file=sys.stderr,
    )


def _write_png(path: Path, alignment: Alignment) -> None:
    from serving.client.heat_map import plot_attention

    plot_attention(
        alignment.source_tokens,
        alignment.target_tokens,
        alignment.attention_weights,
        path=str(path),
    )


def _run(translator: Translator, arguments: argparse.Namespace, texts: list[str]) -> None:
    if arguments.nbest:
        for text, hypotheses in zip(texts, translator.nbest(texts), strict=True):
            if arguments.json:
                each = [dataclasses.asdict(hypothesis) for hypothesis in hypotheses]
                _print_json(source=text, hypotheses=each)
            else:
                print(text)
                for hypothesis in hypotheses:
                    print(f"{hypothesis.score:9.4f}  {hypothesis.text}")
    elif arguments.align:
        for number, alignment in enumerate(translator.align(texts)):
            if arguments.json:
                _print_json(source=texts[number], **dataclasses.asdict(alignment))
            else:
                print(f"{alignment.translation}\n{draw_alignment(alignment)}\n")
            if arguments.png:
                path = arguments.png
                numbered = path.with_stem(f"{path.stem}-{number + 1}") if len(texts) > 1 else path
                _write_png(numbered, alignment)
    elif arguments.score:
        pairs = [text.split("\t") for text in texts]
        if wrong := [text for text, pair in zip(texts, pairs, strict=True) if len(pair) != 2]:
            raise ValueError(f"--score expected TEXT<TAB>TRANSLATION. Received: {wrong[0]}")
        sources, targets = zip(*pairs, strict=True)
        for number, score in enumerate(translator.score(sources, targets)):
            if arguments.json:
                _print_json(
                    source=sources[number],
                    translation=targets[number],
                    **dataclasses.asdict(score),
                )
            else:
                pairs_of = zip(score.tokens, score.log_probs, strict=True)
                tokens = " ".join(f"{token} {log_prob:.3f}" for token, log_prob in pairs_of)
                print(f"{score.score:.4f}\t{tokens}")
            if score.truncated:
                _warn_truncated(number + 1)
    else:
        for number, found in enumerate(translator.translate(texts, arguments.split)):
            if arguments.json:
                _print_json(
                    source=texts[number],
                    translation=found.text,
                    score=found.score,
                    truncated=found.truncated,
                )
            else:
                print(f"{found.score:.4f}\t{found.text}" if arguments.scores else found.text)
            if found.truncated:
                _warn_truncated(number + 1)


def main(argv: Sequence[str] | None = None) -> int:
    """Translate; returns the exit status."""
    parser = _parser()
    arguments = parser.parse_args(argv)
    if arguments.png and not arguments.align:
        parser.error("--png needs --align")
    if arguments.png and importlib.util.find_spec("matplotlib") is None:
        print(f"error: --png needs matplotlib: {install('plot')}", file=sys.stderr)
        return 1
    texts = arguments.texts
    if not texts and not arguments.metadata:
        lines = sys.stdin.buffer.read().decode("utf-8", "replace")
        texts = lines.removesuffix("\n").replace("\r\n", "\n").split("\n") if lines else []
        if not texts:
            print("error: no text: give it as arguments or on standard input", file=sys.stderr)
            return 1
    try:
        with Translator(**connection_options(arguments)) as translator:
            if arguments.wait_ready is not None:
                translator.wait_ready(arguments.wait_ready)
            if arguments.metadata:
                _print_json(**dataclasses.asdict(translator.metadata()))
            else:
                _run(translator, arguments, texts)
    except (ServingError, OSError, ValueError, ImportError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
