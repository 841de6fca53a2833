"""`kubectl mooring drain` and `undrain`: which entries of a node's drain annotation change, and who holds VFs. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from cli.plugin.reports.objects import Pod
from cli.plugin.reports.tables import Answer, Cell, Table, cells
from mooring.annotations.drain import Drain
from mooring.annotations.inventory import Inventory, Pf
from mooring.indexes import Indexes
from mooring.nic import pci

DryRun = Literal["none", "client", "server"]
State = Literal["drained", "already drained", "undrained", "not drained"]
_SUFFIXES: Mapping[DryRun, str] = {"none": "", "client": " (dry run)", "server": " (server dry run)"}


class DrainError(RuntimeError):
    """What is to be drained does not exist on the node, or cannot be undrained alone."""


@dataclass(frozen=True, slots=True)
class Target:
    """A PF, or some of its VFs; ``vfs`` is None for the whole PF."""

    pf: str
    vfs: Indexes | None = None

    @property
    def entries(self) -> tuple[str, ...]:
        """The entries of the annotation that are this target's own."""
        return (self.pf,) if self.vfs is None else tuple(f"{self.pf}/{vf}" for vf in self.vfs)

    def covers(self, entry: str) -> bool:
        """Return whether all that an entry names is part of this target."""
        pf, _, _ = entry.partition("/")
        return pf == self.pf if self.vfs is None else entry in self.entries

    def holds(self, pf: str, vf: int) -> bool:
        return pf == self.pf and (self.vfs is None or vf in self.vfs)

    def __str__(self) -> str:
        if self.vfs is None:
            return f"PF {self.pf}"
        return f"PF {self.pf} {'VF' if len(self.vfs) == 1 else 'VFs'} {self.vfs}"


@dataclass(frozen=True, slots=True)
class Change:
    """What becomes of a target, and the reason that is noted for it."""

    target: Target
    state: State
    reason: str = ""


@dataclass(frozen=True, slots=True)
class DrainPlan:
    """The drain of a node as it is to be, and what changes for each target."""

    drain: Drain
    changes: tuple[Change, ...]


def offered_targets(node: str, inventory: Inventory, pfs: Sequence[str], vfs: str) -> list[Target]:
    """Return what the options name of a node's PFs: all PFs without options; raise DrainError for what is not there."""
    by_name = {pf.name: pf for pf in inventory.pfs}
    for name in pfs:
        if name not in by_name:
            raise DrainError(f"node {node!r} offers no PF {name!r}; its PFs are {', '.join(by_name) or 'none'}")
    if not vfs:
        return [Target(name) for name in pfs or by_name]
    parts = vfs.split(",")
    if any(":" in part for part in parts):
        return _by_address(node, [by_name[name] for name in pfs] or inventory.pfs, parts)
    if len(pfs) != 1:
        raise DrainError(f"--vf {vfs!r}: indexes need one PF: name it by --pf, or name the VFs by PCI address")
    return [_by_index(node, by_name[pfs[0]], vfs)]


def _by_index(node: str, pf: Pf, vfs: str) -> Target:
    try:
        indexes = Indexes.parse(vfs)
    except ValueError as wrong:
        raise DrainError(f"--vf {vfs!r}: {wrong}") from wrong
    if strange := indexes - _all_vfs(pf):
        raise DrainError(f"PF {pf.name!r} of node {node!r} offers no VF {strange}; its VFs are {_all_vfs(pf)}")
    return Target(pf.name, indexes)


def _by_address(node: str, pfs: Iterable[Pf], addresses: Iterable[str]) -> list[Target]:
    places = {pf.vf_pci(vf): (pf.name, vf) for pf in pfs if pf.vf0 is not None for vf in _all_vfs(pf)}
    vfs_of_pfs: dict[str, list[int]] = {}
    for address in addresses:
        if not pci.is_address(address):
            raise DrainError(f"--vf {address!r} {pci.NOT_AN_ADDRESS}")
        if address not in places:
            raise DrainError(f"node {node!r} offers no VF {address!r}")
        pf, vf = places[address]
        vfs_of_pfs.setdefault(pf, []).append(vf)
    return [Target(pf, Indexes.of(vfs)) for pf, vfs in vfs_of_pfs.items()]


def _all_vfs(pf: Pf) -> Indexes:
    vfs = pf.vfs
    for entry in pf.out:
        vfs |= entry.vfs
    return vfs


