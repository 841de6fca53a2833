"""One fault of each kind, planted in a cluster without Mooring: each is found, and nothing else."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from advertiser.formats.use_record import PodDevices
from cli.plugin.assess import gpu_findings
from cli.plugin.assess.collect import WORKLOADS
from cli.plugin.assess.holders import Holding, holdings
from cli.plugin.assess.report import as_document, assess, report
from cli.plugin.assess.snapshot import ATTACHMENTS, CLAIMS, NODES, PODS, SLICES, Snapshot
from cli.plugin.reports.tables import draw
from devcluster.demo.plugin_cluster import PLANTED
from mooring.parsing import dump


def test_each_planted_fault_is_found_and_nothing_else(broken: Snapshot) -> None:
    assert broken.failed == {}
    found = assess(broken, WORKLOADS).findings
    assert [(one.kind, one.subject) for one in found] == list(PLANTED.items())
    assert all(one.evidence and all(each.path and each.value for each in one.evidence) for one in found)


def test_a_healthy_cluster_has_no_finding(sound: Snapshot) -> None:
    assert assess(sound, WORKLOADS).findings == ()


def kinds_of(snapshot: Snapshot) -> set[str]:
    return {one.kind for one in assess(snapshot, WORKLOADS).findings}


def with_use(snapshot: Snapshot, node: str, **fields: Any) -> Snapshot:
    """Return a snapshot in which the record of a node's use has other fields."""
    capture = snapshot.captures[node]
    assert capture.use is not None
    changed = replace(capture, use=replace(capture.use, **fields))
    return replace(snapshot, captures={**snapshot.captures, node: changed})


def test_a_vf_that_a_pod_has_is_not_used_by_the_host(broken: Snapshot) -> None:
    """The host's name for it may be older than the pod."""
    use = broken.captures["n2"].use
    assert use is not None
    (pci,) = use.host
    held = PodDevices("uid-other", "openshift.io/rail1", (pci,), 1)
    assert "vf-used-by-host" not in kinds_of(with_use(broken, "n2", devices=(*(use.devices or ()), held)))


@pytest.mark.parametrize(
    "lists",
    [
        {CLAIMS[0]: None},
        {SLICES[0]: None},
        {ATTACHMENTS: None},
        {
            ATTACHMENTS: [
                {"metadata": {"name": "nic"}, "spec": {"config": '{"plugins": [{"type": "host-device"}]}'}},
            ]
        },
    ],
    ids=["claims unknown", "slices unknown", "networks unknown", "host-device"],
)
def test_a_vf_is_an_orphan_only_if_every_pod_that_could_have_it_is_known(
    lists: dict[str, Any], broken: Snapshot
) -> None:
    """A claim or a network of host-device moves a VF that neither the kubelet nor Multus names."""
    assert "vf-orphaned" not in kinds_of(replace(broken, lists={**broken.lists, **lists}))


def test_settings_are_left_only_where_the_pods_devices_are_known(broken: Snapshot) -> None:
    assert "settings-left" not in kinds_of(with_use(broken, "n2", devices=None))


def test_a_vf_is_lost_only_by_a_capture_whose_time_is_known(broken: Snapshot) -> None:
    """Without the record of use, the pod may be younger than the capture."""
    captures = {name: replace(capture, use=None) for name, capture in broken.captures.items()}
    assert "vf-lost" not in kinds_of(replace(broken, captures=captures))


def test_a_far_vf_beside_a_near_one_is_right(broken: Snapshot) -> None:
    """A pod with one GPU may have a VF for its traffic and another one for storage."""
    held = {node: list(several) for node, several in holdings(broken).items()}
    far = next(one for one in held["n2"] if one.pod == "default/far")
    assert [one.subject for one in gpu_findings.find(broken, held)] == ["pod/default/far"]
    held["n2"].append(Holding(far.pod, far.uid, "0000:04:00.3", "checkpoint"))
    assert list(gpu_findings.find(broken, held)) == []


def owned(pod: Any, kind: str, *, indexed: bool = False) -> Any:
    """Return a pod of the job as one that only its owner names."""
    index = {"batch.kubernetes.io/job-completion-index": "0"} if indexed else {}
    owner = {"kind": kind, "name": "train", "controller": True}
    metadata = pod["metadata"]
    annotations = {**metadata["annotations"], **index}
    return {**pod, "metadata": {**metadata, "labels": {}, "annotations": annotations, "ownerReferences": [owner]}}


@pytest.mark.parametrize(
    ("change", "is_found"),
    [
        (lambda pod: {**pod, "metadata": {**pod["metadata"], "labels": {"ray.io/cluster": "train"}}}, False),
        (lambda pod: owned(pod, "RayCluster"), False),
        (lambda pod: owned(pod, "Job"), False),
        (lambda pod: owned(pod, "Job", indexed=True), True),
        (lambda pod: owned(pod, "PyTorchJob"), True),
    ],
    ids=["label of Ray", "RayCluster", "Job", "indexed Job", "PyTorchJob"],
)
def test_only_pods_that_wait_for_each_other_are_a_half_started_job(
    change: Callable[[Any], Any], is_found: bool, broken: Snapshot
) -> None:
    """Ray adds workers as it gets them, and the pods of a Job without indexes do not know each other."""
    pods = [change(pod) if "train" in pod["metadata"]["name"] else pod for pod in broken.all(PODS)]
    assert ("job-half-started" in kinds_of(replace(broken, lists={**broken.lists, PODS: pods}))) is is_found


