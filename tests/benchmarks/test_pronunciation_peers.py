"""Peers beside a preset: what they are told, what they say, and the command with stand-ins."""

import json
import os
import random
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
STAND_IN = f"""#!{sys.executable}
import json, shutil, sys, time
from pathlib import Path
command, config = sys.argv[1], json.loads(Path(sys.argv[3]).read_text())
folder = Path(config["data"]["model_dir"])
if config["model"]["class_path"].endswith("TransformerModel"):
    sys.exit(3)
if command == "fit":
    (folder / "epoch=4.ckpt").touch()
    (folder / "lightning_logs" / "version_0").mkdir(parents=True)
    metrics = folder / "lightning_logs" / "version_0" / "metrics.csv"
    metrics.write_text("epoch,step\\n0,39\\n6,279\\n")
else:
    assert sys.argv[4:6] == ["--ckpt_path", str(folder / "epoch=4.ckpt")]
    told = dict(zip(sys.argv[6::2], sys.argv[7::2]))
    wide = told.get("--model.init_args.beam_width") == "3"
    lines = Path(config["data"]["predict"]).read_text().splitlines()
    said = [line.split("\\t")[1] for line in lines]
    said[0] += " x"
    beams = [f"{{phones}}\\t-0.1\\tother\\t-2.3" if wide else phones for phones in said]
    Path(config["prediction"]["path"]).write_text("\\n".join(beams) + "\\n")
"""

COUNTING = f"""#!{sys.executable}
import sys
from pathlib import Path
command, model = sys.argv[1], Path(sys.argv[3])
if command == "train":
    model.write_text(Path(sys.argv[4]).read_text())
else:
    said = dict(line.split(" ", 1) for line in model.read_text().splitlines())
    words = sys.stdin.read().split()[1:]  # of the first it finds no path
    print(*(f"{{word}} {{said[word]}}" for word in words), sep="\\n")
"""


@pytest.fixture(autouse=True)
def on_path(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))


def test_a_model_is_told_sizes_that_fit_one_another_and_when_to_stop(tmp_path):
    from peers.yoyodyne import RECIPES, configuration

    for name, recipe in RECIPES.items():
        told = configuration(recipe, tmp_path / "data", tmp_path / "own", 61.5, 7)
        assert json.loads(json.dumps(told)) == told
        model = told["model"]["init_args"]
        encoder = model["source_encoder"]["init_args"]
        assert encoder["embedding_size"] == model["embedding_size"]
        assert model["optimizer"]["class_path"].endswith("Adam") or "Adam" not in name
        (clock,) = told["trainer"]["callbacks"]
        assert clock["init_args"] == {"seconds": 61.5}
        assert told["seed_everything"] == 7
        edits = model.get("sed_path")
        assert edits == (str(tmp_path / "own" / "edits.pkl") if "transducer" in name else None)
        assert "sed_path" not in recipe.model["init_args"]


def test_words_are_written_and_read_as_they_are(tmp_path):
    from peers.yoyodyne import read_predictions, write_pairs

    rng = random.Random(5)
    phones = [" ".join(rng.choices(["a", "tʰ", "ɛː", '"', "'"], k=n)) for n in (1, 7, 0, 3, 11)]
    write_pairs(tmp_path / "beams.tsv", phones, phones[::-1])
    assert read_predictions(tmp_path / "beams.tsv") == phones
    (tmp_path / "greedy.txt").write_text("a tʰ\n\nɛː\n", encoding="utf-8")
    assert read_predictions(tmp_path / "greedy.txt") == ["a tʰ", "", "ɛː"]
    with pytest.raises(ValueError, match="shorter"):
        write_pairs(tmp_path / "pairs.tsv", phones, phones[1:])


def test_the_checkpoint_is_the_last_that_was_kept(tmp_path):
    from peers.yoyodyne import best_checkpoint

    (tmp_path / "last.ckpt").touch()
    with pytest.raises(RuntimeError, match="not enough for one epoch"):
        best_checkpoint(tmp_path)
    for second, name in enumerate(("epoch=9.ckpt", "epoch=10.ckpt")):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (second, second))
    assert best_checkpoint(tmp_path).name == "epoch=10.ckpt"


