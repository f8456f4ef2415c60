"""The HTTP proxy through which gRPC connects, by the variables of the environment."""

from __future__ import annotations

import ipaddress
import os
import re
from urllib.parse import urlsplit

# In gRPC's order: the first that is set counts.
_PROXIES = "grpc_proxy", "https_proxy", "http_proxy"
_EXCEPTIONS = "no_grpc_proxy", "no_proxy"
_LOCAL = "localhost", "localhost.localdomain", "ip6-localhost", "ip6-loopback"
_SCHEME = re.compile(r"^(?:dns|ipv4|ipv6):/*(?:[^/]*/)?")


def is_local(target: str) -> bool:
    """Return whether a target is this machine: no proxy leads there."""
    if target.startswith(("unix:", "unix-abstract:")):
        return True
    host = _host(target).rstrip(".").lower()
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host in _LOCAL or host.endswith(".localhost")
    address = getattr(address, "ipv4_mapped", None) or address
    return address.is_loopback or address.is_unspecified


def proxy_hint(target: str) -> str:
    """Return what to say of the proxy through which gRPC connects to a target; "" without one."""
    name = next((name for name in _PROXIES if os.environ.get(name)), None)
    host = _host(target)
    lists = [os.environ[name] for name in _EXCEPTIONS if os.environ.get(name)][:1]
    exceptions = [part.strip().lstrip("*") for each in lists for part in each.split(",")]
    if name is None or is_local(target) or any(_has(each, host) for each in exceptions):
        return ""
    url = urlsplit(os.environ[name])
    shown = f"{url.scheme}://{url.netloc.rpartition('@')[2]}"  # without a password
    return f"; {name} leads through the proxy {shown}: for a direct connection set no_proxy={host}"


def _has(exception: str, host: str) -> bool:
    """Return whether a host ends in an exception, or lies in one that is a block of addresses."""
    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(exception, strict=False)
    except ValueError:
        return bool(exception) and host.lower().endswith(exception.lower())


def _host(target: str) -> str:
    """Return the host of a target, without scheme, brackets and port."""
    address = _SCHEME.sub("", target)
    if address.startswith("["):
        return address[1:].partition("]")[0]
    return address if address.count(":") > 1 else address.partition(":")[0]
