import contextlib
import dataclasses
import functools
import io
import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import sacrebleu

from tests.training.data.files import write
from training import evaluate, translate
from training.command.errors import UserError
from training.config.schema import Config
from training.data.batches._batches import source_batches
from training.data.read import texts as corpus
from training.data.read._sentences import Split
from training.decode.search import score_targets, search
from training.decode.settings import SearchSettings
from training.decode.texts import Translation, make_attender, make_nbest, make_translator
from training.runs.files import RunFiles, Trained
from training.score import _evaluation as evaluation

OLD = Path(__file__).parents[1] / "fixtures" / "old_run"
RUN = str(OLD / "run")
THREE = SearchSettings(beam_width=3)


def run_command(run, tmp_path, *arguments):
    output = tmp_path / "scores.json"
    words = ["--run", str(run.path), "--limit", "23", "--output", str(output), *arguments]
    evaluate.main(words)
    return json.loads(output.read_text())


@pytest.fixture(scope="module")
def nbest(tiny_run):
    """Make a search of the run by its settings; each is traced once."""
    return functools.cache(lambda settings: make_nbest([tiny_run], settings))


@pytest.fixture(scope="module")
def attend(tiny_run):
    return make_attender([tiny_run])


@contextlib.contextmanager
def loaded_once(run, nbest, attend):
    """Have commands take the run as it is loaded, and its searches."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("training.runs.run.load_translators", lambda paths: [run])
        patch.setattr(evaluation, "load_ensemble", lambda paths: [run])
        patch.setattr(evaluation, "make_attender", lambda runs: attend)
        for module in ("decode.texts", "score._evaluation"):
            patch.setattr(f"training.{module}.make_nbest", lambda runs, asked, *_: nbest(asked))
        yield


@pytest.fixture
def quick(tiny_run, nbest, attend):
    """The search of 3 hypotheses, which commands take, too."""
    with loaded_once(tiny_run, nbest, attend):
        yield nbest(THREE)


def translated(capsys, *words):
    """The lines that `training.translate` writes."""
    translate.main(["--run", RUN, "--beam-width", "3", *map(str, words)])
    return capsys.readouterr().out.splitlines()


@pytest.fixture(scope="module")
def scored(tiny_run, nbest, attend, tmp_path_factory):
    """What the command found, the translations, and the last line that it printed."""
    folder = tmp_path_factory.mktemp("scored")
    hypotheses, errors, printed = folder / "hypotheses.txt", folder / "errors", io.StringIO()
    words = ["--hypotheses", str(hypotheses), "--errors", str(errors), "--bootstrap"]
    words += ["--beam-width", "3"]
    with contextlib.redirect_stdout(printed), loaded_once(tiny_run, nbest, attend):
        result = run_command(tiny_run, folder, *words)
    texts, table = (path.read_text(encoding="utf-8") for path in (hypotheses, errors))
    return result, texts.splitlines(), printed.getvalue().strip(), table


def test_scores_are_those_of_sacrebleu_on_what_was_translated(scored):
    result, texts, printed, _ = scored
    split = corpus.load("phrasebook-en-fr", "test", limit=23)
    references = [[references[0] for references in split.references]]
    assert result["bleu"] == pytest.approx(sacrebleu.corpus_bleu(texts, references).score)
    assert result["chrf"] == pytest.approx(sacrebleu.corpus_chrf(texts, references).score)
    assert result["sentences"] == 23
    assert "version:" in result["bleu_signature"]
    low, high = result["aer_interval"]
    assert 0 < low <= result["aer"] <= high <= 1
    assert json.loads(printed.splitlines()[-1]) == result
    assert f"bleu  {result['bleu']:<8.4g}runs of words shared with a reference" in printed
    assert f"aer_interval  {low:.4g} to {high:.4g}\n" in printed


def test_rates_of_few_words_have_intervals(tiny_run, quick, monkeypatch):
    split = Split([f"word {n}" for n in range(7)], [[f"w o r d {n}"] for n in range(7)])
    config = dataclasses.replace(tiny_run.config, metric="symbols")
    run = dataclasses.replace(tiny_run, config=config)
    result = evaluation.evaluate([run], split, THREE)
    assert result["wer_interval"][0] <= result["wer"] <= result["wer_interval"][1]
    monkeypatch.setattr(evaluation, "FEW_TO_RATE", 7)
    assert "wer_interval" not in evaluation.evaluate([run], split, THREE)


def test_the_table_of_errors_has_the_probability_of_each_output(scored, tiny_run):
    _, texts, printed, table = scored
    head, *rows = [line.split("\t") for line in table.splitlines()]
    split = corpus.load("phrasebook-en-fr", "test", limit=23)
    assert head == ["source", "reference", "output", "probability"]
    expected = zip(split.sources, split.references, texts, strict=True)
    assert sorted(row[:3] for row in rows) == sorted([a, *b, c] for a, b, c in expected)
    probabilities = [float(row[3]) for row in rows]
    assert probabilities == sorted(probabilities, reverse=True)  # all are wrong
    ids = tiny_run.source.rows([rows[0][0]])
    ((_, source),) = source_batches(ids, 1, 99)
    found = search([tiny_run.model], source, THREE)
    target = np.array(found.ids)[:, 0, : int(found.lengths[0, 0])]
    least = np.array(score_targets([tiny_run.model], source, target)).min()
    assert probabilities[0] == pytest.approx(np.exp(least), abs=1e-4)
    assert "23 of 23 answers are wrong" in printed
    assert "probability of an answer is that of its least probable token" in printed


def test_a_table_without_errors_says_so(tiny_run, quick, tmp_path, capsys):
    sources = ["the dog", "a cat sleeps", "one"]
    split = Split(sources, [[best.text] for best, *_ in quick(sources)])
    table = tmp_path / "errors.tsv"
    evaluation.evaluate([tiny_run], split, THREE, errors_file=table)
    assert f"{table}: no errors, all 3 answers are right" in capsys.readouterr().out


def test_wrong_answers_come_first_and_of_those_the_surest():
    split = Split(["a", b"png", "c", "d\te"], [["x"], ["y", "z z"], ["w"], ["v"]])
    answers = [("x", 0.9), ("z  z", 0.3), ("W", 0.2), ("q\n", 0.7)]
    answers = [Translation(text, -1.0, p) for text, p in answers]
    wrong = ["d e\tv\tq\t0.7000", "c\tw\tW\t0.2000"]
    right = ["example 1\ty ; z z\tz z\t0.3000", "a\tx\tx\t0.9000"]
    assert evaluation.errors(answers, split)[0].splitlines()[1:] == wrong + right
    small = evaluation.errors(answers, split, True)[0].splitlines()[1:]
    assert small[:2] == wrong


def test_forced_attention_has_a_row_for_each_token_and_sums_to_one(attend):
    sources = ["She is eating a green apple.", "He sleeps."]
    targets = ["Elle mange une pomme verte.", "Il dort."]
    long, short = attend(sources, targets)
    for attended in (long, short):
        assert attended.weights.shape == (len(attended.target_tokens), len(attended.source_tokens))
        np.testing.assert_allclose(attended.weights.sum(-1), 1, atol=1e-5)
    assert len(short.source_tokens) < len(long.source_tokens)
    (alone,) = attend(sources[1:], targets[1:])
    np.testing.assert_allclose(alone.weights, short.weights, atol=1e-5)


def test_translations_come_back_in_order_whatever_the_batches(tiny_run, nbest):
    texts = corpus.load("phrasebook-en-fr", "test", limit=13).sources
    texts[5] = ""
    apart = make_translator([tiny_run], THREE, batch_size=2)(texts)
    assert [best.text for best, *_ in nbest(THREE)(texts)] == apart


@pytest.mark.parametrize("texts", ["He sleeps.", [b"He"], ["He", None], [float("nan")]])
def test_what_is_no_list_of_texts_is_one_line(tiny_run, texts):
    translate = make_translator([tiny_run])
    with pytest.raises(UserError, match=r"^expected a list of texts\. Received: .+$"):
        translate(texts)


def test_translate_writes_a_line_for_each_line(quick, monkeypatch, capsys):
    def write(lines):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(lines)))
        return translated(capsys)

    written = write("He sleeps.\n\n\ufffd no words \x01\nShe is eating an apple.".encode())
    assert [bool(line) for line in written] == [True, False, True, True]
    told = "Warning: standard input, line 701 is not UTF-8: \ufffd replaces the wrong bytes\n"
    with monkeypatch.context() as patch:  # a line of 1,000, as in training
        patch.setattr(sys, "stderr", io.StringIO())
        written = write(b"He sleeps.\n" * 700 + b"Il mang\xe9\n" + b"He sleeps.\n" * 299)
        assert sys.stderr.getvalue().startswith(told)
    assert len(written) == 1000
    assert written[700] != written[0] == written[-1]
    for text in ("He sleeps.\nIl a mangé.".encode("latin-1"), b"He sleeps.\nShe \0."):
        nul = ": it contains NUL" if b"\0" in text else ""
        with pytest.raises(UserError, match=f"standard input, line 2 is not UTF-8 text{nul}"):
            write(text)


def test_translate_reads_files_and_writes_the_n_best(quick, tmp_path, capsys):
    (tmp_path / "a").write_text("He sleeps.\n\n")
    (tmp_path / "b").write_text("She is eating a green apple.")
    files = tmp_path / "a", tmp_path / "b"
    best = translated(capsys, *files)
    found = quick(["He sleeps.", "", "She is eating a green apple."])
    assert best == [each[0].text for each in found]
    rows = [line.split("\t") for line in translated(capsys, *files, "--nbest", 2)]
    assert [row[0] for row in rows] == ["1", "1", "2", "2", "3", "3"]
    assert [row[1] for row in rows[::2]] == best
    assert rows[2][1:] == rows[3][1:] == [""]
    with pytest.raises(UserError, match=r"--nbest needs at most --beam-width, 3, but it is 4"):
        translated(capsys, *files, "--nbest", 4)


def test_translate_reads_lines_as_training_does(tiny_run, tmp_path, capsys, monkeypatch):
    other = "\ufeff The  cafe\u0301 is\u00a0green. \r\nHe sleeps.\r\n"
    (tmp_path / "other").write_bytes(other.encode())
    asked = []

    def recorded(runs, settings, batch_size):
        asked.append(settings)
        return lambda texts, progress=None: [[Translation(text, 0.0, 1.0)] for text in texts]

    monkeypatch.setattr("training.runs.run.load_translators", lambda paths: [tiny_run])
    monkeypatch.setattr("training.decode.texts.make_nbest", recorded)
    words = ["--coverage-penalty", "5", "--length-penalty", "0.5", "--replace-unknown"]
    said = translated(capsys, tmp_path / "other", *words)
    assert said == ["The café is green.", "He sleeps."]
    penalties = {"coverage_penalty": 5.0, "length_penalty": 0.5}
    assert asked == [SearchSettings(beam_width=3, **penalties, replaces_unknown=True)]


def test_texts_that_are_cut_are_counted(tiny_run, tmp_path, capsys, monkeypatch):
    texts = ["He sleeps.", " ".join(["He sleeps."] * 200), " ".join(["She is eating."] * 300)]
    ids = tiny_run.source_tokenizer.tokenize(texts)
    assert [len(row) > 256 for row in ids.numpy()] == [False, True, True]
    file, pairs = tmp_path / "texts", tmp_path / "pairs.tsv"
    monkeypatch.setattr("training.decode.texts.make_nbest", lambda *more: lambda *rest: [])
    monkeypatch.setattr("training.score._evaluation.evaluate", lambda *more, **options: {})
    for count in (3, 1):
        file.write_text("\n".join(texts[:count]))
        pairs.write_text("".join(f"{text}\tIl dort.\n" for text in texts[:count]))
        translate.main([str(file), "--run", str(tiny_run.path)])
        evaluate.main(["--data", f"tsv:{pairs}", "--run", str(tiny_run.path)])
        said = "Warning: 2 of 3 texts have more than 256 tokens, and the end is cut off\n"
        assert capsys.readouterr().err == (2 * said if count == 3 else "")


def test_a_coverage_penalty_is_taken_from_the_scores(terse_run):
    lines = ["She is eating a green apple.", "He sleeps.", "The boys sleep."]
    asked = SearchSettings(beam_width=3, length_penalty=0.0, coverage_penalty=0.7)
    nbest = make_nbest([terse_run], asked)(lines)
    most = 0.0
    for (row,), ids in source_batches(terse_run.source.rows(lines), 1, 99):
        found = search([terse_run.model], ids, asked, return_attention_weights=True)
        length = int(found.lengths[0, 0])
        target = np.array(found.ids)[:1, 0, :length]
        total = np.array(score_targets([terse_run.model], ids, target)).sum()
        looked = np.array(found.attention_weights)[0, 0, :length].sum(axis=0)
        lost = 0.7 * np.log(np.clip(looked, 1e-6, 1)).sum()
        assert nbest[row][0].score == pytest.approx(total + lost, abs=1e-3)
        most = min(most, lost)
    assert most < -0.1


def test_typed_by_hand_a_line_is_translated_before_the_next_is_read(quick, monkeypatch, capsys):
    written = []

    class Terminal(io.StringIO):
        def isatty(self):
            return True

        def __next__(self):
            written.append(capsys.readouterr().out)
            return super().__next__()

    monkeypatch.setattr(sys, "stdin", Terminal("He sleeps.\nShe is eating a green apple.\n"))
    translated(capsys)
    assert [text.count("\n") for text in written] == [0, 1, 1]


def test_a_run_on_files_must_be_told_what_to_score(tiny_run, tmp_path, monkeypatch, capsys):
    own = tiny_run.config
    pairs = corpus.load(own.data, "train", limit=own.train_limit, seed=own.seed).pairs()[::-7]
    data = f"tsv:{write(tmp_path / 'pairs.tsv', pairs)}"
    run = dataclasses.replace(tiny_run, config=dataclasses.replace(own, data=data))
    about_events = Config(source="events", encoder="lstm")
    monkeypatch.setattr("training.score._evaluation.load_ensemble", lambda paths: [run])
    for config, words, said in (
        (about_events, ["--replace-unknown"], "^--replace-unknown needs .* predict an outcome"),
        (run.config, [], r"no split 'test', only train, dev\."),
        (run.config, ["--data", data, "--split", "foo"], "scored as a whole. Remove --split foo"),
    ):
        trained = Trained(tmp_path, config)
        monkeypatch.setattr(RunFiles, "trained", lambda files, trained=trained: trained)
        with pytest.raises(UserError, match=said):
            evaluate.main(["--run", "x", *words])
    monkeypatch.setattr("training.score._evaluation.evaluate", lambda *more, **options: {})
    found = run_command(run, tmp_path, "--data", data)
    assert (found["data"], found["split"]) == (data, "all")
    assert " sources, so these scores are too high. Leave out --data" in capsys.readouterr().out


def test_an_old_run_translates_and_scores_as_it_did(tmp_path, monkeypatch, capsys):
    """Of commit fe9a10e, which trained it for an epoch of two and wrote what is expected."""
    expected = json.loads((OLD / "expected.json").read_text(encoding="utf-8"))
    shutil.copytree(OLD, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    words = ["--run", "run", "--data", "tsv:pairs.tsv", "--beam-width", "2"]
    evaluate.main([*words, "--hypotheses", "out.txt"])
    said = (tmp_path / "out.txt").read_text(encoding="utf-8").splitlines()
    assert said[: len(expected["sources"])] == expected["translations"]
    scores = json.loads(capsys.readouterr().out.splitlines()[-1])
    for key, value in expected["evaluation"].items():
        assert scores[key] == pytest.approx(value)
