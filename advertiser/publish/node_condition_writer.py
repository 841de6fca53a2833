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
        self._observed_state: ConditionState | None = None

    def set_desired_state(self, state: ConditionState) -> None:
        """Set the desired condition."""
        self._publisher.set_desired_state(state.dump())

    def set_observed_state(self, conditions: Iterable[NodeCondition]) -> None:
        """Set the node's current conditions."""
        self._observed_state = observed_condition(self._kind, conditions)
        self._publisher.set_observed_state(None if self._observed_state is None else self._observed_state.dump())

    def node_gone(self) -> None:
        """Record that the node does not exist."""
        self._observed_state = None
        self._publisher.node_gone()

    async def run(self) -> None:
        """Write whenever it is due; never return."""
        await self._publisher.run()

    async def _patch_condition(self, client: Client, node: str, text: str) -> None:
        """Patch only this condition in the node's status; raise KubeError."""
        state, last_state, now = ConditionState.read(text), self._observed_state, datetime.now(UTC)
        patch = condition_patch(self._kind, state, last_state, now)
        await client.request("PATCH", f"{node_path(node)}/status", patch, STRATEGIC_PATCH)
        self._observed_state = state
        write_log = _log.info if state.status == "False" else _log.warning
        write_log("node condition written", node=node, status=state.status, reason=state.reason, message=state.message)
        await self._report_change(state, last_state, now)

    async def _report_change(self, state: ConditionState, last_state: ConditionState | None, now: datetime) -> None:
        """Handle a successful write; subclasses override this."""
