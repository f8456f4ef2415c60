"""ALIBI's tales: made files, and the real ones where they are there."""

import pytest

from lab.alibi import TALES, load
from tests.training.data.files import write
from training.data.read._specs import CorpusError


def test_alibi_links_are_turned_round_and_the_texts_joined(tmp_path, monkeypatch):
    monkeypatch.setenv("KERAS_ATTENTION_DATA", str(tmp_path))
    folder = tmp_path / "align-alibi-en-fr"
    for english, french in TALES:
        write(folder / f"{english}_sents.txt", f"0\t{english}\n")
        write(folder / f"{french}_sents.txt", f"0\t{french}\n")
        write(folder / f"ali_w2w_{french}_{english}.txt", "0\t0-0 \n")
    english, french = '" Come , " he said ; don \'t go .', "« Viens » , dit -il : l' eau !"
    write(folder / "TheInn_sents.txt", f"0\t{english}\n1\tNo .\n")
    write(folder / "LAuberge_sents.txt", f"0\t{french}\n1\tNon .\n")
    links = write(folder / "ali_w2w_LAuberge_TheInn.txt", "0\t1-1 4p5 4p4 \n1\t\n")
    split = load()
    assert len(split.sources) == 6
    at = split.sources.index('"Come," he said; don\'t go.')
    assert split.references[at] == ["« Viens », dit-il : l'eau !"]
    assert split.source_words[at] == english.split()
    assert split.target_words[at] == french.split()
    assert split.sure[at] == {(1, 1)}
    assert split.possible[at] == {(1, 1), (5, 4), (4, 4)}
    assert split.sure[at + 1] == split.possible[at + 1] == frozenset()
    links.write_text("0\t1-1\n")
    with pytest.raises(CorpusError, match="the same sentence numbers"):
        load()
