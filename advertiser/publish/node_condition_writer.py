"""Keep a condition of the node equal to the host's state.

The condition is written only when it changes; it has no heartbeat.
"""

from collections.abc import Iterable
from datetime import UTC, datetime

import structlog

from advertiser.formats.cluster_facts import NodeCondition
from advertiser.formats.node_condition import ConditionState, condition_patch, observed_condition
from advertiser.publish.publisher import Publisher, node_path
from mooring.kube.client import STRATEGIC_PATCH, Client

_log = structlog.get_logger()


class NodeConditionWriter:
    """Writes one condition of one node when the desired and the observed condition differ."""

    def __init__(self, client: Client, node: str, kind: str) -> None:
        self._client = client
        self._node = node
        self._kind = kind
        self._publisher = Publisher(client, node, patch=self._patch_condition)
        self._observed: ConditionState | None = None

    def set_desired(self, wanted: ConditionState) -> None:
        """Set the desired condition."""
        self._publisher.set_desired(wanted.dump())

    def set_observed(self, conditions: Iterable[NodeCondition]) -> None:
        """Set the node's current conditions."""
        self._observed = observed_condition(self._kind, conditions)
        self._publisher.set_observed(None if self._observed is None else self._observed.dump())

    def node_gone(self) -> None:
        """Record that the node does not exist."""
        self._observed = None
        self._publisher.node_gone()

    async def run(self) -> None:
        """Write whenever it is due; never return."""
        await self._publisher.run()

    async def _patch_condition(self, client: Client, node: str, text: str) -> None:
        """Patch only this condition in the node's status; raise KubeError."""
        wanted, before, now = ConditionState.read(text), self._observed, datetime.now(UTC)
        patch = condition_patch(self._kind, wanted, before, now)
        await client.request("PATCH", f"{node_path(node)}/status", patch, STRATEGIC_PATCH)
        self._observed = wanted
        said = _log.info if wanted.status == "False" else _log.warning
        said("node condition written", node=node, status=wanted.status, reason=wanted.reason, message=wanted.message)
        await self._written(wanted, before, now)

    async def _written(self, wanted: ConditionState, before: ConditionState | None, now: datetime) -> None:
        """Handle a successful write; subclasses override this."""
