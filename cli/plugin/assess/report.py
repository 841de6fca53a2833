"""The report of `assess`: a document for programs, and tables for people. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from cli.plugin.assess import gpu_findings, job_findings, vf_findings
from cli.plugin.assess.findings import KINDS, Finding
from cli.plugin.assess.holders import holdings
from cli.plugin.assess.manifests import ManifestRemark, networks_of, remarks
from cli.plugin.assess.requests import Job, is_for_network, is_in_host_network, jobs, rack_label
from cli.plugin.assess.snapshot import NODES, NodeCapture, Snapshot, at, key_of
from cli.plugin.reports.tables import Answer, Cell, Table, cells
from mooring.natural_order import natural

if TYPE_CHECKING:
    from cli.plugin.assess.decisions import Outcome

Json = dict[str, object]


@dataclass(frozen=True, slots=True)
class Assessment:
    """All that is derived from a snapshot; ``outcome`` is None if the scheduler's rules are not installed."""

    snapshot: Snapshot
    findings: tuple[Finding, ...]
    jobs: tuple[Job, ...]
    rack: str
    remarks: tuple[ManifestRemark, ...]
    outcome: "Outcome | None"
    not_improved: tuple[str, ...] = ()


def assess(snapshot: Snapshot, workloads: Mapping[str, str], rack: str = "") -> Assessment:
    """Derive everything; ``rack`` is the label of nodes that names their rack, empty for the most usual one."""
    held, networks = holdings(snapshot), networks_of(snapshot)
    for_network = {key_of(pod): is_for_network(pod, networks) for pod in snapshot.pods()}
    found_jobs = jobs(snapshot, for_network)
    rack = rack or rack_label(snapshot.all(NODES))
    findings = (
        *vf_findings.find(snapshot, held),
        *gpu_findings.find(snapshot, held),
        *job_findings.find(snapshot, found_jobs),
    )
    order = list(KINDS)
    ordered = sorted(
        findings, key=lambda finding: (order.index(finding.kind), natural(finding.subject), natural(finding.text))
    )
    try:
        from cli.plugin.assess import decisions
    except ModuleNotFoundError as error:
        if error.name != "numpy":
            raise
        outcome = None
    else:
        outcome = decisions.decide(snapshot, for_network, found_jobs, networks, held, rack)
    said = tuple(remarks(snapshot, networks, workloads))
    made = Assessment(snapshot, tuple(ordered), tuple(found_jobs), rack, said, outcome)
    return Assessment(
        snapshot, tuple(ordered), tuple(found_jobs), rack, said, outcome, tuple(_not_improved(made, for_network))
    )


def report(assessment: Assessment) -> Answer:
    """Return the report in both forms; the exit status is 0, whatever was found."""
    document = as_document(assessment)
    return Answer(document, tuple(_tables(assessment)), _notes(assessment))


