"""Lexicons for speech software: the phones of words, from the user's list or from a model."""

from __future__ import annotations

import argparse
import io
import math
import os
import sys
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from serving.api._arguments import shown
from serving.api._printing import print_error, print_json
from serving.portable.read import _voices as voices
from serving.portable.read._pronouncer import BATCH, Pronouncer, Pronunciation
from training.command.visible import visible

SHERPA = "sherpa"
_MOST_NAMED = 5  # words of a line
_UNSTRESSED = (
    "Warning: AH and ER without marks of stress are written ə and ɚ, as 89 % and 82 % of CMUdict's "
    "are; a model of cmudict-stress has the marks"
)


def write_lexicon(arguments: argparse.Namespace) -> int:
    """Print the lexicon that a command requests; return 1 if a voice lacks phones, else 0.

    With `strict`, return 1 also if any word is missing. Raises OSError; or ValueError for a file of
    another form, or for a model that is no pronouncer.
    """
    model = Pronouncer(arguments.local, arguments.tag)
    own, spelled_out = (_table(file, model) for file in (arguments.lexicon, arguments.spell_out))
    melo, kokoro = (arguments.voice == name for name in ("melo", voices.KOKORO))
    voice = voices.Phones(arguments.map, arguments.phones, tones=melo, single=kokoro)
    missing = dict[str, str]()  # words, with the reasons
    words = _read_words(arguments, {**own, **spelled_out}, model.lower, missing)
    answers, asked = dict[str, list[Pronunciation]](), dict[str, str]()
    names = dict[str, None]()
    wholes = dict[str, list[str]]()  # words with hyphens that are read part by part
    spoken = dict[str, list[str]]()  # the words that others are spelled out in
    tables = {**spelled_out, **own}

    def find(written: str) -> tuple[int, str] | None:
        """Return the number of a word's form that a table has, and the table's key."""
        forms = voices.spellings(written) if tables else []
        numbers = dict[str, int]()
        for number, form in enumerate([*forms, *map(model.lower, forms)]):
            numbers.setdefault(form, number)
        keys = [(number, voices.plain(form)) for form, number in numbers.items()]
        keys += [(number, voices.joined(key)) for number, key in keys]
        return next(((number, key) for number, key in keys if key in tables), None)

    for word, written in words.items():
        forms, found = voices.spellings(written), find(written)
        # Software other than sherpa-onnx removes a text's quotes before it looks words up.
        name = word
        if arguments.text and arguments.format != SHERPA:
            name = forms[found[0] % len(forms)] if found else forms[-1]
            name = name.replace("’", "'") if arguments.format == "mfa" else name
        names[name] = None
        spelled = model.spelled(written)
        if found and found[1] in own:
            answers[name] = [Pronunciation(row) for row in own[found[1]]]
        elif found:
            said = " ".join(spelled_out[found[1]][0])
            spoken[name] = voices.all_words(said, own, model.lower)
            for part in spoken[name]:
                if (there := find(part)) and there[1] in own:
                    answers[part] = [Pronunciation(row) for row in own[there[1]]]
                else:
                    asked[part] = model.spelled(part)
        elif arguments.text and "-" in word and model.unreadable(spelled):
            wholes[name] = [part for part in word.split("-") if part in words]
        else:
            asked[name] = spelled
    answers |= _ask(model, asked, arguments, missing)
    for name, parts in [*spoken.items(), *wholes.items()]:
        if lacking_parts := [part for part in parts if part not in answers]:
            missing.setdefault(name, missing.get(lacking_parts[0], "a part is missing"))
        elif parts:
            answers[name] = [_joined([answers[part][0] for part in parts])]
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")
    lacking: dict[str, list[str]] = {}
    plain, several = False, list[str]()
    for word in filter(answers.__contains__, names):
        lines: dict[str, Pronunciation] = {}
        for pronunciation in answers[word]:
            plain |= not {"AH", "ER"}.isdisjoint(pronunciation.phones)
            tokens, without = voice.write(pronunciation.phones)
            for phone in dict.fromkeys(without):
                lacking.setdefault(phone, []).append(word)
            if not without:
                _add_line(lines, " ".join(tokens), pronunciation)
        several += [word] if len(lines) > 1 else []
        _print_lines(arguments, word, lines)
    if several and arguments.format == SHERPA:
        count = len(several)
        have = "1 word of your list has" if count == 1 else f"{count:,} words of your list have"
        _warn(f"{have} several pronunciations; sherpa-onnx takes the first", several)
    if plain and voices.ARPABET_IPA in arguments.map:
        print(_UNSTRESSED, file=sys.stderr)
    for phone, those in lacking.items():
        reason = f"the voice has no token for {phone}"
        print_error(f"{reason}: {_several(those)}")
        missing = {**dict.fromkeys(those, reason), **missing}
    if arguments.missing:
        text = "".join(f"{word}\t{reason}\n" for word, reason in missing.items())
        arguments.missing.write_text(text, encoding="utf-8")
    return int(bool(lacking or (arguments.strict and missing)))


