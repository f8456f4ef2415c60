"""Families of sentences: what a pairing decides, and what varies freely within it.

A family holds the sentences that share their pairings (verb and object, adjective and noun), which
decide its split. It is the product of independent options, so that its size is known and any of its
sentences can be made alone.
"""

import zlib
from collections.abc import Callable, Iterator, Sequence
from math import prod
from typing import Any, NamedTuple

from training.phrasebook.sentences import FIRST_PERSON, Adverbial, Mode, Sentence, Subject

Pairing = tuple[str, str]


class Family(NamedTuple):
    """Sentences `build(*choice)` for each choice of one option from each of `options`."""

    group: str
    pairings: tuple[Pairing, ...]
    build: Callable[..., Sentence]
    options: tuple[Sequence, ...]

    @property
    def size(self) -> int:
        """The number of sentences."""
        return prod(len(choices) for choices in self.options)


class Template(NamedTuple):
    """Families of one kind, and how often sentences are drawn from them."""

    name: str
    weight: int
    families: Callable[[], Iterator[Family]]


class Form(NamedTuple):
    """The parts of a clause that vary beside its subject: tense, mode, determiner, adverbs."""

    tense: str
    mode: Mode
    determiner: str = ""
    plural: bool = False
    time: Adverbial | None = None
    frequency: Adverbial | None = None


class SubjectsAndForms(Sequence[tuple[Subject, Form]]):
    """Every subject with every form, but for questions about oneself: "Am I eating?"."""

    def __init__(self, subjects: Sequence[Subject], forms: Sequence[Form]):
        # Those that are left out come last, so that the others keep their places.
        self._subjects = sorted(subjects, key=lambda subject: subject is FIRST_PERSON)
        self._forms = sorted(forms, key=lambda form: form.mode == "question")
        questions = (
            sum(form.mode == "question" for form in forms) if FIRST_PERSON in subjects else 0
        )
        self._length = len(self._subjects) * len(self._forms) - questions

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: Any) -> Any:
        if index >= self._length:
            raise IndexError(index)
        subject, form = divmod(index, len(self._forms))
        return self._subjects[subject], self._forms[form]


def stable_hash(*parts: str) -> int:
    """The same number on every machine and in every run."""
    return zlib.crc32("|".join(parts).encode())


def some(options: Sequence, count: int, *key: str) -> list:
    """The first option and others, evenly spaced, that change with the key: `count` in all."""
    others = len(options) - 1
    if others < count:
        return list(options)
    start = stable_hash(*key)
    chosen = {(start + i * others // (count - 1)) % others + 1 for i in range(count - 1)}
    return [options[i] for i in (0, *sorted(chosen))]
