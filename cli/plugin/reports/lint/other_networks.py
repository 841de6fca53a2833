"""Networks and claims of other systems that manifests define, and the annotations by which pods name them. Pure.

Source of the fields: Multus, the Network Plumbing Working Group's standard for NetworkSelectionElement;
sriov-network-operator, api/v1/sriovnetwork_types.go and sriovibnetwork_types.go; sriov-cni, pkg/types/types.go.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from cli.plugin.reports.lint.manifests import Place

# [namespace/]name[@interface]
_SHORT = re.compile(r"(?:(?P<namespace>[^/@\s]+)/)?(?P<name>[^/@\s]+)(?:@(?P<interface>\S+))?")
_NIC_CLASS = re.compile(r"rdma|sriov|dranet|\bnic|\bvf|mlnx|roce|infiniband|hca", re.IGNORECASE)
_SWITCH: Mapping[object, bool] = {"on": True, "off": False, True: True, False: False}
# The request's field, how its value is read, and the names that others have for it.
_FIELDS: tuple[tuple[str, Callable[[Any], object], tuple[str, ...]], ...] = (
    ("vlan", int, ("vlan",)),
    ("qos", int, ("vlanQoS",)),
    ("min_tx_rate", int, ("minTxRate", "min_tx_rate")),
    ("max_tx_rate", int, ("maxTxRate", "max_tx_rate")),
    ("spoofchk", _SWITCH.__getitem__, ("spoofChk", "spoofchk")),
    ("trust", _SWITCH.__getitem__, ("trust",)),
    ("link_state", str, ("linkState", "link_state")),
)


@dataclass(frozen=True, slots=True)
class NetworkEntry:
    """A network that a pod names, and the entry of ``mooring.dev/interfaces`` that requests the same."""

    name: str
    interface: dict[str, Any]
    has_addresses: bool = False


@dataclass(frozen=True, slots=True)
class ClaimedDevices:
    """Network devices that a ResourceClaim requests; ``count`` is None for all that a node has."""

    device_class: str
    count: int | None


@dataclass(slots=True)
class Networks:
    """What the objects of some manifests say, by the name of network or claim.

    ``others`` are networks that are on no VFs, ``other_claims`` claims of other devices.
    """

    fields: dict[str, dict[str, Any]] = field(default_factory=dict)
    others: set[str] = field(default_factory=set)
    claims: dict[str, ClaimedDevices] = field(default_factory=dict)
    other_claims: set[str] = field(default_factory=set)

    def add(self, kind: str, whole: Place) -> None:
        """Take in an object, if it defines a network or a claim."""
        name, spec = str(whole.at("metadata", "name").value), whole.at("spec")
        if kind in ("SriovNetwork", "SriovIBNetwork"):
            link = {"link": "infiniband"} if kind == "SriovIBNetwork" else {}
            self.fields[name] = link | _request_fields(spec.value)
        elif kind == "NetworkAttachmentDefinition":
            self._add_attachment(name, spec.at("config").value)
        elif kind in ("ResourceClaim", "ResourceClaimTemplate"):
            claim = spec.at("spec") if kind == "ResourceClaimTemplate" else spec
            self._add_claim(name, claim.at("devices", "requests"))

    def _add_attachment(self, name: str, text: object) -> None:
        config = _json(text)
        self.others.add(name)
        for plugin in _list(config.get("plugins")) or [config] if isinstance(config, dict) else ():
            if isinstance(plugin, dict) and plugin.get("type") in ("sriov", "ib-sriov"):
                link = {"link": "infiniband"} if plugin["type"] == "ib-sriov" else {}
                self.fields[name] = link | _request_fields(plugin)
                self.others.discard(name)

    def _add_claim(self, name: str, requests: Place) -> None:
        for index in range(len(_list(requests.value))):
            # `exactly` since resource.k8s.io/v1beta2; of `firstAvailable` the first is the preferred one.
            request = requests.at(str(index))
            forms = (request.at("exactly"), request.at("firstAvailable").at("0"), request)
            request = next(form for form in forms if form.value is not None)
            device_class = str(request.at("deviceClassName").value)
            if is_nic(device_class) or "dra.net" in str(request.at("selectors").value):
                count = request.at("count").value
                count = None if request.at("allocationMode").value == "All" else count if isinstance(count, int) else 1
                self.claims[name] = ClaimedDevices(device_class, count)
            else:
                self.other_claims.add(name)

    def of_multus(self, text: object) -> list[NetworkEntry]:
        """Return the networks of the annotation, which is a JSON list or names with commas between them."""
        if not isinstance(text, str):
            return []
        parsed = _json(text)
        if isinstance(parsed, list):
            return [self._entry(entry) for entry in parsed if isinstance(entry, dict)]
        matches = (_SHORT.fullmatch(part.strip()) for part in text.split(","))
        return [self._entry(match.groupdict()) for match in matches if match is not None]

    def of_gke(self, text: object) -> list[NetworkEntry]:
        """Return the networks of GKE's annotation, without the pod's own."""
        return [
            self._entry({"name": one.get("network"), "interface": one.get("interfaceName")})
            for one in _list(_json(text))
            if isinstance(one, dict) and one.get("network") != "default"
        ]

    def are_on_vfs(self, entries: Iterable[NetworkEntry]) -> bool:
        """Return whether an object of the manifests says of one of these networks that it is on VFs."""
        return any(entry.name in self.fields for entry in entries)

    def _entry(self, selected: Mapping[str, Any]) -> NetworkEntry:
        name = str(selected.get("name"))
        interface: dict[str, Any] = {"network": name}
        for key, theirs in (("name", "interface"), ("mac", "mac"), ("guid", "infiniband-guid")):
            if isinstance(selected.get(theirs), str):
                interface[key] = selected[theirs]
        return NetworkEntry(name, interface | self.fields.get(name, {}), has_addresses=bool(selected.get("ips")))


def is_nic(name: str) -> bool:
    """Return whether the name of a device class or claim says that its devices are NICs."""
    return _NIC_CLASS.search(name) is not None


def _request_fields(spec: object) -> dict[str, Any]:
    """Return the fields of a request that a network sets; a value that cannot be read is left out."""
    fields: dict[str, Any] = {}
    if not isinstance(spec, dict):
        return fields
    for key, read, theirs in _FIELDS:
        texts = [spec[name] for name in theirs if name in spec]
        try:
            value = read(texts[0])
        except (IndexError, KeyError, TypeError, ValueError):
            continue
        # A number is 0 where nothing is set.
        if value or value is False:
            fields[key] = value
    return fields


def _json(text: object) -> Any:
    try:
        return json.loads(text) if isinstance(text, str) else None
    except (ValueError, RecursionError):
        return None


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def read_networks(objects: Iterable[tuple[str, Place]]) -> Networks:
    """Return what objects, given by kind, say about networks and claims."""
    networks = Networks()
    for kind, whole in objects:
        networks.add(kind, whole)
    return networks
