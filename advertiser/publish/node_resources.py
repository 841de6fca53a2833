"""Keep the extended resources in the node's status equal to the inventory."""

from collections.abc import Mapping
from typing import Any

from advertiser.formats.extended_resources import desired_resources, observed_resources
from advertiser.publish.publisher import Publisher, patch_resources
from mooring.gpu.request import RESOURCE
from mooring.inventory import Inventory
from mooring.kube.client import Client


class NodeResources:
    """The extended resources in node status: those that the offer names and GPUs, kept equal to the inventory."""

    def __init__(self, client: Client, node: str) -> None:
        self._publisher = Publisher(client, node, patch=patch_resources)
        self._offered: tuple[str, ...] = ()
        self._status: tuple[Mapping[str, Any], Mapping[str, Any]] | None = None

    def set_desired(self, offered: tuple[str, ...], inventory: Inventory, gpus: int | None = None) -> None:
        """Take the values that the node should have from now on; ``gpus`` None where they are not ours to publish."""
        offered = offered if gpus is None else (*offered, RESOURCE)
        if offered != self._offered:
            # Only then: if compared at every scan, our own write would look like an edit.
            self._offered = offered
            self._compare()
        if offered:
            self._publisher.set_desired(desired_resources(offered, inventory, gpus or 0))

    def set_observed(self, capacity: Mapping[str, Any], allocatable: Mapping[str, Any]) -> None:
        """Take the node's current values: a kubelet that restarts sets resources that it does not provide to 0."""
        self._status = (capacity, allocatable)
        self._compare()

    def node_gone(self) -> None:
        """Record that the node does not exist."""
        self._status = None
        self._publisher.node_gone()

    async def run(self) -> None:
        await self._publisher.run()

    def _compare(self) -> None:
        if self._status is not None and self._offered:
            self._publisher.set_observed(observed_resources(self._offered, *self._status))
