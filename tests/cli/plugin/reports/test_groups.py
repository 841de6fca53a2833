"""`kubectl mooring groups`, and `explain group/NAME`: what a group is, and what it hangs on."""

import json
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import msgspec
import pytest

from cli.plugin.reports import found_groups, groups
from cli.plugin.reports.objects import Event, Node
from cli.plugin.reports.tables import Answer, draw
from mooring import names
from scheduler.kube.objects import Pod
from scheduler.kube.workload_objects import AnyPodGroup, CoschedulingPodGroup, Job, PodGroup
from tests.cli.plugin.cluster import Json, Served, bound, node, pf, pod

_GROUP = {"name": "train", "min": 3, "within": "rack"}
_MESSAGE = "group train: 2 of 3 members fit: 0/3 nodes are available for the 3rd member: 3 not enough free RDMA VFs."
_WHY = {"v": 1, "group": {"member": "rank-2", "fitting": 2, "wanted": 3, "nodes": ["n3"]}}


def member(index: int, on: str = "", group: object = _GROUP, **fields: Any) -> Json:
    """Make a pod of the group; without a node it waits, with the group's message."""
    name, text = f"rank-{index}", json.dumps(group)
    if on:
        made = bound(name, on, (pf(), 0, 0), **fields)
        made["metadata"]["annotations"][names.GROUP] = text
        return made
    says = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": _MESSAGE}
    fields.setdefault("status", {"phase": "Pending", "conditions": [says]})
    return pod(name, "[{}]", annotations={names.GROUP: text}, **fields)


def event(uid: str, why: Json) -> Json:
    return {
        "metadata": {"name": f"{uid}.1", "namespace": "default", "annotations": {names.WHY: json.dumps(why)}},
        "involvedObject": {"kind": "Pod", "namespace": "default", "uid": uid, "name": uid.removeprefix("uid-")},
        "reason": "FailedScheduling",
        "message": _MESSAGE,
        "lastTimestamp": "2026-01-01T00:00:00Z",
    }


def find(
    *pods: Json,
    pod_groups: Sequence[AnyPodGroup] | None = (),
    events: Sequence[Json] = (),
    racks: Json | None = None,
    jobs: Mapping[str, int] = MappingProxyType({}),
) -> list[found_groups.FoundGroup]:
    nodes = [{"metadata": {"name": name, "labels": {"rack": rack}}} for name, rack in (racks or {}).items()]
    return found_groups.find(
        found_groups.ListedObjects(
            [msgspec.convert(one, Pod) for one in pods],
            {PodGroup: pod_groups, CoschedulingPodGroup: ()},
            [msgspec.convert(one, Event, strict=False) for one in events],
            [msgspec.convert(one, Node) for one in nodes],
            jobs=[
                msgspec.convert({"metadata": {"name": uid, "uid": uid}, "status": {"succeeded": count}}, Job)
                for uid, count in jobs.items()
            ],
        )
    )


def rows(answer: Answer) -> list[list[str]]:
    """Return the first table's rows, split at blanks."""
    return [line.split() for line in draw(answer.tables[:1], coloured=False).splitlines()[1:]]


def test_a_group_that_waits_shows_the_member_and_the_node_that_it_hangs_on() -> None:
    """They come from the event of the decision; before one the row has neither."""
    waiting = [member(index) for index in range(3)]
    answer = groups.report(find(*waiting, events=[event("uid-rank-1", _WHY)]), wide=False)
    assert rows(answer) == [["default", "train", "Waiting", "3", "0", "3", "-", "-", "rank-2"]]
    assert rows(groups.report(find(*waiting, events=[event("uid-rank-1", _WHY)]), wide=True))[0][9] == "n3"
    assert rows(groups.report(find(*waiting), wide=False))[0][-1] == "-"
    wide = draw(groups.report(find(*waiting), wide=True).tables, coloured=False)
    assert wide.endswith(_MESSAGE)


