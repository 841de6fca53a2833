"""`kubectl mooring doctor`: the checks of `status`, with each node's programs and all that was found. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict

from cli.plugin.reports import status
from cli.plugin.reports.checks import Finding, Patient, scheduler_versions, some
from cli.plugin.reports.tables import Answer, Cell, Table, Tone, cells
from cli.plugin.reports.use import NodeUse
from mooring.annotations.inventory import NODE_PROGRAMS

_TONES: Mapping[str, Tone] = {"error": "bad", "warning": "warning"}


def report(patient: Patient, *, symbols: bool = False) -> Answer:
    """Return the checks, the programs of every node and all findings; status 1 if any is an error."""
    results = status.examine(patient)
    found = findings_of(results)
    is_well = not any(finding.level == "error" for finding in found)
    document = {
        "kind": "MooringDoctor",
        "v": 1,
        "ok": is_well,
        "version": patient.version,
        "scheduler": scheduler_versions(patient.pods),
        "checks": status.items(results),
        "nodes": [_item(node) for node in patient.nodes],
        "findings": [asdict(finding) for finding in found],
    }
    findings = Table(
        ("LEVEL", "SUBJECT", "FOUND"),
        [cells(Cell(finding.level, _TONES[finding.level]), finding.subject, finding.found) for finding in found],
        "findings",
        "no problems found in the API",
    )
    tables = (status.table(results, symbols=symbols), _programs(patient), findings)
    return Answer(document, tables, status=0 if is_well else 1)


def findings_of(results: Iterable[status.Result]) -> list[Finding]:
    """Return what the checks have found, errors first."""
    return sorted(
        (finding for result in results for finding in result.findings),
        key=lambda finding: (finding.level, finding.subject),
    )


def _item(node: NodeUse) -> dict[str, object]:
    programs = dict(node.inventory.programs) if node.inventory else {}
    return {"node": node.name, "ready": node.is_ready, "fault": node.fault, "programs": programs}


def _programs(patient: Patient) -> Table:
    """Return how many nodes run which versions: equal nodes share a row."""
    alike: dict[tuple[str, ...], list[str]] = {}
    for node in patient.nodes:
        programs = node.inventory.programs if node.inventory else {}
        versions = (programs.get(program, "") for program in NODE_PROGRAMS)
        alike.setdefault((node.fault or "ready", *versions), []).append(node.name)
    rows = [
        cells(len(nodes), Cell(state, "good" if state == "ready" else "bad"), *versions, some(nodes))
        for (state, *versions), nodes in sorted(alike.items(), key=lambda item: -len(item[1]))
    ]
    columns = (program.removeprefix("mooring-").upper() for program in NODE_PROGRAMS)
    return Table(("NODES", "STATE", *columns, "WHICH"), rows, "nodes", "no nodes")
