"""Tokenizers without TensorFlow against those of training."""

import random

import pytest
import tensorflow as tf
from sentencepiece.sentencepiece_model_pb2 import ModelProto

from serving.portable.read.tokenizers import Vocabulary, load_tokenizer, without_special
from serving.portable.write.graphs import _write_tokenizer
from tests.attack.conftest import within
from tests.training.data.files import train_tokenizer
from training.data.pieces import model_of
from training.data.tokenizers import VocabularyTokenizer

UNIGRAM, BPE = 1, 2  # of SentencePiece's model types

LINES = [
    "She is eating a green apple, isn't she?",
    "Il n'aime pas l'été : « jusqu'à 3,5 % ».",
    "他不喜欢苹果。ひらがなとカタカナ 한국어",
    "DH AH0 K AE1 T",
    "naïve ﬁancé  ½ kg\tİstanbul ǅ x² a\u0301",
]
ODD = ["", " ", "\u200b", "a\x00b", "▁▁ a▁b", "\ufffd", "\u3000全　角", "e\u0301\u0301", "'’ l'a"]


def texts():
    """Lines, odd ones, and random strings of characters from everywhere."""
    rng = random.Random(5)
    ranges = [(32, 127), (0xA0, 0x250), (0x300, 0x370), (0x2000, 0x2100), (0x3000, 0x3100)]
    ranges += [(0x4E00, 0x4E40), (0xAC00, 0xAC20), (0xFF00, 0xFFEF), (0x1F600, 0x1F640), (0, 32)]
    made = [
        "".join(chr(rng.randrange(*rng.choice(ranges))) for _ in range(rng.randrange(1, 24)))
        for _ in range(400)
    ]
    return LINES + ODD + made


@pytest.mark.parametrize(
    "kind", ["sentencepiece", "bpe", "words", "characters", "letters", "symbols"]
)
def test_ids_tokens_and_texts_are_those_of_training(kind, tmp_path):
    lines = LINES * 4
    if kind == "bpe":  # which SentencePiece learns of few words
        kind = "sentencepiece"
    else:
        lines += [line for line in texts()[len(LINES) : 40] if line.strip()]
    tokenizer = train_tokenizer(kind, lines, 300)
    if kind == "sentencepiece":
        model = ModelProto.FromString(model_of(tokenizer.state()))
        assert model.trainer_spec.model_type == (BPE if lines == LINES * 4 else UNIGRAM)
    local = load_tokenizer(tmp_path, _write_tokenizer(tokenizer, tmp_path, "source"))
    wanted = tokenizer.tokenize(tf.constant(texts()))
    found = local.encode(texts())
    assert found == wanted.to_list()
    ids = wanted.to_tensor()
    back = [text.decode() for text in tokenizer.detokenize(ids).numpy()]
    assert [local.decode(without_special(one)) for one in found] == back
    tokens = [token.decode() for token in tokenizer.tokens(ids[0]).numpy() if token]
    assert [local.token(number) for number in found[0]] == tokens
    unknown = [letters.decode() for letters in tokenizer.unknown(tf.constant(texts())).numpy()]
    assert any(unknown) == (kind in ("characters", "letters"))
    if isinstance(local, Vocabulary):
        assert [local.unknown(text) for text in texts()] == unknown


@pytest.mark.parametrize("kind", ["characters", "letters"])
@pytest.mark.parametrize(
    ("text", "small", "unknown"),
    [
        ("MACEBE", "maCebe", ""),  # of C alone there is a capital
        ("mac3be", "mac*be", "3"),
        ("\ufeffmac\ufeffe", "mace", ""),
        ("X.", "**", "X."),
    ],
)
def test_capitals_are_small_letters_and_what_training_never_saw_is_named(
    kind, text, small, unknown
):
    tokens = list("abcemC")
    ids = [tokens.index(letter) + 4 if letter in tokens else 1 for letter in small]
    local, tokenizer = (
        Vocabulary({"kind": kind, "tokens": tokens}),
        VocabularyTokenizer(kind, tokens),
    )
    assert local.encode([text]) == [ids]
    assert tokenizer.tokenize(tf.constant([text])).to_list() == [ids]
    assert local.unknown(text) == unknown
    assert tokenizer.unknown(tf.constant([text])).numpy() == [unknown.encode()]


def test_what_was_said_ends_at_the_end_and_has_no_special_ids():
    assert without_special([5, 1, 6, 0, 2, 7, 3, 8]) == [5, 6, 7]


def test_a_long_text_of_unknown_words_is_numbered_by_first_places_at_once():
    count = 60_000
    tokenizer = Vocabulary({"kind": "symbols", "tokens": ["known"], "copies": True})
    text = " ".join(["known", *(f"w{n}" for n in range(count)), "w7", "known", "w0"])
    with within(5):
        (found,) = tokenizer.encode([text])
    first = tokenizer.size + 1  # the place of w0 in the text is 1
    assert found == [4, *range(first, first + count), first + 7, 4, first]
