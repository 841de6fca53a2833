"""Keep the node's condition about its VFs equal to what `mooring-cni serve` has found.

The condition is written when it differs from the node's, and at no other time: it has no heartbeat of its own.
"""

from collections.abc import Iterable
from datetime import UTC, datetime

import structlog

from advertiser.formats.cluster_facts import NodeCondition
from advertiser.formats.vf_condition import VfCondition, condition_of, condition_patch, observed_condition
from advertiser.publish.metrics import Metrics
from advertiser.publish.publisher import Publisher, node_path
from mooring.kube.client import STRATEGIC_PATCH, Client
from mooring.records.vf_faults import VfFaults

_log = structlog.get_logger()


class VfConditionWriter:
    """The condition of one node: what its CNI server says, and what the node has."""

    def __init__(self, client: Client, node: str, metrics: Metrics) -> None:
        self._metrics = metrics
        self._publisher = Publisher(client, node, patch=self._patch_condition)
        self._observed: VfCondition | None = None

    def take(self, found: VfFaults | None) -> None:
        """Take the server's report, None before it has left one in this boot: what the node has then stands."""
        self._metrics.vf_faults(found or VfFaults())
        if found is not None:
            self._publisher.set_desired(condition_of(found).dump())

    def set_observed(self, conditions: Iterable[NodeCondition]) -> None:
        """Take the node's conditions."""
        self._observed = observed_condition(conditions)
        self._publisher.set_observed(None if self._observed is None else self._observed.dump())

    def node_gone(self) -> None:
        """Record that the node does not exist."""
        self._observed = None
        self._publisher.node_gone()

    async def run(self) -> None:
        """Write whenever it is due; never return."""
        await self._publisher.run()

    async def _patch_condition(self, client: Client, node: str, text: str) -> None:
        wanted, now = VfCondition.read(text), datetime.now(UTC)
        patch = condition_patch(wanted, self._observed, now)
        await client.request("PATCH", f"{node_path(node)}/status", patch, STRATEGIC_PATCH)
        self._observed = wanted
        said = _log.info if wanted.status == "False" else _log.warning
        said("node condition written", node=node, status=wanted.status, reason=wanted.reason, message=wanted.message)
