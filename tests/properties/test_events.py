"""Histories: every execution predicts the same after each, and refuses and tells the same."""

import contextlib
import csv
import io
import re
from functools import cache

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from serving.api._histories import history_columns, padded_columns, read_table
from serving.batch._inputs import Events
from serving.client import AsyncPredictor, Predictor
from serving.page._app import follow
from serving.portable.read import LocalPredictor
from tests.properties.executions import (
    FORMS,
    assert_alike,
    batch,
    examples,
    in_page,
    refusable,
    rest,
    served,
)  # fmt: skip
from tests.training.conftest import no_pictures, untrained  # noqa: F401 - for every test
from training.config.schema import Config
from training.data.read._specs import CorpusError
from training.decode.labels import make_predictor
from training.runs.checkpoints import save_best
from training.runs.run import load_run
from training.sources.events import _table as table

pytestmark = pytest.mark.slow

MOST = 4  # events that are read
NAMES = ["id", "day", "bili", "dose-a", "stage", "sex", "died"]
ABOUT = 'id = "id"\ntime = "day"\noutcome = "died"\nlog = ["bili"]\ncategories = ["stage"]\n'
COLUMNS = {
    "bili": ["0", "0.5", "2", "1e-9", "1e30", "-1", "-0.0", "1e31", "inf", "?", "unknown"],
    "dose-a": ["0", "-1e30", "1e30", "+3.5", "7.", ".5", "1_000", "1,5", "٣", "n.a.", "words"],
    "stage": ["1", "1.0", "2", "2.00", "3", "01", "?"],
    "sex": ["f", "m", "F", "a b", "e\u0301", "é", "é ", "-"],
}
MISSING = ["", "", "", "NA", "nan", "N/A", " null "]


@st.composite
def rows(draw):
    """The rows of a person: times that mostly grow, and cells that are mostly right."""
    count = draw(st.integers(1, MOST + 1) | st.just(2 * MOST + 3))
    least = draw(st.sampled_from([0, 0, 0, -1]))  # what is below 0 is drawn as no day
    days = draw(st.lists(st.integers(least, 9), min_size=count, max_size=count))
    days = sorted(days) if draw(st.integers(0, 7)) else days
    cells = {}
    for name, values in COLUMNS.items():
        usual = st.sampled_from(values[:3] + MISSING)
        odd = usual | st.sampled_from(values) if draw(st.integers(0, 3)) == 0 else usual
        cells[name] = draw(st.lists(odd, min_size=count, max_size=count))
    days = [draw(st.sampled_from(["", "x", "1e31"])) if n < 0 else str(n) for n in days]
    return list(zip(days, *cells.values(), strict=True))


people = st.lists(rows(), min_size=1, max_size=3)


def written(person, path):
    """Write the rows of a person as a table, with the outcome in the last; return the path."""
    file = io.StringIO()
    lines = csv.writer(file, lineterminator="\n")
    lines.writerow(NAMES)
    for number, row in enumerate(person, 1):
        lines.writerow(["a", *row, number % 2 if number == len(person) else ""])
    path.write_text(file.getvalue(), "utf-8")
    path.with_suffix(".toml").write_text(ABOUT)
    return path


def make_run(folder, rng, **settings):
    lines = [",".join(NAMES)]
    for person in range(60):
        for day in range(1 + person % 6):
            cells = [rng.choice(["", f"{rng.gamma(2):.3f}"]), f"{rng.normal():.3f}"]
            cells += [rng.choice(["", "1", "2"]), rng.choice(["f", "m", "a b", "é", ""])]
            lines.append(f"p{person},{day},{','.join(cells)},{person % 2}")
    folder.mkdir()
    (folder / "visits.csv").write_text("\n".join(lines) + "\n", "utf-8")
    (folder / "visits.toml").write_text(ABOUT)
    config = Config(
        source="events", data=f"events:{folder / 'visits.csv'}", max_events=MOST, encoder_units=5,
        attention_units=3, batch_size=16, epochs=1, **settings,
    )  # fmt: skip
    run = untrained(config, folder / "run")
    for weight in run.model.trainable_weights:
        weight.assign(rng.normal(0, 0.7, weight.shape))
    save_best(run.files, run.model)
    return run.path


RUNS = {
    "attention": {"bidirectional": False},
    "both": {"encoder": "lstm", "encoder_layers": 2, "distribution": "entmax15"},
    "last": {"attention": "none", "bidirectional": False},
}


@pytest.fixture(scope="module")
def executions(tmp_path_factory):
    """By the name of a model, its executions by name: functions of a table of one person.

    With the folder of tables, and functions of histories by the names of model and execution.
    """
    folder, rng = tmp_path_factory.mktemp("events"), np.random.default_rng(3)
    runs = {name: make_run(folder / name, rng, **more) for name, more in RUNS.items()}
    with contextlib.ExitStack() as stack:
        server, versions = stack.enter_context(served(runs, folder))
        found, outcomes = {}, {}
        for name, path in runs.items():
            saved, onnx = (versions[name, form] for form in FORMS)
            local = LocalPredictor(onnx)
            outcomes[name, "local"] = local.outcome
            own = {"training": in_training(load_run(path)), "batch": in_batch(saved, folder / name)}
            for form in FORMS:
                model = f"{name}-{form}"
                client = stack.enter_context(Predictor(f"localhost:{server.port}", model))
                outcomes[name, f"gRPC, {form}"] = client.outcome
                own[f"REST, {form}"] = over_rest(server, model, local)
                own[f"page, {form}"] = in_page(AsyncPredictor, server, model, follow_last)
            own |= {each: in_process(x) for (its, each), x in outcomes.items() if its == name}
            found[name] = {each: refusable(answer) for each, answer in own.items()}
        yield folder, found, outcomes


