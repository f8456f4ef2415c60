"""Tokenizers: one table of cases, written by training's, which every other execution answers."""

import base64
import io
import itertools
import random
import unicodedata
from typing import NamedTuple

import pytest
import sentencepiece
import tensorflow as tf

from serving.portable.engine._graphs import Numbers
from serving.portable.engine._pack import read_tokenizer
from serving.portable.read._tokenizers import Vocabulary, load_tokenizer, without_special
from serving.portable.write._graphs import _write_tokenizer
from tests.attack.conftest import within
from tests.serving.javascript import needs_node, run
from training.data.read import texts as corpus
from training.data.rules import END_ID, UNK_ID
from training.data.tokens.pieces import train_sentencepiece
from training.data.tokens.tokenizers import SentencePieceTokenizer, tokenizer_of, train_vocabulary

LINES = [
    "She is eating a green apple, isn't she?",
    "Il n'aime pas l'été : « jusqu'à 3,5 % ».",
    "他不喜欢苹果。ひらがなとカタカナ 한국어",
    "DH AH0 K AE1 T",
    "naïve ﬁancé  ½ kg\tİstanbul ǅ x² a\u0301",
]
# Alphabets without capitals, in which capitals and letters with marks are read by the tables.
ALPHABETS = {
    "turkish": "abcçdefgğhıijklmnoöprsştuüvyz â ",
    "greek": "αάβγδεέζηήθιίϊΐκλμνξοόπρσςτυύϋΰφχψωώ ",
    "others": "aäbéñoößsǆა한국어 ա ӥ q\u0308 ij ",
    "parts": "ñu Élan İş qırım ज\u093cमीन फक か\u309aぱ ẹ\u0301ọẹ آب",
}
CASED = [
    *(
        "IŞIK Işık İSTANBUL I\u0307 İ\u0323 i\u0307",
        "ΛΌΓΟΣ ΑΣ ΣΑΣ, Σ. ΟΔΥΣΣΕΎΣ ΆΣ1 ς½Σ",
        "ẞ ǅ Ǆ Აა Ӥ Q\u0308",
    ),
    *(
        "ä ë ï Ä bär noël ÿ Ñ 한글 각 q\u0308 q\u0301 x\u0308",
        "IJ Ĳ ĳ ß SS",
        "Emma élan ÉLAN n N Ñ e E IRI İRİ Ş S क\u093c ज\u093c फ\u093c か は ば か\u309a",
        "ẹ\u0300 Ẹ\u0301 ọ\u0301 أب ا \u0653",
        "\u0308a \u0301\u0308",
    ),
]
ODD = [
    "",
    " ",
    "\u200b",
    "a\x00b",
    "▁▁ a▁b",
    "\ufffd",
    "\u3000全　角",
    "e\u0301\u0301",
    "e\ufeff\u0301",
    "'’ l'a",
]
RANGES = [
    *((32, 127), (0xA0, 0x250), (0x300, 0x370), (0x1100, 0x1200), (0x2000, 0x2100)),
    *((0x3000, 0x3100), (0x4E00, 0x4E40), (0xAC00, 0xAC20), (0xFF00, 0xFFEF)),
    *((0x1F600, 0x1F640), (0, 32), (0x1D400, 0x1D440)),
]
PIECES = {"unigram": "nmt_nfkc", "bpe": "identity"}  # SentencePiece's models, and how they clean
IN_NODE = """
import { readFileSync } from "node:fs";
import { withNumbers } from "engine/model.js";
import { makeTokenizer } from "engine/tokenizers.js";
const { about, numbers, texts, ids } = JSON.parse(readFileSync(0, "utf8"));
const bytes = Uint8Array.from(Buffer.from(numbers, "base64")).buffer;
const made = makeTokenizer(about.kind === "sentencepiece" ? withNumbers(about, bytes) : about);
const encoded = texts.map((text) => made.encode(text));
const decoded = ids.map((each) => made.decode(each));
const tokens = ids.map((each) => each.map((id) => made.token(id)));
const unknown = texts.map((text) => made.unseen?.(text) ?? "");
process.stdout.write(JSON.stringify({ encoded, decoded, tokens, unknown }));
"""


class Case(NamedTuple):
    """A tokenizer in an export's folder, and its answers as training gives them."""

    folder: object
    entry: dict
    ids: list
    answers: dict


