"""Where a group comes from: PodGroups of two APIs and the annotation, read into one value or refused in words."""

from typing import Any

import msgspec
import pytest

from mooring import names
from mooring.annotations.group import GroupRequest, Slice, read_group
from mooring.errors import AnnotationError
from mooring.kube.events import Changed, Identity, Removed, Unreadable
from scheduler.cache.groups.pod_groups import PodGroups
from scheduler.kube import group as group_reader
from scheduler.kube.group import (
    Group,
    GroupKey,
    GroupMembership,
    PodGroupEntry,
    disrupted_as_a_whole,
    read_membership,
    read_pod_group,
)
from scheduler.kube.objects import Pod
from scheduler.kube.outcomes import Refused
from scheduler.kube.pod_info import read_pod_info
from scheduler.kube.workload_objects import CoschedulingPodGroup, PodGroup
from tests.scheduler.conftest import Json, MakePod

RACK = "topology.kubernetes.io/rack"
KEY = GroupKey("PodGroup", "default", "train")
GROUP = f"annotation {names.GROUP!r}"
ROLES = '{"name":"a","role_from":"type","roles":{"worker":3,"head":1}}'


def _pod(make_pod: MakePod, group: str | None = None, label: str = "", pod_group: str = "", **fields: Any) -> Pod:
    """Make a pod that names its group by any of the three ways."""
    spec = {"schedulingGroup": {"podGroupName": pod_group}} if pod_group else {}
    labels = {"scheduling.x-k8s.io/pod-group": label} if label else {}
    annotations = {} if group is None else {"mooring.dev/group": group}
    metadata = {"labels": labels | fields.pop("labels", {}), **fields.pop("metadata", {})}
    return make_pod(spec=spec | fields.pop("spec", {}), metadata=metadata, annotations=annotations)


def _pod_group(**spec: Any) -> PodGroup:
    return msgspec.convert({"metadata": {"name": "train", "namespace": "default"}, "spec": spec}, PodGroup)


def test_the_annotation_is_read() -> None:
    text = f'{{"name":"train-1","min":8,"within":"{RACK}","prefer":["a/leaf","spine"],"rails":"same"}}'
    asked = GroupRequest("train-1", 8, RACK, ("a/leaf", "spine"), "same")
    assert read_group({"mooring.dev/group": text}) == asked
    assert read_group({"mooring.dev/group": "{}"}) == GroupRequest()
    assert read_group({}) is None


def test_roles_give_the_min_and_a_label_gives_the_role(make_pod: MakePod) -> None:
    """Without ``min`` it is their sum."""
    membership = read_membership(_pod(make_pod, ROLES, labels={"type": "head"}))
    assert membership is not None
    asked = GroupRequest("a", roles=(("head", 1), ("worker", 3)), role_from="type")
    assert (membership.request, membership.role, asked.least) == (asked, "head", 4)
    sum_of_roles = f"{GROUP}.roles: min 3 is less than 4, the sum of roles"
    assert group_reader.read_group(KEY, PodGroupEntry(Group(KEY, 3)), [asked]) == Refused(sum_of_roles)


def test_slices_are_read_from_wide_to_narrow() -> None:
    """In any order, or one alone."""
    wide, narrow = Slice(32, "rack"), Slice(8, "clique")
    levels = ['{"size":8,"within":"clique"}', '{"size":32,"within":"rack"}']
    for entries in (levels, levels[::-1]):
        asked = read_group({"mooring.dev/group": f'{{"min":64,"slices":[{",".join(entries)}]}}'})
        assert asked == GroupRequest(min=64, slices=(wide, narrow))
    assert read_group({"mooring.dev/group": f'{{"slices":{levels[0]}}}'}) == GroupRequest(slices=(narrow,))


