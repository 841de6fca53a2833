"""Keys of annotations, and the rules for names in annotations and records."""

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
RUNS = "mooring.dev/runs"
SPARES = "mooring.dev/spares"
SIGNATURE = "mooring.dev/assignment-signature"
RATES = "mooring.dev/rates"
RATES_SIGNATURE = "mooring.dev/rates-signature"
RATES_IN_FORCE = "mooring.dev/rates-in-force"
WHY = "mooring.dev/why"
DRAIN = "mooring.dev/drain"
DRAIN_REASONS = "mooring.dev/drain-reasons"
# The prefix of inventories of other kinds of resource; the kind's name follows. In the assignment they are
# ``ext.<kind>``.
INVENTORY_OF = "mooring.dev/inventory."
REQUEST_OF = "mooring.dev/request."
# The request annotation of rit-k8s-rdma, which is accepted unchanged.
RIT_REQUEST = "rdma_interfaces_required"
# The resource of rit-k8s-rdma: containers with a limit of it get the devices.
RIT_DEVICES = "rdma-sriov/dev-infiniband-mount"
RIT_VFS = "rdma-sriov/vf"
# The Mb/s that pods can reserve with ``min_tx_rate``, for quotas and autoscalers, as `RIT_VFS` is for VFs.
RESERVED_MBPS = "rdma-sriov/mbps"
# Hustcat's resource: a container with a limit of N, in a pod without a request annotation, gets N plain VFs.
HUSTCAT_VFS = "tencent.com/rdma"
EXTENDED_RESOURCES = (RIT_DEVICES, RIT_VFS, RESERVED_MBPS, HUSTCAT_VFS)
# The label with which pods name their PodGroup of scheduler-plugins; training operators set it.
POD_GROUP_LABEL = "scheduling.x-k8s.io/pod-group"
SCHEDULER_NAME = "mooring"

LinkType = Literal["ethernet", "infiniband"]
LINK_TYPES: tuple[LinkType, LinkType] = ("ethernet", "infiniband")

# IFNAMSIZ is 16 with the terminating zero. The kernel excludes '/', ':' and white space (dev_valid_name), and '%' is
# its template character. The kernel would also allow characters outside ASCII, which other programs cannot handle.
_INTERFACE = re.compile(r"(?!\.{1,2}$)[!-$&-.0-9;-~]{1,15}", re.ASCII)
# A namespace may come before a slash, so that a network can have the name of a NetworkAttachmentDefinition.
_NETWORK = re.compile(r"(?:[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?/)?[a-z0-9](?:[-a-z0-9._]{0,61}[a-z0-9])?", re.ASCII)
_GLOB = re.compile(r"[!-.0-~]{1,64}", re.ASCII)
_LABEL = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?", re.ASCII)
_DNS_LABEL = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = re.compile(rf"(?=.{{1,253}}$){_DNS_LABEL}(?:\.{_DNS_LABEL})*", re.ASCII)
# API objects have UUIDs, static pods the hash of their manifest. The uid becomes a file name: no slash, no dot.
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
    """Return a function that recognises file names made of a valid stem and the suffix."""
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
