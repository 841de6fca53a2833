"""Read a pod's resource claims from the API server, and the location of their allocated devices.

Nothing is watched or cached. That costs a request for each claim and each driver, only for pods whose VFs must be near
claimed devices.
"""

import asyncio
from typing import TypeVar

import msgspec

from mooring.kube.client import Client
from mooring.kube.failures import NotFound
from scheduler.extender import resource_claims
from scheduler.extender.resource_claims import (
    MOST_DRIVERS,
    MOST_SLICES,
    Allocation,
    Claimed,
    ResourceClaim,
    ResourceSlice,
    ResourceSlices,
)
from scheduler.kube.objects import Pod
from scheduler.kube.outcomes import Refused

T = TypeVar("T")
_API = "/apis/resource.k8s.io/v1"
_SLICES_AT_ONCE = 2


class _Unfound(Exception):  # noqa: N818 - an outcome, in words for the pod's owner
    """Why a claim or its devices cannot be read."""


async def read_claimed(api: Client, pod: Pod, node: str | None = None) -> Claimed | Refused | None:
    """Return a pod's devices on ``node``, or where they are allocated, or why they are unknown.

    Return None while a claim is not allocated, or without ``node`` if the allocation names no node. Raise KubeError.
    """
    names = resource_claims.claim_names(pod)
    if isinstance(names, Refused):
        return names
    paths = [f"{_API}/namespaces/{pod.metadata.namespace}/resourceclaims/{name}" for name in names]
    try:
        allocation = resource_claims.allocated(
            await asyncio.gather(*(_get(api, path, ResourceClaim) for path in paths))
        )
        if allocation is None or (node_name := node or allocation.node) is None:
            return None
        if allocation.node not in (None, node_name):
            return Refused(f"{allocation.title} has devices on node {allocation.node!r}")
        slices = await _slices(api, allocation, node_name)
    except _Unfound as why:
        return Refused(str(why))
    roots = resource_claims.roots_of(allocation, slices, node_name)
    return roots if isinstance(roots, Refused) else Claimed(allocation.title, node_name, roots)


async def _slices(api: Client, allocation: Allocation, node: str) -> list[ResourceSlice]:
    if len(allocation.drivers) > MOST_DRIVERS:
        raise _Unfound(f"devices of {len(allocation.drivers)} drivers are claimed; the limit is {MOST_DRIVERS}")
    slices: list[ResourceSlice] = []
    for driver in allocation.drivers:
        slices += await _slices_of(api, driver, node)
    return slices


async def _slices_of(api: Client, driver: str, node: str) -> list[ResourceSlice]:
    """Return a driver's slices of a node; few at a time, since one of the largest takes milliseconds to decode."""
    # Source: ResourceSliceSelectorNodeName, ResourceSliceSelectorDriver in k8s.io/api/resource/v1/types.go.
    params = {"fieldSelector": f"spec.nodeName={node},spec.driver={driver}", "limit": str(_SLICES_AT_ONCE)}
    slices: list[ResourceSlice] = []
    while True:
        slice_list = await _get(api, f"{_API}/resourceslices", ResourceSlices, params)
        slices += slice_list.items
        if not slice_list.metadata.continue_:
            return slices
        if len(slices) >= MOST_SLICES:
            raise _Unfound(f"driver {driver!r} has more than {MOST_SLICES} ResourceSlices of node {node!r}")
        params["continue"] = slice_list.metadata.continue_


async def _get(api: Client, path: str, kind: type[T], params: dict[str, str] | None = None) -> T:
    try:
        return msgspec.json.decode(await api.request("GET", path, params=params), type=kind)
    except NotFound:
        raise _Unfound(f"{path.removeprefix('/apis/')} does not exist") from None
    except msgspec.MsgspecError as unreadable:
        raise _Unfound(f"{path.removeprefix('/apis/')} cannot be read: {unreadable}") from unreadable
