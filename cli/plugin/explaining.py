"""`kubectl mooring explain`: read a pod, a group or a Job, and what was decided about it, or would be now."""

import asyncio
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

from cli.plugin.group_lists import named, read_groups
from cli.plugin.invocation import Invocation
from cli.plugin.reading import Reader, UnreadableError
from cli.plugin.reports import explain, found_groups, gpus, groups, leadership, pods
from cli.plugin.reports.objects import Event, Lease, Node, Pod
from cli.plugin.reports.tables import Answer
from cli.plugin.reports.use import uses
from mooring.natural_order import natural
from scheduler.kube import objects
from scheduler.kube.workload_objects import JOB_PATHS, POD_GROUP_PATHS, Job

UNDECIDABLE = "cannot decide again without all nodes and pods"
_UNDECIDABLE = explain.DecisionReport("none", UNDECIDABLE, {})
NO_NUMPY = "numpy is not installed: install kubectl mooring with the extra 'recompute'"


async def run(reader: Reader, invocation: Invocation) -> Answer:
    """Explain the subject of the command line."""
    kind, name = invocation.arguments.subject
    if kind == "group":
        those = named(await read_groups(reader, invocation), name, invocation.namespace)
        return await _explain_groups(reader, invocation, those)
    if kind == "job":
        return await _explain_job(reader, invocation, name)
    return await _explain_pod(reader, invocation, name)


async def _explain_job(reader: Reader, invocation: Invocation, name: str) -> Answer:
    """Explain the groups of a Job's pods; without a group the first pod that waits, or the first of all."""
    job, listed, found = await asyncio.gather(
        reader.one(f"/apis/batch/v1/namespaces/{invocation.namespace}/jobs/{name}", Job),
        reader.must(f"/api/v1/namespaces/{invocation.namespace}/pods", objects.Pod),
        read_groups(reader, invocation),
    )
    own = {pod.metadata.uid: pod for pod in listed if _is_owned(pod, job.metadata.uid)}
    its_groups = [
        group for group in found if group.key.namespace == invocation.namespace and own.keys() & group.pods.keys()
    ]
    if its_groups:
        return await _explain_groups(reader, invocation, its_groups)
    if not own:
        raise UnreadableError(f"job {name!r}: has no pods yet")
    first = min(own.values(), key=lambda pod: (bool(pod.spec.node_name), pod.is_over, natural(pod.metadata.name)))
    answer = await _explain_pod(reader, invocation, first.metadata.name)
    waiting = sum(not pod.spec.node_name and not pod.is_over for pod in own.values())
    return explain.of_job(answer, name, len(own), waiting)


def _is_owned(pod: objects.Pod, uid: str) -> bool:
    return any(owner.uid == uid for owner in pod.metadata.owner_references or ())


async def _explain_groups(reader: Reader, invocation: Invocation, those: Sequence[found_groups.FoundGroup]) -> Answer:
    listed = None
    answers = []
    for group in those:
        decision = None if invocation.arguments.recompute else group.decision
        if decision is None and group.waiting:
            module = _recompute(invocation)
            listed = listed or (await read_objects(reader, module) if module else None)
            decision = _recomputed_group(module, listed, group, invocation)
        answers.append(groups.explanation(group, decision))
    answer = groups.together(answers)
    if not any(group.waiting for group in those):
        return answer
    answer = explain.with_drained_vfs(answer, uses(await reader.all("/api/v1/nodes", Node) or (), None))
    return explain.with_leadership(answer, await read_leader(reader, invocation, invocation.arguments.scheduler[0]))


def _recomputed_group(
    module: ModuleType | None,
    listed: Mapping[type[Any], Sequence[Any] | None] | None,
    one: found_groups.FoundGroup,
    invocation: Invocation,
) -> explain.DecisionReport:
    if module is None or listed is None:
        return explain.DecisionReport("none", NO_NUMPY, {})
    if listed[objects.Node] is None or listed[objects.Pod] is None:
        return _UNDECIDABLE
    known = {kind: items or () for kind, items in listed.items()}
    decision: explain.DecisionReport = module.recompute_group(
        known, one.key, invocation.arguments.scheduler[0], invocation.now
    )
    return decision


