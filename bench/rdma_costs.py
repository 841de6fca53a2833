"""What RDMA devices cost a sandbox: a network namespace in shared and in exclusive mode, and a DEL with queue pairs.

    python -m bench.rdma_costs [--devices 240] [--queue-pairs 1000] [--rounds 3] [--json]     in the lab kernel

In shared mode the kernel copies every RDMA device's sysfs folders into each new network namespace, with three files for
each GID: rdma_dev_init_net and add_one_compat_dev in drivers/infiniband/core/device.c, setup_gid_attrs in sysfs.c there
(Linux 6.12). The lab's soft RoCE has 1,024 GIDs a device (RXE_PORT_GID_TBL_LEN). Only ratios within one run count.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from bench.host import verbs_user
from bench.host.lab import MISSING, find_lab
from cni.kernel import rdma
from cni.kernel.sysfs import Sysfs
from cni.server.dispatch import answer
from mooring.annotations.assignment import AssignedVf, Assignment
from mooring.files import write_file
from mooring.nic.vf_settings import RtnetlinkVfSettings
from mooring.program import log
from mooring.records.pod_record import PodRecord, dump_pod_record, pod_record_name

_LAB_S = 1500
_SANDBOXES = 4
_GONE_S = 300.0
_PFS, _SYSFS, _STATE, _POD = ("eth0", "eth1"), Path("/sys"), Path("/var/lib/mooring"), "cost"
_PREPARE = """set -e
[ -d '{root}/bench' ] || {{ mkdir -p '{root}' && mount -t hostfs none '{root}' -o '{root}'; }}
cd '{root}'
rdma system set netns {mode}
for pf in eth0 eth1; do ip link set $pf up; echo {vfs} >/sys/class/net/$pf/device/sriov_numvfs; done
exec {python} -m bench.rdma_costs --here {mode} --devices {devices} --queue-pairs {queue_pairs} --rounds {rounds}
"""


@dataclass(frozen=True, slots=True)
class SandboxCost:
    """Medians of one network namespace beside ``devices`` RDMA devices: ms to make and remove it, KiB in the kernel."""

    devices: int
    made_ms: float
    removed_ms: float
    kib: float


@dataclass(frozen=True, slots=True)
class QueuePairCost:
    """Medians with ``queue_pairs`` of a pod's process: ms of asking for a device's users, and of DEL if measured."""

    queue_pairs: int
    users_ms: float
    del_ms: float | None


def sandbox_cost(devices: int, rounds: int) -> SandboxCost:
    """Measure namespaces without a process or a link in them: beside the RDMA devices, they are always the same."""
    made, removed, kib = [], [], []
    for _ in range(rounds):
        before = _kernel_kib()
        names = [f"cost{number}" for number in range(_SANDBOXES)]
        made += [_ms(partial(_run, "ip", "netns", "add", name)) for name in names]
        kib.append((_kernel_kib() - before) / len(names))
        for name in names:
            _run("ip", "link", "add", f"{name}h", "type", "veth", "peer", "name", "eth0", "netns", name)
            removed.append(_ms(partial(_remove, name)))
    return SandboxCost(devices, statistics.median(made), statistics.median(removed), statistics.median(kib))


def _remove(name: str) -> None:
    """Remove a namespace, and wait until the kernel has: it removes a veth's other end after the RDMA devices' copies.

    Operations registered last are undone first (ops_exit_list in net/core/net_namespace.c).
    """
    _run("ip", "netns", "delete", name)
    deadline = time.monotonic() + _GONE_S
    while Path(f"/sys/class/net/{name}h").exists():
        assert time.monotonic() < deadline, f"namespace {name} is still there"
        time.sleep(0.001)


def _kernel_kib() -> int:
    """Return the memory of the kernel's objects in KiB."""
    lines = (line.split() for line in Path("/proc/meminfo").read_text().splitlines())
    return next(int(words[1]) for words in lines if words[0] == "Slab:")


