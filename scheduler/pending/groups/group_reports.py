"""What the owners of a group read: the message of its waiting members, and the condition of its PodGroup. Pure.

The condition is False with the members' message, and True once ``min`` members are bound; it never changes back, as
later members do not count for it. Only PodGroups of ``scheduling.k8s.io`` with a member that names this scheduler get
it: to others, another scheduler writes. All members are read for it, at most once a second for a group that changes.

Source: PodGroupStatus in staging/src/k8s.io/api/scheduling/v1alpha2/types.go and v1beta1/types.go of Kubernetes, and
updatePodGroupCondition in pkg/scheduler/schedule_one_podgroup.go.
"""

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from scheduler.cache.cache import Cache
from scheduler.cache.groups.group_cache import GroupCache, Members
from scheduler.cycle.decisions import Why
from scheduler.cycle.instructions import ReportGroup
from scheduler.kube.group import GroupKey
from scheduler.kube.objects import unix_time
from scheduler.kube.workload_objects import CONDITION_TYPES, AnyPodGroup, PodGroup
from scheduler.pending.debounce import Debounce
from scheduler.pending.part import Part

# Seconds from a change to the condition that reports it: members are bound one after another.
_CONDITION_S = 1.0
_HINT = (
    "a StatefulSet needs podManagementPolicy Parallel, and a launcher that waits for its workers must not count in min"
)


class _Condition(NamedTuple):
    status: Literal["True", "False"]
    reason: Literal["Scheduled", "Unschedulable", "SchedulerError"]
    message: str


class GroupReports(Part):
    """By group: the members that have not received its last message yet, and the conditions to write."""

    def __init__(self, cache: Cache, group_cache: GroupCache) -> None:
        self._cache, self._group_cache = cache, group_cache
        self._messages: dict[GroupKey, tuple[Iterator[str], str, Why | None]] = {}
        self._changes = Debounce[GroupKey](_CONDITION_S, _CONDITION_S)
        # Why waiting members are not placed, and the last condition that was written and has not arrived yet.
        self._refusals: dict[GroupKey, _Condition] = {}
        self._last_conditions: dict[GroupKey, _Condition] = {}

    def put(
        self,
        key: GroupKey,
        uids: Sequence[str],
        message: str,
        now: float,
        why: Why | None = None,
        *,
        is_bug: bool = False,
    ) -> None:
        """Replace the message of a group, also for members that have not received the previous one."""
        self._messages[key] = iter(uids), message, why
        if key.naming == "PodGroup":
            self._refusals[key] = _Condition("False", "SchedulerError" if is_bug else "Unschedulable", message)
            self._changes.change(key, now)

    def take(self) -> Iterator[tuple[str, str, Why | None]]:
        """Yield the members that have not received their message, and drop them."""
        while self._messages:
            key, (uids, message, why) = next(iter(self._messages.items()))
            yield from ((uid, message, why) for uid in uids)
            del self._messages[key]

    def members_changed(self, key: GroupKey, now: float) -> None:
        if key.naming == "PodGroup":
            self._changes.change(key, now)

    def pod_group_changed(
        self, key: GroupKey, previous: AnyPodGroup | None, current: AnyPodGroup | None, now: float
    ) -> bool:
        """Record that a PodGroup was received; return whether another one with the same name came in the same event."""
        self._last_conditions.pop(key, None)
        is_other = previous is not None and current is not None and previous.metadata.uid != current.metadata.uid
        if current is None or is_other:
            self._refusals.pop(key, None)
        self.members_changed(key, now)
        return is_other

    def tick(self, now: float) -> Iterator[ReportGroup]:
        for key in self._changes.take(now):
            pod_group = self._group_cache.pod_groups.get(key).item
            if not isinstance(pod_group, PodGroup):
                self._refusals.pop(key, None)
            elif (condition := self._condition(key, pod_group)) is not None:
                self._last_conditions[key] = condition
                yield ReportGroup(pod_group, *condition)

    def next_due(self) -> float | None:
        return 0.0 if self._messages else self._changes.next_due()

    def _condition(self, key: GroupKey, pod_group: PodGroup) -> _Condition | None:
        """Return the condition if it must be written; None if it is up to date."""
        members, min_members = self._group_cache.get(key), self._group_cache.pod_groups.get(key).min
        shown_conditions = {
            (condition.status, condition.reason, condition.message)
            for condition in pod_group.status.conditions or ()
            if condition.type in CONDITION_TYPES.values()
        }
        if (last_condition := self._last_conditions.get(key)) is not None:
            shown_conditions.add(last_condition)
        if members is None or not members.has_own_pod or any(status == "True" for status, _, _ in shown_conditions):
            return None
        # Members that are only assumed do not count. A short job may end before its condition is written; members of
        # earlier jobs had an earlier PodGroup.
        assigned_pods = map(self._cache.assigned, members.of("placed"))
        bound_count = sum(assigned_pod is not None and not assigned_pod.assumed for assigned_pod in assigned_pods)
        bound_count += members.successes_since(unix_time(pod_group.metadata.creation_timestamp, 0.0))
        if min_members and bound_count >= min_members:
            return _Condition("True", "Scheduled", f"members bound: {bound_count}, needed: at least {min_members}")
        refusal = self._refusals.get(key)
        return None if refusal in shown_conditions else refusal


def incomplete(members: Members, min_members: int) -> str:
    """Return how many members exist, and why others do not count."""
    member_count = members.count_for(members.next_owners, "waiting")
    message = f"{member_count} of at least {min_members} members exist"
    shortages = members.role_shortages(members.next_owners, "waiting")
    reasons = [
        *((count, f"of role {role!r} missing") for role, count in shortages.items()),
        (members.count("gated"), "with scheduling gates"),
        (members.count("refused"), "rejected as invalid"),
        (members.foreign_success_count, "succeeded under another controller (not counted)"),
    ]
    message += "".join(f", {count} {text}" for count, text in reasons if count)
    # Members that exist and do not count are a sufficient reason.
    return message if members.count("gated") or members.count("refused") else f"{message} ({_HINT})"
