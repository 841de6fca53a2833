"""The admission guard: what it refuses, in which words, and which requests it lets through.

Each test runs twice: on the policies' expressions, evaluated by a CEL library, and on a real API server.
"""

import json
from typing import Any

import pytest

from mooring import names
from mooring.annotations.inventory import MOST_INVENTORY_CHARACTERS
from scheduler.constraints.kinds import MOST_REQUEST_CHARACTERS
from tests.manifests.admission import User
from tests.manifests.conftest import Guarded

SCHEDULER = User("system:serviceaccount:mooring-system:mooring-scheduler")
KUBELET = User("system:node:n")
ALICE = User("alice")
ADVERTISER = "system:serviceaccount:mooring-node:mooring-advertiser"
NOT_SCHEDULER = (
    "annotation 'mooring.dev/assignment': 'alice' is not Mooring's scheduler, which alone sets, changes or removes it"
)
FIXED = "cannot change once the pod has a node: its VFs are given"
OWNER = {"apiVersion": "v1", "kind": "Node", "name": "owner", "uid": "5f1c"}
OTHER = OWNER | {"name": "other"}
ONE_VF = {names.REQUEST: "[{}]"}


def pod(name: str = "p", annotations: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    containers = [{"name": "c", "image": "registry.example/pause:1"}]
    metadata = {"name": name, **({"annotations": annotations} if annotations else {})}
    return {"metadata": metadata, "spec": {"schedulerName": "mooring", "containers": containers, **spec}}


def node(name: str) -> dict[str, Any]:
    metadata = {"name": name, "labels": {"a": "b"}, "annotations": {"other": "one"}, "ownerReferences": [OWNER]}
    return {"metadata": metadata, "spec": {}, "status": {}}


GROUP = {names.GROUP: '{"name": "train", "min": 2}'}


def annotated(**changes: str | None) -> dict[str, Any]:
    keys = {"assignment": names.ASSIGNMENT, "inventory": names.INVENTORY, "request": names.REQUEST, "other": "other"}
    keys |= {
        "rates": names.RATES,
        "in_force": names.RATES_IN_FORCE,
        "rit": names.RIT_REQUEST,
        "placement": names.PLACEMENT,
        "gpus": f"{names.INVENTORY_OF}gpu",
        "licences": f"{names.INVENTORY_OF}licence",
    }
    return {"metadata": {"annotations": {keys[key]: value for key, value in changes.items()}}}


READY = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "it is"}


IMPAIRED = {"type": "mooring.dev/VfsImpaired", "status": "True", "reason": "ForeignEntries", "message": ""}


def bypassed(status: str, message: str = "") -> dict[str, str]:
    return {"type": "mooring.dev/ShimBypassed", "status": status, "reason": "KubeletPastShim", "message": message}


@pytest.mark.parametrize("key", [names.SIGNATURE, names.SPARES])
async def test_a_signature_and_spares_are_guarded_as_the_assignment_is(guarded: Guarded, key: str) -> None:
    """With one a user could keep a pod from starting or put an old one back, with the other reserve VFs anywhere."""
    refused = NOT_SCHEDULER.replace(names.ASSIGNMENT, key)
    some, none = ({"metadata": {"annotations": {key: value}}} for value in ("{}", None))
    assert refused in await guarded.create(ALICE, "pods", pod(annotations={key: "{}"}))
    assert await guarded.create(ALICE, "pods", pod(annotations=ONE_VF)) == ""
    for subresource in ("", "status"):
        assert refused in await guarded.patch(ALICE, "pods", "p", some, subresource)
        assert await guarded.patch(SCHEDULER, "pods", "p", some, subresource) == ""
        assert refused in await guarded.patch(ALICE, "pods", "p", none, subresource)
        assert await guarded.patch(ALICE, "pods", "p", annotated(other=subresource or "x"), subresource) == ""
        assert await guarded.patch(SCHEDULER, "pods", "p", none, subresource) == ""
    for resource in ("pods/binding", "bindings"):
        assert refused in await guarded.bind(ALICE, "p", {key: "{}"}, resource)
    both = {names.ASSIGNMENT: "{}", key: "{}"}
    assert NOT_SCHEDULER in await guarded.bind(ALICE, "p", both, "pods/binding")
    assert await guarded.bind(SCHEDULER, "p", both, "pods/binding") == ""


