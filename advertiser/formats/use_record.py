"""Read and write ``use.json``: how the VFs of a captured host are set and used, for `kubectl mooring assess`.

    {"v":1,"taken_at":1800000000,
     "settings":{"0000:3b:00.2":{"vlan":100,"min_tx_rate":5000,"trust":true}},
     "host":{"0000:3b:00.3":"the host uses ens1f0v1 (port of bond0)"},
     "gpus":{"0000:1b:00.0":["0000:16:00.0","0000:17:02.0"]},
     "gpus_out":{"0000:43:00.0":"MIG is on"},
     "pools":{"openshift.io/rail0":["0000:3b:00.2","0000:3b:00.3"]},
     "devices":[{"uid":"8c2f…","resource":"openshift.io/rail0","pci":["0000:3b:00.2"],"count":1}]}

``settings`` and ``host`` are by the VF's PCI address, ``gpus`` has the bridges above each GPU, ``gpus_out`` why some
could not be on offer; early captures lack it. ``pools`` and ``devices`` are the kubelet's: which devices a resource
has, and which ones it has given to a pod. Both are absent if its checkpoint cannot be read. The record has no MAC,
GUID, UUID or address of a network.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from mooring import names
from mooring.errors import RecordError
from mooring.nic.pci import is_address
from mooring.nic.settings import VfSettings, read_found_settings
from mooring.parsing import Value, decode, dump, parse

FILE = "use.json"
_MOST = 65_536
_LONGEST = 256


@dataclass(frozen=True, slots=True)
class PodDevices:
    """Devices of one resource that a pod has from the kubelet: how many, and the PCI addresses of those with one."""

    uid: str
    resource: str
    pci: tuple[str, ...]
    count: int


@dataclass(frozen=True, slots=True)
class NodeUse:
    """How the VFs of a host are set and used; None is what the capture does not say."""

    taken_at: int
    settings: Mapping[str, VfSettings] = field(default_factory=dict, hash=False)
    host: Mapping[str, str] = field(default_factory=dict, hash=False)
    gpus: Mapping[str, tuple[str, ...]] = field(default_factory=dict, hash=False)
    gpus_out: Mapping[str, str] | None = field(default=None, hash=False)
    pools: Mapping[str, tuple[str, ...]] | None = None
    devices: tuple[PodDevices, ...] | None = None


def dump_use(use: NodeUse) -> str:
    """Return the record as JSON."""
    document: dict[str, object] = {
        "v": 1,
        "taken_at": use.taken_at,
        "settings": {pci: settings.to_fields() for pci, settings in use.settings.items()},
        "host": dict(use.host),
        "gpus": {pci: list(bridges) for pci, bridges in use.gpus.items()},
    }
    if use.gpus_out is not None:
        document["gpus_out"] = dict(use.gpus_out)
    if use.pools is not None:
        document["pools"] = {resource: list(pci) for resource, pci in use.pools.items()}
    if use.devices is not None:
        document["devices"] = [
            {"uid": device.uid, "resource": device.resource, "pci": list(device.pci), "count": device.count}
            for device in use.devices
        ]
    return dump(document)


def read_use(text: str) -> NodeUse:
    """Return the record ``text``; raise RecordError."""
    document = parse(text, FILE, RecordError).version(1).fields()
    return NodeUse(
        taken_at=document.required("taken_at").integer(0, 1 << 40),
        settings={
            _address(pci, value): read_found_settings(value.fields())
            for pci, value in document.required("settings").fields().items()
        },
        host={
            _address(pci, value): value.string(longest=_LONGEST)
            for pci, value in document.required("host").fields().items()
        },
        gpus={_address(pci, value): _addresses(value) for pci, value in document.required("gpus").fields().items()},
        gpus_out=document.optional("gpus_out", _reasons),
        pools=document.optional("pools", _pools),
        devices=document.optional("devices", lambda value: tuple(map(_pod_devices, value.items(_MOST)))),
    )


def _reasons(value: Value) -> dict[str, str]:
    return {_address(pci, item): item.string(longest=_LONGEST) for pci, item in value.fields().items()}


def pod_devices(checkpoint: str, gpus: Mapping[str, str]) -> tuple[dict[str, tuple[str, ...]], tuple[PodDevices, ...]]:
    """Return pools and pods' devices of a kubelet's checkpoint; ``gpus`` are PCI addresses by UUID. Raise ValueError.

    Source: pkg/kubelet/cm/devicemanager/checkpoint/checkpoint.go of Kubernetes. ``DeviceIDs`` are lists by NUMA node,
    and one list before 1.20. The device plugin for SR-IOV names a device by its PCI address, NVIDIA's by its UUID.
    """
    try:
        data = decode(checkpoint)["Data"]
        pools = {str(resource): _known(ids, gpus) for resource, ids in (data.get("RegisteredDevices") or {}).items()}
        entries = [
            (str(one["PodUID"]), str(one["ResourceName"]), _ids(one["DeviceIDs"]))
            for one in data.get("PodDeviceEntries") or ()
        ]
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(str(error)) from error
    return pools, tuple(PodDevices(uid, resource, _known(ids, gpus), len(ids)) for uid, resource, ids in entries)


def _ids(found: object) -> list[object]:
    if isinstance(found, dict):
        return [device for ids in found.values() for device in ids]
    return list(found) if isinstance(found, list) else []


def _known(ids: Iterable[object], gpus: Mapping[str, str]) -> tuple[str, ...]:
    """Return the PCI addresses of devices, without those that have none, such as instances of a partitioned GPU."""
    addresses = (gpus.get(text, text) for text in map(str, ids))
    return tuple(address for address in addresses if is_address(address))


def _address(text: str, value: Value) -> str:
    return names.address(value.with_raw(text))


def _addresses(value: Value) -> tuple[str, ...]:
    return tuple(names.address(item) for item in value.items(_MOST))


def _pools(value: Value) -> dict[str, tuple[str, ...]]:
    return {resource: _addresses(pci) for resource, pci in value.fields().items()}


def _pod_devices(value: Value) -> PodDevices:
    document = value.fields()
    return PodDevices(
        uid=names.uid(document.required("uid")),
        resource=document.required("resource").string(longest=_LONGEST),
        pci=_addresses(document.required("pci")),
        count=document.required("count").integer(0, _MOST),
    )
