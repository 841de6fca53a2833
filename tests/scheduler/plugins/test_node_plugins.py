"""The plugins about one node, in kube-scheduler's words."""

import time
from typing import Any

import numpy as np
import pytest

from mooring.annotations.inventory import Inventory, dump_inventory
from scheduler.cache.node_info import InventoryFault, read_node
from scheduler.kube.objects import Condition, Image, Node, Pod, Requirement
from scheduler.kube.pod_info import PodInfo, read_pod_info
from scheduler.kube.selection.selectors import matches
from scheduler.placement.steps import Steps
from scheduler.plugins.registry import NODE_FILTERS, USAGE_FILTERS
from scheduler.state.machine import Machine
from tests.scheduler.conftest import Json, MakeNode, MakePf, MakePod
from tests.scheduler.state.steps import take_in

TAINT = {"key": "k", "value": "v", "effect": "NoSchedule"}
SELECTOR = "node(s) didn't match Pod's node affinity/selector"
CORDON = "node(s) were unschedulable"
TAINTED = "node(s) had untolerated taint(s)"


def _reasons(machine: Machine, node: Node, pod: Pod, rule_name: str = "") -> tuple[str, ...]:
    """Return the reasons of the first plugin that refuses the node (or of the plugin named)."""
    take_in(machine, node)
    nodes = machine.cache.nodes
    row = np.array([nodes.row_of[node.metadata.name]])
    pod_info = read_pod_info(pod)
    assert isinstance(pod_info, PodInfo)
    facts = [
        (plugin.name, judge(row, Steps())) for plugin in NODE_FILTERS if (judge := plugin.pre_filter(pod_info, nodes))
    ]
    told = [(name, one.texts[one.codes[0] - 1]) for name, one in facts if one is not None and one.codes[0]]
    use = [(plugin.name, one) for plugin in USAGE_FILTERS if (one := plugin.pre_filter(pod_info, nodes))]
    told += [(name, one.reasons(mark)) for name, one in use if (mark := one.judge(nodes.row_view(int(row[0]))))]
    return next((texts for name, texts in told if rule_name in ("", name)), ())


def _affinity(*terms: Json) -> Json:
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}
    return {"affinity": {"nodeAffinity": required}}


