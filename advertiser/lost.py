"""Tell the owner of a pod that a VF which it holds is back in the host: nothing else says that its network is gone."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

import msgspec
import structlog

from advertiser.facts import Host
from advertiser.vfs import LOST
from mooring.inventory import Inventory
from mooring.kube.client import Client
from mooring.kube.failures import Conflict, KubeError
from mooring.kube.retry import until_definite

REASON = "VfLost"
_COMPONENT = "mooring-advertiser"
_LONGEST_NAME = 150
_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class LostVf:
    """A VF that the ledger gives to a pod, found in the host; ``pod`` is namespace/name."""

    pod: str
    uid: str
    pf: str
    vf: int
    pci: str


def lost_vfs(inventory: Inventory, host: Host) -> Iterator[LostVf]:
    """Yield what an inventory calls lost, with its pod."""
    for pf in inventory.pfs:
        for out in pf.out:
            for index in out.vfs if out.why.startswith(LOST) else ():
                pci = pf.vf_pci(index)
                entry = host.ledger.get(pci)
                if entry is not None:
                    yield LostVf(entry.pod, entry.uid, pf.name, index, pci)


class Reporter:
    """Writes one Event for each VF that is lost, however often it is seen, and whichever advertiser sees it."""

    def __init__(self, client: Client, node: str) -> None:
        self._client = client
        self._node = node
        self._known: frozenset[LostVf] = frozenset()
        self._queue: asyncio.Queue[LostVf] = asyncio.Queue()

    def saw(self, lost: frozenset[LostVf]) -> None:
        """Take what is lost now."""
        for vf in sorted(lost - self._known, key=lambda vf: vf.pci):
            self._queue.put_nowait(vf)
        self._known = lost

    async def run(self) -> None:
        """Write what comes; return never."""
        while True:
            vf = await self._queue.get()
            try:
                await self._write(f"/api/v1/namespaces/{vf.pod.partition('/')[0]}/events", vf)
            except Conflict:
                pass  # written before this program was started again
            except KubeError as refused:
                _log.warning("event not written", pod=vf.pod, pci=vf.pci, reason=str(refused))

    @until_definite
    async def _write(self, path: str, vf: LostVf) -> None:
        body = msgspec.json.encode(event(vf, self._node, datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")))
        await self._client.request("POST", path, body)
        _log.error("VF lost", node=self._node, pod=vf.pod, uid=vf.uid, pci=vf.pci)


def event(vf: LostVf, node: str, now: str) -> dict[str, object]:
    """Return the Event; its name is made of what it is about, so that it cannot be written twice."""
    namespace, _, pod = vf.pod.partition("/")
    # A subdomain of DNS: no part of it ends in a dash.
    short = pod[:_LONGEST_NAME].rstrip("-.")
    name = f"{short}.vf-lost.{vf.uid[:36].lower()}.{vf.pci.replace(':', '-')}"
    message = (
        f"VF {vf.vf} of {vf.pf} ({vf.pci}) is back in the host's network namespace although this pod holds it:"
        " the pod has lost that interface; delete the pod to get another VF"
    )
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": namespace},
        "involvedObject": {"apiVersion": "v1", "kind": "Pod", "namespace": namespace, "name": pod, "uid": vf.uid},
        "reason": REASON,
        "message": message,
        "type": "Warning",
        "source": {"component": _COMPONENT, "host": node},
        "reportingComponent": _COMPONENT,
        "reportingInstance": node,
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }
