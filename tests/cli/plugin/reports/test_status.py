"""`kubectl mooring status`: a line for each check, what to do where one fails, and whether a scheduler leads."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cli.plugin.reports import status
from cli.plugin.reports.checks import CHECKS, Patient
from cli.plugin.reports.leadership import judge, lease_name
from cli.plugin.reports.objects import Lease
from cli.plugin.reports.tables import draw
from cli.plugin.reports.use import uses
from mooring.annotations.inventory import NODE_PROGRAMS
from scheduler.kube.objects import Condition
from tests.cli.plugin.cluster import as_nodes, as_pods, node, pf, pod, waiting
from tests.cli.plugin.reports.test_doctor import well

NOW = 1_000_000.0


def lease(**spec: Any) -> Lease:
    metadata = {"name": "mooring-scheduler", "namespace": "mooring-system"}
    return msgspec.convert({"metadata": metadata, "spec": spec}, Lease)


def renewed(at: str, holder: str = "s-1") -> Lease:
    return lease(holderIdentity=holder, leaseDurationSeconds=15, renewTime=at)


def lines(patient: Patient, *, symbols: bool = True) -> list[str]:
    """Return the table of status, with one blank between words."""
    table = status.table(status.examine(patient), symbols=symbols)
    return [" ".join(line.split()) for line in draw([table], coloured=False).splitlines()]


def line_of(check: str, patient: Patient) -> tuple[str, str]:
    """Return the line of a check, and the one below it."""
    found = lines(patient)
    index = next(number for number, line in enumerate(found) if line[2:].startswith(check))
    return found[index], found[index + 1]


def test_each_check_of_a_good_installation_is_one_line() -> None:
    """A new user sees what was looked at, and a number of each."""
    assert lines(well()) == [
        "✔ API server https://h:6443 answers",
        "✔ scheduler s leads: it renewed Lease 'mooring-system/mooring-scheduler' 1 s ago",
        "✔ nodes 1 of 1 publish an inventory: 1 PFs, 4 VFs",
        "✔ node part CRI shim and CNI plugin run on 1 nodes",
        "✔ admission policies all 6 exist and deny",
        "✔ VFs 0 of 4 are held, each by one pod",
        "✔ pods 0 request interfaces; none is rejected or unschedulable",
        "✔ groups 0, none rejected or half placed",
        "✔ versions all 0.2.0",
    ]
    assert len(lines(well())) == len(CHECKS)
    assert status.report(status.examine(well()), symbols=True).status == 0


def test_without_symbols_each_line_begins_with_a_word() -> None:
    """A pipe, or a terminal that is not UTF-8."""
    assert {line.split()[0] for line in lines(well(), symbols=False)} == {"ok"}
    sick = replace(well(), policies=[], leaderships=None)
    assert {"warning scheduler", "error admission"} <= {
        " ".join(line.split()[:2]) for line in lines(sick, symbols=False)
    }


def test_the_nodes_without_the_node_part_are_named_with_what_to_run() -> None:
    """Equal findings share a line, and it says where to read on."""
    old = {"mooring-advertiser": "0.2.0", "mooring-cni": "0.2.0"}
    sick = as_nodes(*(node(name, (pf(),), programs=old) for name in ("n7", "n8")), node("n9", (pf(),)))
    line, advice = line_of("node part", replace(well(), nodes=uses(sick, ())))
    assert line == "✗ node part node/n7, node/n8: mooring-cri-shim has not started in this boot"
    assert advice.startswith("run `mooring-node check` there, or `mooring-node install` if it never ran; see docs/")


@pytest.mark.parametrize(
    ("labels", "condition", "said"),
    [
        ({}, None, ""),
        ({"mooring.dev/node": ""}, None, "has the label mooring.dev/node, and no installer has reported"),
        ({"mooring.dev/node": ""}, ("Unknown", "WaitsForTurn", "node 'n3' failed"), "WaitsForTurn: node 'n3' failed"),
        ({"mooring.dev/node": ""}, ("False", "Installed", "mooring-0.2.0"), ""),
        ({}, ("False", "Installed", ""), "is installed from the cluster, and lost the label mooring.dev/node"),
        ({}, ("False", "Removed", ""), ""),
    ],
)
def test_what_the_installer_has_not_done_is_a_warning(
    labels: dict[str, str], condition: tuple[str, str, str] | None, said: str
) -> None:
    """So is a node that lost the label, which keeps what it has."""
    (own,) = as_nodes(node("n7", (pf(),), programs=dict.fromkeys(NODE_PROGRAMS, "0.1.0")))
    own.metadata.labels = labels
    if condition is not None:
        fields = ("type", "status", "reason", "message")
        found = msgspec.convert(dict(zip(fields, ("mooring.dev/InstallFailed", *condition), strict=True)), Condition)
        own.status.conditions = [*(own.status.conditions or ()), found]
    (line,) = [one for one in lines(replace(well(), nodes=uses([own], ()))) if one[2:].startswith("node part")]
    assert line == (f"! node part node/n7: {said}" if said else "✔ node part CRI shim and CNI plugin run on 1 nodes")


def test_an_installer_that_cannot_start_is_a_warning() -> None:
    """Its image may be wrong. If the node's condition has a reason, that is reported."""
    installer = as_pods(pod("i", labels={"app.kubernetes.io/name": "mooring-node-installer"}, spec={"nodeName": "n7"}))
    (own,) = as_nodes(node("n7", (pf(),), programs=dict.fromkeys(NODE_PROGRAMS, "0.2.0")))
    line, advice = line_of("node part", replace(well(), nodes=uses([own], ()), pods=installer))
    assert line == "! node part pod/default/i: the installer on n7 is not ready"
    assert advice.startswith("look at `kubectl describe pod i -n default` and at its log")
    own = msgspec.convert(msgspec.to_builtins(own), type(own))
    own.metadata.labels = {"mooring.dev/node": ""}
    line, _ = line_of("node part", replace(well(), nodes=uses([own], ()), pods=installer))
    assert line == "! node part node/n7: has the label mooring.dev/node, and no installer has reported"


