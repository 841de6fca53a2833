"""Which proxy leads to a server, as Go's net/http and client-go decide."""

import pytest

from mooring.kube.kubeconfig.errors import KubeconfigError
from mooring.kube.kubeconfig.proxy import find_proxy

SERVER = "https://api.example.com:6443"


def host(server: str = SERVER, proxy_url: str | None = None, **environment: str) -> str:
    """Return host and port of the proxy for a server, empty if it needs none."""
    found = find_proxy(server, proxy_url, environment)
    return f"{found.host}:{found.port}" if found else ""


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, ""),
        ({"HTTPS_PROXY": "http://p:3128"}, "p:3128"),
        ({"https_proxy": "http://p:3128"}, "p:3128"),
        ({"HTTPS_PROXY": "http://big", "https_proxy": "http://small"}, "big:80"),
        ({"HTTPS_PROXY": "p:3128"}, "p:3128"),
        ({"HTTP_PROXY": "http://p:3128"}, ""),
        ({"HTTPS_PROXY": ""}, ""),
    ],
)
def test_the_environment_names_the_proxy(environment: dict[str, str], expected: str) -> None:
    """The upper case variable comes first, and HTTP_PROXY is for servers with http."""
    assert host(**environment) == expected


@pytest.mark.parametrize(
    ("no_proxy", "server", "is_direct"),
    [
        ("*", SERVER, True),
        ("example.com", SERVER, True),
        (".example.com", SERVER, True),
        ("*.example.com", SERVER, True),
        ("api.example.com", SERVER, True),
        ("API.Example.com", SERVER, True),
        (".api.example.com", SERVER, False),
        ("ample.com", SERVER, False),
        ("example.com:6443", SERVER, True),
        ("example.com:443", SERVER, False),
        ("other, example.com ,x", SERVER, True),
        ("", SERVER, False),
        (":6443", SERVER, False),
        ("10.0.0.0/8", "https://10.1.2.3:6443", True),
        ("10.0.0.0/8", "https://11.1.2.3:6443", False),
        ("10.1.2.3", "https://10.1.2.3:6443", True),
        ("10.1.2.3:443", "https://10.1.2.3:6443", False),
        ("2.3", "https://10.1.2.3:6443", False),
        ("fd00::/8", "https://[fd00::1]:6443", True),
        ("[fd00::1]:6443", "https://[fd00::1]:6443", True),
        ("fd00::1", "https://[fd00::1]:6443", True),
        ("10.0.0.0/8", SERVER, False),
        ("10.0.0.0/x", "https://10.1.2.3:6443", False),
        ("", "https://localhost:6443", True),
        ("", "https://127.0.0.7:6443", True),
        ("", "https://[::1]:6443", True),
    ],
)
def test_no_proxy_excepts_hosts_domains_and_networks(no_proxy: str, server: str, is_direct: bool) -> None:
    """The cases of golang.org/x/net/http/httpproxy; localhost is always excepted."""
    found = host(server, HTTPS_PROXY="http://p:3128", NO_PROXY=no_proxy)
    assert found == ("" if is_direct else "p:3128")
    assert host(server, HTTPS_PROXY="http://p:3128", no_proxy=no_proxy) == found


def test_proxy_url_comes_before_the_environment_and_no_proxy_does_not_count_for_it() -> None:
    """As in client-go, whose transport then asks the environment no more."""
    assert host(proxy_url="http://mine:1", HTTPS_PROXY="http://p:2", NO_PROXY="*") == "mine:1"
    assert host("https://127.0.0.1:6443", proxy_url="http://mine:1") == "mine:1"


def test_name_and_password_become_a_header() -> None:
    """They are in no message, and percent-encoded in the URL."""
    found = find_proxy(SERVER, "http://me:p%40ss@mine:1", {})
    assert found is not None
    assert found.authorization == "Basic bWU6cEBzcw=="
    assert "ss" not in str(found.url)


@pytest.mark.parametrize(
    ("server", "proxy_url", "rule"),
    [
        (
            SERVER,
            "socks5://p:1080",
            "proxy-url 'socks5://p:1080': the URL of a proxy must begin with http://, not socks5://",
        ),
        (
            SERVER,
            "https://u:secret@p:443",
            "proxy-url 'https://p': the URL of a proxy must begin with http://, not https://",
        ),
        (SERVER, "p:3128", "the URL of a proxy must begin with http://"),
        (SERVER, "http://p:x", "proxy-url 'http://p:x' is not a URL"),
        ("http://h", "http://p:1", "the URL of a server behind a proxy must begin with https://, not http://"),
    ],
)
def test_another_kind_of_proxy_is_refused_by_name(server: str, proxy_url: str, rule: str) -> None:
    """Requests would otherwise go past it, or fail without a reason."""
    with pytest.raises(KubeconfigError) as refused:
        find_proxy(server, proxy_url, {})
    assert rule in str(refused.value)
    assert "secret" not in str(refused.value)
