"""A translator in this process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, TypeVar

import numpy as np

from serving.client.errors import SignatureNotFoundError
from serving.client.local.completing import complete
from serving.client.local.model import LocalModel
from serving.client.local.scoring import score_targets
from serving.client.local.search import Search, said_text, said_tokens
from serving.client.local.spelling import Spelling
from serving.client.local.tokenizers import END_ID, PAD_ID, UNK_ID, load_tokenizer
from serving.client.results import Alignment, Completion, Hypothesis, Score, Translation
from serving.client.sentences import join_sentences, split_sentences

T = TypeVar("T")
_OUTPUTS = {
    "translate": {"translation": "string(?)", "score": "float(?)", "truncated": "bool(?)"},
    "nbest": {"translations": "string(?, ?)", "scores": "float(?, ?)"},
    "align": {
        "translation": "string(?)",
        "source_tokens": "string(?, ?)",
        "target_tokens": "string(?, ?)",
        "attention_weights": "float(?, ?, ?)",
    },
    "score": {
        "score": "float(?)",
        "tokens": "string(?, ?)",
        "log_probs": "float(?, ?)",
        "truncated": "bool(?)",
    },
    "complete": {
        "translation": "string(?)",
        "score": "float(?)",
        "truncated": "bool(?)",
        "tokens": "string(?, ?)",
        "token_scores": "float(?, ?)",
    },
}


class _Read(NamedTuple):
    """Texts as ids.

    Attributes:
        ids: of each text, cut to what the model reads.
        truncated: whether it was cut.
    """

    ids: list[list[int]]
    truncated: list[bool]


class LocalTranslator(LocalModel):
    """A translator in this process, with the methods and results of `serving.client.Translator`.

    Args:
        path: of a version that was exported with `--format onnx`, or of the model, of whose
            versions the last is taken.
        beam_width: hypotheses of each text; None for what the model was exported with, as are the
            next two.
        num_results: how many `nbest` returns, at most `beam_width`.
        length_penalty: scores are divided by `((5 + length) / 6) ** length_penalty`.
        batch_size: texts that are translated together, those of about the same length.
        threads: that one operation may use.

    Raises:
        ValueError: if there is no such export, or for a setting that is not possible.
    """

    task = "translate"

    def __init__(
        self,
        path: str | Path,
        *,
        beam_width: int | None = None,
        num_results: int | None = None,
        length_penalty: float | None = None,
        batch_size: int = 32,
        threads: int = 1,
    ) -> None:
        super().__init__(path, threads)
        about = self.manifest
        self._asked = Search(about, beam_width, num_results, length_penalty, batch_size)
        self._most = about["settings"]["max_source_length"]
        self._source, self._target = (
            load_tokenizer(self._folder.path, about["tokenizers"][side])
            for side in ("source", "target")
        )
        self._spelling: Spelling | None = None  # made at its first use

    def signatures(self) -> dict[str, dict[str, dict[str, str]]]:
        """See the base class."""
        found = {}
        for name, outputs in _OUTPUTS.items():
            if name != "align" or self.manifest["attends"]:
                second = {"score": ["translation"], "complete": ["prefix"]}
                inputs = ["text", *second.get(name, [])]
                found[name] = {"inputs": dict.fromkeys(inputs, "string(?)"), "outputs": outputs}
        return found

    def wait_ready(self, timeout: float = 60.0) -> None:
        """Load the graph; a model in this process is there at once."""
        self.translate(["."])

    def translate(self, texts: Sequence[str], split: bool = False) -> list[Translation]:
        """The best translation of each text; with `split`, sentence by sentence."""
        texts = _checked(texts)
        if split:
            pieces = [split_sentences(text) for text in texts]
            found = iter(self.translate([sentence for text in pieces for sentence, _ in text]))
            return [join_sentences([(next(found), gap) for _, gap in text]) for text in pieces]
        read = self._read(texts)
        best = self._search(read, 1, lambda ids, scores, weights: self._hypotheses(ids, scores)[0])
        return [
            Translation(one.text, one.score, cut) if one else Translation("", 0.0)
            for one, cut in zip(best, read.truncated, strict=True)
        ]

    def nbest(self, texts: Sequence[str]) -> list[list[Hypothesis]]:
        """Each text's translations, best first."""
        count = self._asked.results
        found = self._search(
            self._read(_checked(texts)),
            count,
            lambda ids, scores, weights: self._hypotheses(ids, scores),
        )
        return [each or [Hypothesis("", 0.0)] * count for each in found]

    def align(self, texts: Sequence[str]) -> list[Alignment]:
        """Each text's translation with its attention weights.

        Raises:
            SignatureNotFoundError: for a model without attention.
        """
        if not self.manifest["attends"]:
            raise SignatureNotFoundError(
                "this model cannot align: it was trained without attention"
            )
        read = self._read(_checked(texts))
        found = self._search(read, 1, self._aligned, with_weights=True)
        return [
            Alignment(text, tuple(map(self._source.token, ids)), tokens, weights(len(ids)))
            for (text, tokens, weights), ids in zip(
                (each or ("", (), lambda length: ()) for each in found), read.ids, strict=True
            )
        ]

    def score(self, texts: Sequence[str], translations: Sequence[str]) -> list[Score]:
        """How probable the model finds a given translation of each text, token by token."""
        read, targets = self._read(_checked(texts)), self._target.encode(_written(translations))
        if len(targets) != len(read.ids):
            raise ValueError(
                f"expected as many translations as texts, {len(read.ids)}. Received: {len(targets)}"
            )
        most = 2 * self._most + 9  # what a search may find, without the end
        found: list[Any] = [None] * len(targets)
        for rows in self._asked.batches([len(x) for x in targets]):
            wanted = _padded([[*targets[row][:most], END_ID] for row in rows])
            source = _padded([read.ids[row] for row in rows])
            for row, log_probs in zip(
                rows, score_targets(self._folder, source, wanted), strict=True
            ):
                ids = [*targets[row][:most], END_ID]
                if not read.ids[row] and len(ids) == 1:
                    log_probs = np.zeros_like(log_probs)  # nothing is translated as nothing
                each = [float(x) for x in log_probs[: len(ids)]]
                tokens = tuple("</s>" if x == END_ID else self._target.token(x) for x in ids)
                norm = ((5 + len(ids)) / 6) ** self._asked.penalty
                cut = read.truncated[row] or len(targets[row]) > most
                found[row] = Score(sum(each) / norm, tokens, tuple(each), cut)
        return found

    def complete(self, texts: Sequence[str], prefixes: Sequence[str]) -> list[Completion]:
        """The best translation of each text that begins with its prefix, as it was typed.

        A prefix may end within a word; a space at its end says that the word is complete.

        Raises:
            ValueError: for a prefix that no tokens of the model spell.
        """
        read, found = self._read(_checked(texts)), []
        if self._spelling is None:
            size = self.manifest["tokenizers"]["target"]["size"]
            self._spelling = Spelling(self._target, size)
        pairs = zip(read.ids, read.truncated, _written(_checked(prefixes)), strict=True)
        for number, (ids, cut, prefix) in enumerate(pairs):
            normal = self._spelling.normalize(prefix)
            width, penalty = self._asked.width, self._asked.penalty
            best = complete(self._folder, self._spelling, ids or [UNK_ID], normal, width, penalty)
            if best is None:
                raise ValueError(
                    f"prefix[{number}] has characters that the model has no tokens for: {normal}"
                )
            if not ids:
                found.append(Completion(prefix, 0.0))
                continue
            said = self._target.decode([x for x in best.ids if x > END_ID])
            rest = self._spelling.decompose(said)[len(normal) :]
            norm = ((5 + len(best.ids)) / 6) ** penalty
            tokens = tuple("</s>" if x == END_ID else self._target.token(x) for x in best.ids)
            found.append(
                Completion(
                    self._spelling.compose(prefix + rest),
                    sum(best.log_probs) / norm,
                    cut,
                    tokens=tokens,
                    token_scores=best.log_probs,
                )
            )
        return found

    def alternatives(self, texts: Sequence[str], prefixes: Sequence[str]) -> NoReturn:
        """Raise SignatureNotFoundError: only a server says which words may follow."""
        raise SignatureNotFoundError("an ONNX export has no alternatives: they need a server")

    def _read(self, texts: Sequence[str]) -> _Read:
        ids = self._source.encode(_written(texts))
        return _Read([x[: self._most] for x in ids], [len(x) > self._most for x in ids])

    def _search(
        self,
        read: _Read,
        results: int,
        answer: Callable[[np.ndarray, np.ndarray, np.ndarray], T],
        with_weights: bool = False,
    ) -> list[T | None]:
        """Return what is answered to each text, None for one without a token.

        Args:
            read: the texts.
            results: of each.
            answer: from ids `(N, T)`, scores `(N,)` and weights `(N, T, S)`.
            with_weights: whether they are wanted.
        """
        found: list[T | None] = [None] * len(read.ids)
        asked = self._asked.inputs(results, with_weights)
        for rows in self._asked.batches([len(x) for x in read.ids]):
            rows = [row for row in rows if read.ids[row]]
            if not rows:
                continue
            ids = _padded([read.ids[row] for row in rows])
            out = self._folder.run("translator", {"ids": ids, **asked})
            each = zip(rows, out["found"], out["scores"], out["weights"], strict=True)
            for row, *of_row in each:
                found[row] = answer(*of_row)
        return found

    def _hypotheses(self, ids: np.ndarray, scores: np.ndarray) -> list[Hypothesis]:
        return [
            Hypothesis(said_text(self._target, one), float(score))
            for one, score in zip(ids, scores, strict=True)
        ]

    def _aligned(self, ids: np.ndarray, scores: np.ndarray, weights: np.ndarray) -> tuple:
        """Return the text, its tokens, and the function from a source's length to the weights."""
        tokens = said_tokens(self._target, ids[0])

        def of_source(length: int) -> tuple[tuple[float, ...], ...]:
            return tuple(map(tuple, weights[0, : len(tokens), :length].tolist()))

        return said_text(self._target, ids[0]), tokens, of_source


def _checked(texts: Sequence[str]) -> Sequence[str]:
    if isinstance(texts, str):
        raise TypeError("expected a list of texts. Received: one string")
    return texts


def _written(texts: Sequence[str]) -> list[str]:
    """Return texts that have a UTF-8 form: a lone surrogate becomes "?"."""
    return [text.encode("utf-8", "replace").decode("utf-8") for text in texts]


def _padded(ids: Sequence[Sequence[int]]) -> np.ndarray:
    """Return ids as int64 `(B, S)`, S at least 1."""
    array = np.full((len(ids), max(1, *map(len, ids), 1)), PAD_ID, "int64")
    for row, each in zip(array, ids, strict=True):
        row[: len(each)] = each
    return array
