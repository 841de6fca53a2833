"""Decide about a group: all that is needed of it, or nothing. Pure.

What it is: the members are assumed in the cache one after another, each where the ordinary cycle puts it beside those
before it. So all rules hold among them, exact VFs included. If fewer fit than must be placed, all are taken off again.
A decision takes several turns of a few members; between two of them the caller takes in events. When a slice of it
has ended (`scheduler.cycle.groups.slices`) and others wait, the caller sets it aside: all members are taken off, and
are put back later.

Why it is right: at the end of each turn every member that was tried is on its node in the cache, which tells later ones
what is left. An event may change a node meanwhile. The members on changed rows are taken off and placed again before
anything else, so that in the end each was placed on its node as it is then. Rules about other pods reach further than a
row: where they read what has changed, the try begins again; after a few times the group is tried later. Whoever is
decided about meanwhile changes rows as events do; rows that are again as they were when the decision was set aside
have not changed (`scheduler.cycle.groups.row_contents`). A member that goes or changes ends the decision
(`GroupSearch.has`, which the caller asks). Whatever the outcome but `GroupPlacement`, nothing stays assumed
(`roll_back`).

Where more members wait than are needed, all attempts are made that could place more of them (`_is_last`), the search
beyond greedy order included. Then the members of the best one are put back, those on nodes that have changed meanwhile
placed again; if too few fit by then the group is tried again soon.

What it costs: a member costs what a pod costs. After one that fits nowhere, its equals are not tried. Where a group is
tried in several topology domains (`scheduler.cycle.groups.domains`), `_MOST_TRIED` bounds all of them together. Unequal
members, and equal ones with two rules among them, that no order of them places are searched for beyond that
(`scheduler.cycle.groups.backtracking`), in so many steps for the whole decision.
"""

from collections import deque
from collections.abc import Mapping, Set
from functools import partial

import numpy as np

from scheduler.cache.cache import Cache
from scheduler.cache.node_columns import Flags
from scheduler.cycle.cluster_filters import cluster_filters
from scheduler.cycle.cycle import RecordPhase, SchedulingCycle, ignore_phase
from scheduler.cycle.decisions import Bind, GroupPlacement, GroupUnschedulable
from scheduler.cycle.groups.attempts import GroupAttempts
from scheduler.cycle.groups.backtracking import Backtracking, begin, rows_of, take_step
from scheduler.cycle.groups.domains import labels_are_ready
from scheduler.cycle.groups.group_refusals import GroupRefusals, cannot_end
from scheduler.cycle.groups.members import alike, distinct, needs_order
from scheduler.cycle.groups.packing import GroupPacking
from scheduler.cycle.groups.rails import on_rails
from scheduler.cycle.groups.row_contents import RowContents
from scheduler.cycle.groups.search import MOST_RESTARTS, Enough, GroupSearch
from scheduler.cycle.groups.tried_members import TriedMembers
from scheduler.cycle.placement_budget import TurnSpent
from scheduler.cycle.refusals import Among
from scheduler.kube.pod_info import PodInfo

# How often those are tried again in a try that fitted nowhere before.
_MOST_RETRIES = 3
# Members that are tried to place more than are needed: less than a second.
_MOST_TRIED_BEYOND = 2_000
# Members that one decision tries in all topology domains together: some seconds.
_MOST_TRIED = 20_000
# The part of the steps left that the search beyond greedy order has in one domain (the last one has all), and at least.
_PARTS, _SEARCHED_IN_ONE = 8, 250