async def test_a_pod_cannot_come_with_an_assignment(guarded: Guarded) -> None:
    """A user who could write one would choose VFs."""
    assert NOT_SCHEDULER in await guarded.create(ALICE, "pods", pod(annotations={names.ASSIGNMENT: "{}"}))
    assert NOT_SCHEDULER in await guarded.create(ALICE, "pods", pod(annotations={names.ASSIGNMENT: ""}))
    assert await guarded.create(ALICE, "pods", pod()) == ""
    assert NOT_SCHEDULER in await guarded.patch(ALICE, "pods", "p", annotated(assignment="{}"))
    assert await guarded.patch(SCHEDULER, "pods", "p", annotated(assignment="{}")) == ""


@pytest.mark.parametrize("subresource", ["", "status"])
async def test_an_assignment_is_set_changed_and_removed_by_the_scheduler_only(
    guarded: Guarded, subresource: str
) -> None:
    """Annotations can be written by pods/status too; other writers may write the rest of the pod."""
    assert await guarded.create(ALICE, "pods", pod(annotations=ONE_VF)) == ""
    assert NOT_SCHEDULER in await guarded.patch(ALICE, "pods", "p", annotated(assignment="{}"), subresource)
    assert await guarded.patch(SCHEDULER, "pods", "p", annotated(assignment="{}"), subresource) == ""
    assert NOT_SCHEDULER in await guarded.patch(ALICE, "pods", "p", annotated(assignment='{"v":1}'), subresource)
    assert NOT_SCHEDULER in await guarded.patch(ALICE, "pods", "p", annotated(assignment=None), subresource)
    assert await guarded.patch(ALICE, "pods", "p", annotated(other="two"), subresource) == ""
    assert await guarded.patch(KUBELET, "pods", "p", {"status": {"phase": "Running"}}, "status") == ""
    assert await guarded.patch(SCHEDULER, "pods", "p", annotated(assignment=None), subresource) == ""


@pytest.mark.parametrize("resource", ["pods/binding", "bindings"])
async def test_a_binding_with_an_assignment_is_the_schedulers(guarded: Guarded, resource: str) -> None:
    """This holds for either of the two ways to bind; the guard ignores a Binding without one."""
    for name in ("p", "q"):
        assert await guarded.create(ALICE, "pods", pod(name)) == ""
    assert NOT_SCHEDULER in await guarded.bind(ALICE, "p", {names.ASSIGNMENT: "{}"}, resource)
    assert await guarded.bind(SCHEDULER, "p", {names.ASSIGNMENT: "{}"}, resource) == ""
    assert await guarded.bind(ALICE, "q", {}, resource) == ""


@pytest.mark.parametrize("resource", ["pods/binding", "bindings"])
async def test_a_binding_cannot_bring_a_request_or_a_group(guarded: Guarded, resource: str) -> None:
    """Its annotations become the pod's in the very write that gives it a node, so no scheduler has decided on them."""
    assert await guarded.create(ALICE, "pods", pod()) == ""
    for key in (names.REQUEST, names.RIT_REQUEST, names.PLACEMENT, names.GROUP):
        answer = await guarded.bind(SCHEDULER, "p", {key: "[]"}, resource)
        assert f"a Binding sets none of '{names.REQUEST}'" in answer