def test_a_group_that_runs_shows_the_domain_that_its_members_share() -> None:
    """The narrowest level counts; members in several domains share none."""
    group = {**_GROUP, "prefer": ["leaf"]}
    placed = [member(index, f"n{index}", group) for index in range(3)]
    racks = {"n0": "r1", "n1": "r1", "n2": "r1"}
    assert rows(groups.report(find(*placed, racks=racks), wide=False)) == [
        ["default", "train", "Scheduled", "3", "3", "0", "r1", "0/3", "-"]
    ]
    (apart,) = find(*placed, racks=racks | {"n2": "r2"})
    assert apart.domain is None


def test_roles_are_shown_and_count() -> None:
    """Three members of one role are not as many as the group needs."""
    group = {"name": "train", "role_from": "role", "roles": {"head": 1, "worker": 2}}
    workers = [member(index, f"n{index}", group) for index in range(3)]
    for worker in workers:
        worker["metadata"]["labels"] = {"role": "worker"}
    (found,) = find(*workers)
    assert (found.state, found.members.current_count) == ("Incomplete", 2)
    assert "roles      1 head, 2 worker" in draw(groups.detail(found).tables[:1], coloured=False)
    assert groups.as_item(found)["roles"] == {"head": 1, "worker": 2}


def test_a_group_is_incomplete_while_a_role_lacks_members() -> None:
    """Though as many wait as it needs; it waits once each role has enough, bound ones included."""
    group = {"name": "train", "role_from": "role", "roles": {"head": 1, "worker": 2}}

    def state(*roles: str, on: str = "") -> str:
        pods = [member(index, on if index == 0 else "", group) for index in range(len(roles))]
        for one, role in zip(pods, roles, strict=True):
            one["metadata"]["labels"] = {"role": role}
        return find(*pods)[0].state

    assert state("worker", "worker", "worker") == "Incomplete"
    assert state("head", "head", "worker", "worker") == "Waiting"
    assert state("worker", "worker", "worker", on="n0") == "Incomplete"
    assert state("head", "worker", "worker", on="n0") == "Partial"


def test_slices_are_shown_with_the_use_of_their_labels() -> None:
    """In the facts, in JSON and in the wide table; with each label's domains, the slices' first."""
    group = {"name": "train", "min": 4, "slices": {"size": 2, "within": _GROUP["within"]}}
    placed = [member(index, f"n{index}", group) for index in range(4)]
    found = find(*placed, racks={"n0": "r2", "n1": "r2", "n2": "r1", "n3": "r1"})
    said = draw(groups.detail(found[0]).tables[:1], coloured=False)
    assert f"slices     2 within '{_GROUP['within']}'" in said
    assert "2 domain(s): 'r2', 'r1'; 2 of 4 ring hops cross domains" in said
    assert groups.as_item(found[0])["slices"] == [{"size": 2, "within": _GROUP["within"]}]
    assert f"2 within '{_GROUP['within']}'" in draw(groups.report(found, wide=True).tables, coloured=False)


def test_a_group_in_several_racks_shows_how_many_and_how_often_its_ring_leaves_one() -> None:
    """Ranks 0, 1 in one rack and 2, 3 in another: two of four hops cross, the last one back to rank 0 included."""
    placed = [member(index, f"n{index}") for index in range(4)]
    found = find(*placed, racks={"n0": "r2", "n1": "r2", "n2": "r1", "n3": "r1"})
    row = draw(groups.report(found, wide=False).tables[:1], coloured=False).splitlines()[1]
    assert row.split("0   ")[-1].split() == ["2", "domains", "2/4", "-"]
    level = {"label": _GROUP["within"], "domains": ["r2", "r1"], "hops": 4, "crossing": 2}
    assert groups.as_item(found[0])["levels"] == [level]
    said = draw(groups.detail(found[0]).tables[:1], coloured=False)
    assert "2 domain(s): 'r2', 'r1'; 2 of 4 ring hops cross domains" in said
    (mixed,) = find(*placed, racks={"n0": "r2", "n1": "r1", "n2": "r2", "n3": "r1"})
    assert [one.crossing for one in mixed.levels] == [4]


