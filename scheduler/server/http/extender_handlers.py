"""Answer each verb of the extender: call `ExtenderPods`, in slices that delay nothing else, and carry out Bindings.

`bind` reads the pod again, so it does not depend on requests to an earlier leader. Its Binding is repeated until the
outcome is definite, like any other. The client gets an error before its own timeout, and the VFs stay reserved.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from mooring.annotations.assignment import verified_assignment
from mooring.errors import AnnotationError
from mooring.http.application import Body
from mooring.kube.answers import check_object
from mooring.kube.failures import KubeError
from scheduler.cycle.decisions import Bind
from scheduler.extender import wire_format
from scheduler.extender.extender_pods import ExtenderPods, Verdict
from scheduler.extender.resource_claims import Claimed
from scheduler.extender.wire_format import Binding, ExtenderArgs, FailedNodes
from scheduler.kube.objects import Pod
from scheduler.kube.outcomes import Outcome, Refused
from scheduler.kube.pod_info import PodInfo
from scheduler.server import metrics
from scheduler.server.bind import bind
from scheduler.server.http.claimed_devices import read_claimed
from scheduler.server.loop import ApiClients, Loop

_T = TypeVar("_T")
# Seconds for which nodes are evaluated before other tasks have their turn.
_SLICE_S = 0.005
# `bind` answers within this many seconds: kube-scheduler waits 5 s for an extender by default.
_ANSWER_S = 4.0
# Seconds: how much earlier than this process kube-scheduler may receive a pod, at most; and the polling interval.
_SHOWN_WITHIN_S, _LOOK_S = 1.0, 0.02
# The messages of the scheduler extension of rit-k8s-rdma.
RIT_BLIND = "RDMA Scheduler Extension: Unable to collect information on available RDMA resources for node."
RIT_FULL = "RDMA Scheduler Extension: Node did not have enough free RDMA resources."
RIT_MALFORMED = "RDMA Scheduler Extension: 'rdma_interfaces_required' field in pod YAML file is malformatted."
_UNALLOCATED = "the pod's VFs must be near its claimed devices, but its resource claims are not allocated"
_decode_pod = msgspec.json.Decoder(Pod).decode
Wording = Callable[[Refused | Verdict], str]


@dataclass(frozen=True, slots=True)
class _UnderWay:
    """A Binding whose outcome is not known yet."""

    node: str
    writing: "asyncio.Task[Outcome]"


class ExtenderHandlers:
    """The handlers of kube-scheduler's requests; ``clock`` is monotonic, in seconds."""

    def __init__(
        self, extender_pods: ExtenderPods, loop: Loop, clients: ApiClients, clock: Callable[[], float]
    ) -> None:
        self._extender_pods = extender_pods
        self._loop = loop
        self._clients = clients
        self._clock = clock
        self._under_way: dict[str, _UnderWay] = {}
        self._turns = asyncio.Lock()

    def standing_by(self) -> str:
        """Return why no request may be answered now; empty if requests may be."""
        return self._loop.standing_by()

    async def filter(self, body: Body) -> bytes:
        """Return which nodes have the VFs that a pod requests."""
        return await self._filter(body, _reason)

    async def filter_as_seeds(self, body: Body) -> bytes:
        """Return the same with the three messages of rit-k8s-rdma."""
        return await self._filter(body, _seed_reason)

    async def prioritize(self, body: Body) -> bytes:
        args = wire_format.read_extender_args(body)
        pod_info = self._extender_pods.read(args.pod)
        if isinstance(pod_info, Refused):
            return wire_format.prioritized(dict.fromkeys(args.nodes, 0))
        return wire_format.prioritized(
            {node: self._extender_pods.score(pod_info, node) async for node in self._in_slices(args.nodes)}
        )

    async def preempt(self, body: Body) -> bytes:
        """Return on which nodes the pod would fit without the victims, and which other pods must be deleted."""
        args = wire_format.read_preemption(body)
        pod_info = self._extender_pods.read(args.pod)
        victims_by_node = dict[str, wire_format.Victims]()
        claimed = await self._claimed(pod_info) if isinstance(pod_info, PodInfo) else None
        if isinstance(pod_info, PodInfo) and not isinstance(claimed, Refused):
            async for node in self._in_slices(args.victims):
                victims = self._extender_pods.make_room(pod_info, node, args.victims[node], self._clock(), claimed)
                victims_by_node |= {node: victims} if victims is not None else {}
        return wire_format.preempted(self._extender_pods.sparing_groups(victims_by_node))

    async def bind(self, body: Body) -> bytes:
        """Bind a pod to the chosen node, with exact VFs."""
        args = wire_format.read_binding(body)
        try:
            async with asyncio.timeout(_ANSWER_S):
                return wire_format.failed(await self._bind(args))
        except TimeoutError:
            return wire_format.failed(
                f"the API server did not answer within {_ANSWER_S:.0f} s: the reservation is kept"
            )
        except KubeError as failed:
            return wire_format.failed(str(failed))

    async def _filter(self, body: Body, word: Wording) -> bytes:
        args = wire_format.read_extender_args(body)
        pod_info = self._extender_pods.read(args.pod)
        if isinstance(pod_info, Refused):
            return wire_format.filtered(args, _nowhere(args, word(pod_info)))
        if fault := self._extender_pods.bound_without_vfs.fault:
            return wire_format.filtered(args, _nowhere(args, fault))
        claimed = await self._claimed(pod_info)
        if isinstance(claimed, Refused):
            return wire_format.filtered(args, _nowhere(args, word(Verdict(claimed.reason))))
        return wire_format.filtered(args, await self._judge(pod_info, args, word, claimed))

    async def _claimed(self, pod_info: PodInfo, node: str | None = None) -> Claimed | Refused | None:
        """Return the devices near which a pod's VFs must be, if they are known, or what is wrong."""
        if pod_info.request is None or pod_info.request.vfs is None:
            return None
        try:
            async with asyncio.timeout(_ANSWER_S):
                return await read_claimed(self._clients.api, pod_info.pod, node)
        except KubeError as failed:
            return Refused(f"the pod's resource claims cannot be read: {failed}")
        except TimeoutError:
            return Refused(f"the pod's resource claims cannot be read: no answer within {_ANSWER_S:.0f} s")

    async def _judge(
        self, pod_info: PodInfo, args: ExtenderArgs, word: Wording, claimed: Claimed | None
    ) -> FailedNodes:
        for_now, for_good = dict[str, str](), dict[str, str]()
        verdicts = self._extender_pods.judge(pod_info, args.nodes, self._clock(), claimed)
        async for node, verdict in self._in_slices(verdicts):
            if verdict.reason:
                (for_good if verdict.for_good else for_now)[node] = word(verdict)
        if len(for_now) + len(for_good) < len(args.nodes):
            self._extender_pods.offer(pod_info)
        return FailedNodes(for_now, for_good)

    async def _in_slices(self, items: Iterable[_T]) -> AsyncIterator[_T]:
        """Yield the items one by one, in slices; after each, other tasks run for as long, however many requests there
        are.
        """
        iterator = iter(items)
        has_more = True
        while has_more:
            has_more = False
            async with self._turns:
                began_s = time.monotonic()
                for item in iterator:
                    yield item
                    if (spent_s := time.monotonic() - began_s) >= _SLICE_S:
                        has_more = True
                        await asyncio.sleep(spent_s)
                        break

    async def _bind(self, args: Binding) -> str:
        """Bind and return why not, empty if bound; a second request during a Binding waits for the same one."""
        under_way: _UnderWay | Refused | None = self._under_way.get(args.uid)
        if under_way is None:
            await self._shown(args.uid)
            pod = await self._read(args)
            if isinstance(claimed := await self._claimed_at_bind(pod, args), Refused):
                return claimed.reason
            # Another request may have started first.
            under_way = self._under_way.get(args.uid) or self._begin(pod, args, claimed)
        if isinstance(under_way, Refused):
            return under_way.reason
        if under_way.node != args.node:
            return f"pod {args.key} is being bound to node {under_way.node!r}"
        outcome = await asyncio.shield(under_way.writing)
        return "" if outcome.kind == "bound" else f"{outcome.kind}: {outcome.reason}"

    async def _shown(self, uid: str) -> None:
        """Wait until the watch has shown a pod, unless it is already deleted."""
        deadline = time.monotonic() + _SHOWN_WITHIN_S
        while not self._extender_pods.knows(uid) and time.monotonic() < deadline:
            await asyncio.sleep(_LOOK_S)

    async def _read(self, args: Binding) -> Pod:
        path = f"/api/v1/namespaces/{args.namespace}/pods/{args.name}"
        try:
            return _decode_pod(check_object("Pod", await self._clients.api.request("GET", path)))
        except msgspec.MsgspecError as unreadable:
            raise wire_format.ProtocolError(f"pod {args.key} cannot be read: {unreadable}") from unreadable

    async def _claimed_at_bind(self, pod: Pod, args: Binding) -> Claimed | Refused | None:
        """Return the devices near which a waiting pod's VFs must be: kube-scheduler allocates claims before
        it binds.
        """
        pod_info = self._extender_pods.read(pod)
        if pod.metadata.uid != args.uid or pod.spec.node_name or isinstance(pod_info, Refused):
            return None
        if pod_info.request is None or pod_info.request.vfs is None:
            return None
        return await self._claimed(pod_info, args.node) or Refused(_UNALLOCATED)

    def _begin(self, pod: Pod, args: Binding, claimed: Claimed | None) -> _UnderWay | Refused:
        """Reserve and start to bind; if there is nothing to bind return why, empty if the pod is bound as requested."""
        if reason := self.standing_by():
            return Refused(f"this scheduler {reason}")
        if pod.metadata.uid != args.uid:
            return Refused(f"pod {args.key} now has the uid {pod.metadata.uid!r}, not {args.uid!r}")
        pod_info = self._extender_pods.read(pod)
        if isinstance(pod_info, Refused):
            return pod_info
        if pod.spec.node_name:
            return Refused(_bound_already(pod_info, args.node))
        decision = self._extender_pods.reserve(pod_info, args.node, self._clock(), claimed)
        if isinstance(decision, Refused):
            return decision
        under_way = self._under_way[args.uid] = _UnderWay(args.node, self._loop.writes.start(self._write(decision)))
        return under_way

    async def _write(self, decision: Bind) -> Outcome:
        try:
            outcome = await bind(self._clients.leaders, decision)
        finally:
            del self._under_way[decision.pod_info.uid]
        self._extender_pods.ended(decision, outcome, self._clock())
        metrics.BINDS.labels(outcome.kind).inc()
        return outcome


def _nowhere(args: ExtenderArgs, reason: str) -> FailedNodes:
    return FailedNodes({}, dict.fromkeys(args.nodes, reason))


def _bound_already(pod_info: PodInfo, node: str) -> str:
    """Return what is wrong with a pod that has a node; empty if it has this node, and what it requests."""
    pod = pod_info.pod
    if pod.spec.node_name != node:
        return f"pod {pod.key} is bound to node {pod.spec.node_name!r}"
    try:
        assignment = verified_assignment(pod.annotations, pod_info.uid, node)
    except AnnotationError as unreadable:
        return str(unreadable)
    return (
        ""
        if assignment is not None or not (pod_info.interfaces or pod_info.wishes)
        else f"pod {pod.key} was bound without VFs"
    )


def _reason(verdict: Refused | Verdict) -> str:
    return verdict.reason


def _seed_reason(verdict: Refused | Verdict) -> str:
    if isinstance(verdict, Refused):
        return RIT_MALFORMED
    return RIT_BLIND if verdict.blind else RIT_FULL
