"""Decide about RunPodSandbox and CreateContainer requests, and add devices to the latter.

A RunPodSandbox passes, passes after the pod's assignment is recorded, or is refused. A CreateContainer passes, gets the
devices of the pod's own VFs, or is refused. Pods without a request pass. Everything else that is not fully valid is
refused, with a message that users see in ``kubectl describe``. An assignment belongs to the request at the time of the
scheduling decision, so the present request is read only if there is no assignment. A recorded assignment stays in
force.
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
    """The node's settings for the checks: its name, and the runtime handlers whose containers can use a VF's devices.

    ``signature_refusal`` takes the exact bytes of the assignment and of its signature (None without one). It returns
    why the node does not accept the assignment, empty if it does.
    """

    node: str
    runtime_handlers: frozenset[str] = frozenset()
    signature_refusal: Callable[[bytes, bytes | None], str] = lambda _assignment, _signature: ""


@dataclass(frozen=True, slots=True)
class Pass:
    """Forward the request's original bytes."""


@dataclass(frozen=True, slots=True)
class Record:
    """Forward the request's original bytes after writing this record to disk."""

    record: PodRecord


@dataclass(frozen=True, slots=True)
class Inject:
    """Forward the request with the devices of ``vfs``, if the sandbox holds all VFs of ``assignment``.

    ``gpus`` are the pod's GPUs, None without any; ``units`` are those that the container gets.
    """

    assignment: Assignment
    vfs: tuple[AssignedVf, ...]
    gpus: GpuAssignment | None = None
    units: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Refuse:
    """Return FAILED_PRECONDITION with this reason."""

    reason: str


@dataclass(frozen=True, slots=True)
class VfDevices:
    """One VF as a container uses it: its RDMA device's name, its uverbs device, and all its host device nodes.

    ``rdma`` is None if the name has a space or is not UTF-8, and so cannot be passed to the container.
    """

    rdma: str | None
    uverbs: str
    nodes: tuple[str, ...]


def pod_name(config: cri.PodSandboxConfig) -> str:
    return f"{config.metadata.namespace}/{config.metadata.name}"


def decide_sandbox(request: cri.RunPodSandboxRequest, record: PodRecord | None, rules: Rules) -> Pass | Record | Refuse:
    """Decide about a RunPodSandbox; ``record`` is the existing record of the pod."""
    assignment = _settle(request.config, record, rules)
    if isinstance(assignment, Refuse):
        return assignment
    if assignment is None:
        return Pass()
    gpus = _gpus(assignment)
    if isinstance(gpus, Refuse):
        return gpus
    if reason := _cannot_hold(request, rules, has_vfs=bool(assignment.vfs), has_gpus=gpus is not None):
        return Refuse(reason)
    return Pass() if record is not None else Record(PodRecord(pod_name(request.config), assignment))


def decide_container(
    request: cri.CreateContainerRequest, record: PodRecord | None, rules: Rules
) -> Pass | Inject | Refuse:
    """Decide about a CreateContainer; ``record`` is the existing record of the pod."""
    assignment = _settle(request.sandbox_config, record, rules)
    if isinstance(assignment, Refuse):
        return assignment
    if assignment is None:
        return Pass()
    gpus = _gpus(assignment)
    if isinstance(gpus, Refuse):
        return gpus
    if not assignment.vfs and gpus is None:
        return Pass()
    if record is None:
        return Refuse("no pod record: the pod's sandbox was not created through mooring-cri-shim")
    name = request.config.metadata.name
    units = () if gpus is None else gpus.containers.get(name, ())
    return Inject(assignment, entitled_vfs(assignment, name), gpus, units)


def entitled_vfs(assignment: Assignment, container: str) -> tuple[AssignedVf, ...]:
    """Return the VFs of a pod whose devices a container of that name gets."""
    return tuple(vf for vf in assignment.vfs if vf.containers is None or container in vf.containers)


def can_change_vfs(config: cri.ContainerConfig) -> bool:
    """Return whether a container can change links of its pod, or attach programs to them.

    The kernel requires CAP_NET_ADMIN or CAP_BPF; privileged containers, or those with CAP_SYS_ADMIN, can get them. The
    names of capabilities are compared without case and without the prefix CAP_.
    """
    context = config.linux.security_context
    capabilities = (*context.capabilities.add_capabilities, *context.capabilities.add_ambient_capabilities)
    return context.privileged or any(name.upper().removeprefix(b"CAP_") in _POWERFUL for name in capabilities)


