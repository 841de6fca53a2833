"""A cluster without Mooring: hosts with roots of their own, pods that run, and nothing left behind it."""

import shutil
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

from devcluster.without_mooring.cluster import ClusterWithoutMooring, kept
from mooring.kube.access import load_access
from mooring.kube.client import Client
from mooring.kube.failures import KubeError
from tests.support.polling import eventually

_PODS = "/api/v1/namespaces/default/pods"


@pytest.fixture
def cluster() -> Iterator[ClusterWithoutMooring]:
    """One host; a socket's path has 108 characters at the most."""
    found = ClusterWithoutMooring(Path(tempfile.mkdtemp(prefix="mooring-", dir="/tmp")), ("bare",))
    try:
        found.start()
        yield found
    finally:
        found.stop()
        shutil.rmtree(found.root, ignore_errors=True)


async def _until(found: Callable[[], Awaitable[Any]]) -> Any:
    async def answered() -> Any:
        with suppress(KubeError):
            return await found()
        return None

    return await eventually(answered)


def _pod(script: str) -> bytes:
    container = {"name": "c", "image": "busybox", "command": ["sh", "-c", script]}
    spec = {"terminationGracePeriodSeconds": 1, "containers": [container]}
    return msgspec.json.encode({"metadata": {"name": "p"}, "spec": spec})


@pytest.mark.root
@pytest.mark.containerd
async def test_a_host_has_a_root_and_pods_of_its_own_and_leaves_nothing(cluster: ClusterWithoutMooring) -> None:
    """No file of Mooring's is there; a pod is bound, pulled and run as its account, and its log is served."""
    assert cluster.on("bare", "hostname").stdout == "bare\n"
    there = cluster.on("bare", "ls", "/etc/cni/net.d", "/opt", "/opt/cni/bin", "/run/containerd/containerd.sock").stdout
    assert "10-pods.conflist" in there
    assert "mooring" not in there
    assert kept(cluster.root, "bare", "true")[0] == "nsenter"
    async with Client(load_access(str(cluster.kubeconfig))) as client:

        async def phase() -> bool:
            pod = msgspec.json.decode(await client.request("GET", f"{_PODS}/p"))
            return bool(pod["status"]["phase"] == "Running")

        async def log() -> bytes:
            return await client.request("GET", f"{_PODS}/p/log")

        script = (
            "cat /var/run/secrets/kubernetes.io/serviceaccount/namespace; echo; echo $KUBERNETES_SERVICE_HOST; sleep 60"
        )
        # The account of a new namespace is made a moment later.
        await _until(lambda: client.request("POST", _PODS, _pod(script)))
        await _until(phase)
        assert await _until(log) == b"default\n10.96.0.1\n"
    cluster.stop()
    own = str(cluster.root).encode()
    running = [path for path in Path("/proc").glob("[0-9]*/cmdline") if own in _read(path)]
    assert running == []
    assert not cluster.host("bare").layout.netns.exists()


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
