"""Choose the victims of a group on a snapshot: remove all that may go, place, and let victims stay. Pure.

Each topology domain is tried with each choice of networks. Members go where they fit. Then the possible victims are
removed, those of the lowest priority first, until enough members fit. Victims are put back in the opposite order: first
those whose removal violates a disruption budget, then the most important. A victim stays if the members on its nodes
still fit there or elsewhere in the domain. The plan with the smallest loss in kube-scheduler's order wins.

Source: selectVictimsOnDomain in kube-scheduler 1.36's framework/preemption/podgrouppreemption.go. It removes all
possible victims at once, on all nodes, and moves no member.
"""

import heapq
import itertools
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass
from functools import partial
from math import inf

import numpy as np

from scheduler.cache.assigned_pod import AssignedPod
from scheduler.cache.node_columns import LINES, VFS, NodeColumns, Rows
from scheduler.cache.pod_counts import selects
from scheduler.cycle.decisions import Bind
from scheduler.cycle.groups.domains import Domain, Target, domains_within, rows_of
from scheduler.cycle.groups.group_cycle import fill, member_room
from scheduler.cycle.groups.group_demand import HOSTNAME, needs
from scheduler.cycle.groups.group_snapshot import GroupSnapshot, Turns
from scheduler.cycle.groups.rails import Networks, NetworkSums, choices, on_rails
from scheduler.cycle.node_dry_run import DryRuns
from scheduler.cycle.preemption.disruption_budgets import Objections
from scheduler.cycle.preemption.potential_victims import (
    Loss,
    PotentialVictims,
    Victim,
    importance,
    is_terminating,
    loss_of,
    pods_of,
    start_of,
    with_spare_members,
)
from scheduler.kube.group import Group, GroupKey
from scheduler.kube.pod_info import PodInfo
from scheduler.kube.selection.affinity import Term

# Costs in units of one node: a pod that is only listed, a victim that is sorted or counted, and one that is compared
# with the members on its nodes.
_A_POD, _A_VICTIM, _A_TRIAL = 3, 15, 60
# Victims that are sorted at once, with a key and a number.
_RUN = 2048
_Entry = tuple[tuple[object, ...], int, Victim]
# Victims are looked for on this many nodes of a domain, or for each member; on all nodes if these are too few.
_FEWEST, _PER_MEMBER = 250, 2


@dataclass(frozen=True, slots=True)
class VictimGoal:
    """Pods of lower priority than ``max_priority`` may be victims; there are ``objections`` to some.

    A search places members at most ``max_tries`` times. With ``is_for_room``, the group waits until pods end by
    themselves. The ``first_nodes`` come before all others.
    """

    objections: Objections
    max_priority: int
    max_tries: int
    is_for_room: bool = False
    first_nodes: Set[str] = frozenset()


@dataclass(frozen=True, slots=True)
class VictimPlan:
    """The members on their nodes, and the victims that must leave for them, the most important first."""

    binds: Sequence[Bind]
    victims: Sequence[Victim]
    loss: Loss

    @property
    def cost(self) -> tuple[Loss, Sequence[int]]:
        """The smaller the better; of equal losses that whose victims have started last."""
        return self.loss, [-ord(letter) for letter in start_of(self.victims)]


