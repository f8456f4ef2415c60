import dataclasses
import gzip
import json
import pickle
import random
import signal
import subprocess
import sys

import pytest

from serving.batch import _inputs as inputs
from serving.batch import _job as jobs
from serving.batch.__main__ import main
from serving.batch._inputs import Events, Images, Texts
from serving.batch._job import BatchJob, _Worker, answer_input, latest_version, start, sweep
from tests.serving.conftest import add_version
from training.command.errors import UserError
from training.sources.kinds import SOURCE_KINDS


def upper(texts):
    """Of long texts the end is not read; what is no ASCII is unknown."""
    for text in texts:
        told = {"truncated": True} if len(text) > 30 else {}
        told |= {} if text.isascii() else {"unknown": text}
        yield {"translation": text.upper(), "score": -float(len(text)), **told}


@pytest.fixture(autouse=True)
def small_windows(monkeypatch):
    for kind in (Texts, Images, Events):
        monkeypatch.setattr(kind, "window", 5)


@pytest.fixture
def job(tmp_path):
    version = tmp_path / "model" / "7"
    version.mkdir(parents=True)
    (version / "saved_model.pb").write_bytes(b"graph")
    made = BatchJob(version, tmp_path / "out", batch_size=3)
    start(made)
    return made


def read(path):
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rb") as file:
        return [json.loads(line) for line in file]


def test_every_kind_of_source_has_its_input():
    assert inputs.KINDS.keys() == SOURCE_KINDS.keys()


def test_every_line_has_its_record_in_order(job, tmp_path):
    rng = random.Random(3)
    texts = [rng.choice("eé") * rng.randint(0, 40) for _ in range(23)]
    source = tmp_path / "a.txt.gz"
    source.write_bytes(gzip.compress("\n".join(texts).encode() + b"\n"))
    done = answer_input(job, upper, [source])
    found = read(job.output / "a.jsonl.gz")
    assert [record["translation"] for record in found] == [text.upper() for text in texts]
    assert [record["score"] for record in found] == [-len(text) for text in texts]
    assert {record["model_version"] for record in found} == {"7"}
    assert [bool(record.get("truncated")) for record in found] == [len(t) > 30 for t in texts]
    assert (done.lines, done.bad, done.truncated) == (23, 0, sum(len(t) > 30 for t in texts))
    assert 0 < done.unknown == sum("é" in text for text in texts) < 23


def test_texts_of_like_length_share_a_batch_of_few_long_ones(job, tmp_path, monkeypatch):
    batches = []

    def translate(texts):
        batches.append(texts)
        return upper(texts)

    (tmp_path / "a.txt").write_text("aaaa\nb\ncccc\nd\neeee\n")
    answer_input(job, translate, [tmp_path / "a.txt"])
    assert batches == [["b", "d", "aaaa"], ["cccc", "eeee"]]
    monkeypatch.setattr(jobs, "_MOST_SIZE", 100)
    (tmp_path / "b.txt").write_text(f"{'y' * 60}\n" * 5)
    answer_input(job, translate, [tmp_path / "b.txt"])
    assert [len(batch) for batch in batches[2:]] == [2, 2, 1]


def test_a_bad_line_has_its_reason(job, tmp_path):
    source = tmp_path / "a.txt"
    source.write_bytes(b"\xef\xbb\xbfgood\n\xff\r\n" + b"y" * 4001 + b"\r\nb")
    done = answer_input(job, upper, [source])
    assert (done.lines, done.bad, done.truncated) == (4, 1, 1)
    good, bad, _, last = read(job.output / "a.jsonl")
    assert (good["translation"], last["translation"]) == ("GOOD", "B")
    assert "not UTF-8" in bad["error"]


def test_json_lines_keep_what_they_had(job, tmp_path):
    bad = ["[" * 99_999, "[1]", '"text"', '{"txt": "x"}', '{"text": 7}', "7"]
    good = ['{"id": 1, "text": "one", "score": 3}', '{"text": "\\ud800", "id": 2}']
    (tmp_path / "a.jsonl").write_text("\n".join([*good, *bad]))
    done = answer_input(job, upper, [tmp_path / "a.jsonl"])
    assert (done.lines, done.bad) == (8, 6)
    one, two, *others = read(job.output / "a.jsonl")
    assert (one["id"], one["text"], one["translation"], two["id"]) == (1, "one", "ONE", 2)
    assert one["score"] != 3
    assert {each["error"] for each in others} == {'not a JSON object with a "text"'}


