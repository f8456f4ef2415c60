"""Kinds of own data that nobody tuned to, each generated in a few lines: pairs to learn, to test.

`python -m tests.choices.kinds NAME FOLDER` writes `train.tsv` and `test.tsv`. A kind is a function
of a random generator, and of whether the pair is to test, to a pair.
"""

import itertools
import math
import random
import sys
from pathlib import Path

import matplotlib
import numpy as np
from PIL import Image, ImageDraw, ImageFont

LEARNED, TESTED = 2000, 200
_FONTS = Path(matplotlib.get_data_path(), "fonts", "ttf")

_MONTHS = {
    "en": "January February March April May June July August September October November December",
    "de": "Januar Februar März April Mai Juni Juli August September Oktober November Dezember",
    "fr": "janvier février mars avril mai juin juillet août septembre octobre novembre décembre",
}
_FIRST = "Anna Ben Carla David Emma Felix Greta Hugo Ida Jonas Klara Leo Mia Noah Olga Paul"
_SYLLABLES = "ba ber da dor fel gan hol ka lin ma mer nor pel ra sen tor ul win wal zim"
_SMALL = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen "
    "fifteen sixteen seventeen eighteen nineteen"
)
_TENS = "- - twenty thirty forty fifty sixty seventy eighty ninety"
_NAMES = "price order user total item count file path color size index key value row page list tree"
_COMMON = (
    "house people water again friend receive because through necessary tomorrow different "
    "important government business really beginning separate definitely family garden letter "
    "machine number office picture question reason school teacher under village weather yellow"
)
_BEGINNINGS = "b c d f g h l m n p r s t w bl ch st tr"
_CHINESE = (
    "wo3我 ni3你 ta1他 men2们 shi4是 bu4不 le5了 zai4在 you3有 ren2人 zhong1guo2中国 bei3jing1北京 "
    "xue2sheng1学生 lao3shi1老师 xue2xiao4学校 da4xue2大学 peng2you3朋友 jin1tian1今天 "
    "ming2tian1明天 zuo2tian1昨天 chi1fan4吃饭 he1shui3喝水 gong1zuo4工作 dian4hua4电话 "
    "dian4nao3电脑 shi2jian1时间 xian4zai4现在 zhi1dao4知道 xi3huan1喜欢 hen3很 hao3好 shu1书 "
    "kan4看 mai3买 mai4卖 tian1qi4天气 gao1xing4高兴 piao4liang5漂亮 shi4qing2事情 ban4fa3办法 "
    "wen4ti2问题 yi1sheng1医生"
)
_SHOPS = "ALDI REWE SHELL EDEKA OBI IKEA ARAL DM"
_PLACES = "BERLIN BONN MARKT RENT FLAT DANKE KOELN"
# Names, signs and charges of ions.
_METALS = (
    "sodium Na 1,potassium K 1,silver Ag 1,copper(I) Cu 1,lithium Li 1,ammonium NH4 1,calcium Ca 2,"
    "zinc Zn 2,barium Ba 2,iron(II) Fe 2,copper(II) Cu 2,nickel(II) Ni 2,magnesium Mg 2,"
    "strontium Sr 2,cobalt(II) Co 2,iron(III) Fe 3,aluminium Al 3,chromium(III) Cr 3,gallium Ga 3,"
    "tin(IV) Sn 4,lead(IV) Pb 4"
)
_ACIDS = (
    "chloride Cl 1,nitrate NO3 1,bromide Br 1,hydroxide OH 1,acetate CH3COO 1,"
    "hydrogen carbonate HCO3 1,oxide O 2,sulfate SO4 2,sulfide S 2,carbonate CO3 2,"
    "dichromate Cr2O7 2,phosphate PO4 3,nitride N 3"
)
_COUNTS = ["", "mono", "di", "tri", "tetra", "penta", "hexa", "hepta", "octa", "nona", "deca"]
_TYPED = {  # words of a sentence, by their place
    "D": "the this that our their every some",
    "A": "small large early late heavy bright quiet ancient foreign simple public strong",
    "P": "teacher student doctor farmer driver writer painter soldier lawyer nurse artist singer",
    "V": "sees finds loves hates sells brings leaves visits follows helps repairs carries builds",
    "T": "house garden school bridge river island village kitchen window picture letter machine",
    "R": "under behind near before after without across through",
    "W": "today yesterday tomorrow always never often slowly quickly carefully suddenly",
}
_PARTS = "SCR screw,NUT nut,WSH washer,BLT bolt,RVT rivet"
_HEADS = "HX hexagon,CS countersunk,PN pan,SK socket"
_FINISHES = "A2 stainless A2,ZN zinc plated,BR brass"
_SALTS = "Na sodium,K potassium,Li lithium,Ca calcium,Mg magnesium,Al aluminium,Fe iron,Cu copper"
_SALTS += ",Zn zinc,Ag silver"
_RESTS = "Cl chloride,Br bromide,SO4 sulfate,NO3 nitrate,PO4 phosphate,CO3 carbonate,O oxide"
_RESTS += ",S sulfide,ClO3 chlorate,CrO4 chromate"


