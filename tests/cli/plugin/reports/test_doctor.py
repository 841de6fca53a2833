"""What `kubectl mooring doctor` finds: the guard, what it may not read, skew, disputes, misspelt annotations."""

import json
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from cli.plugin.reports import doctor, explain, found_groups
from cli.plugin.reports.checks import Patient
from cli.plugin.reports.leadership import Leadership
from cli.plugin.reports.objects import Guard, unknown_annotations
from cli.plugin.reports.tables import draw
from cli.plugin.reports.use import uses
from mooring import names
from mooring.annotations.assignment_signature import AssignmentSignature, dump_signature
from mooring.kube.guard import POLICIES
from scheduler.kube import objects
from scheduler.kube.workload_objects import CoschedulingPodGroup, PodGroup
from tests.cli.plugin.cluster import as_nodes, as_pods, bound, node, pf, pod, waiting

LEADS = [Leadership(True, "s leads: it renewed Lease 'mooring-system/mooring-scheduler' 1 s ago", "s", 1.0)]


def binding_of(policy: str, action: str) -> Guard:
    spec = {"policyName": policy, "validationActions": [action]}
    return msgspec.convert({"metadata": {"name": policy}, "spec": spec}, Guard)


def well() -> Patient:
    """Return an installation of which nothing is wrong."""
    label = {"app.kubernetes.io/name": "mooring-scheduler", "app.kubernetes.io/version": "0.2.0"}
    running = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    guard = [msgspec.convert({"metadata": {"name": name}}, Guard) for name in POLICIES]
    binding = [binding_of(name, "Deny") for name in POLICIES]
    scheduler = as_pods(pod("s", labels=label, status=running))
    nodes = uses(as_nodes(node("n1", (pf(),))), scheduler)
    return Patient(nodes, scheduler, guard, binding, LEADS, "0.2.0", server="https://h:6443")


def found_by(patient: Patient) -> dict[str, str]:
    """Return the doctor's findings by subject."""
    findings = json.loads(json.dumps(doctor.report(patient).document))["findings"]
    return {one["subject"]: f"{one['level']}: {one['found']}" for one in findings}


def test_groups_that_are_refused_or_half_placed_are_found() -> None:
    """One that has started, waits for room, is not complete yet, or may not be seen with these rights is not wrong."""

    def members(name: str, placed: int, waiting_: int, least: int, *, rails: str = "") -> list[objects.Pod]:
        made = []
        for number in range(placed + waiting_):
            group = {"name": name, "min": least} | ({"rails": rails} if rails and number else {})
            fields = {"annotations": {names.GROUP: json.dumps(group)}}
            on = {"spec": {"schedulerName": "mooring", "nodeName": "n1" if number < placed else ""}}
            made.append(msgspec.convert(pod(f"{name}-{number}", "[{}]", **fields, **on), objects.Pod))
        return made

    listed = [
        *members("runs", 2, 0, 2),
        *members("waits", 0, 2, 2),
        *members("comes", 0, 1, 2),
        *members("half", 1, 1, 2),
        *members("differs", 0, 2, 2, rails="same"),
    ]
    theirs = pod("mixed-9", "[{}]", annotations={names.GROUP: '{"name":"mixed","min":2}'})
    theirs["spec"]["schedulerName"] = "default-scheduler"
    listed += [*members("mixed", 0, 2, 2), msgspec.convert(theirs, objects.Pod)]
    named = {"spec": {"schedulerName": "mooring", "schedulingGroup": {"podGroupName": "hidden"}}}
    listed.append(msgspec.convert(pod("hidden-0", "[{}]", **named), objects.Pod))
    found = found_groups.find(found_groups.ListedObjects(listed, {PodGroup: None, CoschedulingPodGroup: None}))
    assert {one.members.title: one.state for one in found}["waits"] == "Waiting"
    assert found_by(replace(well(), groups=found)) == {
        "group/default/differs": "warning: refused: waiting members differ in annotation "
        "'mooring.dev/group'.rails: 'same', none",
        "group/default/half": "warning: 1 of at least 2 members are placed",
        "group/default/mixed": "warning: refused: waiting members that name another scheduler: 1",
    }


def test_the_doctor_finds_nothing_where_nothing_is_wrong() -> None:
    """The exit status is 0, without findings."""
    answer = doctor.report(well())
    assert found_by(well()) == {}
    assert answer.status == 0


def test_the_doctor_finds_a_guard_that_is_missing_or_only_audits() -> None:
    """Without the guard any user can write assignments: an error, so that a script sees it."""
    patient = well()
    audits = binding_of("mooring-bindings", "Audit")
    assert patient.policies is not None
    assert patient.bindings is not None
    sick = replace(patient, policies=patient.policies[1:], bindings=[*patient.bindings[2:], audits])
    found = found_by(sick)
    assert sorted(found) == ["guard/mooring-assignment", "guard/mooring-bindings"]
    assert all(one.startswith("error") for one in found.values())
    assert doctor.report(sick).status == 1


