"""Versions on disk: loaded, swapped, damaged and mended; the file that names the models."""

import concurrent.futures
import contextlib
import hashlib
import json
import os
import shutil
import threading
import time
from pathlib import Path

import grpc
import pytest
import tensorflow as tf
from tensorflow_serving.apis import get_model_status_pb2

from serving.api._versions import find_versions, newest_version
from serving.loaded._status import Code as StatusCode
from serving.loaded._status import StatusError
from serving.loaded.saved_model import ModelSession
from serving.server._models import Model
from serving.server._settings import read_models
from tests.serving import test_protocol
from tests.serving.conftest import add_version, error_of, models_config, serving

Code = grpc.StatusCode


def request(model="upper", text="one", version=None):
    return test_protocol.request(model, version=version, text=[text])


def statuses(client, model="upper", version=None):
    made = test_protocol.status_request(model, version)
    return client.model.GetModelStatus(made).model_version_status


def states(client, model="upper"):
    name = get_model_status_pb2.ModelVersionStatus.State.Name
    return {each.version: name(each.state) for each in statuses(client, model)}


def served(client, **which):
    return client.prediction.Predict(request(**which)).model_spec.version.value


def eventually(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.02)


@pytest.fixture
def polling(stubs):
    """Starts a server that looks at the base path every `seconds` seconds; gives its stubs."""

    @contextlib.contextmanager
    def start(base, seconds=0.05):
        with serving("--file_system_poll_wait_seconds=0", base=base) as server:
            server._every(seconds, server.models.scan)
            yield stubs(f"localhost:{server.port}")

    return start


@contextlib.contextmanager
def traffic(client, **which):
    """Requests from three threads meanwhile; gives the answers; none may fail."""
    answers, stop = [], threading.Event()

    def send():
        while not stop.wait(0.005):
            answers.append(client.prediction.Predict(request(**which), timeout=60))

    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        sending = [pool.submit(send) for _ in range(3)]
        try:
            eventually(lambda: len(answers) > 5)
            yield answers
            count = len(answers)
            eventually(lambda: len(answers) > count + 5)
        finally:
            stop.set()
        for each in sending:
            each.result()


@pytest.mark.parametrize("count", [1, pytest.param(60, marks=pytest.mark.slow)])
def test_versions_come_and_go_without_a_dropped_request(base, saved, polling, count):
    sources, last = (saved / "plain", saved / "plain2"), count + 1
    with polling(base) as client:
        with traffic(client) as answers:
            for number in range(2, last + 1):
                add_version(sources[1 - number % 2], base, number)
                eventually(lambda number=number: served(client) == number)
                shutil.rmtree(base / str(number - 1))
        for answer in answers:
            wanted = b"ONE" if answer.model_spec.version.value % 2 else b"ONE!"
            assert answer.outputs["translation"].string_val == [wanted]
        assert {answer.model_spec.version.value for answer in answers} >= {1, last}
        eventually(lambda: states(client) == {last: "AVAILABLE"})
        assert error_of(client.prediction.Predict, request(version=1))[0] == Code.NOT_FOUND


def test_a_removed_version_falls_back_to_the_one_before(base, saved, polling):
    add_version(saved / "plain2", base, 2)
    with polling(base) as client:
        assert states(client) == {2: "AVAILABLE"}
        with traffic(client):
            shutil.rmtree(base / "2")
            eventually(lambda: served(client) == 1)


def test_a_start_with_versions_that_all_fail_is_an_error(base):
    next((base / "1" / "variables").glob("variables.data-*")).write_bytes(b"abc")
    with (
        pytest.raises(StatusError, match=r"1 servable\(s\) did not become available: .*version: 1"),
        serving(base=base),
    ):
        pass


def test_numbers_beyond_int64_are_no_versions(base):
    for number in ("20261122110152000000", str(2**63), "9" * 200, "٣"):
        (base / number).mkdir()
    add_version(base / "1", base, 2**63 - 1)
    assert sorted(find_versions(base)) == [1, 2**63 - 1]
    assert newest_version(base, "saved_model.pb") == base / str(2**63 - 1)


