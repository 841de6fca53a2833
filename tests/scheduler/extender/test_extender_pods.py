"""The extender's answers to kube-scheduler: nodes filtered, VFs reserved, victims added."""

from typing import Any

import pytest

from mooring import names
from mooring.gpu.inventory import KEY, Gpu, GpuInventory, dump_gpu_inventory
from mooring.kube.events import Synced
from scheduler.constraints.kinds import Kinds
from scheduler.cycle.instructions import Notice, Report
from scheduler.extender.extender_pods import UNKNOWN_NODE, UNKNOWN_POD, Verdict
from scheduler.extender.wire_format import Victims
from scheduler.kube.objects import Pod
from scheduler.kube.outcomes import Refused
from scheduler.kube.pod_info import PodInfo
from scheduler.placement.gpus import gpu_kind
from scheduler.state.machine import Machine
from tests.scheduler.conftest import MakeNode, MakePf, MakePod
from tests.scheduler.extender.scene import FOREIGN, FULL, NOW, Scene
from tests.scheduler.group_life import claiming
from tests.scheduler.story import play, stories

TRAIN = '{"name":"train","min":2}'

STORIES = {
    # Our own waiting pods are requeued; the outcome of a Binding must be known before the pod gets anything else.
    "the last VF is given once, from the reservation on, and is free again when the Binding is refused": f"""
        nodes n1 n2 vfs=1 | come a b | judge a n1 > n1 | judge b n1 > n1 | reserve a
        | reserve b > node 'n1': {FULL} | judge b n1 > n1 {FULL}
        | judge a n1 n2 > n1 never; n2 never the pod is being bound to node 'n1'
        | reserve a n2 > the pod is being bound to node 'n1' | finish a gated | reserve b""",
    # The pod has another schedulerName; its VFs are its own until it is gone.
    "a written assignment counts when the watch shows it": f"""
        nodes n1 | come a | reserve a | finish a bound | come b | reserve b | come c | judge c n1 > n1 {FULL} | delete a
        | judge c n1 > n1""",
    # Others were preempted for it; a pod of higher priority may take the VFs.
    "VFs for a nominated pod are kept": f"""
        nodes n1 vfs=1 | come victim@n1 | come own priority=10 schedulerName=mooring | tries > own
        | nominated own n1 | delete victim | come equal priority=10 | judge equal n1 > n1 {FULL}
        | come above priority=11 | judge above n1 > n1""",
    # Only those whose VFs are needed; a node where no eviction helps is left out.
    "less important pods are added to the victims": """
        nodes n1 vfs=3 | come victim@n1 other@n1 | come above@n1 priority=20
        | room 1 n1 victim > victim | room 2 n1 victim > victim other | room 3 n1 victim > no room
        | room 1 gone victim > no room""",
    # Of three of at least two: one, unless kube-scheduler has chosen one itself.
    "only members that a group can spare are added to the victims": f"""
        nodes n1 vfs=3 | come a@n1 b@n1 c@n1 annotation={TRAIN} | room 1 n1 > c | room 2 n1 > no room
        | room 2 n1 a > no room""",
    # No other pod may go as long as that one exists.
    "a pod that comes back without VFs after it was asked about shows that there is no bindVerb": """
        nodes n1 vfs=1 | come a nodeName=n1 | fault | asked b | fault > b | delete b | fault""",
    # Where kube-scheduler has bound through it, only pods of two namespaces show that it does so no more.
    "a tenant who binds pods of its own does not stop the extender": """
        nodes n1 vfs=1 | asked a | fault > a | come q | reserve q | fault | asked b c d | fault
        | asked e namespace=other | fault b c d e > yes | delete a b c d e | fault""",
    # Pods of other schedulers have assignments by no other way.
    "a new leader sees by bound pods that kube-scheduler binds through the extender": """
        nodes n1 | come a@n1 | asked b | fault""",
}


@stories(STORIES)
def test_pods_of_kube_scheduler(story: str, scene: Scene) -> None:
    play(scene, story)


