"""Groups through the machine: all of what is needed is placed in one decision, or nothing."""

from typing import Any

import msgspec
import pytest

from mooring import names
from mooring.kube.events import Changed, Identity
from scheduler.cycle.instructions import Report
from scheduler.kube.objects import Pod
from scheduler.kube.outcomes import Outcome
from scheduler.kube.workload_objects import CoschedulingPodGroup
from tests.scheduler.group_life import HINT, Life, binds, bound_names, changed, claiming, identity, told

OF_TRAIN = {"schedulingGroup": {"podGroupName": "train"}}


def _coscheduling_group(life: Life) -> None:
    """Show a PodGroup of scheduler-plugins that needs two members."""
    document = {"metadata": {"name": "train", "namespace": "default"}, "spec": {"minMember": 2}}
    item = msgspec.convert(document, CoschedulingPodGroup)
    life.machine.handle(CoschedulingPodGroup, Changed(Identity("train", "default"), item), life.now)


def test_a_group_that_fits_is_bound_at_once(life: Life) -> None:
    life.nodes("n1", "n2", "n3")
    life.members(3)
    instructions = life.work()
    assert sorted(one.assigned.node for one in binds(instructions)) == ["n1", "n2", "n3"]
    assert all(names.ASSIGNMENT in one.annotations for one in binds(instructions))
    assert told(instructions) == {}


def test_a_group_of_which_too_few_fit_has_nobody_bound_and_reserves_nothing(life: Life) -> None:
    """All members are told the same, counted in members and nodes; another pod gets the room."""
    life.nodes("n1", "n2")
    life.members(4)
    instructions = life.work()
    message = "group train: 2 of 3 members fit: 0/2 nodes are available for the 3rd member: 2 not enough free RDMA VFs."
    assert binds(instructions) == []
    assert told(instructions) == dict.fromkeys(("m0", "m1", "m2", "m3"), message)
    life.see(life.make_pod("alone", [{}]))
    (other,) = binds(life.work())
    assert other.pod_info.pod.metadata.name == "alone"
    life.nodes("n3", "n4")
    assert len(binds(life.work(1.0))) == 3


def test_an_incomplete_group_waits_without_a_try_and_says_so_when_it_is_quiet(life: Life) -> None:
    """Members are told once, not once for each that comes; the message hints at the usual causes."""
    life.nodes("n1", "n2", "n3")
    life.members(2)
    assert life.work() == []
    assert life.machine.next_due() == 3.0
    message = f"group train: 2 of at least 3 members exist ({HINT})"
    assert told(life.work(3.0)) == {"m0": message, "m1": message}
    assert life.work(100.0) == []
    life.see(life.member("m2"))
    assert len(binds(life.work())) == 3


def test_beyond_min_as_many_are_bound_as_fit_and_the_others_follow(life: Life) -> None:
    life.nodes("n1", "n2", "n3", "n4")
    life.members(6)
    instructions = life.work()
    assert len(binds(instructions)) == 4
    (message,) = set(told(instructions).values())
    assert message == (
        "group train: enough members are placed, but this one is not: "
        "0/4 nodes are available: 4 not enough free RDMA VFs."
    )
    life.bound(*binds(instructions))
    assert told(life.see(life.member("late")) + life.work(1.0))["late"] == message
    life.nodes("n5", "n6", "n7")
    assert len(binds(life.work(2.0))) == 3


def test_what_can_help_any_of_those_that_are_left_over_brings_them_back(life: Life) -> None:
    """They wait for different things: the first one is named in the message, and is not the only one to come again."""
    one = '{"name":"train","min":1}'
    large = {"containers": [{"name": "c", "resources": {"requests": {"cpu": "100"}}}]}
    life.nodes("n1")
    life.see(life.member("m0", one, request=None), life.member("m1", one, request=None, spec=large))
    life.see(life.member("m2", one, request=None, spec={"nodeSelector": {"disk": "fast"}}))
    found = life.work()
    assert bound_names(found) == ["m0"]
    assert set(told(found).values()) == {
        "group train: enough members are placed, but m1 is not: 0/1 nodes are available: 1 Insufficient cpu."
    }
    life.bound(*binds(found))
    life.nodes("n1", labels={"disk": "fast"})
    assert bound_names(life.work(10.0)) == ["m2"]


