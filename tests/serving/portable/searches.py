"""Runs, what each is asked, and what a loop over the library's search answers, token by token.

Words that are read in windows have no loop here: `test_windows` has their windows and answers.
"""

import functools
import random
import string
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tests.serving.conftest import TEXT_RUN, TEXT_SETTINGS
from tests.training.conftest import bend, tiny_config, untrained
from tests.training.test_copying import SETTINGS as NAMES
from tests.training.test_copying import names_task
from training.config.schema import Config, load_preset, override
from training.data.read import texts as corpus
from training.data.tokens.store import END_ID, PAD_ID, UNK_ID
from training.decode.search import bound_of, search
from training.decode.settings import SearchSettings
from training.runs.run import load_run

BLANKS = [f"{blank * 16_000}She{blank * 16_000}sings." for blank in (" ", "\u3000", " \n\ufeff")]
ODD = ["", "zzz ★ \ufffd", "a\x00b", "the " * 40, "\u200b", *BLANKS]


class Answer(NamedTuple):
    """Texts and scores, best first; the source's tokens; of the best where each token looked."""

    texts: list
    scores: list
    source: list
    tokens: list
    weights: np.ndarray
    least: float
    truncated: bool


class Case(NamedTuple):
    """A run, what it is asked, and how it is searched."""

    run: object
    sources: list
    settings: dict

    @property
    def search(self):
        return SearchSettings(**self.settings)

    @property
    def names_words(self):
        """Whether a word that the vocabulary lacks may be said."""
        return self.run.config.copy or self.search.replaces_unknown


def phrases(folder):
    sources = ["She is eating a green apple.", "He sleeps.", *ODD]
    sources += corpus.load("phrasebook-en-fr", "dev", limit=9).sources
    return load_run(TEXT_RUN), sources, TEXT_SETTINGS


def names(folder, copies):
    """Words that no vocabulary has are copied, or put in the places of unknown ones."""
    rng, data = np.random.default_rng(1), folder / "names.tsv"
    data.write_text("".join("\t".join(pair) + "\n" for pair in names_task(rng, 60)))
    made = untrained(Config(data=f"tsv:{data}", **{**NAMES, "copy": copies}), folder / "run")
    sources = [source for source, _ in names_task(rng, 5)] + ["", "Zoé 給 Ωμ (Ωμ).", "a " * 20]
    more = {"replaces_unknown": not copies, "max_source_length": 8}
    made = bend(made, 1.0, end=0, **({} if copies else {"unknown": 3}))
    return made, sources, {**TEXT_SETTINGS, **more}


def spelled(folder, whole, sizes, results=2, tags=()):
    """Words of which the long ones are read by windows.

    With `tags`, every other word of training has one of them, and the words have all.
    """
    rng, letters, data = random.Random(5), string.ascii_lowercase[:10], folder / "words.tsv"
    lengths = [min(whole, size) for size in (3, 4, 7, whole)]
    known = {"".join(rng.choices(letters, k=rng.choice(lengths))) for _ in range(300)}
    fronts = ["", *tags]
    rows = [
        f"{fronts[n % len(fronts)]}{word}\t{' '.join(word.upper())}\n"
        for n, word in enumerate(sorted(known))
    ]
    data.write_text("".join(rows))
    settings = [f"{name}_units=7" for name in ("encoder", "decoder", "attention", "readout")]
    settings += ["embedding_size=5", f"data=tsv:{data}", "dev=0.1", "epochs=1"]
    made = untrained(override(load_preset("g2p-low"), settings), folder / "run")
    words = ["".join(rng.choices(letters, k=size)) for size in sizes]
    if tags:
        words = [tag + word for word in words for tag in ("", *tags, "[abcdefg] ", "[b]] ")]
        words += [words[-1], tags[0], tags[0].strip() * 5, f"a{tags[0]}{words[0]}"]
    return bend(made, 0.9, end=1), words, {"beam_width": results + 1, "num_results": results}


def endless(folder):
    """The same letter again and again, up to the run's bound."""
    letters = ("source_tokenizer=letters", "target_tokenizer=letters", "max_answer=2.65x+7")
    made = untrained(tiny_config(*letters, "tie_embeddings=false"), folder / "run")
    made = bend(made, 0.1, end=-30)
    bias = made.model.get_layer("output").bias
    bias.assign(bias + 30.0 * tf.one_hot(END_ID + 3, bias.shape[0]))
    texts = ["the dog sleeps", "a", "one two three four five six"]
    return made, texts, {"beam_width": 1, "num_results": 1}


CASES = {
    "phrases": phrases,
    "copied": functools.partial(names, copies=True),
    "replaced": functools.partial(names, copies=False),
    "short windows": functools.partial(spelled, whole=8, sizes=(1, *range(7, 20)), results=3),
    "windows with tags": functools.partial(
        spelled, whole=13, sizes=(1, 13, 14, 19, 31), tags=("[ab] ", "[j]", "[e-fa] ")
    ),
    "windows of three": functools.partial(spelled, whole=3, sizes=range(1, 8), results=4),
    "endless": endless,
}


def asker(case):
    """The library's search, of ids of any length."""
    model, bound = case.run.model, bound_of([case.run])

    @tf.function(input_signature=[tf.TensorSpec(model.input["source"].shape, "int32")])
    def ask(source):
        return search([model], source, case.search, return_attention_weights=True, bound=bound)

    return ask


def by_loop(case, ask, text):
    """The answer to a text, token by token."""
    source, target = case.run.source_tokenizer, case.run.target_tokenizer
    given = tf.constant([text])
    whole, most = source.tokenize(given).to_list()[0], case.search.max_source_length
    ids, count = whole[:most], case.search.num_results
    if not ids:
        return Answer([""] * count, [0.0] * count, [], [], np.zeros((0, 0)), 1.0, False)
    copied = source.split(given)[:, :most].to_tensor() if case.names_words else None
    found = ask(tf.constant([ids]))
    ranks = [kept_of(case, found, rank) for rank in range(count)]
    says, gains, rows = ranks[0]
    tokens = target.tokens(tf.constant([says], tf.int32), copied).numpy()[0]
    least = min((gains[n] for n, number in enumerate(says) if number > END_ID), default=0.0)
    texts = [target.detokenize(tf.constant([ids], tf.int32), copied) for ids, *_ in ranks]
    return Answer(
        [text.numpy()[0].decode() for text in texts],
        found.scores[0].numpy(),
        [x.decode() for x in source.tokens(tf.constant([ids], tf.int32), copied).numpy()[0]],
        [token.decode() for token in tokens if token],
        np.reshape(rows, (-1, len(ids)))[tokens != b""],
        np.exp(least),
        len(whole) > most,
    )


def kept_of(case, found, rank):
    """Of a result the tokens that are kept: ids, log-probabilities and weights."""
    ids, gains, rows = [], [], []
    steps = found.ids[0, rank], found.log_probs[0, rank], found.attention_weights[0, rank]
    for number, gain, row in zip(*(x.numpy() for x in steps), strict=True):
        if number not in (PAD_ID, END_ID):
            if case.search.replaces_unknown and number == UNK_ID and row.any():
                number = case.run.target_tokenizer.vocab_size + row.argmax()
            ids.append(number)
            gains.append(gain)
            rows.append(row)
    return ids, gains, rows
