"""One server takes a socket over from another: no call fails, one is in charge, and the old one ends after its last."""

import asyncio
import json
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from cri_api.v1 import api_pb2 as cri

from bench.host.cri_outage import start_runtime
from cri_shim import server as server_module
from cri_shim.devices.device_check import DeviceCheck
from cri_shim.devices.device_nodes import Roots
from cri_shim.handover import give as give_module
from cri_shim.handover.messages import MOST_BYTES, dump, meeting_place, read
from cri_shim.handover.take import Predecessor
from cri_shim.interceptors import Interceptors
from cri_shim.listen import ListenError, lock
from cri_shim.metrics import Metrics
from cri_shim.plan.inject import Rules
from cri_shim.records import Records
from cri_shim.server import Succession, Systemd, serve
from mooring.records.sandbox_marks import are_needed
from tests.support.polling import until

VERSION = "/runtime.v1.RuntimeService/Version"
EVENTS = "/runtime.v1.RuntimeService/GetContainerEvents"
EXEC_SYNC = "/runtime.v1.RuntimeService/ExecSync"
SERVICE = "the process that serves"


class Shims:
    """Servers of one socket, each with a task; ``told`` is what systemd was told."""

    def __init__(self, host: Path) -> None:
        self.host, self.path = host, host / "cri.sock"
        self.stops: list[asyncio.Event] = []
        self.tasks: list[asyncio.Task[None]] = []
        self.metrics: list[Metrics] = []
        self.in_charge: list[int] = []
        self._systemd = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._systemd.bind(str(host / "notify"))
        self._systemd.setblocking(False)

    def told(self) -> list[str]:
        """Return what systemd was told since the last time, but for signs of life."""
        said = []
        while True:
            try:
                said.append(self._systemd.recv(100).decode())
            except BlockingIOError:
                return [each for each in said if each != "WATCHDOG=1"]

    async def start(self, *, takes_over: bool = False, runtime: str = "runtime.sock") -> "asyncio.Task[None]":
        """Start a server, and return its task when it is in charge or has failed."""
        number, stop, roots = len(self.tasks), asyncio.Event(), Roots(self.host / "sys", self.host / "dev")
        predecessor = await asyncio.to_thread(Predecessor, self.path) if takes_over else None
        systemd = Systemd(str(self.host / "notify"), 30.0) if predecessor is None else predecessor.systemd
        records = Records(self.host / "state", self.host / "run")
        check = DeviceCheck(records, roots, self.host / "run", Metrics(), stops=False)
        sockets = f"unix://{self.path}", f"unix://{self.host}/{runtime}"
        succession = Succession(predecessor, lambda: self.in_charge.append(number))
        self.stops.append(stop)
        self.metrics.append(Metrics())
        self.tasks.append(
            asyncio.create_task(
                serve(
                    *sockets,
                    Interceptors(Rules("n1"), records, roots),
                    check,
                    self.metrics[number].observe,
                    stop,
                    systemd,
                    succession=succession,
                )
            )
        )
        await until(lambda: number in self.in_charge or self.tasks[number].done())
        return self.tasks[number]

    def versions(self, number: int) -> float:
        """Return how many calls of Version a server has answered, that of the one that took over itself included."""
        registry, labels = self.metrics[number].registry, {"method": "Version", "code": "OK"}
        return registry.get_sample_value("mooring_cri_calls_total", labels) or 0.0

    async def end(self) -> None:
        for stop in self.stops:
            stop.set()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        self._systemd.close()


