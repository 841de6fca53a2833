"""One simulated host with the real containerd and runc, CNI server and shim as processes; an independent client.

The pods are bound by these tests, with assignments as the scheduler writes them; everything else is the real thing.
"""

import contextlib
import json
import secrets
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import pytest
from cri_api.v1 import api_pb2 as cri
from cri_api.v1 import api_pb2_grpc as cri_grpc

from devcluster.hosts.layout import Layout
from devcluster.hosts.nic import Function, load_host
from devcluster.processes import Processes
from devcluster.runtime.containerd import Containerd, Place, remove_pods
from devcluster.runtime.images import write_images
from tests.support.folders import texts

VFS = 32
# baseBackoffDelay and maxBackoffDelay in staging/src/k8s.io/cri-client/pkg of Kubernetes.
_AS_THE_KUBELET = (("grpc.initial_reconnect_backoff_ms", 100), ("grpc.max_reconnect_backoff_ms", 3000))
_CALL_S = 90


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod as a kubelet describes it; ``vfs`` are its own, ``attempt`` counts its sandboxes."""

    name: str
    uid: str
    vfs: tuple[Function, ...] = ()
    annotations: Mapping[str, str] = field(default_factory=dict)

    @property
    def config(self) -> Any:
        metadata = cri.PodSandboxMetadata(name=self.name, uid=self.uid, namespace="test", attempt=0)
        linux = cri.LinuxPodSandboxConfig()
        return cri.PodSandboxConfig(metadata=metadata, hostname=self.name, annotations=self.annotations, linux=linux)


class Client:
    """A kubelet's CRI calls to one socket."""

    def __init__(self, socket: Path) -> None:
        self._channel = grpc.insecure_channel(f"unix://{socket}", options=_AS_THE_KUBELET)
        self.stub: Any = cri_grpc.RuntimeServiceStub(self._channel)

    def close(self) -> None:
        self._channel.close()

    def run(self, pod: Pod) -> str:
        return str(self.stub.RunPodSandbox(cri.RunPodSandboxRequest(config=pod.config), timeout=_CALL_S).pod_sandbox_id)

    def create(self, pod: Pod, sandbox: str, name: str = "main") -> str:
        container = cri.ContainerConfig(
            metadata=cri.ContainerMetadata(name=name, attempt=0),
            image=cri.ImageSpec(image="busybox"),
            command=["sleep", "3600"],
            linux=cri.LinuxContainerConfig(),
        )
        request = cri.CreateContainerRequest(pod_sandbox_id=sandbox, config=container, sandbox_config=pod.config)
        return str(self.stub.CreateContainer(request, timeout=_CALL_S).container_id)

    def start(self, container: str) -> None:
        self.stub.StartContainer(cri.StartContainerRequest(container_id=container), timeout=_CALL_S)

    def started(self, pod: Pod, sandbox: str, name: str = "main") -> str:
        container = self.create(pod, sandbox, name)
        self.start(container)
        return container

    def shell(self, container: str, script: str) -> str:
        """Run a script in a container; return what it wrote to either output."""
        request = cri.ExecSyncRequest(container_id=container, cmd=["sh", "-c", script], timeout=20)
        answer = self.stub.ExecSync(request, timeout=_CALL_S)
        return str((answer.stdout + answer.stderr).decode())

    def opens(self, container: str, node: str) -> bool:
        """Return whether the device cgroup lets a container open a node, whose driver this machine does not have."""
        text = self.shell(container, f": <{node}")
        assert ("No such device" in text) != ("not permitted" in text), text
        return "No such device" in text

    def remove(self, sandbox: str) -> None:
        self.stub.StopPodSandbox(cri.StopPodSandboxRequest(pod_sandbox_id=sandbox), timeout=_CALL_S)
        self.stub.RemovePodSandbox(cri.RemovePodSandboxRequest(pod_sandbox_id=sandbox), timeout=_CALL_S)


