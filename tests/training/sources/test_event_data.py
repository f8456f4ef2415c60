"""Tables of events: what is read of them, what is told, and what is refused."""

import math
import re
import subprocess

import numpy as np
import pytest

from serving.api import _histories as client
from tests.training.data.files import write as write_file
from training.config.schema import Config
from training.data.read._specs import CorpusError
from training.data.rules import input_name, parse_number
from training.runs._start import open_run, reopen
from training.runs.files import RunFiles
from training.sources.events import _data as events
from training.sources.events._histories import Schema
from training.sources.events._table import read_table
from training.sources.events.source import EventSource

NAN = math.nan
WIDE = """patient,day,bili,sex,died
a,0,1.5,f,
a,10,,f,0
b,3,2,m,1
a,20,4.5,,1
"""
ABOUT = 'id = "patient"\ntime = "day"\noutcome = "died"\n'
LONG = """patient,day,test,result
a,0,bili,1.5
a,0,sex,f
a,10,sex,f
a,10,died,0
b,3,died,1
b,3,bili,2
b,3,sex,m
a,20,bili,4.5
a,20,died,1
"""
LONG_ABOUT = ABOUT + 'name = "test"\nvalue = "result"\n'
GROUPS = ABOUT + 'categories = ["sex"]\n'


def write(tmp_path, table, about=ABOUT):
    write_file(tmp_path / "visits.toml", about)
    return write_file(tmp_path / "visits.csv", table)


def read(tmp_path, table, about=ABOUT, schema=None):
    return read_table(write(tmp_path, table, about), schema)


def nan_equal(found, wanted):
    np.testing.assert_array_equal(np.isnan(found), np.isnan(wanted))
    np.testing.assert_allclose(np.nan_to_num(found), np.nan_to_num(wanted))


NUMBERED = "\n".join(f",{n},{line}" if n else f",,{line}" for n, line in enumerate(WIDE.split()))
FORMS = [(WIDE, ABOUT), (WIDE, "\ufeff" + ABOUT), (NUMBERED, ABOUT), (LONG, LONG_ABOUT)]


@pytest.mark.parametrize(("table", "about"), FORMS)
def test_a_table_of_visits_or_of_events_gives_the_history_up_to_each_outcome(
    tmp_path, table, about
):
    found = read(tmp_path, table, about)
    assert found.schema.inputs() == ["bili", "sex__f", "sex__m"]
    nan_equal(found.values, [[1.5, 1, 0], [NAN, 1, 0], [4.5, NAN, NAN], [2, 0, 1]])
    assert found.times.tolist() == [0, 10, 20, 3]
    examples = zip(found.starts, found.ends, found.labels, found.people, strict=True)
    assert list(examples) == [(0, 2, 0, "a"), (0, 3, 1, "a"), (3, 4, 1, "b")]


def test_chosen_names_of_a_table_of_events_stand_in_the_order_of_the_choice(tmp_path):
    both, one = LONG_ABOUT + 'columns = ["sex", "bili"]\n', LONG_ABOUT + 'columns = ["bili"]\n'
    found = read(tmp_path, LONG, both + 'log = ["bili"]\n')
    assert found.schema == Schema({"sex": ["f", "m"], "bili": None}, ["bili"])
    known = read(tmp_path, LONG, one).schema
    assert known == Schema({"bili": None})
    # A name that training had may be missing of everybody, but not absent.
    without = "".join(line for line in LONG.splitlines(True) if "bili" not in line)
    with pytest.raises(CorpusError, match="has no test 'bili', which training had: add a row"):
        read(tmp_path, without, one, known)
    assert np.isnan(read(tmp_path, without + "b,4,bili,\n", one, known).values).all()


def test_input_names_can_be_served_and_no_two_categories_have_one():
    names = ["alk.phos", "ang/isc", "cardiac arrest", "time", "5yr", "μλ"]
    served = "alk_phos ang_isc cardiac_arrest xtime x5yr u3bcu3bb"
    assert " ".join(map(input_name, names)) == served
    categories = ["+", "-", "+-", *"男女éeFf_.", "a b", "a_b", "a-b", "a.b"]
    inputs = {input_name("s", category) for category in categories}
    assert len(inputs) == len(categories)
    assert all(re.fullmatch("[A-Za-z]\\w*", name, re.ASCII) for name in inputs)


