"""Lines of files, held to what Python's csv module and unicodedata make of them, and to lists."""

import bz2
import csv
import gzip
import io
import lzma
import os
import random
import re
import subprocess
import zipfile
from functools import partial

import pytest

from tests.training.data.files import DICTIONARIES, LEXICON, write
from training.data.read import _files as files
from training.data.read import _pairs as lines
from training.data.read._specs import CorpusError, Spec
from training.data.read.texts import sample_pairs

PAIRS = [('He said "hi".', "Il dit « salut »."), ("Go!", 'Va "vite" !'), ("No", "Non")] * 31


def read_split(spec):
    return lines.read_split(Spec.of(spec), files.read_blocks(Spec.of(spec)))


def read_blocks(spec, size):
    return files.read_blocks(Spec.of(spec), size)


def surveyed(spec, size=1 << 20):
    return lines.survey(Spec.of(spec), partial(read_blocks, spec, size))


@pytest.mark.parametrize("quoting", [csv.QUOTE_ALL, csv.QUOTE_MINIMAL])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_quotes_of_spreadsheets_are_no_part_of_a_text(tmp_path, quoting, mark, capsys):
    text = io.StringIO()
    csv.writer(text, delimiter="\t", quoting=quoting).writerows(PAIRS)
    path = write(tmp_path / "pairs.tsv", mark + text.getvalue())
    assert read_split(f"tsv:{path}").pairs() == PAIRS
    assert "in quotes" in capsys.readouterr().out
    assert "in quotes" in surveyed(f"tsv:{path}").notes[0]


@pytest.mark.parametrize("within", ["\n", "\r\n", "\t", '"\n\t'])
def test_a_quoted_text_may_have_tabs_and_line_ends(tmp_path, within):
    pairs = [(f"a {n}{within}b", f"c{within} {n}") for n in range(97)]
    text = io.StringIO()
    csv.writer(text, delimiter="\t").writerows([*pairs, ("no target", "")])
    path = write(tmp_path / "pairs.tsv", text.getvalue())
    expected = [tuple(" ".join(side.split()) for side in pair) for pair in pairs]
    for size in (101, 1 << 20):
        blocks = list(read_blocks(f"tsv:{path}", size))
        assert sum(block.lines for block in blocks) == text.getvalue().count("\n")
    split = read_split(f"tsv:{path}")
    assert (split.pairs(), split.unusable) == (expected, 1)
    write(path, text.getvalue() + 'a\t"b\n' + "x\ty\n" * 40_000)
    with pytest.raises(CorpusError, match=r"line \d+: field larger than field limit"):
        read_split(f"tsv:{path}")


def test_quotes_of_texts_stay(tmp_path, capsys):
    pairs = [('"Hi," he said', '"Oui", dit-il'), ('"All of it."', '"Tout."'), ("No", "Non")] * 31
    path = write(tmp_path / "pairs.tsv", "".join(f"{a}\t{b}\n" for a, b in pairs))
    assert read_split(f"tsv:{path}").pairs() == pairs
    assert (surveyed(f"tsv:{path}").notes, capsys.readouterr().out) == ((), "")
    pairs = [("One", "Un"), ('"I came.', "Je vins."), ("I saw.", "Je vis."), ('I won."', "Fini.")]
    write(path, "".join(f"{a}\t{b}\n" for a, b in pairs))
    assert read_split(f"tsv:{path}").pairs() == pairs  # not what is between the quotes as one


def in_archive(data):
    with zipfile.ZipFile(file := io.BytesIO(), "w") as archive:
        archive.writestr("sheet1.xml", data)
    return file.getvalue()


