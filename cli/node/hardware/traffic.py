"""Traffic between VFs in pods of the test: RDMA by ibv_rc_pingpong, and single frames for what isolates them."""

import re
import socket
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cli.node.hardware.commands import CommandError, run
from cli.node.hardware.pods import IFNAME, Pod
from cni.kernel import netns

_PORT = 18515
_MESSAGE_BYTES = 1 << 20
# The rate assumed without a limit: enough data for a steady figure from a simulated NIC up to 100 Gb/s.
_FREE_MBPS = 1000
_START_S, _CALL_S, _FRAME_S = 60.0, 120.0, 1.0
_RESULT = re.compile(r"bytes in [0-9.]+ seconds = ([0-9.]+) Mbit/sec")
# Documentation/ABI: an EtherType for local experiments (IEEE 802).
_EXPERIMENTAL = 0x88B5
_FOREIGN = bytes.fromhex("026d6f0000ff")
_FRAMES = 20


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A pod that traffic goes to or comes from: its RDMA device, address, and the index of that address' GID."""

    pod: Pod
    rdma: str
    address: str
    gid: int


def endpoint(pod: Pod, number: int) -> Endpoint:
    """Give a pod's interface an address, and find its RDMA device by the GID that the kernel makes of it."""
    address = f"10.250.0.{number + 1}"
    run((*pod.inside, "ip", "address", "add", f"{address}/24", "dev", IFNAME))
    deadline = time.monotonic() + _START_S
    while (found := _found(pod, address)) is None:
        if time.monotonic() > deadline:
            raise CommandError(f"no RDMA device in {pod.name} has a GID for RoCE v2 of its address")
        time.sleep(0.05)
    return found


def measured_mbps(server: Endpoint, client: Endpoint, limit_mbps: int | None, seconds: float, port: int = 0) -> float:
    """Return the Mb/s of messages that take turns: one pod at a time sends, so this is the sender's rate."""
    with _Pair(server, client, limit_mbps, seconds, _PORT + port) as pair:
        return pair.result()


def measured_together(pairs: Sequence[tuple[Endpoint, Endpoint]], seconds: float) -> list[float]:
    """Return the Mb/s of several pairs that send at the same time."""
    running = [_Pair(server, client, None, seconds, _PORT) for server, client in pairs]
    try:
        return [pair.result() for pair in running]
    finally:
        for pair in running:
            pair.close()


class _Pair:
    """A server that listens and a client that sends to it."""

    def __init__(self, server: Endpoint, client: Endpoint, limit_mbps: int | None, seconds: float, port: int) -> None:
        turns = max(3, round((limit_mbps or _FREE_MBPS) * 1e6 / 8 * seconds / (2 * _MESSAGE_BYTES)))
        command = ("ibv_rc_pingpong", "-e", "-p", str(port), "-s", str(_MESSAGE_BYTES), "-n", str(turns))
        self._server = _start((*server.pod.inside, *command, *_device(server)))
        self._client: subprocess.Popen[str] | None = None
        try:
            _await_listening(self._server, port)
            self._client = _start((*client.pod.inside, *command, *_device(client), server.address))
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> "_Pair":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def result(self) -> float:
        """Return what the client measured; raise CommandError."""
        assert self._client is not None, "started when the pair was made"
        try:
            said, _ = self._client.communicate(timeout=_CALL_S)
        except subprocess.TimeoutExpired as late:
            raise CommandError(f"ibv_rc_pingpong: {late}") from late
        found = _RESULT.search(said)
        if found is None:
            raise CommandError(f"ibv_rc_pingpong measured nothing: {said.strip()[-300:]!r}")
        return float(found[1])

    def close(self) -> None:
        for process in (self._client, self._server):
            if process is not None:
                process.kill()
                process.wait()


def udp_passes(sender: Endpoint, receiver: Endpoint) -> bool:
    """Return whether a datagram from one pod reaches the other one."""
    with netns.run_in(_path(receiver), lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as inbound:
        inbound.bind((receiver.address, 0))
        inbound.settimeout(_FRAME_S)
        to = inbound.getsockname()
        with netns.run_in(_path(sender), lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as outbound:
            for _ in range(_FRAMES):
                outbound.sendto(b"mooring", to)
        try:
            return inbound.recv(64) == b"mooring"
        except TimeoutError:
            return False


def foreign_frames_pass(sender: Endpoint, receiver: Endpoint) -> bool:
    """Return whether broadcast frames with another source MAC than the sender's reach the receiver."""
    frame = b"\xff" * 6 + _FOREIGN + _EXPERIMENTAL.to_bytes(2, "big") + b"mooring".ljust(46, b"\0")

    def opened() -> socket.socket:
        raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_EXPERIMENTAL))
        raw.bind((IFNAME, _EXPERIMENTAL))
        return raw

    with netns.run_in(_path(receiver), opened) as inbound, netns.run_in(_path(sender), opened) as outbound:
        inbound.settimeout(_FRAME_S)
        for _ in range(_FRAMES):
            outbound.send(frame)
        try:
            return inbound.recv(2048)[6:12] == _FOREIGN
        except TimeoutError:
            return False


def _path(end: Endpoint) -> str:
    return f"/run/netns/{end.pod.name}"


def _found(pod: Pod, address: str) -> Endpoint | None:
    """Read a pod from inside; in exclusive mode it sees its own RDMA device and no other."""
    ports = "/sys/class/infiniband/*/ports/1"
    # Entries of the GID table that are not in use cannot be read: grep ignores them.
    script = f"grep -sH . {ports}/gids/* {ports}/gid_attrs/types/* || true"
    values = dict(line.split(":", 1) for line in run((*pod.inside, "sh", "-c", script)).splitlines())
    wanted = "".join(f"{int(part):02x}" for part in address.split("."))
    for path, value in values.items():
        kind = values.get(path.replace("/gids/", "/gid_attrs/types/"))
        if value.replace(":", "") == f"{'ffff' + wanted:0>32}" and kind == "RoCE v2":
            return Endpoint(pod, path.split("/")[4], address, int(path.rpartition("/")[2]))
    return None


def _device(end: Endpoint) -> tuple[str, ...]:
    return ("-d", end.rdma, "-g", str(end.gid))


def _start(command: Sequence[str]) -> "subprocess.Popen[str]":
    try:
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, process_group=0)
    except OSError as missing:
        raise CommandError(f"{command[0]}: {missing}") from missing


def _await_listening(server: "subprocess.Popen[str]", port: int) -> None:
    """Wait until the server's namespace has a listening socket (state 0A) at the port."""
    deadline = time.monotonic() + _START_S
    listening = re.compile(rf":{port:04X} [0-9A-F:]+ 0A ")
    while not any(listening.search(Path(f"/proc/{server.pid}/net/{kind}").read_text()) for kind in ("tcp", "tcp6")):
        if server.poll() is not None or time.monotonic() > deadline:
            server.kill()
            raise CommandError(f"ibv_rc_pingpong does not listen: {server.communicate()[0].strip()}")
        time.sleep(0.02)
