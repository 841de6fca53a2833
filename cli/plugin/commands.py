"""Read what a command needs from the API, and build its report. Reads only: it changes nothing in the cluster."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from typing import Any

from cli.plugin.arguments import Arguments
from cli.plugin.reading import Reader, UnreadableError
from cli.plugin.reports import doctor, explain, gpus, groups, leadership, nodes, pods, status, top
from cli.plugin.reports.checks import Patient
from cli.plugin.reports.objects import Event, Guard, Lease, Node, Pod
from cli.plugin.reports.tables import Answer
from cli.plugin.reports.use import NodeUse, uses
from mooring.kube.failures import KubeError, NotFound
from mooring.kube.guard import BINDINGS_PATH, POLICIES_PATH
from scheduler.cache.groups import known_pod_groups
from scheduler.kube import jobs, objects

_NODES, _PODS = "/api/v1/nodes", "/api/v1/pods"
# Pods that have ended hold nothing.
_LIVE = {"fieldSelector": "status.phase!=Succeeded,status.phase!=Failed"}
_UNDECIDABLE = explain.DecisionReport("none", "nothing can be decided without all nodes and pods", {})


@dataclass(frozen=True, slots=True)
class Invocation:
    """A command line, its namespace, the UNIX time, the API server, and whether the output shows symbols."""

    arguments: Arguments
    namespace: str
    now: float
    server: str = ""
    symbols: bool = False

    @property
    def is_wide(self) -> bool:
        return self.arguments.output == "wide"


async def run(reader: Reader, invocation: Invocation) -> Answer:
    """Run a command; raise a KubeError, or UnreadableError, if the API gives no usable answer."""
    return with_notes(await COMMANDS[invocation.arguments.command](reader, invocation), reader)


def with_notes(answer: Answer, reader: Reader) -> Answer:
    """Return an answer with what could not be read."""
    notes = tuple(dict.fromkeys(reader.notes))
    return replace(answer, document={**answer.document, "notes": list(notes)}, notes=notes)


async def read_uses(reader: Reader) -> list[NodeUse]:
    """Return each node's PFs, with what pods hold of them as far as pods can be read."""
    listed, live = await asyncio.gather(reader.must(_NODES, Node), reader.all(_PODS, Pod, _LIVE))
    return uses(listed, live)


async def _nodes(reader: Reader, invocation: Invocation) -> Answer:
    return nodes.report(await read_uses(reader), wide=invocation.is_wide)


async def _pods(reader: Reader, invocation: Invocation) -> Answer:
    path = _PODS if invocation.arguments.all_namespaces else f"/api/v1/namespaces/{invocation.namespace}/pods"
    live = await reader.must(path, Pod, _LIVE)
    is_asked = invocation.arguments.output != "table" and any(map(pods.is_open, live))
    listed = await reader.all(_NODES, Node) if is_asked else None
    return pods.report(live, listed or (), wide=invocation.is_wide)


async def _gpus(reader: Reader, invocation: Invocation) -> Answer:
    listed, live = await asyncio.gather(reader.must(_NODES, Node), reader.all(_PODS, Pod, _LIVE))
    return gpus.report(listed, live, wide=invocation.is_wide)


async def _groups(reader: Reader, invocation: Invocation) -> Answer:
    found = await _found_groups(reader, invocation)
    if not invocation.arguments.group:
        return groups.report(found, wide=invocation.is_wide)
    return groups.together([groups.detail(one) for one in _named(found, invocation)])


async def _found_groups(reader: Reader, invocation: Invocation) -> list[groups.FoundGroup]:
    scope = "" if invocation.arguments.all_namespaces else f"/namespaces/{invocation.namespace}"
    about = {"fieldSelector": "involvedObject.kind=Pod,reason=FailedScheduling"}
    listed, events, listed_nodes = await asyncio.gather(
        _pods_and_groups(reader, scope),
        reader.all(f"/api/v1{scope}/events", Event, about),
        reader.all(_NODES, Node),
    )
    return groups.find(replace(listed, events=events, nodes=listed_nodes, schedulers=invocation.arguments.scheduler))