def _ms(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return (time.perf_counter() - start) * 1000


def _run(*words: str) -> None:
    subprocess.run(words, check=True)


def _vfs() -> list[Path]:
    """Return the VFs' folders, PF by PF, in their order."""
    listed = [sorted(Path(f"/sys/class/net/{pf}/device").glob("virtfn*"), key=_number) for pf in _PFS]
    return [path.resolve() for paths in listed for path in paths]


def _number(virtfn: Path) -> int:
    return int(virtfn.name.removeprefix("virtfn"))


def make_devices(vfs: list[Path], numbers: range) -> None:
    for number in numbers:
        netdev = next((vfs[number] / "net").iterdir()).name
        _run("rdma", "link", "add", f"rx{number}", "type", "rxe", "netdev", netdev)


def queue_pair_cost(vf: Path, number: int, rounds: int, *, exclusive: bool) -> QueuePairCost:
    """Measure with a process that holds queue pairs on the VF's device, and with none for 0.

    A DEL is measured in exclusive mode: there the move home takes the queue pairs from the process. In shared mode a
    DEL waits for the process (`cni.vf.rdma_users`), however many it has.
    """
    users, removals = [], []
    with tempfile.TemporaryDirectory(dir="/run") as folder:
        for _ in range(rounds):
            _run("ip", "netns", "add", _POD)
            _call("ADD", Path(folder))
            (device,) = ((path / "ibdev").read_text().strip() for path in (vf / "infiniband_verbs").iterdir())
            with verbs_user.holding(_POD, device, number):
                if not exclusive:
                    users += [_ms(partial(_users, vf)) for _ in range(5)]
                else:
                    removals.append(_ms(partial(_call, "DEL", Path(folder))))
            _call("DEL", Path(folder))
            _run("ip", "netns", "delete", _POD)
    median = statistics.median(removals) if removals else None
    return QueuePairCost(number, statistics.median(users) if users else 0.0, median)


def _users(vf: Path) -> None:
    device = rdma.device_of(Sysfs(_SYSFS), vf.name)
    assert device is not None
    rdma.users(device.index)


def _call(command: str, folder: Path) -> None:
    ipam = {"type": "host-local", "ranges": [[{"subnet": "10.250.0.0/24"}]], "dataDir": str(folder)}
    conf = {"cniVersion": "1.0.0", "name": "cost", "type": "mooring-cni", "node": _POD, "ipam": ipam}
    environment = {
        "CNI_COMMAND": command,
        "CNI_CONTAINERID": _POD,
        "CNI_NETNS": f"/run/netns/{_POD}",
        "CNI_IFNAME": "net1",
        "CNI_PATH": "/opt/cni/bin:/usr/lib/cni",
        "CNI_ARGS": f"IgnoreUnknown=1;K8S_POD_NAMESPACE=cost;K8S_POD_NAME={_POD};K8S_POD_UID={_POD}",
    }
    done = answer(environment, json.dumps(conf).encode(), RtnetlinkVfSettings)
    assert done.status == 0, done.text


def here(mode: str, devices: int, queue_pairs: int, rounds: int) -> dict[str, Any]:
    """Measure on this machine, the lab: without RDMA devices, with one, half of them, and all."""
    vfs = _vfs()
    record = Assignment(_POD, _POD, (AssignedVf(_PFS[0], 0, vfs[0].name, "ethernet", "default"),))
    write_file(_STATE / pod_record_name(_POD), dump_pod_record(PodRecord(f"cost/{_POD}", record)))
    sandboxes, there = [], 0
    for number in sorted({0, 1, devices // 2, devices}):
        make_devices(vfs, range(there, number))
        sandboxes.append(asdict(sandbox_cost(number, rounds)))
        there = number
    found = [queue_pair_cost(vfs[0], number, rounds, exclusive=mode == "exclusive") for number in (0, queue_pairs)]
    return {"sandboxes": sandboxes, "queue_pairs": [asdict(each) for each in found]}


def in_lab(mode: str, options: argparse.Namespace) -> Any:
    """Boot the lab and measure there; return the report."""
    words = {"devices": options.devices, "queue_pairs": options.queue_pairs, "rounds": options.rounds}
    root = Path(__file__).resolve().parent.parent
    script = _PREPARE.format(root=root, mode=mode, vfs=(options.devices + 1) // 2, python=sys.executable, **words)
    program = find_lab(os.environ)
    if program is None:
        raise SystemExit(MISSING)
    lab = (str(program), "-m", "4G", "-t", str(_LAB_S), "-a", "simpci.npf=2 simpci.totalvfs=128", "-")
    done = subprocess.run(lab, input=script, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"the lab failed: {done.stdout}{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def table(reports: dict[str, Any]) -> str:
    """Return the report for a reader; ratios are to the namespace without RDMA devices of the same boot."""
    lines = ["mode        devices   made            removed         kernel memory"]
    for mode, report in reports.items():
        base = report["sandboxes"][0]
        for cost in report["sandboxes"]:
            ratios = [f"{cost[name]:8.1f} ms {cost[name] / base[name]:4.1f}" for name in ("made_ms", "removed_ms")]
            lines.append(f"{mode:11} {cost['devices']:7} {ratios[0]} {ratios[1]} {cost['kib']:9.0f} KiB")
    for mode, report in reports.items():
        for cost in report["queue_pairs"]:
            name, what = ("del_ms", "DEL") if cost["del_ms"] is not None else ("users_ms", "query of users")
            lines.append(f"{mode:11} {cost['queue_pairs']:5} queue pairs: {what} {cost[name]:.1f} ms")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--devices", type=int, default=240)
    parser.add_argument("--queue-pairs", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--here", choices=("shared", "exclusive"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    log.set_up("rdma-costs")
    if options.here:
        print(json.dumps(here(options.here, options.devices, options.queue_pairs, options.rounds)))
        return 0
    reports = {mode: in_lab(mode, options) for mode in ("shared", "exclusive")}
    print(json.dumps(reports) if options.json else table(reports))
    return 0


if __name__ == "__main__":
    sys.exit(main())
