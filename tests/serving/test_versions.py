"""Versions on disk, policies, labels, reload and hot swap."""

import contextlib
import shutil
import threading
import time

import grpc
import pytest
import tensorflow as tf
from google.protobuf import text_format
from tensorflow_serving.apis import (
    get_model_status_pb2,
    model_management_pb2,
    predict_pb2,
    prediction_log_pb2,
)

from tests.serving.conftest import add_version, error_of, serving

Code = grpc.StatusCode


def request(model="upper", text="one", version=None, label=None):
    made = predict_pb2.PredictRequest()
    made.model_spec.name = model
    if version is not None:
        made.model_spec.version.value = version
    if label is not None:
        made.model_spec.version_label = label
    made.inputs["text"].CopyFrom(tf.make_tensor_proto([text]))
    return made


def states(client, model="upper"):
    made = get_model_status_pb2.GetModelStatusRequest()
    made.model_spec.name = model
    found = client.model.GetModelStatus(made).model_version_status
    return {
        one.version: get_model_status_pb2.ModelVersionStatus.State.Name(one.state) for one in found
    }


def served(client, **which):
    return client.prediction.Predict(request(**which)).model_spec.version.value


def eventually(condition, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.02)


@contextlib.contextmanager
def polling(base, *flags, seconds=0.05):
    """A server that looks at the base path every `seconds` seconds."""
    with serving(
        f"--model_base_path={base}",
        "--model_name=upper",
        "--file_system_poll_wait_seconds=0",
        *flags,
    ) as server:
        server._manager.start_polling(seconds)
        yield server


@contextlib.contextmanager
def traffic(client, **which):
    """Requests from three threads meanwhile; gives the answers; none may fail."""
    answers, failures, stop = [], [], threading.Event()

    def send():
        while not stop.is_set():
            try:
                answers.append(client.prediction.Predict(request(**which), timeout=60))
            except grpc.RpcError as error:
                failures.append(error)

    threads = [threading.Thread(target=send) for _ in range(3)]
    for thread in threads:
        thread.start()
    eventually(lambda: len(answers) > 5)
    try:
        yield answers
        count = len(answers)
        eventually(lambda: len(answers) > count + 5)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not failures


def test_a_new_version_takes_over_without_a_dropped_request(base, saved, stubs):
    with polling(base) as server:
        client = stubs(f"localhost:{server.port}")
        with traffic(client) as answers:
            add_version(saved / "upper2", base, 2)
            eventually(lambda: served(client) == 2)
        found = {
            (a.model_spec.version.value, a.outputs["translation"].string_val[0]) for a in answers
        }
        assert found == {(1, b"ONE"), (2, b"ONE!")}
        eventually(lambda: states(client) == {2: "AVAILABLE", 1: "END"})
        assert error_of(client.prediction.Predict, request(version=1))[0] == Code.NOT_FOUND


def test_a_removed_version_falls_back_to_the_one_before(base, saved, stubs):
    add_version(saved / "upper2", base, 2)
    with polling(base) as server:
        client = stubs(f"localhost:{server.port}")
        assert states(client) == {2: "AVAILABLE"}
        with traffic(client):
            shutil.rmtree(base / "2")
            eventually(lambda: served(client) == 1)


