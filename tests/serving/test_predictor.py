"""Histories from export to client, and what goes wrong on the way."""

import json
import math

import numpy as np
import pytest
from PIL import Image

from serving.api import _histories as histories
from serving.api._results import Prediction
from serving.batch.__main__ import main as batch
from serving.check._version import check_version
from serving.client import _predict as predict
from serving.client._clients import Predictor
from serving.client._drawing import draw_timeline
from serving.export._version import export
from serving.portable.read import LocalPredictor
from tests.serving.conftest import serving
from training.decode.labels import make_predictor
from training.sources.events import _data as events


@pytest.fixture(scope="module")
def models(event_run, tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    export([event_run], root / "visits")
    return root


@pytest.fixture(scope="module")
def event_server(models):
    with serving(base=models / "visits") as server:
        yield f"localhost:{server.port}"


def test_the_export_check_finds_nothing(models):
    assert check_version(models / "visits" / "1") == []


def as_history(data, row):
    start, end = data.starts[row], data.ends[row]
    values = data.values[start:end]
    sexes = [None if math.isnan(v[1]) else "f" if v[1] else "m" for v in values]
    bili = [None if math.isnan(v[0]) else float(v[0]) for v in values]
    return {"time": data.times[start:end].tolist(), "bili": bili, "sex": sexes}


def test_what_is_served_is_what_the_run_predicts(event_run, event_server):
    data = events.load(event_run.config.data, "all").select(np.arange(0, 60, 5))
    wanted = make_predictor([event_run])(data)
    with Predictor(event_server, "visits") as predictor:
        inputs = predictor.metadata().signatures["predict"]["inputs"]
        found = predictor.outcome([as_history(data, row) for row in range(len(data.labels))])
    assert set(inputs) == {"time", "bili", "sex__f", "sex__m"}
    said = [answer.probability for answer in found]
    np.testing.assert_allclose(said, wanted.probabilities, atol=1e-5)
    for answer, weights in zip(found, wanted.weights, strict=True):
        np.testing.assert_allclose(answer.attention_weights, weights, atol=1e-5)
        assert sum(answer.attention_weights) == pytest.approx(1, abs=1e-4)


def test_the_command_predicts_from_a_table(event_run, event_server, tmp_path, capsys):
    table = event_run.config.data.removeprefix("events:")
    options = ["--target", event_server, "--model", "visits", "--id", "patient", "--time", "day"]
    picture = tmp_path / "timeline.png"
    assert predict.main([table, *options, "--json", "--only", "p2", "--png", str(picture)]) == 0
    out = capsys.readouterr().out
    assert '"id": "p2"' in out
    assert out.count("30.0") == 1
    with Image.open(picture) as drawn:
        assert drawn.size[0] > 100
    assert predict.main([table, *options, "--only", "nobody"]) == 1
    assert "has no patient 'nobody'" in capsys.readouterr().err


INPUTS, PREFIXED = "time bili sex__f sex__m", "time sex_ratio sex__f sex___u2b_"
GOOD = {"time": [0], "bili": [1.0], "sex": ["f"]}


@pytest.mark.parametrize(
    ("history", "inputs", "said"),
    [
        ({"bili": [1.0], "sex": ["f"]}, INPUTS, "a history has no time"),
        (GOOD | {"time": [0, 1]}, INPUTS, "has 2 times, and 1 values of bili"),
        (
            {"time": [3, 1], "bili": [1, 1], "sex": ["f"] * 2},
            *(INPUTS, "times of a history go back, from 3"),
        ),
        (GOOD | {"time": [None]}, INPUTS, "the time of an event is missing"),
        (GOOD | {"time": ["nan"]}, INPUTS, "the time of an event is missing"),
        (GOOD | {"sex": ["x y"]}, INPUTS, "sex was never 'x y' in training; known are f, m"),
        (GOOD | {"bili": ["high"]}, INPUTS, "bili needs a number.* but it is 'high'"),
        (GOOD | {"bili": ["1_000"]}, INPUTS, "bili needs a number.* but it is '1_000'"),
        (GOOD | {"time": ["1e308"]}, INPUTS, "time needs a number, -1e30 to 1e30, but .* '1e308'"),
        (GOOD | {"time": [10**400]}, INPUTS, "time needs .* but it is 1000"),
        (GOOD | {"time": [math.inf]}, INPUTS, "time needs .* but it is inf"),
        (GOOD | {"iron": [1]}, INPUTS, "the model has no column 'iron'; it has time, bili"),
        ({"time": [0], "sex": ["f"]}, INPUTS, "has no bili, which the model reads; it has time, s"),
        ({"time": [0], "sex": ["-"], "sex_ratio": [2]}, PREFIXED, r"known are f, \+$"),
        ({"time": [0], "a b": [1], "a.b": [2]}, "time a_b", "'a b' and 'a.b' are both a_b to the"),
        ({"time": [0], "a b": [1], "a/b": [2]}, "time a_b", "'a b' and 'a/b' are both a_b to the"),
    ],
)
def test_a_history_that_cannot_be_sent_is_one_clear_line(history, inputs, said):
    with pytest.raises(ValueError, match=said):
        histories.history_columns(history, inputs.split())


def test_a_category_that_pandas_calls_missing_is_missing():
    class Missing:  # as pandas.NA: a comparison with it has no truth value
        __eq__ = __ne__ = lambda self, _: self
        __hash__ = None

        def __bool__(self):
            raise TypeError("boolean value of NA is ambiguous")

        def __repr__(self):
            return "<NA>"

    history = {"time": [0, 1], "bili": [1.0, None], "sex": ["f", Missing()]}
    assert str(histories.history_columns(history, INPUTS.split())["sex__f"]) == "[1.0, nan]"


def test_a_column_whose_name_begins_with_anothers_stays_what_it_is():
    for order in (("sex", "sex_ratio"), ("sex_ratio", "sex")):
        columns = {"sex": ["f", "+"], "sex_ratio": [2, 3]}
        history = {"time": [0, 1], **{name: columns[name] for name in order}}
        wanted = {"time": [0, 1], "sex_ratio": [2, 3], "sex__f": [1, 0], "sex___u2b_": [0, 1]}
        assert histories.history_columns(history, PREFIXED.split()) == wanted


TABLE = "id,day,bili\na,1,2\na,2,3\n"


@pytest.mark.parametrize(
    ("table", "roles", "said"),
    [
        ("id,day,time,xtime\na,1,2,3\n", "id day", "two columns 'xtime'"),
        (TABLE.replace("day,bili", "time, time"), "id time", "two columns 'time'"),
        (TABLE, "day day", "ids and times need a column each, but 'day' is given for both"),
        (TABLE, "id when", "no column 'when'; it has id, day, bili"),
        (TABLE + "b,3,1,0\n", "id day", "line 4 has 4 columns, but the header 3"),
        (TABLE + "b,3,\0\n", "id day", "line 4 has a NUL: it is no text"),
        ("", "id day", "no column 'id'"),
        ("id,day,bili\n", "id day", "no rows"),
    ],
)
def test_a_table_whose_columns_are_not_clear_is_one_line(table, roles, said, tmp_path, capsys):
    file = tmp_path / "table.csv"
    file.write_text(table)
    person, time = roles.split()
    options = ["--model", "visits", "--id", person, "--time", time]
    assert predict.main([str(file), *options]) == 1
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert said in error
    assert error.count("\n") == 1


def test_tables_that_a_training_takes_are_taken(tmp_path):
    """A byte order mark, spaces, row numbers without a name, columns whose names are read alike."""
    file = tmp_path / "table.csv"
    file.write_text("\ufeffid, day, bili\na , 1, 2\n\na,2,3\n", encoding="utf-8")
    wanted = {"a": {"time": ["1", "2"], "bili": ["2", "3"]}}
    assert histories.read_table(file, "id", "day") == wanted
    file.write_text(",id,day,time,dose_a,dose-a,\n0,a,1,5,7,9,\n1,a,2,6,8,9,0\n")
    table = histories.read_table(file, "id", "day")
    inputs = ("time", "xtime", "dose_a")
    found = histories.history_columns(table["a"], inputs, ignore=True)
    assert found == {"time": [1, 2], "xtime": [5, 6], "dose_a": [7, 8]}
    (note,) = table.notes(inputs)
    assert note == f"{file}: 'dose-a' is not read beside 'dose_a': both are dose_a"
    with pytest.raises(ValueError, match="are both dose_a to the model"):
        histories.history_columns(table["a"], inputs)


def test_a_number_that_has_no_logarithm_is_an_error_of_its_own_history(
    event_server, models, tmp_path, capsys
):
    table, said = tmp_path / "t.csv", "bili needs a number, 0 to 1e30, but it is -2"
    table.write_text("id,time,bili,sex\na,1,2,f\nb,1,-2,f\nc,1,unknown,m\nd,1,1e30,m\n")
    words = ["--model", models / "visits", "--input", table, "--output", tmp_path / "out"]
    batch(list(map(str, words)))
    told = f"Warning: {table}: 1 cell is taken as missing in bili: line 4, 'unknown'\n"
    assert capsys.readouterr().err.count(told) == 1
    found = [json.loads(line) for line in (tmp_path / "out" / "t.jsonl").read_text().splitlines()]
    assert [record.get("error") for record in found] == [None, said, None, None]
    options = ["--target", event_server, "--model", "visits"]
    assert predict.main([str(table), *options]) == 1
    assert said in capsys.readouterr().err
    assert predict.main([str(table), *options, "--only", "c", "--only", "d"]) == 0
    out, err = capsys.readouterr()
    assert err == told
    said = [float(line.split()[0]) for line in out.splitlines()]
    np.testing.assert_allclose(said, [found[n]["probability"] for n in (2, 3)], atol=1e-4)


def test_of_a_long_history_all_tell_that_the_last_events_are_read(
    event_run, event_server, models, onnx_predictor, tmp_path, capsys
):
    most = event_run.config.max_events
    history = {"time": [*range(most + 3)], "bili": [5.0, *[None] * (most + 2)]}
    history["sex"] = ["f", *[None] * (most + 2)]
    with Predictor(event_server, "visits") as remote:
        for predictor in (remote, LocalPredictor(onnx_predictor)):
            answer, other, short = predictor.outcome(
                [
                    history,
                    {**history, "sex": ["m", *history["sex"][1:]]},
                    {name: cells[:most] for name, cells in history.items()},
                ]
            )
            assert (answer.truncated, short.truncated) == (True, False)
            assert answer.probability != other.probability
            assert len(answer.attention_weights) == most + 3
            assert not any(answer.attention_weights[:3])
            assert all(answer.attention_weights[3:])
    table = tmp_path / "long.csv"
    rows = zip(*history.values(), strict=True)
    lines = ["a," + ",".join("" if x is None else str(x) for x in row) for row in rows]
    table.write_text("id,time,bili,sex\n" + "\n".join(lines) + "\n")
    assert predict.main([str(table), "--target", event_server, "--model", "visits", "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["truncated"] is True
    assert "1 of 1 histories have more events than the model reads" in err
    words = ["--model", models / "visits", "--input", table, "--output", tmp_path / "out"]
    batch(list(map(str, words)))
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["truncated"] == 1


def test_a_dollar_in_a_title_is_a_dollar(tmp_path):
    title, prediction = "$\\nothing{$ costs $5_{ or $a^$", Prediction(0.25, (0.5, 0.5))
    titles = {"found": title, "same": title, "none": title.replace("$", "")}
    for name, text in titles.items():
        draw_timeline([0.0, 1.0], prediction, tmp_path / f"{name}.png", text)
    found, same, none = (Image.open(tmp_path / f"{name}.png").tobytes() for name in titles)
    assert found == same
    assert found != none
    with pytest.raises(ValueError, match=r"expected 2 weights. Received: 0"):  # no attention
        draw_timeline([0.0, 1.0], Prediction(0.25, ()), tmp_path / "found.png")
