"""Tokenizers in JavaScript against those without TensorFlow, on 10,000 texts each."""

import base64
import io
import json
import random

import pytest
import sentencepiece

from serving.api.results import unique_letters
from serving.portable.engine.graphs import Numbers
from serving.portable.engine.pack import read_tokenizer
from serving.portable.read.tokenizers import SentencePiece, Vocabulary, without_special
from tests.serving.javascript import needs_node, run
from tests.serving.portable.read.test_tokenizers import LINES, ODD
from training.data import corpus
from training.data.pieces import train_sentencepiece
from training.data.tokenizers import character_classes

pytestmark = needs_node
RANGES = [
    *((32, 127), (0xA0, 0x250), (0x300, 0x370), (0x1100, 0x1200), (0x2000, 0x2100)),
    *((0x3000, 0x3100), (0x4E00, 0x4E40), (0xAC00, 0xAC20), (0xFF00, 0xFFEF)),
    *((0x1F600, 0x1F640), (0, 32), (0x1D400, 0x1D440)),
]
READ = """
import { readFileSync } from "node:fs";
import { SentencePiece } from "engine/sentencepiece.js";
import { Vocabulary } from "engine/vocabulary.js";
import { withNumbers } from "engine/model.js";
const { about, numbers, texts, ids } = JSON.parse(readFileSync(0, "utf8"));
const bytes = Uint8Array.from(Buffer.from(numbers, "base64")).buffer;
const pieces = about.kind === "sentencepiece";
const made = pieces ? new SentencePiece(withNumbers(about, bytes)) : new Vocabulary(about);
const encoded = texts.map((text) => made.encode(text));
const decoded = ids.map((each) => made.decode(each));
const unseen = texts.map((text) => made.unseen?.(text) ?? "");
process.stdout.write(JSON.stringify({ encoded, decoded, unseen }));
"""


@pytest.fixture(scope="module")
def texts():
    """2,000: sentences, odd ones, and random strings of characters from everywhere."""
    rng = random.Random(7)
    sentences = corpus.load("phrasebook-en-fr", "train", limit=600).sources
    chinese = corpus.load("phrasebook-en-zh", "train", limit=600)
    sentences += [target for _, target in chinese.pairs()]
    made = [
        "".join(chr(rng.randrange(*rng.choice(RANGES))) for _ in range(rng.randrange(1, 24)))
        for _ in range(2_000 - len(sentences) - len(LINES) - len(ODD))
    ]
    return [*sentences, *LINES, *ODD, *made]


def in_node(path, kind, size, texts, ids):
    numbers = Numbers()
    entry = {"kind": kind, "file": path.name, "size": size}
    about = read_tokenizer(path.parent, entry, numbers)
    given = {"about": about, "numbers": base64.b64encode(numbers.tobytes()).decode()}
    return run(READ, given={**given, "texts": texts, "ids": ids})


def assert_same(tokenizer, path, kind, size, texts):
    wanted = tokenizer.encode(texts)
    rng = random.Random(9)
    ids = [without_special(each) for each in wanted]
    ids += [[rng.randrange(4, size) for _ in range(7)] for _ in range(500)]
    found = in_node(path, kind, size, texts, ids)
    assert found["encoded"] == wanted
    assert found["decoded"] == [tokenizer.decode(each) for each in ids]
    if isinstance(tokenizer, Vocabulary):
        assert found["unseen"] == [unique_letters(tokenizer.unknown(text)) for text in texts]


@pytest.mark.parametrize(
    ("model_type", "normalization"), [("unigram", "nmt_nfkc"), ("bpe", "identity")]
)
def test_sentencepiece(model_type, normalization, texts, tmp_path):
    lines = [text for text in texts if text.strip()] + LINES * 9
    options = {"model_type": model_type, "normalization": normalization}
    (tmp_path / "x.model").write_bytes(train_sentencepiece(lines, 2500, **options))
    tokenizer = SentencePiece(tmp_path / "x.model")
    size = tokenizer._pieces.get_piece_size()
    assert_same(tokenizer, tmp_path / "x.model", "sentencepiece", size, texts)


@pytest.mark.parametrize("kind", ["words", "characters", "letters", "symbols"])
def test_lists(kind, texts, tmp_path):
    state = {"kind": kind, "tokens": [], "characters": character_classes()}
    split = Vocabulary(state).split
    tokens = sorted({token for text in texts[:1800:2] for token in split(text)})
    state["tokens"] = tokens + [f"▁{token}" for token in tokens if kind == "words"]
    (tmp_path / "x.json").write_text(json.dumps(state))
    assert_same(Vocabulary(state), tmp_path / "x.json", kind, len(state["tokens"]) + 4, texts)


def test_models_that_the_browser_does_not_have_are_refused(tmp_path):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(LINES * 9),
        model_writer=model,
        vocab_size=20,
        hard_vocab_limit=False,
        model_type="word",
        minloglevel=2,
    )
    (tmp_path / "x.model").write_bytes(model.getvalue())
    with pytest.raises(ValueError, match=r"expected a unigram or BPE model.* Received: type 3"):
        read_tokenizer(tmp_path, {"kind": "sentencepiece", "file": "x.model"}, Numbers())
