"""Images and histories from export to client, and what goes wrong on the way."""

import asyncio
import base64
import http.client
import io
import json
import math
import resource

import grpc
import numpy as np
import pytest
import tensorflow as tf
from PIL import Image
from sklearn.metrics import roc_auc_score
from tensorflow_serving.apis import predict_pb2

from serving import check, histories, predict, read, reading, tasks
from serving.batch.__main__ import main as batch
from serving.errors import InvalidRequestError
from serving.export import export
from serving.readers import AsyncReader, Predictor, Reader
from tests.serving.conftest import error_of, serving
from tests.serving.test_rest import free_port
from tests.training.sources.test_image import encode, huge_png
from training import evaluate, translate
from training.data import digits, events, images
from training.decode.labels import make_predictor
from training.decode.search import search
from training.decode.texts import make_nbest
from training.errors import RunError, UserError
from training.fit.texts import train
from training.runs.run import load_run
from training.score.pointing import region_weights
from training.settings import load_preset, override

TINY_IMAGES = [
    *(
        "train_limit=40",
        "epochs=1",
        "convolutions=3:2x2 5:2x2",
        "decoder_units=7",
        "embedding_size=3",
    ),
    *("attention_units=5", "readout_units=7", "batch_size=20", "validation_limit=5"),
]


@pytest.fixture(scope="session")
def image_run(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "digits"
    train(override(load_preset("digits"), TINY_IMAGES), path)
    return load_run(path)


@pytest.fixture(scope="session")
def event_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("events")
    rng = np.random.default_rng(0)
    lines = ["patient,day,bili,sex,died"]
    for person in range(60):
        sick = person % 2
        for day in (0, 7, 30)[: 1 + person % 3]:
            bili = "" if rng.random() < 0.2 else f"{np.exp(rng.normal() + 2 * sick):.3f}"
            lines.append(f"p{person},{day},{bili},{'mf'[rng.integers(2)]},{sick}")
    (folder / "visits.csv").write_text("\n".join(lines) + "\n")
    about = 'id = "patient"\ntime = "day"\noutcome = "died"\nlog = ["bili"]\n'
    (folder / "visits.toml").write_text(about)
    settings = [f"data=events:{folder / 'visits.csv'}", "epochs=2", "encoder_units=5"]
    settings += ["attention_units=3", "batch_size=16"]
    train(override(load_preset("pbcseq"), settings), folder / "run")
    return load_run(folder / "run")


@pytest.fixture(scope="session")
def models(image_run, event_run, tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    export([image_run], root / "digits", beam_width=3)
    export([event_run], root / "visits")
    return root


@pytest.fixture(scope="module")
def image_server(models):
    flags = ("--model_name=digits", f"--model_base_path={models / 'digits'}")
    with serving(*flags, f"--rest_api_port={free_port()}") as server:
        yield server


@pytest.fixture
def image_target(image_server):
    return f"localhost:{image_server.port}"


@pytest.fixture(scope="module")
def event_server(models):
    with serving("--model_name=visits", f"--model_base_path={models / 'visits'}") as server:
        yield f"localhost:{server.port}"


def pictures(count=3):
    return [example.image for example in digits.make(count, seed=9)]


@pytest.mark.parametrize("name", ["digits", "visits"])
def test_the_export_check_finds_nothing(models, name):
    assert check.check(models / name / "1") == []


def test_the_check_finds_an_export_that_does_not_say_which_image_is_broken(tmp_path):
    class Careless(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="image_bytes")])
        def read(self, image_bytes):
            return {"score": tf.zeros_like(tf.strings.length(image_bytes), tf.float32)}

    module = Careless()
    tf.saved_model.save(module, str(tmp_path / "1"), signatures={"read": module.read})
    assert any("takes a text for an image" in line for line in check.check(tmp_path / "1"))


