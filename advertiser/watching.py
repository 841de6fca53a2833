"""Look at the host whenever something may have changed, and hand on what it offers."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import structlog

from advertiser.changes import Changes
from advertiser.claims import Node, Pod, PodClaims, read_drain
from advertiser.facts import Claims, Host
from advertiser.host import OfferFile, Roots, read_host
from advertiser.inventory import LeftOut, Survey, survey
from advertiser.lost import Reporter, lost_vfs
from advertiser.metrics import Metrics
from advertiser.publish import Publisher, patch_resources
from advertiser.resources import found_resources, wanted_resources
from mooring import names
from mooring.errors import AnnotationError
from mooring.inventory import Inventory, dump_inventory
from mooring.kube.client import Client
from mooring.kube.events import Changed, Event, Synced, Unreadable
from mooring.kube.watch import Decoder, watch

_log = structlog.get_logger()
_decode_pod, _decode_node = Decoder(Pod), Decoder(Node)


@dataclass(frozen=True, slots=True)
class Look:
    """One look at the host: what it said, what that means, and which of the seeds' resources are on offer."""

    host: Host
    survey: Survey
    resources: tuple[str, ...] = ()


def read_drained(text: str | None, node: str) -> frozenset[str] | None:
    """Return what a node's drain annotation names, None if it cannot be read."""
    try:
        return read_drain(text)
    except AnnotationError as broken:
        _log.error("drain annotation cannot be read and changes nothing", node=node, reason=str(broken))
        return None


@dataclass(frozen=True, slots=True)
class Looker:
    """Everything that a look needs but the cluster's claims."""

    roots: Roots
    offer: OfferFile
    node: str

    def look(self, claims: Claims) -> Look:
        """Read and judge the host; raise OSError if its PCI bus or ledger cannot be read."""
        host = read_host(self.roots)
        offer = self.offer.offer()
        return Look(host, survey(host, offer, claims, self.node), offer.resources)


class StatusResources:
    """The seeds' resources in node status: what the offer names, kept as the inventory says."""

    def __init__(self, client: Client, node: str) -> None:
        self._publisher = Publisher(client, node, patch=patch_resources)
        self._offered: tuple[str, ...] = ()
        self._status: tuple[Mapping[str, Any], Mapping[str, Any]] | None = None

    def want(self, offered: tuple[str, ...], inventory: Inventory) -> None:
        """Take what the node should say from now on."""
        if offered != self._offered:
            # Only then: compared at every look, what we have just written would look like an edit.
            self._offered = offered
            self._compare()
        if offered:
            self._publisher.want(wanted_resources(offered, inventory))

    def found(self, capacity: Mapping[str, Any], allocatable: Mapping[str, Any]) -> None:
        """Take what the node says now: a kubelet that starts again sets what it does not know to 0."""
        self._status = (capacity, allocatable)
        self._compare()

    def lost(self) -> None:
        """Take that there is no such node."""
        self._status = None
        self._publisher.lost()

    async def run(self) -> None:
        await self._publisher.run()

    def _compare(self) -> None:
        if self._status is not None and self._offered:
            self._publisher.found(found_resources(self._offered, *self._status))


class ClusterView:
    """What the cluster says about the node, followed for as long as the program runs."""

    def __init__(
        self, client: Client, node: str, publisher: Publisher, resources: StatusResources, ring: Callable[[], None]
    ) -> None:
        self._client = client
        self._node = node
        self._publisher = publisher
        self._resources = resources
        self._ring = ring
        self._pods = PodClaims(node)
        self._drained: frozenset[str] | None = None

    @property
    def claims(self) -> Claims | None:
        """Return what is known, None before the pods and the node were both listed."""
        explained, drained = self._pods.explained, self._drained
        return None if explained is None or drained is None else Claims(explained, drained)

    async def follow_pods(self) -> None:
        selected = {"fieldSelector": f"spec.nodeName={self._node}"}
        async for event in watch(self._client, "/api/v1/pods", _decode_pod, selected):
            if self._pods.take(event):
                self._ring()

    async def follow_node(self) -> None:
        selected = {"fieldSelector": f"metadata.name={self._node}"}
        async for event in watch(self._client, "/api/v1/nodes", _decode_node, selected):
            self._take_node(event)

    def _take_node(self, event: Event[Node]) -> None:
        last = event.entries[0] if isinstance(event, Synced) and event.entries else event
        if isinstance(last, Changed):
            annotations = last.item.metadata.annotations or {}
            self._publisher.found(annotations.get(names.INVENTORY))
            self._resources.found(last.item.status.capacity or {}, last.item.status.allocatable or {})
            self._drain(annotations.get(names.DRAIN))
        elif isinstance(last, Unreadable):
            _log.error("node cannot be read", node=self._node, reason=last.why)
        else:
            _log.warning("there is no such node yet", node=self._node)
            self._publisher.lost()
            self._resources.lost()

    def _drain(self, text: str | None) -> None:
        before, read = self._drained, read_drained(text, self._node)
        self._drained = (before or frozenset()) if read is None else read
        if self._drained != before:
            self._ring()


@dataclass(frozen=True, slots=True)
class Outlets:
    """What a look ends in: the inventory, the seeds' resources, events of VFs that are lost."""

    inventory: Publisher
    resources: StatusResources
    lost: Reporter


class Watching:
    """The loop that looks; ``last`` is the last look that gave an inventory."""

    def __init__(self, looker: Looker, view: ClusterView, outlets: Outlets) -> None:
        self._looker = looker
        self._view = view
        self._outlets = outlets
        self._left_out: tuple[LeftOut, ...] = ()
        self._looked_s = float("-inf")
        self.metrics = Metrics(self.age_s)
        self.last: Look | None = None

    def age_s(self) -> float:
        """Return how long ago the last good look was, in seconds of the event loop's clock."""
        return asyncio.get_running_loop().time() - self._looked_s

    async def look(self) -> Look:
        """Look once, now; raise OSError if the host cannot be read."""
        return await asyncio.to_thread(self._looker.look, self._view.claims or Claims())

    async def run(self, changes: Changes, resync_s: float) -> None:
        """Look after every change and at least every ``resync_s`` seconds; return never."""
        while True:
            try:
                # Before both lists are there an inventory would be partial.
                if self._view.claims is not None:
                    self._take(await self.look())
            except Exception:  # noqa: BLE001 - the one of this program
                # Whatever is wrong with this host now, what was published stands and the next look may mend it.
                _log.exception("host cannot be read, the last inventory stands")
                self.metrics.failed()
            await changes.wait(resync_s)

    def _take(self, look: Look) -> None:
        self.last = look
        self._looked_s = asyncio.get_running_loop().time()
        self.metrics.looked(look.survey)
        self._outlets.inventory.want(dump_inventory(look.survey.inventory))
        self._outlets.resources.want(look.resources, look.survey.inventory)
        self._outlets.lost.saw(frozenset(lost_vfs(look.survey.inventory, look.host)))
        if look.survey.left_out != self._left_out:
            self._left_out = look.survey.left_out
            for device in self._left_out:
                _log.warning("device is left out", pci=device.pci, name=device.name, reason=device.why)
