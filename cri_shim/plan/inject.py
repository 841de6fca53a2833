"""Decide about the two CRI requests that concern VFs, and write devices into one of them.

RunPodSandbox: pass, record the pod's assignment first, or refuse. CreateContainer: pass, add the devices of the pod's
own VFs, or refuse. A pod that requests nothing is passed; anything else that is not fully valid is refused, with a
message that people read in ``kubectl describe``. An assignment answers the request as it was at the time of the
decision: the current request is read only if there is no assignment. Once recorded, an assignment holds.
"""

import posixpath
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from cri_shim.pb import cri_pb2 as cri
from mooring import names
from mooring.annotations.assignment import AssignedVf, Assignment, dump_assignment, verified_assignment
from mooring.annotations.request import read_request
from mooring.errors import AnnotationError
from mooring.gpu.assignment import GpuAssignment, assigned_gpus
from mooring.gpu.request import KEY as GPU_REQUEST
from mooring.parsing import dump
from mooring.records.ledger import LedgerEntry
from mooring.records.pod_record import PodRecord

CONTAINER_FOLDER = "/dev/infiniband"
PERMISSIONS = "rw"
_POWERFUL = frozenset((b"ALL", b"BPF", b"NET_ADMIN", b"SYS_ADMIN"))


@dataclass(frozen=True, slots=True)
class Rules:
    """The node's side of each check: its name, and the runtime handlers whose containers can use a VF's devices.

    ``unsigned`` returns why an assignment is not believed, by the exact bytes of both annotations; empty if it is.
    """

    node: str
    runtime_handlers: frozenset[str] = frozenset()
    unsigned: Callable[[bytes, bytes | None], str] = lambda _assignment, _signature: ""


@dataclass(frozen=True, slots=True)
class Pass:
    """Forward the request's original bytes."""


@dataclass(frozen=True, slots=True)
class Record:
    """Forward the request's original bytes, once this record is on disk."""

    record: PodRecord


@dataclass(frozen=True, slots=True)
class Inject:
    """Forward the request with the devices of ``entitled``, if the ledger agrees about all VFs of ``assignment``.

    ``gpus`` are those of the pod, None if it has none; ``units`` those of them that the container gets.
    """

    assignment: Assignment
    entitled: tuple[AssignedVf, ...]
    gpus: GpuAssignment | None = None
    units: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Refuse:
    """Return FAILED_PRECONDITION with this reason."""

    reason: str


@dataclass(frozen=True, slots=True)
class VfDevices:
    """One VF as a container uses it: its RDMA device's name, its uverbs device, and all its host device nodes.

    ``rdma`` is None where the name cannot be told, because of a space or what is no UTF-8.
    """

    rdma: str | None
    uverbs: str
    nodes: tuple[str, ...]


def pod_name(config: cri.PodSandboxConfig) -> str:
    return f"{config.metadata.namespace}/{config.metadata.name}"


def decide_sandbox(request: cri.RunPodSandboxRequest, found: PodRecord | None, rules: Rules) -> Pass | Record | Refuse:
    """Decide about a RunPodSandbox, given the existing record of the pod's uid."""
    settled = _settle(request.config, found, rules)
    if isinstance(settled, Refuse):
        return settled
    if settled is None:
        return Pass()
    gpus = _gpus(settled)
    if isinstance(gpus, Refuse):
        return gpus
    if reason := _cannot_hold(request, rules, has_vfs=bool(settled.vfs), has_gpus=gpus is not None):
        return Refuse(reason)
    return Pass() if found is not None else Record(PodRecord(pod_name(request.config), settled))


def decide_container(
    request: cri.CreateContainerRequest, found: PodRecord | None, rules: Rules
) -> Pass | Inject | Refuse:
    """Decide about a CreateContainer, given the existing record of the pod's uid."""
    settled = _settle(request.sandbox_config, found, rules)
    if isinstance(settled, Refuse):
        return settled
    if settled is None:
        return Pass()
    gpus = _gpus(settled)
    if isinstance(gpus, Refuse):
        return gpus
    if not settled.vfs and gpus is None:
        return Pass()
    if found is None:
        return Refuse("no pod record: the pod's sandbox was not created through mooring-cri-shim")
    name = request.config.metadata.name
    units = () if gpus is None else gpus.containers.get(name, ())
    return Inject(settled, entitled_vfs(settled, name), gpus, units)