def named_targets(drain: Drain, inventory: Inventory | None, node: str, pfs: Sequence[str], vfs: str) -> list[Target]:
    """Return what is to be undrained: a PF that the node has no longer is undrained by its name too."""
    pfs_drained = list(dict.fromkeys(entry.partition("/")[0] for entry in drain))
    if not vfs and not pfs:
        return [Target(pf) for pf in pfs_drained]
    if not vfs and (inventory is None or set(pfs) <= set(pfs_drained)):
        return [Target(pf) for pf in pfs]
    if inventory is None:
        raise DrainError(f"node {node!r} publishes no inventory: its VFs are not known")
    return offered_targets(node, inventory, pfs, vfs)


def plan_drain(drain: Drain, targets: Iterable[Target], reason: str | None) -> DrainPlan:
    """Add targets; what is drained already keeps its reason unless there is a new one."""
    entries, changes = dict(drain), []
    for target in targets:
        if target.vfs is not None and target.pf in drain:
            changes.append(Change(target, "already drained", drain[target.pf]))
            continue
        reasons = [entries.get(entry) for entry in target.entries]
        for entry in target.entries:
            entries[entry] = entries.get(entry, "") if reason is None else reason
        is_known = None not in reasons and (reason is None or set(reasons) == {reason})
        noted = {entries[entry] for entry in target.entries}
        changes.append(Change(target, "already drained" if is_known else "drained", "; ".join(sorted(noted - {""}))))
    return DrainPlan(entries, tuple(changes))


def plan_undrain(drain: Drain, targets: Iterable[Target]) -> DrainPlan:
    """Remove all that is part of the targets; raise DrainError for a VF of a PF that is drained as a whole."""
    wanted, changes = dict(drain), []
    for target in targets:
        if target.vfs is not None and target.pf in wanted:
            raise DrainError(
                f"PF {target.pf!r} is drained as a whole: undrain the PF, then drain those of its VFs that are to get "
                "no pods"
            )
        entries = [entry for entry in wanted if target.covers(entry)]
        for entry in entries:
            del wanted[entry]
        changes.append(Change(target, "undrained" if entries else "not drained"))
    return DrainPlan(wanted, tuple(changes))


def report(node: str, plan: DrainPlan, pods: Sequence[Pod] | None, dry_run: DryRun) -> Answer:
    """Return a line for each target, and the pods that hold VFs of what is drained; None if they could not be read."""
    lines = [(Cell(_line(node, change, dry_run)),) for change in plan.changes]
    tables = [Table(("",), lines, empty=f"node/{node} has nothing drained")]
    holders = [*_holders(node, plan.changes, pods or ())]
    document = {
        "kind": "MooringDrain",
        "v": 1,
        "node": node,
        "dry_run": dry_run,
        "changes": [_change(change) for change in plan.changes],
        "pods": None if pods is None else [_holder(*holder) for holder in holders],
    }
    if holders:
        rows = [cells(pod.metadata.namespace, pod.metadata.name, pf, vf, address) for pod, pf, vf, address in holders]
        title = "these pods keep their VFs until they end: no pod is evicted"
        tables.append(Table(("NAMESPACE", "NAME", "PF", "VF", "PCI"), rows, title))
    return Answer(document, tuple(tables))


def _line(node: str, change: Change, dry_run: DryRun) -> str:
    reason = f": {change.reason}" if change.reason else ""
    return f"node/{node} {change.target} {change.state}{_SUFFIXES[dry_run]}{reason}"


def _change(change: Change) -> dict[str, object]:
    target = change.target
    vfs = None if target.vfs is None else str(target.vfs)
    return {"pf": target.pf, "vfs": vfs, "state": change.state, "reason": change.reason}


def _holders(node: str, changes: Sequence[Change], pods: Iterable[Pod]) -> Iterator[tuple[Pod, str, int, str]]:
    targets = [change.target for change in changes if change.state in ("drained", "already drained")]
    for pod in sorted(pods, key=lambda pod: pod.key):
        assignment, _ = pod.held()
        if assignment is None or assignment.node != node or pod.is_over:
            continue
        for vf in assignment.vfs:
            if any(target.holds(vf.pf, vf.vf) for target in targets):
                yield pod, vf.pf, vf.vf, vf.pci


def _holder(pod: Pod, pf: str, vf: int, address: str) -> dict[str, object]:
    return {"namespace": pod.metadata.namespace, "name": pod.metadata.name, "pf": pf, "vf": vf, "pci": address}