def as_document(assessment: Assessment) -> Json:
    """Return the report as JSON."""
    snapshot = assessment.snapshot
    names = sorted(snapshot.nodes, key=natural)
    return {
        "kind": "MooringAssessment",
        "v": 1,
        "taken_at": datetime.fromtimestamp(snapshot.now, UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
        "rack_label": assessment.rack,
        "nodes": [_node(name, snapshot.captures.get(name)) for name in names],
        "skipped": [{"node": name, "why": why} for name, why in sorted(snapshot.failed.items())],
        "findings": [
            {
                "kind": finding.kind,
                "title": KINDS[finding.kind].title,
                "subject": finding.subject,
                "text": finding.text,
                "evidence": [asdict(each) for each in finding.evidence],
                "harm": KINDS[finding.kind].harm,
                "prevention": KINDS[finding.kind].prevention,
            }
            for finding in assessment.findings
        ],
        "jobs": [_job(job, assessment) for job in assessment.jobs],
        "manifests": [asdict(remark) for remark in assessment.remarks],
        "decisions": _decisions(assessment),
        "not_improved": list(assessment.not_improved),
    }


def _node(name: str, capture: NodeCapture | None) -> Json:
    if capture is None:
        return {"node": name, "captured": False, "pfs": [], "left_out": [], "gpus": []}
    inventory = capture.inventory
    return {
        "node": name,
        "captured": True,
        "pfs": [
            {
                "pf": pf.name,
                "pci": pf.pci,
                "link": pf.link,
                "mbps": pf.mbps,
                "vfs": len(pf.vfs),
                "free": len(pf.usable),
                "out": [{"vfs": str(group_out.vfs), "why": group_out.why} for group_out in pf.out],
            }
            for pf in inventory.inventory.pfs
        ],
        "left_out": [{"pci": nic.pci, "name": nic.name or "", "why": nic.why} for nic in inventory.ignored],
        "gpus": [{"pci": pci, "why": why} for pci, why in _gpus(capture)],
    }


def _gpus(capture: NodeCapture) -> list[tuple[str, str | None]]:
    """Return why Mooring could not offer each GPU: empty if it could, None if the capture does not say."""
    use = capture.use
    if use is None:
        return []
    return [(pci, None if use.gpus_out is None else use.gpus_out.get(pci, "")) for pci in sorted(use.gpus)]


def _job(job: Job, assessment: Assessment) -> Json:
    nodes, rack = assessment.snapshot.nodes, assessment.rack
    found: Json = {
        "job": job.name,
        "pods": len(job.pods),
        "bound": len(job.bound()),
        "racks": len(job.domains(nodes, rack)) if rack else None,
    }
    if assessment.outcome is not None:
        own = {key_of(pod) for pod in job.pods}
        decided = [decision for decision in assessment.outcome.decisions if decision.pod in own]
        placed = [decision.node for decision in decided if decision.node]
        racks = {str(at(nodes[name], "metadata", "labels", rack) or "") for name in placed if name in nodes} - {""}
        found["with_mooring"] = {"decided": len(decided), "bound": len(placed), "racks": len(racks) if rack else None}
    return found


def _decisions(assessment: Assessment) -> Json | None:
    if assessment.outcome is None:
        return None
    decided, now = assessment.outcome.decisions, _nodes_now(assessment.snapshot)
    return {
        "pods": [
            asdict(decision) | {"now": now[decision.pod]}
            for decision in sorted(decided, key=lambda decision: natural(decision.pod))
        ],
        "placed": sum(bool(decision.node) for decision in decided),
        "waiting": sum(not decision.node for decision in decided),
        "left_out": [{"pod": pod, "why": why} for pod, why in sorted(assessment.outcome.left_out.items())],
    }


def _nodes_now(snapshot: Snapshot) -> dict[str, str]:
    """Return the node of each pod, empty for none."""
    return {key_of(pod): str(at(pod, "spec", "nodeName") or "") for pod in snapshot.pods()}


def _not_improved(assessment: Assessment, for_network: Mapping[str, bool]) -> Iterator[str]:
    """Yield what would be the same with Mooring."""
    snapshot = assessment.snapshot
    unknown = [name for name in snapshot.nodes if name not in snapshot.captures]
    if unknown:
        yield f"{len(unknown)} of {len(snapshot.nodes)} nodes have no capture here: nothing is known about their VFs"
    ignored = [nic.why for capture in snapshot.captures.values() for nic in capture.inventory.ignored]
    for why, count in sorted(_counts(ignored).items()):
        yield f"{count} NICs would not be on offer: {why}"
    hosts = sum(for_network.get(key_of(pod), False) and is_in_host_network(pod) for pod in snapshot.pods())
    if hosts:
        yield f"{hosts} pods are in the host's network: Mooring gives VFs only to pods with a network of their own"
    if assessment.outcome is not None:
        waiting = [decision.reason for decision in assessment.outcome.decisions if not decision.node]
        for why, count in sorted(_counts(waiting).items()):
            yield f"{count} pods would wait with Mooring, too: {why}"
        for why, count in sorted(_counts(assessment.outcome.left_out.values()).items()):
            yield f"{count} pods were not decided about: {why}"
    yield "the number of VFs, their bandwidth and the number of GPUs stay what they are"


def _counts(texts: Iterable[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for text in texts:
        found[text] = found.get(text, 0) + 1
    return found


def _notes(assessment: Assessment) -> tuple[str, ...]:
    notes = [f"node {name!r} skipped: {why}" for name, why in sorted(assessment.snapshot.failed.items())]
    if assessment.outcome is None:
        notes.append("what Mooring would have decided needs numpy: install kubectl mooring with the extra 'recompute'")
    return tuple(notes)


def _tables(assessment: Assessment) -> Iterator[Table]:
    snapshot = assessment.snapshot
    rows = [
        row for name in sorted(snapshot.nodes, key=natural) for row in _node_rows(name, snapshot.captures.get(name))
    ]
    columns = ("NODE", "NIC", "MB/S", "VFS", "FREE", "WHY NOT")
    yield Table(columns, rows, title="Nodes", empty="no nodes")
    gpus = [row for name in sorted(snapshot.captures, key=natural) for row in _gpu_rows(name, snapshot.captures[name])]
    if gpus:
        yield Table(("NODE", "GPU", "COULD BE OFFERED", "WHY NOT"), gpus, title="GPUs")
    if not assessment.findings:
        yield Table(("",), [], title="Findings", empty="no fault was found")
    for kind, about in KINDS.items():
        found = [finding for finding in assessment.findings if finding.kind == kind]
        if found:
            lines = [f"{finding.subject}: {finding.text}" for finding in found]
            below = [f"  harm: {about.harm}", f"  with Mooring: {about.prevention}"]
            shown = [(Cell(line, "bad"),) for line in lines]
            yield Table(
                ("",), [*shown, *((Cell(line, "faint"),) for line in below)], title=f"{about.title}: {len(found)}"
            )
    if assessment.jobs:
        yield Table(
            ("JOB", "PODS", "BOUND", "RACKS", "BOUND WITH MOORING", "RACKS WITH MOORING"),
            [_job_row(_job(job, assessment)) for job in assessment.jobs],
            title=f"Jobs with RDMA (racks by label {assessment.rack!r})" if assessment.rack else "Jobs with RDMA",
        )
    if assessment.outcome is not None:
        lines = [*_decision_lines(assessment.outcome, snapshot)]
        yield Table(("",), [(Cell(line),) for line in lines], title="Decided by Mooring's scheduler")
    if assessment.remarks:
        lines = [f"{remark.owner}: {remark.field}: {remark.rule}" for remark in assessment.remarks]
        yield Table(("",), [(Cell(line),) for line in lines], title=f"Live manifests, by lint: {len(lines)}")
    yield Table(("",), [(Cell(line),) for line in assessment.not_improved], title="What Mooring would not improve")


def _node_rows(name: str, capture: NodeCapture | None) -> Iterator[Sequence[Cell]]:
    if capture is None:
        yield cells(name, "", "", "", "", "no capture")
        return
    for pf in capture.inventory.inventory.pfs:
        why = "; ".join(f"VF {group_out.vfs}: {group_out.why}" for group_out in pf.out)
        yield cells(name, pf.name, pf.mbps or "", len(pf.vfs), len(pf.usable), why)
    for nic in capture.inventory.ignored:
        yield cells(name, nic.name or nic.pci, "", "", "", nic.why)
    if not capture.inventory.inventory.pfs and not capture.inventory.ignored:
        yield cells(name, "", "", "", "", "no NIC")


def _gpu_rows(name: str, capture: NodeCapture) -> Iterator[Sequence[Cell]]:
    for pci, why in _gpus(capture):
        if why is None:
            yield cells(name, pci, Cell("?", "warning"), "the capture does not say")
        else:
            yield cells(name, pci, Cell("no", "warning") if why else Cell("yes", "good"), why)


def _job_row(found: Mapping[str, object]) -> Sequence[Cell]:
    other = found.get("with_mooring")
    decided: Mapping[str, object] = other if isinstance(other, dict) else {}
    return cells(*(found[key] for key in ("job", "pods", "bound", "racks")), decided.get("bound"), decided.get("racks"))


def _decision_lines(outcome: "Outcome", snapshot: Snapshot) -> Iterator[str]:
    now = _nodes_now(snapshot)
    placed = [decision for decision in outcome.decisions if decision.node]
    bound = sum(bool(now.get(decision.pod)) for decision in outcome.decisions)
    yield f"{len(placed)} of {len(outcome.decisions)} pods with VFs would have a node; {bound} have one now"
    waiting = [decision for decision in outcome.decisions if not decision.node]
    for decision in sorted(waiting, key=lambda decision: natural(decision.pod)):
        yield f"{decision.pod} would wait: {decision.reason}"