def test_the_scheduler_decides_about_the_same_pods(broken: Snapshot) -> None:
    """The job of four starts as a whole within one rack, and the pod with a GPU has the VF near it."""
    document: dict[str, Any] = as_document(assess(broken, WORKLOADS))
    (job,) = document["jobs"]
    assert job == {
        "job": "default/train",
        "pods": 4,
        "bound": 2,
        "racks": 2,
        "with_mooring": {"decided": 4, "bound": 4, "racks": 1},
    }
    decided = {one["pod"]: one for one in document["decisions"]["pods"]}
    assert document["decisions"]["waiting"] == 0
    # By the request it is a VF of the far network, and a GPU near that is free.
    assert decided["default/far"]["vfs"][0].startswith("0000:84:")
    assert decided["default/far"]["gpus"] == ("0000:90:00.0",)


def test_objects_with_odd_fields_are_left_alone(broken: Snapshot) -> None:
    """A node whose status is a list, and a pod with a request and without a spec: the others are decided about."""
    request = {"mooring.dev/interfaces": "[{}]"}
    odd = {"metadata": {"name": "odd", "namespace": "default", "uid": "uid-odd", "annotations": request}}
    strange = {"metadata": {"name": "strange", "uid": "uid-strange"}, "status": [1]}
    lists = {**broken.lists, NODES: [*broken.all(NODES), strange], PODS: [*broken.all(PODS), odd]}
    found: Any = as_document(assess(replace(broken, lists=lists), WORKLOADS))
    decided = {one["pod"]: one for one in found["decisions"]["pods"]}
    assert decided["default/far"]["node"]


def test_the_report_is_the_same_in_every_form(broken: Snapshot) -> None:
    """The text names each finding, and JSON can be written."""
    answer = report(assess(broken, WORKLOADS))
    text = draw(answer.tables, coloured=False)
    assert all(one["text"] in text for one in answer.document["findings"])  # type: ignore[attr-defined]
    assert text.endswith("the number of VFs, their bandwidth and the number of GPUs stay what they are")
    dump(dict(answer.document))


INDEX = "batch.kubernetes.io/job-completion-index"


def of_job(pod: Any, labels: dict[str, str], kind: str) -> dict[str, Any]:
    owner = {"kind": kind, "name": "work", "uid": "uid-work", "controller": True}
    return {**pod, "metadata": {**pod["metadata"], "labels": labels, "ownerReferences": [owner]}}


@pytest.mark.parametrize(
    ("labels", "kind", "placed"),
    [({"ray.io/cluster": "work"}, "RayCluster", 3), ({}, "Job", 3), ({INDEX: "0"}, "Job", 0), ({}, "PyTorchJob", 0)],
    ids=["Ray", "Job without indexes", "indexed Job", "PyTorchJob"],
)
def test_only_pods_that_need_each_other_are_decided_as_a_group(
    labels: dict[str, str], kind: str, placed: int, broken: Snapshot
) -> None:
    """One of four pods fits nowhere: the others wait for it only in a job that needs all of them."""
    pods = [one for one in broken.all(PODS) if not one["metadata"]["name"].startswith("train-")]
    workers = [of_job(one, labels, kind) for one in broken.all(PODS) if one not in pods]
    large = {"name": "main", "resources": {"limits": {"openshift.io/rail0": "99"}}}
    workers[0] = {**workers[0], "spec": {**workers[0]["spec"], "containers": [large]}}
    lists = {**broken.lists, PODS: [*pods, *workers]}
    decisions: Any = as_document(assess(replace(broken, lists=lists), WORKLOADS))["decisions"]
    found = [one for one in decisions["pods"] if one["pod"].startswith("default/train-")]
    assert (len(found), sum(bool(one["node"]) for one in found)) == (4, placed)


def test_a_gpu_that_could_not_be_offered_has_the_reason(broken: Snapshot) -> None:
    """An older capture does not say; the text has the reasons, too."""
    pci = "0000:10:00.0"
    answer = report(assess(with_use(broken, "n1", gpus_out={pci: "bound to vfio-pci"}), WORKLOADS))
    nodes: Any = answer.document["nodes"]
    assert nodes[0]["gpus"] == [{"pci": pci, "why": "bound to vfio-pci"}, {"pci": "0000:90:00.0", "why": ""}]
    assert f"n1 {pci} no bound to vfio-pci" in " ".join(draw(answer.tables, coloured=False).split())
    nodes = as_document(assess(with_use(broken, "n1", gpus_out=None), WORKLOADS))["nodes"]
    assert [one["why"] for one in nodes[0]["gpus"]] == [None, None]


def test_the_text_has_every_decision(broken: Snapshot) -> None:
    waiting = [one for one in broken.all(PODS) if one["metadata"]["name"] == "train-3"]
    large = {"name": "main", "resources": {"limits": {"openshift.io/rail0": "99"}}}
    many = [
        {**one, "metadata": {**one["metadata"], "name": f"large-{at}", "uid": f"large-{at}", "labels": {}}}
        | {"spec": {**one["spec"], "containers": [large]}}
        for one in waiting
        for at in range(40)
    ]
    lists = {**broken.lists, PODS: [*broken.all(PODS), *many]}
    text = draw(report(assess(replace(broken, lists=lists), WORKLOADS)).tables, coloured=False)
    assert all(f"default/large-{at} would wait: " in text for at in range(40))
