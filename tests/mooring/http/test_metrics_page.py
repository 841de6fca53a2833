"""The page of metrics of programs without aiohttp, as its clients meet it."""

import contextlib
import socket
import urllib.error
import urllib.request

import pytest

from devcluster.processes import free_ports
from mooring.http.metrics_page import serve_metrics
from mooring.program.config import ConfigError


@pytest.fixture
def port() -> int:
    """A served page, until the process ends."""
    (port,) = free_ports(1)
    serve_metrics(f"127.0.0.1:{port}", lambda: b"mooring_x 1\n")
    return port


def test_a_get_is_answered_with_the_metrics(port: int) -> None:
    """In Prometheus' text format; the connection ends with the answer."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        assert answer.read() == b"mooring_x 1\n"
        assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"


def test_another_method_is_refused(port: int) -> None:
    """A metric page takes nothing."""
    with pytest.raises(urllib.error.HTTPError, match="405"):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", data=b"x", timeout=60)


def test_half_open_requests_keep_nobody_from_the_page(port: int) -> None:
    """More than there may be: each newcomer is let in, and the one that is open longest goes."""
    with contextlib.ExitStack() as clients:
        held = []
        for _ in range(100):
            held.append(clients.enter_context(socket.create_connection(("127.0.0.1", port), timeout=60)))
            # While it is the newest: the page may close it as soon as others come.
            held[-1].sendall(b"GET /metrics HTTP/1.1\r\n")
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
            assert answer.status == 200
        with pytest.raises(ConnectionResetError):
            held[0].recv(1)


def test_headers_without_an_end_are_cut_off(port: int) -> None:
    """After 8 KiB."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as client, pytest.raises(ConnectionError):
        client.sendall(b"GET /metrics HTTP/1.1\r\n" * 1_000_000)


def test_an_address_that_is_taken_or_none_is_an_error(port: int) -> None:
    """The program that asks for it says so and ends."""
    with pytest.raises(OSError, match="in use"):
        serve_metrics(f"127.0.0.1:{port}", bytes)
    with pytest.raises(ConfigError):
        serve_metrics("localhost", bytes)
