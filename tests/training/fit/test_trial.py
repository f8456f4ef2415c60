"""Where the data do not tell which attention fits, both are tried, and the better one goes on."""

import json
import random
from types import SimpleNamespace

import keras
import numpy as np
import pytest

from tests.training.conftest import without_steps
from training.config.schema import load_config, load_preset, override
from training.decode.settings import SearchSettings
from training.decode.texts import make_translator
from training.fit import _optimizer as optimizer
from training.fit import _trial as trial
from training.fit._train import resume, train
from training.fit._trial import Tried, is_better
from training.fit.devices._processes import Processes
from training.runs._start import open_run
from training.runs.files import RunFiles
from training.runs.run import Run

SMALL = [
    *("encoder_units=23", "decoder_units=29", "embedding_size=13", "readout_units=17"),
    *("attention_units=11", "batch_size=16", "epochs=2", "average_epochs=0", "dropout=0"),
    *("target_tokenizer=letters", "metric=characters", "learning_rate=0.02"),
    *("attention=additive", "other_attention=hard_monotonic"),
]
GOOD, BAD = Tried(0.3, 1.5), Tried(0.1, 1.1)


@pytest.fixture
def config(tmp_path):
    """Settings for short words in another alphabet."""
    rng = random.Random(1)
    words = {"".join(rng.choices("abcde", k=rng.randrange(1, 4))) for _ in range(400)}
    lines = [f"{word}\t{word.translate(str.maketrans('abcde', 'vwxyz'))}\n" for word in words]
    (tmp_path / "own.tsv").write_text("".join(sorted(lines)))
    made = override(load_preset("g2p-medium"), SMALL)
    return override(made, [f"data=tsv:{tmp_path}/own.tsv", "dev=0.3"])


@pytest.fixture
def scores(monkeypatch):
    """The results that both attentions have; no step is made."""
    results, tried = {}, []

    def score(config, *_):
        tried.append(config.attention)
        return results[config.attention]

    monkeypatch.setattr(trial, "_try", score)
    return results, tried


@pytest.mark.parametrize(
    ("first", "other", "wins"),
    [
        ((0.1, 1.1), (0.3, 1.5), True),  # exact answers decide
        ((0.3, 1.5), (0.1, 1.1), False),
        ((0.2, 1.1), (0.3, 1.5), False),  # less than twice as many
        ((0.0, 9.0), (0.09, 9.5), False),  # few may be chance
        ((0.0, 9.0), (0.0, 8.0), True),
        ((0.5, 2.0), (0.5, 2.0), False),  # a tie keeps the choice of the rules
        ((0.0, np.inf), (0.0, 7.0), True),  # diverged
        ((0.0, np.inf), (0.0, np.inf), False),
    ],
)
def test_exact_answers_decide_if_there_are_enough_and_otherwise_the_perplexity(first, other, wins):
    assert is_better(Tried(*other), Tried(*first)) == wins


def test_exact_answers_are_those_whose_every_token_is_the_most_probable():
    rng, metric, right = np.random.default_rng(3), optimizer.ExactAnswers(), []
    for size in (7, 5):
        logits = rng.normal(size=(size, 3, 5)).astype("float32")
        labels = np.where(rng.random((size, 3)) < 0.9, logits.argmax(-1), 4).astype("int32")
        for row, length in zip(labels, rng.integers(0, 4, size), strict=True):
            row[length:] = 0
        for row, scored in zip(labels, logits, strict=True):
            tokens = [(y, x) for y, x in zip(row, scored, strict=True) if y]
            if tokens:
                right.append(all(y == max(range(5), key=x.__getitem__) for y, x in tokens))
        metric.update_state(labels, logits)
    assert 0 < sum(right) < len(right)
    assert float(metric.result()) == pytest.approx(sum(right) / len(right))


@pytest.mark.parametrize(
    "attention", ["additive", pytest.param("hard_monotonic", marks=pytest.mark.slow)]
)
def test_one_pass_counts_the_answers_of_a_greedy_search(config, tmp_path, attention):
    config = override(config, [f"attention={attention}", "other_attention="])
    optimizer.configure_keras(config)
    files = RunFiles(tmp_path / "run")
    files.path.mkdir()
    opened = open_run(files, config)
    model = optimizer.make_trainable(config, opened.origin.vocabulary, files.streamed, opened.pairs)
    before = [keras.ops.convert_to_numpy(v) for v in model.optimizer.variables]
    tried = trial._try(config, model, opened.pairs, opened.dev_pairs)
    for variable, value in zip(model.optimizer.variables, before, strict=True):
        np.testing.assert_array_equal(variable, value)
    run = Run(files.path, opened.config, opened.source, opened.target, model)
    dev = opened.dev
    answers = make_translator([run], SearchSettings(beam_width=1))(dev.sources)
    wanted = [texts[0] for texts in dev.references]
    exact = [a == b for a, b in zip(answers, wanted, strict=True)]
    assert 0 < sum(exact) < len(exact)
    assert tried.exact == pytest.approx(sum(exact) / len(exact))


def test_the_better_attention_goes_on_with_its_weights_and_is_not_tried_again(
    config, tmp_path, scores, capsys
):
    results, tried = scores
    results |= {"additive": GOOD, "hard_monotonic": BAD}
    run = tmp_path / "run"
    with without_steps():
        train(config, run)
        said = " ".join(capsys.readouterr().out.split())
        assert tried == ["additive", "hard_monotonic"]
        kept = load_config(run / "config.toml")
        assert (kept.attention, kept.other_attention) == ("additive", "")
        resume(run, ["epochs=3"])
    assert "both are tried for two epochs" in said
    said = said.replace(" --set attention=additive", "")
    found = f"additive has {GOOD}; hard monotonic has {BAD}"
    assert f"additive continues with its weights: {found}. " in said
    assert len(tried) == 2
    assert len(json.loads((run / "history.json").read_text())) == 3


def test_a_killed_trial_starts_again(config, tmp_path, scores, monkeypatch, capsys):
    """Also after the weights of the winner were written, and before its configuration was."""
    results, tried = scores
    results |= {"additive": BAD, "hard_monotonic": GOOD}
    run, save = tmp_path / "run", trial.save_checkpoint

    def save_and_stop(*args):
        save(*args)
        raise KeyboardInterrupt

    monkeypatch.setattr(trial, "save_checkpoint", save_and_stop)
    with pytest.raises(KeyboardInterrupt):
        train(config, run)
    assert load_config(run / "config.toml").other_attention == "hard_monotonic"
    monkeypatch.setattr(trial, "save_checkpoint", save)
    with without_steps():
        resume(run)
    assert tried == 2 * ["additive", "hard_monotonic"]
    kept = load_config(run / "config.toml")
    assert (kept.attention, kept.other_attention) == ("hard_monotonic", "")
    assert "hard monotonic continues with its weights" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(("devices", "xla"), [(2, False), (1, True)])
def test_several_devices_and_xla_keep_the_choice_of_the_rules(
    config, tmp_path, scores, capsys, devices, xla
):
    """And print that nothing was tried: XLA would compile the steps of both."""
    files, model = RunFiles(tmp_path), SimpleNamespace(jit_compile=xla)
    made = trial.settle_attention(files, config, model, *3 * [None], Processes(devices=devices))
    assert made[1] is model
    assert not scores[1]
    assert made[0].attention == "additive"
    assert load_config(files.config) == made[0]
    reason = "with XLA" if xla else "on several devices"
    assert f"additive: nothing else is tried {reason}" in capsys.readouterr().out