def ledger_mismatch(assignment: Assignment, sandbox: str, ledger: Mapping[str, LedgerEntry | None]) -> str | None:
    """Return why ``sandbox`` does not hold every VF of a pod, None if it does; ``ledger`` is by PCI address."""
    for vf in assignment.vfs:
        entry = ledger[vf.pci]
        if entry is None:
            subject = f"VF {vf.pci} ({vf.pf} vf {vf.vf}) is not in the ledger"
            return f"{subject}: the CNI plugin mooring-cni did not run, or the sandbox has stopped"
        if entry.phase != "held":
            return f"VF {vf.pci} is {entry.phase!r} in the ledger, not 'held'"
        if entry.container != sandbox:
            return f"VF {vf.pci} is held by sandbox {entry.container!r}, not by {sandbox!r}"
        if entry.uid != assignment.uid:
            return f"VF {vf.pci} is held by pod {entry.uid!r}, not by {assignment.uid!r}"
    return None


def devices(vfs: Sequence[VfDevices]) -> list[cri.Device]:
    """Return the CRI devices for a container with these VFs; a device that two VFs share appears once."""
    nodes = dict.fromkeys(node for vf in vfs for node in vf.nodes)
    return [
        cri.Device(
            container_path=f"{CONTAINER_FOLDER}/{posixpath.basename(node)}", host_path=node, permissions=PERMISSIONS
        )
        for node in nodes
    ]


def environment(vfs: Sequence[tuple[AssignedVf, LedgerEntry, VfDevices]]) -> dict[str, str]:
    """Return the environment variables that list a container's VFs."""
    entries = [
        {
            # None without a network interface: an InfiniBand VF without IPoIB, or a VF requested without netdev.
            "name": entry.ifname if entry.has_interface else None,
            "pci": vf.pci,
            "network": vf.network,
            "rdma": nodes.rdma,
            "uverbs": nodes.uverbs,
            "ips": list(entry.addresses),
        }
        for vf, entry, nodes in vfs
    ]
    variables = {"MOORING_DEVICES": dump(entries)}
    rdma_names = [nodes.rdma for _, _, nodes in vfs if nodes.rdma is not None]
    if len(rdma_names) < len(vfs):
        # With a partial list the programs would ignore the other VFs; without a list they use all devices of the
        # container.
        return variables
    # Port 1: only VFs of mlx4 may have a second port.
    ports = ",".join(f"{name}:1" for name in rdma_names)
    return variables | {
        "MOORING_RDMA_DEVICES": ",".join(rdma_names),
        # The leading "=" makes NCCL match names exactly; otherwise mlx5_1 would also match mlx5_10.
        "NCCL_IB_HCA": "=" + ",".join(rdma_names),
        # UCX, and with it NIXL, which vLLM, llm-d and Dynamo use. Source: vLLM's "NixlConnector Usage Guide".
        "UCX_NET_DEVICES": ports,
        # NVSHMEM, and with it DeepEP. Source: NVSHMEM's "Environment Variables".
        "NVSHMEM_HCA_LIST": ports,
        # Mooncake's store, which SGLang and vLLM use (sglang, mem_cache/storage/mooncake_store), and AMD's MoRI, which
        # they use on its GPUs (mori, src/application/transport/rdma/rdma.cpp, RdmaContext::Initialize).
        "MOONCAKE_DEVICE": ",".join(rdma_names),
        "MORI_RDMA_DEVICES": ",".join(rdma_names),
    }


@dataclass(frozen=True, slots=True)
class Addition:
    """The additions to a container.

    ``variables`` apply only if the container does not set them itself, ``overrides`` in any case. ``cdi`` are names of
    CDI devices.
    """

    devices: Sequence[cri.Device] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    overrides: Mapping[str, str] = field(default_factory=dict)
    cdi: Sequence[str] = ()


