"""What `kubectl mooring lint` says of objects that make the pods of several groups, and of what deadlocks."""

import json
from typing import Any

import pytest
import yaml

from cli.plugin.reports.lint.report import report

LWS_KEY = "leaderworkerset.sigs.k8s.io/group-key"
JOB_KEY = "jobset.sigs.k8s.io/job-key"
RACK = "example.com/rack"
# As people write them, rebuilt small. GROUP is the annotation's text.
POD = """
metadata: {annotations: {mooring.dev/interfaces: '[{}]', mooring.dev/group: GROUP}}
spec: {schedulerName: mooring, containers: [{name: main, image: x}]}
"""
MANIFESTS = {
    "LeaderWorkerSet": """
apiVersion: leaderworkerset.x-k8s.io/v1
metadata: {name: vllm}
spec:
  replicas: 2
  leaderWorkerTemplate:
    size: 4
    restartPolicy: RecreateGroupOnPodRestart
    leaderTemplate: POD
    workerTemplate: POD
""",
    "DisaggregatedSet": """
apiVersion: disaggregatedset.x-k8s.io/v1
metadata: {name: pd}
spec:
  slices: 2
  roles:
  - name: prefill
    spec: {replicas: 1, leaderWorkerTemplate: {size: 4, workerTemplate: POD}}
  - name: decode
    spec: {replicas: 1, leaderWorkerTemplate: {size: 2, workerTemplate: {spec: {containers: [{name: c}]}}}}
""",
    "DisaggregatedSet of v1alpha1": """
apiVersion: disaggregatedset.x-k8s.io/v1alpha1
metadata: {name: pd}
spec:
  roles:
  - {name: prefill, replicas: 2, leaderWorkerTemplate: {size: 4, workerTemplate: POD}}
""",
    "StormService": """
apiVersion: orchestration.aibrix.ai/v1alpha1
metadata: {name: vllm-pd}
spec:
  replicas: 2
  stateful: true
  template:
    spec:
      roles:
      - {name: prefill, replicas: 1, podGroupSize: 2, template: POD}
      - {name: decode, replicas: 2, template: POD}
""",
    "DynamoGraphDeployment": """
apiVersion: nvidia.com/v1beta1
metadata: {name: graph, annotations: {nvidia.com/enable-grove: "false"}}
spec:
  components:
  - {name: Frontend, type: frontend, podTemplate: {spec: {containers: [{name: main, image: x}]}}}
  - {name: decode, type: decode, replicas: 2, multinode: {nodeCount: 4}, podTemplate: POD}
""",
    "DynamoGraphDeployment of v1alpha1": """
apiVersion: nvidia.com/v1alpha1
metadata: {name: graph}
spec:
  services:
    Frontend: {componentType: frontend, extraPodSpec: {mainContainer: {image: x}}}
    decode: {replicas: 2, multinode: {nodeCount: 4}, extraPodMetadata: METADATA, extraPodSpec: SPEC}
""",
    "RayCluster": """
apiVersion: ray.io/v1
metadata: {name: tpu}
spec:
  headGroupSpec: {template: {spec: {containers: [{name: ray-head, image: x}]}}}
  workerGroupSpecs:
  - {groupName: slices, replicas: 2, minReplicas: 2, maxReplicas: 2, numOfHosts: 4, template: POD}
""",
    "JobSet": """
apiVersion: jobset.x-k8s.io/v1alpha2
metadata: {name: train}
spec:
  replicatedJobs:
  - name: ranks
    replicas: 2
    template: {spec: {completionMode: Indexed, completions: 4, parallelism: 4, template: POD}}
""",
}
LABELS = {
    "LeaderWorkerSet": LWS_KEY,
    "DisaggregatedSet": LWS_KEY,
    "DisaggregatedSet of v1alpha1": LWS_KEY,
    "StormService": "roleset-name",
    "DynamoGraphDeployment": LWS_KEY,
    "DynamoGraphDeployment of v1alpha1": LWS_KEY,
    "RayCluster": "ray.io/worker-group-replica-name",
    "JobSet": JOB_KEY,
}


def manifest(kind: str, **group: Any) -> dict[str, Any]:
    """Return an object of two replicas of four pods that all have this annotation; none if it is empty."""
    pod = yaml.safe_load(POD)
    if group:
        pod["metadata"]["annotations"]["mooring.dev/group"] = json.dumps(group)
    else:
        del pod["metadata"]["annotations"]["mooring.dev/group"]
    text = MANIFESTS[kind]
    for name, value in (("POD", pod), ("METADATA", pod["metadata"]), ("SPEC", pod["spec"])):
        text = text.replace(name, json.dumps(value))
    return {"kind": kind.partition(" ")[0], **yaml.safe_load(text)}


def said(*objects: dict[str, Any]) -> tuple[list[tuple[str, str]], list[str]]:
    """Return the findings, as field and rule, and the notes."""
    files = [(f"{number}.yaml", json.dumps(one)) for number, one in enumerate(objects)]
    document = json.loads(json.dumps(report(files, ("mooring",)).document))
    return [(one["field"], one["rule"]) for one in document["findings"]], document["notes"]


