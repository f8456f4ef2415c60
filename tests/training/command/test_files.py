import errno
import fcntl
import math
import os
import re
import threading
import time
from pathlib import Path
from unittest.mock import Mock

import pytest

from tests.training.data.files import write
from training import pictures
from training.command import files as command_files
from training.command.errors import UserError
from training.command.files import (
    LOCK,
    aside_of,
    locked_folder,
    move,
    read_json,
    remove,
    replacing,
    sync,
    write_json,
    written_aside,
)
from training.command.options import main_guard
from training.runs.files import RunFiles


def test_json_has_no_numbers_that_are_not_finite(tmp_path):
    file = tmp_path / "a.json"
    write_json(file, {"a": 1.5, "b": "é"})
    for value in (math.nan, math.inf):
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


def in_a_corpus(path):
    with written_aside(path) as aside:
        (aside / "a").write_text("a")


def in_a_run(path):
    with RunFiles(path).locked():
        (path / "a").write_text("a")


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("scores.json", lambda path: write_json(path, {})),
        ("corpus", in_a_corpus),
        ("run", in_a_run),
        ("images", lambda path: pictures.main(["digits", "--output", str(path), "--count", "1"])),
    ],
)
def test_a_disk_that_is_full_is_one_line_that_names_the_file(tmp_path, monkeypatch, name, write):
    full = Mock(side_effect=OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))  # without a name
    monkeypatch.setattr("pathlib.Path.write_text", full)
    monkeypatch.setattr("pathlib.Path.write_bytes", full)
    said = f"error: No space left on device: {tmp_path / name}. Free some space, or choose another"
    with pytest.raises(SystemExit, match=re.escape(said)):
        main_guard(lambda: write(tmp_path / name))


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
    (first, aside), *rest = calls
    assert (first, Path(aside).parent, Path(aside).suffix) == ("sync", tmp_path, ".json")
    assert rest == [("rename", str(tmp_path / "a.json")), ("sync", str(tmp_path))]


def test_two_writers_of_a_file_do_not_mix_or_remove_what_the_other_writes(tmp_path):
    path = tmp_path / "a.json"
    with replacing(path) as first:
        first.write_text("1")
        with replacing(path) as second:
            second.write_text("22")
        assert path.read_text() == "22"
        first.write_text("111")
    assert path.read_text() == "111"
    assert [each.name for each in tmp_path.iterdir()] == ["a.json"]


def test_a_folder_is_on_the_disk_with_all_its_files_before_it_has_its_name(tmp_path, calls):
    def fill(folder):
        write(folder / "deep" / "a", "a")
        write(folder / "b", "b")

    with replacing(tmp_path / "one") as aside:
        fill(aside)
    with written_aside(tmp_path / "two") as aside:
        fill(aside)
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


def test_a_folder_is_locked_until_it_has_its_name(tmp_path, monkeypatch):
    def rival(path):  # prepares the same corpus
        refused = pytest.raises(UserError, match=r"c is in use by process \d+$")
        with refused, written_aside(tmp_path / "c"):
            pass
        sync(path)

    monkeypatch.setattr(command_files, "sync", rival)
    with written_aside(tmp_path / "c") as aside:
        (aside / "a").write_text("a")
    assert [path.name for path in (tmp_path / "c").iterdir()] == ["a"]
    assert [path.name for path in tmp_path.iterdir()] == ["c"]


def test_whoever_waits_for_a_folder_that_is_removed_creates_it_again(tmp_path):
    def wait():
        with locked_folder(tmp_path / "a", tmp_path / "a", wait=True):
            assert (tmp_path / "a" / LOCK).is_file()
            held.append((tmp_path / "a" / LOCK).read_text())

    held = []
    with locked_folder(tmp_path / "a", tmp_path / "a"):
        waiting = threading.Thread(target=wait)
        waiting.start()
        time.sleep(0.1)
        remove(tmp_path / "a")
    waiting.join(30)
    assert held == [f"{os.getpid()}\n"]


@pytest.mark.parametrize("lock", ["symlink_to", "hardlink_to", "pipe", "dangling"])
def test_what_is_no_lock_is_not_written_to(tmp_path, lock):
    """An archive from elsewhere may hold such a run."""
    run, own = tmp_path / "run", tmp_path / "own.txt"
    run.mkdir()
    own.write_text("precious")
    if lock == "pipe":
        os.mkfifo(run / LOCK)
    else:
        target = tmp_path / "new" if lock == "dangling" else own
        getattr(run / LOCK, lock.replace("dangling", "symlink_to"))(target)
    refused = pytest.raises(UserError, match=r"run/\.lock is .*not a lock\. Remove it")
    with refused, RunFiles(run).locked():
        pass
    assert own.read_text() == "precious"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["own.txt", "run"]


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_is_one_line(tmp_path, monkeypatch, number):
    said = os.strerror(number)
    monkeypatch.setattr(fcntl, "flock", Mock(side_effect=OSError(number, said)))
    reason = re.escape(f"cannot lock {tmp_path / 'run'}: {said}. Choose a folder on")
    with pytest.raises(UserError, match=reason), RunFiles(tmp_path / "run").locked():
        pass


def test_removing_a_link_leaves_its_target(tmp_path):
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "a")
    remove(tmp_path / "link")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert (tmp_path / "a" / "b").is_dir()


def test_a_directory_that_did_not_become_a_run_is_removed(tmp_path):
    with pytest.raises(KeyError), RunFiles(tmp_path / "a" / "b").locked():
        raise KeyError
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_process_left_half_written_is_removed(tmp_path):
    files = RunFiles(tmp_path)
    kept = [files.checkpoint(1), files.recent, tmp_path / "writing"]
    left = [
        files.checkpoints / "writing-4711",
        *map(aside_of, (files.best, files.recent_weights(1))),
    ]
    for path in (*kept, *left):
        path.mkdir(parents=True, exist_ok=True)
    with files.locked():
        assert not any(path.exists() for path in left)
        assert all(path.exists() for path in kept)
