"""`kubectl mooring groups`: which groups of pods have started, which wait, and what they wait for. Pure.

What a group waits for is in its members' conditions and events, where the scheduler has written it.
"""

from collections.abc import Mapping, Sequence
from typing import cast

from cli.plugin.reports import explain
from cli.plugin.reports.explain import DecisionReport
from cli.plugin.reports.found_groups import FoundGroup, State
from cli.plugin.reports.tables import Answer, Cell, Table, Tone, cells, without_columns
from scheduler.cache.groups.group_members import MemberState
from scheduler.cache.groups.group_sources import Group
from scheduler.kube.group_membership import Naming

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


def _row(one: FoundGroup, *, wide: bool) -> tuple[Cell, ...]:
    hangs_on, group = one.hangs_on, one.group if isinstance(one.group, Group) else None
    own = cells(
        one.key.namespace,
        one.members.title,
        Cell(one.state, _TONES.get(one.state, "")),
        group.min if group else "?",
        one.members.current_count,
        one.waiting,
        *_domain(one),
        hangs_on.member if hangs_on else "",
        some(hangs_on.nodes) if hangs_on else "",
    )
    if not wide:
        return own
    asked = (group.within, ",".join(group.prefer), _slices(group), group.rails) if group else ("", "", "", "")
    return (*own, *cells(_SOURCES[one.key.naming], *asked, one.starts, one.why if one.waiting else ""))


def _slices(group: Group) -> str:
    """Return the slices from narrow to wide, such as ``8 within 'clique'``."""
    return ", ".join(map(repr, group.slices[::-1]))


def _domain(one: FoundGroup) -> tuple[Cell, ...]:
    """Return the domain that the members share, or how many of the narrowest level, and the hops that leave one."""
    if one.labels is None:
        return Cell("?", "warning"), Cell("?", "warning")
    if not one.levels:
        return cells("", "")
    narrowest = one.levels[0]
    domain = one.domain[1] if one.domain else f"{len(narrowest.domains)} domains"
    return cells(domain, f"{narrowest.crossing}/{narrowest.hops}")


def some(names: Sequence[str]) -> str:
    """Return the first names, and how many more there are."""
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def detail(one: FoundGroup) -> Answer:
    """Return what one group is, and a row for each of its pods."""
    document = {"kind": "MooringGroups", "v": 1, "items": [as_item(one)]}
    return Answer(document, (facts(one, one.why if one.waiting else ""), member_table(one)))


def explanation(one: FoundGroup, decision: DecisionReport | None) -> Answer:
    """Return why a group waits, given its last decision, or where it is."""
    found = decision or DecisionReport("none", one.why if one.waiting else "", {})
    reported = {"source": found.source, "when": found.when, "message": found.message, "decision": found.why}
    document = {"kind": "MooringGroupExplanation", "v": 1, "items": [{"group": as_item(one), **reported}]}
    source = f"{found.source} {found.when}".strip() if found.source != "none" else ""
    return Answer(document, (facts(one, found.message, source), member_table(one), *explain.reasons(found.why)))


def together(answers: Sequence[Answer]) -> Answer:
    """Return one answer about several groups of one name."""
    items = [item for answer in answers for item in cast(Sequence[object], answer.document["items"])]
    tables = [table for answer in answers for table in answer.tables]
    return Answer({**answers[0].document, "items": items}, tuple(tables))


def facts(one: FoundGroup, decision: str, source: str = "") -> Table:
    """Return the facts about a group as a whole."""
    group = one.group if isinstance(one.group, Group) else None
    hangs_on, domain = one.hangs_on, one.domain
    told: list[tuple[str, object]] = [
        ("group", one.name),
        ("named by", _SOURCES[one.key.naming]),
        ("state", one.state),
        ("min", group.min if group else ""),
        ("bound", str(one.members.current_count)),
        ("waiting", str(one.waiting)),
        ("start", one.starts),
        ("within", group.within if group else ""),
        ("prefer", ", ".join(group.prefer) if group else ""),
        ("slices", _slices(group) if group else ""),
        ("roles", ", ".join(f"{count} {role}" for role, count in group.roles) if group else ""),
        ("rails", group.rails if group else ""),
        ("domain", f"{domain[0]} {domain[1]!r}" if domain else ""),
        *(("level", f"{level.label}: {level.text}") for level in one.levels),
        ("unplaced", f"{hangs_on.member} ({hangs_on.fitting} of {hangs_on.wanted} members fit)" if hangs_on else ""),
        ("refused by", some(hangs_on.nodes) if hangs_on else ""),
        ("decision", decision),
        ("source", source),
    ]
    return Table(("", ""), [cells(name, fact) for name, fact in told if fact])


def member_table(one: FoundGroup) -> Table:
    """Return a row for each pod of a group."""
    listed = [(pod, one.members.pods[uid].state) for uid, pod in one.ordered]
    rows = [cells(pod.metadata.name, _TEXTS[state], pod.spec.node_name) for pod, state in listed]
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


def as_item(one: FoundGroup) -> dict[str, object]:
    """Return a group as JSON values."""
    group, domain, hangs_on = one.group if isinstance(one.group, Group) else None, one.domain, one.hangs_on
    return {
        "metadata": {"namespace": one.key.namespace, "name": one.members.title},
        "namespace": one.key.namespace,
        "name": one.members.title,
        "source": _SOURCES[one.key.naming],
        "state": one.state,
        "why": one.why if one.waiting else "",
        "start": one.starts,
        "min": group.min if group else None,
        "bound": one.members.current_count,
        "waiting": one.waiting,
        "within": group.within if group else "",
        "prefer": list(group.prefer) if group else [],
        "slices": [group_slice._asdict() for group_slice in group.slices] if group else [],
        "roles": dict(group.roles) if group else {},
        "rails": group.rails if group else None,
        "domain": {"label": domain[0], "value": domain[1]} if domain else None,
        "levels": [
            {"label": level.label, "domains": list(level.domains), "hops": level.hops, "crossing": level.crossing}
            for level in one.levels
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
                "state": _TEXTS[one.members.pods[uid].state],
                "node": pod.spec.node_name or "",
            }
            for uid, pod in one.ordered
        ],
    }
