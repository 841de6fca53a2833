"""mooring-cri-shim as a process: how it starts, reports readiness, survives a kill and ends."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from cri_api.v1 import api_pb2 as cri
from cri_api.v1 import api_pb2_grpc as cri_grpc
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from cri_shim.notify import watchdog_interval_s
from devcluster.processes import free_ports
from mooring.annotations.assignment_signature import key_id
from mooring.records.sandbox_marks import claim
from tests.support.polling import wait_until

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(host: Path) -> Iterator[Start]:
    """Start the program with everything below ``host``; what still runs afterwards is killed."""
    running: list[subprocess.Popen[str]] = []

    def run(*arguments: str, **environment: str) -> "subprocess.Popen[str]":
        folders = {name: str(host / name) for name in ("sys", "dev", "state", "run")}
        flags = ["--sysfs", folders["sys"], "--dev", folders["dev"], "--state", folders["state"], "--run"]
        sockets = ["--listen", f"unix://{host}/cri.sock", "--runtime", f"unix://{host}/runtime.sock"]
        command = [sys.executable, "-m", "cri_shim", *sockets, *flags, folders["run"], "--node-name", "n1", *arguments]
        process = subprocess.Popen(
            command,
            env={"PATH": os.environ["PATH"], **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        running.append(process)
        return process

    yield run
    for process in running:
        if process.poll() is None:
            process.kill()
        process.communicate()


def served(host: Path) -> bool:
    """Return whether a server answers on the socket: without a runtime behind it the answer is UNAVAILABLE."""
    with grpc.insecure_channel(f"unix://{host}/cri.sock") as channel:
        stub: Any = cri_grpc.RuntimeServiceStub(channel)
        try:
            stub.Version(cri.VersionRequest(), timeout=60)
        except grpc.RpcError as error:
            return "runtime.sock" in error.details()
        return True


def test_it_tells_systemd_when_it_is_ready_and_ends_cleanly(start: Start, host: Path) -> None:
    """READY=1 only once the socket serves, signs of life after it, STOPPING=1 at SIGTERM, status 0."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(host / "notify"))
        systemd.settimeout(90)
        shim = start(NOTIFY_SOCKET=str(host / "notify"), WATCHDOG_USEC="200000")
        assert systemd.recv(64) == b"READY=1"
        assert served(host)
        assert systemd.recv(64) == systemd.recv(64) == b"WATCHDOG=1"
        assert (host / "run/version/mooring-cri-shim").read_text()
        shim.send_signal(signal.SIGTERM)
        last = b"WATCHDOG=1"
        while last == b"WATCHDOG=1":
            last = systemd.recv(64)
        assert last == b"STOPPING=1"
    _, log = shim.communicate(timeout=90)
    assert shim.returncode == 0
    first = json.loads(log.splitlines()[0])
    assert (first["event"], first["program"], first["level"]) == ("serving", "mooring-cri-shim", "info")
    assert not (host / "cri.sock").exists()


def test_after_a_kill_it_starts_over_the_socket_that_was_left(start: Start, host: Path) -> None:
    """The lock died with its holder; the stale socket is not an obstacle, a living one is."""
    killed = start()
    wait_until(lambda: served(host))
    killed.kill()
    killed.wait()
    assert (host / "cri.sock").exists()
    again = start()
    wait_until(lambda: served(host))
    second = start()
    _, log = second.communicate(timeout=90)
    assert second.returncode == 1
    assert "served by another process" in json.loads(log.splitlines()[-1])["reason"]
    assert again.poll() is None
    assert served(host)