async def _pods_and_groups(reader: Reader, scope: str) -> groups.ListedObjects:
    """Return pods, PodGroups of each kind, and Jobs of a namespace or, where ``scope`` is empty, of all."""
    listed, listed_jobs, of_kinds = await asyncio.gather(
        reader.must(f"/api/v1{scope}/pods", objects.Pod),
        reader.optional([_scoped(path, scope) for path in jobs.PATHS], jobs.Job),
        asyncio.gather(
            *(
                reader.optional([_scoped(path, scope) for path in paths], kind)
                for kind, paths in known_pod_groups.PATHS.items()
            )
        ),
    )
    return groups.ListedObjects(
        listed, dict(zip(known_pod_groups.PATHS, of_kinds, strict=True)), jobs=listed_jobs or ()
    )


def _scoped(path: str, scope: str) -> str:
    """Return the path of a list in a namespace, given that of all namespaces."""
    parent, _, resource = path.rpartition("/")
    return f"{parent}{scope}/{resource}"


def _named(found: list[groups.FoundGroup], invocation: Invocation) -> list[groups.FoundGroup]:
    """Return the groups of the name that is asked for: those of other sources may have it too."""
    name = invocation.arguments.group
    named = [one for one in found if one.members.title == name and one.key.namespace == invocation.namespace]
    if not named:
        raise UnreadableError(f"namespace {invocation.namespace!r} has no group {name!r}")
    return named


async def _explain_group(reader: Reader, invocation: Invocation) -> Answer:
    named = _named(await _found_groups(reader, invocation), invocation)
    listed = None
    answers = []
    for one in named:
        decision = None if invocation.arguments.recompute else one.decision
        if decision is None and one.waiting:
            listed = listed or await _listed(reader)
            decision = _recomputed_group(listed, one, invocation)
        answers.append(groups.explanation(one, decision))
    answer = groups.together(answers)
    if not any(one.waiting for one in named):
        return answer
    answer = explain.with_drained_vfs(answer, uses(await reader.all(_NODES, Node) or (), None))
    return explain.with_leadership(answer, await _leader(reader, invocation, invocation.arguments.scheduler[0]))


async def _leader(reader: Reader, invocation: Invocation, scheduler: str) -> leadership.Leadership | None:
    """Return whether the scheduler of this name leads; None, with a note, if its Lease cannot be read."""
    name = leadership.lease_name(scheduler)
    leases = await reader.all(leadership.LEASES, Lease, {"fieldSelector": f"metadata.name={name}"})
    return None if leases is None else leadership.judge(leases, name, invocation.now)


def _recomputed_group(
    listed: Mapping[type[Any], Sequence[Any] | None], one: groups.FoundGroup, invocation: Invocation
) -> explain.DecisionReport:
    from cli.plugin.reports.recompute import recompute_group

    if listed[objects.Node] is None or listed[objects.Pod] is None:
        return _UNDECIDABLE
    known = {kind: items or () for kind, items in listed.items()}
    return recompute_group(known, one.key, invocation.arguments.scheduler[0], invocation.now)


async def _explain(reader: Reader, invocation: Invocation) -> Answer:
    if invocation.arguments.group:
        return await _explain_group(reader, invocation)
    name, namespace = invocation.arguments.pod, invocation.namespace
    about = {"fieldSelector": f"involvedObject.kind=Pod,involvedObject.name={name}"}
    events = reader.all(f"/api/v1/namespaces/{namespace}/events", Event, about)
    try:
        pod, told = await asyncio.gather(reader.one(f"/api/v1/namespaces/{namespace}/pods/{name}", Pod), events)
    except NotFound:
        raise UnreadableError(f"namespace {namespace!r} has no pod {name!r}; a group is group/NAME") from None
    found = explain.latest(told or (), pod.metadata.uid)
    if not pod.spec.node_name and (found is None or invocation.arguments.recompute):
        found = await _recomputed(reader, pod.metadata.uid, invocation.now)
    if found is None:
        found = explain.DecisionReport(
            "none", "the event that says why is gone: an API server keeps events for an hour", {}
        )
    its_node = (
        await _its_node(reader, pod) if pod.spec.node_name and (pods.concerns(pod) or gpus.held_by(pod)) else None
    )
    answer = explain.report(pod, found, its_node)
    if pod.is_over:
        return answer
    if pod.spec.node_name:
        return explain.with_its_drained_vfs(answer, pod, its_node)
    if pods.concerns(pod):
        answer = explain.with_drained_vfs(answer, uses(await reader.all(_NODES, Node) or (), None))
    return explain.with_leadership(answer, await _leader(reader, invocation, pod.spec.scheduler_name))


