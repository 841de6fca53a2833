"""The names in the documents of the contract, and the annotation keys."""

import re
from collections.abc import Callable
from typing import Literal

from mooring.nic import pci
from mooring.parsing import Value

INVENTORY = "mooring.dev/inventory"
REQUEST = "mooring.dev/interfaces"
PLACEMENT = "mooring.dev/placement"
ASSIGNMENT = "mooring.dev/assignment"
GROUP = "mooring.dev/group"
SIGNATURE = "mooring.dev/assignment-signature"
RATES = "mooring.dev/rates"
RATES_SIGNATURE = "mooring.dev/rates-signature"
RATES_IN_FORCE = "mooring.dev/rates-in-force"
WHY = "mooring.dev/why"
DRAIN = "mooring.dev/drain"
DRAIN_REASONS = "mooring.dev/drain-reasons"
# Inventories of other kinds of resource: followed by the kind's name; in the assignment they are ``ext.<kind>``.
INVENTORY_OF = "mooring.dev/inventory."
REQUEST_OF = "mooring.dev/request."
# The request key of rit-k8s-rdma, accepted unchanged.
RIT_REQUEST = "rdma_interfaces_required"
# The resource of rit-k8s-rdma: a container with a limit of it gets the devices.
RIT_DEVICES = "rdma-sriov/dev-infiniband-mount"
RIT_VFS = "rdma-sriov/vf"
# Mb/s that pods may reserve by ``min_tx_rate``: for quotas and autoscalers, as `RIT_VFS` is for VFs.
RESERVED_MBPS = "rdma-sriov/mbps"
# Hustcat's resource: a container with a limit of N, without a request, gets N plain VFs.
HUSTCAT_VFS = "tencent.com/rdma"
EXTENDED_RESOURCES = (RIT_DEVICES, RIT_VFS, RESERVED_MBPS, HUSTCAT_VFS)
# The label by which pods name their PodGroup of scheduler-plugins; training operators set it by themselves.
POD_GROUP_LABEL = "scheduling.x-k8s.io/pod-group"
SCHEDULER_NAME = "mooring"

LinkType = Literal["ethernet", "infiniband"]
LINK_TYPES: tuple[LinkType, LinkType] = ("ethernet", "infiniband")

# IFNAMSIZ is 16 with the ending zero; '/', ':' and white space are the kernel's own exclusions (dev_valid_name), '%' is
# its template character. Anything outside ASCII would be legal there and unreadable everywhere else.
_INTERFACE = re.compile(r"(?!\.{1,2}$)[!-$&-.0-9;-~]{1,15}", re.ASCII)
# Before the slash is a namespace: the name of a NetworkAttachmentDefinition may be a network's.
_NETWORK = re.compile(r"(?:[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?/)?[a-z0-9](?:[-a-z0-9._]{0,61}[a-z0-9])?", re.ASCII)
_GLOB = re.compile(r"[!-.0-~]{1,64}", re.ASCII)
_LABEL = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?", re.ASCII)
_DNS_LABEL = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = re.compile(rf"(?=.{{1,253}}$){_DNS_LABEL}(?:\.{_DNS_LABEL})*", re.ASCII)
# API objects have UUIDs, static pods the hash of their manifest. It becomes a file's name: no slash, no dot.
_UID = re.compile(r"[A-Za-z0-9][-_A-Za-z0-9]{0,62}", re.ASCII)
_PORT = re.compile(r"[!-~]{1,64}", re.ASCII)
_RDMA = re.compile(r"[!-.0-~]{1,63}", re.ASCII)


def interface(value: Value) -> str:
    """Read a network interface's name, valid by the kernel's ``dev_valid_name``."""
    return value.match(_INTERFACE, "an interface name (1 to 15 characters, no '/', ':', '%' or space)")


def is_interface(text: str) -> bool:
    return _INTERFACE.fullmatch(text) is not None


def network(value: Value) -> str:
    return value.match(
        _NETWORK, "a network name (at most 63 of a-z 0-9 . _ -, alphanumeric at both ends, or namespace/name)"
    )


def glob(value: Value) -> str:
    return value.match(_GLOB, "a pattern for interface names (at most 64 characters, no space or '/')")


def container(value: Value) -> str:
    return value.match(_LABEL, "a container name (at most 63 of a-z 0-9 -, alphanumeric at both ends)")


def subdomain(value: Value) -> str:
    return value.match(_SUBDOMAIN, "a DNS subdomain (at most 253 of a-z 0-9 . -)")


def is_subdomain(text: str) -> bool:
    return _SUBDOMAIN.fullmatch(text) is not None


def uid(value: Value) -> str:
    return value.match(_UID, "a pod uid (at most 63 of A-Z a-z 0-9 _ -)")


def is_uid(text: str) -> bool:
    return _UID.fullmatch(text) is not None


def with_suffix(is_stem: Callable[[str], bool], suffix: str = ".json") -> Callable[[str], bool]:
    """Return what recognizes the file names that are such a stem and the suffix."""
    return lambda name: name.endswith(suffix) and is_stem(name[: -len(suffix)])


def port(value: Value) -> str:
    return value.match(_PORT, "a port's name (at most 64 characters, no space)")


def rdma(value: Value) -> str:
    return value.match(_RDMA, "an RDMA device name (at most 63 characters, no space or '/')")


def is_rdma(text: str) -> bool:
    return _RDMA.fullmatch(text) is not None


def link(value: Value) -> LinkType:
    return value.choice(*LINK_TYPES)


def address(value: Value) -> str:
    text = value.string(longest=16)
    if not pci.is_address(text):
        value.fail(f"{text!r} {pci.NOT_AN_ADDRESS}")
    return text
