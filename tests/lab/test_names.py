"""Names that training never saw, in sentences that it could have seen."""

import json
import re

import numpy as np
import pytest
import sacrebleu

from lab import names, shared
from lab.__main__ import main
from tests.lab.conftest import assert_kept, read_table
from tests.training.conftest import untrained
from tests.training.data.files import write
from tests.training.test_copying import SETTINGS
from training.config.schema import Config
from training.data.read._sentences import Split

KNOWN = ["Tom", "Mary", "Boston", "Lubomir"]


def sentences(rng, count):
    """A French sentence for each English one; two names change places, in some there is none."""
    pairs = []
    for i in range(count):
        a, b = rng.choice(KNOWN, size=2, replace=False)
        number = rng.integers(100, 10**6)  # so that no source comes twice
        named = (f"{a} has seen {number} of {b}.", f"De {b}, {a} voit {number}.")
        pairs.append(named if i % 5 else (f"They are {number}.", f"Ils sont {number}."))
    return pairs


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """One that copies words, and one that does not, and cannot say a name; both untrained."""
    folder = tmp_path_factory.mktemp("names")
    data = f"tsv:{write(folder / 'train.tsv', sentences(np.random.default_rng(1), 300))}"
    settings = {**SETTINGS, "epochs": 1, "max_dev_translations": 5}
    for kind in ("copy", "words"):
        untrained(Config(data=data, **{**settings, "copy": kind == "copy"}), folder / kind)
    return {kind: folder / kind for kind in ("copy", "words")}


def test_a_name_stands_as_often_in_every_reference():
    sentences = {
        "Tom saw Tom and Mary.": ["Tom a vu Tom et Marie."],
        "The Alps": ["Les Alpes"],
        "I met Ann.": ["Ann !", "Anne !"],
        "USA": ["USA"],
        "Éva naps": ["Éva !"],
        "Bob met Bob": ["Bob"],
    }
    found = names.named(Split([*sentences], [*sentences.values()]))
    assert found.split.sources == ["Tom saw Tom and Mary.", "Éva naps"]
    assert found.split.references == [["Tom a vu Tom et Marie."], ["Éva !"]]
    assert found.names == [["Tom"], ["Éva"]]


def test_new_names_take_the_places_of_the_old_ones_and_nothing_else_changes():
    rng = np.random.default_rng(3)
    pairs = sentences(rng, 53)
    known = names.named(Split([a for a, _ in pairs], [[b, b + " "] for _, b in pairs]))
    assert len(known.names) == sum("They" not in a for a, _ in pairs)
    seen = {"Lubomir", "Zoltan"}
    found = names.renamed(known, seen, seed=7)
    again, other = (names.renamed(known, seen, seed) for seed in (7, 8))
    assert again == found != other
    for i, new in enumerate(found.names):
        assert len(set(new)) == 2
        assert set(new) <= set(names.NAMES) - seen
        back = dict(zip(new, known.names[i], strict=True))
        sides = zip(found.split.references[i], known.split.references[i], strict=True)
        for text, old in [(found.split.sources[i], known.split.sources[i]), *sides]:
            assert text != old
            assert re.sub("|".join(new), lambda name, back=back: back[name[0]], text) == old


def test_a_name_came_through_as_a_whole_word():
    said, given = ["De Tom, Zoltan voit.", "Zoltane", ""], [["Zoltan", "Tom"], ["Zoltan"], ["Tom"]]
    found = names.came_through(said, given)
    assert found.tolist() == [[2, 2], [0, 1], [0, 1]]


def test_the_study_ends_in_a_table_and_a_figure(runs, tmp_path, capsys, monkeypatch):
    pairs = sentences(np.random.default_rng(4), 30)
    data, output = f"tsv:{write(tmp_path / 'dev.tsv', pairs)}", tmp_path / "study"
    command = ["names", "--output", str(output), "--data", data, "--beam-width", "2"]
    command += [word for name, path in runs.items() for word in ("--run", f"{name}={path}")]
    main(command)
    rows = {row["model"]: row for row in read_table(output / "names.csv")}
    assert list(rows) == ["copy", "words", "words, unknown replaced"]
    for name, row in rows.items():
        for kind in ("known", "new"):
            file = output / "translations" / f"{kind}-{name.replace(', ', '-')}.json"
            texts = json.loads(file.read_text())["value"]
            assert len(texts) == sum("They" not in a for a, _ in pairs)
            if kind == "known":
                gold = [b for a, b in pairs if "They" not in a]
                expected = sacrebleu.corpus_bleu(texts, [gold]).score
                assert float(row["known_bleu"]) == pytest.approx(expected, rel=1e-4)
                named = [re.findall("|".join(KNOWN), reference) for reference in gold]
                words = [re.split(r"\W+", text) for text in texts]
                said = [name in w for w, own in zip(words, named, strict=True) for name in own]
                assert float(row["known_names"]) == pytest.approx(100 * np.mean(said), rel=1e-4)
    # Vocabularies of 9 tokens hold no name: without copying none is said.
    assert float(rows["words"]["new_names"]) == 0
    assert (output / "names.png").stat().st_size > 10_000
    last = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert last["sentences"] == 24
    assert str(output / "names.csv") in last["files"]
    assert_kept(command, output / "names.csv", monkeypatch, shared, "make_translator")
