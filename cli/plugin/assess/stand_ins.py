"""Replace what identifies a cluster by stand-ins: names, addresses, uids, serial numbers. Pure.

Equal texts get equal stand-ins everywhere, so that a pod still names its node. A text is kept only if its field has a
fixed set of values (`_KEPT`), or if all of its parts are public: PCI addresses, names of interfaces, short numbers,
and names below the domains of Kubernetes and of vendors. Everything else is replaced, part by part.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

from cli.plugin.bundle.redact import REMOVED, redact_object
from mooring import names
from mooring.kube.nesting import without_deep_nesting
from mooring.parsing import decode

# Fields with values of Kubernetes' own, times and quantities.
_KEPT = frozenset({
    "apiVersion", "kind", "phase", "type", "status", "reason", "restartPolicy", "operator", "effect", "protocol",
    "creationTimestamp", "deletionTimestamp", "startTime", "lastTransitionTime", "startedAt", "finishedAt",
    "whenUnsatisfiable", "preemptionPolicy", "dnsPolicy", "qosClass", "completionMode", "cniVersion", "version",
    "schedulerName", "driver", "deviceClassName", "link", "mode", "resource", "allocationMode", "spoofchk", "trust",
    "link_state", "spoofChk", "linkState", "together", "vfs", "pfs",
})  # fmt: skip
_QUANTITIES = frozenset({"limits", "requests", "capacity", "allocatable", "overhead"})
# Maps whose keys are labels, resources or attributes, not fields.
_KEYED = _QUANTITIES | {"labels", "annotations", "matchLabels", "nodeSelector", "selector", "attributes", "pools"}
# Fields that no finding, rule or decision needs.
_DROPPED = frozenset({
    "message", "nodeInfo", "addresses", "containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses",
    "podIP", "podIPs", "hostIP", "hostIPs", "selfLink", "generateName", "env", "envFrom", "command", "args", "image",
    "podCIDR", "podCIDRs", "providerID", "ips", "dns", "ipam", "imagePullSecrets", "config.json",
})  # fmt: skip
_PUBLIC = re.compile(
    r"(?:[a-z0-9.-]+\.)?(?:kubernetes\.io|k8s\.io|x-k8s\.io|cncf\.io|kubeflow\.org|volcano\.sh|ray\.io|mooring\.dev"
    r"|topology\.nvidia\.com|k8s\.aws|google\.com|oraclecloud\.com|azure\.com|dra\.net|tencent\.com|rdma-sriov)"
    r"/[A-Za-z0-9._/-]+|(?:nvidia|amd)\.com/gpu(?:\.shared)?|nvidia\.com/mig-[0-9a-z.]+"
)
# Resources of a vendor's domain whose rest an administrator chooses.
_POOL = re.compile(
    r"(?P<domain>nvidia\.com|mellanox\.com|amd\.com|intel\.com|openshift\.io|rdma)/(?P<rest>[A-Za-z0-9._-]+)"
)
_OWN_KEYS = frozenset({"cpu", "memory", "pods", "ephemeral-storage", "rack", "app"})
_DEVICE_WORD = re.compile(r"rdma|sriov|infiniband|roce|hca|mlnx|hostdev|vnic|efa|vfs?|gpu")
# A hardware address, then a PCI address, then what names are made of.
_PARTS = re.compile(
    r"(?P<mac>(?:[0-9A-Fa-f]{2}[:-]){5,19}[0-9A-Fa-f]{2})(?![0-9A-Fa-f:])"
    r"|(?P<pci>[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])"
    r"|(?P<name>[A-Za-z0-9][A-Za-z0-9_.:-]*)"
)
# Names that the kernel and udev make from a device's place, and Multus' and Mooring's of a pod's interfaces.
_INTERFACE = re.compile(r"(?:en|ib|et?h?)(?:[ops]\d+\w{0,12}|\d{1,3})|net\d{1,3}|lo|bond\d{1,3}|mlx[45]_\d{1,4}")
_BY_MAC = re.compile(r"(?:en|ib|wl|sl)x[0-9a-f]{12}")
_SHORT_NUMBER = re.compile(r"\d{1,4}|true|false|null|none|on|off|default|auto")


class StandIns:
    """The stand-ins of one archive; the number of a stand-in says nothing but the order of its first use."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}

    def object(self, item: Mapping[str, Any]) -> dict[str, Any]:
        """Return an object of the API without secrets and identities."""
        found = self._map(redact_object(item))
        node_info = item.get("status", {}).get("nodeInfo") if isinstance(item.get("status"), Mapping) else None
        if isinstance(node_info, Mapping):
            # The inventory of a node counts for this boot only.
            found["status"]["nodeInfo"] = {"bootID": self.name(str(node_info.get("bootID", "")))}
        return found

    def name(self, text: str) -> str:
        """Return the stand-in of a whole text, such as a node's name."""
        return self._names.setdefault(text, f"name-{len(self._names) + 1}") if text else ""

    def text(self, text: str) -> str:
        """Return a text with each part replaced that is not public."""
        if text == REMOVED or _PUBLIC.fullmatch(text):
            return text
        return self.key(text) if _POOL.fullmatch(text) else _PARTS.sub(self._part, text)

    def key(self, text: str) -> str:
        """Return the key of a label, resource or attribute; a resource's keeps the words that tell what it is."""
        if text in _OWN_KEYS or text.startswith("hugepages-") or _PUBLIC.fullmatch(text) or text == names.RIT_REQUEST:
            return text
        domain, slash, rest = text.rpartition("/")
        word = _DEVICE_WORD.search(rest)
        kept = f"{word[0]}-" if word is not None else ""
        if _POOL.fullmatch(text):
            return f"{domain}/{kept}{self.name(rest)}"
        return f"{self.name(domain)}.example/{kept}{self.name(rest)}" if slash else f"{kept}{self.name(rest)}"

    def interface(self, text: str) -> str:
        """Return the name of a netdev: udev can make it from a MAC."""
        return f"{text[:3]}{self.name(text)}" if _BY_MAC.fullmatch(text) else text

    def _part(self, match: re.Match[str]) -> str:
        text = match[0]
        if match["pci"] or _INTERFACE.fullmatch(text) or _SHORT_NUMBER.fullmatch(text):
            return text
        return self.name(text)

    def _map(self, document: Mapping[str, Any], *, keyed: bool = False, quantities: bool = False) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, value in document.items():
            if not keyed and key in _DROPPED:
                continue
            if keyed and value == REMOVED:
                continue
            shown = self.key(key) if keyed else key
            found[shown] = value if quantities or (not keyed and _is_kept(key, value)) else self._value(key, value)
        return found

    def _value(self, key: str, value: Any) -> Any:
        if isinstance(value, Mapping):
            is_map = key in _KEYED and all(isinstance(one, str | int | Mapping) for one in value.values())
            return self._map(value, keyed=is_map, quantities=key in _QUANTITIES)
        if isinstance(value, list):
            return [self._value(key, one) for one in value]
        return self._text_or_json(value) if isinstance(value, str) else value

    def _text_or_json(self, text: str) -> str:
        """Replace within JSON value by value: an annotation, or the configuration of a network."""
        if text.startswith(("{", "[")):
            try:
                return json.dumps(self._value("", decode(without_deep_nesting(text.encode()))))
            except ValueError:
                pass
        return self.text(text)

    def record(self, text: str) -> str:
        """Return a record of a capture: uids, boot ids, resources and names of interfaces are replaced."""
        document = decode(text)
        if not isinstance(document, dict):
            return "{}"
        return json.dumps(self._record(document), sort_keys=True, separators=(",", ":"))

    def _record(self, document: dict[str, Any]) -> dict[str, Any]:
        found = dict(document)
        if "boot" in found:
            found["boot"] = self.name(str(found["boot"]))
        if isinstance(altnames := found.get("altnames"), dict):
            found["altnames"] = {
                self.interface(key): [self.interface(str(one)) for one in several] for key, several in altnames.items()
            }
        for entry in (found.get("held") or {}).values():
            if isinstance(entry, dict):
                entry |= {key: self.name(str(entry[key])) for key in ("boot", "uid") if key in entry}
        if isinstance(pools := found.get("pools"), dict):
            found["pools"] = {self.key(key): pci for key, pci in pools.items()}
        for entry in found.get("devices") or ():
            if isinstance(entry, dict):
                entry |= {"uid": self.name(str(entry.get("uid"))), "resource": self.key(str(entry.get("resource")))}
        if isinstance(host := found.get("host"), dict):
            found["host"] = {pci: self._use(str(text)) for pci, text in host.items()}
        return found

    def _use(self, text: str) -> str:
        """Return how the host uses a VF: a link's name stays, a process is replaced."""
        return re.sub(r"(?<=process )[^)]+", lambda match: self.text(match[0]), text)


def _is_kept(key: str, value: Any) -> bool:
    return key in _KEPT and isinstance(value, str) and len(value) < 64
