"""What preemption can remove: single pods, or groups that are disrupted as a whole. Pure.

A group is disrupted as a whole if its PodGroup says so, or unless the annotation of its members says otherwise. Then
all of its placed members are victims, on all nodes, or none. In a group by annotation, members beyond ``min`` can also
be removed one by one, like pods without a group, until ``min`` are left. Each pod counts against its disruption
budgets.

In comparisons of victims, a PodGroup counts as one, and its members have its priority if it has one. Source:
kube-scheduler 1.37's framework/preemption (types.go: getCrossNodesVictims, getPodPriority; util.go:
MoreImportantVictim, FilterVictimsWithPDBViolation). A group by annotation counts as all of its pods. At the same
highest priority, any number of pods without a group are removed before it.
"""

from collections.abc import Iterable, Iterator, Sequence, Set
from typing import NamedTuple

import msgspec

from scheduler.cache.assigned_pod import AssignedPod
from scheduler.cache.cache import Cache
from scheduler.cache.groups.group_cache import GroupCache
from scheduler.cycle.preemption.disruption_budgets import Objections
from scheduler.kube.group import GroupKey

# Priorities are signed 32-bit numbers: this offset makes all of them positive, so that each victim counts.
_ABOVE_ZERO = 1 << 31
# Later than any RFC 3339 time: for a pod that has not started yet.
_NO_START = "~"


class Victim(msgspec.Struct, frozen=True):
    """Pods that are removed together; ``node_pods`` are those on the evaluated node.

    ``start`` is the start time of the pod that has run longest. ``group`` is set if the victim is a whole group, or a
    member beyond ``min`` of one that is also removed with the whole. It is None for other pods.
    """

    pods: tuple[AssignedPod, ...]
    node_pods: tuple[AssignedPod, ...]
    priority: int
    start: str
    group: GroupKey | None = None
    is_whole: bool = False

    @property
    def count(self) -> int:
        """The number of victims as which it counts in comparisons."""
        return len(self.pods) if self.is_whole and self.group is not None and not self.group.has_pod_group else 1


def single(assigned_pod: AssignedPod, priority: int, group: GroupKey | None = None) -> Victim:
    pods = (assigned_pod,)
    return Victim(pods, pods, priority, assigned_pod.started or _NO_START, group)


class Loss(NamedTuple):
    """The loss of a set of victims in kube-scheduler's order, extended by groups; no victims are the smallest loss.

    ``groups`` are those by annotation of the highest priority, ``group_pods`` the pods of all groups by annotation.
    """

    broken_budgets: int = 0
    highest_priority: int = -1
    groups: int = 0
    priorities: int = 0
    victims: int = 0
    group_pods: int = 0


def loss_of(victims: Sequence[Victim], broken_budgets: int) -> Loss:
    highest = max((victim.priority + _ABOVE_ZERO for victim in victims), default=-1)
    groups = sum(victim.count > 1 and victim.priority + _ABOVE_ZERO == highest for victim in victims)
    priorities = sum((victim.priority + _ABOVE_ZERO) * victim.count for victim in victims)
    group_pods = sum(victim.count for victim in victims if victim.count > 1)
    return Loss(broken_budgets, highest, groups, priorities, sum(victim.count for victim in victims), group_pods)


def start_of(victims: Sequence[Victim]) -> str:
    """Return the start time of the longest running victim of the highest priority."""
    highest = max((victim.priority for victim in victims), default=0)
    return min((victim.start for victim in victims if victim.priority == highest), default=_NO_START)


def importance(victim: Victim) -> tuple[int, bool, int, str]:
    """Return a sort key that puts the most important victim first."""
    return -victim.priority, not victim.is_whole, -len(victim.pods), victim.start


def with_spare_members(victims: Sequence[Victim], candidates: Iterable[Victim]) -> list[Victim]:
    """Return victims; of groups that are disrupted as a whole also the candidates that are members beyond ``min``."""
    whole_groups = {victim.group for victim in victims if victim.is_whole}
    ids = set(map(id, victims))
    spare_members = (victim for victim in candidates if victim.group in whole_groups and id(victim) not in ids)
    return [*victims, *spare_members] if whole_groups else list(victims)


def node_pods_of(victims: Iterable[Victim]) -> list[AssignedPod]:
    return [assigned_pod for victim in victims for assigned_pod in victim.node_pods]


