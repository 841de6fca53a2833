"""A node with one PF, and pods there whose rates change."""

import json
from typing import Any

import msgspec

from mooring import names
from mooring.annotations.rates import PodRates, RatesInForce, dump_rates_in_force
from scheduler.cycle.decisions import Bind
from scheduler.cycle.instructions import Instruction, Report, ReportRates, WriteRates, WriteRatesResult
from scheduler.kube.objects import Condition, Pod
from scheduler.state.rates.pod_rates import CONDITION
from tests.scheduler.group_life import Life, as_bound, binds
from tests.scheduler.state.steps import remove, steps

WRITTEN = WriteRatesResult("written")
IN_FORCE = ("InForce", "in force on node n1: set, and read back from the PF")
ONLY_RATES = "only min_tx_rate and max_tx_rate can change once the pod has a node"


class EditedRates:
    """A node n1 with one PF of 90,000 Mb/s, and pods there; time goes on by itself."""

    def __init__(self, life: Life) -> None:
        self.life, self.machine = life, life.machine
        self.now = 0.0
        self._version = 0
        self.pods: dict[str, Pod] = {}
        self.in_force: dict[str, int] | None = {}
        # Whether its inventory says that it changes rates.
        self.says_rates = True
        self.show_node()

    def show_node(self, *, allocatable: dict[str, str] | None = None, **pf: Any) -> None:
        text = None if self.in_force is None else dump_rates_in_force(RatesInForce(self.in_force))
        annotations = {} if text is None else {names.RATES_IN_FORCE: text}
        node = {"annotations": annotations, "rates": self.says_rates, "allocatable": allocatable or {}}
        self.life.now = self.now
        self.life.show_node("n1", self.life.make_pf(**pf), **node)

    def put_in_force(self, name: str, generation: int) -> None:
        assert self.in_force is not None
        self.in_force[self.pods[name].metadata.uid] = generation
        self.show_node()

    def forget_in_force(self) -> None:
        """Let the node say that no changed rates are in force."""
        self.in_force = {}
        self.show_node()

    def support(self, *, says_rates: bool) -> None:
        """Let an advertiser run that changes rates, or an older one."""
        self.says_rates = says_rates
        self.show_node()

    def new(self, name: str, *interfaces: dict[str, Any], **fields: Any) -> Pod:
        return self.life.make_pod(name, list(interfaces), **fields)

    def see(self, *pods: Pod) -> list[Bind]:
        """Let pods come; return what is bound then."""
        self.life.see(*pods, now=self.now)
        return self.binds()

    def binds(self) -> list[Bind]:
        return binds(steps(self.machine, self.now))

    def bound(self, name: str, *interfaces: dict[str, Any], **fields: Any) -> Pod:
        """Let a pod be bound with these interfaces."""
        (bind,) = self.see(self.new(name, *interfaces, **fields))
        return self.show(as_bound(bind))

    def change(self, before_mbps: int, after_mbps: int) -> None:
        """Let pod p be bound with a min_tx_rate, and be edited."""
        self.bound("p", {"min_tx_rate": before_mbps})
        self.edit("p", {"min_tx_rate": after_mbps})

    def remove(self, name: str) -> None:
        remove(self.machine, self.pods[name], self.now)

    def show(self, pod: Pod) -> Pod:
        """Let the watch show a pod in a new version."""
        self._version += 1
        pod.metadata.resource_version = str(self._version)
        self.pods[pod.metadata.name] = pod
        self.life.see(pod, now=self.now)
        return pod

    def edit(self, name: str, *interfaces: dict[str, Any]) -> None:
        self.annotate(name, {names.REQUEST: json.dumps(interfaces)})

    def annotate(self, name: str, annotations: dict[str, str | None]) -> None:
        """Set annotations of a pod; None removes one."""
        pod = msgspec.convert(msgspec.to_builtins(self.pods[name]), Pod)
        changed = {**pod.annotations, **annotations}
        pod.metadata.annotations = {key: text for key, text in changed.items() if text is not None}
        self.show(pod)

    def tell(self, name: str, reason: str, message: str) -> None:
        """Let the watch show a pod with a condition."""
        pod = msgspec.convert(msgspec.to_builtins(self.pods[name]), Pod)
        pod.status.conditions = [Condition(CONDITION, "True" if reason == "InForce" else "False", reason, message)]
        self.show(pod)

    def decide(self) -> list[Instruction]:
        """Let a leader do all that is due now."""
        found: list[Instruction] = []
        for _ in range(20):
            found += self.machine.tick(self.now)
        self.machine.check()
        return found

    def writes(self) -> list[WriteRates]:
        return [one for one in self.decide() if isinstance(one, WriteRates)]

    def write(self) -> PodRates:
        """Let one write be decided and carried out; return it."""
        (order,) = self.writes()
        self.carry_out(order)
        return order.rates

    def carry_out(self, order: WriteRates) -> None:
        assert order.pod.metadata.resource_version == self.pods[order.pod.metadata.name].metadata.resource_version
        self.finish(order, WRITTEN)
        self.annotate(order.pod.metadata.name, dict(order.annotations))

    def finish(self, order: WriteRates, result: WriteRatesResult) -> list[Instruction]:
        return self.machine.finished(order, result, self.now)

    def told(self) -> list[tuple[str, str]]:
        found = self.decide()
        conditions: list[tuple[str, str]] = [(one.reason, one.message) for one in found if isinstance(one, ReportRates)]
        events = [(one.reason.removeprefix("Rates"), one.message) for one in found if isinstance(one, Report)]
        assert conditions == events
        return conditions

    @property
    def left(self) -> int:
        self.machine.check()
        return self.machine.cache.vf_accounting("n1").free_vfs.free_mbps