def _table(file: str | None, model: Pronouncer) -> dict[str, list[list[str]]]:
    """Return the rows of a file by word, in the form that words are searched by."""
    rows = voices.read_columns(Path(file)) if file else {}
    table = {voices.plain(word): each for word, each in rows.items()}
    small = {model.lower(word): each for word, each in table.items()}
    return {**{voices.joined(word): each for word, each in small.items()}, **small, **table}


def _joined(parts: Sequence[Pronunciation]) -> Pronunciation:
    """Return the pronunciation of a word from those of its parts."""
    sources = {part.source for part in parts}
    return Pronunciation(
        [phone for part in parts for phone in part.phones],
        min(part.probability for part in parts),
        sum(part.log_prob for part in parts),
        "lexicon" if sources == {"lexicon"} else "model",
    )


def _read_words(
    arguments: argparse.Namespace,
    listed: Collection[str],
    lower: Callable[[str], str],
    missing: dict[str, str],
) -> dict[str, str]:
    """Return the words of a text or a list as they are looked up, each once, and as they are read.

    sherpa-onnx looks up IŞIK as "işik"; a model of Turkish reads "ışık".
    """
    text = "\n".join(arguments.texts)
    if not arguments.texts:
        text = voices.decoded(sys.stdin.buffer.read(), "the standard input")
    sherpa, voice = arguments.format == SHERPA, arguments.voice or "vits"
    if arguments.text and sherpa:
        words = voices.words_of(text, voice, listed)
        return _some({x: lower(y) if lower(y) != y.lower() else x for x, y in words.items()})
    if arguments.text:
        return _some({word: word for word in voices.spoken_words(text, listed, lower)})
    words = _some({word: word for line in text.split("\n") if (word := voices.visible(line))})
    if phrase := next((word for word in words if len(word.split()) > 1), None):
        raise ValueError(
            "--format needs one word a line. For a text, add --words-from-text. A line is "
            f"{shown(phrase)}"
        )
    if sherpa:
        words = {voices.small(word, voice): voices.small(word, voice) for word in words}
        apart = [word for word in words if voices.is_apart(word, voice)]
        _warn("sherpa-onnx looks up no such words, or each letter as a word", apart, missing)
    return words


def _some(words: dict[str, str]) -> dict[str, str]:
    """Return the words. Raises ValueError if there is none."""
    if not words:
        raise ValueError("no word: give words as arguments or on standard input")
    return words


