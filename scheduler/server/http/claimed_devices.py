"""Read a pod's resource claims from the API server, and the location of their allocated devices.

Nothing is watched or cached. That costs a request for each claim and each driver, only for pods whose VFs must be near
claimed devices.
"""

import asyncio
from typing import TypeVar

import msgspec

from mooring.kube.client import Client
from mooring.kube.failures import NotFound
from scheduler.extender.resource_claims import (
    MOST_DRIVERS,
    MOST_SLICES,
    Claimed,
    ResourceClaim,
    ResourceSlice,
    ResourceSlices,
    allocated_devices,
    claim_names,
    roots_of,
    title_of,
)
from scheduler.kube.objects import Pod
from scheduler.kube.refused import Refused

T = TypeVar("T")
_API = "/apis/resource.k8s.io/v1"
_UNALLOCATED = "the pod's VFs must be near its claimed devices, but its resource claims are not allocated"


class _Unfound(Exception):  # noqa: N818 - an outcome, in words for the pod's owner
    """Why a claim or its devices cannot be read."""


async def read_claimed(api: Client, pod: Pod, node: str) -> Claimed | Refused:
    """Return a pod's devices on ``node``, or why they are unknown; raise KubeError."""
    names = claim_names(pod)
    if isinstance(names, Refused):
        return names
    paths = [f"{_API}/namespaces/{pod.metadata.namespace}/resourceclaims/{name}" for name in names]
    try:
        devices = allocated_devices(await asyncio.gather(*(_get(api, path, ResourceClaim) for path in paths)))
        if devices is None:
            return Refused(_UNALLOCATED)
        slices = await _slices(api, sorted({device.driver for device in devices}), node)
    except _Unfound as why:
        return Refused(str(why))
    roots = roots_of(title_of(names), devices, slices, node)
    return roots if isinstance(roots, Refused) else Claimed(title_of(names), roots)


async def _slices(api: Client, drivers: list[str], node: str) -> list[ResourceSlice]:
    if len(drivers) > MOST_DRIVERS:
        raise _Unfound(f"devices of {len(drivers)} drivers are claimed; the limit is {MOST_DRIVERS}")
    slices: list[ResourceSlice] = []
    for driver in drivers:
        # Source: ResourceSliceSelectorNodeName, ResourceSliceSelectorDriver in k8s.io/api/resource/v1/types.go.
        params = {"fieldSelector": f"spec.nodeName={node},spec.driver={driver}", "limit": str(MOST_SLICES)}
        slice_list = await _get(api, f"{_API}/resourceslices", ResourceSlices, params)
        if slice_list.metadata.continue_:
            raise _Unfound(f"driver {driver!r} has more than {MOST_SLICES} ResourceSlices of node {node!r}")
        slices += slice_list.items
    return slices


async def _get(api: Client, path: str, kind: type[T], params: dict[str, str] | None = None) -> T:
    try:
        return msgspec.json.decode(await api.request("GET", path, params=params), type=kind)
    except NotFound:
        raise _Unfound(f"{path.removeprefix('/apis/')} does not exist") from None
    except msgspec.MsgspecError as unreadable:
        raise _Unfound(f"{path.removeprefix('/apis/')} cannot be read: {unreadable}") from unreadable
