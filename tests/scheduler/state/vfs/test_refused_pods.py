"""What replaces a pod that its node did not keep goes to another node for ten minutes, if one fits."""

from typing import Any

import pytest

from mooring import names
from mooring.annotations.inventory import LOST, Out
from mooring.indexes import Indexes
from scheduler.cycle.refusing_nodes import AVOIDANCE_S, RefusingNodes
from scheduler.kube.objects import Pod
from tests.scheduler.group_life import Life, MakePod, annotated, binds, changed

# As `rejectPod` in pkg/kubelet/kubelet.go writes it (Kubernetes 1.36).
REJECTED: dict[str, Any] = {
    "status": {"phase": "Failed", "reason": "TopologyAffinityError", "message": "Pod was rejected: Resources cannot be"}
}
TRAIN = '{"name":"train","min":1}'
ENDED: dict[str, Any] = {
    "status": {
        "phase": "Failed",
        "reason": "Evicted",
        "containerStatuses": [{"state": {"terminated": {"finishedAt": None}}}],
    }
}


@pytest.fixture(autouse=True)
def nodes(life: Life) -> None:
    life.nodes("n1", "n2", "n3", vfs=8)


def place(life: Life, name: str, owner: str = "job-1", group: str = "", later_s: float = 0.0) -> Pod:
    owners = [{"kind": "Job", "name": owner, "uid": owner, "controller": True}] if owner else None
    pod = life.make_pod(name, [{}], metadata={"ownerReferences": owners})
    life.see(annotated(pod, {names.GROUP: group}) if group else pod)
    (bound,) = life.bound(*binds(life.work(later_s)))
    return bound


def rejected(life: Life, name: str, owner: str = "job-1", group: str = "") -> Pod:
    """Let a pod be placed, and rejected by the kubelet of its node."""
    pod = place(life, name, owner, group)
    life.see(changed(pod, **REJECTED))
    return pod


def test_a_node_that_rejected_a_pod_is_avoided_for_ten_minutes(life: Life) -> None:
    """Each replacement is tried where none was rejected yet; when all have refused, the pod runs where it fits."""
    assert {rejected(life, name).spec.node_name for name in "abc"} == {"n1", "n2", "n3"}
    assert place(life, "d").spec.node_name in ("n1", "n2", "n3")
    later = place(life, "e", "job-2", later_s=AVOIDANCE_S)
    assert place(life, "f").spec.node_name == later.spec.node_name


def test_a_standby_does_not_keep_what_is_over(make_pod: MakePod) -> None:
    """It has no ticks; each rejection drops earlier ones."""
    nodes = RefusingNodes()
    owners = [{"kind": "Job", "controller": True, "name": name, "uid": name} for name in "ab"]
    first, second = (make_pod(request=[{}], metadata={"ownerReferences": [owner]}) for owner in owners)
    nodes.note(first, "n1", 0.0)
    nodes.note(second, "n1", AVOIDANCE_S + 1.0)
    assert (nodes.concern([first]), nodes.concern([second])) == (False, True)


def test_pods_of_another_controller_and_those_that_ran_avoid_nothing(life: Life) -> None:
    first = rejected(life, "a")
    assert place(life, "b", "job-2").spec.node_name == first.spec.node_name
    ran = place(life, "c", "job-3")
    life.see(changed(ran, **ENDED))
    assert place(life, "d", "job-3").spec.node_name == ran.spec.node_name


@pytest.mark.parametrize(
    ("owner", "next_owner", "group"), [("", "", ""), ("job-1", "job-1", TRAIN), ("", "job-1", TRAIN)]
)
def test_a_pod_without_a_controller_and_a_member_of_a_group_avoid_the_node_too(
    owner: str, next_owner: str, group: str, life: Life
) -> None:
    first = rejected(life, "a", owner, group)
    assert place(life, "b", next_owner, group).spec.node_name != first.spec.node_name


def test_the_node_on_which_a_vf_was_lost_is_avoided(life: Life) -> None:
    first = place(life, "a")
    node, uid = first.spec.node_name or "", first.metadata.uid
    lost = (Out(Indexes.of([0]), f"{LOST}on the host although pod {uid} holds it"),)
    life.show_node(node, life.make_pf(vfs=8, out=lost))
    going = changed(first, metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}, status={"phase": "Running"})
    life.see(going)
    life.gone(going)
    assert place(life, "b").spec.node_name != node


@pytest.mark.parametrize("level", ["within", "prefer"])
def test_a_group_in_racks_leaves_the_rack_where_it_would_need_the_node(life: Life, level: str) -> None:
    """Each rack has only the nodes that the group needs; both pods are rejected, and made again."""
    for rack in "ab":
        for number in range(2):
            life.nodes(f"{rack}{number}", vfs=1, labels={"rack": rack})
    levels = '"within": "rack"' if level == "within" else '"prefer": ["rack"]'
    group = f'{{"name": "train", "min": 2, {levels}}}'
    racks = []
    for attempt in ("first", "again"):
        life.see(*(life.member(f"{attempt}{rank}", group, request=[{"pf": "*"}]) for rank in range(2)))
        bound = life.bound(*binds(life.work(1.0)))
        assert len(bound) == 2
        racks.append({(pod.spec.node_name or "")[0] for pod in bound})
        life.see(*(changed(pod, **REJECTED) for pod in bound))
    assert len(racks[0]) == 1
    assert racks[0] != racks[1]
