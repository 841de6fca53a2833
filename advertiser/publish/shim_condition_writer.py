"""Keep the node's condition about its kubelet and the shim equal to what `mooring-node check` has found.

The condition is written when it differs from the node's, and at no other time: it has no heartbeat of its own. When its
status or reason changes, an Event on the node says so.
"""

from collections.abc import Iterable
from datetime import UTC, datetime

import msgspec
import structlog

from advertiser.formats.cluster_facts import NodeCondition
from advertiser.formats.shim_condition import (
    SHIM_FAILED,
    STALE,
    ShimCondition,
    condition_event,
    condition_of,
    condition_patch,
    is_told,
    not_checked,
    observed_condition,
    shim_failed,
    socket_state,
)
from advertiser.publish.metrics import Metrics
from advertiser.publish.publisher import Publisher, node_path
from mooring.kube.client import STRATEGIC_PATCH, Client
from mooring.kube.failures import KubeError
from mooring.records.node_check import NodeCheck
from mooring.records.shim_bypass import ShimBypass

_EVENTS = "/api/v1/namespaces/default/events"
_log = structlog.get_logger()


class ShimConditionWriter:
    """The condition of one node: what the host says of it, and what the node has."""

    def __init__(self, client: Client, node: str, metrics: Metrics) -> None:
        self._client = client
        self._node = node
        self._metrics = metrics
        self._publisher = Publisher(client, node, patch=self._patch_condition)
        self._observed: ShimCondition | None = None
        self._missing_since: datetime | None = None

    def take(self, check: NodeCheck | None, now: datetime, failed: ShimBypass | None = None) -> None:
        """Take what the check has left on the host, None where it has left nothing; ``failed``: the shim is bypassed.

        A boot begins without the file. So only one that stays away is said, and only of a node that had the condition.
        """
        if failed is not None and socket_state(check, now, failed) == "failed":
            self._metrics.node_check(check, "failed")
            self._publisher.set_desired(shim_failed(failed).dump())
            return
        if check is not None:
            self._missing_since = None
            self._metrics.node_check(check, socket_state(check, now))
            self._publisher.set_desired(condition_of(check, now).dump())
            return
        self._missing_since = self._missing_since or now
        self._metrics.node_check(None, None)
        is_over = self._observed is not None and self._observed.reason == SHIM_FAILED
        if is_over or (self._observed is not None and now - self._missing_since > STALE):
            self._publisher.set_desired(not_checked().dump())

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
        """Write the condition and nothing else of the node's status, and the Event; raise KubeError for the first."""
        wanted, before, now = ShimCondition.read(text), self._observed, datetime.now(UTC)
        await client.request(
            "PATCH", f"{node_path(node)}/status", condition_patch(wanted, before, now), STRATEGIC_PATCH
        )
        self._observed = wanted
        said = _log.info if wanted.status == "False" else _log.warning
        said("node condition written", node=node, status=wanted.status, reason=wanted.reason, message=wanted.message)
        if not is_told(wanted, before):
            return
        try:
            await client.request("POST", _EVENTS, msgspec.json.encode(condition_event(node, wanted, now)))
        except KubeError as refused:
            _log.warning("event on the node not written", node=node, reason=str(refused))
