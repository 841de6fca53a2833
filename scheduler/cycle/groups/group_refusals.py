"""Why a group is not placed, or some of its members are left over, and what can help. Pure.

What it takes: a search whose attempt has ended, its members still on their nodes. What it returns: what the group hangs
on, in the domain where the most members fit, with the events that can help any of them. What it must never do: count
members that no attempt placed together.
"""

from dataclasses import replace

import numpy as np

from scheduler.cache.cache import Cache
from scheduler.cache.groups.sources import MOST_SHAPES
from scheduler.cycle.cycle import SchedulingCycle
from scheduler.cycle.decisions import GroupUnschedulable, Unschedulable
from scheduler.cycle.groups.attempts import go_on_from
from scheduler.cycle.groups.domains import hanging_on
from scheduler.cycle.groups.members import alike, are_interchangeable, together_by
from scheduler.cycle.groups.search import MOST_RESTARTS, GroupSearch
from scheduler.cycle.placement_budget import TurnSpent
from scheduler.cycle.refusals import Among
from scheduler.kube.cluster_event import ANY_EVENT, LEAVING, NO_EVENT, ClusterEvent


class GroupRefusals:
    """Says what a decision about a group has found."""

    def __init__(self, cache: Cache, scheduling_cycle: SchedulingCycle) -> None:
        self._cache, self._cycle = cache, scheduling_cycle

    def left_over(self, search: GroupSearch) -> Unschedulable | None:
        """Return why members are left over beside those that are placed; None if none are."""
        refusal = self._first(search)
        return None if refusal is None else replace(refusal, requeue_on=_events(search))

    def note(self, search: GroupSearch) -> None:
        """Note why an attempt has failed, if that says more than what is known."""
        fitting = len(search.placed)
        if search.best is not None and not self._is_better(search, search.best, fitting):
            return
        refusal = self._first(search)
        assert refusal is not None, "as many members wait as are needed"
        binds = tuple(search.placed.values())
        search.best = GroupUnschedulable(fitting, search.needed, refusal, search.trying.domain.text, binds)
        search.best_try = search.trying

    def of_all(self, search: GroupSearch, now: float) -> GroupUnschedulable:
        """Return the outcome of a decision of which all attempts have failed."""
        assert search.best is not None, "an attempt was made"
        best, is_cut, left = self._of_all_domains(search, search.best, now), search.next is not None, go_on_from(search)
        comes_again = bool(left or search.unsteady or search.comes_again)
        refusal = self._heeding_all(search, best.refusal)
        return replace(best, refusal=refusal, is_cut=is_cut, go_on_from=left, comes_again=comes_again)

    def _first(self, search: GroupSearch) -> Unschedulable | None:
        """Return why the first member that fits nowhere does not; None if there is none."""
        refusal = next(iter(search.refusals.values()), None)
        if refusal is None:
            return None
        placed_on = [bind.assigned.node for bind in search.placed.values()]
        nodes = self._cache.nodes
        return hanging_on(refusal, search.trying.wanted, search.trying.domain.row_numbers(nodes), placed_on, nodes)

    def _of_all_domains(self, search: GroupSearch, best: GroupUnschedulable, now: float) -> GroupUnschedulable:
        """Return why a member fits in no domain, where none does: the domain that was tried is like any other one.

        Unless its domain is given by placed members, or it would fit on other networks than those that were tried.
        """
        label, member = search.group.within, best.refusal.pod_info
        if best.fitting or not best.where or not label or search.before:
            return best
        if search.group.rails == "same":
            member = next(one for one in search.waiting if one.uid == member.uid)
        nodes = self._cache.nodes
        inside = nodes.valid[: nodes.size] & (nodes.label(label).ids[: nodes.size] > 0)
        try:
            found = self._cycle.place(member, now, search.budget, Among(inside, label))
        except TurnSpent:
            return best
        if not isinstance(found, Unschedulable):
            # It fits in a domain that has no room for as many as are needed.
            return best
        return replace(best, refusal=hanging_on(found, best.wanted, np.flatnonzero(inside), (), nodes), where="")

    def _is_better(self, search: GroupSearch, best: GroupUnschedulable, fitting: int) -> bool:
        """Return whether the try says more of why the group waits: more members fit, or as many in a wider domain."""
        labels, before = len(search.trying.domain.labels), len(search.best_try.domain.labels)
        return (fitting, -labels) > (best.fitting, -before)

    def _heeding_all(self, search: GroupSearch, refusal: Unschedulable) -> Unschedulable:
        """Return a refusal with the events that can help any member: each could leave its place to another one."""
        group = search.group
        is_plain = group.rails is None and not group.within and not group.prefer and not search.unsteady
        if is_plain and are_interchangeable(search.members) and not together_by(search.members):
            return refusal
        events = refusal.requeue_on | ClusterEvent.NODE | LEAVING
        others = {alike(one): one for one in search.members}
        if len(others) > MOST_SHAPES:
            # Too many to ask which rules about other pods apply to each.
            return replace(refusal, requeue_on=events | ANY_EVENT)
        for other in others.values():
            events |= self._cycle.events_that_help(other)
        return replace(refusal, requeue_on=events)


def _events(search: GroupSearch) -> ClusterEvent:
    """Return the events that can help any of the members that fit nowhere."""
    events = NO_EVENT
    for one in search.refusals.values():
        events |= one.requeue_on
    return events


def cannot_end(search: GroupSearch) -> Unschedulable | None:
    """Return why a decision has no outcome now, whatever fits; None if it may have one."""
    reason, requeue_on = "", NO_EVENT
    if (count := len(search.shapes)) > MOST_SHAPES:
        reason = f"its members request {count} different things, the most is {MOST_SHAPES}"
    elif search.restarts > MOST_RESTARTS:
        reason, requeue_on = "pods that its members have rules about come faster than it is decided about", ANY_EVENT
    return Unschedulable(search.waiting[0], reason, requeue_on, {"v": 1}) if reason else None
