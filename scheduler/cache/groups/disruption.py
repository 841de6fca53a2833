"""Which members of groups preemption may evict, by the disruptionMode of PodGroups and members' annotations. Pure."""

from collections.abc import Iterable
from typing import NamedTuple

from scheduler.cache.groups.group_cache import GroupCache
from scheduler.kube.group_membership import GroupKey


class PlacedMembers(NamedTuple):
    """A group's members that have a node; ``spare`` of ``uids`` may be preempted one by one, more only with all.

    ``leaving`` are further members, which are being deleted anyway.
    """

    uids: list[str]
    spare: int
    leaving: frozenset[str] = frozenset()


def placed_members(groups: GroupCache, key: GroupKey) -> PlacedMembers:
    """Return the placed members, and how many of them may be preempted one by one.

    For a PodGroup, its disruptionMode decides. In a group by annotation, the members beyond the largest ``min`` may be,
    and all if each member says so.
    """
    placed_uids = groups.placed(key)
    kept_uids = [uid for uid in placed_uids if uid not in groups.removals]
    uids = kept_uids or placed_uids
    if key.has_pod_group:
        spare = 0 if groups.pod_groups.get(key).is_whole else len(uids)
    elif not (min_members := _annotated_min(groups, uids)):
        spare = len(uids)
    else:
        has_roles = any(groups.memberships[uid].request.roles for uid in uids)
        spare = 0 if has_roles else max(len(kept_uids) - min_members, 0)
    return PlacedMembers(uids, spare, frozenset(placed_uids).difference(uids))


def whole_group_of(groups: GroupCache, uid: str) -> GroupKey | None:
    """Return the group of a placed pod; None if its PodGroup allows each member to be preempted."""
    membership = groups.of(uid)
    if membership is None or groups.state(uid) != "placed":
        return None
    key = membership.key
    return key if not key.has_pod_group or groups.pod_groups.get(key).is_whole else None


def priority_as_victim(groups: GroupCache, uid: str) -> int | None:
    """Return the priority of a pod's PodGroup; None if it has none."""
    membership = groups.of(uid)
    return groups.pod_groups.get(membership.key).priority if membership is not None else None


def whole_min(groups: GroupCache, key: GroupKey) -> int:
    """Return the min of a group that is disrupted as a whole; 0 for another group, or if it is unknown."""
    if not key.has_pod_group:
        return _annotated_min(groups, groups.placed(key))
    entry = groups.pod_groups.get(key)
    return entry.min if entry.is_whole else 0


def _annotated_min(groups: GroupCache, uids: list[str]) -> int:
    """Return the largest min of members by annotation; 0 if each of them may be preempted by itself."""
    requests = {groups.memberships[uid].request for uid in uids}
    min_members = max((request.least or 1 for request in requests), default=1)
    return 0 if min_members == 1 or all(request.disruption == "pod" for request in requests) else min_members


def can_spare(groups: GroupCache, uids: Iterable[str]) -> bool:
    """Return whether these pods may be preempted together without others of their groups."""
    by_group = dict[GroupKey, set[str]]()
    for uid in uids:
        if (key := whole_group_of(groups, uid)) is not None:
            by_group.setdefault(key, set()).add(uid)
    group_victims = ((placed_members(groups, key), victim_uids) for key, victim_uids in by_group.items())
    return all(len(victim_uids - members.leaving) <= members.spare for members, victim_uids in group_victims)
