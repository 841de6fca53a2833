"""`kubectl mooring explain POD`: why this node and these VFs, or why not each node. Pure."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import msgspec

from cli.plugin.reports import gpus
from cli.plugin.reports.leadership import Leadership
from cli.plugin.reports.objects import UNKNOWN, Event, Node, Pod, unknown_annotations
from cli.plugin.reports.pods import as_item, summarize, vf_table
from cli.plugin.reports.tables import Answer, Cell, Table, cells
from cli.plugin.reports.use import DrainedVfs, NodeUse, drained_vfs, uses
from mooring import names
from mooring.indexes import Indexes
from mooring.parsing import shorten

_DECISIONS = ("Scheduled", "FailedScheduling")
Why = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class DecisionReport:
    """The data of a decision: its message, its data as in `mooring.dev/why`, and the source of both."""

    source: Literal["event", "recomputed", "none"]
    message: str
    why: Why
    when: str = ""


def latest(events: Iterable[Event], uid: str) -> DecisionReport | None:
    """Return the scheduler's last report about the pod ``uid``; None if no event of it is left."""
    reports = [
        (event, when)
        for event in events
        if event.involved_object.uid == uid
        and event.reason in _DECISIONS
        and names.WHY in (event.metadata.annotations or {})
        and (when := event.last_timestamp or event.event_time) is not None
    ]
    if not reports:
        return None
    # Within one second: the names of the scheduler's events have the time of their first write.
    event, when = max(reports, key=lambda item: (item[1], item[0].metadata.name))
    why = _read((event.metadata.annotations or {})[names.WHY])
    return DecisionReport("event", event.message or "", why, when.isoformat().replace("+00:00", "Z"))


def _read(text: str) -> Why:
    """Read the annotation; skip whatever cannot be shown."""
    try:
        document = msgspec.json.decode(text, type=dict[str, object])
    except (ValueError, RecursionError):
        return {}
    return document if document.get("v") == 1 else {}


def report(pod: Pod, decision_report: DecisionReport, node: Node | None = None) -> Answer:
    """Return what the pod holds, and the reasons of the decision; ``node`` is its node, if it was read."""
    item, its_gpus = summarize(pod), gpus.held_by(pod)
    fields = {
        "source": decision_report.source,
        "when": decision_report.when,
        "message": decision_report.message,
        "decision": decision_report.why,
    }
    document = {"kind": "MooringExplanation", "v": 1, **as_item(item), "gpus": gpus.as_items(its_gpus), **fields}
    facts = [
        ("pod", pod.key),
        ("state", item.state),
        ("why", item.why if item.why != decision_report.message else ""),
        ("node", pod.spec.node_name),
        ("decision", decision_report.message),
        ("signed by", pod.signed_by()),
        ("source", f"{decision_report.source} {decision_report.when}".strip()),
        *(("ignored", f"{shorten(key)}: {UNKNOWN}") for key in unknown_annotations(pod.annotations)),
    ]
    tables = [Table(("", ""), [cells(name, fact) for name, fact in facts if fact])]
    if item.vfs:
        tables.append(replace(vf_table(item.vfs), title="VFs"))
    if its_gpus:
        tables.append(gpus.pairs(its_gpus, node))
    return Answer(document, (*tables, *reasons(decision_report.why)))


def with_drained_vfs(answer: Answer, nodes: Iterable[NodeUse]) -> Answer:
    """Return an answer about what waits, with the drained VFs of all nodes: no new pod gets them."""
    return _with_drained(answer, [*drained_vfs(nodes)], "drained VFs: no new pod gets them")


def with_its_drained_vfs(answer: Answer, pod: Pod, node: Node | None) -> Answer:
    """Return an answer about a pod on a node, with those of its VFs that are drained."""
    assignment, _ = pod.held()
    vfs_of_pfs: dict[str, list[int]] = {}
    for vf in assignment.vfs if assignment is not None else ():
        vfs_of_pfs.setdefault(vf.pf, []).append(vf.vf)
    drains = [
        replace(vfs_of_pf, vfs=vfs_of_pf.vfs & Indexes.of(vfs_of_pfs.get(vfs_of_pf.pf, ())))
        for vfs_of_pf in drained_vfs(uses([node], None) if node is not None else ())
    ]
    return _with_drained(
        answer, [vfs_of_pf for vfs_of_pf in drains if vfs_of_pf.vfs], "drained VFs: the pod keeps them until it ends"
    )


def _with_drained(answer: Answer, drains: Sequence[DrainedVfs], title: str) -> Answer:
    if not drains:
        return answer
    rows = [cells(vfs_of_pf.node, vfs_of_pf.pf, str(vfs_of_pf.vfs), vfs_of_pf.reason) for vfs_of_pf in drains]
    items = [
        {"node": vfs_of_pf.node, "pf": vfs_of_pf.pf, "vfs": str(vfs_of_pf.vfs), "reason": vfs_of_pf.reason}
        for vfs_of_pf in drains
    ]
    tables = (*answer.tables, Table(("NODE", "PF", "VFS", "REASON"), rows, title))
    return replace(answer, document={**answer.document, "drained": items}, tables=tables)


def with_leadership(answer: Answer, leader: Leadership | None) -> Answer:
    """Return an answer about waiting pods, after a warning and with status 1 if no scheduler leads.

    ``leader`` is None if the Lease could not be read.
    """
    if leader is None:
        return answer
    document = {**answer.document, "scheduler": {"leads": leader.leads, "text": leader.text}}
    if leader.leads:
        return replace(answer, document=document)
    warning = Table(("",), [(Cell(f"{leader.text}; no pod is bound until one leads", "bad"),)])
    return replace(answer, document=document, tables=(warning, *answer.tables), status=1)


def of_job(answer: Answer, name: str, pods: int, waiting: int) -> Answer:
    """Return an answer about one pod of a Job, after a line about the Job."""
    document = {**answer.document, "job": {"name": name, "pods": pods, "waiting": waiting}}
    facts = Table(("", ""), [cells("job", name), cells("pods", f"{pods}, {waiting} waiting; one of them:")])
    return replace(answer, document=document, tables=(facts, *answer.tables))


def reasons(why: Why) -> Iterator[Table]:
    """Yield the data of a decision as tables."""
    if scores := _mapping(why.get("scores")):
        rows = [cells(name, shorten(score)) for name, score in sorted(scores.items())]
        title = f"scores of {shorten(why.get('node'))}, the best of {shorten(why.get('nodes'))} nodes"
        yield Table(("PREFERENCE", "SCORE"), rows, title)
    if counts := _mapping(why.get("counts")):
        refusals = _mapping(why.get("refused"))
        rows = [
            cells(shorten(count), reason, _some(refusals.get(reason), count))
            for reason, count in sorted(counts.items(), key=lambda item: str(item[0]))
        ]
        yield Table(("NODES", "REASON", "WHICH"), rows, f"why none of {shorten(why.get('nodes'))} nodes fits")
    if preemption := why.get("preemption"):
        rows = [(Cell(json.dumps(preemption, sort_keys=True)),)]
        yield Table(("",), rows, "preemption")


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}


def _some(named: object, count: object) -> str:
    listed: Sequence[object] = named if isinstance(named, list | tuple) else ()
    more = count - len(listed) if isinstance(count, int) else 0
    return ", ".join(map(str, listed)) + (f" and {more} more" if listed and more > 0 else "")
