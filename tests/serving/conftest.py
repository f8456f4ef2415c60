"""Servers of small models, and runs and exports to serve."""

import asyncio
import contextlib
import json
import re
import shutil
import socket
import subprocess
import threading
import urllib.request
from pathlib import Path

import grpc
import pytest
import tensorflow as tf
from tensorflow_serving.apis import model_service_pb2_grpc, prediction_service_pb2_grpc

from serving.export._version import export
from serving.server._calls import Call
from serving.server._model_server import ModelServer
from serving.server._settings import METRICS, build_parser
from tests.conftest import made_once
from tests.serving.page.models import save_predictor, save_reader, save_unsure
from tests.serving.saved_models import save_endless, save_half_plus_two, save_upper
from tests.training.conftest import event_run, image_run, line_run, no_pictures  # noqa: F401
from training.runs.run import load_run


@pytest.fixture(scope="session")
def saved(tmp_path_factory) -> Path:
    """Directory of SavedModels to copy from: upper and half; plain and plain2 translate alone."""
    root = tmp_path_factory.mktemp("saved")
    save_upper(root / "upper")
    for name, suffix in (("plain", ""), ("plain2", "!")):  # which load in a third of the time
        save_upper(root / name, suffix, names=["translate"])
    save_half_plus_two(root / "half")
    return root


@pytest.fixture(scope="session")
def endless(tmp_path_factory):
    return save_endless(tmp_path_factory.mktemp("endless") / "model")


@pytest.fixture
def base(saved, tmp_path) -> Path:
    """A base path with version 1 of the translator, which does nothing else."""
    add_version(saved / "plain", tmp_path / "upper", 1)
    return tmp_path / "upper"


def add_version(source: Path, base: Path, number: int) -> Path:
    """Copy aside, then rename, as an export does."""
    base.mkdir(parents=True, exist_ok=True)
    aside = base / f"writing-{number}"
    shutil.copytree(source, aside)
    return aside.rename(base / str(number))


def free_port():
    """A TCP port that is free at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def in_flight(rest_port: int) -> int:
    """How many requests a server has now, by its metrics."""
    with urllib.request.urlopen(f"http://127.0.0.1:{rest_port}{METRICS}", timeout=60) as page:
        text = page.read().decode()
    return int(re.search(r"^:tensorflow:serving:requests_in_flight (\d+)\.0$", text, re.M)[1])


class Client:
    """The official stubs of a server."""

    def __init__(self, target, credentials=None):
        # Without a pool of its own, it would share a connection with others of the same target.
        options = [("grpc.max_receive_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]
        self.channel = (
            grpc.secure_channel(target, credentials, options)
            if credentials
            else grpc.insecure_channel(target, options)
        )
        self.prediction = prediction_service_pb2_grpc.PredictionServiceStub(self.channel)
        self.model = model_service_pb2_grpc.ModelServiceStub(self.channel)


@contextlib.contextmanager
def serving(*flags, base=None, rest=False, no_start=False):
    """An in-process server with these flags, on ports of its own, for requests of many rows.

    It serves the model of a base path, by its name; `rest` is whether over REST, too.
    """
    usual = ["--port=0", "--max_request_rows=1000000"]
    if base:
        usual += [f"--model_name={base.name}", f"--model_base_path={base}"]
    if rest:
        usual.append(f"--rest_api_port={free_port()}")
    server = ModelServer(build_parser().parse_args([*usual, *map(str, flags)]))
    try:
        if not no_start:
            server.start()
        yield server
    finally:
        server.close()


@pytest.fixture(scope="session")
def shared_server(saved, tmp_path_factory):
    """A server of the translator (versions 1), which tests leave as it is."""
    root = tmp_path_factory.mktemp("shared")
    add_version(saved / "upper", root / "upper", 1)
    with serving(base=root / "upper") as server:
        yield server


@pytest.fixture
def stubs():
    """Makes official stubs of an address; closes them."""
    with contextlib.ExitStack() as stack:

        def make(target, credentials=None):
            client = Client(target, credentials)
            stack.callback(client.channel.close)
            return client

        yield make


def models_config(path, bases, policy="latest {}"):
    """Write the configuration file of models, whose base paths are by name; return it."""
    entries = [
        f'config {{ name: "{name}" base_path: "{base}" model_platform: "tensorflow" '
        f"model_version_policy {{ {policy} }} }}"
        for name, base in bases.items()
    ]
    path.write_text(f"model_config_list {{ {' '.join(entries)} }}")
    return path


def two_models(saved, root):
    """The configuration file of the models half (version 3) and upper (version 1)."""
    for name, version in (("half", 3), ("upper", 1)):
        add_version(saved / name, root / name, version)
    return models_config(root / "models.config", {n: root / n for n in ("half", "upper")})


@pytest.fixture(scope="session")
def protocol_server(saved, tmp_path_factory):
    """A server of half (version 3) and upper (version 1), over gRPC and REST, with metrics."""
    root = tmp_path_factory.mktemp("protocol")
    with serving(f"--model_config_file={two_models(saved, root)}", rest=True) as server:
        yield server


@pytest.fixture(scope="session")
def kinds_server(tmp_path_factory):
    """A server of other kinds: bright reads images, mean histories, unsure is a translator."""
    root, saves = tmp_path_factory.mktemp("kinds"), (save_reader, save_predictor, save_unsure)
    bases = {name: root / name for name in ("bright", "mean", "unsure")}
    for save, base in zip(saves, bases.values(), strict=True):
        add_version(save(root / f"saved-{base.name}"), base, 1)
    with serving(f"--model_config_file={models_config(root / 'models.config', bases)}") as server:
        yield server


@pytest.fixture
def client(protocol_server, stubs):
    """The stubs of `protocol_server`."""
    return stubs(f"localhost:{protocol_server.port}")


@pytest.fixture
def loop():
    """An event loop in a thread."""
    made = asyncio.new_event_loop()
    thread = threading.Thread(target=made.run_forever)
    thread.start()
    yield made

    async def end():
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run_coroutine_threadsafe(end(), made).result(60)
    made.call_soon_threadsafe(made.stop)
    thread.join()
    made.close()


@pytest.fixture
def submit(loop):
    """Returns the future response of workers to a call."""
    return lambda workers, call: asyncio.run_coroutine_threadsafe(workers.run(call), loop)


def call_of(task, cost=1, client=None, seconds=60, batching=False):
    """A call whose task has been read, which may join a batch."""
    call = Call(seconds, client=client)
    call.cost, call.read = cost, lambda: task
    if batching:
        call.batch, call.rows = (task.kind(), call.is_expensive), task.rows()
    return call


def tensor(values, dtype=None):
    return tf.make_tensor_proto(values, dtype)


def error_of(call, *arguments, **options):
    """(status, details) of a call that must fail."""
    with pytest.raises(grpc.RpcError) as caught:
        call(*arguments, **options)
    return caught.value.code(), caught.value.details()


def arrays(response):
    return {name: tf.make_ndarray(proto) for name, proto in response.outputs.items()}


@pytest.fixture(scope="session")
def certificates(tmp_path_factory):
    """A directory with an authority, a server's and a client's certificate, and a stranger's."""
    root = tmp_path_factory.mktemp("certificates")

    def openssl(*arguments):
        subprocess.run(["openssl", *arguments], cwd=root, check=True, capture_output=True)

    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    for authority in ("ca", "stranger"):
        openssl(
            *("req", "-x509", *key, "-days", "2", "-subj", f"/CN={authority}"),
            *("-keyout", f"{authority}.key", "-out", f"{authority}.pem"),
        )
    for name, authority in (("server", "ca"), ("client", "ca"), ("stranger-server", "stranger")):
        openssl(
            *("req", "-x509", *key, "-days", "2", "-subj", f"/CN={name}"),
            *("-addext", "subjectAltName=DNS:localhost,DNS:translator.example"),
            *("-addext", "basicConstraints=critical,CA:FALSE"),
            *("-CA", f"{authority}.pem", "-CAkey", f"{authority}.key"),
            *("-keyout", f"{name}.key", "-out", f"{name}.pem"),
        )
    return root


