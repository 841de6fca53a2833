"""Build the annotation ``k8s.v1.cni.cncf.io/network-status``, which describes a pod's interfaces as Multus does.

A list of NetworkStatus (k8snetworkplumbingwg/network-attachment-definition-client, k8s.cni.cncf.io/v1/types.go), with
device-info of the type pci, version 1.1.0 (k8snetworkplumbingwg/device-info-spec):

    [{"name":"rail0","interface":"net1","ips":["10.0.0.2"],"mac":"02:…","dns":{},
      "device-info":{"type":"pci","version":"1.1.0","pci":{"pci-address":"0000:3b:00.2","rdma-device":"mlx5_3"}}}]

``name`` is Mooring's network, because there is no NetworkAttachmentDefinition. ``rdma-device`` is the device's name on
the host when the pod got it. A VF without an interface (``"netdev": false``, or no netdev) has no ``interface``, as the
type omits empty fields. The pod's default network belongs to another plugin and is not in the list.

The annotation ``mooring.dev/network-status`` is the digest of what the advertiser wrote. If it does not match the
network status, another writer has written that.
"""

import hashlib
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from advertiser.inventory.facts import AssignedVfKey
from mooring.parsing import dump
from mooring.records.ledger import LedgerEntry

KEY, DIGEST_KEY = "k8s.v1.cni.cncf.io/network-status", "mooring.dev/network-status"
# 64 VFs of about 250 characters and 8 addresses each stay below the admission policy's limit of 65,536 characters.
_MOST_IPS = 8
_MAC_LENGTH = len("02:00:00:00:00:01")


@dataclass(frozen=True, slots=True, order=True)
class NetworkStatus:
    """The network status of a pod: ``pod`` is namespace/name, ``text`` the annotation's value."""

    pod: str
    uid: str
    text: str

    @property
    def annotations(self) -> Mapping[str, str]:
        return {KEY: self.text, DIGEST_KEY: digest(self.text)}


def digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()


def is_another_writers(annotations: Mapping[str, str]) -> bool:
    """Return whether another program than the advertiser has written the pod's network status."""
    return KEY in annotations and annotations.get(DIGEST_KEY) != digest(annotations[KEY])


def network_statuses(
    ledger: Mapping[str, LedgerEntry | None], assigned: Collection[AssignedVfKey]
) -> Iterator[NetworkStatus]:
    """Yield the status of each pod with all of its assigned VFs in one sandbox."""
    vfs: defaultdict[str, set[str]] = defaultdict(set)
    for uid, _, _, pci in assigned:
        vfs[uid].add(pci)
    for uid, pcis in vfs.items():
        entries = [entry for pci in sorted(pcis) if (entry := ledger.get(pci)) is not None and _is_given(entry, uid)]
        if len(entries) == len(pcis) and len({entry.container for entry in entries}) == 1:
            entries_by_name = sorted(entries, key=lambda entry: (len(entry.ifname), entry.ifname))
            yield NetworkStatus(entries[0].pod, uid, dump([_interface(entry) for entry in entries_by_name]))


def _is_given(entry: LedgerEntry, uid: str) -> bool:
    return entry.phase == "held" and entry.uid == uid and entry.attachment is not None


def _interface(entry: LedgerEntry) -> dict[str, object]:
    pci = {"pci-address": entry.pci} | ({"rdma-device": entry.rdma} if entry.rdma is not None else {})
    return {
        "name": entry.attachment.network if entry.attachment is not None else "",
        "dns": {},
        "device-info": {"type": "pci", "version": "1.1.0", "pci": pci},
    } | (_netdev(entry) if _has_netdev(entry) else {})


def _has_netdev(entry: LedgerEntry) -> bool:
    """Return whether the pod has an interface for the VF: its extract then has the MAC that the netdev had before."""
    return entry.original.netdev_mac is not None and not entry.rdma_only


def _netdev(entry: LedgerEntry) -> dict[str, object]:
    mac = entry.set.mac or entry.original.netdev_mac
    own: dict[str, object] = {
        "interface": entry.ifname,
        "ips": [address.partition("/")[0] for address in entry.addresses[:_MOST_IPS]] or None,
        # An IPoIB address begins with a queue pair number, which changed when the netdev moved.
        "mac": mac if mac is not None and len(mac) == _MAC_LENGTH else None,
        # Mooring as the main plugin: the first VF has the name that the runtime gave.
        "default": (entry.attachment is not None and entry.attachment.ifname == entry.ifname) or None,
    }
    return {name: value for name, value in own.items() if value is not None}
