"""`kubectl mooring groups`: which groups of pods have started, which wait, and what they wait for. Pure.

What a group waits for is in its members' conditions and events, where the scheduler has written it.
"""

from collections.abc import Mapping, Sequence
from typing import cast

from cli.plugin.reports import explain
from cli.plugin.reports.explain import DecisionReport
from cli.plugin.reports.found_groups import FoundGroup, State
from cli.plugin.reports.tables import Answer, Cell, Table, Tone, cells, without_columns
from scheduler.cache.groups.group_cache import MemberState
from scheduler.kube.group import Group, Naming

_COLUMNS = ("NAMESPACE", "NAME", "STATE", "MIN", "BOUND", "WAITING", "DOMAIN", "HOPS", "UNPLACED", "REFUSED-BY")
_WIDE = ("SOURCE", "WITHIN", "PREFER", "SLICES", "RAILS", "START", "WHY")
# Left out where the others have to fit a terminal.
_ONLY_WIDE = ("REFUSED-BY",)
_SOURCES: Mapping[Naming, str] = {
    "PodGroup": "podgroups.scheduling.k8s.io",
    "coscheduling": "podgroups.scheduling.x-k8s.io",
    "annotation": "annotation",
    "controller": "controller",
}
# Nodes named in one row.
_NAMED = 3
_TONES: Mapping[State, Tone] = {"Scheduled": "good", "Partial": "bad", "Refused": "bad", "Incomplete": "warning"}


def report(found: Sequence[FoundGroup], *, wide: bool) -> Answer:
    """Return one row a group."""
    columns = (*_COLUMNS, *_WIDE) if wide else _COLUMNS
    document = {"kind": "MooringGroups", "v": 1, "items": [as_item(group) for group in found]}
    rows = [_row(group, wide=wide) for group in found]
    table = Table(columns, rows, empty="no groups of pods", identity=("NAMESPACE", "NAME"))
    return Answer(document, (table if wide else without_columns(table, _ONLY_WIDE),), identity=("namespace", "name"))


def _row(found_group: FoundGroup, *, wide: bool) -> tuple[Cell, ...]:
    hangs_on, group = found_group.hangs_on, found_group.group if isinstance(found_group.group, Group) else None
    own = cells(
        found_group.key.namespace,
        found_group.members.title,
        Cell(found_group.state, _TONES.get(found_group.state, "")),
        group.min if group else "?",
        found_group.members.current_count,
        found_group.waiting,
        *_domain(found_group),
        hangs_on.member if hangs_on else "",
        some(hangs_on.nodes) if hangs_on else "",
    )
    if not wide:
        return own
    values = (group.within, ",".join(group.prefer), _slices(group), group.rails) if group else ("", "", "", "")
    return (
        *own,
        *cells(
            _SOURCES[found_group.key.naming],
            *values,
            found_group.starts,
            found_group.why if found_group.waiting else "",
        ),
    )


def _slices(group: Group) -> str:
    """Return the slices from narrow to wide, such as ``8 within 'clique'``."""
    return ", ".join(map(repr, group.slices[::-1]))


def _domain(found_group: FoundGroup) -> tuple[Cell, ...]:
    """Return the domain that the members share, or how many of the narrowest level, and the hops that leave one."""
    if found_group.labels is None:
        return Cell("?", "warning"), Cell("?", "warning")
    if not found_group.levels:
        return cells("", "")
    narrowest = found_group.levels[0]
    domain = found_group.domain[1] if found_group.domain else f"{len(narrowest.domains)} domains"
    return cells(domain, f"{narrowest.crossing}/{narrowest.hops}")


def some(names: Sequence[str]) -> str:
    """Return the first names, and how many more there are."""
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def detail(found_group: FoundGroup) -> Answer:
    """Return what one group is, and a row for each of its pods."""
    document = {"kind": "MooringGroups", "v": 1, "items": [as_item(found_group)]}
    return Answer(
        document, (facts(found_group, found_group.why if found_group.waiting else ""), member_table(found_group))
    )


def explanation(found_group: FoundGroup, decision: DecisionReport | None) -> Answer:
    """Return why a group waits, given its last decision, or where it is."""
    report_of_decision = decision or DecisionReport("none", found_group.why if found_group.waiting else "", {})
    fields = {
        "source": report_of_decision.source,
        "when": report_of_decision.when,
        "message": report_of_decision.message,
        "decision": report_of_decision.why,
    }
    document = {"kind": "MooringGroupExplanation", "v": 1, "items": [{"group": as_item(found_group), **fields}]}
    source = (
        f"{report_of_decision.source} {report_of_decision.when}".strip() if report_of_decision.source != "none" else ""
    )
    return Answer(
        document,
        (
            facts(found_group, report_of_decision.message, source),
            member_table(found_group),
            *explain.reasons(report_of_decision.why),
        ),
    )