def test_of_several_names_of_one_version_the_shortest_counts(tmp_path):
    for name in ("007", "07", "0007", "-8", "+9"):
        (tmp_path / name).mkdir()
    assert find_versions(tmp_path) == {7: tmp_path / "07"}


def test_a_saved_model_whose_file_has_changed_is_refused(base):
    """It has the size that it had, and TensorFlow would load it."""
    version, name = base / "1", "variables/variables.index"
    digest = hashlib.sha256((version / name).read_bytes()).hexdigest()
    (version / "assets.extra").mkdir()
    manifest = version / "assets.extra" / "manifest.json"
    manifest.write_text(json.dumps({"settings": {}, "files": {name: digest}}))
    ModelSession(version).close()
    manifest.write_text(json.dumps({"settings": {}, "files": {"saved_model.pb": digest}}))
    with pytest.raises(StatusError, match=r"saved_model.pb is not the file that was exported"):
        ModelSession(version)


def test_a_base_path_without_versions_is_said_once_and_why(saved, tmp_path, caplog):
    base = tmp_path / "upper"
    with serving(base=base, no_start=True) as server:
        said = [
            (lambda: None, "No such file"),
            (base.mkdir, "holds no directory with a number"),
            (
                lambda: add_version(saved / "plain", base / "en-fr", 1),
                f"base path: {base / 'en-fr'}. Or list",
            ),
            (
                lambda: shutil.copy(saved / "plain" / "saved_model.pb", base),
                f"as base path: {tmp_path}",
            ),
        ]
        for change, reason in said:
            change()
            caplog.clear()
            for _ in range(3):
                server.models.configure(server._configs())
            (line,) = [record.getMessage() for record in caplog.records]
            assert line.startswith("No versions of upper: ")
            assert reason in line


def test_a_bad_directory_is_that_versions_failure(base, saved, polling):
    """An older version serves where newer ones are damaged at the start."""
    for number in (2, 3, 4):
        (base / str(number)).mkdir()
    link, loop, pipe = (base / str(number) / "saved_model.pb" for number in (2, 3, 4))
    link.symlink_to("saved_model.pb")  # to itself
    (loop.parent / "loop").symlink_to(loop.parent)
    loop.mkdir()
    os.mkfifo(pipe)
    with polling(base) as client:
        assert states(client) == {1: "AVAILABLE", 2: "END", 3: "END", 4: "END"}
        add_version(saved / "plain2", base, 5)
        eventually(lambda: served(client) == 5)


# Configuration


def test_the_policy_says_how_many_versions_are_served(base, saved, tmp_path, stubs):
    add_version(saved / "plain2", base, 2)
    path, bases = tmp_path / "models.config", {"upper": base}

    def configured(policy):
        models_config(path, bases, policy)
        server.models.configure(server._configs())
        return served(client), states(client)

    models_config(path, bases, "latest { num_versions: 5 }")
    both = {1: "AVAILABLE", 2: "AVAILABLE"}
    with serving(f"--model_config_file={path}") as server:
        client = stubs(f"localhost:{server.port}")
        assert states(client) == both
        assert {served(client, version=version) for version in (1, 2)} == {1, 2}
        number, found = configured("specific { versions: 1 }")  # a roll-back
        assert (number, found[1]) == (1, "AVAILABLE")
        eventually(lambda: states(client)[2] == "END")
        assert configured("specific { versions: 7 }")[0] == 1  # until there is a wanted one
        assert configured("all {}") == (2, both)