class PlanSearch:
    """Finds the best plan on one snapshot; ``try_count`` is the work so far.

    If members have VFs, no pod on ``stuck_nodes`` is a victim: these do not release the VFs of the pods that leave.
    """

    def __init__(
        self,
        snapshot: GroupSnapshot,
        goal: VictimGoal,
        victims: PotentialVictims,
        stuck_nodes: Set[str],
        try_count: int = 0,
    ) -> None:
        self._snapshot, self._goal, self._victims, self._stuck_nodes = snapshot, goal, victims, stuck_nodes
        self._demand, self._budget, self.try_count = snapshot.demand, snapshot.budget, try_count
        self._best: VictimPlan | None = None
        # Whether one more member of a shape fits in a domain, while none has moved.
        self._has_room: dict[tuple[bytes, Domain], bool] = {}
        # The members that a pod's anti-affinity selects.
        self._uids_of_terms: dict[Term, Sequence[str]] = {}

    @property
    def is_spent(self) -> bool:
        return self.try_count >= self._goal.max_tries or self._budget.placement.is_spent

    @property
    def _has_harmless_plan(self) -> bool:
        return self._best is not None and not self._best.loss.broken_budgets

    def best_plan(self) -> Turns[VictimPlan | None]:
        demand, goal, nodes = self._demand, self._goal, self._snapshot.nodes
        yield from self._remove_terminating_pods()
        rows, first_domains = (yield from self._rows()), _first_domains(demand.group, goal.first_nodes, nodes)
        domains = domains_within(demand.group, [pod.node for pod in demand.placed_pods], nodes)
        for domain in sorted(domains, key=lambda domain: domain not in first_domains):
            if self.is_spent or (goal.is_for_room and self._has_harmless_plan and domain not in first_domains):
                # The group can wait there, and only for pods that end by themselves: there may be thousands of domains.
                break
            self._budget.charge_nodes(nodes.size)
            yield from self._budget.checkpoint()
            yield from self._try_domain(domain, rows[domain.flags(nodes)[rows]])
        return self._best

    def _remove_terminating_pods(self) -> Turns[None]:
        snapshot, budget = self._snapshot, self._budget
        for node in list(snapshot.nodes.row_of):
            pods = list(snapshot.cache.assigned_pods_on(node))
            yield from budget.move_all(snapshot.remove, filter(is_terminating, pods))
            yield from budget.checkpoint(_A_POD * len(pods))

    def _rows(self) -> Turns[Rows]:
        """Return the rows that could take a member without other pods: the first nodes, then those that lack least."""
        snapshot, nodes, placement = self._snapshot, self._snapshot.nodes, self._budget.placement
        rows_of_shapes = list[Rows]()
        for member in self._demand.shapes:
            rows = yield from self._budget.evaluate(partial(snapshot.cycle.rows_without_pods, member, placement))
            rows_of_shapes.append(DryRuns(member, snapshot.cache, placement).rows_if_empty(rows))
            self._budget.charge_nodes(nodes.size)
        rows = np.unique(np.concatenate(rows_of_shapes))
        if any(member.interfaces for member in self._demand.shapes):
            rows = rows[np.isin(rows, rows_of(self._stuck_nodes, nodes), invert=True)]
        view, amounts = nodes.view(rows), np.max([needs(member) for member in self._demand.shapes], axis=0)[:, None]
        shortage = (np.maximum(amounts - view.free, 0) / np.maximum(amounts, 1)).max(axis=0)
        is_later = np.isin(rows, rows_of(self._goal.first_nodes, nodes), invert=True)
        pods = view.allocatable[LINES["pods"]] - view.free[LINES["pods"]]
        ordered_rows: Rows = rows[np.lexsort((pods, shortage, is_later))]
        return ordered_rows

    def _try_domain(self, domain: Domain, rows: Rows) -> Turns[None]:
        """Try the group in a domain, with victims on the first rows if these suffice.

        After one choice of networks has fitted, others are tried with fewer levels of victims.
        """
        demand, count = self._demand, max(_FEWEST, _PER_MEMBER * self._demand.needed_count)
        for part in (rows[:count], rows) if count < len(rows) else (rows,):
            levels, fits = (yield from self._levels(part)), False
            for choice in (yield from self._networks(domain, levels)):
                level_counts = list[int]()
                for order in demand.orders(demand.needed_count):
                    yield from self._budget.checkpoint()
                    if not self.is_spent:
                        members = on_rails(order, demand.group, choice)
                        level_counts += yield from self._place(members, domain, levels)
                if level_counts:
                    fits, levels = True, levels[: max(min(level_counts) - 1, 0)]
            if fits and self._has_harmless_plan:
                break

    def _levels(self, rows: Rows) -> Turns[list[list[Victim]]]:
        """Return the possible victims on rows by priority, the lowest first, and after all others those with a budget.

        In each level, the least important come first; of equal ones those on nodes with few.
        """
        nodes, goal, budget, cache = self._snapshot.nodes, self._goal, self._budget, self._snapshot.cache
        potential = self._victims.on(cache, self._victims.placed(self._demand.group.key) | self._demand.uids)
        # With sort keys that put the most important last. They are sorted in runs: there may be 100,000.
        run, runs, serials = list[_Entry](), list[list[_Entry]](), itertools.count()
        pods_of_groups = dict[GroupKey, list[AssignedPod]]()

        def add(victim: Victim, count: int) -> None:
            (*ranks, start), node = importance(victim), victim.pods[0].node
            run.append(((*ranks, -count, node in goal.first_nodes, start), next(serials), victim))

        for node in (nodes.names[row] for row in rows.tolist()):
            victims = potential.below(node, goal.max_priority)
            for victim in victims:
                if victim.group is None:
                    add(victim, len(victims))
                else:
                    pods_of_groups.setdefault(victim.group, []).extend(victim.node_pods)
            if len(run) > _RUN:
                runs.append(sorted(run, reverse=True))
                run.clear()
            yield from budget.checkpoint(_A_POD * len(cache.assigned_pods_on(node)) + _A_VICTIM * len(victims))
        for key, pods in pods_of_groups.items():
            for victim in potential.divide(key, pods):
                if victim.priority < goal.max_priority:
                    add(victim, 0)
            yield from budget.checkpoint(_A_VICTIM * len(pods))
        runs.append(sorted(run, reverse=True))
        return (yield from self._divide(heapq.merge(*runs, reverse=True)))

    def _divide(self, entries: Iterable[_Entry]) -> Turns[list[list[Victim]]]:
        """Return victims by level; an empty one, where all members are placed again, is before those with a budget."""
        levels, counts = dict[tuple[bool, float, bool], list[Victim]](), dict[int, int]()
        objections, groups_of_violators = self._goal.objections, set[GroupKey | None]()

        def add(entry: _Entry) -> None:
            victim = entry[2]
            is_violation = objections.has_any and objections.violations(victim.pods, counts) > 0
            # The members that it can spare leave with a whole group; they come before it.
            if is_violation or (victim.is_whole and victim.group in groups_of_violators):
                is_violation = True
                groups_of_violators.add(victim.group)
            levels.setdefault((is_violation, victim.priority, victim.is_whole), []).append(victim)

        yield from self._budget.move_all(add, entries)
        if any(is_violation for is_violation, _, _ in levels):
            levels[True, -inf, False] = []
        return [levels[key] for key in sorted(levels)]

    def _networks(self, domain: Domain, levels: Sequence[Sequence[Victim]]) -> Turns[Sequence[Networks]]:
        """Return the choices of networks to try in a domain: those with enough room if all possible victims leave."""
        snapshot, demand, budget = self._snapshot, self._demand, self._budget
        sums = NetworkSums(snapshot)
        if demand.group.rails == "same":
            pods = pods_of(itertools.chain.from_iterable(levels))
            yield from budget.move_all(snapshot.remove, pods)
            yield from sums.read(domain.rows(snapshot.nodes))
            yield from budget.move_all(snapshot.restore, pods)
        options = choices(sums, demand.needed_count, domain)
        return [choice for choice in options if choice is not None]

    def _place(
        self, members: Sequence[PodInfo], domain: Domain, levels: Sequence[Sequence[Victim]]
    ) -> Turns[list[int]]:
        """Return without how many levels of victims enough members fit, if they do, and keep the best plan.

        A level is not removed if one victim of it is a larger loss than that of the best plan.
        """
        snapshot, budget, removed, level_counts = self._snapshot, self._budget, list[Victim](), list[int]()
        # Of equal members, none is tried after one that fits nowhere.
        target = Target(domain, self._demand.needed_count if len(self._demand.shapes) == 1 else 0)
        self._has_room.clear()
        for number, level in enumerate(((), *levels, ())):
            if not level:
                # Members that took free room may be in the way of larger ones.
                yield from budget.move_all(snapshot.take_off, list(snapshot.binds))
            elif self.is_spent or (self._best is not None and loss_of(level[:1], 0) > self._best.loss):
                break
            yield from budget.move_all(snapshot.remove, pods_of(level))
            removed += level
            if (yield from self._fill(members, target)):
                plan = yield from self._reprieve(removed)
                if (yield from self._is_repeatable(members, target)):
                    level_counts.append(number)
                    self._best = plan if self._best is None or plan.cost < self._best.cost else self._best
                break
        yield from budget.move_all(snapshot.take_off, list(snapshot.binds))
        yield from budget.move_all(snapshot.restore, pods_of(removed))
        return level_counts

    def _fill(self, members: Sequence[PodInfo], target: Target) -> Turns[bool]:
        """Place the members that have no node; return whether enough have one."""
        rest = [member for member in members if member.uid not in self._snapshot.binds]
        room = yield from member_room(self._snapshot)
        _, count = yield from fill(self._snapshot, room, rest, target, self._demand.needed_count)
        self.try_count += count
        return len(self._snapshot.binds) >= self._demand.needed_count

    def _is_repeatable(self, members: Sequence[PodInfo], target: Target) -> Turns[bool]:
        """Return whether enough members also fit if all are placed at once, as after the victims have left."""
        if self._goal.is_for_room or (len(self._demand.shapes) == 1 and not self._demand.group.slices):
            return True
        yield from self._budget.move_all(self._snapshot.take_off, list(self._snapshot.binds))
        return (yield from self._fill(members, target))

    def _reprieve(self, removed: Sequence[Victim]) -> Turns[VictimPlan]:
        """Put back the victims that may stay, the last removed first."""
        choice, budget = list[Victim](), self._budget
        for victim in reversed(removed):
            yield from budget.checkpoint(_A_TRIAL)
            uids = self._concerned_uids(victim)
            if not uids:
                yield from budget.move_all(self._snapshot.restore, victim.pods)
            elif self.is_spent or not (yield from self._put_back(victim, uids)):
                choice.append(victim)
        yield from budget.checkpoint(_A_VICTIM * len(choice))
        victims = sorted(with_spare_members(choice, removed), key=importance)
        yield from budget.checkpoint(_A_VICTIM * len(victims))
        broken_budgets = self._goal.objections.violations(pods_of(victims), {})
        yield from budget.checkpoint(_A_VICTIM * len(victims))
        return VictimPlan(tuple(self._snapshot.binds.values()), victims, loss_of(victims, broken_budgets))

    def _put_back(self, victim: Victim, uids: Sequence[str]) -> Turns[bool]:
        """Put a victim back if these members then fit on their nodes, or elsewhere in their domains."""
        snapshot, budget = self._snapshot, self._budget
        binds, domains = [snapshot.binds[uid] for uid in uids], list[Domain | None]()
        for bind in binds:
            domains.append((yield from self._domain_with_room(bind)))
        if not any(domains) and self._is_too_large(victim, binds):
            return False
        yield from budget.move_all(snapshot.take_off, uids)
        yield from budget.move_all(snapshot.restore, victim.pods)
        for bind, domain in zip(binds, domains, strict=True):
            if not (yield from self._place_again(bind, domain)):
                yield from budget.move_all(snapshot.take_off, [uid for uid in uids if uid in snapshot.binds])
                yield from budget.move_all(snapshot.remove, victim.pods)
                yield from budget.move_all(snapshot.put_on, binds)
                return False
        if any(snapshot.binds[bind.pod_info.uid].assigned.node != bind.assigned.node for bind in binds):
            self._has_room.clear()
        return True

    def _domain_with_room(self, bind: Bind) -> Turns[Domain | None]:
        """Return the domain of a member, or of its slice, if one more such member fits there."""
        nodes, member, group = self._snapshot.nodes, bind.pod_info, self._demand.group
        labels = [*(level.within for level in group.slices), *([group.within] if group.within else [])]
        row = nodes.row_of[bind.assigned.node]
        domain = Domain(tuple((label, nodes.label(label)[row] or "") for label in labels))
        if (member.shape, domain) not in self._has_room:
            decision = yield from self._snapshot.choose_node(member, domain.among(nodes))
            self._has_room[member.shape, domain] = isinstance(decision, Bind)
        return domain if self._has_room[member.shape, domain] else None

    def _place_again(self, bind: Bind, domain: Domain | None) -> Turns[bool]:
        """Put a member on its node again, or elsewhere in a domain."""
        snapshot, member = self._snapshot, bind.pod_info
        self.try_count += 1
        if (yield from snapshot.place_on(member, bind.assigned.node)):
            return True
        decision = (yield from snapshot.choose_node(member, domain.among(snapshot.nodes))) if domain else None
        if isinstance(decision, Bind):
            snapshot.put_on(decision)
        return isinstance(decision, Bind)

    def _is_too_large(self, victim: Victim, binds: Sequence[Bind]) -> bool:
        """Return whether a pod needs more than the members on its node leave of what they need themselves."""
        nodes, pod = self._snapshot.nodes, victim.pods[0]
        row = nodes.row_of.get(pod.node, -1)
        own_needs = [needs(bind.pod_info) for bind in binds if bind.assigned.node == pod.node]
        amounts = {LINES[name]: amount for name, amount in pod.resources.items() if name in LINES} | {LINES["pods"]: 1}
        amounts[VFS] = len(pod.assignment.vfs) if pod.assignment is not None else 0
        lines = (line for line, amount in amounts.items() if amount and any(need[line] for need in own_needs))
        return any(int(nodes.free(line, np.array([row]))[0]) < amounts[line] for line in lines)

    def _concerned_uids(self, victim: Victim) -> list[str]:
        """Return the members on the nodes of a victim, and those against which it has anti-affinity elsewhere."""
        cache, binds = self._snapshot.cache, self._snapshot.binds
        nodes = dict.fromkeys(pod.node for pod in victim.pods)
        uids = dict.fromkeys(pod.uid for node in nodes for pod in cache.assigned_pods_on(node) if pod.uid in binds)
        for info in dict.fromkeys(pod.affinity_info for pod in victim.pods):
            for term in info.required_anti_affinity if info is not None else ():
                if term.key != HOSTNAME:
                    uids |= dict.fromkeys(uid for uid in self._selected_uids(term) if uid in binds)
        return list(uids)

    def _selected_uids(self, term: Term) -> Sequence[str]:
        if term not in self._uids_of_terms:
            labels = self._snapshot.cache.pod_counts.namespace_labels(self._demand.group.key.namespace)
            members = self._demand.members
            uids = [member.uid for member in members if selects(term, member.affinity_info, labels)]
            self._uids_of_terms[term] = uids
        return self._uids_of_terms[term]


def _first_domains(group: Group, first_nodes: Set[str], nodes: NodeColumns) -> Set[Domain]:
    values = [nodes.label(group.within)[row] for row in rows_of(first_nodes, nodes)] if group.within else []
    return {Domain(((group.within, value),)) for value in values if value is not None}
