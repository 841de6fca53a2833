"""Two pods with one VF each, as the CNI plugin makes them, and RDMA traffic between them.

A pod is a network namespace here, with a record as the CRI shim writes it. mooring-cni gets its ADD and DEL as from a
runtime. The state folder is the node's own, so that no VF in use is taken.
"""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from mooring.assignment import AssignedVf, Assignment
from mooring.files import remove_file, write_file
from mooring.podrecord import PodRecord, dump_pod_record, pod_record_name
from mooring.settings import VfSettings

STATE = Path("/var/lib/mooring")
_NODE = "acceptance"
_PORT = 18515
_MESSAGE_BYTES = 1 << 20
# The rate assumed without a limit: enough data for a steady figure from a simulated NIC up to 100 Gb/s.
_FREE_MBPS = 1000
_START_S, _CALL_S = 60.0, 120.0
_RESULT = re.compile(r"bytes in [0-9.]+ seconds = ([0-9.]+) Mbit/sec")


class TestbedError(RuntimeError):
    """What prevents measuring the traffic here at all: which step, and its message."""


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod with its VF: network namespace, RDMA device, address, and the index of that address' GID."""

    netns: str
    rdma: str
    address: str
    gid: int


def first_pf() -> str:
    """Return the first PF that has two VFs."""
    names = sorted(path.parts[4] for path in Path("/sys/class/net").glob("*/device/virtfn1"))
    if not names:
        raise TestbedError("no PF of this machine has two VFs")
    return names[0]


@contextmanager
def two_pods(pf: str, limit_mbps: int | None, folder: Path) -> Iterator[tuple[Pod, Pod]]:
    """Make two pods whose VFs may send ``limit_mbps``, None for no limit; restore everything at the end."""
    with ExitStack() as stack:
        first, second = (stack.enter_context(_pod(pf, vf, limit_mbps, folder)) for vf in (0, 1))
        yield first, second


def measured_mbps(server: Pod, client: Pod, limit_mbps: int | None, seconds: float) -> float:
    """Return the Mb/s of messages that take turns: one pod at a time sends, so this is the sender's rate."""
    turns = max(3, round((limit_mbps or _FREE_MBPS) * 1e6 / 8 * seconds / (2 * _MESSAGE_BYTES)))
    command = ("ibv_rc_pingpong", "-e", "-p", str(_PORT), "-s", str(_MESSAGE_BYTES), "-n", str(turns))
    listening = _start(server, command)
    try:
        _await_listening(listening)
        said = _run((*_in(client.netns), *command, *_device(client), server.address), "ibv_rc_pingpong")
    finally:
        listening.kill()
        listening.wait()
    found = _RESULT.search(said)
    if found is None:
        raise TestbedError(f"ibv_rc_pingpong measured nothing: {said!r}")
    return float(found[1])


@contextmanager
def _pod(pf: str, vf: int, limit_mbps: int | None, folder: Path) -> Iterator[Pod]:
    name = f"mooring-acceptance-{vf}"
    record = STATE / pod_record_name(name)
    with ExitStack() as undo:
        undo.callback(remove_file, record)
        write_file(record, _record(name, pf, vf, limit_mbps))
        _run(("ip", "netns", "add", name), "ip netns add")
        undo.callback(_run, ("ip", "netns", "delete", name), "ip netns delete")
        undo.callback(_call, "DEL", name, folder)
        result = json.loads(_call("ADD", name, folder))
        yield _found(name, result["ips"][0]["address"].partition("/")[0])


def _record(uid: str, pf: str, vf: int, limit_mbps: int | None) -> str:
    pci = (Path("/sys/class/net") / pf / "device" / f"virtfn{vf}").readlink().name
    assigned = AssignedVf(pf, vf, pci, "ethernet", "default", VfSettings(max_tx_rate=limit_mbps))
    return dump_pod_record(PodRecord(f"acceptance/{uid}", Assignment(uid=uid, node=_NODE, vfs=(assigned,))))


def _call(command: str, pod: str, folder: Path) -> str:
    """Execute mooring-cni as a runtime does; return what it printed."""
    ipam = {"type": "host-local", "ranges": [[{"subnet": "10.250.0.0/24"}]], "dataDir": str(folder / "ipam")}
    conf = {"cniVersion": "1.0.0", "name": "acceptance", "type": "mooring-cni", "node": _NODE, "ipam": ipam}
    environment = {
        "CNI_COMMAND": command,
        "CNI_CONTAINERID": pod,
        "CNI_NETNS": f"/run/netns/{pod}",
        "CNI_IFNAME": "net1",
        "CNI_PATH": "/opt/cni/bin:/usr/lib/cni",
        "CNI_ARGS": f"IgnoreUnknown=1;K8S_POD_NAMESPACE=acceptance;K8S_POD_NAME={pod};K8S_POD_UID={pod}",
        "PATH": os.environ["PATH"],
    }
    return _run((sys.executable, "-m", "cni"), f"mooring-cni {command}", json.dumps(conf), environment)


def _found(netns: str, address: str) -> Pod:
    """Read a pod from inside: in exclusive mode it sees its own RDMA device and no other."""
    ports = "/sys/class/infiniband/*/ports/1"
    # Entries of the GID table that are not in use cannot be read: grep ignores them.
    script = f"grep -sH . {ports}/gids/* {ports}/gid_attrs/types/* || true"
    lines = _run((*_in(netns), "sh", "-c", script), "looking for RDMA devices").splitlines()
    values = dict(line.split(":", 1) for line in lines)
    wanted = "".join(f"{int(part):02x}" for part in address.split("."))
    for path, value in values.items():
        kind = values.get(path.replace("/gids/", "/gid_attrs/types/"))
        if value.replace(":", "") == f"{'ffff' + wanted:0>32}" and kind == "RoCE v2":
            return Pod(netns, path.split("/")[4], address, int(path.rpartition("/")[2]))
    seen = sorted({path.split("/")[4] for path in values})
    raise TestbedError(f"no RDMA device of the pod {netns!r} has the address {address}; it sees {seen}")


def _in(netns: str) -> tuple[str, ...]:
    return ("ip", "netns", "exec", netns)


def _device(pod: Pod) -> tuple[str, ...]:
    return ("-d", pod.rdma, "-g", str(pod.gid))


def _start(server: Pod, command: Sequence[str]) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        (*_in(server.netns), *command, *_device(server)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def _await_listening(server: "subprocess.Popen[str]") -> None:
    """Wait until the server's namespace has a listening socket (state 0A) at the port."""
    deadline = time.monotonic() + _START_S
    listening = re.compile(rf":{_PORT:04X} [0-9A-F:]+ 0A ")
    while not any(listening.search(Path(f"/proc/{server.pid}/net/{kind}").read_text()) for kind in ("tcp", "tcp6")):
        if server.poll() is not None or time.monotonic() > deadline:
            server.kill()
            raise TestbedError(f"ibv_rc_pingpong does not listen: {server.communicate()[0].strip()}")
        time.sleep(0.02)


def _run(command: Sequence[str], what: str, stdin: str = "", environment: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        command, input=stdin, env=environment, capture_output=True, text=True, timeout=_CALL_S, check=False
    )
    if done.returncode != 0:
        raise TestbedError(f"{what} failed: {(done.stdout + done.stderr).strip()[-500:]}")
    return done.stdout
