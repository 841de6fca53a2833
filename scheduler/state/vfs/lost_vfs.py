"""Running pods whose node no longer has their VFs, or whose PF is down: evicted if the operator enables it. Pure.

Such a pod continues without its network, and so does its job: nothing else in the cluster ends it. A pod is due if a
fresh inventory contradicts its assignment, or shows its PF down, without a break for `LostVfOptions.after_s`. Its group
is evicted with it, because ranks wait for each other. So that a failed switch does not empty a cluster, at most
`per_minute` pods without a group, or groups, are evicted in a minute; the others stay due. Nodes take turns, so that a
node whose pods all lose their VFs, or whose inventory is wrong, does not use up the limit.

An eviction that the API server rejects is ordered again. If the VFs come back before any pod of a group is evicted, all
of them stay.

An inventory that is not fresh (from another boot, of a node that is not Ready, or missing) contradicts nothing, and the
time starts again. Pods that never started are not handled here but in `scheduler.state.vfs.never_started`.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import inf

from scheduler.cache.assigned_pod import AssignedPod, pod_reference
from scheduler.cache.node_info import NodeInfo
from scheduler.cycle.instructions import Evict, Instruction, Order, Report, Result
from scheduler.pending.part import Part, PodChange
from scheduler.state.shared_state import SharedState
from scheduler.state.vfs.never_started import NeverStarted
from scheduler.state.vfs.node_claims import NodeClaims

# Seconds after which an eviction is tried again that the API server rejected (a disruption budget, an outage), and the
# number of attempts: after that, the rest of the group may be whole again with new members.
_RETRY_S = 60.0
_ATTEMPTS = 10
_MINUTE_S = 60.0


@dataclass(frozen=True, slots=True)
class LostVfOptions:
    """The operator's options about running pods whose VFs are lost.

    ``after_s``: they are evicted after this many seconds, 0 for never. ``per_minute``: the maximum number of pods
    without a group, or whole groups. With ``dry_run`` an event reports once what would be done, and nothing is evicted.
    """

    after_s: float = 0.0
    per_minute: int = 5
    dry_run: bool = False


NO_EVICTIONS = LostVfOptions()


@dataclass(slots=True)
class _Loss:
    """Why a pod has lost its VFs, and when it is evicted; None once that is ordered or, in a dry run, reported."""

    reason: str
    node: str
    due: float | None


@dataclass(slots=True)
class _Ending:
    """The pods that end together because the pod ``cause`` has lost VFs; ``is_begun`` once one of them is gone or
    evicted.
    """

    cause: str
    is_begun: bool = False


@dataclass(slots=True)
class _OpenEviction:
    """An eviction in progress: when it is ordered again if nothing happens, and how often it may be."""

    ending: _Ending
    reason: str
    due: float
    attempts: int = _ATTEMPTS - 1


class LostVfs(Part):
    """The running pods that are due, by uid."""

    def __init__(self, state: SharedState, never_started: NeverStarted, options: LostVfOptions) -> None:
        self._cache, self._groups = state.cache, state.group_cache
        self._never_started = never_started
        self._options = options
        self._losses: dict[str, _Loss] = {}
        self._open_evictions: dict[str, _OpenEviction] = {}
        # When the first one is due, or the next may be evicted; possibly too early, never too late.
        self._next_check = inf
        # When the pods or groups of the last minute were evicted; and the last one of each node that has lost VFs.
        self._eviction_times: list[float] = []
        self._last_evictions: dict[str, float] = {}

    def node_changed(self, previous: NodeInfo | None, node: NodeInfo, now: float) -> Iterable[Instruction]:
        self.node_removed(node.name, now)
        return ()

    def node_removed(self, name: str, now: float) -> None:
        """Compare the assignments of a node's running pods with its current inventory."""
        if self._options.after_s:
            claims = NodeClaims(self._cache.node(name))
            for assigned_pod in self._cache.assigned_pods_on(name):
                self._judge(assigned_pod, claims, now)

    def pod_assigned(self, change: PodChange, now: float) -> Iterable[Instruction]:
        if self._options.after_s:
            self._judge(change.assigned, NodeClaims(self._cache.node(change.assigned.node)), now)
        return ()

    def _judge(self, assigned_pod: AssignedPod, claims: NodeClaims, now: float) -> None:
        uid, assignment = assigned_pod.uid, assigned_pod.assignment
        is_running = not (_is_leaving(assigned_pod) or uid in self._never_started)
        reason = claims.loss(assignment) if assignment is not None and is_running else ""
        if not reason:
            self._losses.pop(uid, None)
        elif (loss := self._losses.get(uid)) is not None:
            loss.reason = reason
        else:
            due = now + self._options.after_s
            self._losses[uid] = _Loss(reason, assigned_pod.node, due)
            self._next_check = min(self._next_check, due)

    def pod_deleted(self, uid: str, assigned_pod: AssignedPod | None, now: float) -> None:
        self._losses.pop(uid, None)
        if (eviction := self._open_evictions.pop(uid, None)) is not None:
            eviction.ending.is_begun = True

    def tick(self, now: float) -> Iterator[Instruction]:
        if now < self._next_check:
            return
        yield from self._retry_evictions(now)
        self._eviction_times = [time for time in self._eviction_times if time > now - _MINUTE_S]
        for uid in self._in_turns(now):
            if len(self._eviction_times) >= self._options.per_minute:
                break
            # Skip pods that were evicted together with another member of their group.
            if self._losses[uid].due is not None:
                self._eviction_times.append(now)
                self._last_evictions[self._losses[uid].node] = now
                yield from self._end(uid, now)
        self._next_check = self._next(now)

    def _in_turns(self, now: float) -> list[str]:
        """Return those that are due, one of each node in turn: first of nodes without one, or with the oldest one."""
        due = sorted((loss.due, uid) for uid, loss in self._losses.items() if loss.due is not None and loss.due <= now)
        nodes = {loss.node for loss in self._losses.values()}
        self._last_evictions = {node: time for node, time in self._last_evictions.items() if node in nodes}
        counts, turns = Counter[str](), list[tuple[int, float, float, str]]()
        for due_at, uid in due:
            node = self._losses[uid].node
            turns.append((counts[node], self._last_evictions.get(node, -inf), due_at, uid))
            counts[node] += 1
        return [turn[-1] for turn in sorted(turns)]

    def _next(self, now: float) -> float:
        """Return when the next one is due, including those that wait for the next minute."""
        due = min((loss.due for loss in self._losses.values() if loss.due is not None), default=inf)
        if due <= now:
            due = self._eviction_times[0] + _MINUTE_S if self._eviction_times else inf
        return min([due, *(eviction.due for eviction in self._open_evictions.values())])

    def _retry_evictions(self, now: float) -> Iterator[Evict]:
        """Order again what the API server has rejected, unless the VFs are back before any pod of a group is gone."""
        for uid, eviction in list(self._open_evictions.items()):
            if eviction.due > now:
                continue
            assigned_pod, cause = self._cache.assigned(uid), self._losses.get(eviction.ending.cause)
            is_lost = eviction.ending.is_begun or (cause is not None and cause.due is None)
            if assigned_pod is None or _is_leaving(assigned_pod) or not eviction.attempts or not is_lost:
                del self._open_evictions[uid]
                if (loss := self._losses.get(uid)) is not None and not is_lost:
                    # The time of members that have lost VFs of their own starts now.
                    loss.due = now + self._options.after_s
                continue
            eviction.due, eviction.attempts = now + _RETRY_S, eviction.attempts - 1
            yield Evict(pod_reference(assigned_pod), eviction.reason, "LostVfs")

    def next_due(self) -> float | None:
        return None if self._next_check == inf else self._next_check

    def finished(self, order: Order, result: Result, now: float) -> Iterable[Instruction]:
        if not isinstance(order, Evict) or result == "refused":
            return ()
        if (eviction := self._open_evictions.pop(order.pod.metadata.uid, None)) is not None:
            eviction.ending.is_begun = True
        return ()

    def _end(self, uid: str, now: float) -> Iterator[Instruction]:
        """Yield the instructions for a pod and all placed members of its group."""
        lost_pod, reason = self._cache.assigned(uid), self._losses[uid].reason
        assert lost_pod is not None, f"{uid} has lost VFs and is on no node"
        time, ending = f"for {self._options.after_s:g} s", _Ending(uid)
        for assigned_pod in self._group_of(uid):
            if (loss := self._losses.get(assigned_pod.uid)) is not None:
                loss.due = None
            about = reason if assigned_pod is lost_pod else f"pod {lost_pod.pod} of the same group: {reason}"
            if self._options.dry_run:
                yield Report(pod_reference(assigned_pod), "LostVfs", f"would be evicted (dry run): {about}, {time}")
            else:
                self._open_evictions[assigned_pod.uid] = _OpenEviction(ending, f"{about}, {time}", now + _RETRY_S)
                yield Evict(pod_reference(assigned_pod), f"{about}, {time}", "LostVfs")

    def _group_of(self, uid: str) -> list[AssignedPod]:
        """Return the pods that are evicted with one: the bound members of its group, unless that can spare it."""
        membership = self._groups.of(uid)
        is_spared = membership is None or (not membership.key.has_pod_group and self._groups.can_spare([uid]))
        uids = [] if is_spared or membership is None else self._groups.placed(membership.key)
        assigned_pods = [
            assigned_pod
            for member_uid in {uid: None, **dict.fromkeys(uids)}
            if (assigned_pod := self._cache.assigned(member_uid))
        ]
        return [assigned_pod for assigned_pod in assigned_pods if not _is_leaving(assigned_pod)]


def _is_leaving(assigned_pod: AssignedPod) -> bool:
    """Return whether a pod is not bound yet, or is being deleted."""
    info = assigned_pod.affinity_info
    return assigned_pod.assumed or (info is not None and info.is_terminating)
