"""Search for the victims of one group on a snapshot, in each topology domain and with each choice of networks. Pure.

The attempt with the smallest loss wins, in the order in which kube-scheduler chooses a node, summed over the group.
"""

from collections.abc import Hashable, Iterator, Sequence, Set
from dataclasses import dataclass, field
from functools import partial

from scheduler.cache.node_columns import Flags, Rows
from scheduler.cycle.groups.domains import Domain, domains_within
from scheduler.cycle.groups.group_budget import GroupBudget
from scheduler.cycle.groups.group_demand import GroupDemand
from scheduler.cycle.groups.group_placement import Turns
from scheduler.cycle.groups.group_snapshot import GroupSnapshot
from scheduler.cycle.groups.members import alike, distinct, namespace_of, requests_of
from scheduler.cycle.groups.network_sums import NetworkSums
from scheduler.cycle.groups.preemption.least_loss import LeastLoss, VictimPlacement
from scheduler.cycle.groups.preemption.row_candidates import in_order
from scheduler.cycle.groups.preemption.row_victims import RowVictims
from scheduler.cycle.groups.rails import choices, networks_in, on_rails
from scheduler.cycle.preemption.disruption_budgets import Objections
from scheduler.kube.pod_info import PodInfo
from scheduler.placement.vf_accounting import FreeVfs, unused

# Trying this many members on other networks or in another domain takes as long as one dry run.
_MEMBERS_AS_LONG = 50
# Sorting and summing this many rows takes as long as one dry run.
_SORTED_AS_LONG, _SUMMED_AS_LONG = 100, 4


@dataclass(slots=True)
class GroupVictimSearch:
    """The state of one search; ``objections`` are the reasons against removing pods.

    If the group waits for room, ``first`` are the nodes to try first; otherwise it is None.
    """

    demand: GroupDemand
    snapshot: GroupSnapshot
    budget: GroupBudget
    row_victims: RowVictims
    objections: Objections
    first: Set[str] | None = None
    _unused: dict[int, FreeVfs] = field(default_factory=dict)

    @property
    def is_spent(self) -> bool:
        return self.row_victims.is_spent or self.budget.placement.is_spent

    def best(self) -> Turns[LeastLoss | None]:
        """Return the best attempt; afterwards the snapshot has only lost the pods that are being deleted."""
        demand, budget, best = self.demand, self.budget, None
        yield from self.row_victims.remove_terminating()
        orders, first_domains = demand.orders(demand.needed), self._first_domains()
        for domain in sorted(self._domains(), key=lambda domain: domain not in first_domains):
            if self.first is not None and best is not None and not best.removed.loss[0] and domain not in first_domains:
                # The group can wait here, and only for pods that end by themselves: there may be thousands of domains.
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

    def _attempt(self, members: Sequence[PodInfo], domain: Domain, best: LeastLoss | None) -> Turns[LeastLoss | None]:
        inside = domain.rows(self.snapshot.cache.nodes)
        rows_of_kinds = yield from self._rows_of_kinds(members, inside)
        placement = VictimPlacement(self.snapshot, self.row_victims, self.objections, inside, self.budget)
        limit = best.removed.loss if best is not None else None
        attempt = yield from placement.place(members, self.demand.needed, rows_of_kinds, limit)
        yield from placement.clear()
        return attempt

    def _rows_of_kinds(self, members: Sequence[PodInfo], inside: Flags | None) -> Turns[dict[Hashable, Rows]]:
        rows_of_kinds = dict[Hashable, Rows]()
        for member in distinct(members):
            rows = yield from self.row_victims.rows_for(member)
            if inside is not None:
                rows = rows[inside[rows]]
            self.budget.charge_dry_runs(1 + len(rows) // _SORTED_AS_LONG)
            rows_of_kinds[alike(member)] = in_order(rows, member, self.first or (), self.snapshot.cache.nodes)
        return rows_of_kinds

    def _networks(self, domain: Domain) -> Turns[Iterator[tuple[str, ...]]]:
        """Return the choices of networks to try in a domain: those with enough room if all possible victims leave."""
        nodes, demand = self.snapshot.cache.nodes, self.demand
        rows = domain.row_numbers(nodes)
        sums = NetworkSums(nodes.size, requests_of(demand.members), namespace_of(demand.members))
        is_same = demand.group.rails == "same"
        for count in sums.add((row, self._free_vfs(row)) for row in rows.tolist()) if is_same else ():
            self.budget.charge_dry_runs(count // _SUMMED_AS_LONG)
            if self.budget.turn_is_over:
                yield
        networks = networks_in(domain, nodes) if is_same else ()
        all_choices = choices(demand, demand.needed, networks, partial(sums.admitted, among=rows))
        return (choice for choice in all_choices if choice is not None)

    def _free_vfs(self, row: int) -> FreeVfs:
        if self.first is None:
            return self.row_victims.free_vfs(row)
        # Nearly all pods are possible victims, and nodes of one model share their PFs.
        pfs = self.snapshot.cache.nodes.free_vfs_of_row[row].pfs
        if id(pfs) not in self._unused:
            self._unused[id(pfs)] = unused(pfs)
        return self._unused[id(pfs)]

    def _domains(self) -> Iterator[Domain]:
        placed_on = [assigned_pod.node for assigned_pod in self.demand.placed]
        return domains_within(self.demand.group, placed_on, self.snapshot.cache)

    def _first_domains(self) -> Set[Domain]:
        """Return the domains of the nodes to try first."""
        nodes, within = self.snapshot.cache.nodes, self.demand.group.within
        if not within:
            return frozenset()
        values = [nodes.label(within)[nodes.row_of[node]] for node in self.first or () if node in nodes.row_of]
        return {Domain(((within, value),)) for value in values if value is not None}
