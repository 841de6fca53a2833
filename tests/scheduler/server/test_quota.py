"""A ResourceQuota on ``rdma-sriov/vf`` counts VFs: on a real kube-apiserver, devcluster's has no quota admission."""

import msgspec
import pytest

from mooring import names
from mooring.kube.failures import KubeError
from tests.scheduler.server.cluster import Cluster

COUNTED = "requests.rdma-sriov/vf"
FOLDER = "/api/v1/namespaces/quota"
HARD = {"hard": {COUNTED: "3"}}
pytestmark = [pytest.mark.apiserver, pytest.mark.parametrize("server", ["real"], indirect=True)]


async def _create(cluster: Cluster, name: str, interfaces: int, **limits: str) -> None:
    containers = [{"name": "c", "image": "i", "resources": {"limits": limits}}]
    request = msgspec.json.encode([{}] * interfaces).decode()
    await cluster.add_pod(name, request, namespace="quota", containers=containers)


async def test_a_quota_counts_the_vfs_that_pods_get(cluster: Cluster) -> None:
    """Limits use it up, which `read_pod_info` compares with the request; a pod without a limit is not counted."""
    await cluster.call("POST", "/api/v1/namespaces", {"metadata": {"name": "quota"}})
    await cluster.call("POST", f"{FOLDER}/resourcequotas", {"metadata": {"name": "vfs"}, "spec": HARD})
    # What kube-controller-manager does with a new quota; without a status nothing is admitted.
    await cluster.patch(f"{FOLDER}/resourcequotas/vfs/status", status=HARD | {"used": {COUNTED: "0"}})
    await _create(cluster, "two", 2, **{names.RIT_VFS: "2"})
    with pytest.raises(KubeError, match=r"exceeded quota: vfs, requested: requests.rdma-sriov/vf=2, used: .*=2"):
        await _create(cluster, "beyond", 2, **{names.RIT_VFS: "2"})
    await _create(cluster, "one", 5, **{names.RIT_VFS: "1"})
    await _create(cluster, "unlimited", 1)
    quota = await cluster.call("GET", f"{FOLDER}/resourcequotas/vfs")
    assert quota["status"]["used"] == {COUNTED: "3"}