MALFORMED = """\
{"min":0} => .min: 0 is not an integer from 1 to 4096
{"min":4097} => .min: 4097 is not an integer from 1 to 4096
{"size":3} => .size: unknown field; known fields are disruption, min, name, name_from, prefer, rails, role_from, \
roles, runs, slices, spares, within
{"name":"A"} => .name: 'A' is not a group's name (at most 253 of a-z 0-9 . -, alphanumeric at both ends)
{"within":"a/b/c"} => .within: 'a/b/c' is not the key of a node label such as 'topology.kubernetes.io/rack'
{"prefer":["a","a"]} => .prefer: names label 'a' twice
{"slices":[]} => .slices: is an empty list
{"slices":{"size":8}} => .slices: field 'within' is missing
{"slices":{"size":1,"within":"a"}} => .slices.size: 1 is not an integer from 2 to 4096
{"min":12,"slices":{"size":8,"within":"a"}} => .slices: size 8 does not divide min 12
{"slices":[{"size":8,"within":"a"},{"size":4,"within":"a"}]} => .slices: names label 'a' twice
{"slices":[{"size":12,"within":"a"},{"size":8,"within":"b"}]} => .slices: size 12 is not a multiple of the next \
smaller size, 8
{"slices":[{"size":8,"within":"a"},{"size":8,"within":"b"}]} => .slices: size 8 is not a multiple of the next smaller \
size, 8
{"within":"a","slices":{"size":8,"within":"a"}} => .slices: label 'a' is that of field 'within' too
{"spares":1,"slices":{"size":8,"within":"a"}} => .slices: field 'spares' is 1, and slices have no spares
{"roles":{"head":1}} => .roles: fields 'roles' and 'role_from' need each other
{"role_from":"type"} => .roles: fields 'roles' and 'role_from' need each other
{"role_from":"type","roles":{}} => .roles: has 0 roles, not 1 to 64
{"role_from":"type","roles":{"a":0}} => .roles.a: 0 is not an integer from 1 to 4096
{"role_from":"type","roles":{"a":4000,"b":97}} => .roles: the sum exceeds 4096
{"min":3,"role_from":"type","roles":{"a":1,"b":3}} => .roles: min 3 is less than 4, the sum of roles
{"rails":"any"} => .rails: 'any' is not one of same, index
{"disruption":"PodGroup"} => .disruption: 'PodGroup' is not one of group, pod
{"name":"a","name_from":"app"} => .name_from: 'app' cannot give a name because field 'name' is 'a'
{"name_from":"a/b/c"} => .name_from: 'a/b/c' is not the key of a pod label such as \
'leaderworkerset.sigs.k8s.io/group-key'
[] => : a list of 0 is not an object"""


@pytest.mark.parametrize(("text", "rule"), [row.split(" => ") for row in MALFORMED.splitlines()])
def test_a_malformed_annotation_is_refused_with_the_rule(text: str, rule: str) -> None:
    with pytest.raises(AnnotationError) as refused:
        read_group({"mooring.dev/group": text})
    assert str(refused.value).replace("'mooring.dev/group'.", ".").endswith(rule)


OWNERS = {"ownerReferences": [{"kind": "Job", "name": "j", "uid": "u1", "controller": True}]}
FROM_SET, SAME_RAILS = '{"name_from":"set","min":2}', '{"name_from":"set","rails":"same"}'


@pytest.mark.parametrize(
    ("ways", "api", "name", "request_"),
    [
        ({"pod_group": "a"}, "PodGroup", "a", GroupRequest()),
        ({"label": "b"}, "coscheduling", "b", GroupRequest()),
        ({"group": '{"name":"c","min":2}'}, "annotation", "c", GroupRequest("c", 2)),
        # The annotation, or the label that it names, may repeat the PodGroup's name.
        ({"group": '{"name":"a","rails":"same"}', "pod_group": "a"}, "PodGroup", "a", GroupRequest(rails="same")),
        ({"group": SAME_RAILS, "pod_group": "a", "labels": {"set": "a"}}, "PodGroup", "a", GroupRequest(rails="same")),
        # Members that give the same name as a text or by a label are in the same group.
        ({"group": FROM_SET, "labels": {"set": "c"}}, "annotation", "c", GroupRequest("c", 2)),
        ({"group": FROM_SET, "labels": {"set": "9fd2a1"}}, "annotation", "9fd2a1", GroupRequest("9fd2a1", 2)),
        ({"group": FROM_SET, "labels": {"set": "Group_7.a"}}, "annotation", "Group_7.a", GroupRequest("Group_7.a", 2)),
    ],
)
def test_a_pod_names_its_group_in_one_of_four_ways(
    make_pod: MakePod, ways: Json, api: Any, name: str, request_: GroupRequest
) -> None:
    """By a PodGroup of either API, by its name alone, or by its controller."""
    membership = GroupMembership(GroupKey(api, "default", name), name, request_)
    assert read_membership(_pod(make_pod, **ways)) == membership


