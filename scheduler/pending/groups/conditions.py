"""The condition of PodGroups: whether enough members have a node, and if not, why. Pure.

Method: the condition has the meaning that Kubernetes defines. It is False with the message of the waiting members, and
True once at least ``min`` members are bound. It never changes back from True: later members do not count for it. Only
PodGroups of ``scheduling.k8s.io`` have it. Nothing is written to PodGroups of scheduler-plugins, or to one with no
member that names this scheduler, because another scheduler writes to it.

Correctness: the condition is derived from the members and from the PodGroup as last received, whenever one of them
changes. A new leader receives everything again, and so writes what an earlier one has not written. Nothing is kept here
for a PodGroup that does not exist.

Cost: reading all members of a group, at most once a second for each group in which something changed.

Source: PodGroupStatus in staging/src/k8s.io/api/scheduling/v1alpha2/types.go and v1beta1/types.go of Kubernetes, and
updatePodGroupCondition in pkg/scheduler/schedule_one_podgroup.go.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Literal, NamedTuple

from scheduler.cache.cache import Cache
from scheduler.cache.groups.groups_by_pod import GroupsByPod
from scheduler.cache.groups.known_pod_groups import KnownPodGroups
from scheduler.cycle.instructions import ReportGroup
from scheduler.kube.group_membership import GroupKey
from scheduler.kube.objects import Condition, unix_time
from scheduler.kube.pod_groups import CONDITION_TYPES, GroupPolicy, PodGroup
from scheduler.pending.groups.debounce import Debounce

# Seconds from a change to its report: members are bound one after another.
_TOGETHER_S = 1.0


class ConditionValue(NamedTuple):
    """A condition's status, reason and message."""

    status: Literal["True", "False"]
    reason: Literal["Scheduled", "Unschedulable", "SchedulerError"]
    message: str


class GroupProgress(NamedTuple):
    """A PodGroup, how many members are bound, and how many are needed; None if that cannot be read.

    ``is_ours``: at least one member names this scheduler.
    """

    pod_group: PodGroup
    bound: int
    min: int | None
    is_ours: bool


class PodGroupConditions:
    """The conditions to write, by the key of the group."""

    def __init__(self) -> None:
        self._changes = Debounce[GroupKey](_TOGETHER_S, _TOGETHER_S)
        self._refusals: dict[GroupKey, ConditionValue] = {}
        self._last_values: dict[GroupKey, ConditionValue] = {}
        # The existing PodGroups: one event may replace a PodGroup by another with the same name.
        self._uids: dict[GroupKey, str] = {}

    def note(self, key: GroupKey, now: float) -> None:
        """Record that something about a group has changed."""
        if key.naming == "PodGroup":
            self._changes.change(key, now)

    def pod_group_changed(self, key: GroupKey, uid: str, now: float) -> bool:
        """Record that a PodGroup was received: its condition may differ from what was sent to it.

        Return whether it is another PodGroup than before.
        """
        is_other = self._uids.get(key, uid) != uid
        if is_other:
            self.forget(key)
        self._uids[key] = uid
        self._last_values.pop(key, None)
        self.note(key, now)
        return is_other

    def refuse(self, key: GroupKey, message: str, now: float, *, is_bug: bool = False) -> None:
        """Record why waiting members are not placed."""
        if key.naming == "PodGroup":
            self._refusals[key] = ConditionValue("False", "SchedulerError" if is_bug else "Unschedulable", message)
            self.note(key, now)

    def forget(self, key: GroupKey) -> None:
        """Drop a deleted PodGroup."""
        self._changes.drop(key)
        for entries in (self._refusals, self._last_values, self._uids):
            entries.pop(key, None)

    def due(self, now: float, progress_of: Callable[[GroupKey], GroupProgress | None]) -> Iterator[ReportGroup]:
        """Yield what is to be written by now; ``progress_of`` returns None for a PodGroup that is not in the cache."""
        for key in self._changes.take(now):
            progress = progress_of(key)
            if progress is None:
                self.forget(key)
                continue
            value = self._value_to_write(key, progress)
            if value is not None and self._last_values.get(key) != value:
                self._last_values[key] = value
                yield ReportGroup(progress.pod_group, value.status, value.reason, value.message)

    def next_due(self) -> float | None:
        """Return when `due` has something, if nothing changes before; monotonic seconds."""
        return self._changes.next_due()

    def _value_to_write(self, key: GroupKey, progress: GroupProgress) -> ConditionValue | None:
        """Return the condition if it must be written; None if it is up to date."""
        if not progress.is_ours:
            return None
        conditions = shown_conditions(progress.pod_group)
        last_value = self._last_values.get(key)
        if (last_value is not None and last_value.status == "True") or any(
            condition.status == "True" for condition in conditions.values()
        ):
            return None
        if progress.min is not None and progress.bound >= progress.min:
            message = f"members bound: {progress.bound}, needed: at least {progress.min}"
            return ConditionValue("True", "Scheduled", message)
        refusal = self._refusals.get(key)
        says = any(
            (condition.status, condition.reason, condition.message) == refusal for condition in conditions.values()
        )
        return None if says else refusal


def shown_conditions(pod_group: PodGroup) -> Mapping[str, Condition]:
    """Return the conditions that report whether a PodGroup is scheduled, by their types in the versions of the API."""
    return {
        condition.type: condition
        for condition in pod_group.status.conditions or ()
        if condition.type in CONDITION_TYPES.values()
    }


def group_progress(
    key: GroupKey, known_pod_groups: KnownPodGroups, groups_by_pod: GroupsByPod, cache: Cache
) -> GroupProgress | None:
    """Return a PodGroup and how many members have or had a node; members that are only assumed do not count."""
    policy, pod_group, _ = known_pod_groups.get(key)
    if not isinstance(pod_group, PodGroup):
        return None
    members = groups_by_pod.get(key)
    pods = [cache.assigned(uid) for uid in members.of("placed")] if members is not None else []
    bound = sum(1 for pod in pods if pod is not None and not pod.assumed)
    if members is not None:
        # A short job may end before its condition is written. Members of earlier jobs had an earlier PodGroup.
        bound += members.bound_since(unix_time(pod_group.metadata.creation_timestamp, 0.0))
    min_members = policy.min if isinstance(policy, GroupPolicy) else None
    return GroupProgress(pod_group, bound, min_members, members is not None and members.any_ours)