def test_what_is_served_is_what_the_run_reads(image_run, image_target):
    images = pictures()
    wanted = make_nbest([image_run], beam_width=3)(images)
    rows = image_run.source.rows(images)
    best = search(
        [image_run.model],
        rows.pad(np.arange(3), rows.lengths),
        beam_width=3,
        max_length=image_run.config.max_target_length,
        return_attention_weights=True,
    )
    with Reader(image_target, "digits") as reader:
        found = reader.read(images)
        looked = reader.regions(images)
    for number, (answer, regions) in enumerate(zip(found, looked, strict=True)):
        assert answer.text == regions.text == wanted[number][0].text
        assert answer.score == pytest.approx(wanted[number][0].score, abs=1e-3)
        length = len(regions.tokens)  # 0 for one that seems empty
        weights = np.reshape(regions.attention_weights, (length, 8, 18))
        mine = np.array(best.attention_weights)[number, 0, :length]
        np.testing.assert_allclose(weights.reshape(length, 8 * 18), mine, atol=1e-3)
    assert any(regions.tokens for regions in looked)


def test_paths_arrays_and_bytes_are_the_same_image(image_target, tmp_path):
    (contents,) = pictures(1)
    (tmp_path / "image.png").write_bytes(contents)
    pixels = np.asarray(Image.open(io.BytesIO(contents)))
    forms = [contents, tmp_path / "image.png", str(tmp_path / "image.png"), pixels]
    forms += [pixels[..., None], np.repeat(pixels[..., None], 3, axis=2)]
    with Reader(image_target, "digits") as reader:
        found = reader.read(forms)
    assert len({answer.text for answer in found}) == 1
    assert np.ptp([answer.score for answer in found]) < 1e-4

    async def read_all():
        async with AsyncReader(image_target, "digits") as reader:
            return await reader.read(forms[:1]), await reader.regions(forms[:1])

    (one,), (regions,) = asyncio.run(read_all())
    assert one.text == regions.text


@pytest.mark.parametrize("shape", [(5, 7), (5, 7, 1), (5, 7, 3), (5, 7, 4)])
def test_arrays_become_png_files(shape):
    pixels = np.random.default_rng(0).integers(0, 256, shape).astype("uint8")
    found = np.asarray(Image.open(io.BytesIO(reading.image_file(pixels))))
    np.testing.assert_array_equal(found.reshape(shape), pixels)


@pytest.mark.parametrize("image", [np.zeros((3, 4)), np.zeros((3, 4, 2), "uint8"), 7, np.uint8(1)])
def test_what_is_no_image_is_refused_before_it_is_sent(image):
    with pytest.raises(ValueError, match="expected an image"):
        reading.image_file(image)


def test_a_broken_image_is_named_and_takes_no_other_down(image_target, tmp_path):
    images = pictures(5)
    broken = tmp_path / "broken.png"
    broken.write_bytes(images[1][:-30])
    images[1], images[3] = broken, b"no image"
    with Reader(image_target, "digits") as reader:
        with pytest.raises(InvalidRequestError, match=r"image 2 \(.*broken.png\).*is cut off"):
            reader.read(images)
        found = reader.regions(images, keep_errors=True)
        good = reader.read([images[0], images[2], images[4]])
    assert [isinstance(answer, InvalidRequestError) for answer in found] == [0, 1, 0, 1, 0]
    assert [found[i].text for i in (0, 2, 4)] == [answer.text for answer in good]
    assert "neither PNG nor JPEG" in str(found[3])


def test_the_command_reads_draws_and_goes_on_after_a_broken_image(image_target, tmp_path, capsys):
    names = []
    for number, contents in enumerate(pictures(2)):
        names.append(str(tmp_path / f"{number}.png"))
        (tmp_path / f"{number}.png").write_bytes(contents)
    bad = tmp_path / "bad.png"
    bad.write_text("no image")
    options = ["--target", image_target, "--model", "digits", "--regions"]
    options += ["--png", str(tmp_path / "out.png"), "--json"]
    assert read.main([names[0], str(bad), names[1], *options]) == 1
    out, err = capsys.readouterr()
    assert len(out.splitlines()) == 2
    assert f"error: {bad}" in err
    assert Image.open(tmp_path / "out-1.png").size[0] > 100
    assert (tmp_path / "out-3.png").exists()
    assert read.main(["nowhere.png", *options[:4]]) == 1


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
    assert set(inputs) == {"time", "bili", "sex_f", "sex_m"}
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
    assert Image.open(picture).size[0] > 100
    assert predict.main([table, *options, "--only", "nobody"]) == 1
    assert "has no patient 'nobody'" in capsys.readouterr().err
    assert predict.main([table, *options[:-1], "when"]) == 1
    assert "has no column 'when'; it has patient, day" in capsys.readouterr().err


