"""A simulated host as the demo's checker sees it: its links, VF table, ledger and containers, read from outside.

Imports none of Mooring's programs: it uses `ip`, the JSON files and CRI itself.
"""

import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
from cri_api.v1 import api_pb2 as cri
from cri_api.v1 import api_pb2_grpc as cri_grpc

from devcluster.hosts.layout import Layout

_ANSWER_S = 60.0


@dataclass(frozen=True, slots=True)
class Link:
    """A network interface: what must be the same again after a pod released it."""

    name: str
    mac: str
    mtu: int
    up: bool
    altnames: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class HostState:
    """A host between pods: its VFs' links, its VF table, and how many entries ledger and IPAM hold."""

    links: tuple[Link, ...]
    vftable: str
    ledger: int
    addresses: int


def links(netns: Path) -> dict[str, Link]:
    """Return the interfaces of a network namespace by name; empty if it is gone."""
    command = ("nsenter", f"--net={netns}", "ip", "-d", "-j", "link", "show")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = json.loads(done.stdout) if done.returncode == 0 and done.stdout.strip() else []
    return {
        link["ifname"]: Link(
            name=link["ifname"],
            mac=link.get("address", ""),
            mtu=link["mtu"],
            up="UP" in link["flags"],
            altnames=tuple(sorted(link.get("altnames", ()))),
        )
        for link in found
    }


def state(host: Layout) -> HostState:
    """Read what guarantee 5 is about; a VF's link is one whose name starts with a PF's name."""
    vfs = [link for name, link in links(host.netns).items() if _is_vf(name)]
    return HostState(
        links=tuple(sorted(vfs, key=lambda link: link.name)),
        vftable=json.dumps(json.loads(host.vftable.read_text()), sort_keys=True),
        ledger=len(ledger(host)),
        addresses=sum(1 for path in host.ipam.rglob("10.56.*") if path.is_file()),
    )


def ledger(host: Layout) -> dict[str, Mapping[str, Any]]:
    """Return the ledger's entries by PCI address, as plain JSON."""
    return {path.stem: json.loads(path.read_text()) for path in (host.state / "vfs").glob("*.json")}


def rates(host: Layout, pf: str, vf: int) -> tuple[int, int]:
    """Return the min and max rate in Mb/s that the PF holds for a VF."""
    held = json.loads(host.vftable.read_text())["pfs"][pf]["set"].get(str(vf), {})
    return held.get("min_tx_rate", 0), held.get("max_tx_rate", 0)


def own_devices(host: Layout, pci: str) -> set[str]:
    """Return the names of a VF's uverbs devices now."""
    folder = host.sys / "bus/pci/devices" / pci / "infiniband_verbs"
    return {path.name for path in folder.iterdir()} if folder.is_dir() else set()


@dataclass(frozen=True, slots=True)
class Runtime:
    """A host's container runtime, called over CRI without the shim."""

    socket: Path

    def containers(self, uid: str) -> dict[str, str]:
        """Return the ids of a pod's running containers by container name."""
        wanted = cri.ContainerFilter(
            label_selector={"io.kubernetes.pod.uid": uid}, state=cri.ContainerStateValue(state=cri.CONTAINER_RUNNING)
        )
        with grpc.insecure_channel(f"unix://{self.socket}") as channel:
            stub = cri_grpc.RuntimeServiceStub(channel)
            answer = stub.ListContainers(cri.ListContainersRequest(filter=wanted), timeout=_ANSWER_S)
        return {container.metadata.name: container.id for container in answer.containers}

    def run(self, container: str, command: Sequence[str]) -> str:
        """Run a command in a container; return what it printed, empty if it failed."""
        with grpc.insecure_channel(f"unix://{self.socket}") as channel:
            stub = cri_grpc.RuntimeServiceStub(channel)
            request = cri.ExecSyncRequest(container_id=container, cmd=command, timeout=10)
            answer = stub.ExecSync(request, timeout=_ANSWER_S)
        return answer.stdout.decode() if answer.exit_code == 0 else ""

    def devices(self, container: str) -> set[str]:
        return set(self.run(container, ("ls", "/dev/infiniband")).split())

    def gpus(self, container: str) -> set[str]:
        return {name for name in self.run(container, ("ls", "/dev")).split() if name.startswith("nvidia")}

    def variables(self, container: str) -> dict[str, str]:
        lines = self.run(container, ("env",)).splitlines()
        return dict(line.split("=", 1) for line in lines if "=" in line)


def _is_vf(name: str) -> bool:
    return name.startswith("enp") and "v" in name