async def _explain_pod(reader: Reader, invocation: Invocation, name: str) -> Answer:
    namespace = invocation.namespace
    about = {"fieldSelector": f"involvedObject.kind=Pod,involvedObject.name={name}"}
    events = reader.all(f"/api/v1/namespaces/{namespace}/events", Event, about)
    pod, told = await asyncio.gather(reader.one(f"/api/v1/namespaces/{namespace}/pods/{name}", Pod), events)
    found = explain.latest(told or (), pod.metadata.uid)
    if not pod.spec.node_name and (found is None or invocation.arguments.recompute):
        found = await _recomputed(reader, pod.metadata.uid, invocation)
    if found is None:
        found = explain.DecisionReport("none", "no event has the reason: an API server keeps events for an hour", {})
    its_node = await _its_node(reader, pod)
    answer = explain.report(pod, found, its_node)
    if pod.is_over:
        return answer
    if pod.spec.node_name:
        return explain.with_its_drained_vfs(answer, pod, its_node)
    if pods.concerns(pod):
        answer = explain.with_drained_vfs(answer, uses(await reader.all("/api/v1/nodes", Node) or (), None))
    return explain.with_leadership(answer, await read_leader(reader, invocation, pod.spec.scheduler_name))


async def read_leader(reader: Reader, invocation: Invocation, scheduler: str) -> leadership.Leadership | None:
    """Return whether the scheduler of this name leads; None, with a note, if its Lease cannot be read."""
    name = leadership.lease_name(scheduler)
    leases = await reader.all(leadership.LEASES, Lease, {"fieldSelector": f"metadata.name={name}"})
    return None if leases is None else leadership.judge(leases, name, invocation.now)


async def _its_node(reader: Reader, pod: Pod) -> Node | None:
    """Return the node of a pod with GPUs or VFs: it has their bridges, and what is drained.

    None without them or a node, and with a note if it cannot be read.
    """
    if not pod.spec.node_name or not (pods.concerns(pod) or gpus.held_by(pod)):
        return None
    listed = await reader.all("/api/v1/nodes", Node, {"fieldSelector": f"metadata.name={pod.spec.node_name}"})
    return next(iter(listed or ()), None)


def _recompute(invocation: Invocation) -> ModuleType | None:
    """Return the module that decides again; None if its extra is not installed. Raise UnreadableError if it must be.

    The scheduler's rules use numpy. Its import takes longer than a whole run of the other commands.
    """
    try:
        from cli.plugin.reports import recompute
    except ModuleNotFoundError as error:
        if error.name != "numpy":
            raise
        if invocation.arguments.recompute:
            raise UnreadableError(f"--recompute: {NO_NUMPY}") from None
        return None
    return recompute


async def _recomputed(reader: Reader, uid: str, invocation: Invocation) -> explain.DecisionReport:
    if (module := _recompute(invocation)) is None:
        return explain.DecisionReport("none", NO_NUMPY, {})
    listed = await read_objects(reader, module)
    if listed[objects.Node] is None or listed[objects.Pod] is None:
        return _UNDECIDABLE
    known = {kind: items or () for kind, items in listed.items()}
    decision: explain.DecisionReport = module.recompute(known, uid, invocation.now)
    return decision


async def read_objects(reader: Reader, module: ModuleType) -> Mapping[type[Any], Sequence[Any] | None]:
    """Return all that the scheduler's decisions depend on, by kind; None for what is forbidden or not served."""
    paths: Mapping[type[Any], str] = module.PATHS
    optional: Mapping[type[Any], Sequence[str]] = {
        **POD_GROUP_PATHS,
        Job: JOB_PATHS,
        objects.RuntimeClass: objects.RUNTIME_CLASS_PATHS,
    }
    listed = await asyncio.gather(
        *(reader.all(path, kind) for kind, path in paths.items()),
        *(reader.optional(several, kind) for kind, several in optional.items()),
    )
    return dict(zip((*paths, *optional), listed, strict=True))