async def _its_node(reader: Reader, pod: Pod) -> Node | None:
    """Return the node of a pod with GPUs or VFs: it has their bridges, and what is drained.

    None without them or a node, and with a note if it cannot be read.
    """
    if not pod.spec.node_name or not (pods.concerns(pod) or gpus.held_by(pod)):
        return None
    listed = await reader.all(_NODES, Node, {"fieldSelector": f"metadata.name={pod.spec.node_name}"})
    return next(iter(listed or ()), None)


async def _recomputed(reader: Reader, uid: str, now: float) -> explain.DecisionReport:
    # The scheduler's rules use numpy, whose import takes longer than other commands take in all.
    from cli.plugin.reports.recompute import recompute

    listed = await _listed(reader)
    if listed[objects.Node] is None or listed[objects.Pod] is None:
        return _UNDECIDABLE
    return recompute({kind: items or () for kind, items in listed.items()}, uid, now)


async def _listed(reader: Reader) -> Mapping[type[Any], Sequence[Any] | None]:
    """Return all that the scheduler's decisions depend on, by kind; None for what is forbidden or not served."""
    from cli.plugin.reports.recompute import PATHS

    optional: Mapping[type[Any], Sequence[str]] = {**known_pod_groups.PATHS, jobs.Job: jobs.PATHS}
    listed = await asyncio.gather(
        *(reader.all(path, kind) for kind, path in PATHS.items()),
        *(reader.optional(paths, kind) for kind, paths in optional.items()),
    )
    return dict(zip((*PATHS, *optional), listed, strict=True))


async def _top(reader: Reader, invocation: Invocation) -> Answer:
    listed, live = await asyncio.gather(reader.must(_NODES, Node), reader.must(_PODS, Pod, _LIVE))
    return top.report(uses(listed, live), live, invocation.arguments.most)


async def _patient(reader: Reader, invocation: Invocation) -> Patient:
    """Return what `status` and `doctor` check."""
    arguments = invocation.arguments
    listed, live, policies, bindings, leaders = await asyncio.gather(
        reader.must(_NODES, Node),
        reader.all(_PODS, Pod, _LIVE),
        reader.all(POLICIES_PATH, Guard),
        reader.all(BINDINGS_PATH, Guard),
        asyncio.gather(*(_leader(reader, invocation, one) for one in arguments.scheduler)),
    )
    found: Sequence[groups.FoundGroup] = ()
    if live is not None:
        listed_members = await _pods_and_groups(reader, "")
        found = groups.find(replace(listed_members, schedulers=arguments.scheduler))
    leaderships = [one for one in leaders if one is not None]
    return Patient(
        uses(listed, live),
        live,
        policies,
        bindings,
        leaderships if len(leaderships) == len(leaders) else None,
        version("mooring"),
        arguments.without_guard,
        found,
        invocation.server,
    )


async def _status(reader: Reader, invocation: Invocation) -> Answer:
    try:
        results = status.examine(await _patient(reader, invocation))
    except KubeError as failed:
        results = status.unreachable(str(failed))
    return status.report(results, symbols=invocation.symbols)


async def _doctor(reader: Reader, invocation: Invocation) -> Answer:
    return doctor.report(await _patient(reader, invocation), symbols=invocation.symbols)


COMMANDS: Mapping[str, Callable[[Reader, Invocation], Awaitable[Answer]]] = {
    "nodes": _nodes,
    "pods": _pods,
    "gpus": _gpus,
    "groups": _groups,
    "explain": _explain,
    "top": _top,
    "status": _status,
    "doctor": _doctor,
}
