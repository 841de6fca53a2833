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
    VERSIONS,
    Allocation,
    ApiGroup,
    Claimed,
    ResourceClaim,
    ResourceSlice,
    ResourceSlices,
)
from scheduler.kube.objects import Pod
from scheduler.kube.refused import Refused

T = TypeVar("T")
_GROUP = "/apis/resource.k8s.io"
_SLICES_AT_ONCE = 2


class _Unfound(Exception):  # noqa: N818 - an outcome, in words for the pod's owner
    """Why a claim or its devices cannot be read."""


class _NotThereError(_Unfound):
    """The object at a path does not exist."""


class ClaimedDevices:
    """The claimed devices of pods; the served version of the API is looked up once, and again after a miss."""

    def __init__(self, api: Client) -> None:
        self._api = api
        self._version = ""

    async def of(self, pod: Pod, node: str | None = None) -> Claimed | Refused | None:
        """Return a pod's devices on ``node``, or where they are allocated, or why they are unknown.

        Return None while a claim is not allocated, or without ``node`` if the allocation names no node. Raise
        KubeError.
        """
        try:
            return await self._of(pod, node)
        except _Unfound as why:
            # The version may no longer be served.
            self._version = ""
            return Refused(str(why))

    async def _of(self, pod: Pod, node: str | None) -> Claimed | Refused | None:
        names = resource_claims.claim_names(pod)
        if isinstance(names, Refused):
            return names
        api = f"{_GROUP}/{await self._served()}"
        paths = [f"{api}/namespaces/{pod.metadata.namespace}/resourceclaims/{name}" for name in names]
        allocation = resource_claims.allocated(
            await asyncio.gather(*(self._get(path, ResourceClaim) for path in paths))
        )
        if allocation is None or (node_name := node or allocation.node) is None:
            return None
        if allocation.node not in (None, node_name):
            return Refused(f"{allocation.title} has devices on node {allocation.node!r}")
        roots = resource_claims.roots_of(allocation, await self._slices(api, allocation, node_name), node_name)
        return roots if isinstance(roots, Refused) else Claimed(allocation.title, node_name, roots)

    async def _served(self) -> str:
        if not self._version:
            versions = await self._versions()
            newest = next((version for version in VERSIONS if version in versions), None)
            if newest is None:
                raise _Unfound(f"the API server serves resource.k8s.io in none of the versions {', '.join(VERSIONS)}")
            self._version = newest
        return self._version

    async def _versions(self) -> set[str]:
        try:
            return {group_version.version for group_version in (await self._get(_GROUP, ApiGroup)).versions}
        except _NotThereError:
            return set()

    async def _slices(self, api: str, allocation: Allocation, node: str) -> list[ResourceSlice]:
        if len(allocation.drivers) > MOST_DRIVERS:
            raise _Unfound(f"devices of {len(allocation.drivers)} drivers are claimed; the limit is {MOST_DRIVERS}")
        slices: list[ResourceSlice] = []
        for driver in allocation.drivers:
            slices += await self._slices_of(api, driver, node)
        return slices

    async def _slices_of(self, api: str, driver: str, node: str) -> list[ResourceSlice]:
        """Return a driver's slices of a node; few at a time, since one of the largest takes milliseconds to decode."""
        # Source: ResourceSliceSelectorNodeName, ResourceSliceSelectorDriver in k8s.io/api/resource/v1/types.go.
        params = {"fieldSelector": f"spec.nodeName={node},spec.driver={driver}", "limit": str(_SLICES_AT_ONCE)}
        slices: list[ResourceSlice] = []
        while True:
            slice_list = await self._get(f"{api}/resourceslices", ResourceSlices, params)
            slices += slice_list.items
            if not slice_list.metadata.continue_:
                return slices
            if len(slices) >= MOST_SLICES:
                raise _Unfound(f"driver {driver!r} has more than {MOST_SLICES} ResourceSlices of node {node!r}")
            params["continue"] = slice_list.metadata.continue_

    async def _get(self, path: str, kind: type[T], params: dict[str, str] | None = None) -> T:
        try:
            return msgspec.json.decode(await self._api.request("GET", path, params=params), type=kind)
        except NotFound:
            raise _NotThereError(f"{path.removeprefix('/apis/')} does not exist") from None
        except msgspec.MsgspecError as unreadable:
            raise _Unfound(f"{path.removeprefix('/apis/')} cannot be read: {unreadable}") from unreadable
