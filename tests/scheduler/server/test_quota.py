"""A ResourceQuota on ``rdma-sriov/vf`` counts VFs: on a real kube-apiserver, devcluster's has no quota admission."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mooring.kube.access import load_access
from mooring.kube.client import MERGE_PATCH, Client
from mooring.kube.failures import KubeError
from scheduler.kube.objects import Pod
from scheduler.kube.outcomes import Refused
from scheduler.kube.pod_info import read_pod_info

COUNTED = "requests.rdma-sriov/vf"
FOLDER = "/api/v1/namespaces/quota"
pytestmark = pytest.mark.apiserver


@pytest.fixture
async def real(own_server: Path) -> AsyncIterator[Client]:
    """Talk to a real server in a namespace that has a quota of three VFs."""
    async with Client(load_access(str(own_server)), timeout_s=10.0) as client:
        await _ask(client, "POST", "/api/v1/namespaces", {"metadata": {"name": "quota"}})
        await _ask(client, "POST", f"{FOLDER}/resourcequotas", {"metadata": {"name": "vfs"}, "spec": _hard()})
        # What kube-controller-manager does with a new quota; without a status nothing is admitted.
        status = {"status": {**_hard(), "used": {COUNTED: "0"}}}
        await client.request("PATCH", f"{FOLDER}/resourcequotas/vfs/status", msgspec.json.encode(status), MERGE_PATCH)
        yield client


def _hard() -> dict[str, Any]:
    return {"hard": {COUNTED: "3"}}


async def _ask(client: Client, method: str, path: str, body: dict[str, Any]) -> bytes:
    return bytes(await client.request(method, path, msgspec.json.encode(body)))


async def _create(client: Client, name: str, interfaces: int, limit: int | None) -> Pod:
    limits = {} if limit is None else {"limits": {"rdma-sriov/vf": str(limit)}}
    annotations = {"mooring.dev/interfaces": msgspec.json.encode([{}] * interfaces).decode()}
    metadata = {"name": name, "annotations": annotations}
    spec = {"schedulerName": "mooring", "containers": [{"name": "c", "image": "i", "resources": limits}]}
    return msgspec.json.decode(
        await _ask(client, "POST", f"{FOLDER}/pods", {"metadata": metadata, "spec": spec}), type=Pod
    )


async def test_a_quota_counts_the_vfs_that_pods_get(real: Client) -> None:
    """Limits use it up; a pod with a lower limit than request is not scheduled, one without a limit not counted."""
    assert not isinstance(read_pod_info(await _create(real, "two", 2, 2)), Refused)
    with pytest.raises(KubeError, match=r"exceeded quota: vfs, requested: requests.rdma-sriov/vf=2, used: .*=2"):
        await _create(real, "beyond", 2, 2)
    cheating = read_pod_info(await _create(real, "cheating", 5, 1))
    assert isinstance(cheating, Refused)
    assert "the pod has 5 interface(s), but its containers limit 'rdma-sriov/vf' to 1" in cheating.reason
    assert not isinstance(read_pod_info(await _create(real, "unlimited", 1, None)), Refused)
    quota = msgspec.json.decode(await real.request("GET", f"{FOLDER}/resourcequotas/vfs"))
    assert quota["status"]["used"] == {COUNTED: "3"}
