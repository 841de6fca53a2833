"""Which members that have succeeded count beside those that are placed: those of the group's run. Pure.

What it is: a run begins when a member is placed and none was, and ends when none is placed any more. A member that has
succeeded counts until the end of the run in which it was placed. What has succeeded stays as long as its owner likes,
as the pods of a Job do: it never counts for a later run of the same name.

Why it is right: who was seen with a node, and then as succeeded, is of the run of then. Who is seen for the first time
when it has succeeded, as by a scheduler that starts, is judged by what the API server shows: it is of the run if it
ended after the oldest placed member was bound, or after one that is of the run was. Where the end is not shown, it had
its node at least when it was bound. The order in which pods are seen does not matter.

What it costs: the same for groups of any size, but for a sort of those that are judged by time, each time that the run
turns out to be older than was known.
"""

from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

from scheduler.kube.objects import Pod
from scheduler.kube.timestamps import unix_time


class NodeTimes(NamedTuple):
    """When a pod was bound, and when its containers had ended, in UNIX time."""

    bound: float = 0.0
    ended: float = 0.0


# Of a pod that this scheduler places just now.
NOW = NodeTimes(inf, inf)


def node_times(pod: Pod) -> NodeTimes:
    """Return when a pod had a node, as far as the API server shows it."""
    scheduled = pod.condition("PodScheduled")
    bound = unix_time(pod.metadata.creation_timestamp, 0.0)
    if scheduled is not None and scheduled.status == "True":
        bound = unix_time(scheduled.last_transition_time, bound)
    states = [status.state for status in pod.status.container_statuses or () if status.state is not None]
    ends = [unix_time(status.terminated.finished_at, bound) for status in states if status.terminated is not None]
    # The node's clock wrote the end, the API server's the rest. If the node's is slow, the end is no earlier than this.
    return NodeTimes(bound, max([bound, *ends]))


@dataclass(slots=True)
class Run:
    """The run of one group; `began` is None while no member is placed."""

    began: float | None = None
    # Those that have succeeded, by uid; of these, those of the run, and those of earlier ones.
    _times: dict[str, NodeTimes] = field(default_factory=dict)
    _own: set[str] = field(default_factory=set)
    _earlier: set[str] = field(default_factory=set)

    @property
    def succeeded(self) -> int:
        """How many of the run have succeeded."""
        return len(self._own)

    def bound_since(self, time: float) -> int:
        """Return how many of any run have succeeded that were bound no earlier than this, by the API server's clock."""
        return sum(times.bound >= time for times in self._times.values())

    def place(self, times: NodeTimes) -> None:
        """Take in a member that is placed."""
        if self.began is None or times.bound < self.began:
            self.began = times.bound
            self._judge()

    def end(self) -> None:
        """End the run, if there is one: no member is placed any more."""
        if self.began is not None:
            self.began = None
            self._own.clear()
            self._earlier |= self._times.keys()

    def succeed(self, uid: str, times: NodeTimes, *, was_on_node: bool) -> None:
        """Take in a member that has succeeded; ``was_on_node``: it was seen before that."""
        if uid in self._times:
            return
        self._times[uid] = times
        if was_on_node:
            (self._earlier if self.began is None else self._own).add(uid)
        elif self.began is not None and times.ended >= self.began:
            self._own.add(uid)
            if times.bound < self.began:
                self.began = times.bound
                self._judge()

    def drop(self, uid: str) -> None:
        """Forget a member that has succeeded."""
        self._times.pop(uid, None)
        self._own.discard(uid)
        self._earlier.discard(uid)

    def check(self, uids: set[str]) -> None:
        """Raise AssertionError unless these have succeeded, and are of the run, of an earlier one, or not known."""
        assert self._times.keys() == uids, "who has succeeded differs"
        assert self._own | self._earlier <= uids, "some are of a run that have not succeeded"
        assert not self._own & self._earlier, "some are of two runs"
        assert self.began is not None or not self._own, "some are of a run that is over"

    def _judge(self) -> None:
        """Find those of the run by their times, the last first: each may show that the run is older."""
        assert self.began is not None, "there is no run"
        unknown = self._times.keys() - self._own - self._earlier
        for uid in sorted(unknown, key=lambda member: (self._times[member].ended, member), reverse=True):
            times = self._times[uid]
            if times.ended < self.began:
                return
            self._own.add(uid)
            self.began = min(self.began, times.bound)
