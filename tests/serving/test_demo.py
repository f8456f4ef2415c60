"""The demos: the files that they may delete, their stages, and the answers that they expect."""

import pytest

from serving.demo import __main__ as demo
from training.command.errors import UserError
from training.config.schema import load_preset, override


def write(folder, *names):
    for path in (folder / name for name in names):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("years of work")


def files(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir())


def test_the_demo_replaces_what_an_earlier_demo_made_and_nothing_else(tmp_path, capsys):
    output = tmp_path / "demo"
    demo.make_room("en-fr", output)
    write(output, "run/config.toml", "models/en-fr/1/saved_model.pb", "evaluation.json")
    kept = ["models/mine/1/saved_model.pb", "notes.txt"]
    write(output, *kept)
    write(tmp_path, "elsewhere/run.txt")
    (output / "onnx").symlink_to(tmp_path / "elsewhere")
    demo.make_room("en-zh", output)
    assert files(output) == [demo.LIST, *kept]
    assert files(tmp_path / "elsewhere") == ["run.txt"]
    assert f"Removed {output / 'run'}" in capsys.readouterr().out


def test_a_version_that_was_exported_into_the_demo_stops_it(tmp_path):
    demo.make_room("en-fr", tmp_path)
    versions = [f"models/en-fr/{version}/saved_model.pb" for version in (1, 2)]
    write(tmp_path, *versions)
    with pytest.raises(UserError, match="holds models/en-fr/2, which the demo did not make"):
        demo.make_room("en-fr", tmp_path)
    assert files(tmp_path) == [demo.LIST, *versions]


def test_a_list_with_other_paths_gives_no_leave_to_delete_them(tmp_path):
    output = tmp_path / "demo"
    write(tmp_path, "precious/file", "demo/notes.txt")
    (output / demo.LIST).write_text("../precious\nnotes.txt\n.\n")
    demo.make_room("en-fr", output)
    assert files(tmp_path / "precious") == ["file"]
    assert files(output) == [demo.LIST, "notes.txt"]


@pytest.mark.parametrize("name", sorted(demo.DEMOS))
def test_a_demo_goes_through_all_stages_and_stops_its_server(name, monkeypatch, tmp_path, capsys):
    reached, output = [], tmp_path / "a b"
    monkeypatch.setattr(demo, "SERVE", "serving.server --help")

    def command(line, asks=False):
        reached.append(line.split()[0])
        if reached[-1] == "serving.export":
            extra = output / "models" / name / "1" / "assets.extra"
            extra.mkdir(parents=True, exist_ok=True)
            (extra / "manifest.json").write_text('{"examples": ["id,time"]}')
        return "\n".join(demo.DEMOS[name]["answers"]) if asks else ""

    monkeypatch.setattr(demo, "command", command)
    demo.main([name, "--output", str(output)])
    asked = [line.split()[0] for line in demo.QUESTIONS[demo.DEMOS[name]["questions"]]]
    stages = ["training.train", "training.evaluate", "serving.export", "serving.check"]
    assert reached == [*stages, *asked]
    assert "[5/5]" in capsys.readouterr().out
    settings = demo.DEMOS[name]["settings"].replace("--set", "").split()
    override(load_preset(demo.DEMOS[name]["preset"]), settings)


def test_another_answer_than_is_expected_ends_the_demo(monkeypatch, tmp_path):
    monkeypatch.setattr(demo, "SERVE", "serving.server --help")
    monkeypatch.setattr(demo, "command", lambda line, asks=False: "Elle mange une pomme verte.")
    with pytest.raises(UserError, match="expected the answer Il n'aime pas les pommes"):
        demo.main(["--output", str(tmp_path)])
