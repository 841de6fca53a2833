"""Watch the node object. Facts about pods come from the node's records, so this needs no right to read pods."""

from collections.abc import Callable, Mapping, Sequence

import structlog

from advertiser.formats.cluster_facts import Node
from advertiser.inventory.facts import ClusterFacts
from advertiser.publish.node_condition_writer import NodeConditionWriter
from advertiser.publish.node_resources import NodeResources
from advertiser.publish.publisher import Publisher
from mooring import names
from mooring.annotations.drain import read_drain
from mooring.errors import AnnotationError
from mooring.gpu import device_plugins
from mooring.gpu.inventory import KEY
from mooring.kube.client import Client
from mooring.kube.events import Changed, Event, Synced, Unreadable
from mooring.kube.watch import Decoder, watch

_log = structlog.get_logger()
_decode_node = Decoder(Node)


def read_drain_entries(text: str | None, node: str) -> frozenset[str] | None:
    """Return the entries of a node's drain annotation; log and return None if it cannot be read."""
    try:
        return read_drain(text)
    except AnnotationError as error:
        _log.error("drain annotation cannot be read and is ignored", node=node, reason=str(error))
        return None


class ClusterView:
    """The cluster's facts about the node, kept up to date by a watch."""

    def __init__(
        self,
        client: Client,
        node: str,
        publisher: Publisher,
        resources: NodeResources,
        notify: Callable[[], None],
        gpus: Publisher | None = None,
        rates: Publisher | None = None,
        conditions: Sequence[NodeConditionWriter] = (),
    ) -> None:
        self._client = client
        self._node = node
        self._publisher = publisher
        self._resources = resources
        self._gpus = gpus
        self._rates = rates
        self._conditions = conditions
        self._notify = notify
        self._drain_entries: frozenset[str] | None = None
        self._conflict = ""

    @property
    def cluster_facts(self) -> ClusterFacts | None:
        """Return the facts, None until the node was listed."""
        return None if self._drain_entries is None else ClusterFacts(drained=self._drain_entries)

    async def follow_node(self) -> None:
        parameters = {"fieldSelector": f"metadata.name={self._node}"}
        async for event in watch(self._client, "/api/v1/nodes", _decode_node, parameters):
            self._take_node(event)

    def _take_node(self, event: Event[Node]) -> None:
        last = event.entries[0] if isinstance(event, Synced) and event.entries else event
        if isinstance(last, Changed):
            annotations = last.item.metadata.annotations or {}
            self._publisher.set_observed_state(annotations.get(names.INVENTORY))
            self._resources.set_observed_state(last.item.status.capacity or {}, last.item.status.allocatable or {})
            for condition in self._conditions:
                condition.set_observed_state(last.item.status.conditions or ())
            if self._rates is not None:
                self._rates.set_observed_state(annotations.get(names.RATES_IN_FORCE, ""))
            if self._gpus is not None:
                self._gpus.set_observed_state(annotations.get(KEY))
                self._warn(last.item.status.allocatable or {})
            self._drain(annotations.get(names.DRAIN))
        elif isinstance(last, Unreadable):
            _log.error("node cannot be read", node=self._node, reason=last.why)
        else:
            _log.warning("the node does not exist yet", node=self._node)
            self._publisher.node_gone()
            self._resources.node_gone()
            for publisher in (self._gpus, self._rates, *self._conditions):
                if publisher is not None:
                    publisher.node_gone()

    def _warn(self, allocatable: Mapping[str, object]) -> None:
        """Log once if a device plugin allocates GPUs on this node, too."""
        conflict = device_plugins.conflict(device_plugins.allocatable_resources(allocatable))
        if conflict and conflict != self._conflict:
            _log.error("GPUs are allocated twice", node=self._node, reason=conflict)
        self._conflict = conflict

    def _drain(self, text: str | None) -> None:
        last_entries, entries = self._drain_entries, read_drain_entries(text, self._node)
        self._drain_entries = (last_entries or frozenset()) if entries is None else entries
        if self._drain_entries != last_entries:
            self._notify()
