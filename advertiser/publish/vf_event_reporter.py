"""Write an Event on a pod for each incident of its VFs."""

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
# The number of concurrent writes, and of tries for each Event, which with their pauses take over a quarter of an hour.
_AT_ONCE, _TRIES = 4, 100


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
    """Writes one Event for each incident, however often scans find it, also after a restart of the advertiser."""

    def __init__(self, client: Client, node: str) -> None:
        self._client = client
        self._node = node
        self._known: frozenset[VfEvent] = frozenset()
        self._turns = NamespaceTurns[VfEvent](tries=_TRIES)
        self._lanes = Lanes([Lane(self._turns, self._write, _fields)], _AT_ONCE)

    def update(self, happened: frozenset[VfEvent]) -> None:
        """Set the incidents that a scan has found."""
        for event in sorted(happened - self._known, key=lambda event: event.pci):
            self._turns.put(event.pod.partition("/")[0], f"{event.uid} {event.pci} {event.reason} {hash(event)}", event)
            self._lanes.wake()
        self._known = happened

    async def run(self) -> None:
        """Write Events as they arrive; never return."""
        await self._lanes.run()

    async def _write(self, each: VfEvent) -> None:
        path = f"/api/v1/namespaces/{each.pod.partition('/')[0]}/events"
        body = msgspec.json.encode(each.event(self._node, datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")))
        try:
            await self._client.request("POST", path, body)
        except Conflict:
            return  # Written before this program restarted.
        _log.warning("event written", node=self._node, pod=each.pod, uid=each.uid, pci=each.pci, reason=each.reason)


def _fields(each: VfEvent) -> Mapping[str, str]:
    return {"pod": each.pod, "uid": each.uid, "pci": each.pci}
