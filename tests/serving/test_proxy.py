"""Clients of this machine need no proxy, and errors of other targets name it."""

import asyncio
import subprocess
import sys

import pytest

from serving.client import AsyncTranslator, ServerUnavailableError, Translator
from serving.client._proxy import is_local, proxy_hint
from tests.serving.conftest import free_port

VARIABLES = ["grpc_proxy", "https_proxy", "http_proxy", "no_grpc_proxy", "no_proxy"]


@pytest.fixture(autouse=True)
def without_proxies(monkeypatch):
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("name", VARIABLES[:3])
def test_a_proxy_does_not_stand_between_this_machine_and_itself(name, shared_server, monkeypatch):
    monkeypatch.setenv(name, f"http://127.0.0.1:{free_port()}")

    async def ask(target):
        async with AsyncTranslator(target, "upper", retries=0) as other:
            return await other.translate(["one"])

    for host in ("localhost", "127.0.0.1", "dns:///localhost", "0.0.0.0", "LOCALHOST"):
        target = f"{host}:{shared_server.port}"
        with Translator(target, "upper", retries=0) as translator:
            assert translator.translate(["one"])[0].text == "ONE"
        assert asyncio.run(ask(target))[0].text == "ONE"


def test_an_error_names_the_proxy(monkeypatch):
    monkeypatch.setenv("http_proxy", f"http://me:secret@127.0.0.1:{free_port()}")
    translator = Translator("192.0.2.1:8500", "upper", retries=0, timeout=20)
    with translator, pytest.raises(ServerUnavailableError, match="no_proxy=192") as caught:
        translator.translate(["one"])
    assert "http_proxy leads through the proxy http://127.0.0.1:" in str(caught.value)
    assert "secret" not in str(caught.value)


def test_the_hint_follows_the_rules_of_grpc(monkeypatch):
    assert proxy_hint("a.example:1") == ""
    monkeypatch.setenv("http_proxy", "http://proxy:3128")
    assert "http_proxy leads" in proxy_hint("a.example:1")
    monkeypatch.setenv("https_proxy", "http://other:3128")
    assert "https_proxy leads through the proxy http://other:3128" in proxy_hint("ipv4:10.0.0.1:1")
    assert proxy_hint("[::1]:8500") == proxy_hint("unix:/tmp/x") == ""
    monkeypatch.setenv("no_proxy", "localhost, .example")
    assert proxy_hint("a.example:1") == ""
    assert "no_proxy=example.org" in proxy_hint("dns:///example.org:1")
    monkeypatch.setenv("no_proxy", "10.0.0.0/8,EXAMPLE.org,192.0.2.7")
    hints = [proxy_hint(f"{host}:1") for host in ("10.1.2.3", "a.Example.org", "192.0.2.7")]
    assert hints == ["", "", ""]
    assert proxy_hint("11.0.0.1:1")


@pytest.mark.parametrize(
    ("target", "wanted"),
    [
        *((x, True) for x in ("localhost:1", "127.3.2.1:1", "[::1]:1", "ipv6:[::1]:1", "unix:x")),
        *((x, True) for x in ("0.0.0.0:1", "[::]:1", "LocalHost:1", "localhost.:1", "dns:[::1]:1")),
        *((x, True) for x in ("[::ffff:127.0.0.1]:1", "ip6-localhost:1", "a.localhost:1")),
        *((x, False) for x in ("10.0.0.1:1", "localhost.org:1", "[fe80::1]:1", "dns:///a:1")),
    ],
)
def test_targets_of_this_machine_are_known(target, wanted):
    assert is_local(target) == wanted


def test_the_command_is_answered_beside_a_proxy(shared_server):
    words = ["-m", "serving.client", "translate", "--model", "upper", "--retries", "0"]
    done = subprocess.run(
        [sys.executable, *words, "--target", f"localhost:{shared_server.port}", "one"],
        env={"http_proxy": "http://127.0.0.1:1", "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("ONE\n", "")
