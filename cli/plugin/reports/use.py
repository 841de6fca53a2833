"""The use of each node's PFs: the VFs that live pods hold, by the scheduler's own derivation. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from cli.plugin.reports.objects import Node, Pod
from mooring import names
from mooring.annotations.assignment import Assignment
from mooring.annotations.drain import DRAINED, Drain
from mooring.annotations.group import read_group
from mooring.annotations.inventory import Inventory, Out, Pf, read_inventory
from mooring.annotations.rates import reserved_rates
from mooring.annotations.spares import read_spares
from mooring.errors import AnnotationError
from mooring.indexes import Indexes
from scheduler.placement.vf_accounting import (
    Claim,
    FreeVfs,
    VfAccounting,
    offers_of,
    reserve_rates,
    shared_ports_of,
    vfs_in_inventory,
)

NO_INVENTORY = "no inventory"
NO_SHIM = "mooring-cri-shim has not started in this boot"
_OURS = "mooring.dev/"
_INSTALL_FAILED = f"{_OURS}InstallFailed"
# The label of the nodes on which the component node-installer runs.
_WANTED = f"{_OURS}node"
# The label of a Job's pods; groups of two Jobs may have equal annotations.
_CONTROLLER = "batch.kubernetes.io/controller-uid"


@dataclass(frozen=True, slots=True)
class PfUse:
    """One PF: how many of its VFs on offer are free, held and out, and what they reserve, in Mb/s.

    ``left_mbps`` and ``port_mbps``, the Mb/s left and on offer, are the whole cable's where PFs share one. All but the
    inventory's own fields are None if pods could not be read.
    """

    pf: Pf
    free: int | None
    used: int | None
    out: int
    left_mbps: int | None
    reserved_mbps: int | None
    port_mbps: int


@dataclass(frozen=True, slots=True)
class ShareUse:
    """What each namespace holds of the VFs of these PFs, of which it may hold ``most_vfs``.

    They are the PFs of one entry of the offer with ``max_share``. ``held`` is None if pods could not be read.
    """

    pfs: tuple[str, ...]
    max_share: int
    most_vfs: int
    held: Mapping[str, int] | None


@dataclass(frozen=True, slots=True)
class NodeUse:
    """One node; ``fault`` is why nothing new is given there, empty if it may be.

    ``disputed`` names for each VF's PCI address the pods that claim it, if there are several. ``reserved`` are the Mb/s
    that each pod there reserves, by uid. ``impaired`` are the messages of its conditions of Mooring's that are True, by
    type: as of the kubelet's own, False is good. ``installation`` is what the cluster's installer has not done there,
    empty if all is done or the node is installed by hand.
    """

    name: str
    is_ready: bool
    fault: str
    inventory: Inventory | None
    pfs: tuple[PfUse, ...]
    disputed: Mapping[str, tuple[str, ...]]
    reserved: Mapping[str, int]
    impaired: Mapping[str, str]
    installation: str = ""
    shares: tuple[ShareUse, ...] = ()


@dataclass(frozen=True, slots=True)
class DrainedVfs:
    """VFs of a PF that the advertiser shows as drained, and the operator's reason."""

    node: str
    pf: str
    vfs: Indexes
    reason: str


def drained_vfs(nodes: Iterable[NodeUse]) -> Iterator[DrainedVfs]:
    for node in nodes:
        for use in node.pfs:
            for entry in use.pf.out:
                why, _, reason = entry.why.partition(": ")
                if why == DRAINED:
                    yield DrainedVfs(node.name, use.pf.name, entry.vfs, reason)