async def test_an_inventory_is_written_by_the_nodes_own_advertiser_only(guarded: Guarded) -> None:
    """Users, kubelets, another node's advertiser, and one whose token names no node are refused."""
    for name in ("n1", "n2"):
        assert await guarded.create(KUBELET, "nodes", node(name)) == ""
    own, elsewhere, nowhere = User(ADVERTISER, "n1"), User(ADVERTISER, "n2"), User(ADVERTISER)
    inventory = annotated(inventory="{}")
    assert (
        "annotation 'mooring.dev/inventory' or 'mooring.dev/rates-in-force': 'alice' is not the node's advertiser, "
        "which alone sets, changes or removes" in await guarded.patch(ALICE, "nodes", "n1", inventory)
    )
    bound = "this advertiser's token is bound to"
    assert f"node 'n1': {bound} node 'n2', and it writes no other" in await guarded.patch(
        elsewhere, "nodes", "n1", inventory
    )
    assert f"node 'n1': {bound} no node, and it writes no other" in await guarded.patch(
        nowhere, "nodes", "n1", inventory
    )
    assert await guarded.patch(own, "nodes", "n1", inventory) == ""
    assert "is not the node's advertiser" in await guarded.patch(KUBELET, "nodes", "n1", annotated(inventory=None))
    assert "is not the node's advertiser" in await guarded.patch(
        KUBELET, "nodes", "n1", annotated(inventory="[]"), "status"
    )
    assert await guarded.patch(KUBELET, "nodes", "n1", {"metadata": {"labels": {"a": "c"}}}) == ""
    assert await guarded.patch(own, "nodes", "n1", annotated(inventory=None)) == ""
    assert "is not the node's advertiser" in await guarded.create(
        KUBELET, "nodes", {**node("n3"), "metadata": {"name": "n3", "annotations": {names.INVENTORY: "{}"}}}
    )