def test_a_process_takes_over_in_the_background(start: Start, host: Path) -> None:
    """The command ends with 0 once the new process is in charge, a child of process 1; it serves the metrics, too."""
    (port,) = free_ports(1)
    flags = ("--metrics-addr", f"127.0.0.1:{port}")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd, hanging_runtime(host / "runtime.sock"):
        systemd.bind(str(host / "notify"))
        systemd.settimeout(90)
        old = start(*flags, NOTIFY_SOCKET=str(host / "notify"), WATCHDOG_USEC="600000000")
        assert systemd.recv(64) == b"READY=1"
        with open_call(host) as call:
            taking = start(*flags, "--take-over")
            assert taking.wait(90) == 0
            new = main_pid(systemd)
            try:
                assert Path(f"/proc/{new}/stat").read_text().rpartition(")")[2].split()[1] == "1"
                assert {systemd.recv(64) for _ in range(2)} == {b"READY=1", b"WATCHDOG=1"}
                wait_until(lambda: listeners(port) == 1)
                assert (served(host), old.poll(), call.done()) == (True, None, False)
                old.send_signal(signal.SIGTERM)
                assert old.wait(90) == 0
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
                    assert b'mooring_cri_calls_total{code="OK",method="Version"}' in answer.read()
                with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
                    client.connect(str(host / "cri.sock"))
            finally:
                os.kill(new, signal.SIGTERM)
        wait_until(lambda: not (host / "cri.sock").exists())


def test_a_process_that_cannot_take_over_says_why(start: Start, host: Path) -> None:
    """Status 1: there is none to take over from; its configuration is wrong; its runtime does not answer."""
    taking = start("--take-over")
    assert "no server that can hand it over: restart" in taking.communicate(timeout=90)[1]
    start()
    wait_until(lambda: served(host))
    for flags, why, status in (
        (("--metrics-addr", "x"), "is not host:port", 1),
        (("--stop-without-devices=perhaps",), "is not true or false", 2),
        ((), "does not answer through this process", 1),
    ):
        taking = start("--take-over", *flags)
        assert why in taking.communicate(timeout=90)[1]
        assert taking.returncode == status
    assert served(host)


def listeners(port: int) -> int:
    """Return how many sockets listen on a port, from /proc/net/tcp."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(row[1].endswith(f":{port:04X}") and row[3] == "0A" for row in rows)


def main_pid(systemd: socket.socket) -> int:
    """Return the pid that systemd is told, which takes signs of life before and after it."""
    while not (said := systemd.recv(64)).startswith(b"MAINPID="):
        assert said == b"WATCHDOG=1"
    return int(said.partition(b"=")[2])


@contextmanager
def open_call(host: Path) -> Iterator[Any]:
    """A call that does not end while the block runs."""
    with grpc.insecure_channel(f"unix://{host}/cri.sock") as channel:
        call = channel.unary_unary("/runtime.v1.RuntimeService/RunPodSandbox").future(b"")
        yield call
        call.cancel()


@pytest.mark.parametrize(("flag", "value"), [("--listen", "tcp://1.2.3.4"), ("--listen", "unix://relative")])
def test_an_address_that_is_not_a_socket_is_refused(start: Start, flag: str, value: str) -> None:
    """Status 1 and one line that names it, no traceback."""
    shim = start(flag, value)
    _, log = shim.communicate(timeout=90)
    assert shim.returncode == 1
    assert "is not a unix socket" in json.loads(log)["reason"]


def test_a_metrics_address_that_is_none_is_wrong_usage(start: Start) -> None:
    """Status 2 and one line that names it, no traceback."""
    shim = start("--metrics-addr", "localhost")
    _, log = shim.communicate(timeout=90)
    assert shim.returncode == 2
    assert log == "mooring-cri-shim: address 'localhost' is not host:port\n"


def test_metrics_are_served_on_every_address_where_no_host_is_named(start: Start, host: Path) -> None:
    """As by the other programs, which may read the same configuration file."""
    (port,) = free_ports(1)
    start("--metrics-addr", f":{port}")
    wait_until(lambda: served(host))
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        assert b"mooring_cri_calls_total" in answer.read()


@pytest.mark.parametrize(("ends", "left"), [(signal.SIGTERM, "none"), (signal.SIGKILL, "ended")])
def test_the_mark_of_a_call_ends_with_its_shim(
    start: Start, host: Path, make: Any, ends: signal.Signals, left: str
) -> None:
    """However it ends while the runtime works on; the runtime's ADD may come at any time after that."""
    with hanging_runtime(host / "runtime.sock") as entered:
        shim = start()
        wait_until(lambda: served(host))
        with grpc.insecure_channel(f"unix://{host}/cri.sock") as channel:
            run = channel.unary_unary("/runtime.v1.RuntimeService/RunPodSandbox")
            call = run.future(make.run(make.annotations))
            assert entered.wait(90)
            assert claim(host / "run", make.uid, "box1") == "granted"
            shim.send_signal(ends)
            shim.communicate(timeout=90)
            assert claim(host / "run", make.uid, "box1") == left
            assert isinstance(call.exception(), grpc.RpcError)
            start()
            wait_until(lambda: served(host))
            assert claim(host / "run", make.uid, "box1") == "none"