def test_two_groups_that_need_the_whole_cluster_do_not_share_it(life: Life) -> None:
    """The first is placed as a whole, the other waits as a whole: nobody holds a half and waits for ever."""
    life.nodes("n1", "n2", "n3")
    other = '{"name":"other","min":3}'
    for _ in range(3):
        life.see(life.member(), life.member(group=other))
    placed = binds(life.work())
    assert len({one.pod_info.membership.key for one in placed if one.pod_info.membership}) == 1
    assert len(placed) == 3
    life.gone(*life.bound(*placed))
    assert len(binds(life.work(1.0))) == 3


def test_members_count_by_uid(life: Life) -> None:
    """A gated one does not count, one that failed does not; one that succeeded does for those of its controller.

    The message says so.
    """
    life.nodes("n1", "n2", "n3", "n4")
    life.see(life.member(), life.member(), life.member(spec={"schedulingGates": [{"name": "g"}]}))
    owners = [{"name": "other", "kind": "Job", "uid": "other", "controller": True}]
    done = life.member(status={"phase": "Succeeded"}, node="n1", metadata={"ownerReferences": owners})
    life.see(done, life.member(status={"phase": "Failed"}, node="n1"))
    assert binds(life.work()) == []
    (message,) = set(told(life.work(3.0)).values())
    others = "1 with scheduling gates, 1 succeeded under another controller (not counted)"
    assert message == f"group train: 2 of at least 3 members exist, {others}"
    life.see(life.member())
    first, second, _ = life.bound(*binds(life.work()))
    life.see(changed(first, status={"phase": "Succeeded"}), changed(second, status={"phase": "Succeeded"}))
    life.see(life.member("late"))
    assert bound_names(life.work()) == ["late"]


def test_the_rest_of_a_half_bound_group_comes_before_all_others_of_its_priority(life: Life) -> None:
    """A new leader finds two of three bound: an older pod that could take the room is decided about after it."""
    life.nodes("n1", "n2", "n3")
    older = life.make_pod("older", [{}, {}])
    life.see(*(life.member(node=name) for name in ("n1", "n2")))
    rest = life.member("rest")
    life.see(older, rest)
    assert next(one.pod_info.pod.metadata.name for one in binds(life.work())) == "rest"


def test_a_half_bound_group_that_cannot_be_completed_says_so(life: Life) -> None:
    life.nodes("n1", "n2")
    life.see(*(claiming(life.member(node=name), 0, 1) for name in ("n1", "n2")))
    life.see(life.member("rest"))
    assert told(life.work()) == {
        "rest": "group train: 2 of at least 3 members are placed, and 0 of 1 others fit: "
        "0/2 nodes are available for the 1st member: 2 not enough free RDMA VFs."
    }


def test_a_half_bound_group_says_who_is_in_its_way(life: Life) -> None:
    """Pods that hold VFs on the nodes which refuse the rest, some by name; members and pods without VFs are not."""
    life.nodes(*(f"n{number}" for number in range(7)))
    life.see(*(claiming(life.member(node=name), 0, 1) for name in ("n0", "n1")))
    life.see(*(claiming(life.make_pod(f"other-{n}", [{}, {}], node=f"n{n}"), 0, 1) for n in range(2, 7)))
    life.see(life.make_pod("plain", node="n2"))
    life.see(life.member("rest"))
    (message,) = told(life.work()).values()
    named = "default/other-2 on n2, default/other-3 on n3, default/other-4 on n4"
    assert message.endswith(f"7 not enough free RDMA VFs. Blocked by: {named}, 2 more.")


def test_after_a_refused_binding_the_rest_comes_before_all_others_of_its_priority(life: Life) -> None:
    """At once, as long as its room is free; if it is refused again, after a while."""
    life.nodes("n1", "n2", "n3")
    life.members(3)
    first, *others = binds(life.work())
    life.bound(*others)
    name = first.pod_info.pod.metadata.name
    refused = life.machine.finished(first, Outcome("forbidden", "a webhook"), life.now)
    assert told(refused) == {name: "binding forbidden: a webhook"}
    life.see(life.make_pod("alone", [{}, {}]))
    (again,) = binds(life.work())
    assert again.pod_info.pod.metadata.name == name
    life.now += 0.2
    life.machine.finished(again, Outcome("forbidden", "a webhook"), life.now)
    assert binds(life.work()) == []
    (again,) = binds(life.work(0.8))
    assert again.pod_info.pod.metadata.name == name


