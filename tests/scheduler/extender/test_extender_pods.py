"""The extender's answers to kube-scheduler: nodes filtered, VFs reserved, victims added."""

from typing import Any

import msgspec
import pytest

from mooring import names
from mooring.gpu.inventory import KEY, Gpu, GpuInventory, dump_gpu_inventory
from mooring.kube.events import Changed, Identity, Synced
from scheduler.constraints.kinds import Kinds
from scheduler.cycle.instructions import Notice, Report
from scheduler.extender.bound_without_vfs import NO_BIND_VERB
from scheduler.extender.extender_pods import UNKNOWN_NODE, UNKNOWN_POD, Verdict
from scheduler.extender.wire_format import Victims
from scheduler.kube.objects import Pod
from scheduler.kube.outcomes import BOUND, Outcome, Refused
from scheduler.kube.pod_info import PodInfo
from scheduler.kube.workload_objects import PodGroup
from scheduler.placement.gpus import gpu_kind
from scheduler.state.machine import Machine
from tests.scheduler.conftest import MakeNode, MakePf, MakePod
from tests.scheduler.extender.scene import FOREIGN, FULL, NOW, Scene

FITS, OTHER_REASON = Verdict(), Verdict(for_good=True)


def test_the_extender_filters_only_by_vfs_and_units(scene: Scene) -> None:
    """The pod's cpus, ports and selectors are kube-scheduler's; each refusal says whether preemption may help."""
    scene.add_node("n1")
    scene.add_node("full")
    scene.add_node("slow", offer_mbps=1000)
    scene.add_node("bare", vfs=0)
    scene.assigned("full", [0])
    greedy = {"containers": [{"name": "c", "resources": {"requests": {"cpu": "999"}}}], "nodeSelector": {"no": "such"}}
    pod_info = scene.pod_info([{"min_tx_rate": 5000}], spec=greedy)
    assert scene.judge(pod_info, "n1", "full", "slow", "bare", "gone") == {
        "n1": FITS,
        "full": Verdict(FULL),
        "slow": Verdict("node(s) had no PF fast enough for 5000 Mb/s", for_good=True),
        "bare": Verdict("node(s) had no RDMA inventory", for_good=True, blind=True),
        "gone": Verdict(UNKNOWN_NODE, for_good=True, blind=True),
    }


def test_members_of_a_group_that_are_only_tried_keep_no_pod_of_kube_scheduler_away(scene: Scene) -> None:
    """Between two portions of a decision, which ends without a place for them."""
    for number in range(18):
        scene.add_node(f"n{number}")
    tried = scene.try_group()
    pod_info = scene.pod_info()
    assert scene.judge(pod_info, *tried) == dict.fromkeys(tried, FITS)
    assert scene.reserve(pod_info, tried[0]).assigned.node == tried[0]
    while scene.machine.step(NOW) is not None:
        pass
    assert [one.uid for one in scene.machine.cache.assigned_pods()] == [pod_info.uid]


def test_a_pod_that_asks_for_nothing_may_go_anywhere(scene: Scene) -> None:
    """It is bound without an assignment, also to a node that is not known yet."""
    pod_info = scene.pod_info([])
    assert scene.judge(pod_info, "gone") == {"gone": FITS}
    assert scene.reserve(pod_info, "gone").annotations == {}


def test_a_device_plugins_gpus_are_refused_where_mooring_gives_them(
    make_pf: MakePf, make_node: MakeNode, make_pod: MakePod
) -> None:
    """As Mooring's own pods are: two that give one GPU would give it to two pods. Other nodes serve such a pod."""
    scene = Scene(Machine("mooring", kinds=Kinds([gpu_kind()])), make_pf, make_node, make_pod)
    scene.add_node("n1")
    gpu = Gpu("0000:1b:00.0", "GPU-1", "nvidia")
    scene.see(make_node("n2", (make_pf(vfs=1),), annotations={KEY: dump_gpu_inventory(GpuInventory((gpu,)))}))
    limits = {"resources": {"limits": {"nvidia.com/gpu": "1"}, "requests": {"nvidia.com/gpu": "1"}}}
    pod_info = scene.pod_info(spec={"containers": [{"name": "c", **limits}]})
    told = "node(s) offered GPUs as 'mooring.dev/gpu', not as 'nvidia.com/gpu'"
    assert scene.judge(pod_info, "n1", "n2") == {"n1": FITS, "n2": Verdict(told, for_good=True)}
    assert scene.refusal(pod_info, "n2") == f"node 'n2': {told}"
    scene.machine.check()