@pytest.mark.parametrize("kind", MANIFESTS)
def test_a_group_named_by_the_replicas_own_label_starts(kind: str) -> None:
    """Nothing is said if `min` is the number of pods of one replica."""
    assert said(manifest(kind, name_from=LABELS[kind], min=4)) == ([], [])


@pytest.mark.parametrize("kind", MANIFESTS)
def test_a_min_that_does_not_fit_one_replica_is_named_with_the_number_that_fits(kind: str) -> None:
    """More than are made never start, and fewer start without the others."""
    ((field, rule),), _ = said(manifest(kind, name_from=LABELS[kind], min=5))
    assert field.lower().endswith("metadata.annotations.mooring.dev/group")
    assert rule == f"min: 5 exceeds 4, the number of pods with one value of label {LABELS[kind]!r}: it never starts"
    found, (note,) = said(manifest(kind, name_from=LABELS[kind], min=3))
    assert found == []
    rule = f"min: 3 is less than 4, the number of pods with one value of label {LABELS[kind]!r}"
    assert note.endswith(f": {rule}: the others start one by one")


@pytest.mark.parametrize("kind", MANIFESTS)
def test_one_name_for_several_replicas_mixes_their_pods(kind: str) -> None:
    """With `min` for one replica any pods of any replicas start: the label that tells them apart is proposed."""
    ((_, rule),), notes = said(manifest(kind, name="g", min=4))
    assert rule == (
        "group 'g' has the pods of 2 replicas, and any 4 of them start together: name_from "
        f"{LABELS[kind]!r} in the place of name makes a group of the 4 pods of each"
    )
    assert notes == []


@pytest.mark.parametrize("kind", [kind for kind in MANIFESTS if kind != "JobSet"])
def test_one_name_and_a_min_for_all_replicas_is_only_noted(kind: str) -> None:
    """It starts, once all fit. The Jobs of a JobSet are often the ranks of one job."""
    found, (note,) = said(manifest(kind, name="g", min=8))
    assert found == []
    assert f"group 'g' has the pods of 2 replicas, and none starts before 8 fit: name_from {LABELS[kind]!r}" in note
    assert said(manifest("JobSet", name="g", min=8)) == ([], [])


@pytest.mark.parametrize("kind", MANIFESTS)
def test_pods_with_interfaces_and_no_group_are_noted(kind: str) -> None:
    """They start one by one, which may be meant."""
    found, notes = said(manifest(kind))
    assert found == []
    (note,) = notes
    assert note.endswith(f"name_from {LABELS[kind]!r} makes a group of the 4 pods of each replica")


def test_the_label_is_proposed_where_one_controllers_pods_are_too_few() -> None:
    """A leader and its workers have different controllers."""
    found, _ = said(manifest("LeaderWorkerSet", min=4))
    assert [rule for _, rule in found] == [
        f"min: 4 exceeds {pods}, the number of pods that the controller makes at one time: it never starts; name_from "
        f"{LWS_KEY!r} makes a group of the 4 pods of each replica"
        for pods in (2, 3)
    ]


def test_a_label_that_is_not_of_one_group_only_is_named() -> None:
    """Group 0 of each LeaderWorkerSet of a namespace would have one name. Labels of others are not known."""
    key = "leaderworkerset.sigs.k8s.io/group-index"
    found, _ = said(manifest("LeaderWorkerSet", name_from=key, min=4))
    assert {rule for _, rule in found} == {
        f"name_from: label {key!r} does not tell the groups of a LeaderWorkerSet apart: use {LWS_KEY!r}"
    }
    assert said(manifest("LeaderWorkerSet", name_from="example.com/team", min=4)) == ([], [])


def test_a_label_of_the_template_names_a_group_as_a_text_does() -> None:
    """Its members are those of all files."""
    one = {"replicas": 2, "template": yaml.safe_load(POD)}
    metadata = one["template"]["metadata"]
    metadata["labels"] = {"app": "g"}
    metadata["annotations"]["mooring.dev/group"] = '{"name_from": "app", "min": 4}'
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"}, "spec": one}
    other = {**deployment, "metadata": {"name": "b"}}
    assert said(deployment, other) == ([], [])
    ((_, rule),), _ = said(deployment)
    assert rule.startswith("min: 4 exceeds 2, the number of pods of group 'g' that these files make")


def held(found: list[tuple[str, str]]) -> list[tuple[str, str]]:
    return [(field, rule.partition(", and the group")[0]) for field, rule in found]