def test_a_group_whose_bindings_fail_again_and_again_comes_ever_later(life: Life) -> None:
    """One second, two, four, up to ten, as a pod does; a Binding that succeeds ends that."""
    life.nodes("n1", "n2", "n3")
    life.members(3)
    waits = []
    for _ in range(6):
        for decision in binds(life.work()):
            life.machine.finished(decision, Outcome("forbidden", "a webhook"), life.now)
        due = life.machine.next_due()
        assert due is not None
        waits.append(due - life.now)
        life.now = due
    assert waits == [1.0, 2.0, 4.0, 8.0, 10.0, 10.0]


def test_members_that_differ_or_are_another_schedulers_are_refused_alike(life: Life) -> None:
    life.nodes("n1", "n2", "n3")
    life.see(life.member("m0"), life.member("m1"), life.member("m2", '{"name":"train","min":2}'))
    message = "group train: waiting members differ in annotation 'mooring.dev/group'.min: 2, 3"
    assert told(life.work(3.0)) == dict.fromkeys(("m0", "m1", "m2"), message)
    foreign = '{"name":"mixed","min":1}'
    life.see(life.member("f0", foreign), life.member("f1", foreign, spec={"schedulerName": "other"}))
    assert told(life.work(3.0)) == {"f0": "group mixed: waiting members that name another scheduler: 1"}


BY_SPEC: dict[str, Any] = {"spec": OF_TRAIN}
BY_LABEL: dict[str, Any] = {"metadata": {"labels": {names.POD_GROUP_LABEL: "train"}}}


@pytest.mark.parametrize(("fields", "api"), [(BY_SPEC, "scheduling.k8s.io"), (BY_LABEL, "scheduling.x-k8s.io")])
def test_a_pod_group_may_come_after_its_pods_and_is_of_one_api(life: Life, fields: dict[str, Any], api: str) -> None:
    """The label of scheduler-plugins names a PodGroup of scheduling.x-k8s.io."""
    life.nodes("n1", "n2")
    life.members(2, "", **fields)

    def come(api: str) -> None:
        if api == "scheduling.k8s.io":
            life.pod_group(schedulingPolicy={"gang": {"minCount": 2}})
        else:
            _coscheduling_group(life)

    come("scheduling.x-k8s.io" if api == "scheduling.k8s.io" else "scheduling.k8s.io")
    assert binds(life.work()) == []
    why = f"group train: its PodGroup ({api}) does not exist, or the API server does not serve that API"
    assert told(life.work(3.0)) == dict.fromkeys(("m0", "m1"), why)
    come(api)
    assert len(binds(life.work())) == 2


def test_two_pod_groups_of_one_name_are_two_groups(life: Life) -> None:
    """The members of each are told how many it needs, and count for it alone; one that names both is refused."""
    life.nodes("n1", "n2", "n3", "n4")
    life.pod_group(schedulingPolicy={"gang": {"minCount": 3}})
    _coscheduling_group(life)
    life.see(*(life.member(f"own{number}", "", spec=OF_TRAIN) for number in range(2)))
    life.see(life.member("other0", "", **BY_LABEL))
    assert told(life.work(3.0)) == {
        **dict.fromkeys(("own0", "own1"), f"group train: 2 of at least 3 members exist ({HINT})"),
        "other0": f"group train: 1 of at least 2 members exist ({HINT})",
    }
    life.see(both := life.member("both", "", **BY_SPEC, **BY_LABEL))
    (refused,) = [one for one in life.work() if isinstance(one, Report) and one.pod is both]
    assert "belongs to two PodGroups: 'train' by spec.schedulingGroup, and 'train' by label" in refused.message
    life.see(life.member("other1", "", **BY_LABEL))
    assert bound_names(life.work()) == ["other0", "other1"]


def test_a_member_that_names_its_group_wrongly_contradicts_nobody(life: Life) -> None:
    """It names two PodGroups: what it asks for of either is not known, and the others start without it."""
    life.nodes("n1", "n2")
    life.pod_group(schedulingPolicy={"gang": {"minCount": 2}})
    life.see(life.member("both", "", spec=OF_TRAIN, metadata={"labels": {names.POD_GROUP_LABEL: "other"}}))
    life.members(2, '{"min":2,"rails":"same"}', spec=OF_TRAIN)
    assert bound_names(life.work()) == ["m0", "m1"]