def test_only_pods_of_kube_scheduler_that_ask_for_something_of_ours_are_bound(scene: Scene, make_pod: MakePod) -> None:
    """Else whoever reaches the extender could bind any pod of another scheduler; our own wait in our own queue."""
    scene.add_node("n1")
    other = scene.read(make_pod(spec=FOREIGN))
    assert scene.refusal(other) == "pod default/p0 requests no resource of Mooring"
    own = scene.read(make_pod(request=[{}]))
    assert scene.refusal(own) == "pods with schedulerName 'mooring' are bound by that scheduler only"


def test_a_pod_that_the_watch_has_not_shown_gets_nothing(scene: Scene) -> None:
    """A list that lacks it may be on its way, and would free what it has."""
    scene.add_node("n1")
    unseen = scene.extender_pods.read(scene.pod())
    assert isinstance(unseen, PodInfo)
    assert scene.judge(unseen, "n1") == {"n1": FITS}
    assert scene.refusal(unseen) == UNKNOWN_POD
    gone = scene.pod_info()
    scene.machine.handle(Pod, Synced(()), NOW)
    assert scene.refusal(gone) == UNKNOWN_POD
    scene.reserve(scene.pod_info())


def test_resource_claims_are_kube_schedulers(scene: Scene) -> None:
    """A pod of our own scheduler would be refused for them; malformed requests are refused here too."""
    assert isinstance(scene.extender_pods.read(scene.pod(spec={"resourceClaims": [{"name": "gpu"}]})), PodInfo)
    assert isinstance(scene.extender_pods.read(scene.pod("no request")), Refused)


def test_the_last_vf_is_given_once(scene: Scene) -> None:
    """From the reservation on; it is free again when the bind is refused, and our own waiting pods are requeued.

    The outcome of a pod's bind must be known before it can get anything else.
    """
    scene.add_node("n1")
    scene.add_node("n2")
    first, second = scene.pod_info(), scene.pod_info()
    assert scene.judge(first, "n1") == scene.judge(second, "n1") == {"n1": FITS}
    decision = scene.reserve(first)
    assert scene.refusal(second) == f"node 'n1': {FULL}"
    assert scene.judge(second, "n1") == {"n1": Verdict(FULL)}
    elsewhere = "the pod is being bound to node 'n1'"
    assert scene.judge(first, "n1", "n2") == {"n1": OTHER_REASON, "n2": Verdict(elsewhere, for_good=True)}
    assert scene.refusal(first, "n2") == elsewhere
    scene.extender_pods.finish(decision, Outcome("gated"), NOW)
    assert scene.reserve(second).assigned.assignment is not None


def test_a_written_assignment_counts_when_the_watch_shows_it(scene: Scene) -> None:
    """The pod has another schedulerName; its VFs are its own until it is gone."""
    scene.add_node("n1", vfs=2)
    pod_info = scene.pod_info()
    pod = pod_info.pod
    decision = scene.reserve(pod_info)
    scene.extender_pods.finish(decision, BOUND, NOW)
    pod.spec.node_name = "n1"
    pod.metadata.annotations = pod.annotations | dict(decision.annotations)
    assert scene.see(pod) == []
    assigned = scene.machine.cache.assigned(pod_info.uid)
    assert assigned is not None
    assert (assigned.assignment, assigned.assumed) == (decision.assigned.assignment, False)
    scene.reserve(scene.pod_info())
    assert scene.judge(scene.pod_info(), "n1") == {"n1": Verdict(FULL)}
    scene.lose(pod)
    assert scene.judge(scene.pod_info(), "n1") == {"n1": FITS}


def test_vfs_for_a_nominated_pod_are_kept(scene: Scene) -> None:
    """Others were preempted for it; a pod of higher priority may take the VFs."""
    scene.add_node("n1")
    victim = scene.assigned("n1", [0])
    nominated = scene.own_pod(spec={"priority": 10})
    assert scene.machine.step(NOW)
    assert scene.machine.reservations.node_of(nominated.metadata.uid) == "n1"
    scene.lose(victim)
    assert scene.judge(scene.pod_info(spec={"priority": 10}), "n1") == {"n1": Verdict(FULL)}
    assert scene.judge(scene.pod_info(spec={"priority": 11}), "n1") == {"n1": FITS}


