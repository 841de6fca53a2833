"""Keep the extended resources in the node's status equal to the inventory."""

from collections.abc import Mapping
from typing import Any

from advertiser.formats.extended_resources import (
    HeldVf,
    counted_resources,
    dump_resources,
    observed_resources,
    read_quantity,
)
from advertiser.publish.publisher import Publisher, patch_resources
from mooring import names
from mooring.annotations.inventory import Inventory
from mooring.gpu.request import RESOURCE
from mooring.kube.client import Client

_HELD_BY_PODS = (frozenset(names.EXTENDED_RESOURCES) - {names.RIT_DEVICES}) | {RESOURCE}


class NodeResources:
    """Keeps the extended resources in node status equal to the inventory: those that the offer names, and GPUs."""

    def __init__(self, client: Client, node: str) -> None:
        self._publisher = Publisher(client, node, patch=patch_resources)
        self._names: tuple[str, ...] = ()
        self._status: tuple[Mapping[str, Any], Mapping[str, Any]] | None = None
        self._counts: dict[str, int] = {}
        self._knew_held_vfs = False

    def set_desired_state(
        self,
        names_on_offer: tuple[str, ...],
        inventory: Inventory,
        held_vfs: frozenset[HeldVf] | None = frozenset(),
        gpus: int | None = None,
    ) -> None:
        """Set the desired values.

        While ``held_vfs`` is None, which is after a boot until the CNI server runs, no count decreases: pods may hold
        VFs and GPUs. Nor does a count decrease when ``held_vfs`` becomes known, because the server creates the folder
        before it writes the pods into it. ``gpus`` is None if GPUs are not published.
        """
        names_on_offer = names_on_offer if gpus is None else (*names_on_offer, RESOURCE)
        if names_on_offer != self._names:
            # Only on a change: compared at every scan, our own write would look like somebody's edit.
            self._names = names_on_offer
            self._compare()
        counts = counted_resources(names_on_offer, inventory, held_vfs or (), gpus or 0)
        if not self._knew_held_vfs or held_vfs is None:
            counts |= {name: max(counts[name], self._last_count(name)) for name in _HELD_BY_PODS.intersection(counts)}
        self._counts, self._knew_held_vfs = counts, held_vfs is not None
        if names_on_offer:
            self._publisher.set_desired_state(dump_resources(counts))

    def _last_count(self, name: str) -> int:
        """Return the last count of the node's status or of our writes; a restarting kubelet may have reset it to 0."""
        capacity = {} if self._status is None else self._status[0]
        return max(self._counts.get(name, 0), read_quantity(capacity.get(name)))

    def set_observed_state(self, capacity: Mapping[str, Any], allocatable: Mapping[str, Any]) -> None:
        """Set the node's current values; a restarting kubelet sets resources that it does not provide to 0."""
        self._status = (capacity, allocatable)
        self._compare()

    def node_gone(self) -> None:
        """Record that the node does not exist."""
        self._status = None
        self._publisher.node_gone()

    async def run(self) -> None:
        await self._publisher.run()

    def _compare(self) -> None:
        if self._status is not None and self._names:
            self._publisher.set_observed_state(observed_resources(self._names, *self._status))
