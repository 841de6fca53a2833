"""The plugins about one node, in kube-scheduler's words; the programs on a node, by which it would reject a pod."""

import time
from typing import Any

import numpy as np
import pytest

from mooring import names
from mooring.annotations.assignment import FIRST_RELEASE
from mooring.annotations.inventory import CNI, CRI_SHIM, Inventory, dump_inventory
from mooring.kube.events import Identity, Removed, Synced
from scheduler.cache.node_info import InventoryFault, read_node
from scheduler.kube.objects import Condition, Image, Node, Pod, RuntimeClass
from scheduler.placement.steps import Steps
from scheduler.plugins.registry import NODE_FILTERS, USAGE_FILTERS
from tests.scheduler.conftest import BOOT, Json
from tests.scheduler.group_life import Life, binds, pod_info_of, show_object

CORDONED = {"spec": {"unschedulable": True}}
SELECTOR = "node(s) didn't match Pod's node affinity/selector"
TAINTED = "node(s) had untolerated taint(s)"
PORTS = "node(s) didn't have free ports for the requested pod ports"
RELEASE = "node(s) ran {}, which does not understand 'link_state' (since 0.10.0)"
HANDLER = "node(s) gave no VFs to pods of runtime handler 'kata'"


def _reasons(life: Life, node: Node, pod: Pod) -> str:
    """Return the reasons of the first plugin that refuses a pod on a node."""
    life.see(node)
    nodes, pod_info = life.machine.cache.nodes, pod_info_of(pod)
    row = nodes.row_of[node.metadata.name]
    for node_filter in NODE_FILTERS:
        judge = node_filter.pre_filter(pod_info, nodes)
        found = judge(np.array([row]), Steps()) if judge else None
        if found is not None and found.codes[0]:
            return ", ".join(found.texts[found.codes[0] - 1])
    for usage_filter in USAGE_FILTERS:
        usage = usage_filter.pre_filter(pod_info, nodes)
        if usage and (mark := usage.judge(nodes.row_view(row))):
            return ", ".join(usage.reasons(mark))
    return ""


def _tainted(effect: str = "NoSchedule") -> Json:
    return {"spec": {"taints": [{"key": "k", "value": "v", "effect": effect}]}}


def _tolerating(**toleration: str) -> Json:
    return {"tolerations": [toleration]}


def _affinity(*terms: Json) -> Json:
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}
    return {"affinity": {"nodeAffinity": required}}


def _expression(key: str, operator: str, *values: str) -> Json:
    return {"key": key, "operator": operator, "values": list(values)}


def _container(**fields: Any) -> Json:
    return {"containers": [{"name": "c"} | fields]}


def _limits(name: str) -> Json:
    return _container(resources={"limits": {name: "1"}})


TWO_CPUS = _container(resources={"requests": {"cpu": "2", "memory": "2Gi"}})


