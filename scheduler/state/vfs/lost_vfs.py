"""Running pods whose node no longer has their VFs, or whose PF is down: evicted if the operator enables it. Pure.

Such a pod continues without its network, and so does its job: nothing else in the cluster ends it. A pod is due if a
fresh inventory contradicts its assignment, or shows its PF down, without a break for `LostVfOptions.after_s`. Its group
is evicted with it, because ranks wait for each other. So that a failed switch does not empty a cluster, at most
`per_minute` pods without a group, or groups, are evicted in a minute; the others stay due. Nodes take turns, so that a
node whose pods all lose their VFs, or whose inventory is wrong, does not use up the limit.

An eviction that the API server rejects is ordered again. If the VFs come back before any pod of a group is evicted, all
of them stay.

If the inventory is not fresh, the time starts again. `scheduler.state.vfs.claimed_vfs` handles pods that never
started.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from math import inf

from scheduler.cache.assigned_pod import AssignedPod, pod_reference
from scheduler.cache.node_info import NodeInfo
from scheduler.cycle.instructions import EVICTION_RETRY_S, Evict, Instruction, Order, Report, Result
from scheduler.cycle.preemption.potential_victims import PotentialVictims
from scheduler.pending.part import Part, PodChange
from scheduler.state.shared_state import SharedState
from scheduler.state.vfs.claimed_vfs import NodeClaims, UnstartedPods

# Number of attempts to evict: after that, the rest of the group may be whole again with new members.
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
    """Why a pod has lost its VFs, and when it is evicted; infinite once that is ordered or, in a dry run, reported."""

    reason: str
    node: str
    due: float


@dataclass(slots=True)
class _Disruption:
    """The pods that are evicted together because the pod ``cause`` has lost VFs, by uid with their reasons.

    ``has_begun`` once one of them is gone or evicted. The others are evicted again when ``due``.
    """

    cause: str
    due: float
    reasons: dict[str, str] = field(default_factory=dict)
    attempts: int = _ATTEMPTS - 1
    has_begun: bool = False


class LostVfs(Part):
    """The running pods that are due, by uid."""

    def __init__(self, state: SharedState, unstarted_pods: UnstartedPods, options: LostVfOptions) -> None:
        self._cache, self._groups = state.cache, state.group_cache
        self._unstarted_pods, self._options = unstarted_pods, options
        self._losses: dict[str, _Loss] = {}
        self._disruptions: list[_Disruption] = []
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
            self._judge(change.assigned_pod, NodeClaims(self._cache.node(change.assigned_pod.node)), now)
        return ()

    def _judge(self, assigned_pod: AssignedPod, claims: NodeClaims, now: float) -> None:
        uid, assignment = assigned_pod.uid, assigned_pod.assignment
        is_running = not (_is_leaving(assigned_pod) or uid in self._unstarted_pods)
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
        self._end_eviction(uid)

    def finished(self, order: Order, result: Result, now: float) -> Iterable[Instruction]:
        if isinstance(order, Evict) and result != "refused":
            self._end_eviction(order.pod.metadata.uid)
        return ()

    def _end_eviction(self, uid: str) -> None:
        for disruption in self._disruptions:
            disruption.has_begun |= disruption.reasons.pop(uid, None) is not None
        self._disruptions = [disruption for disruption in self._disruptions if disruption.reasons]

    def tick(self, now: float) -> Iterator[Instruction]:
        if now < self._next_check:
            return
        yield from self._retry_evictions(now)
        self._eviction_times = [time for time in self._eviction_times if time > now - _MINUTE_S]
        for uid in self._in_turns(now):
            if len(self._eviction_times) >= self._options.per_minute:
                break
            # Skip pods that were evicted together with another member of their group.
            if self._losses[uid].due < inf:
                self._eviction_times.append(now)
                self._last_evictions[self._losses[uid].node] = now
                yield from self._disrupt(uid, now)
        self._next_check = self._next(now)

    def next_due(self) -> float | None:
        return None if self._next_check == inf else self._next_check

    def _in_turns(self, now: float) -> list[str]:
        """Return those that are due, one of each node in turn: first of nodes without one, or with the oldest one."""
        due = sorted((loss.due, uid) for uid, loss in self._losses.items() if loss.due <= now)
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
        due = min((loss.due for loss in self._losses.values()), default=inf)
        if due <= now:
            due = self._eviction_times[0] + _MINUTE_S if self._eviction_times else inf
        return min([due, *(disruption.due for disruption in self._disruptions)])

    def _retry_evictions(self, now: float) -> Iterator[Evict]:
        """Order again what the API server has rejected, unless the VFs are back before any pod of a group is gone."""
        for disruption in [disruption for disruption in self._disruptions if disruption.due <= now]:
            cause = self._losses.get(disruption.cause)
            is_lost = disruption.has_begun or (cause is not None and cause.due == inf)
            for loss in (self._losses.get(uid) for uid in disruption.reasons if not is_lost):
                if loss is not None:
                    # The time of members that have lost VFs of their own starts now.
                    loss.due = now + self._options.after_s
            pods = [(self._cache.assigned(uid), reason) for uid, reason in disruption.reasons.items()]
            evictions = [
                Evict(pod_reference(assigned_pod), reason, "LostVfs")
                for assigned_pod, reason in pods
                if assigned_pod is not None and not _is_leaving(assigned_pod)
            ]
            if not evictions or not disruption.attempts or not is_lost:
                self._disruptions.remove(disruption)
                continue
            disruption.due, disruption.attempts = now + EVICTION_RETRY_S, disruption.attempts - 1
            yield from evictions

    def _disrupt(self, uid: str, now: float) -> Iterator[Instruction]:
        lost_pod, reason = self._cache.assigned(uid), self._losses[uid].reason
        assert lost_pod is not None, f"{uid} has lost VFs and is on no node"
        time, disruption = f"for {self._options.after_s:g} s", _Disruption(uid, now + EVICTION_RETRY_S)
        for assigned_pod in self._group_of(uid):
            if (loss := self._losses.get(assigned_pod.uid)) is not None:
                loss.due = inf
            about = reason if assigned_pod is lost_pod else f"pod {lost_pod.pod} of the same group: {reason}"
            if self._options.dry_run:
                yield Report(pod_reference(assigned_pod), "LostVfs", f"would be evicted (dry run): {about}, {time}")
            else:
                # Of several losses of a pod, only the newest counts.
                for older_disruption in self._disruptions:
                    older_disruption.reasons.pop(assigned_pod.uid, None)
                disruption.reasons[assigned_pod.uid] = f"{about}, {time}"
                yield Evict(pod_reference(assigned_pod), f"{about}, {time}", "LostVfs")
        self._disruptions.append(disruption)
        self._disruptions = [disruption for disruption in self._disruptions if disruption.reasons]

    def _group_of(self, uid: str) -> list[AssignedPod]:
        """Return the pods that are evicted with one: the bound members of its group, unless that can spare it."""
        membership, victims = self._groups.of(uid), PotentialVictims(self._cache, self._groups)
        is_spared = membership is None or (not membership.key.has_pod_group and victims.can_spare([uid]))
        uids = [] if is_spared or membership is None else self._groups.placed(membership.key)
        assigned_pods = map(self._cache.assigned, dict.fromkeys([uid, *uids]))
        return [pod for pod in assigned_pods if pod is not None and not _is_leaving(pod)]


def _is_leaving(assigned_pod: AssignedPod) -> bool:
    """Return whether a pod is not bound yet, or is being deleted."""
    info = assigned_pod.affinity_info
    return assigned_pod.assumed or (info is not None and info.is_terminating)
