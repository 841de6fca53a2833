"""Select victims: against a plain reference on thousands of small random clusters."""

from collections.abc import Callable
from functools import partial
from random import Random

import msgspec
import pytest

from mooring import names
from mooring.annotations.assignment import AssignedVf, Assignment, dump_assignment
from mooring.annotations.inventory import Inventory, Pf, dump_inventory
from mooring.nic.settings import VfSettings
from mooring.parsing import dump
from scheduler.cache.assigned_pod import read_assigned_pod
from scheduler.cache.cache import Cache
from scheduler.cache.node_info import read_node
from scheduler.cycle.cycle import SchedulingCycle
from scheduler.cycle.decisions import Bind, Unschedulable
from scheduler.cycle.node_dry_run import assigned_pod_for
from scheduler.cycle.preemption.disruption_budgets import Budgets
from scheduler.cycle.preemption.preemption import Preemption
from scheduler.cycle.preemption.select_victims import VictimSearch
from scheduler.cycle.reserved_room import Reservation, rooms_of
from scheduler.kube.objects import Node, Pod
from scheduler.kube.pod_info import PodInfo, read_pod_info
from scheduler.kube.selecting_objects import PodDisruptionBudget
from scheduler.pending.reservations import Reservations
from scheduler.queue.queue import Queue
from tests.scheduler.decisions.documents import pf
from tests.scheduler.group_life import beside
from tests.scheduler.reference import preemption as preempting
from tests.scheduler.reference.cluster import tell_selecting_objects
from tests.scheduler.reference.preemption import MBPS, Strife
from tests.scheduler.reference.world import Json, World

Decision = Bind | Unschedulable


def _pf(index: int, vfs: int) -> Pf:
    return pf(index, vfs, network="rail0", mbps=MBPS, offer_mbps=MBPS)


def _pod(document: Json) -> Pod:
    request = [{"min_tx_rate": rate} for rate in document["rates"]]
    annotations = {names.REQUEST: dump(request)} if request else {}
    metadata = document["metadata"] | {"annotations": annotations}
    if document.get("vfs"):
        vfs = tuple(
            AssignedVf(f"pf{index}", vf, _pf(index, 2).vf_pci(vf), "ethernet", "rail0", VfSettings(min_tx_rate=rate))
            for (index, vf), rate in zip(document["vfs"], document["rates"], strict=True)
        )
        annotations[names.ASSIGNMENT] = dump_assignment(Assignment(metadata["uid"], document["spec"]["nodeName"], vfs))
    return msgspec.convert(document | {"metadata": metadata}, Pod)


def _pod_info(document: Json) -> PodInfo:
    spec = {key: value for key, value in document["spec"].items() if key != "nodeName"}
    pod_info = read_pod_info(_pod(document | {"spec": spec}))
    assert isinstance(pod_info, PodInfo), pod_info
    return pod_info


class _Scheduler:
    """The same cluster as the scheduler reads it, and its decisions."""

    def __init__(self, strife: Strife) -> None:
        self.cache, self.budgets, reservations = Cache(), Budgets(), Reservations(Queue())
        preemption = Preemption(self.cache, reservations, self.budgets)
        self._cycle = SchedulingCycle(self.cache, reservations, preemption)
        tell_selecting_objects(strife.world, self.cache.pod_counts)
        for node in strife.world.nodes:
            inventory = Inventory("", tuple(_pf(index, vfs) for index, vfs in enumerate(node["pfs"])))
            annotations = {names.INVENTORY: dump_inventory(inventory)} if node["pfs"] else {}
            document = node | {"metadata": node["metadata"] | {"annotations": annotations}}
            document["status"] = node["status"] | {"conditions": [{"type": "Ready", "status": "True"}]}
            self.cache.put_node(read_node(msgspec.convert(document, Node), None, 0.0)[0])
        for pod in strife.world.pods:
            self.cache.put(read_assigned_pod(_pod(pod))[0], 0.0)
        for budget in strife.budgets:
            self.budgets.put(msgspec.convert(budget, PodDisruptionBudget))
        for pod in strife.nominated:
            assigned_pod = assigned_pod_for(_pod_info(pod), pod["spec"]["nodeName"])
            reservations.add(Reservation(assigned_pod.uid, rooms_of([assigned_pod])))

    def decide(self, pod: Json) -> Decision:
        return self._cycle.decide(_pod_info(pod), 0.0)

    def decide_in_turns(self, pod: Json, meanwhile: Callable[[], None] = lambda: None) -> tuple[Decision, int]:
        """Decide with one node a turn, and something in between; return the decision, and how many turns it takes."""
        search, turns = VictimSearch(portion=1), 1
        while (decision := self._cycle.proceed(_pod_info(pod), 0.0, search)) is None:
            turns += 1
            meanwhile()
        return decision, turns