def entitled_vfs(assignment: Assignment, container: str) -> tuple[AssignedVf, ...]:
    """Return the VFs of a pod whose devices a container of that name gets."""
    return tuple(vf for vf in assignment.vfs if vf.containers is None or container in vf.containers)


def can_change_vfs(config: cri.ContainerConfig) -> bool:
    """Return whether a container can change links of its pod, or attach programs to them; case and CAP_ do not matter.

    CAP_NET_ADMIN and CAP_BPF are what the kernel asks for; who is privileged, or has CAP_SYS_ADMIN, can get them.
    """
    context = config.linux.security_context
    asked = (*context.capabilities.add_capabilities, *context.capabilities.add_ambient_capabilities)
    return context.privileged or any(name.upper().removeprefix(b"CAP_") in _POWERFUL for name in asked)


def not_held(assignment: Assignment, sandbox: str, ledger: Mapping[str, LedgerEntry | None]) -> str | None:
    """Return why the ledger, by PCI address, does not show every VF of a pod held by ``sandbox``; None if it does."""
    for vf in assignment.vfs:
        entry = ledger[vf.pci]
        if entry is None:
            what = f"VF {vf.pci} ({vf.pf} vf {vf.vf}) is not in the ledger"
            return f"{what}: the CNI plugin mooring-cni did not run, or the sandbox has stopped"
        if entry.phase != "held":
            return f"VF {vf.pci} is {entry.phase!r} in the ledger, not 'held'"
        if entry.container != sandbox:
            return f"VF {vf.pci} is held by sandbox {entry.container!r}, not by {sandbox!r}"
        if entry.uid != assignment.uid:
            return f"VF {vf.pci} is held by pod {entry.uid!r}, not by {assignment.uid!r}"
    return None


def devices(given: Sequence[VfDevices]) -> list[cri.Device]:
    """Return the CRI devices for a container with these VFs; what two of them share appears once."""
    nodes = dict.fromkeys(node for vf in given for node in vf.nodes)
    return [
        cri.Device(
            container_path=f"{CONTAINER_FOLDER}/{posixpath.basename(node)}", host_path=node, permissions=PERMISSIONS
        )
        for node in nodes
    ]


def environment(given: Sequence[tuple[AssignedVf, LedgerEntry, VfDevices]]) -> dict[str, str]:
    """Return the environment variables that list a container's VFs."""
    described = [
        {
            # An InfiniBand VF without IPoIB has no network interface, nor has one that is requested without it.
            "name": entry.ifname if entry.has_interface else None,
            "pci": vf.pci,
            "network": vf.network,
            "rdma": found.rdma,
            "uverbs": found.uverbs,
            "ips": list(entry.addresses),
        }
        for vf, entry, found in given
    ]
    variables = {"MOORING_DEVICES": dump(described)}
    named = [found.rdma for _, _, found in given if found.rdma is not None]
    if len(named) < len(given):
        # The programs would not use the others. Without names they take what the container has.
        return variables
    # The first port. Only a VF of mlx4 may have a second one.
    ports = ",".join(f"{name}:1" for name in named)
    return variables | {
        "MOORING_RDMA_DEVICES": ",".join(named),
        # After a leading "=" NCCL takes the names exactly; without it mlx5_1 would match mlx5_10 as well.
        "NCCL_IB_HCA": "=" + ",".join(named),
        # UCX, and with it NIXL, which vLLM, llm-d and Dynamo use. Source: vLLM's "NixlConnector Usage Guide".
        "UCX_NET_DEVICES": ports,
        # NVSHMEM, and with it DeepEP. Source: NVSHMEM's "Environment Variables".
        "NVSHMEM_HCA_LIST": ports,
    }


@dataclass(frozen=True, slots=True)
class Addition:
    """What a container gets: devices, variables that it does not set itself, others whatever it sets, CDI devices."""

    devices: Sequence[cri.Device] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    forced: Mapping[str, str] = field(default_factory=dict)
    cdi: Sequence[str] = ()