@pytest.fixture(autouse=True)
def _short_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let connections and the old server end within a second."""
    monkeypatch.setattr(server_module, "_CONNECTION_AGE_S", 0.3)
    monkeypatch.setattr(server_module, "_CONNECTIONS_GONE_S", 0.6)
    monkeypatch.setattr(server_module, "_GRACE_S", 0.2)


@pytest.fixture
async def shims(host: Path) -> AsyncIterator[Shims]:
    runtime = await start_runtime(f"{host}/runtime.sock")
    shims = Shims(host)
    yield shims
    await shims.end()
    await runtime.stop(None)


@pytest.fixture
async def channel(shims: Shims) -> AsyncIterator[Any]:
    async with grpc.aio.insecure_channel(f"unix://{shims.path}") as channel:
        yield channel


async def test_no_call_fails_while_one_takes_over_from_another(shims: Shims, channel: Any) -> None:
    """Calls in turn and one that lasts, on one channel, until the old server has ended; the new one has the socket."""
    old = await shims.start()
    lasting = channel.unary_unary(EXEC_SYNC)(cri.ExecSyncRequest(cmd=["sleep", "1.5"]).SerializeToString())
    await channel.unary_unary(VERSION)(b"")
    first = shims.path.stat().st_ino
    taking = asyncio.create_task(shims.start(takes_over=True))
    while not old.done():
        assert await channel.unary_unary(VERSION)(b"", timeout=60)
    assert cri.ExecSyncResponse.FromString(await lasting).stdout == b"done"
    assert not (await taking).done()
    assert shims.path.stat().st_ino != first
    assert sorted(path.name for path in shims.host.glob("cri.sock*")) == [
        "cri.sock",
        "cri.sock.handover",
        "cri.sock.lock",
    ]


async def test_the_old_one_stays_for_its_event_stream_and_no_longer(shims: Shims, channel: Any) -> None:
    """A kubelet allows five ends of that stream in its life; calls go to the new server meanwhile."""
    old = await shims.start()
    stream = channel.unary_stream(EVENTS)(b"")
    numbers = [int(cri.ContainerEventResponse.FromString(await stream.read()).container_id)]
    await shims.start(takes_over=True)
    await shims.start(takes_over=True)
    while numbers[-1] < 80:
        numbers.append(int(cri.ContainerEventResponse.FromString(await stream.read()).container_id))
        await channel.unary_unary(VERSION)(b"", timeout=60)
    assert numbers == list(range(81))
    await until(shims.tasks[1].done)
    assert (old.done(), shims.versions(2) > 2) == (False, True)
    stream.cancel()
    await until(old.done)


async def test_systemd_hears_of_the_new_process_by_the_old_one(shims: Shims) -> None:
    """It believes the main process alone: the old one names the new one, and says nothing more, not at its end."""
    old = await shims.start()
    assert shims.told() == ["READY=1"]
    await shims.start(takes_over=True)
    assert shims.told() == [f"MAINPID={os.getpid()}", "READY=1"]
    await until(old.done)
    assert shims.told() == []


async def test_one_that_cannot_serve_changes_nothing(shims: Shims, channel: Any) -> None:
    """Its runtime does not answer: the old server goes on, and another may take over."""
    old = await shims.start()
    with pytest.raises(ListenError, match=r"runtime 'unix://.*/nowhere.sock' does not answer through this process"):
        await (await shims.start(takes_over=True, runtime="nowhere.sock"))
    assert not list(shims.host.glob("cri.sock.[0-9]*"))
    assert await channel.unary_unary(VERSION)(b"", timeout=60)
    assert (old.done(), shims.told()) == (False, ["READY=1"])
    await shims.start(takes_over=True)
    await until(old.done)


async def test_one_that_cannot_write_its_version_serves_all_the_same(shims: Shims, channel: Any) -> None:
    """The old one has let go by then: on a full disk nobody would serve. That calls are marked stands from before."""
    old = await shims.start()
    promise = shims.host / "state/sandbox-marks"
    promise.unlink()
    promise.mkdir()
    new = await shims.start(takes_over=True)
    await until(old.done)
    assert not new.done()
    assert await channel.unary_unary(VERSION)(b"", timeout=60)
    assert are_needed(shims.host / "state", shims.host / "run")


async def test_one_that_leaves_before_it_serves_changes_nothing(shims: Shims) -> None:
    """As a new process that is killed: the lock is still the old one's, and the next one is greeted."""
    old = await shims.start()
    gone = await asyncio.to_thread(Predecessor, shims.path)
    gone.leave()
    gone.lock.close()
    with pytest.raises(ListenError, match="which holds its lock"):
        lock(shims.path)
    await shims.start(takes_over=True)
    await until(old.done)