@pytest.mark.parametrize(
    ("change", "subresource", "why"),
    [
        (annotated(other="two"), "", "no annotation but 'mooring.dev/inventory'"),
        (annotated(other=None), "", "no annotation but 'mooring.dev/inventory'"),
        (annotated(other="two"), "status", "no annotation but 'mooring.dev/inventory'"),
        ({"metadata": {"annotations": {"new": ""}}}, "", "no annotation but 'mooring.dev/inventory'"),
        ({"metadata": {"labels": {"a": None}}}, "", "neither spec nor labels, finalizers or owners"),
        ({"metadata": {"finalizers": ["x.example/y"]}}, "", "neither spec nor labels, finalizers or owners"),
        (
            {"metadata": {"ownerReferences": [OTHER]}},
            "",
            "neither spec nor labels, finalizers or owners",
        ),
        ({"metadata": {"ownerReferences": None}}, "", "neither spec nor labels, finalizers or owners"),
        ({"spec": {"unschedulable": True}}, "", "neither spec nor labels, finalizers or owners"),
        ({"status": {"phase": "Terminated"}}, "status", "nothing of a node's status but capacity, allocatable and"),
        ({"status": {"conditions": [READY, bypassed("True")]}}, "status", ""),
        ({"status": {"conditions": [bypassed("False"), READY]}}, "status", ""),
        ({"status": {"conditions": [{**READY, "status": "False"}]}}, "status", "no condition of a node but"),
        ({"status": {"conditions": [bypassed("True")]}}, "status", "no condition of a node but"),
        ({"status": {"conditions": None}}, "status", "nothing of a node's status but capacity"),
        (
            {"status": {"conditions": [READY, bypassed("True"), {**bypassed("True"), "type": "MemoryPressure"}]}},
            "status",
            "no condition of a node but 'mooring.dev/ShimBypassed'",
        ),
        ({"status": {"conditions": [READY, bypassed("True"), IMPAIRED]}}, "status", ""),
        ({"status": {"conditions": [READY, IMPAIRED, IMPAIRED]}}, "status", "once, True"),
        ({"status": {"conditions": [READY, {**IMPAIRED, "type": "mooring.dev/InstallFailed"}]}}, "status", ""),
        ({"status": {"conditions": [READY, bypassed("Perhaps")]}}, "status", "True, False or Unknown"),
        ({"status": {"conditions": [READY, bypassed("True"), bypassed("False")]}}, "status", "once, True"),
        ({"status": {"conditions": [READY, bypassed("True", "x" * 1025)]}}, "status", "most 1024 characters"),
        ({"status": {"conditions": [READY, bypassed("True", "x" * 1024)]}}, "status", ""),
        ({"status": {"allocatable": {"cpu": "99"}}}, "status", "no resource but 'rdma-sriov/vf'"),
        ({"status": {"capacity": {"cpu": None}}}, "status", "no resource but 'rdma-sriov/vf'"),
        ({"status": {"capacity": {"rdma-sriov/vf": "8"}, "allocatable": {"tencent.com/rdma": "7"}}}, "status", ""),
        (annotated(inventory='{"v":1}'), "", ""),
        (annotated(gpus='{"v":1}'), "", ""),
        (annotated(in_force='{"v":1}'), "", ""),
        (annotated(in_force="x" * (MOST_INVENTORY_CHARACTERS + 1)), "", "longer than 131072 characters"),
        (annotated(gpus="x" * (MOST_INVENTORY_CHARACTERS + 1)), "", "longer than 131072 characters"),
        (
            annotated(licences='{"v":1}'),
            "",
            "no annotation but 'mooring.dev/inventory', 'mooring.dev/rates-in-force' and 'mooring.dev/inventory.gpu'",
        ),
        (annotated(inventory="x" * MOST_INVENTORY_CHARACTERS), "", ""),
        (annotated(inventory="x" * (MOST_INVENTORY_CHARACTERS + 1)), "", "longer than 131072 characters"),
    ],
)
async def test_an_advertiser_writes_of_its_node_only_what_is_its_business(
    guarded: Guarded, change: dict[str, Any], subresource: str, why: str
) -> None:
    """An advertiser may write the inventory, and in node status the extended resources and one condition."""
    assert await guarded.create(KUBELET, "nodes", node("n1")) == ""
    capacity = {"cpu": "8", "memory": "8Gi"}
    status = {"capacity": capacity, "allocatable": capacity, "phase": "Running", "conditions": [READY]}
    assert await guarded.patch(KUBELET, "nodes", "n1", {"status": status}, "status") == ""
    answer = await guarded.patch(User(ADVERTISER, "n1"), "nodes", "n1", change, subresource)
    assert why in answer
    assert bool(answer) == bool(why)