@pytest.mark.parametrize(
    ("node", "spec", "reason"),
    [
        ({}, {}, ""),
        (CORDONED, {}, "node(s) were unschedulable"),
        (CORDONED, _tolerating(key="node.kubernetes.io/unschedulable", operator="Exists"), ""),
        ({}, {"nodeName": "other"}, "node(s) didn't match the requested node name"),
        (_tainted(), {}, TAINTED),
        (_tainted("NoExecute"), {}, TAINTED),
        (_tainted("PreferNoSchedule"), {}, ""),
        (_tainted(), _tolerating(operator="Exists"), ""),
        (_tainted(), _tolerating(key="k", operator="Exists"), ""),
        (_tainted(), _tolerating(key="k", value="v"), ""),
        (_tainted(), _tolerating(key="k", value="w"), TAINTED),
        (_tainted(), _tolerating(key="k", value="v", effect="NoExecute"), TAINTED),
        ({"labels": {"a": "1"}}, {"nodeSelector": {"a": "1"}}, ""),
        ({"labels": {"a": "1"}}, {"nodeSelector": {"a": "2"}}, SELECTOR),
        ({}, _affinity({}), SELECTOR),
        ({}, _affinity({}, {"matchFields": [_expression("metadata.name", "In", "n1")]}), ""),
        ({"labels": {"a": "5"}}, _affinity({"matchExpressions": [_expression("a", "Gt", "4")]}), ""),
        ({"labels": {"a": "5"}}, _affinity({"matchExpressions": [_expression("a", "Lt", "4")]}), SELECTOR),
        ({"labels": {"a": "x"}}, _affinity({"matchExpressions": [_expression("a", "Gt", "4")]}), SELECTOR),
        ({"labels": {"a": "9"}}, _affinity({"matchExpressions": [_expression("a", "Gt", "4", "5")]}), SELECTOR),
        ({"labels": {"a": "x"}}, _affinity({"matchExpressions": [_expression("a", "Like", "x")]}), SELECTOR),
        ({"allocatable": {"pods": "0"}}, {}, "Too many pods"),
        ({"allocatable": {"cpu": "1", "memory": "1Gi"}}, TWO_CPUS, "Insufficient cpu, Insufficient memory"),
        ({}, _limits("x.io/y"), "Insufficient x.io/y"),
        # rit-k8s-rdma's resources count only if a node publishes them.
        ({}, _limits("rdma-sriov/x"), ""),
        ({"allocatable": {"rdma-sriov/x": "0"}}, _limits("rdma-sriov/x"), "Insufficient rdma-sriov/x"),
    ],
)
def test_a_node_is_refused_with_kube_schedulers_message(node: Json, spec: Json, reason: str, life: Life) -> None:
    assert _reasons(life, life.make_node(**node), life.make_pod(spec=spec)) == reason


def test_pods_with_thousands_of_host_ports_do_not_cost_each_event_of_their_node_all_of_them(life: Life) -> None:
    """A tenant may bind such pods to a node. Each comes with ports of its own, and one wants what the last has."""
    life.see(life.make_node())

    def using(host_ip: str, *numbers: int, **fields: Any) -> Pod:
        ports = [{"hostPort": number, "hostIP": host_ip} for number in numbers]
        return life.make_pod(spec=_container(ports=ports) | fields)

    pods = [using(f"10.0.0.{number}", *range(1, 4097), nodeName="n1") for number in range(80)]
    began = time.thread_time()
    life.see(*pods)
    for wanted, expected in (("10.0.0.79", PORTS), ("10.0.1.1", ""), ("0.0.0.0", PORTS)):
        assert _reasons(life, life.make_node(), using(wanted, 4096)) == expected
    assert time.thread_time() - began < 2.5


NO_SHIM = dump_inventory(Inventory(BOOT, (), {"mooring-advertiser": "1.0", "mooring-cni": "1.0"}))


@pytest.mark.parametrize(
    ("has_pfs", "node", "reason"),
    [
        (True, {}, ""),
        (False, {}, "node(s) had no RDMA inventory"),
        (False, {"annotations": {names.INVENTORY: "{"}}, "node(s) had an unreadable RDMA inventory"),
        (True, {"boot": "boot-2"}, "node(s) had an RDMA inventory of another boot"),
        (True, {"annotations": {names.INVENTORY: NO_SHIM}}, "node(s) had not started mooring-cri-shim in this boot"),
    ],
)
def test_a_node_without_a_usable_inventory_is_refused_for_vfs_only(
    has_pfs: bool, node: Json, reason: str, life: Life
) -> None:
    shown = life.make_node(pfs=(life.make_pf(),) if has_pfs else (), **node)
    assert _reasons(life, shown, life.make_pod(request=[{}])) == reason
    assert _reasons(life, shown, life.make_pod()) == ""


@pytest.mark.parametrize("since", ["1970-01-01T00:59:30Z", "2026-01-01T00:00:00Z", "soon", None])
def test_a_node_not_ready_for_over_a_minute_gets_nothing_new(since: str | None, life: Life) -> None:
    """The minute counts from when it is seen not to be Ready, again when it was Ready in between.

    Whatever its condition says: another machine's clock wrote that.
    """
    ready, unready = life.make_node(pfs=(life.make_pf(),)), life.make_node(pfs=(life.make_pf(),), ready=False)
    unready.status.conditions = [Condition("Ready", "False", last_transition_time=since)]
    first, _ = read_node(unready, None, 3600.0)
    second, _ = read_node(unready, first, 3630.0)
    for facts in (first, second):
        assert facts.inventory_fault(3660.0) is None
        assert facts.inventory_fault(3660.1) is InventoryFault.NOT_READY
    again, _ = read_node(ready, second, 3670.0)
    assert again.inventory_fault(9999.0) is None


