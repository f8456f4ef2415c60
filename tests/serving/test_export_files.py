"""Manifests of SavedModels, which may be anyone's: bounded, in their folder, errors of one line."""

import json
import os
import threading
from hashlib import sha256

import pytest

from serving.api._export_files import check_saved_model
from serving.check._version import check_version
from serving.loaded._status import StatusError
from serving.loaded.saved_model import ModelSession
from serving.page._card import read_card
from serving.server._calls import Metrics
from serving.server._models import Models
from serving.server._settings import read_models
from tests.serving.conftest import models_config

NONE = sha256().hexdigest()


@pytest.fixture
def folder(tmp_path):
    """A version with files that an attacker may name, and one outside it."""
    folder = tmp_path / "1"
    (folder / "assets.extra").mkdir(parents=True)
    (folder / "variables").mkdir()
    (folder / "variables" / "good").touch()
    (tmp_path / "secret").touch()
    (folder / "out").symlink_to(tmp_path / "secret")
    (folder / "zero").symlink_to("/dev/zero")
    (folder / "up").symlink_to(tmp_path)
    os.mkfifo(folder / "pipe")
    with (folder / "sparse").open("wb") as file:
        file.truncate(3 * 10**12)
    return folder


def with_manifest(folder, content):
    text = content if isinstance(content, bytes) else json.dumps(content).encode()
    (folder / "assets.extra" / "manifest.json").write_bytes(text)
    return folder


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("/dev/zero", "expected names of files"),
        ("../secret", "expected names of files"),
        ("variables/../../secret", "expected names of files"),
        ("", "expected names of files"),
        ("a\0b", "expected names of files"),
        ("zero", "a link or device"),
        ("out", "a link or device"),
        ("up/secret", "a link or device"),
        ("pipe", "a link or device"),
        ("variables", "a link or device"),
        ("sparse", "expected at most"),
        ("missing", "No such file"),
        ("x" * 5000, "File name too long"),
    ],
)
def test_sums_are_of_files_of_the_folder(folder, name, reason):
    with_manifest(folder, {"settings": {}, "files": {"variables/good": NONE, name: NONE}})
    with pytest.raises(ValueError, match=reason) as caught:
        check_saved_model(folder)
    assert str(folder) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff",
        b"{" * 100_000,
        b"[" * 100_000,
        json.dumps([[[]]] * 3).encode(),
        {"files": 3},
        {"files": {"variables/good": None}},
        {"files": {"variables/good": "0" * 64}},
    ],
)
def test_a_bad_manifest_is_an_error_with_its_file_everywhere(folder, content):
    with_manifest(folder, content)
    with pytest.raises(ValueError, match=r"manifest\.json|variables/good") as caught:
        check_saved_model(folder)
    message = str(caught.value)
    assert message.startswith(str(folder))
    assert "\n" not in message
    with pytest.raises(StatusError) as refused:
        ModelSession(folder)
    assert refused.value.message == message
    assert check_version(folder) == [message]


def test_a_manifest_is_a_small_file_of_the_folder(folder):
    path = folder / "assets.extra" / "manifest.json"
    cases = ("/dev/zero", "device"), (folder / "sparse", "at most"), ("x", "No such")
    for target, reason in cases:
        path.symlink_to(target)
        with pytest.raises(ValueError, match=reason):
            check_saved_model(folder)
        path.unlink()
    os.mkfifo(path)
    with pytest.raises(ValueError, match="device"):
        check_saved_model(folder)


def test_good_sums_are_of_this_project_if_there_are_settings(folder):
    files = {"files": {"variables/good": NONE}}
    assert check_saved_model(with_manifest(folder, files | {"settings": {}})) is True
    assert check_saved_model(with_manifest(folder, files)) is False
    (folder / "assets.extra" / "manifest.json").unlink()
    assert check_saved_model(folder) is False


def test_the_manifest_of_a_page_is_bounded(folder):
    for name in ("zero", "pipe", "sparse", "missing"):
        with pytest.raises(ValueError, match=name if name != "zero" else "/dev/zero"):
            read_card(folder / name)


def test_a_slow_folder_does_not_stop_other_models(tmp_path):
    """One model never ends loading; the other gets a new version, and is configured."""
    slow, loaded = threading.Event(), []

    class Loaded:
        def close(self):
            loaded.remove(self)

    def load(path):
        if path.parent.name == "slow":
            assert slow.wait(60)
        loaded.append(Loaded())
        return loaded[-1]

    for name in ("slow", "quick", "later"):
        (tmp_path / name / "1").mkdir(parents=True)
    path = tmp_path / "models.config"

    def configs(*names):
        models_config(path, {name: tmp_path / name for name in names})
        return read_models(path)

    def eventually(holds):
        for _ in range(500):
            if holds():
                return
            threading.Event().wait(0.01)
        raise AssertionError("it did not come to pass")

    models = Models(load, Metrics())
    try:
        models.configure(configs("slow", "quick"), wait=False)
        eventually(models._models["quick"].available)
        (tmp_path / "quick" / "2").mkdir()
        for _ in range(3):
            models.scan(wait=False)
            eventually(lambda: not models._models["quick"].scanning.locked())
        assert models._models["quick"].available() == [2]
        models.configure(configs("slow", "quick", "later"), wait=False)
        eventually(models._models["later"].available)
        assert not models._models["slow"].available()
    finally:
        closing = threading.Thread(target=models.close, args=(0.0,))
        closing.start()
        eventually(lambda: not loaded)
        slow.set()
        closing.join()
    assert not loaded  # what ended loading after that is closed
