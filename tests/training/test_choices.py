"""The pages on choices have the numbers, keys and rows of the code."""

import dataclasses
import re
from pathlib import Path

import pytest

from training import train
from training.command.errors import UserError
from training.config.schema import Config, override
from training.data.read import _splits as splits
from training.fit import _trial as trial
from training.presets import _choose as rules
from training.presets import _recognise as recognise
from training.runs import _choices as choices

DOCS = Path(__file__).parents[2] / "docs"
PAGE, EVIDENCE = (
    (DOCS / name).read_text(encoding="utf-8") for name in ("choices.md", "results/choices.md")
)


@pytest.mark.parametrize(
    ("page", "phrase"),
    [
        (EVIDENCE, f"at most {recognise.LARGEST_ALPHABET} different words"),
        (EVIDENCE, f"Above {100 * recognise.CHANGES:.0f} %, they do not"),
        (EVIDENCE, f"at most {100 * recognise.FEW_NEW:.0f} % of the words in a held-out tenth"),
        (EVIDENCE, f"word occurs fewer than {recognise.RARE} times"),
        (EVIDENCE, f"in fewer than {100 * recognise.FOLLOWS:.0f} % of the pairs"),
        (EVIDENCE, f"at most {recognise._MOST:,} different pairs"),
        (EVIDENCE, f'"Nearly all" means {100 * recognise.NEARLY_ALL:.0f} %'),
        (EVIDENCE, f"nearly all targets have at most {rules.MOST_SPELLED} letters"),
        (EVIDENCE, f"at most {rules.MOST_READ} letters; {rules.MOST_SPELLED} if"),
        (PAGE, f"at most {rules.MOST_READ} letters, or {rules.MOST_SPELLED} if"),
        (PAGE, f"more than {100 * recognise.CHANGES:.0f} % of the pairs"),
        (PAGE, f"at most {trial.MOST_STEPS} steps"),
        (PAGE, f"at least {100 * trial.CLEAR_SHARE:.0f} % of the dev set exactly right"),
        (EVIDENCE, f"Fewer than {rules.FEWEST} pairs"),
        (EVIDENCE, f"From {rules.FEWEST_PRONOUNCED} pairs on, **words with their phones**"),
        (EVIDENCE, f"at most {recognise.LONG_SYMBOL} letters each"),
        (PAGE, f"in less than {100 * recognise.FOLLOWS:.0f} % of the pairs"),
        (PAGE, f"files of fewer than {rules.FEWEST} pairs"),
        (PAGE, f"`g2p-low` below {rules.FEW_PRONOUNCED:,} pairs"),
        (PAGE, f"plus 10, at most {rules.MOST_SPELLED + 100}."),
        (PAGE, f"about {splits.SMALL_DEV} lines; one tenth"),
        (PAGE, f"{100 * splits.DEV_SHARE:.0f} % of large files, at most {splits.MOST_DEV:,} lines"),
    ],
)
def test_pages_have_the_numbers_of_the_code(page, phrase):
    assert phrase in " ".join(page.split())


def test_every_setting_of_the_page_is_a_key():
    keys = {field.name for field in dataclasses.fields(Config)}
    assert set(re.findall(r"--set\s+(\w+)=", PAGE)) <= keys


@pytest.mark.parametrize(
    ("settings", "name", "said", "way_out"),
    [
        (["batch_size=7"], "batches", "7 in a batch", "--set batch_size=N"),
        (["batch_tokens=700"], "batches", "700 tokens in a batch", "--set batch_tokens=N"),
        (
            ["keep_epoch=best_score", "metric=wer"],
            "epochs",
            "keeps the epoch with the best wer",
            "keep_epoch",
        ),
        (
            ["keep_epoch=best_score", "average_epochs=3"],
            "epochs",
            ", or the mean of the last 3",
            "",
        ),
        (
            ["keep_epoch=best_score", "metric=symbols", "epochs=100"],
            "epochs",
            "up to 100, often fewer than 25; keeps",
            "--set epochs=N",
        ),
        (["keep_epoch=last", "metric=symbols", "epochs=99"], "epochs", "up to 99; keeps", ""),
        (["keep_epoch=last", "average_epochs=3"], "epochs", "; keeps the mean of the last 3", ""),
        (["keep_epoch=last", "epochs=9"], "epochs", "up to 9; keeps the last epoch", "epochs=N"),
        (
            ["source=events"],
            "epochs",
            "keeps the epoch with the best loss on dev",
            "--set epochs=N",
        ),
        (["attention=none"], "attention", "none", "--set attention=NAME"),
        (["max_answer=4x+20"], "answers", "at most 4 x the source's tokens + 20", "4x+20"),
    ],
)
def test_rows_and_ways_out_follow_what_is_set(settings, name, said, way_out):
    config = override(Config(), settings)
    rows = {row[0]: row[1:] for row in choices._settings(config)}
    assert said in rows[name][0]
    assert way_out in rows[name][1]
    assert all(map(config.has_key, re.findall(r"--set (\w+)=", str(rows))))


def test_a_dry_run_prints_the_rows_of_the_page_and_leaves_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    pairs = "".join(f"{n:04}X{n % 7}\t{n % 7} parts of number {n:04}\n" for n in range(300))
    (tmp_path / "own.tsv").write_text(pairs + "no tab\n" * 30)
    train.main(["--data", "tsv:own.tsv", "--dry-run"])
    said = capsys.readouterr().out
    assert " pairs, 30 lines without a pair left out  --set" in re.sub(" {3,}", "  ", said)
    rows = re.findall(r"^  (\w[\w ]{0,9}) ", said, re.MULTILINE)
    names = [name.strip() for name in rows]
    example = PAGE.split("```text\n")[1].split("```")[0]
    expected = re.findall(r"^  (\w[\w ]{0,9}) ", example, re.MULTILINE)
    assert names == [name.strip() for name in expected]
    assert [path.name for path in tmp_path.iterdir()] == ["own.tsv"]
    monkeypatch.setenv("KERAS_ATTENTION_DEVICE", "gpu")
    train.main(["--data", "tsv:own.tsv", "--dry-run", "--set", "jit_compile=true"])
    assert re.search(r"^1 shape, 8 × 24: compiling it", capsys.readouterr().out, re.MULTILINE)
    with pytest.raises(UserError, match="Remove --dry-run"):
        train.main(["--resume", "--output", "run", "--dry-run"])