@pytest.mark.parametrize(
    ("annotations", "spec", "why"),
    [
        (ONE_VF, {}, ""),
        (ONE_VF, {"hostNetwork": False}, ""),
        ({names.RIT_REQUEST: '[{"min_tx_rate": 1}]', names.PLACEMENT: ' {"pfs": "pack"}\n'}, {}, ""),
        ({names.REQUEST: ' \n[{"min_tx_rate": 1},\n {}]\n'}, {}, ""),
        ({names.REQUEST: " [ ] "}, {"schedulerName": "default-scheduler", "hostNetwork": True}, ""),
        ({}, {"schedulerName": "default-scheduler", "nodeName": "n", "hostNetwork": True}, ""),
        (
            ONE_VF,
            {"schedulerName": "default-scheduler"},
            f"spec.schedulerName: 'default-scheduler' gives no interfaces; a pod with '{names.REQUEST}' names one of: "
            "mooring",
        ),
        (
            {names.RIT_REQUEST: "[{}]"},
            {"schedulerName": "moor"},
            f"'moor' gives no interfaces; a pod with '{names.RIT_REQUEST}'",
        ),
        (ONE_VF, {"nodeName": "n"}, "spec.nodeName: 'n' is preset, so that no scheduler would choose the VFs of"),
        (ONE_VF, {"hostNetwork": True}, "spec.hostNetwork: a pod in the host's network cannot be given interfaces"),
        ({**ONE_VF, names.RIT_REQUEST: "[]"}, {}, "are on one pod; only one may be given"),
        ({names.REQUEST: '{"min_tx_rate": 1}'}, {}, f"annotation '{names.REQUEST}': not a JSON list, such as [{{"),
        ({names.REQUEST: ""}, {}, "not a JSON list"),
        ({names.REQUEST: f"[{' ' * 32768}]"}, {}, f"annotation '{names.REQUEST}': more than 32768 characters"),
        ({names.PLACEMENT: "pack"}, {}, f"annotation '{names.PLACEMENT}': not a JSON object of at most 256"),
        ({names.PLACEMENT: json.dumps({"pfs": "p" * 256})}, {}, "not a JSON object of at most 256"),
        (GROUP, {}, ""),
        (
            GROUP,
            {"schedulerName": "default-scheduler"},
            f"spec.schedulerName: 'default-scheduler' knows no groups; a pod with '{names.GROUP}' names: mooring",
        ),
        ({names.GROUP: "train"}, {}, f"annotation '{names.GROUP}': not a JSON object of at most 4096"),
        ({names.GROUP: json.dumps({"name": "t" * 4096})}, {}, "not a JSON object of at most 4096"),
    ],
)
async def test_a_request_that_could_not_be_served_is_refused_where_it_is_written(
    guarded: Guarded, annotations: dict[str, str], spec: dict[str, Any], why: str
) -> None:
    """With the field and the rule; a pod that requests no VF may be anywhere."""
    answer = await guarded.create(ALICE, "pods", pod(annotations=annotations, **spec))
    assert why in answer
    assert bool(answer) == bool(why)


async def test_nothing_but_interfaces_changes_once_the_pod_has_a_node(guarded: Guarded) -> None:
    """Before that all may be corrected; afterwards nothing can be removed or added, nor by status."""
    for name, annotations in (("p", {names.REQUEST: "[{},{}]"}), ("q", {}), ("r", {names.RIT_REQUEST: "[{}]"})):
        assert await guarded.create(ALICE, "pods", pod(name, annotations)) == ""
    assert await guarded.patch(ALICE, "pods", "p", annotated(request="[{}]")) == ""
    assert "not a JSON list" in await guarded.patch(ALICE, "pods", "p", annotated(request="{}"))
    for name in ("p", "q", "r"):
        assert await guarded.bind(SCHEDULER, name, {names.ASSIGNMENT: "{}"}) == ""
    for subresource in ("", "status"):
        assert FIXED in await guarded.patch(ALICE, "pods", "p", annotated(request=None), subresource)
        assert FIXED in await guarded.patch(ALICE, "pods", "p", annotated(rit="[{}]"), subresource)
        assert FIXED in await guarded.patch(ALICE, "pods", "p", annotated(request="[]", placement="{}"), subresource)
        assert FIXED in await guarded.patch(ALICE, "pods", "q", annotated(request="[{}]"), subresource)
        assert FIXED in await guarded.patch(ALICE, "pods", "r", annotated(rit="[]"), subresource)
    assert FIXED in await guarded.patch(ALICE, "pods", "q", annotated(placement="{}"))
    assert await guarded.patch(ALICE, "pods", "p", annotated(other="two")) == ""


