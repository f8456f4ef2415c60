"""Each kind of own data is learned by README's command, with nothing set but a bound on epochs.

`make test-choices` prints what is chosen, the figures and the processor time. Where a floor is
missed, the choice is wrong, not the floor.
"""

import json
import random
import time

import pytest

from tests.choices.kinds import draw, draw_lines, write
from training import evaluate, train

# Epochs, and the percent of answers that a careful user has right with settings made by hand on
# pairs that training never saw, less two.
FLOORS = {
    **{"emails": (2, 98), "transliteration": (8, 98), "pig_latin": (3, 96), "dates": (3, 98)},
    **{"dates_said": (3, 98), "numerals": (6, 98), "numbers": (6, 96), "formulas": (3, 98)},
    **{"pinyin": (4, 98), "tags": (8, 98), "misspelled": (3, 94), "products": (6, 98)},
    **{"products_new_sizes": (3, 96), "descriptions": (3, 98), "addresses": (3, 98)},
    **{"sentences": (30, 98), "turned": (3, 98), "identifiers": (3, 96), "ledger": (4, 98)},
    **{"cipher": (5, 96), "salts": (6, 96), "typos": (6, 96)},
}
pytestmark = pytest.mark.slow


@pytest.fixture
def scored(tmp_path, capsys):
    """A function that trains on `own` and scores the run on `test`; returns what is printed."""

    def run(form, name, epochs, *words):
        began, own, test = (
            time.process_time(),
            *(form.format(tmp_path / x) for x in ("own", "test")),
        )
        trained = str(tmp_path / "run")
        train.main(["--data", own, "--output", trained, "--set", f"epochs={epochs}"])
        evaluate.main(["--run", trained, "--data", test, *words])
        said = capsys.readouterr().out
        with capsys.disabled():
            print(f"\n{said}{name}: {time.process_time() - began:.0f} s")
        return json.loads(said.splitlines()[-1])

    return run


@pytest.mark.filterwarnings("ignore:Glyph:UserWarning")  # of the picture, whose font has no Han
@pytest.mark.parametrize("kind", FLOORS)
def test_the_default_reaches_what_hands_reach(kind, tmp_path, scored, capsys):
    epochs, floor = FLOORS[kind]
    learned, test = draw(kind)
    write(tmp_path / "own.tsv", learned)
    write(tmp_path / "test.tsv", test)
    said = tmp_path / "said.txt"
    scored("tsv:{}.tsv", kind, epochs, "--hypotheses", str(said))
    answers = said.read_text(encoding="utf-8").splitlines()
    right = [a.split() == wanted.split() for a, (_, wanted) in zip(answers, test, strict=True)]
    exact = 100 * sum(right) / len(right)
    with capsys.disabled():
        print(f"{kind}: {exact:.1f} % right, at least {floor}")
    assert exact >= floor


def test_histories_of_200_events_tell_what_was_known_at_first(tmp_path, scored):
    """A careful user has an AUC of 1, by `max_events` or a column of what is known."""
    r = random.Random(1)
    for name, people in (("own", 400), ("test", 100)):
        rows = ["patient,hour,surgery,pulse,died"]
        for p in range(people):
            sign = r.randrange(2)
            for n in range(200):
                known, died = "" if n else sign, sign if n == 199 else ""
                rows.append(f"{p},{n},{known},{r.gauss(80, 10):.0f},{died}")
        (tmp_path / f"{name}.csv").write_text("\n".join(rows) + "\n")
        columns = 'id = "patient"\ntime = "hour"\noutcome = "died"\n'
        (tmp_path / f"{name}.toml").write_text(columns)
    assert scored("events:{}.csv", "histories", 8)["auc"] >= 0.98


def test_lines_of_text_640_wide_are_read(tmp_path, scored):
    """A careful user takes a reader of columns in order, and reads nearly every character."""
    for name, count in (("own", 2000), ("test", 100)):
        draw_lines(tmp_path / name, count, seed=count)
    assert scored("images:{}", "lines", 2)["cer"] <= 4
