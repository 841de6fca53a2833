"""One fault of each kind, planted in a cluster without Mooring: each is found, and nothing else."""

from dataclasses import replace
from typing import Any

from cli.plugin.assess.collect import WORKLOADS
from cli.plugin.assess.report import as_document, assess, report
from cli.plugin.assess.snapshot import NODES, PODS, Snapshot
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
