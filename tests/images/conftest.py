"""The images of a release in a private containerd, of each version that is tried."""

import json
import shutil
import subprocess
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest
from cri_api.v1 import api_pb2 as cri
from cri_api.v1 import api_pb2_grpc as cri_grpc

from devcluster.runtime import images
from devcluster.runtime.containerd import Place, running
from tests.support.built_release import built_release

_PYTHON = "/mooring/python/bin/python3.11"
_CALL_S = 90


@dataclass(frozen=True, slots=True)
class Engine:
    """A containerd that has the images; pods are on its own network, which is this machine's."""

    stub: Any
    logs: Path
    images: Mapping[str, str]

    def start(
        self,
        target: str,
        arguments: Sequence[str],
        mounts: Mapping[Path, Path] | None = None,
        command: Sequence[str] = (),
    ) -> str:
        """Start an image in a pod of its own, without rights and on a read-only root; return its id.

        Without a command it is the image's entrypoint.
        """
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
            image=cri.ImageSpec(image=self.images[target]),
            command=command,
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
        request = cri.ExecSyncRequest(container_id=container, cmd=[_PYTHON, "-I", "-c", code], timeout=20)
        answer = self.stub.ExecSync(request, timeout=_CALL_S)
        return str((answer.stdout + answer.stderr).decode()).strip()

    def exit_code(self, container: str) -> int | None:
        """Return the exit status of a container, None while it runs."""
        request = cri.ContainerStatusRequest(container_id=container)
        status = self.stub.ContainerStatus(request, timeout=_CALL_S).status
        return int(status.exit_code) if status.state == cri.CONTAINER_EXITED else None

    def log(self, target: str) -> str:
        return (self.logs / f"{target}.log").read_text()


def _imported(archive: Path, place: Place) -> str:
    """Import an archive as the pages do; return the image's name."""
    command = ["ctr", "--address", str(place.socket), "--namespace", "k8s.io", "images", "import", str(archive)]
    subprocess.run(command, env=place.environment, check=True, capture_output=True)
    with tarfile.open(archive) as layout:
        index = layout.extractfile("index.json")
        assert index is not None
        return str(json.load(index)["manifests"][0]["annotations"]["io.containerd.image.name"])


@pytest.fixture(scope="session")
def archives() -> Mapping[str, Path]:
    """Return the images' archives for this machine's architecture, by the images' names."""
    return {path.name.rpartition("-")[0]: path for path in built_release().glob("*.oci.tar")}


@pytest.fixture(scope="module")
def engine(
    archives: Mapping[str, Path], programs: Path | None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Engine]:
    """A containerd that has imported the images."""
    folder = tmp_path_factory.mktemp("engine")
    place = Place(folder / "containerd", folder / "bin", folder / "conf", programs=programs)
    with running(place, images.write_images(folder / "images.tar")), grpc.insecure_channel(place.endpoint) as channel:
        names = {name: _imported(archive, place) for name, archive in archives.items()}
        yield Engine(cri_grpc.RuntimeServiceStub(channel), folder, names)
    shutil.rmtree(folder)