def test_workers_that_come_after_their_leader_never_start_with_it() -> None:
    """When it is ready, or with an exclusive topology when it has a node."""
    one = manifest("LeaderWorkerSet", name_from=LWS_KEY, min=4)
    one["spec"]["startupPolicy"] = "LeaderReady"
    assert [field for field, _ in said(one)[0]] == ["spec.startupPolicy"]
    one["spec"]["startupPolicy"] = "LeaderCreated"
    key = "leaderworkerset.sigs.k8s.io/exclusive-topology"
    one["metadata"]["annotations"] = {key: RACK}
    assert held(said(one)[0]) == [
        (
            f"metadata.annotations.{key}",
            f"{RACK!r} holds pods back until their leader has a node: of 4 that must start together 1 are made",
        )
    ]
    role = manifest("DisaggregatedSet", name_from=LWS_KEY, min=4)
    role["spec"]["roles"][0]["metadata"] = {"annotations": {key: RACK}}
    assert [field for field, _ in said(role)[0]] == [f"spec.roles[0].metadata.annotations.{key}"]


@pytest.mark.parametrize(("group", "made"), [({"name": "g", "min": 8}, 2), ({"name_from": JOB_KEY, "min": 4}, 1)])
def test_the_followers_of_an_exclusive_job_never_start_with_their_leader(group: dict[str, Any], made: int) -> None:
    """They are made when the leader of their Job has a node; the strategy with node selectors makes all at once."""
    key = "alpha.jobset.sigs.k8s.io/exclusive-topology"
    one = manifest("JobSet", **group)
    one["metadata"]["annotations"] = {key: RACK}
    start = f"of {group['min']} that must start together {made} are made"
    assert held(said(one)[0]) == [
        (f"metadata.annotations.{key}", f"{RACK!r} holds pods back until the first of their Job has a node: {start}")
    ]
    one["metadata"]["annotations"]["alpha.jobset.sigs.k8s.io/node-selector"] = "true"
    assert said(one) == ([], [])
    job = manifest("JobSet", **group)
    job["spec"]["replicatedJobs"][0]["template"]["metadata"] = {"annotations": {key: RACK}}
    assert [field for field, _ in said(job)[0]] == [f"spec.replicatedJobs[0].template.metadata.annotations.{key}"]


def test_a_submitter_that_waits_for_its_cluster_cannot_count() -> None:
    """A RayJob's submitter is made when head and workers are ready."""
    cluster = manifest("RayCluster", name="g", min=9)["spec"]
    pod = cluster["workerGroupSpecs"][0]["template"]
    cluster["workerGroupSpecs"][0] |= {"numOfHosts": 1, "replicas": 8, "maxReplicas": 8}
    job = {"apiVersion": "ray.io/v1", "kind": "RayJob", "metadata": {"name": "j"}}
    job["spec"] = {"rayClusterSpec": cluster, "submitterPodTemplate": pod}
    ((field, rule),) = held(said(job)[0])
    assert field == "spec.submissionMode"
    assert rule.endswith("until others of their group are ready: of 9 that must start together 8 are made")
    cluster["headGroupSpec"]["template"] = pod
    assert said(job)[0] == []


def test_workers_whose_number_an_autoscaler_changes_are_not_counted() -> None:
    """Those of one replica of several hosts are."""
    one = manifest("RayCluster", name="g", min=99)
    one["spec"]["enableInTreeAutoscaling"] = True
    assert said(one) == ([], [])
    key = LABELS["RayCluster"]
    one = manifest("RayCluster", name_from=key, min=5)
    one["spec"]["enableInTreeAutoscaling"] = True
    assert len(said(one)[0]) == 1


def test_pods_that_come_when_others_have_ended_are_noted() -> None:
    """They join one by one a group that has started."""
    template = yaml.safe_load(POD)
    template["metadata"]["annotations"]["mooring.dev/group"] = '{"name": "five", "min": 4}'
    spec = {"completions": 5, "parallelism": 4, "template": template}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "five"}, "spec": spec}
    found, (note,) = said(job)
    assert found == []
    assert (
        "spec.completions: 5 exceeds parallelism 4: the pods after the first 4 are made when others have ended" in note
    )
    spec["completions"] = 4
    assert said(job) == ([], [])


@pytest.mark.parametrize(("pools", "by_selector", "finds"), [(64, False, False), (70, False, True), (70, True, False)])
def test_more_different_requests_than_a_group_may_have_are_found(pools: int, by_selector: bool, finds: bool) -> None:
    """Here by runtime classes, for which the scheduler refuses the whole group; node selectors do not count."""
    one = manifest("JobSet", name="g", min=pools)
    jobs = one["spec"]["replicatedJobs"]
    text = json.dumps(jobs.pop())
    for number in range(pools):
        job = json.loads(text)
        job |= {"name": f"r{number}", "replicas": 1}
        job["template"]["spec"] |= {"completions": 1, "parallelism": 1}
        differences = {"nodeSelector": {"pool": f"p{number}"}} if by_selector else {"runtimeClassName": f"p{number}"}
        job["template"]["spec"]["template"]["spec"] |= differences
        jobs.append(job)
    found, _ = said(one)
    expected = f"the members of group 'g' request {pools} different things, the most is 64: it never starts"
    assert [rule for _, rule in found] == ([expected] if finds else [])