def test_nodes_with_little_left_suit_better(scene: Scene) -> None:
    """Full PFs stay full, empty ones empty: as for our own pods."""
    scene.add_node("n1", vfs=4)
    scene.add_node("n2", vfs=4)
    scene.assigned("n2", [0, 1])
    pod_info = scene.pod_info()
    assert [scene.extender_pods.score(pod_info, node) for node in ("n1", "n2", "gone")] == [2, 7, 0]


def test_less_important_pods_are_added_to_the_victims(scene: Scene) -> None:
    """Only those whose VFs are needed; a node where no eviction helps is left out."""
    scene.add_node("n1", vfs=3)
    victim, other = scene.assigned("n1", [0]), scene.assigned("n1", [1])
    above = scene.assigned("n1", [2], priority=20)
    assert scene.make_room(1, "n1", victim) == (victim.metadata.uid,)
    assert scene.make_room(2, "n1", victim) == (victim.metadata.uid, other.metadata.uid)
    assert scene.make_room(3, "n1", victim) is None
    assert scene.make_room(1, "gone", victim) is None
    assert scene.machine.cache.assigned(above.metadata.uid) is not None


def test_nobody_goes_for_vfs_that_a_member_of_a_group_has_only_while_it_is_tried(scene: Scene) -> None:
    """The filter calls that room free."""
    for number in range(18):
        scene.add_node(f"n{number}", vfs=2)
        scene.assigned(f"n{number}", [0])
    tried = scene.try_group()
    assert [scene.make_room(1, node) for node in tried] == [()] * len(tried)
    # Where there is too little room, the pod that runs there goes.
    (running,) = scene.machine.cache.assigned_pods_on(tried[0])
    assert scene.make_room(2, tried[0]) == (running.uid,)
    scene.machine.check()


def test_a_member_of_a_group_that_is_disrupted_as_a_whole_is_not_added_to_the_victims(scene: Scene) -> None:
    """The node is left out if the pod does not fit beside it; one that kube-scheduler has chosen itself stands."""
    scene.add_node("n1", vfs=2)
    spec = {"schedulingPolicy": {"gang": {"minCount": 1}}, "disruptionMode": "PodGroup"}
    item = msgspec.convert({"metadata": {"name": "train", "namespace": "default"}, "spec": spec}, PodGroup)
    scene.machine.handle(PodGroup, Changed(Identity("train", "default"), item), NOW)
    member, other = scene.assigned("n1", [0], schedulingGroup={"podGroupName": "train"}), scene.assigned("n1", [1])
    assert scene.make_room(1, "n1") == (other.metadata.uid,)
    assert scene.make_room(2, "n1") is None
    assert scene.make_room(1, "n1", member) == (member.metadata.uid,)


def test_only_members_that_a_group_can_spare_are_added_to_the_victims(scene: Scene) -> None:
    """Of three of at least two: one, unless kube-scheduler has chosen one itself."""
    scene.add_node("n1", vfs=3)
    members = [scene.member("n1", [vf], '{"name":"train","min":2}') for vf in range(3)]
    assert len(scene.make_room(1, "n1") or ()) == 1
    assert scene.make_room(2, "n1") is None
    assert scene.make_room(2, "n1", members[0]) is None


@pytest.mark.parametrize(("priority", "nodes"), [(0, {"n2"}), (5, {"n1", "n2"})])
def test_nodes_are_left_out_where_a_group_would_be_torn(scene: Scene, priority: int, nodes: set[str]) -> None:
    """Unless all others lose a pod of a higher priority; where there is no other node the choice stands."""
    for name in ("n1", "n2"):
        scene.add_node(name, vfs=2)
    member, _ = (scene.member("n1", [vf], '{"name":"train","min":2}') for vf in range(2))
    alone = scene.assigned("n2", [0], priority=priority)
    chosen = {"n1": Victims((member.metadata.uid,), 0), "n2": Victims((alone.metadata.uid,), 0)}
    assert scene.extender_pods.spare_groups(chosen).keys() == nodes
    assert scene.extender_pods.spare_groups({"n1": chosen["n1"]}).keys() == {"n1"}


@pytest.mark.parametrize("request_", [[{}], [], None], ids=["vfs", "none", "no-annotation"])
@pytest.mark.parametrize(
    "fields",
    [
        {"annotations": {names.GROUP: '{"name":"train","min":2}'}, "spec": FOREIGN},
        {"spec": FOREIGN | {"schedulingGroup": {"podGroupName": "train"}}},
        {"metadata": {"labels": {names.POD_GROUP_LABEL: "train"}}, "spec": FOREIGN},
    ],
    ids=["annotation", "PodGroup", "coscheduling"],
)
def test_a_member_of_a_group_is_refused_in_words(
    scene: Scene, make_pod: MakePod, fields: dict[str, Any], request_: object
) -> None:
    """Whatever names the group, and also if the pod requests no VFs: kube-scheduler would place members one by one."""
    assert scene.extender_pods.read(make_pod("member", request_, **fields)) == Refused(
        "group train: the extender does not support groups: only Mooring's own scheduler places their pods"
    )