async def test_the_interfaces_of_a_running_pod_change_within_bounds(guarded: Guarded) -> None:
    """Which change is one of rates is the scheduler's affair; a pod of kube-scheduler's, or without VFs, has none."""
    await guarded.take_pods_of("mooring default-scheduler")
    gpu = {f"{names.REQUEST_OF}gpu": "{}"}
    assert await guarded.create(ALICE, "pods", pod("p", {names.REQUEST: "[{}]", names.PLACEMENT: "{}", **gpu})) == ""
    assert await guarded.create(ALICE, "pods", pod("q", ONE_VF)) == ""
    assert await guarded.create(ALICE, "pods", pod("r", ONE_VF, schedulerName="default-scheduler")) == ""
    for name, given in (("p", {names.ASSIGNMENT: "{}"}), ("q", {}), ("r", {names.ASSIGNMENT: "{}"})):
        assert await guarded.bind(SCHEDULER, name, given) == ""
    edit = annotated(request='[{"min_tx_rate":1}]')
    assert await guarded.patch(ALICE, "pods", "p", edit) == ""
    for name in ("q", "r"):
        assert FIXED in await guarded.patch(ALICE, "pods", name, edit)
    assert "not a JSON list" in await guarded.patch(ALICE, "pods", "p", annotated(request="{}"))
    assert "more than 32768" in await guarded.patch(ALICE, "pods", "p", annotated(request=f"[{' ' * 32768}]"))
    both = {"metadata": {"annotations": {names.REQUEST: "[{}]", f"{names.REQUEST_OF}gpu": None}}}
    assert FIXED in await guarded.patch(ALICE, "pods", "p", both)


@pytest.mark.parametrize("key", [names.RATES, names.RATES_SIGNATURE])
async def test_rates_are_allocated_by_the_scheduler_only(guarded: Guarded, key: str) -> None:
    """A user who could write them would have any rate without its being reserved."""
    refused, change = (
        f"annotation '{key}': 'alice' is not Mooring's scheduler",
        {"metadata": {"annotations": {key: "{}"}}},
    )
    assert refused in await guarded.create(ALICE, "pods", pod(annotations={key: "{}"}))
    assert await guarded.create(ALICE, "pods", pod(annotations=ONE_VF)) == ""
    for subresource in ("", "status"):
        assert refused in await guarded.patch(ALICE, "pods", "p", change, subresource)
    assert await guarded.patch(SCHEDULER, "pods", "p", change, "status") == ""
    assert refused in await guarded.patch(ALICE, "pods", "p", {"metadata": {"annotations": {key: None}}})


async def test_what_is_in_force_is_said_by_the_nodes_own_advertiser_only(guarded: Guarded) -> None:
    """A user who could say it would free what a VF still has."""
    for name in ("n1", "n2"):
        assert await guarded.create(KUBELET, "nodes", node(name)) == ""
    change = annotated(in_force="{}")
    assert await guarded.patch(User(ADVERTISER, "n1"), "nodes", "n1", change) == ""
    assert "writes no other" in await guarded.patch(User(ADVERTISER, "n1"), "nodes", "n2", change)
    for user in (ALICE, KUBELET):
        assert "is not the node's advertiser" in await guarded.patch(user, "nodes", "n2", change)
        assert "is not the node's advertiser" in await guarded.patch(user, "nodes", "n1", annotated(in_force=None))


async def test_a_request_for_another_kind_is_bounded_and_guarded_like_one_for_vfs(guarded: Guarded) -> None:
    """By size, by the scheduler's name, and once the pod has a node; other annotations are not concerned."""
    gpu = {f"{names.REQUEST_OF}gpu": "[{}]"}
    assert await guarded.create(ALICE, "pods", pod(annotations=gpu)) == ""
    long = {f"{names.REQUEST_OF}gpu": " " * (MOST_REQUEST_CHARACTERS + 1)}
    too_long = f"annotation 'mooring.dev/request.…': longer than {MOST_REQUEST_CHARACTERS} characters"
    assert too_long in await guarded.create(ALICE, "pods", pod("q", long))
    alone = "names Mooring's scheduler in spec.schedulerName, and comes without spec.nodeName"
    assert alone in await guarded.create(ALICE, "pods", pod("q", gpu, schedulerName="default-scheduler"))
    assert alone in await guarded.create(ALICE, "pods", pod("q", gpu, nodeName="n"))
    assert "a Binding sets none of" in await guarded.bind(SCHEDULER, "p", gpu)
    assert await guarded.bind(SCHEDULER, "p", {}) == ""
    for change in ("[]", None):
        edit = {"metadata": {"annotations": {f"{names.REQUEST_OF}gpu": change}}}
        assert FIXED in await guarded.patch(ALICE, "pods", "p", edit)
    assert await guarded.patch(ALICE, "pods", "p", annotated(other="two")) == ""


