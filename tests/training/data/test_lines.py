"""Lines of files, held to what Python's csv module and unicodedata make of them, and to lists."""

import csv
import gzip
import io
import os
import random
import time

import pytest

from tests.training.data.files import one_line, write
from training.data.corpus import sample_pairs
from training.data.lines import read_blocks, read_split, survey
from training.data.pair_files import CorpusError

PAIRS = [('He said "hi".', "Il dit « salut »."), ("Go!", 'Va "vite" !'), ("No", "Non")] * 31


def surveyed(spec, **options):
    return survey(spec, read_blocks(spec), **options)


@pytest.mark.parametrize("quoting", [csv.QUOTE_ALL, csv.QUOTE_MINIMAL])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_quotes_of_spreadsheets_are_no_part_of_a_text(tmp_path, quoting, mark, capsys):
    text = io.StringIO()
    csv.writer(text, delimiter="\t", quoting=quoting).writerows(PAIRS)
    path = write(tmp_path / "pairs.tsv", mark + text.getvalue())
    assert read_split(f"tsv:{path}").pairs() == PAIRS
    surveyed(f"tsv:{path}")
    assert "in quotes" in capsys.readouterr().out


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
    surveyed(f"tsv:{path}")
    assert capsys.readouterr().out == ""
    pairs = [
        ("One", "Un"),
        ('"I came.', "Je vins."),
        ("I saw.", "Je vis."),
        ('I won."', "Je vaincs."),
    ]
    write(path, "".join(f"{a}\t{b}\n" for a, b in pairs))
    assert read_split(f"tsv:{path}").pairs() == pairs  # not what is between the quotes as one


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32-le", "latin-1"])
def test_other_encodings_are_one_clear_line(tmp_path, encoding):
    path = write(tmp_path / "pairs.tsv", "".join(f"{a}\té{b}\n" for a, b in PAIRS).encode(encoding))
    for read in (read_split, surveyed, sample_pairs):
        with pytest.raises(CorpusError, match=r"line 1: expected UTF-8 text") as error:
            read(f"tsv:{path}")
        assert ("iconv" in one_line(error)) == encoding.startswith("utf")


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
    with pytest.raises(CorpusError, match="lines end in CR alone"):
        read_split(f"tsv:{both}")


def test_byte_order_marks_of_joined_files_are_no_letters(tmp_path):
    path = write(tmp_path / "pairs.tsv", "\ufeffa\tb\n\ufeffc\td\ne\tf\ufeffg\th\n")
    assert read_split(f"tsv:{path}").pairs() == [("a", "b"), ("c", "d"), ("e", "fg")]


def test_what_can_be_read_once_alone_is_refused_at_once(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (pipe, "/dev/zero"):
        with pytest.raises(CorpusError, match="can be read once alone: expected a file") as error:
            read_split(f"tsv:{path}")
        one_line(error)


def test_a_home_directory_is_found(tmp_path, monkeypatch):
    write(tmp_path / "pairs.tsv", "a\tb\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert read_split("tsv:~/pairs.tsv").pairs() == [("a", "b")]


@pytest.mark.parametrize("content", [b"\0" * (200 << 20), b"\n" * (200 << 20)])
def test_a_large_file_without_pairs_is_not_read_whole(tmp_path, content):
    path = write(tmp_path / "pairs.tsv.gz", content)
    started = time.process_time()
    with pytest.raises(CorpusError):
        surveyed(f"tsv:{path}")
    with pytest.raises(CorpusError):
        read_split(f"tsv:{path}")
    assert time.process_time() - started < 15


def test_a_third_column_is_said_or_refused(tmp_path, capsys):
    path = write(tmp_path / "pairs.tsv", "".join(f"s{i}\tt{i}\tCC {i}\n" for i in range(97)))
    surveyed(f"tsv:{path}")
    surveyed(f"multiref:{path}")
    assert capsys.readouterr().out == f"tsv:{path}: columns after the second are not read\n"
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
    assert sample_pairs(f"tsv:{path}")[0] == 20_011
    path.touch()  # what is remembered of a file is of its time
    monkeypatch.setattr("training.data.lines.SAMPLE_BYTES", 20_000)
    lines, drawn = survey(f"tsv:{path}", read_blocks(f"tsv:{path}", 5003))
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
