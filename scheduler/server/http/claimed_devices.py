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
    Allocation,
    ClaimedDevices,
    ResourceClaim,
    ResourceSlice,
    ResourceSlices,
    claim_names,
    locate,
    read_allocation,
)
from scheduler.kube.objects import Pod
from scheduler.kube.outcomes import Refused

T = TypeVar("T")
_API = "/apis/resource.k8s.io/v1"
# Slices in one answer; one of the largest takes milliseconds to decode.
_PAGE = 2


class _Refusal(Exception):  # noqa: N818 - an outcome, in words for the pod's owner
    """Why a claim or its devices cannot be read."""


async def read_claimed_devices(api: Client, pod: Pod, node: str | None = None) -> ClaimedDevices | Refused | None:
    """Return a pod's devices on ``node``, or where they are allocated, or why they are unknown.

    Return None while a claim is not allocated, or without ``node`` if the allocation names no node. Raise KubeError.
    """
    names = claim_names(pod)
    if isinstance(names, Refused):
        return names
    paths = [f"{_API}/namespaces/{pod.metadata.namespace}/resourceclaims/{name}" for name in names]
    try:
        allocation = read_allocation(await asyncio.gather(*(_get(api, path, ResourceClaim) for path in paths)))
        if allocation is None or (node_name := node or allocation.node) is None:
            return None
        if allocation.node not in (None, node_name):
            return Refused(f"{allocation.title} has devices on node {allocation.node!r}")
        return locate(allocation, await _slices(api, allocation, node_name), node_name)
    except _Refusal as refusal:
        return Refused(str(refusal))


async def _slices(api: Client, allocation: Allocation, node: str) -> list[ResourceSlice]:
    if len(allocation.drivers) > MOST_DRIVERS:
        raise _Refusal(f"devices of {len(allocation.drivers)} drivers are claimed; the limit is {MOST_DRIVERS}")
    return [part for driver in allocation.drivers for part in await _slices_of(api, driver, node)]


async def _slices_of(api: Client, driver: str, node: str) -> list[ResourceSlice]:
    # Source: ResourceSliceSelectorNodeName, ResourceSliceSelectorDriver in k8s.io/api/resource/v1/types.go.
    params = {"fieldSelector": f"spec.nodeName={node},spec.driver={driver}", "limit": str(_PAGE)}
    slices: list[ResourceSlice] = []
    while True:
        page = await _get(api, f"{_API}/resourceslices", ResourceSlices, params)
        slices += page.items
        if not page.metadata.continue_:
            return slices
        if len(slices) >= MOST_SLICES:
            raise _Refusal(f"driver {driver!r} has more than {MOST_SLICES} ResourceSlices of node {node!r}")
        params["continue"] = page.metadata.continue_


async def _get(api: Client, path: str, kind: type[T], params: dict[str, str] | None = None) -> T:
    try:
        return msgspec.json.decode(await api.request("GET", path, params=params), type=kind)
    except NotFound:
        raise _Refusal(f"{path.removeprefix('/apis/')} does not exist") from None
    except msgspec.MsgspecError as unreadable:
        raise _Refusal(f"{path.removeprefix('/apis/')} cannot be read: {unreadable}") from unreadable
