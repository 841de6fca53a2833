"""Read what a command needs from the API, and build its report. Reads only: it changes nothing in the cluster."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from importlib.metadata import version

import msgspec

from cli.plugin import explaining, group_lists, starting
from cli.plugin.explaining import read_leader
from cli.plugin.invocation import Invocation
from cli.plugin.output import errors
from cli.plugin.output.sorting import sort_answer
from cli.plugin.reading import Reader, UnreadableError
from cli.plugin.reports import cluster_report, doctor, found_groups, gpus, groups, nodes, pods, status, top, versions
from cli.plugin.reports.checks import NAME, SCHEDULER, Patient
from cli.plugin.reports.objects import Event, Guard, Node, Pod
from cli.plugin.reports.tables import Answer, without_columns
from cli.plugin.reports.use import NodeUse, uses
from mooring.kube.failures import KubeError
from mooring.kube.guard import BINDINGS_PATH, POLICIES_PATH

_NODES, _PODS, _EVENTS = "/api/v1/nodes", "/api/v1/pods", "/api/v1/events"
# Pods that have ended hold nothing.
_LIVE = {"fieldSelector": "status.phase!=Succeeded,status.phase!=Failed"}


class _ServerVersion(msgspec.Struct):
    """The answer of `/version`."""

    git_version: str = msgspec.field(default="", name="gitVersion")


async def run(reader: Reader, invocation: Invocation) -> Answer:
    """Run a command; raise a KubeError, or UnreadableError, if the API gives no usable answer."""
    arguments = invocation.arguments
    answer = await COMMANDS[arguments.command](reader, invocation)
    if arguments.output.sort_by and answer.identity:
        answer = sort_answer(answer, arguments.output.sort_by)
    if not arguments.selection.all_namespaces:
        answer = replace(answer, tables=tuple(without_columns(table, {"NAMESPACE"}) for table in answer.tables))
    return with_notes(answer, reader)


def with_notes(answer: Answer, reader: Reader) -> Answer:
    """Return an answer with what could not be read."""
    notes = tuple(dict.fromkeys(reader.notes))
    return replace(answer, document={**answer.document, "notes": list(notes)}, notes=notes)


async def read_uses(reader: Reader) -> list[NodeUse]:
    """Return each node's PFs, with what pods hold of them as far as pods can be read."""
    listed, live = await asyncio.gather(reader.must(_NODES, Node), reader.all(_PODS, Pod, _LIVE))
    return uses(listed, live)


async def _read_nodes(reader: Reader, invocation: Invocation) -> tuple[list[Node], tuple[str, ...]]:
    """Return the nodes that are asked for, and an error for each name that none has."""
    names = invocation.arguments.selection.names
    if not names:
        return await reader.must(_NODES, Node, invocation.labels), ()
    found, absent = await reader.named(_NODES, Node, names)
    return found, errors.all_not_found("nodes", absent)


async def _nodes(reader: Reader, invocation: Invocation) -> Answer:
    (listed, absent), live = await asyncio.gather(_read_nodes(reader, invocation), reader.all(_PODS, Pod, _LIVE))
    return _with_errors(nodes.report(uses(listed, live), wide=invocation.is_wide), absent)


async def _pods(reader: Reader, invocation: Invocation) -> Answer:
    path, names = f"/api/v1{invocation.scope}/pods", invocation.arguments.selection.names
    if names:
        found, missing = await reader.named(path, Pod, names)
        absent = errors.all_not_found("pods", missing)
    else:
        found, absent = await reader.must(path, Pod, _LIVE | invocation.labels), ()
    is_asked = invocation.arguments.output.format not in ("table", "name") and any(map(pods.is_open, found))
    listed = await reader.all(_NODES, Node) if is_asked else None
    answer = pods.report(found, listed or (), wide=invocation.is_wide, every=bool(names))
    return _with_errors(answer, absent)


async def _gpus(reader: Reader, invocation: Invocation) -> Answer:
    (listed, absent), live = await asyncio.gather(_read_nodes(reader, invocation), reader.all(_PODS, Pod, _LIVE))
    return _with_errors(gpus.report(listed, live, wide=invocation.is_wide), absent)


async def _groups(reader: Reader, invocation: Invocation) -> Answer:
    found, names = await group_lists.read_groups(reader, invocation), invocation.arguments.selection.names
    if not names:
        return groups.report(found, wide=invocation.is_wide)
    absent = group_lists.missing(found, names, invocation.namespace)
    those = [group for name in names for group in found if _is_named(group, name, invocation)]
    if not those or invocation.arguments.output.format in ("wide", "name"):
        return _with_errors(groups.report(those, wide=True), absent)
    return _with_errors(groups.together([groups.detail(group) for group in those]), absent)