def test_of_an_image_as_many_names_count_as_a_kubelet_writes(life: Life) -> None:
    """A node could name one image in a hundred thousand ways, and each costs time whenever the node changes."""
    node = life.make_node("n1")
    node.status.images = [Image([f"i:{number}" for number in range(9)], 7), Image(["j"], 8)]
    node_info, _ = read_node(node, None, 0.0)
    assert node_info.images == {**{f"i:{number}": 7 for number in range(5)}, "j": 8}


def _running(life: Life, **inventory: Any) -> Node:
    text = dump_inventory(Inventory(BOOT, (life.make_pf(),), **inventory))
    return life.make_node("n1", annotations={names.INVENTORY: text})


def _show_class(life: Life, name: str, handler: str) -> None:
    show_object(life.machine, RuntimeClass, {"metadata": {"name": name, "uid": name}, "handler": handler})


def _programs(cni: str, cri_shim: str) -> Json:
    return {"programs": {CNI: cni, CRI_SHIM: cri_shim}}


LINK_STATE, PLAIN = {"link_state": "enable"}, {"max_tx_rate": 1000}
RUNC = {"handlers": frozenset({"runc"})}


@pytest.mark.parametrize(
    ("inventory", "vf", "runtime_class", "reason"),
    [
        (_programs("0.10.0", "0.10.1"), LINK_STATE, None, ""),
        (_programs("1.0.0rc1", "0.10.0"), LINK_STATE, None, ""),
        (_programs("0.9.0", "0.10.0"), LINK_STATE, None, RELEASE.format("mooring-cni 0.9.0")),
        (_programs("0.10.0", "0.9.0"), LINK_STATE, None, RELEASE.format("mooring-cri-shim 0.9.0")),
        (_programs("0.10.0", "unknown"), LINK_STATE, None, RELEASE.format("mooring-cri-shim unknown")),
        # An inventory of another program than Mooring's advertiser.
        ({}, LINK_STATE, None, RELEASE.format("mooring-cni unknown")),
        # What the pod does not request is not in its assignment.
        (_programs("0.9.0", "0.9.0"), PLAIN, None, ""),
        # A class's name is not its handler's: OpenShift's performance profiles have classes of other names.
        (RUNC, PLAIN, "virtual", HANDLER),
        (RUNC, PLAIN, "fast", ""),
        (RUNC, PLAIN, None, ""),
        # Without VFs the shim lets it through; without the list, or the class, nothing is known.
        (RUNC, None, "virtual", ""),
        ({}, PLAIN, "virtual", ""),
        (RUNC, PLAIN, "unlisted", ""),
    ],
)
def test_a_pod_waits_where_the_shim_or_the_cni_plugin_would_reject_it(
    inventory: Json,
    vf: Json | None,
    runtime_class: str | None,
    reason: str,
    life: Life,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By a field of its assignment that is newer than they are, or by its runtime handler."""
    monkeypatch.setitem(FIRST_RELEASE, "link_state", "0.10.0")
    _show_class(life, "virtual", "kata")
    _show_class(life, "fast", "runc")
    pod = life.make_pod(request=None if vf is None else [vf], spec={"runtimeClassName": runtime_class})
    assert _reasons(life, _running(life, **inventory), pod) == reason


@pytest.mark.parametrize("event", [Removed(Identity("virtual")), Synced(())], ids=["deleted", "not listed"])
def test_a_class_that_is_listed_later_counts_and_one_that_is_gone_rejects_no_pod(event: Any, life: Life) -> None:
    """Also for pods of a shape that was judged before."""
    life.see(_running(life, **RUNC))

    def decide() -> int:
        life.see(life.make_pod(request=[{}], spec={"runtimeClassName": "virtual"}))
        return len(binds(life.decide_ready()))

    assert decide() == 1
    _show_class(life, "virtual", "kata")
    assert decide() == 0
    life.machine.handle(RuntimeClass, event, 60.0)
    assert len(binds(life.decide_ready(60.0))) == 1
