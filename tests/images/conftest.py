"""The Containerfile's two images, built by its own instructions on a stand-in base, in a private containerd."""

import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest
from cri_api.v1 import api_pb2 as cri
from cri_api.v1 import api_pb2_grpc as cri_grpc

from devcluster.images import slim
from devcluster.images.containerfile import Stage, build
from devcluster.runtime import images
from devcluster.runtime.containerd import Place, running
from tests.cli import wheelhouse

CONTAINERFILE = wheelhouse.REPOSITORY / "Containerfile"
_BASE = "docker.io/library/python:3.11-slim-bookworm"
TARGETS = ("scheduler", "advertiser")
_CALL_S = 90


@dataclass(frozen=True, slots=True)
class Engine:
    """A containerd that has the images; pods are on its own network, which is this machine's."""

    stub: Any
    logs: Path

    def start(self, target: str, arguments: Sequence[str], mounts: Mapping[Path, Path] | None = None) -> str:
        """Start an image's entrypoint in a pod of its own, without rights and on a read-only root; return its id."""
        options = cri.NamespaceOption(network=cri.NODE)
        pod = cri.PodSandboxConfig(
            metadata=cri.PodSandboxMetadata(name=target, uid=f"{target}-{len(arguments)}", namespace="test"),
            log_directory=str(self.logs),
            linux=cri.LinuxPodSandboxConfig(
                security_context=cri.LinuxSandboxSecurityContext(namespace_options=options)
            ),
        )
        sandbox = self.stub.RunPodSandbox(cri.RunPodSandboxRequest(config=pod), timeout=_CALL_S).pod_sandbox_id
        rights = cri.LinuxContainerSecurityContext(
            namespace_options=options,
            readonly_rootfs=True,
            no_new_privs=True,
            capabilities=cri.Capability(drop_capabilities=["ALL"]),
        )
        container = cri.ContainerConfig(
            metadata=cri.ContainerMetadata(name=target),
            image=cri.ImageSpec(image=_image(target)),
            args=arguments,
            log_path=f"{target}.log",
            mounts=[
                cri.Mount(container_path=str(there), host_path=str(here)) for here, there in (mounts or {}).items()
            ],
            linux=cri.LinuxContainerConfig(security_context=rights),
        )
        request = cri.CreateContainerRequest(pod_sandbox_id=sandbox, config=container, sandbox_config=pod)
        created = str(self.stub.CreateContainer(request, timeout=_CALL_S).container_id)
        self.stub.StartContainer(cri.StartContainerRequest(container_id=created), timeout=_CALL_S)
        return created

    def python(self, container: str, code: str) -> str:
        """Run Python's own statements in a container; return what they wrote."""
        request = cri.ExecSyncRequest(container_id=container, cmd=["python3", "-c", code], timeout=20)
        answer = self.stub.ExecSync(request, timeout=_CALL_S)
        return str((answer.stdout + answer.stderr).decode()).strip()

    def exit_code(self, container: str) -> int | None:
        """Return the exit status of a container, None while it runs."""
        request = cri.ContainerStatusRequest(container_id=container)
        status = self.stub.ContainerStatus(request, timeout=_CALL_S).status
        return int(status.exit_code) if status.state == cri.CONTAINER_EXITED else None

    def log(self, target: str) -> str:
        return (self.logs / f"{target}.log").read_text()


def _image(target: str) -> str:
    return f"docker.io/library/mooring-{target}:test"


@pytest.fixture(scope="session")
def stages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, Stage]]:
    """All stages of the Containerfile, carried out; their folders are removed at the end."""
    folder = tmp_path_factory.mktemp("stages")
    wheelhouse.make(folder / "context/wheelhouse", TARGETS)
    bases = {_BASE: slim.make(folder / "base")}
    yield build(CONTAINERFILE.read_text(), folder / "context", bases, folder)
    shutil.rmtree(folder)


@pytest.fixture(scope="session")
def engine(stages: Mapping[str, Stage], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """A containerd with both images, imported as an engine's would be."""
    folder = tmp_path_factory.mktemp("engine")
    place = Place(folder / "containerd", folder / "bin", folder / "conf")
    with running(place, images.write_images(folder / "images.tar")), grpc.insecure_channel(place.endpoint) as channel:
        for target in TARGETS:
            stage = stages[target]
            tarball = images.write_folder_image(folder / "image.tar", _image(target), stage.root, stage.process)
            command = ["ctr", "--address", str(place.socket), "--namespace", "k8s.io", "images", "import", str(tarball)]
            subprocess.run(command, check=True, capture_output=True)
            tarball.unlink()
        yield Engine(cri_grpc.RuntimeServiceStub(channel), folder)
    shutil.rmtree(folder)