@pytest.mark.parametrize(
    ("pods", "state", "counts"),
    [
        ([member(0, "n0"), member(1), member(2)], "Partial", (1, 2)),
        ([member(0), member(1)], "Incomplete", (0, 2)),
        ([member(index, "n0") | {"status": {"phase": "Succeeded"}} for index in range(3)], "Finished", (0, 0)),
        ([member(0), member(1, "n0") | {"status": {"phase": "Succeeded"}}], "Incomplete", (1, 1)),
        ([member(0), member(1), member(2, spec={"schedulingGates": [{"name": "g"}]})], "Incomplete", (0, 3)),
        ([member(0), member(1), member(2, group={**_GROUP, "min": 2})], "Refused", (0, 3)),
        ([member(0, "n0"), member(1, "n1"), member(2, "n2"), member(3)], "Scheduled", (3, 1)),
        ([member(0, "n0"), member(1, "n1"), member(2, "n2") | {"status": {"phase": "Succeeded"}}], "Scheduled", (3, 0)),
        ([member(0), member(1), member(2), member(3) | {"status": {"phase": "Failed"}}], "Waiting", (0, 3)),
    ],
)
def test_members_count_as_they_do_for_the_scheduler(pods: list[Json], state: str, counts: tuple[int, int]) -> None:
    """One that has succeeded counts for those of its controller; gated ones do not count, and wait."""
    (found,) = find(*pods)
    assert (found.state, (found.members.current_count, found.waiting)) == (state, counts)


def test_a_pod_group_gives_the_number_and_without_its_list_it_is_unknown() -> None:
    """A PodGroup that does not exist, and one that may not be listed, are told apart."""
    pods = [pod(f"p{n}", "[{}]", spec={"schedulingGroup": {"podGroupName": "train"}}) for n in range(2)]
    spec = {"schedulingPolicy": {"gang": {"minCount": 2}}}
    item = msgspec.convert({"metadata": {"name": "train", "namespace": "default"}, "spec": spec}, PodGroup)
    (found,) = find(*pods, pod_groups=[item])
    assert (found.state, found.name) == ("Waiting", "default/train")
    assert [one.why for one in find(*pods)] == [
        "its PodGroup (scheduling.k8s.io) does not exist, or the API server does not serve that API"
    ]
    assert [one.why for one in find(*pods, pod_groups=None)] == ["no right to list its PodGroup"]


def test_groups_of_other_schedulers_are_not_shown() -> None:
    """What their scheduler does with them is not known here."""
    assert find(member(0, spec={"schedulerName": "default-scheduler"})) == []
    assert draw(groups.report([], wide=False).tables, coloured=False) == "no groups of pods"


@pytest.mark.parametrize("about", [3, {}, {"member": 1}, {"member": "m", "fitting": "x", "wanted": 1}])
def test_an_event_that_says_nonsense_about_a_group_is_shown_as_far_as_it_goes(about: object) -> None:
    """Any user may write events."""
    (found,) = find(member(0), member(1), member(2), events=[event("uid-rank-0", {"v": 1, "group": about})])
    assert found.hangs_on is None
    assert "default/train" in draw(groups.explanation(found, found.decision).tables, coloured=False)


def test_an_event_of_another_namespace_decides_nothing_here() -> None:
    """Who may write events in one namespace can name a pod of another one by its uid."""
    foreign = event("uid-rank-1", _WHY)
    foreign["metadata"]["namespace"] = foreign["involvedObject"]["namespace"] = "tenant"
    (found,) = find(member(0), member(1), member(2), events=[foreign])
    assert found.decision is None


