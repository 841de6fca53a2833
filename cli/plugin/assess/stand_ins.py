"""Replace what identifies a cluster by stand-ins: names, addresses, uids, serial numbers. Pure.

Equal texts get equal stand-ins everywhere, so that a pod still names its node. A text is kept only if it is public
(`public_words`): a word of Kubernetes or of a driver, a PCI address, a name that the kernel gives, a short number.
Everything else is replaced, part by part, in values and in keys.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from advertiser.formats import use_record
from advertiser.formats.use_record import dump_use, read_use
from cli.plugin.assess.public_words import (
    AMOUNT,
    FIELDS,
    is_device_name,
    is_public,
    is_public_key,
    is_sysfs_name,
)
from cli.plugin.bundle.redact import REMOVED, redact_object
from mooring.kube.nesting import cut_deep_nesting
from mooring.parsing import decode

_QUANTITIES = frozenset({"limits", "requests", "capacity", "allocatable", "overhead"})
# Maps whose keys are labels, resources or attributes, not fields.
_KEYED = _QUANTITIES | {"labels", "annotations", "matchLabels", "nodeSelector", "selector", "attributes", "pools"}
_SELECTOR_FIELDS = frozenset({"matchLabels", "matchExpressions", "nodeSelectorTerms"})
# Fields and annotations whose value is the key of a label, a resource or an attribute, or a list of such keys.
_KEY_FIELDS = frozenset({
    "key", "topologyKey", "topologyKeys", "matchLabelKeys", "mismatchLabelKeys", "prefer", "within", "name_from",
    "matchAttribute", "deviceClassName", "resourceName", "k8s.v1.cni.cncf.io/resourceName",
    "alpha.jobset.sigs.k8s.io/exclusive-topology", "leaderworkerset.sigs.k8s.io/exclusive-topology",
})  # fmt: skip
# Fields that no finding, rule or decision needs.
_DROPPED = frozenset({
    "message", "nodeInfo", "addresses", "containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses",
    "podIP", "podIPs", "hostIP", "hostIPs", "selfLink", "generateName", "env", "envFrom", "command", "args", "image",
    "podCIDR", "podCIDRs", "providerID", "ips", "dns", "ipam", "imagePullSecrets", "config.json",
})  # fmt: skip
# Resources of a vendor's domain whose rest an administrator chooses.
_POOL = re.compile(
    r"(?P<domain>nvidia\.com|mellanox\.com|amd\.com|intel\.com|openshift\.io|rdma)/(?P<rest>[A-Za-z0-9._-]+)"
)
# A key with a domain. Names of namespaces have no dot.
_QUALIFIED = re.compile(r"[^/@,\s]*\.[^/@,\s]*/[^/@,\s]+")
_DEVICE_WORD = re.compile(r"rdma|sriov|infiniband|roce|hca|mlnx|hostdev|vnic|efa|vfs?|gpu|dranet|root")
# A hardware address, then a PCI address, then what names are made of.
_PARTS = re.compile(
    r"(?P<mac>(?:[0-9A-Fa-f]{2}[:-]){5,19}[0-9A-Fa-f]{2})(?![0-9A-Fa-f:])"
    r"|(?P<pci>[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])(?![A-Za-z0-9_.:-]|[^\x00-\x7f])"
    r"|(?P<name>(?:[A-Za-z0-9]|[^\x00-\x7f])(?:[A-Za-z0-9_.:-]|[^\x00-\x7f])*)"
)
# What `mooring.nic.vf_users` says about a use by the host, beside names, and `build_gpu_inventory` about a GPU.
_USE_WORDS = frozenset({
    "the", "host", "uses", "port", "of", "process", "unknown", "vdpa", "device", "default", "route", "to", "table",
    "IPv4", "IPv6", "macvtap", "geneve", "no", "driver", "bound", "vfio-pci", "nouveau", "NVIDIA", "s", "excludes",
    "it", "MIG", "is", "on", "compute", "partition", "DPX", "TPX", "QPX", "CPX", "its", "UUID",
})  # fmt: skip
# Files of a capture that contain the name of a device.
_NAMES = frozenset({"parent", "ibdev"})


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
        if text == REMOVED or is_public(text):
            return text
        is_key = _POOL.fullmatch(text) or _QUALIFIED.fullmatch(text)
        return self.key(text) if is_key else _PARTS.sub(self._part, text)

    def key(self, text: str) -> str:
        """Return the key of a label, resource or attribute; a resource's keeps the words that tell what it is."""
        if is_public_key(text):
            return text
        domain, slash, rest = text.rpartition("/")
        word = _DEVICE_WORD.search(rest)
        kept = f"{word[0]}-" if word is not None else ""
        if _POOL.fullmatch(text):
            return f"{domain}/{kept}{self.name(rest)}"
        return f"{self.name(domain)}.example/{kept}{self.name(rest)}" if slash else f"{kept}{self.name(rest)}"

    def entry(self, name: str) -> str:
        """Return the name of an entry of a capture: a device's can be chosen by an administrator."""
        return name if is_sysfs_name(name) else self._device(name)

    def content(self, name: str, content: bytes) -> bytes:
        """Return the content of a file of a capture; ``name`` is the file's own."""
        if name not in _NAMES:
            return content if is_sysfs_name(name) else b""
        return self.text(content.decode(errors="replace")).encode()

    def _device(self, name: str) -> str:
        return name if is_device_name(name) or is_public(name) else self.name(name)

    def _part(self, match: re.Match[str]) -> str:
        text = match[0]
        return text if match["pci"] else self._device(text)

    def _map(self, document: Mapping[str, Any], *, keyed: bool = False, quantities: bool = False) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, value in document.items():
            if (value == REMOVED) if keyed else (key in _DROPPED):
                continue
            shown = self.key(key) if keyed else key if key in FIELDS else self.text(key)
            is_amount = quantities and isinstance(value, str) and AMOUNT.fullmatch(value)
            found[shown] = value if is_amount else self._value(key, value)
        return found

    def _value(self, key: str, value: Any) -> Any:
        if isinstance(value, Mapping):
            is_map = (
                key in _KEYED
                and _SELECTOR_FIELDS.isdisjoint(value)
                and all(isinstance(one, str | int | Mapping) for one in value.values())
            )
            return self._map(value, keyed=is_map, quantities=key in _QUANTITIES)
        if isinstance(value, list):
            return [self._value(key if isinstance(one, str) else "", one) for one in value]
        if not isinstance(value, str):
            return value
        return self.key(value) if key in _KEY_FIELDS else self._text_or_json(value)

    def _text_or_json(self, text: str) -> str:
        """Replace within JSON value by value: an annotation, or the configuration of a network."""
        if text.lstrip().startswith(("{", "[")):
            try:
                return json.dumps(self._value("", decode(cut_deep_nesting(text.encode()))))
            except ValueError:
                pass
        return self.text(text)

    def record(self, file: str, text: str) -> str:
        """Return a record of a capture: uids, boot ids, resources and names of devices are replaced."""
        return self._use_record(text) if file == use_record.FILE else self._capture_record(text)

    def _use_record(self, text: str) -> str:
        use = read_use(text)
        pools, devices = use.pools, use.devices
        return dump_use(
            replace(
                use,
                settings={pci: replace(one, mac=None, guid=None) for pci, one in use.settings.items()},
                host=self._uses(use.host),
                gpus_out=None if use.gpus_out is None else self._uses(use.gpus_out),
                pools=None if pools is None else {self.key(resource): pci for resource, pci in pools.items()},
                devices=None
                if devices is None
                else tuple(
                    replace(device, uid=self.name(device.uid), resource=self.key(device.resource)) for device in devices
                ),
            )
        )

    def _uses(self, texts: Mapping[str, str]) -> dict[str, str]:
        return {pci: _PARTS.sub(self._use_part, text) for pci, text in texts.items()}

    def _use_part(self, match: re.Match[str]) -> str:
        return match[0] if match[0] in _USE_WORDS else self._part(match)

    def _capture_record(self, text: str) -> str:
        """Return the record, of which reading has accepted the fields."""
        document = decode(text)
        altnames, programs, held = (document[key] for key in ("altnames", "programs", "held"))
        document |= {
            "boot": self.name(document["boot"]),
            "altnames": {
                self._device(key): [self._device(altname) for altname in several] for key, several in altnames.items()
            },
            "programs": {self.text(key): self.text(one) for key, one in programs.items()},
            "held": {
                pci: entry and {**entry, "boot": self.name(entry["boot"]), "uid": self.name(entry["uid"])}
                for pci, entry in held.items()
            },
        }
        return json.dumps(document, sort_keys=True, separators=(",", ":"))
