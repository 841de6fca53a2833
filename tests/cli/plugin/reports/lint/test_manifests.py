"""Which kinds of objects `kubectl mooring lint` finds pod templates in, and what it says of those that have none."""

import json
from pathlib import Path
from typing import Any

import pytest

from cli.__main__ import main
from cli.plugin.reports.lint.report import report

# Each has a field that the request does not know.
TEMPLATE = (
    '{"metadata": {"annotations": {"mooring.dev/interfaces": "[{\\"x\\": 1}]"}},'
    ' "spec": {"schedulerName": "mooring", "containers": [{"name": "c"}]}}'
)
JOB = f'{{"spec": {{"template": {TEMPLATE}}}}}'
RAY = f'{{"headGroupSpec": {{"template": {TEMPLATE}}}, "workerGroupSpecs": [{{"template": {TEMPLATE}}}]}}'
REPLICAS = f'{{"Master": {{"template": {TEMPLATE}}}, "Worker": {{"template": {TEMPLATE}}}}}'
JOBSET = f'{{"replicatedJobs": [{{"template": {JOB}}}, {{"template": {JOB}}}]}}'
ANNOTATION = ".metadata.annotations.mooring.dev/interfaces"
JOBSET_YAML = """\
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata:
  name: train
  annotations:
    mooring.dev/group: '{"name": "train", "min": 2}'
spec:
  replicatedJobs:
    - name: ranks
      template:
        metadata:
          annotations:
            mooring.dev/interfaces: '[{}]'
        spec:
          template:
            metadata:
              annotations:
                mooring.dev/interfaces: '[{"min_tx_rat": 1}]'
            spec:
              containers: [{name: c}]
    - name: driver
      template:
        spec:
          template:
            spec:
              containers: [{name: c}]
"""


def document(text: str) -> Any:
    """Return what is reported of a file, as programs read it."""
    return json.loads(json.dumps(report([("f.yaml", text)], ("mooring",)).document))


@pytest.mark.parametrize(
    ("kind", "spec", "templates"),
    [
        ("Deployment", f'{{"template": {TEMPLATE}}}', ["template"]),
        ("CronJob", f'{{"jobTemplate": {JOB}}}', ["jobTemplate.spec.template"]),
        (
            "JobSet",
            JOBSET,
            ["replicatedJobs[0].template.spec.template", "replicatedJobs[1].template.spec.template"],
        ),
        (
            "ClusterTrainingRuntime",
            f'{{"template": {{"spec": {JOBSET}}}}}',
            [f"template.spec.replicatedJobs[{index}].template.spec.template" for index in (0, 1)],
        ),
        *(
            (kind, f'{{"{field}": {REPLICAS}}}', [f"{field}.Master.template", f"{field}.Worker.template"])
            for kind, field in (
                ("MPIJob", "mpiReplicaSpecs"),
                ("PyTorchJob", "pytorchReplicaSpecs"),
                ("TFJob", "tfReplicaSpecs"),
                ("XGBoostJob", "xgbReplicaSpecs"),
                ("PaddleJob", "paddleReplicaSpecs"),
                ("JAXJob", "jaxReplicaSpecs"),
            )
        ),
        (
            "LeaderWorkerSet",
            f'{{"leaderWorkerTemplate": {{"leaderTemplate": {TEMPLATE}, "workerTemplate": {TEMPLATE}}}}}',
            ["leaderWorkerTemplate.leaderTemplate", "leaderWorkerTemplate.workerTemplate"],
        ),
        (
            "LeaderWorkerSet",
            f'{{"leaderWorkerTemplate": {{"workerTemplate": {TEMPLATE}}}}}',
            ["leaderWorkerTemplate.workerTemplate"],
        ),
        ("RayCluster", RAY, ["headGroupSpec.template", "workerGroupSpecs[0].template"]),
        (
            "RayJob",
            f'{{"rayClusterSpec": {RAY}, "submitterPodTemplate": {TEMPLATE}}}',
            [
                "rayClusterSpec.headGroupSpec.template",
                "rayClusterSpec.workerGroupSpecs[0].template",
                "submitterPodTemplate",
            ],
        ),
        (
            "RayCronJob",
            f'{{"jobTemplate": {{"rayClusterSpec": {RAY}}}}}',
            [
                "jobTemplate.rayClusterSpec.headGroupSpec.template",
                "jobTemplate.rayClusterSpec.workerGroupSpecs[0].template",
            ],
        ),
        (
            "RayService",
            f'{{"rayClusterConfig": {RAY}}}',
            ["rayClusterConfig.headGroupSpec.template", "rayClusterConfig.workerGroupSpecs[0].template"],
        ),
        ("CloneSet", f'{{"template": {TEMPLATE}}}', ["template"]),
    ],
)
def test_every_pod_template_of_a_kind_is_judged_and_named_by_its_path(
    kind: str, spec: str, templates: list[str]
) -> None:
    """A finding names kind, name and the field's path from the object on."""
    read = document(
        f'{{"apiVersion": "example.com/v1", "kind": "{kind}", "metadata": {{"name": "a"}}, "spec": {spec}}}'
    )
    assert [one["field"] for one in read["findings"]] == [f"spec.{template}{ANNOTATION}" for template in templates]
    assert {one["subject"] for one in read["findings"]} == {f"{kind}/a"}
    assert read["pods"] == len(templates)
    assert read["notes"] == []