async def test_one_group_is_shown_with_its_members(served: Served) -> None:
    """Programs hang on the fields of the JSON document."""
    await served.add_node(node("n1", (pf(0),)))
    uids = [await served.add_pod(member(index, "n1" if index == 0 else "")) for index in (0, 1, 2)]
    status, out, err = await served.run("groups", "train")
    assert (status, err) == (0, "")
    assert "state      Partial" in out
    assert out.splitlines()[-3].split() == ["rank-0", "bound", "n1"]
    _, out, _ = await served.run("groups", "train", "-o", "json")
    (item,) = json.loads(out)["items"]
    assert item["members"][1] == {"name": "rank-1", "uid": uids[1], "state": "waiting", "node": ""}
    assert list(item) == [
        *(
            "metadata",
            "namespace",
            "name",
            "source",
            "state",
            "why",
            "start",
            "min",
            "bound",
            "waiting",
            "within",
            "prefer",
            "slices",
            "roles",
            "rails",
        ),
        *("domain", "levels", "hangs_on", "members"),
    ]
    status, _, err = await served.run("groups", "nobody")
    assert (status, err) == (1, 'Error from server (NotFound): groups "nobody" not found\n')
    _, out, _ = await served.run("groups", "-A")
    assert out.splitlines()[1].split()[:6] == ["default", "train", "Partial", "3", "1", "2"]


async def test_explain_tells_a_groups_last_decision_and_decides_again(served: Served) -> None:
    """The members are decided about together, as the scheduler does."""
    for name in ("n1", "n2"):
        await served.add_node(node(name, (pf(0, vfs=1),)))
    group = {"name": "train", "min": 3}
    await served.lead()
    uids = [await served.add_pod(member(index, group=group)) for index in range(3)]
    told = event("uid-rank-2", _WHY | {"nodes": 2, "counts": {"told": 2}})
    told["involvedObject"]["uid"] = uids[2]
    await served.post("/api/v1/namespaces/default/events", told)
    status, out, _ = await served.run("explain", "group/train")
    assert status == 0
    assert "unplaced     rank-2 (2 of 3 members fit)" in out
    assert "source       event 2026-01-01T00:00:00Z" in out
    assert out.splitlines()[-1].split() == ["2", "told", "-"]
    _, out, _ = await served.run("explain", "group/train", "--recompute", "-o", "json")
    (item,) = json.loads(out)["items"]
    assert item["source"] == "recomputed"
    assert item["message"].startswith("group train: 2 of 3 members fit: 0/2 nodes are available for the 3rd member: ")
    assert item["decision"]["group"] == {"member": "rank-2", "fitting": 2, "wanted": 3, "nodes": ["n1", "n2"]}
    await served.add_node(node("n3", (pf(0, vfs=1),)))
    _, out, _ = await served.run("explain", "group/train", "--recompute")
    assert "3 of 3 waiting members would be bound, to n1, n2, n3\n" in out
    await served.client.request("DELETE", "/api/v1/namespaces/default/pods/rank-2")
    _, out, _ = await served.run("explain", "group/train", "--recompute")
    assert "group train: 2 of at least 3 members exist" in out


def _of_job(uid: str, member: Json, phase: str = "", minute: int = 0) -> Json:
    """Return a member of a Job, bound in this minute if it has a node."""
    owners = [{"apiVersion": "batch/v1", "kind": "Job", "name": uid, "uid": uid, "controller": True}]
    created = f"2026-01-01T00:{minute:02}:00Z"
    status: Json = {"phase": phase or "Pending"}
    if phase:
        status["conditions"] = [{"type": "PodScheduled", "status": "True", "lastTransitionTime": created}]
    metadata = member["metadata"] | {"ownerReferences": owners, "creationTimestamp": created}
    return member | {"metadata": metadata, "status": status}


async def test_members_that_have_succeeded_count_where_a_group_is_decided_about_again(served: Served) -> None:
    """Those of its controller do, also by what the Job says; not those of another one."""
    await served.add_node(node("n1", (pf(0, vfs=4),)))
    group = {"name": "train", "min": 3}
    job = {"metadata": {"name": "train"}, "status": {"succeeded": 1}}
    jobs = "/apis/batch/v1/namespaces/default/jobs"
    shown = msgspec.json.decode(await served.client.request("POST", jobs, msgspec.json.encode(job)))
    uid = shown["metadata"]["uid"]
    await served.add_pod(_of_job("old", member(0, "n1", group=group), "Succeeded"))
    await served.add_pod(_of_job(uid, member(1, "n1", group=group), "Running", 30))
    await served.add_pod(_of_job(uid, member(2, group=group)))
    _, out, _ = await served.run("explain", "group/train", "--recompute")
    assert "2 of at least 3 members exist, 1 succeeded under another controller" in out
    succeeded = msgspec.json.encode({"status": {"succeeded": 1}})
    await served.client.request("PATCH", f"{jobs}/train/status", succeeded, "application/merge-patch+json")
    _, out, _ = await served.run("explain", "group/train", "--recompute")
    assert "1 of 1 waiting members would be bound, to n1" in out


