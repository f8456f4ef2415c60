"""Corpora by name and from files, and names that are nearly right."""

import gzip
import re
import sys

import pytest

from tests.training.data.files import write, write_sides
from training.data.read._specs import CorpusError, SpecError
from training.data.read.texts import load, sample_pairs

PAIR = r"line 2 has no pair: write the source, a tab, .* 2 of 3 lines"


def test_tsv_gathers_references_of_a_source_but_in_training_and_multiref_has_them_in_columns(
    tmp_path,
):
    path = write(tmp_path / "pairs.tsv.gz", "Hi.\tSalut.\tCC-BY\nGo!\tVa !\nHi.\tBonjour.\n\n")
    test, train = (load(f"tsv:{path}", split) for split in ("test", "train"))
    assert (test.sources, test.references) == (["Hi.", "Go!"], [["Salut.", "Bonjour."], ["Va !"]])
    assert test.pairs() == [("Hi.", "Salut."), ("Hi.", "Bonjour."), ("Go!", "Va !")]
    assert train.pairs() == [("Hi.", "Salut."), ("Go!", "Va !"), ("Hi.", "Bonjour.")]
    assert not train.source_words
    assert not train.sure
    path = write(tmp_path / "pairs.tsv", "Hi.\tSalut.\tBonjour.\nGo!\tVa !\t\nHi.\tSalut.\n")
    assert load(f"multiref:{path}", "dev").references == [["Salut.", "Bonjour."], ["Va !"]]


def test_limit_takes_a_sample_that_depends_on_the_seed(tmp_path):
    spec = f"tsv:{write(tmp_path / 'pairs.tsv', [(f's{i}', f't{i}') for i in range(101)])}"
    everything = load(spec, "train").pairs()
    some, same, other = (load(spec, "train", limit=13, seed=seed).pairs() for seed in (1, 1, 2))
    assert len(some) == 13
    assert some == [pair for pair in everything if pair in some] != everything[:13]
    assert some == same != other
    assert load(spec, "train", limit=1000).pairs() == everything


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("Hi.\tSalut.\nGo!\nNo\n", PAIR),
        ("Hi.\tSalut.\nGo!\t \n \tVa\n", PAIR),
        ("Go!\n", r"pairs\.tsv, line 1 has no pair: write the source"),
        ("", r"pairs\.tsv is empty"),
        (" \n\n", r"pairs\.tsv is empty"),
        (b"Hi.\tSalut.\nGo!\tVa\xff\n", r"pairs\.tsv, line 2 is not UTF-8 text"),
    ],
)
def test_a_file_that_is_no_corpus_is_one_clear_line(tmp_path, content, message):
    path = write(tmp_path / "pairs.tsv", content)
    for form in ("tsv", "multiref"):
        with pytest.raises(CorpusError, match=message):
            load(f"{form}:{path}", "train")


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("tsv:none.tsv", "Cannot read none.tsv: No such file"),
        ("tsv:.", "Cannot read .: Is a directory"),
        ("tsv:broken.tsv.gz", "Cannot read broken.tsv.gz"),
        ("tsv:plain.tsv.gz", "Cannot read plain.tsv.gz"),
        ("tsv:plain.tsv.zst", "Cannot read plain.tsv.zst: "),
        ("parallel:s,two", "s has 7 lines, but two has 2. Line n of both"),
        ("parallel:s", "needs two files, as parallel:SOURCE,TARGET. You gave"),
        ("parallel:s,t", "s and t, line 5 has no pair: both files need text. 2 of 7 li"),
    ],
)
def test_unreadable_files_are_one_clear_line(tmp_path, monkeypatch, spec, message):
    if spec.endswith(".zst"):
        pytest.importorskip("zstandard")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken.tsv.gz").write_bytes(gzip.compress(b"a\tb\n" * 100)[:-9])
    for name in ("plain.tsv.gz", "plain.tsv.zst", "two"):
        (tmp_path / name).write_text("a\tb\nc\td\n")
    write_sides(tmp_path, [(f"s{i}", "" if i in (4, 5) else f"t{i}") for i in range(7)])
    with pytest.raises(CorpusError, match=message):
        load(spec, "train")


def test_a_few_lines_without_a_pair_are_left_out_and_counted(tmp_path):
    pairs = [(f"s{i}", f"t{i}") for i in range(40)]
    sides = [*pairs[:3], ("no target", " "), ("", ""), ("", "no source"), *pairs[3:]]
    path = write(tmp_path / "pairs.tsv", [("no tab",), *sides])
    for spec, unusable in ((f"tsv:{path}", 3), (write_sides(tmp_path, sides), 2)):
        loaded = load(spec, "train")
        assert (loaded.pairs(), loaded.unusable) == (pairs, unusable)  # a blank line is no line
        assert loaded.select([1, 2]).sources == ["s1", "s2"]


def test_zstandard_is_read_as_what_it_packs(tmp_path, monkeypatch):
    zstandard = pytest.importorskip("zstandard")
    lines = ["Hi.\tSalut.\n", "Go!\tVa !\n"]
    packed = tmp_path / "pairs.tsv.zst"
    packed.write_bytes(b"".join(zstandard.compress(line.encode()) for line in lines))  # two frames
    plain = write(tmp_path / "pairs.tsv", "".join(lines))
    assert load(f"tsv:{packed}", "test") == load(f"tsv:{plain}", "test")
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(CorpusError, match="pip install zstandard"):
        load(f"tsv:{packed}", "test")


