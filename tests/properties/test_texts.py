"""Texts: every execution says the same about each, and tells the same of it."""

import contextlib
import re
import unicodedata
import warnings

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import example, given
from hypothesis import strategies as st

from serving.api._results import unique_letters
from serving.batch._inputs import Texts
from serving.client import Translator
from serving.portable.read import LocalTranslator
from tests.properties.executions import FORMS, assert_alike, batch, examples, rest, served
from tests.serving.javascript import NODE, ask_model
from tests.training.conftest import bend, no_pictures, untrained  # noqa: F401 - for every test
from training.config.schema import Config
from training.data.rules import clean
from training.decode.settings import SearchSettings
from training.decode.texts import make_nbest
from training.runs.run import load_run

pytestmark = pytest.mark.slow

MOST = 9  # tokens that are read
SEARCH = {"beam_width": 3, "num_results": 2, "max_source_length": MOST, "length_penalty": 0.7}
# By name: the kinds of tokenizers of both sides.
KINDS = {
    "words": ("words", "words"),
    "pieces": ("sentencepiece", "sentencepiece"),
    "letters": ("letters", "symbols"),
    "characters": ("characters", "letters"),
}
LETTERS = "aébcçZżß漢字한글ا'’-"
# What cleaning, splitting or reading treats apart.
SPACES = " \t\n\r\x0b\x0c\x1c\x1d\x1e\x1f\x85\xa0\u1680\u2000\u200a\u2028\u2029\u202f\u205f\u3000"
SIGNS = "\ufeff\u200b\u2060\u0301\u0323\x00\x01\x7f\u00ad▁⁇<>/s☺\U0001f600\u0130ſÅ…Ω٣½ﬁ\ud800"


def texts():
    """Texts of letters that a model knows and others, in all forms of Unicode, with all spaces."""
    letters = st.sampled_from(LETTERS) | st.sampled_from("abc ")
    odd = st.sampled_from(SPACES) | st.sampled_from(SIGNS) | st.characters(codec="utf-8")
    drawn = st.text(letters | odd, max_size=MOST + 5)
    formed = st.builds(unicodedata.normalize, st.sampled_from(["NFC", "NFD", "NFKD"]), drawn)
    at_bound = st.integers(MOST - 1, MOST + 1).map(
        lambda count: " ".join("abc" * count)[: 2 * count]
    )
    return st.lists(formed | drawn | at_bound, min_size=1, max_size=7)


def make_run(folder, source, target, rng):
    """A run with random weights, large enough that each text has a translation of its own."""
    words = ["".join(rng.choice([*LETTERS], rng.integers(1, 5))) for _ in range(97)]
    rows = [" ".join(rng.choice(words, rng.integers(1, 6))) for _ in range(120)]
    says = [" ".join(row.replace(" ", "")) if target == "symbols" else row[::-1] for row in rows]
    folder.mkdir()
    data = folder / "pairs.tsv"
    data.write_text("".join(f"{a}\t{b}\n" for a, b in zip(rows, says, strict=True)), "utf-8")
    config = Config(
        data=f"tsv:{data}", source_tokenizer=source, target_tokenizer=target, source_vocab_size=70,
        target_vocab_size=70, max_source_length=30, max_target_length=30, encoder="gru",
        encoder_units=5, decoder="gru", decoder_units=7, embedding_size=5, attention_units=5,
        readout_units=5, batch_size=16, metric="bleu", epochs=1,
    )  # fmt: skip
    return bend(untrained(config, folder / "run"), 1.0, end=1, unknown=0).path


