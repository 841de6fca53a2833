"""A simulated scheduler process: the program itself, from its `_run` down, with a recorder in the machine."""

from __future__ import annotations

import asyncio
import contextvars
import traceback
from collections.abc import Set
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mooring.kube.access import Access
from scheduler.__main__ import Config, _run
from scheduler.cycle.cycle import RecordPhase, ignore_phase
from scheduler.cycle.decisions import Bind
from scheduler.cycle.instructions import DeleteVictims, Instruction, PreBind
from scheduler.extender.extender_pods import ExtenderPods
from scheduler.extender.resource_claims import ClaimedDevices
from scheduler.kube.outcomes import Outcome, Refused
from scheduler.kube.pod_info import PodInfo
from scheduler.pending.groups.pending_groups import GroupOptions
from scheduler.server.leader import LeadershipLoss
from scheduler.state.machine import Machine
from tests.scheduler.constraints.life import BOXES
from tests.scheduler.simulation.clock import PROCESS

if TYPE_CHECKING:
    from tests.scheduler.simulation.world import World

# Times that are over in many runs.
_GROUP_OPTIONS = GroupOptions(hold_s=20.0, end_half_s=60.0)


@dataclass(frozen=True, slots=True)
class Decision:
    """What a process decided about a pod, and when."""

    process: str
    node: str
    annotations: dict[str, str]
    at: float


def ordered(uid: str) -> str:
    """Return the name of the decision that a pod has to go."""
    return f"{uid} goes"


class _Recorded(Machine):
    """A machine whose decisions are recorded."""

    scheduler: Scheduler

    def step(self, now: float, record_phase: RecordPhase = ignore_phase) -> list[Instruction] | None:
        going, scheduler = frozenset(self.state.removals), self.scheduler
        instructions = super().step(now, record_phase)
        made = instructions or ()
        placed = [one if isinstance(one, Bind) else one.decision for one in made if isinstance(one, Bind | PreBind)]
        waiting = [bind for batch in self.binding_cycle._batches.values() for bind in batch.binds.values()]
        decided = {bind.pod_info.uid: bind for bind in (*placed, *waiting) if scheduler.is_new(bind)}
        scheduler.world.jobs.decide(self, list(decided.values()))
        scheduler.record(*decided.values())
        for one in made:
            if isinstance(one, DeleteVictims):
                scheduler.record_order(self, one, going)
        return instructions

    def tick(self, now: float) -> list[Instruction]:
        instructions = super().tick(now)
        self.scheduler.record(*(one for one in instructions if isinstance(one, Bind)))
        return instructions


class RecordedExtenderPods(ExtenderPods):
    """The decisions for kube-scheduler, recorded as well."""

    def reserve(
        self, pod_info: PodInfo, node: str, now: float, devices: ClaimedDevices | None = None
    ) -> Bind | Refused:
        decision = super().reserve(pod_info, node, now, devices)
        if isinstance(decision, Bind):
            _RUNNING.get().record(decision)
        return decision

    def finish(self, decision: Bind, outcome: Outcome, now: float) -> None:
        super().finish(decision, outcome, now)
        assigned = self.cache.assigned(decision.pod_info.uid)
        assert assigned is None or not assigned.assumed, (
            f"what {assigned.pod} had reserved outlives its bind: {outcome}"
        )


@dataclass
class Scheduler:
    """One process, from its start to its end; its world sees each decision when it is made."""

    name: str
    world: World
    machine: Machine | None = None
    failure: str = ""
    # The Bind that was recorded last, by uid: one that waits for volumes, a group's others too, comes a second time.
    recorded: dict[str, Bind] = field(default_factory=dict)

    def start(self) -> None:
        context = contextvars.copy_context()
        context.run(PROCESS.set, self.name)
        context.run(_RUNNING.set, self)
        self.task = self.world.loop.create_task(self._main(), context=context)
        self.task.add_done_callback(self._finish, context=contextvars.copy_context())

    def _finish(self, task: asyncio.Task[None]) -> None:
        self.world.loop.cancel(self.name)
        failed = None if task.cancelled() else task.exception()
        if isinstance(failed, BaseExceptionGroup):
            failed = failed.split(LeadershipLoss)[1]
        self.failure = "".join(traceback.format_exception(failed)) if failed is not None else ""

    async def _main(self) -> None:
        await _run(Config(metrics_addr="", extender_addr=":8888"), Access("http://10.0.0.1:6443"))

    def record(self, *decisions: Bind) -> None:
        """Show decisions when they are made: what the node offers later does not count."""
        for one in filter(self.is_new, decisions):
            self.recorded[one.pod_info.uid] = one
            self._decide(one.pod_info.uid, one.assigned.node, dict(one.annotations))

    def is_new(self, decision: Bind) -> bool:
        return self.recorded.get(decision.pod_info.uid) is not decision

    def record_order(self, machine: Machine, order: DeleteVictims, going: Set[str]) -> None:
        self.world.preempt(self.name, machine, order, going)
        for assigned in order.victims:
            ranks = {"above": str(order.pod.spec.priority), "below": str(assigned.priority)}
            self._decide(ordered(assigned.uid), order.node, ranks)

    def _decide(self, uid: str, node: str, annotations: dict[str, str]) -> None:
        self.world.decided(uid, Decision(self.name, node, annotations, self.world.loop.time()))


_RUNNING: ContextVar[Scheduler] = ContextVar("running")


def machine(*arguments: Any, **options: Any) -> Machine:
    """Stand in for `Machine` where the program makes its own."""
    scheduler = _RUNNING.get()
    # So few nodes are examined in a step that a search for victims takes several, though the nodes are few.
    own = {"kinds": BOXES, "portion": 3, "group_options": _GROUP_OPTIONS}
    scheduler.machine = recorded = _Recorded(*arguments, **(options | own))
    recorded.scheduler = scheduler
    return recorded