def uses(nodes: Iterable[Node], pods: Sequence[Pod] | None) -> list[NodeUse]:
    """Return all nodes by name; ``pods`` is None if they could not be read."""
    ordered = sorted(nodes, key=lambda node: node.metadata.name)
    in_force = {node.metadata.name: node.rates_in_force() for node in ordered}
    claims: dict[str, list[Claim]] = {}
    for pod in pods or ():
        assignment, _ = pod.held()
        if assignment is not None and not pod.is_over:
            generations = in_force.get(assignment.node) if names.RATES in pod.annotations else None
            claims.setdefault(assignment.node, []).append(pod.derive(_claim, assignment, generations))
    for claim in list(_spare_claims(pods or (), claims)):
        claims.setdefault(claim.assignment.node, []).append(claim)
    return [node.derive(_use, None if pods is None else claims.get(node.metadata.name, [])) for node in ordered]


def _spare_claims(pods: Iterable[Pod], claims: Mapping[str, Sequence[Claim]]) -> Iterator[Claim]:
    """Yield the room that groups keep for spares, as the newest record of each has it, without what pods have taken."""
    newest: dict[tuple[str, ...], tuple[str, Pod]] = {}
    for pod in pods:
        if names.SPARES in pod.annotations and pod.spec.node_name and not pod.is_over:
            key = pod.metadata.namespace, *_group_name(pod)
            condition = pod.condition("PodScheduled")
            bound = (condition.last_transition_time or "") if condition is not None else ""
            newest[key] = max(newest.get(key, ("", pod)), (bound, pod), key=lambda condition: condition[0])
    taken = {(node, vf.pci) for node, held in claims.items() for claim in held for vf in claim.assignment.vfs}
    for _, pod in newest.values():
        try:
            spares = read_spares(pod.annotations)
        except AnnotationError:
            continue
        for spare in spares:
            if all((spare.node, vf.pci) not in taken for vf in spare.vfs):
                yield Claim(spare.uid, spare, f"{pod.key} (spare)")


def _group_name(pod: Pod) -> tuple[str, str]:
    """Return the name of a pod's group; without one, its annotation and the Job that has made it."""
    text, labels = pod.annotations.get(names.GROUP, ""), pod.metadata.labels or {}
    try:
        request = read_group(pod.annotations)
    except AnnotationError:
        request = None
    name = (request.name or labels.get(request.name_from or "", "")) if request is not None else ""
    name = name or labels.get(names.POD_GROUP_LABEL, "")
    return (name, "") if name else (text, labels.get(_CONTROLLER, ""))


def _claim(pod: Pod, assignment: Assignment, in_force: Mapping[str, int] | None) -> Claim:
    return Claim(pod.metadata.uid, _reserving(pod, assignment, in_force), pod.key)


def _reserving(pod: Pod, assignment: Assignment, in_force: Mapping[str, int] | None) -> Assignment:
    """Return an assignment with the rates that its VFs reserve."""
    if (rates := pod.rates(assignment)) is None:
        return assignment
    return reserve_rates(assignment, reserved_rates(assignment, rates, in_force))


def _use(node: Node, claims: Sequence[Claim] | None) -> NodeUse:
    inventory, fault = _inventory(node)
    pfs: tuple[PfUse, ...] = ()
    shares: tuple[ShareUse, ...] = ()
    disputed: dict[str, tuple[str, ...]] = {}
    if inventory is not None:
        accounting = VfAccounting(inventory, claims or ())
        free = accounting.free_vfs
        pfs = _pfs(inventory, claims, free)
        shares = tuple(_shares(free, is_known=claims is not None))
        keys = {claim.uid: claim.pod for claim in claims or ()}
        disputed = {pci: tuple(keys[uid] for uid in uids) for pci, uids in accounting.disputes().items()}
    reserved = {claim.uid: sum(vf.min_tx_rate for vf in claim.assignment.vfs) for claim in claims or ()}
    impaired = {
        condition.type: condition.message or condition.reason or ""
        for condition in node.status.conditions or ()
        if condition.type.startswith(_OURS) and condition.status == "True"
    }
    installation = _installation(node)
    name = node.metadata.name
    return NodeUse(name, node.is_ready, fault, inventory, pfs, disputed, reserved, impaired, installation, shares)


