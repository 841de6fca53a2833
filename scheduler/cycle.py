"""Decide about one pod: filter the nodes, prefer one of them, take exact VFs there. Pure: time is an argument.

`decide` gives `Bind`, with all that the one write needs, or `Unschedulable` with the reasons counted over the nodes as
kube-scheduler words them. ``why`` in both is what ``mooring.dev/why`` carries: data for people and programs.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mooring import names
from mooring.assignment import Assignment, dump_assignment
from mooring.parsing import MAX_BYTES, dump
from scheduler.assign import Chosen, choose_pfs, pick_vfs
from scheduler.cluster import Cluster, NodeView, Seat
from scheduler.plugins import (
    node_affinity,
    node_name,
    node_ports,
    node_resources_fit,
    node_unschedulable,
    rdma_vfs,
    taint_toleration,
)
from scheduler.plugins.rule import Rule
from scheduler.queue import NOTHING, Happening
from scheduler.task import Task

# In kube-scheduler's order, ours last: it costs most.
RULES = (
    node_unschedulable.RULE,
    node_name.RULE,
    taint_toleration.RULE,
    node_affinity.RULE,
    node_ports.RULE,
    node_resources_fit.RULE,
    rdma_vfs.RULE,
)
PREFERENCES = (node_resources_fit.PREFERENCE, rdma_vfs.PREFERENCE)
# Node names named for one reason in `why`; an event is small.
_NAMED = 8
# What validation.IsQualifiedName takes: the API server does not check it in a Binding.
_KEY = re.compile(r"(?:[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9](?:[-\w.]{0,61}[A-Za-z0-9])?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Bind:
    """Bind this pod to this node with these annotations, in one write; ``seat`` is what is assumed from now on."""

    task: Task
    seat: Seat
    annotations: Mapping[str, str]
    why: str


@dataclass(frozen=True, slots=True)
class Unschedulable:
    """No node will do now; ``helped_by`` is what can change that."""

    task: Task
    reason: str
    helped_by: Happening
    why: str


Decision = Bind | Unschedulable


def decide(task: Task, cluster: Cluster, now: float) -> Decision:
    """Decide about a pod at UNIX time ``now``; equal arguments give equal decisions."""
    views = cluster.views()
    passed, refused = _filter(task, views, now)
    if not passed:
        return _unschedulable(task, len(views), refused)
    chosen = max(passed, key=lambda node: (_score(task, node), node.name))
    return _bind(task, cluster, chosen, len(passed), len(views))


@dataclass(frozen=True, slots=True)
class _Refused:
    """A node, the rule that refused it, and its reasons."""

    node: str
    rule: Rule
    reasons: tuple[str, ...]


def _filter(task: Task, views: Sequence[NodeView], now: float) -> tuple[list[NodeView], list[_Refused]]:
    filters = [(rule, prepared) for rule in RULES if (prepared := rule.prepare(task, now)) is not None]
    passed, refused = [], []
    for node in views:
        for rule, prepared in filters:
            if reasons := prepared(node):
                refused.append(_Refused(node.name, rule, reasons))
                break
        else:
            passed.append(node)
    return passed, refused


def _score(task: Task, node: NodeView) -> float:
    return sum(preference.weight * preference.score(task, node) for preference in PREFERENCES)


def _unschedulable(task: Task, total: int, refused: Sequence[_Refused]) -> Unschedulable:
    if not refused:
        why = dump({"v": 1, "nodes": 0})
        return Unschedulable(task, "no nodes available to schedule pods", Happening.NODE, why)
    counted = Counter(reason for one in refused for reason in one.reasons)
    listed = ", ".join(sorted(f"{count} {reason}" for reason, count in counted.items()))
    # A new node may help whatever refused the old ones.
    helped_by = Happening.NODE
    for one in refused:
        helped_by |= one.rule.helped_by
    named = {reason: [one.node for one in refused if reason in one.reasons][:_NAMED] for reason in sorted(counted)}
    why = dump({"v": 1, "nodes": total, "counts": dict(counted), "refused": named})
    return Unschedulable(task, f"0/{total} nodes are available: {listed}.", helped_by, why)


def _bind(task: Task, cluster: Cluster, node: NodeView, passed: int, total: int) -> Decision:
    assignment = _assign(task, cluster, node)
    annotations = {names.ASSIGNMENT: dump_assignment(assignment)} if assignment else {}
    if fault := annotations_fault(task.pod.annotations, annotations):
        return Unschedulable(task, fault, NOTHING, dump({"v": 1, "nodes": total}))
    seat = Seat(
        uid=task.uid,
        pod=task.pod.key,
        node=node.name,
        resources=task.resources,
        ports=task.ports,
        assignment=assignment,
        assumed=True,
    )
    return Bind(task, seat, annotations, _why_here(task, node, passed, total, assignment))


def _assign(task: Task, cluster: Cluster, node: NodeView) -> Assignment | None:
    if task.request is None or not task.interfaces:
        return None
    chosen = choose_pfs(task.request, node.supply)
    assert isinstance(chosen, Chosen), f"node {node.name!r} passed the filter"
    vfs = pick_vfs(task.request, node.supply, chosen, cluster.free_since(node.name))
    return Assignment(uid=task.uid, node=node.name, vfs=vfs)


def _why_here(task: Task, node: NodeView, passed: int, total: int, assignment: Assignment | None) -> str:
    pfs: dict[str, list[int]] = {}
    for vf in assignment.vfs if assignment else ():
        pfs.setdefault(vf.pf, []).append(vf.vf)
    scores = {preference.name: round(preference.score(task, node), 1) for preference in PREFERENCES}
    return dump({"v": 1, "node": node.name, "nodes": total, "passed": passed, "scores": scores, "pfs": pfs})


def annotations_fault(present: Mapping[str, str], added: Mapping[str, str]) -> str:
    """Say why a Binding must not carry these annotations; empty if it may.

    The API server checks neither keys nor size in a Binding, and refuses every later write to such a pod, so that it
    could only be deleted.
    """
    bad = next((key for key in added if not _KEY.fullmatch(key)), None)
    if bad is not None:
        return f"annotation key {bad!r} is not a qualified name"
    size = sum(len(key.encode()) + len(value.encode()) for key, value in {**present, **added}.items())
    if size > MAX_BYTES:
        return f"annotations would have {size} bytes with the assignment, the most is {MAX_BYTES}"
    return ""
