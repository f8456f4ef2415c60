"""A translator that people work with: how good, how fast, and how many words they type.

    python benchmarks/interactive.py --run runs/NAME --model models/NAME/1

On the dev split, with the export's signatures in this process:

- With the first half of each reference's characters as prefix, BLEU of what follows, beside that
  of what the plain translation has from there on.
- Milliseconds of `complete` beside those of `translate`, one sentence at a time, in turn.
- Word stroke ratio (Barrachina et al. 2009): a user types the first word that is wrong, and the
  rest follows, until the reference stands; words typed for each word of the references. Beside it,
  the words to be changed in the plain translation (edit distance).
"""

from __future__ import annotations

import training.command.startup  # noqa: F401

import argparse
import json
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf

from serving.savedmodel.session import ModelSession
from serving.savedmodel.status import StatusError
from training.data.splits import load_split
from training.runs.run import load_run
from training.score.metrics import bleu, bleu_tokenization, edit_distance

BATCH = 50


class Model:
    """An export in this process."""

    def __init__(self, session: ModelSession) -> None:
        self._session = session

    def ask(self, signature: str, **inputs: Sequence[str]) -> list[str]:
        """Return the translations of a batch."""
        protos = {
            name: tf.make_tensor_proto([text.encode() for text in texts], tf.string)
            for name, texts in inputs.items()
        }
        found = self._session.run(self._session.signatures[signature], protos)
        return [text.decode() for text in found["translation"]]

    def translate(self, texts: Sequence[str]) -> list[str]:
        """Return the plain translations."""
        batches = (texts[start : start + BATCH] for start in range(0, len(texts), BATCH))
        return [text for batch in batches for text in self.ask("translate", text=batch)]

    def complete(self, texts: Sequence[str], prefixes: Sequence[str]) -> list[str | None]:
        """Return translations that begin with the prefixes; None where no tokens spell one."""
        found: list[str | None] = []
        for start in range(0, len(texts), BATCH):
            rows = slice(start, start + BATCH)
            found += self._completed(texts[rows], prefixes[rows])
        return found

    def _completed(self, texts: Sequence[str], prefixes: Sequence[str]) -> list[str | None]:
        try:
            return [*self.ask("complete", text=texts, prefix=prefixes)]
        except StatusError:
            if len(texts) == 1:
                return [None]
            pairs = zip(texts, prefixes, strict=True)
            return [x for text, prefix in pairs for x in self._completed([text], [prefix])]


def halves(
    model: Model, sources: list[str], references: list[str], metric: str = "bleu"
) -> dict[str, Any]:
    """Compare what follows half of a reference with what follows in a plain translation.

    `metric` is the run's: BLEU cuts texts as it does.
    """
    prefixes = [text[: len(text) // 2] for text in references]
    plain, found = model.translate(sources), model.complete(sources, prefixes)
    rows = [row for row, text in enumerate(found) if text is not None]

    def rest(texts: Sequence[str | None]) -> list[str]:
        return [(texts[row] or "")[len(prefixes[row]) :] for row in rows]

    def scored(texts: Sequence[str], wanted: Sequence[str]) -> float | str:
        tokenize = bleu_tokenization(metric)
        return bleu(texts, [[text] for text in wanted], tokenize=tokenize)["bleu"]

    wanted = rest(references)
    return {
        "sentences": len(rows),
        "cannot_be_spelled": len(found) - len(rows),
        "bleu_of_the_rest": scored(rest(found), wanted),
        "bleu_of_the_rest_plain": scored(rest(plain), wanted),
        "bleu_plain": scored(plain, references),
    }


def latencies(model: Model, sources: list[str], references: list[str]) -> dict[str, float]:
    """Time sentences one by one, with half of the reference and without a prefix, in turn."""
    times: dict[str, list[float]] = {"translate": [], "complete": [], "complete_empty": []}
    for source, reference in zip(sources, references, strict=True):
        half = reference[: len(reference) // 2]
        if model.complete([source], [half]) == [None]:
            continue
        asked = {"complete": half, "complete_empty": ""}
        for name in times:
            prefix = {"prefix": [asked[name]]} if name in asked else {}
            started = time.perf_counter()
            model.ask(name.partition("_")[0], text=[source], **prefix)
            times[name].append(1000 * (time.perf_counter() - started))
    medians = {name: statistics.median(each) for name, each in times.items()}
    ratio = medians["complete"] / medians["translate"]
    return {**{f"{k}_ms": round(x, 2) for k, x in medians.items()}, "ratio": round(ratio, 3)}


def strokes(model: Model, sources: list[str], references: list[str]) -> dict[str, float]:
    """Simulate users who correct the first wrong word until the reference stands."""
    wanted = [text.split() for text in references]
    plain = model.translate(sources)
    found: list[str | None] = [*plain]
    typed, open_ = [0] * len(sources), [*range(len(sources))]
    while open_:
        prefixes = {}
        for row in open_:
            said, words = (found[row] or "").split(), wanted[row]
            if said == words:
                continue
            right = next(
                (n for n, (a, b) in enumerate(zip(said, words, strict=False)) if a != b),
                min(len(said), len(words)),
            )
            typed[row] += 1  # a word, or the end where the translation goes on
            if right < len(words):
                prefixes[row] = " ".join(words[: right + 1]) + " "
        open_ = list(prefixes)
        answers = model.complete([sources[row] for row in open_], [*prefixes.values()])
        for row, answer in zip(open_, answers, strict=True):
            found[row] = answer
            if answer is None:  # the user types the rest
                typed[row] += len(wanted[row]) - len(prefixes[row].split())
                found[row] = references[row]
    total = sum(map(len, wanted))
    changed = sum(edit_distance(a.split(), b) for a, b in zip(plain, wanted, strict=True))
    return {"word_stroke_ratio": sum(typed) / total, "post_editing_ratio": changed / total}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--run", type=Path, required=True, help="whose dev split is read")
    parser.add_argument("--model", type=Path, required=True, help="its export: models/NAME/1")
    parser.add_argument("--limit", type=int, default=2000, help="sentences; default: 2000")
    parser.add_argument("--timed", type=int, default=200, help="sentences timed; default: 200")
    options = parser.parse_args(arguments)
    config = load_run(options.run).config
    split = load_split(config, "dev", limit=options.limit)[0]
    sources, references = list(split.sources), [each[0] for each in split.references]
    with ModelSession(options.model) as session:
        model, timed = Model(session), slice(options.timed)
        print(json.dumps(halves(model, sources, references, config.metric)), flush=True)
        print(json.dumps(latencies(model, sources[timed], references[timed])), flush=True)
        print(json.dumps(strokes(model, sources, references)), flush=True)


if __name__ == "__main__":
    main()