def test_the_extender_filters_only_by_vfs_and_units(scene: Scene) -> None:
    """The pod's cpus, ports and selectors are kube-scheduler's; each refusal says whether preemption may help."""
    play(scene, "nodes n1 full vfs=1 | come other@full")
    scene.add_node("bare", vfs=0)
    scene.add_node("slow", offer_mbps=1000)
    greedy = {"containers": [{"name": "c", "resources": {"requests": {"cpu": "999"}}}], "nodeSelector": {"no": "such"}}
    pod_info = scene.pod_info([{"min_tx_rate": 5000}], spec=greedy)
    assert scene.verdicts(pod_info, "n1", "full", "slow", "bare", "gone") == {
        "n1": Verdict(),
        "full": Verdict(FULL),
        "slow": Verdict("node(s) had no PF fast enough for 5000 Mb/s", for_good=True),
        "bare": Verdict("node(s) had no RDMA inventory", for_good=True, blind=True),
        "gone": Verdict(UNKNOWN_NODE, for_good=True, blind=True),
    }


def test_members_of_a_group_that_are_only_tried_keep_no_pod_of_kube_scheduler_away(scene: Scene) -> None:
    """Between two portions of a decision, which ends without a place for them: each is tried on a node of its own."""
    for number in range(18):
        scene.add_node(f"n{number}")
    members = [scene.make_pod(request=[{}], annotations={names.GROUP: TRAIN.replace("2", "20")}) for _ in range(20)]
    scene.see(*members)
    assert scene.machine.step(NOW) == []
    pod_info, tried = scene.pod_info(), [f"n{number}" for number in range(16)]
    assert scene.verdicts(pod_info, *tried) == dict.fromkeys(tried, Verdict())
    assert scene.given(pod_info, tried[0]).assigned.node == tried[0]
    while scene.machine.step(NOW) is not None:
        pass
    assert [one.uid for one in scene.machine.cache.assigned_pods()] == [pod_info.uid]


def test_a_pod_that_asks_for_nothing_may_go_anywhere(scene: Scene) -> None:
    """It is bound without an assignment, also to a node that is not known yet."""
    pod_info = scene.pod_info([])
    assert scene.verdicts(pod_info, "gone") == {"gone": Verdict()}
    assert scene.given(pod_info, "gone").annotations == {}


def test_a_device_plugins_gpus_are_refused_where_mooring_gives_them(
    make_pf: MakePf, make_node: MakeNode, make_pod: MakePod
) -> None:
    """As Mooring's own pods are: two that give one GPU would give it to two pods. Other nodes serve such a pod."""
    scene = Scene(Machine("mooring", kinds=Kinds([gpu_kind()])), make_node, make_pf, make_pod)
    gpus = dump_gpu_inventory(GpuInventory((Gpu("0000:1b:00.0", "GPU-1", "nvidia"),)))
    scene.add_node("n1")
    scene.see(make_node("n2", (make_pf(vfs=1),), annotations={KEY: gpus}))
    limits = {"resources": {"limits": {"nvidia.com/gpu": "1"}, "requests": {"nvidia.com/gpu": "1"}}}
    pod_info = scene.pod_info(spec={"containers": [{"name": "c", **limits}]})
    told = "node(s) offered GPUs as 'mooring.dev/gpu', not as 'nvidia.com/gpu'"
    assert scene.verdicts(pod_info, "n1", "n2") == {"n1": Verdict(), "n2": Verdict(told, for_good=True)}
    assert scene.refusal(pod_info, "n2") == f"node 'n2': {told}"
    scene.machine.check()


def test_only_pods_of_kube_scheduler_that_ask_for_something_of_ours_are_bound(scene: Scene, make_pod: MakePod) -> None:
    """Else whoever reaches the extender could bind any pod of another scheduler; our own wait in our own queue."""
    scene.add_node("n1")
    assert scene.refusal(scene.read(make_pod(spec=FOREIGN))) == "pod default/p0 requests no resource of Mooring"
    own = "pods with schedulerName 'mooring' are bound by that scheduler only"
    assert scene.refusal(scene.read(make_pod(request=[{}]))) == own


def test_a_pod_that_the_watch_has_not_shown_gets_nothing(scene: Scene) -> None:
    """A list that lacks it may be on its way, and would free what it has."""
    scene.add_node("n1")
    unseen = scene.extender_pods.read(scene.make())
    assert isinstance(unseen, PodInfo)
    assert scene.verdicts(unseen, "n1") == {"n1": Verdict()}
    assert scene.refusal(unseen) == UNKNOWN_POD
    gone = scene.pod_info()
    scene.machine.handle(Pod, Synced(()), NOW)
    assert scene.refusal(gone) == UNKNOWN_POD
    scene.given(scene.pod_info())