def add_to_container(raw: bytes, request: cri.CreateContainerRequest, addition: Addition) -> bytes:
    """Return the request ``raw``, decoded as ``request``, with what is added.

    A decoder of the result gets the original fields, including those unknown here. If nothing is replaced the original
    bytes stay as they are: protobuf merges a message that occurs twice, and joins repeated fields.
    """
    config = request.config
    present = {variable.key for variable in config.envs}
    variables = {key: value for key, value in addition.variables.items() if key not in present}
    known = {device.name for device in config.CDI_devices}
    added = cri.ContainerConfig(
        envs=[cri.KeyValue(key=key, value=value.encode()) for key, value in {**variables, **addition.forced}.items()],
        devices=addition.devices,
        CDI_devices=[cri.CDIDevice(name=name) for name in addition.cdi if name not in known],
    )
    replaced = _paths_and_folders(addition.devices)
    kept = [device for device in config.devices if _normal(device.container_path) not in replaced]
    if len(kept) == len(config.devices) and present.isdisjoint(addition.forced):
        return raw + cri.CreateContainerRequest(config=added).SerializeToString()
    variables_kept = [variable for variable in config.envs if variable.key not in addition.forced]
    changed = cri.CreateContainerRequest()
    changed.CopyFrom(request)
    del changed.config.devices[:]
    del changed.config.envs[:]
    changed.config.devices.extend(kept)
    changed.config.envs.extend(variables_kept)
    changed.config.MergeFrom(added)
    return changed.SerializeToString()


def _normal(path: str) -> str:
    # POSIX lets two leading slashes stand for something else; no runtime does.
    return posixpath.normpath(f"/{path.lstrip('/')}")


def _paths_and_folders(added: Sequence[cri.Device]) -> frozenset[str]:
    """Return the paths at which another device would occupy that of an added one: its own, and the folders above."""
    found: set[str] = set()
    for device in added:
        path = device.container_path
        while path not in found and path != "/":
            found.add(path)
            path = posixpath.dirname(path)
    return frozenset(found)


def _settle(config: cri.PodSandboxConfig, found: PodRecord | None, rules: Rules) -> Assignment | Refuse | None:
    """Return the assignment that holds for a pod; None if the pod requests nothing.

    A signature is verified before anything of the assignment is parsed. What is recorded was verified then: the same
    bytes need no key any more, so that old keys can go while pods run.
    """
    node, raw = rules.node, config.annotations.get(names.ASSIGNMENT)
    if raw is not None and found is not None and raw == dump_assignment(found.assignment).encode():
        return _recorded(found.assignment, None, node)
    if raw is not None and (reason := rules.unsigned(raw, config.annotations.get(names.SIGNATURE))):
        return Refuse(reason)
    # Invalid UTF-8 becomes U+FFFD, which no rule accepts where it matters.
    annotations = {key: value.decode(errors="replace") for key, value in config.annotations.items()}
    try:
        written = verified_assignment(annotations, config.metadata.uid, node)
        if found is not None:
            return _recorded(found.assignment, written, node)
        return _without_assignment(annotations) if written is None else written
    except AnnotationError as error:
        return Refuse(str(error))


def _recorded(recorded: Assignment, written: Assignment | None, node: str) -> Assignment | Refuse:
    if recorded.node != node:
        return Refuse(f"the pod record is for node {recorded.node!r}, not for {node!r}")
    if written is not None and written != recorded:
        return Refuse(f"annotation {names.ASSIGNMENT!r} differs from the assignment recorded when the pod first ran")
    return recorded


def _without_assignment(annotations: Mapping[str, str]) -> Refuse | None:
    request = read_request(annotations)
    asked = f"{len(request.interfaces)} VFs" if request is not None and request.interfaces else ""
    # A CRI request does not carry the limits that are a request for GPUs too.
    if not asked and GPU_REQUEST in annotations:
        asked = "GPUs"
    if not asked:
        return None
    return Refuse(
        f"the pod requests {asked} but has no annotation {names.ASSIGNMENT!r}:"
        f" scheduler {names.SCHEDULER_NAME!r} did not bind it"
    )


def _gpus(settled: Assignment) -> GpuAssignment | Refuse | None:
    try:
        return assigned_gpus(settled)
    except AnnotationError as error:
        return Refuse(str(error))


def _cannot_hold(request: cri.RunPodSandboxRequest, rules: Rules, *, has_vfs: bool, has_gpus: bool) -> str | None:
    if not has_vfs and not has_gpus:
        return None
    if has_vfs and request.config.linux.security_context.namespace_options.network == cri.NODE:
        return "a pod with hostNetwork cannot have VFs: they would disappear from the host"
    handler = request.runtime_handler
    if handler and handler not in rules.runtime_handlers:
        known = ", ".join(sorted(rules.runtime_handlers)) or "none"
        return f"runtime handler {handler!r} may not share the host's kernel (runtime_handlers: {known})"
    return None
