"""A life of the machine in virtual time: documents in, and a line for each decision out.

Writes succeed at once, victims are gone in the next moment, and nothing depends on a clock. A line has what was decided
about a pod: its node, VFs and units; the node and the victims of a nomination; or why it waits. A line that repeats the
last one about its pod is left out.
"""

from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from mooring import names
from mooring.annotations.assignment import Assignment, read_assignment
from mooring.annotations.rates import RatesInForce, dump_rates_in_force
from mooring.kube.events import Changed, Identity, Removed
from mooring.parsing import dump
from scheduler.constraints.kinds import NONE, Kinds
from scheduler.cycle.decisions import Bind
from scheduler.cycle.instructions import (
    DeleteVictims,
    DeleteVictimsResult,
    Evict,
    Instruction,
    Report,
    ReportRates,
    WriteRates,
    WriteRatesResult,
)
from scheduler.kube.objects import Node as ApiNode
from scheduler.kube.objects import Pod
from scheduler.kube.outcomes import BOUND
from scheduler.kube.selecting_objects import PodDisruptionBudget
from scheduler.state.machine import Machine
from tests.scheduler.decisions.documents import Json, Node

# Seconds of virtual time from one round to the next: longer than the longest backoff. So many rounds are enough for a
# pod to be nominated, for its victims to go, and for it to be bound.
_ROUND_S, _ROUNDS = 20.0, 4
_TERMINATING: Json = {"conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}]}


@dataclass
class Replay:
    """The API server, the kubelets and the users of a machine."""

    nodes: Mapping[str, Node]
    kinds: Kinds = NONE
    lines: list[str] = field(default_factory=list)
    # By pod those that had to go for it, and where pods run.
    victims_of: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    bound: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.machine = Machine(names.SCHEDULER_NAME, kinds=self.kinds)
        self._now, self._version, self._started = 0.0, 0, 0
        self._pods: dict[str, Json] = {}
        # By node and uid the generation of rates that is in force.
        self._in_force: dict[str, dict[str, int]] = defaultdict(dict)
        self._last: dict[str, str] = {}
        self._todo: deque[Instruction] = deque()
        for name in self.nodes:
            self._show_node(name)

    def budget(self, name: str, app: str, allowed: int) -> None:
        """Create a PodDisruptionBudget that allows so many disruptions of an app."""
        document = {
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"selector": {"matchLabels": {"app": app}}},
            "status": {"disruptionsAllowed": allowed},
        }
        budget = msgspec.convert(document, PodDisruptionBudget)
        self._todo += self.machine.handle(PodDisruptionBudget, Changed(Identity(name, "default"), budget), self._now)

    def create(self, document: Json) -> None:
        self._show(document)

    def delete(self, name: str) -> None:
        if (document := self._pods.pop(name, None)) is not None:
            self.bound.pop(name, None)
            self._todo += self.machine.pods(Removed(_identity(document)), self._now)

    def edit(self, name: str, request: Sequence[Json]) -> None:
        """Change the interfaces of a pod that runs."""
        if name in self.bound:
            self._annotate(name, {names.REQUEST: dump(list(request))})

    def put_in_force(self, name: str) -> None:
        """Let a pod's node put in force what is allocated to it."""
        document = self._pods.get(name)
        if document is None or (text := document["metadata"]["annotations"].get(names.RATES)) is None:
            return
        node = self.bound[name]
        self._in_force[node][document["metadata"]["uid"]] = msgspec.json.decode(text)["generation"]
        self._show_node(node)

    def settle(self) -> None:
        """Let time pass until everything that comes of the last events is decided and done."""
        for _ in range(_ROUNDS):
            self._now += _ROUND_S
            self._todo += self.machine.tick(self._now)
            self._carry_out()
            while (made := self.machine.step(self._now)) is not None:
                self._todo += made
                self._carry_out()
            self._todo += self.machine.tick(self._now)
            self._carry_out()
        self.machine.check()

    def _carry_out(self) -> None:
        while self._todo:
            self._do(self._todo.popleft())

    def _do(self, one: Instruction) -> None:
        match one:
            case Bind():
                self._bind(one)
            case DeleteVictims():
                self._delete_victims(one)
            case Evict():
                self._line(one.pod.metadata.name, f"evicted {one.cause}")
                self._todo += self.machine.finished(one, "evicted", self._now)
                self.delete(one.pod.metadata.name)
            case WriteRates():
                name, rates = one.pod.metadata.name, [[r.min_tx_rate, r.max_tx_rate] for r in one.rates.rates]
                self._line(name, f"rates {one.rates.generation} {dump(rates)} {dump(list(one.rates.reserved))}")
                self._todo += self.machine.finished(one, WriteRatesResult("written"), self._now)
                self._annotate(name, one.annotations)
            case ReportRates():
                self._line(one.pod.metadata.name, f"{one.reason} {one.message}")
            case Report(reason="Unschedulable" | "InvalidRequest"):
                self._line(one.pod.metadata.name, _short(one.message))

    def _bind(self, one: Bind) -> None:
        name, node = one.pod_info.pod.metadata.name, one.assigned.node
        self.bound[name] = node
        text = one.annotations.get(names.ASSIGNMENT)
        self._line(name, f"{node} {_devices(read_assignment(text))}" if text else node)
        self._todo += self.machine.finished(one, BOUND, self._now)
        document = self._pods[name]
        document["spec"] |= {"nodeName": node}
        # Each starts a second after the one before: victims are chosen by that too.
        self._started += 1
        document["status"] |= {"startTime": f"2026-01-01T02:{self._started // 60:02}:{self._started % 60:02}Z"}
        self._annotate(name, one.annotations)

    def _delete_victims(self, one: DeleteVictims) -> None:
        victims = sorted(assigned.uid.removeprefix("uid-") for assigned in one.victims)
        name = one.pod.metadata.name
        self.victims_of[name].update(victims)
        self._line(name, f"nominated {one.node} for {' '.join(victims)}")
        self._todo += self.machine.finished(one, DeleteVictimsResult(one.victims), self._now)
        for victim in (victim for victim in victims if victim in self._pods):
            document = self._pods[victim]
            document["metadata"] |= {"deletionTimestamp": "2026-01-01T01:00:00Z"}
            self._show(document | {"status": _TERMINATING})
            self.delete(victim)

    def _annotate(self, name: str, annotations: Mapping[str, str]) -> None:
        document = self._pods[name]
        document["metadata"]["annotations"] |= annotations
        self._show(document)

    def _show(self, document: Json) -> None:
        self._version += 1
        document["metadata"]["resourceVersion"] = str(self._version)
        self._pods[document["metadata"]["name"]] = document
        self._todo += self.machine.pods(Changed(_identity(document), msgspec.convert(document, Pod)), self._now)

    def _show_node(self, name: str) -> None:
        document = self.nodes[name].document(dump_rates_in_force(RatesInForce(self._in_force[name])))
        self._todo += self.machine.nodes(Changed(Identity(name), msgspec.convert(document, ApiNode)), self._now)

    def _line(self, name: str, text: str) -> None:
        if self._last.get(name) != text:
            self._last[name] = text
            self.lines.append(f"{name} {text}")


def _identity(document: Json) -> Identity:
    metadata = document["metadata"]
    return Identity(metadata["name"], metadata["namespace"], metadata["uid"])


def _devices(assignment: Assignment) -> str:
    """Return VFs as ``<PF's number>.<VF>``, and units by kind."""
    vfs = [f"{vf.pf.removeprefix('pf')}.{vf.vf}" for vf in assignment.vfs]
    sections = [(kind, section) for kind, section in sorted(assignment.ext.items()) if isinstance(section, Mapping)]
    units = [f"{kind} {dump(section['units'])}" for kind, section in sections]
    return " ".join([*vfs, *units])


def _short(message: str) -> str:
    """Return why a pod waits, without the words that all such messages share."""
    return message.replace("nodes are available: ", "").replace("No preemption victims found for incoming pod.", "-")