def _one(r, words):
    return r.choice(words.split())


def _pair(r, pairs):
    """The parts of one of several names: `SCR screw` of `SCR screw,NUT nut`."""
    return r.choice(pairs.split(",")).split(" ", 1)


def _ion(r, ions):
    name, sign, charge = r.choice(ions.split(",")).rsplit(" ", 2)
    return name, sign, int(charge)


def _word(r, syllables=2):
    return "".join(r.choices(_SYLLABLES.split(), k=syllables))


def _numeral(n):
    """The English words of a number below a million."""
    small, tens = _SMALL.split(), _TENS.split()
    if n < 20:
        return small[n]
    if n < 100:
        return tens[n // 10] + (f"-{small[n % 10]}" if n % 10 else "")
    size, name = (100, "hundred") if n < 1000 else (1000, "thousand")
    rest = f" {_numeral(n % size)}" if n % size else ""
    return f"{_numeral(n // size)} {name}{rest}"


def _product(r, sizes, ordered):
    (kind, part), (head, shape), (short, metal) = (_pair(r, x) for x in (_PARTS, _HEADS, _FINISHES))
    wide, long = r.choice([3, 4, 5, 6, 8, 10, 12]), r.choice(sizes)
    pack = r.choice([10, 25, 50, 100])
    code = f"{kind}{head}-M{wide}X{long}-{short}/{pack}"
    if ordered:
        return code, f"{part} {shape} M{wide} x {long} mm {metal} pack of {pack}"
    return code, f"pack of {pack} {metal} {part}s, {long} x M{wide} mm, {shape}"


def products(r, tested):
    return _product(r, list(range(4, 121, 2)), ordered=True)


def descriptions(r, tested):
    """The columns swapped: descriptions to codes."""
    return _product(r, list(range(4, 121, 2)), ordered=False)[::-1]


def products_new_sizes(r, tested):
    """In another order, and sizes that no pair to learn from has."""
    return _product(r, [n for n in range(4, 200, 2) if (n % 14 == 0) == tested], ordered=False)


def _date(r, language):
    year, month, day = r.randrange(1900, 2030), r.randrange(12), r.randrange(1, 29)
    name = _MONTHS[language].split()[month]
    text = {"en": f"{name} {day}, {year}", "de": f"{day}. {name} {year}"}
    return text.get(language, f"{day} {name} {year}"), f"{year}-{month + 1:02}-{day:02}"


def dates(r, tested):
    return _date(r, r.choice(list(_MONTHS)))


def dates_said(r, tested):
    """ISO and the language to a date as people write it."""
    language = r.choice(list(_MONTHS))
    said, iso = _date(r, language)
    return f"{iso} {language}", said


def numerals(r, tested):
    n = r.randrange(10 ** r.randrange(2, 7))
    return str(n), _numeral(n)


def numbers(r, tested):
    return numerals(r, tested)[::-1]


def transliteration(r, tested):
    latin = dict(zip("абвгдезиклмнопрстуфы", "abvgdeziklmnoprstufy", strict=True))
    latin |= {
        "ж": "zh",
        "ш": "sh",
        "щ": "shch",
        "ч": "ch",
        "ю": "yu",
        "я": "ya",
        "х": "kh",
        "ь": "",
    }
    word = "".join(r.choices(list(latin), k=r.randrange(3, 12)))
    return word, "".join(latin[letter] for letter in word)


def pig_latin(r, tested):
    rest = _word(r)
    begin = r.choice(["", *_BEGINNINGS.split()])
    word = "aeiou"[r.randrange(5)] + rest
    return begin + word, word + (begin or "w") + "ay"


def emails(r, tested):
    first, last = _one(r, _FIRST), _word(r, r.randrange(2, 4)).title()
    firm = _word(r).title()
    return f"{first} {last}, {firm} GmbH", f"{first[0]}.{last}@{firm}.de".lower()


def addresses(r, tested):
    street = _one(r, "Linden Bahnhof Haupt Garten Berg Mühlen Kirch Schul")
    street += r.choice(["straße", "weg", "platz", "allee"])
    number, code = f"{r.randrange(1, 200)}{r.choice(['', '', 'a', 'b'])}", r.randrange(10000, 99999)
    city = _one(r, "Neu Alt Ober Unter Groß") + _one(r, "dorf stadt hausen bach feld")
    lines = f"{street} {number}, {code} {city}", f"{code} {city}, {street} {number}"
    return r.choice(lines), f"street={street} number={number} zip={code} city={city}"


def turned(r, tested):
    """Names turned round, most of them new: nothing but the names tells the order."""
    first, last = _one(r, _FIRST), _word(r, r.randrange(2, 4)).title()
    middle = r.choice(["", "", f" {r.choice('ABCDEFG')}."])
    return f"{last}, {first}{middle}", f"{first}{middle} {last}"


def identifiers(r, tested):
    """Names of variables to phrases, of more words than short strings have."""
    words = [r.choice([*_NAMES.split(), _word(r)]) for _ in range(r.randrange(2, 6))]
    return words[0] + "".join(map(str.title, words[1:])), f"{' '.join(words)}.".capitalize()


def _hydrate(count, names=_COUNTS):
    """How a formula and a name tell the water in a salt."""
    return (f"·{count if count > 1 else ''}H2O", f" {names[count]}hydrate") if count else ("", "")


def formulas(r, tested):
    counts = ["", "", *_COUNTS[2:]]
    (m, metal), (a, acid) = _pair(r, _SALTS), _pair(r, _RESTS)
    i, j, n = r.randrange(1, 5), r.randrange(1, 5), r.randrange(8)
    right = a if j == 1 else f"({a}){j}" if any(map(str.isdigit, a)) else f"{a}{j}"
    water, told = _hydrate(n)
    return f"{m}{i if i > 1 else ''}{right}{water}", f"{counts[i]}{metal} {counts[j]}{acid}{told}"


def pinyin(r, tested):
    """Words of Chinese by their syllables: which character depends on the word."""
    drawn = r.choices(_CHINESE.split(), k=r.randrange(2, 7))
    sound = "".join(x for word in drawn for x in word if x.isascii())
    syllables = "".join(x + " " * x.isdigit() for x in sound).split()
    return " ".join(syllables), "".join(x for word in drawn for x in word if not x.isascii())


def tags(r, tested):
    """As many tags as words; many words are new ones, with their endings."""
    phrases = []
    for _ in range(r.randrange(1, 3)):
        phrases += [(r.choice(["the", "a", "this"]), "DET")]
        phrases += [(_word(r) + "ous", "ADJ")] * r.randrange(2)
        phrases += [(_word(r) + "ness", "NOUN"), (_word(r) + "ize", "VERB")]
        phrases += [(r.choice(["in", "on"]), "ADP"), (_word(r) + "ness", "NOUN")] * r.randrange(2)
    return tuple(" ".join(words) for words in zip(*phrases, strict=True))


def misspelled(r, tested):
    """As many words on both sides, which their letters tell."""
    words, said = [_one(r, _COMMON) for _ in range(r.randrange(2, 5))], []
    for word in words:
        place = r.randrange(1, len(word) - 1)
        left, letter, right = word[:place], word[place], word[place + 1 :]
        wrong = [left + right, left + letter + letter + right, left + _one(r, "a e i o") + right]
        said.append(r.choice([word, *wrong]))
    return " ".join(said), " ".join(words)


def sentences(r, tested):
    """Few sentences of one pattern."""
    nouns, words = (
        "dog Hund,man Mann,king König,tree Baum,day Tag",
        "small kleine,old alte,good gute",
    )
    verbs = "sees sieht,loves liebt,finds findet,knows kennt"
    (a, b), (c, d), (e, f), (g, h) = (_pair(r, x) for x in (nouns, verbs, words, nouns))
    return f"The {e} {a} {c} the {g}.", f"Der {f} {b} {d} den {h}en."


def ledger(r, tested):
    """Lines of a bank: the date to ISO, the decimal comma to a point, and the rest kept."""
    day, month, year = r.randrange(1, 29), r.randrange(1, 13), r.randrange(2005, 2027)
    payee = f"{_one(r, _SHOPS) if r.random() < 0.5 else _word(r).upper()} {_one(r, _PLACES)}"
    euros, cents = r.randrange(1, 300), f"{r.randrange(100):02}"
    line = f"{payee} {_word(r)} {euros}"
    written = f"{day:02}.{month:02}.{year} {line},{cents}"
    return written, f"{year}-{month:02}-{day:02} {line}.{cents}"


def cipher(r, tested):
    """A shift and a word, to the word with every letter shifted: no letter tells another."""
    shift, letters = r.randrange(1, 9), "etaoinshrdlucmfwypvbgk"
    word = "".join(r.choices(letters, weights=range(24, 2, -1), k=r.randrange(3, 11)))
    shifted = "".join(chr((ord(letter) - 97 + shift) % 26 + 97) for letter in word)
    return f"{shift} {word}", shifted


def salts(r, tested):
    """Names of salts to formulas, whose counts depend on both ions."""
    (metal, sign, charge), (acid, rest, other) = _ion(r, _METALS), _ion(r, _ACIDS)
    common = math.gcd(charge, other)
    water, told = _hydrate(r.randrange(len(_COUNTS)))
    formula = _counted(sign, other // common) + _counted(rest, charge // common)
    return f"{metal} {acid}{told}", formula + water


def _counted(ion, count):
    """An ion and its number in a formula, in brackets if the ion has several atoms."""
    single = sum(map(str.isupper, ion)) == 1 and not any(map(str.isdigit, ion))
    return ion if count == 1 else f"{ion}{count}" if single else f"({ion}){count}"


def typos(r, tested):
    """Sentences with one or two words mistyped."""
    shape = r.choice(["D P V D A T", "D A P V D T R D T", "D P V D T W", "D A P V D A T W"])
    words = [_one(r, _TYPED[place]) for place in shape.split()]
    typed = list(words)
    for _ in range(r.choice([1, 1, 2])):
        number = r.choice([n for n, word in enumerate(words) if len(word) > 3])
        word, at = words[number], r.randrange(1, len(words[number]) - 1)
        left, letter, right = word[:at], word[at], word[at + 1 :]
        swapped = left + right[0] + letter + right[1:]
        wrong = [left + right, left + 2 * letter + right, swapped, left + _one(r, "a e o") + right]
        typed[number] = r.choice(wrong)
    return f"{' '.join(typed)}.".capitalize(), f"{' '.join(words)}.".capitalize()


def draw(name):
    """Pairs to learn from and pairs to test, whose sources are others."""
    r, seen, kind = random.Random(7), set(), globals()[name]

    def new(tested):
        for _ in range(100_000):
            source, target = kind(r, tested)
            if source not in seen:
                seen.add(source)
                yield source, target

    own = list(itertools.islice(new(False), 100 if name == "sentences" else LEARNED))
    return own, list(itertools.islice(new(True), TESTED))


def write(path, pairs):
    lines = "".join(f"{source}\t{target}\n" for source, target in pairs)
    path.write_text(lines, encoding="utf-8")


def draw_lines(folder, count, seed):
    """Write lines of text of 640 x 32 pixels, in two fonts of several sizes under noise."""
    r, noise, serif = random.Random(seed), np.random.default_rng(seed), _FONTS / "DejaVuSerif.ttf"
    folder.mkdir()
    labels = []
    for number in range(count):
        text = f"{_one(r, _NAMES)} {_one(r, _COMMON)} {r.randrange(100_000)} {_word(r)}"
        plain, size = ImageFont.load_default(r.randrange(19, 25)), r.randrange(16, 21)
        font = r.choice([plain, ImageFont.truetype(str(serif), size)])
        image = Image.new("L", (640, 32), r.randrange(200, 256))
        at = r.randrange(5, 40), r.randrange(6)
        ImageDraw.Draw(image).text(at, text, fill=r.randrange(90), font=font)
        pixels = np.asarray(image) + noise.normal(0, r.uniform(2, 12), (32, 640))
        Image.fromarray(pixels.clip(0, 255).astype("uint8")).save(folder / f"{number}.png")
        labels.append((f"{number}.png", text))
    write(folder / "labels.tsv", labels)


if __name__ == "__main__":
    for part, pairs in zip(("train", "test"), draw(sys.argv[1]), strict=True):
        Path(sys.argv[2]).mkdir(parents=True, exist_ok=True)
        write(Path(sys.argv[2], f"{part}.tsv"), pairs)
