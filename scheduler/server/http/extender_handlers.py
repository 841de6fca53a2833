"""Answer each verb of the extender: call `ExtenderPods`, in slices that delay nothing else, and carry out Bindings.

`bind` reads the pod again, so it does not depend on requests to an earlier leader. Its Binding is repeated until the
outcome is definite, like any other. The client gets an error before its own timeout, and the VFs stay reserved.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable
from typing import NamedTuple, TypeVar

import msgspec

from mooring.annotations.assignment import verified_assignment
from mooring.errors import AnnotationError
from mooring.http.application import Body
from mooring.kube.answers import check_object
from mooring.kube.failures import KubeError
from scheduler.cycle.decisions import Bind
from scheduler.extender import wire_format
from scheduler.extender.extender_pods import ExtenderPods, Verdict
from scheduler.extender.resource_claims import ClaimedDevices
from scheduler.extender.wire_format import Binding, ExtenderArgs
from scheduler.kube.objects import Pod
from scheduler.kube.outcomes import Outcome, Refused
from scheduler.kube.pod_info import PodInfo
from scheduler.server import metrics
from scheduler.server.http.claimed_devices import read_claimed_devices
from scheduler.server.loop import ApiClients, Loop
from scheduler.server.writes import bind

_T = TypeVar("_T")
# Seconds for which nodes are evaluated before other tasks have their turn.
_SLICE_S = 0.005
# `bind` answers within this many seconds: kube-scheduler waits 5 s for an extender by default.
_ANSWER_S = 4.0
# Seconds: how much earlier than this process kube-scheduler may receive a pod, at most; and the polling interval.
_WATCH_DELAY_S, _POLL_S = 1.0, 0.02
# The messages of the scheduler extension of rit-k8s-rdma.
RIT_BLIND = "RDMA Scheduler Extension: Unable to collect information on available RDMA resources for node."
RIT_FULL = "RDMA Scheduler Extension: Node did not have enough free RDMA resources."
RIT_INVALID = "RDMA Scheduler Extension: 'rdma_interfaces_required' field in pod YAML file is malformatted."
_NO_ALLOCATION = "the pod's VFs must be near its claimed devices, but its resource claims are not allocated"
_decode_pod = msgspec.json.Decoder(Pod).decode
ReasonText = Callable[[Refused | Verdict], str]


class _OpenBinding(NamedTuple):
    """A Binding whose outcome is not known yet."""

    node: str
    task: "asyncio.Task[Outcome]"


class ExtenderHandlers:
    """The handlers of kube-scheduler's requests; ``clock`` is monotonic, in seconds."""

    def __init__(
        self, extender_pods: ExtenderPods, loop: Loop, clients: ApiClients, clock: Callable[[], float]
    ) -> None:
        self._extender_pods, self._loop, self._clients, self._clock = extender_pods, loop, clients, clock
        # Why no request may be answered now; empty if requests may be.
        self.standing_by = loop.standing_by
        self._open_bindings: dict[str, _OpenBinding] = {}
        self._turns = asyncio.Lock()

    async def filter(self, body: Body) -> bytes:
        """Return which nodes have the VFs that a pod requests."""
        return await self._filter(body, lambda verdict: verdict.reason)

    async def rdma_scheduling(self, body: Body) -> bytes:
        """Return the same with the three messages of rit-k8s-rdma."""
        return await self._filter(body, _rit_reason)

    async def prioritize(self, body: Body) -> bytes:
        args = wire_format.read_extender_args(body)
        pod_info = self._extender_pods.read(args.pod)
        if isinstance(pod_info, Refused):
            return wire_format.host_priorities(dict.fromkeys(args.nodes, 0))
        return wire_format.host_priorities(
            {node: self._extender_pods.score(pod_info, node) async for node in self._in_slices(args.nodes)}
        )

    async def preempt(self, body: Body) -> bytes:
        """Return on which nodes the pod would fit without the victims, and which other pods must be deleted."""
        args = wire_format.read_preemption(body)
        pod_info = self._extender_pods.read(args.pod)
        victims_by_node = dict[str, wire_format.Victims]()
        devices = await self._claimed_devices(pod_info) if isinstance(pod_info, PodInfo) else None
        if isinstance(pod_info, PodInfo) and not isinstance(devices, Refused):
            async for node in self._in_slices(args.victims):
                victims = self._extender_pods.make_room(pod_info, node, args.victims[node], self._clock(), devices)
                if victims is not None:
                    victims_by_node[node] = victims
        return wire_format.preemption_result(self._extender_pods.spare_groups(victims_by_node))

    async def bind(self, body: Body) -> bytes:
        """Bind a pod to the chosen node, with exact VFs."""
        args = wire_format.read_binding(body)
        try:
            async with asyncio.timeout(_ANSWER_S):
                return wire_format.error_result(await self._bind(args))
        except TimeoutError:
            return wire_format.error_result(
                f"the API server did not answer within {_ANSWER_S:.0f} s: the reservation is kept"
            )
        except KubeError as error:
            return wire_format.error_result(str(error))

    async def _filter(self, body: Body, text_of: ReasonText) -> bytes:
        args = wire_format.read_extender_args(body)
        pod_info = self._extender_pods.read(args.pod)
        if isinstance(pod_info, Refused):
            return _reject_all(args, text_of(pod_info))
        if fault := self._extender_pods.bound_without_vfs.fault:
            return _reject_all(args, fault)
        devices = await self._claimed_devices(pod_info)
        if isinstance(devices, Refused):
            return _reject_all(args, text_of(Verdict(devices.reason)))
        failures, unresolvable = dict[str, str](), dict[str, str]()
        verdicts = self._extender_pods.judge(pod_info, args.nodes, self._clock(), devices)
        async for node, verdict in self._in_slices(verdicts):
            if verdict.reason:
                (unresolvable if verdict.for_good else failures)[node] = text_of(verdict)
        if len(failures) + len(unresolvable) < len(args.nodes):
            self._extender_pods.offer(pod_info)
        return wire_format.filter_result(args, failures, unresolvable)

    async def _claimed_devices(self, pod_info: PodInfo, node: str | None = None) -> ClaimedDevices | Refused | None:
        """Return the devices near which a pod's VFs must be, if they are known, or what is wrong."""
        if pod_info.request is None or pod_info.request.vfs is None:
            return None
        try:
            async with asyncio.timeout(_ANSWER_S):
                devices = await read_claimed_devices(self._clients.api, pod_info.pod, node)
        except KubeError as error:
            return Refused(f"the pod's resource claims cannot be read: {error}")
        except TimeoutError:
            return Refused(f"the pod's resource claims cannot be read: no answer within {_ANSWER_S:.0f} s")
        # kube-scheduler allocates claims before it binds.
        return Refused(_NO_ALLOCATION) if devices is None and node is not None else devices

    async def _in_slices(self, items: Iterable[_T]) -> AsyncIterator[_T]:
        """Yield the items one by one, in slices; after each slice, other tasks run for as long."""
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
        if args.uid not in self._open_bindings:
            await self._wait_for_watch(args.uid)
            pod_info = await self._read(args)
            if isinstance(pod_info, Refused):
                return pod_info.reason
            devices = await self._claimed_devices(pod_info, args.node)
            if isinstance(devices, Refused):
                return devices.reason
            # Another request may have started first.
            if args.uid not in self._open_bindings and (reason := self._begin(pod_info, args, devices)):
                return reason
        open_binding = self._open_bindings[args.uid]
        if open_binding.node != args.node:
            return f"pod {args.key} is being bound to node {open_binding.node!r}"
        outcome = await asyncio.shield(open_binding.task)
        return "" if outcome.kind == "bound" else f"{outcome.kind}: {outcome.reason}"

    async def _wait_for_watch(self, uid: str) -> None:
        """Wait until the watch has shown a pod, unless it is already deleted."""
        deadline = time.monotonic() + _WATCH_DELAY_S
        while not self._extender_pods.knows(uid) and time.monotonic() < deadline:
            await asyncio.sleep(_POLL_S)

    async def _read(self, args: Binding) -> PodInfo | Refused:
        """Return the pod to bind, or why there is nothing to bind; empty if the pod is bound as requested."""
        path = f"/api/v1/namespaces/{args.namespace}/pods/{args.name}"
        try:
            pod = _decode_pod(check_object("Pod", await self._clients.api.request("GET", path)))
        except msgspec.MsgspecError as unreadable:
            raise wire_format.ProtocolError(f"pod {args.key} cannot be read: {unreadable}") from unreadable
        if pod.metadata.uid != args.uid:
            return Refused(f"pod {args.key} now has the uid {pod.metadata.uid!r}, not {args.uid!r}")
        pod_info = self._extender_pods.read(pod)
        if isinstance(pod_info, Refused) or not pod.spec.node_name:
            return pod_info
        return Refused(_binding_difference(pod_info, args.node))

    def _begin(self, pod_info: PodInfo, args: Binding, devices: ClaimedDevices | None) -> str:
        """Reserve and start to bind; return why not, empty if it has started."""
        if reason := self.standing_by():
            return f"this scheduler {reason}"
        decision = self._extender_pods.reserve(pod_info, args.node, self._clock(), devices)
        if isinstance(decision, Refused):
            return decision.reason
        self._open_bindings[args.uid] = _OpenBinding(args.node, self._loop.writes.start(self._write(decision)))
        return ""

    async def _write(self, decision: Bind) -> Outcome:
        try:
            outcome = await bind(self._clients.leaders, decision)
        finally:
            del self._open_bindings[decision.pod_info.uid]
        self._extender_pods.finish(decision, outcome, self._clock())
        metrics.BINDS.labels(outcome.kind).inc()
        return outcome


def _reject_all(args: ExtenderArgs, reason: str) -> bytes:
    return wire_format.filter_result(args, {}, dict.fromkeys(args.nodes, reason))


def _binding_difference(pod_info: PodInfo, node: str) -> str:
    """Return what is wrong with a pod that has a node; empty if it has this node, and what it requests."""
    pod = pod_info.pod
    if pod.spec.node_name != node:
        return f"pod {pod.key} is bound to node {pod.spec.node_name!r}"
    try:
        assignment = verified_assignment(pod.annotations, pod_info.uid, node)
    except AnnotationError as unreadable:
        return str(unreadable)
    has_all = assignment is not None or not (pod_info.interfaces or pod_info.wishes)
    return "" if has_all else f"pod {pod.key} was bound without VFs"


def _rit_reason(verdict: Refused | Verdict) -> str:
    if isinstance(verdict, Refused):
        return RIT_INVALID
    return RIT_BLIND if verdict.blind else RIT_FULL
