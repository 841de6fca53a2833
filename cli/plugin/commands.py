"""Read what a command needs from the API, and build its report. Reads only: it changes nothing in the cluster."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from importlib.metadata import version

from cli.plugin.arguments import Arguments
from cli.plugin.reading import Reader
from cli.plugin.reports import doctor, explain, nodes, pods, top
from cli.plugin.reports.objects import Event, Guard, Node, Pod
from cli.plugin.reports.tables import Answer
from cli.plugin.reports.use import uses
from mooring.admission_policies import BINDINGS_PATH, POLICIES_PATH

_NODES, _PODS = "/api/v1/nodes", "/api/v1/pods"
# Pods that have ended hold nothing.
_LIVE = {"fieldSelector": "status.phase!=Succeeded,status.phase!=Failed"}


@dataclass(frozen=True, slots=True)
class Invocation:
    """A command line, its namespace, and the UNIX time."""

    arguments: Arguments
    namespace: str
    now: float

    @property
    def is_wide(self) -> bool:
        return self.arguments.output == "wide"


async def run(reader: Reader, invocation: Invocation) -> Answer:
    """Run a command; raise a KubeError, or UnreadableError, if the API gives no usable answer."""
    answer = await COMMANDS[invocation.arguments.command](reader, invocation)
    notes = tuple(dict.fromkeys(reader.notes))
    return replace(answer, document={**answer.document, "notes": list(notes)}, notes=notes)


async def _nodes(reader: Reader, invocation: Invocation) -> Answer:
    listed, live = await asyncio.gather(reader.must(_NODES, Node), reader.all(_PODS, Pod, _LIVE))
    return nodes.report(uses(listed, live), wide=invocation.is_wide)


async def _pods(reader: Reader, invocation: Invocation) -> Answer:
    path = _PODS if invocation.arguments.all_namespaces else f"/api/v1/namespaces/{invocation.namespace}/pods"
    return pods.report(await reader.must(path, Pod, _LIVE), wide=invocation.is_wide)


async def _explain(reader: Reader, invocation: Invocation) -> Answer:
    name, namespace = invocation.arguments.pod, invocation.namespace
    about = {"fieldSelector": f"involvedObject.kind=Pod,involvedObject.name={name}"}
    events = reader.all(f"/api/v1/namespaces/{namespace}/events", Event, about)
    pod, told = await asyncio.gather(reader.one(f"/api/v1/namespaces/{namespace}/pods/{name}", Pod), events)
    found = None if invocation.arguments.recompute else explain.latest(told or (), pod.metadata.uid)
    if found is None and not pod.spec.node_name:
        found = await _recomputed(reader, pod.metadata.uid, invocation.now)
    if found is None:
        found = explain.DecisionReport(
            "none", "the event that says why is gone: an API server keeps events for an hour", {}
        )
    return explain.report(pod, found)


async def _recomputed(reader: Reader, uid: str, now: float) -> explain.DecisionReport:
    # The scheduler's rules use numpy, whose import takes longer than other commands take in all.
    from cli.plugin.reports.recompute import PATHS, recompute

    kinds = list(PATHS)
    live = {_PODS: _LIVE}
    listed = await asyncio.gather(*(reader.all(PATHS[kind], kind, live.get(PATHS[kind])) for kind in kinds))
    objects = {kind: found or [] for kind, found in zip(kinds, listed, strict=True)}
    if any(listed[index] is None for index in (0, 1)):
        return explain.DecisionReport("none", "nothing can be decided without all nodes and pods", {})
    return recompute(objects, uid, now)


async def _top(reader: Reader, invocation: Invocation) -> Answer:
    listed, live = await asyncio.gather(reader.must(_NODES, Node), reader.must(_PODS, Pod, _LIVE))
    return top.report(uses(listed, live), live, invocation.arguments.most)


async def _doctor(reader: Reader, invocation: Invocation) -> Answer:
    listed, live, policies, bindings = await asyncio.gather(
        reader.must(_NODES, Node),
        reader.all(_PODS, Pod, _LIVE),
        reader.all(POLICIES_PATH, Guard),
        reader.all(BINDINGS_PATH, Guard),
    )
    patient = doctor.Patient(
        uses(listed, live), live, policies, bindings, version("mooring"), invocation.arguments.without_guard
    )
    return doctor.report(patient)


COMMANDS: Mapping[str, Callable[[Reader, Invocation], Awaitable[Answer]]] = {
    "nodes": _nodes,
    "pods": _pods,
    "explain": _explain,
    "top": _top,
    "doctor": _doctor,
}
