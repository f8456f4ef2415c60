"""Histories: every execution predicts the same after each, and refuses and tells the same."""

import asyncio
import contextlib
import csv
import io
import re
from functools import cache

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from serving.api._errors import ServingError
from serving.api._histories import history_columns, padded_columns, read_table
from serving.batch._inputs import Events
from serving.client import AsyncPredictor, Predictor
from serving.page._app import BadRequestError, follow
from serving.portable.read import LocalPredictor
from tests.properties.executions import FORMS, assert_alike, batch, examples, rest, rows_of, served
from tests.training.conftest import no_pictures, untrained  # noqa: F401 - for every test
from training.command.errors import UserError
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
    """By the name of a model, its executions by name: functions of a table of one person."""
    folder, rng = tmp_path_factory.mktemp("events"), np.random.default_rng(3)
    runs = {name: make_run(folder / name, rng, **more) for name, more in RUNS.items()}
    with contextlib.ExitStack() as stack:
        server, versions = stack.enter_context(served(runs, folder))
        found = {}
        for name, path in runs.items():
            saved, onnx = (versions[name, form] for form in FORMS)
            local = LocalPredictor(onnx)
            own = {"training": in_training(load_run(path)), "local": asked(local.outcome)}
            own["batch"] = in_batch(saved, folder / name)
            for form in FORMS:
                model = f"{name}-{form}"
                client = stack.enter_context(Predictor(f"localhost:{server.port}", model))
                own[f"gRPC, {form}"] = asked(client.outcome)
                own[f"REST, {form}"] = over_rest(server, model, local)
                own[f"page, {form}"] = in_page(server, model)
            found[name] = own
        yield folder, found


REFUSED = {"refused": True}
loaded = cache(load_run)


def in_training(run):
    predict = make_predictor([run])

    def ask(path):
        try:
            data = table.read_table(path, run.source.schema)
        except CorpusError:
            return REFUSED
        count, found = len(data.times), predict(data)
        weights = [] if found.weights is None else found.weights[0].tolist()
        before = [0.0] * (count - len(weights) if weights else 0)
        said = {"probability": float(found.probabilities[0]), "truncated": count > MOST}
        return {**said, "attention_weights": [*before, *weights], "refused": False}

    return ask


def asked(outcome):
    def ask(path):
        try:
            (answer,) = outcome([*read_table(path, "id", "day").values()], ignore=True)
        except (ValueError, ServingError):
            return REFUSED
        return {**vars(answer), "refused": False}

    return ask


def over_rest(server, model, local):
    def ask(path):
        (history,) = read_table(path, "id", "day").values()
        inputs = local.signatures()["predict"]["inputs"]
        try:
            columns = padded_columns([history_columns(history, inputs, ignore=True)])
        except ValueError:
            return REFUSED
        outputs = rest(server, model, "predict", columns)
        if "error" in outputs:
            assert "needs a number, 0 to 1e30, but it is " in outputs["error"]
            return REFUSED
        return {**rows_of(outputs, 1)[0], "refused": False}

    return ask


def in_batch(version, folder):
    def ask(path):
        kind = Events("id", "day")
        (record,) = batch(version, kind, path.read_bytes(), folder, "visits-of-one.csv")
        if "error" in record:
            return REFUSED
        return {"truncated": False, **record, "refused": False}

    return ask


def in_page(server, model):
    async def answer(path):
        async with AsyncPredictor(f"localhost:{server.port}", model) as predictor:
            body = {"table": path.read_text("utf-8"), "id": "id", "time": "day", "person": ""}
            return await follow(predictor, body)

    def ask(path):
        try:
            found = asyncio.run(answer(path))
        except (BadRequestError, ServingError):
            return REFUSED
        said = {"probability": found["probabilities"][-1], "truncated": found["truncated"]}
        return {**said, "attention_weights": found["weights"][-1], "refused": False}

    return ask


ONCE = [(str(day), "2" if not day else "", "", "1.0", "é" if not day else "") for day in range(9)]


@pytest.mark.parametrize("name", RUNS)
@examples(30)
@example([ONCE, ONCE[:MOST], ONCE[: MOST + 1]])
@example([[("1", "-1", "", "", "")], [("1", "1e30", "-1e30", "2.0", "NA")], [("", "", "", "", "")]])
@example([[("3", "", "", "", ""), ("2", "", "", "", "")], [("1", "1e31", "", "", "")]])
@given(drawn=people)
def test_every_execution_predicts_and_refuses_the_same(executions, name, drawn):
    folder, found = executions
    paths = [written(person, folder / f"{n}.csv") for n, person in enumerate(drawn)]
    answers = {each: list(map(ask, paths)) for each, ask in found[name].items()}
    assert_alike(answers, drawn, 2e-4)


@examples(30)
@given(drawn=people)
def test_what_a_table_is_taken_for_is_told_in_the_same_words(executions, drawn):
    """By a client, of the numbers that a model reads, as by `evaluate`."""
    folder, _ = executions
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
    folder, found = executions
    ask = found["both"][each]
    paths = [written(person, folder / f"{n}.csv") for n, person in enumerate(drawn)]
    alone = {path: ask(path) for path in paths}
    good = [path for path, answer in alone.items() if not answer["refused"]]
    if good:
        lines = [path.read_text("utf-8").splitlines() for path in good]
        head = [lines[0][0]]
        body = [re.sub("^a,", f"p{n},", x) for n, rows in enumerate(lines) for x in rows[1:]]
        # People may stand among one another, each in the order of times.
        body.sort(key=lambda line: float(line.split(",")[1]))
        (folder / "all.csv").write_text("\n".join(head + body) + "\n", "utf-8")
        histories = read_table(folder / "all.csv", "id", "day")
        order = [int(person[1:]) for person in histories]
        outcome = ask.__closure__[0].cell_contents
        together = [vars(answer) for answer in outcome([*histories.values()], ignore=True)]
        assert_alike({"alone": [alone[good[n]] for n in order], "together": together}, order, 2e-4)


@examples(60)
@given(
    drawn=rows(),
    change=st.sampled_from(["", "bom", "crlf", "blank", "short", "long", "bytes", "nul", "quote"]),
    place=st.integers(0, 10_000),
)
def test_a_file_that_is_no_table_is_refused_by_all(executions, drawn, change, place):
    folder, found = executions
    path = written(drawn, folder / "broken.csv")
    lines = path.read_bytes().split(b"\n")
    at = place % len(lines)
    if change in ("blank", "short", "long", "bytes", "nul", "quote"):
        added = {"blank": b",,,,,,\n", "short": b"a\n", "long": b"a,1,,,,,,,,\n"}
        added |= {"bytes": b"\xff\xfe", "nul": b"a\0b", "quote": b'"'}
        lines[at] = added[change] + lines[at]
    content = b"\n".join(lines)
    content = b"\xef\xbb\xbf" + content if change == "bom" else content
    content = content.replace(b"\n", b"\r\n") if change == "crlf" else content
    path.write_bytes(content)
    answers = {"training": found["attention"]["training"](path)}
    for each in ("local", "gRPC, savedmodel"):
        answers[each] = found["attention"][each](path)
    with contextlib.suppress(UserError):
        answers["batch"] = REFUSED
        answers["batch"] = found["attention"]["batch"](path)
    assert_alike({each: [answer] for each, answer in answers.items()}, [content], 2e-4)
