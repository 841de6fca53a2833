"""Which pod has which VFs and GPUs, by all that tells it. Pure.

- The kubelet's checkpoint in a node's capture: devices of device plugins.
- Multus' annotation ``k8s.v1.cni.cncf.io/network-status``: ``device-info`` of each network
  (k8snetworkplumbingwg/device-info-spec, "pci").
- ResourceClaims: the allocated devices, whose ResourceSlice has the PCI address in an attribute, whatever its name.
- Mooring's own assignment.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from cli.plugin.assess.snapshot import CLAIMS, SLICES, Object, Snapshot, annotations_of, at, items, key_of, uid_of
from mooring import names
from mooring.nic.pci import is_address
from mooring.parsing import decode

STATUS = "k8s.v1.cni.cncf.io/network-status"
Source = Literal["checkpoint", "network-status", "claim", "assignment"]
# Sources that say that the VF is in the pod's network, not only among its devices.
MOVED: tuple[Source, ...] = ("network-status", "assignment")


@dataclass(frozen=True, slots=True)
class Holding:
    """A device of a pod, by its PCI address; ``name`` is the network or the resource."""

    pod: str
    uid: str
    pci: str
    source: Source
    name: str = ""


def holdings(snapshot: Snapshot) -> Mapping[str, list[Holding]]:
    """Return what the pods of each node have, by node."""
    found: defaultdict[str, list[Holding]] = defaultdict(list)
    claims = _claimed(snapshot)
    known: dict[str, tuple[str, Object]] = {}
    for pod in snapshot.pods():
        node = str(at(pod, "spec", "nodeName") or "")
        if node:
            known[uid_of(pod)] = node, pod
            found[node] += _of_annotations(pod)
            found[node] += [Holding(key_of(pod), uid_of(pod), pci, "claim") for pci in claims.get(uid_of(pod), ())]
    for node, capture in snapshot.captures.items():
        for one in (capture.use.devices if capture.use is not None else None) or ():
            own, pod = known.get(one.uid, ("", {}))
            if own == node:
                found[node] += [Holding(key_of(pod), one.uid, pci, "checkpoint", one.resource) for pci in one.pci]
    return found


def _of_annotations(pod: Object) -> Iterator[Holding]:
    texts = annotations_of(pod)
    for one in _list(texts.get(STATUS, "")):
        pci = at(one, "device-info", "pci", "pci-address")
        if isinstance(pci, str) and is_address(pci):
            yield Holding(key_of(pod), uid_of(pod), pci, "network-status", str(at(one, "name") or ""))
    if names.ASSIGNMENT in texts:
        for item in items(_json(texts[names.ASSIGNMENT]), "vfs"):
            if isinstance(pci := at(item, "pci"), str) and is_address(pci):
                yield Holding(key_of(pod), uid_of(pod), pci, "assignment", str(at(item, "network") or ""))


def _claimed(snapshot: Snapshot) -> Mapping[str, list[str]]:
    """Return the PCI addresses of claimed devices by the uid of the pods for which they are reserved."""
    addresses: dict[tuple[str, str, str], str] = {}
    for piece in snapshot.all(*SLICES):
        driver, pool = str(at(piece, "spec", "driver")), str(at(piece, "spec", "pool", "name"))
        for device in items(piece, "spec", "devices"):
            # `basic` until resource.k8s.io/v1beta1.
            attributes = at(device, "attributes") or at(device, "basic", "attributes")
            if pci := _address(attributes):
                addresses[driver, pool, str(at(device, "name"))] = pci
    found: defaultdict[str, list[str]] = defaultdict(list)
    for claim in snapshot.all(*CLAIMS):
        results = items(claim, "status", "allocation", "devices", "results")
        keys = [(str(at(result, "driver")), str(at(result, "pool")), str(at(result, "device"))) for result in results]
        for user in items(claim, "status", "reservedFor"):
            if at(user, "resource") == "pods":
                found[str(at(user, "uid"))] += [addresses[key] for key in keys if key in addresses]
    return found


def _address(attributes: Any) -> str:
    """Return the attribute that is a PCI address and not the one of a root; empty without one."""
    for key, value in attributes.items() if isinstance(attributes, Mapping) else ():
        text = at(value, "string")
        if isinstance(text, str) and is_address(text) and "root" not in key.lower():
            return text
    return ""


def _json(text: str) -> Any:
    try:
        return decode(text)
    except ValueError:
        return None


def _list(text: str) -> list[Any]:
    found = _json(text)
    return found if isinstance(found, list) else []