@pytest.mark.parametrize(
    "missing", ["variables", "saved_model.pb", "the end of saved_model.pb", "shard"]
)
def test_a_half_copied_version_is_served_only_when_it_is_whole(base, saved, stubs, missing):
    source, copy = saved / "upper2", base / "2"
    with polling(base) as server:
        client = stubs(f"localhost:{server.port}")
        with traffic(client):
            shutil.copytree(source, copy)
            if missing == "variables":
                shutil.rmtree(copy / "variables")
            elif missing == "saved_model.pb":
                (copy / "saved_model.pb").unlink()
            elif missing == "shard":
                next((copy / "variables").glob("variables.data-*")).unlink()
            else:
                whole = (copy / "saved_model.pb").read_bytes()
                (copy / "saved_model.pb").write_bytes(whole[: len(whole) // 2])
            time.sleep(0.5)
            assert served(client) == 1
            assert states(client).get(2) != "AVAILABLE"
            shutil.copytree(source, copy, dirs_exist_ok=True)
            eventually(lambda: served(client) == 2)


def test_two_half_copied_versions_leave_the_old_one(base, saved, stubs):
    with polling(base) as server:
        client = stubs(f"localhost:{server.port}")
        for number, part in ((2, "variables"), (3, "saved_model.pb")):
            shutil.copytree(saved / "upper2", base / f"tmp-{number}")
            path = base / f"tmp-{number}" / part
            shutil.rmtree(path) if path.is_dir() else path.unlink()
            (base / f"tmp-{number}").rename(base / str(number))
        time.sleep(0.5)
        assert (served(client), states(client)) == (1, {1: "AVAILABLE"})


def test_a_corrupted_version_ends_with_an_error_and_the_old_one_serves(base, saved, stubs):
    with polling(base) as server:
        client = stubs(f"localhost:{server.port}")
        with traffic(client):
            copy = shutil.copytree(saved / "upper2", base / "tmp")
            shard = next((copy / "variables").glob("variables.data-*"))
            whole = shard.read_bytes()
            shard.write_bytes(whole[:3])
            copy.rename(base / "2")
            eventually(lambda: states(client).get(2) == "END")
            assert served(client) == 1
            made = get_model_status_pb2.GetModelStatusRequest()
            made.model_spec.CopyFrom(request(version=2).model_spec)
            (status,) = client.model.GetModelStatus(made).model_version_status
            assert status.status.error_code != 0
            assert status.status.error_message
            # Repaired, it is tried again.
            next((base / "2" / "variables").glob("variables.data-*")).write_bytes(whole)
            eventually(lambda: served(client) == 2)


def write_warmup(version_dir, text):
    log = prediction_log_pb2.PredictionLog()
    log.predict_log.request.CopyFrom(request())
    log.predict_log.request.inputs["text"].CopyFrom(tf.make_tensor_proto([text]))
    (version_dir / "assets.extra").mkdir()
    path = version_dir / "assets.extra" / "tf_serving_warmup_requests"
    with tf.io.TFRecordWriter(str(path)) as writer:
        writer.write(log.SerializeToString())


@pytest.mark.parametrize(("text", "state"), [("warm up", "AVAILABLE"), (1.0, "END")])
def test_warmup_records_are_replayed_before_a_version_serves(base, saved, stubs, text, state):
    with polling(base) as server:
        client = stubs(f"localhost:{server.port}")
        copy = shutil.copytree(saved / "upper2", base / "tmp")
        write_warmup(copy, text)
        copy.rename(base / "2")
        eventually(lambda: states(client).get(2) == state)
        assert served(client) == (2 if state == "AVAILABLE" else 1)


def test_a_start_with_a_version_that_fails_is_an_error(base):
    write_warmup(base / "1", 1.0)
    with (
        pytest.raises(Exception, match=r"1 servable\(s\) did not become available: .*Expects arg"),
        serving(f"--model_base_path={base}"),
    ):
        pass


# Configuration


def config(*models):
    """ModelServerConfig of (name, base path, policy, labels) tuples, as text."""
    entries = []
    for name, base, policy, labels in models:
        pairs = " ".join(f'version_labels {{ key: "{k}" value: {v} }}' for k, v in labels.items())
        entries.append(
            f'config {{ name: "{name}" base_path: "{base}" model_platform: "tensorflow" '
            f"model_version_policy {{ {policy} }} {pairs} }}"
        )
    return "model_config_list { " + " ".join(entries) + " }"


def reload(client, *models):
    made = model_management_pb2.ReloadConfigRequest()
    text_format.Parse(config(*models), made.config)
    return client.model.HandleReloadConfigRequest(made, timeout=60)


BOTH = "specific { versions: 1 versions: 2 }"


@pytest.fixture
def two(base, saved):
    """A base path with versions 1 and 2."""
    add_version(saved / "upper2", base, 2)
    return base


@pytest.fixture
def configured(two, tmp_path, stubs):
    """Makes a server of a configuration; gives its stubs."""
    with contextlib.ExitStack() as stack:

        def make(*models, flags=()):
            path = tmp_path / "models.config"
            path.write_text(config(*models))
            server = stack.enter_context(serving(f"--model_config_file={path}", *flags))
            return stubs(f"localhost:{server.port}")

        yield make


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("latest { num_versions: 1 }", {2}),
        ("latest { num_versions: 5 }", {1, 2}),
        ("latest {}", {2}),
        ("all {}", {1, 2}),
        ("specific { versions: 1 }", {1}),
        ("specific { versions: 1 versions: 9 }", {1}),
    ],
)
def test_the_policy_says_which_versions_are_served(configured, two, policy, expected):
    client = configured(("upper", two, policy, {}))
    assert states(client) == dict.fromkeys(expected, "AVAILABLE")
    assert served(client) == max(expected)


def test_labels_move_while_requests_run(configured, two):
    client = configured(("upper", two, BOTH, {"stable": 1, "canary": 2}))
    assert (served(client, label="stable"), served(client, label="canary")) == (1, 2)
    with traffic(client, label="stable") as answers:
        reload(client, ("upper", two, BOTH, {"stable": 2}))
        eventually(lambda: served(client, label="stable") == 2)
        # The version that the label has left can go at once.
        reload(client, ("upper", two, "specific { versions: 2 }", {"stable": 2}))
    assert {answer.model_spec.version.value for answer in answers} == {1, 2}
    assert error_of(client.prediction.Predict, request(label="canary")) == (
        Code.INVALID_ARGUMENT,
        "Unrecognized servable version label: canary",
    )


