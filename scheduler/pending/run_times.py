"""When the pods on nodes end, by the run times that they declare. Pure.

A run begins when this scheduler, as a leader or a standby, first sees the pod Running. If it sees the pod Running at
once, as after a restart, the run began at the pod's ``startTime``, but not before its creation and not after now. Until
then a pod is expected to run `START_S` after its Binding. A pod that runs longer than it declared may end at any
moment; one that is late by its whole run time, and by ten minutes at least, never ends, nor does one that is not
Running for as long. A pod that is being deleted ends at its deletion timestamp, which includes the grace period; ten
minutes later, as with a finalizer that nobody removes, it never ends.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from scheduler.cache.assigned_pod import AssignedPod
from scheduler.cycle.decisions import Bind
from scheduler.cycle.instructions import Instruction, PreBind
from scheduler.cycle.reserved_room import START_S
from scheduler.kube.objects import Pod, unix_time
from scheduler.pending.part import Part, PodChange

_LATE_S, _STEP_S = 600.0, 60.0


class _Begin(NamedTuple):
    at: float
    runs_s: int
    is_running: bool

    @property
    def end(self) -> float:
        return self.at + self.runs_s


@dataclass(slots=True)
class RunTimes(Part):
    """The beginnings of runs by uid, only of pods with a run time; ``unix_offset_s`` is UNIX time minus ``now``.

    ``changed_nodes`` are those of pods that end later than expected, until they are read.
    """

    unix_offset_s: float = 0.0
    changed_nodes: set[str] = field(default_factory=set)
    _begins: dict[str, _Begin] = field(default_factory=dict)
    # When the pods end that are being deleted, by uid.
    _deletions: dict[str, float] = field(default_factory=dict)

    def note_binds(self, instructions: Iterable[Instruction], now: float) -> None:
        for instruction in instructions:
            decision = instruction.decision if isinstance(instruction, PreBind) else instruction
            if isinstance(decision, Bind) and decision.pod_info.runs_s is not None:
                self._begins[decision.pod_info.uid] = _Begin(now + START_S, decision.pod_info.runs_s, is_running=False)

    def pod_assigned(self, change: PodChange, now: float) -> Iterable[Instruction]:
        pod, uid = change.pod, change.assigned_pod.uid
        if pod.metadata.deletion_timestamp is not None:
            unix_now = now + self.unix_offset_s
            self._deletions[uid] = unix_time(pod.metadata.deletion_timestamp, unix_now) - self.unix_offset_s
        begin = self._begins.pop(uid, None)
        new_begin = self._new_begin(begin, change.assigned_pod.runs_s, pod, now)
        if new_begin is not None:
            self._begins[uid] = new_begin
        if begin is not None and (new_begin is None or new_begin.end > begin.end):
            self.changed_nodes.add(change.assigned_pod.node)
        return ()

    def _new_begin(self, begin: _Begin | None, runs_s: int | None, pod: Pod, now: float) -> _Begin | None:
        """Return the beginning of a run, given the earlier one if it was known; None without a run time."""
        is_running = pod.status.phase == "Running"
        if runs_s is None:
            return None
        if begin is None:
            at = self._start_time(pod, now) if is_running else self._bind_time(pod, now) + START_S
            return _Begin(at, runs_s, is_running)
        if is_running and not begin.is_running:
            return _Begin(now, runs_s, is_running=True)
        return begin._replace(runs_s=runs_s)

    def pod_deleted(self, uid: str, assigned_pod: AssignedPod | None, now: float) -> None:
        self._begins.pop(uid, None)
        self._deletions.pop(uid, None)

    def end_of(self, assigned_pod: AssignedPod, now: float) -> float | None:
        """Return when a pod on a node is expected to end, at the earliest now; None for never."""
        deletion = self._deletions.get(assigned_pod.uid)
        if deletion is not None:
            return max(deletion, now) if now < deletion + _LATE_S else None
        end, begin = self.declared_end(assigned_pod, now), self._begins.get(assigned_pod.uid)
        runs_s = assigned_pod.runs_s
        if end is None or runs_s is None or (begin is not None and now >= begin.at + runs_s + max(runs_s, _LATE_S)):
            return None
        return max(end, now)

    def declared_end(self, assigned_pod: AssignedPod, now: float) -> float | None:
        """Return when a pod should end by its run time, which may be over."""
        if assigned_pod.runs_s is None:
            return None
        begin = self._begins.get(assigned_pod.uid)
        if begin is None:
            return now + START_S + assigned_pod.runs_s
        # A pod that is late has its whole run time before it; in steps, so that promises do not move each second.
        late_s = 0.0 if begin.is_running else max(now - begin.at, 0.0)
        return begin.at + math.ceil(late_s / _STEP_S) * _STEP_S + assigned_pod.runs_s

    def _start_time(self, pod: Pod, now: float) -> float:
        unix_now = now + self.unix_offset_s
        creation = unix_time(pod.metadata.creation_timestamp, unix_now)
        start = unix_time(pod.status.start_time, unix_now)
        return min(max(start, creation), unix_now) - self.unix_offset_s

    def _bind_time(self, pod: Pod, now: float) -> float:
        condition, unix_now = pod.condition("PodScheduled"), now + self.unix_offset_s
        time = unix_time(condition.last_transition_time if condition is not None else None, unix_now)
        return min(time, unix_now) - self.unix_offset_s
