"""The readers of a run's data."""

from tests.training.conftest import tiny_config
from training.bulk.streaming import stream
from training.runs.begin import make_sides

KINDS = "source_tokenizer=words", "target_tokenizer=words", "train_limit=0", "test="


def test_vocabularies_that_are_smaller_than_asked_for_are_said(tmp_path, capsys):
    train, dev = tmp_path / "train.tsv", tmp_path / "dev.tsv"
    train.write_text("she sees it\tsie sieht ihn\nhe sees her\ter sieht sie\n")
    dev.write_text("he sees it\ter sieht ihn\n")
    texts = f"data=tsv:{train}", f"dev=tsv:{dev}", *KINDS
    config = tiny_config(*texts, "source_vocab_size=11", "target_vocab_size=9")
    source, target = make_sides(config, stream(config, tmp_path / "larger"))
    assert target is not None
    assert (source.size, target.vocab_size) == (4 + 5, 4 + 4)
    assert capsys.readouterr().out == (
        "The source side has 9 tokens, not 11: all that its text gives.\n"
        "The target side has 8 tokens, not 9: all that its text gives.\n"
    )
    config = tiny_config(*texts, "source_vocab_size=9", "target_vocab_size=8")
    make_sides(config, stream(config, tmp_path / "exact"))
    assert capsys.readouterr().out == ""
