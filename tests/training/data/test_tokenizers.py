import random
import re
import unicodedata

import pytest
import tensorflow as tf

from tests.training.data.files import train_tokenizer, write
from training.config._keys import TOKENIZERS
from training.data.rules import clean
from training.data.tokens.pieces import MOST_WORDS_OF_BPE, train_sentencepiece
from training.data.tokens.splitting import clean_text, first_places
from training.data.tokens.store import END_ID, PAD_ID, START_ID, UNK_ID
from training.data.tokens.tokenizers import SentencePieceTokenizer, load_tokenizer
from training.score._links import word_of_piece

ENGLISH = [
    "She is eating a green apple.",
    "He doesn't like apples.",
    "Where is the man's old house?",
    "I bought 12 green apples, didn't I?",
]
FRENCH = [
    "Elle mange une pomme verte.",
    "Il n'aime pas les pommes.",
    "Où est l'homme qu'elle aime\u00a0?",
    "Aujourd'hui, l’eau est-elle froide ?",
]
CHINESE = ["她在吃一个绿苹果。", "我喜欢苹果，不是吗？", "我们有3个苹果。"]
PHONES = ["a b u t i s m ɑ̃", "a p s ɑ̃ s", "t ɛ s t"]
AWKWARD = [b"", b"\xff\xfe apple", b"\x00", b"app\x00le", b" \n\t ", "👩‍🍳🍏 𠀀".encode()]


@pytest.fixture(scope="module")
def tokenizers():
    text = ENGLISH + FRENCH + CHINESE
    made = {kind: train_tokenizer(kind, text, 150) for kind in TOKENIZERS if kind != "symbols"}
    made["symbols"] = train_tokenizer("symbols", PHONES, 50)
    for name, options in {
        "identity": {"normalization": "identity"},
        "bpe": {"model_type": "bpe"},
    }.items():
        made[name] = SentencePieceTokenizer(train_sentencepiece(text, 150, **options))
    return made


def texts(tensor):
    return [text.decode("utf-8") for text in tensor.numpy().tolist()]


def token_strings(tokenizer, text):
    return texts(tokenizer.tokens(tokenizer.tokenize(tf.constant([text]))[0]))


def round_trip(tokenizer, lines):
    return texts(tokenizer.detokenize(tokenizer.tokenize(tf.constant(lines)).to_tensor(PAD_ID)))


@pytest.mark.parametrize("name", ["identity", "characters", "letters", "words", "symbols"])
def test_detokenize_gives_every_character_back(tokenizers, name):
    """Words have one kind of space, and SentencePiece's default one kind of comma."""
    lines = PHONES if name == "symbols" else ENGLISH + FRENCH + CHINESE
    expected = [line.replace("\u00a0", " ") if name == "words" else clean(line) for line in lines]
    assert round_trip(tokenizers[name], lines) == expected
    assert round_trip(tokenizers["sentencepiece"], CHINESE[1:2]) == ["我喜欢苹果,不是吗?"]


def test_a_text_is_cleaned_in_the_graph_as_training_cleans_it(rng):
    letters = [*(chr(code) for code in range(0x3100) if code != 0x180E), *"\ufeffa \u0301"]
    odd = [letter for letter in letters if letter.isspace()] * 9
    drawn = ["".join(rng.choice([*letters, *odd], 30)) for _ in range(997)]
    lines = drawn + [unicodedata.normalize("NFD", line) for line in drawn]
    assert texts(clean_text(tf.constant(lines))) == [clean(line) for line in lines]
    # As data are read, and as servers read a text that they may cut: no mark is alone.
    assert clean("\ufeffe\ufeff\u0301\u3000\ufeff x ") == "é x"
    assert all(clean(line.replace("\ufeff", "")) == clean(line) for line in lines)


@pytest.mark.parametrize("count", [1000, 16_000])
def test_first_places_are_found_in_memory_that_is_linear(count, rng):
    tokens = [[f"w{n}" for n in rng.integers(0, 50, size)] for size in (count, 3, 0)]
    others = [[f"w{n}" for n in rng.integers(0, 40, size)] for size in (7, 0, count)]
    first = first_places(tf.ragged.constant(tokens), tf.ragged.constant(others))
    none = tf.int32.max
    wanted = [
        them.index(token) if token in them else none
        for own, them in zip(tokens, others, strict=True)
        for token in own
    ]
    assert first.numpy().tolist() == wanted  # the square of 16,000 would be a tensor of 256 MB


