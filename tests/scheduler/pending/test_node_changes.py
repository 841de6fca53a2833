"""Whichever fact of a node a plugin reads: a change of it that lets a rejected pod fit requeues that pod."""

from collections.abc import Callable, Iterator
from itertools import product

import numpy as np
import pytest

from mooring import names
from mooring.annotations.assignment import FIRST_RELEASE
from mooring.annotations.inventory import ADVERTISER, CNI, CRI_SHIM, Inventory, dump_inventory
from mooring.gpu.inventory import KEY, Gpu, GpuInventory, dump_gpu_inventory
from mooring.kube.events import Changed, Identity
from scheduler.constraints.kinds import Kinds
from scheduler.cycle.instructions import Report
from scheduler.kube.objects import Node, Pod, RuntimeClass
from scheduler.placement.gpus import gpu_kind
from scheduler.placement.steps import Steps
from scheduler.plugins.registry import NODE_FILTERS, USAGE_FILTERS
from scheduler.state.machine import Machine
from tests.scheduler.conftest import BOOT, Json, MakeNode, MakePf, MakePod
from tests.scheduler.group_life import identity, pod_info_of, show_object

KINDS = Kinds([gpu_kind()])
PROGRAMS = {ADVERTISER: "0.10.0", CNI: "0.10.0", CRI_SHIM: "0.10.0"}
ONE_GPU = {"mooring.dev/gpu": "1"}


def _requests(amounts: dict[str, str]) -> Json:
    return {"containers": [{"name": "c", "resources": {"limits": amounts, "requests": amounts}}]}


# Pods by what they request.
PODS: dict[str, Json] = {
    "nothing": {},
    "cpu": {"spec": _requests({"cpu": "4"})},
    "label": {"spec": {"nodeSelector": {"zone": "a"}}},
    "vfs": {"request": [{}, {}]},
    "class": {"request": [{}], "spec": {"runtimeClassName": "virtual"}},
    "link state": {"request": [{"link_state": "enable"}]},
    "gpu": {"spec": _requests(ONE_GPU)},
    "other gpu": {"spec": _requests({"nvidia.com/gpu": "1"})},
}
ROOM = ONE_GPU | {"nvidia.com/gpu": "1", "cpu": "8"}
PLAIN: Json = {"vfs": 4, "boot_id": BOOT, "programs": PROGRAMS, "handlers": ["runc", "kata"], "without": ""}
PLAIN |= {"labels": {"zone": "a"}, "allocatable": ROOM}
# What differs between nodes, each in one fact.
NODES: dict[str, Json] = {
    "plain": {},
    "cordoned": {"spec": {"unschedulable": True}},
    "tainted": {"spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}},
    "unlabelled": {"labels": {}},
    "small": {"allocatable": ROOM | {"cpu": "2"}},
    "not Ready": {"ready": False},
    "few VFs": {"vfs": 1},
    "no PF": {"vfs": 0},
    "other boot": {"boot_id": "boot-0"},
    "old cni": {"programs": PROGRAMS | {CNI: "0.9.0"}},
    "old shim": {"programs": PROGRAMS | {CRI_SHIM: "0.9.0"}},
    "no shim": {"programs": {ADVERTISER: "0.10.0", CNI: "0.10.0"}},
    "no kata": {"handlers": ["runc"]},
    "no inventory": {"without": names.INVENTORY},
    "no GPUs": {"without": KEY},
    "unreadable GPUs": {"gpus": "{"},
}
GPUS = GpuInventory((Gpu("0000:10:00.0", "GPU-0", "nvidia", "H100", 80000, 0, ("0000:10:00.0",), 0),), ())
NodeIn = Callable[[str], Node]


@pytest.fixture
def node_in(make_node: MakeNode, make_pf: MakePf, monkeypatch: pytest.MonkeyPatch) -> NodeIn:
    """Make the node in one of its states."""
    monkeypatch.setitem(FIRST_RELEASE, "link_state", "0.10.0")

    def make(state: str) -> Node:
        facts = PLAIN | NODES[state]
        pfs = (make_pf(vfs=facts["vfs"]),) if facts["vfs"] else ()
        handlers = frozenset(facts["handlers"])
        inventory = Inventory(facts["boot_id"], pfs, facts["programs"], rates=True, handlers=handlers)
        annotations = {KEY: facts.get("gpus", dump_gpu_inventory(GPUS)), names.INVENTORY: dump_inventory(inventory)}
        annotations.pop(facts["without"], None)
        return make_node(**facts | {"annotations": annotations, "pfs": ()})

    return make


def _waiting(pod: Pod, node: Node) -> tuple[Machine, bool]:
    """Decide about the pod while there is only this node; return the machine, and whether the pod waits."""
    machine = Machine("mooring", kinds=KINDS)
    show_object(machine, RuntimeClass, {"metadata": {"name": "virtual", "uid": "virtual"}, "handler": "kata"})
    # A node that is not Ready is so for long.
    for now in (0.0, 100.0):
        machine.nodes(Changed(Identity(node.metadata.name), node), now)
        machine.tick(now)
    machine.pods(Changed(identity(pod), pod), 100.0)
    return machine, any(isinstance(instruction, Report) for instruction in machine.step(100.0) or ())


def _refusers(pod: Pod, machine: Machine) -> Iterator[str]:
    """Yield the names of the plugins that reject the machine's only node."""
    nodes, pod_info = machine.cache.nodes, pod_info_of(pod, KINDS)
    for plugin in NODE_FILTERS:
        judge = plugin.pre_filter(pod_info, nodes)
        if judge is not None and judge(np.array([0]), Steps()) is not None:
            yield plugin.name
    for usage_plugin in USAGE_FILTERS:
        usage_filter = usage_plugin.pre_filter(pod_info, nodes)
        if usage_filter is not None and usage_filter.judge(nodes.row_view(0)):
            yield usage_plugin.name


@pytest.mark.parametrize("subject", PODS)
def test_a_change_of_a_node_that_lets_a_pod_fit_requeues_it(subject: str, node_in: NodeIn, make_pod: MakePod) -> None:
    pod = make_pod(**PODS[subject])
    waits = {state: _waiting(pod, node_in(state))[1] for state in NODES}
    assert set(waits.values()) == {True, False}
    lost = []
    for before, after in product(NODES, NODES):
        if waits[before] and not waits[after]:
            machine, _ = _waiting(pod, node_in(before))
            machine.nodes(Changed(Identity("n1"), node_in(after)), 200.0)
            if machine.step(200.0) is None:
                lost.append((before, after))
    assert lost == []


def test_these_pods_and_nodes_cover_all_plugins_that_read_facts_of_a_node(node_in: NodeIn, make_pod: MakePod) -> None:
    """A node keeps its name, and its host ports depend on its pods only."""
    refusers = set[str]()
    for fields, state in product(PODS.values(), NODES):
        pod = make_pod(**fields)
        machine, waits = _waiting(pod, node_in(state))
        refusers.update(_refusers(pod, machine) if waits else ())
    all_names = {plugin.name for plugin in NODE_FILTERS} | {plugin.name for plugin in USAGE_FILTERS}
    assert refusers == all_names - {"NodeName", "NodePorts"}
