"""Directories on the models' disk that are no versions, or go away."""

import os
import shutil

import pytest

from serving.server.storage import fingerprint, list_versions
from tests.attack.conftest import add_version, serving
from tests.serving.test_versions import config, eventually, polling, served, states


def test_numbers_beyond_int64_are_no_versions(base, saved, stubs):
    for number in ("20261122110152000000", str(2**63), "9" * 200, "٣"):
        (base / number).mkdir()
    assert list(list_versions(base)) == [1]
    with polling(base) as server:
        client = stubs(f"localhost:{server.port}")
        assert served(client) == 1
        add_version(saved / "upper2", base, 2**63 - 1)
        eventually(lambda: served(client) == 2**63 - 1)
        assert states(client)[2**63 - 1] == "AVAILABLE"


def test_a_base_path_that_is_gone_for_a_moment_changes_nothing(base, saved, stubs):
    with polling(base) as server:
        client = stubs(f"localhost:{server.port}")
        base.rename(base.with_name("away"))
        for _ in range(3):
            server._manager.scan()
        assert (served(client), states(client)) == (1, {1: "AVAILABLE"})
        base.with_name("away").rename(base)
        add_version(saved / "upper2", base, 2)
        eventually(lambda: served(client) == 2)


def spoil(version_dir, how):
    version_dir.mkdir()
    if how == "a link to itself":
        (version_dir / "saved_model.pb").symlink_to("saved_model.pb")
    elif how == "a loop of links":
        (version_dir / "loop").symlink_to(version_dir)
        (version_dir / "saved_model.pb").mkdir()
    elif how == "a folder for a file":
        (version_dir / "saved_model.pb").mkdir()
    elif how == "a pipe":
        os.mkfifo(version_dir / "saved_model.pb")


@pytest.mark.parametrize(
    "how", ["a link to itself", "a loop of links", "a folder for a file", "a pipe"]
)
def test_one_bad_directory_is_that_versions_failure(saved, tmp_path, stubs, how):
    for name in ("upper", "other"):
        add_version(saved / "upper", tmp_path / name, 1)
    file = tmp_path / "models.config"
    file.write_text(
        config(*((name, tmp_path / name, "latest {}", {}) for name in ("upper", "other")))
    )
    with serving(f"--model_config_file={file}", "--file_system_poll_wait_seconds=0") as server:
        server._manager.start_polling(0.05)
        client = stubs(f"localhost:{server.port}")
        spoil(tmp_path / "upper" / "2", how)
        eventually(lambda: states(client).get(2) == "END")
        add_version(saved / "upper2", tmp_path / "other", 2)
        eventually(lambda: states(client, "other").get(2) == "AVAILABLE")
        assert served(client) == 1
        shutil.rmtree(tmp_path / "upper" / "2")
        add_version(saved / "upper2", tmp_path / "upper", 2)
        eventually(lambda: served(client) == 2)


def test_a_version_that_becomes_unreadable_stays(base, saved, stubs, monkeypatch):
    add_version(saved / "upper2", base, 2)
    with polling(base) as server:
        client = stubs(f"localhost:{server.port}")
        assert served(client) == 2

        def fails(path):
            if path.name == "2":
                raise PermissionError(13, "Permission denied")
            return fingerprint(path)

        monkeypatch.setattr("serving.server.storage.fingerprint", fails)
        for _ in range(3):
            server._manager.scan()
        assert served(client) == 2
