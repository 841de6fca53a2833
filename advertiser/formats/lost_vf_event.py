"""The Event on a pod whose VF is back in the host: without it the owner would not notice the lost network."""

from collections.abc import Iterator
from dataclasses import dataclass

from advertiser.inventory.facts import Host
from advertiser.inventory.vf_state import LOST
from mooring.inventory import Inventory

REASON = "VfLost"
_COMPONENT = "mooring-advertiser"
_LONGEST_NAME = 150


@dataclass(frozen=True, slots=True)
class LostVf:
    """A VF that the ledger assigns to a pod, found in the host; ``pod`` is namespace/name."""

    pod: str
    uid: str
    pf: str
    vf: int
    pci: str


def lost_vfs(inventory: Inventory, host: Host) -> Iterator[LostVf]:
    """Yield the VFs that an inventory marks as lost, with their pods."""
    for pf in inventory.pfs:
        for out in pf.out:
            for index in out.vfs if out.why.startswith(LOST) else ():
                pci = pf.vf_pci(index)
                entry = host.ledger.get(pci)
                if entry is not None:
                    yield LostVf(entry.pod, entry.uid, pf.name, index, pci)


def event(vf: LostVf, node: str, now: str) -> dict[str, object]:
    """Return the Event; its name is made from its contents, so that it cannot be written twice."""
    namespace, _, pod = vf.pod.partition("/")
    # The name is a subdomain of DNS: no part of it may end in a dash.
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