def test_resource_claims_are_kube_schedulers(scene: Scene) -> None:
    """A pod of our own scheduler would be refused for them; malformed requests are refused here too."""
    assert isinstance(scene.extender_pods.read(scene.make(spec={"resourceClaims": [{"name": "gpu"}]})), PodInfo)
    assert isinstance(scene.extender_pods.read(scene.make("no request")), Refused)


def test_nodes_with_little_left_suit_better(scene: Scene) -> None:
    """Full PFs stay full, empty ones empty: as for our own pods."""
    play(scene, "nodes n1 n2 vfs=4 | come a@n2 b@n2")
    pod_info = scene.pod_info()
    assert [scene.extender_pods.score(pod_info, node) for node in ("n1", "n2", "gone")] == [2, 7, 0]


def test_a_member_of_a_group_that_is_disrupted_as_a_whole_is_not_added_to_the_victims(scene: Scene) -> None:
    """The node is left out if the pod does not fit beside it; one that kube-scheduler has chosen itself stands."""
    scene.pod_group(schedulingPolicy={"gang": {"minCount": 1}}, disruptionMode="PodGroup")
    scene.add_node("n1", vfs=2)
    member = scene.make(name="member", node="n1", spec={"schedulingGroup": {"podGroupName": "train"}})
    scene.show(claiming(member, 0))
    play(scene, "come other@n1 | room 1 n1 > other | room 2 n1 > no room | room 1 n1 member > member")


@pytest.mark.parametrize(("priority", "nodes"), [(0, {"n2"}), (5, {"n1", "n2"})])
def test_nodes_are_left_out_where_a_group_would_be_torn(scene: Scene, priority: int, nodes: set[str]) -> None:
    """Unless all others lose a pod of a higher priority; where there is no other node the choice stands."""
    play(scene, f"nodes n1 n2 | come a@n1 b@n1 annotation={TRAIN}")
    play(scene, f"come c@n2 priority={priority}")
    chosen = {node: Victims((scene.pods[name].metadata.uid,), 0) for node, name in (("n1", "a"), ("n2", "c"))}
    assert scene.extender_pods.spare_groups(chosen).keys() == nodes
    assert scene.extender_pods.spare_groups({"n1": chosen["n1"]}).keys() == {"n1"}


@pytest.mark.parametrize("request_", [[{}], [], None], ids=["vfs", "none", "no-annotation"])
@pytest.mark.parametrize(
    "fields",
    [
        {"annotations": {names.GROUP: TRAIN}, "spec": FOREIGN},
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
    scene.pods["a"] = pod = scene.make(spec={"nodeName": "n1"})
    notice, report = scene.see(pod)
    assert isinstance(notice, Notice)
    assert isinstance(report, Report)
    assert (report.reason, "bindVerb" in report.message) == ("NoAssignment", True)
    assert scene.see(pod) == []
    assert scene.machine.repeat_reports() == [report]
    scene.delete("a")
    assert scene.machine.repeat_reports() == []
    assert scene.see(scene.make([], spec={"nodeName": "n1"})) == []


def test_the_mirror_of_a_static_pod_is_told_what_helps_there(scene: Scene) -> None:
    """Its kubelet makes it again whenever it is deleted, and no scheduler ever sees it."""
    report = scene.see(scene.make(spec={"nodeName": "n1"}, annotations={"kubernetes.io/config.mirror": "hash"}))[-1]
    assert isinstance(report, Report)
    assert "remove the request from the manifest on the node" in report.message
    assert "Delete it" not in report.message


def test_a_pod_that_requests_vfs_only_when_bound_does_not_count_as_a_missing_bind_verb(scene: Scene) -> None:
    """The extender has bound it, as it was: it has no VFs, and its owner gets a report, but bindVerb is configured."""
    scene.add_node("n1")
    scene.extender_pods.offer(scene.pod_info(name="p"))
    pod_info = scene.pod_info([], name="q")
    scene.extender_pods.bound_without_vfs.offer(pod_info.uid)
    scene.given(pod_info)
    scene.extender_pods.offer(pod_info)
    pod_info.pod.metadata.annotations = {names.REQUEST: "[{}]"}
    pod_info.pod.spec.node_name = "n1"
    assert any(isinstance(one, Report) and one.reason == "NoAssignment" for one in scene.see(pod_info.pod))
    assert scene.fault() == ""