class GroupCycle:
    """Decides about groups by the ordinary cycle."""

    def __init__(self, cache: Cache, scheduling_cycle: SchedulingCycle) -> None:
        self._cache = cache
        self._cycle = scheduling_cycle
        self._attempts = GroupAttempts(cache, scheduling_cycle)
        self._tried = TriedMembers(cache)
        self._refusals = GroupRefusals(cache, scheduling_cycle)

    def proceed(
        self, search: GroupSearch, now: float, record_phase: RecordPhase = ignore_phase
    ) -> GroupPlacement | GroupUnschedulable | None:
        """Go on with a decision for one turn; None if it takes another one."""
        try:
            return self._take_turn(search, now, record_phase)
        except TurnSpent:
            # Another turn does what was begun, with what is known by now.
            if search.has_begun:
                self._note_seen(search)
            return None

    def _take_turn(
        self, search: GroupSearch, now: float, record_phase: RecordPhase
    ) -> GroupPlacement | GroupUnschedulable | None:
        search.budget.begin_turn()
        search.slices.begin_turn()
        if search.has_begun:
            self._heed_changes(search, now)
        if (why := cannot_end(search)) is not None:
            return GroupUnschedulable(0, search.needed, why)
        if search.aside:
            self._put_back(search, now)
            return None
        if not search.has_begun:
            if not self._judge_nodes(search):
                return None
            if search.later is None:
                self._attempts.begin(search)
            if not search.look_ahead():
                return None
            self._next_try(search)
        return self._try_portion(search, now, record_phase)

    def _try_portion(
        self, search: GroupSearch, now: float, record_phase: RecordPhase
    ) -> GroupPlacement | GroupUnschedulable | None:
        trying, among = search.trying, self._among(search)
        for _ in range(search.portion):
            if (ended := self._ended(search, now)) is not None:
                return ended
            if search.aside or search.slices.turn_is_over:
                break
            if search.trying is not trying:
                trying, among = search.trying, self._among(search)
            try:
                self._try_next(search, among, now, record_phase)
            except TurnSpent:
                break
        ended = self._ended(search, now)
        # After the last change that the decision makes by itself.
        self._note_seen(search)
        return ended

    def _among(self, search: GroupSearch) -> Among | None:
        """Return on which rows members are tried; None for all."""
        nodes = self._cache.nodes
        inside = search.trying.domain.rows(nodes)
        unsteady = [nodes.row_of[name] for name in search.unsteady if name in nodes.row_of]
        if inside is None and not unsteady:
            return None
        inside = nodes.valid[: nodes.size].copy() if inside is None else inside
        inside[unsteady] = False
        return Among(inside, search.group.within, unsteady)

    def _rows(self, search: GroupSearch) -> Flags | None:
        among = self._among(search)
        return among.flags if among is not None else None

    def _judge_nodes(self, search: GroupSearch) -> bool:
        """Judge all nodes by one shape of members after another; return whether that is done."""
        for member in search.shapes[len(search.judged) :]:
            if search.slices.turn_is_over:
                return False
            search.judged.append((member, self._cycle.passing(member, search.budget)))
            search.slices.count_shape(self._cache.nodes.size)
        return labels_are_ready(search.group, self._cache.nodes, search.slices)

    def _next_try(self, search: GroupSearch) -> None:
        search.begin_next()
        search.members = on_rails(search.attempt.order, search.group, search.attempt.networks)
        search.todo = deque(search.members)
        search.refusals.clear()
        search.retries = search.restarts = 0
        search.is_to_begin = search.attempt.is_search

    def set_aside(self, search: GroupSearch) -> None:
        """Take off all that was tried, until the decision goes on."""
        self._tried.set_aside(search)
        if search.has_begun:
            self._note_seen(search)
            search.left_as = RowContents(self._cache.nodes)

    def _note_seen(self, search: GroupSearch) -> None:
        search.seen, search.renewed = self._cache.nodes.changes.end, self._cache.nodes.renewals.end
        search.kept = self._kept_from(search)

    def _kept_from(self, search: GroupSearch) -> Mapping[str, frozenset[str]]:
        """Return by node the nominated pods that any member has to leave room for."""
        return self._cycle.kept_from(search.group.key, search.priority)

    def _put_back(self, search: GroupSearch, now: float) -> None:
        """Put members back where they were: what is not said of their nodes by `_heed_changes` still holds."""
        self._tried.put_back(search, now)
        self._note_seen(search)

    def roll_back(self, search: GroupSearch) -> None:
        """Take off all that was tried."""
        self._tried.take_off_all(search)

    def _ended(self, search: GroupSearch, now: float) -> GroupPlacement | GroupUnschedulable | None:
        """Return the outcome if there is one; begin the next try if this one has failed and another one is left."""
        if search.aside or search.is_to_begin or not self._has_searched(search):
            return None
        fitting = len(search.placed)
        if search.todo and fitting + len(search.todo) >= search.wanted:
            return None
        if search.enough is not None or fitting >= search.wanted:
            is_last = self._is_last(search, fitting)
            if is_last:
                return GroupPlacement(tuple(search.placed.values()), self._refusals.left_over(search))
        else:
            if not search.attempt.is_search:
                self._refusals.note(search)
            # Before it is looked at what there is room for.
            self.roll_back(search)
            is_last = None if not search.look_ahead() else search.next is None
            if is_last or (search.next is not None and search.tried >= _MOST_TRIED and not search.next.is_search):
                return self._refusals.of_all(search, now)
        if is_last is not None:
            self._next_try(search)
        return None

    def _is_last(self, search: GroupSearch, fitting: int) -> bool | None:
        """Return whether the members that are placed are enough, and the most; else let another attempt be the next.

        Each attempt of this try that could place more is made, and then the members of the best one are put back. None
        if that is done, or the turn ends before it is known which is the next.
        """
        if fitting == len(search.waiting):
            return True
        enough, is_most = search.enough, fitting >= search.wanted
        if is_most:
            tried = search.tried if enough is None else enough.tried
            enough = Enough(search.attempt, tuple(search.placed.values()), dict(search.refusals), tried)
        assert enough is not None, "enough are placed now, or were before"
        has_time = not search.budget.is_spent and search.tried - enough.tried < _MOST_TRIED_BEYOND
        if is_most and has_time and search.attempt.is_search and search.attempt.most > fitting:
            search.search_again()
        is_left = search.pass_over(enough.count if has_time else len(search.waiting))
        if is_left is None:
            return None
        if not is_left and is_most:
            return True
        search.enough = enough
        self.roll_back(search)
        if is_left:
            return False
        search.go_back(enough)
        return None

    def _try_next(self, search: GroupSearch, among: Among | None, now: float, record_phase: RecordPhase) -> None:
        if search.is_to_begin:
            self._begin_search(search)
            return
        member = search.path.member if search.path is not None else search.todo[0]
        packing, before = self._packing(search, now), search.budget.spent
        try:
            if search.path is not None:
                # To find what is needed it has steps of its own.
                search.tried += search.enough is not None
                take_step(search.path, packing, search.placed, search.budget, now, record_phase)
                return
            if member.uid in search.own_nodes:
                self._try_own_node(search, member, among, now, record_phase)
                return
            found = self._cycle.place(member, now, search.budget, among, record_phase)
            flags = among.flags if among is not None else None
            if not isinstance(found, Bind) and packing.fit(member, search.placed.values(), flags, search.budget):
                search.todo.popleft()
                return
        finally:
            search.slices.count(member, self._cache.nodes.size, search.budget.spent - before)
        search.tried += 1
        search.todo.popleft()
        if isinstance(found, Bind):
            self._tried.put_on(search, found, now)
            return
        kind = alike(member)
        search.refusals.setdefault(kind, found)
        search.todo = deque(one for one in search.todo if alike(one) != kind)

    def _try_own_node(
        self, search: GroupSearch, member: PodInfo, among: Among | None, now: float, record_phase: RecordPhase
    ) -> None:
        """Place a member where it was before; anywhere else once all others were tried so."""
        row = self._cache.nodes.row_of.get(search.own_nodes[member.uid], -1)
        only: Flags = np.zeros(self._cache.nodes.size, np.bool_)
        only[row] = row >= 0 and (among is None or among.flags[row])
        found = self._cycle.place(member, now, search.budget, Among(only), record_phase)
        del search.own_nodes[member.uid]
        search.todo.popleft()
        if isinstance(found, Bind):
            self._tried.put_on(search, found, now)
        elif search.is_bound_to_own:
            self._begin_again(search)
        else:
            search.todo.append(member)

    def _packing(self, search: GroupSearch, now: float) -> GroupPacking:
        put_on = partial(self._tried.put_on, search, now=now)
        return GroupPacking(self._cache, self._cycle, put_on, self._tried.take_off, search.unfit)

    def _begin_search(self, search: GroupSearch) -> None:
        """Begin to search beyond greedy order, if steps are left for it; raise TurnSpent to begin in another turn."""
        is_part = not search.attempt.is_last or search.enough is not None
        steps = max(search.steps // _PARTS, min(search.steps, _SEARCHED_IN_ONE)) if is_part else search.steps
        if steps:
            inside, packing = rows_of(self._rows(search), self._cache.nodes), self._packing(search, 0.0)
            search.path = begin(search.members, search.wanted, inside, steps, packing, search.budget)
            search.steps -= steps
        search.todo.clear()
        search.is_to_begin = False

    def _has_searched(self, search: GroupSearch) -> bool:
        """Return whether no search goes on; if it ends with enough members, the others are tried in greedy order."""
        if (path := search.path) is None:
            return True
        is_found = len(search.placed) >= path.wanted
        if not is_found and not path.is_over:
            return False
        search.steps += path.steps
        search.todo, search.path = deque(path.rest() if is_found else ()), None
        return True

    def _shorten(self, search: GroupSearch, path: Backtracking) -> None:
        """Take off the members that come after one that is not on its node any more."""
        there = search.placed.keys() | {bind.pod_info.uid for bind in search.aside}
        behind = {one.uid for one in path.shorten(there, rows_of(self._rows(search), self._cache.nodes))}
        for uid in behind & search.placed.keys():
            self._tried.take_off(search.placed.pop(uid))
        search.aside = deque(bind for bind in search.aside if bind.pod_info.uid not in behind)

    def _begin_again(self, search: GroupSearch) -> None:
        """Let the attempt begin again, or go on with as much of the search as is still on the path."""
        search.restarts += 1
        self.roll_back(search)
        if search.path is not None:
            self._shorten(search, search.path)
            return
        search.todo, search.is_to_begin = deque(search.members), search.attempt.is_search
        search.refusals.clear()
        if search.is_bound_to_own:
            search.own_nodes, search.is_bound_to_own = {}, False

    def _heed_changes(self, search: GroupSearch, now: float) -> None:
        """Let members be placed again whose nodes have changed since the last turn."""
        nodes = self._cache.nodes
        changed = {nodes.names[row] for row in self._changed_rows(search)}
        before, kept = search.kept, self._kept_from(search)
        # Room is kept for others that was free, or is free that was kept.
        changed |= {node for node in before.keys() | kept.keys() if before.get(node) != kept.get(node)}
        changed.difference_update(search.unsteady)
        if not changed:
            return
        search.changes.update(changed)
        search.unfit.clear()
        concern_rules = self._concern_rules(search, changed)
        if search.enough is not None:
            search.enough.heed(changed, concern_rules=concern_rules)
        if concern_rules:
            self._begin_again(search)
            return
        again = [bind for bind in search.placed.values() if self._is_stale(bind, changed)]
        for bind in again:
            self._tried.take_off(bind)
            del search.placed[bind.pod_info.uid]
        # Others may have taken volumes that were chosen for members.
        stays = {id(bind): bind.plan is None and not self._is_stale(bind, changed) for bind in search.aside}
        again += (bind for bind in search.aside if not stays[id(bind)])
        search.aside = deque(bind for bind in search.aside if stays[id(bind)])
        if search.path is not None:
            self._shorten(search, search.path)
            return
        search.todo.extendleft(bind.pod_info for bind in reversed(again))
        if any(map(needs_order, search.members)):
            # The others may be where they are because of these.
            search.own_nodes |= {bind.pod_info.uid: bind.assigned.node for bind in again}
            search.is_bound_to_own |= bool(again)
        if search.retries >= _MOST_RETRIES:
            return
        search.retries += bool(search.refusals)
        # What has changed may be what the refused members waited for.
        refused = search.refusals.keys()
        waiting = {one.uid for one in search.todo} | search.placed.keys() | {one.pod_info.uid for one in search.aside}
        search.todo.extend(one for one in search.members if one.uid not in waiting and alike(one) in refused)
        search.refusals.clear()

    def _changed_rows(self, search: GroupSearch) -> list[int]:
        """Return the rows that have changed since the last turn; not those that are again as they were set aside."""
        changed, left_as, search.left_as = self._cache.nodes.changes.since(search.seen), search.left_as, None
        if left_as is None or any(one.volumes or self._reads_others(one) for one in distinct(search.waiting)):
            return changed
        return left_as.differing(changed)

    def _concern_rules(self, search: GroupSearch, changed: Set[str]) -> bool:
        """Return whether rules about other pods read what has changed: a node, or pods there that are no members."""
        nodes, pod_counts = self._cache.nodes, self._cache.pod_counts
        if not any(self._reads_others(one) for one in search.members):
            return False
        if any(nodes.names[row] in changed for row in nodes.renewals.since(search.renewed)):
            return search.restarts < MOST_RESTARTS
        return any(
            one.affinity_info is not None and pod_counts.is_asked_about(one.affinity_info)
            for node in changed
            for one in self._cache.assigned_pods_on(node)
            if not search.has(one.uid)
        )

    def _is_stale(self, bind: Bind, changed: Set[str]) -> bool:
        nodes = (bind.assigned.node,) if bind.plan is None else bind.plan.nodes()
        return any(node in changed or node not in self._cache.nodes.row_of for node in nodes)

    def _reads_others(self, member: PodInfo) -> bool:
        return bool(cluster_filters(member, self._cache))