def pods_of(victims: Iterable[Victim]) -> tuple[AssignedPod, ...]:
    return tuple(assigned_pod for victim in victims for assigned_pod in victim.pods)


def is_terminating(assigned_pod: AssignedPod) -> bool:
    return assigned_pod.affinity_info is not None and assigned_pod.affinity_info.is_terminating


def split(budgets: Objections, victims: Sequence[Victim]) -> tuple[list[Victim], list[Victim]]:
    """Split victims, in order, into those whose removal violates a budget and the others."""
    if not budgets.has_any:
        return [], list(victims)
    counts: dict[int, int] = {}
    violators, rest = list[Victim](), list[Victim]()
    for victim in victims:
        (violators if budgets.violations(victim.pods, counts) else rest).append(victim)
    return violators, rest


class _Group(NamedTuple):
    """A group's pods on the evaluated nodes: ``surplus`` can be removed one by one, ``deletions`` are being deleted."""

    key: GroupKey
    pods: tuple[AssignedPod, ...]
    surplus: int
    deletions: Set[str]
    priority: int
    start: str


def whole_group_of(groups: GroupCache, uid: str) -> GroupKey | None:
    """Return the group of a placed pod; None if its PodGroup allows each member to be removed."""
    membership = groups.of(uid)
    if membership is None or groups.state(uid) != "placed":
        return None
    key = membership.key
    return key if not key.has_pod_group or groups.pod_groups.get(key).is_whole else None


def whole_min(groups: GroupCache, key: GroupKey) -> int:
    """Return the min of a group that is disrupted as a whole; 0 for another group, or if it is unknown."""
    if not key.has_pod_group:
        return _annotated_min(groups, groups.placed(key))
    entry = groups.pod_groups.get(key)
    return entry.min if entry.is_whole else 0


def _annotated_min(groups: GroupCache, uids: Sequence[str]) -> int:
    """Return the largest min of members by annotation; 0 if each of them may be removed by itself."""
    requests = {groups.memberships[uid].request for uid in uids}
    min_members = max((request.least or 1 for request in requests), default=1)
    return 0 if min_members == 1 or all(request.disruption == "pod" for request in requests) else min_members


