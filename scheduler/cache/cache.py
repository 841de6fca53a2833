"""The cluster in memory: the nodes, and the pods that are assigned to them or assumed there.

Use is derived, and never counted twice: the columns of `scheduler.cache.node_columns` follow every assigned pod that is
added or removed. `check` compares them, and everything else that is kept, with a computation from scratch. `snapshot`
returns the cluster at one moment, private to one decision. It shares values that never change (a pod, what the pods of
a row use, the pods of a node) and copies what is written.

A pod is assumed as soon as its node is chosen. Only a definite result ends that: the watch shows it bound (then the
watch counts), the Binding is rejected for good (`forget`), or the pod is deleted.
"""

import heapq
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

from mooring.annotations.assignment import Assignment
from mooring.annotations.rates import PodRates, reserved_rates
from scheduler.cache.assigned_pod import AssignedPod, Difference, PodsByNode
from scheduler.cache.column import shallow_copy
from scheduler.cache.node_columns import NodeColumns
from scheduler.cache.node_facts import NO_OFFER
from scheduler.cache.node_info import NOT_READY_S, NodeInfo
from scheduler.cache.pod_counts import PodCounts
from scheduler.cache.pod_counts_snapshot import PodCountsSnapshot
from scheduler.cache.unit_pools import Unit, UnitPools
from scheduler.cache.volumes.volume_cache import Usage, VolumeCache
from scheduler.constraints.kinds import NONE, Kinds
from scheduler.constraints.protocol import VFS
from scheduler.kube.resources import SCORE_NAMES, add_to
from scheduler.kube.selection.affinity import AffinityInfo
from scheduler.placement.vf_accounting import (
    FreeSince,
    VfAccounting,
    release_vfs,
    reserve_rates,
    vfs_in_inventory,
)