def test_letters_are_the_parts_of_syllables_and_of_accented_letters():
    words = ["한국어", "été", "plain"]
    tokenizer = train_tokenizer("letters", words, 40)
    for word in words:
        assert token_strings(tokenizer, word) == list(unicodedata.normalize("NFD", word))
    assert token_strings(tokenizer, "e\u0301te\u0301") == token_strings(tokenizer, "été")
    assert round_trip(tokenizer, ["국한어", "e\u0301té"]) == ["국한어", "été"]


@pytest.mark.parametrize("name", [*TOKENIZERS, "identity", "bpe"])
def test_special_ids_awkward_texts_and_empty_batches(tokenizers, name, tmp_path):
    tokenizer = tokenizers[name]
    ids = tokenizer.tokenize(tf.constant(AWKWARD))
    assert (ids.nrows(), ids[0].shape) == (len(AWKWARD), (0,))
    assert tokenizer.detokenize(ids.to_tensor()).shape == (len(AWKWARD),)
    nothing = tokenizer.tokenize(tf.zeros((0,), tf.string))
    assert tokenizer.detokenize(nothing.to_tensor()).shape == (0,)
    assert texts(tokenizer.detokenize(tf.zeros((2, 0), tf.int32))) == ["", ""]

    a, b = 7, 9  # the end is where a text ends, special ids are no part of it
    noisy = [[START_ID, a, UNK_ID, b, END_ID, a, b], [a, b] + [PAD_ID] * 5, [END_ID, *[a] * 6]]
    plain = texts(tokenizer.detokenize(tf.constant([[a, b], [a, b], [PAD_ID, PAD_ID]])))
    assert texts(tokenizer.detokenize(tf.constant(noisy))) == plain
    assert plain[0]
    marked = tf.constant([[START_ID, 5, UNK_ID], [6, END_ID, PAD_ID]])
    strings = tokenizer.tokens(marked).numpy().tolist()
    assert [list(map(bool, row)) for row in strings] == [[False, True, True], [True, False, False]]
    assert strings[0][2] == b"<unk>"

    tokenizer.save(tmp_path / "tokenizer.json")
    loaded = load_tokenizer(tmp_path / "tokenizer.json")
    lines = tf.constant(ENGLISH + FRENCH + CHINESE)
    assert (loaded.kind, loaded.vocab_size) == (tokenizer.kind, tokenizer.vocab_size)
    assert loaded.tokenize(lines).to_list() == tokenizer.tokenize(lines).to_list()


def split_words(tokenizer, text):
    tokens = tokenizer.split(tf.constant([text])).flat_values.numpy()
    return [token.decode().removeprefix("▁") for token in tokens]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("L'homme qu’elle n'aime pas.", "L' homme qu’ elle n' aime pas ."),
        ("He doesn't know the boss' name!", "He doesn't know the boss ' name !"),
        ("Aujourd'hui, est-il là ?", "Aujourd'hui , est - il là ?"),
        ("我有3个apple，好。", "我 有 3 个 apple ， 好 。"),
        ("", ""),
    ],
)
def test_words_are_split_at_spaces_elisions_punctuation_and_chinese_characters(
    tokenizers, text, words
):
    assert " ".join(split_words(tokenizers["words"], text)) == words
    pieces = token_strings(tokenizers["words"], "the green apple.")
    assert pieces == ["▁the", "▁green", "▁apple", "."]


@pytest.mark.parametrize("kind", ["sentencepiece", "characters", "letters"])
def test_a_vocabulary_grows_with_the_alphabet_and_says_so(kind, capsys):
    alphabet = [chr(0x4E00 + n) for n in range(307)]
    lines = ["".join(alphabet[n : n + 11]) for n in range(0, 307, 3)]
    tokenizer = train_tokenizer(kind, lines, 50)
    assert tokenizer.vocab_size >= 4 + 307
    assert round_trip(tokenizer, lines) == lines
    assert f"has {tokenizer.vocab_size} tokens, not 50, because the text" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["words", "symbols"])