def test_a_misspelt_key_on_the_object_is_named_too() -> None:
    """On whatever level above the pods it stands."""
    text = JOBSET_YAML.replace("mooring.dev/group", "mooring.dev/gruop").replace(
        "mooring.dev/interfaces", "mooring.dev/interface"
    )
    fields = {
        one["field"].rpartition("/")[2]
        for one in document(text)["findings"]
        if one["rule"].startswith("unknown annotation")
    }
    assert fields == {"gruop", "interface"}


def test_each_line_is_that_of_the_template_it_is_about() -> None:
    """A template without a request needs no scheduler; annotations of what contains one reach no pod."""
    found = [(one["line"], one["field"], one["rule"].partition(":")) for one in document(JOBSET_YAML)["findings"]]
    template = "spec.replicatedJobs[0].template.spec.template"
    assert [(line, field) for line, field, _ in found] == [
        (6, "metadata.annotations.mooring.dev/group"),
        (13, "spec.replicatedJobs[0].template.metadata.annotations.mooring.dev/interfaces"),
        (18, f"{template}.metadata.annotations.mooring.dev/interfaces"),
        (19, f"{template}.spec.schedulerName"),
    ]
    on_the_set, on_the_job = found[0][2], found[1][2]
    assert on_the_set == (
        "is on the object, not on its pods",
        ":",
        " move it to spec.replicatedJobs[*].template.spec.template.metadata.annotations",
    )
    assert on_the_job[2] == f" move it to {template}.metadata.annotations"


@pytest.mark.parametrize(
    "text",
    [
        "apiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainJob\nmetadata: {name: a}\nspec: {trainer: {}}",
        "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata: {name: a}\nspec: {replicaSpecs: {}}",
        "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata: {name: a}\nspec: {pytorchReplicaSpecs: 3}",
        "apiVersion: batch.volcano.sh/v1alpha1\nkind: Job\nmetadata: {name: a}\nspec: {tasks: []}",
    ],
)
def test_an_object_in_which_no_template_was_found_is_named_and_is_no_fault(text: str) -> None:
    """Its pods were not judged; the exit status is that of the others."""
    answer = report([("f.yaml", text)], ("mooring",))
    kind = text.splitlines()[1].removeprefix("kind: ")
    assert answer.notes == (f"f.yaml:1: {kind}/a: no pod template was found in it",)
    assert (answer.status, answer.document["pods"]) == (0, 0)