def test_anti_affinity_among_members_counts(life: Life) -> None:
    """Each member is placed beside those before it: one on a node, and no group where there are too few nodes."""
    life.nodes("n1", "n2", vfs=8)
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"job": "train"}}}
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    fields: dict[str, Any] = {"metadata": {"labels": {"job": "train"}}, "spec": {"affinity": apart}}
    for name in ("n1", "n2"):
        life.nodes(name, vfs=8, labels={"kubernetes.io/hostname": name})
    life.members(3, **fields)
    assert binds(life.work()) == []
    life.nodes("n3", vfs=8, labels={"kubernetes.io/hostname": "n3"})
    assert sorted(one.assigned.node for one in binds(life.work(1.0))) == ["n1", "n2", "n3"]


def test_members_of_different_sizes_are_placed_in_more_than_one_order(life: Life) -> None:
    """In the order of their indexes the small one would take a part of the room that only the large one needs."""
    life.nodes("n1")
    life.nodes("n2", allocatable={"cpu": "4"})
    for name, cpu in (("m0", "3"), ("m1", "8")):
        container = {"name": "c", "resources": {"requests": {"cpu": cpu}}}
        life.see(life.member(name, '{"name":"train","min":2}', request=None, spec={"containers": [container]}))
    placed = {one.pod_info.pod.metadata.name: one.assigned.node for one in binds(life.work())}
    assert placed == {"m0": "n2", "m1": "n1"}


def test_a_succeeded_member_that_a_list_no_longer_has_does_not_count(life: Life) -> None:
    """Its end was missed while the watch was cut."""
    life.nodes("n1", "n2", "n3")
    placed, over = life.member(node="n1"), life.member(status={"phase": "Succeeded"})
    life.see(placed, over)
    list(life.machine.event_handlers.handle_list(Pod, [identity(placed)], life.now))
    life.see(life.member())
    assert binds(life.work()) == []
    assert life.machine.group_cache.of(over.metadata.uid) is None


@pytest.mark.parametrize("second", [{"labels": {names.POD_GROUP_LABEL: "other"}}, {"group": '{"name":"other"}'}])
def test_others_are_told_of_a_member_that_names_a_second_group(life: Life, second: dict[str, Any]) -> None:
    life.pod_group("train", schedulingPolicy={"gang": {"minCount": 2}})
    life.nodes("n1", "n2")
    labels = {"name": "m1", "namespace": "default", "uid": "u1", "labels": second.get("labels", {})}
    found = life.see(life.member("m0", "", spec=OF_TRAIN))
    found += life.see(life.member("m1", second.get("group", ""), spec=OF_TRAIN, metadata=labels))
    found += life.work() + life.work(5.0)
    assert told(found) == {"m0": "group train: 1 of at least 2 members exist, 1 rejected as invalid"}
    (refused,) = (one.message for one in found if isinstance(one, Report) and one.pod.metadata.name == "m1")
    assert "'train'" in refused
    assert "'other'" in refused


KEY = "leaderworkerset.sigs.k8s.io/group-key"
NAMED_BY_LABEL = f'{{"name_from":"{KEY}","min":2}}'


def _replica(life: Life, number: int) -> list[str]:
    """Let a leader and its worker come; return their names."""
    pods = [f"serve-{number}", f"serve-{number}-1"]
    life.see(*(life.member(name, NAMED_BY_LABEL, metadata={"labels": {KEY: f"key-{number}"}}) for name in pods))
    return pods


def test_each_replica_that_a_label_tells_apart_starts_on_its_own(life: Life) -> None:
    """Where there is room for one, one starts whole, and the pods of the other wait."""
    life.nodes("n1", "n2", "n3")
    replicas = [_replica(life, number) for number in range(2)]
    found = binds(life.work())
    life.bound(*found)
    life.nodes("n4")
    assert sorted([bound_names(found), bound_names(life.work(15.0))]) == replicas


def test_a_pod_whose_label_comes_later_joins_then(life: Life) -> None:
    """Until then it is refused, and its event names annotation, field and label."""
    life.nodes("n1", "n2")
    first, late = (life.member(name, NAMED_BY_LABEL, metadata={"labels": {KEY: "a"}}) for name in ("first", "late"))
    found = life.see(first, changed(late, metadata={"labels": {}})) + life.work()
    (message,) = {one.message for one in found if isinstance(one, Report) and one.pod.metadata.name == "late"}
    assert message == f"annotation 'mooring.dev/group'.name_from: label {KEY!r} of the pod is missing or empty"
    life.see(late)
    assert len(binds(life.work(5.0))) == 2