def add_to_container(raw: bytes, request: cri.CreateContainerRequest, addition: Addition) -> bytes:
    """Return the bytes of a request with the additions; ``request`` is ``raw`` decoded.

    The result keeps all original fields, including unknown ones. If nothing is replaced, the additions are appended to
    the original bytes: protobuf merges a message that occurs twice, and concatenates repeated fields.
    """
    config = request.config
    present = {variable.key for variable in config.envs}
    variables = {key: value for key, value in addition.variables.items() if key not in present}
    cdi_names = {device.name for device in config.CDI_devices}
    additions = cri.ContainerConfig(
        envs=[
            cri.KeyValue(key=key, value=value.encode()) for key, value in {**variables, **addition.overrides}.items()
        ],
        devices=addition.devices,
        CDI_devices=[cri.CDIDevice(name=name) for name in addition.cdi if name not in cdi_names],
    )
    new_paths = _paths_and_folders(addition.devices)
    old_devices = [device for device in config.devices if _normal(device.container_path) not in new_paths]
    if len(old_devices) == len(config.devices) and present.isdisjoint(addition.overrides):
        return raw + cri.CreateContainerRequest(config=additions).SerializeToString()
    old_variables = [variable for variable in config.envs if variable.key not in addition.overrides]
    result = cri.CreateContainerRequest()
    result.CopyFrom(request)
    del result.config.devices[:]
    del result.config.envs[:]
    result.config.devices.extend(old_devices)
    result.config.envs.extend(old_variables)
    result.config.MergeFrom(additions)
    return result.SerializeToString()


def _normal(path: str) -> str:
    # normpath keeps two leading slashes, which POSIX allows to mean something else; for runtimes they do not.
    return posixpath.normpath(f"/{path.lstrip('/')}")


def _paths_and_folders(devices: Sequence[cri.Device]) -> frozenset[str]:
    """Return the paths at which another device would conflict with an added one: its own, and the folders above."""
    paths: set[str] = set()
    for device in devices:
        path = device.container_path
        while path not in paths and path != "/":
            paths.add(path)
            path = posixpath.dirname(path)
    return frozenset(paths)


def _settle(config: cri.PodSandboxConfig, record: PodRecord | None, rules: Rules) -> Assignment | Refuse | None:
    """Return the assignment of a pod, None if the pod requests nothing, or the refusal.

    The signature is verified before the assignment is parsed. A recorded assignment was already verified. The same
    bytes need no key again, so that old keys can be removed while pods run.
    """
    node, raw = rules.node, config.annotations.get(names.ASSIGNMENT)
    if raw is not None and record is not None and raw == dump_assignment(record.assignment).encode():
        return _match_record(record.assignment, None, node)
    if raw is not None and (reason := rules.signature_refusal(raw, config.annotations.get(names.SIGNATURE))):
        return Refuse(reason)
    # Invalid UTF-8 becomes U+FFFD, which no rule accepts.
    annotations = {key: value.decode(errors="replace") for key, value in config.annotations.items()}
    try:
        assignment = verified_assignment(annotations, config.metadata.uid, node)
        if record is not None:
            return _match_record(record.assignment, assignment, node)
        return _without_assignment(annotations) if assignment is None else assignment
    except AnnotationError as error:
        return Refuse(str(error))


def _match_record(record: Assignment, annotation: Assignment | None, node: str) -> Assignment | Refuse:
    if record.node != node:
        return Refuse(f"the pod record is for node {record.node!r}, not for {node!r}")
    if annotation is not None and annotation != record:
        return Refuse(f"annotation {names.ASSIGNMENT!r} differs from the assignment recorded when the pod first ran")
    return record


def _without_assignment(annotations: Mapping[str, str]) -> Refuse | None:
    request = read_request(annotations)
    resources = f"{len(request.interfaces)} VFs" if request is not None and request.interfaces else ""
    # A request for GPUs by resource limits is not visible in a CRI request.
    if not resources and GPU_REQUEST in annotations:
        resources = "GPUs"
    if not resources:
        return None
    return Refuse(
        f"the pod requests {resources} but has no annotation {names.ASSIGNMENT!r}:"
        f" scheduler {names.SCHEDULER_NAME!r} did not bind it"
    )


def _gpus(assignment: Assignment) -> GpuAssignment | Refuse | None:
    try:
        return assigned_gpus(assignment)
    except AnnotationError as error:
        return Refuse(str(error))


def _cannot_hold(request: cri.RunPodSandboxRequest, rules: Rules, *, has_vfs: bool, has_gpus: bool) -> str | None:
    if not has_vfs and not has_gpus:
        return None
    if has_vfs and request.config.linux.security_context.namespace_options.network == cri.NODE:
        return "a pod with hostNetwork cannot have VFs: they would disappear from the host"
    handler = request.runtime_handler
    if handler and handler not in rules.runtime_handlers:
        handlers = ", ".join(sorted(rules.runtime_handlers)) or "none"
        return f"runtime handler {handler!r} may not share the host's kernel (runtime_handlers: {handlers})"
    return None