def test_cells_are_read_by_one_rule_in_tables_and_histories():
    numbers = {"1": 1, "-1": -1, "+1.5": 1.5, ".5": 0.5, "5.": 5, "1e3": 1e3, "1E-3": 1e-3}
    numbers |= {"1e30": 1e30, "0001": 1}
    missing = ["", "NA", "n/a", "N/A", "null", "-", "?", "missing", "None", "NaN", "#N/A", "."]
    none = ["1e31", "inf", "1_000", "1,5", "1 000", "<0.5", "0x1", "١", "１"]
    none += ["high", "1e", "e1", "+", "12%", "true"]
    wanted = {**numbers, **dict.fromkeys(missing, NAN), **dict.fromkeys(none)}
    for cell, number in wanted.items():
        assert cell in missing or parse_number(cell) == number
        try:
            found = client.history_columns({"time": [0], "v": [cell]}, ["time", "v"])["v"][0]
        except ValueError:
            found = None
        assert found is number is None or str(found) == str(float(number)), cell


def test_categories_may_be_signs_other_scripts_or_declared_numbers(tmp_path):
    for first, second in ("+-", "男女", "éè"):
        table = WIDE.replace(",f,", f",{first},").replace(",m,", f",{second},")
        order = [float(first > second), float(second > first)]
        assert read(tmp_path, table).values[:, 1:].tolist()[-1] == order
    found = read(tmp_path, WIDE, ABOUT + 'categories = ["bili"]\n')
    assert found.schema.columns["bili"] == ["1.5", "2", "4.5"]


@pytest.mark.parametrize("blank", ["\n", ",,,,\n", " , ,,,\n", "\n,,,,\n\n"])
def test_blank_rows_are_skipped_by_training_and_client_alike(tmp_path, blank):
    path = write(tmp_path, WIDE + blank)
    assert len(read_table(path).times) == 4
    histories = client.read_table(path, "patient", "day").values()
    assert [len(history["time"]) for history in histories] == [3, 1]


def test_of_two_values_at_one_time_the_known_one_holds(tmp_path, capsys):
    row, died = "a,0,bili,1.5\n", "a,10,died,0\n"

    def table(old, new):
        return read(tmp_path, LONG.replace(old, new), LONG_ABOUT)

    for other in ("a,0,bili,NA\n", "a,0,bili,N/A\n", "a,0,bili,\n", row):
        assert table(row, row + other).values[0, 0] == table(row, other + row).values[0, 0] == 1.5
    assert capsys.readouterr().err == ""
    assert table(row, row + "a,0,bili,7\n").values[0, 0] == 7
    said = "1 times have two values, and the last is used: bili of a, lines 2 and 3"
    assert said in capsys.readouterr().err
    assert table(died, died + "a,10,died,NA\n").labels.tolist() == [0, 1, 1]


def changed(*replaced):
    """The table of visits with one text in place of another."""
    return WIDE.replace(*replaced)


