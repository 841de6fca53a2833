"""GPUs of dynamic resource allocation, made by hand: a class, ResourceSlices, claims, and what becomes of a claim."""

from collections.abc import Mapping
from typing import Any

import pytest

from mooring.annotations.inventory import Pf
from mooring.kube.client import Client
from mooring.kube.failures import NotFound
from tests.scheduler.conftest import MakePf
from tests.scheduler.server.cluster import Cluster

DRIVER = "gpu.example.com"
PCIE_ROOT = "resource.kubernetes.io/pcieRoot"
# Two PCIe roots, and the annotation of pods whose VFs must lie under those of their claimed devices.
A, B = "pci0000:15", "pci0000:26"
BESIDE = '{"vfs": "root"}'
# How pods name their claim.
NAME = "gpus"


class Claims:
    """The objects of ``resource.k8s.io`` on a server."""

    def __init__(self, client: Client) -> None:
        self._cluster = Cluster(client)
        self._api = "/apis/resource.k8s.io/v1"
        self._claims = f"{self._api}/namespaces/default/resourceclaims"

    async def publish(self, node: str, devices: Mapping[str, str]) -> None:
        """Make the class, and a node's slice with these devices, each under its PCIe root."""
        cel = {"expression": f'device.driver == "{DRIVER}"'}
        await self._post("deviceclasses", {"metadata": {"name": "gpu"}, "spec": {"selectors": [{"cel": cel}]}})
        pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
        listed = [_device(name, root) for name, root in devices.items()]
        spec = {"driver": DRIVER, "nodeName": node, "pool": pool, "devices": listed}
        await self._post("resourceslices", {"metadata": {"name": f"{node}-gpus"}, "spec": spec})

    async def publish_slices(self, node: str, count: int) -> None:
        """Make further slices of a node, each with one device without attributes."""
        pool = {"name": f"{node}-more", "generation": 1, "resourceSliceCount": count}
        for index in range(count):
            spec = {"driver": DRIVER, "nodeName": node, "pool": pool, "devices": [_device(f"more-{index}", "")]}
            await self._post("resourceslices", {"metadata": {"name": f"{node}-{index}"}, "spec": spec})

    async def template(self, name: str, count: int = 1) -> None:
        await self._post("namespaces/default/resourceclaimtemplates", _named(name, {"spec": _spec(count)}))

    async def claim(self, name: str, count: int = 1, cel: str = "") -> None:
        await self._post("namespaces/default/resourceclaims", _named(name, _spec(count, cel)))

    async def allocate(self, name: str, node: str, *devices: str) -> None:
        """Write what kube-scheduler's plugin DynamicResources writes before it binds a pod."""
        term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
        results = [{"request": NAME, "driver": DRIVER, "pool": node, "device": device} for device in devices]
        allocation = {"devices": {"results": results}, "nodeSelector": {"nodeSelectorTerms": [term]}}
        await self._cluster.patch(f"{self._claims}/{name}/status", status={"allocation": allocation})

    async def deallocate(self, name: str) -> None:
        await self._cluster.patch(f"{self._claims}/{name}/status", status={"allocation": None, "reservedFor": None})

    async def devices(self, name: str) -> list[str]:
        """Return the devices that a claim has been allocated."""
        claim = await self._cluster.call("GET", f"{self._claims}/{name}")
        allocation = (claim.get("status") or {}).get("allocation") or {}
        return [result["device"] for result in (allocation.get("devices") or {}).get("results") or []]

    async def clear(self) -> None:
        """Remove everything, claims that a pod has reserved too; skip the test where v1 is not served."""
        try:
            claims = (await self._cluster.call("GET", self._claims))["items"]
        except NotFound:
            pytest.skip("tier 'apiserver': Kubernetes before 1.34 serves no resource.k8s.io/v1")
        for name in [claim["metadata"]["name"] for claim in claims]:
            await self._cluster.patch(f"{self._claims}/{name}", metadata={"finalizers": None})
        kinds = "namespaces/default/resourceclaims", "namespaces/default/resourceclaimtemplates"
        for kind in (*kinds, "resourceslices", "deviceclasses"):
            await self._cluster.call("DELETE", f"{self._api}/{kind}")

    async def _post(self, kind: str, document: dict[str, Any]) -> None:
        await self._cluster.call("POST", f"{self._api}/{kind}", document)


def pfs_of_two_roots(make_pf: MakePf) -> tuple[Pf, Pf]:
    """Make a PF with one VF under root A and another with two under root B."""
    one = make_pf(0, vfs=1, pci="0000:18:00.0", vf0="0000:18:00.2", pcie=("0000:15:01.0", "0000:16:00.0"))
    two = make_pf(1, vfs=2, pci="0000:29:00.0", vf0="0000:29:00.2", pcie=("0000:26:01.0",), network="rail1")
    return one, two


def claiming(claim: str = "", template: str = "") -> dict[str, Any]:
    """Return what a pod's spec says of the claim that it names, or has made from a template."""
    source = {"resourceClaimName": claim} if claim else {"resourceClaimTemplateName": template}
    return {"resourceClaims": [{"name": NAME, **source}]}


def _device(name: str, root: str) -> dict[str, Any]:
    return {"name": name, **({"attributes": {PCIE_ROOT: {"string": root}}} if root else {})}


def _named(name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": spec}


def _spec(count: int, cel: str = "") -> dict[str, Any]:
    wanted: dict[str, Any] = {"deviceClassName": "gpu", "count": count}
    if cel:
        wanted["selectors"] = [{"cel": {"expression": cel}}]
    return {"devices": {"requests": [{"name": NAME, "exactly": wanted}]}}