def test_a_label_points_only_at_an_available_version(configured, two):
    client = configured(("upper", two, "specific { versions: 1 }", {"stable": 1}))
    for policy in ("specific { versions: 1 }", BOTH):
        code, message = error_of(reload, client, ("upper", two, policy, {"stable": 1, "canary": 2}))
        assert code == Code.FAILED_PRECONDITION
        assert message == (
            "Request to assign label to version 2 of model upper, which is not currently "
            "available for inference"
        )
    # The whole change was refused.
    assert states(client) == {1: "AVAILABLE"}
    assert served(client, label="stable") == 1


def test_a_new_label_may_wait_for_its_version_where_that_is_allowed(configured, two):
    flag = "--allow_version_labels_for_unavailable_models=true"
    client = configured(("upper", two, "specific { versions: 1 }", {"a": 1}), flags=[flag])
    reload(client, ("upper", two, "specific { versions: 1 }", {"a": 1, "new": 9}))
    assert error_of(client.prediction.Predict, request(label="new"))[0] == Code.NOT_FOUND
    code, _ = error_of(reload, client, ("upper", two, "specific { versions: 1 }", {"a": 9}))
    assert code == Code.FAILED_PRECONDITION


def test_reload_adds_and_removes_models(configured, two, saved, tmp_path):
    add_version(saved / "half", tmp_path / "half", 5)
    upper, half = ("upper", two, "latest {}", {}), ("half", tmp_path / "half", "latest {}", {})
    client = configured(upper)
    with traffic(client):
        reload(client, upper, half)
        assert states(client, "half") == {5: "AVAILABLE"}
    reload(client, half)
    assert error_of(client.prediction.Predict, request()) == (
        Code.NOT_FOUND,
        "Servable not found for request: Latest(upper)",
    )
    assert states(client) == {2: "END"}
    reload(client, upper, half)
    assert served(client) == 2


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        (
            'model_config_list { config { name: "upper" base_path: "BASE" model_platform: "x" } }',
            Code.INVALID_ARGUMENT,
            "Illegal to change a model's platform. For model upper platform was tensorflow and "
            "new platform requested is x",
        ),
        (
            'model_config_list { config { name: "new" base_path: "rel" '
            'model_platform: "tensorflow" } }',
            Code.INVALID_ARGUMENT,
            "Expected model new to have an absolute path or URI; got base_path()=rel",
        ),
        (
            'model_config_list { config { name: "new" base_path: "/a" } }',
            Code.INVALID_ARGUMENT,
            "Illegal setting neither ModelServerConfig::model_type (deprecated) nor "
            "ModelServerConfig::model_platform.",
        ),
        (
            'model_config_list { config { name: "a" base_path: "/a" model_platform: "tensorflow" } '
            'config { name: "a" base_path: "/a" model_platform: "tensorflow" } }',
            Code.INVALID_ARGUMENT,
            "Illegal to list model a multiple times in config list",
        ),
        (
            "custom_model_config {}",
            Code.INVALID_ARGUMENT,
            "ServerModelConfig type not supported by HandleReloadConfigRequest. Only "
            "ModelConfigList is currently supported",
        ),
    ],
)
def test_a_bad_configuration_is_refused_and_changes_nothing(configured, two, text, code, message):
    client = configured(("upper", two, "latest {}", {}))
    made = model_management_pb2.ReloadConfigRequest()
    text_format.Parse(text.replace("BASE", str(two)), made.config)
    assert error_of(client.model.HandleReloadConfigRequest, made) == (code, message)
    assert served(client) == 2


def test_a_reload_with_a_model_that_has_no_version_says_so(configured, two, tmp_path):
    upper = ("upper", two, "latest {}", {})
    client = configured(upper)
    code, message = error_of(reload, client, upper, ("new", tmp_path / "none", "latest {}", {}))
    assert code == Code.UNKNOWN
    assert "{name: new}: no version in" in message
    assert served(client) == 2


def test_the_configuration_file_is_read_again(two, tmp_path, stubs):
    path = tmp_path / "models.config"
    path.write_text(config(("upper", two, "latest {}", {})))
    flags = [f"--model_config_file={path}", "--model_config_file_poll_wait_seconds=1"]
    with serving(*flags) as server:
        client = stubs(f"localhost:{server.port}")
        path.write_text("nonsense")
        path.write_text(config(("upper", two, "all {}", {})))
        eventually(lambda: states(client) == {1: "AVAILABLE", 2: "AVAILABLE"})


def test_a_request_under_way_keeps_its_version_loaded(base, saved, stubs):
    with polling(base) as server:
        client = stubs(f"localhost:{server.port}")
        made = request()
        made.inputs["text"].CopyFrom(tf.make_tensor_proto(["a b c d"] * 200_000))
        call = client.prediction.Predict.future(made, timeout=120)
        add_version(saved / "upper2", base, 2)
        eventually(lambda: served(client) == 2)
        assert call.result().model_spec.version.value == 1
