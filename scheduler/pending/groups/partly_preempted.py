"""Groups that may only be disrupted as a whole, and of which a preemption has reached only some members. Pure.

A leader that ends, or an API server that refuses a deletion, cuts the deletion of victims short. What is left of the
group then runs for nothing. It is evicted after a while, as those that were reached were preempted with it.

Why no other pod goes: the sign is a member that is being deleted, with the condition that this scheduler gives its
victims. When it is seen first, the members are listed that had a node before, and nobody is added later. Only times
that the API server sets are compared: when a member was made and bound, and when the deletion was asked for. An
eviction gives a member another condition (``EvictionByEvictionAPI``), so it is no sign itself. What the PodGroup says
counts as it is seen first, if it is older than the order.

Source: addConditionAndDeletePod and assignPod in pkg/registry/core/pod/storage of Kubernetes, and BeforeDelete in
k8s.io/apiserver's pkg/registry/rest: the deletionTimestamp is the time of the request and the grace period.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from math import inf

from scheduler.cache.assigned_pod import is_preempted_by, pod_reference
from scheduler.cache.cache import Cache
from scheduler.cache.groups.placed_groups import PlacedGroups
from scheduler.cycle.instructions import Evict
from scheduler.kube.group_membership import GroupKey, membership_if_readable
from scheduler.kube.objects import Pod
from scheduler.kube.pod_groups import PodGroup

# So long after a member was reached last: the deletions of the order may be under way.
PATIENCE_S = 60.0
# What the API server refuses is tried again after the first time, twice as long each time, at the most the second.
_AGAIN_S, _LONGEST_S = 60.0, 960.0
_LOOK_S = 5.0
# Evictions in one look.
_AT_ONCE = 64
# The clocks of two API servers may differ by less than this.
_SKEW = timedelta(seconds=2)
# Orders that are seen before the next look: a scheduler that does not lead does not look.
MOST_SIGNS = 1024


@dataclass(frozen=True, slots=True)
class _Sign:
    """A member that was preempted."""

    uid: str
    pod: str


@dataclass(slots=True)
class _CutShort:
    """A preemption: its sign, and who else had a node then, each with the time of its next eviction.

    What was there before ``at`` was there before the order. ``is_whole`` is None until the PodGroup is known.
    ``staying`` counts those that are not being deleted.
    """

    key: GroupKey
    at: datetime
    sign: _Sign
    others: dict[str, float]
    due: float
    staying: int
    is_whole: bool | None = None
    has_begun: bool = False
    refusals: dict[str, int] = field(default_factory=dict)


class PartlyPreempted:
    """The preemptions of groups that may be cut short; only those by ``scheduler_name`` count."""

    def __init__(self, scheduler_name: str, cache: Cache, groups: PlacedGroups) -> None:
        self._scheduler_name, self._cache, self._groups = scheduler_name, cache, groups
        # In the order in which they were seen.
        self._signs: dict[tuple[GroupKey, datetime], _Sign] = {}
        self._known: list[_CutShort] = []
        # The uids of all that are known, each in one of them.
        self._uids: dict[str, _CutShort] = {}
        self._look_at = 0.0

    def __len__(self) -> int:
        return len(self._signs) + len(self._known)

    def see(self, pod: Pod) -> None:
        """Take in a pod that is being deleted: it may be a sign."""
        if pod.spec.scheduling_group is None or not is_preempted_by(pod, self._scheduler_name):
            return
        membership, at = membership_if_readable(pod), _ordered_before(pod)
        if membership is None or at is None:
            return
        self._signs.setdefault((membership.key, at), _Sign(pod.metadata.uid, pod.key))
        if len(self._signs) > MOST_SIGNS:
            del self._signs[next(iter(self._signs))]

    def overdue(self, now: float) -> Iterator[Evict]:
        """Yield the evictions of members that still stay, where it is time."""
        if self._signs:
            self._take_signs(now)
        if not self._known or now < self._look_at:
            return
        self._look_at = now + _LOOK_S
        left = _AT_ONCE
        for one in self._known:
            for evict in self._complete(one, now, left):
                left -= 1
                yield evict
        self._known = [one for one in self._known if self._matters(one)]
        self._uids = {uid: one for one in self._known for uid in (one.sign.uid, *one.others)}

    def refused(self, uid: str, now: float) -> None:
        """Try an eviction again later that the API server did not accept."""
        one = self._uids.get(uid)
        if one is not None and uid in one.others:
            count = one.refusals.get(uid, 0)
            one.refusals[uid] = count + 1
            one.others[uid] = now + min(_AGAIN_S * 2 ** min(count, 8), _LONGEST_S)

    def next_due(self) -> float | None:
        """Return when `overdue` has to look; None for never."""
        if self._signs:
            return 0.0
        return self._look_at if self._known else None

    def _take_signs(self, now: float) -> None:
        """List the members that had a node before each order, once."""
        signs, self._signs = self._signs, {}
        for (key, at), sign in signs.items():
            if sign.uid in self._uids:
                continue
            others = {uid: 0.0 for uid in self._before(key, at) if uid != sign.uid and uid not in self._uids}
            one = _CutShort(key, at, sign, others, now + PATIENCE_S, len(others))
            one.is_whole = self._is_whole(one)
            self._known.append(one)
            self._uids |= dict.fromkeys((sign.uid, *others), one)

    def _before(self, key: GroupKey, at: datetime) -> Iterator[str]:
        """Yield the members that had a node before an order, also those that are being deleted."""
        members = self._groups.groups_by_pod.get(key)
        for uid in members.of("placed", "leaving") if members is not None else ():
            assigned = self._cache.assigned(uid)
            since = _time(assigned.placed_since) if assigned is not None else None
            if since is not None and since < at:
                yield uid

    def _is_whole(self, one: _CutShort) -> bool | None:
        """Return whether the group could only be disrupted as a whole when it was; None while nobody knows."""
        pod_group = self._groups.known_pod_groups.shown(one.key)
        created = _time(pod_group.metadata.creation_timestamp or "") if isinstance(pod_group, PodGroup) else None
        if created is None or created >= one.at:
            return None
        return one.key in self._groups.known_pod_groups.whole

    def _complete(self, one: _CutShort, now: float, most: int) -> Iterator[Evict]:
        if one.is_whole is None:
            one.is_whole = self._is_whole(one)
        staying = [uid for uid in one.others if self._groups.groups_by_pod.standing(uid) == "placed"]
        if len(staying) < one.staying and not one.has_begun:
            one.due = now + PATIENCE_S
        one.staying = len(staying)
        if not one.is_whole or now < one.due:
            return
        why = f"group {one.key.name}: it may only be disrupted as a whole, and pod {one.sign.pod} of it was preempted"
        for uid in [each for each in staying if one.others[each] <= now][:most]:
            assigned = self._cache.assigned(uid)
            assert assigned is not None, "a placed member is in the cache"
            # Nothing more until its result is known.
            one.others[uid], one.has_begun = inf, True
            yield Evict(pod_reference(assigned), why, "Preempted")

    def _matters(self, one: _CutShort) -> bool:
        """Return whether a sign is still there, which would be seen again, or anybody is left of its group."""
        if self._cache.assigned(one.sign.uid) is not None:
            return True
        return one.is_whole is not False and any(self._cache.assigned(uid) is not None for uid in one.others)


def _ordered_before(pod: Pod) -> datetime | None:
    """Return a time before the deletion of a pod was asked for, by any API server's clock; None if it is not said."""
    deleted, grace = _time(pod.metadata.deletion_timestamp or ""), pod.metadata.deletion_grace_period_seconds
    if deleted is None or grace is None:
        return None
    try:
        return deleted - timedelta(seconds=grace) - _SKEW
    except OverflowError:
        return None


def _time(text: str) -> datetime | None:
    """Return an RFC 3339 time; None if it is none."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo is not None else None