NOTES = "patient,day,note,died\n" + "".join(f"a,{n},no{n},1\n" for n in range(51))
MANY = "note has 51 categories, such as 'no0', and at most 50 are allowed. Write numbers"
NO_TIME, SAME = (
    "expected the key time, which names a column",
    "'a b' and 'a.b', both a_b to a served",
)
REFUSED = [
    (changed("died", "dead"), ABOUT, "has no column 'died', the outcome of .*it has pat"),
    (changed("a,20", "a,5"), ABOUT, "line 5: the time of a goes back from 10 to 5"),
    (changed("b,3", "b,3.1.2020"), ABOUT, "line 4: .* as days since .* it is 3.1.2020"),
    (changed("4.5", '"4,5"'), ABOUT, "line 5: .* with a decimal point.* it is 4,5"),
    (changed("a,10", "a,soon"), ABOUT, "line 3: day needs a number.*but it is soon"),
    (changed("f,0", "f,2"), ABOUT, r"line 3: died needs 0, 1 \(.*but it is 2"),
    (changed("b,3,2,m,1", "b,3"), ABOUT, "line 4 has 2 columns, but the header 5"),
    (changed("bili", "day"), ABOUT, "has two columns 'day'"),
    (changed("a,20", "a,1e308"), ABOUT, "line 5: day needs a number.*1e30, but it is 1e308"),
    (changed("4.5", "high"), ABOUT, "line 5: bili is high, but 2 of 3 are numbers.* a number, or "),
    (changed("4.5", "1_000"), ABOUT, "line 5: bili .* 1_000"),
    (changed("4.5", "-1"), ABOUT + 'log = ["bili"]\n', "line 5: bili needs .* 0 to 1e30, .* is -1"),
    (WIDE + "c,1," + "1" * 140_000 + ",f,1\n", ABOUT, "cannot be read: field larger"),
    (WIDE + "\n" * 5000 + "c,1,1,\0,1\n", ABOUT, "line 5006 has a NUL: it is no text"),
    ("patient,day,died\na,1,\n", ABOUT, "has no row with the outcome 'died'"),
    ("", ABOUT, "is empty"),
    (NOTES, ABOUT, MANY),
    ("patient,day,a.b,a b,died\na,1,2,3,1\n", ABOUT, SAME),
    ("patient,day,a-b,a_b,died\na,1,2,3,1\n", ABOUT + 'columns = ["a-b"]', "rename one"),
    (WIDE, "id = patient", 'cannot read .*: expected id = "patient", time ='),
    (WIDE, 'id = "patient"\n', NO_TIME),
    (WIDE, ABOUT.replace('"day"', "5"), "time needs a name, but it is 5"),
    (WIDE, ABOUT + 'categories = ["iron"]\n', "categories has iron, but it can have only "),
    (WIDE, ABOUT + 'columns = ["bili", "died"]\n', "names the column 'died' twice"),
    (WIDE, ABOUT + 'columns = "bili"\n', "columns needs a list of names, but it is bili"),
    (WIDE, ABOUT + 'colums = ["bili"]\n', "unknown key 'colums'; there are id, time"),
    (WIDE, ABOUT + 'log = ["vv"]\n', "visits.toml: log has vv, but it can have only bili, sex"),
    (LONG, LONG_ABOUT + 'columns = ["zz"]\n', "columns has zz, but it can have only bili, sex"),
]


@pytest.mark.parametrize(("table", "about", "said"), REFUSED, ids=[row[2] for row in REFUSED])
def test_a_table_that_cannot_be_read_is_one_clear_line(table, about, said, tmp_path):
    with pytest.raises(CorpusError, match=said):
        read(tmp_path, table, about)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("bili,sex", "Bili,sex", "has no column 'bili'; it has patient, day"),
        ("bili,sex", "bili ,gender", "has no column 'sex'; it has patient, day"),
        ("b,3,2,m", "b,3,2,x", "line 4: sex was never 'x' in training; known are f, m"),
        ("b,3,2,m", "b,3,high,m", "line 4: bili needs a number.* it is high"),
        ("", "", r"needs .*visits.toml beside it"),
    ],
)
def test_what_was_not_so_in_training_is_named(old, new, said, tmp_path):
    schema = read(tmp_path, WIDE).schema
    other = write(tmp_path, WIDE.replace(old, new) if old else WIDE)
    if not old:
        (tmp_path / "visits.toml").unlink()
    with pytest.raises(CorpusError, match=said):
        read_table(other, schema)


SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "bars", "，": "full-width commas"}
MISSING = "line 4: the patient, whose row it is, is missing$"


@pytest.mark.parametrize(
    ("table", "encoding", "said"),
    [
        *((changed("b,3", f"{id},3"), "utf-8", MISSING) for id in (" ", "NA", "n/a")),
        *((changed(",", sign), "utf-8", f"It has {SEPARATORS[sign]} inst") for sign in SEPARATORS),
        (changed("f", "é"), "latin-1", "is not UTF-8 text.*iconv -f LATIN1 -t UTF-8"),
        (changed("f", "é"), "utf-16", "is not UTF-8 text.*iconv -f UTF-16 -t UTF-8"),
    ],
)
def test_tables_are_refused_by_training_and_client_alike(table, encoding, said, tmp_path):
    path = write(tmp_path, table.encode(encoding))
    with pytest.raises(CorpusError, match=said):
        read_table(path)
    with pytest.raises(ValueError, match=said) as error:
        client.read_table(path, "patient", "day")
    if "It has" in said:
        command, new = re.search("To write commas: (.*)", str(error.value))[1], tmp_path / "new.csv"
        subprocess.run(["bash", "-c", command], check=True, cwd=tmp_path)
        wanted = client.read_table(write(tmp_path, WIDE), "patient", "day")
        assert client.read_table(new, "patient", "day") == wanted


