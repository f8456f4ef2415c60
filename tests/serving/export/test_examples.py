"""Examples that an export shows people."""

import base64
import csv
from types import SimpleNamespace

import numpy as np
import pytest

from serving.api._histories import history_columns, parse_table
from serving.export import _version as version
from serving.export._version import _COUNT, _examples, _manifest
from tests.serving.conftest import TEXT_RUN
from training.runs.run import load_run
from training.sources.events._histories import Histories, Schema
from training.sources.events.source import EventSource
from training.sources.image import _data as data


def test_texts_are_short_ones_of_dev_and_stand_in_the_manifest(monkeypatch):
    monkeypatch.chdir(TEXT_RUN.parent)  # where its data is
    run = load_run(TEXT_RUN)
    found = _examples(run)
    with open("pairs.tsv", encoding="utf-8") as file:
        sources = {row[0] for row in csv.reader(file, delimiter="\t")}
    assert 0 < len({*found}) == len(found) <= _COUNT
    assert {*found} <= sources
    assert _manifest([run], {})["examples"] == found


@pytest.mark.parametrize("sources", [["12. Juli 2001", "Mo. 3. Mai"], ["He sleeps.", "Does he?"]])
def test_a_translator_says_whether_its_sources_are_sentences(sources, monkeypatch, tmp_path):
    monkeypatch.setattr(version, "_dev_sources", lambda run, limit: sources)
    saved = {}

    def save(module, path, signatures):
        saved.update(signatures)
        raise OSError("seen")

    monkeypatch.setattr(version.tf.saved_model, "save", save)
    run = load_run(TEXT_RUN)
    assert _manifest([run], {})["sentences"] == (sources[0] == "He sleeps.")
    with pytest.raises(OSError, match="seen"):
        version.export([run], tmp_path / "model", beam_width=1, num_results=1)
    assert ("translate_lines" in saved) == (sources[0] != "He sleeps.")


def test_images_are_those_of_dev(image_run):
    wanted = data.load("digits", "dev", limit=_COUNT).sources
    assert [base64.b64decode(text) for text in _examples(image_run)] == wanted


def test_a_table_of_ones_own_is_shown_to_nobody(event_run):
    assert _examples(event_run) == []


@pytest.mark.parametrize("people", [2, 5])
def test_published_histories_are_a_table_that_the_client_reads(rng, people, monkeypatch):
    schema = Schema({"bili": None, "sex": ["f", "m"]})
    sizes = rng.integers(1, 5, people)
    times = np.concatenate([np.cumsum(rng.integers(1, 50, size)) for size in sizes]).astype(float)
    values = rng.integers(0, 9, (len(times), 3)).astype("float32") / 4
    values[rng.random(values.shape) < 0.3] = np.nan
    ends = np.cumsum(sizes)
    # Of each two examples, the first of which begins alike and ends at once.
    starts = np.repeat(ends - sizes, 2)
    both = np.ravel([ends - sizes + 1, ends], "F")
    names = np.repeat([f"p{n}" for n in range(people)], 2)
    found = Histories(schema, times, values, starts, both, np.zeros(2 * people), names)
    monkeypatch.setattr(EventSource, "load_split", lambda *_, **__: found)
    config = SimpleNamespace(source="events", data="known")
    (table,) = _examples(SimpleNamespace(config=config, source=EventSource(schema, 9)))
    histories = parse_table(table.splitlines(), "id", "time")
    assert [*histories] == [f"p{n}" for n in range(min(people, 3))]
    for history, start, end in zip(histories.values(), ends - sizes, ends, strict=False):
        columns = history_columns(history, ["time", *schema.inputs()])
        np.testing.assert_array_equal(columns["time"], times[start:end])
        read = np.array([columns[name] for name in schema.inputs()]).T
        np.testing.assert_array_equal(read, values[start:end])