def test_a_controllers_pods_are_a_group_without_a_name(make_pod: MakePod) -> None:
    key = GroupKey("controller", "default", "u1")
    by_owner = _pod(make_pod, '{"min":2}', metadata=OWNERS)
    assert read_membership(by_owner) == GroupMembership(key, "j", GroupRequest(min=2), "u1")
    assert read_membership(make_pod()) is None


@pytest.mark.parametrize(
    ("ways", "reason"),
    [
        (
            {"label": "b", "pod_group": "a"},
            "the pod belongs to two PodGroups: 'a' by spec.schedulingGroup, and 'b' by label "
            "'scheduling.x-k8s.io/pod-group'",
        ),
        ({"group": '{"name":"b"}', "pod_group": "a"}, f"{GROUP}.name: 'b' is not the name of the pod's PodGroup, 'a'"),
        (
            {"group": '{"name_from":"set"}', "pod_group": "a", "labels": {"set": "b"}},
            f"{GROUP}.name_from: 'b', the value of label 'set', is not the name of the pod's PodGroup, 'a'",
        ),
        ({"group": FROM_SET}, f"{GROUP}.name_from: label 'set' of the pod is missing or empty"),
        ({"group": FROM_SET, "labels": {"set": ""}}, f"{GROUP}.name_from: label 'set' of the pod is missing or empty"),
        ({"group": ROLES}, f"{GROUP}.role_from: label 'type' of the pod is missing or empty"),
        ({"group": '{"name":"b"}'}, f"{GROUP}: field 'min' is missing, and the pod names no PodGroup that has one"),
        ({"group": '{"min":2}'}, f"{GROUP}: field 'name' is missing, and no controller owns the pod"),
        (
            {"spec": {"workloadRef": {"name": "w", "podGroup": "g"}}},
            "spec.workloadRef (Kubernetes 1.35) is not supported: name a PodGroup by spec.schedulingGroup",
        ),
    ],
)
def test_a_pod_that_names_no_one_group_is_refused(make_pod: MakePod, ways: Json, reason: str) -> None:
    assert read_pod_info(_pod(make_pod, **ways)) == Refused(reason)


def test_the_clusters_own_pod_group_is_read_in_both_versions() -> None:
    """Gang or basic, one topology key, disruption as a word (v1alpha2) or as an object (v1beta1), priority."""
    gang, topology = {"gang": {"minCount": 4}}, {"topology": [{"key": RACK}]}
    older = _pod_group(schedulingPolicy=gang, schedulingConstraints=topology, disruptionMode="PodGroup", priority=7)
    newer = _pod_group(schedulingPolicy=gang, schedulingConstraints=topology, disruptionMode={"all": {}}, priority=7)
    assert read_pod_group(KEY, older) == read_pod_group(KEY, newer) == Group(KEY, 4, RACK, priority=7)
    assert disrupted_as_a_whole(older)
    assert disrupted_as_a_whole(newer)
    one_by_one = _pod_group(schedulingPolicy={"basic": {}}, disruptionMode={"single": {}})
    assert read_pod_group(KEY, one_by_one) == Group(KEY, 1)
    assert not disrupted_as_a_whole(one_by_one)


