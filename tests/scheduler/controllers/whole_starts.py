"""Promise 9 as seen from outside: at each event of the pods of a namespace, no group starts before it is complete."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

Pods = Mapping[str, Any]


def has_node(pod: Any) -> bool:
    return bool(pod["spec"].get("nodeName"))


def has_ended(pod: Any) -> bool:
    return pod["status"].get("phase") in ("Failed", "Succeeded")


def is_deleted(pod: Any) -> bool:
    return "deletionTimestamp" in pod["metadata"]


def is_waiting(pod: Any) -> bool:
    """Return whether a scheduler may place this pod."""
    return not (has_node(pod) or has_ended(pod) or is_deleted(pod) or pod["spec"].get("schedulingGates"))


def _holds_group(pod: Any) -> bool:
    """Return whether this pod keeps its group alive: it runs, or it has succeeded."""
    return has_node(pod) and pod["status"].get("phase") != "Failed"


@dataclass
class WholeStarts:
    """The groups of a namespace: ``group_of`` names a pod's group, "" if it has none."""

    group_of: Callable[[Any], str]
    min: int
    broken: list[str] = field(default_factory=list)
    starts: int = 0
    _alive: set[str] = field(default_factory=set)

    def pods_changed(self, before: Pods, pods: Pods, name: str) -> None:
        """Check one event: pod ``name`` was created, changed or deleted."""
        pod = pods.get(name, before.get(name))
        if not (group := self.group_of(pod)):
            return
        members = [one for one in pods.values() if self.group_of(one) == group]
        was_bound = name in pods and has_node(pod) and not (name in before and has_node(before[name]))
        counted = sum(has_node(one) or is_waiting(one) for one in members)
        if was_bound and group not in self._alive and counted < self.min:
            self.broken.append(f"group {group}: {name} was bound when there were {counted} of {self.min} members")
        self._follow(group, members)

    def half_started(self, pods: Pods) -> list[str]:
        """Return the groups with members that have nodes although the group has not started."""
        groups = {self.group_of(pod) for pod in pods.values() if has_node(pod) and not has_ended(pod)}
        return sorted(groups - self._alive - {""})

    def _follow(self, group: str, members: Iterable[Any]) -> None:
        holding = sum(_holds_group(one) for one in members)
        if holding == 0:
            self._alive.discard(group)
        elif holding >= self.min and group not in self._alive:
            self._alive.add(group)
            self.starts += 1