async def test_a_pod_that_is_decided_about_again_has_the_schedulers_victims(served: Served) -> None:
    """A pod on its own goes before a rank of a full group, which has started later."""
    for name in ("n1", "n2", "n3"):
        await served.add_node(node(name, (pf(0, vfs=1),)))
    for index in range(2):
        await served.add_pod(member(index, f"n{index + 1}", group={"name": "train", "min": 2}))
    alone = bound("alone", "n3", (pf(), 0, 0))
    alone["status"]["startTime"] = "2026-01-01T00:00:00Z"
    await served.add_pod(alone)
    await served.add_pod(pod("urgent", "[{}]", spec={"priorityClassName": "system-cluster-critical"}))
    _, out, _ = await served.run("explain", "pod/urgent", "--recompute", "-o", "json")
    assert json.loads(out)["decision"]["preemption"] == {"node": "n3", "victims": ["default/alone"]}


async def test_a_group_is_decided_about_again_though_others_come_before_it(served: Served) -> None:
    """Neither an older group nor single pods that wait hold up the answer."""
    await served.add_node(node("n1", (pf(0, vfs=1),)))
    for name, created in (("older", "2026-01-01T00:00:00Z"), ("younger", "2026-01-02T00:00:00Z")):
        text = json.dumps({"name": name, "min": 2})
        for index in range(2):
            one = pod(f"{name}-{index}", "[{}]", annotations={names.GROUP: text})
            one["metadata"]["creationTimestamp"] = created
            await served.add_pod(one)
    await served.add_pod(pod("alone", "[{}]"))
    for name in ("older", "younger"):
        _, out, _ = await served.run("explain", f"group/{name}", "--recompute")
        assert f"group {name}: 1 of 2 members fit: 0/1 nodes are available for the 2nd member: " in out


async def test_room_that_is_kept_for_a_nominated_pod_is_not_given_to_a_group(served: Served) -> None:
    """Its status says where; the scheduler keeps its VFs there too."""
    await served.add_node(node("n1", (pf(0, vfs=3),)))
    await served.add_pod(pod("nominated", "[{}, {}]", status={"phase": "Pending", "nominatedNodeName": "n1"}))
    for index in range(2):
        await served.add_pod(member(index, group={"name": "train", "min": 2}))
    _, out, _ = await served.run("explain", "group/train", "--recompute")
    assert "group train: 1 of 2 members fit: 0/1 nodes are available for the 2nd member: " in out


async def test_a_group_whose_label_no_node_has_is_told_the_label(served: Served) -> None:
    """No node refuses a member more than another, so none is named as the one it hangs on."""
    await served.add_node(node("n1", (pf(0, vfs=4),)))
    for index in range(3):
        await served.add_pod(member(index))
    _, out, _ = await served.run("explain", "group/train", "--recompute")
    assert "0/1 nodes are available for the 1st member: 1 node(s) had no label rack." in out
    assert out.splitlines()[-1].split() == ["1", "node(s)", "had", "no", "label", "rack", "n1"]
    assert "refused by" not in out


async def test_without_the_rights_a_group_is_shown_as_far_as_they_go(guarded: Served) -> None:
    """Pods are listed; neither nodes nor events nor PodGroups are."""
    await guarded.add_pod(member(0))
    await guarded.restrict("pods")
    status, out, err = await guarded.run("groups")
    assert status == 0
    assert out.splitlines()[1].split()[:6] == ["train", "Incomplete", "3", "0", "1", "?"]
    assert [line.split()[-1] for line in err.splitlines() if "nodes" in line] == ["nodes"]
    assert "podgroups.scheduling.k8s.io" in err


