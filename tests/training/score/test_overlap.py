"""A warning that scored data were learned from goes by their content, not by their name."""

import dataclasses
import gzip
import random

import numpy as np

from tests.training.conftest import tiny_config, untrained
from tests.training.sources.test_events import random_histories
from training.config.schema import Config, override
from training.data.read import texts as corpus
from training.runs.run import load_run
from training.score._overlap import learned_sources, warning
from training.sources.events.source import EventSource
from training.sources.image._digits import make


def test_a_copy_of_the_training_texts_is_found_whatever_its_form(tiny_run, tmp_path):
    config = tiny_run.config
    train = corpus.load(config.data, "train", limit=config.train_limit, seed=config.seed).pairs()
    random.Random(0).shuffle(train)
    text = "".join(f"{source} \t {target}\n" for source, target in train)
    copy = tmp_path / "other.tsv.gz"
    copy.write_bytes(gzip.compress(text.encode()))
    spec = f"tsv:{copy}"
    split = corpus.load(spec, "test")
    count = len({source for source, _ in train})
    said = f"learned from {count} of the {count} sources, so these scores are too high"
    assert said in warning(tiny_run, spec, split)
    dev = corpus.load(config.data, "dev")
    assert warning(tiny_run, config.data, dev) is None
    mixed = dataclasses.replace(
        dev, sources=dev.sources[:50] + split.sources[:7], references=dev.references[:57]
    )
    assert learned_sources(tiny_run, mixed).tolist() == [False] * 50 + [True] * 7
    assert "learned from 7 of the 57 sources" in warning(tiny_run, spec, mixed)
    unknown = dataclasses.replace(split, sources=[f"{text} ☺" for text in split.sources])
    assert warning(tiny_run, spec, unknown) is None


def test_what_a_run_began_from_was_learned_too(tiny_run, tmp_path):
    odd = "".join(f"He sleeps {n} times.\tIl dort.\n" for n in range(70))
    (tmp_path / "odd.tsv").write_text(odd)
    config = tiny_config(f"data=tsv:{tmp_path / 'odd.tsv'}")
    tuned = untrained(config, tmp_path / "tuned", init=tiny_run.path)
    before = corpus.load("phrasebook-en-fr", "train", limit=600, seed=tiny_run.config.seed)
    assert learned_sources(tuned, before).all()


def test_copies_of_images_are_found_by_their_bytes(tmp_path):
    files = make(46, 1).sources
    for name, part in (("own", files), ("copy", files[30:] + make(40, 5).sources)):
        (tmp_path / name).mkdir()
        for number, file in enumerate(part):
            (tmp_path / name / f"{name}{number}.png").write_bytes(file)
        labels = [f"{name}{number}.png\t1{number % 9}\n" for number in range(len(part))]
        (tmp_path / name / "labels.tsv").write_text("".join(labels))
    small = ["source=image", f"data=images:{tmp_path / 'own'}", "target_tokenizer=characters"]
    small += ["decoder_units=13", "embedding_size=7", "readout_units=7", "attention_units=5"]
    small += ["image_height=16", "image_width=32", "convolutions=5:2x2"]
    untrained(override(Config(), small), tmp_path / "run")
    run = load_run(tmp_path / "run")
    split = run.source.load_split(run.config, f"images:{tmp_path / 'copy'}", "all")
    said = warning(run, "images:copy", split)
    assert any(f"learned from {n} of the 56 sources" in said for n in (14, 15, 16))
    run.files.learned.unlink()
    assert warning(run, "images:copy", split) is None
    assert "includes the training data" in warning(run, small[1][5:], split)


def test_copies_of_histories_are_found_whatever_their_ids_and_order():
    data = random_histories(11)
    source = EventSource(data.schema, 32)
    other = dataclasses.replace(data, people=data.people[::-1]).select([7, 3, 5])
    learned = np.isin(source.digests(data), source.digests(other))
    assert np.flatnonzero(learned).tolist() == [3, 5, 7]
    assert not np.isin(source.digests(random_histories(5, seed=1)), source.digests(data)).any()
