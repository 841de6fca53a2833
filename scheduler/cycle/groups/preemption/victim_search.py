"""Search for the victims of one group on a snapshot, in each topology domain and with each choice of networks. Pure.

The attempt with the smallest loss wins, in the order in which kube-scheduler chooses a node, summed over the group.
"""

from collections.abc import Sequence, Set
from dataclasses import dataclass
from functools import partial

from scheduler.cycle.groups.domains import Domain, domains_within
from scheduler.cycle.groups.group_budget import GroupBudget, Turns
from scheduler.cycle.groups.group_demand import GroupDemand
from scheduler.cycle.groups.group_placement import among_rows
from scheduler.cycle.groups.group_snapshot import GroupSnapshot
from scheduler.cycle.groups.network_sums import Networks, NetworkSums
from scheduler.cycle.groups.preemption.least_loss import LeastLoss, RemovedVictims, VictimPlacement
from scheduler.cycle.groups.preemption.row_victims import RowVictims
from scheduler.cycle.groups.rails import choices, networks_in, on_rails
from scheduler.cycle.preemption.disruption_budgets import Objections
from scheduler.placement.vf_accounting import FreeVfs, unused

# Trying this many members on other networks or in another domain takes as long as one dry run.
_MEMBERS_AS_LONG = 50
# Looks that the sum of a row takes.
_A_ROW = 175


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

    @property
    def is_spent(self) -> bool:
        return self.row_victims.is_spent or self.budget.placement.is_spent

    def best(self) -> Turns[LeastLoss | None]:
        """Return the best attempt; afterwards the snapshot has only lost the pods that are being deleted."""
        demand, budget, nodes = self.demand, self.budget, self.snapshot.cache.nodes
        best: LeastLoss | None = None
        yield from self.row_victims.remove_terminating()
        orders, first_domains = demand.orders(demand.needed), self._first_domains()
        placed_on = [assigned_pod.node for assigned_pod in demand.placed]
        domains = domains_within(demand.group, placed_on, self.snapshot.cache)
        for domain in sorted(domains, key=lambda domain: domain not in first_domains):
            if self.first is not None and best is not None and not best.removed.loss[0] and domain not in first_domains:
                # The group can wait here, and only for pods that end by themselves: there may be thousands of domains.
                break
            budget.charge_column(nodes.size)
            among = among_rows(domain, "", nodes)
            for networks in (yield from self._networks(domain)):
                for order in orders:
                    if budget.turn_is_over:
                        yield
                    if self.is_spent:
                        return best
                    self.row_victims.charge(1 + len(order) // _MEMBERS_AS_LONG)
                    limit, removed = best.removed.loss if best is not None else None, RemovedVictims(self.objections)
                    placement = VictimPlacement(
                        self.snapshot, self.row_victims, removed, among, budget, demand.needed, limit
                    )
                    attempt = yield from placement.run(on_rails(order, demand.group, networks))
                    if attempt is not None and (best is None or attempt.removed.cost < best.removed.cost):
                        best = attempt
        return best

    def _networks(self, domain: Domain) -> Turns[Sequence[Networks]]:
        """Return the choices of networks to try in a domain: those with enough room if all possible victims leave."""
        nodes, demand = self.snapshot.cache.nodes, self.demand
        if demand.group.rails != "same":
            return [()]
        rows, free_by_model = domain.row_numbers(nodes), dict[int, FreeVfs]()

        def free(row: int) -> FreeVfs:
            if self.first is None:
                return self.row_victims.free_vfs(row)
            # Nearly all pods are possible victims, and nodes of one model share their PFs.
            pfs = nodes.free_vfs_of_row[row].pfs
            return free_by_model.get(id(pfs)) or free_by_model.setdefault(id(pfs), unused(pfs))

        sums = NetworkSums(nodes.size, demand)
        yield from sums.read(rows, free, _A_ROW, self.budget)
        member_limit = partial(sums.admitted, among=rows)
        all_choices = choices(demand, demand.needed, networks_in(domain, nodes), member_limit)
        return [choice for choice in all_choices if choice is not None]

    def _first_domains(self) -> Set[Domain]:
        """Return the domains of the nodes to try first."""
        nodes, within = self.snapshot.cache.nodes, self.demand.group.within
        if not within:
            return frozenset()
        values = [nodes.label(within)[nodes.row_of[node]] for node in self.first or () if node in nodes.row_of]
        return {Domain(((within, value),)) for value in values if value is not None}
