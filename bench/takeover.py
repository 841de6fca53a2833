"""Time a take-over in a large cluster: from the Lease to the first bind, and what the new leader needs for it.

    python -m bench.takeover [--nodes 5000] [--pods 50000] [--cold]

Against devcluster's API server in this process. A leader is killed with a pod waiting; its standby gets the Lease when
it runs out, lists everything again, waits out the last Binding of the dead one, and binds. With ``--cold`` there is no
standby: one scheduler starts when the Lease has been released. Exit status 1 if a first bind takes over 10 s.
"""

import argparse
import asyncio
import json
import sys
import tempfile
import uuid
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from bench.loads import scheduler_load as load
from devcluster.apiserver.cluster import NODES, PODS
from devcluster.apiserver.serve import ApiServer
from mooring import names
from mooring.annotations.assignment import AssignedVf, Assignment, dump_assignment
from mooring.kube.access import Access
from mooring.kube.client import Client

_GOAL_S = 10.0
_BORN = "2026-01-01T00:00:00Z"
_PATH = "/api/v1/namespaces/default/pods"
Json = dict[str, Any]


def bound_pod(number: int, nodes: int) -> Json:
    """Return a running pod with two VFs; pods go round the nodes."""
    pod, uid = load.replica(number), str(uuid.uuid4())
    node, turn = load.node_name(number % nodes), number // nodes
    vfs = tuple(_vf(index, turn) for index in range(2))
    metadata: Json = pod["metadata"]
    metadata |= {"uid": uid, "creationTimestamp": _BORN}
    metadata["annotations"][names.ASSIGNMENT] = dump_assignment(Assignment(uid, node, vfs))
    pod["spec"]["nodeName"] = node
    pod["status"] = {"phase": "Running", "conditions": [{"type": "PodScheduled", "status": "True"}]}
    return pod


def _vf(pf: int, vf: int) -> AssignedVf:
    place = vf + 2
    pci = f"0000:{pf + 1:02x}:{place // 8:02x}.{place % 8}"
    return AssignedVf(f"enp{pf + 1}s0f0", vf, pci, "ethernet", f"rail{pf}")


def fill(server: ApiServer, nodes: int, pods: int) -> None:
    """Write the cluster into the server's store, without its API."""
    for number in range(nodes):
        node = load.node(number)
        node["metadata"] |= {"uid": str(uuid.uuid4()), "creationTimestamp": _BORN}
        server.cluster.store.put(NODES, {"apiVersion": "v1", "kind": "Node", **node})
    for number in range(pods):
        server.cluster.store.put(PODS, bound_pod(number, nodes))


class Scheduler:
    """A process, and the lines that it logs with their times."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.said: list[Json] = []
        self.reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        assert self.process.stderr is not None
        async for line in self.process.stderr:
            self.said.append(json.loads(line))

    async def says(self, event: str, **fields: object) -> datetime:
        """Wait for this log event; return its time."""
        while True:
            found = [one for one in self.said if one["event"] == event and fields.items() <= one.items()]
            if found:
                return datetime.fromisoformat(found[0]["ts"])
            await asyncio.sleep(0.05)

    def resident_mib(self) -> float:
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        return next(int(line.split()[1]) / 1024 for line in text.splitlines() if line.startswith("VmRSS"))


@asynccontextmanager
async def scheduler(kubeconfig: Path) -> AsyncIterator[Scheduler]:
    flags = ["--kubeconfig", str(kubeconfig), "--metrics-addr", ""]
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", "scheduler", *flags, stderr=PIPE)
    found = Scheduler(process)
    try:
        yield found
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        await found.reading


async def measure(nodes: int, pods: int, *, cold: bool) -> float:
    """Return the seconds from the Lease to the first bind."""
    with tempfile.TemporaryDirectory() as folder:
        async with ApiServer() as server, Client(Access(server.url)) as client:
            fill(server, nodes, pods)
            kubeconfig = Path(folder) / "kubeconfig"
            kubeconfig.write_text(server.kubeconfig_text())
            async with scheduler(kubeconfig) as first:
                if cold:
                    return await _first_bind(first, client)
                await first.says("listed", kind="Pod", leads=True)
                async with scheduler(kubeconfig) as second:
                    await second.says("listed", kind="Pod", leads=False)
                    first.process.kill()
                    return await _first_bind(second, client)


async def _first_bind(new: Scheduler, client: Client) -> float:
    await client.request("POST", _PATH, msgspec.json.encode(load.replica(999_999)))
    leads = await new.says("leading")
    found = {"nodes listed again": await new.says("listed", kind="Node", leads=True)}
    found["pods listed again"] = await new.says("listed", kind="Pod", leads=True)
    found["first bind"] = await new.says("pod bound")
    for what, when in found.items():
        print(f"  {what:20} {(when - leads).total_seconds():6.2f} s after the Lease", flush=True)
    print(f"  {'memory':20} {new.resident_mib():6.0f} MiB", flush=True)
    return (found["first bind"] - leads).total_seconds()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--pods", type=int, default=50_000)
    parser.add_argument("--cold", action="store_true")
    options = parser.parse_args()
    taken_s = asyncio.run(measure(options.nodes, options.pods, cold=options.cold))
    verdict = "met" if taken_s < _GOAL_S else "MISSED"
    print(f"{verdict}: first bind {taken_s:.1f} s after the Lease, at most {_GOAL_S:.0f}")
    return 0 if taken_s < _GOAL_S else 1


if __name__ == "__main__":
    sys.exit(main())