def test_decimal_commas_of_a_table_with_semicolons_are_told_with_its_separator(tmp_path):
    said = r"It has semicolons instead of commas\. To write commas: python3"
    with pytest.raises(CorpusError, match=said):
        read(tmp_path, WIDE.replace(",", ";").replace(".", ","))


def test_a_table_is_read_in_the_columns_of_the_run_that_goes_on_or_is_begun_from(tmp_path):
    rows = (f"p{n},{day},{n},{7 * n + day},{n % 2}\n" for n in range(60) for day in (0, 1))
    table = write(tmp_path, "patient,day,bili,ast,died\n" + "".join(rows))
    config = Config(source="events", data=f"events:{table}")
    EventSource(Schema({"ast": None, "bili": None}), 8).save(tmp_path)
    begun = open_run(RunFiles(tmp_path / "run"), config, tmp_path)
    for opened in (begun, reopen(RunFiles(tmp_path), config)):
        events_of_dev = opened.dev_pairs.source.values[:, :3]
        np.testing.assert_array_equal(events_of_dev @ [1, -1, 7], 0)  # time, ast, bili


def test_people_are_in_one_split_alone(tmp_path):
    lines = ["patient,day,bili,died\n"]
    lines += [f"p{n},{day},{n},{n % 2}\n" for n in range(60) for day in (0, 1)]
    spec = f"events:{write(tmp_path, ''.join(lines))}"
    train, dev = events.load_training(spec)
    assert len(train.labels) + len(dev.labels) == 120
    assert not set(train.people) & set(dev.people)
    assert len(events.load_training(spec, limit=7)[0].labels) == 7
    write(tmp_path, "".join(lines[:5]))
    with pytest.raises(CorpusError, match="too few ids for a dev set"):
        events.load_training(spec)
    with pytest.raises(CorpusError, match=r"Unknown events 'pbc'\. Did you mean pbcseq"):
        events.load("pbc", "train")


def test_a_category_in_another_form_is_the_same_category(tmp_path, capsys):
    """Where a gap makes floats of a column, pandas writes 1.0 for 1."""
    about = ABOUT + 'categories = ["stage"]\n'
    first = "patient,day,stage,died\na,1,1,1\na,3,,0\nb,1,2.00,0\nb,2,x,\nb,3,e\u0301,1\n"
    other = first.replace("a,1,1,", "a,1,1.0,").replace("e\u0301", "\u00e9")
    found = read(tmp_path, first, about)
    assert found.schema.columns["stage"] == ["1", "2", "x", "\u00e9"]
    old = Schema({"stage": ["1.0", "2", "x", "\u00e9"]})  # of a run of before
    for table, schema in ((other, found.schema), (other, None), (first, old)):
        nan_equal(read(tmp_path, table, about, schema).values, found.values)
    assert not capsys.readouterr().err
    cells = ["1", "1.0", 1, 1.0, "e\u0301", None]
    inputs = ["time", *found.schema.inputs()]
    served = client.history_columns({"time": range(6), "stage": cells}, inputs)
    assert served["stage__1"][:5] == [1, 1, 1, 1, 0]
    assert served[input_name("stage", "\u00e9")][4] == 1


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        ("1,0,F", "2,1,f", "'F' and 'f' are different categories of sex"),
        ("1,0,1", "2,1,01", "'01' and '1' are different categories of sex"),
        ("1,0,a b", "2,1,a  b", "'a  b' and 'a b' are different categories of sex"),
        ("1,0,1.5", "2,1,1.50", "'1.5' and '1.50' are different categories of sex"),
        ("1,0,f", "1.0,1,m", "1 pair of ids differs only in form: '1' and '1.0' are two ids"),
        ("p,0,f", "P,1,m", "1 pair of ids differs only in form: 'p' and 'P' are two ids"),
    ],
)
def test_categories_and_ids_that_differ_in_form_alone_are_two_and_told(
    first, second, said, tmp_path, capsys
):
    found = read(tmp_path, f"patient,day,sex,died\n{first},0\n{second},1\n3,0,x,0\n", GROUPS)
    assert len(found.schema.columns["sex"]) == len({*found.people}) == 3
    assert said in capsys.readouterr().err