def test_scheduler_plugins_pod_group_gives_its_number() -> None:
    """Training operators make them without being asked; a number that is missing is one."""
    document = {"metadata": {"name": "train"}, "spec": {"minMember": 3, "scheduleTimeoutSeconds": 10}}
    assert read_pod_group(KEY, msgspec.convert(document, CoschedulingPodGroup)) == Group(KEY, 3)
    bare = msgspec.convert({"metadata": {"name": "t"}}, CoschedulingPodGroup)
    assert read_pod_group(KEY, bare) == Group(KEY, 1)


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ({"resourceClaims": [{"name": "c"}]}, "its resourceClaims (dynamic resource allocation) are not supported"),
        (
            {"schedulingPolicy": {"gang": {"minCount": 2}}, "parentCompositePodGroupName": "whole"},
            "its parentCompositePodGroupName 'whole' (CompositePodGroup) is not supported",
        ),
        ({}, "schedulingPolicy must be either gang or basic"),
        ({"schedulingPolicy": {"gang": {"minCount": 5000}}}, "minCount 5000 is not from 1 to 4096"),
        (
            {"schedulingPolicy": {"basic": {}}, "schedulingConstraints": {"topology": [{"key": "a"}, {"key": "b"}]}},
            "schedulingConstraints.topology must name one key",
        ),
        ({"schedulingPolicy": {"basic": {}}, "disruptionMode": "None"}, "disruptionMode 'None' is not known"),
    ],
)
def test_a_pod_group_that_is_not_supported_is_refused(spec: Json, reason: str) -> None:
    with pytest.raises(ValueError, match=r".") as refused:
        read_pod_group(KEY, _pod_group(**spec))
    assert str(refused.value) == reason


ON_RACKS, ANYWHERE = Group(KEY, 4, RACK, priority=3), Group(KEY, 4)
NAMED, TWO, WHOLE = KEY._replace(naming="annotation"), GroupRequest("train", 2), GroupRequest(disruption="group")
OTHERWISE = "contradicts its PodGroup, which"
RAILS = Group(KEY, 4, RACK, ("leaf",), "index", 3)
ABSENT = "its PodGroup (scheduling.k8s.io) does not exist, or the API server does not serve that API"


@pytest.mark.parametrize(
    ("key", "pod_group", "requests", "group"),
    [
        # Prefer and rails come from the annotation; a number or a label of its own must be the PodGroup's.
        (KEY, ON_RACKS, [GroupRequest(min=4, prefer=("leaf",), rails="index")], RAILS),
        (KEY, ON_RACKS, [GroupRequest(min=5)], Refused(f"{GROUP}.min: 5 {OTHERWISE} sets 4")),
        (KEY, ANYWHERE, [GroupRequest(within=RACK)], Refused(f"{GROUP}.within: {RACK!r} {OTHERWISE} does not set it")),
        (KEY, ANYWHERE, [GroupRequest(disruption="pod")], ANYWHERE),
        (KEY, ANYWHERE, [WHOLE], Refused(f"{GROUP}.disruption: 'group' {OTHERWISE} sets 'pod'")),
        (KEY, None, [GroupRequest()], Refused(ABSENT)),
        (NAMED, None, [TWO], Group(NAMED, 2)),
        (NAMED, None, [TWO, GroupRequest("train", 3)], Refused(f"waiting members differ in {GROUP}.min: 2, 3")),
    ],
)
def test_the_annotation_adds_to_a_pod_group_and_contradicts_nothing(
    key: GroupKey, pod_group: Group | None, requests: list[GroupRequest], group: Group | Refused
) -> None:
    assert group_reader.read_group(key, PodGroupEntry(pod_group), requests) == group


def test_a_pod_group_has_its_current_priority_until_it_goes() -> None:
    """The lowest of all is known; two with one priority count as two."""
    pod_groups, policy = PodGroups(), {"gang": {"minCount": 1}}
    pod_groups.take(PodGroup, Changed(Identity("none", "default"), _pod_group(schedulingPolicy=policy)))
    assert not pod_groups.has_below(10**9)
    for name, priority in (("first", 3), ("second", 3), ("first", 7)):
        item = _pod_group(schedulingPolicy=policy, priority=priority)
        pod_groups.take(PodGroup, Changed(Identity(name, "default"), item))
    assert (pod_groups.has_below(3), pod_groups.has_below(4)) == (False, True)
    pod_groups.take(PodGroup, Removed(Identity("second", "default")))
    assert (pod_groups.has_below(7), pod_groups.has_below(8)) == (False, True)
    pod_groups.take(PodGroup, Unreadable(Identity("first", "default"), "it is too large"))
    assert not pod_groups.has_below(10**9)