def test_phonetisaurus_reads_letters_and_what_it_does_not_say_is_wrong(tmp_path):
    from peers.phonetisaurus import MODEL, Peer
    from peers.yoyodyne import write_pairs

    command = tmp_path / "bin" / "phonetisaurus"
    command.parent.mkdir()
    command.write_text(COUNTING)
    command.chmod(0o755)
    words, phones = ["각", "prydain fawr", "ô"], ["k a k", "p r ə d aɪ n v au r", "o"]
    for split in ("train", "dev"):
        write_pairs(tmp_path / f"{split}.tsv", words, phones)
    peer = Peer(str(command.parent / "python"), MODEL, tmp_path, tmp_path)
    peer.prepare()
    peer.train(1.0, 7)
    assert peer.predict(5) == ["", *phones[1:]]
    assert (tmp_path / "lexicon.txt").read_text(encoding="utf-8").splitlines() == [
        "\u1100\u1161\u11a8 k a k",
        "prydain·fawr p r ə d aɪ n v au r",
        "o\u0302 o",
    ]
    command.write_text("#!/bin/sh\nexit 3\n")
    with pytest.raises(RuntimeError, match="phonetisaurus train ended with status 3"):
        peer.train(1.0, 7)


@pytest.mark.tensorflow
def test_the_command(tmp_path, monkeypatch, capsys):
    import pronunciation_peers

    rng = random.Random(3)
    folder = tmp_path / "data" / "g2p-sigmorphon2021"
    folder.mkdir(parents=True)
    words = sorted({"".join(rng.choices("abcdéfgh", k=rng.randint(2, 7))) for _ in range(7)})
    pairs = [(word, " ".join(word)) for word in words]
    for split in ("train", "dev"):
        lines = "".join(f"{word}\t{phones}\n" for word, phones in pairs)
        (folder / f"ice_{split}.tsv").write_text(lines, encoding="utf-8")
    commands = tmp_path / "peers" / "yoyodyne" / "bin"
    commands.mkdir(parents=True)
    for name in ("python", "maxwell-train", "yoyodyne"):
        (commands / name).write_text(STAND_IN if name == "yoyodyne" else "#!/bin/sh\n")
        (commands / name).chmod(0o755)
    monkeypatch.setenv("KERAS_ATTENTION_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("KERAS_ATTENTION_PEERS", str(tmp_path / "peers"))
    output = tmp_path / "output"
    ours = output / "ice" / "this-library" / "result.json"
    ours.parent.mkdir(parents=True)  # trained before
    result = {"minutes": 0.75, "epochs": 11, "said": [phones for _, phones in pairs]}
    ours.write_text(json.dumps(result))
    models = ["this library", "Transformer", "soft attention LSTM, Adam", "transducer LSTM"]
    command = ["--output", str(output), "--languages", "ice", "--beam-width", "3", "--models"]

    def run():
        pronunciation_peers.main([*command, *models])
        return capsys.readouterr().out.splitlines()

    lines = run()
    assert any(line.startswith("ice, Transformer, left out: yoyodyne ended") for line in lines)
    rows = json.loads(lines[-1])["rows"]
    assert [row["model"] for row in rows] == ["this library", *models[2:]]
    assert [row["words wrong"] for row in rows] == [0, *[round(100 / len(words), 1)] * 2]
    phones = sum(len(text.split()) for _, text in pairs)
    assert [row["phones wrong"] for row in rows] == [0, *[round(100 / phones, 1)] * 2]
    assert [row["epochs"] for row in rows] == [11, 7, 7]
    told = json.loads((output / "ice" / "transducer-LSTM" / "config.yaml").read_text())
    assert told["trainer"]["callbacks"][0]["init_args"]["seconds"] == 45
    given = (output / "ice" / "train.tsv").read_text(encoding="utf-8")
    spelled = "".join(line.split("\t")[0] for line in given.splitlines())
    assert "e\u0301" in spelled  # a letter and its mark, as the preset reads them
    assert "é" not in spelled

    (commands / "yoyodyne").unlink()
    models.remove("Transformer")
    assert json.loads(run()[-1])["rows"] == rows  # nothing is trained again
    table = (output / "table.csv").read_text().splitlines()
    assert table[0].split(",") == list(rows[0])
    assert len(table) == 1 + len(rows)
    command[command.index("3")] = "5"
    with pytest.raises(SystemExit, match="other settings"):
        run()
    (commands / "python").unlink()
    command[command.index("5")] = "3"
    assert run()[0].startswith("yoyodyne skipped, to install it: ")
    models.remove("this library")
    with pytest.raises(SystemExit, match="2"):
        run()
    assert "without 'this library' yoyodyne's models need --minutes" in capsys.readouterr().err