INPUTS = ("time", "bili", "sex_f", "sex_m")


@pytest.mark.parametrize(
    ("history", "said"),
    [
        ({"bili": [1.0]}, "a history has no time"),
        ({"time": [0, 1], "bili": [1.0]}, "has 2 times, and 1 values of bili"),
        ({"time": [3, 1]}, "times of a history go back, from 3 to 1"),
        ({"time": [0, None]}, "the time of an event is missing"),
        ({"time": [0], "sex": ["x"]}, "sex was never 'x' in training; known are f, m"),
        ({"time": [0], "bili": ["high"]}, "expected bili to be a number; received 'high'"),
        ({"time": [0], "iron": [1]}, "the model has no column 'iron'; it has time, bili"),
    ],
)
def test_a_history_that_cannot_be_sent_is_one_clear_line(history, said):
    with pytest.raises(ValueError, match=said):
        histories.history_columns(history, INPUTS)


def test_columns_of_a_history_are_numbers_nan_where_missing():
    history = {"time": ["0", 5], "bili": ["NA", 2.5], "sex": ["m", None], "name": ["x", "y"]}
    found = histories.history_columns(history, INPUTS, ignore=True)
    nan = math.nan
    wanted = {"time": [0, 5], "bili": [nan, 2.5], "sex_f": [0, nan], "sex_m": [1, nan]}
    assert {k: [str(v) for v in map(float, c)] for k, c in found.items()} == {
        k: [str(v) for v in map(float, c)] for k, c in wanted.items()
    }


def test_files_of_images_and_of_histories_are_answered_as_by_the_server(
    image_target, event_server, event_run, models, tmp_path, capsys
):
    (tmp_path / "shots").mkdir()
    shots = {f"{n}.png": contents for n, contents in enumerate(pictures())}
    shots["1b.png"] = b"nothing"
    for name, contents in shots.items():
        (tmp_path / "shots" / name).write_bytes(contents)
    table = event_run.config.data.removeprefix("events:")
    for name, source, more in (
        ("digits", tmp_path / "shots", []),
        ("visits", table, ["--id", "patient", "--time", "day", "--batch-size", "7"]),
    ):
        words = ["--model", models / name, "--input", source, "--output", tmp_path / name]
        batch([*map(str, words), *more])
        assert json.loads(capsys.readouterr().out.splitlines()[-1])["bad"] == (name == "digits")
    found = [json.loads(line) for line in (tmp_path / "digits/shots.jsonl").open()]
    assert [record["image"] for record in found] == ["0.png", "1.png", "1b.png", "2.png"]
    assert found.pop(2) == {"image": "1b.png", "error": "is neither PNG nor JPEG"}
    with Reader(image_target, "digits") as reader:
        for record, answer in zip(found, reader.read(pictures()), strict=True):
            assert record["text"] == answer.text
            assert record["score"] == pytest.approx(answer.score, abs=1e-3)
    known = histories.read_table(table, "patient", "day")
    found = [json.loads(line) for line in (tmp_path / "visits/visits.jsonl").open()]
    assert [record["patient"] for record in found] == list(known)
    with Predictor(event_server, "visits") as predictor:
        answers = predictor.outcome(list(known.values()), ignore=True)
    wanted = [answer.probability for answer in answers]
    np.testing.assert_allclose([r["probability"] for r in found], wanted, atol=1e-5)


def test_the_demo_has_images_read_that_it_wrote(image_target, tmp_path, capsys):
    tasks.read_images("digits", image_target, tmp_path, seed=3)
    out = capsys.readouterr().out
    assert out.count("expected:") <= 6
    assert all(f"000{number}.png" in out for number in range(6))
    assert Image.open(tmp_path / "picture.png").size[0] > 100
    assert len((tmp_path / "images" / "labels.tsv").read_text().splitlines()) == 6


