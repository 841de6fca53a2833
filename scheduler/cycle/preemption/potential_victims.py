"""What preemption can send away: a pod, or a group that may only be disrupted as a whole. Pure.

Such a group is one victim: all of its placed members go, wherever they are, or none. It counts as one where victims are
compared, and each of its pods counts against its disruption budgets. A member of a PodGroup with a priority has that
priority as a victim too. Source: kube-scheduler 1.37's framework/preemption (types.go: getCrossNodesVictims,
getPodPriority; util.go: MoreImportantVictim, FilterVictimsWithPDBViolation).
"""

import copy
from collections.abc import Iterable, Iterator, Sequence, Set

import msgspec

from scheduler.cache.assigned_pod import AssignedPod
from scheduler.cache.cache import Cache
from scheduler.cache.groups.placed_groups import PlacedGroups
from scheduler.cycle.preemption.disruption_budgets import Objections
from scheduler.kube.group_membership import GroupKey

# Priorities are signed 32-bit numbers: this offset makes all of them positive, so that each victim counts.
_ABOVE_ZERO = 1 << 31
# Later than any RFC 3339 time: for a pod that has not started yet.
_NOT_STARTED = "~"


class Victim(msgspec.Struct, frozen=True):
    """Pods that go together; ``here`` are those on the node that is looked at. ``group`` is None for a single pod.

    ``started`` is since when the longest running of the pods has run.
    """

    pods: tuple[AssignedPod, ...]
    here: tuple[AssignedPod, ...]
    priority: int
    started: str
    group: GroupKey | None = None


def single(assigned_pod: AssignedPod, priority: int) -> Victim:
    """Return a pod as a victim by itself, with its priority as one."""
    pods = (assigned_pod,)
    return Victim(pods, pods, priority, assigned_pod.started or _NOT_STARTED)


# What a set of victims costs, the least first: violated budgets, highest priority, sum of priorities, victims.
Loss = tuple[int, int, int, int]


def loss_of(victims: Sequence[Victim], broken_budgets: int) -> Loss:
    """Return the loss in kube-scheduler's order; no victims cost the least."""
    priorities = [victim.priority + _ABOVE_ZERO for victim in victims]
    return broken_budgets, max(priorities, default=-1), sum(priorities), len(priorities)


def since(victims: Sequence[Victim]) -> str:
    """Return since when the longest running of the victims of the highest priority has run."""
    highest = max((victim.priority for victim in victims), default=0)
    return min((victim.started for victim in victims if victim.priority == highest), default=_NOT_STARTED)


def importance(victim: Victim) -> tuple[int, bool, int, str]:
    """Return a sort key that puts the most important victim first.

    By priority, then groups before pods, large groups before small ones, then by the earliest start.
    """
    return -victim.priority, victim.group is None, -len(victim.pods), victim.started


def here(victims: Iterable[Victim]) -> list[AssignedPod]:
    """Return the victims' pods on the node that is looked at."""
    return [assigned_pod for victim in victims for assigned_pod in victim.here]


def pods_of(victims: Iterable[Victim]) -> tuple[AssignedPod, ...]:
    """Return all pods of some victims."""
    return tuple(assigned_pod for victim in victims for assigned_pod in victim.pods)


def split(budgets: Objections, victims: Sequence[Victim]) -> tuple[list[Victim], list[Victim]]:
    """Split victims, in order, into those whose removal violates a budget and the others."""
    if not budgets.has_any:
        return [], list(victims)
    counts: dict[int, int] = {}
    violators, rest = list[Victim](), list[Victim]()
    for victim in victims:
        (violators if budgets.violations(victim.pods, counts) else rest).append(victim)
    return violators, rest


class PotentialVictims:
    """What is assigned, as victims of lower priority than some pod."""

    def __init__(self, cache: Cache, groups: PlacedGroups) -> None:
        self._cache, self._groups, self._snapshot = cache, groups, cache

    def on(self, snapshot: Cache) -> "PotentialVictims":
        """Return what is on the nodes of a snapshot; the groups, and their pods elsewhere, are those of now."""
        victims = copy.copy(self)
        victims._snapshot = snapshot
        return victims

    def below(self, node: str, priority: int, exempt_uids: Set[str] = frozenset()) -> list[Victim]:
        """Return what is on a node of a lower priority, without the pods of ``exempt_uids``."""
        on_node = self._snapshot.assigned_pods_on(node)
        if not self._groups.any_known:
            # As `single`, without a call for each: every node that is looked at has such pods.
            return [
                Victim((pod,), (pod,), pod.priority, pod.started or _NOT_STARTED)
                for pod in on_node
                if pod.priority < priority and pod.uid not in exempt_uids
            ]
        groups = dict[GroupKey, list[AssignedPod]]()
        singles = list[Victim]()
        for assigned_pod in on_node:
            if assigned_pod.uid in exempt_uids:
                continue
            key = self._groups.whole_group_of(assigned_pod.uid)
            if key is None:
                if (rank := self._rank(assigned_pod)) < priority:
                    singles.append(single(assigned_pod, rank))
            else:
                groups.setdefault(key, []).append(assigned_pod)
        whole_groups = (self._group(key, pods) for key, pods in groups.items())
        return [*singles, *(victim for victim in whole_groups if victim.priority < priority)]

    def has_below(self, priority: int) -> bool:
        """Return whether anything may be below a priority; False only if nothing is."""
        lowest = self._cache.lowest_priority()
        if lowest is None:
            return False
        of_groups = self._groups.lowest_priority()
        return lowest < priority or (of_groups is not None and of_groups < priority)

    def placed(self, key: GroupKey) -> frozenset[str]:
        """Return the uids of a group's placed members."""
        return frozenset(self._groups.placed(key))

    def is_unchanged(self, victim: Victim) -> bool:
        """Return whether the same pods are one victim of the same priority now."""
        first = victim.pods[0]
        key = self._groups.whole_group_of(first.uid)
        now = self._group(key) if key is not None else single(first, self._rank(first))
        is_same = (now.group, now.priority) == (victim.group, victim.priority)
        return is_same and {pod.uid for pod in now.pods} == {pod.uid for pod in victim.pods}

    def _rank(self, assigned_pod: AssignedPod) -> int:
        """Return the priority of a pod as a victim by itself."""
        own = self._groups.priority_as_victim(assigned_pod.uid)
        return assigned_pod.priority if own is None else own

    def _group(self, key: GroupKey, pods_here: Sequence[AssignedPod] = ()) -> Victim:
        pods = tuple(self._pods(key))
        own = self._groups.priority_as_victim(pods[0].uid)
        rank = max(assigned_pod.priority for assigned_pod in pods) if own is None else own
        start = min(assigned_pod.started or _NOT_STARTED for assigned_pod in pods)
        return Victim(pods, tuple(pods_here), rank, start, key)

    def _pods(self, key: GroupKey) -> Iterator[AssignedPod]:
        for uid in self._groups.placed(key):
            if (assigned_pod := self._cache.assigned(uid)) is not None:
                yield assigned_pod
