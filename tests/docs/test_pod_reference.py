"""The pod reference has every field of a request and no other, and its examples are requests."""

import re
from collections.abc import Iterator
from typing import Any, get_args

import msgspec
import pytest
import yaml

from docs.hooks.texts import ROOT
from mooring import names
from mooring.annotations import group, request
from mooring.nic import settings
from scheduler.kube.group import GroupMembership
from scheduler.kube.objects import Pod
from scheduler.kube.pod_info import PodInfo, read_pod_info

PAGE = (ROOT / "docs/pod-reference.md").read_text(encoding="utf-8")


def rows(heading: str) -> dict[str, str]:
    """Return the tables of a section: the words in code of each first cell, with the row."""
    section = PAGE.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    return {cell: line for line in section.splitlines() for cell in re.findall(r"^\| `([^`]+)` \|", line)}


def test_the_fields_are_those_of_a_request() -> None:
    """A field is documented if and only if `mooring/annotations/request.py` reads it."""
    selectors = {"network", "pf", "link", "name", "containers", "netdev"}
    assert set(rows(names.REQUEST)) == {*settings.SETTING_NAMES, *selectors}
    # The reader names all that it knows where it refuses what it does not.
    with pytest.raises(ValueError, match="unknown field") as refused:
        request.read_request({names.REQUEST: '[{"?": 1}]'})
    known = str(refused.value).rpartition("known fields are ")[2].split(", ")
    assert set(rows(names.REQUEST)) == set(known)


def test_the_limits_of_fields_are_those_of_the_code() -> None:
    """Ranges and choices are in the row of their field."""
    fields = rows(names.REQUEST)
    assert f"0 to {settings.MAX_VLAN}" in fields["vlan"]
    assert f"0 to {settings.MAX_QOS}" in fields["qos"]
    assert all(f"`{state}`" in fields["link_state"] for state in get_args(settings.LinkState))
    assert all(f"`{link}`" in fields["link"] for link in names.LINK_TYPES)
    assert f"at most {request.MOST_INTERFACES}." in PAGE


def test_the_placements_are_those_of_the_code() -> None:
    """The page has every placement of the code, and no other."""
    assert set(rows(names.PLACEMENT)) == {*get_args(request.PfSpread), *get_args(request.Near)}


def test_the_fields_of_a_group_are_those_of_the_code() -> None:
    """Names, ranges and choices."""
    fields = rows(names.GROUP)
    with pytest.raises(ValueError, match="unknown field") as refused:
        group.read_group({names.GROUP: '{"?": 1}'})
    assert set(fields) == set(str(refused.value).rpartition("known fields are ")[2].split(", "))
    assert f"1 to {group.MOST_MEMBERS}" in fields["min"]
    assert f"at most {group.MOST_LEVELS}" in fields["prefer"]
    assert all(f"`{rails}`" in fields["rails"] for rails in get_args(group.Rails))


JOBS = [
    yaml.safe_load(block)
    for block in re.findall(r"```yaml\n(.*?)```", (ROOT / "docs/jobs.md").read_text(encoding="utf-8"), re.DOTALL)
]


def _templates(job: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield for each pod of a job its controller and its template."""
    spec, name = job["spec"], job["metadata"]["name"]
    match job["kind"]:
        case "Job":
            yield from [(name, spec["template"])] * spec["parallelism"]
        case "JobSet":
            for jobs in spec["replicatedJobs"]:
                for number in range(jobs["replicas"]):
                    one = {"kind": "Job", "metadata": {"name": f"{name}-{number}"}, "spec": jobs["template"]["spec"]}
                    yield from _templates(one)
        case "LeaderWorkerSet":
            group = spec["leaderWorkerTemplate"]
            template = group["workerTemplate"]
            # As the webhook labels leaders, and the controller their workers. Source: lws, pkg/webhooks/pod_webhook.go,
            # Default, and pkg/controllers/pod_controller.go, constructWorkerStatefulSetApplyConfiguration.
            labels = {"leaderworkerset.sigs.k8s.io/group-key": name}
            labelled = {**template, "metadata": {**template["metadata"], "labels": labels}}
            yield from [(f"{name}-0", labelled)] * group["size"]
        case "MPIJob" | "PyTorchJob":
            for role, replicas in (spec.get("mpiReplicaSpecs") or spec["pytorchReplicaSpecs"]).items():
                controller = f"{name}-launcher" if role == "Launcher" else name
                yield from [(controller, replicas["template"])] * replicas["replicas"]


@pytest.mark.parametrize("kind", ["Job", "JobSet", "MPIJob", "PyTorchJob", "LeaderWorkerSet"])
def test_the_manifests_of_jobs_are_groups(kind: str) -> None:
    """The scheduler reads all ranks of a job as one group of as many as it needs; a launcher is none of them."""
    (job,) = [one for one in JOBS if one["kind"] == kind]
    found: list[GroupMembership | None] = []
    for number, (controller, template) in enumerate(_templates(job)):
        owner = {"kind": kind, "name": controller, "uid": controller, "controller": True}
        metadata = {"name": f"p{number}", "namespace": "default", "uid": str(number), "ownerReferences": [owner]}
        pod = msgspec.convert({"metadata": template.get("metadata", {}) | metadata, "spec": template["spec"]}, Pod)
        pod_info = read_pod_info(pod)
        assert isinstance(pod_info, PodInfo), pod_info
        assert pod_info.membership is None or (pod.spec.scheduler_name == "mooring" and pod_info.interfaces)
        found.append(pod_info.membership)
    assert found.count(None) == (1 if kind == "MPIJob" else 0)
    (membership,) = {one._replace(owner="") for one in found if one is not None}
    assert membership.title == job["metadata"]["name"]
    assert membership.request.min == len(found) - found.count(None)


@pytest.mark.parametrize("page", ["pod-reference.md", "quick-start.md", "migration.md"])
def test_the_examples_can_be_read(page: str) -> None:
    """Each pod in a page is read by the scheduler's own reader."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    found = [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)]
    asked = [annotations for pod in found if (annotations := (pod.get("metadata") or {}).get("annotations"))]
    requests = [request.read_request(annotations) for annotations in asked if names.REQUEST in annotations]
    assert requests
    assert all(asks is not None and asks.interfaces for asks in requests)