def test_a_guard_that_guards_only_in_part_is_found_and_an_operators_word_makes_it_a_warning() -> None:
    """A policy that lets pass what it cannot judge, and a binding that exempts objects."""
    patient = well()
    assert patient.policies is not None
    assert patient.bindings is not None
    lenient = {"metadata": {"name": "mooring-assignment"}, "spec": {"failurePolicy": "Ignore"}}
    spec = {
        "policyName": "mooring-bindings",
        "validationActions": ["Deny"],
        "matchResources": {"namespaceSelector": {"matchLabels": {"guarded": "yes"}}},
    }
    narrow = {"metadata": {"name": "mooring-bindings"}, "spec": spec}
    policies = [msgspec.convert(lenient, Guard), *patient.policies[1:]]
    bindings = [patient.bindings[0], msgspec.convert(narrow, Guard), *patient.bindings[2:]]
    sick = replace(patient, policies=policies, bindings=bindings)
    assert found_by(sick) == {
        "guard/mooring-assignment": "error: failurePolicy is Ignore: writes that it cannot evaluate are accepted",
        "guard/mooring-bindings": "error: matchResources of its ValidatingAdmissionPolicyBinding exempts objects",
    }
    told = replace(sick, without_guard=True)
    assert all(one.startswith("warning") for one in found_by(told).values())
    assert doctor.report(told).status == 0


def test_what_the_doctor_may_not_read_is_told_as_that() -> None:
    """A user without the right to read the guard sees neither that it is missing nor that all is well."""
    patient = well()
    assert found_by(Patient(patient.nodes, None, None, None, None, "0.2.0")) == {
        "guard": "warning: could not be listed: not checked",
        "scheduler": "warning: its Lease could not be read: leadership is unknown",
        "pods": "warning: could not be listed: pods and scheduler are not checked",
    }


def test_the_doctor_finds_skew_disputes_refused_pods_and_stale_nodes() -> None:
    """Each has its own subject, and a text that names the rule."""
    claimants = as_pods(
        bound("a", "n1", (pf(), 0, 60_000)),
        bound("b", "n1", (pf(), 0, 0), (pf(), 1, 60_000)),
        pod("c", "{", status=waiting("InvalidRequest", "unknown field")),
    )
    patient = well()
    old = {"mooring-advertiser": "0.0.9"}
    all_nodes = as_nodes(
        node("n1", (pf(),)), node("n2", (pf(),), programs=old), node("n3", (pf(),), boot="boot-0"), node("n4")
    )
    stale = [Leadership(False, "no scheduler leads: its Lease 'a/b' was last renewed 69 s ago")]
    sick = replace(patient, nodes=uses(all_nodes, claimants), pods=claimants, leaderships=stale)
    answer = doctor.report(sick)
    lines = [" ".join(line.split()) for line in draw(answer.tables[2:], coloured=False).splitlines()[2:]]
    assert lines == [
        "error node/n1 VF 0000:04:00.2 is claimed by default/a and default/b",
        "error node/n1 PF pf0 has 30000 Mb/s more reserved than it offers",
        "error node/n2 mooring-cri-shim has not started in this boot",
        "error node/n3 inventory of another boot",
        "error scheduler no scheduler leads: its Lease 'a/b' was last renewed 69 s ago",
        "warning node/n2 mooring-cni reports no version: it may not run",
        "warning nodes 1 without an inventory: n4",
        "warning pod/default/c refused: unknown field",
        "warning program/mooring-advertiser several versions are running: 0.0.9 (1), 0.2.0 (2)",
    ]
    assert answer.status == 1


def test_the_doctor_counts_the_pods_without_a_signature_once_others_have_one() -> None:
    """Where nobody signs, none is missing; `explain` names the key that is said to have signed."""
    unsigned, signed = (bound(name, "n1", (pf(), index, 0)) for index, name in enumerate("ab"))
    signed["metadata"]["annotations"][names.SIGNATURE] = dump_signature(AssignmentSignature("0" * 16, bytes(64)))
    assert "signatures" not in _found_among(unsigned) | _found_among(signed)
    found = _found_among(unsigned, signed)["signatures"]
    assert found.startswith("warning: 1 of 2 assignments have no signature: default/a")
    none = explain.DecisionReport("none", "", {})
    shown = [str(explain.report(one, none).tables[0]) for one in as_pods(unsigned, signed)]
    assert [f"key {'0' * 16}" in each for each in shown] == [False, True]
    (broken,) = as_pods(pod("c", annotations={names.SIGNATURE: "{"}))
    assert "not valid JSON" in broken.signed_by()


@pytest.mark.parametrize("key", ["mooring.dev/interface", "mooring.dev/groups", "mooring.dev/requests.gpu"])
def test_a_misspelt_annotation_of_a_pod_is_found(key: str) -> None:
    """The pod runs, without what it says: its events say nothing. `doctor` and `explain` do."""
    misspelt = pod("a", annotations={key: "[{}]", "other.example/interface": "", "mooring.dev/request.fpga": "{}"})
    assert _found_among(misspelt)["pod/default/a"].startswith(
        f"warning: ignored annotation: {key!r}: unknown annotation"
    )
    (table,) = explain.report(as_pods(misspelt)[0], explain.DecisionReport("none", "", {})).tables
    (ignored,) = (row for row in table.rows if row[0].text == "ignored")
    assert ignored[1].text.startswith(f"{key!r}: unknown annotation; known are mooring.dev/interfaces, ")


def test_what_mooring_writes_into_pods_is_no_misspelt_annotation() -> None:
    """Neither is anything that a pod may ask for."""
    written = (names.RATES, names.RATES_SIGNATURE, names.SIGNATURE, "mooring.dev/network-status")
    asked = (names.REQUEST, names.PLACEMENT, names.GROUP, "mooring.dev/request.gpu")
    assert unknown_annotations((*written, names.ASSIGNMENT, *asked)) == []


def _found_among(*documents: dict[str, Any]) -> dict[str, str]:
    there, patient = as_pods(*documents), well()
    used = uses(as_nodes(node("n1", (pf(),))), there)
    return found_by(replace(patient, nodes=used, pods=there))
