"""A ResourceQuota on ``rdma-sriov/vf`` counts VFs: on a real kube-apiserver, devcluster's has no quota admission."""

import msgspec
import pytest

from mooring.kube.failures import KubeError
from scheduler.kube.objects import Pod
from scheduler.kube.outcomes import Refused
from scheduler.kube.pod_info import read_pod_info
from tests.scheduler.server.cluster import Cluster

COUNTED = "requests.rdma-sriov/vf"
FOLDER = "/api/v1/namespaces/quota"
HARD = {"hard": {COUNTED: "3"}}
pytestmark = [pytest.mark.apiserver, pytest.mark.parametrize("server", ["real"], indirect=True)]


async def _create(cluster: Cluster, name: str, interfaces: int, limit: int | None) -> Pod:
    limits = {} if limit is None else {"limits": {"rdma-sriov/vf": str(limit)}}
    containers = [{"name": "c", "image": "i", "resources": limits}]
    request = msgspec.json.encode([{}] * interfaces).decode()
    return await cluster.add_pod(name, request, namespace="quota", containers=containers)


async def test_a_quota_counts_the_vfs_that_pods_get(cluster: Cluster) -> None:
    """Limits use it up; a pod with a lower limit than request is not scheduled, one without a limit not counted."""
    await cluster.call("POST", "/api/v1/namespaces", {"metadata": {"name": "quota"}})
    await cluster.call("POST", f"{FOLDER}/resourcequotas", {"metadata": {"name": "vfs"}, "spec": HARD})
    # What kube-controller-manager does with a new quota; without a status nothing is admitted.
    await cluster.patch(f"{FOLDER}/resourcequotas/vfs/status", status=HARD | {"used": {COUNTED: "0"}})
    assert not isinstance(read_pod_info(await _create(cluster, "two", 2, 2)), Refused)
    with pytest.raises(KubeError, match=r"exceeded quota: vfs, requested: requests.rdma-sriov/vf=2, used: .*=2"):
        await _create(cluster, "beyond", 2, 2)
    cheating = read_pod_info(await _create(cluster, "cheating", 5, 1))
    assert isinstance(cheating, Refused)
    assert "the pod has 5 interface(s), but its containers limit 'rdma-sriov/vf' to 1" in cheating.reason
    assert not isinstance(read_pod_info(await _create(cluster, "unlimited", 1, None)), Refused)
    quota = await cluster.call("GET", f"{FOLDER}/resourcequotas/vfs")
    assert quota["status"]["used"] == {COUNTED: "3"}