@pytest.mark.parametrize("resource", ["mooring.dev/gpu", *names.EXTENDED_RESOURCES])
@pytest.mark.parametrize("where", ["containers", "initContainers"])
async def test_a_limit_of_our_resources_is_guarded_like_a_request(guarded: Guarded, where: str, resource: str) -> None:
    """Another scheduler would bind the pod without VFs or GPUs. Pods with other limits are not concerned."""

    def limiting(name: str, resource: str) -> dict[str, Any]:
        container = {"name": name, "image": "i", "resources": {"limits": {resource: "1"}, "requests": {resource: "1"}}}
        return {"containers": [{"name": "c", "image": "i"}]} | {where: [container]}

    ours = f"a pod with a limit of '{resource}' must come without spec.nodeName and name one of these"
    assert await guarded.create(ALICE, "pods", pod("p", **limiting("g", resource))) == ""
    other = limiting("g", resource) | {"schedulerName": "default-scheduler"}
    assert ours in await guarded.create(ALICE, "pods", pod("q", **other))
    assert ours in await guarded.create(ALICE, "pods", pod("q", **limiting("g", resource), nodeName="n"))
    theirs = limiting("g", "nvidia.com/gpu") | {"schedulerName": "default-scheduler"}
    assert await guarded.create(ALICE, "pods", pod("q", **theirs)) == ""
    assert await guarded.bind(SCHEDULER, "p", {}) == ""
    assert await guarded.patch(ALICE, "pods", "p", annotated(other="two")) == ""


async def test_an_inventory_of_another_kind_is_written_by_programs_of_the_node_and_by_people(guarded: Guarded) -> None:
    """A compromised node cannot say what other nodes have; an account that says it for all nodes is named."""
    for name in ("n", "n2"):
        assert await guarded.create(KUBELET, "nodes", node(name)) == ""
    account = "system:serviceaccount:gpus:advertiser"
    gpu = {"metadata": {"annotations": {f"{names.INVENTORY_OF}gpu": "{}"}}}
    assert await guarded.patch(User(account, "n"), "nodes", "n", gpu) == ""
    assert await guarded.patch(ALICE, "nodes", "n2", gpu) == ""
    other = {"metadata": {"annotations": {f"{names.INVENTORY_OF}gpu": None}}}
    for user in (User(account, "n"), User(account), KUBELET):
        assert "is no program of that node" in await guarded.patch(user, "nodes", "n2", other)
    assert await guarded.patch(KUBELET, "nodes", "n2", {"metadata": {"labels": {"a": "c"}}}) == ""
    long = {"metadata": {"annotations": {f"{names.INVENTORY_OF}gpu": "x" * (MOST_INVENTORY_CHARACTERS + 1)}}}
    too_long = f"annotation 'mooring.dev/inventory.…': longer than {MOST_INVENTORY_CHARACTERS} characters"
    assert too_long in await guarded.patch(User(account, "n"), "nodes", "n", long)
    assert await guarded.patch(User(account, "n"), "nodes", "n", other) == ""


async def test_other_schedulers_are_named_by_the_parameter(guarded: Guarded) -> None:
    """The extender counts too; a pod that exists keeps running when its scheduler is removed from the list."""
    default = pod(annotations=ONE_VF, schedulerName="default-scheduler")
    await guarded.take_pods_of("mooring default-scheduler")
    assert await guarded.create(ALICE, "pods", default) == ""
    await guarded.take_pods_of("mooring")
    assert await guarded.patch(KUBELET, "pods", "p", {"status": {"phase": "Running"}}, "status") == ""
    assert "gives no interfaces" in await guarded.patch(ALICE, "pods", "p", annotated(request="[{},{}]"))
