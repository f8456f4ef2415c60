"""Clients of a served translator, blocking and asyncio."""

from collections.abc import Sequence

from serving.client import translation
from serving.client.protocol import Endpoint, Steps
from serving.client.translation import Alignment, Hypothesis, Score, Translation
from serving.client.transport import AsyncClient, Client


class _Translators(Endpoint):
    """What both clients ask of a translator."""

    def _translate(self, texts: Sequence[str], split: bool) -> Steps[list[Translation]]:
        write, read = translation.write_texts, translation.read_translations
        if not split:
            return (yield from self.predict("translate", _checked(texts), write, read))
        pieces = [translation.split_sentences(text) for text in _checked(texts)]
        sentences = [sentence for text in pieces for sentence, _ in text]
        found = iter((yield from self.predict("translate", sentences, write, read)))
        return [
            translation.join_sentences([(next(found), gap) for _, gap in text]) for text in pieces
        ]

    def _nbest(self, texts: Sequence[str]) -> Steps[list[list[Hypothesis]]]:
        write, read = translation.write_texts, translation.read_nbest
        return self.predict("nbest", _checked(texts), write, read)

    def _align(self, texts: Sequence[str]) -> Steps[list[Alignment]]:
        write, read = translation.write_texts, translation.read_alignments
        return self.predict("align", _checked(texts), write, read)

    def _score(self, texts: Sequence[str], translations: Sequence[str]) -> Steps[list[Score]]:
        pairs = list(zip(_checked(texts), _checked(translations), strict=True))
        write, read = translation.write_pairs, translation.read_scores
        return self.predict("score", pairs, write, read, lambda pair: sum(map(len, pair)))


def _checked(texts: Sequence[str]) -> Sequence[str]:
    if isinstance(texts, str):
        raise TypeError("expected a list of texts; received one string")
    return texts


class Translator(_Translators, Client):
    """A translator on a model server; arguments as of `serving.client.protocol.Endpoint`.

    Its methods raise a ServingError. Use as a context manager, or `close()`. Threads may share it.
    """

    def translate(self, texts: Sequence[str], split: bool = False) -> list[Translation]:
        """The best translation of each text; with `split`, sentence by sentence."""
        return self._run(self._translate(texts, split))

    def nbest(self, texts: Sequence[str]) -> list[list[Hypothesis]]:
        """Each text's translations, best first, as many as the model was exported with."""
        return self._run(self._nbest(texts))

    def align(self, texts: Sequence[str]) -> list[Alignment]:
        """Each text's translation with its attention weights."""
        return self._run(self._align(texts))

    def score(self, texts: Sequence[str], translations: Sequence[str]) -> list[Score]:
        """How probable the model finds a given translation of each text, token by token."""
        return self._run(self._score(texts, translations))


class AsyncTranslator(_Translators, AsyncClient):
    """`Translator` for asyncio: the same arguments, its methods are coroutines."""

    async def translate(self, texts: Sequence[str], split: bool = False) -> list[Translation]:
        """See `Translator.translate`."""
        return await self._run(self._translate(texts, split))

    async def nbest(self, texts: Sequence[str]) -> list[list[Hypothesis]]:
        """See `Translator.nbest`."""
        return await self._run(self._nbest(texts))

    async def align(self, texts: Sequence[str]) -> list[Alignment]:
        """See `Translator.align`."""
        return await self._run(self._align(texts))

    async def score(self, texts: Sequence[str], translations: Sequence[str]) -> list[Score]:
        """See `Translator.score`."""
        return await self._run(self._score(texts, translations))