def test_a_pod_bound_without_vfs_is_reported_once(scene: Scene) -> None:
    """And again by the next leader, as long as the pod exists."""
    scene.add_node("n1")
    pod = scene.pod(node="n1", spec={"nodeName": "n1"})
    notice, report = scene.see(pod)
    assert isinstance(notice, Notice)
    assert isinstance(report, Report)
    assert (report.reason, "bindVerb" in report.message) == ("NoAssignment", True)
    assert scene.see(pod) == []
    assert scene.machine.repeat_reports() == [report]
    scene.lose(pod)
    assert scene.machine.repeat_reports() == []
    assert scene.see(scene.pod([], node="n1", spec={"nodeName": "n1"})) == []


def test_the_mirror_of_a_static_pod_is_told_what_helps_there(scene: Scene) -> None:
    """Its kubelet makes it again whenever it is deleted, and no scheduler ever sees it."""
    pod = scene.pod(node="n1", spec={"nodeName": "n1"}, annotations={"kubernetes.io/config.mirror": "hash"})
    report = scene.see(pod)[-1]
    assert isinstance(report, Report)
    assert "remove the request from the manifest on the node" in report.message
    assert "Delete it" not in report.message


def test_a_kube_scheduler_without_bind_verb_is_detected(scene: Scene) -> None:
    """A pod that it had asked about comes back without VFs: no other pod may go as long as that one exists."""
    scene.add_node("n1")
    without_vfs = scene.extender_pods.bound_without_vfs
    scene.bound_without_vfs(is_offered=False)
    assert without_vfs.fault == ""
    asked = scene.bound_without_vfs(is_offered=True)
    assert without_vfs.fault.startswith(NO_BIND_VERB)
    assert asked.key in without_vfs.fault
    scene.lose(asked)
    assert without_vfs.fault == ""


def test_a_tenant_who_binds_pods_of_its_own_does_not_stop_the_extender(scene: Scene) -> None:
    """Where kube-scheduler has bound through it, only pods of two namespaces show that it does so no more."""
    scene.add_node("n1")
    without_vfs = scene.extender_pods.bound_without_vfs
    pods = [scene.bound_without_vfs(is_offered=True)]
    assert without_vfs.fault, "nothing shows yet that kube-scheduler binds through the extender"
    scene.reserve(scene.pod_info(name="q"))
    assert without_vfs.fault == ""
    pods += [scene.bound_without_vfs(is_offered=True) for _ in range(3)]
    assert without_vfs.fault == ""
    pods.append(scene.bound_without_vfs(is_offered=True, metadata={"namespace": "other"}))
    assert without_vfs.fault.startswith(NO_BIND_VERB)
    for pod in pods:
        scene.lose(pod)
    assert without_vfs.fault == ""


def test_a_new_leader_sees_by_bound_pods_that_kube_scheduler_binds_through_the_extender(scene: Scene) -> None:
    """Pods of other schedulers have assignments by no other way."""
    scene.add_node("n1")
    scene.see(scene.pod(node="n1", spec={"nodeName": "n1"}, annotations={names.ASSIGNMENT: "{}"}))
    scene.bound_without_vfs(is_offered=True)
    assert scene.extender_pods.bound_without_vfs.fault == ""


def test_a_pod_that_requests_vfs_only_when_bound_does_not_count_as_a_missing_bind_verb(scene: Scene) -> None:
    """The extender has bound it, as it was: it has no VFs, and its owner gets a report, but bindVerb is configured."""
    scene.add_node("n1")
    scene.extender_pods.offer(scene.pod_info(name="p"))
    pod_info = scene.pod_info([], name="q")
    scene.extender_pods.bound_without_vfs.offer(pod_info.uid)
    scene.reserve(pod_info)
    scene.extender_pods.offer(pod_info)
    pod_info.pod.metadata.annotations = {names.REQUEST: "[{}]"}
    pod_info.pod.spec.node_name = "n1"
    assert any(isinstance(one, Report) and one.reason == "NoAssignment" for one in scene.see(pod_info.pod))
    assert scene.extender_pods.bound_without_vfs.fault == ""