@pytest.mark.parametrize("kind", [Texts(), Events()])
def test_a_file_that_is_not_whole_is_named_in_one_line(kind, job, tmp_path):
    text = "id,time\n" + "".join(f"{number},{number}\n" for number in range(9000))
    packed = gzip.compress(text.encode(), mtime=0)
    for damaged in (packed[: len(packed) // 2], packed[:-8] + bytes(4) + packed[-4:], b"text"):
        source = tmp_path / "a.csv.gz"
        source.write_bytes(damaged)
        with pytest.raises(UserError, match=r"^\S*a\.csv\.gz cannot be read: .+$") as caught:
            answer_input(dataclasses.replace(job, kind=kind), upper, [source])
        assert "\n" not in str(caught.value)
        assert [path.name for path in job.output.iterdir()] == ["job.json"]


def test_images_of_a_folder_come_in_the_order_of_their_names(job, tmp_path):
    folder = tmp_path / "shots"
    folder.mkdir()
    names = [f"{n:02d}.{'png' if n % 3 else 'JPG'}" for n in range(11)]
    for name in (*names, "notes.txt"):
        (folder / name).write_bytes(name.encode() if name != "04.png" else b"broken")
    asked = []

    def read_images(contents):
        asked.append(len(contents))
        return [
            ValueError("no PNG") if one == b"broken" else {"text": one.decode(), "score": -0.1}
            for one in contents
        ]

    (files,) = inputs.find([str(folder)], job.output)
    done = answer_input(dataclasses.replace(job, kind=Images()), read_images, files)
    found = read(job.output / "shots.jsonl")
    assert [record["image"] for record in found] == sorted(names)
    assert found.pop(4) == {"image": "04.png", "error": "no PNG"}
    assert all(record["text"] == record["image"] for record in found)
    assert (done.lines, done.bad, max(asked)) == (11, 1, 3)
    (some,) = inputs.find([str(folder / "*.png")], job.output)
    assert [file.name for file in some] == [n for n in names if n.endswith("png")]
    assert inputs.find([str(folder / f"0{n}.*") for n in "010"], job.output) == [files[:2]]


def test_histories_of_a_table_share_batches_by_their_length(job, tmp_path):
    table = tmp_path / "visits.csv.gz"
    rows = [(f"p{n % 7}", str(day), str(day * n)) for day in range(3) for n in range(day, 7)]
    text = "patient,day,bili\n" + "".join(",".join(row) + "\n" for row in rows)
    table.write_bytes(gzip.compress(text.encode()))
    lengths = []

    def predict(histories):
        lengths.append([len(one["time"]) for one in histories])
        return [{"probability": len(one["time"]) / 10} for one in histories]

    assert inputs.kind_of(table) == "events"
    answer_input(dataclasses.replace(job, kind=Events("patient", "day")), predict, [table])
    found = read(job.output / "visits.jsonl.gz")
    assert [record["patient"] for record in found] == [f"p{n}" for n in range(7)]
    counts = [sum(row[0] == f"p{n}" for row in rows) for n in range(7)]
    assert [record["probability"] for record in found] == [count / 10 for count in counts]
    assert all(each == sorted(each) for each in lengths)
    (job.output / "visits.jsonl.gz").unlink()
    with pytest.raises(UserError, match="has no column 'id'; it has patient, day, bili"):
        answer_input(dataclasses.replace(job, kind=Events()), predict, [table])
    assert not (job.output / "visits.jsonl.gz").exists()


def test_a_worker_that_dies_leaves_no_half_of_a_file(job, tmp_path):
    source = tmp_path / "a.txt"
    source.write_text("one\n" * 50)
    code = (
        "import os, sys, signal; from pathlib import Path; from serving.batch._job import *;"
        "calls = []\n"
        "def die(texts):\n"
        "    calls.append(1)\n"
        "    if len(calls) == 9: os.kill(os.getpid(), signal.SIGKILL)\n"
        "    return [{'translation': t} for t in texts]\n"
        "answer_input(BatchJob(Path(sys.argv[1]), Path(sys.argv[2]), batch_size=3), die,"
        " [Path(sys.argv[3])])"
    )
    command = [sys.executable, "-c", code, *map(str, (job.model, job.output, source))]
    died = subprocess.run(command, check=False)
    assert died.returncode == -signal.SIGKILL
    assert not (job.output / "a.jsonl").exists()
    assert list(job.output.glob(".a.*"))
    assert answer_input(job, upper, [source]).lines == 50
    sweep(job)
    assert sorted(p.name for p in job.output.iterdir()) == ["a.jsonl", "job.json"]
    assert len(read(job.output / "a.jsonl")) == 50


def test_an_input_that_two_jobs_answer_is_no_error_of_either(job, tmp_path):
    source, done = tmp_path / "a.txt", []
    source.write_text("one\n" * 9)

    def slow(texts):
        if not done:
            done.append(answer_input(job, upper, [source]))
            sweep(job)
        return upper(texts)

    assert answer_input(dataclasses.replace(job, batch_size=1), slow, [source]).were_there == 1
    assert done[0].lines == len(read(job.output / "a.jsonl")) == 9
    assert not [path for path in job.output.iterdir() if path.name.startswith(".")]


def test_another_model_does_not_mix_with_what_is_there(job, tmp_path):
    start(job)
    other = tmp_path / "model" / "8"
    other.mkdir()
    (other / "saved_model.pb").write_bytes(b"another")
    with pytest.raises(UserError, match="another model"):
        start(BatchJob(other, job.output))


@pytest.mark.parametrize(
    ("pattern", "output", "reason"),
    [
        ("[xz]/*", "out", "are of two kinds. Start a job for each"),
        ("*/a.txt", "out", "same output"),
        ("b*", "out", "no file matches"),
        ("x", "out", "no file matches"),  # a folder without images
        ("x/*", "x", "is in the output"),
    ],
)
def test_inputs_that_no_job_can_have_are_refused(pattern, output, reason, tmp_path):
    for name in ("x/a.txt", "y/a.txt", "z/c.csv"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text("one\n")
    with pytest.raises(UserError, match=reason):
        inputs.find([str(tmp_path / pattern)], tmp_path / output)


def test_the_command_translates_with_a_saved_model(base, tmp_path, capsys):
    (tmp_path / "a.txt").write_text("one two\n\nthree\n")
    command = ["--model", base, "--input", tmp_path / "*.txt"]
    main([*map(str, command), "--output", str(tmp_path / "out")])
    last = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (last["files"], last["lines"], last["bad"], last["were_there"]) == (1, 3, 0, 0)
    found = read(tmp_path / "out" / "a.jsonl")
    assert [record["translation"] for record in found] == ["ONE TWO", "", "THREE"]
    main([*map(str, command), "--output", str(tmp_path / "out")])
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["were_there"] == 1


def test_the_newest_version_is_taken(tmp_path):
    for number, file in ((2, "saved_model.pb"), (10, "saved_model.pb"), (11, "manifest.json")):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / file).touch()
    (tmp_path / "writing-12").mkdir()
    assert latest_version(tmp_path).name == "10"
    assert latest_version(tmp_path / "2").name == "2"
    with pytest.raises(UserError, match="no exported model"):
        latest_version(tmp_path / "writing-12")
    (tmp_path / "onnx" / "1").mkdir(parents=True)
    (tmp_path / "onnx" / "1" / "manifest.json").write_text("{}")
    for path in (tmp_path / "onnx", tmp_path / "onnx" / "1"):
        with pytest.raises(UserError, match=r"is an ONNX export, and serving\.batch needs"):
            latest_version(path)


def test_a_worker_of_ray_reports_what_is_told_of_its_file(saved, tmp_path):
    """Ray keeps what its workers print; a report is a row of it."""
    version = add_version(saved / "mean", tmp_path / "mean", 3)
    table = tmp_path / "t.csv"
    table.write_text("id,time,bili\na,1,0.5\na,2,unknown\nb,1,-\n")
    job = BatchJob(version, tmp_path / "out", pickle.loads(pickle.dumps(Events())))
    start(job)
    worker = _Worker(job, 1)
    first = worker({"files": [str(table)]})
    assert first["notes"] == f"{table}: 2 cells are taken as missing in bili: line 3, 'unknown'"
    assert first["lines"] == 2
    table.rename(tmp_path / "other.csv").write_text("id,time,bili\na,1,0.5\n")
    assert worker({"files": [str(tmp_path / "other.csv")]})["notes"] == ""
