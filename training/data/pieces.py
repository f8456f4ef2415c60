"""SentencePiece models without TensorFlow, segmentations drawn anew, the files of tokenizers."""

from __future__ import annotations

import base64
import bisect
import functools
import io
import itertools
import json
import math
import random
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from training.command.errors import ConfigError
from training.data.store import END_ID, PAD_ID, START_ID, UNK_ID, Sequences

SENTENCEPIECE = "sentencepiece"
# SentencePiece cuts the names of its own pieces out of texts: no text has these, with a space.
_NAMES = {"pad": "<pad >", "unk": "<unk >", "bos": "<s >", "eos": "</s >"}
_UNREAD = "▅"  # SentencePiece's mark of an unknown piece: it skips lines with this mark
FEW_WORDS = 1000  # with more, words share parts, which a unigram model learns


def write_state(path: str | Path, state: dict[str, Any]) -> None:
    """Write a tokenizer's file, which `tokenizers.load_tokenizer` reads."""
    content = json.dumps(state, ensure_ascii=False, indent=0)
    Path(path).write_text(content + "\n", encoding="utf-8")


def model_state(model: bytes) -> dict[str, Any]:
    """Return the content of a tokenizer's file for a serialised model."""
    return {"kind": SENTENCEPIECE, "model": base64.b64encode(model).decode("ascii")}


def model_of(state: Mapping[str, Any]) -> bytes:
    """Return the serialised model of a tokenizer's file."""
    return base64.b64decode(state["model"])


def train_sentencepiece(
    lines: Iterable[str],
    vocab_size: int,
    *,
    model_type: str | None = None,
    normalization: str = "nmt_nfkc",
) -> bytes:
    """Return a serialised SentencePiece model.

    Args:
        lines: the texts to learn from, which can be read several times.
        vocab_size: most pieces; where the text has more characters, their number, which is printed.
        model_type: "unigram" or "bpe". None takes BPE for texts of few words, which have room:
            a unigram model counts in how many different words a piece stands, so that it cuts
            "plus", in half of all lines, into letters. BPE counts how often.
        normalization: the rule by which characters are unified.

    Raises:
        ValueError: none can be trained from this text.
    """
    if vocab_size <= END_ID + 1:
        raise ValueError(f"vocab_size expected more than {END_ID + 1}. Received: {vocab_size}")
    if model_type is None:
        model_type, units = "bpe", set[str]()
        for line in lines:
            units.update(line.split(), line)
            if len(units) > min(FEW_WORDS, vocab_size):
                model_type = "unigram"
                break
    try:
        return _trained(lines, vocab_size, model_type, normalization)
    except (RuntimeError, OSError) as error:
        characters = re.search(r"smaller than required_chars. \d+ vs (\d+)", str(error))
        if characters is None:
            reason = str(error).splitlines()[-1]
            raise ValueError(f"sentencepiece with vocab_size={vocab_size}: {reason}") from None
    print_growth(vocab_size, grown := int(characters[1]))
    return train_sentencepiece(lines, grown, model_type=model_type, normalization=normalization)


def _trained(lines: Iterable[str], vocab_size: int, model_type: str, normalization: str) -> bytes:
    import sentencepiece

    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=(line.replace(_UNREAD, "") for line in lines),
        model_writer=model,
        vocab_size=vocab_size,
        hard_vocab_limit=False,
        model_type=model_type,
        normalization_rule_name=normalization,
        character_coverage=1.0,
        pad_id=PAD_ID,
        unk_id=UNK_ID,
        bos_id=START_ID,
        eos_id=END_ID,
        **{f"{name}_piece": piece for name, piece in _NAMES.items()},
        max_sentence_length=100_000,
        minloglevel=2,
    )
    return model.getvalue()


def print_growth(vocab_size: int, size: int) -> None:
    """Say that a vocabulary is larger than it should be."""
    print(
        f"A vocabulary has {size:,} tokens, not {vocab_size:,}: its text has so many characters.",
        file=sys.stderr,
    )


_WORD = re.compile("▁?[^▁]+|▁")
_UNIGRAM = 1  # in the model's trainer_spec
_WORDS = 1 << 16  # whose pieces are remembered


class SubwordSampler:
    """Draws a segmentation of each sentence, in place of its most probable one.

    A segmentation is drawn with its probability in a unigram model to the power of `alpha`
    (subword regularisation, Kudo 2018, arXiv 1804.10959, section 3.2): a model learns words from
    parts of several lengths. Sentences with an unknown piece stay as they are: their text does not
    follow from their ids. Raises ConfigError for a BPE model, which texts of few words have.

    SentencePiece draws too, but in each process otherwise: a resumed run would see other subwords.
    """

    def __init__(self, model: bytes, alpha: float) -> None:
        from sentencepiece import sentencepiece_model_pb2

        proto = sentencepiece_model_pb2.ModelProto.FromString(model)
        if proto.trainer_spec.model_type != _UNIGRAM:
            raise ConfigError("subword_sampling expected a text of more words. Received: BPE's")
        self._alpha = alpha
        self._strings = [each.piece for each in proto.pieces]
        self._ids = {self._strings[i]: i for i in range(END_ID + 1, len(self._strings))}
        self._scores = {each.piece: each.score for each in proto.pieces[END_ID + 1 :]}
        self._longest = max(map(len, self._ids))
        self._lattice = functools.lru_cache(_WORDS)(self._make_lattice)

    def draw(self, sentences: Sequences, seed: int) -> Sequences:
        """Return the same sentences in pieces that the seed draws."""
        rng = random.Random(seed)
        ends, drawn = sentences.starts + sentences.lengths, list[list[int]]()
        for start, end in zip(sentences.starts, ends, strict=True):
            ids = sentences.values[start:end].tolist()
            if UNK_ID not in ids:  # pieces do not go beyond a word
                words = _WORD.findall("".join(self._strings[i] for i in ids))
                ids = [piece for word in words for piece in self._walk(word, rng)]
            drawn.append(ids)
        values = np.fromiter(itertools.chain.from_iterable(drawn), np.int32)
        return Sequences.of(values, np.fromiter(map(len, drawn), np.int32))

    def _walk(self, word: str, rng: random.Random) -> list[int]:
        """Draw the pieces of a word from its end on."""
        lattice, ids, end = self._lattice(word), list[int](), len(word)
        while end:
            sums, pieces = lattice[end]
            piece = pieces[bisect.bisect(sums, rng.random() * sums[-1], hi=len(sums) - 1)]
            ids.append(piece)
            end -= len(self._strings[piece])
        return ids[::-1]

    def _make_lattice(self, word: str) -> list[tuple[list[float], list[int]]]:
        """Return the pieces that end at each place, and the sums of their probabilities.

        The probability of a piece is that of all ways to it: forward filtering, backward sampling.
        """
        logs, lattice = [0.0], [(list[float](), list[int]())]
        for end in range(1, len(word) + 1):
            starts = range(max(0, end - self._longest), end)
            parts = [(start, word[start:end]) for start in starts if word[start:end] in self._ids]
            ways = [logs[start] + self._alpha * self._scores[piece] for start, piece in parts]
            top = max(ways, default=-math.inf)
            sums = list(
                itertools.accumulate(math.exp(way - top) for way in ways if top > -math.inf)
            )
            logs.append(top + math.log(sums[-1]) if sums else -math.inf)
            lattice.append((sums, [self._ids[piece] for _, piece in parts]))
        return lattice


Samplers = Sequence[SubwordSampler | None]  # of sources and targets
