"""The demos: their stages, and up to the first one what they may delete."""

import pytest

from serving.demo import __main__ as demo
from training.command.errors import UserError
from training.config.schema import load_preset, override


@pytest.fixture
def stages(monkeypatch):
    """Every stage is interrupted after it has written; returns the stages reached."""
    reached = []

    def command(line, asks=False):
        reached.append(line.split()[0])
        raise KeyboardInterrupt

    monkeypatch.setattr(demo, "command", command)
    return reached


def start(*arguments):
    with pytest.raises(KeyboardInterrupt):
        demo.main([str(argument) for argument in arguments])


def files(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir())


@pytest.mark.parametrize("name", ["thesis/chapter.tex", "run/best.weights.h5"])
def test_what_the_demo_did_not_make_is_left_alone(tmp_path, stages, name):
    folder = tmp_path / name.split("/")[0]
    folder.mkdir()
    (tmp_path / name).write_text("years of work")
    with pytest.raises(UserError, match=f"holds {folder.name}, which the demo did not make"):
        demo.main(["--output", str(tmp_path)])
    assert stages == []
    assert files(tmp_path) == [name]


def test_the_demo_replaces_what_an_earlier_demo_made_and_nothing_else(tmp_path, stages, capsys):
    output = tmp_path / "demo"
    start("--output", output)
    for name in ("run/config.toml", "models/en-fr/1/saved_model.pb", "evaluation.json"):
        (output / name).parent.mkdir(parents=True, exist_ok=True)
        (output / name).write_text("made by the demo")
    (output / "notes.txt").write_text("mine")
    (output / "models" / "mine" / "1").mkdir(parents=True)
    (output / "models" / "mine" / "1" / "saved_model.pb").write_text("mine")
    start("en-zh", "--output", output)
    assert files(output) == [demo.LIST, "models/mine/1/saved_model.pb", "notes.txt"]
    assert f"Removed {output / 'run'}" in capsys.readouterr().out
    assert stages == ["training.train"] * 2


def test_a_version_that_was_exported_into_the_demo_stops_it(tmp_path, stages):
    start("--output", tmp_path)
    for version in ("1", "2"):
        (tmp_path / "models" / "en-fr" / version).mkdir(parents=True)
        (tmp_path / "models" / "en-fr" / version / "saved_model.pb").write_text(version)
    with pytest.raises(UserError, match="holds models/en-fr/2, which the demo did not make"):
        demo.main(["--output", str(tmp_path)])
    assert (tmp_path / "models" / "en-fr" / "2" / "saved_model.pb").read_text() == "2"
    assert stages == ["training.train"]


def test_a_list_with_other_paths_gives_no_leave_to_delete_them(tmp_path, stages):
    output = tmp_path / "demo"
    (tmp_path / "precious").mkdir()
    output.mkdir()
    (output / demo.LIST).write_text("../precious\nnotes.txt\n.\n")
    (output / "notes.txt").write_text("mine")
    start("--output", output)
    assert (tmp_path / "precious").is_dir()
    assert files(output) == [demo.LIST, "notes.txt"]


def test_a_link_is_removed_and_not_what_it_leads_to(tmp_path, stages):
    output = tmp_path / "demo"
    start("--output", output)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "run.txt").write_text("kept")
    (output / "run").symlink_to(tmp_path / "elsewhere")
    start("--output", output)
    assert files(tmp_path / "elsewhere") == ["run.txt"]


@pytest.mark.parametrize("name", sorted(demo.DEMOS))
def test_a_demo_goes_through_all_stages_and_stops_its_server(name, monkeypatch, tmp_path, capsys):
    reached, output = [], tmp_path / "a b"
    monkeypatch.setattr(demo, "SERVE", "http.server 0")

    def command(line, asks=False):
        reached.append(line.split()[0])
        if reached[-1] == "serving.export":
            extra = output / "models" / name / "1" / "assets.extra"
            extra.mkdir(parents=True, exist_ok=True)
            (extra / "manifest.json").write_text('{"examples": ["id,time"]}')
        return "\n".join(demo.DEMOS[name].answers) if asks else ""

    monkeypatch.setattr(demo, "command", command)
    demo.main([name, "--output", str(output)])
    asked = [line.split()[0] for line in demo.DEMOS[name].questions]
    stages = ["training.train", "training.evaluate", "serving.export", "serving.check"]
    assert reached == [*stages, *asked]
    assert "[5/5]" in capsys.readouterr().out
    settings = demo.DEMOS[name].settings.replace("--set", "").split()
    override(load_preset(demo.DEMOS[name].preset), settings)


def test_another_answer_than_is_expected_ends_the_demo(monkeypatch, tmp_path):
    monkeypatch.setattr(demo, "SERVE", "http.server 0")
    monkeypatch.setattr(demo, "command", lambda line, asks=False: "Elle mange une pomme verte.")
    with pytest.raises(UserError, match="expected the answer Il n'aime pas les pommes"):
        demo.main(["--output", str(tmp_path)])
