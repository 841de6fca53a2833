"""Find the proxy for a server: from the kubeconfig or, without one there, from the environment.

Sources: tools/clientcmd/client_config.go and transport/cache.go of k8s.io/client-go 1.36 (proxy-url comes first, and
NO_PROXY does not count for it), and golang.org/x/net/http/httpproxy, which reads the environment.
"""

import base64
import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass

from yarl import URL

from mooring.kube.kubeconfig.errors import KubeconfigError


@dataclass(frozen=True, slots=True)
class Proxy:
    """An HTTP proxy for CONNECT; ``authorization`` is the value of Proxy-Authorization, empty without one."""

    url: URL
    authorization: str = ""

    @property
    def host(self) -> str:
        return self.url.host or ""

    @property
    def port(self) -> int:
        return self.url.port or 80


def find_proxy(server: str, proxy_url: str | None, environment: Mapping[str, str]) -> Proxy | None:
    """Return the proxy for a server, None if it needs none; raise KubeconfigError for an unsupported proxy."""
    target = URL(server)
    if proxy_url:
        return _proxy(target, proxy_url, "proxy-url")
    name = f"{target.scheme}_proxy"
    text = _variable(environment, name)
    if not text or _is_direct(target, _variable(environment, "no_proxy")):
        return None
    return _proxy(target, text if "://" in text else f"http://{text}", name.upper())


def _variable(environment: Mapping[str, str], name: str) -> str:
    return environment.get(name.upper()) or environment.get(name) or ""


def _proxy(target: URL, text: str, source: str) -> Proxy:
    try:
        url = URL(text)
        port = url.port
    except ValueError as wrong:
        raise KubeconfigError(f"{source} {text!r} is not a URL: {wrong}") from wrong
    if url.scheme != "http" or not url.host or port is None:
        raise KubeconfigError(
            f"{source} {_redact(url)!r}: the URL of a proxy must begin with http://, not {url.scheme or '?'}://"
        )
    if target.scheme != "https":
        raise KubeconfigError(
            f"{source} {_redact(url)!r}: the URL of a server behind a proxy must begin with https://, not {target.scheme}://"
        )
    user, password = url.user, url.password
    pair = f"{user or ''}:{password or ''}".encode()
    authorization = f"Basic {base64.b64encode(pair).decode()}" if user or password else ""
    return Proxy(url.with_user(None), authorization)


def _redact(url: URL) -> str:
    """Return a URL without its password."""
    return str(url.with_user(None)) if url.host else str(url)


def _is_direct(target: URL, no_proxy: str) -> bool:
    """Return whether NO_PROXY excludes a server; localhost and loopback addresses are always excluded."""
    host, port = (target.host or "").lower(), str(target.port or "")
    address = _address(host)
    if host == "localhost" or (address is not None and address.is_loopback):
        return True
    return any(_excepts(entry.strip().lower(), host, port, address) for entry in no_proxy.split(","))


def _excepts(entry: str, host: str, port: str, address: ipaddress.IPv4Address | ipaddress.IPv6Address | None) -> bool:
    """Return whether an entry of NO_PROXY matches: *, a network, or a host or domain with an optional port."""
    if entry == "*":
        return True
    if "/" in entry:
        try:
            return address is not None and address in ipaddress.ip_network(entry, strict=False)
        except ValueError:
            return False
    name, of_port = _split(entry)
    if not name or (of_port and of_port != port):
        return False
    if (entry_address := _address(name)) is not None or address is not None:
        return entry_address == address
    name = name.removeprefix("*")
    return host.endswith(name if name.startswith(".") else f".{name}") or host == name


def _split(entry: str) -> tuple[str, str]:
    """Return host and port of an entry; IPv6 addresses with a port are in brackets."""
    if entry.startswith("["):
        host, _, port = entry[1:].partition("]")
        return host, port.removeprefix(":")
    if entry.count(":") == 1:
        host, _, port = entry.partition(":")
        return host, port
    return entry, ""


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None
