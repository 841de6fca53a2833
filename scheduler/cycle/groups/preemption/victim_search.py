"""The search for the victims of one group on a snapshot: each topology domain, and each choice of networks. Pure.

The attempt that costs the least counts, by the order in which kube-scheduler chooses a node, summed over the group.
"""

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from scheduler.cache.node_columns import Flags, Rows
from scheduler.cycle.groups.domains import Domain, domains_within
from scheduler.cycle.groups.group_budget import GroupBudget
from scheduler.cycle.groups.group_demand import GroupDemand
from scheduler.cycle.groups.group_placement import Steps
from scheduler.cycle.groups.group_snapshot import GroupSnapshot
from scheduler.cycle.groups.members import alike, distinct, requests_of
from scheduler.cycle.groups.network_sums import NetworkSums
from scheduler.cycle.groups.preemption.awaited_nodes import AwaitedNodes
from scheduler.cycle.groups.preemption.least_loss import LeastLoss, VictimPlacement
from scheduler.cycle.groups.preemption.row_victims import RowVictims
from scheduler.cycle.groups.rails import choices, networks_in, on_rails
from scheduler.cycle.preemption.disruption_budgets import Objections
from scheduler.cycle.preemption.potential_victims import pods_of
from scheduler.kube.pod_info import PodInfo
from scheduler.placement.vf_accounting import FreeVfs, unused

# So many members take as long as a dry run when they are tried on other networks or in another domain.
_MEMBERS_AS_LONG = 50
# Nodes whose PFs are counted between two turns.
_NODES_AT_ONCE = 32


@dataclass(slots=True)
class GroupVictimSearch:
    """What one search has in common; ``most`` is what it may spend (`RowVictims.spent`).

    If the group waits for room, ``awaited`` are the nodes where it may; otherwise it is None. ``objections`` are what
    speaks against removing pods.
    """

    demand: GroupDemand
    snapshot: GroupSnapshot
    budget: GroupBudget
    row_victims: RowVictims
    objections: Objections
    most: int
    awaited: AwaitedNodes | None = None
    _unused: dict[int, FreeVfs] = field(default_factory=dict)

    @property
    def is_spent(self) -> bool:
        return self.row_victims.spent >= self.most or self.budget.placement.is_spent

    def best(self) -> Steps[LeastLoss | None]:
        """Return the best attempt; nothing of it is left on the snapshot, which has no pods that are being deleted."""
        demand, budget, best = self.demand, self.budget, None
        yield from self.row_victims.remove_terminating()
        orders = demand.orders(demand.needed)
        for domain in self._domains():
            if self.awaited is not None and best is not None and self._is_good(best) and not self._has_room(domain):
                break
            budget.charge_column(self.snapshot.cache.nodes.size)
            for networks in (yield from self._networks(domain)):
                for order in orders:
                    if budget.turn_is_over:
                        yield
                    if self.is_spent:
                        return best
                    self.row_victims.charge(1 + len(order) // _MEMBERS_AS_LONG)
                    members = on_rails(order, demand.group, networks)
                    attempt = yield from self._attempt(members, domain, best)
                    if attempt is not None and (best is None or attempt.removed.cost < best.removed.cost):
                        best = attempt
        return best

    def _attempt(self, members: Sequence[PodInfo], domain: Domain, best: LeastLoss | None) -> Steps[LeastLoss | None]:
        inside = domain.rows(self.snapshot.cache.nodes)
        rows_of_kinds = yield from self._rows_of_kinds(members, inside)
        placement = VictimPlacement(self.snapshot, self.row_victims, self.objections, inside, self.budget, self.most)
        limit = best.removed.loss if best is not None else None
        attempt = yield from placement.place(members, self.demand.needed, rows_of_kinds, limit)
        yield from placement.clear()
        return attempt

    def _rows_of_kinds(self, members: Sequence[PodInfo], inside: Flags | None) -> Steps[dict[Hashable, Rows]]:
        rows_of_kinds = dict[Hashable, Rows]()
        for member in distinct(members):
            rows = yield from self.row_victims.rows_for(member)
            if inside is not None:
                rows = rows[inside[rows]]
            if self.awaited is not None:
                rows = yield from self.awaited.among(rows, member)
            rows_of_kinds[alike(member)] = rows
        return rows_of_kinds

    def _networks(self, domain: Domain) -> Steps[Iterator[tuple[str, ...]]]:
        """Return the choices of networks to try in a domain."""
        nodes, demand = self.snapshot.cache.nodes, self.demand
        rows = domain.row_numbers(nodes)
        sums, is_same = NetworkSums(nodes.size, requests_of(demand.members)), demand.group.rails == "same"
        for start in range(0, len(rows) if is_same else 0, _NODES_AT_ONCE):
            some_rows = rows[start : start + _NODES_AT_ONCE].tolist()
            list(sums.add(zip(some_rows, self._room(some_rows), strict=True)))
            self.budget.charge_column(len(some_rows))
            if self.budget.turn_is_over:
                yield
        networks = networks_in(domain, nodes) if is_same else ()
        all_choices = choices(demand, demand.needed, networks, partial(sums.admitted, among=rows))
        return (choice for choice in all_choices if choice is not None)

    def _room(self, rows: Sequence[int]) -> list[FreeVfs]:
        """Return what the PFs of rows have if all leave that may."""
        if self.awaited is None:
            return self.row_victims.room(rows)
        # Nearly all pods may leave, and nodes of one model share their PFs.
        all_pfs = [self.snapshot.cache.nodes.free_vfs_of_row[row].pfs for row in rows]
        for pfs in all_pfs:
            if id(pfs) not in self._unused:
                self._unused[id(pfs)] = unused(pfs)
        return [self._unused[id(pfs)] for pfs in all_pfs]

    def _domains(self) -> Sequence[Domain]:
        """Return the topology domains to try; of a group that waits for room, those first where it has some."""
        placed_on = [assigned_pod.node for assigned_pod in self.demand.placed]
        domains = domains_within(self.demand.group, placed_on, self.snapshot.cache)
        if self.awaited is None:
            return list(domains)
        return sorted(domains, key=self._has_room, reverse=True)

    def _has_room(self, domain: Domain) -> bool:
        """Return whether a group that waits for room has some in a domain."""
        nodes, within = self.snapshot.cache.nodes, self.demand.group.within
        if not within:
            return True
        first = self.awaited.first if self.awaited is not None else ()
        rows = [nodes.row_of[node] for node in first if node in nodes.row_of]
        return any(domain.labels == ((within, nodes.label(within)[row]),) for row in rows)

    def _is_good(self, best: LeastLoss) -> bool:
        """Return whether a group can wait there, and only for pods that end: there may be thousands of domains."""
        return not any(assigned_pod.always_restarts for assigned_pod in pods_of(best.removed.victims))
