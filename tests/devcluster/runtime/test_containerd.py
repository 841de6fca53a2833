"""The containerd launcher on the real thing: pods run in it, and nothing of it is left behind."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from cri_api.v1 import api_pb2 as cri
from cri_api.v1 import api_pb2_grpc as cri_grpc

from devcluster.runtime import images, mounts, processes
from devcluster.runtime.containerd import Containerd, Place, RuntimeStartError, configuration, running

Configure = Callable[..., Any]
pytestmark = pytest.mark.containerd


@pytest.fixture(scope="module")
def image_tarball(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return images.write_images(tmp_path_factory.mktemp("images") / "images.tar")


@pytest.fixture
def place(tmp_path: Path, write_conflist: Configure, bridge: dict[str, object], cni_plugins: Path) -> Place:
    write_conflist(tmp_path / "conf", bridge)
    return Place(tmp_path / "containerd", cni_plugins, tmp_path / "conf")


def _remains(place: Place) -> tuple[list[Path], list[int]]:
    return mounts.mounts_below(place.folder), processes.started_with("-address", str(place.socket))


def _run_pod(stub: Any, config: Any) -> str:
    return str(stub.RunPodSandbox(cri.RunPodSandboxRequest(config=config), timeout=60).pod_sandbox_id)


def test_a_container_runs_with_its_device_and_nothing_is_left(
    place: Place, image_tarball: Path, tmp_path: Path, sandbox_config: Configure, container_config: Configure
) -> None:
    """RunPodSandbox, CreateContainer, StartContainer and ExecSync work; stop leaves no mount, process or cgroup."""
    node = tmp_path / "uverbs0"
    os.mknod(node, 0o20600, os.makedev(231, 192))
    with running(place, image_tarball), grpc.insecure_channel(place.endpoint) as channel:
        stub, config = cri_grpc.RuntimeServiceStub(channel), sandbox_config("p1")
        sandbox = _run_pod(stub, config)
        creation = cri.CreateContainerRequest(
            pod_sandbox_id=sandbox, config=container_config("main", devices=(node,)), sandbox_config=config
        )
        container = stub.CreateContainer(creation, timeout=60).container_id
        stub.StartContainer(cri.StartContainerRequest(container_id=container), timeout=60)
        listing = cri.ExecSyncRequest(container_id=container, cmd=["ls", "/dev/infiniband"], timeout=10)
        assert stub.ExecSync(listing, timeout=60).stdout == b"uverbs0\n"
        assert _remains(place) != ([], [])
    assert _remains(place) == ([], [])
    assert list(Path("/sys/fs/cgroup").rglob(f"k8s.io/{sandbox}")) == []


def test_stop_sweeps_up_after_a_crash(place: Place, image_tarball: Path, sandbox_config: Configure) -> None:
    """A daemon that died leaves its pods running; stop ends them and detaches their mounts without it."""
    containerd = Containerd(place, image_tarball)
    containerd.start()
    with grpc.insecure_channel(place.endpoint) as channel:
        _run_pod(cri_grpc.RuntimeServiceStub(channel), sandbox_config("p1"))
    containerd.kill()
    assert _remains(place)[1] != []
    containerd.stop()
    assert _remains(place) == ([], [])


def test_pods_outlive_a_restart_of_the_daemon(place: Place, image_tarball: Path, sandbox_config: Configure) -> None:
    """A killed daemon that is started again knows its sandboxes."""
    containerd = Containerd(place, image_tarball)
    try:
        containerd.start()
        with grpc.insecure_channel(place.endpoint) as channel:
            sandbox = _run_pod(cri_grpc.RuntimeServiceStub(channel), sandbox_config("p1"))
        containerd.kill()
        containerd.start()
        with grpc.insecure_channel(place.endpoint) as channel:
            stub = cri_grpc.RuntimeServiceStub(channel)
            (listed,) = stub.ListPodSandbox(cri.ListPodSandboxRequest(), timeout=60).items
        assert (listed.id, listed.state) == (sandbox, cri.SANDBOX_READY)
    finally:
        containerd.stop()


def test_containerd_runs_in_the_network_namespace_given(
    place: Place, image_tarball: Path, netns: Path, sandbox_config: Configure, bridge: dict[str, object]
) -> None:
    """The CNI chain works on the host's namespace that was named: the pod's bridge is there, not here."""
    inside = Place(place.folder, place.cni_bin, place.cni_conf, netns)
    with running(inside, image_tarball) as containerd, grpc.insecure_channel(inside.endpoint) as channel:
        _run_pod(cri_grpc.RuntimeServiceStub(channel), sandbox_config("p1"))
        devices = Path(f"/proc/{containerd.pid}/net/dev").read_text()
        assert str(bridge["bridge"]) in devices
        assert not Path(f"/sys/class/net/{bridge['bridge']}").exists()


def test_a_containerd_that_cannot_start_says_why(tmp_path: Path, image_tarball: Path) -> None:
    """The error names the folder and carries the end of the log."""
    too_long = Place(tmp_path / ("x" * 120), tmp_path, tmp_path)
    with pytest.raises(RuntimeStartError, match="does not answer"):
        Containerd(too_long, image_tarball).start()


def test_configuration_keeps_out_of_shared_folders(tmp_path: Path) -> None:
    """Every path of the configuration lies in the folders given, also where a path holds a quote."""
    text = configuration(Place(tmp_path / 'a"b', tmp_path / "bin", tmp_path / "conf"), "native")
    assert f'root = "{tmp_path}/a\\"b/root"' in text
    assert '"io.containerd.internal.v1.opt"' in text