@pytest.mark.parametrize(
    ("made", "said"),
    [
        *((name, "iconv -f UTF-16") for name in ("utf-16", "utf-16-le", "utf-16-be", "utf-32")),
        *(("utf-32-le", "iconv -f UTF-16"), ("latin-1", "iconv -f LATIN1")),
        ("cp1252", "iconv -f LATIN1"),
        (gzip.compress, "compressed by gzip. Give it a name that ends in .gz"),
        (bz2.compress, "compressed by bzip2. Decompress it with bunzip2"),
        (lzma.compress, "compressed by xz. Decompress it with unxz"),
        (in_archive, "a ZIP archive, such as a spreadsheet. Save it as text"),
        (lambda data: data + b"a\0b\tc\n", r"NUL characters. Remove them: tr -d '\000'"),
        (lambda data: b"\0" + data, r"NUL characters. Remove them: tr -d '\000'"),
    ],
)
def test_files_that_are_no_text_in_utf_8_are_called_what_they_are(tmp_path, made, said):
    text = "".join(f"{a}\té{b}\n" for a, b in PAIRS)
    path = tmp_path / "pairs.tsv"
    write(path, text.encode(made) if isinstance(made, str) else made(text.encode()))
    for read in (read_split, surveyed, sample_pairs):
        wanted = rf"line \d+ is not UTF-8 text.*{re.escape(said)}"
        with pytest.raises(CorpusError, match=wanted):
            read(f"tsv:{path}")
    (tmp_path / "pairs.tsv.gz").write_bytes(b"a\tb\n")
    with pytest.raises(CorpusError, match=r"Not a gzipped file.*rename it where it is not packed"):
        read_split(f"tsv:{tmp_path / 'pairs.tsv.gz'}")


def test_a_line_ends_with_a_line_feed_alone(tmp_path):
    separators = "\u2028\u2029\x85\x0b\x0c\x1c\x1d\x1e"
    sources = [f"a{separator}b" for separator in separators]
    path = write(tmp_path / "s", "".join(f"{source}\n" for source in sources))
    other = write(tmp_path / "t", "c\r\n" * len(sources))
    expected = [("a b", "c")] * len(sources)
    assert read_split(f"parallel:{path},{other}").pairs() == expected
    both = write(tmp_path / "both.tsv", "".join(f"{source}\tc\r\n" for source in sources))
    assert read_split(f"tsv:{both}").pairs() == sample_pairs(f"tsv:{both}")[1] == expected
    write(both, "a\tb\rc\td\r")
    with pytest.raises(CorpusError, match="has the line ends of old Macs"):
        read_split(f"tsv:{both}")


def test_lines_of_several_ends_are_told(tmp_path, capsys):
    path = write(tmp_path / "pairs.tsv", "a\tb\r\n" * 7 + "c\td\re\tf\r\n")
    assert len(read_split(f"tsv:{path}").pairs()) == 8
    assert f"{path}: 1 CR within lines end none" in capsys.readouterr().out


@pytest.mark.parametrize("header", ["word\tpronunciation", "mot\tprononciation", "w\tp"])
def test_a_header_of_a_dictionary_is_told(tmp_path, capsys, header):
    path = write(tmp_path / "list.tsv", f"{header}\n" + "ab\tA B\nba\tB A\na\tA\n" * 31)
    read_split(f"tsv:{path}")
    assert (
        f"line 1, {header.replace(chr(9), ' TAB ')}, is read as a pair" in capsys.readouterr().out
    )
    for first in ("aq\tA Q\n", "a\tA\n"):
        write(path, first + "ab\tA B\nba\tB A\n" * 31)
        read_split(f"tsv:{path}")
    assert capsys.readouterr().out == ""


def test_texts_are_nfc_with_single_spaces_and_without_marks_of_joined_files(tmp_path):
    lines = "\ufeff cafe\u0301  noir\tÇa\u202fva\u00a0? \n\ufeffc\td\ne\tf\ufeffg\th\n"
    path = write(tmp_path / "pairs.tsv", lines)
    assert read_split(f"tsv:{path}").pairs() == [("café noir", "Ça va ?"), ("c", "d"), ("e", "fg")]