@pytest.fixture(scope="module")
def texts():
    """1,000: sentences, odd ones, and random strings of characters from everywhere."""
    rng = random.Random(7)
    sentences = corpus.load("phrasebook-en-fr", "train", limit=300).sources
    chinese = corpus.load("phrasebook-en-zh", "train", limit=300)
    sentences += [target for _, target in chinese.pairs()]
    made = [
        "".join(chr(rng.randrange(*rng.choice(RANGES))) for _ in range(rng.randrange(1, 24)))
        for _ in range(1_000 - len(sentences) - len(LINES) - len(ODD))
    ]
    return [*sentences, *LINES, *ODD, *made, *CASED, *ALPHABETS.values()]


def decoded(strings):
    return [text.decode() for text in strings.numpy()]


KINDS = [*PIECES, "words", "characters", "letters", "symbols"]
KINDS += [f"{kind} {name}" for name in ALPHABETS for kind in ("letters", "characters")]


@pytest.fixture(scope="module", params=KINDS)
def case(request, texts, tmp_path_factory):
    kind, _, alphabet = request.param.partition(" ")
    folder = tmp_path_factory.mktemp(kind)
    lines = [text for text in texts[:900] if text.strip()] + LINES * 9
    if kind in PIECES:
        options = {"model_type": kind, "normalization": PIECES[kind]}
        tokenizer = SentencePieceTokenizer(train_sentencepiece(lines, 1500, **options))
    else:
        tokenizer = train_vocabulary(kind, [ALPHABETS[alphabet]] if alphabet else lines[::2], 5_000)
    rng, size = random.Random(9), tokenizer.vocab_size
    encoded = tokenizer.tokenize(tf.constant(texts)).to_list()
    ids = [without_special(each) for each in encoded]
    ids += [[rng.randrange(END_ID + 1, size) for _ in range(7)] for _ in range(200)]
    ragged = tf.ragged.constant(ids, tf.int32)
    flat = iter(decoded(tokenizer.tokens(ragged.flat_values)))
    answers = {
        "encoded": encoded,
        "decoded": decoded(tokenizer.detokenize(ragged.to_tensor())),
        "tokens": [list(itertools.islice(flat, len(each))) for each in ids],
        "unknown": decoded(tokenizer.unknown(tf.constant(texts))),
    }
    assert any(answers["unknown"]) == (kind in ("characters", "letters"))
    assert any(UNK_ID in each for each in encoded)
    return Case(folder, _write_tokenizer(tokenizer, folder, "source"), ids, answers)


def test_python_answers_as_training(case, texts):
    local = load_tokenizer(case.folder, case.entry)
    assert local.encode(texts) == case.answers["encoded"]
    assert [local.decode(each) for each in case.ids] == case.answers["decoded"]
    assert [[*map(local.token, each)] for each in case.ids] == case.answers["tokens"]
    if isinstance(local, Vocabulary):
        assert [local.unknown(text) for text in texts] == case.answers["unknown"]


@needs_node
def test_javascript_answers_as_training(case, texts):
    numbers = Numbers()
    about = read_tokenizer(case.folder, case.entry, numbers)
    given = {"about": about, "numbers": base64.b64encode(numbers.tobytes()).decode()}
    found = run(IN_NODE, given={**given, "texts": texts, "ids": case.ids})
    for name, answers in case.answers.items():
        assert found[name] == answers, name