loaded = cache(load_run)


def in_training(run):
    predict = make_predictor([run])

    def answer(path):
        data = table.read_table(path, run.source.schema)
        count, found = len(data.times), predict(data)
        weights = [] if found.weights is None else found.weights[0].tolist()
        before = [0.0] * (count - len(weights) if weights else 0)
        said = {"probability": float(found.probabilities[0]), "truncated": count > MOST}
        return {**said, "attention_weights": [*before, *weights]}

    return answer


def histories(path):
    return [*read_table(path, "id", "day").values()]


def in_process(outcome):
    return lambda path: vars(*outcome(histories(path), ignore=True))


def over_rest(server, model, local):
    def answer(path):
        inputs = local.signatures()["predict"]["inputs"]
        columns = padded_columns([history_columns(*histories(path), inputs, ignore=True)])
        try:
            return rest(server, model, "predict", columns)
        except ValueError as error:
            if "needs a number, 0 to 1e30, but it is " in str(error):
                raise
            raise RuntimeError(error) from error  # no refusal of a number

    return answer


def in_batch(version, folder):
    def answer(path):
        content = path.read_bytes()
        return {"truncated": False} | batch(
            version, Events("id", "day"), content, folder, "visits-of-one.csv"
        )[0]

    return answer


async def follow_last(client, path):
    body = {"table": path.read_text("utf-8"), "id": "id", "time": "day", "person": ""}
    found = await follow(client, body)
    said = {"probability": found["probabilities"][-1], "truncated": found["truncated"]}
    return {**said, "attention_weights": found["weights"][-1]}


ONCE = [(str(day), "2" if not day else "", "", "1.0", "é" if not day else "") for day in range(9)]


@pytest.mark.parametrize("name", RUNS)
@examples(30)
@example([ONCE, ONCE[:MOST], ONCE[: MOST + 1]])
@example([[("1", "-1", "", "", "")], [("1", "1e30", "-1e30", "2.0", "NA")], [("", "", "", "", "")]])
@example([[("3", "", "", "", ""), ("2", "", "", "", "")], [("1", "1e31", "", "", "")]])
@given(drawn=people)
def test_every_execution_predicts_and_refuses_the_same(executions, name, drawn):
    folder, found, _ = executions
    paths = [written(person, folder / f"{n}.csv") for n, person in enumerate(drawn)]
    answers = {each: list(map(ask, paths)) for each, ask in found[name].items()}
    assert_alike(answers, drawn, 2e-4)


@examples(30)
@given(drawn=people)
def test_what_a_table_is_taken_for_is_told_in_the_same_words(executions, drawn):
    """By a client, of the numbers that a model reads, as by `evaluate`."""
    folder, *_ = executions
    run = loaded(folder / "attention" / "run")
    path = written([row for person in drawn for row in person], folder / "told.csv")
    told = io.StringIO()
    with contextlib.suppress(CorpusError), contextlib.redirect_stderr(told):
        table.read_table(path, run.source.schema)
        wanted = {line for line in told.getvalue().splitlines() if "taken as" in line}
        assert {*read_table(path, "id", "day").notes(run.source.inputs())} == wanted


@pytest.mark.parametrize("each", ["local", "gRPC, savedmodel", "gRPC, onnx"])
@examples(15)
@given(drawn=people)
def test_a_history_is_answered_alone_as_among_others(executions, each, drawn):
    folder, found, outcomes = executions
    paths = [written(person, folder / f"{n}.csv") for n, person in enumerate(drawn)]
    alone = {path: found["both"][each](path) for path in paths}
    good = [path for path, answer in alone.items() if not answer["refused"]]
    if good:
        lines = [path.read_text("utf-8").splitlines() for path in good]
        body = [re.sub("^a,", f"p{n},", x) for n, rows in enumerate(lines) for x in rows[1:]]
        # People may stand among one another, each in the order of times.
        body.sort(key=lambda line: float(line.split(",")[1]))
        (folder / "all.csv").write_text("\n".join([lines[0][0], *body]) + "\n", "utf-8")
        people = read_table(folder / "all.csv", "id", "day")
        together = outcomes["both", each]([*people.values()], ignore=True)
        order = [alone[good[int(person[1:])]] for person in people]
        assert_alike({"alone": order, "together": list(map(vars, together))}, [*people], 2e-4)


@examples(60)
@given(
    drawn=rows(),
    change=st.sampled_from(["", "bom", "crlf", "blank", "short", "long", "bytes", "nul", "quote"]),
    place=st.integers(0, 10_000),
)
def test_a_file_that_is_no_table_is_refused_by_all(executions, drawn, change, place):
    folder, found, _ = executions
    path = written(drawn, folder / "broken.csv")
    lines = path.read_bytes().split(b"\n")
    at = place % len(lines)
    added = {"blank": b",,,,,,\n", "short": b"a\n", "long": b"a,1,,,,,,,,\n"}
    added |= {"bytes": b"\xff\xfe", "nul": b"a\0b", "quote": b'"'}
    lines[at] = added.get(change, b"") + lines[at]
    content = b"\n".join(lines)
    content = b"\xef\xbb\xbf" + content if change == "bom" else content
    content = content.replace(b"\n", b"\r\n") if change == "crlf" else content
    path.write_bytes(content)
    names = "training", "local", "gRPC, savedmodel", "batch"
    answers = {each: [found["attention"][each](path)] for each in names}
    assert_alike(answers, [content], 2e-4)
