"""Whether a group has started, and for whose pods: recreated pods then join the others one by one. Pure.

Method: a group has started once at least ``min`` members were bound, for the owners (controllers) that had members
then. It is alive while a member of these owners has a node, or one has succeeded. After that it starts again as a
whole. Members of another owner, such as those of a job that is run again under the same name, start together
themselves.

Correctness: everything is derived from the pods and Jobs of the API server, so a scheduler that starts gets the same
result as one that has received all events. Ended pods were placed together with live ones if they were bound no earlier
than the oldest live one was created; pods of an earlier, failed attempt were not. Both times are the API server's. If
too many of these pods are deleted, the group counts as one whose start was interrupted.

Cost: a search in sorted times for each owner with ended pods, until the group has started.
"""

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from scheduler.kube.objects import Pod
from scheduler.kube.timestamps import unix_time

# Bound, and neither ended nor being deleted; succeeded; failed or being deleted.
Phase = Literal["alive", "succeeded", "gone"]


class NodeTimes(NamedTuple):
    """When a pod with a node was created and bound, in UNIX seconds."""

    created: float
    bound: float


def node_times(pod: Pod) -> NodeTimes | None:
    """Return when a pod was created and bound by the API server's clock; None for a pod without a node."""
    if not pod.spec.node_name:
        return None
    created = unix_time(pod.metadata.creation_timestamp, 0.0)
    scheduled = pod.condition("PodScheduled")
    is_shown = scheduled is not None and scheduled.status == "True"
    return NodeTimes(created, unix_time(scheduled.last_transition_time, created) if scheduled and is_shown else created)


class _PodTime(NamedTuple):
    """When a live pod was created, or when another one was bound."""

    phase: Phase
    owner: str
    time: float
    role: str = ""


@dataclass(slots=True)
class Start:
    """The start of one group.

    ``job_successes`` are the numbers of succeeded pods according to each Job's status, by Job uid, because the pods may
    be deleted.
    """

    job_successes: Mapping[str, int] = field(default_factory=dict)
    # The owners whose members took part; empty while it has not started.
    owners: Set[str] = frozenset()
    _pods: dict[str, _PodTime] = field(default_factory=dict)
    # The times of each owner's pods, in order.
    _alive: dict[str, list[float]] = field(default_factory=dict)
    _succeeded: dict[str, list[float]] = field(default_factory=dict)
    _gone: dict[str, list[float]] = field(default_factory=dict)

    def with_partners(self, owners: Set[str]) -> Set[str]:
        """Return owners; if one of them took part in the start, also all others that did."""
        return owners | self.owners if owners & self.owners else owners

    def succeeded(self, owners: Set[str]) -> int:
        """Return how many pods of these owners have succeeded."""
        shown = (owners & self._succeeded.keys()) | (owners & self.job_successes.keys())
        return sum(max(self.succeeded_pods(owner), self.job_successes.get(owner, 0)) for owner in shown)

    def succeeded_pods(self, owner: str) -> int:
        """Return how many succeeded pods of an owner still exist."""
        return len(self._succeeded.get(owner, ()))

    def bound_since(self, time: float) -> int:
        """Return how many succeeded pods were bound no earlier than this."""
        return sum(_count_since(times, time) for times in self._succeeded.values())

    def put(self, uid: str, phase: Phase, owner: str, times: NodeTimes, role: str = "") -> None:
        """Record a pod that is or was bound."""
        self._remove(uid)
        entry = self._pods[uid] = _PodTime(phase, owner, times.created if phase == "alive" else times.bound, role)
        insort(self._times(phase).setdefault(owner, []), entry.time)
        self.end()

    def drop(self, uid: str) -> None:
        if uid in self._pods:
            self._remove(uid)
            self.end()

    def _remove(self, uid: str) -> None:
        entry = self._pods.pop(uid, None)
        if entry is None:
            return
        times_by_owner = self._times(entry.phase)
        times = times_by_owner[entry.owner]
        del times[bisect_left(times, entry.time)]
        if not times:
            del times_by_owner[entry.owner]

    def _times(self, phase: Phase) -> dict[str, list[float]]:
        return {"alive": self._alive, "succeeded": self._succeeded, "gone": self._gone}[phase]

    def end(self) -> None:
        """Let the group start again if it is no longer alive."""
        if self.owners and not self.owners & self._alive.keys() and not self.succeeded(self.owners):
            self.owners = frozenset()

    def judge(self, min_members: int, roles: Sequence[tuple[str, int]] = ()) -> None:
        """Record that the group has started if this many members were placed, and of each role its number, for owners
        that had not started.
        """
        owners = self._alive.keys() - self.owners
        if not owners:
            return
        since = min(self._alive[owner][0] for owner in owners)
        ended = dict(self._ended_since(since, owners))
        count = sum(map(len, self._alive.values())) + self.succeeded(owners) + sum(ended.values())
        if count >= min_members and self._has_roles(roles, since, owners):
            lives_on = bool(self.owners & self._alive.keys())
            self.owners = (self.owners if lives_on else frozenset()) | owners | ended.keys()

    def _has_roles(self, roles: Sequence[tuple[str, int]], since: float, owners: Set[str]) -> bool:
        counts = Counter(
            pod.role
            for pod in (self._pods.values() if roles else ())
            if pod.phase == "alive" or pod.time >= since or (pod.phase == "succeeded" and pod.owner in owners)
        )
        return all(counts[role] >= count for role, count in roles)

    def _ended_since(self, since: float, owners: Set[str]) -> Iterator[tuple[str, int]]:
        """Yield how many pods of each owner were bound since then and have ended; for ``owners`` without the succeeded
        ones.
        """
        for owner in self._succeeded.keys() | self._gone.keys():
            count = _count_since(self._gone.get(owner, ()), since)
            if owner not in owners:
                count += _count_since(self._succeeded.get(owner, ()), since)
            if count:
                yield owner, count

    def check(self) -> None:
        for phase in ("alive", "succeeded", "gone"):
            pods = sorted((entry.owner, entry.time) for entry in self._pods.values() if entry.phase == phase)
            times = sorted((owner, time) for owner, times in self._times(phase).items() for time in times)
            assert pods == times, f"the times of pods that are {phase} differ"
        assert not self.owners or self.owners & self._alive.keys() or self.succeeded(self.owners), "a start has no end"


def _count_since(times: list[float] | tuple[()], since: float) -> int:
    return len(times) - bisect_left(times, since)