def _by_name(strife: Strife) -> dict[str, Json]:
    return {node["metadata"]["name"]: node for node in strife.world.nodes}


def _uids(pods: list[Json]) -> set[str]:
    return {pod["metadata"]["uid"] for pod in pods}


def _compare(strife: Strife, pod: Json) -> bool:
    """Compare one decision, made at once and in turns, with the reference; return whether it has victims."""
    scheduler = _Scheduler(strife)
    decision = scheduler.decide(pod)
    assert scheduler.decide_in_turns(pod)[0] == decision
    scheduler.cache.check()
    refusals = {name: preempting.refusal(strife, pod, node) for name, node in _by_name(strife).items()}
    if isinstance(decision, Bind):
        assert refusals[decision.assigned.node] == ""
        return False
    assert "" not in refusals.values()
    helpful = [node for name, node in _by_name(strife).items() if refusals[name] == "now"]
    tried = {node["metadata"]["name"]: preempting.victims(strife, pod, node) for node in helpful}
    choices = {name: choice for name, choice in tried.items() if choice is not None}
    if not choices:
        assert decision.nominate is None
        return False
    assert decision.nominate is not None
    node, uids = decision.nominate.node, decision.nominate.reservation.victims
    least = min(map(preempting.loss, choices.values()))
    latest = max(preempting.since(choice) for choice in choices.values() if preempting.loss(choice) == least)
    assert (preempting.loss(choices[node]), preempting.since(choices[node])) == (least, latest)
    victims, _ = choices[node]
    assert uids == _uids(victims)
    terminating = _uids([victim for victim in victims if "deletionTimestamp" in victim["metadata"]])
    assert {assigned.uid for assigned in decision.nominate.victims} == uids - terminating
    return True


@pytest.mark.parametrize("seed", range(20))
def test_victims_and_node_are_those_of_the_plain_reference(seed: int) -> None:
    """Cpu, pods, ports, VFs, rates, affinity, spreading, budgets and nominated pods, in 100 nearly full clusters."""
    random, preempted = Random(seed), 0
    for _ in range(100):
        strife = preempting.random_strife(random)
        pod = preempting.random_fighter(random, "pod")
        pod["spec"]["priority"] = random.choice((0, 1, 3, 3))
        pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = random.choice("01234")
        preempted += _compare(strife, pod)
    assert preempted > 5


