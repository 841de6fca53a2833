"""An unschedulable pod fits nowhere: whatever happened, no pod waits that could be placed."""

import random
from collections.abc import Iterator
from typing import Any

import pytest

from mooring.annotations.inventory import Out, Pf
from mooring.indexes import Indexes
from mooring.kube.events import Changed, Identity
from scheduler.cycle.cycle import SchedulingCycle
from scheduler.cycle.decisions import Bind
from scheduler.cycle.preemption.disruption_budgets import Budgets
from scheduler.cycle.preemption.preemption import Preemption
from scheduler.kube.outcomes import BOUND, Outcome
from scheduler.kube.pod_info import PodInfo
from scheduler.kube.selecting_objects import Namespace
from scheduler.pending.reservations import Reservations
from scheduler.queue.queue import Queue
from scheduler.state.machine import Machine
from tests.scheduler.conftest import Json, MakeNode, MakePf, MakePod
from tests.scheduler.group_life import changed, show_object
from tests.scheduler.scene import REQUIRED, Scene

# Of mooring.dev/interfaces, and the labels of nodes.
REQUESTS: tuple[list[Json] | None, ...] = (None, [{}], [{"min_tx_rate": 45_000}] * 2, [{"network": "a"}, {}])
LABELS: tuple[Json, ...] = ({}, {"zone": "x"}, {"zone": "y"}, {"zone": "y", "disk": "ssd"})