def test_what_can_be_read_once_alone_is_refused_at_once(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (pipe, "/dev/zero"):
        with pytest.raises(
            CorpusError, match="is a pipe, but the trainer reads data several times"
        ):
            read_split(f"tsv:{path}")


def test_a_home_directory_is_found(tmp_path, monkeypatch):
    write(tmp_path / "pairs.tsv", "a\tb\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert read_split("tsv:~/pairs.tsv").pairs() == [("a", "b")]


@pytest.mark.parametrize("content", [b"\0", b"\n"])
def test_a_large_file_without_pairs_is_not_read_whole(tmp_path, monkeypatch, content):
    """One pass finds its form, and the first block of a pass that there is no pair."""
    path, taken = write(tmp_path / "pairs.tsv.gz", content * (16 << 20)), []

    class Counted(gzip.GzipFile):
        def read(self, size=-1):
            data = super().read(size)
            taken.append(len(data))
            return data

    monkeypatch.setattr(gzip, "GzipFile", Counted)
    for read in (surveyed, read_split):
        with pytest.raises(CorpusError):
            read(f"tsv:{path}")
    assert 0 < sum(taken) <= 24 << 20


def test_a_third_column_is_said_or_refused(tmp_path):
    path = write(tmp_path / "pairs.tsv", "".join(f"s{i}s\tt{i}t\tCC {i}\n" for i in range(97)))
    (note,) = surveyed(f"tsv:{path}").notes
    assert note.startswith(
        f"tsv:{path}: only the first two columns are read. Choose others: cut -f"
    )
    assert surveyed(f"multiref:{path}").notes == ()
    rows = [f"lemma{i % 13}\tform{i}\tV;{i % 7}\n" for i in range(91)]
    write(path, "".join(rows))
    with pytest.raises(CorpusError, match="91 of 91 lines have a source with several targets"):
        surveyed(f"tsv:{path}")


@pytest.mark.parametrize("size", [1, 97, 1 << 20])
def test_blocks_have_all_lines_in_their_order(tmp_path, size):
    rng = random.Random(5)
    lines = ["a" * rng.randint(0, 40) + "\t" + "b" * rng.randint(1, 9) for _ in range(211)]
    path = write(tmp_path / "pairs.tsv.gz", "\n".join(lines))
    blocks = list(read_blocks(f"tsv:{path}", size))
    assert b"".join(block.data for block in blocks).decode().split("\n")[:211] == lines
    counts = [block.data.rstrip(b"\n").count(b"\n") + 1 for block in blocks]
    assert [block.first for block in blocks] == [1 + sum(counts[:i]) for i in range(len(counts))]


def test_a_sample_is_drawn_evenly(tmp_path, monkeypatch):
    path = write(tmp_path / "pairs.tsv", "".join(f"s{i:06d}\tt\n" for i in range(20_011)))
    monkeypatch.setattr("training.data.read._pairs.SAMPLE_BYTES", 20_000)
    source = surveyed(f"tsv:{path}", 5003)
    lines, drawn = source.lines, source.sample
    assert lines == 20_011
    rows = [int(line[1:7]) for line in drawn.data.splitlines()]
    assert 1500 < len(rows) < 2500
    assert rows == sorted(set(rows))
    assert 8_500 < sum(rows) / len(rows) < 11_500
    count, pairs = sample_pairs(f"tsv:{path}")
    assert count == 20_011
    assert 1500 < len(pairs) < 2500


def test_a_long_line_is_left_out(tmp_path):
    lines = [f"s{i}\tt{i}" for i in range(40)]
    path = write(tmp_path / "pairs.tsv.gz", "\n".join([*lines, "long " * 20_000 + "\tx", "s\tt"]))
    assert gzip.decompress(path.read_bytes()).count(b"\n") == 41
    split = read_split(f"tsv:{path}")
    assert (len(split.sources), split.unusable) == (41, 1)


@pytest.mark.parametrize("place", [3, 3000, 5990])
def test_quotes_are_decided_from_the_whole_file(tmp_path, place):
    pairs = [(f"source number {i} of many", f"cible numéro {i}") for i in range(6000)]
    pairs[place] = ('He said "no".', 'Il a dit "non".')
    text = io.StringIO()
    csv.writer(text, delimiter="\t", lineterminator="\n").writerows(pairs)
    for name in ("pairs.tsv", "pairs.tsv.gz"):
        assert read_split(f"tsv:{write(tmp_path / name, text.getvalue())}").pairs() == pairs
    assert sample_pairs(f"tsv:{tmp_path / name}")[1] == pairs
    natural = "".join(f"{a}\t{b}\n" for a, b in [*pairs, ('"Yes," he said', "Oui")] * 2)
    path = write(tmp_path / "pairs.tsv", natural)
    assert ('"Yes," he said', "Oui") in read_split(f"tsv:{path}").pairs()


@pytest.mark.parametrize("name", DICTIONARIES)
@pytest.mark.parametrize("times", [3, 400])
def test_dictionaries_are_read_without_their_notes(tmp_path, capsys, name, times):
    content = DICTIONARIES[name] * times
    path = write(tmp_path / "list.dict", content)
    assert read_split(f"tsv:{path}").pairs() == LEXICON * times
    noted = any(sign in content for sign in ("(", "#", "0.2", "1e-3", ";", "[", "0.5"))
    assert ("a pronouncing dictionary" in capsys.readouterr().out) == noted
    assert sample_pairs(f"tsv:{path}")[1] == LEXICON * times


@pytest.mark.parametrize("pair", [("word(2)", "W ER D"), ('"a"', '"b ""c"""')])
def test_two_files_are_read_as_they_are(tmp_path, capsys, pair):
    rows = [pair, ("ab", "A B"), ("ba", "B A")] if "word" in pair[0] else [pair] * 3
    path = write(tmp_path / "pairs.tsv", "".join(f"{a}\t{b}\n" for a, b in rows * 40))
    assert pair not in read_split(f"tsv:{path}").pairs()
    assert "parallel:SOURCE,TARGET, are read as they are" in capsys.readouterr().out
    files = [write(tmp_path / str(n), "".join(f"{row[n]}\n" for row in rows * 40)) for n in (0, 1)]
    assert read_split(f"parallel:{files[0]},{files[1]}").pairs() == rows * 40
    assert capsys.readouterr().out == ""


def test_texts_like_notes_stay_where_there_is_no_dictionary(tmp_path, capsys):
    pairs = [(f"f({i})", f"Nummer {i} # von vielen, ;;; {i}") for i in range(300)]
    path = write(tmp_path / "pairs.tsv", "".join(f"{a}\t{b}\n" for a, b in pairs))
    assert read_split(f"tsv:{path}").pairs() == pairs
    # A phone that is "#", between words.
    pairs = [("ab", "a # b #"), ("abc", "a # b c"), ("bc", "b # c #")] * 5
    write(path, "".join(f"{a}\t{b}\n" for a, b in pairs))
    assert read_split(f"tsv:{path}").pairs() == pairs
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("place", [0, 3, 6])
def test_a_raw_quote_next_to_quoted_texts_is_told(tmp_path, capsys, place):
    """All quotes are learned then: whether they enclose texts is not sure."""
    rows = [f'"a house {i}"\t"une maison {i}"\n' for i in range(6)]
    raw = 'a 5" pipe \u200b\tun tuyau\n'
    doubled = [f'"a ""house"" {i}"\tune maison {i}\n' for i in range(12)]
    for quoted in (rows, doubled):
        path = write(tmp_path / "my.tsv", "".join([*quoted[:place], raw, *quoted[place:]]))
        assert read_split(f"tsv:{path}").pairs()[place][0].startswith('a 5" pipe')
        said = capsys.readouterr().out
        assert "quotes around 12 texts are read as parts of them, because 1 text has" in said
        assert 'of another form: a 5" pipe <U+200B>. ' in said
        write(path, "".join(quoted))
        read_split(f"tsv:{path}")
        assert "are read as parts of them, because" not in capsys.readouterr().out


def repaired(path, error):
    """Run the command of an error, and return the pairs of the file that it writes."""
    command = re.search(r"To write tabs: (.*)", str(error.value))[1]
    subprocess.run(["bash", "-c", command], check=True, cwd=path.parent)
    return read_split(f"tsv:{path.parent / 'new.tsv'}").pairs()


@pytest.mark.parametrize(
    ("line", "name", "pair"),
    [
        ("hello,bonjour le monde {}", "commas", ("hello", "bonjour le monde {}")),
        ("hello, bonjour le monde {}\r", "commas", ("hello", "bonjour le monde {}")),
        ('"a house, {}",une maison', "commas", ("a house, {}", "une maison")),
        ('a house {}, "une, maison"', "commas", ("a house {}", "une, maison")),
        ('"a ""house"" {}",une maison', "commas", ('a "house" {}', "une maison")),
        ('"a house; {}";"une maison"', "semicolons", ("a house; {}", "une maison")),
        ("3,5 May {};2024-05-03", "semicolons", ("3,5 May {}", "2024-05-03")),
        ('a house | "une | maison" {}', "bars", ("a house", "une | maison {}")),
        ("a house number {}    une maison", "spaces", ("a house number {}", "une maison")),
        ("hello bonjour{}", "spaces", ("hello", "bonjour{}")),
        ("a house ||| une maison {}", "triple bars", ("a house", "une maison {}")),
        ("家\u3000une maison {}", "spaces", ("家", "une maison {}")),
        ("a house\\tune maison {}", r"letters \\t", ("a house", "une maison {}")),
        ("a house → une maison {}", "arrows", ("a house", "une maison {}")),
        ("a house = une maison {}", "equals signs", ("a house", "une maison {}")),
        ("a house – une maison {}", "dashes", ("a house", "une maison {}")),
        ("house: maison {}", "colons", ("house", "maison {}")),
        ("家：une maison {}", "full-width colons", ("家", "une maison {}")),
        ("家，maison{}", "full-width commas", ("家", "maison{}")),
        ("家；maison{}", "full-width semicolons", ("家", "maison{}")),
        ("بيت، maison {}", "Arabic commas", ("بيت", "maison {}")),
        ("a house~une maison {}", "tildes", ("a house", "une maison {}")),
        ("a house / une maison {}", "slashes", ("a house", "une maison {}")),
        ("a house || une maison {}", "triple bars", ("a house", "une maison {}")),
        (
            '{{"en": "a house, {}", "fr": "une maison"}},',
            "braces of JSON",
            ("a house, {}", "une maison"),
        ),
        ('["a house, {}", "une maison"]', "braces of JSON", ("a house, {}", "une maison")),
    ],
)
@pytest.mark.parametrize("file", ["my pairs.csv", "pairs.csv.gz"])
def test_other_separators_are_told_with_the_command_that_makes_tabs(
    tmp_path, line, name, pair, file
):
    path = write(tmp_path / file, "\ufeff" + "".join(line.format(i) + "\n" for i in range(97)))
    for read in (read_split, surveyed, sample_pairs):
        with pytest.raises(CorpusError, match=f"They have {name} instead of tabs") as error:
            read(f"tsv:{path}")
    assert repaired(path, error) == [tuple(text.format(i) for text in pair) for i in range(97)]
    path = write(tmp_path / "pairs.tsv", "")
    write(path, "".join(f"A text, number {i}\n" * (i % 3) + f"of {i} words\n" for i in range(97)))
    with pytest.raises(CorpusError, match=r"lines are wrong$"):
        read_split(f"tsv:{path}")


@pytest.mark.parametrize(
    "header",
    [
        *("source\ttarget", '"Word"\t"Phones"', "en\tfr", "English\tFrench", "Quelle\tZiel"),
        *("anglais\tfrançais", "src_text\ttgt_text", "en_US\tcy_GB", "#source\ttarget", "0\t1"),
        "Source text\tTarget sentence",
    ],
)
def test_a_header_that_is_learned_is_told(tmp_path, capsys, header):
    rows = "".join(f'"a {i}"\t"b {i}"\n' if '"' in header else f"a {i}\tb {i}\n" for i in range(97))
    path = write(tmp_path / "pairs.tsv", f"{header}\n{rows}")
    first = tuple(header.replace('"', "").split("\t"))
    for spec in (f"tsv:{path}", f"multiref:{path}"):
        assert read_split(spec).pairs()[0] == first
        assert (
            f"{spec}: line 1, {' TAB '.join(first)}, is read as a pair" in capsys.readouterr().out
        )
    for side, name in zip(("s", "t"), first, strict=True):
        write(tmp_path / side, f"{name}\n" + "a text\n" * 5)
    if first[0].lower() in ("source", "word", "en", "english"):
        read_split(f"parallel:{tmp_path / 's'},{tmp_path / 't'}")
        assert "line 1" in capsys.readouterr().out
    write(path, "Hello.\tSalut.\n" + rows)
    read_split(f"tsv:{path}")
    assert "line 1" not in capsys.readouterr().out
