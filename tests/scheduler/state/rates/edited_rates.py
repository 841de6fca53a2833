"""A node with one PF, and pods there whose rates change."""

import json
from typing import Any

from mooring import names
from mooring.annotations.rates import RatesInForce, VfRates, dump_rates_in_force
from scheduler.cycle.decisions import Bind
from scheduler.cycle.instructions import Instruction, Report, ReportRates, WriteRates, WriteRatesResult
from scheduler.kube.objects import Condition, Pod
from scheduler.state.rates.pod_rates import CONDITION
from tests.scheduler.group_life import Life, as_bound, binds, changed
from tests.scheduler.state.cluster import read_node_fields

IN_FORCE = ("InForce", "in force on node n1: set, and read back from the PF")
ALLOCATED = ("Allocated", "allocated as generation 1: not yet in force on node n1")
CHANGES_NONE = "node n1 does not support rate changes of running pods"
UNKNOWN = f"{CHANGES_NONE}: the largest of generation %s, the previous rates and the assigned rates stays reserved"
ONLY_RATES = "only min_tx_rate and max_tx_rate can change once the pod has a node"
# What a story calls these messages; it has all others in full.
TITLES = {IN_FORCE: "InForce", ALLOCATED: "Allocated", ("Infeasible", CHANGES_NONE): "none"}
TITLES |= {("Infeasible", UNKNOWN % number): f"unknown {number}" for number in (1, 2)}


def interfaces(rates: tuple[str, ...]) -> list[dict[str, int]]:
    """Return a request of a VF for each of these rates, "min" or "min-max" in Gb/s; "0" for one without a rate."""
    keys = ("min_tx_rate", "max_tx_rate")
    return [
        {key: round(1000 * float(gbps)) for key, gbps in zip(keys, rate.split("-"), strict=False) if gbps != "0"}
        for rate in rates
    ]


def _rate(rate: VfRates) -> str:
    return "-".join(f"{mbps // 1000}" for mbps in (rate.min_tx_rate, rate.max_tx_rate) if mbps is not None)


def _title(order: WriteRates) -> str:
    """Return a write's pod, its rates and, if it reserves more than these, what it reserves."""
    rates, wanted = order.rates, tuple(rate.min_tx_rate for rate in order.rates.rates)
    reserved = "" if rates.reserved == wanted else f"/{','.join(str(mbps // 1000) for mbps in rates.reserved)}"
    return f"{order.pod.metadata.name}:{','.join(map(_rate, rates.rates))}{reserved}"