class Play(Scene):
    """Nodes and pods of all kinds that come, change and go at random."""

    def __init__(self, seed: int, *parts: Any) -> None:
        super().__init__(*parts)
        self.chance = random.Random(seed)
        self.facts: dict[str, Json] = {}
        self.binds: list[Bind] = []

    def advance(self) -> None:
        nodes = (self.node, self.node_changes, self.node_changes, self.node_goes)
        pods = (self.pod_comes, self.pod_comes, self.pod_goes, self.pod_changes)
        self.chance.choice((*nodes, *pods, self.namespace, self.time, self.answers))()
        self.decide_all()

    def decide_all(self) -> None:
        """Decide about all ready pods, and let all backoffs end."""
        self.now += 20.0
        while (found := self.machine.step(self.now)) is not None or self.machine.queue.next_ready() is not None:
            self.binds += [one for one in found or () if isinstance(one, Bind)]
            self.now = max(self.now, self.machine.queue.next_ready() or 0.0)

    def waiting_in_vain(self) -> list[str]:
        """Return the messages of the unschedulable pods that would be placed if they were tried now."""
        cache, reservations = self.machine.cache, Reservations(Queue())
        scheduling_cycle = SchedulingCycle(cache, reservations, Preemption(cache, reservations, Budgets()))
        # Of a namespace with late Binds some wait for no event, but for those.
        bound = {bind.pod_info.uid for bind in self.binds}
        found = []
        for uid, pending in self.machine.pending_pods.pending.items():
            pod_info, is_refused = pending.pod_info, pending.reported_message.startswith("the API server rejected")
            waits = self.machine.queue.is_unschedulable(uid) and uid not in bound and not is_refused
            if waits and isinstance(pod_info, PodInfo):
                decision = scheduling_cycle.decide(pod_info, self.now)
                found += [pending.reported_message] if isinstance(decision, Bind) else []
        return found

    def node(self) -> None:
        name = f"n{self.chance.randrange(5)}"
        self.facts[name] = dict(self._facts(name))
        self._show_node(name)

    def node_changes(self) -> None:
        """Change one fact of a node, so that nothing else requeues the pods that it may help."""
        if self.facts:
            name = self.chance.choice(list(self.facts))
            self.facts[name] |= [self.chance.choice(list(self._facts(name)))]
            self._show_node(name)

    def node_goes(self) -> None:
        if self.facts:
            name = self.chance.choice(list(self.facts))
            del self.facts[name]
            self.remove_node(name)

    def _facts(self, name: str) -> Iterator[tuple[str, Any]]:
        chance = self.chance
        yield "pfs", tuple(self._pf(index) for index in range(chance.randrange(3)))
        yield "ready", chance.random() < 0.7
        yield "boot", chance.choice(("boot-1", "boot-1", "boot-1", "boot-2"))
        yield "labels", {"kubernetes.io/hostname": name} | chance.choice(LABELS)
        yield "allocatable", {"cpu": chance.choice("248"), "pods": chance.choice("37")}
        taints = chance.choice((None, None, [{"key": "k", "effect": "NoSchedule"}]))
        yield "spec", {"unschedulable": chance.random() < 0.1, "taints": taints}

    def _show_node(self, name: str) -> None:
        self.machine.nodes(Changed(Identity(name), self.make_node(name, **self.facts[name])), self.now)

    def _pf(self, index: int) -> Pf:
        chance = self.chance
        out = (Out(Indexes.of([0]), "x", chance.choice((0, 40_000))),) if chance.random() < 0.2 else ()
        offer, up = chance.choice((0, 50_000, 90_000)), chance.random() < 0.9
        return self.make_pf(index, chance.randrange(4), offer_mbps=offer, up=up, network=chance.choice("ab"), out=out)

    def pod_comes(self) -> None:
        chance, spec = self.chance, self._spec()
        request = chance.choice(REQUESTS)
        if chance.random() < 0.2 and self.facts:
            request = None
            spec |= {"nodeName": chance.choice(list(self.facts)), "schedulerName": "another"}
        placement = {"mooring.dev/placement": '{"pfs":"distinct"}'} if request and chance.random() < 0.5 else {}
        metadata = {"labels": {"app": chance.choice("pq")}, "namespace": chance.choice("de")}
        self.show(self.make_pod(request=request, spec=spec, annotations=placement, metadata=metadata))

    def _spec(self) -> Json:
        chance = self.chance
        container: Json = {"name": "c", "resources": {"requests": {"cpu": chance.choice(("0", "500m", "2"))}}}
        if chance.random() < 0.3:
            container["ports"] = [{"hostPort": 80, "hostIP": chance.choice(("", "10.0.0.1"))}]
        topology_key = chance.choice(("zone", "kubernetes.io/hostname"))
        term: Json = {"topologyKey": topology_key, "labelSelector": self._selector()}
        if chance.random() < 0.4:
            term["namespaceSelector"] = {"matchLabels": {"team": "t"}}
        spread: Json = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
        spread |= {"labelSelector": self._selector(), "nodeTaintsPolicy": chance.choice((None, "Honor"))}
        kinds: tuple[Json, ...] = (
            {},
            {},
            {"nodeSelector": {"disk": "ssd"}},
            {"affinity": {"podAffinity": {REQUIRED: [term]}}},
            {"affinity": {"podAntiAffinity": {REQUIRED: [term]}}},
            {"topologySpreadConstraints": [spread | {"minDomains": chance.choice((None, 2))}]},
        )
        tolerations = chance.choice((None, [{"operator": "Exists"}]))
        return {"containers": [container], "tolerations": tolerations} | chance.choice(kinds)

    def _selector(self) -> Json:
        return {"matchLabels": {"app": self.chance.choice("pq")}}

    def pod_goes(self) -> None:
        if self.pods:
            self.delete(self.chance.choice(list(self.pods)))

    def pod_changes(self) -> None:
        if not self.pods:
            return
        pod, number = self.chance.choice(list(self.pods.values())), self.chance.randrange(3)
        changes: tuple[Json, ...] = (
            {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}},
            {"metadata": {"labels": {"app": self.chance.choice("pq") if number == 1 else ""}}},
            {"status": {"phase": "Failed"}},
        )
        self.show(changed(pod, **changes[number]))

    def namespace(self) -> None:
        labels = self.chance.choice(({}, {"team": "t"}))
        document = {"metadata": {"name": self.chance.choice("de"), "labels": labels}}
        show_object(self.machine, Namespace, document, self.now)

    def time(self) -> None:
        self.now += 70.0

    def answers(self) -> None:
        """Answer the Bindings under way, and show what was bound."""
        binds, self.binds = self.binds, []
        for bind in binds:
            pod = self.pods.get(bind.pod_info.pod.metadata.name)
            refusal = Outcome("gone") if pod is None else Outcome(self.chance.choice(("refused", "changed")), "x")
            is_taken = pod is not None and self.chance.random() < 0.7
            self.machine.finished(bind, BOUND if is_taken else refusal, self.now)
            if pod is not None and is_taken:
                shown = changed(pod)
                shown.spec.node_name = bind.assigned.node
                shown.metadata.annotations = {**pod.annotations, **bind.annotations}
                self.show(shown)


@pytest.mark.parametrize("seed", range(12))
def test_no_pod_is_unschedulable_that_could_be_placed(
    seed: int, machine: Machine, make_node: MakeNode, make_pf: MakePf, make_pod: MakePod
) -> None:
    """After each event, once the requeued pods have been tried, another try of the others changes nothing."""
    play = Play(seed, machine, make_node, make_pf, make_pod)
    for step in range(200):
        play.advance()
        assert play.waiting_in_vain() == [], f"seed {seed}, step {step}"
