"""A pod's request: the annotations ``mooring.dev/interfaces`` and ``mooring.dev/placement``.

    mooring.dev/interfaces   [{"min_tx_rate":15000,"max_tx_rate":20000},{"network":"rail1","name":"rdma1"},{}]
    mooring.dev/placement    {"pfs":"pack","vfs":"root"}

Each entry is one VF, in order; ``{}`` is one VF without a rate, ``[]`` no VF. A pod can use
``rdma_interfaces_required`` of rit-k8s-rdma instead: the same list, in which unknown fields and nulls are ignored, as
in that system.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal

from mooring import names
from mooring.errors import AnnotationError
from mooring.nic.settings import SETTING_NAMES, VfSettings, read_settings
from mooring.parsing import Fields, Value, dump, parse

MOST_INTERFACES = 64
NO_RAIL = -1
# The manifests' admission policy has the same limits.
MOST_CHARACTERS, MOST_PLACEMENT_CHARACTERS = 32_768, 256
PfSpread = Literal["pack", "spread", "distinct"]
# root: under the PCIe roots of the devices in the pod's resource claims.
Near = Literal["root"]
_SELECTORS = ("network", "pf", "link", "name", "containers", "netdev")
_FIELDS = frozenset((*SETTING_NAMES, *_SELECTORS))
# What only a VF with a netdev has; the settings among these are for Ethernet. The loopback and the cluster network's
# interface. Sources: defaultIfName of containerd's internal/cri/server/helpers.go, and DefaultInterfaceName of
# cri-o/ocicni, pkg/ocicni/types.go.
_OF_EVERY_POD = ("lo", "eth0")
_OF_A_NETDEV = ("name", "mac", "vlan", "qos", "trust", "spoofchk")


@dataclass(frozen=True, slots=True)
class VfRequest:
    """One VF that a pod requests; ``pf`` is a glob over PF names, ``containers`` get its devices (None: all).

    ``netdev`` False requests only the RDMA device, True a VF with a netdev; None takes the netdev if there is one.
    ``rail`` is not from the annotation. A group sets it: the index of the node's network, in natural order from 0, or
    `NO_RAIL` for one that no node has.
    """

    settings: VfSettings = field(default_factory=VfSettings)
    network: str | None = None
    pf: str | None = None
    link: names.LinkType | None = None
    name: str | None = None
    containers: tuple[str, ...] | None = None
    rail: int | None = None
    netdev: bool | None = None

    @property
    def min_tx_rate(self) -> int:
        """The rate to reserve, in Mb/s; 0 if none is requested."""
        return self.settings.min_tx_rate or 0


@dataclass(frozen=True, slots=True)
class PodRequest:
    """A pod's request to the scheduler: its VFs in order, and their distribution over PFs (None: no preference).

    ``vfs`` says where the VFs must be relative to the devices in the pod's resource claims (None: anywhere).
    Two fields are not from the annotation. The scheduler sets ``namespace`` where PFs are restricted to namespaces. The
    extender sets ``devices``: of each claimed device the PCIe roots below which it is.
    """

    interfaces: tuple[VfRequest, ...]
    pfs: PfSpread | None = None
    vfs: Near | None = None
    namespace: str | None = None
    devices: tuple[frozenset[str], ...] = ()


def read_request(annotations: Mapping[str, str]) -> PodRequest | None:
    """Read a pod's request from its annotations; None if it has none. Raise AnnotationError."""
    texts = annotations.get(names.REQUEST), annotations.get(names.RIT_REQUEST), annotations.get(names.PLACEMENT)
    if any(text is not None and len(text) > _SHORT for text in texts):
        return _read(*texts)
    return _read_short(*texts)


def _read(native: str | None, rit: str | None, placement: str | None) -> PodRequest | None:
    if native is not None and rit is not None:
        raise AnnotationError(names.REQUEST, "", f"the pod also has {names.RIT_REQUEST!r}; only one may be given")
    if native is not None:
        interfaces = _interfaces(_parse(native, names.REQUEST), strict=True)
    elif rit is not None:
        interfaces = _interfaces(_parse(rit, names.RIT_REQUEST), strict=False)
    else:
        return None
    return PodRequest(interfaces, *_placement(placement, interfaces))


def _parse(text: str, key: str, longest: int = MOST_CHARACTERS) -> Value:
    if len(text) > longest:
        raise AnnotationError(key, "", f"longer than {longest} characters")
    return parse(text, key, AnnotationError)