def test_words_that_a_vocabulary_leaves_out_are_counted(kind, capsys):
    tokenizer = train_tokenizer(kind, ["a b", "a b", "a c", "a d"], 6)
    assert tokenizer.vocab_size == 6
    strings = [token.removeprefix("▁") for token in token_strings(tokenizer, "a  b c d")]
    assert strings == ["a", "b", "<unk>", "<unk>"]  # the most frequent stay
    assert f"leaves out 2 of 4 {kind}, 25.0% of the text" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("kind", "texts", "size", "message"),
    [
        ("words", [" ", ""], 100, "there is no text"),
        ("sentencepiece", ENGLISH, 4, "more than 4 tokens, but it has 4"),
        ("words", ENGLISH, 4, "more than 4 tokens, but it has 4"),
        ("syllables", ENGLISH, 100, "letters, symbols. Received: 'syll"),
    ],
)
def test_what_cannot_be_learnt_is_one_clear_line(kind, texts, size, message):
    with pytest.raises(ValueError, match=message):
        train_tokenizer(kind, texts, size)


@pytest.mark.parametrize(
    "content", ["not json", "{}", '{"kind": "sentencepiece", "model": "eA=="}']
)
def test_a_file_that_is_no_tokenizer_is_refused(content, tmp_path):
    with pytest.raises(ValueError, match=r"tokenizer\.json"):
        load_tokenizer(write(tmp_path / "tokenizer.json", content))


def brute_force_words(words, pieces):
    """Word of the first character of each piece, counting characters."""
    owner = [i for i, word in enumerate(words) for _ in re.sub(r"\s", "", word)]
    result, position = [], 0
    for piece in pieces:
        size = len(piece.replace("▁", ""))
        result.append(owner[position] if size else -1)
        position += size
    return result


def test_pieces_belong_to_the_word_at_their_characters(tokenizers):
    cut = ["▁gr", "een", "▁", "app", "les"]
    assert word_of_piece(["green", "apples"], cut) == [0, 0, -1, 1, 1]
    rng = random.Random(5)
    for line in ENGLISH + FRENCH + CHINESE:
        words = split_words(tokenizers["words"], line)
        joined = "".join(words)
        cuts = sorted(rng.sample(range(1, len(joined)), 3))
        letters = [joined[i:j] for i, j in zip([0, *cuts], [*cuts, None], strict=True)]
        for pieces in (letters, token_strings(tokenizers["identity"], line)):
            one_word = [p for p in pieces if any(p.strip("▁") in word for word in words)]
            if len(one_word) == len(pieces):
                assert word_of_piece(words, pieces) == brute_force_words(words, pieces)


def test_two_tokenizers_of_one_export_stay_two_in_python(tmp_path):
    """Python's loader makes one resource of all that have one name."""

    class Both(tf.Module):
        def __init__(self):
            super().__init__()
            texts = ["she eats an apple"] * 9, ["zwölf Boxkämpfer jagen"] * 9
            self.sides = [train_tokenizer("sentencepiece", text, 50) for text in texts]

        @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
        def pieces(self, text):
            each = zip(("source", "target"), self.sides, strict=True)
            return {name: one.tokens(one.tokenize(text).to_tensor()) for name, one in each}

    made, text = Both(), tf.constant(["she jagen apple zwölf"])
    tf.saved_model.save(made, str(tmp_path), signatures=made.pieces)
    loaded = tf.saved_model.load(str(tmp_path))  # and keeps what is in it alive
    outputs = loaded.signatures["serving_default"](text)
    expected = made.pieces(text)
    assert expected["source"].numpy().tolist() != expected["target"].numpy().tolist()
    for name, tokens in expected.items():
        assert outputs[name].numpy().tolist() == tokens.numpy().tolist(), name


WORDS = ["zero", "one", "two", "three", "four", "five", "six"]
SUMS = [f"{a} plus {b}" for a in WORDS for b in WORDS]


@pytest.mark.parametrize("size", [200, 1500, 8000])
def test_words_of_a_small_vocabulary_are_one_piece(size):
    made = train_tokenizer("sentencepiece", SUMS, size)
    assert token_strings(made, "two plus three") == ["▁two", "▁plus", "▁three"]
    assert token_strings(made, "two plush")[1] == "▁plus"  # what is not known is spelled


def test_a_larger_vocabulary_is_a_unigram_model_and_one_of_no_room_too():
    rng = random.Random(1)
    words = ["".join(rng.choices("abcdefghij", k=5)) for _ in range(MOST_WORDS_OF_BPE + 1)]
    lines = [" ".join(rng.choices(words, k=8)) for _ in range(2 * MOST_WORDS_OF_BPE)]
    cases = (lines, 1500, "unigram"), (SUMS, 22, "unigram"), (SUMS, 300, "bpe")
    for text, size, model_type in cases:
        model = train_sentencepiece(text, size)
        assert model == train_sentencepiece(text, size, model_type=model_type)
