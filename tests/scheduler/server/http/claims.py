"""GPUs of dynamic resource allocation, made by hand: a class, ResourceSlices, claims, and what becomes of a claim."""

from collections.abc import Mapping
from typing import Any

import pytest

from mooring.annotations.inventory import Pf
from mooring.kube.failures import NotFound
from tests.scheduler.conftest import MakePf
from tests.scheduler.server.cluster import Cluster

API = "/apis/resource.k8s.io/v1"
CLAIMS = f"{API}/namespaces/default/resourceclaims"
DRIVER = "gpu.example.com"
PCIE_ROOT = "resource.kubernetes.io/pcieRoot"
# Two PCIe roots, and the annotation of pods whose VFs must lie under those of their claimed devices.
A, B = "pci0000:15", "pci0000:26"
BESIDE = '{"vfs": "root"}'
# How pods name their claim.
NAME = "gpus"


class Claims(Cluster):
    """The objects of ``resource.k8s.io`` on a server."""

    async def publish(self, node: str, devices: Mapping[str, str]) -> None:
        """Make the class, and a node's slice with these devices, each under its PCIe root."""
        cel = {"expression": f'device.driver == "{DRIVER}"'}
        await self._post("deviceclasses", "gpu", {"selectors": [{"cel": cel}]})
        listed = [
            {"name": name, **({"attributes": {PCIE_ROOT: {"string": root}}} if root else {})}
            for name, root in devices.items()
        ]
        await self.publish_slice(node, f"{node}-gpus", node, 1, listed)

    async def publish_slice(self, node: str, name: str, pool: str, count: int, devices: list[dict[str, Any]]) -> None:
        """Make one of the slices of a pool."""
        about = {"name": pool, "generation": 1, "resourceSliceCount": count}
        spec = {"driver": DRIVER, "nodeName": node, "pool": about, "devices": devices}
        await self._post("resourceslices", name, spec)

    async def template(self, name: str, count: int = 1) -> None:
        await self._post("namespaces/default/resourceclaimtemplates", name, {"spec": _spec(count)})

    async def claim(self, name: str, count: int = 1, cel: str = "") -> None:
        await self._post("namespaces/default/resourceclaims", name, _spec(count, cel))

    async def allocate(self, name: str, node: str, *devices: str) -> None:
        """Write what kube-scheduler's plugin DynamicResources writes before it binds a pod."""
        term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
        results = [{"request": NAME, "driver": DRIVER, "pool": node, "device": device} for device in devices]
        allocation = {"devices": {"results": results}, "nodeSelector": {"nodeSelectorTerms": [term]}}
        await self.patch(f"{CLAIMS}/{name}/status", status={"allocation": allocation})

    async def deallocate(self, name: str) -> None:
        await self.patch(f"{CLAIMS}/{name}/status", status={"allocation": None, "reservedFor": None})

    async def devices(self, name: str) -> list[str]:
        """Return the devices that a claim has been allocated."""
        allocation = ((await self.call("GET", f"{CLAIMS}/{name}")).get("status") or {}).get("allocation") or {}
        return [result["device"] for result in (allocation.get("devices") or {}).get("results") or []]

    async def remove(self) -> None:
        """Remove everything, claims that a pod has reserved too; skip the test where v1 is not served."""
        kinds = ("namespaces/default/resourceclaimtemplates", "resourceslices", "deviceclasses")
        try:
            await self.clear(CLAIMS, *(f"{API}/{kind}" for kind in kinds))
        except NotFound:
            pytest.skip("tier 'apiserver': Kubernetes before 1.34 serves no resource.k8s.io/v1")

    async def _post(self, kind: str, name: str, spec: dict[str, Any]) -> None:
        await self.call("POST", f"{API}/{kind}", {"metadata": {"name": name}, "spec": spec})


def pfs_of_two_roots(make_pf: MakePf) -> tuple[Pf, Pf]:
    """Make a PF with one VF under root A and another with two under root B."""
    one = make_pf(0, vfs=1, pci="0000:18:00.0", vf0="0000:18:00.2", pcie=("0000:15:01.0", "0000:16:00.0"))
    two = make_pf(1, vfs=2, pci="0000:29:00.0", vf0="0000:29:00.2", pcie=("0000:26:01.0",), network="rail1")
    return one, two


def claiming(claim: str = "", template: str = "") -> dict[str, Any]:
    """Return what a pod's spec says of the claim that it names, or has made from a template."""
    source = {"resourceClaimName": claim} if claim else {"resourceClaimTemplateName": template}
    return {"resourceClaims": [{"name": NAME, **source}]}


def _spec(count: int, cel: str = "") -> dict[str, Any]:
    wanted: dict[str, Any] = {"deviceClassName": "gpu", "count": count}
    if cel:
        wanted["selectors"] = [{"cel": {"expression": cel}}]
    return {"devices": {"requests": [{"name": NAME, "exactly": wanted}]}}