async def test_a_stranger_gets_the_socket_at_no_time(shims: Shims) -> None:
    """A server that does not take over is refused before, during and after a handover."""
    over = asyncio.Event()

    async def try_to_lock() -> int:
        tries = 0
        while not over.is_set():
            with pytest.raises(ListenError, match="which holds its lock"):
                lock(shims.path)
            tries += 1
            await asyncio.sleep(0)
        return tries

    old = await shims.start()
    trying = asyncio.create_task(try_to_lock())
    await shims.start(takes_over=True)
    await until(old.done)
    over.set()
    assert await trying > 10


async def test_both_end_when_they_are_stopped(shims: Shims, channel: Any) -> None:
    """systemctl stop ends every process of the unit; only the one in charge removes the socket."""
    old = await shims.start()
    stream = channel.unary_stream(EVENTS)(b"")
    await stream.read()
    new = await shims.start(takes_over=True)
    shims.stops[0].set()
    await until(old.done)
    assert shims.path.exists()
    shims.stops[1].set()
    await until(new.done)
    assert not shims.path.exists()


async def test_a_file_of_somebody_else_at_the_path_stays(shims: Shims) -> None:
    """Whoever put it there: the shim removes the socket that it made, and no other."""
    only = await shims.start()
    shims.path.unlink()
    shims.path.write_text("another's")
    shims.stops[0].set()
    await until(only.done)
    assert shims.path.read_text() == "another's"


async def test_without_a_server_there_is_nothing_to_take_over(shims: Shims) -> None:
    """The message says what helps: a server of before that knows no handover is met like none."""
    with pytest.raises(ListenError, match="has no server that can hand it over: restart mooring-cri-shim"):
        await asyncio.to_thread(Predecessor, shims.path)


async def test_another_protocol_is_refused_in_words(shims: Shims) -> None:
    """That of a later release, say."""
    await shims.start()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as taker:
        taker.connect(str(meeting_place(shims.path)))
        taker.send(dump({"handover": 2}))
        answer = json.loads(await asyncio.to_thread(taker.recv, 4096))
    assert answer == {"refused": "the running shim supports handover protocol 1, not 2: restart it"}


@pytest.fixture
def another(shims: Shims) -> Iterator["subprocess.Popen[str]"]:
    """A process that takes over once it is told to."""
    code = (
        "import sys, pathlib; from cri_shim.handover.take import Predecessor; input()\n"
        "try: Predecessor(pathlib.Path(sys.argv[1]))\n"
        "except RuntimeError as refused: print(refused)\n"
    )
    command = [sys.executable, "-c", code, str(shims.path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.kill()


async def test_a_process_outside_of_the_service_is_refused(
    shims: Shims, another: "subprocess.Popen[str]", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """systemd would not stop it with the unit: somebody has called the program by hand."""
    for pid, group in ((os.getpid(), "0::/system.slice/mooring-cri-shim.service"), (another.pid, "0::/user.slice")):
        (tmp_path / f"proc/{pid}").mkdir(parents=True)
        (tmp_path / f"proc/{pid}/cgroup").write_text(group)
    monkeypatch.setattr(give_module, "_PROC", tmp_path / "proc")
    old = await shims.start()
    said, _ = await asyncio.to_thread(another.communicate, "\n")
    assert f"process {another.pid} is in another control group: use systemctl reload" in said
    assert not old.done()


@pytest.mark.parametrize("packet", [b"{", b"1", b"[" * MOST_BYTES])
def test_a_packet_that_is_not_a_message_is_a_value_error(packet: bytes) -> None:
    """Both sides handle that error; another one would end the shim that serves."""
    with pytest.raises(ValueError, match=r"\w"):
        read(packet)
