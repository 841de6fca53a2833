"""What Mooring's scheduler would decide about the pods of a snapshot: the real one, on the nodes as captured. Pure.

Every pod that requests VFs is given a request of Mooring's with the same number of VFs, networks and rates, and decided
about as if it were new, in the order of priority and age. All other pods stay where they are. A network is what a
resource of the device plugins has; GPUs are requested from Mooring where every node with GPUs was captured. The pods of
a job that needs all of them form a group, and the GPUs of a pod are near its VFs. VFs that pods have are free; those
that nobody has and that are not on the host stay out.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from advertiser.inventory.build_inventory import build_inventory
from advertiser.inventory.facts import ClusterFacts, Host, PciFunction
from advertiser.inventory.offer import EVERYTHING, Offer, OfferEntry, Terms
from cli.plugin.assess.holders import Holding
from cli.plugin.assess.requests import GPUS, Job, limits_of
from cli.plugin.assess.snapshot import (
    NODES,
    PODS,
    NodeCapture,
    Object,
    Snapshot,
    annotations_of,
    at,
    fields,
    items,
    key_of,
    labels_of,
    name_of,
    uid_of,
)
from cli.plugin.reports.lint.other_networks import Networks
from cli.plugin.reports.recompute import PATHS, identity_of
from mooring import names
from mooring.annotations.inventory import dump_inventory
from mooring.gpu.inventory import KEY as GPU_INVENTORY
from mooring.gpu.inventory import Gpu, GpuInventory, dump_gpu_inventory
from mooring.gpu.request import KEY as GPU_REQUEST
from mooring.gpu.request import RESOURCE as GPU
from mooring.indexes import Indexes
from mooring.kube.events import Changed
from scheduler.constraints.kinds import Kinds
from scheduler.cycle.decisions import Bind
from scheduler.cycle.instructions import Report
from scheduler.kube.objects import Node, Pod
from scheduler.kube.outcomes import BOUND
from scheduler.placement.gpus import gpu_kind
from scheduler.state.machine import Machine

_MULTUS = "k8s.v1.cni.cncf.io/networks"
# Seconds of virtual time between two steps, and the most steps: each pod may be tried some times.
_TICK_S, _STEPS_A_POD, _LEAST_STEPS = 0.001, 20, 1000


@dataclass(frozen=True, slots=True)
class Decision:
    """What would become of a pod: its node (empty for none), VFs and GPUs by PCI address, or why it waits."""

    pod: str
    node: str = ""
    vfs: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """All decisions; ``left_out`` are pods about which nothing is known, each with the reason."""

    decisions: tuple[Decision, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)


def decide(
    snapshot: Snapshot,
    for_network: Mapping[str, bool],
    jobs: Sequence[Job],
    networks: Networks,
    held: Mapping[str, Sequence[Holding]],
    rack: str,
) -> Outcome:
    """Return what Mooring would decide about every pod that requests network devices."""
    plan = _Plan(snapshot, networks, held, rack, {key_of(pod): job for job in jobs for pod in job.pods})
    wanted: dict[str, Object] = {}
    left_out: dict[str, str] = {}
    for pod in snapshot.pods():
        if for_network.get(key_of(pod), False):
            translated = plan.pod(pod)
            if isinstance(translated, str):
                left_out[key_of(pod)] = translated
            else:
                wanted[uid_of(pod)] = translated
    machine = Machine(names.SCHEDULER_NAME, kinds=Kinds([gpu_kind()]))
    lists: dict[type[Any], list[Object]] = {kind: list(snapshot.all(path)) for kind, path in PATHS.items()}
    decided = {key_of(pod) for pod in wanted.values()}
    lists[Node] = [plan.node(node, decided) for node in snapshot.all(NODES)]
    lists[Pod] = [wanted.get(uid_of(pod), pod) for pod in snapshot.all(PODS)]
    for kind, objects in lists.items():
        for item in objects:
            _give(machine, kind, item, snapshot.now)
    return Outcome(tuple(_run(machine, wanted, snapshot.now)), left_out)


def _give(machine: Machine, kind: type[Any], item: Object, now: float) -> None:
    try:
        read = msgspec.convert(item, kind)
    except msgspec.ValidationError:
        # As in the scheduler: an unreadable object counts as absent.
        return
    machine.handle(kind, Changed(identity_of(read), read), now)


def _run(machine: Machine, wanted: Mapping[str, Object], now: float) -> Iterator[Decision]:
    """Let the machine decide until no pod is ready; yield one decision for each pod."""
    open_pods = {uid: key_of(pod) for uid, pod in wanted.items()}
    reasons: dict[str, str] = {}
    for _ in range(max(_LEAST_STEPS, _STEPS_A_POD * len(wanted))):
        now += _TICK_S
        instructions = machine.step(now)
        if instructions is None:
            break
        for instruction in instructions:
            if isinstance(instruction, Bind) and (uid := instruction.pod_info.pod.metadata.uid) in open_pods:
                yield _bound(open_pods.pop(uid), instruction)
            elif isinstance(instruction, Report):
                reasons[instruction.pod.metadata.uid] = instruction.message
            if isinstance(instruction, Bind):
                machine.finished(instruction, BOUND, now)
    for uid, pod in open_pods.items():
        yield Decision(pod, reason=reasons.get(uid, "no decision was reached"))


def _bound(pod: str, bind: Bind) -> Decision:
    document = msgspec.json.decode(bind.annotations.get(names.ASSIGNMENT, "{}"))
    vfs = tuple(str(at(item, "pci")) for item in items(document, "vfs"))
    return Decision(pod, bind.assigned.node, vfs, tuple(map(str, items(document, "ext", "gpu", "units"))))


class _Plan:
    """How nodes and pods of the snapshot become those of a cluster with Mooring."""

    def __init__(
        self,
        snapshot: Snapshot,
        networks: Networks,
        held: Mapping[str, Sequence[Holding]],
        rack: str,
        jobs: Mapping[str, Job],
    ) -> None:
        self._captures = snapshot.captures
        self._networks = networks
        self._held = held
        self._rack = rack
        self._jobs = jobs
        self._resources = {
            name
            for capture in self._captures.values()
            for name, pci in _pools(capture).items()
            if _are_vfs(capture, pci)
        }
        self._has_gpus = all(
            not any(at(node, "status", "allocatable", name) not in (None, "0") for name in GPUS)
            or bool((use := _use(self._captures.get(name_of(node)))) is not None and use.gpus)
            for node in snapshot.all(NODES)
        )
        self._resource_of = {
            name_of(one): annotations_of(one).get("k8s.v1.cni.cncf.io/resourceName", "")
            for one in snapshot.all("/apis/k8s.cni.cncf.io/v1/network-attachment-definitions")
        }

    def node(self, node: Object, decided: Collection[str]) -> Object:
        """Return a node with the inventories that Mooring would publish; pods that are decided about leave it."""
        capture = self._captures.get(name_of(node))
        texts = {key: text for key, text in annotations_of(node).items() if not key.startswith("mooring.dev/")}
        if capture is not None:
            host = replace(_given_back(capture.host, self._held.get(name_of(node), ())), boot=_boot(node))
            result = build_inventory(host, self._offer(capture), ClusterFacts(), name_of(node))
            texts[names.INVENTORY] = dump_inventory(result.inventory)
        amounts: dict[Any, Any] = {
            key: amount
            for key, amount in fields(node, "status", "allocatable").items()
            if key not in self._resources and not (self._has_gpus and key in GPUS)
        }
        if self._has_gpus and capture is not None and capture.use is not None and capture.use.gpus:
            others = {one.pci for one in self._held.get(name_of(node), ()) if one.pod not in decided}
            gpus = _gpus({pci: path for pci, path in capture.use.gpus.items() if pci not in others})
            texts[GPU_INVENTORY] = dump_gpu_inventory(gpus)
            amounts[GPU] = str(len(gpus.gpus))
        return {
            **node,
            "metadata": {**fields(node, "metadata"), "annotations": texts},
            "status": {**fields(node, "status"), "allocatable": amounts},
        }

    def pod(self, pod: Object) -> Object | str:
        """Return a pod with a request of Mooring, or why it has none that can be derived."""
        texts = annotations_of(pod)
        if names.REQUEST not in texts and names.RIT_REQUEST not in texts:
            if at(pod, "spec", "hostNetwork") is True:
                return "it is in the host's network, so it has no VFs of its own"
            interfaces = self._interfaces(pod)
            if not interfaces:
                return "its devices are shared, or no captured node has a resource of this name"
            texts = {**texts, names.REQUEST: msgspec.json.encode(interfaces).decode()}
        if (job := self._jobs.get(key_of(pod))) is not None and job.needs_all and names.GROUP not in texts:
            group: dict[str, object] = {"name": job.name.partition("/")[2].lower(), "min": len(job.pods)}
            if self._rack:
                group["prefer"] = [self._rack]
            texts = {**texts, names.GROUP: msgspec.json.encode(group).decode()}
        if self._has_gpus and any(name in limits_of(pod) for name in GPUS) and GPU_REQUEST not in texts:
            texts = {**texts, GPU_REQUEST: '{"vfs":"switch"}'}
        texts.pop(names.ASSIGNMENT, None)
        spec = {key: value for key, value in fields(pod, "spec").items() if key not in ("nodeName", "schedulingGates")}
        spec["schedulerName"] = names.SCHEDULER_NAME
        for kind in ("initContainers", "containers"):
            if kind in spec:
                spec[kind] = [self._container(item) for item in items(spec, kind)]
        labels = {key: text for key, text in labels_of(pod).items() if key != names.POD_GROUP_LABEL}
        metadata = {**fields(pod, "metadata"), "annotations": texts, "labels": labels}
        return {**pod, "metadata": metadata, "spec": spec, "status": {"phase": "Pending"}}

    def _interfaces(self, pod: Object) -> list[dict[str, Any]]:
        """Return an interface for each device of a resource that has VFs; a network's rates apply to its resource."""
        wanted = Counter({name: count for name, count in limits_of(pod).items() if name in self._resources})
        found: list[dict[str, Any]] = []
        for entry in self._networks.of_multus(annotations_of(pod).get(_MULTUS)):
            resource = self._resource_of.get(entry.name, "")
            if wanted[resource]:
                wanted[resource] -= 1
                rates = {key: entry.interface[key] for key in ("min_tx_rate", "max_tx_rate") if key in entry.interface}
                found.append({"network": network_of(resource)} | rates)
        for resource, count in sorted(wanted.items()):
            found += [{"network": network_of(resource)} for _ in range(count)]
        return found

    def _container(self, container: Any) -> Any:
        resources = at(container, "resources")
        if not isinstance(resources, Mapping):
            return container
        changed = {key: self._amounts(value) for key, value in resources.items()}
        return {**container, "resources": changed}

    def _amounts(self, amounts: Any) -> Any:
        if not isinstance(amounts, Mapping):
            return amounts
        kept = {key: amount for key, amount in amounts.items() if key not in self._resources}
        for name in GPUS:
            if self._has_gpus and name in kept:
                kept[GPU] = kept.pop(name)
        return kept

    def _offer(self, capture: NodeCapture) -> Offer:
        """Return an offer with a network for each resource of VFs; without the kubelet's pools, with everything."""
        pools = {name: frozenset(pci) for name, pci in _pools(capture).items() if _are_vfs(capture, pci)}
        if not pools:
            return EVERYTHING
        entries = []
        for function in capture.host.functions:
            counts = Counter(
                {name: sum(vf.address in pci for vf in function.vfs.values()) for name, pci in pools.items()}
            )
            name, count = counts.most_common(1)[0]
            if count:
                others = Indexes.of(index for index, vf in function.vfs.items() if vf.address not in pools[name])
                terms = Terms(network=network_of(name), set_aside=others)
                entries.append(OfferEntry((("pci", function.address),), terms))
        return Offer(tuple(entries))


