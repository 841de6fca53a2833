"""Groups in the words of other schedulers, of pods that Mooring places."""

import json

import pytest

from cli.plugin.reports.lint.report import report

JOB = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"name": "train"},
    "spec": {"template": {"spec": {"schedulerName": "mooring", "containers": [{"name": "c", "image": "i"}]}}},
}
GROUP = {"mooring.dev/group": '{"min":1}'}


def said(metadata: object, **spec: object) -> list[tuple[str, str]]:
    """Return the findings for a Job whose pods have this metadata, as field and rule."""
    job = json.loads(json.dumps(JOB))
    job["spec"]["template"]["metadata"] = metadata
    job["spec"]["template"]["spec"] |= spec
    document = json.loads(json.dumps(report([("f.yaml", json.dumps(job))], ("mooring",)).document))
    return [(one["field"], one["rule"]) for one in document["findings"]]


@pytest.mark.parametrize(
    ("kind", "key", "scheduler"),
    [
        ("annotations", "scheduling.k8s.io/group-name", "Volcano"),
        ("annotations", "scheduling.volcano.sh/group-name", "Volcano"),
        ("annotations", "gang.scheduling.koordinator.sh/name", "Koordinator"),
        ("annotations", "yunikorn.apache.org/task-group-name", "YuniKorn"),
        ("labels", "pod-group.scheduling.sigs.k8s.io", "Koordinator"),
        ("labels", "pod-group.scheduling.sigs.k8s.io/name", "scheduler-plugins"),
    ],
)
def test_a_group_that_only_another_scheduler_would_know_is_a_finding(kind: str, key: str, scheduler: str) -> None:
    """Each pod would start on its own; not so where Mooring knows its group too, or the other scheduler places it."""
    rule = (
        f"names a group for {scheduler}: Mooring ignores it, and each pod would start on its own; "
        "use the annotation mooring.dev/group"
    )
    theirs = {kind: {key: "train"}}
    assert said(theirs) == [(f"spec.template.metadata.{kind}.{key}", rule)]
    assert said(theirs, schedulerName="volcano") == []
    assert said({**theirs, "annotations": theirs.get("annotations", {}) | GROUP}) == []
    assert said({**theirs, "labels": theirs.get("labels", {}) | {"scheduling.x-k8s.io/pod-group": "train"}}) == []
    assert said(theirs, schedulingGroup={"podGroupName": "train"}) == []


def test_an_annotation_that_was_written_as_a_label_is_a_finding() -> None:
    """A label asks for nothing; others' labels, and what is no map, are not spoken of."""
    rule = "is a label: Mooring reads the annotation of this name"
    field = "spec.template.metadata.labels.mooring.dev/group"
    assert said({"labels": {"mooring.dev/group": "train", "app": "train"}}) == [(field, rule)]
    assert said({"labels": {"app": "train"}}) == []
    assert said({"annotations": GROUP, "labels": {"mooring.dev/group": "train"}}) == [(field, rule)]