class Node:
    """The host and its programs, each by its name in `processes`: ``hosts``, ``cni``, ``shim``."""

    def __init__(self, root: Path, programs: Path | None = None) -> None:
        self.name = f"rt{secrets.token_hex(3)}"
        self.layout = Layout.at(root, self.name)
        self.processes = Processes(root / "logs")
        cni = (self.layout.cni_bin, self.layout.cni_conf)
        place = Place(self.layout.containerd, *cni, netns=self.layout.netns, programs=programs)
        self.containerd = Containerd(place, write_images(root / "images.tar"))
        self._root = root

    def start(self) -> None:
        flags = ("up", "--root", str(self._root), "--node", self.name, "--vfs", str(VFS))
        self.processes.start("hosts", [sys.executable, "-m", "devcluster.hosts", *flags])
        self.processes.await_ready("hosts", self.layout.description.exists)
        self.containerd.start()
        folders = ("--sysfs", str(self.layout.sys), "--state", str(self.layout.state), "--run", str(self.layout.run))
        named = (*folders, "--node-name", self.name)
        server = ("--vf-table", str(self.layout.vftable), "serve", "--socket", str(self.layout.run / "cni.sock"))
        self._start("cni", "devcluster.hosts.cni", *server, *named)
        self.processes.await_ready("cni", (self.layout.run / "cni.sock").exists)
        sockets = ("--listen", f"unix://{self.socket}", "--runtime", self.containerd.place.endpoint)
        described = ("--dev", str(self.layout.dev), "--proc", str(self.proc), "--cdi", str(self.containerd.place.cdi))
        self._start("shim", "cri_shim", *sockets, *named, *described, "--stop-without-devices")
        self.processes.await_ready("shim", self.socket.exists)

    def start_bypass(self) -> None:
        """Start what leads the kubelet past a shim that fails."""
        sockets = ("--listen", f"unix://{self.socket}", "--runtime", self.containerd.place.endpoint)
        described = ("--dev", str(self.layout.dev), "--proc", str(self.proc), "--cdi", str(self.containerd.place.cdi))
        check = ("--sysfs", str(self.layout.sys), "--state", str(self.layout.state), *described)
        self._start("bypass", "cri_shim.bypass", *sockets, "--run", str(self.layout.run), "--", *check)

    def stop(self) -> None:
        self.containerd.stop()
        self.processes.stop()

    @property
    def socket(self) -> Path:
        return self.layout.run / "cri.sock"

    @property
    def proc(self) -> Path:
        """What the shim reads in place of /proc."""
        return self.layout.home / "proc"

    @property
    def functions(self) -> Sequence[Function]:
        """All VFs of the host."""
        host = load_host(self.layout.description.read_text())
        return [function for function in host.functions() if function.vf is not None]

    def pod(self, *vfs: Function, min_tx_rate: int = 100, **fields: Any) -> Pod:
        """Describe a pod that the scheduler has given these VFs; ``fields`` go into each entry of its assignment."""
        name = f"pod-{secrets.token_hex(4)}"
        entries = [{"min_tx_rate": min_tx_rate, **fields} for _ in vfs]
        given = [
            {"pf": vf.pf.name, "vf": vf.vf, "pci": vf.pci, "link": "ethernet", "network": vf.pf.network, **entry}
            for vf, entry in zip(vfs, entries, strict=True)
        ]
        assignment = {"v": 1, "uid": f"uid-{name}", "node": self.name, "vfs": given}
        annotations = {"mooring.dev/interfaces": json.dumps(entries), "mooring.dev/assignment": json.dumps(assignment)}
        return Pod(name, f"uid-{name}", vfs, annotations if vfs else {})

    @contextlib.contextmanager
    def client(self, socket: Path | None = None) -> Iterator[Client]:
        """A client of the shim, or of another socket."""
        client = Client(socket or self.socket)
        try:
            yield client
        finally:
            client.close()

    def answers(self) -> bool:
        """Return whether the runtime can be reached through the shim."""
        with self.client() as client, contextlib.suppress(grpc.RpcError):
            client.stub.Version(cri.VersionRequest(), timeout=60)
            return True
        return False

    def held(self) -> Mapping[str, str]:
        """The VFs that are held in the ledger: the uid by PCI address."""
        entries = [json.loads(text) for text in texts(self.layout.state / "vfs").values()]
        return {entry["pci"]: entry["uid"] for entry in entries}

    def remove_pods(self) -> None:
        remove_pods(self.containerd.place.endpoint)

    def at_rest(self) -> tuple[frozenset[str], Mapping[str, Any]]:
        """What must be as before when every pod is gone: the links of the host, and its PFs' settings of the VFs."""
        shown = subprocess.run(
            ["nsenter", f"--net={self.layout.netns}", "ip", "-j", "link"], capture_output=True, text=True, check=True
        )
        links = frozenset(link["ifname"] for link in json.loads(shown.stdout))
        table = json.loads(self.layout.vftable.read_text())
        return links, {name: pf["set"] for name, pf in table["pfs"].items()}

    def _start(self, name: str, module: str, *arguments: str) -> None:
        enter = ("nsenter", f"--net={self.layout.netns}")
        self.processes.start(name, [*enter, sys.executable, "-m", module, *arguments], {"PYTHONUNBUFFERED": "1"})


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory, programs: Path | None) -> Iterator[Node]:
    node = Node(tmp_path_factory.mktemp("node"), programs)
    try:
        node.start()
        yield node
    finally:
        node.stop()


@pytest.fixture
def client(node: Node) -> Iterator[Client]:
    with node.client() as client:
        yield client