def _is_named(one: found_groups.FoundGroup, name: str, invocation: Invocation) -> bool:
    return one.members.title == name and one.key.namespace == invocation.namespace


def _with_errors(answer: Answer, absent: tuple[str, ...]) -> Answer:
    """Return an answer that ends with errors, if there are any; raise UnreadableError if there is nothing to show."""
    if absent and not answer.document.get("items"):
        raise UnreadableError("\n".join(absent))
    return replace(answer, errors=absent, status=1) if absent else answer


async def _top(reader: Reader, invocation: Invocation) -> Answer:
    listed, live = await asyncio.gather(reader.must(_NODES, Node), reader.must(_PODS, Pod, _LIVE))
    return top.report(uses(listed, live), live, invocation.arguments.most)


async def _patient(reader: Reader, invocation: Invocation) -> Patient:
    """Return what `status` and `doctor` check."""
    listed, live = await asyncio.gather(reader.must(_NODES, Node), reader.all(_PODS, Pod, _LIVE))
    found: Sequence[found_groups.FoundGroup] = ()
    if live is not None:
        listed_members = await group_lists.read_members(reader, "")
        found = found_groups.find(replace(listed_members, schedulers=invocation.arguments.scheduler))
    return await _examined(reader, invocation, uses(listed, live), live, found)


async def _examined(
    reader: Reader,
    invocation: Invocation,
    node_uses: Sequence[NodeUse],
    live: Sequence[Pod] | None,
    found: Sequence[found_groups.FoundGroup],
) -> Patient:
    """Return nodes, pods and groups with the other objects that are checked."""
    arguments = invocation.arguments
    policies, bindings, leaders = await asyncio.gather(
        reader.all(POLICIES_PATH, Guard),
        reader.all(BINDINGS_PATH, Guard),
        asyncio.gather(*(read_leader(reader, invocation, name) for name in arguments.scheduler)),
    )
    leaderships = [leader for leader in leaders if leader is not None]
    return Patient(
        node_uses,
        live,
        policies,
        bindings,
        leaderships if len(leaderships) == len(leaders) else None,
        invocation.version,
        arguments.without_guard,
        found,
        invocation.server,
    )


async def _status(reader: Reader, invocation: Invocation) -> Answer:
    try:
        results = status.examine(await _patient(reader, invocation))
    except KubeError as error:
        if error.status.code == 403:
            raise
        results = status.unreachable(str(error))
    return status.report(results, symbols=invocation.symbols)


async def _doctor(reader: Reader, invocation: Invocation) -> Answer:
    return doctor.report(await _patient(reader, invocation), symbols=invocation.symbols)


async def _report(reader: Reader, invocation: Invocation) -> Answer:
    """Return the whole cluster, whatever namespace the context has."""
    selection = replace(invocation.arguments.selection, all_namespaces=True)
    everywhere = replace(invocation, arguments=replace(invocation.arguments, selection=selection))
    listed, live, events = await asyncio.gather(
        reader.must(_NODES, Node),
        reader.all(_PODS, Pod, _LIVE),
        reader.all(_EVENTS, Event, {"fieldSelector": "involvedObject.kind=Pod"}),
    )
    found: Sequence[found_groups.FoundGroup] = ()
    node_uses = uses(listed, live)
    if live is not None:
        reading = asyncio.create_task(group_lists.read_groups(reader, everywhere))
        # Most work is done while the server prepares these lists.
        patient = Patient(node_uses, live, None, None, None, invocation.version)
        for _ in cluster_report.prepare(cluster_report.ClusterState(patient, listed, events, invocation.now)):
            if reading.done():
                break
            await asyncio.sleep(0)
        found = await reading
    patient = await _examined(reader, invocation, node_uses, live, found)
    return cluster_report.report(cluster_report.ClusterState(patient, listed, events, invocation.now))


async def _version(reader: Reader, _: Invocation) -> Answer:
    """Return the versions of the cluster's programs as far as they can be read; without a server, this program's."""
    own = version("mooring")
    try:
        server = await reader.plain("/version", _ServerVersion)
        listed, scheduler_pods = await asyncio.gather(
            reader.all(_NODES, Node), reader.all(_PODS, Pod, {"labelSelector": f"{NAME}={SCHEDULER}"})
        )
    except KubeError as error:
        return replace(versions.report(own), errors=(errors.line_of(error),), status=1)
    return versions.report(own, server.git_version, scheduler_pods, uses(listed or (), None))


COMMANDS: Mapping[str, Callable[[Reader, Invocation], Awaitable[Answer]]] = {
    "nodes": _nodes,
    "pods": _pods,
    "gpus": _gpus,
    "groups": _groups,
    "explain": explaining.run,
    "when": starting.when,
    "fits": starting.fits,
    "top": _top,
    "status": _status,
    "doctor": _doctor,
    "report": _report,
    "ui": _report,
    "version": _version,
}