def ssl_config(path, certificates, verify=False):
    def text(name):
        return json.dumps((certificates / name).read_text())

    path.write_text(
        f"server_key: {text('server.key')} server_cert: {text('server.pem')} "
        f"custom_ca: {text('ca.pem')} client_verify: {str(verify).lower()}"
    )
    return path


TEXT_RUN = Path(__file__).parents[1] / "fixtures" / "old_run" / "run"
TEXT_SETTINGS = {"beam_width": 3, "num_results": 2, "max_source_length": 9, "length_penalty": 0.7}


@pytest.fixture(scope="session")
def onnx_translator(tmp_path_factory):
    """A version of a translator in ONNX."""

    def make(folder):
        export([load_run(TEXT_RUN)], folder / "old", form="onnx", **TEXT_SETTINGS)

    return made_once(tmp_path_factory, "translator-onnx", make) / "old" / "1"


def respelled(version, folder, **tokens):
    """Copy a translator, with tokens of other kinds: the source's, and the target's if given."""
    shutil.copytree(version, folder)
    manifest = json.loads((folder / "manifest.json").read_text())
    for side, (kind, strings) in zip(("source", "target"), tokens.items(), strict=False):
        entry = manifest["tokenizers"][side]
        entry.update(kind=kind, file=f"{side}.json")
        state = {"kind": kind, "tokens": [*strings[: entry["size"] - 4]]}
        (folder / f"{side}.json").write_text(json.dumps(state))
    del manifest["files"]  # which they are no more
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


def pronouncer(version, folder, last="", first="", **settings):
    """Make a pronouncer of nonsense of a translator: letters, and the phones p0 and so on."""
    letters = f"{first}abcdefghijklmnopqrstuvwxyz{last}"
    letters += "".join(map(chr, range(0x400, 0x500)))
    respelled(version, folder, letters=letters, symbols=[f"p{n}" for n in range(1000)])
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["settings"] |= settings
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


@pytest.fixture(scope="session")
def onnx_reader(image_run, tmp_path_factory):  # noqa: F811
    """A version of a reader of digits in ONNX."""

    def make(folder):
        export([image_run], folder / "digits", form="onnx", beam_width=3)

    return made_once(tmp_path_factory, "digits-onnx", make) / "digits" / "1"


@pytest.fixture(scope="session")
def onnx_predictor(event_run, tmp_path_factory):  # noqa: F811
    """A version of a model of histories in ONNX."""

    def make(folder):
        export([event_run], folder / "visits", form="onnx")

    return made_once(tmp_path_factory, "visits-onnx", make) / "visits" / "1"