def together(answers: Sequence[Answer]) -> Answer:
    """Return one answer about several groups of one name."""
    items = [item for answer in answers for item in cast(Sequence[object], answer.document["items"])]
    tables = [table for answer in answers for table in answer.tables]
    return Answer({**answers[0].document, "items": items}, tuple(tables))


def facts(found_group: FoundGroup, decision: str, source: str = "") -> Table:
    """Return the facts about a group as a whole."""
    group = found_group.group if isinstance(found_group.group, Group) else None
    hangs_on, domain = found_group.hangs_on, found_group.domain
    rows: list[tuple[str, object]] = [
        ("group", found_group.name),
        ("named by", _SOURCES[found_group.key.naming]),
        ("state", found_group.state),
        ("min", group.min if group else ""),
        ("bound", str(found_group.members.current_count)),
        ("waiting", str(found_group.waiting)),
        ("start", found_group.starts),
        ("within", group.within if group else ""),
        ("prefer", ", ".join(group.prefer) if group else ""),
        ("slices", _slices(group) if group else ""),
        ("roles", ", ".join(f"{count} {role}" for role, count in group.roles) if group else ""),
        ("rails", group.rails if group else ""),
        ("domain", f"{domain[0]} {domain[1]!r}" if domain else ""),
        *(("level", f"{level.label}: {level.text}") for level in found_group.levels),
        ("unplaced", f"{hangs_on.member} ({hangs_on.fitting} of {hangs_on.wanted} members fit)" if hangs_on else ""),
        ("refused by", some(hangs_on.nodes) if hangs_on else ""),
        ("decision", decision),
        ("source", source),
    ]
    return Table(("", ""), [cells(name, fact) for name, fact in rows if fact])


def member_table(found_group: FoundGroup) -> Table:
    """Return a row for each pod of a group."""
    members = [(pod, found_group.members.pods[uid].state) for uid, pod in found_group.ordered]
    rows = [cells(pod.metadata.name, _TEXTS[state], pod.spec.node_name) for pod, state in members]
    return Table(("MEMBER", "STATE", "NODE"), rows, "members")


_TEXTS: Mapping[MemberState, str] = {
    "waiting": "waiting",
    "refused": "refused",
    "gated": "gated",
    "foreign": "of another scheduler",
    "placed": "bound",
    "leaving": "terminating",
    "succeeded": "succeeded",
    "failed": "failed",
}


def as_item(found_group: FoundGroup) -> dict[str, object]:
    """Return a group as JSON values."""
    group, domain, hangs_on = (
        found_group.group if isinstance(found_group.group, Group) else None,
        found_group.domain,
        found_group.hangs_on,
    )
    return {
        "metadata": {"namespace": found_group.key.namespace, "name": found_group.members.title},
        "namespace": found_group.key.namespace,
        "name": found_group.members.title,
        "source": _SOURCES[found_group.key.naming],
        "state": found_group.state,
        "why": found_group.why if found_group.waiting else "",
        "start": found_group.starts,
        "min": group.min if group else None,
        "bound": found_group.members.current_count,
        "waiting": found_group.waiting,
        "within": group.within if group else "",
        "prefer": list(group.prefer) if group else [],
        "slices": [group_slice._asdict() for group_slice in group.slices] if group else [],
        "roles": dict(group.roles) if group else {},
        "rails": group.rails if group else None,
        "domain": {"label": domain[0], "value": domain[1]} if domain else None,
        "levels": [
            {"label": level.label, "domains": list(level.domains), "hops": level.hops, "crossing": level.crossing}
            for level in found_group.levels
        ],
        "hangs_on": {
            "member": hangs_on.member,
            "fitting": hangs_on.fitting,
            "wanted": hangs_on.wanted,
            "nodes": list(hangs_on.nodes),
        }
        if hangs_on
        else None,
        "members": [
            {
                "name": pod.metadata.name,
                "uid": uid,
                "state": _TEXTS[found_group.members.pods[uid].state],
                "node": pod.spec.node_name or "",
            }
            for uid, pod in found_group.ordered
        ],
    }