@contextmanager
def hanging_runtime(path: Path) -> Iterator[threading.Event]:
    """A runtime whose RunPodSandbox never ends while the block runs; the event says that one was entered."""
    entered, over = threading.Event(), threading.Event()

    class Servicer(cri_grpc.RuntimeServiceServicer):  # type: ignore[misc]
        def RunPodSandbox(self, _request: Any, _context: Any) -> Any:  # noqa: N802 - CRI's name
            entered.set()
            over.wait(200)
            return cri.RunPodSandboxResponse()

        def Version(self, _request: Any, _context: Any) -> Any:  # noqa: N802 - CRI's name
            return cri.VersionResponse()

    with ThreadPoolExecutor(4) as pool:
        server = grpc.server(pool)
        cri_grpc.add_RuntimeServiceServicer_to_server(Servicer(), server)
        server.add_insecure_port(f"unix://{path}")
        server.start()
        try:
            yield entered
        finally:
            over.set()
            server.stop(None).wait()


def test_check_says_what_is_ready_and_what_is_not(start: Start, host: Path) -> None:
    """Every point on a line of its own; status 1 while one of them is not."""
    check = start("--check")
    out, _ = check.communicate(timeout=90)
    points = {line[4:].split()[0]: line.startswith("ok") for line in out.splitlines()}
    assert check.returncode == 1
    assert points == {"runtime": False, "listen": True, "state": True, "devices": True, "rdma_cm": True, "keys": True}


def test_with_a_public_key_an_unsigned_assignment_is_refused_by_name(
    start: Start, host: Path, make: Any, tmp_path: Path
) -> None:
    """Before the runtime hears of the sandbox; `--check` names the key. Other pods pass."""
    public = Ed25519PrivateKey.generate().public_key()
    file = tmp_path / "keys.pem"
    file.write_bytes(public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    start("--assignment-keys", str(file))
    wait_until(lambda: served(host))
    said, asking_nothing = [], dict[str, str]()
    with grpc.insecure_channel(f"unix://{host}/cri.sock") as channel:
        run = channel.unary_unary("/runtime.v1.RuntimeService/RunPodSandbox")
        for annotations in (make.annotations, asking_nothing):
            with pytest.raises(grpc.RpcError) as refused:
                run(make.run(annotations), timeout=60)
            error: Any = refused.value
            said.append((error.code(), "accepts only signed assignments" in error.details()))
    assert said == [(grpc.StatusCode.FAILED_PRECONDITION, True), (grpc.StatusCode.UNAVAILABLE, False)]
    assert not list((host / "state").rglob("*.json"))
    out, _ = start("--check", "--assignment-keys", str(file)).communicate(timeout=90)
    assert f"this node accepts only assignments signed by {key_id(public.public_bytes_raw())}" in out


def test_the_watchdog_is_fed_twice_per_timeout() -> None:
    """The interval is as sd_watchdog_enabled(3) advises; without a time-out from systemd there is none."""
    assert watchdog_interval_s("30000000") == 15.0
    assert [watchdog_interval_s(text) for text in (None, "", "0", "x")] == [None] * 4