def network_of(resource: str) -> str:
    """Return the network that stands for a resource of a device plugin."""
    name = resource.rpartition("/")[2].lower()
    kept = "".join(one if one.isalnum() or one in "._-" else "-" for one in name).strip("._-")
    return kept[:63].rstrip("._-") or "default"


def _use(capture: NodeCapture | None) -> Any:
    return capture.use if capture is not None else None


def _pools(capture: NodeCapture) -> Mapping[str, tuple[str, ...]]:
    return (capture.use.pools if capture.use is not None else None) or {}


def _are_vfs(capture: NodeCapture, addresses: Sequence[str]) -> bool:
    own = {vf.address for function in capture.host.functions for vf in function.vfs.values()}
    return bool(own.intersection(addresses))


def _boot(node: Object) -> str:
    return str(at(node, "status", "nodeInfo", "bootID") or "")


def _given_back(host: Host, held: Sequence[Holding]) -> Host:
    """Return a host on which the VFs of pods are back: only then can the same pods be placed again."""
    addresses = {vf.pci for vf in held}
    functions = tuple(_with_vfs(function, addresses) for function in host.functions)
    return replace(host, functions=functions, ledger={})


def _with_vfs(function: PciFunction, addresses: set[str]) -> PciFunction:
    vfs = {
        index: replace(vf, netdev=not vf.lacks_netdev, rdma=True, rdma_here=True) if vf.address in addresses else vf
        for index, vf in function.vfs.items()
    }
    return replace(function, vfs=vfs)


def _gpus(paths: Mapping[str, tuple[str, ...]]) -> GpuInventory:
    return GpuInventory(
        tuple(
            Gpu(pci, f"GPU-{number}", "nvidia", pcie=path) for number, (pci, path) in enumerate(sorted(paths.items()))
        )
    )
