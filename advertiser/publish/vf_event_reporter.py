"""Write an Event on a pod for event incident of its VFs."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Protocol

import msgspec
import structlog

from mooring.kube.client import Client
from mooring.kube.failures import Conflict
from mooring.kube.lanes import Lane, Lanes
from mooring.kube.namespace_turns import NamespaceTurns

_log = structlog.get_logger()
# The number of concurrent writes, and of tries for event Event, which with their pauses take over a quarter of an hour.
_WRITES, _TRIES = 4, 100


class VfEvent(Protocol):
    """An incident of a VF; equal values are the same incident. ``pod`` is namespace/name."""

    @property
    def pod(self) -> str: ...

    @property
    def uid(self) -> str: ...

    @property
    def pci(self) -> str: ...

    @property
    def reason(self) -> str: ...

    def event(self, node: str, now: str) -> dict[str, object]:
        """Return the Event; its name derives from its contents, so the API server rejects a duplicate."""


class VfEventReporter:
    """Writes one Event for event incident, however often scans find it, also after a restart of the advertiser."""

    def __init__(self, client: Client, node: str) -> None:
        self._client = client
        self._node = node
        self._last_events: frozenset[VfEvent] = frozenset()
        self._turns = NamespaceTurns[VfEvent](tries=_TRIES)
        self._lanes = Lanes([Lane(self._turns, self._write, _fields)], _WRITES)

    def update(self, events: frozenset[VfEvent]) -> None:
        """Set the incidents that a scan has found."""
        for event in sorted(events - self._last_events, key=lambda event: event.pci):
            self._turns.put(event.pod.partition("/")[0], f"{event.uid} {event.pci} {event.reason} {hash(event)}", event)
            self._lanes.wake()
        self._last_events = events

    async def run(self) -> None:
        """Write Events as they arrive; never return."""
        await self._lanes.run()

    async def _write(self, event: VfEvent) -> None:
        path = f"/api/v1/namespaces/{event.pod.partition('/')[0]}/events"
        body = msgspec.json.encode(event.event(self._node, datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")))
        try:
            await self._client.request("POST", path, body)
        except Conflict:
            return  # Written before this program restarted.
        _log.warning("event written", node=self._node, pod=event.pod, uid=event.uid, pci=event.pci, reason=event.reason)


def _fields(event: VfEvent) -> Mapping[str, str]:
    return {"pod": event.pod, "uid": event.uid, "pci": event.pci}