@pytest.mark.parametrize("seed", range(10))
def test_victims_are_right_by_the_state_at_the_end_of_the_search(seed: int) -> None:
    """Pods are deleted, and budgets change, while nodes are examined one after the other.

    Plugins about other pods count other nodes too: with them only the next attempt shows whether preemption helps.
    """
    random, nominated = Random(seed), 0
    for count in range(60):
        strife = preempting.random_strife(random)
        pod = preempting.random_fighter(random, "pod")
        pod["spec"]["priority"] = random.choice((1, 3))
        for one in [pod, *strife.world.pods] if (is_plain := count % 2 == 0) else ():
            one["spec"] |= {"affinity": {}, "topologySpreadConstraints": []}
        scheduler, nodes = _Scheduler(strife), _by_name(strife)
        late = random.sample(strife.world.pods, len(strife.world.pods) // 4)
        decision, _ = scheduler.decide_in_turns(pod, partial(_change, random, strife, scheduler, late))
        if isinstance(decision, Bind):
            assert preempting.refusal(strife, pod, nodes[decision.assigned.node]) == ""
        elif decision.nominate is not None:
            nominated += 1
            choice = preempting.victims(strife, pod, nodes[decision.nominate.node])
            assert choice is not None
            assert _uids(choice[0]) == decision.nominate.reservation.victims
        elif is_plain:
            helpful = [node for node in nodes.values() if preempting.refusal(strife, pod, node) == "now"]
            assert all(preempting.victims(strife, pod, node) is None for node in helpful)
    assert nominated > 10


def _change(random: Random, strife: Strife, scheduler: _Scheduler, late: list[Json]) -> None:
    """Delete a pod, and change what budgets allow."""
    if late and random.random() < 0.7:
        gone = late.pop()
        strife.world.pods.remove(gone)
        scheduler.cache.remove(gone["metadata"]["uid"], 0.0)
    for budget in strife.budgets:
        budget["status"]["disruptionsAllowed"] = random.randint(0, 2)
        scheduler.budgets.put(msgspec.convert(budget, PodDisruptionBudget))


def _fighter(name: str, priority: int, cpu: int, node: str = "", **labels: str) -> Json:
    container = {"name": "c", "resources": {"requests": {"cpu": str(cpu)}}}
    spec = {"containers": [container], "volumes": [], "priority": priority, "nodeName": node}
    metadata = {"name": name, "namespace": "a", "uid": name, "labels": labels, "annotations": {}}
    return {"metadata": metadata, "spec": spec, "rates": []}


def _strife(*pods: Json) -> Strife:
    """Return these pods on their nodes, which have 2 cpus each."""
    nodes = [
        {
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
            "spec": {},
            "status": {"allocatable": {"cpu": "2", "pods": "9", "memory": "1Gi"}},
            "pfs": [],
        }
        for name in dict.fromkeys(pod["spec"]["nodeName"] for pod in pods)
    ]
    return Strife(World(nodes, list(pods), {"a": {}}, [], []))


@pytest.mark.parametrize(("near_priority", "has_victims"), [(0, False), (2, True)])
def test_required_affinity_is_satisfied_by_an_assigned_pod_that_stays(near_priority: int, has_victims: bool) -> None:
    """Not by a nominated pod only, which may never come; and the assigned pod that satisfies it is no victim."""
    strife = _strife(_fighter("near", near_priority, 1, "n1", app="x"), _fighter("other", 0, 1, "n1"))
    strife.nominated = [_fighter("nominated", 2, 0, "n1", app="x")]
    pod = _fighter("pod", 1, 1)
    pod["spec"] |= beside("kubernetes.io/hostname", app="x")
    assert _compare(strife, pod) == has_victims


# The pod's uid decides from which node on is searched.
@pytest.mark.parametrize("name", ["pod", "pod-1", "pod-2", "pod-3"])
def test_a_budget_that_is_created_meanwhile_spares_its_pods(name: str) -> None:
    """A victim found before another node was examined is checked once more."""
    old, new = _fighter("old", 0, 1, "n1", app="y"), _fighter("new", 0, 1, "n1", app="x")
    old["status"] = {"startTime": "2026-01-01T00:00:00Z"}
    scheduler = _Scheduler(_strife(old, new, _fighter("important", 9, 2, "n2")))
    document = {"metadata": {"name": "b", "namespace": "a"}, "spec": {"selector": {"matchLabels": {"app": "x"}}}}
    budget = msgspec.convert(document, PodDisruptionBudget)
    decision, turns = scheduler.decide_in_turns(_fighter(name, 5, 1), lambda: scheduler.budgets.put(budget))
    assert turns > 1
    assert isinstance(decision, Unschedulable)
    assert decision.nominate is not None
    assert decision.nominate.reservation.victims == {"old"}