def test_members_that_succeeded_in_an_earlier_run_do_not_count() -> None:
    """A job was run again under the name of its group: as for the scheduler, they have another controller."""
    over = [_of_job("old", member(index, "n0"), "Succeeded", index) for index in range(2)]
    runs = [_of_job("new", member(5, "n0"), "Running", 30), _of_job("new", member(6))]
    (found,) = find(*over, *runs)
    assert (found.state, found.members.current_count) == ("Incomplete", 1)
    (found,) = find(*over, *runs, jobs={"old": 2, "new": 1})
    assert (found.state, found.members.current_count) == ("Partial", 2)


def test_a_group_has_started_though_a_job_of_it_is_complete() -> None:
    """Of a JobSet: its ranks were placed together with those that run and those that failed."""
    done = [_of_job("first", member(0, "n0"), "Succeeded", 5)]
    rest = [_of_job("second", member(1, "n1"), "Running", 5), _of_job("second", member(2, "n2"), "Failed", 5)]
    (found,) = find(*done, *rest)
    assert (found.state, found.members.current_count) == ("Incomplete", 2)
    (found,) = find(*done, *rest, _of_job("second", member(3)))
    assert (found.state, found.members.current_count) == ("Partial", 2)
    (found,) = find(*done, *rest, _of_job("second", member(3, "n3"), "Running", 9))
    assert (found.state, found.members.current_count) == ("Scheduled", 3)


def test_a_group_with_waiting_pods_of_another_scheduler_is_refused() -> None:
    """As the scheduler refuses it; not once as many are bound as it needs, nor where no other pod waits."""
    foreign = member(3, spec={"schedulerName": "default-scheduler"}, status={"phase": "Pending"})
    (found,) = find(*(member(index) for index in range(3)), foreign)
    assert (found.state, found.refusal) == ("Refused", "waiting members that name another scheduler: 1")
    (unsaid,) = find(*(member(index, status={"phase": "Pending"}) for index in range(3)), foreign)
    assert unsaid.why == "waiting members that name another scheduler: 1"
    (bound_already,) = find(*(member(index, f"n{index}") for index in range(3)), member(4), foreign)
    assert bound_already.state == "Scheduled"
    (alone,) = find(member(0, "n0"), foreign)
    assert alone.state == "Incomplete"


def test_a_pod_that_names_two_pod_groups_is_a_refused_member_of_the_first() -> None:
    """The scheduler counts it so, also before it has told it."""
    spec = {"schedulingGroup": {"podGroupName": "train"}}
    pods = [pod(f"p{number}", "[{}]", spec=spec) for number in range(2)]
    two = pod("two", "[{}]", spec=spec, status={"phase": "Pending"})
    two["metadata"]["labels"] = {names.POD_GROUP_LABEL: "other"}
    policy = {"schedulingPolicy": {"gang": {"minCount": 3}}}
    pod_group = msgspec.convert({"metadata": {"name": "train", "namespace": "default"}, "spec": policy}, PodGroup)
    (found,) = find(*pods, two, pod_groups=[pod_group])
    assert (found.state, found.waiting, found.members.count("refused")) == ("Incomplete", 3, 1)
    text = draw(groups.detail(found).tables, coloured=False)
    assert ["two", "refused", "-"] in [line.split() for line in text.splitlines()]


def test_each_value_of_a_label_that_names_groups_is_a_group() -> None:
    """Shown under that value, as it is for the scheduler."""
    members = [member(index, group={"name_from": "replica", "min": 2}) for index in range(4)]
    for index, one in enumerate(members):
        one["metadata"]["labels"] = {"replica": f"Key_{index // 2}"}
    shown = rows(groups.report(find(*members), wide=False))
    assert [row[1:6] for row in shown] == [[f"Key_{number}", "Waiting", "2", "0", "2"] for number in range(2)]
