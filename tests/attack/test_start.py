"""Starts and reloads that fail: early, in one line, and as a whole."""

import json
import os
import socket
import subprocess
import sys

import grpc
import pytest

from serving.server.flags import build_parser
from tests.attack.conftest import add_version, serving
from tests.serving.conftest import error_of, ssl_config
from tests.serving.test_versions import config, reload, served, states, write_warmup

LATEST = "latest {}"
FAR = ("99999999999", "-2147483649", "9" * 5000)  # beyond the numbers of gRPC


@pytest.mark.parametrize("flag", ["--port", "--rest_api_port"])
@pytest.mark.parametrize("port", ["99999", "65536", "-1", "x"])
def test_a_port_that_cannot_be_is_refused(capsys, flag, port):
    with pytest.raises(SystemExit):
        build_parser().parse_args([f"{flag}={port}"])
    assert f"argument {flag}: " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flag", "values", "said"),
    [
        ("--max_request_bytes", (0, -1, 2**31, 3_000_000_000, "x"), "1 to 2147483647"),
        ("--shutdown_grace_seconds", (-1, 86_401, 10**20), "0 to 86400"),
        ("--file_system_poll_wait_seconds", (-1, 2**31, 10**20), "0 to 2147483647"),
        ("--model_config_file_poll_wait_seconds", (-1, 2**31), "0 to 2147483647"),
        ("--rest_api_timeout_in_ms", (-1, 2**31), "0 to 2147483647"),
    ],
)
def test_a_number_that_cannot_be_used_is_refused_in_one_line(capsys, flag, values, said):
    for value in values:
        with pytest.raises(SystemExit):
            build_parser().parse_args([f"{flag}={value}"])
        error = capsys.readouterr().err
        assert error.startswith(f"error: argument {flag}: expected a whole number of {said}. Rec")
        assert f"Received: {value};" in error
        assert error.count("\n") == 1


def test_channel_arguments_are_numbers_of_32_bits_or_texts(base):
    most = "grpc.max_connection_age_ms=2147483647,a=-2147483647,b=--5,c=-,d=5-"
    flags = ("--model_name=upper", f"--model_base_path={base}", "--max_request_bytes=2147483647")
    with serving(*flags, f"--grpc_channel_arguments={most}") as server:
        assert server.port


@pytest.fixture(scope="module")
def bad_ssl(tmp_path_factory, certificates):
    """Files that are no SSLConfig, by what is wrong with them."""
    root = tmp_path_factory.mktemp("bad")
    good = ssl_config(root / "good", certificates).read_text()

    def text(name):
        return json.dumps((certificates / name).read_text())

    files = {
        "another key": f"server_key: {text('ca.key')} server_cert: {text('server.pem')}",
        "no certificate": f"server_key: {text('server.key')}",
        "a broken authority": good.replace("custom_ca: ", "custom_ca: 'x' custom_ca: 'y' #"),
        "empty": "",
        "not UTF-8": b"\xff\xfe",
        "a folder": None,
    }
    for name, content in files.items():
        path = root / name.replace(" ", "-")
        if content is None:
            path.mkdir()
        else:
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return root


def test_a_wrong_start_is_one_line_before_any_model_is_loaded(base, bad_ssl, certificates):
    # All of them in one process, which imports TensorFlow once.
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        wrong = [
            [f"--port={port}"],
            ["--port=0", f"--rest_api_port={port}"],
            ["--host=203.0.113.7"],
            ["--grpc_socket_path=/no/such/directory/socket"],
            [f"--grpc_socket_path=/tmp/{'x' * 200}"],
            ["--ssl_config_file=/no/such/file"],
            *([f"--grpc_channel_arguments=grpc.max_connection_age_ms={n}"] for n in FAR),
            *([f"--ssl_config_file={path}"] for path in bad_ssl.iterdir() if path.name != "good"),
        ]
        code = (
            "import json, sys\nimport serving.server.__main__ as command\n"
            "import training.command.startup\n"
            "import tensorflow\n"
            "tensorflow.config.list_physical_devices('GPU')\n"  # there may be none: no line says so
            "from serving.server.manager import ModelManager\n"
            "def never(*a, **k): raise AssertionError('a model was loaded')\n"
            "ModelManager.configure = never\n"
            "for flags in json.loads(sys.argv[1]): assert command.main(flags) == 1\n"
        )
        common = ["--port=0", "--model_name=upper", f"--model_base_path={base}"]
        flags = json.dumps([[*common, *one] for one in wrong])
        asked = {n: each for n, each in os.environ.items() if n != "TF_CPP_MIN_LOG_LEVEL"}
        done = subprocess.run(
            [sys.executable, "-c", code, flags],
            env=asked,
            capture_output=True,
            text=True,
            timeout=300,
        )
    lines = done.stderr.splitlines()
    assert done.returncode == 0, done.stderr
    assert len(lines) == len(wrong), done.stderr
    assert all(line.startswith("Failed to start server. Error: ") for line in lines)
    assert all(len(line) < 500 for line in lines)