class PotentialVictims:
    """The assigned pods as victims, also on the nodes of a snapshot, without the pods of ``exempt_uids``.

    Members that are not in the snapshot count as removed from their group. Each group is read once, so this is valid
    while no pod is added or removed.
    """

    def __init__(
        self, cache: Cache, groups: GroupCache, snapshot: Cache | None = None, exempt_uids: Set[str] = frozenset()
    ) -> None:
        self._cache, self._groups, self._exempt_uids = cache, groups, exempt_uids
        self._snapshot = cache if snapshot is None else snapshot
        self._by_key: dict[GroupKey, _Group] = {}

    def on(self, snapshot: Cache, exempt_uids: Set[str] = frozenset()) -> "PotentialVictims":
        return PotentialVictims(self._cache, self._groups, snapshot, exempt_uids)

    def below(self, node: str, priority: int) -> list[Victim]:
        on_node = self._snapshot.assigned_pods_on(node)
        if not self._groups.memberships:
            # The same as `single`, without a call for each pod: every evaluated node has such pods.
            return [
                Victim((pod,), (pod,), pod.priority, pod.started or _NO_START)
                for pod in on_node
                if pod.priority < priority and pod.uid not in self._exempt_uids
            ]
        groups = dict[GroupKey, list[AssignedPod]]()
        victims = list[Victim]()
        for assigned_pod in on_node:
            if assigned_pod.uid in self._exempt_uids:
                continue
            group = self._group_of(assigned_pod.uid)
            if group is None:
                victims.append(single(assigned_pod, self._rank(assigned_pod)))
            else:
                groups.setdefault(group.key, []).append(assigned_pod)
        for key, pods in groups.items():
            victims += self.divide(key, pods)
        return [victim for victim in victims if victim.priority < priority]

    def divide(self, key: GroupKey, node_pods: Sequence[AssignedPod]) -> Iterator[Victim]:
        """Yield a group's members on nodes as victims: the least important that it can spare, and the whole group."""
        group = self._group(key)
        singles = sorted((single(pod, self._rank(pod), group.key) for pod in node_pods), key=importance)
        rest = max(len(singles) - group.surplus, 0)
        yield from singles[rest:]
        if rest:
            spare_uids = {pod.uid for pod in pods_of(singles[rest:])}
            pods = tuple(pod for pod in group.pods if pod.uid not in spare_uids) if spare_uids else group.pods
            yield Victim(pods, pods_of(singles[:rest]), group.priority, group.start, group.key, is_whole=True)

    def has_below(self, priority: int) -> bool:
        """Return whether anything may be below a priority; False is definite."""
        lowest = self._cache.lowest_priority()
        if lowest is None:
            return False
        return lowest < priority or self._groups.pod_groups.has_below(priority)

    def placed(self, key: GroupKey) -> frozenset[str]:
        return frozenset(self._groups.placed(key))

    def are_unchanged(self, victims: Iterable[Victim]) -> bool:
        """Return whether these are still victims of the same priorities, and leave no or enough members of a group."""
        now, by_group = self.on(self._cache), dict[GroupKey, set[str]]()
        memberships = self._groups.memberships
        for victim in victims:
            first = victim.pods[0]
            if victim.group is None and victim.priority == first.priority and first.uid not in memberships:
                # Nearly all are pods without a group: a pod's own priority never changes.
                continue
            group = now._group_of(first.uid)
            if (group.key if group is not None else None) != victim.group:
                return False
            if victim.priority != (group.priority if group is not None and victim.is_whole else now._rank(first)):
                return False
            if group is not None:
                by_group.setdefault(group.key, set()).update(pod.uid for pod in victim.pods)
        groups = ((now._group(key), uids) for key, uids in by_group.items())
        return all(len(uids) <= group.surplus or uids == {pod.uid for pod in group.pods} for group, uids in groups)

    def can_spare(self, uids: Iterable[str]) -> bool:
        """Return whether these pods may be removed together without others of their groups."""
        by_group = dict[GroupKey, set[str]]()
        for uid in uids:
            if (group := self._group_of(uid)) is not None:
                by_group.setdefault(group.key, set()).add(uid)
        return all(len(group_uids) <= self._group(key).surplus for key, group_uids in by_group.items())

    def _rank(self, assigned_pod: AssignedPod) -> int:
        membership = self._groups.of(assigned_pod.uid)
        priority = self._groups.pod_groups.get(membership.key).priority if membership is not None else None
        return assigned_pod.priority if priority is None else priority

    def _group_of(self, uid: str) -> _Group | None:
        """Return the group of a pod if not every member may be removed by itself."""
        key = whole_group_of(self._groups, uid)
        group = self._group(key) if key is not None else None
        return group if group is not None and group.surplus < len(group.pods) and uid not in group.deletions else None

    def _group(self, key: GroupKey) -> _Group:
        if key not in self._by_key:
            self._by_key[key] = self._read_group(key)
        return self._by_key[key]

    def _read_group(self, key: GroupKey) -> _Group:
        groups, placed_uids = self._groups, self._groups.placed(key)
        kept_uids = [uid for uid in placed_uids if uid not in groups.removals]
        uids = kept_uids or placed_uids
        pods = tuple(pod for uid in uids if (pod := self._pod(uid)) is not None)
        priority, min_members = groups.pod_groups.get(key).priority, _annotated_min(groups, uids)
        rank = max((assigned_pod.priority for assigned_pod in pods), default=0) if priority is None else priority
        start = min((assigned_pod.started or _NO_START for assigned_pod in pods), default=_NO_START)
        if key.has_pod_group or any(groups.memberships[uid].request.roles for uid in uids if min_members):
            surplus = 0
        else:
            surplus = max(len(kept_uids) - min_members - (len(uids) - len(pods)), 0) if min_members else len(pods)
        return _Group(key, pods, surplus, frozenset(placed_uids).difference(uids), rank, start)

    def _pod(self, uid: str) -> AssignedPod | None:
        """Return a pod, unless it is exempt or not on the evaluated nodes."""
        assigned_pod = self._cache.assigned(uid)
        if assigned_pod is None or uid in self._exempt_uids:
            return None
        is_evaluated = self._snapshot is self._cache or self._snapshot.assigned_on(assigned_pod.node, uid) is not None
        return assigned_pod if is_evaluated else None
