"""Place members slice by slice: consecutive ranks, each slice whole in one domain of its label. Pure.

Slices are placed in the order of ranks, the narrow ones of a wide one inside its domain. A slice is tried in the
domains that admit it by plain sums: first that of the slice before it, then the smallest that admits all further ones,
then the largest. So few domains are used, and exact fits first. If not all of its members fit, none stays, and the next
domain is tried. Once a slice has placed members, the others join them one by one, or wait.
"""

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from math import inf

import numpy as np

from scheduler.cache.column import Amounts
from scheduler.cache.node_columns import Rows
from scheduler.cycle.decisions import Bind, Decision, Unschedulable, Why
from scheduler.cycle.filters import Among
from scheduler.cycle.groups.group_demand import by_size, kind_of
from scheduler.cycle.groups.group_snapshot import GroupSnapshot, Turns
from scheduler.cycle.groups.member_room import MemberRoom, SliceDomains, one_domain, slice_domains
from scheduler.kube.cluster_event import ClusterEvent
from scheduler.kube.pod_info import PodInfo

# Members that one attempt tries.
_MAX_TRIES = 20_000


@dataclass(slots=True)
class SlicePlacement:
    """One attempt to place a group's slices on a snapshot; no slice is tried once ``stop_count`` members are placed."""

    snapshot: GroupSnapshot
    stop_count: float = inf
    # How many members were tried, and why some do not fit, for one of each kind.
    count: int = 0
    refusals: dict[Hashable, Unschedulable] = field(default_factory=dict)
    _domains: SliceDomains = field(init=False)
    # How many members each domain of the narrowest level still admits.
    _free: Amounts = field(init=False)
    # By level and number of the slice: the domains of its placed members; -1 for none.
    _homes: dict[tuple[int, int], Counter[int]] = field(default_factory=dict)
    # Why a member of the last slice that was tried does not fit.
    _member_refusal: Unschedulable | None = None

    def place(self, members: Sequence[PodInfo], rows: Rows, room: MemberRoom) -> Turns[None]:
        demand, nodes = self.snapshot.demand, self.snapshot.nodes
        self.snapshot.budget.charge_nodes(nodes.size)
        self._domains = domains = slice_domains(demand.group.slices, nodes, one_domain(rows))
        self._free = room.of_any_rank(domains.narrowest)
        binds = self.snapshot.binds.values()
        for pod in (*demand.placed_pods, *(bind.assigned for bind in binds)):
            numbers = np.flatnonzero(domains.narrowest.rows == nodes.row_of.get(pod.node, -1))
            for depth, level in enumerate(domains.levels) if pod.uid in demand.ranks else ():
                home = int(level.domain_of_row[numbers[0]]) if len(numbers) else -1
                number = demand.ranks[pod.uid] // level.slice.size
                self._homes.setdefault((depth, number), Counter())[home] += 1
        if not len(domains.narrowest.rows):
            yield from self._refuse_for_label(members[0], rows)
            return
        ranked = sorted(members, key=lambda member: demand.ranks[member.uid])
        yield from self._place(ranked, 0, 0, is_whole=False)

    def _place(self, members: Sequence[PodInfo], depth: int, domain: int, *, is_whole: bool) -> Turns[bool]:
        """Place members in a domain of the level before ``depth``; return whether all fit (if whole, until not)."""
        if depth == len(self._domains.levels):
            return (yield from self._place_each(members, domain, is_whole=is_whole))
        demand, size = self.snapshot.demand, self._domains.levels[depth].slice.size
        rest, previous, min_refusal = len(members), -1, inf
        all_fit = True
        for number, group in groupby(members, lambda member: demand.ranks[member.uid] // size):
            part = list(group)
            # Lost ranks of a slice that the group needs come back.
            need = size if (number + 1) * size <= demand.group.min else len(part)
            if self._is_over(is_whole=is_whole):
                return False
            if (depth, number) in self._homes:
                home = self._homes[depth, number].most_common(1)[0][0]
                fits = yield from self._place(part, depth + 1, home, is_whole=False)
            elif need >= min_refusal:
                fits = False
            else:
                candidates = self._candidates(depth, domain, need, rest, previous, is_part=need > len(part))
                previous = yield from self._place_free(part, depth, candidates)
                fits = previous >= 0
                if not fits:
                    self._refuse(part, depth, number, need)
                    min_refusal = need
            all_fit = all_fit and fits
            if is_whole and not fits:
                return False
            rest -= len(part)
        return all_fit

    def _is_over(self, *, is_whole: bool) -> bool:
        return self.count >= _MAX_TRIES or (not is_whole and len(self.snapshot.binds) >= self.stop_count)

    def _place_free(self, members: Sequence[PodInfo], depth: int, candidates: Sequence[int]) -> Turns[int]:
        """Place a slice without placed members whole in one of these domains; return which, -1 if it fits in none."""
        snapshot, self._member_refusal = self.snapshot, None
        for candidate in candidates:
            bind_count, free = len(snapshot.binds), self._free.copy()
            if (yield from self._place(members, depth + 1, candidate, is_whole=True)):
                return candidate
            yield from snapshot.budget.move_all(snapshot.take_off, list(snapshot.binds)[bind_count:])
            self._free = free
        return -1

    def _candidates(self, depth: int, domain: int, need: int, rest: int, previous: int, *, is_part: bool) -> list[int]:
        """Return the domains to try for a slice, in order; ``rest`` is the number of members from this slice on.

        If none admits it, the largest gives the reason, except for a part of a slice, which might fit there.
        """
        level = self._domains.levels[depth]
        admits = self._domains.admitted(self._free, 1, whole=need == level.slice.size)[depth + 1]
        numbers = np.flatnonzero(level.wider == domain)
        with_room = numbers[admits[numbers] >= need]
        largest = numbers[[] if is_part else np.argsort(-admits[numbers], kind="stable")[:1]]
        numbers = with_room if len(with_room) else largest
        smallest_first = numbers[np.argsort(admits[numbers], kind="stable")]
        largest_first = numbers[np.argsort(-admits[numbers], kind="stable")]
        first = [previous] if previous in numbers else []
        for_rest = smallest_first[admits[smallest_first] >= rest]
        return list(dict.fromkeys((*first, *for_rest.tolist(), *largest_first.tolist())))

    def _place_each(self, members: Sequence[PodInfo], domain: int, *, is_whole: bool) -> Turns[bool]:
        level, (rows, domain_of_row, _) = self._domains.levels[-1], self._domains.narrowest
        among = Among(self.snapshot.nodes.flags(rows[domain_of_row == domain]), level.slice.within)
        snapshot, bind_count = self.snapshot, len(self.snapshot.binds)

        def place(member: PodInfo) -> Turns[Decision | None]:
            if self._is_over(is_whole=is_whole):
                return None
            decision = yield from self.snapshot.choose_node(member, among)
            self._free[domain] -= isinstance(decision, Bind)
            return decision

        needed_count = bind_count + len(members) if is_whole else 0
        refusals, count = yield from snapshot.place_members(by_size(members), needed_count, place)
        self.count += count
        if is_whole:
            self._member_refusal = next(iter(refusals.values()), None)
        else:
            for kind, refusal in refusals.items():
                self.refusals.setdefault(kind, refusal)
        return len(snapshot.binds) == bind_count + len(members)

    def _refuse_for_label(self, member: PodInfo, rows: Rows) -> Turns[None]:
        """Record that no node has all labels of the slices, with the reason for the rarest one."""
        nodes = self.snapshot.nodes
        labels = (level.within for level in self.snapshot.demand.group.slices)
        label = min(labels, key=lambda key: np.count_nonzero(nodes.label(key).ids[rows] > 0))
        decision = yield from self.snapshot.choose_node(member, Among(nodes.flags([]), label))
        if isinstance(decision, Unschedulable):
            self.refusals[kind_of(member)] = decision

    def _refuse(self, members: Sequence[PodInfo], depth: int, number: int, need: int) -> None:
        """Record that no domain has room for a slice, with the reason of the last member that did not fit, if any."""
        level, refusal = self._domains.levels[depth].slice, self._member_refusal
        largest = int(self._domains.admitted(self._free, 1)[depth + 1].max(initial=0))
        first, last = number * level.size, (number + 1) * level.size - 1
        # Room is counted for no more members than wait.
        reason = (
            f"ranks {first} to {last} have no member on a node, so they start together, and {len(members)} of {need} "
            "exist"
            if need > len(self.snapshot.demand.members)
            else f"no domain of label {level.within!r} has room for ranks {first} to {last}, the largest for {largest}"
        )
        why: Why = {"v": 1}
        events = ClusterEvent.ROOM | ClusterEvent.NODE
        if refusal is not None:
            events, why = events | refusal.requeue_on, refusal.why
        reason = f"{reason}." if refusal is None else f"{reason}: {refusal.reason}"
        self.refusals[kind_of(members[0])] = Unschedulable(members[0], reason, events, why)
