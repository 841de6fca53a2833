"""Check whether this node is ready for the shim: ``mooring-cri-shim --check``."""

import os
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path

import grpc
from google.protobuf.message import DecodeError

from cri_shim.devices.device_nodes import Roots
from cri_shim.listen import ListenError, socket_path
from cri_shim.pb import cri_pb2 as cri
from cri_shim.proxy.proxy import CRI_PREFIX
from mooring.annotations.assignment_keys import AssignmentKeys

_ANSWER_S = 5.0
# The kubelet recognizes CRI-O by the end of its socket's path.
CRIO_SUFFIX = "run/crio/crio.sock"


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One check: its subject, its result as text, and whether it passed."""

    subject: str
    detail: str
    good: bool


def check_node(listen: str, runtime: str, state: Path, roots: Roots) -> Iterator[CheckResult]:
    """Check everything that the shim depends on, without changing anything."""
    name = yield from _runtime(runtime)
    yield _listen(listen, name)
    yield _state(state)
    yield from _devices(roots)


def check_keys(keys: AssignmentKeys) -> CheckResult:
    """Return the keys that this node accepts; the check fails if their file cannot be used."""
    if fault := keys.look():
        return CheckResult("keys", fault, good=False)
    if keys.ids is None:
        return CheckResult("keys", "none: this node accepts unsigned assignments", good=True)
    return CheckResult("keys", f"this node accepts only assignments signed by {' or '.join(keys.ids)}", good=True)


def _runtime(address: str) -> Generator[CheckResult, None, str]:
    try:
        socket_path(address)
        with grpc.insecure_channel(address) as channel:
            answer = channel.unary_unary(f"{CRI_PREFIX}RuntimeService/Version")(b"", timeout=_ANSWER_S)
        version = cri.VersionResponse.FromString(answer)
    except (ListenError, DecodeError) as reason:
        yield CheckResult("runtime", str(reason), good=False)
        return ""
    except grpc.RpcError as failure:
        yield CheckResult("runtime", f"{address} does not answer: {failure.details()}", good=False)
        return ""
    yield CheckResult("runtime", f"{version.runtime_name} {version.runtime_version} at {address}", good=True)
    return version.runtime_name


def _listen(address: str, runtime_name: str) -> CheckResult:
    try:
        path = socket_path(address)
    except ListenError as reason:
        return CheckResult("listen", str(reason), good=False)
    if runtime_name == "cri-o" and not str(path).endswith(CRIO_SUFFIX):
        return CheckResult(
            "listen", f"{path} does not end in {CRIO_SUFFIX}, by which the kubelet recognizes CRI-O", good=False
        )
    return CheckResult("listen", str(path), good=True)


def _state(state: Path) -> CheckResult:
    nearest = next(folder for folder in (state, *state.absolute().parents) if folder.exists())
    if not os.access(nearest, os.W_OK):
        return CheckResult("state", f"{nearest} is not writable", good=False)
    return CheckResult("state", str(state), good=True)


def _devices(roots: Roots) -> Iterator[CheckResult]:
    verbs = len(list((roots.sysfs / "bus/pci/devices").glob("*/infiniband_verbs/*")))
    yield CheckResult("devices", f"{verbs} RDMA devices of PCI functions below {roots.sysfs}", good=verbs > 0)
    manager = roots.dev / "infiniband/rdma_cm"
    detail = str(manager) if manager.exists() else f"{manager} is missing: load the kernel module rdma_ucm"
    yield CheckResult("rdma_cm", detail, good=manager.exists())