@pytest.fixture(scope="module")
def executions(tmp_path_factory):
    """By the name of a model, its executions by name: the first is that of training."""
    folder, rng = tmp_path_factory.mktemp("texts"), np.random.default_rng(5)
    runs = {name: make_run(folder / name, *kinds, rng) for name, kinds in KINDS.items()}
    with contextlib.ExitStack() as stack:
        server, versions = stack.enter_context(served(runs, folder, **SEARCH))
        found = {}
        for name, path in runs.items():
            saved, onnx = (versions[name, form] for form in FORMS)
            own = {
                "training": in_training(load_run(path)),
                "local": in_process(LocalTranslator(onnx)),
                "batch": in_batch(saved, folder),
            }
            for form in FORMS:
                model = f"{name}-{form}"
                client = stack.enter_context(Translator(f"localhost:{server.port}", model))
                own[f"gRPC, {form}"] = in_process(client)
                own[f"REST, {form}"] = over_rest(server, model)
            if NODE:
                own["page"] = in_page(onnx)
            found[name] = own
        yield found


def in_training(run):
    """A search with Keras, on a text as `training.translate` reads it."""
    translate = make_nbest([run], SearchSettings(**SEARCH))

    def ask(sources):
        read = [clean(text.encode("utf-8", "replace").decode()) for text in sources]
        lengths = run.source.rows(read).lengths
        unknown = run.source_tokenizer.unknown(tf.constant(read)).numpy()
        return [
            {
                "text": best.text,
                "score": best.score,
                "truncated": bool(length > MOST),
                "unknown": unique_letters(letters.decode()),
            }
            for (best, *_), length, letters in zip(translate(read), lengths, unknown, strict=True)
        ]

    return ask


def answer_of(outputs):
    """The answer that outputs of `translate` are, by its clients' names, without padding."""
    renamed = {**outputs, "text": outputs["translation"]}
    shown = [word for word in outputs["words"] if word]
    renamed["words"] = shown
    renamed["word_probabilities"] = outputs["word_probabilities"][: len(shown)]
    return renamed


def in_process(translator):
    def ask(sources):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of letters that training never saw
            return [vars(each) for each in translator.translate(sources)]

    return ask


def over_rest(server, model):
    def answer(text):
        given = {"text": [text.encode("utf-8", "replace").decode()]}
        return answer_of(rest(server, model, "translate", given))

    return lambda sources: list(map(answer, sources))


def in_batch(version, folder):
    def ask(sources):
        lines = "".join(re.sub("[\r\n]", " ", text) + "\n" for text in sources)
        records = batch(version, Texts(), lines.encode("utf-8", "replace"), folder, "texts.txt")
        renamed = [{**each, "text": each.get("translation")} for each in records]
        return [{"truncated": False, "unknown": "", **each} for each in renamed]

    return ask


def in_page(version):
    def ask(sources):
        answers = ask_model(version, texts=sources)
        return [{**each, **each["hypotheses"][0], "tokens": None} for each in answers]

    return ask


@pytest.mark.parametrize("name", KINDS)
@examples(30)
@example(["", " ", "\u3000", "\ufeff", "\x01", "▁"])
@example(
    ["e\u0301 a\u202fb", "a\x1cb", "a\tb", "a\ufeffb", "a\u200bb", "a\x85b\xa0c", "Z E D E\u0301"]
)
@example(["<s> a </s>", "<unk>", "a▁b", "⁇", "\ud800a"])
@example(["☺a☺b☺", "漢b " * 900])  # cut within a letter
@example([f"{blank * 16_000}ab{blank * 16_000}b" for blank in " \xa0\u3000\ufeff\n"])
@given(sources=texts())
def test_every_execution_says_and_tells_the_same(executions, name, sources):
    answers = {each: ask(sources) for each, ask in executions[name].items()}
    assert_alike(answers, sources, 2e-3)


@pytest.mark.parametrize("name", KINDS)
@examples(10)
@given(sources=texts())
def test_a_text_is_answered_alone_as_among_others_in_any_order(executions, name, sources):
    ask = executions[name]["local"]
    alone = [answer for text in sources for answer in ask([text])]
    assert_alike({"alone": alone, "together": ask(sources)}, sources, 2e-3)
    assert_alike({"alone": alone[::-1], "turned": ask(sources[::-1])}, sources[::-1], 2e-3)