def test_an_image_run_is_scored_by_exact_texts_errors_and_pointing(image_run, capsys):
    evaluate.main(["--run", str(image_run.path), "--limit", "6", "--beam-width", "1"])
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    split = images.load("digits", "test", limit=6)
    texts = [found[0].text for found in make_nbest([image_run], beam_width=1)(split.sources)]
    wanted = [references[0] for references in split.references]
    exact = np.mean([text == gold for text, gold in zip(texts, wanted, strict=True)])
    assert result["exact"] == pytest.approx(100 * exact)
    hits, total = 0, 0
    for weights, boxes in zip(
        region_weights([image_run], split.sources, wanted), split.boxes, strict=True
    ):
        for grid, (left, top, right, bottom) in zip(weights, boxes, strict=True):
            row, column = np.unravel_index(grid.argmax(), grid.shape)
            x, y = (column + 0.5) / grid.shape[1], (row + 0.5) / grid.shape[0]
            hits += left <= x <= right and top <= y <= bottom
            total += 1
    assert result["pointing"] == pytest.approx(100 * hits / total)
    with pytest.raises(UserError, match="--by-length expected runs with source = text"):
        evaluate.main(["--run", str(image_run.path), "--by-length"])


def test_an_event_run_is_scored_beside_its_baselines(event_run, tmp_path, capsys):
    spec, output = event_run.config.data, tmp_path / "scores.json"
    options = ["--run", str(event_run.path), "--data", spec, "--baseline", "--bootstrap"]
    evaluate.main([*options, "--output", str(output)])
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert result == json.loads(output.read_text())
    data = events.load(spec, "all")
    said = make_predictor([event_run])(data).probabilities
    assert result["auc"] == pytest.approx(roc_auc_score(data.labels, said))
    low, high = result["auc_interval"]
    assert low <= result["auc"] <= high
    assert result["logistic_regression_auc"] > 0.8  # bilirubin tells who is sick
    assert (result["people"], result["examples"]) == (60, len(data.labels))
    assert Image.open(tmp_path / "scores.png").size[0] > 100


def test_what_reads_no_text_translates_none(event_run, image_run):
    for run, kind in ((event_run, "events"), (image_run, "image")):
        with pytest.raises(RunError, match=f"expected texts to read. It reads: {kind}"):
            translate.main(["--run", str(run.path)])


def test_images_over_rest_are_base64_and_a_broken_one_is_named(image_server, image_target):
    images = pictures(2)

    def ask(files):
        body = {"instances": [{"b64": base64.b64encode(file).decode()} for file in files]}
        connection = http.client.HTTPConnection("127.0.0.1", image_server.rest_port, timeout=60)
        connection.request("POST", "/v1/models/digits:predict", json.dumps(body))
        response = connection.getresponse()
        return response.status, json.loads(response.read())

    status, answer = ask(images)
    assert status == 200
    with Reader(image_target, "digits") as reader:
        wanted = [found.text for found in reader.read(images)]
    assert [found["text"] for found in answer["predictions"]] == wanted
    status, answer = ask([images[0], images[1][:-40]])
    assert status == 400
    assert "image_bytes[1] is cut off" in answer["error"]


@pytest.mark.parametrize("signature", ["read", "regions"])
def test_images_that_declare_too_much_or_are_cut_off_are_named_in_one_line(
    image_target, stubs, signature
):
    images = pictures(4)
    jpeg = encode(np.asarray(Image.open(io.BytesIO(images[3])).convert("RGB")), "jpeg")
    made = predict_pb2.PredictRequest()
    made.model_spec.name, made.model_spec.signature_name = "digits", signature
    files = [images[0], huge_png(), images[2], jpeg[: len(jpeg) // 2]]
    made.inputs["image_bytes"].CopyFrom(tf.make_tensor_proto(files))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    code, details = error_of(stubs(image_target).prediction.Predict, made)
    assert code == grpc.StatusCode.INVALID_ARGUMENT
    said = (
        "image_bytes[1] has 20000 x 20000 pixels: expected at least 1 and at most 16,777,216; "
        "image_bytes[3] is cut off"
    )
    assert said in details.splitlines()[0]
    # In kilobytes; 20,000 x 20,000 pixels of three colours are 1.2 GB.
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300_000