def test_what_a_table_is_taken_for_is_told_as_in_training(tmp_path, capsys):
    """By a client and a batch job in the words of a training, whatever follows the words."""
    cells = ["1.5", "-", "", "?", "2", "NA", "3"]
    sexes = ["f", "m", "null", "NA", "", "N/A", "unknown"]  # of which the last one is a category
    pairs = enumerate(zip(cells, sexes, strict=True))
    rows = [f"{'pP'[n % 2]},{1_700_000_000 + n},{x},{sex},{n % 2}\n" for n, (x, sex) in pairs]
    path = write(tmp_path, "patient,day,bili,sex,died\n" + "".join(rows))
    table = read_table(path)
    nan_equal(table.values[:, 0], [1.5, NAN, 2, 3, NAN, NAN, NAN])  # a column of numbers
    names = ["time", *table.schema.inputs()]
    wanted = sorted(capsys.readouterr().err.splitlines())
    begins = [line.removeprefix(f"{path}: ")[:15] for line in wanted]
    assert begins == ["1 pair of ids d", *["2 cells are tak"] * 2, "5 of 7 times ar"]
    assert wanted[1].endswith("in bili: line 3, '-'")
    assert wanted[2].endswith("in sex: line 4, 'null'")
    assert sorted(client.read_table(path, "patient", "day").notes(names)) == wanted
    assert list(client.read_table(path, "patient", "day").notes(["time"])) == [wanted[0], wanted[3]]


def test_the_columns_and_lengths_of_histories_are_printed_with_their_ways_out(tmp_path, capsys):
    config = Config(source="events", data="events:visits.csv", max_events=2)
    EventSource.make(config, read(tmp_path, WIDE))
    said = [re.sub(" {3,}", " | ", line) for line in capsys.readouterr().out.splitlines()]
    assert said == [
        "events:visits.csv: 3 examples of 2 ids, 67% came true",
        "  numbers | bili | columns of the TOML file",
        "  categories sex (f, m) | categories of the TOML file",
        "  events | 1 to 3 in a history; of 1 the last 2 are read | --set max_events=N",
    ]


def pbc_row(patient, day, futime, status):
    cells = {"bili": "2.0", "albumin": "3.5", "protime": "11", "edema": "0.5", "stage": "3"}
    cells |= dict.fromkeys(("ast", "alk.phos", "platelet", "ascites", "hepato", "spiders"), "1")
    cells |= {"chol": "", "sex": "f", "age": "50", "trt": "1", "id": patient, "day": str(day)}
    return cells | {"futime": str(futime), "status": status}


def test_landmarks_of_pbcseq_look_two_years_ahead():
    rows = [
        ("1", 0, 1000, "2"),  # dies after 1,000 days: later than two years from here
        ("1", 400, 1000, "2"),  # in 600 days
        ("2", 0, 500, "0"),  # lost after 500 days: nobody knows
        ("3", 0, 2000, "0"),
        ("3", 1000, 2000, "0"),
        ("3", 1900, 2000, "0"),
        ("4", 0, 100, "1"),  # a transplant
    ]
    found = events._pbcseq([pbc_row(*row) for row in rows])
    assert found.labels.tolist() == [0, 1, 0, 0, 1]
    assert found.people.tolist() == ["1", "1", "3", "3", "4"]
    assert (found.ends - found.starts).tolist() == [1, 2, 1, 2, 1]
    assert np.isnan(found.values[:, list(found.schema.columns).index("chol")]).all()


def test_nafld_reads_nothing_after_the_index_date():
    person = {"age": "50", "male": "1", "bmi": "", "weight": "", "height": "", "case.id": "1"}
    fates = [("1", "100", "1"), ("2", "100", "0"), ("3", "3000", "1")]  # 2 is lost, 3 dies later
    people = [person | {"id": id, "futime": days, "status": status} for id, days, status in fates]
    tests = [("-5", "40"), ("-5", "60"), ("1", "999")]
    tests = [{"id": "1", "test": "hdl", "days": days, "value": value} for days, value in tests]
    diagnoses = [("3", "-9", "htn"), ("1", "7", "htn"), ("1", "0", "nafld")]
    diagnoses = [{"id": id, "days": days, "event": event} for id, days, event in diagnoses]
    found = events._nafld(people, tests, diagnoses)
    assert found.labels.tolist() == [1, 0]
    assert found.people.tolist() == ["1", "3"]
    assert found.times.tolist() == [-5, 0, -9, 0]
    columns = list(found.schema.columns)
    for row, column, value in ((0, "hdl", 50), (2, "htn", 1), (1, "age", 50)):
        assert found.values[row, columns.index(column)] == value
    assert np.nanmax(found.values) < 999