@pytest.mark.parametrize(
    ("node", "spec", "expected"),
    [
        ({}, {}, ()),
        ({"spec": {"unschedulable": True}}, {}, (CORDON,)),
        (
            {"spec": {"unschedulable": True}},
            {"tolerations": [{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}]},
            (),
        ),
        ({}, {"nodeName": "other"}, ("node(s) didn't match the requested node name",)),
        ({"spec": {"taints": [TAINT]}}, {}, (TAINTED,)),
        ({"spec": {"taints": [TAINT | {"effect": "NoExecute"}]}}, {}, (TAINTED,)),
        ({"spec": {"taints": [TAINT | {"effect": "PreferNoSchedule"}]}}, {}, ()),
        ({"spec": {"taints": [TAINT]}}, {"tolerations": [{"operator": "Exists"}]}, ()),
        ({"spec": {"taints": [TAINT]}}, {"tolerations": [{"key": "k", "operator": "Exists"}]}, ()),
        ({"spec": {"taints": [TAINT]}}, {"tolerations": [{"key": "k", "value": "v"}]}, ()),
        ({"spec": {"taints": [TAINT]}}, {"tolerations": [{"key": "k", "value": "w"}]}, (TAINTED,)),
        (
            {"spec": {"taints": [TAINT]}},
            {"tolerations": [{"key": "k", "value": "v", "effect": "NoExecute"}]},
            (TAINTED,),
        ),
        ({"labels": {"a": "1"}}, {"nodeSelector": {"a": "1"}}, ()),
        ({"labels": {"a": "1"}}, {"nodeSelector": {"a": "2"}}, (SELECTOR,)),
        ({}, _affinity({}), (SELECTOR,)),
        ({}, _affinity({}, {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}), ()),
        (
            {"labels": {"a": "5"}},
            _affinity({"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["4"]}]}),
            (),
        ),
        ({"allocatable": {"pods": "0"}}, {}, ("Too many pods",)),
        (
            {"allocatable": {"cpu": "1", "memory": "1Gi"}},
            {"containers": [{"name": "c", "resources": {"requests": {"cpu": "2", "memory": "2Gi"}}}]},
            ("Insufficient cpu", "Insufficient memory"),
        ),
        ({}, {"containers": [{"name": "c", "resources": {"limits": {"x.io/y": "1"}}}]}, ("Insufficient x.io/y",)),
        ({}, {"containers": [{"name": "c", "resources": {"limits": {"rdma-sriov/x": "1"}}}]}, ()),
        (
            {"allocatable": {"rdma-sriov/x": "0"}},
            {"containers": [{"name": "c", "resources": {"limits": {"rdma-sriov/x": "1"}}}]},
            ("Insufficient rdma-sriov/x",),
        ),
    ],
)
def test_a_node_is_refused_with_kube_schedulers_message(
    node: Json,
    spec: Json,
    expected: tuple[str, ...],
    machine: Machine,
    make_node: MakeNode,
    make_pod: MakePod,
) -> None:
    """The first plugin that refuses gives the reason; rit-k8s-rdma's resources count only if a node publishes them."""
    assert _reasons(machine, make_node(**node), make_pod(spec=spec)) == expected


@pytest.mark.parametrize(
    ("operator", "values", "labels", "expected"),
    [
        ("In", ["x"], {"k": "x"}, True),
        ("In", ["x"], {}, False),
        ("NotIn", ["x"], {"k": "x"}, False),
        ("NotIn", ["x"], {}, True),
        ("Exists", None, {"k": ""}, True),
        ("DoesNotExist", None, {"k": ""}, False),
        ("Gt", ["4"], {"k": "5"}, True),
        ("Lt", ["4"], {"k": "5"}, False),
        ("Gt", ["4"], {"k": "x"}, False),
        ("Gt", ["4", "5"], {"k": "9"}, False),
        ("Like", ["x"], {"k": "x"}, False),
    ],
)
def test_an_expression_of_a_node_selector_holds_by_its_operator(
    operator: str, values: list[str] | None, labels: dict[str, str], expected: bool
) -> None:
    wanted = None if values is None else frozenset(values)
    assert matches(Requirement("k", operator, wanted), labels.get("k")) is expected


@pytest.mark.parametrize(
    ("wanted", "clashes"),
    [
        ({"hostPort": 80}, True),
        ({"hostPort": 81}, False),
        ({"hostPort": 80, "protocol": "UDP"}, False),
        ({"hostPort": 80, "hostIP": "10.0.0.1"}, True),
        ({"hostPort": 80, "hostIP": "0.0.0.0"}, True),
        ({"hostPort": 80, "hostIP": "10.0.0.2"}, False),
    ],
)
def test_a_host_port_is_given_once(
    wanted: Json, clashes: bool, machine: Machine, make_node: MakeNode, make_pod: MakePod
) -> None:
    """By port, protocol and address, where no address means all of them."""

    def with_port(port: Json, **fields: Any) -> Pod:
        return make_pod(spec={"containers": [{"name": "c", "ports": [port]}]} | fields)

    take_in(machine, with_port({"hostPort": 80, "hostIP": "10.0.0.1"}, nodeName="n1"))
    expected = ("node(s) didn't have free ports for the requested pod ports",) if clashes else ()
    assert _reasons(machine, make_node(), with_port(wanted)) == expected


def test_pods_with_thousands_of_host_ports_do_not_cost_each_event_of_their_node_all_of_them(
    machine: Machine, make_node: MakeNode, make_pod: MakePod
) -> None:
    """A tenant may bind such pods to a node. Each comes with ports of its own, and one wants what the last has."""
    take_in(machine, make_node())

    def ports(host_ip: str) -> Json:
        listed = [{"hostPort": number, "hostIP": host_ip} for number in range(1, 4097)]
        return {"containers": [{"name": "c", "ports": listed}]}

    pods = [make_pod(spec={**ports(f"10.0.0.{number}"), "nodeName": "n1"}) for number in range(80)]
    began = time.thread_time()
    take_in(machine, *pods)
    clash = ("node(s) didn't have free ports for the requested pod ports",)
    for wanted, expected in (("10.0.0.79", clash), ("10.0.1.1", ()), ("0.0.0.0", clash)):
        pod = make_pod(spec={"containers": [{"name": "c", "ports": [{"hostPort": 4096, "hostIP": wanted}]}]})
        assert _reasons(machine, make_node(), pod) == expected
    assert time.thread_time() - began < 2.5


def test_a_node_without_a_usable_inventory_is_refused_for_vfs_only(
    machine: Machine, make_node: MakeNode, make_pf: MakePf, make_pod: MakePod
) -> None:
    """None, unreadable, of another boot, of a node without the CRI shim, or of one not Ready for over a minute."""
    bad = {"mooring.dev/inventory": "{"}
    programs = {"mooring-advertiser": "1.0", "mooring-cni": "1.0"}
    no_shim = {"mooring.dev/inventory": dump_inventory(Inventory("boot-1", (make_pf(),), programs))}
    cases = [
        (make_node(), "node(s) had no RDMA inventory"),
        (make_node(annotations=bad), "node(s) had an unreadable RDMA inventory"),
        (make_node(pfs=(make_pf(),), boot="boot-2"), "node(s) had an RDMA inventory of another boot"),
        (make_node(annotations=no_shim), "node(s) had not started mooring-cri-shim in this boot"),
    ]
    for node, reason in cases:
        assert _reasons(machine, node, make_pod(request=[{}])) == (reason,)
        assert _reasons(machine, node, make_pod()) == ()
    assert _reasons(machine, make_node(pfs=(make_pf(),)), make_pod(request=[{}])) == ()


@pytest.mark.parametrize("since", ["1970-01-01T00:59:30Z", "2026-01-01T00:00:00Z", "soon", None])
def test_a_node_first_seen_not_ready_counts_from_then(since: str | None, make_node: MakeNode, make_pf: MakePf) -> None:
    """Whatever its condition says: another machine's clock wrote that."""
    node = make_node(pfs=(make_pf(),), ready=False)
    node.status.conditions = [Condition("Ready", "False", last_transition_time=since)]
    facts, _ = read_node(node, None, 3600.0)
    assert facts.inventory_fault(3660.0) is None
    assert facts.inventory_fault(3660.1) == InventoryFault.NOT_READY


def test_a_node_not_ready_for_over_a_minute_gets_nothing_new(make_node: MakeNode, make_pf: MakePf) -> None:
    """The minute counts from when it is seen not to be Ready any more, again when it was Ready in between."""
    ready, unready = make_node(pfs=(make_pf(),)), make_node(pfs=(make_pf(),), ready=False)
    first, _ = read_node(unready, None, 100.0)
    second, _ = read_node(unready, first, 130.0)
    assert second.inventory_fault(160.0) is None
    assert second.inventory_fault(160.5) is InventoryFault.NOT_READY
    again, _ = read_node(ready, second, 170.0)
    assert again.inventory_fault(9999.0) is None


def test_of_an_image_as_many_names_count_as_a_kubelet_writes(make_node: MakeNode) -> None:
    """A node could name one image in a hundred thousand ways, and each costs time whenever the node changes."""
    node = make_node("n1")
    node.status.images = [Image([f"i:{number}" for number in range(9)], 7), Image(["j"], 8)]
    node_info, _ = read_node(node, None, 0.0)
    assert node_info.images == {**{f"i:{number}": 7 for number in range(5)}, "j": 8}