def _shares(free: FreeVfs, *, is_known: bool) -> Iterator[ShareUse]:
    for share in free.shares:
        pfs = tuple(pf.name for index, pf in enumerate(free.pfs) if share.pfs >> index & 1)
        yield ShareUse(pfs, share.percent, share.max_vfs, share.vfs_by_namespace if is_known else None)


def _installation(node: Node) -> str:
    condition, is_wanted = node.condition(_INSTALL_FAILED), _WANTED in (node.metadata.labels or {})
    if condition is None:
        return f"has the label {_WANTED}, and no installer has reported" if is_wanted else ""
    if not is_wanted and condition.reason != "Removed":
        return f"is installed from the cluster, and lost the label {_WANTED}"
    # True is among the impaired.
    return f"{condition.reason}: {condition.message}" if condition.status == "Unknown" else ""


def _inventory(node: Node) -> tuple[Inventory | None, str]:
    text = (node.metadata.annotations or {}).get(names.INVENTORY)
    if text is None:
        return None, NO_INVENTORY
    try:
        inventory = _with_drain_reasons(read_inventory(text), node.drain())
    except AnnotationError as unreadable:
        return None, str(unreadable)
    boot = node.status.node_info.boot_id if node.status.node_info else ""
    if inventory.boot != boot:
        return inventory, "inventory of another boot"
    if inventory.lacks_shim:
        return inventory, NO_SHIM
    return inventory, "" if node.is_ready else "node is not Ready"


def _with_drain_reasons(inventory: Inventory, drain: Drain) -> Inventory:
    """Return an inventory in which drained VFs are out for the reason that the operator gave: `drained: new cable`."""
    if not any(drain.values()):
        return inventory
    pfs = (
        replace(pf, out=tuple(out for entry in pf.out for out in _by_drain_reason(pf.name, entry, drain)))
        for pf in inventory.pfs
    )
    return replace(inventory, pfs=tuple(pfs))


def _by_drain_reason(pf: str, entry: Out, drain: Drain) -> Iterable[Out]:
    if entry.why != DRAINED:
        return (entry,)
    by_reason: dict[str, list[int]] = {}
    for vf in entry.vfs:
        by_reason.setdefault(drain.get(f"{pf}/{vf}") or drain.get(pf) or "", []).append(vf)
    return [
        replace(entry, vfs=Indexes.of(vfs), why=f"{DRAINED}: {reason}" if reason else DRAINED)
        for reason, vfs in by_reason.items()
    ]


def _pfs(inventory: Inventory, claims: Sequence[Claim] | None, free: FreeVfs) -> tuple[PfUse, ...]:
    offers = offers_of(inventory.pfs, shared_ports_of(inventory.pfs))
    if claims is None:
        outs = [len(pf.vfs - pf.usable) for pf in inventory.pfs]
        of_pfs = zip(inventory.pfs, outs, offers, strict=True)
        return tuple(PfUse(pf, None, None, out, None, None, offer) for pf, out, offer in of_pfs)
    held: dict[str, set[int]] = {}
    for claim in claims:
        for vf in vfs_in_inventory(inventory, claim.assignment):
            held.setdefault(vf.pf, set()).add(vf.vf)
    alone = replace(inventory, pfs=tuple(replace(pf, port=None) for pf in inventory.pfs))
    own = VfAccounting(alone, claims).free_vfs.capacities
    found = []
    for pf, room, own_room, offer in zip(inventory.pfs, free.capacities, own, offers, strict=True):
        used = len(held.get(pf.name, ()))
        # A VF that is both out and held counts as held.
        out, reserved = len(pf.vfs) - room.vfs - used, pf.offer_mbps - own_room.mbps
        found.append(PfUse(pf, room.vfs, used, out, room.mbps, reserved, offer))
    return tuple(found)
