"""CNI folders and pods for the tests of both runtimes."""

import json
import secrets
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from cri_api.v1 import api_pb2 as cri

CNI_PLUGINS = Path("/usr/lib/cni")


@pytest.fixture
def cni_plugins() -> Path:
    return CNI_PLUGINS


@pytest.fixture
def write_conflist() -> Callable[..., None]:
    """Write a conflist with the given plugins' configurations into a folder."""

    def write(folder: Path, *plugins: Mapping[str, object]) -> None:
        folder.mkdir(exist_ok=True)
        conflist = {"cniVersion": "1.0.0", "name": "test", "plugins": list(plugins)}
        (folder / "10-test.conflist").write_text(json.dumps(conflist))

    return write


@pytest.fixture
def bridge(tmp_path: Path) -> Iterator[dict[str, object]]:
    """A bridge plugin's configuration with addresses of its own; the bridge is deleted afterwards."""
    name = f"mt{secrets.token_hex(4)}"
    ipam = {"type": "host-local", "dataDir": str(tmp_path / "addresses"), "ranges": [[{"subnet": "10.253.0.0/24"}]]}
    yield {"type": "bridge", "bridge": name, "ipam": ipam}
    subprocess.run(["ip", "link", "delete", name], capture_output=True, check=False)


@pytest.fixture
def netns() -> Iterator[Path]:
    """A network namespace with its loopback up, for a runtime to live in."""
    name = f"mooring-test-{secrets.token_hex(4)}"
    subprocess.run(["ip", "netns", "add", name], check=True)
    subprocess.run(["ip", "-n", name, "link", "set", "lo", "up"], check=True)
    yield Path("/run/netns") / name
    subprocess.run(["ip", "netns", "delete", name], check=True)


@pytest.fixture
def sandbox_config() -> Callable[..., Any]:
    """Return the sandbox of a pod as a kubelet describes it."""

    def make(name: str, annotations: Mapping[str, str] | None = None, attempt: int = 0) -> Any:
        metadata = cri.PodSandboxMetadata(name=name, uid=f"uid-{name}", namespace="default", attempt=attempt)
        labels = {"io.kubernetes.pod.name": name}
        linux = cri.LinuxPodSandboxConfig()
        return cri.PodSandboxConfig(
            metadata=metadata, hostname=name, labels=labels, annotations=annotations, linux=linux
        )

    return make


@pytest.fixture
def container_config() -> Callable[..., Any]:
    """Return a container as a kubelet describes it; each device lands in /dev/infiniband under its own name."""

    def make(name: str, *command: str, devices: Sequence[Path] = ()) -> Any:
        return cri.ContainerConfig(
            metadata=cri.ContainerMetadata(name=name, attempt=0),
            image=cri.ImageSpec(image="busybox"),
            command=command or ("sleep", "3600"),
            devices=[
                cri.Device(container_path=f"/dev/infiniband/{node.name}", host_path=str(node), permissions="rw")
                for node in devices
            ],
            envs=[cri.KeyValue(key="PURPOSE", value="test")],
        )

    return make
