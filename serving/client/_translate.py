"""Translates texts: python -m serving.client translate --model NAME [TEXT ...]"""

from __future__ import annotations

import argparse
import codecs
import importlib.util
import itertools
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from serving.api._printing import not_installed, print_error, print_json, printable
from serving.client._options import Parser, ended, file_to_write, numbered, opened_model, size

_OLD_NAMES = {
    "--score": "--score-pairs",
    "--scores": "--show-scores",
    "--text": "--words-from-text",
    "--map": "--rename-phones",
    "--phones": "--voice-tokens",
    "--missing": "--write-skipped",
}
_FORMATS = ("sherpa", "kaldi", "mfa", "json", "tsv")
_VOICES = ("vits", "kokoro", "melo", "matcha")
_Row = tuple[Any, dict[str, Any], str]  # an answer, its JSON fields, its printed lines

if TYPE_CHECKING:
    from serving.client._clients import Translator


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return the exit status."""
    parser = _parser()
    words = list(sys.argv[1:] if argv is None else argv)
    end = words.index("--") if "--" in words else len(words)
    arguments = parser.parse_args([*map(_new_name, words[:end]), *words[end:]])
    if mistake := _lexicon_mistake(arguments):
        parser.error(mistake)
    if arguments.png and not arguments.align:
        parser.error("--png needs --align")
    if arguments.png and importlib.util.find_spec("matplotlib") is None:
        print_error(f"--png: {not_installed('matplotlib', 'plot')}")
        return 1
    return ended(_ask, arguments)


def _new_name(word: str) -> str:
    """Return an argument with the present name of an option that had another; print a note."""
    name, equals, value = word.partition("=")
    if name not in _OLD_NAMES:
        return word
    print(f"note: {name} is now {_OLD_NAMES[name]}", file=sys.stderr)
    return f"{_OLD_NAMES[name]}{equals}{value}"


def _parser() -> argparse.ArgumentParser:
    examples = (
        '--model en-fr "She is eating a green apple."',
        "--local models/mine --format sherpa --words-from-text --voice-tokens tokens.txt < a.txt",
    )
    text = "Translates texts with a served model, or in this process with --local."
    png = "with --align: write a heat map (matplotlib)"
    parser = Parser("python -m serving.client translate", text, examples, "texts", "a text", png)
    add = parser.add_argument
    add("texts", nargs="*", metavar="TEXT", help="texts; default: lines of standard input")
    signature = parser.add_mutually_exclusive_group().add_argument
    signature("--nbest", type=size, metavar="N", help="the N best translations, with scores")
    signature("--align", action="store_true", help="draw the attention weights")
    text = "score your own translations: each text is TEXT<TAB>TRANSLATION"
    signature("--score-pairs", dest="score", action="store_true", help=text)
    text = "translate sentence by sentence; line by line if the model's sources are not sentences"
    signature("--split", action="store_true", help=text)
    signature("--metadata", action="store_true", help="show the signatures and stop")
    text = "print the score before each translation"
    add("--show-scores", dest="scores", action="store_true", help=text)
    parser.set_defaults(threads=None)
    add = parser.add_argument_group(
        "lexicons of speech software, by a pronouncer with --local (on all cores, or --threads)"
    ).add_argument
    text = "write a line for each word, for sherpa-onnx, Kaldi or MFA, or as JSON or TSV"
    add("--format", choices=_FORMATS, help=text)
    text = "the input is a text: look up each of its words once"
    add("--words-from-text", dest="text", action="store_true", help=text)
    add("--lexicon", metavar="FILE", help="WORD<TAB>PHONES: these words keep their phones")
    text = "WORD<TAB>WORDS: numbers and abbreviations, which are read as these words"
    add("--spell-out", dest="spell_out", metavar="FILE", help=text)
    text = "language of the words, of a model that learned several: cy for words as [cy] ysgol"
    add("--tag", metavar="TAG", default="", help=text)
    text = "PHONE<TAB>PHONES: phones to rename; or arpabet-ipa, kokoro; may be given several times"
    add("--rename-phones", dest="map", metavar="FILE", action="append", default=[], help=text)
    text = "tokens.txt of a voice: splits phones into its tokens"
    add("--voice-tokens", dest="phones", metavar="FILE", help=text)
    text = "with --format sherpa: the kind of voice that reads the file; default: vits"
    add("--voice", choices=_VOICES, help=text)
    text = "write the words that are left out, or not looked up, with the reasons: WORD<TAB>REASON"
    add("--write-skipped", dest="missing", metavar="FILE", type=file_to_write, help=text)
    add("--strict", action="store_true", help="exit status 1 if a word is missing")
    return parser


def _option(name: str) -> str:
    """Return the option of an attribute of the arguments."""
    return _OLD_NAMES.get(f"--{name}", f"--{name.replace('_', '-')}")


def _lexicon_mistake(arguments: argparse.Namespace) -> str:
    """Return the reason why options contradict one another, "" if they do not."""
    if not arguments.format:
        names = (
            "text",
            "lexicon",
            "spell_out",
            "tag",
            "map",
            "phones",
            "voice",
            "missing",
            "strict",
        )
        wrong = next((name for name in names if getattr(arguments, name)), None)
        return f"{_option(wrong)} needs --format" if wrong else ""
    others = "model", "align", "score", "split", "metadata", "png", "scores", "json"
    if wrong := next((name for name in others if getattr(arguments, name)), None):
        return (
            "--format needs --local" if wrong == "model" else f"--format takes no {_option(wrong)}"
        )
    if arguments.voice and arguments.format != "sherpa":
        return "--voice needs --format sherpa"
    if arguments.nbest and arguments.format == "sherpa":
        return "--format sherpa takes no --nbest: sherpa-onnx reads one pronunciation of a word"
    return ""


def _ask(arguments: argparse.Namespace) -> int:
    """Translate the texts and print the answers; return the exit status."""
    if arguments.format:
        from serving.portable.read._lexicon import write_lexicon

        return write_lexicon(arguments)
    rows = next((_ROWS[name] for name in _ROWS if getattr(arguments, name)), _translations)
    given = arguments.texts or arguments.metadata
    several, number = iter([arguments.texts]) if given else _lines(), 0
    first = next(several, None)
    if first is None:
        raise ValueError("no text: give it as arguments or on standard input")
    if arguments.png:  # the number of texts decides the names of the pictures
        first += itertools.chain.from_iterable(several)
    with opened_model(arguments, "Translator") as translator:
        if arguments.metadata:
            print_json(**asdict(translator.metadata()))
            return 0
        for texts in itertools.chain([first], several):
            for answer, fields, lines in rows(translator, arguments, texts):
                number += 1
                if arguments.json:
                    print_json(**fields)
                else:
                    print(lines)
                _warn(number, answer)
            sys.stdout.flush()
    return 0


def _lines() -> Iterator[list[str]]:
    """Yield the lines of the standard input as they arrive, in lists that arrived together."""
    rest, start, numbers = b"", codecs.BOM_UTF8, itertools.count(1)
    stream: Any = sys.stdin.buffer
    while data := stream.read1(2**20):
        *lines, rest = (rest + data).removeprefix(start).split(b"\n")
        if lines:
            start = b""
            yield [_text(line, next(numbers)) for line in lines]
    if rest := rest.removeprefix(start):
        yield [_text(rest, next(numbers))]


def _text(line: bytes, number: int) -> str:
    """Return a line as text; print a warning if it is not UTF-8."""
    text = line.decode("utf-8", "replace")
    if text.encode() != line:
        print(
            f"Warning: text {number} is not UTF-8: \ufffd replaces the wrong bytes", file=sys.stderr
        )
    return text.removesuffix("\r")


def _translations(translator: Translator, arguments: Any, texts: list[str]) -> Iterator[_Row]:
    for text, answer in zip(texts, translator.translate(texts, arguments.split), strict=True):
        fields = {"source": text, "translation": answer.text, **asdict(answer)}
        del fields["text"]
        for name in ("words", "word_probabilities", "unknown"):
            if not fields[name]:
                del fields[name]
        # A text with line ends keeps them when it is printed.
        lines = answer.text.split("\n") if "\n" in text else [answer.text]
        shown = "\n".join(map(printable, lines))
        yield answer, fields, f"{answer.score:.4f}\t{shown}" if arguments.scores else shown


def _nbest(translator: Translator, arguments: Any, texts: list[str]) -> Iterator[_Row]:
    for text, hypotheses in zip(texts, translator.nbest(texts), strict=True):
        if len(hypotheses) < arguments.nbest:
            raise ValueError(
                f"This model returns at most {len(hypotheses)} translations. Use --nbest "
                f"{len(hypotheses)}, or export it again with --nbest {arguments.nbest}"
            )
        best, *_ = hypotheses = hypotheses[: arguments.nbest]
        told = {x: y for x in ("truncated", "unknown") if (y := getattr(best, x))}
        found = [{"text": each.text, "score": each.score} for each in hypotheses]
        lines = [f"{each.score:9.4f}  {printable(each.text)}" for each in hypotheses]
        fields = {"source": text, "hypotheses": found, **told}
        yield best, fields, "\n".join([printable(text), *lines])


def _alignments(translator: Translator, arguments: Any, texts: list[str]) -> Iterator[_Row]:
    from serving.client._drawing import draw_alignment, plot_attention

    for number, (text, answer) in enumerate(zip(texts, translator.align(texts), strict=True)):
        if arguments.png and answer.target_tokens:
            tokens = answer.source_tokens, answer.target_tokens
            plot_attention(
                *([printable(token) for token in side] for side in tokens),
                answer.attention_weights,
                path=numbered(arguments.png, number, len(texts)),
            )
        lines = f"{printable(answer.translation)}\n{draw_alignment(answer)}\n"
        yield answer, {"source": text, **asdict(answer)}, lines


def _scores(translator: Translator, arguments: Any, texts: list[str]) -> Iterator[_Row]:
    pairs = [text.split("\t") for text in texts]
    if wrong := [text for text, pair in zip(texts, pairs, strict=True) if len(pair) != 2]:
        raise ValueError(f"--score-pairs needs TEXT<TAB>TRANSLATION, but a line is: {wrong[0]}")
    answers = translator.score(*zip(*pairs, strict=True))
    for (source, target), answer in zip(pairs, answers, strict=True):
        tokens = zip(map(printable, answer.tokens), answer.log_probs, strict=True)
        numbers = " ".join(f"{token} {log_prob:.3f}" for token, log_prob in tokens)
        fields = {"source": source, "translation": target, **asdict(answer)}
        yield answer, fields, f"{answer.score:.4f}\t{numbers}"


_ROWS = {"nbest": _nbest, "align": _alignments, "score": _scores}


def _warn(number: int, answer: Any) -> None:
    """Print a warning if a text was truncated or has letters unknown to the model."""
    from serving.api._results import unseen

    if answer.truncated:
        reason = "is longer than the model reads; its end is not translated"
        print(f"Warning: text {number} {reason}", file=sys.stderr)
    if answer.unknown:
        print(f"Warning: text {number}: {unseen(answer.unknown)}", file=sys.stderr)