# Reloads


@pytest.fixture
def server(saved, tmp_path, stubs):
    for name in ("first", "second", "third"):
        add_version(saved / "upper", tmp_path / name, 1)
    add_version(saved / "upper2", tmp_path / "first", 2)
    (tmp_path / "broken" / "1").mkdir(parents=True)
    (tmp_path / "broken" / "1" / "saved_model.pb").write_bytes(b"\x0a\x00nonsense")
    file = tmp_path / "models.config"
    file.write_text(
        config(
            ("first", tmp_path / "first", "specific { versions: 1 versions: 2 }", {"stable": 1}),
            ("second", tmp_path / "second", LATEST, {}),
        )
    )
    with serving(f"--model_config_file={file}") as server:
        yield server


@pytest.mark.parametrize("fault", ["no version", "broken", "label"])
def test_a_reload_that_fails_changes_nothing(server, stubs, tmp_path, fault):
    client = stubs(f"localhost:{server.port}")
    both = {1: "AVAILABLE", 2: "AVAILABLE"}
    bad = {
        "no version": ("none", tmp_path / "none", LATEST, {}),
        "broken": ("broken", tmp_path / "broken", LATEST, {}),
        "label": ("third", tmp_path / "third", LATEST, {"stable": 7}),
    }[fault]
    with pytest.raises(grpc.RpcError):
        # Drops a model, adds one, narrows another's versions, moves its label; and the bad one.
        reload(
            client,
            ("first", tmp_path / "first", "specific { versions: 2 }", {"stable": 2}),
            ("third" if fault != "label" else "fourth", tmp_path / "third", LATEST, {}),
            bad,
        )
    server._manager.scan()
    assert states(client, "first") == both
    assert served(client, model="first", label="stable") == 1
    assert states(client, "second") == {1: "AVAILABLE"}
    for name in ("third", "fourth", "none", "broken"):
        code, _ = error_of(states, client, name)
        assert code == grpc.StatusCode.NOT_FOUND
    reload(client, ("third", tmp_path / "third", LATEST, {}))
    assert states(client, "third") == {1: "AVAILABLE"}
    assert states(client, "second") == {1: "END"}


@pytest.fixture
def ran(monkeypatch):
    """The runs of sessions: the tensors that each feeds, and the rows it has."""
    from serving.savedmodel.session import ModelSession

    seen = []
    run = ModelSession.run

    def spy(session, signature, inputs, *rest, **options):
        feeds = tuple(sorted(info.name for info in signature.inputs.values()))
        seen.append((feeds, list(inputs["text"].string_val)))
        return run(session, signature, inputs, *rest, **options)

    monkeypatch.setattr(ModelSession, "run", spy)
    return seen


def feeds_of(server):
    """Return the tensors that each signature feeds."""
    signatures = server._manager._models["upper"].versions[1].servable.model.session.signatures
    return {
        name: tuple(sorted(info.name for info in signature.inputs.values()))
        for name, signature in signatures.items()
        if name != "__saved_model_init_op"
    }


def test_every_signature_is_warm_when_the_port_opens(base, ran):
    with serving("--model_name=upper", f"--model_base_path={base}") as server:
        feeds = feeds_of(server)
    assert len(feeds) == 4
    assert sorted(ran) == sorted((names, [b""]) for names in feeds.values())


def test_what_records_warm_is_not_run_on_zeros(base, ran):
    write_warmup(base / "1", "warm up")
    with serving("--model_name=upper", f"--model_base_path={base}") as server:
        feeds = feeds_of(server)
    recorded = feeds.pop("serving_default")
    assert ran[0] == (recorded, [b"warm up"])
    assert sorted(ran[1:]) == sorted((names, [b""]) for names in feeds.values())