# Replicas have equal texts, so their values are cached. Long texts are rare, and would fill the memory.
_SHORT = 1024
_read_short = lru_cache(maxsize=1024)(_read)


def dump_interfaces(interfaces: tuple[VfRequest, ...]) -> str:
    """Return interfaces as the value of ``mooring.dev/interfaces``."""
    return dump([_to_fields(interface) for interface in interfaces])


def asks_for_vfs(annotations: Mapping[str, str]) -> bool:
    """Return whether a pod requests VFs; True for a request that cannot be read."""
    try:
        request = read_request(annotations)
    except AnnotationError:
        return True
    return request is not None and bool(request.interfaces)


def _interfaces(value: Value, *, strict: bool) -> tuple[VfRequest, ...]:
    if not strict and value.raw is None:
        return ()
    interfaces = tuple(_interface(item, strict=strict) for item in value.items(MOST_INTERFACES))
    refuse_duplicate_names(value, interfaces)
    return interfaces


def _interface(value: Value, *, strict: bool) -> VfRequest:
    if strict:
        document = value.fields(_FIELDS)
    else:
        # rit-k8s-rdma supports two fields; Go's decoder treats null as absent and ignores unknown fields.
        raw = value.fields().raw
        rates = {key: raw[key] for key in ("min_tx_rate", "max_tx_rate") if raw.get(key) is not None}
        document = value.with_raw(rates).fields()
    return VfRequest(
        settings=read_settings(document),
        network=document.optional("network", names.network),
        pf=document.optional("pf", names.glob),
        link=document.optional("link", names.link),
        name=document.optional("name", _name),
        containers=document.optional("containers", containers),
        netdev=wants_netdev(document),
    )


def _name(value: Value) -> str:
    name = names.interface(value)
    if name in _OF_EVERY_POD:
        value.fail(f"{name!r} is an interface that every pod already has")
    return name


def wants_netdev(document: Fields) -> bool | None:
    """Read whether a VF is requested with its netdev; reject settings that need one if it is not.

    An Ethernet VF is useless without its netdev: its GIDs are the netdev's addresses, and its port is down while the
    netdev is down (mlx5_query_port_roce in drivers/infiniband/hw/mlx5/main.c, bnxt_re_query_port, irdma_query_port).
    """
    netdev = document.optional("netdev", Value.boolean)
    if netdev is False:
        for name in _OF_A_NETDEV:
            document.optional(name, _refuse_without_netdev)
        if document.optional("link", names.link) == "ethernet":
            document.required("link").fail("RDMA on Ethernet needs the netdev, but netdev is false")
    return netdev


def _refuse_without_netdev(value: Value) -> None:
    value.fail("needs a netdev, but netdev is false")


def containers(value: Value) -> tuple[str, ...]:
    """Read a list of container names: at least one, without duplicates."""
    container_names = tuple(names.container(item) for item in value.items(MOST_INTERFACES))
    if not container_names or len(set(container_names)) != len(container_names):
        value.fail("must name at least one container, and each only once")
    return container_names


def refuse_duplicate_names(value: Value, entries: tuple[VfRequest, ...]) -> None:
    interface_names: set[str] = set()
    for index, entry in enumerate(entries):
        if entry.name is not None and entry.name in interface_names:
            value.at(f"[{index}].name", None).fail(
                f"{entry.name!r} is already the name of another interface of this pod"
            )
        interface_names |= {entry.name} if entry.name is not None else set()


def _placement(text: str | None, interfaces: tuple[VfRequest, ...]) -> tuple[PfSpread | None, Near | None]:
    if text is None:
        return None, None
    document = _parse(text, names.PLACEMENT, MOST_PLACEMENT_CHARACTERS).fields({"pfs", "vfs"})
    choices: tuple[PfSpread, PfSpread, PfSpread] = ("pack", "spread", "distinct")
    vfs = document.optional("vfs", _near)
    if vfs is not None and not interfaces:
        document.required("vfs").fail("the pod requests no VFs")
    if vfs is None:
        document.required("pfs")
    return document.optional("pfs", lambda value: value.choice(*choices)), vfs


def _near(value: Value) -> Near:
    return value.choice("root")


def _to_fields(interface: VfRequest) -> dict[str, object]:
    document = interface.settings.to_fields()
    for selector in _SELECTORS:
        if (wish := getattr(interface, selector)) is not None:
            document[selector] = list(wish) if isinstance(wish, tuple) else wish
    return document