def test_one_line_says_it_of_all_objects_of_a_kind(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is on stderr, so that the findings stay as editors read them."""
    text = "---\n".join(
        f"apiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainJob\nmetadata: {{name: f{one}}}\n" for one in range(3)
    )
    file = tmp_path / "f.yaml"
    file.write_text(text)
    assert main(["lint", str(file)]) == 0
    shown = capsys.readouterr()
    assert shown.out == "no problems found (pods and templates checked: 0)\n"
    said = f"Warning: {file}:1: TrainJob/f0: no pod template was found in it (2 more of its kind)\n"
    assert shown.err == said


def test_templates_of_unknown_kinds_are_found_at_any_depth() -> None:
    """An operator that nobody has heard of, and a kind that shares its name with one of Kubernetes."""
    pod = {
        "metadata": {"annotations": {"mooring.dev/interfaces": '[{"x": 1}]'}},
        "spec": {"containers": [{"name": "c"}]},
    }
    fleet = {"kind": "Fleet", "metadata": {"name": "a"}, "spec": {"pools": [{"roles": {"worker": {"pod": pod}}}]}}
    volcano = {"kind": "Job", "metadata": {"name": "b"}, "spec": {"tasks": [{"name": "t", "template": pod}]}}
    read = document(json.dumps(fleet) + "\n---\n" + json.dumps(volcano))
    assert [
        (one["subject"], one["field"].removesuffix(ANNOTATION)) for one in read["findings"] if "[0].x" in one["rule"]
    ] == [
        ("Fleet/a", "spec.pools[0].roles.worker.pod"),
        ("Job/b", "spec.tasks[0].template"),
    ]


@pytest.mark.parametrize("api_version", ["v1", "karpenter.sh/v1", "sriovnetwork.openshift.io/v1", "''"])
def test_kinds_without_pods_are_passed_over(api_version: str) -> None:
    """A manifest is full of Services, ConfigMaps and objects of operators."""
    assert document(f"apiVersion: {api_version}\nkind: Role\nmetadata: {{name: a}}\n")["notes"] == []


def test_a_dynamo_graph_of_the_older_version_has_a_pods_parts_beside_each_other() -> None:
    """Metadata and specification of a service's pods have names of their own there."""
    annotations = {"mooring.dev/interfaces": '[{"x": 1}]', "mooring.dev/groups": "{}"}
    services = {
        "Frontend": {"extraPodSpec": {"mainContainer": {"image": "x"}}},
        "decode": {
            "replicas": 2,
            "multinode": {"nodeCount": 4},
            "extraPodMetadata": {"annotations": annotations},
            "extraPodSpec": {"mainContainer": {"image": "x"}},
        },
    }
    graph = {"apiVersion": "nvidia.com/v1alpha1", "kind": "DynamoGraphDeployment", "metadata": {"name": "g"}}
    document = report([("g.yaml", json.dumps(graph | {"spec": {"services": services}}))], ("mooring",)).document
    fields = {one["field"]: one["rule"] for one in json.loads(json.dumps(document))["findings"]}
    start = "spec.services.decode"
    assert set(fields) == {
        f"{start}.extraPodMetadata.annotations.mooring.dev/interfaces",
        f"{start}.extraPodMetadata.annotations.mooring.dev/groups",
        f"{start}.extraPodSpec.schedulerName",
    }
    assert "is missing" in fields[f"{start}.extraPodSpec.schedulerName"]


def test_the_main_container_of_a_dynamo_service_is_one_of_the_pods() -> None:
    """It has no name there, and is `main`."""
    annotations = {"mooring.dev/interfaces": '[{"containers": ["main"]}, {"containers": ["other"]}]'}
    spec = {"schedulerName": "mooring", "mainContainer": {"image": "x"}}
    services = {"decode": {"extraPodMetadata": {"annotations": annotations}, "extraPodSpec": spec}}
    graph = {"apiVersion": "nvidia.com/v1alpha1", "kind": "DynamoGraphDeployment", "spec": {"services": services}}
    findings = json.loads(json.dumps(report([("g.yaml", json.dumps(graph))], ("mooring",)).document))["findings"]
    assert [one["rule"] for one in findings] == ["[1].containers: 'other' is not a container of this pod"]


@pytest.mark.parametrize("containers", [5, [{"name": []}]])
def test_containers_of_a_wrong_shape_raise_nothing(containers: object) -> None:
    """The pod cannot be read, and that is said."""
    metadata = {"name": "a", "annotations": {"mooring.dev/interfaces": '[{"containers": ["c"]}]'}}
    spec = {"schedulerName": "mooring", "containers": containers}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    document = report([("p.yaml", json.dumps(pod))], ("mooring",)).document
    assert json.loads(json.dumps(document))["findings"]