def _ask(
    model: Pronouncer, asked: dict[str, str], arguments: argparse.Namespace, missing: dict[str, str]
) -> dict[str, list[Pronunciation]]:
    """Return the model's pronunciations of the words in `asked`, which has each word's spelling.

    Words that the model cannot read are added to `missing`, with a warning.
    """
    reasons = {word: model.unreadable(spelling) for word, spelling in asked.items()}
    for reason in dict.fromkeys(filter(None, reasons.values())):
        words = [word for word in reasons if reasons[word] == reason]
        _warn(f"left out, {reason}", words, missing)
    readable = {word: asked[word] for word, reason in reasons.items() if not reason}
    lowered = [word for word, spelling in readable.items() if model.lowered(spelling)]
    _warn("read in small letters, the only ones that training saw", lowered)
    spelt, spoken = list(dict.fromkeys(readable.values())), dict[str, list[Pronunciation]]()
    threads = arguments.threads or os.cpu_count() or 1
    answers = model.pronounce(spelt, arguments.nbest or 1, threads)
    for done, (spelling, pronunciations) in enumerate(answers, 1):
        spoken[spelling] = pronunciations
        if sys.stderr.isatty() and (done % BATCH == 0 or done == len(spelt)):
            end = "\n" if done == len(spelt) else ""
            print(f"\r{done:,} of {len(spelt):,} words", end=end, file=sys.stderr, flush=True)
    silent = [word for word, spelling in readable.items() if not spoken[spelling]]
    _warn("left out, the model says nothing", silent, missing)
    few = [w for w in spelt if spoken[w] and model.is_cut(w, spoken[w][0].phones)]
    _warn("fewer phones for their letters than nearly all words of training have", few)
    return {word: spoken[spelling] for word, spelling in readable.items()}


def _several(words: Sequence[str]) -> str:
    """Return the first of some words, and how many more there are."""
    more = f" and {len(words) - _MOST_NAMED:,} more" if len(words) > _MOST_NAMED else ""
    return f"{visible(', '.join(words[:_MOST_NAMED]))}{more}"


def _warn(reason: str, words: Sequence[str], missing: dict[str, str] | None = None) -> None:
    """Warn of some words, and add them to `missing`."""
    if missing is not None:
        because = dict.fromkeys(words, reason.removeprefix("left out, "))
        missing |= {**because, **missing}
    if words:
        print(f"Warning: {reason}: {_several(words)}", file=sys.stderr)


def _add_line(lines: dict[str, Pronunciation], phones: str, pronunciation: Pronunciation) -> None:
    """Add a pronunciation to the lines of a word; probabilities of equal phones add up."""
    first = lines.setdefault(phones, pronunciation)
    if first is not pronunciation and pronunciation.source == "model":
        greater, less = sorted((first.log_prob, pronunciation.log_prob), reverse=True)
        total = greater + math.log1p(math.exp(less - greater))
        lines[phones] = first._replace(log_prob=total)


def _print_lines(arguments: argparse.Namespace, word: str, lines: dict[str, Pronunciation]) -> None:
    """Print the lines of a word; sherpa-onnx reads the first alone."""
    best = max((line.log_prob for line in lines.values()), default=0.0)
    rows = list(lines.items())
    if arguments.nbest and arguments.format in ("mfa", "kaldi"):
        rows.sort(key=lambda row: -row[1].log_prob)
    for phones, (_, probability, log_prob, source) in rows:
        # relative to the most probable, as in MFA's dictionaries and Kaldi's lexiconp.txt
        relative = f"{max(0.01, math.exp(log_prob - best)):.2f}"
        match arguments.format:
            case "json":
                rounded = round(probability, 4)
                print_json(word=word, phones=phones, probability=rounded, source=source)
            case "mfa" if arguments.nbest:
                print(f"{word}\t{relative}\t{phones}")
            case "kaldi" if arguments.nbest:
                print(f"{word} {relative} {phones}")
            case "mfa" | "tsv":
                print(f"{word}\t{phones}")
            case "kaldi":
                print(f"{word} {phones}")
            case _:  # sherpa-onnx takes a line that begins with "#" for a comment
                print(f"{' ' * word.startswith('#')}{word} {phones}")
                break
