"""The same VFs as devices of dynamic resource allocation (resource.k8s.io/v1): slices, classes, and a claim a pod.

A node's pool lists the VFs of its inventory, a device a VF. Where rates count too, its PFs come first. Many claims may
share a PF up to the rate on offer (consumable capacity), and a claim requests beside each VF its rate of the same PF.
Selectors and the order of devices are chosen to keep the allocator's search short. No kube-controller-manager makes
claims from templates or removes them here, so the claims exist before the pods, and the benchmark removes their
finalizers.
"""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

from bench.loads import scheduler_load as load
from bench.served.served_cluster import clear, few_at_once, items, send
from mooring import names
from mooring.annotations.inventory import Inventory, Pf, read_inventory
from mooring.annotations.request import read_request
from mooring.kube.client import Client

_API = "/apis/resource.k8s.io/v1"
_CLASSES, _SLICES = f"{_API}/deviceclasses", f"{_API}/resourceslices"
_CLAIMS = f"{_API}/namespaces/default/resourceclaims"
# Of the benchmark alone: Mooring has no such driver.
_DRIVER = "vf.bench.mooring.dev"
_VF, _PF = "vf", "pf"
# A PF's capacity, in Mb/s.
_RATE = "rate"
# The API's limit.
_DEVICES_A_SLICE = 128


@dataclass(frozen=True, slots=True)
class Devices:
    """The VFs as devices: each class's CEL, a node's devices, a pod's claim."""

    classes: Mapping[str, str]
    pool: Callable[[Inventory], list[load.Json]]
    claim: Callable[[load.Json], load.Json]

    @asynccontextmanager
    async def published(self, client: Client, nodes: int, pods: int) -> AsyncIterator[None]:
        """Publish the nodes' devices and an unallocated claim a pod; remove them all at the end."""
        classes = (_class(name, cel) for name, cel in self.classes.items())
        slices = (each for number in range(nodes) for each in self._slices(load.node(number)))
        claims = (self.claim(load.mixed_pod(number)) for number in range(pods))
        try:
            for path, documents in ((_CLASSES, classes), (_SLICES, slices), (_CLAIMS, claims)):
                await few_at_once(send(client, "POST", path, document) for document in documents)
            yield
        finally:
            await _withdraw(client)

    def _slices(self, node: load.Json) -> list[load.Json]:
        devices = self.pool(read_inventory(node["metadata"]["annotations"][names.INVENTORY]))
        parts = [devices[first : first + _DEVICES_A_SLICE] for first in range(0, len(devices), _DEVICES_A_SLICE)]
        return [_slice(node["metadata"]["name"], index, len(parts), part) for index, part in enumerate(parts)]


async def _withdraw(client: Client) -> None:
    paths = [f"{_CLAIMS}/{claim['metadata']['name']}" for claim in await items(client, _CLAIMS)]
    await few_at_once(send(client, "PATCH", path, {"metadata": {"finalizers": None}}) for path in paths)
    await clear(client, _CLAIMS, _SLICES, _CLASSES)


def _class(name: str, cel: str) -> load.Json:
    return {"metadata": {"name": name}, "spec": {"selectors": [{"cel": {"expression": cel}}]}}


def _slice(node: str, index: int, slices: int, devices: list[load.Json]) -> load.Json:
    pool = {"name": node, "generation": 1, "resourceSliceCount": slices}
    spec = {"driver": _DRIVER, "nodeName": node, "pool": pool, "devices": devices}
    return {"metadata": {"name": f"{node}-{index}"}, "spec": spec}


def _vfs(inventory: Inventory) -> list[load.Json]:
    return [_vf(pf, index) for pf in inventory.pfs for index in pf.vfs]


def _pfs_and_vfs(inventory: Inventory) -> list[load.Json]:
    return [_pf(pf) for pf in inventory.pfs] + _vfs(inventory)


def _vf(pf: Pf, index: int) -> load.Json:
    own: load.Json = {"vf": {"int": index}, "pciAddress": {"string": pf.vf_pci(index)}}
    return {"name": f"{pf.name}-vf{index}", "attributes": {**_attributes(pf, _VF), **own}}


def _pf(pf: Pf) -> load.Json:
    capacity = {_RATE: {"value": str(pf.offer_mbps)}}
    attributes = _attributes(pf, _PF)
    return {"name": pf.name, "attributes": attributes, "capacity": capacity, "allowMultipleAllocations": True}


def _attributes(pf: Pf, kind: str) -> load.Json:
    texts = {"kind": kind, "pfName": pf.name, "linkType": pf.link, "network": pf.network}
    return {key: {"string": text} for key, text in texts.items()}


def _vf_claim(pod: load.Json) -> load.Json:
    wanted = {"deviceClassName": _VF, "count": load.VFS_A_POD}
    return _claim(pod, {"requests": [{"name": "vfs", "exactly": wanted}]})


def _rated_claim(pod: load.Json) -> load.Json:
    """Request each VF, and if it has a rate, that rate of its PF."""
    wanted = read_request(pod["metadata"]["annotations"])
    requests: list[load.Json] = []
    same: list[load.Json] = []
    for number, vf in enumerate(wanted.interfaces if wanted else ()):
        if vf.min_tx_rate:
            capacity = {"requests": {_RATE: str(vf.min_tx_rate)}}
            requests.append({"name": f"pf{number}", "exactly": {"deviceClassName": _PF, "capacity": capacity}})
            same.append({"requests": [f"pf{number}", f"vf{number}"], "matchAttribute": f"{_DRIVER}/pfName"})
        requests.append({"name": f"vf{number}", "exactly": {"deviceClassName": _VF}})
    return _claim(pod, {"requests": requests, "constraints": same})


def _claim(pod: load.Json, devices: load.Json) -> load.Json:
    return {"metadata": {"name": pod["metadata"]["name"]}, "spec": {"devices": devices}}


_OURS = f'device.driver == "{_DRIVER}"'
_OF_KIND = {kind: f'{_OURS} && device.attributes["{_DRIVER}"].kind == "{kind}"' for kind in (_VF, _PF)}
VFS = Devices({_VF: _OURS}, _vfs, _vf_claim)
VFS_WITH_RATES = Devices(_OF_KIND, _pfs_and_vfs, _rated_claim)


def claiming(pod: load.Json) -> load.Json:
    """Return a pod that names its claim."""
    spec = pod["spec"]
    container = spec["containers"][0]
    resources = {**container["resources"], "claims": [{"name": "vfs"}]}
    mentioned = [{"name": "vfs", "resourceClaimName": pod["metadata"]["name"]}]
    return {**pod, "spec": {**spec, "containers": [{**container, "resources": resources}], "resourceClaims": mentioned}}


async def allocated(client: Client) -> list[str]:
    """Return every VF that a claim's status allocates, as ``<node>/<device>``."""
    return [
        f"{result['pool']}/{result['device']}"
        for claim in await items(client, _CLAIMS)
        if claim["status"].get("reservedFor")
        for result in claim["status"]["allocation"]["devices"]["results"]
        if not result.get("shareID")
    ]