BOTH = "characters letters"
# By the lines of training: a text, the small letters that it is read as if these are certain, and
# the letters that training never saw. "*" stands for an unknown one.
READ_AS = [
    (BOTH, ALPHABETS["turkish"], "IŞIK Isparta İSTANBUL", "ışık ısparta istanbul", ""),
    (BOTH, ALPHABETS["turkish"], "I\u0307ki ÂŞIĞI", "iki âşığı", ""),
    (BOTH, ALPHABETS["greek"], "ΛΌΓΟΣ ΑΣ ΣΑΣ. ΟΔΥΣΣΈΑΣ Σ", "λόγος ας σας* οδυσσέας σ", "."),
    (BOTH, ALPHABETS["others"], "ẞ ǅ Ა Ӥ Ñ Q\u0308 IJ I", "ß ǆ ა ӥ ñ q\u0308 ij i", ""),
    # E of É, I of İ: their vectors are hardly trained.
    ("letters", "Élan emma İş qırım bir Été", "EMMA ÉLAN QIRIM İRİ", "emma élan qırım iri", ""),
    (BOTH, "abcemC", "MACEBE", "maCebe", ""),  # of C alone there is a capital
    (BOTH, "abcemC", "mac3be\ufeff", "mac*be", "3"),
    (BOTH, "abcemC", "X.", "**", "X."),
    (BOTH, "ñu un", "nñ NÑ", "nñ nñ", ""),
    (BOTH, "ñu x", "nñ NÑ", None, "nN"),  # n was seen only as a part of ñ
    (BOTH, "ज\u093cमीन फक", "ज\u093cम फ\u093cक क\u093c", None, "फ\u093cक\u093c"),
    (BOTH, "か\u309aぱ か", "か\u309a か ぱ は", None, "は"),
    (BOTH, "ẹ\u0301ẹọ x", "ẹ\u0301 ẹ\u0300 Ẹ\u0301 ọ\u0301 Ọ", None, "ẹ\u0300ọ\u0301"),
    (BOTH, "آب x", "آب ا أ", None, "اأ"),
    (BOTH, "ệế x", "Ệ ê ẹ ề", None, "êẹề"),
    (BOTH, "한국 말", "한말 ᄒ", None, "ᄒ"),
    (BOTH, "ﬁ²Ａ", "fi2A", None, "fi2A"),
]


@pytest.mark.parametrize(("kinds", "line", "text", "small", "unknown"), READ_AS)
def test_capitals_are_small_letters_and_what_training_never_saw_is_named(
    kinds, line, text, small, unknown
):
    for kind in kinds.split():
        made = train_vocabulary(kind, [line], 99)
        local = Vocabulary(made.state())
        told = made.unknown(tf.constant([text])).numpy()[0].decode()
        assert local.unknown(text) == told == unicodedata.normalize("NFC", unknown)
        assert local.unknown(line) == ""
        encoded = local.encode([text])
        assert made.tokenize(tf.constant([text])).to_list() == encoded
        if small:
            assert encoded == [[local._ids.get(x, UNK_ID) for x in local.split(small)]]


@pytest.mark.parametrize("alphabet", ALPHABETS)
def test_a_letter_is_known_as_a_whole_alone(alphabet):
    made = train_vocabulary("letters", [ALPHABETS[alphabet]], 99)
    seen = {*unicodedata.normalize("NFC", ALPHABETS[alphabet])}
    parts = [*unicodedata.normalize("NFD", ALPHABETS[alphabet])]
    marks = [part for part in parts if unicodedata.combining(part)]
    pairs = itertools.product((x for x in parts if not unicodedata.combining(x)), marks)
    letters = {unicodedata.normalize("NFC", base + mark) for base, mark in pairs}
    letters = sorted(letter for letter in letters if len(letter) == 1)
    for given in (letters, [letter.upper() for letter in letters]):
        wanted = [
            "" if {small, small.upper(), small.lower()} & seen or "가" <= small <= "힣" else letter
            for letter, small in zip(given, letters, strict=True)
        ]
        assert decoded(made.unknown(tf.constant(given, tf.string))) == wanted
    assert decoded(made.unknown(tf.constant([ALPHABETS[alphabet]]))) == [""]


def test_files_of_earlier_versions_are_read_as_they_were():
    state = {"kind": "letters", "tokens": [*"aobn", "\u0308"], "cases": {"A": "a", "O": "o"}}
    state["wholes"] = ["Ä", "ä"]
    for made in (tokenizer_of(state), tokenizer_of(tokenizer_of(state).state())):
        (told,) = decoded(made.unknown(tf.constant(["AÄÖöbB"])))
        assert Vocabulary(made.state()).unknown("AÄÖöbB") == told == "ÖöB"
    state = {"kind": "letters", "tokens": [*"abıo", "\u0308"]}
    texts, ids = ["ÄÖI", "äö"], [[4, 8, 7, 8, 1], [4, 8, 7, 8]]
    assert Vocabulary(state).encode(texts) == ids
    assert tokenizer_of(state).tokenize(tf.constant(texts)).to_list() == ids
    assert Vocabulary(state).unknown("ÄÖI") == "I"


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
