"""Select victims: against a plain reference on thousands of small random clusters, and what must not change it."""

from random import Random

import msgspec
import pytest

from mooring import names
from mooring.annotations.assignment import AssignedVf, Assignment, dump_assignment
from mooring.annotations.inventory import Inventory, Pf, dump_inventory
from mooring.nic.settings import VfSettings
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
from tests.scheduler.reference import preemption as preempting
from tests.scheduler.reference.cluster import tell_selecting_objects
from tests.scheduler.reference.preemption import MBPS, Strife
from tests.scheduler.reference.world import Json, World


def _pf(index: int, vfs: int) -> Pf:
    return pf(index, vfs, network="rail0", mbps=MBPS, offer_mbps=MBPS)


def pod_of(document: Json) -> Pod:
    request = [{"min_tx_rate": rate} for rate in document["rates"]]
    annotations = {names.REQUEST: msgspec.json.encode(request).decode()} if request else {}
    metadata = document["metadata"] | {"annotations": annotations}
    if document.get("vfs"):
        vfs = tuple(
            AssignedVf(f"pf{index}", vf, _pf(index, 2).vf_pci(vf), "ethernet", "rail0", VfSettings(min_tx_rate=rate))
            for (index, vf), rate in zip(document["vfs"], document["rates"], strict=True)
        )
        given = Assignment(metadata["uid"], document["spec"]["nodeName"], vfs)
        annotations[names.ASSIGNMENT] = dump_assignment(given)
    return msgspec.convert(document | {"metadata": metadata}, Pod)


def pod_info_of(document: Json) -> PodInfo:
    spec = {key: value for key, value in document["spec"].items() if key != "nodeName"}
    pod_info = read_pod_info(pod_of(document | {"spec": spec}))
    assert isinstance(pod_info, PodInfo), pod_info
    return pod_info


def cycle_of(strife: Strife) -> tuple[Cache, SchedulingCycle, Budgets]:
    """Return the same cluster as the scheduler knows it."""
    cluster, world = Cache(), strife.world
    reservations, budgets = Reservations(Queue()), Budgets()
    scheduling_cycle = SchedulingCycle(cluster, reservations, Preemption(cluster, reservations, budgets))
    tell_selecting_objects(world, cluster.pod_counts)
    for node in world.nodes:
        inventory = Inventory("", tuple(_pf(index, vfs) for index, vfs in enumerate(node["pfs"])))
        annotations = {names.INVENTORY: dump_inventory(inventory)} if node["pfs"] else {}
        document = node | {"metadata": node["metadata"] | {"annotations": annotations}}
        document["status"] = node["status"] | {"conditions": [{"type": "Ready", "status": "True"}]}
        cluster.put_node(read_node(msgspec.convert(document, Node), None, 0.0)[0])
    for pod in world.pods:
        cluster.put(read_assigned_pod(pod_of(pod))[0], 0.0)
    for budget in strife.budgets:
        budgets.put(msgspec.convert(budget, PodDisruptionBudget))
    for pod in strife.nominated:
        assigned_pod = assigned_pod_for(pod_info_of(pod), pod["spec"]["nodeName"])
        reservations.add(Reservation(assigned_pod.uid, rooms_of([assigned_pod])))
    return cluster, scheduling_cycle, budgets


def compare(strife: Strife, pod: Json) -> bool:
    """Compare one decision with the reference; return whether it has victims."""
    cluster, scheduling_cycle, _ = cycle_of(strife)
    made = scheduling_cycle.decide(pod_info_of(pod), 0.0)
    cluster.check()
    refused = {node["metadata"]["name"]: preempting.refusal(strife, pod, node) for node in strife.world.nodes}
    if isinstance(made, Bind):
        assert refused[made.assigned.node] == ""
        return False
    assert "" not in refused.values()
    helpable = [node for node in strife.world.nodes if refused[node["metadata"]["name"]] == "now"]
    tried = {node["metadata"]["name"]: preempting.victims(strife, pod, node) for node in helpable}
    found = {node: doomed for node, doomed in tried.items() if doomed is not None}
    if not found:
        assert made.nominate is None
        return False
    _compare_best(found, made)
    return True


def _compare_best(found: dict[str, tuple[list[Json], int]], made: Unschedulable) -> None:
    assert made.nominate is not None
    node, uids = made.nominate.node, made.nominate.reservation.victims
    least = min(map(preempting.loss, found.values()))
    alike = {node: one for node, one in found.items() if preempting.loss(one) == least}
    latest = max(map(preempting.since, alike.values()))
    assert node in {node for node, one in alike.items() if preempting.since(one) == latest}
    doomed, _ = found[node]
    assert uids == {one["metadata"]["uid"] for one in doomed}
    going_already = {one["metadata"]["uid"] for one in doomed if "deletionTimestamp" in one["metadata"]}
    assert {assigned.uid for assigned in made.nominate.victims} == uids - going_already


@pytest.mark.parametrize("seed", range(20))
def test_victims_and_node_are_those_of_the_plain_reference(seed: int) -> None:
    """Cpu, pods, ports, VFs, rates, affinity, spreading, budgets and nominated pods, in 100 nearly full clusters."""
    random, preempted = Random(seed), 0
    for _ in range(100):
        strife = preempting.random_strife(random)
        pod = preempting.random_fighter(random, "pod")
        pod["spec"]["priority"] = random.choice((0, 1, 3, 3))
        pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = random.choice("01234")
        preempted += compare(strife, pod)
    assert preempted > 5