class Cache:
    """The nodes by name, and the assigned pods by uid, including pods on nodes that were not received yet."""

    def __init__(self, kinds: Kinds = NONE) -> None:
        self.nodes = NodeColumns()
        self.unit_pools = UnitPools(kinds, self.nodes)
        self.pod_counts: PodCounts = PodCounts()
        self.volumes = VolumeCache()
        self._pods = PodsByNode()
        self._vf_accountings: dict[str, VfAccounting] = {}
        # Since when a node's VFs have been free; replaced when they change.
        self._free_since: dict[str, FreeSince] = {}
        # Nodes that are not Ready, by the time from which nothing new may be assigned from their inventory.
        self._unready: list[tuple[float, str]] = []
        # The rates that are being written, by pod uid.
        self._rate_writes: dict[str, PodRates] = {}
        # The snapshot whose pods were just assumed.
        self._used_snapshot: Cache | None = None
        # For a snapshot: the cache from which it was made, and the number of the first change there that it lacks.
        self._live: tuple[Cache, int] | None = None

    def snapshot(self, *, has_volumes: bool) -> "Cache":
        """Return the current state; a snapshot finds by uid only the pods that were put there.

        Without ``has_volumes``, no pod with volumes may be scheduled on it.
        """
        snapshot = shallow_copy(self)
        snapshot.nodes, snapshot.pod_counts = self.nodes.snapshot(), PodCountsSnapshot(self.pod_counts)
        snapshot.unit_pools = self.unit_pools.snapshot(snapshot.nodes)
        snapshot.volumes = self.volumes.snapshot(has_volumes=has_volumes)
        snapshot._pods, snapshot._free_since = self._pods.snapshot(), self._free_since.copy()
        # Derived when needed: a decision puts pods on few nodes.
        snapshot._vf_accountings, snapshot._unready, snapshot._used_snapshot = {}, [], None
        snapshot._live = self, self.nodes.changes.end
        return snapshot

    def node(self, name: str) -> NodeInfo | None:
        row = self.nodes.row_of.get(name)
        return None if row is None else self.nodes.facts[row]

    def node_names(self) -> frozenset[str]:
        return frozenset(self.nodes.row_of)

    def put_node(self, node_info: NodeInfo) -> None:
        previous = self.node(node_info.name)
        row = self.nodes.put(node_info)
        if node_info.unready_since is not None:
            heapq.heappush(self._unready, (node_info.unready_since + NOT_READY_S, node_info.name))
        if previous is None or previous.rates_in_force != node_info.rates_in_force:
            for assigned_pod in list(self._pods.on(node_info.name).values()):
                self._reserve(assigned_pod)
        if previous is None or previous.inventory != node_info.inventory:
            self._vf_accountings[node_info.name] = VfAccounting(node_info.inventory, self._pods.claims(node_info.name))
        if previous is None:
            for assigned_pod in self._pods.on(node_info.name).values():
                self._count(row, assigned_pod, 1)
            self.nodes.ports[row] = self._pods.ports(node_info.name)
        accounting = self._vf_accountings[node_info.name]
        self.nodes.show_pfs(row, node_info.fault, accounting.model)
        self.nodes.offer(row, accounting.free_vfs.offered_vfs)
        self.nodes.show_free_vfs(row, accounting.free_vfs)
        if self.nodes.unit_pools:
            self.unit_pools.put(row, node_info, self._pods.assignments(node_info.name))

    def remove_node(self, name: str) -> None:
        row = self.nodes.row_of.get(name)
        if row is None:
            return
        for assigned_pod in self._pods.on(name).values():
            self._count(row, assigned_pod, -1)
        self.nodes.ports[row] = frozenset()
        self.nodes.show_pfs(row, *NO_OFFER)
        self.unit_pools.remove(row, name)
        del self._vf_accountings[name]
        self._free_since.pop(name, None)
        self.nodes.remove(name)

    def tick(self, now: float) -> None:
        """Stop assigning VFs of nodes that have not been Ready for too long, and free the last snapshot."""
        self._used_snapshot = None
        while self._unready and self._unready[0][0] < now:
            _, name = heapq.heappop(self._unready)
            node_info = self.node(name)
            if node_info is not None and (fault := node_info.inventory_fault(now)) != node_info.fault:
                row = self.nodes.row_of[name]
                self.nodes.show_pfs(row, fault, self._vf_accountings[name].model)
                self.unit_pools.show(row, name, ())
                self.nodes.touch(row, is_renewal=True)

    def assigned(self, uid: str) -> AssignedPod | None:
        return self._pods.by_uid.get(uid)

    def uids(self) -> list[str]:
        return list(self._pods.by_uid)

    def assigned_pods(self) -> Iterator[AssignedPod]:
        yield from self._pods.by_uid.values()

    def assigned_pods_on(self, node: str) -> Collection[AssignedPod]:
        return self._pods.on(node).values()

    def assigned_on(self, node: str, uid: str) -> AssignedPod | None:
        return self._pods.on(node).get(uid)

    def vf_accounting(self, node: str) -> VfAccounting:
        """Return what a node has left; a caller that changes it must undo the change before anything else reads it."""
        accounting = self._vf_accountings.get(node)
        if accounting is None:
            accounting = self._vf_accountings[node] = self._derive_accounting(node)
        return accounting

    def _derive_accounting(self, node: str) -> VfAccounting:
        if self._live is not None:
            live, change_number = self._live
            if not live.nodes.changes.has_changed(self.nodes.row_of[node], change_number):
                return live.vf_accounting(node).copy()
        return VfAccounting(self._known_node(node).inventory, self._pods.claims(node))

    def _known_node(self, name: str) -> NodeInfo:
        node_info = self.node(name)
        assert node_info is not None, f"node {name!r} is not known"
        return node_info

    def lowest_priority(self) -> int | None:
        return self._pods.lowest_priority()

    def put(self, assigned_pod: AssignedPod, now: float) -> Difference:
        """Add an assigned pod, or replace its previous state; return how it differs."""
        previous = self.assigned(assigned_pod.uid)
        if assigned_pod.rates is not None or self._rate_writes:
            assigned_pod.claim_assignment = self._claim_assignment(assigned_pod)
        difference = assigned_pod.differs(previous)
        if previous is not None and difference != "use":
            # The watch shows the assumed or previous state; API servers copy a node's zone to its pods.
            self._pods.replace(assigned_pod)
            if difference == "affinity":
                self._count_affinity(previous, -1)
                self._count_affinity(assigned_pod, 1)
            if previous.claim_assignment != assigned_pod.claim_assignment:
                self._renew_claim(assigned_pod)
            return difference
        if previous is not None:
            self.remove(assigned_pod.uid, now)
        self.put_back(assigned_pod)
        return difference

    def remove(self, uid: str, now: float) -> AssignedPod | None:
        """Remove a pod from its node; its VFs are free since ``now`` unless another pod claims them too."""
        assigned_pod = self.assigned(uid)
        if assigned_pod is None:
            return None
        self.take_off(assigned_pod)
        node_info = self.node(assigned_pod.node)
        if assigned_pod.assignment is not None and node_info is not None and node_info.inventory is not None:
            free_since = self.free_since(assigned_pod.node)
            free_since = release_vfs(free_since, node_info.inventory, assigned_pod.assignment, now)
            self._free_since[assigned_pod.node] = free_since
        return assigned_pod

    def take_off(self, assigned_pod: AssignedPod) -> None:
        """Remove a pod from its node; its VFs count as free for as long as before."""
        self._pods.remove(assigned_pod)
        self._move(assigned_pod, -1)

    def assume(self, assigned_pod: AssignedPod, now: float) -> None:
        """Add a pod to its chosen node before the API server has bound it."""
        assigned_pod.assumed = True
        self.put(assigned_pod, now)

    def assume_all(self, snapshot: "Cache", assigned_pods: Collection[AssignedPod]) -> None:
        """Assume pods that a snapshot has on nodes that have not changed here since: its rows are valid here too.

        Thousands are assumed in one step. The snapshot must not be used afterwards. It gets what it replaces here, and
        `tick` frees both: that takes half as long again.
        """
        self._used_snapshot = snapshot
        if isinstance(snapshot.pod_counts, PodCountsSnapshot):
            self.pod_counts.followers.discard(snapshot.pod_counts)
        rows_by_info: dict[AffinityInfo, list[int]] = {}
        self._pods.add(assigned_pods)
        for assigned_pod in assigned_pods:
            if assigned_pod.volumes:
                self.volumes.usage.shift(assigned_pod.node, assigned_pod.volumes, 1)
            if assigned_pod.affinity_info is not None:
                row = self.nodes.row_of[assigned_pod.node]
                rows_by_info.setdefault(assigned_pod.affinity_info, []).append(row)
        self.pod_counts.add_all(rows_by_info)
        nodes = dict.fromkeys(assigned_pod.node for assigned_pod in assigned_pods)
        # Others were not derived, because no pod there has VFs.
        for node, accounting in snapshot._vf_accountings.items():
            if node in nodes:
                self._vf_accountings[node], snapshot._vf_accountings[node] = accounting, self._vf_accountings[node]
        self.nodes.adopt(snapshot.nodes, [self.nodes.row_of[node] for node in nodes])

    def put_back(self, assigned_pod: AssignedPod) -> None:
        """Add a pod to its node again after `take_off`."""
        self._pods.add((assigned_pod,))
        self._move(assigned_pod, 1)

    def forget(self, uid: str, now: float) -> AssignedPod | None:
        """Remove an assumed pod from its node and return it; None if nothing is assumed for it."""
        assigned_pod = self.assigned(uid)
        return self.remove(uid, now) if assigned_pod is not None and assigned_pod.assumed else None

    def finish_binding(self, uid: str) -> None:
        """Mark an assumed pod as bound: the API server has confirmed it."""
        assigned_pod = self.assigned(uid)
        if assigned_pod is not None:
            assigned_pod.assumed = False

    def write_rates(self, rates: PodRates) -> None:
        """Reserve at once what the rates need that are about to be written for an assigned pod."""
        self._rate_writes[rates.uid] = rates
        self._reserve(self._pods.by_uid[rates.uid])

    def finish_rates(self, uid: str, *, is_written: bool) -> None:
        """Record the definite result of a write of rates: they are allocated, or no longer reserve anything."""
        rates, assigned_pod = self._rate_writes.pop(uid, None), self.assigned(uid)
        if rates is None or assigned_pod is None:
            return
        if is_written and (assigned_pod.rates is None or assigned_pod.rates.generation < rates.generation):
            assigned_pod = replace(assigned_pod, rates=rates)
            self._pods.replace(assigned_pod)
        self._reserve(assigned_pod)

    def is_writing_rates(self, uid: str) -> bool:
        return uid in self._rate_writes

    def free_since(self, node: str) -> FreeSince:
        """Return since when each VF of a node has been free; monotonic seconds."""
        return self._free_since.get(node, {})

    def disputes(self, name: str) -> Mapping[Unit, tuple[str, ...]]:
        """Return what more than one pod claims on a node, with the uids of the pods."""
        node_info = self.node(name)
        if node_info is None:
            return {}
        unit_disputes = self.unit_pools.disputes(name, self._pods.claims(name)) if self.nodes.unit_pools else {}
        return unit_disputes | {Unit(VFS, pci): uids for pci, uids in self._vf_accountings[name].disputes().items()}

    def check(self) -> None:
        self._pods.check()
        assert self.nodes.row_of.keys() == self._vf_accountings.keys()
        for name, row in self.nodes.row_of.items():
            self._check_row(name, row)
        self.volumes.check()
        usage = Usage()
        for assigned_pod in self._pods.by_uid.values():
            usage.shift(assigned_pod.node, assigned_pod.volumes, 1)
        assert self.volumes.usage == usage, "the volumes in use are not those of the pods"
        self.pod_counts.check(
            (self.nodes.row_of[assigned_pod.node], assigned_pod.affinity_info)
            for assigned_pod in self._pods.by_uid.values()
            if assigned_pod.affinity_info is not None and assigned_pod.node in self.nodes.row_of
        )

    def _check_row(self, name: str, row: int) -> None:
        node_info, nodes, assigned_pods = self._known_node(name), self.nodes, self._pods.on(name).values()
        amounts: dict[str, int] = {}
        for assigned_pod in assigned_pods:
            add_to(amounts, dict(_amounts(assigned_pod)))
        assert nodes.used_of(row) == {resource: amount for resource, amount in amounts.items() if amount}, name
        assert nodes.ports[row] == self._pods.ports(name), f"node {name!r}: the ports differ"
        accounting = VfAccounting(node_info.inventory, self._pods.claims(name))
        free_vfs, kept_accounting = accounting.free_vfs, self._vf_accountings[name]
        assert kept_accounting.disputes() == accounting.disputes(), f"node {name!r}: disputes are missed or made up"
        assert nodes.free_vfs_of_row[row] == free_vfs, f"node {name!r}: the free VFs differ from newly derived ones"
        capacity = free_vfs.offered_vfs, free_vfs.vf_count, free_vfs.free_mbps
        assert nodes.vfs_of(row) == capacity, f"node {name!r}: its VFs are not counted as newly derived ones are"
        self.unit_pools.check(row, name, self._pods.assignments(name))
        is_current = all(pod.claim_assignment == self._claim_assignment(pod) for pod in assigned_pods)
        assert is_current, f"node {name!r}: a pod reserves other rates than it may have"
        free = {pf.name: mask for pf, mask in zip(free_vfs.pfs, free_vfs.free, strict=True)}
        for claim in self._pods.claims(name):
            for vf in vfs_in_inventory(node_info.inventory, claim.assignment) if node_info.inventory else ():
                assert not free[vf.pf] >> vf.vf & 1, f"node {name!r}: {vf.pci} is free and pod {claim.uid!r} has it"

    def _move(self, assigned_pod: AssignedPod, sign: int) -> None:
        if assigned_pod.volumes:
            self.volumes.usage.shift(assigned_pod.node, assigned_pod.volumes, sign)
        row = self.nodes.row_of.get(assigned_pod.node)
        if row is None:
            return
        self._count(row, assigned_pod, sign)
        if assigned_pod.ports:
            self.nodes.ports[row] = self._pods.ports(assigned_pod.node)
        if (claim := assigned_pod.claim) is not None:
            vf_accounting = self.vf_accounting(assigned_pod.node)
            (vf_accounting.add if sign > 0 else vf_accounting.remove)(claim)
            self.nodes.show_free_vfs(row, vf_accounting.free_vfs)
            if claim.assignment.ext:
                self.unit_pools.show(row, assigned_pod.node, self._pods.assignments(assigned_pod.node))
        self.nodes.touch(row)

    def _claim_assignment(self, assigned_pod: AssignedPod) -> Assignment | None:
        """Return the assignment with the maximum rate that each VF may have; None if these are the assigned rates.

        It is the allocated rate, the previous one while that is not in force, and one that is being written, until the
        result is definite. On a node that does not support rate changes (any more), the assigned rates count too.
        """
        assignment, write = assigned_pod.assignment, self._rate_writes.get(assigned_pod.uid)
        if assignment is None or (assigned_pod.rates is None and write is None):
            return None
        node_info = self.node(assigned_pod.node)
        in_force = node_info.rates_in_force if node_info is not None else None
        rates = reserved_rates(assignment, assigned_pod.rates, in_force)
        return reserve_rates(assignment, map(max, rates, write.reserved) if write is not None else rates)

    def _reserve(self, assigned_pod: AssignedPod) -> None:
        claim_assignment = self._claim_assignment(assigned_pod)
        if claim_assignment != assigned_pod.claim_assignment:
            assigned_pod = replace(assigned_pod, claim_assignment=claim_assignment)
            self._pods.replace(assigned_pod)
            self._renew_claim(assigned_pod)

    def _renew_claim(self, assigned_pod: AssignedPod) -> None:
        """Replace what a pod's VFs reserve on its node; the VFs themselves are the same."""
        row, vf_accounting = self.nodes.row_of.get(assigned_pod.node), self._vf_accountings.get(assigned_pod.node)
        if row is None or vf_accounting is None or (claim := assigned_pod.claim) is None:
            return
        vf_accounting.remove(claim)
        vf_accounting.add(claim)
        self.nodes.show_free_vfs(row, vf_accounting.free_vfs)
        self.nodes.touch(row)

    def _count(self, row: int, assigned_pod: AssignedPod, sign: int) -> None:
        self.nodes.use(row, _amounts(assigned_pod), sign)
        self._count_affinity(assigned_pod, sign)

    def _count_affinity(self, assigned_pod: AssignedPod, sign: int) -> None:
        row = self.nodes.row_of.get(assigned_pod.node)
        if row is not None and assigned_pod.affinity_info is not None:
            self.pod_counts.shift(row, assigned_pod.affinity_info, sign)


def _amounts(assigned_pod: AssignedPod) -> list[tuple[str, int]]:
    scored_amounts = [(SCORE_NAMES[name], amount) for name, amount in assigned_pod.scored.items()]
    return [("pods", 1), *assigned_pod.resources.items(), *scored_amounts]
