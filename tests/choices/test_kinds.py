"""Each kind of own data is learned by README's command, with nothing set but a bound on epochs.

`make test-choices` prints what is chosen, the figures and the processor time. Where a floor is
missed, the choice is wrong, not the floor.
"""

import json
import random
import time

import pytest

from tests.choices.kinds import draw, draw_lines
from training import evaluate, train

# Epochs, and the percent of answers that a careful user has right with settings made by hand on
# pairs that training never saw, less two.
FLOORS = {
    "emails": (2, 98),
    "transliteration": (8, 98),
    "pig_latin": (3, 96),
    "dates": (3, 98),
    "dates_said": (3, 98),
    "numerals": (6, 98),
    "numbers": (6, 96),
    "formulas": (3, 98),
    "pinyin": (4, 98),
    "tags": (8, 98),
    "misspelled": (3, 94),
    "products": (3, 98),
    "products_new_sizes": (3, 96),
    "descriptions": (3, 98),
    "addresses": (3, 98),
    "sentences": (30, 98),
    "turned": (3, 98),
    "identifiers": (3, 96),
    "ledger": (4, 98),
    "cipher": (4, 96),
    "salts": (6, 96),
    "typos": (6, 96),
}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Glyph:UserWarning")  # of the picture, whose font has no Han
@pytest.mark.parametrize("kind", FLOORS)
def test_the_default_reaches_what_hands_reach(kind, tmp_path, capsys):
    epochs, floor = FLOORS[kind]
    learned, test = draw(kind)
    for name, pairs in (("own", learned), ("test", test)):
        lines = "".join(f"{source}\t{target}\n" for source, target in pairs)
        (tmp_path / f"{name}.tsv").write_text(lines, encoding="utf-8")
    began, run = time.process_time(), str(tmp_path / "run")
    data = ["--data", f"tsv:{tmp_path}/own.tsv", "--output", run]
    train.main([*data, "--set", f"epochs={epochs}"])
    seconds, said = time.process_time() - began, capsys.readouterr().out
    said_of_test = tmp_path / "said.txt"
    words = ["--data", f"tsv:{tmp_path}/test.tsv", "--hypotheses", str(said_of_test)]
    evaluate.main(["--run", run, *words])
    answers = said_of_test.read_text(encoding="utf-8").splitlines()
    right = [a.split() == wanted.split() for a, (_, wanted) in zip(answers, test, strict=True)]
    exact = 100 * sum(right) / len(right)
    with capsys.disabled():
        print(f"\n{said}{kind}: {exact:.1f} % right, at least {floor}; {seconds:.0f} s")
    assert exact >= floor


@pytest.mark.slow
def test_histories_of_200_events_tell_what_was_known_at_first(tmp_path, capsys):
    """A careful user has an AUC of 1, by `max_events` or a column of what is known."""
    r = random.Random(1)
    for name, people in (("own", 400), ("asked", 100)):
        rows = ["patient,hour,surgery,pulse,died"]
        for p in range(people):
            sign = r.randrange(2)
            rows += [
                f"{p},{n},{'' if n else sign},{r.gauss(80, 10):.0f},{sign if n == 199 else ''}"
                for n in range(200)
            ]
        (tmp_path / f"{name}.csv").write_text("\n".join(rows) + "\n")
        columns = 'id = "patient"\ntime = "hour"\noutcome = "died"\n'
        (tmp_path / f"{name}.toml").write_text(columns)
    began, run = time.process_time(), str(tmp_path / "run")
    data = ["--data", f"events:{tmp_path}/own.csv", "--output", run]
    train.main([*data, "--set", "epochs=8"])
    evaluate.main(["--run", run, "--data", f"events:{tmp_path}/asked.csv"])
    seconds, said = time.process_time() - began, capsys.readouterr().out
    with capsys.disabled():
        print(f"\n{said}histories: {seconds:.0f} s")
    assert json.loads(said.splitlines()[-1])["auc"] >= 0.98


@pytest.mark.slow
def test_lines_of_text_640_wide_are_read(tmp_path, capsys):
    """A careful user takes a reader of columns in order, and reads nearly every character."""
    for name, count in (("own", 2000), ("asked", 100)):
        draw_lines(tmp_path / name, count, seed=count)
    began, run = time.process_time(), str(tmp_path / "run")
    train.main(["--data", f"images:{tmp_path}/own", "--output", run, "--set", "epochs=2"])
    evaluate.main(["--run", run, "--data", f"images:{tmp_path}/asked"])
    seconds, said = time.process_time() - began, capsys.readouterr().out
    with capsys.disabled():
        print(f"\n{said}lines: {seconds:.0f} s")
    assert json.loads(said.splitlines()[-1])["cer"] <= 4