@pytest.mark.parametrize(("kind", "level"), [("mooring.dev/ShimBypassed", "✗"), ("DiskPressure", "✔")])
def test_a_condition_of_moorings_that_is_true_is_an_error(kind: str, level: str) -> None:
    """As of the kubelet's own conditions False is good; those of others are not Mooring's."""
    sick = node("n1", (pf(),))
    sick["status"]["conditions"].append({"type": kind, "status": "True", "message": "the kubelet goes past the shim"})
    line, _ = line_of("node part", replace(well(), nodes=uses(as_nodes(sick), ())))
    assert line.startswith(level)
    assert ("mooring.dev/ShimBypassed: the kubelet goes past the shim" in line) == (level == "✗")


def test_where_no_node_has_an_inventory_nothing_can_be_given() -> None:
    """One of several nodes without one may have no such NIC: a warning, with those that have no advertiser."""
    none = uses(as_nodes(node("n1"), node("n2")), ())
    line, _ = line_of("nodes", replace(well(), nodes=none))
    assert line == "✗ nodes none of 2 publishes an inventory"
    label = {"app.kubernetes.io/name": "mooring-advertiser"}
    ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    advertiser = as_pods(pod("a", labels=label, status=ready, spec={"nodeName": "n2"}))
    some = uses(as_nodes(node("n1", (pf(),)), node("n2"), node("n3")), ())
    patient = replace(well(), nodes=some, pods=advertiser)
    assert line_of("nodes", patient)[0] == "! nodes 2 without an inventory: n2, n3; no pod of the advertiser is on n3"
    crashing = as_pods(pod("a", labels=label, spec={"nodeName": "n2"}))
    line, _ = line_of("nodes", replace(well(), nodes=some, pods=crashing))
    assert line == "✗ nodes pod/default/a: the advertiser on n2 is not ready (and 1 more: doctor lists them)"


def test_pods_that_wait_are_named_with_the_reason() -> None:
    """They are no fault of the installation: the status stays 0."""
    why = "0/4 nodes are available: 4 not enough free RDMA bandwidth."
    waits = [pod(name, "[{}]", status=waiting("Unschedulable", why)) for name in ("a", "b")]
    patient = replace(well(), pods=as_pods(*waits, pod("other", status=waiting("Unschedulable", "x"))))
    assert line_of("pods", patient) == (
        f"! pods 2 wait: default/a and 1 more: {why}",
        "`kubectl mooring explain a -n default` names each node's reason; "
        "see docs/troubleshooting.md#a-pod-stays-pending",
    )
    assert status.report(status.examine(patient), symbols=True).status == 0


@pytest.mark.parametrize(
    ("leases", "leads", "text"),
    [
        ([renewed("1970-01-12T13:46:38Z")], True, "s-1 leads: it renewed Lease 'mooring-system/mooring-scheduler' 2 s"),
        ([renewed("1970-01-12T13:50:00Z")], True, "s-1 leads: it renewed Lease 'mooring-system/mooring-scheduler' 0 s"),
        (
            [renewed("1970-01-12T13:45:31Z")],
            False,
            "its Lease 'mooring-system/mooring-scheduler' was last renewed 69 s",
        ),
        ([renewed("1970-01-12T10:46:40Z")], False, "was last renewed 3 h ago"),
        ([renewed("1970-01-12T13:46:38Z", "")], False, "its Lease 'mooring-system/mooring-scheduler' was released"),
        ([lease()], False, "was released"),
        ([], False, "no scheduler leads: no namespace has a Lease 'mooring-scheduler'"),
    ],
)
def test_a_scheduler_leads_as_long_as_it_renews_its_lease(leases: list[Lease], leads: bool, text: str) -> None:
    """A Lease from a clock that is ahead counts as new."""
    found = judge(leases, lease_name("mooring"), NOW)
    assert found.leads == leads
    assert text in found.text


def test_pods_of_the_stock_scheduler_wait_for_moorings_as_its_extender() -> None:
    assert lease_name("default-scheduler") == "mooring-scheduler"
    assert lease_name("other") == "other-scheduler"


def test_each_check_leads_to_a_page_of_the_documentation() -> None:
    """Its heading, too: the link ends in what mkdocs makes of it."""
    docs = Path(__file__).parents[4] / "docs"
    for check in CHECKS:
        page, _, anchor = check.page.partition("#")
        # The page of messages is made from this file.
        source = "messages.txt" if page == "messages.md" else page
        headings = re.findall(r"^#+ (.+)$", (docs / source).read_text(encoding="utf-8"), re.MULTILINE)
        assert not anchor or anchor in {re.sub(r"[^a-z0-9]+", "-", one.lower()).strip("-") for one in headings}, check
