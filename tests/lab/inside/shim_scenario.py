"""Run inside the lab: containerd and runc behind the shim, the CNI plugin, and two pods with real VFs.

Prints one JSON object: what each container sees of its own devices, and of its neighbour's.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import grpc
from cri_api.v1 import api_pb2 as cri
from cri_api.v1 import api_pb2_grpc as cri_grpc

from cni.forwarder import render
from devcluster.runtime.containerd import Place, running
from devcluster.runtime.images import write_images
from tests.support.polling import wait_until

STATE, RUN = Path("/var/lib/mooring"), Path("/run/mooring")
DEVICES = Path("/sys/bus/pci/devices")
CALL_S = 90


def install_cni(folder: Path) -> Place:
    """Write the CNI folders as an operator would: loopback, then mooring-cni as the pods' only network."""
    place = Place(folder / "containerd", folder / "bin", folder / "conf")
    place.cni_bin.mkdir(parents=True)
    place.cni_conf.mkdir()
    for name in ("loopback", "host-local"):
        (place.cni_bin / name).symlink_to(f"/usr/lib/cni/{name}")
    plugin = place.cni_bin / "mooring-cni"
    plugin.write_text(render(str(RUN / "cni.sock"), [sys.executable, "-m", "cni"]))
    plugin.chmod(0o755)
    ipam = {"type": "host-local", "ranges": [[{"subnet": "10.9.0.0/24"}]], "dataDir": str(folder / "ipam")}
    chain = {"type": "mooring-cni", "capabilities": {"io.kubernetes.cri.pod-annotations": True}, "ipam": ipam}
    conflist = {"cniVersion": "1.0.0", "name": "lab", "plugins": [{**chain, "node": "lab"}]}
    (place.cni_conf / "10-lab.conflist").write_text(json.dumps(conflist))
    return place


def sandbox_config(name: str, vf: int) -> Any:
    """Describe a pod as the scheduler has bound it: one VF of the first PF."""
    pci = (DEVICES / f"0000:3b:00.0/virtfn{vf}").readlink().name
    wish = {"min_tx_rate": 100, "max_tx_rate": 1000}
    entry = {"pf": "eth0", "vf": vf, "pci": pci, "link": "ethernet", "network": "default", **wish}
    assignment = {"v": 1, "uid": f"uid-{name}", "node": "lab", "vfs": [entry]}
    annotations = {"mooring.dev/interfaces": json.dumps([wish]), "mooring.dev/assignment": json.dumps(assignment)}
    metadata = cri.PodSandboxMetadata(name=name, uid=f"uid-{name}", namespace="lab", attempt=0)
    return cri.PodSandboxConfig(
        metadata=metadata, hostname=name, annotations=annotations, linux=cri.LinuxPodSandboxConfig()
    )


def run_pod(stub: Any, name: str, vf: int) -> tuple[str, str]:
    """Run a pod with one container; return the ids of its sandbox and its container."""
    config = sandbox_config(name, vf)
    sandbox = stub.RunPodSandbox(cri.RunPodSandboxRequest(config=config), timeout=CALL_S).pod_sandbox_id
    container = cri.ContainerConfig(
        metadata=cri.ContainerMetadata(name="main"),
        image=cri.ImageSpec(image="busybox"),
        command=["sleep", "3600"],
        linux=cri.LinuxContainerConfig(),
    )
    request = cri.CreateContainerRequest(pod_sandbox_id=sandbox, config=container, sandbox_config=config)
    made = stub.CreateContainer(request, timeout=CALL_S).container_id
    stub.StartContainer(cri.StartContainerRequest(container_id=made), timeout=CALL_S)
    return sandbox, made


def shell(stub: Any, container: str, script: str) -> str:
    request = cri.ExecSyncRequest(container_id=container, cmd=["sh", "-c", script], timeout=20)
    answer = stub.ExecSync(request, timeout=CALL_S)
    return str((answer.stdout + answer.stderr).decode()).strip()


def seen(stub: Any, mine: str, neighbours: str) -> dict[str, Any]:
    """What a container sees: its devices, whether its own opens and its neighbour's does not, its links."""
    device = shell(stub, neighbours, "ls /dev/infiniband | grep uverbs")
    minor = 192 + int(device.removeprefix("uverbs"))
    return {
        "devices": shell(stub, mine, "ls /dev/infiniband").split(),
        "own": shell(stub, mine, "for node in /dev/infiniband/uverbs*; do : <$node && echo opened; done"),
        "neighbours": shell(stub, mine, f"mknod /tmp/other c 231 {minor}; : </tmp/other && echo opened"),
        "address": shell(stub, mine, "ip -4 -o addr show eth0 | grep -o 'inet [0-9.]*'"),
        "described": json.loads(shell(stub, mine, "echo $MOORING_DEVICES")),
        "nccl": shell(stub, mine, "echo $NCCL_IB_HCA"),
    }


def links() -> list[dict[str, Any]]:
    """The host's netdevs that matter, and the PF's settings of its VFs; counters and queues aside."""
    shown = subprocess.run(["ip", "-d", "-j", "link"], capture_output=True, text=True, check=True)
    kept = ("ifname", "address", "mtu", "altnames", "vfinfo_list")
    return sorted(
        ({name: link.get(name) for name in kept} for link in json.loads(shown.stdout)),
        key=lambda link: str(link["ifname"]),
    )


def rdma_devices() -> list[str]:
    """The RDMA devices that the host sees: in exclusive mode not those of pods."""
    shown = subprocess.run(["rdma", "-j", "dev"], capture_output=True, text=True, check=True)
    return sorted(device["ifname"] for device in json.loads(shown.stdout))


def scenario(socket: Path) -> dict[str, Any]:
    with grpc.insecure_channel(f"unix://{socket}") as channel:
        stub = cri_grpc.RuntimeServiceStub(channel)
        before, rdma = links(), [rdma_devices()]
        pods = [run_pod(stub, name, vf) for vf, name in enumerate(("first", "second"))]
        (_, first), (_, second) = pods
        rdma.append(rdma_devices())
        found = {"first": seen(stub, first, second), "second": seen(stub, second, first)}
        for sandbox, _ in pods:
            stub.StopPodSandbox(cri.StopPodSandboxRequest(pod_sandbox_id=sandbox), timeout=CALL_S)
            stub.RemovePodSandbox(cri.RemovePodSandboxRequest(pod_sandbox_id=sandbox), timeout=CALL_S)
        ledger = [path.name for path in (STATE / "vfs").glob("*.json")]
        rdma.append(rdma_devices())
        return {**found, "ledger": ledger, "rdma": rdma, "links": {"before": before, "after": links()}}


def main() -> None:
    folder = Path("/tmp/lab")
    place = install_cni(folder)
    socket = RUN / "cri.sock"
    flags = ["--listen", f"unix://{socket}", "--runtime", place.endpoint, "--node-name", "lab"]
    with running(place, write_images(folder / "images.tar")):
        shim = subprocess.Popen([sys.executable, "-m", "cri_shim", *flags])
        try:
            wait_until(socket.exists)
            print(json.dumps(scenario(socket)))
        finally:
            shim.terminate()
            shim.wait()


if __name__ == "__main__":
    main()
