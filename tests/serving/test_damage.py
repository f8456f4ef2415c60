"""Damaged versions: the check finds them, and a server never serves them instead of a good one."""

import contextlib
import shutil

import pytest

from serving.check._onnx import check_folder
from serving.check._version import check_version
from tests.serving.conftest import add_version, serving
from tests.serving.test_versions import served, states, statuses

SHARD = "variables/variables.data-00000-of-00001"
DAMAGE = [
    ("savedmodel", "saved_model.pb", "absent", "it has no saved_model.pb"),
    ("savedmodel", "saved_model.pb", "three bytes", "saved_model.pb cannot be read"),
    ("savedmodel", "variables", "absent", "not complete: no variables"),
    ("savedmodel", SHARD, "three bytes", "TensorFlow's C++ loader rejects it"),
    ("onnx", "weights.bin", "absent", "weights.bin"),
    ("onnx", "weights.bin", "three bytes", "weights.bin is not the file that was exported"),
    ("onnx", "manifest.json", "two bytes short", "manifest.json"),
    ("onnx", "translator.onnx", "zeros", "translator.onnx is not the file that was exported"),
    ("onnx", "encoder.onnx", "three bytes", "encoder.onnx is not the file that was exported"),
    ("onnx", "target.json", "half", "target.json is not the file that was exported"),
    ("onnx", "source.json", "a folder", "source.json"),
]
CUTS = {"three bytes": 3, "two bytes short": -2, "half": -300}  # the last byte is a line end


@pytest.fixture(scope="module")
def watched(saved, onnx_translator, tmp_path_factory):
    """By form: a good version, and a server of a base path that has it as version 1."""
    good = {"savedmodel": saved / "upper", "onnx": onnx_translator}
    root = tmp_path_factory.mktemp("damage")
    with contextlib.ExitStack() as stack:
        found = {}
        for form, version in good.items():
            base = add_version(version, root / form, 1).parent
            server = serving("--file_system_poll_wait_seconds=0", base=base)
            found[form] = version, stack.enter_context(server), base
        yield found


def damage(path, how):
    if path.is_dir():
        shutil.rmtree(path)
        return
    content = path.read_bytes()
    path.unlink()
    if how == "a folder":
        path.mkdir()
    elif how != "absent":
        path.write_bytes(bytes(len(content)) if how == "zeros" else content[: CUTS[how]])


def scan_twice(server):
    for _ in range(2):  # a version that changes is not loaded
        server.models.scan()


@pytest.mark.parametrize(("form", "name", "how", "message"), DAMAGE)
def test_a_damaged_version_is_found_and_never_replaces_a_good_one(
    watched, stubs, form, name, how, message
):
    good, server, base = watched[form]
    number = 1 + max(int(path.name) for path in base.iterdir())
    damage(shutil.copytree(good, base / "writing") / name, how)
    version = (base / "writing").rename(base / str(number))
    check = check_version if form == "savedmodel" else check_folder
    findings = check(version)
    assert any(message in finding for finding in findings), findings
    assert not any("\n" in finding for finding in findings)
    assert len(findings) == 1 or form == "onnx"
    client, asked = stubs(f"localhost:{server.port}"), {"model": base.name, "text": "He sleeps."}
    scan_twice(server)
    assert states(client, base.name) == {1: "AVAILABLE", number: "END"}
    (status,) = statuses(client, base.name, number)
    assert status.status.error_code
    assert status.status.error_message
    assert served(client, **asked) == 1
    if how == "a folder":
        (version / name).rmdir()
    shutil.copytree(good, version, dirs_exist_ok=True)
    scan_twice(server)
    assert served(client, **asked) == number  # it is tried again
    shutil.rmtree(version)
    scan_twice(server)
    assert served(client, **asked) == 1
