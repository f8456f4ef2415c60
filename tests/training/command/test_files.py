import errno
import math
import os
import re

import pytest

from training import pictures
from training.command.errors import UserError
from training.command.files import aside_of, move, read_json, replacing, write_json, written_aside
from training.command.options import main_guard
from training.runs.files import RunFiles


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_json_has_no_numbers_that_are_not_finite(tmp_path, value):
    file = tmp_path / "a.json"
    write_json(file, {"a": 1.5, "b": "é"})
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(file, {"a": value})
    assert read_json(file) == {"a": 1.5, "b": "é"}
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


@pytest.mark.parametrize("content", [b"{", b"\xff", None])
def test_a_damaged_file_is_one_line_that_names_it(tmp_path, content):
    file = tmp_path / "a.json"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(UserError, match=r"cannot read .*a\.json: "):
        read_json(file)


def test_a_disk_that_is_full_is_one_line_that_names_the_file(tmp_path, monkeypatch, capsys):
    def full(*_, **__):  # as write(2) fails: without a name
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("pathlib.Path.write_text", full)
    monkeypatch.setattr("pathlib.Path.write_bytes", full)
    said = "error: No space left on device: {}; free some space, or choose a place on another disk"

    def in_a_corpus(path):
        with written_aside(path) as aside:
            (aside / "a").write_text("a")

    def in_a_run(path):
        with RunFiles(path).locked():
            (path / "a").write_text("a")

    for name, write in {
        "scores.json": lambda path: write_json(path, {}),
        "corpus": in_a_corpus,
        "run": in_a_run,
        "images": lambda path: pictures.main(["digits", "--output", str(path), "--count", "1"]),
    }.items():
        with pytest.raises(SystemExit, match=re.escape(said.format(tmp_path / name))):
            main_guard(lambda write=write, name=name: write(tmp_path / name))


@pytest.fixture
def calls(monkeypatch):
    """The files and folders that are synced and renamed, in order."""
    found, fsync, replace = [], os.fsync, os.replace

    def synced(descriptor):
        found.append(("sync", os.readlink(f"/proc/self/fd/{descriptor}")))
        fsync(descriptor)

    def renamed(path, target):
        found.append(("rename", str(target)))
        replace(path, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", renamed)
    monkeypatch.setattr("pathlib.Path.replace", lambda path, target: renamed(path, target))
    return found


def test_a_file_is_on_the_disk_before_it_has_its_name(tmp_path, calls):
    write_json(tmp_path / "a.json", {})
    aside = str(tmp_path / "writing-a.json")
    name = str(tmp_path / "a.json")
    assert calls == [("sync", aside), ("rename", name), ("sync", str(tmp_path))]


def test_a_folder_is_on_the_disk_with_all_its_files_before_it_has_its_name(tmp_path, calls):
    def fill(folder):
        (folder / "deep").mkdir(parents=True)
        (folder / "deep" / "a").write_text("a")
        (folder / "b").write_text("b")

    with replacing(tmp_path / "one") as aside:
        fill(aside)
    with written_aside(tmp_path / "two") as aside:
        fill(aside)
    (tmp_path / "other").mkdir()
    fill(tmp_path / "other")
    move(tmp_path / "other", tmp_path / "three")
    for name in ("one", "two", "three"):
        at = calls.index(("rename", str(tmp_path / name)))
        before = {path for _, path in calls[max(0, at - 4) : at]}
        assert {path.rpartition("/")[2] for path in before} >= {"deep", "a", "b"}
        assert len(before) == 4
        assert calls[at + 1] == ("sync", str(tmp_path))


def test_a_second_process_is_refused_until_the_first_is_done(tmp_path):
    files = RunFiles(tmp_path / "run")
    with files.locked():
        with pytest.raises(UserError, match=r"run is in use by process \d+$"), files.locked():
            pass
        files.config.write_text("")
    with files.locked():
        pass


def test_a_directory_that_did_not_become_a_run_is_removed(tmp_path):
    with pytest.raises(KeyError), RunFiles(tmp_path / "a" / "b").locked():
        raise KeyError
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_process_left_half_written_is_removed(tmp_path):
    files = RunFiles(tmp_path)
    kept = [files.checkpoint(1), files.recent, tmp_path / "writing"]
    left = [files.checkpoints / "writing-4711", aside_of(files.best)]
    left.append(aside_of(files.recent_weights(1)))
    for path in (*kept, *left):
        path.mkdir(parents=True, exist_ok=True)
    with files.locked():
        assert not any(path.exists() for path in left)
        assert all(path.exists() for path in kept)