class EditedRates:
    """A node n1 with one PF of 90 Gb/s, and pods there; the verbs of its stories stand first, with rates in Gb/s."""

    def __init__(self, life: Life) -> None:
        self.life, self.machine = life, life.machine
        self._version = 0
        self.pods: dict[str, Pod] = {}
        self.in_force: dict[str, int] | None = {}
        # Whether its inventory says that it changes rates.
        self.says_rates = True
        # The writes that have no answer yet, and the last condition.
        self.orders: list[WriteRates] = []
        self._last: tuple[str, str] = IN_FORCE
        self.show_node()

    def later(self, seconds: str) -> None:
        self.life.now += float(seconds)

    def node(self, **words: str) -> None:
        self.show_node(**read_node_fields(words)[0])

    def lose(self) -> None:
        self.life.remove_node("n1")

    def force(self, name: str, generation: str) -> None:
        assert self.in_force is not None
        self.in_force[self.pods[name].metadata.uid] = int(generation)
        self.show_node()

    def forget(self) -> None:
        """Let the node say that no changed rates are in force."""
        self.in_force = {}
        self.show_node()

    def older(self) -> None:
        """Let an advertiser run that changes no rates, until ``newer``."""
        self.says_rates = False
        self.show_node()

    def silence(self) -> None:
        """Let the node say nothing of rates in force, until ``newer``."""
        self.in_force = None
        self.show_node()

    def bare(self) -> None:
        """Let the node have no inventory, only what it said of rates in force."""
        text = dump_rates_in_force(RatesInForce(self.in_force or {}))
        self.life.show_node("n1", annotations={names.RATES_IN_FORCE: text})

    def newer(self) -> None:
        self.says_rates, self.in_force = True, self.in_force or {}
        self.show_node()

    def bind(self, name: str, *rates: str) -> None:
        """Let a pod be bound; "name@5" has priority 5."""
        name, _, priority = name.partition("@")
        self.bound(name, *interfaces(rates), spec={"priority": int(priority or 0)})

    def place(self, name: str, rate: str, priority: str = "0") -> str:
        """Let a pod come that waits, or is bound."""
        self.life.see(self.life.make_pod(name, interfaces((rate,)), spec={"priority": int(priority)}))
        return self.schedule()

    def schedule(self) -> str:
        return " ".join(one.pod_info.pod.metadata.name for one in self.binds())

    def edit(self, name: str, *rates: str) -> None:
        """Let a pod request these rates; ``nothing`` removes its request."""
        self.request(name, None if rates == ("nothing",) else json.dumps(interfaces(rates)))

    def delete(self, name: str) -> None:
        self.life.gone(self.pods[name])

    def terminate(self, name: str) -> None:
        self.show(changed(self.pods[name], metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}))

    def back(self, name: str) -> None:
        """Let the watch show a pod as it was."""
        self.show(self.pods[name])

    def order(self) -> str:
        """Return the writes that are decided now, which get their answer later."""
        orders = self.writes()
        self.orders = orders or self.orders
        return " ".join(map(_title, orders))

    def answer(self, kind: Any, *reason: str) -> str:
        """Answer the last writes; return what their owners are told."""
        result, now = WriteRatesResult(kind, " ".join(reason)), self.life.now
        return self._titles([one for order in self.orders for one in self.machine.finished(order, result, now)])

    def watch(self) -> None:
        """Let the watch show the last writes."""
        for order in self.orders:
            self.annotate(order.pod.metadata.name, dict(order.annotations))

    def write(self) -> str:
        """Let the writes that are decided now be carried out; return them."""
        titles = self.order()
        if titles:
            self.carry_out(*self.orders)
        return titles

    def told(self) -> str:
        return self._titles(self.decide())

    def tell(self, name: str, reason: str = "") -> None:
        """Let the watch show a pod with the last condition, or with one of another leader."""
        reason, message = (reason, "") if reason else self._last
        condition = Condition(CONDITION, "True" if reason == "InForce" else "False", reason, message)
        self.show(changed(self.pods[name], status={"conditions": [condition]}))

    def left(self) -> str:
        self.machine.check()
        return f"{self.machine.cache.vf_accounting('n1').free_vfs.free_mbps / 1000:g}"

    def generations(self) -> str:
        return " ".join(str(order.rates.generation) for order in self.orders)

    def settled(self) -> str:
        return str(len(self.machine.rate_changes._uids_in_force))

    def due(self) -> str:
        due = self.machine.rate_changes.next_due()
        return "never" if due is None else f"{due:g}"

    # What only functions call.

    def _titles(self, found: list[Instruction]) -> str:
        conditions: list[tuple[str, str]] = [(one.reason, one.message) for one in found if isinstance(one, ReportRates)]
        events = [(one.reason.removeprefix("Rates"), one.message) for one in found if isinstance(one, Report)]
        assert conditions == [one for one in events if one[0] != "Allocated" or one in conditions]
        self._last = conditions[-1] if conditions else self._last
        return "; ".join(TITLES.get(one) or ": ".join(one) for one in conditions)

    def show_node(self, *, allocatable: dict[str, str] | None = None, **pf: Any) -> None:
        text = None if self.in_force is None else dump_rates_in_force(RatesInForce(self.in_force))
        annotations = {} if text is None else {names.RATES_IN_FORCE: text}
        node = {"annotations": annotations, "rates": self.says_rates, "allocatable": allocatable or {}}
        self.life.show_node("n1", self.life.make_pf(**pf), **node)

    def bound(self, name: str, *interfaces: dict[str, Any], **fields: Any) -> Pod:
        """Let a pod be bound with these interfaces."""
        self.life.see(self.life.make_pod(name, interfaces, **fields))
        (decision,) = self.binds()
        return self.show(as_bound(decision))

    def binds(self) -> list[Bind]:
        return binds(self.life.decide_ready())

    def show(self, pod: Pod) -> Pod:
        """Let the watch show a pod in a new version."""
        self._version += 1
        pod.metadata.resource_version = str(self._version)
        self.pods[pod.metadata.name] = pod
        self.life.see(pod)
        return pod

    def request(self, name: str, text: str | None) -> None:
        self.annotate(name, {names.REQUEST: text})

    def annotate(self, name: str, annotations: dict[str, str | None]) -> None:
        """Set annotations of a pod; None removes one."""
        texts = {**self.pods[name].annotations, **annotations}
        remaining = {key: text for key, text in texts.items() if text is not None}
        self.show(changed(self.pods[name], metadata={"annotations": remaining}))

    def decide(self) -> list[Instruction]:
        """Let a leader do all that is due now."""
        found: list[Instruction] = []
        for _ in range(20):
            found += self.machine.tick(self.life.now)
        self.machine.check()
        return found

    def writes(self) -> list[WriteRates]:
        return [one for one in self.decide() if isinstance(one, WriteRates)]

    def carry_out(self, *orders: WriteRates) -> None:
        for order in orders:
            pod = self.pods[order.pod.metadata.name]
            assert order.pod.metadata.resource_version == pod.metadata.resource_version
            self.machine.finished(order, WriteRatesResult("written"), self.life.now)
            self.annotate(pod.metadata.name, dict(order.annotations))
