"""Keep the node condition `ShimBypassed` equal to the report of `mooring-node check`.

When its status or reason changes, an Event on the node reports that.
"""

from datetime import datetime

import msgspec
import structlog

from advertiser.formats.node_condition import ConditionState
from advertiser.formats.shim_condition import (
    SHIM_FAILED,
    STALE,
    TYPE,
    condition_event,
    condition_of,
    is_told,
    not_checked,
    shim_failed,
    socket_state,
)
from advertiser.publish.metrics import Metrics
from advertiser.publish.node_condition_writer import NodeConditionWriter
from mooring.kube.client import Client
from mooring.kube.failures import KubeError
from mooring.records.node_check import NodeCheck
from mooring.records.shim_bypass import ShimBypass

_EVENTS = "/api/v1/namespaces/default/events"
_log = structlog.get_logger()


class ShimConditionWriter(NodeConditionWriter):
    """Writes the condition `ShimBypassed` and its Events."""

    def __init__(self, client: Client, node: str, metrics: Metrics) -> None:
        super().__init__(client, node, TYPE)
        self._metrics = metrics
        self._missing_since: datetime | None = None

    def take(self, check: NodeCheck | None, now: datetime, shim_bypass: ShimBypass | None = None) -> None:
        """Set the desired condition from the check's report (None: no report) and the bypass of a failed shim.

        After a boot there is no report yet. So a missing report changes the condition only after a while, and only on a
        node that has the condition.
        """
        if shim_bypass is not None and socket_state(check, now, shim_bypass) == "failed":
            self._metrics.node_check(check, "failed")
            self.set_desired_state(shim_failed(shim_bypass))
            return
        if check is not None:
            self._missing_since = None
            self._metrics.node_check(check, socket_state(check, now))
            self.set_desired_state(condition_of(check, now))
            return
        self._missing_since = self._missing_since or now
        self._metrics.node_check(None, None)
        is_over = self._observed_state is not None and self._observed_state.reason == SHIM_FAILED
        if is_over or (self._observed_state is not None and now - self._missing_since > STALE):
            self.set_desired_state(not_checked())

    async def _report_change(self, state: ConditionState, last_state: ConditionState | None, now: datetime) -> None:
        """Write the Event for a change that gets one; log a failure."""
        if not is_told(state, last_state):
            return
        try:
            event = msgspec.json.encode(condition_event(self._node, state, now))
            await self._client.request("POST", _EVENTS, event)
        except KubeError as error:
            _log.warning("event on the node cannot be written", node=self._node, reason=str(error))
