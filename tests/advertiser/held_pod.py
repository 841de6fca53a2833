"""A pod of node n1 that has VF 1 of the first PF: bound as by the scheduler, its VF held as by the CNI plugin."""

import shutil
from dataclasses import replace
from pathlib import Path

import aiohttp

from cni.vf.ledger import Ledger
from cri_shim.records import Records
from devcluster.apiserver.serve import ApiServer
from mooring.annotations.assignment import AssignedVf, Assignment, dump_assignment
from mooring.names import ASSIGNMENT
from mooring.records.ledger import Attachment, LedgerEntry, Netns, Original
from mooring.records.pod_record import PodRecord
from tests.support.simulated_nics import MLX5, Nic

VF1 = "0000:04:00.3"


async def bind_pod(server: ApiServer, folder: Path, nic: Nic = MLX5) -> str:
    """Create a pod and bind it to n1 with VF 1 of the first PF, and record it as the shim does; return its uid."""
    pods = "/api/v1/namespaces/default/pods"
    spec = {"schedulerName": "mooring", "containers": [{"name": "c", "image": "registry.example/c:1"}]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "train"}, "spec": spec}
    async with aiohttp.ClientSession(server.url) as session:
        async with session.post(pods, json=pod) as answer:
            uid: str = (await answer.json())["metadata"]["uid"]
        vf = AssignedVf(pf="enp4s0f0", vf=1, pci=VF1, link=nic.link, network="default")
        assignment = Assignment(uid, "n1", (vf,))
        metadata = {"name": "train", "annotations": {ASSIGNMENT: dump_assignment(assignment)}}
        target = {"apiVersion": "v1", "kind": "Node", "name": "n1"}
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target}
        async with session.post(f"{pods}/train/binding", json=binding) as answer:
            assert answer.status == 201
    Records(folder / "state", folder / "run").write_pod(PodRecord("default/train", assignment))
    return uid


def hold(folder: Path, uid: str, nic: Nic = MLX5) -> None:
    """Take VF 1 away as mooring-cni does: the entry, then the netdev; only then does the entry become `held`."""
    entry = replace(_entry(uid), set=nic.held)
    ledger = Ledger(folder / "state", folder / "run")
    ledger.write(replace(entry, phase="taking"))
    shutil.rmtree(folder / "sys/bus/pci/devices" / VF1 / "net/enp4s0f0v1")
    ledger.write(entry)


def give(folder: Path, uid: str, address: str, container: str = "c") -> None:
    """Write the entry and its extract as mooring-cni does at the end of ADD."""
    entry = replace(
        _entry(uid),
        container=container,
        original=Original(netdev_mac="02:00:01:00:00:01"),
        addresses=(f"{address}/24",),
        rdma="mlx5_3",
        attachment=Attachment("mooring", "eth0", "rail0"),
    )
    Ledger(folder / "state", folder / "run").write(entry)


def _entry(uid: str) -> LedgerEntry:
    return LedgerEntry(
        pci=VF1,
        pf="enp4s0f0",
        vf=1,
        phase="held",
        boot=Path("/proc/sys/kernel/random/boot_id").read_text().strip(),
        uid=uid,
        pod="default/train",
        container="c",
        ifname="net1",
        netns=Netns("/n", 1),
        original=Original(),
    )
