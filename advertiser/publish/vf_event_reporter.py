"""Write an Event on a pod for each thing that has happened to one of its VFs."""

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
# Events that are written at once, and tries of each: with the pauses between them more than a quarter of an hour.
_AT_ONCE, _TRIES = 4, 100


class VfEvent(Protocol):
    """Something that has happened to a VF; equal ones are the same happening. ``pod`` is namespace/name."""

    @property
    def pod(self) -> str: ...

    @property
    def uid(self) -> str: ...

    @property
    def pci(self) -> str: ...

    @property
    def reason(self) -> str: ...

    def event(self, node: str, now: str) -> dict[str, object]:
        """Return the Event; its name is made from its contents, so that it cannot be written twice."""


class VfEventReporter:
    """Writes one Event for each happening, however often a scan finds it, and whichever advertiser does."""

    def __init__(self, client: Client, node: str) -> None:
        self._client = client
        self._node = node
        self._known: frozenset[VfEvent] = frozenset()
        self._turns = NamespaceTurns[VfEvent](tries=_TRIES)
        self._lanes = Lanes([Lane(self._turns, self._write, _fields)], _AT_ONCE)

    def update(self, happened: frozenset[VfEvent]) -> None:
        """Take what a scan has found."""
        for each in sorted(happened - self._known, key=lambda each: each.pci):
            self._turns.put(each.pod.partition("/")[0], f"{each.uid} {each.pci} {each.reason} {hash(each)}", each)
            self._lanes.wake()
        self._known = happened

    async def run(self) -> None:
        """Write events as they arrive; never return."""
        await self._lanes.run()

    async def _write(self, each: VfEvent) -> None:
        path = f"/api/v1/namespaces/{each.pod.partition('/')[0]}/events"
        body = msgspec.json.encode(each.event(self._node, datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")))
        try:
            await self._client.request("POST", path, body)
        except Conflict:
            return  # written before this program was started again
        _log.warning("event written", node=self._node, pod=each.pod, uid=each.uid, pci=each.pci, reason=each.reason)


def _fields(each: VfEvent) -> Mapping[str, str]:
    return {"pod": each.pod, "uid": each.uid, "pci": each.pci}
