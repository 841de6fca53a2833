"""What `kubectl mooring lint` says of groups that never start, because too few of their pods are made at one time."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from cli.plugin.reports.lint.report import report

ROOT = Path(__file__).parents[5]
OF_FILES = "starts, unless other objects have members of it"


def template(minimum: int, name: str = "g") -> dict[str, Any]:
    """Return a pod template whose pods are members of a group; an empty name is the controller's own group."""
    group = {"min": minimum} | ({"name": name} if name else {})
    annotations = {"mooring.dev/interfaces": "[{}]", "mooring.dev/group": json.dumps(group)}
    return {
        "metadata": {"annotations": annotations},
        "spec": {"schedulerName": "mooring", "containers": [{"name": "c"}]},
    }


def whole(kind: str, spec: dict[str, Any], namespace: str = "") -> dict[str, Any]:
    return {"apiVersion": "x/v1", "kind": kind, "metadata": {"name": "a", "namespace": namespace}, "spec": spec}


def said(*objects: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the findings in files, one for each object, as field and rule."""
    files = [(f"{number}.yaml", json.dumps(one)) for number, one in enumerate(objects)]
    return [
        (one["field"], one["rule"]) for one in json.loads(json.dumps(report(files, ("mooring",)).document))["findings"]
    ]


def replicas(field: str, first: str, *, minimum: int, name: str = "g", **more: Any) -> dict[str, Any]:
    """Return the specification of a training job with one pod of the first role and three workers."""
    roles = {first: {"replicas": 1, "template": template(minimum, name)}}
    return {field: roles | {"Worker": {"replicas": 3, "template": template(minimum, name)}}, **more}


def sized(kind: str, minimum: int, name: str = "g") -> dict[str, Any]:
    """Return an object of which four pods are made at one time."""
    pod = template(minimum, name)
    job = {"spec": {"parallelism": 2, "completions": 9, "template": pod}}
    two = {"replicas": 2, "template": job}
    leaders = {"leaderWorkerTemplate": {"size": 2, "workerTemplate": pod}, "replicas": 2}
    specs: dict[str, dict[str, Any]] = {
        "Deployment": {"replicas": 4, "template": pod},
        "ReplicaSet": {"replicas": 4, "template": pod},
        "StatefulSet": {"replicas": 4, "podManagementPolicy": "Parallel", "template": pod},
        "Job": {"parallelism": 5, "completions": 4, "template": pod},
        "CronJob": {"jobTemplate": {"spec": {"parallelism": 4, "template": pod}}},
        "JobSet": {"replicatedJobs": [two]},
        "LeaderWorkerSet": leaders,
        "MPIJob": replicas("mpiReplicaSpecs", "Launcher", minimum=minimum, name=name),
        "PyTorchJob": replicas("pytorchReplicaSpecs", "Master", minimum=minimum, name=name),
    }
    return whole(kind, specs[kind])


KINDS = (
    "Deployment",
    "ReplicaSet",
    "StatefulSet",
    "Job",
    "CronJob",
    "JobSet",
    "LeaderWorkerSet",
    "MPIJob",
    "PyTorchJob",
)


@pytest.mark.parametrize("kind", KINDS)
def test_a_group_that_needs_more_pods_than_are_made_at_one_time_is_found(kind: str) -> None:
    """It is named once, at the annotation of its first template, with both numbers; as many as are made is right."""
    assert said(sized(kind, 4)) == []
    ((field, rule),) = said(sized(kind, 5))
    assert field.lower().endswith("template.metadata.annotations.mooring.dev/group")
    assert (
        rule
        == f"min: 5 exceeds 4, the number of pods of group 'g' that these files make at one time: it never {OF_FILES}"
    )


@pytest.mark.parametrize(
    ("kind", "most"),
    [
        *((kind, 4) for kind in ("Deployment", "StatefulSet", "Job", "PyTorchJob")),
        ("JobSet", 2),
        ("LeaderWorkerSet", 1),
    ],
)
def test_a_group_without_a_name_has_the_pods_of_one_controller_only(kind: str, most: int) -> None:
    """Each Job of a JobSet is one, and so is each leader's StatefulSet of workers."""
    assert said(sized(kind, most, "")) == []
    ((_, rule),) = said(sized(kind, most + 1, ""))[:1]
    rule, _, _ = rule.partition("; name_from")
    exceeds = f"min: {most + 1} exceeds {{}}, the number of pods that the controller makes at one time: it never starts"
    assert rule in {exceeds.format(most), exceeds.format(most + 1)}


def test_an_mpi_jobs_launcher_is_of_another_controller_than_its_workers() -> None:
    """Without a name it would be a group of its own, of one pod."""
    found = said(sized("MPIJob", 3, ""))
    assert [field for field, _ in found] == [
        "spec.mpiReplicaSpecs.Launcher.template.metadata.annotations.mooring.dev/group"
    ]
    assert "exceeds 1, the number" in found[0][1]


def test_a_pod_alone_that_names_no_group_is_refused() -> None:
    """No controller owns it; the pods of a template have one."""
    ((_, rule),) = said({**template(1, ""), "kind": "Pod"})
    assert rule == "field 'name' is missing, and no controller owns the pod"


@pytest.mark.parametrize(
    ("first", "second", "finds"),
    [("a", "a", False), ("a", "", False), ("", "", False), ("a", "b", True)],
)
def test_members_of_all_files_count_within_a_namespace(first: str, second: str, finds: bool) -> None:
    """A manifest without a namespace may be applied in any."""
    job = {"parallelism": 4, "template": template(8)}
    assert bool(said(whole("Job", job, first), whole("Job", job, second))) is finds


@pytest.mark.parametrize(
    "spec",
    [
        whole("DaemonSet", {"template": template(8)}),
        whole("VolcanoJob", {"template": template(8)}),
        whole("CloneSet", {"replicas": 2, "template": template(8)}),
        whole("Deployment", {"replicas": "{{ n }}", "template": template(8)}),
        whole("Deployment", {"replicas": 0, "template": template(8)}),
        whole("PyTorchJob", replicas("pytorchReplicaSpecs", "Master", minimum=8, elasticPolicy={"maxReplicas": 9})),
    ],
)
def test_nothing_is_said_where_the_number_of_pods_is_not_known(spec: dict[str, Any]) -> None:
    """Nor of another object whose pods are of the same group; a number that others change later is not known."""
    assert said(spec) == []
    others = [] if spec["spec"].get("replicas") == 0 else [whole("Job", {"template": template(8)})]
    assert said(spec, *others) == []


def test_nothing_is_said_of_the_group_of_a_pod_group() -> None:
    """The PodGroup has the name, and other objects its pods."""
    pod = template(8)
    pod["metadata"]["labels"] = {"scheduling.x-k8s.io/pod-group": "g"}
    assert said(whole("Job", {"template": pod})) == []


@pytest.mark.parametrize(("policy", "default"), [({}, True), ({"podManagementPolicy": "OrderedReady"}, False)])
def test_a_stateful_set_whose_pods_come_one_by_one_never_starts(policy: dict[str, str], default: bool) -> None:
    """Its second pod is made when the first one is ready. A group of one member has no such wait."""
    assert said(whole("StatefulSet", {"replicas": 4, "template": template(1), **policy})) == []
    ((field, rule),) = said(whole("StatefulSet", {"replicas": 4, "template": template(4), **policy}))
    assert field == "spec.podManagementPolicy"
    assert rule == (
        "'OrderedReady' holds pods back until others of their group are ready: of 4 that must start together 1 are "
        "made, and the group never starts"
    )


def test_a_launcher_that_waits_for_its_workers_cannot_count() -> None:
    """It is made when they are ready. It may be a member beyond those that must start together."""
    wait = {"launcherCreationPolicy": "WaitForWorkersReady"}
    assert said(whole("MPIJob", replicas("mpiReplicaSpecs", "Launcher", minimum=3, **wait))) == []
    ((field, rule),) = said(whole("MPIJob", replicas("mpiReplicaSpecs", "Launcher", minimum=4, **wait)))
    assert field == "spec.launcherCreationPolicy"
    assert rule.startswith(
        "'WaitForWorkersReady' holds pods back until others of their group are ready: of 4 that must"
    )
    at_once = {"launcherCreationPolicy": "AtStartup"}
    assert said(whole("MPIJob", replicas("mpiReplicaSpecs", "Launcher", minimum=4, **at_once))) == []


def test_jobs_of_a_job_set_that_start_in_order_never_start_as_one_group() -> None:
    """The second replicated job is made when the first one is ready; a first one of another group holds up nobody."""
    both = [{"template": {"spec": {"parallelism": 2, "template": template(4)}}} for _ in range(2)]
    in_order = {"startupPolicy": {"startupPolicyOrder": "InOrder"}}
    assert said(whole("JobSet", {"replicatedJobs": both})) == []
    ((field, rule),) = said(whole("JobSet", {"replicatedJobs": both} | in_order))
    assert (field, rule[:9]) == ("spec.startupPolicy.startupPolicyOrder", "'InOrder'")
    driver = {"template": {"spec": {"template": {"spec": {"containers": [{"name": "c"}]}}}}}
    ranks = {"template": {"spec": {"parallelism": 4, "template": template(4)}}}
    assert said(whole("JobSet", {"replicatedJobs": [driver, ranks]} | in_order)) == []


def job_set(*jobs: tuple[str, int, str], minimum: int = 4, status: str = "Ready") -> dict[str, Any]:
    """Return a JobSet of replicated jobs: name, pods (of no group if negative), and the one that it depends on."""
    replicated = []
    for name, pods, dependency in jobs:
        pod = template(minimum) if pods >= 0 else {"spec": {"containers": [{"name": "c"}]}}
        one: dict[str, Any] = {"name": name, "template": {"spec": {"parallelism": abs(pods), "template": pod}}}
        replicated.append(one | ({"dependsOn": [{"name": dependency, "status": status}]} if dependency else {}))
    return whole("JobSet", {"replicatedJobs": replicated})


@pytest.mark.parametrize("status", ["Ready", "Complete"])
def test_jobs_of_a_job_set_that_depend_on_others_of_their_group_never_start(status: str) -> None:
    """They are made when those others are ready, which do not start without them."""
    ((field, rule),) = said(job_set(("a", 2, ""), ("b", 2, "a"), status=status))
    assert field == "spec.replicatedJobs[1].dependsOn[0].status"
    assert rule == (
        f"{status!r} holds pods back until others of their group are ready: of 4 that must start together 2 are made, "
        "and the group never starts"
    )


def test_a_job_that_depends_on_one_by_way_of_another_one_waits_for_it_too() -> None:
    """The one between may be of no group."""
    found = said(job_set(("a", 2, ""), ("between", -1, "a"), ("b", 2, "between")))
    assert [field for field, _ in found] == ["spec.replicatedJobs[2].dependsOn[0].status"]


@pytest.mark.parametrize(
    "jobs",
    [
        # A driver of no group is ready by itself.
        (("driver", -1, ""), ("a", 2, "driver"), ("b", 2, "driver")),
        (("driver", -1, ""), ("a", 4, "driver")),
        (("driver", -1, ""), ("a", 2, ""), ("b", 2, "driver")),
        # Those that must start together are there without the later ones.
        (("a", 4, ""), ("b", 2, "a")),
        # Of no Jobs all are ready.
        (("a", 0, ""), ("b", 4, "a")),
        (("a", 4, ""), ("b", 2, "nobody")),
    ],
)
def test_a_job_may_depend_on_others_than_those_that_its_group_needs(jobs: tuple[tuple[str, int, str], ...]) -> None:
    """Nothing is said of what starts."""
    assert said(job_set(*jobs)) == []


def test_only_jobs_with_pods_hold_others_back_or_are_held_back() -> None:
    """What has no pods is not spoken of, though it waits."""
    found = said(job_set(("a", 2, ""), ("none", 0, "a"), ("b", 2, "a")))
    assert [field for field, _ in found] == ["spec.replicatedJobs[2].dependsOn[0].status"]


def test_workers_that_wait_for_their_leader_never_start_with_it() -> None:
    """They are made when it is ready."""
    spec = {"replicas": 1, "leaderWorkerTemplate": {"size": 4, "workerTemplate": template(4)}}
    assert said(whole("LeaderWorkerSet", spec)) == []
    ((field, _),) = said(whole("LeaderWorkerSet", spec | {"startupPolicy": "LeaderReady"}))
    assert field == "spec.startupPolicy"


@pytest.mark.parametrize(
    "spec",
    [
        whole("JobSet", {"replicatedJobs": {"a": {"template": {"spec": {"template": template(2)}}}}}),
        whole("StatefulSet", {"replicas": 2, "podManagementPolicy": {"a": ["b"] * 9_000}, "template": template(2)}),
        whole("Job", {"parallelism": -1, "completions": True, "template": template(2)}),
    ],
)
def test_an_object_that_is_not_valid_raises_nothing(spec: dict[str, Any]) -> None:
    """What it has in the place of a list, a text or a number is not repeated at length."""
    spec["spec"]["startupPolicy"] = {"startupPolicyOrder": "InOrder"}
    assert all(len(rule) < 400 for _, rule in said(spec))


@pytest.mark.parametrize("dependencies", [1, {"a": 1}, [1], [{}], [{"name": []}], [{"name": "a"}], [{"name": "b"}]])
def test_dependencies_that_are_not_valid_raise_nothing(dependencies: object) -> None:
    """Nor do they that are in a circle, or are nobody's."""
    spec = job_set(("a", 2, "b"), ("b", 2, "a"))
    spec["spec"]["replicatedJobs"].insert(0, 1)
    spec["spec"]["replicatedJobs"][2]["dependsOn"] = dependencies
    assert all(len(rule) < 400 for _, rule in said(spec))


def test_the_same_file_twice_makes_no_more_pods() -> None:
    """An object is one object however often its file is named."""
    file = ("f.yaml", json.dumps(sized("Job", 8)))
    answer = json.loads(json.dumps(report([file, file], ("mooring",)).document))
    assert len(answer["findings"]) == 1


def test_the_jobs_of_the_documentation_start() -> None:
    """None of its manifests is spoken of."""
    page = (ROOT / "docs/jobs.md").read_text(encoding="utf-8")
    text = "---\n".join(re.findall(r"```yaml\n(.*?)```", page, re.DOTALL))
    assert report([("jobs.md", text)], ("mooring",)).document["findings"] == []


def test_members_that_say_different_things_of_their_group_are_named() -> None:
    """In one file or in several: the scheduler refuses all of them."""
    one, other, alone = (whole("Job", {"parallelism": 4, "template": template(4)}) for _ in range(3))
    annotations = other["spec"]["template"]["metadata"]["annotations"]
    annotations["mooring.dev/group"] = json.dumps({"min": 4, "name": "g", "rails": "same"})
    alone["metadata"]["namespace"], other["metadata"]["namespace"], one["metadata"]["namespace"] = "b", "a", "a"
    field = "spec.template.metadata.annotations.mooring.dev/group"
    assert said(one, other) == [(field, "members of group 'g' differ in rails: 'same', none: it never starts")]
    assert said(other, alone) == []


def _ray(**group: Any) -> dict[str, Any]:
    """Return a RayCluster with a head and three workers."""
    pod = template(1)
    pod["metadata"]["annotations"]["mooring.dev/group"] = json.dumps(group)
    workers = {"groupName": "w", "replicas": 3, "template": pod}
    return whole("RayCluster", {"headGroupSpec": {"template": pod}, "workerGroupSpecs": [workers]})


def test_head_and_workers_of_a_cluster_are_one_group_without_a_name() -> None:
    """The RayCluster is the controller of all of them."""
    assert said(_ray(min=4)) == []
    ((_, rule),) = said(_ray(min=5))
    assert rule.startswith("min: 5 exceeds 4, the number of pods that the controller makes")


@pytest.mark.parametrize(
    ("roles", "rule"),
    [
        ({"head": 1, "worker": 3}, ""),
        ({"head": 2, "worker": 2}, "roles.head: 2 exceeds 1, the number of its pods: it never starts"),
        ({"head": 1, "workers": 3}, "roles.workers: 3 exceeds 0, the number of its pods: it never starts"),
    ],
)
def test_a_role_that_needs_more_pods_than_are_made_is_found(roles: dict[str, int], rule: str) -> None:
    of_labels = {"name_from": "ray.io/cluster", "role_from": "ray.io/node-type"}
    assert [one for _, one in said(_ray(**of_labels, roles=roles))] == ([rule] if rule else [])
    named = [one for _, one in said(_ray(name="g", role_from="ray.io/node-type", roles=roles))]
    assert named == ([f"{rule}, unless other objects have members of it"] if rule else [])
    assert said(_ray(name="g", role_from="example.com/role", roles=roles)) == []


@pytest.mark.parametrize("key", ["ray.io/nodetype", "ray.io/cluster"])
def test_a_label_that_does_not_tell_roles_apart_is_found(key: str) -> None:
    """The scheduler rejects pods without the label, and one value for all pods is one role."""
    rule = f"role_from: label {key!r} does not tell the roles of a RayCluster apart: use 'ray.io/node-type'"
    found = said(_ray(name="g", role_from=key, roles={"head": 1, "worker": 3}))
    assert [one for _, one in found] == [rule] * 2


@pytest.mark.parametrize(
    ("key", "is_found"),
    [
        ("replicatedjob-name", False),
        ("group-name", False),
        ("job-index", False),
        ("replicatedjobname", True),
    ],
)
def test_any_label_that_a_job_set_gives_the_pods_of_a_role_is_one(key: str, is_found: bool) -> None:
    pod = template(1)
    group = {"name": "g", "role_from": f"jobset.sigs.k8s.io/{key}", "roles": {"default": 1}}
    pod["metadata"]["annotations"]["mooring.dev/group"] = json.dumps(group)
    spec = {"replicatedJobs": [{"name": "default", "template": {"spec": {"template": pod}}}]}
    assert [one.startswith("role_from: ") for _, one in said(whole("JobSet", spec))] == [True] * is_found