def test_paths_of_aligned_files_may_have_commas(tmp_path):
    write(tmp_path / "a", "wrong\n")
    spec = write_sides(tmp_path / "a,b", [("Hi.", "Salut.")])
    assert load(spec, "train").pairs() == sample_pairs(spec)[1] == [("Hi.", "Salut.")]


def test_the_data_folder_comes_before_the_cache(folders, monkeypatch):
    write(folders / "data/tatoeba-en-es/train.tsv.gz", "Hi.\tHola.\n")
    write(folders / "cache/keras-attention/tatoeba-en-es/train.tsv.gz", "Bye.\tAdiós.\n")
    assert load("tatoeba-en-es", "train").sources == ["Hi."]
    monkeypatch.delenv("KERAS_ATTENTION_DATA")
    assert load("tatoeba-en-es", "train").sources == ["Bye."]


def test_tatoeba_chinese_is_read_in_one_script_and_files_as_they_stand(folders):
    # 後 becomes 后, which stands in Traditional text too; 著 is 着 as a particle, not in 著名.
    rows = [
        ("The day after tomorrow.", "後天。", "后天。"),
        ("The empress is famous.", "皇后很著名。", "皇后很著名。"),
        ("He is looking at me.", "他看著我。", "他看着我。"),
        ("Do we know you?", "我们认识你么？", "我们认识你么？"),
        ("Tom is a DJ.", "汤姆是一个 DJ 。", "汤姆是一个 DJ 。"),
    ]
    text = "".join(f"{english}\t{mixed}\tCC-BY someone\n" for english, mixed, _ in rows)
    file = write(folders / "data/tatoeba-en-zh/train.tsv.gz", text)
    other = text + "Tom is a DJ.\t湯姆是一個 DJ 。\n"
    dev = write(folders / "data/tatoeba-en-zh/dev.tsv.gz", other)
    one_script = [simple for _, _, simple in rows]
    assert [pair[1] for pair in load("tatoeba-en-zh", "train").pairs()] == one_script
    # The two spellings of one sentence are one reference.
    assert load("tatoeba-en-zh", "dev").references == [[text] for text in one_script]

    as_it_stands = load(f"tsv:{file}", "dev")
    assert [pair[1] for pair in as_it_stands.pairs()] == [mixed for _, mixed, _ in rows]
    for_its_model = load(f"tsv:{dev}", "dev", script_of="tatoeba-en-zh")
    assert for_its_model.references == [[text] for text in one_script]
    assert load(f"tsv:{file}", "dev", script_of="tatoeba-en-fr") == as_it_stands


GOLD = {  # a source, some of its certain links, and a target's word that is linked possibly
    "fr": ("He won't watch any trains.", {("won't", "pas"), ("trains", "trains")}, "ne"),
    "zh": ("He won't watch any trains.", {("trains", "火车"), ("He", "他")}, "会"),
}


@pytest.mark.parametrize("language", GOLD)
def test_the_phrasebook_holds_out_pairings_of_words_and_has_gold_links(language):
    splits = {name: load(f"phrasebook-en-{language}", name) for name in ("train", "dev", "test")}
    pairs = {name: split.pairs() for name, split in splits.items()}
    assert [len(each) for each in pairs.values()] == [40_000, 500, 1_000]
    assert len({source for each in pairs.values() for source, _ in each}) == 41_500
    train = "\n".join(splits["train"].sources)
    assert "a green pear" in train
    assert re.search(r"buy(ing)? \S+ apples?", train)
    assert not re.search(r"green apple|\b(eat|eats|eating|ate|like|likes)( \S+)? apples?\b", train)
    texts = train, "\n".join(splits["test"].sources)
    known, asked = ({*re.findall(r"[\w']+", text.lower())} for text in texts)
    assert asked <= known  # the words are known, their pairings are not

    dev, (source, sure, possible) = splits["dev"], GOLD[language]
    gold = dev.source_words, dev.target_words, dev.sure, dev.possible
    for words, targets, certain, links in zip(*gold, strict=True):
        assert certain <= links
        assert {j for _, j in links} == set(range(len(targets)))
        assert {i for i, _ in links} <= set(range(len(words)))
    words, targets, certain, links = (each[dev.sources.index(source)] for each in gold)
    assert "".join(words) == source.replace(" ", "")
    assert "".join(targets) == dev.references[dev.sources.index(source)][0].replace(" ", "")
    assert sure <= {(words[i], targets[j]) for i, j in certain}
    assert possible in {targets[j] for _, j in links - certain}


@pytest.mark.parametrize(
    ("spec", "meant"),
    [
        ("sums.tsv", "tsv:sums.tsv"),
        ("a.en,a.fr", "parallel:a.en,a.fr"),
        ("pictures", "images:pictures"),
        ("visits.csv", "events:visits.csv"),
        ("TSV:sums.tsv", "tsv:sums.tsv"),
        ("paralel:a,b", "parallel:a,b"),
        ("cmudct", "cmudict"),
        ("gone.tsv", "tsv:gone.tsv, a file that is not there"),
    ],
)
def test_a_near_miss_is_told(tmp_path, monkeypatch, spec, meant):
    for name in ("sums.tsv", "a.en", "a.fr", "visits.csv", "visits.toml", "pictures/labels.tsv"):
        write(tmp_path / name, "a\tb\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SpecError, match=rf"^Unknown corpus '{spec}'\. Did you mean {meant}\?$"):
        load(spec, "train")