@pytest.mark.parametrize("seed", range(10))
def test_a_search_in_many_steps_ends_as_one_in_a_single_step(seed: int) -> None:
    """Node by node, with nothing else in between."""
    random, turns = Random(seed), 0
    for _ in range(30):
        strife = preempting.random_strife(random)
        pod = preempting.random_fighter(random, "pod")
        pod["spec"] |= {"priority": 3}
        pod_info, (_, scheduling_cycle, _) = pod_info_of(pod), cycle_of(strife)
        search, made = VictimSearch(portion=1), None
        while made is None:
            made, turns = scheduling_cycle.proceed(pod_info, 0.0, search), turns + 1
        assert made == scheduling_cycle.decide(pod_info, 0.0)
    assert turns > 35


@pytest.mark.parametrize("seed", range(10))
def test_victims_are_right_by_the_state_at_the_end_of_the_search(seed: int) -> None:
    """Pods come and go, and budgets change, while nodes are examined one after the other.

    Plugins about other pods count other nodes too: with them only the next attempt shows whether preemption helps.
    """
    random, nominated = Random(seed), 0
    for count in range(60):
        strife = preempting.random_strife(random)
        pod = preempting.random_fighter(random, "pod")
        pod["spec"]["priority"] = random.choice((1, 3))
        for one in [pod, *strife.world.pods] if (is_plain := count % 2 == 0) else ():
            one["spec"] |= {"affinity": {}, "topologySpreadConstraints": []}
        cluster, scheduling_cycle, budgets = cycle_of(strife)
        search, made = VictimSearch(portion=1), None
        late = random.sample(strife.world.pods, len(strife.world.pods) // 4)
        while made is None:
            made = scheduling_cycle.proceed(pod_info_of(pod), 0.0, search)
            if made is None:
                _change(random, strife, cluster, budgets, late)
        if isinstance(made, Bind):
            assert preempting.refusal(strife, pod, _node_of(strife, made.assigned.node)) == ""
        elif made.nominate is not None:
            nominated += 1
            found = preempting.victims(strife, pod, _node_of(strife, made.nominate.node))
            assert found is not None
            assert {one["metadata"]["uid"] for one in found[0]} == made.nominate.reservation.victims
        elif is_plain:
            nodes = [node for node in strife.world.nodes if preempting.refusal(strife, pod, node) == "now"]
            assert all(preempting.victims(strife, pod, node) is None for node in nodes)
    assert nominated > 10


def _node_of(strife: Strife, name: str) -> Json:
    return next(node for node in strife.world.nodes if node["metadata"]["name"] == name)


def _change(random: Random, strife: Strife, cluster: Cache, budgets: Budgets, late: list[Json]) -> None:
    """Delete a pod, or change what a budget allows."""
    if late and random.random() < 0.7:
        gone = late.pop()
        strife.world.pods.remove(gone)
        cluster.remove(gone["metadata"]["uid"], 0.0)
    for budget in strife.budgets:
        budget["status"]["disruptionsAllowed"] = random.randint(0, 2)
        budgets.put(msgspec.convert(budget, PodDisruptionBudget))


def _fighter(name: str, priority: int, cpu: int, node: str = "", **labels: str) -> Json:
    container = {"name": "c", "resources": {"requests": {"cpu": str(cpu)}}}
    spec = {"containers": [container], "volumes": [], "priority": priority, "nodeName": node}
    metadata = {"name": name, "namespace": "a", "uid": name, "labels": labels, "annotations": {}}
    return {"metadata": metadata, "spec": spec, "rates": []}


def _full_node(*pods: Json) -> Strife:
    """Return one node of 2 cpus with these pods."""
    return Strife(World([_node("n1")], list(pods), {"a": {}}, [], []))


def _node(name: str) -> Json:
    return {
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "spec": {},
        "status": {"allocatable": {"cpu": "2", "pods": "9", "memory": "1Gi"}},
        "pfs": [],
    }


@pytest.mark.parametrize(("near_priority", "has_victims"), [(0, False), (2, True)])
def test_required_affinity_is_satisfied_by_an_assigned_pod_that_stays(near_priority: int, has_victims: bool) -> None:
    """Not by a nominated pod only, which may never come; and the assigned pod that satisfies it is no victim."""
    strife = _full_node(_fighter("near", near_priority, 1, "n1", app="x"), _fighter("other", 0, 1, "n1"))
    strife.nominated = [_fighter("nominated", 2, 0, "n1", app="x")]
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "x"}}}
    pod = _fighter("pod", 1, 1)
    pod["spec"]["affinity"] = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    assert compare(strife, pod) == has_victims


# The pod's uid decides from which node on is searched.
@pytest.mark.parametrize("name", ["pod", "pod-1", "pod-2", "pod-3"])
def test_a_budget_that_is_created_meanwhile_spares_its_pods(name: str) -> None:
    """A victim found before another node was examined is checked once more."""
    strife = _full_node(_fighter("old", 0, 1, "n1", app="y"), _fighter("new", 0, 1, "n1", app="x"))
    strife.world.pods[0]["status"] = {"startTime": "2026-01-01T00:00:00Z"}
    strife.world.nodes.append(_node("n2"))
    strife.world.pods.append(_fighter("important", 9, 2, "n2"))
    _, scheduling_cycle, budgets = cycle_of(strife)
    pod_info, search = pod_info_of(_fighter(name, 5, 1)), VictimSearch(portion=1)
    assert scheduling_cycle.proceed(pod_info, 0.0, search) is None
    budget = {"metadata": {"name": "b", "namespace": "a"}, "spec": {"selector": {"matchLabels": {"app": "x"}}}}
    budgets.put(msgspec.convert(budget, PodDisruptionBudget))
    made = None
    while made is None:
        made = scheduling_cycle.proceed(pod_info, 0.0, search)
    assert isinstance(made, Unschedulable)
    assert made.nominate is not None
    assert made.nominate.reservation.victims == {"old"}