GOOD = 'name: "a" base_path: "/a" model_platform: "tensorflow"'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nonsense", "Error parsing text-format tensorflow.serving.ModelServerConfig"),
        ("", "Expected a model_config_list"),
        ('config { name: "a" base_path: "/a" model_platform: "x" }', 'Received: "/a", "x"'),
        (f"config {{ {GOOD.replace('/a', 'a')} }}", "to have an absolute base_path"),
        (f"config {{ {GOOD.replace('/a', '/a' + chr(92) + '000b')} }}", "an absolute base_path"),
        (f"config {{ {GOOD} }} config {{ {GOOD} }}", "Illegal to list model a multiple times"),
        (f"config {{ {GOOD} version_labels {{}} }}", 'has no field named "version_labels"'),
    ],
)
def test_a_bad_configuration_is_refused_in_one_line(tmp_path, text, message):
    path = tmp_path / "models.config"
    path.write_text(f"model_config_list {{ {text} }}" if "config {" in text else text)
    with pytest.raises(StatusError) as caught:
        read_models(path)
    assert message in caught.value.message
    assert "\n" not in caught.value.message


def test_the_configuration_file_is_read_again(base, saved, tmp_path, stubs, monkeypatch):
    add_version(saved / "half", tmp_path / "half", 5)
    upper, half = {"upper": base}, {"half": tmp_path / "half"}
    path = models_config(tmp_path / "models.config", upper)
    flags = [f"--model_config_file={path}", "--model_config_file_poll_wait_seconds=1"]
    with serving(*flags) as server:
        client = stubs(f"localhost:{server.port}")
        with traffic(client):
            models_config(path, upper | half)
            eventually(lambda: server.models.has("half"))
            eventually(server.models._models["half"].available)
            assert states(client, "half") == {5: "AVAILABLE"}
        with monkeypatch.context() as patch:  # a scan by another thread would unload it
            written = []
            patch.setattr(Model, "__setattr__", lambda _, *value: written.append(value))
            server.models.configure(server._configs())
        assert ("config", None) not in written
        models_config(path, half)
        eventually(lambda: not server.models._models["upper"].versions)
        assert error_of(client.prediction.Predict, request()) == (
            Code.NOT_FOUND,
            "Servable not found for request: Latest(upper)",
        )
        aside = models_config(tmp_path / "aside", {"upper": "/a\\000b"})
        aside.replace(path)  # what no path can have is not the last that is read
        time.sleep(1.5)
        models_config(path, upper | half)
        eventually(server.models._models["upper"].available)
        other = models_config(tmp_path / "other", {"upper": tmp_path / "half"}).read_text()
        for text in ("nonsense", other):  # a base path cannot change
            path.write_text(text)
            with pytest.raises(StatusError):
                server.models.configure(server._configs())
            assert states(client) == {1: "AVAILABLE"}


def test_a_request_under_way_keeps_its_version_loaded(base, saved, polling):
    with polling(base) as client:
        made = request()
        made.inputs["text"].CopyFrom(tf.make_tensor_proto(["a b c d"] * 200_000))
        call = client.prediction.Predict.future(made, timeout=120)
        add_version(saved / "plain2", base, 2)
        eventually(lambda: served(client) == 2)
        assert call.result().model_spec.version.value == 1


@pytest.mark.parametrize("how", ["chmod", "same size and time"])
def test_a_failed_version_is_tried_again_when_it_is_mended(base, saved, polling, monkeypatch, how):
    copy, moment = shutil.copytree(saved / "plain2", base / "tmp"), (10**18, 10**18)
    (shard,) = copy.glob("variables/variables.data-*")
    good, mode = shard.read_bytes(), shard.stat().st_mode
    shard.write_bytes(good if how == "chmod" else b"x" * len(good))
    os.utime(shard, ns=moment)
    shard = copy.rename(base / "2") / "variables" / shard.name
    if how == "chmod":  # root reads any file: a loader that asks for the mode stands in for others
        load = ModelSession.__init__
        shard.chmod(0)

        def refuse(session, path):
            if Path(path).name == "2" and not shard.stat().st_mode & 0o400:
                raise StatusError(StatusCode.PERMISSION_DENIED, "Permission denied")
            load(session, path)

        monkeypatch.setattr(ModelSession, "__init__", refuse)
    with polling(base) as client:
        eventually(lambda: states(client).get(2) == "END")
        if how == "chmod":
            shard.chmod(mode)
        else:
            new = shard.with_name("new")
            new.write_bytes(good)
            os.utime(new, ns=moment)
            new.replace(shard)
        eventually(lambda: served(client) == 2)
